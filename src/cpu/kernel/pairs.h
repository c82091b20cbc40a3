/* src/cpu/kernel/pairs.h
 * The inner loops of products of complex numbers: sums side by side. Pure; any thread. */
#ifndef XL_CPU_KERNEL_PAIRS_H
#define XL_CPU_KERNEL_PAIRS_H

#include <stddef.h>
#include <stdint.h>

/* re[j] + i im[j], j < m, is the sum over k < n of u's number at[k] and v's (k, j), each product rounded and added in
 * order. u has pairs; line k of v has its real parts from v + 2 k ld on, its imaginary parts ld further. */
enum { XL_PAIRS_MOST = 64 };
typedef void xl_pairs_few(float *re, float *im, const float *u, const int64_t *at, const float *v, size_t ld, size_t n,
                          size_t m);
typedef void xl_pairs_c64(double *re, double *im, const float *u, const int64_t *at, const double *v, size_t ld,
                          size_t n, size_t m);
typedef void xl_pairs_c128(double *re, double *im, const double *u, const int64_t *at, const double *v, size_t ld,
                           size_t n, size_t m);
typedef struct { uint32_t needs; xl_pairs_few *few; xl_pairs_c64 *c64; xl_pairs_c128 *c128; } xl_pairs_set;

#endif
