"""The model of `A*N` in JAX: the same blocks (RMSNorm, rotary positions, causal attention, SwiGLU), the same AdamW,
layers by lax.scan. bench/start.py, bench/restart.py and bench/train.py run it as a process of its own: python
bench/_gpt.py CACHE STEPS DIM LAYERS BATCH TIME. It prints the seconds from its first line to the first finished step,
how long JAX took to get its executables, the tokens per second of the steps after the second, and its peak memory."""
import json, os, resource, sys, time
born = time.perf_counter()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
cache, steps, D, L, B, T = sys.argv[1], *map(int, sys.argv[2:7])
import numpy as np
import jax, jax.numpy as jnp
from jax import lax
from jax._src import dispatch, monitoring
compiles = []
monitoring.register_event_duration_secs_listener(lambda event, seconds, **_: compiles.append(seconds) if event == dispatch.BACKEND_COMPILE_EVENT else None)
if cache != "none":
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
V, H, F = 256, 4, (D * 8 // 3 + 31) // 32 * 32
S = D // H
LAYER = dict(norm=(D,), wq=(D, D), wk=(D, D), wv=(D, D), wo=(D, D), ffn_norm=(D,), gate=(D, F), up=(D, F), down=(F, D))


def draw(seed=1):
    rng = np.random.default_rng(seed)
    one = lambda n, s: np.ones(s, np.float32) if "norm" in n else rng.standard_normal(s,
        np.float32) * np.float32(s[-2] ** -0.5)
    return dict(embed=rng.standard_normal((V, D), np.float32) * np.float32(0.02), norm=np.ones(D, np.float32),
                head=rng.standard_normal((D, V), np.float32) * np.float32(0.02),
                layers={n: one(n, (L,) + s) for n, s in LAYER.items()})


def rms(x, g):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def rope(x):
    half = S // 2
    angle = jnp.arange(T, dtype=jnp.float32)[:, None, None] * jnp.exp(-np.log(10000.0) / half * jnp.arange(half,
        dtype=jnp.float32))
    a, b, c, s = x[..., :half], x[..., half:], jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def block(x, p):
    n = rms(x, p["norm"])
    q, k, v = (rope((n @ p["wq"]).reshape(B, T, H, S)), rope((n @ p["wk"]).reshape(B, T, H, S)),
               (n @ p["wv"]).reshape(B, T, H, S))
    w = jnp.einsum("bthd,bshd->bhts", q, k) * S ** -0.5
    w = jax.nn.softmax(jnp.where(np.tril(np.ones((T, T), bool)), w, -1e30), -1)
    x = x + jnp.einsum("bhts,bshd->bthd", w, v).reshape(B, T, D) @ p["wo"]
    n = rms(x, p["ffn_norm"])
    return x + (jax.nn.silu(n @ p["gate"]) * (n @ p["up"])) @ p["down"], None


def loss(p, tok):
    x = p["embed"][tok[:, :-1]]
    x = lax.scan(block, x, p["layers"])[0]
    logp = jax.nn.log_softmax(rms(x, p["norm"]) @ p["head"])
    return -jnp.take_along_axis(logp, tok[:, 1:, None], 2).mean()


def update(state, tok):
    p, m, v, t = state
    value, g = jax.value_and_grad(loss)(p, tok)
    t = t + 1
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    scale = jnp.minimum(1, 1 / norm)
    rate = 3e-3 * jnp.minimum(1, t / 20)
    g = jax.tree.map(lambda x: x * scale, g)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b * b, v, g)
    new = lambda q, a, b: q - rate * (a / (1 - 0.9 ** t) / (jnp.sqrt(b / (1 - 0.95 ** t)) + 1e-8)
                                      + (0.1 * q if q.ndim > 1 else 0))
    return (jax.tree.map(new, p, m, v), m, v, t), value


p = draw()
state = jax.device_put((p, jax.tree.map(np.zeros_like, p), jax.tree.map(np.zeros_like, p), np.float32(0)))
step = jax.jit(update, donate_argnums=0)
text = np.frombuffer(open(__file__, "rb").read() * 64, np.uint8).astype(np.int32)
batch = lambda k: text[k * B * (T + 1):][:B * (T + 1)].reshape(B, T + 1) if (k + 1) * B * (T
    + 1) <= text.size else text[:B * (T + 1)].reshape(B, T + 1)
state, value = step(state, batch(0))
value.block_until_ready()
first = time.perf_counter() - born
state, value = step(state, batch(1))
value.block_until_ready()
began, cpu = time.perf_counter(), time.process_time()
for k in range(2, steps):
    state, value = step(state, batch(k))
value.block_until_ready()
wall, cpu, n = time.perf_counter() - began, time.process_time() - cpu, max(steps - 2, 0)
print(json.dumps(dict(first=first, compiles=len(compiles), compile_s=sum(compiles), loss=float(value),
                      parameters=sum(x.size for x
                                     in jax.tree.leaves(p)), tokens_per_second=n * B * T / wall if n else None,
                      cpu_per_step=cpu / n if n else None, wall_per_step=wall / n if n else None, peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))
