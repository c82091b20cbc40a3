/* canonical: equivalent forms become one.
 * dot becomes dot_general, broadcast becomes broadcast_in_dim, and constants become the right operand of commutative
 * ops.
 * needs: nothing.  keeps: types, locations.  breaks: nothing. */
#include "pass/pass.h"

static bool rewrite(xl_b *b, xl_subst *s, xl_op *op)
{
    xl_func *f = b->f;
    const xl_type *t = op->nout ? xl_out_type(f, op, 0) : NULL;
    if (op->extra || (t && t->quant))                      /* what hangs on the op (a sharding, a hint) would be lost */
        return false;
    switch (op->code) {
    case XL_OP_DOT: {
        xl_op *d = xl_b_begin(b, XL_OP_DOT_GENERAL, op->in, 2, &t, 1, 0);
        xl_b_set_dims(b, d, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions),
                      (xl_dims){ (int64_t[]){ (int64_t)xl_in_type(f, op, 0)->rank - 1 }, 1 });
        xl_b_set_dims(b, d, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions), (xl_dims){ (int64_t[]){ 0 }, 1 });
        xl_b_set(b, d, XL_SLOT(DOT_GENERAL, precision_config), op->attr[XL_SLOT(DOT, precision_config)]);
        if (!xl_b_end(b, d))
            return false;
        xl_subst_set(s, op->out[0], d->out[0]);
        return true;
    }
    case XL_OP_BROADCAST: {
        if (!xl_type_static(t))
            return false;
        XL_KNOWN(t);                                       /* the op has a result */
        const xl_type *from = xl_in_type(f, op, 0);
        int64_t *dims = xl_new(&f->m->arena, int64_t, from->rank);
        for (uint32_t i = 0; i < from->rank; i++)
            dims[i] = (int64_t)(t->rank - from->rank + i);
        xl_subst_set(s, op->out[0], xl_b_broadcast(b, op->in[0], xl_type_dims(t), (xl_dims){ dims, from->rank }));
        return !xl_b_failed(b);
    }
    default: break;
    }
    if ((xl_ops[op->code].flags & XL_OP_COMMUTES) && op->nin == 2 && xl_value_const(f, op->in[0]) &&
        !xl_value_const(f, op->in[1])) {
        xl_value first = op->in[0];
        op->in[0] = op->in[1];
        op->in[1] = first;
    }
    return false;
}

xl_error *xl_pass_canonical(xl_module *m, const xl_pipeline_opts *opts)
{
    (void)opts;
    return xl_rewrite(m, rewrite);
}
