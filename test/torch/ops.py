"""Runs small pieces of PyTorch on PyTorch's own CPU and on the XLA device, and prints what differs. Knows nothing of
xlane. Left out is what PyTorch/XLA itself answers otherwise on any device: >> of a negative number, the type of abs()
of complex ones."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla


def t(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ints(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def steps(model, optimizer, loss_of, n=3):
    """The losses of a few steps."""
    losses = []
    for i in range(n):
        optimizer.zero_grad()
        loss = loss_of(i)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.detach())
    return losses + list(model.parameters())[:1]


def accumulated(dev):
    """Gradients go from one program to the next, in the layout that their last op left them in."""
    torch.manual_seed(5)
    model = torch.nn.Linear(16, 4).to(dev)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(8):
        model(t(8, 16, seed=i).to(dev)).pow(2).mean().div(4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        torch_xla.sync()
    return list(model.parameters())


def conv_net(dev):
    torch.manual_seed(3)
    m = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(8, 16, 3, stride=2, groups=2),
                      nn.GELU(), nn.Dropout(0.0), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)).to(dev)
    return steps(m, torch.optim.Adam(m.parameters(), lr=1e-3), lambda i: F.cross_entropy(m(t(6, 3, 16, 16,
        seed=i).to(dev)), ints(5, 6, seed=i).to(dev)))


def embedding_lstm(dev):
    torch.manual_seed(4)
    m = nn.ModuleList([nn.Embedding(30, 12, padding_idx=0), nn.LSTMCell(12, 16), nn.Linear(16, 30)]).to(dev)

    def loss(i):
        x, s, total = ints(30, 3, 9, seed=i).to(dev), (torch.zeros(3, 16, device=dev),
                                                       torch.zeros(3, 16, device=dev)), 0
        for k in range(8):
            s = m[1](m[0](x[:, k]), s)
            total = total + F.cross_entropy(m[2](s[0]), x[:, k + 1], ignore_index=3)
        return total
    return steps(m, torch.optim.SGD(m.parameters(), lr=.1, momentum=.9, nesterov=True), loss)


def attention(dev):
    q, k, v = (t(2, 4, 8, 16, seed=s).to(dev).requires_grad_(True) for s in range(3))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.square().sum().backward()
    return [y, q.grad, v.grad]


def autocast(dev):
    torch.manual_seed(8)
    m = nn.Sequential(nn.Linear(24, 48), nn.LayerNorm(48), nn.SiLU(), nn.Linear(48, 6)).to(dev)
    with torch.autocast(dev.type, dtype=torch.bfloat16):
        return [m(t(16, 24).to(dev)).to(torch.bfloat16)]


def integers(dev):
    a, b = ints(1000, 50).to(dev) - 500, ints(30, 50, seed=1).to(dev) + 1
    big = torch.tensor([2**62, -2**63, 2**63 - 1, 2**40 + 1], device=dev)
    return [a // b, a % b, torch.div(a, b, rounding_mode="trunc"), a << 3, a & b, a ^ b, ~a, big + 1, big * 3,
            a.cumsum(0), a.to(torch.int8),
            a.to(torch.int16) * 99, a.sum(), a.bool().all(), torch.bitwise_not(a.bool()), F.one_hot(b % 6, 6)]


def orders(dev):
    x, k = t(5, 20).to(dev), ints(9, 40).to(dev)
    return [*x.topk(6), *x.topk(3, dim=0, largest=False), *x.sort(dim=1, descending=True), *k.sort(stable=True),
            x.argmax(1), x.argmin(), x.kthvalue(3).values]


def scatters(dev):
    x, i, s = t(6, 5).to(dev), ints(6, 4, 5).to(dev), t(4, 5, seed=2).to(dev)
    z, w, q = torch.zeros(6, 5, device=dev), x.clone(), x.clone()
    w[:, 1:4] = s[0, :3]
    q.index_put_((torch.tensor([1, 1, 4], device=dev), torch.tensor([0, 0, 2], device=dev)),
                 torch.tensor([1., 2., 3.], device=dev), accumulate=True)
    return [z.scatter_add(0, i, s), x.gather(0, i), x[ints(6, 3).to(dev)], w, q,
            z.scatter_reduce(0, i, s, "amax", include_self=False), x.masked_fill(x > 0, -1),
            torch.nonzero(x > .5), x[x > 0], torch.zeros(10, dtype=torch.int64, device=dev).index_add(0, i[:, 0],
                i[:, 1])]


def matrices(dev):
    a = t(5, 5).to(dev)
    s = a @ a.T + 5 * torch.eye(5, device=dev)
    w, v = torch.linalg.eigh(torch.stack([s, 2 * s]))
    return [torch.linalg.cholesky(s), torch.linalg.inv(s), torch.linalg.solve(s, a), torch.linalg.slogdet(s)[1],
            torch.linalg.qr(a)[1].abs(),
            torch.linalg.svdvals(a), w, torch.linalg.eigh(s.tril(), UPLO="L")[0], v @ torch.diag_embed(w) @ v.mT, torch.fft.rfft(a).real]


def compiled_and_eager(dev):
    wrap = torch_xla.compile if dev.type == "xla" else lambda f: f
    w, x, out = t(8, 8).to(dev), t(4, 8, seed=1).to(dev), []
    step = wrap(lambda v: torch.tanh(v @ w))
    for _ in range(3):
        x = step(x)
        out.append(x.sum())
    torch_xla.experimental.eager_mode(dev.type == "xla")
    e = x * 2 + 1
    e[0, 0] = 3
    out += [e, e.softmax(0)]
    torch_xla.experimental.eager_mode(False)
    return out


CASES = [accumulated, conv_net, embedding_lstm, attention, autocast, integers, orders, scatters, matrices,
         compiled_and_eager]
device, values = torch_xla.device(), 0  # the device first: autograd asks only once which there are
for case in CASES:
    got, want = case(device), case(torch.device("cpu"))
    for i, (x, y) in enumerate(zip(want, got, strict=True)):
        x, y = x.detach(), y.detach().cpu()
        values += x.numel()
        tol = 0 if not x.is_floating_point() else 2e-2 if x.dtype == torch.bfloat16 else 2e-4
        if x.dtype != y.dtype or x.shape != y.shape or not torch.allclose(x, y, rtol=tol, atol=tol):
            print("DIFFERS", case.__name__, i, x.dtype, x.flatten()[:8].tolist(), y.dtype, y.flatten()[:8].tolist())
print(f'RESULT {{"cases": {len(CASES)}, "values": {values}}}', flush=True)
