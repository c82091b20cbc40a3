#include "cpu/plan/lower.h"

#include "cpu/plan/planner.h"
#include "ir/verify.h"
#include "pass/calls.h"
#include "pass/pass.h"

enum { DEPTH_MAX = 128, OPS_MAX = 1 << 23 };

typedef struct {
    xl_func *f;
    xl_value *now;                                         /* what a replaced value is now; XL_NO_VALUE: itself */
    uint32_t cap;
    uint64_t total;
    bool keep_manual;
} lower;

static void replace(lower *l, xl_value old, xl_value new)
{
    if (old.id >= l->cap) {
        uint32_t cap = l->f->nval + l->f->nval / 2 + 64;
        xl_value *now = xl_new(&l->f->m->arena, xl_value, cap);
        if (l->cap)
            memcpy(now, l->now, l->cap * sizeof *now);
        for (uint32_t i = l->cap; i < cap; i++)
            now[i] = XL_NO_VALUE;
        l->now = now;
        l->cap = cap;
    }
    l->now[old.id] = new;
}

static xl_value resolve(const lower *l, xl_value v)
{
    while (v.id < l->cap && l->now[v.id].id != XL_NO_VALUE.id)
        v = l->now[v.id];
    return v;
}

/* A composite ("chlo.erf") or a custom call ("mhlo.erf": how XLA writes what StableHLO lacks) whose name is that of an
 * op which computes the same from the same operands. NULL if it is none, or if its types are not those of that op. */
static xl_op *by_name(lower *l, const xl_op *op)
{
    bool composite = op->code == XL_OP_COMPOSITE;
    xl_str name =
        composite ? xl_op_str(op, XL_SLOT(COMPOSITE, name)) : xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name));
    const xl_attr *attributes =
        composite ? XL_ATTR(op, COMPOSITE, composite_attributes) : xl_dict_get(op->extra, XL_STR("mhlo.attributes"));
    if (!composite && xl_str_is(name, "mhlo.topk"))
        name = XL_STR("chlo.top_k");
    else if (!composite && xl_str_starts(name, XL_STR("mhlo.")))
        name = xl_strf(&l->f->m->arena, "chlo.%.*s", (int)name.n - 5, name.p + 5);
    if (!xl_str_starts(name, XL_STR("chlo.")))
        return NULL;
    xl_opcode code = xl_opcode_find(name);
    bool plain = code != XL_OP_UNKNOWN && (xl_ops[code].flags & XL_OP_ELEMWISE) && xl_op_nattr(code) == 0;
    if (!plain && code != XL_OP_CHLO_TOP_K)
        return NULL;
    if (op->nregion || (xl_ops[code].nin >= 0 && (uint32_t)xl_ops[code].nin != op->nin) ||
        (uint32_t)xl_ops[code].nout != op->nout)
        return NULL;
    const xl_attr *k = NULL;
    if (code == XL_OP_CHLO_TOP_K) {
        const xl_attr *largest;
        if (attributes && attributes->kind != XL_AT_DICT)
            return NULL;
        k = xl_dict_get(attributes, XL_STR("k"));
        largest = xl_dict_get(attributes, XL_STR("largest"));
        if (!k || k->kind != XL_AT_INT || (largest && largest->i == 0))
            return NULL;
    }
    const xl_type *out[2] = { xl_out_type(l->f, op, 0), op->nout > 1 ? xl_out_type(l->f, op, 1) : NULL };
    xl_op *c = xl_op_new(l->f, NULL, code, op->in, op->nin, out, op->nout, 0, op->loc);
    if (k)
        xl_op_set(c, XL_SLOT(CHLO_TOP_K, k), k);
    xl_error *bad = xl_verify_op(l->f, c);                 /* what stands in a name was not verified with the program */
    xl_error_free(bad);
    if (bad)
        return NULL;
    for (uint32_t i = 0; i < op->nout; i++)
        replace(l, op->out[i], c->out[i]);
    return c;
}

