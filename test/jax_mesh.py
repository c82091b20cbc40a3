"""What JAX programs on a mesh ask of a device besides values: unreduced axes, donation of what cannot be used, programs
without results, meshes in any order, the text of the optimised program, arguments split as others are, collectives that are started and
awaited. On eight devices, values against numpy."""
import inspect, sys
from _check import end, runs
from _eight import here, lib
import numpy as np
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P


def same(a, b, tol=1e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tol, atol=tol)

mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2, devices=jax.devices("xlane"))
rng = np.random.default_rng(0)
a, b = (rng.normal(size=(8, 8)).astype(np.float32) for _ in range(2))
put = lambda v, *spec: jax.device_put(v, NamedSharding(mesh, P(*spec)))

def unreduced():
    with jax.set_mesh(mesh):
        l, r = put(a, "y", "x"), put(b, "x", None)
        f = jax.jit(lambda l, r: jnp.einsum("ab,bc->ac", l, r, out_sharding=P("y", None, unreduced={"x"})))
        out = f(l, r)
        assert out.sharding.spec == P("y", None, unreduced={"x"}), out.sharding
        same(jax.jit(lambda v: jax.sharding.reshard(v, P("y", None)))(out), a @ b)
        same(jax.jit(lambda v: jax.sharding.reshard(v, P("y", "x")))(out), a @ b)
        same(jax.jit(lambda l, r: jax.sharding.reshard(jnp.einsum("ab,bc->ac", l, r,
            out_sharding=P("y", None, unreduced={"x"})), P(None, None)) * 2)(l, r), 2 * a @ b)
        text = f.lower(l, r).compile().as_text()
        assert "all-reduce" not in text, text               # what is not asked for is not summed
runs("unreduced axes of a product", unreduced)

def unreduced_loop():
    """Linear ops and loops keep a value unreduced: gradients are summed once, after the last microbatch."""
    with jax.set_mesh(mesh):
        w, x = put(b, None, None), jax.device_put(np.stack([a, 2 * a, a - 1]), NamedSharding(mesh, P(None, "x", None)))
        def step(w, x, twice):
            def body(acc, x):
                y = jnp.einsum("ab,bc->ac", x, w, out_sharding=P("x", None))
                g = jnp.einsum("ac,ab->cb", y, x, out_sharding=P(unreduced={"x"}))
                return acc + g.T, None
            acc = jax.sharding.reshard(jnp.ones_like(w), P(unreduced={"x"}))
            acc = jax.lax.scan(body, acc, x)[0]
            if twice:
                acc = jax.lax.scan(body, acc, x)[0]
            return jax.sharding.reshard(acc, P())
        want = 1 + sum(v.T @ (v @ b) for v in (a, 2 * a, a - 1))
        f = jax.jit(step, static_argnums=2)
        same(f(w, x, False), want, 1e-4)
        same(f(w, x, True), 2 * want - 1, 1e-4)
        text = f.lower(w, x, True).compile().as_text()
        assert text.count("all-reduce(") == 1, text
        i = jax.device_put(np.array([0, 0, 1, 1, 1, 2, 2, 3], np.int32), NamedSharding(mesh, P("x")))
        v = jax.device_put(np.arange(8, dtype=np.int32), NamedSharding(mesh, P("x")))
        if "out_sharding" in inspect.signature(jax.ops.segment_sum).parameters:
            out = jax.jit(lambda v, i: jax.ops.segment_sum(v, i, num_segments=4, out_sharding=P(unreduced={"x"})))(v, i)
            parts = {s.device.id: np.asarray(s.data) for s in out.addressable_shards}
            for k, part in enumerate(((1, 0, 0, 0), (0, 5, 0, 0), (0, 4, 5, 0), (0, 0, 6, 7))):
                same(parts[mesh.devices[k, 0].id], part)
            same(jax.jit(lambda o: jax.sharding.reshard(o, P()))(out), (1, 9, 11, 7))
runs("unreduced axes through loops and linear ops", unreduced_loop)

def mirrored():
    """A reversed dimension stays split, whatever is reversed with it; one that does not divide is right too."""
    auto = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices("xlane"))
    for spec, axes in ((P("x", "y"), 0), (P("x", "y"), (0, 1)), (P(("y", "x"), None), 0), (P(None, "y"), (0, 1))):
        v = jax.device_put(a, NamedSharding(auto, spec))
        out = jax.jit(lambda v: jnp.flip(v, axes))(v)
        same(out, np.flip(a, axes))
        assert out.sharding.shard_shape(out.shape) == v.sharding.shard_shape(v.shape), out.sharding
    odd = lambda v: jax.lax.with_sharding_constraint(v[:7] * 2, NamedSharding(auto, P("x")))[::-1] + 1
    same(jax.jit(odd)(a), a[:7][::-1] * 2 + 1)
