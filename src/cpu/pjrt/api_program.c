/* The program of an executable, as frontends ask for it: after it was split over devices, in MLIR or HLO. */
#include <stdlib.h>

#include "base/proto.h"
#include "cpu/pjrt/api.h"
#include "ir/hlo/hlo_fields.h"
#include "ir/read.h"
#include "ir/text/print.h"
#include "pass/pass.h"
#include "pass/shard.h"

/* The module says how its results and arguments are split, for who asks for the optimised program. */
static xl_error *write_shardings(xl_module *m, const xl_shard_info *info)
{
    xl_func *f = xl_module_entry(m);
    const xl_op *end = xl_region_end(f->body);
    const xl_attr **args = xl_new(&m->arena, const xl_attr *, info->narg);
    xl_buf b = { 0 };
    for (uint32_t i = 0; i < info->narg; i++) {
        b.n = 0;
        xl_shard_text(info, info->arg[i], xl_shard_rank(xl_value_type(f, f->body->arg[i])), &info->arg_owed[i],
                      info->arg_order[i], &b);
        args[i] = xl_attr_str(m, xl_buf_view(&b));
    }
    b.n = 0;
    xl_buf_puts(&b, info->nout == 1 ? "" : "{");
    for (uint32_t i = 0; i < info->nout; i++) {
        xl_buf_puts(&b, i ? ", " : "");
        xl_shard_text(info, info->out[i], xl_shard_rank(xl_in_type(f, end, i)), &info->out_owed[i], info->out_order[i],
                      &b);
    }
    xl_buf_puts(&b, info->nout == 1 ? "" : "}");
    bool failed = b.failed;
    m->extra = xl_dict_with(m, m->extra, XL_STR("mhlo.spmd_parameters_shardings"), xl_attr_array(m, args, info->narg));
    if (info->nout)
        m->extra = xl_dict_with(m, m->extra, XL_STR("mhlo.spmd_output_sharding"), xl_attr_str(m, xl_buf_view(&b)));
    xl_buf_fini(&b);
    return failed ? XL_ERR(EXHAUSTED, "no memory for shardings") : NULL;
}

/* The module's spmd_output_sharding and spmd_parameters_shardings: where the parts of a partitioned program's results
 * lie. */
