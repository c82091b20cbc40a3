"""What JAX knows for its own platforms only, told for this one. The plugin runs this in its process when it makes a
client and JAX is there.

platform is given, and the addresses of what takes the function that calls callbacks (set_callback_at), custom calls and
their types (register_call_at, register_type_at), the number of what writes HLO (set_writer_at) and what jaxlib is told
to log (set_verbose_at). A host callback is a custom call with a number;
`called` below gets the number and the operands. Whatever a version of JAX does not have is
left out: programs that need it then fail with JAX's own words."""
import ctypes, itertools, threading, traceback

class Array(ctypes.Structure):                       # xl_host_array in cpu/kernel/callback.h
    _fields_ = [("data", ctypes.c_void_p), ("rank", ctypes.c_uint64), ("dims", ctypes.POINTER(ctypes.c_int64))]

numbers = itertools.count(1)
hosts = {}                                           # number: (function, dtypes of operands and results, in place?)
here = threading.local()                             # .inside: this thread is in a callback
kept = []                                            # Hosts of the process

class Host:
    """Keeps a function callable for as long as the programs that call it."""
    def __init__(self, fn, ins, outs, in_place=False):
        self.fn = fn
        self.number = next(numbers)
        hosts[self.number] = (fn, ins, outs, in_place)

    def __call__(self, *args):
        return self.fn(*args)

    def __del__(self):
        hosts.pop(self.number, None)

def view(a, dtype):
    import numpy as np
    shape = tuple(a.dims[i] for i in range(a.rank))
    n = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = (ctypes.c_char * n).from_address(a.data) if n else b""
    return np.frombuffer(raw, dtype=np.uint8).view(dtype).reshape(shape) if n else np.zeros(shape, dtype)

def called(number, arrays, error, size):
    before = getattr(here, "inside", False)
    try:
        if number not in hosts:
            raise RuntimeError("host callback %d is not one of this process: trace the program here" % number)
        fn, ins, outs, in_place = hosts[number]
        here.inside = True
        if in_place:                                 # the function gets the device's memory, results too
            fn(*(view(arrays[i], d) for i, d in enumerate(ins + outs)))
            return 0
        args = [view(arrays[i], d).copy() for i, d in enumerate(ins)]  # the memory is the device's again afterwards
        for a in args:
            a.flags.writeable = False
        results = fn(*args)
        for i, (d, r) in enumerate(zip(outs, results)):
            view(arrays[len(ins) + i], d)[...] = r
        return 0
    except BaseException:
        text = traceback.format_exc().encode()[-(size - 1):]
        ctypes.memmove(error, text + b"\0", len(text) + 1)
        return 1
    finally:
        here.inside = before

trampoline = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(Array), ctypes.c_void_p,
                              ctypes.c_size_t)(called)

def emit_callbacks():
    from jax._src import callback as theirs, core, dtypes, ffi, mesh, sharding_impls, xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.sharding_impls import SdyArray, SdyArrayList
    import dataclasses
    import numpy as np
    import jax.interpreters.mlir as public

    def dtype_of(aval):
        aval = core.physical_aval(aval)
        return np.dtype(bool) if aval.dtype == dtypes.float0 else np.dtype(aval.dtype)

    def emit(ctx, callback, token, operands, operand_avals, result_avals, *, has_side_effect, returns_token=True,
             partitioned=False, sharding=None):
        def checked(*args):
            with sharding_impls._internal_use_concrete_mesh(mesh.empty_concrete_mesh), mesh.use_abstract_mesh(mesh.empty_abstract_mesh):
                results = callback(*args)                # in the thread of the caller, whose mesh is not the callback's
            if len(results) != len(result_avals):
                raise RuntimeError("Mismatched number of outputs from callback. Expected: %d, Actual: %d"
                                   % (len(result_avals), len(results)))
            results = [dtypes.canonicalize_value(np.asarray(r)) for r in results]
            for i, (r, want) in enumerate(zip(results, result_avals)):
                if r.shape != want.shape:
                    raise RuntimeError("Incorrect output shape for return value #%d: Expected: %s, Actual: %s"
                                       % (i, want.shape, r.shape))
                if r.dtype != want.dtype:
                    raise RuntimeError("Incorrect output dtype for return value #%d: Expected: %s, Actual: %s"
                                       % (i, want.dtype, r.dtype))
            return results

        if partitioned and result_avals:
            raise ValueError("Partitioned callback not supported with return values.")
        host = Host(checked, [dtype_of(a) for a in operand_avals], [dtype_of(a) for a in result_avals])
        ctx.module_context.add_keepalive(host)
        ctx.module_context.add_host_callback(host)
        operands = list(operands)
        if token:
            operands = [token] + operands
            if isinstance(sharding, SdyArrayList) and len(ctx.avals_out) > 0:
                first = SdyArray(mesh_shape=(), dim_shardings=(),
                                 logical_device_ids=sharding.shardings[0].logical_device_ids)
                sharding = SdyArrayList((first, *sharding.shardings))
            ctx = dataclasses.replace(ctx, avals_in=[core.abstract_token, *ctx.avals_in],
                                      avals_out=[core.abstract_token, *ctx.avals_out])
        name = "xlane_partitioned_python_callback" if partitioned else "xlane_python_callback"
        op = ffi.build_ffi_lowering_function(name, has_side_effect=has_side_effect)(ctx, *operands,
            number=np.uint64(host.number))
        if sharding is not None:
            mlir.set_sharding(ctx.module_context, op, sharding)
        results = list(op.results)
        if token:
            token, *results = results
        return results, token, host

    original = theirs.emit_python_callback
    def emit_python_callback(ctx, *args, **kw):
        ours = tuple(ctx.module_context.platforms) == (platform,)
        return (emit if ours else original)(ctx, *args, **kw)
    theirs.emit_python_callback = public.emit_python_callback = emit_python_callback

    # JAX hands a callback its operands on its own CPU, which JAX_PLATFORMS may leave out: then they lie on this device.
    devices = xla_bridge.local_devices
    def local_devices(process_index=None, backend=None, host_id=None):
        try:
            return devices(process_index, backend, host_id)
        except RuntimeError:
            if backend != "cpu" or not getattr(here, "inside", False):
                raise
            return devices(process_index, platform, host_id)
    xla_bridge.local_devices = local_devices

