"""Every block, hybrid models and AdamW against jax.grad: the same formulas written the plain way (recurrences step by
step, experts one token at a time) on the same weights. (Rows T1, T2, O1, O2, G4)

How relative is measured: the reference is computed by JAX in f64 from the same f32 weights, so that its own rounding is
out of the way; a tensor is off by the largest difference of any element, divided by the largest element of the
reference. Everything that our f32 programs give (loss, each gradient, each parameter and both moments after each AdamW
step) must be within 1e-5 of it. JAX's own f32 gradients are 1e-7 to 8e-6 away from that reference here, ours 3e-7 to
6e-6. Each AdamW step is compared from the same state: Adam divides by the root of the second moment, so where a
gradient is nearly zero its rounding decides the update, and two f32 runs (JAX's own and JAX in f64 just so) drift apart
by more than 1e-5 in a few steps. Programs run on JAX's CPU device and on the embedded one."""
import os, subprocess, sys, tempfile
os.environ.setdefault("JAX_PLATFORMS", "cpu,xlane")
os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS",
                      "xlane:" + os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build",
                                              "libxlane-cpu.so"))
import numpy as np
from _run import XLANE, run_text
import jax, jax.numpy as jnp
from jax import lax
jax.config.update("jax_enable_x64", True)

SHAPES = {}


def sizes(b, t, v, d, h, kv, x, k, n):
    """Rows, length, vocabulary, width, heads, key heads, experts, experts of a token, state."""
    global B, T, V, D, H, KV, S, X, K, N, F, E2, P
    B, T, V, D, H, KV, S, X, K, N = b, t, v, d, h, kv, d // h, x, k, n
    F = (D * 8 // 3 + 31) // 32 * 32
    E2, P = 2 * D, 2 * D // H
    SHAPES.update({
        "attn": [("norm", (D,)), ("wq", (D, D)), ("wk", (D, KV * S)), ("wv", (D, KV * S)), ("wo", (D, D))],
        "ffn": [("ffn_norm", (D,)), ("gate", (D, F)), ("up", (D, F)), ("down", (F, D))],
        "ssm": [("norm", (D,)), ("win", (D, 2, E2)), ("wbc", (D, 2 * N)), ("wdt", (D, H)), ("conv", (4, E2)),
                ("dt_bias", (H,)), ("a_log", (H,)),
                ("skip", (H,)), ("out_norm", (E2,)), ("wout", (E2, D))],
        "rec": [("norm", (D,)), ("wx", (D, D)), ("wg", (D, D)), ("wr", (D, D)), ("wi", (D, D)), ("conv", (4, D)),
                ("lambda", (D,)), ("wo", (D, D))],
        "moe": [("ffn_norm", (D,)), ("router", (D, X)), ("gate", (X, D, F)), ("up", (X, D, F)), ("down", (X, F, D))],
    })


sizes(2, 12, 23, 16, 4, 2, 4, 2, 4)
PARTS = {"A": ["attn", "ffn"], "M": ["ssm"], "E": ["attn", "moe"], "R": ["rec", "ffn"], "D": ["ffn"]}


def rms(x, g):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def rope(x, pos):
    half = x.shape[-1] // 2
    ang = pos[..., None, None] * jnp.exp(-np.log(10000.0) / half * jnp.arange(half, dtype=jnp.float32))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * jnp.cos(ang) - b * jnp.sin(ang), b * jnp.cos(ang) + a * jnp.sin(ang)], -1)


