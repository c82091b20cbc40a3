/* Eigenvalues and singular values of one large matrix (spectral.h). */
#include "cpu/kernel/spectral.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    PANEL = 32,                                            /* columns that are reduced before the rest is updated */
    REST = 128,                                            /* the last columns are LAPACK's */
    WHOLE = 320, /* rows of a symmetric matrix that one thread multiplies as quickly */
    BLOCK = 64, ROWS = 256,
    LEAF = 25, SMALL = 192,                                /* of divide and conquer: solved at once; merged by LAPACK */
    WIDTH = 64                                             /* reflectors and columns of a back-transformation */
};
#define ALONE 6e4                                          /* elements that one thread multiplies as quickly */
typedef int32_t i32;
/* Fortran passes everything by address, and the lengths of texts, here always 1, last. */
typedef void *P;
typedef size_t L;
static char left[] = "L", right[] = "R", low[] = "L", high[] = "U", plain[] = "N", turned[] = "T", adjoint[] = "C",
            forward[] = "F", columns[] = "C", rows[] = "R", alone[] = "I", largest[] = "M", both[] = "B", some[] = "S",
            schur[] = "S", values[] = "E", vectors_too[] = "V";
typedef struct { i32 col, cols; } block;
typedef struct { i32 at, n, more; } part;                  /* more: columns than rows */

static i32 least(i32 a, i32 b) { return a < b ? a : b; }
static void failed(atomic_int *info, i32 why)
{
    int none = 0;
    atomic_compare_exchange_strong(info, &none, why);
}

#define T float
#define NAME(f) f##_f32
#include "cpu/kernel/spectral_reduce.inl"
#include "cpu/kernel/spectral_divide.inl"
#undef T
#undef NAME
#define T double
#define NAME(f) f##_f64
#include "cpu/kernel/spectral_reduce.inl"
#include "cpu/kernel/spectral_divide.inl"
#undef T
#undef NAME

/* ---- back-transformation ----------------------------------------------------------------------------------------- */
typedef struct {
    const xl_spectral *f;
    i32 m, k, ldv, ldc, count;                             /* k reflectors of length m; columns or rows of c */
    const char *v, *tau;
    char *t, *c;
    bool by_rows; /* the reflectors are rows of v, and c is multiplied from the right */
    bool identity;                                         /* c is: a panel leaves what is left of it as it is */
    atomic_int info;
} back;
static i32 panels(const back *j) { return (j->k + WIDTH - 1) / WIDTH; }
static const char *reflectors(const back *j, i32 p)
{
    return j->v + ((size_t)p * WIDTH * (size_t)j->ldv + (size_t)p * WIDTH) * j->f->elem;
}
static char *triangle(const back *j, i32 p) { return j->t + (size_t)p * WIDTH * WIDTH * j->f->elem; }
static void back_triangles(void *ctx, size_t begin, size_t end)
{
    const back *j = ctx;
    for (size_t i = begin; i < end; i++) {
        i32 p = (i32)i, length = j->m - p * WIDTH, k = least(WIDTH, j->k - p * WIDTH), ldt = WIDTH;
        ((void (*)(P, P, P, P, P, P, P, P, P, L, L))j->f->larft)(
            forward, j->by_rows ? rows : columns, &length, &k, (P)(uintptr_t)reflectors(j, p), (P)(uintptr_t)&j->ldv,
            (P)(uintptr_t)(j->tau + (size_t)p * WIDTH * j->f->elem), triangle(j, p), &ldt, 1, 1);
    }
}
/* Q = H_0 H_1 ...: the last panel first. */
static void back_block(void *ctx, size_t begin, size_t end)
{
    back *j = ctx;
    size_t e = j->f->elem;
    void *work = malloc(WIDTH * WIDTH * e);
    if (!work)
        failed(&j->info, XL_SPECTRAL_LACKING);
    for (size_t i = begin; i < end && work; i++)
        for (i32 p = j->identity ? least(panels(j), (i32)i + 1) : panels(j); p-- > 0; ) {
            i32 at = (i32)i * WIDTH, some = least(WIDTH, j->count - at), length = j->m - p * WIDTH,
                k = least(WIDTH, j->k - p * WIDTH), ld = WIDTH, m = j->by_rows ? some : length,
                n = j->by_rows ? length : some;
            size_t to = j->by_rows ? (size_t)p * WIDTH * (size_t)j->ldc + (size_t)at
                                   : (size_t)at * (size_t)j->ldc + (size_t)p * WIDTH;
            ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L, L, L))j->f->larfb)(
                j->by_rows ? right : left, j->by_rows ? (j->f->complex ? adjoint : turned) : plain, forward,
                j->by_rows ? rows : columns, &m, &n, &k, (P)(uintptr_t)reflectors(j, p), &j->ldv, triangle(j, p), &ld,
                j->c + to * e, &j->ldc, work, &ld, 1, 1, 1, 1);
        }
    free(work);
}
static i32 reflect_back(back *j, xl_pool *pool)
{
    if (j->k <= 0 || j->count <= 0)
        return 0;
    j->t = malloc((size_t)panels(j) * WIDTH * WIDTH * j->f->elem);
    if (!j->t)
        return XL_SPECTRAL_LACKING;
    xl_pool_for(pool, (size_t)panels(j), 1, back_triangles, j);
    xl_pool_for(pool, (size_t)((j->count + WIDTH - 1) / WIDTH), 1, back_block, j);
    free(j->t);
    return atomic_load(&j->info);
}
int32_t xl_spectral_reflect(const xl_spectral *f, xl_pool *pool, int32_t m, int32_t k, const void *v, int32_t ldv,
                            const void *tau, void *c, int32_t ldc, int32_t count)
{
    back j = { .f = f, .m = m, .k = k, .ldv = ldv, .ldc = ldc, .count = count, .v = v, .tau = tau, .c = c };
    return reflect_back(&j, pool);
}

