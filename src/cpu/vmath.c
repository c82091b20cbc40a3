#include "cpu/vmath.h"

#include <math.h>

#include "cpu/feature.h"
#include "cpu/kernel/vmath.h"

extern const xl_vmath_set xl_vmath_generic;
#if defined(__x86_64__)
extern const xl_vmath_set xl_vmath_avx512, xl_vmath_avx2;
static const xl_vmath_set *const sets[] = { &xl_vmath_avx512, &xl_vmath_avx2, &xl_vmath_generic };
#else
static const xl_vmath_set *const sets[] = { &xl_vmath_generic };
#endif

static const xl_vmath_set *set(void)
{
    uint32_t have = xl_cpu_features();
    const xl_vmath_set *const *s = sets;
    while ((*s)->needs & ~have)                              /* the last needs nothing */
        s++;
    return *s;
}

static double logistic(double x)
{
    double e = exp(-fabs(x)), r = 1 / (1 + e);
    return x < 0 ? e * r : r;
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

#define UNARY(f)                                                                                       \
    void xl_v##f##_f32(float *y, const float *x, size_t n) { set()->f(y, x, n); }                      \
    void xl_v##f##_f64(double *y, const double *x, size_t n)                                           \
    {                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                 \
            y[i] = f(x[i]);                                                                            \
    }
XL_VMATH_UNARY(UNARY)

#define BINARY(f)                                                                                      \
    void xl_v##f##_f32(float *z, const float *x, const float *y, size_t n) { set()->f(z, x, y, n); }   \
    void xl_v##f##_f64(double *z, const double *x, const double *y, size_t n)                          \
    {                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                 \
            z[i] = f(x[i], y[i]);                                                                      \
    }
XL_VMATH_BINARY(BINARY)
