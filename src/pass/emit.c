#include "pass/emit.h"

#include <math.h>

static const xl_attr *dims_attr(xl_emit *e, xl_dims d) { return xl_attr_dims(e->f->m, d); }
static const xl_type *shaped(xl_emit *e, const xl_type *t, const int64_t *dims, uint32_t rank)
{
    return xl_type_tensor(e->f->m, t->dtype, (xl_dims){ dims, rank });
}
static xl_value one(const xl_op *op) { return op->out[0]; }

xl_op *xl_em_op(xl_emit *e, xl_opcode code, const xl_value *in, uint32_t nin, const xl_type *out)
{
    return xl_op_new(e->f, e->r, code, in, nin, &out, 1, 0, e->loc);
}

static xl_value done(xl_emit *e, xl_op *op)
{
    xl_op_normalize(e->f->m, op);
    return one(op);
}

xl_value xl_em_unary(xl_emit *e, xl_opcode code, xl_value a) { return one(xl_em_op(e, code, &a, 1, xl_em_type(e, a))); }

xl_value xl_em_binary(xl_emit *e, xl_opcode code, xl_value a, xl_value b)
{
    return one(xl_em_op(e, code, (xl_value[]){ a, b }, 2, xl_em_type(e, a)));
}

xl_value xl_em_select(xl_emit *e, xl_value p, xl_value a, xl_value b)
{
    return one(xl_em_op(e, XL_OP_SELECT, (xl_value[]){ p, a, b }, 3, xl_em_type(e, a)));
}

xl_value xl_em_compare(xl_emit *e, int direction, xl_value a, xl_value b)
{
    xl_module *m = e->f->m;
    const xl_type *t = xl_em_type(e, a);
    xl_op *op = xl_em_op(e, XL_OP_COMPARE, (xl_value[]){ a, b }, 2, xl_type_with_dtype(m, t, XL_I1));
    xl_dclass c = xl_dtype_class(t->dtype);
    int64_t kind = c == XL_CLASS_INT ? XL_COMPARISON_TYPE_SIGNED
                   : c == XL_CLASS_UINT || c == XL_CLASS_PRED ? XL_COMPARISON_TYPE_UNSIGNED : XL_COMPARISON_TYPE_FLOAT;
    xl_op_set(op, XL_SLOT(COMPARE, compare_type), xl_attr_enum(m, XL_ENUM_COMPARISON_TYPE, kind));
    xl_op_set(op, XL_SLOT(COMPARE, comparison_direction), xl_attr_enum(m, XL_ENUM_COMPARISON_DIRECTION, direction));
    return one(op);
}

xl_value xl_em_convert(xl_emit *e, xl_value a, xl_dtype d)
{
    const xl_type *t = xl_em_type(e, a);
    return t->dtype == d ? a : one(xl_em_op(e, XL_OP_CONVERT, &a, 1, xl_type_with_dtype(e->f->m, t, d)));
}

static uint32_t f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* The bytes of one element. Halves are rounded to nearest even; the narrower floats are never splat from here. */
static size_t encode(xl_dtype d, double v, unsigned char out[16])
{
    size_t n = xl_dtype_bytes(d);
    memset(out, 0, 16);
    switch (d) {
    case XL_F64: case XL_C128: memcpy(out, &v, 8); return n;
    case XL_F32: case XL_C64: { float f = (float)v; memcpy(out, &f, 4); return n; }
    case XL_BF16: {
        uint32_t u = f32_bits((float)v);
        uint16_t h = isnan(v) ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
        memcpy(out, &h, 2);
        return n;
    }
    case XL_F16: {
        double a = fabs(v);
        uint16_t h = signbit(v) ? 0x8000 : 0;
        if (isnan(v))
            h = 0x7e00;
        else if (a >= 65520)
            h |= 0x7c00;
        else if (a > 0) {
            int x;
            frexp(a, &x);                       /* a = f * 2^x with f in [0.5, 1) */
            int shift = x - 11 < -24 ? -24 : x - 11;
            double r = nearbyint(ldexp(a, -shift)); /* 11 bits; ties to even by the default rounding */
            uint32_t k = (uint32_t)r;
            h |= (uint16_t)(shift == -24 ? k : ((uint32_t)(shift + 24) << 10) + k);
        }
        memcpy(out, &h, 2);
        return n;
    }
    default: {
        int64_t i = (int64_t)v;
        if (xl_dtype_class(d) == XL_CLASS_UINT && v >= 9.2e18) {
            uint64_t u = (uint64_t)v;
            memcpy(out, &u, n);
        } else
            memcpy(out, &i, n);
        return n;
    }
    }
}

