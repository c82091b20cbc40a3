"""Rounding errors of sums on the xlane device beside those of JAX's CPU, both against f64: every kind of reduction,
alone and inside fused groups, products, convolution gradients, cumulative sums and scatters. Ours must be at most
XLA's, or below 4e-7. Prints the table; the bits must not depend on the number of threads."""
import hashlib, os, subprocess, sys
from _jax import here, lib
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax

rng = np.random.default_rng(0)
U = lambda *shape: rng.random(shape, dtype=np.float32)
# name, program, arguments; terms are positive, so errors are relative to the result
cases = []

for shape, axes in [((1 << 18, 16), (0,)), ((1 << 18, 3), (0,)), ((4096, 1024), (0,)), ((4096, 1024), (1,)),
                    ((4096, 1024), (0, 1)), ((1 << 22,), (0,)), ((3, 1 << 20), (1,)),
                    ((1 << 16, 8, 8), (0,)), ((64, 256, 256), (0, 2)), ((64, 256, 256), (1,)), ((128, 32, 28, 28),
                        (0, 2, 3)), ((128, 28, 28, 32), (0, 1, 2)),
                    ((1000, 999), (0,)), ((7, 100003), (1,)), ((100003, 7), (0,)), ((2, 70000, 5),
                        (1,)), ((16, 17, 18, 19, 20), (1, 3)), ((1 << 20, 1), (0,))]:
    name = "x".join(map(str, shape)) + " over " + ",".join(map(str, axes))
    x = U(*shape)
    cases.append(("sum " + name, lambda x, axes=axes: jnp.sum(x, axes), (x,)))
    # the same in a fused group, with the elementwise results wanted too
    if len(cases) % 3 == 0:
        cases.append(("mean of squares " + name, lambda x, axes=axes: (jnp.mean(x * x, axes), jnp.exp(-x)), (x,)))
x = U(1 << 16, 64)
cases += [
    ("variance 65536x64 over 0", lambda x: jnp.var(x, 0), (x,)),
    ("variance 64x65536 over 1", lambda x: jnp.var(x, 1), (x.T.copy(),)),
    ("column and whole sums in one group", lambda x: (jnp.sum(jnp.exp(x), 0), jnp.sum(jnp.exp(x)), jnp.exp(x)), (x,)),
    ("bias gradient 65536x64", jax.grad(lambda b, x: jnp.sum(jnp.exp((x + b) * 0.5))), (U(64), x)),
    ("softmax denominators 8x200000", lambda x: jnp.sum(jnp.exp(x - jnp.max(x, 1, keepdims=True)), 1), (U(8, 200000),)),
    ("product 4096x64 over 0", lambda x: jnp.prod(x, 0), (np.float32(0.95) + np.float32(0.1) * U(4096, 64),)),
    ("complex sum", lambda x: jnp.real(jnp.sum(lax.complex(x, x), 0)), (U(1 << 16, 9),)),
    ("dot 64x262144 by 262144x32", lambda a, b: a @ b, (U(64, 1 << 18), U(1 << 18, 32))),
    ("dot of vectors 2^20", lambda a, b: a @ b, (U(1 << 20), U(1 << 20))),
    ("vector by matrix 262144x64", lambda a, b: a @ b, (U(1 << 18), U(1 << 18, 64))),
    ("matrix by vector 64x262144", lambda a, b: a @ b, (U(64, 1 << 18), U(1 << 18))),
    ("two columns, matrix transposed", lambda a, b: a.T @ b, (U(1 << 17, 48), U(1 << 17, 2))),
    ("batched dot 6x8x65536x8", lambda a, b: jnp.einsum("bik,bkj->bij", a, b), (U(6, 8, 65536), U(6, 65536, 8))),
    ("bf16 sum 65536x8", lambda x: jnp.sum(x.astype(jnp.bfloat16), 0).astype(jnp.float32), (U(1 << 16, 8),)),
    ("cumsum 65536", lambda x: jnp.cumsum(x, 0), (U(1 << 16, 4),)),
    ("cumsum as windows 4096", lambda x: lax.reduce_window(x, np.float32(0), lax.add, (4096, 1), (1, 1),
                                                           [(4095, 0), (0, 0)]), (U(4096, 8),)),
    ("window sums 1024x1024", lambda x: lax.reduce_window(x, np.float32(0), lax.add, (256, 256), (256, 256), "valid"),
     (U(1024, 1024),)),
    ("scatter-add of 200000 into 7", lambda x, i: jnp.zeros(7).at[i].add(x),
     (U(200000), rng.integers(0, 7, 200000).astype(np.int32))),
    ("segment_sum of rows", lambda x, i: jax.ops.segment_sum(x, i, 5),
     (U(50000, 8), rng.integers(0, 5, 50000).astype(np.int32))),
    ("convolution kernel gradient", lambda x, g: lax.conv_general_dilated(
        x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3), (1, 1), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO",
            "NHWC")), (U(16, 48, 48, 6), U(16, 48, 48, 5))),
    ("row sums 4000x511", lambda x: jnp.sum(x, 1), (U(4000, 511),)),
    ("matrix by vector 500x3000", lambda a, b: a @ b, (U(500, 3000), U(3000))),
    ("cumsum 2^20", jnp.cumsum, (U(1 << 20),)),
]