static xl_error *flatten(lower *l, xl_region *r, uint32_t depth);

/* The ops of `from` (a region of this function) take the place of op; its arguments are op's operands. */
static xl_error *splice(lower *l, xl_region *to, const xl_op *op, xl_region *from, uint32_t depth)
{
    if (from->narg != op->nin)
        return XL_ERR(INVALID, "%s: its region takes %u values, not %u", xl_op_text(op), from->narg, op->nin);
    for (uint32_t i = 0; i < op->nin; i++)
        replace(l, from->arg[i], op->in[i]);
    xl_error *err = flatten(l, from, depth + 1);
    if (err)
        return err;
    for (uint32_t i = 0; i < from->nop; i++) {
        xl_op *in = from->op[i];
        if (in->code == XL_OP_RETURN) {
            for (uint32_t k = 0; k < op->nout && k < in->nin; k++)
                replace(l, op->out[k], in->in[k]);
            break;
        }
        xl_region_append(l->f, to, in);
    }
    return NULL;
}

/* tmp's ops, and in them every call inlined, go to r; op's results are `out`. */
static xl_error *take(lower *l, xl_region *r, const xl_op *op, xl_region *tmp, const xl_value *out, uint32_t depth)
{
    xl_error *err = flatten(l, tmp, depth + 1);
    if (err)
        return err;
    for (uint32_t i = 0; i < tmp->nop; i++)
        xl_region_append(l->f, r, tmp->op[i]);
    for (uint32_t i = 0; i < op->nout; i++)
        replace(l, op->out[i], resolve(l, out[i]));
    return NULL;
}

static xl_error *call(lower *l, xl_region *r, const xl_op *op, xl_str name, uint32_t depth)
{
    xl_func *f = l->f, *g = xl_module_func(f->m, name);
    if (!g || !g->body)
        return XL_ERR(INVALID, "%s: the program has no function @%.*s", xl_op_text(op), XL_FMT(name));
    xl_op *ret = xl_region_end(g->body);
    if (g->body->narg != op->nin || !ret || ret->nin != op->nout)
        return XL_ERR(INVALID, "%s: @%.*s takes or gives another number of values", xl_op_text(op), XL_FMT(name));
    xl_value *map = xl_new(&f->m->arena, xl_value, g->nval), *out = xl_new(&f->m->arena, xl_value, op->nout);
    for (uint32_t i = 0; i < op->nin; i++)
        map[g->body->arg[i].id] = op->in[i];
    xl_region *tmp = xl_region_new(f, NULL);
    xl_region_clone_into(f, tmp, g, g->body, map, out, op->nout);
    xl_region_called_from(f->m, tmp, 0, op->loc);
    return take(l, r, op, tmp, out, depth);
}

static xl_error *scan(lower *l, xl_region *r, const xl_op *op, bool *done, uint32_t depth)
{
    xl_value *out = xl_new(&l->f->m->arena, xl_value, op->nout);
    xl_region *tmp = xl_region_new(l->f, NULL);
    xl_error *err = xl_lower_scan(l->f, tmp, op, out, done);
    return err || !*done ? err : take(l, r, op, tmp, out, depth);
}

static xl_error *composite(lower *l, xl_region *r, const xl_op *op, uint32_t depth)
{
    xl_op *known = by_name(l, op);
    bool done = false;
    if (known) {
        xl_region_append(l->f, r, known);
        return NULL;
    }
    if (op->nregion && xl_str_is(xl_op_str(op, XL_SLOT(COMPOSITE, name)), "chlo.scan")) {
        xl_error *err = scan(l, r, op, &done, depth);
        if (err || done)
            return err;
    }
    return call(l, r, op, xl_op_str(op, XL_SLOT(COMPOSITE, decomposition)), depth);
}

/* A custom call that gives one tuple, as StableHLO made of HLO has it, gives its elements; the tuple is put together
 * beside it. */
