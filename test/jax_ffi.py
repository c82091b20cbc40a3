"""Custom calls that a user wrote in C++ with XLA's headers (jax.ffi), and jax.experimental.buffer_callback: on one device
and on eight, with attributes, layouts, aliases, state, errors and asynchronous results. The code is compiled here."""
import ctypes, os, subprocess, sys, tempfile
from _check import check, end, holds, runs, skip
from _eight import here, lib
import numpy as np
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

CODE = r"""
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;

static ffi::Error scale(ffi::Buffer<ffi::F32> x, float by, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = by * x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Scale, scale,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Attr<float>("by").Ret<ffi::Buffer<ffi::F32>>());

static ffi::Error attributes(bool flag, uint8_t small, int64_t wide, double real, std::string_view name,
                             ffi::Span<const int32_t> list, ffi::Dictionary inner, ffi::ResultBuffer<ffi::F64> y) {
  auto deep = inner.get<int64_t>("deep");
  if (deep.has_error()) return deep.error();
  double total = 0;
  for (int32_t v : list) total += v;
  double out[] = {double(flag), double(small), double(wide), real, double(name == "caf\xc3\xa9"), total, double(*deep)};
  std::copy(out, out + 7, y->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Attributes, attributes,
    ffi::Ffi::Bind().Attr<bool>("flag").Attr<uint8_t>("small").Attr<int64_t>("wide").Attr<double>("real")
        .Attr<std::string_view>("name").Attr<ffi::Span<const int32_t>>("list").Attr<ffi::Dictionary>("inner")
        .Ret<ffi::Buffer<ffi::F64>>());

static ffi::Error element_types(ffi::RemainingArgs args, ffi::ResultBuffer<ffi::S32> y) {
  for (size_t i = 0; i < args.size(); i++) {
    auto x = args.get<ffi::AnyBuffer>(i);
    if (x.has_error()) return x.error();
    y->typed_data()[2 * i] = int32_t(x->element_type());
    y->typed_data()[2 * i + 1] = int32_t(x->size_bytes());
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(ElementTypes, element_types,
    ffi::Ffi::Bind().RemainingArgs().Ret<ffi::Buffer<ffi::S32>>());

static ffi::Error refuse(ffi::AnyBuffer, ffi::Result<ffi::AnyBuffer>) {
  return ffi::Error(ffi::ErrorCode::kOutOfRange, "thirteen is too many");
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Refuse, refuse, ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>());

static ffi::Error bump(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  if (x.untyped_data() != y->untyped_data()) return ffi::Error::InvalidArgument("not the same memory");
  for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] += 1;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Bump, bump,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

/* The first row as it lies in memory. */
static ffi::Error raw(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> same, ffi::ResultBuffer<ffi::F32> first) {
  std::memcpy(same->typed_data(), x.typed_data(), x.size_bytes());
  std::memcpy(first->typed_data(), x.typed_data(), first->size_bytes());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Raw, raw, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>()
    .Ret<ffi::Buffer<ffi::F32>>());

static std::atomic<int> alive{0};
struct Table {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  explicit Table(int v) : value(v) { alive++; }
  ~Table() { alive--; }
  std::atomic<int> value;
};
ffi::TypeId Table::id = {};
ffi::TypeInfo Table::info = ffi::MakeTypeInfo<Table>();
static ffi::ErrorOr<std::unique_ptr<Table>> make_table(int64_t start) { return std::make_unique<Table>(start); }
static ffi::Error use_table(Table *t, ffi::ResultBuffer<ffi::S32> y) {
  y->typed_data()[0] = t->value++;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(MakeTable, make_table, ffi::Ffi::BindInstantiate().Attr<int64_t>("start"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(UseTable, use_table,
    ffi::Ffi::Bind().Ctx<ffi::State<Table>>().Ret<ffi::Buffer<ffi::S32>>());
extern "C" int Alive() { return alive; }
extern "C" void *TableId() { return &Table::id; }
extern "C" void *TableInfo() { return &Table::info; }

static ffi::Future later(ffi::Buffer<ffi::F32> x, bool fails, ffi::ResultBuffer<ffi::F32> y) {
  ffi::Promise p;
  ffi::Future f(p);
  std::thread([=, p = std::move(p)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (size_t i = 0; i < x.element_count(); i++) y->typed_data()[i] = -x.typed_data()[i];
    if (fails) p.SetError(ffi::Error::Internal("it went wrong later"));
    else p.SetAvailable();
  }).detach();
  return f;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Later, later,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Attr<bool>("fails").Ret<ffi::Buffer<ffi::F32>>());

static ffi::Error surroundings(ffi::ThreadPool pool, ffi::ScratchAllocator scratch, int32_t device, ffi::RunId run,
                               ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::S64> y) {
  volatile char big[1 << 20];                              /* a stack as user code knows it */
  for (size_t i = 0; i < sizeof big; i += 4096) big[i] = 1;
  auto memory = scratch.Allocate(1 << 16);
  if (!memory.has_value()) return ffi::Error::Internal("no scratch memory");
  std::memset(*memory, 7, 1 << 16);
  std::atomic<int64_t> sum{0};
  int64_t n = 8;
  std::atomic<int64_t> left{n};
  for (int64_t i = 0; i < n; i++) pool.Schedule([&, i] { sum += i + static_cast<char *>(*memory)[i]; left--; });
  while (left) std::this_thread::yield();
  int64_t out[] = {sum, int64_t(pool.num_threads() >= 1), device, run.run_id > 0};
  std::copy(out, out + 4, y->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Surroundings, surroundings,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Ctx<ffi::ScratchAllocator>().Ctx<ffi::DeviceOrdinal>().Ctx<ffi::RunId>()
        .Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::S64>>());
"""

