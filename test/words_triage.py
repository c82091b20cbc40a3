"""What `explain` says of one run and of two: the verdict of each step module, the three triage answers, and what it does not say."""
import re

from _guarded import HERE, XLANE, answers, check, done, environment, events, line_of, python, run, script, xlane
import os, subprocess, sys

STEP = """
import sys, jax, jax.numpy as jnp, numpy as np
def init(key, shape):
    return jax.random.normal(key, shape) * 0.1
params = [init(jax.random.key(i), (i + 2, 16)) for i in range(4)]
zeros = [jnp.zeros((n, 3)) for n in range(2, 6)]
@jax.jit
def train_step(w, x):
    h = jnp.tanh(x @ w)  # HERE
    return w - 0.1 * jnp.mean(h) * w
w = jnp.ones((16, 4))
for n in SIZES:
    w = train_step(w, jnp.ones((n, 16)))
print(float(w.sum()))
"""
HEALTHY = STEP.replace("SIZES", "[8] * 12")
BATCH = STEP.replace("SIZES", "[32] * 6 + [36] * 3")


@check("W1_healthy_run_answers_no_and_opens_with_its_verdict")
def _():
    folder, err = python("healthy", HEALTHY, args=("--summary",))
    assert "a step's program changed 0 times in the warm-up window, 0 after it\n" in err, err
    text = xlane("explain", folder)
    assert answers(text) == ("no", "no", "no"), text
    assert text.startswith("`train_step` compiled once, ran 12 times: no recompile\n"), text
    assert "broadcast_in_dim" not in text and re.search(r"in addition, \d+ compiles of \d+ other modules .*--all lists them", text), text
    every = xlane("explain", "--all", folder)
    assert "jit_broadcast_in_dim" in every and "--all" not in every, every


@check("W1_batch_change_is_a_shape_and_the_divisor_of_a_mean_follows")
def _():
    global batch
    folder, err = python("batch", BATCH, args=("--summary",))
    assert "a step's program changed 1 time in the warm-up window, 0 after it; `xlane explain last` says why\n" in err, err
    batch = text = xlane("explain", folder)
    assert answers(text) == ("yes", "no", "no"), text
    first = text.splitlines()[0]
    assert re.match(r"`train_step` compiled 2 times: argument `x` dimension 0 took 32, 36 at \S*batch.py:%d; pad "
                    % line_of(BATCH), first), first
    assert re.search(r"follows: constant 128 -> 144, used by stablehlo.divide", text), text


@check("W3_verdict_first_then_one_line_for_helpers_then_details_and_a_remedy_for_every_cause")
def _():
    verdict, helpers, detail = batch.splitlines()[:3]
    assert verdict.startswith("`train_step` compiled 2 times: ") and helpers.startswith("in addition, "), batch
    assert re.match(r" +\d+\.\d+ s  jit_train_step ", detail), batch
    assert batch.count("broadcast_in_dim") == 0 and batch.count("other modules") == 1, batch
    table = open(os.path.join(HERE, "..", "src", "lane", "cause.def")).read()
    page = open(os.path.join(HERE, "..", "docs", "recompiles.md")).read()
    rows = re.findall(r'^CAUSE\("([a-z0-9-]+)", \w+, "([^"]*)"', table, re.M)
    assert len(rows) == table.count("\nCAUSE(") > 25 and all(len(remedy) > 20 for _, remedy in rows), rows
    assert not [word for word, _ in rows if "`%s`" % word not in page], "docs/recompiles.md lacks a cause"


@check("W1_learning_rate_that_changes_with_the_batch_is_a_cause_of_its_own")
def _():
    folder, _ = python("both", BATCH.replace("def train_step(w, x):",
                                             "def train_step(w, x, lr=0.1):").replace("0.1 * jnp.mean", "lr * jnp.mean")
                       .replace("@jax.jit\n", "").replace("w = jnp.ones((16, 4))", "w = jnp.ones((16, 4)); train_step = jax.jit(train_step, static_argnums=2)")
                       .replace("jnp.ones((n, 16))", "jnp.ones((n, 16)), 0.1 if n == 32 else 0.3"))
    text = xlane("explain", folder)
    assert answers(text) == ("yes", "no", "yes") and "a constant took 0.1, 0.3 at " in text, text


@check("W1_nothing_recorded_is_said_and_exits_1")
def _():
    for name, cmd, env in ("plain", ["true"], {}), ("off", [sys.executable, "-c", "print(1)"], {"XLANE_GUARD": "off"}):
        folder, _ = run(name, *cmd, **env)
        text = xlane("explain", folder, status=1)
        assert "not recorded" in text and "xlane run --" in text and "shapes change" not in text, text
        text = xlane("explain", folder, folder, status=1)
        assert "not recorded" in text and "same graphs" not in text, text


