"""Further planted causes of recompiles, all in one process: each case's function has its own name, so its module has
too. It knows nothing of xlane; it prints, as JSON, what each case planted and on which line, and guard.py reads what
explain says of it."""
import functools
import inspect
import json

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

X = jnp.asarray(np.arange(8 * 16, dtype=np.float32).reshape(8, 16) / 100)
W = jnp.asarray(np.ones((16, 16), np.float32))
B = jnp.asarray(np.arange(16, dtype=np.float32))
planted = {}


def plant(reason, line=True, **detail):
    """The case's last compile has this reason; some detail of it has these members and, with `line`, the line marked HERE."""
    def wrap(case):
        text, first = inspect.getsourcelines(case)
        here = [first + i for i, t in enumerate(text) if t.rstrip().endswith("# HERE")]
        assert len(here) == bool(line), case.__name__
        planted[case.__name__] = {"reason": reason, "line": here[0] if here else 0, "detail": detail}

        def step(f, **kw):                                 # named as the case, so that its module is
            f.__name__ = f.__qualname__ = case.__name__
            return jax.jit(f, **kw)
        case(step)
    return wrap


@plant("op", before="[0]", after="[1]")
def reduce_axis(step):
    def f(x, axis):
        return jnp.sum(x, axis=axis) @ jnp.ones((16, 16))[:x.shape[1 - axis]]  # HERE
    f = step(f, static_argnums=1)
    f(X, 0), f(X, 1)


@plant("dtype", name="b7", before="f32", after="bf16")
def one_of_many_dtypes(step):
    def f(a0, a1, a2, a3, a4, a5, a6, b7, a8, a9):
        s = a0 + a1 + a2 + a3 + a4
        s = s * a5 + a6
        s = s + b7 * 2  # HERE
        return s * a8 - a9
    f = step(f)
    f(*[B] * 10), f(*[B] * 7, B.astype(jnp.bfloat16), B, B)


@plant("op")
def prng_implementation(step):
    def f(x, impl):
        key = jax.random.key(7, impl=impl)
        return x + jax.random.uniform(key, x.shape)  # HERE
    f = step(f, static_argnums=1)
    f(X, "threefry2x32"), f(X, "rbg")


@plant("x64", name="n", before="i32", after="i64")
def x64_flag(step):
    def f(x, n):
        return x * n  # HERE
    f = step(f)
    f(X, np.int64(3))
    with jax.enable_x64(True):
        f(X, np.int64(3))


@plant("config", before="none", after="[HIGHEST, HIGHEST]")
def matmul_precision(step):
    def f(x, w):
        h = jnp.tanh(x)
        return h @ w  # HERE
    f = step(f)
    f(X, W)
    with jax.default_matmul_precision("highest"):
        f(X, W)


@plant("constant", before="3", after="-5")
def closure_constant(step):
    def make(third):
        table = np.arange(16, dtype=np.float32)
        table[3] = third

        def f(x):
            y = x * 2
            return y + table  # HERE
        return step(f)
    make(3)(X), make(-5)(X)


@plant("op", after="stablehlo.exponential")
def op_added(step):
    def f(x, flag):
        y = jnp.sin(x)
        if flag:
            y = jnp.exp(y)  # HERE
        return jnp.cos(y)
    f = step(f, static_argnums=1)
    f(X, False), f(X, True)


@plant("op", before="stablehlo.exponential")
def op_removed(step):
    def f(x, flag):
        y = jnp.sin(x)
        if flag:
            y = jnp.exp(y)  # HERE
        return jnp.cos(y)
    f = step(f, static_argnums=1)
    f(X, True), f(X, False)


@plant("op", before="stablehlo.sine", after="stablehlo.cosine")
def op_replaced(step):
    def f(x, act):
        y = x * 3
        return act(y) + 1  # HERE
    f = step(f, static_argnums=1)
    f(X, jnp.sin), f(X, jnp.cos)