xl_value xl_em_splat(xl_emit *e, const xl_type *t, double v)
{
    unsigned char b[16];
    size_t n = encode(t->dtype, v, b);
    return xl_em_dense(e, t, b, n);
}

xl_value xl_em_dense(xl_emit *e, const xl_type *t, const void *data, size_t bytes)
{
    xl_op *op = xl_em_op(e, XL_OP_CONSTANT, NULL, 0, t);
    xl_op_set(op, XL_SLOT(CONSTANT, value), xl_attr_dense(e->f->m, t, (xl_str){ data, bytes }));
    return one(op);
}

xl_value xl_em_scalar(xl_emit *e, xl_dtype d, double v) { return xl_em_splat(e, xl_type_scalar(e->f->m, d), v); }
xl_value xl_em_like(xl_emit *e, xl_value a, double v) { return xl_em_splat(e, xl_em_type(e, a), v); }

xl_value xl_em_iota(xl_emit *e, const xl_type *t, int64_t dim)
{
    xl_op *op = xl_em_op(e, XL_OP_IOTA, NULL, 0, t);
    xl_op_set(op, XL_SLOT(IOTA, iota_dimension), xl_attr_i64(e->f->m, dim));
    return one(op);
}

xl_value xl_em_reshape(xl_emit *e, xl_value a, xl_dims dims)
{
    const xl_type *t = xl_type_tensor(e->f->m, xl_em_type(e, a)->dtype, dims);
    return t == xl_em_type(e, a) ? a : one(xl_em_op(e, XL_OP_RESHAPE, &a, 1, t));
}

xl_value xl_em_transpose(xl_emit *e, xl_value a, xl_dims perm)
{
    const xl_type *t = xl_em_type(e, a);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, perm.n);
    bool same = true;
    for (size_t i = 0; i < perm.n; i++) {
        d[i] = t->dims[perm.p[i]];
        same &= perm.p[i] == (int64_t)i;
    }
    if (same)
        return a;
    xl_op *op = xl_em_op(e, XL_OP_TRANSPOSE, &a, 1, shaped(e, t, d, t->rank));
    xl_op_set(op, XL_SLOT(TRANSPOSE, permutation), dims_attr(e, perm));
    return one(op);
}

xl_value xl_em_broadcast(xl_emit *e, xl_value a, xl_dims dims, xl_dims at)
{
    const xl_type *t = xl_em_type(e, a);
    if (t->rank == dims.n) {
        bool same = true;
        for (size_t i = 0; i < dims.n; i++)
            same &= at.p[i] == (int64_t)i && t->dims[i] == dims.p[i];
        if (same)
            return a;
    }
    xl_op *op = xl_em_op(e, XL_OP_BROADCAST_IN_DIM, &a, 1, xl_type_tensor(e->f->m, t->dtype, dims));
    xl_op_set(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions), dims_attr(e, at));
    return one(op);
}

xl_value xl_em_spread(xl_emit *e, xl_value scalar, xl_dims dims) { return xl_em_broadcast(e, scalar, dims, XL_NO_DIMS); }

void xl_em_combiner(xl_emit *e, xl_region *r, xl_opcode code, xl_dtype d)
{
    const xl_type *t = xl_type_scalar(e->f->m, d);
    xl_value a = xl_region_add_arg(e->f, r, t, e->loc), b = xl_region_add_arg(e->f, r, t, e->loc);
    xl_region *was = xl_em_enter(e, r);
    xl_value v = xl_em_binary(e, code, a, b);
    xl_em_return(e, &v, 1);
    xl_em_enter(e, was);
}

static bool has(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}

