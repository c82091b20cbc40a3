/* src/cpu/kernel/fft.inl: the stages of a transform, and loading and storing its lines (fft.h). Define T and NAME
 * before including. Stockham's order: a stage of radix r takes n = r m points, each a row of s numbers (initially
 * `lanes`, one per line), and leaves m points in rows of r s numbers, so the inner loops get longer with each stage. */
typedef T NAME(vec) __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
#define V NAME(vec)
#define AT(p, i) (*(V *)((p) + (i)))
#define SEE(p, i) (*(const V *)((p) + (i)))

#include "cpu/kernel/fft_exact.inl"

/* The four results of a butterfly, before their factors. */
#define BUTTERFLY(E, AR, AI)                                                                                  \
    E pr = AR(0) + AR(2), pi = AI(0) + AI(2), mr = AR(0) - AR(2), mi = AI(0) - AI(2);                         \
    E sr = AR(1) + AR(3), si = AI(1) + AI(3), dr = AR(1) - AR(3), di = AI(1) - AI(3);                         \
    E xr = mr + di, xi = mi - dr, yr = pr - sr, yi = pi - si, zr = mr - di, zi = mi + dr;
static void NAME(four)(const T *restrict a, const T *restrict b, T *restrict c, T *restrict d, const T *w, size_t m,
                       size_t s)
{
    size_t h = s * m;
    for (size_t p = 0; p < m; p++, w += 6) {
        const T *ar = a + s * p, *ai = b + s * p;
        T *cr = c + s * 4 * p, *ci = d + s * 4 * p, w1r = w[0], w1i = w[1], w2r = w[2], w2i = w[3], w3r = w[4],
          w3i = w[5];
        size_t q = 0;
#define AR(j) SEE(ar, q + j * h)
#define AI(j) SEE(ai, q + j * h)
        for (; p == 0 && q + W <= s; q += W) {               /* whose factors are 1 */
            BUTTERFLY(V, AR, AI)
            AT(cr, q) = pr + sr, AT(ci, q) = pi + si;
            AT(cr, q + s) = xr, AT(ci, q + s) = xi;
            AT(cr, q + 2 * s) = yr, AT(ci, q + 2 * s) = yi;
            AT(cr, q + 3 * s) = zr, AT(ci, q + 3 * s) = zi;
        }
        for (; q + W <= s; q += W) {
            BUTTERFLY(V, AR, AI)
            AT(cr, q) = pr + sr, AT(ci, q) = pi + si;
            AT(cr, q + s) = xr * w1r - xi * w1i, AT(ci, q + s) = xr * w1i + xi * w1r;
            AT(cr, q + 2 * s) = yr * w2r - yi * w2i, AT(ci, q + 2 * s) = yr * w2i + yi * w2r;
            AT(cr, q + 3 * s) = zr * w3r - zi * w3i, AT(ci, q + 3 * s) = zr * w3i + zi * w3r;
        }
#undef AR
#undef AI
#define AR(j) ar[q + j * h]
#define AI(j) ai[q + j * h]
        for (; q < s; q++) {
            BUTTERFLY(T, AR, AI)
            cr[q] = pr + sr, ci[q] = pi + si;
            cr[q + s] = xr * w1r - xi * w1i, ci[q + s] = xr * w1i + xi * w1r;
            cr[q + 2 * s] = yr * w2r - yi * w2i, ci[q + 2 * s] = yr * w2i + yi * w2r;
            cr[q + 3 * s] = zr * w3r - zi * w3i, ci[q + 3 * s] = zr * w3i + zi * w3r;
        }
#undef AR
#undef AI
    }
}
/* A stage of one line whose rows are shorter than a vector, s = 1 or 4: vectors run on over the rows, and results lie
 * by turns. w: the factors of every element, six planes of n / 4. */
#define FIRST(name, low, high)                                                                                \
static void NAME(name)(const T *restrict a, const T *restrict b, T *restrict c, T *restrict d, const T *w, size_t h)  \
{                                                                                                             \
    for (size_t q = 0; q < h; q += W) {                                                                       \
        BUTTERFLY(V, AR, AI)                                                                                  \
        V w1r = SEE(w, q), w1i = SEE(w, q + h), w2r = SEE(w, q + 2 * h), w2i = SEE(w, q + 3 * h),             \
          w3r = SEE(w, q + 4 * h), w3i = SEE(w, q + 5 * h);                                                   \
        V e0 = pr + sr, f0 = pi + si, e1 = xr * w1r - xi * w1i, f1 = xr * w1i + xi * w1r;                     \
        V e2 = yr * w2r - yi * w2i, f2 = yr * w2i + yi * w2r, e3 = zr * w3r - zi * w3i, f3 = zr * w3i + zi * w3r; \
        V g0 = PICK(e0, e2, low), g1 = PICK(e0, e2, high), h0 = PICK(e1, e3, low), h1 = PICK(e1, e3, high);   \
        AT(c, 4 * q) = PICK(g0, h0, low), AT(c, 4 * q + W) = PICK(g0, h0, high);                              \
        AT(c, 4 * q + 2 * W) = PICK(g1, h1, low), AT(c, 4 * q + 3 * W) = PICK(g1, h1, high);                  \
        g0 = PICK(f0, f2, low), g1 = PICK(f0, f2, high), h0 = PICK(f1, f3, low), h1 = PICK(f1, f3, high);     \
        AT(d, 4 * q) = PICK(g0, h0, low), AT(d, 4 * q + W) = PICK(g0, h0, high);                              \
        AT(d, 4 * q + 2 * W) = PICK(g1, h1, low), AT(d, 4 * q + 3 * W) = PICK(g1, h1, high);                  \
    }                                                                                                         \
}
#define AR(j) SEE(a, q + j * h)
#define AI(j) SEE(b, q + j * h)
FIRST(first, LOW_, HIGH_)
#if W > 4
FIRST(second, LOW4_, HIGH4_)
#endif
#undef AR
#undef AI
#undef FIRST
#undef BUTTERFLY

