"""Training speed on a GPU: `xlane train` beside JAX with cuDNN's attention and PyTorch with torch.compile.

    ./x bench gpu                       or, where nothing can be built:  XLANE=/path/to/xlane python3 bench/gpu.py
    [MODEL ...] [zipf | uniform] [ROW ...]      rows: xlane, scan, unmeasured, hasty, jax, torch

One model for all (the blocks of `A*N`: RMSNorm, rotary positions, causal attention, SwiGLU; tied embedding, bf16
compute, f32 masters, AdamW with clip), one token file for all. Zipf tokens are drawn with probability 1/rank over
shuffled ids, as text has them; uniform ones are kind to atomic sums. Each row is a process of its own; they take turns,
and the median over the steps after the first forty counts, of the better turn.
"steady" is the mean speed of the last quarter of the steps over that of the second: below 1 it falls while it trains."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.environ.get("XLANE", os.path.join(ROOT, "build", "xlane"))
STEPS, TURNS = int(os.environ.get("XLANE_BENCH_STEPS", "160")), int(os.environ.get("XLANE_BENCH_TIMES", "2"))
VOCAB, TIME = 50304, 1024
MODELS = {"124M": dict(dim=768, layers=12, heads=12, batch=16), "124M-b32": dict(dim=768, layers=12, heads=12,
    batch=32),
          "774M": dict(dim=1280, layers=36, heads=20, batch=8)}


def tokens(kind, count=24_000_000):
    import numpy as np
    rng = np.random.default_rng(1)
    p = 1 / np.arange(1, VOCAB + 1) if kind == "zipf" else np.ones(VOCAB)
    return rng.permutation(VOCAB)[rng.choice(VOCAB, count, p=p / p.sum())].astype(np.uint16)


def shapes(m):
    D, F = m["dim"], (m["dim"] * 8 // 3 + 31) // 32 * 32
    return dict(norm=(D,), wq=(D, D), wk=(D, D), wv=(D, D), wo=(D, D), ffn_norm=(D,), gate=(D, F), up=(D, F),
                down=(F, D))


def batches(file, B):
    import numpy as np
    data, at = np.fromfile(file, np.uint16), 0
    while True:
        at = at if at + B * TIME + 1 <= data.size else 0
        part = data[at:at + B * TIME + 1].astype(np.int32)
        yield part[:-1].reshape(B, TIME), part[1:].reshape(B, TIME)
        at += B * TIME


def report(begun, peak):
    """Times at which every tenth step was done; the peer waits for the device only there, as xlane's progress does."""
    print(json.dumps(dict(marks=begun, peak=peak)))


def run_jax(m, file):
    import jax
    import jax.numpy as jnp
    import numpy as np
    D, L, H, B = m["dim"], m["layers"], m["heads"], m["batch"]
    S, bf = D // H, jnp.bfloat16
    rng = np.random.default_rng(1)
    draw = lambda n, s: np.ones(s, np.float32) if "norm" in n else rng.standard_normal(s,
        np.float32) * np.float32(s[-2] ** -0.5)
    p = dict(embed=rng.standard_normal((VOCAB, D), np.float32) * np.float32(0.02), norm=np.ones(D, np.float32),
             layers=[{n: draw(n, s) for n, s in shapes(m).items()} for _ in range(L)])
    angle = jnp.arange(TIME, dtype=jnp.float32)[:, None, None] * jnp.exp(-np.log(1e4) / (S // 2) * jnp.arange(S // 2,
        dtype=jnp.float32))
    cos, sin = jnp.cos(angle), jnp.sin(angle)

    def rms(x, g):
        f = x.astype(jnp.float32)
        return (f * jax.lax.rsqrt(jnp.mean(f * f, -1, keepdims=True) + 1e-6) * g).astype(bf)

    def rope(x):
        a, b = x[..., :S // 2].astype(jnp.float32), x[..., S // 2:].astype(jnp.float32)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(bf)

    def loss(p, x, y):
        w = lambda a: a.astype(bf)
        h = w(p["embed"])[x]
        for q in p["layers"]:
            n = rms(h, q["norm"])
            a, b, c = rope((n @ w(q["wq"])).reshape(B, TIME, H, S)), rope((n @ w(q["wk"])).reshape(B, TIME, H,
                S)), (n @ w(q["wv"])).reshape(B, TIME, H, S)
            h = h + jax.nn.dot_product_attention(a, b, c, is_causal=True, implementation="cudnn").reshape(B, TIME,
                D) @ w(q["wo"])
            n = rms(h, q["ffn_norm"])
            h = h + (jax.nn.silu(n @ w(q["gate"])) * (n @ w(q["up"]))) @ w(q["down"])
        logits = (rms(h, p["norm"]) @ w(p["embed"]).T).astype(jnp.float32)
        return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[..., None], -1)[..., 0]).mean()

    def update(state, x, y):
        p, m1, m2, t = state
        value, g = jax.value_and_grad(loss)(p, x, y)
        t = t + 1
        scale = jnp.minimum(1, 1 / jnp.sqrt(sum(jnp.sum(v * v) for v in jax.tree.leaves(g))))
        m1 = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b * scale, m1, g)
        m2 = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * (b * scale) ** 2, m2, g)
        new = lambda q, a, b: q - 3e-4 * (a / (1 - 0.9 ** t) / (jnp.sqrt(b / (1 - 0.95 ** t)) + 1e-8)
                                          + (0.1 * q if q.ndim > 1 else 0))
        return (jax.tree.map(new, p, m1, m2), m1, m2, t), value

    zero = lambda: jax.tree.map(np.zeros_like, p)
    state, step, marks = jax.device_put((p, zero(), zero(), np.float32(0))), jax.jit(update, donate_argnums=0), []
    for k, (x, y) in zip(range(STEPS), batches(file, B)):
        state, value = step(state, x, y)
        if k % 10 == 9:
            value.block_until_ready()
            marks.append(time.perf_counter())
    report(marks, jax.devices()[0].memory_stats()["peak_bytes_in_use"])


