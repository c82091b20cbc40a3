/* Gradients of reductions, windows, products, convolutions and collectives. */
#include "pass/grad.h"

#define RULE(name) xl_error *xl_grad_##name(xl_grad_ctx *g, xl_op *op, const xl_value *ct)

static xl_arena *mem(const xl_grad_ctx *g) { return &g->e.f->m->arena; }
static const xl_type *type_of(const xl_grad_ctx *g, xl_value v) { return xl_value_type(g->e.f, v); }
static bool has(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}
static xl_value bin(xl_grad_ctx *g, xl_opcode c, xl_value a, xl_value b) { return xl_em_binary(&g->e, c, a, b); }
static xl_value k(xl_grad_ctx *g, xl_value like, double v) { return xl_em_like(&g->e, like, v); }

/* The op of a combiner over two scalars; UNKNOWN where it is more than one. */
static xl_opcode combiner(const xl_region *r)
{
    const xl_op *end = xl_region_end(r);
    return r->narg == 2 && r->nop == 2 && end->nin == 1 && r->op[0]->nin == 2 && r->op[0]->nout == 1 &&
                   end->in[0].id == r->op[0]->out[0].id && r->op[0]->in[0].id != r->op[0]->in[1].id
               ? (xl_opcode)r->op[0]->code : XL_OP_UNKNOWN;
}

/* ---- reduce ---- */
/* A reduced value over the shape it was reduced from. */
static xl_value back(xl_grad_ctx *g, const xl_op *op, xl_value v)
{
    const xl_type *t = xl_in_type(g->e.f, op, 0);
    xl_dims over = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    int64_t *at = xl_new(mem(g), int64_t, t->rank);
    uint32_t n = 0;
    for (uint32_t d = 0; d < t->rank; d++)
        if (!has(over, d))
            at[n++] = d;
    return xl_em_broadcast(&g->e, v, xl_type_dims(t), (xl_dims){ at, n });
}

static xl_value over_all(xl_grad_ctx *g, xl_opcode code, xl_value v)
{
    const xl_type *t = type_of(g, v);
    int64_t *d = xl_new(mem(g), int64_t, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        d[i] = i;
    return xl_em_reduce(&g->e, code, v, 0, (xl_dims){ d, t->rank });
}

RULE(reduce)
{
    xl_value x = op->in[0], r = op->out[0], t = ct[0];
    xl_dims over = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    if (op->nin == 4 && op->nout == 2 && !xl_cot_float(xl_in_type(g->e.f, op, 1)) && xl_has(t)) {
        /* the pair of value and position of an argmax: the value came from where the position says */
        xl_value at = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, op->in[1], back(g, op, op->out[1]));
        xl_value is = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, x, back(g, op, r));
        xl_cot_add(g, x, xl_em_select(&g->e, bin(g, XL_OP_AND, at, is), back(g, op, t), k(g, x, 0)));
        return NULL;
    }
    if (op->nin != 2)
        return xl_grad_reduce_any(g, op, ct);
    xl_opcode code = combiner(op->region[0]);
    bool init_active = xl_cot_active(g, op->in[1]);
    switch (code) {
    case XL_OP_ADD:
        if (xl_cot_active(g, x))
            xl_cot_add(g, x, back(g, op, t));
        if (init_active)
            xl_cot_add(g, op->in[1], over_all(g, XL_OP_ADD, t));
        return NULL;
    case XL_OP_MAXIMUM:
    case XL_OP_MINIMUM: { /* those that tie share it equally; the initial value may be one of them */
        xl_value hit = xl_em_select(&g->e, xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, x, back(g, op, r)),
                                    k(g, x, 1), k(g, x, 0));
        xl_value first = xl_em_spread(&g->e, op->in[1], xl_type_dims(type_of(g, r)));
        xl_value stays =
            xl_em_select(&g->e, xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, first, r), k(g, r, 1), k(g, r, 0));
        xl_value share = bin(g, XL_OP_DIVIDE, t, bin(g, XL_OP_ADD, xl_em_sum(&g->e, hit, over), stays));
        xl_cot_add(g, x, bin(g, XL_OP_MULTIPLY, hit, back(g, op, share)));
        if (init_active)
            xl_cot_add(g, op->in[1], over_all(g, XL_OP_ADD, bin(g, XL_OP_MULTIPLY, stays, share)));
        return NULL;
    }
    case XL_OP_MULTIPLY: { /* r / x; with one zero, only that element has any; with two, none */
        xl_value one = k(g, x, 1), zero = k(g, x, 0);
        xl_value isz = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, x, zero);
        xl_value safe = xl_em_select(&g->e, isz, one, x);
        xl_value rest = bin(g, XL_OP_DIVIDE, back(g, op, xl_em_reduce(&g->e, XL_OP_MULTIPLY, safe, 1, over)), safe);
        xl_value nz = back(g, op, xl_em_sum(&g->e, xl_em_select(&g->e, isz, one, zero), over));
        xl_value others = bin(g, XL_OP_SUBTRACT, nz, xl_em_select(&g->e, isz, one, zero));
        xl_value none = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, others, zero);
        xl_value init = xl_em_spread(&g->e, op->in[1], xl_type_dims(type_of(g, x)));
        xl_value d = bin(g, XL_OP_MULTIPLY, xl_em_select(&g->e, none, rest, zero), init);
        xl_cot_add(g, x, bin(g, XL_OP_MULTIPLY, back(g, op, t), d));
        if (init_active)
            xl_cot_add(
                g, op->in[1],
                over_all(g, XL_OP_ADD, bin(g, XL_OP_MULTIPLY, t, xl_em_reduce(&g->e, XL_OP_MULTIPLY, x, 1, over))));
        return NULL;
    }
    default:
        return xl_grad_reduce_any(g, op, ct);
    }
}

