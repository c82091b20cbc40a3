/* The sharding column of ops.def: which dimensions are related. A rule may omit a relation, but never claim a false
 * one. */
#include "pass/shard.h"

#include "pass/pass.h"
#include "ir/scalar.h"

#define RULE(name) bool xl_shard_##name(const xl_func *f, const xl_op *op, xl_rule *r)
#define UNUSED (void)f, (void)op, (void)r

static int factor(xl_rule *r, int64_t size, xl_factor_kind kind)
{
    if (r->nfactor == XL_SHARD_FACTORS)
        return -1;
    r->size[r->nfactor] = size;
    r->kind[r->nfactor] = (uint8_t)kind;
    return (int)r->nfactor++;
}
static void map(xl_rule *r, uint32_t tensor, int64_t dim, int f)
{
    xl_dim_factors *m = &r->map[tensor][dim];
    if (f >= 0 && m->n < sizeof m->f)
        m->f[m->n++] = (uint8_t)f;
}
static bool in_list(xl_dims d, int64_t x)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == x)
            return true;
    return false;
}
static int64_t place_of(xl_dims d, int64_t x)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == x)
            return (int64_t)i;
    return -1;
}
/* Operands and results of one shape; scalars beside them are left alone. skip: a dimension that stays whole, or -1. */
static bool alike(const xl_func *f, const xl_op *op, xl_rule *r, int64_t skip)
{
    const xl_type *t = op->nout ? xl_out_type(f, op, 0) : NULL;
    if (!t || t->kind != XL_TY_TENSOR)
        return false;
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        const xl_type *u = i < op->nin ? xl_in_type(f, op, i) : xl_out_type(f, op, i - op->nin);
        if (u->kind != XL_TY_TENSOR || (u->rank != t->rank && !(i < op->nin && u->rank == 0)))
            return false;
        if (u->rank && memcmp(u->dims, t->dims, u->rank * sizeof *u->dims))
            return false;
    }
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d == skip)
            continue;
        int k = factor(r, t->dims[d], XL_FACTOR_PASS);
        for (uint32_t i = 0; i < op->nin + op->nout; i++)
            if (xl_shard_rank(i < op->nin ? xl_in_type(f, op, i) : xl_out_type(f, op, i - op->nin)))
                map(r, i, d, k);
    }
    return true;
}

RULE(replicate) { UNUSED; return false; }
RULE(none) { UNUSED; return false; }
RULE(call) { UNUSED; return false; }
RULE(branch) { UNUSED; return false; }
RULE(while) { UNUSED; return false; }
RULE(manual) { UNUSED; return false; }
RULE(constraint) { UNUSED; return false; }
/* sdy's name of a factor, i to z, z_1, ..., at the start of *s; -1 if there is none. */
static int named(xl_str *s)
{
    int n = s->n && *s->p >= 'i' && *s->p <= 'z' ? *s->p - 'i' : -1;
    if (n < 0)
        return -1;
    s->p++, s->n--;
    if (n != 'z' - 'i' || !s->n || *s->p != '_')
        return n;
    int more = 0;
    for (s->p++, s->n--; s->n && *s->p >= '0' && *s->p <= '9' && more < XL_SHARD_FACTORS; s->p++, s->n--)
        more = 10 * more + *s->p - '0';
    return n + more;
}
/* What the caller says of a call that it partitions itself, as MLIR prints it:
 * #sdy.op_sharding_rule<([ij, k], [ijk])->([ijk]) {i=2, j=2, k=2} reduction={k} need_replication={j}, custom> */
