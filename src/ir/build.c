#include "ir/build.h"

#include <math.h>

#include "ir/scalar.h"
#include "ir/verify.h"

xl_b xl_b_at(xl_func *f, xl_region *r)
{
    xl_b b = { .f = f, .r = r ? r : f->body, .err = xl_new(&f->m->arena, xl_error *, 1) };
    return b;
}

xl_b xl_b_func(xl_module *m, xl_str name) { return xl_b_at(xl_func_new(m, name), NULL); }

xl_error *xl_b_error(xl_b *b)
{
    xl_error *err = *b->err;
    *b->err = NULL;
    return err;
}

const xl_type *xl_b_type(const xl_b *b, xl_value v)
{
    const xl_type *t = v.id < b->f->nval ? b->f->val[v.id].type : NULL;
    return t ? t : xl_type_scalar(b->f->m, XL_F32);
}

static void fail(xl_b *b, xl_error *err)
{
    if (*b->err)
        xl_error_free(err);
    else
        *b->err = err;
}

/* ---- any op ----------------------------------------------------------------------------------------------------- */
xl_op *xl_b_begin(xl_b *b, xl_opcode code, const xl_value *in, uint32_t nin, const xl_type *const *out, uint32_t nout,
                  uint32_t nregion)
{
    if (*b->err)
        return NULL;
    for (uint32_t i = 0; i < nin; i++)
        if (in[i].id >= b->f->nval) {
            fail(b, XL_ERR(INVALID, "%s: operand %u is no value", xl_ops[code].text, i));
            return NULL;
        }
    const xl_type **types = xl_new(&b->f->m->arena, const xl_type *, nout);
    for (uint32_t i = 0; out && i < nout; i++)
        types[i] = out[i];
    return xl_op_new(b->f, NULL, code, in, nin, types, nout, nregion, b->loc);
}

void xl_b_set(xl_b *b, xl_op *op, uint32_t slot, const xl_attr *a)
{
    if (op && !*b->err)
        op->attr[slot] = a;
}

void xl_b_set_dims(xl_b *b, xl_op *op, uint32_t slot, xl_dims d)
{
    if (op && !*b->err)
        op->attr[slot] = xl_attr_dims(b->f->m, d);
}

void xl_b_set_int(xl_b *b, xl_op *op, uint32_t slot, int64_t v)
{
    if (!op || *b->err)
        return;
    xl_attr_want want = xl_attr_rows[xl_ops[op->code].row0 + slot].want;
    op->attr[slot] = want == XL_AK_BOOL ? xl_attr_bool(b->f->m, v != 0)
                                        : xl_attr_int(b->f->m, want == XL_AK_I32 ? XL_I32 : XL_I64, v);
}

xl_b xl_b_region(xl_b *b, xl_op *op, uint32_t which)
{
    xl_b in = *b;
    /* A failed builder still needs somewhere to point. */
    in.r = op && which < op->nregion ? op->region[which] : xl_region_new(b->f, NULL);
    return in;
}

bool xl_b_end(xl_b *b, xl_op *op)
{
    if (!op || *b->err)
        return false;
    xl_op_normalize(b->f->m, op);
    const xl_type **out = xl_new(&b->f->m->arena, const xl_type *, op->nout);
    for (uint32_t i = 0; i < op->nout; i++)
        out[i] = b->f->val[op->out[i].id].type;
    xl_error *err = xl_infer(b->f, op, out, op->nout);
    if (err) {
        fail(b, err);
        return false;
    }
    for (uint32_t i = 0; i < op->nout; i++)
        b->f->val[op->out[i].id].type = out[i];
    xl_region_append(b->f, b->r, op);
    return true;
}

xl_value xl_b_end1(xl_b *b, xl_op *op) { return xl_b_end(b, op) ? op->out[0] : XL_NO_VALUE; }

xl_value xl_b_arg(xl_b *b, const xl_type *t)
{
    return *b->err ? XL_NO_VALUE : xl_region_add_arg(b->f, b->r, t, b->loc);
}

