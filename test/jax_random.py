"""Random JAX programs on the embedded device beside JAX's CPU: expressions over jax.numpy and jax.lax, forward and
through value_and_grad, all types, sizes from 0 to some 10^5, one in four on special values (NaN, infinities, -0,
the ends of the integers). Results of movement, comparison, integers and single elementwise operations must
be equal. Others may differ by what JAX's CPU differs from itself when its arguments move by a rounding error, and then
by as much as it differs from the same program in f64. A failing program reduces itself and is printed.
XLANE_TEST_ALL=1 runs thousands, and compares the bits of 1, 2 and 5 threads.
usage: python test/jax_random.py [SEED [COUNT [FIRST [SECONDS]]]]; a COUNT of 1 prints the program."""

import collections, hashlib, os, random, re, subprocess, sys, time
import _jax  # both devices

# every operation rounds, as the specification has it; compiling well would take far longer than running badly
os.environ["XLA_FLAGS"] = (
    "--xla_allow_excess_precision=false --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
    + os.environ.get("XLA_FLAGS", "")
)
import numpy as np
import jax, jax.numpy as jnp
from jax import lax

jax.config.update("jax_enable_x64", True)
ALL = os.environ.get("XLANE_TEST_ALL") == "1"
OURS, CPU = jax.devices("xlane")[0], jax.devices("cpu")[0]

# ---- types: programs say f32, so that a program can be run with another f32 -----------------------------------------
TYPES = dict(f32=jnp.float32, f64=jnp.float64, f16=jnp.float16, bf16=jnp.bfloat16, c64=jnp.complex64)
TYPES.update(c128=jnp.complex128, b1=jnp.bool_, i4=jnp.int4, u4=jnp.uint4, f8=jnp.float8_e4m3fn, f8b=jnp.float8_e5m2)
TYPES.update({k[0] + n: jnp.dtype(k + n) for k in ("int", "uint") for n in ("8", "16", "32", "64")})
NAME = {jnp.dtype(t): k for k, t in TYPES.items()}
WIDE = dict(TYPES, f32=jnp.float64, f16=jnp.float64, bf16=jnp.float64, c64=jnp.complex128)
KINDS = dict(
    float="f32 f32 f32 f32 bf16 bf16 f16 f64".split(),
    int="i32 i32 i32 i64 u32 i8 u8 i16 u16 u64".split(),
    complex="c64 c64 c128".split(),
    bool=["b1"],
)
KIND = {t: k for k, ts in KINDS.items() for t in ts}
SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 40, 63, 64, 65]
LARGE = [100, 127, 128, 129, 200, 255, 256, 257, 300, 512, 513]
MOST = 1 << 18  # elements of a value


def specials(t, rng, shape):
    """Values at the ends of type t."""
    d = jnp.dtype(TYPES[t])
    if t == "b1":
        return rng.integers(0, 2, shape).astype(bool)
    if KIND[t] == "int":
        i = jnp.iinfo(d)
        ends = [i.min, i.min + 1, i.max, i.max - 1, 0, 1, 2, 3, 7, i.bits - 1, i.bits, i.bits + 1]
        ends += [] if i.min == 0 else [-1, -2, -7]
        return np.array(ends, d)[rng.integers(0, len(ends), shape)]
    if KIND[t] == "complex":
        part = "f32" if t == "c64" else "f64"
        with np.errstate(all="ignore"):
            return (specials(part, rng, shape) + 1j * specials(part, rng, shape)).astype(d)
    f = jnp.finfo(d)
    ends = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, float(f.max), float(f.min)]
    ends += [float(f.tiny), -float(f.tiny), 1 + float(f.eps), 3.75, 1e3, -1e3, 2.0**31, -(2.0**31)]
    ends += [2.0**31 - 129, 300, -300, 127.5, 255.5, 65504, 1e-3]
    x = np.where(rng.random(shape) < 0.5, rng.standard_normal(shape), np.array(ends)[rng.integers(0, len(ends), shape)])
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(d)


def ordinary(t, rng, shape):
    d = jnp.dtype(TYPES[t])
    if t == "b1":
        return rng.integers(0, 2, shape).astype(bool)
    if KIND[t] == "int":
        return np.asarray(rng.integers(0 if t[0] == "u" else -4, 40, shape)).astype(d)
    x = rng.standard_normal(shape)
    return np.asarray(x + 1j * rng.standard_normal(shape) if KIND[t] == "complex" else x).astype(d)


# ---- a program ------------------------------------------------------------------------------------------------------
# how surely both sides have the same bits: of every operation (EXACT), of products, which may be added without being
# rounded (PRODUCT); not where functions have errors (ROUNDED), nor where sums have an order (SUMMED)
SUMMED, ROUNDED, PRODUCT, EXACT = range(4)


class Program:
    """args: name to array; lines: name to expression; outs: names; wrt: arguments to differentiate by."""

    def __init__(self, args, lines, outs, wrt=(), loss=(), exact={}):
        self.args, self.lines, self.outs, self.wrt, self.loss, self.exact = args, lines, outs, wrt, loss, exact

    def text(self):
        s = "def f(%s):\n" % ", ".join(self.args)
        s += "".join("    %s = %s\n" % l for l in self.lines.items())
        if not self.wrt:
            return s + "    return (%s,)\n" % ", ".join(self.outs)
        s += "    loss = " + " + ".join("jnp.mean(jnp.sin(%s.astype(f32)))" % o for o in self.loss) + "\n"
        s += "    return loss, (%s,)\n" % ", ".join(self.outs)
        at = list(self.args)
        return s + "f = jax.value_and_grad(f, argnums=%s, has_aux=True)\n" % ([at.index(w) for w in self.wrt],)

    def function(self, types=TYPES):
        env = dict(jax=jax, jnp=jnp, lax=lax, np=np, pad=pad, window=window, conv=conv, dot=dot, train=train, **types)
        exec(self.text(), env)
        return jax.jit(env["f"])

    def names(self):
        """What each result is: the loss, results, gradients."""
        return (["loss"] if self.wrt else []) + list(self.outs) + ["gradient of " + w for w in self.wrt]

    def without_unused(self):
        need = set(self.outs) | set(self.loss) | set(self.wrt)
        lines = {}
        for n, e in reversed(self.lines.items()):
            if n in need:
                lines[n] = e
                need |= set(used(e))
        args = {n: a for n, a in self.args.items() if n in need}
        return Program(args, dict(reversed(lines.items())), self.outs, self.wrt, self.loss, self.exact)


def used(text):
    return re.findall(r"\b[av]\d+\b", text)


# ---- operations that need more than an expression -------------------------------------------------------------------
def pad(x, value, cfg):
    return lax.pad(x, jnp.asarray(value, x.dtype), cfg)


def window(x, kind, size, stride, padding, base, dilation):
    inexact = jnp.issubdtype(x.dtype, jnp.inexact)
    end = {"add": 0, "mul": 1, "max": -np.inf if inexact else jnp.iinfo(x.dtype).min}
    end["min"] = np.inf if inexact else jnp.iinfo(x.dtype).max
    start = np.asarray(end[kind], x.dtype)
    return lax.reduce_window(x, start, getattr(lax, kind), size, stride, padding, base, dilation)


def conv(x, k, **kw):
    return lax.conv_general_dilated(x, k, **kw)


def dot(a, b, dims, wide=None):
    return lax.dot_general(a, b, dims, preferred_element_type=wide)