static void put_shardings(const xl_compiled *e, xl_buf *module)
{
    xl_buf tuple = { 0 };
    xl_proto_put_int(&tuple, XL_HLO_SHARDING_type, XL_HLO_SHARDED_TUPLE);
    for (uint32_t i = 0; i < e->nsharding[0]; i++)
        xl_proto_put_bytes(&tuple, XL_HLO_SHARDING_tuple_shardings,
                           (xl_str){ e->shardings[0][i], e->sharding_sizes[0][i] });
    xl_proto_put_bytes(module, XL_HLO_MODULE_spmd_output_sharding, xl_buf_view(&tuple));
    for (uint32_t i = 0; i < e->nsharding[1]; i++)
        xl_proto_put_bytes(module, XL_HLO_MODULE_spmd_parameters_shardings,
                           (xl_str){ e->shardings[1][i], e->sharding_sizes[1][i] });
    module->failed = module->failed || tuple.failed;
    xl_buf_fini(&tuple);
}
/* The ShapeProto of result or argument i (side 0 and 1), in the layout and the memory where it lies. */
static xl_error *put_shape(const xl_compiled *e, int side, uint32_t i, xl_str shape, xl_buf *out)
{
    xl_error *err = NULL;
    xl_buf layout = { 0 }, order = { 0 };
    xl_proto r = xl_proto_of(shape), inner;
    xl_proto_field f, g;
    bool more, host;
    if (i >= (side ? e->plan->narg : e->plan->nout))
        return XL_ERR(INTERNAL, "the program as HLO has more arguments or results than the program");
    const PJRT_Layouts_MemoryLayout *l = e->layouts[side][i];
    host = e->kinds[side][i] == xl_space_kind[XL_SPACE_HOST];
    for (;;) {
        const char *start = r.p;
        XL_DO(xl_proto_next(&r, &f, &more));
        if (!more)
            break;
        if (f.number != XL_HLO_SHAPE_layout || f.wire != XL_WIRE_BYTES) {
            xl_buf_add(out, start, (size_t)(r.p - start));
            continue;
        }
        inner = xl_proto_of(f.bytes);
        for (;;) {
            start = inner.p;
            XL_DO(xl_proto_next(&inner, &g, &more));
            if (!more)
                break;
            if (g.number != XL_HLO_LAYOUT_minor_to_major && g.number != XL_HLO_LAYOUT_memory_space)
                xl_buf_add(&layout, start, (size_t)(inner.p - start));
        }
    }
    for (uint32_t d = 0; d < l->rank; d++)
        xl_proto_put_raw(&order, (uint64_t)l->minor_to_major[d]);
    xl_proto_put_bytes(&layout, XL_HLO_LAYOUT_minor_to_major, xl_buf_view(&order));
    if (host)
        xl_proto_put_int(&layout, XL_HLO_LAYOUT_memory_space, XL_HLO_SPACE_HOST);
    xl_proto_put_bytes(out, XL_HLO_SHAPE_layout, xl_buf_view(&layout));
    if (layout.failed || order.failed)
        err = XL_ERR(EXHAUSTED, "no memory for the optimised program");
out:
    xl_buf_fini(&layout);
    xl_buf_fini(&order);
    return err;
}
/* A ProgramShapeProto, likewise. */
static xl_error *put_entry_layout(const xl_compiled *e, xl_str program, xl_buf *out)
{
    xl_error *err = NULL;
    xl_buf one = { 0 }, tuple = { 0 };
    xl_proto r = xl_proto_of(program), inner;
    xl_proto_field f, g;
    uint32_t arg = 0, res = 0;
    bool more;
    for (;;) {
        const char *start = r.p;
        XL_DO(xl_proto_next(&r, &f, &more));
        if (!more)
            break;
        one.n = tuple.n = 0;
        if (f.number == XL_HLO_PROGRAM_parameters && f.wire == XL_WIRE_BYTES) {
            XL_DO(put_shape(e, 1, arg++, f.bytes, &one));
        } else if (f.number == XL_HLO_PROGRAM_result && f.wire == XL_WIRE_BYTES) {
            bool is_tuple = false;
            inner = xl_proto_of(f.bytes);
            for (;;) {
                XL_DO(xl_proto_next(&inner, &g, &more));
                if (!more)
                    break;
                is_tuple = is_tuple || (g.number == XL_HLO_SHAPE_element_type && g.value == XL_HLO_TUPLE);
                if (g.number != XL_HLO_SHAPE_tuple_shapes || g.wire != XL_WIRE_BYTES)
                    continue;
                one.n = 0;
                XL_DO(put_shape(e, 0, res++, g.bytes, &one));
                xl_proto_put_bytes(&tuple, XL_HLO_SHAPE_tuple_shapes, xl_buf_view(&one));
            }
            one.n = 0;
            if (is_tuple) {
                xl_proto_put_int(&one, XL_HLO_SHAPE_element_type, XL_HLO_TUPLE);
                xl_buf_add(&one, tuple.p, tuple.n);
            } else {
                XL_DO(put_shape(e, 0, 0, f.bytes, &one));
            }
        } else {
            xl_buf_add(out, start, (size_t)(r.p - start)); /* names */
            continue;
        }
        xl_proto_put_bytes(out, f.number, xl_buf_view(&one));
        if (one.failed || tuple.failed)
            err = XL_ERR(EXHAUSTED, "no memory for the optimised program");
    }
out:
    xl_buf_fini(&one);
    xl_buf_fini(&tuple);
    return err;
}
/* HloModuleProtoWithConfig around the HLO the program came as. PyTorch/XLA throws without it, and its reader aborts
 * without the entry computation's layout, which is the module's own program shape. It learns from it alone how results
 * are split. placed: the layout says in what order and memory arguments and results lie. */
