/* Gradients of elementwise ops: each operand gets the cotangent times the partial derivative. */
#include "pass/grad.h"

#include <math.h>

#define RULE(name) xl_error *xl_grad_##name(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
/* Inside a rule: x, y are the operands, r the result, t the cotangent. */
#define X (op->in[0])
#define Y (op->in[1])
#define R (op->out[0])
#define T (ct[0])
static xl_value add(xl_grad_ctx *g, xl_value a, xl_value b) { return xl_em_binary(&g->e, XL_OP_ADD, a, b); }
static xl_value sub(xl_grad_ctx *g, xl_value a, xl_value b) { return xl_em_binary(&g->e, XL_OP_SUBTRACT, a, b); }
static xl_value mul(xl_grad_ctx *g, xl_value a, xl_value b) { return xl_em_binary(&g->e, XL_OP_MULTIPLY, a, b); }
static xl_value dvd(xl_grad_ctx *g, xl_value a, xl_value b) { return xl_em_binary(&g->e, XL_OP_DIVIDE, a, b); }
static xl_value neg(xl_grad_ctx *g, xl_value a) { return xl_em_unary(&g->e, XL_OP_NEGATE, a); }
static xl_value un(xl_grad_ctx *g, xl_opcode code, xl_value a) { return xl_em_unary(&g->e, code, a); }
static xl_value k(xl_grad_ctx *g, xl_value like, double v) { return xl_em_like(&g->e, like, v); }
static xl_value sq(xl_grad_ctx *g, xl_value a) { return mul(g, a, a); }
static xl_error *give(xl_grad_ctx *g, xl_value to, xl_value cot)
{
    xl_cot_add(g, to, cot);
    return NULL;
}
static bool complex_value(xl_grad_ctx *g, xl_value v)
{
    return xl_dtype_class(xl_value_type(g->e.f, v)->dtype) == XL_CLASS_COMPLEX;
}

static xl_value cplx(xl_grad_ctx *g, xl_value re, xl_value im, const xl_type *t)
{
    return xl_em_op(&g->e, XL_OP_COMPLEX, (xl_value[]){ re, im }, 2, t)->out[0];
}

/* ---- one operand ---- */
RULE(abs)
{
    if (!complex_value(g, X))
        return give(g, X, mul(g, T, un(g, XL_OP_SIGN, X)));
    /* conj(x) / |x|, and 0 at 0 */
    xl_value isz = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, R, k(g, R, 0));
    xl_value by = xl_em_select(&g->e, isz, k(g, R, 0), dvd(g, T, xl_em_select(&g->e, isz, k(g, R, 1), R)));
    return give(g, X, mul(g, cplx(g, by, k(g, by, 0), xl_in_type(g->e.f, op, 0)), un(g, XL_OP_CHLO_CONJ, X)));
}
RULE(cbrt) { return give(g, X, dvd(g, T, mul(g, k(g, R, 3), sq(g, R)))); }
RULE(convert)
{
    const xl_type *from = xl_in_type(g->e.f, op, 0), *to = xl_out_type(g->e.f, op, 0);
    bool cf = xl_dtype_class(from->dtype) == XL_CLASS_COMPLEX, ct_ = xl_dtype_class(to->dtype) == XL_CLASS_COMPLEX;
    if (cf == ct_)
        return give(g, X, xl_em_convert(&g->e, T, from->dtype));
    if (ct_) {                                                   /* real to complex: only the real part comes back */
        xl_op *re = xl_em_op(&g->e, XL_OP_REAL, ct, 1, xl_type_with_dtype(g->e.f->m, to, xl_dtype_part(to->dtype)));
        return give(g, X, xl_em_convert(&g->e, re->out[0], from->dtype));
    }
    xl_value part = xl_em_convert(&g->e, T, xl_dtype_part(from->dtype)); /* complex to real drops the imaginary part */
    return give(g, X, cplx(g, part, k(g, part, 0), from));
}
RULE(cosine) { return give(g, X, neg(g, mul(g, T, un(g, XL_OP_SINE, X)))); }
RULE(sine) { return give(g, X, mul(g, T, un(g, XL_OP_COSINE, X))); }
RULE(tan) { return give(g, X, mul(g, T, add(g, k(g, R, 1), sq(g, R)))); }
RULE(tanh) { return give(g, X, mul(g, T, sub(g, k(g, R, 1), sq(g, R)))); }
RULE(exponential) { return give(g, X, mul(g, T, R)); }
RULE(exponential_minus_one) { return give(g, X, mul(g, T, add(g, R, k(g, R, 1)))); }
RULE(log) { return give(g, X, dvd(g, T, X)); }
RULE(log_plus_one) { return give(g, X, dvd(g, T, add(g, X, k(g, X, 1)))); }
RULE(logistic) { return give(g, X, mul(g, T, mul(g, R, sub(g, k(g, R, 1), R)))); }
RULE(negate) { return give(g, X, neg(g, T)); }
RULE(rsqrt) { return give(g, X, mul(g, T, mul(g, k(g, R, -0.5), dvd(g, R, X)))); }
RULE(sqrt) { return give(g, X, dvd(g, mul(g, T, k(g, R, 0.5)), R)); }

