/* Inference for contractions, convolutions, reductions, windows, transforms and normalisation. */
#include "ir/infer/infer.h"

#define START() do { xl_error *err_ = xl_need_tensors(c); if (err_) return err_; } while (0)
#define DIMS(d, rank, sorted, what)                                                                                    \
    do {                                                                                                               \
        xl_error *err_ = xl_need_dims(c, (d), (rank), (sorted), (what));                                               \
        if (err_)                                                                                                      \
            return err_;                                                                                               \
    } while (0)
#define LL(x) ((long long)(x))

/* A tensor of the element type that the op says it gives (dots may widen), or that of t. */
static const xl_type *result(xl_infer_ctx *c, const xl_type *t, const int64_t *dims, uint32_t rank)
{
    const xl_type *has = c->out[0];
    xl_dtype d = has && has->kind == XL_TY_TENSOR ? has->dtype : t->dtype;
    const xl_type *r = xl_type_tensor(c->m, d, (xl_dims){ dims, rank });
    return has && has->quant && xl_shape_like(has, r) ? has : r;
}

static int64_t *new_dims(xl_infer_ctx *c, size_t rank) { return xl_new(&c->m->arena, int64_t, rank); }

static bool is_float_or_complex(xl_dtype d)
{
    return xl_dtype_class(d) == XL_CLASS_FLOAT || xl_dtype_class(d) == XL_CLASS_COMPLEX;
}

/* ---- dots ------------------------------------------------------------------------------------------------------- */
static xl_error *need_precisions(xl_infer_ctx *c, uint32_t slot)
{
    const xl_attr *a = c->op->attr[slot];
    NEED(!a || a->n == 0 || a->n == 2, "precision_config has %u entries, expected 2", a->n);
    for (uint32_t i = 0; a && i < a->n; i++)
        NEED(a->item[i]->kind == XL_AT_ENUM && a->item[i]->which == XL_ENUM_PRECISION,
             "precision_config must hold precisions");
    return NULL;
}

static xl_error *elements_meet(xl_infer_ctx *c)
{
    const xl_type *a = IN(0), *b = IN(1);
    NEED(xl_dtype_class(a->dtype) == xl_dtype_class(b->dtype) || a->quant || b->quant,
         "operand types differ, %s and %s", SHOW(a), SHOW(b));
    return NULL;
}

RULE(dot)
{
    START();
    const xl_type *a = IN(0), *b = IN(1);
    xl_error *err = need_precisions(c, XL_SLOT(DOT, precision_config));
    if (!err)
        err = elements_meet(c);
    if (err)
        return err;
    NEED(a->rank >= 1 && a->rank <= 2 && b->rank >= 1 && b->rank <= 2,
         "operands must be vectors or matrices, not %s and %s", SHOW(a), SHOW(b));
    NEED(xl_dim_like(a->dims[a->rank - 1], b->dims[0]),
         "contracting sizes differ, %lld (lhs dim %u) and %lld (rhs dim 0)", LL(a->dims[a->rank - 1]), a->rank - 1,
         LL(b->dims[0]));
    int64_t d[2];
    uint32_t n = 0;
    if (a->rank == 2)
        d[n++] = a->dims[0];
    if (b->rank == 2)
        d[n++] = b->dims[1];
    c->out[0] = result(c, a, d, n);
    return NULL;
}

static bool has(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}

/* An algorithm says all that a precision would. Which of them there are is the device's affair. */
static xl_error *need_algorithm(xl_infer_ctx *c)
{
    static const uint32_t count[] = { XL_SLOT(DOT_GENERAL, lhs_component_count),
                                      XL_SLOT(DOT_GENERAL, rhs_component_count),
                                      XL_SLOT(DOT_GENERAL, num_primitive_operations) };
    static const char *const name[] = { "lhs_component_count", "rhs_component_count", "num_primitive_operations" };
    for (int i = 0; i < 3; i++)
        NEED(!c->op->attr[count[i]] || xl_op_int(c->op, count[i]) > 0, "%s is %lld, expected a positive number",
             name[i], LL(xl_op_int(c->op, count[i])));
    NEED(!XL_ATTR(c->op, DOT_GENERAL, accumulation_type) || !XL_ATTR(c->op, DOT_GENERAL, precision_config),
         "has an algorithm and a precision; with an algorithm the precision must be DEFAULT");
    return NULL;
}

