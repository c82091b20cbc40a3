/* bench/gemm.c: our GEMM beside oneDNN and OpenBLAS in one run, as ratios, with the machine's peak beside them. The
 * libraries are opened at run time (libdnnl.so.2 or .3, libopenblas.so.0, or what XLANE_BENCH_BLAS names: PyTorch's
 * libtorch_cpu.so has MKL's); one that is missing is left out. `gemm quick` leaves out the largest, `gemm TEXT` all
 * whose name lacks the text. Times are the best of several rounds in which the candidates take turns, so that a busy
 * moment hits all alike. XLANE_CPU_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 measures one core, in CPU time.
 * */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/kernel/dtype.h"
#include "cpu/kernel/gemm.h"
#include "cpu/kernel/gemm_set.h"

typedef void cblas_sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                            const float *b, int ldb, float beta, float *c, int ldc);
typedef void cblas_dgemm_fn(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda,
                            const double *b, int ldb, double beta, double *c, int ldc);
typedef int dnnl_sgemm_fn(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

typedef void cblas_sgemm64_fn(int order, int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                              int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

typedef void fortran_sgemm_fn(const char *ta, const char *tb, const int *m, const int *n, const int *k,
                              const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
                              const float *beta, float *c, const int *ldc);

static fortran_sgemm_fn *fortran;
static cblas_sgemm_fn *sgemm;
static cblas_sgemm64_fn *sgemm64;
static cblas_dgemm_fn *dgemm;
static dnnl_sgemm_fn *dnnl;
static xl_pool *pool;

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void symbol(const char *const *libs, const char *name, void *fn)
{
    for (; *libs; libs++) {
        void *h = (*libs)[0] ? dlopen(*libs, RTLD_NOW | RTLD_LOCAL) : NULL;
        void *s = h ? dlsym(h, name) : NULL;
        if (s) {
            memcpy(fn, &s, sizeof s);
            return;
        }
    }
}

typedef struct { size_t m, k, n, batch; bool ta, tb; xl_gemm_type t; } shape;
typedef struct { void *a, *b, *c; } data;
enum { OURS, DNNL, BLAS, KINDS };

static void call(int kind, const shape *s, const data *d)
{
    size_t m = s->m, n = s->n, k = s->k, lda = s->ta ? m : k, ldb = s->tb ? k : n;
    if (kind == OURS) {
        xl_gemm g = { .m = m,
                      .n = n,
                      .k = k,
                      .a_type = s->t,
                      .b_type = s->t,
                      .c_type = s->t,
                      .a = d->a,
                      .b = d->b,
                      .c = d->c,
                      .a_row = s->ta ? 1 : (ptrdiff_t)lda,
                      .a_col = s->ta ? (ptrdiff_t)lda : 1,
                      .b_row = s->tb ? 1 : (ptrdiff_t)ldb,
                      .b_col = s->tb ? (ptrdiff_t)ldb : 1,
                      .c_row = (ptrdiff_t)n,
                      .nbatch = 1,
                      .batch = { s->batch },
                      .a_batch = { (ptrdiff_t)(m * k) },
                      .b_batch = { (ptrdiff_t)(k * n) },
                      .c_batch = { (ptrdiff_t)(m * n) } };
        xl_gemm_run(pool, &g);
        return;
    }
    for (size_t i = 0; i < s->batch; i++)
        if (s->t == XL_GEMM_F64)
            dgemm(101, s->ta ? 112 : 111, s->tb ? 112 : 111, (int)m, (int)n, (int)k, 1, (double *)d->a + i * m * k,
                  (int)lda, (double *)d->b + i * k * n, (int)ldb, 0, (double *)d->c + i * m * n, (int)n);
        else if (kind == DNNL)
            dnnl(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', (int64_t)m, (int64_t)n, (int64_t)k, 1, (float *)d->a + i * m * k,
                 (int64_t)lda, (float *)d->b + i * k * n, (int64_t)ldb, 0, (float *)d->c + i * m * n, (int64_t)n);
        else if (fortran)                         /* by columns: C transposed is B transposed times A transposed */
            fortran(s->tb ? "T" : "N", s->ta ? "T" : "N", &(int){ (int)n }, &(int){ (int)m }, &(int){ (int)k },
                    &(float){ 1 }, (float *)d->b + i * k * n, &(int){ (int)ldb }, (float *)d->a + i * m * k,
                    &(int){ (int)lda }, &(float){ 0 }, (float *)d->c + i * m * n, &(int){ (int)n });
        else if (sgemm64)
            sgemm64(101, s->ta ? 112 : 111, s->tb ? 112 : 111, (int64_t)m, (int64_t)n, (int64_t)k, 1,
                    (float *)d->a + i * m * k, (int64_t)lda, (float *)d->b + i * k * n, (int64_t)ldb, 0,
                    (float *)d->c + i * m * n, (int64_t)n);
        else
            sgemm(101, s->ta ? 112 : 111, s->tb ? 112 : 111, (int)m, (int)n, (int)k, 1, (float *)d->a + i * m * k,
                  (int)lda, (float *)d->b + i * k * n, (int)ldb, 0, (float *)d->c + i * m * n, (int)n);
}

static void *aligned(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); } /* as a device's buffers are */

static double one_time(int kind, const shape *s, const data *d, int reps)
{
    double t = now();
    for (int i = 0; i < reps; i++)
        call(kind, s, d);
    return (now() - t) / reps;
}

/* What the FMA units give when nothing else is in the way: the f32 tile over and over on panels in L1. */
static void peak_chunk(void *ctx, size_t begin, size_t end)
{
    const xl_gemm_kernel *kn = ctx;
    _Alignas(64) static float x[32 * 128], y[48 * 128];
    _Alignas(64) float c[32 * 48];
    if (begin == 0)                              /* unwritten, all their pages would be one */
        memset(x, 1, sizeof x), memset(y, 1, sizeof y);
    for (size_t i = begin; i < end; i++)
        for (int r = 0; r < 100; r++)
            kn->tile(128, x, y, c, kn->nr, false);
}

int main(int argc, char **argv)
{
    setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0); /* or its threads go on turning while the others are measured */
    const char *blas = getenv("XLANE_BENCH_BLAS");
    const char *const blas_libs[] = { blas ? blas : "", "libopenblas.so.0", NULL }, *const dnnl_libs[] = {
        "libdnnl.so.3", "libdnnl.so.2", NULL
    };
    bool quick = argc > 1 && !strcmp(argv[1], "quick");
    symbol(blas_libs, "scipy_cblas_sgemm64_", &sgemm64);     /* numpy's own build of OpenBLAS spells its names so */
    symbol(blas_libs, "cblas_sgemm", &sgemm);
    symbol(blas_libs, "cblas_dgemm", &dgemm);
    if (!sgemm && !sgemm64)
        symbol(blas_libs, "sgemm_", &fortran);
    symbol(dnnl_libs, "dnnl_sgemm", &dnnl);
    pool = xl_pool_new(0);
    if (xl_pool_size(pool) == 1) /* alone, the thread's own time: right on a busy machine too */
        clock_used = CLOCK_THREAD_CPUTIME_ID;
    const xl_gemm_kernel *const *kn = xl_gemm_kernels;
    while (strcmp((*kn)->name, xl_gemm_kernel_name(XL_GEMM_F32, XL_GEMM_F32)))
        kn++;
    double peak = 0, work = 2.0 * (*kn)->mr * (*kn)->nr * 256 * 50 * 64 * (double)xl_pool_size(pool);
    for (int i = 0; i < 20; i++) {
        double t = now();
        xl_pool_for(pool, 64 * xl_pool_size(pool), 1, peak_chunk, (void *)*kn);
        double e = work / (now() - t) * 1e-9;
        peak = e > peak ? e : peak;
    }
    printf("%zu threads, %s, %s; from L1, f32: %.0f GFLOP/s\n", xl_pool_size(pool),
           xl_gemm_kernel_name(XL_GEMM_F32, XL_GEMM_F32), xl_gemm_kernel_name(XL_GEMM_BF16, XL_GEMM_BF16), peak);
    static const shape shapes[] = {
        { 64, 64, 64, 1, 0, 0, XL_GEMM_F32 },       { 128, 128, 128, 1, 0, 0, XL_GEMM_F32 },
        { 256, 256, 256, 1, 0, 0, XL_GEMM_F32 },    { 512, 512, 512, 1, 0, 0, XL_GEMM_F32 },
        { 1024, 1024, 1024, 1, 0, 0, XL_GEMM_F32 }, { 2048, 2048, 2048, 1, 0, 0, XL_GEMM_F32 },
        { 1024, 256, 1024, 1, 0, 0, XL_GEMM_F32 },  { 1024, 256, 1024, 1, 0, 1, XL_GEMM_F32 },
        { 1024, 256, 768, 1, 0, 0, XL_GEMM_F32 },   { 1024, 1024, 256, 1, 0, 0, XL_GEMM_F32 },
        { 1024, 1024, 256, 1, 0, 1, XL_GEMM_F32 },  { 256, 1024, 1024, 1, 1, 0, XL_GEMM_F32 },
        { 128, 32, 128, 64, 0, 0, XL_GEMM_F32 },    { 128, 32, 128, 64, 0, 1, XL_GEMM_F32 },
        { 128, 128, 32, 64, 0, 0, XL_GEMM_F32 },    { 128, 128, 32, 64, 1, 0, XL_GEMM_F32 },
        { 16, 16, 16, 256, 0, 0, XL_GEMM_F32 },     { 1, 1024, 1024, 1, 0, 0, XL_GEMM_F32 },
        { 1, 1024, 1024, 1, 0, 1, XL_GEMM_F32 },    { 4, 1024, 1024, 1, 0, 0, XL_GEMM_F32 },
        { 8, 1024, 1024, 1, 0, 0, XL_GEMM_F32 },    { 16, 1024, 1024, 1, 0, 0, XL_GEMM_F32 },
        { 1024, 1024, 1, 1, 0, 0, XL_GEMM_F32 },    { 1024, 1024, 8, 1, 0, 0, XL_GEMM_F32 },
        { 256, 256, 256, 1, 0, 0, XL_GEMM_F64 },    { 1024, 1024, 1024, 1, 0, 0, XL_GEMM_F64 },
        { 256, 256, 256, 1, 0, 0, XL_GEMM_BF16 },   { 1024, 1024, 1024, 1, 0, 0, XL_GEMM_BF16 },
        { 1024, 256, 1024, 1, 0, 0, XL_GEMM_BF16 }, { 1024, 1024, 256, 1, 0, 1, XL_GEMM_BF16 },
        { 256, 1024, 1024, 1, 1, 0, XL_GEMM_BF16 }, { 128, 32, 128, 64, 0, 1, XL_GEMM_BF16 },
        { 1024, 256, 1024, 1, 0, 0, XL_GEMM_F16 },
    };
    printf("%-24s %9s %7s | %9s %9s | %6s\n", "m x k x n", "GFLOP/s", "of peak", "oneDNN", "BLAS", "ratio");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        if (quick && s->m * s->k * s->n > 1u << 29)
            continue;
        char name[64];
        static const char *const words[] = { "f32", "f64", "bf16", "f16" };
        snprintf(name, sizeof name, "%s %zux%zu%sx%zu%s", words[s->t], s->m, s->k, s->ta ? "T" : "", s->n,
                 s->tb ? "T" : "");
        if (s->batch > 1)
            snprintf(name + strlen(name), sizeof name - strlen(name), " *%zu", s->batch);
        if (argc > 1 && !quick && !strstr(name, argv[1]))
            continue;
        size_t es = s->t == XL_GEMM_F64   ? 8
                    : s->t == XL_GEMM_F32 ? 4
                                          : 2,
               na = s->m * s->k * s->batch, nb = s->k * s->n * s->batch, nc = s->m * s->n * s->batch;
        data d = { aligned(na * es), aligned(nb * es), aligned(nc * es) };
        for (size_t j = 0; j < na + nb; j++) {
            float v = (float)((j * 7919) % 201) / 100 - 1;
            void *p = j < na ? d.a : d.b;
            size_t at = j < na ? j : j - na;
            if (es == 8) ((double *)p)[at] = v;
            else if (es == 4) ((float *)p)[at] = v;
            else ((uint16_t *)p)[at] = s->t == XL_GEMM_BF16 ? xl_bf16_store(v) : xl_f16_store(v);
        }
        double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->batch,
               t[KINDS] = { 1e9, 1e9, 1e9 };
        int reps = (int)(3e8 / flops) + 1, rounds = 12;
        for (int r = 0; r < rounds; r++)
            for (int kind = 0; kind < KINDS; kind++) {
                if ((kind == DNNL && (!dnnl || s->t != XL_GEMM_F32)) ||
                    (kind == BLAS &&
                     !(s->t == XL_GEMM_F32 ? sgemm || sgemm64 || fortran : s->t == XL_GEMM_F64 && dgemm)))
                    continue;
                if (r > 2 && t[kind] > 4 * t[OURS])         /* a slow one need not be measured well */
                    continue;
                double e = one_time(kind, s, &d, reps);
                t[kind] = e < t[kind] ? e : t[kind];
            }
        char cell[KINDS][16];
        for (int kind = 0; kind < KINDS; kind++)
            snprintf(cell[kind], sizeof *cell, t[kind] < 1e8 ? "%.1f" : "-", flops / t[kind] * 1e-9);
        double other = t[DNNL] < t[BLAS] ? t[DNNL] : t[BLAS];
        printf("%-24s %9s %6.0f%% | %9s %9s | ", name, cell[OURS], 100 * flops / t[OURS] * 1e-9 / peak, cell[DNNL],
               cell[BLAS]);
        printf(other < 1e8 ? "%5.2fx\n" : "     -\n", other / t[OURS]);
        fflush(stdout);
        free(d.a);
        free(d.b);
        free(d.c);
    }
    xl_pool_free(pool);
    return 0;
}