runs("a reversed dimension", mirrored)

def any_order():
    """From one mesh to another whose devices have no order that digits of their numbers would give."""
    d = jax.devices("xlane")
    one = jax.sharding.Mesh(np.array(d).reshape(2, 2, 2), ("p", "q", "r"))
    for ids in ([3, 2, 1, 0, 7, 6, 5, 4], [5, 0, 3, 6, 1, 2, 7, 4], [0, 1, 4, 5, 2, 3, 6, 7]):
        two = jax.sharding.Mesh(np.array([d[i] for i in ids]).reshape(4, 2), ("x", "y"))
        for from_, to in ((P("p", "q"), P("x")), (P(("p", "q", "r")), P("y", "x")), (P(), P("x", "y"))):
            s, t = NamedSharding(one, from_), NamedSharding(two, to)
            out = jax.device_put(jax.device_put(a, s), t)
            same(out, a)
            assert out.sharding == t, out.sharding
            for part in out.addressable_shards:
                same(part.data, a[part.index])
            same(jax.device_put(out, s), a)
runs("meshes in any order of devices", any_order)

def smaps():
    """Axes that are manual one after another, outside of jit: a value split over one of them before comes in right."""
    auto = jax.make_mesh((2, 2, 2), ("p", "q", "r"), axis_types=(AxisType.Auto,) * 3, devices=jax.devices("xlane"))
    inner = lambda v: jax.smap(lambda v: v * v, in_axes=0, out_axes=0, axis_name="q")(v)
    f = lambda v: jax.smap(inner, in_axes=0, out_axes=0, axis_name="p")(v)
    with jax.set_mesh(auto):
        same(f(jax.device_put(a, NamedSharding(auto, P("p", "q")))), a * a)
runs("nested manual axes without jit", smaps)

def borders():
    with jax.set_mesh(mesh):
        v = put(a, "x", None)
        out = jax.jit(jax.shard_map(lambda v: jax.lax.pcast(v.sum(0), "x", to="unreduced") if hasattr(jax.lax, "pcast")
                                    else v.sum(0), in_specs=P("x", None),
                                    out_specs=P(None, unreduced={"x"})))(v)
        assert out.sharding.spec.unreduced == {"x"}, out.sharding
        same(jax.jit(lambda o: jax.sharding.reshard(o, P(None)))(out), a.sum(0))
        inner = jax.jit(jax.shard_map(lambda o: jax.lax.psum(o, "x"), in_specs=P(None, unreduced={"x"}),
                                      out_specs=P(None)))
        same(inner(out), a.sum(0))
runs("unreduced axes of shard_map", borders)

def donation():
    v = put(np.ones((8, 8), np.float32), "x", None)
    out = jax.jit(lambda v: v.sum(), donate_argnums=0)(v)
    same(out, 64)
    assert not v.is_deleted(), "an argument that no result could use was deleted"
    same(v, np.ones((8, 8)))
    w = jax.jit(lambda v: v + 1, donate_argnums=0)(v)
    assert v.is_deleted()
    same(w, 2 * np.ones((8, 8)))
runs("donation", donation)

def nothing():
    with jax.set_mesh(mesh):
        v = put(a, "x", "y")
        assert jax.jit(lambda v: None)(v) is None
        assert jax.jit(lambda v: (), out_shardings=())(v) == ()
        seen = []
        jax.jit(lambda v: jax.debug.callback(lambda s: seen.append(float(s)), v.sum()))(v)
        jax.effects_barrier()
        assert len(seen) == 1 and abs(seen[0] - a.sum()) < 1e-3, seen
runs("no results", nothing)

def text():
    l, r = put(a, None, "x"), put(b, "x", None)
    auto = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices("xlane"))
    l, r = (jax.device_put(v, NamedSharding(auto, P(*s))) for v, s in ((a, (None, "d")), (b, ("d", None))))
    c = jax.jit(lambda l, r: (jax.scipy.special.erf(l @ r), r * 2 + 1)).lower(l, r).compile()
    t = c.as_text()
    assert "xlane." not in t and "all-reduce" in t and "f32[1,8]" in t and "jit(<lambda>)" in t, t
    same(c(l, r)[0], jax.scipy.special.erf(jax.device_put(a @ b, jax.devices("cpu")[0])), 1e-4)
runs("text of the optimised program", text)

