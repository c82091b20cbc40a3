/* Dense linear algebra that frontends leave to the device: cholesky, triangular_solve, QR by Householder reflections. The work
 * is done in double complex: right for every type first. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/kernel/ew.h"
#include "cpu/kernel/linalg.h"
#include "cpu/plan/planner.h"

typedef double complex cx;
typedef struct { xl_ew load[2], store[2]; } types;

static const types *types_of(xl_planner *p, const xl_op *op)
{
    types *t = xl_new(p->a, types, 1);
    for (uint32_t i = 0; i < 2; i++) {
        if (i < op->nin)
            t->load[i] = xl_ew_convert(p->a, xl_in_type(p->f, op, i)->dtype, XL_C128);
        if (i < op->nout)
            t->store[i] = xl_ew_convert(p->a, XL_C128, xl_out_type(p->f, op, i)->dtype);
    }
    return t;
}
static void load(const xl_ew *e, cx *to, const void *from, size_t elem, int64_t at, int64_t n)
{
    const void *in[1] = { (const char *)from + (size_t)at * elem };
    e->fn(to, in, (size_t)n, e->ctx);
}
static void store(const xl_ew *e, void *to, size_t elem, int64_t at, const cx *from, int64_t n)
{
    const void *in[1] = { from };
    e->fn((char *)to + (size_t)at * elem, in, (size_t)n, e->ctx);
}

/* ---- cholesky --------------------------------------------------------------------------------------------------- */
static xl_error *run_cholesky(const xl_step *s, xl_frame *f)
{
    const types *t = s->data;
    const xl_shape *x = xl_in_shape(s, 0);
    int64_t n = x->dims[x->rank - 1], mats = n ? x->count / (n * n) : 0;
    bool lower = xl_op_int(s->op, XL_SLOT(CHOLESKY, lower));
    cx *a = malloc((size_t)(2 * n * n) * sizeof *a + 1), *l = a + n * n;
    if (!a)
        return XL_ERR(EXHAUSTED, "no memory to factor");
    for (int64_t m = 0; m < mats; m++) {
        load(&t->load[0], a, xl_in(s, f, 0), x->elem, m * n * n, n * n);
        memset(l, 0, (size_t)(n * n) * sizeof *l);
        bool bad = false;
        for (int64_t j = 0; j < n && !bad; j++) {
            double d = creal(a[j * n + j]);
            for (int64_t k = 0; k < j; k++)
                d -= creal(l[j * n + k]) * creal(l[j * n + k]) + cimag(l[j * n + k]) * cimag(l[j * n + k]);
            bad = !(d > 0);
            d = sqrt(d);
            l[j * n + j] = d;
            for (int64_t i = j + 1; i < n; i++) {
                cx v = lower ? a[i * n + j] : conj(a[j * n + i]);
                for (int64_t k = 0; k < j; k++)
                    v -= l[i * n + k] * conj(l[j * n + k]);
                l[i * n + j] = v / d;
            }
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                cx v = lower ? l[i * n + j] : conj(l[j * n + i]);
                a[i * n + j] = bad ? (cx)NAN : (lower ? j <= i : j >= i) ? v : 0;
            }
        store(&t->store[0], xl_out(s, f, 0), x->elem, m * n * n, a, n * n);
    }
    free(a);
    return NULL;
}
xl_error *xl_kernel_cholesky(xl_planner *p, const xl_op *op)
{
    if (xl_in_type(p->f, op, 0)->rank < 2)
        return xl_plan_unsupported(p, op, "its operand is no matrix");
    return xl_plan_step(p, op, run_cholesky, types_of(p, op), 0);
}

/* ---- triangular_solve ------------------------------------------------------------------------------------------- */
static xl_error *run_solve(const xl_step *s, xl_frame *f)
{
    const types *t = s->data;
    const xl_shape *x = xl_in_shape(s, 0), *y = xl_in_shape(s, 1);
    int64_t n = x->dims[x->rank - 1], br = y->dims[y->rank - 2], bc = y->dims[y->rank - 1], mats = n ? x->count / (n * n) : 0;
    bool left = xl_op_int(s->op, XL_SLOT(TRIANGULAR_SOLVE, left_side)), lower = xl_op_int(s->op, XL_SLOT(TRIANGULAR_SOLVE, lower));
    bool one = xl_op_int(s->op, XL_SLOT(TRIANGULAR_SOLVE, unit_diagonal));
    int64_t tr = xl_op_int(s->op, XL_SLOT(TRIANGULAR_SOLVE, transpose_a));
    bool turned = tr == XL_TRANSPOSE_TRANSPOSE || tr == XL_TRANSPOSE_ADJOINT, conjugate = tr == XL_TRANSPOSE_ADJOINT;
    cx *a = malloc((size_t)(n * n + br * bc) * sizeof *a + 1), *b = a + n * n;
    if (!a)
        return XL_ERR(EXHAUSTED, "no memory to solve");
    /* x op(a) = b is op(a)^T x^T = b^T: the right side is the left with rows and columns of b exchanged and a turned once more */
    int64_t m = left ? bc : br, rs = left ? bc : 1, cs = left ? 1 : bc;
    bool flip = turned != !left, down = lower != flip;     /* down: a as used is lower triangular */
    for (int64_t k = 0; k < mats; k++) {
        load(&t->load[0], a, xl_in(s, f, 0), x->elem, k * n * n, n * n);
        load(&t->load[1], b, xl_in(s, f, 1), y->elem, k * br * bc, br * bc);
        for (int64_t q = 0; q < n; q++) {
            int64_t i = down ? q : n - 1 - q;
            for (int64_t j = 0; j < m; j++) {
                cx v = b[i * rs + j * cs];
                for (int64_t c = 0; c < q; c++) {
                    int64_t l = down ? c : n - 1 - c;
                    cx e = flip ? a[l * n + i] : a[i * n + l];
                    v -= (conjugate ? conj(e) : e) * b[l * rs + j * cs];
                }
                cx d = a[i * n + i];
                b[i * rs + j * cs] = one ? v : v / (conjugate ? conj(d) : d);
            }
        }
        store(&t->store[0], xl_out(s, f, 0), y->elem, k * br * bc, b, br * bc);
    }
    free(a);
    return NULL;
}
xl_error *xl_kernel_triangular_solve(xl_planner *p, const xl_op *op)
{
    if (xl_in_type(p->f, op, 0)->rank < 2 || xl_in_type(p->f, op, 1)->rank < 2)
        return xl_plan_unsupported(p, op, "its operands are no matrices");
    return xl_plan_step(p, op, run_solve, types_of(p, op), 0);
}

