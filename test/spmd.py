"""SPMD on eight simulated devices: the same programs on one device, on eight of ours, and on JAX's own eight-device
CPU. Losses must agree; for five training steps the bytes that go through collectives are set beside what XLA's
partitioner inserts."""
import contextlib, functools, glob, io, itertools, json, os, re, subprocess, sys, tempfile, threading
import _check
from _check import end, holds
from _eight import here, lib
import numpy as np
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

_check.only = sys.argv[1:]

def mesh_of(platform, **axes):
    return Mesh(np.array(jax.devices(platform)).reshape(tuple(axes.values())), tuple(axes))

def close(a, b, tol=2e-4):
    a, b = (jax.tree.leaves(jax.tree.map(np.asarray, x)) for x in (a, b))
    for i, (x, y) in enumerate(zip(a, b)):
        if x.shape != y.shape or not np.allclose(x.astype(np.float64), y.astype(np.float64), rtol=tol, atol=tol):
            return "value %d differs: %s against %s" % (i, x.ravel()[:4], y.ravel()[:4])
    return None

# ---- models ----------------------------------------------------------------------------------------------------------
L, D, H, V, B, T, E = 2, 32, 4, 64, 8, 16, 4
r0 = np.random.default_rng(0)
n = lambda *s: (r0.normal(size=s) * 0.1).astype(np.float32)

def gpt_params():
    layer = lambda: dict(q=n(D, H, D // H), k=n(D, H, D // H), v=n(D, H, D // H), o=n(H, D // H, D), up=n(D, 4 * D),
                         down=n(4 * D, D), g=np.ones(D, np.float32))
    return dict(tok=n(V, D), head=n(D, V), layers=[layer() for _ in range(L)])

def norm(x, g):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g

def block(x, l):
    h = norm(x, l["g"])
    q, k, v = (jnp.einsum("btd,dhe->bhte", h, l[a]) for a in "qkv")
    a = jnp.einsum("bhte,bhse->bhts", q, k) / np.sqrt(D // H)
    a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((T, T), bool)), a, -1e9))
    x = x + jnp.einsum("bhts,bhse,hed->btd", a, v, l["o"])
    return x + jax.nn.gelu(norm(x, l["g"]) @ l["up"]) @ l["down"]

def xent(x, head, tokens):
    logp = jax.nn.log_softmax(x @ head)
    return -jnp.take_along_axis(logp, tokens[:, 1:, None], -1).mean()

def gpt_loss(p, tokens):
    x = p["tok"][tokens[:, :-1]]
    for l in p["layers"]:
        x = block(x, l)
    return xent(x, p["head"], tokens)

def scan_loss(p, tokens):
    x = p["tok"][tokens[:, :-1]]
    x, _ = jax.lax.scan(lambda x, l: (block(x, l), None), x, jax.tree.map(lambda *a: jnp.stack(a), *p["layers"]))
    return xent(x, p["head"], tokens)

def sequence_loss(mesh):
    """Activations split over batch and sequence: keys and values are gathered for the attention, everything else stays apart."""
    cut = lambda x, *s: x if mesh is None else jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*s)))
    def loss(p, tokens):
        x = cut(p["tok"][tokens[:, :-1]], "data", "seq")
        for l in p["layers"]:
            h = norm(x, l["g"])
            q, k, v = (jnp.einsum("btd,dhe->bhte", h, l[a]) for a in "qkv")
            k, v = cut(k, "data"), cut(v, "data")
            a = jnp.einsum("bhte,bhse->bhts", cut(q, "data", None, "seq"), k) / np.sqrt(D // H)
            a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((T, T), bool)), a, -1e9))
            x = cut(x + jnp.einsum("bhts,bhse,hed->btd", a, v, l["o"]), "data", "seq")
            x = cut(x + jax.nn.gelu(norm(x, l["g"]) @ l["up"]) @ l["down"], "data", "seq")
        return xent(x, p["head"], tokens)
    return loss
by_mesh = (sequence_loss,)

def moe_params():
    return dict(tok=n(V, D), head=n(D, V), gate=n(D, E * 2), up=n(E * 2, D, 2 * D), down=n(E * 2, 2 * D, D))

def moe_loss(p, tokens):
    x = p["tok"][tokens[:, :-1]]
    w = jax.nn.softmax(x @ p["gate"])
    w = w * (w >= jax.lax.top_k(w, 2)[0][..., -1:])
    h = jax.nn.gelu(jnp.einsum("btd,edf->btef", x, p["up"]))
    return xent(x + jnp.einsum("btef,efd,bte->btd", h, p["down"], w), p["head"], tokens)

@functools.cache                                         # JAX traces the same function once for all devices
def step_of(loss):
    def step(p, m, v, t, tokens):
        l, g = jax.value_and_grad(loss)(p, tokens)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
        p = jax.tree.map(lambda p, m, v: p - 3e-3 * (m / (1 - 0.9 ** t) / (jnp.sqrt(v / (1 - 0.99 ** t)) + 1e-8)
                                                     + 0.01 * p), p, m, v)
        return p, m, v, t, l
    return step