/* Gives 0 if the result lies in re[0] and im[0], 1 if in the others. */
static int NAME(run)(const xl_fft_line *f, void *const re[2], void *const im[2], size_t lanes)
{
    const T *w = f->w;
    size_t n = (size_t)f->m, s = lanes;
    int at = 0;
    for (uint32_t i = 0; i < f->nfactor; i++, at ^= 1) {
        size_t r = f->factor[i], m = n / r;
        if (lanes == 1 && f->each && i == 0) {
            NAME(first)(re[at], im[at], re[!at], im[!at], f->each, m);
#if W > 4
        } else if (lanes == 1 && f->each && i == 1) {
            NAME(second)(re[at], im[at], re[!at], im[!at], (const T *)f->each + 6 * 4 * m, 4 * m);
#endif
        } else if (r == 4) {
            NAME(four)(re[at], im[at], re[!at], im[!at], w, m, s);
        } else if (r == 8) {
            NAME(eight)(re[at], im[at], re[!at], im[!at], w, m, s);
        } else if (r == 2) {
            NAME(two)(re[at], im[at], re[!at], im[!at], w, m, s);
        } else {
            NAME(odd)(re[at], im[at], re[!at], im[!at], w + 2 * r, w, r, m, s);
            w += 2 * r;
        }
        w += 2 * m * (r - 1);
        n = m;
        s *= r;
    }
    return at;
}

/* ---- lines ---- */
/* Element k of every lane, which begins at from[q] or, side by side, at from[0] + q; then the next. */
static void NAME(load)(const xl_fft_pass *p, const T *const *from, bool beside, T *re, T *im, size_t lanes)
{
    T *to[2] = { p->inverse ? im : re,
                 p->inverse ? re : im }; /* the inverse is the transform with both parts exchanged */
    int64_t k = 0;
    for (; lanes == 1 && p->inner == 1 && !p->real_in && k + W <= p->sn; k += W) {
        V x = SEE(from[0], 2 * k), y = SEE(from[0], 2 * k + W);
        AT(to[0], k) = PICK(x, y, EVEN_), AT(to[1], k) = PICK(x, y, ODD_);
    }
    for (; k < p->sn; k++) {
        T *restrict yr = to[0] + (size_t)k * lanes, *restrict yi = to[1] + (size_t)k * lanes;
        int64_t at = k * p->inner * (p->real_in ? 1 : 2);
        if (p->real_in && beside)
            for (size_t q = 0; q < lanes; q++)
                yr[q] = from[0][at + (int64_t)q], yi[q] = 0;
        else if (p->real_in)
            for (size_t q = 0; q < lanes; q++)
                yr[q] = from[q][at], yi[q] = 0;
        else if (beside && lanes % W == 0)
            for (size_t q = 0; q < lanes; q += W) {
                V x = SEE(from[0] + at, 2 * q), y = SEE(from[0] + at, 2 * q + W);
                AT(yr, q) = PICK(x, y, EVEN_), AT(yi, q) = PICK(x, y, ODD_);
            }
        else if (beside)
            for (size_t q = 0; q < lanes; q++)
                yr[q] = from[0][at + 2 * (int64_t)q], yi[q] = from[0][at + 2 * (int64_t)q + 1];
        else
            for (size_t q = 0; q < lanes; q++)
                yr[q] = from[q][at], yi[q] = from[q][at + 1];
    }
    if (!p->half)
        return;
    int64_t n = p->l->n;                                   /* the other half are conjugates; what has none is real */
    for (size_t q = 0; q < lanes; q++) {
        to[1][q] = 0;
        if (n % 2 == 0)
            to[1][(size_t)(n / 2) * lanes + q] = 0;
    }
    for (k = n / 2 + 1; k < n; k++)
        for (size_t q = 0; q < lanes; q++) {
            to[0][(size_t)k * lanes + q] = to[0][(size_t)(n - k) * lanes + q];
            to[1][(size_t)k * lanes + q] = -to[1][(size_t)(n - k) * lanes + q];
        }
}
static void NAME(store)(const xl_fft_pass *p, T *const *dst, bool beside, const T *re, const T *im, size_t lanes)
{
    const T *from[2] = { p->inverse ? im : re, p->inverse ? re : im };
    T scale = (T)p->scale;
    int64_t k = 0;
    for (; lanes == 1 && p->inner == 1 && !p->real_out && k + W <= p->dn; k += W) {
        V x = SEE(from[0], k) * scale, y = SEE(from[1], k) * scale;
        AT(dst[0], 2 * k) = PICK(x, y, LOW_), AT(dst[0], 2 * k + W) = PICK(x, y, HIGH_);
    }
    for (; k < p->dn; k++) {
        const T *xr = from[0] + (size_t)k * lanes, *xi = from[1] + (size_t)k * lanes;
        int64_t at = k * p->inner * (p->real_out ? 1 : 2);
        if (p->real_out)
            for (size_t q = 0; q < lanes; q++)
                (beside ? dst[0] + q : dst[q])[at] = xr[q] * scale;
        else if (beside && lanes % W == 0)
            for (size_t q = 0; q < lanes; q += W) {
                V x = SEE(xr, q) * scale, y = SEE(xi, q) * scale;
                AT(dst[0] + at, 2 * q) = PICK(x, y, LOW_), AT(dst[0] + at, 2 * q + W) = PICK(x, y, HIGH_);
            }
        else if (beside)
            for (size_t q = 0; q < lanes; q++)
                dst[0][at + 2 * (int64_t)q] = xr[q] * scale, dst[0][at + 2 * (int64_t)q + 1] = xi[q] * scale;
        else
            for (size_t q = 0; q < lanes; q++)
                dst[q][at] = xr[q] * scale, dst[q][at + 1] = xi[q] * scale;
    }
}

