"""Every gradient rule against finite differences, on the embedded device, in f64: the loss program is run at x + hv and
x - hv, its gradient program (xlane grad) at x, and <gradient, v> must be the difference quotient. Quotients of two
widths are combined (Richardson), which leaves an error of h^4, so agreement is asked to 1e-8 of the largest element of
the argument's gradient. Directions: single elements, and random ones over all arguments. The build
asks for a case of every op that has a gradient. (Row T1)"""
import os, re, subprocess, sys, tempfile
from _covered import covered
sys.path.pop(0)                                      # a test of the same name as a module would be taken for it
os.environ["JAX_PLATFORMS"] = "xlane,cpu"
os.environ["XLANE_CPU_DEVICES"] = "2"                # collectives have somebody to talk to
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
XLANE = os.path.join(ROOT, "build", "xlane")
os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS", "xlane:" + os.environ.get("XLANE_CPU_PLUGIN",
    os.path.join(ROOT, "build", "libxlane-cpu.so")))
import numpy as np
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax._src.lib import xla_client
jax.config.update("jax_enable_x64", True)
DEVICES = jax.devices("xlane")
H, TOL, ELEMENTS = 5e-4, 1e-8, 40
rng = np.random.default_rng(11)


def f(*shape, lo=None, hi=None):
    return rng.uniform(lo, hi, shape) if lo is not None else rng.standard_normal(shape)


def i(hi, *shape):
    return rng.integers(0, hi, shape).astype(np.int32)


def apart(*shape):
    """Numbers no two of which are near each other: a step of H changes no order."""
    n = int(np.prod(shape))
    return (rng.permutation(n).reshape(shape) - n / 2 + 0.3) * 0.25


# ---- running ---------------------------------------------------------------------------------------------------------
def program(text, replicas=1):
    options = xla_client.CompileOptions()
    options.num_replicas = replicas
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(replicas).reshape(replicas, 1))
    exe = DEVICES[0].client.compile_and_load(text.encode(), xla_client.DeviceList(tuple(DEVICES[:replicas])), options)

    where = NamedSharding(Mesh(np.array(DEVICES[:replicas]), ("r",)), PartitionSpec())

    def run(args):                                   # every result of every replica
        put = [jax.device_put(np.asarray(a), where) for a in args]
        out = exe.execute_sharded(put).disassemble_into_single_device_arrays()
        return [[np.asarray(o) for o in outs] for outs in out]
    return run


def gradient_text(text, keep="carry"):
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(text)
        file.flush()
        p = subprocess.run([XLANE, "grad", "--keep=" + keep, file.name], capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr.strip()[:400])
    return p.stdout


def differences(text, args, keep="carry", replicas=1, h=H, tol=TOL):
    """The widest disagreement of gradient and difference quotient as words, or None."""
    value, grad = program(text, replicas), program(gradient_text(text, keep), replicas)
    floats = [k for k, a in enumerate(args) if np.asarray(a).dtype in (np.float64, np.float32)]
    # with replicas the loss is the sum of all their losses, and every replica's copy of an argument moves
    total = lambda x: float(sum(np.float64(o) for o in value(x)[0]))
    out = grad(args)
    if abs(float(sum(np.float64(o) for o in out[0])) - total(args)) > 1e-12 * (1 + abs(total(args))):
        return f"the gradient program's loss is {out[0]}, the program's {total(args)}"
    g = {k: sum(np.asarray(o, np.float64) for o in out[1 + n]) for n, k in enumerate(floats)}
    for k in floats:
        if not np.all(np.isfinite(g[k])):
            return f"argument {k}: the gradient is not finite: {g[k]}"

    def quotient(v):
        def slope(h):
            x = [[a + s * h * v[k] if k in v else a for k, a in enumerate(args)] for s in (1, -1)]
            return (total(x[0]) - total(x[1])) / (2 * h)
        return (4 * slope(h) - slope(2 * h)) / 3

    tests = []
    for k in floats:
        size = np.asarray(args[k]).size
        for at in rng.permutation(size)[:ELEMENTS]:
            v = np.zeros(size)
            v[at] = 1
            tests.append((f"argument {k}, element {at}", {k: v.reshape(np.shape(args[k]))}))
    for n in range(2):
        tests.append((f"direction {n}", {k: rng.standard_normal(np.shape(args[k])) / np.sqrt(max(1,
            np.asarray(args[k]).size)) for k in floats}))
    worst = (0.0, None)
    for what, v in tests:
        want, got = quotient(v), sum(float(np.sum(g[k] * v[k])) for k in v)
        scale = max(max(float(np.abs(g[k]).max(initial=0)) for k in v), abs(want), 1e-3)
        err = abs(got - want) / scale
        if not err <= worst[0]:
            worst = (err, f"{what}: the gradient says {got:.12g}, differences {want:.12g}")
    return f"{worst[1]} ({worst[0]:.1e} of the largest)" if not worst[0] <= tol else None


# ---- cases -----------------------------------------------------------------------------------------------------------
# fixed weights turn any result into a scalar with distinct cotangents; both parts of a complex one count
def loss_of(fn):
    def loss(*args):
        s = 0.0
        for k, o in enumerate(jax.tree_util.tree_leaves(fn(*args))):
            if not jnp.issubdtype(o.dtype, jnp.inexact):
                continue
            w = np.random.default_rng(k + 1).standard_normal((2,) + o.shape)
            s = s + jnp.sum(jnp.real(o).astype(np.float64) * w[0])
            if jnp.iscomplexobj(o):
                s = s + jnp.sum(jnp.imag(o).astype(np.float64) * w[1])
        return s
    return loss


def conv(**kw):
    return lambda a, b: lax.conv_general_dilated(a, b, **kw)


def window(fn, init, dims, strides, pad, base=None, dil=None):
    return lambda a: lax.reduce_window(a, init, fn, dims, strides, pad, base, dil)


def gather(dims, sizes, **kw):
    return lambda a, k: lax.gather(a, k, lax.GatherDimensionNumbers(**dims), sizes, **kw)


