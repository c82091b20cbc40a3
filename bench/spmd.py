"""Many simulated devices on one machine: what splitting a training step costs, beside one device and beside JAX's own
devices.

    ./x bench spmd                                  all rows
    build/venv/bin/python bench/spmd.py gpt         rows whose name has `gpt` in it; `coll` for the collectives alone

The same global work (a GPT step of the size of bench/cpu.py, AdamW) on 1, 2, 4 and 8 devices: batch split, weights
split, both. Times are the best of several, all variants taking turns. `over one` is our time over our own on one
device. Optimizer state is split over the batch axis too, so that the devices together do the work of one; the row
`copies` keeps it whole on every device, which is eight times the update by the program's own will.
XLANE_BENCH_CLOCK=cpu measures the CPU time of all threads instead of the time on the wall: on a machine that others use
too that is the figure to look at."""
import os, sys, time
sys.path[0] = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "test")
import _eight
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

only = sys.argv[1] if len(sys.argv) > 1 else ""
clock = time.process_time if os.environ.get("XLANE_BENCH_CLOCK") == "cpu" else time.perf_counter
seconds = float(os.environ.get("XLANE_BENCH_SECONDS", "1.5"))
theirs = os.environ.get("XLANE_BENCH_ALONE", "0") == "0"   # beside JAX's CPU
rng = np.random.default_rng(0)


