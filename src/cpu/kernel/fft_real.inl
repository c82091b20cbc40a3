/* src/cpu/kernel/fft_real.inl: transforms between reals and half a spectrum, in stages on real numbers: half the work
 * of a complex transform. Included by fft.inl. A spectrum of n points is stored as r0, r1, i1, r2, i2, ...; a stage of
 * radix r joins l groups of r spectra of m = n / (r l) points into l spectra of r m points, or splits them again. Every
 * element is s numbers, one per line.
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

/* The same for radix 2 and 4; the middle number of an even m has half a turn. L and P read and write element i of a row
 * at q: of vectors of lines, then of the lines that are left. */
#define ROWS_OF(BODY)                                                                                         \
    {                                                                                                         \
        size_t q = 0;                                                                                         \
        for (; q + W <= s; q += W) {                                                                          \
            BODY(V, SEE, AT)                                                                                  \
        }                                                                                                     \
        for (; q < s; q++) {                                                                                  \
            BODY(T, SCALARS, SCALARS)                                                                         \
        }                                                                                                     \
    }
#define SCALARS(p, i) ((p)[i])
#define SUM_AND_DIFFERENCE(E, L, P)                                                                           \
    E xr = L(x, q), yr = L(y, q);                                                                             \
    P(a, q) = xr + yr, P(b, q) = xr - yr;
#define JOIN_TWO(E, L, P)                                                                                              \
    E yr = w[0] * L(y, q) + w[1] * L(y, q + s), yi = w[0] * L(y, q + s) - w[1] * L(y, q), xr = L(x, q),                \
      xi = L(x, q + s);                                                                                                \
    P(a, q) = xr + yr, P(b, q) = xr - yr, P(a, q + s) = yi + xi, P(b, q + s) = yi - xi;
#define SPLIT_TWO(E, L, P)                                                                                    \
    E zr = L(x, q) - L(y, q), zi = L(x, q + s) + L(y, q + s), xr = L(x, q) + L(y, q), xi = L(x, q + s) - L(y, q + s); \
    P(a, q) = xr, P(a, q + s) = xi, P(b, q + s) = w[0] * zi + w[1] * zr, P(b, q) = w[0] * zr - w[1] * zi;
static inline __attribute__((always_inline)) void NAME(join_two)(ARGS)
{
    const size_t r = 2;
    for (size_t k = 0; k < l; k++) {
        const T *x = APART(0, k, 0), *y = APART(0, k, 1);
        T *a = WHOLE(0, 0, k), *b = WHOLE(m - 1, 1, k);
        ROWS_OF(SUM_AND_DIFFERENCE)
        if (m % 2 == 0) {
            x = APART(m - 1, k, 0), y = APART(m - 1, k, 1);
            EACH WHOLE(0, 1, k)[q] = -y[q], WHOLE(m - 1, 0, k)[q] = x[q];
        }
        for (size_t i = 1; i + 1 < m; i += 2) {
            const T *w = (const T *)g->w + i - 1;
            a = WHOLE(i, 0, k), b = WHOLE(m - i - 2, 1, k);
            x = APART(i, k, 0), y = APART(i, k, 1);
            ROWS_OF(JOIN_TWO)
        }
    }
}
static inline __attribute__((always_inline)) void NAME(split_two)(ARGS)
{
    const size_t r = 2;
    for (size_t k = 0; k < l; k++) {
        const T *x = WHOLE(0, 0, k), *y = WHOLE(m - 1, 1, k);
        T *a = APART(0, k, 0), *b = APART(0, k, 1);
        ROWS_OF(SUM_AND_DIFFERENCE)
        if (m % 2 == 0) {
            x = WHOLE(m - 1, 0, k), y = WHOLE(0, 1, k);
            EACH APART(m - 1, k, 0)[q] = 2 * x[q], APART(m - 1, k, 1)[q] = -2 * y[q];
        }
        for (size_t i = 1; i + 1 < m; i += 2) {
            const T *w = (const T *)g->w + i - 1;
            a = APART(i, k, 0), b = APART(i, k, 1);
            x = WHOLE(i, 0, k), y = WHOLE(m - i - 2, 1, k);
            ROWS_OF(SPLIT_TWO)
        }
    }
}
#define JOIN_FIRST(E, L, P)                                                                                   \
    E odd = L(x3, q) + L(x1, q), even = L(x0, q) + L(x2, q), left = L(x3, q) - L(x1, q), rest = L(x0, q) - L(x2, q); \
    P(c, q) = left, P(b, q) = rest, P(a, q) = even + odd, P(d, q) = even - odd;