gpt_tp = dict(tok=P(), head=P(), layers=[dict(q=P(None, "model"), k=P(None, "model"), v=P(None, "model"), o=P("model"),
                                              up=P(None, "model"), down=P("model"), g=P())] * L)
gpt_vocab = dict(gpt_tp, tok=P("model"), head=P(None, "model"))
everywhere = lambda p: jax.tree.map(lambda _: P(), p)

def train(platform, loss, params, axes=None, specs=None, batch=P("data"), steps=3, shape=None):
    r = np.random.default_rng(1)
    data = [r.integers(0, V, shape or (B, T + 1)).astype(np.int32) for _ in range(steps)]
    step = step_of(loss(mesh_of(platform, **axes) if axes else None) if loss in by_mesh else loss)
    zero = jax.tree.map(np.zeros_like, params)
    if axes:
        mesh = mesh_of(platform, **axes)
        put = lambda t, s: jax.tree.map(lambda x, s: jax.device_put(x, NamedSharding(mesh, s)), t, s)
        p, m, v = put(params, specs), put(zero, specs), put(zero, specs)
        t = jax.device_put(np.float32(0), NamedSharding(mesh, P()))
        data = [jax.device_put(d, NamedSharding(mesh, batch)) for d in data]
    else:
        d = jax.devices(platform)[0]
        p, m, v, t, data = jax.device_put((params, zero, zero, np.float32(0), data), d)
    outs = None
    if axes:
        named = jax.tree.map(lambda s: NamedSharding(mesh, s), specs)
        outs = (named, named, named, NamedSharding(mesh, P()), NamedSharding(mesh, P()))
    low = jax.jit(step, donate_argnums=(0, 1, 2), out_shardings=outs).lower(p, m, v, t, data[0])
    text, f = low.as_text(), low.compile()
    out = []
    for d in data:
        p, m, v, t, l = f(p, m, v, t, d)
        out.append(float(l))
    return np.array(out), f, p, text

width = dict(f32=4, s32=4, u32=4, pred=1, bf16=2, s64=8, u64=8, f64=8, u8=1, s8=1, i1=1, i8=1, ui8=1, i32=4, ui32=4,
             i64=8, ui64=8)
def ring(kind, n, k):
    """What a device sends in a ring of k for an operand of n bytes (src/pass/shard.h)."""
    return {"all_reduce": 2 * (k - 1) / k * n, "all_gather": (k - 1) * n, "reduce_scatter": (k - 1) / k * n,
            "all_to_all": (k - 1) / k * n}.get(kind, n)

def group_of(line):
    """The devices of the first group, of the three ways in which XLA writes that."""
    ints = lambda t: [int(x) for x in t.split(",")]
    turned = lambda shape, perm: np.arange(8).reshape(ints(shape) if shape else 8).transpose(ints(perm) if perm
        else None)
    mesh = re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]*)\](?:T\(([\d,]*)\))?\))?\s*\{([^}]*)\}", line)
    if mesh:
        axes, used = re.findall(r"'(\w+)'=(\d+)", mesh.group(1)), re.findall(r"'(\w+)'", mesh.group(4))
        ids = turned(mesh.group(2), mesh.group(3)).reshape([int(k) for _, k in axes])
        return ids[tuple(slice(None) if a in used else 0 for a, _ in axes)].ravel()
    g = re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line)
    if g:
        return turned(g.group(3), g.group(4)).reshape(int(g.group(1)), int(g.group(2)))[0]
    g = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    return np.array(ints(g.group(1)) if g else range(8))

def over(group, axes):
    """The axes of the mesh along which the devices of a group differ."""
    ids = np.arange(8).reshape(tuple(axes.values()))
    for n in range(1, len(axes) + 1):
        for some in itertools.combinations(axes, n):
            if sorted(group) == sorted(ids[tuple(slice(None) if a in some else 0 for a in axes)].ravel()):
                return ", ".join(some)
    return "groups of %d" % len(group)

def xla_crossings(text, axes):
    """[(kind, devices in a group, over, operand, bytes of it, times)] of an HLO text; what stands in a loop as often as the loop turns."""
    out, turns, times = [], {}, 1
    for line in text.splitlines():
        w = re.search(r" while\(.*body=%?([\w.\-]+).*known_trip_count\W+n\W+(\d+)", line)
        if w:
            turns[w.group(1)] = int(w.group(2))
    for line in text.splitlines():
        line = re.sub(r"/\*.*?\*/", "", line)
        head = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if head:
            times = turns.get(head.group(1), 1)
        m = re.search(r"= (\(?[^=]*?\)?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast)(-start)?\(", line)
        if not m:
            continue
        kind, group = m.group(2).replace("-", "_"), group_of(line)
        k = len(group)
        for d, dims in re.findall(r"(\w+)\[([\d,]*)\]", m.group(1)):
            if d in width:
                dims = dims.split(",") if dims else []
                size = width[d] * int(np.prod([int(x) for x in dims] or [1]))
                size = size // k if kind == "all_gather" else size * k if kind == "reduce_scatter" else size
                out.append((kind, k, over(group, axes), "x".join(dims + [d]), size, times))
    return out

