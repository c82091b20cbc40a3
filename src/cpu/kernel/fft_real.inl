/* src/cpu/kernel/fft_real.inl: transforms of odd length between reals and half a spectrum, in stages on real numbers:
 * half the work of a complex transform. Included by fft.inl. A spectrum of n points is stored as r0, r1, i1, r2, i2,
 * ...; a stage of radix r joins l groups of r spectra of m = n / (r l) points into l spectra of r m points, or splits
 * them again. Every element is s numbers, one per line.
 * Sums use FFTPACK's order, and products are rounded before they are added, so the results are bit for bit those of the
 * libraries that descend from it (pocketfft, DUCC: NumPy, SciPy and XLA's CPU). */
#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#define APART(i, k, j) (apart + s * ((i) + m * ((k) + l * (j))))  /* point i of spectrum j of group k */
#define WHOLE(i, j, k) (whole + s * ((i) + m * ((j) + r * (k))))  /* the same place of their one spectrum */
#define EACH for (size_t q = 0; q < s; q++)
#define ARGS const xl_fft_stage *g, T *apart, T *whole, size_t m, size_t l, size_t s

/* a = p0 + cos 1 p1 + cos 2 p2 + ..., b = sin 1 d1 + sin 2 d2 + ..., h terms with the factors u; rows of s. */
static inline __attribute__((always_inline)) void NAME(turn_of)(const T *restrict p, const T *restrict d, const T *u,
                                                                size_t h, size_t s, T *restrict a, T *restrict b)
{
    size_t j = h > 1 ? 3 : 2;
    if (h > 1)
        EACH {
            a[q] = p[q] + u[0] * p[q + s] + u[2] * p[q + 2 * s];
            b[q] = u[1] * d[q + s] + u[3] * d[q + 2 * s];
        }
    else
        EACH a[q] = p[q] + u[0] * p[q + s], b[q] = u[1] * d[q + s];
    for (u += 2 * (j - 1); j + 3 <= h; j += 4, u += 8) {
        const T *x = p + j * s, *y = d + j * s;
        EACH {
            a[q] += u[0] * x[q] + u[2] * x[q + s] + u[4] * x[q + 2 * s] + u[6] * x[q + 3 * s];
            b[q] += u[1] * y[q] + u[3] * y[q + s] + u[5] * y[q + 2 * s] + u[7] * y[q + 3 * s];
        }
    }
    for (; j + 1 <= h; j += 2, u += 4) {
        const T *x = p + j * s, *y = d + j * s;
        EACH a[q] += u[0] * x[q] + u[2] * x[q + s], b[q] += u[1] * y[q] + u[3] * y[q + s];
    }
    if (j <= h) {
        const T *x = p + j * s, *y = d + j * s;
        EACH a[q] += u[0] * x[q], b[q] += u[1] * y[q];
    }
}
/* Two functions, called: inlined into each of its places it would take a compiler half a minute. */
static __attribute__((noinline)) void NAME(turn_lanes)(const T *p, const T *d, const T *u, size_t h, T *a, T *b)
{
    NAME(turn_of)(p, d, u, h, XL_FFT_LANES, a, b);
}
static __attribute__((noinline)) void NAME(turn_some)(const T *p, const T *d, const T *u, size_t h, size_t s, T *a,
                                                      T *b)
{
    NAME(turn_of)(p, d, u, h, s, a, b);
}
static inline __attribute__((always_inline)) void NAME(turn)(const T *p, const T *d, const T *u, size_t h, size_t s,
                                                             T *a, T *b)
{
    if (s == XL_FFT_LANES)
        NAME(turn_lanes)(p, d, u, h, a, b);
    else
        NAME(turn_some)(p, d, u, h, s, a, b);
}