#define JOIN_MIDDLE(E, L, P)                                                                                  \
    E im = -root * (L(x1, q) + L(x3, q)), re = root * (L(x1, q) - L(x3, q)), xr = L(x0, q), xi = L(x2, q);     \
    P(a, q) = xr + re, P(c, q) = xr - re, P(d, q) = im + xi, P(b, q) = im - xi;
#define JOIN_FOUR(E, L, P)                                                                                    \
    E cr2 = u[0] * L(x1, q) + u[1] * L(x1, q + s), ci2 = u[0] * L(x1, q + s) - u[1] * L(x1, q);               \
    E cr3 = v[0] * L(x2, q) + v[1] * L(x2, q + s), ci3 = v[0] * L(x2, q + s) - v[1] * L(x2, q);               \
    E cr4 = w[0] * L(x3, q) + w[1] * L(x3, q + s), ci4 = w[0] * L(x3, q + s) - w[1] * L(x3, q);               \
    E r1 = cr4 + cr2, r4 = cr4 - cr2, i1 = ci2 + ci4, i4 = ci2 - ci4, xr = L(x0, q), xi = L(x0, q + s);       \
    E r2 = xr + cr3, r3 = xr - cr3, i2 = xi + ci3, i3 = xi - ci3;                                             \
    P(a, q) = r2 + r1, P(d, q) = r2 - r1, P(a, q + s) = i1 + i2, P(d, q + s) = i1 - i2;                       \
    P(c, q) = r3 + i4, P(b, q) = r3 - i4, P(c, q + s) = r4 + i3, P(b, q + s) = r4 - i3;
static inline __attribute__((always_inline)) void NAME(join_four)(ARGS)
{
    const size_t r = 4;
    const T root = (T)0.707106781186547524400844362104849L;
    for (size_t k = 0; k < l; k++) {
        const T *x0 = APART(0, k, 0), *x1 = APART(0, k, 1), *x2 = APART(0, k, 2), *x3 = APART(0, k, 3);
        T *a = WHOLE(0, 0, k), *b = WHOLE(m - 1, 1, k), *c = WHOLE(0, 2, k), *d = WHOLE(m - 1, 3, k);
        ROWS_OF(JOIN_FIRST)
        if (m % 2 == 0) {
            x0 = APART(m - 1, k, 0), x1 = APART(m - 1, k, 1), x2 = APART(m - 1, k, 2), x3 = APART(m - 1, k, 3);
            a = WHOLE(m - 1, 0, k), b = WHOLE(0, 1, k), c = WHOLE(m - 1, 2, k), d = WHOLE(0, 3, k);
            ROWS_OF(JOIN_MIDDLE)
        }
        for (size_t i = 1; i + 1 < m; i += 2) {
            const T *u = (const T *)g->w + i - 1, *v = u + (m - 1), *w = v + (m - 1);
            a = WHOLE(i, 0, k), b = WHOLE(m - i - 2, 1, k), c = WHOLE(i, 2, k), d = WHOLE(m - i - 2, 3, k);
            x0 = APART(i, k, 0), x1 = APART(i, k, 1), x2 = APART(i, k, 2), x3 = APART(i, k, 3);
            ROWS_OF(JOIN_FOUR)
        }
    }
}
#define SPLIT_FIRST(E, L, P)                                                                                  \
    E r2 = L(x0, q) + L(x3, q), r1 = L(x0, q) - L(x3, q), r3 = 2 * L(x1, q), r4 = 2 * L(x2, q);               \
    P(a, q) = r2 + r3, P(c, q) = r2 - r3, P(d, q) = r1 + r4, P(b, q) = r1 - r4;