RULE(dot_general)
{
    START();
    const xl_type *a = IN(0), *b = IN(1);
    xl_dims lb = xl_op_dims(c->op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)),
            rb = xl_op_dims(c->op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions)),
            lc = xl_op_dims(c->op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)),
            rc = xl_op_dims(c->op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions));
    xl_error *err = need_precisions(c, XL_SLOT(DOT_GENERAL, precision_config));
    if (!err)
        err = elements_meet(c);
    if (err)
        return err;
    if ((err = need_algorithm(c)))
        return err;
    NEED(lb.n == rb.n, "lhs has %zu batching dimensions and rhs %zu", lb.n, rb.n);
    NEED(lc.n == rc.n, "lhs has %zu contracting dimensions and rhs %zu", lc.n, rc.n);
    DIMS(lb, a->rank, false, "lhs_batching_dimensions");
    DIMS(rb, b->rank, false, "rhs_batching_dimensions");
    DIMS(lc, a->rank, false, "lhs_contracting_dimensions");
    DIMS(rc, b->rank, false, "rhs_contracting_dimensions");
    for (size_t i = 0; i < lb.n; i++) {
        NEED(!has(lc, lb.p[i]), "lhs dim %lld is both batching and contracting", LL(lb.p[i]));
        NEED(!has(rc, rb.p[i]), "rhs dim %lld is both batching and contracting", LL(rb.p[i]));
        NEED(xl_dim_like(a->dims[lb.p[i]], b->dims[rb.p[i]]),
             "batching sizes differ, %lld (lhs dim %lld) and %lld (rhs dim %lld)", LL(a->dims[lb.p[i]]), LL(lb.p[i]),
             LL(b->dims[rb.p[i]]), LL(rb.p[i]));
    }
    for (size_t i = 0; i < lc.n; i++)
        NEED(xl_dim_like(a->dims[lc.p[i]], b->dims[rc.p[i]]),
             "contracting sizes differ, %lld (lhs dim %lld) and %lld (rhs dim %lld)", LL(a->dims[lc.p[i]]), LL(lc.p[i]),
             LL(b->dims[rc.p[i]]), LL(rc.p[i]));
    int64_t *d = new_dims(c, (size_t)a->rank + b->rank);
    uint32_t n = 0;
    for (size_t i = 0; i < lb.n; i++)
        d[n++] = a->dims[lb.p[i]] >= 0 ? a->dims[lb.p[i]] : b->dims[rb.p[i]];
    for (uint32_t i = 0; i < a->rank; i++)
        if (!has(lb, i) && !has(lc, i))
            d[n++] = a->dims[i];
    for (uint32_t i = 0; i < b->rank; i++)
        if (!has(rb, i) && !has(rc, i))
            d[n++] = b->dims[i];
    c->out[0] = result(c, a, d, n);
    return NULL;
}