/* ---- reduce_window ---- */
static int64_t dilated(int64_t n, int64_t by) { return n ? (n - 1) * by + 1 : 0; }

static void set_dims(xl_grad_ctx *g, xl_op *op, uint32_t slot, const int64_t *v, uint32_t n)
{
    xl_op_set(op, slot, xl_attr_dims(g->e.f->m, (xl_dims){ v, n }));
}

RULE(reduce_window)
{
    if (op->nin != 2 || xl_cot_active(g, op->in[1]))
        return xl_grad_window_any(g, op, ct);
    xl_value x = op->in[0], t = ct[0];
    const xl_type *ti = type_of(g, x), *to = type_of(g, t);
    uint32_t n = ti->rank;
    xl_dims win = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dimensions)),
            str = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_strides));
    xl_dims base = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, base_dilations)),
            wdil = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dilations));
    xl_dims pad = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, padding));
    xl_opcode code = combiner(op->region[0]);
    if (code == XL_OP_MAXIMUM || code == XL_OP_MINIMUM) {
        if (base.n || wdil.n)
            return xl_grad_window_any(g, op, ct);
        xl_value in[3] = { x, t, xl_em_scalar(&g->e, ti->dtype, 0) };
        xl_op *s = xl_op_new(g->e.f, g->e.r, XL_OP_SELECT_AND_SCATTER, in, 3, &ti, 1, 2, g->e.loc);
        xl_op_set(s, XL_SLOT(SELECT_AND_SCATTER, window_dimensions),
                  op->attr[XL_SLOT(REDUCE_WINDOW, window_dimensions)]);
        xl_op_set(s, XL_SLOT(SELECT_AND_SCATTER, window_strides), op->attr[XL_SLOT(REDUCE_WINDOW, window_strides)]);
        xl_op_set(s, XL_SLOT(SELECT_AND_SCATTER, padding), op->attr[XL_SLOT(REDUCE_WINDOW, padding)]);
        const xl_type *st = xl_type_scalar(g->e.f->m, ti->dtype);
        xl_value a = xl_region_add_arg(g->e.f, s->region[0], st, g->e.loc),
                 b = xl_region_add_arg(g->e.f, s->region[0], st, g->e.loc);
        xl_region *was = xl_em_enter(&g->e, s->region[0]);
        xl_value ge =
            xl_em_compare(&g->e, code == XL_OP_MAXIMUM ? XL_COMPARISON_DIRECTION_GE : XL_COMPARISON_DIRECTION_LE, a, b);
        xl_em_return(&g->e, &ge, 1);
        xl_em_enter(&g->e, was);
        xl_em_combiner(&g->e, s->region[1], XL_OP_ADD, ti->dtype);
        xl_op_normalize(g->e.f->m, s);
        xl_cot_add(g, x, s->out[0]);
        return NULL;
    }
    if (code != XL_OP_ADD)
        return xl_grad_window_any(g, op, ct);
    int64_t *lo = xl_new(mem(g), int64_t, n), *hi = xl_new(mem(g), int64_t, n), *inner = xl_new(mem(g), int64_t, n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t step = xl_dims_at(str, i, 1), w = dilated(win.p[i], xl_dims_at(wdil, i, 1));
        int64_t in = dilated(ti->dims[i], xl_dims_at(base, i, 1)), o = dilated(to->dims[i], step);
        lo[i] = w - (pad.n ? pad.p[2 * i] : 0) - 1;
        hi[i] = in + w - 1 - o - lo[i];
        inner[i] = step - 1;
    }
    xl_value zero = xl_em_scalar(&g->e, ti->dtype, 0), wide = xl_em_pad(&g->e, t, zero, lo, hi, inner);
    xl_op *r = xl_op_new(g->e.f, g->e.r, XL_OP_REDUCE_WINDOW, (xl_value[]){ wide, zero }, 2, &ti, 1, 1, g->e.loc);
    xl_op_set(r, XL_SLOT(REDUCE_WINDOW, window_dimensions), op->attr[XL_SLOT(REDUCE_WINDOW, window_dimensions)]);
    xl_op_set(r, XL_SLOT(REDUCE_WINDOW, window_dilations), op->attr[XL_SLOT(REDUCE_WINDOW, window_dilations)]);
    xl_op_set(r, XL_SLOT(REDUCE_WINDOW, window_strides), op->attr[XL_SLOT(REDUCE_WINDOW, base_dilations)]);
    xl_em_combiner(&g->e, r->region[0], XL_OP_ADD, ti->dtype);
    xl_op_normalize(g->e.f->m, r);
    xl_cot_add(g, x, r->out[0]);
    return NULL;
}

