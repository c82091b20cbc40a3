/* Inference for control flow, calls, tuples, tokens and collectives. */
#include "ir/infer.h"

#define LL(x) ((long long)(x))

/* ---- branches and loops ----------------------------------------------------------------------------------------- */
static xl_error *branches(xl_infer_ctx *c)
{
    const xl_op *end;
    NEED(c->op->nregion > 0, "needs a branch");
    for (uint32_t r = 0; r < c->op->nregion; r++) {
        xl_error *err = xl_need_region(c, r, 0, &end);
        if (err)
            return err;
        NEED(end->nin == c->nout, "branch %u returns %u values, the op has %u results", r, end->nin, c->nout);
        for (uint32_t i = 0; i < c->nout; i++) {
            const xl_type *t = xl_in_type(c->f, end, i), *first = xl_in_type(c->f, xl_region_end(c->op->region[0]), i);
            NEED(xl_type_like(first, t), "branch %u returns %s as value %u, branch 0 %s", r, SHOW(t), i, SHOW(first));
            if (c->out[i])
                NEED(xl_type_like(t, c->out[i]), "branch %u returns %s, result %u is %s", r, SHOW(t), i, SHOW(c->out[i]));
        }
    }
    for (uint32_t i = 0; i < c->nout; i++)
        if (!c->out[i])
            c->out[i] = xl_in_type(c->f, end, i);
    return NULL;
}

RULE(if)
{
    NEED(xl_is_scalar(IN(0)) && IN(0)->dtype == XL_I1, "the predicate must be a scalar boolean, not %s", SHOW(IN(0)));
    return branches(c);
}

RULE(case)
{
    NEED(xl_is_scalar(IN(0)) && IN(0)->dtype == XL_I32, "the index must be a scalar i32, not %s", SHOW(IN(0)));
    return branches(c);
}

RULE(while)
{
    const xl_op *op = c->op, *cond, *body;
    NEED(c->nout == op->nin, "has %u operands and %u results", op->nin, c->nout);
    xl_error *err = xl_need_region(c, 0, op->nin, &cond);
    if (!err)
        err = xl_need_region(c, 1, op->nin, &body);
    if (err)
        return err;
    NEED(cond->nin == 1 && xl_is_scalar(xl_in_type(c->f, cond, 0)) && xl_in_type(c->f, cond, 0)->dtype == XL_I1, "the condition must return one scalar boolean");
    NEED(body->nin == op->nin, "the body returns %u values, expected %u", body->nin, op->nin);
    for (uint32_t i = 0; i < op->nin; i++) {
        for (uint32_t r = 0; r < 2; r++) {
            const xl_type *arg = xl_value_type(c->f, op->region[r]->arg[i]);
            NEED(xl_type_like(arg, IN(i)), "argument %u of the %s is %s, the operand %s", i, r ? "body" : "condition", SHOW(arg), SHOW(IN(i)));
        }
        NEED(xl_type_like(xl_in_type(c->f, body, i), IN(i)), "the body returns %s as value %u, the operand is %s", SHOW(xl_in_type(c->f, body, i)), i, SHOW(IN(i)));
        if (!c->out[i])
            c->out[i] = IN(i);
        NEED(xl_type_like(c->out[i], IN(i)), "result %u is %s, the operand %s", i, SHOW(c->out[i]), SHOW(IN(i)));
    }
    return NULL;
}

RULE(call)
{
    xl_str name = xl_op_str(c->op, XL_SLOT(CALL, callee));
    const xl_func *g = xl_module_func(c->m, name);
    NEED(g && g->type, "there is no function @%.*s", XL_FMT(name));
    uint32_t nres = g->type->nelem - g->type->nin;
    NEED(g->type->nin == c->op->nin, "@%.*s takes %u arguments, %u are given", XL_FMT(name), g->type->nin, c->op->nin);
    NEED(nres == c->nout, "@%.*s returns %u values, %u are taken", XL_FMT(name), nres, c->nout);
    for (uint32_t i = 0; i < c->op->nin; i++)
        NEED(xl_type_like(g->type->elem[i], IN(i)), "argument %u of @%.*s is %s, %s is given", i, XL_FMT(name), SHOW(g->type->elem[i]), SHOW(IN(i)));
    for (uint32_t i = 0; i < nres; i++)
        c->out[i] = g->type->elem[g->type->nin + i];
    return NULL;
}

