/* fold: evaluate ops on constants.
 * Only ops with the same result on every device: integers, and the float operations that IEEE 754 rounds exactly (+ - *
 * / sqrt and rounding to integers). 16-bit floats are computed in f32 and rounded again, which equals rounding once,
 * since f32 has more than twice their digits. Functions such as exp are left to the device, so folding never changes a
 * result.
 * A result with equal elements stays a single number; others are folded up to MOST elements.
 * needs: nothing.  keeps: types, locations.  breaks: nothing. */
#include <math.h>

#include "ir/scalar.h"
#include "pass/pass.h"

enum { MOST = 1024 };

/* One element: an integer (sign- or zero-extended) or a float. */
typedef struct { bool is_float; int64_t i; double f; } num;

static bool plain_float(xl_dtype d) { return d == XL_F32 || d == XL_F64 || d == XL_F16 || d == XL_BF16; }
static bool plain_int(xl_dtype d)
{
    xl_dclass c = xl_dtype_class(d);
    return c == XL_CLASS_INT || c == XL_CLASS_UINT || c == XL_CLASS_PRED;
}
static bool plain(const xl_type *t)
{
    return t->kind == XL_TY_TENSOR && !t->quant && (plain_float(t->dtype) || plain_int(t->dtype));
}

static num get(const xl_attr *a, int64_t i)
{
    size_t size = xl_dtype_bytes(a->dtype);
    if (plain_int(a->dtype))
        return (num){ false, xl_dense_int(a, i), 0 };
    return (num){ true, 0, xl_scalar_get(a->dtype, a->data.p + (xl_attr_is_splat(a) ? 0 : (size_t)i * size)) };
}

/* The exactly rounded result in type d; NaN is left alone, for its bits are the device's affair. */
static bool put(xl_dtype d, num v, unsigned char *out)
{
    if (v.is_float && isnan(v.f))
        return false;
    if (v.is_float)
        xl_scalar_put(d, v.f, out);
    else
        xl_scalar_put_int(d, v.i, out);
    return true;
}

static double rounded(xl_dtype d, double v) { return d == XL_F64 ? v : (double)(float)v; }

static bool unary(const xl_op *op, xl_dtype from, xl_dtype to, num x, num *r)
{
    *r = x;
    switch (op->code) {
    case XL_OP_NEGATE:
        r->i = (int64_t)(0 - (uint64_t)x.i);
        r->f = -x.f;
        return true;
    case XL_OP_ABS:
        r->i = x.i < 0 ? (int64_t)(0 - (uint64_t)x.i) : x.i;
        r->f = fabs(x.f);
        return true;
    case XL_OP_NOT:
        r->i = xl_dtype_class(from) == XL_CLASS_PRED ? !x.i : ~x.i;
        return !x.is_float;
    case XL_OP_SQRT:
        r->f = from == XL_F64 ? sqrt(x.f) : (double)sqrtf((float)x.f);
        return x.is_float;
    case XL_OP_FLOOR: r->f = floor(x.f); return x.is_float;
    case XL_OP_CEIL: r->f = ceil(x.f); return x.is_float;
    case XL_OP_CONVERT:
        if (x.is_float && plain_float(to))
            return from != XL_F64 || to == XL_F32 ||
                   to == XL_F64; /* a device may go from f64 to 16 bits in two steps */
        if (!x.is_float && plain_int(to)) {
            if (xl_dtype_class(to) == XL_CLASS_PRED)
                r->i = x.i != 0;
            return true;
        }
        if (!x.is_float) {                                 /* exact in double, or not folded */
            bool big = xl_dtype_class(from) == XL_CLASS_UINT && x.i < 0;
            r->is_float = true;
            r->f = (double)x.i;
            return !big && x.i <= (INT64_C(1) << 53) && x.i >= -(INT64_C(1) << 53);
        }
        r->is_float = false;
        if (xl_dtype_class(to) == XL_CLASS_PRED)
            r->i = x.f != 0;
        else {
            double hi = ldexp(1, xl_dtypes[to].bits - (xl_dtype_class(to) == XL_CLASS_INT)),
                   lo = xl_dtype_class(to) == XL_CLASS_INT ? -hi : 0;
            if (!(x.f < hi && x.f >= lo && x.f < 9e18))    /* out of range: the device's affair */
                return false;
            r->i = (int64_t)x.f;
        }
        return true;
    default: return false;
    }
}

static bool less(xl_dtype d, num a, num b)
{
    return a.is_float ? a.f < b.f : xl_dtype_class(d) == XL_CLASS_INT ? a.i < b.i : (uint64_t)a.i < (uint64_t)b.i;
}

