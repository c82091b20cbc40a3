/* LU, Cholesky and QR by panels (panels.h). */
#include "cpu/kernel/panels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LACKING = -1000 };
typedef int32_t i32;
/* Fortran passes everything by address, and the lengths of texts, here always 1, last. */
typedef void *P;
typedef size_t L;
static char left[] = "L", right[] = "R", up[] = "U", low[] = "L", plain[] = "N", turned[] = "T", adjoint[] = "C",
            unit[] = "U", divided[] = "N", forward[] = "F", columns[] = "C";
static double one64[2] = { 1, 0 }, minus64[2] = { -1, 0 };
static float one32[2] = { 1, 0 }, minus32[2] = { -1, 0 };

typedef struct {
    const xl_panels *p;
    i32 m, n, k, width;                                    /* k columns are factored, `width` at a time */
    char *a, *tau, *t;                                     /* t: the triangle of each panel's block of reflectors */
    i32 *pivots, at;                                       /* the panel whose update is under way */
    bool lower;
    const char *v;                                         /* of xl_panels_q: the reflectors */
    atomic_int info;
} job;

static i32 least(i32 a, i32 b) { return a < b ? a : b; }
static char *element(const job *j, i32 row, i32 col)
{
    return j->a + ((size_t)col * (size_t)j->m + (size_t)row) * j->p->elem;
}
static P one(const job *j) { return j->p->wide ? (P)one64 : (P)one32; }
static P minus(const job *j) { return j->p->wide ? (P)minus64 : (P)minus32; }
static void fail(job *j, i32 info)
{
    int none = 0;
    atomic_compare_exchange_strong(&j->info, &none, info);
}
static i32 first(const job *j, i32 panel) { return panel * j->width; }
static i32 count(const job *j, i32 panel) { return least(j->width, j->k - first(j, panel)); }
static i32 blocks(const job *j, i32 cols) { return (cols + j->width - 1) / j->width; }
/* The i-th block of the columns behind the panel under way: its first column, how many, and the panel that begins
 * there, or -1. */
typedef struct { i32 col, cols, panel; } block;
static block behind(const job *j, size_t i)
{
    i32 col = first(j, j->at) + count(j, j->at) + (i32)i * j->width;
    return (block){ col, least(j->width, j->n - col), i == 0 && col < j->k ? j->at + 1 : -1 };
}

static void trsm(const job *j, char *side, char *uplo, char *trans, char *diag, i32 m, i32 n, P a, P b)
{
    i32 ld = j->m;
    ((void (*)(P, P, P, P, P, P, P, P, P, P, P, L, L, L, L))j->p->trsm)(side, uplo, trans, diag, &m, &n, one(j), a, &ld,
                                                                        b, &ld, 1, 1, 1, 1);
}
/* c -= a b */
static void gemm(const job *j, char *ta, char *tb, i32 m, i32 n, i32 k, P a, P b, P c)
{
    i32 ld = j->m;
    if (m > 0 && n > 0)
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))j->p->gemm)(ta, tb, &m, &n, &k, minus(j), a, &ld, b,
                                                                            &ld, one(j), c, &ld, 1, 1);
}

/* ---- LU ---------------------------------------------------------------------------------------------------------- */
static void lu_panel(job *j, i32 p)
{
    i32 c = first(j, p), rows = j->m - c, cols = count(j, p), ld = j->m, info = 0;
    ((void (*)(P, P, P, P, P, P))j->p->panel)(&rows, &cols, element(j, c, c), &ld, j->pivots + c, &info);
    for (i32 i = c; i < c + cols; i++)
        j->pivots[i] += c;
    if (info > 0)
        fail(j, info + c);                                 /* the first of them: later panels come later */
}
static void lu_swap(const job *j, i32 col, i32 cols, i32 from, i32 to)
{
    i32 ld = j->m, k1 = from + 1, step = 1;
    if (cols > 0 && to > from)
        ((void (*)(P, P, P, P, P, P, P))j->p->swap)(&cols, element(j, 0, col), &ld, &k1, &to, j->pivots, &step);
}
static void lu_update(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    i32 c = first(j, j->at), k = count(j, j->at), below = c + k;
    for (size_t i = begin; i < end; i++) {
        block b = behind(j, i);
        lu_swap(j, b.col, b.cols, c, below);
        trsm(j, left, low, plain, unit, k, b.cols, element(j, c, c), element(j, c, b.col));
        gemm(j, plain, plain, j->m - below, b.cols, k, element(j, below, c), element(j, c, b.col),
             element(j, below, b.col));
        if (b.panel > 0)
            lu_panel(j, b.panel);
    }
}
/* Swaps that came after a panel was done. */
static void lu_finish(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    for (size_t i = begin; i < end; i++)
        lu_swap(j, first(j, (i32)i), count(j, (i32)i), first(j, (i32)i) + count(j, (i32)i), j->k);
}

