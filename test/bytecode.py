"""Bytecode against its judges: each program of the corpus has one hash, read from text or from bytecode.

Native bytecode holds what the text holds. A portable artifact holds what XLA made of it for the wire (constants moved,
CHLO expanded), so its text is what jaxlib says the artifact means. Old versions come from jaxlib, downgraded. Then
damage: cut at every place and with bytes changed, an artifact is refused or read, never the end of the reader."""
import glob
import os
import random
import re
import sys
import tempfile

import corpus
from _ir import Reader


def main():
    folder = corpus.make()
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
    r, failed, tmp = Reader(), 0, tempfile.mkdtemp()
    native = artifacts = 0
    by_version = {}

    def check(name, a, b):
        nonlocal failed
        if a != b or not a.startswith("ok "):
            failed += 1
            print(f"FAIL {name}: {a} from bytecode, {b} from text")
            return False
        return True

    for text in sorted(glob.glob(f"{folder}/*.mlir")):
        if text.endswith(".loc.mlir"):
            continue
        base = text[: -len(".mlir")]
        if os.path.exists(base + ".bc"):
            native += check(os.path.basename(base) + ".bc", r.hash(base + ".bc"), r.hash(text))
        for f in sorted(glob.glob(glob.escape(base) + ".v*.bc")):
            version = re.search(r"\.v([\d.]+)\.bc$", f)[1]
            with mlir.make_ir_context() as ctx:
                with open(f, "rb") as src:
                    meant = stablehlo.deserialize_portable_artifact(ctx, src.read())
                said = os.path.join(tmp, "meant.mlir")
                with open(said, "w") as dst:
                    dst.write(str(meant))
            if check(os.path.basename(f), r.hash(f), r.hash(said)):
                artifacts += 1
                by_version[version] = by_version.get(version, 0) + 1
    if not failed:
        print(f"ok bytecode native: {native} programs")
        for v in sorted(by_version, key=lambda v: [int(x) for x in v.split(".")]):
            print(f"ok bytecode vhlo {v}: {by_version[v]} programs")

    # the source line that the text with locations has
    lines = 0
    for name in ("mlp", "scan", "conv", "gpt_small"):
        for n in range(3):
            a, b = r.ask(f"line {folder}/{name}.bc {n}"), r.ask(f"line {folder}/{name}.loc.mlir {n}")
            if b == "ok :0":                               # the return has none
                continue
            if a != b:
                failed += 1
                print(f"FAIL bytecode locations: {name} op {n}: {a}, not {b}")
            else:
                lines += 1
    if lines < 8:
        failed += 1
        print(f"FAIL bytecode locations: only {lines} ops have one")
    else:
        print(f"ok bytecode locations: {lines} ops")

    random.seed(3)
    refused = read = 0
    hurt = os.path.join(tmp, "hurt.bc")
    for name in ("sharded.v1.17.0", "gather.v0.9.0", "while", "precision.v1.16.2", "conv"):
        path = f"{folder}/{name}.bc"
        if not os.path.exists(path):
            continue
        whole = open(path, "rb").read()
        cases = [whole[:n] for n in range(0, len(whole), max(1, len(whole) // 150))]
        for _ in range(150):
            b = bytearray(whole)
            for _ in range(random.randint(1, 4)):
                b[random.randrange(4, len(b))] = random.randrange(256)
            cases.append(bytes(b))
        for c in cases:
            with open(hurt, "wb") as dst:
                dst.write(c)
            a = r.hash(hurt)
            refused += a.startswith("error ")
            read += a.startswith("ok ")
    if refused == 0:
        failed += 1
        print("FAIL bytecode damage: nothing was refused")
    else:
        print(f"ok bytecode damage: {refused} refused, {read} still a program")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
