"""The flight recorder on the embedded device: planted NaNs are named with their op and line, a donating loop is
captured at the step that made one, replay repeats it bit for bit, a device that flips a bit or computes another op is
caught, and a crash is reduced."""
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from _guarded import ALL, BUILD, HERE, PLUGIN, TMP, XLANE, check, done, environment, events, python, run, script, xlane

# Each case is a function of its name; the line that makes the NaN ends in "# name". The ops are those that it may be
# made by.
JAX = r'''
import numpy as np, jax, jax.numpy as jnp
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec as S

def case(name, f, *args):
    f.__name__ = f.__qualname__ = name
    out = jax.jit(f)(*args)
    for x in jax.tree.leaves(out):
        np.asarray(x)

z, o = np.zeros((4, 8), np.float32), np.ones((4, 8), np.float32)
r = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)

def f(x, y):
    a = jnp.sin(x) + 1
    q = (a - a) / (y * x)  # zero_over_zero
    return jnp.sum(jnp.tanh(q)), a
case("zero_over_zero", f, z, o)

def f(x):
    y = x * 2
    return jnp.mean(jnp.log(y)) + 1  # log_negative
case("log_negative", f, r)

def f(x):
    return jax.grad(lambda x: jnp.sum(jnp.sqrt(x * 0)))(x)  # sqrt_grad
case("sqrt_grad", f, o)

def f(x):
    y = jnp.exp(x.astype(jnp.bfloat16) * 100)
    return jnp.sum(y - y * 2)  # bf16_overflow
case("bf16_overflow", f, o)

def f(x, mask):
    s = jnp.where(mask > 0, x, -jnp.inf)
    m = jnp.max(s, axis=1, keepdims=True)
    e = jnp.exp(s - m)  # masked_softmax
    return e / jnp.sum(e, axis=1, keepdims=True)
mask = o.copy(); mask[2] = 0
case("masked_softmax", f, r, mask)

def f(x, mask):
    n = jnp.sum(mask)
    return jnp.sum(x * mask) / n  # zero_count
case("zero_count", f, r, z)

def f(x):
    return jax.grad(lambda x: jnp.sum(
        jnp.where(x > 0, jnp.log(x), 0.)))(x)  # backward_log
case("backward_log", f, np.maximum(r, 0))

def f(c, xs):
    def body(c, x):
        c = c * 0.5 + x
        y = (c - c) / (x + 1)  # scan_7
        return c, y
    return jnp.sum(jax.lax.scan(body, c, xs)[1])
xs = np.arange(12, dtype=np.float32); xs[7] = -1
case("scan_7", f, np.float32(1), xs)

def f(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v - 0.5
    return p - 0.1 * m / jnp.sqrt(v), m, v  # optimizer
case("optimizer", f, o, r, z, z)

def f(batch, w):
    h = jnp.tanh(batch["x"] @ w)
    return jnp.sum(h), w * 2
bad = r.copy(); bad[2, 3] = np.nan
case("from_data", f, {"x": bad, "y": o}, np.ones((8, 2), np.float32))

def f(x, y):
    h = jnp.cos(x) * 0
    q = h / y  # one_shard
    return jnp.sum(q), h
mesh = Mesh(np.array(jax.devices()), ("d",))
put = lambda a: jax.device_put(a, NamedSharding(mesh, S("d")))
div = np.ones((16, 4), np.float32); div[11, 2] = 0
case("one_shard", f, put(np.ones((16, 4), np.float32)), put(div))

def f(x):
    return jnp.sum(jnp.power(x, 0.5))  # power_negative
case("power_negative", f, r)

def f(x):
    e = jnp.exp(x * 200)
    return jnp.sum(e / jnp.sum(e))  # softmax_overflow
case("softmax_overflow", f, o)

def f(x, p):
    return jax.lax.cond(p > 0, lambda x: jnp.sum(
        jnp.log(x)), lambda x: jnp.sum(x), x)  # cond_branch
case("cond_branch", f, r, np.float32(1))

def f(x):
    def body(i, x):
        y = x - 1
        return jax.lax.rsqrt(y) * 1e-3 + y  # fori_loop
    return jnp.sum(jax.lax.fori_loop(0, 5, body, x))
case("fori_loop", f, np.full((3,), 2.5, np.float32))

def f(x):
    return jax.grad(lambda x: jnp.sqrt(jnp.sum(x * x)))(x)  # norm_grad
case("norm_grad", f, z)

def f(x):                       # a NaN that is masked out: no NaN
    return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.)) + jnp.inf
case("clean", f, r)

# A second set. JAX gives the ops of a custom_vjp's backward the line of the call.
from jax import lax
f32 = np.float32

def f(x):
    def row(v):
        s = jnp.sum(v)
        return v / s  # vmap_row
    return jax.vmap(row)(x) * 2
x = o.copy(); x[2] = 0
case("vmap_row", f, x)

def f(a):
    def cond(c): return c[0] < 6
    def body(c):
        i, v = c
        v = jnp.sqrt(v - 1.0)  # while_sqrt
        return i + 1, v
    return lax.while_loop(cond, body, (0, a))[1]
case("while_sqrt", f, f32(10.0))

def f(x, p):
    def loss(x):
        return lax.cond(p > 0,
                        lambda x: jnp.sum(jnp.sqrt(x)) * 0.,  # cond_grad
                        lambda x: jnp.sum(x), x)
    return jax.grad(loss)(x)
case("cond_grad", f, z, f32(1))

@jax.custom_vjp
def g(x): return jnp.sin(x)
def g_fwd(x): return g(x), x
def g_bwd(x, ct):
    return (ct / (x - x) * 0.,)
g.defvjp(g_fwd, g_bwd)
def f(x):
    return jax.grad(lambda x: jnp.sum(g(x) * 3))(x)  # custom_vjp
case("custom_vjp", f, o)

def f(x):
    h = x.astype(jnp.bfloat16) * jnp.bfloat16(3e38)
    h = h + h
    mean = jnp.mean(h, -1, keepdims=True)
    d = h - mean  # bf16_layernorm
    return d * lax.rsqrt(jnp.mean(d * d, -1, keepdims=True) + 1e-5)
case("bf16_layernorm", f, o)

def f(x, i):
    y = jnp.take(x, i, axis=0, mode="fill")  # gather_fill
    return jnp.sum(y, axis=-1)
case("gather_fill", f, r, np.array([0, 3, 9, 1], np.int32))

def f(x):
    y = jnp.exp(x * 100)
    c = jnp.cumsum(y * jnp.where(jnp.arange(8) % 2 == 0, 1., -1.), axis=1)  # cumsum_inf
    return c[:, -1]
case("cumsum_inf", f, o)

def f(x, m):
    s = jnp.where(m > 0, x, -jnp.inf)
    return jax.nn.softmax(s, axis=-1)  # nn_softmax
m = o.copy(); m[1] = 0
case("nn_softmax", f, r, m)

def f(x):
    return jax.grad(lambda x: jnp.linalg.norm(x))(x)  # linalg_norm
case("linalg_norm", f, z)

def f(x):
    mean = jnp.mean(x, 0)
    var = jnp.var(x, 0)
    y = (x - mean) / jnp.sqrt(var)  # batchnorm_one
    return y * 2 + 1
case("batchnorm_one", f, r[:1])

def f(x):
    def local(x):
        n = jnp.sum(x > 0)
        avg = jnp.sum(x) / n  # shard_map
        return lax.psum(avg, "d") + jnp.zeros_like(x)
    return jax.shard_map(local, mesh=mesh, in_specs=S("d"), out_specs=S("d"))(x)
x = np.ones((16, 4), f32); x[6:8] = 0
case("shard_map", f, put(x))

def f(x):
    c = jnp.sum(x, -1) / 8 + 1e-3
    return jnp.arccos(c)  # arccos
case("arccos", f, o)

def f(a, b):
    h = jnp.exp(a * 100)
    return h @ b  # dot_inf
case("dot_inf", f, o, np.zeros((8, 3), f32))

def f(x):
    def outer(c, i):
        def inner(d, k):
            d = d - 1.0
            return d, lax.rsqrt(d - 0.5)  # nested_scan
        c, y = lax.scan(inner, c, jnp.arange(4))
        return c, jnp.sum(y)
    return lax.scan(outer, x, jnp.arange(5))
case("nested_scan", f, f32(10.75))

def f(x):
    return jax.grad(lambda x: jnp.sum(jnp.where(x == 0, 1., jnp.sin(x) / x)))(x)  # double_where
case("double_where", f, np.array([1., 0., 2.], f32))

def f(x, seg):
    s = jax.ops.segment_sum(x, seg, 4)
    c = jax.ops.segment_sum(jnp.ones_like(x), seg, 4)
    return s / c  # segment_mean
case("segment_mean", f, np.ones(6, f32), np.array([0, 0, 1, 1, 3, 3], np.int32))

def f(x):
    def layer(x):
        return jnp.sin(jnp.log(x) * 2)  # remat
    return jax.grad(lambda x: jnp.sum(jax.checkpoint(layer)(x)))(x)
case("remat", f, r)

def f(w):
    @jax.checkpoint
    def layer(c, i):
        return jnp.tanh(c + jnp.sqrt(4.5 - i)), None  # remat_scan
    return jax.grad(lambda w: jnp.sum(lax.scan(layer, w, jnp.arange(8.0))[0]))(w)
case("remat_scan", f, o[0])

def f(x, y):
    a = jnp.log(x)  # two_ways
    b = jnp.sqrt(y)
    return b + (a * 2 + 1)
case("two_ways", f, -o, -o)

def f(x, y):
    early = jnp.log(x)  # many_outputs
    return *(jnp.sqrt(y - k) for k in range(9)), early
case("many_outputs", f, -o, -o)

case("one_inf", lambda x: 1.0 / x, np.array([1., 0., 2.], f32))

case("last", lambda x: x * 2 + jnp.sin(x) * 3 - jnp.cos(x), o)
'''

