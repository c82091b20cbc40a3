"""Step times of guarded programs: in `metrics`, `report` and `explain RUN RUN`, and the parts of the time until the first step."""
import json
import os
import re

from _guarded import TMP, check, done, python, xlane

STEPS = """
import time, jax, jax.numpy as jnp
@jax.jit
def step(w):
    return jnp.tanh(w @ w)
w = jnp.ones((64, 64)) / 64
for i in range(60):
    w = step(w).block_until_ready()
    time.sleep(SLEEP)
print(float(w.sum()))
"""
kw = dict(runs=os.path.join(TMP, "runs"), cache=os.path.join(TMP, "cache"))


def steps_of(folder):
    one, = json.loads(xlane("metrics", "--json", folder))["steps"]
    return one


@check("W9_host_gap_that_grows_is_told_from_time_on_the_device")
def _():
    folder, _ = python("drift", STEPS.replace("SLEEP", "0.01 if i < 40 else 0.05"), **kw)
    s = steps_of(folder)
    assert s["steps"] == 60 and s["module"] == "jit_step" and 0 < s["median"] <= s["p95"] <= s["max"], s
    assert 35 <= s["drift"]["step"] <= 45 and s["drift"]["host_gap"] == "grew" and s["drift"]["after"] > 2 * s["drift"]["before"], s
    text = xlane("metrics", folder)
    assert re.search(r"Steps: 60 of jit_step\n  StepTime: median=.*95%=.*max=",
                     text) and "Drift: steps stretch from" in text, text
    assert 0 <= text.index("Steps: 60") < text.index("Metric: "), text       # first what most people came for
    assert re.search(r"wait for the host grew", text) and "Metric: StepTime\n  TotalSamples: 59" in text, text
    slow = xlane("metrics", python("slow_start", STEPS.replace("SLEEP", "0.03 if i < 10 else 0.01"), **kw)[0])
    assert re.search(r"Drift: the first \d+ steps took [\d.]+ ms in the median, those after them [\d.]+ ms: ",
                     slow), slow
    out = os.path.join(TMP, "drift.html")
    xlane("report", folder, "--out=" + out)
    html = open(out).read()
    assert re.search(r"steps</span><b>60<", html) and re.search(r"step time</span><b>[\d.]+ m?s<",
        html) and "Step time" in html, html[:3000]


@check("W9_steps_from_before_another_function_was_overtaken_are_counted_and_not_timed")
def _():
    folder, _ = python("overtakes", """
import jax, jax.numpy as jnp
@jax.jit
def small(w):
    return w + 1
@jax.jit
def large(w):
    for _ in range(30):
        w = jnp.tanh(w @ w)
    return w
a, b = jnp.ones(4), jnp.ones((256, 256))
for i in range(40):
    a = small(a)
large(b).block_until_ready()
for i in range(4000):
    a = small(a)
for i in range(9):
    b = large(b).block_until_ready()
""", **dict(kw, runs=kw["runs"] + "-overtakes"))
    s, text = steps_of(folder), xlane("metrics", folder)
    assert s["steps"] == {"jit_small": 4040, "jit_large": 10}[s["module"]] and 0 < s["timed"] <= s["steps"], s
    late = "the last %d of them timed" % s["timed"]
    assert (late in text) == (s["timed"] < s["steps"]) and ("first_step" in s) == (late not in text), text


@check("Q2_the_summary_says_when_the_device_waits_for_the_host")
def _():
    said = {}
    for name, sleep, size in ("waits", "0.02", 64), ("works", "0", 1024):
        text = STEPS.replace("SLEEP", sleep).replace("64", str(size))
        folder, said[name] = python("gap-" + name, text, args=("--summary",), **dict(kw, runs=kw["runs"] + "-gap"))
        assert "waited until the host had read" in said[name], said[name]
    told = re.search(r"a step of jit_step takes ([\d.]+) ms, and the device waits ([\d.]+) ms of it for the host",
                     said["waits"])
    assert told and 20 <= float(told[2]) <= float(told[1]) and "for the host (medians)" not in said["works"], said


WAITS = """
import time, jax, jax.numpy as jnp
@jax.jit
def step(w):
    return jnp.tanh(w @ w @ w)
@jax.jit
def update(w):
    return jnp.cos(w @ w)
w = jnp.ones((SIZE, SIZE)) / SIZE
for i in range(STEPS):
    w = step(w)
    MORE
"""


