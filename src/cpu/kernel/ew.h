/* src/cpu/kernel/ew.h
 * Elementwise functions: y[i] = op(x0[i], x1[i], x2[i]) for i < n. y is one of the x or does not overlap any of them;
 * pointers are aligned to an element. They are the inner loops of elementwise steps, of the computations of reductions
 * and sorts, and of fused tile programs. Pure; any thread. */
#ifndef XL_CPU_EW_H
#define XL_CPU_EW_H

#include "ir/ir.h"

typedef void xl_ew_fn(void *y, const void *const *x, size_t n, const void *ctx);
typedef struct { xl_ew_fn *fn; const void *ctx; } xl_ew;

/* The function for `op` with operands of element types in[] and a result of type `out`. fn is NULL if there is none. */
xl_ew xl_ew_find(xl_arena *a, const xl_op *op, const xl_dtype *in, xl_dtype out);
/* The same for an op without attributes. */
xl_ew xl_ew_of(xl_arena *a, xl_opcode code, xl_dtype in, xl_dtype out);
xl_ew xl_ew_convert(xl_arena *a, xl_dtype from, xl_dtype to);

/* By class of type; NULL if there is none. In kernel/ew_*.c. */
xl_ew_fn *xl_ew_f32(xl_opcode code);
xl_ew_fn *xl_ew_f64(xl_opcode code);
xl_ew_fn *xl_ew_c64(xl_opcode code);
xl_ew_fn *xl_ew_c128(xl_opcode code);
xl_ew_fn *xl_ew_int(xl_dtype d, xl_opcode code);
xl_ew_fn *xl_ew_int_compare(xl_dtype d, int direction);
xl_ew_fn *xl_ew_compare(xl_dtype d, int direction, bool total);

/* Bulk widening: n elements of a narrow float to f32 and back. NULL if d is not narrow. */
typedef void xl_widen_fn(float *y, const void *x, size_t n);
typedef void xl_narrow_fn(void *y, const float *x, size_t n);
xl_widen_fn *xl_widen(xl_dtype d);
xl_narrow_fn *xl_narrow(xl_dtype d);

#if defined(__clang__)
#define XL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define XL_IVDEP _Pragma("GCC ivdep")
#endif

#endif
