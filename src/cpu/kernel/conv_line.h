/* src/cpu/kernel/conv_line.h
 * The inner loops of a convolution with a window: adjacent outputs, computed directly from the input's rows. Pure; any
 * thread. */
#ifndef XL_CPU_KERNEL_CONV_LINE_H
#define XL_CPU_KERNEL_CONV_LINE_H

#include <stddef.h>
#include <stdint.h>

enum { XL_CONV_COLUMNS = 16, XL_CONV_LINES = 64, XL_CONV_SUM = 128 };
typedef struct {
    size_t lines, run;                                     /* of the window; floats in each that meet the kernel */
    const float *x[XL_CONV_LINES];                         /* where the first output's begin */
    const float *k[XL_CONV_LINES];                         /* the kernel's rows of `columns` for each */
    size_t step;                                           /* floats from one output's to the next's */
    size_t n, columns, ld;                                 /* outputs; features, 16 k; floats between outputs */
    float *y;
} xl_conv_line;

/* y[i, j] = the sum over lines l and p < run of x[l][i step + p] k[l][p, j]; at most XL_CONV_SUM products at a time. n
 * is at least `rows`. */
typedef void xl_conv_fn(const xl_conv_line *c);

/* y[i] = the sum over the terms of x[i] k[i mod period], `sum` products at a time. n and period are multiples of
 * XL_CONV_COLUMNS; XL_CONV_AHEAD numbers behind a period are those of the next. */
enum { XL_CONV_AHEAD = 7 * XL_CONV_COLUMNS };
typedef struct { const float *x, *k; } xl_conv_term;
typedef void xl_conv_terms_fn(float *y, const xl_conv_term *t, size_t terms, size_t sum, size_t n, size_t period);
typedef struct { uint32_t needs; size_t rows; xl_conv_fn *f32; xl_conv_terms_fn *terms; } xl_conv_set;
/* The best set that this CPU can run. */
const xl_conv_set *xl_conv_lines(void);

#endif