static bool told(const xl_func *f, const xl_op *op, xl_rule *r)
{
    const xl_attr *a = xl_dict_get(op->extra, XL_STR("sdy.sharding_rule"));
    if (!a || a->kind != XL_AT_OPAQUE)
        return false;
    xl_str s = a->str, whole = { 0 };
    int k, most = -1;
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        uint32_t rank = xl_shard_rank(i < op->nin ? xl_in_type(f, op, i) : xl_out_type(f, op, i - op->nin)), d = 0;
        xl_str_cut(&s, '[');
        for (xl_str t = xl_str_cut(&s, ']'); t.n; ) {
            if ((k = named(&t)) >= 0) {
                if (d >= rank || k >= XL_SHARD_FACTORS)
                    return false;
                map(r, i, d, k);
                most = k > most ? k : most;
                continue;
            }
            d += *t.p == ',';
            t.p++, t.n--;
        }
    }
    xl_str_cut(&s, '{');
    for (xl_str t = xl_str_cut(&s, '}'); t.n; ) {
        xl_str one = xl_str_cut(&t, ','), size;
        while (one.n && *one.p == ' ')
            one.p++, one.n--;
        k = named(&one);
        xl_str_cut(&one, '=');
        size = one;
        if (k != (int)r->nfactor || k >= XL_SHARD_FACTORS || !xl_str_i64(size, &r->size[k]) || r->size[k] < 1)
            return false;
        r->kind[r->nfactor++] = XL_FACTOR_PASS;            /* sums too: the call makes them itself */
    }
    if (most >= (int)r->nfactor)
        return false;
    while (s.n) {
        xl_str what = xl_str_cut(&s, '{'), t = xl_str_cut(&s, '}');
        if (xl_str_starts(what, XL_STR(" need_replication=")))
            whole = t;
    }
    while (whole.n)
        if ((k = named(&whole)) < 0)
            whole.p++, whole.n--;
        else
            for (uint32_t i = 0; i < op->nin + op->nout; i++)
                for (uint32_t d = 0; d < xl_shard_rank(i < op->nin ? xl_in_type(f, op, i)
                                                                   : xl_out_type(f, op, i - op->nin)); d++) {
                    xl_dim_factors *m = &r->map[i][d];
                    const uint8_t *at = memchr(m->f, k, m->n);
                    if (at)                                /* nor what is minor to it */
                        m->n = (uint8_t)(at - m->f);
                }
    return true;
}
/* A call with a rule of its own, or an annotation that says nothing of how its operand is split. */
RULE(custom_call)
{
    static const char *const through[] = { "LayoutConstraint", "annotate_device_placement",  "MoveToHost",
                                           "MoveToDevice",     "AssumeGatherIndicesInBound", "PinToDevice" };
    xl_str name = xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name));
    if (xl_str_is(name, "xlane_partition"))
        return told(f, op, r);
    for (size_t i = 0; i < sizeof through / sizeof *through; i++)
        if (op->nin == 1 && op->nout == 1 && xl_str_is(name, through[i]))
            return alike(f, op, r, -1);
    return false;
}
RULE(pointwise) { return op->code != XL_OP_OPTIMIZATION_BARRIER && alike(f, op, r, -1); }

RULE(source)
{
    if (op->code != XL_OP_CONSTANT && op->code != XL_OP_IOTA)
        return false;
    return alike(f, op, r, -1);
}

RULE(bitcast)
{
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_out_type(f, op, 0);
    uint32_t n = x->rank < y->rank ? x->rank : y->rank;
    if (x->rank == y->rank && n && x->dims[n - 1] != y->dims[n - 1])
        n--;
    for (uint32_t d = 0; d < n; d++) {
        int k = factor(r, x->dims[d], XL_FACTOR_PASS);
        map(r, 0, d, k);
        map(r, 1, d, k);
    }
    return true;
}

RULE(broadcast)
{
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_out_type(f, op, 0);
    xl_dims dims = op->code == XL_OP_BROADCAST_IN_DIM ? xl_op_dims(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions))
                                                      : (xl_dims){ 0 };
    for (uint32_t d = 0; d < y->rank; d++) {
        int k = factor(r, y->dims[d], XL_FACTOR_PASS);
        int64_t from =
            op->code == XL_OP_BROADCAST_IN_DIM ? place_of(dims, d) : (int64_t)d - (int64_t)(y->rank - x->rank);
        map(r, 1, d, k);
        if (from >= 0 && x->dims[from] == y->dims[d])
            map(r, 0, from, k);
    }
    return true;
}