/* ---- products ---- */
typedef struct { xl_dims batch, contract; int64_t *free; uint32_t nfree; } side;

static side side_of(xl_grad_ctx *g, const xl_type *t, xl_dims batch, xl_dims contract)
{
    side s = { batch, contract, xl_new(mem(g), int64_t, t->rank), 0 };
    for (uint32_t i = 0; i < t->rank; i++)
        if (!has(batch, i) && !has(contract, i))
            s.free[s.nfree++] = i;
    return s;
}

/* The gradient of operand `me`. The cotangent has dimensions (batch, free of lhs, free of rhs); contracting it with the
 * other operand over the other's free ones leaves batch, my free ones and the other's contracted ones, which are mine.
 * The cotangent comes second for the right operand, so that a weight [k, n] gets its gradient without a
 * transposition. */
static xl_value dot_side(xl_grad_ctx *g, const xl_op *op, xl_value ct, const side *l, const side *r, bool left)
{
    const side *me = left ? l : r, *other = left ? r : l;
    xl_value o = op->in[left ? 1 : 0];
    const xl_type *tm = xl_in_type(g->e.f, op, left ? 0 : 1), *ot = type_of(g, o);
    uint32_t nb = (uint32_t)me->batch.n, nc = (uint32_t)me->contract.n;
    int64_t *cb = xl_new(mem(g), int64_t, nb), *cc = xl_new(mem(g), int64_t, other->nfree),
            *perm = xl_new(mem(g), int64_t, tm->rank);
    for (uint32_t i = 0; i < nb; i++)
        cb[i] = i;
    for (uint32_t i = 0; i < other->nfree; i++)
        cc[i] = nb + (left ? l->nfree : 0) + i;
    if (ot->dtype != type_of(g, ct)->dtype)
        ct = xl_em_convert(&g->e, ct, ot->dtype);
    xl_dims dcb = { cb, nb }, dcc = { cc, other->nfree }, of = { other->free, other->nfree };
    xl_value v = left ? xl_em_dot(&g->e, ct, o, dcb, other->batch, dcc, of, tm->dtype)
                      : xl_em_dot(&g->e, o, ct, other->batch, dcb, of, dcc, tm->dtype);
    xl_value_op(g->e.f, v)->attr[XL_SLOT(DOT_GENERAL, precision_config)] =
        op->code == XL_OP_DOT_GENERAL ? op->attr[XL_SLOT(DOT_GENERAL, precision_config)]
                                      : op->attr[XL_SLOT(DOT, precision_config)];
    /* the result: batch, then (left) my free ones and the other's contracted ones in their order, or (right) the
     * reverse */
    for (uint32_t i = 0; i < nb; i++)
        perm[me->batch.p[i]] = i;
    for (uint32_t i = 0; i < me->nfree; i++)
        perm[me->free[i]] = nb + (left ? 0 : nc) + i;
    for (uint32_t i = 0; i < nc; i++) {
        int64_t rank = 0;
        for (uint32_t j = 0; j < nc; j++)
            rank += other->contract.p[j] < other->contract.p[i];
        perm[me->contract.p[i]] = nb + (left ? me->nfree : 0) + rank;
    }
    return xl_em_transpose(&g->e, v, (xl_dims){ perm, tm->rank });
}