static xl_op *untupled(lower *l, xl_region *to, const xl_op *op)
{
    xl_func *f = l->f;
    const xl_type *t = op->nout == 1 ? xl_out_type(f, op, 0) : NULL;
    if (!t || t->kind != XL_TY_TUPLE)
        return NULL;
    xl_op *parts = xl_op_new(f, to, XL_OP_CUSTOM_CALL, op->in, op->nin, t->elem, t->nelem, 0, op->loc);
    for (uint32_t i = 0; i < xl_op_nattr(XL_OP_CUSTOM_CALL); i++)
        xl_op_set(parts, i, op->attr[i]);
    parts->extra = op->extra;
    xl_op *whole = xl_op_new(f, NULL, XL_OP_TUPLE, parts->out, parts->nout, &t, 1, 0, op->loc);
    replace(l, op->out[0], whole->out[0]);
    return whole;
}

/* A constant 0 (not -0), perhaps in another shape. */
static bool is_zero(const xl_func *f, xl_value v)
{
    const xl_op *def = f->val[v.id].def;
    while (def && (def->code == XL_OP_RESHAPE || def->code == XL_OP_BROADCAST_IN_DIM)) {
        v = def->in[0];
        def = f->val[v.id].def;
    }
    const xl_attr *a = xl_value_const(f, v);
    return xl_attr_is_splat(a) && memcmp(a->data.p, (char[16]){ 0 }, a->data.n) == 0;
}

/* A reduction of dimensions of one element is its op, once, between the initial value and the operand; of a sum from 0
 * the operand itself, as XLA has it: -0 stays -0. */
static xl_op *reduce_nothing(lower *l, xl_region *to, const xl_op *op)
{
    xl_func *f = l->f;
    xl_dims dims = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    const xl_type *in = op->nin == 2 ? xl_in_type(f, op, 0) : NULL, *out = op->nout == 1 ? xl_out_type(f, op, 0) : NULL;
    xl_opcode single = in && out ? xl_region_single(f, op->region[0]) : XL_OP_UNKNOWN;
    if (single == XL_OP_UNKNOWN || !(xl_ops[single].flags & XL_OP_COMMUTES) || in->dtype != out->dtype ||
        !xl_type_static(in) || in->quant || xl_in_type(f, op, 1)->dtype != out->dtype)
        return NULL;
    for (size_t i = 0; i < dims.n; i++)
        if (dims.p[i] < 0 || dims.p[i] >= in->rank || in->dims[dims.p[i]] != 1)
            return NULL;
    if (single == XL_OP_ADD && is_zero(f, op->in[1])) {
        xl_op *same = xl_op_new(f, NULL, XL_OP_RESHAPE, &op->in[0], 1, &out, 1, 0, op->loc);
        replace(l, op->out[0], same->out[0]);
        return same;
    }
    xl_value v[2] = { xl_op_new(f, to, XL_OP_RESHAPE, &op->in[0], 1, &out, 1, 0, op->loc)->out[0], { 0 } };
    xl_op *spread = xl_op_new(f, to, XL_OP_BROADCAST_IN_DIM, &op->in[1], 1, &out, 1, 0, op->loc);
    xl_op_set(spread, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions), xl_attr_dims(f->m, (xl_dims){ NULL, 0 }));
    v[1] = spread->out[0];
    xl_op *c = xl_op_new(f, NULL, single, v, 2, &out, 1, 0, op->loc);
    replace(l, op->out[0], c->out[0]);
    return c;
}