def inspect_shardings():
    """JAX writes the address of a function into the program; a number takes its place."""
    from jax._src import debugging
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    import numpy as np
    rule = mlir._lowerings[debugging.inspect_sharding_p].rule

    def inspect(ctx, value, **params):
        kept = len(ctx.module_context.keepalives)
        out = rule(ctx, value, **params)
        if len(ctx.module_context.keepalives) == kept:       # one device: it was called already
            return out
        fn = ctx.module_context.keepalives[-1]
        def inspected(message):
            sharding = xla_client.OpSharding()
            sharding.ParseFromString(message.tobytes())
            fn(xla_client.HloSharding.from_proto(sharding))
            return ()
        host = Host(inspected, [np.dtype(np.uint8)], [])
        ctx.module_context.add_keepalive(host)
        op = ir.InsertionPoint.current.block.operations[-1]
        op.attributes["call_target_name"] = ir.StringAttr.get("xlane_inspect_sharding")
        op.attributes["backend_config"] = ir.StringAttr.get(str(host.number))
        return out
    mlir._platform_specific_lowerings[platform][debugging.inspect_sharding_p] = mlir.LoweringRuleEntry(inspect, False)

def partition_calls():
    """custom_partitioning: the partitioner asks for the program of a call when it knows how the operands are split."""
    from jax._src import custom_partitioning as cp
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir
    import numpy as np
    rule = mlir._lowerings[cp.custom_partitioning_p].rule
    shape = lambda aval: xla_client.Shape.array_shape(np.dtype(aval.dtype), aval.shape)

    def sharding(message):
        proto = xla_client.OpSharding()
        proto.ParseFromString(message.tobytes())
        return xla_client.HloSharding.from_proto(proto)

    def lower(ctx, *values, **params):
        kept = len(ctx.module_context.keepalives)
        out = rule(ctx, *values, **params)
        if len(ctx.module_context.keepalives) == kept:       # one device, or a manual region: it was lowered as it is
            return out
        info = ctx.module_context.keepalives[-1]
        ins, outs = ([shape(a) for a in avals] for avals in (ctx.avals_in, ctx.avals_out))
        whole = outs[0] if len(outs) == 1 else xla_client.Shape.tuple_shape(outs)
        def partition(*messages):
            key = str(id(info)).encode()
            args, results = [sharding(m) for m in messages[:len(ins)]], [sharding(m) for m in messages[len(ins):]]
            if info.infer_sharding_from_operands is not None and all(r.is_replicated() for r in results):
                result = cp._custom_partitioning_infer_sharding_from_operands(ins, args, whole, key)
            else:
                result = cp._pack_result_sharding(whole, results)
            code, args, result = cp._custom_partitioning_partition(ins, args, whole, result, key)
            with mlir.make_ir_context():
                text = ir.Module.parse(code).operation.get_asm(enable_debug_info=False)
            lines = [str(s) for s in list(args) + (list(result.tuple_elements()) if len(outs) != 1 else [result])]
            host.reply = ("\n".join(lines) + "\0" + text).encode()
            return (np.array([ctypes.cast(ctypes.c_char_p(host.reply), ctypes.c_void_p).value, len(host.reply)],
                             np.uint64),)
        host = Host(partition, [np.dtype(np.uint8)] * (len(ins) + len(outs)), [np.dtype(np.uint64)])
        ctx.module_context.add_keepalive(host)
        op = ir.InsertionPoint.current.block.operations[-1]
        op.attributes["call_target_name"] = ir.StringAttr.get("xlane_partition")
        op.attributes["backend_config"] = ir.StringAttr.get(str(host.number))
        return out
    mlir._platform_specific_lowerings[platform][cp.custom_partitioning_p] = mlir.LoweringRuleEntry(lower, False)

