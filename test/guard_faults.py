"""The guard in trouble: killed at any moment, without memory or disk, eight processes on one cache, many threads. Rows C4, C5, B4."""
import functools
import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import _warm
from _check import checked, end

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("XLANE_BUILD", os.path.join(HERE, "..", "build")))
XLANE, PLUGIN = os.path.join(BUILD, "xlane"), os.path.join(BUILD, "libxlane-cpu.so")
DRIVER, INJECT = os.path.join(BUILD, "test", "tool", "guard"), os.path.join(BUILD, "test", "plugins", "inject.so")
TMP = tempfile.mkdtemp(prefix="xlane-faults-")
ENV = dict(os.environ, XLANE_STATE=os.path.join(TMP, "state"))
ALL = os.environ.get("XLANE_TEST_ALL") == "1"
forked = functools.cache(lambda: _warm.python(TMP))   # for what is said of programs in which nothing else fails


def driver(rounds, threads, seed=0):
    return [DRIVER, PLUGIN, str(rounds), str(threads), str(seed)]


def guarded(cmd, cache, name="x", env=None, runs="runs", **kw):
    return subprocess.Popen([XLANE, "run", "--runs", os.path.join(TMP, runs), "--cache", cache, "--name", name, "--",
                             *cmd], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(ENV, **(env or {})), **kw)


def bare(cmd):
    return subprocess.run(cmd, text=True, capture_output=True, env=ENV, check=True).stdout


def verify(cache):
    p = subprocess.run([XLANE, "cache", "verify", "--cache", cache], text=True, capture_output=True, env=ENV)
    assert p.returncode == 0, p.stdout + p.stderr


def results(name):
    out = []
    for folder in glob.glob(os.path.join(TMP, "runs", "*-" + name + "*")):
        for line in open(os.path.join(folder, "events.jsonl")):
            e = json.loads(line)
            if e["event"] == "compile":
                out.append(e["result"])
    return out


@checked("C4_eight_processes_compile_each_program_once")
def _():
    cache = os.path.join(TMP, "eight")
    procs = [guarded(driver(6, 1, k), cache, "eight") for k in range(8)]
    outs = [p.communicate(timeout=600) for p in procs]
    assert all(p.returncode == 0 for p in procs), outs
    assert len({o for o, _ in outs}) == 1, outs
    done = results("eight")
    assert len(done) == 48 and done.count("compiled") == 6 and done.count("cached") == 42, (len(done),
        done.count("compiled"))
    verify(cache)


@checked("C5_killed_at_any_moment_leaves_a_cache_that_verifies")
def _():
    cache, rng = os.path.join(TMP, "killed"), random.Random(7)
    want = bare(driver(6, 1))
    for i in range(200 if ALL else 60):
        for f in glob.glob(os.path.join(cache, "??", "*.xle")):
            if rng.random() < 0.3:
                os.unlink(f)
        p = guarded(driver(6, 2, i), cache, "killed", start_new_session=True)
        time.sleep(rng.random() * 0.12)
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        verify(cache)
    p = guarded(driver(6, 1), cache, "after")
    out, err = p.communicate(timeout=600)
    assert p.returncode == 0 and out == want, (out, err)


@checked("C4_ranks_load_together_or_compile_together")
def _():
    """Two JAX processes, one device each; the plugin's compile waits for the other rank, and ends the process if that one does not come."""
    caches = [os.path.join(TMP, "rank%d" % r) for r in (0, 1)]
    env = dict(JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:"
               + os.path.join(BUILD, "test", "plugins", "spans.so"), XLANE_WRAPPED=PLUGIN,
               XLANE_CPU_DEVICES="2")

    def both(name):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = str(s.getsockname()[1])
        procs = [guarded([sys.executable, os.path.join(HERE, "guard", "ranks.py"), str(r), port], caches[r],
                         "%s%d" % (name, r), env=env) for r in (0, 1)]
        outs = [p.communicate(timeout=200) for p in procs]
        assert [p.returncode for p in procs] == [0, 0], outs
        return [results(name + str(r)) for r in (0, 1)]
    got = both("rank-cold")
    assert got == [["compiled", "compiled"]] * 2, got
    got = both("rank-warm")
    assert got == [["cached", "cached"]] * 2, got
    os.unlink(glob.glob(os.path.join(caches[1], "??", "*.xle"))[0])
    got = both("rank-lost")
    assert got[0] == got[1] and sorted(got[0]) == ["cached", "compiled"], got


