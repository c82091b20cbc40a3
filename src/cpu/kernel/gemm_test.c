#include "cpu/kernel/gemm.h"

#include <math.h>
#include <stdlib.h>

#include "base/test.h"
#include "cpu/kernel/dtype.h"
#include "cpu/run/feature.h"

static uint32_t seed = 1;

static double draw(void) /* a multiple of 1/8 in [-4, 4): exact in every type here but the integers */
{
    seed = seed * 1664525 + 1013904223;
    return (double)(int)(seed >> 26) / 8 - 4;
}

static const size_t size_of[] = { 4, 8, 2, 2, 1, 1, 4 };

static void put(void *p, size_t i, xl_gemm_type t, double v)
{
    switch (t) {
    case XL_GEMM_F32: ((float *)p)[i] = (float)v; break;
    case XL_GEMM_F64: ((double *)p)[i] = v; break;
    case XL_GEMM_BF16: ((uint16_t *)p)[i] = xl_bf16_store((float)v); break;
    case XL_GEMM_F16: ((uint16_t *)p)[i] = xl_f16_store((float)v); break;
    case XL_GEMM_I8: ((int8_t *)p)[i] = (int8_t)(v * 8); break;
    case XL_GEMM_U8: ((uint8_t *)p)[i] = (uint8_t)(v * 8 + 32); break;
    default: ((int32_t *)p)[i] = (int32_t)(v * 80000);
    }
}

static double get(const void *p, size_t i, xl_gemm_type t)
{
    switch (t) {
    case XL_GEMM_F32: return ((const float *)p)[i];
    case XL_GEMM_F64: return ((const double *)p)[i];
    case XL_GEMM_BF16: return xl_bf16_load(((const uint16_t *)p)[i]);
    case XL_GEMM_F16: return xl_f16_load(((const uint16_t *)p)[i]);
    case XL_GEMM_I8: return ((const int8_t *)p)[i];
    case XL_GEMM_U8: return ((const uint8_t *)p)[i];
    default: return ((const int32_t *)p)[i];
    }
}

typedef struct { xl_gemm_type t; size_t m, n, batch; unsigned char *seen; } cover;

static void epilogue(void *ctx, void *tile, ptrdiff_t ld, size_t batch, size_t i0, size_t j0, size_t m, size_t n)
{
    cover *c = ctx;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            size_t at = (size_t)((ptrdiff_t)i * ld + (ptrdiff_t)j);
            c->seen[(batch * c->m + i0 + i) * c->n + j0 + j]++;
            if (c->t == XL_GEMM_F64)
                ((double *)tile)[at] += (double)(j0 + j);
            else if (c->t == XL_GEMM_I32)
                ((uint32_t *)tile)[at] += (uint32_t)(j0 + j);
            else
                ((float *)tile)[at] += (float)(j0 + j);
        }
}

typedef struct { xl_gemm_type a, b, c; } types;

