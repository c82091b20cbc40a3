"""Seeds for the safetensors fuzzer."""
import json
import struct
import sys

for i, head in enumerate([{}, {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2, 2],
    "data_offsets": [0, 16]}},
                          {"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},
                           "b": {"dtype": "I8", "shape": [], "data_offsets": [6, 7]}}]):
    text = json.dumps(head).encode()
    size = max([h["data_offsets"][1] for k, h in head.items() if "data_offsets" in h], default=0)
    with open(f"{sys.argv[1]}/t{i}", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + bytes(range(size)))
