"""Training scripts with one planted cause of a recompile each, and healthy ones. They know nothing of xlane;
explain_causes.py runs each in a process of its own and grades what explain says: `cause` is the word in its JSON, LINE
marks the line that must be named, `answers` are those to the triage questions. A case that a script needs more
for (devices, PyTorch/XLA) says so."""

HEAD = """
import functools, os, time
import jax, jax.numpy as jnp, numpy as np
rng = np.random.default_rng(0)
def data(n, d=16):
    return jnp.asarray(rng.normal(size=(n, d)).astype(np.float32))
"""
CASES, HEALTHY = {}, {}
NO, SHAPE, POLICY, BRANCH, VALUE = [tuple("yes" if k == i else "no" for k in range(4)) for i in range(-1, 4)]


def plant(name, cause, answers, text, **need):
    CASES[name] = dict(cause=cause, answers=answers, text=HEAD + text, **need)


def healthy(name, text, **need):
    HEALTHY[name] = dict(text=HEAD + text, **need)


plant("ragged_epoch", "shape", SHAPE, """
def loss(p, x, y):
    h = jax.nn.relu(x @ p["w"] + p["b"])  # LINE
    return jnp.mean((h.sum(-1) - y) ** 2)
@jax.jit
def update(p, x, y):
    l, g = jax.value_and_grad(loss)(p, x, y)
    return jax.tree.map(lambda a, b: a - 0.01 * b, p, g), l
p, x = {"w": data(16, 8), "b": jnp.zeros(8)}, data(50)
for epoch in range(3):
    for i in range(0, 50, 16):
        p, l = update(p, x[i:i + 16], x[i:i + 16, 0])
""")
plant("growing_context", "shape", SHAPE, """
@jax.jit
def decode(w, tokens):
    e = w[tokens]  # LINE
    return jnp.argmax(jax.nn.softmax(e @ e.transpose(0, 2, 1), -1).sum((0, 1)))
w, t = data(32), jnp.zeros((2, 4), jnp.int32)
for i in range(6):
    decode(w, t)
for i in range(4):
    t = jnp.concatenate([t, t[:, :1]], 1)
    decode(w, t)
""", words="; it grows from call to call, so allocate it once")
plant("extra_axis", "axes", SHAPE, """
@jax.jit
def forward(w, x):
    return jnp.tanh(x @ w).mean()  # LINE
w, x = data(16, 4), data(8)
for i in range(8):
    forward(w, x if i < 6 else x[None])
""")
plant("float_labels", "dtype", SHAPE, """
@jax.jit
def train(w, x, labels):
    return w - 0.1 * (x * (labels[:, None] + 1)).mean()  # LINE
w, x = data(8), data(8)
for i in range(7):
    w = train(w, x, jnp.arange(8) if i < 5 else jnp.arange(8, dtype=jnp.float32))
""")
plant("half_batch", "dtype", SHAPE, """
@jax.jit
def apply(w, image):
    return (image @ w).sum()  # LINE
w, x = data(16, 4), data(8)
for i in range(8):
    apply(w, x if i % 4 else x.astype(jnp.float16))
""")
plant("rate_as_number", "weak-type", SHAPE, """
@jax.jit
def sgd(w, g, rate):
    return w - rate * g  # LINE
w = data(16).astype(jnp.bfloat16)
for i in range(6):
    sgd(w, w, 0.1 if i < 4 else np.float32(0.1))
""", words="argument `rate` took a Python number, an array or NumPy number at ")
plant("double_precision", "x64", POLICY, """
@jax.jit
def accumulate(x):
    return x * jnp.arange(16).sum()  # LINE
x = data(8)
for i in range(6):
    if i == 4:
        jax.config.update("jax_enable_x64", True)
    accumulate(x)
""")
plant("late_mask", "args", SHAPE, """
@jax.jit
def attend(q, k, mask=None):
    s = q @ k.T
    if mask is not None:
        s = jnp.where(mask, s, -1e9)  # LINE
    return jax.nn.softmax(s).sum()
q = data(8)
for i in range(8):
    attend(q, q, None if i < 5 else jnp.ones((8, 8), bool))
""")
plant("batch_gets_a_key", "args", SHAPE, """
@jax.jit
def step(w, batch):
    return sum((v @ w).sum() for v in batch.values())  # LINE
w, b = data(16, 2), {"image": data(4)}
for i in range(8):
    if i == 5:
        b = dict(b, extra=data(4))
    step(w, b)
""")
plant("scheduled_rate", "constant", VALUE, """
def make(rate):
    @jax.jit
    def step(w, x):
        return w - rate * jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)  # LINE
    return step
w, x = data(16, 4), data(8)
for epoch, rate in enumerate([0.1, 0.05, 0.025]):
    step = make(rate)
    for i in range(3):
        w = step(w, x)
""")
plant("bias_correction", "constant", VALUE, """
@functools.partial(jax.jit, static_argnums=2)
def adam(w, m, t):
    m = 0.9 * m + 0.1 * w
    return w - 0.01 * m / (1 - 0.9 ** t), m  # LINE
w, m = data(8), jnp.zeros((8, 16))
for t in range(1, 7):
    w, m = adam(w, m, t)
""")
plant("new_table", "constant", VALUE, """
def build(table):
    @jax.jit
    def lookup(x):
        return x * table  # LINE
    return lookup
x = data(8)
table = np.linspace(0, 1, 16, dtype=np.float32)
for i in range(8):
    if i % 4 == 0:
        t = table.copy(); t[5] += i
        f = build(t)
    f(x)
""")
plant("clipping_begins", "op", BRANCH, """
@functools.partial(jax.jit, static_argnames="clip")
def step(w, x, clip=False):
    g = jax.grad(lambda w: jnp.sin(x @ w).sum())(w)
    if clip:
        g = jnp.clip(g, -1, 1)  # LINE
    return w - 0.1 * g
w, x = data(16, 4), data(8)
for i in range(10):
    w = step(w, x, clip=i >= 7)
""")
plant("evaluation_mode", "draws", BRANCH, """
@functools.partial(jax.jit, static_argnums=3)
def model(w, x, key, train):
    h = jnp.tanh(x @ w)
    if train:
        h = h * jax.random.bernoulli(key, 0.9, h.shape)  # LINE
    return h.mean()
w, x, key = data(16, 4), data(8), jax.random.key(0)
for i in range(9):
    model(w, x, key, i % 3 != 2)
""", words="; where that is dropout, on in training and off in evaluation, two programs are right")
plant("inference_mode_of_equinox", "draws", BRANCH, """
import equinox as eqx
class Net(eqx.Module):
    inner: eqx.nn.Linear
    drop: eqx.nn.Dropout
    def __init__(self, key):
        self.inner, self.drop = eqx.nn.Linear(16, 4, key=key), eqx.nn.Dropout(0.5)
    def __call__(self, x, key):
        return self.drop(jax.nn.relu(self.inner(x)), key=key)  # LINE
@eqx.filter_jit
def forward(net, x, key):
    return jnp.mean(jax.vmap(net)(x, jax.random.split(key, len(x))))
net, x, key = Net(jax.random.key(0)), data(8), jax.random.key(1)
for i in range(9):
    forward(net if i % 3 < 2 else eqx.nn.inference_mode(net), x, key)
""", says="argument `net.drop.inference` (a Python bool) changed from False to True")
plant("dropout_of_flax", "draws", BRANCH, """
import flax.linen as nn
class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.Dense(4)(x))
        return nn.Dropout(0.5, deterministic=not train)(x).mean()  # LINE
net, x, key = Net(), data(8), jax.random.key(1)
params = net.init(key, x, False)
@functools.partial(jax.jit, static_argnames="train")
def forward(params, x, key, train):
    return net.apply(params, x, train, rngs={"dropout": key})
for i in range(9):
    forward(params, x, key, train=i % 3 < 2)
""", says="static argument `train` changed from True to False")
plant("rate_of_equinox", "filtered", VALUE, """
import equinox as eqx
@eqx.filter_jit
def step(net, x, lr):
    g = eqx.filter_grad(lambda net: jnp.mean(jax.vmap(net)(x) ** 2))(net)
    return eqx.apply_updates(net, jax.tree.map(lambda g: lr * g, g))  # LINE
net, x = eqx.nn.Linear(16, 4, key=jax.random.key(0)), data(8)
for i in range(8):
    net = step(net, x, -0.1 / 2 ** (i // 2))
""", says="argument `lr` (a Python float) took -0.1, -0.05, -0.025, -0.0125 at ")
plant("counter_of_equinox", "unread", NO, """
import equinox as eqx
@eqx.filter_jit
def step(w, count):
    return w * 0.9 + 1
w = data(8)
for i in range(8):
    w = step(w, i)  # LINE
""", says="for argument `count` (a Python int), which has another value")
plant("list_of_arrays_grows", "lengthened", SHAPE, """
@jax.jit
def step(w, history):
    return w - 0.1 * sum(history) / len(history)  # LINE
w, history = data(1)[0], []
for i in range(8):
    history.append(w)
    w = step(w, history)
""", says="elements of argument `history` took 1, 2, 3, 4, 5, 6, 7, 8 at ")
plant("deeper_unroll", "op", BRANCH, """
@functools.partial(jax.jit, static_argnums=1)
def rollout(x, n):
    for _ in range(n):
        x = jnp.tanh(x) + 1  # LINE
    return x
x = data(8)
for n in [2, 2, 2, 2, 4, 4]:
    rollout(x, n)
""")
plant("microbatches", "size", VALUE, """
@functools.partial(jax.jit, static_argnums=2)
def step(w, x, parts):
    xs = x.reshape(parts, -1, 16)  # LINE
    return jax.lax.scan(lambda c, b: (c + jnp.tanh(b @ w).sum(), None), 0.0, xs)[0]
w, x = data(16, 4), data(16)
for parts in [2, 2, 2, 2, 4, 4]:
    step(w, x, parts)
""")
plant("number_of_beams", "op", VALUE, """
@functools.partial(jax.jit, static_argnums=1)
def search(x, k):
    v, i = jax.lax.top_k(x, k)  # LINE
    return v.sum()
x = data(8)
for k in [4, 4, 4, 4, 6]:
    search(x, k)
""", also=("size",))
plant("lambda_in_the_loop", "identical", NO, """
x = data(8)
for i in range(6):
    g = jax.jit(lambda v: jnp.tanh(v) * 2)
    g(x)  # LINE
""")
plant("config_object", "anew", NO, """
class Config:
    def __init__(self, width): self.width = width
@functools.partial(jax.jit, static_argnums=1)
def forward(x, config):
    return (x * config.width).sum()
x = data(8)
for i in range(6):
    forward(x, Config(3))  # LINE
""")
plant("list_for_tuple", "names", NO, """
@jax.jit
def combine(pair):
    return pair[0] @ pair[1].T
a = data(8)
for i in range(8):
    combine((a, a) if i < 6 else [a, a])  # LINE
""", words="traced again for `pair`, which is a list and was a tuple when called at ")
plant("donation_begins", "donation", NO, """
def step(w):
    return w * 0.9
plain, giving = jax.jit(step), jax.jit(step, donate_argnums=0)
w = data(8)
for i in range(8):
    w = (plain if i < 5 else giving)(w)
""", wheel=True)
plant("resharded", "sharding", POLICY, """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
@jax.jit
def step(w):
    return w * 2 + 1
for i in range(8):
    step(jax.device_put(data(8), NamedSharding(mesh, P("d") if i < 5 else P(None, "d"))))
""", devices=2)
plant("mapped_and_jitted", "transform", POLICY, """
def step(w):
    h = jnp.sin(w)  # LINE
    return h * 2 + w
w = data(8)
one, many = jax.jit(step), jax.pmap(step)
for i in range(4):
    one(w)
for i in range(4):
    many(w[None])
""")
plant("another_key", "names", NO, """
@jax.jit
def total(p):
    return sum(v.sum() for v in p.values())
for i in range(8):
    total({"a" if i < 5 else "aa": data(4), "b": data(8)})  # LINE
""")
plant("another_key_in_another_place", "order", NO, """
@jax.jit
def total(p):
    return sum(v.sum() for v in p.values())
for i in range(8):
    total({"a" if i < 5 else "c": data(4), "b": data(8)})
""")
plant("result_of_pmap_is_split", "mapped", NO, """
@jax.pmap
def double(x):
    return jnp.sin(x) * 2
@jax.pmap
def halve(x):
    return x / 2
x = y = np.ones((2, 8), np.float32)
for i in range(5):
    y = double(y)  # LINE
    halve(x)
""", devices=2)
plant("jit_switched_off", "eager", NO, """
@jax.jit
def step(w, x):
    return w - 0.1 * jnp.tanh(x @ w).mean()  # LINE
w, x = data(16, 4), data(8)
for i in range(5):
    w = step(w, x)
with jax.disable_jit():
    for i in range(3):
        w = step(w, x)
""", words="ran op by op")
plant("eager_from_the_start", "eager", NO, """
def step(w, x):
    return w - 0.1 * jnp.tanh(x @ w).mean()
w, x = data(16, 4), data(8)
for i in range(8):
    w = step(w, x)
""", words="no step: ")
plant("history_grows", "growing", NO, """
@jax.jit
def step(w):
    return w * 0.9, (w ** 2).sum()
w, history = data(8), jnp.zeros(0)
for i in range(12):
    w, l = step(w)
    history = jnp.concatenate([history, l[None]])  # LINE
    best = history[-3:].min()
""", words="single ops compiled again for new shapes all along: `concatenate` at ")
plant("eager_gradient", "eager", NO, """
w = data(8)
for i in range(12):
    w = w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.sin(w) ** 2))(w)
""", words="no step: ")
plant("count_decides", "read-back", SHAPE, """
@jax.jit
def reduce(x):
    return (x ** 2).sum()  # LINE
x = data(12)
for i in range(6):
    n = int((x[:, 0] > -10 + i * 0).sum()) - 0
    keep = int(jnp.asarray(4 + i // 3 * 3))
    reduce(x[:keep])
""")
plant("nonzero_decides", "read-back", SHAPE, """
@jax.jit
def gather(x, rows):
    return x[rows].sum()  # LINE
x = data(12)
order = jnp.sort(x[:, 0])
for i in range(5):
    rows, = jnp.nonzero(x[:, 0] > order[3 + i])
    gather(x, rows)
""")
plant("stricter_promotion", "config", POLICY, """
@jax.jit
def multiply(a, b):
    return a * b
a = data(16)
for i in range(8):
    with jax.numpy_dtype_promotion("standard" if i < 5 else "strict"):
        multiply(a, a)  # LINE
""")
plant("search_for_nan", "search", NO, """
jax.config.update("jax_debug_nans", True)
@jax.jit
def step(x):
    return jnp.log(x - 1)
x = data(4) * 0 + 9
try:
    for i in range(8):
        x = step(x)
except FloatingPointError:
    pass
""", words="JAX runs the function again op by op, to find where a NaN came from: ")
plant("matmul_precision", "config", POLICY, """
@jax.jit
def multiply(a, b):
    return a @ b
a = data(16)
for i in range(6):
    with jax.default_matmul_precision("float32" if i > 3 else "default"):
        multiply(a, a)
""")
plant("both_at_once", "shape", ("yes", "no", "yes", "no"), """
@functools.partial(jax.jit, static_argnums=2)
def model(w, x, train):
    h = x @ w
    if train:
        h = jax.nn.relu(h) + 1
    return h.mean()
w, x = data(16, 4), data(8)
for i in range(8):
    model(w, x if i < 5 else x[:3], i < 5)
""")
plant("sizes_in_constants", "shape", ("yes", "no", "no", "perhaps"), """
@jax.jit
def normalise(x):
    n = x.shape[0]
    m = x.sum(0) / n
    return ((x - m) / np.sqrt(n) + np.log(n) + jnp.arange(n)[:, None] / (n - 1))[-1]
for n in [8] * 5 + [12, 20]:
    normalise(data(n))
""")