RULE(transpose)
{
    xl_dims p = xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation));
    for (uint32_t d = 0; d < p.n; d++) {
        int k = factor(r, xl_out_type(f, op, 0)->dims[d], XL_FACTOR_PASS);
        map(r, 0, p.p[d], k);
        map(r, 1, d, k);
    }
    return true;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* Both shapes are taken apart from the major side into common factors; where they have none, the rest of that run stays
 * whole. */
RULE(reshape)
{
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_out_type(f, op, 0);
    uint32_t i = 0, j = 0;
    int64_t a = 1, b = 1;                                  /* what is left of the dimension at hand */
    bool ai = false, bj = false, stuck = false;
    for (uint32_t d = 0; d < x->rank; d++)
        if (x->dims[d] == 0)
            return false;
    for (;;) {
        while (!ai && i < x->rank && x->dims[i] == 1)
            i++;
        while (!bj && j < y->rank && y->dims[j] == 1)
            j++;
        if (i >= x->rank || j >= y->rank)
            break;
        if (!ai)
            a = x->dims[i], ai = true;
        if (!bj)
            b = y->dims[j], bj = true;
        int64_t g = gcd(a, b);
        if (!stuck && g > 1) {
            int k = factor(r, g, XL_FACTOR_PASS);
            map(r, 0, i, k);
            map(r, 1, j, k);
        }
        if (g == 1) { /* skip on to where both have covered the same number of elements */
            stuck = true;
            if (a < b) {
                if (++i < x->rank)
                    a *= x->dims[i];
                else
                    break;
            } else {
                if (++j < y->rank)
                    b *= y->dims[j];
                else
                    break;
            }
            if (a == b) {
                stuck = ai = bj = false;
                i++;
                j++;
            }
            continue;
        }
        if (stuck) {
            if (a == b) {
                stuck = ai = bj = false;
                i++;
                j++;
            } else if (a < b) {
                if (++i >= x->rank)
                    break;
                a *= x->dims[i];
            } else {
                if (++j >= y->rank)
                    break;
                b *= y->dims[j];
            }
            continue;
        }
        a /= g;
        b /= g;
        if (a == 1)
            ai = false, i++;
        if (b == 1)
            bj = false, j++;
    }
    return true;
}

static void pair(xl_rule *r, uint32_t d, int64_t size, uint32_t n)
{
    int k = factor(r, size, XL_FACTOR_PASS);
    for (uint32_t t = 0; t < n; t++)
        map(r, t, d, k);
}

RULE(slice)
{
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_out_type(f, op, 0);
    for (uint32_t d = 0; d < x->rank; d++)
        if (x->dims[d] == y->dims[d])
            pair(r, d, x->dims[d], 2);
    return true;
}

RULE(pad)
{
    const xl_type *x = xl_in_type(f, op, 0);
    xl_dims lo = xl_op_dims(op, XL_SLOT(PAD, edge_padding_low)), hi = xl_op_dims(op, XL_SLOT(PAD, edge_padding_high)),
            in = xl_op_dims(op, XL_SLOT(PAD, interior_padding));
    for (uint32_t d = 0; d < x->rank; d++)
        if (!xl_dims_at(lo, d, 0) && !xl_dims_at(hi, d, 0) && !xl_dims_at(in, d, 0)) {
            int k = factor(r, x->dims[d], XL_FACTOR_PASS);
            map(r, 0, d, k);
            map(r, 2, d, k);
        }
    return true;
}

RULE(concatenate)
{
    const xl_type *y = xl_out_type(f, op, 0);
    int64_t dim = xl_op_int(op, XL_SLOT(CONCATENATE, dimension));
    for (uint32_t d = 0; d < y->rank; d++)
        if (d != dim)
            pair(r, d, y->dims[d], op->nin + 1);
    return true;
}

RULE(reverse)
{
    const xl_type *y = xl_out_type(f, op, 0);
    xl_dims dims = xl_op_dims(op, XL_SLOT(REVERSE, dimensions));
    for (uint32_t d = 0; d < y->rank; d++) {
        pair(r, d, y->dims[d], 2);
        if (in_list(dims, d) && r->nfactor)
            r->kind[r->nfactor - 1] = XL_FACTOR_MIRROR;
    }
    return true;
}

