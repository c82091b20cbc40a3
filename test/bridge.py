"""A function exported by JAX, called and differentiated from a C program: the losses of three AdamW steps are those of JAX. (Row T4)"""
import atexit, os, shutil, subprocess, sys, tempfile
import numpy as np
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax, jax.numpy as jnp
from jax import export

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
tmp = tempfile.mkdtemp(prefix="xlane-bridge-")
atexit.register(shutil.rmtree, tmp, ignore_errors=True)
env = dict(os.environ, XLANE_PLUGIN=os.path.join(ROOT, "build", "libxlane-cpu.so"),
           LD_LIBRARY_PATH=os.path.join(ROOT, "build"))
exe = os.path.join(tmp, "bridge")


def f(w, x):
    def body(c, row):
        return jnp.tanh(c + row * w), None
    c, _ = jax.lax.scan(body, jnp.zeros(4), x)
    return jnp.sin(x @ w) + c.sum()


def run(data):
    path = os.path.join(tmp, "f.bin")
    open(path, "wb").write(data)
    return subprocess.run([exe, path], capture_output=True, text=True, errors="replace", env=env)


def want():
    x = np.array([[((i * 7 + k * 3) % 5) * 0.5 - 1 for k in range(4)] for i in range(8)], np.float32)
    y = np.float32(0.1) * np.arange(8, dtype=np.float32)
    w, m, v, out = np.full(4, 0.5, np.float32), 0.0, 0.0, []
    both = jax.jit(jax.value_and_grad(lambda w: jnp.mean((f(w, x) - y) ** 2)))
    for t in range(1, 4):
        loss, g = both(w)
        out.append(float(loss))
        g = np.asarray(g, np.float64)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = (w - 0.05 * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)).astype(np.float32)
    return out


def main():
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", os.path.join(ROOT, "test", "tool", "bridge.c"),
                    "-I", ROOT + "/include", "-L", ROOT + "/build",
                    "-lxlane", "-o", exe], check=True)
    args = (jax.ShapeDtypeStruct((4,), jnp.float32), jax.ShapeDtypeStruct((8, 4), jnp.float32))
    one, two = export.export(jax.jit(f))(*args), export.export(jax.jit(f), platforms=("cpu", "cuda"))(*args)
    cuda = export.export(jax.jit(f), platforms=("cuda",))(*args)
    ref, bad = want(), 0
    for name, data in {"serialized": one.serialize(), "several_platforms": two.serialize(),
                       "artifact": one.mlir_module_serialized}.items():
        p = run(bytes(data))
        lines = p.stdout.strip().split("\n")
        ok = p.returncode == 0 and np.allclose([float(v) for v in lines[1:]], ref, rtol=1e-5)
        ok = ok and ("exported by JAX" in lines[0]) == (name != "artifact") and "custom calls: none" in lines[0]
        print(f"ok bridge_{name}" if ok else f"FAIL bridge_{name}: {p.stdout} {p.stderr} {ref}")
        bad += not ok
    p = run(bytes(cuda.serialize()))
    ok = p.returncode == 1 and "not made for xlane" in p.stderr
    print("ok bridge_refused" if ok else f"FAIL bridge_refused: {p.stdout} {p.stderr}")
    data, crash = bytes(one.serialize()), 0
    rng = np.random.default_rng(1)
    for k in range(60):                                     # cut and flipped: an error, never a crash
        b = bytearray(data[:rng.integers(1, len(data))] if k % 2 else data)
        for _ in range(4):
            b[rng.integers(0, len(b))] = rng.integers(0, 256)
        crash += run(bytes(b)).returncode < 0
    print("FAIL bridge_hostile: it crashed" if crash else "ok bridge_hostile")
    return bad + (not ok) + (crash > 0)


sys.exit(1 if main() else 0)