healthy("plain", """
@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w).mean())(w)
w = data(16, 4)
for i in range(12):
    w = step(w, data(8))
""")
healthy("initialised", """
@jax.jit
def init(key, like):
    return jax.random.normal(key, like.shape) * 0.1
ps = [init(jax.random.key(i), jnp.zeros((i + 2, 3))) for i in range(5)]
@jax.jit
def step(ps):
    return [p * 0.9 for p in ps]
for i in range(9):
    ps = step(ps)
""")
healthy("eager_logging", """
@jax.jit
def step(w):
    return w * 0.99, (w ** 2).sum()
w, history = data(8), []
for i in range(9):
    w, l = step(w)
    history.append(float(l))
    print(float(jnp.mean(jnp.asarray(history))), jnp.stack([w[0]] * (i + 1)).shape)
""")
healthy("evaluation_beside", """
@jax.jit
def train(w, x):
    return w - 0.1 * jnp.tanh(x @ w).mean()
@jax.jit
def evaluate(w, x):
    return jnp.tanh(x @ w).mean()
w = data(16, 4)
for i in range(9):
    w = train(w, data(8))
    if i % 3 == 2:
        evaluate(w, data(20))
""")
healthy("scan_and_keys", """
@jax.jit
def epoch(w, key):
    def body(w, k):
        return w - 0.01 * jax.random.normal(k, w.shape), None
    return jax.lax.scan(body, w, jax.random.split(key, 4))[0]
w, key = data(8), jax.random.key(0)
for i in range(6):
    key, sub = jax.random.split(key)
    w = epoch(w, sub)
""")
healthy("state_tree", """
@jax.jit
def step(state, x):
    g = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(state["w"])
    m = 0.9 * state["m"] + g
    t = state["t"] + 1
    return {"w": state["w"] - 0.1 * m / (1 - 0.9 ** t), "m": m, "t": t}
s = {"w": data(16, 4), "m": jnp.zeros((16, 4)), "t": jnp.zeros(())}
for i in range(8):
    s = step(s, data(8))
""")
healthy("padded_batches", """
@jax.jit
def step(w, x, n):
    mask = jnp.arange(8) < n
    return w - 0.1 * jnp.where(mask[:, None], x @ w, 0).sum() / n
w = data(16, 4)
for n in [8, 8, 5, 8, 3, 8]:
    x = np.zeros((8, 16), np.float32)
    x[:n] = 1
    w = step(w, x, n)
""")
healthy("sharded", """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
@jax.jit
def step(w, x):
    return w - 0.1 * jnp.tanh(x @ w).mean()
w, s = jax.device_put(data(16, 4), NamedSharding(mesh, P())), NamedSharding(mesh, P("d"))
for i in range(8):
    w = step(w, jax.device_put(data(8), s))
""", devices=2)
healthy("helpers_of_many_shapes", """
@jax.jit
def step(w):
    return w + 1
w = data(4)
for i in range(8):
    w = step(w)
    jnp.concatenate([w] * (i + 1)).sum(), jnp.zeros((i + 1, 2)) + i
""")
healthy("augmented", """
@jax.jit
def augment(key, x):
    return x + 0.1 * jax.random.normal(key, x.shape)
@jax.jit
def step(w, x):
    return w - 0.1 * (x @ w).mean()
w, key = data(16, 4), jax.random.key(1)
for i in range(7):
    w = step(w, augment(jax.random.fold_in(key, i), data(8)))
""")

