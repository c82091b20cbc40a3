/* Convolutions in groups of few features: against sums in double, of any layout and window; with every instruction set
 * that fuses products with sums, and for any number of threads, the same bits. */
#include "cpu/kernel/conv_groups.h"

#include <math.h>

#include "base/test.h"
#include "cpu/run/feature.h"
#include "cpu/run/pool.h"

static uint64_t state = 1;
static int64_t any(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n > 0 ? (int64_t)(state >> 33) % n : 0;
}
static float *numbers(int64_t n)
{
    float *x = calloc((size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(any(2001) - 1000) / 1000;
    return x;
}

/* Strides of dimensions in the order that `last` gives the innermost one; the number of elements. */
static int64_t lay(int64_t *stride, const int64_t *dim, uint32_t rank, uint32_t last)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t at = (last + rank - i) % rank;
        stride[at] = n;
        n *= dim[at];
    }
    return n;
}

/* The result at one place, and the sum of what was added up to it. */
static double one(const xl_conv_groups *c, int64_t image, const int64_t *o, int64_t f, double *size)
{
    int64_t k[XL_RANK_MAX] = { 0 }, taps = 1;
    double sum = 0;
    for (uint32_t i = 0; i < c->ns; i++)
        taps *= c->ker[i];
    for (int64_t t = 0; t < taps; t++) {
        int64_t x = image * c->xn + f / c->co * c->ci * c->xc, w = f * c->ko;
        bool in = true;
        for (uint32_t i = 0; i < c->ns; i++) {
            int64_t pos = o[i] * c->step[i] + k[i] * c->spread[i] - c->low[i];
            in = in && pos >= 0 && pos < c->in[i];
            x += pos * c->xs[i], w += k[i] * c->ks[i];
        }
        for (int64_t q = 0; q < c->ci && in; q++) {
            double p = (double)c->x[x + q * c->xc] * c->k[w + q * c->kc];
            sum += p;
            *size += fabs(p);
        }
        for (uint32_t i = c->ns; i-- > 0 && ++k[i] == c->ker[i]; )
            k[i] = 0;
    }
    return sum;
}

static void check(const xl_conv_groups *c, int number)
{
    int64_t o[XL_RANK_MAX], rows = c->n;
    for (uint32_t i = 0; i < c->ns; i++)
        rows *= c->out[i];
    for (int64_t r = 0; r < rows; r++) {
        int64_t t = r, y = 0;
        for (uint32_t i = c->ns; i-- > 0; ) {
            o[i] = t % c->out[i], t /= c->out[i];
            y += o[i] * c->ys[i];
        }
        for (int64_t f = 0; f < c->groups * c->co; f++) {
            double size = 0, want = one(c, t, o, f, &size), got = c->y[y + t * c->yn + f * c->yc];
            if (!(fabs(got - want) <= 1e-6 * size))
                FAIL("convolution %d, row %lld, feature %lld: %g, not %g", number, (long long)r, (long long)f, got,
                     want);
        }
    }
}

