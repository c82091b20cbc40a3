/* Which of the program's arguments a value depends on: a change follows from an argument's only if it does. */
#include "ir/compare/diff_state.h"

bool xl_diff_changes_form(const xl_op *op)
{
    static const uint16_t form[] = { XL_OP_CONVERT,  XL_OP_BROADCAST_IN_DIM, XL_OP_RESHAPE,
                                     XL_OP_CONSTANT, XL_OP_TRANSPOSE,        XL_OP_RETURN };
    for (size_t i = 0; i < sizeof form / sizeof *form; i++)
        if (op->code == form[i])
            return true;
    return false;
}

/* Forward: what an op has regions for depends on all that it reads, and its results on all that they return. */
static uint64_t depends(uint64_t *on, const xl_region *r)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        uint64_t reads = 0;
        for (uint32_t k = 0; k < op->nin; k++)
            reads |= on[op->in[k].id];
        for (uint32_t k = 0; k < op->nregion; k++) {
            for (uint32_t q = 0; q < op->region[k]->narg; q++)
                on[op->region[k]->arg[q].id] = reads;
            reads |= depends(on, op->region[k]);
        }
        for (uint32_t k = 0; k < op->nout; k++)
            on[op->out[k].id] = reads;
        all |= reads;
    }
    return all;
}

/* Backward: what only changes a form belongs to the op that reads it. */
static void meets(const uint64_t *on, uint64_t *met, const xl_region *r)
{
    for (uint32_t i = r->nop; i-- > 0;) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            meets(on, met, op->region[k]);
        for (uint32_t k = 0; k < op->nin; k++)
            for (uint32_t q = 0; q < op->nout; q++)
                met[op->in[k].id] |= xl_diff_changes_form(op) ? met[op->out[q].id] : on[op->out[q].id];
    }
}

xl_diff_flow xl_diff_flow_of(xl_arena *arena, const xl_func *f, const uint64_t *args)
{
    xl_diff_flow out = { xl_new(arena, uint64_t, f->nval), xl_new(arena, uint64_t, f->nval) };
    for (uint32_t i = 0; i < f->body->narg; i++)
        out.on[f->body->arg[i].id] = args[i];
    depends(out.on, f->body);
    memcpy(out.met, out.on, f->nval * sizeof *out.met);
    meets(out.on, out.met, f->body);
    return out;
}