static bool binary(const xl_op *op, xl_dtype d, num x, num y, num *r)
{
    uint64_t a = (uint64_t)x.i, b = (uint64_t)y.i;
    bool is_signed = xl_dtype_class(d) == XL_CLASS_INT, pred = xl_dtype_class(d) == XL_CLASS_PRED;
    unsigned bits = xl_dtypes[d].bits;
    *r = (num){ .is_float = x.is_float };
    switch (op->code) {
    case XL_OP_ADD:
        r->i = pred ? x.i | y.i : (int64_t)(a + b);
        r->f = rounded(d, x.f + y.f);
        return true;
    case XL_OP_SUBTRACT:
        r->i = (int64_t)(a - b);
        r->f = rounded(d, x.f - y.f);
        return true;
    case XL_OP_MULTIPLY:
        r->i = pred ? x.i & y.i : (int64_t)(a * b);
        r->f = rounded(d, x.f * y.f);
        return true;
    case XL_OP_DIVIDE: case XL_OP_REMAINDER:
        if (x.is_float) {
            r->f = rounded(d, x.f / y.f);
            return op->code == XL_OP_DIVIDE && y.f != 0;
        }
        if (y.i == 0 || pred || (is_signed && y.i == -1))
            return false;
        if (op->code == XL_OP_DIVIDE)
            r->i = is_signed ? x.i / y.i : (int64_t)(a / b);
        else
            r->i = is_signed ? x.i % y.i : (int64_t)(a % b);
        return true;
    case XL_OP_AND: r->i = x.i & y.i; return true;
    case XL_OP_OR: r->i = x.i | y.i; return true;
    case XL_OP_XOR: r->i = x.i ^ y.i; return true;
    case XL_OP_SHIFT_LEFT:
        r->i = b < bits ? (int64_t)(a << b) : 0;
        return y.i >= 0;
    case XL_OP_SHIFT_RIGHT_LOGICAL: {
        uint64_t u = bits == 64 ? a : a & ((UINT64_C(1) << bits) - 1);
        r->i = b < bits ? (int64_t)(u >> b) : 0;
        return y.i >= 0;
    }
    case XL_OP_SHIFT_RIGHT_ARITHMETIC:
        r->i = x.i >> (b < bits ? b : bits - 1);
        return y.i >= 0 && is_signed;
    case XL_OP_MAXIMUM: case XL_OP_MINIMUM:
        if (x.is_float && (isnan(x.f) || isnan(y.f) || (x.f == 0 && y.f == 0)))
            return false;                                  /* of two zeros the sign is the device's affair */
        *r = less(d, x, y) == (op->code == XL_OP_MAXIMUM) ? y : x;
        return true;
    case XL_OP_COMPARE: {
        bool lt = less(d, x, y), gt = less(d, y, x), eq = x.is_float ? x.f == y.f : x.i == y.i, v;
        switch (xl_op_int(op, XL_SLOT(COMPARE, comparison_direction))) {
        case XL_COMPARISON_DIRECTION_EQ: v = eq; break;
        case XL_COMPARISON_DIRECTION_NE: v = !eq; break;
        case XL_COMPARISON_DIRECTION_GE: v = gt || eq; break;
        case XL_COMPARISON_DIRECTION_GT: v = gt; break;
        case XL_COMPARISON_DIRECTION_LE: v = lt || eq; break;
        default: v = lt; break;
        }
        *r = (num){ false, v, 0 };
        return xl_op_int(op, XL_SLOT(COMPARE, compare_type)) != XL_COMPARISON_TYPE_TOTALORDER;
    }
    default: return false;
    }
}

static bool element(const xl_func *f, const xl_op *op, const xl_attr *const *k, int64_t i, unsigned char *out)
{
    xl_dtype d = xl_out_type(f, op, 0)->dtype;
    num r;
    if (op->code == XL_OP_SELECT)
        r = get(k[0], i).i ? get(k[1], i) : get(k[2], i);
    else if (op->nin == 1 ? !unary(op, k[0]->dtype, d, get(k[0], i), &r)
                          : !binary(op, k[0]->dtype, get(k[0], i), get(k[1], i), &r))
        return false;
    return put(d, r, out);
}

static bool elementwise(xl_b *b, xl_subst *s, const xl_op *op)
{
    xl_func *f = b->f;
    const xl_type *t = xl_out_type(f, op, 0);
    const xl_attr *k[3];
    bool one = true;
    int64_t n;
    if (op->nin < 1 || op->nin > 3 || !plain(t) || !xl_type_count(t, &n) || n == 0)
        return false;
    for (uint32_t i = 0; i < op->nin; i++) {
        k[i] = xl_value_const(f, op->in[i]);
        if (!k[i] || !plain(k[i]->type))
            return false;
        one = one && xl_attr_is_splat(k[i]);
    }
    if (!one && n > MOST)
        return false;
    size_t size = xl_dtype_bytes(t->dtype), count = one ? 1 : (size_t)n;
    unsigned char *data = xl_new(&f->m->arena, unsigned char, count * size);
    for (size_t i = 0; i < count; i++)
        if (!element(f, op, k, (int64_t)i, data + i * size))
            return false;
    xl_subst_set(s, op->out[0], xl_b_const(b, t, data, count * size));
    return true;
}

static bool rewrite(xl_b *b, xl_subst *s, xl_op *op)
{
    xl_func *f = b->f;
    if (op->nout != 1 || op->nin == 0 || op->extra)
        return false;
    const xl_type *t = xl_out_type(f, op, 0);
    const xl_attr *k = xl_value_const(f, op->in[0]);
    if (!k || !xl_type_static(t) || t->quant)
        return false;
    switch (op->code) {
    case XL_OP_RESHAPE:                                    /* the same bytes in another shape */
        if (!xl_attr_is_splat(k) && k->data.n > 65536)
            return false;
        xl_subst_set(s, op->out[0], xl_b_const(b, t, k->data.p, k->data.n));
        return !xl_b_failed(b);
    case XL_OP_BROADCAST_IN_DIM: case XL_OP_TRANSPOSE: case XL_OP_SLICE: case XL_OP_REVERSE: case XL_OP_DYNAMIC_SLICE:
        if (!xl_attr_is_splat(k) || k->type->dtype != t->dtype)
            return false;
        xl_subst_set(s, op->out[0], xl_b_const(b, t, k->data.p, k->data.n));
        return !xl_b_failed(b);
    default:
        return (xl_ops[op->code].flags & XL_OP_FOLDS) && elementwise(b, s, op);
    }
}

xl_error *xl_pass_fold(xl_module *m, const xl_pipeline_opts *opts)
{
    (void)opts;
    return xl_rewrite(m, rewrite);
}