def train(x, table, at, blocks, rule, steps):
    """Losses and an updated weight of some training steps: an embedding, blocks (some of them repeated by a scan over
    their weights), a loss of the rows, and an update that a cond leaves out."""
    width, t = table.shape[-1], table.dtype
    draw = lambda k, *s: (jax.random.normal(jax.random.key(k), s) * s[0] ** -0.5).astype(t)
    forms = dict(
        mlp=lambda w, h: h + jax.nn.gelu(h @ w) @ w.T,
        gate=lambda w, h: jax.nn.sigmoid(h @ w) * h,
        norm=lambda w, h: (h - h.mean(-1, keepdims=True)) * lax.rsqrt(h.var(-1, keepdims=True) + 0.1) * w[0],
        attend=lambda w, h: h + jax.nn.softmax((h @ w) @ h.T * width**-0.5, -1) @ h,
        carry=lambda w, h: lax.scan(lambda c, r: (lambda d: (d, d))(jnp.tanh(c @ w + r)), h[0] * 0, h)[1],
        choose=lambda w, h: lax.cond(h.mean() > 0, lambda h: jnp.tanh(h @ w), lambda h: h * w[0], h),
        pick=lambda w, h: h + jnp.take_along_axis(h, jnp.argsort(h @ w, axis=0), 0) * 0.5,
        conv=lambda w, h: h + jnp.einsum("tkd,kd->td", jnp.stack([jnp.roll(h, k, 0) for k in range(3)], 1), w[:3]),
    )
    weights = [draw(k, *((3,) if b[-1] == "*" else ()), max(width, 3), width) for k, b in enumerate(blocks)]

    def loss(params):
        table, weights = params
        h = table[at] + x.ravel()[: at.size * width].reshape(at.size, width).astype(t)
        for b, w in zip(blocks, weights):
            f = forms[b.rstrip("*")]
            if b[-1] == "*":
                h = lax.scan(lambda h, w: (jax.checkpoint(f)(w[:width], h).astype(t), None), h, w)[0]
            else:
                h = f(w[:width] if width >= 3 or b != "conv" else w, h).astype(t)
        return -jax.nn.log_softmax((h @ table.T).astype(f32_of(t)))[jnp.arange(at.size), at].mean()

    def step(state, k):
        params, moment = state
        value, g = jax.value_and_grad(loss)(params)
        mean = jax.tree.map(lambda m, g: (0.9 * m + 0.1 * g).astype(t), moment, g)
        size = jax.tree.map(lambda m: jnp.sqrt(m * m + 0.01), mean)
        d = dict(sgd=g, momentum=mean, adam=jax.tree.map(lambda m, s: m / s, mean, size))[rule]
        new = jax.tree.map(lambda p, d: (p - 0.05 * d).astype(t), params, d)
        keep = jax.tree.reduce(lambda a, g: a + (g.astype(f32_of(t)) ** 2).sum(), g, jnp.zeros((), f32_of(t))) < 100
        return (lax.cond(keep, lambda: new, lambda: params), mean), value

    params = (table, weights)
    (params, _), values = lax.scan(step, (params, jax.tree.map(jnp.zeros_like, params)), jnp.arange(steps))
    return jnp.concatenate([values.astype(t), params[0].ravel()[:99], params[1][0].ravel()[:99]])


def f32_of(t):
    return jnp.promote_types(t, jnp.float32)


UNARY = """jnp.tanh jnp.sin jnp.cos jnp.tan jnp.arctan jnp.exp lax.exp2 jnp.expm1 jax.nn.sigmoid jax.nn.gelu jax.nn.silu
jax.nn.softplus jax.nn.elu jax.nn.mish lax.erf lax.erfc jnp.sinh jnp.cosh jnp.arcsinh lax.cbrt jax.nn.log_sigmoid
jax.nn.selu jnp.log1p jnp.log jnp.sqrt lax.rsqrt jnp.arcsin jnp.arccos jnp.arctanh jnp.arccosh lax.lgamma lax.digamma
lax.erf_inv jnp.log2 jnp.log10 jnp.sinc jnp.i0 jax.nn.gelu jnp.tanh jnp.exp""".split()
GUARDED = dict(  # the domain, for ordinary values
    zip(
        """jnp.exp lax.exp2 jnp.expm1 jnp.sinh jnp.cosh jnp.log1p jnp.log jnp.sqrt lax.rsqrt jnp.arcsin jnp.arccos
        jnp.arctanh jnp.arccosh lax.lgamma lax.digamma lax.erf_inv jnp.tan jnp.log2 jnp.log10""".split(),
        """jnp.clip({},-9,3) jnp.clip({},-9,9) jnp.clip({},-9,3) jnp.clip({},-4,4) jnp.clip({},-4,4) jnp.abs({})
        jnp.abs({})+.01 jnp.abs({}) jnp.abs({})+.01 jnp.clip({},-.9,.9) jnp.clip({},-.9,.9) jnp.clip({},-.9,.9)
        jnp.abs({})+1.1 jnp.abs({})+.5 jnp.abs({})+.5 jnp.clip({},-.9,.9) jnp.clip({},-1,1) jnp.abs({})+.01
        jnp.abs({})+.01""".split(),
    )
)
EXACT_UNARY = """-{} jnp.abs({}) jnp.sign({}) jnp.floor({}) jnp.ceil({}) jnp.round({}) jnp.trunc({}) jax.nn.relu({})
jnp.clip({},-1,1) jnp.isnan({}) jnp.isinf({}) lax.is_finite({})
jnp.signbit(jnp.where(jnp.isnan({}),1,{})) jnp.nan_to_num({}) jax.nn.hard_tanh({})
jax.nn.relu6({}) jnp.where({}>0,{},0) lax.clamp({}.dtype.type(-1),{},{}.dtype.type(2)) jnp.maximum({},0.25)
lax.round({},lax.RoundingMethod.AWAY_FROM_ZERO) lax.optimization_barrier({}) lax.reduce_precision({},5,10)
lax.reduce_precision({},8,7) lax.reduce_precision({},4,3) jnp.frexp({})[0]""".split()
INTEGER_UNARY = """-{} jnp.abs({}) jnp.sign({}) ~{} {}+1 {}*3 {}//3 {}%5 {}>>1 {}<<2 lax.population_count({})
lax.clz({}) {}^5 {}&6 {}|1 {}**3 jnp.clip({},1,9) {}//7 {}%3
lax.shift_left({},lax.full_like({},9)) jnp.bitwise_count({})""".split()
BINARY = """jnp.arctan2 jnp.hypot jnp.logaddexp lax.pow jnp.fmod jnp.remainder jnp.divmod jnp.floor_divide
jnp.float_power jnp.logaddexp2""".split()
EXACT_BINARY = """jnp.maximum({},{}) jnp.minimum({},{}) jnp.where({}>{},{},{})
jnp.copysign({},jnp.where(jnp.isnan({}),1,{}))
lax.nextafter({},{})
{}>{} {}<={} {}=={} {}!={} lax.clamp(jnp.minimum({},{}),{},jnp.maximum({},{})) jnp.heaviside({},{})
jnp.isclose({},{})""".split()
INTEGER_BINARY = """{}+{} {}-{} {}*{} jnp.maximum({},{}) jnp.minimum({},{}) {}&{} {}|{} {}^{} jnp.where({}>{},{},{})
lax.div({},{}) lax.rem({},{}) {}//{} {}%{} lax.shift_left({},{}) lax.shift_right_logical({},{}) jnp.gcd({},{})
lax.shift_right_arithmetic({},{}) {}<{} {}=={} {}>={} lax.clamp(jnp.minimum({},{}),{},jnp.maximum({},{}))""".split()
COMPLEX_UNARY = """jnp.conj({}) -{} jnp.real({}) jnp.imag({}) jnp.abs({}) jnp.angle({}) jnp.exp({}*.3) jnp.sqrt({})
jnp.tanh({}*.5) jnp.sin({}*.5) jnp.cos({}*.5) jnp.log({}+3) {}*(1-.5j) {}/(2+{}*jnp.conj({})) jnp.square({})
jnp.log1p({}*.1) jnp.expm1({}*.1) lax.rsqrt({}+3) jnp.sign({}) jnp.arctan({}*.3) {}**2""".split()
BLOCKS = """jax.nn.softmax({x},axis=-1) jax.nn.log_softmax({x},axis={a})*.2 jax.nn.logsumexp({x},axis={a})
({x}-jnp.mean({x},-1,keepdims=True))*lax.rsqrt(jnp.var({x},-1,keepdims=True)+.1) jax.nn.standardize({x},epsilon=.1)
{x}*lax.rsqrt(jnp.mean({x}*{x},-1,keepdims=True)+.1) jax.nn.one_hot(jnp.argmax({x},-1),{x}.shape[-1])*{x}.mean()
{x}/(jnp.linalg.norm({x},axis={a},keepdims=True)+1) jnp.median({x},axis={a}) jnp.quantile({x}.astype(f32),.3,axis={a})
jnp.percentile({x}.astype(f64),40,axis=-1) jnp.histogram(jnp.clip({x}.astype(f32),-3,3),bins=7,range=(-3,3))[0]
jnp.diff({x},axis={a}) jnp.trapezoid({x},axis={a})*.1 jnp.interp({x}.astype(f32),jnp.arange(5.)-2,jnp.arange(5.)**2)
jnp.searchsorted(jnp.arange(9)-4.,{x}.astype(f64)) jnp.unique({x}.ravel(),size=5,fill_value=0)
jnp.nonzero({x}.ravel()>0,size=7)[0] jnp.convolve({x}.ravel()[:50],{x}.ravel()[:7])*.2
jnp.outer({x}.ravel()[:40],{x})[:,:40] jnp.cov({x}.reshape(-1,{x}.shape[-1])[:20].astype(f32))
jnp.tril({x}.reshape(-1,{x}.shape[-1])) jnp.polyval({x}.ravel()[:4],{x}*.1)
jnp.digitize({x}.astype(f32),jnp.array([-1.,0,.5]))
jnp.bincount(jnp.clip({x}.ravel()*3,0,9).astype(i32),length=10)
jax.nn.dot_product_attention(*[{x}.reshape(1,-1,1,{x}.shape[-1])[:,:40].astype(f32)]*3,is_causal=True)""".split()
BODIES = """jnp.tanh(x*.7+c) .9*c+.1*x c*.7-jnp.sin(x) jnp.maximum(c*.5,x) jax.nn.sigmoid(x)*c+(1-jax.nn.sigmoid(x))*x
jnp.where(c>x,c,x) c+jnp.roll(x,1) jnp.flip(c)*.5+x""".split()


