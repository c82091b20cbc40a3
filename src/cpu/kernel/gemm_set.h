/* src/cpu/kernel/gemm_set.h
 * What a file of micro-kernels provides to the driver in gemm.c. A kernel multiplies a packed panel of A (mr rows) by a
 * packed panel of B (nr columns). A packed panel is a sequence of groups of kr steps of k; a group has kr elements for
 * each row in turn (a kernel with its own packing may use another order); elements outside the matrix are zero. */
#ifndef XL_CPU_KERNEL_GEMM_SET_H
#define XL_CPU_KERNEL_GEMM_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernel/gemm_type.h"

/* Sums stay in registers only if the loops over them are gone before the compiler looks for such arrays. */
#define UNROLL _Pragma("GCC unroll 32")

/* c[mr][nr] (+)= a b, k a multiple of kr. */
typedef void xl_gemm_tile_fn(size_t k, const void *a, const void *b, void *c, ptrdiff_t ldc, bool accumulate);
/* The same with b where it lies: `step` elements from one step of k to the next. */
typedef void xl_gemm_direct_fn(size_t k, const void *a, const void *b, ptrdiff_t step, void *c, ptrdiff_t ldc,
                               bool accumulate);
/* Cache lines that are read soon after: `count` of them, each so many bytes from `at` as the list says. */
typedef struct {
    const char *at;
    const ptrdiff_t *list;
    size_t count;
} xl_gemm_ask;
/* Any part of a tile, rows at most mr by cols at most nr, with a and b where they lie: a steps `ar` from row to row and
 * `ak` along k, one of them 1; packed, they are 1 and mr. Sums of `park` steps each are added to c one after another.
 * `far`: b was not read just before. `ask`: a whole tile of packed factors asks for these lines meanwhile, or for the
 * first of them; may be NULL. */
typedef void xl_gemm_part_fn(size_t k, size_t park, const void *a, ptrdiff_t ar, ptrdiff_t ak, const void *b,
                             ptrdiff_t step, bool far, void *c, ptrdiff_t ldc, size_t rows, size_t cols,
                             bool accumulate, const xl_gemm_ask *ask);
/* Packs `rows` (at most the panel's) by k elements of `src`, steps rs and cs, into kpad steps. */
typedef void xl_gemm_pack_fn(void *dst, const void *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k,
                             size_t kpad);
/* y[s][r] = sum over p of x[s][p] mat[p * step + r], for s < count (at most 4), r < n; x is [k][4], y has
 * stride ldy. */
typedef void xl_gemm_axpy_fn(size_t k, size_t n, size_t count, const void *x, const void *mat, ptrdiff_t step, void *y,
                             ptrdiff_t ldy);
/* y[r] = sum over p of x[p] mat[r * step + p], for r < n. */
typedef void xl_gemm_dot_fn(size_t k, size_t n, const void *x, const void *mat, ptrdiff_t step, void *y);

/* Rounds n sums in f32 into a narrower type. */
typedef void xl_gemm_round_fn(uint16_t *restrict y, const float *restrict x, size_t n);

typedef struct xl_gemm_kernel {
    const char *name;
    uint32_t needs;                             /* XL_CPU_ features */
    xl_gemm_type packed;                        /* the type in panels */
    uint8_t size;                               /* its bytes */
    uint8_t mr, nr, kr;                         /* at most 32, 48, 32 */
    uint16_t kc;                                /* steps of k that are summed in one go, a multiple of kr */
    uint16_t tile_m, tile_n;                    /* a task's tile of C, about: its A stays in L2; at most 256 rows, but
                                                   with `part`, where A is packed piece by piece, any number */
    uint8_t speed;                              /* how many times as fast as f32 about: what is worth sharing */
    bool own;                                   /* packs so fast that a thread may pack what another packs too */
    void (*enter)(void), (*leave)(void);        /* around the tiles of a task; NULL: nothing to do */
    xl_gemm_tile_fn *tile;
    xl_gemm_direct_fn *direct;                  /* NULL: there is none */
    xl_gemm_part_fn *part;                      /* with it there is no need for `direct`, nor to pack; NULL: none */
    xl_gemm_pack_fn *pack_a[XL_GEMM_TYPES], *pack_b[XL_GEMM_TYPES];   /* by the source's type; NULL: not taken */
    xl_gemm_axpy_fn *axpy[XL_GEMM_TYPES];       /* by the type of mat; NULL: there is none */
    xl_gemm_dot_fn *dot[XL_GEMM_TYPES];
    xl_gemm_round_fn *round[XL_GEMM_TYPES];     /* by the type of C; NULL: there is none */
    const struct xl_gemm_kernel *alt; /* a smaller tile, taken where it leaves much less of itself empty; or NULL */
} xl_gemm_kernel;

/* Best first within a type; the driver takes the first whose needs are met. Ends with a NULL. */
extern const xl_gemm_kernel *const xl_gemm_kernels[];
extern const xl_gemm_kernel xl_gemm_generic_f32, xl_gemm_generic_f64, xl_gemm_generic_i32;

#endif