/* ---- Cholesky ---------------------------------------------------------------------------------------------------- */
static void cholesky_panel(job *j, i32 p)
{
    i32 c = first(j, p), cols = count(j, p), below = c + cols, rest = j->n - below, ld = j->m, info = 0;
    ((void (*)(P, P, P, P, P, L))j->p->panel)(j->lower ? low : up, &cols, element(j, c, c), &ld, &info, 1);
    if (info)
        fail(j, info + c);
    else if (rest && j->lower)
        trsm(j, right, low, adjoint, divided, rest, cols, element(j, c, c), element(j, below, c));
    else if (rest)
        trsm(j, left, up, adjoint, divided, cols, rest, element(j, c, c), element(j, c, below));
}
static void cholesky_update(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    i32 c = first(j, j->at), k = count(j, j->at);
    for (size_t i = begin; i < end && !atomic_load(&j->info); i++) {
        block b = behind(j, i);
        i32 at = b.col, rest = j->n - at;
        if (j->lower)
            gemm(j, plain, adjoint, rest, b.cols, k, element(j, at, c), element(j, at, c), element(j, at, at));
        else
            gemm(j, adjoint, plain, b.cols, rest, k, element(j, c, at), element(j, c, at), element(j, at, at));
        if (b.panel > 0)
            cholesky_panel(j, b.panel);
    }
}

/* ---- QR ---------------------------------------------------------------------------------------------------------- */
static char *triangle(const job *j, i32 p)
{
    return j->t + (size_t)p * (size_t)j->width * (size_t)j->width * j->p->elem;
}
static void qr_triangle(job *j, i32 p, const char *v)
{
    i32 c = first(j, p), rows = j->m - c, cols = count(j, p), ld = j->m, ldt = j->width;
    ((void (*)(P, P, P, P, P, P, P, P, P, L, L))j->p->larft)(
        forward, columns, &rows, &cols, (P)(uintptr_t)(v + ((size_t)c * (size_t)ld + (size_t)c) * j->p->elem), &ld,
        j->tau + (size_t)c * j->p->elem, triangle(j, p), &ldt, 1, 1);
}
static void qr_panel(job *j, i32 p)
{
    i32 c = first(j, p), rows = j->m - c, cols = count(j, p), ld = j->m, info = 0, lwork = j->width * j->width;
    void *work = malloc((size_t)lwork * j->p->elem);
    if (!work) {
        fail(j, LACKING);
        return;
    }
    ((void (*)(P, P, P, P, P, P, P, P))j->p->panel)(&rows, &cols, element(j, c, c), &ld,
                                                    j->tau + (size_t)c * j->p->elem, work, &lwork, &info);
    free(work);
    qr_triangle(j, p, j->a);
}
/* Reflects `cols` columns of a from `col` on by panel p of v. */
static void reflect(job *j, i32 p, char *trans, const char *v, i32 col, i32 cols, void *work)
{
    i32 c = first(j, p), rows = j->m - c, k = count(j, p), ld = j->m, ldt = j->width, ldw = ldt;
    ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L, L, L))j->p->larfb)(
        left, trans, forward, columns, &rows, &cols, &k,
        (P)(uintptr_t)(v + ((size_t)c * (size_t)ld + (size_t)c) * j->p->elem), &ld, triangle(j, p), &ldt,
        element(j, c, col), &ld, work, &ldw, 1, 1, 1, 1);
}
static void qr_update(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    void *work = malloc((size_t)j->width * (size_t)j->width * j->p->elem);
    if (!work)
        fail(j, LACKING);
    for (size_t i = begin; i < end && !atomic_load(&j->info); i++) {
        block b = behind(j, i);
        reflect(j, j->at, j->p->complex ? adjoint : turned, j->a, b.col, b.cols, work);
        if (b.panel > 0)
            qr_panel(j, b.panel);
    }
    free(work);
}
static void q_triangles(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    for (size_t i = begin; i < end; i++)
        qr_triangle(j, (i32)i, j->v);
}
/* A block of columns of the identity, reflected by its own panel and all before it; later ones leave it as it is. The
 * last blocks take longest and come first. */