def keep_functions():
    """JAX and jaxlib write these as formulas of other ops before a plugin sees them, with errors of up to thousands of
    units in the last place. As a composite the formula comes along for other readers, and this device computes the
    function that it is named after."""
    from jax._src import core
    from jax._src.export import _export
    from jax._src.interpreters import mlir
    from jax._src.lax import lax, special
    from jax._src.lib.mlir import ir
    from jax._src.lib.mlir.dialects import func, hlo
    import numpy as np

    def composite(name, formula):
        def lower(ctx, x, **params):
            aval, = ctx.avals_in
            if not core.is_constant_shape(aval.shape):       # sizes are put in later, but not into composites
                if tuple(ctx.module_context.platforms) != (platform,):
                    return formula(ctx, x, **params)
                out = mlir.custom_call("mhlo." + name, result_types=[x.type], operands=[x],
                                       result_shapes=[mlir.eval_dynamic_shape_as_tensor(ctx, aval.shape)])
                return [mlir.lower_with_sharding_in_types(ctx, out.results[0], ctx.avals_out[0])]
            function = func.FuncOp("xlane_" + name, ir.FunctionType.get([x.type], [x.type]),
                                   ip=ir.InsertionPoint.at_block_begin(ctx.module_context.module.body))
            function.attributes["sym_visibility"] = ir.StringAttr.get("private")
            symbol = ctx.module_context.symbol_table.insert(function)
            block = function.add_entry_block()
            with ir.InsertionPoint(block):
                func.ReturnOp([formula(ctx, block.arguments[0], **params)[0]])
            out = hlo.CompositeOp([x.type], [x], name="chlo." + name,
                                  decomposition=ir.FlatSymbolRefAttr.get(symbol.value))
            return [mlir.lower_with_sharding_in_types(ctx, out.result, ctx.avals_out[0])]
        return lower

    def exp2(formula):
        def lower(ctx, x, **params):
            aval, = ctx.avals_in
            if not np.issubdtype(aval.dtype, np.floating):
                return formula(ctx, x, **params)
            out = hlo.power(mlir.full_like_aval(ctx, 2, aval), x)
            return [mlir.lower_with_sharding_in_types(ctx, out, ctx.avals_out[0])]
        return lower

    for p in (special.lgamma_p, special.digamma_p, special.erfc_p, lax.exp2_p):
        formula = mlir._lowerings[p].rule
        rule = exp2(formula) if p is lax.exp2_p else composite(p.name, formula)
        _export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE.add("mhlo." + p.name)
        mlir._platform_specific_lowerings[platform][p] = mlir.LoweringRuleEntry(rule, False)

def permute_pivots():
    """On a CPU JAX writes the permutation that the pivots of LU make as a loop with a turn for each row."""
    from jax._src import core, ffi
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg
    p = linalg.lu_pivots_to_permutation_p
    formula = mlir._lowerings[p].rule

    def lower(ctx, pivots, **params):
        aval, = ctx.avals_out
        if not core.is_constant_shape(aval.shape) or ctx.module_context.lowering_parameters.for_export:
            return formula(ctx, pivots, **params)            # what is exported is for every device
        out, = ffi.build_ffi_lowering_function("xlane_lu_pivots_to_permutation")(ctx, pivots).results
        return [mlir.lower_with_sharding_in_types(ctx, out, aval)]
    mlir._platform_specific_lowerings[platform][p] = mlir.LoweringRuleEntry(lower, False)

