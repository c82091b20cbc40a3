/* The real Schur form of a real matrix: Hessenberg form by reflections, then Francis' steps with two shifts at once, and every block of two rows
 * that is left turned so that it is either triangular or has equal diagonal elements. Eigenvalues come out in LAPACK's order, because
 * shifts, tests for small elements and signs of reflections are chosen as is usual there. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "cpu/kernel/linalg.h"

enum { ROUNDS = 30 };                                      /* per eigenvalue, on the average */

typedef struct { double *t, *z; int64_t n; } form;
#define T(i, j) s->t[(i) * s->n + (j)]

/* v[0..m) = (1, ...) and tau such that (1 - tau v v^T) x = (beta, 0, ...): gives beta. */
static double reflect(double *v, int64_t m, double *tau)
{
    double rest = 0;
    for (int64_t i = 1; i < m; i++)
        rest = hypot(rest, v[i]);
    double alpha = v[0];
    *tau = 0;
    v[0] = 1;
    if (rest == 0)
        return alpha;
    double beta = -copysign(hypot(alpha, rest), alpha);
    *tau = (beta - alpha) / beta;
    for (int64_t i = 1; i < m; i++)
        v[i] /= alpha - beta;
    return beta;
}

/* (1 - tau v v^T) on rows at.. of columns [from, n), then on columns at.. of rows [0, to), and of z. */
static void apply(form *s, const double *v, int64_t m, double tau, int64_t at, int64_t from, int64_t to)
{
    int64_t n = s->n;
    for (int64_t j = from; j < n; j++) {
        double w = 0;
        for (int64_t i = 0; i < m; i++)
            w += v[i] * T(at + i, j);
        for (int64_t i = 0; i < m; i++)
            T(at + i, j) -= tau * w * v[i];
    }
    for (int64_t which = 0; which < 2; which++) {
        double *a = which ? s->z : s->t;
        for (int64_t i = 0; i < (which ? n : to); i++) {
            double *row = a + i * n + at, w = 0;
            for (int64_t j = 0; j < m; j++)
                w += v[j] * row[j];
            for (int64_t j = 0; j < m; j++)
                row[j] -= tau * w * v[j];
        }
    }
}

static void to_hessenberg(form *s, double *v)
{
    int64_t n = s->n;
    for (int64_t k = 0; k + 2 < n; k++) {
        int64_t m = n - k - 1;
        double tau;
        for (int64_t i = 0; i < m; i++)
            v[i] = T(k + 1 + i, k);
        double beta = reflect(v, m, &tau);
        T(k + 1, k) = beta;
        for (int64_t i = 1; i < m; i++)
            T(k + 1 + i, k) = 0;
        apply(s, v, m, tau, k + 1, k + 1, n);
    }
}

