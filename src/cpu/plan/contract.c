/* Which products go into sums. Not those of which a sum has the same one twice, x y - x y in whatever words: a program
 * expects 0 of that. */
#include "cpu/plan/contract.h"

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

static void region(contract *c, xl_subst *s, xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_subst_op(s, r->op[i]);
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