@plant("op", before="[1, 1, 1, 1]", after="none")
def conv_padding(step):
    def f(x, k, padding):
        y = lax.conv_general_dilated(x, k, (1, 1), padding)  # HERE
        return jnp.sum(y)
    f = step(f, static_argnums=2)
    x, k = jnp.ones((1, 3, 8, 8)), jnp.ones((4, 3, 3, 3))
    f(x, k, "SAME"), f(x, k, "VALID")


@plant("constant", before="4", after="6")
def scan_length(step):
    def f(x, n):
        def body(c, _):
            return jnp.tanh(c) * 0.5, None
        return lax.scan(body, x, None, length=n)[0]  # HERE
    f = step(f, static_argnums=1)
    f(X, 4), f(X, 6)


@plant("op")
def swapped_arguments(step):
    def f(a, b, swap):
        if swap:
            a, b = b, a
        return jnp.tanh(a) - b  # HERE
    f = step(f, static_argnums=2)
    f(B, B, False), f(B, B, True)


@plant("args", name="extra", arg=1, after="16xf32")
def extra_argument(step):
    def f(x, extra=None):
        y = x * 2
        if extra is not None:
            y = y + extra  # HERE
        return y
    f = step(f)
    f(B), f(B, B)


@plant("args", name="state['mu']['w']")
def pytree_grew(step):
    def f(state, x):
        y = x @ state["w"]
        if "mu" in state:
            y = y + state["mu"]["w"][0]  # HERE
        return y
    f = step(f)
    f({"w": W}, X), f({"w": W, "mu": {"w": W}}, X)


@plant("args", name="state['b']")
def pytree_shrank(step):
    def f(state, x):
        y = x @ state["w"]
        if "b" in state:
            y = y + state["b"]  # HERE
        return y
    f = step(f)
    f({"w": W, "b": B}, X), f({"w": W}, X)


@plant("donation", line=False, name="b", before="kept", after="donated")
def other_donation(step):
    def f(a, b):
        return a + 1, b * 2
    step(f, donate_argnums=0)(jnp.array(B), jnp.array(B))
    step(f, donate_argnums=1)(jnp.array(B), jnp.array(B))


def mesh(shape, names):
    return Mesh(np.array(jax.devices()[:int(np.prod(shape))]).reshape(shape), names)


@plant("sharding", name="x")
def sharding_that_runs(step):
    def f(x, w):
        return jnp.tanh(x) @ w  # HERE
    f = step(f)
    m = mesh((8,), ("d",))
    f(jax.device_put(X, NamedSharding(m, P("d"))), jax.device_put(W, NamedSharding(m, P())))
    f(jax.device_put(X, NamedSharding(m, P(None, "d"))), jax.device_put(W, NamedSharding(m, P())))


@plant("sharding", line=False, before="d=4, m=2", after="d=2, m=4")
def mesh_shape(step):
    def f(x, w):
        return x @ w
    f = step(f)
    for shape in (4, 2), (2, 4):
        m = mesh(shape, ("d", "m"))
        f(jax.device_put(X, NamedSharding(m, P("d"))), jax.device_put(W, NamedSharding(m, P(None, "m"))))


@plant("sharding")
def sharding_constraint(step):
    m = mesh((8,), ("d",))

    def f(x, spec):
        y = x * 2
        y = lax.with_sharding_constraint(y, NamedSharding(m, spec))  # HERE
        return y + 1
    f = step(f, static_argnums=1)
    x = jax.device_put(X, NamedSharding(m, P()))
    f(x, P("d")), f(x, P(None, "d"))


@plant("sharding", line=False)
def out_sharding(step):
    m = mesh((8,), ("d",))

    def f(x):
        return x * 2
    x = jax.device_put(X, NamedSharding(m, P()))
    step(f, out_shardings=NamedSharding(m, P("d")))(x)
    step(f, out_shardings=NamedSharding(m, P(None, "d")))(x)


@plant("sharding", line=False)
def device_count(step):
    def f(x):
        return jnp.sum(x * 2)
    f = step(f)
    for n in 4, 8:
        f(jax.device_put(X, NamedSharding(mesh((n,), ("d",)), P("d"))))


