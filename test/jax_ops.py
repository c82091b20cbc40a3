"""Runs many small JAX programs on the xlane device and on JAX's own CPU in one process, and compares: integers and
booleans exactly, floats within a few units in the last place of their type (or a tolerance that the case names)."""
import glob, os, platform, re, sys, time
import _quick
from _covered import covered
from _jax import here, lib
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
jax.config.update("jax_enable_x64", True)
_quick.use()
cpu, xl = jax.devices("cpu")[0], jax.devices("xlane")[0]
only = tuple(sys.argv[1].split(",")) if len(sys.argv) > 1 else ()
rng = np.random.default_rng(0)
bad = total = 0
VALUE = covered("value")                                  # {op: the case, or file of test/cases/, that computes it}
met = {}                                                  # {such a case: the ops of its program}

F = ["float32", "float64", "bfloat16", "float16"]
SMALL = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e3m4"]
I = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
N4 = ["int4", "uint4"]
C = ["complex64", "complex128"]

def dt(name):
    return np.dtype(name) if name in np.sctypeDict else jnp.dtype(name)

def arr(shape, d, lo=-4.0, hi=4.0, special=False):
    d = dt(d)
    if d == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if d.kind in "iu" or d.name in ("int4", "uint4", "int2", "uint2"):
        info = jnp.iinfo(d)
        a = rng.integers(max(-20, int(info.min)), min(20, int(info.max)) + 1, shape)
        if special and a.size > 3:
            a = a.astype(object)
            a.flat[0], a.flat[1], a.flat[2] = int(info.min), int(info.max), 0
            return np.array(a.tolist(), dtype=np.int64 if int(info.max) < 2**63 else np.uint64).reshape(shape).astype(d)
        return a.astype(d)
    if d.kind == "c":
        return (rng.uniform(lo, hi, shape) + 1j * rng.uniform(lo, hi, shape)).astype(d)
    a = rng.uniform(lo, hi, shape)
    if special and a.size > 6:
        a.flat[0], a.flat[1], a.flat[2], a.flat[3], a.flat[4] = np.nan, np.inf, -np.inf, -0.0, 0.0
    return a.astype(d)

def eps(d):
    if d.kind == "c":
        return float(np.finfo(d).eps)
    return float(jnp.finfo(d).eps)

def same(a, b, ulps):
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return "type or shape: %s%s, not %s%s" % (a.dtype, a.shape, b.dtype, b.shape)
    d = a.dtype
    if d == np.bool_ or d.kind in "iu" or d.name in ("int4", "uint4", "int2", "uint2"):
        if not np.array_equal(a.astype(object), b.astype(object)):
            return "%s, not %s" % (a.ravel()[:6], b.ravel()[:6])
        return None
    w = np.complex128 if d.kind == "c" else np.float64
    x, y = a.astype(w), b.astype(w)
    tol = ulps * eps(d)
    scale = np.nanmax(np.abs(y[np.isfinite(y)])) if np.isfinite(y).any() else 0
    with np.errstate(all="ignore"):
        ok = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= tol * np.maximum(np.abs(y), 2e-2 * scale)
                                                       + 1e-300)
    if not ok.all():
        i = np.argmin(ok.ravel())
        return "%r, not %r (at %d of %d, %d differ)" % (x.ravel()[i], y.ravel()[i], i, x.size, (~ok).sum())
    return None

def ops_in(text):
    return set(re.findall(r"\b(?:stablehlo|chlo|sdy)\.[\w-]+", text)) | ({"func.call"} if " call @" in text else set())

def case(name, f, *args, ulps=8):
    global bad, total
    if only and not name.startswith(only):
        return
    total += 1
    f = jax.jit(f)                                          # traced once, for both devices
    try:
        want = jax.tree.leaves(f(*[jax.device_put(a, cpu) for a in args]))
    except Exception as e:
        print("skip %s: JAX's CPU: %s" % (name, str(e).split("\n")[0][:100]))
        return
    if name in VALUE.values():
        with jax.default_device(xl):
            met[name] = ops_in(f.lower(*args).as_text())
    try:
        with jax.default_device(xl):
            have = jax.tree.leaves(f(*[jax.device_put(a, xl) for a in args]))
        why = None
        for i, (h, w) in enumerate(zip(have, want)):
            why = why or (lambda r: r and "output %d: %s" % (i, r))(same(h, w, ulps))
    except Exception as e:
        why = "%s: %s" % (type(e).__name__, str(e).split("\n")[0][:240])
    if why:
        bad += 1
        print("FAIL %s: %s" % (name, why))

def batch(name, fs, *args, ulps=8):
    """Many functions of the same arguments in one program; taken apart only when something differs."""
    global bad, total
    if only and not name.startswith(only):
        return
    before = bad
    import io, contextlib
    keys = list(fs)
    n0 = total
    with contextlib.redirect_stdout(io.StringIO()):
        case(name, lambda *a: [fs[k](*a) for k in keys], *args, ulps=ulps)
    if bad > before or total == n0:
        bad, total = before, n0
        for k in keys:
            case(name + "." + k, fs[k], *args, ulps=ulps)
    else:
        total += len(keys) - 1

UNARY = {n: getattr(lax, n) for n in "abs cbrt ceil cos exp expm1 floor is_finite log1p logistic neg round rsqrt sign sin sqrt tanh tan erf erfc".split()}
UNARY["log"] = lambda x: lax.log(lax.abs(x))
UNARY["round_even"] = lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
UNARY["erf_inv"] = lambda x: lax.erf_inv(x / 5)
UNARY["digamma"] = lambda x: lax.digamma(lax.abs(x) + 2.5)
for n in "acos asin".split():
    UNARY[n] = (lambda g: lambda x: g(x / 5))(getattr(lax, n))
for n in "asinh atan cosh sinh".split():
    UNARY[n] = getattr(lax, n)
UNARY["acosh"] = lambda x: lax.acosh(lax.abs(x) + 1)
BINF = {n: getattr(lax, n) for n in "add sub mul div max min rem atan2 nextafter eq ne lt le gt ge".split()}
BINF["pow"] = lambda x, y: lax.pow(lax.abs(x), y)
BINI = {n: getattr(lax, n) for n in "add sub mul div rem max min bitwise_and bitwise_or bitwise_xor shift_left shift_right_logical shift_right_arithmetic eq ne lt le gt ge".split()}
UNI = {n: getattr(lax, n) for n in "bitwise_not population_count clz sign neg abs".split()}

