/* Elementwise functions of one float type. T: float or double; B: its bits; M(f): libm's function for T; NAME(f).
 * Each body is the specification's sentence about the op; the loop around it is the same everywhere. */
#define UNARY(name, expr)                                                                      \
    static void NAME(name)(void *y_, const void *const *x_, size_t n, const void *ctx)         \
    {                                                                                          \
        (void)ctx;                                                                             \
        T *y = y_;                                                                             \
        const T *a = x_[0];                                                                    \
        XL_IVDEP                                                                               \
        for (size_t i = 0; i < n; i++) {                                                       \
            T x = a[i];                                                                        \
            y[i] = (expr);                                                                     \
        }                                                                                      \
    }
#define TEST1(name, expr)                                                                      \
    static void NAME(name)(void *y_, const void *const *x_, size_t n, const void *ctx)         \
    {                                                                                          \
        (void)ctx;                                                                             \
        uint8_t *y = y_;                                                                       \
        const T *a = x_[0];                                                                    \
        for (size_t i = 0; i < n; i++) {                                                       \
            T x = a[i];                                                                        \
            y[i] = (expr);                                                                     \
        }                                                                                      \
    }
#define BINARY(name, expr)                                                                     \
    static void NAME(name)(void *y_, const void *const *x_, size_t n, const void *ctx)         \
    {                                                                                          \
        (void)ctx;                                                                             \
        T *r = y_;                                                                             \
        const T *a = x_[0], *b = x_[1];                                                        \
        XL_IVDEP                                                                               \
        for (size_t i = 0; i < n; i++) {                                                       \
            T x = a[i], y = b[i];                                                              \
            r[i] = (expr);                                                                     \
        }                                                                                      \
    }

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

xl_ew_fn *NAME(xl_ew)(xl_opcode code)
{
    switch (code) {
    case XL_OP_ABS: return NAME(abs);
    case XL_OP_CBRT: return NAME(cbrt);
    case XL_OP_CEIL: return NAME(ceil);
    case XL_OP_COSINE: return NAME(cosine);
    case XL_OP_EXPONENTIAL: return NAME(exp);
    case XL_OP_EXPONENTIAL_MINUS_ONE: return NAME(expm1);
    case XL_OP_FLOOR: return NAME(floor);
    case XL_OP_IMAG: return NAME(zero);
    case XL_OP_REAL: case XL_OP_CHLO_CONJ: return NAME(same);
    case XL_OP_IS_FINITE: return NAME(is_finite);
    case XL_OP_LOG: return NAME(log);
    case XL_OP_LOG_PLUS_ONE: return NAME(log1p);
    case XL_OP_LOGISTIC: return NAME(logistic);
    case XL_OP_NEGATE: return NAME(negate);
    case XL_OP_ROUND_NEAREST_AFZ: return NAME(round_afz);
    case XL_OP_ROUND_NEAREST_EVEN: return NAME(round_even);
    case XL_OP_RSQRT: return NAME(rsqrt);
    case XL_OP_SIGN: return NAME(sign);
    case XL_OP_SINE: return NAME(sine);
    case XL_OP_SQRT: return NAME(sqrt);
    case XL_OP_TAN: case XL_OP_CHLO_TAN: return NAME(tan);
    case XL_OP_TANH: return NAME(tanh);
    case XL_OP_CHLO_ACOS: return NAME(acos);
    case XL_OP_CHLO_ACOSH: return NAME(acosh);
    case XL_OP_CHLO_ASIN: return NAME(asin);
    case XL_OP_CHLO_ASINH: return NAME(asinh);
    case XL_OP_CHLO_ATAN: return NAME(atan);
    case XL_OP_CHLO_ATANH: return NAME(atanh);
    case XL_OP_CHLO_BESSEL_I1E: return NAME(bessel_i1e);
    case XL_OP_CHLO_COSH: return NAME(cosh);
    case XL_OP_CHLO_DIGAMMA: return NAME(digamma);
    case XL_OP_CHLO_ERF: return NAME(erf);
    case XL_OP_CHLO_ERF_INV: return NAME(erf_inv);
    case XL_OP_CHLO_ERFC: return NAME(erfc);
    case XL_OP_CHLO_IS_INF: return NAME(is_inf);
    case XL_OP_CHLO_IS_NEG_INF: return NAME(is_neg_inf);
    case XL_OP_CHLO_IS_POS_INF: return NAME(is_pos_inf);
    case XL_OP_CHLO_LGAMMA: return NAME(lgamma);
    case XL_OP_CHLO_SINH: return NAME(sinh);
    case XL_OP_CHLO_SQUARE: return NAME(square);
    case XL_OP_ADD: return NAME(add);
    case XL_OP_SUBTRACT: return NAME(sub);
    case XL_OP_MULTIPLY: return NAME(mul);
    case XL_OP_DIVIDE: return NAME(div);
    case XL_OP_REMAINDER: return NAME(rem);
    case XL_OP_POWER: return NAME(pow);
    case XL_OP_ATAN2: return NAME(atan2);
    case XL_OP_MAXIMUM: return NAME(max);
    case XL_OP_MINIMUM: return NAME(min);
    case XL_OP_COMPLEX: return NAME(complex);
    case XL_OP_CHLO_NEXT_AFTER: return NAME(next_after);
    case XL_OP_CHLO_POLYGAMMA: return NAME(polygamma);
    case XL_OP_CHLO_ZETA: return NAME(zeta);
    case XL_OP_SELECT: return NAME(select);
    case XL_OP_CLAMP: return NAME(clamp);
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