void xl_b_return(xl_b *b, const xl_value *v, uint32_t n)
{
    xl_op *op = xl_b_begin(b, XL_OP_RETURN, v, n, NULL, 0, 0);
    if (xl_b_end(b, op) && b->r == b->f->body)
        xl_func_set_type(b->f);
}

/* ---- constants -------------------------------------------------------------------------------------------------- */
xl_value xl_b_const(xl_b *b, const xl_type *t, const void *data, size_t bytes)
{
    xl_op *op = xl_b_begin(b, XL_OP_CONSTANT, NULL, 0, NULL, 1, 0);
    if (op)
        op->attr[XL_SLOT(CONSTANT, value)] = xl_attr_dense(b->f->m, t, (xl_str){ data, bytes });
    return xl_b_end1(b, op);
}

xl_value xl_b_splat(xl_b *b, const xl_type *t, double v)
{
    unsigned char one[16];
    xl_scalar_put(t->dtype, v, one);
    return xl_b_const(b, t, one, xl_dtype_bytes(t->dtype));
}

xl_value xl_b_scalar(xl_b *b, xl_dtype d, double v) { return xl_b_splat(b, xl_type_scalar(b->f->m, d), v); }

xl_value xl_b_ints(xl_b *b, xl_dtype d, xl_dims v)
{
    size_t size = xl_dtype_bytes(d);
    char *data = xl_new(&b->f->m->arena, char, v.n * size);
    for (size_t i = 0; i < v.n; i++)
        xl_scalar_put_int(d, v.p[i], data + i * size);
    return xl_b_const(b, xl_type_tensor(b->f->m, d, (xl_dims){ (int64_t[]){ (int64_t)v.n }, 1 }), data, v.n * size);
}

xl_value xl_b_iota(xl_b *b, const xl_type *t, int64_t dim)
{
    xl_op *op = xl_b_begin(b, XL_OP_IOTA, NULL, 0, &t, 1, 0);
    xl_b_set_int(b, op, XL_SLOT(IOTA, iota_dimension), dim);
    return xl_b_end1(b, op);
}

/* ---- elementwise ------------------------------------------------------------------------------------------------ */
xl_value xl_b_unary(xl_b *b, xl_opcode code, xl_value x)
{
    return xl_b_end1(b, xl_b_begin(b, code, &x, 1, NULL, 1, 0));
}

xl_value xl_b_binary(xl_b *b, xl_opcode code, xl_value x, xl_value y)
{
    return xl_b_end1(b, xl_b_begin(b, code, (xl_value[]){ x, y }, 2, NULL, 1, 0));
}

xl_value xl_b_compare(xl_b *b, int64_t direction, xl_value x, xl_value y)
{
    xl_op *op = xl_b_begin(b, XL_OP_COMPARE, (xl_value[]){ x, y }, 2, NULL, 1, 0);
    xl_b_set(b, op, XL_SLOT(COMPARE, comparison_direction),
             xl_attr_enum(b->f->m, XL_ENUM_COMPARISON_DIRECTION, direction));
    if (op) {
        xl_dclass k = xl_dtype_class(xl_in_type(b->f, op, 0)->dtype);
        int64_t type = k == XL_CLASS_FLOAT || k == XL_CLASS_COMPLEX ? XL_COMPARISON_TYPE_FLOAT
                       : k == XL_CLASS_INT                          ? XL_COMPARISON_TYPE_SIGNED
                                                                    : XL_COMPARISON_TYPE_UNSIGNED;
        xl_b_set(b, op, XL_SLOT(COMPARE, compare_type), xl_attr_enum(b->f->m, XL_ENUM_COMPARISON_TYPE, type));
    }
    return xl_b_end1(b, op);
}

xl_value xl_b_select(xl_b *b, xl_value pred, xl_value x, xl_value y)
{
    return xl_b_end1(b, xl_b_begin(b, XL_OP_SELECT, (xl_value[]){ pred, x, y }, 3, NULL, 1, 0));
}

