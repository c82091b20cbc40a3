"""What `explain` says of one run and of two: the verdict of each step module, the triage answers, and what it does not say."""
import re

from _guarded import BUILD, HERE, TMP, XLANE, answers, check, done, environment, events, line_of, on_terminal, python, run, script, xlane
import json, os, subprocess, sys

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
SHAPE = ("yes", "no", "no", "no")


@check("W1_healthy_run_answers_no_and_opens_with_its_verdict")
def _():
    folder, err = python("healthy", HEALTHY, args=("--summary",))
    assert "a step's program changed 0 times in the warm-up window, 0 after it\n" in err, err
    text = xlane("explain", folder)
    assert answers(text) == ("no", "no", "no", "no"), text
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
    assert answers(text) == ("yes", "no", "no", "no"), text
    first = text.splitlines()[0]
    assert re.match(r"`train_step` compiled 2 times: argument `x` dimension 0 took 32, 36 at \S*batch.py:%d; pad "
                    % line_of(BATCH), first), first
    assert re.search(r"as a result: constant 128 -> 144, used by stablehlo.divide", text), text


@check("W3_verdict_first_then_one_line_for_helpers_then_details_and_a_remedy_for_every_cause")
def _():
    verdict, helpers, heads, detail = batch.splitlines()[:4]
    assert verdict.startswith("`train_step` compiled 2 times: ") and helpers.startswith("in addition, "), batch
    assert heads.split() == ["at", "module", "compiler", "phase,", "reason"], batch
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
    assert answers(text) == ("yes", "no", "no", "yes") and "static argument `lr` took 0.1, 0.3 at " in text, text


@check("W1_nothing_recorded_is_said_and_exits_1")
def _():
    for name, cmd, env, then in (("plain", ["true"], {}, "xlane run --"),
                                 ("off", [sys.executable, "-c", "print(1)"], {"XLANE_GUARD": "off"}, "without that")):
        folder, _ = run(name, *cmd, **env)
        text = xlane("explain", folder, status=1)
        assert "not recorded" in text and then in text and "dtypes change" not in text, text
        text = xlane("explain", folder, folder, status=1)
        assert "not recorded" in text and "same graphs" not in text, text


@check("W1_a_run_that_has_nothing_names_the_newest_that_has")
def _():
    good, _ = python("named", HEALTHY)
    bad, _ = run("failed", "sh", "-c", "exit 3", runs=os.path.dirname(good), status=3)
    for verb in "explain", "metrics", "calibrate":
        text = xlane(verb, bad, status=1)
        assert "; the newest run here that has some is %s\n" % good in text, (verb, text)


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
    eager = "import jax, jax.numpy as jnp\nfor i in range(1, 30):\n    jnp.ones(SIZE) + 1\n"
    for size, shapes in ("i", "yes"), ("4", "no"):
        folder, err = python("helpers_" + shapes, eager.replace("SIZE", size), args=("--policy", "stop"))
        text = xlane("explain", folder)
        assert "no step: " in text and answers(text) == (shapes, "no", "no", "no"), text


@check("W2_cold_and_warm_runs_are_told_apart")
def _():
    path, kw = script("again.py", HEALTHY), dict(runs=os.path.join(os.path.dirname(script("x", "")), "runs-again"),
                                                 cache=os.path.join(os.path.dirname(script("x", "")), "cache-again"))
    cold, _ = run("cold", sys.executable, path, **kw)
    warm, _ = run("warm", sys.executable, path, **kw)
    nothing = "this run compiled nothing: each program that it ran was loaded from a cache\n"
    assert nothing not in xlane("explain", cold) and nothing in xlane("explain", warm), xlane("explain", warm)
    assert re.search(r"in addition, \d+ compiles of", xlane("explain", cold)), xlane("explain", cold)
    assert re.search(r"in addition, \d+ loads from a cache of", xlane("explain", warm)), xlane("explain", warm)
    text = xlane("explain", cold, warm)
    assert re.search(r"cache +.*the first run compiled \d+ .*the second loaded \d+",
                     text) and "is the machine" not in text, text
    again, _ = run("again", sys.executable, path, **kw)
    text = xlane("explain", warm, again)
    assert "same graphs, same inputs, same flags and plugin, same use of the cache" in text, text
    other, _ = run("other", sys.executable, script("again.py", BATCH), **kw)
    text = xlane("explain", again, other)
    assert "inputs" in text and "dimension 0 changed from 8 to 36" in text and "is the machine" not in text, text


@check("W2_each_side_of_a_flag_that_changed_is_of_a_run_that_is_named")
def _():
    runs = os.path.join(TMP, "runs-flags")
    one, _ = python("flags", HEALTHY, runs=runs, XLA_FLAGS="--xla_backend_optimization_level=1")
    two, _ = python("flags", HEALTHY, runs=runs, XLA_FLAGS="--xla_backend_optimization_level=2")
    first, text = xlane("explain", one), xlane("explain", two)
    assert "left of each arrow" not in first, first
    line = text.splitlines()[0]
    assert "xla_backend_optimization_level (executable_build_options.debug_options) 1 -> 2; " in line, text
    assert " (left of each arrow: run %s, right: this run); compile with the same options" % os.path.basename(one) in line, text
    folder, _ = python("switched", """
import jax, jax.numpy as jnp
def step(w):
    return w * 2 + 1
for i in range(9):
    jax.jit(step, compiler_options={"xla_cpu_enable_fast_math": i > 4})(jnp.ones(8))
""")
    assert " -> " in xlane("explain", folder), xlane("explain", folder)
    assert "of each arrow" not in xlane("explain", folder), xlane("explain", folder)     # both sides are of this run


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
    assert answers(xlane("explain", folder)) == ("no", "no", "no", "no")      # new since an earlier run is no recompile


FUNCTIONS = """
import functools, threading, jax, jax.numpy as jnp
w, x = jnp.ones((8, 8)), jnp.ones((4, 8))
def make(train):
    @jax.jit
    def step(w, x):
        y = jnp.tanh(x @ w)
        return w - 0.1 * jnp.mean(y) * w if train else jnp.mean(y)
    return step
train, evaluate = make(True), make(False)
for i in range(15):
    w = train(w, x)
for i in range(5):
    evaluate(w, x)
    w = train(w, x)
f = jax.jit(lambda a: a * 2 + 1)
g = jax.jit(lambda a: jnp.sin(a) - 3)
for h in f, g:
    for i in range(15):
        h(x)
class Gan:
    def __init__(self, k):
        self.k, self.step = k, jax.jit(self._step)
    def _step(self, a):
        return jnp.sum(a) * self.k
for one in [Gan(1.), Gan(2.)]:
    for i in range(15):
        one.step(x)
def loss(w):
    return jnp.sum(jnp.tanh(x @ w))
for h in [jax.jit(loss), jax.jit(jax.grad(loss))]:
    for i in range(15):
        h(w)
square = jax.jit(lambda a: jnp.sum(a ** 2))
for i in range(15):
    square(x)
    jax.grad(square)(x)
def apart(a, n):
    return a * n
both = [jax.jit(functools.partial(apart, n=n)) for n in (2., 3.)]
meet = threading.Barrier(2)
def work(h):
    for i in range(15):
        h(x)
    meet.wait()
threads = [threading.Thread(target=work, args=(h,)) for h in both]
[t.start() for t in threads], [t.join() for t in threads]
"""


@check("W7_functions_of_one_name_are_no_changed_step")
def _():
    folder, err = python("functions", FUNCTIONS, args=("--policy", "stop", "--summary"))
    assert "a step's program changed 0 times in the warm-up window, 0 after it\n" in err, err
    text = xlane("explain", folder)
    assert answers(text) == ("no", "no", "no", "no") and "traced again?           no" in text, text
    heads = re.findall(r"^(`.*?`(?: \(.*?\))?) compiled once, ran (\d+) times: no recompile$", text, re.M)
    at = lambda mark: next(n for n, line in enumerate(FUNCTIONS.splitlines(), 1) if mark in line)
    assert ("`step` (functions.py:%d)" % at("@jax.jit"), "20") in heads, (heads, text)
    assert ("`step` (functions.py:%d#2)" % at("@jax.jit"), "5") in heads, (heads, text)
    assert ("`_lambda` (functions.py:%d)" % at("jnp.sin"), "15") in heads, (heads, text)
    assert ("`_step` (functions.py:%d#2)" % at("def _step"), "15") in heads, (heads, text)
    assert ("`loss` (functions.py:%d#2)" % at("def loss"), "15") in heads, (heads, text)
    assert ("`_lambda` (functions.py:%d.backward)" % at("square ="), "15") in heads, (heads, text)
    assert sorted(n for name, n in heads if "apart" in name) == ["15", "15"], (heads, text)
    assert "StepTime" in xlane("metrics", folder)
    one_line = "import jax, jax.numpy as jnp\n" \
               "def once(f):\n    g = jax.jit(f)\n    for i in range(ROUNDS):\n        g(jnp.ones(4))\n" \
               "once(lambda x: jnp.sin(x) + 1); once(lambda x: jnp.cumsum(x) * 2); once(lambda x: x - 3)\n" * 2
    for rounds in "1", "15":
        folder, err = python("one_line", one_line.replace("ROUNDS", rounds), args=("--policy", "stop", "--summary"))
        text = xlane("explain", folder)
        assert "changed 0 times in the warm-up window, 0 after it" in err and "compiled again" not in err, err
        assert answers(text) == ("no", "no", "no", "no"), text
    # the first of a name says its place only beside another
    text = xlane("explain", python("functions_one", HEALTHY)[0])
    assert text.startswith("`train_step` compiled once"), text
    # one that has no name says it always
    alone = "import jax, jax.numpy as jnp\nf = jax.jit(lambda a: jnp.sin(a) + 1)\nfor i in range(12): f(jnp.ones(4))\n"
    text = xlane("explain", python("functions_alone", alone)[0])
    assert text.startswith("`_lambda` (functions_alone.py:2) compiled once, ran 12 times: no recompile\n"), text