@plant("op", line=False, before=1, after=2)
def output_count(step):
    def f(x, aux):
        y = jnp.tanh(x)
        return (y, jnp.sum(y)) if aux else y
    f = step(f, static_argnums=1)
    f(X, False), f(X, True)


@plant("options", line=False)
def compiler_option(step):
    def f(x):
        return x * 5
    step(f)(X)
    step(f, compiler_options={"xla_embed_ir_in_executable": True})(X)


@plant("constant", before="2", after="3")
def cond_branch_literal(step):
    def f(x, c):
        return lax.cond(x[0, 0] > 0, lambda v: v * c, lambda v: v - 1, x)  # HERE
    f = step(f, static_argnums=1)
    f(X, 2.0), f(X, 3.0)


@plant("constant")
def dropout_rate(step):
    def f(x, key, rate):
        keep = jax.random.bernoulli(key, 1 - rate, x.shape)  # HERE
        return jnp.where(keep, x, 0)
    f = step(f, static_argnums=2)
    f(X, jax.random.PRNGKey(0), 0.25), f(X, jax.random.PRNGKey(0), 0.5)


@plant("op")
def python_loop(step):
    def f(x, n):
        for _ in range(n):
            x = jnp.sin(x) * 0.5  # HERE
        return x
    f = step(f, static_argnums=1)
    f(X, 3), f(X, 5)


@plant("index", before="[0, 0]", after="[2, 0]")
def slice_start(step):
    def f(x, i):
        y = x * 2
        return y[i:i + 4] + 1  # HERE
    f = step(f, static_argnums=1)
    f(X, 0), f(X, 2)


@plant("op")
def einsum_spec(step):
    def f(a, b, spec):
        return jnp.einsum(spec, a, b) + 1  # HERE
    f = step(f, static_argnums=2)
    f(W, W, "ij,jk->ik"), f(W, W, "ij,kj->ik")


@plant("shape", name="batch['mask']", dim=1, before=8, after=12)
def one_leaf_of_a_batch(step):
    def f(params, batch):
        h = batch["tokens"] @ params["w"]
        return jnp.sum(h) + jnp.sum(batch["mask"])  # HERE
    f = step(f)
    for n in 8, 12:
        f({"w": W}, {"tokens": X, "mask": jnp.ones((2, n))})


@plant("shape", name="batch")
def rank_changed(step):
    def f(batch):
        return jnp.sum(batch * 2)  # HERE
    f = step(f)
    f(X), f(X[None])


@plant("op", before="0", after="1")
def concat_axis(step):
    def f(a, b, axis):
        c = jnp.concatenate([a, b], axis=axis)  # HERE
        return jnp.sum(c)
    f = step(f, static_argnums=2)
    f(W, W, 0), f(W, W, 1)


@plant("op", before="GT", after="GE")
def comparison(step):
    def f(x, strict):
        c = x > 0.5 if strict else x >= 0.5  # HERE
        return jnp.where(c, x, 0)
    f = step(f, static_argnums=1)
    f(X, True), f(X, False)


@plant("constant", before="-1e+09", after="-10000")
def mask_fill(step):
    def f(x, fill):
        mask = jnp.tril(jnp.ones((8, 16), bool))
        x = jnp.where(mask, x, fill)  # HERE
        return jax.nn.softmax(x)
    f = step(f, static_argnums=1)
    f(X, -1e9), f(X, -1e4)


@plant("constant", before="0.1", after="0.01")
def weight_decay_of_one_layer(step):
    def f(ws, decays):
        out = []
        for w, d in zip(ws, decays):
            g = jnp.cos(w) * 3
            out.append(w - g * d)  # HERE
        return out
    f = step(f, static_argnums=1)
    f([B] * 6, (0.1,) * 6), f([B] * 6, (0.1, 0.1, 0.1, 0.01, 0.1, 0.1))


@plant("constant", before="100", after="200")
def counter_in_helper(step):
    def helper(x, n):
        return x / n  # HERE

    def f(x, n):
        y = jax.nn.relu(x)
        return jnp.sum(helper(y, n))
    f = step(f, static_argnums=1)
    f(X, 100), f(X, 200)