# A second set, graded the same way.
plant("returned_rate", "weak-type", SHAPE, """
@jax.jit
def step(w, rate):
    return w - rate * w.sum(), rate * jnp.float32(0.9)  # LINE
w, rate = data(16).astype(jnp.bfloat16), 1.0
for i in range(6):
    w_, rate = step(w, rate)
""")
plant("named_activation", "op", BRANCH, """
@functools.partial(jax.jit, static_argnames="act")
def layer(w, x, act="relu"):
    h = x @ w
    return getattr(jax.nn, act)(h).sum()  # LINE
w, x = data(16, 4), data(8)
for i in range(8):
    layer(w, x, act="relu" if i < 5 else "gelu")
""")
plant("ordered_otherwise", "order", NO, """
from collections import OrderedDict
@jax.jit
def norm(tree):
    return tree["a"].sum() + 2 * tree["b"].max()  # LINE
a = data(8)
for i in range(8):
    pairs = [("a", a), ("b", a)]
    norm(OrderedDict(pairs if i < 5 else pairs[::-1]))
""")
plant("sharded_by_its_result", "sharding", POLICY, """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
split = NamedSharding(mesh, P("d"))
@jax.jit
def step(w, x):
    return jax.lax.with_sharding_constraint(w * 0.9 + x, split)
w, x = jax.device_put(data(8), NamedSharding(mesh, P())), jax.device_put(data(8), split)
for i in range(8):
    w = step(w, x)
""", devices=2)
plant("another_kind_of_key", "key", SHAPE, """
@jax.jit
def noise(key, x):
    return x + jax.random.normal(key, x.shape)  # LINE
x = data(8)
for i in range(8):
    noise(jax.random.key(i) if i < 5 else jax.random.key(i, impl="rbg"), x)
""")
plant("key_typed_and_raw", "key", SHAPE, """
@jax.jit
def noise(key, x):
    a, b = jax.random.split(key)  # LINE
    return x + jax.random.normal(a, x.shape), b
x = data(8)
for i in range(8):
    noise(jax.random.PRNGKey(i) if i < 5 else jax.random.key(i), x)
""")
plant("captured_table_grows", "size", VALUE, """
def make(table):
    @jax.jit
    def embed(ids):
        return jnp.asarray(table)[ids].sum()  # LINE
    return embed
ids = jnp.arange(4)
for rows in [8, 12, 16]:
    f = make(rng.normal(size=(rows, 4)).astype(np.float32))
    for i in range(3):
        f(ids)
""", also={"constant", "op", "collected"})
plant("method_of_a_new_object", "identical", NO, """
class Trainer:
    def __init__(self, w): self.w = w
    def step(self, x): return jnp.tanh(x @ self.w).sum()
w, x = data(16, 4), data(8)
for epoch in range(4):
    t = Trainer(w)
    f = jax.jit(t.step)
    for i in range(3):
        f(x)  # LINE
""")
plant("penalty_every_fifth", "modes", BRANCH, """
def loss(w, x, penalty):
    l = jnp.mean((x @ w) ** 2)
    if penalty:
        l = l + 0.01 * jnp.abs(w).sum()  # LINE
    return l
step = jax.jit(lambda w, x, penalty: w - 0.1 * jax.grad(loss)(w, x, penalty), static_argnums=2)
w, x = data(16, 4), data(8)
for i in range(10):
    w = step(w, x, i % 5 == 4)
""")
plant("number_of_tasks", "shape", SHAPE, """
def task(w, x):
    return jnp.tanh(x @ w).mean()  # LINE
many = jax.jit(jax.vmap(task, in_axes=(None, 0)))
w = data(16, 4)
for n in [4] * 5 + [6, 6]:
    many(w, jnp.stack([data(8)] * n))
""")
plant("unique_values", "shape", SHAPE, """
@jax.jit
def count(ids):
    return (ids[:, None] == ids[None, :]).sum()  # LINE
for n in [5, 5, 5, 5, 7, 9]:
    count(np.unique(np.arange(20) % n))
""")
plant("length_of_a_scan", "static", VALUE, """
@functools.partial(jax.jit, static_argnums=1)
def simulate(x, steps):
    return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=steps)[0]  # LINE
x = data(8)
for steps in [10] * 5 + [20, 20]:
    simulate(x, steps)
""", also={"size", "op"})
plant("mask_as_bytes", "dtype", SHAPE, """
@jax.jit
def masked(x, mask):
    return (x * mask[:, None]).sum()  # LINE
x = data(8)
for i in range(8):
    masked(x, jnp.ones(8, bool) if i < 5 else jnp.ones(8, jnp.int8))
""")
plant("wide_for_a_while", "x64", POLICY, """
@jax.jit
def total(x):
    return (x.astype(jnp.float64) if jax.config.jax_enable_x64 else x).sum() / 3  # LINE
x = data(8)
for i in range(5):
    total(x)
with jax.enable_x64(True):
    for i in range(3):
        total(x)
""")
plant("wide_arguments_for_a_while", "x64", ("yes", "yes", "no", "no"), """
@jax.jit
def train_step(w, x):
    g = jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)  # LINE
    return w - 0.01 * g
w, x = np.ones((4, 4)), np.ones((8, 4))
for i in range(5):
    train_step(w, x)
with jax.enable_x64(True):
    for i in range(4):
        train_step(w, x)
""")
plant("wide_from_the_start", "dtype", SHAPE, """
jax.config.update("jax_enable_x64", True)
@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.tanh(x @ w).mean())(w).astype(w.dtype)  # LINE
w, key = jnp.ones((8, 4), jnp.float32), jax.random.key(0)
for i in range(8):
    w = train_step(w, np.ones((4, 8), np.float32) if i < 5 else np.ones((4, 8)))
""")
plant("one_wide_scalar", "dtype", SHAPE, """
jax.config.update("jax_enable_x64", True)
step = jax.jit(lambda w, s: w * s)  # LINE
w = jnp.ones(4, jnp.float32)
for i in range(20):
    w = step(w, np.float32(2) if i < 12 else np.float64(2))
""", says="took f32, f64 at ", resulting="argument `w` took f32, f64 at ")
plant("curriculum_of_lengths", "length", SHAPE, """
params = {"emb": jnp.ones((32, 16)), "out": jnp.ones((16, 32))}
@jax.jit
def train_step(p, tokens):
    def loss(p):
        h = p["emb"][tokens[:, :-1]]  # LINE
        lp = jax.nn.log_softmax(h @ p["out"])
        return -jnp.take_along_axis(lp, tokens[:, 1:, None], -1).mean()
    return jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p))
for seq in (16, 32, 64):
    for i in range(4):
        params = train_step(params, np.ones((4, seq + 1), np.int32))
""")
plant("sliding_window", "index", VALUE, """
@functools.partial(jax.jit, static_argnums=(1,))
def window(x, start):
    return jnp.tanh(x[start:start + 4]).sum()  # LINE
x = data(16)
for i in range(8):
    window(x, 0 if i < 4 else i - 3)
""", also={"op", "size"})
plant("more_classes", "size", VALUE, """
@functools.partial(jax.jit, static_argnums=1)
def hot(ids, classes):
    return (jax.nn.one_hot(ids, classes) * 2).sum()  # LINE
ids = jnp.arange(8)
for classes in [10] * 5 + [12]:
    hot(ids, classes)
""", also={"op", "constant"})
plant("progressive_growing", "lengthened", SHAPE, """
@jax.jit
def net(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)  # LINE
    return x.sum()
x = data(8)
for depth in [2] * 5 + [3, 3]:
    net([data(16)] * depth, x)
""")
plant("carry_begins_as_a_number", "axes", SHAPE, """
@jax.jit
def roll(carry, x):
    return 0.9 * carry + x  # LINE
carry, x = jnp.float32(0), data(8)
for i in range(6):
    carry = roll(carry, x)
""")
plant("on_another_device", "device", POLICY, """
@jax.jit
def step(w):
    return jnp.sin(w) * 2
w = data(8)
for i in range(8):
    step(jax.device_put(w, jax.devices()[i >= 5]))
""", devices=2)
plant("precision_policy", "op", BRANCH, """
@functools.partial(jax.jit, static_argnames="dtype")
def forward(w, x, dtype=jnp.float32):
    return (x.astype(dtype) @ w.astype(dtype)).astype(jnp.float32).sum()  # LINE
w, x = data(16, 4), data(8)
for i in range(8):
    forward(w, x, dtype=jnp.float32 if i < 5 else jnp.bfloat16)
""")
plant("other_axes", "op", BRANCH, """
@functools.partial(jax.jit, static_argnames="axes")
def normalise(x, axes):
    return x - x.mean(axes, keepdims=True)  # LINE
x = jnp.stack([data(16)] * 16)
for i in range(8):
    normalise(x, (0,) if i < 5 else (0, 1))
""", also={"constant", "size"})