xl_value xl_b_clamp(xl_b *b, xl_value min, xl_value x, xl_value max)
{
    return xl_b_end1(b, xl_b_begin(b, XL_OP_CLAMP, (xl_value[]){ min, x, max }, 3, NULL, 1, 0));
}

xl_value xl_b_convert(xl_b *b, xl_value x, xl_dtype d)
{
    const xl_type *t = xl_b_type(b, x);
    if (*b->err || t->dtype == d)
        return *b->err ? XL_NO_VALUE : x;
    t = xl_type_with_dtype(b->f->m, t, d);
    return xl_b_end1(b, xl_b_begin(b, XL_OP_CONVERT, &x, 1, &t, 1, 0));
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */
static const xl_type *shaped(xl_b *b, xl_value x, xl_dims shape)
{
    return xl_type_tensor(b->f->m, xl_b_type(b, x)->dtype, shape);
}

xl_value xl_b_broadcast(xl_b *b, xl_value x, xl_dims shape, xl_dims dims)
{
    const xl_type *t = shaped(b, x, shape);
    xl_op *op = xl_b_begin(b, XL_OP_BROADCAST_IN_DIM, &x, 1, &t, 1, 0);
    xl_b_set_dims(b, op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions), dims);
    return xl_b_end1(b, op);
}

xl_value xl_b_fill(xl_b *b, xl_value scalar, xl_dims shape)
{
    return shape.n ? xl_b_broadcast(b, scalar, shape, (xl_dims){ NULL, 0 }) : scalar;
}

xl_value xl_b_reshape(xl_b *b, xl_value x, xl_dims shape)
{
    const xl_type *t = shaped(b, x, shape);
    if (!*b->err && t == xl_b_type(b, x))
        return x;
    return xl_b_end1(b, xl_b_begin(b, XL_OP_RESHAPE, &x, 1, &t, 1, 0));
}

static xl_value with_dims(xl_b *b, xl_opcode code, xl_value x, uint32_t slot, xl_dims d)
{
    xl_op *op = xl_b_begin(b, code, &x, 1, NULL, 1, 0);
    xl_b_set_dims(b, op, slot, d);
    return xl_b_end1(b, op);
}

xl_value xl_b_transpose(xl_b *b, xl_value x, xl_dims perm)
{
    return with_dims(b, XL_OP_TRANSPOSE, x, XL_SLOT(TRANSPOSE, permutation), perm);
}
xl_value xl_b_reverse(xl_b *b, xl_value x, xl_dims dims)
{
    return with_dims(b, XL_OP_REVERSE, x, XL_SLOT(REVERSE, dimensions), dims);
}

xl_value xl_b_slice(xl_b *b, xl_value x, xl_dims start, xl_dims limit, xl_dims strides)
{
    xl_op *op = xl_b_begin(b, XL_OP_SLICE, &x, 1, NULL, 1, 0);
    xl_b_set_dims(b, op, XL_SLOT(SLICE, start_indices), start);
    xl_b_set_dims(b, op, XL_SLOT(SLICE, limit_indices), limit);
    if (strides.n)
        xl_b_set_dims(b, op, XL_SLOT(SLICE, strides), strides);
    return xl_b_end1(b, op);
}

xl_value xl_b_concat(xl_b *b, const xl_value *x, uint32_t n, int64_t dim)
{
    xl_op *op = xl_b_begin(b, XL_OP_CONCATENATE, x, n, NULL, 1, 0);
    xl_b_set_int(b, op, XL_SLOT(CONCATENATE, dimension), dim);
    return xl_b_end1(b, op);
}

