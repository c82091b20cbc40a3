/* The custom calls `lapack_<type><routine>_ffi` by which JAX leaves decompositions to a CPU, and XLA's own `Eigh`: eigenvalues, singular values, Schur form,
 * Hessenberg and tridiagonal form, QR with pivots. Matrices are worked on one at a time, row by row, as double complex whatever their type;
 * a real matrix stays real on the way (its Schur form: schur.c). The layouts that the calls carry do not matter here: operands are logical matrices. */
#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/kernel/ew.h"
#include "cpu/kernel/linalg.h"
#include "cpu/plan/planner.h"

typedef double complex cx;
enum { OUTS = 6, SWEEPS = 60 };

typedef struct {
    int64_t m, n, k;                                       /* k = min(m, n) */
    bool real, upper;
    const cx *a;                                           /* the matrix */
    cx *out[OUTS];                                         /* per result, zeroed */
    int64_t size[OUTS];                                    /* elements of each */
    cx *work;
} matrix;
typedef bool routine_fn(matrix *x);                        /* false: no convergence */

static inline cx mul(cx a, cx b)
{
    union { double p[2]; cx c; } u = { { creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b) } };
    return u.c;
}
static inline cx mulc(cx a, cx b) { return mul(conj(a), b); }
static inline double abs2(cx a) { return creal(a) * creal(a) + cimag(a) * cimag(a); }

/* H = 1 - tau v v^H with v = (1, x) such that H^H (alpha, x) = (beta, 0): alpha becomes beta, x the rest of v; gives tau. */
static cx reflector(cx *alpha, cx *x, int64_t stride, int64_t n)
{
    double below = 0;
    for (int64_t i = 0; i < n; i++)
        below += abs2(x[i * stride]);
    if (below == 0 && cimag(*alpha) == 0)
        return 0;
    double beta = -copysign(sqrt(abs2(*alpha) + below), creal(*alpha));
    cx tau = (beta - *alpha) / beta, scale = 1 / (*alpha - beta);
    for (int64_t i = 0; i < n; i++)
        x[i * stride] = mul(x[i * stride], scale);
    *alpha = beta;
    return tau;
}

/* A[r0.., c0..] = (1 - t v v^H) A, v of nr elements, its first one 1 whatever is stored there. */
static void from_left(cx *a, int64_t ld, int64_t r0, int64_t nr, int64_t c0, int64_t nc, const cx *v, int64_t stride, cx t)
{
    for (int64_t c = c0; c < c0 + nc; c++) {
        cx w = a[r0 * ld + c];
        for (int64_t i = 1; i < nr; i++)
            w += mulc(v[i * stride], a[(r0 + i) * ld + c]);
        w = mul(w, t);
        a[r0 * ld + c] -= w;
        for (int64_t i = 1; i < nr; i++)
            a[(r0 + i) * ld + c] -= mul(v[i * stride], w);
    }
}
/* A[r0.., c0..] = A (1 - t v v^H) */
static void from_right(cx *a, int64_t ld, int64_t r0, int64_t nr, int64_t c0, int64_t nc, const cx *v, int64_t stride, cx t)
{
    for (int64_t r = r0; r < r0 + nr; r++) {
        cx *p = a + r * ld + c0, w = p[0];
        for (int64_t i = 1; i < nc; i++)
            w += mul(p[i], v[i * stride]);
        w = mul(w, t);
        p[0] -= w;
        for (int64_t i = 1; i < nc; i++)
            p[i] -= mul(w, conj(v[i * stride]));
    }
}

static void identity(cx *q, int64_t n)
{
    memset(q, 0, (size_t)(n * n) * sizeof *q);
    for (int64_t i = 0; i < n; i++)
        q[i * n + i] = 1;
}

static bool all_finite(const cx *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(creal(a[i])) || !isfinite(cimag(a[i])))
            return false;
    return true;
}

/* ---- Hessenberg form, Schur form, eigenvalues ------------------------------------------------------------------- */
static void hessenberg(cx *a, cx *tau, int64_t n)
{
    for (int64_t i = 0; i + 1 < n; i++) {
        cx *v = a + (i + 1) * n + i;
        tau[i] = reflector(v, v + n, n, n - i - 2);
        from_right(a, n, 0, n, i + 1, n - i - 1, v, n, tau[i]);
        from_left(a, n, i + 1, n - i - 1, i + 1, n - i - 1, v, n, conj(tau[i]));
    }
}
static bool run_gehrd(matrix *x)
{
    memcpy(x->out[0], x->a, (size_t)(x->n * x->n) * sizeof(cx));
    hessenberg(x->out[0], x->out[1], x->n);
    return true;
}

