"""How tangled the includes of a layer are: modules (x.h with x.c, each table), arrows between them, arrows that lie on a
cycle, which no order of the modules can point downwards, and arrows between folders that point upwards even in the
order of the folders in which fewest do.

usage: python test/_include_graph.py [COMMIT ...]     the working tree unless commits are named
"""
import itertools
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS = ("ir", "cpu", "guard")


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout


def includes(commit, layer):
    """{file: [included]} of a layer, without its tests; paths below src/."""
    got = {}
    found = subprocess.run(["git", "-C", ROOT, "grep", "-E", r'^ *# *include +"', *filter(None, [commit]), "--",
                            f"src/{layer}"],
                           capture_output=True, text=True).stdout
    for line in found.splitlines():
        path, text = re.fullmatch(r"src/(.*?):(.*)", line.removeprefix(commit + ":")).groups()
        if not re.search(r"_(test|fuzz)\.[ch]$", path):
            got.setdefault(path, []).append(re.search(r'"(.*?)"', text)[1])
    return got


def cycles(arrows):
    """Strongly connected components with more than one module (Tarjan)."""
    index, low, stack, out = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in arrows.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = stack[stack.index(v):]
            del stack[stack.index(v):]
            if len(part) > 1:
                out.append(set(part))
    for v in list(arrows):
        if v not in index:
            visit(v)
    return out


def upward(arrows):
    """Arrows from a folder to one above it, in the best order. An instruction set's folder counts as the one around it."""
    between = {}
    for v, others in arrows.items():
        for w in others:
            pair = tuple("/".join(m.split("/")[:2]) if m.count("/") > 1 else m.split("/")[0] for m in (v, w))
            if pair[0] != pair[1]:
                between[pair] = between.get(pair, 0) + 1
    folders = sorted({f for pair in between for f in pair})
    return min((sum(n for (a, b), n in between.items() if order.index(b) > order.index(a))
                for order in itertools.permutations(folders)), default=0)


def figures(commit, layer):
    """How many folders, modules, arrows, arrows on a cycle, the modules of the largest cycle, arrows upward."""
    files = includes(commit, layer)
    module = lambda f: re.sub(r"\.(c|h|inl)$", "", f)
    arrows = {module(f): set() for f in files}
    for f, others in files.items():
        arrows[module(f)] |= {module(o) for o in others if o.startswith(layer + "/")} - {module(f)}
    loops = cycles(arrows)
    lying = sum(w in loop for loop in loops for v in loop for w in arrows.get(v, ()))
    return (len({os.path.dirname(f) for f in files}), len(arrows), sum(map(len, arrows.values())), lying,
            max(map(len, loops), default=0), upward(arrows))


def main():
    print("| commit | layer | folders | modules | arrows | on a cycle | largest cycle | upward |\n"
          "|---|---|---|---|---|---|---|---|")
    for commit in sys.argv[1:] or [""]:
        for layer in LAYERS:
            print(f"| {commit or 'here'} | `{layer}` | " + " | ".join(map(str, figures(commit, layer))) + " |")


sys.setrecursionlimit(10000)
if __name__ == "__main__":
    main()
