/* src/cpu/kernel/spectral.h
 * Eigenvalues and eigenvectors of a symmetric (Hermitian) or a general real matrix, and singular values and vectors, of
 * one large matrix, shared among the threads of a pool. The algorithms are LAPACK's, with LAPACK's and BLAS's routines:
 * reduction to a tridiagonal (bidiagonal, Hessenberg) matrix, divide and conquer (the QR iteration),
 * back-transformation. Threads share the column blocks of each reflection's product with the matrix, the roots and the
 * columns of each merge's products, and the column blocks of the back-transformation. Blocks depend only on the shape,
 * so the number of threads changes no bit. Matrices are column-major, without gaps unless a leading dimension is given.
 * Any thread. */
#ifndef XL_CPU_SPECTRAL_H
#define XL_CPU_SPECTRAL_H

#include "cpu/kernel/openblas.h"
#include "cpu/run/pool.h"

/* Of the matrix's own type, and of its real one: name in LAPACK, and in LAPACK for complex matrices. */
#define XL_SPECTRAL_OWN(F)                                                                                         \
    F(larft, "larft", "larft") F(larfb, "larfb", "larfb") F(sytrd, "sytrd", "hetrd") F(gebrd, "gebrd", "gebrd")     \
    F(lange, "lange", "lange")
#define XL_SPECTRAL_REAL(F)                                                                                        \
    F(gemm, "gemm") F(gemv, "gemv") F(symv, "symv") F(larfg, "larfg") F(lamrg, "lamrg")            \
    F(steqr, "steqr") F(laed1, "laed1") F(laed2, "laed2") F(laed3, "laed3") F(laed4, "laed4") F(bdsdc, "bdsdc")    \
    F(lasdq, "lasdq") F(lasd1, "lasd1") F(lasd2, "lasd2") F(lasd3, "lasd3") F(lasd4, "lasd4")    \
    F(gebal, "gebal") F(gehrd, "gehrd") F(hseqr, "hseqr") F(trevc3, "trevc3") F(gebak, "gebak") F(nrm2, "nrm2")    \
    F(lartg, "lartg")
typedef struct {
#define F(name, ...) xl_openblas_fn *name;
    XL_SPECTRAL_OWN(F) XL_SPECTRAL_REAL(F)
#undef F
    size_t elem;
    bool complex, wide;                                    /* wide: doubles */
} xl_spectral;

/* The routines for type s, d, c or z. */
xl_error *xl_spectral_find(char type, xl_spectral *f) XL_MUST_USE;
/* Whether a matrix is large enough; otherwise LAPACK's own routine is as quick. */
bool xl_spectral_pays(int64_t m, int64_t n);

/* The result is LAPACK's info; XL_SPECTRAL_LACKING means out of memory, XL_SPECTRAL_SCALE that numbers are so large
 * or small that LAPACK's own routine, which scales them, should be used; only a was overwritten then. */
enum { XL_SPECTRAL_LACKING = -1000, XL_SPECTRAL_SCALE = -1001 };
/* Of the lower triangle of a, which is overwritten: n ascending eigenvalues, and the vectors as columns of z. */
int32_t xl_spectral_eigh(const xl_spectral *f, xl_pool *pool, int32_t n, void *a, void *w, void *z);
/* m >= n. Descending singular values; unless u is NULL, `columns` (n or m) of U and the n rows of V's adjoint. a is
 * overwritten. */
int32_t xl_spectral_svd(const xl_spectral *f, xl_pool *pool, int32_t m, int32_t n, void *a, void *s, void *u,
                        int32_t columns, void *vt);
/* Of a real matrix: eigenvalues, and left and right vectors where vl and vr are not NULL, as LAPACK's geev has them.
 * All have columns ld elements apart. */
int32_t xl_spectral_eig(const xl_spectral *f, xl_pool *pool, int32_t n, void *a, int32_t ld, void *wr, void *wi,
                        void *vl, void *vr);
/* c (m rows, ldc) = Q c, where Q's k reflectors of length m are the columns of v. */
int32_t xl_spectral_reflect(const xl_spectral *f, xl_pool *pool, int32_t m, int32_t k, const void *v, int32_t ldv,
                            const void *tau, void *c, int32_t ldc, int32_t columns);

#endif
