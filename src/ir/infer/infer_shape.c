/* Inference for ops that make, move, cut and join data. */
#include "ir/infer/infer.h"

#define START() do { xl_error *err_ = xl_need_tensors(c); if (err_) return err_; } while (0)
#define GIVEN()                                                                                                        \
    do {                                                                                                               \
        xl_error *err_ = xl_need_given(c);                                                                             \
        if (err_)                                                                                                      \
            return err_;                                                                                               \
        NEED(c->out[0]->kind == XL_TY_TENSOR, "the result must be a tensor, not a %s", SHOW(c->out[0]));               \
    } while (0)
#define DIMS(d, rank, sorted, what)                                                                                    \
    do {                                                                                                               \
        xl_error *err_ = xl_need_dims(c, (d), (rank), (sorted), (what));                                               \
        if (err_)                                                                                                      \
            return err_;                                                                                               \
    } while (0)

static int64_t bound_of(const xl_type *t, uint32_t i) { return t->bounds ? t->bounds[i] : XL_DYN; }

/* A tensor of t's element type; bounds may be NULL, and count only where the size is unknown. */
static const xl_type *tensor_like(xl_infer_ctx *c, const xl_type *t, const int64_t *dims, int64_t *bounds,
                                  uint32_t rank)
{
    bool any = false;
    for (uint32_t i = 0; bounds && i < rank; i++) {
        if (dims[i] >= 0)
            bounds[i] = XL_DYN;
        any = any || bounds[i] >= 0;
    }
    xl_type r = { .kind = XL_TY_TENSOR, .dtype = t->dtype, .rank = rank, .dims = dims, .bounds = any ? bounds : NULL,
                  .quant = t->quant && !t->quant->per_axis ? t->quant : NULL };
    return xl_type_intern(c->m, &r);
}

static int64_t *new_dims(xl_infer_ctx *c, uint32_t rank) { return xl_new(&c->m->arena, int64_t, rank); }

/* For quantised per-axis tensors the result's parameters are the op's own: keep what it has where the shape agrees. */
static void put(xl_infer_ctx *c, const xl_type *t)
{
    if (c->out[0] && c->out[0]->quant && xl_shape_like(c->out[0], t))
        return;
    c->out[0] = t;
}

/* ---- from nothing ----------------------------------------------------------------------------------------------- */
RULE(constant)
{
    const xl_attr *v = XL_ATTR(c->op, CONSTANT, value);
    NEED(v->type && v->type->kind == XL_TY_TENSOR, "the value must be a tensor");
    NEED(xl_type_static(v->type), "the value must have a static shape, not %s", SHOW(v->type));
    int64_t bytes;
    NEED(v->splat || (xl_type_bytes(v->type, &bytes) && (uint64_t)bytes == v->data.n),
         "the value has %zu bytes, which is not %s", v->data.n, SHOW(v->type));
    if (c->out[0])
        NEED(xl_shape_like(v->type, c->out[0]) && (v->type->dtype == c->out[0]->dtype || c->out[0]->quant),
             "the value is %s, the result %s", SHOW(v->type), SHOW(c->out[0]));
    else
        c->out[0] = v->type;
    return NULL;
}

static xl_error *iota_dim(xl_infer_ctx *c, int64_t dim)
{
    const xl_type *t = c->out[0];
    NEED(dim >= 0 && dim < (int64_t)t->rank, "iota_dimension is %lld, the result is %s", (long long)dim, SHOW(t));
    NEED(xl_dtype_class(t->dtype) != XL_CLASS_PRED, "the result must hold numbers, not %s", SHOW(t));
    return NULL;
}

RULE(iota)
{
    GIVEN();
    NEED(xl_type_static(c->out[0]), "the result must have a static shape, not %s", SHOW(c->out[0]));
    return iota_dim(c, xl_op_int(c->op, XL_SLOT(IOTA, iota_dimension)));
}

RULE(device_id)
{
    c->out[0] = xl_type_scalar(c->m, XL_U32);
    return NULL;
}

static xl_error *need_list(xl_infer_ctx *c, uint32_t i, int64_t n, const char *what)
{
    const xl_type *t = IN(i);
    NEED(t->rank == 1 && xl_is_int(t->dtype), "%s must be a list of integers, not %s", what, SHOW(t));
    NEED(n < 0 || xl_dim_like(t->dims[0], n), "%s has %lld entries, expected %lld", what, (long long)t->dims[0],
         (long long)n);
    return NULL;
}

/* The numbers that operand i is known to hold: those of a constant. */
static bool known_list(const xl_infer_ctx *c, uint32_t i, xl_dims *out)
{
    const xl_op *def = xl_value_op(c->f, c->op->in[i]);
    if (!def || def->code != XL_OP_CONSTANT)
        return false;
    const xl_attr *v = XL_ATTR(def, CONSTANT, value);
    int64_t n;
    if (!v || v->kind != XL_AT_DENSE || v->type->kind != XL_TY_TENSOR || v->type->rank != 1 || !xl_is_int(v->dtype) ||
        !xl_type_count(v->type, &n) || n > 64)
        return false;
    int64_t *p = xl_new(&c->m->arena, int64_t, (size_t)n);
    for (int64_t k = 0; k < n; k++)
        p[k] = xl_dense_int(v, v->splat ? 0 : k);
    *out = (xl_dims){ p, (size_t)n };
    return true;
}

