/* Small all_reduces over the same groups wait for each other: one is held back until something needs its result, and the others that come by
 * until then join it. The gradients of a data-parallel step thus cross in a few collectives instead of one per parameter. */
#include "pass/shard.h"

enum { SMALL = 1 << 20, MOST = 64 };

static xl_opcode combiner(const xl_op *op)
{
    const xl_region *r = op->region[0];
    return r->nop == 2 && r->op[0]->nin == 2 ? (xl_opcode)r->op[0]->code : XL_OP_UNKNOWN;
}

static bool joins(const xl_func *f, const xl_op *a, const xl_op *b)
{
    return combiner(a) == combiner(b) && combiner(a) != XL_OP_UNKNOWN && xl_in_type(f, a, 0)->dtype == xl_in_type(f, b, 0)->dtype &&
           xl_attr_eq(XL_ATTR(a, ALL_REDUCE, replica_groups), XL_ATTR(b, ALL_REDUCE, replica_groups)) &&
           xl_op_int(a, XL_SLOT(ALL_REDUCE, channel_id)) == xl_op_int(b, XL_SLOT(ALL_REDUCE, channel_id)) &&
           xl_op_int(a, XL_SLOT(ALL_REDUCE, use_global_device_ids)) == xl_op_int(b, XL_SLOT(ALL_REDUCE, use_global_device_ids));
}

typedef struct { xl_op *op[MOST]; uint32_t n; } waiting;

static bool uses(const xl_func *f, const xl_op *op, const waiting *w)
{
    for (uint32_t i = 0; i < op->nin; i++) {
        const xl_op *d = f->val[op->in[i].id].def;
        for (uint32_t k = 0; k < w->n; k++)
            if (d == w->op[k])
                return true;
    }
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            if (uses(f, op->region[k]->op[i], w))
                return true;
    return false;
}

static void flush(xl_func *f, xl_region *r, waiting *w)
{
    if (w->n == 1) {
        xl_region_append(f, r, w->op[0]);
    } else if (w->n > 1) {
        xl_value in[MOST];
        const xl_type *out[MOST];
        for (uint32_t i = 0; i < w->n; i++) {
            in[i] = w->op[i]->in[0];
            out[i] = xl_out_type(f, w->op[i], 0);
        }
        xl_op *all = xl_op_new(f, NULL, XL_OP_ALL_REDUCE, in, w->n, out, w->n, 0, w->op[0]->loc);
        all->region = w->op[0]->region;
        all->nregion = w->op[0]->nregion;
        all->region[0]->owner = all;
        for (uint32_t i = 0; i < xl_op_nattr(XL_OP_ALL_REDUCE); i++)
            all->attr[i] = w->op[0]->attr[i];
        for (uint32_t i = 0; i < w->n; i++) {              /* the old results are this op's from now on */
            all->out[i] = w->op[i]->out[0];
            f->val[all->out[i].id].def = all;
            f->val[all->out[i].id].index = i;
        }
        xl_region_append(f, r, all);
    }
    w->n = 0;
}

void xl_shard_combine(xl_func *f, xl_region *r)
{
    xl_op **old = r->op;
    uint32_t n = r->nop;
    waiting w = { .n = 0 };
    r->op = NULL;
    r->nop = r->capop = 0;
    for (uint32_t i = 0; i < n; i++) {
        xl_op *op = old[i];
        int64_t bytes;
        for (uint32_t k = 0; k < op->nregion; k++)
            if (op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE)
                xl_shard_combine(f, op->region[k]);
        bool small = op->code == XL_OP_ALL_REDUCE && op->nin == 1 && xl_type_bytes(xl_in_type(f, op, 0), &bytes) && bytes <= SMALL;
        if (w.n && (uses(f, op, &w) || op->code == XL_OP_RETURN || (small && (!joins(f, w.op[0], op) || w.n == MOST))))
            flush(f, r, &w);
        if (small)
            w.op[w.n++] = op;
        else
            xl_region_append(f, r, op);
    }
    flush(f, r, &w);
}
