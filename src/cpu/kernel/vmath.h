/* src/cpu/kernel/vmath.h
 * Elementary functions over arrays: y[i] = f(x[i]) for i < n. y may be x, but may not overlap it otherwise. There are
 * no data-dependent branches except for elements that need a slower method: sin, cos and tan beyond 2^28, lgamma and
 * digamma of negative numbers. NaN, infinity, -0 and subnormals are handled as in libm, except that a NaN's bits may
 * differ. Any thread may call.
 *
 * Errors in f32, in units in the last place of the true result (vmath_test.c measures them over all exponents):
 *   sqrt 0.5    exp exp2 log log2 log10 rsqrt cbrt sin cos tan sinh cosh asin acos atan asinh acosh atanh expm1 log1p
 *   pow atan2 erfc lgamma digamma 1 tanh logistic erf 2; sinh and cosh of StableHLO's expansion, which rounds x - ln 2
 * f64 uses libm for each element; logistic and rsqrt are within 2 ulp. Near the zeros of lgamma and digamma left of 0,
 * the absolute error in f64 is about 1e-15. */
#ifndef XL_CPU_VMATH_H
#define XL_CPU_VMATH_H

#include <stddef.h>

#include "cpu/kernel/vmath_names.h"

#define XL_VMATH_DECLARE(f)                              \
    void xl_v##f##_f32(float *y, const float *x, size_t n); \
    void xl_v##f##_f64(double *y, const double *x, size_t n);
XL_VMATH_UNARY(XL_VMATH_DECLARE)
#undef XL_VMATH_DECLARE
/* z[i] = f(x[i], y[i]); z may be x or y. */
#define XL_VMATH_DECLARE(f)                                              \
    void xl_v##f##_f32(float *z, const float *x, const float *y, size_t n); \
    void xl_v##f##_f64(double *z, const double *x, const double *y, size_t n);
XL_VMATH_BINARY(XL_VMATH_DECLARE)
#undef XL_VMATH_DECLARE

/* A product and a sum, rounded once: r[i] = x[i] y[i] + z[i], x[i] y[i] - z[i], or z[i] - x[i] y[i]; r may be one of
 * them. */
xl_vproduct_f32 *xl_vproduct_of_f32(xl_product_form form);
xl_vproduct_f64 *xl_vproduct_of_f64(xl_product_form form);

#endif
