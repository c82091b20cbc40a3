/* Gradients of factorizations, solves and transforms. Cotangents are transposed, not conjugated (grad.c). */
#include "pass/grad.h"

#define RULE(name) xl_error *xl_grad_##name(xl_grad_ctx *g, xl_op *op, const xl_value *ct)

static xl_arena *mem(const xl_grad_ctx *g) { return &g->e.f->m->arena; }
static const xl_type *type_of(const xl_grad_ctx *g, xl_value v) { return xl_value_type(g->e.f, v); }
static xl_value bin(xl_grad_ctx *g, xl_opcode c, xl_value a, xl_value b) { return xl_em_binary(&g->e, c, a, b); }
static bool is_complex(xl_grad_ctx *g, xl_value v) { return xl_dtype_class(type_of(g, v)->dtype) == XL_CLASS_COMPLEX; }
static xl_value conjugate(xl_grad_ctx *g, xl_value v)
{
    return is_complex(g, v) ? xl_em_unary(&g->e, XL_OP_CHLO_CONJ, v) : v;
}

/* ---- matrices in the last two dimensions ---- */
static xl_value turned(xl_grad_ctx *g, xl_value v)
{
    const xl_type *t = type_of(g, v);
    int64_t *perm = xl_new(mem(g), int64_t, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        perm[i] = i;
    perm[t->rank - 2] = t->rank - 1;
    perm[t->rank - 1] = t->rank - 2;
    return xl_em_transpose(&g->e, v, (xl_dims){ perm, t->rank });
}

static xl_value product(xl_grad_ctx *g, xl_value a, xl_value b) { return xl_b_matmul(&g->e, a, b); }

/* 1 on one triangle (the lower, or the upper), `diagonal` on the diagonal, 0 elsewhere, times v. */
static xl_value triangle(xl_grad_ctx *g, xl_value v, bool lower, double diagonal)
{
    const xl_type *t = type_of(g, v), *it = xl_type_with_dtype(g->e.f->m, t, XL_I32);
    xl_value row = xl_em_iota(&g->e, it, t->rank - 2), col = xl_em_iota(&g->e, it, t->rank - 1),
             zero = xl_em_like(&g->e, v, 0);
    xl_value in = xl_em_compare(&g->e, lower ? XL_COMPARISON_DIRECTION_GT : XL_COMPARISON_DIRECTION_LT, row, col);
    xl_value on = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, row, col);
    xl_value mid = diagonal == 0 ? zero : diagonal == 1 ? v : bin(g, XL_OP_MULTIPLY, v, xl_em_like(&g->e, v, diagonal));
    return xl_em_select(&g->e, in, v, xl_em_select(&g->e, on, mid, zero));
}

static xl_value solve(xl_grad_ctx *g, xl_value a, xl_value b, bool left, bool lower, bool unit, int64_t turn)
{
    xl_module *m = g->e.f->m;
    xl_op *s = xl_em_op(&g->e, XL_OP_TRIANGULAR_SOLVE, (xl_value[]){ a, b }, 2, type_of(g, b));
    xl_op_set(s, XL_SLOT(TRIANGULAR_SOLVE, left_side), xl_attr_bool(m, left));
    xl_op_set(s, XL_SLOT(TRIANGULAR_SOLVE, lower), xl_attr_bool(m, lower));
    xl_op_set(s, XL_SLOT(TRIANGULAR_SOLVE, unit_diagonal), xl_attr_bool(m, unit));
    xl_op_set(s, XL_SLOT(TRIANGULAR_SOLVE, transpose_a), xl_attr_enum(m, XL_ENUM_TRANSPOSE, turn));
    return xl_em_done(&g->e, s);
}

/* x = m^-1 b (or b m^-1), m being a, its transpose or its adjoint: b gets m^-T ct, and m gets minus that times x^T. */
RULE(triangular_solve)
{
    xl_value a = op->in[0], x = op->out[0];
    bool left = xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, left_side)),
         lower = xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, lower));
    bool unit = xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, unit_diagonal));
    int64_t turn = xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, transpose_a));
    bool plain = turn == XL_TRANSPOSE_NO_TRANSPOSE, adjoint = turn == XL_TRANSPOSE_ADJOINT;
    xl_value b = solve(g, adjoint ? conjugate(g, a) : a, ct[0], left, lower, unit,
                       plain ? XL_TRANSPOSE_TRANSPOSE : XL_TRANSPOSE_NO_TRANSPOSE);
    xl_cot_add(g, op->in[1], b);
    if (!xl_cot_active(g, a))
        return NULL;
    xl_value m = left ? product(g, b, turned(g, x)) : product(g, turned(g, x), b);
    m = xl_em_unary(&g->e, XL_OP_NEGATE, plain ? m : turned(g, adjoint ? conjugate(g, m) : m));
    xl_cot_add(g, a, triangle(g, m, lower, unit ? 0 : 1));
    return NULL;
}

