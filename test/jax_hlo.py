"""What JAX asks of a device in XLA's own form: programs rewritten as HLO while they are compiled (jax.extend.xla), the
memories of arguments and results in a compiled program's text, and what is logged of passes. On eight devices."""
import sys
from _check import end, runs
from _eight import here, lib
import numpy as np
import jax
import jax.extend.xla as xla
import jax.numpy as jnp
from jax._src import test_util
from jax._src.lib import hlo, utils
from jax.experimental.serialize_executable import serialize
from jax.sharding import NamedSharding, PartitionSpec as P
import contextlib

device = jax.devices("xlane")[0]
mesh = jax.make_mesh((8,), ("x",), devices=jax.devices("xlane"))
split = NamedSharding(mesh, P("x"))
across = NamedSharding(mesh, P(None, "x"))
on_host = NamedSharding(mesh, P("x"), memory_kind="pinned_host")
x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
PRE, POST = xla.PipelineStage.PRE_SCHEDULER, xla.PipelineStage.POST_SCHEDULER


@contextlib.contextmanager
def rewriting(fn, stage=PRE):
    xla.register_hlo_module_transformation(fn, name="test", stage=stage, platforms="xlane")
    try:
        yield
    finally:
        assert xla.clear_hlo_module_transformation("test", stage, platforms="xlane")


def to_tanh(code):
    """Field 2 of an instruction is its opcode; the two names have one length."""
    return code.replace(b"\x12\x04sine", b"\x12\x04tanh") if b"\x12\x04sine" in code else None

def rewritten():
    with rewriting(to_tanh):
        f = jax.jit(jnp.sin)
        np.testing.assert_allclose(f(x), np.tanh(x), atol=1e-6)
        text = f.lower(x).compile().as_text()
        assert "tanh(" in text and " sine(" not in text, text
        np.testing.assert_allclose(jax.jit(jnp.cos)(x), np.cos(x), atol=1e-6)
    assert not xla.clear_hlo_module_transformation("test", PRE, platforms="xlane")
    f.clear_cache()
    np.testing.assert_allclose(f(x), np.sin(x), atol=1e-6)
runs("a program is rewritten while it is compiled", rewritten)

def on_a_mesh():
    with rewriting(to_tanh):
        f = jax.jit(lambda v, w: (jnp.sin(v) * 2 + w.sum(), (v * 3).T), donate_argnums=0, in_shardings=(split, on_host),
                    out_shardings=(on_host, across))
        v, w = jax.device_put(x, split), jax.device_put(x + 1, on_host)
        a, b = f(v, w)
    np.testing.assert_allclose(a, np.tanh(x) * 2 + (x + 1).sum(), rtol=1e-5)
    np.testing.assert_array_equal(b, (x * 3).T)
    assert v.is_deleted() and not w.is_deleted()
    assert a.sharding.memory_kind == "pinned_host" and b.sharding.memory_kind == "device"
runs("on a mesh, with donation and two memories", on_a_mesh)

def in_stages():
    seen = []
    def note(code):
        module = hlo.HloModule.from_serialized_hlo_module_proto(code)
        order = module.schedule()
        seen.append((module.to_string(), order is not None))
        if order is not None:
            order.update()
            order.verify()
    with rewriting(to_tanh), rewriting(note, POST):
        for n in range(3, 33):                       # a compile may be on any thread: what jaxlib wrote outlives its call
            jax.jit(lambda v: jax.lax.fori_loop(0, n, lambda i, c: jnp.sin(c), v).sum())(x)
    loops = [s for s in seen if "while" in s[0]]
    assert len(loops) == 30, len(loops)
    for text, ordered in loops:
        assert ordered and "tanh(" in text and " sine(" not in text, text
runs("the second stage gets what the first made, with an order", in_stages)