enum { NAME(ROWS) = 16 * XL_FFT_LANES };                   /* of sums and differences: radix 31 has 15 and the first */
static inline __attribute__((always_inline)) void NAME(join)(ARGS)
{
    size_t r = g->radix, h = r / 2;
    T p[NAME(ROWS)], d[NAME(ROWS)], pi[NAME(ROWS)], di[NAME(ROWS)], a[XL_FFT_LANES], b[XL_FFT_LANES], c[XL_FFT_LANES],
        e[XL_FFT_LANES];
    for (size_t k = 0; k < l; k++) {
        EACH p[q] = APART(0, k, 0)[q];
        for (size_t j = 1; j <= h; j++) {
            const T *x = APART(0, k, j), *y = APART(0, k, r - j);
            EACH p[j * s + q] = x[q] + y[q], d[j * s + q] = y[q] - x[q];
        }
        for (size_t t = 1; t <= h; t++)
            NAME(turn)(p, d, (const T *)g->u + 2 * h * (t - 1), h, s, WHOLE(m - 1, 2 * t - 1, k), WHOLE(0, 2 * t, k));
        for (size_t j = 1; j <= h; j++)
            EACH p[q] += p[j * s + q];
        EACH WHOLE(0, 0, k)[q] = p[q];
        for (size_t i = 1; i + 1 < m; i += 2) {
            const T *z = APART(i, k, 0);
            EACH p[q] = z[q], pi[q] = z[q + s];
            for (size_t j = 1; j <= h; j++) {
                const T *x = APART(i, k, j), *y = APART(i, k, r - j), *v = (const T *)g->w + (j - 1) * (m - 1) + i - 1,
                        *w = (const T *)g->w + (r - j - 1) * (m - 1) + i - 1;
                EACH {
                    T xr = v[0] * x[q] + v[1] * x[q + s], xi = v[0] * x[q + s] - v[1] * x[q];
                    T yr = w[0] * y[q] + w[1] * y[q + s], yi = w[0] * y[q + s] - w[1] * y[q];
                    p[j * s + q] = yr + xr, pi[j * s + q] = xi + yi, d[j * s + q] = xi - yi, di[j * s + q] = yr - xr;
                }
            }
            for (size_t t = 1; t <= h; t++) {
                T *x = WHOLE(i, 2 * t, k), *y = WHOLE(m - i - 2, 2 * t - 1, k);
                NAME(turn)(p, d, (const T *)g->u + 2 * h * (t - 1), h, s, a, b);
                NAME(turn)(pi, di, (const T *)g->u + 2 * h * (t - 1), h, s, c, e);
                EACH { x[q] = a[q] + b[q], y[q] = a[q] - b[q], x[q + s] = c[q] + e[q], y[q + s] = e[q] - c[q]; }
            }
            for (size_t j = 1; j <= h; j++)
                EACH p[q] += p[j * s + q], pi[q] += pi[j * s + q];
            T *x = WHOLE(i, 0, k);
            EACH x[q] = p[q], x[q + s] = pi[q];
        }
    }
}
static inline __attribute__((always_inline)) void NAME(split)(ARGS)
{
    size_t r = g->radix, h = r / 2;
    T p[NAME(ROWS)], d[NAME(ROWS)], pi[NAME(ROWS)], di[NAME(ROWS)], a[XL_FFT_LANES], b[XL_FFT_LANES], c[XL_FFT_LANES],
        e[XL_FFT_LANES];
    for (size_t k = 0; k < l; k++) {
        EACH p[q] = WHOLE(0, 0, k)[q];
        for (size_t j = 1; j <= h; j++) {
            const T *x = WHOLE(m - 1, 2 * j - 1, k), *y = WHOLE(0, 2 * j, k);
            EACH p[j * s + q] = 2 * x[q], d[j * s + q] = 2 * y[q];
        }
        for (size_t t = 1; t <= h; t++) {
            T *x = APART(0, k, t), *y = APART(0, k, r - t);
            NAME(turn)(p, d, (const T *)g->u + 2 * h * (t - 1), h, s, a, b);
            EACH y[q] = a[q] + b[q], x[q] = a[q] - b[q];
        }
        for (size_t j = 1; j <= h; j++)
            EACH p[q] += p[j * s + q];
        EACH APART(0, k, 0)[q] = p[q];
        for (size_t i = 1; i + 1 < m; i += 2) {
            const T *z = WHOLE(i, 0, k);
            EACH p[q] = z[q], pi[q] = z[q + s];
            for (size_t j = 1; j <= h; j++) {
                const T *x = WHOLE(i, 2 * j, k), *y = WHOLE(m - i - 2, 2 * j - 1, k);
                EACH {
                    p[j * s + q] = x[q] + y[q], d[j * s + q] = x[q] - y[q];
                    pi[j * s + q] = x[q + s] - y[q + s], di[j * s + q] = x[q + s] + y[q + s];
                }
            }
            for (size_t t = 1; t <= h; t++) {
                T *x = APART(i, k, t), *y = APART(i, k, r - t);
                const T *v = (const T *)g->w + (t - 1) * (m - 1) + i - 1,
                        *w = (const T *)g->w + (r - t - 1) * (m - 1) + i - 1;
                NAME(turn)(p, d, (const T *)g->u + 2 * h * (t - 1), h, s, a, b);
                NAME(turn)(pi, di, (const T *)g->u + 2 * h * (t - 1), h, s, c, e);
                EACH {
                    T xr = a[q] - e[q], yr = a[q] + e[q], xi = c[q] + b[q], yi = c[q] - b[q];
                    x[q] = v[0] * xr - v[1] * xi, x[q + s] = v[0] * xi + v[1] * xr;
                    y[q] = w[0] * yr - w[1] * yi, y[q + s] = w[0] * yi + w[1] * yr;
                }
            }
            for (size_t j = 1; j <= h; j++)
                EACH p[q] += p[j * s + q], pi[q] += pi[j * s + q];
            T *x = APART(i, k, 0);
            EACH x[q] = p[q], x[q + s] = pi[q];
        }
    }
}