/* t: Hessenberg on entry, triangular on return; z: the transformation so far. Shifted QR with rotations. */
static bool schur(cx *t, cx *z, int64_t n)
{
    int64_t hi = n - 1, round = 0;
    while (hi > 0) {
        int64_t lo = hi;
        for (; lo > 0; lo--) {
            double size = cabs(t[lo * n + lo]) + cabs(t[(lo - 1) * n + lo - 1]);
            if (cabs(t[lo * n + lo - 1]) <= DBL_EPSILON * (size > 0 ? size : 1)) {
                t[lo * n + lo - 1] = 0;
                break;
            }
        }
        if (lo == hi) {
            hi--;
            round = 0;
            continue;
        }
        if (++round > SWEEPS)
            return false;
        cx a = t[(hi - 1) * n + hi - 1], b = t[(hi - 1) * n + hi], c = t[hi * n + hi - 1], d = t[hi * n + hi];
        cx half = (a - d) / 2, root = csqrt(mul(half, half) + mul(b, c)), shift;
        shift = d + half + (creal(mulc(half, root)) >= 0 ? -root : root); /* the eigenvalue of the last block nearer to d; of a pair the lower */
        if (round % 10 == 0)
            shift = d + cabs(c);                           /* a cycle: try something else */
        cx p = t[lo * n + lo] - shift, q = t[(lo + 1) * n + lo];
        for (int64_t k = lo; k < hi; k++) {
            double r = sqrt(abs2(p) + abs2(q));
            if (r > 0) {
                cx cs = p / r, sn = q / r;                 /* (cs* sn*; -sn cs) (p, q) = (r, 0) */
                for (int64_t j = k > lo ? k - 1 : lo; j < n; j++) {
                    cx u = t[k * n + j], v = t[(k + 1) * n + j];
                    t[k * n + j] = mulc(cs, u) + mulc(sn, v);
                    t[(k + 1) * n + j] = mul(cs, v) - mul(sn, u);
                }
                int64_t end = k + 2 < hi ? k + 2 : hi;
                for (int64_t i = 0; i <= end; i++) {
                    cx u = t[i * n + k], v = t[i * n + k + 1];
                    t[i * n + k] = mul(cs, u) + mul(sn, v);
                    t[i * n + k + 1] = mulc(cs, v) - mulc(sn, u);
                }
                for (int64_t i = 0; i < n; i++) {
                    cx u = z[i * n + k], v = z[i * n + k + 1];
                    z[i * n + k] = mul(cs, u) + mul(sn, v);
                    z[i * n + k + 1] = mulc(cs, v) - mulc(sn, u);
                }
            }
            if (k + 2 <= hi) {
                p = t[(k + 1) * n + k];
                q = t[(k + 2) * n + k];
            }
        }
    }
    for (int64_t i = 1; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            t[i * n + j] = 0;
    return true;
}
/* The size of the largest element, by which a matrix is divided before squares could overflow or vanish; 1 for zeros. */
static double largest(const cx *a, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, cabs(a[i]));
    return most > 0 ? most : 1;
}
/* a / most = z t z^H. work: n * n + n more. */
static bool schur_of(const cx *a, double most, cx *t, cx *z, cx *work, int64_t n)
{
    cx *tau = work + n * n;
    for (int64_t i = 0; i < n * n; i++)
        work[i] = a[i] / most;
    hessenberg(work, tau, n);
    identity(z, n);
    for (int64_t i = n - 2; i >= 0; i--)
        from_left(z, n, i + 1, n - i - 1, i + 1, n - i - 1, work + (i + 1) * n + i, n, tau[i]);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            t[i * n + j] = j + 1 >= i ? work[i * n + j] : 0;
    return schur(t, z, n);
}
/* The same of a real matrix, in reals: t may have blocks of two rows. */
static bool schur_of_real(const cx *a, double most, cx *t, cx *z, cx *work, int64_t n)
{
    double *r = (double *)work, *q = r + n * n;
    for (int64_t i = 0; i < n * n; i++)
        r[i] = creal(a[i]) / most;
    if (!xl_schur_real(r, q, q + n * n, n))
        return false;
    for (int64_t i = 0; i < n * n; i++) {
        t[i] = r[i];
        z[i] = q[i];
    }
    return true;
}
/* Blocks of two rows, a pair of eigenvalues each, made triangular: the one above the real axis comes first. */
static void split_pairs(cx *t, cx *z, int64_t n)
{
    for (int64_t k = 0; k + 1 < n; k++) {
        double b = creal(t[k * n + k + 1]), c = creal(t[(k + 1) * n + k]);
        if (c == 0)
            continue;
        cx v0 = sqrt(fabs(b)) * sqrt(fabs(c)) * I, v1 = c; /* (v0, v1) is the eigenvector, (-v1*, v0*) stands upright on it */
        double r = sqrt(abs2(v0) + abs2(v1));
        v0 /= r;
        v1 /= r;
        for (int64_t j = k; j < n; j++) {
            cx x = t[k * n + j], y = t[(k + 1) * n + j];
            t[k * n + j] = mulc(v0, x) + mulc(v1, y);
            t[(k + 1) * n + j] = mul(v0, y) - mul(v1, x);
        }
        for (int64_t i = 0; i < n; i++) {
            cx x = z[i * n + k], y = z[i * n + k + 1];
            z[i * n + k] = mul(v0, x) + mul(v1, y);
            z[i * n + k + 1] = mulc(v0, y) - mulc(v1, x);
            if (i > k + 1)
                continue;
            x = t[i * n + k];
            y = t[i * n + k + 1];
            t[i * n + k] = mul(v0, x) + mul(v1, y);
            t[i * n + k + 1] = mulc(v0, y) - mulc(v1, x);
        }
        t[(k + 1) * n + k] = 0;
        k++;
    }
}
static bool run_gees(matrix *x)
{
    int64_t n = x->n;
    cx *t = x->out[0];
    double most = largest(x->a, n * n);
    if (!(x->real ? schur_of_real : schur_of)(x->a, most, t, x->out[1], x->work, n))
        return false;
    for (int64_t i = 0; i < n * n; i++)
        t[i] *= most;
    for (int64_t i = 0; i < n; i++) {
        double below = i + 1 < n ? creal(t[(i + 1) * n + i]) : 0, above = i ? creal(t[i * n + i - 1]) : 0;
        x->out[2][i] = t[i * n + i];
        if (x->real && below != 0)
            x->out[3][i] = sqrt(fabs(below)) * sqrt(fabs(creal(t[i * n + i + 1])));
        else if (x->real && above != 0)
            x->out[3][i] = -creal(x->out[3][i - 1]);
    }
    return true;
}

