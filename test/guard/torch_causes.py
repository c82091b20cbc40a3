"""PyTorch/XLA training scripts with one planted cause of a recompile each, and healthy ones; explain_causes_torch.py runs and
grades them as explain_causes.py does JAX's. LINE marks the line that must be named where programs carry lines (--profile
debug-recompile)."""

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
torch.manual_seed(0)
dev = torch_xla.device()
def data(*shape):
    return torch.randn(*shape).to(dev)
"""
CASES, HEALTHY = {}, {}
NO, SHAPE, POLICY, BRANCH, VALUE = [tuple("yes" if k == i else "no" for k in range(4)) for i in range(-1, 4)]


def plant(name, cause, answers, text, **need):
    CASES[name] = dict(cause=cause, answers=answers, text=HEAD + text, **need)


def healthy(name, text, **need):
    HEALTHY[name] = dict(text=HEAD + text, **need)


plant("last_batch", "shape", SHAPE, """
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for n in [8] * 5 + [3] + [8] * 2:
    opt.zero_grad()
    loss = model(data(n, 16)).pow(2).mean()  # LINE
    loss.backward()
    opt.step()
    torch_xla.sync()
""")
plant("longer_sequences", "shape", SHAPE, """
emb, out = nn.Embedding(50, 16).to(dev), nn.Linear(16, 50).to(dev)
def step(tokens):
    h = emb(tokens)  # LINE
    a = torch.softmax(h @ h.transpose(1, 2), -1) @ h
    return F.cross_entropy(out(a).flatten(0, 1), tokens.flatten())
for t in [8] * 4 + [12, 16]:
    step(torch.randint(0, 50, (2, t)).to(dev)).backward()
    torch_xla.sync()
""")
plant("number_becomes_one", "constant", VALUE, """
w = data(16, 4)
def step(x, scale):
    return (torch.tanh(x @ w) * scale).mean()  # LINE
for i in range(8):
    l = step(data(8, 16), 0.5 if i < 5 else 1.0)
    torch_xla.sync()
""", also={"args"})
plant("dropout_off", "op", BRANCH, """
model = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.1), nn.Linear(8, 1)).to(dev)
def forward(x):
    return model(x).mean()  # LINE
for i in range(9):
    model.train(i % 3 != 2)
    l = forward(data(8, 16))
    torch_xla.sync()
""")
plant("lazy_adam", "args", SHAPE, """
model = nn.Linear(16, 4).to(dev)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for i in range(6):
    opt.zero_grad()
    model(data(8, 16)).pow(2).mean().backward()
    opt.step()  # LINE
    torch_xla.sync()
""", says="the optimizer made its state in the first step")
plant("mask_comes_late", "args", SHAPE, """
w = data(16, 16)
def attend(x, mask=None):
    s = x @ w @ x.T
    if mask is not None:
        s = s + mask  # LINE
    return torch.softmax(s, -1).sum()
for i in range(8):
    l = attend(data(8, 16), None if i < 5 else data(8, 8))
    torch_xla.sync()
""")
plant("mask_of_higher_rank", "axes", SHAPE, """
def attend(q, mask):
    s = q @ q.transpose(-1, -2)
    return torch.softmax(s.masked_fill(mask, -1e9), -1).mean()  # LINE
for i in range(8):
    m = torch.zeros((8, 8) if i < 5 else (2, 8, 8), dtype=torch.bool).to(dev)
    l = attend(data(2, 8, 16), m)
    torch_xla.sync()
""")
plant("autocast_begins", "op", BRANCH, """
model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1)).to(dev)
def forward(x):
    return model(x).float().mean()  # LINE
for i in range(8):
    with torch.autocast("xla", dtype=torch.bfloat16, enabled=i >= 5):
        l = forward(data(8, 16))
    torch_xla.sync()
""", also={"dtype"})
plant("half_the_batch_in_bf16", "dtype", SHAPE, """
w = data(16, 4)
def forward(x):
    return (x.float() * 2 @ w).mean()  # LINE
for i in range(8):
    x = data(8, 16)
    l = forward(x if i < 5 else torch.randn(8, 16).bfloat16().to(dev))
    torch_xla.sync()
