"""Every #include of src/ against the table of rooms in docs/architecture.md. A folder without a row fails, so does a row
without a folder, and a row that names one below it. And within ir, cpu and guard no include leads back on a cycle of
modules, or upward."""
import os
import re
import sys

import _include_graph

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEEP = ("ir", "cpu")                             # layers that have rooms
PARTS = {("cpu/pjrt", "pjrt"): {"pjrt/abi.h", "pjrt/api.def", "pjrt/options.h"}}   # of this room only these files


def room(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in DEEP and len(parts) > 2 else parts[0]


def table():
    rows = {}
    text = open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8").read()
    for line in re.search(r"\n## Layers\n(.*?)\n## ", text, re.S)[1].splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"`[a-z]+(/[a-z]+)?`", cells[0]):
            rows[cells[0].strip("`")] = re.findall(r"`([a-z/*]+)`", cells[2])
    return rows


def allowed(rows, here, there):
    return here == there or any(there == may or (may.endswith("/*")
                                                 and (there == may[:-2]
                                                      or there.startswith(may[:-1]))) for may in rows[here])


def main():
    rows, seen, wrong = table(), set(), {}
    for folder, _, files in os.walk(os.path.join(ROOT, "src")):
        for name in files:
            if not re.search(r"\.(c|h|inl|def)$", name) or re.search(r"_(test|fuzz)\.[ch]$", name):
                continue
            path = os.path.relpath(os.path.join(folder, name), os.path.join(ROOT, "src"))
            here = room(path)
            seen.add(here)
            for number, line in enumerate(open(os.path.join(folder, name), encoding="utf-8"), 1):
                m = re.match(r'\s*#\s*include\s+"([^"]+/[^"]+)"', line)
                if not m or here not in rows:
                    continue
                there = room(m[1])
                if not allowed(rows, here, there):
                    wrong.setdefault(here, []).append(f"src/{path}:{number} includes {m[1]}, and its row in docs/architecture.md does not name {there}")
                elif m[1] not in PARTS.get((here, there), {m[1]}):
                    wrong.setdefault(here, []).append(f"src/{path}:{number} includes {m[1]}: of {there} it may take only {', '.join(sorted(PARTS[here, there]))}")
    order = list(rows)
    for here in order:                           # a row names only rows above it: no circle of rooms
        for may in rows[here]:
            below = [r for r in order[order.index(here):] if r == may
                     or (may.endswith("/*") and r.startswith(may[:-1]))]
            if below and not here.startswith(may[:-1]):
                wrong.setdefault(here,
                                 []).append(f"its row in docs/architecture.md names {below[0]}, which stands below it")
    for here in sorted(seen - set(rows)):
        wrong.setdefault(here, []).append(f"src/{here}/ has no row in docs/architecture.md")
    for here in sorted(set(rows) - seen):
        wrong.setdefault(here, []).append(f"docs/architecture.md has a row for {here}, and src/ has no such folder")
    for here in sorted(seen | set(rows)):
        print(f"FAIL layers_{here}: " + "; ".join(wrong[here][:5]) if here in wrong else f"ok layers_{here}")
    if os.path.exists(os.path.join(ROOT, ".git")):   # it asks git
        for layer in _include_graph.LAYERS:
            _, modules, _, lying, _, upward = _include_graph.figures("", layer)
            good = modules > 10 and not lying and not upward
            wrong.update({} if good else {layer: [layer]})
            print(f"ok layers_graph_{layer}" if good else f"FAIL layers_graph_{layer}: of {modules} modules, {lying} "
                  f"arrows lie on a cycle, {upward} lead upward: python3 test/_include_graph.py")
    return 1 if wrong else 0


sys.exit(main())