def run_torch(m, file):
    import math
    import torch
    import torch.nn.functional as F
    D, L, H, B = m["dim"], m["layers"], m["heads"], m["batch"]
    S = D // H
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    par = lambda t: torch.nn.Parameter(t.cuda())
    draw = lambda n, s: torch.ones(s) if "norm" in n else torch.randn(s) * s[-2] ** -0.5
    embed, norm = par(torch.randn(VOCAB, D) * 0.02), par(torch.ones(D))
    layers = [{n: par(draw(n, s)) for n, s in shapes(m).items()} for _ in range(L)]
    every = [embed, norm] + [p for l in layers for p in l.values()]
    opt = torch.optim.AdamW([dict(params=[p for p in every if p.ndim > 1], weight_decay=0.1),
                             dict(params=[p for p in every if p.ndim == 1], weight_decay=0)],
                            lr=3e-4, betas=(0.9, 0.95), fused=True)
    angle = torch.arange(TIME, dtype=torch.float32)[:, None,
                                                    None] * torch.exp(-math.log(1e4) / (S // 2) * torch.arange(S // 2,
                                                        dtype=torch.float32))
    cos, sin = angle.cos().cuda(), angle.sin().cuda()

    def rms(x, g):
        f = x.float()
        return (f * torch.rsqrt((f * f).mean(-1, keepdim=True) + 1e-6) * g).bfloat16()

    def rope(x):
        a, b = x[..., :S // 2].float(), x[..., S // 2:].float()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).bfloat16()

    def loss(x, y):
        w = lambda a: a.bfloat16()
        h = F.embedding(x, embed).bfloat16()
        for q in layers:
            n = rms(h, q["norm"])
            a, b, c = rope((n @ w(q["wq"])).view(B, TIME, H, S)), rope((n @ w(q["wk"])).view(B, TIME, H,
                S)), (n @ w(q["wv"])).view(B, TIME, H, S)
            h = h + F.scaled_dot_product_attention(a.transpose(1, 2), b.transpose(1, 2), c.transpose(1, 2),
                                                   is_causal=True).transpose(1, 2).reshape(B, TIME, D) @ w(q["wo"])
            n = rms(h, q["ffn_norm"])
            h = h + (F.silu(n @ w(q["gate"])) * (n @ w(q["up"]))) @ w(q["down"])
        return F.cross_entropy((rms(h, norm) @ w(embed).T).view(-1, VOCAB).float(), y.view(-1))

    fast, marks = torch.compile(loss), []
    for k, (x, y) in zip(range(STEPS), batches(file, B)):
        value = fast(torch.from_numpy(x).cuda(non_blocking=True).long(),
                     torch.from_numpy(y).cuda(non_blocking=True).long())
        opt.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(every, 1.0)
        opt.step()
        if k % 10 == 9:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
    report(marks, torch.cuda.max_memory_allocated())


def run_xlane(m, file, folder, *words):
    command = [XLANE, "train", "--device=cuda", "--json", "--quiet", f"model.pattern=A*{m['layers']}",
               f"model.dim={m['dim']}", f"model.heads={m['heads']}", f"model.vocab={VOCAB}",
               "model.tie=true", "model.compute=bf16", f"data.batch={m['batch']}", f"data.time={TIME}", f"data.train={file}", "data.format=nanogpt", "train.eval_every=0",
               "train.save_every=0", f"train.steps={STEPS}", *words]
    p = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if p.returncode:
        return dict(error=(p.stderr.strip().splitlines() or ["no message"])[-1])
    said = json.loads(p.stdout)
    rows = open(os.path.join(folder, said["run"], "metrics.csv")).read().split("\n")
    head, rows = rows[0].split(","), [r.split(",") for r in rows[1:] if r]
    done = [float(r[head.index("seconds")]) for r in rows][9::10]
    memory = [r.split(",") for r in open(os.path.join(folder, said["run"], "memory.csv")).read().split("\n") if r]
    at = next(i for i, h in enumerate(memory[0]) if "peak" in h)
    return dict(ms=[100 * (b - a) for a, b in zip(done, done[1:])], peak=max(float(r[at] or 0) for r in memory[1:]))


def peer(which, name, file):
    p = subprocess.run([sys.executable, os.path.abspath(__file__), "--peer", which, name, file], capture_output=True,
                       text=True)
    if p.returncode:
        return dict(error=(p.stderr.strip().splitlines() or ["no message"])[-1])
    said = json.loads(p.stdout.strip().splitlines()[-1])
    return dict(ms=[100 * (b - a) for a, b in zip(said["marks"], said["marks"][1:])], peak=said["peak"])


def rows(name, m, file, folder):
    x = lambda *words: lambda: run_xlane(m, file, folder, *words)
    return {"xlane": x("model.scan=false"), "xlane, scan over layers": x("model.scan=true"),
            "xlane, kernels unmeasured": x("model.scan=false", "train.tune=false"),
            "xlane, nondeterministic": x("model.scan=false", "train.deterministic=false"),
            "JAX, cuDNN attention": lambda: peer("jax", name, file),
            "PyTorch, torch.compile": lambda: peer("torch", name, file)}


ROWS = dict(xlane="xlane", scan="xlane, scan over layers", unmeasured="xlane, kernels unmeasured",
            hasty="xlane, nondeterministic",
            jax="JAX, cuDNN attention", torch="PyTorch, torch.compile")


def main():
    if sys.argv[1:2] == ["--peer"]:
        return {"jax": run_jax, "torch": run_torch}[sys.argv[2]](MODELS[sys.argv[3]], sys.argv[4])
    asked = [a for a in sys.argv[1:] if not a.startswith("-")]
    kinds, only = [a for a in asked if a in ("zipf", "uniform")] or ["zipf",
        "uniform"], [a for a in asked if a in MODELS] or list(MODELS)
    wanted = [ROWS[a] for a in asked if a in ROWS] or list(ROWS.values())
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            file = os.path.join(folder, kind + ".bin")
            tokens(kind).tofile(file)
            for name in only:
                best, m = {}, MODELS[name]
                for _ in range(TURNS):
                    for row, run in rows(name, m, file, folder).items():
                        if row not in wanted:
                            continue
                        got = run()
                        if "error" in got:
                            best.setdefault(row, got)
                            continue
                        ms, n = got["ms"][3:], len(got["ms"])
                        got = dict(ms=statistics.median(ms), steady=statistics.mean(got["ms"][n // 4:n // 2]) / statistics.mean(got["ms"][-(n // 4):]), peak=got["peak"])
                        print(f"{name:9} {kind:8} {row:26} {got['ms']:8.2f} ms", file=sys.stderr, flush=True)
                        if "ms" not in best.get(row, {}) or got["ms"] < best[row]["ms"]:
                            best[row] = got
                torch = best.get("PyTorch, torch.compile", {}).get("ms")
                for row, b in best.items():
                    if "error" in b:
                        print(f"{name:9} {kind:8} {row:26} failed: {b['error'][:160]}", flush=True)
                        continue
                    print(f"{name:9} {kind:8} {row:26} {m['batch'] * TIME / b['ms']:7.0f}k tokens/s {b['ms']:8.2f} ms, steady {b['steady']:.3f}, peak {b['peak'] / 2**20:7.0f} MiB"
                          + (f", {torch / b['ms']:.2f}x torch.compile" if torch else ""), flush=True)


main()