/* A product whose rows fall into groups: group_sizes says how many of the ragged dimension belong to each. */
RULE(ragged_dot)
{
    xl_error *err = xl_need_given(c);
    const xl_attr *n = XL_ATTR(c->op, CHLO_RAGGED_DOT, ragged_dot_dimension_numbers);
    NEED(c->op->nin == 3, "has %u operands, expected lhs, rhs and group_sizes", c->op->nin);
    if (!err)
        err = xl_need_tensors(c);
    if (err || n->kind != XL_AT_STRUCT) /* a form of the numbers that is not known here is the device's affair */
        return err;
    static const char *const key[6] = { "lhs_batching_dimensions",    "rhs_batching_dimensions",
                                        "lhs_contracting_dimensions", "rhs_contracting_dimensions",
                                        "lhs_ragged_dimensions",      "rhs_group_dimensions" };
    const xl_type *a = IN(0), *b = IN(1), *g = IN(2);
    xl_dims d[6];
    for (int i = 0; i < 6; i++) {
        const xl_attr *l = xl_dict_get(n, xl_str_of(key[i]));
        NEED(!l || l->kind == XL_AT_INTS, "%s must be a list of dimensions", key[i]);
        d[i] = l ? (xl_dims){ l->ints, l->n } : (xl_dims){ NULL, 0 };
        DIMS(d[i], i % 2 ? b->rank : a->rank, false, key[i]);
        for (int k = i % 2; k < i; k += 2)
            for (size_t j = 0; j < d[i].n; j++)
                NEED(!has(d[k], d[i].p[j]) || i == 4, "%s and %s both have %lld", key[k], key[i], LL(d[i].p[j]));
    }
    xl_dims lb = d[0], rb = d[1], lc = d[2], rc = d[3], ragged = d[4], group = d[5];
    NEED(lb.n == rb.n && lc.n == rc.n, "lhs has %zu batching and %zu contracting dimensions, rhs %zu and %zu", lb.n,
         lc.n, rb.n, rc.n);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < d[2 * i].n; k++)
            NEED(xl_dim_like(a->dims[d[2 * i].p[k]], b->dims[d[2 * i + 1].p[k]]),
                 "%s sizes differ, %lld (lhs dim %lld) and %lld (rhs dim %lld)", i ? "contracting" : "batching",
                 LL(a->dims[d[2 * i].p[k]]), LL(d[2 * i].p[k]), LL(b->dims[d[2 * i + 1].p[k]]), LL(d[2 * i + 1].p[k]));
    NEED(ragged.n == 1, "has %zu ragged dimensions, expected 1", ragged.n);
    bool contracted = has(lc, ragged.p[0]), batched = has(lb, ragged.p[0]), rows = !contracted && !batched;
    NEED(group.n == (rows ? 1 : 0), "has %zu group dimensions in the rhs, expected %d where the ragged one is %s",
         group.n, rows, rows ? "a row of lhs" : "batched or contracted");
    NEED(xl_is_int(g->dtype) && g->rank >= 1, "group_sizes must be lists of integers, not %s", SHOW(g));
    int64_t groups = g->dims[g->rank - 1];
    NEED(!rows || xl_dim_like(b->dims[group.p[0]], groups), "there are %lld group sizes, rhs has %lld groups",
         LL(groups), LL(rows ? b->dims[group.p[0]] : 0));
    if (g->rank == 1)
        return NULL;
    /* A list for each index of what comes before the ragged dimension: batches, then other rows or contracted
     * dimensions. */
    int64_t *want = new_dims(c, (size_t)a->rank + 1);
    uint32_t nwant = 0;
    for (size_t i = 0; i < lb.n && !(batched && lb.p[i] == ragged.p[0]); i++)
        want[nwant++] = a->dims[lb.p[i]];
    for (int64_t i = 0; rows && i < ragged.p[0]; i++)
        if (!has(lb, i) && !has(lc, i))
            want[nwant++] = a->dims[i];
    for (size_t i = 0; contracted && i < lc.n && lc.p[i] != ragged.p[0]; i++)
        want[nwant++] = a->dims[lc.p[i]];
    want[nwant++] = groups;
    const xl_type *t = xl_type_tensor(c->m, g->dtype, (xl_dims){ want, nwant });
    NEED(xl_shape_like(t, g), "group_sizes is %s, expected %s", SHOW(g), SHOW(t));
    return NULL;
}

/* inputs (each with the scanned dimension), then carries; the body takes a slice of each input and the carries, and
 * returns a slice of each output and the carries again. */
RULE(scan)
{
    const xl_op *end;
    xl_error *err = xl_need_given(c);
    if (!err)
        err = xl_need_tensors(c);
    if (!err)
        err = xl_need_region(c, 0, c->op->nin, &end);
    if (err)
        return err;
    int64_t dim = xl_op_int(c->op, XL_SLOT(CHLO_SCAN, dimension));
    NEED(end->nin == c->nout, "the body returns %u values, the op has %u results", end->nin, c->nout);
    for (uint32_t i = 0; i < c->nout; i++) {
        const xl_type *t = xl_in_type(c->f, end, i), *r = c->out[i];
        NEED(t->kind == XL_TY_TENSOR && r->kind == XL_TY_TENSOR && t->dtype == r->dtype,
             "the body returns %s as value %u, the result is %s", SHOW(t), i, SHOW(r));
        NEED(r->unranked || t->unranked || r->rank == t->rank ||
                 (r->rank == t->rank + 1 && dim >= 0 && dim < (int64_t)r->rank),
             "the body returns %s as value %u, the result is %s", SHOW(t), i, SHOW(r));
    }
    return NULL;
}

/* ---- convolution ------------------------------------------------------------------------------------------------ */
typedef struct {                                           /* slots, since the two ops number them differently */
    uint32_t batch_groups, feature_groups, in_batch, in_feature, in_spatial, k_in, k_out, k_spatial, lhs_dil, out_batch,
        out_feature, out_spatial, precision, rhs_dil, reversal, strides;
} conv_slots;

static xl_error *need_all_dims(xl_infer_ctx *c, int64_t x, int64_t y, xl_dims spatial, uint32_t rank, const char *what)
{
    NEED(spatial.n + 2 == rank, "the %s has %zu spatial dimensions, expected %u", what, spatial.n, rank - 2);
    int64_t *all = new_dims(c, rank);
    all[0] = x;
    all[1] = y;
    if (spatial.n)
        memcpy(all + 2, spatial.p, spatial.n * sizeof *all);
    char text[64];
    strcpy(text, "the dimension numbers of the ");
    strncat(text, what, 20);
    return xl_need_dims(c, (xl_dims){ all, rank }, rank, false, text);
}