@check("W7_single_ops_and_functions_that_a_library_jits_are_no_steps")
def _():
    code = """
import sys, types, jax, jax.numpy as jnp
lib = sys.modules["lib"] = types.ModuleType("lib")
lib.__file__ = "/site-packages/lib.py"
exec(compile('''
import jax
@jax.jit
def correct(m, t):
    n = 1 - 0.9 ** t
    return m / n
@jax.jit
@jax.vmap
def every(m):
    n = m * 3
    return n - 1
def plain(m):
    n = m * 2
    return n + 1
''', "/site-packages/lib.py", "exec"), lib.__dict__)
@jax.jit
def loss(w):
    return jnp.sum(w ** 2)
mine = jax.jit(lib.plain)
w = m = jnp.ones(4)
for t in range(1, 13):
    m = 0.9 * m + jax.grad(loss)(w)
    w = w - 0.1 * lib.correct(m, t) + lib.every(m)
    mine(w)
"""
    text = xlane("explain", python("libraries", code)[0])
    heads = re.findall(r"^`(\w+)`(?: \(.*?\))? compiled once, ran 12 times: no recompile$", text, re.M)
    assert sorted(heads) == ["loss", "loss", "plain"] and text.startswith("`loss`"), text
    assert "`correct`" not in text and "`every`" not in text and answers(text) == ("no", "no", "no", "no"), text


@check("W7_what_a_transformation_makes_of_the_users_function_is_the_users_and_a_step")
def _():
    code = """
import functools, types, jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
@jax.jit
@jax.value_and_grad
def graded(w, x):
    return jnp.mean((x @ w) ** 2)
@jax.jit
@jax.checkpoint
def kept(w, x):
    return jnp.mean((x @ w) ** 2)
@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def mapped(w, x):
    return jnp.mean((x @ w) ** 2)
mesh = jax.sharding.Mesh(jax.devices(), ("d",))
@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("d")), out_specs=P())
def shared(w, x):
    return jax.lax.pmean(jnp.mean((x @ w) ** 2), "d")
def again(w, x):
    return jnp.mean((x @ w) ** 2)
again = jax.jit(jax.value_and_grad(again))
cell = types.ModuleType("cell")
exec("import jax\\n@jax.jit\\n@jax.grad\\ndef noted(w, x):\\n    y = x @ w\\n    return (y ** 2).sum()\\n", cell.__dict__)
w = jnp.ones((16, 4))
for i in range(24):
    x = jnp.ones((8 if i < 15 else 6, 16))
    for f in graded, kept, mapped, shared, again, cell.noted:
        f(w, x)
"""
    folder, err = python("transformed", code, args=("--summary",))
    text = xlane("explain", folder)
    heads = re.findall(r"^`(\w+)` compiled 2 times: argument `x` dimension 0 took 8, 6", text, re.M)
    assert heads == ["graded", "kept", "mapped", "shared", "again", "noted"], text
    assert answers(text) == ("yes", "no", "no", "no"), text
    assert "a step's program changed 0 times in the warm-up window, 6 after it" in err, err


@check("W7_a_number_that_changes_as_a_size_does_is_perhaps_its_result")
def _():
    code = """
import jax, jax.numpy as jnp
from functools import partial
@partial(jax.jit, static_argnums=1)
def f(x, k):
    return (x * k).MEAN
for i in range(20):
    f(jnp.ones(32 if i < 12 else 16, jnp.float32 if i < 12 else jnp.DTYPE), FIRST if i < 12 else THEN)
"""
    value = "did a Python value traced into it change?    %s\n"
    for name, words, says, answer in (
        ("with", ("sum()", "float32", "2", "1"), "perhaps as a result: constant 2 -> 1,",
         "perhaps: a number changed as a size did; the list has it"),
        ("mean", ("mean()", "float32", "2", "2"), "             as a result: constant 32 -> 16,", "no"),
        ("other", ("sum()", "float32", "2", "7"), "             constant 2 -> 7 (static argument `k`),", "yes"),
        ("narrow", ("sum()", "bfloat16", "0.5", "0.3"), "constant f32 -> bf16 (0.5 -> 0.3", "yes"),
        ("rounded", ("sum()", "bfloat16", "0.3", "0.3"), "dtype changed from f32 to bf16", "no"),
    ):
        text = code
        for key, word in zip(("MEAN", "DTYPE", "FIRST", "THEN"), words):
            text = text.replace(key, word)
        said = xlane("explain", python("number_" + name, text)[0])
        assert says in said and value % answer in said, said


@check("W7_what_the_policy_refused_was_neither_compiled_nor_traced_again")
def _():
    code = """
import jax, jax.numpy as jnp
@jax.jit
def step(x):
    return x * 2
for n in [4] * 12 + [7] * 6 + [5] * 6:
    try:
        step(jnp.ones(n))
    except Exception as e:
        print(e)
"""
    folder, err = python("refused", code, args=("--policy", "stop", "--summary"), status=3)
    text = xlane("explain", folder)
    assert text.startswith("`step` compiled once, and was refused by the policy 12 times: "
                           "argument `x` dimension 0 took 4, 7, 5 at"), text
    assert "outside the loop" not in text and "was the same program traced again?           no" in text, text
    assert "2 after it; `xlane explain" in err, err


@check("W7_ranks_that_compiled_different_programs_are_named_afterwards")
def _():
    code = """
import jax, jax.numpy as jnp, numpy as np
jax.distributed.initialize()
from jax.sharding import Mesh, PartitionSpec as P, NamedSharding
rows = NamedSharding(Mesh(np.array(jax.devices()), "d"), P("d"))
rate = RATE
x = jax.make_array_from_callback((8,), rows, lambda i: np.arange(8, dtype="f")[i])
f = jax.jit(lambda x: x - rate * x.sum(), out_shardings=rows)
for i in range(4):
    x = f(x)
x.block_until_ready()
"""
    for name, rate in ("apart", "0.1 if jax.process_index() == 0 else 0.2"), ("alike", "0.1"):
        text = xlane("explain", python("ranks_" + name, code.replace("RATE", rate), args=("-n", "2"))[0])
        told = [l for l in text.split("\n")
                if " is not one program: rank 1 compiles another program than rank 0: constant 0.1 -> 0.2" in l]
        assert len(told) == (name == "apart"), text


@check("W7_a_function_that_is_made_anew_is_the_same_step")
def _():
    anew = """
import jax, jax.numpy as jnp
x = jnp.ones(4)
for i in range(30):
    step = jax.jit(lambda a: jnp.sum(a) * RATE)
    step(x)
"""
    folder, err = python("anew", anew.replace("RATE", "(0.1 if i < 20 else 0.2 + i)"),
                         args=("--policy", "warn", "--summary"))
    text = xlane("explain", folder)
    assert "a step's program changed 0 times in the warm-up window, 10 after it" in err and "traced into it change?    yes" in text, \
        err + text
    python("anew", anew.replace("RATE", "(0.1 if i < 20 else 0.2 + i)"), args=("--policy", "stop"), status=3)
    folder, err = python("again_and_again", anew.replace("RATE", "2"), args=("--summary",))
    assert "the same program was traced again 29 times" in err, err
    ahead = """
import jax, jax.numpy as jnp
step = jax.jit(lambda a: jnp.sum(a))
for n in 4, 5:
    compiled = step.lower(jnp.ones(n)).compile()
    for i in range(15):
        compiled(jnp.ones(n))
"""
    folder, err = python("ahead", ahead, args=("--summary",))
    assert "dimension 0 took 4, 5 at " in xlane("explain", folder), xlane("explain", folder)
    failing = "import jax, jax.numpy as jnp\nstep = jax.jit(lambda a: jnp.sum(a))\n" \
              "for i in range(30):\n    step(jnp.ones(4 if i < 20 else i))\n"
    folder, err = run("filtered", sys.executable, script("filtered.py", failing), args=("--policy", "stop"), status=3)
    assert "FAILED_PRECONDITION" in err and "<xlane>" not in err and "<string>" not in err, err


@check("W6_a_read_before_the_first_step_keeps_no_step_waiting")
def _():
    text = HEALTHY.replace("\nfor n in", "\nprint(float(w.sum()))\nfor n in")
    folder, err = python("read_first", text, args=("--summary",))
    assert "xlane: 0 steps waited until the host had read a result (float, print, .item())\n" in err, err
    _, err = python("read_each", text.replace("jnp.ones((n, 16)))", "jnp.ones((n, 16))); float(w.sum())"),
                    args=("--summary",))
    assert "xlane: 11 steps waited until the host had read a result (float, print, .item()); `xlane explain last` has " \
        "more\n" in err, err


LOOPS = """
import jax, jax.numpy as jnp
@jax.jit
def train(w):
    return jnp.sin(w) * 0.99 + 1
@jax.jit
def evaluate(w, x):
    return (w * x).sum()
w = x = jnp.ones(8)
for i in range(20):
    w = train(w)
    TRAINED
for i in range(TIMES):
    y = evaluate(w, x)
    EVALUATED
"""


@check("W6_each_loop_counts_its_own_reads_and_both_are_steps")
def _():
    for name, times, trained, evaluated, waited in (("last", 50, "", "float(y)", (49, {"evaluate": (49, 50)})),
                                                    ("few", 4, "", "float(y)", (3, {})),
                                                    ("both", 30, "float(jnp.cos(w[0]) + 1)", "float(y)",
                                                     (49, {"train": (20, 20), "evaluate": (29, 30)})),
                                                    ("of_others", 30, "float(jnp.cos(x[i % 8]))", "", (0, {})),
                                                    ("sometimes", 30, "i % 2 and float(w[0])", "", (10, {})),
                                                    ("behind", 30, "", "i and float(before); before = y", (0, {})),
                                                    ("none", 30, "", "", (0, {}))):
        text = LOOPS.replace("TIMES", str(times)).replace("TRAINED", trained).replace("EVALUATED", evaluated)
        folder, err = python("loops_" + name, text, args=("--summary",))
        said = xlane("explain", folder)
        assert "xlane: %d steps waited until the host had read a result" % waited[0] in err, (name, err)
        assert "`train` compiled once, ran 20 times: no recompile\n`evaluate` compiled once, ran %d times" % times \
            in said, (name, said)
        assert {m: (int(n), int(of)) for m, n,
                of in re.findall(r"sync: `(\w+)`: a result of each of the last 5 steps was read before "
            r".*\((\d+) of (\d+) steps in all\), as at \S+; print or convert it every N steps \(if step % 100 == 0\), or keep "
            r"the results in a list and convert them after the loop, or read that of the step before\n",
            said)} == waited[1], (name, said)
        assert set(re.findall(r"^`(\w+)`: the host read a result of \d+ of \d+ steps before it", said, re.M)) == \
            set(waited[1]), (name, said)
        lines = {k: [n for n, t in enumerate(text.splitlines(), 1) if t.strip() == v] for k, v in
                 (("train", trained), ("evaluate", evaluated))}
        assert {m: int(n) for m, n in re.findall(r"sync: `(\w+)`: .* in all\), as at \S+\.py:(\d+); ", said)} == \
            {m: lines[m][0] for m in waited[1]}, (name, lines, said)
        assert ("\n         at  what happened\n    " in said) == bool(waited[1]), said


