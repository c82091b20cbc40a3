"""A small JAX training loop with a fault that costs time and does not crash: the last batch is shorter, so the step
compiles twice. Run it as README.md does:  xlane run --profile=cpu --summary -- python examples/train.py"""
import jax, jax.numpy as jnp, numpy as np


def loss(w, x, y):
    hidden = jnp.tanh(x @ w["in"])
    return -jnp.mean(jax.nn.log_softmax(hidden @ w["out"])[jnp.arange(len(y)), y])


@jax.jit
def train_step(w, x, y):
    value, slope = jax.value_and_grad(loss)(w, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, slope), value


rng = np.random.default_rng(0)
images, labels = rng.standard_normal((1000, 64), np.float32), rng.integers(0, 10, 1000)
w = {"in": rng.standard_normal((64, 256), np.float32) / 8, "out": np.zeros((256, 10), np.float32)}
for epoch in range(3):
    for at in range(0, len(images), 128):                    # 1000 = 7 x 128 + 104
        w, value = train_step(w, images[at:at + 128], labels[at:at + 128])
print(f"loss {value:.4f}")
