"""docs/variables.md is what the rows of src/base/variables.def say; `--fix` writes that page. That every variable in use
has a row, and every row a use, is asked by the build (test/complete.awk)."""
import os
import re
import sys

from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "variables.md")
TABLE = open(os.path.join(ROOT, "src", "base", "variables.def"), encoding="utf-8").read()

text = r'"((?:[^"\\]|\\.)*)"'
vars_ = re.findall(rf"^VAR\((\w+), *(\w+), *{text}, *{text}\)", TABLE, re.M)
cpu = re.findall(rf"^ENV\((\w+), *(\w+), *[^,]+, *[^,]+, *{text}, *{text}\)", TABLE, re.M)
names = ["XLANE_" + v[0] for v in vars_] + ["XLANE_CPU_" + v[0] for v in cpu]

GROUPS = (("USER", "Set by you", "what it does"),
          ("RUN", "Set by xlane for the processes that it starts",
           "what it tells them; an option is one of `xlane run`"),
          ("TEST", "Set for tests and measurements", "what it does"))
KINDS = {"SIZE": "a number, `16MiB`", "SECONDS": "seconds", "FLAG": "0 or 1", "PATH": "text"}


def page():
    out = ["# Environment variables", "",
           "Made from `src/base/variables.def` by `python test/variables.py --fix`. None of them has to be set; what holds without",
           "one is on the page of the part that reads it."]
    for group, title, what in GROUPS:
        out += ["", f"## {title}", "", f"| variable | for example | {what} |", "|---|---|---|"]
        out += [f"| `XLANE_{n}` | {f'`{e}`' if e else ''} | {t} |" for n, g, e, t in vars_ if g == group]
    out += ["", "## The embedded device", "",
            "Another name that begins with `XLANE_CPU_`, or a value of another kind, is an error: "
            "[cpu-device.md](cpu-device.md).", "", "| variable | value | what it sets |", "|---|---|---|"]
    out += [f"| `XLANE_CPU_{n}` | {KINDS.get(k) or ', '.join(f'`{w}`' for w in words.split())} | {t} |"
            for n, k, words, t in cpu]
    return "\n".join(out) + "\n"


if "--fix" in sys.argv:
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(page())

rows = len(re.findall(r"^(?:VAR|ENV)\(", TABLE, re.M))
check("variables_rows_parse", rows == len(names) == len(set(names)),
      f"{len(names)} of {rows} rows, {len(set(names))} names")
check("variables_page", open(PAGE, encoding="utf-8").read() == page(),
      "docs/variables.md is not what the table says; run python test/variables.py --fix")
sys.exit(end())
