/* Fourier transforms, computed in the type of the operand. Each dimension is one pass over its lines, several at a time
 * (fft.h); threads share the lines. Lengths with small prime factors use stages of radix 4, 2, 3, 5, ...; others use
 * Bluestein's convolution. */
#include "cpu/kernel/fft.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/run/feature.h"
#include "cpu/plan/planner.h"
#include "cpu/run/pool.h"

XL_CPU_SETS(xl_fft_set, xl_fft)

enum { NEAR = 1 << 13, WIDE = 1 << 16, WORTH = 1 << 15 };  /* points at a time: of lines, of columns; for threads */
enum { REAL_MAX = NEAR / XL_FFT_LANES, SHORT = 1 << 10 }; /* lengths: by stages on reals; of factors with more digits */
enum { EIGHTS = 64 };                                      /* lengths below it use radix 8 */

typedef struct { xl_fft_pass p; int64_t total, lanes; bool wide; atomic_bool *lacking; } job;

static void put(void *to, size_t at, double v, bool wide)
{
    if (wide)
        ((double *)to)[at] = v;
    else
        ((float *)to)[at] = (float)v;
}
/* e^(-2 pi i k / n): the angle is brought below an eighth of the circle. Of a short length rounded once, or as good as
 * that. */
static void root(int64_t k, int64_t n, double *re, double *im)
{
    int64_t quarters = (8 * (k % n) + n) / (2 * n), left = 4 * (k % n) - quarters * n;
    double c, s;
    if (n <= SHORT) {
        long double a = 3.14159265358979323846264338327950288L * (long double)left / (long double)(2 * n);
        c = (double)cosl(a), s = (double)sinl(a);
    } else {
        double a = M_PI * (double)left / (double)(2 * n);
        c = cos(a), s = sin(a);
    }
    *re = quarters % 2 ? -s : c;
    *im = quarters % 2 ? -c : -s;
    if (quarters % 4 >= 2)
        *re = -*re, *im = -*im;
}

/* Radix 8 is slower than 4. Short lengths have it for the sake of their bits (fft_exact.inl): a single 2 goes first. */
static bool factors(xl_fft_line *l, bool real)
{
    static const uint8_t radix[] = { 4, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31 };
    int64_t n = l->m;
    l->nfactor = 0;
    if (real && n % 2 == 0 && __builtin_ctzll((uint64_t)n) % 2)
        l->factor[l->nfactor++] = 2, n /= 2;
    if (!real && n < EIGHTS && n % 8 == 0) {
        if (n % 16 == 0 && n % 32)
            l->factor[l->nfactor++] = 2, n /= 2;
        l->factor[l->nfactor++] = 8, n /= 8;
    }
    for (size_t i = 0; i < sizeof radix; i++)
        for (; n % radix[i] == 0 && n > 1; n /= radix[i])
            l->factor[l->nfactor++] = radix[i];
    return n <= 1;
}

/* The same as the product of two that lie coarsely and closely, each by one rounded angle: what the transforms of reals
 * have elsewhere (fft_real.inl), up to a unit in the last place off in double, the same in single. */
static void near_root(int64_t k, int64_t n, double *re, double *im)
{
    int64_t at = 2 * k <= n ? k : n - k, low = 2;
    while (low * low < (n + 2) / 2)
        low *= 2;
    double angle = (double)(0.25L * 3.14159265358979323846264338327950288L / (long double)n), c[2], s[2];
    for (int i = 0; i < 2; i++) {
        int64_t x = 8 * (i ? at / low * low : at % low), quarter = x / (2 * n), left = x % (2 * n);
        double far = left < n ? (double)left * angle : (double)(2 * n - left) * angle;
        double cs = left < n ? cos(far) : sin(far), sn = left < n ? sin(far) : cos(far);
        c[i] = quarter % 2 ? -sn : cs, s[i] = quarter % 2 ? cs : sn;
    }
    *re = c[0] * c[1] - s[0] * s[1];
    *im = (2 * k <= n ? -1 : 1) * (c[0] * s[1] + s[0] * c[1]);
}

static void *numbers(xl_arena *a, size_t n, bool wide)
{
    return wide ? (void *)xl_new(a, double, n) : (void *)xl_new(a, float, n);
}

static void stages(xl_arena *a, xl_fft_line *l, bool wide)
{
    size_t count = 0, at = 0;
    int64_t n = l->m;
    for (uint32_t i = 0; i < l->nfactor; n /= l->factor[i++])
        count += 2 * (size_t)(n / l->factor[i]) * (l->factor[i] - 1u) + 2u * l->factor[i];
    l->w = numbers(a, count + 1, wide);
    n = l->m;
    for (uint32_t i = 0; i < l->nfactor; n /= l->factor[i++]) {
        int64_t r = l->factor[i];
        double re, im;
        for (int64_t k = 0; k < r && r % 2; k++) {
            root(k, r, &re, &im);
            put(l->w, at++, re, wide), put(l->w, at++, im, wide);
        }
        for (int64_t q = 0; q < n / r; q++)
            for (int64_t j = 1; j < r; j++) {
                root(q * j, n, &re, &im);
                put(l->w, at++, re, wide), put(l->w, at++, im, wide);
            }
    }
}

