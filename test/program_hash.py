"""One program or two? The same step written with other variable names, lines and comments has one hash, in every
format; a changed constant, dimension, direction of a comparison or precision has another, and `xlane diff` names it
with its source line."""
import io
import json
import os
import subprocess
import sys
import tempfile

import corpus

XLANE = os.path.join(os.environ.get("B", os.path.join(corpus.ROOT, "build")), "xlane")
failed = 0

STEP = '''
import jax
import jax.numpy as jnp

def step(w, x, y):
    h = jnp.dot(x, w, precision="default")
    z = jnp.where(h > 0.5, h, 0.25)
    return ((z - y) ** 2).mean()

shapes = (16, 4), (8, 16), (8, 4)
'''
RENAMED = '''"""The same, by somebody else."""
import jax
import jax.numpy as jnp


# what is learnt, what comes in, what should come out
def step(weights, inputs, target):
    # one layer
    hidden = jnp.dot(inputs,
                     weights,
                     precision="default")

    gated = jnp.where(hidden > 0.5, hidden, 0.25)   # leaky
    return ((gated - target) ** 2).mean()


shapes = (16, 4), (8, 16), (8, 4)
'''
CHANGED = {
    "constant": ("0.25)", "0.125)", "constant", 7),
    "dimension": ("(16, 4), (8, 16)", "(24, 4), (8, 24)", "shape", None),
    "comparison direction": ("h > 0.5", "h < 0.5", "op", 7),
    "precision": ('"default"', '"highest"', "op", 6),
}


def tell(name, ok, why=""):
    global failed
    failed += not ok
    print(f"ok {name}" if ok else f"FAIL {name}: {why}")


def forms(folder, name, source):
    """Writes the program of a Python source as text, text with locations and bytecode, and as HLO."""
    import jax
    from jaxlib import _jax
    path = os.path.join(folder, name + ".py")
    with open(path, "w") as f:
        f.write(source)
    space = {}
    exec(compile(source, path, "exec"), space)
    lowered = jax.jit(jax.grad(space["step"])).lower(*(jax.ShapeDtypeStruct(s, "float32") for s in space["shapes"]))
    module = lowered.compiler_ir("stablehlo")
    out = {"text": lowered.as_text().encode(), "located": lowered.as_text(debug_info=True).encode()}
    with module.context:
        buf = io.BytesIO()
        module.operation.write_bytecode(file=buf)
        out["bytecode"] = buf.getvalue()
        out["artifact"] = _jax.mlir.serialize_portable_artifact(module, "1.9.0", use_mixed_serialization=True)
        out["hlo"] = _jax.mlir.mlir_module_to_xla_computation(module.operation.get_asm(enable_debug_info=True),
            use_tuple_args=False, return_tuple=False).as_serialized_hlo_module_proto()
    paths = {}
    for kind, data in out.items():
        paths[kind] = os.path.join(folder, f"{name}.{kind}")
        with open(paths[kind], "wb") as f:
            f.write(data)
    return paths


def xlane(*args):
    return subprocess.run([XLANE, *args], capture_output=True, text=True)


def hashes(paths):
    return {kind: xlane("print", "--hash", p).stdout.strip() for kind, p in paths.items()}


def main():
    with tempfile.TemporaryDirectory() as folder:
        first = forms(folder, "train", STEP)
        ours = hashes(first)
        tell("same: text, bytecode and artifact have one hash", len({h for k, h in ours.items() if k != "hlo"}) == 1
             and all(len(h) == 64 for h in ours.values()), ours)
        other = forms(folder, "other", RENAMED)
        tell("same: other names, lines and comments, one hash", hashes(other) == ours, f"{ours} {hashes(other)}")
        for kind in first:
            r = xlane("diff", first[kind], other[kind])
            tell(f"same: diff finds nothing in {kind}", r.returncode == 0 and "the same program" in r.stdout,
                 r.stdout + r.stderr)
        # the text by hand: values renamed, blanks and comments put in
        text = open(first["text"]).read().replace("%arg0", "%weights").replace("%0", "%first_of_all").replace("\n",
            "   // said\n\n")
        by_hand = os.path.join(folder, "by_hand.mlir")
        open(by_hand, "w").write(text)
        tell("same: text with other names and comments", hashes({"t": by_hand})["t"] == ours["text"], text[:400])
        for what, (old, new, kind, line) in CHANGED.items():
            assert old in STEP
            changed = forms(folder, "train_" + what.split()[0], STEP.replace(old, new))
            theirs = hashes(changed)
            tell(f"same: another {what}, another hash", all(theirs[k] != ours[k] and len(theirs[k]) == 64 for k
                                                            in ours), f"{ours} {theirs}")
            for form in "located", "bytecode", "artifact", "hlo":
                r = xlane("diff", "--json", first[form], changed[form])
                d = json.loads(r.stdout)["detail"] if r.stdout else []
                said = [e for e in d if e["what"] == kind and (line is None
                    or e.get("where", "").endswith(f".py:{line}"))]
                tell(f"same: diff names the {what} in {form}", r.returncode == 1 and said, f"{r.stdout}{r.stderr}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