/* All stages, from at[0]; gives where the result lies. */
static inline __attribute__((always_inline)) T *NAME(real_run)(const xl_fft_line *f, bool join, T *from, T *to,
                                                               size_t s)
{
    size_t n = (size_t)f->n, l = join ? n : 1;
    for (uint32_t i = 0; i < f->nfactor; i++) {
        const xl_fft_stage *g = &f->stage[join ? f->nfactor - 1 - i : i];
        size_t r = g->radix, m;
        l = join ? l / r : l;
        m = n / (r * l);
        T *apart = join ? from : to, *whole = join ? to : from;
        if (join)
            NAME(join)(g, apart, whole, m, l, s);
        else
            NAME(split)(g, apart, whole, m, l, s);
        l = join ? l : l * r;
        T *other = from;
        from = to, to = other;
    }
    return from;
}

static void NAME(real_lines)(const xl_fft_pass *p, const T *const *src, T *const *dst, size_t s, T *mem)
{
    const xl_fft_line *l = p->l;
    size_t n = (size_t)l->n;
    T scale = (T)p->scale, *x = mem, *at;
    for (size_t k = 0; k < n; k++)                         /* of a spectrum: what has no conjugate is real */
        EACH x[k * s + q] = p->real_in || k == 0 ? src[q][k] : src[q][k + 1];
    at = s == XL_FFT_LANES ? NAME(real_run)(l, p->real_in, x, x + n * s, XL_FFT_LANES)
                           : NAME(real_run)(l, p->real_in, x, x + n * s, s);
    if (p->real_out) {
        for (size_t k = 0; k < n; k++)
            EACH dst[q][k] = at[k * s + q] * scale;
        return;
    }
    EACH dst[q][0] = at[q] * scale, dst[q][1] = 0;
    for (size_t k = 1; k < n; k++)
        EACH dst[q][k + 1] = at[k * s + q] * scale;
}
#undef APART
#undef WHOLE
#undef EACH
#undef ARGS
#ifndef __clang__
#pragma GCC pop_options
#endif