/* Where operand i, a shape, is a constant, the result must be of that shape. */
static xl_error *need_said_shape(xl_infer_ctx *c, uint32_t i)
{
    xl_dims want;
    const xl_type *r = c->out[0];
    if (known_list(c, i, &want) && want.n == r->rank)
        for (uint32_t k = 0; k < r->rank; k++)
            NEED(want.p[k] >= 0 && xl_dim_like(want.p[k], r->dims[k]),
                 "the shape says %lld for dim %u, the result is %s", (long long)want.p[k], k, SHOW(r));
    return NULL;
}

RULE(rng)
{
    START();
    NEED(xl_is_scalar(IN(0)) && xl_is_scalar(IN(1)) && IN(0)->dtype == IN(1)->dtype,
         "a and b must be scalars of one type, not %s and %s", SHOW(IN(0)), SHOW(IN(1)));
    bool normal = xl_op_int(c->op, XL_SLOT(RNG, rng_distribution)) == XL_RNG_DISTRIBUTION_NORMAL;
    xl_dclass k = xl_dtype_class(IN(0)->dtype);
    NEED(k == XL_CLASS_FLOAT || (!normal && k != XL_CLASS_COMPLEX), "the distribution does not go with %s",
         SHOW(IN(0)));
    xl_error *err =
        need_list(c, 2, c->out[0] && c->out[0]->kind == XL_TY_TENSOR ? (int64_t)c->out[0]->rank : -1, "shape");
    if (err)
        return err;
    GIVEN();
    if ((err = need_said_shape(c, 2)))
        return err;
    NEED(c->out[0]->dtype == IN(0)->dtype, "the result is %s, expected elements of %s", SHOW(c->out[0]),
         xl_dtypes[IN(0)->dtype].text);
    return NULL;
}

RULE(rng_bit_generator)
{
    START();
    const xl_type *s = IN(0);
    NEED(s->rank == 1 && s->dtype == XL_U64, "the state must be a list of ui64, not %s", SHOW(s));
    int64_t alg = xl_op_int(c->op, XL_SLOT(RNG_BIT_GENERATOR, rng_algorithm));
    NEED(alg != XL_RNG_ALGORITHM_THREE_FRY || xl_dim_like(s->dims[0], 2), "THREE_FRY needs a state of 2, not %s",
         SHOW(s));
    NEED(alg != XL_RNG_ALGORITHM_PHILOX || s->dims[0] == XL_DYN || s->dims[0] == 2 || s->dims[0] == 3,
         "PHILOX needs a state of 2 or 3, not %s", SHOW(s));
    c->out[0] = s;
    NEED(c->out[1] && c->out[1]->kind == XL_TY_TENSOR,
         "result 1 does not follow from the operands: its type must be given");
    NEED(xl_is_int(c->out[1]->dtype) || xl_dtype_class(c->out[1]->dtype) == XL_CLASS_FLOAT,
         "the output must hold integers or floats, not %s", SHOW(c->out[1]));
    return NULL;
}

/* ---- broadcasts, reshapes, transposes --------------------------------------------------------------------------- */
RULE(broadcast)
{
    START();
    const xl_type *t = IN(0);
    xl_dims sizes = xl_op_dims(c->op, XL_SLOT(BROADCAST, broadcast_sizes));
    uint32_t rank = (uint32_t)sizes.n + t->rank;
    int64_t *d = new_dims(c, rank), *b = new_dims(c, rank);
    for (uint32_t i = 0; i < rank; i++) {
        d[i] = i < sizes.n ? sizes.p[i] : t->dims[i - sizes.n];
        b[i] = i < sizes.n ? XL_DYN : bound_of(t, i - (uint32_t)sizes.n);
        NEED(d[i] >= 0 || i >= sizes.n, "broadcast_sizes has %lld", (long long)d[i]);
    }
    put(c, tensor_like(c, t, d, b, rank));
    return NULL;
}

static xl_error *broadcast_fits(xl_infer_ctx *c, xl_dims dims)
{
    const xl_type *t = IN(0), *r = c->out[0];
    NEED(dims.n == t->rank, "dims has %zu entries, expected the operand's rank, %u", dims.n, t->rank);
    DIMS(dims, r->rank, false, "dims");
    for (uint32_t i = 0; i < t->rank; i++) {
        int64_t to = r->dims[dims.p[i]];
        NEED(t->dims[i] == 1 || xl_dim_like(t->dims[i], to),
             "operand dim %u has %lld elements, result dim %lld has %lld; expected 1 or as many", i,
             (long long)t->dims[i], (long long)dims.p[i], (long long)to);
    }
    NEED(t->dtype == r->dtype || t->quant, "the operand is %s and the result %s: the types differ", SHOW(t), SHOW(r));
    return NULL;
}

