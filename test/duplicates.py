"""No two places share more than 12 lines: the same tokens, or the same but for names, numbers and strings, whatever
their spacing, blank lines, comments, includes and lone brackets left out. A table (.def) may repeat itself, and so may a
shape that stands in more than 8 places."""
import collections
import functools
import os
import re
import subprocess
import sys

from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST, COMMON = 12, 8
KEYWORDS = set("""auto bool break case char const continue default do double else enum extern float for goto if inline int
long register return short signed sizeof static struct switch typedef union unsigned void volatile while
and as assert async await class def del elif except finally from global import in is lambda nonlocal not or pass raise
try with yield fi then done esac local""".split())
ENDS = (".c", ".h", ".inl", ".py", ".sh")


def lines(path):
    """[(number, tokens, shape)] of what counts."""
    text = open(os.path.join(ROOT, path), encoding="utf-8").read()
    if path.endswith((".c", ".h", ".inl")):
        text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
        skip = r"\s*(#\s*include.*|[{}()\[\];,]*)\s*"
    else:
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        skip = r"\s*((from \S+ )?import .*|[{}()\[\];,]*)\s*"
    return [(n, re.sub(r"\s+", "", line), shape(line)) for n, line in enumerate(text.splitlines(), 1)
            if not re.fullmatch(skip, line)]


@functools.cache
def shape(line):
    line = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'', "s", line)
    return re.sub(r"\s+", "", re.sub(r"\w+", lambda m: " %s " % m[0] if m[0] in KEYWORDS else "N", line))


def table(shape):
    """A line of a table or of a program as text, which is alike but for what it says."""
    return re.fullmatch(r"(case)?[sN,{}()\[\].=:*&|\\#-]*", shape) is not None


def shared(files, column):
    """[(file, first, last, file, first, last)], the longest run of each pair of places."""
    size, seen, pairs = MOST + 1, collections.defaultdict(list), []
    for path, code in files:
        code = [line for line in code if column == 1 or not table(line[2])]
        for i in range(len(code) - size + 1):
            key = tuple(line[column] for line in code[i:i + size])
            seen[hash(key)].append((path, i, code[i][0], code[i + size - 1][0]))
    for places in seen.values():
        if column == 2 and len(places) > COMMON:
            continue
        for place in places[1:]:
            path, i, first, last = places[0]
            if path == place[0] and i + size > place[1]:    # with itself
                continue
            old = pairs[-1] if pairs else None
            if old and old[0] == path and old[3] == place[0] and old[4] <= place[2] <= old[5]:
                pairs[-1] = (*old[:2], last, *old[3:5], place[3])
            else:
                pairs.append((path, first, last, place[0], place[2], place[3]))
    return pairs


files = [f for f in subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True,
                                   text=True).stdout.splitlines()
         if f.endswith(ENDS) and f.split("/")[0] in ("src", "include", "test", "bench", "examples", "wheel", "site",
                                                     "deb")
         and os.path.exists(os.path.join(ROOT, f))]
code = [(f, lines(f)) for f in files]
for column, word in (1, "is"), (2, "is but for names"):
    found = [f"{a}:{b}-{c} {word} {d}:{e}-{f}" for a, b, c, d, e, f in shared(code, column)]
    check("duplicates" if column == 1 else "duplicates_of_shape", len(files) > 500 and not found,
          "; ".join(found) or f"only {len(files)} files")
sys.exit(end())
