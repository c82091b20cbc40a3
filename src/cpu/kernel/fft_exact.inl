/* src/cpu/kernel/fft_exact.inl: the stages of a complex transform whose products are rounded before they are added, in
 * the order of FFTPACK: radix 2, 8 and the odd ones. A transform of these stages alone has the same bits as those of
 * the libraries that descend from it (pocketfft, DUCC: NumPy, SciPy and XLA's CPU). Included by fft.inl. */
#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif
#define STAGE_ARGS const T *restrict a, const T *restrict b, T *restrict c, T *restrict d, const T *w
#define SCALARS(p, i) ((p)[i])
/* Result j of rows p, times its factor; of the first rows the factors are 1. */
#define PUT(AT_, j, xr, xi)                                                                                   \
    if (p) {                                                                                                  \
        AT_(cr, q + (j) * s) = (xr) * w[2 * (j) - 2] - (xi) * w[2 * (j) - 1];                                 \
        AT_(ci, q + (j) * s) = (xr) * w[2 * (j) - 1] + (xi) * w[2 * (j) - 2];                                 \
    } else {                                                                                                  \
        AT_(cr, q + (j) * s) = (xr), AT_(ci, q + (j) * s) = (xi);                                             \
    }

#define TWO(E, SEE_, AT_)                                                                                     \
    E xr = SEE_(ar, q) - SEE_(ar, q + h), xi = SEE_(ai, q) - SEE_(ai, q + h);                                 \
    AT_(cr, q) = SEE_(ar, q) + SEE_(ar, q + h), AT_(ci, q) = SEE_(ai, q) + SEE_(ai, q + h);                   \
    PUT(AT_, 1, xr, xi)
static void NAME(two)(STAGE_ARGS, size_t m, size_t s)
{
    size_t h = s * m;
    for (size_t p = 0; p < m; p++, w += 2) {
        const T *ar = a + s * p, *ai = b + s * p;
        T *cr = c + s * 2 * p, *ci = d + s * 2 * p;
        size_t q = 0;
        for (; q + W <= s; q += W) {
            TWO(V, SEE, AT)
        }
        for (; q < s; q++) {
            TWO(T, SCALARS, SCALARS)
        }
    }
}
#undef TWO

/* By halves and quarters; the eighths of a turn are a quarter's sums times the root of a half. */
#define EIGHT(E, SEE_, AT_)                                                                                   \
    E r1 = SEE_(ar, q + h) + SEE_(ar, q + 5 * h), i1 = SEE_(ai, q + h) + SEE_(ai, q + 5 * h);                 \
    E r5 = SEE_(ar, q + h) - SEE_(ar, q + 5 * h), i5 = SEE_(ai, q + h) - SEE_(ai, q + 5 * h);                 \
    E r3 = SEE_(ar, q + 3 * h) + SEE_(ar, q + 7 * h), i3 = SEE_(ai, q + 3 * h) + SEE_(ai, q + 7 * h);         \
    E i7 = SEE_(ar, q + 7 * h) - SEE_(ar, q + 3 * h), r7 = SEE_(ai, q + 3 * h) - SEE_(ai, q + 7 * h);         \
    E t = r1 - r3, u = i1 - i3;                                                                               \
    r1 += r3, i1 += i3, r3 = u, i3 = -t;                                                                      \
    t = r5 - r7, u = i5 - i7, r5 += r7, i5 += i7;                                                             \
    E r0 = SEE_(ar, q) + SEE_(ar, q + 4 * h), i0 = SEE_(ai, q) + SEE_(ai, q + 4 * h);                         \
    E r4 = SEE_(ar, q) - SEE_(ar, q + 4 * h), i4 = SEE_(ai, q) - SEE_(ai, q + 4 * h);                         \
    E r2 = SEE_(ar, q + 2 * h) + SEE_(ar, q + 6 * h), i2 = SEE_(ai, q + 2 * h) + SEE_(ai, q + 6 * h);         \
    E i6 = SEE_(ar, q + 6 * h) - SEE_(ar, q + 2 * h), r6 = SEE_(ai, q + 2 * h) - SEE_(ai, q + 6 * h);         \
    E x = r5, y = i5;                                                                                         \
    r5 = root * (x + y), i5 = root * (y - x), r7 = root * (u - t), i7 = root * (-t - u);                      \
    AT_(cr, q) = (r0 + r2) + r1, AT_(ci, q) = (i0 + i2) + i1;                                                 \
    PUT(AT_, 4, (r0 + r2) - r1, (i0 + i2) - i1)                                                               \
    PUT(AT_, 2, (r0 - r2) + r3, (i0 - i2) + i3)                                                               \
    PUT(AT_, 6, (r0 - r2) - r3, (i0 - i2) - i3)                                                               \
    PUT(AT_, 1, (r4 + r6) + r5, (i4 + i6) + i5)                                                               \
    PUT(AT_, 5, (r4 + r6) - r5, (i4 + i6) - i5)                                                               \
    PUT(AT_, 3, (r4 - r6) + r7, (i4 - i6) + i7)                                                               \
    PUT(AT_, 7, (r4 - r6) - r7, (i4 - i6) - i7)
