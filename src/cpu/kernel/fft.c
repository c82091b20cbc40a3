/* Fourier transforms of any length, in double: powers of two by halves, others by Bluestein's convolution. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/kernel/ew.h"
#include "cpu/plan/planner.h"

typedef double complex cx;

static inline cx mul(cx a, cx b)
{
    union { double p[2]; cx c; } u = { { creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b) } };
    return u.c;
}
static cx turn(double num, double den, int sign) { double a = 2 * M_PI * num / den; return cos(a) + sign * sin(a) * I; }

typedef struct { int64_t n, m; int sign; cx *w, *chirp, *kernel, *work; } dft; /* m: length of the powers of two inside */

static void pow2(cx *x, int64_t n, const cx *w, int64_t wn, bool inverse)
{
    for (int64_t i = 1, j = 0; i < n; i++) {
        int64_t bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            cx t = x[i];
            x[i] = x[j];
            x[j] = t;
        }
    }
    for (int64_t len = 2; len <= n; len *= 2)
        for (int64_t i = 0; i < n; i += len)
            for (int64_t k = 0; k < len / 2; k++) {
                cx t = w[k * (wn / len)], u = x[i + k], v = mul(x[i + k + len / 2], inverse ? conj(t) : t);
                x[i + k] = u + v;
                x[i + k + len / 2] = u - v;
            }
}

static bool dft_init(dft *d, int64_t n, int sign)
{
    *d = (dft){ .n = n, .sign = sign, .m = 1 };
    bool two = (n & (n - 1)) == 0;
    while (d->m < (two ? n : 2 * n - 1))
        d->m *= 2;
    d->w = malloc((size_t)(4 * d->m) * sizeof(cx));
    if (!d->w)
        return false;
    d->chirp = d->w + d->m;
    d->kernel = d->chirp + d->m;
    d->work = d->kernel + d->m;
    for (int64_t k = 0; k < d->m; k++)
        d->w[k] = turn((double)k, (double)d->m, -1);
    if (two)
        return true;
    for (int64_t k = 0; k < n; k++)
        d->chirp[k] = turn((double)(k * k % (2 * n)), 2.0 * (double)n, sign);
    memset(d->kernel, 0, (size_t)d->m * sizeof(cx));
    for (int64_t k = 0; k < n; k++)
        d->kernel[k] = d->kernel[(d->m - k) % d->m] = conj(d->chirp[k]);
    pow2(d->kernel, d->m, d->w, d->m, false);
    return true;
}

static void dft_run(const dft *d, cx *x)
{
    if (d->m == d->n) {
        pow2(x, d->n, d->w, d->m, d->sign > 0);
        return;
    }
    cx *a = d->work;
    memset(a, 0, (size_t)d->m * sizeof *a);
    for (int64_t k = 0; k < d->n; k++)
        a[k] = mul(x[k], d->chirp[k]);
    pow2(a, d->m, d->w, d->m, false);
    for (int64_t k = 0; k < d->m; k++)
        a[k] = mul(a[k], d->kernel[k]);
    pow2(a, d->m, d->w, d->m, true);
    for (int64_t k = 0; k < d->n; k++)
        x[k] = mul(a[k] / (double)d->m, d->chirp[k]);
}

/* Lines of the middle dimension of [outer, n, inner]. */
static bool along(cx *x, int64_t outer, int64_t n, int64_t inner, int sign)
{
    dft d;
    cx *line = malloc((size_t)n * sizeof *line + 1);
    if (!line || !dft_init(&d, n, sign)) {
        free(line);
        return false;
    }
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            cx *p = x + o * n * inner + i;
            for (int64_t k = 0; k < n; k++)
                line[k] = p[k * inner];
            dft_run(&d, line);
            for (int64_t k = 0; k < n; k++)
                p[k * inner] = line[k];
        }
    free(d.w);
    free(line);
    return true;
}

typedef struct { xl_ew load, store; int64_t type; uint32_t n; int64_t len[3]; } fft;

