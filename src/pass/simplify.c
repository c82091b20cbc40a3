/* simplify: remove ops that do nothing, and reduce ops to simpler ones.
 * Only what is exact by the specification: x + 0 is x for integers, but for floats only x + (-0) and x - (+0) are,
 * because a sum of zeros has a sign. NaN stays NaN.
 * needs: nothing.  keeps: types, locations.  breaks: nothing. */
#include "ir/scalar.h"
#include "pass/pass.h"

static bool is_bits(const xl_attr *a, double v, bool negative_zero)
{
    unsigned char want[16] = { 0 };
    if (!xl_attr_is_splat(a) || xl_dtype_class(a->dtype) == XL_CLASS_COMPLEX)
        return false;
    xl_scalar_put(a->dtype, negative_zero ? -0.0 : v, want);
    return memcmp(want, a->data.p, a->data.n) == 0;
}

static bool is_number(const xl_attr *a, double v) { return is_bits(a, v, false); }
static bool is_int_type(xl_dtype d)
{
    xl_dclass c = xl_dtype_class(d);
    return c == XL_CLASS_INT || c == XL_CLASS_UINT || c == XL_CLASS_PRED;
}

static bool is_ones(const xl_attr *a)                      /* all bits set */
{
    if (!xl_attr_is_splat(a) || !is_int_type(a->dtype))
        return false;
    if (xl_dtype_class(a->dtype) == XL_CLASS_PRED)
        return a->data.p[0] != 0;
    unsigned bits = xl_dtypes[a->dtype].bits;
    uint64_t u = (uint64_t)xl_dense_int(a, 0), all = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    return (u & all) == all;
}

static bool is_iota(xl_dims d)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] != (int64_t)i)
            return false;
    return true;
}

static bool all_are(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] != v)
            return false;
    return true;
}

/* A conversion that loses nothing. */
static bool widens(xl_dtype from, xl_dtype to)
{
    const xl_dtype_info *a = &xl_dtypes[from], *b = &xl_dtypes[to];
    if (a->cls == XL_CLASS_FLOAT && b->cls == XL_CLASS_FLOAT)
        return (from == XL_BF16 || from == XL_F16 || from == XL_F32) && (to == XL_F32 || to == XL_F64) &&
               a->bits <= b->bits;
    return a->cls == b->cls && (a->cls == XL_CLASS_INT || a->cls == XL_CLASS_UINT) && a->bits <= b->bits;
}

static const xl_op *def_of(const xl_func *f, xl_value v, xl_opcode code)
{
    const xl_op *op = f->val[v.id].def;
    return op && op->code == code && !op->extra ? op : NULL;
}

/* The value that the op merely repeats, or XL_NO_VALUE. */
static xl_value same_as(const xl_func *f, const xl_op *op)
{
    const xl_attr *k = op->nin == 2 ? xl_value_const(f, op->in[1]) : NULL;
    xl_value x = op->nin ? op->in[0] : XL_NO_VALUE;
    const xl_type *t = op->nin ? xl_in_type(f, op, 0) : NULL, *r = xl_out_type(f, op, 0);
    bool integer = r->kind == XL_TY_TENSOR && is_int_type(r->dtype),
         twice = op->nin == 2 && op->in[0].id == op->in[1].id;
    const xl_op *d;
    switch (op->code) {
    case XL_OP_ADD: return (integer ? is_number(k, 0) : is_bits(k, 0, true)) ? x : XL_NO_VALUE;
    case XL_OP_SUBTRACT: return is_number(k, 0) ? x : XL_NO_VALUE;
    case XL_OP_MULTIPLY: case XL_OP_DIVIDE: return is_number(k, 1) ? x : XL_NO_VALUE;
    case XL_OP_OR: return twice || is_number(k, 0) ? x : XL_NO_VALUE;
    case XL_OP_XOR: return is_number(k, 0) ? x : XL_NO_VALUE;
    case XL_OP_AND: return twice || is_ones(k) ? x : XL_NO_VALUE;
    case XL_OP_SHIFT_LEFT:
    case XL_OP_SHIFT_RIGHT_ARITHMETIC:
    case XL_OP_SHIFT_RIGHT_LOGICAL: return is_number(k, 0) ? x : XL_NO_VALUE;
    case XL_OP_MAXIMUM: case XL_OP_MINIMUM: return twice ? x : XL_NO_VALUE;
    case XL_OP_NEGATE: return (d = def_of(f, x, XL_OP_NEGATE)) ? d->in[0] : XL_NO_VALUE;
    case XL_OP_NOT: return (d = def_of(f, x, XL_OP_NOT)) ? d->in[0] : XL_NO_VALUE;
    case XL_OP_SELECT: {
        const xl_attr *p = xl_value_const(f, op->in[0]);
        if (op->in[1].id == op->in[2].id)
            return op->in[1];
        return xl_attr_is_splat(p) ? op->in[p->data.p[0] ? 1 : 2] : XL_NO_VALUE;
    }
    case XL_OP_CONVERT:
        XL_KNOWN(t);                                       /* the op has an operand */
        if (r == t)
            return x;
        d = def_of(f, x, XL_OP_CONVERT);
        return d && xl_in_type(f, d, 0) == r && widens(r->dtype, t->dtype) ? d->in[0] : XL_NO_VALUE;
    case XL_OP_BITCAST_CONVERT: case XL_OP_RESHAPE: return r == t ? x : XL_NO_VALUE;
    case XL_OP_BROADCAST_IN_DIM:
        return r == t && is_iota(xl_op_dims(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions))) ? x : XL_NO_VALUE;
    case XL_OP_TRANSPOSE: return is_iota(xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation))) ? x : XL_NO_VALUE;
    case XL_OP_REVERSE: return xl_op_dims(op, XL_SLOT(REVERSE, dimensions)).n == 0 ? x : XL_NO_VALUE;
    case XL_OP_CONCATENATE: return op->nin == 1 ? x : XL_NO_VALUE;
    case XL_OP_PAD:
        return r == t && all_are(xl_op_dims(op, XL_SLOT(PAD, edge_padding_low)), 0) &&
                       all_are(xl_op_dims(op, XL_SLOT(PAD, edge_padding_high)), 0) &&
                       all_are(xl_op_dims(op, XL_SLOT(PAD, interior_padding)), 0)
                   ? x
                   : XL_NO_VALUE;
    case XL_OP_SLICE:
    case XL_OP_DYNAMIC_SLICE: return r == t ? x : XL_NO_VALUE; /* of the same size is the whole: starts are clamped */
    case XL_OP_DYNAMIC_UPDATE_SLICE: return xl_in_type(f, op, 1) == r ? op->in[1] : XL_NO_VALUE;
    case XL_OP_REAL: return (d = def_of(f, x, XL_OP_COMPLEX)) ? d->in[0] : XL_NO_VALUE;
    case XL_OP_IMAG: return (d = def_of(f, x, XL_OP_COMPLEX)) ? d->in[1] : XL_NO_VALUE;
    case XL_OP_GET_TUPLE_ELEMENT:
        d = def_of(f, x, XL_OP_TUPLE);
        return d ? d->in[xl_op_int(op, XL_SLOT(GET_TUPLE_ELEMENT, index))] : XL_NO_VALUE;
    default: return XL_NO_VALUE;
    }
}