RULE(composite)
{
    xl_str name = xl_op_str(c->op, XL_SLOT(COMPOSITE, name)), rest = name, head = xl_str_cut(&rest, '.');
    NEED(head.n && rest.n, "the name '%.*s' is not that of an op in a namespace", XL_FMT(name));
    return xl_need_given(c);
}

/* A layout lists the dimensions of its tensor, each once, from the fastest. */
static xl_error *need_layouts(xl_infer_ctx *c, const xl_attr *a, uint32_t n, bool in)
{
    NEED(!a || a->n == n, "has %u %s layouts for %u %s", a->n, in ? "operand" : "result", n, in ? "operands" : "results");
    for (uint32_t i = 0; a && i < n; i++) {
        const xl_type *t = in ? IN(i) : c->out[i];
        const xl_attr *l = a->item[i];
        if (l->kind != XL_AT_DENSE || l->type->rank != 1 || t->kind != XL_TY_TENSOR || t->unranked)
            continue;
        NEED(l->type->dims[0] == (int64_t)t->rank, "%s %u is %s, its layout has %lld dimensions", in ? "operand" : "result", i, SHOW(t), LL(l->type->dims[0]));
        uint64_t seen = 0;
        for (uint32_t k = 0; k < t->rank && t->rank <= 64; k++) {
            int64_t d = xl_dense_int(l, k);
            NEED(d >= 0 && d < (int64_t)t->rank && !(seen >> d & 1), "the layout of %s %u does not name each dimension once", in ? "operand" : "result", i);
            seen |= UINT64_C(1) << d;
        }
    }
    return NULL;
}

RULE(custom_call)
{
    const xl_attr *in = c->op->attr[XL_SLOT(CUSTOM_CALL, operand_layouts)], *out = c->op->attr[XL_SLOT(CUSTOM_CALL, result_layouts)];
    xl_error *err = xl_need_given(c);
    if (!err)
        err = need_layouts(c, in, c->op->nin, true);
    if (!err && !(c->nout == 1 && c->out[0]->kind == XL_TY_TUPLE)) /* a tuple has the layouts of its elements */
        err = need_layouts(c, out, c->nout, false);
    return err;
}

RULE(async_done)
{
    const xl_type *t = IN(0);
    NEED(t->kind == XL_TY_FUTURE, "the operand must be a future, not %s", SHOW(t));
    NEED(t->nelem == c->nout, "the future holds %u values, %u are taken", t->nelem, c->nout);
    for (uint32_t i = 0; i < c->nout; i++)
        c->out[i] = t->elem[i];
    return NULL;
}

/* ---- tuples and tokens ------------------------------------------------------------------------------------------ */
RULE(tuple)
{
    const xl_type **elem = xl_new(&c->m->arena, const xl_type *, c->op->nin);
    for (uint32_t i = 0; i < c->op->nin; i++)
        elem[i] = IN(i);
    c->out[0] = xl_type_tuple(c->m, elem, c->op->nin);
    return NULL;
}

RULE(get_tuple_element)
{
    const xl_type *t = IN(0);
    int64_t i = xl_op_int(c->op, XL_SLOT(GET_TUPLE_ELEMENT, index));
    NEED(t->kind == XL_TY_TUPLE, "the operand must be a tuple, not %s", SHOW(t));
    NEED(i >= 0 && i < (int64_t)t->nelem, "index is %lld, the tuple has %u elements", LL(i), t->nelem);
    c->out[0] = t->elem[i];
    return NULL;
}

RULE(token)
{
    for (uint32_t i = 0; i < c->op->nin; i++)
        NEED(IN(i)->kind == XL_TY_TOKEN, "operand %u must be a token, not %s", i, SHOW(IN(i)));
    c->out[0] = xl_type_token(c->m);
    return NULL;
}

/* ---- collectives ------------------------------------------------------------------------------------------------ */
/* How many devices make up a group, or 0 where that depends on the launch: no list, groups by mesh axes, or replicas times
 * partitions. */