/* A window of one element that moves by one and is never outside: a sum from 0 is the operand itself. */
static xl_op *window_of_one(lower *l, const xl_op *op)
{
    xl_func *f = l->f;
    const xl_type *in = op->nin == 2 ? xl_in_type(f, op, 0) : NULL, *out = op->nout == 1 ? xl_out_type(f, op, 0) : NULL;
    if (!in || !out || in->dtype != out->dtype || !xl_type_static(in) || in->quant ||
        xl_in_type(f, op, 1)->dtype != out->dtype || xl_region_single(f, op->region[0]) != XL_OP_ADD)
        return NULL;
    xl_dims size = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dimensions)),
            step = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_strides)),
            base = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, base_dilations)),
            pad = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, padding));
    for (uint32_t k = 0; k < in->rank; k++)
        if (xl_dims_at(size, k, 1) != 1 || xl_dims_at(step, k, 1) != 1 || xl_dims_at(base, k, 1) != 1 ||
            xl_dims_at(pad, 2 * k, 0) || xl_dims_at(pad, 2 * k + 1, 0))
            return NULL;
    if (!is_zero(f, op->in[1]))
        return NULL;
    xl_op *same = xl_op_new(f, NULL, XL_OP_RESHAPE, &op->in[0], 1, &out, 1, 0, op->loc);
    replace(l, op->out[0], same->out[0]);
    return same;
}

static bool among(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}
/* A matrix product over one element is a product: nothing is added to 0, and -0 stays -0, as XLA has it. */
static xl_op *product_of_one(lower *l, xl_region *to, const xl_op *op)
{
    xl_func *f = l->f;
    const xl_type *in[2] = { xl_in_type(f, op, 0), xl_in_type(f, op, 1) }, *out = xl_out_type(f, op, 0);
    xl_dims over[2] = { xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)),
                        xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions)) },
            batch[2] = { xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)),
                         xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions)) };
    xl_value v[2];
    for (int i = 0; i < 2; i++) {
        if (in[i]->kind != XL_TY_TENSOR || in[i]->dtype != out->dtype || !xl_type_static(in[i]) || in[i]->quant ||
            out->quant || xl_dtype_class(out->dtype) != XL_CLASS_FLOAT || !over[i].n)
            return NULL;
        for (size_t k = 0; k < over[i].n; k++)
            if (over[i].p[k] < 0 || over[i].p[k] >= in[i]->rank || in[i]->dims[over[i].p[k]] != 1)
                return NULL;
    }
    int64_t next = (int64_t)batch[0].n;                    /* the result's: batch, left's own, right's own */
    for (int i = 0; i < 2; i++) {
        int64_t dims[XL_RANK_MAX], at[XL_RANK_MAX];
        size_t n = 0;
        for (int64_t d = 0; d < in[i]->rank; d++) {
            if (among(over[i], d))
                continue;
            at[n] = -1;
            for (size_t k = 0; k < batch[i].n; k++)
                if (batch[i].p[k] == d)
                    at[n] = (int64_t)k;
            if (at[n] < 0)
                at[n] = next++;
            dims[n++] = in[i]->dims[d];
        }
        const xl_type *t = xl_type_tensor(f->m, out->dtype, (xl_dims){ dims, n });
        xl_value flat = xl_op_new(f, to, XL_OP_RESHAPE, &op->in[i], 1, &t, 1, 0, op->loc)->out[0];
        xl_op *spread = xl_op_new(f, to, XL_OP_BROADCAST_IN_DIM, &flat, 1, &out, 1, 0, op->loc);
        xl_op_set(spread, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions), xl_attr_dims(f->m, (xl_dims){ at, n }));
        v[i] = spread->out[0];
    }
    xl_op *c = xl_op_new(f, NULL, XL_OP_MULTIPLY, v, 2, &out, 1, 0, op->loc);
    replace(l, op->out[0], c->out[0]);
    return c;
}

/* A product of f32 is computed in f64 and rounded at its end: the error of a product is that of its factors' number,
 * whatever their order, and no sum of levels makes it less. */