def refuse_qr():
    """JAX refuses QR of a type that LAPACK has not, on every platform but the TPU; here its own words too."""
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg
    p = linalg.geqrf_p
    rule = mlir._lowerings[p].rule

    def lower(ctx, a, **params):
        dtype = ctx.avals_in[0].dtype
        if dtype not in ("float32", "float64", "complex64", "complex128"):
            raise NotImplementedError("Unsupported dtype %s." % dtype)
        return rule(ctx, a, **params)
    mlir._platform_specific_lowerings[platform][p] = mlir.LoweringRuleEntry(lower, False)

def buffer_callbacks():
    """jax.experimental.buffer_callback: jaxlib calls the function, with classes of its own, on named platforms."""
    from jax._src import buffer_callback as theirs, core, ffi, tree_util
    from jax._src.interpreters import mlir
    import jax.errors
    import numpy as np

    class Buffer:
        """Memory of an operand or a result, as an array."""
        def __init__(self, array, writeable):
            self.array, self.writeable = array, writeable
            self.dtype, self.ndim, self.shape = array.dtype, array.ndim, array.shape

        def __array__(self, dtype=None, copy=None):
            array = self.array.view()
            array.flags.writeable = self.writeable
            return np.array(array, dtype, copy=copy) if dtype is not None or copy else array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    class Context:
        stage = theirs.ExecutionStage.EXECUTE

        @property
        def stream(self):
            raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")

    dtype_of = lambda aval: np.dtype(core.physical_aval(aval).dtype)

    def lower(ctx, *values, callback, in_tree, out_tree, has_side_effect, input_output_aliases, **_):
        n = in_tree.num_leaves
        def run(*arrays):
            buffers = [Buffer(a, i >= n) for i, a in enumerate(arrays)]
            args, kwargs = tree_util.tree_unflatten(in_tree, buffers[:n])
            if callback(Context(), tree_util.tree_unflatten(out_tree, buffers[n:]), *args, **kwargs) is not None:
                raise ValueError("buffer_callback callback must not return any values.")
        host = Host(run, [dtype_of(a) for a in ctx.avals_in], [dtype_of(a) for a in ctx.avals_out], in_place=True)
        ctx.module_context.add_keepalive(host)
        ctx.module_context.add_host_callback(host)
        rule = ffi.ffi_lowering("xlane_buffer_callback", has_side_effect=has_side_effect,
                                operand_output_aliases=dict(input_output_aliases))
        return rule(ctx, *values, number=np.uint64(host.number))
    mlir._platform_specific_lowerings[platform][theirs.buffer_callback_p] = mlir.LoweringRuleEntry(lower, False)

def custom_calls():
    """What jax.ffi registers for this platform, before now or later."""
    import logging
    from jax._src.lib import xla_client
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    pointer = lambda capsule: pointer_of(capsule, name_of(capsule))
    give = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    give_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                                 ctypes.c_size_t)
    stages = ("instantiate", "prepare", "initialize", "execute")
    early = True                                     # what was registered before: an exception would be nobody's

    def refuse(text):
        if not early:
            raise ValueError(text)
        logging.getLogger("jax").warning("xlane: %s", text)

    def checked(function, name, *args):
        error = ctypes.create_string_buffer(2048)
        if function(name if isinstance(name, bytes) else name.encode(), *args, error, len(error)):
            refuse(error.value.decode())

    def register(name, fn, _platform, api_version=0, *_traits):
        if api_version != 1:
            return refuse("the custom call %s has api_version %d, %s takes those of the typed FFI: register it with "
                          "api_version=1" % (name, api_version, platform))
        fn = fn if isinstance(fn, dict) else {"execute": fn}
        checked(give(register_call_at), name, (ctypes.c_void_p * 4)(*(pointer(fn[s]) if s in fn else None
                                                                      for s in stages)))

    def register_type(name, given):
        given = given if isinstance(given, dict) else {"type_id": given}
        info = given.get("type_info")
        checked(give_type(register_type_at), name, pointer(given["type_id"]), info and pointer(info))

    for what, handler in (("register_custom_type_handler", register_type), ("register_custom_call_handler", register)):
        if hasattr(xla_client, what):
            getattr(xla_client, what)(platform, handler)
    early = False

def call_exported():
    """A function exported for several platforms, the CPU among them, runs here as it does there: this device takes what
    JAX lowers for the CPU. One exported for another platform alone is refused, as JAX does everywhere."""
    import dataclasses
    from jax._src.export import _export
    from jax._src.interpreters import mlir
    rule = mlir._lowerings[_export.call_exported_p].rule

    def lower(ctx, *values, exported):
        known = exported.platforms
        if (len(known) > 1 and "cpu" in known and platform not in known
                and tuple(ctx.module_context.platforms) == (platform,)):
            exported = dataclasses.replace(exported, platforms=tuple(platform if p == "cpu" else p for p in known))
        return rule(ctx, *values, exported=exported)
    mlir._platform_specific_lowerings[platform][_export.call_exported_p] = mlir.LoweringRuleEntry(lower, False)

