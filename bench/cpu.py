"""The embedded device against JAX's own CPU (and PyTorch eager, where it is installed) in one process and one run.

    ./x bench cpu                  all rows
    build/venv/bin/python bench/cpu.py gpt     rows whose name has `gpt` in it

Times are the best of several, the devices taking turns, since other work on the machine only ever adds. `limit` is what
the arithmetic or the memory traffic of a row would take at the rates measured first: the best matrix product seen, the
best copy seen. PyTorch is looked for in build/torch (pip install --target build/torch torch) and then in the
environment; with XLANE_BENCH_INDUCTOR=1 each of its rows is followed by one of torch.compile's (a minute or more to
compile, and it needs a C++ compiler). Its matrix products are MKL's or oneDNN's. On a machine that others use too,
XLANE_BENCH_CLOCK=cpu measures the CPU time of all threads of this process instead of the time on the wall."""
import operator, os, subprocess, sys, tempfile, time
sys.path[0] = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test")
os.environ.setdefault("XLANE_CPU_CHECK", "0")        # what is measured is planning, not its proof
from _jax import here, lib
sys.path.append(os.path.join(here, "build", "torch"))
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
try:
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(len(os.sched_getaffinity(0)))
except ImportError:
    torch = None

from jax._src.interpreters import mlir
cpu, xl = jax.devices("cpu")[0], jax.devices("xlane")[0]
only = sys.argv[1] if len(sys.argv) > 1 else ""
clock = time.process_time if os.environ.get("XLANE_BENCH_CLOCK") == "cpu" else time.perf_counter
seconds = float(os.environ.get("XLANE_BENCH_SECONDS", "1.5"))
rng = np.random.default_rng(0)
rows = []


