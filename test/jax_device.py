"""The device behind the ops: devices and memory as the environment sets them, limits, serialised executables, donation, errors."""
import os, sys
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
lib = os.environ.get("XLANE_CPU_PLUGIN", os.path.join(here, "build", "libxlane-cpu.so"))
os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = "xlane:" + lib
import _fork, _quick
_quick.use()

MANY = 200 if os.environ.get("XLANE_TEST_ALL") == "1" else 60   # programs that may not leave anything behind


def run(name, code, **more):
    status, said = _fork.run(code, **more)
    print("%s %s" % ("FAIL" if status else "ok", name) if status is not None else "FAIL %s: not done in time" % name)
    if status != 0:
        print("\n".join(said.strip().split("\n")[-6:]))
    return status == 0

ok = True
ok &= run("devices", """
import jax, numpy as np
assert len(jax.devices()) == 8
x = jax.device_put(np.arange(5.0), jax.devices()[3])
assert (x + 1).devices() == {jax.devices()[3]}
y = jax.device_put(x, jax.devices()[5])
assert np.asarray(y)[4] == 4
""", XLANE_CPU_DEVICES="8")
ok &= run("calls are inlined in the compiled program's text", """
import jax, jax.numpy as jnp
inner = jax.jit(lambda x: jnp.sin(x) * 2)
lowered = jax.jit(lambda x: inner(x) + inner(x + 1)).lower(1.)
assert "call @" in lowered.as_text(), lowered.as_text()
text = lowered.compile().as_text()
assert text.count("sine(") == 2 and " call(" not in text, text
""")
ok &= run("given twice, named wrongly", """
import jax, jax.numpy as jnp
f, x = jax.jit(lambda x, y: x + y, donate_argnums=0), jnp.zeros(10)
try:
    f(x, x)
    assert False, "a donated argument was read in another place"
except Exception as e:
    assert "argument 0" in str(e) and "is also argument 1" in str(e), e
assert float(f(x, jnp.ones(10)).sum()) == 10
lowered = jax.jit(lambda x: x + 1).lower(1.)
for options, says in (({"no_such": "1"}, "No such compile option: 'no_such'"), ({"xla_embed_ir_in_executable": "perhaps"}, "is not a valid bool value")):
    try:
        lowered.compile(compiler_options=options)
        assert False, options
    except Exception as e:
        assert says in str(e), e
assert lowered.compile(compiler_options={"xla_embed_ir_in_executable": True})(1.) == 2
""")
ok &= run("limit", """
import jax, jax.numpy as jnp, numpy as np
s = jax.devices()[0].memory_stats()
assert s["bytes_limit"] == 16 << 20, s
try:
    jax.jit(lambda: jnp.ones((4096, 4096)) * 2)()
    assert False, "64 MiB fit into 16"
except Exception as e:
    assert "E1000" in str(e) and "Exceeded hbm capacity by" in str(e), e
try:
    jax.device_put(np.ones((4096, 4096), np.float32))
    assert False, "64 MiB fit into 16"
except Exception as e:
    assert "RESOURCE_EXHAUSTED" in str(e), e
assert float((jnp.ones(8) + 1).sum()) == 16          # the client goes on
before = jax.devices()[0].memory_stats()["bytes_in_use"]
x = jax.device_put(np.ones(1 << 18, np.float32))
assert jax.devices()[0].memory_stats()["bytes_in_use"] - before >= 1 << 20
del x
assert jax.devices()[0].memory_stats()["bytes_in_use"] <= before + 4096
""", XLANE_CPU_HBM="16MiB")
ok &= run("donation", """
import jax, jax.numpy as jnp, numpy as np
f = jax.jit(lambda x, y: (x * 2 + y, x - y), donate_argnums=0)
x, y = jnp.arange(4000.0), jnp.ones(4000)
p = x.unsafe_buffer_pointer()
a, b = f(x, y)
assert x.is_deleted() and not y.is_deleted()
assert a.unsafe_buffer_pointer() == p
assert float(a[3]) == 7 and float(b[3]) == 2
x = jnp.arange(4000.0)
view = np.asarray(x)                                  # somebody looks at the memory: it may not be written
a, b = f(x, y)
assert view[3] == 3 and float(a[3]) == 7
try:
    f(x, y)
    assert False
except Exception as e:
    assert "delete" in str(e) or "donate" in str(e), e
""")
ok &= run("irfft to nothing", """
import jax, jax.numpy as jnp
assert jax.lax.fft(jnp.zeros((3, 1), jnp.complex64), "IRFFT", (0,)).shape == (3, 0)
assert jax.lax.fft(jnp.zeros((3, 0), jnp.complex64), "IRFFT", (0,)).shape == (3, 0)
""")
ok &= run("serialise", """
import jax, jax.numpy as jnp, numpy as np, pickle
from jax.experimental import serialize_executable as se
f = jax.jit(lambda x: jnp.tanh(x @ x.T).sum(0))
x = np.random.default_rng(0).normal(size=(9, 7)).astype(np.float32)
c = f.lower(x).compile()
blob, i, o = se.serialize(c)
g = se.deserialize_and_load(blob, i, o)
assert np.array_equal(np.asarray(g(x)), np.asarray(c(x)))
m = c.memory_analysis()
assert m.argument_size_in_bytes == 9 * 7 * 4 and m.output_size_in_bytes == 9 * 4
assert c.cost_analysis()["flops"] > 0
client = jax.devices()[0].client
raw = client.serialize_executable(c._executable.xla_executable) if hasattr(client, "serialize_executable") else None
""")
ok &= run("a loaded executable's text does not say who called", """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import serialize_executable as se
f = lambda x: jnp.tanh(x) * 2
def again(compiled):
    return se.deserialize_and_load(*se.serialize(compiled))
here, there = jax.jit(f).lower(np.ones(5)).compile(), jax.jit(lambda x: f(x)).lower(np.ones(5)).compile()
assert "column" in again(here).as_text() or "source_line" in again(here).as_text()
assert here.as_text().count("file_location_id") > again(here).as_text().count("file_location_id")
""")
ok &= run("leaks", """
import gc, jax, jax.numpy as jnp, numpy as np, resource
def grown(device, first, n):
    with jax.default_device(device):
        for i in range(first, first + n):
            f = jax.jit(lambda x: (x * 2).sum() + i)
            float(f(np.ones(1000, np.float32)))
            f.clear_cache()
        jax.clear_caches()
        gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ours, theirs = jax.devices("xlane")[0], jax.devices("cpu")[0]   # JAX's own CPU device is the control
grown(ours, 0, MANY // 3), grown(theirs, 0, MANY // 3)
s = ours.memory_stats()["bytes_in_use"]
before = grown(theirs, 1000, 1)
control = grown(theirs, 2000, MANY) - before
mine = grown(ours, 3000, MANY) - before - control
assert ours.memory_stats()["bytes_in_use"] <= s, (ours.memory_stats(), s)
assert mine <= 2 * control + before // 50, (mine, control, before)
""".replace("MANY", str(MANY)), JAX_PLATFORMS="xlane,cpu")
for name, value, word in (("PLAN", "off", "planned plain"), ("CHECK", "yes", "0 or 1"),
                          ("THREADS", "many", "from 1 to 1024"), ("FUSE", "0", "XLANE_CPU_PLAN")):
    ok &= run("unknown " + name, """
import jax, jax.numpy as jnp
try:
    jax.devices()
    raise SystemExit("XLANE_CPU_%s=%s was accepted")
except RuntimeError as e:
    assert "XLANE_CPU_%s" in str(e) and "%s" in str(e), e
""" % (name, value, name, word), **{"XLANE_CPU_" + name: value})
ok &= run("sizes that come later", """
import jax, jax.numpy as jnp, numpy as np
from jax import export, lax
v = np.linspace(0.5, 4, 12).astype(np.float32)
f = jax.jit(lambda x: (lax.lgamma(x), lax.digamma(x), lax.erfc(x), lax.exp2(x)))
a, = export.symbolic_shape("n")
spec = jax.ShapeDtypeStruct((a,), np.float32)
e = export.export(f, platforms=["xlane"])(spec)
for e in (e, export.deserialize(e.serialize())):          # the same functions, whenever the size is known
    for one, all in zip(e.call(v), f(v)):
        np.testing.assert_array_equal(one, all)
e = export.deserialize(export.export(f, platforms=["cpu", "xlane"])(spec).serialize())
for device in jax.devices("cpu")[0], jax.devices("xlane")[0]:
    for one, all in zip(e.call(jax.device_put(v, device)), f(v)):
        np.testing.assert_allclose(one, all, rtol=2e-5, atol=2e-6)
p = np.array([3, 1, 3, 3], np.int32)
g = jax.jit(lambda p: lax.linalg.lu_pivots_to_permutation(p, 4))
e = export.deserialize(export.export(g)(jax.ShapeDtypeStruct(p.shape, p.dtype)).serialize())
np.testing.assert_array_equal(e.call(p), g(p))
""", JAX_PLATFORMS="xlane,cpu")
ok &= run("exports for several platforms", """
import jax, jax.numpy as jnp, numpy as np
from jax import export, lax
m = np.eye(4, dtype=np.float32) * 3 + 1
def f(a):
    kind = lax.platform_dependent(a, cpu=lambda x: x + 1, tpu=lambda x: x + 2, cuda=lambda x: x + 3)
    solved = lax.linalg.triangular_solve(a, a + 1, left_side=False, lower=True, transpose_a=True, unit_diagonal=True)
    bad = lax.linalg.cholesky(jnp.stack([a, -a]))              # a second matrix that is not positive definite
    return (kind, lax.linalg.cholesky(a), bad, solved, *jnp.linalg.qr(a[:, :3]), jnp.linalg.eigh(a)[0],
            jnp.linalg.svd(a)[1], jnp.linalg.solve(a, a[0]), lax.digamma(a))
n, = export.symbolic_shape("n")
for platforms in ("cpu", "cuda", "tpu"), ("tpu", "cuda", "cpu"):
    e = export.deserialize(export.export(jax.jit(f), platforms=platforms)(jax.ShapeDtypeStruct(m.shape,
        m.dtype)).serialize())
    assert e.platforms == platforms
    cpu = e.call(jax.device_put(m, jax.devices("cpu")[0]))
    for ours in (e.call(m), jax.jit(lambda v: e.call(v))(m),
                 export.deserialize(export.export(jax.jit(lambda v: e.call(v)))(m).serialize()).call(m)):
        for a, b in zip(ours, cpu):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(ours[0], m + 1)
    sized = export.export(jax.jit(lambda v: v * 2), platforms=platforms)(jax.ShapeDtypeStruct((n,), np.float32))
    np.testing.assert_array_equal(sized.call(m[0]), 2 * m[0])
for platforms in ("cpu",), ("cuda",), ("cuda", "tpu"):         # JAX's own check stays
    try:
        export.export(jax.jit(jnp.sin), platforms=platforms)(m).call(m)
        raise SystemExit("%s was served" % (platforms,))
    except ValueError as e:
        assert "was exported for platforms" in str(e), e
""", JAX_PLATFORMS="xlane,cpu")
ok &= run("reflectors", """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
rng = np.random.default_rng(3)
def one(dtype, high, k, other, batch):
    make = lambda *shape: (rng.standard_normal(shape) + (1j * rng.standard_normal(shape)
        if dtype.startswith("complex") else 0)).astype(dtype)
    v, tau = make(*batch, high, k), make(*batch, k) * 0.3
    for left in (True, False):
        c = make(*batch, *((high, other) if left else (other, high)))
        for back in (False, True):
            f = jax.jit(lambda v, tau, c: lax.linalg.ormqr(v, tau, c, left=left, transpose=back))
            there = f(*(jax.device_put(x, jax.devices("cpu")[0]) for x in (v, tau, c)))
            here = f(v, tau, c)
            assert "ormqr" in (text := f.lower(v, tau, c).as_text()) or "unmqr" in text, text
            np.testing.assert_allclose(here, there, rtol=3e-4, atol=3e-4 if high < 20 else 3e-2)
if hasattr(lax.linalg, "ormqr"):
    jax.config.update("jax_enable_x64", True)
    for dtype in ("float32", "float64", "complex64", "complex128"):
        for sizes in ((4, 3, 2, ()), (5, 5, 7, (2, 3)), (6, 1, 1, (1,)), (33, 20, 40, (2,)), (4, 3, 0, (2,))):
            one(dtype, *sizes)
""", JAX_PLATFORMS="xlane,cpu")
ok &= run("types without QR", """
import jax, jax.numpy as jnp
def refusal(device, dtype):
    with jax.default_device(jax.devices(device)[0]):
        try:
            jnp.linalg.qr(jnp.ones((5, 6), dtype))
        except (NotImplementedError, TypeError) as e:      # TypeError in newer versions of JAX
            return type(e), str(e).split("\\n")[0]
    raise SystemExit("QR of %s was accepted on %s" % (dtype, device))
for dtype in "float16", "bfloat16":
    ours, cpus = refusal("xlane", dtype), refusal("cpu", dtype)
    assert ours[0] is cpus[0] and ours[1] in cpus[1] and dtype in ours[1], (ours, cpus)
""", JAX_PLATFORMS="xlane,cpu")
ok &= run("pivots", """
import jax, numpy as np
from jax import lax
for shape, size in (((5,), 5), ((3, 4), 7), ((2, 2, 1), 1)):
    p = np.random.default_rng(0).integers(0, max(size, 1), shape).astype(np.int32)
    p = np.maximum(p, np.arange(shape[-1], dtype=np.int32)).reshape(shape)
    want = np.tile(np.arange(size), shape[:-1] + (1,)).reshape(-1, size)
    for row, swaps in zip(want, p.reshape(-1, shape[-1])):
        for i, j in enumerate(swaps):
            row[i], row[j] = row[j], row[i]
    f = jax.jit(lambda p: lax.linalg.lu_pivots_to_permutation(p, size))
    np.testing.assert_array_equal(f(p), want.reshape(shape[:-1] + (size,)))
    assert "while" not in f.lower(p).as_text()
wild = np.random.default_rng(1).integers(-9, 9, (200, 3)).astype(np.int32)     # rows that are not there
want = np.tile(np.arange(5), (200, 1))
for row, swaps in zip(want, wild):
    for i, j in enumerate(swaps + 5 * (swaps < 0)):
        was, row[i] = row[i], row[min(max(j, 0), 4)]
        if 0 <= j < 5:
            row[j] = was
np.testing.assert_array_equal(jax.jit(lambda p: lax.linalg.lu_pivots_to_permutation(p, 5))(wild), want)
none = np.zeros((2, 0), np.int32)
np.testing.assert_array_equal(jax.jit(lambda p: lax.linalg.lu_pivots_to_permutation(p, 3))(none), [[0, 1, 2]] * 2)
a = np.random.default_rng(0).standard_normal((3, 20, 20)).astype(np.float32)
np.testing.assert_allclose(jax.vmap(jax.numpy.linalg.inv)(a) @ a, np.broadcast_to(np.eye(20), a.shape), atol=1e-3)
""")
ok &= run("unknown when compiling", """
import os, jax, jax.numpy as jnp
f = jax.jit(lambda x: x + 1)
f(jnp.ones(3))
os.environ["XLANE_CPU_PLAN"] = "plian"
try:
    jax.jit(lambda x: x + 2)(jnp.ones(3))
    raise SystemExit("XLANE_CPU_PLAN=plian was accepted")
except jax.errors.JaxRuntimeError as e:
    assert "XLANE_CPU_PLAN=plian" in str(e) and "planned plain" in str(e), e
""")
sys.exit(0 if ok else 1)