def attn(p, x, c):
    n = rms(x, p["norm"])
    q = rope((n @ p["wq"]).reshape(B, T, H, S), c["pos"])
    k = rope((n @ p["wk"]).reshape(B, T, KV, S), c["pos"])
    v = (n @ p["wv"]).reshape(B, T, KV, S)
    k, v = jnp.repeat(k, H // KV, 2), jnp.repeat(v, H // KV, 2)
    s = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(S)
    ok = (c["seg"][:, :, None] == c["seg"][:, None, :]) & np.tril(np.ones((T, T), bool))
    w = jax.nn.softmax(jnp.where(ok[:, None], s, -1e30), -1)
    return x + jnp.einsum("bhts,bshd->bthd", w, v).reshape(B, T, D) @ p["wo"]


def ffn(p, x, c):
    n = rms(x, p["ffn_norm"])
    return x + (jax.nn.silu(n @ p["gate"]) * (n @ p["up"])) @ p["down"]


def conv4(u, w, seg):
    out = 0
    for i in range(4):
        at = jnp.pad(u, ((0, 0), (i, 0), (0, 0)))[:, :T]
        same = seg == np.pad(seg, ((0, 0), (i, 0)), constant_values=-1)[:, :T]
        out = out + jnp.where(same[..., None], at, 0) * w[i]
    return out


def each_step(step, shape, rows):
    """The results of a recurrence from zero, one step of time after the other."""
    by_time = jax.tree.map(lambda r: jnp.moveaxis(r, 1, 0), rows)
    return jnp.moveaxis(lax.scan(step, jnp.zeros(shape, rows[0].dtype), by_time)[1], 0, 1)


def ssm(p, x, c):
    n = rms(x, p["norm"])
    z, u = jnp.moveaxis(jnp.einsum("btd,dke->btke", n, p["win"]), 2, 0)
    u = jax.nn.silu(conv4(u, p["conv"], c["seg"]))
    Bm, Cm = jnp.split(n @ p["wbc"], 2, -1)
    dt = jax.nn.softplus(n @ p["wdt"] + p["dt_bias"])
    a = jnp.exp(-dt * jnp.exp(p["a_log"])) * c["fresh"][..., None]
    uh = u.reshape(B, T, H, P)
    def step(h, now):
        a, b, dtu, cm = now
        h = a[..., None, None] * h + b[:, None, :, None] * dtu[:, :, None, :]
        return h, jnp.einsum("bn,bhnp->bhp", cm, h)
    y = each_step(step, (B, H, N, P), (a, Bm, dt[..., None] * uh, Cm)) + uh * p["skip"][:, None]
    y = y.reshape(B, T, E2) * jax.nn.silu(z)
    return x + rms(y, p["out_norm"]) @ p["wout"]


def rec(p, x, c):
    n = rms(x, p["norm"])
    u = conv4(n @ p["wx"], p["conv"], c["seg"])
    r, i = jax.nn.sigmoid(n @ p["wr"]), jax.nn.sigmoid(n @ p["wi"])
    la = -8 * jax.nn.softplus(p["lambda"]) * r
    a = jnp.exp(la) * c["fresh"][..., None]
    b = jnp.sqrt(1 + 1e-6 - jnp.exp(2 * la)) * i * u
    hs = each_step(lambda h, now: (now[0] * h + now[1],) * 2, (B, D), (a, b))
    return x + (hs * jax.nn.gelu(n @ p["wg"])) @ p["wo"]


def moe(p, x, c):
    n = rms(x, p["ffn_norm"]).reshape(B * T, D)
    probs = jax.nn.softmax(n @ p["router"])
    slots = int(np.ceil(B * T * K / X * c["capacity"]))
    order = jnp.argsort(-lax.stop_gradient(probs), 1, stable=True)[:, :K]
    valid = (c["seg"].reshape(-1) > 0)
    used, fits = jnp.zeros(X, int), []
    for k in range(K):
        hot = (order[:, k, None] == np.arange(X)) & valid[:, None]
        before = used + jnp.cumsum(hot, 0) - hot
        fits.append(jnp.any(hot & (before < slots), 1))
        used = used + hot.sum(0)
    fits = jnp.stack(fits, 1)
    w = jnp.take_along_axis(probs, order, 1)
    w = w / w.sum(1, keepdims=True) * fits
    every = jnp.einsum("tef,efd->ted", jax.nn.silu(jnp.einsum("td,edf->tef", n, p["gate"])) * jnp.einsum("td,edf->tef",
        n, p["up"]), p["down"])
    y = (jnp.take_along_axis(every, order[:, :, None], 1) * w[:, :, None]).sum(1)
    frac = used / (K * valid.sum())
    c["balance"].append(X * jnp.sum(frac * (probs * valid[:, None]).sum(0) / valid.sum()))
    return x + y.reshape(B, T, D)


FN = {"attn": attn, "ffn": ffn, "ssm": ssm, "rec": rec, "moe": moe}


def layout(units):
    names = [("embed", (V, D)), ("norm", (D,)), ("head", (D, V))]
    for u, (blocks, times) in enumerate(units):
        for i, b in enumerate(blocks):
            names += [(f"u{u}.{i}{b}.{n}", (times,) + s) for part in PARTS[b] for n, s in SHAPES[part]]
    return names


def loss(params, units, tok, tgt, seg, pos, capacity):
    seg = np.asarray(seg)
    fresh = (seg == np.pad(seg, ((0, 0), (1, 0)), constant_values=-1)[:, :T]).astype(np.float32)
    c = dict(seg=seg, pos=jnp.asarray(pos, jnp.float32), fresh=jnp.asarray(fresh), balance=[], capacity=capacity)
    x = params["embed"][tok]
    for u, (blocks, times) in enumerate(units):
        for row in range(times):
            for i, b in enumerate(blocks):
                for part in PARTS[b]:
                    p = {n: params[f"u{u}.{i}{b}.{n}"][row] for n, _ in SHAPES[part]}
                    x = FN[part](p, x, c)
    logits = rms(x, params["norm"]) @ params["head"]
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), tgt[..., None], 2)[..., 0]
    valid = (seg > 0).astype(np.float32)
    ce = (nll * valid).sum() / valid.sum()
    return ce + (0.01 * sum(c["balance"]) / len(c["balance"]) if c["balance"] else 0)