static xl_op *wide_product(lower *l, xl_region *to, const xl_op *op)
{
    xl_func *f = l->f;
    const xl_type *in = op->nin == 2 ? xl_in_type(f, op, 0) : NULL, *out = op->nout == 1 ? xl_out_type(f, op, 0) : NULL;
    if (!in || !out || in->dtype != XL_F32 || in->quant || out->dtype != XL_F32 || !xl_type_static(in) ||
        xl_in_type(f, op, 1)->dtype != XL_F32 || xl_region_single(f, op->region[0]) != XL_OP_MULTIPLY)
        return NULL;
    xl_value v[2], arg[2];
    for (int i = 0; i < 2; i++) {
        const xl_type *t = xl_type_with_dtype(f->m, xl_in_type(f, op, (uint32_t)i), XL_F64);
        v[i] = xl_op_new(f, to, XL_OP_CONVERT, &op->in[i], 1, &t, 1, 0, op->loc)->out[0];
    }
    const xl_type *wide = xl_type_with_dtype(f->m, out, XL_F64), *one = xl_type_tensor(f->m, XL_F64, (xl_dims){ 0 });
    xl_op *c = xl_op_new(f, to, XL_OP_REDUCE, v, 2, &wide, 1, 1, op->loc);
    for (uint32_t i = 0; i < xl_op_nattr(XL_OP_REDUCE); i++)
        xl_op_set(c, i, op->attr[i]);
    xl_region *body = c->region[0];
    for (int i = 0; i < 2; i++)
        arg[i] = xl_region_add_arg(f, body, one, op->loc);
    xl_value y = xl_op_new(f, body, XL_OP_MULTIPLY, arg, 2, &one, 1, 0, op->loc)->out[0];
    xl_op_new(f, body, XL_OP_RETURN, &y, 1, NULL, 0, 0, op->loc);
    xl_op *back = xl_op_new(f, NULL, XL_OP_CONVERT, c->out, 1, &out, 1, 0, op->loc);
    replace(l, op->out[0], back->out[0]);
    return back;
}

/* Broadcasts and transposes that only add or move dimensions of one element are reshapes, which cost nothing. */
static xl_op *moves_nothing(lower *l, const xl_op *op)
{
    const xl_type *in = xl_in_type(l->f, op, 0), *out = xl_out_type(l->f, op, 0);
    bool turn = op->code == XL_OP_TRANSPOSE;
    xl_dims d = turn ? xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation))
                     : xl_op_dims(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions));
    int64_t a, b, last = -1;
    if (in->dtype != out->dtype || in->quant || !xl_type_count(in, &a) || !xl_type_count(out, &b) || a != b ||
        d.n != in->rank || op->extra)
        return NULL;
    for (size_t i = 0; i < d.n; i++) {
        if (d.p[i] < 0 || d.p[i] >= (turn ? in : out)->rank)
            return NULL;
        if ((turn ? out : in)->dims[i] == 1)
            continue;
        if (d.p[i] <= last)
            return NULL;
        last = d.p[i];
    }
    xl_op *c = xl_op_new(l->f, NULL, XL_OP_RESHAPE, op->in, 1, &out, 1, 0, op->loc);
    replace(l, op->out[0], c->out[0]);
    return c;
}

/* A dynamic slice along dimensions in which a broadcast repeats itself is that broadcast, smaller, wherever
 * it begins. */
static xl_op *slice_of_same(lower *l, const xl_op *op)
{
    const xl_op *b = l->f->val[op->in[0].id].def;
    if (!b || b->code != XL_OP_BROADCAST_IN_DIM)
        return NULL;
    const xl_type *x = xl_in_type(l->f, b, 0), *in = xl_in_type(l->f, op, 0), *out = xl_out_type(l->f, op, 0);
    xl_dims d = xl_op_dims(b, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions));
    if (!xl_type_static(x) || !xl_type_static(in) || !xl_type_static(out) || d.n != x->rank || in->rank != out->rank)
        return NULL;
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] < 0 || d.p[i] >= in->rank || (x->dims[i] != 1 && out->dims[d.p[i]] != in->dims[d.p[i]]))
            return NULL;
    xl_op *c = xl_op_new(l->f, NULL, XL_OP_BROADCAST_IN_DIM, b->in, 1, &out, 1, 0, op->loc);
    xl_op_set(c, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions), xl_attr_dims(l->f->m, d));
    replace(l, op->out[0], c->out[0]);
    return c;
}