static void q_block(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    i32 n = blocks(j, j->n), panels = blocks(j, j->k);
    void *work = malloc((size_t)j->width * (size_t)j->width * j->p->elem);
    if (!work)
        fail(j, LACKING);
    for (size_t i = begin; i < end && work; i++) {
        i32 b = n - 1 - (i32)i, col = first(j, b), cols = least(j->width, j->n - col);
        memset(element(j, 0, col), 0, (size_t)cols * (size_t)j->m * j->p->elem);
        for (i32 c = col; c < col + cols; c++)
            memcpy(element(j, c, c), one(j), j->p->elem);
        for (i32 p = least(b, panels - 1); p >= 0; p--)
            reflect(j, p, plain, j->v, col, cols, work);
    }
    free(work);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */
bool xl_panels_pay(int64_t m, int64_t n)
{
    return (m < n ? m : n) >= 128;
}
static job start(const xl_panels *p, i32 m, i32 n, i32 k)
{
    return (job){ .p = p, .m = m, .n = n, .k = k, .width = 64 };
}
static void run(job *j, xl_pool *pool, void (*panel)(job *, i32), xl_pool_fn *update)
{
    panel(j, 0);
    for (j->at = 0; j->at < blocks(j, j->k); j->at++)
        xl_pool_for(pool, (size_t)blocks(j, j->n - first(j, j->at) - count(j, j->at)), 1, update, j);
}

int32_t xl_panels_lu(const xl_panels *p, xl_pool *pool, int32_t m, int32_t n, void *a, int32_t *pivots)
{
    job j = start(p, m, n, least(m, n));
    j.a = a, j.pivots = pivots;
    run(&j, pool, lu_panel, lu_update);
    xl_pool_for(pool, (size_t)blocks(&j, j.k), 1, lu_finish, &j);
    return atomic_load(&j.info);
}
int32_t xl_panels_cholesky(const xl_panels *p, xl_pool *pool, bool lower, int32_t n, void *a)
{
    job j = start(p, n, n, n);
    j.a = a, j.lower = lower;
    run(&j, pool, cholesky_panel, cholesky_update);
    return atomic_load(&j.info);
}
int32_t xl_panels_qr(const xl_panels *p, xl_pool *pool, int32_t m, int32_t n, void *a, void *tau)
{
    job j = start(p, m, n, least(m, n));
    j.a = a, j.tau = tau;
    j.t = malloc((size_t)blocks(&j, j.k) * (size_t)j.width * (size_t)j.width * p->elem);
    if (!j.t)
        return LACKING;
    run(&j, pool, qr_panel, qr_update);
    free(j.t);
    return atomic_load(&j.info);
}
int32_t xl_panels_q(const xl_panels *p, xl_pool *pool, int32_t m, int32_t n, int32_t k, const void *v, const void *tau,
                    void *q)
{
    job j = start(p, m, n, k);
    j.a = q, j.v = v, j.tau = (char *)(uintptr_t)tau;
    j.t = malloc((size_t)blocks(&j, k) * (size_t)j.width * (size_t)j.width * p->elem + 1);
    if (!j.t)
        return LACKING;
    xl_pool_for(pool, (size_t)blocks(&j, k), 1, q_triangles, &j);
    xl_pool_for(pool, (size_t)blocks(&j, n), 1, q_block, &j);
    free(j.t);
    return atomic_load(&j.info);
}

xl_error *xl_panels_find(xl_panels_kind kind, char type, xl_panels *p)
{
    xl_error *err = NULL;
    *p = (xl_panels){ .complex = type == 'c' || type == 'z', .wide = type == 'd' || type == 'z' };
    p->elem = (p->wide ? 8u : 4u) * (p->complex ? 2u : 1u);
    if (kind == XL_PANELS_QR) {
        XL_DO(xl_openblas_find(type, "geqrf", &p->panel));
        XL_DO(xl_openblas_find(type, "larft", &p->larft));
        XL_DO(xl_openblas_find(type, "larfb", &p->larfb));
        goto out;
    }
    XL_DO(xl_openblas_find(type, kind == XL_PANELS_LU ? "getrf" : "potrf", &p->panel));
    XL_DO(xl_openblas_find(type, "gemm", &p->gemm));
    XL_DO(xl_openblas_find(type, "trsm", &p->trsm));
    if (kind == XL_PANELS_LU)
        XL_DO(xl_openblas_find(type, "laswp", &p->swap));
out:
    return err;
}
