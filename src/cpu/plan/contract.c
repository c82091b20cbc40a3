/* Which products go into sums, and which sums into one. Not products of which a sum has the same one twice, x y - x y
 * in whatever words: a program expects 0 of that. */
#include "cpu/plan/contract.h"

#include "cpu/plan/planner.h"
#include "ir/scalar.h"
#include "pass/pass.h"

enum { STEPS = 64 };                                       /* after so many values two are taken for the same */

typedef struct {
    xl_func *f;
    uint32_t *uses, steps;
    bool *gone;
} contract;

static bool same(contract *c, xl_value a, xl_value b)
{
    const xl_op *x = c->f->val[a.id].def, *y = c->f->val[b.id].def;
    if (a.id == b.id || c->steps == 0)
        return true;
    if (!x || !y || x->code != y->code || x->nin != y->nin || x->nout != 1 || y->nout != 1 || x->nregion ||
        y->nregion || x->code == XL_OP_UNKNOWN || (xl_ops[x->code].flags & (XL_OP_EFFECT | XL_OP_COLLECTIVE)) ||
        !xl_type_eq(xl_value_type(c->f, a), xl_value_type(c->f, b)))
        return false;
    c->steps--;
    for (uint32_t i = 0; i < xl_op_nattr((xl_opcode)x->code); i++)
        if (!xl_attr_eq(x->attr[i], y->attr[i]))
            return false;
    bool straight = true;
    for (uint32_t i = 0; i < x->nin && straight; i++)
        straight = same(c, x->in[i], y->in[i]);
    return straight || ((xl_ops[x->code].flags & XL_OP_COMMUTES) && x->nin == 2 && same(c, x->in[0], y->in[1]) &&
                        same(c, x->in[1], y->in[0]));
}

static void count(contract *c, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin; k++)
            c->uses[r->op[i]->in[k].id]++;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            count(c, r->op[i]->region[k]);
    }
}

static const xl_op *product(const contract *c, const xl_op *op, uint32_t k)
{
    const xl_op *d = c->f->val[op->in[k].id].def;
    return d && (d->code == XL_OP_MULTIPLY || d->code == XL_OP_CHLO_SQUARE) && d->parent == op->parent && !d->extra &&
                   xl_type_eq(xl_out_type(c->f, d, 0), xl_out_type(c->f, op, 0))
               ? d
               : NULL;
}

/* The op that is `op` and a product that it reads; appended nowhere. */
static xl_op *fused(contract *c, const xl_op *op)
{
    if ((op->code != XL_OP_ADD && op->code != XL_OP_SUBTRACT) || op->extra)
        return NULL;
    const xl_type *t = xl_out_type(c->f, op, 0);
    if (t->kind != XL_TY_TENSOR || t->quant || (t->dtype != XL_F32 && t->dtype != XL_F64))
        return NULL;
    const xl_op *d[2] = { product(c, op, 0), product(c, op, 1) };
    uint32_t k = d[0] && c->uses[op->in[0].id] == 1 ? 0 : 1;
    if (!d[k] || c->uses[op->in[k].id] != 1)
        return NULL;
    c->steps = STEPS;
    if (d[!k] && same(c, op->in[0], op->in[1]))
        return NULL;
    xl_value in[3] = { d[k]->in[0], d[k]->in[d[k]->nin - 1], op->in[!k] };
    xl_op *y = xl_op_new(c->f, NULL, XL_OP_PRODUCT_SUM, in, 3, &t, 1, 0, op->loc);
    int64_t form = op->code == XL_OP_ADD ? XL_PRODUCT_PLUS : k == 0 ? XL_PRODUCT_LESS : XL_LESS_PRODUCT;
    if (form)
        xl_op_set(y, XL_SLOT(PRODUCT_SUM, form), xl_attr_int(c->f->m, XL_I64, form));
    c->gone[op->in[k].id] = true;
    return y;
}