/* The rotation that standardises (a b; c d); the block becomes what it makes of it. */
static void standardise(double *pa, double *pb, double *pc, double *pd, double *cs, double *sn)
{
    double a = *pa, b = *pb, c = *pc, d = *pd;
    *cs = 1;
    *sn = 0;
    if (c == 0)
        return;
    if (b == 0) {                                          /* the other way round it is triangular */
        *cs = 0;
        *sn = 1;
        *pa = d;
        *pd = a;
        *pb = -c;
        *pc = 0;
        return;
    }
    double gap = a - d;
    if (gap == 0 && signbit(b) != signbit(c))
        return;
    double p = gap / 2, large = fmax(fabs(b), fabs(c)), small = fmin(fabs(b), fabs(c)) * copysign(1, b) * copysign(1, c);
    double scale = fmax(fabs(p), large), disc = p / scale * p + large / scale * small;
    if (disc >= 4 * DBL_EPSILON) {                         /* two real eigenvalues, well apart */
        double z = p + copysign(sqrt(scale) * sqrt(disc), p), r = hypot(c, z);
        *cs = z / r;
        *sn = c / r;
        *pa = d + z;
        *pd = d - large / z * small;
        *pb = b - c;
        *pc = 0;
        return;
    }
    double sum = b + c, r = hypot(sum, gap);               /* a pair, or nearly equal: make the diagonal equal */
    *cs = sqrt((1 + fabs(sum) / r) / 2);
    *sn = -(p / (r * *cs)) * copysign(1, sum);
    double aa = a * *cs + b * *sn, bb = b * *cs - a * *sn, cc = c * *cs + d * *sn, dd = d * *cs - c * *sn;
    a = aa * *cs + cc * *sn;
    b = bb * *cs + dd * *sn;
    c = cc * *cs - aa * *sn;
    d = dd * *cs - bb * *sn;
    double mid = (a + d) / 2;
    a = d = mid;
    if (c != 0 && b == 0) {
        double t = *cs;
        b = -c;
        c = 0;
        *cs = -*sn;
        *sn = t;
    } else if (c != 0 && signbit(b) == signbit(c)) {       /* real after all */
        double sb = sqrt(fabs(b)), sc = sqrt(fabs(c)), q = copysign(sb * sc, c), inv = 1 / sqrt(fabs(b + c)), c1 = sb * inv, s1 = sc * inv, t = *cs;
        a = mid + q;
        d = mid - q;
        b -= c;
        c = 0;
        *cs = t * c1 - *sn * s1;
        *sn = t * s1 + *sn * c1;
    }
    *pa = a;
    *pb = b;
    *pc = c;
    *pd = d;
}

/* Rows and columns k, k + 1, a block of their own, in standard form; the rest of the matrix follows. */
static void finish_block(form *s, int64_t k)
{
    int64_t n = s->n;
    double cs, sn;
    standardise(&T(k, k), &T(k, k + 1), &T(k + 1, k), &T(k + 1, k + 1), &cs, &sn);
    for (int64_t j = k + 2; j < n; j++) {
        double x = T(k, j), y = T(k + 1, j);
        T(k, j) = cs * x + sn * y;
        T(k + 1, j) = cs * y - sn * x;
    }
    for (int64_t which = 0; which < 2; which++) {
        double *a = which ? s->z : s->t;
        for (int64_t i = 0; i < (which ? n : k); i++) {
            double x = a[i * n + k], y = a[i * n + k + 1];
            a[i * n + k] = cs * x + sn * y;
            a[i * n + k + 1] = cs * y - sn * x;
        }
    }
}

/* May the element below the diagonal at (k, k - 1) be taken for zero? */
static bool negligible(const form *s, int64_t lo, int64_t hi, int64_t k)
{
    double sub = fabs(T(k, k - 1)), size = fabs(T(k - 1, k - 1)) + fabs(T(k, k));
    double least = DBL_MIN * ((double)s->n / DBL_EPSILON);
    if (sub <= least)
        return true;
    if (size == 0) {
        if (k - 2 >= lo)
            size += fabs(T(k - 1, k - 2));
        if (k + 1 <= hi)
            size += fabs(T(k + 1, k));
    }
    if (sub > DBL_EPSILON * size)
        return false;
    double over = fabs(T(k - 1, k)), ab = fmax(sub, over), ba = fmin(sub, over), gap = fabs(T(k - 1, k - 1) - T(k, k));
    double aa = fmax(fabs(T(k, k)), gap), bb = fmin(fabs(T(k, k)), gap), sum = aa + ab;
    return ba * (ab / sum) <= fmax(least, DBL_EPSILON * (bb * (aa / sum)));
}

typedef struct { double r1, i1, r2, i2; } shifts;