RULE(dynamic_slice)
{
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_out_type(f, op, 0);
    for (uint32_t d = 0; d < x->rank; d++)
        if (x->dims[d] == y->dims[d]) {
            int k = factor(r, x->dims[d], XL_FACTOR_PASS);
            map(r, 0, d, k);
            map(r, op->nin, d, k);
        }
    return true;
}

RULE(dynamic_update_slice)
{
    const xl_type *x = xl_in_type(f, op, 0), *u = xl_in_type(f, op, 1);
    for (uint32_t d = 0; d < x->rank; d++)
        if (x->dims[d] == u->dims[d]) {
            int k = factor(r, x->dims[d], XL_FACTOR_PASS);
            map(r, 0, d, k);
            map(r, 1, d, k);
            map(r, op->nin, d, k);
        }
    return true;
}

RULE(sort)
{
    int64_t dim = xl_op_int(op, XL_SLOT(SORT, dimension));
    const xl_type *t = xl_in_type(f, op, 0);
    return alike(f, op, r, dim < 0 ? dim + t->rank : dim);
}

RULE(top_k)
{
    const xl_type *x = xl_in_type(f, op, 0);
    for (uint32_t d = 0; d + 1 < x->rank; d++)
        pair(r, d, x->dims[d], 1 + op->nout);
    return true;
}

/* The one op of a region over two scalars; annotations on its result do not count. */
static xl_opcode single(const xl_region *r)
{
    const xl_op *op = NULL;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *o = r->op[i];
        if (o->code == XL_OP_SDY_CONSTRAINT || o->code == XL_OP_RETURN)
            continue;
        if (op)
            return XL_OP_UNKNOWN;
        op = o;
    }
    if (!op || r->narg != 2 || op->nin != 2 || op->nout != 1)
        return XL_OP_UNKNOWN;
    bool both = (op->in[0].id == r->arg[0].id && op->in[1].id == r->arg[1].id) ||
                (op->in[0].id == r->arg[1].id && op->in[1].id == r->arg[0].id);
    switch (op->code) {
    case XL_OP_ADD:
    case XL_OP_MULTIPLY:
    case XL_OP_MAXIMUM:
    case XL_OP_MINIMUM:
    case XL_OP_AND:
    case XL_OP_OR: return both ? (xl_opcode)op->code : XL_OP_UNKNOWN;
    default: return XL_OP_UNKNOWN;
    }
}

static bool is_number(const xl_func *f, xl_value v, double want)
{
    const xl_attr *a = xl_value_const(f, v);
    unsigned char one[16];
    if (!xl_attr_is_splat(a))
        return false;
    xl_scalar_put(a->dtype, want, one);
    return !memcmp(a->data.p, one, xl_dtype_bytes(a->dtype));
}

RULE(reduce)
{
    uint32_t n = op->nin / 2;
    const xl_type *x = xl_in_type(f, op, 0);
    xl_dims dims = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    xl_opcode code = n == 1 ? single(op->region[0]) : XL_OP_UNKNOWN;
    bool sums = code != XL_OP_UNKNOWN;
    if (code == XL_OP_ADD)                                 /* the others may take their initial value more than once */
        sums = is_number(f, op->in[1], 0) || is_number(f, op->in[1], -0.0);
    if (code == XL_OP_MULTIPLY)
        sums = is_number(f, op->in[1], 1);
    r->combine = code;
    for (uint32_t d = 0, k = 0; d < x->rank; d++) {
        bool gone = in_list(dims, d);
        int fa = !gone || sums ? factor(r, x->dims[d], gone ? XL_FACTOR_SUM : XL_FACTOR_PASS) : -1;
        for (uint32_t i = 0; i < n; i++) {
            map(r, i, d, fa);
            if (!gone)
                map(r, op->nin + i, k, fa);
        }
        k += !gone;
    }
    return true;
}