def convolution(groups=1, layout=("NHWC", "HWIO", "NHWC")):
    n = len(layout[0]) - 2
    return lambda x, k: lax.conv_general_dilated(x, k, (1,) * n, "SAME", dimension_numbers=layout,
                                                 feature_group_count=groups)
for m, k, n in [(1, 33, 5), (5, 33, 1), (4, 33, 4), (8, 33, 8), (17, 33, 9), (3, 33, 64), (33, 33, 33), (5, 100, 7),
                (64, 127, 64), (64, 200, 48), (6, 511, 6), (3, 1000, 5), (200, 65, 2),
                (300, 40, 300), (129, 129, 131), (300, 257, 300), (65, 300, 67), (301, 385, 299), (300, 512, 50),
                (257, 513, 300), (101, 868, 293), (300, 1025, 100)]:
    cases.append(("dot %dx%dx%d" % (m, k, n), lambda a, b: a @ b, (U(m, k), U(k, n))))
for b, m, k, n in [(64, 5, 33, 5), (16, 60, 100, 60), (6, 100, 129, 100), (3, 197, 385, 197)]:
    cases.append(("dot %dx%dx%dx%d" % (b, m, k, n), lambda a, b: a @ b, (U(b, m, k), U(b, k, n))))
half = jnp.bfloat16
for m, k, n in [(300, 129, 300), (300, 257, 300), (65, 513, 67)]:
    cases.append(("dot of bf16 %dx%dx%d" % (m, k, n), lambda a, b: jnp.matmul(
        a.astype(half), b.astype(half), preferred_element_type=a.dtype), (U(m, k), U(k, n))))
cases += [("dot turned", lambda a, b: jnp.tanh((a @ b).T * 1e-4), (U(256, 257), U(257, 300))),
          ("dot and bias", lambda a, b, c: jax.nn.relu(a @ b + c), (U(100, 200), U(200, 10), U(10)))]
for s, c, k in [(20, 16, 7), (16, 32, 5)]:
    cases.append(("depthwise %dx%dx%d by %dx%d" % (s, s, c, k, k), convolution(c), (U(2, s, s, c), U(k, k, 1, c))))
for s, c, o, k in [(16, 16, 16, 5), (16, 8, 8, 3), (28, 1, 6, 5)]:
    cases.append(("convolution %dx%dx%d, %d of %dx%d" % (s, s, c, o, k, k), convolution(),
                  (U(2, s, s, c), U(k, k, c, o))))
