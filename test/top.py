"""`xlane top` in a real terminal (tmux) beside a real JAX process; one frame, JSON, narrow and resized; and `report --follow`."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from _guarded import TMP, XLANE, check, done, environment, python, script, xlane

LONG = """
import time, jax, jax.numpy as jnp
@jax.jit
def step(w, x):
    return jnp.tanh(w + x.sum())
w, end = jnp.ones(8), "%s"
import os
n = 0
while not os.path.exists(end):
    n += 1
    w = step(w, jnp.ones(4 if n < 20 else 5)).block_until_ready()
    time.sleep(0.05)
"""
runs, end = os.path.join(TMP, "runs"), os.path.join(TMP, "end")


def start(name):
    path = script(name + ".py", LONG % end)
    p = subprocess.Popen([XLANE, "run", "--runs", runs, "--cache", "off", "--name", name, "--", sys.executable, path],
                         env=environment(), stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    wait(lambda: [d for d in (os.listdir(runs) if os.path.isdir(runs) else []) if d.endswith("-" + name)],
         "the run's folder")
    folder, = (os.path.join(runs, d) for d in os.listdir(runs) if d.endswith("-" + name))
    return p, folder


def wait(f, what, seconds=120):
    until = time.time() + seconds
    while time.time() < until:
        try:
            if f():
                return
        except (FileNotFoundError, ValueError, KeyError, IndexError, AssertionError):   # not there yet
            pass
        time.sleep(0.2)
    raise AssertionError("waited for %s" % what)


def tmux(*args):
    return subprocess.run(["tmux", "-L", "xlane-%d" % os.getpid(), "-f", "/dev/null", *args], text=True,
                          capture_output=True, env=dict(environment(), LC_ALL="C.UTF-8")).stdout


def screen():
    return tmux("capture-pane", "-p", "-t", "top")


@check("W13_view_of_a_running_process_one_frame_and_json")
def _():
    if os.path.exists(end):
        os.remove(end)
    p, folder = start("live")
    try:
        wait(lambda: json.loads(xlane("top", "--json", folder))["processes"][0]["steps"]["steps"] > 25, "steps")
        now = json.loads(xlane("top", "--json", folder))
        assert now["running"] and now["processes"][0]["rank"] == 0 and now["memory"], now
        frame = xlane("top", "--once", folder)
        assert re.search(r"^xlane top  \S+-live  running\nrank 0  pid %d  step \d+  .* a step  .*waiting for the host "
                         % now["processes"][0]["pid"], frame), frame
        assert re.search(r"last compile: jit_step at [\d.]+ s, shape: argument `x`: dimension 0 changed from 4 to 5",
                         frame), frame
        assert "newest events" in frame and "dtypes change" not in frame, frame
        assert "last step ended" not in frame, frame
        said = xlane("runs", os.path.dirname(folder)) + xlane("explain", folder)
        assert "running, last step" not in said and "the last step of" not in said, said
        os.kill(now["processes"][0]["pid"], signal.SIGSTOP)
        for name in os.listdir(folder):
            if name.startswith("steps-"):
                os.utime(os.path.join(folder, name), (time.time() - 600, time.time() - 600))
        still = xlane("top", "--once", folder)
        pid = now["processes"][0]["pid"]
        assert "\n  its last step ended 10 min ago; `py-spy dump --pid %d` shows where" % pid in still, still
        late = json.loads(xlane("top", "--json", folder))["processes"][0]["seconds_since_last_step"]
        assert 600 <= late < 900 > now["processes"][0]["seconds_since_last_step"] + 500, (late, now)
        said, listed = xlane("explain", folder), xlane("runs", os.path.dirname(folder))
        assert re.search(r"the last step of process %d, \d+ of jit_step, ended 10 min ago; `py-spy" % pid, said), said
        assert "  running, last step 10 min ago  " in listed, listed
        os.kill(pid, signal.SIGCONT)
        out = os.path.join(TMP, "follow.html")
        f = subprocess.Popen([XLANE, "report", folder, "--follow", "--out=" + out], env=environment(),
                             stdout=subprocess.PIPE, text=True)
        wait(lambda: "http-equiv=\"refresh\"" in open(out).read(), "a page that reloads itself")
        first = open(out).read()
        wait(lambda: open(out).read() != first, "a fresh page")
    finally:
        open(end, "w").close()
        p.wait(60)
    f.wait(60)
    assert f.returncode == 0 and "http-equiv=\"refresh\"" not in open(out).read(), "the last page no longer reloads itself"
    frame = xlane("top", "--once", folder)
    assert "ended after" in frame and "with status 0" in frame and "`step` compiled 2 times: argument `x` dimension 0 took 4, 5" in frame, frame
    ended = json.loads(xlane("top", "--json", folder))
    assert ended["running"] is False, ended
    said, steps = re.search(r"([\d.]+) (ms|s) a step \(median\) .* waiting for the host ([\d.]+) (ms|s)", frame), \
        ended["processes"][0]["steps"]
    told = [float(said[k]) * (1e-3 if said[k + 1] == "ms" else 1) for k in (1, 3)]
    assert abs(told[0] / steps["median"] - 1) < 0.01 and told[1] <= told[0] and "eager ops aside" not in frame, (frame,
        steps)


@check("W13_killed_run_is_told_from_a_running_one")
def _():
    os.remove(end)
    p, folder = start("killed")
    wait(lambda: json.loads(xlane("top", "--json", folder))["processes"][0]["steps"], "steps")
    child = json.loads(xlane("top", "--json", folder))["processes"][0]["pid"]
    p.kill()
    p.wait()
    os.kill(child, 9)
    wait(lambda: "its processes are gone" in xlane("top", "--once", folder), "the end")


STEPS = """
import os, time, jax, jax.numpy as jnp
rate = 0.5
@jax.jit
def step(w, x):
    return jnp.tanh(w + x.sum() * rate)
