/* src/cpu/plan/planner.h
 * Making plans: what the planner offers to kernels. The kernel column of ops.def names a function here:
 * xl_kernel_<name>(p, op) is called once per op while the plan is made, decodes the attributes, and adds steps (or
 * none, when the result is the operand under another shape). A row without a function fails to link.
 *
 * A step's results may reuse the memory of an operand that is not read later, if its kernel can work in place:
 * `inplace` has bit i set for operand i. The pointers may then be equal or not; the kernel must handle both. */
#ifndef XL_CPU_PLANNER_H
#define XL_CPU_PLANNER_H

#include "cpu/plan/plan.h"

typedef struct { uint32_t *buf; uint32_t n; } xl_leaves;   /* a value's buffers: one, or those of a tuple's elements */

typedef struct xl_planner {
    xl_plan *plan;
    xl_arena *a;
    xl_func *f;
    xl_block *block;                                       /* where steps go now */
    xl_leaves *leaf;                                       /* per value */
    int64_t *last;                                         /* per value: position of its last use */
    uint32_t *hint;                                        /* per value: the buffer it should be made in, or NO_BUF */
    uint32_t *donee; /* per argument: the output that takes over its memory, or NO_BUF */
    int64_t *begin, *end;                                  /* per op number (op->mark) */
    int64_t pos;                                           /* of the op at work */
    uint32_t lanes;                                        /* 1, or the width of the vector block at work */
    uint32_t depth;
    bool plain; /* op by op: no groups, views, hints or sharing of memory; the oracle of the planned form */
    struct xl_group **group;                               /* per value: the group its op is in, or NULL (fuse.h) */
    bool *need;                                            /* per value: somebody reads it in memory */
    bool *live; /* per member of a group: it is needed, or a live member of its group reads it */
    uint8_t *member;                                       /* per value: its class in its group */
    struct xl_view **view; /* per value, up to nview: how it can be read, once somebody asked (fuse.c) */
    uint32_t nview;
    uint32_t *nuse; /* per value: ops that read it, when grouping began; NULL: not known */
    struct xl_group **reader;                              /* per value, while grouping: the last group that reads it */
} xl_planner;
typedef struct xl_group xl_group;

#define XL_NO_BUF UINT32_MAX

typedef xl_error *xl_kernel_fn(xl_planner *p, const xl_op *op);
#define OP(name, text, nin, nout, nregion, types, grad, shard, kernel, ...) xl_kernel_fn xl_kernel_##kernel;
#include "ir/ops.def"
/* What the planner asks the kernels, declared here and defined there: the planner includes none of their headers. */
bool xl_kernel_folds(xl_dtype d, xl_opcode code);          /* is there a loop that folds a line of elements? */
void xl_kernel_to_f64(xl_arena *a, xl_dtype d, double *y, const void *x, size_t n);
void xl_kernel_round(xl_dtype narrow, float x, void *y);

/* A plan of f, op by op. The module stays the caller's. */
xl_error *xl_plan_plain(xl_func *f, xl_plan **out) XL_MUST_USE;
xl_error *xl_shape_of(xl_planner *p, const xl_type *t, xl_extent *out) XL_MUST_USE;
/* One step for the op: operands and results are the op's, blocks `sub` (nsub may be 0). */
xl_error *xl_plan_step(xl_planner *p, const xl_op *op, xl_step_fn *run, const void *data, uint32_t inplace) XL_MUST_USE;
xl_error *xl_plan_step_sub(xl_planner *p, const xl_op *op, xl_step_fn *run, const void *data, uint32_t inplace,
                           xl_block *const *sub) XL_MUST_USE;
/* A step for several ops at once, or for one that reads other buffers than its operands': in[] are buffers, out[] the
 * values it makes. Results for which in_place says true may lie in operands that `inplace` names. temp[]: sizes of
 * memory that the step needs while it runs; they follow the results in buf. in_val: the values in in[] (XL_NO_VALUE:
 * the step's own constants); ops: what it does. */
xl_error *xl_plan_step_group(xl_planner *p, const char *name, xl_step_fn *run, const void *data, xl_op *const *ops,
                             uint32_t nop, const uint32_t *in, const xl_value *in_val, const xl_extent *shape,
                             uint32_t nin, const xl_value *out, const bool *in_place, uint32_t nout, uint32_t inplace,
                             const size_t *temp, uint32_t ntemp, xl_step **step) XL_MUST_USE;
/* The op's result is a part of its first operand, in the same memory, where `run` points when it is known (it sets the
 * result's pointer).
 * False, and nothing done, if that memory could be written to while the result is still read. */
bool xl_plan_part(xl_planner *p, const xl_op *op, xl_step_fn *run, const void *data);
/* A step that belongs to no op of its own. */
void xl_plan_add(xl_planner *p, const char *name, xl_step_fn *run, const void *data, const uint32_t *in, uint32_t nin,
                 const uint32_t *out, uint32_t nout, const xl_extent *shape);
/* The op's result k is its operand i, in the same memory. */
void xl_plan_alias(xl_planner *p, xl_value to, xl_value from);
uint32_t xl_plan_buf_new(xl_planner *p, xl_buf_kind kind, size_t bytes);
uint32_t xl_plan_const(xl_planner *p, const void *data, size_t bytes);
void xl_plan_bind(xl_planner *p, xl_value v, uint32_t buf);
/* The op at work will write to buf, which somebody else owns: an output is in use from then on. */
void xl_plan_claim(xl_planner *p, uint32_t buf);
/* Plans region r of op. args: buffers for its arguments (flattened), or NULL to make fresh ones. rets: buffers the
 * results should end in, or NULL. */
xl_error *xl_plan_region(xl_planner *p, const xl_op *op, uint32_t r, const uint32_t *args, const uint32_t *rets,
                         xl_block **out) XL_MUST_USE;
/* Plans a region of scalars as a vector block of XL_LANES where all its ops are elementwise, else one element wide. */
xl_error *xl_plan_lanes(xl_planner *p, const xl_op *op, uint32_t r, xl_block **out) XL_MUST_USE;
/* The one op between the region's two arguments and its result (add, maximum, ...), or XL_OP_UNKNOWN. For regions of 2n
 * arguments and n results, that of result 0 when n is 1. */
xl_opcode xl_region_single(const xl_func *f, const xl_region *r);
xl_error *xl_plan_unsupported(const xl_planner *p, const xl_op *op, const char *why) XL_MUST_USE;

/* Kernels that others call. */
bool xl_slot_step(
    xl_planner *p, const xl_op *op,
    uint32_t *slot); /* where dynamic_update_slice will put its row, if that is one piece and known by now */
const void *xl_carry_splat(const xl_planner *p,
                           xl_value v); /* the one number that v is, which a loop fills in by itself; or NULL */
void xl_fill_step(xl_planner *p, uint32_t to, const void *elem, const xl_extent *s);
void xl_copy_step(xl_planner *p, uint32_t from, uint32_t to, const xl_extent *s);
xl_error *xl_run_copy(const xl_step *s, xl_frame *f);

#endif