healthy("two_models", """
@jax.jit
def generator(w, z):
    return jnp.tanh(z @ w)
@jax.jit
def critic(v, x):
    return (x @ v).mean()
w, v = data(16, 8), data(8, 1)
for i in range(8):
    critic(v, generator(w, data(4)))
""")
healthy("python_numbers_as_arguments", """
@jax.jit
def step(w, rate, i):
    return w - rate * w * i
w = data(8)
for i in range(9):
    w = step(w, 0.1 / (i + 1), i)
""")
healthy("early_stopping", """
@jax.jit
def step(w):
    return w * 0.5, jnp.abs(w).max()
w, best = data(8), 1e9
for i in range(30):
    w, l = step(w)
    if float(l) < 1e-3:
        break
""")
healthy("cond_inside", """
@jax.jit
def step(w, i):
    return jax.lax.cond(i % 2 == 0, lambda w: w * 0.9, lambda w: w - 0.1, w)
w = data(8)
for i in range(9):
    w = step(w, i)
""")
healthy("warmed_buckets", """
@jax.jit
def step(w, x):
    return w - 0.1 * jnp.tanh(x @ w).mean()
w = data(16, 4)
for i in range(9):
    w = step(w, data(8))
w_ = np.asarray(w)
""")
healthy("donating", """
@functools.partial(jax.jit, donate_argnums=0)
def step(s, x):
    return {k: v * 0.9 + x.mean() for k, v in s.items()}
s = {"a": data(8), "b": data(4)}
for i in range(9):
    s = step(s, data(8))
""")

