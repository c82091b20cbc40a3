"""Reading a GPT training step: our readers against jaxlib's, in one run, on the same bytes. Best of many; at least 5x is wanted."""
import datetime
import os
import platform
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test"))
import corpus  # noqa: E402
from _ir import Reader  # noqa: E402

folder = corpus.make()

from jax._src.interpreters import mlir as jax_mlir  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402
from jaxlib.mlir.dialects import stablehlo  # noqa: E402


def theirs(data, vhlo):
    best = 1e9
    with jax_mlir.make_ir_context() as ctx:
        for _ in range(30):
            t = time.perf_counter()
            m = stablehlo.deserialize_portable_artifact(ctx, data) if vhlo else ir.Module.parse(data)
            best = min(best, time.perf_counter() - t)
            del m
    return best


reader, slow = Reader(), 0
for what, name in [("text", "gpt_step.mlir"), ("text with locations", "gpt_step.loc.mlir"),
                   ("native bytecode", "gpt_step.bc"), ("VHLO", "gpt_step.v1.17.0.bc")]:
    path = os.path.join(folder, name)
    data = open(path, "rb").read()
    them = theirs(data.decode() if name.endswith("mlir") else data, what == "VHLO")
    answer = reader.ask(f"time {path} 100")
    if not answer.startswith("ok "):
        sys.exit(f"FAIL {what}: {answer}")
    us = float(answer[3:])
    slow += them / us < 5
    print(f"| {datetime.date.today()} | {platform.machine()}, {os.cpu_count()} cores | `./x bench ir` | reading a GPT step, {what}, {len(data)} bytes | "
          f"{us * 1e3:.2f} ms ({len(data) / us / 1e6:.0f} MB/s); jaxlib {them * 1e3:.2f} ms; {them / us:.1f}x |")
sys.exit(1 if slow else 0)