@check("W5_slices_of_a_new_size_each_time_are_told_of")
def _():
    text = """
import jax, jax.numpy as jnp, numpy as np
x = jnp.arange(100.0)
for i in range(1, 30):
    np.asarray(x[:SIZE])  # HERE
"""
    for size, told in ("i", "yes"), ("30", "no"):
        said = xlane("explain", python("sliced_" + told, text.replace("SIZE", size))[0])
        assert (re.search(r"for new shapes all along: `dynamic_slice` at \S+:%d 28 times \(the size of a slice took \[2\], "
                          % line_of(text), said) is not None) == (told == "yes"), said
        assert answers(said) == (told, "no", "no", "no"), said


@check("W4_a_function_goes_by_its_own_name_and_what_changed_around_it_by_its_own")
def _():
    text = """
import jax, jax.numpy as jnp
from functools import partial
class Model:
    def __call__(self, w, x):
        return w - 0.1 * jnp.mean(x @ w) * w
apply = jax.jit(Model())
@partial(jax.jit, static_argnames="train")
def run(w, x, train):
    x = x @ w
    if train:
        x = jnp.where(x > 0, x, 0.)  # HERE
    return x.mean()
config = {"rate": 0.5}
def make():
    return jax.jit(lambda w: w * config["rate"])
w = jnp.ones((8, 8))
for i in range(20):
    w = apply(w, jnp.ones((4 if i < 14 else 6, 8)))
    run(w, w, train=i < 14)
    if i % 7 == 0:
        config["rate"] /= 2
        scale = make()
    scale(w)
"""
    folder, err = python("around", text)
    said = xlane("explain", folder)
    assert "xlane: Model.__call__ is compiled again: " in err and "unnamed" not in err + said, err + said
    assert "\n`Model.__call__` compiled 2 times" in "\n" + said, said
    assert re.search(r"`run` compiled 2 times: static argument `train` changed from True to False: .*a call of _where "
                     r"at \S*around.py:%d; keep the Python value that chose" % line_of(text), said), said
    assert re.search(r"`_lambda` \S+ compiled 3 times: `config\['rate'\]` took 0.25, 0.125, 0.0625 at ", said), said
    assert "func.call" not in said and "static argument `train` changed from True to False; called" in err, said + err


@check("W5_an_option_that_follows_the_shardings_is_told_as_their_result")
def _():
    folder, _ = python("resharded", """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
split = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d"))
@jax.jit
def step(w, m, x):
    return jax.lax.with_sharding_constraint(w + x, split), m + x
w, x, m = jax.device_put(np.ones(8), split), jax.device_put(np.ones(8), split), jnp.zeros(8)
for i in range(6):
    w, m = step(w, m, x)
""", XLANE_CPU_DEVICES="2")
    said = xlane("explain", folder)
    assert re.search(r"argument `m` was not sharded, and is split over mesh axis 'd' in dimension 0", said), said
    assert "[{" not in said and "mark_sharding" not in said and "; give inputs and results one sharding: jax.device_put" in said, said
    assert re.search(r"\n +as a result: options: compile option allow_spmd_sharding_propagation_to_parameters .*"
                     r" \[(\d, )+\d\] -> \S+\n", said), said


@check("W6_a_wait_without_a_read_is_counted_apart")
def _():
    text = LOOPS.replace("TIMES", "30").replace("EVALUATED", "y.block_until_ready()")
    folder, err = python("awaited", text.replace("TRAINED", "i % 10 or w.block_until_ready()"), args=("--summary",))
    said = xlane("explain", folder)
    assert "xlane: 0 steps waited until the host had read a result" in err and "sync: " not in said, err + said
    assert "\n`evaluate`: the host waited for the end of 29 of 30 steps before it started the next program " \
        "(block_until_ready, or a library that calls it, as at " in said and "`train`: the host" \
        not in said, said
    assert "awaited.py:%d), so the device had nothing queued meanwhile; wait once after the loop, or every N steps\n" \
        % (1 + text.splitlines().index("    y.block_until_ready()")) in said, said
    assert "equinox" not in said and "eqx" not in said, said
    assert "xlane: the host waited for the device to end 31 steps, without a read (block_until_ready); " \
        "`xlane explain last` has more\n" in err, err
    folder, err = python("awaited_now_and_then", LOOPS.replace("TIMES", "30").replace("EVALUATED",
        "").replace("TRAINED",
        "i % 10 or w.block_until_ready()"), args=("--summary",))
    assert "the host waited for the device to end 2 steps, without a read (block_until_ready)\n" in err, err
    folder, err = python("never_awaited", HEALTHY, args=("--summary",))
    assert "without a read" not in err and "the host waited" not in xlane("explain", folder), err


@check("W6_a_step_of_equinox_filter_jit_is_told_of_it")
def _():
    text = """
import jax, jax.numpy as jnp, equinox as eqx
@eqx.filter_jit
def step(w):
    return w * 0.9 + 1
w = jnp.ones(8)
for i in range(20):
    w = step(w)
"""
    said = xlane("explain", python("filtered", text)[0])
    assert re.search(r"\(equinox.filter_jit waits in each call, as at \S*filtered.py:8\), so .*; jax.jit does not wait, "
                     r"and takes the arrays of eqx.partition\(model, eqx.is_array\)", said), said
    assert "wait once after" not in said, said
    too = "; equinox.filter_jit waits in each call too, and jax.jit does not\n"
    for name, jit, told in ("read_filtered", "@eqx.filter_jit", True), ("read_jitted", "@jax.jit", False):
        said = xlane("explain", python(name, text.replace("@eqx.filter_jit", jit) + "    print(float(w[0]))\n")[0])
        assert "sync: `step`: " in said and (too in said) == told and "the host waited for the end" not in said, said
        assert re.search(r" \(19 of 20 steps in all\), as at \S+:9; ", said), said


@check("W2_a_function_that_cannot_be_cached_is_named_with_the_reason")
def _():
    text = """
import jax, jax.numpy as jnp
@jax.jit
def step(w):
    SAY
    return w * 0.9 + 1
w = jnp.ones(8)
for i in range(8):
    w = step(w)
"""
    cache = os.path.join(TMP, "cache-speaks")
    said = "`step` is not cached and compiles in every run: jit_step calls Python functions of this process"
    for name, line, where, there in (("speaks", "jax.debug.print('{}', w[0])", cache, True),
                                     ("speaks_again", "jax.debug.print('{}', w[0])", cache, True),
                                     ("speaks_uncached", "jax.debug.print('{}', w[0])", "off", False),
                                     ("silent", "", cache, False)):
        folder, err = python(name, text.replace("SAY", line), cache=where)
        assert (said in xlane("explain", folder)) == there == ("will compile in every run: jit_step calls" in err), err
        assert ("is not cached" in xlane("explain", folder)) == there, err


@check("W3_a_dtype_that_the_step_itself_returns_is_cast_there")
def _():                                                   # cause: returned resulting
    text = """
import jax, jax.numpy as jnp
@jax.jit
def step(p, x):
    g = jax.grad(lambda p: jnp.mean((x.astype("f") @ p["w"].astype("f")) ** 2))(p)
    return jax.tree.map(lambda p, g: (p - 0.1 * g).astype(OUT), p, g)
p, x = {"w": jnp.ones((16, 4))}, jnp.ones((8, 16))
for i in range(12):
    p = step(p, x if i < 9 else x.astype(LATE))
"""
    said = xlane("explain", python("fed_back", text.replace("OUT", "'bfloat16'").replace("LATE", "'f'"))[0])
    assert "argument `p['w']` took f32, bf16 at " in said and "cast it inside the step (" in said, said
    assert "; cast it to one dtype before the call" not in said, said
    said = xlane("explain", python("cast_late", text.replace("OUT", "'f'").replace("LATE", "'float16'"))[0])
    assert "; cast it to one dtype before the call" in said and "cast it inside the step" not in said, said
    # an argument that another one made what it is, and one whose caller stopped to cast it later
    text = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
@jax.jit
def step(p, m, s):
    g = {k: 0.1 * s * v for k, v in p.items()}
    return jax.tree.map(lambda p, g: p - g, p, m), g
p = m = {"w": jnp.ones((16, 4), "f")}
for i in range(30):
    p, m = step(p, m, np.float32(2) if i < 12 else np.float64(2))
    if i < LATE: p, m = jax.tree.map(lambda x: x.astype("f"), (p, m))
"""
    for name, late, told in ("at_once", 0, True), ("later", 20, False):
        said = xlane("explain", python("wide_" + name, text.replace("LATE", str(late)))[0])
        lines = said.splitlines()[:3]
        assert "argument `s` took f32, f64 at " in lines[0] and answers(said) == ("yes", "no", "no", "no"), said
        assert lines[1].startswith("    as a result: argument `" if told else "    and: argument `"), said
        assert ("since argument `s` had changed its dtype" in said) == told != ("cast it inside the step" in said), said
        assert all("argument `%s['w']` took f32, f64" % who in lines[1] for who in "mp"), said


@check("W3_arguments_have_the_names_that_the_user_gave_them")
def _():
    text = """
import jax, jax.numpy as jnp, equinox as eqx
net = eqx.nn.MLP(8, 1, WIDE, 2, key=jax.random.key(0))
class Trainer(eqx.Module):
    net: eqx.nn.MLP
    rate: jax.Array
    @eqx.filter_jit
    def step(self, x, *more, y):
        return jnp.mean((jax.vmap(self.net)(x) + sum(more) - y) ** 2) * self.rate
trainer = Trainer(net, jnp.ones(()))
@eqx.filter_jit(donate="all-except-first")
def step(model, batch, *, scale):
    return jnp.mean(jax.vmap(model)(batch["x"]) * scale)
def timed(f):
    def run(*args):
        return f(*args)
    return run
@jax.jit
@timed
def update(w, x):
    return w["a"] * x["b"].sum() + x["c"]
for i in range(12):
    n = 4 if i < 6 else 3
    step(net, {"x": jnp.ones((n, 8))}, scale=jnp.ones(n)[:, None])
    trainer.step(jnp.ones((n, 8)), jnp.ones((n, 1)), y=jnp.ones(1))
    update({"a": jnp.ones(2)}, {"b": jnp.ones(n), "c": jnp.ones(2)})
"""
    runs = os.path.join(TMP, "runs-names")
    said = xlane("explain", python("names", text.replace("WIDE", "16"), runs=runs)[0])
    for name in "argument `batch['x']` dim", "argument `scale` dim", "argument `x` dim", "argument 3 of step() dim", \
            "argument 2 of run() at ['b'] dim":
        assert name + "ension 0 took 4, 3" in said, (name, said)
    assert "donate[" not in said and "args[" not in said and "`argument" not in said, said
    said = xlane("explain", "--all", python("names", text.replace("WIDE", "16 if len(__file__) < 3 else 32"),
                                            runs=runs)[0])
    assert "argument `model.layers[0].weight`: dimension 0 changed from 16 to 32" in said and "donate[" not in said, said
    assert "argument `self.net.layers[0].weight`: dimension 0 changed from 16 to 32" in said, said
    said = xlane("explain", python("many", """