def our_crossings(text, axes):
    r = subprocess.run([os.path.join(here, "build", "xlane"), "sharding", "--json", "-"], input=text,
                       capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr)
    out = []
    for c in json.loads(r.stdout)["collectives"]:
        kind, g = c["op"].replace("stablehlo.", ""), re.fullmatch(r"groups of (\d+)", c["over"])
        k = int(g.group(1)) if g else int(np.prod([axes.get(a, 1) for a in c["over"].split(", ")]))
        for o in c["operands"]:
            *dims, d = o["type"].split("x")
            out.append((kind, k, c["over"], o["type"], width[d] * int(np.prod([int(x) for x in dims] or [1])),
                        o["count"]))
        if abs(sum(x[4] * x[5] for x in out if x[0] == kind and x[2] == c["over"]) - c["bytes"]) > 0.5:
            raise RuntimeError("the operands of %s over %s are not its %d bytes" % (kind, c["over"], c["bytes"]))
    return out

def rows(ops, key):
    """{key(op): [times, operand bytes, ring bytes, operands]}"""
    out = {}
    for o in ops:
        row = out.setdefault(key(o), [0, 0, 0, set()])
        for i, x in enumerate((1, o[4], ring(o[0], o[4], o[1]))):
            row[i] += x * o[5]
        row[3].add(o[3])
    return out

none = [0, 0, 0, set()]
def table(name, mine, xla):
    """Both sides by kind; the sums of operand and of ring bytes."""
    print("%-34s %6s %6s | %5s %9s %9s | %5s %9s %9s" % (name + ": collectives", "", "group", "ours", "operands",
                                                         "ring", "XLA's", "operands", "ring"), file=sys.stderr)
    mine, xla = (rows(s, lambda o: o[:2]) for s in (mine, xla))
    for key in sorted(set(mine) | set(xla)):
        a, b = mine.get(key, none), xla.get(key, none)
        print("%-41s %6d | %5d %9d %9d | %5d %9d %9d" % (key[0], key[1], *map(int, a[:3]), *map(int, b[:3])),
              file=sys.stderr)
    sums = [[sum(r[i] for r in side.values()) for side in (mine, xla)] for i in (1, 2)]
    print("%-41s %6s | %5s %9d %9d | %5s %9d %9d   %.2fx %.2fx" % ("together", "", "", sums[0][0], sums[1][0], "",
        sums[0][1], sums[1][1], *[m / max(x, 1) for m, x in sums]), file=sys.stderr)
    return sums

guide = open(os.path.join(here, "docs", "spmd.md")).read()
def unexplained(name, mine, xla):
    """Op by op: what one side has and the other has not, as rows of the guide's table, and each must stand there with
    its reason. None, or those that do not; what XLA does is of one version of JAX, which the guide names."""
    mine, xla = (rows(s, lambda o: (o[0], o[2], o[4])) for s in (mine, xla))
    seen = set()
    for key in sorted(set(mine) | set(xla)):
        a, b = mine.get(key, none), xla.get(key, none)
        if a[0] != b[0]:
            seen.add("| %s | %s over %s | %s | %d | %d |" % (name, key[0], key[1], ", ".join(sorted(a[3] or b[3])),
                a[0], b[0]))
    print("\n".join(sorted(seen)), file=sys.stderr)
    told = set(re.findall(r"^(\| %s \| \w+ over [^|]* \| [^|]* \| \d+ \| \d+ \|) \w.* \|$" % re.escape(name), guide,
                          re.M))
    return "docs/spmd.md should explain these and no others: %s" % sorted(seen) if seen != told and "JAX " + jax.__version__ in guide else None

alone = {}                                               # the splits of a model all have one device to agree with
def same_losses(name, loss, params, axes, specs, batch=P("data"), bytes_limit=None, shape=None, explained=False):
    def go():
        ours, f, p, text = train("xlane", loss, params, axes, specs, batch, shape=shape)
        key = loss, id(params), shape
        if key not in alone:
            alone[key] = train("xlane", loss, params, shape=shape)
        one, _, p1, _ = alone[key]
        theirs, g, _, _ = train("cpu", loss, params, axes, specs, batch, shape=shape)
        print("%s: losses %s" % (name, np.round(ours, 5)), file=sys.stderr)
        why = close(ours, one, 1e-4) or close(ours, theirs, 1e-4) or close(p, p1, 1e-3)
        mine, xla = our_crossings(text, axes), xla_crossings(g.as_text(), axes)
        sums = table(name, mine, xla)
        if explained:
            why = why or unexplained(name, mine, xla)
        for what, (mine, xla) in zip(("operands", "a ring"), sums):
            if not why and bytes_limit and mine > bytes_limit * xla:
                why = "%d bytes through collectives (%s), XLA's partitioner needs %d" % (mine, what, xla)
        if not why and abs(f.cost_analysis()["collective ring bytes"] - sums[1][0]) > 1e-6 * sums[1][0] + 1 and loss is not scan_loss:
            why = "the executable says %s ring bytes, the drawing %s" % (f.cost_analysis()["collective ring bytes"],
                sums[1][0])
        return why
    holds(name, go)