def scatter(fn, dims, **kw):
    return lambda a, k, u: fn(a, k, u, lax.ScatterDimensionNumbers(**dims), **kw)


def c(a, b):
    return lax.complex(a, b)


def inverse(a):
    """By JAX's own loops of a factorisation: a call to LAPACK has no gradient that a program shows."""
    from jax._src.lax import linalg
    lu, _, permutation = linalg._lu_python(a)
    return linalg.lu_solve(lu, permutation, jnp.eye(a.shape[0], dtype=a.dtype))


def spd(a):
    return a @ jnp.swapaxes(a, -1, -2) + 3 * jnp.eye(a.shape[-1])


def scan_rnn(h, w, xs):
    def body(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h * 2
    return lax.scan(body, h, xs)


def nested(h, w, xs):
    def outer(h, x):
        def inner(h2, x2):
            return jnp.sin(h2 * x2 + w), h2 * x2
        h, ys = lax.scan(inner, h, x)
        return h, jnp.sum(ys, 0)
    return lax.scan(outer, h, xs)


def scan_with_cond(x, w):
    def body(x, k):
        return lax.cond(k % 2 == 0, lambda x: jnp.sin(x * w), lambda x: x + jnp.cos(w), x), x[0]
    return lax.scan(body, x, jnp.arange(5))


def carried_late(a, w):
    """b is made active by a only on the second turn, c by b on the third."""
    def body(k, s):
        a, b, c = s
        return a * w, jnp.sin(a) + 0.5 * b, jnp.tanh(b) * c + 1
    return lax.fori_loop(0, 4, body, (a, jnp.zeros(3), jnp.ones(3)))


def complex_scan(a, b):
    def body(z, x):
        return z * x + lax.complex(b, a), jnp.abs(z)
    return lax.scan(body, lax.complex(a, b), lax.complex(jnp.stack([a, b, a * b]), jnp.stack([b, a, a - b])))


POS = dict(lo=.3, hi=2.5)
UNIT = dict(lo=-.8, hi=.8)
CASES = {
    "add": (lambda a, b: a + b, f(3, 4), f(3, 4)), "sub": (lambda a, b: a - b, f(3, 4), f(4)), "mul": (lambda a,
        b: a * b, f(3, 4), f(3, 1)),
    "div": (lambda a, b: a / b, f(3, 4), f(3, 4, **POS)), "same_twice": (lambda a: a * a / (a + 3) - a, f(5, **POS)),
    "pow": (lambda a, b: a ** b, f(5, **POS), f(5)), "pow_int": (lambda a: a ** 3 + a ** -2, f(5, **POS)),
    "pow_zero_exponent": (lambda a, b: lax.pow(a, b * np.array([0.0, 1, 2])), f(3, **POS), np.ones(3)),
    "rem": (lambda a, b: lax.rem(a, b), np.array([5.3, -5.3, 0.4, 7.9]), np.array([2.0, 2.1, 1.0, -1.7])),
    "atan2": (lambda a, b: jnp.arctan2(a, b), f(7, **POS), f(7)),
    "max_min": (lambda a, b: jnp.maximum(a, b) + jnp.minimum(a, b * 2), apart(8), apart(8) + 0.1),
    "clamp": (lambda a, l, h: lax.clamp(l, a, h), apart(9), np.full(9, -.51), np.full(9, .51)),
    "clamp_scalar": (lambda a, l, h: lax.clamp(l, a, h), apart(9), np.float64(-.51), np.float64(.51)),
    "select": (lambda a, b: jnp.where(a > 0, a * b, b), apart(9), f(9)),
    "select_n": (lambda p, a, b: lax.select(p, a, b), np.bool_(True), f(3, 2), f(3, 2)),
    "abs": (jnp.abs, apart(9)), "neg": (lambda a: -a, f(9)), "sign_etc": (
        lambda a: a * (jnp.sign(a) + jnp.floor(a) + jnp.ceil(a) + jnp.round(a)
                       + lax.round(a, lax.RoundingMethod.AWAY_FROM_ZERO)), apart(9) + 0.07),
    "exp": (jnp.exp, f(9)), "expm1": (jnp.expm1, f(9)), "log": (jnp.log, f(9, **POS)), "log1p": (jnp.log1p,
        f(9, lo=-.5, hi=3)),
    "sqrt": (jnp.sqrt, f(9, **POS)), "rsqrt": (lax.rsqrt, f(9, **POS)), "cbrt": (jnp.cbrt,
        np.array([-2.0, -.5, .5, 2])),
    "sin": (jnp.sin, f(9)), "cos": (jnp.cos, f(9)), "tan": (jnp.tan, f(9, **UNIT)), "tanh": (jnp.tanh, f(9)),
    "logistic": (lax.logistic, f(9)), "erf": (lax.erf, f(9)), "erfc": (lax.erfc, f(9)), "erf_inv": (lax.erf_inv,
        f(9, **UNIT)),
    "asin": (lax.asin, f(9, **UNIT)), "acos": (lax.acos, f(9, **UNIT)), "atan": (lax.atan, f(9)),
    "sinh": (lax.sinh, f(9)), "cosh": (lax.cosh, f(9)), "asinh": (lax.asinh, f(9)), "acosh": (lax.acosh,
        f(9, lo=1.2, hi=3)),
    "atanh": (lax.atanh, f(9, **UNIT)), "square": (lax.square, f(9)), "integer_pow": (lambda a: lax.integer_pow(a, 5),
        f(5)),
    "lgamma": (lax.lgamma, np.array([.4, 1.3, 2.6, 7.1, -1.4])), "digamma": (lax.digamma,
        np.array([.4, 1.3, 2.6, 7.1])),
    "polygamma": (lambda a: lax.polygamma(jnp.full_like(a, 2), a), f(5, **POS)),
    "zeta": (lambda a: lax.zeta(jnp.full_like(a, 2.5), a), f(5, **POS)),
    "reduce_precision": (lambda a: lax.reduce_precision(a * 2, 11, 52), f(5)),
    # complex numbers: the loss is real, and so are the arguments
    "complex": (lambda a, b: jnp.exp(c(a, b)) * c(b, a) / c(a + 3, b), f(5), f(5)),
    "complex_parts": (lambda a, b: jnp.imag(c(a, b) ** 2) * jnp.real(c(b, a) * c(a, b)), f(5), f(5)),
    "complex_abs": (lambda a, b: jnp.abs(c(a, b)) + jnp.abs(c(a, b) * c(b, a)), f(5, **POS), f(5)),
    "complex_math": (lambda a, b: jnp.sin(c(a, b)) + jnp.log(c(a, b)) + jnp.sqrt(c(a, b)) + jnp.tanh(c(a, b))
                     + lax.rsqrt(c(a, b)), f(5, **POS), f(5)),
    "complex_more": (lambda a, b: jnp.expm1(c(a, b)) + jnp.log1p(c(a, b)) + jnp.cos(c(a, b)) + lax.logistic(c(a, b))
                     + jnp.sinh(c(a, b)), f(5, **POS), f(5)),
    "complex_conj": (lambda a, b: jnp.conj(c(a, b)) * c(b, a) ** 2, f(5), f(5)),
    "complex_pow": (lambda a, b: lax.pow(c(a, b), c(b, a)), f(5, **POS), f(5, **POS)),
    "complex_from_real": (lambda a: a.astype(np.complex128) * (2 + 1j), f(5)),
    "complex_dot": (lambda a, b: c(a, b) @ c(b, a), f(3, 3), f(3, 3)),
    "complex_reduce": (lambda a, b: jnp.sum(c(a, b) * c(b, a), 1) + jnp.prod(c(a, b), 1), f(3, 4), f(3, 4)),
    "complex_select": (lambda a, b: jnp.where(a > 0, c(a, b), c(b, a) * 2), apart(5), f(5)),
    "complex_gather": (lambda a, b: c(a, b)[np.array([1, 1, 0])].reshape(-1), f(3, 2), f(3, 2)),
    # shapes
    "reshape_transpose": (lambda a: jnp.transpose(a.reshape(4, 3, 2), (2, 0, 1)) * 2, f(6, 4)),
    "broadcast_in_dim": (lambda a: lax.broadcast_in_dim(a, (3, 5, 2), (0, 2)), f(3, 1)),
    "broadcast_stretch_all": (lambda a: lax.broadcast_in_dim(a, (4, 3, 5), (1, 2)), f(1, 1)),
    "concat": (lambda a, b: jnp.concatenate([a, b, a * 2], 1), f(3, 2), f(3, 4)), "concat_empty": (lambda a,
        b: jnp.concatenate([a, b], 0), f(0, 2), f(3, 2)),
    "slice": (lambda a: a[1:7:2, 3:0:-1], f(9, 4)), "slice_twice": (lambda a: jnp.sin(a[2:5]) + a[1:4] * a[5:8], f(9)),
    "slice_strided_twice": (lambda a: a[0:8:3] * a[1:9:3], f(9)),
    "pad": (lambda a, v: lax.pad(a, v, ((1, 2, 1), (0, 0, 0))), f(4, 3), np.float64(0.3)),
    "pad_negative": (lambda a, v: lax.pad(a, v, ((-1, 2, 0), (2, -2, 0))), f(4, 5), np.float64(0.3)),
    "pad_negative_interior": (lambda a, v: lax.pad(a, v, ((-1, -2, 2), (-3, 1, 1))), f(4, 5), np.float64(0.3)),
    "pad_negative_past": (lambda a, v: lax.pad(a, v, ((-5, 3, 2),)), f(3), np.float64(0.3)),
    "reverse": (lambda a: lax.rev(a, (0, 2)) * a, f(2, 3, 2)),
    "dynamic_slice": (lambda a, k: lax.dynamic_slice(a, (k, k), (2, 3)), f(6, 5), np.int32(9)),
    "dynamic_slice_twice": (lambda a, k: lax.dynamic_slice(a, (k, k), (2, 3)) * lax.dynamic_slice(a, (k - 1, k - 2),
        (2, 3)), f(6, 5), np.int32(2)),
    "dynamic_update_slice": (lambda a, u, k: lax.dynamic_update_slice(a * a, u, (k, k)), f(6, 5), f(2, 3), np.int32(4)),
    "gather_rows": (lambda t, k: t[k], f(7, 3), i(7, 4, 2)), "gather_points": (lambda t, a, b: t[a, b], f(7, 3),
        i(7, 5), i(3, 5)),
    "take_along": (lambda t, k: jnp.take_along_axis(t, k, 1), f(4, 6), i(6, 4, 3)),
    "gather_clip": (lambda t, k: t.at[k].get(mode="clip"), f(5, 2), np.array([0, 9, 4, -5], np.int32)),
    "gather_fill": (lambda t, k: t.at[k].get(mode="fill", fill_value=2.0), f(5, 2), np.array([0, 9, 4, -7], np.int32)),
    "gather_windows": (gather(dict(offset_dims=(0, 2), collapsed_slice_dims=(1,), start_index_map=(2, 0)), (2, 1, 3),
                              mode="clip"),
                       f(4, 3, 5), np.array([[0, 1], [2, 3], [4, 0]], np.int32)),
    "gather_index_dim_first": (gather(dict(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0, 1)), (1, 2),
                                      mode="clip"),
                               f(4, 5), np.array([[0, 1], [3, 3], [2, 9]], np.int32)),
    "gather_batched": (gather(dict(offset_dims=(2,), collapsed_slice_dims=(), start_index_map=(2,),
                                   operand_batching_dims=(0, 1),
                                   start_indices_batching_dims=(1, 0)), (1, 1, 2), mode="clip"), f(3, 2, 5), i(5, 2, 3,
                                       1)),
    "scatter_add": (lambda t, u, k: t.at[k].add(u), f(7, 3), f(5, 3), i(7, 5)),
    "scatter_add_drop": (lambda t, u, k: t.at[k].add(u, mode="drop"), f(4, 3), f(5, 3),
                         np.array([0, 1, 9, 3, 3], np.int32)),
    "scatter_sub": (lambda t, u, k: t.at[k].subtract(u), f(4, 3), f(5, 3), i(4, 5)),
    "scatter_windows": (scatter(lax.scatter_add, dict(update_window_dims=(0, 2), inserted_window_dims=(1,),
                                                      scatter_dims_to_operand_dims=(2, 0)),
                                mode=lax.GatherScatterMode.FILL_OR_DROP), f(4, 3, 5), np.array([[0, 1], [2, 3], [2, 0]],
                                    np.int32), f(2, 3, 3)),
    "scatter_batched": (scatter(lax.scatter_add, dict(update_window_dims=(2,), inserted_window_dims=(),
                                                      scatter_dims_to_operand_dims=(2,),
                                operand_batching_dims=(0, 1), scatter_indices_batching_dims=(1, 0))), f(3, 2, 5), i(4,
                                    2, 3, 1), f(2, 3, 2)),
    "scatter_set_unique": (lambda t, u: t.at[np.array([4, 0, 2])].set(u, unique_indices=True), f(7, 3), f(3, 3)),
    "scatter_set": (lambda t, u, k: t.at[k].set(u), f(7, 3), f(5, 3), np.array([4, 0, 4, 2, 9], np.int32)),
    "scatter_mul": (lambda t, u: t.at[np.array([4, 0, 2])].multiply(u, unique_indices=True), f(7, 3), f(3, 3)),
    "scatter_max": (lambda t, u, k: t.at[k].max(u), apart(6), apart(6) + 0.1, np.array([0, 1, 1, 3, 3, 9], np.int32)),
    "scatter_min": (lambda t, u, k: t.at[k].min(u), apart(6), apart(6) + 0.1, np.array([0, 1, 1, 3, 3, 9], np.int32)),
    "sort": (lambda a: jnp.sort(a, 1), apart(4, 6)), "sort_pair": (lambda a,
        b: lax.sort((a, b), dimension=0, num_keys=1), apart(6, 2), f(6, 2)),
    "sort_two_keys": (lambda a, b, k: lax.sort((k, a, b), dimension=1, num_keys=2), apart(2, 6), f(2, 6), i(2, 2, 6)),
    "top_k": (lambda a: lax.top_k(a, 2)[0] ** 2, apart(3, 6)), "argmax_pick": (lambda a: a[jnp.argmax(a)] * a,
        apart(6)),
    "median": (lambda a: jnp.median(a, 1), apart(3, 5)),
    "sort_down": (lambda a: -jnp.sort(-a, 0, stable=False)[::-1] * a, apart(5, 2)),
    "gather_u8": (lambda t, k: t.at[k].get(mode="clip"), f(5, 2), np.array([0, 9, 4, 255], np.uint8)),
    "gather_i64": (lambda t, k: t.at[k, k].get(mode="clip"), f(5, 4), np.array([0, -9, 4, 1 << 40])),
    "gather_whole": (lambda t, k: t[k][:, None] * t[None, k], f(5), i(5, 3)),
    "scatter_partial": (scatter(lax.scatter_add, dict(update_window_dims=(1,), inserted_window_dims=(),
                                                      scatter_dims_to_operand_dims=(0,))),
                        f(5), np.array([[3], [4], [-1], [0]], np.int32), f(4, 2)),
    "scatter_set_partial": (scatter(lax.scatter, dict(update_window_dims=(1,), inserted_window_dims=(),
                                                      scatter_dims_to_operand_dims=(0,))),
                            f(6), np.array([[3], [4], [-1], [0]], np.int32), f(4, 2)),
    "dynamic_update_twice": (lambda a, u, k: lax.dynamic_update_slice(lax.dynamic_update_slice(a, u, (k,)), u * a[:2],
        (k + 1,)), f(6), f(2), np.int32(-3)),
    # reductions and windows
    "reduce_sum": (lambda a: jnp.sum(a * a, (0, 2)), f(3, 4, 5)), "reduce_max": (lambda a: jnp.max(a, 1), apart(3, 4)),
    "reduce_min": (lambda a: jnp.min(a * 2, 0), apart(3, 4)), "reduce_prod": (lambda a: jnp.prod(a, 1), f(3, 4)),
    "reduce_prod_zero": (lambda a: jnp.prod(a, 1), np.array([[1.0, 0, 3], [0, 0, 2], [1, 2, 3]])),
    "reduce_init": (lambda a, k: lax.reduce(a, k, lax.add, (0,)), f(3, 4), np.float64(0.5)),
    "reduce_mul_init": (lambda a, k: lax.reduce(a, k, lax.mul, (0,)), f(3, 4), np.float64(0.5)),
    "reduce_max_init": (lambda a, k: lax.reduce(a, k, lax.max, (0,)), apart(3, 4), np.float64(-0.2)),
    "reduce_max_init_wins": (lambda a: lax.reduce(a, np.float64(9), lax.max, (0,)) * a[0], apart(3, 4)),
    "reduce_any": (lambda a: lax.reduce(a, np.float64(0), lambda x, y: jnp.logaddexp(x, y * 2), (0, 2)), f(2, 3, 2)),
    "reduce_pair": (lambda a, b: lax.reduce((a, b), (np.float64(1), np.float64(0)), lambda x,
                                            y: (x[0] * y[0], x[1] * y[0] + y[1]), (1,)), f(2, 5), f(2, 5)),
    "mean_var": (lambda a: jnp.var(a, 1) + jnp.mean(a, 1), f(3, 8)), "logsumexp": (lambda a: jax.nn.logsumexp(a, 1),
        f(3, 8)),
    "sum_pool": (window(lax.add, 0.0, (1, 2, 3), (1, 2, 1), "SAME"), f(2, 6, 7)),
    "sum_pool_odd": (window(lax.add, 0.0, (2, 3), (3, 2), ((1, 2), (-1, 0)), (2, 1), (1, 2)), f(5, 8)),
    "max_pool": (window(lax.max, -np.inf, (2, 2), (2, 2), "VALID"), apart(6, 6)),
    "max_pool_overlap": (window(lax.max, -np.inf, (3, 2), (1, 2), ((1, 1), (0, 1))), apart(5, 5)),
    "min_pool": (window(lax.min, np.inf, (2, 2), (1, 1), "VALID"), apart(4, 4)),
    "mul_pool": (window(lax.mul, 1.0, (2, 3), (2, 1), ((1, 0), (0, 2)), (1, 2), (2, 1)), f(4, 3)),
    "window_init": (lambda a, k: lax.reduce_window(a, k, lax.add, (2,), (1,), "VALID"), f(5), np.float64(0.5)),
    "max_pool_dilated": (window(lax.max, -np.inf, (2, 2), (1, 1), "VALID", None, (2, 1)), apart(5, 4)),
    "cumsum": (lambda a: jnp.cumsum(a, 0), f(6, 3)), "cumsum_reverse": (lambda a: lax.cumsum(a, 1, reverse=True) * a,
        f(3, 6)),
    "cumprod": (lambda a: jnp.cumprod(a, 0), f(6, 2)), "cummax": (lambda a: lax.cummax(a, 0),
        apart(6, 2)), "cummin": (lambda a: lax.cummin(a, 1), apart(2, 6)),
    "cumlogsumexp": (lambda a: lax.cumlogsumexp(a, 0), f(6)),
    # products
    "dot": (lambda a, b: a @ b, f(3, 4), f(4, 5)), "dot_vec": (lambda a, b: jnp.dot(a, b), f(4), f(4)),
    "dot_batch": (lambda a, b: jnp.einsum("bhtd,bshd->bhts", a, b), f(2, 3, 2, 3), f(2, 4, 3, 3)),
    "dot_two_swapped": (lambda a, b: lax.dot_general(a, b, (((3, 1), (0, 2)), ((), ()))), f(2, 3, 2, 4), f(4, 2, 3)),
    "dot_batch_inner": (lambda a, b: lax.dot_general(a, b, (((0,), (2,)), ((2, 1), (0, 3)))), f(3, 2, 4, 2),
                        f(4, 2, 3, 2)),
    "dot_outer": (lambda a, b: lax.dot_general(a, b, (((), ()), ((), ()))), f(3), f(2, 2)),
    "dot_self": (lambda a: a @ a, f(3, 3)),
    "conv1d": (conv(window_strides=(1,), padding="SAME"), f(2, 3, 8), f(4, 3, 3)),
    "conv2d_stride": (conv(window_strides=(2, 1), padding=((1, 0), (2, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")),
                      f(2, 7, 6, 3), f(3, 2, 3, 4)),
    "conv2d_dilated": (conv(window_strides=(1, 2), padding=((1, 0), (0, 2)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)),
                       f(2, 3, 5, 6), f(4, 3, 2, 2)),
    "conv_negative_pad": (conv(window_strides=(2,), padding=((-1, -2),), rhs_dilation=(2,)), f(2, 3, 11), f(4, 3, 2)),
    "conv_groups": (conv(window_strides=(2,), padding="SAME", feature_group_count=2), f(2, 4, 7), f(6, 2, 3)),
    "conv_depthwise": (conv(window_strides=(1,), padding=((2, 0),), feature_group_count=4), f(2, 4, 6), f(4, 1, 3)),
    "conv_batch_groups": (conv(window_strides=(1,), padding="SAME", batch_group_count=2), f(4, 3, 7), f(6, 3, 3)),
    "conv_groups_all": (conv(window_strides=(2, 1), padding=((2, -1), (0, 3)), lhs_dilation=(1, 2), rhs_dilation=(2, 1),
                             feature_group_count=3,
                             dimension_numbers=("HNWC", "OWHI", "CWNH")), f(6, 2, 4, 6), f(3, 2, 3, 2)),
    "conv_batch_groups_all": (conv(window_strides=(2,), padding=((1, 2),), lhs_dilation=(2,), batch_group_count=3,
                                   dimension_numbers=("NWC", "WIO", "CNW")),
                              f(6, 5, 2), f(3, 2, 6)),
    "conv_0d": (conv(window_strides=(), padding=()), f(2, 3), f(4, 3)),
    # linear algebra and transforms
    "cholesky": (lambda a: lax.linalg.cholesky(spd(a)),
                 f(4, 4)), "cholesky_batch": (lambda a: jnp.linalg.cholesky(spd(a)), f(2, 3, 3)),
    "cholesky_upper_raw": (lambda a: jnp.triu(lax.linalg.cholesky(spd(a), symmetrize_input=False)), f(3, 3)),
    "cholesky_complex": (lambda a, b: jnp.tril(lax.linalg.cholesky(c(a, b) @ jnp.conj(c(a, b)).T + 3 * jnp.eye(3))),
                         f(3, 3), f(3, 3)),
    "inverse": (lambda a: inverse(spd(a)), f(3, 3)),
    "fft": (lambda a, b: jnp.fft.fft(c(a, b)), f(2, 5), f(2, 5)), "ifft2": (lambda a, b: jnp.fft.ifft2(c(a, b)),
        f(3, 4), f(3, 4)),
    "rfft": (lambda a: jnp.fft.rfft(a), f(2, 6)), "rfft_odd": (lambda a: jnp.fft.rfft2(a), f(3, 5)),
    "irfft": (lambda a, b: jnp.fft.irfft(c(a, b)), f(2, 4), f(2, 4)), "irfft_odd": (lambda a,
        b: jnp.fft.irfftn(c(a, b), (3, 5)), f(3, 3), f(3, 3)),
    # flow
    "cond": (lambda p, a, b: lax.cond(p, lambda: a * b, lambda: jnp.sin(a)), np.bool_(True), f(4), f(4)),
    "cond_other": (lambda p, a, b: lax.cond(p, lambda: a * b, lambda: jnp.sin(a)), np.bool_(False), f(4), f(4)),
    "switch": (lambda k, a, b: lax.switch(k, [lambda: a, lambda: a * b, lambda: jnp.exp(b)]), np.int32(2), f(4), f(4)),
    "switch_beyond": (lambda k, a, b: lax.switch(k, [lambda: a, lambda: a * b, lambda: jnp.exp(b)]), np.int32(-7), f(4),
                      f(4)),
    "scan_none": (lambda a, w: lax.fori_loop(3, 3, lambda k, c: jnp.tanh(c * w), a) * w, f(3),
                  f(3)), "scan_complex": (complex_scan, f(3), f(3)),
    "scan_of_sort": (lambda a, w: lax.scan(lambda c, x: (jnp.sort(c * x)[::-1], c), a, w)[0], apart(4), f(3, 4, **POS)),
    "cond_in_cond": (lambda p, a, b: lax.cond(p, lambda: lax.cond(~p, lambda: a, lambda: a * b), lambda: b),
                     np.bool_(True), f(4), f(4)),
    "scan_rnn": (scan_rnn, f(2, 3), f(3, 3), f(4, 2, 3)), "scan_reverse": (lambda h,
        xs: lax.scan(lambda h, x: (jnp.sin(h * x), h), h, xs, reverse=True), f(3), f(4, 3)),
    "scan_nested": (nested, f(3), f(3), f(2, 3, 3)), "scan_cond": (scan_with_cond, f(3),
        f(3)), "scan_late": (carried_late, f(3), f(3)),
    "scan_length_one": (lambda a, w: lax.scan(lambda a, _: (jnp.tanh(a * w), a), a, None, length=1), f(3), f(3)),
    "scan_unrolled": (lambda h, xs: lax.scan(lambda h, x: (jnp.sin(h * x), h), h, xs, unroll=3), f(3), f(7, 3)),
    "fori": (lambda a, w: lax.fori_loop(2, 6, lambda k, c: jnp.tanh(c * w) + k * 0.1, a), f(3), f(3)),
    "remat_scan": (lambda a, w: lax.scan(jax.checkpoint(lambda a, _: (jnp.tanh(a * w), None)), a, None, length=4)[0],
                   f(3), f(3)),
    "assoc_scan": (lambda a, b: lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b)),
                   f(9, lo=.5, hi=1), f(9)),
    "cross_entropy": (lambda l, y: -jnp.take_along_axis(jax.nn.log_softmax(l), y[:, None], 1).mean(), f(5, 7), i(7, 5)),
}
for name, kw in {"left_lower": {}, "right_upper": dict(left_side=False, lower=True),
                 "transpose": dict(lower=True, transpose_a=True),
                 "unit": dict(left_side=True, lower=False, unit_diagonal=True), "right_transpose": dict(left_side=False,
                     lower=False, transpose_a=True)}.items():
    kw = dict(dict(left_side=True, lower=True), **kw)
    b = f(2, 2, 3) if not kw["left_side"] else f(2, 3, 2)
    CASES["triangular_solve_" + name] = (lambda a, b, kw=kw: lax.linalg.triangular_solve(a + 2.5 * jnp.eye(3), b, **kw),
                                         f(2, 3, 3), b)
CASES["triangular_solve_complex"] = (lambda a, b: lax.linalg.triangular_solve(c(a, a.swapaxes(-1, -2))
    + 2.5 * jnp.eye(3), c(b, b * 2), left_side=True, lower=True,
                                     transpose_a=True, conjugate_a=True), f(3, 3), f(3, 2))
# through f32 a wide step keeps the rounding small: (step, tolerance)
LOOSE = {"convert": (5e-2, 1e-5)}


def t(shape, d="f64"):
    return "tensor<%s%s>" % ("".join(f"{n}x" for n in shape), d)


def raw(body, result, *args, replicas=1):
    """A program of the lines `body` over %a, %b, ...; `result` is (name, shape). Its loss is the sum of result times a last argument."""
    name, shape = result
    names = ["%" + x for x in "abcdefg"[:len(args)]]
    kinds = {"float64": "f64", "int32": "i32", "bool": "i1", "int64": "i64"}
    head = ", ".join(f"{n}: {t(np.shape(a), kinds[np.asarray(a).dtype.name])}" for n, a in zip(names, args))
    dims = ", ".join(str(k) for k in range(len(shape)))
    text = f"""func.func public @main({head}, %w: {t(shape)}) -> tensor<f64> {{
{body}
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %weighed = stablehlo.multiply {name}, %w : {t(shape)}
  %sum = stablehlo.reduce(%weighed init: %zero) applies stablehlo.add across dimensions = [{dims}] : ({t(shape)}, tensor<f64>) -> tensor<f64>
  return %sum : tensor<f64>
}}"""
    return text, [*args, rng.standard_normal(shape)], replicas


def sum_region(op="add", d="f64"):
    return f"""({{
  ^bb0(%x: tensor<{d}>, %y: tensor<{d}>):
    %s = stablehlo.{op} %x, %y : tensor<{d}>
    stablehlo.return %s : tensor<{d}>
  }})"""


GROUPS = "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>"
RANK = """  %id = stablehlo.replica_id : tensor<ui32>
  %idf = stablehlo.convert %id : (tensor<ui32>) -> tensor<f64>
  %idb = stablehlo.broadcast_in_dim %idf, dims = [] : (tensor<f64>) -> tensor<4xf64>
  %one = stablehlo.constant dense<1.5> : tensor<4xf64>
  %by = stablehlo.add %idb, %one : tensor<4xf64>
  %sq = stablehlo.multiply %a, %by : tensor<4xf64>
  %m = stablehlo.multiply %sq, %sq : tensor<4xf64>
"""
TEXTS = {
    "convert": raw("""  %n = stablehlo.convert %a : (tensor<5xf64>) -> tensor<5xf32>
  %k = stablehlo.add %n, %n : tensor<5xf32>
  %y = stablehlo.convert %k : (tensor<5xf32>) -> tensor<5xf64>""", ("%y", (5,)), f(5)),
    "logistic_op": raw("  %y = stablehlo.logistic %a : tensor<5xf64>", ("%y", (5,)), f(5)),
    "cbrt_op": raw("  %y = stablehlo.cbrt %a : tensor<5xf64>", ("%y", (5,)), f(5, **POS)),
    "chlo_tan": raw("  %y = chlo.tan %a : tensor<5xf64> -> tensor<5xf64>", ("%y", (5,)), f(5, **UNIT)),
    "chlo_conj": raw("""  %c = stablehlo.complex %a, %b : tensor<5xcomplex<f64>>
  %d = chlo.conj %c : tensor<5xcomplex<f64>> -> tensor<5xcomplex<f64>>
  %e = stablehlo.multiply %d, %d : tensor<5xcomplex<f64>>
  %y = stablehlo.imag %e : (tensor<5xcomplex<f64>>) -> tensor<5xf64>""", ("%y", (5,)), f(5), f(5)),
    "complex_to_real": raw("""  %c = stablehlo.complex %a, %b : tensor<5xcomplex<f64>>
  %d = stablehlo.multiply %c, %c : tensor<5xcomplex<f64>>
  %y = stablehlo.convert %d : (tensor<5xcomplex<f64>>) -> tensor<5xf64>""", ("%y", (5,)), f(5), f(5)),
    "tan_op": raw("  %y = stablehlo.tan %a : tensor<5xf64>", ("%y", (5,)), f(5, **UNIT)),
    "barrier": raw("  %y:2 = stablehlo.optimization_barrier %a, %b : tensor<5xf64>, tensor<5xf64>\n  %z = stablehlo.multiply %y#0, %y#1 : tensor<5xf64>",
                   ("%z", (5,)), f(5), f(5)),
    "broadcast": raw('  %y = "stablehlo.broadcast"(%a) {broadcast_sizes = array<i64: 2, 3>} : (tensor<4xf64>) -> tensor<2x3x4xf64>', ("%y", (2, 3, 4)), f(4)),
    "dot_op": raw('  %y = "stablehlo.dot"(%a, %b) : (tensor<3x4xf64>, tensor<4x2xf64>) -> tensor<3x2xf64>',
                  ("%y", (3, 2)), f(3, 4), f(4, 2)),
    "if": raw("""  %y = "stablehlo.if"(%c) ({
    %s = stablehlo.multiply %a, %b : tensor<5xf64>
    stablehlo.return %s : tensor<5xf64>
  }, {
    %e = stablehlo.exponential %b : tensor<5xf64>
    stablehlo.return %e : tensor<5xf64>
  }) : (tensor<i1>) -> tensor<5xf64>""", ("%y", (5,)), f(5), f(5), np.bool_(False)),
    "select_and_scatter": raw("""  %i = stablehlo.constant dense<0.0> : tensor<f64>
  %y = "stablehlo.select_and_scatter"(%a, %b, %i) ({
  ^bb0(%x: tensor<f64>, %z: tensor<f64>):
    %p = stablehlo.compare GE, %x, %z : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }, """ + sum_region()[1:-1] + """) {window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 1, 2>,
     padding = dense<[[0, 1], [1, 1]]> : tensor<2x2xi64>} : (tensor<4x5xf64>, tensor<4x3xf64>, tensor<f64>) -> tensor<4x5xf64>""",
                              ("%y", (4, 5)), apart(4, 5), f(4, 3)),
    "conv_reversed": raw("""  %y = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
     window = {stride = [2], pad = [[1, 0]], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
     : (tensor<2x3x7xf64>, tensor<4x3x2xf64>) -> tensor<2x4x4xf64>""", ("%y", (2, 4, 4)), f(2, 3, 7), f(4, 3, 2)),
    "while_down": raw("""  %n = stablehlo.constant dense<9> : tensor<i32>
  %z = stablehlo.constant dense<2> : tensor<i32>
  %by = stablehlo.constant dense<-3> : tensor<i32>
  %r:2 = stablehlo.while(%k = %n, %v = %a) : tensor<i32>, tensor<3xf64>
   cond { %p = stablehlo.compare GT, %k, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1> }
   do { %k1 = stablehlo.add %k, %by : tensor<i32>
        %kf = stablehlo.convert %k : (tensor<i32>) -> tensor<f64>
        %kb = stablehlo.broadcast_in_dim %kf, dims = [] : (tensor<f64>) -> tensor<3xf64>
        %s = stablehlo.sine %v : tensor<3xf64>
        %m = stablehlo.multiply %s, %b : tensor<3xf64>
        %m2 = stablehlo.multiply %m, %kb : tensor<3xf64>
        stablehlo.return %k1, %m2 : tensor<i32>, tensor<3xf64> }""", ("%r#1", (3,)), f(3), f(3) * 0.1),
    "map": raw("""  %y = "stablehlo.map"(%a, %b) ({
  ^bb0(%x: tensor<f64>, %z: tensor<f64>):
    %p = stablehlo.multiply %x, %z : tensor<f64>
    %q = stablehlo.sine %p : tensor<f64>
    stablehlo.return %q : tensor<f64>
  }) {dimensions = array<i64: 0, 1>} : (tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>""", ("%y", (2, 3)), f(2, 3), f(2, 3)),
    "torch_index_select": raw('  %y = "stablehlo.torch_index_select"(%a, %b) {batch_dims = 0 : i64, dim = 1 : i64} : (tensor<2x5xf64>, tensor<3xi32>) -> tensor<2x3xf64>',
                              ("%y", (2, 3)), f(2, 5), i(5, 3)),
    "batch_norm_inference": raw("""  %y = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %e) {epsilon = 1.0e-03 : f32, feature_index = 1 : i64}
     : (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>) -> tensor<4x3x2xf64>""", ("%y", (4, 3, 2)),
                                f(4, 3, 2), f(3), f(3), f(3), f(3, **POS)),
    "batch_norm_training": raw("""  %r:3 = "stablehlo.batch_norm_training"(%a, %b, %c) {epsilon = 1.0e-03 : f32, feature_index = 1 : i64}
     : (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>) -> (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>)
  %m = stablehlo.multiply %r#1, %r#2 : tensor<3xf64>
  %mb = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<3xf64>) -> tensor<4x3x2xf64>
  %y = stablehlo.multiply %r#0, %mb : tensor<4x3x2xf64>""", ("%y", (4, 3, 2)), f(4, 3, 2), f(3), f(3)),
    "batch_norm_grad": raw("""  %r:3 = "stablehlo.batch_norm_grad"(%a, %b, %c, %d, %e) {epsilon = 1.0e-03 : f32, feature_index = 1 : i64}
     : (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>, tensor<3xf64>, tensor<4x3x2xf64>) -> (tensor<4x3x2xf64>, tensor<3xf64>, tensor<3xf64>)
  %m = stablehlo.multiply %r#1, %r#2 : tensor<3xf64>
  %mb = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<3xf64>) -> tensor<4x3x2xf64>
  %y = stablehlo.multiply %r#0, %mb : tensor<4x3x2xf64>""", ("%y", (4, 3, 2)), f(4, 3, 2), f(3), f(3), f(3, **POS), f(4, 3, 2)),
    "all_reduce": raw(RANK + '  %y = "stablehlo.all_reduce"(%m) ' + sum_region()
                      + f" {{{GROUPS}}} : (tensor<4xf64>) -> tensor<4xf64>\n"
                      "  %z = stablehlo.multiply %y, %by : tensor<4xf64>", ("%z", (4,)), f(4), replicas=2),
    "all_gather": raw(RANK + f'  %y = "stablehlo.all_gather"(%m) {{all_gather_dim = 0 : i64, {GROUPS}}} : (tensor<4xf64>) -> tensor<8xf64>\n'
                      "  %q = stablehlo.broadcast_in_dim %idf, dims = [] : (tensor<f64>) -> tensor<8xf64>\n"
                      "  %z = stablehlo.multiply %y, %q : tensor<8xf64>", ("%z", (8,)), f(4), replicas=2),
    "reduce_scatter": raw(RANK + '  %y = "stablehlo.reduce_scatter"(%m) ' + sum_region()
                          + f" {{scatter_dimension = 0 : i64, {GROUPS}}} : (tensor<4xf64>) -> tensor<2xf64>\n"
                          "  %q = stablehlo.broadcast_in_dim %idf, dims = [] : (tensor<f64>) -> tensor<2xf64>\n"
                          "  %z = stablehlo.multiply %y, %q : tensor<2xf64>", ("%z", (2,)), f(4), replicas=2),
    "all_to_all": raw(RANK + "  %m2 = stablehlo.reshape %m : (tensor<4xf64>) -> tensor<4x1xf64>\n"
                      f'  %y = "stablehlo.all_to_all"(%m2) {{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, {GROUPS}}}'
                      " : (tensor<4x1xf64>) -> tensor<2x2xf64>\n  %q = stablehlo.broadcast_in_dim %idf, dims = [] : (tensor<f64>) -> tensor<2x2xf64>\n"
                      "  %z = stablehlo.multiply %y, %q : tensor<2x2xf64>", ("%z", (2, 2)), f(4), replicas=2),
    "collective_permute": raw(RANK + '  %y = "stablehlo.collective_permute"(%m) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}'
                              " : (tensor<4xf64>) -> tensor<4xf64>\n  %z = stablehlo.multiply %y, %by : tensor<4xf64>", ("%z", (4,)), f(4), replicas=2),
}
for name in ("constraint", "reshard", "barrier"):
    op = {"constraint": '%y = sdy.sharding_constraint %s <@mesh, [{}]> : tensor<4xf64>',
          "reshard": '%y = sdy.reshard %s <@mesh, [{}]> : tensor<4xf64>',
          "barrier": '%y = sdy.propagation_barrier %s allowed_direction=NONE : tensor<4xf64>'}[name]
    text, args, n = raw("  %s = stablehlo.sine %a : tensor<4xf64>\n  " + op, ("%y", (4,)), f(4))
    TEXTS["sdy_" + name] = (f"module {{\nsdy.mesh @mesh = <[\"x\"=1]>\n{text}\n}}", args, n)
TEXTS["call"] = ("""module {
func.func private @twice(%x: tensor<3xf64>) -> tensor<3xf64> {
  %s = stablehlo.sine %x : tensor<3xf64>
  return %s : tensor<3xf64>
}
""" + raw("""  %u = func.call @twice(%a) : (tensor<3xf64>) -> tensor<3xf64>
  %y = stablehlo.composite "my.twice" %u {decomposition = @twice} : (tensor<3xf64>) -> tensor<3xf64>""", ("%y", (3,)), f(3))[0] + "\n}", [f(3), f(3)], 1)


def main():
    only, bad, ops = sys.argv[1:], 0, {}             # of each case
    for name in [n for n in (*CASES, *TEXTS) if not only or n in only]:
        if name in CASES:
            fn, *args = CASES[name]
            text, replicas = jax.jit(loss_of(fn), keep_unused=True).lower(*args).as_text(), 1
        else:
            text, args, replicas = TEXTS[name]
        ops[name] = set(re.findall(r"\b((?:stablehlo|chlo|sdy|func)\.[\w-]+)", text))
        if re.search(r"\bcall @", text):
            ops[name].add("func.call")
        h, tol = LOOSE.get(name, (H, TOL))
        why = None
        for keep in ("carry", "dots") if "stablehlo.while" in text else ("carry",):
            try:
                why = why or differences(text, args, keep, replicas, h, tol)
            except Exception as e:
                why = str(e)[:600]
        print(f"FAIL grad_fd_{name}: {why}" if why else f"ok grad_fd_{name}", flush=True)
        bad += bool(why)
    if not only:
        lies = [f"{case} has no {op}" for op, case in covered("gradient").items() if op not in ops.get(case, ())]
        print(f"FAIL grad_fd_every_op: test/ops.covered: {'; '.join(lies)}" if lies else "ok grad_fd_every_op")
        bad += bool(lies)
    return bad


sys.exit(1 if main() else 0)
