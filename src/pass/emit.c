#include "pass/emit.h"

#include "ir/verify.h"

static xl_value ok(xl_emit *e, xl_value v)
{
    if (xl_b_failed(e))
        XL_BUG("%s", xl_error_message(*e->err));
    return v;
}

xl_op *xl_em_op(xl_emit *e, xl_opcode code, const xl_value *in, uint32_t nin, const xl_type *out)
{
    return xl_op_new(e->f, e->r, code, in, nin, &out, 1, 0, e->loc);
}

xl_value xl_em_done(xl_emit *e, xl_op *op)
{
    xl_op_normalize(e->f->m, op);
    xl_error *err = xl_verify_op(e->f, op);
    if (err)
        XL_BUG("%s", xl_error_message(err));
    return op->out[0];
}

xl_value xl_em_unary(xl_emit *e, xl_opcode code, xl_value a) { return ok(e, xl_b_unary(e, code, a)); }
xl_value xl_em_binary(xl_emit *e, xl_opcode code, xl_value a, xl_value b) { return ok(e, xl_b_binary(e, code, a, b)); }
xl_value xl_em_select(xl_emit *e, xl_value p, xl_value a, xl_value b) { return ok(e, xl_b_select(e, p, a, b)); }
xl_value xl_em_compare(xl_emit *e, int direction, xl_value a, xl_value b)
{
    return ok(e, xl_b_compare(e, direction, a, b));
}
xl_value xl_em_convert(xl_emit *e, xl_value a, xl_dtype d) { return ok(e, xl_b_convert(e, a, d)); }
xl_value xl_em_splat(xl_emit *e, const xl_type *t, double v) { return ok(e, xl_b_splat(e, t, v)); }
xl_value xl_em_dense(xl_emit *e, const xl_type *t, const void *data, size_t bytes)
{
    return ok(e, xl_b_const(e, t, data, bytes));
}
xl_value xl_em_scalar(xl_emit *e, xl_dtype d, double v) { return ok(e, xl_b_scalar(e, d, v)); }
xl_value xl_em_like(xl_emit *e, xl_value a, double v) { return xl_em_splat(e, xl_em_type(e, a), v); }
xl_value xl_em_iota(xl_emit *e, const xl_type *t, int64_t dim) { return ok(e, xl_b_iota(e, t, dim)); }

xl_value xl_em_reshape(xl_emit *e, xl_value a, xl_dims dims)
{
    return xl_type_tensor(e->f->m, xl_em_type(e, a)->dtype, dims) == xl_em_type(e, a) ? a
                                                                                      : ok(e, xl_b_reshape(e, a, dims));
}

static bool counts_up(xl_dims d)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] != (int64_t)i)
            return false;
    return true;
}

xl_value xl_em_transpose(xl_emit *e, xl_value a, xl_dims perm)
{
    return counts_up(perm) ? a : ok(e, xl_b_transpose(e, a, perm));
}

xl_value xl_em_broadcast(xl_emit *e, xl_value a, xl_dims dims, xl_dims at)
{
    const xl_type *t = xl_em_type(e, a);
    if (counts_up(at) && xl_type_tensor(e->f->m, t->dtype, dims) == t)
        return a;
    return ok(e, xl_b_broadcast(e, a, dims, at));
}

xl_value xl_em_spread(xl_emit *e, xl_value scalar, xl_dims dims)
{
    return xl_em_broadcast(e, scalar, dims, XL_NO_DIMS);
}

void xl_em_combiner(xl_emit *e, xl_region *r, xl_opcode code, xl_dtype d)
{
    const xl_type *t = xl_type_scalar(e->f->m, d);
    xl_emit in = xl_em_in(e, r);
    xl_value a = xl_b_arg(&in, t), b = xl_b_arg(&in, t), v = xl_em_binary(&in, code, a, b);
    xl_em_return(&in, &v, 1);
}