xl_value xl_b_pad(xl_b *b, xl_value x, xl_value value, xl_dims low, xl_dims high, xl_dims interior)
{
    xl_op *op = xl_b_begin(b, XL_OP_PAD, (xl_value[]){ x, value }, 2, NULL, 1, 0);
    if (op && !interior.n && low.n)
        interior = (xl_dims){ xl_new(&b->f->m->arena, int64_t, low.n), low.n };
    xl_b_set_dims(b, op, XL_SLOT(PAD, edge_padding_low), low);
    xl_b_set_dims(b, op, XL_SLOT(PAD, edge_padding_high), high);
    xl_b_set_dims(b, op, XL_SLOT(PAD, interior_padding), interior);
    return xl_b_end1(b, op);
}

static xl_op *with_starts(xl_b *b, xl_opcode code, const xl_value *first, uint32_t nfirst, const xl_value *start)
{
    uint32_t rank = xl_b_type(b, first[0])->rank;
    xl_value *in = xl_new(&b->f->m->arena, xl_value, (size_t)nfirst + rank);
    for (uint32_t i = 0; i < nfirst; i++)
        in[i] = first[i];
    for (uint32_t i = 0; i < rank; i++)
        in[nfirst + i] = start[i];
    return xl_b_begin(b, code, in, nfirst + rank, NULL, 1, 0);
}

xl_value xl_b_dynamic_slice(xl_b *b, xl_value x, const xl_value *start, xl_dims sizes)
{
    xl_op *op = *b->err ? NULL : with_starts(b, XL_OP_DYNAMIC_SLICE, &x, 1, start);
    xl_b_set_dims(b, op, XL_SLOT(DYNAMIC_SLICE, slice_sizes), sizes);
    return xl_b_end1(b, op);
}

xl_value xl_b_dynamic_update_slice(xl_b *b, xl_value x, xl_value update, const xl_value *start)
{
    return xl_b_end1(b,
                     *b->err ? NULL : with_starts(b, XL_OP_DYNAMIC_UPDATE_SLICE, (xl_value[]){ x, update }, 2, start));
}

/* ---- contractions and reductions -------------------------------------------------------------------------------- */
xl_value xl_b_dot_general(xl_b *b, xl_value x, xl_value y, const xl_b_dot_dims *d)
{
    xl_op *op = xl_b_begin(b, XL_OP_DOT_GENERAL, (xl_value[]){ x, y }, 2, NULL, 1, 0);
    xl_b_set_dims(b, op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions), d->lhs_batch);
    xl_b_set_dims(b, op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions), d->rhs_batch);
    xl_b_set_dims(b, op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions), d->lhs_contract);
    xl_b_set_dims(b, op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions), d->rhs_contract);
    if (op && d->precision != XL_PRECISION_DEFAULT) {
        const xl_attr *p = xl_attr_enum(b->f->m, XL_ENUM_PRECISION, d->precision);
        xl_b_set(b, op, XL_SLOT(DOT_GENERAL, precision_config),
                 xl_attr_array(b->f->m, (const xl_attr *const[]){ p, p }, 2));
    }
    if (op && d->dtype != XL_DT_NONE)                      /* inference keeps the element type that the result brings */
        b->f->val[op->out[0].id].type = xl_type_scalar(b->f->m, d->dtype);
    return xl_b_end1(b, op);
}

xl_value xl_b_matmul(xl_b *b, xl_value x, xl_value y)
{
    uint32_t xr = xl_b_type(b, x)->rank, yr = xl_b_type(b, y)->rank;
    if (!*b->err && (xr < 2 || xr != yr))
        fail(b, XL_ERR(INVALID, "matmul: operands must have one rank of at least 2, not %u and %u", xr, yr));
    if (*b->err)
        return XL_NO_VALUE;
    int64_t *batch = xl_new(&b->f->m->arena, int64_t, xr), lc = xr - 1, rc = xr - 2;
    for (uint32_t i = 0; i < xr; i++)
        batch[i] = i;
    xl_dims lead = { batch, xr - 2 };
    return xl_b_dot_general(b, x, y, &(xl_b_dot_dims){ lead, lead, { &lc, 1 }, { &rc, 1 }, XL_DT_NONE, 0 });
}

