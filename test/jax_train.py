"""Trains a small GPT with AdamW for 50 steps on the xlane device and on JAX's own CPU: the losses must agree."""
import os, sys, time
sys.path.pop(0)                                      # a test of the same name as a module would be taken for it
os.environ.setdefault("JAX_PLATFORMS", "xlane,cpu")
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
lib = os.environ.get("XLANE_CPU_PLUGIN", os.path.join(here, "build", "libxlane-cpu.so"))
os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS", "xlane:" + lib)
try:
    import numpy as np
    import jax
    import jax.numpy as jnp
except ImportError as e:
    print("skip jax_train: %s" % e)
    sys.exit(0)
from jax._src.interpreters import mlir
if "xlane" not in mlir._platforms_with_donation:
    mlir._platforms_with_donation.append("xlane")

L, D, H, V, B, T = 2, 64, 4, 128, 4, 32

def init(seed):
    r = np.random.default_rng(seed)
    n = lambda *s: (r.normal(size=s) * 0.05).astype(np.float32)
    layer = lambda: dict(qkv=n(D, 3 * D), out=n(D, D), up=n(D, 4 * D), down=n(4 * D, D), g1=np.ones(D, np.float32), g2=np.ones(D, np.float32))
    return dict(tok=n(V, D), pos=n(T, D), layers=[layer() for _ in range(L)], g=np.ones(D, np.float32))

def norm(x, g):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g

def loss(p, tokens):
    x = p["tok"][tokens[:, :-1]] + p["pos"]
    mask = jnp.tril(jnp.ones((T, T), bool))
    for l in p["layers"]:
        q, k, v = jnp.split(norm(x, l["g1"]) @ l["qkv"], 3, -1)
        q, k, v = (a.reshape(B, T, H, D // H).transpose(0, 2, 1, 3) for a in (q, k, v))
        a = jnp.where(mask, q @ k.transpose(0, 1, 3, 2) / np.sqrt(D // H), -1e9)
        x = x + (jax.nn.softmax(a) @ v).transpose(0, 2, 1, 3).reshape(B, T, D) @ l["out"]
        x = x + jax.nn.gelu(norm(x, l["g2"]) @ l["up"]) @ l["down"]
    logp = jax.nn.log_softmax(norm(x, p["g"]) @ p["tok"].T)
    return -jnp.take_along_axis(logp, tokens[:, 1:, None], -1).mean()

def step(p, m, v, t, tokens):
    l, g = jax.value_and_grad(loss)(p, tokens)
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    p = jax.tree.map(lambda p, m, v: p - 3e-3 * (m / (1 - 0.9 ** t) / (jnp.sqrt(v / (1 - 0.99 ** t)) + 1e-8) + 0.01 * p), p, m, v)
    return p, m, v, t, l

def train(platform):
    d = jax.devices(platform)[0]
    p = jax.device_put(init(0), d)
    m, v = jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
    t = jax.device_put(np.float32(0), d)
    f = jax.jit(step, donate_argnums=(0, 1, 2))
    r = np.random.default_rng(1)
    base = r.integers(0, V, (B, T + 1))
    out, t0 = [], time.time()
    for i in range(50):
        tokens = jax.device_put((base + i % 7) % V, d)
        p, m, v, t, l = f(p, m, v, t, tokens.astype(jnp.int32))
        out.append(float(l))
        if i == 0:
            t1 = time.time()
    print("%s: first step %.2f s, then %.1f ms each; loss %.5f to %.5f" % (platform, t1 - t0, (time.time() - t1) / 49 * 1e3, out[0], out[-1]), file=sys.stderr)
    return np.array(out)

a, b = train("xlane"), train("cpu")
worst = np.max(np.abs(a - b) / np.abs(b))
print("largest relative difference of the losses: %.2e" % worst, file=sys.stderr)
ok = np.isfinite(a).all() and worst < 1e-3 and abs(a[-1] - b[-1]) / b[-1] < 1e-4 and a[-1] < a[0] - 0.5
print("%s jax_train" % ("ok" if ok else "FAIL"))
sys.exit(0 if ok else 1)