/* The result of an op that says no shape at run time: at most one dimension is open, and that one has a bound. */
static xl_error *need_fixed(xl_infer_ctx *c)
{
    const xl_type *r = c->out[0];
    uint32_t open = 0;
    NEED(!r->unranked, "the result must have a rank");
    for (uint32_t i = 0; i < r->rank; i++) {
        NEED(r->dims[i] >= 0 || bound_of(r, i) >= 0, "dim %u of the result, %s, has neither size nor bound", i,
             SHOW(r));
        open += r->dims[i] < 0;
    }
    NEED(open <= 1, "the result, %s, has %u dimensions without a size; one may be so", SHOW(r), open);
    return NULL;
}

RULE(broadcast_in_dim)
{
    START();
    GIVEN();
    xl_error *err = need_fixed(c);
    if (err)
        return err;
    return broadcast_fits(c, xl_op_dims(c->op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions)));
}

static xl_error *same_elements(xl_infer_ctx *c)
{
    const xl_type *a = IN(0), *b = c->out[0];
    int64_t x, y;
    NEED(a->dtype == b->dtype || a->quant, "the operand is %s and the result %s: the types differ", SHOW(a), SHOW(b));
    bool one = xl_type_count(a, &x), other = xl_type_count(b, &y);
    NEED(!xl_type_static(a) || !xl_type_static(b) || one == other,
         "%s and %s do not have the same number of elements: one has more than 2^63", SHOW(a), SHOW(b));
    if (one && other)
        NEED(x == y, "%s has %lld elements and %s has %lld", SHOW(a), (long long)x, SHOW(b), (long long)y);
    return NULL;
}

RULE(reshape)
{
    START();
    GIVEN();
    xl_error *err = need_fixed(c);
    return err ? err : same_elements(c);
}

RULE(transpose)
{
    START();
    const xl_type *t = IN(0);
    xl_dims p = xl_op_dims(c->op, XL_SLOT(TRANSPOSE, permutation));
    NEED(p.n == t->rank, "the permutation has %zu entries, expected the rank, %u", p.n, t->rank);
    DIMS(p, t->rank, false, "the permutation");
    int64_t *d = new_dims(c, t->rank), *b = new_dims(c, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        d[i] = t->dims[p.p[i]];
        b[i] = bound_of(t, (uint32_t)p.p[i]);
    }
    put(c, tensor_like(c, t, d, b, t->rank));
    return NULL;
}

RULE(reverse)
{
    START();
    DIMS(xl_op_dims(c->op, XL_SLOT(REVERSE, dimensions)), IN(0)->rank, false, "dimensions");
    c->out[0] = IN(0);
    return NULL;
}

static xl_error *dynamic_broadcast(xl_infer_ctx *c)
{
    xl_dims dims = xl_op_dims(c->op, XL_SLOT(DYNAMIC_BROADCAST_IN_DIM, broadcast_dimensions)), said,
            grow = xl_op_dims(c->op, XL_SLOT(DYNAMIC_BROADCAST_IN_DIM, known_expanding_dimensions)),
            keep = xl_op_dims(c->op, XL_SLOT(DYNAMIC_BROADCAST_IN_DIM, known_nonexpanding_dimensions));
    const xl_type *t = IN(0);
    NEED(IN(1)->dims[0] >= 0, "the shape must have a known length, not %s", SHOW(IN(1)));
    DIMS(grow, t->rank, false, "known_expanding_dimensions");
    DIMS(keep, t->rank, false, "known_nonexpanding_dimensions");
    for (size_t i = 0; i < grow.n; i++)
        for (size_t k = 0; k < keep.n; k++)
            NEED(grow.p[i] != keep.p[k], "dim %lld is said to expand and not to expand", (long long)grow.p[i]);
    xl_error *err = broadcast_fits(c, dims);
    if (!err && known_list(c, 1, &said))
        for (uint32_t i = 0; i < t->rank; i++) {
            int64_t to = said.p[dims.p[i]];
            NEED(t->dims[i] == 1 || xl_dim_like(t->dims[i], to),
                 "operand dim %u has %lld elements, the shape says %lld; expected 1 or as many", i,
                 (long long)t->dims[i], (long long)to);
        }
    return err;
}

/* dynamic_pad with constants: they must make sense, and make the result. */
static xl_error *said_padding(xl_infer_ctx *c)
{
    xl_dims lo, hi, in;
    const xl_type *t = IN(0), *r = c->out[0];
    bool inner = known_list(c, 4, &in), all = inner && known_list(c, 2, &lo) && known_list(c, 3, &hi);
    for (uint32_t i = 0; inner && i < t->rank; i++) {
        NEED(in.p[i] >= 0, "interior padding %lld of dim %u is negative", (long long)in.p[i], i);
        if (!all || t->dims[i] < 0 || r->rank != t->rank)
            continue;
        xl_wide n = (xl_wide)lo.p[i] + hi.p[i] + (t->dims[i] ? (xl_wide)(t->dims[i] - 1) * in.p[i] + t->dims[i] : 0);
        NEED(xl_fits(n) && xl_dim_like((int64_t)n, r->dims[i]), "dim %u of %s is not what padding makes of %s", i,
             SHOW(r), SHOW(t));
    }
    return NULL;
}

