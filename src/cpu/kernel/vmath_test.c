/* Every function over floats of every exponent and both signs, against libm in f64, whose error is negligible compared
 * with a float's. */
#include "cpu/kernel/vmath.h"

#include <math.h>
#include <stdlib.h>
#include <stdint.h>
#include <time.h>

#include "base/test.h"
#include "cpu/run/feature.h"
#include "cpu/kernel/special.h"

static double logistic(double x) { double e = exp(-fabs(x)); return x < 0 ? e / (1 + e) : 1 / (1 + e); }
static double rsqrt(double x) { return 1 / sqrt(x); }
/* StableHLO's expansion, in which the argument of exp is a float. */
static double exp_half(double x) { return exp((float)(x + (double)logf(0.5f))); }
static double expanded_sinh(double x) { return fabs(x) < 1 ? sinh(x) : exp_half(x) - exp_half(-x); }
static double expanded_cosh(double x) { return exp_half(x) + exp_half(-x); }

/* |got - want| in units of want's last place as a float; 0 where both are NaN, or the same zero or infinity. */
static double ulps(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if ((float)want == got && !signbit(want) == !signbit(got) && (isinf(got) || want == got))
        return 0;
    if (isinf(want) || (want == 0 && got == 0) || (got == 0 && !signbit(want) != !signbit(got)))
        return INFINITY;                                     /* a wrong infinity, or a zero of the wrong sign */
    double g = isinf(got) ? copysign(0x1p128, got) : got;    /* where the float after the last finite one would be */
    return fabs(g - want) / ldexp(1, (fabs(want) < 0x1p-126 ? -126 : ilogb(want)) - 23);
}

static const float special[] = { 0.0f,    -0.0f,     1,          -1,        INFINITY,        -INFINITY,
                                 NAN,     0x1p-149f, -0x1p-149f, 0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f,
                                 0.5f,    2,         0.625f,     88.72284f, 88.7229f,        -87.4f,
                                 -103.9f, -104.1f,   9.3f,       -9.3f,     10.05f,          0x1p28f,
                                 1e30f,   3,         -3,         2.5f,      -2.5f,           128,
                                 -149,    1e-20f };
enum { SPECIALS = sizeof special / sizeof *special, BLOCK = 1024 };

typedef void unary_fn(float *y, const float *x, size_t n);
typedef void binary_fn(float *z, const float *x, const float *y, size_t n);

static void check(const char *name, unary_fn *f, double (*ref)(double), double bound)
{
    float x[BLOCK], y[BLOCK];
    double worst = 0;
    float at = 0;
    uint64_t next = 0;
    uint64_t step = (uint64_t)xl_test_amount(4001, 4001, 4001 * 17);
    for (int block = 0; next < 1ull << 32; block++) {
        size_t n = 0;
        for (; block == 0 && n < SPECIALS; n++)
            x[n] = special[n];
        for (; n < BLOCK && next < 1ull << 32; n++, next += step) {
            uint32_t u = (uint32_t)next;
            memcpy(&x[n], &u, 4);
        }
        n -= block % 3;                                      /* odd lengths as well */
        f(y, x, n);
        for (size_t i = 0; i < n; i++) {
            double e = ulps(y[i], ref((double)x[i]));
            if (!(e <= worst))
                worst = e, at = x[i];
        }
    }
    printf("  %-8s %.3f ulp at %a\n", name, worst, (double)at);
    if (!(worst <= bound))
        FAIL("%s: %g ulp at %a, more than %g", name, worst, (double)at, bound);
}

static void check_pair(const char *name, binary_fn *f, double (*ref)(double, double), double bound)
{
    float x[BLOCK], y[BLOCK], z[BLOCK];
    double worst = 0;
    float ax = 0, ay = 0;
    uint32_t s = 7;
    int blocks = xl_test_amount(400, 400, 24);
    for (int block = 0; block < blocks; block++) {
        for (size_t i = 0; i < BLOCK; i++) {
            s = s * 1664525 + 1013904223;
            uint32_t u = s, v = (s = s * 1664525 + 1013904223);
            memcpy(&x[i], &u, 4);
            memcpy(&y[i], &v, 4);
            if (block == 0)
                x[i] = special[i % SPECIALS], y[i] = special[i / SPECIALS % SPECIALS];
            else if (block % 4 == 1)
                x[i] = fabsf(ldexpf(x[i], -ilogbf(x[i]))), y[i] = (float)(int)(v >> 20) / 64 - 32;
            else if (block % 4 == 2)
                x[i] = (float)(int)(u >> 24) / 4 - 32, y[i] = (float)(int)(v >> 26) - 32;
        }
        f(z, x, y, BLOCK);
        for (size_t i = 0; i < BLOCK; i++) {
            double e = ulps(z[i], ref((double)x[i], (double)y[i]));
            if (!(e <= worst))
                worst = e, ax = x[i], ay = y[i];
        }
    }
    printf("  %-8s %.3f ulp at %a, %a\n", name, worst, (double)ax, (double)ay);
    if (!(worst <= bound))
        FAIL("%s: %g ulp at %a, %a, more than %g", name, worst, (double)ax, (double)ay, bound);
}


