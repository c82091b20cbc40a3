"""Round trips judged by jaxlib: every program of the corpus, in every format, is read and printed by us; MLIR's own
parser takes the text, writes it again as text, generic text, native bytecode and VHLO; each of these read again is the
same program."""
import collections
import glob
import io
import os
import re
import sys
import tempfile

import corpus
from _covered import covered
from _ir import Reader

folder = corpus.make()

from jax._src.interpreters import mlir as jax_mlir  # noqa: E402  (after corpus has set the flags)
from jaxlib import _jax  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402
from jaxlib.mlir.dialects import stablehlo  # noqa: E402

reader = Reader()
only = [a for a in sys.argv[1:] if not a.startswith("-")]
tmp = tempfile.mkdtemp()
counts, failed, met = collections.Counter(), 0, collections.defaultdict(set)  # ops of each program


def rewritten(text, artifacts):
    """The forms in which jaxlib gives the program back."""
    with jax_mlir.make_ir_context():
        m = ir.Module.parse(text)
        yield "text", m.operation.get_asm().encode()
        yield "generic", m.operation.get_asm(print_generic_op_form=True).encode()
        native = io.BytesIO()
        m.operation.write_bytecode(file=native)
        yield "bytecode", native.getvalue()
        if not artifacts:
            return
        if "chlo." not in text and "sdy." not in text:
            yield "vhlo", stablehlo.serialize_portable_artifact_str(text, stablehlo.get_current_version())
        # what a plugin receives: XLA tidies the program up on this way, so it is compared with what jaxlib makes of the
        # same bytes
        sent = _jax.mlir.serialize_portable_artifact(m, stablehlo.get_current_version(), use_mixed_serialization=True)
        back = _jax.mlir.deserialize_portable_artifact(sent)
        yield "sent", sent
        yield "sent as text", back.operation.get_asm().encode() if hasattr(back, "operation") else str(back).encode()


def check(path, name, artifacts=True):
    h = reader.hash(path)
    if not h.startswith("ok "):
        return h
    text = reader.text(path)
    met[name].update(re.findall(r"\b(?:stablehlo|chlo|sdy|func)\.[\w-]+", text))
    if text in seen:
        return None if seen[text] == h else "the same text has two hashes"
    try:
        for form, data in rewritten(text, artifacts):
            again = os.path.join(tmp, "again." + form.replace(" ", "_"))
            with open(again, "wb") as f:
                f.write(data)
            g = reader.hash(again)
            want = h if not form.startswith("sent") else sent if form == "sent as text" else g if g.startswith("ok ") else "a program"
            if g != want:
                return f"{form}: {g}, not {want}"
            sent = g
    except Exception as e:
        return "jaxlib: " + " ".join(str(e).split())[:300]
    seen[text] = h
    return None


def forms():
    """Programs written by hand; each must come back from jaxlib in every form that jaxlib can write it in."""
    with open(os.path.join(corpus.HERE, "forms.mlir")) as f:
        parts = f.read().split("\n// ----- ")[1:]
    for part in parts:
        name, text = part.split("\n", 1)
        path = os.path.join(tmp, "form.mlir")
        with open(path, "w") as f:
            f.write(text)
        yield name, path


names = sorted({os.path.basename(f).split(".")[0] for f in glob.glob(os.path.join(folder, "*.mlir"))})
for name in names:
    if only and name not in only:
        continue
    seen, bad = {}, []
    files = sorted(glob.glob(os.path.join(folder, name + ".*")))
    for f in files:
        why = check(f, name)
        counts[f.split(".")[-1]] += 1
        if why:
            bad.append(f"{os.path.basename(f)}: {why}")
    alike = {reader.hash(f) for f in files if f.endswith(".mlir") or f == os.path.join(folder, name + ".bc")}
    if len(alike) > 1:
        bad.append("text, text with locations and native bytecode are not one program")
    if bad:
        failed += 1
        print(f"FAIL roundtrip {name}: " + "; ".join(bad[:4]))
    else:
        print(f"ok roundtrip {name} ({len(files)} files)")
for name, path in forms() if not only or "forms" in only else ():
    seen = {}
    with jax_mlir.make_ir_context():                       # it is a program to begin with
        ir.Module.parse(open(path).read())
    why = check(path, "forms.mlir " + name, artifacts=False)
    failed += why is not None
    print(f"FAIL roundtrip form {name}: {why}" if why else f"ok roundtrip form {name}")


if not only:
    for f in glob.glob(os.path.join(corpus.HERE, "cases", "*.mlir")):
        with open(f, encoding="utf-8") as text:
            met["cases/" + os.path.basename(f)].update(re.findall(r"\b(?:stablehlo|chlo)\.\w+", text.read()))
    lies = [f"{name} has no {op}" for op, name in covered("program").items() if op not in met[name]]
    failed += bool(lies)
    print(f"FAIL roundtrip every_op: test/ops.covered: {'; '.join(lies)}" if lies else "ok roundtrip every_op")
print(f"# {len(names)} programs: {dict(counts)}", file=sys.stderr)
sys.exit(1 if failed else 0)
