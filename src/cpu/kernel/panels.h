/* src/cpu/kernel/panels.h
 * LU, Cholesky and QR of one large matrix, shared among the threads of a pool. LAPACK factors a panel of columns; the
 * columns to its right are updated in blocks, one thread per block, and the thread that updates the next panel also
 * factors it. Panels and blocks depend only on the shape, so the number of threads changes no bit. Matrices are
 * column-major without gaps. Any thread. */
#ifndef XL_CPU_PANELS_H
#define XL_CPU_PANELS_H

#include "cpu/kernel/openblas.h"
#include "cpu/run/pool.h"

typedef enum { XL_PANELS_LU, XL_PANELS_CHOLESKY, XL_PANELS_QR } xl_panels_kind;
typedef struct {
    xl_openblas_fn *panel, *gemm, *trsm, *swap, *larft, *larfb;
    size_t elem;
    bool complex, wide;                                    /* wide: doubles */
} xl_panels;

/* The routines for type s, d, c or z. */
xl_error *xl_panels_find(xl_panels_kind kind, char type, xl_panels *p) XL_MUST_USE;
/* Whether a matrix is large enough; otherwise LAPACK's own routine is as quick. */
bool xl_panels_pay(int64_t m, int64_t n);

/* Like LAPACK's getrf, potrf, geqrf and orgqr (ungqr): the result is LAPACK's info; -1000 means out of memory. After
 * Cholesky the contents of the other triangle are undefined. xl_panels_q takes the reflectors from v and computes
 * the first n columns of their product in q. */
int32_t xl_panels_lu(const xl_panels *p, xl_pool *pool, int32_t m, int32_t n, void *a, int32_t *pivots);
int32_t xl_panels_cholesky(const xl_panels *p, xl_pool *pool, bool lower, int32_t n, void *a);
int32_t xl_panels_qr(const xl_panels *p, xl_pool *pool, int32_t m, int32_t n, void *a, void *tau);
int32_t xl_panels_q(const xl_panels *p, xl_pool *pool, int32_t m, int32_t n, int32_t k, const void *v, const void *tau,
                    void *q);

#endif