import jax, jax.numpy as jnp, equinox as eqx
@eqx.filter_jit
def step(model, x):
    return jnp.mean(model(x))
for i in range(6):
    step(eqx.nn.MLP(8, 1, 4 if i < 4 else 5, 100, key=jax.random.key(0)), jnp.ones(8))
""")[0])
    assert "argument `model: leaf 1` dimension 0 took 4, 5 at " in said and "was added" not in said, said


@check("W3_a_warning_says_what_to_do_of_a_value_a_list_and_dropout")
def _():
    sys.path.insert(0, os.path.join(HERE, "guard"))
    import causes
    for name, old, new, words in (
            ("rate_of_equinox", "range(8)", "range(30)",
             r"argument `lr` \(a Python float\), used by .*; remedy: pass it as an "
             r"array, as in jnp.asarray\(value\), where it decides no shape, branch or length of a loop"),
            ("list_of_arrays_grows", "range(8)", "range(14)",
             r"argument `history` has 11 elements that the program reads, "
             "and had 10, used at .*; remedy: where its length goes on changing, pass one array of a fixed length that "),
            ("inference_mode_of_equinox", "i % 3 < 2", "i < 12",
             "op: only the earlier program draws random numbers: .*; "
             "remedy: where that is dropout, on in training and off in evaluation, two programs are right")):
        text = causes.CASES[name]["text"].replace(old, new).replace("range(9)", "range(15)")
        err = python("warned_" + name, text)[1]
        assert re.search("is compiled again: .*" + words, err), err


@check("W3_a_learning_rate_of_optax_that_changes_is_told_how_optax_passes_it")
def _():
    text = """
import functools, jax, jax.numpy as jnp, optax
def train(tx, rate, w, s):
    u, s = tx.update(rate * w, s, w)
    return optax.apply_updates(w, u), s
w = jnp.ones((8, 4))
for n in range(3):
    tx = optax.sgd(OURS, momentum=0.9)
    s = tx.init(w)
    step = jax.jit(functools.partial(train, tx, THEIRS))
    for i in range(4):
        w, s = step(w, s)
"""
    hint = " (Optax: optax.inject_hyperparams, or a schedule)"
    for name, ours, theirs in ("of_optax", "0.1 / 2 ** n", "0.5"), ("not_of_optax", "0.1", "-0.5 / 2 ** n"):
        said = xlane("explain", python(name, text.replace("OURS", ours).replace("THEIRS", theirs))[0])
        for words in ("constant -0.1 -> -0.05 (as of a learning rate of 0.1 -> 0.05, for Optax subtracts the update), used",
                      "; a learning rate of 0.1 is -0.1 in a program of Optax, which subtracts the update"):
            assert (words in said) == (name == "of_optax"), said
        assert answers(said) == ("no", "no", "no", "yes") and (hint in said) == (name == "of_optax"), said


@check("W3_an_option_that_follows_from_a_callback_is_a_result")
def _():
    text = """
import jax, jax.numpy as jnp
DEBUG = False
@jax.jit
def step(w):
    if DEBUG: CHANGE
    return w * 0.9
w = jnp.ones((16, 4))
for i in range(12):
    if i == 6: DEBUG = True; step.clear_cache()
    w = step(w)
"""
    option = "options: allow_in_place_mlir_modification"
    said = xlane("explain", python("debugs", text.replace("CHANGE", "jax.debug.print('{l}', l=w.sum())"))[0])
    assert "as a result: " + option in said and " " * 13 + option not in said, said
    said = xlane("explain", python("adds", text.replace("CHANGE", "w = w + 1"))[0])
    assert option not in said and answers(said)[2] == "yes", said


@check("W7_functions_of_one_name_in_several_processes_are_one_if_they_are_of_one_line")
def _():
    text = """
import multiprocessing as mp
def train(n):
    import jax, jax.numpy as jnp
    @jax.jit
    def step(w): return jnp.tanh(w @ w)
    w = jnp.ones((n, n))
    for i in range(12): w = step(w)
def evaluate(n):
    import jax, jax.numpy as jnp
    @jax.jit
    def step(x): return jnp.cumsum(x) * 2
    for i in range(15): float(step(jnp.ones(n))[0])
if __name__ == "__main__":
    for f, n in (train, 8), (evaluate, 9), (evaluate, 9):
        p = mp.get_context("spawn").Process(target=f, args=(n,))
        p.start(), p.join()
"""
    said = xlane("explain", python("processes", text)[0])
    assert "`step` (processes.py:5) compiled once, ran 12 times: no recompile\n" in said, said
    assert "`step` (processes.py:11) compiled 2 times, ran 30 times (sums over 2 processes): no recompile\n" in said, said
    assert "sync: `step` (processes.py:11): " in said and said.count(" (28 of 30 steps in all)") == 2, said


@check("W6_an_evaluation_now_and_then_is_no_loop_that_waits")
def _():
    text = LOOPS.replace("range(20)", "range(80)").replace("range(TIMES)", "range(1)").replace("EVALUATED", "")
    folder, err = python("now_and_then", text.replace("TRAINED", "i % 10 == 9 and float(evaluate(w, x))"),
                         args=("--summary",))
    said = xlane("explain", folder)
    assert "xlane: 8 steps waited until the host had read a result" in err and "sync: " not in said, err + said


@check("W6_what_JAX_reads_to_find_a_NaN_is_none_of_the_users_reads")
def _():
    text = LOOPS.replace("TIMES", "30").replace("TRAINED", "").replace("EVALUATED", "")
    folder, err = python("nans", "import jax; jax.config.update('jax_debug_nans', True)\n" + text, args=("--summary",))
    assert "xlane: 0 steps waited until the host had read a result" in err, err
    assert "xlane: 49 steps waited while JAX looked for NaN in the results (jax_debug_nans)\n" in err, err
    assert "sync: " not in xlane("explain", folder), xlane("explain", folder)


@check("W6_steps_that_read_are_counted_and_a_size_that_forces_it_is_named")
def _():
    text = """
import jax, jax.numpy as jnp
@jax.jit
def step(w, x):
    return w + x.sum()
w = jnp.zeros(())
x = jnp.arange(16.0)
for i in range(20):
    SIZE
    w = step(w, y)
    READ
"""
    said = {}
    for name, size, read in ("some", "y = x", "i < 8 and float(w)"), ("masked", "y = x[x + 0 * w > i % 5]", ""):
        folder, said[name] = python("reads_" + name, text.replace("SIZE", size).replace("READ", read),
                                    args=("--summary",))
        said[name] += xlane("explain", folder)
    assert "xlane: 8 steps waited until the host had read a result (float, print, .item()); `xlane explain last` has " \
        "more\n" in said["some"], said["some"]
    assert "each of the last 5 steps was read before the next" in said["some"] and "(8 of 20 steps in all)" in said["some"]
    assert "every step reads" not in said["some"] and "size that depends on data" not in said["some"], said["some"]
    assert "steps waited until the host had read a result (float, print, .item(), or a size that depends on data)" \
        in said["masked"], said["masked"]
    assert "`step` compiled 5 times: argument `x` dimension 0 took 15, 14, 13, 12, 11" in said["masked"] \
        and "; keep a fixed size and a mask (jnp.where" in said["masked"] \
        and "had read a mask with 14 true elements" in said["masked"] and "pad to a few" not in said["masked"], \
        said["masked"]


@check("W4_the_line_of_a_function_is_its_own_and_not_that_of_what_it_calls")
def _():
    text = """
import jax, jax.numpy as jnp
def inner(x): return jnp.sin(x) * 2
def other(x): return jnp.cos(x) + 1
for turn in range(3):
    step = jax.jit(lambda x: other(inner(x)))  # HERE
    for i in range(5):
        step(jnp.ones(4))
"""
    folder, _ = python("fresh_lambda", text)
    said = xlane("explain", folder)
    assert re.findall(r"the function is at \S*fresh_lambda\.py:(\d+)", said) \
        and set(re.findall(r"the function is at \S*fresh_lambda\.py:(\d+)", said)) == {str(line_of(text))}, said


@check("W6_a_warning_is_whole_the_first_time_and_short_from_then_on")
def _():
    text = "import jax, jax.numpy as jnp\nfor lr in 0.5, 0.25, 0.125, 0.0625:\n    step = jax.jit(lambda w: w - lr * w.sum())\n" \
           "    w = jnp.ones(4)\n    for i in range(12):\n        w = step(w)\n"
    _, err = python("decay", text)
    warned = [line for line in err.splitlines() if "is compiled again" in line]
    assert len(warned) == 3 and [w.count("remedy:") for w in warned] == [1, 0, 0], err
    assert all("again: constant 0." in w for w in warned) and len(warned[1]) < 150, warned


FLOOD = """
import jax, jax.numpy as jnp
w = jnp.ones((8, 8))
for i in range(130):
    w = jax.jit(lambda w: jnp.tanh(w @ w) * (0.1 if i < 30 else 0.2 if i < 60 else 0.3))(w)  # HERE
print(float(w.sum()))
"""


@check("W6_a_cause_that_repeats_is_told_at_growing_counts")
def _():
    global flood
    flood, err = python("flood", FLOOD, args=("--summary",))
    warned = [line for line in err.splitlines() if "jit__lambda is" in line]
    same = [line for line in warned if "the same program, traced again when called at" in line]
    assert len(warned) == 5 and len(same) == 3 and "identical" not in err, err
    assert [line.count("remedy:") for line in same] == [1, 0, 0], err
    assert [re.findall(r"\((\d+) times so far", line) for line in same] == [[], ["10"], ["100"]], err
    assert "a step's program changed 0 times in the warm-up window, 2 after it; the same program was traced again " \
        "127 times; `xlane explain last`" in err, err
    text = "import jax, jax.numpy as jnp\n@jax.jit\ndef step(w, x):\n    return w - x.sum()\nw = jnp.ones(4)\n" \
           "for i in range(60):\n    w = step(w, jnp.ones(3 + max(0, i - 20)))\nprint(w)\n"
    _, err = python("grow", text)
    assert len([line for line in err.splitlines() if "jit_step is compiled again: shape:" in line]) == 4, err
    text = "import jax, jax.numpy as jnp\n@jax.jit\ndef step(w, xs): return w - sum(xs)\nw, xs = jnp.ones(4), []\n" \
           "for i in range(60):\n    xs = xs + [jnp.ones(4)] * (i < 1 or i > 20)\n    w = step(w, xs)\nprint(w)\n"
    _, err = python("grows", text)                         # each element of the list is a new argument
    assert len([line for line in err.splitlines() if "jit_step is compiled again: args:" in line]) == 4, err


@check("W3_what_pads_to_buckets_is_not_told_to_and_a_warning_of_shardings_is_short")
def _():                                                   # cause: buckets
    text = """