@check("W9_device_or_host_is_answered_in_words_where_the_times_tell")
def _():
    """A step that waits for the device is not said to wait for the host, whatever runs between steps, nor the reverse."""
    for name, size, steps, more, bound in (
            ("device", 768, 30, "pass", "device"), ("host", 64, 30, "time.sleep(0.03)", "host"),
            ("eager", 64, 30, "k = w + 1; time.sleep(0.03)", "host"),
            ("two", 768, 30, "w = update(w)", "device"),
            ("pause", 768, 30, "i == 20 and time.sleep(4)", "pauses"),
            ("short", 8, 60, "pass", None), ("few", 64, 8, "time.sleep(0.03)", None)):
        text = WAITS.replace("SIZE", str(size)).replace("STEPS", str(steps)).replace("MORE", more)
        folder, err = python("waits-" + name, text, args=("--summary",), **dict(kw, runs=kw["runs"] + "-waits"))
        s, said = steps_of(folder), xlane("metrics", folder)
        assert bound is None or s.get("bound") == bound, (name, s)
        for word, words in (("device", "the device\n"), ("host", "the host\n"),
                            ("pauses", "the host, in a few long pauses\n")):
            assert ("Device or host: " + words in said) == (s.get("bound") == word), (name, said)
        assert ("Device or host" in said) == ("bound" in s) == (name != "few"), (name, said)
        assert ("and the device waits " in err) == (bound == "host"), (name, err)
        assert not re.search(r"\d+us|\d+ms\d", said) and "of rank" not in said and "Sums over" not in said, said
        if bound:
            shares = re.search(r"programs ran for (\d+)% of the time, calls included, and the device waited\n"
                               r"    for the host for (\d+)%; ", said)
            assert int(shares[1]) + int(shares[2]) == 100 and abs(int(shares[1]) - 100 * s["device_share"]) < 1, said
        if name == "two":
            assert s["host_gap"] < 0.3 * s["median"], s    # in which the other program runs


@check("W4_ops_that_compile_all_along_are_what_the_summary_sends_to_explain_for")
def _():
    text = """
import jax, jax.numpy as jnp
@jax.jit
def step(w):
    return w * 0.9, jnp.sum(w)
w, losses = jnp.ones(8), []
for i in range(30):
    w, l = step(w)
    losses.append(l)
    mean = jnp.stack(losses).mean()
"""
    for name, script, grows in ("grows", text, True), ("keeps", text.replace("append(l)", "append(l); del losses[:-1]"),
                                                       False):
        folder, said = python("ops-" + name, script, args=("--summary",), **dict(kw, runs=kw["runs"] + "-ops"))
        assert (re.search(r"; single ops compiled again for new shapes \d+ times; `xlane explain last` says why", said)
                is not None) == grows, said
        assert ("for the host (medians), which traces and compiles in it; `xlane explain last`" in said) == grows, said
        out = os.path.join(TMP, "ops.html")
        xlane("report", folder, "--out=" + out)
        assert (re.search(r"<p>`step` .*, ran 30 times: no recompile<br>\n", open(out).read())
                and ("for new shapes all along: `" in open(out).read()) == grows), open(out).read()
        assert ("change?           no, of no step; of single ops, yes\n" in xlane("explain", folder)) == grows, folder


@check("W9_each_step_has_its_sample_whatever_ran_before_the_steps")
def _():
    folder, _ = python("prepares", """
import jax, jax.numpy as jnp
@jax.jit
def prepare(n):
    return jax.lax.fori_loop(0, 50, lambda i, x: jnp.tanh(x @ x), jnp.ones((n.size, n.size)))[0]
@jax.jit
def step(w):
    return jnp.tanh(w @ w)
w = jnp.ones((128, 128))
prepare(jnp.ones(64)).block_until_ready()
for i in range(900):
    w = step(w).block_until_ready()
""", **dict(kw, runs=kw["runs"] + "-prepares"))
    s, text = steps_of(folder), xlane("metrics", folder)
    for name in "StepTime", "StepDeviceTime", "StepHostGap":
        n = int(re.search(r"Metric: %s\n  TotalSamples: (\d+)" % name, text)[1])
        assert n == s["timed"] - (name != "StepDeviceTime"), (name, n, s)


@check("W9_steady_steps_have_no_drift_and_a_restart_is_told_with_its_parts")
def _():
    even, own = STEPS.replace("SLEEP", "0.02"), dict(kw, cache=os.path.join(TMP, "cache-even"), fresh=True)
    cold, _ = python("even", even, **own)
    warm, _ = python("even", even, **own)
    assert "Drift: none" in xlane("metrics", cold), xlane("metrics", cold)
    for folder, loads in (cold, False), (warm, True):
        first = steps_of(folder)["first_step"]
        parts = ("imports", "client", "trace_and_lower", "compile", "load", "first_execute")
        assert abs(sum(first[k] for k
                       in parts) - first["seconds"]) < 0.1 * first["seconds"] and first["imports"] > 0, first
        assert (first["load"] > 0) == loads and (first["compile"] > 0) != loads, first
    text = xlane("explain", cold, warm)
    assert re.search(r"first step done: [\d.]+ s -> [\d.]+ s \(start and imports .*compiling [\d.]+ -> 0.000, loading 0.000 -> ", text), text
    drift, = (d for d in os.listdir(kw["runs"]) if d.endswith("-drift"))
    text = xlane("explain", os.path.join(kw["runs"], drift), warm)
    assert "in the first run steps stretch from" in text and "in the second run" not in text, text


done()
