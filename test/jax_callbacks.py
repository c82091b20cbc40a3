"""Host callbacks of JAX programs on the device: values, order, errors; under jit, vmap, grad, scan, cond, while,
shard_map, and on eight devices. Also with JAX's CPU left out of JAX_PLATFORMS: a callback's operands then lie on the
device."""
import subprocess, sys
from _check import end, runs
from _eight import here, lib
import os
import numpy as np
import jax
import jax.numpy as jnp
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


def same(a, b, tol=1e-6):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol)

def sine(x):
    return jax.pure_callback(lambda v: np.sin(np.asarray(v)), jax.ShapeDtypeStruct(x.shape, x.dtype), x,
                             vmap_method="expand_dims")

x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
mesh = Mesh(np.array(jax.devices("xlane")), ("d",))
seen = []
note = lambda *a: seen.append([np.asarray(v).copy() for v in a])

def expect(values, ordered=True):
    jax.effects_barrier()
    got, seen[:] = [tuple(v.tolist() for v in a) for a in seen], []
    want = [v if isinstance(v, tuple) else (v,) for v in values]
    assert (got if ordered else sorted(got)) == (want if ordered else sorted(want)), "called with %s, not %s" % (got,
        want)

def values():
    same(jax.jit(sine)(x), np.sin(x))
    same(sine(jnp.asarray(x)), np.sin(x))
    same(jax.vmap(sine)(x), np.sin(x))
    same(jax.jit(lambda v: jnp.tanh(v @ v.T + sine(v) @ v.T))(x), np.tanh(x @ x.T + np.sin(x) @ x.T))
runs("values", values)

def types():
    for dtype in ("bool", "int8", "uint16", "int32", "bfloat16", "float16", "float32", "complex64", "int4"):
        v = jnp.asarray(np.arange(6) % 2, dtype)
        out = jax.jit(lambda v: jax.pure_callback(lambda w: np.asarray(w)[::-1], jax.ShapeDtypeStruct(v.shape, v.dtype),
                                                  v))(v)
        assert out.dtype == v.dtype and np.array_equal(np.asarray(out), np.asarray(v)[::-1]), dtype
    for shape in ((), (0,), (3, 0, 2), (1, 1)):
        out = jax.jit(lambda v: jax.pure_callback(lambda w: np.asarray(w) + 1, jax.ShapeDtypeStruct(v.shape, v.dtype),
                                                  v))(jnp.zeros(shape))
        assert np.array_equal(np.asarray(out), np.ones(shape)), shape
    same(jax.jit(lambda: jax.pure_callback(lambda: np.float32(7), jax.ShapeDtypeStruct((), jnp.float32)))(), 7)
runs("types", types)

def gradient():
    @jax.custom_jvp
    def s(v):
        return sine(v)
    s.defjvp(lambda p, t: (s(p[0]), t[0] * jnp.cos(p[0])))
    same(jax.jit(jax.grad(lambda v: (s(v) ** 2).sum()))(x), 2 * np.sin(x) * np.cos(x))
    def loss(v):
        jax.debug.callback(note, v.sum())
        return (v ** 2).sum()
    same(jax.jit(jax.grad(loss))(jnp.ones(3)), 2 * np.ones(3))
    expect([3.0])
runs("gradient", gradient)

def ordered():
    def f(v):
        for i in range(4):
            io_callback(note, None, v + i, ordered=True)
        return jax.lax.fori_loop(0, 5, lambda i, c: (io_callback(note, None, i * 10, ordered=True), c + 1)[1], v)
    assert int(jax.jit(f)(100)) == 105
    expect([100, 101, 102, 103, 0, 10, 20, 30, 40])
    def g(c, i):
        jax.debug.callback(note, c, i, ordered=True)
        return c + i, c
    jax.jit(lambda: jax.lax.scan(g, 0, jnp.arange(4)))()
    expect([(0, 0), (0, 1), (1, 2), (3, 3)])
    counter = [0]
    def count(_):
        counter[0] += 1
        return np.int32(counter[0])
    h = jax.jit(lambda v: [io_callback(count, jax.ShapeDtypeStruct((), jnp.int32), v, ordered=True) for _ in range(3)])
    assert [int(v) for v in h(0)] == [1, 2, 3]             # equal calls are not one
runs("ordered", ordered)

def branches():
    f = jax.jit(lambda p, v: jax.lax.cond(p, lambda v: (jax.debug.callback(note, v), v + 1)[1], lambda v: v - 1, v))
    assert int(f(True, 5)) == 6 and int(f(False, 5)) == 4
    expect([5])
    w = jax.jit(lambda v: jax.lax.while_loop(lambda c: jax.pure_callback(lambda a: np.asarray(a) < 5,
        jax.ShapeDtypeStruct((), bool), c), lambda c: c + 2, v))
    assert int(w(0)) == 6
    jax.jit(jax.vmap(lambda v: jax.debug.callback(note, v)))(jnp.arange(3))
    expect([0, 1, 2], ordered=False)
runs("branches", branches)