t0 = time.time()
for d in F + SMALL:
    x, y = arr((3, 37), d, special=d in F), arr((3, 37), d)
    batch("unary.%s" % d, {k: f for k, f in UNARY.items()}, arr((3, 37), d), ulps=16)
    batch("special.%s" % d, {k: UNARY[k] for k in "abs exp floor ceil is_finite neg sign sqrt tanh round round_even log1p expm1 cos".split()}, x, ulps=16)
    batch("binary.%s" % d, BINF, x, y, ulps=8)
    case("select.%s" % d, lambda a, b: lax.select(a > b, a, b), y, arr((3, 37), d))
    case("clamp.%s" % d, lambda a: lax.clamp(jnp.asarray(-1, a.dtype), a, jnp.asarray(2, a.dtype)), x)
for d in I + N4:
    x, y = arr((5, 7), d, special=True), arr((5, 7), d)
    y0 = np.where(y == 0, np.ones_like(y), y)
    batch("binary.%s" % d, {k: f for k, f in BINI.items() if k not in ("div", "rem") and not k.startswith("shift")}, x,
          y)
    batch("divide.%s" % d, {"div": lax.div, "rem": lax.rem}, x, y0)
    batch("shift.%s" % d, {k: BINI[k] for k in BINI if k.startswith("shift")}, x,
          np.abs(y.astype(np.int64)).astype(y.dtype))
    batch("unary.%s" % d, {k: f for k, f in UNI.items() if not (d.startswith("u") and k in ("abs",))}, x)
    case("ipow.%s" % d, lambda a: lax.integer_pow(a, 3), x)
case("divzero", lambda a, b: (lax.div(a, b), lax.rem(a, b)), np.array([5, -7, -2**31, 0], np.int32),
     np.array([0, 0, -1, 0], np.int32))
batch("bool", {n: getattr(lax, n) for n in "bitwise_and bitwise_or bitwise_xor max min eq ne lt".split()},
      arr((40,), "bool"), arr((40,), "bool"))
case("not.bool", lax.bitwise_not, arr((40,), "bool"))
truth = jax.device_put(np.array([0, 1, 96, 255], np.uint8).view(bool), xl)     # bytes that are no truth values
for d, want in ((jnp.int8, [0, 1, 1, 1]), (jnp.uint8, [0, 1, 96, 255]), (jnp.int32, [0, 1, 1, 1])):  # as XLA has it
    have = np.asarray(jax.jit(lambda a: a.astype(d))(truth)).tolist()
    if have != want:
        bad += 1
        print("FAIL convert.bytes to %s: %s" % (d.__name__, have))
case("digamma.poles", lambda a: lax.digamma(a), np.array([-1, -2, np.inf, -np.inf, np.nan], np.float32))
CU = {n: getattr(lax, n) for n
      in "neg cos sin exp expm1 log log1p sqrt rsqrt tanh sign abs real imag conj tan logistic".split()}
CB = {n: getattr(lax, n) for n in "add sub mul div eq ne pow".split()}
for d in C:
    batch("unary.%s" % d, CU, arr((4, 9), d, -2, 2), ulps=64)
    batch("binary.%s" % d, CB, arr((4, 9), d, -2, 2), arr((4, 9), d, -2, 2), ulps=64)
    some = np.array([0, 1 - 2j, -2.5j, complex(np.inf, 1), complex(-np.inf, np.inf), complex(2, -np.inf),
                     complex(np.nan, 0)], dt(d))
    case("power.finite.%s" % d, lambda a: jnp.isfinite(lax.pow(a[:, None], a[None, 1:])), some)
    case("make.%s" % d, lambda z: lax.complex(z.real, z.imag * 2), arr((4, 9), d))
types = F + ["float8_e4m3fn", "float8_e5m2"] + I + N4 + ["bool"] + C
for d in types:
    x = arr((50,), d, 0 if d.startswith("u") else -4, 4)
    batch("convert.%s" % d, {e: (lambda e: lambda a: lax.convert_element_type(a, dt(e)))(e) for e in types
                             if not (d in C and e not in C)}, x)
case("convert.saturate", lambda a: [a.astype(t) for t in (jnp.int32, jnp.int8, jnp.uint8, jnp.int64)],
     np.array([3e10, -3e10, 300.7, -1.5, 1e20, 2.9], np.float32))
for d in ("float32", "float64", "bfloat16"):
    batch("reduce_precision.%s" % d, {"%d_%d" % em: (lambda em: lambda a: lax.reduce_precision(a, *em))(em) for em
                                      in [(5, 10), (8, 7), (4, 3), (5, 2), (2, 1)]}, arr((200,), d, -300, 300,
                                          special=True))

x = arr((4, 6, 5), "float32")
MOVE = {
    "transpose": lambda a: (a.T, a.transpose(1, 0, 2), a.transpose(0, 2, 1)), "slice": lambda a: (a[1:3, ::2, ::-1],
        a[:, 1:, 2]),
    "pad": lambda a: (lax.pad(a, jnp.asarray(1, a.dtype), ((1, 2, 0), (0, 0, 1), (-1, 2, 2))),
                      lax.pad(a, jnp.asarray(0, a.dtype), ((-2, -1, 0), (-3, 0, 3), (0, -5, 0)))),
    "concat": lambda a: (jnp.concatenate([a, a * 2], 0), jnp.concatenate([a, a[:, :0], a], 1),
                         jnp.concatenate([a, a[..., :2]], 2)),
    "rev": lambda a: (lax.rev(a, (0,)), lax.rev(a, (0, 1, 2))), "reshape": lambda a: (a.reshape(-1), a.reshape(10, 12),
        a.reshape(4, 30).T),
    "broadcast": lambda a: (jnp.broadcast_to(a[:, :1], (3, 4, 6, 5)), lax.broadcast_in_dim(a[0, 0], (5, 7), (0,)),
                            lax.broadcast(a[0, 0, 0], (2, 3))),
    "dynamic_slice": lambda a: (lax.dynamic_slice(a, (3, -2, 9), (2, 3, 4)),
                                lax.dynamic_slice(a, (1, 1, 1), (1, 2, 2))),
    "dynamic_update_slice": lambda a: (lax.dynamic_update_slice(a, a[:2, :2, :2] * 3, (3, 1, -5)),
                                       lax.dynamic_update_slice(a, a[:1] * 2, (2, 0, 0))),
    "gather": lambda a: (a[jnp.array([3, 0, -1, 9])], a[:, jnp.array([[1, 2], [5, 0]])],
                         a[jnp.array([1, 2]), jnp.array([3, 4]), jnp.array([0, 4])],
                         a.reshape(24, 5)[:, jnp.array([4, 0, -1, 9, 2, 2, 1, 3, 0])]),
    "take": lambda a: (jnp.take(a, jnp.array([5, -9, 100]), axis=1, mode="clip"),
                       jnp.take(a, jnp.array([0, 7]), axis=0, mode="fill"), jnp.take_along_axis(a, jnp.argsort(a, 1),
                           1)),
    "scatter": lambda a: (a.at[jnp.array([1, 1, 7])].add(a[:3]), a.at[0,
        jnp.array([1, 2])].set(jnp.ones((2, 5), a.dtype)), a.at[jnp.array([0, 2])].max(a[:2] * 0 + 1), a.at[:,
            2].multiply(2), a.at[jnp.array([0, 0])].min(a[:2])),
    "iota": lambda a: (lax.broadcasted_iota(a.dtype, (3, 4, 5), 1), jnp.arange(7, dtype=a.dtype)),
    "where": lambda a: jnp.where(a > 1, a, 0), "tile": lambda a: jnp.tile(a, (2, 1, 3)), "roll": lambda a: jnp.roll(a,
        2, 1), "diag": lambda a: jnp.diag(a[0, 0]), "tril": lambda a: jnp.tril(a[0]),
}
for d in ["float32", "bfloat16", "int8", "int32", "uint64", "complex64", "complex128", "float8_e4m3fn", "float16"]:
    batch("move.%s" % d, {k: f for k, f in MOVE.items() if not (d in C and k in ("where", "scatter", "take"))},
          arr((4, 6, 5), d))
