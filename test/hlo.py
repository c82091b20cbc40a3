"""HLO protos against jaxlib: each is read, verified and printed; jaxlib parses the text, and prints the same program.
Then jaxlib converts it to HLO again: XLA folds some reshapes on that way, so it is the second and the third generation
that must agree. Where it is simple, the text JAX made and the text we made of its HLO run on JAX's CPU and give the
same numbers."""
import glob
import os
import subprocess
import sys
import tempfile

import corpus
from _ir import Reader

RUN = ("arith", "unary", "integer", "compare", "mlp", "softmax", "layernorm", "reductions", "einsum", "shapes",
       "dynamic_slice", "gather",
       "scatter", "sort", "cumulative", "cond", "switch", "while", "fori", "scan", "scan_grad", "nested", "calls", "grad_mlp", "conv",
       "conv_dilated", "conv_grad", "pool", "pool_grad", "threefry", "fft", "complex", "constants", "iota", "bf16", "f8", "i4")


def layouts(put):
    """Layouts in an HLO module's shapes are what inference left there. A program whose result has another one than its
    argument takes its own result, as PyTorch/XLA passes gradients from one program to the next."""
    from jaxlib import _hlo
    module = _hlo.hlo_module_from_text("""HloModule turn, entry_computation_layout={(f32[3,3]{1,0})->f32[3,3]{0,1}}
        ENTRY main {
          p = f32[3,3]{1,0} parameter(0)
          t = f32[3,3]{0,1} transpose(p), dimensions={1,0}
          ROOT s = f32[3,3]{0,1} add(t, t)
        }""")
    build = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build")
    p = subprocess.run([build + "/test/tool/pjrt", "twice", build + "/libxlane-cpu.so",
                        put("turn.hlo.pb", module.as_serialized_hlo_module_proto())], capture_output=True, text=True)
    ok = p.stdout == " ".join(str(4 * i) for i in range(9)) + "\n"
    print("ok hlo layouts" if ok else f"FAIL hlo layouts: {p.stdout}{p.stderr}")
    return not ok


def main():
    folder = corpus.make()
    import jax
    import numpy as np
    from jax._src.interpreters import mlir
    from jaxlib import _jax
    from jaxlib.mlir import ir
    r, failed, same, unchanged, ran, tmp = Reader(), 0, 0, 0, 0, tempfile.mkdtemp()
    backend = jax.devices("cpu")[0].client

    def put(name, data):
        with open(os.path.join(tmp, name), "wb") as dst:
            dst.write(data)
        return os.path.join(tmp, name)

    def to_hlo(text):
        return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False,
                                                        return_tuple=False).as_serialized_hlo_module_proto()

    def run(text):
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            main = next(f for f in module.body.operations if f.operation.name == "func.func"
                        and ir.StringAttr(f.attributes["sym_name"]).value == "main")
            types = [str(t) for t in main.type.inputs]
            loaded = backend.compile_and_load(module, _jax.DeviceList((jax.devices("cpu")[0],)), _jax.CompileOptions(),
                                              [])
        args = []
        for i, t in enumerate(types):
            *dims, elem = t[len("tensor<"):-1].split("x")
            shape = [int(d) for d in dims]
            g = np.random.default_rng(i)
            if elem.startswith(("f", "bf")):
                a = g.uniform(0.1, 0.9, shape).astype(jax.numpy.dtype({"f32": "float32", "f16": "float16",
                    "bf16": "bfloat16", "f64": "float64"}[elem]))
            elif elem == "i1":
                a = g.integers(0, 2, shape).astype(bool)
            else:
                a = g.integers(1, 5, shape).astype({"i": "int", "u": "uint"}[elem[0]]
                                                   + ("8" if elem[-1] == "4" else elem.lstrip("ui")))
                if elem[-1] == "4":
                    a = a.astype(jax.numpy.dtype("int4"))
            args.append(jax.device_put(a, jax.devices("cpu")[0]))
        out = loaded.execute_sharded(args).disassemble_into_single_device_arrays()
        return [np.asarray(o[0]) for o in out]

    for f in sorted(glob.glob(f"{folder}/*.hlo.pb")):
        name = os.path.basename(f)[: -len(".hlo.pb")]
        try:
            first = r.hash(f)
            if not first.startswith("ok "):
                raise ValueError(first)
            verdict = r.ask(f"verify {f}")
            if verdict != "ok":
                raise ValueError("verify: " + verdict)
            text = r.text(f)
            with mlir.make_ir_context():
                theirs = str(ir.Module.parse(text))
            if r.hash(put("theirs.mlir", theirs.encode())) != first:
                raise ValueError(f"jaxlib's print of our text is another program; see {tmp}/theirs.mlir")
            generation = [first]
            ours = text
            for g in range(2):
                again = put(f"{name}.{g}.hlo.pb", to_hlo(ours))
                generation.append(r.hash(again))
                ours = r.text(again)
            if generation[1] != generation[2]:
                raise ValueError(f"no fixed point: {generation}; see {tmp}/{name}.*.hlo.pb")
            same += 1
            unchanged += generation[0] == generation[1]
            if name in RUN:
                with open(os.path.join(folder, name + ".mlir")) as src:
                    want = run(src.read())
                got = run(text)
                if len(want) != len(got) or not all(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a,
                                                    b in zip(want, got)):
                    raise ValueError("the numbers differ")
                ran += 1
        except Exception as e:
            failed += 1
            print(f"FAIL hlo {name}: {type(e).__name__}: {str(e)[:600]}")
    failed += layouts(put)
    if not failed:
        print(f"ok hlo round trip: {same} programs, {unchanged} of them as they were from the first")
        print(f"ok hlo numbers: {ran} programs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