/* Single elements gathered from a broadcast that repeats itself wherever indices choose: what is broadcast, in the
 * places of the batching dimensions. */
static xl_op *gather_of_same(lower *l, xl_region *to, const xl_op *op, const xl_op *b)
{
    xl_func *f = l->f;
    const xl_type *x = xl_in_type(f, b, 0), *ids = xl_in_type(f, op, 1), *out = xl_out_type(f, op, 0);
    xl_dims d = xl_op_dims(b, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions)),
            batch = xl_op_dims(op, XL_SLOT(GATHER, operand_batching_dims)),
            in_ids = xl_op_dims(op, XL_SLOT(GATHER, start_indices_batching_dims));
    int64_t vector = xl_op_int(op, XL_SLOT(GATHER, index_vector_dim)), dims[XL_RANK_MAX], at[XL_RANK_MAX], last = -1;
    size_t n = 0;
    if (!xl_type_static(x) || d.n != x->rank || batch.n != in_ids.n || vector > ids->rank)
        return NULL;
    for (size_t i = 0; i < d.n; i++) {
        size_t k = 0;
        if (x->dims[i] == 1)
            continue;
        while (k < batch.n && batch.p[k] != d.p[i])
            k++;
        if (k == batch.n || in_ids.p[k] == vector)
            return NULL;
        at[n] = in_ids.p[k] - (in_ids.p[k] > vector);
        if (at[n] <= last)
            return NULL;
        last = at[n];
        dims[n++] = x->dims[i];
    }
    const xl_type *t = xl_type_tensor(f->m, x->dtype, (xl_dims){ dims, n });
    xl_value v = xl_op_new(f, to, XL_OP_RESHAPE, b->in, 1, &t, 1, 0, op->loc)->out[0];
    xl_op *c = xl_op_new(f, NULL, XL_OP_BROADCAST_IN_DIM, &v, 1, &out, 1, 0, op->loc);
    xl_op_set(c, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions), xl_attr_dims(f->m, (xl_dims){ at, n }));
    return c;
}

/* Few single elements gathered from an elementwise op's result are that op of the elements gathered from its operands:
 * a loss that picks the label's log-probability does not need the others. NULL: not so, or not worth it. */
static xl_op *gather_first(lower *l, xl_region *to, const xl_op *op, int depth)
{
    enum { FEWER = 16, DEEP = 4, OPERANDS = 3 };
    xl_func *f = l->f;
    const xl_op *from = f->val[op->in[0].id].def;
    const xl_type *in = xl_in_type(f, op, 0), *out = xl_out_type(f, op, 0);
    int64_t many, few;
    if (!from || from->extra || in->quant || !xl_type_static(in) || !xl_type_count(in, &many) ||
        !xl_type_static(xl_in_type(f, op, 1)) || !xl_type_count(out, &few) || few * FEWER > many ||
        xl_op_dims(op, XL_SLOT(GATHER, offset_dims)).n)
        return NULL;
    if (from->code == XL_OP_BROADCAST_IN_DIM)
        return gather_of_same(l, to, op, from);
    if (!(xl_ops[from->code].flags & XL_OP_ELEMWISE) || from->nin == 0 || from->nin > OPERANDS || from->nout != 1 ||
        from->nregion || depth == DEEP)
        return NULL;
    for (uint32_t i = 0; i < from->nin; i++) {
        const xl_type *t = xl_in_type(f, from, i);
        bool same = t->rank == in->rank && !t->quant && t->kind == in->kind;
        for (uint32_t k = 0; same && k < t->rank; k++)
            same = t->dims[k] == in->dims[k];
        if (!same)
            return NULL;
    }
    xl_value v[OPERANDS];
    for (uint32_t i = 0; i < from->nin; i++) {
        const xl_type *t = xl_type_with_dtype(f->m, out, xl_in_type(f, from, i)->dtype);
        xl_value operand[2] = { from->in[i], op->in[1] };
        xl_op *g = xl_op_new(f, NULL, XL_OP_GATHER, operand, 2, &t, 1, 0, op->loc), *known;
        for (uint32_t k = 0; k < xl_op_nattr(XL_OP_GATHER); k++)
            xl_op_set(g, k, op->attr[k]);
        known = gather_first(l, to, g, depth + 1);
        xl_region_append(f, to, known ? known : g);
        v[i] = (known ? known : g)->out[0];
    }
    xl_op *c = xl_op_new(f, NULL, from->code, v, from->nin, &out, 1, 0, op->loc);
    for (uint32_t k = 0; k < xl_op_nattr(from->code); k++)
        xl_op_set(c, k, from->attr[k]);
    return c;
}

