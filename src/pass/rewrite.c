/* The traversal that rewriting passes share. */
#include "pass/pass.h"

static void region(xl_b *b, xl_region *r, xl_subst *s, xl_rewrite_fn *fn)
{
    xl_op **old = r->op;
    uint32_t nold = r->nop;
    xl_region *outer = b->r;
    r->op = xl_new(&b->f->m->arena, xl_op *, (size_t)nold + 8);
    r->capop = nold + 8;
    r->nop = 0;
    for (uint32_t k = 0; k < nold; k++) {
        xl_op *op = old[k];
        xl_subst_op(s, op);
        for (uint32_t i = 0; i < op->nregion; i++)
            region(b, op->region[i], s, fn);
        b->r = r;
        b->loc = op->loc;
        if (xl_b_failed(b) || !fn(b, s, op))
            xl_region_append(b->f, r, op);
    }
    b->r = outer;
}

xl_error *xl_rewrite(xl_module *m, xl_rewrite_fn *fn)
{
    for (uint32_t i = 0; i < m->nfunc; i++) {
        xl_func *f = m->func[i];
        if (!f->body)
            continue;
        xl_b b = xl_b_at(f, NULL);
        xl_subst s = xl_subst_new(f);
        region(&b, f->body, &s, fn);
        xl_error *err = xl_b_error(&b);
        if (err)
            return xl_error_wrap(err, "@%.*s", XL_FMT(f->name));
    }
    return NULL;
}

const xl_attr *xl_value_const(const xl_func *f, xl_value v)
{
    const xl_op *op = f->val[v.id].def;
    const xl_attr *a = op && op->code == XL_OP_CONSTANT ? op->attr[XL_SLOT(CONSTANT, value)] : NULL;
    return a && a->kind == XL_AT_DENSE && !f->val[v.id].type->quant ? a : NULL;
}
