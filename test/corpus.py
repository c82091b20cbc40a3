"""Programs that JAX makes, in every form in which they can reach a reader: the corpus of the IR tests.

For each program NAME, in build/corpus/:
  NAME.mlir        the text of as_text()              NAME.loc.mlir   the same with locations
  NAME.bc          native MLIR bytecode               NAME.hlo.pb     HloModuleProto, where XLA converts it
  NAME.vVERSION.bc VHLO portable artifact as a plugin receives it, for the newest version, some older and the oldest
                   that still can express the program (with sdy ops in it where the program is sharded)
It takes some time and is made once; build/corpus/stamp says from which jax and which corpus.py it was.

usage: python test/corpus.py [--force] [NAME ...]     as a module: corpus.make() returns the folder
"""
import fcntl
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import _quick

os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8")
_quick.use()
os.environ["JAX_PLATFORMS"] = "cpu"

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
OUT = os.path.join(os.environ.get("B", os.path.join(ROOT, "build")), "corpus")
VERSIONS = ["1.17.0", "1.16.2", "1.9.0", "1.0.0", "0.14.0", "0.9.0"]

programs = []


def program(fn):
    """A function that returns (callable, args) or (jitted, args): lowered when its turn comes."""
    programs.append(fn)
    return fn


def define():
    import functools
    _quick.import_jax()
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    f32, bf16, i32 = jnp.float32, jnp.bfloat16, jnp.int32
    S = jax.ShapeDtypeStruct
    x = S((8, 16), f32)
    w = S((16, 32), f32)
    v = S((32,), f32)
    key = S((2,), jnp.uint32)

    def add(name, fn, *args, **jit):
        def build():
            f = fn if hasattr(fn, "lower") else jax.jit(fn, **jit)
            return f.lower(*args)
        build.__name__ = name
        programs.append(build)

    # -- forward and elementwise
    add("identity", lambda a: a, x)
    add("arith", lambda a, b: (a + b) * a - b / (a + 2.0), x, x)
    add("unary", lambda a: [jnp.exp(a), jnp.expm1(a), jnp.log1p(a), jnp.tanh(a), jnp.sqrt(a), lax.rsqrt(a), jnp.cbrt(a),
                            jnp.sin(a),
                            jnp.cos(a), jnp.tan(a), jnp.floor(a), jnp.ceil(a), jnp.round(a), jnp.sign(a), -a, abs(a),
                            jax.nn.sigmoid(a), jnp.isfinite(a), lax.round(a), lax.reduce_precision(a, 5, 10)], x)
    add("chlo", lambda a: [lax.erf(a), lax.erf_inv(a), lax.erfc(a), lax.lgamma(a), lax.digamma(a), jnp.arcsin(a),
                           jnp.arccos(a), jnp.arctan(a),
                           jnp.sinh(a), jnp.cosh(a), jnp.arcsinh(a), jnp.arctanh(a), lax.bessel_i1e(a), jnp.arccosh(a), lax.nextafter(a, a),
                           jax.scipy.special.zeta(a + 2, a + 1), jax.scipy.special.polygamma(1, a), lax.square(a)], x)
    add("integer", lambda a, b: [a & b, a | b, a ^ b, ~a, a << b, a >> b, lax.shift_right_logical(a, b),
                                 lax.population_count(a), lax.clz(a),
                                 a // b, a % b, lax.rem(a, b), lax.pow(a.astype(f32), b), jnp.minimum(a,
                                     b), jnp.maximum(a, b)],
        S((7,), i32), S((7,), i32))
    add("compare", lambda a, b: [a < b, a <= b, a > b, a >= b, a == b, a != b, jnp.where(a < b, a, b),
                                 lax.clamp(0.0, a, 1.0)], x, x)
    add("matmul", lambda a, b: a @ b, x, w)
    add("mlp", lambda a, b, c: jax.nn.relu(a @ b + c), x, w, v)
    add("softmax", lambda a: jax.nn.softmax(a), x)
    add("layernorm", lambda a: (a - a.mean(-1, keepdims=True)) * lax.rsqrt(a.var(-1, keepdims=True) + 1e-5), x)
    add("reductions", lambda a: [a.sum(), a.max(0), a.min(1), a.prod(), a.mean(), jnp.argmax(a, 1), jnp.any(a > 0),
                                 jnp.all(a > 0), jax.nn.logsumexp(a)], x)
    add("precision", lambda a, b: [lax.dot(a, b, precision="highest"), lax.dot(a, b, precision="BF16_BF16_F32"),
                                   lax.dot(a, b, precision=("default", "high"))], x, w)
    add("einsum", lambda a, b: jnp.einsum("bhqd,bhkd->bhqk", a, b), S((2, 3, 4, 5), f32), S((2, 3, 6, 5), f32))
    add("constants", lambda a: [a + np.arange(128, dtype=np.float32).reshape(8, 16), np.array([1, 2, 3], np.int8),
                                np.float32(np.nan), np.float32(-np.inf),
                                np.array([0.1, 1e-45, 3.4e38, -0.0],
                                         np.float32), np.array([True, False]), np.zeros((0, 3), np.float32),
                                np.ones((1,), np.float32), np.array([[1 + 2j, 3 - 1j]], np.complex64), np.full((300,),
                                    7, np.uint16)], x)
    add("weak_types", lambda a, s: (a * 2 + s, s + 1), x, 3.0)
    add("iota", lambda: [lax.iota(i32, 9), lax.broadcasted_iota(f32, (3, 4), 1), jnp.eye(4), jnp.tri(5)])

    # -- shape and movement
    add("shapes", lambda a: [a.T, a.reshape(4, 32), a[::-1], jnp.pad(a, ((1, 2), (0, 3))), jnp.concatenate([a, a], 1),
                             a[2:6:2, 1:9], jnp.tile(a, (2, 1)),
                             jnp.broadcast_to(a, (3, 8, 16)), lax.pad(a, 0.0,
                                 ((0, -1, 2), (1, 1, 0))), lax.bitcast_convert_type(a, i32), jnp.flip(a, 0)], x)
    add("dynamic_slice", lambda a, i: [lax.dynamic_slice(a, (i, i), (2, 3)),
                                       lax.dynamic_update_slice(a, a[:2, :2], (i, 0)), a[i]], x, S((), i32))
    add("gather", lambda a, i: [a[i], jnp.take(a, i, 1), jnp.take_along_axis(a, i[:, None], 1)], x, S((8,), i32))
    add("gather_batched", lambda a, i: jax.vmap(lambda p, q: p[q])(a, i), x, S((8, 3), i32))
    add("scatter", lambda a, i: [a.at[i].add(1.0), a.at[i].set(2.0), a.at[i].max(3.0), a.at[i, i].mul(4.0),
                                 a.at[i].min(0.5)], x, S((8,), i32))
    add("scatter_batched", lambda a, i: jax.vmap(lambda p, q: p.at[q].add(1.0))(a, i), x, S((8, 3), i32))
    add("sort", lambda a: [jnp.sort(a), jnp.argsort(a, 0), lax.sort((a, a + 1, a * 2), num_keys=2),
                           jnp.unique(a, size=5)], x)
    add("top_k", lambda a: lax.top_k(a, 4), x)
    add("cumulative", lambda a: [jnp.cumsum(a, 0), jnp.cumprod(a, 1), lax.cummax(a), lax.associative_scan(jnp.add, a)],
        x)
    add("one_hot", lambda i: jax.nn.one_hot(i, 10), S((5,), i32))

    # -- control flow
    add("cond", lambda p, a: lax.cond(p, lambda b: b * 2, lambda b: b - 1, a), S((), jnp.bool_), x)
    add("switch", lambda i, a: lax.switch(i, [lambda b: b, jnp.sin, lambda b: b @ b.T @ b], a), S((), i32), x)
    add("while", lambda a: lax.while_loop(lambda c: c[1] < 10, lambda c: (c[0] * 2, c[1] + 1), (a, 0)), x)
    add("fori", lambda a: lax.fori_loop(0, 5, lambda i, b: b + i * a, a), x)
    add("scan", lambda a, b: lax.scan(lambda c, e: (jnp.tanh(c @ b[:, :16] + e), c.sum()), jnp.zeros((16,)), a), x, w)
    add("scan_grad", jax.grad(lambda a, b: lax.scan(lambda c, e: (jnp.tanh(c @ b[:, :16] + e), c.sum()),
                                                    jnp.zeros((16,)), a)[1].sum(), (0, 1)), x, w)
    add("nested", lambda a: lax.fori_loop(0, 3, lambda i, b: lax.cond(i > 1,
        lambda c: lax.fori_loop(0, 2, lambda j, d: d + c, c), lambda c: c, b), a), x)
    add("calls", lambda a: jax.jit(jnp.sin)(a) + jax.jit(jnp.cos)(jax.jit(jnp.sin)(a)), x)

    # -- gradients
    add("grad_mlp", jax.grad(lambda p, a: ((jax.nn.gelu(a @ p["w"] + p["b"])) ** 2).mean()), {"w": w, "b": v}, x)
    add("grad_softmax", jax.grad(lambda a: jax.nn.log_softmax(a)[:, 0].sum()), x)
    add("hessian", jax.hessian(lambda a: jnp.sum(jnp.sin(a) ** 3)), S((3,), f32))
    add("jvp", lambda a, b: jax.jvp(jnp.tanh, (a,), (b,)), x, x)

    @jax.custom_vjp
    def clip(a):
        return jnp.clip(a, -1, 1)
    clip.defvjp(lambda a: (clip(a), a), lambda r, g: (g * (abs(r) < 2),))
    add("custom_vjp", jax.grad(lambda a: clip(a * 3).sum()), x)
    add("remat", jax.grad(lambda a, b: jax.checkpoint(lambda p: jnp.sin(jnp.sin(p @ b)))(a).sum()), x, w)
    add("donation", lambda p, g: (p - 0.1 * g, g * 2), x, x, donate_argnums=(0,))

    # -- convolutions and windows
    img, ker = S((2, 8, 8, 3), f32), S((3, 3, 3, 4), f32)
    conv = functools.partial(lax.conv_general_dilated, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    add("conv", lambda a, k: conv(a, k, (2, 2), "SAME"), img, ker)
    add("conv_dilated", lambda a, k: conv(a, k, (1, 1), ((1, 2), (0, 1)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)),
        img, ker)
    add("conv_grouped", lambda a, k: conv(a, k, (1, 1), "VALID", feature_group_count=3), img, S((3, 3, 1, 6), f32))
    add("conv_grad", jax.grad(lambda a, k: conv(a, k, (1, 1), "SAME").sum(), (0, 1)), img, ker)
    add("conv_1d", lambda a, k: lax.conv_general_dilated(a, k, (1,), "SAME"), S((2, 3, 9), f32), S((4, 3, 3), f32))
    add("pool", lambda a: [lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
                           lax.reduce_window(a, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")], img)
    add("pool_grad", jax.grad(lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
                                                          "VALID").sum()), img)

    def convnet(p, a):
        h = jax.nn.relu(conv(a, p["k"], (1, 1), "SAME"))
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return h.reshape(h.shape[0], -1) @ p["w"]
    add("convnet_step", jax.grad(lambda p, a: (convnet(p, a) ** 2).mean()), {"k": ker, "w": S((64, 10), f32)}, img)

    # -- random numbers, transforms, linear algebra
    add("threefry", lambda k: [jax.random.normal(k, (4, 4)), jax.random.uniform(k, (3,)), jax.random.split(k, 3)], key)
    add("rng_bits", lambda k: lax.rng_bit_generator(k, (4, 8), jnp.uint32), S((4,), jnp.uint32))
    add("rng_uniform", lambda: lax.rng_uniform(0.0, 1.0, (3, 2)))
    add("dropout", lambda k, a: jnp.where(jax.random.bernoulli(k, 0.9, a.shape), a / 0.9, 0.0), key, x)
    add("categorical", lambda k, a: jax.random.categorical(k, a), key, x)
    add("fft", lambda a: [jnp.fft.fft(a), jnp.fft.rfft(a), jnp.fft.irfft(jnp.fft.rfft(a)), jnp.fft.fft2(a),
                          jnp.fft.ifft(a)], x)
    add("cholesky", lambda a: jnp.linalg.cholesky(a), S((4, 4), f32))
    add("solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True, transpose_a=True),
        S((4, 4), f32), S((4, 2), f32))
    add("linalg", lambda a: [jnp.linalg.qr(a), jnp.linalg.svd(a, full_matrices=False), jnp.linalg.inv(a),
                             jnp.linalg.eigh(a)], S((4, 4), f32))

    # -- types
    add("bf16", lambda a, b: [a @ b, a.astype(f32).sum(), jnp.array([1.5, -0.0, 3e38], bf16), jnp.exp(a)],
        S((4, 8), bf16), S((8, 4), bf16))
    add("f16", lambda a: [a * jnp.float16(0.1), jnp.array([65504, 6e-8], jnp.float16)], S((4,), jnp.float16))
    add("f8", lambda a: [a.astype(t).astype(f32) for t in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3fnuz,
                                                           jnp.float8_e5m2fnuz,
                                                          jnp.float8_e4m3b11fnuz, jnp.float8_e3m4, jnp.float8_e4m3, jnp.float8_e8m0fnu)], x)
    add("f8_constants", lambda: [jnp.array([0.5, 448, -1.75], jnp.float8_e4m3fn),
                                 jnp.array([0.25, 57344], jnp.float8_e5m2), jnp.array([1, 6], jnp.float4_e2m1fn)])
    add("f8_dot", lambda a, b: lax.dot(a, b, preferred_element_type=f32), S((8, 8), jnp.float8_e4m3fn),
        S((8, 8), jnp.float8_e4m3fn))
    add("i4", lambda a: [a + jnp.array([1, -8, 7], jnp.int4), a.astype(i32), jnp.array([15, 3, 1], jnp.uint4)],
        S((3,), jnp.int4))
    add("i2", lambda a: [a.astype(jnp.int2), a.astype(jnp.uint2), jnp.array([1, -2], jnp.int2)], S((3,), i32))
    add("small_ints", lambda a, b: [a * a, b + b, a.astype(jnp.uint8), b.astype(jnp.int64),
                                    (b >> 1).astype(jnp.uint32)], S((5,), jnp.int8), S((5,), jnp.uint16))
    add("complex", lambda a, b: [lax.complex(a, b), lax.complex(a, b) * (1 + 2j), jnp.real(lax.complex(a, b)),
                                 jnp.conj(lax.complex(a, b)), jnp.abs(lax.complex(a, b)),
                                 jnp.exp(lax.complex(a, b))], x, x)
    add("bool", lambda a, b: [a & b, a | b, ~a, a ^ b, a.sum(), np.array([True, False, True] * 50)], S((5,), jnp.bool_),
        S((5,), jnp.bool_))

    def x64():
        with jax.enable_x64(True):
            return jax.jit(lambda a, b: [a * 0.1, jnp.sin(a), b + 2**40, np.float64(1e308) * a.sum(),
                                         np.array([1 / 3, 2 / 3]), lax.complex(a, a)]).lower(
                S((4,), jnp.float64), S((4,), jnp.int64))
    x64.__name__ = "f64"
    programs.append(x64)

    # -- custom calls, composites, barriers
    add("ffi", lambda a: jax.ffi.ffi_call("some_target", jax.ShapeDtypeStruct(a.shape, a.dtype),
                                          has_side_effect=True)(a, eps=np.float32(0.5), name="q\"\n\x01", n=3), x)
    add("ffi_layouts", lambda a: jax.ffi.ffi_call("other.target$x", jax.ShapeDtypeStruct(a.shape, a.dtype),
                                                  input_layouts=[(0, 1)], output_layouts=(0, 1),
                                                 input_output_aliases={0: 0})(a), x)
    add("callback", lambda a: jax.pure_callback(lambda b: b, jax.ShapeDtypeStruct(a.shape, a.dtype), a), x)
    add("composite", lambda a: lax.composite(lambda b, *, k: b * k, name="my.scale")(a, k=2.5), x)
    add("barrier", lambda a, b: lax.optimization_barrier((a * 2, b)), x, x)
    add("named_scope", lambda a: jax.named_call(lambda b: jnp.sin(b), name="block \"one\"")(a), x)
    add("debug_print", lambda a: (jax.debug.print("sum {s}", s=a.sum()), a)[1], x)
    add("ragged_dot", lambda a, b, g: lax.ragged_dot(a, b, g), S((8, 4), f32), S((2, 4, 5), f32), S((2,), i32))

    # -- shapes known later
    def polymorphic():
        from jax import export
        n, = export.symbolic_shape("n",)
        e = export.export(jax.jit(lambda a: (a.reshape(-1), a.sum(0), jnp.concatenate([a, a]),
                                             jnp.arange(a.shape[0]) + 1, a[1:], jnp.pad(a,
                                                 ((0, a.shape[0]), (0, 0))))))(S((n, 4), f32))
        return e
    polymorphic.__name__ = "polymorphic"
    programs.append(polymorphic)

    # -- many devices
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("x", "y"))
    mesh1 = Mesh(np.array(jax.devices()[:8]), ("d",))
    rev = Mesh(np.array(jax.devices()[:8])[::-1].reshape(4, 2), ("a", "b"))
    sh = lambda *p: NamedSharding(mesh, P(*p))
    add("sharded", lambda a, b: a @ b, x, w, in_shardings=(sh("x", "y"), sh("y", None)), out_shardings=sh("x", None))
    add("constraint", lambda a, b: lax.with_sharding_constraint(jnp.sin(a @ b), sh("x", "y")) * 2, x, w,
        in_shardings=(sh("x"), sh(None, "y")))
    add("constraint_open", lambda a: lax.with_sharding_constraint(a, sh(("x", "y"), P.UNCONSTRAINED)), x,
        in_shardings=(sh("x"),))
    add("reversed_mesh", lambda a: a * 2, x, in_shardings=(NamedSharding(rev, P("a", "b")),))
    smap = functools.partial(jax.shard_map, mesh=mesh1, in_specs=P("d"), check_vma=False)
    add("psum", smap(lambda a: lax.psum(a, "d"), out_specs=P()), x)
    add("all_gather", smap(lambda a: lax.all_gather(a, "d", tiled=True), out_specs=P()), x)
    add("reduce_scatter", smap(lambda a: lax.psum_scatter(a, "d", scatter_dimension=1, tiled=True), out_specs=P("d")),
        S((8, 16), f32))
    add("ppermute", smap(lambda a: lax.ppermute(a, "d", [(i, (i + 1) % 8) for i in range(8)]), out_specs=P("d")), x)
    add("all_to_all", smap(lambda a: lax.all_to_all(a, "d", 1, 0, tiled=True), out_specs=P("d")), x)
    add("pmax_index", smap(lambda a: lax.pmax(a, "d") + lax.axis_index("d"), out_specs=P("d")), x)
    add("shard_map_partial", jax.shard_map(lambda a: lax.psum(a, "y"), mesh=mesh, in_specs=P(None, "y"), out_specs=P(),
                                           axis_names={"y"}, check_vma=False), x,
        in_shardings=(sh("x", "y"),))
    add("shard_map_grad", jax.grad(lambda a: jax.shard_map(lambda b: lax.pmean((b ** 2).sum(), "d"), mesh=mesh1,
                                                           in_specs=P("d"), out_specs=P())(a)), x)
    add("donation_sharded", lambda a: a + 1, x, in_shardings=(sh("x", "y"),), out_shardings=sh("x", "y"),
        donate_argnums=(0,))

    def moe(p, a):
        gates = jax.nn.softmax(a @ p["gate"])
        top, which = lax.top_k(gates, 2)
        mask = (jax.nn.one_hot(which, 4) * top[..., None]).sum(1)
        h = jnp.einsum("td,edf->tef", a, p["up"])
        return jnp.einsum("tef,efd,te->td", jax.nn.silu(h), p["down"], mask)
    moe_p = {"gate": S((16, 4), f32), "up": S((4, 16, 32), f32), "down": S((4, 32, 16), f32)}
    add("moe", moe, moe_p, x)
    add("moe_grad", jax.grad(lambda p, a: (moe(p, a) ** 2).mean()), moe_p, x)
    add("ssm", lambda a, b: lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b))[1], x, x)

    # -- a GPT training step, as large as real ones are
    def gpt(layers, d, heads, ff, vocab, t, b, **jit):
        def init():
            blk = {"q": S((d, d), f32), "k": S((d, d), f32), "v": S((d, d), f32), "o": S((d, d), f32),
                   "up": S((d, ff), f32), "down": S((ff, d), f32),
                   "n1": S((d,), f32), "n2": S((d,), f32), "b1": S((d,), f32), "b2": S((d,), f32)}
            return {"emb": S((vocab, d), f32), "pos": S((t, d), f32), "blocks": [dict(blk) for _ in range(layers)],
                    "nf": S((d,), f32)}

        def norm(a, g, s=0.0):
            m = a.mean(-1, keepdims=True)
            return (a - m) * lax.rsqrt(((a - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + s

        def loss(p, tok):
            h = p["emb"][tok] + p["pos"]
            mask = jnp.tril(jnp.ones((t, t), bool))
            for k in p["blocks"]:
                y = norm(h, k["n1"], k["b1"])
                q, kk, vv = ((y @ k[c]).reshape(b, t, heads, d // heads) for c in "qkv")
                s = jnp.einsum("bqhd,bkhd->bhqk", q, kk) / np.sqrt(d // heads)
                a = jax.nn.softmax(jnp.where(mask, s, -1e9))
                h = h + jnp.einsum("bhqk,bkhd->bqhd", a, vv).reshape(b, t, d) @ k["o"]
                h = h + jax.nn.gelu(norm(h, k["n2"], k["b2"]) @ k["up"]) @ k["down"]
            lg = jax.nn.log_softmax(norm(h, p["nf"]) @ p["emb"].T)
            return -jnp.take_along_axis(lg[:, :-1], tok[:, 1:, None], -1).mean()

        def step(p, m, u, i, tok):
            l, g = jax.value_and_grad(loss)(p, tok)
            m = jax.tree.map(lambda a, c: 0.9 * a + 0.1 * c, m, g)
            u = jax.tree.map(lambda a, c: 0.999 * a + 0.001 * c * c, u, g)
            fix = jnp.sqrt(1 - 0.999 ** i) / (1 - 0.9 ** i)
            p = jax.tree.map(lambda a, c, e: a - 1e-3 * fix * c / (jnp.sqrt(e) + 1e-8) - 1e-4 * a, p, m, u)
            return p, m, u, i + 1, l
        p = init()
        return jax.jit(step, **jit).lower(p, p, p, S((), f32), S((b, t), i32))

    def gpt_small():
        return gpt(2, 32, 4, 64, 50, 16, 2, donate_argnums=(0, 1, 2))

    def gpt_step():
        return gpt(4, 64, 4, 256, 256, 64, 4, donate_argnums=(0, 1, 2))

    def gpt_sharded():
        return gpt(1, 32, 4, 64, 64, 16, 8, in_shardings=(sh(), sh(), sh(), sh(), sh("x")))
    programs.extend([gpt_small, gpt_step, gpt_sharded])


def write(name, suffix, data):
    with open(os.path.join(OUT, name + suffix), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def forms(name, lowered):
    """Writes every form of one lowered program."""
    import io
    from jaxlib import _jax
    from jaxlib.mlir import ir

    made = []
    if hasattr(lowered, "mlir_module_serialized"):                      # an Exported
        write(name, ".mlir", lowered.mlir_module())
        write(name, ".v1.16.0.bc", lowered.mlir_module_serialized)
        return ["mlir", "vhlo"]
    text = lowered.as_text()
    write(name, ".mlir", text)
    write(name, ".loc.mlir", lowered.as_text(debug_info=True))
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        buf = io.BytesIO()
        module.operation.write_bytecode(file=buf)
        write(name, ".bc", buf.getvalue())
    last = None
    for v in VERSIONS:
        try:
            data = _jax.mlir.serialize_portable_artifact(module, v, use_mixed_serialization=True)
        except Exception:                                                # older versions lack some op or type
            continue
        if data != last:
            write(name, f".v{v}.bc", data)
            made.append(v)
        last = data
    try:
        with module.context:
            comp = _jax.mlir.mlir_module_to_xla_computation(str(module), use_tuple_args=False, return_tuple=False)
        write(name, ".hlo.pb", comp.as_serialized_hlo_module_proto())
        made.append("hlo")
    except Exception as e:
        made.append("no hlo: " + str(e).splitlines()[0][:60])
    return made


def current():
    """Is it there, made by this corpus.py from this JAX?"""
    digest = hashlib.sha256(open(os.path.abspath(__file__), "rb").read()
                            + importlib.metadata.version("jax").encode()).hexdigest()
    stamp = os.path.join(OUT, "stamp")
    return os.path.exists(stamp) and open(stamp).read() == digest, stamp, digest


def write_all(force, only):
    os.makedirs(OUT, exist_ok=True)
    lock = open(os.path.join(OUT, "lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side; the first makes it, the others wait
    there, stamp, digest = current()
    if there and not force and not only:
        return
    define()
    for p in programs:
        if only and p.__name__ not in only:
            continue
        made = forms(p.__name__, p())
        print(f"corpus: {p.__name__}: {' '.join(made)}", file=sys.stderr)
    if not only:
        with open(stamp, "w") as f:
            f.write(digest)


def make():
    """Its folder; made, where it is not there yet, by a process of its own: the caller's JAX may have other settings."""
    if not current()[0]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
        subprocess.run([sys.executable, os.path.abspath(__file__)], env=env, check=True, stdout=subprocess.DEVNULL)
    return OUT


if __name__ == "__main__":
    args = [a for a in sys.argv[1:] if a != "--force"]
    write_all("--force" in sys.argv, args)
    print(f"ok corpus: {len([f for f in os.listdir(OUT) if f.endswith('.loc.mlir')])} programs in {OUT}")
