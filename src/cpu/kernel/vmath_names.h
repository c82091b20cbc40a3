/* src/cpu/kernel/vmath_names.h: the elementary functions that every instruction set's file has, of one argument and
 * of two. */
#ifndef XL_CPU_KERNEL_VMATH_NAMES_H
#define XL_CPU_KERNEL_VMATH_NAMES_H

#include <stddef.h>

#include "cpu/plan/contract.h"

typedef void xl_vproduct_f32(float *r, const float *x, const float *y, const float *z, size_t n);
typedef void xl_vproduct_f64(double *r, const double *x, const double *y, const double *z, size_t n);

#define XL_VMATH_UNARY(F)                                                                                              \
    F(exp) F(exp2) F(expm1) F(log) F(log2) F(log10) F(log1p) F(tanh) F(logistic) F(sin) F(cos) F(tan) F(sqrt) F(rsqrt) \
    F(cbrt) F(erf) F(erfc) F(sinh) F(cosh) F(asin) F(acos) F(atan) F(asinh) F(acosh) F(atanh) F(lgamma) F(digamma)
#define XL_VMATH_BINARY(F) F(pow) F(atan2)

#endif