@plant("constant", before="3", after="4")
def in_a_nested_jit(step):
    @functools.partial(jax.jit, static_argnums=1)
    def inner(x, n):
        return jnp.tanh(x) * n  # HERE

    def f(x, n):
        return inner(x, n) + 1
    f = step(f, static_argnums=1)
    f(X, 3.0), f(X, 4.0)


@plant("op")
def rematerialised(step):
    def f(x, w, remat):
        def block(v):
            return jnp.tanh(v @ w) @ w
        g = jax.checkpoint(block) if remat else block
        return jax.grad(lambda v: jnp.sum(g(v)))(x)  # HERE
    f = step(f, static_argnums=2)
    f(X, W, False), f(X, W, True)


@plant("constant", before="0.5", after="0.25")
def in_a_scan_body(step):
    def f(x, c):
        def body(h, _):
            h = jnp.tanh(h) * c  # HERE
            return h, jnp.sum(h)
        return lax.scan(body, x, None, length=4)[1]
    f = step(f, static_argnums=1)
    f(X, 0.5), f(X, 0.25)


@plant("dtype")
def compute_dtype(step):
    def f(x, w, dtype):
        h = x.astype(dtype)  # HERE
        return (h @ w.astype(dtype)).astype(jnp.float32)
    f = step(f, static_argnums=2)
    f(X, W, jnp.bfloat16), f(X, W, jnp.float16)


