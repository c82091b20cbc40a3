/* Tridiagonal systems as JAX emits them for CPUs: `lapack_<type>gtsv_ffi` and `tridiagonal_solve_perturbed_ffi`. The
 * operands are the diagonals below, on and above the main one, each of n elements (the first element of the lower one
 * and the last of the upper one are ignored), then k right-hand sides.
 * Elimination with row exchanges, in double complex for every type. */
#include <complex.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/kernel/ew.h"
#include "cpu/kernel/linalg.h"
#include "cpu/plan/planner.h"

typedef double complex cx;
typedef struct { xl_ew load, store; int64_t mats, n, k; double eps; bool perturb; } call;

static double size_of(cx a) { return fabs(creal(a)) + fabs(cimag(a)); }

/* Solves in place: x has the solution. Gives 0, or the number (from 1) of the row that has no pivot. */
static int32_t solve(const call *c, cx *below, cx *d, cx *above, cx *far, cx *x)
{
    int64_t n = c->n, k = c->k;
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fmax(size_of(d[i]), fmax(i ? size_of(below[i]) : 0, i + 1 < n ? size_of(above[i]) : 0)));
    double least = c->perturb ? c->eps * (most > 0 ? most : 1) : 0;
    for (int64_t i = 0; i < n; i++) {
        bool last = i + 1 == n;
        far[i] = 0;
        if (!last && size_of(below[i + 1]) > size_of(d[i])) {  /* the row below goes first */
            cx t = d[i], u = above[i];
            d[i] = below[i + 1];
            above[i] = d[i + 1];
            below[i + 1] = t;
            d[i + 1] = u;
            if (i + 2 < n) {
                far[i] = above[i + 1];
                above[i + 1] = 0;
            }
            for (int64_t j = 0; j < k; j++) {
                cx b = x[i * k + j];
                x[i * k + j] = x[(i + 1) * k + j];
                x[(i + 1) * k + j] = b;
            }
        }
        if (size_of(d[i]) < least)
            d[i] = creal(d[i]) < 0 ? -least : least;
        if (d[i] == 0)
            return (int32_t)(i + 1);
        if (last)
            break;
        cx q = below[i + 1] / d[i];
        d[i + 1] -= q * above[i];
        if (i + 2 < n)
            above[i + 1] -= q * far[i];
        for (int64_t j = 0; j < k; j++)
            x[(i + 1) * k + j] -= q * x[i * k + j];
    }
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t j = 0; j < k; j++) {
            cx s = x[i * k + j];
            if (i + 1 < n)
                s -= above[i] * x[(i + 1) * k + j];
            if (i + 2 < n)
                s -= far[i] * x[(i + 2) * k + j];
            x[i * k + j] = s / d[i];
        }
    return 0;
}

static xl_error *run_tridiagonal(const xl_step *s, xl_frame *f)
{
    const call *c = s->data;
    int64_t n = c->n, rhs = n * c->k;
    size_t elem = xl_in_shape(s, 3)->elem;
    uint32_t to = c->perturb ? 0 : 3; /* gtsv gives its operands back too, and a word about each system */
    cx *mem = malloc((size_t)(4 * n + rhs + 1) * sizeof *mem);
    if (!mem)
        return XL_ERR(EXHAUSTED, "no memory to solve a system of %lld rows", (long long)n);
    for (int64_t q = 0; q < c->mats; q++) {
        for (uint32_t i = 0; i < 3; i++)
            c->load.fn(mem + i * n, (const void *[]){ (const char *)xl_in(s, f, i) + (size_t)(q * n) * elem },
                       (size_t)n, c->load.ctx);
        cx *x = mem + 4 * n;
        c->load.fn(x, (const void *[]){ (const char *)xl_in(s, f, 3) + (size_t)(q * rhs) * elem }, (size_t)rhs,
                   c->load.ctx);
        int32_t info = solve(c, mem, mem + n, mem + 2 * n, mem + 3 * n, x);
        c->store.fn((char *)xl_out(s, f, to) + (size_t)(q * rhs) * elem, (const void *[]){ x }, (size_t)rhs,
                    c->store.ctx);
        if (!c->perturb)
            ((int32_t *)xl_out(s, f, 4))[q] = info;
    }
    for (uint32_t i = 0; i < to; i++)
        memmove(xl_out(s, f, i), xl_in(s, f, i), (size_t)(c->mats * n) * elem);
    free(mem);
    return NULL;
}

xl_error *xl_plan_tridiagonal(xl_planner *p, const xl_op *op, bool perturb)
{
    const xl_type *b = op->nin == 4 ? xl_in_type(p->f, op, 3) : NULL;
    xl_dclass cls = b ? xl_dtype_class(b->dtype) : XL_CLASS_INT;
    if (!b || op->nout != (perturb ? 1 : 5) || b->rank < 2 || (cls != XL_CLASS_FLOAT && cls != XL_CLASS_COMPLEX))
        return xl_plan_unsupported(p, op, "not the operands and results of a tridiagonal system");
    call *c = xl_new(p->a, call, 1);
    *c = (call){ .mats = 1,
                 .n = b->dims[b->rank - 2],
                 .k = b->dims[b->rank - 1],
                 .perturb = perturb,
                 .load = xl_ew_convert(p->a, b->dtype, XL_C128),
                 .store = xl_ew_convert(p->a, XL_C128, b->dtype),
                 .eps = b->dtype == XL_F64 || b->dtype == XL_C128 ? 2.220446049250313e-16 : 1.1920929e-7 };
    for (uint32_t i = 0; i + 2 < b->rank; i++)
        c->mats *= b->dims[i];
    bool fits = true;
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        uint32_t r = i < op->nin ? i : i - op->nin;        /* the results, too, are three diagonals and the solutions */
        const xl_type *t = i < op->nin ? xl_in_type(p->f, op, r) : xl_out_type(p->f, op, r);
        bool info = i >= op->nin && r == 4, sides = i < op->nin ? r == 3 : perturb || r == 3;
        int64_t count;
        fits = fits && xl_type_count(t, &count) && count == (info ? c->mats : c->mats * c->n * (sides ? c->k : 1)) &&
               t->dtype == (info ? XL_I32 : b->dtype);
    }
    if (!fits)
        return xl_plan_unsupported(p, op, "the diagonals, the right-hand sides and the results do not fit together");
    p->plan->flops += (double)c->mats * (double)c->n * (8.0 + 8.0 * (double)c->k);
    return xl_plan_step(p, op, run_tridiagonal, c, 0);
}