for s, c, o, k in [(200, 8, 8, 33), (200, 1, 4, 65)]:
    cases.append(("convolution %dx%d, %d of %d" % (s, c, o, k), convolution(1, ("NWC", "WIO", "NWC")),
                  (U(3, s, c), U(k, c, o))))
cases += [
    ("depthwise 200x8 by 33", convolution(8, ("NWC", "WIO", "NWC")), (U(3, 200, 8), U(33, 1, 8))),
    ("convolution input gradient", jax.grad(lambda x, k, y: jnp.sum(convolution()(x, k) * y)),
     (U(2, 16, 16, 8), U(5, 5, 8, 8), U(2, 16, 16, 8))),
    ("convolve 1000 by 64", jnp.convolve, (U(1000), U(64))),
    ("attention scores", lambda q, k: jnp.einsum("bhqd,bhkd->bhqk", q, k), (U(2, 3, 20, 33), U(2, 3, 20, 33))),
    ("correlate 200 by 200", jnp.correlate, (U(200), U(200))),
    ("convolve 5000 by 300", jnp.convolve, (U(5000), U(300))),
]
for m, k, n in [(5, 33, 7), (20, 300, 20), (1, 1000, 1)]:     # parts of the product are sums of positive terms
    def parts(p, q, r, s):
        y = lax.complex(p, q) @ lax.complex(r, -s)
        return jnp.real(y), jnp.imag(lax.complex(p, q) @ lax.complex(r, s))
    cases.append(("complex dot %dx%dx%d" % (m, k, n), parts, (U(m, k), U(m, k), U(k, n), U(k, n))))

def leaves(v):
    return [np.asarray(o, np.float64) for o in jax.tree.leaves(v)]
def error(got, want):
    return max(float(np.max(np.abs(g - w) / np.maximum(np.abs(w), 1e-30))) for g, w in zip(got, want))
def on(device, fn, args, wide=False):
    put = [jax.device_put(a.astype(np.float64) if wide and a.dtype == np.float32 else a, device) for a in args]
    return leaves(jax.jit(fn)(*put))

xl, cpu = jax.devices("xlane")[0], jax.devices("cpu")[0]
if len(sys.argv) > 1:                                # a child: the bits of all results
    for name, fn, args in cases:
        print(hashlib.sha256(b"".join(o.tobytes() for o in on(xl, fn, args))).hexdigest())
    sys.exit()
counts = ("1", "5", "16") if os.environ.get("XLANE_TEST_ALL") == "1" else ("5",)
children = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "bits"],
                             env=dict(os.environ, XLANE_CPU_THREADS=t, JAX_PLATFORMS="xlane,cpu"),
                             stdout=subprocess.PIPE, text=True) for t in counts]
bad = 0
print("%-44s %10s %10s" % ("", "ours", "XLA CPU"))
bits = []
for name, fn, args in cases:
    got = on(xl, fn, args)
    bits.append(hashlib.sha256(b"".join(o.tobytes() for o in got)).hexdigest())
    theirs = on(cpu, fn, args)
    with jax.enable_x64(True):
        want = on(cpu, fn, args, wide=True)
    if name.startswith("bf16"):                      # its rounding to bf16 is neither's doing
        want = theirs
    ours, xla = error(got, want), error(theirs, want)
    fine = ours <= max(xla, 4e-7)
    bad += not fine
    print("%-44s %10.2e %10.2e%s" % (name, ours, xla, "" if fine else "  <-- too large"))
print("%s accuracy: %d of %d sums at most XLA's error or 4e-7" % ("FAIL" if bad else "ok", len(cases) - bad,
    len(cases)))
for threads, child in zip(counts, children):
    out = child.communicate()[0].split()
    wrong = [c[0] for c, a, b in zip(cases, bits, out) if a != b] if len(out) == len(cases) else ["no results"]
    print("FAIL threads: %s threads give other bits: %s" % (threads, ", ".join(wrong)) if wrong
          else "ok threads: %s threads give the same bits" % threads)
    bad += bool(wrong)
sys.exit(bad > 0)
