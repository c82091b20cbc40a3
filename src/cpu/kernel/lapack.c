/* Decompositions by LAPACK (openblas.h): the custom calls `lapack_<type><routine>_ffi` that JAX emits for CPUs, XLA's
 * own `Eigh`, `Qr` and `ProductOfElementaryHouseholderReflectors`, and the ops cholesky and triangular_solve. Threads
 * share the matrices of a batch, and one large matrix where panels.h supports it. LAPACK's matrices are column-major,
 * so they are transposed on the way in and out. The layouts in the calls do not matter here: operands are logical
 * matrices. Narrow floats are computed in f32. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/kernel/cholesky.h"
#include "cpu/kernel/ew.h"
#include "cpu/kernel/linalg.h"
#include "cpu/kernel/openblas.h"
#include "cpu/kernel/panels.h"
#include "cpu/kernel/spectral.h"
#include "cpu/kernel/strided.h"
#include "cpu/plan/planner.h"
#include "cpu/run/feature.h"
#include "cpu/run/pool.h"

enum { OUTS = 6 };
typedef int32_t i32;
typedef struct call call;

typedef struct {
    const call *d;
    xl_pool *pool;
    i32 m, n, k;                                           /* k = min(m, n) */
    char *a;                                               /* the matrix, by columns; may be overwritten */
    const void *more;                                      /* the second operand's share, in its own type */
    char *out[OUTS]; /* by columns where they are matrices; zeroed; a routine that works in place puts `a` there, one
                      * that leaves it zero may put NULL */
    bool lacking;                                          /* of memory */
} matrix;
typedef i32 routine_fn(matrix *x);                         /* LAPACK's info: 0, or what went wrong */

/* How many elements a result has per matrix: n*n, n, n-1, k, m*n, by U's and V's own shape, 1. And of what type: the
 * matrix's, its real one, its complex one, i32. */
enum { SQ, VEC, SUB, TAU, MAT, U, VT, ONE };
enum { T, R, C, I };
typedef struct { uint8_t size, type; } result;
typedef struct {
    const char *name, *fn, *fn_complex;                    /* of LAPACK; another name for complex matrices, or NULL */
    routine_fn *run;
    bool square, finite, info; /* finite: others make it fail, as if it did not converge; info: the last result */
    uint8_t nin, nout, nout_complex;
    result out[OUTS], out_complex[OUTS];
} routine;

struct call {
    const routine *r;
    xl_openblas_fn *fn;
    xl_panels panels;                                      /* for a large matrix; elem is 0 without */
    xl_spectral spectral;                                  /* so has this */
    xl_dtype work, type[OUTS];                             /* of the matrix, and of each result, as LAPACK has them */
    xl_ew load, store[OUTS];                               /* NULL: they are the same as outside */
    size_t elem;
    bool complex, wide, turned[OUTS];                      /* wide: doubles */
    char upper, mode, left, right;
    int64_t mats, size[OUTS], rows[OUTS];
};

/* Fortran passes everything by address, and the lengths of texts, here always 1, last. */
typedef void *P;
typedef size_t L;
static char all[] = "A", small[] = "S", none[] = "N", vectors[] = "V";

static size_t real_size(const call *d) { return d->wide ? 8 : 4; }
/* The first number of a workspace is its best size. */
static i32 asked(const call *d, const void *work)
{
    double n = d->wide ? *(const double *)work : (double)*(const float *)work;
    return n < 1               ? 1
           : n > INT32_MAX / 2 ? INT32_MAX / 2
                               : (i32)ceil(n * (d->wide ? 1 : 1.000001)); /* a float may have rounded it down */
}
static i32 least(i32 n) { return n < 1 ? 1 : n; }

/* Memory for a routine's working arrays, freed at its end. */
static void *space(matrix *x, size_t n)
{
    void *p = malloc(n + 64);
    x->lacking = x->lacking || !p;
    return p;
}

/* ---- routines ---------------------------------------------------------------------------------------------------- */
/* Calls a routine twice: for the size of its workspace, then with it. `call` uses work, lwork and info. */
#define WITH_WORK(call)                                                            \
    do {                                                                           \
        double first[2] = { 0 };                                                   \
        void *work = first;                                                        \
        i32 lwork = -1;                                                            \
        call;                                                                      \
        lwork = asked(x->d, work);                                                 \
        work = space(x, (size_t)lwork * x->d->elem);                               \
        if (work && info == 0)                                                     \
            call;                                                                  \
        free(work);                                                                \
    } while (0)