gpt, moe = gpt_params(), moe_params()
for shardy in (True, False):
    jax.config.update("jax_use_shardy_partitioner", shardy)
    tag = "" if shardy else " (GSPMD)"
    same_losses("data-parallel GPT" + tag, gpt_loss, gpt, dict(data=8), everywhere(gpt), bytes_limit=1.25,
                explained=shardy)
    same_losses("tensor-parallel GPT" + tag, gpt_loss, gpt, dict(data=2, model=4), gpt_tp, P(), bytes_limit=1.25,
                explained=shardy)
    same_losses("data x tensor GPT" + tag, gpt_loss, gpt, dict(data=2, model=4), gpt_tp, bytes_limit=1.25,
                explained=shardy)
    same_losses("vocabulary-sharded loss" + tag, gpt_loss, gpt, dict(data=2, model=4), gpt_vocab, bytes_limit=1.25,
                explained=shardy)
    same_losses("expert-parallel MoE" + tag, moe_loss, moe, dict(data=2, expert=4),
                dict(tok=P(), head=P(), gate=P(), up=P("expert"), down=P("expert")), bytes_limit=1.25, explained=shardy)
    if not shardy:
        break
    same_losses("scan model", scan_loss, gpt, dict(data=2, model=4), gpt_tp)
    same_losses("scan model, 2x2x2", scan_loss, gpt, dict(data=2, model=2, other=2), gpt_tp, P(("data", "other")))
    same_losses("sequence-sharded GPT", sequence_loss, gpt, dict(data=2, seq=4), everywhere(gpt), bytes_limit=1.25)
    same_losses("experts and batch on both axes", moe_loss, moe, dict(data=4, expert=2),
                dict(tok=P("data"), head=P(None, "expert"), gate=P(), up=P("expert", "data"),
                     down=P("expert", None, "data")), P(("data", "expert")))
    same_losses("tensor-parallel GPT, sums of 64 KiB and more", gpt_loss, gpt, dict(data=1, model=4, other=2), gpt_tp,
                P("other"), bytes_limit=1.25, shape=(64, T + 1))
    fsdp = jax.tree.map(lambda x: P("data") if x.shape[0] % 8 == 0 else P(), gpt)
    same_losses("parameters split over the batch axis", gpt_loss, gpt, dict(data=8), fsdp)
jax.config.update("jax_use_shardy_partitioner", True)

# ---- sequence axis, constraints --------------------------------------------------------------------------------------
def both(name, fn, *args, tol=1e-4, modes=(True, False)):
    """fn(mesh) gives a function of args; on eight devices of ours and of JAX's CPU."""
    def go():
        out = []
        for platform in ("xlane", "cpu"):
            mesh = mesh_of(platform, data=2, model=4)
            put = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in args]
            out.append(jax.jit(fn(mesh))(*put))
        a, b = (jax.tree.leaves(o) for o in out)
        for i, (x, y) in enumerate(zip(a, b)):
            if [s.index for s in x.addressable_shards] != [s.index for s in y.addressable_shards]:
                print("%s: result %d lies as %s, with XLA as %s" % (name, i, x.sharding, y.sharding), file=sys.stderr)
        return close(out[0], out[1], tol)
    for shardy in modes:
        jax.config.update("jax_use_shardy_partitioner", shardy)
        holds(name + ("" if shardy else " (GSPMD)"), go)
    jax.config.update("jax_use_shardy_partitioner", True)

x = np.random.default_rng(2).normal(size=(8, 16, 32)).astype(np.float32)
w = np.random.default_rng(3).normal(size=(32, 64)).astype(np.float32)
ids = np.random.default_rng(4).integers(0, 32, (8, 16)).astype(np.int32)
con = lambda mesh, x, *s: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*s)))
both("sequence axis", lambda m: lambda x, w: jax.nn.softmax(con(m, x, "data", "model") @ w, axis=1).sum(2),
     (x, P("data", "model")), (w, P()))
both("with_sharding_constraint", lambda m: lambda x, w: con(m, con(m, x @ w, None, "data", "model").transpose(1, 0, 2),
                                                            "model", "data"), (x, P("data")), (w, P(None, "model")))
both("all_to_all between dimensions", lambda m: lambda x: con(m, con(m, x * 2, "model"), None, "model"), (x, P()))
both("reshapes", lambda m: lambda x: (x.reshape(128, 32) + 1, x.reshape(8, 16, 4, 8).sum(-1), x.reshape(4, 2, 512)),
     (x, P("data", None, "model")))
both("gather and its gradient", lambda m: lambda t, i: jax.value_and_grad(lambda t: (t[i] ** 2).sum())(t),
     (w, P("model")), (ids, P("data")))
both("take_along_axis", lambda m: lambda x, i: jnp.take_along_axis(x, i[..., None], -1), (x, P("data", None, "model")),
     (ids, P("data")))