static xl_error *product(xl_grad_ctx *g, xl_op *op, xl_value ct, xl_dims lb, xl_dims rb, xl_dims lc, xl_dims rc)
{
    side l = side_of(g, xl_in_type(g->e.f, op, 0), lb, lc), r = side_of(g, xl_in_type(g->e.f, op, 1), rb, rc);
    if (xl_cot_active(g, op->in[0]))
        xl_cot_add(g, op->in[0], dot_side(g, op, ct, &l, &r, true));
    if (xl_cot_active(g, op->in[1]))
        xl_cot_add(g, op->in[1], dot_side(g, op, ct, &l, &r, false));
    return NULL;
}

RULE(dot_general)
{
    return product(g, op, ct[0], xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)),
                   xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions)),
                   xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)),
                   xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions)));
}

RULE(dot)
{
    static const int64_t zero = 0;
    int64_t *last = xl_new(mem(g), int64_t, 1);
    last[0] = (int64_t)xl_in_type(g->e.f, op, 0)->rank - 1;
    return product(g, op, ct[0], XL_NO_DIMS, XL_NO_DIMS, (xl_dims){ last, 1 }, (xl_dims){ &zero, 1 });
}

/* ---- convolution ---- */
typedef struct { int64_t batch, feature; xl_dims spatial; } spec; /* for a kernel: output feature, input feature */

/* Splits dimension `from` into (n, rest) and merges the n, as the slower part, into dimension `to`. */
static xl_value regroup(xl_grad_ctx *g, xl_value v, int64_t from, int64_t n, int64_t to)
{
    const xl_type *t = type_of(g, v);
    int64_t *d = xl_new(mem(g), int64_t, t->rank + 1), *perm = xl_new(mem(g), int64_t, t->rank + 1),
            *out = xl_new(mem(g), int64_t, t->rank);
    uint32_t w = 0, p = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (i == from)
            d[w++] = n;
        d[w++] = i == from ? t->dims[i] / n : t->dims[i];
        out[i] = i == from ? t->dims[i] / n : t->dims[i];
    }
    out[to] *= n;
    for (uint32_t i = 0; i < t->rank; i++) {             /* without `from`, dimension i of the whole is i or i + 1 */
        if (i == to)
            perm[p++] = from;
        perm[p++] = i < from ? i : i + 1;
    }
    v = xl_em_reshape(&g->e, v, (xl_dims){ d, t->rank + 1 });
    v = xl_em_transpose(&g->e, v, (xl_dims){ perm, t->rank + 1 });
    return xl_em_reshape(&g->e, v, (xl_dims){ out, t->rank });
}