/* v = z y with length one and its largest element real, as LAPACK has it. */
static void eigenvector(cx *v, const cx *z, const cx *y, int64_t n, int64_t col)
{
    double norm = 0, most = 0;
    cx turn = 1;
    for (int64_t i = 0; i < n; i++) {
        cx s = 0;
        for (int64_t j = 0; j < n; j++)
            s += mul(z[i * n + j], y[j]);
        v[i * n + col] = s;
        norm += abs2(s);
        if (abs2(s) > most * (1 + 1e-12)) {
            most = abs2(s);
            turn = conj(s) / cabs(s);
        }
    }
    for (int64_t i = 0; i < n; i++)
        v[i * n + col] = mul(v[i * n + col], turn) / sqrt(norm);
}
static bool run_geev(matrix *x)
{
    int64_t n = x->n;
    cx *t = x->work, *z = t + n * n, *y = z + n * n, *more = y + n;
    uint32_t at = x->real ? 2 : 1;                         /* the eigenvalues come in two parts */
    double most = largest(x->a, n * n);
    if (!(x->real ? schur_of_real : schur_of)(x->a, most, t, z, more, n))
        return false;
    if (x->real)
        split_pairs(t, z, n);
    double size = 0;
    for (int64_t i = 0; i < n * n; i++)
        size += abs2(t[i]);
    double least = DBL_EPSILON * sqrt(size) + DBL_MIN;
    for (int64_t k = 0; k < n; k++) {
        cx w = t[k * n + k] * most;
        x->out[0][k] = x->real ? creal(w) : w;
        if (x->real)
            x->out[1][k] = cimag(w);
        memset(y, 0, (size_t)n * sizeof *y);               /* from the right: up from row k */
        y[k] = 1;
        for (int64_t i = k - 1; i >= 0; i--) {
            cx s = 0, d = t[i * n + i] - t[k * n + k];
            for (int64_t j = i + 1; j <= k; j++)
                s += mul(t[i * n + j], y[j]);
            y[i] = -s / (cabs(d) < least ? (cx)least : d);
        }
        eigenvector(x->out[at + 1], z, y, n, k);
        memset(y, 0, (size_t)n * sizeof *y);               /* from the left: down from column k */
        y[k] = 1;
        for (int64_t j = k + 1; j < n; j++) {
            cx s = 0, d = t[j * n + j] - t[k * n + k];
            for (int64_t i = k; i < j; i++)
                s += mul(conj(y[i]), t[i * n + j]);
            y[j] = conj(-s / (cabs(d) < least ? (cx)least : d));
        }
        eigenvector(x->out[at], z, y, n, k);
    }
    return true;
}

