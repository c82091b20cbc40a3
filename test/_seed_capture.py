"""Seeds for the fuzzer of captures: a manifest, and the bytes that it names."""
import hashlib
import json
import struct
import sys

blob = bytes(range(64))


def part(kind="f32", dims=(16,), n=64):
    return {"type": kind, "dims": list(dims), "at": 0, "bytes": n, "digest": hashlib.blake2b(blob[:n],
        digest_size=32).hexdigest()}


code = {k: v for k, v in part().items() if k in ("at", "bytes", "digest")}
program = {"module": "jit_f", "hlo": False, "code": code, "options": code, "devices": [0]}
step = {"program": 0, "number": 1, "devices": 1, "arguments": 1, "outputs": 1, "keep": [0], "in": [part()],
        "out": [part()]}
later = dict(step, **{"in": [{"from": 0, "out": 0}], "out": [{}]})
for i, m in enumerate([{"steps": [step], "programs": [program]}, {"steps": [step, later], "programs": [program],
    "rank": 1, "ranks": 2},
                       {"steps": [dict(step, out=[{"type": "i8", "dims": [64], "digest": "0" * 64}])],
                        "programs": [program], "run": {"bundle": {}}}]):
    text = json.dumps(dict(m, trigger="nonfinite", why="w", plugin="p", identity="i", flags="")).encode()
    head = b"XLCAP001" + struct.pack("<Q", len(text)) + hashlib.blake2b(text, digest_size=32).digest() + text
    with open(f"{sys.argv[1]}/capture{i}", "wb") as f:
        f.write(head + bytes(-len(head) % 64) + blob)
