/* Elementwise functions of one complex type. T: its part; C: its C type; M(f): libm's function for C; R(f): for T;
 * NAME(f). */
#define UNARY(name, expr) XL_EW_UNARY(NAME(name), , C, C, C, , expr)
#define PART(name, expr) XL_EW_UNARY(NAME(name), , T, C, C, , expr)
#define BINARY(name, expr) XL_EW_BINARY(NAME(name), , C, C, C, , expr)
#define RE(x) M(creal)(x)
#define IM(x) M(cimag)(x)

static inline C NAME(make)(T re, T im)
{
    union { T p[2]; C c; } u = { { re, im } };             /* keeps infinities and signs, where re + im * I would not */
    return u.c;
}
static inline C NAME(mul1)(C x, C y)
{
    return NAME(make)(RE(x) * RE(y) - IM(x) * IM(y), RE(x) * IM(y) + IM(x) * RE(y));
}
/* By a number whose imaginary part is zero: C's division, which decides where this is not finite, takes many times as
 * long. The products with that zero are zeros, of the sign that the quotient's zeros have there. */
static inline C NAME(div1)(C x, C y)
{
    T a = (T)RE(x), b = (T)IM(x), c = (T)RE(y), zero = (T)IM(y);
    T re = (a + zero * (b * c)) / c, im = (b - zero * (a * c)) / c;
    return zero == 0 && isfinite(re) && isfinite(im) ? NAME(make)(re, im) : x / y;
}
static inline C NAME(expm1_1)(C x)
{
    T e = R(expm1)(RE(x)), s = R(sin)(IM(x) / 2), c = R(cos)(IM(x));
    T im = IM(x) == 0 ? IM(x) : R(exp)(RE(x)) * R(sin)(IM(x));
    return NAME(make)(e * c - 2 * s * s, im);              /* exp(a) cos b - 1 without cancellation */
}
static inline C NAME(log1p_1)(C x)
{
    T re = RE(x), im = IM(x);
    T r;
    if (R(fabs)(re) < (T)0.5 && R(fabs)(im) < (T)0.5)
        r = R(log1p)(re * (2 + re) + im * im) / 2;
    else
        r = R(log)(R(hypot)(1 + re, im));
    return NAME(make)(r, R(atan2)(im, 1 + re));
}
static inline C NAME(sign1)(C x)
{
    T a = R(hypot)(RE(x), IM(x));
    if (RE(x) != RE(x) || IM(x) != IM(x))
        return NAME(make)((T)NAN, (T)NAN);
    if (a == 0)
        return x;
    return NAME(make)(RE(x) / a, IM(x) / a);
}
/* Where C's functions settle for half a NaN, XLA's have none left. */
static inline C NAME(cosh1)(C x)
{
    return isinf(RE(x)) && isinf(IM(x)) ? NAME(make)((T)NAN, (T)NAN) : M(ccosh)(x);
}
static inline C NAME(tan1)(C x)
{
    return isinf(RE(x)) && isfinite(IM(x)) ? NAME(make)((T)NAN, (T)NAN) : M(ctan)(x);
}
/* On the branch cuts a part of -0 counts as 0, as in the decomposition that other devices run: C's functions tell the
 * sides of a cut apart by it. */
static inline C NAME(above)(C x) { return NAME(make)(RE(x), IM(x) == 0 ? 0 : IM(x)); }
static inline C NAME(right)(C x) { return NAME(make)(RE(x) == 0 ? 0 : RE(x), IM(x)); }
static inline C NAME(cbrt1)(C x) { return M(cpow)(x, NAME(make)((T)(1.0 / 3), 0)); }
static inline C NAME(pow1)(C x, C y)
{
    if (RE(y) == 0 && IM(y) == 0)
        return NAME(make)(1, 0);
    if (RE(x) == 1 && IM(x) == 0)
        return NAME(make)(1, 0);
    bool zero = RE(x) == 0 && IM(x) == 0, real = IM(y) == 0;
    if (zero && RE(y) > 0 && real)
        return NAME(make)(0, 0);
    if (RE(x) == (T)INFINITY && IM(x) == 0 && real && RE(y) == RE(y))
        return NAME(make)(RE(y) > 0 ? (T)INFINITY : 0, 0);
    if (zero || !isfinite(RE(x)) || !isfinite(IM(x)) || !isfinite(RE(y)) || !isfinite(IM(y))) {
        T r = R(hypot)(RE(x), IM(x)), at = R(atan2)(IM(x), RE(x)), a = RE(y) * at + IM(y) * R(log)(r);
        T size = R(pow)(r, RE(y)) * R(exp)(-IM(y) * at);   /* C's cpow has a number where the angle is none */
        return NAME(make)(size * R(cos)(a), size * R(sin)(a));
    }
    return M(cpow)(x, y);
}
static inline C NAME(atan2_1)(C y, C x)                    /* -i log((x + iy) / sqrt(x^2 + y^2)) */
{
    C i = NAME(make)(0, 1);
    C q = (x + NAME(mul1)(i, y)) / M(csqrt)(NAME(mul1)(x, x) + NAME(mul1)(y, y));
    C l = M(clog)(q);
    return NAME(make)(IM(l), -RE(l));
}
static inline bool NAME(before)(C x, C y) { return RE(x) < RE(y) || (RE(x) == RE(y) && IM(x) < IM(y)); }
static inline bool NAME(isnan1)(C x) { return RE(x) != RE(x) || IM(x) != IM(x); }

