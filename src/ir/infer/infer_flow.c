/* Inference for control flow, calls, tuples, tokens and collectives. */
#include "ir/infer/infer.h"

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
                NEED(xl_type_like(t, c->out[i]), "branch %u returns %s, result %u is %s", r, SHOW(t), i,
                     SHOW(c->out[i]));
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
    NEED(cond->nin == 1 && xl_is_scalar(xl_in_type(c->f, cond, 0)) && xl_in_type(c->f, cond, 0)->dtype == XL_I1,
         "the condition must return one scalar boolean");
    NEED(body->nin == op->nin, "the body returns %u values, expected %u", body->nin, op->nin);
    for (uint32_t i = 0; i < op->nin; i++) {
        for (uint32_t r = 0; r < 2; r++) {
            const xl_type *arg = xl_value_type(c->f, op->region[r]->arg[i]);
            NEED(xl_type_like(arg, IN(i)), "argument %u of the %s is %s, the operand %s", i, r ? "body" : "condition",
                 SHOW(arg), SHOW(IN(i)));
        }
        NEED(xl_type_like(xl_in_type(c->f, body, i), IN(i)), "the body returns %s as value %u, the operand is %s",
             SHOW(xl_in_type(c->f, body, i)), i, SHOW(IN(i)));
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
        NEED(xl_type_like(g->type->elem[i], IN(i)), "argument %u of @%.*s is %s, %s is given", i, XL_FMT(name),
             SHOW(g->type->elem[i]), SHOW(IN(i)));
    for (uint32_t i = 0; i < nres; i++)
        c->out[i] = g->type->elem[g->type->nin + i];
    return NULL;
}

/* A letter, then letters, digits, _, $ and dots with something on both sides, at least one. */
static bool namespaced(xl_str name)
{
    uint32_t dots = 0;
    for (size_t i = 0; i < name.n; i++) {
        char ch = name.p[i];
        bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        if (ch == '.' ? i == 0 || i + 1 == name.n || name.p[i - 1] == '.'
                      : !letter && (i == 0 || !((ch >= '0' && ch <= '9') || ch == '_' || ch == '$')))
            return false;
        dots += ch == '.';
    }
    return dots > 0;
}

RULE(composite)
{
    xl_str name = xl_op_str(c->op, XL_SLOT(COMPOSITE, name));
    NEED(namespaced(name), "the name '%.*s' is not that of an op in a namespace", XL_FMT(name));
    return xl_need_given(c);
}

/* A layout lists the dimensions of its tensor, each once, from the fastest. */
static xl_error *need_layouts(xl_infer_ctx *c, const xl_attr *a, uint32_t n, bool in)
{
    NEED(!a || a->n == n, "has %u %s layouts for %u %s", a->n, in ? "operand" : "result", n,
         in ? "operands" : "results");
    for (uint32_t i = 0; a && i < n; i++) {
        const xl_type *t = in ? IN(i) : c->out[i];
        const xl_attr *l = a->item[i];
        NEED(t->kind != XL_TY_TUPLE, "%s %u is a tuple, which has no layout", in ? "operand" : "result", i);
        NEED(t->kind == XL_TY_TENSOR || l->kind != XL_AT_DENSE || l->type->rank != 1 || l->type->dims[0] == 0,
             "%s %u is a %s and has a layout", in ? "operand" : "result", i, SHOW(t));
        if (l->kind != XL_AT_DENSE || l->type->rank != 1 || t->kind != XL_TY_TENSOR || t->unranked)
            continue;
        NEED(l->type->dims[0] == (int64_t)t->rank, "%s %u is %s, its layout has %lld dimensions",
             in ? "operand" : "result", i, SHOW(t), LL(l->type->dims[0]));
        uint64_t seen = 0;
        for (uint32_t k = 0; k < t->rank && t->rank <= 64; k++) {
            int64_t d = xl_dense_int(l, k);
            NEED(d >= 0 && d < (int64_t)t->rank && !(seen >> d & 1),
                 "the layout of %s %u does not name each dimension once", in ? "operand" : "result", i);
            seen |= UINT64_C(1) << d;
        }
    }
    return NULL;
}

/* The part of t at the end of a path of tuple indices; NULL where the path leaves it. */
static const xl_type *part_of(const xl_type *t, const xl_attr *path)
{
    for (uint32_t i = 0; path && path->kind == XL_AT_INTS && i < path->n; i++) {
        if (t->kind != XL_TY_TUPLE || path->ints[i] < 0 || path->ints[i] >= (int64_t)t->nelem)
            return NULL;
        t = t->elem[path->ints[i]];
    }
    return t;
}