static xl_error *need_positive(xl_infer_ctx *c, xl_dims d, size_t n, const char *what)
{
    NEED(d.n == 0 || d.n == n, "%s has %zu entries, expected %zu", what, d.n, n);
    for (size_t i = 0; i < d.n; i++)
        NEED(d.p[i] > 0, "%s has %lld, expected a positive number", what, LL(d.p[i]));
    return NULL;
}

static xl_error *conv(xl_infer_ctx *c, const conv_slots *s, const xl_dims *padding)
{
    START();
    const xl_op *op = c->op;
    const xl_type *a = IN(0), *k = IN(1);
    xl_error *err = elements_meet(c);
    if (!err)
        err = need_precisions(c, s->precision);
    if (err)
        return err;
    NEED(a->dtype == k->dtype || a->quant || k->quant, "operand types differ, %s and %s", SHOW(a), SHOW(k));
    NEED(a->rank == k->rank && a->rank >= 2, "operands must have one rank of at least 2, not %s and %s", SHOW(a),
         SHOW(k));
    uint32_t rank = a->rank, ns = rank - 2;
    int64_t ib = xl_op_int(op, s->in_batch), inf = xl_op_int(op, s->in_feature), ki = xl_op_int(op, s->k_in),
            ko = xl_op_int(op, s->k_out), ob = xl_op_int(op, s->out_batch), of = xl_op_int(op, s->out_feature),
            fg = xl_op_int(op, s->feature_groups), bg = xl_op_int(op, s->batch_groups);
    xl_dims is = xl_op_dims(op, s->in_spatial), ks = xl_op_dims(op, s->k_spatial), os = xl_op_dims(op, s->out_spatial);
    xl_dims st = xl_op_dims(op, s->strides), ld = xl_op_dims(op, s->lhs_dil), rd = xl_op_dims(op, s->rhs_dil),
            rev = xl_op_dims(op, s->reversal);
    if ((err = need_all_dims(c, ib, inf, is, rank, "input")) || (err = need_all_dims(c, ki, ko, ks, rank, "kernel")) ||
        (err = need_all_dims(c, ob, of, os, rank, "output")) || (err = need_positive(c, st, ns, "window_strides")) ||
        (err = need_positive(c, ld, ns, "lhs_dilation")) || (err = need_positive(c, rd, ns, "rhs_dilation")))
        return err;
    NEED(rev.n == 0 || rev.n == ns, "window_reversal has %zu entries, expected %u", rev.n, ns);
    NEED(!padding || padding->n == 0 || padding->n == 2 * (size_t)ns, "padding has %zu numbers, expected %u",
         padding->n, 2 * ns);
    NEED(fg > 0 && bg > 0, "feature_group_count and batch_group_count must be positive, not %lld and %lld", LL(fg),
         LL(bg));
    NEED(fg == 1 || bg == 1, "only one of feature_group_count and batch_group_count may be above 1, not %lld and %lld",
         LL(fg), LL(bg));
    int64_t nb = a->dims[ib], nf = a->dims[inf], nki = k->dims[ki], nko = k->dims[ko];
    NEED(nb < 0 || nb % bg == 0, "%lld (input batch) is not a multiple of batch_group_count, %lld", LL(nb), LL(bg));
    NEED(nf < 0 || nf % fg == 0, "%lld (input feature) is not a multiple of feature_group_count, %lld", LL(nf), LL(fg));
    NEED(nko < 0 || nko % bg == 0, "%lld (kernel output feature) is not a multiple of batch_group_count, %lld", LL(nko),
         LL(bg));
    NEED(nko < 0 || nko % fg == 0, "%lld (kernel output feature) is not a multiple of feature_group_count, %lld",
         LL(nko), LL(fg));
    NEED(nf < 0 || nki < 0 || nf / fg == nki,
         "feature sizes differ, %lld (input dim %lld) / %lld groups and %lld (kernel dim %lld)", LL(nf), LL(inf),
         LL(fg), LL(nki), LL(ki));
    int64_t *d = new_dims(c, rank);
    d[ob] = nb < 0 ? XL_DYN : nb / bg;
    d[of] = nko;
    for (uint32_t i = 0; i < ns; i++) {
        int64_t lo = padding && padding->n ? padding->p[2 * i] : 0,
                hi = padding && padding->n ? padding->p[2 * i + 1] : 0;
        int64_t n = !padding ? XL_DYN
                             : xl_window_size(a->dims[is.p[i]], k->dims[ks.p[i]], xl_dims_at(st, i, 1), lo, hi,
                                              xl_dims_at(ld, i, 1), xl_dims_at(rd, i, 1));
        NEED(n >= 0 || n == XL_DYN,
             "spatial dim %u of %lld elements with a window of %lld and padding %lld, %lld has no size", i,
             LL(a->dims[is.p[i]]), LL(k->dims[ks.p[i]]), LL(lo), LL(hi));
        d[os.p[i]] = n;
    }
    c->out[0] = result(c, a, d, rank);
    return NULL;
}

