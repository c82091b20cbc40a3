"""Training steps of PyTorch/XLA (test/torch/zoo.py) on the embedded device beside PyTorch/XLA's own CPU device: every
loss of 20 steps and every gradient at step 20 agree to 1e-4; where they do not, ours must be nearer to f64, or as near
as PyTorch/XLA's CPU is to itself when its first parameters move by a rounding error. Needs build/venv-torch, which
`./x test all` makes
(test/torch_xla.py). The programs of these steps are kept in test/torch/programs/ as the guard recorded them, and run
everywhere, planned against plain. usage: python test/torch_zoo.py [record | NAME ...]"""

import glob, gzip, os, re, subprocess, sys, tempfile
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
    """Each recorded program, planned against plain."""
    with tempfile.TemporaryDirectory() as tmp:
        files = []
        for f in sorted(glob.glob(KEPT + "/*.gz")):
            files.append(os.path.join(tmp, os.path.basename(f)[:-3]))
            with gzip.open(f) as g, open(files[-1], "wb") as out:
                out.write(g.read())
        if not files:
            print("FAIL torch_zoo recorded: there are no programs in " + KEPT)
            return 1
        p = subprocess.run(
            [os.path.join(ROOT, "build", "test", "tool", "program"), "check", *files], text=True, capture_output=True
        )
    print(p.stdout.replace("ok ", "ok torch_zoo recorded: ", 1) if p.returncode == 0 else p.stdout, end="", flush=True)
    return p.returncode


def train(env, out, names, command=()):
    p = subprocess.run(
        [*command, PYTHON, SCRIPT, out, *names], text=True, capture_output=True, env={**os.environ, **env}
    )
    if p.returncode or "RESULT" not in p.stdout:
        print("FAIL torch_zoo: %s" % (p.stdout[-1000:] + p.stderr[-3000:]), flush=True)
        sys.exit(1)


def record():
    """Has the guard record each model's programs; the largest is the training step."""
    os.makedirs(KEPT, exist_ok=True)
    sys.path.insert(0, os.path.join(HERE, "torch"))
    names = [l.split('"')[1] for l in open(SCRIPT) if re.match('    "[a-z_]+": ', l)]
    for name in names:
        with tempfile.TemporaryDirectory() as tmp:
            env = {**LIBRARY, "XLANE_STATE": tmp + "/state", "ZOO_STEPS": "3"}
            train(
                env,
                tmp + "/out.npz",
                [name],
                [os.path.join(ROOT, "build", "xlane"), "run", "--runs", tmp + "/runs", "--cache", tmp + "/cache", "--"],
            )
            best = b""
            for f in glob.glob(tmp + "/runs/*/programs/*"):
                p = subprocess.run([os.path.join(ROOT, "build", "xlane"), "print", f], capture_output=True)
                best = max(best, p.stdout, key=len)
            with open(os.path.join(KEPT, name + ".mlir.gz"), "wb") as f:
                f.write(gzip.compress(best, 9, mtime=0))
            print(name, len(best), flush=True)


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
