"""Training steps that people write in PyTorch, 20 steps each by PyTorch/XLA: losses, and all gradients at step 20, go
to the file named first. Knows nothing of xlane: which device it runs on is the environment's business. usage: zoo.py
OUT.npz [NAME ...]"""

import math
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

STEPS = int(os.environ.get("ZOO_STEPS", 20))
DOUBLE, MOVED = os.environ.get("ZOO_DOUBLE") == "1", int(os.environ.get("ZOO_MOVED", "0"))


def ce(p, y):
    return F.cross_entropy(p.flatten(0, -2), y.flatten())


class Attention(nn.Module):
    def __init__(self, width, heads, fused=False):
        super().__init__()
        self.heads, self.qkv, self.out, self.fused = heads, nn.Linear(width, 3 * width), nn.Linear(width, width), fused

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = (q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    def __init__(self, width, heads, act=nn.GELU, fused=True):
        super().__init__()
        self.n1, self.n2, self.a = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads, fused)
        self.m = nn.Sequential(nn.Linear(width, 4 * width), act(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.m(self.n2(x))


class Language(nn.Module):
    """Attention and cross-entropy, with blocks or without."""

    def __init__(self, blocks, vocabulary=64, width=64, length=32):
        super().__init__()
        self.tok, self.pos, self.blocks, self.head = (
            nn.Embedding(vocabulary, width),
            nn.Embedding(length, width),
            nn.Sequential(*blocks),
            nn.Linear(width, vocabulary),
        )

    def forward(self, x):
        return self.head(self.blocks(self.tok(x) + self.pos(torch.arange(x.shape[1], device=x.device))))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.c, self.o = nn.Embedding(32, 32), nn.LSTMCell(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        h = s = torch.zeros(x.shape[0], 64, device=x.device)
        out = []
        for t in range(x.shape[1]):
            h, s = self.c(self.e(x[:, t]), (h, s))
            out.append(self.o(h))
        return torch.stack(out, 1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (
            nn.Linear(300, 256),
            nn.Linear(256, 16),
            nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 300)),
        )

    def forward(self, x):
        m, s = self.b(torch.tanh(self.a(x))).chunk(2, -1)
        return self.c(m + torch.exp(0.5 * s) * torch.sin(1e3 * m.detach())), m, s


class Gated(nn.Module):
    def __init__(self, width=128, inner=352):
        super().__init__()
        self.g, self.u, self.d = nn.Linear(width, inner), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.d(F.silu(self.g(x)) * self.u(x))


def rows(*shape):
    return lambda i: torch.randn(*shape, generator=torch.Generator().manual_seed(100 + i))


def ints(hi, *shape):
    return lambda i: torch.randint(hi, shape, generator=torch.Generator().manual_seed(200 + i))


def tokens(b, t, v):
    return lambda i: (lambda x: (x[:, :-1], x[:, 1:]))(ints(v, b, t + 1)(i))


def pair(a, b):
    return lambda i: (a(i), b(i))


def mse(p, y):
    return ((p - y) ** 2).mean()


conv = lambda a, b, k=3, s=1: nn.Conv2d(a, b, k, s, k // 2)
ZOO = {
    "attention": (lambda: Language([Attention(64, 4)]), tokens(8, 32, 64), ce),
    "transformer": (lambda: Language([Block(64, 4) for _ in range(2)]), tokens(8, 32, 64), ce),
    "transformer_tanh": (lambda: Language([Block(64, 4, nn.Tanh, False) for _ in range(2)]), tokens(8, 32, 64), ce),
    "mlp_tanh": (
        lambda: nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10)),
        pair(rows(128, 64), ints(10, 128)),
        F.cross_entropy,
    ),
    "mlp_mish": (
        lambda: nn.Sequential(nn.Linear(64, 300), nn.ELU(), nn.Linear(300, 300), nn.Mish(), nn.Linear(300, 1)),
        pair(rows(128, 64), rows(128, 1)),
        mse,
    ),
    "gated": (lambda: nn.Sequential(Gated(), nn.LayerNorm(128), Gated()), pair(rows(100, 128), rows(100, 128)), mse),
    "lstm": (LSTM, tokens(16, 8, 32), ce),
    "resnet": (
        lambda: nn.Sequential(
            conv(3, 16),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            conv(16, 32, 3, 2),
            nn.GroupNorm(4, 32),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        ),
        pair(rows(8, 3, 24, 24), ints(10, 8)),
        F.cross_entropy,
    ),
    "convnet": (
        lambda: nn.Sequential(
            conv(3, 12),
            nn.Tanh(),
            nn.MaxPool2d(2),
            conv(12, 24),
            nn.ELU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(24 * 16, 10),
        ),
        pair(rows(16, 3, 16, 16), ints(10, 16)),
        lambda p, y: F.cross_entropy(p, y, label_smoothing=0.1),
    ),
    "batchnorm": (
        lambda: nn.Sequential(nn.Linear(32, 260), nn.BatchNorm1d(260), nn.ReLU(), nn.Linear(260, 5)),
        pair(rows(128, 32), ints(5, 128)),
        F.cross_entropy,
    ),
    "vae": (
        VAE,
        pair(rows(128, 300), rows(128, 300)),
        lambda p, y: F.mse_loss(p[0], y) - 0.1 * (1 + p[2] - p[1] ** 2 - p[2].exp()).mean(),
    ),
    "embedding_bag": (
        lambda: nn.Sequential(
            nn.Embedding(500, 32), nn.Flatten(), nn.Linear(320, 128), nn.Softplus(), nn.Linear(128, 3)
        ),
        pair(ints(500, 64, 10), ints(3, 64)),
        F.cross_entropy,
    ),
    "huber": (
        lambda: nn.Sequential(
            nn.Linear(40, 257), nn.Hardswish(), nn.Linear(257, 129), nn.LogSigmoid(), nn.Linear(129, 4)
        ),
        pair(rows(256, 40), rows(256, 4)),
        F.smooth_l1_loss,
    ),
    "ignored_labels": (
        lambda: Language([Block(32, 2)], 48, 32, 20),
        tokens(8, 20, 48),
        lambda p, y: F.cross_entropy(p.flatten(0, 1), torch.where(y < 5, -100, y).flatten()),
    ),
}


def train(name, device):
    make, batch, loss_of = ZOO[name]
    torch.manual_seed(1)
    model = make()
    if MOVED:  # each parameter by a rounding error, at random
        flips = torch.Generator().manual_seed(MOVED)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 6e-8 * (2 * torch.randint(0, 2, p.shape, generator=flips) - 1).double())
    model = (model.double() if DOUBLE else model).to(device)
    opt = (
        torch.optim.AdamW(model.parameters(), lr=1e-3)
        if name.startswith("transformer")
        else torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    )
    losses = []
    for i in range(STEPS + 1):
        x, y = ((v.double() if DOUBLE and v.is_floating_point() else v).to(device) for v in batch(i))
        opt.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        if i < STEPS:
            opt.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses, {k: p.grad.cpu().numpy() for k, p in model.named_parameters()}


if __name__ == "__main__":
    device = torch_xla.device()
    out = {}
    for name in sys.argv[2:] or ZOO:
        losses, grads = train(name, device)
        out[name + "/loss"] = np.array(losses)
        out.update({"%s/grad/%s" % (name, k): g for k, g in grads.items()})
        print(name, losses[0], losses[-1], flush=True)
    np.savez(sys.argv[1], **out)
    print("RESULT", flush=True)
