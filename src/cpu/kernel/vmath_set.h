/* src/cpu/kernel/vmath_set.h: what each instruction set's file of elementary functions provides to the driver in
 * vmath.c. */
#ifndef XL_CPU_KERNEL_VMATH_SET_H
#define XL_CPU_KERNEL_VMATH_SET_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/kernel/vmath_names.h"

typedef struct {
    uint32_t needs;
#define SLOT(f) void (*f)(float *y, const float *x, size_t n);
    XL_VMATH_UNARY(SLOT)
#undef SLOT
#define SLOT(f) void (*f)(float *z, const float *x, const float *y, size_t n);
    XL_VMATH_BINARY(SLOT)
#undef SLOT
    xl_vproduct_f32 *product_f32[XL_PRODUCT_FORMS];
    xl_vproduct_f64 *product_f64[XL_PRODUCT_FORMS];
} xl_vmath_set;

#endif
