"""./x build tells how far it is, on a terminal and off one, and shows what failed. `make` is a stand-in here."""
import os, re, shutil, subprocess, sys, tempfile
from _check import check, end
from _terminal import on_terminal

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAKE = """#!/bin/sh
i=0
while [ $i -lt 40 ]; do
    i=$((i + 1))
    echo "cc -c src/$i.c"
    case $* in *-n*) ;; *) sleep 0.08 ;; esac
done
case $*:$BROKEN in *-n*|*:) ;; *) echo "src/40.c:1: error: planted"; exit 2 ;; esac
"""


def build(terminal, **env):
    """Its exit status and what it says."""
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copy(ROOT + "/x", tmp + "/x")
        os.mkdir(tmp + "/bin")
        with open(tmp + "/bin/make", "w") as f:
            f.write(MAKE)
        os.chmod(tmp + "/bin/make", 0o755)
        env = dict(os.environ, PATH=tmp + "/bin:" + os.environ["PATH"], **env)
        if not terminal:
            p = subprocess.run([tmp + "/x", "build"], capture_output=True, text=True, env=env, timeout=60)
            return p.returncode, p.stderr
        return on_terminal([tmp + "/x", "build"], env)


status, said = build(False)
counts = [int(n) for n in re.findall(r"^x: compiling file (\d+) of 40$", said, re.M)]
check("lines_off_a_terminal", status == 0 and len(counts) > 1 and counts == sorted(set(counts)) and "\r" not in said,
      said)
check("what_is_to_be_done_comes_first", said.startswith("x: building; files to compile: 40; build/build.log"), said)
status, said = build(True)
check("one_line_on_a_terminal", status == 0 and len(re.findall(r"\rx: compiling file \d+ of 40 ", said)) > 1
      and "are ready" in said.splitlines()[-1], said)
status, said = build(False, BROKEN="1")
check("the_error_is_shown", status == 1 and "src/40.c:1: error: planted" in said and "all of it is in build/build.log"
      in said,
      said)
sys.exit(end())
