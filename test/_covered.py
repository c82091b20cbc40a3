"""test/ops.covered, read: what belongs to each row of src/ir/ops.def besides its functions."""
import os

HERE = os.path.dirname(os.path.abspath(__file__))


def covered(kind):
    """{op or rule: the name that its line of this kind gives}, without those that have a reason instead."""
    with open(os.path.join(HERE, "ops.covered"), encoding="utf-8") as f:
        rows = [line.split() for line in f if line.startswith(kind + " ")]
    return {r[1]: " ".join(r[2:]) for r in rows if r[2:3] != ["-"]}
