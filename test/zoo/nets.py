"""The models of test/zoo.py, as people write them in JAX. Each is a function that gives (params, loss, batch,
optimizer): loss(params, batch) is a scalar, batch(i) the data of step i as numpy arrays. Sizes are on both sides of
the 2^15 elements from which the embedded device plans otherwise."""

import numpy as np
import jax, jax.numpy as jnp
from jax import lax, nn
import optax

models = {}


def model(fn):
    models[fn.__name__] = fn
    return fn


def rng(seed=0):
    return np.random.default_rng(seed)


def w(*s, seed=0, scale=None):
    return (rng(seed + sum(s)).standard_normal(s) * (scale or 1 / np.sqrt(s[-2] if len(s) > 1 else 16))).astype(
        np.float32
    )


def data(*s):
    """A batch of normal numbers per step."""
    return lambda i: rng(1000 + i).standard_normal(s).astype(np.float32)


def classes(n, hi):
    return lambda i: rng(2000 + i).integers(0, hi, n).astype(np.int32)


def both(*f):
    return lambda i: tuple(g(i) for g in f)


def entropy(logits, y):
    return -jnp.take_along_axis(nn.log_softmax(logits), y[..., None], -1).mean()


def norm(x, g=None, b=None):
    y = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return y * (1 if g is None else g) + (0 if b is None else b)


def rms(x, g):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def sgd(lr=0.05):
    return optax.sgd(lr, momentum=0.9)


# ---- multi-layer perceptrons, one per activation; half of them large -----------------------------------------------
ACTIVATIONS = dict(
    tanh=jnp.tanh,
    relu=nn.relu,
    relu6=nn.relu6,
    sigmoid=nn.sigmoid,
    gelu=nn.gelu,
    gelu_exact=lambda x: nn.gelu(x, approximate=False),
    silu=nn.silu,
    softplus=nn.softplus,
    elu=nn.elu,
    selu=nn.selu,
    celu=nn.celu,
    leaky_relu=nn.leaky_relu,
    hard_tanh=nn.hard_tanh,
    hard_swish=nn.hard_swish,
    mish=nn.mish,
    soft_sign=nn.soft_sign,
    squareplus=nn.squareplus,
    log_sigmoid=nn.log_sigmoid,
    sin=jnp.sin,
    squared_relu=lambda x: 0.3 * nn.relu(x) ** 2,
    glu=lambda x: nn.glu(jnp.concatenate([x, x * 0.5], -1)),
    exp=lambda x: jnp.exp(-x * x),
    erf=lax.erf,
    arctan=jnp.arctan,
    log1p=lambda x: jnp.sign(x) * jnp.log1p(jnp.abs(x)),
)


def mlp(act, rows, wide, deep):
    p = [
        dict(w=w(a, b, seed=k), b=np.zeros(b, np.float32))
        for k, (a, b) in enumerate(zip([64] + [wide] * deep, [wide] * deep + [10]))
    ]

    def loss(p, batch):
        x, y = batch
        for l in p[:-1]:
            x = act(x @ l["w"] + l["b"])
        return ((x @ p[-1]["w"] + p[-1]["b"] - y) ** 2).mean()

    return p, loss, both(data(rows, 64), data(rows, 10)), sgd(0.02)


for k, (name, act) in enumerate(ACTIVATIONS.items()):
    models["mlp_" + name] = lambda act=act, k=k: mlp(
        act, *((128, 256, 2) if k % 3 == 0 else (256, 300, 3) if k % 3 == 1 else (33, 65, 3))
    )
models["mlp_tanh_small"] = lambda: mlp(jnp.tanh, 16, 33, 3)
models["mlp_tanh_deep"] = lambda: mlp(jnp.tanh, 200, 200, 6)


# ---- recurrent -----------------------------------------------------------------------------------------------------
@model
def lstm(B=32, T=24, D=32, H=64, V=20):
    p = dict(
        x=w(D, 4 * H),
        h=w(H, 4 * H, seed=1),
        b=np.zeros(4 * H, np.float32),
        o=w(H, V, seed=2),
        e=w(V, D, seed=3, scale=1),
    )

    def loss(p, batch):
        def cell(c, x):
            h, s = c
            i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, -1)
            s = nn.sigmoid(f + 1) * s + nn.sigmoid(i) * jnp.tanh(g)
            h = nn.sigmoid(o) * jnp.tanh(s)
            return (h, s), h

        x = p["e"][batch[:, :-1]]
        z = jnp.zeros((B, H), x.dtype)
        _, hs = lax.scan(cell, (z, z), x.swapaxes(0, 1))
        return entropy(hs @ p["o"], batch[:, 1:].T)

    return p, loss, classes((B, T + 1), V), optax.adam(1e-3)