static void one(xl_pool *pool, xl_pool *other, types t, size_t m, size_t n, size_t k, int flavour, size_t batch)
{
    bool ta = flavour & 1, tb = flavour & 2, accumulate = flavour & 4, odd = flavour & 8;
    ptrdiff_t gap = odd ? 3 : 0, inner = (flavour & 16) ? 2 : 1;
    size_t ar = ta ? k : m, ac = ta ? m : k, br = tb ? n : k, bc = tb ? k : n;
    ptrdiff_t lda = (ptrdiff_t)ac * inner + gap, ldb = (ptrdiff_t)bc * inner + gap, ldc = (ptrdiff_t)n + gap;
    size_t na = ar * (size_t)lda * batch + 1, nb = br * (size_t)ldb * batch + 1, nc = m * (size_t)ldc * batch + 1;
    char *a = calloc(na, size_of[t.a]), *b = calloc(nb, size_of[t.b]), *c = calloc(nc, size_of[t.c]),
         *c2 = calloc(nc, size_of[t.c]);
    unsigned char *seen = calloc(m * n * batch + 1, 1);
    for (size_t i = 0; i < na; i++) put(a, i, t.a, draw());
    for (size_t i = 0; i < nb; i++) put(b, i, t.b, draw());
    for (size_t i = 0; i < nc; i++) put(c, i, t.c, draw());
    memcpy(c2, c, nc * size_of[t.c]);
    char *c0 = malloc(nc * size_of[t.c]);
    memcpy(c0, c, nc * size_of[t.c]);
    bool narrow = t.c == XL_GEMM_BF16 || t.c == XL_GEMM_F16;
    cover cov = { narrow ? XL_GEMM_F32 : t.c, m, n, batch, seen };
    xl_gemm g = { .m = m,
                  .n = n,
                  .k = k,
                  .a_type = t.a,
                  .b_type = t.b,
                  .c_type = t.c,
                  .a = a,
                  .b = b,
                  .c = c,
                  .a_row = ta ? inner : lda,
                  .a_col = ta ? lda : inner,
                  .b_row = tb ? inner : ldb,
                  .b_col = tb ? ldb : inner,
                  .c_row = ldc,
                  .nbatch = 1,
                  .batch = { batch },
                  .a_batch = { (ptrdiff_t)ar * lda },
                  .b_batch = { (ptrdiff_t)br * ldb },
                  .c_batch = { (ptrdiff_t)m * ldc },
                  .accumulate = accumulate,
                  .parts = odd ? 6 : 0,
                  .epilogue = epilogue,
                  .ctx = &cov };
    CHECK(xl_gemm_run(pool, &g));
    for (size_t i = 0; i < m * n * batch; i++)
        CHECK_INT(seen[i], 1);
    g.c = c2;
    CHECK(xl_gemm_run(other, &g));
    CHECK(!memcmp(c, c2, nc * size_of[t.c]));
    double eps = t.c == XL_GEMM_BF16 ? 0x1p-8 : t.c == XL_GEMM_F16 ? 0x1p-11 : t.c == XL_GEMM_F32 ? 0x1p-22 : 0;
    double *va = malloc((m * k + 1) * sizeof *va), *vb = malloc((n * k + 1) * sizeof *vb); /* of a batch, k innermost */
    for (size_t x = 0; x < batch; x++) {
        for (size_t i = 0; i < m; i++)
            for (size_t p = 0; p < k; p++)
                va[i * k + p] =
                    get(a, x * ar * (size_t)lda + (size_t)((ptrdiff_t)i * g.a_row + (ptrdiff_t)p * g.a_col), t.a);
        for (size_t j = 0; j < n; j++)
            for (size_t p = 0; p < k; p++)
                vb[j * k + p] =
                    get(b, x * br * (size_t)ldb + (size_t)((ptrdiff_t)p * g.b_row + (ptrdiff_t)j * g.b_col), t.b);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < (size_t)ldc; j++) {
                size_t at = (x * m + i) * (size_t)ldc + j;
                if (j >= n) {                           /* the gap between rows is nobody's */
                    CHECK(get(c, at, t.c) == get(c0, at, t.c));
                    continue;
                }
                double want = accumulate ? get(c0, at, t.c) : 0, size = fabs(want);
                for (size_t p = 0; p < k; p++) {
                    double f = va[i * k + p] * vb[j * k + p];
                    want += f;
                    size += fabs(f);
                }
                want += (double)j;
                if (t.c == XL_GEMM_I32)
                    want = (double)(int32_t)(uint32_t)(uint64_t)(int64_t)want;
                double got = get(c, at, t.c);
                if (!(fabs(got - want) <= eps * (narrow ? fabs(want) : size)))
                    FAIL("types %d %d %d, %zux%zux%zu flavour %d, batch %zu: C[%zu,%zu] is %g, not %g", t.a, t.b, t.c,
                         m, n, k, flavour, x, i, j, got, want);
            }
    }
    free(va); free(vb);
    free(a); free(b); free(c); free(c2); free(c0); free(seen);
}

static void all_shapes(types t)
{
    static const size_t shapes[][3] = { { 1, 1, 1 },      { 1, 70, 33 },   { 1, 1500, 21 }, { 70, 1, 65 },
                                        { 3, 300, 17 },   { 300, 2, 40 },  { 4, 9, 130 },   { 5, 5, 5 },
                                        { 8, 12, 4 },     { 33, 29, 7 },   { 64, 64, 64 },  { 65, 37, 131 },
                                        { 130, 258, 19 }, { 7, 40, 1100 }, { 2, 3, 0 },     { 0, 4, 4 },
                                        { 140, 150, 70 } };
    xl_pool *p = xl_pool_new(3);
    int step = xl_test_amount(1, 5, 31);        /* all or a few flavours, other ones for each shape */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int flavour = (int)i % step; flavour < 32; flavour += step)
            one(p, NULL, t, shapes[i][0], shapes[i][1], shapes[i][2], flavour,
                flavour % 3 == 2 ? 3
                : flavour == 7   ? 0
                                 : 1);
    xl_pool_free(p);
}

static void all_features(types t)
{
    uint32_t have = xl_cpu_features();
    const char *last = "";
    for (int drop = -1; drop < 31; drop++) { /* everything, then less and less, down to the generic kernels */
        xl_cpu_features_mask(drop < 0 ? ~0u : have & ((1u << (30 - drop)) - 1));
        if (strcmp(last, xl_gemm_kernel_name(t.a, t.b)) == 0)
            continue;
        last = xl_gemm_kernel_name(t.a, t.b);
        all_shapes(t);
    }
    xl_cpu_features_mask(~0u);
}