static i32 run_getrf(matrix *x)
{
    i32 info = 0;
    if (x->d->panels.elem)
        info = xl_panels_lu(&x->d->panels, x->pool, x->m, x->n, x->a, (i32 *)(void *)x->out[1]);
    else
        ((void (*)(P, P, P, P, P, P))x->d->fn)(&x->m, &x->n, x->a, &x->m, x->out[1], &info);
    x->out[0] = x->a;
    return info;
}
static i32 run_geqrf(matrix *x)
{
    i32 info = 0;
    if (x->d->panels.elem) {
        info = xl_panels_qr(&x->d->panels, x->pool, x->m, x->n, x->a, x->out[1]);
        x->lacking = info < 0;
    } else {
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P))x->d->fn)(&x->m, &x->n, x->a, &x->m, x->out[1], work, &lwork,
                                                               &info));
    }
    x->out[0] = x->a;
    return info;
}
/* The first n columns of the product of the reflectors below A's diagonal. */
static i32 run_orgqr(matrix *x)
{
    i32 info = 0, k = (i32)x->d->size[1];
    if (x->d->panels.elem) {
        info = xl_panels_q(&x->d->panels, x->pool, x->m, x->n, k, x->a, x->more, x->out[0]);
        x->lacking = info < 0;
        return info;
    }
    WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P))x->d->fn)(&x->m, &x->n, &k, x->a, &x->m, (P)(uintptr_t)x->more,
                                                              work, &lwork, &info));
    x->out[0] = x->a;
    return info;
}
static i32 run_geqp3(matrix *x)
{
    i32 info = 0;
    void *rwork = space(x, 2 * (size_t)x->n * 8);
    memcpy(x->out[1], x->more, (size_t)x->n * sizeof(i32));
    if (x->d->complex)
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P))x->d->fn)(&x->m, &x->n, x->a, &x->m, x->out[1], x->out[2],
                                                                     work, &lwork, rwork, &info));
    else
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P))x->d->fn)(&x->m, &x->n, x->a, &x->m, x->out[1], x->out[2], work,
                                                                  &lwork, &info));
    x->out[0] = x->a;
    free(rwork);
    return info;
}
static i32 run_gehrd(matrix *x)
{
    i32 info = 0, one = 1;
    WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P))x->d->fn)(&x->n, &one, &x->n, x->a, &x->n, x->out[1], work, &lwork,
                                                              &info));
    x->out[0] = x->a;
    return info;
}
static i32 run_sytrd(matrix *x)
{
    i32 info = 0;
    char uplo = x->d->upper;
    WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, L))x->d->fn)(&uplo, &x->n, x->a, &x->n, x->out[1], x->out[2],
                                                                    x->out[3], work, &lwork, &info, 1));
    x->out[0] = x->a;
    return info;
}
static i32 run_syevd(matrix *x)
{
    i32 info = 0, n = x->n, lwork = -1, lrwork = -1, liwork = -1, iwork1 = 0;
    double work1[2] = { 0 }, rwork1[2] = { 0 };
    char uplo = x->d->upper;
    P a = x->a, w = x->out[1], work = work1, rwork = rwork1, iwork = &iwork1;
    xl_openblas_fn *fn = x->d->fn;
    if (x->d->spectral.elem) {
        info = xl_spectral_eigh(&x->d->spectral, x->pool, n, a, w, x->out[0]);
        x->lacking = info == XL_SPECTRAL_LACKING;
        if (info != XL_SPECTRAL_SCALE)
            return info;
        info = 0;
    }
    for (int turn = 0; turn < 2 && info == 0; turn++) {
        if (x->d->complex)
            ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(vectors, &uplo, &n, a, &n, w, work, &lwork,
                                                                        rwork, &lrwork, iwork, &liwork, &info, 1, 1);
        else
            ((void (*)(P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(vectors, &uplo, &n, a, &n, w, work, &lwork, iwork,
                                                                  &liwork, &info, 1, 1);
        if (turn)
            break;
        lwork = asked(x->d, work1), lrwork = asked(x->d, rwork1), liwork = least(iwork1);
        work = space(x, (size_t)lwork * x->d->elem), rwork = space(x, (size_t)lrwork * real_size(x->d)),
        iwork = space(x, (size_t)liwork * sizeof(i32));
        if (x->lacking)
            break;
    }
    if (work != work1)
        free(work), free(rwork), free(iwork);
    x->out[0] = x->a;
    return info;
}
/* to[c][r] = from[r][c]; lines of `to` are to_step elements apart, those of `from` from_step. */
static void turn_apart(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t rows, int64_t cols,
                       size_t elem, xl_pool *pool)
{
    xl_strided s;
    int64_t e = (int64_t)elem;
    xl_strided_init(&s, elem, 2, (const int64_t[]){ cols, rows }, (const int64_t[]){ to_step * e, e },
                    (const int64_t[]){ e, from_step * e });
    xl_strided_run(&s, to, from, pool);
}
static void turn(void *to, const void *from, int64_t rows, int64_t cols, size_t elem, xl_pool *pool)
{
    turn_apart(to, rows, from, cols, rows, cols, elem, pool);
}

/* m >= n. A tall matrix is made a square one by QR first. */
static i32 tall_svd(matrix *x, i32 m, i32 n, char *a, char *s, char *u, i32 columns, char *vt)
{
    const call *d = x->d;
    size_t e = d->elem, high = (size_t)m, wide = (size_t)n;
    if (m < 2 * n)
        return xl_spectral_svd(&d->spectral, x->pool, m, n, a, s, u, columns, vt);
    char *tau = space(x, wide * e), *r = space(x, wide * wide * e), *small_u = u ? space(x, wide * wide * e) : NULL;
    i32 info = x->lacking ? XL_SPECTRAL_LACKING : xl_panels_qr(&d->panels, x->pool, m, n, a, tau);
    if (info == 0) {
        for (size_t c = 0; c < wide; c++) {
            memcpy(r + c * wide * e, a + c * high * e, (c + 1) * e);
            memset(r + (c * wide + c + 1) * e, 0, (wide - c - 1) * e);
        }
        info = xl_spectral_svd(&d->spectral, x->pool, n, n, r, s, small_u, n, vt);
    }
    if (info == 0 && u) {
        memset(u, 0, (size_t)columns * high * e);
        for (size_t c = 0; c < (size_t)columns; c++)
            if (c < wide)
                memcpy(u + c * high * e, small_u + c * wide * e, wide * e);
            else if (d->wide)
                *(double *)(void *)(u + (c * high + c) * e) = 1;
            else
                *(float *)(void *)(u + (c * high + c) * e) = 1;
        info = xl_spectral_reflect(&d->spectral, x->pool, m, n, a, m, tau, u, m, columns);
    }
    free(tau);
    free(r);
    free(small_u);
    return info;
}
/* A wide matrix is the transpose of a tall one, U and V's adjoint changing places. */
static i32 spectral_svd(matrix *x, bool vectors_too)
{
    const call *d = x->d;
    i32 m = x->m, n = x->n, most = m > n ? m : n, k = x->k;
    size_t e = d->elem, total = (size_t)m * (size_t)n * e, nu = (size_t)d->size[2], nv = (size_t)d->size[3];
    i32 columns = (i32)((m >= n ? nu : nv) / (size_t)most);
    char *a = space(x, total), *u = NULL, *v = NULL;
    if (m < n && vectors_too)
        u = space(x, nv * e), v = space(x, nu * e);
    i32 info = XL_SPECTRAL_LACKING;
    if (x->lacking)
        goto out;
    if (m >= n) {
        memcpy(a, x->a, total);
        info = tall_svd(x, m, n, a, x->out[1], vectors_too ? x->out[2] : NULL, columns, x->out[3]);
        goto out;
    }
    turn(a, x->a, n, m, e, x->pool);
    info = tall_svd(x, n, m, a, x->out[1], u, columns, v);
    if (info == 0 && vectors_too) {
        turn(x->out[2], v, m, k, e, x->pool);
        turn(x->out[3], u, columns, n, e, x->pool);
    }
out:
    free(a);
    free(u);
    free(v);
    return info;
}
static i32 run_svd(matrix *x)
{
    const call *d = x->d;
    i32 info = 0, m = x->m, n = x->n, ldu = m, ldvt = (i32)(d->size[3] / least(n));
    bool divide = !strcmp(d->r->fn, "gesdd");
    char *job = d->mode == 'N'                                                       ? none
                : d->size[2] == (int64_t)m * x->k && d->size[3] == (int64_t)n * x->k ? small
                                                                                     : all;
    int64_t k = x->k, most = m > n ? m : n, a = 5 * k * k + 7 * k, b = 2 * most * k + 2 * k * k + k;
    void *rwork = d->complex ? space(x, (size_t)(a > b ? a : b) * real_size(d)) : NULL,
         *iwork = space(x, (size_t)(8 * k) * sizeof(i32));
    P s = x->out[1], u = x->out[2], vt = x->out[3];
    xl_openblas_fn *fn = d->fn;
    if (x->lacking)
        goto out;
    if (d->spectral.elem) {
        info = spectral_svd(x, d->mode != 'N');
        if (info != XL_SPECTRAL_SCALE)
            goto out;
        info = 0;
    }
    if (divide && d->complex)
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L))fn)(
            job, &m, &n, x->a, &m, s, u, &ldu, vt, &ldvt, work, &lwork, rwork, iwork, &info, 1));
    else if (divide)
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, L))fn)(job, &m, &n, x->a, &m, s, u, &ldu, vt,
                                                                              &ldvt, work, &lwork, iwork, &info, 1));
    else if (d->complex)
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(
            job, job, &m, &n, x->a, &m, s, u, &ldu, vt, &ldvt, work, &lwork, rwork, &info, 1, 1));
    else
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(job, job, &m, &n, x->a, &m, s, u, &ldu,
                                                                                 vt, &ldvt, work, &lwork, &info, 1, 1));