@plant("shape")
def head_count(step):
    def f(x, heads):
        y = jnp.tanh(x)
        y = y.reshape(8, heads, 16 // heads)  # HERE
        return jax.nn.softmax(y)
    f = step(f, static_argnums=1)
    f(X, 2), f(X, 4)


@plant("identical", line=False)
def a_fresh_jit_each_time(step):
    def make():
        def f(x):
            return x * 7
        return step(f)
    make()(X), make()(X)


@plant("constant", before="0", after="1")
def seed(step):
    def f(x, seed):
        return x + jax.random.uniform(jax.random.PRNGKey(seed), x.shape)  # HERE
    f = step(f, static_argnums=1)
    f(X, 0), f(X, 1)


@plant("op", before="relu", after="silu")
def activation(step):
    def f(x, w, act):
        h = x @ w
        h = act(h)  # HERE
        return h @ w
    f = step(f, static_argnums=2)
    f(X, W, jax.nn.relu), f(X, W, jax.nn.silu)


@plant("op", before="[1, 0, 2]", after="[2, 1, 0]")
def transpose_order(step):
    def f(x, flip):
        y = lax.transpose(x, flip)  # HERE
        return y * 2
    f = step(f, static_argnums=1)
    f(W.reshape(4, 4, 16), (1, 0, 2)), f(W.reshape(4, 4, 16), (2, 1, 0))


@plant("constant", before="1e-05", after="1e-06")
def epsilon(step):
    def f(x, eps):
        m = jnp.mean(x, -1, keepdims=True)
        v = jnp.var(x, -1, keepdims=True)
        return (x - m) * lax.rsqrt(v + eps)  # HERE
    f = step(f, static_argnums=1)
    f(X, 1e-5), f(X, 1e-6)


@plant("constant", before="0.5", after="0.25")
def library_frame(step):
    library = {"jnp": jnp}
    text = "def dense(x, w, scale):\n    y = x @ w\n    return jnp.tanh(y) * scale\n"
    exec(compile(text, "/opt/venv/lib/python3.11/site-packages/nnlib/dense.py", "exec"), library)

    def f(x, w, s):
        h = library["dense"](x, w, s)  # HERE
        return jnp.sum(h)
    f = step(f, static_argnums=2)
    f(X, W, 0.5), f(X, W, 0.25)


@plant("op")
def attention_causal(step):
    def f(q, causal):
        s = q @ q.T
        if causal:
            s = jnp.where(jnp.tril(jnp.ones(s.shape, bool)), s, -1e9)  # HERE
        return jax.nn.softmax(s) @ q
    f = step(f, static_argnums=1)
    f(X, False), f(X, True)


@plant("constant", before="0.9", after="0.95")
def momentum(step):
    def f(w, m, g, beta):
        m = beta * m + g  # HERE
        return w - 0.01 * m, m
    f = step(f, static_argnums=3)
    f(W, W, W, 0.9), f(W, W, W, 0.95)


@plant("shape", name="cache[1]", dim=0, before=16, after=32)
def kv_cache(step):
    def f(x, cache):
        k, v = cache
        return x @ k.T[:, :8] + jnp.sum(v)  # HERE
    f = step(f)
    f(X, (W, W)), f(X, (W, jnp.concatenate([W, W])))


@plant("op")
def cumsum_reverse(step):
    def f(x, rev):
        return lax.cumsum(x, 0, reverse=rev) + 1  # HERE
    f = step(f, static_argnums=1)
    f(X, False), f(X, True)


@plant("op")
def sort_descending(step):
    def f(x, d):
        y = jnp.sort(x, descending=d)  # HERE
        return y[0]
    f = step(f, static_argnums=1)
    f(X, False), f(X, True)


@plant("op")
def pool_window(step):
    def f(x, k):
        return lax.reduce_window(x, -jnp.inf, lax.max, (k, 1), (1, 1), "SAME")  # HERE
    f = step(f, static_argnums=1)
    f(X, 2), f(X, 3)


@plant("op")
def conv_stride(step):
    def f(x, k, s):
        y = lax.conv_general_dilated(x, k, (s, s), "SAME")  # HERE
        return jnp.sum(jax.nn.relu(y))
    f = step(f, static_argnums=2)
    x, k = jnp.ones((1, 3, 8, 8)), jnp.ones((4, 3, 3, 3))
    f(x, k, 1), f(x, k, 2)


@plant("shape")
def topk(step):
    def f(x, k):
        v, i = lax.top_k(x, k)  # HERE
        return jnp.sum(v)
    f = step(f, static_argnums=1)
    f(X, 2), f(X, 4)


@plant("shape")
def hidden_ones(step):
    def f(x, n):
        z = jnp.zeros((n, 16))  # HERE
        return jnp.concatenate([z, x])
    f = step(f, static_argnums=1)
    f(X, 2), f(X, 4)


@plant("shape")
def arange_length(step):
    def f(x, n):
        z = jnp.arange(n)  # HERE
        return jnp.sum(x) + jnp.sum(z * z)
    f = step(f, static_argnums=1)
    f(X, 5), f(X, 6)


@plant("args", name="mask")
def optional_mask(step):
    def f(params, x, mask=None):
        y = x @ params["w"] + params["b"]
        if mask is not None:
            y = jnp.where(mask, y, 0)  # HERE
        return jnp.sum(y)
    f = step(f)
    f({"w": W, "b": B}, X), f({"w": W, "b": B}, X, X > 0.5)


@plant("dtype", name="params['layers'][2]['w']")
def one_layer_bf16(step):
    def f(params, x):
        for p in params["layers"]:
            x = jnp.tanh(x @ p["w"])  # HERE
        return x
    f = step(f)
    ls = [{"w": W} for _ in range(4)]
    f({"layers": ls}, X)
    ls[2] = {"w": W.astype(jnp.bfloat16)}
    f({"layers": ls}, X)


@plant("args", name="params['layers'][2]['w']")
def more_layers(step):
    def f(params, x):
        for p in params["layers"]:
            x = jnp.tanh(x @ p["w"])  # HERE
        return x
    f = step(f)
    f({"layers": [{"w": W}] * 2}, X), f({"layers": [{"w": W}] * 3}, X)


@plant("shape")
def rolled_by(step):
    def f(x, k):
        return jnp.roll(x, k, axis=0) * 2  # HERE
    f = step(f, static_argnums=1)
    f(X, 1), f(X, 3)


@plant("op")
def while_body(step):
    def f(x, fast):
        def body(c):
            i, v = c
            v = jnp.tanh(v) if fast else jnp.sin(v)  # HERE
            return i + 1, v
        return lax.while_loop(lambda c: c[0] < 3, body, (0, x))[1]
    f = step(f, static_argnums=1)
    f(X, True), f(X, False)


@plant("dtype")
def accumulate(step):
    def f(x, w, t):
        return jnp.dot(x, w, preferred_element_type=t).astype(jnp.float32)  # HERE
    f = step(f, static_argnums=2)
    f(X.astype(jnp.bfloat16), W.astype(jnp.bfloat16), jnp.float32), f(X.astype(jnp.bfloat16), W.astype(jnp.bfloat16),
        jnp.bfloat16)


@plant("constant", before="2.5", after="3.5")
def power(step):
    def f(x, p):
        y = jnp.sin(x)
        return jnp.power(y, p)  # HERE
    f = step(f, static_argnums=1)
    f(X, 2.5), f(X, 3.5)


@plant("op")
def integer_power(step):
    def f(x, p):
        return jnp.sin(x) ** p  # HERE
    f = step(f, static_argnums=1)
    f(X, 2), f(X, 5)


@plant("constant")
def baked_array(step):
    def make(n):
        idx = jnp.asarray(np.arange(6, dtype=np.int32) * n)

        def f(x):
            return jnp.take(jnp.ravel(x), idx)  # HERE
        return step(f)
    make(1)(X), make(2)(X)


@plant("constant")
def positional_table(step):
    def make(n):
        t = np.sin(np.arange(128).reshape(8, 16) / n).astype(np.float32)

        def f(x):
            h = x + t  # HERE
            return jnp.tanh(h)
        return step(f)
    make(10000.0)(X), make(500.0)(X)


@plant("op")
def layernorm_to_rms(step):
    def ln(x):
        m = jnp.mean(x, -1, keepdims=True)
        return (x - m) / jnp.std(x, -1, keepdims=True)

    def rms(x):
        return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)  # HERE

    def f(x, w, norm):
        h = norm(x) if norm is ln else rms(x)
        return h @ w
    f = step(f, static_argnums=2)
    f(X, W, ln), f(X, W, rms)