static xl_error *hlo_with_config(const xl_compiled *e, xl_str hlo, bool placed, xl_buf *b)
{
    xl_error *err = NULL;
    xl_buf config = { 0 }, module = { 0 }, shape = { 0 };
    xl_proto r = xl_proto_of(hlo);
    xl_proto_field f;
    bool more;
    for (;;) {
        XL_DO(xl_proto_next(&r, &f, &more));
        if (!more)
            break;
        if (f.number == XL_HLO_MODULE_host_program_shape && f.wire == XL_WIRE_BYTES) {
            config.n = shape.n = 0;
            if (placed)
                XL_DO(put_entry_layout(e, f.bytes, &shape));
            else
                xl_buf_str(&shape, f.bytes);
            xl_proto_put_bytes(&config, XL_HLO_CONFIG_entry_computation_layout, xl_buf_view(&shape));
        }
    }
    if (placed) {
        xl_proto_put_int(&config, XL_HLO_CONFIG_replica_count, e->nreplica);
        xl_proto_put_int(&config, XL_HLO_CONFIG_num_partitions, e->npartition);
    }
    xl_buf_str(&module, hlo);
    if (e->npartition > 1)
        put_shardings(e, &module);
    xl_proto_put_bytes(b, XL_HLO_WITH_CONFIG_hlo_module, xl_buf_view(&module));
    xl_proto_put_bytes(b, XL_HLO_WITH_CONFIG_config, xl_buf_view(&config));
    if (config.failed || module.failed || shape.failed || b->failed)
        err = XL_ERR(EXHAUSTED, "no memory for the optimised program");
out:
    xl_buf_fini(&config);
    xl_buf_fini(&module);
    xl_buf_fini(&shape);
    return err;
}
/* Ops that XLA's reader does not take for HLO are custom calls of the same name. */
static void name_chlo(xl_module *m, xl_region *r, bool *calls)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        xl_str name = { xl_op_text(op), strlen(xl_op_text(op)) };
        for (uint32_t k = 0; k < op->nregion; k++)
            name_chlo(m, op->region[k], calls);
        if (op->code == XL_OP_CUSTOM_CALL && XL_ATTR(op, CUSTOM_CALL, called_computations) &&
            XL_ATTR(op, CUSTOM_CALL, called_computations)->n)
            *calls = true;
        if (op->code == XL_OP_UNKNOWN || !xl_str_starts(name, XL_STR("chlo.")))
            continue;
        op->code = XL_OP_CUSTOM_CALL;
        op->attr = xl_new(&m->arena, const xl_attr *, xl_op_nattr(XL_OP_CUSTOM_CALL));
        xl_op_set(op, XL_SLOT(CUSTOM_CALL, call_target_name), xl_attr_str(m, name));
    }
}

/* The module says in what order its arguments and results lie, if any does not lie by rows. */
static void write_layouts(const xl_compiled *e, xl_module *m)
{
    static const char *const names[] = { "mhlo.xla_entry_computation_result_layout",
                                         "mhlo.xla_entry_computation_parameter_layouts" };
    const xl_func *f = xl_module_entry(m);
    const xl_op *end = xl_region_end(f->body);
    for (int k = 0; k < 2; k++) {
        uint32_t n = k ? f->body->narg : end->nin;
        const xl_attr **all = xl_new(&m->arena, const xl_attr *, n + 1);
        bool plain = true;
        if (n != (k ? e->plan->narg : e->plan->nout))
            continue;
        for (uint32_t i = 0; i < n; i++) {
            const PJRT_Layouts_MemoryLayout *l = e->layouts[k][i];
            const xl_type *t = xl_value_type(f, k ? f->body->arg[i] : end->in[i]);
            int64_t rank = t->kind == XL_TY_TENSOR ? t->rank : 0;
            for (int64_t d = 0; d < rank; d++)
                plain = plain && l->minor_to_major[d] == rank - 1 - d;
            const xl_type *list = xl_type_tensor(m, XL_INDEX, (xl_dims){ &rank, 1 });
            all[i] = xl_attr_dense(m, list, (xl_str){ (const char *)l->minor_to_major, (size_t)rank * 8 });
        }
        if (!plain)
            m->extra = xl_dict_with(m, m->extra, xl_str_of(names[k]), xl_attr_array(m, all, n));
    }
}

/* The program as it goes to the planner, in words that XLA's reader knows. It is made again: the planner takes the
 * module apart. */
