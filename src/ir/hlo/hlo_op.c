/* HLO's instructions as StableHLO ops, one function each. Most of the elementwise ones have the same name but for the
 * dashes and need no more. What HLO does in two steps (-start and -done) is one op here, made at the start. */
#include <stdio.h>

#include "ir/hlo/hlo.h"
#include "ir/hlo/hlo_groups.h"
#include "ir/read.h"

#define FAIL(l, ...) XL_HLO_FAIL((l)->h, (l)->i->bytes.p, __VA_ARGS__)

/* ---- pieces ----------------------------------------------------------------------------------------------------- */
static int64_t num(xl_low *l, uint32_t number) { return xl_hlo_num(l->h, l->i->bytes, number); }
static xl_str msg(xl_low *l, uint32_t number) { return xl_hlo_sub(l->h, l->i->bytes, number, NULL); }
static xl_dims ints(xl_low *l, uint32_t number) { return xl_hlo_ints(l->h, l->i->bytes, number); }

static void give(xl_low *l, xl_hlo_leaves v)
{
    if (!v.v)                                              /* an empty tuple is a value too */
        v.v = xl_new(&l->h->tmp, xl_value, 1);
    l->val[l->i - l->c->inst] = v;
}

static xl_value one(xl_low *l, uint32_t k)
{
    xl_hlo_leaves v = xl_hlo_operand(l, k);
    if (v.n != 1)
        FAIL(l, "%.*s (%.*s): operand %u is a tuple", XL_FMT(l->i->name), XL_FMT(l->i->opcode), k);
    return v.v[0];
}

static const xl_type *in_type(xl_low *l, uint32_t k) { return xl_value_type(l->f, one(l, k)); }

static void want(xl_low *l, uint32_t least)
{
    if (l->i->noperand < least)
        FAIL(l, "%.*s (%.*s) has %u operands, not %u", XL_FMT(l->i->name), XL_FMT(l->i->opcode), l->i->noperand, least);
}

/* Leaves of operands first..end, one after the other. */
static xl_hlo_leaves gather_operands(xl_low *l, uint32_t first, uint32_t end)
{
    uint32_t n = 0;
    for (uint32_t k = first; k < end; k++)
        n += xl_hlo_operand(l, k).n;
    xl_hlo_leaves all = { xl_new(&l->h->tmp, xl_value, (size_t)n + 1), 0 };
    for (uint32_t k = first; k < end; k++) {
        xl_hlo_leaves v = xl_hlo_operand(l, k);
        for (uint32_t j = 0; j < v.n; j++)
            all.v[all.n++] = v.v[j];
    }
    return all;
}

static const xl_attr *extras(xl_low *l)
{
    bool have;
    const xl_attr *extra = NULL;
    xl_str s = xl_hlo_sub(l->h, l->i->bytes, XL_HLO_INST_frontend_attributes, &have);
    const xl_attr *front = have ? xl_hlo_frontend(l->h, s) : NULL;
    if (front)
        extra = xl_dict_with(l->h->m, extra, XL_STR("mhlo.frontend_attributes"), front);
    s = xl_hlo_sub(l->h, l->i->bytes, XL_HLO_INST_sharding, &have);
    if (have)
        extra = xl_dict_with(l->h->m, extra, XL_STR("mhlo.sharding"), xl_hlo_sharding(l->h, s));
    return extra;
}

static xl_op *emit_typed(xl_low *l, xl_opcode code, const xl_value *in, uint32_t nin, const xl_type *const *out,
                         uint32_t nout, uint32_t nregion)
{
    xl_op *op = xl_op_new(l->f, l->r, code, in, nin, out, nout, nregion, xl_hlo_loc(l->h, l->i));
    op->extra = extras(l);
    return op;
}

/* The op of this instruction: its results are the leaves of the shape. */
static xl_op *emit(xl_low *l, xl_opcode code, xl_hlo_leaves in, uint32_t nregion)
{
    xl_leaf_types t = xl_hlo_leaf_types(l->h, l->i->type);
    int nin = xl_ops[code].nin, nout = xl_ops[code].nout;
    if ((nin >= 0 && (uint32_t)nin != in.n) || (nout >= 0 && (uint32_t)nout != t.n))
        FAIL(l, "%.*s (%.*s) has %u operands and %u results, where %s has others", XL_FMT(l->i->name),
             XL_FMT(l->i->opcode), in.n, t.n, xl_ops[code].text);
    xl_op *op = emit_typed(l, code, in.v, in.n, t.t, t.n, nregion);
    give(l, (xl_hlo_leaves){ op->out, op->nout });
    return op;
}

static xl_op *emit_all(xl_low *l, xl_opcode code, uint32_t nregion)
{
    return emit(l, code, gather_operands(l, 0, l->i->noperand), nregion);
}

static void done(xl_low *l, xl_op *op) { xl_op_normalize(l->h->m, op); }

static const xl_attr *list(xl_low *l, xl_dims d) { return xl_attr_dims(l->h->m, d); }
static const xl_attr *i64(xl_low *l, int64_t v) { return xl_attr_i64(l->h->m, v); }
static const xl_attr *flag(xl_low *l, int64_t v) { return xl_attr_bool(l->h->m, v != 0); }
#define SET(op, OP, name, a) xl_op_set((op), XL_SLOT(OP, name), (a))

static int64_t first_dim(xl_low *l)
{
    xl_dims d = ints(l, XL_HLO_INST_dimensions);
    if (d.n == 0)
        FAIL(l, "%.*s (%.*s) names no dimension", XL_FMT(l->i->name), XL_FMT(l->i->opcode));
    return d.p[0];
}

/* ---- elementwise ------------------------------------------------------------------------------------------------ */
static void put_accuracy(xl_low *l, xl_op *op, uint32_t slot)
{
    bool have;
    xl_str m = xl_hlo_sub(l->h, l->i->bytes, XL_HLO_INST_result_accuracy, &have);
    if (!have)
        return;
    xl_module *mod = l->h->m;
    bool tolerance;
    xl_str t = xl_hlo_sub(l->h, m, XL_HLO_ACCURACY_tolerance, &tolerance);
    int64_t mode = tolerance ? XL_RESULT_ACCURACY_MODE_TOLERANCE : xl_hlo_num(l->h, m, XL_HLO_ACCURACY_mode);
    uint64_t atol = (uint64_t)xl_hlo_num(l->h, t, XL_HLO_TOLERANCE_atol),
             rtol = (uint64_t)xl_hlo_num(l->h, t, XL_HLO_TOLERANCE_rtol);
    if (mode < 0 || mode > XL_RESULT_ACCURACY_MODE_TOLERANCE)
        FAIL(l, "a result accuracy of mode %lld", (long long)mode);
    int64_t ulps = xl_hlo_num(l->h, t, XL_HLO_TOLERANCE_ulps);
    xl_str key[4] = { XL_STR("mode") };
    const xl_attr *item[4] = { xl_attr_enum(mod, XL_ENUM_RESULT_ACCURACY_MODE, mode) };
    uint32_t n = 1;                                        /* zeros are left out, as in text */
    if (atol) {
        key[n] = XL_STR("atol");
        item[n++] = xl_attr_float(mod, XL_F64, atol, xl_proto_f64(atol));
    }
    if (rtol) {
        key[n] = XL_STR("rtol");
        item[n++] = xl_attr_float(mod, XL_F64, rtol, xl_proto_f64(rtol));
    }
    if (ulps) {
        key[n] = XL_STR("ulps");
        item[n++] = xl_attr_i64(mod, ulps);
    }
    xl_op_set(op, slot, xl_attr_struct(mod, XL_STR("stablehlo.result_accuracy"), key, item, n));
}

