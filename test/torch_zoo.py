"""Training steps of PyTorch/XLA (test/torch/zoo.py) on the embedded device beside PyTorch/XLA's own CPU device: every
loss of 20 steps and every gradient at step 20 agree to 1e-4; where they do not, ours must be nearer to f64, or as near
as PyTorch/XLA's CPU is to itself when its first parameters move by a rounding error. Needs build/venv-torch, which
`./x test all` makes
(test/torch_xla.py). The programs of these steps are kept in test/torch/programs/ as PyTorch/XLA sent them (HLO), and
run everywhere: planned against plain, and against XLA's CPU. usage: python test/torch_zoo.py [record | NAME ...]"""

import glob, json, lzma, os, subprocess, sys, tempfile
os.environ.setdefault("XLANE_CPU_CHECK", "1")        # every plan is checked against its program

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PYTHON = os.path.join(ROOT, "build", "venv-torch", "bin", "python")
SCRIPT, KEPT = os.path.join(HERE, "torch", "zoo.py"), os.path.join(HERE, "torch", "programs")
LIBRARY = {
    "PJRT_DEVICE": "LIBRARY",
    "PJRT_DYNAMIC_PLUGINS": "1",
    "PJRT_LIBRARY_PATH": os.environ.get("XLANE_CPU_PLUGIN", os.path.join(ROOT, "build", "libxlane-cpu.so")),
}
SOME = ["attention", "transformer_tanh"]  # of ./x test
ALL = os.environ.get("XLANE_TEST_ALL") == "1"


def recorded():
    """Each recorded program: planned against plain, and against XLA's CPU, which reads the HLO by itself."""
    with tempfile.TemporaryDirectory() as tmp:
        files = []
        for f in sorted(glob.glob(KEPT + "/*.xz")):
            files.append(os.path.join(tmp, os.path.basename(f)[:-3]))
            with lzma.open(f) as g, open(files[-1], "wb") as out:
                out.write(g.read())
        if not files:
            print("FAIL torch_zoo recorded: there are no programs in " + KEPT)
            return 1
        p = subprocess.run(
            [os.path.join(ROOT, "build", "test", "tool", "program"), "check", *files], text=True, capture_output=True
        )
        bad = p.returncode != 0 or "%d of %d" % (len(files), len(files)) not in p.stdout  # none that is not supported
        print("%s torch_zoo recorded: %s" % ("FAIL" if bad else "ok", (p.stdout + p.stderr).strip()), flush=True)
        import _run

        _run.jax.config.update("jax_enable_x64", True)  # labels are s64
        for f in files:
            bad |= beside_xla(f, tmp)
    return bad


def arguments(shapes, least):
    """Random numbers small enough that nothing saturates; integers serve as indices too."""
    import numpy as np

    rng, out = np.random.default_rng(1), []
    for s in shapes:
        dtype, dims = np.dtype(s.numpy_dtype()), s.dimensions()
        whole = dtype.kind in "biu"
        x = rng.integers(0, 2 if dtype.kind == "b" else 8, dims) if whole else rng.uniform(least, 0.2, dims)
        out.append(np.asarray(x).astype(dtype))
    return out


def beside_xla(path, tmp):
    """An output's distance is relative to its largest element, or to a thousandth of the largest of all: the gradient
    of a bias before a normalisation is nothing but rounding errors."""
    import _run
    import numpy as np
    from jaxlib import _hlo, _jax

    name = os.path.basename(path).split(".")[0]
    with open(path, "rb") as f:
        computation = _hlo.XlaComputation(f.read())
    text = _jax.mlir.xla_computation_to_mlir_module(computation)
    for least in (-0.2, 0.01):  # no roots of negative numbers
        args = arguments(computation.program_shape().parameter_shapes(), least)
        want = _run.run_text(text, args)
        floats = [np.abs(w.astype(np.float64)).max() for w in want if w.dtype.kind not in "biu" and w.size]
        if np.isfinite(floats).all():
            break
    command = [os.path.join(ROOT, "build", "xlane"), "exec", "--plugin=cpu", "--outputs=" + tmp, path]
    for i, a in enumerate(args):
        file = os.path.join(tmp, "in%d" % i)
        a.tofile(file)
        command.append("--input=%d=@%s" % (i, file))
    p = subprocess.run(command, text=True, capture_output=True)
    far = 0.0 if p.returncode == 0 and floats else np.inf
    for i, w in enumerate(want if far == 0 else []):
        x = np.fromfile(os.path.join(tmp, "out%d.bin" % i), w.dtype).reshape(w.shape)
        if w.dtype.kind in "biu":
            far = max(far, 0.0 if (x == w).all() else np.inf)
        elif w.size:
            w = w.astype(np.float64)
            d = np.abs(x.astype(np.float64) - w).max() / max(np.abs(w).max(), 1e-3 * max(floats))
            far = max(far, float(d) if np.isfinite(d) else np.inf)
    ok = far <= (2e-2 if "bf16" in text else 2e-4)
    print("%s torch_zoo beside_xla %s: %.1e apart in %d outputs%s"
          % ("ok" if ok else "FAIL", name, far, len(want), "" if ok else ": " + p.stderr), flush=True)
    return not ok