import jax, jax.numpy as jnp
@jax.jit
def step(w, x):
    return w + x.sum()
w = jnp.zeros(())
for i in range(60):
    w = step(w, jnp.ones(SIZES[i % 3 if i < LATE else 3]))
"""
    for name, sizes, late, told in (("closed", "[32, 64, 128]", 60, False), ("late", "[32, 64, 128, 256]", 50, True),
                                    ("odd", "[32, 18, 64]", 60, False)):
        said = xlane("explain", python("buckets_" + name, text.replace("SIZES", sizes).replace("LATE", str(late)))[0])
        assert answers(said) == ("yes", "no", "no", "no"), said
        assert ("; pad to a few fixed sizes" in said) == told != ("of inputs padded to buckets: " in said), said
        assert told or "a smaller last batch" in said and "drop or fill the last batch" in said, said
    _, err = python("split", """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("data",))
step = jax.jit(lambda p, ema: (jax.tree.map(lambda a: a * 0.9, p), jax.tree.map(lambda e, a: 0.9 * e + a, ema, p)))
p = ema = {"kernel_%d" % i: jnp.ones((8, 8)) for i in range(6)}
for i in range(20):
    if i == 14:
        p, ema = jax.device_put((p, ema), NamedSharding(mesh, P(None, "data")))
    p, ema = step(p, ema)
""", XLANE_CPU_DEVICES=4)
    warned = [line for line in err.splitlines() if "is compiled again" in line]
    assert len(warned) == 1 and ": sharding: argument `p['kernel_0']`" in warned[0] and len(warned[0].replace(TMP,
        "")) < 250, err


@check("W3_few_sizes_or_values_for_many_executions_need_nothing")
def _():                                                   # cause: modes
    text = """
import functools, jax, jax.numpy as jnp
@functools.partial(jax.jit, static_argnames="train")
def apply(w, x, train=True):
    h = jnp.tanh(x @ w)
    if train:
        h = h * 0.5
    return h
w = jnp.ones((8, 8))
for n in SIZES:
    for i in range(EACH):
        h = apply(w, jnp.ones((4, n, 8)), train=TRAIN)
"""
    for name, sizes, each, train, words in (
            ("resized", "16, 24, 32", 12, True, "; few sizes for so many executions"),
            ("twice", "16, 24, 32", 2, True, "; pad to a few fixed sizes (buckets) if more follow\n"),
            ("flagged", "16,", 12, "i % 3 > 0", "; two values and two programs, as of a flag for training"),
            ("flagged_late", "16,", 12, "i < 9", "; keep the Python value that chose other code the same")):
        program = text.replace("SIZES", sizes).replace("EACH", str(each)).replace("TRAIN", str(train))
        said = xlane("explain", python(name, program)[0])
        assert words in said and "where it is the last batch" not in said, said
        assert ("nothing to do" in said or "nothing more to do" in said) == (name in ("resized", "flagged")), said


@check("W3_a_static_argument_is_to_be_left_out_only_where_no_value_of_it_gave_another_program")
def _():
    text = """
import functools, jax, jax.numpy as jnp
@functools.partial(jax.jit, static_argnames=("step", "name"))
def update(w, step, name):
    RETURN
w = jnp.ones(8)
for i in range(30):
    w = update(w, i, "a")
"""
    for name, body, out in (("free", "return w * 0.5", True), ("rate", "return w * 0.5 ** (step // 10)", False),
                            ("branch", "return w * 0.5 + 1 if step % 4 == 3 else w * 0.5", False)):
        folder, err = python("static_" + name, text.replace("RETURN", body))
        said = xlane("explain", folder)
        assert ("leave it out" in said) == out and ("some of its values give" in said) != out, said
        found = {e.get("cause") for e in json.loads(xlane("--json", "explain", folder)) if e["of_step"]}
        assert ("unused" in found) == out and ("shared" in found) != out, found
        assert "leave it out" not in err and "does not depend" not in err, err
        assert "static argument `step`" in err and "has the remedy, once the run is over" in err, err


@check("W3_a_warning_of_what_grows_says_so_as_explain_does")
def _():
    text = "import jax, jax.numpy as jnp\n@jax.jit\ndef step(t):\n    return jnp.tanh(t).sum()\n" \
           "for i in range(20):\n    step(jnp.ones((2, SIZE)))\n"
    for name, size, grows in ("grown", "4 + i", True), ("waves", "9 + (7 * i) % 20", False):
        folder, err = python(name, text.replace("SIZE", size))
        assert ("it grows from call to call" in err) == grows, err
        assert ("it grows from call to call" in xlane("explain", folder)) == grows
        assert ("pad to a few" in err) != grows, err


@check("W4_an_argument_that_code_begins_to_read_is_no_new_one_and_what_a_new_one_brings_follows")
def _():
    head = "import functools, jax, jax.numpy as jnp\nw, m = jnp.ones(8), jnp.ones(8)\n"
    reads = head + "@functools.partial(jax.jit, static_argnames='step')\ndef update(w, x, step):\n" \
        "    if step < 5:\n        return w\n    return w - .1 * x  # HERE\n" \
        "for i in range(20):\n    w = update(w, m, step=i)\n"
    masked = head + "@jax.jit\ndef update(w, x, mask=None):\n    def loss(w):\n        h = jnp.tanh(w * x)\n" \
        "        if mask is not None: h = h * mask  # HERE\n        return h.sum()\n" \
        "    return w - jax.grad(loss)(w)\nfor i in range(20):\n" \
        "    w = update(w, m) if i < 12 else update(w, m, m > 0)\n"
    area = head + "@jax.jit\ndef update(x):\n    return x[:, ::2, ::2].mean((1, 2)).sum()  # HERE\n" \
        "for n in 16, 24, 32:\n    for i in range(4):\n        update(jnp.ones((2, n, n)))\n"
    for name, text, told, is_not, said in (
            ("reads", reads, "3 ops were added", "arguments were added", ("no", "no", "yes", "no")),
            ("masked", masked, "arguments were added: `mask`", "chose other code", ("yes", "no", "no", "no")),
            ("area", area, "dimension 1 took 16, 24, 32", "perhaps", ("yes", "no", "no", "no"))):
        shown = xlane("explain", python(name, text)[0])
        assert answers(shown) == said and told in shown and is_not not in shown, shown
        assert "%s.py:%d" % (name, line_of(text)) in shown.splitlines()[name == "reads"], shown


@check("W4_of_the_same_program_traced_again_the_argument_with_another_structure_is_named")
def _():
    text = "import jax, jax.numpy as jnp\n@jax.jit\ndef step(w, batch):\n    return w * batch[0] + batch[1]\n" \
           "w = jnp.ones(4)\nfor i in range(16):\n    w = step(w, TYPE((w, w)))\n"
    for name, kind, named in ("flips", "(list if i % 4 == 3 else tuple)", True), ("stays", "tuple", False):
        shown = xlane("explain", python("tree_" + name, text.replace("TYPE", kind))[0])
        assert ("traced again for `batch`, which is a list and was a tuple when" in shown) == named, shown
        assert ("pass the same structure in every call" in shown) == named, shown
        assert "make the jitted function once" not in shown, shown
    text = """
import dataclasses, functools, jax, jax.numpy as jnp
@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["turn"])
@dataclasses.dataclass
class Model:
    w: object
    turn: int
@jax.jit
def step(model, x):
    return dataclasses.replace(model, w=model.w + x)
for i in range(12):
    model = Model(jnp.ones(4), TURN)
    step(model, model.w)
"""
    inside = text.replace("(model, x)", "(models, x)").replace("    return",
        "    model, = models\n    return").replace("step(model,", "step([model],")
    for name, text, turn, said in (("tree_field", text, "i", "static field `model.turn`, which has another value"),
                                   ("tree_made", text, "lambda: i",
                                    "static field `model.turn`, which is another function"),
                                   ("tree_inside", inside, "i",
                                    "`models`, which has another structure or another static field")):
        shown = xlane("explain", python(name, text.replace("TURN", turn))[0])
        assert "traced again for %s when called" % said in shown, shown
        assert "make the jitted function once" not in shown and "which is a " not in shown, shown
    assert "compiled once" in xlane("explain", python("tree_fixed", text.replace("TURN", "3"))[0])


@check("W3_a_run_that_ended_in_an_error_before_a_step_is_not_told_to_jit")
def _():
    text = "import jax, jax.numpy as jnp\nw = [jnp.ones(4) * i for i in range(3)]\n@jax.jit\ndef step(x):\n" \
           "    return -x if x.sum() > 0 else x\nfor i in range(3): y = STEP(w[1] + i)\nEND\n"
    for name, step, end, status in (("raises", "step", "", 1), ("eager", "jnp.tanh", "", 0),
                                    ("after", "jax.jit(lambda x: x * 2)", "raise SystemExit(5)", 5)):
        said = xlane("explain", python("ended_" + name, text.replace("STEP", step).replace("END", end),
                                       status=status)[0])
        assert ("this run ended with exit status %d\n" % status in said) == (status > 0), said
        assert ("before a function of yours was compiled" in said) == (name == "raises"), said
        assert ("jit the function that calls" in said) == (name == "eager"), said


@check("W3_a_warning_has_the_remedy_that_explain_has")
def _():
    for name, value, remedy in (("axes", "jnp.ones(()) if i < 12 else jnp.ones(4)", "give it the same axes"),
                                ("sizes", "jnp.ones(1) if i < 12 else jnp.ones(4)", "pad to a few fixed sizes")):
        folder, err = python(name,
                             "import jax, jax.numpy as jnp\nstep = jax.jit(lambda w, s: w * s + 1.)\nw = jnp.ones(4)\n"
                             "for i in range(20):\n    w = step(w, %s)\n" % value)
        text = xlane("explain", folder).split("in addition,")[0]
        for said in err, text:
            assert remedy in said and ("pad to a few" in said) == ("pad to a few" in remedy), said


BESIDE = """
import jax, jax.numpy as jnp, multiprocessing as mp, time
def work(k):
    for i in range(4):
        print(float(jax.jit(lambda x: x * k)(jnp.ones(3)).sum()))
    return k