@model
def gru(B=128, T=8, D=48, H=260):
    p = dict(x=w(D, 3 * H), h=w(H, 3 * H, seed=1), o=w(H, 1, seed=2))

    def loss(p, batch):
        x, y = batch

        def cell(h, x):
            a, b = x @ p["x"], h @ p["h"]
            z, r = nn.sigmoid(a[:, :H] + b[:, :H]), nn.sigmoid(a[:, H : 2 * H] + b[:, H : 2 * H])
            h = (1 - z) * h + z * jnp.tanh(a[:, 2 * H :] + r * b[:, 2 * H :])
            return h, None

        h, _ = lax.scan(cell, jnp.zeros((B, H), x.dtype), x)
        return ((h @ p["o"])[:, 0] - y).__pow__(2).mean()

    return p, loss, both(data(T, B, D), data(B)), sgd(0.01)


@model
def neural_ode(B=128, D=256):
    p = dict(a=w(D, D), b=w(D, D, seed=1))

    def loss(p, x):
        f = lambda x: jnp.tanh(x @ p["a"]) @ p["b"]

        def rk4(x, _):
            k1 = f(x)
            k2 = f(x + 0.05 * k1)
            k3 = f(x + 0.05 * k2)
            k4 = f(x + 0.1 * k3)
            return x + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        y, _ = lax.scan(rk4, x, None, length=4)
        return ((y - jnp.roll(x, 1, 1)) ** 2).mean()

    return p, loss, data(B, D), sgd()


@model
def crf(B=16, T=20, K=9, D=32):
    p = dict(w=w(D, K), t=w(K, K, seed=1))

    def loss(p, batch):
        x, y = batch
        s = x @ p["w"]

        def forward(a, e):
            return nn.logsumexp(a[:, :, None] + p["t"], 1) + e, None

        a, _ = lax.scan(forward, s[:, 0], s[:, 1:].swapaxes(0, 1))
        gold = jnp.take_along_axis(s, y[..., None], -1)[..., 0].sum(1) + p["t"][y[:, :-1], y[:, 1:]].sum(1)
        return (nn.logsumexp(a, -1) - gold).mean()

    return p, loss, both(data(B, T, D), classes((B, T), K)), sgd(0.02)


@model
def ctc(B=8, T=30, L=7, K=12, D=24):
    p = dict(w=w(D, 64), o=w(64, K, seed=1))

    def loss(p, batch):
        x, y = batch
        logits = jnp.tanh(x @ p["w"]) @ p["o"]
        z = jnp.zeros((B, T), logits.dtype)
        return optax.ctc_loss(logits, z, 1 + y % (K - 1), jnp.zeros((B, L), logits.dtype)).mean()

    return p, loss, both(data(B, T, D), classes((B, L), K - 1)), sgd(0.005)


# ---- convolutional -------------------------------------------------------------------------------------------------
def conv(x, k, stride=1, groups=1):
    return lax.conv_general_dilated(
        x, k, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


@model
def resnet(B=8, C=16):
    """JAX's CPU, begun a rounding error aside, jumps at step 12 in 3 runs of 8 and is then 5e-2 apart at step 20: most
    likely the input of a relu is 0 there to within its rounding error."""
    import flax.linen as fl

    class Block(fl.Module):
        c: int
        s: int = 1

        @fl.compact
        def __call__(self, x):
            y = nn.relu(fl.GroupNorm(4)(fl.Conv(self.c, (3, 3), self.s, use_bias=False)(x)))
            y = fl.GroupNorm(4)(fl.Conv(self.c, (3, 3), use_bias=False)(y))
            return nn.relu(y + (x if x.shape == y.shape else fl.Conv(self.c, (1, 1), self.s)(x)))

    class Net(fl.Module):
        @fl.compact
        def __call__(self, x):
            x = fl.Conv(C, (3, 3))(x)
            for c, s in ((C, 1), (2 * C, 2), (4 * C, 2)):
                x = Block(c, s)(x)
            return fl.Dense(10)(x.mean((1, 2)))

    net = Net()
    p = net.init(jax.random.key(0), np.zeros((1, 20, 20, 3), np.float32))
    return p, lambda p, b: entropy(net.apply(p, b[0]), b[1]), both(data(B, 20, 20, 3), classes((B,), 10)), sgd(0.01)


@model
def batchnorm_net(B=64):
    import flax.linen as fl

    class Net(fl.Module):
        @fl.compact
        def __call__(self, x):
            for _ in range(2):
                x = nn.relu(fl.BatchNorm(use_running_average=False)(fl.Dense(520)(x)))
            return fl.Dense(10)(x)

    net = Net()
    v = net.init(jax.random.key(0), np.zeros((2, 32), np.float32))
    state = v["batch_stats"]
    return (
        v["params"],
        lambda p, b: entropy(net.apply({"params": p, "batch_stats": state}, b[0], mutable=["batch_stats"])[0], b[1]),
        both(data(B, 32), classes((B,), 10)),
        sgd(0.01),
    )


@model
def unet(B=4):
    p = dict(
        a=w(3, 3, 3, 16, scale=0.2),
        b=w(3, 3, 16, 32, scale=0.1),
        c=w(3, 3, 32, 32, scale=0.06),
        d=w(3, 3, 48, 16, scale=0.05),
        e=w(1, 1, 16, 3, scale=0.2),
    )

    def loss(p, x):
        a = nn.silu(conv(x, p["a"]))
        b = nn.silu(conv(lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), p["b"]))
        c = nn.silu(conv(b, p["c"]))
        u = jax.image.resize(c, a.shape[:3] + (32,), "nearest")
        return ((conv(nn.silu(conv(jnp.concatenate([a, u], -1), p["d"])), p["e"]) - x[:, ::-1]) ** 2).mean()

    return p, loss, data(B, 32, 32, 3), sgd()