/* A sum over some dimensions, of f32 or f64 and from 0. */
static bool sum(const xl_func *f, const xl_op *op)
{
    if (!op || op->code != XL_OP_REDUCE || op->nin != 2 || op->nout != 1 || op->extra ||
        xl_region_single(f, op->region[0]) != XL_OP_ADD)
        return false;
    const xl_type *t = xl_in_type(f, op, 0), *out = xl_out_type(f, op, 0);
    const xl_attr *from = xl_value_const(f, op->in[1]);
    return t->kind == XL_TY_TENSOR && !t->quant && (t->dtype == XL_F32 || t->dtype == XL_F64) &&
           out->dtype == t->dtype && t->rank <= XL_RANK_MAX && xl_attr_is_splat(from) &&
           xl_scalar_get(t->dtype, from->data.p) == 0;
}

/* Dimensions of an operand that are summed over, of which those of one element may be named or not. */
typedef struct { bool gone[XL_RANK_MAX]; } dims_set;

static void add_dims(dims_set *s, xl_dims v)
{
    for (size_t i = 0; i < v.n; i++)
        s->gone[v.p[i]] = true;
}

/* The same dimensions before a reshape that only adds or drops some of one element; false: it does something else. */
static bool before_reshape(const contract *c, const xl_op *reshape, dims_set *s)
{
    const xl_type *from = xl_in_type(c->f, reshape, 0), *to = xl_out_type(c->f, reshape, 0);
    dims_set out = { 0 };
    uint32_t k = 0;
    for (uint32_t d = 0; d < from->rank; d++) {
        while (k < to->rank && to->dims[k] == 1)
            k++;
        if (from->dims[d] != 1 && (k == to->rank || to->dims[k] != from->dims[d]))
            return false;
        out.gone[d] = from->dims[d] == 1 || s->gone[k++];
    }
    while (k < to->rank && to->dims[k] == 1)
        k++;
    *s = out;
    return k == to->rank;
}

/* A sum of a sum is one over the dimensions of both. The inner one stays for its other readers, if there are any. */
static void one_sum(contract *c, xl_op *op)
{
    if (!sum(c->f, op))
        return;
    dims_set over = { 0 };
    add_dims(&over, xl_op_dims(op, XL_SLOT(REDUCE, dimensions)));
    const xl_op *inner = c->f->val[op->in[0].id].def;
    while (inner && inner->code == XL_OP_RESHAPE && inner->parent == op->parent && !inner->extra &&
           xl_in_type(c->f, inner, 0)->rank <= XL_RANK_MAX && before_reshape(c, inner, &over))
        inner = c->f->val[inner->in[0].id].def;
    if (!sum(c->f, inner) || inner->parent != op->parent)
        return;
    const xl_type *t = xl_in_type(c->f, inner, 0), *out = xl_out_type(c->f, op, 0);
    dims_set all = { 0 };
    add_dims(&all, xl_op_dims(inner, XL_SLOT(REDUCE, dimensions)));
    int64_t dims[XL_RANK_MAX];
    size_t n = 0;
    for (uint32_t d = 0, left = 0; d < t->rank; d++) {
        bool gone = all.gone[d] || over.gone[left++];
        if (gone)
            dims[n++] = d;
        else if (d - n >= out->rank || out->dims[d - n] != t->dims[d])
            return;                                        /* the result has dimensions of one element that are gone */
    }
    if (t->rank - n != out->rank)
        return;
    op->in[0] = inner->in[0];
    xl_op_set(op, XL_SLOT(REDUCE, dimensions), xl_attr_dims(c->f->m, (xl_dims){ dims, n }));
}

static void region(contract *c, xl_subst *s, xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_subst_op(s, r->op[i]);
        one_sum(c, r->op[i]);
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            region(c, s, r->op[i]->region[k]);
        xl_op *y = fused(c, r->op[i]);
        if (!y)
            continue;
        xl_subst_set(s, r->op[i]->out[0], y->out[0]);
        y->parent = r;
        r->op[i] = y;
    }
    uint32_t keep = 0;
    for (uint32_t i = 0; i < r->nop; i++)
        if (r->op[i]->nout != 1 || r->op[i]->out[0].id >= s->n || !c->gone[r->op[i]->out[0].id])
            r->op[keep++] = r->op[i];
    r->nop = keep;
}

void xl_contract(xl_module *m)
{
    contract c = { .f = xl_module_entry(m) };
    c.uses = xl_new(&m->arena, uint32_t, c.f->nval);
    c.gone = xl_new(&m->arena, bool, c.f->nval);
    xl_subst s = xl_subst_new(c.f);
    count(&c, c.f->body);
    region(&c, &s, c.f->body);
}