/* ---- ops whose result shape is an operand ----------------------------------------------------------------------- */
RULE(dynamic_shape)
{
    START();
    GIVEN();
    xl_error *err = NULL;
    xl_dims said;
    const xl_type *r = c->out[0], *t = IN(0);
    switch (c->op->code) {
    case XL_OP_DYNAMIC_IOTA:
        err = need_list(c, 0, r->rank, "the shape");
        if (!err)
            err = need_said_shape(c, 0);
        return err ? err : iota_dim(c, xl_op_int(c->op, XL_SLOT(DYNAMIC_IOTA, iota_dimension)));
    case XL_OP_DYNAMIC_BROADCAST_IN_DIM:
        err = need_list(c, 1, r->rank, "the shape");
        if (!err)
            err = need_said_shape(c, 1);
        return err ? err : dynamic_broadcast(c);
    case XL_OP_DYNAMIC_RESHAPE:
        err = need_list(c, 1, r->rank, "the shape");
        if (!err)
            err = need_said_shape(c, 1);
        if (err)
            return err;
        NEED(IN(1)->dims[0] >= 0, "the shape must have a known length, not %s", SHOW(IN(1)));
        if (known_list(c, 1, &said)) {
            int64_t n = 1, have;
            bool fits = true;
            for (size_t i = 0; i < said.n; i++)
                fits = !__builtin_mul_overflow(n, said.p[i], &n) && fits;
            for (size_t i = 0; i < said.n; i++)
                fits = fits || said.p[i] == 0;             /* then there are none, however large the others are */
            NEED(!xl_type_count(t, &have) || (fits && n == have),
                 "the operand is %s, which is not as many elements as the shape says", SHOW(t));
        }
        return same_elements(c);
    case XL_OP_DYNAMIC_PAD:
        NEED(xl_is_scalar(IN(1)) && (IN(1)->dtype == t->dtype || t->quant),
             "the padding value is %s, expected a scalar %s", SHOW(IN(1)), xl_dtypes[t->dtype].text);
        for (uint32_t i = 2; i < 5 && !err; i++)
            err = need_list(c, i, t->rank, "the padding");
        if (!err)
            err = said_padding(c);
        break;
    default:                                               /* real_dynamic_slice */
        for (uint32_t i = 1; i < 4 && !err; i++)
            err = need_list(c, i, t->rank, "the list of indices");
        break;
    }
    if (err)
        return err;
    NEED(r->rank == t->rank, "the operand is %s and the result %s: the ranks differ", SHOW(t), SHOW(r));
    NEED(r->dtype == t->dtype || t->quant, "the operand is %s and the result %s: the types differ", SHOW(t), SHOW(r));
    return NULL;
}

RULE(get_dimension_size)
{
    START();
    int64_t d = xl_op_int(c->op, XL_SLOT(GET_DIMENSION_SIZE, dimension));
    NEED(d >= 0 && d < (int64_t)IN(0)->rank, "dimension is %lld, the operand is %s", (long long)d, SHOW(IN(0)));
    c->out[0] = xl_type_scalar(c->m, XL_I32);
    return NULL;
}

RULE(set_dimension_size)
{
    START();
    const xl_type *t = IN(0);
    int64_t d = xl_op_int(c->op, XL_SLOT(SET_DIMENSION_SIZE, dimension));
    NEED(d >= 0 && d < (int64_t)t->rank, "dimension is %lld, the operand is %s", (long long)d, SHOW(t));
    NEED(xl_is_scalar(IN(1)) && IN(1)->dtype == XL_I32, "the size must be a scalar i32, not %s", SHOW(IN(1)));
    if (c->out[0] && c->out[0]->kind == XL_TY_TENSOR && c->out[0]->rank == t->rank && c->out[0]->dtype == t->dtype)
        return NULL;
    int64_t *dims = new_dims(c, t->rank), *b = new_dims(c, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        bool here = i == (uint64_t)d;
        b[i] = here && t->dims[i] >= 0 ? t->dims[i] : bound_of(t, i);
        dims[i] = here ? XL_DYN : t->dims[i];
    }
    c->out[0] = tensor_like(c, t, dims, b, t->rank);
    return NULL;
}

