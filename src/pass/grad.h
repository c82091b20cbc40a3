/* src/pass/grad.h
 * Reverse-mode gradients. The engine visits the ops of a region backwards; for each op that a cotangent reaches, it
 * calls the rule in the `gradient` column of ops.def, which appends the adjoint ops and adds to the cotangent of each
 * operand. The program is changed in place: gradients are further ops at the end of the same region. See grad.c. */
#ifndef XL_PASS_GRAD_H
#define XL_PASS_GRAD_H

#include "pass/emit.h"

/* What a loop keeps for the backward pass; the rest is computed again. */
typedef enum {
    XL_KEEP_CARRY,    /* only what goes round the loop: least memory */
    XL_KEEP_DOTS,     /* also results of matrix products, convolutions and loops inside */
} xl_grad_keep;

typedef struct {
    xl_grad_keep keep;
    bool gpu;         /* no scatter that adds where a lookup was: it is atomic there, or slow (grad_rows.c) */
} xl_grad_opts;

/* d loss / d wrt[i], each of its value's type. `loss` is a scalar float of f's body; calls and composites must have
 * been inlined (xl_pass_inline). Where loss does not depend on wrt[i], out[i] is a constant zero. The body has no
 * RETURN yet, or its RETURN stays last. opts may be NULL. */
xl_error *xl_grad(xl_func *f, xl_value loss, const xl_value *wrt, uint32_t n, const xl_grad_opts *opts,
                  xl_value *out) XL_MUST_USE;

/* Ops whose `extra` has this key (an integer, the same for all ops of one group, which are adjacent) are recomputed
 * in the backward pass instead of kept: rematerialisation by region. */
#define XL_GRAD_REMAT "xlane.remat"
/* A loop whose op has this key keeps only its carried values, whatever the options say about loops; loops inside it
 * follow the options. */
#define XL_GRAD_LEAN "xlane.lean"
/* An op with this key in `extra` passes no cotangent on. These keys are for us: xl_grad_strip takes them off
 * a program. */
#define XL_GRAD_STOP "xlane.stop_gradient"
void xl_grad_strip(xl_func *f);

/* ---- for the rules ----------------------------------------------------------------------------------------------- */
typedef struct xl_grad_ctx xl_grad_ctx;
struct xl_grad_ctx {
    xl_emit e;                 /* where the adjoint goes */
    xl_grad_opts opts;
    xl_value *cot;             /* by value id: its cotangent so far, or XL_NO_VALUE */
    bool *active;              /* by value id: depends on what we differentiate by */
    uint32_t cap;              /* of both */
    struct xl_cot_part *part;  /* cotangents of slices that are not in `cot` yet (xl_cot_add_part) */
    uint32_t npart, cappart;
};

/* ct[i]: the cotangent of result i, XL_NO_VALUE if there is none; at least one exists. */
typedef xl_error *xl_grad_fn(xl_grad_ctx *g, xl_op *op, const xl_value *ct);

bool xl_cot_active(const xl_grad_ctx *g, xl_value v);
xl_value xl_cot_get(xl_grad_ctx *g, xl_value v);
void xl_cot_set(xl_grad_ctx *g, xl_value v, xl_value cot);
/* Adds to v's cotangent; nothing where v is not active. */
void xl_cot_add(xl_grad_ctx *g, xl_value v, xl_value cot);
/* The cotangent of v[.., lo:lo+size of cot in `dim`, ..]. Parts that do not overlap become one concatenation when v's
 * cotangent is asked for, instead of a sum of padded tensors. */
void xl_cot_add_part(xl_grad_ctx *g, xl_value v, uint32_t dim, int64_t lo, xl_value cot);
/* An engine for a region of its own: knows what is active, has no cotangents yet. */
xl_grad_ctx xl_cot_inner(const xl_grad_ctx *g, xl_region *r);
/* Marks what depends on active values in these ops, and sweeps them backwards. */
void xl_cot_mark(xl_grad_ctx *g, xl_op *const *ops, uint32_t n);
xl_error *xl_cot_sweep(xl_grad_ctx *g, xl_op *const *ops, uint32_t n) XL_MUST_USE;
/* Values that op's regions use and do not define, each once. */
xl_value *xl_cot_captures(const xl_func *f, const xl_op *op, uint32_t *n);
/* Removes ops without uses from `r`, a region that we built, so uses are easy to find. */
void xl_cot_prune(xl_func *f, xl_region *r);
static inline bool xl_cot_float(const xl_type *t)
{
    return t->kind == XL_TY_TENSOR &&
           (xl_dtype_class(t->dtype) == XL_CLASS_FLOAT || xl_dtype_class(t->dtype) == XL_CLASS_COMPLEX);
}
/* Reductions and windows of several tensors or by any function, as loops (grad_expand.c). */
xl_error *xl_grad_reduce_any(xl_grad_ctx *g, xl_op *op, const xl_value *ct) XL_MUST_USE;
xl_error *xl_grad_window_any(xl_grad_ctx *g, xl_op *op, const xl_value *ct) XL_MUST_USE;
/* The gradient of a lookup without a scatter that adds (grad_rows.c): `into` with what the cotangent adds to it.
 * `index` is the gather's, within bounds. XL_NO_VALUE where the gather is no such lookup, or opts do not ask for it. */
xl_value xl_grad_lookup(xl_grad_ctx *g, const xl_op *gather, xl_value into, xl_value index, xl_value ct);
xl_value *xl_cot_map(const xl_func *f, uint32_t *n); /* a map of every value to itself, for cloning */

#define OP(name, text, in, out, regions, types, grad, ...) xl_grad_fn xl_grad_##grad;
#include "ir/ops.def"

#endif