/* ---- Hermitian matrices ----------------------------------------------------------------------------------------- */
/* The whole matrix from its one triangle. */
static void hermitian(cx *h, const cx *a, int64_t n, bool upper)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            h[i * n + j] = i == j ? creal(a[i * n + i]) : (j > i) == upper ? a[i * n + j] : conj(a[j * n + i]);
}

/* h (whole, Hermitian) to d, e and reflectors; below the diagonal, or above it going up. w: n of work. */
static void tridiagonal(cx *h, double *d, double *e, cx *tau, cx *w, cx *v, int64_t n, bool upper)
{
    for (int64_t step = 0; step + 1 < n; step++) {
        int64_t i = upper ? n - 2 - step : step, len = upper ? i + 1 : n - 1 - i;
        int64_t first = upper ? 0 : i + 1, one = upper ? i : i + 1; /* rows of v; the row where it is 1 */
        int64_t col = upper ? i + 1 : i;
        cx *alpha = h + one * n + col, *rest = upper ? h + col : alpha + n;
        tau[i] = reflector(alpha, rest, n, len - 1);
        e[i] = creal(*alpha);
        for (int64_t r = 0; r < len; r++)
            v[r] = first + r == one ? 1 : h[(first + r) * n + col];
        if (tau[i] != 0) {
            cx dot = 0;
            for (int64_t r = 0; r < len; r++) {
                cx s = 0;
                for (int64_t c = 0; c < len; c++)
                    s += mul(h[(first + r) * n + first + c], v[c]);
                w[r] = mul(tau[i], s);
            }
            for (int64_t r = 0; r < len; r++)
                dot += mulc(w[r], v[r]);
            dot = mul(tau[i], dot) / -2;
            for (int64_t r = 0; r < len; r++)
                w[r] += mul(dot, v[r]);
            for (int64_t r = 0; r < len; r++)
                for (int64_t c = 0; c < len; c++)
                    h[(first + r) * n + first + c] -= mul(v[r], conj(w[c])) + mul(w[r], conj(v[c]));
        }
        for (int64_t r = 0; r < len; r++)
            h[(first + r) * n + col] = first + r == one ? e[i] : v[r];
    }
    for (int64_t i = 0; i < n; i++)
        d[i] = creal(h[i * n + i]);
}
static bool run_sytrd(matrix *x)
{
    int64_t n = x->n;
    cx *h = x->work, *w = h + n * n, *v = w + n;
    double *d = (double *)(v + n), *e = d + n;
    hermitian(h, x->a, n, x->upper);
    tridiagonal(h, d, e, x->out[3], w, v, n, x->upper);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            x->out[0][i * n + j] = i == j || (j > i) == x->upper ? h[i * n + j] : x->a[i * n + j];
    for (int64_t i = 0; i < n; i++) {
        x->out[1][i] = d[i];
        if (i + 1 < n)
            x->out[2][i] = e[i];
    }
    return true;
}

