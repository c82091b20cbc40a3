"""Runs scripts under `xlane run` on the embedded device, and reads what the commands say of them. Shared by the tests of those words."""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import _terminal, _warm
from _check import checked as check, end

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("XLANE_BUILD", os.path.join(HERE, "..", "build")))
XLANE = os.path.join(BUILD, "xlane")
PLUGIN = os.path.join(BUILD, "libxlane-cpu.so")
TMP = tempfile.mkdtemp(prefix="xlane-words-")
ALL = os.environ.get("XLANE_TEST_ALL") == "1"
UNENDED = "was killed or could not write, and its program ended with it or later"
# 40 steps of one program; %s: what comes after them
STEPS = """
import os, signal, time, jax, jax.numpy as jnp
@jax.jit
def step(w):
    return w * 0.9 + 1
w = jnp.ones((8, 8))
for i in range(40):
    w = step(w)
w.block_until_ready()
%s
"""


def environment(**more):
    env = dict(os.environ, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + PLUGIN,
               XLANE_STATE=os.path.join(TMP, "state"))
    env.pop("XLA_FLAGS", None)
    env.update({k: str(v) for k, v in more.items()})
    return env


def script(name, text):
    path = os.path.join(TMP, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def line_of(text, mark="# HERE"):
    return [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(mark)][0]


def xlane(*args, status=0, **env):
    p = subprocess.run([XLANE, *args], text=True, capture_output=True, env=environment(**env), timeout=300)
    assert status is None or p.returncode == status, "exit status %d, not %s\n%s%s" % (p.returncode, status,
        p.stdout[-3000:], p.stderr[-3000:])
    return p.stdout + p.stderr if status else p.stdout


def run(name, *cmd, runs=None, cache="off", args=(), status=0, made=True, **env):
    """The run's folder, and what the command wrote to standard error. made: that there is one afterwards."""
    runs = runs or os.path.join(TMP, "runs-" + name)
    before = set(os.listdir(runs)) if os.path.isdir(runs) else set()
    p = subprocess.run([XLANE, "run", "--runs", runs, "--cache", cache, "--name", name, *args, "--", *cmd], text=True,
                       capture_output=True,
                       env=environment(**env), timeout=300)
    assert p.returncode == status, "exit status %d, not %d\n%s%s" % (p.returncode, status, p.stdout[-2000:],
        p.stderr[-3000:])
    new = [d for d in os.listdir(runs) if d not in before and d != "contracts"]
    assert len(new) == made, new
    return made and os.path.join(runs, new[0]), p.stderr


forked = functools.cache(lambda: _warm.python(TMP))


def python(name, text, *args, fresh=False, **kw):
    """Runs a JAX script, in a fork of a Python that has imported JAX unless it is to be a fresh one."""
    return run(name, sys.executable if fresh else forked(), script(name + ".py", text), *args, **kw)


def answers(text):
    """The triage answers: shapes, policy, branch, value."""
    return tuple(re.search(q + r"\s+(\w+)", text)[1] for q in (r"shapes or dtypes change\?", r"policy change\?",
        r"become active\?", r"traced into it change\?"))


def on_terminal(columns, *args, **env):
    """What a command prints on a terminal of that width."""
    return _terminal.on_terminal([XLANE, *args], environment(**env), columns)[1]


def events(folder):
    return [json.loads(line) for line in open(os.path.join(folder, "events.jsonl"))]


def done():
    shutil.rmtree(TMP, ignore_errors=True)
    sys.exit(end())