out:
    x->out[0] = NULL;                                      /* what is left of A */
    free(rwork);
    free(iwork);
    return info;
}

/* Eigenvectors of a real matrix, `step` elements between columns: a pair of conjugates has its real and imaginary parts
 * in two columns. */
static void split_pairs(const matrix *x, const char *v, int64_t step, const char *wi, char *out)
{
    int64_t n = x->n;
    for (int64_t j = 0; j < n; j++) {
        bool pair = x->d->wide ? ((const double *)wi)[j] != 0 : ((const float *)wi)[j] != 0;
        pair = pair && j + 1 < n;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = j * n + i, next = at + n, from = j * step + i;
            if (x->d->wide) {
                const double *re = (const double *)v + from;
                double *y = (double *)out;
                y[2 * at] = re[0], y[2 * at + 1] = pair ? re[step] : 0;
                if (pair)
                    y[2 * next] = re[0], y[2 * next + 1] = -re[step];
            } else {
                const float *re = (const float *)v + from;
                float *y = (float *)out;
                y[2 * at] = re[0], y[2 * at + 1] = pair ? re[step] : 0;
                if (pair)
                    y[2 * next] = re[0], y[2 * next + 1] = -re[step];
            }
        }
        j += pair;
    }
}
/* Columns of a large matrix that lie some power of two apart share a few sets of the cache, and the QR iteration walks
 * along rows: room between them. */
static i32 apart(i32 n) { return n >= 128 && n % 64 == 0 ? n + 16 : n; }
static void copy_columns(char *to, i32 to_step, const char *from, i32 from_step, i32 n, size_t elem)
{
    for (size_t c = 0; c < (size_t)n; c++)
        memcpy(to + c * (size_t)to_step * elem, from + c * (size_t)from_step * elem, (size_t)n * elem);
}
static i32 run_geev(matrix *x)
{
    const call *d = x->d;
    i32 info = 0, n = x->n, step = apart(n);
    size_t sq = (size_t)n * (size_t)step * d->elem;
    char left[] = { d->left, 0 }, right[] = { d->right, 0 };
    bool lefts = d->left == 'V', rights = d->right == 'V', wide = step != n;
    char *a = wide ? space(x, sq) : x->a, *vl = lefts ? space(x, sq) : NULL, *vr = rights ? space(x, sq) : NULL;
    void *rwork = d->complex ? space(x, 2 * (size_t)n * real_size(d)) : NULL;
    xl_openblas_fn *fn = d->fn;
    if (x->lacking)
        goto out;
    if (wide)
        copy_columns(a, step, x->a, n, n, d->elem);
    if (d->spectral.elem)
        info = xl_spectral_eig(&d->spectral, x->pool, n, a, step, x->out[0], x->out[1], vl, vr);
    bool whole = !d->spectral.elem || info == XL_SPECTRAL_SCALE;
    x->lacking = x->lacking || info == XL_SPECTRAL_LACKING;
    info = whole ? 0 : info;
    if (whole && d->complex)
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(
            left, right, &n, a, &step, x->out[0], vl, &step, vr, &step, work, &lwork, rwork, &info, 1, 1));
    else if (whole)
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(
            left, right, &n, a, &step, x->out[0], x->out[1], vl, &step, vr, &step, work, &lwork, &info, 1, 1));
    for (int k = 0; k < 2 && !x->lacking && info == 0; k++) {
        const char *v = k ? vr : vl;
        if (v && d->complex)
            copy_columns(x->out[1 + k], n, v, step, n, d->elem);
        else if (v)
            split_pairs(x, v, step, x->out[1], x->out[2 + k]);
    }
    if (!lefts)
        x->out[d->complex ? 1 : 2] = NULL;
    if (!rights)
        x->out[d->complex ? 2 : 3] = NULL;
out:
    if (wide)
        free(a);
    free(vl);
    free(vr);
    free(rwork);
    return info;
}
static i32 run_gees(matrix *x)
{
    const call *d = x->d;
    i32 info = 0, n = x->n, sdim = 0;
    void *rwork = space(x, (size_t)n * real_size(d)), *bwork = space(x, (size_t)n * sizeof(i32));
    char mode[] = { d->mode == 'N' ? 'N' : 'V', 0 };
    xl_openblas_fn *fn = d->fn;
    if (x->lacking)
        ;
    else if (d->complex)
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(
            mode, none, NULL, &n, x->a, &n, &sdim, x->out[2], x->out[1], &n, work, &lwork, rwork, bwork, &info, 1, 1));
    else
        WITH_WORK(((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))fn)(
            mode, none, NULL, &n, x->a, &n, &sdim, x->out[2], x->out[3], x->out[1], &n, work, &lwork, bwork, &info, 1,
            1));
    free(rwork);
    free(bwork);
    x->out[0] = x->a;
    return info;
}

