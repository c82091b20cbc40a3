/* Batch normalisation: training, inference, gradient. Statistics are kept in double. */
#include <math.h>
#include <stdlib.h>

#include "cpu/kernel/ew.h"
#include "cpu/plan/planner.h"

typedef struct { int64_t dim; double eps; xl_ew load, store; } norm;

static xl_error *plan_norm(xl_planner *p, const xl_op *op, const xl_attr *eps, int64_t dim, xl_step_fn *run)
{
    norm *d = xl_new(p->a, norm, 1);
    const xl_type *x = xl_in_type(p->f, op, 0);
    if (dim < 0 || dim >= x->rank || xl_dtype_class(x->dtype) != XL_CLASS_FLOAT)
        return xl_plan_unsupported(p, op, "its feature dimension or type is out of range");
    *d = (norm){ dim, eps && eps->kind == XL_AT_FLOAT ? eps->f : 0, xl_ew_convert(p->a, x->dtype, XL_F64),
                 xl_ew_convert(p->a, XL_F64, x->dtype) };
    return xl_plan_step(p, op, run, d, 0);
}

static double *widen(const norm *d, const xl_step *s, const xl_frame *f, uint32_t i)
{
    double *w = malloc((size_t)s->shape[i].count * sizeof *w + 1);
    const void *in[1] = { xl_in(s, f, i) };
    if (w)
        d->load.fn(w, in, (size_t)s->shape[i].count, d->load.ctx);
    return w;
}
static void narrow(const norm *d, const xl_step *s, const xl_frame *f, uint32_t i, const double *w)
{
    const void *in[1] = { w };
    d->store.fn(xl_out(s, f, i), in, (size_t)xl_out_shape(s, i)->count, d->store.ctx);
}

static xl_error *run(const xl_step *s, xl_frame *f)
{
    const norm *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0);
    int64_t n = x->dims[d->dim], inner = 1, outer = 1;
    double *v[5] = { 0 }, *y = NULL;
    xl_error *err = NULL;
    for (int64_t i = 0; i < d->dim; i++)
        outer *= x->dims[i];
    for (uint32_t i = (uint32_t)d->dim + 1; i < x->rank; i++)
        inner *= x->dims[i];
    double count = (double)(outer * inner);
    bool ok = (y = malloc((size_t)x->count * sizeof *y + 1)) != NULL;
    for (uint32_t i = 0; i < s->nin && ok; i++)
        ok = (v[i] = widen(d, s, f, i)) != NULL;
    double *a = malloc((size_t)(2 * n) * sizeof *a + 1);
    if (!ok || !a) {
        err = XL_ERR(EXHAUSTED, "no memory for a batch norm");
        goto out;
    }
    double *b = a + n;
    XL_KNOWN(y && v[0] && v[1] && v[2]);                   /* ok says so; the op has 3 or 5 operands */
    XL_KNOWN(s->op->code == XL_OP_BATCH_NORM_TRAINING || (v[3] && v[4]));
#define EACH(c, i)                                                                                                     \
    for (int64_t o_ = 0; o_ < outer; o_++)                                                                             \
        for (int64_t k_ = 0, i = (o_ * n + (c)) * inner; k_ < inner; k_++, i++)
    for (int64_t c = 0; c < n; c++) {
        double mean = 0, var = 0;
        switch (s->op->code) {
        case XL_OP_BATCH_NORM_TRAINING:
            EACH(c, i) mean += v[0][i];
            mean /= count;
            EACH(c, i) var += (v[0][i] - mean) * (v[0][i] - mean);
            var /= count;
            a[c] = mean, b[c] = var;
            EACH(c, i) y[i] = (v[0][i] - mean) / sqrt(var + d->eps) * v[1][c] + v[2][c];
            break;
        case XL_OP_BATCH_NORM_INFERENCE:
            EACH(c, i) y[i] = (v[0][i] - v[3][c]) / sqrt(v[4][c] + d->eps) * v[1][c] + v[2][c];
            break;
        default: {                                         /* operand, scale, mean, variance, grad_output */
            double inv = 1 / sqrt(v[3][c] + d->eps), sum = 0, dot = 0;
            EACH(c, i) sum += v[4][i];
            EACH(c, i) dot += v[4][i] * (v[0][i] - v[2][c]);
            a[c] = dot * inv, b[c] = sum;
            EACH(c, i) y[i] = v[1][c] * inv * (v[4][i] - sum / count - (v[0][i] - v[2][c]) * inv * inv * dot / count);
        }
        }
    }
    narrow(d, s, f, 0, y);
    if (s->nout == 3) {
        narrow(d, s, f, 1, a);
        narrow(d, s, f, 2, b);
    }
out:
    for (int i = 0; i < 5; i++)
        free(v[i]);
    free(y);
    free(a);
    return err;
}
xl_error *xl_kernel_batch_norm_training(xl_planner *p, const xl_op *op)
{
    return plan_norm(p, op, XL_ATTR(op, BATCH_NORM_TRAINING, epsilon),
                     xl_op_int(op, XL_SLOT(BATCH_NORM_TRAINING, feature_index)), run);
}
xl_error *xl_kernel_batch_norm_inference(xl_planner *p, const xl_op *op)
{
    return plan_norm(p, op, XL_ATTR(op, BATCH_NORM_INFERENCE, epsilon),
                     xl_op_int(op, XL_SLOT(BATCH_NORM_INFERENCE, feature_index)), run);
}
xl_error *xl_kernel_batch_norm_grad(xl_planner *p, const xl_op *op)
{
    return plan_norm(p, op, XL_ATTR(op, BATCH_NORM_GRAD, epsilon),
                     xl_op_int(op, XL_SLOT(BATCH_NORM_GRAD, feature_index)), run);
}
