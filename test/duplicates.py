"""No two places share more than 12 lines: the same tokens, whatever their spacing, blank lines, comments, includes and
lone brackets left out. A table (.def) may repeat itself."""
import os
import re
import subprocess
import sys

from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST = 12
ENDS = (".c", ".h", ".inl", ".py", ".sh")


def lines(path):
    """(number, line) of what counts."""
    text = open(os.path.join(ROOT, path), encoding="utf-8").read()
    if path.endswith((".c", ".h", ".inl")):
        text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
        skip = r"\s*(#\s*include.*|[{}()\[\];,]*)\s*"
    else:
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        skip = r"\s*((from \S+ )?import .*|[{}()\[\];,]*)\s*"
    return [(n, re.sub(r"\s+", "", line)) for n, line in enumerate(text.splitlines(), 1)
            if not re.fullmatch(skip, line)]


def shared(files):
    """[(file, first, last, file, first, last)], the longest run of each pair of places."""
    size, seen, pairs = MOST + 1, {}, []
    for path in files:
        code = lines(path)
        for i in range(len(code) - size + 1):
            key = hash(tuple(line for _, line in code[i:i + size]))
            place = (path, code[i][0], code[i + size - 1][0])
            if key not in seen:
                seen[key] = place
            elif seen[key][0] != path or seen[key][2] < place[1]:
                old = pairs[-1] if pairs else None
                if old and old[0] == seen[key][0] and old[3] == path and old[4] <= place[1] <= old[5]:
                    pairs[-1] = (*old[:2], seen[key][2], *old[3:5], place[2])
                else:
                    pairs.append((*seen[key], *place))
    return pairs


files = [f for f in subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True,
                                   text=True).stdout.splitlines()
         if f.endswith(ENDS) and f.split("/")[0] in ("src", "include", "test", "bench", "examples", "wheel", "site",
                                                     "deb")
         and os.path.exists(os.path.join(ROOT, f))]
found = [f"{a}:{b}-{c} is {d}:{e}-{f}" for a, b, c, d, e, f in shared(files)]
check("duplicates", len(files) > 500 and not found, "; ".join(found) or f"only {len(files)} files")
sys.exit(end())