def f32(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def best(fns, most=200):
    """The best time of each of fns, called in turns."""
    out = [float("inf")] * len(fns)
    end, n = time.perf_counter() + seconds * len(fns), 0
    while n < 3 or (time.perf_counter() < end and n < most):
        for i, f in enumerate(fns):
            t = clock()
            f()
            out[i] = min(out[i], clock() - t)
        n += 1
    return out


def mesh_of(platform, data, model):
    return Mesh(np.array(jax.devices(platform)[:data * model]).reshape(data, model), ("data", "model"))


# ---- a GPT step ------------------------------------------------------------------------------------------------------
L, D, H, V, B, T = 4, 256, 8, 256, 8, 128


def params():
    one, zero = (lambda: np.ones(D, np.float32)), (lambda: np.zeros(D, np.float32))
    layer = lambda: {"ln1": [one(), zero()], "ln2": [one(), zero()], "q": f32(D, H, D // H, scale=.02),
                     "k": f32(D, H, D // H, scale=.02), "v": f32(D, H, D // H, scale=.02),
                     "proj": f32(H, D // H, D, scale=.02), "up": f32(D, 4 * D, scale=.02), "upb": np.zeros(4 * D,
                         np.float32), "down": f32(4 * D, D, scale=.02), "downb": zero()}
    return {"wte": f32(V, D, scale=.02), "wpe": f32(T, D, scale=.02), "lnf": [one(), zero()],
            "h": [layer() for _ in range(L)]}


def specs(p, tensor):
    """Weights over `model`, Megatron's way; the rest on every device."""
    cut = {"q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "proj": P("model"),
           "up": P(None, "model"), "upb": P("model"), "down": P("model")}
    return jax.tree_util.tree_map_with_path(lambda path, _: cut.get(getattr(path[-1], "key", None), P()) if tensor
                                            else P(), p)


def over_data(p, s, n):
    """The first dimension that is whole and divides goes over `data`: optimizer state of which each device keeps a part."""
    def one(x, s):
        dims = list(s) + [None] * (x.ndim - len(s))
        for d in range(x.ndim):
            if dims[d] is None and x.shape[d] % n == 0 and x.size >= 1 << 12:
                dims[d] = "data"
                break
        return P(*dims)
    return jax.tree.map(one, p, s) if n > 1 else s


def norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


def loss_of(p, x, y):
    h = p["wte"][x] + p["wpe"]
    mask = jnp.tril(jnp.ones((T, T), bool))
    for l in p["h"]:
        a = norm(h, *l["ln1"])
        q, k, v = (jnp.einsum("btd,dhe->bhte", a, l[n]) for n in "qkv")
        s = jnp.einsum("bhte,bhse->bhts", q, k) / np.float32(np.sqrt(D // H))
        s = jax.nn.softmax(jnp.where(mask, s, np.finfo(np.float32).min), -1)
        h = h + jnp.einsum("bhte,hed->btd", jnp.einsum("bhts,bhse->bhte", s, v), l["proj"])
        h = h + jax.nn.gelu(norm(h, *l["ln2"]) @ l["up"] + l["upb"]) @ l["down"] + l["downb"]
    lp = jax.nn.log_softmax(norm(h, *p["lnf"]) @ p["wte"].T)
    return -jnp.take_along_axis(lp, y[..., None], -1).mean()


def step(p, m, v, t, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    t = t + 1
    m = jax.tree.map(lambda m, g: .9 * m + .1 * g, m, g)
    v = jax.tree.map(lambda v, g: .95 * v + .05 * g * g, v, g)
    c1, c2 = 1 - .9 ** t, 1 - .95 ** t
    p = jax.tree.map(lambda p, m, v: p - 3e-4 * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + .1 * p), p, m, v)
    return p, m, v, t, loss


def stepper(platform, data, model, split_state=True):
    mesh = mesh_of(platform, data, model)
    named = lambda s: jax.tree.map(lambda s: NamedSharding(mesh, s), s)
    p = params()
    ps = specs(p, model > 1)
    ss = over_data(p, ps, data) if split_state else ps
    zero = jax.tree.map(np.zeros_like, p)
    tok = [rng.integers(0, V, (B, T)).astype(np.int32) for _ in range(2)]
    p, m, v = jax.device_put(p, named(ps)), jax.device_put(zero, named(ss)), jax.device_put(zero, named(ss))
    t, batch = jax.device_put(np.float32(0), NamedSharding(mesh, P())), jax.device_put(tok,
        NamedSharding(mesh, P("data")))
    f = jax.jit(step, donate_argnums=(0, 1, 2, 3), out_shardings=(named(ps), named(ss), named(ss),
        NamedSharding(mesh, P()), NamedSharding(mesh, P())))
    state = [(p, m, v, t)]

    def call():
        *s, loss = f(*state[0], *batch)
        state[0] = tuple(s)
        return jax.block_until_ready(loss)
    call()
    return call


def gpt():
    rows = [("one device", 1, 1, True)] + [("%d, batch split" % n, n, 1, True) for n
                                           in (2, 4, 8)] + [("8, batch split, copies", 8, 1, False)] + \
           [("%d, weights split" % n, 1, n, True) for n in (2, 4, 8)] + [("2x4, both split", 2, 4, True)]
    calls = [stepper(p, *r[1:]) for r in rows for p in (("xlane", "cpu") if theirs else ("xlane",))]
    t = best(calls)
    per = 2 if theirs else 1
    print("%-32s %10s %10s %10s %8s" % ("a GPT step, milliseconds" + ("" if clock is time.perf_counter else " of CPU"),
                                        "xlane", "over one", "JAX CPU", "ratio"))
    for i, r in enumerate(rows):
        a, b = t[per * i], t[per * i + per - 1]
        print("%-32s %10.2f %9.0f%% %10.2f %7.2fx" % (r[0], a * 1e3, 100 * (a / t[0] - 1), b * 1e3, b / a), flush=True)


# ---- collectives alone -----------------------------------------------------------------------------------------------
def collectives():
    ring = [(i, (i + 1) % 8) for i in range(8)]
    kinds = {"all_reduce": lambda x: lax.psum(x, "data"), "all_gather": lambda x: lax.all_gather(x, "data", tiled=True),
             "reduce_scatter": lambda x: lax.psum_scatter(x, "data",
                                                          tiled=True), "all_to_all": lambda x: lax.all_to_all(x, "data",
                                                              0, 0, tiled=True),
             "collective_permute": lambda x: lax.ppermute(x, "data", ring)}
    # what must at least be read and written, of n bytes on each of 8 devices: the operand is read, the result written
    touched = {"all_reduce": 2, "all_gather": 9, "reduce_scatter": 9 / 8, "all_to_all": 2, "collective_permute": 2}
    src, dst = np.ones(1 << 26, np.uint8), np.ones(1 << 26, np.uint8)
    rate = 2 * dst.size / best([lambda: np.copyto(dst, src)])[0]
    print("collectives over 8 devices, GB/s read and written by all together (memory copy: %.1f)" % (rate / 1e9))
    print("%-20s %10s %10s %10s %8s" % ("", "KiB each", "xlane", "JAX CPU", "ratio"))
    for name, fn in kinds.items():
        for kib in (16, 256, 4096):
            x = np.ones((8 * kib * 256,), np.float32)
            calls = []
            for platform in ("xlane", "cpu"):
                mesh = mesh_of(platform, 8, 1)
                a = jax.device_put(x, NamedSharding(mesh, P("data")))
                f = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False))
                calls.append(lambda f=f, a=a: jax.block_until_ready(f(a)))
            for c in calls:
                c()
            t = best(calls, 400)
            n = 8 * kib * 1024 * touched[name]
            print("%-20s %10d %10.2f %10.2f %7.2fx" % (name, kib, n / t[0] / 1e9, n / t[1] / 1e9, t[1] / t[0]),
                  flush=True)


for name, fn in (("gpt", gpt), ("collectives", collectives)):
    if only in name:
        fn()