if __name__ == "__main__":
    with mp.get_context("spawn").Pool(1) as p:
        p.map(work, range(1, 3))
"""


@check("R_an_eager_op_beside_a_jitted_function_and_a_process_that_is_killed")
def _():
    folder, err = python("beside", BESIDE, args=("--summary",))
    text = xlane("explain", folder)
    assert "op by op" not in text, text
    compiled = int(re.search(r"^(\d+) compiled, ", text, re.M)[1])
    assert "xlane: %d compiled, " % compiled in err and compiled >= 2, err + text


OUTSIDE = """
import jax, jax.numpy as jnp
def loss(w, x):
    return jnp.mean((x @ w - jnp.sin(x[:, 0])) ** 2)  # HERE
@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)
w, x = jnp.ones(4), jnp.ones((8, 4))
for i in range(20):
    jax.config.update("jax_disable_jit", i >= FROM)
    w = train_step(w, x)
jax.config.update("jax_disable_jit", False)
AFTER
"""


@check("W1_a_function_that_ran_once_outside_of_jit_is_not_a_step_that_runs_op_by_op")
def _():
    text = xlane("explain", python("outside", OUTSIDE.replace("FROM", "99").replace("AFTER", "print(loss(w, x))"))[0])
    line = line_of(OUTSIDE)
    assert re.search(r"^`loss`, which `train_step` uses too, ran op by op, outside of jit, at \S*outside.py:%d, called at "
                     r"\S*outside.py:13: \d+ single ops, once$" % line, text, re.M), text
    assert "disable_jit" not in text and "one by one" not in text, text
    text = xlane("explain", python("switched_off", OUTSIDE.replace("FROM", "5").replace("AFTER", ""))[0])
    assert re.search(r"^`train_step` ran op by op, outside of jit, at \S*switched_off.py:%d, called at "
                     r"\S*switched_off.py:11: \d+ single ops; jit the function that calls .*jax.disable_jit" % line,
                     text, re.M), text
    text = xlane("explain", python("inside", OUTSIDE.replace("FROM", "99").replace("AFTER", ""))[0])
    assert "op by op" not in text, text


@check("W3_the_summary_names_a_loop_without_a_jit")
def _():
    loop = OUTSIDE.replace("@jax.jit\n", "").replace("FROM", "99").replace("AFTER", "")
    said = "xlane: no step: %s executions of single ops or library functions, and of nothing else; "
    folder, err = python("unjitted", loop, args=("--summary",))
    assert re.search(said % r"\d+", err) and "`xlane explain last` has more" in err, err
    assert "no step: " in xlane("explain", folder)
    _, err = python("jitted", OUTSIDE.replace("FROM", "99").replace("AFTER", "for i in range(99): w + i"),
                    args=("--summary",))
    assert "no step" not in err, err
    _, err = python("few_ops", "import jax.numpy as jnp\nprint(jnp.ones(3) + 1)\n", args=("--summary",))
    assert "no step" not in err, err


SPLIT = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
split = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d"))
@jax.jit
def step(p, x, y):
    return [jax.lax.with_sharding_constraint(w + (x * y).mean(), NamedSharding(split.mesh, P())) for w in p]
p = [jnp.ones(k + 2) for k in range(4)]
for i in range(20):
    x, y = np.ones(8), np.ones(8)
    if i < LATE:
        x, y = jax.device_put((x, y), split)
    p = step(p, x, y)
"""


@check("W1_what_came_after_the_warm_up_window_is_told_first")
def _():
    for late, first in (14, "argument `x` was split"), (99, "argument `p[0]` was not sharded"):
        folder, err = python("late_%d" % late, SPLIT.replace("LATE", str(late)), XLANE_CPU_DEVICES="2")
        text = xlane("explain", folder)
        assert text.splitlines()[0].partition(" times: ")[2].startswith(first), text
        assert ("is compiled again: sharding: argument `x`" in err) == (late == 14), err
        assert "--all has them" not in text, text


DROPPED = """
import functools, jax, jax.numpy as jnp
def loss(w, x, key, train):
    h = jnp.tanh(x @ w)
    return jnp.mean(jnp.where(jax.random.bernoulli(key, 0.5, h.shape), h, 0) ** 2 if train else h ** 2)
@functools.partial(jax.jit, static_argnames="train")
def step(w, x, key, train):
    value, g = jax.value_and_grad(loss)(w, x, key, train) if GRADS else (loss(w, x, key, train), 0 * w)
    return w - 0.1 * g, value
w, x = jnp.ones((16, 4)), jnp.ones((8, 16))
for i in range(24):
    w, l = step(w, x, jax.random.key(i), train=i < 12)
"""


@check("W1_a_training_step_that_lost_its_dropout_is_told_apart_from_an_evaluation")
def _():
    lost = "computes gradients too: if it is your training step, it now trains without dropout; "
    for name, grads in ("lost", "True"), ("evaluated", "train"):
        folder, err = python("dropout_" + name, DROPPED.replace("GRADS", grads))
        text = xlane("explain", folder)
        assert (lost in text) == (lost in err) == (name == "lost"), (err, text)
        verdict = text.splitlines()[0]
        assert verdict.startswith("`step` compiled 2 times: static argument `train` changed from True to False: only the "
                                  "earlier program draws random numbers: "), text
        assert verdict.count("`train` changed") == 1 and "two programs are right" in verdict, text
        assert re.search(r"\.py:\d+-\d+", text) or " to line " not in text, text


@check("W1_numbers_of_64_bits_are_said_to_come_of_jax_enable_x64")
def _():
    wide = "import jax, jax.numpy as jnp, numpy as np\njax.config.update('jax_enable_x64', X64)\n@jax.jit\n" \
           "def step(x):\n    return (x * 2).sum()\nfor i in range(20):\n    step(np.ones(8, np.float32 if i < 12 else OTHER))\n"
    for x64, other, said in ("True", "np.float64", True), ("True", "np.int32", False), ("False", "np.int32", False):
        text = xlane("explain", python("wide_%s_%s" % (x64, other[3:]), wide.replace("X64", x64)
                                       .replace("OTHER", other))[0])
        assert ("; jax_enable_x64 is on (" in text) == said and "argument `x` took f32, " in text, text


CAPTURED = """
import jax, jax.numpy as jnp, numpy as np
def loss(w, x):
    return jnp.mean((x @ w) ** 2)
w, rng = jnp.ones(4), np.random.default_rng(0)
ONCE
for i in range(8):
    x = rng.normal(size=(8, 4)).astype(np.float32)
    w = w - 0.1 * CALL
"""


@check("W1_an_array_that_a_function_captures_is_named_and_so_is_a_function_made_anew")
def _():
    again = "times the jitted function was made anew, as by jax.jit of a lambda in a loop"
    for name, once, call, named, made in (
            ("lambda", "", "jax.jit(jax.grad(lambda w: loss(w, x)))(w)", True, True),
            ("passed", "step = jax.jit(jax.grad(loss))", "step(w, x)", False, False),
            ("cleared", "step = jax.jit(jax.grad(lambda w: loss(w, x)))", "(jax.clear_caches(), step(w))[1]", True,
             False)):
        text = xlane("explain", python("captured_" + name, CAPTURED.replace("ONCE", once).replace("CALL", call))[0])
        assert (" (as `x`, which the function captures), used by " in text) == named, text
        assert (again in text) == made, text


@check("W1_remedies_for_sizes_follow_how_many_there_were")
def _():                                                   # cause: sizes
    for sizes, words in (("8 + max(0, i - 9) * (1 + i % 3)", "; pad to a few fixed sizes (buckets): each size is a "),
                         ("[8, 9, 7, 5][i // 6]", "; pad to a few fixed sizes (buckets) if more follow\n"),
                         ("8 if i < 23 else 5", "where it is the last batch that is smaller, drop or fill it\n")):
        text = xlane("explain", python("many_sizes", STEP.replace("SIZES", "[%s for i in range(24)]" % sizes))[0])
        assert words in text and text.count("(buckets)") == 1, (words, text)


@check("R_a_process_that_becomes_another_compiles_as_that_one_and_calls_keep_their_name")
def _():
    program = """
import os, sys, jax, jax.numpy as jnp
class Model:
    def __call__(self, w):
        return w * 0.9 + 1
step = jax.jit(Model().__call__)
w = jnp.ones(8)
for i in range(12):
    w = step(w)
    READ
if i == len(sys.argv) * 11:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
"""
    text = xlane("explain", python("becomes", program.replace("READ", "float(w[0])"), fresh=True)[0])
    assert "\n`__call__` compiled 2 times, ran at least 12 times (sums over 2 processes): no recompile\n" in text, text
    assert text.count(" of 12 steps in all), as at ") == 2 and text.count("(at least ") == 2, text


@check("W4_what_repeats_in_a_sentence_is_said_once")
def _():
    program = """
import jax, jax.numpy as jnp
def make(rates):
    @jax.jit
    def several(x):
        return jnp.stack([x * r for r in rates])
    return several
def table(rates):
    @jax.jit
    def looked_up(x):
        return x * jnp.array(rates + [1.0])  # HERE
    return looked_up
for n in 2, 3, 6:
    several = make([0.1] * n)
    several(jnp.ones(4)), several(jnp.ones(4))
for v in 0.1, 0.2, 0.3, 0.4:
    looked_up = table([v] * 5)
    looked_up(jnp.ones(6)), looked_up(jnp.ones(6))
"""
    text = xlane("explain", "--all", python("repeats", program)[0])
    assert "multiply, stablehlo.broadcast_in_dim" not in text, text
    assert "ops were added: stablehlo.broadcast_in_dim, stablehlo.multiply at " in text, text
    assert re.search(r"^`looked_up` compiled 4 times: constant 6xf32, used by stablehlo.multiply: element 0 took "
                     r"0.1, 0.2, 0.3, 0.4 at \S+:%d; pass the value" % line_of(program), text, re.M), text


@check("W6_many_recompiles_of_one_function_do_not_bury_another")
def _():
    folder, _ = python("buried", """
import jax, jax.numpy as jnp
@jax.jit
def grows(xs):
    return sum(x.sum() for x in xs)
@jax.jit
def step(w, x):
    return w + x.sum()
xs = []
for i in range(30):
    xs.append(jnp.ones(3))
    grows(xs)
for n in [3] * 9 + [4] * 9:
    step(1.0, jnp.ones(n))
""")
    entries = lambda text, name: len(re.findall(r" jit_%s +compiled " % name, text))
    text, everything = xlane("explain", folder), xlane("explain", "--all", folder)
    assert entries(text, "grows") == 12 and entries(text, "step") == 1, text
    assert "... and 17 more compiles of `grows`: --all lists them\n" in text and "compiles of `step`" not in text, text
    assert entries(everything, "grows") == 30 and "more compiles of" not in everything, everything
    # of each function its own, as --capture=step:N counts them
    assert re.search(r" jit_step +compiled .*, shape \(step 10\)$", text, re.M), text
    assert re.search(r" jit_grows +compiled .*, args \(step 2\)$", text, re.M), text
    # what the figure of an entry is, where there is one
    assert re.search(r"^ +at  module +compiler  phase, reason$", text,
                     re.M) and " took " not in text.split("  at  ")[1], text
    assert "compiler: the time in the plugin's compile, or in loading, alone; " in text, text
    text = xlane("explain", python("healthy_short", HEALTHY)[0])
    assert "compiler: " not in text and "phase, reason" not in text, text


