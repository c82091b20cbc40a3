"""The guard and the embedded device, built with the address and undefined-behaviour sanitizers, under real JAX. Row B4.

The process is Python's, so the sanitizer's runtime is preloaded, and libstdc++ with it. Leaks are looked for in what
our own objects allocated: Python and jaxlib leak of themselves, which shows that the looking works. Building takes
minutes: `./x test all` does it, or `make SAN=address,undefined` before."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import _check
from _check import check, end
_check.prefix = "B4_"

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SAN = os.path.join(ROOT, "build", "san-address-undefined")
OURS = [os.path.join(SAN, n) for n in ("libxlane-guard.so", "libxlane-preload.so", "libxlane-cpu.so")]


def leave(why):
    print("skip guard_san:", why)
    sys.exit(0)


def library(name):
    path = subprocess.run([os.environ.get("CC", "cc"), "-print-file-name=" + name], text=True,
                          capture_output=True).stdout.strip()
    if not os.path.isabs(path):
        leave(f"the compiler has no {name}")
    return os.path.realpath(path)


if os.environ.get("XLANE_TEST_ALL") == "1":
    made = subprocess.run(["make", "-s", "-C", ROOT, "-j2", "SAN=address,undefined",
                           *(os.path.relpath(f, ROOT) for f in OURS)], text=True, capture_output=True)
    if made.returncode:
        check("sanitizers_build", False, made.stderr[-2000:])
        sys.exit(1)
elif not all(map(os.path.exists, OURS)):
    leave("./x test all builds with sanitizers")

tmp = tempfile.mkdtemp(prefix="xlane-san-")
preload = [library("libasan.so"), library("libstdc++.so")]


def jax(name, script, *args, guard=True, **more):
    """Runs the script with the sanitized device, and with the guard where asked; (process, folder of the run, what the sanitizer wrote)."""
    folder, log = os.path.join(tmp, name), os.path.join(tmp, name + ".log")
    os.mkdir(folder)
    env = dict(os.environ, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + OURS[2],
               XLANE_STATE=os.path.join(tmp, "state"), XLANE_RUN=folder,
               XLANE_CACHE=os.path.join(tmp, "cache"), XLANE_GUARD_LIBRARY=OURS[0], LD_PRELOAD=":".join(preload
                   + ([OURS[1]] if guard else [])), XLANE_CPU_DEVICES="8",
               ASAN_OPTIONS="detect_leaks=1:exitcode=0:log_path=" + log, LSAN_OPTIONS="report_objects=0", UBSAN_OPTIONS="print_stacktrace=1:log_path=" + log)
    env.update(more)
    p = subprocess.run([sys.executable, script, *args], text=True, capture_output=True, env=env)
    return p, folder, "".join(open(f, errors="replace").read() for f in glob.glob(log + "*"))


def compiles(folder):
    lines = [json.loads(line) for line in open(os.path.join(folder, "events.jsonl"))]
    return [e for e in lines if e["event"] == "compile"]


def errors(report):
    return [m for m in re.findall(r"^.*(?:ERROR: AddressSanitizer|runtime error).*$(?:\n.*){0,12}", report, re.M)]


def leaks(report):
    """Reports of leaks whose allocation was asked for by our objects."""
    blocks = re.findall(r"^(?:Direct|Indirect) leak of .*?(?=\n\n|\Z)", report, re.M | re.S)
    return [b for b in blocks if re.search(r"#[1-4] .*(?:/src/(?:base|ir|lane|guard|pjrt|pass)/)", b)]


more = os.path.join(HERE, "guard", "more.py")
plain, _, report = jax("plain", more, guard=False)
check("jax_on_the_sanitized_device", plain.returncode == 0 and not errors(report),
      plain.stderr[-2000:] + "\n".join(errors(report))[:4000])
for name in "cold", "warm":
    p, folder, report = jax(name, more)
    done = compiles(folder) if os.path.exists(os.path.join(folder, "events.jsonl")) else []
    check("same_output_" + name, p.returncode == 0 and p.stdout == plain.stdout and len(p.stdout) > 1000,
          p.stderr[-3000:] + report[:3000])
    check("clean_" + name, not errors(report), "\n".join(errors(report))[:4000])
    check("no_leaks_" + name, "leak of" in report and not leaks(report), "\n".join(leaks(report))[:4000])
    check("was_guarded_" + name, len(done) > 100 and any(e["result"] == ("compiled" if name == "cold" else "cached")
                                                         for e in done), len(done))
shutil.rmtree(tmp, ignore_errors=True)
sys.exit(end())