WANT = {
    "zero_over_zero": "divide", "log_negative": "log", "sqrt_grad": "multiply", "bf16_overflow": "subtract", "masked_softmax": "subtract",
    "zero_count": "divide", "backward_log": "divide", "scan_7": "divide", "optimizer": "sqrt", "one_shard": "divide",
    "power_negative": "power", "softmax_overflow": "divide", "cond_branch": "log", "fori_loop": "rsqrt", "norm_grad": "multiply",
    "vmap_row": "divide", "while_sqrt": "sqrt", "cond_grad": "multiply", "custom_vjp": "multiply",
    "bf16_layernorm": "subtract", "gather_fill": "select", "cumsum_inf": "reduce_window", "nn_softmax": "subtract",
    "linalg_norm": "multiply", "batchnorm_one": "divide", "shard_map": "divide", "arccos": "sqrt",
    "dot_inf": "dot_general", "nested_scan": "rsqrt", "double_where": "multiply", "segment_mean": "divide", "remat": "log", "remat_scan": "sqrt",
    "two_ways": "log", "many_outputs": "log",
}
ITERATION = {"scan_7": 7, "fori_loop": 2, "while_sqrt": 3, "nested_scan": 2, "remat_scan": 5}
INFINITY = {"bf16_overflow": "exponential", "cond_grad": "divide", "norm_grad": "divide", "nn_softmax": "select"}