#define T float
#define NAME(f) f##_f32
#include "cpu/kernel/spectral_eig.inl"
#undef T
#undef NAME
#define T double
#define NAME(f) f##_f64
#include "cpu/kernel/spectral_eig.inl"
#undef T
#undef NAME

/* ---- all --------------------------------------------------------------------------------------------------------- */
bool xl_spectral_pays(int64_t m, int64_t n)
{
    return (m < n ? m : n) >= 192;
}
/* Whether the largest element's square neither overflows nor vanishes beside 1. */
static bool moderate(const xl_spectral *f, i32 m, i32 n, void *a, i32 ld)
{
    if (f->wide) {
        double most = ((double (*)(P, P, P, P, P, P, L))f->lange)(largest, &m, &n, a, &ld, NULL, 1);
        return most == 0 || (most > 1e-130 && most < 1e130);
    }
    float most = ((float (*)(P, P, P, P, P, P, L))f->lange)(largest, &m, &n, a, &ld, NULL, 1);
    return most == 0 || (most > 1e-13f && most < 1e13f);
}
/* A real matrix of n columns in the first ones of `to`, which may be complex; `more` columns with a one each follow. */
static void widen(const xl_spectral *f, i32 n, const char *from, i32 rows_to, i32 cols_to, char *to)
{
    size_t real = f->wide ? 8 : 4, e = f->elem;
    for (i32 c = 0; c < cols_to; c++) {
        char *col = to + (size_t)c * (size_t)rows_to * e;
        if (c >= n || rows_to > n || f->complex)
            memset(col, 0, (size_t)rows_to * e);
        if (c >= n && f->wide)
            *(double *)(void *)(col + (size_t)c * e) = 1;
        else if (c >= n)
            *(float *)(void *)(col + (size_t)c * e) = 1;
        else if (!f->complex)
            memcpy(col, from + (size_t)c * (size_t)n * e, (size_t)n * e);
        else
            for (i32 r = 0; r < n; r++)
                memcpy(col + (size_t)r * e, from + ((size_t)c * (size_t)n + (size_t)r) * real, real);
    }
}

int32_t xl_spectral_eigh(const xl_spectral *f, xl_pool *pool, int32_t n, void *a, void *w, void *z)
{
    size_t size = (size_t)n, real = f->wide ? 8 : 4;
    i32 info = 0, lwork = n * WIDTH;
    if (!moderate(f, n, n, a, n))
        return XL_SPECTRAL_SCALE;
    char *e = malloc(size * real), *tau = malloc(size * f->elem), *work = NULL, *q = z;
    if (f->complex)
        work = malloc((size_t)lwork * f->elem), q = malloc(size * size * real);
    if (!e || !tau || !q || (f->complex && !work))
        info = XL_SPECTRAL_LACKING;
    else if (f->complex)
        ((void (*)(P, P, P, P, P, P, P, P, P, P, L))f->sytrd)(low, &n, a, &n, w, e, tau, work, &lwork, &info, 1);
    else
        info = f->wide ? tridiagonal_f64(f, pool, n, a, w, (P)e, (P)tau)
                       : tridiagonal_f32(f, pool, n, a, w, (P)e, (P)tau);
    if (!info)
        info = f->wide ? divide_eigh_f64(f, pool, n, w, (P)e, (P)q) : divide_eigh_f32(f, pool, n, w, (P)e, (P)q);
    if (!info && f->complex)
        widen(f, n, q, n, n, z);
    if (!info)
        info = xl_spectral_reflect(f, pool, n - 1, n - 1, (char *)a + f->elem, n, tau, (char *)z + f->elem, n, n);
    free(e);
    free(tau);
    free(work);
    if (q != (char *)z)
        free(q);
    return info;
}