/* A line of 64 k points can be done by itself: its first stages go by whole vectors. The factors lie as these read
 * them. */
static void first_stages(xl_arena *a, xl_fft_line *l, bool wide)
{
    if (l->m % 64 || l->nfactor < 3)
        return;
    int64_t quarter = l->m / 4;
    l->each = numbers(a, 12 * (size_t)quarter, wide);
    for (int64_t stage = 0; stage < 2; stage++)
        for (int64_t q = 0; q < quarter; q++)
            for (int64_t j = 0; j < 3; j++) {
                double re, im;
                root((stage ? q / 4 : q) * (j + 1), stage ? quarter : l->m, &re, &im);
                size_t at = (size_t)((6 * stage + 2 * j) * quarter + q);
                put(l->each, at, re, wide), put(l->each, at + (size_t)quarter, im, wide);
            }
}

/* The same for reals. */
static void real_stages(xl_arena *a, xl_fft_line *l, bool wide)
{
    size_t n = (size_t)l->n, groups = 1;
    l->stage = xl_new(a, xl_fft_stage, l->nfactor);
    for (uint32_t i = 0; i < l->nfactor; groups *= l->factor[i++]) {
        xl_fft_stage *g = &l->stage[i];
        size_t r = g->radix = l->factor[i], m = n / (r * groups);
        double re, im;
        g->u = numbers(a, r * r, wide);
        g->w = numbers(a, (r - 1) * m + 1, wide);
        for (size_t t = 1; t <= r / 2 && r % 2; t++)
            for (size_t j = 1; j <= r / 2; j++) {
                if (r <= 5)                                /* these are written out there */
                    root((int64_t)(t * j), (int64_t)r, &re, &im);
                else
                    near_root((int64_t)(t * j % r * (n / r)), (int64_t)n, &re, &im);
                put(g->u, (r / 2 * (t - 1) + j - 1) * 2, re, wide);
                put(g->u, (r / 2 * (t - 1) + j - 1) * 2 + 1, -im, wide);
            }
        for (size_t j = 1; j < r; j++)
            for (size_t k = 1; 2 * k < m; k++) {
                near_root((int64_t)(j * k * groups), (int64_t)n, &re, &im);
                put(g->w, (j - 1) * (m - 1) + 2 * k - 2, re, wide), put(g->w, (j - 1) * (m - 1) + 2 * k - 1, -im, wide);
            }
    }
}

static xl_fft_line *line_of(xl_arena *a, int64_t n, bool real, bool wide)
{
    xl_fft_line *l = xl_new(a, xl_fft_line, 1), d;
    l->n = l->m = n;
    bool in_reals = real && n > 1 && n <= REAL_MAX;
    if (factors(l, in_reals)) {
        if (in_reals) {
            real_stages(a, l, wide);
            return l;
        }
        stages(a, l, wide);
        first_stages(a, l, wide);
        return l;
    }
    for (l->m = 1; l->m < 2 * n - 1; )
        l->m *= 2;
    factors(l, false);
    stages(a, l, wide);
    l->chirp = numbers(a, 2 * (size_t)n, wide);
    l->kernel = numbers(a, 2 * (size_t)l->m, wide);
    d = (xl_fft_line){ .n = l->m, .m = l->m };             /* the kernel's own transform, in double */
    factors(&d, false);
    stages(a, &d, true);
    double *k0 = xl_new(a, double, 2 * (size_t)l->m), *mem = xl_new(a, double, 4 * (size_t)l->m);
    for (int64_t k = 0; k < n; k++) {
        int64_t other = (l->m - k) % l->m;
        double c, s;
        root(k * k % (2 * n), 2 * n, &c, &s);
        put(l->chirp, 2 * (size_t)k, c, wide), put(l->chirp, 2 * (size_t)k + 1, s, wide);
        k0[2 * k] = k0[2 * other] = c;
        k0[2 * k + 1] = k0[2 * other + 1] = -s;
    }
    xl_fft_pass p = { .l = &d, .src = k0, .dst = k0, .inner = 1, .sn = l->m, .dn = l->m, .scale = 1 / (double)l->m };
    xl_fft_best()->f64(&p, 0, 1, mem);
    for (size_t k = 0; k < 2 * (size_t)l->m; k++)
        put(l->kernel, k, k0[k], wide);
    return l;
}