/* Implicit QL on a real symmetric tridiagonal matrix; the rotations go into the columns of q. */
static bool ql(double *d, double *e, cx *q, int64_t n)
{
    for (int64_t l = 0; l < n; l++)
        for (int64_t round = 0;; round++) {
            int64_t m = l;
            for (; m + 1 < n; m++)
                if (fabs(e[m]) <= DBL_EPSILON * (fabs(d[m]) + fabs(d[m + 1])) || fabs(e[m]) < DBL_MIN)
                    break;
            if (m == l)
                break;
            if (round == SWEEPS)
                return false;
            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = hypot(g, 1), s = 1, c = 1, p = 0;
            g = d[m] - d[l] + e[l] / (g + copysign(r, g));
            int64_t i = m - 1;
            for (; i >= l; i--) {
                double f = s * e[i], b = c * e[i];
                r = hypot(f, g);
                e[i + 1] = r;
                if (r == 0) {
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                for (int64_t k = 0; k < n; k++) {
                    cx u = q[k * n + i + 1], v = q[k * n + i];
                    q[k * n + i + 1] = s * v + c * u;
                    q[k * n + i] = c * v - s * u;
                }
            }
            if (r == 0 && i >= l)
                continue;
            d[l] -= p;
            e[l] = g;
            e[m] = 0;
        }
    return true;
}
static bool run_syevd(matrix *x)
{
    int64_t n = x->n;
    cx *h = x->work, *q = h + n * n, *w = q + n * n, *v = w + n, *tau = v + n;
    double *d = (double *)(tau + n), *e = d + n, most;
    hermitian(h, x->a, n, x->upper);
    most = largest(h, n * n);
    for (int64_t i = 0; i < n * n; i++)
        h[i] /= most;
    memset(e, 0, (size_t)n * sizeof *e);
    tridiagonal(h, d, e, tau, w, v, n, false);
    identity(q, n);
    for (int64_t i = n - 2; i >= 0; i--)
        from_left(q, n, i + 1, n - i - 1, i + 1, n - i - 1, h + (i + 1) * n + i, n, tau[i]);
    if (!ql(d, e, q, n))
        return false;
    for (int64_t k = 0; k < n; k++) {                      /* least first */
        int64_t at = -1;
        for (int64_t i = 0; i < n; i++)
            if (!isnan(d[i]) && (at < 0 || d[i] < d[at]))
                at = i;
        if (at < 0)
            return false;
        x->out[1][k] = d[at] * most;
        d[at] = NAN;
        for (int64_t i = 0; i < n; i++)
            x->out[0][i * n + k] = q[i * n + at];
    }
    return true;
}

/* ---- singular values: one-sided Jacobi rotations on columns ----------------------------------------------------- */
static cx dot(const cx *a, const cx *b, int64_t n)
{
    double re = 0, im = 0;
    for (int64_t i = 0; i < n; i++) {
        re += creal(a[i]) * creal(b[i]) + cimag(a[i]) * cimag(b[i]);
        im += creal(a[i]) * cimag(b[i]) - cimag(a[i]) * creal(b[i]);
    }
    double pair[2] = { re, im };                           /* what CMPLX does, which a C library has for some compilers only */
    cx z;
    memcpy(&z, pair, sizeof z);
    return z;
}
static void rotate(cx *p, cx *q, int64_t n, double c, double s, cx u)
{
    for (int64_t i = 0; i < n; i++) {
        cx a = p[i], b = mulc(u, q[i]);
        p[i] = c * a - s * b;
        q[i] = s * a + c * b;
    }
}
/* Columns have..want of q (each m long) such that all are orthonormal. */
static void complete(cx *q, int64_t m, int64_t have, int64_t want)
{
    for (int64_t j = 0; j < m && have < want; j++) {
        cx *v = q + have * m;
        memset(v, 0, (size_t)m * sizeof *v);
        v[j] = 1;
        for (int twice = 0; twice < 2; twice++)
            for (int64_t k = 0; k < have; k++) {
                cx w = dot(q + k * m, v, m);
                for (int64_t i = 0; i < m; i++)
                    v[i] -= mul(w, q[k * m + i]);
            }
        double norm = sqrt(creal(dot(v, v, m)));
        if (norm < 0.5 / sqrt((double)m))
            continue;
        for (int64_t i = 0; i < m; i++)
            v[i] /= norm;
        have++;
    }
}
static bool run_gesdd(matrix *x)
{
    bool turn = x->m < x->n;                               /* then the adjoint is decomposed */
    int64_t m = turn ? x->n : x->m, n = x->k;
    cx *w = x->work, *v = w + m * n, *vs = v + n * n, *u = vs + n * n; /* columns one after the other */
    double *sigma = (double *)(u + x->size[turn ? 3 : 2]), most = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            w[j * m + i] = turn ? conj(x->a[j * x->n + i]) : x->a[i * x->n + j];
            most = fmax(most, cabs(w[j * m + i]));
        }
    if (most > 0)
        for (int64_t i = 0; i < m * n; i++)
            w[i] /= most;
    identity(v, n);
    bool done = false;
    for (int sweep = 0; sweep < SWEEPS && !done; sweep++) {
        done = true;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double a = creal(dot(w + p * m, w + p * m, m)), b = creal(dot(w + q * m, w + q * m, m));
                cx g = dot(w + p * m, w + q * m, m);
                double size = cabs(g);
                if (size <= 4 * DBL_EPSILON * sqrt(a * b) || size < DBL_MIN)
                    continue;
                done = false;
                double z = (b - a) / (2 * size), t = copysign(1, z) / (fabs(z) + hypot(1, z)), c = 1 / hypot(1, t);
                rotate(w + p * m, w + q * m, m, c, c * t, g / size);
                rotate(v + p * n, v + q * n, n, c, c * t, g / size);
            }
    }
    if (!done)
        return false;
    for (int64_t j = 0; j < n; j++)
        sigma[j] = sqrt(creal(dot(w + j * m, w + j * m, m)));
    int64_t good = 0;
    for (int64_t k = 0; k < n; k++) {                      /* greatest first */
        int64_t at = -1;
        for (int64_t j = 0; j < n; j++)
            if (sigma[j] >= 0 && (at < 0 || sigma[j] > sigma[at]))
                at = j;
        if (at < 0)
            return false;
        x->out[1][k] = sigma[at] * (most > 0 ? most : 1);
        if (sigma[at] > 1e-290) {
            for (int64_t i = 0; i < m; i++)
                u[k * m + i] = w[at * m + i] / sigma[at];
            good = k + 1;
        }
        memcpy(vs + k * n, v + at * n, (size_t)n * sizeof *v);
        sigma[at] = -1;
    }
    int64_t cols = x->size[2] / (x->m > 0 ? x->m : 1), rows = x->size[3] / (x->n > 0 ? x->n : 1); /* of u, and of v^H */
    complete(u, m, good, turn ? rows : cols);
    const cx *left = turn ? vs : u, *right = turn ? u : vs;
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < cols; j++)
            x->out[2][i * cols + j] = left[j * x->m + i];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < x->n; j++)
            x->out[3][i * x->n + j] = conj(right[i * x->n + j]);
    return true;
}