#define CONV_SLOTS(OP)                                                                                                 \
    {                                                                                                                  \
        XL_SLOT(OP, batch_group_count), XL_SLOT(OP, feature_group_count), XL_SLOT(OP, input_batch_dimension),          \
            XL_SLOT(OP, input_feature_dimension), XL_SLOT(OP, input_spatial_dimensions),                               \
            XL_SLOT(OP, kernel_input_feature_dimension), XL_SLOT(OP, kernel_output_feature_dimension),                 \
            XL_SLOT(OP, kernel_spatial_dimensions), XL_SLOT(OP, lhs_dilation), XL_SLOT(OP, output_batch_dimension),    \
            XL_SLOT(OP, output_feature_dimension), XL_SLOT(OP, output_spatial_dimensions),                             \
            XL_SLOT(OP, precision_config), XL_SLOT(OP, rhs_dilation), XL_SLOT(OP, window_reversal),                    \
            XL_SLOT(OP, window_strides)                                                                                \
    }

RULE(convolution)
{
    static const conv_slots s = CONV_SLOTS(CONVOLUTION);
    xl_dims padding = xl_op_dims(c->op, XL_SLOT(CONVOLUTION, padding));
    return conv(c, &s, &padding);
}

RULE(dynamic_conv)
{
    static const conv_slots s = CONV_SLOTS(DYNAMIC_CONV);
    const xl_type *p = IN(2);
    NEED(p->kind == XL_TY_TENSOR && p->rank == 2 && xl_is_int(p->dtype),
         "the padding must be a matrix of integers, not %s", SHOW(p));
    NEED(xl_dim_like(p->dims[1], 2) &&
             (IN(0)->kind != XL_TY_TENSOR || IN(0)->rank < 2 || xl_dim_like(p->dims[0], (int64_t)IN(0)->rank - 2)),
         "the padding is %s, expected a pair for each spatial dimension of %s", SHOW(p), SHOW(IN(0)));
    return conv(c, &s, NULL);
}

/* ---- reductions ------------------------------------------------------------------------------------------------- */
/* The computation of a reduction over n inputs: 2n scalars to n, of an element type no narrower than the input's. */
static xl_error *need_computation(xl_infer_ctx *c, uint32_t which, uint32_t n, const xl_op **end)
{
    xl_error *err = xl_need_region(c, which, 2 * n, end);
    if (err)
        return err;
    NEED((*end)->nin == n, "the computation returns %u values, expected %u", (*end)->nin, n);
    for (uint32_t i = 0; i < n; i++) {
        const xl_type *t = IN(i), *r = xl_in_type(c->f, *end, i);
        NEED(xl_is_scalar(r) && (xl_promotable(t->dtype, r->dtype) || t->quant),
             "the computation returns %s, expected a scalar %s or wider", SHOW(r), xl_dtypes[t->dtype].text);
        for (uint32_t k = i; k < 2 * n; k += n) {
            const xl_type *arg = xl_value_type(c->f, c->op->region[which]->arg[k]);
            NEED(xl_is_scalar(arg) && (arg->dtype == r->dtype || t->quant),
                 "argument %u of the computation is %s, expected a scalar %s", k, SHOW(arg), xl_dtypes[r->dtype].text);
        }
    }
    return NULL;
}

static xl_error *need_inputs_and_inits(xl_infer_ctx *c)
{
    uint32_t n = c->op->nin / 2;
    NEED(c->op->nin >= 2 && c->op->nin % 2 == 0 && c->nout == n,
         "has %u operands and %u results; expected n inputs, n initial values, n results", c->op->nin, c->nout);
    for (uint32_t i = 0; i < n; i++) {
        NEED(xl_shape_like(IN(0), IN(i)), "input %u is %s, input 0 %s: the shapes differ", i, SHOW(IN(i)), SHOW(IN(0)));
        NEED(IN(n + i)->rank == 0, "initial value %u is %s, expected a scalar", i, SHOW(IN(n + i)));
        NEED(IN(n + i)->dtype == IN(i)->dtype || xl_promotable(IN(n + i)->dtype, IN(i)->dtype) ||
                 xl_promotable(IN(i)->dtype, IN(n + i)->dtype) || IN(i)->quant,
             "initial value %u is %s, the input %s: the types differ", i, SHOW(IN(n + i)), SHOW(IN(i)));
    }
    return NULL;
}

