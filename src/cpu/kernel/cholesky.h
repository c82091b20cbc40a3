/* src/cpu/kernel/cholesky.h
 * The Cholesky factor of one real matrix that fits in the caches, where LAPACK's calls of small products would take
 * several times as long. Pure; any thread. */
#ifndef XL_CPU_KERNEL_CHOLESKY_H
#define XL_CPU_KERNEL_CHOLESKY_H

#include <stdint.h>

enum { XL_CHOLESKY_ROWS = 4, XL_CHOLESKY_COLUMNS = 16 };
/* Overwrites the upper triangle of a symmetric matrix A, `n` rows that are `step` elements apart, with the U of
 * A = U^T U. Returns LAPACK's info: 0, or the number, from 1, of the row whose pivot is not positive. n is a multiple
 * of XL_CHOLESKY_ROWS, and rows have room up to the next multiple of XL_CHOLESKY_COLUMNS; what is there and in the
 * other triangle has no influence, and is undefined afterwards. */
typedef int32_t xl_cholesky_f32(float *a, int32_t n, int32_t step);
typedef int32_t xl_cholesky_f64(double *a, int32_t n, int32_t step);
typedef struct {
    uint32_t needs;
    int32_t most;                                          /* rows up to which this is quicker than LAPACK */
    xl_cholesky_f32 *f32;
    xl_cholesky_f64 *f64;
} xl_cholesky_set;

#endif