static const routine routines[] = {
    { "syevd", "syevd", "heevd", run_syevd, true, true, true, 1, 3, 3,
      { { SQ, T }, { VEC, R }, { ONE, I } }, { { SQ, T }, { VEC, R }, { ONE, I } } },
    { "heevd", "syevd", "heevd", run_syevd, true, true, true, 1, 3, 3,
      { { SQ, T }, { VEC, R }, { ONE, I } }, { { SQ, T }, { VEC, R }, { ONE, I } } },
    { "gesdd", "gesdd", NULL, run_svd, false, true, true, 1, 5, 5,
      { { MAT, T }, { TAU, R }, { U, T }, { VT, T }, { ONE, I } },
      { { MAT, T }, { TAU, R }, { U, T }, { VT, T }, { ONE, I } } },
    { "gesvd", "gesvd", NULL, run_svd, false, true, true, 1, 5, 5,
      { { MAT, T }, { TAU, R }, { U, T }, { VT, T }, { ONE, I } },
      { { MAT, T }, { TAU, R }, { U, T }, { VT, T }, { ONE, I } } },
    { "geev", "geev", NULL, run_geev, true, true, true, 1, 5, 4,
      { { VEC, R }, { VEC, R }, { SQ, C }, { SQ, C }, { ONE, I } }, { { VEC, T }, { SQ, T }, { SQ, T }, { ONE, I } } },
    { "gees", "gees", NULL, run_gees, true, true, true, 1, 6, 5,
      { { SQ, T }, { SQ, T }, { VEC, R }, { VEC, R }, { ONE, I }, { ONE, I } },
      { { SQ, T }, { SQ, T }, { VEC, T }, { ONE, I }, { ONE, I } } },
    { "gehrd", "gehrd", NULL, run_gehrd, true, false, true, 1, 3, 3,
      { { SQ, T }, { SUB, T }, { ONE, I } }, { { SQ, T }, { SUB, T }, { ONE, I } } },
    { "sytrd", "sytrd", "hetrd", run_sytrd, true, false, true, 1, 5, 5,
      { { SQ, T }, { VEC, R }, { SUB, R }, { SUB, T }, { ONE, I } },
      { { SQ, T }, { VEC, R }, { SUB, R }, { SUB, T }, { ONE, I } } },
    { "hetrd", "sytrd", "hetrd", run_sytrd, true, false, true, 1, 5, 5,
      { { SQ, T }, { VEC, R }, { SUB, R }, { SUB, T }, { ONE, I } },
      { { SQ, T }, { VEC, R }, { SUB, R }, { SUB, T }, { ONE, I } } },
    { "geqp3", "geqp3", NULL, run_geqp3, false, false, false, 2, 3, 3,
      { { MAT, T }, { VEC, I }, { TAU, T } }, { { MAT, T }, { VEC, I }, { TAU, T } } },
    { "getrf", "getrf", NULL, run_getrf, false, false, true, 1, 3, 3,
      { { MAT, T }, { TAU, I }, { ONE, I } }, { { MAT, T }, { TAU, I }, { ONE, I } } },
    { "geqrf", "geqrf", NULL, run_geqrf, false, false, false, 1, 2, 2,
      { { MAT, T }, { TAU, T } }, { { MAT, T }, { TAU, T } } },
    { "orgqr", "orgqr", "ungqr", run_orgqr, false, false, false, 2, 1, 1,
      { { MAT, T } }, { { MAT, T } } },
    { "ungqr", "orgqr", "ungqr", run_orgqr, false, false, false, 2, 1, 1,
      { { MAT, T } }, { { MAT, T } } },
};
/* XLA's own names. */
static const routine xla[] = {
    { "Eigh", "syevd", "heevd", run_syevd, true, true, false, 1, 2, 2,
      { { SQ, T }, { VEC, R } }, { { SQ, T }, { VEC, R } } },
    { "Qr", "geqrf", NULL, run_geqrf, false, false, false, 1, 2, 2,
      { { MAT, T }, { TAU, T } }, { { MAT, T }, { TAU, T } } },
    { "ProductOfElementaryHouseholderReflectors", "orgqr", "ungqr", run_orgqr, false, false, false, 2, 1, 1,
      { { MAT, T } }, { { MAT, T } } },
};

/* ---- as steps ---------------------------------------------------------------------------------------------------- */
static void fill_nan(char *a, size_t bytes, bool wide)
{
    for (size_t i = 0; i < bytes / (wide ? 8 : 4); i++)
        if (wide)
            ((double *)(void *)a)[i] = NAN;
        else
            ((float *)(void *)a)[i] = NAN;
}
static bool all_finite(const call *d, const void *a, int64_t n)
{
    n *= d->complex ? 2 : 1;
    for (int64_t i = 0; i < n; i++)
        if (d->wide ? !isfinite(((const double *)a)[i]) : !isfinite(((const float *)a)[i]))
            return false;
    return true;
}

typedef struct { const xl_step *s; xl_frame *f; atomic_bool lacking; } work;

static void run_matrices(void *ctx, size_t begin, size_t end)
{
    work *w = ctx;
    const xl_step *s = w->s;
    const call *d = s->data;
    const xl_extent *in = xl_in_shape(s, 0);
    int64_t m = in->dims[in->rank - 2], n = in->dims[in->rank - 1], total = m * n;
    size_t at[OUTS], outs = 0, one = (size_t)total * d->elem;
    for (uint32_t i = 0; i < s->nout; i++) {
        at[i] = outs;
        outs += ((size_t)d->size[i] * xl_dtype_bytes(d->type[i]) + 63) & ~(size_t)63;
    }
    one = (one + 63) & ~(size_t)63;
    size_t most = one > outs ? one : outs;                 /* also room to turn or to convert a matrix */
    char *mem = malloc(one + outs + 2 * most + 64);
    if (!mem) {
        atomic_store(&w->lacking, true);
        return;
    }
    char *spare = mem + one + outs, *spare2 = spare + most;
    for (size_t q = begin; q < end; q++) {
        matrix x = { .d = d, .pool = w->f->pool, .m = (i32)m, .n = (i32)n, .k = (i32)(m < n ? m : n), .a = mem };
        const void *from[1] = { (const char *)xl_in(s, w->f, 0) + q * (size_t)total * in->elem };
        if (d->load.fn) {
            d->load.fn(spare, from, (size_t)total, d->load.ctx);
            from[0] = spare;
        }
        turn(x.a, from[0], m, n, d->elem, w->f->pool);
        if (s->nin > 1) {
            const xl_extent *more = xl_in_shape(s, 1);
            int64_t each = more->dims[more->rank - 1];
            x.more = (const char *)xl_in(s, w->f, 1) + q * (size_t)each * more->elem;
            if (d->load.fn && more->dtype != XL_I32) {
                d->load.fn(spare2, (const void *[]){ x.more }, (size_t)each, d->load.ctx);
                x.more = spare2;
            }
        }
        memset(mem + one, 0, outs);
        for (uint32_t i = 0; i < s->nout; i++)
            x.out[i] = mem + one + at[i];
        bool fine = !d->r->finite || all_finite(d, x.a, total);
        i32 info = total && fine ? d->r->run(&x) : !fine;
        if (x.lacking)
            atomic_store(&w->lacking, true);
        if (d->r->info)
            *(i32 *)(void *)x.out[s->nout - 1] = info;
        for (uint32_t i = 0; i < s->nout; i++) {
            bool number = d->type[i] != XL_I32;
            if (d->r->finite && info && number && x.out[i]) /* no convergence */
                fill_nan(x.out[i], (size_t)d->size[i] * xl_dtype_bytes(d->type[i]), d->wide);
            size_t e = xl_dtype_bytes(d->type[i]), elem = xl_out_shape(s, i)->elem;
            const void *y[1] = { x.out[i] };
            char *to = (char *)xl_out(s, w->f, i) + q * (size_t)d->size[i] * elem;
            if (!y[0]) {
                memset(to, 0, (size_t)d->size[i] * elem);
                continue;
            }
            if (d->turned[i] && d->rows[i]) {
                char *where = d->store[i].fn ? spare : to;
                turn(where, y[0], d->size[i] / d->rows[i], d->rows[i], e, w->f->pool);
                y[0] = where;
            }
            if (d->store[i].fn)
                d->store[i].fn(to, y, (size_t)d->size[i], d->store[i].ctx);
            else if (!d->turned[i])
                memcpy(to, y[0], (size_t)d->size[i] * e);
        }
    }
    free(mem);
}
static xl_error *run_call(const xl_step *s, xl_frame *f)
{
    const call *d = s->data;
    work w = { .s = s, .f = f };
    xl_pool_for(f->pool, (size_t)d->mats, 1, run_matrices, &w);
    return atomic_load(&w.lacking) ? XL_ERR(EXHAUSTED, "no memory to decompose a matrix") : NULL;
}

