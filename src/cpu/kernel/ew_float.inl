/* Elementwise functions of one float type. T: float or double; B: its bits; M(f): libm's function for T; NAME(f). Each
 * body states the op as the specification does; the loop around it is the same everywhere. */
#define UNARY(name, expr) XL_EW_UNARY(NAME(name), XL_IVDEP, T, T, T, , expr)
#define TEST1(name, expr) XL_EW_UNARY(NAME(name), , uint8_t, T, T, , expr)
#define BINARY(name, expr) XL_EW_BINARY(NAME(name), XL_IVDEP, T, T, T, , expr)

/* The functions that vmath has over arrays. */
#define ARRAY(name, v)                                                                         \
    static void NAME(name)(void *y, const void *const *x, size_t n, const void *ctx)           \
    {                                                                                          \
        (void)ctx;                                                                             \
        NAME(xl_v##v)(y, x[0], n);                                                             \
    }
#define ARRAY2(name, v)                                                                        \
    static void NAME(name)(void *y, const void *const *x, size_t n, const void *ctx)           \
    {                                                                                          \
        (void)ctx;                                                                             \
        NAME(xl_v##v)(y, x[0], x[1], n);                                                       \
    }
UNARY(abs, M(fabs)(x))
ARRAY(cbrt, cbrt)
UNARY(ceil, M(ceil)(x))
ARRAY(cosine, cos)
ARRAY(exp, exp)
ARRAY(expm1, expm1)
UNARY(floor, M(floor)(x))
UNARY(zero, ((void)x, 0))
UNARY(same, x)
ARRAY(log, log)
ARRAY(log1p, log1p)
ARRAY(logistic, logistic)
UNARY(negate, -x)
UNARY(round_afz, M(round)(x))
UNARY(round_even, M(rint)(x))
ARRAY(rsqrt, rsqrt)
UNARY(sign, x > 0 ? 1 : x < 0 ? -1 : x)
ARRAY(sine, sin)
ARRAY(sqrt, sqrt)
ARRAY(tan, tan)
ARRAY(tanh, tanh)
ARRAY(acos, acos)
ARRAY(acosh, acosh)
ARRAY(asin, asin)
ARRAY(asinh, asinh)
ARRAY(atan, atan)
ARRAY(atanh, atanh)
ARRAY(cosh, cosh)
ARRAY(sinh, sinh)
ARRAY(erf, erf)
ARRAY(erfc, erfc)
UNARY(erf_inv, (T)xl_special_erf_inv(x))
ARRAY(digamma, digamma)
UNARY(bessel_i1e, (T)xl_special_bessel_i1e(x))
ARRAY(lgamma, lgamma)
UNARY(square, x *x)
TEST1(is_finite, isfinite(x))
TEST1(is_inf, isinf(x))
TEST1(is_neg_inf, isinf(x) && x < 0)
TEST1(is_pos_inf, isinf(x) && x > 0)
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)
BINARY(rem, M(fmod)(x, y))
ARRAY2(pow, pow)
ARRAY2(atan2, atan2)
BINARY(next_after, M(nextafter)(x, y))
BINARY(polygamma, (T)xl_special_polygamma(x, y))
BINARY(zeta, (T)xl_special_zeta(x, y))

/* NaN if either is; of two zeros the larger (smaller) is the one with the right sign. */
static inline T NAME(max1)(T x, T y)
{
    T r = x > y ? x : y;
    r = x == y && x == 0 ? x + y : r;                      /* -0 + -0 = -0, otherwise +0 */
    return x != x ? x : r;
}
static inline T NAME(min1)(T x, T y)
{
    T r = x < y ? x : y;
    r = x == y && x == 0 ? -(-x - y) : r;
    return x != x ? x : r;
}
BINARY(max, NAME(max1)(x, y))
BINARY(min, NAME(min1)(x, y))

static void NAME(select)(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    T *y = y_;
    const uint8_t *c = x_[0];
    const T *a = x_[1], *b = x_[2];
    XL_IVDEP
    for (size_t i = 0; i < n; i++)
        y[i] = c[i] ? a[i] : b[i];
}
static void NAME(clamp)(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    T *y = y_;
    const T *lo = x_[0], *x = x_[1], *hi = x_[2];
    XL_IVDEP
    for (size_t i = 0; i < n; i++)
        y[i] = NAME(min1)(NAME(max1)(x[i], lo[i]), hi[i]);
}
static void NAME(complex)(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    T *y = y_;
    const T *a = x_[0], *b = x_[1];
    for (size_t i = n; i-- > 0; ) {                        /* backwards: the result is twice as wide */
        T re = a[i], im = b[i];
        y[2 * i] = re;
        y[2 * i + 1] = im;
    }
}

static xl_ew_fn *const NAME(none) = NULL;
xl_ew_fn *NAME(xl_ew)(xl_opcode code)
{
    switch (code) {
#define EW(op, f, i, c) case XL_OP_##op: return NAME(f);
#include "cpu/kernel/ew.def"
    default: return NULL;
    }
}
#undef UNARY
#undef ARRAY
#undef ARRAY2
#undef TEST1
#undef BINARY
#undef T
#undef M
#undef NAME