xl_value xl_em_reduce(xl_emit *e, xl_opcode code, xl_value a, double init, xl_dims over)
{
    if (!over.n)
        return a;
    const xl_type *t = xl_em_type(e, a);
    int64_t *sorted = xl_new(&e->f->m->arena, int64_t, over.n);
    uint32_t k = 0;
    for (uint32_t d = 0; d < t->rank; d++)
        for (size_t i = 0; i < over.n; i++)
            if (over.p[i] == d)
                sorted[k++] = d;
    return ok(e, xl_b_reduce(e, a, xl_em_scalar(e, t->dtype, init), (xl_dims){ sorted, k }, code));
}

xl_value xl_em_sum(xl_emit *e, xl_value a, xl_dims over) { return xl_em_reduce(e, XL_OP_ADD, a, 0, over); }

xl_value xl_em_slice(xl_emit *e, xl_value a, const int64_t *start, const int64_t *limit, const int64_t *stride)
{
    uint32_t n = xl_em_type(e, a)->rank;
    return ok(e, xl_b_slice(e, a, (xl_dims){ start, n }, (xl_dims){ limit, n }, (xl_dims){ stride, stride ? n : 0 }));
}

xl_value xl_em_pad(xl_emit *e, xl_value a, xl_value with, const int64_t *low, const int64_t *high,
                   const int64_t *interior)
{
    uint32_t n = xl_em_type(e, a)->rank;
    bool same = true;
    for (uint32_t i = 0; i < n; i++)
        same &= low[i] == 0 && high[i] == 0 && (!interior || interior[i] == 0);
    if (same)
        return a;
    return ok(e,
              xl_b_pad(e, a, with, (xl_dims){ low, n }, (xl_dims){ high, n }, (xl_dims){ interior, interior ? n : 0 }));
}

xl_value xl_em_concat(xl_emit *e, const xl_value *in, uint32_t n, int64_t dim)
{
    return ok(e, xl_b_concat(e, in, n, dim));
}
xl_value xl_em_reverse(xl_emit *e, xl_value a, xl_dims dims) { return ok(e, xl_b_reverse(e, a, dims)); }

xl_value xl_em_dynamic_slice(xl_emit *e, xl_value a, const xl_value *start, const int64_t *sizes)
{
    return ok(e, xl_b_dynamic_slice(e, a, start, (xl_dims){ sizes, xl_em_type(e, a)->rank }));
}

xl_value xl_em_dynamic_update(xl_emit *e, xl_value a, xl_value upd, const xl_value *start)
{
    return ok(e, xl_b_dynamic_update_slice(e, a, upd, start));
}

xl_value xl_em_dot(xl_emit *e, xl_value a, xl_value b, xl_dims abatch, xl_dims bbatch, xl_dims acontract,
                   xl_dims bcontract, xl_dtype out)
{
    return ok(e, xl_b_dot_general(e, a, b, &(xl_b_dot_dims){ abatch, bbatch, acontract, bcontract, out, 0 }));
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

static xl_dims row_dims(xl_emit *e, const xl_type *t)
{
    int64_t *d = xl_new(&e->f->m->arena, int64_t, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    d[0] = 1;
    return (xl_dims){ d, t->rank };
}

xl_value xl_em_row(xl_emit *e, xl_value a, xl_value i)
{
    const xl_type *t = xl_em_type(e, a);
    xl_value s = xl_em_dynamic_slice(e, a, row_starts(e, t, i), row_dims(e, t).p);
    return xl_em_reshape(e, s, (xl_dims){ t->dims + 1, t->rank - 1 });
}

xl_value xl_em_put_row(xl_emit *e, xl_value a, xl_value row, xl_value i)
{
    const xl_type *t = xl_em_type(e, a);
    return xl_em_dynamic_update(e, a, xl_em_reshape(e, row, row_dims(e, t)), row_starts(e, t, i));
}

void xl_em_return(xl_emit *e, const xl_value *v, uint32_t n)
{
    xl_b_return(e, v, n);
    ok(e, XL_NO_VALUE);
}

xl_region *xl_em_enter(xl_emit *e, xl_region *r)
{
    xl_region *was = e->r;
    e->r = r;
    return was;
}