/* ---- joining and cutting ---------------------------------------------------------------------------------------- */
RULE(concatenate)
{
    START();
    NEED(c->op->nin > 0, "needs an operand");
    const xl_type *t = IN(0);
    int64_t dim = xl_op_int(c->op, XL_SLOT(CONCATENATE, dimension));
    NEED(dim >= 0 && dim < (int64_t)t->rank, "dimension is %lld, the operands are like %s", (long long)dim, SHOW(t));
    int64_t *d = new_dims(c, t->rank), *b = new_dims(c, t->rank);
    xl_wide total = 0, bound = 0;
    bool known = true, bounded = true;
    for (uint32_t k = 0; k < t->rank; k++) {
        d[k] = t->dims[k];
        b[k] = bound_of(t, k);
    }
    for (uint32_t i = 0; i < c->op->nin; i++) {
        const xl_type *u = IN(i);
        NEED(u->rank == t->rank, "operand %u is %s, operand 0 %s: the ranks differ", i, SHOW(u), SHOW(t));
        NEED(u->dtype == t->dtype || t->quant, "operand %u is %s, operand 0 %s: the types differ", i, SHOW(u), SHOW(t));
        for (uint32_t k = 0; k < t->rank; k++) {
            if (k == (uint64_t)dim) {
                known = known && u->dims[k] >= 0;
                bounded = bounded && (u->dims[k] >= 0 || bound_of(u, k) >= 0);
                if (u->dims[k] >= 0)
                    total += u->dims[k];
                bound += u->dims[k] >= 0 ? u->dims[k] : bound_of(u, k) >= 0 ? bound_of(u, k) : 0;
                continue;
            }
            NEED(xl_dim_like(d[k], u->dims[k]),
                 "operand %u is %s, operand 0 %s: dim %u differs, and it is not the one joined", i, SHOW(u), SHOW(t),
                 k);
            if (d[k] < 0)
                d[k] = u->dims[k];
        }
    }
    NEED(xl_fits(total) && xl_fits(bound), "the result is too large");
    d[dim] = known ? (int64_t)total : XL_DYN;
    b[dim] = !known && bounded ? (int64_t)bound : XL_DYN;
    put(c, tensor_like(c, t, d, b, t->rank));
    return NULL;
}

RULE(slice)
{
    START();
    const xl_type *t = IN(0);
    xl_dims s = xl_op_dims(c->op, XL_SLOT(SLICE, start_indices)), l = xl_op_dims(c->op, XL_SLOT(SLICE, limit_indices)),
            st = xl_op_dims(c->op, XL_SLOT(SLICE, strides));
    NEED(s.n == t->rank && l.n == t->rank && (st.n == 0 || st.n == t->rank),
         "start, limit and strides need one entry for each dimension of %s", SHOW(t));
    int64_t *d = new_dims(c, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        int64_t stride = xl_dims_at(st, i, 1);
        NEED(stride > 0, "stride %lld of dim %u is not positive", (long long)stride, i);
        NEED(s.p[i] >= 0 && s.p[i] <= l.p[i], "dim %u goes from %lld to %lld", i, (long long)s.p[i], (long long)l.p[i]);
        NEED(t->dims[i] < 0 || l.p[i] <= t->dims[i], "dim %u ends at %lld, beyond its size %lld", i, (long long)l.p[i],
             (long long)t->dims[i]);
        NEED(bound_of(t, i) < 0 || l.p[i] <= bound_of(t, i), "dim %u ends at %lld, beyond its bound %lld", i,
             (long long)l.p[i], (long long)bound_of(t, i));
        int64_t n = l.p[i] - s.p[i];
        d[i] = n / stride + (n % stride != 0);
    }
    put(c, tensor_like(c, t, d, NULL, t->rank));
    return NULL;
}

static xl_error *need_starts(xl_infer_ctx *c, uint32_t first, uint32_t rank)
{
    NEED(c->op->nin == first + rank, "has %u start indices, expected %u", c->op->nin - first, rank);
    for (uint32_t i = first; i < c->op->nin; i++) {
        NEED(xl_is_scalar(IN(i)) && xl_is_int(IN(i)->dtype), "start index %u must be a scalar integer, not %s",
             i - first, SHOW(IN(i)));
        NEED(IN(i)->dtype == IN(first)->dtype, "start indices differ in type, %s and %s", SHOW(IN(first)), SHOW(IN(i)));
    }
    return NULL;
}