def captures(folder):
    """By the name of the module."""
    return {e["module"].split("_", 1)[1]: e["file"] for e in events(folder) if e["event"] == "capture"}


def captures_of(name):
    runs = os.path.join(TMP, "runs-" + name)
    return captures(os.path.join(runs, [d for d in os.listdir(runs) if d != "contracts"][0]))


def lines_of(text):
    return {m[1]: n for n, line in enumerate(text.splitlines(), 1) for m in [re.search(r"# (\w+)$", line)] if m}


def nan(cap, *args, status=1):
    return json.loads(xlane("nan", cap, "--json", *args, status=None))


@check("R2_planted_NaNs_of_JAX_are_named")
def _():
    folder, said = python("planted", JAX, args=("--capture=nonfinite", "--capture-times=100"), XLANE_CPU_DEVICES=8)
    caps, lines = captures(folder), lines_of(JAX)
    wrong = []
    for name, ops in WANT.items():
        if name not in caps:
            wrong.append("%s was not captured" % name)
            continue
        got = nan(caps[name])
        if not got["found"] or not re.fullmatch("stablehlo\\.(%s)|chlo\\.(%s)" % (ops, ops),
                                                got.get("op", "")) or got.get("line") != lines[name]:
            wrong.append("%s: %s, wanted %s at %d" % (name, {k: got.get(k) for k
                in ("found", "op", "line", "argument")}, ops, lines[name]))
        elif name in ITERATION and got["iteration"] != ITERATION[name] or got["constant"] != (name == "gather_fill"):
            wrong.append("%s: iteration %s, constant %s" % (name, got.get("iteration"), got["constant"]))
        elif name in INFINITY and got["infinity"]["op"] != "stablehlo." + INFINITY[name]:
            wrong.append("%s: its Inf is of %s" % (name, got["infinity"]))
        elif name == "shard_map" and got["device"] != 3:
            wrong.append("%s: device %s" % (name, got["device"]))
        elif name == "one_shard" and (got["device"] != 5 or got["element"] != 1 * 4 + 2):
            wrong.append("%s: device %s, element %s" % (name, got["device"], got["element"]))
    data = nan(caps["from_data"])
    if data.get("argument") != 0 or data["name"] != "batch['x']" or data["element"] != 2 * 8 + 3:
        wrong.append("from_data: %s" % data)
    clean = xlane("nan", caps["clean"])
    if "no NaN: all outputs are free of it; --inf looks for infinities" not in clean:
        wrong.append("clean: " + clean)
    if not re.search(r"of jit_one_inf, because output 0 was read as Inf, .*; next: xlane nan --inf \S+\.xlcap$", said,
                     re.M) or not re.search(r"step\.2\.xlcap, .*; next: xlane nan \S+/step\.2\.xlcap$", said, re.M):
        wrong.append(said)
    assert not wrong, "\n".join(wrong)


@check("R2_a_proposed_command_is_for_a_shell")
def _():
    text = "import jax, jax.numpy as jnp\nprint(jax.jit(lambda x: jnp.log(x))(-jnp.ones(3)))\n"
    _, said = python("spaced", text, args=["--capture=nonfinite"], runs=os.path.join(TMP, "runs of mine"))
    assert re.search(r"; next: xlane nan '%s/runs of mine/[^ ']+'$" % TMP, said, re.M), said