RULE(reduce)
{
    START();
    const xl_op *end;
    uint32_t n = c->op->nin / 2;
    xl_error *err = need_inputs_and_inits(c);
    if (!err)
        err = need_computation(c, 0, n, &end);
    if (err)
        return err;
    xl_dims dims = xl_op_dims(c->op, XL_SLOT(REDUCE, dimensions));
    DIMS(dims, IN(0)->rank, false, "dimensions");
    for (uint32_t i = 0; i < n; i++) {
        const xl_type *t = IN(i);
        int64_t *d = new_dims(c, t->rank), *b = new_dims(c, t->rank);
        uint32_t rank = 0;
        bool bounded = false;
        for (uint32_t k = 0; k < t->rank; k++)
            if (!has(dims, k)) {
                b[rank] = t->bounds ? t->bounds[k] : XL_DYN;
                bounded = bounded || b[rank] >= 0;
                d[rank++] = t->dims[k];
            }
        if (t->quant && c->out[i])
            continue;
        c->out[i] = xl_type_bounded(c->m, xl_in_type(c->f, end, i)->dtype, (xl_dims){ d, rank }, bounded ? b : NULL);
    }
    return NULL;
}

static xl_error *need_window(xl_infer_ctx *c, uint32_t rank, xl_dims size, xl_dims stride, xl_dims base, xl_dims win,
                             xl_dims pad)
{
    NEED(size.n == rank, "window_dimensions has %zu entries, expected the rank, %u", size.n, rank);
    xl_error *err;
    if ((err = need_positive(c, size, rank, "window_dimensions")) ||
        (err = need_positive(c, stride, rank, "window_strides")) ||
        (err = need_positive(c, base, rank, "base_dilations")) ||
        (err = need_positive(c, win, rank, "window_dilations")))
        return err;
    NEED(pad.n == 0 || pad.n == 2 * (size_t)rank, "padding has %zu numbers, expected %u", pad.n, 2 * rank);
    return NULL;
}

static xl_error *windowed(xl_infer_ctx *c, const xl_type *t, xl_dims size, xl_dims stride, xl_dims base, xl_dims win,
                          xl_dims pad, int64_t *d)
{
    for (uint32_t k = 0; k < t->rank; k++) {
        d[k] = xl_window_size(t->dims[k], size.p[k], xl_dims_at(stride, k, 1), xl_dims_at(pad, 2 * (size_t)k, 0),
                              xl_dims_at(pad, 2 * (size_t)k + 1, 0), xl_dims_at(base, k, 1), xl_dims_at(win, k, 1));
        NEED(d[k] >= 0 || d[k] == XL_DYN, "dim %u of %lld elements with a window of %lld has no size", k,
             LL(t->dims[k]), LL(size.p[k]));
    }
    return NULL;
}

RULE(reduce_window)
{
    START();
    const xl_op *end, *op = c->op;
    uint32_t n = op->nin / 2;
    xl_error *err = need_inputs_and_inits(c);
    if (!err)
        err = need_computation(c, 0, n, &end);
    if (err)
        return err;
    uint32_t rank = IN(0)->rank;
    xl_dims size = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dimensions)),
            stride = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_strides)),
            base = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, base_dilations)),
            win = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dilations)),
            pad = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, padding));
    if ((err = need_window(c, rank, size, stride, base, win, pad)))
        return err;
    for (uint32_t i = 0; i < n; i++) {
        int64_t *d = new_dims(c, rank);
        if ((err = windowed(c, IN(i), size, stride, base, win, pad, d)))
            return err;
        if (!(IN(i)->quant && c->out[i]))
            c->out[i] = xl_type_tensor(c->m, xl_in_type(c->f, end, i)->dtype, (xl_dims){ d, rank });
    }
    return NULL;
}