# A third set, written after the second was mended.
plant("bucketed_prompts", "length", SHAPE, """
@jax.jit
def prefill(w, tokens, lengths):
    mask = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
    return (w[tokens] * mask[..., None]).sum()  # LINE
w = data(32)
for t in [8, 8, 8, 8, 16, 32]:
    prefill(w, jnp.zeros((2, t), jnp.int32), jnp.array([3, 4]))
""")
plant("temperature_in_a_closure", "constant", VALUE, """
def sampler(temperature):
    return jax.jit(lambda logits: jax.nn.softmax(logits / temperature).max())  # LINE
x = data(8)
for temperature in [0.7, 0.8, 0.9]:
    f = sampler(temperature)
    for i in range(3):
        f(x)
""")
plant("head_removed", "op", BRANCH, """
@functools.partial(jax.jit, static_argnames=("with_head",))
def model(w, v, x, with_head=True):
    h = jnp.tanh(x @ w)
    if with_head:
        h = jnp.exp(h @ v)  # LINE
    return h.sum() + v.sum()
w, v, x = data(16, 16), data(16, 4), data(8)
for i in range(8):
    model(w, v, x, with_head=i < 5)
""")
plant("float16_everywhere", "dtype", SHAPE, """
@jax.jit
def train(state, x):
    return jax.tree.map(lambda p: p - 0.1 * (x @ p).mean(), state)  # LINE
state, x = {"a": data(16, 4), "b": data(16, 2)}, data(8)
for i in range(7):
    if i == 5:
        state, x = jax.tree.map(lambda p: p.astype(jnp.float16), (state, x))
    train(state, x)
""")
plant("part_of_a_tuple_is_none", "args", SHAPE, """
@jax.jit
def loss(w, batch):
    x, weights = batch
    l = ((x @ w) ** 2).mean(-1)
    return (l if weights is None else l * weights).sum()  # LINE
w = data(16, 4)
for i in range(8):
    loss(w, (data(8), None if i < 5 else jnp.ones(8)))
""")
healthy("numpy_batches", """
@jax.jit
def step(w, x):
    return w - 0.1 * jnp.tanh(x @ w).mean()
w = data(16, 4)
for i in range(9):
    w = step(w, rng.normal(size=(8, 16)).astype(np.float32))
""")