/* ---- QR with column pivots -------------------------------------------------------------------------------------- */
static bool run_geqp3(matrix *x)
{
    int64_t m = x->m, n = x->n;
    cx *a = x->out[0], *p = x->out[1];
    memcpy(a, x->a, (size_t)(m * n) * sizeof *a);
    for (int64_t j = 0; j < n; j++)
        p[j] = (double)(j + 1);
    for (int64_t j = 0; j < x->k; j++) {
        int64_t best = j;
        double most = -1;
        for (int64_t c = j; c < n; c++) {
            double norm = 0;
            for (int64_t i = j; i < m; i++)
                norm += abs2(a[i * n + c]);
            if (norm > most * (1 + 1e-14)) {
                most = norm;
                best = c;
            }
        }
        for (int64_t i = 0; i < m && best != j; i++) {
            cx t = a[i * n + j];
            a[i * n + j] = a[i * n + best];
            a[i * n + best] = t;
        }
        cx t = p[j];
        p[j] = p[best];
        p[best] = t;
        cx *v = a + j * n + j;
        x->out[2][j] = reflector(v, v + n, n, m - j - 1);
        from_left(a, n, j, m - j, j + 1, n - j - 1, v, n, conj(x->out[2][j]));
    }
    return true;
}

/* ---- as steps --------------------------------------------------------------------------------------------------- */
enum { SQ, VEC, SUB, TAU, MAT, U, VT, ONE };               /* n*n, n, n-1, k, m*n, by U's and V's own shape, 1 */
typedef struct {
    const char *name;
    routine_fn *run;
    bool square, info;
    uint8_t nin, nout, nreal;                              /* results; more of them for a real matrix */
    uint8_t size[OUTS], size_real[OUTS];
} routine;
static const routine routines[] = {
    { "syevd", run_syevd, true, true, 1, 3, 3, { SQ, VEC, ONE }, { SQ, VEC, ONE } },
    { "heevd", run_syevd, true, true, 1, 3, 3, { SQ, VEC, ONE }, { SQ, VEC, ONE } },
    { "gesdd", run_gesdd, false, true, 1, 5, 5, { MAT, TAU, U, VT, ONE }, { MAT, TAU, U, VT, ONE } },
    { "gesvd", run_gesdd, false, true, 1, 5, 5, { MAT, TAU, U, VT, ONE }, { MAT, TAU, U, VT, ONE } },
    { "geev", run_geev, true, true, 1, 4, 5, { VEC, SQ, SQ, ONE }, { VEC, VEC, SQ, SQ, ONE } },
    { "gees", run_gees, true, true, 1, 5, 6, { SQ, SQ, VEC, ONE, ONE }, { SQ, SQ, VEC, VEC, ONE, ONE } },
    { "gehrd", run_gehrd, true, true, 1, 3, 3, { SQ, SUB, ONE }, { SQ, SUB, ONE } },
    { "sytrd", run_sytrd, true, true, 1, 5, 5, { SQ, VEC, SUB, SUB, ONE }, { SQ, VEC, SUB, SUB, ONE } },
    { "hetrd", run_sytrd, true, true, 1, 5, 5, { SQ, VEC, SUB, SUB, ONE }, { SQ, VEC, SUB, SUB, ONE } },
    { "geqp3", run_geqp3, false, false, 2, 3, 3, { MAT, VEC, TAU }, { MAT, VEC, TAU } },
};