static xl_error *group_size(xl_infer_ctx *c, uint32_t groups, int64_t channel, bool global, int64_t *out)
{
    const int64_t *ids;
    int64_t ngroup, size;
    const xl_attr *a = c->op->attr[groups];
    *out = 0;
    NEED(!a || a->kind != XL_AT_DENSE || (a->type->rank == 2 && xl_is_int(a->dtype)), "replica_groups must be a matrix of integers, not %s", SHOW(a->type));
    NEED(!global || channel > 0, "use_global_device_ids needs a channel");
    if (!xl_op_groups(c->op, groups, &ids, &ngroup, &size))
        return NULL;
    NEED(!global || ngroup > 0, "use_global_device_ids needs replica_groups");
    if (ngroup >= 0 && size >= 0 && ngroup <= 4096 && size <= 4096 && ngroup * size <= 4096 && (size_t)(ngroup * size) * 8 == a->data.n)
        for (int64_t i = 0; i < ngroup * size; i++) {
            NEED(ids[i] >= -1, "replica_groups has %lld", LL(ids[i]));
            for (int64_t k = 0; k < i && ids[i] >= 0; k++)
                NEED(ids[k] != ids[i], "replica_groups has %lld twice", LL(ids[i]));
        }
    *out = channel > 0 && !global ? 0 : size;
    return NULL;
}

