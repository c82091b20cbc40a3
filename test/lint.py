"""The quick part of ./x lint: shell scripts by shellcheck, and Python for names that nothing defines (a test's rare
branch would fail only there). The C part takes minutes: ./x lint."""
import ast
import builtins
import os
import re
import shutil
import subprocess
import sys

from _check import check, end, skip

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
files = [f for f in subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True,
                                   text=True).stdout.splitlines() if os.path.exists(os.path.join(ROOT, f))]


def undefined(path):
    """Names that a file reads and nowhere sets; scopes are not told apart."""
    tree = ast.parse(open(os.path.join(ROOT, path), encoding="utf-8").read())
    read, known = {}, set(dir(builtins)) | {"__file__"}
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
            read.setdefault(n.id, n.lineno)
        elif isinstance(n, ast.Name):
            known.add(n.id)
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef)):
            known.add(n.name)
        elif isinstance(n, (ast.Import, ast.ImportFrom)):
            known |= {(a.asname or a.name).split(".")[0] for a in n.names}
        elif isinstance(n, ast.arg):
            known.add(n.arg)
        elif isinstance(n, ast.ExceptHandler) and n.name:
            known.add(n.name)
        elif isinstance(n, (ast.MatchAs, ast.MatchStar)) and n.name:
            known.add(n.name)
    return [] if "*" in known else [f"{path}:{line}: {name}" for name, line in read.items() if name not in known]


def first(path, pattern):
    return (re.findall(pattern, open(os.path.join(ROOT, path), encoding="utf-8").read()) or ["none"])[0]


versions = {"src/base/version.h": r'XL_VERSION "([^"]+)"', "include/xlane/xlane.h": r'XLANE_VERSION "([^"]+)"',
            "CHANGELOG.md": r"\n## (\S+) \(\d{4}-\d\d-\d\d\)"}
found = {path: first(path, pattern) for path, pattern in versions.items()}
minor = first("README.md", r"version\s+(\d+\.\d+),")
check("lint_versions_agree", len(set(found.values())) == 1 and found["CHANGELOG.md"].startswith(minor + "."),
      (found, minor))

wrong = [w for f in files if f.endswith(".py") and f != "src/cpu/pjrt/jax_rules.py" for w in undefined(f)]
check("lint_python_names", not wrong, "; ".join(wrong))
if shutil.which("shellcheck"):
    p = subprocess.run(["shellcheck", "x", *(f for f in files if f.endswith(".sh"))], cwd=ROOT, capture_output=True,
                       text=True)
    check("lint_shellcheck", p.returncode == 0, p.stdout)
else:
    skip("lint_shellcheck", "no shellcheck here (./x lint installs it)")
sys.exit(end())