TEST(any_window_and_layout)
{
    static const int64_t few[] = { 1, 2, 3, 5, 7, 16, 24, 33 };
    xl_pool *pool = xl_pool_new(3);
    int planned = 0;
    for (int i = 0; i < xl_test_amount(3000, 600, 200); i++) {
        xl_conv_groups c = { .ns = 1 + (uint32_t)any(3), .n = any(20) ? 1 + any(2) : 0, .groups = 2 + any(3) };
        uint32_t d = c.ns - 1;
        int64_t large = any(4), outs = 1, taps = 1, dims[3][XL_RANK_MAX + 2], strides[3][XL_RANK_MAX + 2], size[3];
        c.ci = 1 + (any(3) ? 0 : any(9)), c.co = 1 + (any(2) ? any(4) : any(15));
        c.groups = any(3) ? few[any(8)] + 1 : large ? c.groups : 100 + any(200);
        for (uint32_t k = 0; k < c.ns; k++) {
            c.in[k] = any(30) ? c.ns > 1 ? 1 + any(k == d ? 40 : 9) : 1 + any(400) : 0;
            c.ker[k] = any(12) ? 1 + any(4) : 1 + any(9);
            c.step[k] = any(2) ? 1 : 1 + any(4), c.spread[k] = any(2) ? 1 : 1 + any(4);
            c.low[k] = any(6) - 2;
            int64_t room = c.in[k] + c.low[k] + any(4) - (c.ker[k] - 1) * c.spread[k] - 1;
            c.out[k] = room < 0 ? 0 : room / c.step[k] + 1;
            outs *= c.out[k], taps *= c.ker[k];
        }
        size_t bytes = xl_conv_groups_plan(&c);
        if (!bytes || outs * taps * c.n * c.groups * c.co * c.ci > xl_test_amount(4000000, 4000000, 400000))
            continue;
        planned++;
        for (int t = 0; t < 3; t++) {                      /* x, kernel, y; features last or not */
            dims[t][0] = t == 1 ? c.co * c.groups : c.n;
            for (uint32_t k = 0; k < c.ns; k++)
                dims[t][k + 1] = t == 0 ? c.in[k] : t == 1 ? c.ker[k] : c.out[k];
            dims[t][c.ns + 1] = t == 0 ? c.ci * c.groups : t == 1 ? c.ci : c.co * c.groups;
            size[t] = lay(strides[t], dims[t], c.ns + 2, any(2) ? c.ns + 1 : (uint32_t)any(c.ns + 2));
        }
        c.xn = strides[0][0], c.xc = strides[0][c.ns + 1], c.yn = strides[2][0], c.yc = strides[2][c.ns + 1];
        c.ko = strides[1][0], c.kc = strides[1][c.ns + 1];
        memcpy(c.xs, strides[0] + 1, c.ns * sizeof *c.xs);
        memcpy(c.ks, strides[1] + 1, c.ns * sizeof *c.ks);
        memcpy(c.ys, strides[2] + 1, c.ns * sizeof *c.ys);
        float *x = numbers(size[0]), *k = numbers(size[1]), *y = calloc((size_t)size[2] + 1, sizeof *y),
              *first = calloc((size_t)size[2] + 1, sizeof *y), *kernel = malloc(bytes + sizeof *kernel);
        kernel[bytes / sizeof *kernel] = 7, y[size[2]] = 7;
        c.x = x, c.k = k, c.y = y;
        static const uint32_t masks[] = { ~0u, ~0u, XL_CPU_AVX2 | XL_CPU_FMA, XL_CPU_FMA, 0 };
        for (int m = 0; m < 5; m++) {
            xl_cpu_features_mask(masks[m]);
            for (int64_t e = 0; e < size[2]; e++)
                y[e] = NAN;
            if (!xl_conv_groups_run(m % 2 ? pool : NULL, &c, kernel))
                FAIL("no memory for convolution %d", i);
            if (kernel[bytes / sizeof *kernel] != 7 || y[size[2]] != 7)
                FAIL("convolution %d wrote behind its memory", i);
            if (!m || !masks[m])
                check(&c, i);
            if (m && masks[m] &&
                memcmp(first, y, (size_t)size[2] * sizeof *y)) /* without a fused product others are right */
                FAIL("convolution %d has other bits with features %x", i, masks[m]);
            if (!m)
                memcpy(first, y, (size_t)size[2] * sizeof *y);
        }
        xl_cpu_features_mask(~0u);
        free(x), free(k), free(y), free(first), free(kernel);
    }
    CHECK(planned > 20);
    xl_pool_free(pool);
}

/* Where nothing is gained, or memory would not suffice, nothing is planned. */
TEST(others_are_refused)
{
    xl_conv_groups c = { .ns = 1, .n = 1, .groups = 8, .ci = 1, .co = 1, .in = { 9 }, .out = { 7 }, .ker = { 3 },
                         .step = { 1 }, .spread = { 1 } }, o;
    o = c;
    CHECK(xl_conv_groups_plan(&o) > 0);
    o = c, o.groups = 1;
    CHECK(!xl_conv_groups_plan(&o));
    o = c, o.co = 16;
    CHECK(!xl_conv_groups_plan(&o));
    o = c, o.ker[0] = 1;
    CHECK(!xl_conv_groups_plan(&o));
    o = c, o.ker[0] = 0;
    CHECK(!xl_conv_groups_plan(&o));
    o = c, o.spread[0] = INT64_C(1) << 31;
    CHECK(!xl_conv_groups_plan(&o));
    o = c, o.ci = 4000, o.ker[0] = 1000;
    CHECK(!xl_conv_groups_plan(&o));
}