xl_value xl_em_reduce(xl_emit *e, xl_opcode code, xl_value a, double init, xl_dims over)
{
    if (!over.n)
        return a;
    const xl_type *t = xl_em_type(e, a);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, t->rank), *sorted = xl_new(&e->f->m->arena, int64_t, t->rank);
    uint32_t n = 0, k = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        if (has(over, i))
            sorted[k++] = i;
        else
            d[n++] = t->dims[i];
    const xl_type *out = shaped(e, t, d, n);
    xl_value in[2] = { a, xl_em_scalar(e, t->dtype, init) };
    xl_op *op = xl_op_new(e->f, e->r, XL_OP_REDUCE, in, 2, &out, 1, 1, e->loc);
    xl_op_set(op, XL_SLOT(REDUCE, dimensions), dims_attr(e, (xl_dims){ sorted, k }));
    xl_em_combiner(e, op->region[0], code, t->dtype);
    return one(op);
}

xl_value xl_em_sum(xl_emit *e, xl_value a, xl_dims over) { return xl_em_reduce(e, XL_OP_ADD, a, 0, over); }

xl_value xl_em_slice(xl_emit *e, xl_value a, const int64_t *start, const int64_t *limit, const int64_t *stride)
{
    const xl_type *t = xl_em_type(e, a);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, t->rank), *s = xl_new(&e->f->m->arena, int64_t, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        s[i] = stride ? stride[i] : 1;
        d[i] = limit[i] > start[i] ? (limit[i] - start[i] + s[i] - 1) / s[i] : 0;
    }
    xl_op *op = xl_em_op(e, XL_OP_SLICE, &a, 1, shaped(e, t, d, t->rank));
    xl_op_set(op, XL_SLOT(SLICE, start_indices), dims_attr(e, (xl_dims){ start, t->rank }));
    xl_op_set(op, XL_SLOT(SLICE, limit_indices), dims_attr(e, (xl_dims){ limit, t->rank }));
    xl_op_set(op, XL_SLOT(SLICE, strides), dims_attr(e, (xl_dims){ s, t->rank }));
    return done(e, op);
}

xl_value xl_em_pad(xl_emit *e, xl_value a, xl_value with, const int64_t *low, const int64_t *high, const int64_t *interior)
{
    const xl_type *t = xl_em_type(e, a);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, t->rank), *in = xl_new(&e->f->m->arena, int64_t, t->rank);
    bool same = true;
    for (uint32_t i = 0; i < t->rank; i++) {
        in[i] = interior ? interior[i] : 0;
        d[i] = low[i] + high[i] + t->dims[i] + (t->dims[i] > 0 ? (t->dims[i] - 1) * in[i] : 0);
        same &= low[i] == 0 && high[i] == 0 && in[i] == 0;
    }
    if (same)
        return a;
    xl_op *op = xl_em_op(e, XL_OP_PAD, (xl_value[]){ a, with }, 2, shaped(e, t, d, t->rank));
    xl_op_set(op, XL_SLOT(PAD, edge_padding_low), dims_attr(e, (xl_dims){ low, t->rank }));
    xl_op_set(op, XL_SLOT(PAD, edge_padding_high), dims_attr(e, (xl_dims){ high, t->rank }));
    xl_op_set(op, XL_SLOT(PAD, interior_padding), dims_attr(e, (xl_dims){ in, t->rank }));
    return one(op);
}

xl_value xl_em_concat(xl_emit *e, const xl_value *in, uint32_t n, int64_t dim)
{
    const xl_type *t = xl_em_type(e, in[0]);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    for (uint32_t i = 1; i < n; i++)
        d[dim] += xl_em_type(e, in[i])->dims[dim];
    xl_op *op = xl_em_op(e, XL_OP_CONCATENATE, in, n, shaped(e, t, d, t->rank));
    xl_op_set(op, XL_SLOT(CONCATENATE, dimension), xl_attr_i64(e->f->m, dim));
    return one(op);
}

xl_value xl_em_reverse(xl_emit *e, xl_value a, xl_dims dims)
{
    xl_op *op = xl_em_op(e, XL_OP_REVERSE, &a, 1, xl_em_type(e, a));
    xl_op_set(op, XL_SLOT(REVERSE, dimensions), dims_attr(e, dims));
    return one(op);
}