@check("R2_the_words_about_a_NaN")
def _():
    for name, kind, n, all_, ops in ("two_ways", "NaN", 1, 1, 4), ("many_outputs", "NaN", 10, 10, 1), ("one_inf", "Inf",
        1, 1, 1):
        text = xlane("nan", "--inf", captures_of("planted")[name], status=1)
        assert "first %s: stablehlo." % kind in text and "\n%d of %d outputs ha" % (n, all_) in text, text
        assert "; this one went through %d op%s to the first of them\n" % (ops, "s" * (ops > 1)) in text, text
        assert json.loads(xlane("nan", "--inf", "--json", captures_of("planted")[name], status=1))["kind"] == kind
    said = xlane("nan", captures_of("planted")["scan_7"], status=1)
    assert re.search(r"first NaN: stablehlo.divide, element \[\] of f32\[\], \S+planted.py:%d"
                     % lines_of(JAX)["scan_7"], said), said
    assert "in iteration 7 of the loop at" in said and "operand 1 f32[]: 0 there" in said and "its inputs are exact copies" in said, said
    said = xlane("nan", captures_of("planted")["bf16_overflow"], status=1)
    assert "the Inf of operand 0: first Inf: stablehlo.exponential" in said, said
    assert "is a constant of the program" not in said and "of its own" not in said, said
    said = xlane("nan", captures_of("planted")["gather_fill"], status=1)
    assert "the NaN is a constant of the program, which this op lets in" in said, said
    said = xlane("nan", captures_of("planted")["nn_softmax"], status=1)
    assert re.search(r"the Inf of operand 0 is a constant of the program, let in by stablehlo.select, \S+planted.py:\d",
                     said), said
    inf = captures_of("planted")["one_inf"]
    said = xlane("replay", inf, status=None)
    assert "the outputs have 0 NaN and 1 Inf; `xlane nan --inf %s` finds where" % inf in said, said
    said = xlane("nan", "--inf", inf, status=1)
    assert "first Inf: stablehlo.divide, element [1]" in said and "--inf looks" not in said, said
    assert "--inf looks for infinities" in xlane("nan", inf), xlane("nan", inf)
    said = xlane("replay", captures_of("planted")["scan_7"], status=None)
    assert "; `xlane nan /" in said and "--inf" not in said, said
    said = xlane("nan", captures_of("planted")["from_data"], status=1)
    assert "NaN came in with argument 0 (batch['x']), element [2,3]" in said, said


LOOP = r'''
import sys, numpy as np, jax, jax.numpy as jnp
from functools import partial

@partial(jax.jit, donate_argnums=0)
def step(state, x, n):
    w, m = state
    def loss_fn(w):
        y = jnp.tanh(x @ w)
        return jnp.sum(y * y) / n  # HERE
    loss, g = jax.value_and_grad(loss_fn)(w)
    m = 0.9 * m + jnp.where(jnp.isfinite(g), g, 0.)
    return (w - 0.01 * m, m), loss

state = jnp.full((16, 16), 0.1), jnp.zeros((16, 16))
rng = np.random.default_rng(0)
for i in range(500):
    x, n = rng.normal(size=(8, 16)).astype(np.float32), np.float32(8)
    if i == 311:
        x[:], n = 0, np.float32(0)
    state, loss = step(state, x, n)
    if np.isnan(float(loss)):
        print("NaN at", i)
'''


@check("R3_a_donating_loop_of_JAX")
def _():
    line = [n for n, l in enumerate(LOOP.splitlines(), 1) if l.endswith("# HERE")][0]
    for every in (1, 40):
        folder, said = python("loop%d" % every, LOOP, args=("--capture=nonfinite", "--capture-every=%d" % every))
        cap = os.path.join(folder, "step.xlcap")
        assert os.stat(cap).st_mode & 0o777 == 0o600
        assert "captured execution 312 of jit_step, because output 2 was read as NaN" in said, said
        words = "with an exact copy of its inputs" if every == 1 else "unverified until `xlane replay` has done so"
        assert words in said and cap in said, said
        got = json.loads(xlane("replay", cap, "--json", "--times=3"))
        assert (got["compared"], got["equal"], got["deterministic"]) == (3, 3, True), got
        assert (got["forward"] == 0 if every == 1
                else 0 < got["forward"] < 40) and got["forward_equal"] == got["forward_compared"] >= got["forward"], got
        text = xlane("replay", cap)
        assert ("its inputs are exact copies" if every == 1 else "verified: the %d results"
                % got["forward"]) in text, text
        got = nan(cap)
        assert (got["op"], got["line"]) == ("stablehlo.divide", line), got


OVERHEAD = LOOP.replace("range(500)", "range(3000)").replace("if i == 311:", "if i == 500:\n        import resource\n"
    "        began = resource.getrusage(resource.RUSAGE_SELF).ru_utime\n    if i < 0:").replace("    if np.isnan(float(loss)):\n"
    "        print(\"NaN at\", i)\n", "    float(loss)\n"
    "print((resource.getrusage(resource.RUSAGE_SELF).ru_utime - began) / 2500)\n")