UNARY(negate, NAME(make)(-RE(x), -IM(x)))
UNARY(conj, NAME(make)(RE(x), -IM(x)))
UNARY(cosine, M(ccos)(x))
UNARY(sine, M(csin)(x))
UNARY(tan, NAME(tan1)(x))
UNARY(exp, M(cexp)(x))
UNARY(expm1, NAME(expm1_1)(x))
UNARY(log, M(clog)(x))
UNARY(log1p, NAME(log1p_1)(x))
UNARY(logistic, NAME(make)(1, 0) / (NAME(make)(1, 0) + M(cexp)(NAME(make)(-RE(x), -IM(x)))))
UNARY(rsqrt, NAME(make)(1, 0) / M(csqrt)(x))
UNARY(sign, NAME(sign1)(x))
UNARY(sqrt, M(csqrt)(x))
UNARY(cbrt, NAME(cbrt1)(x))
UNARY(tanh, M(ctanh)(x))
UNARY(acos, M(cacos)(NAME(above)(x)))
UNARY(acosh, M(cacosh)(NAME(above)(x)))
UNARY(asin, M(casin)(NAME(above)(x)))
UNARY(asinh, M(casinh)(NAME(right)(x)))
UNARY(atan, M(catan)(x))
UNARY(atanh, M(catanh)(x))
UNARY(cosh, NAME(cosh1)(x))
UNARY(sinh, M(csinh)(x))
UNARY(square, NAME(mul1)(x, x))
PART(abs, R(hypot)(RE(x), IM(x)))
PART(real, RE(x))
PART(imag, IM(x))
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, NAME(mul1)(x, y))
BINARY(div, NAME(div1)(x, y))
BINARY(pow, NAME(pow1)(x, y))
BINARY(atan2, NAME(atan2_1)(x, y))
BINARY(max, NAME(isnan1)(x) ? x : NAME(isnan1)(y) ? y : NAME(before)(x, y) ? y : x)
BINARY(min, NAME(isnan1)(x) ? x : NAME(isnan1)(y) ? y : NAME(before)(y, x) ? y : x)

static void NAME(eq)(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    uint8_t *y = y_;
    const T *a = x_[0], *b = x_[1];
    for (size_t i = 0; i < n; i++)
        y[i] = a[2 * i] == b[2 * i] && a[2 * i + 1] == b[2 * i + 1];
}
static void NAME(ne)(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    uint8_t *y = y_;
    const T *a = x_[0], *b = x_[1];
    for (size_t i = 0; i < n; i++)
        y[i] = a[2 * i] != b[2 * i] || a[2 * i + 1] != b[2 * i + 1];
}
xl_ew_fn *NAME(xl_ew_compare)(int direction) { return direction == 0 ? NAME(eq) : direction == 1 ? NAME(ne) : NULL; }

static xl_ew_fn *const NAME(none) = NULL;
xl_ew_fn *NAME(xl_ew)(xl_opcode code)
{
    switch (code) {
#define EW(op, f, i, c) case XL_OP_##op: return NAME(c);
#include "cpu/kernel/ew.def"
    default: return NULL;
    }
}
#undef UNARY
#undef PART
#undef BINARY
#undef RE
#undef IM
#undef T
#undef C
#undef M
#undef R
#undef NAME