static bool plain_op(xl_low *l)
{
    char text[64];
    if (l->i->opcode.n > 40)
        return false;
    for (int k = 0; k < 2; k++) {
        int n = snprintf(text, sizeof text, "%s.%.*s", k ? "chlo" : "stablehlo", XL_FMT(l->i->opcode));
        for (int j = 0; j < n; j++)
            if (text[j] == '-')
                text[j] = '_';
        xl_opcode code = xl_opcode_find((xl_str){ text, (size_t)n });
        uint32_t nattr = code == XL_OP_UNKNOWN ? 0 : xl_op_nattr(code);
        if (code == XL_OP_UNKNOWN || !(xl_ops[code].flags & XL_OP_ELEMWISE) ||
            nattr > 1 || (nattr == 1 && xl_attr_rows[xl_ops[code].row0].want != XL_AK_STRUCT))
            continue;
        xl_op *op = emit_all(l, code, 0);
        if (nattr)
            put_accuracy(l, op, 0);
        done(l, op);
        return true;
    }
    return false;
}

static void op_compare(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_COMPARE, 0);
    int64_t dir, type;
    xl_str d = msg(l, XL_HLO_INST_comparison_direction), t = msg(l, XL_HLO_INST_comparison_type);
    if (!xl_enum_find(XL_ENUM_COMPARISON_DIRECTION, d, &dir))
        FAIL(l, "a comparison '%.*s'", XL_FMT(d));
    SET(op, COMPARE, comparison_direction, xl_attr_enum(l->h->m, XL_ENUM_COMPARISON_DIRECTION, dir));
    if (t.n) {
        if (!xl_enum_find(XL_ENUM_COMPARISON_TYPE, t, &type))
            FAIL(l, "a comparison of type '%.*s'", XL_FMT(t));
        SET(op, COMPARE, compare_type, xl_attr_enum(l->h->m, XL_ENUM_COMPARISON_TYPE, type));
    }
    done(l, op);
}

static void op_reduce_precision(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_REDUCE_PRECISION, 0);
    SET(op, REDUCE_PRECISION, exponent_bits, xl_attr_int(l->h->m, XL_I32, (int32_t)num(l, XL_HLO_INST_exponent_bits)));
    SET(op, REDUCE_PRECISION, mantissa_bits, xl_attr_int(l->h->m, XL_I32, (int32_t)num(l, XL_HLO_INST_mantissa_bits)));
    done(l, op);
}

static void op_map(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_MAP, 1);
    SET(op, MAP, dimensions, list(l, ints(l, XL_HLO_INST_dimensions)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

/* ---- sources ---------------------------------------------------------------------------------------------------- */
static xl_value constant(xl_low *l, const xl_attr *value)
{
    xl_op *op = xl_op_new(l->f, l->r, XL_OP_CONSTANT, NULL, 0, &value->type, 1, 0, xl_hlo_loc(l->h, l->i));
    SET(op, CONSTANT, value, value);
    return op->out[0];
}

static void literal_leaves(xl_low *l, xl_str lit, const xl_type *t, xl_hlo_leaves *to, int depth)
{
    if (t->kind != XL_TY_TUPLE) {
        to->v[to->n++] = constant(l, xl_hlo_literal(l->h, lit, t));
        return;
    }
    xl_proto p = xl_proto_of(lit);
    xl_proto_field f;
    for (uint32_t i = 0; i < t->nelem; i++) {
        if (depth > 64 || !xl_hlo_each(l->h, &p, XL_HLO_LITERAL_tuple_literals, &f))
            FAIL(l, "a tuple constant with fewer parts than its shape");
        literal_leaves(l, f.bytes, t->elem[i], to, depth + 1);
    }
}

static void op_constant(xl_low *l)
{
    xl_hlo_leaves v = { xl_new(&l->h->tmp, xl_value, (size_t)xl_hlo_nleaf(l->i->type) + 1), 0 };
    literal_leaves(l, msg(l, XL_HLO_INST_literal), l->i->type, &v, 0);
    give(l, v);
}

static void op_parameter(xl_low *l) { give(l, l->param[num(l, XL_HLO_INST_parameter_number)]); }

static void op_iota(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_IOTA, 0);
    SET(op, IOTA, iota_dimension, i64(l, first_dim(l)));
    done(l, op);
}

static void op_rng(xl_low *l)
{
    want(l, 2);
    const xl_type *t = l->i->type;
    int64_t n = t->kind == XL_TY_TENSOR ? t->rank : 0;
    if (!xl_type_static(t))
        FAIL(l, "random numbers of a shape that is not known");
    const xl_type *shape = xl_type_tensor(l->h->m, XL_I64, (xl_dims){ &n, 1 });
    xl_value in[3] = { one(l, 0), one(l, 1) };
    in[2] = constant(l, xl_attr_dense(l->h->m, shape, (xl_str){ (const char *)t->dims, (size_t)n * sizeof *t->dims }));
    int64_t d = num(l, XL_HLO_INST_distribution);
    if (!xl_enum_text(XL_ENUM_RNG_DISTRIBUTION, d))
        FAIL(l, "a random distribution %lld", (long long)d);
    xl_op *op = emit(l, XL_OP_RNG, (xl_hlo_leaves){ in, 3 }, 0);
    SET(op, RNG, rng_distribution, xl_attr_enum(l->h->m, XL_ENUM_RNG_DISTRIBUTION, d));
    done(l, op);
}

static void op_rng_bits(xl_low *l)
{
    int64_t a = num(l, XL_HLO_INST_rng_algorithm);
    if (!xl_enum_text(XL_ENUM_RNG_ALGORITHM, a))
        FAIL(l, "a random algorithm %lld", (long long)a);
    xl_op *op = emit_all(l, XL_OP_RNG_BIT_GENERATOR, 0);
    SET(op, RNG_BIT_GENERATOR, rng_algorithm, xl_attr_enum(l->h->m, XL_ENUM_RNG_ALGORITHM, a));
    done(l, op);
}

static void op_partition_id(xl_low *l) { done(l, emit_all(l, XL_OP_PARTITION_ID, 0)); }
static void op_replica_id(xl_low *l) { done(l, emit_all(l, XL_OP_REPLICA_ID, 0)); }

/* ---- shape and movement ------------------------------------------------------------------------------------------ */
static void op_broadcast(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_BROADCAST_IN_DIM, 0);
    SET(op, BROADCAST_IN_DIM, broadcast_dimensions, list(l, ints(l, XL_HLO_INST_dimensions)));
    done(l, op);
}

static void op_reshape(xl_low *l) { done(l, emit_all(l, XL_OP_RESHAPE, 0)); }
static void op_bitcast_convert(xl_low *l) { done(l, emit_all(l, XL_OP_BITCAST_CONVERT, 0)); }

/* HLO's bitcast sees bytes: of the same element type it is a reshape, given that layouts are the default ones. */
static void op_bitcast(xl_low *l)
{
    want(l, 1);
    bool same = in_type(l, 0)->dtype == l->i->type->dtype;
    done(l, emit_all(l, same ? XL_OP_RESHAPE : XL_OP_BITCAST_CONVERT, 0));
}

static void op_dynamic_reshape(xl_low *l)
{
    want(l, 1);
    uint32_t n = l->i->noperand - 1;
    xl_value *part = xl_new(&l->h->tmp, xl_value, (size_t)n + 1);
    int64_t unit = 1, rank = n;
    for (uint32_t k = 0; k < n; k++) {
        const xl_type *t = xl_type_tensor(l->h->m, in_type(l, k + 1)->dtype, (xl_dims){ &unit, 1 });
        xl_value v = one(l, k + 1);
        part[k] = xl_op_new(l->f, l->r, XL_OP_RESHAPE, &v, 1, &t, 1, 0, (xl_loc){ 0 })->out[0];
    }
    if (n == 0)
        FAIL(l, "a dynamic reshape without sizes");
    const xl_type *t = xl_type_tensor(l->h->m, xl_value_type(l->f, part[0])->dtype, (xl_dims){ &rank, 1 });
    xl_op *cat = xl_op_new(l->f, l->r, XL_OP_CONCATENATE, part, n, &t, 1, 0, (xl_loc){ 0 });
    SET(cat, CONCATENATE, dimension, i64(l, 0));
    xl_value in[2] = { one(l, 0), cat->out[0] };
    done(l, emit(l, XL_OP_DYNAMIC_RESHAPE, (xl_hlo_leaves){ in, 2 }, 0));
}

