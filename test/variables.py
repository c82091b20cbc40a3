"""Every environment variable XLANE_* that a source file names has a row in src/base/variables.def, every row is used,
and docs/variables.md is what the rows say. `--fix` writes that page."""
import os
import re
import subprocess
import sys

from _check import check, end, skip

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "variables.md")
TABLE = open(os.path.join(ROOT, "src", "base", "variables.def"), encoding="utf-8").read()
# names with the prefix that are no variables: a header's guard, the library's symbol version, a name in a usage line
NOT = {"XLANE_H", "XLANE_VERSION", "XLANE_FILE", "XLANE_X_PASSWORD"}

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
files = [f for f in subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True).stdout.split("\n")
         if re.fullmatch(r"(?:src|include|test|bench|wheel|examples|profiles)/.*\.(?:c|h|inl|def|py|sh|yaml)|x|Makefile", f)
         and f not in ("src/base/variables.def", "test/variables.py")]
used = {}
for f in sorted(files, key=lambda f: f.startswith(("test/", "bench/"))):
    path = os.path.join(ROOT, f)
    if os.path.exists(path):
        for n in re.findall(r"\bXLANE_[A-Z0-9_]*[A-Z0-9]\b", open(path, encoding="utf-8").read()):
            used.setdefault(n, f)
# the device's own are read through XL_ENV_<name>, and the test of its errors has names that it does not know
missing = sorted(n for n in used if n not in names and n not in NOT and not n.startswith("XLANE_CPU_"))
told = lambda names_: "; ".join(f"{n} in {used[n]}" for n in names_) + ": add rows to src/base/variables.def"
own = [n for n in missing if not used[n].startswith(("test/", "bench/"))]
check("variables_have_rows", not own, told(own))
if set(missing) - set(own):
    skip("variables_of_tests", told(sorted(set(missing) - set(own))))
idle = sorted(n for n in names if n not in used and not n.startswith("XLANE_CPU_"))
check("variables_rows_are_used", not idle, ", ".join(idle) + ": no file names them")
check("variables_page", open(PAGE, encoding="utf-8").read() == page(),
      "docs/variables.md is not what the table says; run python test/variables.py --fix")
sys.exit(end())
