#include "cpu/kernel/vmath.h"

#include <math.h>

#include "cpu/run/feature.h"
#include "cpu/kernel/special.h"
#include "cpu/kernel/vmath_set.h"

XL_CPU_SETS(xl_vmath_set, xl_vmath)

static double logistic(double x)
{
    double e = exp(-fabs(x)), r = 1 / (1 + e);
    return x < 0 ? e * r : r;
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

xl_vproduct_f32 *xl_vproduct_of_f32(xl_product_form form) { return xl_vmath_best()->product_f32[form]; }
xl_vproduct_f64 *xl_vproduct_of_f64(xl_product_form form) { return xl_vmath_best()->product_f64[form]; }

#define UNARY(f)                                                                                       \
    void xl_v##f##_f32(float *y, const float *x, size_t n) { xl_vmath_best()->f(y, x, n); }
XL_VMATH_UNARY(UNARY)
#undef UNARY

#define lgamma xl_special_lgamma
#define digamma xl_special_digamma
#define UNARY(f)                                                                                       \
    void xl_v##f##_f64(double *y, const double *x, size_t n)                                           \
    {                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                 \
            y[i] = f(x[i]);                                                                            \
    }
XL_VMATH_UNARY(UNARY)

#define BINARY(f)                                                                                      \
    void xl_v##f##_f32(float *z, const float *x, const float *y, size_t n) { xl_vmath_best()->f(z, x, y, n); }   \
    void xl_v##f##_f64(double *z, const double *x, const double *y, size_t n)                          \
    {                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                 \
            z[i] = f(x[i], y[i]);                                                                      \
    }
XL_VMATH_BINARY(BINARY)