/* a = l l^H: with P the lower triangle of l^H L (half its diagonal), L the gradient by l, a gets l^-H P l^-1; what the
 * two triangles get together goes to the one that is read. */
RULE(cholesky)
{
    bool lower = xl_op_int(op, XL_SLOT(CHOLESKY, lower));
    xl_value l = op->out[0], t = conjugate(g, ct[0]);
    if (!lower) {
        l = conjugate(g, turned(g, l));
        t = conjugate(g, turned(g, t));
    }
    xl_value p =
        triangle(g, product(g, conjugate(g, turned(g, triangle(g, l, true, 1))), triangle(g, t, true, 1)), true, 0.5);
    xl_value s = solve(g, l, solve(g, l, p, true, true, false, XL_TRANSPOSE_ADJOINT), false, true, false,
                       XL_TRANSPOSE_NO_TRANSPOSE);
    s = triangle(g, bin(g, XL_OP_ADD, s, conjugate(g, turned(g, s))), lower, 0.5);
    xl_cot_add(g, op->in[0], conjugate(g, s));
    return NULL;
}

/* ---- Fourier transforms: their matrices are symmetric ---- */
static xl_value transform(xl_grad_ctx *g, xl_value v, xl_dims length, int64_t kind)
{
    xl_op *f = xl_em_op(&g->e, XL_OP_FFT, &v, 1, type_of(g, v));
    xl_op_set(f, XL_SLOT(FFT, fft_length), xl_attr_dims(g->e.f->m, length));
    xl_op_set(f, XL_SLOT(FFT, fft_type), xl_attr_enum(g->e.f->m, XL_ENUM_FFT_TYPE, kind));
    return xl_em_done(&g->e, f);
}

/* The last dimension with zeros up to n, or without what lies beyond. */
static xl_value sized(xl_grad_ctx *g, xl_value v, int64_t n)
{
    const xl_type *t = type_of(g, v);
    int64_t *zero = xl_new(mem(g), int64_t, t->rank), *high = xl_new(mem(g), int64_t, t->rank);
    high[t->rank - 1] = n - t->dims[t->rank - 1];
    return xl_em_pad(&g->e, v, xl_em_scalar(&g->e, t->dtype, 0), zero, high, NULL);
}

RULE(fft)
{
    xl_dims length = xl_op_dims(op, XL_SLOT(FFT, fft_length));
    int64_t kind = xl_op_int(op, XL_SLOT(FFT, fft_type)), n = length.n ? length.p[length.n - 1] : 1;
    xl_value x = op->in[0];
    const xl_type *t = type_of(g, x);
    xl_module *m = g->e.f->m;
    switch (kind) {
    case XL_FFT_TYPE_RFFT: { /* half a spectrum of a real signal: the real part of the whole */
        xl_value whole = transform(g, sized(g, ct[0], n), length, XL_FFT_TYPE_FFT);
        xl_cot_add(g, x, xl_em_op(&g->e, XL_OP_REAL, &whole, 1, t)->out[0]);
        return NULL;
    }
    case XL_FFT_TYPE_IRFFT: {                            /* what stands for two of the spectrum gets twice its share */
        const xl_type *full = xl_type_with_dtype(m, type_of(g, ct[0]), t->dtype);
        xl_value c =
            xl_em_op(&g->e, XL_OP_COMPLEX, (xl_value[]){ ct[0], xl_em_like(&g->e, ct[0], 0) }, 2, full)->out[0];
        xl_value half = sized(g, transform(g, c, length, XL_FFT_TYPE_IFFT), n / 2 + 1),
                 at = xl_em_iota(&g->e, xl_type_with_dtype(m, t, XL_I32), t->rank - 1);
        xl_value one = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, at, xl_em_like(&g->e, at, 0));
        int64_t middle = n / 2;
        if (n % 2 == 0)
            one = bin(g, XL_OP_OR, one,
                      xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, at, xl_em_like(&g->e, at, (double)middle)));
        xl_cot_add(g, x, xl_em_select(&g->e, one, half, bin(g, XL_OP_ADD, half, half)));
        return NULL;
    }
    default:
        xl_cot_add(g, x, transform(g, ct[0], length, kind));
        return NULL;
    }
}