def errors():
    def fails(v):
        raise ValueError("this one goes wrong")
    for f in (lambda v: jax.pure_callback(fails, v, v), lambda v: io_callback(fails, v, v, ordered=True)):
        try:
            jax.block_until_ready(jax.jit(f)(np.float32(1)))
            raise AssertionError("no error")
        except jax.errors.JaxRuntimeError as e:
            assert "this one goes wrong" in str(e) and "fails" in str(e), e
    try:
        jax.block_until_ready(jax.jit(lambda v: jax.pure_callback(lambda w: np.zeros(3, np.float32), v,
            v))(np.float32(1)))
        raise AssertionError("no error")
    except jax.errors.JaxRuntimeError as e:
        assert "Incorrect output shape" in str(e), e
    split = jax.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(mesh, P("d")))
    try:
        jax.block_until_ready(jax.jit(lambda v: jax.pure_callback(fails, jax.ShapeDtypeStruct((8,), jnp.float32),
            v))(split))
        raise AssertionError("no error")
    except jax.errors.JaxRuntimeError as e:
        assert "this one goes wrong" in str(e), e
    same(jax.jit(sine)(x), np.sin(x))                      # the client goes on
runs("errors", errors)

def eight():
    v = np.arange(16, dtype=np.float32).reshape(8, 2)
    split = jax.device_put(v, NamedSharding(mesh, P("d")))
    times = [0]
    def once(a):
        times[0] += 1
        assert a.shape == (8, 2)
        return np.cumsum(np.asarray(a), 0)
    out = jax.jit(lambda a: jax.pure_callback(once, jax.ShapeDtypeStruct(a.shape, a.dtype), a * 2) + 1,
                  out_shardings=NamedSharding(mesh, P("d")))(split)
    same(out, np.cumsum(2 * v, 0) + 1)
    assert times[0] == 1, "called %d times" % times[0]
    jax.jit(lambda a: (jax.debug.callback(note, a.sum()), a + 1)[1])(split).block_until_ready()
    expect([120.0])
    for i in range(3):
        jax.jit(lambda a: io_callback(note, None, a[0, 0], ordered=True))(split + i)
    expect([0.0, 1.0, 2.0])
    each = jax.jit(jax.shard_map(lambda a: (jax.debug.callback(note, a.sum()), jax.lax.psum(sine(a), "d"))[1],
                                 mesh=mesh, in_specs=P("d"), out_specs=P()))
    same(each(split), np.sin(v).sum(0, keepdims=True), 1e-5)
    expect([float(r.sum()) for r in v], ordered=False)
    with jax.set_mesh(mesh):                               # the caller's mesh is not the callback's
        two = jax.jit(jax.shard_map(lambda a: jax.pure_callback(lambda w: w + 1, a, a), in_specs=P("d"),
                                    out_specs=P("d")))
        same(two(split), v + 1)
    deep = lambda a: jax.pure_callback(lambda w: np.asarray(jax.jit(lambda z: jnp.linalg.norm(z) * jnp.ones(4))(np.asarray(w))), jax.ShapeDtypeStruct((4,), jnp.float32), a)
    same(jax.jit(deep)(split), np.linalg.norm(v) * np.ones(4), 1e-5)       # JAX inside a callback
runs("eight devices", eight)

def inspected():
    got = []
    split = jax.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("d")))
    def f(v):
        v = jnp.sin(v)
        jax.debug.inspect_array_sharding(v, callback=got.append)
        return v * 2
    same(jax.jit(f)(split), 2 * np.sin(np.ones((8, 4))))
    assert len(got) == 1 and got[0].is_equivalent_to(NamedSharding(mesh, P("d")), 2), got
runs("inspect_array_sharding", inspected)

def not_kept():
    c = jax.jit(sine).lower(x).compile()
    try:
        c._executable.xla_executable.serialize()
        raise AssertionError("it was serialised")
    except jax.errors.JaxRuntimeError as e:
        assert "cannot be stored" in str(e), e
runs("not serialised", not_kept)

alone = """
import jax, jax.numpy as jnp, numpy as np, sys
assert [d.platform for d in jax.devices()] == ["xlane"]
f = jax.jit(lambda v: (jax.debug.print("v is {}", v), jax.pure_callback(lambda w: jnp.sin(w) + 1, v, v))[1])
assert abs(float(f(jnp.float32(2))) - np.sin(2) - 1) < 1e-6
w, _ = jnp.linalg.eigh(jnp.array([[2., 1], [1, 2]]))
assert np.allclose(w, [1, 3], atol=1e-5)
try:
    jax.local_devices(backend="cpu")
    sys.exit("a CPU that was not asked for")
except RuntimeError:
    pass
"""
env = dict(os.environ, JAX_PLATFORMS="xlane", XLANE_CPU_DEVICES="1", XLA_FLAGS="")
p = subprocess.run([sys.executable, "-c", alone], env=env, capture_output=True, text=True, timeout=600)
print("ok without JAX's CPU" if p.returncode == 0 and "v is 2.0" in p.stdout else "FAIL without JAX's CPU: "
      + (p.stdout + p.stderr)[-600:])
sys.exit(end() or p.returncode != 0)