def write_hlo():
    """Programs as HLO, for what jax.extend.xla registers and for texts that only HLO can say."""
    from jax._src.lib import _jax
    import numpy as np
    to_hlo = _jax.mlir.mlir_module_to_xla_computation

    def scheduled(code):
        """With an order of its instructions: the one that they are in."""
        from jax._src.lib import hlo
        module = hlo.HloModule.from_serialized_hlo_module_proto(code)
        schedule = module.create_empty_schedule()
        for computation in module.make_nonfusion_computations():
            schedule.set_sequence(computation, computation.instructions())
        module.set_schedule(schedule)
        return module.as_serialized_hlo_module_proto()

    answers = {}                                     # not in `here`: what a foreign thread has there ends with the call

    def write(program, has_hlo):
        code = program.tobytes()
        hlo = scheduled(code) if has_hlo[0] else to_hlo(
            code, use_tuple_args=False, return_tuple=False).as_serialized_hlo_module_proto()
        answers[threading.get_ident()] = hlo         # until this thread asks again
        return (np.array([ctypes.cast(ctypes.c_char_p(hlo), ctypes.c_void_p).value, len(hlo)], np.uint64),)

    host = Host(write, [np.dtype(np.uint8)] * 2, [np.dtype(np.uint64)])
    kept.append(host)
    ctypes.CFUNCTYPE(None, ctypes.c_uint64)(set_writer_at)(host.number)

def log_like_xla():
    """jaxlib keeps to itself what it was told to log."""
    from jax._src.lib import utils
    set_level = getattr(utils, "absl_set_vlog_level", None)
    if set_level is None:
        return
    told = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int)(set_verbose_at)
    def absl_set_vlog_level(file, level):
        told(file.encode(), level)
        return set_level(file, level)
    utils.absl_set_vlog_level = absl_set_vlog_level

def end_at_once():
    """Rank 0's service waits 5 s for a call of its own client, which every array that is left keeps alive. As the process
    ends it need not: all ranks have left by then, since JAX's client waits for them first."""
    import atexit
    from jax._src import distributed
    state, ending = distributed.global_state, []
    class Service:
        def __init__(self, service):
            self.service = service
        def shutdown(self):
            if ending:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.service))
            else:
                self.service.shutdown()
    if getattr(state, "service", None) is not None:
        state.service = Service(state.service)
        atexit.register(ending.append, True)         # before JAX's own, which was registered earlier

# Primitives that JAX lowers for named platforms only, to what this device serves: LAPACK's names, and callbacks.
served = ("eig", "eigh", "svd", "schur", "hessenberg", "tridiagonal", "tridiagonal_solve", "geqp3", "lu", "ormqr",
          "debug_callback", "debug_print", "spsolve", "check")

class Rules(dict):
    """A primitive without a rule here has that of JAX's CPU, however late JAX registers it."""
    def __init__(self, rules, cpu):
        super().__init__(rules)
        self.cpu = cpu

    def __contains__(self, primitive):
        return super().__contains__(primitive) or (primitive.name in served and primitive in self.cpu)

    def __missing__(self, primitive):
        entry = self.cpu[primitive]
        # one way to do it, whichever is asked for: the CPU's rule refuses those of other devices
        if primitive.name == "eigh":
            rule = entry.rule
            entry = type(entry)(lambda ctx, *a, **kw: rule(ctx, *a,
                                                           **{k: None if k == "algorithm" else v for k,
                                                               v in kw.items()}), entry.inline)
        self[primitive] = entry
        return entry

def setup():
    from jax._src.interpreters import mlir
    donating = getattr(mlir, "_platforms_with_donation", None)  # JAX tells only these which arguments are donated
    if donating is not None and platform not in donating:
        donating.append(platform)
    rules = getattr(mlir, "_platform_specific_lowerings", None)
    if rules is not None and not isinstance(rules[platform], Rules):
        rules[platform] = Rules(rules[platform], rules["cpu"])
        emit_callbacks()
        inspect_shardings()
        partition_calls()
        keep_functions()
        permute_pivots()
        refuse_qr()
        call_exported()
        custom_calls()
        buffer_callbacks()
        write_hlo()
        log_like_xla()
        end_at_once()

ctypes.CFUNCTYPE(None, ctypes.c_void_p)(set_callback_at)(ctypes.cast(trampoline, ctypes.c_void_p).value)
setup()
