"""Whole programs on the embedded device, planned against plain (XLANE_CPU_PLAN=plain), and a part of them against
XLA's own CPU: random ones (test/tool/program_gen.h), forward and differentiated, and those of the corpus. The seed of
each is printed with it, and `build/test/tool/program random SEED NUMBER 1` runs it again; a program that fails is
reduced, printed, and left in build/ for `xlane exec`."""

import os, re, subprocess, sys, tempfile
import _run  # XLA's CPU; sets up JAX
import numpy as np
import jax
import ml_dtypes

jax.config.update("jax_enable_x64", True)

TOOL = os.path.join(_run.ROOT, "build", "test", "tool", "program")
ALL = os.environ.get("XLANE_TEST_ALL") == "1"
SEED, COUNT, BESIDE_XLA = 7, 20000 if ALL else 300, 400 if ALL else 16
DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "ui64": np.uint64,
}


def tool(*args):
    r = subprocess.run(
        [TOOL, *map(str, args)],
        capture_output=True,
        text=True,
        env=dict(os.environ, XLANE_FOUND=os.path.join(_run.ROOT, "build")),
    )
    return r.returncode, r.stdout


def beside_xla(number, folder):
    """How the device differs from XLA's CPU on program `number`, or None. Allowed are eight times what is allowed from
    planned to plain: XLA approximates functions by other polynomials."""
    rc, said = tool("dump", SEED, number, folder)
    if rc or said.strip() != "ok":
        return said.strip()
    text = open(os.path.join(folder, "program.mlir")).read()
    text = re.sub(r" ?\{[^{}]*xlane\.below[^{}]*\}| ?\{tf\.aliasing_output[^{}]*\}", "", text)
    head = re.search(r"@main\((.*?)\) -> (.*?) \{\n", text, re.S)
    types = lambda s: [
        (DTYPES[t.split("x")[-1]], tuple(int(d) for d in t.split("x")[:-1])) for t in re.findall(r"tensor<([^<>]*)>", s)
    ]
    load = lambda what, i, t: np.fromfile(os.path.join(folder, "%s%d.bin" % (what, i)), t[0]).reshape(t[1])
    args = [load("arg", i, t) for i, t in enumerate(types(head.group(1)))]
    want = _run.run_text(text, args)
    for i, t in enumerate(types(head.group(2))):
        got, tol = load("out", i, t).astype(np.float64), load("tol", i, (np.float32, t[1])).astype(np.float64)
        w = want[i].astype(np.float64)
        with np.errstate(all="ignore"):
            far = ~((np.abs(got - w) <= 8 * tol + 1e-30) | (tol < 0) | (got == w) | (np.isnan(got) & np.isnan(w)))
        if far.any():
            at = np.unravel_index(np.argmax(far), far.shape)
            return "result %d: %d of %d elements differ, element %s is %g, XLA's %g, allowed are %g" % (
                i,
                far.sum(),
                far.size,
                at,
                got[at],
                w[at],
                8 * tol[at],
            )
    return None


def main():
    rc, said = tool("random", SEED, 0, COUNT)
    print(said, end="")
    bad = rc
    sys.path.insert(0, os.path.join(_run.ROOT, "test"))
    import corpus

    folder = corpus.make()
    files = sorted(
        os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".mlir") and not f.endswith(".loc.mlir")
    )
    rc, said = tool("check", *files)
    print("\n".join(l for l in said.split("\n") if not l.startswith("not run ")), end="")
    bad |= rc
    ran = 0
    with tempfile.TemporaryDirectory() as tmp:
        for number in range(BESIDE_XLA):
            try:
                why = beside_xla(number, os.path.join(tmp, str(number)))
            except Exception as e:
                why = str(e).split("\n")[0][:300]
                if "UNIMPLEMENTED" in why:  # by XLA
                    continue
            ran += 1
            if why:
                print("FAIL program %d of seed %d beside XLA's CPU: %s" % (number, SEED, why))
                bad = 1
    if not bad:
        print("ok random programs beside XLA's CPU: %d of %d" % (ran, BESIDE_XLA))
    return bad


if __name__ == "__main__":
    sys.exit(main())