static xl_dtype worked(xl_dtype d) { return d == XL_F64 || d == XL_C64 || d == XL_C128 ? d : XL_F32; }
static char letter(xl_dtype d) { return d == XL_F64 ? 'd' : d == XL_C64 ? 'c' : d == XL_C128 ? 'z' : 's'; }

/* An attribute of the call's configuration that is a letter, or yes or no. */
static char option(const xl_op *op, const char *name, char otherwise)
{
    const xl_attr *cfg = XL_ATTR(op, CUSTOM_CALL, backend_config);
    if (!cfg || cfg->kind != XL_AT_DICT)
        cfg = xl_dict_get(op->extra, XL_STR("mhlo.backend_config"));
    const xl_attr *v = cfg && cfg->kind == XL_AT_DICT ? xl_dict_get(cfg, (xl_str){ name, strlen(name) }) : NULL;
    return v && (v->kind == XL_AT_INT || v->kind == XL_AT_BOOL) ? (char)v->i : otherwise;
}

/* A routine that is missing is an error that names the op. */
static xl_error *found(xl_planner *p, const xl_op *op, xl_error *err)
{
    if (!err)
        return NULL;
    xl_str why = xl_strf(p->a, "%s", xl_error_message(err));
    xl_error_free(err);
    return xl_plan_unsupported(p, op, why.p);
}
static xl_error *find(xl_planner *p, const xl_op *op, xl_dtype dtype, const char *name, xl_openblas_fn **fn)
{
    return found(p, op, xl_openblas_find(letter(dtype), name, fn));
}

static xl_error *plan_call(xl_planner *p, const xl_op *op, const routine *r, bool upper)
{
    const xl_type *a = op->nin ? xl_in_type(p->f, op, 0) : NULL;
    xl_dclass cls = a ? xl_dtype_class(a->dtype) : XL_CLASS_INT;
    bool complex = cls == XL_CLASS_COMPLEX;
    uint32_t nout = complex ? r->nout_complex : r->nout;
    if (!a || op->nin != r->nin || op->nout != nout || a->rank < 2 || (!complex && cls != XL_CLASS_FLOAT))
        return xl_plan_unsupported(p, op, "not the operands and results of this routine");
    call *d = xl_new(p->a, call, 1);
    int64_t m = a->dims[a->rank - 2], n = a->dims[a->rank - 1], k = m < n ? m : n;
    xl_dtype work = worked(a->dtype);
    *d = (call){ .r = r,
                 .complex = complex,
                 .work = work,
                 .wide = work == XL_F64 || work == XL_C128,
                 .upper = upper ? 'U' : 'L',
                 .mats = 1,
                 .elem = xl_dtype_bytes(work),
                 .mode = option(op, "mode", 'V'),
                 .left = option(op, "compute_left", 'V'),
                 .right = option(op, "compute_right", 'V') };
    if (work != a->dtype)
        d->load = xl_ew_convert(p->a, a->dtype, work);
    for (uint32_t i = 0; i + 2 < a->rank; i++)
        d->mats *= a->dims[i];
    if (m < 0 || n < 0 || m > INT32_MAX || n > INT32_MAX || m * n > INT32_MAX || d->mats < 0 || (r->square && m != n))
        return xl_plan_unsupported(p, op, "its operand is no matrix that this routine takes");
    const result *out = complex ? r->out_complex : r->out;
    xl_dtype real = d->wide ? XL_F64 : XL_F32, types[] = { work, real, d->wide ? XL_C128 : XL_C64, XL_I32 };
    for (uint32_t i = 0; i < nout; i++) {
        const xl_type *t = xl_out_type(p->f, op, i);
        int64_t count, rows = t->rank >= 2 ? t->dims[t->rank - 2] : 0,
                       own = t->rank >= 2 ? rows * t->dims[t->rank - 1] : -1;
        bool fits = true;
        switch (out[i].size) {
        case SQ: d->size[i] = n * n, rows = n; break;
        case VEC: d->size[i] = n; break;
        case SUB: d->size[i] = n > 0 ? n - 1 : 0; break;
        case TAU: d->size[i] = k; break;
        case MAT: d->size[i] = m * n, rows = m; break;
        case U: d->size[i] = own; fits = rows == m && (own == m * k || own == m * m); break;
        case VT: d->size[i] = own; fits = own == k * n || own == n * n; break;
        default: d->size[i] = 1; break;
        }
        if (!fits || !xl_type_count(t, &count) || count != d->mats * d->size[i])
            return xl_plan_unsupported(p, op, "a result shape does not match this routine's");
        d->turned[i] = out[i].size == SQ || out[i].size == MAT || out[i].size == U || out[i].size == VT;
        d->rows[i] = rows;
        d->type[i] = types[out[i].type];
        if ((d->type[i] == XL_I32) != (t->dtype == XL_I32))
            return xl_plan_unsupported(p, op, "a result does not have the type that this routine gives");
        if (t->dtype != d->type[i])
            d->store[i] = xl_ew_convert(p->a, d->type[i], t->dtype);
    }
    if (r->nin == 2) {                                     /* pivots, or the reflectors' factors */
        const xl_type *t = xl_in_type(p->f, op, 1);
        int64_t count, each = t->rank ? t->dims[t->rank - 1] : -1;
        bool pivots = r->run == run_geqp3;
        if (!xl_type_count(t, &count) || each < 0 || count != d->mats * each ||
            (pivots ? each != n || t->dtype != XL_I32 : each > n || n > m || t->dtype != a->dtype))
            return xl_plan_unsupported(p, op, "its second operand does not fit the matrix");
        d->size[1] = pivots ? d->size[1] : each;
    }
    xl_error *err = find(p, op, work, complex && r->fn_complex ? r->fn_complex : r->fn, &d->fn);
    bool lu = r->run == run_getrf, svd = !strcmp(r->fn, "gesdd"), eigh = r->run == run_syevd && !upper,
         eig = r->run == run_geev && !complex,
         qr = r->run == run_geqrf || r->run == run_orgqr || (svd && (m >= 2 * n || n >= 2 * m));
    if (!err && (svd || eigh || eig) && xl_spectral_pays(m, n))
        err = found(p, op, xl_spectral_find(letter(work), &d->spectral));
    if (!err && (lu || qr) && xl_panels_pay(m, n))
        err = found(p, op, xl_panels_find(lu ? XL_PANELS_LU : XL_PANELS_QR, letter(work), &d->panels));
    if (err)
        return err;
    p->plan->flops += (double)d->mats * 20.0 * (double)m * (double)n * (double)k;
    return xl_plan_step(p, op, run_call, d, 0);
}

/* ---- cholesky, triangular_solve: by rows as they lie, which LAPACK takes for the transposes ---------------------- */
typedef struct {
    xl_openblas_fn *fn;
    xl_panels panels;                                      /* of cholesky, for a large matrix; elem is 0 without */
    xl_dtype work;
    xl_ew load[2], store;
    bool left, lower, unit;
    char trans;
    int64_t n, rows, cols, mats, pieces;                   /* of b; pieces of its rows or columns */
} factor;
typedef struct { const xl_step *s; xl_frame *f; const factor *d; char *a, *b; atomic_bool lacking; } job;