/* Real and imaginary parts of a real tensor exist too: the first is itself. */
RULE(real)
{
    return give(g, X, complex_value(g, X) ? cplx(g, T, k(g, T, 0), xl_in_type(g->e.f, op, 0)) : T);
}
RULE(imag)
{
    return complex_value(g, X) ? give(g, X, cplx(g, k(g, T, 0), neg(g, T), xl_in_type(g->e.f, op, 0))) : NULL;
}
RULE(complex)
{
    const xl_type *t = xl_in_type(g->e.f, op, 0);
    if (xl_cot_active(g, X))
        xl_cot_add(g, X, xl_em_op(&g->e, XL_OP_REAL, ct, 1, t)->out[0]);
    if (xl_cot_active(g, Y))
        xl_cot_add(g, Y, neg(g, xl_em_op(&g->e, XL_OP_IMAG, ct, 1, t)->out[0]));
    return NULL;
}
RULE(chlo_conj)
{
    if (!complex_value(g, X))
        return give(g, X, T);
    return give(g, X, un(g, XL_OP_CHLO_CONJ, T));
}

RULE(identity)
{
    for (uint32_t i = 0; i < op->nin && i < op->nout; i++)
        xl_cot_add(g, op->in[i], ct[i]);
    return NULL;
}

/* The cotangent is split as the value is. */
RULE(constraint)
{
    xl_op *same = xl_em_op(&g->e, XL_OP_SDY_CONSTRAINT, ct, 1, xl_em_type(&g->e, T));
    same->attr[XL_SLOT(SDY_CONSTRAINT, sharding)] = XL_ATTR(op, SDY_CONSTRAINT, sharding);
    return give(g, X, xl_em_done(&g->e, same));
}