static xl_error *need_aliases(xl_infer_ctx *c, const xl_attr *list)
{
    for (uint32_t i = 0; list && i < list->n; i++) {
        const xl_attr *a = list->item[i], *index = xl_dict_get(a, XL_STR("operand_index"));
        NEED(a->kind == XL_AT_STRUCT && index && index->kind == XL_AT_INT, "alias %u has no operand_index", i);
        NEED(index->i >= 0 && index->i < (int64_t)c->op->nin, "alias %u is of operand %lld, there are %u", i,
             LL(index->i), c->op->nin);
        const xl_attr *from = xl_dict_get(a, XL_STR("operand_tuple_indices")),
                      *to = xl_dict_get(a, XL_STR("output_tuple_indices"));
        const xl_type *operand = part_of(IN((uint32_t)index->i), from), *result;
        if (c->nout == 1) {
            result = part_of(c->out[0], to);
        } else {                                           /* several results are numbered as a tuple's elements are */
            bool there = to && to->kind == XL_AT_INTS && to->n && to->ints[0] >= 0 && to->ints[0] < (int64_t)c->nout;
            result = there ? c->out[to->ints[0]] : NULL;
            for (uint32_t k = 1; there && result && k < to->n; k++)
                result = result->kind == XL_TY_TUPLE && to->ints[k] >= 0 && to->ints[k] < (int64_t)result->nelem
                             ? result->elem[to->ints[k]]
                             : NULL;
        }
        NEED(operand, "alias %u: operand_tuple_indices lead out of operand %lld", i, LL(index->i));
        NEED(result, "alias %u: output_tuple_indices lead out of the result", i);
        NEED(xl_type_like(operand, result), "alias %u is of %s and %s", i, SHOW(operand), SHOW(result));
    }
    return NULL;
}