def alike():
    try:
        from jax.experimental.shard_alike import shard_alike
    except ImportError:                              # newer versions of JAX do not have it
        return
    auto = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices("xlane"))
    split = NamedSharding(auto, P("d"))
    one, two = jax.jit(lambda v, w: shard_alike(v, w))(jax.device_put(a, split), b)
    assert one.sharding.is_equivalent_to(split, 2) and two.sharding.is_equivalent_to(split, 2), (one.sharding,
        two.sharding)
    same(two, b)
runs("shard_alike", alike)

def started():
    from jax._src.lax import parallel
    if not hasattr(parallel, "ppermute_start"):
        return
    ring = [(i, (i + 1) % 4) for i in range(4)]
    def f(v, now):
        return parallel.ppermute_start(v, "x", ring).done() if now else jax.lax.ppermute(v, "x", ring)
    with jax.set_mesh(mesh):
        one, two = (jax.jit(jax.shard_map(lambda v: f(v, now), in_specs=P("x", None), out_specs=P("x", None)))(put(a,
            "x", None)) for now in (True, False))
        same(one, np.roll(a, 2, 0))
        same(two, one)
runs("collectives that are started and awaited", started)

def asked():
    from jax.experimental.custom_partitioning import custom_partitioning
    @custom_partitioning
    def rows(v):
        return jnp.cumsum(v, 1)
    local = []
    def partition(mesh, args, result):
        spec = NamedSharding(args[0].sharding.mesh, P(args[0].sharding.spec[0], None))
        return mesh, lambda v: (local.append(v.shape), jnp.cumsum(v, 1))[1], spec, (spec,)
    rows.def_partition(infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding, partition=partition,
                       sharding_rule="i j -> i j")
    auto = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices("xlane"))
    for spec in (P("x", None), P("x", "y"), P(None, "y")):
        with auto:
            out = jax.jit(lambda v: rows(v) * 2)(jax.device_put(a, NamedSharding(auto, spec)))
        same(out, 2 * np.cumsum(a, 1))
    assert local == [(2, 8), (2, 8), (8, 8)], local
runs("custom_partitioning", asked)

def told():
    """Only the sharding_rule says how results are split: through factors, of which one must be whole."""
    from jax.experimental.custom_partitioning import custom_partitioning
    auto = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices("xlane"))
    split = lambda v, *spec: jax.device_put(v, NamedSharding(auto, P(*spec)))
    def made(f, local, rule, **factors):
        g, shapes = custom_partitioning(f), []
        def partition(mesh, args, result):
            shapes.append(result.sharding.spec)
            return mesh, local, result.sharding, jax.tree.map(lambda s: s.sharding, args)
        g.def_partition(partition=partition, sharding_rule=rule, **factors)
        return g, shapes
    v, w = np.arange(8.).reshape(4, 2), np.arange(8.)
    g, shapes = made(lambda v, w: v.reshape(8) + w, lambda v, w: v.reshape(4) + w, "(i k) j, (i k j) -> (i k j)", i=2,
                     k=2, need_replication_factors=("k",))
    out = jax.jit(g)(split(v, "x", None), split(w, "x"))
    same(out, v.reshape(8) + w)
    assert out.sharding.is_equivalent_to(NamedSharding(auto, P("x")), 1) and len(shapes) == 1, (out.sharding, shapes)
    g, shapes = made(lambda v: v.T, lambda v: v.T, "i j -> j i")
    out = jax.jit(lambda v: g(v * 2) + 1)(split(a, "x", "y"))
    same(out, 2 * a.T + 1)
    assert out.sharding.is_equivalent_to(NamedSharding(auto, P("y", "x")), 2) and len(shapes) == 1, (out.sharding,
        shapes)
runs("custom_partitioning by its rule", told)

def memories():
    device = jax.devices("xlane")[0]
    assert [m.kind for m in device.addressable_memories()] == ["device",
        "pinned_host"] and device.default_memory().kind == "device"
    host, there = (NamedSharding(mesh, P("x"), memory_kind=k) for k in ("pinned_host", "device"))
    v = jax.device_put(a, host)
    assert v.sharding.memory_kind == "pinned_host"
    same(v, a)
    w = jax.jit(lambda v: jax.device_put(v, there) * 2, out_shardings=host)(v)
    assert w.sharding.memory_kind == "pinned_host", w.sharding
    same(w, 2 * a)
    assert jax.device_put(w, there).sharding.memory_kind == "device"
runs("memories", memories)