@check("R3_overhead_of_an_armed_run")
def _():
    if not ALL:
        return
    times = {"armed": [], "unarmed": []}
    for i in range(5):                                     # in turn: the machine's load is the same for both
        for name, args in (("unarmed", []), ("armed", ["--capture=nonfinite"])):
            p = subprocess.run([XLANE, "run", "--runs", os.path.join(TMP, "runs-overhead"), "--cache", "off", *args,
                                "--",
                                sys.executable, script("overhead.py", OVERHEAD)], text=True, capture_output=True,
                               env=environment(XLANE_CPU_THREADS=1), timeout=300)
            times[name].append(float(p.stdout.split()[-1]) * 1e6)
    armed, unarmed = (sorted(times[k])[2] for k in ("armed", "unarmed"))
    print("a step's user time: unarmed %.0f us, armed %.0f us, %.2f times (medians of 5, in turn)"
          % (unarmed, armed, armed / unarmed))
    assert armed < 3 * unarmed, times                      # docs/recorder.md: a few percent


@check("R3_step_N_signal_and_slow")
def _():
    folder, said = python("stepn", LOOP, args=("--capture=step:7",))
    assert "captured execution 7 of jit_step, because --capture=step:7 asked for it" in said, said
    said = xlane("replay", os.path.join(folder, "step.xlcap"))
    assert "against the capture: 3 of 3 outputs equal bit for bit" in said and "finds where" not in said, said
    assert "no NaN: all outputs are free of it" in xlane("nan", folder)
    assert "no NaN or Inf: all outputs are finite\n" in xlane("nan", "--inf", folder), xlane("nan", "--inf", folder)
    folder, said = python("asked", LOOP.replace("    state, loss =", "    if i == 20: import os, signal; os.kill(os.getpid(), signal.SIGUSR2)\n    state, loss ="),
                          args=("--capture=signal",))
    assert "captured execution 21 of jit_step, because a signal asked for it" in said, said
    slow = LOOP.replace("range(500)", "range(60)").replace("    state, loss =", "    if i == 31: import time; time.sleep(0.5)\n    state, loss =")
    folder, said = python("slowly", slow, args=("--capture=slow",))
    assert re.search(r"captured execution \d+ of jit_step, because it took \S+ s, the median of those before is \S+ s",
                     said), said
    folder, said = python("none", LOOP.replace("range(500)", "range(5)"), args=("--capture=nonfinite",))
    assert "captured" not in said and not os.path.exists(os.path.join(folder, "step.xlcap")), said
    said = xlane("run", "--capture=sometimes", "--", "true", status=2)
    assert "--capture is nonfinite, step:N, signal or slow, not sometimes" in said, said


@check("R3_a_damaged_capture_is_refused")
def _():
    folder = os.path.join(TMP, "runs-stepn")
    cap = os.path.join(folder, [d for d in os.listdir(folder) if d != "contracts"][0], "step.xlcap")
    whole = open(cap, "rb").read()
    for name, data in (("cut", whole[:-100]), ("short", whole[:40]),
                       ("flipped", whole[:-70] + bytes([whole[-70] ^ 1]) + whole[-69:]), ("empty", b"")):
        path = os.path.join(TMP, name + ".xlcap")
        open(path, "wb").write(data)
        for verb in ("replay", "nan"):
            said = xlane(verb, path, status=1)
            assert re.search(r"capture the step again|makes one", said), said


TORCH = r'''
import torch, torch_xla
device = torch_xla.device()

def case(f, *args):
    args = [a.to(device) for a in args]
    torch_xla.sync()
    out = f(*args)
    torch_xla.sync()
    out.cpu()

z, o = torch.zeros(4, 8), torch.ones(4, 8)
r = torch.linspace(-1, 1, 32).reshape(4, 8)

def zero_over_zero(x, y):
    a = torch.sin(x)
    return torch.tanh(a / (y * x)).sum()  # zero_over_zero

def log_negative(x):
    return torch.log(x * 2).mean() + 1  # log_negative

def masked_softmax(x, m):
    s = torch.where(m > 0, x, torch.full_like(x, -float("inf")))
    e = torch.exp(s - s.max(1, keepdim=True)[0])
    return (e / e.sum(1, keepdim=True)).sum()  # masked_softmax

def optimizer(p, v):
    v = v * 0.9 - 0.5
    return (p - 0.1 * p / torch.sqrt(v)).sum()  # optimizer

def backward_sqrt(x):
    x = x.detach().requires_grad_()
    y = torch.sqrt(x * 0).sum()  # backward_sqrt
    y.backward()
    return x.grad

def backward_where(x):
    x = x.detach().requires_grad_()
    y = torch.where(x > 0, torch.log(x), torch.zeros_like(x)).sum()  # backward_where
    y.backward()
    return x.grad

def backward_norm(x):
    x = x.detach().requires_grad_()
    n = (x * x).sum().sqrt()  # backward_norm
    n.backward()
    return x.grad

def layernorm(x):
    d = x - x.mean(1, keepdim=True)
    return d / d.pow(2).mean(1, keepdim=True).sqrt()  # layernorm

def attention(q, m):
    s = (q @ q.t()).masked_fill(m[:, :4] > 0, -float("inf"))
    return torch.softmax(s, -1)  # attention

def adam(p):
    p = p.detach().requires_grad_()
    opt = torch.optim.Adam([p], lr=0.1, eps=0.0)
    (p * 0).sum().backward()
    opt.step()  # adam
    return p.detach()

case(backward_sqrt, o)
case(backward_where, r.clamp(min=0))
case(backward_norm, z)
case(layernorm, o)
case(attention, o, o)
case(adam, o)
m = o.clone(); m[2] = 0
case(zero_over_zero, z, o)
case(log_negative, r)
case(masked_softmax, r, m)
case(optimizer, o, z)
case(lambda x: (x * 2 + torch.cos(x)).sum(), o)
case(lambda x: (x * 3 - torch.cos(x)).sum(), o)
'''