w = jnp.ones(8)
for i in range(30):
    CHANGE
    w = step(w, jnp.ones(SIZE))
w.block_until_ready()
"""


def steps(size="4", change="pass", end=""):
    return STEPS.replace("SIZE", size).replace("CHANGE", change) + end


def words_of(frame):
    """Of those that a frame may print of a process and its compiles, each that it prints."""
    shown = [("shape", r"; last \w+[^:]*: jit_step at [\d.]+ s, shape: "),
             ("again", r"  jit_step compiled again: shape"),
             ("constant", r"; last compile: jit_step at [\d.]+ s(, constant)?: constant 0\.5 -> 0\.7"),
             ("compile", r"; last compile"), ("load", r"; last load"), ("eager", r"; last \w+ \(eager ops aside\): "),
             ("of_cache", r"  jit_step loaded from a cache\n"), ("first", r"  jit_step compiled\n"),
             ("no_steps", r"pid \d+  no steps recorded\n"), ("median", r"  step 30  [\d.]+ ms a step \(median\)  "),
             ("waiting", r"  waiting for the host [\d.]+ ms\n"), ("unguarded", r"\nno process of it was guarded\n"),
             ("off", r"\nthe guard was off"), ("signal", r"with status 137, by signal 9 \(Killed\)\n"),
             ("status", r" ended after [\d.]+ s with status \d+"), ("running", r"  running\n|no step yet|a step  "),
             ("gone", r"its processes are gone"), ("still", r"its last step ended"), ("failed", r"  program failed: "),
             ("whose", r" s  rank \d"), ("memory", r"\nmemory of rank 0 device 0: [\d.]+ \w+ in use, peak ")]
    return {word for word, pattern in shown if re.search(pattern, frame)}


@check("W13_each_word_of_a_frame_is_there_when_it_is_true_and_else_not")
def _():
    ran = {"status", "median", "waiting", "memory"}
    kept = os.path.join(TMP, "cache-words")
    for name, text, more, status, words in (
            ("grows", steps("4 if i < 20 else 5"), {}, 0, ran | {"compile", "shape", "again", "first"}),
            ("value", steps(change="if i == 20: rate = 0.7; jax.clear_caches()"), {}, 0,
             ran | {"compile", "constant", "first"}),
            ("same", steps(), {}, 0, ran | {"compile", "first"}),
            ("cold", steps(), {"cache": kept}, 0, ran | {"compile", "first"}),
            ("warm", steps(), {"cache": kept}, 0, ran | {"load", "of_cache"}),
            ("eager", steps(end="print(jnp.cumsum(w))"), {}, 0, ran | {"compile", "eager", "first"}),
            ("none", "import jax.numpy as jnp\nprint(jnp.ones(3) * 2)", {}, 0, {"status", "no_steps", "memory",
                                                                               "compile"}),
            ("kills", steps(end="time.sleep(3)\nos.kill(os.getpid(), 9)"), {}, 137,
             ran | {"signal", "compile", "first"}),
            ("raises", steps(end="raise ValueError('sad')"), {"fresh": True}, 1, ran | {"compile", "first", "failed"}),
            ("off", steps(), {"XLANE_GUARD": "off"}, 0, {"status", "off"}),
            ("no_jax", "print(1)", {"fresh": True}, 0, {"status", "unguarded"})):
        folder, _ = python("words_" + name, text, status=status, **more)
        frame = xlane("top", "--once", folder)
        assert words_of(frame) - {"memory"} == words - {"memory"} and words_of(frame) <= words, (
            name, words_of(frame) ^ words, frame)


@check("W13_view_of_a_training_run")
def _():
    conf = ["data.train=book.txt", "data.format=bytes", "model.dim=32", "model.heads=2", "data.batch=2", "data.time=32",
            "train.steps=100000", "cache=none", "runs=trained"]
    with open(os.path.join(TMP, "book.txt"), "w") as f:
        f.write("the quick brown fox jumps over the lazy dog. " * 1000)
    p = subprocess.Popen([XLANE, "train", "--quiet", "--device=cpu", *conf], env=environment(), cwd=TMP,
                         stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    trained = os.path.join(TMP, "trained")
    wait(lambda: os.listdir(trained), "the run's folder")
    folder = os.path.join(trained, [d for d in os.listdir(trained) if d.endswith("-train")][0])
    wait(lambda: json.loads(xlane("top", "--once", "--json", folder))["step"] > 2, "steps")
    now, frame = json.loads(xlane("top", "--once", "--json", folder)), xlane("top", "--once", folder)
    assert now["running"] and "end" not in now and now["processes"][0]["pid"] == p.pid, now
    assert re.search(r"running\nrank 0  pid %d  step \d+  loss [\d.]+  .* a step" % p.pid, frame), frame
    p.terminate()
    p.wait(60)
    now, frame = json.loads(xlane("top", "--once", "--json", folder)), xlane("top", "--once", folder)
    assert not now["running"] and now["end"] == "stopped by a signal" and "status" not in now, now
    assert "ended: stopped by a signal" in frame and "status 0" not in frame and "after 0.0 s" not in frame, frame


def in_tmux():
    if os.path.exists(end):
        os.remove(end)
    p, folder = start("screen")
    try:
        tmux("new-session", "-d", "-s", "top", "-x", "110", "-y", "30")
        tmux("send-keys", "-t", "top", "%s top %s" % (XLANE, folder), "Enter")
        wait(lambda: re.search(r"rank 0  pid \d+  step \d+ .*[▁▂▃▄▅▆▇█]+  waiting for the host", screen()),
             "steps on the screen")
        seen = int(re.search(r"step (\d+) ", screen())[1])
        wait(lambda: int(re.search(r"step (\d+) ", screen())[1]) > seen, "more steps on the screen")
        assert "memory of rank 0 device 0" in screen() and "newest events" in screen() and "q ends this view" in screen(), screen()
        tmux("resize-window", "-t", "top", "-x", "40", "-y", "12")
        wait(lambda: max(len(line) for line in screen().splitlines()) <= 40 and screen().startswith("xlane top"),
             "the narrow screen")
        time.sleep(1.5)
        lines = screen().splitlines()
        assert len(lines) <= 12 and lines[0].startswith("xlane top") and lines[1].startswith("rank 0"), screen()
        tmux("resize-window", "-t", "top", "-x", "120", "-y", "30")
        wait(lambda: "waiting for the host" in screen(), "the wide screen again")
        tmux("send-keys", "-t", "top", "q")
        wait(lambda: "goes on" in screen(), "the shell again")
        assert p.poll() is None, "q ended the run"
        tmux("send-keys", "-t", "top", "clear; %s top %s" % (XLANE, folder), "Enter")
        wait(lambda: "waiting for the host" in screen(), "the second view")
    finally:
        open(end, "w").close()
        p.wait(60)
    try:
        wait(lambda: "did a hidden graph branch become active?     no" in screen(), "the verdict at the end")
        assert "`step` compiled 2 times: argument `x` dimension 0 took 4, 5" in screen() and "with status 0" in screen(), screen()
    finally:
        tmux("kill-server")


if shutil.which("tmux"):
    check("W13_view_in_a_terminal_that_is_resized_and_ends_with_the_verdict")(in_tmux)
else:
    print("skip view_in_a_terminal: no tmux; ./x test installs it where it may")
done()