static xl_value *with_starts(xl_emit *e, const xl_value *first, uint32_t n, const xl_value *start, uint32_t rank)
{
    xl_value *in = xl_new(&e->f->m->arena, xl_value, n + rank);
    memcpy(in, first, n * sizeof *in);
    memcpy(in + n, start, rank * sizeof *in);
    return in;
}

xl_value xl_em_dynamic_slice(xl_emit *e, xl_value a, const xl_value *start, const int64_t *sizes)
{
    const xl_type *t = xl_em_type(e, a);
    xl_op *op = xl_em_op(e, XL_OP_DYNAMIC_SLICE, with_starts(e, &a, 1, start, t->rank), 1 + t->rank,
                         shaped(e, t, sizes, t->rank));
    xl_op_set(op, XL_SLOT(DYNAMIC_SLICE, slice_sizes), dims_attr(e, (xl_dims){ sizes, t->rank }));
    return one(op);
}

xl_value xl_em_dynamic_update(xl_emit *e, xl_value a, xl_value upd, const xl_value *start)
{
    const xl_type *t = xl_em_type(e, a);
    xl_value first[2] = { a, upd };
    return one(xl_em_op(e, XL_OP_DYNAMIC_UPDATE_SLICE, with_starts(e, first, 2, start, t->rank), 2 + t->rank, t));
}

xl_value xl_em_dot(xl_emit *e, xl_value a, xl_value b, xl_dims abatch, xl_dims bbatch, xl_dims acontract, xl_dims bcontract,
                   xl_dtype out)
{
    const xl_type *ta = xl_em_type(e, a), *tb = xl_em_type(e, b);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, ta->rank + tb->rank);
    uint32_t n = 0;
    for (size_t i = 0; i < abatch.n; i++)
        d[n++] = ta->dims[abatch.p[i]];
    for (uint32_t i = 0; i < ta->rank; i++)
        if (!has(abatch, i) && !has(acontract, i))
            d[n++] = ta->dims[i];
    for (uint32_t i = 0; i < tb->rank; i++)
        if (!has(bbatch, i) && !has(bcontract, i))
            d[n++] = tb->dims[i];
    xl_op *op = xl_em_op(e, XL_OP_DOT_GENERAL, (xl_value[]){ a, b }, 2, xl_type_tensor(e->f->m, out, (xl_dims){ d, n }));
    xl_op_set(op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions), dims_attr(e, abatch));
    xl_op_set(op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions), dims_attr(e, bbatch));
    xl_op_set(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions), dims_attr(e, acontract));
    xl_op_set(op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions), dims_attr(e, bcontract));
    return done(e, op);
}

static xl_value *row_starts(xl_emit *e, const xl_type *t, xl_value i)
{
    xl_value *s = xl_new(&e->f->m->arena, xl_value, t->rank);
    xl_value zero = t->rank > 1 ? xl_em_like(e, i, 0) : i;
    s[0] = i;
    for (uint32_t k = 1; k < t->rank; k++)
        s[k] = zero;
    return s;
}

xl_value xl_em_row(xl_emit *e, xl_value a, xl_value i)
{
    const xl_type *t = xl_em_type(e, a);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    d[0] = 1;
    xl_value s = xl_em_dynamic_slice(e, a, row_starts(e, t, i), d);
    return xl_em_reshape(e, s, (xl_dims){ t->dims + 1, t->rank - 1 });
}

xl_value xl_em_put_row(xl_emit *e, xl_value a, xl_value row, xl_value i)
{
    const xl_type *t = xl_em_type(e, a);
    int64_t *d = xl_new(&e->f->m->arena, int64_t, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    d[0] = 1;
    return xl_em_dynamic_update(e, a, xl_em_reshape(e, row, (xl_dims){ d, t->rank }), row_starts(e, t, i));
}

void xl_em_return(xl_emit *e, const xl_value *v, uint32_t n)
{
    xl_op_new(e->f, e->r, XL_OP_RETURN, v, n, NULL, 0, 0, e->loc);
}

xl_region *xl_em_enter(xl_emit *e, xl_region *r)
{
    xl_region *was = e->r;
    e->r = r;
    return was;
}