static double number(const factor *d, const char *a, int64_t at)
{
    return d->work == XL_F32   ? (double)((const float *)(const void *)a)[at]
           : d->work == XL_F64 ? ((const double *)(const void *)a)[at]
           : d->work == XL_C64 ? (double)((const float *)(const void *)a)[2 * at]
                               : ((const double *)(const void *)a)[2 * at];
}
XL_CPU_SETS(xl_cholesky_set, xl_cholesky)
enum { TURN_MIN = 48 }; /* OpenBLAS's lower form takes two thirds of its upper form's time from here on */
static bool small_matrix(const factor *d)
{
    return d->n <= xl_cholesky_best()->most && (d->work == XL_F32 || d->work == XL_F64);
}
/* Elements from one row of a copy to the next: whole vectors, and not all in a few sets of the cache. */
static int64_t row_step(int64_t n)
{
    int64_t step = (n + XL_CHOLESKY_COLUMNS - 1) / XL_CHOLESKY_COLUMNS * XL_CHOLESKY_COLUMNS;
    return step % 64 ? step : step + XL_CHOLESKY_COLUMNS;
}
static int64_t copy_rows(int64_t n) { return (n + XL_CHOLESKY_ROWS - 1) / XL_CHOLESKY_ROWS * XL_CHOLESKY_ROWS; }
/* By cholesky.h, in a copy whose upper triangle is the one that counts. */
static i32 factor_small(const job *j, char *a, char *copy)
{
    const factor *d = j->d;
    size_t e = xl_dtype_bytes(d->work), n = (size_t)d->n, step = (size_t)row_step(d->n), rows = (size_t)copy_rows(d->n);
    if (d->lower)
        turn_apart(copy, (int64_t)step, a, d->n, d->n, d->n, e, j->f->pool);
    for (size_t r = 0; r < rows; r++) {
        char *to = copy + r * step * e;
        size_t given = r < n ? n : 0;
        if (given && !d->lower)
            memcpy(to, a + r * n * e, n * e);
        memset(to + given * e, 0, (step - given) * e);
        if (r >= n && e == 8)
            ((double *)(void *)to)[r] = 1;
        else if (r >= n)
            ((float *)(void *)to)[r] = 1;
    }
    const xl_cholesky_set *set = xl_cholesky_best();
    i32 info = e == 8 ? set->f64((double *)(void *)copy, (i32)rows, (i32)step)
                      : set->f32((float *)(void *)copy, (i32)rows, (i32)step);
    if (d->lower)
        turn_apart(a, d->n, copy, (int64_t)step, d->n, d->n, e, j->f->pool);
    for (size_t r = 0; r < n && !d->lower; r++)
        memcpy(a + r * n * e, copy + r * step * e, n * e);
    return info;
}
/* By LAPACK's lower form, which takes columns. */
static i32 factor_turned(const job *j, char *a, char *copy)
{
    size_t e = xl_dtype_bytes(j->d->work);
    char lower = 'L';
    i32 info = 0, n = (i32)j->d->n;
    turn(copy, a, n, n, e, j->f->pool);
    ((void (*)(P, P, P, P, P, L))j->d->fn)(&lower, &n, copy, &n, &info, 1);
    turn(a, copy, n, n, e, j->f->pool);
    return info;
}

static void factor_one(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    const factor *d = j->d;
    size_t e = xl_dtype_bytes(d->work), total = (size_t)(d->n * d->n);
    bool little = small_matrix(d), turned = !little && !d->panels.elem && d->lower && d->n >= TURN_MIN;
    size_t room = little ? (size_t)(copy_rows(d->n) * row_step(d->n)) : total;
    char *copy = little || turned ? malloc(room * e) : NULL;
    if ((little || turned) && !copy) {
        atomic_store(&j->lacking, true);
        return;
    }
    for (size_t q = begin; q < end; q++) {
        char *a = j->a + q * total * e, uplo = d->lower ? 'U' : 'L';
        i32 n = (i32)d->n, info = 0;
        if (little)
            info = factor_small(j, a, copy);
        else if (d->panels.elem)
            info = xl_panels_cholesky(&d->panels, j->f->pool, !d->lower, n, a);
        else if (turned)
            info = factor_turned(j, a, copy);
        else
            ((void (*)(P, P, P, P, P, L))d->fn)(&uplo, &n, a, &n, &info, 1);
        bool bad = info != 0;
        for (int64_t i = 0; i < d->n && !bad; i++)
            bad = !(number(d, a, i * d->n + i) > 0);
        for (int64_t r = 0; r < d->n; r++) {
            if (d->lower)
                memset(a + (size_t)(r * d->n + r + 1) * e, 0, (size_t)(d->n - r - 1) * e);
            else
                memset(a + (size_t)(r * d->n) * e, 0, (size_t)r * e);
        }
        bool wide = d->work == XL_F64 || d->work == XL_C128;
        if (bad)
            fill_nan(a, total * e, wide);
        if (j->s->nout == 2)
            ((i32 *)xl_out(j->s, j->f, 1))[q] = bad && !info ? 1 : info;
    }
    free(copy);
}
static xl_error *run_cholesky(const xl_step *s, xl_frame *f)
{
    const factor *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0);
    char *y = xl_out(s, f, 0), *mem = NULL;
    const void *in[1] = { xl_in(s, f, 0) };
    job j = { .s = s, .f = f, .d = d, .a = y };
    if (d->load[0].fn) {
        if (!(mem = j.a = malloc((size_t)x->count * xl_dtype_bytes(d->work) + 1)))
            return XL_ERR(EXHAUSTED, "no memory to factor");
        d->load[0].fn(j.a, in, (size_t)x->count, d->load[0].ctx);
    } else {
        memmove(y, in[0], (size_t)x->count * x->elem);
    }
    if (s->nout == 2)
        memset(xl_out(s, f, 1), 0, xl_out_shape(s, 1)->bytes);
    xl_pool_for(f->pool, d->n ? (size_t)d->mats : 0, 1, factor_one, &j);
    bool lacking = atomic_load(&j.lacking);
    if (mem && !lacking)
        d->store.fn(y, (const void *[]){ mem }, (size_t)x->count, d->store.ctx);
    free(mem);
    return lacking ? XL_ERR(EXHAUSTED, "no memory to factor") : NULL;
}