def layouts():
    from jax.experimental.layout import Format, Layout, with_layout_constraint
    one = jax.sharding.SingleDeviceSharding(jax.devices("xlane")[0])
    v = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)):
        put_ = jax.device_put(v, Format(Layout(order), one))
        assert put_.format.layout.major_to_minor == order, put_.format
        same(put_, v)
        same(jax.device_put(put_, jax.devices("xlane")[1]), v)           # a copy keeps its order
        # any order in, any order out, and values as ever
        for other in ((0, 1, 2), (1, 0, 2)):
            f = jax.jit(lambda a, b: (a * 2 + b, a.sum(0)), in_shardings=(Format(Layout(order), one), None),
                        out_shardings=(Format(Layout(other), one), None))
            out, total = f(put_, v)
            minor = lambda major: "{%s}" % ",".join(str(d) for d in reversed(major))
            text = f.lower(put_, v).compile().as_text().split("entry_computation_layout=", 1)[1]
            assert text.startswith("{(f32[2,3,5]%s, f32[2,3,5]%s)->(f32[2,3,5]%s, f32[3,5]{1,0})}" % (
                minor(order), minor((0, 1, 2)), minor(other))), text[:200]
            assert out.format.layout.major_to_minor == other, out.format
            same(out, 3 * v)
            same(total, v.sum(0))
    turned = jax.jit(lambda a: a.T, out_shardings=Format(Layout.AUTO, one)).lower(jax.ShapeDtypeStruct(v.shape,
        v.dtype)).compile()
    # a transpose that moves nothing
    assert turned.output_formats.layout.major_to_minor == (2, 1, 0), turned.output_formats
    assert "->f32[5,3,2]{0,1,2}}" in turned.as_text(), turned.as_text()[:300]
    same(turned(v), v.T)
    try:
        jax.jit(lambda a: a + 1, out_shardings=Format(Layout((0, 1, 2), tiling=((8, 128),)), one))(v)
        raise AssertionError("a layout with tiles was taken")
    except jax.errors.JaxRuntimeError as e:
        assert "has tiles" in str(e), e
    auto = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices("xlane"))
    split = Format(Layout((1, 0)), NamedSharding(auto, P("x", "y")))
    w = jax.device_put(a, split)
    assert w.format.layout.major_to_minor == (1, 0) and w.sharding.spec == P("x", "y"), w.format
    same(w, a)
    c = jax.jit(lambda w: with_layout_constraint(w * 2, Layout((1, 0)))).lower(w).compile()
    assert "]{0,1})->" in c.as_text(), c.as_text()[:300]
    assert "all-gather" not in c.as_text(), c.as_text()                  # a layout does not change how a value is split
    same(c(w), 2 * a)
runs("layouts", layouts)

def order_of_devices():
    """shard_map over a mesh whose order of devices is no transposition of 0, 1, 2, ...: axis_index and ppermute too."""
    devices = np.array(jax.devices("xlane"))[[3, 1, 4, 0, 5, 7, 2, 6]]
    line, grid = jax.sharding.Mesh(devices, ("x",)), jax.sharding.Mesh(devices.reshape(2, 4), ("a", "b"))
    v = np.arange(16, dtype=np.float32).reshape(8, 2)
    def on_line(w):
        i = jax.lax.axis_index("x").astype(w.dtype)
        return 10 * w + i * jax.lax.psum(w, "x") + jax.lax.ppermute(w, "x", [(k, (k + 1) % 8) for k in range(8)])
    def on_grid(w):
        return 10 * w + jax.lax.axis_index("a").astype(w.dtype) * jax.lax.psum(w, "b")
    rows = np.arange(8)[:, None]
    halves = np.repeat(v.reshape(2, 4, 2).sum(1), 4, 0)
    for mesh_, spec, f, want in ((line, P("x"), on_line, 10 * v + rows * v.sum(0) + np.roll(v, 1, 0)),
                                 (grid, P(("a", "b")), on_grid, 10 * v + rows // 4 * halves)):
        run = jax.jit(lambda w: jax.shard_map(f, mesh=mesh_, in_specs=spec, out_specs=spec)(w * 1))
        put_ = jax.device_put(v, NamedSharding(mesh_, spec))
        for w in (v, put_):
            same(run(w), want)
        assert [s.device for s in run(put_).addressable_shards] == list(devices)
runs("order of devices", order_of_devices)

def whole_mesh():
    """A program exported on one device runs on eight: over a mesh of one device everything is whole."""
    one = jax.make_mesh((1,), ("q",), axis_types=(AxisType.Auto,), devices=jax.devices("xlane")[:1])
    e = jax.export.export(jax.jit(lambda v: jax.lax.with_sharding_constraint(v * 2, NamedSharding(one, P("q")))),
                          platforms=["xlane"])(
        jax.ShapeDtypeStruct((8, 8), np.float32))
    auto = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices("xlane"))
    same(jax.jit(lambda v: e.call(v) + 1)(jax.device_put(a, NamedSharding(auto, P("d")))), 2 * a + 1)
runs("a mesh of one device in a program of eight", whole_mesh)

sys.exit(end())
