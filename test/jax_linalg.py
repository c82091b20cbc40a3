"""Decompositions of one large matrix that are shared among threads. LU, QR and Cholesky by panels
(src/cpu/kernel/panels.c): products of the factors, singular and indefinite matrices. Eigenvalues and singular values
(src/cpu/kernel/spectral.c): products of the factors, orthogonal vectors, values beside NumPy's, matrices that deflate
(constant, diagonal, in clusters) or are out of scale. All: the same bits with 1, 2 and 5 threads."""
import hashlib, os, subprocess, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"     # NumPy's, whose threads spin
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
bits = len(sys.argv) > 1                 # only these are asked for


def near(name, a, b, dtype, shape):
    """Within some rounding errors for each element that was summed."""
    if bits:
        return
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


svd = jax.jit(lambda a: jnp.linalg.svd(a))               # traced once for each shape
few = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False))


def spectrum(name, a, dtype, values):
    """A's singular values (and eigenvalues, where it is Hermitian) and vectors."""
    m, n = a.shape
    k, size, results = min(m, n), 1 if bits else max(np.abs(values).max(), np.finfo(dtype).tiny), []
    for full in (False, True) if m != n else (True,):
        u, s, v = run(svd if full else few, a)
        near(name, (u[:, :k] * s) @ v[:k] / size + 1, a / size + 1, dtype, a.shape)
        near(name, u.conj().T @ u, np.eye(u.shape[1]), dtype, a.shape)
        near(name, v @ v.conj().T, np.eye(v.shape[0]), dtype, a.shape)
        results += [u, s, v]
    values = np.zeros(k) if bits else values
    near(name, s / size + 1, np.sort(np.abs(values))[::-1] / size + 1, dtype, a.shape)
    if m == n and (a == a.conj().T).all():
        w, v = run(jnp.linalg.eigh, a)
        near(name, (v * w) @ v.conj().T / size + 1, a / size + 1, dtype, a.shape)
        near(name, v.conj().T @ v, np.eye(n), dtype, a.shape)
        near(name, w / size + 2, np.sort(values) / size + 2, dtype, a.shape)
        results += [w, v]
    for x in results:
        seen.update(x.tobytes())


LARGE = {np.float32: ((256, 256), (200, 419), (419, 200), (330, 193)), np.float64: ((200, 200), (300, 200)),
         np.complex64: ((200, 260),), np.complex128: ((220, 220), (410, 200))}
for dtype, shapes in LARGE.items():
    for m, n in shapes:
        a = rng.standard_normal((m, n))
        a = (a + 1j * rng.standard_normal((m, n)) if np.dtype(dtype).kind == "c" else a).astype(dtype)
        values = None if bits else np.linalg.svd(a.astype(np.complex128), compute_uv=False)
        spectrum("svd", a, dtype, values)
        s, = run(lambda a: jnp.linalg.svd(a, compute_uv=False), a)
        near("svd", s, values, dtype, (m, n))
        seen.update(s.tobytes())
        if m == n:
            s = ((a + a.conj().T) / 2).astype(dtype)
            spectrum("eigh", s, dtype, None if bits else np.linalg.eigvalsh(s.astype(np.complex128)))
n, f32 = 230, np.float32
q, _ = np.linalg.qr(rng.standard_normal((n, n)))
for name, values in (("constant", None), ("zero", np.zeros(n)), ("diagonal", np.arange(n) - 7.0),
                     ("identity", np.ones(n)),
                     ("clusters", np.repeat([3.0, -1, 1e-3, 2, 0], n // 5)), ("large", 1e30 * np.arange(1, n + 1)),
                     ("small", 1e-30 * np.arange(1, n + 1)), ("graded", 0.8 ** np.arange(n)),
                     ("split", None)):
    if bits and name not in ("clusters", "split"):
        continue
    if name in ("zero", "diagonal", "identity"):
        a = np.diag(values).astype(f32)
    elif name == "constant":
        a, values = np.ones((n, n), f32), np.append(np.zeros(n - 1), n)
    elif name == "split":                # two blocks that know nothing of each other
        a = rng.standard_normal((n, n))
        a[:90, 90:] = a[90:, :90] = 0
        a = (a + a.T).astype(f32)
        values = np.linalg.eigvalsh(a.astype(np.float64))
    else:
        a = ((q * values) @ q.T).astype(f32)
        a = np.triu(a) + np.triu(a, 1).T
        values = np.linalg.eigvalsh(a.astype(np.float64))
    spectrum(name, a, f32, values)
both = jax.jit(lambda a: lax.linalg.eig(a, compute_left_eigenvectors=True))
for dtype, n in ((f32, 256), (f32, 331), (np.float64, 200), (f32, 192)):
    a = rng.standard_normal((n, n))
    if n == 192:                                     # a column set apart, and another scale than LAPACK works at
        a[:, 5], a[5, 5], a = 0, 3, a * 1e25
    a = a.astype(dtype)
    w, left, right = run(both, a)
    seen.update(w.tobytes() + left.tobytes() + right.tobytes())
    if not bits:
        size = np.linalg.norm(a.astype(np.float64), 2)
        near("eig", a / size @ right + 1, right * (w / size) + 1, dtype, a.shape)
        near("eig", left.conj().T @ (a / size) + 1, (w / size)[:, None] * left.conj().T + 1, dtype, a.shape)
        near("eig", np.linalg.norm(right, axis=0), np.ones(n), dtype, a.shape)
        values, = run(lambda a: lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False), a)
        near("eig", np.sort_complex(values / size), np.sort_complex(np.linalg.eigvals(a.astype(np.float64)) / size),
             dtype, a.shape)
n = 230
bad = rng.standard_normal((n, n)).astype(f32)
bad[3, 5] = np.nan
if not all(np.isnan(x).all() for x in run(jnp.linalg.svd, bad)):
    wrong.setdefault("svd", "of NaN is no NaN")
batch = rng.standard_normal((3, 200, 200)).astype(f32)
u, s, v = run(jnp.linalg.svd, batch)
near("svd", (u * s[:, None]) @ v, batch, f32, (200, 200))
seen.update(u.tobytes())

batch = rng.standard_normal((3, 150, 150))
inverse, = run(jnp.linalg.inv, batch)
near("batch", inverse @ batch, np.broadcast_to(np.eye(150), batch.shape), np.float32, batch.shape)
seen.update(inverse.tobytes())

if bits:
    print(seen.hexdigest())
    sys.exit()
for name in ("lu", "qr", "qr complete", "cholesky", "cholesky upper", "indefinite", "singular", "batch", "svd", "eigh",
             "eig",
             "constant",
             "zero", "diagonal", "identity", "clusters", "large", "small", "graded", "split"):
    print("FAIL jax_linalg %s: %s" % (name, wrong[name]) if name in wrong else "ok jax_linalg %s" % name)
found = {}
for n in ("1", "2", "5"):
    found[n] = subprocess.run([sys.executable, os.path.abspath(__file__), "bits"], capture_output=True, text=True,
                             env=dict(os.environ, XLANE_CPU_THREADS=n)).stdout.strip()
same = len(set(found.values())) == 1 and found["1"]
print("ok jax_linalg threads" if same else "FAIL jax_linalg threads: bits differ: %s" % found)
sys.exit(bool(wrong) or not same)
