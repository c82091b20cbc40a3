/* Eigenvalues and singular values of one matrix: products of the factors, orthogonality of the vectors, and identical
 * bits from pools of 1, 2 and 5 threads. Also sums of scattered rows with every instruction set, which do not need
 * OpenBLAS. */
#include "cpu/kernel/spectral.h"

#include <math.h>

#include "base/test.h"
#include "cpu/kernel/fold.h"

static uint64_t state = 1;
static double any(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(state >> 32) * 0x1p-31;
}
static bool found(char type, xl_spectral *f)
{
    xl_error *err = xl_spectral_find(type, f);
    if (err)
        printf("  no LAPACK: %s\n", xl_error_message(err));
    xl_error_free(err);
    return !err;
}
static double number(const void *p, size_t i, bool wide)
{
    return wide ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static void set(void *p, size_t i, bool wide, double x)
{
    if (wide)
        ((double *)p)[i] = x;
    else
        ((float *)p)[i] = (float)x;
}

/* a (m x n) is u diag(s) vt, and so are the columns of u orthogonal. */
static void factors(const void *a, const void *u, const void *s, const void *vt, int m, int n, bool wide)
{
    double limit = (wide ? 2e-16 : 1.2e-7) * 40 * sqrt(m);
    for (int k = 0; k < 40; k++) {                         /* some elements */
        int i = (int)((any() + 1) * 0.4999 * m), j = (int)((any() + 1) * 0.4999 * n), other = (j + 1) % n;
        double sum = 0, dot = 0, one = 0;
        for (int l = 0; l < n; l++)
            sum += number(u, (size_t)l * (size_t)m + (size_t)i, wide) * number(s, (size_t)l, wide) *
                   number(vt, (size_t)j * (size_t)n + (size_t)l, wide);
        for (int l = 0; l < m; l++) {
            double x = number(u, (size_t)j * (size_t)m + (size_t)l, wide);
            one += x * x, dot += x * number(u, (size_t)other * (size_t)m + (size_t)l, wide);
        }
        CHECK(fabs(sum - number(a, (size_t)j * (size_t)m + (size_t)i, wide)) < limit * 10);
        CHECK(fabs(one - 1) < limit && fabs(dot) < limit);
    }
}
static void one(char type, int m, int n, bool eigh)
{
    xl_spectral f;
    if (!found(type, &f))
        return;
    size_t e = f.elem, high = (size_t)m, wide = (size_t)n;
    char *a = malloc(high * wide * e), *copy = malloc(high * wide * e), *u = malloc(high * wide * e),
         *s = malloc(wide * e), *vt = malloc(wide * wide * e), *first = malloc(high * wide * e);
    for (size_t j = 0; j < wide; j++)
        for (size_t i = eigh ? j : 0; i < high; i++) {
            double x = any() * (j % 7 == 3 && eigh ? 1e-9 : 1);
            set(a, j * high + i, f.wide, x);
            if (eigh)
                set(a, i * high + j, f.wide, x);
        }
    static const size_t threads[] = { 1, 5, 2 };
    for (int t = 0; t < xl_test_amount(3, 3, 2); t++) {
        xl_pool *pool = xl_pool_new(threads[t]);
        memcpy(copy, a, high * wide * e);
        int32_t info =
            eigh ? xl_spectral_eigh(&f, pool, n, copy, s, u) : xl_spectral_svd(&f, pool, m, n, copy, s, u, n, vt);
        xl_pool_free(pool);
        CHECK(info == 0);
        for (size_t i = 0; eigh && i < wide; i++)
            for (size_t j = 0; j < wide; j++)
                memcpy(vt + (i * wide + j) * e, u + (j * wide + i) * e, e);
        factors(a, u, s, vt, m, n, f.wide);
        for (size_t i = 1; i < wide; i++)
            CHECK(eigh ? number(s, i, f.wide) >= number(s, i - 1, f.wide)
                       : number(s, i, f.wide) <= number(s, i - 1, f.wide));
        if (t == 0)
            memcpy(first, u, high * wide * e);
        else
            CHECK(!memcmp(first, u, high * wide * e));
    }
    free(a), free(copy), free(u), free(s), free(vt), free(first);
}
/* More rows than one thread multiplies as quickly (WHOLE), and than LAPACK merges (SMALL). */
TEST(eigh_f32) { int n = xl_test_amount(450, 450, 340); one('s', n, n, true); }
TEST(eigh_f64) { one('d', 211, 211, true); }
TEST(svd_f32) { int n = xl_test_amount(400, 400, 220); one('s', n + 20, n, false); }
TEST(svd_f64) { one('d', xl_test_amount(300, 300, 230), 210, false); }

/* a x = w x for the vectors on the right, x' a = w x' for those on the left, of length 1; a pair of conjugates is two
 * columns. `apart`: with a row and a column that balancing sets apart, others of another scale. */
static void eig_of(char type, int n, bool apart)
{
    xl_spectral f;
    if (!found(type, &f))
        return;
    size_t e = f.elem, size = (size_t)n, ld = size + 3, sq = size * ld * e;
    char *a = calloc(1, sq), *copy = malloc(sq), *w = malloc(2 * size * e), *v[2] = { malloc(sq), malloc(sq) },
         *first = malloc(2 * sq);
    for (size_t c = 0; c < size; c++)
        for (size_t r = 0; r < size; r++)
            set(a, c * ld + r, f.wide, apart && c == 5 && r != 5 ? 0 : apart && r == 7 ? any() * 1e4 : any());
    static const size_t threads[] = { 1, 5, 2 };
    for (int t = 0; t < xl_test_amount(3, 3, 2); t++) {
        xl_pool *pool = xl_pool_new(threads[t]);
        memcpy(copy, a, sq);
        CHECK(xl_spectral_eig(&f, pool, n, copy, (int)ld, w, w + size * e, v[0], v[1]) == 0);
        xl_pool_free(pool);
        double limit = (f.wide ? 2e-16 : 1.2e-7) * 40 * sqrt(n) * (apart ? 1e4 : 1), imag = 0;
        for (size_t c = 0; c < size; c++) {
            double wr = number(w, c, f.wide), wi = number(w, size + c, f.wide), one = 0;
            imag += fabs(wi);
            size_t re = c * ld, im = (c + 1) * ld;
            for (int k = 0; k < 8; k++) {
                bool left = k % 2 == 0;
                const char *x = v[left ? 0 : 1];
                size_t at = (size_t)((any() + 1) * 0.4999 * n);
                double sr = 0, si = 0;
                for (size_t i = 0; i < size; i++) {
                    double m = number(a, left ? at * ld + i : i * ld + at, f.wide);
                    sr += m * number(x, re + i, f.wide), si += wi != 0 ? m * number(x, im + i, f.wide) : 0;
                }
                double xr = number(x, re + at, f.wide), xi = wi != 0 ? number(x, im + at, f.wide) : 0,
                       turn = left ? -wi : wi;
                CHECK(fabs(sr - (wr * xr - turn * xi)) < limit && fabs(si - (wr * xi + turn * xr)) < limit);
            }
            for (size_t i = 0; i < size; i++)
                one += pow(number(v[1], re + i, f.wide), 2) + (wi != 0 ? pow(number(v[1], im + i, f.wide), 2) : 0);
            CHECK(fabs(one - 1) < (f.wide ? 2e-16 : 1.2e-7) * 40);
            c += wi != 0;
        }
        CHECK(imag > 1);
        for (int k = 0; k < 2; k++)
            for (size_t c = 0; c < size; c++)
                if (t == 0)
                    memcpy(first + (size_t)k * sq + c * ld * e, v[k] + c * ld * e, size * e);
                else
                    CHECK(!memcmp(first + (size_t)k * sq + c * ld * e, v[k] + c * ld * e, size * e));
    }
    memcpy(copy, a, sq);                                   /* values alone */
    CHECK(xl_spectral_eig(&f, NULL, n, copy, (int)ld, w, w + size * e, NULL, NULL) == 0);
    free(a), free(copy), free(w), free(v[0]), free(v[1]), free(first);
}
TEST(eig_f32) { eig_of('s', xl_test_amount(401, 401, 210), false); }
TEST(eig_f64) { eig_of('d', xl_test_amount(290, 290, 195), false); }
TEST(eig_apart) { eig_of('d', 200, true); }
TEST(eig_scale)
{
    xl_spectral f;
    float a[4] = { 1e30f, 0, 0, 1 }, w[4];
    if (found('s', &f))
        CHECK(xl_spectral_eig(&f, NULL, 2, a, 2, w, w + 2, NULL, NULL) == XL_SPECTRAL_SCALE);
}

TEST(rows)
{
    enum { N = 70, M = 9, ROWS = 40 };
    static const xl_dtype types[] = { XL_F32, XL_F64, XL_I8, XL_U16, XL_I32, XL_U64 };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        size_t e = xl_dtype_bytes(types[t]);
        xl_put put = xl_fold_put(types[t], XL_OP_ADD);
        union { char c[ROWS * N * 8]; float f[ROWS * N]; double d[ROWS * N]; uint64_t l[ROWS * N]; uint32_t i[ROWS * N];
                uint16_t h[ROWS * N]; uint8_t b[ROWS * N]; } x, y = { { 0 } }, want = { { 0 } };
        int64_t place[ROWS];
        for (int i = 0; i < ROWS * N * 8; i++)
            x.c[i] = (char)(any() * 127);
        for (int i = 0; i < ROWS * N && types[t] == XL_F32; i++)
            x.f[i] = (float)any();
        for (int i = 0; i < ROWS * N && types[t] == XL_F64; i++)
            x.d[i] = any();
        for (int i = 0; i < ROWS; i++)
            place[i] = i % 5 == 4 ? -1 : (int64_t)((any() + 1) * 0.4999 * M) * N;
        for (int n = 1; n <= N; n += 23) {
            memset(&y, 0, sizeof y), memset(&want, 0, sizeof want);
            put.rows(&y, &x, place, ROWS, N, (size_t)n);
            for (int i = 0; i < ROWS; i++)
                for (int k = 0; k < n && place[i] >= 0; k++) {
                    size_t to = (size_t)place[i] + (size_t)k, from = (size_t)(i * N + k);
                    switch (types[t]) {
                    case XL_F32: want.f[to] += x.f[from]; break;
                    case XL_F64: want.d[to] += x.d[from]; break;
                    case XL_I8: want.b[to] = (uint8_t)(want.b[to] + x.b[from]); break;
                    case XL_U16: want.h[to] = (uint16_t)(want.h[to] + x.h[from]); break;
                    case XL_I32: want.i[to] += x.i[from]; break;
                    default: want.l[to] += x.l[from]; break;
                    }
                }
            CHECK(!memcmp(&y, &want, (size_t)M * N * e));
        }
    }
}
