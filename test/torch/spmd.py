"""Trains an MLP split over a mesh of all devices with PyTorch/XLA's SPMD, then the same on PyTorch's own CPU; prints
both runs' losses as JSON and how the first weight lies after the last step. Knows nothing of xlane."""
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr


def train(dev, mark):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).to(dev)
    mark(m[0].weight, ("model", None))
    mark(m[2].weight, (None, "model"))
    optimizer, losses = torch.optim.AdamW(m.parameters(), lr=1e-2), []
    for i in range(4):
        g = torch.Generator().manual_seed(i)
        x, y = torch.randn(8, 16, generator=g).to(dev), torch.randint(8, (8,), generator=g).to(dev)
        mark(x, ("data", None))
        loss = F.cross_entropy(m(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses, m


xr.use_spmd()
device, n = torch_xla.device(), xr.global_runtime_device_count()
mesh = xs.Mesh(np.arange(n), (n // 2, 2), ("data", "model"))
split, model = train(device, lambda v, spec: xs.mark_sharding(v, mesh, spec))
whole, _ = train(torch.device("cpu"), lambda v, spec: None)
print("RESULT", json.dumps({"devices": n, "split": split, "whole": whole,
                            "weight": torch_xla._XLAC._get_xla_sharding_spec(model[0].weight)}), flush=True)