def f32(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def best(fns, budget=seconds, most=200):
    """The best time of each of fns, taken in turns until the budget is used up. Short calls are timed a few dozen at a
    time, as they come in practice: one alone, after the others have had the caches, measures the caches. Before a turn
    the threads of the one before come to rest (OpenMP's spin for milliseconds after their work), and one call that does
    not count wakes its own."""
    out = [float("inf")] * len(fns)
    end = time.perf_counter() + budget * len(fns)
    n, times = 0, [1] * len(fns)
    while n < 3 or (time.perf_counter() < end and n < most):
        for i, f in enumerate(fns):
            if n >= 2:
                time.sleep(0.02)
                f()
            t = clock()
            for _ in range(times[i]):
                f()
            out[i] = min(out[i], (clock() - t) / times[i])
            if n < 2 and out[i] < 1e-3:
                times[i] = max(1, min(50, int(2e-3 / out[i])))
                if n == 1:
                    out[i] = float("inf")
        n += 1
    return out


def machine():
    a, b = f32(1024, 1024), f32(1024, 1024)
    m = jax.jit(jnp.matmul)
    xa, xb = jax.device_put(a, xl), jax.device_put(b, xl)
    src, dst = np.zeros(1 << 25, np.uint8), np.ones(1 << 25, np.uint8)
    t = best([lambda: a @ b, lambda: m(xa, xb).block_until_ready(), lambda: np.copyto(dst, src)], 1.0)
    return 2 * 1024**3 / min(t[0], t[1]), 2 * dst.size / t[2]


flops_rate, bytes_rate = machine()


def show(name, us, theirs, torch_s=None, limit=None):
    cols = [("%-26s" % name), "%10.3f" % (us * 1e3), "%10.3f" % (theirs * 1e3), "%7.2fx" % (theirs / us)]
    cols.append("%10.3f %7.2fx" % (torch_s * 1e3, torch_s / us) if torch_s else " " * 19)
    cols.append("%10.3f %5.0f%%" % (limit * 1e3, 100 * limit / us) if limit else "")
    print(" ".join(cols).rstrip(), flush=True)
    rows.append((name, theirs / us))


def copy(tree, device):
    return jax.device_put(jax.tree.map(np.asarray, tree), device)


def from_c(name, low, theirs):
    """The same program compiled by a C program, without JAX: its first compile. JAX's own time for it is the one in this run."""
    tool = os.path.join(here, "build", "bench", "plan")
    if not os.path.exists(tool):
        print("   %s compile from C: %s is not built (make build-bench)" % (name, tool))
        return
    with tempfile.NamedTemporaryFile(suffix=".mlirbc") as f:
        f.write(mlir.module_to_bytecode(low.compiler_ir("stablehlo")))
        f.flush()
        r = subprocess.run([tool, lib, f.name], capture_output=True, text=True)
    if r.returncode:
        print("   %s compile from C: %s" % (name, r.stderr.strip()))
        return
    first, again, write, load, size = [float(x) for x in r.stdout.split()]
    show(name + " compile from C", first / 1e3, theirs)
    print("%-26s %10.3f %10s          again %.3f, serialise %.3f; %d bytes"
          % (name + " load", load, "", again, write, size), flush=True)


def measure(name, fn, args, torch_fn=None, flops=0, nbytes=0, step=None, donate=()):
    """fn(*args) on both; with `step`, results feed the next call: step(args, out) -> args."""
    if only and only not in name:
        return
    state, compile_s, calls = [], [], []
    for d in (xl, cpu):
        a = [copy(x, d) for x in args]
        low = jax.jit(fn, donate_argnums=donate).lower(*a)
        t = clock()
        c = low.compile()
        compile_s.append(clock() - t)
        s = [a]

        one = jax.tree.structure(low.out_info) == jax.tree.structure(0)  # no walk over a tree of one, as in PyTorch
        wait = operator.methodcaller("block_until_ready") if one else jax.block_until_ready
        run = c if step else jax.jit(fn)                                 # small ones as programs call them

        def call(run=run, s=s, wait=wait):
            out = wait(run(*s[0]))
            if step:
                s[0] = step(s[0], out)
            return out
        state.append(c)
        calls.append(call)
    outs = [c() for c in calls]
    if not step:
        for x, y in zip(jax.tree.leaves(outs[0]), jax.tree.leaves(outs[1])):
            x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
            far = np.max(np.abs(x - y)) / (np.max(np.abs(y)) + 1e-30) if x.size else 0
            if not far < 2e-2:
                print("   %s: results differ by %g" % (name, far))
    if torch and torch_fn:
        calls.append(torch_fn)
        torch_fn()
        if os.environ.get("XLANE_BENCH_INDUCTOR") == "1":
            try:
                compiled = torch.compile(torch_fn)
                compiled()
                calls.append(compiled)
            except Exception as e:
                print("   %s: torch.compile: %s" % (name, str(e).splitlines()[0][:80]))
    t = best(calls)
    limit = max(flops / flops_rate, nbytes / bytes_rate)
    if step:
        show(name + " compile", compile_s[0], compile_s[1])
        from_c(name, low, compile_s[1])
    show(name + (" step" if step else ""), t[0], t[1], t[2] if len(t) > 2 else None, limit or None)
    if len(t) > 3:
        print("%-26s %39s %10.3f %7.2fx" % ("   Inductor", "", t[3] * 1e3, t[3] / t[0]), flush=True)
    if step:
        mem = []
        for c in state:
            try:
                m = c.memory_analysis()
                mem.append(m.temp_size_in_bytes)
            except Exception:
                mem.append(0)
        if all(mem):
            print("%-26s %7.1f MiB %7.1f MiB %6.2fx" % (name + " temporaries", mem[0] / 2**20, mem[1] / 2**20,
                                                        mem[1] / mem[0]), flush=True)


print("%d cores, %.0f GFLOP/s, %.1f GB/s; milliseconds%s; ratios: theirs over ours%s" %
      (len(os.sched_getaffinity(0)), flops_rate / 1e9, bytes_rate / 1e9,
       "" if clock is time.perf_counter else " of CPU", "" if torch else "; no PyTorch here"))
print("%-26s %10s %10s %8s %10s %8s %10s %6s" % ("", "xlane", "JAX CPU", "ratio", "PyTorch", "ratio", "limit", "of it"))

# ---- a GPT: 4 layers, width 256, 8 heads, vocabulary 256, batch 8 x 128, AdamW ---------------------------------------
L, D, H, V, B, T = 4, 256, 8, 256, 8, 128


def gpt_params():
    p = {"wte": f32(V, D, scale=.02), "wpe": f32(T, D, scale=.02), "lnf": [np.ones(D, np.float32),
        np.zeros(D, np.float32)], "h": []}
    for _ in range(L):
        p["h"].append({"ln1": [np.ones(D, np.float32), np.zeros(D, np.float32)],
                       "ln2": [np.ones(D, np.float32), np.zeros(D, np.float32)],
                       "qkv": [f32(D, 3 * D, scale=.02), np.zeros(3 * D, np.float32)], "proj": [f32(D, D, scale=.02),
                           np.zeros(D, np.float32)],
                       "up": [f32(D, 4 * D, scale=.02), np.zeros(4 * D, np.float32)], "down": [f32(4 * D, D, scale=.02),
                           np.zeros(D, np.float32)]})
    return p


def layer_norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


def gpt_loss(p, x, y, dtype):
    p = jax.tree.map(lambda a: a.astype(dtype), p)
    h = p["wte"][x] + p["wpe"]
    mask = jnp.tril(jnp.ones((T, T), bool))
    for l in p["h"]:
        a = layer_norm(h, *l["ln1"]) @ l["qkv"][0] + l["qkv"][1]
        q, k, v = [t.reshape(B, T, H, D // H).transpose(0, 2, 1, 3) for t in jnp.split(a, 3, -1)]
        s = (q @ k.transpose(0, 1, 3, 2)) / np.sqrt(D // H).astype(dtype)
        s = jax.nn.softmax(jnp.where(mask, s, jnp.finfo(dtype).min).astype(jnp.float32), -1).astype(dtype)
        h = h + (s @ v).transpose(0, 2, 1, 3).reshape(B, T, D) @ l["proj"][0] + l["proj"][1]
        u = layer_norm(h, *l["ln2"]) @ l["up"][0] + l["up"][1]
        h = h + jax.nn.gelu(u) @ l["down"][0] + l["down"][1]
    logits = (layer_norm(h, *p["lnf"]) @ p["wte"].T).astype(jnp.float32)
    lp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(lp, y[..., None], -1).mean()


def adamw(p, g, m, v, t, lr=3e-4, b1=.9, b2=.95, wd=.1, eps=1e-8):
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, g)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, g)
    c1, c2 = 1 - b1 ** t, 1 - b2 ** t
    p = jax.tree.map(lambda p, m, v: p - lr * (m / c1 / (jnp.sqrt(v / c2) + eps) + wd * p), p, m, v)
    return p, m, v


def gpt_step(dtype):
    def step(p, m, v, t, x, y):
        loss, g = jax.value_and_grad(gpt_loss)(p, x, y, dtype)
        t = t + 1
        return (*adamw(p, g, m, v, t.astype(jnp.float32)), t, loss)
    return step


def gpt_torch(dtype):
    if not torch:
        return None
    torch.manual_seed(0)
    mods = torch.nn.ModuleDict({"wte": torch.nn.Embedding(V, D), "wpe": torch.nn.Embedding(T, D),
                                "lnf": torch.nn.LayerNorm(D)})
    for i in range(L):
        mods["%d" % i] = torch.nn.ModuleDict({"ln1": torch.nn.LayerNorm(D), "ln2": torch.nn.LayerNorm(D),
                                              "qkv": torch.nn.Linear(D, 3 * D),
                                              "proj": torch.nn.Linear(D, D), "up": torch.nn.Linear(D,
                                                  4 * D), "down": torch.nn.Linear(4 * D, D)})
    opt = torch.optim.AdamW(mods.parameters(), lr=3e-4, betas=(.9, .95), weight_decay=.1)
    x, y = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == jnp.bfloat16):
            h = mods["wte"](x) + mods["wpe"].weight
            for i in range(L):
                l = mods["%d" % i]
                q, k, v = [t.view(B, T, H, D // H).transpose(1, 2) for t in l["qkv"](l["ln1"](h)).chunk(3, -1)]
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                h = h + l["proj"](o.transpose(1, 2).reshape(B, T, D))
                h = h + l["down"](F.gelu(l["up"](l["ln2"](h)), approximate="tanh"))
            logits = mods["lnf"](h) @ mods["wte"].weight.T
            loss = F.cross_entropy(logits.float().view(-1, V), y.view(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.item()
    return step


def gpt_flops():
    per = D * 3 * D + D * D + 8 * D * D
    return 3 * 2 * B * T * (L * per + D * V) + 3 * 2 * 2 * L * B * H * T * T * (D // H)


def carried(args, out):
    return [*out[:4], *args[4:]]


p = gpt_params()
zeros = jax.tree.map(np.zeros_like, p)
tok = [rng.integers(0, V, (B, T)).astype(np.int32) for _ in range(2)]
for name, dtype in (("f32", jnp.float32), ("bf16", jnp.bfloat16)):
    if not only or only in "gpt " + name:
        measure("gpt " + name, gpt_step(dtype), [p, zeros, zeros, np.int32(0), *tok], gpt_torch(dtype),
                flops=gpt_flops(), step=carried, donate=(0, 1, 2, 3))

# ---- a conv net and a scan model -------------------------------------------------------------------------------------
C = 32


def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv_loss(p, x, y):
    h = jax.nn.relu(conv(x, p["in"]))
    for a, b, s in p["blocks"]:
        r = jax.nn.relu(conv(h, a, 2))
        h = jax.nn.relu(conv(r, b) + conv(h, s, 2))
    lp = jax.nn.log_softmax(h.mean((1, 2)) @ p["out"])
    return -jnp.take_along_axis(lp, y[:, None], -1).mean()


def sgd(loss):
    def step(p, t, x, y):
        l, g = jax.value_and_grad(loss)(p, x, y)
        return jax.tree.map(lambda p, g: p - .05 * g, p, g), t + 1, l
    return step


def cnet_torch():
    if not torch:
        return None
    w = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(C, 3, 3, 3) * .1)])
    for i in range(2):
        a = C << i
        w.extend([torch.nn.Parameter(torch.randn(2 * a, a, 3, 3) * .1),
                  torch.nn.Parameter(torch.randn(2 * a, 2 * a, 3, 3) * .1),
                  torch.nn.Parameter(torch.randn(2 * a, a, 1, 1) * .1)])
    w.append(torch.nn.Parameter(torch.randn(10, 4 * C) * .1))
    opt = torch.optim.SGD(w, lr=.05)
    x, y = torch.randn(16, 3, 32, 32).contiguous(memory_format=torch.channels_last), torch.randint(0, 10, (16,))

    def step():
        h = F.relu(F.conv2d(x, w[0], padding=1))
        for i in range(2):
            a, b, s = w[1 + 3 * i:4 + 3 * i]
            h = F.relu(F.conv2d(F.relu(F.conv2d(h, a, stride=2, padding=1)), b, padding=1) + F.conv2d(h, s, stride=2))
        loss = F.cross_entropy(h.mean((2, 3)) @ w[-1].T, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    return step


cp = {"in": f32(3, 3, 3, C, scale=.1), "out": f32(4 * C, 10, scale=.1),
      "blocks": [[f32(3, 3, C << i, 2 * C << i, scale=.1), f32(3, 3, 2 * C << i, 2 * C << i, scale=.1),
                  f32(1, 1, C << i, 2 * C << i, scale=.1)] for i in range(2)]}
cflops = 3 * 2 * 16 * (32 * 32 * 9 * 3 * C + sum((16 >> i)**2 * (9 * (C << i) * (2 * C << i) + 9 * (2 * C << i)**2
    + (C << i) * (2 * C << i)) for i in range(2)))
if not only or only in "conv net":
    measure("conv net", sgd(conv_loss), [cp, np.int32(0), f32(16, 32, 32, 3), rng.integers(0, 10, 16).astype(np.int32)],
            cnet_torch(),
            flops=cflops, step=lambda a, o: [*o[:2], *a[2:]], donate=(0, 1))

N, S, E = 64, 8, 128


def scan_loss(p, x, y):
    u = jax.nn.silu(x @ p["in"])
    dt, bc = jax.nn.softplus(u @ p["dt"]), u @ p["bc"]
    b, c = jnp.split(bc, 2, -1)
    a = -jnp.exp(p["a"])

    def body(h, t):
        ut, d, bt, ct = t
        h = h * jnp.exp(d[..., None] * a) + (d * ut)[..., None] * bt[:, None, :]
        return h, (h * ct[:, None, :]).sum(-1)
    _, ys = lax.scan(body, jnp.zeros((8, E, S)), jax.tree.map(lambda v: v.swapaxes(0, 1), (u, dt, b, c)))
    return ((ys.swapaxes(0, 1) @ p["out"] - y) ** 2).mean()


sp = {"in": f32(64, E, scale=.1), "dt": f32(E, E, scale=.1), "bc": f32(E, 2 * S, scale=.1), "a": f32(E, S, scale=.1),
      "out": f32(E, 64, scale=.1)}
measure("scan model", sgd(scan_loss), [sp, np.int32(0), f32(8, N, 64), f32(8, N, 64)], step=lambda a,
        o: [*o[:2], *a[2:]], donate=(0, 1))

# ---- single shapes ---------------------------------------------------------------------------------------------------
x = f32(4096, 1024)
g, b = f32(1024), f32(1024)
nb = x.nbytes
tx, tg, tb = [torch.from_numpy(a) if torch else None for a in (x, g, b)]
measure("softmax 4096x1024", jax.nn.softmax, [x], lambda: F.softmax(tx, -1), nbytes=2 * nb)
measure("layer norm 4096x1024", layer_norm, [x, g, b], lambda: F.layer_norm(tx, (1024,), tg, tb), nbytes=2 * nb)
measure("gelu 4096x1024", jax.nn.gelu, [x], lambda: F.gelu(tx, approximate="tanh"), nbytes=2 * nb)
labels = rng.integers(0, 1024, 4096).astype(np.int32)
tl = torch.from_numpy(labels).long() if torch else None
measure("cross-entropy 4096x1024", lambda x, y: -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean(),
        [x, labels],
        lambda: F.cross_entropy(tx, tl), nbytes=nb)
w = [f32(1024, 1024) for _ in range(4)]
w[3] = np.abs(w[3])


def torch_adamw():
    if not torch:
        return None
    q = torch.nn.Parameter(torch.from_numpy(w[0].copy()))
    opt = torch.optim.AdamW([q], lr=3e-4, betas=(.9, .95), weight_decay=.1)
    q.grad = torch.from_numpy(w[1].copy())
    return opt.step


measure("AdamW 1M", lambda p, g, m, v: adamw(p, g, m, v, 7.0), w, torch_adamw(), nbytes=7 * w[0].nbytes)
for n in (64, 128, 256, 512, 1024, 2048):
    a, c = f32(n, n), f32(n, n)
    ta, tc = [torch.from_numpy(v) if torch else None for v in (a, c)]
    measure("matmul %d" % n, jnp.matmul, [a, c], lambda ta=ta, tc=tc: ta @ tc, flops=2 * n**3)
one = np.float32(1)
ts = torch.tensor(1.0) if torch else None
measure("tiny program", lambda a, b: a * b + a, [one, one], lambda: ts * ts + ts)
guard = os.path.join(here, "build", "bench", "guard")
if (not only or only in "tiny program") and os.path.exists(guard):      # what of that call is not JAX's own
    r = subprocess.run([guard, lib, os.path.join(os.path.dirname(guard), "..", "libxlane-guard.so")],
                       capture_output=True, text=True)
    print("   from C, PJRT_LoadedExecutable_Execute and back: %s" % (r.stdout or r.stderr).split("\n")[0], flush=True)
low = [n for n, r in rows if r < 1]
print("%d rows, slower than JAX's CPU: %s" % (len(rows), ", ".join(low) or "none"))