TEST(f32) { all_features((types){ XL_GEMM_F32, XL_GEMM_F32, XL_GEMM_F32 }); }
TEST(f64) { all_features((types){ XL_GEMM_F64, XL_GEMM_F64, XL_GEMM_F64 }); }
TEST(bf16) { all_features((types){ XL_GEMM_BF16, XL_GEMM_BF16, XL_GEMM_F32 }); }
TEST(bf16_to_bf16) { all_features((types){ XL_GEMM_BF16, XL_GEMM_BF16, XL_GEMM_BF16 }); }
TEST(f16_to_f16) { all_features((types){ XL_GEMM_F16, XL_GEMM_F16, XL_GEMM_F16 }); }
TEST(mixed) { all_features((types){ XL_GEMM_F32, XL_GEMM_BF16, XL_GEMM_F32 }); }
TEST(i8) { all_features((types){ XL_GEMM_I8, XL_GEMM_I8, XL_GEMM_I32 }); }
TEST(u8) { all_features((types){ XL_GEMM_U8, XL_GEMM_I8, XL_GEMM_I32 }); }
TEST(i32) { all_features((types){ XL_GEMM_I32, XL_GEMM_I32, XL_GEMM_I32 }); }

TEST(large_blocks)                              /* more than one super-block, more than one block of k */
{
    xl_pool *p = xl_pool_new(2);
    one(p, NULL, (types){ XL_GEMM_F32, XL_GEMM_F32, XL_GEMM_F32 }, 2060, 20, 9, 0, 1);
    one(p, NULL, (types){ XL_GEMM_BF16, XL_GEMM_BF16, XL_GEMM_BF16 }, 12, 2100, 9, 4, 1);
    one(p, NULL, (types){ XL_GEMM_F32, XL_GEMM_F32, XL_GEMM_BF16 }, 20, 30, 2500, 4, 1);
    xl_pool_free(p);
}

TEST(many_tiles)                                /* more than a thread packs at a time, in both directions */
{
    xl_pool *p = xl_pool_new(5);
    for (int flavour = 0; flavour < 4; flavour += xl_test_amount(1, 1, 3))
        one(p, NULL, (types){ XL_GEMM_F32, XL_GEMM_F32, XL_GEMM_F32 }, 405, 743, 21, flavour, 1);
    one(p, NULL, (types){ XL_GEMM_F32, XL_GEMM_F32, XL_GEMM_F32 }, 131, 250, 530, 12, 1);
    for (int flavour = 0; flavour < 8; flavour += xl_test_amount(1, 1, 8)) /* two blocks of k of several sums */
        one(p, NULL, (types){ XL_GEMM_F32, XL_GEMM_F32, XL_GEMM_F32 }, 277, 150, 1100, flavour, 1);
    /* one thread, several pieces of A for the same panels of B */
    for (int flavour = xl_test_amount(0, 0, 3); flavour < 4; flavour += 3)
        one(NULL, p, (types){ XL_GEMM_F32, XL_GEMM_F32, XL_GEMM_F32 }, 531, 330, 270, flavour, 1);
    xl_pool_free(p);
}

/* Of several NaNs a sum keeps one; which one depends on no number of threads either. */
TEST(nans_are_the_same)
{
    enum { M = 545, N = 391, K = 530, POOLS = 4 };
    static float a[M * K], b[K * N], c[POOLS][M * N];
    xl_pool *p[POOLS] = { NULL, xl_pool_new(2), xl_pool_new(5), xl_pool_new(16) };
    for (int turned = 0; turned < 4; turned += xl_test_amount(1, 1, 3)) {
        for (size_t i = 0; i < M * K + K * N; i++) {
            float *to = i < M * K ? &a[i] : &b[i - M * K];
            uint32_t odd = 0x7fc00000u | (uint32_t)i;
            *to = (float)draw();
            if (seed % 61 == 0)
                memcpy(to, &odd, sizeof odd);
            else if (seed % 67 == 0)
                *to = seed % 2 ? INFINITY : -INFINITY;
        }
        /* emulated, without and with one of the pools, another one for each turn */
        for (int t = 0; t < POOLS; t += xl_test_amount(1, 1, turned ? 3 : 2)) {
            xl_gemm g = { .m = M, .n = N, .k = K, .a = a, .b = b, .c = c[t], .c_row = N };
            g.a_row = turned & 1 ? 1 : K, g.a_col = turned & 1 ? M : 1;
            g.b_row = turned & 2 ? 1 : N, g.b_col = turned & 2 ? K : 1;
            CHECK(xl_gemm_run(p[t], &g));
            CHECK(!memcmp(c[0], c[t], sizeof c[0]));
        }
    }
    for (int t = 0; t < POOLS; t++)
        xl_pool_free(p[t]);
}