def compiled():
    with tempfile.TemporaryDirectory() as folder:
        source, made = os.path.join(folder, "calls.cc"), os.path.join(folder, "libcalls.so")
        with open(source, "w") as f:
            f.write(CODE)
        done = subprocess.run(["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-I", jax.ffi.include_dir(), source,
                               "-o",
                               made, "-pthread"], capture_output=True, text=True)
        assert not done.returncode, done.stderr[-3000:]
        return ctypes.CDLL(made)

def text_of(fn):
    try:
        jax.block_until_ready(fn())
    except Exception as e:
        return "%s: %s" % (type(e).__name__, e)
    return "nothing was raised"

def raises(words, fn):
    text = text_of(fn)
    assert all(w in text for w in words), text

ones = lambda *shape, dtype=jnp.float32: jax.ShapeDtypeStruct(shape, dtype)
x = np.arange(12, dtype=np.float32).reshape(3, 4)
same = np.testing.assert_array_equal
mesh = lambda: Mesh(np.array(jax.devices("xlane")), ("d",))

def calls():
    calls = compiled()
    put = lambda name, *symbols, **kw: jax.ffi.register_ffi_target(
        name, jax.ffi.pycapsule(getattr(calls, symbols[0])) if len(symbols) == 1 else
        dict(zip(("instantiate", "execute"), (jax.ffi.pycapsule(getattr(calls, s)) for s in symbols))),
        platform="xlane", **kw)
    put("scale", "Scale")                            # before there is a client
    call = lambda v, by=2.0: jax.ffi.ffi_call("scale", ones(*v.shape), vmap_method="broadcast_all")(v,
        by=np.float32(by))
    jax.devices("xlane")
    for name, symbol in (("attributes", "Attributes"), ("element_types", "ElementTypes"), ("refuse", "Refuse"),
                         ("bump", "Bump"), ("raw", "Raw"), ("later", "Later"), ("surroundings", "Surroundings")):
        put(name, symbol)

    def values():
        same(call(jnp.asarray(x)), 2 * x)
        same(jax.jit(lambda v: call(v + 1, 0.5).sum())(x), (0.5 * (x + 1)).sum())
        same(jax.vmap(call)(x), 2 * x)
        same(jax.jit(lambda v: jax.lax.fori_loop(0, 5, lambda i, w: call(w), v))(x), 32 * x)
        same(call(jnp.zeros((0, 3), jnp.float32)), np.zeros((0, 3), np.float32))
    runs("values", values)

    def attributes():
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            out = jax.jit(lambda: jax.ffi.ffi_call("attributes", ones(7, dtype=jnp.float64))(
                flag=True, small=np.uint8(200), wide=-2 ** 40, real=np.float64(0.1), name="café",
                list=np.array([1, 2, -40], np.int32), inner={"deep": -3}))()
            same(out, [1, 200, -2.0 ** 40, 0.1, 1, -37, -3])
            same(jax.ffi.ffi_call("attributes", ones(7, dtype=jnp.float64))(
                flag=False, small=np.uint8(0), wide=0, real=np.float64(0), name="", list=np.full(5, 3, np.int32),
                inner={"deep": 0}), [0, 0, 0, 0, 0, 15, 0])
        raises(["Wrong scalar data type"], lambda: jax.ffi.ffi_call("scale", ones(3, 4))(x, by=np.float64(2)))
    runs("attributes", attributes)

    def types():
        names = "bool int8 uint8 int16 uint16 int32 uint32 float16 bfloat16 float32 complex64 float8_e4m3fn float8_e5m2"
        arrays = [jnp.zeros(6, n) for n in names.split()]
        got = jax.ffi.ffi_call("element_types", ones(2 * len(arrays), dtype=jnp.int32))(*arrays)
        want = [1, 6, 2, 6, 6, 6, 3, 12, 7, 12, 4, 24, 8, 24, 10, 12, 16, 12, 11, 24, 15, 48, 20, 6, 19, 6]
        same(got, want)
    runs("element types", types)

    def errors():
        raises(["OUT_OF_RANGE", "thirteen is too many", "refuse"],
               lambda: jax.ffi.ffi_call("refuse", ones(3, 4))(x))
        raises(["nobody", "register_ffi_target"], lambda: jax.ffi.ffi_call("nobody", ones(3, 4))(x))
        raises(["scale", "Wrong buffer dtype"],
               lambda: jax.ffi.ffi_call("scale", ones(3, 4, dtype=jnp.int32))(x, by=np.float32(2)))
        raises(["registered already"], lambda: put("scale", "Refuse"))
        put("scale", "Scale")
        raises(["api_version=1"], lambda: put("untyped", "Scale", api_version=0))
        same(call(jnp.asarray(x)), 2 * x)
    runs("errors", errors)

    def memory():
        f = lambda v: jax.ffi.ffi_call("bump", ones(3, 4), input_output_aliases={0: 0})(v)
        v = jnp.asarray(x)
        same(jax.jit(f)(v), x + 1)
        same(v, x)                                   # an argument that was not donated
        same(jax.jit(lambda v: f(v * 2) + v)(x), 3 * x + 1)
        same(jax.jit(lambda v: (lambda w: f(w) * w)(v + 1))(x), (x + 2) * (x + 1))
        same(jax.jit(f, donate_argnums=0)(jnp.asarray(x)), x + 1)
    runs("aliases", memory)

    def layouts():
        got, first = jax.jit(lambda v: jax.ffi.ffi_call("raw", (ones(3, 4), ones(3)), input_layouts=[(1, 0)],
                                                        output_layouts=[(1, 0), None])(v))(x)
        same(got, x)
        same(first, x[:, 0])                         # columns lie together
        deep = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        got, first = jax.ffi.ffi_call("raw", (ones(2, 3, 4), ones(4)), input_layouts=[(1, 2, 0)],
                                      output_layouts=[(0, 1, 2), None])(deep)
        same(got, deep.transpose(1, 2, 0).reshape(2, 3, 4))
        same(first, [0, 12, 1, 13])
    runs("layouts", layouts)

    def state():
        for f in ("TableId", "TableInfo"):
            getattr(calls, f).restype = ctypes.c_void_p
        capsule = lambda address: jax.ffi.pycapsule(ctypes.cast(address, ctypes.c_void_p))
        jax.ffi.register_ffi_type("table", {"type_id": capsule(calls.TableId()),
                                            "type_info": capsule(calls.TableInfo())},
                                  platform="xlane")
        put("table", "MakeTable", "UseTable")
        table = lambda start: jax.jit(lambda: jax.ffi.ffi_call("table", ones(dtype=jnp.int32), has_side_effect=True)(
            start=start)).lower().compile()
        a, b = table(5), table(50)
        assert calls.Alive() >= 2
        assert [int(a()), int(a()), int(b()), int(a())] == [5, 6, 50, 7]
        del a, b
        jax.clear_caches()
        import gc
        gc.collect()
        assert calls.Alive() == 0, "%d states are left" % calls.Alive()
    if hasattr(jax.ffi, "register_ffi_type"):
        runs("state", state)

    def asynchronous():
        later = lambda v, fails: jax.ffi.ffi_call("later", ones(3, 4))(v, fails=fails)
        same(jax.jit(lambda v: later(v, False) * 2)(x), -2 * x)
        raises(["it went wrong later"], lambda: later(x, True))
    runs("asynchronous", asynchronous)

    def on_eight():
        around = lambda v: jax.ffi.ffi_call("surroundings", ones(4, dtype=jnp.int64))(v)
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            for k in (0, 3):
                same(jax.jit(around)(jax.device_put(x, jax.devices("xlane")[k])), [28 + 8 * 7, 1, k, 1])
            def part(v):                             # beside a collective: each device's own call
                return call(v, 3.0) + jax.lax.psum(v, "d"), around(v)[None]
            v = np.arange(32, dtype=np.float32).reshape(8, 4)
            out, each = jax.jit(jax.shard_map(part, mesh=mesh(), in_specs=P("d"), out_specs=P("d")))(v)
            same(out, 3 * v + v.sum(0))
            same(each[:, 2], np.arange(8))
        whole = jax.device_put(v, NamedSharding(mesh(), P("d")))
        same(jax.jit(lambda v: call(v, 3.0))(whole), 3 * v)    # of an array in parts: whole on each device
        raises(["thirteen"], lambda: jax.jit(jax.shard_map(
            lambda v: jax.ffi.ffi_call("refuse", ones(1, 4), has_side_effect=True)(v) + jax.lax.psum(v, "d"),
            mesh=mesh(), in_specs=P("d"), out_specs=P("d")))(v))
    runs("eight devices", on_eight)

    def serialised():
        from jax.experimental import serialize_executable as s
        c = jax.jit(call).lower(x).compile()
        same(s.deserialize_and_load(*s.serialize(c), execution_devices=jax.devices("xlane")[:1])(x), 2 * x)
    runs("serialised", serialised)