static xl_error *print_ready(const xl_compiled *e, xl_module *m, xl_buf *out)
{
    jmp_buf oom;
    if (setjmp(oom))
        return XL_ERR(EXHAUSTED, "no memory to print the program");
    m->arena.oom = &oom;
    xl_shard_info shards;
    xl_error *err = xl_compiled_ready(e, m, &shards);
    if (!err && e->npartition > 1)
        err = write_shardings(m, &shards);
    if (err)
        return err;
    xl_func *entry = xl_module_entry(m);
    bool calls = false;
    name_chlo(m, entry->body, &calls);
    write_layouts(e, m);
    if (!calls) { /* the others were inlined, and may say what XLA's reader does not take */
        m->func[0] = entry;
        m->nfunc = 1;
    }
    xl_print_module(m, &(xl_print_opts){ .locations = true, .no_callers = e->loaded }, out);
    return out->failed ? XL_ERR(EXHAUSTED, "no memory to print the program") : NULL;
}
static bool keep_every(const xl_op *op)
{
    (void)op;
    return true;
}
/* What jax.jit(inline=jax.Inline.XLA_LATE) asks for. */
static bool keep_late(const xl_op *op)
{
    const xl_attr *how =
        xl_dict_get(xl_dict_get(op->extra, XL_STR("mhlo.frontend_attributes")), XL_STR("inlineable"));
    return how && how->kind == XL_AT_STR && (xl_str_is(how->str, "xla_late") || xl_str_is(how->str, "false"));
}
/* A program for one device, its calls inlined. */
static xl_error *print_inlined(const xl_compiled *e, xl_module *m, xl_buf *out)
{
    jmp_buf oom;
    if (setjmp(oom))
        return XL_ERR(EXHAUSTED, "no memory to print the program");
    m->arena.oom = &oom;
    xl_error *err =
        xl_pass_inline(m, &(xl_pipeline_opts){ .keep_composite = keep_every, .keep_call = keep_late });
    if (!err) {
        write_layouts(e, m);
        xl_print_module(m, &(xl_print_opts){ .locations = true, .no_callers = e->loaded }, out);
    }
    return err         ? err
           : out->failed ? XL_ERR(EXHAUSTED, "no memory to print the program")
                         : NULL;
}
static xl_error *print_optimised(const xl_compiled *e, bool inlined, xl_buf *out)
{
    xl_module *m = NULL;
    xl_error *err = xl_read(xl_buf_view(&e->program), NULL, &m);
    if (!err)
        err = inlined ? print_inlined(e, m, out) : print_ready(e, m, out);
    xl_module_free(m);
    return err;
}

/* In what memory arguments and results lie can only be said in HLO. */
static bool any_on_host(const xl_compiled *e)
{
    bool any = false;
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < (k ? e->plan->narg : e->plan->nout); i++)
            any = any || e->kinds[k][i] == xl_space_kind[XL_SPACE_HOST];
    return any;
}

/* The text, made when it is first asked for. Under e->lock. */
static xl_error *make_text(xl_compiled *e)
{
    xl_str code = xl_buf_view(&e->program);
    xl_syntax syntax = xl_syntax_of(code);
    xl_buf hlo = { 0 };
    xl_error *err = NULL;
    if (e->rewritten.n || syntax == XL_SYNTAX_HLO) {
        e->text_is_hlo = true;
        return hlo_with_config(e, e->rewritten.n ? xl_buf_view(&e->rewritten) : code, e->rewritten.n > 0, &e->text);
    }
    XL_DO(print_optimised(e, syntax == XL_SYNTAX_BYTECODE && e->npartition == 1, &e->text));
    if (any_on_host(e) && xl_hlo_writer()) {
        XL_DO(xl_hlo_write(xl_buf_view(&e->text), &hlo));
        e->text.n = 0;
        e->text_is_hlo = true;
        XL_DO(hlo_with_config(e, xl_buf_view(&hlo), true, &e->text));
    }
out:
    xl_buf_fini(&hlo);
    if (err)
        e->text.n = 0;
    return err;
}

PJRT_Error *xl_PJRT_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args)
{
    xl_compiled *e = args->executable->e;
    PJRT_Program *p = args->program;
    pthread_mutex_lock(&e->lock);
    xl_error *err = e->text.n ? NULL : make_text(e);
    xl_str code = xl_buf_view(&e->text);
    pthread_mutex_unlock(&e->lock);
    if (err)
        return xl_api_error(err);
    p->format = e->text_is_hlo ? "hlo_with_config" : "mlir";
    p->format_size = strlen(p->format);
    if (p->code) {
        if (p->code_size < code.n)
            return xl_api_fail(XL_CODE_INVALID, "room for %zu bytes, the program has %zu", p->code_size, code.n);
        memcpy(p->code, code.p, code.n);
    }
    p->code_size = code.n;
    return NULL;
}
