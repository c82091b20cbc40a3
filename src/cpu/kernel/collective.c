/* Collectives. In a group of one device each of them gives back what it was given; larger groups need the devices of an
 * execution to meet, which the partitioned form of a program brings with it. */
#include "cpu/planner.h"

static bool group_of_one(const xl_op *op)
{
    const int64_t *ids;
    int64_t n, size = 0;
    uint32_t slot;
    switch (op->code) {
    case XL_OP_ALL_REDUCE: slot = XL_SLOT(ALL_REDUCE, replica_groups); break;
    case XL_OP_ALL_GATHER: slot = XL_SLOT(ALL_GATHER, replica_groups); break;
    case XL_OP_ALL_TO_ALL: slot = XL_SLOT(ALL_TO_ALL, replica_groups); break;
    case XL_OP_REDUCE_SCATTER: slot = XL_SLOT(REDUCE_SCATTER, replica_groups); break;
    case XL_OP_COLLECTIVE_BROADCAST: slot = XL_SLOT(COLLECTIVE_BROADCAST, replica_groups); break;
    case XL_OP_CROSS_REPLICA_SUM: slot = XL_SLOT(CROSS_REPLICA_SUM, replica_groups); break;
    default: return false;
    }
    const xl_attr *a = op->attr[slot];
    if (a && a->kind == XL_AT_DENSE && a->type->rank == 2)
        return a->type->dims[1] <= 1;
    return xl_op_groups(op, slot, &ids, &n, &size) && size <= 1;
}

/* source_target_pairs of the one device to itself, or none: then the result is zero. */
static xl_error *run_zero(const xl_step *s, xl_frame *f)
{
    memset(xl_out(s, f, 0), 0, xl_out_shape(s, 0)->bytes);
    return NULL;
}

xl_error *xl_kernel_collective(xl_planner *p, const xl_op *op)
{
    bool one = group_of_one(op);
    if (op->code == XL_OP_COLLECTIVE_PERMUTE) {
        xl_dims pairs = xl_op_dims(op, XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs));
        if (pairs.n == 0)
            return xl_plan_step(p, op, run_zero, NULL, 0);
        one = pairs.n == 2 && pairs.p[0] == 0 && pairs.p[1] == 0;
    }
    for (uint32_t i = 0; one && i < op->nout; i++)
        one = i < op->nin && xl_type_eq(xl_in_type(p->f, op, i), xl_out_type(p->f, op, i));
    if (!one)
        return xl_plan_unsupported(p, op, "a collective of several devices in a program that was not partitioned");
    for (uint32_t i = 0; i < op->nout; i++)
        xl_plan_alias(p, op->out[i], op->in[i]);
    return NULL;
}