@checked("C6_an_entry_that_was_lost_is_the_reason")
def _():
    cache = os.path.join(TMP, "lost")

    def reasons(name):
        # on its own: earlier runs of other programs would be compared
        p = guarded(driver(1, 1), cache, name, runs="runs-lost")
        p.communicate(timeout=600)
        folder = glob.glob(os.path.join(TMP, "runs-lost", "*-" + name))[0]
        return [json.loads(line)["reason"] for line in open(os.path.join(folder, "events.jsonl"))
                if '"event":"compile"' in line]
    assert reasons("lost-first") == ["first"]                # cause: evicted unreadable
    subprocess.run([XLANE, "cache", "prune", "--max", "1", "--cache", cache], check=True, capture_output=True, env=ENV)
    assert reasons("lost-evicted") == ["evicted"]
    entry = glob.glob(os.path.join(cache, "??", "*.xle"))[0]
    with open(entry, "r+b") as f:
        f.seek(100)
        f.write(b"?")
    assert reasons("lost-damaged") == ["unreadable"]


@checked("C6_what_the_cache_has_lost_is_no_recompile")
def _():
    cache, name, text = os.path.join(TMP, "losing"), os.path.join(TMP, "losing.py"), """
import jax, jax.numpy as jnp
step = jax.jit(lambda x: x * 2 + 1)
for i in range(20):
    step(jnp.ones(3)).block_until_ready()
"""
    with open(name, "w") as f:
        f.write(text)

    def go(run, runs, args=()):
        cmd = [XLANE, "run", "--summary", "--runs", os.path.join(TMP, runs), "--cache", cache, "--name", run, "--",
               forked(), name]
        env = dict(ENV, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + PLUGIN)
        p = subprocess.run(cmd, text=True, capture_output=True, env=env, timeout=600)
        assert p.returncode == 0 and "changed 0 times in the warm-up window, 0 after it\n" in p.stderr, p.stderr
        folder, = glob.glob(os.path.join(TMP, runs, "*-" + run))
        said = [subprocess.run([XLANE, *verb, folder], text=True, capture_output=True, env=ENV, check=True).stdout
                for verb in (["explain"], ["top", "--once"])]
        assert " compiled once, ran 20 times: no recompile" in said[0] or run == "warm", said[0]
        assert "unreadable" not in said[0] + said[1] + p.stderr, said
        return p.stderr, said[0], said[1]
    for text in go("cold", "runs-losing"), go("warm", "runs-losing"):
        assert not any("cannot be used" in s or "compiled again" in s or "had lost" in s for s in text), text
    for runs in "runs-losing", "runs-losing-first":          # with contracts of an earlier run, and without
        entries = glob.glob(os.path.join(cache, "??", "*.xle"))
        for entry in entries:
            with open(entry, "r+b") as f:
                f.seek(100)
                f.write(b"?")
        err, explain, top = go("damaged", runs)
        assert err.count("its cache entry cannot be used: ") == 1 and "xlane cache verify" in err and ".xle: " in err, err
        unusable = "%d programs were compiled again, because their cache entries could not be used"
        assert unusable % len(entries) in explain, explain
        assert "_lambda compiled, which the cache had lost" in top, top
    for entry in glob.glob(os.path.join(cache, "??", "*.xle")):
        with open(entry, "ab") as f:
            f.write(b"?")
    subprocess.run([XLANE, "cache", "prune", "--cache", cache], check=True, capture_output=True, env=ENV)
    err, explain, top = go("removed", "runs-losing")         # there is none that could not be used
    assert "cannot be used" not in err and err.count("its cache entry was removed earlier: ") == 1, err
    assert "cache verify" not in err, err
    subprocess.run([XLANE, "cache", "prune", "--max", "1", "--cache", cache], check=True, capture_output=True, env=ENV)
    err, explain, top = go("dropped", "runs-losing")
    assert "cannot be used" not in err, err
    assert "the cache had dropped them to keep its size: --cache-max" in explain, explain


FAULTS = ["malloc:1", "malloc:2", "malloc:3", "malloc:7", "malloc:50", "write:ENOSPC", "write:EIO", "open:EMFILE",
          "read:EIO", "fsync:EIO",
          "rename:EROFS", "mkdir:EACCES"]