static xl_value conv(xl_grad_ctx *g, const xl_op *like, xl_value lhs, xl_value rhs, spec l, spec r, spec o,
                     const xl_type *out, const int64_t *stride, const int64_t *pad, const int64_t *ldil,
                     const int64_t *rdil, int64_t fgc, int64_t bgc)
{
    uint32_t n = (uint32_t)l.spatial.n;
    xl_module *m = g->e.f->m;
    xl_op *c = xl_em_op(&g->e, XL_OP_CONVOLUTION, (xl_value[]){ lhs, rhs }, 2, out);
#define SET_I(name, v) xl_op_set(c, XL_SLOT(CONVOLUTION, name), xl_attr_i64(m, v))
    SET_I(batch_group_count, bgc);
    SET_I(feature_group_count, fgc);
    SET_I(input_batch_dimension, l.batch);
    SET_I(input_feature_dimension, l.feature);
    SET_I(kernel_output_feature_dimension, r.batch);
    SET_I(kernel_input_feature_dimension, r.feature);
    SET_I(output_batch_dimension, o.batch);
    SET_I(output_feature_dimension, o.feature);
#undef SET_I
    xl_op_set(c, XL_SLOT(CONVOLUTION, input_spatial_dimensions), xl_attr_dims(m, l.spatial));
    xl_op_set(c, XL_SLOT(CONVOLUTION, kernel_spatial_dimensions), xl_attr_dims(m, r.spatial));
    xl_op_set(c, XL_SLOT(CONVOLUTION, output_spatial_dimensions), xl_attr_dims(m, o.spatial));
    set_dims(g, c, XL_SLOT(CONVOLUTION, window_strides), stride, n);
    set_dims(g, c, XL_SLOT(CONVOLUTION, padding), pad, 2 * n);
    set_dims(g, c, XL_SLOT(CONVOLUTION, lhs_dilation), ldil, n);
    set_dims(g, c, XL_SLOT(CONVOLUTION, rhs_dilation), rdil, n);
    c->attr[XL_SLOT(CONVOLUTION, precision_config)] = like->attr[XL_SLOT(CONVOLUTION, precision_config)];
    xl_op_normalize(m, c);
    return c->out[0];
}