xl_value xl_b_reduce(xl_b *b, xl_value x, xl_value init, xl_dims dims, xl_opcode code)
{
    xl_op *op = xl_b_begin(b, XL_OP_REDUCE, (xl_value[]){ x, init }, 2, NULL, 1, 1);
    if (!op)
        return XL_NO_VALUE;
    const xl_type *s = xl_type_scalar(b->f->m, xl_b_type(b, x)->dtype);
    xl_b in = xl_b_region(b, op, 0);
    xl_value p = xl_b_arg(&in, s), q = xl_b_arg(&in, s), r = xl_b_binary(&in, code, p, q);
    xl_b_return(&in, &r, 1);
    xl_b_set_dims(b, op, XL_SLOT(REDUCE, dimensions), dims);
    return xl_b_end1(b, op);
}

xl_value xl_b_sum(xl_b *b, xl_value x, xl_dims dims)
{
    return xl_b_reduce(b, x, xl_b_scalar(b, xl_b_type(b, x)->dtype, 0), dims, XL_OP_ADD);
}
xl_value xl_b_max(xl_b *b, xl_value x, xl_dims dims)
{
    return xl_b_reduce(b, x, xl_b_scalar(b, xl_b_type(b, x)->dtype, -INFINITY), dims, XL_OP_MAXIMUM);
}

xl_value xl_b_gather(xl_b *b, xl_value x, xl_value index, const xl_b_gather_dims *d)
{
    xl_op *op = xl_b_begin(b, XL_OP_GATHER, (xl_value[]){ x, index }, 2, NULL, 1, 0);
    xl_b_set_dims(b, op, XL_SLOT(GATHER, offset_dims), d->offset);
    xl_b_set_dims(b, op, XL_SLOT(GATHER, collapsed_slice_dims), d->collapsed);
    xl_b_set_dims(b, op, XL_SLOT(GATHER, operand_batching_dims), d->operand_batch);
    xl_b_set_dims(b, op, XL_SLOT(GATHER, start_indices_batching_dims), d->index_batch);
    xl_b_set_dims(b, op, XL_SLOT(GATHER, start_index_map), d->map);
    xl_b_set_dims(b, op, XL_SLOT(GATHER, slice_sizes), d->sizes);
    xl_b_set_int(b, op, XL_SLOT(GATHER, index_vector_dim), d->vector_dim);
    return xl_b_end1(b, op);
}

xl_value xl_b_scatter(xl_b *b, xl_value x, xl_value index, xl_value update, const xl_b_scatter_dims *d, xl_opcode code)
{
    xl_op *op = xl_b_begin(b, XL_OP_SCATTER, (xl_value[]){ x, index, update }, 3, NULL, 1, 1);
    if (!op)
        return XL_NO_VALUE;
    const xl_type *s = xl_type_scalar(b->f->m, xl_b_type(b, x)->dtype);
    xl_b in = xl_b_region(b, op, 0);
    xl_value p = xl_b_arg(&in, s), q = xl_b_arg(&in, s), r = code == XL_OP_RETURN ? q : xl_b_binary(&in, code, p, q);
    xl_b_return(&in, &r, 1);
    xl_b_set_dims(b, op, XL_SLOT(SCATTER, update_window_dims), d->window);
    xl_b_set_dims(b, op, XL_SLOT(SCATTER, inserted_window_dims), d->inserted);
    xl_b_set_dims(b, op, XL_SLOT(SCATTER, input_batching_dims), d->input_batch);
    xl_b_set_dims(b, op, XL_SLOT(SCATTER, scatter_indices_batching_dims), d->index_batch);
    xl_b_set_dims(b, op, XL_SLOT(SCATTER, scatter_dims_to_operand_dims), d->map);
    xl_b_set_int(b, op, XL_SLOT(SCATTER, index_vector_dim), d->vector_dim);
    xl_b_set_int(b, op, XL_SLOT(SCATTER, indices_are_sorted), d->sorted);
    xl_b_set_int(b, op, XL_SLOT(SCATTER, unique_indices), d->unique);
    return xl_b_end1(b, op);
}