RULE(custom_call)
{
    const xl_attr *in = c->op->attr[XL_SLOT(CUSTOM_CALL, operand_layouts)],
                  *out = c->op->attr[XL_SLOT(CUSTOM_CALL, result_layouts)];
    xl_error *err = xl_need_given(c);
    if (!err)
        err = need_layouts(c, in, c->op->nin, true);
    if (!err && !(c->nout == 1 && c->out[0]->kind == XL_TY_TUPLE)) /* a tuple has the layouts of its elements */
        err = need_layouts(c, out, c->nout, false);
    if (!err)
        err = need_aliases(c, c->op->attr[XL_SLOT(CUSTOM_CALL, output_operand_aliases)]);
    if (err)
        return err;
    NEED(!in == !out || (!in && c->op->nin == 0) || (!out && c->nout == 0), "has layouts of its %s only",
         in ? "operands" : "results");
    const xl_attr *config = c->op->attr[XL_SLOT(CUSTOM_CALL, backend_config)];
    bool typed = xl_op_int(c->op, XL_SLOT(CUSTOM_CALL, api_version)) == 4;
    NEED(!config || config->kind == (typed ? XL_AT_DICT : XL_AT_STR),
         "backend_config must be a %s for api_version %lld", typed ? "dictionary" : "string",
         LL(xl_op_int(c->op, XL_SLOT(CUSTOM_CALL, api_version))));
    return NULL;
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
/* How many devices make up a group, or 0 where that depends on the launch: no list, groups by mesh axes, or replicas
 * times partitions. */
static xl_error *group_size(xl_infer_ctx *c, uint32_t groups, int64_t channel, bool global, bool padded, int64_t *out)
{
    const int64_t *ids;
    int64_t ngroup, size, have = 0, most = -1;
    const xl_attr *a = c->op->attr[groups];
    *out = 0;
    NEED(!a || a->kind != XL_AT_DENSE || (a->type->rank == 2 && xl_is_int(a->dtype)),
         "replica_groups must be a matrix of integers, not %s", SHOW(a->type));
    NEED(!global || channel > 0, "use_global_device_ids needs a channel");
    const xl_attr *mesh = a && a->kind == XL_AT_STRUCT ? xl_dict_get(a, XL_STR("mesh")) : NULL;
    NEED(!mesh || mesh->kind != XL_AT_SYM || xl_module_mesh(c->m, mesh->str) || xl_module_func(c->m, mesh->str),
         "replica_groups: there is no mesh @%.*s", XL_FMT(mesh->str));
    if (!xl_op_groups(c->op, groups, &ids, &ngroup, &size))
        return NULL;
    NEED(!global || ngroup > 0, "use_global_device_ids needs replica_groups");
    if (ngroup >= 0 && size >= 0 && ngroup <= 4096 && size <= 4096 && ngroup * size <= 4096 &&
        (size_t)(ngroup * size) * 8 == a->data.n)
        for (int64_t i = 0; i < ngroup * size; i++) {
            NEED(ids[i] >= (padded ? -1 : 0), "replica_groups has %lld", LL(ids[i]));
            for (int64_t k = 0; k < i && ids[i] >= 0; k++)
                NEED(ids[k] != ids[i], "replica_groups has %lld twice", LL(ids[i]));
            have += ids[i] >= 0;
            most = ids[i] > most ? ids[i] : most;
        }
    NEED(most < have, "replica_groups goes up to %lld and names only %lld devices", LL(most), LL(have));
    *out = channel > 0 && !global ? 0 : size;
    return NULL;
}

static xl_error *scaled(xl_infer_ctx *c, const xl_type *t, const xl_type *given, int64_t dim, int64_t size, bool up,
                        const xl_type **out)
{
    if (size == 0) { /* known only at launch: what the op says must be a multiple */
        NEED(given, "the result does not follow from the operands: its type must be given");
        NEED(given->kind == XL_TY_TENSOR && given->rank == t->rank && (given->dtype == t->dtype || t->quant),
             "the operand is %s, the result %s", SHOW(t), SHOW(given));
        for (uint32_t i = 0; i < t->rank; i++) {
            int64_t small = up ? t->dims[i] : given->dims[i], big = up ? given->dims[i] : t->dims[i];
            if (i != (uint64_t)dim)
                NEED(xl_dim_like(small, big), "the operand is %s, the result %s: they may differ only in dim %lld",
                     SHOW(t), SHOW(given), LL(dim));
            else
                NEED(small < 0 || big < 0 || (small == 0 ? big == 0 : big % small == 0),
                     "the operand is %s, the result %s: dim %lld is no multiple", SHOW(t), SHOW(given), LL(dim));
        }
        *out = given;
        return NULL;
    }
    int64_t *d = xl_new(&c->m->arena, int64_t, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    xl_wide n = (xl_wide)d[dim] * size;
    if (d[dim] >= 0) {
        NEED(up ? xl_fits(n) : d[dim] % size == 0, "dim %lld has %lld elements, a group %lld devices", LL(dim),
             LL(d[dim]), LL(size));
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
        err = group_size(c, XL_SLOT(ALL_GATHER, replica_groups), xl_op_int(op, XL_SLOT(ALL_GATHER, channel_id)),
                         xl_op_int(op, XL_SLOT(ALL_GATHER, use_global_device_ids)) != 0, false, &size);
    for (uint32_t i = 0; i < op->nin && !err; i++) {
        NEED(dim >= 0 && dim < (int64_t)IN(i)->rank, "all_gather_dim is %lld, operand %u is %s", LL(dim), i,
             SHOW(IN(i)));
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
    NEED(r && xl_is_scalar(r) && (xl_promotable(t->dtype, r->dtype) || t->quant),
         "the computation must return one scalar %s", xl_dtypes[t->dtype].text);
    for (uint32_t i = 0; i < 2; i++) {
        const xl_type *arg = xl_value_type(c->f, c->op->region[0]->arg[i]);
        NEED(xl_is_scalar(arg) && (arg->dtype == r->dtype || t->quant),
             "argument %u of the computation is %s, expected a scalar %s", i, SHOW(arg), xl_dtypes[r->dtype].text);
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
        err = group_size(c, XL_SLOT(ALL_REDUCE, replica_groups), xl_op_int(op, XL_SLOT(ALL_REDUCE, channel_id)),
                         xl_op_int(op, XL_SLOT(ALL_REDUCE, use_global_device_ids)) != 0, true, &size);
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
                         xl_op_int(op, XL_SLOT(REDUCE_SCATTER, use_global_device_ids)) != 0, false, &size);
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
    int64_t size, split = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_dimension)),
                  concat = xl_op_int(op, XL_SLOT(ALL_TO_ALL, concat_dimension)),
                  count = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_count));
    xl_error *err = xl_need_tensors(c);
    NEED(op->nin == c->nout, "has %u operands and %u results", op->nin, c->nout);
    if (!err)
        err = group_size(c, XL_SLOT(ALL_TO_ALL, replica_groups), 0, false, false, &size);
    if (err)
        return err;
    NEED(count > 0, "split_count is %lld, expected a positive number", LL(count));
    NEED(size == 0 || size == count, "split_count is %lld, but a group has %lld devices", LL(count), LL(size));
    for (uint32_t i = 0; i < op->nin && !err; i++) {
        const xl_type *t = IN(i), *cut;
        NEED(split >= 0 && split < (int64_t)t->rank, "split_dimension is %lld, operand %u is %s", LL(split), i,
             SHOW(t));
        NEED(concat >= 0 && concat < (int64_t)t->rank, "concat_dimension is %lld, operand %u is %s", LL(concat), i,
             SHOW(t));
        err = scaled(c, t, NULL, split, count, false, &cut);
        if (!err)
            err = scaled(c, cut, c->out[i], concat, count, true, &c->out[i]);
    }
    return err;
}