def everything_comes_back():
    """A program that is handed out and back unchanged computes the same."""
    from jax.scipy import special
    def f(m):
        keys = jax.random.normal(jax.random.key(0), (4,))
        loop = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] @ m * .1), (0, m))[1]
        sums = [jnp.sort(m, 0), *jax.lax.top_k(m, 2), jnp.cumsum(m, 1), m.at[jnp.array([1, 2])].add(3.),
                jax.nn.softmax(m)]
        linear = [jnp.linalg.svd(m)[1], jnp.linalg.eigh(m @ m.T)[0], jnp.linalg.inv(m), jnp.linalg.qr(m)[1]]
        shapes = [jnp.fft.fft(m), jax.lax.conv_general_dilated(m[None, None], m[None, None], (1, 1), "SAME"),
                  m.astype(jnp.bfloat16), jnp.where(m > 0, m, jnp.nan), (m * 9).astype(jnp.int4).astype(jnp.int32)]
        jax.debug.callback(lambda v: calls.append(float(v)), m[0, 0])
        return keys, loop, sums, linear, shapes, special.erf(m), special.erfc(m), special.gammaln(m + 2), jnp.exp2(m)
    m, calls = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32), []
    want = jax.jit(lambda m: f(m))(m)
    with rewriting(lambda code: code):
        for a, b in zip(jax.tree.leaves(jax.jit(lambda m: f(m))(m)), jax.tree.leaves(want)):
            np.testing.assert_allclose(np.asarray(a, np.complex64), np.asarray(b, np.complex64), rtol=3e-6, atol=3e-6)
    jax.effects_barrier()
    assert calls == [m[0, 0]] * 2, calls
runs("ops, loops, decompositions and callbacks come back from HLO", everything_comes_back)

def failing():
    def fails(fn, word):
        with rewriting(fn):
            try:
                jax.jit(lambda v: v * 3 + len(word))(x)
            except Exception as e:
                assert word in str(e), e
            else:
                raise AssertionError("no error: " + word)
    def raises(code):
        raise ValueError("not today")
    fails(raises, "not today")
    fails(lambda code: code[:len(code) // 2], "reading what an XLA transformation made")
    fails(lambda code: b"", "XLA transformation")
    with jax.enable_x64(True):
        other = jax.jit(lambda v: v + 1).lower(np.zeros(3)).compiler_ir("hlo").as_serialized_hlo_module_proto()
    fails(lambda code: other, "changed the type of argument 0")
    np.testing.assert_allclose(jax.jit(lambda v: v * 5)(x), x * 5)     # the client goes on
runs("one that fails, or makes no program, fails the compile", failing)

def not_serialised():
    with rewriting(to_tanh):
        compiled = [jax.jit(f).lower(x).compile() for f in (lambda v: jnp.sin(v) + 1, lambda v: jnp.cos(v) + 1)]
    serialize(compiled[1])                           # was not changed
    try:
        serialize(compiled[0])
    except Exception as e:
        assert "XLA transformation" in str(e), e
    else:
        raise AssertionError("it would be loaded as another program")
runs("a rewritten executable is not serialised", not_serialised)

def memories():
    f = jax.jit(lambda v, w: (v * 2, (w + 1).T), in_shardings=(split, on_host), out_shardings=(on_host, across))
    head = f.lower(x, x).compile().as_text().split("\n")[0]
    assert "(f32[1,4]{1,0}, f32[1,4]{1,0:S(5)})->(f32[1,4]{1,0:S(5)}, f32[4,1]{1,0})" in head, head
    assert "num_partitions=8" in head, head
    one = jax.jit(lambda v: v + 1, out_shardings=jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host"))
    head = one.lower(x).compile().as_text().split("\n")[0]
    assert "{(f32[8,4]{1,0})->f32[8,4]{1,0:S(5)}}" in head, head
    head = jax.jit(lambda v: v + 1).lower(x).compile().as_text().split("\n")[0]
    assert "S(" not in head, head
runs("memories in a compiled program's text", memories)

def logged():
    def said(fn):
        with test_util.capture_stderr() as text:
            jax.jit(fn)(x)
        return text()
    assert "after pass" not in said(lambda v: v * 7)
    utils.absl_set_vlog_level("hlo_pass_pipeline", 1)
    try:
        text = said(lambda v: v * 8)
        assert "hlo_pass_pipeline.cc" in text and "after pass dce" in text, text
    finally:
        utils.absl_set_vlog_level("hlo_pass_pipeline", 0)
    assert "after pass" not in said(lambda v: v * 9)
runs("passes are logged where jaxlib is told to log XLA's", logged)

def reservable():
    stats = device.memory_stats()
    assert 0 < stats["bytes_reservable_limit"] <= stats["bytes_limit"] // 8 + stats["bytes_in_use"], stats
runs("devices share the memory that they could still get", reservable)

sys.exit(end())