/* Each matrix, or each line, for itself: dimensions before the last `n` are passed through. */
RULE(batch)
{
    size_t n = op->code == XL_OP_FFT ? xl_op_dims(op, XL_SLOT(FFT, fft_length)).n : 2;
    const xl_type *y = xl_out_type(f, op, 0);
    for (uint32_t i = 0; i < op->nin; i++)
        if (xl_in_type(f, op, i)->rank != y->rank)
            return false;
    for (uint32_t d = 0; d + n < y->rank; d++)
        pair(r, d, y->dims[d], op->nin + op->nout);
    return true;
}

RULE(window)
{
    bool rw = op->code == XL_OP_REDUCE_WINDOW;
    xl_dims win =
        xl_op_dims(op, rw ? XL_SLOT(REDUCE_WINDOW, window_dimensions) : XL_SLOT(SELECT_AND_SCATTER, window_dimensions));
    xl_dims str =
        xl_op_dims(op, rw ? XL_SLOT(REDUCE_WINDOW, window_strides) : XL_SLOT(SELECT_AND_SCATTER, window_strides));
    xl_dims pad = xl_op_dims(op, rw ? XL_SLOT(REDUCE_WINDOW, padding) : XL_SLOT(SELECT_AND_SCATTER, padding));
    xl_dims bd = rw ? xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, base_dilations)) : (xl_dims){ 0 };
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_out_type(f, op, 0);
    uint32_t n = rw ? op->nin / 2 : 2;
    for (uint32_t d = 0; d < x->rank; d++)
        if (xl_dims_at(win, d, 1) == 1 && xl_dims_at(str, d, 1) == 1 && xl_dims_at(bd, d, 1) == 1 &&
            !xl_dims_at(pad, 2 * d, 0) && !xl_dims_at(pad, 2 * d + 1, 0) && x->dims[d] == y->dims[d]) {
            int k = factor(r, x->dims[d], XL_FACTOR_PASS);
            for (uint32_t i = 0; i < n; i++)
                map(r, i, d, k);
            for (uint32_t i = 0; i < op->nout; i++)
                map(r, op->nin + i, d, k);
        }
    return true;
}

RULE(contract)
{
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_in_type(f, op, 1);
    r->combine = XL_OP_ADD;
    r->work = 1;
    if (op->code == XL_OP_DOT) {
        if (x->rank != 2 || y->rank != 2)
            return false;
        int m = factor(r, x->dims[0], XL_FACTOR_PASS), k = factor(r, x->dims[1], XL_FACTOR_SUM),
            n = factor(r, y->dims[1], XL_FACTOR_PASS);
        map(r, 0, 0, m), map(r, 2, 0, m), map(r, 0, 1, k), map(r, 1, 0, k), map(r, 1, 1, n), map(r, 2, 1, n);
        return true;
    }
    xl_dims lb = xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)),
            rb = xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions));
    xl_dims lc = xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)),
            rc = xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions));
    uint32_t out = 0;
    for (size_t i = 0; i < lb.n; i++, out++) {
        int k = factor(r, x->dims[lb.p[i]], XL_FACTOR_PASS);
        map(r, 0, lb.p[i], k), map(r, 1, rb.p[i], k), map(r, 2, out, k);
    }
    for (uint32_t d = 0; d < x->rank; d++)
        if (!in_list(lb, d) && !in_list(lc, d)) {
            int k = factor(r, x->dims[d], XL_FACTOR_PASS);
            map(r, 0, d, k), map(r, 2, out++, k);
        }
    for (uint32_t d = 0; d < y->rank; d++)
        if (!in_list(rb, d) && !in_list(rc, d)) {
            int k = factor(r, y->dims[d], XL_FACTOR_PASS);
            map(r, 1, d, k), map(r, 2, out++, k);
        }
    for (size_t i = 0; i < lc.n; i++) {
        int k = factor(r, x->dims[lc.p[i]], XL_FACTOR_SUM);
        map(r, 0, lc.p[i], k), map(r, 1, rc.p[i], k);
    }
    return true;
}