class Generator:
    def __init__(self, seed, index):
        self.r = random.Random("%d %d" % (seed, index))
        self.n = np.random.default_rng([seed, index])
        self.limit = self.r.choice([300, 3000, 40000, 120000])
        self.special = self.r.random() < 0.25
        self.grad = not self.special and self.r.random() < 0.4
        self.args, self.lines, self.type, self.exact, self.fixed = {}, {}, {}, {}, set()

    # -- picking
    def shape(self, rank=None, limit=None):
        rank = self.r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]) if rank is None else rank
        while True:
            s = [self.r.choice(SIZES if self.r.random() < 0.8 else LARGE) for _ in range(rank)]
            s = [0 if self.r.random() < 0.01 else d for d in s]
            if np.prod(s, dtype=float) <= (limit or self.limit):
                return tuple(s)

    def arg(self, shape, t, fixed=False):
        """A new argument; a fixed one is no number to differentiate by."""
        n = "a%d" % len(self.args)
        make = specials if self.special and self.r.random() < 0.7 and not fixed else ordinary
        self.args[n] = make(t, self.n, shape)
        self.type[n], self.exact[n] = (tuple(shape), t), EXACT
        if fixed:
            self.fixed.add(n)
        return n

    def index(self, shape, hi):
        """Indices, a few of them out of bounds."""
        n = self.arg(shape, "i32", True)
        self.args[n] = self.n.integers(-2, hi + 3, shape).astype(np.int32)
        return n

    def pick(self, *kinds, rank=0, most=MOST, full=True, where=lambda s: True, types=None):
        c = [
            n
            for n, (s, t) in self.type.items()
            if (KIND.get(t) in kinds or not kinds)
            and (types is None or t in types)
            and len(s) >= rank
            and (not full or 0 not in s)
            and np.prod(s, dtype=float) <= most
            and where(s)
        ]
        if not c:
            raise IndexError
        return self.r.choice(c[-6:] if self.r.random() < 0.7 else c)

    def like(self, n):
        """A value of n's type that broadcasts with it."""
        s, t = self.type[n]

        def fits(o):
            try:
                return np.prod(np.broadcast_shapes(o, s), dtype=float) <= MOST
            except ValueError:
                return False

        return self.pick(types=[t], where=fits, full=False)

    def axis(self, n):
        return self.r.choice(range(len(self.type[n][0])))

    def one(self, words):
        return self.r.choice(words)

    # -- adding
    def add(self, text, how=SUMMED, sums=False):
        of = used(text)
        structs = [jax.ShapeDtypeStruct(self.type[n][0], TYPES[self.type[n][1]]) for n in of]
        program = Program(dict.fromkeys(of), {"v0": text}, ["v0"])
        try:
            o = jax.eval_shape(program.function(), *structs)[0]
        except Exception:
            return False
        if o.size > MOST or o.dtype not in NAME or o.ndim > 6:
            return False
        n = "v%d" % (len(self.lines) + 1)
        self.lines[n] = text
        self.type[n] = (o.shape, NAME[o.dtype])
        least = min([self.exact[a] for a in of] + [how])
        inexact = jnp.issubdtype(o.dtype, jnp.inexact)
        self.exact[n] = min(least, ROUNDED) if sums and least < EXACT and inexact else least
        return True

    # -- operations: each adds one value, or fails
    def op_unary(self):
        n = self.pick("float", full=False)
        f = self.one(UNARY)
        x = n if self.special and self.r.random() < 0.7 else GUARDED.get(f, "{}").replace("{}", n)
        self.add("%s(%s)" % (f, x), ROUNDED)

    def op_exact_unary(self):
        n = self.pick("float", full=False)
        self.add(self.one(EXACT_UNARY).replace("{}", n), EXACT)

    def op_arithmetic(self):
        n = self.pick("float", full=False)
        m = self.like(n)
        e = self.one(["+", "-", "*", "/", "+", "*"])
        if e == "/" and not self.special:
            self.add("%s/(1+jnp.abs(%s))" % (n, m), EXACT, sums=True)
        else:
            self.add("%s%s%s" % (n, e, m), PRODUCT if e == "*" else EXACT, sums=e in "+-")

    def op_scaled(self):
        n = self.pick("float", full=False)
        self.add(self.one(["{}*0.5", "{}*2", "1-{}", "{}+1", "{}*{}", "{}*.3+.1", "1/({}*{}+1)"]).replace("{}", n),
                 ROUNDED)

    def op_integer(self):
        n = self.pick("int", full=False)
        if self.r.random() < 0.5:
            return self.add(self.one(INTEGER_UNARY).replace("{}", n), EXACT)
        m, k = self.like(n), 0
        self.add(re.sub("{}", lambda _: self.one([n, m]), self.one(INTEGER_BINARY)), EXACT)

    def op_binary(self):
        n = self.pick("float", full=False)
        m = self.like(n)
        f = self.one(BINARY)
        if not self.special:
            n = "(jnp.abs(%s)+.1)" % n if "pow" in f else n
            m = "jnp.clip(%s,-2,2)" % m if "pow" in f else "(jnp.abs(%s)+.5)" % m if "arctan2" not in f else m
        self.add("%s(%s,%s)%s" % (f, n, m, "[1]" if f == "jnp.divmod" else ""), ROUNDED)

    def op_exact_binary(self):
        n = self.pick("float", full=False)
        m = self.like(n)
        self.add(re.sub("{}", lambda _: self.one([n, m]), self.one(EXACT_BINARY)), EXACT)

    def op_complex(self):
        if self.r.random() < 0.4:
            n = self.pick(types=["f32", "f64"])
            return self.add("lax.complex(%s,%s)" % (n, self.like(n)), EXACT)
        n = self.pick("complex")
        if self.r.random() < 0.6:
            return self.add(self.one(COMPLEX_UNARY).replace("{}", n))
        self.add(re.sub("{}", lambda _: self.one([n, m]), self.one(["{}+{}", "{}*{}", "{}-{}"]))) if (
            m := self.like(n)
        ) else None

    def op_bool(self):
        n = self.pick("bool", full=False)
        f = self.r.randrange(5)
        if f == 0:
            m = self.pick(full=False)
            return self.add("jnp.where(%s,%s,%s)" % (n, m, self.like(m)), EXACT)
        if f == 1:
            return self.add(self.one(["~{}", "{}^{}", "{}.astype(f32)", "{}.astype(i32)"]).replace("{}", n), EXACT)
        if f == 2:
            return self.add("%s%s%s" % (n, self.one("&|^"), self.like(n)), EXACT)
        e = self.one(["any", "all", "sum", "argmax"])
        self.add("jnp.%s(%s,axis=%d)" % (e, n, self.axis(n)), EXACT)

    def op_cast(self):
        n = self.pick("float", "int", "bool", full=False)
        t = self.type[n][1]
        to = self.one(KINDS["float"] + KINDS["int"] + ["b1"])
        if self.r.random() < 0.1:
            return self.add("%s.astype(%s).astype(%s)" % (n, self.one(["f8", "f8b", "i4", "u4"]), to), EXACT)
        if self.r.random() < 0.1 and not (self.special and KIND[t] == "float"):  # a NaN has many bits
            same = [k for k in TYPES if k in KIND and jnp.dtype(TYPES[k]).itemsize == jnp.dtype(TYPES[t]).itemsize]
            return self.add("lax.bitcast_convert_type(%s,%s)" % (n, self.one([k for k in same if k != "b1"])), EXACT)
        if KIND[t] == "float" and KIND[to] == "int" and not self.special:
            return self.add("jnp.clip(jnp.round(%s*3),%d,50).astype(%s)" % (n, 0 if to[0] == "u" else -50, to), EXACT)
        self.add("%s.astype(%s)" % (n, to), EXACT)

    def op_reduce(self):
        n = self.pick("float", "int", "complex", rank=1, full=False)
        s, t = self.type[n]
        ax = tuple(sorted(self.r.sample(range(len(s)), self.r.randint(1, len(s)))))
        f = self.one("sum sum mean max min prod var argmax argmin ptp any and xor custom pair logsumexp".split())
        integer = KIND[t] == "int"
        wide = n + ".astype(f64)" if integer and f in ("mean", "var", "logsumexp") else n  # it would be f32 otherwise
        at = dict(x=wide, a=ax, k=self.r.random() < 0.4, i=self.one(ax))
        if f == "sum" or f == "mean":
            return self.add("jnp.%s({x},axis={a},keepdims={k})".format(**at) % f,
                            EXACT if integer and f == "sum" else 0)
        if f in ("max", "min", "ptp"):
            return self.add("jnp.%s({x},axis={a},keepdims={k})".format(**at) % f, EXACT)
        if f in ("argmax", "argmin"):
            return self.add("lax.%s({x},{i},%s)".format(**at) % (f, self.one(["i32", "i64"])), EXACT)
        if f == "prod":
            x = n if integer or self.special else "(1+.1*jnp.sin(%s))" % n
            return self.add("jnp.prod(%s,axis=%s)" % (x, ax), EXACT if integer else SUMMED)
        if f == "any":
            return self.add("jnp.any({x}>1,axis={a})".format(**at), EXACT)
        if f in ("and", "xor") and integer:
            return self.add("lax.reduce_%s(%s,%s)" % (f, n, ax), EXACT)
        if f == "custom" and not self.special:  # a computation that is no operation of its own
            e = self.one(["jnp.where(p>q,p,q)", "p+q+0", "jnp.maximum(p,q)+0"])
            least = str(jnp.iinfo(TYPES[t]).min) if integer else "-np.inf"
            start = "0" if "p+q" in e else least
            return self.add("lax.reduce(%s,np.array(%s,%s),lambda p,q:%s,%s)" % (n, start, t, e, ax),
                            EXACT if "q)" in e else 0)
        if f == "pair" and KIND[t] == "float" and not self.special:  # two operands, as argmax is written by hand
            return self.add(
                "lax.reduce((%s,lax.broadcasted_iota(i32,%s,%d)),(np.array(-np.inf,%s),np.int32(0)),lambda p,q:("
                "lax.select(p[0]>=q[0],p[0],q[0]),lax.select(p[0]>=q[0],p[1],q[1])),(%d,))[%d]"
                % (n, s, at["i"], t, at["i"], self.r.randrange(2)),
                EXACT,
            )
        self.add("jnp.%s({x},axis={a})".format(**at) % "var" if f == "var"
                 else "jax.nn.logsumexp({x},axis={a})".format(**at))

    def op_move(self):
        n = self.pick(rank=1, full=False)
        s, t = self.type[n]
        R, a, r = len(s), self.axis(n), self.r
        d = s[a]
        perm = r.sample(range(R), R)
        lo = r.randint(0, d)
        cut = [":"] * a + ["%d:%d:%d" % (lo, r.randint(lo, d), r.choice([1, 1, 2, 3]))]
        cfg = [(r.randint(-1, 2), r.randint(-1, 2), r.choice([0, 0, 0, 1, 2])) if r.random() < 0.5 else (0, 0, 0) for _
               in s]
        others = lambda o: len(o) == R and all(x == y for i, (x, y) in enumerate(zip(o, s)) if i != a)
        m = self.pick(types=[t], full=False, where=others)
        size = int(np.prod(s))
        part = r.choice([k for k in (1, 2, 3, 4, 5, 7, 8, 16, 32) if size % k == 0])
        self.add(
            self.one(
                [
                    "jnp.transpose(%s,%s)" % (n, perm),
                    "jnp.transpose(%s,%s)" % (n, perm),
                    "%s.reshape(%s)" % (n, r.choice([(part, -1), (-1, part), (-1,)]) if size else (0,)),
                    "%s[%s]" % (n, ",".join(cut)),
                    "jnp.flip(%s,%s)" % (n, tuple(r.sample(range(R), r.randint(1, R)))),
                    "pad(%s,1,%s)" % (n, cfg),
                    "pad(%s,0,%s)" % (n, cfg),
                    "jnp.concatenate([%s,%s,%s],%d)" % (n, m, n, a),
                    "jnp.roll(%s,%d,%d)" % (n, r.randint(-5, 5), a),
                    "jnp.broadcast_to(jnp.expand_dims(%s,%d),%s)" % (n, a,
                        s[:a] + (r.choice([0, 1, 2, 3, 5]),) + s[a:]),
                    "jnp.stack([%s,%s],%d)" % (n, n, a),
                    "jnp.repeat(%s,%d,axis=%d)" % (n, r.choice([1, 2, 3]), a),
                    "jnp.tile(%s,%d)" % (n, r.choice([1, 2, 3])),
                    "jnp.%s(%s,%d)" % (r.choice(["tril", "triu"]), n, r.randint(-2, 2)),
                    "jnp.%s(%s)" % (r.choice(["diag", "diagonal", "ravel", "squeeze", "atleast_3d", "rot90"]), n),
                    "jnp.pad(%s,2,mode=%r)" % (n, r.choice(["edge", "reflect", "wrap", "symmetric"])),
                ]
            ),
            EXACT,
        )

    def op_gather(self):
        n = self.pick(rank=1, most=40000)
        s, _ = self.type[n]
        a = self.axis(n)
        i = self.index(self.shape(self.one([0, 1, 1, 2]), 200), s[a])
        mode = self.one(["clip", "wrap", "fill"])
        j = self.index(self.type[i][0], s[-1])
        self.add(
            self.one(
                [
                    "jnp.take(%s,%s,axis=%d,mode=%r)" % (n, i, a, mode),
                    "%s.at[%s%s].get(mode=%r)" % (n, ":," * a, i, mode.replace("wrap", "clip")),
                    "%s[%s]" % (n, i),
                    "%s[%s,...,%s]" % (n, i, j),
                    "%s[...,None,%s]" % (n, j),
                    "jnp.take_along_axis(%s,jnp.argsort(%s,axis=%d)[%s:3],axis=%d)" % (n, n, a, ":," * a, a),
                    "jax.vmap(lambda t,i:t[i],(%d,None))(%s,%s)" % (a, n, i),
                    "jax.vmap(lambda t:lax.dynamic_index_in_dim(t,%s.ravel()[0],0,False),%d)(%s)" % (i, a, n),
                ]
            ),
            EXACT,
        )

    def op_scatter(self):
        n = self.pick("float", "int", "complex", rank=1, most=60000)
        s, t = self.type[n]
        a, m = self.axis(n), self.one("add add add max min mul set apply".split())
        i = self.index(self.shape(1, 200), s[a])
        mode = self.one(["drop", "clip", "fill", "promise_in_bounds"])
        at = "%s.at[%s%s%s]" % (n, ":," * a, i if mode != "promise_in_bounds" else "jnp.clip(%s,0,%d)" % (i, s[a] - 1),
                                ",%d" % self.r.randrange(s[a + 1]) if a + 1 < len(s) and self.r.random() < 0.3 else "")
        mode = mode if mode != "promise_in_bounds" else "clip"
        exact = EXACT if KIND[t] == "int" or m in ("max", "min", "set") else SUMMED
        if m == "apply":
            return self.add("%s.apply(lambda t:t*2)" % at)
        if m == "set":  # which of several to one place stays is nobody's business
            at = "%s.at[%sjnp.argsort(%s)[:%d]]" % (n, ":," * a, i, min(s[a], self.type[i][0][0]))
            return self.add("%s.set(%s)" % (at, self.r.randint(0, 9)), exact)
        v = "2" if m == "mul" else self.r.choice(["1", self.pick(types=[t], most=60000)])
        unique = ",unique_indices=True" if self.grad and m == "mul" else ""
        self.add("%s.%s(%s,mode=%r)" % (at, m, v, mode) if not unique else "%s*2" % n, exact)

    def op_segment(self):
        n = self.pick("float", "int", rank=1, most=60000)
        s, t = self.type[n]
        k, f = self.one([1, 3, 8, 40]), self.one(["sum", "sum", "max", "min", "prod"])
        i = self.index((s[0],), k)
        x = n if f != "prod" or KIND[t] == "int" else "(1+.1*jnp.sin(%s))" % n
        e = "jax.ops.segment_%s(%s,%s,num_segments=%d)" % (f, x, i, k)
        self.add(e if KIND[t] == "int" or f in ("sum", "prod") else "jnp.clip(%s,-9,9)" % e,
                 EXACT if KIND[t] == "int" else 0)

    def op_dynamic(self):
        n = self.pick(rank=1)
        s, t = self.type[n]
        size = [self.r.randint(1, d) for d in s]
        at = "(%s,)" % ",".join("%s[%d]" % (self.index((1,), d), 0) for d in s)
        if self.r.random() < 0.5:
            return self.add("lax.dynamic_slice(%s,%s,%s)" % (n, at, size), EXACT)
        part = "%s[%s]" % (n, ",".join("%d:%d" % (d - z, d) for d, z in zip(s, size)))
        twice = "*2" if KIND.get(t) in ("float", "int") else ""
        self.add("lax.dynamic_update_slice(%s,%s%s,%s)" % (n, part, twice, at), PRODUCT)

    def op_sort(self):
        n = self.pick("float", "int", rank=1)
        s, t = self.type[n]
        a, k = self.axis(n), self.r.randint(1, s[-1])
        keys = self.r.choice([1, 2])
        self.add(
            self.one(
                [
                    "jnp.sort(%s,axis=%d,descending=%s)" % (n, a, self.r.random() < 0.5),
                    "jnp.argsort(%s,axis=%d,stable=True)" % (n, a),
                    "lax.top_k(%s,%d)[0]" % (n, k),
                    "lax.top_k(%s,%d)[1]" % (n, k),
                    "lax.sort((%s,lax.broadcasted_iota(i32,%s,%d)),dimension=%d,num_keys=1,is_stable=True)[1]" % (n, s,
                        a, a),
                    "lax.sort((jnp.round(%s),-%s,%s),dimension=%d,num_keys=%d)[2]" % (n, n, n, a, keys)
                    if keys == 2
                    else "jnp.sort(%s,axis=%d)" % (n, a),
                    "jnp.partition(%s,%d,axis=-1)[...,%d]" % (n, k - 1, k - 1),
                    "jnp.lexsort((%s,jnp.round(%s)),axis=%d)" % (n, n, a),
                ]
            ),
            EXACT,
        )

    def op_cumulative(self):
        n = self.pick("float", "int", rank=1)
        s, t = self.type[n]
        f = self.one(["cumsum", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
        x = n if f != "cumprod" or KIND[t] == "int" else "(1+.1*jnp.sin(%s))" % n
        exact = EXACT if KIND[t] == "int" or f in ("cummax", "cummin") else SUMMED
        self.add("lax.%s(%s,axis=%d,reverse=%s)" % (f, x, self.axis(n), self.r.random() < 0.3), exact)

    def op_block(self):
        n = self.pick("float", rank=1, most=40000)
        self.add(self.one(BLOCKS).format(x=n, a=self.axis(n)))

    def op_dot(self):
        n = self.pick("float", "int", "complex", rank=1)
        s, t = self.type[n]
        dims = list(range(len(s)))
        self.r.shuffle(dims)
        nb = self.r.choice([0, 0, 1, 2])
        nk = self.r.choice([0, 1, 1, 1, 2])
        batch, over = dims[:nb], dims[nb : nb + nk]
        free = [self.r.choice(SIZES) for _ in range(self.r.choice([0, 1, 1, 2]))]
        own = [("b", d) for d in batch] + [("k", d) for d in over] + [("f", k) for k in range(len(free))]
        self.r.shuffle(own)
        shape = [free[d] if k == "f" else s[d] for k, d in own]
        if np.prod(shape, dtype=float) * np.prod(s, dtype=float) > 1e7 * max(1, np.prod([s[d] for d in batch + over])):
            return
        at = lambda k, d: own.index((k, d))
        m = self.arg(shape, t)
        rule = ((over, [at("k", d) for d in over]), (batch, [at("b", d) for d in batch]))
        rule = str(rule if self.r.random() < 0.5 else rule)
        wide = self.one([None, "f32"]) if t in ("bf16", "f16") else self.one([None, "i32"]) if t in ("i8",
            "u8") else None
        count = max(1, int(np.prod([s[d] for d in over])))
        scale = "" if KIND[t] == "int" else "*%.3g" % count**-0.5
        self.add("dot(%s,%s,%s,%s)%s" % (n, m, rule, wide, scale), EXACT if KIND[t] == "int" else SUMMED)

    def op_matmul(self):
        n = self.pick("float", "complex", rank=2)
        s, t = self.type[n]
        f, scale = self.r.randrange(4), "*%.3g" % s[-1] ** -0.5
        if f == 0:
            m = self.arg((s[-1], self.one(SIZES + LARGE[:4])), t)
            return self.add("(%s@%s)%s" % (n, m, scale))
        if f == 1:
            return self.add("(%s@jnp.swapaxes(%s,-1,-2))%s" % (n, n, scale))
        if f == 2:
            m = self.arg((self.one(SIZES), s[-2]), t)
            return self.add("jnp.einsum('ij,...jk->...ik',%s,%s)*%.3g" % (m, n, s[-2] ** -0.5))
        self.add("jnp.einsum('...ij,...ik->...%s',%s,%s)*%.3g" % (self.one(["jk", "kj", "j"]), n, n, s[-2] ** -0.5))

    def op_conv(self):
        n = self.pick("float", "int", rank=3, most=20000, where=lambda s: len(s) <= 5)
        s, t = self.type[n]
        r, spatial = self.r, len(s) - 2
        lhs = r.sample(range(len(s)), len(s))
        batch, feature = s[lhs[0]], s[lhs[1]]
        groups, batches = 1, 1
        if r.random() < 0.35:
            groups = r.choice([g for g in (1, 2, 3, 4, feature) if feature % g == 0])
        elif r.random() < 0.2:
            batches = r.choice([g for g in (1, 2, 3, batch) if batch % g == 0])
        out = r.choice([1, 2, 3, 8]) * groups * batches
        size = [r.choice([1, 2, 3, 5]) for _ in range(spatial)]
        rhs = r.sample(range(len(s)), len(s))
        kernel = [0] * len(s)
        for place, d in zip(rhs, [out, feature // groups] + size):
            kernel[place] = d
        few = lambda *c: tuple(r.choice(c) for _ in range(spatial))
        padding = r.choice(["'SAME'", "'VALID'", str([(r.randint(-1, 3), r.randint(-1, 3)) for _ in size])])
        k = self.arg(kernel, t)
        dims = "lax.ConvDimensionNumbers(%s,%s,%s)" % (tuple(lhs), tuple(rhs), tuple(r.sample(range(len(s)), len(s))))
        ld = few(1, 1, 2, 3) if r.random() < 0.3 and padding[0] != "'" else (1,) * spatial
        self.add(
            "conv(%s,%s,window_strides=%s,padding=%s,lhs_dilation=%s,rhs_dilation=%s,dimension_numbers=%s,"
            "feature_group_count=%d,batch_group_count=%d)%s"
            % (n, k, few(1, 1, 2, 3), padding, ld, few(1, 1, 1, 2), dims, groups, batches,
               "" if KIND[t] == "int" else "*%.3g" % (np.prod(size) * feature / groups) ** -0.5),
            EXACT if KIND[t] == "int" else SUMMED,
        )

    def op_window(self):
        n = self.pick("float", "int", rank=1, most=60000, where=lambda s: len(s) <= 4)
        s, t = self.type[n]
        r = self.r
        few = lambda *c: tuple(r.choice(c) for _ in s)
        size, stride = few(1, 2, 3), few(1, 1, 2, 3)
        padding = r.choice(["'SAME'", "'VALID'", str([(r.randint(0, 2), r.randint(0, 2)) for _ in s])])
        kind = self.one(["add", "max", "min", "mul", "pool", "pool"])
        if kind == "pool" and KIND[t] == "float":  # its gradient is select_and_scatter
            e = "lambda x:jnp.sum(jnp.sin(window(x,'%s',%s,%s,%s,None,None).astype(f32)))"
            e = e % (r.choice(["max", "min"]), size, stride, padding)
            return self.add("jax.grad(%s)(%s)" % (e, n))
        if kind == "pool" or (kind == "mul" and self.grad):
            kind = "add"
        base, dilation = (few(1, 1, 2), few(1, 1, 2)) if r.random() < 0.3 else (None, None)
        exact = EXACT if KIND[t] == "int" or kind in ("max", "min") else SUMMED
        self.add("window(%s,%r,%s,%s,%s,%s,%s)" % (n, kind, size, stride, padding, base, dilation), exact)

    def op_scan(self):
        n = self.pick("float", rank=1, where=lambda s: s[0] <= 40)
        s, t = self.type[n]
        b = self.one(BODIES)
        if len(s) >= 2 and s[-1] <= 128 and self.r.random() < 0.5:
            b += "+jnp.tanh(c@%s)*.1" % self.arg((s[-1], s[-1]), t)
        y = self.one(["d", "x*d", "d.sum()", "d[...,:1]", "jnp.where(d>0,x,c)", "None"] if len(s) > 1 else ["d", "x*d"])
        body = "lambda c,x:(lambda d:(d,%s))((%s).astype(c.dtype))" % (y, b)
        if self.r.random() < 0.3:
            body = "jax.checkpoint(%s)" % body
        rest = "reverse=%s,unroll=%d" % (self.r.random() < 0.3, self.one([1, 1, 2, 3]))
        self.add("lax.scan(%s,jnp.full(%s,.1,%s),%s,%s)[%d]" % (body, s[1:], t, n, rest,
            0 if y == "None" else self.r.randrange(2)))

    def op_loop(self):
        n = self.pick("float", "int")
        s, t = self.type[n]
        k, x = self.r.randint(0, 5), n
        body = "jnp.sin(c)*.9+.1*%s" % x if KIND[t] == "float" else "c*3+%s" % x
        i, m = self.index((2,), 3), self.like(n)
        exact = EXACT if KIND[t] == "int" else SUMMED
        self.add(
            self.one(
                [
                    "lax.fori_loop(0,%d,lambda i,c:(%s).astype(c.dtype),%s)" % (k, body, x),
                    "lax.while_loop(lambda s:s[0]<%d,lambda s:(s[0]+1,(lambda c:(%s).astype(c.dtype))(s[1])),(0,%s))[1]"
                    % (k, body, x),
                    "lax.cond(%s[0]>%d,lambda a,b:a*2+b,lambda a,b:jnp.flip(b)-a,%s,%s)" % (i, self.r.randint(-1, 3), x,
                        m),
                    "lax.switch(%s[1]%%3,[lambda a:a,lambda a:-a,lambda a:a*a],%s)" % (i, x),
                    "lax.fori_loop(0,%s[0],lambda i,c:lax.dynamic_update_index_in_dim(c,c[i]*2,i,0),%s)" % (i, x),
                    "lax.while_loop(lambda c:jnp.sum(jnp.abs(c).astype(f32))>1e3,lambda c:(c//2),%s)" % x
                    if t in ("i32", "i64")
                    else "lax.fori_loop(0,3,lambda i,c:jnp.roll(c,1)+c,%s)" % x,
                ]
            ),
            exact,
        )

    def op_vmap(self):
        n = self.pick("float", rank=2, most=40000)
        s, t = self.type[n]
        a = self.axis(n)
        rest = s[:a] + s[a + 1 :]
        forms = [
            "jax.vmap(lambda t:jnp.sort(t.ravel())[::2],{a})({x})",
            "jax.vmap(lambda t:jnp.vdot(t,t)*.01,{a})({x})",
            "jax.vmap(jax.vmap(lambda t:jnp.tanh(t).sum()*.1),{a},1)({x})",
            "jax.vmap(jax.grad(lambda t:(jnp.sin(t)*t).sum()),{a},{a})({x})",
            "jax.vmap(lambda t,i:lax.dynamic_index_in_dim(t,i,0,False),({a},0))({x},jnp.arange({d}))",
            "jax.vmap(lambda t:lax.cond(t.sum()>0,jnp.sin,jnp.cos,t),{a},{a})({x})",
            "jax.vmap(lambda t,i:t.at[i].add(1),({a},0))({x},jnp.arange({d})%3)",
            "jax.vmap(lambda t,i:lax.dynamic_update_slice_in_dim(t,t[:1]*2,i,0),({a},0))({x},jnp.arange({d}))",
            "lax.map(lambda t:jnp.cumsum(t,0)*.3,{x})",
            "jax.vmap(lambda t:t@t.T*.1,{a})({x})",
            "jax.vmap(jnp.convolve,(0,None))({x}.reshape({x}.shape[0],-1)[:,:30],jnp.arange(4,dtype={t}))*.1",
        ]
        if not self.grad:
            forms.append(
                "jax.vmap(lambda t:lax.while_loop(lambda s:(s[0]<4)&(jnp.abs(s[1]).max()>.3),lambda s:(s[0]+1,s[1]*"
                "({t}(.6))),(0,t))[1],{a},{a})({x})"
            )
        self.add(self.one(forms).replace("{a}", str(a)).replace("{x}", n).replace("{d}", str(s[a])).replace("{t}", t))

    def op_derivative(self):
        n = self.pick("float")
        f = self.one(
            [
                "lambda t:jnp.tanh(t)*jnp.mean(t)",
                "lambda t:jax.nn.softmax(t.ravel()).reshape(t.shape)*t",
                "lambda t:jnp.sqrt(1+t*t)",
                "lambda t:jnp.where(t>0,t*t,jnp.sin(t))",
                "lambda t:jnp.cumsum(t.ravel()).reshape(t.shape)*.1",
                "lambda t:jax.nn.gelu(t)*jnp.max(t)",
                "lambda t:jnp.sort(t.ravel()).reshape(t.shape)*t",
            ]
        )
        self.add(
            self.one(
                [
                    "jax.jvp({f},({x},),(jnp.cos({x}),))[1]",
                    "jax.vjp({f},{x})[1]({x})[0]",
                    "jax.grad(lambda t:jnp.mean(({f})(t)))({x})",
                    "jax.hessian(lambda t:(({f})(t)**2).sum())({x}.ravel()[:12])",
                    "jax.jacfwd({f})({x}.ravel()[:30])",
                    "jax.jacrev({f})({x}.ravel()[:30])",
                    "jax.checkpoint({f})({x})",
                    "jax.linearize({f},{x})[1]({x}*.5)",
                    "jax.grad(lambda t:jnp.sum(jax.grad(lambda u:jnp.sum(({f})(u)))(t)**2))({x})",
                ]
            )
            .replace("{f}", f)
            .replace("{x}", n)
        )

    def op_train(self):
        words = "mlp gate norm attend carry choose pick conv mlp* gate* carry* norm*".split()
        n = self.pick("float", where=lambda s: np.prod(s) >= 16, most=40000)
        t, width = self.type[n][1], self.one([3, 4, 5, 8, 16, 33])
        rows = min(self.one([2, 3, 8, 17, 40]), int(np.prod(self.type[n][0])) // width)
        if not rows:
            return
        table, at = self.arg((self.one([2, 5, 16, 40]), width), t), self.index((rows,), 0)
        self.args[at] = self.n.integers(0, self.type[table][0][0], rows).astype(np.int32)
        blocks = [self.one(words) for _ in range(self.r.randint(1, 4))]
        self.add("train(%s,%s,%s,%s,%r,%d)" % (n, table, at, blocks, self.one(["sgd", "momentum", "adam"]),
                                              self.r.randint(1, 4)))

    def op_fft(self):
        n = self.pick(types=["f32", "f64", "c64", "c128"], rank=1, most=40000)
        s, t = self.type[n]
        k = s[-1]
        forms = ["fft.fft(%s)*%.3g", "fft.ifft(%s)*%.3g", "fft.fftshift(%s)*%.3g"]
        forms += ["fft.irfft(%s)*%.3g"] if t[0] == "c" else ["fft.rfft(%s)*%.3g", "fft.rfft(%s,n=24)*%.3g"]
        forms += ["fft.fft2(%s)*%.3g"] if len(s) > 1 else []
        self.add("jnp." + self.one(forms) % (n, k**-0.5))

    def op_linalg(self):
        n = self.pick(types=["f32", "f64", "f32"], rank=2, most=20000, where=lambda s: s[-2] <= 40)
        s, t = self.type[n]
        m = s[-2]
        spd = "(%s@jnp.swapaxes(%s,-1,-2)*%.3g+2*jnp.eye(%d,dtype=%s))" % (n, n, 1 / s[-1], m, t)
        forms = ["cholesky({s})", "solve({s},{x})", "inv({s})", "slogdet({s})[1]", "det({s}*.3)", "pinv({s})"]
        forms += ["matrix_power({s}*.3,3)", "norm({x},axis=(-2,-1))"]
        if not self.grad:
            forms += ["eigvalsh({s})", "svd({x},compute_uv=False)", "lstsq({s},{x})[0]"]
        e = "jnp.linalg." + self.one(forms)
        if self.r.random() < 0.2:
            e = "jax.scipy.linalg." + self.one(["solve_triangular({s},{x},lower=True)", "expm({s}*.1)",
                                                "cho_solve((jnp.linalg.cholesky({s}),True),{x})"])
        self.add(e.replace("{s}", spd).replace("{x}", n))

    def op_random(self):
        s, k = self.shape(), self.r.randrange(99)
        impl = self.one(["threefry2x32", "threefry2x32", "rbg", "unsafe_rbg"])
        key = "jax.random.key(%d,impl=%r)" % (k, impl)
        key = self.one([key, "jax.random.fold_in(%s,3)" % key, "jax.random.split(%s)[1]" % key])
        t = self.one(KINDS["float"])
        self.add(
            self.one(
                [
                    "jax.random.normal(%s,%s,%s)" % (key, s, t),
                    "jax.random.bits(%s,%s,%s)" % (key, s, self.one(["u8", "u16", "u32", "u64"])),
                    "jax.random.uniform(%s,%s,%s)" % (key, s, t),
                    "jax.random.randint(%s,%s,-5,60,%s)" % (key, s, self.one(["i32", "i64", "i8"])),
                    "jax.random.bernoulli(%s,.3,%s)" % (key, s),
                    "jax.random.permutation(%s,%d)" % (key, self.r.randint(1, 99)),
                    "jax.random.categorical(%s,jnp.arange(7.),shape=%s)" % (key, s),
                    "jax.random.gumbel(%s,%s,f32)" % (key, s),
                    "lax.rng_bit_generator(jnp.arange(%s,dtype=u32),%s,%s,%s)[1]"
                    % (self.one(["4", "4"]), s, self.one(["u32", "u64", "u8", "u16"]),
                       self.one(["'philox'", "'three_fry'", "'default'"])),
                ]
            )
        )

    def op_iota(self):
        s = self.shape(self.one([1, 2, 3]))
        t = self.one(KINDS["float"] + KINDS["int"])
        a = self.r.randrange(len(s))
        forms = ["lax.broadcasted_iota(%s,%s,%d)%%17" % (t, s, a), "jnp.linspace(-1,1,%d,dtype=f32)" % s[0]]
        self.add(self.one(forms + ["jnp.eye(%d,dtype=f32)" % s[0]]))

    def op_associative(self):
        n = self.pick("float", rank=1, most=40000)
        f = "lambda p,q:(p[0]*q[0],p[1]*q[0]+q[1])"
        self.add("lax.associative_scan(%s,(jax.nn.sigmoid(%s),%s),axis=%d)[1]" % (f, n, n, self.axis(n)))

    WEIGHTS = dict(unary=6, arithmetic=6, scaled=3, integer=4, binary=2, exact_unary=3, exact_binary=3, move=8,
                   reduce=5)
    WEIGHTS.update(cast=4, dot=3, matmul=3, block=3, gather=2, scatter=2, sort=2, window=2, conv=2, scan=2, dynamic=2)
    WEIGHTS.update(bool=2, vmap=2, derivative=2, loop=2, complex=2)

    def program(self):
        r = self.r
        for _ in range(r.randint(1, 3)):
            self.arg(self.shape(), r.choice(KINDS[r.choice(["float"] * 7 + ["int"] * 3 + ["complex"])]))
        if not any(KIND[t] == "float" for _, t in self.type.values()):
            self.arg(self.shape(2), "f32")
        ops = [getattr(self, n) for n in dir(self) if n.startswith("op_")]
        weights = [self.WEIGHTS.get(f.__name__[3:], 1) for f in ops]
        want = r.randint(3, 20)
        for _ in range(4 * want):
            if len(self.lines) < want:
                try:
                    r.choices(ops, weights)[0]()
                except IndexError:  # no value of that kind yet
                    pass
        done = list(self.lines) or list(self.args)[:1]
        outs = sorted(set(r.sample(done, min(len(done), r.randint(1, 5))) + done[-1:]))
        kind = lambda n: KIND.get(self.type[n][1])
        outs = [n for n in outs if kind(n)] or list(self.args)[:1]  # nothing narrower than a byte leaves
        floats = [n for n in self.lines if kind(n) == "float" and 0 not in self.type[n][0]]
        wrt = [n for n in self.args if kind(n) == "float"]
        loss = sorted(set(r.sample(floats, min(len(floats), 3)) + floats[-1:]))
        exact = {n: self.exact[n] for n in outs}
        if not (self.grad and loss and wrt):
            wrt, loss = [], []
        return Program(self.args, self.lines, outs, wrt, loss, exact).without_unused()


# ---- judging --------------------------------------------------------------------------------------------------------
def results(f, args, device, wide=False):
    put = [a if not wide or not jnp.issubdtype(a.dtype, jnp.inexact) else f64(a) for a in args]
    out = f(*[jax.device_put(a, device) for a in put])
    if isinstance(out, tuple) and len(out) == 2 and isinstance(out[0], tuple):  # value_and_grad: loss and results first
        out = (out[0][0], *out[0][1], *out[1])
    return [np.asarray(o) for o in out]


def f64(a):
    a = np.asarray(a)
    return a.astype(np.complex128 if jnp.issubdtype(a.dtype, jnp.complexfloating) else np.float64)


def tiny(a, t):
    return np.abs(a) < float(jnp.finfo(t).tiny)  # subnormals may be zeros


def apart(a, b, moved, exact):
    """Where a differs from b by more than it may: None, or a text. moved are b's of moved arguments."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return "%s %s, JAX's CPU %s %s" % (a.dtype, a.shape, b.dtype, b.shape)
    if a.size == 0:
        return None
    t, wa, wb = a.dtype, a, b
    if not jnp.issubdtype(t, jnp.inexact):
        unsure = np.zeros(a.shape, bool)
        for m in moved if exact <= ROUNDED else ():
            unsure |= m != b
        bad, by = (a != b) & ~unsure, None
        if bad.mean() <= 4 * unsure.mean():
            return None
    else:
        with np.errstate(all="ignore"):
            a, b, m = f64(a), f64(b), [f64(x) for x in moved]
            close = (a == b) | (np.isnan(a) & np.isnan(b)) | (tiny(a, t) & tiny(b, t))
            if exact > ROUNDED:
                bad = ~close
                by = np.abs(a - b)
            else:
                fin = np.isfinite(a) & np.isfinite(b)
                shift = np.zeros(a.shape)
                unsure = np.zeros(a.shape, bool)
                for x in m:
                    both = np.isfinite(x) & np.isfinite(b)
                    shift = np.maximum(shift, np.where(both, np.abs(x - b), 0))
                    unsure |= ~both & (x != b) & ~(np.isnan(x) & np.isnan(b))
                some = np.abs(b[np.isfinite(b)])
                e = float(jnp.finfo(t).eps) * (30 if t in (np.float64, np.complex128) else 1)  # nothing wider decides
                if exact == SUMMED:  # partial sums overflow in another order
                    end = float(jnp.finfo(t).max) / 256
                    unsure |= ~fin & ~(np.abs(a) < end) & ~(np.abs(b) < end)
                allowed = 40 * shift + 60 * e * np.where(fin, np.abs(b), 0) + 12 * e * (some.mean() if some.size else 0)
                allowed += 0.1 * shift.max()
                by = np.where(fin, np.abs(a - b), 0)
                bad = ~close & ((~fin & ~unsure) | (fin & (by > allowed)))
                if bad.mean() <= 4 * unsure.mean():
                    return None
    if not bad.any():
        return None
    at = np.unravel_index(np.argmax(bad if by is None else np.where(bad, np.nan_to_num(by) + 1e-300, 0)), a.shape)
    return "%s %s: %d of %d differ, element %s is %s, JAX's CPU has %s" % (
        t, a.shape, bad.sum(), a.size, tuple(map(int, at)), wa[at], wb[at])


def coarse(p):
    """The rounding error of the narrowest float in p, or 0 where that is f32."""
    types = {NAME[a.dtype] for a in p.args.values()} | set(re.findall(r"\bb?f16\b", p.text()))
    return 2**-8 if "bf16" in types else 2**-11 if "f16" in types else 0


def judge(p):
    """Which result of p differs, and how; None if all agree. Raises what JAX's CPU raises."""
    args = list(p.args.values())
    f = p.function()
    want = results(f, args, CPU)
    try:
        got = results(f, args, OURS)
    except Exception as e:
        return 0, "%s: %s" % (type(e).__name__, str(e)[:500])
    names = p.names()
    exact = [p.exact.get(n, SUMMED) for n in names]
    bad = [(k, w) for k in range(len(want)) if (w := apart(got[k], want[k], [], exact[k]))]
    if not bad:
        return None
    rng = np.random.default_rng(9)
    moved = []
    for _ in range(8):

        def move(a):
            if not jnp.issubdtype(a.dtype, jnp.inexact):
                return a
            with np.errstate(all="ignore"):
                by = 2 * float(jnp.finfo(a.dtype).eps) * (rng.random(a.shape) - 0.5)
                return np.asarray(f64(a) * (1 + by)).astype(a.dtype)

        moved.append(results(f, [move(a) for a in args], CPU))
    bad = [(k, w) for k, _ in bad if (w := apart(got[k], want[k], [m[k] for m in moved], exact[k]))]
    if bad:  # what XLA fuses may lose a NaN: op by op it does not
        with jax.disable_jit():
            alone = results(f, args, CPU)
        bad = [(k, w) for k, w in bad if apart(got[k], alone[k], [m[k] for m in moved], exact[k])]
    if not bad:
        return None
    wide = results(p.function(WIDE), args, CPU, wide=True)
    for k, why in bad:
        if exact[k] > ROUNDED or wide[k].shape != want[k].shape:
            return k, why
        with np.errstate(all="ignore"):
            e, f = (np.abs(f64(x[k]) - f64(wide[k])) for x in (got, want))
            lost = np.isfinite(f) & ~np.isfinite(e)
            e, f = (np.where(np.isfinite(x), x, 0) for x in (e, f))
            rms = lambda x: np.sqrt(np.mean(x**2))
        least = 8 * coarse(p) * rms(np.where(np.isfinite(wide[k]), f64(wide[k]), 0))
        if lost.any() or (rms(e) > 2 * rms(f) or e.max() > 3 * f.max()) and rms(e) > least:
            return k, "%s; rms error %.2g, JAX's CPU %.2g" % (why, rms(e), rms(f))
    return None


def reduced(p):
    """The smallest program found that still differs: outputs and operations go, values become arguments."""

    def fails(q):
        try:
            return judge(q)
        except Exception:
            return None

    names, (k, _) = p.names(), judge(p)
    kept = names[k]
    if kept in p.outs:
        q = Program(p.args, p.lines, [kept], exact=p.exact).without_unused()
        p = q if fails(q) else p
    for o in list(p.outs) + list(p.wrt) + list(p.loss):
        less = lambda l: [x for x in l if x != o] or l
        q = Program(p.args, p.lines, less(p.outs), less(p.wrt), less(p.loss), p.exact).without_unused()
        p = q if fails(q) else p
    for n in reversed(list(p.lines)):
        if n not in p.lines or n in p.outs and len(p.lines) == 1:
            continue
        try:
            head = Program(p.args, {k: e for k, e in p.lines.items()}, [n]).without_unused()
            value = results(head.function(), list(head.args.values()), CPU)[0]
        except Exception:
            continue
        a = "a%d" % (1 + max(int(x[1:]) for x in [*p.args, *p.lines]))
        swap = lambda e: re.sub(r"\b%s\b" % n, a, e)
        q = Program(
            {**p.args, a: value},
            {k: swap(e) for k, e in p.lines.items() if k != n},
            [o for o in p.outs if o != n] or [list(p.lines)[-1]],
            p.wrt,
            [l for l in p.loss if l != n] or ([a] if p.wrt else []),
            p.exact,
        )
        try:
            q = q.without_unused()
            p = q if fails(q) else p
        except KeyError:
            pass
    return p


def say(p):
    lines = ["%s: %s%s" % (n, NAME[a.dtype], list(a.shape)) + (" = %s" % a.tolist() if a.size <= 16 else "")
             for n, a in p.args.items()]
    return "\n".join(lines) + "\n" + p.text()


# a kind of random programs; how many in a short run, in a long one, and in one process
Suite = collections.namedtuple("Suite", "name program judge reduced few many batch")


def bits(suite, seed, first, count):
    for i in range(first, first + count):
        p = suite.program(seed, i)
        try:
            out = results(p.function(), list(p.args.values()), OURS)
            print(i, hashlib.sha256(b"".join(o.tobytes() for o in out)).hexdigest(), flush=True)
        except Exception:
            print(i, "none", flush=True)
        if i % 40 == 0:
            jax.clear_caches()


def same_bits(suite, seed, count):
    """The bits of the first programs with 1, 2 and 5 threads."""
    children = [
        subprocess.Popen(
            [sys.executable, os.path.abspath(sys.argv[0]), "bits", str(seed), str(count)],
            env=dict(os.environ, XLANE_CPU_THREADS=t),
            stdout=subprocess.PIPE,
            text=True,
        )
        for t in ("1", "2", "5")
    ]
    said = [c.communicate()[0].splitlines() for c in children]
    other = [a.split()[0] for a, b, c in zip(*said) if not a == b == c]
    whole = all(len(s) == count for s in said)
    print("%s %s threads: 1, 2 and 5 give the same bits for %d programs of seed %d%s"
          % ("FAIL" if other or not whole else "ok", suite.name, count - len(other), seed,
             "; not for " * bool(other) + " ".join(other)))
    return bool(other) or not whole


def one(suite, seed, i, show=False):
    """What becomes of program i: it agrees, differs, or is refused for a reason that is given."""
    p = suite.program(seed, i)
    if show:
        print(say(p))
    try:
        why = suite.judge(p)
    except Exception as e:  # JAX's CPU does not take it either
        return "refused " + str(e).split("\n")[0][:70]
    finally:
        if i % 40 == 0:
            jax.clear_caches()
    if why:
        print("FAIL %s %d %d: %s: %s" % (suite.name, seed, i, p.names()[why[0]], why[1]), flush=True)
        q = suite.reduced(p)
        print("  " + "\n  ".join((str(suite.judge(q)) + "\n" + say(q)).splitlines()), flush=True)
    return "differs" if why else "agrees"


def child(*words):
    named = [w for w in sys.argv[1:] if "=" in w]
    return subprocess.Popen([sys.executable, os.path.abspath(sys.argv[0]), *map(str, words), *named],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def in_batches(suite, seed, count, first):
    """(program, what became of it), in processes of some programs each: JAX's CPU compiler crashes on some. A program
    that ends its process is run once more on our device alone, to see whose fault it was."""
    i = first
    while i < first + count:
        begun = None
        with child("batch", seed, min(suite.batch, first + count - i), i) as c:
            for line in c.stdout:
                word, _, rest = line.rstrip("\n").partition(" ")
                if word == "begin":
                    begun = int(rest)
                elif word == "end":
                    yield begun, rest
                    i, begun = begun + 1, None
                else:
                    print(line, end="", flush=True)
        if begun is not None:
            with child("bits", seed, 1, begun) as c:
                ours = c.communicate()[0] == ""
            if ours:
                print("FAIL %s %d %d: the process ended" % (suite.name, seed, begun), flush=True)
            else:
                print("  JAX's CPU ends the process: %s %d %d" % (suite.name, seed, begun), flush=True)
            yield begun, "differs" if ours else "refused JAX's CPU ends the process"
            i = begun + 1
        elif c.returncode:
            raise SystemExit("FAIL %s: a process ended with %d before program %d" % (suite.name, c.returncode, i))


def main(suite):
    words = sys.argv[1:]
    numbers = [int(a) for a in words if a.isdigit()]
    seed, count, first, seconds = (numbers + [20261118, suite.many if ALL else suite.few, 0, 10**9][len(numbers) :])[:4]
    if "bits" in words:
        return bits(suite, seed, first, count)
    if "batch" in words:
        for i in range(first, first + count):
            print("begin", i, flush=True)
            print("end", one(suite, seed, i), flush=True)
        return 0
    begun, was = time.time(), collections.Counter()
    here = ((i, one(suite, seed, i, count == 1)) for i in range(first, first + count))
    for _, what in here if count <= suite.batch else in_batches(suite, seed, count, first):
        was[what] += 1
        if time.time() - begun > seconds:
            break
    refused = collections.Counter({k[8:]: n for k, n in was.items() if k.startswith("refused ")})
    few = was["agrees"] + was["differs"] < 0.7 * was.total()
    print("%s %s: %d programs of seed %d agree with JAX's CPU, %d do not, %d it refuses (%.0f s)"
          % ("FAIL" if was["differs"] or few else "ok", suite.name, was["agrees"], seed, was["differs"],
             refused.total(),
             time.time() - begun))
    if few or numbers:
        print("  refused: %s" % refused.most_common(12))
    return was["differs"] > 0 or few or (ALL and not numbers and same_bits(suite, seed, 200))


if __name__ == "__main__":
    programs = lambda seed, i: Generator(seed, i).program()
    sys.exit(main(Suite("jax_random", programs, judge, reduced, 16, 2000, 50)))