@plant("sharding")
def shard_map_spec(step):
    m = mesh((8,), ("d",))

    def f(x, spec):
        return jax.shard_map(lambda v: v * 2, mesh=m, in_specs=spec, out_specs=spec)(x)  # HERE
    f = step(f, static_argnums=1)
    x = jax.device_put(X, NamedSharding(m, P()))
    f(x, P("d")), f(x, P(None, "d"))


@plant("op")
def psum_added(step):
    m = mesh((8,), ("d",))

    def f(x, red):
        def g(v):
            v = v * 2
            return lax.psum(v, "d") if red else lax.pmax(v, "d")  # HERE
        return jax.shard_map(g, mesh=m, in_specs=P("d"), out_specs=P())(x)
    f = step(f, static_argnums=1)
    x = jax.device_put(X, NamedSharding(m, P("d")))
    f(x, True), f(x, False)


@plant("sharding", name="params['w2']")
def one_param_sharding(step):
    m = mesh((4, 2), ("d", "m"))

    def f(params, x):
        return jnp.tanh(x @ params["w1"]) @ params["w2"]  # HERE
    f = step(f)

    def put(a, *s):
        return jax.device_put(a, NamedSharding(m, P(*s)))
    f({"w1": put(W, None, "m"), "w2": put(W, "m")}, put(X, "d"))
    f({"w1": put(W, None, "m"), "w2": put(W)}, put(X, "d"))


@plant("constant", before="0", after="1")
def fold_in(step):
    def f(x, key, n):
        k = jax.random.fold_in(key, n)  # HERE
        return x + jax.random.normal(k, x.shape)
    f = step(f, static_argnums=2)
    f(X, jax.random.PRNGKey(0), 0), f(X, jax.random.PRNGKey(0), 1)


@plant("constant", before="0.001", after="0.0005")
def adamw_lr_schedule(step):
    def f(params, m, v, g, lr):
        out = {}
        for k in params:
            m2 = 0.9 * m[k] + 0.1 * g[k]
            v2 = 0.999 * v[k] + 0.001 * g[k] ** 2
            out[k] = params[k] - lr * m2 / (jnp.sqrt(v2) + 1e-8)  # HERE
        return out
    f = step(f, static_argnums=4)
    t = {"a": B, "b": W}
    f(t, t, t, t, 0.001), f(t, t, t, t, 0.0005)