static void op_transpose(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_TRANSPOSE, 0);
    SET(op, TRANSPOSE, permutation, list(l, ints(l, XL_HLO_INST_dimensions)));
    done(l, op);
}

static void op_reverse(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_REVERSE, 0);
    SET(op, REVERSE, dimensions, list(l, ints(l, XL_HLO_INST_dimensions)));
    done(l, op);
}

static void op_concatenate(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_CONCATENATE, 0);
    SET(op, CONCATENATE, dimension, i64(l, first_dim(l)));
    done(l, op);
}

/* The numbers of field `number` of each of the repeated messages `list`. */
static xl_dims column(xl_low *l, xl_str in, uint32_t which, uint32_t number)
{
    xl_proto p = xl_proto_of(in);
    xl_proto_field f;
    int64_t *v = NULL;
    size_t n = 0, cap = 0;
    while (xl_hlo_each(l->h, &p, which, &f))
        XL_PUSH(&l->h->tmp, v, n, cap, xl_hlo_num(l->h, f.bytes, number));
    return (xl_dims){ v, n };
}

static xl_dims zip(xl_low *l, xl_dims a, xl_dims b)
{
    int64_t *v = xl_new(&l->h->tmp, int64_t, 2 * a.n);
    XL_KNOWN(!a.n || b.p);                                 /* columns of one list are equally long */
    for (size_t i = 0; i < a.n; i++) {
        v[2 * i] = a.p[i];
        v[2 * i + 1] = b.p[i];
    }
    return (xl_dims){ v, 2 * a.n };
}

static void op_slice(xl_low *l)
{
    xl_str m = l->i->bytes;
    xl_op *op = emit_all(l, XL_OP_SLICE, 0);
    SET(op, SLICE, start_indices, list(l, column(l, m, XL_HLO_INST_slice_dimensions, XL_HLO_SLICE_start)));
    SET(op, SLICE, limit_indices, list(l, column(l, m, XL_HLO_INST_slice_dimensions, XL_HLO_SLICE_limit)));
    SET(op, SLICE, strides, list(l, column(l, m, XL_HLO_INST_slice_dimensions, XL_HLO_SLICE_stride)));
    done(l, op);
}

/* Old protos have the start indices as one vector. */
static xl_hlo_leaves with_scalar_starts(xl_low *l, uint32_t first)
{
    xl_hlo_leaves in = gather_operands(l, 0, l->i->noperand);
    if (l->i->noperand != first + 1)
        return in;
    const xl_type *t = xl_value_type(l->f, in.v[first]);
    if (t->kind != XL_TY_TENSOR || t->rank != 1 || t->dims[0] < 0 || t->dims[0] > 64)
        return in;
    xl_hlo_leaves out = { xl_new(&l->h->tmp, xl_value, first + (size_t)t->dims[0]), first };
    memcpy(out.v, in.v, first * sizeof *out.v);
    int64_t unit = 1;
    const xl_type *vec = xl_type_tensor(l->h->m, t->dtype, (xl_dims){ &unit, 1 }),
                  *scalar = xl_type_scalar(l->h->m, t->dtype);
    for (int64_t k = 0; k < t->dims[0]; k++) {
        int64_t end = k + 1;
        xl_op *s = xl_op_new(l->f, l->r, XL_OP_SLICE, &in.v[first], 1, &vec, 1, 0, (xl_loc){ 0 });
        SET(s, SLICE, start_indices, list(l, (xl_dims){ &k, 1 }));
        SET(s, SLICE, limit_indices, list(l, (xl_dims){ &end, 1 }));
        out.v[out.n++] = xl_op_new(l->f, l->r, XL_OP_RESHAPE, s->out, 1, &scalar, 1, 0, (xl_loc){ 0 })->out[0];
    }
    return out;
}

static void op_dynamic_slice(xl_low *l)
{
    want(l, 1);
    xl_op *op = emit(l, XL_OP_DYNAMIC_SLICE, with_scalar_starts(l, 1), 0);
    SET(op, DYNAMIC_SLICE, slice_sizes, list(l, ints(l, XL_HLO_INST_dynamic_slice_sizes)));
    done(l, op);
}

static void op_dynamic_update_slice(xl_low *l)
{
    want(l, 2);
    done(l, emit(l, XL_OP_DYNAMIC_UPDATE_SLICE, with_scalar_starts(l, 2), 0));
}

#define window(l, w, name) column(l, w, XL_HLO_WINDOW_dimensions, XL_HLO_WINDOW_DIM_##name)

static void op_pad(xl_low *l)
{
    xl_str m = msg(l, XL_HLO_INST_padding_config);
    xl_op *op = emit_all(l, XL_OP_PAD, 0);
    SET(op, PAD, edge_padding_low,
        list(l, column(l, m, XL_HLO_PADDING_dimensions, XL_HLO_PADDING_DIM_edge_padding_low)));
    SET(op, PAD, edge_padding_high,
        list(l, column(l, m, XL_HLO_PADDING_dimensions, XL_HLO_PADDING_DIM_edge_padding_high)));
    SET(op, PAD, interior_padding,
        list(l, column(l, m, XL_HLO_PADDING_dimensions, XL_HLO_PADDING_DIM_interior_padding)));
    done(l, op);
}

static void op_gather(xl_low *l)
{
    xl_str m = msg(l, XL_HLO_INST_gather_dimension_numbers);
    xl_hlo *h = l->h;
    xl_op *op = emit_all(l, XL_OP_GATHER, 0);
    SET(op, GATHER, offset_dims, list(l, xl_hlo_ints(h, m, XL_HLO_GATHER_offset_dims)));
    SET(op, GATHER, collapsed_slice_dims, list(l, xl_hlo_ints(h, m, XL_HLO_GATHER_collapsed_slice_dims)));
    SET(op, GATHER, start_index_map, list(l, xl_hlo_ints(h, m, XL_HLO_GATHER_start_index_map)));
    SET(op, GATHER, index_vector_dim, i64(l, xl_hlo_num(h, m, XL_HLO_GATHER_index_vector_dim)));
    SET(op, GATHER, operand_batching_dims, list(l, xl_hlo_ints(h, m, XL_HLO_GATHER_operand_batching_dims)));
    SET(op, GATHER, start_indices_batching_dims, list(l, xl_hlo_ints(h, m, XL_HLO_GATHER_start_indices_batching_dims)));
    SET(op, GATHER, slice_sizes, list(l, ints(l, XL_HLO_INST_gather_slice_sizes)));
    SET(op, GATHER, indices_are_sorted, flag(l, num(l, XL_HLO_INST_indices_are_sorted)));
    done(l, op);
}

