/* Ops without operands: constants, iota, the device's own numbers. */
#include "cpu/kernel/ew.h"
#include "cpu/plan/planner.h"
#include "cpu/kernel/strided.h"

static xl_error *splat(xl_planner *p, xl_value v, const void *elem, const xl_extent *s)
{
    size_t n = (size_t)s->count * p->lanes;
    char *data = xl_new(p->a, char, n * s->elem + XL_ALIGN);
    data = (char *)(((uintptr_t)data + XL_ALIGN - 1) & ~(uintptr_t)(XL_ALIGN - 1));
    xl_fill(data, elem, s->elem, n);
    xl_plan_bind(p, v, xl_plan_const(p, data, n * s->elem));
    return NULL;
}

enum { SPLAT_MAX = 1 << 16 };                              /* larger splats are filled in when run, not kept */

typedef struct { char elem[16]; } splat_data;
static xl_error *run_splat(const xl_step *s, xl_frame *f)
{
    const xl_extent *out = xl_out_shape(s, 0);
    xl_fill(xl_out(s, f, 0), ((const splat_data *)s->data)->elem, out->elem, (size_t)out->count);
    return NULL;
}

void xl_fill_step(xl_planner *p, uint32_t to, const void *elem, const xl_extent *s)
{
    splat_data *d = xl_new(p->a, splat_data, 1);
    memcpy(d->elem, elem, s->elem);
    xl_plan_add(p, "fill", run_splat, d, NULL, 0, &to, 1, s);
}

xl_error *xl_kernel_constant(xl_planner *p, const xl_op *op)
{
    const xl_attr *a = XL_ATTR(op, CONSTANT, value);
    xl_extent s;
    xl_error *err = xl_shape_of(p, xl_out_type(p->f, op, 0), &s);
    if (err)
        return err;
    if (!a || a->kind != XL_AT_DENSE || a->data.n < (a->splat ? s.elem : s.bytes))
        return xl_plan_unsupported(p, op, "its value is not a dense constant of its type");
    if (s.count == 0) {
        xl_plan_bind(p, op->out[0], xl_plan_const(p, a->data.p, 0));
        return NULL;
    }
    if (!a->splat && p->lanes == 1) {
        if ((uintptr_t)a->data.p % 16 == 0) {              /* kernels want elements aligned */
            xl_plan_bind(p, op->out[0], xl_plan_const(p, a->data.p, s.bytes));
            return NULL;
        }
        char *data = xl_new(p->a, char, s.bytes + 16);
        memcpy(data, a->data.p, s.bytes);
        xl_plan_bind(p, op->out[0], xl_plan_const(p, data, s.bytes));
        return NULL;
    }
    if (s.bytes > SPLAT_MAX && p->lanes == 1) {
        splat_data *d = xl_new(p->a, splat_data, 1);
        memcpy(d->elem, a->data.p, s.elem);
        return xl_plan_step(p, op, run_splat, d, 0);
    }
    return splat(p, op->out[0], a->data.p, &s);
}

xl_error *xl_kernel_constant_like(xl_planner *p, const xl_op *op)
{
    const xl_attr *a = XL_ATTR(op, CHLO_CONSTANT_LIKE, value);
    xl_extent s;
    xl_error *err = xl_shape_of(p, xl_out_type(p->f, op, 0), &s);
    if (err)
        return err;
    double v = a && a->kind == XL_AT_FLOAT ? a->f : a && a->kind == XL_AT_INT ? (double)a->i : 0;
    char elem[16] = { 0 };
    const void *x[1] = { &v };
    xl_ew e = xl_ew_convert(p->a, XL_F64, s.dtype);
    e.fn(elem, x, 1, e.ctx);
    return splat(p, op->out[0], elem, &s);
}

/* ---- iota ------------------------------------------------------------------------------------------------------- */
typedef struct { uint32_t dim; xl_ew convert; } iota;
static xl_error *run_iota(const xl_step *s, xl_frame *f)
{
    const iota *d = s->data;
    const xl_extent *out = xl_out_shape(s, s->nout - 1);
    char *y = xl_out(s, f, 0);
    int64_t inner = 1, n = out->dims[d->dim];
    for (uint32_t i = d->dim + 1; i < out->rank; i++)
        inner *= out->dims[i];
    if (!out->count)
        return NULL;
    int64_t block = inner * n, tile[256];
    for (int64_t at = 0; at < block; at += 256) {          /* the first run along the dimension, then copies of it */
        int64_t m = block - at < 256 ? block - at : 256;
        for (int64_t i = 0; i < m; i++)
            tile[i] = inner == 1 ? at + i : (at + i) / inner;
        const void *x[1] = { tile };
        d->convert.fn(y + (size_t)at * out->elem, x, (size_t)m, d->convert.ctx);
    }
    for (int64_t at = block; at < out->count; at += block)
        memcpy(y + (size_t)at * out->elem, y, (size_t)block * out->elem);
    return NULL;
}
static xl_error *plan_iota(xl_planner *p, const xl_op *op, int64_t dim)
{
    const xl_type *t = xl_out_type(p->f, op, 0);
    iota *d = xl_new(p->a, iota, 1);
    if (dim < 0 || dim >= t->rank)
        return xl_plan_unsupported(p, op, "its dimension is out of range");
    *d = (iota){ (uint32_t)dim, xl_ew_convert(p->a, XL_I64, t->dtype) };
    return xl_plan_step(p, op, run_iota, d, 0);
}
xl_error *xl_kernel_iota(xl_planner *p, const xl_op *op)
{
    return plan_iota(p, op, xl_op_int(op, XL_SLOT(IOTA, iota_dimension)));
}
xl_error *xl_kernel_dynamic_iota(xl_planner *p, const xl_op *op)
{
    return plan_iota(p, op, xl_op_int(op, XL_SLOT(DYNAMIC_IOTA, iota_dimension)));
}

static xl_error *run_device_id(const xl_step *s, xl_frame *f)
{
    *(uint32_t *)xl_out(s, f, 0) = s->op->code == XL_OP_PARTITION_ID ? f->partition : f->replica;
    return NULL;
}
xl_error *xl_kernel_device_id(xl_planner *p, const xl_op *op) { return xl_plan_step(p, op, run_device_id, NULL, 0); }