#define SPLIT_MIDDLE(E, L, P)                                                                                 \
    E i1 = L(x3, q) + L(x1, q), i2 = L(x3, q) - L(x1, q), r2 = L(x0, q) + L(x2, q), r1 = L(x0, q) - L(x2, q); \
    P(a, q) = r2 + r2, P(b, q) = twice * (r1 - i1), P(c, q) = i2 + i2, P(d, q) = -twice * (r1 + i1);
#define SPLIT_FOUR(E, L, P)                                                                                   \
    E r2 = L(x0, q) + L(x3, q), r1 = L(x0, q) - L(x3, q), i1 = L(x0, q + s) + L(x3, q + s);                   \
    E i2 = L(x0, q + s) - L(x3, q + s), r4 = L(x2, q + s) + L(x1, q + s), i3 = L(x2, q + s) - L(x1, q + s);   \
    E r3 = L(x2, q) + L(x1, q), i4 = L(x2, q) - L(x1, q), cr3 = r2 - r3, ci3 = i2 - i3;                       \
    E cr4 = r1 + r4, cr2 = r1 - r4, ci2 = i1 + i4, ci4 = i1 - i4;                                             \
    P(a, q) = r2 + r3, P(a, q + s) = i2 + i3;                                                                 \
    P(b, q + s) = u[0] * ci2 + u[1] * cr2, P(b, q) = u[0] * cr2 - u[1] * ci2;                                 \
    P(c, q + s) = v[0] * ci3 + v[1] * cr3, P(c, q) = v[0] * cr3 - v[1] * ci3;                                 \
    P(d, q + s) = w[0] * ci4 + w[1] * cr4, P(d, q) = w[0] * cr4 - w[1] * ci4;
static inline __attribute__((always_inline)) void NAME(split_four)(ARGS)
{
    const size_t r = 4;
    const T twice = (T)1.414213562373095048801688724209698L;
    for (size_t k = 0; k < l; k++) {
        const T *x0 = WHOLE(0, 0, k), *x1 = WHOLE(m - 1, 1, k), *x2 = WHOLE(0, 2, k), *x3 = WHOLE(m - 1, 3, k);
        T *a = APART(0, k, 0), *b = APART(0, k, 1), *c = APART(0, k, 2), *d = APART(0, k, 3);
        ROWS_OF(SPLIT_FIRST)
        if (m % 2 == 0) {
            x0 = WHOLE(m - 1, 0, k), x1 = WHOLE(0, 1, k), x2 = WHOLE(m - 1, 2, k), x3 = WHOLE(0, 3, k);
            a = APART(m - 1, k, 0), b = APART(m - 1, k, 1), c = APART(m - 1, k, 2), d = APART(m - 1, k, 3);
            ROWS_OF(SPLIT_MIDDLE)
        }
        for (size_t i = 1; i + 1 < m; i += 2) {
            const T *u = (const T *)g->w + i - 1, *v = u + (m - 1), *w = v + (m - 1);
            a = APART(i, k, 0), b = APART(i, k, 1), c = APART(i, k, 2), d = APART(i, k, 3);
            x0 = WHOLE(i, 0, k), x1 = WHOLE(m - i - 2, 1, k), x2 = WHOLE(i, 2, k), x3 = WHOLE(m - i - 2, 3, k);
            ROWS_OF(SPLIT_FOUR)
        }
    }
}
#undef ROWS_OF
#undef SCALARS
#undef SUM_AND_DIFFERENCE
#undef JOIN_TWO
#undef SPLIT_TWO
#undef JOIN_FIRST
#undef JOIN_MIDDLE
#undef JOIN_FOUR
#undef SPLIT_FIRST
#undef SPLIT_MIDDLE
#undef SPLIT_FOUR

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
        if (r == 2 && join)
            NAME(join_two)(g, apart, whole, m, l, s);
        else if (r == 2)
            NAME(split_two)(g, apart, whole, m, l, s);
        else if (r == 4 && join)
            NAME(join_four)(g, apart, whole, m, l, s);
        else if (r == 4)
            NAME(split_four)(g, apart, whole, m, l, s);
        else if (join)
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
    if (n % 2 == 0)
        EACH dst[q][n + 1] = 0;
}
#undef APART
#undef WHOLE
#undef EACH
#undef ARGS
#ifndef __clang__
#pragma GCC pop_options
#endif