# A fourth set: what was missed at first sight of another thirty.
plant("average_begins_as_a_number", "weak-type", SHAPE, """
@jax.jit
def train_step(state, x):
    l, g = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(state["w"])
    return {"w": state["w"] - 0.1 * g, "ema": 0.9 * state["ema"] + 0.1 * l}  # LINE
state, x = {"w": data(16, 2), "ema": 0.0}, data(6)
for i in range(7):
    state = train_step(state, x)
""")
plant("channels_first", "axes", SHAPE, """
@jax.jit
def spread(images):
    c = images - images.mean(axis=0)  # LINE
    return jnp.sqrt((c ** 2).mean())
for i in range(8):
    x = np.ones((4, 10, 12, 3), np.float32)
    spread(x if i < 5 else x.transpose(0, 3, 1, 2))
""")
plant("counter_in_a_static_field", "names", NO, """
import dataclasses
@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["step"])
@dataclasses.dataclass
class State:
    w: jax.Array
    step: int
@jax.jit
def train_step(state, x):
    return dataclasses.replace(state, w=state.w - 0.1 * jnp.tanh(x @ state.w).mean())
state, x = State(data(16, 4), 0), data(8)
for i in range(5):
    state = train_step(state, x)  # LINE
    state.step += 1
""", words="for static field `state.step`, which has another value when called at ")
plant("more_devices", "sharding", POLICY, """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
for n in (2, 4):
    mesh = Mesh(np.array(jax.devices()[:n]), ("b",))
    w = jax.device_put(data(16, 4), NamedSharding(mesh, P()))
    x = jax.device_put(data(8), NamedSharding(mesh, P("b")))
    for i in range(5):
        w = train_step(w, x)
""", devices=4)
plant("warm_up_has_another_rule", "op", BRANCH, """
@functools.partial(jax.jit, static_argnames="warm")
def train_step(w, m, x, warm):
    g = jax.grad(lambda w: jnp.tanh(x @ w).mean())(w)
    if warm:
        return w - 0.01 * g, m
    m = 0.9 * m + g  # LINE
    return w - 0.1 * m, m
w, m, x = data(16, 4), data(16, 4), data(8)
for i in range(10):
    w, m = train_step(w, m, x, warm=i < 5)
""")