/* Two of a kind make one; NULL dims stay with the caller. */
static xl_value joined(xl_b *b, const xl_op *op)
{
    xl_func *f = b->f;
    const xl_type *r = xl_out_type(f, op, 0);
    const xl_op *d;
    if (op->nin == 0 || !xl_type_static(r) || r->quant)
        return XL_NO_VALUE;
    switch (op->code) {
    case XL_OP_RESHAPE:
        d = def_of(f, op->in[0], XL_OP_RESHAPE);
        return d ? xl_b_reshape(b, d->in[0], xl_type_dims(r)) : XL_NO_VALUE;
    case XL_OP_TRANSPOSE: {
        if (!(d = def_of(f, op->in[0], XL_OP_TRANSPOSE)))
            return XL_NO_VALUE;
        xl_dims p = xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation)), q = xl_op_dims(d, XL_SLOT(TRANSPOSE, permutation));
        int64_t *both = xl_new(&f->m->arena, int64_t, p.n);
        for (size_t i = 0; i < p.n; i++)
            both[i] = q.p[p.p[i]];
        return is_iota((xl_dims){ both, p.n }) ? d->in[0] : xl_b_transpose(b, d->in[0], (xl_dims){ both, p.n });
    }
    case XL_OP_BROADCAST_IN_DIM: {
        if (!(d = def_of(f, op->in[0], XL_OP_BROADCAST_IN_DIM)))
            return XL_NO_VALUE;
        xl_dims p = xl_op_dims(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions)),
                q = xl_op_dims(d, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions));
        int64_t *both = xl_new(&f->m->arena, int64_t, q.n);
        for (size_t i = 0; i < q.n; i++)
            both[i] = p.p[q.p[i]];
        return xl_b_broadcast(b, d->in[0], xl_type_dims(r), (xl_dims){ both, q.n });
    }
    default: return XL_NO_VALUE;
    }
}

/* A branch whose choice is known takes the place of the op. */
static bool take_branch(xl_b *b, xl_subst *s, xl_op *op)
{
    const xl_attr *k = xl_value_const(b->f, op->in[0]);
    if (!k || op->nregion == 0)
        return false;
    int64_t which = op->code == XL_OP_IF ? (k->data.p[0] ? 0 : 1) : xl_dense_int(k, 0);
    if (which < 0 || which >= op->nregion)
        which = op->nregion - 1;                           /* what a case does with an index that is out of range */
    xl_region *r = op->region[which];
    const xl_op *end = xl_region_end(r);
    for (uint32_t i = 0; i + 1 < r->nop; i++)
        xl_region_append(b->f, b->r, r->op[i]);
    for (uint32_t i = 0; i < op->nout; i++)
        xl_subst_set(s, op->out[i], end->in[i]);
    return true;
}

static bool rewrite(xl_b *b, xl_subst *s, xl_op *op)
{
    if (op->code == XL_OP_IF || op->code == XL_OP_CASE)
        return take_branch(b, s, op);
    if (op->nout != 1 || op->extra || op->code == XL_OP_CONSTANT)
        return false;
    xl_value v = same_as(b->f, op);
    if (v.id == UINT32_MAX)
        v = joined(b, op);
    /* A type with other bounds or another quantisation is another type: then the op stays. */
    if (v.id == UINT32_MAX || xl_b_failed(b) || xl_value_type(b->f, v) != xl_out_type(b->f, op, 0))
        return false;
    xl_subst_set(s, op->out[0], v);
    return true;
}

xl_error *xl_pass_simplify(xl_module *m, const xl_pipeline_opts *opts)
{
    (void)opts;
    return xl_rewrite(m, rewrite);
}
