#include "cpu/plan/units.h"

size_t xl_units_bytes(const xl_units *x, xl_value v)
{
    xl_extent s;
    xl_error *err = xl_shape_of(x->p, xl_value_type(x->p->f, v), &s);
    xl_error_free(err);
    return err ? 0 : s.bytes;
}

void xl_units_read(xl_units *x, xl_value v, uint32_t unit)
{
    uint32_t prev = 0, at = x->head[v.id];
    while (at && x->rd[at - 1].unit > unit) {
        prev = at;
        at = x->rd[at - 1].next;
    }
    if (at && x->rd[at - 1].unit == unit)
        return;
    xl_reader n = { unit, at };
    XL_PUSH(x->p->a, x->rd, x->nrd, x->caprd, n);
    *(prev ? &x->rd[prev - 1].next : &x->head[v.id]) = x->nrd;
}

uint32_t xl_units_last(const xl_units *x, xl_value v)
{
    return x->head[v.id] ? x->rd[x->head[v.id] - 1].unit : XL_NO_UNIT;
}

uint32_t xl_units_before(const xl_units *x, xl_value v)
{
    uint32_t before = x->head[v.id] ? x->rd[x->head[v.id] - 1].next : 0;
    return before ? x->rd[before - 1].unit : x->of[v.id];
}

xl_value xl_units_memory(const xl_units *x, xl_value v)
{
    const xl_op *def = x->p->f->val[v.id].def;
    while (def && def->code == XL_OP_RESHAPE && def->parent == x->r) {
        v = def->in[0];
        def = x->p->f->val[v.id].def;
    }
    return v;
}

static void note(xl_units *x, const xl_op *op, uint32_t unit, const xl_group *g)
{
    for (uint32_t k = 0; k < op->nin; k++) {
        xl_view v = { .base = op->in[k] };
        if (g)
            xl_operand_view(x->p, op, k, &v);
        else if (op->code == XL_OP_DOT_GENERAL && op->parent == x->r)
            xl_dot_view(x->p, op, k, &v);
        if (v.kind != XL_VIEW_VALUE || (g && xl_group_of(x->p, v.base) == g))
            continue;
        xl_value m = xl_units_memory(x, v.base);
        xl_units_read(x, m, unit);
        if (m.id != v.base.id)
            x->shared[m.id] = x->shared[v.base.id] = true;
        if (op->code == XL_OP_RETURN && op->parent == x->r)
            x->returned[m.id] = x->returned[v.base.id] = true;
    }
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            note(x, op->region[k]->op[i], unit, NULL);
}

void xl_units_find(xl_units *x, xl_planner *p, xl_region *r)
{
    *x = (xl_units){ .p = p, .r = r, .nval = p->f->nval };
    x->of = xl_new(p->a, uint32_t, x->nval);
    x->head = xl_new(p->a, uint32_t, x->nval);
    x->returned = xl_new(p->a, bool, x->nval);
    x->shared = xl_new(p->a, bool, x->nval);
    memset(x->of, 0xff, x->nval * sizeof *x->of);
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        xl_group *g = op->nout ? xl_group_of(p, op->out[0]) : NULL;
        if (!g || !x->n || x->u[x->n - 1].g != g) {
            xl_unit n = { g, i, 0 };
            XL_PUSH(p->a, x->u, x->n, x->cap, n);
        }
        x->u[x->n - 1].n++;
        for (uint32_t k = 0; k < op->nout; k++)
            x->of[op->out[k].id] = x->n - 1;
        if (g || !xl_op_virtual(p, op))
            note(x, op, x->n - 1, g);
    }
}
