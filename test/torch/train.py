"""Trains an MLP and a small transformer with PyTorch/XLA and prints their losses and the runtime's counters as JSON.
Knows nothing of xlane: which device it runs on is the environment's business."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr

STEPS = 5


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (y.reshape(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        mask = torch.ones(t, t, device=x.device).tril().bool()
        p = (q @ k.transpose(-2, -1) / (w // self.heads) ** 0.5).masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out((p @ v).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary=64, width=32, heads=4, layers=2, length=16):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, x):
        h = self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(h)))


def train(model, device, batch, loss_of):
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x, y = (v.to(device) for v in batch(step))
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses


def mlp(device):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    data = [(torch.randn(32, 20), torch.randint(10, (32,))) for _ in range(STEPS)]
    return train(model, device, lambda i: data[i], F.cross_entropy)


def transformer(device):
    torch.manual_seed(2)
    model = Transformer()
    data = [torch.randint(64, (4, 17)) for _ in range(STEPS)]
    return train(model, device, lambda i: (data[i][:, :-1], data[i][:, 1:]), lambda p,
                 y: F.cross_entropy(p.flatten(0, 1), y.flatten()))


begun = time.time()
if len(sys.argv) > 1:
    xr.initialize_cache(sys.argv[1], readonly=False)
device = torch_xla.device()
out = {"device": str(xm.xla_device_hw(device)), "mlp": mlp(device), "transformer": transformer(device)}
counters = {n: met.counter_value(n) for n in met.counter_names()}
out["counters"] = {n: v for n, v in counters.items() if "Compile" in n or "Cache" in n}
for n in ("CompileTime", "ExecuteTime"):
    data = met.metric_data(n)
    out[n] = data[0] if data else 0
try:
    out["memory"] = xm.get_memory_info(device)
except Exception as e:  # its own CPU device cannot say
    out["memory"] = str(e)[:200]
out["seconds"] = time.time() - begun
print("RESULT", json.dumps(out), flush=True)
