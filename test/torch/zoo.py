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
    """Its noise, sin(1e3 m), makes a rounding error of m a thousand times larger: 20 steps in f32 are 7e-4 from f64 on
    every device."""

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


class Net(nn.Module):
    """Some modules and a function of them: forward(net, *inputs)."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.forward_of = forward
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, torch.Tensor) else part)

    def forward(self, x):
        return self.forward_of(self, x)


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


# ---- layers and functions by kind; a fourth entry is the optimizer ---------------------------------------------------
def normal(*shape, scale=0.1):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def classes(p, y):
    return F.cross_entropy(p, y)


def sequence(rnn, out):
    return Net(lambda n, x: n.o(n.r(x)[0][:, -1]), r=rnn, o=nn.Linear(out, 5))


def pooled(n, x):
    x = n.c(x)
    parts = F.max_pool2d(x, 3, 2, padding=1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.lp_pool2d(x.abs(), 2,
        2)
    parts += (F.adaptive_max_pool2d(x, 2), F.adaptive_avg_pool2d(x, (2, 4)), F.max_pool2d(x, 2, 2, ceil_mode=True))
    return n.o(torch.cat([p.flatten(2).mean(-1) for p in parts], 1))


def resized(n, x):
    h = n.c(x)
    up = F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)
    up = up + F.interpolate(h, size=up.shape[2:], mode="nearest")
    return n.o(F.interpolate(up, size=(7, 9), mode="bilinear", align_corners=True).flatten(1))


def masked(n, x):
    q, k, v = n.q(x).chunk(3, -1)
    t = x.shape[1]
    keep = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(2)
    bias = -0.1 * torch.arange(t, device=x.device, dtype=x.dtype)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
    return n.o(y + F.scaled_dot_product_attention(v, q, k, attn_mask=bias.expand(t, t))).mean(1)


def indexed(n, x):
    """Rows put, added and taken by indices, running sums, the largest."""
    e = n.e[x]
    table = torch.zeros(40, e.shape[-1], device=e.device, dtype=e.dtype)
    table = table.index_put((x.flatten() % 40,), e.flatten(0, 1), accumulate=True)
    table = table.index_add(0, x[:, 0] % 40, e[:, 0]).scatter_add(0, x[:, :1].expand(-1, e.shape[-1]) % 40, e[:, 1])
    h = torch.cumsum(e, 1)[:, -1] + table[x[:, 0] % 40] + torch.gather(e, 1,
        (x % e.shape[1])[..., None].expand_as(e)).sum(1)
    top, _ = torch.topk(h, 6, -1)
    return torch.cat([n.o(torch.tanh(h)), top, h.sort(-1)[0][:, :3], torch.logcumsumexp(h, -1)[:, -3:]], -1)


def contracted(n, x):
    x = torch.einsum("bi,bj,ijk->bk", x, x.flip(-1), n.t)
    y = torch.einsum("bk,bl->bkl", torch.tanh(x), x)
    return torch.einsum("bkk,ko->bo", y, n.o) + torch.einsum("bkl,klo->bo", y, n.u)


def dropped(n, x):
    x, keep = x[:, :48], x[:, 48:] > -0.8  # the mask comes with the data
    return n.b(torch.where(keep, n.a(x).relu() / 0.8, 0.0))


def autocast(n, x):
    with torch.autocast("xla" if x.device.type == "xla" else "cpu", dtype=torch.bfloat16):
        return n.b(torch.tanh(n.a(x))).float()


def sgd(**options):
    return lambda p: torch.optim.SGD(p, **{"lr": 0.02, **options})


pictures, labels = pair(rows(8, 3, 14, 14), ints(10, 8)), pair(rows(64, 48), ints(5, 64))
padded = torch.arange(12) >= torch.tensor([12, 9, 7, 12, 3, 5])[:, None]
ZOO.update(
    {
        "batchnorm_conv": (
            lambda: nn.Sequential(
                conv(3, 12), nn.BatchNorm2d(12), nn.ReLU(), conv(12,
                    12), nn.BatchNorm2d(12), nn.Flatten(), nn.Linear(12 * 14 * 14, 10)
            ),
            pictures,
            classes,
            lambda p: torch.optim.RMSprop(p, lr=1e-3),
        ),
        "lstm_two_layers": (
            lambda: sequence(nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True), 48),
            pair(rows(6, 9, 16), ints(5, 6)),
            classes,
            lambda p: torch.optim.Adam(p, lr=1e-3),
        ),
        "gru": (lambda: sequence(nn.GRU(16, 40, batch_first=True), 40), pair(rows(6, 9, 16), ints(5, 6)), classes),
        "bags": (
            lambda: Net(
                lambda n, x: n.o(torch.cat([n.a(x), n.b(x)], -1)),
                a=nn.EmbeddingBag(300, 24, mode="sum"),
                b=nn.EmbeddingBag(300, 24, mode="mean"),
                o=nn.Linear(48, 5),
            ),
            pair(ints(300, 32, 7), ints(5, 32)),
            classes,
        ),
        "dropout_masks": (
            lambda: Net(dropped, a=nn.Linear(48, 600), b=nn.Linear(600, 5)),
            pair(rows(64, 648), ints(5, 64)),
            classes,
            sgd(momentum=0.9, nesterov=True, weight_decay=1e-2),
        ),
        "autocast_bf16": (lambda: Net(autocast, a=nn.Linear(48, 520), b=nn.Linear(520, 5)), labels, classes),
        "clipped": (
            lambda: nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 5)),
            labels,
            lambda p, y: F.cross_entropy(10 * p, y, label_smoothing=0.2),
            lambda p: torch.optim.AdamW(p, lr=1e-3),
        ),
        "pools": (lambda: Net(pooled, c=conv(3, 8), o=nn.Linear(48, 10)), pictures, classes),
        "resized": (lambda: Net(resized, c=conv(3, 6), o=nn.Linear(378, 10)), pictures, classes),
        "masked_attention": (
            lambda: Net(masked, q=nn.Linear(32, 96), o=nn.Linear(32, 5)),
            pair(rows(6, 20, 32), ints(5, 6)),
            classes,
        ),
        "encoder_layer": (
            lambda: Net(
                lambda n, x: n.o(n.e(x, src_key_padding_mask=padded.to(x.device)).mean(1)),
                e=nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True),
                o=nn.Linear(32, 5),
            ),
            pair(rows(6, 12, 32), ints(5, 6)),
            classes,
        ),
        "indexed": (
            lambda: Net(indexed, e=normal(200, 24, scale=1), o=nn.Linear(24, 5)),
            pair(ints(200, 32, 6), ints(17, 32)),
            classes,
        ),
        "contracted": (
            lambda: Net(contracted, t=normal(20, 20, 16), o=normal(16, 3), u=normal(16, 16, 3)),
            pair(rows(40, 20), rows(40, 3)),
            mse,
            sgd(lr=0.001),
        ),
        "convolutions": (
            lambda: nn.Sequential(
                nn.Conv2d(3, 12, 3, dilation=2), nn.InstanceNorm2d(12, affine=True), nn.PReLU(),
                nn.Conv2d(12, 12, 3, groups=12, padding="same"), nn.ConvTranspose2d(12, 6, 4, 2, 1), nn.Softsign(),
                nn.Conv2d(6, 4, (1, 5), (2, 3), padding_mode="circular", padding=1), nn.Flatten(), nn.Linear(4 * 11 * 6,
                    10),
            ),
            pictures,
            classes,
        ),
        "volumes": (
            lambda: nn.Sequential(
                nn.Conv3d(2, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.Hardtanh(), nn.MaxPool3d(2),
                nn.Flatten(), nn.Linear(6 * 64, 4),
            ),
            pair(rows(4, 2, 8, 8, 8), ints(4, 4)),
            classes,
        ),
        "losses": (
            lambda: nn.Sequential(nn.Linear(48, 260), nn.Softplus(), nn.Linear(260, 6)),
            pair(rows(64, 48), rows(64, 6)),
            lambda p, y: F.binary_cross_entropy_with_logits(p, y.sigmoid(), pos_weight=y.exp().mean())
            + F.kl_div(p.log_softmax(-1), y.softmax(-1), reduction="batchmean")
            + F.triplet_margin_loss(p, y, y.roll(1, 0)) + F.cosine_embedding_loss(p, y, y[:, 0].sign())
            + F.huber_loss(p, y, delta=0.5) + F.gaussian_nll_loss(p, y, y * y + 0.1) + F.softmin(p, -1).var(),
            lambda p: torch.optim.Adagrad(p, lr=1e-2),
        ),
    }
)


def train(name, device):
    make, batch, loss_of, optimizer = (*ZOO[name], None)[:4]
    torch.manual_seed(1)
    model = make()
    if MOVED:  # each parameter by a rounding error, at random
        flips = torch.Generator().manual_seed(MOVED)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 6e-8 * (2 * torch.randint(0, 2, p.shape, generator=flips) - 1).double())
    model = (model.double() if DOUBLE else model).to(device)
    opt = optimizer(model.parameters()) if optimizer else (
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
        if name == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
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
