"""Small programs that carry their own answer: test/cases/*.mlir. The first lines are comments: what it shows, then
`// expect: LINE` for each line that `xlane exec` prints, or `// error: PART` for what its error says; `// row: X1` cites
a requirement. `// gradient: 0=2 1=-3` runs the program's gradient instead, with those numbers as arguments: its result,
then the derivative by each. Each is run as it is planned and op by op. A new case is a new file."""
import glob
import os
import re
import subprocess
import sys
import tempfile

import _check
from _check import check, end

_check.prefix = "case_"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(os.environ.get("XLANE_BUILD", os.path.join(ROOT, "build")), "xlane")
files = sorted(glob.glob(os.path.join(ROOT, "test", "cases", "*.mlir")))
check("there_are_some", len(files) > 5, files)
for path in files:
    text = open(path, encoding="utf-8").read()
    expect, errors = (re.findall(rf"^// {word}: (.*)$", text, re.M) for word in ("expect", "error"))
    why = "" if bool(expect) != bool(errors) else "it has neither `expect` nor `error` lines, or both"
    run, inputs = path, []
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as grad:
        for values in re.findall(r"^// gradient: (.*)$", text, re.M):
            p = subprocess.run([XLANE, "grad", path], capture_output=True, text=True)
            grad.write(p.stdout)
            grad.flush()
            run, inputs = grad.name, ["--input=" + v for v in values.split()]
            why += p.stderr if p.returncode else ""
        for plan in () if why else ("planned", "plain"):
            p = subprocess.run([XLANE, "exec", "--plugin=cpu", run, *inputs], capture_output=True, text=True,
                               timeout=300, env=dict(os.environ, XLANE_CPU_PLAN=plan, XLANE_CPU_CHECK="1"))
            if expect and (p.returncode or p.stdout.splitlines() != expect):
                why += f"{plan}: exit status {p.returncode}: {p.stdout}{p.stderr}"
            if errors and (p.returncode != 1 or not all(e in p.stderr for e in errors)):
                why += f"{plan}: exit status {p.returncode}: {p.stderr}"
    check(os.path.basename(path)[:-5], not why, why)
sys.exit(end())
