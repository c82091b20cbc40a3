"""Plans with and without fusion give the same numbers, and the number of threads changes no bit of them.

The programs of the corpus (and a few more that fusion should like) are run on random arguments in child processes:
XLANE_CPU_PLAN=plain, planned with one thread (and each plan checked), planned with three. The first
lowers them for all. The two may take a sum in another order: floats agree within a tolerance of their type relative to
the largest element; integers and booleans exactly."""
import functools
import os
import sys
import tempfile
import corpus                                                # it asks for eight devices
os.environ["JAX_PLATFORMS"] = "xlane,cpu"                    # and for the CPU alone
import _fork

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def more():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def norm(x, g):
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return (x - m) * lax.rsqrt(v + 1e-5) * g + g
    x, g = jnp.zeros((67, 300)), jnp.zeros(300)
    y = {"softmax": lambda x, g: jax.nn.softmax(x), "layer norm": norm, "gelu": lambda x, g: jax.nn.gelu(x),
         "grads": jax.grad(lambda x, g: (norm(x, g) ** 3).sum(), (0, 1)), "columns": lambda x, g: (x * 2 + g).sum(0),
         "everything": lambda x, g: (x * x).sum(), "turned": lambda x, g: x.T * 2 + g[:,
             None], "slices": lambda x, g: x[3:50, 10:210:2] * 3 + g[50:250:2],
         "small rows": lambda x, g: jnp.exp(x[:, :296].reshape(67, 37, 8) * g[:8]).sum(-1),
         "bf16": lambda x, g: jax.nn.softmax(x.astype(jnp.bfloat16) * g.astype(jnp.bfloat16)).sum(0),
         "attention": jax.grad(lambda x, g: (jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((67, 67), bool)), x @ x.T,
             -1e9)) @ x).sum()),
         "entropy": jax.value_and_grad(lambda x, g: -jnp.take_along_axis(jax.nn.log_softmax(x), jnp.arange(67)[:, None],
             1).mean()),
         "scan": lambda x, g: lax.scan(lambda c, r: (c * 0.9 + r, jnp.tanh(c).sum()), g,
                                       x), "iota": lambda x, g: jnp.where(jnp.arange(300) > 7, x,
                                           jnp.arange(67.)[:, None]),
         "choices": lambda x, g: (jnp.where(x > g, x * 2, g - x), (x > g) & ~(x < 0) | (g == x), jnp.clip(x, -0.5, g),
                                  jnp.where(x.max(1, keepdims=True) > 2, x, -x)),
         "integers": lambda x, g: [(lambda i, u: ((i << 3) ^ (i >> 2), (u >> 5) | (u << 27), u >> jnp.uint32(33),
                                                  jnp.abs(i) % 7, jnp.minimum(i,
                                                      9) * 5 - (i >= 3), u.astype(jnp.float32), i > 4,
                                                  (u > 77).astype(jnp.int32).sum(1)))((x * 1e3).astype(jnp.int32),
                                                      (x * 1e3).astype(jnp.int32).astype(jnp.uint32))],
         "ends": lambda x, g: (lambda y: (lax.bitcast_convert_type(jnp.maximum(y, -0.0 * x), jnp.int32),
                                          lax.bitcast_convert_type(jnp.minimum(y, 0.0 * x),
                                              jnp.int32), jnp.isnan(jnp.maximum(y / y, x)),
                                          jnp.isnan(jnp.sqrt(y) + jnp.log(y) * 0), (y / 3e38 * 1e3).astype(jnp.int32), y.max(1), (y - 1).min(1), jnp.sign(y), jnp.isfinite(1 / y)))(jnp.where(x > 1, jnp.inf, jnp.where(x < -1, -0.0, jnp.round(x)))),
         "sums and products": lambda x, g: (x * g + x, x - g * 2, g * 3 - x, x * g + g * x, (x * 2 + 1) * g - 3, (1 - x) * x - (x - 2)), "bf16 out": lambda x, g: (lambda b: (b * g.astype(jnp.bfloat16) + 1, b > 0, b.max(1)))(x.astype(jnp.bfloat16)),
         "in place": lambda x, g: (x + 1, x * 2, (x + 1) * (x * 2)),
         # one line for all rows, summed by itself and with others
         "the same line": lambda x, g: [(jax.nn.softmax(b), jax.nn.logsumexp(b * 3, 1), norm(b, g),
                                         (b - b.min(1, keepdims=True)).sum(1), (b
                                             + x[:5]).max(1)) for b in (jnp.broadcast_to(g, (5, 300)),)],
         "the same line in bf16": lambda x, g: [(jax.nn.softmax(b), (b - b.max(1, keepdims=True)).sum(1)) for b
                                                in (jnp.broadcast_to(g.astype(jnp.bfloat16), (5, 300)),)],
         # by a number, which is known beforehand or an argument, alone, under a root, and divided again: to the last
         # bit
         **{"quotients" + n: lambda x, g, f=f: [lax.bitcast_convert_type(f(y / c, x * g), jnp.int32) for c
                                                in (3, 0.3, -7e-5, g[7], 1 - 0.9 ** jnp.abs(g[5]))
                                                for y in (x, jnp.where(x > 1, jnp.inf,
                                                    jnp.where(x < -1, x * 1e-36,
                                                        jnp.where(jnp.abs(x) < 0.1, -0.0, x))))]
            for n, f in (("", lambda q, y: q), (" under a root", lambda q, y: jnp.sqrt(q)),
                         (" divided again", lambda q, y: q / y))},
         # a part of a temporary, read in a narrow type, has as many bytes as what is made of it: nothing may be written
         # over it
         **{"half of it in " + d: lambda x, g, d=d: (lambda b: norm(b[:, :150].astype("float32") * g[:150],
             g[:150]))((x[:1, :67] @ x).astype(d)) for d in ("bfloat16", "float16", "int16")},
         "half of a product": lambda x, g: (lambda b: norm(b[:, :150].astype("float32") * g[:150], g[:150]))(x[:1,
             :67].astype("bfloat16") @ x.astype("bfloat16")),
         "a quarter of it": lambda x, g: (lambda b: norm(b[:, :75].astype("float32") * g[:75],
                                                         g[:75]))(((x[:1, :67] @ x) * 9).astype("int8")),
         "half of some rows": lambda x, g: (lambda b: norm(b.reshape(-1)[:32 * 300].reshape(32,
             300).astype("float32") * g, g))(x[:64, :67].astype("bfloat16") @ x.astype("bfloat16"))}
    # Training steps with so much in memory that cheap values are made again (remat.c): what was left in the first
    # group, read by nobody, kept others from being made.
    s, w = jnp.zeros((128, 64)), jnp.zeros((64, 256))
    step = lambda act: jax.value_and_grad(lambda s, w, v: ((act(s @ w) @ v - s) ** 2).mean(), (1, 2))
    deep = lambda act: jax.value_and_grad(lambda s, w, v: ((act(act(act(s @ w) @ v) @ w) @ v - s) ** 2).mean(),
                                          (0, 1, 2))
    acts = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "gelu": jax.nn.gelu, "silu": jax.nn.silu,
            "softplus": jax.nn.softplus, "elu": jax.nn.elu,
            "gated": lambda h: jnp.tanh(h) * jax.nn.sigmoid(h), "mish": lambda h: h * jnp.tanh(jax.nn.softplus(h)), "softmax": jax.nn.softmax}
    z = {"%s %s" % (n, a): (f(acts[a]), (s, w, w.T)) for n, f in (("mlp", step), ("deep", deep)) for a in acts}
    # Two results, of which one lies in the memory of an operand that the other still reads; operands that are results
    # as they are; a batch of 0.
    for d in "bfloat16", "float16", "float32", "bool":
        z["turned over in " + d] = (lambda x: (jnp.flip(x + x, 1), jnp.flip(x, 0) + (x + x))), (jnp.zeros((4, 64), d),)
        z["passed through in " + d] = (lambda x: (lambda p, q: [jnp.flip(v, 0) for v
            in (p + q, lax.optimization_barrier(p), q * p, p * 1)])(jnp.flip(x, 1),
                jnp.flip(x, 0))), (jnp.zeros((40, 64), d),)
    z["passed through as bits"] = lambda x: (lambda p, q: [jnp.flip(v, 0) for v
                                                           in (p + q, lax.bitcast_convert_type(p, jnp.int32),
                                                               lax.bitcast_convert_type(q,
                                                                   jnp.int32), p * q)])(jnp.flip(x, 1),
                                                                       jnp.flip(x, 0)), (s,)
    for d in "float32", "int32", "bfloat16":
        z["no batch in " + d] = jnp.matmul, (jnp.zeros((0, 8, 3), d), jnp.zeros((0, 3, 3), d))
    return [(n, jax.jit(f), (x, g)) for n, f in y.items()] + [(n, jax.jit(f), a) for n, (f, a) in z.items()]