# A fifth set: how the function was called, and arrays whose size no bucket helps.
plant("positional_then_keyword", "keywords", NO, """
@jax.jit
def train_step(w, x, rate):
    return w - rate * jnp.tanh(x @ w).mean() * w  # LINE
w, x = data(16, 4), data(8)
for i in range(10):
    w = train_step(w, x, 0.1) if i < 6 else train_step(w, x=x, rate=0.1)
""")
plant("config_made_in_each_step", "anew", NO, """
class Config:
    def __init__(self, depth):
        self.depth = depth
@functools.partial(jax.jit, static_argnums=0)
def train_step(config, w, x):
    for _ in range(config.depth):
        x = jnp.tanh(x @ w)
    return w - 0.1 * x.mean() * w
w, x = data(16, 16), data(8)
for i in range(8):
    w = train_step(Config(2), w, x)  # LINE
""")
plant("caches_cleared_in_each_epoch", "cleared", NO, """
@jax.jit
def train_step(w, x):
    return w - 0.1 * jnp.tanh(x @ w).mean() * w
w, x = data(16, 4), data(8)
for epoch in range(3):
    for i in range(4):
        w = train_step(w, x)  # LINE
    jax.clear_caches()
""")
plant("epoch_is_static", "unused", NO, """
@functools.partial(jax.jit, static_argnames="epoch")
def train_step(w, x, epoch):
    return w - 0.1 * jnp.tanh(x @ w).mean() * w
w, x = data(16, 4), data(8)
for i in range(12):
    w = train_step(w, x, epoch=i // 4)  # LINE
""")
plant("step_is_static", "shared", BRANCH, """
@functools.partial(jax.jit, static_argnames="step")
def train_step(w, x, step):
    w = w - 0.1 * jnp.tanh(x @ w).mean() * w
    return w * 0.5 if step % 4 == 3 else w
w, x = data(16, 4), data(8)
for i in range(24):
    w = train_step(w, x, step=i)  # LINE
""", words="; some of its values give the program that another gave")
plant("a_length_of_its_own", "length", SHAPE, """
@jax.jit
def train_step(w, x):
    return w - 0.1 * jnp.tanh(x).mean() * w  # LINE
w = data(16, 4)
for n in 16, 15, 12, 11, 9:
    for i in range(4):
        w = train_step(w, data(8, n))
""")
plant("rate_is_static", "static", VALUE, """
@functools.partial(jax.jit, static_argnames="rate")
def train_step(w, x, rate):
    return w - rate * jnp.tanh(x @ w).mean() * w  # LINE
w, x = data(16, 4), data(8)
for i in range(12):
    w = train_step(w, x, rate=0.1 * 0.5 ** (i // 4))
""")
plant("cache_by_concatenation", "grown", SHAPE, """
@jax.jit
def decode(w, cache, x):
    cache = jnp.concatenate([cache, (x @ w)[None]])  # LINE
    return jax.nn.softmax(cache @ x) @ cache, cache
w, cache, x = data(16) * 0.1, data(1), data(1)[0]
for i in range(8):
    x, cache = decode(w, cache, x)
""")
plant("sweep_over_widths", "carried", SHAPE, """
@jax.jit
def train_step(p, x):
    g = jax.grad(lambda p: jnp.mean(jnp.tanh(x @ p["in"]) @ p["out"]))(p)  # LINE
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, g)
for width in 32, 64, 128:
    p = {"in": data(16, width), "out": data(width, 2)}
    for i in range(5):
        p = train_step(p, data(8))
""")
plant("explicit_mesh", "sharding", POLICY, """
from jax.sharding import NamedSharding, PartitionSpec as P
config = dict(rate=0.01, ema=0.99)
mesh = jax.make_mesh((4,), ("data",))
@jax.jit
def train_step(w, ema, x):
    g = jax.grad(lambda w: jnp.mean((jnp.tanh(x) @ w) ** 2))(w)  # LINE
    w = w - config["rate"] * g
    return w, config["ema"] * ema + (1 - config["ema"]) * w
w = ema = data(16, 8)
for i in range(18):
    if i == 12:
        w, ema = jax.device_put((w, ema), NamedSharding(mesh, P(None, "data")))
    w, ema = train_step(w, ema, data(8))
""", devices=4)
plant("replay_in_a_list", "collected", VALUE, """
replay = []
def make():
    @jax.jit
    def step(w):
        h = jnp.stack(replay)  # LINE
        return w - 0.01 * jax.grad(lambda w: jnp.mean((h @ w - 1) ** 2))(w)
    return step
w = jnp.ones(4)
for r in range(5):
    replay.append(jnp.full(4, float(r)))
    step = make()
    for i in range(5):
        w = step(w)
""", words="the length of `replay` (a list) took 1, 2, 3, 4, 5 at ")
plant("rate_as_a_weakly_typed_array", "weak-type", SHAPE, """
@jax.jit
def step(w, x, rate):
    g = jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)
    return w - rate * g  # LINE
w, x, rate = data(16, 4), data(8), jnp.float32(0.1)
for i in range(8):
    w = step(w, x, rate)
    rate = jnp.asarray(0.1 * 0.9 ** i)
""", words="argument `rate` took an array, a weakly typed array at ")

healthy("rate_of_equinox_as_an_array", """
import equinox as eqx
@eqx.filter_jit
def step(net, x, lr):
    g = eqx.filter_grad(lambda net: jnp.mean(jax.vmap(net)(x) ** 2))(net)
    return eqx.apply_updates(net, jax.tree.map(lambda g: lr * g, g))
net, x = eqx.nn.Linear(16, 4, key=jax.random.key(0)), data(8)
for i in range(8):
    net = step(net, x, jnp.asarray(-0.1 / 2 ** (i // 2)))
""")