/* ---- two and three operands ---- */
RULE(add) { xl_cot_add(g, X, T); return give(g, Y, T); }
RULE(subtract)
{
    xl_cot_add(g, X, T);
    return xl_cot_active(g, Y) ? give(g, Y, neg(g, T)) : NULL;
}
RULE(multiply)
{
    if (xl_cot_active(g, X))
        xl_cot_add(g, X, mul(g, T, Y));
    return xl_cot_active(g, Y) ? give(g, Y, mul(g, T, X)) : NULL;
}
RULE(divide)
{
    xl_value q = dvd(g, T, Y);
    xl_cot_add(g, X, q);
    return xl_cot_active(g, Y) ? give(g, Y, neg(g, mul(g, q, R))) : NULL;
}
/* Equal operands share the cotangent, as in JAX: each side gets half of it. */
static xl_error *extremum(xl_grad_ctx *g, xl_op *op, const xl_value *ct, int direction)
{
    if (X.id == Y.id)
        return give(g, X, T);
    xl_value tie = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, X, Y), half = mul(g, T, k(g, T, 0.5)),
             zero = k(g, T, 0);
    for (uint32_t i = 0; i < 2; i++) {
        if (!xl_cot_active(g, op->in[i]))
            continue;
        xl_value wins = xl_em_compare(&g->e, direction, op->in[i], op->in[1 - i]);
        xl_cot_add(g, op->in[i], xl_em_select(&g->e, tie, half, xl_em_select(&g->e, wins, T, zero)));
    }
    return NULL;
}
RULE(maximum) { return extremum(g, op, ct, XL_COMPARISON_DIRECTION_GT); }
RULE(minimum) { return extremum(g, op, ct, XL_COMPARISON_DIRECTION_LT); }
RULE(power)
{
    if (xl_cot_active(g, X)) {                          /* y x^(y-1); where y is 0 that is 0, whatever x is */
        xl_value zero = k(g, Y, 0), isz = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, Y, zero);
        xl_value e = xl_em_select(&g->e, isz, k(g, Y, 1), sub(g, Y, k(g, Y, 1)));
        xl_cot_add(g, X, mul(g, T, mul(g, Y, xl_em_binary(&g->e, XL_OP_POWER, X, e))));
    }
    if (xl_cot_active(g, Y)) {                          /* x^y log x; at x = 0 the limit is 0, not 0 * -inf */
        xl_value zero = k(g, X, 0), isz = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, X, zero);
        xl_value l = un(g, XL_OP_LOG, xl_em_select(&g->e, isz, k(g, X, 1), X));
        xl_cot_add(g, Y, mul(g, T, mul(g, R, l)));
    }
    return NULL;
}
RULE(remainder)
{
    xl_cot_add(g, X, T);
    if (!xl_cot_active(g, Y))
        return NULL;                                     /* x - trunc(x / y) y */
    xl_value q = dvd(g, X, Y), whole = mul(g, un(g, XL_OP_SIGN, q), un(g, XL_OP_FLOOR, un(g, XL_OP_ABS, q)));
    return give(g, Y, neg(g, mul(g, T, whole)));
}
RULE(atan2)
{
    xl_value d = add(g, sq(g, X), sq(g, Y)), q = dvd(g, T, d);
    if (xl_cot_active(g, X))
        xl_cot_add(g, X, mul(g, q, Y));
    return xl_cot_active(g, Y) ? give(g, Y, neg(g, mul(g, q, X))) : NULL;
}
RULE(select)
{
    xl_value p = op->in[0], zero = k(g, T, 0);
    if (xl_value_type(g->e.f, p)->rank == 0 && xl_value_type(g->e.f, T)->rank != 0)
        p = xl_em_spread(&g->e, p, xl_type_dims(xl_value_type(g->e.f, T)));
    if (xl_cot_active(g, op->in[1]))
        xl_cot_add(g, op->in[1], xl_em_select(&g->e, p, T, zero));
    return xl_cot_active(g, op->in[2]) ? give(g, op->in[2], xl_em_select(&g->e, p, zero, T)) : NULL;
}
/* clamp(low, x, high): the operand passes strictly between the bounds, as in JAX; a bound gets what it stopped. */
RULE(clamp)
{
    xl_value lo = op->in[0], x = op->in[1], hi = op->in[2], zero = k(g, T, 0);
    xl_dims d = xl_type_dims(xl_value_type(g->e.f, x));
    xl_value lo1 = d.n && !xl_value_type(g->e.f, lo)->rank ? xl_em_spread(&g->e, lo, d) : lo;
    xl_value hi1 = d.n && !xl_value_type(g->e.f, hi)->rank ? xl_em_spread(&g->e, hi, d) : hi;
    if (xl_cot_active(g, x)) {
        xl_value a = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_GT, x, lo1),
                 b = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_LT, x, hi1);
        xl_cot_add(g, x, xl_em_select(&g->e, xl_em_binary(&g->e, XL_OP_AND, a, b), T, zero));
    }
    xl_value side[2] = { lo, hi }, full[2] = { lo1, hi1 };
    for (int i = 0; i < 2; i++) {
        if (!xl_cot_active(g, side[i]))
            continue;
        xl_value p = xl_em_compare(&g->e, i ? XL_COMPARISON_DIRECTION_GT : XL_COMPARISON_DIRECTION_LT, x, full[i]);
        xl_value s = xl_em_select(&g->e, p, T, zero);
        if (side[i].id != full[i].id) {
            int64_t *all = xl_new(&g->e.f->m->arena, int64_t, d.n);
            for (size_t n = 0; n < d.n; n++)
                all[n] = (int64_t)n;
            s = xl_em_sum(&g->e, s, (xl_dims){ all, d.n });
        }
        xl_cot_add(g, side[i], s);
    }
    return NULL;
}

