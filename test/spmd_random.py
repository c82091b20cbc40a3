"""Random small programs with random shardings on random meshes of eight devices against the same program on one device
of ours.

    test/spmd_random.py [CASES [FIRST]]      so many cases (120), from this seed on; a failing seed prints its program

Arguments, results and values in between are split at random, also where sizes do not divide (only in between: JAX wants
the others to). Both kinds of annotation take turns. What one device computes is checked elsewhere (test/jax_ops.py)."""
import os, sys
import _eight
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

MESHES = [("a", 8), ("a", 2, "b", 4), ("a", 4, "b", 2), ("a", 2, "b", 2, "c", 2)]
SIZES = [1, 2, 3, 4, 4, 6, 8, 8, 8, 12, 16]


class Case:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        m = MESHES[self.r.integers(len(MESHES))]
        self.axes = dict(zip(m[::2], m[1::2]))
        self.mesh = Mesh(np.array(jax.devices("xlane")).reshape(tuple(self.axes.values())), tuple(self.axes))
        self.says = []                                   # the program, for who looks into a failure

    def pick(self, *of):
        return of[self.r.integers(len(of))]

    def shape(self, least=1, most=3):
        if least == 1 and self.r.random() < 0.05:        # large enough for sums to be split between the devices
            return self.pick((16, 32, 32), (128, 128), (64, 16, 16))
        return tuple(int(self.pick(*SIZES)) for _ in range(self.r.integers(least, most + 1)))

    def spec(self, shape, even):
        """A random split of a shape; every axis at most once."""
        free, dims = list(self.r.permutation(list(self.axes))), []
        for n in shape:
            mine, parts = [], 1
            while free and self.r.random() < 0.5 and len(mine) < 2:
                k = self.axes[free[-1]]
                if even and n % (parts * k):
                    break
                parts *= k
                mine.append(str(free.pop()))
            dims.append(tuple(mine) if len(mine) > 1 else mine[0] if mine else None)
        return P(*dims)

    def array(self, shape=None):
        shape = self.shape() if shape is None else shape
        kind = self.pick("f", "f", "f", "i")
        x = self.r.normal(size=shape).astype(np.float32) if kind == "f" else self.r.integers(-9, 9,
            shape).astype(np.int32)
        return x

    # ---- ops: each takes values of this program and gives a new one, or None where it has no use for them
    # ----------------
    def elementwise(self, x):
        f = self.pick(jnp.sin, jnp.tanh, jnp.abs, jnp.sign, lambda v: v * 2 + 1, lambda v: jnp.where(v > 0, v, 0 * v),
                      lambda v: jnp.clip(v, -1, 1), lambda v: v.astype(jnp.bfloat16).astype(jnp.float32),
                      lambda v: (v > 0), lambda v: lax.exp(jnp.clip(v.astype(jnp.float32), -3, 3)))
        return f(x)

    def binary(self, x, y):
        if x.ndim == y.ndim and all(a == b or a == 1 or b == 1 for a, b in zip(x.shape, y.shape)):
            return self.pick(jnp.add, jnp.multiply, jnp.maximum, jnp.subtract)(x.astype(jnp.float32),
                y.astype(jnp.float32))

    def dot(self, x, y):
        x, y = x.astype(jnp.float32), y.astype(jnp.float32)
        pairs = [(i, j) for i in range(x.ndim) for j in range(y.ndim) if x.shape[i] == y.shape[j]]
        if not pairs:
            y = jnp.tanh(jnp.asarray(self.array((x.shape[-1], 8)), jnp.float32)) if x.ndim else y
            pairs = [(x.ndim - 1, 0)] if x.ndim else []
        if not pairs:
            return None
        self.r.shuffle(pairs)
        contract, batch, seen = [], [], set()
        for i, j in pairs:
            if ("x", i) in seen or ("y", j) in seen or len(contract) + len(batch) > 2:
                continue
            seen |= {("x", i), ("y", j)}
            (batch if contract and self.r.random() < 0.6 else contract).append((int(i), int(j)))
        dims = tuple(tuple(zip(*c)) if c else ((), ()) for c in (contract, batch))
        out = lax.dot_general(x, y, dims)
        return out / 4 if out.ndim <= 4 and out.size < 1 << 16 else None

    def reduce(self, x):
        if not x.ndim:
            return None
        axes = tuple(int(a) for a in self.r.permutation(x.ndim)[:self.r.integers(1, x.ndim + 1)])
        f = self.pick("sum", "max", "min", "prod", "any", "argmax", "mean", "logsumexp", "keep")
        if f == "argmax":
            return jnp.argmax(x, axes[0])
        if f == "any":
            return jnp.any(x > 0, axes)
        if f == "logsumexp":
            return jax.nn.logsumexp(x.astype(jnp.float32), axes)
        if f == "prod":
            # a part that overflows times one that vanishes is another number in another order
            most = 1.1 if x.size <= 512 else 1.001
            return jnp.prod(jnp.clip(x.astype(jnp.float32), -most, most), axes)
        if f == "keep":
            return x.astype(jnp.float32) - x.astype(jnp.float32).mean(axes, keepdims=True)
        return getattr(jnp, f)(x.astype(jnp.float32), axes)

    def transpose(self, x):
        return jnp.transpose(x, [int(a) for a in self.r.permutation(x.ndim)])

    def reshape(self, x):
        n, dims = x.size, []
        while n > 1 and len(dims) < 4:
            k = int(self.pick(*[d for d in (2, 3, 4, 6, 8, 12, 16, n) if n % d == 0] or [n]))
            dims.append(k)
            n //= k
        if n > 1:
            dims.append(n)
        self.r.shuffle(dims)
        return x.reshape(dims)

    def concatenate(self, x, y):
        if not x.ndim:
            return None
        d = int(self.r.integers(x.ndim))
        parts = [x, jnp.flip(x, d)] if x.ndim != y.ndim or any(a != b for i,
            (a, b) in enumerate(zip(x.shape, y.shape)) if i != d) or x.dtype != y.dtype else [x, y, x]
        return jnp.concatenate(parts, d) if sum(p.shape[d] for p in parts) <= 48 else None

    def slice(self, x):
        ix = []
        for n in x.shape:
            a, b = sorted(int(v) for v in self.r.integers(0, n + 1, 2))
            ix.append(self.pick(slice(None), slice(None), slice(a, max(b, a + 1)), slice(None, None, 2),
                                slice(None, None, -1)))
        return x[tuple(ix)]

    def pad(self, x):
        cfg = [(int(self.r.integers(-1 if n > 2 else 0, 3)), int(self.r.integers(0, 3)), int(self.pick(0, 0, 1)))
               if self.r.random() < 0.5 else (0, 0, 0) for n in x.shape]
        return lax.pad(x, jnp.zeros((), x.dtype), cfg) if x.size < 4096 else None

    def gather(self, x):
        if not x.ndim:
            return None
        d = int(self.r.integers(x.ndim))
        i = jnp.asarray(self.r.integers(-1 if self.r.random() < .3 else 0, x.shape[d] + (self.r.random() < .2),
                                        self.shape(1, 2)), jnp.int32)
        f = self.pick("take", "along", "fill", "pairs")
        if f == "take":
            return jnp.take(x, i, d, mode="clip") if x.size // x.shape[d] * i.size < 8192 else None
        if f == "fill":
            return jnp.take(x.astype(jnp.float32), i, d, mode="fill",
                            fill_value=7) if x.size // x.shape[d] * i.size < 8192 else None
        if f == "pairs" and x.ndim > 1:
            n = 8
            return x[jnp.asarray(self.r.integers(0, x.shape[0], n)), jnp.asarray(self.r.integers(0, x.shape[1], n))]
        k = jnp.asarray(self.r.integers(0, x.shape[d], tuple(3 if a == d else n for a, n in enumerate(x.shape))),
                        jnp.int32)
        return jnp.take_along_axis(x, k, d)

    def scatter(self, x):
        if not x.ndim:
            return None
        x = x.astype(jnp.float32)
        n = int(self.pick(1, 4, 8))
        i = jnp.asarray(self.r.integers(-2, x.shape[0] + 2, n), jnp.int32)
        u = jnp.asarray(self.r.normal(size=(n,) + x.shape[1:]), jnp.float32)
        f = self.pick("add", "set", "max", "mul", "pairs")
        if f == "pairs" and x.ndim > 1:
            return x.at[i, jnp.asarray(self.r.integers(0, x.shape[1], n))].add(jnp.float32(1.5), mode="drop")
        if f == "set":                                     # which of two equal indices wins is nobody's promise
            return x.at[jnp.asarray(self.r.permutation(x.shape[0])[:n], jnp.int32)].set(u[:min(n, x.shape[0])])
        return getattr(x.at[i], f if f != "pairs" else "add")(u, mode="drop")

    def grad_gather(self, x):
        if x.ndim < 2:
            return None
        i = jnp.asarray(self.r.integers(0, x.shape[0], self.shape(1, 2)), jnp.int32)
        return jax.grad(lambda v: (v[i] ** 2).sum())(x.astype(jnp.float32)) if i.size < 64 else None

    def iota(self, x):
        if not x.ndim:
            return None
        return x + lax.broadcasted_iota(x.dtype if x.dtype != jnp.bool_ else jnp.int32, x.shape,
                                        int(self.r.integers(x.ndim)))

    def rng(self, x):
        shape = x.shape
        return x.astype(jnp.float32) + self.pick(jax.random.normal,
                                                 jax.random.uniform)(jax.random.key(int(self.r.integers(99))), shape)

    def loop(self, x):
        x = x.astype(jnp.float32)
        y = jnp.ones_like(x)
        return self.pick(lambda: lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c * 0.5 + x + i), y),
                         lambda: lax.scan(lambda c, v: (c + v, c * v), y[0], x)[1] if x.ndim > 1 else None,
                         lambda: lax.while_loop(lambda c: (c[0] < 4) & (c[1].sum() < 1e6),
                                                lambda c: (c[0] + 1, c[1] + jnp.flip(x, 0) if x.ndim else c[1] + x), (0,
                                                    y))[1])()

    def cond(self, x, y):
        x = x.astype(jnp.float32)
        return lax.cond(y.astype(jnp.float32).sum() > 0, lambda v: jnp.sin(v), lambda v: v.sum() + v, x)

    def sort(self, x):
        if not x.ndim:
            return None
        d = int(self.r.integers(x.ndim))
        return self.pick(lambda: jnp.sort(x, d), lambda: jnp.argsort(x, d),
                         lambda: lax.top_k(x.astype(jnp.float32), min(2, x.shape[-1]))[0],
                         lambda: lax.sort((x.astype(jnp.float32), jnp.flip(x, d).astype(jnp.float32)), dimension=d,
                                          num_keys=1)[1])()

    def cumulative(self, x):
        if not x.ndim:
            return None
        d = int(self.r.integers(x.ndim))
        return self.pick(jnp.cumsum, lambda v, a: lax.cummax(v, a), lambda v,
                         a: lax.cumsum(v, a, reverse=True))(x.astype(jnp.float32), d)

    def convolution(self, x):
        if x.ndim != 3:
            return None
        k = jnp.asarray(self.r.normal(size=(3, x.shape[2], 8)), jnp.float32) / 4
        return lax.conv_general_dilated(x.astype(jnp.float32), k, (int(self.pick(1, 2)),), self.pick("SAME", "VALID") if x.shape[1] > 2 else "SAME", dimension_numbers=("NHC", "HIO", "NHC"))

    def window(self, x):
        if not x.ndim or x.shape[-1] < 2:
            return None
        return lax.reduce_window(x.astype(jnp.float32), -jnp.inf, lax.max, (1,) * (x.ndim - 1) + (2,),
                                 (1,) * (x.ndim - 1) + (int(self.pick(1, 2)),), "VALID")

    def dynamic(self, x, y):
        if not x.ndim:
            return None
        i = jnp.clip(jnp.abs(y.astype(jnp.float32)).sum().astype(jnp.int32) % 7, 0, 5)
        sizes = [n if self.r.random() < 0.6 else max(1, n // 2) for n in x.shape]
        part = lax.dynamic_slice(x, [i] * x.ndim, sizes)
        return part if self.r.random() < 0.5 else lax.dynamic_update_slice(x,
            part + part if x.dtype != jnp.bool_ else part, [i - 1] * x.ndim)

    def broadcast(self, x):
        n = int(self.pick(2, 3, 8))
        return jnp.broadcast_to(x[None], (n,) + x.shape) if x.ndim < 3 and x.size < 2048 else None

    def select(self, x, y):
        if x.shape == y.shape and x.dtype == y.dtype:
            return jnp.where(x > y, x, y)

    def algebra(self, x):
        if x.ndim < 2 or x.shape[-1] > 8 or x.shape[-2] > 16:
            return None
        m = x.astype(jnp.float32)
        a = jnp.swapaxes(m, -1, -2) @ m + 5 * jnp.eye(x.shape[-1])
        return self.pick(jnp.linalg.cholesky, lambda a: jnp.fft.fft(a).real)(a)

    def program(self):
        """(function of mesh or None and arguments, arguments, their specs, specs of the results or None)"""
        args = [self.array() for _ in range(self.r.integers(1, 4))]
        if self.r.random() < 0.5:                        # two that fit each other
            args.append(self.array(args[0].shape))
        specs = [self.spec(a.shape, True) for a in args]
        ops = [o for o in (self.elementwise, self.binary, self.dot, self.reduce, self.transpose, self.reshape,
                           self.concatenate, self.slice, self.pad, self.gather, self.scatter,
                           self.grad_gather, self.iota, self.rng, self.loop, self.cond, self.sort, self.cumulative, self.convolution, self.window, self.dynamic, self.broadcast,
                           self.select, self.algebra)]
        seed, count = int(self.r.integers(1 << 30)), int(self.r.integers(2, 9))

        def f(mesh, *args):
            self.r = np.random.default_rng(seed)         # the same choices each time it is traced
            self.says = ["arguments %s on %s" % ([(a.shape, str(a.dtype), s) for a, s in zip(args, specs)], self.axes)]
            vals = list(args)
            tries = 0
            while len(vals) < len(args) + count and tries < 60:
                tries += 1
                op = self.pick(*ops)
                n = op.__code__.co_argcount - 1
                ids = [max(int(self.r.integers(len(vals))), int(self.r.integers(len(vals)))) for _ in range(n)]
                v = op(*[vals[i] for i in ids])
                if v is None or v.size == 0 or v.size > 20000:
                    continue
                cut = self.r.random() < 0.4
                s = self.spec(v.shape, False)
                self.says.append("%d = %s%s: %s%s" % (len(vals), op.__name__, ids, v.aval, " as %s" % s if cut else ""))
                if cut and mesh is not None:
                    v = lax.with_sharding_constraint(v, NamedSharding(mesh, s))
                vals.append(v)
            keep = sorted(set(int(k) for k in self.r.integers(len(args), len(vals),
                3))) if len(vals) > len(args) else [0]
            self.says.append("returns %s" % keep)
            return [vals[k] for k in keep]
        return f, args, specs, self.r.random() < 0.5, seed


def agree(a, b):
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return "%s%s against %s%s" % (a.dtype, a.shape, b.dtype, b.shape)
    x, y = a.astype(np.float64), b.astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(y[np.isfinite(y)]), initial=0)))
    bad = ~((np.abs(x - y) <= 2e-3 * scale) | (x == y) | (np.isnan(x) & np.isnan(y)))
    if bad.any():
        at = tuple(int(i[0]) for i in np.nonzero(bad)) if a.ndim else ()
        return "%d of %d elements differ, the first at %s: %s against %s" % (bad.sum(), a.size, at, a[at], b[at])
    return None