typedef struct { const routine *r; xl_ew load, store[OUTS]; bool real, upper; int64_t mats, size[OUTS]; } call;

static xl_error *run_call(const xl_step *s, xl_frame *f)
{
    const call *d = s->data;
    const xl_shape *in = xl_in_shape(s, 0);
    matrix x = { .m = in->dims[in->rank - 2], .n = in->dims[in->rank - 1], .real = d->real, .upper = d->upper };
    x.k = x.m < x.n ? x.m : x.n;
    int64_t side = x.m > x.n ? x.m : x.n, total = x.m * x.n, outs = 0;
    for (uint32_t i = 0; i < s->nout; i++)
        outs += d->size[i];
    int64_t work = (d->r->square ? 4 * side * side : 2 * total + 2 * x.k * x.k + outs) + 8 * side + 8;
    cx *mem = malloc((size_t)(total + outs + work) * sizeof *mem);
    if (!mem)
        return XL_ERR(EXHAUSTED, "no memory to decompose a matrix of %lld x %lld", (long long)x.m, (long long)x.n);
    x.a = mem;
    x.work = mem + total + outs;
    for (int64_t q = 0; q < d->mats; q++) {
        const void *from[1] = { (const char *)xl_in(s, f, 0) + (size_t)(q * total) * in->elem };
        d->load.fn(mem, from, (size_t)total, d->load.ctx);
        memset(mem + total, 0, (size_t)outs * sizeof *mem);
        cx *to = mem + total;
        for (uint32_t i = 0; i < s->nout; i++) {
            x.out[i] = to;
            x.size[i] = d->size[i];
            to += d->size[i];
        }
        bool ok = all_finite(x.a, total) && d->r->run(&x);
        for (uint32_t i = 0; i < s->nout; i++) {
            for (int64_t k = 0; k < d->size[i] && !ok; k++)
                x.out[i][k] = d->r->info && i + 1 == s->nout ? 1 : xl_out_shape(s, i)->dtype == XL_I32 ? 0 : NAN;
            from[0] = x.out[i];
            d->store[i].fn((char *)xl_out(s, f, i) + (size_t)(q * d->size[i]) * xl_out_shape(s, i)->elem, from, (size_t)d->size[i], d->store[i].ctx);
        }
    }
    free(mem);
    return NULL;
}