static void solve_one(void *ctx, size_t begin, size_t end)
{
    const job *j = ctx;
    const factor *d = j->d;
    size_t e = xl_dtype_bytes(d->work);
    for (size_t i = begin; i < end; i++) {
        int64_t q = (int64_t)i / d->pieces, piece = (int64_t)i % d->pieces, free_side = d->left ? d->cols : d->rows;
        int64_t each = (free_side + d->pieces - 1) / d->pieces, from = piece * each,
                to = from + each < free_side ? from + each : free_side;
        if (to <= from)
            continue;
        char side = d->left ? 'R' : 'L', uplo = d->lower ? 'U' : 'L', trans = d->trans, diag = d->unit ? 'U' : 'N';
        i32 n = (i32)d->n, ldb = (i32)d->cols, m = (i32)(d->left ? to - from : d->cols),
            c = (i32)(d->left ? d->rows : to - from);
        double one[2] = { 1, 0 };
        float one32[2] = { 1, 0 };
        char *a = j->a + (size_t)(q * d->n * d->n) * e,
             *b = j->b + (size_t)(q * d->rows * d->cols + (d->left ? from : from * d->cols)) * e;
        bool wide = d->work == XL_F64 || d->work == XL_C128;
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P, L, L, L, L))d->fn)(
            &side, &uplo, &trans, &diag, &m, &c, wide ? (P)one : (P)one32, a, &n, b, &ldb, 1, 1, 1, 1);
    }
}
static xl_error *run_solve(const xl_step *s, xl_frame *f)
{
    const factor *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0), *y = xl_in_shape(s, 1);
    size_t e = xl_dtype_bytes(d->work);
    char *out = xl_out(s, f, 0), *mem = NULL;
    const void *a[1] = { xl_in(s, f, 0) }, *b[1] = { xl_in(s, f, 1) };
    job j = { .s = s, .f = f, .d = d, .a = (char *)(uintptr_t)a[0], .b = out };
    if (d->load[0].fn) {
        if (!(mem = malloc((size_t)(x->count + y->count) * e + 1)))
            return XL_ERR(EXHAUSTED, "no memory to solve");
        j.a = mem, j.b = mem + (size_t)x->count * e;
        d->load[0].fn(j.a, a, (size_t)x->count, d->load[0].ctx);
        d->load[1].fn(j.b, b, (size_t)y->count, d->load[1].ctx);
    } else {
        memmove(out, b[0], (size_t)y->count * y->elem);
    }
    xl_pool_for(f->pool, y->count ? (size_t)(d->mats * d->pieces) : 0, 1, solve_one, &j);
    if (mem)
        d->store.fn(out, (const void *[]){ j.b }, (size_t)y->count, d->store.ctx);
    free(mem);
    return NULL;
}

static xl_error *plan_factor(xl_planner *p, const xl_op *op, factor *d, const char *name)
{
    const xl_type *a = xl_in_type(p->f, op, 0);
    xl_dclass cls = xl_dtype_class(a->dtype);
    if (a->rank < 2 || a->dims[a->rank - 1] != a->dims[a->rank - 2] || a->dims[a->rank - 1] > INT32_MAX ||
        (cls != XL_CLASS_FLOAT && cls != XL_CLASS_COMPLEX))
        return xl_plan_unsupported(p, op, "its operand is no square matrix of floating point numbers");
    d->work = worked(a->dtype);
    d->n = a->dims[a->rank - 1];
    d->mats = 1;
    for (uint32_t i = 0; i + 2 < a->rank; i++)
        d->mats *= a->dims[i];
    if (d->work != a->dtype) {
        d->load[0] = d->load[1] = xl_ew_convert(p->a, a->dtype, d->work);
        d->store = xl_ew_convert(p->a, d->work, a->dtype);
    }
    return find(p, op, d->work, name, &d->fn);
}
/* The second result, of LAPACK's call, says for each matrix whether it could be factored. */
static xl_error *plan_cholesky(xl_planner *p, const xl_op *op, bool lower)
{
    factor *d = xl_new(p->a, factor, 1);
    d->lower = lower;
    if (op->nin != 1 || op->nout < 1 || op->nout > 2)
        return xl_plan_unsupported(p, op, "not the operands and results of this routine");
    xl_error *err = plan_factor(p, op, d, "potrf");
    int64_t n = d->mats;
    bool fits = err || (xl_type_eq(xl_in_type(p->f, op, 0), xl_out_type(p->f, op, 0)) &&
                        (op->nout == 1 || (xl_out_type(p->f, op, 1)->dtype == XL_I32 &&
                                           xl_type_count(xl_out_type(p->f, op, 1), &n) && n == d->mats)));
    if (!fits)
        return xl_plan_unsupported(p, op, "a result shape does not match this routine's");
    if (!err && xl_panels_pay(d->n, d->n) && !small_matrix(d))
        err = found(p, op, xl_panels_find(XL_PANELS_CHOLESKY, letter(d->work), &d->panels));
    if (err)
        return err;
    p->plan->flops += (double)d->mats * (double)d->n * (double)d->n * (double)d->n / 3;
    return xl_plan_step(p, op, run_cholesky, d, 0);
}
xl_error *xl_kernel_cholesky(xl_planner *p, const xl_op *op)
{
    return plan_cholesky(p, op, xl_op_int(op, XL_SLOT(CHOLESKY, lower)));
}

static xl_error *plan_solve(xl_planner *p, const xl_op *op, bool left, bool lower, bool unit, char trans)
{
    factor *d = xl_new(p->a, factor, 1);
    if (op->nin != 2 || op->nout != 1 || !xl_type_eq(xl_in_type(p->f, op, 1), xl_out_type(p->f, op, 0)))
        return xl_plan_unsupported(p, op, "not the operands and results of this routine");
    const xl_type *b = xl_in_type(p->f, op, 1);
    xl_error *err = plan_factor(p, op, d, "trsm");
    if (err)
        return err;
    int64_t count;
    if (b->rank < 2 || b->dtype != xl_in_type(p->f, op, 0)->dtype || b->dims[b->rank - 1] > INT32_MAX ||
        b->dims[b->rank - 2] > INT32_MAX || b->dims[b->rank - (left ? 2 : 1)] != d->n || !xl_type_count(b, &count) ||
        count != d->mats * b->dims[b->rank - 1] * b->dims[b->rank - 2])
        return xl_plan_unsupported(p, op, "its operands are no matrices of one type that fit each other");
    d->left = left;
    d->lower = lower;
    d->unit = unit;
    d->trans = trans;
    d->rows = b->dims[b->rank - 2], d->cols = b->dims[b->rank - 1];
    int64_t free_side =
        d->left ? d->cols
                : d->rows; /* right-hand sides do not know of each other: some to each thread, by the shapes */
    double flops = (double)d->n * (double)d->n * (double)free_side;
    d->pieces = flops < 4e6 || free_side < 64 ? 1 : free_side < 512 ? 2 : 8;
    p->plan->flops += (double)d->mats * flops;
    return xl_plan_step(p, op, run_solve, d, 0);
}
xl_error *xl_kernel_triangular_solve(xl_planner *p, const xl_op *op)
{
    int64_t tr = xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, transpose_a));
    return plan_solve(p, op, xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, left_side)),
                      xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, lower)),
                      xl_op_int(op, XL_SLOT(TRIANGULAR_SOLVE, unit_diagonal)),
                      tr == XL_TRANSPOSE_TRANSPOSE ? 'T'
                      : tr == XL_TRANSPOSE_ADJOINT ? 'C'
                                                   : 'N');
}

/* ---- ormqr: Q, or its adjoint, times a matrix, from either side, Q as reflectors below A's diagonal ---------------
 * */
typedef struct {
    xl_openblas_fn *fn;
    size_t elem;
    char side, trans;
    bool wide;
    int64_t mats, high, k, rows, cols;                     /* of A: high rows, and k reflectors; of the matrix */
} apply;
typedef struct { const xl_step *s; xl_frame *f; atomic_bool lacking; } applying;