RULE(convolution)
{
    const xl_type *x = xl_in_type(f, op, 0), *w = xl_in_type(f, op, 1);
    int64_t ib = xl_op_int(op, XL_SLOT(CONVOLUTION, input_batch_dimension)),
            ob = xl_op_int(op, XL_SLOT(CONVOLUTION, output_batch_dimension));
    int64_t fi = xl_op_int(op, XL_SLOT(CONVOLUTION, input_feature_dimension)),
            ki = xl_op_int(op, XL_SLOT(CONVOLUTION, kernel_input_feature_dimension));
    int64_t ko = xl_op_int(op, XL_SLOT(CONVOLUTION, kernel_output_feature_dimension)),
            fo = xl_op_int(op, XL_SLOT(CONVOLUTION, output_feature_dimension));
    r->combine = XL_OP_ADD;
    r->work = 1;
    if (xl_op_int(op, XL_SLOT(CONVOLUTION, batch_group_count)) != 1)
        return false;
    int k = factor(r, x->dims[ib], XL_FACTOR_PASS);
    map(r, 0, ib, k), map(r, 2, ob, k);
    if (xl_op_int(op, XL_SLOT(CONVOLUTION, feature_group_count)) != 1)
        return true;
    k = factor(r, w->dims[ko], XL_FACTOR_PASS);
    map(r, 1, ko, k), map(r, 2, fo, k);
    k = factor(r, x->dims[fi], XL_FACTOR_SUM);
    map(r, 0, fi, k), map(r, 1, ki, k);
    return true;
}

RULE(gather)
{
    const xl_type *x = xl_in_type(f, op, 0), *ix = xl_in_type(f, op, 1), *y = xl_out_type(f, op, 0);
    xl_dims off = xl_op_dims(op, XL_SLOT(GATHER, offset_dims)),
            col = xl_op_dims(op, XL_SLOT(GATHER, collapsed_slice_dims));
    xl_dims xb = xl_op_dims(op, XL_SLOT(GATHER, operand_batching_dims)),
            ib = xl_op_dims(op, XL_SLOT(GATHER, start_indices_batching_dims));
    xl_dims sizes = xl_op_dims(op, XL_SLOT(GATHER, slice_sizes)), to = xl_op_dims(op, XL_SLOT(GATHER, start_index_map));
    int64_t vec = xl_op_int(op, XL_SLOT(GATHER, index_vector_dim));
    int of_index[32];
    r->combine = xl_out_type(f, op, 0)->dtype == XL_I1 ? XL_OP_OR : XL_OP_ADD;
    if (ix->rank > 32)
        return false;
    for (uint32_t d = 0, k = 0; d < y->rank; d++) {        /* batch dimensions of the result are those of the indices */
        if (in_list(off, d))
            continue;
        if (k == vec)
            k++;
        of_index[k] = factor(r, y->dims[d], XL_FACTOR_PASS);
        map(r, 1, k, of_index[k]);
        map(r, 2, d, of_index[k]);
        k++;
    }
    for (uint32_t d = 0, k = 0; d < x->rank; d++) {
        int64_t b = place_of(xb, d);
        if (b >= 0) {
            map(r, 0, d, of_index[ib.p[b]]);
        } else if (in_list(col, d)) {
            if (place_of(to, d) >= 0 && sizes.p[d] == 1)
                map(r, 0, d, factor(r, x->dims[d], XL_FACTOR_INDEX));
        } else {
            if (sizes.p[d] == x->dims[d]) {
                int fa = factor(r, x->dims[d], XL_FACTOR_PASS);
                map(r, 0, d, fa);
                map(r, 2, off.p[k], fa);
            }
            k++;
        }
    }
    return true;
}