static void NAME(times)(T *re, T *im, const T *w, int64_t n, size_t lanes)
{
    for (int64_t k = 0; k < n; k++, re += lanes, im += lanes)
        for (size_t q = 0; q < lanes; q++) {
            T x = re[q] * w[2 * k] - im[q] * w[2 * k + 1];
            im[q] = re[q] * w[2 * k + 1] + im[q] * w[2 * k];
            re[q] = x;
        }
}
/* `lanes` lines of a length with large prime factors: a convolution with a chirp, by transforms of a power of two. */
static int NAME(bluestein)(const xl_fft_line *l, void *const re[2], void *const im[2], size_t lanes)
{
    size_t rest = (size_t)(l->m - l->n) * lanes;
    NAME(times)(re[0], im[0], l->chirp, l->n, lanes);
    memset((T *)re[0] + (size_t)l->n * lanes, 0, rest * sizeof(T));
    memset((T *)im[0] + (size_t)l->n * lanes, 0, rest * sizeof(T));
    int at = NAME(run)(l, re, im, lanes);
    NAME(times)(re[at], im[at], l->kernel, l->m, lanes);
    void *const r[2] = { im[at], im[!at] }, *const i[2] = { re[at], re[!at] };
    at ^= NAME(run)(l, r, i, lanes);
    NAME(times)(re[at], im[at], l->chirp, l->n, lanes);
    return at;
}

#include "cpu/kernel/fft_real.inl"

static void NAME(lines)(const xl_fft_pass *p, int64_t first, int64_t lanes, void *memory)
{
    const xl_fft_line *l = p->l;
    T *mem = memory, *to[XL_FFT_LANES];
    const T *from[XL_FFT_LANES];
    size_t plane = (size_t)(l->m * lanes);
    void *const re[2] = { mem, mem + plane }, *const im[2] = { mem + 2 * plane, mem + 3 * plane };
    bool beside = first % p->inner + lanes <= p->inner;
    for (int64_t q = 0; q < lanes; q++) {
        int64_t o = (first + q) / p->inner, i = (first + q) % p->inner;
        from[q] = (const T *)p->src + (o * p->sn * p->inner + i) * (p->real_in ? 1 : 2);
        to[q] = (T *)p->dst + (o * p->dn * p->inner + i) * (p->real_out ? 1 : 2);
    }
    if (l->stage) {
        NAME(real_lines)(p, from, to, (size_t)lanes, mem);
        return;
    }
    NAME(load)(p, from, beside, re[0], im[0], (size_t)lanes);
    int at = l->chirp ? NAME(bluestein)(l, re, im, (size_t)lanes) : NAME(run)(l, re, im, (size_t)lanes);
    if (p->real_in && l->n) {                              /* what has no conjugate is real, and not by rounding */
        memset(im[at], 0, (size_t)lanes * sizeof(T));
        if (l->n % 2 == 0)
            memset((T *)im[at] + (size_t)(l->n / 2 * lanes), 0, (size_t)lanes * sizeof(T));
    }
    NAME(store)(p, to, beside, re[at], im[at], (size_t)lanes);
}
#undef AT
#undef SEE
#undef V
#undef W
#undef T
#undef NAME