# numbers, columns, rows, windows that overlap; one index, two, and per batch; some of them outside
at, far = jnp.array([3, 1, 3, -1, 9, 3, 0, -7, 2, 3]), jnp.array([0, 4, 0, 2, 2, 7, 1, 1, -1, 0])
windows = lax.ScatterDimensionNumbers((1,), (), (0,))
SCATTER = {}
for n in "add multiply max min set".split():
    def put(f, n=n):
        return lambda a: f(lambda x, i, u: getattr(x.at[i], n)(u, mode="drop"), a)
    SCATTER[n] = put(lambda s, a: (
        s(a[0, 0], at, a.ravel()[:10]), s(a[0], (at, far), a.ravel()[10:20]), s(a[1], (slice(None), at), a[0, :, :1]),
        s(a, (slice(None), at), a.reshape(4, 3, 2, 5)[:, :1, :1].repeat(10, 1)[:, :, 0]),
        s(a, (slice(None), slice(None), far), a[..., :1]), s(a, (at, slice(None), far), a.reshape(20, 6)[:10]),
        jax.vmap(lambda x, i, u: s(x, i, u))(a, jnp.stack([at, far] * 2), a[:, :1].repeat(10, 1))))
    window = {"add": lax.scatter_add, "multiply": lax.scatter_mul, "max": lax.scatter_max, "min": lax.scatter_min,
              "set": lax.scatter}[n]
    SCATTER[n + " windows"] = lambda a, f=window: f(a.ravel(), at[:, None] * 3, a.reshape(30, 4)[:10], windows)
for d in F + ["int8", "int32", "uint64"]:
    batch("scatter.%s" % d, {k: f for k, f in SCATTER.items() if not (k == "set" or k == "set windows")},
          arr((4, 6, 5), d, special=True))
batch("scatter.set", {k: SCATTER[k] for k in ("set", "set windows")}, np.ones((4, 6, 5), np.float32))
case("scatter.large", lambda i, u: (lax.scatter_add(jnp.zeros(999), i[:, None], u, windows),
                                    jnp.zeros((999, 64)).at[i].add(u), jnp.zeros((64, 999)).at[:, i].add(u.T)),
     rng.integers(-2, 990, 17000).astype(np.int32), rng.integers(-8, 9, (17000, 64)).astype(np.float64), ulps=0)
# the sign of zero: 1 / -0 is not 1 / 0
zeros = np.array([[-0.0, 2.0, 0.0]], np.float32)
case("zero.signs", lambda a: [1 / y for y in (
    a.T @ a, a[:, :1] @ a[:, :1], jnp.einsum("bik,jkb->bji", jnp.stack([a.T, a.T]), jnp.stack([a.T, a.T], 2)),
    jnp.dot(a[0, :1], a[0, 1:2]), lax.reduce_window(a, 0., lax.add, (1, 1), (1, 1), "VALID"), a.sum(0), a @ a.T)],
    zeros, ulps=0)
RED = {}
for ax in (None, 0, 1, 2, (0, 2), (0, 1), (1, 2)):
    for n in "sum prod max min".split():
        RED["%s.%s" % (n, ax)] = (lambda n, ax: lambda a: getattr(jnp, n)(a, axis=ax))(n, ax)
    if ax is None or isinstance(ax, int):
        for n in "argmax argmin".split():
            RED["%s.%s" % (n, ax)] = (lambda n, ax: lambda a: getattr(jnp, n)(a, axis=ax))(n, ax)
for d in F + ["int32", "int8", "uint64", "int64"]:
    batch("reduce.%s" % d, RED, arr((4, 6, 5), d), ulps=32)
    batch("reduce_big.%s" % d, {k: RED[k] for k in RED if k[:3] in ("sum", "max", "arg")}, arr((70, 33, 41), d, -1, 1),
          ulps=2000)
batch("reduce.bool", {"any": lambda a: (a.any(), a.any(1), a.all(0), a.sum(1))}, arr((30, 9), "bool"))
case("reduce.nan", lambda a: (a.max(0), a.min(1), jnp.nanmax(a, 0), a.argmax(0)), arr((7, 8), "float32", special=True))
case("reduce.empty", lambda a: (a[:0].sum(0), a[:, :0].sum(1), a[:0].sum(), a[:0].prod(1)), arr((7, 8), "float32"))
case("reduce.one", lambda a: (jnp.signbit(a.sum(0)), jax.vmap(jnp.sum)(a[0])), np.array([[-0.0, 0.0, 2.0]], np.float32))
case("reduce.xor", lambda a: lax.reduce(a, np.int32(0), lax.bitwise_xor, (0,)), arr((31, 5), "int32"))
case("reduce.region", lambda a: lax.reduce(a, np.float32(0), lambda p, q: p * 0.5 + q, (1,)) * 0,
     arr((31, 5), "float32"))
case("reduce.variadic", lambda a, b: lax.reduce((a, b), (np.float32(-9), np.int32(0)), lambda p,
                                                q: (jnp.maximum(p[0], q[0]), p[1] + q[1]), (0,)), arr((31, 5),
                                                    "float32"), arr((31, 5), "int32"))