RULE(scatter)
{
    uint32_t n = (op->nin - 1) / 2;
    const xl_type *x = xl_in_type(f, op, 0), *ix = xl_in_type(f, op, n), *u = xl_in_type(f, op, n + 1);
    xl_dims win = xl_op_dims(op, XL_SLOT(SCATTER, update_window_dims)),
            ins = xl_op_dims(op, XL_SLOT(SCATTER, inserted_window_dims));
    xl_dims xb = xl_op_dims(op, XL_SLOT(SCATTER, input_batching_dims)),
            ib = xl_op_dims(op, XL_SLOT(SCATTER, scatter_indices_batching_dims));
    xl_dims to = xl_op_dims(op, XL_SLOT(SCATTER, scatter_dims_to_operand_dims));
    int64_t vec = xl_op_int(op, XL_SLOT(SCATTER, index_vector_dim));
    int of_index[32];
    bool sums = n == 1 && single(op->region[0]) == XL_OP_ADD;
    r->combine = XL_OP_ADD;
    if (n != 1 || ix->rank > 32)
        return false;
    for (uint32_t d = 0, k = 0; d < u->rank; d++) {
        if (in_list(win, d))
            continue;
        if (k == vec)
            k++;
        bool batch = in_list(ib, k);
        of_index[k] = batch || sums ? factor(r, u->dims[d], batch ? XL_FACTOR_PASS : XL_FACTOR_SUM) : -1;
        map(r, 1, k, of_index[k]);
        map(r, 2, d, of_index[k]);
        k++;
    }
    for (uint32_t d = 0, k = 0; d < x->rank; d++) {
        int64_t b = place_of(xb, d);
        if (b >= 0) {
            map(r, 0, d, of_index[ib.p[b]]);
            map(r, 3, d, of_index[ib.p[b]]);
        } else if (in_list(ins, d)) {
            if (place_of(to, d) >= 0) {
                int fa = factor(r, x->dims[d], XL_FACTOR_INDEX);
                map(r, 0, d, fa);
                map(r, 3, d, fa);
            }
        } else {
            if (u->dims[win.p[k]] == x->dims[d] && place_of(to, d) < 0) {
                int fa = factor(r, x->dims[d], XL_FACTOR_PASS);
                map(r, 0, d, fa), map(r, 2, win.p[k], fa), map(r, 3, d, fa);
            }
            k++;
        }
    }
    return true;
}

RULE(collective)
{
    if (op->nin != 1 || op->nout != 1)
        return false;
    const xl_type *x = xl_in_type(f, op, 0), *y = xl_out_type(f, op, 0);
    int64_t a = -1, b = -1;
    switch (op->code) {
    case XL_OP_ALL_GATHER: a = xl_op_int(op, XL_SLOT(ALL_GATHER, all_gather_dim)); break;
    case XL_OP_REDUCE_SCATTER: a = xl_op_int(op, XL_SLOT(REDUCE_SCATTER, scatter_dimension)); break;
    case XL_OP_ALL_TO_ALL:
        a = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_dimension)),
        b = xl_op_int(op, XL_SLOT(ALL_TO_ALL, concat_dimension));
        break;
    default: break;
    }
    for (uint32_t d = 0; d < x->rank; d++)
        if (d != a && d != b && x->dims[d] == y->dims[d])
            pair(r, d, x->dims[d], 2);
    return true;
}

static xl_shard_fn *const rules[XL_OP_COUNT] = {
#define OP(name, text, nin, nout, nregion, types, grad, shard, ...) [XL_OP_##name] = xl_shard_##shard,
#include "ir/ops.def"
};

bool xl_shard_rule(const xl_func *f, const xl_op *op, xl_arena *a, xl_rule *r)
{
    memset(r, 0, sizeof *r);
    r->combine = XL_OP_UNKNOWN;
    r->map = xl_new(a, xl_dim_factors *, (size_t)op->nin + op->nout);
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        const xl_type *t = i < op->nin ? xl_in_type(f, op, i) : xl_out_type(f, op, i - op->nin);
        if (t->kind != XL_TY_TENSOR || t->unranked || t->rank > 32)
            return false;
        for (uint32_t d = 0; d < t->rank; d++)
            if (t->dims[d] < 0)
                return false;
        r->map[i] = xl_new(a, xl_dim_factors, t->rank);
    }
    return rules[op->code](f, op, r);
}
