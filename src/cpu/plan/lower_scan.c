/* chlo.scan as the loop that it means: a round takes a slice of each input and what is carried, and gives a slice of
 * each output and what is carried on. A frontend sends it as a composite that has the body as its region, beside a
 * decomposition that JAX makes forwards only, whatever is_reverse says: so the region is what counts. */
#include "cpu/plan/lower.h"

#include "cpu/plan/plan.h"
#include "ir/build.h"

typedef struct {
    const xl_op *op;
    const xl_attr *dimension, *reverse, *operands, *results, *size;
    uint32_t nin, ncarry, nout;                            /* inputs, carried values, outputs */
    int64_t dim, n;                                        /* the scanned dimension, and how many rounds */
} scan;

static void attributes(scan *s)
{
    const xl_op *op = s->op;
    if (op->code == XL_OP_CHLO_SCAN) {
        s->dimension = XL_ATTR(op, CHLO_SCAN, dimension);
        s->reverse = XL_ATTR(op, CHLO_SCAN, is_reverse);
        s->operands = XL_ATTR(op, CHLO_SCAN, operandSegmentSizes);
        s->results = XL_ATTR(op, CHLO_SCAN, resultSegmentSizes);
        s->size = XL_ATTR(op, CHLO_SCAN, scan_dim_size);
        return;
    }
    const xl_attr *d = XL_ATTR(op, COMPOSITE, composite_attributes);
    d = d && d->kind == XL_AT_DICT ? d : NULL;
    s->dimension = xl_dict_get(d, XL_STR("dimension"));
    s->reverse = xl_dict_get(d, XL_STR("is_reverse"));
    s->operands = xl_dict_get(d, XL_STR("operandSegmentSizes"));
    s->results = xl_dict_get(d, XL_STR("resultSegmentSizes"));
    s->size = xl_dict_get(d, XL_STR("scan_dim_size"));
}

static bool two_groups(const xl_attr *a, uint32_t total, uint32_t *first, uint32_t *second)
{
    if (!a || a->kind != XL_AT_INTS || a->n != 2 || a->ints[0] < 0 || a->ints[1] < 0 ||
        a->ints[0] + a->ints[1] != total)
        return false;
    *first = (uint32_t)a->ints[0];
    *second = (uint32_t)a->ints[1];
    return true;
}

/* The type of one slice of t, or NULL if t has not n of them along the scanned dimension. */
static const xl_type *slice_type(xl_func *f, const scan *s, const xl_type *t)
{
    if (!xl_type_static(t) || t->quant || t->rank > XL_RANK_MAX || s->dim >= t->rank || t->dims[s->dim] != s->n)
        return NULL;
    int64_t d[XL_RANK_MAX];
    for (uint32_t i = 0, k = 0; i < t->rank; i++)
        if (i != s->dim)
            d[k++] = t->dims[i];
    return xl_type_tensor(f->m, t->dtype, (xl_dims){ d, t->rank - 1 });
}

static bool understood(xl_func *f, scan *s)
{
    const xl_op *op = s->op, *end = op->nregion == 1 ? xl_region_end(op->region[0]) : NULL;
    uint32_t carried;
    attributes(s);
    if (!end || op->region[0]->narg != op->nin || end->nin != op->nout || !s->dimension ||
        s->dimension->kind != XL_AT_INT || s->dimension->i < 0 ||
        !two_groups(s->operands, op->nin, &s->nin, &s->ncarry) ||
        !two_groups(s->results, op->nout, &s->nout, &carried) || carried != s->ncarry)
        return false;
    s->dim = s->dimension->i;
    const xl_type *first = s->nin ? xl_in_type(f, op, 0) : NULL;
    if (first && (!xl_type_static(first) || s->dim >= first->rank))
        return false;
    if (!first && (!s->size || s->size->kind != XL_AT_INT || s->size->i < 0))
        return false;
    s->n = first ? first->dims[s->dim] : s->size->i;
    for (uint32_t i = 0; i < s->nin; i++)
        if (slice_type(f, s, xl_in_type(f, op, i)) != xl_value_type(f, op->region[0]->arg[i]))
            return false;
    for (uint32_t i = 0; i < s->nout; i++)
        if (slice_type(f, s, xl_out_type(f, op, i)) != xl_in_type(f, end, i))
            return false;
    for (uint32_t i = 0; i < s->ncarry; i++) {
        const xl_type *t = xl_in_type(f, op, s->nin + i);
        if (!xl_type_static(t) || t != xl_value_type(f, op->region[0]->arg[s->nin + i]) ||
            t != xl_in_type(f, end, s->nout + i) || t != xl_out_type(f, op, s->nout + i))
            return false;
    }
    return true;
}

