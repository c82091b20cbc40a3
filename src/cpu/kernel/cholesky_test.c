/* The Cholesky factor with every instruction set: the factor in long double is as near as n roundings allow, NaN in the
 * other triangle and behind the rows has no influence, and the first pivot that is not positive is named. */
#include "cpu/kernel/cholesky.h"

#include <math.h>

#include "base/test.h"
#include "cpu/run/feature.h"

XL_CPU_SETS(xl_cholesky_set, xl_cholesky)
static uint64_t state = 1;
static double any(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(state >> 32) * 0x1p-31;
}
static double get(const void *a, size_t i, bool wide)
{
    return wide ? ((const double *)a)[i] : (double)((const float *)a)[i];
}
static void set(void *a, size_t i, bool wide, double x)
{
    if (wide)
        ((double *)a)[i] = x;
    else
        ((float *)a)[i] = (float)x;
}
static int32_t factor(void *a, int n, int step, bool wide)
{
    const xl_cholesky_set *best = xl_cholesky_best();
    return wide ? best->f64(a, n, step) : best->f32(a, n, step);
}
/* n rows, `step` elements apart: a random positive matrix above the diagonal, NaN elsewhere. */
static void fill(void *a, long double *want, int n, int step, bool wide)
{
    for (int i = 0; i < n * step; i++)
        set(a, (size_t)i, wide, NAN);
    for (int r = 0; r < n; r++)
        for (int c = r; c < n; c++) {
            size_t at = (size_t)(r * step + c);
            set(a, at, wide, r == c ? 1 + 0.5 * n + any() : any());
            want[at] = get(a, at, wide);
        }
}
static void one(int n, int step, bool wide)
{
    size_t all = (size_t)(n * step);
    void *a = malloc(all * 8);
    long double *want = calloc(all, sizeof *want), largest = 0, off = 0;
    fill(a, want, n, step, wide);
    CHECK(factor(a, n, step, wide) == 0);
    for (int r = 0; r < n; r++)
        for (int c = r; c < n; c++) {
            long double x = want[r * step + c];
            for (int k = 0; k < r; k++)
                x -= want[k * step + r] * want[k * step + c];
            want[r * step + c] = x = r == c ? sqrtl(x) : x / want[r * step + r];
            largest = fmaxl(largest, fabsl(x));
            long double d = fabsl((long double)get(a, (size_t)(r * step + c), wide) - x);
            off = d > off || isnan(d) ? d : off;
        }
    if (!(off <= largest * (wide ? 1e-15L : 5e-7L)))
        printf("  %d rows of %s: %.3Lg away\n", n, wide ? "f64" : "f32", off / largest);
    CHECK(off <= largest * (wide ? 1e-15L : 5e-7L));
    int at = n / 3;                                        /* a pivot that is negative, zero or NaN */
    for (int kind = 0; kind < 3; kind++) {
        fill(a, want, n, step, wide);
        set(a, (size_t)(at * step + at), wide, kind == 2 ? NAN : kind == 1 && at == 0 ? 0 : -1);
        CHECK(factor(a, n, step, wide) == at + 1);
    }
    free(a);
    free(want);
}

TEST(factors_of_every_instruction_set)
{
    static const uint32_t masks[] = { 0, XL_CPU_AVX2, ~0u };
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        xl_cpu_features_mask(masks[m]);
        for (int wide = 0; wide < 2; wide++)
            for (int n = XL_CHOLESKY_ROWS; n <= 160; n += n < 80 ? XL_CHOLESKY_ROWS : 40) {
                int step = (n + XL_CHOLESKY_COLUMNS - 1) / XL_CHOLESKY_COLUMNS * XL_CHOLESKY_COLUMNS;
                one(n, step, wide);
                if (n % 64 == 0)
                    one(n, step + XL_CHOLESKY_COLUMNS, wide);
            }
    }
    xl_cpu_features_mask(~0u);
}
