"""The device under a hostile caller: a million wrong calls, a hundred thousand changed executables, a thousand cycles
of compile, execute and free. The executables to change are what JAX makes of programs of many kinds."""
import os, subprocess, sys, tempfile
from _jax import here
import numpy as np
import jax
import jax.numpy as jnp
build = os.environ.get("XLANE_BUILD", os.path.join(here, "build"))
lib = os.path.join(build, "libxlane-cpu.so")
tool = os.path.join(build, "test", "tool", "abuse")
counts = os.environ.get("XLANE_ABUSE", "1000000 100000 1000").split()

f = np.ones((4, 6), np.float32)
i = np.arange(6, dtype=np.int32)
img = np.ones((1, 8, 8, 2), np.float32)
k = np.ones((3, 3, 2, 4), np.float32)


def loss(w, x):
    return jnp.sum(jax.nn.softmax(jnp.tanh(x @ w)) ** 2)


def plan(blob):
    """What the device serialised, out of what jaxlib wraps around it: magic, format, version, sizes, options, program, checksum."""
    at = blob.index(b"XLANE-CPU-PLAN\n")
    version = int.from_bytes(blob[at + 24:at + 32], "little")
    size = at + 32 + version
    options, program = (int.from_bytes(blob[size + o:size + o + 8], "little") for o in (0, 8))
    return blob[at:size + 16 + options + program + 32]


programs = [
    (jax.grad(loss), np.ones((6, 3), np.float32), f),
    (lambda x: jax.lax.scan(lambda c, v: (c * 0.5 + v, c), x[0], x), f),
    (lambda x, j: x[:, j].at[1].add(2.0), f, i),
    (lambda x: (jnp.sort(x, axis=1), jnp.argmax(x, axis=0), jnp.cumsum(x)), f),
    (lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")), img,
     k),
    (lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), img),
    (lambda n: jax.random.normal(jax.random.key(n), (5,)), np.int32(3)),
    (lambda x: (jnp.linalg.qr(x), jnp.linalg.cholesky(x @ x.T + jnp.eye(4)), jnp.fft.rfft(x)), f),
    (lambda x: jax.lax.cond(x[0, 0] > 0, lambda v: v.astype(jnp.bfloat16), lambda v: (v * 2).astype(jnp.bfloat16), x),
     f),
]
with tempfile.TemporaryDirectory() as folder:
    seeds = []
    for n, (g, *args) in enumerate(programs):
        made = jax.jit(g).lower(*args).compile()
        blob = made._executable.xla_executable.serialize()
        seeds.append(os.path.join(folder, "%d.plan" % n))
        with open(seeds[-1], "wb") as out:
            out.write(plan(blob))
    run = subprocess.run([tool, lib, *counts, *seeds], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
for line in run.stdout.splitlines():
    print("  " + line[:300])
print("ok abuse" if run.returncode == 0 else "FAIL abuse: status %d" % run.returncode)
sys.exit(run.returncode != 0)