RULE(dynamic_slice)
{
    START();
    NEED(c->op->nin > 0, "needs an operand");
    const xl_type *t = IN(0);
    xl_dims sizes = xl_op_dims(c->op, XL_SLOT(DYNAMIC_SLICE, slice_sizes));
    xl_error *err = need_starts(c, 1, t->rank);
    if (err)
        return err;
    NEED(sizes.n == t->rank, "slice_sizes has %zu entries, expected the rank, %u", sizes.n, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        NEED(sizes.p[i] >= 0 && (t->dims[i] < 0 || sizes.p[i] <= t->dims[i]),
             "slice size %lld of dim %u is beyond its size %lld", (long long)sizes.p[i], i, (long long)t->dims[i]);
    put(c, tensor_like(c, t, sizes.p, NULL, t->rank));
    return NULL;
}

RULE(dynamic_update_slice)
{
    START();
    NEED(c->op->nin >= 2, "needs an operand and an update");
    const xl_type *t = IN(0), *u = IN(1);
    NEED(t->dtype == u->dtype || t->quant, "the operand is %s and the update %s: the types differ", SHOW(t), SHOW(u));
    NEED(t->rank == u->rank, "the operand is %s and the update %s: the ranks differ", SHOW(t), SHOW(u));
    for (uint32_t i = 0; i < t->rank; i++)
        NEED(t->dims[i] < 0 || u->dims[i] < 0 || u->dims[i] <= t->dims[i],
             "the update is larger than the operand in dim %u, %lld and %lld", i, (long long)u->dims[i],
             (long long)t->dims[i]);
    xl_error *err = need_starts(c, 2, t->rank);
    if (!err)
        c->out[0] = t;
    return err;
}

RULE(pad)
{
    START();
    const xl_type *t = IN(0);
    xl_dims lo = xl_op_dims(c->op, XL_SLOT(PAD, edge_padding_low)),
            hi = xl_op_dims(c->op, XL_SLOT(PAD, edge_padding_high)),
            in = xl_op_dims(c->op, XL_SLOT(PAD, interior_padding));
    NEED(lo.n == t->rank && hi.n == t->rank && in.n == t->rank,
         "low, high and interior need one entry for each dimension of %s", SHOW(t));
    NEED(xl_is_scalar(IN(1)) && (IN(1)->dtype == t->dtype || t->quant), "the padding value is %s, expected a scalar %s",
         SHOW(IN(1)), xl_dtypes[t->dtype].text);
    int64_t *d = new_dims(c, t->rank), *b = new_dims(c, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        NEED(in.p[i] >= 0, "interior padding %lld of dim %u is negative", (long long)in.p[i], i);
        for (int k = 0; k < 2; k++) {                      /* the size, then the bound */
            int64_t size = k ? bound_of(t, i) : t->dims[i];
            xl_wide n = (xl_wide)lo.p[i] + hi.p[i] + (size > 0 ? (xl_wide)(size - 1) * in.p[i] + size : 0);
            NEED(size < 0 || xl_fits(n), "dim %u of %lld elements padded by %lld and %lld has no size", i,
                 (long long)size, (long long)lo.p[i], (long long)hi.p[i]);
            (k ? b : d)[i] = size < 0 ? XL_DYN : (int64_t)n;
        }
    }
    put(c, tensor_like(c, t, d, b, t->rank));
    return NULL;
}

RULE(sort)
{
    START();
    const xl_op *end;
    uint32_t n = c->op->nin;
    NEED(n > 0 && c->nout == n, "has %u operands and %u results", n, c->nout);
    int64_t dim = xl_op_int(c->op, XL_SLOT(SORT, dimension)), rank = IN(0)->rank;
    NEED((dim >= -rank && dim < rank) || (rank == 0 && dim == -1), "dimension is %lld, the operand is %s",
         (long long)dim, SHOW(IN(0)));
    xl_error *err = xl_need_region(c, 0, 2 * n, &end);
    if (err)
        return err;
    for (uint32_t i = 0; i < n; i++) {
        NEED(xl_shape_like(IN(0), IN(i)), "operand %u is %s, operand 0 %s: the shapes differ", i, SHOW(IN(i)),
             SHOW(IN(0)));
        for (uint32_t k = 2 * i; k < 2 * i + 2; k++) {
            const xl_type *arg = xl_value_type(c->f, c->op->region[0]->arg[k]);
            NEED(xl_is_scalar(arg) && (arg->dtype == IN(i)->dtype || arg->quant),
                 "argument %u of the comparator is %s, expected a scalar %s", k, SHOW(arg),
                 xl_dtypes[IN(i)->dtype].text);
        }
        c->out[i] = IN(i);
    }
    NEED(end->nin == 1 && xl_is_scalar(xl_in_type(c->f, end, 0)) && xl_in_type(c->f, end, 0)->dtype == XL_I1,
         "the comparator must return one scalar boolean");
    return NULL;
}

RULE(top_k)
{
    START();
    const xl_type *t = IN(0);
    int64_t k = xl_op_int(c->op, XL_SLOT(CHLO_TOP_K, k));
    NEED(t->rank > 0, "the operand needs a dimension");
    NEED(k >= 0 && (t->dims[t->rank - 1] < 0 || k <= t->dims[t->rank - 1]), "k is %lld, the operand %s", (long long)k,
         SHOW(t));
    int64_t *d = new_dims(c, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    d[t->rank - 1] = k;
    c->out[0] = tensor_like(c, t, d, NULL, t->rank);
    c->out[1] = xl_type_tensor(c->m, XL_I32, (xl_dims){ d, t->rank });
    return NULL;
}

RULE(torch_index_select)
{
    START();
    const xl_type *t = IN(0), *x = IN(1);
    int64_t dim = xl_op_int(c->op, XL_SLOT(TORCH_INDEX_SELECT, dim)),
            batch = xl_op_int(c->op, XL_SLOT(TORCH_INDEX_SELECT, batch_dims));
    NEED(xl_is_int(x->dtype), "the index must hold integers, not %s", SHOW(x));
    NEED(dim >= 0 && dim < (int64_t)t->rank, "dim is %lld, the operand is %s", (long long)dim, SHOW(t));
    NEED(batch >= 0 && batch <= dim && batch <= (int64_t)x->rank, "batch_dims is %lld, the index is %s",
         (long long)batch, SHOW(x));
    uint32_t rank = t->rank + x->rank - 1 - (uint32_t)batch, at = 0;
    int64_t *d = new_dims(c, rank);
    for (int64_t i = 0; i < dim; i++)
        d[at++] = t->dims[i];
    for (uint32_t i = (uint32_t)batch; i < x->rank; i++)
        d[at++] = x->dims[i];
    for (uint32_t i = (uint32_t)dim + 1; i < t->rank; i++)
        d[at++] = t->dims[i];
    put(c, tensor_like(c, t, d, NULL, rank));
    return NULL;
}

/* ---- gather and scatter ----------------------------------------------------------------------------------------- */
static bool has(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}

static xl_error *need_apart(xl_infer_ctx *c, xl_dims a, xl_dims b, const char *what, const char *other)
{
    for (size_t i = 0; i < a.n; i++)
        NEED(!has(b, a.p[i]), "%s and %s both have %lld", what, other, (long long)a.p[i]);
    return NULL;
}
#define APART(a, b, x, y) do { xl_error *err_ = need_apart(c, (a), (b), (x), (y)); if (err_) return err_; } while (0)

/* What gather and scatter share: how a vector of indices points into an operand. */
typedef struct {
    const xl_type *t, *index;
    xl_dims window, dropped, batch, index_batch, map;      /* offset/update_window, collapsed/inserted, batching, ... */
    int64_t vector;
} pointing;

#define POINTING(OP, indices, offset, collapsed, batching, index_batching, map)                                        \
    { IN(0), IN(indices), xl_op_dims(op, XL_SLOT(OP, offset)), xl_op_dims(op, XL_SLOT(OP, collapsed)),                 \
      xl_op_dims(op, XL_SLOT(OP, batching)), xl_op_dims(op, XL_SLOT(OP, index_batching)),                              \
      xl_op_dims(op, XL_SLOT(OP, map)), xl_op_int(op, XL_SLOT(OP, index_vector_dim)) }
#define GATHERS(OP)                                                                                                    \
    POINTING(OP, 1, offset_dims, collapsed_slice_dims, operand_batching_dims, start_indices_batching_dims,             \
             start_index_map)

static xl_error *need_pointing(xl_infer_ctx *c, const pointing *p)
{
    bool g = c->op->code != XL_OP_SCATTER;
    const char *window = g ? "offset_dims" : "update_window_dims",
               *dropped = g ? "collapsed_slice_dims" : "inserted_window_dims",
               *batch = g ? "operand_batching_dims" : "input_batching_dims",
               *ibatch = g ? "start_indices_batching_dims" : "scatter_indices_batching_dims",
               *map = g ? "start_index_map" : "scatter_dims_to_operand_dims";
    const xl_type *t = p->t, *x = p->index;
    NEED(xl_is_int(x->dtype), "indices must be integers, not %s", SHOW(x));
    NEED(t->rank == p->window.n + p->dropped.n + p->batch.n,
         "the operand has rank %u, but %s, %s and %s name %zu dimensions", t->rank, window, dropped, batch,
         p->window.n + p->dropped.n + p->batch.n);
    NEED(p->vector >= 0 && p->vector <= (int64_t)x->rank, "index_vector_dim is %lld, the indices are %s",
         (long long)p->vector, SHOW(x));
    int64_t parts = p->vector < (int64_t)x->rank ? x->dims[p->vector] : 1;
    NEED(xl_dim_like(parts, (int64_t)p->map.n), "%s has %zu entries, but an index vector has %lld", map, p->map.n,
         (long long)parts);
    DIMS(p->dropped, t->rank, true, dropped);
    DIMS(p->batch, t->rank, true, batch);
    APART(p->dropped, p->batch, dropped, batch);
    DIMS(p->map, t->rank, false, map);
    APART(p->map, p->batch, map, batch);
    DIMS(p->index_batch, x->rank, false, ibatch);
    NEED(!has(p->index_batch, p->vector), "%s has the index_vector_dim, %lld", ibatch, (long long)p->vector);
    NEED(p->batch.n == p->index_batch.n, "%s has %zu entries and %s has %zu", batch, p->batch.n, ibatch,
         p->index_batch.n);
    for (size_t i = 0; i < p->batch.n; i++)
        NEED(xl_dim_like(t->dims[p->batch.p[i]], x->dims[p->index_batch.p[i]]),
             "batch sizes differ, %lld (operand dim %lld) and %lld (indices dim %lld)",
             (long long)t->dims[p->batch.p[i]], (long long)p->batch.p[i], (long long)x->dims[p->index_batch.p[i]],
             (long long)p->index_batch.p[i]);
    return NULL;
}

/* The shape of what is gathered: batch dimensions of the indices, and the window at offset_dims. sizes.p
 * NULL: unknown. */
static xl_error *gathered(xl_infer_ctx *c, const pointing *p, const int64_t *sizes)
{
    const xl_type *t = p->t, *x = p->index;
    uint32_t batch = x->rank - (p->vector < (int64_t)x->rank ? 1 : 0), rank = batch + (uint32_t)p->window.n;
    DIMS(p->window, rank, true, "offset_dims");
    int64_t *d = new_dims(c, rank);
    uint32_t from = 0, win = 0;
    for (uint32_t i = 0; i < rank; i++) {
        if (has(p->window, i)) {
            while (has(p->dropped, win) || has(p->batch, win))
                win++;
            d[i] = sizes ? sizes[win] : XL_DYN;
            win++;
        } else {
            if (from == (uint64_t)p->vector)
                from++;
            d[i] = x->dims[from++];
        }
    }
    put(c, tensor_like(c, t, d, NULL, rank));
    return NULL;
}

static xl_error *need_sizes(xl_infer_ctx *c, const pointing *p, xl_dims sizes)
{
    for (uint32_t i = 0; i < p->t->rank; i++) {
        NEED(sizes.p[i] >= 0 && (p->t->dims[i] < 0 || sizes.p[i] <= p->t->dims[i]),
             "slice size %lld of dim %u is beyond its size %lld", (long long)sizes.p[i], i, (long long)p->t->dims[i]);
        NEED(sizes.p[i] <= 1 || !(has(p->dropped, i) || has(p->batch, i)),
             "slice size of collapsed or batching dim %u is %lld, expected at most 1", i, (long long)sizes.p[i]);
    }
    return NULL;
}

RULE(gather)
{
    START();
    const xl_op *op = c->op;
    pointing p = GATHERS(GATHER);
    xl_dims sizes = xl_op_dims(op, XL_SLOT(GATHER, slice_sizes));
    xl_error *err = need_pointing(c, &p);
    if (err)
        return err;
    NEED(sizes.n == p.t->rank, "slice_sizes has %zu entries, expected the operand's rank, %u", sizes.n, p.t->rank);
    err = need_sizes(c, &p, sizes);
    return err ? err : gathered(c, &p, sizes.p);
}

RULE(dynamic_gather)
{
    START();
    const xl_op *op = c->op;
    pointing p = GATHERS(DYNAMIC_GATHER);
    xl_dims sizes;
    xl_error *err = need_list(c, 2, IN(0)->rank, "slice_sizes");
    if (!err)
        err = need_pointing(c, &p);
    bool known = !err && known_list(c, 2, &sizes) && sizes.n == p.t->rank;
    if (known)
        err = need_sizes(c, &p, sizes);
    return err ? err : gathered(c, &p, known ? sizes.p : NULL);
}

RULE(scatter)
{
    START();
    const xl_op *op = c->op, *end;
    uint32_t n = (op->nin - 1) / 2;
    NEED(op->nin >= 3 && op->nin % 2 == 1 && c->nout == n,
         "has %u operands and %u results; expected n inputs, indices, n updates, n results", op->nin, c->nout);
    pointing p = POINTING(SCATTER, n, update_window_dims, inserted_window_dims, input_batching_dims,
                          scatter_indices_batching_dims, scatter_dims_to_operand_dims);
    xl_error *err = need_pointing(c, &p);
    if (!err)
        err = xl_need_region(c, 0, 2 * n, &end);
    if (err)
        return err;
    const xl_type *u = IN(n + 1);
    uint32_t batch = p.index->rank - (p.vector < (int64_t)p.index->rank ? 1 : 0), from = 0, win = 0;
    NEED(u->rank == batch + p.window.n,
         "the updates are %s, expected rank %zu: %u of the indices and %zu of the window", SHOW(u), batch + p.window.n,
         batch, p.window.n);
    DIMS(p.window, u->rank, true, "update_window_dims");
    for (uint32_t i = 0; i < u->rank; i++) {
        if (has(p.window, i)) {
            while (has(p.dropped, win) || has(p.batch, win))
                win++;
            NEED(u->dims[i] < 0 || p.t->dims[win] < 0 || u->dims[i] <= p.t->dims[win],
                 "window size %lld (updates dim %u) is beyond %lld (operand dim %u)", (long long)u->dims[i], i,
                 (long long)p.t->dims[win], win);
            win++;
        } else {
            if (from == (uint64_t)p.vector)
                from++;
            NEED(xl_dim_like(u->dims[i], p.index->dims[from]),
                 "sizes differ, %lld (updates dim %u) and %lld (indices dim %u)", (long long)u->dims[i], i,
                 (long long)p.index->dims[from], from);
            from++;
        }
    }
    NEED(end->nin == n, "the computation returns %u values, expected %u", end->nin, n);
    for (uint32_t i = 0; i < n; i++) {
        const xl_type *t = IN(i), *v = IN(n + 1 + i), *r = xl_in_type(c->f, end, i);
        NEED(xl_shape_like(t, p.t), "input %u is %s, input 0 %s: the shapes differ", i, SHOW(t), SHOW(p.t));
        NEED(xl_shape_like(v, u), "update %u is %s, update 0 %s: the shapes differ", i, SHOW(v), SHOW(u));
        NEED(t->dtype == v->dtype || t->quant, "input %u is %s and its update %s: the types differ", i, SHOW(t),
             SHOW(v));
        NEED(xl_is_scalar(r) && (xl_promotable(t->dtype, r->dtype) || t->quant), "the computation returns %s for %s",
             SHOW(r), SHOW(t));
        for (uint32_t k = i; k < 2 * n; k += n) {
            const xl_type *arg = xl_value_type(c->f, op->region[0]->arg[k]);
            NEED(xl_is_scalar(arg) && (xl_promotable(t->dtype, arg->dtype) || t->quant),
                 "argument %u of the computation is %s, expected a scalar %s", k, SHOW(arg), xl_dtypes[t->dtype].text);
        }
        c->out[i] = t->quant && c->out[i] ? c->out[i] : xl_type_with_dtype(c->m, t, r->dtype);
    }
    return NULL;
}