def run(seed):
    c = Case(seed)
    f, args, specs, closed, _ = c.program()
    one = jax.devices("xlane")[0]
    want = jax.jit(lambda *a: f(None, *a))(*[jax.device_put(a, one) for a in args])
    outs = None
    if closed:
        c.r = np.random.default_rng(seed + 1)
        outs = [NamedSharding(c.mesh, c.spec(w.shape, True)) for w in want]
    put = [jax.device_put(a, NamedSharding(c.mesh, s)) for a, s in zip(args, specs)]
    jax.config.update("jax_use_shardy_partitioner", seed % 3 != 0)
    try:
        have = jax.jit(lambda *a: f(c.mesh, *a), out_shardings=outs)(*put)
        for i, (x, y) in enumerate(zip(have, want)):
            why = agree(x, y)
            for s in x.addressable_shards if not why else []:
                if np.asarray(s.data).tobytes() != np.asarray(np.asarray(x)[s.index]).tobytes():
                    why = "copies of one part differ between devices"
            if why:
                return "result %d: %s\n    %s" % (i, why, "\n    ".join(c.says
                    + ["results as %s" % (outs and [o.spec for o in outs])]))
    except Exception as e:
        return "%s: %s\n    %s" % (type(e).__name__, str(e)[:700], "\n    ".join(c.says))
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    return None


usual = 120 if os.environ.get("XLANE_TEST_ALL") == "1" else 60
count, first = int(sys.argv[1]) if len(sys.argv) > 1 else usual, int(sys.argv[2]) if len(sys.argv) > 2 else 0
bad = 0
for seed in range(first, first + count):
    try:
        why = run(seed)
    except Exception as e:
        why = "the case itself: %s: %s" % (type(e).__name__, str(e)[:500])
    if why:
        print("FAIL random program %d: %s" % (seed, why), flush=True)
        bad += 1
print("%s %d random programs on meshes of eight devices give what one device gives"
      % ("ok" if not bad else "FAIL %d of" % bad, count))
sys.exit(1 if bad else 0)