int32_t xl_spectral_svd(const xl_spectral *f, xl_pool *pool, int32_t m, int32_t n, void *a, void *s, void *u,
                        int32_t count, void *vt)
{
    size_t size = (size_t)n, real = f->wide ? 8 : 4;
    i32 info = 0, lwork = (m + n) * PANEL;
    if (!moderate(f, m, n, a, m))
        return XL_SPECTRAL_SCALE;
    char *e = malloc(size * real), *tau = malloc(2 * size * f->elem), *p = tau ? tau + size * f->elem : NULL;
    char *work = NULL, *ub = malloc(size * size * real), *vb = vt;
    if (f->complex)
        work = malloc((size_t)lwork * f->elem), vb = u ? malloc(size * size * real) : NULL;
    if (!e || !tau || !ub || (f->complex && (!work || (u && !vb))))
        info = XL_SPECTRAL_LACKING;
    else if (f->complex)
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P))f->gebrd)(&m, &n, a, &m, s, e, tau, p, work, &lwork, &info);
    else
        info = f->wide ? bidiagonal_f64(f, pool, m, n, a, s, (P)e, (P)tau, (P)p)
                       : bidiagonal_f32(f, pool, m, n, a, s, (P)e, (P)tau, (P)p);
    if (!info && !u) {                                     /* WORK: 8n, IWORK: 8n */
        i32 one = 1, *ints = malloc(8 * size * sizeof *ints);
        void *more = malloc(8 * size * real);
        if (ints && more)
            ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))f->bdsdc)(
                high, plain, &n, s, e, NULL, &one, NULL, &one, NULL, NULL, more, ints, &info, 1, 1);
        else
            info = XL_SPECTRAL_LACKING;
        free(ints);
        free(more);
    } else if (!info) {
        info = f->wide ? divide_svd_f64(f, pool, n, s, (P)e, (P)ub, (P)vb)
                       : divide_svd_f32(f, pool, n, s, (P)e, (P)ub, (P)vb);
        if (!info)
            widen(f, n, ub, m, count, u);
        if (!info && f->complex)
            widen(f, n, vb, n, n, vt);
        if (!info)
            info = xl_spectral_reflect(f, pool, m, n, a, m, tau, u, m, count);
        back j = { .f = f, .m = n - 1, .k = n - 1, .ldv = m, .ldc = n, .count = n, .v = (char *)a + (size_t)m * f->elem,
                   .tau = p, .c = (char *)vt + size * f->elem, .by_rows = true };
        if (!info)
            info = reflect_back(&j, pool);
    }
    free(e);
    free(tau);
    free(ub);
    free(work);
    if (vb != (char *)vt)
        free(vb);
    return info;
}

int32_t xl_spectral_eig(const xl_spectral *f, xl_pool *pool, int32_t n, void *a, int32_t ld, void *wr, void *wi,
                        void *vl, void *vr)
{
    if (!moderate(f, n, n, a, ld))
        return XL_SPECTRAL_SCALE;
    return f->wide ? eig_f64(f, pool, n, a, ld, wr, wi, vl, vr) : eig_f32(f, pool, n, a, ld, wr, wi, vl, vr);
}

xl_error *xl_spectral_find(char type, xl_spectral *f)
{
    xl_error *err = NULL;
    *f = (xl_spectral){ .complex = type == 'c' || type == 'z', .wide = type == 'd' || type == 'z' };
#define F(field, real, complex_) XL_DO(xl_openblas_find(type, f->complex ? complex_ : real, &f->field));
    XL_SPECTRAL_OWN(F)
#undef F
#define F(field, name) XL_DO(xl_openblas_find(f->wide ? 'd' : 's', name, &f->field));
    XL_SPECTRAL_REAL(F)
#undef F
    f->elem = (f->wide ? 8u : 4u) * (f->complex ? 2u : 1u);
out:
    return err;
}
