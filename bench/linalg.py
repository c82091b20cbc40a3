"""Decompositions, Fourier transforms, sorting, scatters and convolutions on the embedded device beside JAX's CPU, in
one process and one run.

    ./x bench linalg               all rows
    build/venv/bin/python bench/linalg.py svd     rows whose name has `svd` in it

Times are the best of several, the devices taking turns of three calls. The ratio is JAX's time by ours: above 1 we are
faster."""
import os, sys, time
sys.path[0] = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test")
from _jax import here, lib
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax

cpu, xl = jax.devices("cpu")[0], jax.devices("xlane")[0]
only = sys.argv[1] if len(sys.argv) > 1 else ""
seconds = float(os.environ.get("XLANE_BENCH_SECONDS", "1"))
rng = np.random.default_rng(0)
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)


def rows(n):
    a, b = f32(n, n), f32(n, n)
    s = (a @ a.T + n * np.eye(n)).astype(np.float32)
    line = f32(n * 64)
    where = rng.integers(0, n, n * 64).astype(np.int32)
    image, kernel = f32(1, n, n, 16), f32(5, 5, 16, 16)
    return [("svd", jnp.linalg.svd, (a,)), ("eigh", jnp.linalg.eigh, (s,)), ("eig", jnp.linalg.eig, (a,)),
            ("qr", jnp.linalg.qr, (a,)),
            ("cholesky", jnp.linalg.cholesky, (s,)), ("solve", jnp.linalg.solve, (a, b)), ("inv", jnp.linalg.inv, (a,)),
            ("fft", jnp.fft.fft, (a.astype(np.complex64),)), ("fft2", jnp.fft.fft2, (a.astype(np.complex64),)),
            ("top_k", lambda x: lax.top_k(x, 32), (a,)), ("sort", lambda x: jnp.sort(x, -1), (a,)), ("sort long",
                jnp.sort, (line,)),
            ("scatter-add", lambda x, i: jnp.zeros(n, jnp.float32).at[i].add(x), (line, where)),
            ("scatter-add rows", lambda x, i: jnp.zeros((n, 64), jnp.float32).at[i].add(x),
             (f32(n * 4, 64), where[:n * 4])),
            ("conv 5x5", lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC")), (image, kernel))]


def best(fns):
    out, end, turns = [float("inf")] * len(fns), time.perf_counter() + seconds * len(fns), 0
    while turns < 2 or time.perf_counter() < end:
        for i, f in enumerate(fns):
            # OpenBLAS's threads spin on after a call: the other device's must sleep
            time.sleep(0.05)
            for _ in range(3):
                t = time.perf_counter()
                f()
                out[i] = min(out[i], time.perf_counter() - t)
        turns += 1
        if turns >= 2 and sum(out) > seconds:
            break
    return out


print("%-22s %6s %11s %11s %7s" % ("", "n", "ours, ms", "JAX, ms", "ratio"))
low = 0
for n in (64, 256, 512, 1024):
    for name, fn, args in rows(n):
        if only not in name:
            continue
        calls = []
        for d in (xl, cpu):
            jitted, put = jax.jit(fn), [jax.device_put(a, d) for a in args]
            calls.append(lambda jitted=jitted, put=put: jax.block_until_ready(jitted(*put)))
            calls[-1]()
        ours, theirs = best(calls)
        low += theirs / ours < 0.9
        print("%-22s %6d %11.3f %11.3f %7.2f%s" % (name, n, ours * 1e3, theirs * 1e3, theirs / ours,
                                                   "  <-- below 0.9" if theirs / ours < 0.9 else ""), flush=True)
print("%d rows below 0.9" % low)