RULE(collective_permute)
{
    xl_dims p = xl_op_dims(c->op, XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs));
    for (size_t i = 0; i < p.n; i++) {
        NEED(p.p[i] >= 0, "source_target_pairs has %lld", LL(p.p[i]));
        for (size_t k = i % 2; k < i; k += 2)
            NEED(p.p[k] != p.p[i], "%s %lld occurs twice in source_target_pairs", i % 2 ? "target" : "source",
                 LL(p.p[i]));
    }
    return xl_infer_identity(c);
}

/* Data, and with has_dynamic_root a last operand that tells for each who sends or receives. */
static xl_error *rooted(xl_infer_ctx *c, bool dynamic)
{
    uint32_t n = c->op->nin - (dynamic && c->op->nin ? 1 : 0);
    NEED(n > 0, "needs an operand%s", dynamic ? " beside the root" : "");
    NEED(n == c->nout, "has %u operands%s and %u results", n, dynamic ? " beside the root" : "", c->nout);
    for (uint32_t i = 0; i < n; i++)
        c->out[i] = IN(i);
    if (dynamic) {
        const xl_type *root = IN(n);
        NEED(root->kind == XL_TY_TENSOR && !root->unranked && root->rank == 1 && root->dtype == XL_I32 &&
                 xl_dim_like(root->dims[0], n),
             "the root is %s, expected %u elements of i32: one for each operand", SHOW(root), n);
    }
    return NULL;
}

RULE(collective_broadcast)
{
    return rooted(c, xl_op_int(c->op, XL_SLOT(COLLECTIVE_BROADCAST, has_dynamic_root)) != 0);
}

RULE(collective_reduce)
{
    const xl_op *op = c->op;
    int64_t size;
    xl_dtype d;
    xl_error *err = rooted(c, xl_op_int(op, XL_SLOT(COLLECTIVE_REDUCE, has_dynamic_root)) != 0);
    if (!err)
        err = xl_need_tensors(c);
    if (!err)
        err = group_size(c, XL_SLOT(COLLECTIVE_REDUCE, replica_groups),
                         xl_op_int(op, XL_SLOT(COLLECTIVE_REDUCE, channel_id)),
                         xl_op_int(op, XL_SLOT(COLLECTIVE_REDUCE, use_global_device_ids)) != 0, true, &size);
    if (!err)
        err = need_computation(c, IN(0), &d);
    for (uint32_t i = 0; i < c->nout && !err; i++)
        if (!IN(i)->quant)
            c->out[i] = xl_type_with_dtype(c->m, IN(i), IN(i)->dtype == IN(0)->dtype ? d : IN(i)->dtype);
    return err;
}

/* ---- hosts, channels, what runs beside ------------------------------------------------------------------------- */
/* Results of infeed and recv: tensors, then a token. */
static xl_error *tensors_and_token(xl_infer_ctx *c)
{
    xl_error *err = xl_need_given(c);
    if (err)
        return err;
    NEED(IN(0)->kind == XL_TY_TOKEN, "the operand must be a token, not %s", SHOW(IN(0)));
    NEED(c->nout > 0, "has no results, expected a token at least");
    for (uint32_t i = 0; i + 1 < c->nout; i++)
        NEED(c->out[i]->kind == XL_TY_TENSOR || c->out[i]->kind == XL_TY_TUPLE, "result %u must be a tensor, not a %s",
             i, SHOW(c->out[i]));
    NEED(c->out[c->nout - 1]->kind == XL_TY_TOKEN, "the last result must be a token, not %s",
         SHOW(c->out[c->nout - 1]));
    return NULL;
}