@check("W4_a_list_that_grows_around_a_function_is_named_and_one_that_explains_nothing_is_not")
def _():
    grows = r"^`%s` compiled %d times: the length of `%s` \(a %s\) took %s at \S+:\d+; pass one array of a fixed size"
    program = """
import functools, jax, jax.numpy as jnp
times, parts, calls, seen, sizes = [1.0], {}, [], [], []
def make():
    @jax.jit
    def nested(w):
        return jax.grad(lambda w: sum(jnp.sin(w / t).sum() for t in times))(w)
    @jax.jit
    def keyed(w):
        return sum((w * p).sum() for p in parts.values())
    return nested, keyed
@functools.partial(jax.jit, static_argnames="n")
def counted(w, n):
    for t in times[:n]:
        w = jnp.tanh(w * t)
    return w
@jax.jit
def sized(x):
    sizes[-1:]
    for i in range(x.shape[0]):
        x = x + jnp.sin(x)
    return x
@functools.partial(jax.jit, static_argnames="deep")
def traced(w, deep):
    seen[-1:]
    return jnp.cos(w) * 2 if deep else w
class Hidden:
    flag = False
    def __bool__(self): return Hidden.flag
hidden = Hidden()
def again():
    @jax.jit
    def logged(w):
        calls.append(w.shape)
        return jnp.sin(w) + 1 if hidden else w
    return logged
w = jnp.ones(4)
for i in range(4):
    for f in make():
        f(w), f(w), f(w)
    counted(w, n=len(times)), counted(w, n=len(times))
    times.append(2.0 * times[-1])
    parts["part%d" % i] = 1.0
for i in range(12):
    if i == 9:
        sizes.append(1), seen.append(1)
        Hidden.flag = True
    sized(jnp.ones(3 if i < 9 else 5)), traced(w, deep=i >= 9)
    if i % 9 == 0:
        logged = again()
    logged(w)
"""
    folder, err = python("around", program)
    text = xlane("explain", folder)
    for name, what, kind in ("nested", "times", "list"), ("keyed", "parts", "dict"), ("counted", "times", "list"):
        took = "1, 2, 3, 4" if what == "times" else "0, 1, 2, 3"
        assert re.search(grows % (name, 4, what, kind, took), text, re.M), (name, text)
    for name in "`sizes`", "`seen`", "`calls`":
        assert name not in text, text
    assert re.search(r"^`logged` compiled 2 times: .*op", text, re.M), text
    assert re.search(r"^`traced` compiled 2 times: .*static argument `deep` changed from False to True", text,
                     re.M), text


@check("W4_a_static_argument_that_was_left_at_its_default_is_named")
def _():
    program = """
from functools import partial
import jax, jax.numpy as jnp
@partial(jax.jit, static_argnames="reg")
def default(w, x, reg=False):
    return w - jnp.sin(x).sum() if reg else w - x.sum()
@partial(jax.jit, static_argnums=2)
def placed(w, x, reg=False):
    return w - jnp.sin(x).sum() if reg else w - x.sum()
@partial(jax.jit, static_argnames="reg")
def same(w, x, reg=False):
    return w - x.sum()
@partial(jax.jit, static_argnames="reg")
def other(w, x, reg=1):
    return w - x.sum()
w = x = jnp.ones(4)
for i in range(24):
    default(w, x) if i < 15 else default(w, x, reg=True)
    placed(w, x) if i < 15 else placed(w, x, True)
    same(w, x) if i < 15 else same(w, x, reg=False)
    other(w, x) if i < 15 else other(w, x, reg=2)
"""
    text = xlane("explain", python("default", program)[0])
    for name in "default", "placed":
        assert re.search(r"^`%s` compiled 2 times: .*static argument `reg` changed from False to True" % name, text,
                         re.M), text
    assert re.search(r"^`same` compiled 2 times: the same program, traced again with `reg` by keyword, instead of all by "
                     r"position", text, re.M), text
    assert re.search(r"^`other` compiled 2 times: the same program, traced again for static argument `reg`, which has "
                     r"another value", text, re.M), text


@check("W4_a_weakly_typed_argument_is_called_a_number_or_an_array")
def _():
    program = """
import jax, jax.numpy as jnp
@jax.jit
def number(w, rate):
    return w - rate * w
@jax.jit
def array(w, state):
    return w - state["rate"] * w
@jax.jit
def always(w, rate):
    return w - rate * w
w = jnp.ones(4, jnp.bfloat16)
for i in range(24):
    number(w, 0.1 if i < 15 else jnp.float32(0.1))
    array(w, {"rate": jnp.float32(0.1) if i < 15 else jnp.asarray(0.1)})
    always(w, 0.1 if i < 15 else jnp.asarray(0.1))
"""
    folder, err = python("weak", program)
    text = xlane("explain", folder)
    assert re.search(r"^`number` compiled 2 times: argument `rate` took a Python number, an array or NumPy number at \S+; give it a dtype "
                     r"in every call, as in jnp.asarray\(value, jnp.float32\)", text, re.M), text
    assert re.search(r"^`array` compiled 2 times: argument `state\['rate'\]` took an array, a weakly typed array at ",
                     text,
                     re.M), text
    assert "`always` compiled once, ran 24 times: no recompile\n" in text, text
    assert "argument `state['rate']`: a weakly typed array instead of an array of the same type" in err, err


@check("W7_a_wrapper_of_a_library_lends_a_function_no_name")
def _():
    program = """
import sys, types, jax, jax.numpy as jnp
lib = sys.modules["lib"] = types.ModuleType("lib")
lib.__file__ = "/site-packages/lib.py"
exec(compile('''
def wrap(f):
    def inner_wrapper(*args):
        return f(*args)
    return inner_wrapper
class Holder:
    def __init__(self, f):
        self.__wrapped__ = f
        self.__name__ = f.__name__
    def __call__(self, *args):
        return self.__wrapped__(*args)
''', "/site-packages/lib.py", "exec"), lib.__dict__)
@jax.jit
@lib.wrap
def mine(w, x):
    y = jnp.sin(x)
    return w - y.sum()
@lib.wrap
def held(w, x):
    y = jnp.cos(x)
    return w - y.sum()
held = jax.jit(lib.Holder(held))
@jax.jit
def inner_wrapper(w, x):
    return w - x.sum()
w = jnp.ones(4)
for i in range(12):
    mine(w, w), held(w, w), inner_wrapper(w, w)
"""
    text = xlane("explain", python("wrapper", program)[0])
    heads = re.findall(r"^`(\w+)`(?: \(\S+\))? compiled once, ran 12 times: no recompile$", text, re.M)
    assert heads == ["mine", "held", "inner_wrapper"], text


@check("W6_the_same_program_traced_again_is_a_question_of_its_own_and_listed_once")
def _():
    text = xlane("explain", flood)
    assert answers(text) == ("no", "no", "no",
                             "yes") and "was the same program traced again?           yes\n" in text, text
    assert len(text.splitlines()) < 30 and re.search(r"\d+ more like this", text), text
    again = [e for e in json.loads(xlane("--json", "explain", flood)) if e.get("cause") == "identical" and e["of_step"]]
    assert len(again) == 127, len(again)
    assert "was the same program traced again?           no\n" in batch, batch


@check("W4_ops_that_a_branch_added_are_told_of_on_its_line_alone")
def _():
    text = """
import jax, jax.numpy as jnp
def make(damp):
    @jax.jit
    def step(w, x):
        def f(w):
            h = jnp.tanh(x @ w)
            if damp:
                h = h * 0.5  # HERE
            return jnp.mean(h ** 2)
        return w - 0.1 * jax.grad(f)(w)
    return step
w, x = jnp.ones((8, 8)), jnp.ones((16, 8))
for damp in False, True:
    step = make(damp)
    for i in range(4):
        w = step(w, x)
"""
    folder, _ = python("damp", text)
    said = xlane("explain", folder)
    assert set(re.findall(r"(?:added|removed)\b.* at \S*damp\.py:(\d+)", said)) == {str(line_of(text))}, said
    assert "operand" not in said and answers(said) == ("no", "no", "yes", "no"), said


@check("B_ranks_join_with_a_bare_initialize_and_their_counts_are_sums")
def _():
    text = """
import atexit, time
ended = []
atexit.register(lambda: print("left", "at once" if time.time() - ended[0] < 4 else "late"))  # after JAX has
import jax; jax.distributed.initialize()
import jax.numpy as jnp
@jax.jit
def train_step(w):
    return w * 0.5 + 1
w = jnp.ones(8)
for i in range(20):
    w = train_step(w)
print("rank", jax.process_index(), "of", jax.process_count(), float(w.sum()))
ended.append(time.time())
"""
    kw = {k: os.path.join(os.path.dirname(script("x", "")), k + "-bare") for k in ("runs", "cache")}
    p = subprocess.run([XLANE, "run", "-n", "2", "--runs", kw["runs"], "--cache", kw["cache"], "--", sys.executable,
                        script("bare.py", text)], text=True, capture_output=True, timeout=300,
                       env=environment(XLANE_CPU_DEVICES=1))
    assert p.returncode == 0 and "rank 0 of 2 " in p.stdout and "rank 1 of 2 " in p.stdout, p.stdout + p.stderr
    assert p.stdout.count("left at once") == 2, p.stdout
    assert "WatchTasks" not in p.stderr and "experimental" not in p.stderr, p.stderr
    folder, = [d for d in os.listdir(kw["runs"]) if d != "contracts"]
    said = xlane("explain", os.path.join(kw["runs"], folder))
    assert re.match(r"`train_step` compiled once and was loaded from the cache once, ran 40 times \(sums over 2 processes\): "
                    "no recompile\n", said), said


