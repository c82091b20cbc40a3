/* src/cpu/plan/group.h
 * Grouping: which ops become one pass over memory. A group is elementwise ops and reductions over one space of
 * elements, read as rows and columns where reductions split it. Every member's result is
 *   FULL: an element per point of the space,
 *   ROW:  an element per row (what a reduction of the columns gives, and what is computed from that),
 *   COL:  an element per column, or ALL: one, for reductions of the rows or of everything; these leave the group.
 * Reshapes, broadcasts, transposes and slices between members and around them are views (view.h), not materialised
 * unless an op outside the group reads them. How groups are found: fuse.h; how one runs: tile.h. */
#ifndef XL_CPU_GROUP_H
#define XL_CPU_GROUP_H

#include "cpu/plan/planner.h"
#include "cpu/plan/view.h"

typedef enum { XL_CLASS_OF_FULL, XL_CLASS_OF_ROW, XL_CLASS_OF_COL, XL_CLASS_OF_ALL } xl_tile_class;

struct xl_group {
    xl_op **op;                                            /* in order */
    uint32_t nop, capop;
    uint32_t rank;                                         /* of the space, dimensions of one element dropped */
    int64_t dim[XL_RANK_MAX];
    int64_t count;
    int32_t split;   /* dimensions before it are the rows'; -1: nothing asked for rows */
    bool row_reduce; /* a member reduces the columns: they must be seen together */
    bool planned;
    /* while grouping */
    uint32_t min, max;                                     /* positions of the first and last member */
    const xl_region *home;
    struct xl_group *into;                                 /* merged into that one */
    uint32_t waits, stamp;
    bool done;
};

/* The group that v's op belongs to, or NULL. */
static inline xl_group *xl_group_of(const xl_planner *p, xl_value v)
{
    return p->group ? p->group[v.id] : NULL;
}
/* How a member reads operand i: through the view, unless that would be slow; then as the operand itself. */
void xl_operand_view(const xl_planner *p, const xl_op *op, uint32_t i, xl_view *out);
xl_tile_class xl_member_class(const xl_planner *p, xl_value v);

/* The reduction that op is: its one op, and which dimensions. False if it is none that a group can take. */
bool xl_reduce_simple(const xl_planner *p, const xl_op *op, xl_opcode *single);

/* How a matrix product reads operand k. */
void xl_dot_view(const xl_planner *p, const xl_op *op, uint32_t k, xl_view *out);
/* Ops of which nothing is made, because all that read them read through them. */
static inline bool xl_op_virtual(const xl_planner *p, const xl_op *op)
{
    return !p->plain && op->nout == 1 && !p->need[op->out[0].id] &&
           (op->code == XL_OP_CONSTANT || op->code == XL_OP_IOTA || xl_op_is_view(p->f, op));
}

/* Makes the step of a group (tile.c). */
xl_error *xl_tile_plan(xl_planner *p, xl_group *g) XL_MUST_USE;

#endif