static shifts choose(const form *s, int64_t lo, int64_t hi, int64_t round)
{
    double h11 = T(hi - 1, hi - 1), h21 = T(hi, hi - 1), h12 = T(hi - 1, hi), h22 = T(hi, hi);
    if (round % 20 == 0 || round % 10 == 0) {              /* it goes in circles: something else */
        bool bottom = round % 20 == 0;
        double e = bottom ? fabs(T(hi, hi - 1)) + fabs(T(hi - 1, hi - 2)) : fabs(T(lo + 1, lo)) + fabs(T(lo + 2, lo + 1));
        h11 = h22 = 0.75 * e + (bottom ? T(hi, hi) : T(lo, lo));
        h12 = -0.4375 * e;
        h21 = e;
    }
    double scale = fabs(h11) + fabs(h12) + fabs(h21) + fabs(h22);
    if (scale == 0)
        return (shifts){ 0, 0, 0, 0 };
    h11 /= scale;
    h12 /= scale;
    h21 /= scale;
    h22 /= scale;
    double mid = (h11 + h22) / 2, det = (h11 - mid) * (h22 - mid) - h12 * h21, root = sqrt(fabs(det));
    if (det >= 0)
        return (shifts){ mid * scale, root * scale, mid * scale, -root * scale };
    double near = fabs(mid + root - h22) <= fabs(mid - root - h22) ? mid + root : mid - root;
    return (shifts){ near * scale, 0, near * scale, 0 };
}

/* One step on rows lo..hi: a bulge made by the first column of (T - shift1)(T - shift2), chased out at the bottom. */
static void francis(form *s, int64_t lo, int64_t hi, shifts f)
{
    int64_t m = hi - 2;
    double v[3], tau;
    for (;; m--) {                                         /* it may begin below lo, where two elements in a row are small */
        double h = fabs(T(m + 1, m)), scale = fabs(T(m, m) - f.r2) + fabs(f.i2) + h;
        h = T(m + 1, m) / scale;
        v[0] = h * T(m, m + 1) + (T(m, m) - f.r1) * ((T(m, m) - f.r2) / scale) - f.i1 * (f.i2 / scale);
        v[1] = h * (T(m, m) + T(m + 1, m + 1) - f.r1 - f.r2);
        v[2] = h * T(m + 2, m + 1);
        double sum = fabs(v[0]) + fabs(v[1]) + fabs(v[2]);
        for (int64_t i = 0; i < 3; i++)
            v[i] /= sum;
        if (m == lo)
            break;
        if (fabs(T(m, m - 1)) * (fabs(v[1]) + fabs(v[2])) <= DBL_EPSILON * fabs(v[0]) * (fabs(T(m - 1, m - 1)) + fabs(T(m, m)) + fabs(T(m + 1, m + 1))))
            break;
    }
    for (int64_t k = m; k < hi; k++) {
        int64_t rows = hi - k + 1 < 3 ? hi - k + 1 : 3;
        for (int64_t i = 0; i < rows && k > m; i++)
            v[i] = T(k + i, k - 1);
        double beta = reflect(v, rows, &tau);
        if (k > m) {
            T(k, k - 1) = beta;
            for (int64_t i = 1; i < rows; i++)
                T(k + i, k - 1) = 0;
        } else if (m > lo) {
            T(k, k - 1) *= 1 - tau;
        }
        apply(s, v, rows, tau, k, k, (k + 3 < hi ? k + 3 : hi) + 1);
    }
}

bool xl_schur_real(double *a, double *z, double *work, int64_t n)
{
    form whole = { a, z, n }, *s = &whole;
    memset(z, 0, (size_t)(n * n) * sizeof *z);
    for (int64_t i = 0; i < n; i++)
        z[i * n + i] = 1;
    to_hessenberg(s, work);
    int64_t hi = n - 1, round = 0, left = ROUNDS * (n > 10 ? n : 10);
    while (hi > 0) {
        int64_t lo = hi;
        while (lo > 0 && !negligible(s, 0, n - 1, lo))
            lo--;
        if (lo > 0)
            T(lo, lo - 1) = 0;
        if (lo + 1 >= hi) {                                /* one eigenvalue, or two, are found */
            if (lo < hi)
                finish_block(s, lo);
            hi = lo - 1;
            round = 0;
            continue;
        }
        if (left-- == 0)
            return false;
        francis(s, lo, hi, choose(s, lo, hi, ++round));
    }
    return true;
}