def buffers():
    from jax.experimental import buffer_callback as bc
    shapes = lambda *likes: tuple(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in likes)

    def values():
        for dtype in ("bool", "int8", "uint32", "bfloat16", "float16", "float32", "complex64", "int4"):
            v = jnp.asarray(np.arange(12).reshape(3, 4) % 2, dtype)
            def copy(ctx, out, a):
                assert ctx.stage == bc.ExecutionStage.EXECUTE and (a.writeable, out.writeable) == (False, True)
                assert (a.shape, a.dtype, a.ndim) == ((3, 4), v.dtype, 2) and not np.asarray(a).flags.writeable
                np.asarray(out)[...] = np.asarray(a)
            same(jax.jit(bc.buffer_callback(copy, *shapes(v)))(v), v)
        def two(ctx, out, a, *, b):
            np.asarray(out["sum"])[...] = np.asarray(a) + np.asarray(b)
            np.from_dlpack(out["product"])[...] = np.from_dlpack(a) * np.from_dlpack(b)
        f = bc.buffer_callback(two, {"sum": ones(3, 4), "product": ones(3, 4)}, vmap_method="broadcast_all")
        out = f(x, b=x + 1)
        same(out["sum"], 2 * x + 1)
        same(out["product"], x * (x + 1))
    runs("buffers", values)

    def aliases():
        def bump(ctx, out, a):
            assert np.asarray(a).ctypes.data == np.asarray(out).ctypes.data
            np.asarray(out)[...] += 1
        f = bc.buffer_callback(bump, ones(3, 4), input_output_aliases={0: 0})
        same(jax.jit(lambda v: f(v * 2) + v)(x), 3 * x + 1)
    runs("buffers: aliases", aliases)

    def errors():
        def stream(ctx, out):
            ctx.stream
        raises(["GPU context is not available"], lambda: bc.buffer_callback(stream, ones())())
        raises(["must not return"], lambda: bc.buffer_callback(lambda ctx, out: 1, ones())())
        def broken(ctx, out):
            raise KeyError("lost")
        raises(["lost"], lambda: bc.buffer_callback(broken, ones())())
    runs("buffers: errors", errors)

    def together():
        def double(ctx, out, a):
            np.asarray(out)[...] = 2 * np.asarray(a)
        v = np.arange(32, dtype=np.float32).reshape(8, 4)
        f = lambda w: bc.buffer_callback(double, ones(1, 4))(w) + jax.lax.psum(w, "d")
        same(jax.jit(jax.shard_map(f, mesh=mesh(), in_specs=P("d"), out_specs=P("d"), check_vma=False))(v),
             2 * v + v.sum(0))
    runs("buffers: eight devices", together)

if subprocess.run(["sh", "-c", "command -v c++"], capture_output=True).returncode:
    skip("custom calls", "there is no C++ compiler")
else:
    calls()
try:
    import jax.experimental.buffer_callback
    buffers()
except ImportError:
    skip("buffers", "this version of JAX has no buffer_callback")
sys.exit(end())