def xlane(*args):
    p = subprocess.run([XLANE, *args], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip()[:400])
    return p.stdout


TOL = 1e-5


def close(name, got, want):
    want = np.asarray(want)
    err = np.abs(np.asarray(got, np.float64) - want).max() / max(np.abs(want).max(), 1e-30)
    return None if err <= TOL else f"{name}: off by {err:.2e} of {np.abs(want).max():.3g}"


def draw(names):
    """Weights as the model draws them, and noise on what begins as a constant."""
    rng = np.random.default_rng(3)
    base = {"dt_bias": -2, "lambda": -3, "norm": 1, "ffn_norm": 1, "out_norm": 1, "skip": 1}
    def one(n, s):
        last = n.split(".")[-1]
        if last in base or last in ("conv", "a_log"):
            return base.get(last, 0) + (0.1 if "norm" in last or last == "skip" else 0.5) * rng.standard_normal(s)
        fan = 1 if n == "embed" else s[-3 if last == "win" else -2]
        return rng.standard_normal(s) / np.sqrt(fan) * (0.5 if last in ("wo", "down", "wout") else 1)
    return {n: one(n, s).astype(np.float32) for n, s in names}, rng


REFERENCE = {}  # compiled once for all cases of the same units: the numbers are the same too, and XLA takes its time