both("sort, cumsum, argmax, top_k", lambda m: lambda x: (jnp.sort(x, 1), jnp.cumsum(x, 0), jnp.argmax(x, -1),
                                                         jax.lax.top_k(x, 3)), (x, P("data", None, "model")))
both("concatenate, pad, slice, flip", lambda m: lambda x: (jnp.concatenate([x, x[:, ::2]], 1),
                                                           jnp.pad(x, ((0, 0), (1, 2), (0, 0))), x[:, 1:9, 4:], x[::-1,
                                                               :, ::-1]), (x, P("data", None, "model")))
both("iota, rng", lambda m: lambda x: (x + jnp.arange(32), con(m, jax.random.normal(jax.random.key(3), (8, 32)), "data",
    "model")), (x, P("data", None, "model")))
both("cond and while", lambda m: lambda x: (jax.lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x),
                                            jax.lax.while_loop(lambda c: c[0] < 3,
                                                lambda c: (c[0] + 1, c[1] @ c[1].transpose(0, 2, 1) @ c[1] * 1e-3), (0,
                                                    x))), (x, P("data", None, "model")), tol=1e-3)
both("convolution", lambda m: lambda x, k: jax.lax.conv_general_dilated(x, k, (1,), "SAME",
    dimension_numbers=("NHC", "HIO", "NHC")), (x, P("data", None, "model")), (np.stack([w] * 3),
        P(None, "model")), tol=1e-3)
both("linear algebra", lambda m: lambda x: jnp.linalg.cholesky(x @ x.transpose(0, 2, 1) + 9 * jnp.eye(16)),
     (x, P("data", "model")), tol=1e-3)

# ---- sizes that do not divide: 15 of time over 4 devices, 7 of batch over 2 ------------------------------------------
def attention(m):
    def loss(x, w):
        h = con(m, jnp.tanh(x @ w)[:, :-1], "data", "model")
        a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((15, 15), bool)), jnp.einsum("btd,bsd->bts", h, h), -1e9))
        return (con(m, jnp.einsum("bts,bsd->btd", a, h), "data", "model") ** 2).mean()
    return lambda x, w: jax.value_and_grad(loss, (0, 1))(x, w)
both("uneven: attention and its gradient", attention, (x, P("data")), (w, P()))

