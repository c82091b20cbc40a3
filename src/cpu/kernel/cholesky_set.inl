/* src/cpu/kernel/cholesky_set.inl: cholesky.h with the compiler's vectors. Define before including: BYTES (of a
 * vector), WIDE (vectors computed together), MOST, NEEDS and SET. The file is compiled with contraction: products are
 * meant to be fused with their sums. */
#include <math.h>
#include <stdbool.h>

#include "cpu/kernel/cholesky.h"
#include "cpu/run/feature.h"

#define UNROLL _Pragma("GCC unroll 4")
#define INLINE __attribute__((always_inline)) static inline

#define T float
#define ROOT sqrtf
#define NAME(f) f##_f32
#include "cpu/kernel/cholesky.inl"
#undef T
#undef ROOT
#undef NAME
#define T double
#define ROOT sqrt
#define NAME(f) f##_f64
#include "cpu/kernel/cholesky.inl"

extern const xl_cholesky_set SET;
const xl_cholesky_set SET = { .needs = NEEDS, .most = MOST, .f32 = factor_f32, .f64 = factor_f64 };