static void run_lines(void *ctx, size_t begin, size_t end)
{
    const job *j = ctx;
    const xl_fft_set *set = xl_fft_best();
    void *mem = xl_scratch(XL_SCRATCH_PLAN, (size_t)(4 * j->p.l->m * j->lanes) * (j->wide ? 8 : 4));
    if (!mem) {
        atomic_store(j->lacking, true);
        return;
    }
    for (size_t g = begin; g < end; g++) {
        int64_t first = (int64_t)g * j->lanes, lanes = j->total - first < j->lanes ? j->total - first : j->lanes;
        (j->wide ? set->f64 : set->f32)(&j->p, first, lanes, mem);
    }
}
static void run_pass(const xl_fft_pass *p, int64_t outer, bool wide, atomic_bool *lacking, xl_pool *pool)
{
    int64_t total = outer * p->inner, least = p->inner > 1 ? 4 : 1, lanes = (p->inner > 1 ? WIDE : NEAR) / p->l->m;
    if (p->inner == 1 && p->l->each)
        lanes = 1;
    lanes = lanes > XL_FFT_LANES ? XL_FFT_LANES : lanes < least ? least : lanes;
    job j = { *p, total, lanes < total ? lanes : total, wide, lacking };
    size_t groups = (size_t)((total + j.lanes - 1) / j.lanes);
    xl_pool_for(total * p->l->n < WORTH ? NULL : pool, groups, (size_t)(NEAR / (p->l->m * j.lanes) + 1), run_lines, &j);
}

typedef struct { const xl_fft_line *l[3]; int64_t type, len[3]; uint32_t n; bool wide; } fft;

static xl_error *run_fft(const xl_step *s, xl_frame *f)
{
    const fft *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0), *y = xl_out_shape(s, 0);
    bool real_in = d->type == XL_FFT_TYPE_RFFT, real_out = d->type == XL_FFT_TYPE_IRFFT;
    if (!y->count)
        return NULL;
    int64_t last = d->n - 1, xl = x->dims[x->rank - 1], yl = y->dims[y->rank - 1],
            width = real_out ? xl : yl; /* of the last dimension while others are done */
    double total = 1;
    for (uint32_t k = 0; k < d->n; k++)
        total *= (double)d->len[k];
    atomic_bool lacking = false;
    char *tmp = NULL, *out = xl_out(s, f, 0);
    const char *in = xl_in(s, f, 0);
    xl_fft_pass p = { .inverse = real_out || d->type == XL_FFT_TYPE_IFFT, .scale = 1, .inner = 1 };
    if (real_out && d->n > 1 && !(in = tmp = malloc((size_t)x->count * x->elem)))
        return XL_ERR(EXHAUSTED, "no memory for a Fourier transform");
    xl_fft_pass end = p; /* the last dimension: first of all, or for real results at last */
    end.l = d->l[last];
    end.src = in, end.dst = out;
    end.sn = xl, end.dn = yl;
    end.real_in = real_in, end.real_out = end.half = real_out;
    if (!real_out) {
        end.scale = p.inverse ? 1 / total : 1;
        run_pass(&end, y->count / yl, d->wide, &lacking, f->pool);
    }
    for (int64_t i = 0; i < last; i++) {                   /* in the order, and scaled where, DUCC does it */
        int64_t k = real_out ? i : last - 1 - i;
        p.l = d->l[k];
        p.src = real_out ? i == 0 ? xl_in(s, f, 0) : tmp : out;
        p.dst = real_out ? tmp : out;
        p.inner = width;
        for (int64_t j = k + 1; j < last; j++)
            p.inner *= d->len[j];
        p.sn = p.dn = d->len[k];
        run_pass(&p, (real_out ? x->count : y->count) / (p.inner * d->len[k]), d->wide, &lacking, f->pool);
    }
    if (real_out) {
        end.scale = 1 / total;
        run_pass(&end, y->count / yl, d->wide, &lacking, f->pool);
    }
    free(tmp);
    return atomic_load(&lacking) ? XL_ERR(EXHAUSTED, "no memory for a Fourier transform") : NULL;
}

xl_error *xl_kernel_fft(xl_planner *p, const xl_op *op)
{
    fft *d = xl_new(p->a, fft, 1);
    xl_dims len = xl_op_dims(op, XL_SLOT(FFT, fft_length));
    const xl_type *x = xl_in_type(p->f, op, 0), *y = xl_out_type(p->f, op, 0);
    d->type = xl_op_int(op, XL_SLOT(FFT, fft_type));
    d->n = (uint32_t)len.n;
    d->wide = x->dtype == XL_F64 || x->dtype == XL_C128;
    if (len.n < 1 || len.n > 3 || len.n > x->rank || len.n > y->rank)
        return xl_plan_unsupported(p, op, "it transforms one to three dimensions");
    for (uint32_t k = 0; k < d->n; k++) {
        bool last = k + 1 == d->n;
        int64_t n = d->len[k] = len.p[k], half = n / 2 + 1, in = x->dims[x->rank - d->n + k],
                out = y->dims[y->rank - d->n + k];
        if (n == 0 && d->type == XL_FFT_TYPE_IRFFT)        /* to nothing, whatever it comes from */
            in = 0;
        if (n < 0 || n > INT32_MAX || in != (last && d->type == XL_FFT_TYPE_IRFFT && n ? half : n) ||
            out != (last && d->type == XL_FFT_TYPE_RFFT && n ? half : n))
            return xl_plan_unsupported(p, op, "its operand or its result does not have the lengths of the transform");
        if (n)
            d->l[k] = line_of(p->a, n, last && d->type >= XL_FFT_TYPE_RFFT, d->wide);
    }
    return xl_plan_step(p, op, run_fft, d, 0);
}