/* ---- what CHLO adds ---- */
static xl_value one_minus_sq(xl_grad_ctx *g, xl_value x) { return sub(g, k(g, x, 1), sq(g, x)); }
RULE(chlo_acos) { return give(g, X, neg(g, mul(g, T, un(g, XL_OP_RSQRT, one_minus_sq(g, X))))); }
RULE(chlo_asin) { return give(g, X, mul(g, T, un(g, XL_OP_RSQRT, one_minus_sq(g, X)))); }
RULE(chlo_atan) { return give(g, X, dvd(g, T, add(g, k(g, X, 1), sq(g, X)))); }
RULE(chlo_acosh) { return give(g, X, mul(g, T, un(g, XL_OP_RSQRT, sub(g, sq(g, X), k(g, X, 1))))); }
RULE(chlo_asinh) { return give(g, X, mul(g, T, un(g, XL_OP_RSQRT, add(g, sq(g, X), k(g, X, 1))))); }
RULE(chlo_atanh) { return give(g, X, dvd(g, T, one_minus_sq(g, X))); }
RULE(chlo_cosh) { return give(g, X, mul(g, T, un(g, XL_OP_CHLO_SINH, X))); }
RULE(chlo_sinh) { return give(g, X, mul(g, T, un(g, XL_OP_CHLO_COSH, X))); }
RULE(chlo_square) { return give(g, X, mul(g, T, mul(g, k(g, X, 2), X))); }
static xl_value bell(xl_grad_ctx *g, xl_value x, double by)
{
    return mul(g, k(g, x, by), un(g, XL_OP_EXPONENTIAL, neg(g, sq(g, x))));
}
RULE(chlo_erf) { return give(g, X, mul(g, T, bell(g, X, M_2_SQRTPI))); }
RULE(chlo_erfc) { return give(g, X, mul(g, T, bell(g, X, -M_2_SQRTPI))); }
RULE(chlo_erf_inv)
{
    return give(g, X, mul(g, T, mul(g, k(g, R, 1 / M_2_SQRTPI), un(g, XL_OP_EXPONENTIAL, sq(g, R)))));
}
RULE(chlo_lgamma) { return give(g, X, mul(g, T, un(g, XL_OP_CHLO_DIGAMMA, X))); }
RULE(chlo_digamma) { return give(g, X, mul(g, T, xl_em_binary(&g->e, XL_OP_CHLO_POLYGAMMA, k(g, X, 1), X))); }
RULE(chlo_polygamma)
{
    if (xl_cot_active(g, X))
        return XL_ERR(UNIMPLEMENTED, "polygamma by its order; only its argument has a gradient");
    return give(g, Y, mul(g, T, xl_em_binary(&g->e, XL_OP_CHLO_POLYGAMMA, add(g, X, k(g, X, 1)), Y)));
}
RULE(chlo_zeta)
{
    if (xl_cot_active(g, X))
        return XL_ERR(UNIMPLEMENTED, "zeta by its exponent; only its second argument has a gradient");
    return give(g, Y, neg(g, mul(g, T, mul(g, X, xl_em_binary(&g->e, XL_OP_CHLO_ZETA, add(g, X, k(g, X, 1)), Y)))));
}
