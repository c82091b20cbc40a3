"""Evaluations on eight devices, some of which lie: `python lies.py NAME...`. They know nothing of xlane; mesh.py runs
them under `xlane run`. What a case compiles is called after it."""
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
x = jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), NamedSharding(mesh, P("data", "model")))
w = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("model")))


def evaluate(f, out):
    f.__name__ = case
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("data", "model"), out_specs=out, check_vma=False))


def honest():
    step = evaluate(lambda x: jax.lax.pmean(x.mean(), ("data", "model")), P())
    each = evaluate(lambda x: x.mean().reshape(1, 1), P("data", "model"))
    def honest_train(w, x):
        return w - 0.1 * (x.T @ jnp.tanh(x @ w))
    train = jax.jit(honest_train, out_shardings=w.sharding)
    v = w
    for _ in range(3):
        print(float(step(x)), np.asarray(each(x)).sum())
        v = train(v, x)
    print(float(v.sum()))


def no_collective():
    """The mean of the rows of one device, said to be the same on all."""
    print(float(evaluate(lambda x: x.mean(), P())(x)))


def wrong_group():
    """Reduced over the model axis alone, although rows differ along data."""
    print(float(evaluate(lambda x: jax.lax.pmean(x.mean(), "model"), P())(x)))


def early_read():
    """One number per device, of which the first is read instead of their mean."""
    local = evaluate(lambda x: x.mean().reshape(1, 1), P("data", "model"))(x)
    print(float(np.asarray(local.addressable_shards[0].data)[0, 0]))


def early_index():
    """The same, by an op on the first device's part alone: the part itself is never copied to the host."""
    local = evaluate(lambda x: x.mean().reshape(1, 1), P("data", "model"))(x)
    print(float(local.addressable_shards[0].data[0, 0]))


def mismatch():
    """Half of the devices go to one collective, half to another."""
    def f(x):
        return jax.lax.cond(jax.lax.axis_index("data") < 1, lambda x: jax.lax.psum(x, ("data", "model")),
                            lambda x: jax.lax.all_gather(x, ("data", "model")).sum(0), x)
    try:
        print(np.asarray(evaluate(f, P("data", "model"))(x)))
    except Exception as e:
        print("caught", type(e).__name__)


def ten():
    """Ten arrays: what JAX says each device holds, for comparison."""
    specs = [P(), P("data"), P("model"), P(None, "data"), P(None, "model"), P("data", "model"), P("model", "data"),
             P(("data", "model")), P(None, ("model", "data")), P(("model", "data"))]
    arrays = [jax.device_put(np.zeros((8, 16), np.float32), NamedSharding(mesh, s)) for s in specs]
    def ten(a):
        return [jnp.sin(v) * 2 + 1 for v in a]
    jax.block_until_ready(jax.jit(ten)(arrays))
    print(json.dumps([[[s.device.id, [list(d.indices(n)[:2]) for d, n in zip(s.index, a.shape)], s.data.nbytes] for s
                       in a.addressable_shards] for a in arrays]))


for case in sys.argv[1:]:
    print("==", case, flush=True)
    globals()[case]()
