"""Each operation of jax.lax with random attributes on the embedded device beside JAX's CPU: windows, convolutions,
gathers, scatters, sorts, cumulative operations, products, transforms, integers and special values, of every type.
A planner's oracle runs the same kernels, so only this finds what a kernel does wrong in both.
Most values are small whole numbers: sums of them are exact in any order, so a wrong element cannot hide in a tolerance.
Where an operation rounds, our error may be some of XLA's, both against f64, relative to the sum of |terms|; NaN and
infinity must be where JAX's CPU has them or where f64 has them. A failing operation is printed with its arguments.
usage: python test/jax_random_ops.py [SEED [COUNT [FIRST [SECONDS]]]]; only=NAME,... runs those operations alone."""

import collections, random, re, sys
import jax_random as R
import numpy as np
import jax, jax.numpy as jnp
from jax import lax

F8 = dict(f8="e4m3fn", f8b="e5m2", f8n="e4m3fnuz", f8m="e5m2fnuz", f8c="e4m3b11fnuz", f8d="e3m4", f8g="e4m3")
TYPES = R.TYPES
TYPES.update({k: getattr(jnp, "float8_" + n) for k, n in F8.items()}, i2=jnp.int2, u2=jnp.uint2)
R.NAME.update({jnp.dtype(t): k for k, t in TYPES.items()})
FLOATS = "f32 f32 f32 bf16 bf16 f16 f64".split()
SMALL = list(F8)
INTS = "i8 i16 i32 i64 u8 u16 u32 u64".split()
OPERATIONS = 8  # of a program
NARROW = ["i4", "u4"]  # JAX's CPU sorts numbers of two bits wrongly, and ends the process on some concatenations
COMPLEX = ["c64", "c128"]
INDEX = "i32 i32 i32 i64 i8 u8 u32 i16 u64".split()
WIDE = dict(TYPES, c64=jnp.complex128, **{t: jnp.float64 for t in ["f32", "bf16", "f16", *F8]})
MAGNITUDE = dict(f8=2, f8b=1, f8n=2, f8m=1, f8c=2, f8d=2, f8g=2)
SIZES = [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 32, 33, 64]


def is_float(t):
    return t[0] == "f" or t == "bf16"


def is_int(t):
    return t[0] in "iu"


def ends(t):
    """The special values of a float or integer type."""
    d = jnp.dtype(TYPES[t])
    if is_int(t):
        i = jnp.iinfo(d)
        e = [int(i.min), int(i.min) + 1, int(i.max), int(i.max) - 1, 0, 1, 2, 3, 7, i.bits - 1, i.bits, i.bits + 1]
        e += [-1, -2, -7]
        return [x for x in e if i.min <= x <= i.max]
    f = jnp.finfo(d)
    tiny = float(f.tiny) * (4 if t == "f8m" else 1)  # JAX's CPU doubles the least numbers of f8_e5m2fnuz
    e = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, float(f.max), float(f.min), tiny]
    e += [-tiny, 1 + float(f.eps), 3.75, 1e3, -1e3, 2.0**31, -(2.0**31), 2.0**31 - 129, 2.0**32, 2.0**63]
    return e + [-(2.0**63), 300, -300, 127.5, 255.5, -0.75, 65504, 1e-3, 88.8, -104, 1e10, 0.1]