def case(pattern, units, extra=(), capacity=2.0, keep="carry", adam=3):
    conf = [f"data.train={__file__}", f"model.pattern={pattern}", f"model.vocab={V}", f"model.dim={D}",
            f"model.heads={H}", f"model.kv_heads={KV}",
            f"model.state={N}", "model.chunk=4", f"model.experts={X}", f"model.top_k={K}", f"model.capacity={capacity}", f"data.batch={B}",
            f"data.time={T}", f"train.keep_for_backward={keep}", *extra]
    names = layout(units)
    params, rng = draw(names)
    tok, tgt = rng.integers(0, V, (2, B, T)).astype(np.int32)
    seg = np.array([[1] * 3 + [2] * 7 + [0] * 2, [1] * 12], np.int32)
    pos = np.array([[*range(3), *range(7), 0, 0], range(12)], np.int32)
    ints = (tok, tgt, seg, pos)
    both = REFERENCE.setdefault((repr(units), capacity), jax.jit(jax.value_and_grad(lambda q: loss(q, units, tok, tgt,
        seg, pos, capacity))))
    exact = lambda values: {n: np.asarray(v, np.float64) for (n, _), v in zip(names, values)}
    flat = [params[n] for n, _ in names]
    want, grads = both(exact(flat))
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(xlane("train", "--print=loss", *conf))
        file.flush()
        text = xlane("grad", "--keep=" + keep, file.name)
    for platform in ("cpu", "xlane"):
        got = run_text(text, [*flat, *ints], platform)
        why = close("loss", got[0], want)
        for (n, _), g in zip(names, got[1:]):
            why = why or close("gradient of " + n, g, grads[n])
        if why:
            return f"{platform}: {why}"
    # AdamW with a warm-up, a cosine, decay, and a clip that acts, from zero moments, by the printed step program
    step = xlane("train", "--print=step", *conf)
    lr, low, b1, b2, eps, decay, clip, steps, warm = 1e-3, 1e-4, 0.9, 0.95, 1e-8, 0.1, 0.5, 10, 2
    hyper = np.array([lr, low, warm, steps, 2, b1, b2, np.log(b1), np.log(b2), eps, decay, clip], np.float32)
    state, k = [*flat, *[np.zeros_like(q) for q in flat] * 2, np.zeros(2, np.int32)], len(names)
    for t in range(1, adam + 1):
        p, m, v = (exact(state[i * k:(i + 1) * k]) for i in range(3))
        *state, metrics = run_text(step, [*state, hyper, *ints], "xlane")
        value, grads = both(p)
        norm = np.sqrt(sum(float(jnp.sum(g ** 2)) for g in grads.values()))
        at = max(0, (t - warm) / (steps - warm))
        rate = min(1, t / warm) * (low + (lr - low) * 0.5 * (1 + np.cos(np.pi * at)))
        why = close("loss", metrics[0], value) or close("norm", metrics[1], norm) or close("rate", metrics[2], rate)
        if norm <= clip:
            return f"step {t}: the clip {clip} does not act on a norm of {norm}"
        for i, (n, s) in enumerate(names):
            g = np.asarray(grads[n]) * clip / norm
            m[n] = b1 * m[n] + (1 - b1) * g
            v[n] = b2 * v[n] + (1 - b2) * g * g
            matrix = len(s) >= (3 if n.startswith("u") else 2)
            p[n] -= rate * (m[n] / (1 - b1 ** t) / (np.sqrt(v[n] / (1 - b2 ** t)) + eps)
                            + (decay * p[n] if matrix else 0))
            for j, (what, ref) in enumerate((("", p), ("m of ", m), ("v of ", v))):
                why = why or close(what + n, state[j * k + i], ref[n])
        if why:
            return f"AdamW, step {t}: {why}"
    return None


def main():
    bad = 0
    for name, args in {
        "A": ("A", [("A", 1)]), "D": ("D", [("D", 1)]), "M": ("M", [("M", 1)]), "E": ("E", [("E", 1)]), "R": ("R",
            [("R", 1)]),
        "E_capacity": ("E", [("E", 1)], (), 0.6),
        "AMER_scan": ("AMER*2", [("AMER", 2)]),
        "AMER_scan_dots": ("AMER*2", [("AMER", 2)], (), 2.0, "dots"),
        "AMER_plain": ("AMER*2", [("AMER", 2)], ("model.scan=false",)),
        "AMER_remat": ("AMER*2", [("AMER", 2)], ("model.scan=false", "model.remat=true")),
        "units": ("A(MR)*2", [("A", 1), ("MR", 2)]),
    }.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            why = case(*args)
        except Exception as e:
            why = repr(e)[:600]
        print(f"FAIL blocks_{name}: {why}" if why else f"ok blocks_{name}", flush=True)
        bad += bool(why)
    return bad


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