static void apply_one(void *ctx, size_t begin, size_t end)
{
    applying *w = ctx;
    const apply *d = w->s->data;
    const xl_extent *in = xl_in_shape(w->s, 0);
    int64_t wide = in->dims[in->rank - 1], total = d->rows * d->cols;
    i32 m = (i32)d->rows, n = (i32)d->cols, k = (i32)d->k, lda = least((i32)d->high), ldc = least(m), info = 0;
    char *a = malloc((size_t)(d->high * wide + total) * d->elem + 64);
    for (size_t q = begin; a && q < end; q++) {
        char *c = a + (size_t)(d->high * wide) * d->elem;
        char *to = (char *)xl_out(w->s, w->f, 0) + q * (size_t)total * d->elem;
        const char *tau = (const char *)xl_in(w->s, w->f, 1) + q * (size_t)d->k * d->elem;
        turn(a, (const char *)xl_in(w->s, w->f, 0) + q * (size_t)(d->high * wide) * d->elem, d->high, wide, d->elem,
             w->f->pool);
        turn(c, (const char *)xl_in(w->s, w->f, 2) + q * (size_t)total * d->elem, d->rows, d->cols, d->elem,
             w->f->pool);
        double first[2] = { 0 };
        void *work = first;
        for (i32 lwork = -1, round = 0; round < 2 && work; round++) {
            ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))d->fn)(
                (P)(uintptr_t)&d->side, (P)(uintptr_t)&d->trans, &m, &n, &k, a, &lda, (P)(uintptr_t)tau, c, &ldc, work,
                &lwork, &info, 1, 1);
            if (round == 0) {
                lwork = asked(&(call){ .wide = d->wide }, first);
                work = malloc((size_t)lwork * d->elem + 64);
            }
        }
        if (!work)
            atomic_store(&w->lacking, true);
        free(work);
        turn(to, c, d->cols, d->rows, d->elem, w->f->pool);
    }
    if (!a)
        atomic_store(&w->lacking, true);
    free(a);
}
static xl_error *run_apply(const xl_step *s, xl_frame *f)
{
    const apply *d = s->data;
    applying w = { .s = s, .f = f };
    xl_pool_for(f->pool, d->rows && d->cols ? (size_t)d->mats : 0, 1, apply_one, &w);
    return atomic_load(&w.lacking) ? XL_ERR(EXHAUSTED, "no memory to multiply by reflectors") : NULL;
}
static xl_error *plan_apply(xl_planner *p, const xl_op *op)
{
    apply *d = xl_new(p->a, apply, 1);
    const xl_type *t[3] = { 0 };
    int64_t count[3] = { 0 };
    bool ok = op->nin == 3 && op->nout == 1;
    for (uint32_t i = 0; ok && i < 3; i++) {
        t[i] = xl_in_type(p->f, op, i);
        ok = xl_type_count(t[i], &count[i]) && t[i]->rank >= (i == 1 ? 1 : 2) && t[i]->dtype == t[0]->dtype;
        for (uint32_t k = 0; ok && k < t[i]->rank; k++)
            ok = t[i]->dims[k] <= INT32_MAX;
    }
    ok = ok && xl_type_eq(t[2], xl_out_type(p->f, op, 0)) && worked(t[0]->dtype) == t[0]->dtype;
    if (!ok)
        return xl_plan_unsupported(p, op, "not the operands and results of this routine");
    bool complex = xl_dtype_class(t[0]->dtype) == XL_CLASS_COMPLEX, left = option(op, "left", 0);
    *d = (apply){ .elem = xl_dtype_bytes(t[0]->dtype),
                  .side = left ? 'L' : 'R',
                  .trans = !option(op, "transpose", 0) ? 'N'
                           : complex                   ? 'C'
                                                       : 'T',
                  .wide = t[0]->dtype == XL_F64 || t[0]->dtype == XL_C128,
                  .mats = 1,
                  .high = t[0]->dims[t[0]->rank - 2],
                  .k = t[1]->dims[t[1]->rank - 1],
                  .rows = t[2]->dims[t[2]->rank - 2],
                  .cols = t[2]->dims[t[2]->rank - 1] };
    for (uint32_t i = 0; i + 2 < t[2]->rank; i++)
        d->mats *= t[2]->dims[i];
    int64_t wide = t[0]->dims[t[0]->rank - 1];
    if (count[0] != d->mats * d->high * wide || count[1] != d->mats * d->k || d->k > wide || d->k > d->high ||
        d->high != (left ? d->rows : d->cols))
        return xl_plan_unsupported(p, op, "its operands do not fit each other");
    xl_error *err = find(p, op, t[0]->dtype, complex ? "unmqr" : "ormqr", &d->fn);
    p->plan->flops += (double)d->mats * 4.0 * (double)d->rows * (double)d->cols * (double)d->k;
    return err ? err : xl_plan_step(p, op, run_apply, d, 0);
}

/* Sets *known to false, and adds nothing, where the name is none of ours. */
xl_error *xl_plan_lapack(xl_planner *p, const xl_op *op, xl_str name, bool *known)
{
    xl_str head = XL_STR("lapack_"), tail = XL_STR("_ffi");
    *known = true;
    for (size_t i = 0; i < sizeof xla / sizeof *xla; i++)
        if (xl_str_is(name, xla[i].name)) {
            /* Eigh's configuration is text: lower, sorted, rounds, tolerance ("1,1,100,0.000001"). Here they are always
             * sorted, and exact. */
            const xl_attr *cfg = XL_ATTR(op, CUSTOM_CALL, backend_config);
            return plan_call(p, op, &xla[i], cfg && cfg->kind == XL_AT_STR && cfg->str.n && cfg->str.p[0] == '0');
        }
    *known = false;
    if (name.n < head.n + 1 + tail.n || memcmp(name.p, head.p, head.n) ||
        memcmp(name.p + name.n - tail.n, tail.p, tail.n))
        return NULL;
    xl_str what = { name.p + head.n + 1, name.n - head.n - 1 - tail.n };
    if ((*known = xl_str_is(what, "gtsv")))
        return xl_plan_tridiagonal(p, op, false);
    if ((*known = xl_str_is(what, "potrf")))
        return plan_cholesky(p, op, option(op, "uplo", 'L') == 'L');
    if ((*known = xl_str_is(what, "trsm")))
        return plan_solve(p, op, option(op, "side", 'L') == 'L', option(op, "uplo", 'L') == 'L',
                          option(op, "diag", 'N') == 'U', option(op, "trans_x", 'N'));
    if ((*known = xl_str_is(what, "ormqr") || xl_str_is(what, "unmqr")))
        return plan_apply(p, op);
    for (size_t i = 0; i < sizeof routines / sizeof *routines; i++)
        if (xl_str_is(what, routines[i].name)) {
            *known = true;
            return plan_call(p, op, &routines[i], option(op, "uplo", 'L') == 'U');
        }
    return NULL;
}