static xl_error *plan_call(xl_planner *p, const xl_op *op, const routine *r, bool upper)
{
    const xl_type *a = op->nin ? xl_in_type(p->f, op, 0) : NULL;
    bool real = a && xl_dtype_class(a->dtype) == XL_CLASS_FLOAT;
    uint32_t nout = real ? r->nreal : r->nout;
    if (!a || op->nin != r->nin || op->nout != nout || a->rank < 2 || (!real && xl_dtype_class(a->dtype) != XL_CLASS_COMPLEX))
        return xl_plan_unsupported(p, op, "not the operands and results of this routine");
    call *d = xl_new(p->a, call, 1);
    int64_t m = a->dims[a->rank - 2], n = a->dims[a->rank - 1], k = m < n ? m : n;
    *d = (call){ .r = r, .real = real, .upper = upper, .mats = 1, .load = xl_ew_convert(p->a, a->dtype, XL_C128) };
    for (uint32_t i = 0; i + 2 < a->rank; i++)
        d->mats *= a->dims[i];
    if (m < 0 || n < 0 || d->mats < 0 || (r->square && m != n))
        return xl_plan_unsupported(p, op, "its operand is no matrix that this routine takes");
    for (uint32_t i = 0; i < nout; i++) {
        const xl_type *t = xl_out_type(p->f, op, i);
        int64_t count, own = t->rank >= 2 ? t->dims[t->rank - 2] * t->dims[t->rank - 1] : -1;
        bool fits = true;
        switch ((real ? r->size_real : r->size)[i]) {
        case SQ: d->size[i] = n * n; break;
        case VEC: d->size[i] = n; break;
        case SUB: d->size[i] = n > 0 ? n - 1 : 0; break;
        case TAU: d->size[i] = k; break;
        case MAT: d->size[i] = m * n; break;
        case U: d->size[i] = own; fits = own == m * k || own == m * m; break;
        case VT: d->size[i] = own; fits = own == k * n || own == n * n; break;
        default: d->size[i] = 1; break;
        }
        if (!fits || !xl_type_count(t, &count) || count != d->mats * d->size[i])
            return xl_plan_unsupported(p, op, "a result has not the shape of this routine's");
        d->store[i] = xl_ew_convert(p->a, XL_C128, t->dtype);
    }
    p->plan->flops += (double)d->mats * 20.0 * (double)m * (double)n * (double)k;
    return xl_plan_step(p, op, run_call, d, 0);
}

/* Sets *known to false, and adds nothing, where the name is none of ours. */
xl_error *xl_plan_lapack(xl_planner *p, const xl_op *op, xl_str name, bool *known)
{
    const routine *r = NULL;
    xl_str head = XL_STR("lapack_"), tail = XL_STR("_ffi");
    *known = false;
    if (name.n < head.n + 1 + tail.n || memcmp(name.p, head.p, head.n) || memcmp(name.p + name.n - tail.n, tail.p, tail.n))
        return NULL;
    xl_str what = { name.p + head.n + 1, name.n - head.n - 1 - tail.n };
    if (xl_str_is(what, "gtsv")) {
        *known = true;
        return xl_plan_tridiagonal(p, op, false);
    }
    for (size_t i = 0; i < sizeof routines / sizeof *routines; i++)
        if (xl_str_is(what, routines[i].name))
            r = &routines[i];
    if (!r)
        return NULL;
    *known = true;
    const xl_attr *cfg = XL_ATTR(op, CUSTOM_CALL, backend_config);
    if (!cfg || cfg->kind != XL_AT_DICT)
        cfg = xl_dict_get(op->extra, XL_STR("mhlo.backend_config"));
    const xl_attr *uplo = cfg && cfg->kind == XL_AT_DICT ? xl_dict_get(cfg, XL_STR("uplo")) : NULL;
    return plan_call(p, op, r, uplo && uplo->kind == XL_AT_INT && uplo->i == 'U');
}

/* Its configuration is text: lower, sorted, rounds, tolerance ("1,1,100,0.000001"). Here they are always sorted, and exact. */
xl_error *xl_plan_eigh(xl_planner *p, const xl_op *op)
{
    static const routine eigh = { "Eigh", run_syevd, true, false, 1, 2, 2, { SQ, VEC }, { SQ, VEC } };
    const xl_attr *cfg = XL_ATTR(op, CUSTOM_CALL, backend_config);
    return plan_call(p, op, &eigh, cfg && cfg->kind == XL_AT_STR && cfg->str.n && cfg->str.p[0] == '0');
}