static xl_op *gather_less(lower *l, xl_region *to, const xl_op *op)
{
    xl_op *c = gather_first(l, to, op, 0);
    if (c)
        replace(l, op->out[0], c->out[0]);
    return c;
}

/* An op that says the same as this one for less; what it needs before it is appended to r. NULL: none. */
static xl_op *better(lower *l, xl_region *r, const xl_op *op)
{
    xl_op *known;
    switch (op->code) {
    case XL_OP_CUSTOM_CALL: return (known = by_name(l, op)) ? known : untupled(l, r, op);
    case XL_OP_REDUCE:
        if (l->keep_manual)                                /* the partitioner has rules for the op as it is */
            return NULL;
        return (known = reduce_nothing(l, r, op)) ? known : wide_product(l, r, op);
    case XL_OP_REDUCE_WINDOW: return l->keep_manual ? NULL : window_of_one(l, op);
    case XL_OP_DOT_GENERAL: return l->keep_manual ? NULL : product_of_one(l, r, op);
    case XL_OP_BROADCAST_IN_DIM: case XL_OP_TRANSPOSE: return l->keep_manual ? NULL : moves_nothing(l, op);
    case XL_OP_DYNAMIC_SLICE: return l->keep_manual ? NULL : slice_of_same(l, op);
    case XL_OP_GATHER: return l->keep_manual ? NULL : gather_less(l, r, op);
    default: return NULL;
    }
}

/* What a loop hands from round to round unchanged is read where it lies; its place in the loop is then nobody's, and
 * swept away. */
static void invariants(lower *l, const xl_op *op)
{
    xl_op *end = op->nregion == 2 ? xl_region_end(op->region[1]) : NULL;
    if (!end || end->nin != op->nin || op->nout != op->nin || op->region[0]->narg != op->nin ||
        op->region[1]->narg != op->nin)
        return;
    for (uint32_t i = 0; i < op->nin; i++)
        if (end->in[i].id == op->region[1]->arg[i].id) {
            replace(l, op->region[0]->arg[i], op->in[i]);
            replace(l, op->region[1]->arg[i], op->in[i]);
            replace(l, op->out[i], op->in[i]);
        }
}

