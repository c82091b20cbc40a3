"""Training steps that people write in JAX (test/zoo/nets.py), 20 steps on the embedded device and on JAX's own CPU
from the same start: every loss, and every gradient at step 20, agree to 1e-4. Where they do not,
both are compared with the same 20 steps in f64: ours must then be the nearer one, or as far as JAX's CPU goes from
itself when its first parameters move by a rounding error (errors grow in some models, and a sign flips where an
optimizer takes signs). Under XLANE_TEST_ALL=1 all models, otherwise some. usage: python test/zoo.py [NAME ...]"""

import os, sys, time
import _quick
import _jax  # both devices

_quick.use()
import numpy as np
import jax, jax.numpy as jnp
import optax

sys.path.insert(0, os.path.join(_jax.here, "test", "zoo"))
import nets

STEPS, TOL = 20, 1e-4
SOME = """mlp_tanh lstm neural_ode llama mamba moe vae gnn contrastive ppo ctc with_adafactor equinox_mlp""".split()


def train(name, device, double=False, moved=0):
    """Losses of the steps, and the gradients after the last."""
    p, loss, batch, opt = nets.models[name]()
    if moved:
        rng = np.random.default_rng(moved)
        shift = lambda x: (x * (1 + rng.choice([-6e-8, 6e-8], np.shape(x)))).astype(np.float32)
        p = jax.tree.map(lambda x: shift(np.asarray(x)) if np.asarray(x).dtype == np.float32 else x, p)
    wide = (
        (lambda t: jax.tree.map(lambda x: np.asarray(x, np.float64) if np.asarray(x).dtype == np.float32 else x, t))
        if double
        else (lambda t: t)
    )
    put = lambda t: jax.device_put(wide(t), device)
    with jax.default_device(device):
        p = put(p)
        s = jax.jit(opt.init)(p)

        def step(p, s, b):
            l, g = jax.value_and_grad(loss)(p, b)
            u, s = opt.update(g, s, p)
            return l, optax.apply_updates(p, u), s

        step = jax.jit(step, donate_argnums=(0, 1))  # as people run it: nothing but the loss comes out
        losses = []
        for i in range(STEPS):
            l, p, s = step(p, s, put(batch(i)))
            losses.append(float(l))
        l, g = jax.jit(jax.value_and_grad(loss))(p, put(batch(STEPS)))
        return np.array(losses + [float(l)]), [np.asarray(x, np.float64) for x in jax.tree.leaves(g)]


def far(a, b):
    """The furthest of losses and gradients: relative to each gradient's length, or to a thousandth of all of them where
    that is longer."""
    worst = float(np.max(np.abs(a[0] - b[0]) / np.maximum(np.abs(b[0]), 1e-3 * np.abs(b[0]).max())))
    whole = np.sqrt(sum(float((v**2).sum()) for v in b[1]))
    for u, v in zip(a[1], b[1]):
        worst = max(worst, float(np.linalg.norm(u - v) / max(np.linalg.norm(v), 1e-3 * whole, 1e-30)))
    return worst if np.isfinite(worst) else np.inf


def one(name):
    ours, cpu = jax.devices("xlane")[0], jax.devices("cpu")[0]
    begun = time.time()
    a = train(name, ours)
    mine = time.time() - begun
    b = train(name, cpu)
    d = far(a, b)
    if not np.isfinite(a[0]).all():
        return "the loss is not finite: %s" % a[0]
    if d <= TOL:
        print(
            "ok zoo %s: %.1e apart after %d steps, loss %.5g to %.5g (%.1f s)"
            % (name, d, STEPS, a[0][0], a[0][-1], mine),
            flush=True,
        )
        return None
    with jax.enable_x64(True):
        c = train(name, cpu, double=True)
    e, f = far(a, c), far(b, c)
    if e <= f:
        print(
            "ok zoo %s: %.1e apart after %d steps, but %.1e from f64 where JAX's CPU is %.1e" % (name, d, STEPS, e, f),
            flush=True,
        )
        return None
    itself = max(far(train(name, cpu, moved=k), b) for k in (1, 2, 3, 4))
    if d <= 2 * itself:
        print(
            "ok zoo %s: %.1e apart after %d steps; JAX's CPU is %.1e from itself when it starts a rounding error aside"
            % (name, d, STEPS, itself),
            flush=True,
        )
        return None
    return "%.1e apart after %d steps; from f64 ours is %.1e, JAX's CPU %.1e; losses %s, JAX's CPU %s" % (
        d,
        STEPS,
        e,
        f,
        a[0][[0, 1, -1]],
        b[0][[0, 1, -1]],
    )


def main():
    names = sys.argv[1:] or (list(nets.models) if os.environ.get("XLANE_TEST_ALL") == "1" else SOME)
    bad = 0
    for n in names:
        try:
            why = one(n)
        except Exception as e:
            why = "%s: %s" % (type(e).__name__, str(e)[:400])
        if why:
            print("FAIL zoo %s: %s" % (n, why), flush=True)
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