# A sixth set: what users of flax, equinox and optax do.
plant("train_state_made_anew", "names", NO, """
import flax.linen as nn, optax
from flax.training import train_state
net, x = nn.Dense(4), data(8)
@jax.jit
def train_step(state, x):
    g = jax.grad(lambda p: jnp.mean(state.apply_fn(p, x) ** 2))(state.params)
    return state.apply_gradients(grads=g)
params = net.init(jax.random.key(0), x)
for epoch in range(3):
    state = train_state.TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))
    for i in range(4):
        state = train_step(state, x)  # LINE
    params = state.params
""", words="for static field `state.tx`, which is another GradientTransformationExtraArgs when called at ")
plant("optimizer_changed", "args", SHAPE, """
import optax
w, x = data(16, 4), data(8)
def make(tx):
    @jax.jit
    def train_step(w, s, x):
        g = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        u, s = tx.update(g, s, w)  # LINE
        return optax.apply_updates(w, u), s
    return train_step
for tx in optax.sgd(0.1), optax.sgd(0.1, momentum=0.9):
    step, s = make(tx), tx.init(w)
    for i in range(5):
        w, s = step(w, s, x)
""", says="arguments were added: `s[0].trace` at ")
plant("mutable_batch_stats", "modes", BRANCH, """
import flax.linen as nn
class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dense(4)(x)
        return nn.BatchNorm(use_running_average=not train)(x).mean()  # LINE
net, x = Net(), data(8)
v = net.init(jax.random.key(0), x, True)
@functools.partial(jax.jit, static_argnames="train")
def forward(v, x, train):
    return net.apply(v, x, train, mutable=["batch_stats"] if train else False)
for i in range(9):
    forward(v, x, train=i % 3 < 2)
""", says="static argument `train` changed from True to False")
plant("frozen_layer", "args", SHAPE, """
import equinox as eqx
net, x = eqx.nn.MLP(16, 4, 8, 1, key=jax.random.key(0)), data(8)
@eqx.filter_jit
def step(trained, rest, x):
    def loss(trained):
        return jnp.mean(jax.vmap(eqx.combine(trained, rest))(x) ** 2)  # LINE
    return eqx.apply_updates(trained, jax.tree.map(lambda g: -0.1 * g, eqx.filter_grad(loss)(trained)))
for i in range(10):
    spec = jax.tree.map(eqx.is_array, net)
    if i >= 5:
        spec = eqx.tree_at(lambda m: m.layers[0], spec, jax.tree.map(lambda _: False, spec.layers[0]))
    a, b = eqx.partition(net, spec)
    net = eqx.combine(step(a, b, x), b)
""", says="were removed: `trained.layers[0].weight`")
plant("count_as_numpy_or_python", "weakly", NO, """
@jax.jit
def mean(x, n):
    return x.sum() / n  
x = data(8)
for i in range(8):
    mean(x, 8 if i % 2 else np.int32(8))  # LINE
""", words="for `n`, which is a Python number and was an array of the same type when called at ")
plant("ragged_token_lists", "lengthened", SHAPE, """
@jax.jit
def score(table, tokens):
    return jnp.mean(table[jnp.stack(tokens)])  # LINE
table = data(32)
for prompt in "a quick", "brown foxes", "jump", "over", "the lazy dog":
    score(table, [ord(c) % 32 for c in prompt])
""")
plant("rate_set_in_the_optimizer_state", "weak-type", SHAPE, """
import optax
tx = optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)
w, x = data(16, 4), data(8)
@jax.jit
def train_step(w, s, x):
    g = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    u, s = tx.update(g, s, w)  # LINE
    return optax.apply_updates(w, u), s
s = tx.init(w)
for i in range(12):
    if i % 4 == 3:
        s.hyperparams["learning_rate"] = 0.1 / (i + 1)
    w, s = train_step(w, s, x)
""", says="argument `s.hyperparams['learning_rate']` took an array, a Python number at ")
plant("restored_step_count", "weakly", NO, """
@jax.jit
def train_step(s, x):
    g = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(s["w"])
    return {"w": s["w"] - 0.1 / (1 + s["step"]) * g, "step": s["step"] + 1}
s, x = {"w": data(16, 4), "step": jnp.zeros((), jnp.int32)}, data(8)
for i in range(10):
    if i == 6:
        s = {"w": np.asarray(s["w"]), "step": int(s["step"])}
    s = train_step(s, x)  # LINE
""")
plant("restored_to_a_device", "committed", POLICY, """
@jax.jit
def train_step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)  # LINE
w, x = data(16, 4), data(8)
for i in range(10):
    if i == 6:
        w = jax.device_put(np.asarray(w), jax.devices()[0])
    w = train_step(w, x)
""", says="argument `w` was not committed to a device, and is committed at ")
plant("nnx_train_and_eval", "draws", BRANCH, """
from flax import nnx
class Net(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.drop = nnx.Linear(16, 4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
    def __call__(self, x):
        return self.drop(nnx.relu(self.inner(x)))  # LINE
@nnx.jit
def forward(net, x):
    return net(x).mean()
net, x = Net(nnx.Rngs(0)), data(8)
for i in range(9):
    net.train() if i % 3 < 2 else net.eval()
    forward(net, x)
""")
plant("loss_scale_in_a_static_field", "field", VALUE, """
import dataclasses
@functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["scale"])
@dataclasses.dataclass
class State:
    w: jax.Array
    scale: float
@jax.jit
def train_step(state, x):
    g = jax.grad(lambda w: state.scale * jnp.mean((x @ w) ** 2))(state.w)  # LINE
    return dataclasses.replace(state, w=state.w - 0.1 * g / state.scale)
state, x = State(data(16, 4), 8.0), data(8)
for i in range(12):
    if i % 4 == 3:
        state = dataclasses.replace(state, scale=state.scale * 2)
    state = train_step(state, x)
""", says="static field `state.scale` took 8, 16, 32, 64 at ")
plant("weak_type_and_branch", "weak-type", ("yes", "no", "yes", "no"), """
@functools.partial(jax.jit, static_argnums=2)
def step(w, rate, flip):
    a, b = w * rate, jnp.sin(w)
    return a - b if flip else b - a  # LINE
w = data(16).astype(jnp.bfloat16)
for i in range(8):
    step(w, 0.1 if i < 4 else np.float32(0.1), i >= 4)
""", says="(static argument `flip` changed from False to True)")
healthy("optax_schedule", """
import optax
tx = optax.adam(optax.cosine_decay_schedule(0.1, 20))
w, x = data(16, 4), data(8)
@jax.jit
def train_step(w, s, x):
    g = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    u, s = tx.update(g, s, w)
    return optax.apply_updates(w, u), s
s = tx.init(w)
for i in range(12):
    w, s = train_step(w, s, x)
""")
healthy("flax_train_state", """
import flax.linen as nn, optax
from flax.training import train_state
net, x = nn.Dense(4), data(8)
state = train_state.TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), x), tx=optax.adamw(1e-3))
@jax.jit
def train_step(state, x):
    l, g = jax.value_and_grad(lambda p: jnp.mean(state.apply_fn(p, x) ** 2))(state.params)
    return state.apply_gradients(grads=g), l
for i in range(12):
    state, l = train_step(state, x)
    if i % 4 == 3:
        print(float(l))
""")
healthy("equinox_partitioned", """
import equinox as eqx, optax
net, x, tx = eqx.nn.MLP(16, 4, 8, 1, key=jax.random.key(0)), data(8), optax.adam(1e-3)
arrays, rest = eqx.partition(net, eqx.is_array)
s = tx.init(arrays)
@jax.jit
def step(arrays, s, x, key):
    def loss(arrays):
        return jnp.mean(jax.vmap(eqx.combine(arrays, rest))(x + jax.random.normal(key, x.shape)) ** 2)
    u, s = tx.update(jax.grad(loss)(arrays), s, arrays)
    return eqx.apply_updates(arrays, u), s
key = jax.random.key(1)
for i in range(10):
    key, k = jax.random.split(key)
    arrays, s = step(arrays, s, x, k)
""")
healthy("nnx_optimizer", """
from flax import nnx
import optax
net, x = nnx.Linear(16, 4, rngs=nnx.Rngs(0)), data(8)
opt = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)
@nnx.jit
def train_step(net, opt, x):
    l, g = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
    opt.update(net, g)
    return l
for i in range(10):
    train_step(net, opt, x)
""")
healthy("float64_of_numpy", """
@jax.jit
def step(w, x):
    return w - 0.1 * (x @ w).mean()
w = data(16, 4)
for i in range(8):
    w = step(w, rng.normal(size=(8, 16)) if i % 2 else data(8))
""")
