"""The largest error of each elementary function on the xlane device, in units in the last place, against mpmath:
arguments of all exponents and ordinary ones, f32 and f64. It must be at most what the table in docs/kernels.md says,
and for functions that XLA expands into formulas at most the error of XLA's CPU on the same arguments. XLANE_TEST_ALL=1
takes fifty times as many arguments; `ulp.py table` prints the table as measured."""
import math, os, re, sys
from _jax import here, lib
import mpmath
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax
jax.config.update("jax_enable_x64", True)
xl, cpu = jax.devices("xlane")[0], jax.devices("cpu")[0]
mpmath.mp.prec = 140
many = 10000 if os.environ.get("XLANE_TEST_ALL") == "1" else 200
M = mpmath
functions = {                                        # the function, mpmath's, and the ordinary arguments
    "exp": (lax.exp, M.exp, (-80, 80)), "expm1": (lax.expm1, M.expm1, (-20, 20)),
    "log": (lax.log, M.log, (1e-9, 1e9)), "log1p": (lax.log1p, M.log1p, (-0.99, 5)), "tanh": (lax.tanh, M.tanh,
        (-6, 6)),
    "logistic": (lax.logistic, lambda x: 1 / (1 + M.exp(-x)), (-20, 20)), "sin": (lax.sin, M.sin,
        (-30, 30)), "cos": (lax.cos, M.cos, (-30, 30)),
    "tan": (lax.tan, M.tan, (-30, 30)), "sqrt": (lax.sqrt, M.sqrt, (0, 100)), "rsqrt": (lax.rsqrt,
        lambda x: 1 / M.sqrt(x), (1e-6, 100)),
    "cbrt": (lax.cbrt, lambda x: M.sign(x) * M.cbrt(abs(x)), (-100, 100)), "erf": (lax.erf, M.erf, (-4, 4)),
    "sinh": (lax.sinh, M.sinh, (-10, 10)), "cosh": (lax.cosh, M.cosh, (-10, 10)), "asin": (lax.asin, M.asin,
        (-1, 1)), "acos": (lax.acos, M.acos, (-1, 1)),
    "atan": (lax.atan, M.atan, (-10, 10)), "asinh": (lax.asinh, M.asinh, (-10, 10)), "acosh": (lax.acosh, M.acosh,
        (1, 10)),
    "atanh": (lax.atanh, M.atanh, (-0.999, 0.999)),
    "exp2": (lax.exp2, lambda x: M.mpf(2) ** x, (-100, 100)), "erfc": (lax.erfc, M.erfc, (-4, 9)),
    "lgamma": (lax.lgamma, lambda x: M.re(M.loggamma(x)), (0, 10)), "digamma": (lax.digamma, M.digamma, (0, 10)),
    "pow": (lax.pow, lambda x, y: x ** y, (0.01, 20)), "atan2": (lax.atan2, M.atan2, (-10, 10)),
}
expanded = ("exp2", "erfc", "lgamma", "digamma", "sinh", "cosh")

def arguments(name, dtype, lo, hi, rng):
    bits = np.uint32 if dtype == np.float32 else np.uint64
    any_bits = rng.integers(0, 2 ** (32 if dtype == np.float32 else 64), many, dtype=bits).view(dtype)
    near = (rng.uniform(lo, hi, 2 * many)).astype(dtype)
    small = (rng.uniform(-1, 1, many // 2) * 10.0 ** rng.uniform(-6, 0, many // 2)).astype(dtype)
    x = np.concatenate([any_bits, near, small])
    if name in ("sin", "cos", "tan"):
        x = x[np.abs(x) < 1e9]
    # zeros between the poles left of 0: there f64 has no more than libm's absolute error
    if name in ("lgamma", "digamma"):
        x = np.concatenate([np.abs(x), rng.uniform(0.99, 2.01, many).astype(dtype)])
    return x

def error(got, exact, dtype):
    if not math.isfinite(got):
        return None
    info = np.finfo(dtype)
    e = M.frexp(exact)[1] - 1 if exact else -2000
    if abs(exact) > M.mpf(float(info.max)) or abs(exact) < M.mpf(float(info.tiny)):
        return None                                  # overflow and underflow have rules of their own
    return float(abs(M.mpf(got) - exact) / M.mpf(2) ** (e - info.nmant))

def worst(name, dtype, devices):
    """The largest error on each of the devices."""
    fn, true, (lo, hi) = functions[name]
    rng = np.random.default_rng(len(name) * 1000 + ord(name[0]))
    x = arguments(name, dtype, lo, hi, rng)
    args = [x] if name not in ("pow", "atan2") else [np.abs(x) if name == "pow" else x,
                                                     rng.uniform(-8, 8, x.size).astype(dtype)]
    got = [np.asarray(jax.jit(fn)(*[jax.device_put(a, d) for a in args])) for d in devices]
    most = [0.0] * len(devices)
    for i in range(x.size):
        try:
            exact = true(*[M.mpf(float(a[i])) for a in args])
        except (ValueError, ZeroDivisionError, OverflowError, TypeError):
            continue
        if isinstance(exact, M.mpc) or not M.isfinite(exact) or not all(math.isfinite(a[i])
            and (a[i] == 0 or abs(a[i]) >= np.finfo(dtype).tiny) for a in args):
            continue
        most = [max(m, error(float(g[i]), exact, dtype) or 0.0) for m, g in zip(most, got)]
    return most

with open(os.path.join(here, "docs", "kernels.md")) as f:
    said = {m[1]: (float(m[2]), float(m[3])) for m in re.finditer(r"^\| `(\w+)` \| ([0-9.]+) \| ([0-9.]+) \|$",
        f.read(), re.M)}
bad = 0
for name in functions:
    beside = [xl, cpu] if name in expanded else [xl]
    both = worst(name, np.float32, beside), worst(name, np.float64, beside)
    measured, theirs = [b[0] for b in both], [b[-1] for b in both]
    if len(sys.argv) > 1:
        print("| `%s` | %.2f | %.2f |" % (name, *measured), flush=True)
        continue
    fine = name in said and all(m <= s and m <= max(t, 1) for m, s, t in zip(measured, said[name], theirs))
    bad += not fine
    print("%s ulp %s: %.2f in f32, %.2f in f64%s" % ("ok" if fine else "FAIL", name, *measured, "" if fine else "; docs/kernels.md says %s" % (said.get(name),) + ", XLA's CPU has %.2f and %.2f" % tuple(theirs)), flush=True)
sys.exit(bad > 0)