@check("B_what_JAX_compiles_on_its_own_cpu_is_not_recorded_and_not_denied")
def _():
    text = "import jax, jax.numpy as jnp\n%sprint(jax.jit(lambda x: x + 1)(jnp.ones(3)))\n"
    folder, _ = python("own_cpu", text % "jax.config.update('jax_platforms', 'cpu')\n", fresh=True)
    said = xlane("explain", folder, status=1)
    assert "JAX took its built-in cpu backend" in said and "nothing was compiled" not in said, said
    folder, _ = python("plugins_cpu", text % "")
    assert "built-in" not in xlane("explain", folder), xlane("explain", folder)
    folder, _ = python("idle", "import jax\nprint(jax.devices())\n")
    said = xlane("explain", folder, status=1)
    assert "nothing was compiled through a plugin\n" in said and "built-in" not in said, said


@check("B_JAX_without_a_plugin_is_said_when_it_happens")
def _():
    text = "import jax, jax.numpy as jnp, sys\njnp.ones(3).block_until_ready()\nprint('the program goes on', file=sys.stderr)\n"
    folder, err = python("builtin", text, JAX_PLATFORMS="cpu")
    assert 0 <= err.find("JAX took its built-in cpu backend") < err.find("the program goes on"), err
    assert "--profile=cpu" in err.split("the program goes on")[0], err
    folder, err = python("builtin_off", text, JAX_PLATFORMS="cpu", XLANE_GUARD="off")
    assert "JAX took" not in err, err


@check("W3_of_causes_that_mix_each_kind_is_in_the_headline_and_each_once")
def _():
    text = """
import jax, jax.numpy as jnp, numpy as np
def loss(w, x):
    h = jnp.tanh(x @ w)
    return h.mean() + (x * x).sum()
x, w, step = np.ones((20, 8), "f"), jnp.ones((8, 4)), 0
for epoch in range(3):
    update = jax.jit(lambda w, x: w - 0.1 * jax.grad(loss)(w, x.astype("float32")))
    for i in range(0, 20, 8):
        b = x[i:i + 8]
        w = update(w, b.astype("float16") if step % 4 == 1 else b)
        step += 1
"""
    folder, _ = python("mixed", text)
    said = xlane("explain", folder)
    headline = re.split(r"in addition,|^ +\d+\.\d+ s ", said, flags=re.M)[0]
    assert "traced again when called at" in headline and "dimension 0 took" in headline, said
    assert len(re.findall(r"argument `x` took f\d+, f\d+", headline)) == 1, said


WEAK = """
import functools, jax, jax.numpy as jnp, numpy as np
def loss(w, x, beta):
    return jnp.mean((x @ w) ** 2) * beta  # BETA
def update(w, g, lr):
    return w - lr * g  # RATE
@functools.partial(jax.jit, static_argnames="beta")
def step(w, x, lr, beta=1.0):
    return update(w, jax.grad(loss)(w, x, beta), lr)
w, x, lr = jnp.ones((16, 4)), np.full((8, 16), 0.1, "f"), jnp.float32(0.1)
for i in range(14):
    CALL
"""


@check("W3_a_weak_type_and_a_static_value_that_change_in_one_call_are_two_causes")
def _():
    both = WEAK.replace("CALL", "w = step(w, x, 0.1 if i else lr, beta=i / 8)")
    rate, beta = line_of(both, "# RATE"), line_of(both, "# BETA")
    folder, _ = python("weak_and_static", both)
    said = xlane("explain", folder)
    assert re.search(r"argument `lr` took an array or NumPy number, a Python number at \S*:%d; give it a dtype" % rate,
                     said), said
    assert re.search(r"static argument `beta` took 0, 0.125, 0.25, .* at \S*:%d; where it decides no" % beta,
                     said), said
    assert "as a result: constant" not in said, said
    assert re.search(r"as a result: stablehlo.convert was added at \S*:%d\n" % rate, said), said
    folder, _ = python("weak_alone", WEAK.replace("CALL", "w = step(w, x, 0.1 if i > 3 else lr)"))
    said = xlane("explain", folder)
    assert "argument `lr` took an array or NumPy number, a Python number at " in said and "static argument" not in said, said
    assert answers(said) == SHAPE and "constant" not in said.split(" at  module")[0], said
    healthy, _ = python("weak_never", WEAK.replace("CALL", "w = step(w, x, 0.1)"))
    assert "no recompile\n" in xlane("explain", healthy), xlane("explain", healthy)


@check("W3_each_argument_whose_type_changed_is_a_cause_of_its_own")
def _():
    text = WEAK.replace("CALL", "w = step(w, x, 0.1) if i < 7 else step(w, x.astype(np.float16), RATE)")
    for name, now, is_cause in ("two_types", "np.float32(0.01)", True), ("one_type", "0.01", False):
        code = text.replace("RATE)", now + ")")
        folder, _ = python(name, code)
        said = xlane("explain", folder)
        assert re.search(r"argument `x` took f32, f16 at \S*:%d; cast it" % line_of(code, "# BETA"), said), said
        told = re.search(r"argument `lr` took a Python number, an array or NumPy number at \S*:%d; give it a dtype"
                         % line_of(code, "# RATE"),
                         said)
        assert bool(told) == is_cause, said
        assert answers(said) == SHAPE, said


PARTS = """import functools, typing
import jax, jax.numpy as jnp
class Transform(typing.NamedTuple):
    update: object
@functools.partial(jax.jit, static_argnums=0)
def step(tx, w):
    return tx.update(w)
tx = Transform(lambda w: w * 0.5)
w = jnp.ones(4)
for i in range(14):
    w = step(TX, w)
"""


@check("W4_a_static_argument_of_functions_is_made_anew_or_not")
def _():
    folder, _ = python("parts_anew", PARTS.replace("TX", "Transform(lambda w: w * 0.5)"))
    said = xlane("explain", folder)
    assert "static argument `tx`, which is another Transform with functions in it that are made anew" in said, said
    assert "make that object or function once" in said and "leave it out of the static arguments" not in said, said
    once, _ = python("parts_once", PARTS.replace("TX", "tx"))
    said = xlane("explain", once)
    assert "made anew" not in said and "no recompile\n" in said, said


@check("W3_across_runs_a_weak_type_is_known_by_the_programs")
def _():
    runs = os.path.join(os.path.dirname(script("x", "")), "runs-weak")
    for name, rate in ("strong", "lr"), ("weak", "0.1"):
        code = WEAK.replace("CALL", "w = step(w, x, %s)" % rate)
        folder, _ = run(name, sys.executable, script("weak_again.py", code), runs=runs)
    made = [e for e in events(folder) if e["event"] == "compile" and e["module"] == "jit_step"]
    assert [e["reason"] for e in made] == ["weak-type"] and "against_run" in made[0], made
    detail = made[0]["detail"][0]
    assert detail["name"] == "lr" and detail["where"].endswith(":%d" % line_of(code, "# RATE")), made


@check("W3_on_a_terminal_lines_are_wrapped_and_a_manual_page_is_a_page")
def _():
    whole, _ = python("wrapped", BATCH)
    said, shown = xlane("explain", whole), on_terminal(80, "explain", whole)
    assert max(map(len, said.splitlines())) > 150 and "\n    " in shown, said
    assert all(len(line) <= 80 or " " not in line.strip() for line in shown.splitlines()), shown
    assert shown.split() == said.split(), (shown, said)
    page = on_terminal(80, "man", "explain", MANPAGER="cat", TERM="dumb")
    assert ".TH" not in page and "explain" in page and ".TH XLANE-EXPLAIN" in xlane("man", "--troff", "explain"), page


@check("README_shows_what_its_first_commands_print")
def _():
    """Each line of an example, in order; where some are left out, it says so with three dots."""
    top = os.path.dirname(HERE)
    page = open(os.path.join(top, "README.md")).read().split("## Install")[0]
    env = {k: v for k, v in environment().items() if not k.startswith(("JAX_", "PJRT_", "XLANE_RUN"))}
    env.update(XLANE_RUNS=os.path.join(TMP, "readme"), XLANE_CACHE=os.path.join(TMP, "readme-cache"),
               PATH=os.path.dirname(sys.executable) + ":" + BUILD + ":" + env["PATH"])

    def flat(text):
        text = re.sub(r"ran [\d.]+ s", "ran 1.5 s", re.sub(r"recorded in \S+", "recorded in a folder", text))
        return re.sub(r"\s+", " ", re.sub(r"loss [\d.]+", "loss 2.2", text.replace(top + "/", ""))).strip()

    examples = re.findall(r"^    \$ (.+)\n((?:    .+\n)+)", page, re.M)
    assert len(examples) == 3, examples
    for command, shown in examples:
        p = subprocess.run(command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
                           cwd=top)
        parts = [re.escape(flat(part)) for part in re.split(r"^    \.\.\.\n", shown, flags=re.M)]
        assert re.fullmatch(" ?.+ ?".join(parts), flat(p.stdout)), (command, shown, p.stdout)


ASKED = {"train": "", "policy": """import jax, jax.numpy as jnp
def step(w): return w * 0.9
for f in jax.jit(step), jax.jit(step, compiler_options={"xla_cpu_enable_fast_math": True}):
    for i in range(12): f(jnp.ones(4))
""", "branch": """import jax, jax.numpy as jnp
from functools import partial
@partial(jax.jit, static_argnames="train")
def step(w, train):
    if train:
        w = w * 0.9
    return w + 1
w = jnp.ones(4)
for i in range(24):
    w = step(w, train=i % 8 > 0)
""", "value": """import jax, jax.numpy as jnp
from functools import partial
@partial(jax.jit, static_argnames="rate")
def step(w, rate):
    return w - rate * w
w = jnp.ones(4)
for i in range(24):
    w = step(w, rate=0.1 / (1 + i // 8))
""", "again": """import jax, jax.numpy as jnp
w = jnp.ones(4)
for i in range(20):
    step = jax.jit(lambda w: w * 0.9)
    w = step(w)
"""}


@check("README_has_a_true_line_for_each_of_the_five_questions")
def _():
    """Of a program of which that question alone is answered yes."""
    top = os.path.dirname(HERE)
    rows = re.findall(r"^\| (did [^|]+\?|was [^|]+\?) \| [^|]+ \| `+([^|]+?)`+ \|$",
                      open(os.path.join(top, "README.md")).read(),
                      re.M)
    assert len(rows) == len(ASKED) == 5, rows
    ASKED["train"] = open(os.path.join(top, "examples", "train.py")).read()
    for (question, line), (name, text) in zip(rows, ASKED.items()):
        said = xlane("explain", python("asked_" + name, text)[0])
        said = said.replace(TMP + "/asked_train.py", "examples/train.py").replace(TMP + "/asked_", "")
        for part in line.split(" ... "):
            assert part in said, (part, said)
        assert re.findall(r"^((?:did|was) .+\?) +yes", said, re.M) == [question], (question, said)

done()
