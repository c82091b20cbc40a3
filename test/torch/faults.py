"""Compiles and runs a new small program under each of the faults named on the command line, in one process.
`XLANE_INJECT` means something only where test/plugins/inject.c is preloaded; without it the same values must be
printed."""
import os
import sys

import torch
import torch_xla

device = torch_xla.device()
for i, fault in enumerate(sys.argv[1:]):
    os.environ["XLANE_INJECT"] = fault
    for step in range(3):
        x = torch.arange(8 + i, dtype=torch.float32, device=device)
        y = torch.tanh(x * 0.25 + i) * (step + 1)
        torch_xla.sync()
        print(fault, step, y.cpu().numpy().tobytes().hex())
del os.environ["XLANE_INJECT"]
print("RESULT {}", flush=True)