static void NAME(eight)(STAGE_ARGS, size_t m, size_t s)
{
    const T root = (T)0.707106781186547524400844362104849L;
    size_t h = s * m;
    for (size_t p = 0; p < m; p++, w += 14) {
        const T *ar = a + s * p, *ai = b + s * p;
        T *cr = c + s * 8 * p, *ci = d + s * 8 * p;
        size_t q = 0;
        for (; q + W <= s; q += W) {
            EIGHT(V, SEE, AT)
        }
        for (; q < s; q++) {
            EIGHT(T, SCALARS, SCALARS)
        }
    }
}
#undef EIGHT

/* An odd radix: elements k and r - k together, whose factors are conjugates. `u` has cos and -sin of 2 pi k / r. From
 * 13 on, products are added in pairs after the second. */
#define ODD(E, SEE_, AT_)                                                                                     \
    E tr[16], ti[16], dr[16], di[16], zr = SEE_(ar, q), zi = SEE_(ai, q), sr = zr, si = zi;                   \
    for (size_t k = 1; k <= r / 2; k++) {                                                                     \
        E xr = SEE_(ar, q + k * h), xi = SEE_(ai, q + k * h), yr = SEE_(ar, q + (r - k) * h),                 \
          yi = SEE_(ai, q + (r - k) * h);                                                                     \
        tr[k] = xr + yr, ti[k] = xi + yi, dr[k] = xr - yr, di[k] = xi - yi;                                   \
        sr += tr[k], si += ti[k];                                                                             \
    }                                                                                                         \
    AT_(cr, q) = sr, AT_(ci, q) = si;                                                                         \
    for (size_t j = 1; j <= r / 2; j++) {                                                                     \
        const T *f = u + 2 * j;                                                                               \
        E er = zr + f[0] * tr[1], ei = zi + f[0] * ti[1], gr = f[1] * di[1], gi = f[1] * dr[1];               \
        size_t k = 2, at = 2 * j % r;                                                                         \
        for (; k <= r / 2 && (r < 13 || k == 2); k++, at = (at + j) % r) {                                    \
            f = u + 2 * at;                                                                                   \
            er += f[0] * tr[k], ei += f[0] * ti[k], gr += f[1] * di[k], gi += f[1] * dr[k];                   \
        }                                                                                                     \
        for (; k < r / 2; k += 2, at = (at + j) % r) {                                                        \
            const T *o = u + 2 * at;                                                                          \
            at = (at + j) % r, f = u + 2 * at;                                                                \
            er += o[0] * tr[k] + f[0] * tr[k + 1], ei += o[0] * ti[k] + f[0] * ti[k + 1];                     \
            gr += o[1] * di[k] + f[1] * di[k + 1], gi += o[1] * dr[k] + f[1] * dr[k + 1];                     \
        }                                                                                                     \
        if (k == r / 2) {                                                                                     \
            f = u + 2 * at;                                                                                   \
            er += f[0] * tr[k], ei += f[0] * ti[k], gr += f[1] * di[k], gi += f[1] * dr[k];                   \
        }                                                                                                     \
        PUT(AT_, j, er - gr, ei + gi)                                                                         \
        PUT(AT_, r - j, er + gr, ei - gi)                                                                     \
    }
__attribute__((always_inline)) static inline void NAME(odd_of)(size_t r, STAGE_ARGS, const T *u, size_t m, size_t s)
{
    size_t h = s * m;
    for (size_t p = 0; p < m; p++, w += 2 * (r - 1)) {
        const T *ar = a + s * p, *ai = b + s * p;
        T *cr = c + s * r * p, *ci = d + s * r * p;
        size_t q = 0;
        for (; q + W <= s; q += W) {
            ODD(V, SEE, AT)
        }
        for (; q < s; q++) {
            ODD(T, SCALARS, SCALARS)
        }
    }
}
#undef ODD
static void NAME(odd)(STAGE_ARGS, const T *u, size_t r, size_t m, size_t s)
{
    if (r == 3)
        NAME(odd_of)(3, a, b, c, d, w, u, m, s);
    else if (r == 5)
        NAME(odd_of)(5, a, b, c, d, w, u, m, s);
    else
        NAME(odd_of)(r, a, b, c, d, w, u, m, s);
}
#undef PUT
#undef SCALARS
#undef STAGE_ARGS
#ifdef __clang__
#pragma clang fp contract(fast)
#else
#pragma GCC pop_options
#endif