/* With all this CPU has, then with less. */
#define EACH_SET(stmt)                                                               \
    do {                                                                             \
        static const uint32_t masks[] = { ~0u, XL_CPU_AVX2, 0 };                     \
        uint32_t seen = 0;                                                           \
        for (int m_ = 0; m_ < 3; m_++) {                                             \
            xl_cpu_features_mask(masks[m_]);                                         \
            if (m_ == 0 || (seen & (XL_CPU_AVX2 | XL_CPU_AVX512)) != xl_cpu_features()) \
                stmt;                                                                \
            seen = xl_cpu_features();                                                \
        }                                                                            \
        xl_cpu_features_mask(~0u);                                                   \
    } while (0)
#define CHECK_BY(f, ref, bound) TEST(f) { EACH_SET(check(#f, xl_v##f##_f32, ref, bound)); }
#define CHECK_UNARY(f, bound) CHECK_BY(f, f, bound)
CHECK_UNARY(exp, 1)
CHECK_UNARY(exp2, 1)
CHECK_UNARY(expm1, 1) CHECK_UNARY(log, 1) CHECK_UNARY(log2, 1) CHECK_UNARY(log10, 1) CHECK_UNARY(log1p, 1)
    CHECK_UNARY(tanh, 2) CHECK_UNARY(logistic, 2) CHECK_UNARY(sin, 1) CHECK_UNARY(cos, 1) CHECK_UNARY(tan, 1)
        CHECK_UNARY(sqrt, 0.5001) CHECK_UNARY(rsqrt, 1) CHECK_UNARY(cbrt, 1) CHECK_UNARY(erf, 2) CHECK_UNARY(erfc, 1)
            CHECK_BY(sinh, expanded_sinh, 1) CHECK_BY(cosh, expanded_cosh, 1) CHECK_UNARY(asin, 1) CHECK_UNARY(acos, 1)
                CHECK_UNARY(atan, 1) CHECK_UNARY(asinh, 1) CHECK_UNARY(acosh, 1) CHECK_UNARY(atanh, 1)
                    CHECK_BY(lgamma, xl_special_lgamma, 1) CHECK_BY(digamma, xl_special_digamma, 1) TEST(pow)
{
    EACH_SET(check_pair("pow", xl_vpow_f32, pow, 1));
}
TEST(atan2) { EACH_SET(check_pair("atan2", xl_vatan2_f32, atan2, 1)); }

TEST(poles_of_digamma)
{
    float x[16], y[16];
    for (int i = 0; i < 16; i++)
        x[i] = (float[]){ 0, -0.0f, -1, -2 }[i % 4];
    EACH_SET({
        xl_vdigamma_f32(y, x, 16);
        for (int i = 0; i < 16; i++)
            CHECK(i % 4 < 2 ? y[i] == -INFINITY : isnan(y[i]));
    });
    CHECK(xl_special_digamma(-0.0) == -INFINITY && isnan(xl_special_digamma(-3)));
}

TEST(every_function_is_checked)
{
    static const char *const names[] = {
#define NAME(f) #f,
        XL_VMATH_UNARY(NAME) XL_VMATH_BINARY(NAME)
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        xl_test *t = xl_tests;
        while (t && strcmp(t->name, names[i]))
            t = t->next;
        if (!t)
            FAIL("%s has no test", names[i]);
    }
}

TEST(f64_and_in_place)
{
    double x[5] = { -1, 0, 0.5, 2, 700 }, y[5];
    xl_vlogistic_f64(y, x, 5);
    for (int i = 0; i < 5; i++)
        CHECK(fabs(y[i] - logistic(x[i])) <= 0x1p-52 * y[i]);
    xl_vexp_f64(y, x, 5);
    CHECK(y[2] == exp(0.5));
    float v[37];
    for (int i = 0; i < 37; i++)
        v[i] = (float)i;
    xl_vsqrt_f32(v, v, 37);
    for (int i = 0; i < 37; i++)
        CHECK(v[i] == sqrtf((float)i));
}