@check("W5_small_step_is_a_step_and_the_gate_counts_it")
def _():
    tiny = "import jax, jax.numpy as jnp\n@jax.jit\ndef train_step(w, x):\n    return w + x.sum()  # HERE\nw = jnp.ones(4)\n" \
           "for i in range(30):\n    w = train_step(w, jnp.ones(3 + max(0, i - 18)))\nprint(w)\n"
    folder, err = python("tiny", tiny, args=("--policy", "warn", "--summary"))
    assert "a step's program changed 0 times in the warm-up window, 11 after it; " in err, err
    steady = [e for e in events(folder) if e["event"] == "compile" and e["phase"] == "steady"]
    assert len(steady) == 11 and {e["module"] for e in steady} == {"jit_train_step"}, steady
    assert "SteadyRecompile\n  Value: 11" in xlane("metrics", folder) and "remedy: pad" in err, err
    python("tiny", tiny, args=("--policy", "stop"), status=3)
    # helpers run as often, with as many shapes
    eager = "import jax, jax.numpy as jnp\nfor i in range(1, 30):\n    jnp.ones(i) + 1\n"
    folder, err = python("helpers", eager, args=("--policy", "stop"))
    assert "no step: " in xlane("explain", folder), xlane("explain", folder)


@check("W2_cold_and_warm_runs_are_told_apart")
def _():
    path, kw = script("again.py", HEALTHY), dict(runs=os.path.join(os.path.dirname(script("x", "")), "runs-again"),
                                                 cache=os.path.join(os.path.dirname(script("x", "")), "cache-again"))
    cold, _ = run("cold", sys.executable, path, **kw)
    warm, _ = run("warm", sys.executable, path, **kw)
    nothing = "this run compiled nothing: each of these programs was loaded from a cache\n"
    assert nothing not in xlane("explain", cold) and nothing in xlane("explain", warm), xlane("explain", warm)
    assert " compiles of " in xlane("explain", cold) and "compiles of" not in xlane("explain", warm), xlane("explain",
        warm)
    text = xlane("explain", cold, warm)
    assert re.search(r"cache +.*the first run compiled \d+ .*the second loaded \d+",
                     text) and "is the machine" not in text, text
    again, _ = run("again", sys.executable, path, **kw)
    text = xlane("explain", warm, again)
    assert "same graphs, same inputs, same flags and plugin, same use of the cache" in text, text
    other, _ = run("other", sys.executable, script("again.py", BATCH), **kw)
    text = xlane("explain", again, other)
    assert "inputs" in text and "dimension 0 is 36, before 8" in text and "is the machine" not in text, text


@check("W2_unrelated_scripts_with_one_function_name_are_not_compared")
def _():
    runs = os.path.join(os.path.dirname(script("x", "")), "runs-unrelated")
    python("first", HEALTHY, runs=runs)
    folder, _ = python("second", HEALTHY.replace("jnp.tanh(x @ w)", "jnp.sin(x @ w)"), runs=runs)
    mine = [e for e in events(folder) if e["event"] == "compile" and e["module"] == "jit_train_step"]
    assert mine[0]["reason"] == "first" and "against_run" not in mine[0], mine
    folder, _ = python("second", HEALTHY.replace("jnp.tanh(x @ w)", "jnp.cos(x @ w)"), runs=runs)
    mine = [e for e in events(folder) if e["event"] == "compile" and e["module"] == "jit_train_step"]
    assert mine[0]["reason"] == "op" and mine[0]["against_run"].endswith("-second"), mine
    assert answers(xlane("explain", folder)) == ("no", "no", "no")      # new since an earlier run is no recompile


@check("README_shows_what_its_first_commands_print")
def _():
    top = os.path.dirname(HERE)
    page = open(os.path.join(top, "README.md")).read().split("## Install")[0]
    kw = {k: os.path.join(os.path.dirname(script("x", "")), k + "-readme") for k in ("runs", "cache")}
    printed = ""
    for _ in range(2):
        folder, err = run("readme", sys.executable, os.path.join(top, "examples", "train.py"), args=("--summary",),
                          **kw)
        printed += err + xlane("explain", folder)
    # as it is wrapped there, and with its paths
    flat = lambda text: re.sub(r"\s+", " ", text.replace(top + "/", ""))
    shown = re.findall(r"^    (xlane: \d+ compiled.*|xlane: a step.*|xlane: \d+ steps? .*|did .*)$", page, re.M)
    shown.append(re.search(r"^    (`train_step` compiled .*?)\n    \.\.\.", page, re.M | re.S)[1])
    assert len(shown) == 8 and not [s for s in shown if flat(s) not in flat(printed)], (shown, printed)


done()