TORCH_LOOP = r'''
import torch, torch_xla
device = torch_xla.device()
torch.manual_seed(0)
w = torch.nn.Parameter(torch.full((16, 16), 0.1, device=device))
opt = torch.optim.SGD([w], lr=0.01, momentum=0.9)
g = torch.Generator().manual_seed(1)
torch_xla.sync()
for i in range(500):
    x = torch.randn(8, 16, generator=g)
    n = torch.tensor(8.0)
    if i == 311:
        x, n = x * 0, n * 0
    x, n = x.to(device), n.to(device)
    loss = (torch.tanh(x @ w) ** 2).sum() / n  # HERE
    opt.zero_grad()
    loss.backward()
    w.grad = torch.where(torch.isfinite(w.grad), w.grad, torch.zeros_like(w.grad))
    opt.step()
    torch_xla.sync()
    l = loss.item()
print("end", l)
'''
VENV = os.path.join(os.path.dirname(HERE), "build", "venv-torch")
TORCH_ENV = {"PJRT_DEVICE": "LIBRARY", "PJRT_DYNAMIC_PLUGINS": "1", "PJRT_LIBRARY_PATH": PLUGIN, "XLA_HLO_DEBUG": "1",
             "XLA_IR_DEBUG": "1"}
TORCH_WANT = {"zero_over_zero": "divide", "log_negative": "log", "masked_softmax": "divide", "optimizer": "sqrt",
              "backward_sqrt": "multiply", "backward_where": "divide", "backward_norm": "multiply",
              "layernorm": "divide", "attention": "subtract", "adam": "divide"}


def torch(name, text, *args):
    return run(name, os.path.join(VENV, "bin", "python"), script(name + ".py", text), args=args, **TORCH_ENV)


@check("R2_planted_NaNs_of_PyTorch_XLA_are_named")
def _():
    if not os.path.exists(os.path.join(VENV, "done")):
        print("skip recorder_torch: ./x test all installs torch and torch_xla (7 GB)")
        return
    folder, said = torch("torched", TORCH, "--capture=nonfinite", "--capture-times=20")
    lines, found, near = lines_of(TORCH), {}, set()
    for e in events(folder):
        if e["event"] == "capture":
            got = nan(e["file"])
            found[got.get("line")] = got.get("op")
            if got.get("nearest"):
                near.add(got["line"])
                words = xlane("nan", e["file"], status=1)
                assert "no source line of its own; nearest: %s, " % got["nearest"] in words, words
    wrong = ["%s: %s at %d" % (k, found.get(lines[k]), lines[k]) for k,
             op in TORCH_WANT.items() if found.get(lines[k]) != "stablehlo." + op]
    assert not wrong, (wrong, found, said[-2000:])
    assert near == {lines[k] for k in lines if k.startswith("backward")}, near


@check("R3_a_donating_loop_of_PyTorch_XLA")
def _():
    if not os.path.exists(os.path.join(VENV, "done")):
        return
    line = [n for n, l in enumerate(TORCH_LOOP.splitlines(), 1) if l.endswith("# HERE")][0]
    folder, said = torch("torchloop", TORCH_LOOP, "--capture=nonfinite")
    assert re.search(r"captured execution \d+ of SyncTensorsGraph\S*, because output \d was read as NaN", said), said
    got = json.loads(xlane("replay", os.path.join(folder, "step.xlcap"), "--json"))
    assert got["equal"] == got["compared"] > 0 and got["deterministic"], got
    got = nan(os.path.join(folder, "step.xlcap"))
    assert (got["op"], got["line"]) == ("stablehlo.divide", line), got


RANKS = r'''
import os, numpy as np, jax, jax.numpy as jnp
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
me, n = int(os.environ.get("XLANE_RANK", 0)), int(os.environ.get("XLANE_RANKS", 1))
if n > 1:
    jax.distributed.initialize(os.environ["XLANE_COORDINATOR"], n, me)
mesh = Mesh(np.array(jax.devices()[::-1]), ("d",))         # not in the order of their ids

def put(a, spec):
    return jax.make_array_from_callback(a.shape, NamedSharding(mesh, spec), lambda i: a[i])

@partial(jax.jit, donate_argnums=0)
def step(w, x, y):
    loss, g = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) / y))(w)  # HERE
    return w - 0.1 * jnp.where(jnp.isfinite(g), g, 0.), loss

w = put(np.full((8, 8), 0.1, np.float32), P())
rng = np.random.default_rng(0)
for i in range(6):
    x, y = rng.normal(size=(8, 8)).astype(np.float32), np.ones((8, 8), np.float32)
    if i == 4:
        x[5], y[5] = 0, 0
    w, loss = step(w, put(x, P("d")), put(y, P("d")))
    float(loss)
'''