@checked("Q1_only_what_cannot_be_serialised_is_called_uncached")
def _():
    text = """
import jax, jax.numpy as jnp
@jax.jit
def speaks(x):
    jax.debug.print("{}", x.sum())
    return x + 1
quiet = jax.jit(lambda x: x * 2)
for i in range(5):
    quiet(speaks(jnp.ones(3))).block_until_ready()
"""
    cache, name = os.path.join(TMP, "speaks"), os.path.join(TMP, "speaks.py")
    with open(name, "w") as f:
        f.write(text)
    for run, made in ("speaks-cold", "compiled"), ("speaks-warm", "cached"):
        out, err = guarded([forked(), name], cache, run, env=dict(
            JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + PLUGIN)).communicate(timeout=600)
        assert err.count("is not cached") == 1 and "jit_speaks is not cached and will compile in every run" in err, err
        assert "nothing is cached" not in err and "a program without such calls can be stored" in err, err
        folder = glob.glob(os.path.join(TMP, "runs", "*-" + run))[0]
        with open(os.path.join(folder, "events.jsonl")) as f:
            seen = [json.loads(line) for line in f]
        result = {e["module"]: (e["result"], "uncacheable" in e) for e in seen if e["event"] == "compile"}
        assert result["jit_speaks"] == ("compiled", True) and result["jit__lambda"] == (made, False), result
        assert not any(e["event"] == "fault" for e in seen), seen


@checked("B4_faults_of_the_guard_do_not_reach_the_program")
def _():
    want = bare(driver(6, 2))
    for fault in FAULTS:
        for warm in (False, True):
            cache = os.path.join(TMP, "fault")
            if not warm:
                shutil.rmtree(cache, ignore_errors=True)
            p = guarded(driver(6, 2), cache, "fault", env={"LD_PRELOAD": INJECT, "XLANE_INJECT": fault})
            out, err = p.communicate(timeout=600)
            assert p.returncode == 0 and out == want, (fault, p.returncode, out, err[-1500:])
    verify(os.path.join(TMP, "fault"))


@checked("B4_the_same_under_JAX")
def _():
    script = os.path.join(HERE, "guard", "cases.py")
    env = dict(ENV, JAX_PLATFORMS="xlane", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:" + PLUGIN)
    text = "import runpy, sys\nsys.argv = ['cases.py', 'layer_count']\nns = runpy.run_path(%r, run_name='__main__')\n" \
           "import numpy as np\nprint(np.asarray(ns['X']).sum())\n" % script
    want = subprocess.run([sys.executable, "-c", text], text=True, capture_output=True, env=env, check=True).stdout
    for fault in ["malloc:3", "write:ENOSPC", "open:EMFILE"] if not ALL else FAULTS:
        p = guarded([sys.executable, "-c", text], os.path.join(TMP, "jaxfault"), "jaxfault",
                    env=dict(env, LD_PRELOAD=INJECT, XLANE_INJECT=fault))
        out, err = p.communicate(timeout=240)
        assert p.returncode == 0 and out == want, (fault, p.returncode, out, err[-1500:])


@checked("C6_a_read_only_or_vanished_folder_steps_aside")
def _():
    want = bare(driver(3, 1))
    cache = os.path.join(TMP, "gone")
    p = guarded(["sh", "-c", "rm -rf '%s' '%s'/runs/*gone*; exec %s" % (cache, TMP, " ".join(driver(3, 1)))], cache,
                "gone")
    out, err = p.communicate(timeout=600)
    assert p.returncode == 0 and out == want, (out, err)


@checked("G3_a_call_that_hangs_is_named_while_it_hangs")
def _():
    hang = os.path.join(BUILD, "test", "plugins", "hangs_running.so")
    p = subprocess.Popen([XLANE, "run", "--runs", os.path.join(TMP, "runs"), "--cache", "off", "--hang", "1", "--name",
                          "hang", "--", DRIVER, hang,
                          "1", "1"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=ENV, start_new_session=True)
    try:
        line = ""
        end = time.time() + 20
        while time.time() < end and "has not returned" not in line:
            line = p.stderr.readline()
        assert "has not returned" in line, line
    finally:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()


shutil.rmtree(TMP, ignore_errors=True)
sys.exit(end())