RULE(infeed)
{
    const xl_attr *layout = c->op->attr[XL_SLOT(INFEED, layout)];
    xl_error *err = tensors_and_token(c);
    if (err)
        return err;
    NEED(!layout || layout->n == c->nout - 1,
         "layout has %u entries, expected %u: one for each result before the token", layout->n, c->nout - 1);
    for (uint32_t i = 0; layout && i < layout->n; i++) {
        const xl_attr *l = layout->item[i];
        NEED(l->kind == XL_AT_ARRAY || l->kind == XL_AT_INTS, "layout %u must be a list", i);
        for (uint32_t k = 0; l->kind == XL_AT_ARRAY && k < l->n; k++)
            NEED(l->item[k]->kind == XL_AT_INT, "layout %u must hold integers", i);
    }
    return NULL;
}

static xl_error *token_at_end(xl_infer_ctx *c)
{
    uint32_t n = c->op->nin;
    NEED(n > 0 && IN(n - 1)->kind == XL_TY_TOKEN, "the last operand must be a token");
    for (uint32_t i = 0; i + 1 < n; i++)
        NEED(IN(i)->kind == XL_TY_TENSOR || IN(i)->kind == XL_TY_TUPLE, "operand %u must be a tensor, not a %s", i,
             SHOW(IN(i)));
    c->out[0] = xl_type_token(c->m);
    return NULL;
}

RULE(outfeed) { return token_at_end(c); }

enum { DEVICE_TO_DEVICE = 1, DEVICE_TO_HOST = 2, HOST_TO_DEVICE = 3 };

RULE(send)
{
    bool host = xl_op_int(c->op, XL_SLOT(SEND, is_host_transfer)) != 0;
    int64_t type = xl_op_int(c->op, XL_SLOT(SEND, channel_type));
    NEED(type == (host ? DEVICE_TO_HOST : DEVICE_TO_DEVICE), "channel_type is %lld, expected %d %s a host transfer",
         LL(type), host ? DEVICE_TO_HOST : DEVICE_TO_DEVICE, host ? "for" : "without");
    return token_at_end(c);
}

RULE(recv)
{
    bool host = xl_op_int(c->op, XL_SLOT(RECV, is_host_transfer)) != 0;
    int64_t type = xl_op_int(c->op, XL_SLOT(RECV, channel_type));
    NEED(type == (host ? HOST_TO_DEVICE : DEVICE_TO_DEVICE), "channel_type is %lld, expected %d %s a host transfer",
         LL(type), host ? HOST_TO_DEVICE : DEVICE_TO_DEVICE, host ? "for" : "without");
    return tensors_and_token(c);
}

RULE(async_start)
{
    const xl_op *end;
    xl_error *err = xl_need_region(c, 0, c->op->nin, &end);
    if (err)
        return err;
    const xl_region *r = c->op->region[0];
    for (uint32_t i = 0; i < r->narg; i++)
        NEED(xl_type_like(xl_value_type(c->f, r->arg[i]), IN(i)), "argument %u of the region is %s, the operand %s", i,
             SHOW(xl_value_type(c->f, r->arg[i])), SHOW(IN(i)));
    NEED(r->nop == 2, "the region has %u ops, expected one and a return", r->nop);
    xl_opcode in = (xl_opcode)r->op[0]->code;
    NEED((xl_ops[in].flags & XL_OP_COLLECTIVE) || in == XL_OP_SLICE || in == XL_OP_DYNAMIC_SLICE ||
             in == XL_OP_DYNAMIC_UPDATE_SLICE,
         "%s cannot run beside other ops: only collectives and slices can", xl_op_text(r->op[0]));
    const xl_type **elem = xl_new(&c->m->arena, const xl_type *, end->nin);
    for (uint32_t i = 0; i < end->nin; i++)
        elem[i] = xl_in_type(c->f, end, i);
    xl_type t = { .kind = XL_TY_FUTURE, .nelem = end->nin, .elem = elem };
    c->out[0] = xl_type_intern(c->m, &t);
    return NULL;
}