class Generator:
    """Operations that have nothing to do with one another, compiled together; a line each, or two where the result is
    used. spread: |terms| are those of the operation on absolute values."""

    def __init__(self, seed, index, only=()):
        self.r = random.Random("%d %d" % (seed, index))
        self.n = np.random.default_rng([seed, index])
        self.args = {}
        self.ops = [n for n in dir(self) if n.startswith("op_") and (not only or n[3:] in only)]

    def begin(self):
        r = self.r
        self.mode = r.choice("whole whole whole special ordinary".split())
        self.odd = r.sample([np.nan, np.inf, -np.inf, -0.0, np.inf], r.choice([1, 1, 2]))
        self.most = r.choice([200, 1000, 4000, 30000])
        self.spread, self.exact, self.dress = True, R.EXACT, r.random() < 0.4

    # -- values
    def values(self, t, shape, mode=None):
        d, mode, n = jnp.dtype(TYPES[t]), mode or self.mode, self.n
        with np.errstate(all="ignore"):
            if t == "b1":
                return n.integers(0, 2, shape).astype(bool)
            if t in COMPLEX:
                part = "f32" if t == "c64" else "f64"
                both = np.empty(shape, d)
                both.real, both.imag = self.values(part, shape, mode), self.values(part, shape, mode)
                # half a NaN: JAX's CPU has its own ideas of which functions lose it
                return np.where(np.isnan(both), d.type(complex(np.nan, np.nan)), both)
            if mode == "extreme" or mode == "special" and is_int(t):
                e = ends(t)
                e = np.array(e, np.uint64 if t == "u64" else np.int64 if is_int(t) else np.float64).astype(d)
                some = self.values(t, shape, "whole" if is_int(t) else "ordinary")
                return np.where(n.random(shape) < 0.3, some, e[n.integers(0, len(e), shape)]).astype(d)
            if is_int(t):
                i = jnp.iinfo(d)
                return n.integers(max(-5, int(i.min)), min(9, int(i.max)) + 1, shape).astype(d)
            m = MAGNITUDE.get(t, 3)
            x = n.standard_normal(shape) if mode == "ordinary" else n.integers(-m, m + 1, shape).astype(float)
            if mode == "special":
                x = np.where(n.random(shape) < min(0.3, 3 / max(1, np.prod(shape))), self.r.choice(self.odd), x)
                if len(self.odd) > 1:
                    x = np.where(n.random(shape) < 0.05, self.odd[1], x)
            return np.asarray(x).astype(d)

    def raw(self, t, shape, mode=None):
        n = "a%d" % len(self.args)
        self.args[n] = self.values(t, tuple(shape), mode)
        return n

    def arg(self, t, shape, mode=None):
        """An operand of type t and that shape: an argument, or a view or conversion of one."""
        r, shape = self.r, tuple(shape)
        if not self.dress or r.random() < 0.4 or not shape:
            return self.raw(t, shape, mode)
        how = r.randrange(5)
        k = r.randrange(len(shape))
        if how == 0:
            p = r.sample(range(len(shape)), len(shape))
            return "jnp.transpose(%s,%s)" % (self.raw(t, [shape[p.index(i)] for i in range(len(shape))], mode), p)
        if how == 1:
            lo, step = r.randint(0, 2), r.choice([1, 1, 2])
            n = self.raw(t, shape[:k] + (lo + shape[k] * step,) + shape[k + 1 :], mode)
            return "%s[%s%d:%d:%d]" % (n, ":," * k, lo, lo + shape[k] * step, step)
        if how == 2:
            return "jnp.flip(%s,%d)" % (self.raw(t, shape, mode), k)
        if how == 3:
            return "jnp.broadcast_to(%s,%s)" % (self.raw(t, shape[:k] + (1,) + shape[k + 1 :], mode), shape)
        return "%s.reshape(%s)" % (self.raw(t, (int(np.prod(shape)),), mode), shape)

    def shape(self, rank=None, least=0, most=None):
        rank = self.r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]) if rank is None else rank
        while True:
            s = [self.r.choice(SIZES) for _ in range(rank)]
            s = [0 if self.r.random() < 0.01 and not least else d for d in s]
            if np.prod(s, dtype=float) <= (most or self.most):
                return tuple(s)

    def type(self, *groups):
        return self.r.choice(self.r.choice(groups))

    def few(self, n, *c):
        return tuple(self.r.choice(c) for _ in range(n))

    def one(self, *words):
        return self.r.choice(words[0].split() if len(words) == 1 else words)

    def summed(self, t):
        if not is_int(t) and t != "b1":
            self.exact = R.SUMMED

    # -- operations: each returns the expression
    def op_reduce_window(self):
        r = self.r
        t = self.type(FLOATS, FLOATS, INTS, INTS, SMALL, COMPLEX, NARROW, ["b1"])
        s = self.shape(r.choice([1, 2, 3, 4, 4]), most=3000)
        n = len(s)
        size, stride = self.few(n, 1, 1, 2, 3, 4), self.few(n, 1, 1, 2, 3)
        pad = [(r.randint(-1, 3), r.randint(-1, 3)) if r.random() < 0.4 else (0, 0) for _ in s]
        base = self.few(n, 1, 1, 1, 2, 3) if r.random() < 0.4 else (1,) * n
        dil = self.few(n, 1, 1, 2) if r.random() < 0.4 else (1,) * n
        rest = "%s,%s,%s,%s,%s" % (size, stride, pad, base, dil)
        two = r.random() < 0.12 and t not in COMPLEX + ["b1"]
        if two:
            u = self.type(FLOATS, INTS)
            return ("lax.reduce_window((%s,%s),(%s,%s),lambda p,q:(jnp.where(p[0]>=q[0],p[0],q[0]),jnp.where("
                    "p[0]>=q[0],p[1],q[1])),%s)[%d]" % (self.arg(t, s), self.arg(u, s), self.start(t, "max"),
                                                        self.start(u, "add"), rest, r.randrange(2)))
        f = self.one("or and" if t == "b1" else "add mul" if t in COMPLEX else "add add max min mul custom")
        f = self.one("or and xor add max".split()[r.randrange(5)]) if is_int(t) and r.random() < 0.4 else f
        if f in ("add", "mul", "custom"):
            self.summed(t)
        body = dict(zip("or and xor".split(), "bitwise_or bitwise_and bitwise_xor".split())).get(f, f)
        body = "lambda p,q:(p+q)+0" if f == "custom" else "lax." + body
        free = t[:2] not in ("i2", "u2", "b1") and all(w == 1 or w != d for w, d in zip(size, s))
        return "lax.reduce_window(%s,%s,%s,%s)" % (self.arg(t, s), self.start(t, f, free), body, rest)

    def start(self, t, f, free=False):
        """The neutral element, or any number if `free`. Of `reduce` and of windows as long as their dimension JAX's CPU
        itself folds others in once or many times."""
        if free and f in ("add", "mul", "max", "min", "custom") and self.r.random() < 0.5:
            return "np.asarray(%d,%s)" % (self.r.choice([1, 2, 3]), t)
        if t == "b1":
            return "np.asarray(%s)" % (f == "and")
        if f == "and":
            return "np.asarray(-1).astype(%s)" % t
        if f in ("max", "min"):
            if is_int(t):
                i = jnp.iinfo(TYPES[t])
                return "np.asarray(%d,'%s').astype(%s)" % (i.min if f == "max" else i.max,
                                                           "uint64" if t[0] == "u" else "int64", t)
            d = jnp.finfo(TYPES[t])
            # JAX's CPU makes NaN of the last number of f8_e5m2fnuz
            least = "np.inf" if t in FLOATS else str(float(d.max) / 2)
            return "np.asarray(%s%s,%s)" % ("-" if f == "max" else "", least, t)
        return "np.asarray(%d,%s)" % (f == "mul", t)

    def op_select_and_scatter(self):
        r = self.r
        t = self.type(FLOATS, FLOATS, INTS, SMALL)
        s = self.shape(r.choice([1, 2, 3, 4, 4]), most=2000, least=1)
        size = [min(r.choice([1, 1, 2, 3]), d) for d in s]
        stride = self.few(len(s), 1, 1, 2, 3)
        pad = [(r.randint(0, z - 1), r.randint(0, z - 1)) if r.random() < 0.5 else (0, 0) for z in size]
        out = [max(0, (d + lo + hi - z) // st + 1) for d, z, st, (lo, hi) in zip(s, size, stride, pad)]
        f = self.one("add add max mul")
        if f != "max":
            self.summed(t)
        return "jax._src.lax.windowed_reductions._select_and_scatter(%s,lax.%s,%s,%s,%s,%s,%s,lax.%s)" % (
            self.arg(t, s), self.one("ge le gt lt"), tuple(size), stride, pad, self.arg(t, out),
            "jnp.asarray(%d,%s)" % (r.choice([0, 0, 1]), t), f)

    def op_pool_gradient(self):
        r = self.r
        self.mode = "whole"  # of a window with NaN and padding another element is chosen: JAX lowers it otherwise for a CPU
        t = self.type(FLOATS)
        s = self.shape(r.choice([1, 2, 3, 4]), most=2000, least=1)
        few = lambda *c: self.few(len(s), *c)
        pad = r.choice(["'SAME'", "'VALID'", str([(r.randint(0, 1), r.randint(0, 1)) for _ in s])])
        self.summed(t)
        form = "jax.grad(lambda x:(lambda y:jnp.sum(y*jnp.arange(1,y.size+1).reshape(y.shape)%%3).astype(f32))(window(x,"
        form = form.replace("%%", "%")
        return form + "%r,%s,%s,%s,None,None)))(%s)" % (self.one("max min add"), few(1, 2, 3), few(1, 2, 3), pad,
                                                       self.arg(t, s))

    def op_conv(self):
        r = self.r
        t = self.type(FLOATS, FLOATS, INTS, SMALL, COMPLEX)
        n = r.choice([0, 1, 1, 2, 2, 3])
        groups = r.choice([1, 1, 2, 3, 4, 8]) if r.random() < 0.5 else 1
        batches = r.choice([2, 3]) if groups == 1 and r.random() < 0.2 else 1
        per = r.choice([1, 1, 1, 2, 3, 4, 5, 8, 16, 33])
        batch = r.choice([1, 2, 3, 4]) * batches
        out = r.choice([1, 1, 2, 3, 4, 8, 17]) * groups * batches
        size = [r.choice([1, 2, 3, 4, 5, 7, 9]) for _ in range(n)]
        space = [0 if r.random() < 0.02 else r.choice([1, 2, 3, 4, 5, 8, 13, 16]) for _ in range(n)]
        image, kernel = [batch, per * groups] + space, [out, per] + size
        if np.prod(image, dtype=float) * np.prod(kernel, dtype=float) > 4e6:
            image, kernel = [batch, per * groups] + [4] * n, [out, per] + [2] * n
        spec = [r.sample(range(n + 2), n + 2) for _ in range(3)]
        if r.random() < 0.5:
            spec = [(0, n + 1, *range(1, n + 1)), (n + 1, n, *range(n)), (0, n + 1, *range(1, n + 1))]
        at = lambda size, places: [size[places.index(i)] for i in range(n + 2)]
        pad = [(r.randint(-1, 4), r.randint(-1, 4)) if r.random() < 0.6 else (0, 0) for _ in size]
        dil = lambda: self.few(n, 1, 1, 2, 3) if r.random() < 0.4 else (1,) * n
        wide = r.choice([None, None, "i32" if is_int(t) else "f32" if is_float(t) and t != "f64" else None])
        stride, ld, rd = self.few(n, 1, 1, 2, 3), dil(), dil()
        self.summed(t)
        # zeros of padding, and of other groups in JAX's CPU, times infinity would be NaN
        weights, self.mode = "whole", self.mode if groups * batches == 1 else "whole"
        return ("lax.conv_general_dilated(%s,%s,%s,%s,%s,%s,lax.ConvDimensionNumbers(%s,%s,%s),%d,%d,"
                "preferred_element_type=%s)" % (self.arg(t, at(image, list(spec[0]))),
                                                self.arg(t, at(kernel, list(spec[1])), weights), stride, pad, ld, rd,
                                                *map(tuple, spec), groups, batches, wide))

    def indices(self, t, shape, sizes):
        """Indices of type t; the last dimension has one for each of sizes. A few are out of bounds."""
        d = jnp.dtype(TYPES[t])
        i = jnp.iinfo(d)
        x = np.stack([self.n.integers(-2, s + 3, shape) for s in sizes], -1) if sizes else np.zeros((*shape, 0), int)
        if self.r.random() < 0.15:
            far = np.array([i.max, i.min, i.max - 1], object)[self.n.integers(0, 3, x.shape)]
            x = np.where(self.n.random(x.shape) < 0.2, far, x.astype(object))
        n = "a%d" % len(self.args)
        x = np.asarray(x).astype(object)
        wrap = np.vectorize(lambda v: min(max(int(v), int(i.min)), int(i.max)), otypes=[object])
        self.args[n] = np.array((wrap(x) if x.size else x).tolist(), d).reshape(x.shape)
        return n

    def split(self):
        """Of a gather or scatter: operand's shape, its batching, collapsed, and window dimensions and the map."""
        r = self.r
        s = self.shape(r.choice([1, 2, 2, 3, 4]), least=1, most=1500)
        dims = r.sample(range(len(s)), len(s))
        nb = r.choice([0, 0, 0, 1]) if len(s) > 1 else 0
        batch, rest = sorted(dims[:nb]), dims[nb:]
        named = rest[: r.randint(0 if r.random() < 0.1 else 1, len(rest))]
        gone = sorted(d for d in rest if r.random() < (0.6 if d in named else 0.1))
        sizes = [1 if d in batch or d in gone else r.randint(1, s[d]) if r.random() < 0.5 else s[d] for d
                 in range(len(s))]
        free = [r.choice([1, 2, 3, 5, 8]) for _ in range(r.choice([0, 1, 1, 2]))]
        lead = free[:]  # the index array's dimensions, without the last
        where = sorted(r.sample(range(len(free) + nb), nb))
        for k, d in zip(where, batch):
            lead.insert(k, s[d])
        window = [sizes[d] for d in range(len(s)) if d not in batch and d not in gone]
        total = len(lead) + len(window)
        offset = sorted(r.sample(range(total), len(window)))
        shape, w, l = [], iter(window), iter(lead)
        for k in range(total):
            shape.append(next(w) if k in offset else next(l))
        if any(sizes[d] != 1 for d in gone) or np.prod(shape, dtype=float) > 20000:
            raise IndexError
        room = [s[d] - sizes[d] for d in named]
        return s, sizes, batch, where, gone, named, lead, room, offset, shape

    def op_gather(self):
        r = self.r
        t = self.type(FLOATS, INTS, SMALL, COMPLEX, ["b1"], NARROW)
        s, sizes, batch, where, gone, named, lead, room, offset, _ = self.split()
        x = self.arg(t, s)
        i = self.indices(self.one(*INDEX), lead, room)
        mode = self.one("clip fill fill promise_in_bounds")
        if mode[0] == "p":
            i = "jnp.clip(%s,0,np.array(%s)).astype(%s.dtype)" % (i, room, i) if room else i
        fill = ",fill_value=%s" % r.choice(["None", "1"]) if mode == "fill" else ""
        return "lax.gather(%s,%s,lax.GatherDimensionNumbers(%s,%s,%s,%s,%s),%s,mode=%r%s)" % (
            x, i, tuple(offset), tuple(gone), tuple(named), tuple(batch), tuple(where), tuple(sizes), mode, fill)

    def op_scatter(self):
        r = self.r
        t = self.type(FLOATS, INTS, SMALL, COMPLEX, ["b1"], NARROW)
        s, sizes, batch, where, gone, named, lead, room, offset, shape = self.split()
        f = self.one("scatter" if t == "b1" else "scatter scatter_add scatter_sub scatter_mul" if t in COMPLEX else
                     "scatter scatter_add scatter_add scatter_sub scatter_mul scatter_min scatter_max apply")
        x = self.arg(t, s)
        i = self.indices(self.one(*INDEX), lead, room)
        mode = self.one("clip fill fill promise_in_bounds")
        if mode[0] == "p":
            i = "jnp.clip(%s,0,np.array(%s)).astype(%s.dtype)" % (i, room, i) if room else i
        dims = "lax.ScatterDimensionNumbers(%s,%s,%s,%s,%s),mode=%r" % (
            tuple(offset), tuple(gone), tuple(named), tuple(batch), tuple(where), mode)
        if f in ("scatter_add", "scatter_mul", "scatter_sub", "apply"):
            self.summed(t)
        if f == "apply":
            return "lax.scatter_apply(%s,%s,lambda x:x+x,%s,update_shape=%s)" % (x, i, dims, tuple(shape))
        return "lax.%s(%s,%s,%s,%s)" % (f, x, i, self.arg(t, shape), dims)

    def op_sort(self):
        r = self.r
        s = self.shape(r.choice([1, 1, 2, 3]), most=r.choice([300, 3000]))
        ts = [self.type(FLOATS, INTS, SMALL, ["b1"], COMPLEX, NARROW) for _ in range(r.choice([1, 2, 3]))]
        keys = r.randint(1, len(ts))
        stable = r.random() < 0.7
        # JAX's CPU does not know the NaN of types without -0
        a = [self.raw(t, s, "whole" if t in ("f8n", "f8m", "f8c") else self.one("whole extreme")) for t in ts]
        at = r.randrange(len(ts) if stable else keys)
        return "lax.sort((%s,),dimension=%d,is_stable=%s,num_keys=%d)[%d]" % (",".join(a), r.randrange(len(s)), stable,
                                                                            keys, at)

    def op_top_k(self):
        t = self.type(FLOATS, INTS, SMALL)
        s = self.shape(self.r.choice([1, 2, 3]), least=1)
        return "lax.top_k(%s,%d)[%d]" % (self.arg(t, s, self.one("whole extreme")), self.r.randint(0, s[-1]),
                                         self.r.randrange(2))

    def op_cumulative(self):
        t = self.type(FLOATS, INTS, COMPLEX)
        s = self.shape(self.r.choice([1, 2, 3]))
        f = self.one("cumsum cumprod" if t in COMPLEX else "cumsum cumsum cumprod cummax cummin cumlogsumexp")
        f = "cumsum" if f == "cumlogsumexp" and is_int(t) else f
        if f not in ("cummax", "cummin"):
            self.summed(t)
        return "lax.%s(%s,axis=%d,reverse=%s)" % (f, self.arg(t, s), self.r.randrange(len(s)), self.r.random() < 0.4)

    def op_argmax(self):
        t = self.type(FLOATS, INTS, SMALL, ["b1"])
        s = self.shape(self.r.choice([1, 2, 3]), least=1)
        mode = self.one("whole special extreme")
        return "lax.%s(%s,%d,%s)" % (self.one("argmax argmin"), self.arg(t, s, mode), self.r.randrange(len(s)),
                                     self.one("i32 i64 u32 i16"))

    def op_dynamic(self):
        t = self.type(FLOATS, INTS, SMALL, COMPLEX, ["b1"], NARROW)
        s = self.shape(self.r.choice([1, 2, 3, 4]), least=1)
        size = tuple(self.r.randint(0 if self.r.random() < 0.05 else 1, d) for d in s)
        i = self.one(*INDEX)
        at = [self.indices(i, (), [d]) + "[0]" for d in s]
        x = self.arg(t, s)
        if self.r.random() < 0.5:
            return "lax.dynamic_slice(%s,(%s,),%s)" % (x, ",".join(at), size)
        return "lax.dynamic_update_slice(%s,%s,(%s,))" % (x, self.arg(t, size), ",".join(at))

    def op_pad(self):
        t = self.type(FLOATS, INTS, SMALL, COMPLEX, ["b1"], NARROW)
        s = self.shape(self.r.choice([1, 2, 3, 4]))
        cfg = [(self.r.randint(-2, 3), self.r.randint(-2, 3), self.r.choice([0, 0, 1, 2, 3])) for _ in s]
        return "lax.pad(%s,%s,%s)" % (self.arg(t, s), self.raw(t, ()), cfg)

    def op_move(self):
        r = self.r
        t = self.type(FLOATS, INTS, SMALL, COMPLEX, ["b1"], NARROW)
        s = self.shape(r.choice([1, 2, 3, 4, 5]))
        x, n = self.arg(t, s), len(s)
        a = r.randrange(n)
        f = r.randrange(6)
        if f == 0:
            return "lax.transpose(%s,%s)" % (x, tuple(r.sample(range(n), n)))
        if f == 1:
            return "lax.rev(%s,%s)" % (x, tuple(r.sample(range(n), r.randint(1, n))))
        if f == 2:
            lo = [r.randint(0, d) for d in s]
            hi = [r.randint(l, d) for l, d in zip(lo, s)]
            return "lax.slice(%s,%s,%s,%s)" % (x, tuple(lo), tuple(hi), self.few(n, 1, 1, 2, 3))
        if f == 3:
            other = [self.arg(t, s[:a] + (r.choice([0, 1, 2, 5]),) + s[a + 1 :]) for _ in range(r.choice([1, 2, 5]))]
            return "lax.concatenate([%s,%s],%d)" % (x, ",".join(other), a)
        if f == 4:
            out = list(s)
            for _ in range(r.randint(1, 2)):
                out.insert(r.randint(0, len(out)), r.choice([1, 2, 3, 8]))
            at, k = [], 0
            for j, d in enumerate(out):
                if k < n and d == s[k]:
                    at.append(j)
                    k += 1
            return "lax.broadcast_in_dim(%s,%s,%s)" % (x, tuple(out), tuple(at))
        return "lax.reshape(%s,%s,%s)" % (x, (int(np.prod(s)),), tuple(r.sample(range(n), n)))

    def op_dot(self):
        r = self.r
        t = self.type(FLOATS, FLOATS, INTS, SMALL, COMPLEX, NARROW, ["b1"])
        u = t if r.random() < 0.85 else self.type(FLOATS, INTS, SMALL)
        both = [self.few(r.choice([0, 0, 1, 2]), 1, 2, 3, 5), self.few(r.choice([0, 1, 1, 1, 2]), 1, 2, 3, 7, 16, 33,
            64)]
        own = [self.few(r.choice([0, 1, 1, 2]), 1, 1, 2, 3, 5, 8, 17, 32, 50) for _ in range(2)]
        dims, rule = [], [[], []]
        for side in range(2):
            d = [("b", k, v) for k, v in enumerate(both[0])] + [("k", k, v) for k, v in enumerate(both[1])]
            d += [("f", k, v) for k, v in enumerate(own[side])]
            r.shuffle(d)
            at = lambda w: tuple(d.index((w, k, v)) for k, v in enumerate(both[w == "k"]))
            dims.append([0 if r.random() < 0.0 else v for _, _, v in d])
            rule[0].append(at("k"))
            rule[1].append(at("b"))
        if np.prod(dims[0], dtype=float) > 30000 or np.prod(dims[1], dtype=float) > 30000:
            raise IndexError
        wide = r.choice([None, None, "f32", "f64", "bf16"] if not is_int(t) and t not in COMPLEX else
                        [None, "c128"] if t in COMPLEX else [None, "i32", "i64", "i32", "f32"])
        if not (is_int(t) and is_int(u) and wide != "f32"):
            self.exact = R.SUMMED
        return "lax.dot_general(%s,%s,(%s,%s),preferred_element_type=%s)" % (
            self.arg(t, dims[0]), self.arg(u, dims[1]), tuple(rule[0]), tuple(rule[1]), wide)

    def op_einsum(self):
        t = self.type(FLOATS, INTS, COMPLEX)
        form = self.one("ij,jk->ik bij,bjk->bik ij,ij-> ij,ij->i ii->i ii-> ij->ji ij,kj->ik ij,kl->ijkl bhqd,bhkd->bhqk "
                        "bqhd,bkhd->bhqk ab,bc,cd->ad i,j->ij bi,bj->bij ijk,k->ij ...i,...i->... abc,cb->a")
        size = {c: self.r.choice([1, 2, 3, 4, 8, 9]) for c in "abcdefghijklmnopq"}
        ops = form.split("->")[0].split(",")
        shapes = [[size[c] for c in w.replace("...", "ab") if c != "."] for w in ops]
        self.summed(t)
        return "jnp.einsum(%r,%s)" % (form, ",".join(self.arg(t, s) for s in shapes))

    def op_fft(self):
        k = self.r.choice(["FFT", "IFFT", "RFFT", "IRFFT"])
        s = self.shape(self.r.choice([1, 2, 3, 4]), least=1, most=2000)
        n = self.r.randint(1, min(3, len(s)))
        lens = tuple(s[-n:])
        t = self.one("f32 f64") if k == "RFFT" else self.one("c64 c64 c128")
        if k == "IRFFT":
            lens = lens[:-1] + (self.r.choice([max(1, 2 * s[-1] - 2), 2 * s[-1] - 1]),)
        self.exact = R.SUMMED
        self.spread, self.mode = False, self.one("whole ordinary")  # factors decide what infinity makes NaN
        return "lax.fft(%s,lax.FftType.%s,%s)" % (self.arg(t, s), k, lens)

    def op_integer(self):
        t = self.type(INTS, INTS, NARROW)
        s = self.shape()
        a, b = self.arg(t, s, "special"), self.arg(t, s, "special")
        # JAX's CPU has the high half of a product of bytes
        mulhi = "lax.mul(%s,%s)" if t in NARROW else "lax.mulhi(%s,%s)"
        return self.one("lax.div(%s,%s)", "lax.rem(%s,%s)", "lax.shift_left(%s,%s)", "lax.shift_right_logical(%s,%s)",
                        "lax.shift_right_arithmetic(%s,%s)", "lax.mul(%s,%s)", "lax.add(%s,%s)", "lax.sub(%s,%s)",
                        "lax.max(%s,%s)", "lax.min(%s,%s)", "lax.bitwise_xor(%s,%s)", "%s>%s", "%s<=%s", "%s//%s",
                        "%s%%%s", "lax.clamp(%s,%s,{0})", mulhi, "lax.eq(%s,%s)", "jnp.power(%s,abs(%s)%%5)").replace("{0}", "a0.reshape(%s)" % (s,) if "(" not in a else
                                                  "jnp.zeros(%s,%s)" % (s, t)) % (a, b)

    def op_integer_unary(self):
        t = self.type(INTS)  # JAX's CPU counts the bits of narrower ones in the byte that holds them
        f = self.one("lax.clz lax.population_count lax.bitwise_not lax.neg lax.abs lax.sign jnp.square")
        if f[4:] in ("neg", "abs", "sign") and t[0] == "u":
            f = "lax.clz"
        return "%s(%s)" % (f, self.arg(t, self.shape(), "special"))

    def op_convert(self):
        every = FLOATS + INTS + SMALL + NARROW + ["b1"] + COMPLEX
        t, to = self.one(*every), self.one(*every)
        x = self.arg(t, self.shape(), self.one("whole", "extreme", "extreme"))
        if to in ("f8n", "f8m", "f8c"):  # JAX's CPU makes NaN of what rounds to -0, which these types have not
            return "lax.convert_element_type(%s,%s)" % (self.arg("i8", self.shape(), "special"), to)
        return "lax.convert_element_type(%s,%s)" % (x if t not in COMPLEX or to in COMPLEX else "lax.real(%s)" % x, to)

    def op_bitcast(self):
        every = "f32 bf16 f16 f64 i8 i16 i32 i64 u8 u16 u32 u64 f8 f8b".split()
        t, to = self.one(*every), self.one(*every)
        s = self.shape(self.r.choice([1, 2, 3]), least=1)
        a, b = (jnp.dtype(TYPES[k]).itemsize for k in (t, to))
        s = s + (b // a,) if b > a else s
        return "lax.bitcast_convert_type(%s,%s)" % (self.arg(t, s, "whole"), to)

    def op_unary(self):
        t = self.type(FLOATS, FLOATS, SMALL, COMPLEX)
        f = """abs cbrt ceil cos exp expm1 floor is_finite log1p logistic neg round rsqrt sign sin sqrt tanh tan erf erfc
        log erf_inv digamma lgamma acos asin asinh atan cosh sinh acosh atanh exp2 square reciprocal bessel_i0e bessel_i1e
        """
        if t in COMPLEX:
            f = """abs neg exp log sqrt rsqrt sin cos tan tanh sinh cosh expm1 log1p sign square real imag conj asin acos
            atan asinh acosh atanh logistic"""
        f = self.one(f)
        if t in SMALL and f in ("erf", "erfc"):  # JAX cannot pass them on to a plugin
            t = "bf16"
        if f not in "abs ceil floor is_finite neg round sign real imag conj".split() or t in COMPLEX:
            self.exact = R.ROUNDED
        self.spread = False
        if f == "digamma":  # of 0 it is -inf here and in newer versions of JAX, NaN in older ones
            return "lax.digamma(jnp.abs(%s)+.1)" % self.arg(t, self.shape(), "ordinary")
        mode = self.one("extreme ordinary") if t not in COMPLEX else self.one("special ordinary extreme")
        return "lax.%s(%s)" % (f, self.arg(t, self.shape(), mode))

    def op_binary(self):
        t = self.type(FLOATS, FLOATS, SMALL, COMPLEX)
        f = "add sub mul div pow eq ne" if t in COMPLEX else """add sub mul div max min rem pow atan2 nextafter eq ne lt le
        gt ge eq_to"""
        f = self.one(f)
        f = "lt" if f == "eq_to" else f
        if f in ("pow", "atan2", "rem") or t in COMPLEX:
            self.exact = R.ROUNDED
        self.spread = False
        s, mode = self.shape(), self.one("extreme special" if t in COMPLEX else "extreme")
        return "lax.%s(%s,%s)" % (f, self.arg(t, s, mode), self.arg(t, s, mode))

    def op_special_function(self):
        t = self.one(*FLOATS)
        s = self.shape()
        x = lambda: "jnp.abs(%s)+.1" % self.arg(t, s, "ordinary")
        self.exact, self.spread = R.ROUNDED, False
        return self.one("lax.igamma({x},{x})", "lax.igammac({x},{x})", "lax.betainc({x},{x},jnp.clip({x},0,1))",
                        "lax.polygamma(jnp.round({x}),{x})", "lax.zeta({x}+1,{x})", "lax.random_gamma_grad({x},{x})",
                        "lax.integer_pow({x},%d)" % self.r.randint(-5, 7), "lax.igamma_grad_a({x},{x})",
                        ).replace("{x}", x(), 1).replace("{x}", x(), 1).replace("{x}", x(), 1)

    def op_select(self):
        t = self.type(FLOATS, INTS, SMALL, COMPLEX, ["b1"], NARROW)
        s = self.shape()
        mode = "extreme" if t not in COMPLEX + ["b1"] else "special"
        f = self.r.randrange(4)
        if f == 0 and t not in COMPLEX + ["b1"]:
            k = [s if self.r.random() < 0.5 else () for _ in range(2)]
            return "lax.clamp(%s,%s,%s)" % (self.arg(t, k[0], mode), self.arg(t, s, mode), self.arg(t, k[1], mode))
        if f == 1:
            return "lax.select(%s,%s,%s)" % (self.raw("b1", ()), self.arg(t, s, mode), self.arg(t, s, mode))
        if f == 2:
            m = self.r.choice([2, 3, 4])
            return "lax.select_n(jnp.clip(%s,0,%d),%s)" % (self.arg("i32", s, "whole"), m - 1,
                                                           ",".join(self.arg(t, s, mode) for _ in range(m)))
        return "lax.select(%s,%s,%s)" % (self.arg("b1", s), self.arg(t, s, mode), self.arg(t, s, mode))

    def op_reduce_precision(self):
        t = self.one(*FLOATS)
        return "lax.reduce_precision(%s,%d,%d)" % (self.arg(t, self.shape(), "extreme"), self.r.randint(1, 11),
                                                   self.r.randint(0, 23))

    def op_reduce(self):
        r = self.r
        t = self.type(FLOATS, FLOATS, INTS, SMALL, COMPLEX, ["b1"], NARROW)
        s = self.shape(r.choice([1, 2, 3, 4]))
        ax = tuple(sorted(r.sample(range(len(s)), r.randint(1, len(s)))))
        # over sizes of one JAX's CPU leaves the initial values out, and one that is equal to an element comes first
        if r.random() < 0.15 and t not in COMPLEX + ["b1"] and any(s[a] != 1 for a in ax):
            u = self.type(FLOATS, INTS)
            return ("lax.reduce((%s,%s),(%s,%s),lambda p,q:(jnp.where(p[0]>=q[0],p[0],q[0]),jnp.where(p[0]>=q[0],p[1],"
                    "q[1])),%s)[%d]" % (self.arg(t, s), self.arg(u, s), self.start(t, "max"), self.start(u, "add"), ax,
                                        r.randrange(2)))
        f = self.one("or and" if t == "b1" else "add mul" if t in COMPLEX else "add add max min mul")
        f = self.one("or and xor") if is_int(t) and r.random() < 0.4 else f
        if f == "mul" and np.prod([s[a] for a in ax], dtype=float) > 60:
            f = "add"  # the order would decide whether 0 or infinity comes first
        if f in ("add", "mul"):
            self.summed(t)
        body = "lax." + dict(zip("or and xor".split(), "bitwise_or bitwise_and bitwise_xor".split())).get(f, f)
        return "lax.reduce(%s,%s,%s,%s)" % (self.arg(t, s), self.start(t, f), body, ax)

    def op_numpy_reduce(self):
        t = self.type(FLOATS, FLOATS, COMPLEX)
        s = self.shape(self.r.choice([1, 2, 3]), least=1)
        f = self.one("sum mean prod" if t in COMPLEX else "sum mean prod max min any all nanmax nansum nanmin var std")
        if f not in ("max", "min", "any", "all", "nanmax", "nanmin"):
            self.exact = R.SUMMED
        self.spread = f not in ("var", "std")
        return "jnp.%s(%s,axis=%d)" % (f, self.arg(t, s), self.r.randrange(len(s)))

    def op_random(self):
        s = self.shape()
        key = "np.arange(%d,%d,dtype=%s)" % (k := self.r.randint(0, 99), k + 4, "np.uint32")
        self.mode = "whole"
        return "lax.rng_bit_generator(%s,%s,%s,lax.RandomAlgorithm.%s)[%d]" % (
            key, s, self.one("u8 u16 u32 u64"), self.one("RNG_THREE_FRY RNG_PHILOX RNG_DEFAULT"), self.r.randrange(2))

    def op_iota(self):
        s = self.shape(self.r.choice([1, 2, 3]))
        t = self.type(FLOATS, INTS, SMALL, NARROW, COMPLEX)
        return "lax.broadcasted_iota(%s,%s,%d)" % (t, s, self.r.randrange(len(s)))

    def op_triangular(self):
        r = self.r
        t = self.one("f32 f64 c64")
        k, m = r.choice([1, 2, 3, 5, 8, 17, 33]), r.choice([1, 2, 5, 9])
        b = self.few(r.choice([0, 0, 1]), 1, 2, 3)
        left = r.random() < 0.5
        self.exact, self.mode, self.spread = R.SUMMED, "ordinary", False
        return ("lax.linalg.triangular_solve(%s*.1+jnp.eye(%d,dtype=%s),%s,left_side=%s,lower=%s,transpose_a=%s,"
                "conjugate_a=%s,unit_diagonal=%s)" % (self.arg(t, (*b, k, k)), k, t,
                                                      self.arg(t, (*b, k, m) if left else (*b, m, k)), left,
                                                      *(r.random() < 0.5 for _ in range(4))))

    def op_linalg(self):
        r = self.r
        t = self.one("f32 f64 c64")
        k = r.choice([1, 2, 3, 5, 8, 17, 33])
        b = self.few(r.choice([0, 0, 1]), 1, 2, 3)
        self.exact, self.mode, self.spread = R.SUMMED, "ordinary", False
        x = self.arg(t, (*b, k, k))
        spd = "(%s@jnp.conj(jnp.swapaxes(%s,-1,-2))*.1+jnp.eye(%d,dtype=%s))" % (x, x, k, t)
        m = r.choice([1, 3])
        thomas = "lax.linalg.tridiagonal_solve(%s,%s+4,%s,%s)" % (*(self.arg(t, (*b, k)) for _ in range(3)),
                                                                 self.arg(t, (*b, k, m)))
        return self.one("lax.linalg.cholesky(%s)" % spd, "lax.linalg.lu(%s)[0]" % x, "lax.linalg.lu(%s)[1]" % x,
                        "lax.linalg.lu(%s)[2]" % x, "jnp.linalg.inv(%s)" % spd, "lax.linalg.eigh(%s)[1]" % spd, thomas,
                        "jnp.linalg.svd(%s,compute_uv=False)" % x, "jnp.linalg.det(%s)" % spd)

    FINISH = ["-({})", "({}).T", "jnp.flip({})", "({})+({})", "lax.optimization_barrier({})", "({})[None]"]

    def program(self):
        lines, meta, k = {}, {}, 0
        for _ in range(20 * OPERATIONS):
            if len(meta) == OPERATIONS:
                break
            self.begin()
            name, before = self.r.choice(self.ops), dict(self.args)
            try:
                own = {"v%d" % (k + 1): getattr(self, name)()}
                if self.dress and self.r.random() < 0.4 and self.exact == R.EXACT:
                    own["v%d" % (k + 2)] = self.r.choice(self.FINISH).replace("{}", "v%d" % (k + 1))
                out = list(own)[-1]
                p = R.Program(self.args, own, [out]).without_unused()
                o = jax.eval_shape(p.function(), *p.args.values())[0]
                if o.size > R.MOST or not o.dtype in R.NAME:
                    raise ValueError
            except Exception:  # not valid
                self.args = before
                continue
            lines.update(own)
            meta[out] = name[3:], self.exact, self.spread
            k += len(own)
        p = R.Program(self.args, lines, list(meta), exact={o: m[1] for o, m in meta.items()}).without_unused()
        p.meta = meta
        return p


def alone(p, out):
    """The operation of p that has this result."""
    k = [out] if out in p.meta else []
    lines = {n: e for n, e in p.lines.items() if n == out or n in R.used(p.lines[out])}
    q = R.Program(p.args, lines, k, exact={out: p.exact[out]}).without_unused()
    q.meta = {out: p.meta[out]}
    return q


# ---- judging --------------------------------------------------------------------------------------------------------
THEIRS, REFUSED = collections.Counter(), collections.Counter()


def kind(x):
    return np.where(np.isnan(x), 3, np.where(np.isinf(x), np.where(x > 0, 1, 2), 0))


def parts(x):
    return np.stack([x.real,
                     x.imag]).astype(np.float64) if np.iscomplexobj(x) else np.asarray(x).astype(np.float64)[None]


def run(p, device, types=TYPES, change=None):
    return R.results(p.function(types), [change(a) if change and jnp.issubdtype(a.dtype, jnp.inexact) else a
                                         for a in p.args.values()], device)[0]


NUMPY = dict(pow="power", **{"a" + f: "arc" + f for f in "sin cos tan sinh cosh tanh".split()})


def long_double(p):
    """A complex elementwise function in more than f64, if NumPy has it: XLA's own has NaN where a part of its formula
    overflows, and proves nothing about f64."""
    name, operands = re.fullmatch(r"lax\.(\w+)\((.*)\)", list(p.lines.values())[-1]).groups()
    f = getattr(np, NUMPY.get(name, name), None)
    if not f or len(p.lines) > 1:
        return None
    q = R.Program(p.args, {"x": "(%s,)" % operands}, ["x"])
    with jax.default_device(R.CPU), np.errstate(all="ignore"):
        return f(*[np.asarray(x).astype(np.clongdouble) for x in q.function()(*p.args.values())[0]])


def where(bad, a, b, text, w=None):
    i = np.unravel_index(np.argmax(bad), a.shape)
    at = tuple(map(int, i))
    return 0, "%s: %d of %d, element %s is %s, JAX's CPU has %s%s" % (
        text, bad.sum(), a.size, at, a[i], b[i], "" if w is None else ", f64 %s" % w[i])


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def judge(p):
    """Which result differs, and how. Raises what JAX's CPU raises where it takes no operation of p."""
    try:
        f = p.function()
        args = list(p.args.values())
        want, got = R.results(f, args, R.CPU), R.results(f, args, R.OURS)
        suspects = [n for n, a, b in zip(p.outs, got, want) if not equal(a, b)]
        refused = 0
    except Exception:
        suspects, refused = p.outs, 1
    taken, why = 0, None
    for n in suspects:
        try:
            w = judge_one(alone(p, n))
            taken += 1
        except Exception as e:  # JAX's CPU does not take it
            if not refused or len(p.outs) == 1:
                raise
            REFUSED[p.meta[n][0] + ": " + re.sub("[0-9]+", "N", str(e))[:60]] += 1
            continue
        if w and why is None:
            why = p.outs.index(n), w[1]
    return why


def judge_one(p):
    name, exact, spread = p.meta[p.outs[0]]
    want = run(p, R.CPU)
    try:
        got = run(p, R.OURS)
    except Exception as e:
        return 0, "%s: %s" % (type(e).__name__, str(e)[:500])
    if got.shape != want.shape or got.dtype != want.dtype:
        return 0, "%s %s, JAX's CPU %s %s" % (got.dtype, got.shape, want.dtype, want.shape)
    t = want.dtype
    if not jnp.issubdtype(t, jnp.inexact):
        bad = got != want
        if exact < R.EXACT and bad.any():
            wide = run(p, R.CPU, WIDE, R.f64)
            bad = bad & (got.astype(object) != wide.astype(object)) if wide.shape == bad.shape else bad
        return where(bad, got, want, str(t)) if bad.any() else None
    with np.errstate(all="ignore"):
        a, b = parts(got), parts(want)
        f = jnp.finfo(t)
        least, eps, most = float(f.tiny), float(f.eps), float(f.max)
        least *= 4 if f.bits == 8 else 256 if np.iscomplexobj(got) else 2  # JAX's CPU has zero for subnormals, and for the least numbers of f8_e5m2fnuz
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | ((np.abs(a) < least) & (np.abs(b) < least))
        if str(t).endswith("fnuz"):  # without -0, of which JAX's CPU makes NaN where something rounds to it
            same |= (a == 0) & np.isnan(b)
        if exact == R.EXACT:
            zero = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
            if (~same).any():
                return where(~same, a, b, str(t))
            return where(zero, a, b, "sign of zero") if zero.any() else None
        if same.all():
            return None
        more = long_double(p) if name in ("unary", "binary") and np.iscomplexobj(got) else None
        w = parts(run(p, R.CPU, WIDE, R.f64) if more is None else more)
        size = parts(run(p, R.CPU, WIDE, lambda x: np.abs(R.f64(x)))) if spread else np.abs(w)
        ka, kb, kw = kind(a), kind(b), kind(w)
        if np.iscomplexobj(got):  # which part of it is infinite, or NaN, is up to the order of the products
            ka, kb, kw = (np.broadcast_to(k.any(0), k.shape) for k in (ka, kb, kw))
        other = ka != kb
        near = np.abs(w) > most / 4
        near &= np.isfinite(w)
        bad = other & (ka != kw) & ~near
        if bad.any():
            return where(bad, a, b, "%s kind" % t, w)
        if other.any():
            THEIRS[name] += 1
        fin = np.isfinite(a) & np.isfinite(b) & np.isfinite(w)
        scale = np.where(np.isfinite(size), np.abs(size), 0)
        scale = np.maximum(scale, np.abs(np.where(fin, w, 0)))
        if not spread and exact == R.SUMMED:
            scale = np.maximum(scale, np.max(scale, initial=0))
        if got.dtype.kind == "c":
            scale = np.maximum(scale[0], scale[1])[None] * np.ones((2,) + (1,) * got.ndim)
        ours, xla = np.abs(a - w), np.abs(b - w)
        ratio = np.max(np.where(fin & (scale > 0), xla / scale, 0), initial=0)
        wide = t in (np.float64, np.complex128)
        eps *= 100 if name == "special_function" and wide else 8 if name in ("linalg", "triangular") else 1
        # XLA's own f64 decides about f64, so it has no error to compare with
        allowed = (4 * ratio + (400 if wide else 8) * eps) * scale + least
        bad = fin & ~same & (ours > allowed)
        return where(bad, a, b, "%s" % t, w) if bad.any() else None


def reduced(p):
    """The one operation that differs, without the line that uses its result where it differs without it too."""
    p = alone(p, p.outs[judge(p)[0]])
    if len(p.lines) > 1:
        (n, e), out = list(p.lines.items())[0], p.outs[0]
        q = R.Program(p.args, {n: e}, [n], exact={n: p.exact[out]})
        q.meta = {n: p.meta[out]}
        try:
            return q if judge_one(q) else p
        except Exception:
            pass
    return p


if __name__ == "__main__":
    only = [w[5:].split(",") for w in sys.argv if w.startswith("only=")]
    program = lambda seed, i: Generator(seed, i, only[0] if only else ()).program()
    end = R.main(R.Suite("jax_random_ops", program, judge, reduced, 40, 3000, 60))
    print("  only JAX's CPU has NaN or infinity, or has it not, where f64 agrees with ours: %s" % dict(THEIRS))
    print("  not taken by JAX's CPU: %s" % dict(REFUSED.most_common(20)))
    sys.exit(end)