def reductions(m):
    def fn(x):
        y = con(m, (x * 3)[:7, :15], "data", "model") - 1
        n = (y * 4).astype(jnp.int32)
        ways = [y.sum(1), y.max((0, 1)), y.min(1), (1 + y / 50).prod(1), (y > -9).all((0, 1)), (y > 9).any(1),
                y.argmax(1), n.max(1), (n | 3).sum(0), jax.nn.logsumexp(y, 1), y.var(1)]
        # 1/0, log 0 in the padding: nobody may see it
        return ways, (1 / (y + 1) ** 2).min(1), jnp.log(jnp.abs(y + 1)).max(1), (7 // (n * n + 1)).sum(1)
    return fn
both("uneven: reductions", reductions, (x, P()))

def moves(m):
    def fn(x, w, i):
        y = con(m, x[:7, :15] + 1, "data", "model")
        z = con(m, (y @ w).transpose(1, 0, 2), "model", "data")
        return (z, jnp.sort(y, -1), jax.lax.top_k(y, 2), y.reshape(7, 15, 4, 8).sum(-1), y.reshape(105, 32),
                jnp.concatenate([y, y], 2), y[:, ::2], y[:, :, 3:9], jnp.pad(y, ((0, 0), (0, 0), (1, 1))),
                jnp.cumsum(y, 1), jnp.cumsum(y, 2), w.T[con(m, i[:7, :15], "data", "model")], jnp.take_along_axis(y,
                    con(m, i[:7, :15, None], "data", "model"), 2), jnp.flip(y, 1),
                jax.lax.dynamic_slice_in_dim(y, 3, 4, 2), jnp.zeros((32, 64)).at[i[:7, :15]].add(con(m, y @ w, "data",
                    "model")), jax.lax.conv_general_dilated(y, w[None], (1,), "SAME",
                                                            dimension_numbers=("NHC", "HIO", "NHC")))
    return fn
both("uneven: what moves elements", moves, (x, P()), (w, P()), (ids, P()), tol=1e-3)

def carried(m):
    def fn(x, w):
        turn = lambda h, _: (con(m, jnp.tanh(h @ w @ w.T * .1 + h.mean(1, keepdims=True)), "data", "model"), h.sum())
        h, sums = jax.lax.scan(jax.checkpoint(turn), x[:7, :15], None, length=3)
        return jax.lax.cond(h.sum() > 0, lambda h: h * 2, lambda h: con(m, h - 1, None, ("data", "model")), h), sums
    return lambda x, w: (fn(x, w), jax.grad(lambda x: fn(x, w)[0].sum())(x))
both("uneven: carried by a loop, remade for the gradient", carried, (x, P()), (w, P()), tol=1e-3)

def padded():
    """Each device holds and computes its part, padded: 15 over 4 are 4 each; nothing is gathered and nothing is said to be uneven."""
    mesh = mesh_of("xlane", data=2, model=4)
    fn = lambda x, w: jnp.tanh(con(mesh, x[:7, :15] @ w, "data", "model")).sum()
    low = jax.jit(fn).lower(*(jax.device_put(a, NamedSharding(mesh, P())) for a in (x, w)))
    r = subprocess.run([os.path.join(here, "build", "xlane"), "sharding", "--program", "-"], input=low.as_text(),
                       capture_output=True, text=True)
    for op, type in (("dot_general", "tensor<4x4x64xf32>"), ("tanh", "tensor<4x4x64xf32>")):
        if not re.search(r"stablehlo\.%s .*%s$" % (op, re.escape(type)), r.stdout, re.M):
            return "no %s of %s on a device: %s" % (op, type, r.stdout[-2000:] + r.stderr)
    said = low.compile().cost_analysis().get("gathered")
    return "all_gather in the program" if "all_gather" in r.stdout else said
holds("uneven: each device has its part, padded", padded)

# ---- shard_map -------------------------------------------------------------------------------------------------------
def collectives(x):
    i = jax.lax.axis_index("model")
    a = jax.lax.psum(x, "model") + i
    b = jax.lax.all_gather(a, "data", axis=0, tiled=True)
    c = jax.lax.psum_scatter(b, "data", scatter_dimension=0, tiled=True)
    d = jax.lax.ppermute(c, "model", [(0, 1), (1, 2), (2, 3), (3, 0)])
    e = jax.lax.all_to_all(d, "model", split_axis=1, concat_axis=2, tiled=True)
    f = jax.lax.all_to_all(e, "model", split_axis=2, concat_axis=1, tiled=True)
    g = jax.lax.pmean(x, "data") + jax.lax.all_gather(x, "model").sum(0) + jax.lax.psum_scatter(jnp.broadcast_to(x,
        (4,) + x.shape), "model")
    g = g + jax.lax.psum(x, ("data", "model")) + jax.lax.psum(x, "model",
        axis_index_groups=[[0, 2], [1, 3]]) + jax.lax.axis_index(("data", "model"))
    return f + g + jax.lax.pmax(x.sum(), ("data", "model")) + jax.lax.pmin(x.sum(), "data")
smap = lambda m, f, i, o, **k: jax.shard_map(f, mesh=m, in_specs=i, out_specs=o, check_vma=False, **k)
both("shard_map, every collective", lambda m: lambda x: smap(m, collectives, P("data", None, "model"),
    P("data", None, "model"))(x), (x, P("data", None, "model")))
both("shard_map inside a program", lambda m: lambda x, w: jnp.sin(smap(m, lambda x, w: jax.lax.psum(x @ w, "model"),
    (P("data", None, "model"), P("model")), P("data"))(x * 2, w + 1)), (x, P("data")), (w, P()))
both("shard_map, partly manual", lambda m: lambda x, w: smap(m, lambda x, w: jax.lax.psum(jnp.sin(x @ w), "model"),
    (P(None, "model"), P()), P(), axis_names={"model"})(x, w), (x, P("data", "model")), (w, P()), modes=(True,))
both("gradient through shard_map", lambda m: lambda x, w: jax.grad(lambda x,
    w: (jax.shard_map(lambda x, w: jax.lax.psum(x @ w, "model"), mesh=m,
                      in_specs=(P("data", None, "model"), P("model")), out_specs=P("data"))(x, w) ** 2).sum(), (0,
                          1))(x, w), (x, P("data", None, "model")), (w, P("model")), tol=1e-3)

def at_once():
    """Four threads run programs on all eight devices, two on one of them, and one a program that fails: nobody waits for another's devices."""
    mesh, wrong, left = mesh_of("xlane", data=2, model=4), [], [0]
    good = jax.jit(smap(mesh, lambda x: jax.lax.psum(jnp.sin(jax.lax.all_gather(x, "data", tiled=True)),
                                                     ("data", "model")), P("data", None, "model"), P(None, None,
                                                         "model")))
    bad = jax.jit(smap(mesh, lambda x: jax.lax.cond(jax.lax.axis_index("model") == 1,
                                                    lambda x: jax.lax.psum(x,
                                                        "model"), lambda x: x, x), P("data"), P("data")))
    one = jax.jit(lambda x: (x @ x.transpose(0, 2, 1)).sum())
    split, alone = jax.device_put(x, NamedSharding(mesh, P("data", None, "model"))), jax.device_put(x,
        jax.devices("xlane")[3])
    want = [np.asarray(good(split)), np.asarray(one(alone))]
    def worker(k):
        for _ in range(25):
            if k == 6:
                why = fails(lambda: bad(split), "device")
            else:
                why = close(good(split) if k < 4 else one(alone), want[k > 3], 1e-6)
            if why:
                wrong.append("%d: %s" % (k, why))
        left[0] += 1
    threads = [threading.Thread(target=worker, args=(k,), daemon=True) for k in range(7)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    return "; ".join(wrong[:3]) or ("%d of 7 threads came to their end" % left[0] if left[0] != 7 else None)

# ---- errors ----------------------------------------------------------------------------------------------------------
def fails(fn, *words):
    """fn must end in an error that has all the words, and not because somebody waited in vain."""
    try:
        jax.block_until_ready(fn())
    except Exception as e:
        missing = [w for w in words if w not in str(e)] or "still at work" in str(e) and ["what was not waited for"]
        return "the message lacks %s: %s" % (missing, str(e)[:300]) if missing else None
    return "there was no error"

holds("several executions at once", at_once)
eight = lambda f, **k: jax.jit(jax.shard_map(f, mesh=mesh_of("xlane", data=8), in_specs=P("data"), out_specs=P("data"),
                                             check_vma=False, **k))
ones = np.ones(64, np.float32)
holds("devices in different collectives: an error that names both", lambda: fails(lambda: eight(lambda x: jax.lax.cond(
    jax.lax.axis_index("data") < 4, lambda x: jax.lax.psum(x, "data"), lambda x: jax.lax.all_gather(x,
        "data").sum(0), x))(ones), "all_reduce", "all_gather", "device"))
holds("a device that leaves out a collective", lambda: fails(lambda: eight(lambda x: jax.lax.cond(
    jax.lax.axis_index("data") != 3, lambda x: jax.lax.psum(x, "data"), lambda x: x, x))(ones), "device 3", "has ended", "all_reduce"))
pairs = lambda x, g: jax.lax.psum(x, "data", axis_index_groups=g)
holds("different groups in two branches", lambda: fails(lambda: eight(lambda x: jax.lax.cond(
    jax.lax.axis_index("data") % 2 == 0, lambda x: pairs(x, [[0, 1], [2, 3], [4, 5], [6, 7]]), lambda x: pairs(x,
        [[1, 2], [3, 4], [5, 6], [7, 0]]), x))(ones), "all_reduce", "device"))

child = """
import os, sys, time
sys.path.pop(0)
import numpy as np, jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices("xlane")), ("data",))
sm = lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False))
"""
def in_child(code, env, *words):
    r = subprocess.run([sys.executable, "-c", child + code], env={**os.environ, **env}, capture_output=True, text=True,
                       timeout=300)
    missing = [w for w in words if w not in r.stdout + r.stderr]
    return "%s missing in: %s" % (missing, (r.stdout + r.stderr)[-600:]) if missing else None

# one device computes for ever while the others wait for it: they do not
holds("a device that does not come in time", lambda: in_child("""
def f(x):
    y = jax.lax.cond(jax.lax.axis_index("data") == 5, lambda x: jax.lax.while_loop(lambda c: c[0] < 600000, lambda c: (c[0] + 1, jnp.sin(c[1] + 1)), (0, x))[1], lambda x: x, x)
    return jax.lax.psum(y, "data")
t = time.monotonic()
try:
    jax.block_until_ready(sm(f)(np.ones((64, 64), np.float32)))
    print("no error")
except Exception as e:
    print("after %.1f s: %s" % (time.monotonic() - t, e))
""", dict(XLANE_CPU_COLLECTIVE_TIMEOUT="0.3"), "device 5", "still at work", "XLANE_CPU_COLLECTIVE_TIMEOUT"))
# one device runs out of memory: everybody hears of it, and the next program runs
holds("a device without memory while the others wait", lambda: in_child("""
hog = jax.device_put(np.zeros(13 << 18, np.float32), jax.devices()[6])
x = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P("data")))
big = sm(lambda x: jax.lax.psum(x, "data") + jnp.sort(jnp.cos(jnp.broadcast_to(x[:1, :1], (1024, 1024))), 0)[:1, :1])
try:
    jax.block_until_ready(big(x))
    print("no error")
except Exception as e:
    print("failed:", e)
print({d.id: d.memory_stats()["bytes_in_use"] >> 20 for d in jax.devices()})
hog.delete()
jax.block_until_ready(big(x))
print("ran")
""", dict(XLANE_CPU_HBM=str(16 << 20)), "failed:", "RESOURCE_EXHAUSTED", "xlane:6", "6: 13", "ran"))

# ---- memory, donation, shards ----------------------------------------------------------------------------------------
def memory():
    """S4: what lies on each device, by the device's own count; donated parts are taken over."""
    mesh = mesh_of("xlane", data=8)
    stats = lambda: np.array([d.memory_stats()["bytes_in_use"] for d in jax.devices("xlane")])
    before = stats()
    x = jax.device_put(np.ones((1024, 1024), np.float32), NamedSharding(mesh, P("data")))
    one = stats() - before
    if not (one >= 1 << 19).all() or not (one < (1 << 19) + 65536).all():
        return "a 4 MiB array in eight parts takes %s" % one
    x = jax.jit(lambda x: x + 1)(x)                      # what came from the host may still be the host's memory
    where = [s.data.unsafe_buffer_pointer() for s in x.addressable_shards]
    y = jax.jit(lambda x: x * 2 + x.sum(), donate_argnums=0, out_shardings=NamedSharding(mesh, P("data")))(x)
    y.block_until_ready()
    if [s.data.unsafe_buffer_pointer() for s in y.addressable_shards] != where:
        return "donated parts were not reused"
    if not x.is_deleted() or not (abs(stats() - before - one) < 65536).all():
        return "after a donated step the devices hold %s" % (stats() - before)
    whole = jax.device_put(np.ones((256, 1024), np.float32), NamedSharding(mesh, P()))
    return None if (stats() - before - one >= 1 << 20).all() else "a replicated array takes %s" % (stats() - before - one)
holds("memory of each device; donated parts are reused", memory)

def said():
    """What no rule splits is gathered, and op, line and bytes are said: by the executable, and as an event of a run under the guard."""
    mesh = mesh_of("xlane", data=2, model=4)
    x = jax.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("data", "model")))
    cost = jax.jit(lambda x: jnp.sort(x, 1)).lower(x).compile().cost_analysis()
    lines = [l.split("\t") for l in cost.get("gathered", "").splitlines()]
    if len(lines) != 1 or lines[0][0] != "stablehlo.sort" or "spmd.py:" not in lines[0][1] or float(lines[0][3]) != 3 * 4 * 4 * 4:
        return "a sort along a split dimension gives %r" % cost.get("gathered")
    if "gathered" in jax.jit(lambda x: x * 2).lower(x).compile().cost_analysis():
        return "something was gathered for an elementwise op"
    with tempfile.TemporaryDirectory() as runs:
        code = child + "mesh = Mesh(np.array(jax.devices('xlane')).reshape(2, 4), ('a', 'b'))\nx = jax.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P('a', 'b')))\njax.jit(lambda x: jnp.cumsum(x, 1))(x).block_until_ready()\n"
        script = os.path.join(runs, "cum.py")
        open(script, "w").write(code.replace("sys.path.pop(0)", "pass"))
        r = subprocess.run([os.path.join(here, "build", "xlane"), "run", "--runs", runs, "--name", "said", "--",
                            sys.executable, script], capture_output=True, text=True)
        events = [json.loads(l) for f in glob.glob(runs + "/*/events.jsonl") for l in open(f)]
        found = [e for e in events if e["event"] == "gathered"]
        if not found or not any(o["op"] == "stablehlo.reduce_window" and "cum.py:" in o.get("where", "")
                                and o["bytes"] > 0 for o in found[0]["ops"]):
            return "the run's events have %s; %s" % (found, r.stderr[-300:])
    return None