def child(out, lowered_before):
    import jax
    import numpy as np
    import pickle
    from jax.experimental.serialize_executable import deserialize_and_load, serialize
    corpus.define()
    results, made = {}, {}
    if os.path.exists(lowered_before):
        with open(lowered_before, "rb") as f:
            made = pickle.load(f)
    again = not made

    def value(rng, a):
        d = np.dtype(a.dtype)
        if d.kind == "b":
            return rng.integers(0, 2, a.shape).astype(d)
        if d.kind in "iu":
            return rng.integers(0, 5, a.shape).astype(d)
        if d.kind == "c":
            return (rng.standard_normal(a.shape) + 1j * rng.standard_normal(a.shape)).astype(d)
        return rng.standard_normal(a.shape).astype(d)

    def compiled(name, lower):
        """The executable. A serialised one is its program: loading it plans that anew, as this process should; it takes
        and gives lists."""
        if name in made:
            text, ins, outs, on = made[name]
            trees = (jax.tree.structure(t) for t in (((list(range(ins)),), {}), list(range(outs))))
            return deserialize_and_load(text, *trees, "xlane", [jax.devices("xlane")[i] for i in on])
        c = lower().compile()
        if again:
            try:
                made[name] = (serialize(c)[0], c.in_tree.num_leaves, c.out_tree.num_leaves,
                              [d.id for d in c.runtime_executable().local_devices()])
            except Exception as e:                           # with host callbacks, or values of Python
                print("%s is lowered each time: %s" % (name, str(e)[:100]), file=sys.stderr)
        return c

    def run(name, lower):
        rng = np.random.default_rng(7)
        c = compiled(name, lower)
        args, named = jax.tree.map(lambda a: value(rng, a), c.args_info)
        got = c(*args, **named)
        for i, o in enumerate(jax.tree.leaves(got)):
            o = np.asarray(o)
            wide = o.astype(np.float64) if o.dtype.kind == "V" or o.dtype.name.startswith(("bf", "float8")) else o
            results["%s %d %s" % (name.replace(" ", "_"), i, o.dtype.name)] = wide

    for p in corpus.programs:
        if p.__name__ == "rng_uniform":                      # other numbers every time
            continue
        try:
            run("corpus " + p.__name__, p)
        except Exception as e:                               # sharded, polymorphic, or nothing a single device runs
            if "plan check" in str(e):
                raise
            print("%s: %s" % (p.__name__, str(e).split("\n")[0][:200]), file=sys.stderr)
    for name, fn, args in more():
        run(name, lambda: fn.lower(*args))
    for path, what in (out, results), (lowered_before, made):
        with open(path, "wb") as f:
            pickle.dump(what, f)


