/* src/cpu/kernel/gemm.h
 * C[m,n] = A[m,k] B[k,n], or +=, over a batch. A and B have a stride for each index, so transposes are never written
 * out; C's rows are contiguous. Sums are f32 for f32, bf16 and f16 (any mix of the three), f64 for f64, and i32
 * (wrapping) for integers. The order of a sum depends only on shapes and strides: the thread count changes no bit of
 * the result. C may not overlap A or B. Any thread may call; the pool may be NULL.
 *
 * An epilogue is called once for each tile of C when its sums are complete and still in cache, by whichever thread
 * computed it; tiles of the same C may be processed at the same time. It reads and changes the tile in the type of the
 * sums; if C is narrower, the tile is rounded afterwards. Tiles cover C exactly. */
#ifndef XL_CPU_GEMM_H
#define XL_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernel/gemm_type.h"
#include "cpu/run/pool.h"

/* tile[i * ld + j] is element (i0 + i, j0 + j) of C number `batch` (row-major over the batch dimensions). */
typedef void xl_gemm_epilogue(void *ctx, void *tile, ptrdiff_t ld, size_t batch, size_t i0, size_t j0, size_t m,
                              size_t n);

enum { XL_GEMM_BATCH = 4 };

typedef struct {
    size_t m, n, k;
    xl_gemm_type a_type, b_type;                /* both f64, or both integer, or any of f32, bf16, f16 */
    xl_gemm_type c_type;                        /* the type of the sums; for f32 also bf16 or f16 */
    const void *a, *b;
    void *c;
    ptrdiff_t a_row, a_col, b_row, b_col, c_row; /* in elements; b_row steps along k */
    size_t nbatch,
        batch[XL_GEMM_BATCH]; /* sizes of the first nbatch, outermost first; one of 0: nothing is read or written */
    ptrdiff_t a_batch[XL_GEMM_BATCH], b_batch[XL_GEMM_BATCH], c_batch[XL_GEMM_BATCH];
    bool accumulate;                            /* C += A B; C is read in its own type */
    size_t parts;                               /* f32: each sum is of at least so many shorter ones if k is long */
    xl_gemm_epilogue *epilogue;                 /* may be NULL */
    void *ctx;
} xl_gemm;

/* False if the combination of types is none of the above; nothing is written then. */
bool xl_gemm_run(xl_pool *pool, const xl_gemm *g);

/* Members begin to end of the batch alone, by the calling thread: the same bits as by xl_gemm_run, which must accept
 * the types. */
void xl_gemm_members(const xl_gemm *g, size_t begin, size_t end);

/* The name of the kernel that would run on large matrices, for reports: "neon 8x12". */
const char *xl_gemm_kernel_name(xl_gemm_type a, xl_gemm_type b);

#endif