@check("R3_all_ranks_of_a_program_over_processes")
def _():
    line = [n for n, l in enumerate(RANKS.splitlines(), 1) if l.endswith("# HERE")][0]
    for what, number in (("nonfinite", 5), ("step:2", 2)):
        folder, said = python("ranks" + what[:4], RANKS, args=("-n", "2", "--capture=" + what), XLANE_CPU_DEVICES=2)
        caps = [os.path.join(folder, "step-%d.xlcap" % r) for r in (0, 1)]
        for cap in (caps[1], folder):
            got = json.loads(xlane("replay", cap, "--json", "--plugin=cpu"))
            assert (got["number"], got["compared"], got["equal"]) == (number, 8, 8) and got["deterministic"], got
        got = nan(folder)
        if number == 5:                                    # row 5 of 8 is on the third device from the end: number 1
            assert (got["op"], got["line"], got["device"]) == ("stablehlo.divide", line, 1), got
        else:
            assert not got["found"], got
    alone = os.path.join(TMP, "alone-1.xlcap")
    os.link(caps[1], alone)
    said = xlane("replay", alone, "--plugin=cpu", status=1)
    assert "has the inputs of rank 1 of 2; those of rank 0 are not beside it" in said, said


def stepn():
    folder = os.path.join(TMP, "runs-stepn")
    return os.path.join(folder, [d for d in os.listdir(folder) if d != "contracts"][0], "step.xlcap")


def shim(name, **env):
    return dict(env, XLANE_WRAPPED=PLUGIN), "--plugin=" + os.path.join(BUILD, "test", "plugins", name + ".so")


@check("R2_the_twin_with_checks")
def _():
    for name in ("zero_over_zero", "optimizer", "norm_grad"):
        got = nan(captures_of("planted")[name], "--twin")
        assert got["found"] and got["line"] == lines_of(JAX)[name] and got["op"].split(".")[1] in WANT[name].split("|"), (name, got)
    said = xlane("nan", "--twin", stepn())
    assert "no NaN: the checks of" in said, said


@check("R4_a_flipped_bit_is_caught")
def _():
    env, plugin = shim("bitflip")
    said = xlane("replay", stepn(), plugin, status=1, **env)
    assert "against the capture: 2 of 3 outputs equal bit for bit" in said, said
    assert re.search(r"output 2 f32\[\]: 1 of 1 elements differ from the capture, by at most 8 ulp .*\(one bit, number 3\)", said), said
    assert "another plugin than the captured one" in said and "deterministic" in said, said


@check("R4_a_wrong_op_is_named")
def _():
    line = [n for n, l in enumerate(LOOP.splitlines(), 1) if "jnp.tanh" in l][0]
    env, plugin = shim("wrongop", WRONG_FROM="tanh", WRONG_TO="sine")
    said = xlane("replay", stepn(), plugin, "--diverge", status=1, **env)
    assert re.search(r"first divergence: stablehlo.tanh, \S+stepn.py:%d\n" % line, said), said
    env, plugin = shim("wrongop")
    said = xlane("replay", stepn(), plugin, "--diverge", **env)
    assert "no divergence:" in said, said


@check("R4_against_f64")
def _():
    text = """
import sys, numpy as np, jax, jax.numpy as jnp
def lost(x, n):
    return ((x[0] + x[1]) + x[2], jnp.exp(x[3:].astype(jnp.bfloat16)), n + 1, jnp.log(-x), jnp.sqrt(x),
            jnp.sin(x[:1].astype(jnp.float16)), jnp.log(-x[:2]))
def bits(x):
    return jax.lax.bitcast_convert_type(x, jnp.int32) + 1
f = bits if len(sys.argv) > 1 else lost
for i in range(3):
    out = jax.jit(f)(*[np.array([1e8, 1, -1e8, 1.005], np.float32), np.int32(1)][:1 if f is bits else 2])
    [np.asarray(o) for o in jax.tree.leaves(out)]
"""
    folder, said = python("f64", text, args=("--capture=step:2",))
    got = json.loads(xlane("replay", folder, "--f64", "--json"))["f64"]
    far = math.exp(np.float32(1.005)) - 2.734375                  # exp(1.005) in f64, and as bf16 gives it
    assert [g["output"] for g in got] == [0, 1, 3, 4, 5, 6] and got[0]["max_abs"] == 1 == got[0]["relative"], got
    assert abs(got[1]["max_abs"] - abs(far)) < 1e-3, (got, far)
    said = xlane("replay", folder, "--f64")
    assert "against f64: output 0 f32[] is off by at most 1, 1 of its largest element" in said, said
    assert "output 3 f32[4] is off by at most " in said and "; 3 of 4 elements are NaN in both" in said, said
    assert "; 1 of 4 elements are NaN in both" in said and "output 6 f32[2] is NaN in f64 too\n" in said, said
    assert "output 5 f16[1] is off" in said and "; 1 of 1 elements are NaN and a number in f64" in said, said
    assert said.count("NaN in both") == 2 and said.count("a number in f64") == 1, said
    assert "against f64" not in xlane("replay", folder)
    folder, said = python("bits", text, "bits", args=("--capture=step:2",))
    said = xlane("replay", folder, "--f64", status=1)
    assert "stablehlo.bitcast_convert at" in said and "no form in f64" in said, said