/* As long as no set cuts k into blocks (128 is the least), f32 sums have the same bits on all that fuse products. */
TEST(sets_of_instructions_that_fuse_have_the_same_bits)
{
    static const size_t shapes[][3] = { { 64, 64, 64 }, { 33, 29, 7 }, { 256, 192, 64 }, { 5, 130, 128 },
                                        { 70, 70, 100 } };
    uint32_t have = xl_cpu_features(), least = have & XL_CPU_AVX2 ? XL_CPU_FMA : 0;
#if defined(__x86_64__)
    if (!least)
        return;
#endif
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int turned = 0; turned < 4; turned++) {
            size_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
            ptrdiff_t sm = (ptrdiff_t)m, sn = (ptrdiff_t)n, sk = (ptrdiff_t)k;
            float *a = calloc(m * k, 4), *b = calloc(k * n, 4), *c[2] = { calloc(m * n, 4), calloc(m * n, 4) };
            for (size_t q = 0; q < m * k; q++) a[q] = (float)(draw() / 3);
            for (size_t q = 0; q < k * n; q++) b[q] = (float)(draw() / 3);
            for (uint32_t drop = 1u << 31, t = 0; drop > least; drop >>= 1) {
                if (t && !(have & drop))
                    continue;
                xl_cpu_features_mask(t ? drop - 1 : ~0u);
                xl_gemm g = { .m = m, .n = n, .k = k, .a = a, .b = b, .c = c[t], .a_row = turned & 1 ? 1 : sk,
                              .a_col = turned & 1 ? sm : 1, .b_row = turned & 2 ? 1 : sn,
                              .b_col = turned & 2 ? sk : 1, .c_row = sn };
                CHECK(xl_gemm_run(NULL, &g));
                if (t && memcmp(c[0], c[1], m * n * 4))
                    FAIL("%zux%zux%zu, turned %d: %s has other bits", m, n, k, turned,
                         xl_gemm_kernel_name(XL_GEMM_F32, XL_GEMM_F32));
                t = 1;
            }
            xl_cpu_features_mask(~0u);
            free(a), free(b), free(c[0]), free(c[1]);
        }
}

TEST(where_b_begins_changes_no_bit)             /* in a line: it is packed then, or read where it lies */
{
    static const size_t shapes[][3] = { { 64, 64, 64 }, { 130, 144, 70 }, { 256, 256, 96 }, { 160, 48, 300 } };
    xl_pool *p = xl_pool_new(2);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        size_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2], nb = (k * n * 4 + 127) / 64 * 64;
        float *a = calloc(m * k, 4), *c[2] = { calloc(m * n, 4), calloc(m * n, 4) };
        char *b = aligned_alloc(64, nb);
        for (size_t q = 0; q < m * k; q++) a[q] = (float)(draw() / 3);
        for (size_t q = 0; q < k * n; q++) ((float *)(void *)b)[q] = (float)(draw() / 3);
        for (size_t t = 0; t < 4; t++) {
            xl_gemm g = { .m = m, .n = n, .k = k, .a = a, .b = b, .c = c[t > 0], .a_row = (ptrdiff_t)k, .a_col = 1,
                          .b_row = (ptrdiff_t)n, .b_col = 1, .c_row = (ptrdiff_t)n, .nbatch = 1, .batch = { 1 } };
            CHECK(xl_gemm_run(t % 2 ? p : NULL, &g));
            CHECK(!t || !memcmp(c[0], c[1], m * n * 4));
            if (t == 1)
                memmove(b + 16, b, k * n * 4), b += 16;
        }
        free(a), free(b - 16), free(c[0]), free(c[1]);
    }
    xl_pool_free(p);
}
TEST(unknown_types_are_refused)
{
    CHECK(!xl_gemm_run(NULL, &(xl_gemm){ .a_type = XL_GEMM_F32, .b_type = XL_GEMM_F64, .c_type = XL_GEMM_F64 }));
    CHECK(!xl_gemm_run(NULL, &(xl_gemm){ .a_type = XL_GEMM_F32, .b_type = XL_GEMM_F32, .c_type = XL_GEMM_F64 }));
    CHECK_STR(xl_gemm_kernel_name(XL_GEMM_F32, XL_GEMM_I8), "none");
}
