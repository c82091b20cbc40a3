#include "cpu/kernel/fold.h"

#include <math.h>

#include "cpu/run/feature.h"

XL_CPU_SETS(xl_fold_set, xl_fold)

xl_line_fn *xl_fold_line(xl_dtype d, xl_opcode code) { return xl_fold_best()->find(d, code); }
xl_rows_fn *xl_fold_rows(xl_dtype d, xl_opcode code) { return xl_fold_best()->rows(d, code); }
xl_put xl_fold_put(xl_dtype d, xl_opcode code) { return xl_fold_best()->put(d, code); }

void xl_fold_identity(xl_dtype d, xl_opcode code, void *out)
{
    bool mul = code == XL_OP_MULTIPLY, max = code == XL_OP_MAXIMUM, min = code == XL_OP_MINIMUM;
    size_t n = xl_dtype_bytes(d);
    if (d == XL_F32) {
        float v = mul ? 1 : max ? -INFINITY : min ? INFINITY : -0.0f;
        memcpy(out, &v, n);
    } else if (d == XL_F64) {
        double v = mul ? 1 : max ? -INFINITY : min ? INFINITY : -0.0;
        memcpy(out, &v, n);
    } else {
        bool is_signed = d == XL_I8 || d == XL_I16 || d == XL_I32 || d == XL_I64;
        uint64_t top = (uint64_t)1 << (8 * n - 1), v = 0;
        if (d == XL_I1)
            v = mul || min || code == XL_OP_AND;
        else if (max || min)
            v = !is_signed ? (max ? 0 : UINT64_MAX) : max ? top : top - 1;
        else
            v = mul ? 1 : code == XL_OP_AND ? UINT64_MAX : 0;
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = (uint8_t)(v >> 8 * i);
    }
}

static void cascade_two(const xl_ew *ew, void *acc, const void *x, size_t n)
{
    const void *in[3] = { acc, x, NULL };
    ew->fn(acc, in, n, ew->ctx);
}
void xl_cascade_row(const xl_ew *ew, size_t elem, char *level, size_t stride, size_t i, const void *x, size_t n)
{
    for (size_t l = 0; ; l++, i /= XL_CASCADE, x = level, level += stride) {
        bool top = l + 1 == XL_CASCADE_LEVELS;
        if (i == 0 || (!top && i % XL_CASCADE == 0))
            memcpy(level, x, n * elem);
        else
            cascade_two(ew, level, x, n);
        if (top || (i + 1) % XL_CASCADE)
            return;
    }
}
char *xl_cascade_end(const xl_ew *ew, char *level, size_t stride, size_t rows, size_t n)
{
    char *sum = NULL;
    for (size_t l = 0; l < XL_CASCADE_LEVELS; l++, rows /= XL_CASCADE, level += stride) {
        bool top = l + 1 == XL_CASCADE_LEVELS;
        if (top ? !rows : rows % XL_CASCADE == 0)          /* nothing is left here */
            continue;
        if (sum)
            cascade_two(ew, level, sum, n);
        sum = level;
    }
    return sum;
}

xl_error *xl_fold_plan(xl_planner *p, const xl_op *op, uint32_t r, uint32_t n, xl_fold *out)
{
    *out = (xl_fold){ .n = n, .single = XL_OP_UNKNOWN };
    if (n == 0 || n > 16)
        return xl_plan_unsupported(p, op, "it reduces more than 16 values together");
    if (op->nregion <= r || op->region[r]->narg != 2 * n)
        return xl_plan_unsupported(p, op, "its region does not take two values per operand");
    for (uint32_t i = 0; i < n; i++)
        out->elem[i] = xl_dtype_bytes(xl_value_type(p->f, op->region[r]->arg[i])->dtype);
    xl_opcode single = xl_region_single(p->f, op->region[r]);
    xl_dtype d = xl_value_type(p->f, op->region[r]->arg[0])->dtype;
    if (n == 1 && single != XL_OP_UNKNOWN && (xl_ops[single].flags & XL_OP_ELEMWISE) && xl_op_nattr(single) == 0 &&
        xl_in_type(p->f, op->region[r]->op[1], 0)->dtype == d) {
        out->ew = xl_ew_of(p->a, single, d, d);
        if (out->ew.fn) {
            out->single = single;
            out->ordered = !(xl_ops[single].flags & XL_OP_COMMUTES); /* those that commute associate too */
            return NULL;
        }
    }
    return xl_plan_lanes(p, op, r, &out->block);
}

xl_error *xl_block_apply(const xl_block *b, xl_frame *fr, const void *const *in, void *const *out, size_t m)
{
    size_t lanes = fr->lanes;
    xl_error *err = NULL;
    for (size_t at = 0; at < m && !err; at += b->lanes) {
        size_t k = m - at < b->lanes ? m - at : b->lanes;
        for (uint32_t i = 0; i < b->narg; i++)
            fr->ptr[b->arg[i]] = (char *)(uintptr_t)in[i] + at * b->arg_shape[i].elem;
        fr->lanes = b->lanes > 1 ? k : 0;
        err = xl_block_run(b, fr);
        for (uint32_t i = 0; i < b->nret && !err; i++)
            memcpy((char *)out[i] + at * b->ret_shape[i].elem, fr->ptr[b->ret[i]], k * b->ret_shape[i].elem);
    }
    fr->lanes = lanes;
    return err;
}

xl_error *xl_fold_run(const xl_fold *f, xl_frame *fr, void *const *acc, const void *const *x, size_t m)
{
    if (f->ew.fn) {
        const void *in[3] = { acc[0], x[0], NULL };
        f->ew.fn(acc[0], in, m, f->ew.ctx);
        return NULL;
    }
    const void *in[32];
    for (uint32_t i = 0; i < f->n; i++) {
        in[i] = acc[i];
        in[f->n + i] = x[i];
    }
    return xl_block_apply(f->block, fr, in, acc, m);
}

bool xl_kernel_folds(xl_dtype d, xl_opcode code) { return xl_fold_line(d, code) != NULL; }
