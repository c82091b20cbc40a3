"""LU, QR and Cholesky of matrices that are shared among threads by panels (src/cpu/kernel/panels.c): products of the
factors, singular and indefinite matrices, and the same bits with 1, 2 and 5 threads."""
import hashlib, os, subprocess, sys
from _jax import here, lib
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
jax.config.update("jax_enable_x64", True)

SHAPES = {np.float32: ((128, 128), (130, 300), (300, 130), (257, 257)), np.float64: ((200, 200),),
          np.complex64: ((192, 200),), np.complex128: ((200, 192), (160, 160))}
device = jax.devices("xlane")[0]
run = lambda f, *a: [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*(jax.device_put(x, device) for x in a)))]
rng, seen, wrong = np.random.default_rng(0), hashlib.sha1(), {}


def near(name, a, b, dtype, shape):
    """Within some rounding errors for each element that was summed."""
    off = np.abs(a - b).max() / np.abs(b).max() / np.finfo(dtype).eps / max(shape)
    if not off < 2:
        wrong.setdefault(name, "%s of %s: off by %.3g eps n" % (np.dtype(dtype), shape, off))


for dtype, shapes in SHAPES.items():
    for m, n in shapes:
        k, a = min(m, n), rng.standard_normal((m, n))
        a = (a + 1j * rng.standard_normal((m, n)) if np.dtype(dtype).kind == "c" else a).astype(dtype)
        lu, pivots, order = run(lax.linalg.lu, a)
        near("lu", (np.tril(lu[:, :k], -1) + np.eye(m, k)) @ np.triu(lu[:k]), a[order], dtype, (m, n))
        q, r = run(jnp.linalg.qr, a)
        near("qr", q @ r, a, dtype, (m, n))
        whole, = run(lambda a: jnp.linalg.qr(a, mode="complete")[0], a)
        near("qr complete", whole.conj().T @ whole, np.eye(m), dtype, (m, n))
        results = [lu, pivots, q, r, whole]
        if m == n:
            s = (a @ a.conj().T + n * np.eye(n)).astype(dtype)
            (low,), (up,) = run(jnp.linalg.cholesky, s), run(lambda s: jnp.linalg.cholesky(s, upper=True), s)
            near("cholesky", low @ low.conj().T, s, dtype, (m, n))
            near("cholesky upper", up.conj().T @ up, s, dtype, (m, n))
            if np.triu(low, 1).any() or np.tril(up, -1).any():
                wrong.setdefault("cholesky", "not a triangle")
            s[n - 3, n - 3] = -1
            bad, = run(jnp.linalg.cholesky, s)
            if not np.isnan(bad[np.tril_indices(n)]).all():
                wrong.setdefault("indefinite", "%s of %s is no NaN" % (np.dtype(dtype), (m, n)))
            results += [low, up]
        for x in results:
            seen.update(x.tobytes())
    ones, = run(lambda a: lax.linalg.lu(a)[0], np.ones((200, 200), dtype))
    if np.triu(ones)[1:].any() or (ones[:, 0] != 1).any():
        wrong.setdefault("singular", str(np.dtype(dtype)))
batch = rng.standard_normal((3, 150, 150))
inverse, = run(jnp.linalg.inv, batch)
near("batch", inverse @ batch, np.broadcast_to(np.eye(150), batch.shape), np.float32, batch.shape)
seen.update(inverse.tobytes())

if len(sys.argv) > 1:
    print(seen.hexdigest())
    sys.exit()
for name in ("lu", "qr", "qr complete", "cholesky", "cholesky upper", "indefinite", "singular", "batch"):
    print("FAIL jax_linalg %s: %s" % (name, wrong[name]) if name in wrong else "ok jax_linalg %s" % name)
bits = {}
for n in ("1", "2", "5"):
    bits[n] = subprocess.run([sys.executable, os.path.abspath(__file__), "bits"], capture_output=True, text=True,
                             env=dict(os.environ, XLANE_CPU_THREADS=n)).stdout.strip()
same = len(set(bits.values())) == 1 and bits["1"]
print("ok jax_linalg threads" if same else "FAIL jax_linalg threads: bits differ: %s" % bits)
sys.exit(bool(wrong) or not same)