static xl_error *flatten(lower *l, xl_region *r, uint32_t depth)
{
    if (depth > DEPTH_MAX)
        return XL_ERR(UNIMPLEMENTED, "calls are nested more than %d deep: recursion is not supported", DEPTH_MAX);
    xl_op **old = r->op;
    uint32_t n = r->nop;
    xl_error *err;
    r->op = NULL;
    r->nop = r->capop = 0;
    for (uint32_t i = 0; i < n; i++) {
        xl_op *op = old[i], *known;
        bool done;
        if (++l->total > OPS_MAX)
            return XL_ERR(EXHAUSTED, "the program has more than %d ops once its calls are inlined", OPS_MAX);
        for (uint32_t k = 0; k < op->nin; k++)
            op->in[k] = resolve(l, op->in[k]);
        if (op->code == XL_OP_CUSTOM_CALL) {
            err = xl_lower_async(l->f, op, &known, &done);
            if (err)
                return err;
            if (done || known)
                replace(l, op->out[0], done ? op->in[0] : known->out[0]);
            if (done)
                continue;
            op = known ? known : op;
        }
        switch (op->code) {
        case XL_OP_CALL: err = call(l, r, op, xl_op_str(op, XL_SLOT(CALL, callee)), depth); break;
        case XL_OP_COMPOSITE: err = composite(l, r, op, depth); break;
        case XL_OP_CHLO_SCAN:
            err = scan(l, r, op, &done, depth);
            if (!err && !done)
                err = XL_ERR(INVALID,
                             "chlo.scan: its body, operands and results do not fit together: give slices along "
                             "dimension %lld, then what is carried",
                             (long long)xl_op_int(op, XL_SLOT(CHLO_SCAN, dimension)));
            break;
        case XL_OP_ASYNC_START:                            /* it is done when it is started */
            if (!xl_region_end(op->region[0]) || xl_region_end(op->region[0])->nin != 1) {
                err = XL_ERR(UNIMPLEMENTED, "stablehlo.async_start: a region of several results is not supported: "
                                            "start one collective at a time");
                break;
            }
            err = splice(l, r, op, op->region[0], depth);
            break;
        case XL_OP_ASYNC_DONE:
            if (op->nout != 1) {
                err = XL_ERR(UNIMPLEMENTED,
                             "stablehlo.async_done: several results are not supported: start one collective at a time");
                break;
            }
            replace(l, op->out[0], op->in[0]);
            err = NULL;
            break;
        case XL_OP_SDY_NAMED: err = splice(l, r, op, op->region[0], depth); break;
        case XL_OP_SDY_MANUAL:
            if (!l->keep_manual) {
                err = splice(l, r, op, op->region[0], depth);
                break;
            }
            /* fall through */
        default:
            err = NULL;
            known = better(l, r, op);
            if (known)
                op = known;
            if (op->code == XL_OP_WHILE && !l->keep_manual) /* the partitioner knows what is carried */
                invariants(l, op);
            xl_region_append(l->f, r, op);
            for (uint32_t k = 0; k < op->nregion && !err; k++)
                err = flatten(l, op->region[k], depth + 1);
        }
        if (err)
            return err;
    }
    return NULL;
}

/* Has to stay even if nobody reads its results: effects, and loops or branches with effects inside. */
static bool effect(const xl_op *op)
{
    if (op->code == XL_OP_OPTIMIZATION_BARRIER)
        return false;
    if ((xl_ops[op->code].flags & (XL_OP_EFFECT | XL_OP_TERMINATOR)))
        return true;
    if (op->code == XL_OP_CUSTOM_CALL)
        return xl_op_int(op, XL_SLOT(CUSTOM_CALL, has_side_effect));
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            if (op->region[k]->op[i]->code != XL_OP_RETURN && effect(op->region[k]->op[i]))
                return true;
    return false;
}

static void sweep(xl_func *f, xl_region *r, uint32_t *uses)
{
    uint32_t keep = r->nop;
    for (uint32_t i = r->nop; i-- > 0; ) {
        xl_op *op = r->op[i];
        bool used = effect(op);
        for (uint32_t k = 0; k < op->nout; k++)
            used = used || uses[op->out[k].id];
        if (!used)
            continue;
        for (uint32_t k = 0; k < op->nin; k++)
            uses[op->in[k].id]++;
        for (uint32_t k = 0; k < op->nregion; k++)
            sweep(f, op->region[k], uses);
        r->op[--keep] = op;
    }
    memmove(r->op, r->op + keep, (r->nop - keep) * sizeof *r->op);
    r->nop -= keep;
}

xl_error *xl_lower(xl_module *m, bool keep_manual)
{
    lower l = { .f = xl_module_entry(m), .keep_manual = keep_manual };
    if (!l.f || !l.f->body)
        return XL_ERR(INVALID, "the program has no entry function: give one public function, or name it main");
    xl_error *err = xl_calls_check(m);
    if (!err)
        err = flatten(&l, l.f->body, 0);
    if (err)
        return err;
    sweep(l.f, l.f->body, xl_new(&m->arena, uint32_t, l.f->nval));
    return NULL;
}