/* ---- QR --------------------------------------------------------------------------------------------------------- */
/* As LAPACK's geqrf: R above, the reflectors below the diagonal, their factors in tau. */
static xl_error *run_qr(const xl_step *s, xl_frame *f)
{
    const types *t = s->data;
    const xl_shape *x = xl_in_shape(s, 0), *tau = xl_out_shape(s, 1);
    int64_t m = x->dims[x->rank - 2], n = x->dims[x->rank - 1], k = m < n ? m : n, mats = m > 0 && n > 0 ? x->count / (m * n) : 0;
    cx *a = malloc((size_t)(m * n + k) * sizeof *a + 1), *ta = a + m * n;
    if (!a)
        return XL_ERR(EXHAUSTED, "no memory to factor");
    for (int64_t q = 0; q < mats; q++) {
        load(&t->load[0], a, xl_in(s, f, 0), x->elem, q * m * n, m * n);
        for (int64_t j = 0; j < k; j++) {
            double below = 0;
            for (int64_t i = j + 1; i < m; i++)
                below += creal(a[i * n + j]) * creal(a[i * n + j]) + cimag(a[i * n + j]) * cimag(a[i * n + j]);
            cx alpha = a[j * n + j];
            if (below == 0 && cimag(alpha) == 0) {
                ta[j] = 0;
                continue;
            }
            double beta = -copysign(sqrt(creal(alpha) * creal(alpha) + cimag(alpha) * cimag(alpha) + below), creal(alpha));
            ta[j] = (beta - alpha) / beta;
            cx scale = 1 / (alpha - beta);
            for (int64_t i = j + 1; i < m; i++)
                a[i * n + j] *= scale;
            a[j * n + j] = beta;
            for (int64_t c = j + 1; c < n; c++) {
                cx w = a[j * n + c];
                for (int64_t i = j + 1; i < m; i++)
                    w += conj(a[i * n + j]) * a[i * n + c];
                w *= conj(ta[j]);
                a[j * n + c] -= w;
                for (int64_t i = j + 1; i < m; i++)
                    a[i * n + c] -= a[i * n + j] * w;
            }
        }
        store(&t->store[0], xl_out(s, f, 0), x->elem, q * m * n, a, m * n);
        store(&t->store[1], xl_out(s, f, 1), tau->elem, q * k, ta, k);
    }
    free(a);
    return NULL;
}
xl_error *xl_plan_qr(xl_planner *p, const xl_op *op)
{
    if (op->nin != 1 || op->nout != 2 || xl_in_type(p->f, op, 0)->rank < 2)
        return xl_plan_unsupported(p, op, "Qr takes one matrix and gives two results");
    return xl_plan_step(p, op, run_qr, types_of(p, op), 0);
}

/* The first columns of the product of the reflectors. */
static xl_error *run_householder(const xl_step *s, xl_frame *f)
{
    const types *t = s->data;
    const xl_shape *x = xl_in_shape(s, 0), *tau = xl_in_shape(s, 1);
    int64_t m = x->dims[x->rank - 2], n = x->dims[x->rank - 1], k = tau->dims[tau->rank - 1], mats = m > 0 && n > 0 ? x->count / (m * n) : 0;
    cx *a = malloc((size_t)(2 * m * n + k) * sizeof *a + 1), *y = a + m * n, *ta = y + m * n;
    if (!a)
        return XL_ERR(EXHAUSTED, "no memory for the product");
    for (int64_t q = 0; q < mats; q++) {
        load(&t->load[0], a, xl_in(s, f, 0), x->elem, q * m * n, m * n);
        load(&t->load[1], ta, xl_in(s, f, 1), tau->elem, q * k, k);
        for (int64_t i = 0; i < m; i++)
            for (int64_t c = 0; c < n; c++)
                y[i * n + c] = i == c;
        for (int64_t j = k; j-- > 0; )
            for (int64_t c = 0; c < n; c++) {
                cx w = y[j * n + c];
                for (int64_t i = j + 1; i < m; i++)
                    w += conj(a[i * n + j]) * y[i * n + c];
                w *= ta[j];
                y[j * n + c] -= w;
                for (int64_t i = j + 1; i < m; i++)
                    y[i * n + c] -= a[i * n + j] * w;
            }
        store(&t->store[0], xl_out(s, f, 0), x->elem, q * m * n, y, m * n);
    }
    free(a);
    return NULL;
}
xl_error *xl_plan_householder(xl_planner *p, const xl_op *op)
{
    if (op->nin != 2 || op->nout != 1 || xl_in_type(p->f, op, 0)->rank < 2 || xl_in_type(p->f, op, 1)->rank < 1)
        return xl_plan_unsupported(p, op, "it takes a matrix and its factors");
    return xl_plan_step(p, op, run_householder, types_of(p, op), 0);
}