@model
def convnext(B=4, C=24):
    p = dict(
        s=w(4, 4, 3, C, scale=0.1),
        d=w(7, 7, 1, C, scale=0.1),
        u=w(C, 4 * C),
        v=w(4 * C, C, seed=1),
        g=np.full(C, 0.1, np.float32),
        o=w(C, 10),
    )

    def loss(p, b):
        x = lax.conv_general_dilated(b[0], p["s"], (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x + p["g"] * (nn.gelu(norm(conv(x, p["d"], groups=C)) @ p["u"]) @ p["v"])
        return entropy(norm(x.mean((1, 2))) @ p["o"], b[1])

    return p, loss, both(data(B, 64, 64, 3), classes((B,), 10)), sgd()


@model
def wavenet(B=4, T=300, C=32):
    p = dict(
        i=w(1, 1, C, scale=1),
        f=[w(2, C, C, seed=k, scale=0.1) for k in range(4)],
        g=[w(2, C, C, seed=9 + k, scale=0.1) for k in range(4)],
        o=w(C, 1),
    )

    def loss(p, x):
        c = lambda x, k, d: lax.conv_general_dilated(
            x, k, (1,), [((k.shape[0] - 1) * d, 0)], rhs_dilation=(d,), dimension_numbers=("NWC", "WIO", "NWC")
        )
        h, skip = c(x[:, :-1], p["i"], 1), 0
        for k in range(4):
            z = jnp.tanh(c(h, p["f"][k], 2**k)) * nn.sigmoid(c(h, p["g"][k], 2**k))
            h, skip = h + z, skip + z
        return ((nn.relu(skip) @ p["o"] - x[:, 1:]) ** 2).mean()

    return p, loss, data(B, T + 1, 1), sgd()


# ---- transformers --------------------------------------------------------------------------------------------------
def heads(x, n):
    return x.reshape(*x.shape[:-1], n, -1).swapaxes(-2, -3)


def attend(q, k, v, mask=None, bias=0):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    return (
        (nn.softmax(s if mask is None else jnp.where(mask, s, -1e9)) @ v)
        .swapaxes(-2, -3)
        .reshape(*q.shape[:-3], q.shape[-2], -1)
    )


def gpt_of(act, B=4, T=32, D=64, H=4, L=2, V=96):
    lay = lambda k: dict(
        qkv=w(D, 3 * D, seed=k),
        o=w(D, D, seed=k + 1),
        u=w(D, 4 * D, seed=k + 2),
        d=w(4 * D, D, seed=k + 3),
        g=np.ones(D, np.float32),
        b=np.zeros(D, np.float32),
    )
    p = dict(tok=w(V, D, scale=0.1), pos=w(T, D, scale=0.1), l=[lay(10 * k) for k in range(L)])

    def loss(p, b):
        x = p["tok"][b[:, :-1]] + p["pos"]
        mask = jnp.tril(jnp.ones((T, T), bool))
        for l in p["l"]:
            q, k, v = (heads(a, H) for a in jnp.split(norm(x, l["g"], l["b"]) @ l["qkv"], 3, -1))
            x = x + attend(q, k, v, mask) @ l["o"]
            x = x + act(norm(x) @ l["u"]) @ l["d"]
        return entropy(norm(x) @ p["tok"].T, b[:, 1:])

    return p, loss, classes((B, T + 1), V), optax.adamw(1e-3)


@model
def gpt():
    return gpt_of(nn.gelu)


@model
def gpt_tanh():
    return gpt_of(jnp.tanh, B=8, T=48, D=96)


@model
def gpt_small():
    return gpt_of(nn.relu, B=2, T=7, D=12, H=3, V=17)


@model
def llama(B=4, T=40, D=64, H=4, K=2, L=2, V=128, F=172):
    lay = lambda k: dict(
        q=w(D, D, seed=k),
        k=w(D, D * K // H, seed=k + 1),
        v=w(D, D * K // H, seed=k + 2),
        o=w(D, D, seed=k + 3),
        g=w(D, F, seed=k + 4),
        u=w(D, F, seed=k + 5),
        d=w(F, D, seed=k + 6),
        n=np.ones(D, np.float32),
        m=np.ones(D, np.float32),
    )
    p = dict(tok=w(V, D, scale=0.5), l=[lay(10 * k) for k in range(L)], n=np.ones(D, np.float32), o=w(D, V, seed=77))
    at = np.arange(T)[:, None] / 10000 ** (np.arange(0, D // H, 2) / (D // H))
    cos, sin = np.cos(at).astype(np.float32), np.sin(at).astype(np.float32)

    def rope(x):
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def loss(p, b):
        x = p["tok"][b[:, :-1]]
        mask = jnp.tril(jnp.ones((T, T), bool))
        for l in p["l"]:
            h = rms(x, l["n"])
            q, k, v = rope(heads(h @ l["q"], H)), rope(heads(h @ l["k"], K)), heads(h @ l["v"], K)
            k, v = jnp.repeat(k, H // K, 1), jnp.repeat(v, H // K, 1)
            x = x + attend(q, k, v, mask) @ l["o"]
            h = rms(x, l["m"])
            x = x + (nn.silu(h @ l["g"]) * (h @ l["u"])) @ l["d"]
        return entropy(rms(x, p["n"]) @ p["o"], b[:, 1:])

    return (
        p,
        loss,
        classes((B, T + 1), V),
        optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-3, 100), weight_decay=0.1)
        ),
    )


@model
def t5(B=4, S=24, T=16, D=48, H=4, V=64):
    at = lambda k: dict(q=w(D, D, seed=k), k=w(D, D, seed=k + 1), v=w(D, D, seed=k + 2), o=w(D, D, seed=k + 3))
    p = dict(
        tok=w(V, D, scale=0.3),
        enc=at(0),
        dec=at(4),
        cross=at(8),
        bias=w(32, H, scale=0.1),
        u=w(D, 4 * D, seed=5),
        d=w(4 * D, D, seed=6),
    )

    def loss(p, b):
        src, dst = b
        side = (
            lambda a, x, y, mask=None, bias=0: attend(
                heads(x @ a["q"], H), heads(y @ a["k"], H), heads(y @ a["v"], H), mask, bias
            )
            @ a["o"]
        )
        rel = lambda n: p["bias"][jnp.clip(jnp.arange(n)[None] - jnp.arange(n)[:, None] + 16, 0, 31)].transpose(2, 0, 1)
        x = p["tok"][src]
        x = x + side(p["enc"], rms(x, 1.0), rms(x, 1.0), None, rel(S))
        x = x + nn.relu(rms(x, 1.0) @ p["u"]) @ p["d"]
        y = p["tok"][dst[:, :-1]]
        y = y + side(p["dec"], rms(y, 1.0), rms(y, 1.0), jnp.tril(jnp.ones((T, T), bool)), rel(T))
        y = y + side(p["cross"], rms(y, 1.0), x)
        return entropy(rms(y, 1.0) @ p["tok"].T, dst[:, 1:])

    return p, loss, both(classes((B, S), V), classes((B, T + 1), V)), optax.adafactor(1e-3)


@model
def vit(B=8):
    import flax.linen as fl

    class Net(fl.Module):
        @fl.compact
        def __call__(self, x):
            x = fl.Conv(64, (4, 4), (4, 4))(x).reshape(x.shape[0], -1, 64)
            x = jnp.concatenate(
                [jnp.broadcast_to(self.param("cls", nn.initializers.zeros, (1, 1, 64)), (x.shape[0], 1, 64)), x], 1
            )
            x = x + self.param("pos", nn.initializers.normal(0.02), (1, x.shape[1], 64))
            for _ in range(2):
                x = x + fl.MultiHeadDotProductAttention(4)(fl.LayerNorm()(x))
                x = x + fl.Dense(64)(nn.gelu(fl.Dense(256)(fl.LayerNorm()(x))))
            return fl.Dense(10)(fl.LayerNorm()(x)[:, 0])

    net = Net()
    p = net.init(jax.random.key(1), np.zeros((1, 32, 32, 3), np.float32))
    return (
        p,
        lambda p, b: entropy(net.apply(p, b[0]), b[1]),
        both(data(B, 32, 32, 3), classes((B,), 10)),
        optax.adamw(1e-3),
    )


@model
def mixer(B=16, S=49, C=48):
    p = dict(a=w(S, 96), b=w(96, S, seed=1), c=w(C, 192), d=w(192, C, seed=1), o=w(C, 10))

    def loss(p, b):
        x = b[0]
        x = x + (nn.gelu(norm(x).swapaxes(1, 2) @ p["a"]) @ p["b"]).swapaxes(1, 2)
        x = x + nn.gelu(norm(x) @ p["c"]) @ p["d"]
        return entropy(x.mean(1) @ p["o"], b[1])

    return p, loss, both(data(B, S, C), classes((B,), 10)), optax.lion(1e-4)


@model
def mamba(B=4, T=64, D=32, N=8, V=40):
    E = 2 * D
    p = dict(
        tok=w(V, D, scale=0.5),
        i=w(D, 2 * E),
        c=w(4, 1, E, scale=0.3),
        bc=w(E, 2 * N),
        dt=w(E, E, seed=3),
        a=np.log(np.tile(np.arange(1, N + 1, dtype=np.float32), (E, 1))),
        d=np.ones(E, np.float32),
        o=w(E, D),
    )

    def loss(p, b):
        x = p["tok"][b[:, :-1]]
        u, z = jnp.split(norm(x) @ p["i"], 2, -1)
        u = nn.silu(
            lax.conv_general_dilated(
                u, p["c"], (1,), [(3, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=E
            )
        )
        B_, C_ = jnp.split(u @ p["bc"], 2, -1)
        dt = nn.softplus(u @ p["dt"] - 2)
        decay, add = jnp.exp(-dt[..., None] * jnp.exp(p["a"])), (dt * u)[..., None] * B_[:, :, None]

        def join(l, r):
            return l[0] * r[0], r[0] * l[1] + r[1]

        _, h = lax.associative_scan(join, (decay, add), axis=1)
        y = (h * C_[:, :, None]).sum(-1) + p["d"] * u
        x = x + (y * nn.silu(z)) @ p["o"]
        return entropy(norm(x) @ p["tok"].T, b[:, 1:])

    return p, loss, classes((B, T + 1), V), sgd(0.02)


@model
def s4(B=4, T=128, D=32, N=16):
    p = dict(
        a=np.linspace(-0.5, -4, N, dtype=np.float32) * np.ones((D, 1), np.float32),
        b=w(D, N),
        c=w(D, N, seed=1),
        o=w(D, 1),
    )

    def loss(p, x):
        k = jnp.einsum("dn,dn,dnt->td", p["b"], p["c"], jnp.exp(p["a"][..., None] * jnp.arange(T) * 0.1))
        n = 2 * T
        y = jnp.fft.irfft(jnp.fft.rfft(x, n, 1) * jnp.fft.rfft(k, n, 0), n, 1)[:, :T]
        return ((nn.gelu(y) @ p["o"] - x[..., :1]) ** 2).mean()

    return p, loss, data(B, T, D), sgd(0.01)


@model
def linear_attention(B=4, T=64, D=64, H=4):
    p = dict(qkv=w(D, 3 * D), o=w(D, D, seed=1))

    def loss(p, x):
        q, k, v = (heads(a, H) for a in jnp.split(x @ p["qkv"], 3, -1))
        q, k = nn.elu(q) + 1, nn.elu(k) + 1
        s = jnp.cumsum(k[..., :, None] * v[..., None, :], 2)
        y = jnp.einsum("bhtd,bhtde->bhte", q, s) / (jnp.einsum("bhtd,bhtd->bht", q, jnp.cumsum(k, 2))[..., None] + 1e-3)
        return ((y.swapaxes(1, 2).reshape(B, T, D) @ p["o"] - x) ** 2).mean()

    return p, loss, data(B, T, D), sgd()


@model
def moe(B=256, D=64, E=4, F=128):
    p = dict(g=w(D, E), u=w(E, D, F), d=w(E, F, D, seed=1))

    def loss(p, x):
        gate = nn.softmax(x @ p["g"])
        top, at = lax.top_k(gate, 2)
        hot = nn.one_hot(at, E, dtype=x.dtype)
        place = (jnp.cumsum(hot.reshape(-1, E), 0) * hot.reshape(-1, E)).sum(-1).reshape(B, 2) - 1
        slot = jnp.einsum("bke,bks->bkes", hot, nn.one_hot(place.astype(jnp.int32), B * 2 // E, dtype=x.dtype))
        h = jnp.einsum("bkes,bd->esd", slot, x)
        h = jnp.einsum("esf,efd->esd", nn.gelu(jnp.einsum("esd,edf->esf", h, p["u"])), p["d"])
        y = jnp.einsum("bkes,bk,esd->bd", slot, top, h)
        balance = (hot.sum(1).mean(0) * gate.mean(0)).sum() * E
        return ((y - jnp.roll(x, 1, -1)) ** 2).mean() + 0.01 * balance

    return p, loss, data(B, D), sgd()


# ---- generative ----------------------------------------------------------------------------------------------------
@model
def vae(B=64, D=600, Z=16):
    p = dict(a=w(D, 256), m=w(256, Z, seed=1), s=w(256, Z, seed=2), b=w(Z, 256), o=w(256, D, seed=3))

    def loss(p, b):
        x, e = nn.sigmoid(b[0]), b[1]
        h = nn.relu(x @ p["a"])
        m, s = h @ p["m"], h @ p["s"]
        y = nn.relu((m + jnp.exp(0.5 * s) * e) @ p["b"]) @ p["o"]
        return (
            optax.sigmoid_binary_cross_entropy(y, x).sum(-1) - 0.5 * (1 + s - m * m - jnp.exp(s)).sum(-1)
        ).mean() / D

    return p, loss, both(data(B, D), data(B, Z)), optax.adam(1e-3)


@model
def gan(B=128, D=256, Z=32):
    p = dict(g=dict(a=w(Z, 256), b=w(256, D, seed=1)), d=dict(a=w(D, 256, seed=2), b=w(256, 1, seed=3)))

    def loss(p, b):
        real, z = b
        make = lambda g: jnp.tanh(nn.relu(z @ g["a"]) @ g["b"])
        judge = lambda d, x: (nn.leaky_relu(x @ d["a"], 0.2) @ d["b"])[:, 0]
        stop = lambda t: jax.tree.map(lax.stop_gradient, t)
        d = nn.softplus(-judge(p["d"], real)).mean() + nn.softplus(judge(p["d"], stop(make(p["g"])))).mean()
        return d + nn.softplus(-judge(stop(p["d"]), make(p["g"]))).mean()

    return p, loss, both(data(B, D), data(B, Z)), optax.adam(2e-4, b1=0.5)


@model
def diffusion(B=8):
    p = dict(a=w(3, 3, 3, 24, scale=0.2), t=w(32, 24), b=w(3, 3, 24, 24, scale=0.07), c=w(3, 3, 24, 3, scale=0.07))

    def loss(p, b):
        x, e, t = b
        t = (t % 100)[:, None] / 100.0
        alpha = jnp.cos(t * (np.pi / 2))[:, None, None]
        y = alpha * x + jnp.sqrt(1 - alpha**2) * e
        emb = jnp.concatenate(
            [jnp.sin(t * 2.0 ** np.arange(16, dtype=np.float32)), jnp.cos(t * 2.0 ** np.arange(16, dtype=np.float32))],
            -1,
        )
        h = nn.silu(conv(y, p["a"]) + (emb @ p["t"])[:, None, None])
        h = h + conv(nn.silu(h), p["b"])
        return ((conv(nn.silu(h), p["c"]) - e) ** 2).mean()

    return p, loss, both(data(B, 16, 16, 3), data(B, 16, 16, 3), classes((B,), 100)), optax.adam(1e-3)


@model
def flow(B=256, D=64):
    p = [
        dict(w=w(D, D, seed=k) * 0.1 + np.eye(D, dtype=np.float32), s=w(D // 2, D, seed=k + 9, scale=0.05))
        for k in range(3)
    ]

    def loss(p, x):
        det = 0
        for l in p:
            x = x @ l["w"]
            det = det + jnp.linalg.slogdet(l["w"])[1]
            a, b = jnp.split(x, 2, -1)
            s, t = jnp.split(jnp.tanh(a @ l["s"]), 2, -1)
            x, det = jnp.concatenate([a, b * jnp.exp(s) + t], -1), det + s.sum(-1).mean()
        return 0.5 * (x * x).sum(-1).mean() / D - det / D

    return p, loss, data(B, D), sgd(0.01)


@model
def nerf(B=512):
    p = dict(a=w(60, 128), b=w(128, 128, seed=1), c=w(128, 4, seed=2))

    def loss(p, b):
        x, rgb = b
        f = (x[..., None] * 2.0 ** np.arange(10, dtype=np.float32)).reshape(B, 8, -1)
        h = nn.relu(jnp.concatenate([jnp.sin(f), jnp.cos(f)], -1) @ p["a"])
        o = nn.relu(h @ p["b"]) @ p["c"]
        alpha = 1 - jnp.exp(-nn.relu(o[..., 3]) * 0.1)
        light = jnp.cumprod(jnp.concatenate([jnp.ones((B, 1), x.dtype), 1 - alpha[:, :-1] + 1e-10], -1), -1)
        return (((alpha * light)[..., None] * nn.sigmoid(o[..., :3])).sum(1) - nn.sigmoid(rgb)).__pow__(2).mean()

    return p, loss, both(lambda i: data(B, 8, 3)(i) * np.float32(0.1), data(B, 3)), sgd()


# ---- graphs, sets, retrieval, embeddings ---------------------------------------------------------------------------
@model
def gnn(N=600, M=3000, D=64):
    p = dict(a=w(2 * D, D), b=w(D, D, seed=1), c=w(2 * D, D, seed=2), o=w(D, 5))

    def loss(p, b):
        x, src, dst, y = b
        for _ in range(2):
            m = nn.relu(jnp.concatenate([x[src], x[dst]], -1) @ p["a"]) @ p["b"]
            g = jax.ops.segment_sum(m, dst, N) / (1 + jax.ops.segment_sum(jnp.ones((M, 1), x.dtype), dst, N))
            x = norm(x + nn.relu(jnp.concatenate([x, g], -1) @ p["c"]))
        return entropy(x @ p["o"], y)

    return p, loss, both(data(N, D), classes((M,), N), lambda i: classes((M,), N)(i + 50), classes((N,), 5)), sgd()


@model
def graph_attention(N=200, M=1500, D=32):
    p = dict(w=w(D, D), a=w(2 * D, 1), o=w(D, 5))

    def loss(p, b):
        x, src, dst, y = b
        h = x @ p["w"]
        s = nn.leaky_relu((jnp.concatenate([h[src], h[dst]], -1) @ p["a"])[:, 0])
        s = jnp.exp(s - jax.ops.segment_max(s, dst, N)[dst])
        s = s / (jax.ops.segment_sum(s, dst, N)[dst] + 1e-9)
        return entropy(nn.elu(jax.ops.segment_sum(s[:, None] * h[src], dst, N)) @ p["o"], y)

    return p, loss, both(data(N, D), classes((M,), N), lambda i: classes((M,), N)(i + 50), classes((N,), 5)), sgd()


@model
def deep_sets(B=64, S=20, D=32):
    p = dict(a=w(D, 64), b=w(64, 64, seed=1), o=w(64, 1))

    def loss(p, b):
        h = nn.tanh(b[0] @ p["a"])
        h = nn.tanh(jnp.concatenate([h.max(1), h.sum(1) / S], -1)[:, ::2] @ p["b"])
        return ((h @ p["o"])[:, 0] - b[1]).__pow__(2).mean()

    return p, loss, both(data(B, S, D), data(B)), sgd()


@model
def contrastive(B=128, D=300):
    p = dict(a=w(D, 256), b=w(256, 64, seed=1), t=np.float32(2.0))

    def loss(p, b):
        f = lambda x: (lambda h: h / jnp.linalg.norm(h, axis=-1, keepdims=True))(nn.gelu(x @ p["a"]) @ p["b"])
        s = f(b[0]) @ f(b[0] + 0.1 * b[1]).T * jnp.exp(p["t"])
        i = jnp.arange(B)
        return (entropy(s, i) + entropy(s.T, i)) / 2

    return p, loss, both(data(B, D), data(B, D)), sgd(0.01)


@model
def triplet(B=96, D=128):
    p = dict(a=w(D, 352), b=w(352, 32, seed=1))

    def loss(p, b):
        f = lambda x: jnp.tanh(x @ p["a"]) @ p["b"]
        a, c, n = f(b[0]), f(b[0] + 0.2 * b[1]), f(b[1])
        return jnp.maximum(((a - c) ** 2).sum(-1) - ((a - n) ** 2).sum(-1) + 1, 0).mean()

    return p, loss, both(data(B, D), data(B, D)), sgd(0.01)


@model
def word2vec(V=2000, D=48, B=256, K=5):
    p = dict(i=w(V, D, scale=0.1), o=w(V, D, seed=1, scale=0.1))

    def loss(p, b):
        c, t, n = b
        u = p["i"][c]
        pos, neg = (u * p["o"][t]).sum(-1), jnp.einsum("bd,bkd->bk", u, p["o"][n])
        return -(nn.log_sigmoid(pos) + nn.log_sigmoid(-neg).sum(-1)).mean()

    return (
        p,
        loss,
        both(classes((B,), V), lambda i: classes((B,), V)(i + 40), lambda i: classes((B, K), V)(i + 80)),
        optax.adagrad(0.05),
    )


@model
def recommender(U=1000, I=500, D=32, B=512):
    p = dict(
        u=w(U, D, scale=0.3),
        i=w(I, D, scale=0.3),
        ub=np.zeros(U, np.float32),
        ib=np.zeros(I, np.float32),
        h=w(2 * D, 64),
        o=w(64, 1),
    )

    def loss(p, b):
        u, i, y = b
        deep = nn.relu(jnp.concatenate([p["u"][u], p["i"][i]], -1) @ p["h"]) @ p["o"]
        return ((p["u"][u] * p["i"][i]).sum(-1) + p["ub"][u] + p["ib"][i] + deep[:, 0] - y).__pow__(2).mean() + 1e-4 * (
            p["u"] ** 2
        ).sum() / B

    return p, loss, both(classes((B,), U), lambda i: classes((B,), I)(i + 40), data(B)), optax.rmsprop(1e-3)


# ---- reinforcement learning ----------------------------------------------------------------------------------------
@model
def ppo(B=256, D=24, A=6):
    p = dict(a=w(D, 128), b=w(128, 128, seed=1), pi=w(128, A, seed=2, scale=0.01), v=w(128, 1, seed=3))

    def loss(p, b):
        x, act, adv, old, ret = b
        h = jnp.tanh(jnp.tanh(x @ p["a"]) @ p["b"])
        logp = nn.log_softmax(h @ p["pi"])
        ratio = jnp.exp(jnp.take_along_axis(logp, act[:, None], 1)[:, 0] - (-np.log(A) + 0.1 * old))
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        gain = jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv).mean()
        return -gain + 0.5 * (((h @ p["v"])[:, 0] - ret) ** 2).mean() + 0.01 * (jnp.exp(logp) * logp).sum(-1).mean()

    return (
        p,
        loss,
        both(data(B, D), classes((B,), A), data(B), lambda i: data(B)(i + 30), lambda i: data(B)(i + 60)),
        optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4)),
    )


@model
def dqn(B=128, D=32, A=5):
    p = dict(a=w(D, 260), b=w(260, 64, seed=1), v=w(64, 1, seed=2), q=w(64, A, seed=3))
    frozen = jax.tree.map(lambda x: x * np.float32(0.9), p)

    def loss(p, b):
        x, y, act, r = b

        def q(p, x):
            h = nn.relu(nn.relu(x @ p["a"]) @ p["b"])
            adv = h @ p["q"]
            return h @ p["v"] + adv - adv.mean(-1, keepdims=True)

        best = q(p, y).argmax(-1)
        goal = lax.stop_gradient(r + 0.99 * jnp.take_along_axis(q(frozen, y), best[:, None], 1)[:, 0])
        return optax.huber_loss(jnp.take_along_axis(q(p, x), act[:, None], 1)[:, 0], goal).mean()

    return p, loss, both(data(B, D), lambda i: data(B, D)(i + 30), classes((B,), A), data(B)), sgd(0.01)


# ---- linear algebra, optimizers, equinox ---------------------------------------------------------------------------
@model
def gaussian_process(N=64, D=4):
    p = dict(l=np.zeros(D, np.float32), s=np.float32(0), n=np.float32(-1))

    def loss(p, b):
        x, y = b[0] * jnp.exp(p["l"]), b[1]
        d = ((x[:, None] - x[None]) ** 2).sum(-1)
        k = jnp.exp(p["s"] - 0.5 * d) + jnp.exp(p["n"]) * jnp.eye(N, dtype=x.dtype)
        c = jnp.linalg.cholesky(k)
        a = jax.scipy.linalg.cho_solve((c, True), y)
        return (0.5 * y @ a + jnp.log(jnp.diagonal(c)).sum()) / N

    return p, loss, both(data(N, D), data(N)), sgd(0.01)


def mlp_with(optimizer):
    p, loss, batch, _ = mlp(jnp.tanh, 128, 256, 2)
    return p, loss, batch, optimizer


def shampoo(lr=0.02):
    """Preconditions each matrix by the inverse fourth roots of its gradients' second moments, by eigendecomposition."""

    def root(m):
        v, u = jnp.linalg.eigh(m + 0.1 * jnp.eye(m.shape[0], dtype=m.dtype))
        return (u * jnp.maximum(v, 1e-3) ** -0.25) @ u.T

    def init(p):
        return jax.tree.map(lambda x: tuple(jnp.zeros((n, n), x.dtype) for n in x.shape) if x.ndim == 2 else (), p)

    def update(g, s, p=None):
        leaves, tree = jax.tree.flatten(g)
        states = tree.flatten_up_to(s)
        new = [
            (l + a @ a.T, r + a.T @ a) if a.ndim == 2 else ()
            for a, (l, r) in ((a, m if m else (0, 0)) for a, m in zip(leaves, states))
        ]
        out = [-lr * (root(m[0]) @ a @ root(m[1])) if a.ndim == 2 else -lr * a for a, m in zip(leaves, new)]
        return tree.unflatten(out), tree.unflatten(new)

    return optax.GradientTransformation(init, update)


@model
def with_shampoo():
    p, loss, batch, _ = mlp(jnp.tanh, 64, 48, 2)
    return p, loss, batch, shampoo()


def muon(lr=0.02):
    def turn(g):
        x = g / (jnp.linalg.norm(g) + 1e-7)
        x = x.T if x.shape[0] > x.shape[1] else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
        return x.T if g.shape[0] > g.shape[1] else x

    def update(g, s, p=None):
        s = jax.tree.map(lambda m, g: 0.9 * m + g, s, g)
        return jax.tree.map(lambda m: -lr * turn(m) if m.ndim == 2 else -lr * m, s), s

    return optax.GradientTransformation(lambda p: jax.tree.map(jnp.zeros_like, p), update)


@model
def with_muon():
    return mlp_with(muon())


for name in (
    "adamw",
    "adafactor",
    "lion",
    "lamb",
    "rmsprop",
    "adagrad",
    "nadam",
    "radam",
    "novograd",
    "yogi",
    "amsgrad",
):
    models["with_" + name] = lambda name=name: mlp_with(getattr(optax, name)(1e-3))


@model
def equinox_mlp(B=128):
    import equinox as eqx

    net = eqx.nn.MLP(32, 8, 260, 2, activation=jnp.tanh, key=jax.random.key(2))
    p, static = eqx.partition(net, eqx.is_inexact_array)
    return (
        p,
        lambda p, b: ((jax.vmap(eqx.combine(p, static))(b[0]) - b[1]) ** 2).mean(),
        both(data(B, 32), data(B, 8)),
        sgd(0.02),
    )


@model
def equinox_conv(B=6):
    import equinox as eqx

    k = jax.random.split(jax.random.key(3), 4)
    net = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 16, 3, padding=1, key=k[0]),
            eqx.nn.Lambda(nn.silu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(16, 16, 3, key=k[1]),
            eqx.nn.Lambda(jnp.tanh),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(16 * 6 * 6, 10, key=k[2]),
        ]
    )
    p, static = eqx.partition(net, eqx.is_inexact_array)
    return (
        p,
        lambda p, b: entropy(jax.vmap(eqx.combine(p, static))(b[0]), b[1]),
        both(data(B, 3, 16, 16), classes((B,), 10)),
        sgd(0.02),
    )