RULE(select_and_scatter)
{
    START();
    const xl_op *end, *op = c->op;
    const xl_type *t = IN(0), *src = IN(1);
    xl_dims size = xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, window_dimensions)),
            stride = xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, window_strides)),
            pad = xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, padding)), none = { NULL, 0 };
    if (size.n == 0) {                                     /* all ones is the default */
        int64_t *ones = new_dims(c, t->rank);
        for (uint32_t i = 0; i < t->rank; i++)
            ones[i] = 1;
        size = (xl_dims){ ones, t->rank };
    }
    NEED(t->dtype == src->dtype || t->quant, "the operand is %s and the source %s: the types differ", SHOW(t),
         SHOW(src));
    NEED(xl_is_scalar(IN(2)) && (IN(2)->dtype == t->dtype || t->quant), "the initial value is %s, expected a scalar %s",
         SHOW(IN(2)), xl_dtypes[t->dtype].text);
    NEED(src->rank == t->rank, "the operand is %s and the source %s: the ranks differ", SHOW(t), SHOW(src));
    int64_t *d = new_dims(c, t->rank);
    xl_error *err = need_window(c, t->rank, size, stride, none, none, pad);
    if (!err)
        err = windowed(c, t, size, stride, none, none, pad, d);
    if (!err)
        err = xl_need_region(c, 0, 2, &end);
    if (err)
        return err;
    for (uint32_t i = 0; i < 2; i++) {
        const xl_type *arg = xl_value_type(c->f, op->region[0]->arg[i]);
        NEED(xl_is_scalar(arg) && (arg->dtype == t->dtype || t->quant),
             "argument %u of select is %s, expected a scalar %s", i, SHOW(arg), xl_dtypes[t->dtype].text);
    }
    for (uint32_t i = 0; i < t->rank; i++)
        NEED(xl_dim_like(d[i], src->dims[i]), "the source has %lld elements in dim %u, the windows make %lld",
             LL(src->dims[i]), i, LL(d[i]));
    NEED(end->nin == 1 && xl_is_scalar(xl_in_type(c->f, end, 0)) && xl_in_type(c->f, end, 0)->dtype == XL_I1,
         "select must return one scalar boolean");
    err = xl_need_region(c, 1, 2, &end);
    if (err)
        return err;
    const xl_type *r = end->nin == 1 ? xl_in_type(c->f, end, 0) : NULL;
    NEED(r && xl_is_scalar(r) && (xl_promotable(t->dtype, r->dtype) || t->quant), "scatter must return one scalar %s",
         xl_dtypes[t->dtype].text);
    for (uint32_t i = 0; i < 2; i++) {
        const xl_type *arg = xl_value_type(c->f, op->region[1]->arg[i]);
        NEED(xl_is_scalar(arg) && (arg->dtype == r->dtype || t->quant),
             "argument %u of scatter is %s, expected a scalar %s", i, SHOW(arg), xl_dtypes[r->dtype].text);
    }
    if (!(t->quant && c->out[0]))
        c->out[0] = xl_type_with_dtype(c->m, t, r->dtype);
    return NULL;
}

/* ---- factorisations and transforms ------------------------------------------------------------------------------ */
RULE(cholesky)
{
    START();
    const xl_type *t = IN(0);
    NEED(is_float_or_complex(t->dtype), "the operand must hold floats or complex numbers, not %s", SHOW(t));
    NEED(t->rank >= 2 && xl_dim_like(t->dims[t->rank - 1], t->dims[t->rank - 2]),
         "the operand must be square matrices, not %s", SHOW(t));
    c->out[0] = t;
    return NULL;
}

RULE(triangular_solve)
{
    START();
    const xl_type *a = IN(0), *b = IN(1);
    NEED(is_float_or_complex(a->dtype) && a->dtype == b->dtype,
         "operands must hold floats or complex numbers of one type, not %s and %s", SHOW(a), SHOW(b));
    NEED(a->rank >= 2 && a->rank == b->rank, "operands must have one rank of at least 2, not %s and %s", SHOW(a),
         SHOW(b));
    NEED(xl_dim_like(a->dims[a->rank - 1], a->dims[a->rank - 2]), "a must be square, not %s", SHOW(a));
    for (uint32_t i = 0; i + 2 < a->rank; i++)
        NEED(xl_dim_like(a->dims[i], b->dims[i]), "batch sizes of dim %u differ, %lld and %lld", i, LL(a->dims[i]),
             LL(b->dims[i]));
    uint32_t side = xl_op_int(c->op, XL_SLOT(TRIANGULAR_SOLVE, left_side)) ? b->rank - 2 : b->rank - 1;
    NEED(xl_dim_like(a->dims[a->rank - 1], b->dims[side]), "sizes differ, %lld (a) and %lld (b dim %u)",
         LL(a->dims[a->rank - 1]), LL(b->dims[side]), side);
    NEED(xl_op_int(c->op, XL_SLOT(TRIANGULAR_SOLVE, transpose_a)) != XL_TRANSPOSE_TRANSPOSE_INVALID,
         "transpose_a is TRANSPOSE_INVALID");
    c->out[0] = b;
    return NULL;
}

