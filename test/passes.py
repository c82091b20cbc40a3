"""The passes leave the numbers as they are: each program of the corpus, before and after them, run by jaxlib's own CPU
backend on the same inputs.

usage: python test/passes.py [NAME ...]       (B=build folder)
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import corpus  # noqa: E402  (sets the device count before jax starts)

XLANE = os.path.join(os.environ.get("B", os.path.join(os.path.dirname(HERE), "build")), "xlane")
# Left out: more than one device, or results that are meant to differ from run to run.
SKIP = re.compile(r"rng_uniform|shard|all_|reduce_scatter|permute|psum|pmax|constraint|manual|collective|mesh|infeed|outfeed|callback|custom_call|poly|token|axis")


def main():
    import numpy as np
    import jax
    import ml_dtypes  # noqa: F401
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir as jmlir
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir
    from jaxlib import xla_client
    folder = corpus.make()                                   # before the switch: its programs are written without it
    jax.config.update("jax_enable_x64", True)
    backend = xla_bridge.get_backend("cpu")
    device = backend.local_devices()[0]
    names = sys.argv[1:] or sorted(f[:-5] for f in os.listdir(folder) if f.endswith(".mlir")
                                   and not f.endswith(".loc.mlir"))
    ctx = jmlir.make_ir_context()
    rng = np.random.default_rng(0)
    done, failed, skipped = 0, 0, []

    def compile_(text):
        with ctx:
            module = ir.Module.parse(text)
            types = [ir.RankedTensorType(t) for op in module.body.operations if op.operation.name == "func.func"
                     and ir.StringAttr(op.operation.attributes["sym_name"]).value == "main"
                     for t in op.type.inputs]
            shapes = [(tuple(t.shape), jmlir.ir_type_to_dtype(t.element_type) if hasattr(jmlir, "ir_type_to_dtype")
                       else str(t.element_type)) for t in types]
            blob = module.operation.get_asm(binary=False, enable_debug_info=False)
        options = xla_client.CompileOptions()
        return backend.compile_and_load(blob, _jax.DeviceList((device,)), options), shapes

    dtypes = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i1": np.bool_,
              "complex<f32>": np.complex64, "complex<f64>": np.complex128}
    for n in (8, 16, 32, 64):
        dtypes[f"i{n}"], dtypes[f"ui{n}"] = np.dtype(f"int{n}"), np.dtype(f"uint{n}")

    def make(shape, name):
        dt = np.dtype(dtypes[name])
        if dt.kind == "b":
            return rng.random(shape) < 0.5
        if dt.kind in "iu":
            return rng.integers(0, 3, shape).astype(dt)
        return (rng.random(shape) + 0.25).astype(dt)

    for name in names:
        if SKIP.search(name):
            skipped.append(name)
            continue
        if os.environ.get("VERBOSE"):
            print(name, file=sys.stderr, flush=True)
        path = os.path.join(folder, name + ".mlir")
        text = open(path).read()
        if "custom_call" in text:  # its target may not be loaded in this process
            skipped.append(name)
            continue
        r = subprocess.run([XLANE, "print", "--optimise", path], capture_output=True, text=True)
        if r.returncode:
            failed += 1
            print(f"FAIL passes: {name}: {r.stderr.strip()}")
            continue
        try:
            before, shapes = compile_(text)
            args = [make(s, d) for s, d in shapes]
        except Exception as e:  # a program that this backend does not take, with or without us
            skipped.append(f"{name} ({str(e).splitlines()[0][:60] if str(e) else type(e).__name__})")
            continue
        try:
            after, _ = compile_(r.stdout)
            outs = []
            for exe in (before, after):
                put = [jax.device_put(a, device) for a in args]  # anew: a program may take its arguments for itself
                outs.append([np.asarray(o[0]) for o
                             in exe.execute_sharded(put).disassemble_into_single_device_arrays()])
            for i, (x, y) in enumerate(zip(*outs)):
                if x.dtype.kind in "iub":
                    ok = np.array_equal(x, y)
                else:
                    wide = np.complex128 if x.dtype.kind == "c" else np.float64
                    eps = {2: 2e-2, 4: 2e-5}.get(x.dtype.itemsize, 1e-6)
                    ok = x.shape == y.shape and np.allclose(x.astype(wide), y.astype(wide), rtol=eps, atol=eps,
                                                            equal_nan=True)
                if not ok:
                    raise AssertionError(f"result {i} differs")
            done += 1
        except Exception as e:
            failed += 1
            print(f"FAIL passes: {name}: {str(e).splitlines()[0]}")
    if skipped:
        print(f"skip passes: {len(skipped)} programs: {', '.join(skipped)}")
    if not failed and (done >= 40 or sys.argv[1:]):
        print(f"ok passes: {done} programs give the same numbers")
    elif not failed:
        print(f"FAIL passes: only {done} programs ran")
        failed = 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