def chain(n):
    """A program of n ops whose compile needs two of them to crash, far apart."""
    ops, v = [], "%arg0"
    for i in range(n - 3):
        name = ["sine", "tanh", "abs", "negate"][i % 4] if i != n // 3 else "logistic"
        ops.append("    %%%d = stablehlo.%s %s : tensor<4x8xf32>" % (i, name, v))
        v = "%%%d" % i
    ops.append("    %%a = stablehlo.add %s, %%%d : tensor<4x8xf32>" % (v, n // 2))
    ops.append("    %b = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>")
    ops.append("    %c = stablehlo.cosine %b : tensor<8x4xf32>")
    return "func.func public @main(%%arg0: tensor<4x8xf32>) -> tensor<8x4xf32> {\n%s\n    return %%c : tensor<8x4xf32>\n}\n" % "\n".join(ops)


def runs(folder):
    """The folder of a report is whole, and its script runs on JAX's own CPU backend, without xlane. What it prints."""
    have = set(os.listdir(folder))
    assert {"program.mlir", "run.py", "bundle.json", "command.txt", "arg0.bin"} <= have, have
    assert "xlane reduce --keep=" in open(os.path.join(folder, "command.txt")).read()
    assert json.load(open(os.path.join(folder, "bundle.json")))
    assert len(open(os.path.join(folder, "run.py")).read().splitlines()) <= 12
    env = dict(os.environ, JAX_PLATFORMS="cpu")
    env.pop("PJRT_NAMES_AND_LIBRARY_PATHS", None)
    p = subprocess.run([sys.executable, "run.py"], cwd=folder, text=True, capture_output=True, env=env)
    assert p.returncode == 0 and p.stdout.strip(), p.stderr
    return p.stdout


@check("R5_a_crash_is_reduced")
def _():
    program, out = script("big.mlir", chain(300)), os.path.join(TMP, "reduced")
    env, plugin = shim("wrongop", CRASH_ON="logistic", CRASH_WITH="transpose")
    got = json.loads(xlane("reduce", program, "--keep=fails~Check failed: fusion", plugin, "--out=" + out, "--json",
                           **env))
    assert got["ops_before"] == 300 and got["ops"] < 10 and got["kept"] and got["attempts"] < 150, got
    text = open(os.path.join(out, "program.mlir")).read()
    assert "logistic" in text and "transpose" in text and text.count("stablehlo.") < 10, text
    assert {"program.mlir", "run.py", "bundle.json", "command.txt", "arg0.bin"} <= set(os.listdir(out)), os.listdir(out)
    runs(out)
    said = xlane("reduce", program, "--keep=fails~something else", plugin, status=1, **env)
    assert "the whole program does not do that" in said and "fails otherwise" in said, said
    assert "the whole program does not do that" in xlane("reduce", program, "--keep=fails", "--plugin=cpu", status=1)
    assert "too little to compare" in xlane("reduce", program, "--keep=slow", status=1)
    said = xlane("reduce", program, "--keep=everything", status=2)
    assert "--keep is missing: what must stay" in said, said


@check("R5_a_slow_compile_is_reduced")
def _():
    env, plugin = shim("wrongop", SLOW_ON="logistic")
    program, out = script("slow.mlir", chain(12)), os.path.join(TMP, "reduced-slow")
    got = json.loads(xlane("reduce", program, "--keep=slow", plugin, "--out=" + out, "--json", **env))
    text = open(os.path.join(out, "program.mlir")).read()
    assert got["ops_before"] == 12 and got["ops"] == 1 and "stablehlo.logistic" in text, (got, text)
    runs(out)
    assert "too little to compare" in xlane("reduce", program, "--keep=slow", plugin, status=1, **shim("wrongop")[0])


@check("R5_a_NaN_and_a_difference_are_reduced_with_their_inputs")
def _():
    out = os.path.join(TMP, "reduced-nan")
    got = json.loads(xlane("reduce", captures_of("planted")["masked_softmax"], "--keep=nan", "--out=" + out, "--json"))
    assert got["ops"] <= 3 and got["kept"], got
    assert "stablehlo.subtract" in open(os.path.join(out, "program.mlir")).read()
    assert "nan" in runs(out)
    env, plugin = shim("wrongop", WRONG_FROM="tanh", WRONG_TO="sine")
    got = json.loads(xlane("reduce", stepn(), "--keep=differs", plugin, "--out=" + out + "2", "--json", **env))
    assert got["ops"] == 1 and "stablehlo.tanh" in open(os.path.join(out + "2", "program.mlir")).read(), got
    runs(out + "2")


if __name__ == "__main__":
    done()
