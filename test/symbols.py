"""What the shared objects show: the plugins and the guard their entry points, the library what the public header declares, no more and no less."""
import os
import re
import subprocess
import sys

import _check
from _check import check, end

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
ONLY = {"libxlane-cpu.so": {"GetPjrtApi"}, "libxlane-guard.so": {"GetPjrtApi", "xlane_guard_attach",
    "xlane_guard_checks", "xlane_guard_ended", "xlane_guard_function", "xlane_guard_reading"},
        "libxlane-preload.so": {"dlsym"}}


def shown(name):
    out = subprocess.run(["nm", "-D", "--defined-only", os.path.join(BUILD, name)], capture_output=True, text=True,
                         check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if line.split()[1] != "A"}


def soname(name):
    out = subprocess.run(["readelf", "-d", os.path.join(BUILD, name)], capture_output=True, text=True,
                         check=True).stdout
    m = re.search(r"soname: \[(.*?)\]", out)
    return m[1] if m else None


_check.prefix = "symbols_"
for name, want in ONLY.items():
    got = shown(name)
    check(name, got == want, f"shows {', '.join(sorted(got - want)[:8])}; lacks {', '.join(sorted(want - got))}")
    check(name + "_soname", soname(name) == name, f"its soname is {soname(name)}")
header = open(os.path.join(ROOT, "include", "xlane", "xlane.h"), encoding="utf-8").read()
declared = set(re.findall(r"^(?:XL_API|XL_CHECKED)[^(;]*?\b(xl_\w+)\(", header, re.M))
got = shown("libxlane.so")
check("libxlane", got == declared, f"not in the header: {', '.join(sorted(got - declared)[:8])}; not in the library: "
                                   f"{', '.join(sorted(declared - got)[:8])}")
check("libxlane_soname", re.fullmatch(r"libxlane\.so\.\d+", soname("libxlane.so") or "") is not None,
      f"its soname is {soname('libxlane.so')}")
sys.exit(end())