@plant("op")
def residual_removed(step):
    def f(x, w, res):
        h = jnp.tanh(x @ w)
        return h + x if res else h * 1.0  # HERE
    f = step(f, static_argnums=2)
    f(X, W, True), f(X, W, False)


@plant("shape", name="tokens", dim=1, before=8, after=16)
def seq_len(step):
    def f(emb, tokens):
        h = emb[tokens]  # HERE
        pos = jnp.arange(tokens.shape[1])
        h = h + jnp.sin(pos[None, :, None] / 10)
        s = h @ h.transpose(0, 2, 1)
        s = jnp.where(jnp.tril(jnp.ones(s.shape[1:], bool)), s, -1e9)
        return jax.nn.softmax(s) @ h
    f = step(f)
    f(W, jnp.zeros((2, 8), jnp.int32)), f(W, jnp.zeros((2, 16), jnp.int32))


@plant("dtype", name="tokens", before="i32", after="ui8")
def token_dtype(step):
    def f(emb, tokens):
        return jnp.sum(emb[tokens])  # HERE
    f = step(f)
    f(W, jnp.zeros((2, 8), jnp.int32)), f(W, jnp.zeros((2, 8), jnp.uint8))


@plant("op")
def optimizer_switched(step):
    def f(w, g, m, adam):
        if adam:
            m = 0.9 * m + 0.1 * g  # HERE
            return w - 0.1 * m / (jnp.sqrt(m * m) + 1e-8), m
        return w - 0.1 * g, m
    f = step(f, static_argnums=3)
    f(W, W, W, False), f(W, W, W, True)


@plant("op")
def gelu_exact(step):
    def f(x, approximate):
        h = x * 2
        return jax.nn.gelu(h, approximate=approximate)  # HERE
    f = step(f, static_argnums=1)
    f(X, True), f(X, False)


@plant("args")
def var_args_more(step):
    def f(*args):
        return sum(jnp.sum(a * 2) for a in args)  # HERE
    f = step(f)
    f(B, B), f(B, B, B)


@plant("args", name="kw['c']")
def keyword_args(step):
    def f(**kw):
        out = 0
        for k in sorted(kw):
            out = out + jnp.sum(kw[k])  # HERE
        return out
    f = step(f)
    f(a=B, b=B), f(a=B, b=B, c=B)


@plant("constant", before="false", after="true")
def bool_const(step):
    def f(x, train):
        m = jnp.asarray(train)
        return jnp.where(m, x * 2, x)  # HERE
    f = step(f, static_argnums=1)
    f(X, False), f(X, True)


@plant("op")
def grad_accumulation(step):
    def f(w, x, n):
        def one(i, g):
            return g + jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)
        if n == 1:
            return one(0, jnp.zeros_like(w))
        return lax.fori_loop(0, n, one, jnp.zeros_like(w))  # HERE
    f = step(f, static_argnums=2)
    f(W, X, 1), f(W, X, 4)


@plant("constant", before="4", after="8")
def fori_bound(step):
    def f(x, n):
        return lax.fori_loop(0, n, lambda i, v: jnp.sin(v), x)  # HERE
    f = step(f, static_argnums=1)
    f(X, 4), f(X, 8)


@plant("op")
def scan_unroll(step):
    def f(x, u):
        def body(c, _):
            return jnp.tanh(c) * 0.5, None
        return lax.scan(body, x, None, length=8, unroll=u)[0]  # HERE
    f = step(f, static_argnums=1)
    f(X, 1), f(X, 2)


@plant("sharding", name="opt['mu']")
def optimizer_state_sharding(step):
    m = mesh((8,), ("d",))

    def f(p, opt):
        return p - 0.1 * opt["mu"], opt["mu"] * 0.9  # HERE
    f = step(f)

    def put(a, *s):
        return jax.device_put(a, NamedSharding(m, P(*s)))
    f(put(W, "d"), {"mu": put(W, "d")})
    f(put(W, "d"), {"mu": put(W)})


print(json.dumps(planted))
