"""The model of bench/_gpt.py in PyTorch, eager: python bench/_gpt_torch.py STEPS DIM LAYERS BATCH TIME."""
import math, os, sys
steps, D, L, B, T = map(int, sys.argv[1:6])
import torch
import torch.nn.functional as F
V, H, FF = 256, 4, (D * 8 // 3 + 31) // 32 * 32
S = D // H
torch.manual_seed(1)
torch.set_num_threads(int(os.environ.get("XLANE_BENCH_THREADS", os.cpu_count())))
LAYER = dict(norm=(D,), wq=(D, D), wk=(D, D), wv=(D, D), wo=(D, D), ffn_norm=(D,), gate=(D, FF), up=(D, FF),
             down=(FF, D))
draw = lambda n, s: torch.ones(s) if "norm" in n else torch.randn(s) * s[-2] ** -0.5
par = lambda t: torch.nn.Parameter(t)
embed, norm, head = par(torch.randn(V, D) * 0.02), par(torch.ones(D)), par(torch.randn(D, V) * 0.02)
layers = [{n: par(draw(n, s)) for n, s in LAYER.items()} for _ in range(L)]
every = [embed, norm, head] + [p for l in layers for p in l.values()]
opt = torch.optim.AdamW([dict(params=[p for p in every if p.ndim > 1], weight_decay=0.1),
                         dict(params=[p for p in every if p.ndim == 1], weight_decay=0)],
                        lr=3e-3, betas=(0.9, 0.95))
half = S // 2
angle = torch.arange(T, dtype=torch.float32)[:, None, None] * torch.exp(-math.log(10000.0) / half * torch.arange(half,
    dtype=torch.float32))
cos, sin = angle.cos(), angle.sin()


def rms(x, g):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g


def rope(x):
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(tok):
    x = embed[tok[:, :-1]]
    for p in layers:
        n = rms(x, p["norm"])
        q, k, v = rope((n @ p["wq"]).view(B, T, H, S)), rope((n @ p["wk"]).view(B, T, H, S)), (n @ p["wv"]).view(B, T,
            H, S)
        a = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + a.transpose(1, 2).reshape(B, T, D) @ p["wo"]
        n = rms(x, p["ffn_norm"])
        x = x + (F.silu(n @ p["gate"]) * (n @ p["up"])) @ p["down"]
    return F.cross_entropy((rms(x, norm) @ head).view(-1, V), tok[:, 1:].reshape(-1))


text = torch.tensor(list(open(__file__, "rb").read() * 64))
for k in range(steps):
    at = k * B * (T + 1) % (len(text) - B * (T + 1))
    loss = forward(text[at:at + B * (T + 1)].view(B, T + 1))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(every, 1.0)
    opt.step()
print(float(loss))
