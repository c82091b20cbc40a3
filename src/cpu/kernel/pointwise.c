/* Elementwise ops as steps, cut into chunks that the pool shares. */
#include "cpu/kernel/ew.h"
#include "cpu/plan/planner.h"

typedef struct {
    xl_ew ew;
    uint32_t nin;
    size_t in_bytes[3], out_bytes;
    bool scalar[3];                                        /* one element for all: spread into a tile first */
} pointwise;

typedef struct { const pointwise *d; char *y; const char *x[3]; } job;

enum { CHUNK = 16384, TILE = 512 };

static void spread(void *tile, const void *v, size_t bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy((char *)tile + i * bytes, v, bytes);
}

static void run_chunk(void *ctx, size_t begin, size_t end)
{
    const job *j = ctx;
    const pointwise *d = j->d;
    const void *x[3] = { NULL, NULL, NULL };
    if (!d->scalar[0] && !d->scalar[1] && !d->scalar[2]) {
        for (uint32_t k = 0; k < d->nin; k++)
            x[k] = j->x[k] + begin * d->in_bytes[k];
        d->ew.fn(j->y + begin * d->out_bytes, x, end - begin, d->ew.ctx);
        return;
    }
    _Alignas(16) char tile[3][TILE * 16];
    for (uint32_t k = 0; k < d->nin; k++)
        if (d->scalar[k])
            spread(tile[k], j->x[k], d->in_bytes[k], end - begin < TILE ? end - begin : TILE);
    for (size_t i = begin; i < end; i += TILE) {
        size_t m = end - i < TILE ? end - i : TILE;
        for (uint32_t k = 0; k < d->nin; k++)
            x[k] = d->scalar[k] ? tile[k] : j->x[k] + i * d->in_bytes[k];
        d->ew.fn(j->y + i * d->out_bytes, x, m, d->ew.ctx);
    }
}

static xl_error *run_pointwise(const xl_step *s, xl_frame *f)
{
    job j = { .d = s->data, .y = xl_out(s, f, 0) };
    for (uint32_t k = 0; k < s->nin; k++)
        j.x[k] = xl_in(s, f, k);
    size_t n = f->lanes ? f->lanes : (size_t)s->shape[s->nin].count;
    if (f->lanes) {                                        /* in a vector block every value is spread already */
        const void *x[3] = { j.x[0], j.x[1], j.x[2] };
        j.d->ew.fn(j.y, x, n, j.d->ew.ctx);
        return NULL;
    }
    if (n <= CHUNK)
        run_chunk(&j, 0, n);
    else
        xl_pool_for(f->pool, n, CHUNK, run_chunk, &j);
    return NULL;
}

static xl_error *plan_pointwise(xl_planner *p, const xl_op *op)
{
    pointwise *d = xl_new(p->a, pointwise, 1);
    xl_dtype in[3] = { XL_DT_NONE, XL_DT_NONE, XL_DT_NONE };
    const xl_type *to = xl_out_type(p->f, op, 0);
    uint32_t inplace = 0;
    if (op->nin > 3 || op->nin == 0)
        return xl_plan_unsupported(p, op, "this number of operands");
    for (uint32_t k = 0; k < op->nin; k++) {
        const xl_type *t = xl_in_type(p->f, op, k);
        if (t->kind != XL_TY_TENSOR || t->quant || to->quant)
            return xl_plan_unsupported(
                p, op, "quantised tensors are not supported by this device: dequantise before compiling");
        in[k] = t->dtype;
        d->in_bytes[k] = xl_dtype_bytes(t->dtype);
        int64_t n = 0, m = 0;
        if (!xl_type_count(t, &n) || !xl_type_count(to, &m))
            return xl_plan_unsupported(p, op, "its shape is not known when compiling");
        if (n != m && n != 1)
            return xl_plan_unsupported(p, op, "its operands differ in shape");
        d->scalar[k] = p->lanes == 1 && n == 1 && m != 1;
        if (!d->scalar[k] && d->in_bytes[k] == xl_dtype_bytes(to->dtype))
            inplace |= 1u << k;
    }
    d->nin = op->nin;
    d->out_bytes = xl_dtype_bytes(to->dtype);
    d->ew = xl_ew_find(p->a, op, in, to->dtype);
    if (!d->ew.fn) {
        xl_str what = xl_strf(p->a, "no such operation on %s", xl_dtypes[in[op->code == XL_OP_SELECT]].text);
        return xl_plan_unsupported(p, op, what.p);
    }
    int64_t n = 0;
    (void)xl_type_count(to, &n);
    p->plan->flops += (double)n * (op->code == XL_OP_PRODUCT_SUM ? 2 : 1);
    return xl_plan_step(p, op, run_pointwise, d, inplace);
}

xl_error *xl_kernel_unary(xl_planner *p, const xl_op *op) { return plan_pointwise(p, op); }
xl_error *xl_kernel_binary(xl_planner *p, const xl_op *op) { return plan_pointwise(p, op); }
xl_error *xl_kernel_compare(xl_planner *p, const xl_op *op) { return plan_pointwise(p, op); }
xl_error *xl_kernel_select(xl_planner *p, const xl_op *op) { return plan_pointwise(p, op); }
xl_error *xl_kernel_product_sum(xl_planner *p, const xl_op *op) { return plan_pointwise(p, op); }
xl_error *xl_kernel_clamp(xl_planner *p, const xl_op *op) { return plan_pointwise(p, op); }
xl_error *xl_kernel_convert(xl_planner *p, const xl_op *op)
{
    if (xl_in_type(p->f, op, 0)->dtype == xl_out_type(p->f, op, 0)->dtype && !xl_in_type(p->f, op, 0)->quant) {
        xl_plan_alias(p, op->out[0], op->in[0]);
        return NULL;
    }
    return plan_pointwise(p, op);
}
xl_error *xl_kernel_reduce_precision(xl_planner *p, const xl_op *op) { return plan_pointwise(p, op); }