""")
plant("history_grows", "args", SHAPE, """
w, history = data(16, 4), []
for i in range(6):
    history.append((data(8, 16) @ w).mean())
    average = torch.stack(history).mean()  # LINE
    torch_xla.sync()
""")
plant("branch_on_item", "op", BRANCH, """
w = data(16, 4)
def step(x, i):
    y = torch.tanh(x @ w)
    if y.sum().item() > -1e9 and i >= 5:
        y = torch.relu(y - 0.1).cumsum(0)  # LINE
    return y.mean()
for i in range(8):
    l = step(data(8, 16), i)
    torch_xla.sync()
""")
plant("row_by_number", "index", VALUE, """
table, w = data(12, 16), data(16, 4)
for i in range(8):
    row = 0 if i < 4 else i
    l = torch.tanh(table[row] @ w).sum()  # LINE
    torch_xla.sync()
""")
plant("accumulated_gradients", "op", ("yes", "no", "yes", "no"), """
model = nn.Linear(16, 4).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(12):
    model(data(8, 16)).pow(2).mean().backward()
    if i % 4 == 3:
        opt.step()  # LINE
        opt.zero_grad()
    torch_xla.sync()
""", also={"args"})
plant("another_mesh", "sharding", POLICY, """
import numpy as np, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
n = xr.global_runtime_device_count()
w = data(16, 8)
for i in range(8):
    mesh = xs.Mesh(np.arange(n), (n, 1) if i < 5 else (2, n // 2), ("a", "b"))
    x = data(8, 16)
    xs.mark_sharding(x, mesh, ("a", "b"))
    l = torch.tanh(x @ w).sum()
    torch_xla.sync()
""", devices=4, spmd=True)
plant("positions_by_number", "size", VALUE, """
emb = data(32, 16)
for n in [8] * 5 + [12, 16]:
    l = torch.tanh(emb[torch.arange(n, device=dev)]).sum()  # LINE
    torch_xla.sync()
""", also={"constant", "op"})
plant("longest_decides", "read-back", SHAPE, """
x, w = data(8, 16), data(4, 8)
lengths = [torch.tensor(n).to(dev) for n in [5, 5, 5, 5, 7, 9]]
for i in range(6):
    n = int((lengths[i] + 0).item())
    l = torch.tanh(w @ x[:, :n]).sum()  # LINE
    torch_xla.sync()
""")
plant("selected_rows", "read-back", SHAPE, """
x = torch.arange(12.0).reshape(12, 1).repeat(1, 4).to(dev)
for i in range(6):
    rows = torch.nonzero(x[:, 0] > (5.5 if i < 3 else i + 0.5)).squeeze(1)  # LINE
    l = torch.tanh(x[rows]).sum()
    torch_xla.sync()
""")

# A third set, written after the first was mended.
plant("momentum_is_made_late", "args", SHAPE, """
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for i in range(6):
    opt.zero_grad()
    model(data(8, 16)).pow(2).mean().backward()
    opt.step()  # LINE
    torch_xla.sync()
""", says="the optimizer made its state in the first step")
# The ops of a backward pass carry no line: the one that runs the graph is named.
plant("frozen_layer_is_freed", "op", BRANCH, """
a, b = nn.Linear(16, 8).to(dev), nn.Linear(8, 1).to(dev)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
for i in range(8):
    a.requires_grad_(i >= 5)
    opt.zero_grad()
    b(torch.relu(a(data(8, 16)))).pow(2).mean().backward()
    opt.step()
    torch_xla.sync()  # LINE
""", also={"args"})
plant("window_moves", "index", VALUE, """
series, w = data(40, 4), data(4, 2)
for i in range(8):
    start = 0 if i < 4 else i
    l = torch.tanh(series[start:start + 8] @ w).sum()  # LINE
    torch_xla.sync()
""")
plant("labels_as_int32", "dtype", SHAPE, """
w = data(16, 5)
def step(x, y):
    return (torch.softmax(x @ w, -1) * F.one_hot(y.long(), 5)).sum()  # LINE
for i in range(8):
    l = step(data(8, 16), torch.zeros(8, dtype=torch.int64 if i < 5 else torch.int32).to(dev))
    torch_xla.sync()
""")
plant("autocast_of_a_model", "op", BRANCH, """
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = data(8, 16)
for step in range(9):
    opt.zero_grad()
    with torch.autocast("xla", dtype=torch.bfloat16, enabled=step >= 5):
        loss = model(x).float().pow(2).mean()  # LINE
    loss.backward()
    opt.step()
    torch_xla.sync()
""")
plant("embeds_positions", "size", VALUE, """
emb = nn.Embedding(64, 16).to(dev)
opt = torch.optim.SGD(emb.parameters(), lr=0.1)
x = data(4, 64, 16)
for step in range(9):
    opt.zero_grad()
    pos = torch.arange(16 if step < 6 else 24, device=dev)  # LINE
    loss = (emb(pos).sum(0) * x.mean((0, 1))).sum()
    loss.backward()
    opt.step()
    torch_xla.sync()
""")
# A fourth set: what was missed at first sight of another thirteen.
plant("correction_becomes_one", "constant", VALUE, """
p, x, m = nn.Parameter(data(6, 3)), data(4, 6), torch.zeros(6, 3).to(dev)
for t in range(1, 12):
    g = torch.autograd.grad((x @ p).pow(2).mean(), p)[0]
    with torch.no_grad():
        m = 0.5 * m + 0.5 * g
        p -= 0.1 * m / (1 - 0.01 ** t)  # LINE
    torch_xla.sync()
""")
plant("rate_equals_decay", "constant", VALUE, """
w, x = data(6, 3), data(4, 6)
for step in range(8):
    rate = 0.5 - 0.05 * step if step < 5 else 0.9
    w = w * 0.9 + rate * (x.t() @ torch.tanh(x @ w))  # LINE
    torch_xla.sync()
""", says="two numbers are equal now")
plant("smoothing_ends", "op", BRANCH, """
model, x, y = nn.Linear(8, 4).to(dev), data(6, 8), torch.randint(0, 4, (6,)).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1 if step < 5 else 0.0)  # LINE
    loss.backward()
    opt.step()
    torch_xla.sync()
""")
plant("made_in_the_first_graph", "setup", NO, """
w = torch.randn(8, 4, device=dev, requires_grad=True)  # LINE
x = data(4, 8)
for t in range(6):
    (x @ w).pow(2).mean().backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad = None
    torch_xla.sync()
""", says="torch_xla.sync(), before the first step")
plant("longer_lstm", "length", SHAPE, """
rnn = nn.LSTM(5, 7, batch_first=True).to(dev)
for t in [6] * 4 + [9]:
    out, _ = rnn(data(2, t, 5))  # LINE
    l = out.pow(2).mean()
    torch_xla.sync()
""")
plant("counter_of_a_norm", "setup", NO, """
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(dev)
for step in range(6):
    loss = model(data(5, 6)).abs().mean()  # LINE
    torch_xla.sync()
""", says="a scalar tensor: argument ")
healthy("made_before_the_loop", """
w = torch.randn(8, 4, device=dev, requires_grad=True)
x = data(4, 8)
torch_xla.sync()
for t in range(6):
    (x @ w).pow(2).mean().backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad = None
    torch_xla.sync()
""")
healthy("annealed_slope", """
w = data(16, 4)
for i in range(7):
    l = F.leaky_relu(data(8, 16) @ w, 0.1 / (i + 1)).mean()
    torch_xla.sync()
""")
healthy("plain", """
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    opt.zero_grad()
    model(data(8, 16)).pow(2).mean().backward()
    opt.step()
    torch_xla.sync()
""")
healthy("rate_as_float", """
model = nn.Linear(16, 4).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    for g in opt.param_groups:
        g["lr"] = 0.1 / (i + 2)
    opt.zero_grad()
    model(data(8, 16)).pow(2).mean().backward()
    opt.step()
    torch_xla.sync()
""")
healthy("loss_read_each_step", """
w = data(16, 4)
for i in range(8):
    l = torch.tanh(data(8, 16) @ w).mean()
    w = w - 0.1 * l
    torch_xla.sync()
    print(l.item())
""")
healthy("evaluation_beside", """
model = nn.Linear(16, 4).to(dev)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(9):
    opt.zero_grad()
    model(data(8, 16)).pow(2).mean().backward()
    opt.step()
    torch_xla.sync()
    if i % 3 == 2:
        with torch.no_grad():
            print(model(data(20, 16)).argmax(-1).float().mean().item())
""")