def train(env, out, names, command=()):
    p = subprocess.run(
        [*command, PYTHON, SCRIPT, out, *names], text=True, capture_output=True, env={**os.environ, **env}
    )
    if p.returncode or "RESULT" not in p.stdout:
        print("FAIL torch_zoo: %s" % (p.stdout[-1000:] + p.stderr[-3000:]), flush=True)
        sys.exit(1)


def record():
    """Has the guard record each model's programs, as PyTorch/XLA sent them; the largest is the training step."""
    os.makedirs(KEPT, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        command = [os.path.join(ROOT, "build", "xlane"), "run", "--runs", tmp + "/runs", "--cache=off", "--"]
        env = {**os.environ, **LIBRARY, "XLANE_STATE": tmp + "/state", "ZOO_STEPS": "2"}
        p = subprocess.Popen([*command, PYTHON, SCRIPT, tmp + "/out.npz"], text=True, stdout=subprocess.PIPE, env=env)
        seen = 0
        for line in p.stdout:
            (run,) = glob.glob(tmp + "/runs/2*")
            with open(run + "/events.jsonl") as f:
                programs = [e["program"] for e in map(json.loads, f) if e["event"] == "compile"]
            best = b""
            for hash in programs[seen:]:
                packed = f"{run}/programs/{hash}.zst"
                best = max(best, subprocess.run(["zstd", "-dc", packed], stdout=subprocess.PIPE).stdout, key=len)
            if best:
                with open(os.path.join(KEPT, line.split()[0] + ".hlo.pb.xz"), "wb") as f:
                    f.write(lzma.compress(best, preset=9 | lzma.PRESET_EXTREME))
            print(line.split()[0], len(best), flush=True)
            seen = len(programs)
    return p.wait()


def apart(a, b, m):
    """The furthest of model m's losses and gradients, relative to b's."""
    import numpy as np

    x, y = a[m + "/loss"], b[m + "/loss"]
    far = float(np.max(np.abs(x - y) / np.maximum(np.abs(y), 1e-3)))
    grads = [k for k in b if k.startswith(m + "/grad/")]
    whole = np.sqrt(sum(float((b[k].astype(np.float64) ** 2).sum()) for k in grads))
    for k in grads:
        d = np.linalg.norm((a[k].astype(np.float64) - b[k]).ravel()) / max(np.linalg.norm(b[k].ravel()), 1e-3 * whole)
        far = max(far, float(d)) if np.isfinite(d) else np.inf
    return far


def compare(names):
    import numpy as np

    bad = 0
    with tempfile.TemporaryDirectory() as tmp:

        def run(env, m=None):
            train(env, tmp + "/out.npz", [m] if m else names)
            return dict(np.load(tmp + "/out.npz"))

        own = {"PJRT_DEVICE": "CPU"}
        a, b = run(LIBRARY), run(own)
        for m in sorted({k.split("/")[0] for k in b}):
            far, why = apart(a, b, m), ""
            ok = far <= 1e-4
            if not ok and np.isfinite(far):  # as test/zoo.py has it: f64 decides, or how far rounding errors grow
                exact = run({**own, "ZOO_DOUBLE": "1"}, m)
                ours, theirs = apart(a, exact, m), apart(b, exact, m)
                itself = max(apart(run({**own, "ZOO_MOVED": str(k)}, m), b, m) for k in (1, 2, 3, 4))
                ok = ours <= theirs or far <= 2 * itself
                why = ", %.1e from f64 where its own CPU is %.1e" % (ours, theirs)
                why += ", and that is %.1e from itself a rounding error aside" % itself
            bad += not ok
            print(
                "%s torch_zoo %s: %.1e apart after 20 steps, loss %.5g to %.5g%s"
                % ("ok" if ok else "FAIL", m, far, a[m + "/loss"][0], a[m + "/loss"][-1], why),
                flush=True,
            )
    return bad


def main():
    if sys.argv[1:] == ["record"]:
        return record()
    bad = recorded()
    if not os.path.exists(os.path.join(ROOT, "build", "venv-torch", "done")):
        print("skip torch_zoo training: ./x test all installs torch and torch_xla (7 GB)")
        return bad
    return bad | bool(compare(sys.argv[1:] or ([] if ALL else SOME)))


if __name__ == "__main__":
    sys.exit(main())