static xl_error *scaled(xl_infer_ctx *c, const xl_type *t, const xl_type *given, int64_t dim, int64_t size, bool up, const xl_type **out)
{
    if (size == 0) {                                       /* known only at launch: what the op says must be a multiple */
        NEED(given, "the result does not follow from the operands: its type must be given");
        NEED(given->kind == XL_TY_TENSOR && given->rank == t->rank && (given->dtype == t->dtype || t->quant), "the operand is %s, the result %s", SHOW(t), SHOW(given));
        for (uint32_t i = 0; i < t->rank; i++) {
            int64_t small = up ? t->dims[i] : given->dims[i], big = up ? given->dims[i] : t->dims[i];
            if (i != (uint64_t)dim)
                NEED(xl_dim_like(small, big), "the operand is %s, the result %s: they may differ only in dim %lld", SHOW(t), SHOW(given), LL(dim));
            else
                NEED(small < 0 || big < 0 || (small == 0 ? big == 0 : big % small == 0), "the operand is %s, the result %s: dim %lld is no multiple", SHOW(t), SHOW(given), LL(dim));
        }
        *out = given;
        return NULL;
    }
    int64_t *d = xl_new(&c->m->arena, int64_t, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    xl_wide n = (xl_wide)d[dim] * size;
    if (d[dim] >= 0) {
        NEED(up ? xl_fits(n) : d[dim] % size == 0, "dim %lld has %lld elements, a group %lld devices", LL(dim), LL(d[dim]), LL(size));
        d[dim] = up ? (int64_t)n : d[dim] / size;
    }
    *out = xl_type_tensor(c->m, t->dtype, (xl_dims){ d, t->rank });
    if (given && given->quant && xl_shape_like(given, *out))
        *out = given;
    return NULL;
}

RULE(all_gather)
{
    const xl_op *op = c->op;
    int64_t size, dim = xl_op_int(op, XL_SLOT(ALL_GATHER, all_gather_dim));
    xl_error *err = xl_need_tensors(c);
    NEED(op->nin == c->nout, "has %u operands and %u results", op->nin, c->nout);
    if (!err)
        err = group_size(c, XL_SLOT(ALL_GATHER, replica_groups), xl_op_int(op, XL_SLOT(ALL_GATHER, channel_id)), xl_op_int(op, XL_SLOT(ALL_GATHER, use_global_device_ids)) != 0, &size);
    for (uint32_t i = 0; i < op->nin && !err; i++) {
        NEED(dim >= 0 && dim < (int64_t)IN(i)->rank, "all_gather_dim is %lld, operand %u is %s", LL(dim), i, SHOW(IN(i)));
        err = scaled(c, IN(i), c->out[i], dim, size, true, &c->out[i]);
    }
    return err;
}

/* The computation of a collective: two scalars to one. Its element type is the result's. */
static xl_error *need_computation(xl_infer_ctx *c, const xl_type *t, xl_dtype *d)
{
    const xl_op *end;
    xl_error *err = xl_need_region(c, 0, 2, &end);
    if (err)
        return err;
    const xl_type *r = end->nin == 1 ? xl_in_type(c->f, end, 0) : NULL;
    NEED(r && xl_is_scalar(r) && (xl_promotable(t->dtype, r->dtype) || t->quant), "the computation must return one scalar %s", xl_dtypes[t->dtype].text);
    for (uint32_t i = 0; i < 2; i++) {
        const xl_type *arg = xl_value_type(c->f, c->op->region[0]->arg[i]);
        NEED(xl_is_scalar(arg) && (arg->dtype == r->dtype || t->quant), "argument %u of the computation is %s, expected a scalar %s", i, SHOW(arg), xl_dtypes[r->dtype].text);
    }
    *d = r->dtype;
    return NULL;
}

RULE(all_reduce)
{
    const xl_op *op = c->op;
    int64_t size;
    xl_dtype d;
    xl_error *err = xl_need_tensors(c);
    NEED(op->nin > 0 && op->nin == c->nout, "has %u operands and %u results", op->nin, c->nout);
    if (!err)
        err = group_size(c, XL_SLOT(ALL_REDUCE, replica_groups), xl_op_int(op, XL_SLOT(ALL_REDUCE, channel_id)), xl_op_int(op, XL_SLOT(ALL_REDUCE, use_global_device_ids)) != 0, &size);
    if (!err)
        err = need_computation(c, IN(0), &d);
    for (uint32_t i = 0; i < op->nin && !err; i++)
        if (!(IN(i)->quant && c->out[i]))
            c->out[i] = xl_type_with_dtype(c->m, IN(i), IN(i)->dtype == IN(0)->dtype ? d : IN(i)->dtype);
    return err;
}

RULE(reduce_scatter)
{
    const xl_op *op = c->op;
    int64_t size, dim = xl_op_int(op, XL_SLOT(REDUCE_SCATTER, scatter_dimension));
    xl_dtype d;
    xl_error *err = xl_need_tensors(c);
    if (!err)
        err = group_size(c, XL_SLOT(REDUCE_SCATTER, replica_groups), xl_op_int(op, XL_SLOT(REDUCE_SCATTER, channel_id)),
                         xl_op_int(op, XL_SLOT(REDUCE_SCATTER, use_global_device_ids)) != 0, &size);
    if (!err)
        err = need_computation(c, IN(0), &d);
    if (err)
        return err;
    NEED(dim >= 0 && dim < (int64_t)IN(0)->rank, "scatter_dimension is %lld, the operand is %s", LL(dim), SHOW(IN(0)));
    return scaled(c, xl_type_with_dtype(c->m, IN(0), d), c->out[0], dim, size, false, &c->out[0]);
}

RULE(all_to_all)
{
    const xl_op *op = c->op;
    int64_t size, split = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_dimension)), concat = xl_op_int(op, XL_SLOT(ALL_TO_ALL, concat_dimension)),
            count = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_count));
    xl_error *err = xl_need_tensors(c);
    NEED(op->nin == c->nout, "has %u operands and %u results", op->nin, c->nout);
    if (!err)
        err = group_size(c, XL_SLOT(ALL_TO_ALL, replica_groups), 0, false, &size);
    if (err)
        return err;
    NEED(count > 0, "split_count is %lld, expected a positive number", LL(count));
    NEED(size == 0 || size == count, "split_count is %lld, but a group has %lld devices", LL(count), LL(size));
    for (uint32_t i = 0; i < op->nin && !err; i++) {
        const xl_type *t = IN(i), *cut;
        NEED(split >= 0 && split < (int64_t)t->rank, "split_dimension is %lld, operand %u is %s", LL(split), i, SHOW(t));
        NEED(concat >= 0 && concat < (int64_t)t->rank, "concat_dimension is %lld, operand %u is %s", LL(concat), i, SHOW(t));
        err = scaled(c, t, NULL, split, count, false, &cut);
        if (!err)
            err = scaled(c, cut, c->out[i], concat, count, true, &c->out[i]);
    }
    return err;
}