holds("what is gathered for lack of a rule is said", said)

# ---- xlane sharding --------------------------------------------------------------------------------------------------
def drawings():
    """S3: for ten arrays the slices that `xlane sharding` draws are those of JAX's addressable_shards."""
    mesh = mesh_of("xlane", data=2, model=4)
    specs = [P(), P("data"), P("model"), P(None, "data"), P(None, "model"), P("data", "model"), P("model", "data"),
             P(("data", "model")), P(None, ("model", "data")), P(("model", "data"))]
    arrays = [jax.device_put(np.zeros((8, 16), np.float32), NamedSharding(mesh, s)) for s in specs]
    text = jax.jit(lambda a: [x + 1 for x in a]).lower(arrays).as_text()
    out = subprocess.run([os.path.join(here, "build", "xlane"), "sharding", "-"], input=text, capture_output=True,
                         text=True)
    if out.returncode:
        return out.stderr
    drawn, at = {}, None
    for line in out.stdout.splitlines():
        m = re.match(r"argument (\d+)", line)
        if m:
            at = int(m.group(1))
            drawn[at] = {}
        elif re.match(r"result", line):
            break
        m = re.match(r"  device (\d+)", line)
        if m:
            drawn[at][int(m.group(1))] = [tuple(map(int, r.split(":"))) for r in re.findall(r"\d+:\d+", line)]
    for i, a in enumerate(arrays):
        for s in a.addressable_shards:
            want = [tuple(d.indices(n)[:2]) for d, n in zip(s.index, a.shape)]
            have = drawn[i].get(s.device.id, [(0, n) for n in a.shape])
            if want != have:
                return "array %d (%s), device %d: JAX has %s, the drawing %s" % (i, specs[i], s.device.id, want, have)
    for i, a in enumerate(arrays):                       # the devices of each box of JAX's drawing, row by row
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            jax.debug.visualize_array_sharding(a, use_color=False, max_width=200, min_width=24, scale=4)
        boxes = [sorted(map(int, m.split(","))) for m in re.findall(r"XLANE\s+([\d,]+)", out.getvalue())]
        parts = {}
        for d in range(8):
            parts.setdefault(tuple(drawn[i].get(d, [(0, n) for n in a.shape])), []).append(d)
        ours = [sorted(parts[k]) for k in sorted(parts)]
        if boxes != ours:
            return "array %d (%s): JAX draws the devices %s, ours %s" % (i, specs[i], boxes, ours)
    return None
holds("xlane sharding draws what JAX holds and draws", drawings)

sys.exit(end())
