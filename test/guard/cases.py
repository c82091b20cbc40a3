"""Sixteen small training scripts, each with one planted cause of a recompile: `python cases.py NAME [PHASE]`.
They know nothing of xlane; guard.py runs them under `xlane run` and reads what explain says."""
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np

X = jnp.asarray(np.arange(8 * 16, dtype=np.float32).reshape(8, 16) / 100)
W = jnp.asarray(np.ones((16, 4), np.float32))


def loop(f, *args, n=6):
    for _ in range(n):
        out = f(*args)
    return jax.block_until_ready(out)


def longer_batch(phase):
    @jax.jit
    def step(w, batch):
        return w - 0.1 * jnp.dot(batch.T, jnp.tanh(batch @ w))  # LINE longer_batch
    loop(step, W, X)
    step(W, jnp.concatenate([X, X]))


def dtype_change(phase):
    @jax.jit
    def step(w, batch):
        return jnp.sum(batch @ w)  # LINE dtype_change
    loop(step, W, X)
    step(W, X.astype(jnp.bfloat16))


def baked_float(phase):
    def step(w, lr):
        return w - lr * jnp.cos(w)  # LINE baked_float
    step = jax.jit(step, static_argnums=1)
    loop(step, W, 0.125)
    step(W, 0.0625)


def hidden_branch(phase):
    def step(w, log):
        w = jnp.sin(w)
        if log:
            w = w / jnp.linalg.norm(w)  # LINE hidden_branch
        return w * 2
    step = jax.jit(step, static_argnums=1)
    for i in range(1, 12):
        step(W, i % 10 == 0)


def dropped_donation(phase):
    def step(w):
        return w + 1
    loop(jax.jit(step), W)
    jax.jit(step, donate_argnums=0)(jnp.array(W))


def other_sharding(phase):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))

    def step(w):
        return w * 2
    jax.jit(step).lower(jax.device_put(X, NamedSharding(mesh, P("x")))).compile()
    jax.jit(step).lower(jax.device_put(X, NamedSharding(mesh, P(None, "x")))).compile()


def config_value(phase):
    @jax.jit
    def step(w):
        return w * 3
    loop(step, W)
    with jax.numpy_rank_promotion("warn"):
        step(W)


def other_flag(phase):
    @jax.jit
    def step(w):
        return w * 4
    loop(step, W)


def weak_scalar(phase):
    @jax.jit
    def step(w, scale):
        return w.astype(jnp.bfloat16) * scale  # LINE weak_scalar
    loop(step, W, 2.0)
    step(W, np.float32(2.0))


def gather_constant(phase):
    def step(w, rows):
        return jnp.take(w, np.array(rows), axis=0) * 2  # LINE gather_constant
    step = jax.jit(step, static_argnums=1)
    loop(step, W, (1, 2, 3))
    step(W, (1, 5, 3))


def reordered_arguments(phase):
    def step(a, b):
        return jnp.sum(a) - jnp.max(b)
    f = jax.jit(step)
    loop(f, W, X)
    f(X, W)


def layer_count(phase):
    def step(w, layers):
        for _ in range(layers):
            w = jnp.tanh(w @ w.T) @ w  # LINE layer_count
        return w
    step = jax.jit(step, static_argnums=1)
    loop(step, W, 2)
    step(W, 3)


def other_precision(phase):
    def step(w, precision):
        return jnp.dot(X, w, precision=precision)  # LINE other_precision
    step = jax.jit(step, static_argnums=1)
    loop(step, W, None)
    step(W, jax.lax.Precision.HIGHEST)


def shape_from_data(phase):
    @jax.jit
    def step(batch):
        return jnp.sum(batch * 2)  # LINE shape_from_data
    for n in [8, 8, 8, 8, 8, 8, 5]:
        count = int(jnp.asarray(n))
        step(X[:count])


def rank_branch(phase):
    @jax.jit
    def step(w):
        w = w * 2
        if os.environ.get("RANK") == "1":
            w = jnp.exp(w)  # LINE rank_branch
        return w
    loop(step, W)


def new_plugin(phase):
    other_flag(phase)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else "")
