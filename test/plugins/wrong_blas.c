/* Not a plugin: a LAPACK library whose products are wrong, as an OpenBLAS with kernels that this CPU does not run
 * rightly (XLANE_LAPACK). It multiplies, and forgets the last row. */
#include <string.h>

__attribute__((visibility("default"))) void dgesdd_(void);
__attribute__((visibility("default"))) void dtrsm_(void);
void dgesdd_(void) {}
void dtrsm_(void) {}

#define PRODUCT(name, T)                                                                                              \
    __attribute__((visibility("default"))) void name(const char *ta, const char *tb, const int *m, const int *n,      \
                                                     const int *k, const T *alpha, const T *a, const int *lda,        \
                                                     const T *b, const int *ldb, const T *beta, T *c, const int *ldc); \
    void name(const char *ta, const char *tb, const int *m, const int *n, const int *k, const T *alpha, const T *a,   \
              const int *lda, const T *b, const int *ldb, const T *beta, T *c, const int *ldc)                         \
    {                                                                                                                 \
        (void)ta, (void)tb, (void)alpha, (void)beta;                                                                  \
        for (int j = 0; j < *n; j++) {                                                                                \
            memset(c + j * *ldc, 0, (size_t)*m * sizeof(T));                                                          \
            for (int p = 0; p < *k; p++)                                                                              \
                for (int i = 0; i < *m - 1; i++)                                                                      \
                    c[j * *ldc + i] += a[p * *lda + i] * b[j * *ldb + p];                                             \
        }                                                                                                             \
    }
PRODUCT(sgemm_, float)
PRODUCT(dgemm_, double)