/* One round, in the loop's body b: its arguments are the count, what is carried, the outputs so far. */
static void one_round(xl_b *b, const scan *s, const xl_value *arg)
{
    xl_func *f = b->f;
    const xl_region *body = s->op->region[0];
    uint32_t nloop = 1 + s->ncarry + s->nout;
    xl_value zero = xl_b_scalar(b, XL_I64, 0), one = xl_b_scalar(b, XL_I64, 1), at[XL_RANK_MAX], i = arg[0];
    if (s->reverse && s->reverse->i)
        i = xl_b_binary(b, XL_OP_SUBTRACT, xl_b_scalar(b, XL_I64, (double)(s->n - 1)), i);
    for (uint32_t k = 0; k < XL_RANK_MAX; k++)
        at[k] = k == s->dim ? i : zero;
    xl_value *map = xl_new(&f->m->arena, xl_value, f->nval), *next = xl_new(&f->m->arena, xl_value, nloop),
             *ret = xl_new(&f->m->arena, xl_value, s->op->nout);
    for (uint32_t k = 0, n = f->nval; k < n; k++)
        map[k] = (xl_value){ k };
    for (uint32_t k = 0; k < s->nin; k++) {
        const xl_type *t = xl_in_type(f, s->op, k);
        int64_t sizes[XL_RANK_MAX];
        for (uint32_t d = 0; d < t->rank; d++)
            sizes[d] = d == s->dim ? 1 : t->dims[d];
        xl_value piece = xl_b_dynamic_slice(b, s->op->in[k], at, (xl_dims){ sizes, t->rank });
        map[body->arg[k].id] = xl_b_reshape(b, piece, xl_type_dims(xl_value_type(f, body->arg[k])));
    }
    for (uint32_t k = 0; k < s->ncarry; k++)
        map[body->arg[s->nin + k].id] = arg[1 + k];
    if (xl_b_failed(b))
        return;
    xl_region_clone_into(f, b->r, f, body, map, ret, s->op->nout);
    next[0] = xl_b_binary(b, XL_OP_ADD, arg[0], one);
    for (uint32_t k = 0; k < s->ncarry; k++)
        next[1 + k] = ret[s->nout + k];
    for (uint32_t k = 0; k < s->nout; k++) {
        const xl_type *t = xl_out_type(f, s->op, k);
        int64_t sizes[XL_RANK_MAX];
        for (uint32_t d = 0; d < t->rank; d++)
            sizes[d] = d == s->dim ? 1 : t->dims[d];
        xl_value piece = xl_b_reshape(b, ret[k], (xl_dims){ sizes, t->rank });
        next[1 + s->ncarry + k] = xl_b_dynamic_update_slice(b, arg[1 + s->ncarry + k], piece, at);
    }
    xl_b_return(b, next, nloop);
}

xl_error *xl_lower_scan(xl_func *f, xl_region *to, const xl_op *op, xl_value *out, bool *done)
{
    scan s = { .op = op };
    *done = understood(f, &s);
    if (!*done)
        return NULL;
    xl_b b = xl_b_at(f, to);
    b.loc = op->loc;
    uint32_t nloop = 1 + s.ncarry + s.nout;
    xl_value *init = xl_new(&f->m->arena, xl_value, nloop), *arg = xl_new(&f->m->arena, xl_value, nloop);
    init[0] = xl_b_scalar(&b, XL_I64, 0);
    for (uint32_t i = 0; i < s.ncarry; i++)
        init[1 + i] = op->in[s.nin + i];
    for (uint32_t i = 0; i < s.nout; i++)
        init[1 + s.ncarry + i] = xl_b_splat(&b, xl_out_type(f, op, i), 0);
    xl_value *last = init;
    if (s.n > 0) {
        const xl_type **types = xl_new(&f->m->arena, const xl_type *, nloop);
        for (uint32_t i = 0; i < nloop; i++)
            types[i] = xl_b_type(&b, init[i]);
        xl_op *loop = xl_b_begin(&b, XL_OP_WHILE, init, nloop, types, nloop, 2);
        if (!loop)
            return xl_b_error(&b);
        xl_b cond = xl_b_region(&b, loop, 0), body = xl_b_region(&b, loop, 1);
        for (uint32_t i = 0; i < nloop; i++)
            arg[i] = xl_b_arg(&cond, types[i]);
        xl_value more =
            xl_b_compare(&cond, XL_COMPARISON_DIRECTION_LT, arg[0], xl_b_scalar(&cond, XL_I64, (double)s.n));
        xl_b_return(&cond, &more, 1);
        for (uint32_t i = 0; i < nloop; i++)
            arg[i] = xl_b_arg(&body, types[i]);
        one_round(&body, &s, arg);
        xl_b_end(&b, loop);
        last = loop->out;
    }
    for (uint32_t i = 0; i < s.nout; i++)
        out[i] = last[1 + s.ncarry + i];
    for (uint32_t i = 0; i < s.ncarry; i++)
        out[s.nout + i] = last[1 + i];
    return xl_b_error(&b);
}