static xl_error *run_fft(const xl_step *s, xl_frame *f)
{
    const fft *d = s->data;
    const xl_shape *x = xl_in_shape(s, 0), *y = xl_out_shape(s, 0);
    bool real_in = d->type == XL_FFT_TYPE_RFFT, real_out = d->type == XL_FFT_TYPE_IRFFT;
    int sign = d->type == XL_FFT_TYPE_IFFT || real_out ? 1 : -1;
    int64_t total = 1, outer, inner;
    if (!y->count)
        return NULL;
    for (uint32_t k = 0; k < d->n; k++)
        total *= d->len[k];
    int64_t xl = x->rank ? x->dims[x->rank - 1] : 1, yl = y->dims[y->rank - 1], full = d->len[d->n - 1];
    int64_t lines = y->count / yl;
    cx *a = malloc((size_t)(lines * full) * sizeof *a), *tmp = malloc((size_t)x->count * sizeof *a + 1);
    bool ok = a && tmp;
    if (!ok)
        goto out;
    const void *in[1] = { xl_in(s, f, 0) };
    d->load.fn(tmp, in, (size_t)x->count, d->load.ctx);
    for (int64_t l = 0; l < lines; l++)                    /* the last dimension at its full length */
        for (int64_t k = 0; k < full; k++)
            a[l * full + k] = real_out ? (k < xl ? tmp[l * xl + k] : 0) : tmp[l * xl + k];
    if (real_out && d->n > 1) {                            /* outer dimensions first, on the half spectrum as it is */
        inner = full;
        for (uint32_t k = d->n - 1; k-- > 0 && ok; ) {
            outer = lines * full / (inner * d->len[k]);
            ok = along(a, outer, d->len[k], inner, sign);
            inner *= d->len[k];
        }
    }
    if (real_out) {
        for (int64_t l = 0; l < lines; l++) {
            cx *p = a + l * full;
            p[0] = creal(p[0]);
            if (full % 2 == 0)
                p[full / 2] = creal(p[full / 2]);
            for (int64_t k = full / 2 + 1; k < full; k++)
                p[k] = conj(p[full - k]);
        }
        ok = ok && along(a, lines, full, 1, sign);
    } else {
        inner = 1;
        for (uint32_t k = d->n; k-- > 0 && ok; ) {
            outer = lines * full / (inner * d->len[k]);
            ok = along(a, outer, d->len[k], inner, sign);
            inner *= d->len[k];
        }
    }
    if (!ok)
        goto out;
    if (sign > 0)
        for (int64_t i = 0; i < lines * full; i++)
            a[i] /= (double)total;
    if (real_in)
        for (int64_t l = 0; l < lines; l++)
            memmove(a + l * yl, a + l * full, (size_t)yl * sizeof *a);
    in[0] = a;
    d->store.fn(xl_out(s, f, 0), in, (size_t)y->count, d->store.ctx);
out:
    free(a);
    free(tmp);
    return ok ? NULL : XL_ERR(EXHAUSTED, "no memory for a Fourier transform");
}

xl_error *xl_kernel_fft(xl_planner *p, const xl_op *op)
{
    fft *d = xl_new(p->a, fft, 1);
    xl_dims len = xl_op_dims(op, XL_SLOT(FFT, fft_length));
    const xl_type *x = xl_in_type(p->f, op, 0), *y = xl_out_type(p->f, op, 0);
    d->type = xl_op_int(op, XL_SLOT(FFT, fft_type));
    d->n = (uint32_t)len.n;
    if (len.n < 1 || len.n > 3 || len.n > x->rank)
        return xl_plan_unsupported(p, op, "it transforms one to three dimensions");
    for (uint32_t k = 0; k < d->n; k++)
        d->len[k] = len.p[k];
    d->load = xl_ew_convert(p->a, x->dtype, XL_C128);
    d->store = xl_ew_convert(p->a, XL_C128, y->dtype);
    return xl_plan_step(p, op, run_fft, d, 0);
}