by = np.array([2, -3, 0.1])                                 # divisors without an imaginary part; signs of zeros too
finite = np.array([complex(a, b) for a in (0.0, -0.0, 1, -2.5) for b in (0.0, -0.0, 1, -0.7)])[:, None]
odd = np.array([complex(a, b) for a in (1, np.inf, np.nan) for b in (-1, -np.inf, np.nan)])[:, None]
for d in C:
    case("complex.by_real." + d, lambda x, y, z: (z / y, x / 2, x / y, jnp.signbit(jnp.real(x / y)),
                                                        jnp.signbit(jnp.imag(x / y))),
         finite.astype(d), by.astype(d), odd.astype(d))
case("complex.sum", lambda a: (a.sum(), a.sum(0), a.prod(1)), arr((9, 8), "complex64"), ulps=100)
for d in F[:3] + ["int32"]:
    batch("cum.%s" % d, {n: (lambda n: lambda a: (getattr(lax, n)(a, 0), getattr(lax, n)(a, 1), getattr(lax, n)(a, 1, reverse=True)))(n) for n in "cumsum cumprod cummax cummin".split()}, arr((13, 9), d, 0.5, 1.5), ulps=40)
case("cumlogsumexp", lambda a: lax.cumlogsumexp(a, 1), arr((13, 9), "float32"), ulps=40)
x = arr((2, 9, 8, 3), "float32")
batch("window", {
    "max": lambda a: lax.reduce_window(a, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "sum": lambda a: lax.reduce_window(a, 0., lax.add, (1, 2, 3, 1), (1, 1, 2, 1), "VALID"),
    "dilated": lambda a: lax.reduce_window(a, 0., lax.add, (1, 2, 2, 1), (1, 1, 1, 1), ((0, 0), (1, 2), (0, 3), (0, 0)),
                                           (1, 2, 1, 1), (1, 2, 3, 1)),
    "grad": jax.grad(lambda a: (lax.reduce_window(a, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") ** 2).sum()),
    "columns": lambda a: lax.reduce_window(a, 0., lax.add, (1, 1, 3, 2), (1, 1, 1, 2), "SAME"),
    "spread": lambda a: lax.reduce_window(a, 0., lax.add, (1, 2, 3, 1), (1, 3, 2, 1), ((0, 0), (2, 1), (0, 4), (0, 0)),
                                          base_dilation=(1, 2, 3, 1), window_dilation=(1, 1, 2, 1)),
    "first": lambda a: lax.reduce_window(a, -np.inf, lax.max, (2, 1, 1, 1), (1, 1, 1, 1), "SAME"),
    "wide": lambda a: lax.reduce_window(a.reshape(2, -1, 5 * a.shape[-1]).repeat(80, -1), 0., lax.add, (1, 3, 1),
                                        (1, 2, 1), "SAME"),
    "prod": lambda a: lax.reduce_window(a, 1., lax.mul, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")}, x, ulps=64)
for d, channels in (("bfloat16", 2), ("float16", 2), ("int16", 2), ("int8", 4)):  # all channels together are four bytes
    case("window.nothing.left.%s" % d, lambda a: lax.reduce_window(a[:, :1], np.zeros((), a.dtype), lax.add, (1, 2, 1),
                                                                   (1, 1, 1), [(0, 0), (-1, -1), (0, 0)]),
         np.zeros((2, 9, channels), dt(d)))
    case("window.channels.%s" % d, lambda a: (
        lax.reduce_window(a, np.zeros((), a.dtype), lax.add, (1, 1, 1), (1, 2, 1), "VALID"),
        lax.reduce_window(a, np.zeros((), a.dtype), lax.max, (1, 2, 1), (1, 2, 1), "SAME")),
         (np.arange(2 * 9 * channels) % 100).reshape(2, 9, channels).astype(dt(d)))
for d in F + ["int32", "int8", "complex64", "float8_e4m3fn"]:
    u = 64 if d in F[:2] + C else 4
    batch("dot.%s" % d, {
        "mm": lambda a, b: a[0] @ b[0], "mv": lambda a, b: a[0] @ b[0, :, 0], "vv": lambda a, b: a[0, 0] @ b[0, :,
            0], "bmm": lambda a, b: a @ b,
        "t": lambda a, b: lax.dot_general(a, b, (((2,), (1,)), ((0,),
            (0,)))), "outer": lambda a, b: jnp.einsum("bij,bjk->ikb", a, b),
        "two": lambda a, b: lax.dot_general(a, b.transpose(0, 2, 1),
                                            (((0, 2), (0, 2)), ((),
                                                ()))), "mid": lambda a, b: jnp.einsum("bij,bjk->bki", a, b)},
        arr((3, 5, 7), d, -1, 1), arr((3, 7, 4), d, -1, 1), ulps=u)
for d in C:
    for b, m, k, n in [(5, 7, 1, 67), (3, 1, 9, 130), (2, 70, 5, 3), (1, 33, 17, 1), (4, 3, 100, 16), (0, 3, 2, 5),
                       (2, 3, 0, 5), (1, 129, 8, 65)]:
        x, y = arr((b, m, k), d, -1, 1), arr((b, n, k), d, -1, 1)
        batch("dot.pairs.%s.%dx%dx%dx%d" % (d, b, m, k, n), {
            "right": lambda x, y: x @ y.mT, "turned": lambda x, y: y @ x.mT,
            "mixed": lambda x, y: lax.dot_general(x.real, y, (((2,), (2,)), ((0,), (0,)))),
            "batch": lambda x, y: jnp.einsum("bmk,bnk->mnb", x, y), "all": lambda x, y: jnp.einsum(
                "bmk,bnk->mn", x, y), "outer": lambda x, y: jnp.einsum("bmk,cnk->bncm", x[:, :, ::2], y[:, :, ::2])},
            x, y, ulps=64)
case("dot.mixed", lambda a, b: lax.dot(a, b, preferred_element_type=jnp.float32), arr((9, 33), "bfloat16"),
     arr((33, 8), "bfloat16"), ulps=64)
case("dot.i8i32", lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32), arr((9, 33), "int8"),
     arr((33, 8), "int8"))
case("dot.one.turned", lambda a, b: (lambda t: t @ b + t)(a.transpose(1, 0, 2)), arr((255, 255, 1), "float32"),
     arr((1, 1), "float32"))                         # what is copied once is read under two names
ends = np.array([[2**32 - 1, 2**32 - 1, 3], [2**31, 2**32 - 1, 2**32 - 2]], np.uint32)
case("dot.integers.to.float", lambda a: (lax.dot(a, a.T, preferred_element_type=jnp.float32),
                                         lax.conv_general_dilated(a[:, :, None], a[:, :, None], (1,), [(1, 0)],
                                                                  preferred_element_type=jnp.float32)), ends)
case("dot.big", lambda a, b: a @ b, arr((200, 300), "float32", -1, 1), arr((300, 170), "float32", -1, 1), ulps=400)
case("dot.empty", lambda a, b: (a[:, :0] @ b[:0], a[:0] @ b), arr((5, 7), "float32"), arr((7, 4), "float32"))
def conv(dn, **kw):
    return lambda a, k: lax.conv_general_dilated(a, k, dimension_numbers=dn, **kw)
for d in ("float32", "float64", "bfloat16"):
    u = 64 if d != "bfloat16" else 4
    a, k = arr((2, 8, 9, 4), d, -1, 1), arr((3, 3, 4, 6), d, -1, 1)
    NH = ("NHWC", "HWIO", "NHWC")
    batch("conv.%s" % d, {"same": conv(NH, window_strides=(1, 1), padding="SAME"),
                          "stride": conv(NH, window_strides=(2, 3), padding="VALID"),
        "dilate": conv(NH, window_strides=(1, 2), padding=((1, 2), (0, 3)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)),
        "grad": lambda a, k: jax.grad(lambda a, k: (lax.conv_general_dilated(a, k, (2, 1), "SAME",
            dimension_numbers=NH) ** 2).sum(), (0, 1))(a, k)}, a, k, ulps=u)
    case("conv.groups.%s" % d, conv(NH, window_strides=(1, 1), padding="SAME", feature_group_count=2), a, k[:, :, :2],
         ulps=u)
    case("conv.depthwise.%s" % d, conv(NH, window_strides=(1, 1), padding="SAME", feature_group_count=4), a,
         arr((3, 3, 1, 8), d, -1, 1), ulps=u)
    for ci, co, g in [(1, 1, 24), (1, 3, 12), (3, 1, 12), (1, 2, 5), (2, 3, 5), (8, 8, 3), (1, 8, 3), (1, 1, 257)]:
        batch("conv.groups.%s.%dx%dx%d" % (d, g, ci, co), {
            "same": conv(NH, window_strides=(1, 1), padding="SAME", feature_group_count=g),
            "stride": conv(NH, window_strides=(2, 3), padding=((1, 0), (2, 4)), feature_group_count=g),
            "cut": conv(NH, window_strides=(1, 2), padding=((-1, 2), (-2, 0)), rhs_dilation=(1, 2),
                        feature_group_count=g),
            "dilate": conv(NH, window_strides=(1, 2), padding=((1, 2), (0, 3)), lhs_dilation=(2, 3),
                           rhs_dilation=(2, 1), feature_group_count=g),
            "none": lambda a, k, g=g: conv(NH, window_strides=(1, 1), padding="SAME", feature_group_count=g)(a[:0], k),
            "nchw": lambda a, k, g=g: conv(("NCHW", "OIHW", "NCHW"), window_strides=(1, 1), padding="SAME",
                                           feature_group_count=g)(a.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1)),
            "grad": lambda a, k, g=g: jax.grad(lambda a, k: (lax.conv_general_dilated(
                a, k, (2, 1), "SAME", dimension_numbers=NH, feature_group_count=g) ** 2).sum(), (0, 1))(a, k)},
            arr((2, 5, 7, ci * g), d, -1, 1), arr((3, 3, ci, co * g), d, -1, 1), ulps=u)
        case("conv.groups.1d.%s.%dx%dx%d" % (d, g, ci, co), conv(("NWC", "WIO", "NWC"), window_strides=(1,),
             padding=[(3, 0)], feature_group_count=g), arr((2, 67, ci * g), d, -1, 1), arr((4, ci, co * g), d, -1, 1),
             ulps=u)
    case("conv.batch_groups.%s" % d, conv(NH, window_strides=(1, 1), padding="SAME", batch_group_count=2), a, k, ulps=u)
    case("conv.nchw.%s" % d, conv(("NCHW", "OIHW", "NCHW"), window_strides=(1, 1), padding="SAME"),
         arr((2, 4, 8, 9), d, -1, 1), arr((6, 4, 3, 3), d, -1, 1), ulps=u)
    case("conv.rows.%s" % d, conv(NH, window_strides=(1, 2), padding=((3, 1), (2, 5))), arr((2, 5, 27, 5), d, -1, 1),
         arr((5, 3, 5, 32), d, -1, 1), ulps=u)
    case("conv.1d.%s" % d, lambda a, k: jnp.convolve(a, k), arr((20,), d), arr((5,), d), ulps=u)
    case("conv.nothing.%s" % d, conv(lax.ConvDimensionNumbers((2, 1, 0), (2, 0, 1), (1, 2, 0)), window_strides=(1,),
                                     padding=[(0, 0)]), arr((1, 9, 2), d), arr((9, 3, 1), d))  # a window too large
for d in F + ["int32", "uint8", "bool"]:
    x = arr((6, 50), d, special=d in F)
    batch("sort.%s" % d, {"0": lambda a: jnp.sort(a, 0), "1": lambda a: jnp.sort(a, 1),
                          "arg": lambda a: jnp.argsort(a, 1), "desc": lambda a: jnp.sort(a, 1, descending=True)}, x)
    if d != "bool":
        case("top_k.%s" % d, lambda a: lax.top_k(a, 5), arr((6, 50), d))
case("sort.multi", lambda a, b: lax.sort((a, b, a + b), num_keys=2, dimension=0), arr((40, 3), "int32"),
     arr((40, 3), "float32"))
case("sort.complex", lambda a: jnp.sort(a, 0), arr((40, 3), "complex64"))
case("sort.long", lambda a: (jnp.sort(a), jnp.argsort(a)), arr((3001,), "float32"))
case("unique", lambda a: jnp.unique(a, size=20), arr((40,), "int32"))
case("searchsorted", lambda a, b: jnp.searchsorted(jnp.sort(a), b), arr((40,), "float32"), arr((9,), "float32"))
case("median", lambda a: (jnp.median(a, 1), jnp.percentile(a, 30)), arr((5, 9), "float32"))
batch("control", {
    "scan": lambda a: lax.scan(lambda c, y: (c * 0.5 + y, c.sum()), jnp.zeros(5, a.dtype),
                               a), "rscan": lambda a: lax.scan(lambda c, y: (c + y, c), a[0], a, reverse=True),
    "swap": lambda a: lax.fori_loop(0, 5, lambda i, v: (v[1], v[0] + 1, v[2].at[i].set(i)),
                                    (a, a + 1, jnp.zeros(7, a.dtype))),
    "nested": lambda a: lax.fori_loop(0, 3, lambda i, v: lax.fori_loop(0, i + 1, lambda j, w: w * 1.1 + j, v), a),
    "while": lambda a: lax.while_loop(lambda v: v[0].sum() < 100, lambda v: (jnp.abs(v[0]) * 1.5 + 1, v[1] + 1),
                                      (a, 0)),
    "cond": lambda a: (lax.cond(a[0, 0] > 0, lambda x: x + 1, lambda x: x * 2, a),
                       lax.cond(a[0, 0] <= 0, lambda x: x + 1, lambda x: x * 2, a)),
    "switch": lambda a: [lax.switch(i, [lambda x: x, lambda x: x + 1, lambda x: x.sum() * jnp.ones_like(x)], a) for i
                         in (-1, 1, 7)],
    "condscan": lambda a: lax.scan(lambda c, y: (lax.cond(y[0] > 0, lambda c: c + y, lambda c: c * 0.9, c), c),
                                   jnp.zeros(5, a.dtype), a),
    "scangrad": lambda a: jax.grad(lambda a: lax.scan(lambda c, y: (jnp.tanh(0.1 * (c + y)), c), a[0], a)[0].sum())(a),
    "map": lambda a: lax.map(lambda r: r.sum() * r, a), "assoc": lambda a: lax.associative_scan(jnp.add, a,
        axis=0), "vmap": lambda a: jax.vmap(lambda r: lax.cond(r.sum() > 0, jnp.sin, jnp.cos, r))(a)},
    arr((7, 5), "float32"), ulps=64)
case("threefry", lambda: [jax.random.bits(jax.random.key(3), (5, 7), t) for t
                          in (np.uint8, np.uint16, np.uint32, np.uint64)])
batch("random", {"normal": lambda s: jax.random.normal(jax.random.key(s), (99,)),
                 "uniform": lambda s: jax.random.uniform(jax.random.key(s), (5, 9), jnp.float64),
    "perm": lambda s: jax.random.permutation(jax.random.key(s), 50), "cat": lambda s: jax.random.categorical(jax.random.key(s), jnp.arange(20.), shape=(9,)), "randint": lambda s: jax.random.randint(jax.random.key(s), (40,), -5, 9),
    "gumbel": lambda s: jax.random.gumbel(jax.random.key(s), (40,), jnp.float32), "gamma": lambda s: jax.random.gamma(jax.random.key(s), 2.5, (10,), jnp.float32), "bern": lambda s: jax.random.bernoulli(jax.random.key(s), 0.3, (40,)),
    "trunc": lambda s: jax.random.truncated_normal(jax.random.key(s), -1, 1, (30,),
                                                   jnp.float32)}, np.int32(7), ulps=200)
for alg in (lax.RandomAlgorithm.RNG_THREE_FRY, lax.RandomAlgorithm.RNG_PHILOX, lax.RandomAlgorithm.RNG_DEFAULT):
    batch("rng_bits.%s" % alg.name, {"%s.%s" % (t, sh): (lambda t, sh: lambda k: lax.rng_bit_generator(k, sh, dt(t),
                                                                                                       alg))(t, sh)
                                     for t in ("uint8", "uint16", "uint32", "uint64")
                                     for sh in ((), (7,), (3, 5), (4, 6), (3, 4), (5, 1, 9))},
          np.array([1, 2, 3, 4], np.uint32))
def spd(n, d):
    a = rng.normal(size=(2, n, n))
    return (a @ a.transpose(0, 2, 1) + n * np.eye(n)).astype(d)
for d in ("float32", "float64"):
    s, b = spd(7, d), arr((2, 7, 3), d)
    batch("linalg.%s" % d, {"cholesky": lambda s, b: jnp.linalg.cholesky(s), "upper": lambda s,
                            b: lax.linalg.cholesky(s,
                                                   symmetrize_input=False).mT, "solve": lambda s, b: jnp.linalg.solve(s,
                                                       b), "inv": lambda s, b: jnp.linalg.inv(s),
        "qr": lambda s, b: [jnp.abs(q) for q in jnp.linalg.qr(b)], "det": lambda s, b: jnp.linalg.det(s), "slogdet": lambda s, b: jnp.linalg.slogdet(s), "lu": lambda s, b: jax.scipy.linalg.lu(s[0]), "norm": lambda s, b: jnp.linalg.norm(b)}, s, b, ulps=500)
    fs = {}
    for lower in (True, False):
        for left in (True, False):
            for tr in (False, True):
                for unit in (False, True):
                    fs["%d%d%d%d" % (lower, left, tr, unit)] = (lambda lo, le, t, u: lambda a,
                        b: lax.linalg.triangular_solve(a, b if le else b.mT, left_side=le, lower=lo, transpose_a=t,
                                                       unit_diagonal=u))(lower, left, tr, unit)
    batch("tri.%s" % d, fs, s, b, ulps=2000)
for d in ["float32", "float64", "complex64", "complex128"]:
    a, w = arr((3, 7, 7), d), arr((3, 5, 7), d)
    h = a + a.conj().swapaxes(-1, -2)
    batch("decompose.%s" % d, {"eigh": lambda h, a, w: jnp.linalg.eigvalsh(h), "upper": lambda h, a,
                               w: jnp.linalg.eigh(jnp.triu(h), UPLO="U")[0],
        "jacobi": lambda h, a, w: lax.linalg.eigh(h, implementation=lax.linalg.EighImplementation.QR if jax.config.jax_default_device is None else lax.linalg.EighImplementation.JACOBI)[1],
        "vectors": lambda h, a, w: (lambda r: (r[1] * r[0][:, None, :]) @ r[1].conj().mT)(jnp.linalg.eigh(h)), "svd": lambda h, a, w: jnp.linalg.svd(w, compute_uv=False),
        "wide": lambda h, a, w: (lambda r: (r[0] * r[1][:, None, :]) @ r[2])(jnp.linalg.svd(w,
            full_matrices=False)), "full": lambda h, a, w: (lambda u: u @ u.conj().mT)(jnp.linalg.svd(w.mT)[0]),
        "eig": lambda h, a, w: (lambda r: jnp.linalg.norm(a @ r[1] - r[1] * r[0][:, None,
            :]) < 1e-3)(jnp.linalg.eig(a)), "sum": lambda h, a, w: jnp.linalg.eigvals(a).sum(),
        "hessenberg": lambda h, a, w: jnp.abs(jax.scipy.linalg.hessenberg(a[0])), "tridiagonal": lambda h, a, w: [jnp.abs(t) for t in lax.linalg.tridiagonal(h)[1:3]],
        "pivots": lambda h, a, w: (lambda r: (jnp.abs(r[1]), r[2]))(jax.scipy.linalg.qr(a[0], pivoting=True)), "pinv": lambda h, a, w: jnp.linalg.pinv(w), "rank": lambda h, a, w: jnp.linalg.matrix_rank(w)}, h, a, w, ulps=2000)
# real Schur form: eigenvalues in LAPACK's order, pairs in blocks of two rows
for d in ["float32", "float64"]:
    a = arr((3, 8, 8), d)
    batch("schur.%s" % d, {"back": lambda a: (lambda t, z: z @ t @ z.mT)(*lax.linalg.schur(a)),
                           "upright": lambda a: (lambda z: z @ z.mT)(lax.linalg.schur(a)[1]),
        "form": lambda a: jnp.abs(jnp.tril(lax.linalg.schur(a)[0],
                                           -2)).max(), "small": lambda a: (jnp.linalg.eigvals(a[:, :2, :2]),
                                               jnp.linalg.eigvals(a[:, :2, :2].astype(jnp.complex64)))}, a, ulps=20000)
case("schur.order", lambda a: (jnp.linalg.eigvals(a), jnp.diagonal(lax.linalg.schur(a)[0], axis1=1, axis2=2)), a,
     ulps=20000)
for d in ["float32", "float64", "complex64", "complex128"]:
    v = [arr((3, 9), d) for i in range(3)] + [arr((3, 9, 2), d)]
    v[1][0, :3] = 0                                  # the first system needs its rows exchanged
    batch("tridiagonal.%s" % d, {"solve": lambda *v: lax.linalg.tridiagonal_solve(*v),
                                 "perturbed": lambda *v: lax.linalg.tridiagonal_solve(*v, perturb_singular=True),
        "singular": lambda l, d, u, b: (jnp.isnan(lax.linalg.tridiagonal_solve(l * 0, d * 0, u * 0, b)),
                                        jnp.isfinite(lax.linalg.tridiagonal_solve(l * 0, d * 0, u * 0, b,
                                            perturb_singular=True)))}, *v, ulps=20000)
case("svd.zero", lambda a: (lambda r: (r[1], jnp.abs(r[0] @ r[0].mT)))(jnp.linalg.svd(a)), np.zeros((4, 3), np.float32))
# A guessed bound, from every sixteenth: right, far too low (the sample has the largest), no use (all are equal).
line = arr((3, 1024), "float32")
sampled, ties, few = line.copy(), np.round(line), np.zeros((2, 1024), np.int32)
sampled[:, ::16] += 100
few[:, ::9] = 1
for name, a in (("any", line), ("up", np.sort(line)), ("down", -np.sort(line)), ("sampled", sampled), ("ties", ties),
                ("equal", np.ones((2, 1024), np.float32)), ("few", few), ("short", line[:, :256])):
    for k in (1, 32, 100):
        case("top_k.%s.%d" % (name, k), lambda a, k=k: lax.top_k(a, k), a)
case("top_k.nan", lambda a: lax.top_k(a, 5), np.array([np.inf, np.nan, np.uint32(0xffc00000).view(np.float32), -np.inf,
                                                       3], np.float32))
case("dot.complex", lambda a, b: a @ b, arr((4, 3), "complex64"), arr((3, 6), "complex64"))
case("empty.constant", lambda a: jnp.concatenate([a, jnp.zeros((0, 3), a.dtype)]), arr((2, 3), "complex64"))
case("cholesky.complex", lambda a: jnp.linalg.cholesky(a @ a.conj().mT + 9 * jnp.eye(5, dtype=a.dtype)),
     arr((5, 5), "complex64"), ulps=300)
for n in (1, 2, 5, 8, 12, 17, 30, 64, 97, 128, 192, 512):
    z = arr((3, n), "complex64")
    batch("fft.%d" % n, {"fft": lambda z: jnp.fft.fft(z), "ifft": lambda z: jnp.fft.ifft(z),
                         "rfft": lambda z: jnp.fft.rfft(z.real), "irfft": (lambda n: lambda z: jnp.fft.irfft(z,
                             2 * n - 1 if n > 1 else 1))(n), "irfft2": (lambda n: lambda z: jnp.fft.irfft(z,
                                 2 * n - 2 if n > 1 else 1))(n)}, z, ulps=300)
for n in (17, 31, 34, 37, 62, 74, 289):          # radix 17 and 31, and Bluestein's; what must be real is
    case("rfft.real.%d" % n, lambda x, n=n: jnp.fft.rfft(x)[:, ::n // 2 if n % 2 == 0 else n].imag,
         arr((5, n), "float32"),
         ulps=0)
for n in (9, 33, 105, 341):                      # odd lengths of several radices: stages on reals
    case("rfft.odd.%d" % n, lambda x, n=n: (jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x), n)),
         arr((19, n), "float32"),
         ulps=300)
same_bits = 0 if platform.machine() == "x86_64" else 500      # elsewhere XLA's are contracted
for n in (3, 7, 8, 15, 16, 17, 24, 26, 32, 48):  # stages whose products are rounded: XLA's bits
    case("fft.bits.%d" % n, lambda z: (jnp.fft.fft(z), jnp.fft.ifft(z)), arr((19, n), "complex64"), ulps=same_bits)
for n in (4, 6, 8, 12, 16, 32, 60, 64, 200, 256, 512):
    case("rfft.bits.%d" % n, lambda x, n=n: (jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x), n)),
         arr((19, n), "float32"),
         ulps=same_bits)
case("fftn.bits", lambda z: (jnp.fft.fftn(z, axes=(1, 2, 3)), jnp.fft.ifftn(z, axes=(1, 2, 3)),
                             jnp.fft.irfftn(z, (15, 16, 32), axes=(1, 2, 3))), arr((2, 15, 16, 17), "complex64"),
     ulps=same_bits)
case("fft2", lambda z: (jnp.fft.fft2(z), jnp.fft.ifft2(z), jnp.fft.rfft2(z.real), jnp.fft.irfft2(z), jnp.fft.fftn(z)),
     arr((3, 6, 5), "complex64"), ulps=500)
for n in (1, 15, 16, 17, 31, 32, 33, 48, 63, 65, 77, 127, 129, 195, 300):   # rows that end within a strip
    batch("rows.%d" % n, {
        "softmax": lambda a, b: jax.nn.softmax(a / 3 + b), "masked": lambda a, b: jax.nn.softmax(
            a * .3, where=b < 1, axis=-1), "norm": lambda a, b: (a - a.mean(-1, keepdims=True)) / jnp.sqrt(
                a.var(-1, keepdims=True) + 1) * b, "sums": lambda a, b: ((a * b).sum(-1), (a + b).sum(-1) * 2, a - b),
        "turned": lambda a, b: jax.nn.softmax(a.reshape(4, 5, -1).swapaxes(0, 1) * 2) + b[:5, None]},
        arr((20, n), "float32"), arr((20, n), "float32"), ulps=64)
    a = arr((20, n), "float32", special=True)
    a[3] = -0.0
    if n == 300:                                         # XLA's CPU loses the NaN of such a row
        a[0, 0] = 1
    batch("rows.ends.%d" % n, {"max": lambda a, b: (a * b).max(-1), "min": lambda a, b: (a + b).min(-1),
                               "sum": lambda a, b: (a * b).sum(-1), "exp": lambda a, b: jnp.exp(a - a.max(-1,
                                   keepdims=True))}, a, arr((20, n), "float32"), ulps=64)
batch("nn", {"softmax": jax.nn.softmax, "gelu": jax.nn.gelu, "gelu2": lambda a: jax.nn.gelu(a, approximate=False),
             "silu": jax.nn.silu, "logsumexp": lambda a: jax.nn.logsumexp(a,
                 1), "onehot": lambda a: jax.nn.one_hot(jnp.arange(5), 7),
    "layernorm": lambda a: (a - a.mean(1, keepdims=True)) / jnp.sqrt(a.var(1, keepdims=True)
        + 1e-5), "var": lambda a: (a.var(), a.std(0)), "xent": lambda a: -jax.nn.log_softmax(a)[:, 0].mean(),
    "xentgrad": lambda a: jax.grad(lambda a: -jax.nn.log_softmax(a)[:, 0].mean())(a)}, arr((9, 33), "float32"), ulps=64)
batch("numpy", {"histogram": lambda a: jnp.histogram(a.ravel(), 7)[0], "interp": lambda a: jnp.interp(a[0], jnp.linspace(-4, 4, 9), jnp.arange(9.)), "cov": lambda a: jnp.cov(a), "kron": lambda a: jnp.kron(a[:2, :3], a[:3, :2]), "cross": lambda a: jnp.cross(a[:, :3], a[:, 3:6]),
    "polyval": lambda a: jnp.polyval(a[0, :4], a[1]), "diff": lambda a: jnp.diff(a, 2), "gradient": lambda a: jnp.gradient(a), "nan": lambda a: jnp.nan_to_num(jnp.log(a)), "floor_divide": lambda a: (a // 0.7, a % 0.7, jnp.divmod(a, -0.3)), "trapezoid": lambda a: jnp.trapezoid(a), "meshgrid": lambda a: jnp.meshgrid(a[0, :3], a[1, :2])},
    arr((6, 12), "float32"), ulps=200)
case("bitcast", lambda a: (lax.bitcast_convert_type(a, jnp.int32), lax.bitcast_convert_type(a, jnp.uint8),
                           lax.bitcast_convert_type(lax.bitcast_convert_type(a, jnp.uint16), jnp.float32)), arr((5, 3),
                               "float32"))
case("approx_max_k", lambda a: lax.approx_max_k(a, 4), arr((3, 60), "float32"))
case("approx_min_k", lambda a: lax.approx_min_k(a, 4), arr((3, 60), "float32"))
case("igamma", lambda a: (lax.igamma(a, a * 0.7), lax.igammac(a, a * 1.2), lax.betainc(a, a + 1, a / 9)),
     arr((20,), "float32", 0.5, 5), ulps=500)
case("zeta", lambda a: (lax.zeta(a + 1.5, a), lax.polygamma(jnp.ones_like(a) * 2, a), lax.bessel_i1e(a),
                        lax.bessel_i0e(a)), arr((20,), "float32", 0.5, 5), ulps=500)
# JAX's CPU is the less exact one
case("lgamma", lambda a: (lax.lgamma(a), lax.atanh(a / 5)), arr((99,), "float32"), ulps=400)
case("token", lambda a: lax.optimization_barrier((a, a + 1)), arr((5,), "float32"))
def in_order():
    """A body that is not associative folds its elements one after another. (JAX's CPU itself does so only along some axes: numpy is the reference.)"""
    global bad, total
    v = arr((7, 300), np.float32)
    for axis in (0, 1):
        total += 1
        with jax.default_device(xl):
            have = jax.jit(lambda v: lax.reduce(v, np.float32(1), lambda x, y: x - y, (axis,)))(v)
        if not np.allclose(have, 1 - np.asarray(v, np.float64).sum(axis), 1e-4, 1e-3):
            bad += 1
            print("FAIL reduce.in_order: axis %d" % axis)
    case("reduce.in_order.window", lambda v: [lax.reduce_window(v, np.float32(0), lambda x, y: x - y, w, (1, 1), p)
                                              for w, p in (((3, 2), "SAME"), ((7, 1), ((6, 0), (0, 0))),
                                                           ((1, 9), "VALID"))], v, ulps=256)
if not only or "reduce.in_order".startswith(only):
    in_order()
# Outputs of a row together with 16, 32 and 48 features, widths that no tile divides; a kernel's gradient in parts.
for co in (16, 32, 48, 64):
    for w in (12, 13, 27):
        case("conv.line.%d.%d" % (co, w), conv(NH, window_strides=(1, 1), padding="SAME"),
             arr((2, 5, w, 7), "float32", -1, 1), arr((3, 5, 7, co), "float32", -1, 1), ulps=256)
    case("conv.kernel_grad.%d" % co, lambda x, g, co=co: jax.vjp(lambda k: conv(NH, window_strides=(1, 1),
         padding="SAME")(x, k), jnp.zeros((3, 3, 5, co)).astype(x.dtype))[1](g)[0],
         arr((8, 16, 17, 5), "float64" if co == 48 else "float32", -1, 1),
         arr((8, 16, 17, co), "float64" if co == 48 else "float32", -1, 1), ulps=2048)
case("conv.zeros", lambda g: conv(NH, window_strides=(1, 1), padding=((0, 1), (0, 1)), lhs_dilation=(2, 2))(
    g, jnp.ones((1, 1, 3, 5), jnp.float32)), arr((2, 4, 5, 3), "float32"))

if not only and jax.__version__.startswith("0.10."):       # others may lower to other ops
    for path in glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases", "*.mlir")):
        with open(path, encoding="utf-8") as f:
            met["cases/" + os.path.basename(path)] = ops_in(f.read())
    lies = ["%s has no %s" % (name, op) for op, name in VALUE.items() if op not in met.get(name, ())]
    if lies:
        bad += 1
        print("FAIL ops.covered: %s" % "; ".join(lies))
print("jax_ops: %d cases, %d failed, %.0f s" % (total, bad, time.time() - t0), file=sys.stderr)
print("%s jax_ops" % ("FAIL" if bad else "ok"))
sys.exit(1 if bad else 0)
