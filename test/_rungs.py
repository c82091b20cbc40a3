"""The known answers of the ladder's rungs, computed without our programs and without our device: the blocks written the
plain way (test/blocks.py), jax.grad, AdamW in numpy, all in f64 on JAX's own CPU. Only the weights to begin with are
ours: a run with a rate of zero saves them. Prints the loss of the first and of the last of six steps for each rung
named (all of them): the two numbers that stand in src/train/rungs.def."""
import glob, json, os, re, subprocess, sys, tempfile
os.environ["JAX_PLATFORMS"] = "cpu"
import numpy as np
import blocks
from blocks import jax, jnp, XLANE

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = ["model.dim=32", "model.heads=2", "model.vocab=64", "model.state=8", "model.chunk=8", "model.experts=4",
         "data.batch=2", "data.time=32"]
STEPS, LR, B1, B2, EPS, DECAY, CLIP, WARM = 6, 0.02, 0.9, 0.95, 1e-8, 0.1, 1.0, 1


def rungs():
    with open(ROOT + "/src/train/rungs.def") as f:
        found = re.findall(r'^RUNG\("(\w+)",\s+"([^"]+)",\s+"[^"]+",\s+(?:TRAIN|SCAN),\s+([0-9.]+)f?,\s+([0-9.]+)f?\)',
                           f.read(), re.M)
    return {name: (pattern, float(first), float(last)) for name, pattern, first, last in found}


def load(path):
    """safetensors, f32 only: eight bytes of length, the header, the numbers."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        head, data = json.loads(f.read(n)), f.read()
    return {k: np.frombuffer(data[slice(*h["data_offsets"])], np.float32) for k,
            h in head.items() if k != "__metadata__" and h["dtype"] == "F32"}


def weights(pattern, names):
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/tokens", "wb") as f:
            f.write(bytes(i * i % 61 for i in range(4096)))
        r = subprocess.run([XLANE, "train", "--quiet", "--device=cpu", "data.train=tokens", "data.format=bytes",
                            "model.pattern=" + pattern, *MODEL, "cache=none", "seed=1",
                            "train.steps=2", "optimizer.warmup=1", "optimizer.lr=0", "optimizer.min_lr=0", "train.eval_every=0", "runs=runs"],
                           capture_output=True, text=True, cwd=d)
        if r.returncode:
            raise RuntimeError(r.stderr[-500:])
        have = load(sorted(glob.glob(d + "/runs/*/checkpoints/*.safetensors"))[-1])
    return {n: have[n].astype(np.float64).reshape(s) for n, s in names}


def answers(pattern):
    """The losses of six steps."""
    blocks.sizes(2, 32, 64, 32, 2, 2, 4, 2, 8)
    body, _, times = pattern.partition("*")
    units = [(body, int(times or 1))]
    names = blocks.layout(units)
    p = weights(pattern, names)
    token = lambda row, i: (7 * i * i + 5 * i + 11 * row) % 61
    rows, at = np.arange(2)[:, None], np.arange(32)[None]
    tok, tgt = token(rows, at).astype(np.int32), token(rows, at + 1).astype(np.int32)
    seg, pos = np.ones((2, 32), np.int32), np.broadcast_to(at, (2, 32)).astype(np.int32)
    both = jax.jit(jax.value_and_grad(lambda q: blocks.loss(q, units, tok, tgt, seg, pos, 1.25)))
    m, v, losses = {n: np.zeros(s) for n, s in names}, {n: np.zeros(s) for n, s in names}, []
    for t in range(1, STEPS + 1):
        value, grads = both(p)
        losses.append(float(value))
        norm = np.sqrt(sum(float(jnp.sum(g ** 2)) for g in grads.values()))
        rate = min(1, t / WARM) * LR * 0.5 * (1 + np.cos(np.pi * max(0, (t - WARM) / (STEPS - WARM))))
        for n, s in names:
            g = np.asarray(grads[n]) * min(1, CLIP / norm)
            m[n] = B1 * m[n] + (1 - B1) * g
            v[n] = B2 * v[n] + (1 - B2) * g * g
            matrix = len(s) >= (3 if n.startswith("u") else 2)
            p[n] = p[n] - rate * (m[n] / (1 - B1 ** t) / (np.sqrt(v[n] / (1 - B2 ** t)) + EPS)
                                  + (DECAY * p[n] if matrix else 0))
    return losses


if __name__ == "__main__":
    for name, (pattern, first, last) in rungs().items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            got = answers(pattern)
            print(f"{name:8} {got[0]:.6f} {got[-1]:.6f}   in rungs.def {first} {last}", flush=True)