static void op_scatter(xl_low *l)
{
    xl_str m = msg(l, XL_HLO_INST_scatter_dimension_numbers);
    xl_hlo *h = l->h;
    xl_op *op = emit_all(l, XL_OP_SCATTER, 1);
    SET(op, SCATTER, update_window_dims, list(l, xl_hlo_ints(h, m, XL_HLO_SCATTER_update_window_dims)));
    SET(op, SCATTER, inserted_window_dims, list(l, xl_hlo_ints(h, m, XL_HLO_SCATTER_inserted_window_dims)));
    SET(op, SCATTER, scatter_dims_to_operand_dims,
        list(l, xl_hlo_ints(h, m, XL_HLO_SCATTER_scatter_dims_to_operand_dims)));
    SET(op, SCATTER, index_vector_dim, i64(l, xl_hlo_num(h, m, XL_HLO_SCATTER_index_vector_dim)));
    SET(op, SCATTER, input_batching_dims, list(l, xl_hlo_ints(h, m, XL_HLO_SCATTER_input_batching_dims)));
    SET(op, SCATTER, scatter_indices_batching_dims,
        list(l, xl_hlo_ints(h, m, XL_HLO_SCATTER_scatter_indices_batching_dims)));
    SET(op, SCATTER, indices_are_sorted, flag(l, num(l, XL_HLO_INST_indices_are_sorted)));
    SET(op, SCATTER, unique_indices, flag(l, num(l, XL_HLO_INST_unique_indices)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

static void op_sort(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_SORT, 1);
    SET(op, SORT, dimension, i64(l, first_dim(l)));
    SET(op, SORT, is_stable, flag(l, num(l, XL_HLO_INST_is_stable)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

static void op_topk(xl_low *l)
{
    if (!num(l, XL_HLO_INST_largest))
        xl_hlo_fail(l->h, l->i->bytes.p, XL_CODE_UNIMPLEMENTED, "topk of the smallest has no counterpart in StableHLO");
    xl_op *op = emit_all(l, XL_OP_CHLO_TOP_K, 0);
    SET(op, CHLO_TOP_K, k, i64(l, num(l, XL_HLO_INST_k)));
    done(l, op);
}

static void op_get_dimension_size(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_GET_DIMENSION_SIZE, 0);
    SET(op, GET_DIMENSION_SIZE, dimension, i64(l, first_dim(l)));
    done(l, op);
}

static void op_set_dimension_size(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_SET_DIMENSION_SIZE, 0);
    SET(op, SET_DIMENSION_SIZE, dimension, i64(l, first_dim(l)));
    done(l, op);
}

/* ---- reductions and windows -------------------------------------------------------------------------------------- */
static void op_reduce(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_REDUCE, 1);
    SET(op, REDUCE, dimensions, list(l, ints(l, XL_HLO_INST_dimensions)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

static void op_reduce_window(xl_low *l)
{
    xl_str w = msg(l, XL_HLO_INST_window);
    xl_op *op = emit_all(l, XL_OP_REDUCE_WINDOW, 1);
    SET(op, REDUCE_WINDOW, window_dimensions, list(l, window(l, w, size)));
    SET(op, REDUCE_WINDOW, window_strides, list(l, window(l, w, stride)));
    SET(op, REDUCE_WINDOW, padding, list(l, zip(l, window(l, w, padding_low), window(l, w, padding_high))));
    SET(op, REDUCE_WINDOW, window_dilations, list(l, window(l, w, window_dilation)));
    SET(op, REDUCE_WINDOW, base_dilations, list(l, window(l, w, base_dilation)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

static void op_select_and_scatter(xl_low *l)
{
    xl_str w = msg(l, XL_HLO_INST_window);
    xl_op *op = emit_all(l, XL_OP_SELECT_AND_SCATTER, 2);
    SET(op, SELECT_AND_SCATTER, window_dimensions, list(l, window(l, w, size)));
    SET(op, SELECT_AND_SCATTER, window_strides, list(l, window(l, w, stride)));
    SET(op, SELECT_AND_SCATTER, padding, list(l, zip(l, window(l, w, padding_low), window(l, w, padding_high))));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    xl_hlo_region(l, xl_hlo_called(l, 1), op->region[1]);
    done(l, op);
}

/* ---- linear algebra ---------------------------------------------------------------------------------------------- */
static const xl_attr *precisions(xl_low *l)
{
    xl_dims p = xl_hlo_ints(l->h, msg(l, XL_HLO_INST_precision_config), XL_HLO_PRECISION_operand_precision);
    const xl_attr **item = xl_new(&l->h->tmp, const xl_attr *, p.n);
    for (size_t i = 0; i < p.n; i++) {
        if (!xl_enum_text(XL_ENUM_PRECISION, p.p[i]))
            xl_hlo_fail(l->h, l->i->bytes.p, XL_CODE_UNIMPLEMENTED, "a precision %lld has no counterpart in StableHLO",
                        (long long)p.p[i]);
        item[i] = xl_attr_enum(l->h->m, XL_ENUM_PRECISION, p.p[i]);
    }
    return xl_attr_array(l->h->m, item, (uint32_t)p.n);
}

/* PrecisionConfig.Algorithm, spelled out: types of the operands and of the sums, how many parts, how many products. */
static void put_algorithm(xl_low *l, xl_op *op, int64_t algorithm)
{
    static const struct { uint8_t in, acc, ops; bool fast; } alg[] = {
        [3] = { XL_F16, XL_F16, 1, false }, [4] = { XL_F16, XL_F32, 1, false }, [5] = { XL_BF16, XL_BF16, 1, false },
        [6] = { XL_BF16, XL_F32, 1, false }, [7] = { XL_BF16, XL_F32, 3, false }, [8] = { XL_BF16, XL_F32, 6, false },
        [9] = { XL_TF32, XL_F32, 1, false }, [10] = { XL_TF32, XL_F32, 3, false }, [11] = { XL_F32, XL_F32, 1, false },
        [12] = { XL_F64, XL_F64, 1, false }, [13] = { XL_BF16, XL_F32, 9, false },
    };
    if (algorithm == 0)
        return;
    xl_module *m = l->h->m;
    xl_dtype a, b, acc;
    int64_t ops = 1;
    if (algorithm == 1 || algorithm == 2) {
        a = in_type(l, 0)->dtype;
        b = in_type(l, 1)->dtype;
        acc = XL_F32;
    } else if (algorithm > 2 && algorithm < (int64_t)(sizeof alg / sizeof *alg)) {
        a = b = (xl_dtype)alg[algorithm].in;
        acc = (xl_dtype)alg[algorithm].acc;
        ops = alg[algorithm].ops;
    } else {
        xl_hlo_fail(l->h, l->i->bytes.p, XL_CODE_UNIMPLEMENTED, "dot algorithm %lld is newer than this reader",
                    (long long)algorithm);
    }
    SET(op, DOT_GENERAL, lhs_precision_type, xl_attr_type(m, xl_type_scalar(m, a)));
    SET(op, DOT_GENERAL, rhs_precision_type, xl_attr_type(m, xl_type_scalar(m, b)));
    SET(op, DOT_GENERAL, accumulation_type, xl_attr_type(m, xl_type_scalar(m, acc)));
    SET(op, DOT_GENERAL, lhs_component_count, i64(l, 1));
    SET(op, DOT_GENERAL, rhs_component_count, i64(l, 1));
    SET(op, DOT_GENERAL, num_primitive_operations, i64(l, ops));
    SET(op, DOT_GENERAL, allow_imprecise_accumulation, flag(l, algorithm == 2));
}

static void op_dot(xl_low *l)
{
    xl_str m = msg(l, XL_HLO_INST_dot_dimension_numbers);
    xl_hlo *h = l->h;
    xl_op *op = emit_all(l, XL_OP_DOT_GENERAL, 0);
    SET(op, DOT_GENERAL, lhs_contracting_dimensions, list(l, xl_hlo_ints(h, m, XL_HLO_DOT_lhs_contracting_dimensions)));
    SET(op, DOT_GENERAL, rhs_contracting_dimensions, list(l, xl_hlo_ints(h, m, XL_HLO_DOT_rhs_contracting_dimensions)));
    SET(op, DOT_GENERAL, lhs_batching_dimensions, list(l, xl_hlo_ints(h, m, XL_HLO_DOT_lhs_batch_dimensions)));
    SET(op, DOT_GENERAL, rhs_batching_dimensions, list(l, xl_hlo_ints(h, m, XL_HLO_DOT_rhs_batch_dimensions)));
    SET(op, DOT_GENERAL, precision_config, precisions(l));
    put_algorithm(l, op, xl_hlo_num(h, msg(l, XL_HLO_INST_precision_config), XL_HLO_PRECISION_algorithm));
    done(l, op);
}

static void op_convolution(xl_low *l)
{
    xl_str m = msg(l, XL_HLO_INST_convolution_dimension_numbers), w = msg(l, XL_HLO_INST_window);
    xl_hlo *h = l->h;
    int64_t groups = num(l, XL_HLO_INST_feature_group_count), batches = num(l, XL_HLO_INST_batch_group_count);
    xl_op *op = emit_all(l, XL_OP_CONVOLUTION, 0);
    SET(op, CONVOLUTION, input_batch_dimension, i64(l, xl_hlo_num(h, m, XL_HLO_CONV_input_batch_dimension)));
    SET(op, CONVOLUTION, input_feature_dimension, i64(l, xl_hlo_num(h, m, XL_HLO_CONV_input_feature_dimension)));
    SET(op, CONVOLUTION, input_spatial_dimensions, list(l, xl_hlo_ints(h, m, XL_HLO_CONV_input_spatial_dimensions)));
    SET(op, CONVOLUTION, kernel_input_feature_dimension,
        i64(l, xl_hlo_num(h, m, XL_HLO_CONV_kernel_input_feature_dimension)));
    SET(op, CONVOLUTION, kernel_output_feature_dimension,
        i64(l, xl_hlo_num(h, m, XL_HLO_CONV_kernel_output_feature_dimension)));
    SET(op, CONVOLUTION, kernel_spatial_dimensions, list(l, xl_hlo_ints(h, m, XL_HLO_CONV_kernel_spatial_dimensions)));
    SET(op, CONVOLUTION, output_batch_dimension, i64(l, xl_hlo_num(h, m, XL_HLO_CONV_output_batch_dimension)));
    SET(op, CONVOLUTION, output_feature_dimension, i64(l, xl_hlo_num(h, m, XL_HLO_CONV_output_feature_dimension)));
    SET(op, CONVOLUTION, output_spatial_dimensions, list(l, xl_hlo_ints(h, m, XL_HLO_CONV_output_spatial_dimensions)));
    SET(op, CONVOLUTION, feature_group_count, i64(l, groups ? groups : 1));
    SET(op, CONVOLUTION, batch_group_count, i64(l, batches ? batches : 1));
    SET(op, CONVOLUTION, window_strides, list(l, window(l, w, stride)));
    SET(op, CONVOLUTION, padding, list(l, zip(l, window(l, w, padding_low), window(l, w, padding_high))));
    SET(op, CONVOLUTION, rhs_dilation, list(l, window(l, w, window_dilation)));
    SET(op, CONVOLUTION, lhs_dilation, list(l, window(l, w, base_dilation)));
    SET(op, CONVOLUTION, window_reversal, xl_attr_ints(h->m, XL_I1, window(l, w, window_reversal)));
    SET(op, CONVOLUTION, precision_config, precisions(l));
    done(l, op);
}

static void op_fft(xl_low *l)
{
    int64_t type = num(l, XL_HLO_INST_fft_type);
    if (!xl_enum_text(XL_ENUM_FFT_TYPE, type))
        FAIL(l, "an FFT of type %lld", (long long)type);
    xl_op *op = emit_all(l, XL_OP_FFT, 0);
    SET(op, FFT, fft_type, xl_attr_enum(l->h->m, XL_ENUM_FFT_TYPE, type));
    SET(op, FFT, fft_length, list(l, ints(l, XL_HLO_INST_fft_length)));
    done(l, op);
}

static void op_cholesky(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_CHOLESKY, 0);
    SET(op, CHOLESKY, lower, flag(l, xl_hlo_num(l->h, msg(l, XL_HLO_INST_cholesky_options), XL_HLO_CHOLESKY_lower)));
    done(l, op);
}

static void op_triangular_solve(xl_low *l)
{
    xl_str m = msg(l, XL_HLO_INST_triangular_solve_options);
    int64_t t = xl_hlo_num(l->h, m, XL_HLO_SOLVE_transpose_a);
    if (!xl_enum_text(XL_ENUM_TRANSPOSE, t))
        FAIL(l, "a triangular solve with transpose %lld", (long long)t);
    xl_op *op = emit_all(l, XL_OP_TRIANGULAR_SOLVE, 0);
    SET(op, TRIANGULAR_SOLVE, left_side, flag(l, xl_hlo_num(l->h, m, XL_HLO_SOLVE_left_side)));
    SET(op, TRIANGULAR_SOLVE, lower, flag(l, xl_hlo_num(l->h, m, XL_HLO_SOLVE_lower)));
    SET(op, TRIANGULAR_SOLVE, unit_diagonal, flag(l, xl_hlo_num(l->h, m, XL_HLO_SOLVE_unit_diagonal)));
    SET(op, TRIANGULAR_SOLVE, transpose_a, xl_attr_enum(l->h->m, XL_ENUM_TRANSPOSE, t));
    done(l, op);
}

static void batch_norm(xl_low *l, xl_opcode code)
{
    xl_op *op = emit_all(l, code, 0);
    uint32_t bits = (uint32_t)num(l, XL_HLO_INST_epsilon);
    xl_op_set(op, 0, xl_attr_float(l->h->m, XL_F32, bits, (double)xl_proto_f32(bits)));
    xl_op_set(op, 1, i64(l, num(l, XL_HLO_INST_feature_index)));
    done(l, op);
}
_Static_assert(XL_SLOT(BATCH_NORM_GRAD, epsilon) == 0 && XL_SLOT(BATCH_NORM_INFERENCE, feature_index) == 1 &&
               XL_SLOT(BATCH_NORM_TRAINING, epsilon) == 0, "the three have the same slots");
static void op_batch_norm_grad(xl_low *l) { batch_norm(l, XL_OP_BATCH_NORM_GRAD); }
static void op_batch_norm_inference(xl_low *l) { batch_norm(l, XL_OP_BATCH_NORM_INFERENCE); }
static void op_batch_norm_training(xl_low *l) { batch_norm(l, XL_OP_BATCH_NORM_TRAINING); }

/* ---- control flow and calls -------------------------------------------------------------------------------------- */
static void op_tuple(xl_low *l) { give(l, gather_operands(l, 0, l->i->noperand)); }

static void op_get_tuple_element(xl_low *l)
{
    want(l, 1);
    int64_t index = num(l, XL_HLO_INST_tuple_index);
    uint32_t at = 0;
    xl_hlo_leaves v = xl_hlo_operand(l, 0);
    const xl_type *t = xl_hlo_find(l->c, l->i->operand[0])->type;
    if (t->kind != XL_TY_TUPLE || index < 0 || index >= (int64_t)t->nelem)
        FAIL(l, "element %lld of something that has none", (long long)index);
    for (int64_t k = 0; k < index; k++)
        at += xl_hlo_nleaf(t->elem[k]);
    uint32_t n = xl_hlo_nleaf(t->elem[index]);
    if (v.n != xl_hlo_nleaf(t)) { /* of a -start: what it holds beside the result is not kept */
        if (v.n != n)
            FAIL(l, "element %lld of an operation that is under way", (long long)index);
        at = 0;
    }
    give(l, (xl_hlo_leaves){ v.v + at, n });
}

static void op_call(xl_low *l)
{
    xl_func *callee = xl_hlo_func(l->h, xl_hlo_called(l, 0));
    const xl_attr *sym = xl_attr_sym(l->h->m, callee->name);
    if (!num(l, XL_HLO_INST_is_composite)) {
        xl_op *op = emit_all(l, XL_OP_CALL, 0);
        SET(op, CALL, callee, sym);
        done(l, op);
        return;
    }
    xl_op *op = emit_all(l, XL_OP_COMPOSITE, 0);
    const xl_attr *front = xl_dict_get(op->extra, XL_STR("mhlo.frontend_attributes"));
    const xl_attr *name = xl_dict_get(front, XL_STR("composite.name")),
                  *version = xl_dict_get(front, XL_STR("composite.version"));
    const xl_attr *attrs = xl_dict_get(front, XL_STR("composite.attributes")), *dict = NULL;
    int64_t v = 0;
    if (!name || (version && !xl_str_i64(version->str, &v)))
        FAIL(l, "a composite call without a name or with a version that is no number");
    if (attrs) {
        xl_error *err = xl_read_text_attr(l->h->m, attrs->str, &dict);
        if (err) {
            l->h->err = xl_error_wrap(err, "HLO: the attributes of composite %.*s", XL_FMT(name->str));
            longjmp(l->h->fail, 1);
        }
        if (dict && dict->kind == XL_AT_DICT)
            SET(op, COMPOSITE, composite_attributes, dict);
    }
    SET(op, COMPOSITE, name, name);
    SET(op, COMPOSITE, decomposition, sym);
    SET(op, COMPOSITE, version, xl_attr_int(l->h->m, XL_I32, v));
    front = xl_dict_with(l->h->m, front, XL_STR("composite.name"), NULL);
    front = xl_dict_with(l->h->m, front, XL_STR("composite.version"), NULL);
    front = xl_dict_with(l->h->m, front, XL_STR("composite.attributes"), NULL);
    op->extra = xl_dict_with(l->h->m, op->extra, XL_STR("mhlo.frontend_attributes"), front);
    done(l, op);
}

static xl_hlo_leaves *each_operand(xl_low *l, uint32_t first)
{
    uint32_t n = l->i->noperand > first ? l->i->noperand - first : 0;
    xl_hlo_leaves *v = xl_new(&l->h->tmp, xl_hlo_leaves, (size_t)n + 1);
    for (uint32_t k = 0; k < n; k++)
        v[k] = xl_hlo_operand(l, first + k);
    return v;
}

static void op_inline(xl_low *l)
{
    give(l, xl_hlo_inline(l, xl_hlo_called(l, 0), l->r, each_operand(l, 0), l->i->noperand));
}

static void op_while(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_WHILE, 2);
    /* called computations: the body, then the condition */
    xl_hlo_region(l, xl_hlo_called(l, 1), op->region[0]);
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[1]);
    done(l, op);
}

static void op_conditional(xl_low *l)
{
    want(l, 1);
    xl_value which = one(l, 0);
    uint32_t n = l->i->noperand - 1;
    bool two = xl_value_type(l->f, which)->dtype == XL_I1;
    if ((two && n != 2) || n == 0 || n > UINT16_MAX)
        FAIL(l, "a conditional of %u branches", n);
    xl_op *op = emit(l, two ? XL_OP_IF : XL_OP_CASE, (xl_hlo_leaves){ &which, 1 }, n);
    for (uint32_t k = 0; k < n; k++) {
        xl_hlo_leaves param = xl_hlo_operand(l, k + 1);
        xl_hlo_leaves out = xl_hlo_inline(l, xl_hlo_called(l, k), op->region[k], &param, 1);
        xl_op_new(l->f, op->region[k], XL_OP_RETURN, out.v, out.n, NULL, 0, 0, (xl_loc){ 0 });
    }
    done(l, op);
}

static void op_forward(xl_low *l)
{
    want(l, 1);
    give(l, xl_hlo_operand(l, 0));
}

static void op_barrier(xl_low *l)
{
    xl_leaf_types t = xl_hlo_leaf_types(l->h, l->i->type);
    if (t.n == 0) {
        op_forward(l);
        return;
    }
    done(l, emit_all(l, XL_OP_OPTIMIZATION_BARRIER, 0));
}

/* A tuple operand that must stay one. */
static xl_value pack(xl_low *l, xl_hlo_leaves *v, const xl_type *t)
{
    if (t->kind != XL_TY_TUPLE) {
        v->n--;
        return *v->v++;
    }
    xl_value *part = xl_new(&l->h->tmp, xl_value, (size_t)t->nelem + 1);
    for (uint32_t i = 0; i < t->nelem; i++)
        part[i] = pack(l, v, t->elem[i]);
    return xl_op_new(l->f, l->r, XL_OP_TUPLE, part, t->nelem, &t, 1, 0, (xl_loc){ 0 })->out[0];
}

static void unpack(xl_low *l, xl_value v, const xl_type *t, xl_hlo_leaves *to)
{
    if (t->kind != XL_TY_TUPLE) {
        to->v[to->n++] = v;
        return;
    }
    for (uint32_t i = 0; i < t->nelem; i++) {
        xl_op *get = xl_op_new(l->f, l->r, XL_OP_GET_TUPLE_ELEMENT, &v, 1, &t->elem[i], 1, 0, (xl_loc){ 0 });
        SET(get, GET_TUPLE_ELEMENT, index, xl_attr_int(l->h->m, XL_I32, i));
        unpack(l, get->out[0], t->elem[i], to);
    }
}

static const xl_attr *layouts(xl_low *l, xl_str in, uint32_t number, bool flat)
{
    xl_proto p = xl_proto_of(in);
    xl_proto_field f;
    const xl_attr **item = NULL;
    uint32_t n = 0, cap = 0;
    bool plain;
    if (!flat)
        while (xl_hlo_each(l->h, &p, number, &f))
            XL_PUSH(&l->h->tmp, item, n, cap, xl_hlo_layout(l->h, f.bytes, xl_hlo_type(l->h, f.bytes), &plain));
    else
        XL_PUSH(&l->h->tmp, item, n, cap, xl_hlo_layout(l->h, in, xl_hlo_type(l->h, in), &plain));
    return xl_attr_array(l->h->m, item, n);
}

static const xl_attr *operand_aliases(xl_low *l)
{
    xl_proto p = xl_proto_of(l->i->bytes);
    xl_proto_field f;
    const xl_attr **item = NULL;
    uint32_t n = 0, cap = 0;
    const xl_str key[] = { XL_STR("operand_index"), XL_STR("operand_tuple_indices"), XL_STR("output_tuple_indices") };
    while (xl_hlo_each(l->h, &p, XL_HLO_INST_output_operand_aliasing, &f)) {
        const xl_attr *const part[] = { i64(l, xl_hlo_num(l->h, f.bytes, XL_HLO_ALIAS_operand_index)),
                                        list(l, xl_hlo_ints(l->h, f.bytes, XL_HLO_ALIAS_operand_shape_index)),
                                        list(l, xl_hlo_ints(l->h, f.bytes, XL_HLO_ALIAS_output_shape_index)) };
        XL_PUSH(&l->h->tmp, item, n, cap,
                xl_attr_struct(l->h->m, XL_STR("stablehlo.output_operand_alias"), key, part, 3));
    }
    return xl_attr_array(l->h->m, item, n);
}

static void op_custom_call(xl_low *l)
{
    enum { TYPED_FFI = 4 };
    xl_hlo *h = l->h;
    const xl_type *t = l->i->type;
    xl_value *in = xl_new(&h->tmp, xl_value, (size_t)l->i->noperand + 1);
    for (uint32_t k = 0; k < l->i->noperand; k++) {
        xl_hlo_leaves v = xl_hlo_operand(l, k);
        const xl_type *type = xl_hlo_find(l->c, l->i->operand[k])->type;
        in[k] = xl_hlo_nleaf(type) == v.n ? pack(l, &v, type) : one(l, k);
    }
    bool tuple = t->kind == XL_TY_TUPLE;
    xl_op *op = emit_typed(l, XL_OP_CUSTOM_CALL, in, l->i->noperand, tuple ? t->elem : &t, tuple ? t->nelem : 1, 0);
    xl_hlo_leaves out = { xl_new(&h->tmp, xl_value, (size_t)xl_hlo_nleaf(t) + 1), 0 };
    for (uint32_t k = 0; k < op->nout; k++)
        unpack(l, op->out[k], xl_out_type(l->f, op, k), &out);
    give(l, out);
    int64_t api = num(l, XL_HLO_INST_custom_call_api_version);
    xl_str config = msg(l, XL_HLO_INST_backend_config);
    const xl_attr *a = xl_attr_str(h->m, config);
    if (api == TYPED_FFI && config.n) {
        xl_error *err = xl_read_text_attr(h->m, config, &a);
        if (err) {
            h->err = xl_error_wrap(err, "HLO: the backend_config of %.*s", XL_FMT(l->i->name));
            longjmp(h->fail, 1);
        }
    }
    SET(op, CUSTOM_CALL, backend_config, a);
    SET(op, CUSTOM_CALL, api_version, xl_attr_int(h->m, XL_I32, api ? (int32_t)api : 1));
    SET(op, CUSTOM_CALL, call_target_name, xl_attr_str(h->m, msg(l, XL_HLO_INST_custom_call_target)));
    SET(op, CUSTOM_CALL, has_side_effect, flag(l, num(l, XL_HLO_INST_custom_call_has_side_effect)));
    SET(op, CUSTOM_CALL, output_operand_aliases, operand_aliases(l));
    if (num(l, XL_HLO_INST_constrain_layout)) {
        SET(op, CUSTOM_CALL, operand_layouts, layouts(l, l->i->bytes, XL_HLO_INST_operand_shapes_with_layout, false));
        SET(op, CUSTOM_CALL, result_layouts, layouts(l, msg(l, XL_HLO_INST_shape), XL_HLO_SHAPE_tuple_shapes, !tuple));
    }
    xl_dims called = ints(l, XL_HLO_INST_called_computation_ids);
    const xl_attr **sym = xl_new(&h->tmp, const xl_attr *, called.n);
    for (size_t k = 0; k < called.n; k++)
        sym[k] = xl_attr_sym(h->m, xl_hlo_func(h, xl_hlo_called(l, (uint32_t)k))->name);
    SET(op, CUSTOM_CALL, called_computations, xl_attr_array(h->m, sym, (uint32_t)called.n));
    done(l, op);
}

/* ---- tokens, hosts and other devices ----------------------------------------------------------------------------- */
static void op_after_all(xl_low *l) { done(l, emit_all(l, l->i->noperand ? XL_OP_AFTER_ALL : XL_OP_CREATE_TOKEN, 0)); }

static void op_infeed(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_INFEED, 0);
    SET(op, INFEED, infeed_config, xl_attr_str(l->h->m, msg(l, XL_HLO_INST_infeed_config)));
    done(l, op);
}

static void op_outfeed(xl_low *l)
{
    xl_op *op = emit_all(l, XL_OP_OUTFEED, 0);
    SET(op, OUTFEED, outfeed_config, xl_attr_str(l->h->m, msg(l, XL_HLO_INST_outfeed_config)));
    done(l, op);
}

enum { DEVICE_TO_DEVICE = 1, DEVICE_TO_HOST = 2, HOST_TO_DEVICE = 3 };

static const xl_attr *pairs(xl_low *l)
{
    xl_dims from = column(l, l->i->bytes, XL_HLO_INST_source_target_pairs, XL_HLO_PAIR_source),
            to = column(l, l->i->bytes, XL_HLO_INST_source_target_pairs, XL_HLO_PAIR_target);
    return list(l, zip(l, from, to));
}

static void op_send(xl_low *l)
{
    bool host = num(l, XL_HLO_INST_is_host_transfer);
    xl_hlo_leaves in = gather_operands(l, 0, l->i->noperand);
    const xl_type *token = xl_type_token(l->h->m);
    xl_op *op = emit_typed(l, XL_OP_SEND, in.v, in.n, &token, 1, 0);
    give(l, (xl_hlo_leaves){ op->out, 1 });
    SET(op, SEND, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, SEND, channel_type, i64(l, host ? DEVICE_TO_HOST : DEVICE_TO_DEVICE));
    SET(op, SEND, is_host_transfer, flag(l, host));
    SET(op, SEND, source_target_pairs, pairs(l));
    done(l, op);
}

static void op_recv(xl_low *l)
{
    bool host = num(l, XL_HLO_INST_is_host_transfer);
    const xl_type *t = l->i->type;                         /* (data, context, token) */
    if (t->kind != XL_TY_TUPLE || t->nelem != 3)
        FAIL(l, "a recv that does not give data, context and token");
    xl_leaf_types data = xl_hlo_leaf_types(l->h, t->elem[0]);
    const xl_type **out = xl_new(&l->h->tmp, const xl_type *, (size_t)data.n + 1);
    memcpy(out, data.t, data.n * sizeof *out);
    out[data.n] = t->elem[2];
    xl_hlo_leaves in = gather_operands(l, 0, l->i->noperand);
    xl_op *op = emit_typed(l, XL_OP_RECV, in.v, in.n, out, data.n + 1, 0);
    give(l, (xl_hlo_leaves){ op->out, op->nout });
    SET(op, RECV, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, RECV, channel_type, i64(l, host ? HOST_TO_DEVICE : DEVICE_TO_DEVICE));
    SET(op, RECV, is_host_transfer, flag(l, host));
    SET(op, RECV, source_target_pairs, pairs(l));
    done(l, op);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */
static const xl_attr *groups(xl_low *l, int64_t *group_size)
{
    xl_hlo *h = l->h;
    xl_hlo_groups g;
    h->err = xl_error_wrap(xl_hlo_groups_read(&h->tmp, l->i->bytes, &g), "HLO: %.*s", XL_FMT(l->i->name));
    if (h->err)
        longjmp(h->fail, 1);
    if (group_size)
        *group_size = g.size;
    int64_t dims[2] = { g.ngroup, g.size };
    return xl_attr_dense(h->m, xl_type_tensor(h->m, XL_I64, (xl_dims){ dims, 2 }),
                         (xl_str){ (const char *)g.id, (size_t)(g.ngroup * g.size) * sizeof *g.id });
}

/* A start's shape holds its operands too; the op's results are those of the operation itself. */
static xl_op *emit_collective(xl_low *l, xl_opcode code, uint32_t nregion, uint32_t part)
{
    xl_hlo_leaves in = gather_operands(l, 0, l->i->noperand);
    const xl_type *t = l->i->type;
    if (xl_str_ends(l->i->opcode, XL_STR("-start")) && part) {
        if (t->kind != XL_TY_TUPLE || t->nelem <= part)
            FAIL(l, "%.*s does not have the shape of a started operation", XL_FMT(l->i->name));
        t = t->elem[part];
    }
    xl_leaf_types out = xl_hlo_leaf_types(l->h, t);
    int nin = xl_ops[code].nin, nout = xl_ops[code].nout;
    if ((nin >= 0 && (uint32_t)nin != in.n) || (nout >= 0 && (uint32_t)nout != out.n))
        FAIL(l, "%.*s (%.*s) of %u operands and %u results", XL_FMT(l->i->name), XL_FMT(l->i->opcode), in.n, out.n);
    xl_op *op = emit_typed(l, code, in.v, in.n, out.t, out.n, nregion);
    give(l, (xl_hlo_leaves){ op->out, op->nout });
    return op;
}

static void op_all_gather(xl_low *l)
{
    xl_op *op = emit_collective(l, XL_OP_ALL_GATHER, 0, 1);
    SET(op, ALL_GATHER, all_gather_dim, i64(l, first_dim(l)));
    SET(op, ALL_GATHER, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, ALL_GATHER, replica_groups, groups(l, NULL));
    SET(op, ALL_GATHER, use_global_device_ids, flag(l, num(l, XL_HLO_INST_use_global_device_ids)));
    done(l, op);
}

static void op_all_reduce(xl_low *l)
{
    xl_op *op = emit_collective(l, XL_OP_ALL_REDUCE, 1, 0);
    SET(op, ALL_REDUCE, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, ALL_REDUCE, replica_groups, groups(l, NULL));
    SET(op, ALL_REDUCE, use_global_device_ids, flag(l, num(l, XL_HLO_INST_use_global_device_ids)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

static void op_reduce_scatter(xl_low *l)
{
    xl_op *op = emit_collective(l, XL_OP_REDUCE_SCATTER, 1, 0);
    SET(op, REDUCE_SCATTER, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, REDUCE_SCATTER, replica_groups, groups(l, NULL));
    SET(op, REDUCE_SCATTER, scatter_dimension, i64(l, first_dim(l)));
    SET(op, REDUCE_SCATTER, use_global_device_ids, flag(l, num(l, XL_HLO_INST_use_global_device_ids)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

static xl_op *all_to_all(xl_low *l, const xl_value *in, const xl_type *t, int64_t dim, int64_t count, const xl_attr *g)
{
    xl_op *op = emit_typed(l, XL_OP_ALL_TO_ALL, in, 1, &t, 1, 0);
    SET(op, ALL_TO_ALL, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, ALL_TO_ALL, replica_groups, g);
    SET(op, ALL_TO_ALL, split_dimension, i64(l, dim));
    SET(op, ALL_TO_ALL, concat_dimension, i64(l, dim));
    SET(op, ALL_TO_ALL, split_count, i64(l, count));
    done(l, op);
    return op;
}

/* HLO has it in two forms: one array split along a dimension; or a tuple, whose k-th operand goes to the k-th of the
 * group.
 * The second is the first along a new leading dimension. */
static void op_all_to_all(xl_low *l)
{
    xl_dims d = ints(l, XL_HLO_INST_dimensions);
    int64_t size = 0;
    const xl_attr *g = groups(l, &size);
    want(l, 1);
    xl_hlo_leaves in = gather_operands(l, 0, l->i->noperand);
    xl_module *m = l->h->m;
    const xl_type *t = xl_value_type(l->f, in.v[0]);
    if (d.n) {
        if (in.n != 1)
            FAIL(l, "an all-to-all of %u arrays along a dimension", in.n);
        give(l, (xl_hlo_leaves){ all_to_all(l, in.v, l->i->type, d.p[0], size, g)->out, 1 });
        return;
    }
    if (t->kind != XL_TY_TENSOR || t->rank > 64)
        FAIL(l, "an all-to-all of something that is no array");
    int64_t dims[65], zeros[65] = { 0 }, limit[65];
    memcpy(dims + 1, t->dims, t->rank * sizeof *dims);
    dims[0] = 1;
    uint32_t rank = t->rank + 1;
    const xl_type *row = xl_type_tensor(m, t->dtype, (xl_dims){ dims, rank });
    dims[0] = in.n;
    const xl_type *all = xl_type_tensor(m, t->dtype, (xl_dims){ dims, rank });
    for (uint32_t k = 0; k < in.n; k++) {
        if (xl_value_type(l->f, in.v[k]) != t)
            FAIL(l, "an all-to-all of arrays that differ in shape");
        in.v[k] = xl_op_new(l->f, l->r, XL_OP_RESHAPE, &in.v[k], 1, &row, 1, 0, (xl_loc){ 0 })->out[0];
    }
    xl_op *cat = xl_op_new(l->f, l->r, XL_OP_CONCATENATE, in.v, in.n, &all, 1, 0, (xl_loc){ 0 });
    SET(cat, CONCATENATE, dimension, i64(l, 0));
    xl_op *op = all_to_all(l, cat->out, all, 0, in.n, g);
    memcpy(limit, dims, rank * sizeof *limit);
    xl_hlo_leaves out = { xl_new(&l->h->tmp, xl_value, in.n), in.n };
    for (uint32_t k = 0; k < in.n; k++) {
        xl_op *cut = xl_op_new(l->f, l->r, XL_OP_SLICE, op->out, 1, &row, 1, 0, (xl_loc){ 0 });
        zeros[0] = k;
        limit[0] = k + 1;
        SET(cut, SLICE, start_indices, list(l, (xl_dims){ zeros, rank }));
        SET(cut, SLICE, limit_indices, list(l, (xl_dims){ limit, rank }));
        out.v[k] = xl_op_new(l->f, l->r, XL_OP_RESHAPE, cut->out, 1, &t, 1, 0, (xl_loc){ 0 })->out[0];
    }
    give(l, out);
}

static void op_collective_permute(xl_low *l)
{
    xl_op *op = emit_collective(l, XL_OP_COLLECTIVE_PERMUTE, 0, 1);
    SET(op, COLLECTIVE_PERMUTE, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, COLLECTIVE_PERMUTE, source_target_pairs, pairs(l));
    done(l, op);
}

static void op_collective_broadcast(xl_low *l)
{
    xl_op *op = emit_collective(l, XL_OP_COLLECTIVE_BROADCAST, 0, 0);
    SET(op, COLLECTIVE_BROADCAST, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, COLLECTIVE_BROADCAST, has_dynamic_root, flag(l, num(l, XL_HLO_INST_has_dynamic_root)));
    SET(op, COLLECTIVE_BROADCAST, replica_groups, groups(l, NULL));
    done(l, op);
}

static void op_collective_reduce(xl_low *l)
{
    xl_op *op = emit_collective(l, XL_OP_COLLECTIVE_REDUCE, 1, 0);
    SET(op, COLLECTIVE_REDUCE, channel_id, i64(l, num(l, XL_HLO_INST_channel_id)));
    SET(op, COLLECTIVE_REDUCE, has_dynamic_root, flag(l, num(l, XL_HLO_INST_has_dynamic_root)));
    SET(op, COLLECTIVE_REDUCE, replica_groups, groups(l, NULL));
    SET(op, COLLECTIVE_REDUCE, use_global_device_ids, flag(l, num(l, XL_HLO_INST_use_global_device_ids)));
    xl_hlo_region(l, xl_hlo_called(l, 0), op->region[0]);
    done(l, op);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */
static const struct { const char *name; void (*lower)(xl_low *l);
} table[] = {
    { "parameter", op_parameter },
    { "constant", op_constant },
    { "tuple", op_tuple },
    { "get-tuple-element", op_get_tuple_element },
    { "broadcast", op_broadcast },
    { "reshape", op_reshape },
    { "transpose", op_transpose },
    { "dot", op_dot },
    { "compare", op_compare },
    { "reduce", op_reduce },
    { "slice", op_slice },
    { "concatenate", op_concatenate },
    { "call", op_call },
    { "iota", op_iota },
    { "pad", op_pad },
    { "gather", op_gather },
    { "scatter", op_scatter },
    { "dynamic-slice", op_dynamic_slice },
    { "dynamic-update-slice", op_dynamic_update_slice },
    { "while", op_while },
    { "conditional", op_conditional },
    { "custom-call", op_custom_call },
    { "convolution", op_convolution },
    { "sort", op_sort },
    { "reduce-window", op_reduce_window },
    { "select-and-scatter", op_select_and_scatter },
    { "reverse", op_reverse },
    { "bitcast-convert", op_bitcast_convert },
    { "bitcast", op_bitcast },
    { "reduce-precision", op_reduce_precision },
    { "rng-bit-generator", op_rng_bits },
    { "rng", op_rng },
    { "map", op_map },
    { "fusion", op_inline },
    { "async-start", op_inline },
    { "async-update", op_forward },
    { "async-done", op_forward },
    { "copy", op_forward },
    { "copy-start", op_forward },
    { "copy-done", op_forward },
    { "domain", op_forward },
    { "add-dependency", op_forward },
    { "opt-barrier", op_barrier },
    { "optimization-barrier", op_barrier },
    { "fft", op_fft },
    { "cholesky", op_cholesky },
    { "triangular-solve", op_triangular_solve },
    { "batch-norm-training", op_batch_norm_training },
    { "batch-norm-inference", op_batch_norm_inference },
    { "batch-norm-grad", op_batch_norm_grad },
    { "topk", op_topk },
    { "dynamic-reshape", op_dynamic_reshape },
    { "get-dimension-size", op_get_dimension_size },
    { "set-dimension-size", op_set_dimension_size },
    { "partition-id", op_partition_id },
    { "replica-id", op_replica_id },
    { "after-all", op_after_all },
    { "infeed", op_infeed },
    { "outfeed", op_outfeed },
    { "send", op_send },
    { "send-done", op_forward },
    { "recv", op_recv },
    { "recv-done", op_forward },
    { "all-reduce", op_all_reduce },
    { "all-reduce-start", op_all_reduce },
    { "all-reduce-done", op_forward },
    { "all-gather", op_all_gather },
    { "all-gather-start", op_all_gather },
    { "all-gather-done", op_forward },
    { "reduce-scatter", op_reduce_scatter },
    { "all-to-all", op_all_to_all },
    { "collective-permute", op_collective_permute },
    { "collective-permute-start", op_collective_permute },
    { "collective-permute-done", op_forward },
    { "collective-broadcast", op_collective_broadcast },
    { "collective-reduce", op_collective_reduce },
};

void xl_hlo_op(xl_low *l)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (xl_str_is(l->i->opcode, table[i].name)) {
            table[i].lower(l);
            return;
        }
    if (!plain_op(l))
        xl_hlo_fail(l->h, l->i->bytes.p, XL_CODE_UNIMPLEMENTED,
                    "instruction %.*s: opcode '%.*s' has no counterpart in StableHLO", XL_FMT(l->i->name),
                    XL_FMT(l->i->opcode));
}