static const int64_t *filled(xl_grad_ctx *g, xl_dims d, uint32_t n)
{
    int64_t *v = xl_new(mem(g), int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        v[i] = xl_dims_at(d, i, 1);
    return v;
}

static spec swapped(spec s) { return (spec){ s.feature, s.batch, s.spatial }; }

/* The kernel's spatial dimensions that the window runs through backwards. */
static xl_dims reversed(xl_grad_ctx *g, const xl_op *op, xl_dims spatial)
{
    xl_dims flip = xl_op_dims(op, XL_SLOT(CONVOLUTION, window_reversal));
    int64_t *d = xl_new(mem(g), int64_t, spatial.n);
    uint32_t n = 0;
    for (size_t i = 0; i < flip.n; i++)
        if (flip.p[i])
            d[n++] = spatial.p[i];
    return (xl_dims){ d, n };
}

RULE(convolution)
{
    xl_value x = op->in[0], w = op->in[1], t = ct[0];
    const xl_type *tx = type_of(g, x), *tw = type_of(g, w), *to = type_of(g, t);
#define GET_I(name) xl_op_int(op, XL_SLOT(CONVOLUTION, name))
#define GET_D(name) xl_op_dims(op, XL_SLOT(CONVOLUTION, name))
    spec l = { GET_I(input_batch_dimension), GET_I(input_feature_dimension), GET_D(input_spatial_dimensions) };
    spec r = { GET_I(kernel_output_feature_dimension), GET_I(kernel_input_feature_dimension),
               GET_D(kernel_spatial_dimensions) };
    spec o = { GET_I(output_batch_dimension), GET_I(output_feature_dimension), GET_D(output_spatial_dimensions) };
    int64_t fgc = GET_I(feature_group_count), bgc = GET_I(batch_group_count);
    uint32_t n = (uint32_t)l.spatial.n;
    const int64_t *stride = filled(g, GET_D(window_strides), n), *ldil = filled(g, GET_D(lhs_dilation), n),
                  *rdil = filled(g, GET_D(rhs_dilation), n);
    xl_dims pad = GET_D(padding);
#undef GET_I
#undef GET_D
    xl_dims flipped = reversed(g, op, r.spatial);        /* the same as a convolution with the kernel turned round */
    if (flipped.n)
        w = xl_em_reverse(&g->e, w, flipped);
    t = xl_em_convert(&g->e, t, tx->dtype);
    int64_t *pl = xl_new(mem(g), int64_t, 2 * n), *pr = xl_new(mem(g), int64_t, 2 * n);
    for (uint32_t i = 0; i < n; i++) {
        int64_t in = dilated(tx->dims[l.spatial.p[i]], ldil[i]), win = dilated(tw->dims[r.spatial.p[i]], rdil[i]);
        int64_t out = dilated(to->dims[o.spatial.p[i]], stride[i]), lo = pad.n ? pad.p[2 * i] : 0;
        pl[2 * i] = win - lo - 1;
        pl[2 * i + 1] = in + win - 1 - out - pl[2 * i];
        pr[2 * i] = lo;
        pr[2 * i + 1] = out - in + win - lo - 1;
    }
    if (xl_cot_active(g, x)) {
        int64_t groups = fgc > 1 ? fgc : bgc;
        xl_value kern = groups > 1 ? regroup(g, w, r.batch, groups, r.feature) : w;
        if (n)
            kern = xl_em_reverse(&g->e, kern, r.spatial);
        const xl_type *out = tx;
        if (bgc > 1) {
            int64_t *d = xl_new(mem(g), int64_t, tx->rank);
            memcpy(d, tx->dims, tx->rank * sizeof *d);
            d[l.batch] /= bgc;
            d[l.feature] *= bgc;
            out = xl_type_tensor(g->e.f->m, tx->dtype, (xl_dims){ d, tx->rank });
        }
        xl_value v = conv(g, op, t, kern, o, swapped(r), l, out, ldil, pl, stride, rdil, groups, 1);
        xl_cot_add(g, x, bgc > 1 ? regroup(g, v, l.feature, bgc, l.batch) : v);
    }
    if (xl_cot_active(g, op->in[1])) {
        xl_value v = conv(g, op, x, t, swapped(l), swapped(o), swapped(r), tw, rdil, pr, ldil, stride,
                          bgc > 1 ? bgc : 1, fgc > 1 ? fgc : 1);
        xl_cot_add(g, op->in[1], flipped.n ? xl_em_reverse(&g->e, v, flipped) : v);
    }
    return NULL;
}

/* ---- collectives: one device's result depends on the others' operands, so cotangents travel too ---- */
static xl_op *again(xl_grad_ctx *g, xl_op *op, xl_opcode code, xl_value ct, const xl_type *out, uint32_t nregion)
{
    xl_op *c = xl_op_new(g->e.f, g->e.r, code, &ct, 1, &out, 1, nregion, g->e.loc);
    c->extra = op->extra;
    return c;
}

RULE(all_reduce)
{
    if (op->nin != 1 || combiner(op->region[0]) != XL_OP_ADD)
        return XL_ERR(UNIMPLEMENTED, "an all_reduce of several tensors, or by another function than a sum");
    uint32_t n;
    xl_value *map = xl_cot_map(g->e.f, &n);
    map[op->in[0].id] = ct[0];
    xl_cot_add(g, op->in[0], xl_op_clone(g->e.f, g->e.r, g->e.f, op, map)->out[0]);
    return NULL;
}

RULE(all_gather)
{
    if (op->nin != 1)
        return XL_ERR(UNIMPLEMENTED, "an all_gather of several tensors at once; gather each on its own");
    xl_op *c = again(g, op, XL_OP_REDUCE_SCATTER, ct[0], xl_in_type(g->e.f, op, 0), 1);
    xl_op_set(c, XL_SLOT(REDUCE_SCATTER, scatter_dimension), op->attr[XL_SLOT(ALL_GATHER, all_gather_dim)]);
    xl_op_set(c, XL_SLOT(REDUCE_SCATTER, replica_groups), op->attr[XL_SLOT(ALL_GATHER, replica_groups)]);
    xl_op_set(c, XL_SLOT(REDUCE_SCATTER, channel_id), op->attr[XL_SLOT(ALL_GATHER, channel_id)]);
    xl_op_set(c, XL_SLOT(REDUCE_SCATTER, use_global_device_ids), op->attr[XL_SLOT(ALL_GATHER, use_global_device_ids)]);
    xl_em_combiner(&g->e, c->region[0], XL_OP_ADD, type_of(g, ct[0])->dtype);
    xl_cot_add(g, op->in[0], c->out[0]);
    return NULL;
}

RULE(reduce_scatter)
{
    if (combiner(op->region[0]) != XL_OP_ADD)
        return XL_ERR(UNIMPLEMENTED, "a reduce_scatter by another function than a sum");
    xl_op *c = again(g, op, XL_OP_ALL_GATHER, ct[0], xl_in_type(g->e.f, op, 0), 0);
    xl_op_set(c, XL_SLOT(ALL_GATHER, all_gather_dim), op->attr[XL_SLOT(REDUCE_SCATTER, scatter_dimension)]);
    xl_op_set(c, XL_SLOT(ALL_GATHER, replica_groups), op->attr[XL_SLOT(REDUCE_SCATTER, replica_groups)]);
    xl_op_set(c, XL_SLOT(ALL_GATHER, channel_id), op->attr[XL_SLOT(REDUCE_SCATTER, channel_id)]);
    xl_op_set(c, XL_SLOT(ALL_GATHER, use_global_device_ids), op->attr[XL_SLOT(REDUCE_SCATTER, use_global_device_ids)]);
    xl_cot_add(g, op->in[0], c->out[0]);
    return NULL;
}

RULE(all_to_all)
{
    if (op->nin != 1)
        return XL_ERR(UNIMPLEMENTED, "an all_to_all of several tensors at once; exchange each on its own");
    xl_op *c = again(g, op, XL_OP_ALL_TO_ALL, ct[0], xl_in_type(g->e.f, op, 0), 0);
    memcpy(c->attr, op->attr, xl_op_nattr(XL_OP_ALL_TO_ALL) * sizeof *c->attr);
    xl_op_set(c, XL_SLOT(ALL_TO_ALL, concat_dimension), op->attr[XL_SLOT(ALL_TO_ALL, split_dimension)]);
    xl_op_set(c, XL_SLOT(ALL_TO_ALL, split_dimension), op->attr[XL_SLOT(ALL_TO_ALL, concat_dimension)]);
    xl_cot_add(g, op->in[0], c->out[0]);
    return NULL;
}

RULE(collective_permute)
{
    xl_dims p = xl_op_dims(op, XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs));
    int64_t *rev = xl_new(mem(g), int64_t, p.n);
    for (size_t i = 0; i + 1 < p.n; i += 2) {
        rev[i] = p.p[i + 1];
        rev[i + 1] = p.p[i];
    }
    xl_op *c = again(g, op, XL_OP_COLLECTIVE_PERMUTE, ct[0], xl_in_type(g->e.f, op, 0), 0);
    xl_op_set(c, XL_SLOT(COLLECTIVE_PERMUTE, channel_id), op->attr[XL_SLOT(COLLECTIVE_PERMUTE, channel_id)]);
    set_dims(g, c, XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs), rev, (uint32_t)p.n);
    xl_cot_add(g, op->in[0], c->out[0]);
    return NULL;
}