def main():
    import numpy as np
    import pickle
    env = dict(os.environ, XLANE_CPU_DEVICES="8", PJRT_NAMES_AND_LIBRARY_PATHS="xlane:"
               + os.environ.get("XLANE_CPU_PLUGIN", os.path.join(root, "build", "libxlane-cpu.so")))
    got = []
    with tempfile.TemporaryDirectory() as tmp:
        for i, extra in enumerate(({"XLANE_CPU_PLAN": "plain"}, {"XLANE_CPU_THREADS": "1", "XLANE_CPU_CHECK": "1"},
                                   {"XLANE_CPU_THREADS": "3"})):
            out = os.path.join(tmp, "%d" % i)
            with open(out + ".log", "w+") as log:
                status = _fork.Child(functools.partial(child, out, os.path.join(tmp, "lowered")), dict(env, **extra),
                                     log).wait()
                log.seek(0)
                said = log.read()
            if status or "-v" in sys.argv:
                print(said if not status else said[-2000:])
            if status:
                print("FAIL fuse: the child with %s" % extra)
                return 1
            got.append(pickle.load(open(out, "rb")))
    plain, one, three = got
    bad = 0
    eps = {"bfloat16": 2 ** -7, "float16": 2 ** -9, "float32": 2e-5, "float64": 1e-12, "complex64": 2e-5,
           "complex128": 1e-12}
    if plain.keys() != one.keys() or one.keys() != three.keys() or not plain:
        print("FAIL fuse: not the same programs ran: %s"
              % sorted(plain.keys() ^ one.keys() | one.keys() ^ three.keys())[:5])
        return 1
    for k in plain:
        a, b, c = plain[k], one[k], three[k]
        d = k.split()[-1]
        if b.tobytes() != c.tobytes():
            print("FAIL fuse threads: %s differs between one thread and three" % k)
            bad += 1
        if d in eps:
            finite = np.isfinite(a) & np.isfinite(b)
            scale = np.max(np.abs(a[finite]), initial=1e-30)
            far = np.max(np.abs(a[finite] - b[finite]), initial=0) / scale
            if far > eps[d] * 4 or not np.array_equal(np.isnan(a),
                                                      np.isnan(b)) or not np.array_equal(a[~finite & ~np.isnan(a)],
                                                          b[~finite & ~np.isnan(b)]):
                print("FAIL fuse: %s differs by %g of its largest element" % (k, far))
                bad += 1
        elif not np.array_equal(a, b):
            print("FAIL fuse: %s differs" % k)
            bad += 1
    if not bad:
        print("ok fuse: %d results of %d programs, fused and not" % (len(plain), len({k.split()[0] for k in plain})))
        print("ok fuse threads: one and three give the same bits")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
