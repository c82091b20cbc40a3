"""Seeds for the fuzzer of cache entries: header, manifest, body."""
import json
import struct
import sys

for i, parts in enumerate([{}, {"program": "ab", "plugin": "cpu"}, {"program": "0" * 64, "flags": "--xla_a=1 --xla_b",
    "options": "z"}]):
    manifest = json.dumps({"module": "jit_f", "created": 1.5 * i, "host": "h", "parts": parts}).encode()
    body = bytes.fromhex("28b52ffd0402090000616263")[: 4 * i]
    with open(f"{sys.argv[1]}/entry{i}", "wb") as f:
        f.write(b"XLANEXE1" + struct.pack("<QQQdQ", len(manifest), len(body), 3, 0.25, 0) + manifest + body)