RULE(fft)
{
    START();
    const xl_type *t = IN(0);
    xl_dims len = xl_op_dims(c->op, XL_SLOT(FFT, fft_length));
    int64_t kind = xl_op_int(c->op, XL_SLOT(FFT, fft_type));
    bool real_in = kind == XL_FFT_TYPE_RFFT, real_out = kind == XL_FFT_TYPE_IRFFT;
    NEED(len.n >= 1 && len.n <= 3 && len.n <= t->rank,
         "fft_length has %zu entries, the operand is %s; expected 1 to 3, at most the rank", len.n, SHOW(t));
    NEED(real_in ? t->dtype == XL_F32 || t->dtype == XL_F64 : xl_dtype_class(t->dtype) == XL_CLASS_COMPLEX,
         "%s takes %s numbers, not %s", xl_enum_text(XL_ENUM_FFT_TYPE, kind), real_in ? "real" : "complex", SHOW(t));
    int64_t *d = new_dims(c, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    for (size_t i = 0; i < len.n; i++) {
        uint32_t at = t->rank - (uint32_t)len.n + (uint32_t)i;
        bool last = i + 1 == len.n;
        NEED(len.p[i] >= 0, "fft_length has %lld", LL(len.p[i]));
        int64_t want = real_out && last ? (len.p[i] ? len.p[i] / 2 + 1 : 0) : len.p[i];
        bool none = real_out && last && len.p[i] == 0 && t->dims[at] == 1; /* JAX: 0 / 2 + 1 */
        NEED(none || xl_dim_like(t->dims[at], want), "dim %u has %lld elements, fft_length %lld needs %lld", at,
             LL(t->dims[at]), LL(len.p[i]), LL(want));
        d[at] = real_in && last ? (len.p[i] ? len.p[i] / 2 + 1 : 0) : len.p[i];
    }
    xl_dtype e = real_in ? (t->dtype == XL_F64 ? XL_C128 : XL_C64) : real_out ? xl_dtype_part(t->dtype) : t->dtype;
    c->out[0] = xl_type_tensor(c->m, e, (xl_dims){ d, t->rank });
    return NULL;
}

/* ---- normalisation ---------------------------------------------------------------------------------------------- */
static xl_error *need_features(xl_infer_ctx *c, uint32_t slot, uint32_t first, uint32_t last, int64_t *n)
{
    START();
    const xl_type *t = IN(0);
    int64_t at = xl_op_int(c->op, slot);
    NEED(xl_dtype_class(t->dtype) == XL_CLASS_FLOAT || t->quant, "the operand must hold floats, not %s", SHOW(t));
    NEED(at >= 0 && at < (int64_t)t->rank, "feature_index is %lld, the operand is %s", LL(at), SHOW(t));
    *n = t->dims[at];
    for (uint32_t i = first; i <= last; i++)
        NEED(IN(i)->rank == 1 && IN(i)->dtype == t->dtype && xl_dim_like(IN(i)->dims[0], *n),
             "operand %u is %s, expected %lld elements of %s: one for each feature", i, SHOW(IN(i)), LL(*n),
             xl_dtypes[t->dtype].text);
    return NULL;
}

RULE(batch_norm_training)
{
    int64_t n;
    xl_error *err = need_features(c, XL_SLOT(BATCH_NORM_TRAINING, feature_index), 1, 2, &n);
    if (err)
        return err;
    c->out[0] = IN(0);
    c->out[1] = c->out[2] = xl_type_tensor(c->m, IN(0)->dtype, (xl_dims){ &n, 1 });
    return NULL;
}

RULE(batch_norm_inference)
{
    int64_t n;
    xl_error *err = need_features(c, XL_SLOT(BATCH_NORM_INFERENCE, feature_index), 1, 4, &n);
    if (!err)
        c->out[0] = IN(0);
    return err;
}

RULE(batch_norm_grad)
{
    int64_t n;
    xl_error *err = need_features(c, XL_SLOT(BATCH_NORM_GRAD, feature_index), 1, 3, &n);
    if (err)
        return err;
    NEED(xl_type_like(IN(0), IN(4)), "grad_output is %s, the operand %s", SHOW(IN(4)), SHOW(IN(0)));
    c->out[0] = IN(0);
    c->out[1] = c->out[2] = xl_type_tensor(c->m, IN(0)->dtype, (xl_dims){ &n, 1 });
    return NULL;
}
