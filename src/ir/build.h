/* src/ir/build.h
 * Building programs: each call appends an op whose result type is inferred at once. Errors are
 * sticky: after the first one every call does nothing and returns XL_NO_VALUE, so that xl_b_error need be checked only
 * once, at the end.
 *     xl_b b = xl_b_func(m, XL_STR("main"));
 *     xl_value x = xl_b_arg(&b, t), y = xl_b_binary(&b, XL_OP_ADD, x, x);
 *     xl_b_return(&b, &y, 1);
 *     XL_DO(xl_b_error(&b));
 * The module owns everything that is built. One thread at a time. */
#ifndef XL_IR_BUILD_H
#define XL_IR_BUILD_H

#include "ir/ir.h"

typedef struct {
    xl_func *f;
    xl_region *r;                                          /* where ops are appended */
    xl_loc loc;                                            /* of the ops that follow */
    xl_error **err;                                        /* shared by the builders of one function's regions */
} xl_b;

/* A builder of a new function, or at the end of an existing region (r NULL: of the body). */
xl_b xl_b_func(xl_module *m, xl_str name);
xl_b xl_b_at(xl_func *f, xl_region *r);
/* Returns and clears the first error, or NULL; the caller owns it. */
xl_error *xl_b_error(xl_b *b) XL_MUST_USE;
static inline bool xl_b_failed(const xl_b *b) { return *b->err != NULL; }
const xl_type *xl_b_type(const xl_b *b, xl_value v);       /* never NULL: scalar f32 after an error */

/* Any op. Begin creates it with nout results, whose types may be given (out or out[i] NULL: inferred). Then set its
 * attributes and fill its regions, with a builder for each. End infers the types and appends the op; the results are in
 * op->out. After an error op is NULL, which all of these accept. */
xl_op *xl_b_begin(xl_b *b, xl_opcode code, const xl_value *in, uint32_t nin, const xl_type *const *out, uint32_t nout,
                  uint32_t nregion);
void xl_b_set(xl_b *b, xl_op *op, uint32_t slot, const xl_attr *a);
void xl_b_set_dims(xl_b *b, xl_op *op, uint32_t slot, xl_dims d);
void xl_b_set_int(xl_b *b, xl_op *op, uint32_t slot, int64_t v);
xl_b xl_b_region(xl_b *b, xl_op *op, uint32_t which);
bool xl_b_end(xl_b *b, xl_op *op);
xl_value xl_b_end1(xl_b *b, xl_op *op);                    /* the same; returns the first result */

xl_value xl_b_arg(xl_b *b, const xl_type *t);              /* of the builder's function or region */
void xl_b_return(xl_b *b, const xl_value *v, uint32_t n);  /* sets the function's type when it ends the body */

/* Constants. Numbers are rounded to the element type. */
xl_value xl_b_const(xl_b *b, const xl_type *t, const void *data, size_t bytes); /* one element: a splat */
xl_value xl_b_scalar(xl_b *b, xl_dtype d, double v);
xl_value xl_b_splat(xl_b *b, const xl_type *t, double v);
xl_value xl_b_ints(xl_b *b, xl_dtype d, xl_dims v);        /* a list of integers */
xl_value xl_b_iota(xl_b *b, const xl_type *t, int64_t dim);

/* Elementwise. */
xl_value xl_b_unary(xl_b *b, xl_opcode code, xl_value x);
xl_value xl_b_binary(xl_b *b, xl_opcode code, xl_value x, xl_value y);
xl_value xl_b_compare(xl_b *b, int64_t direction, xl_value x, xl_value y); /* XL_COMPARISON_DIRECTION_LT, ... */
xl_value xl_b_select(xl_b *b, xl_value pred, xl_value x, xl_value y);
xl_value xl_b_clamp(xl_b *b, xl_value min, xl_value x, xl_value max);
xl_value xl_b_convert(xl_b *b, xl_value x, xl_dtype d);    /* x itself if it has that type */

/* Shapes. */
xl_value xl_b_broadcast(xl_b *b, xl_value x, xl_dims shape, xl_dims dims); /* broadcast_in_dim */
xl_value xl_b_fill(xl_b *b, xl_value scalar, xl_dims shape);
xl_value xl_b_reshape(xl_b *b, xl_value x, xl_dims shape);
xl_value xl_b_transpose(xl_b *b, xl_value x, xl_dims perm);
xl_value xl_b_reverse(xl_b *b, xl_value x, xl_dims dims);
xl_value xl_b_slice(xl_b *b, xl_value x, xl_dims start, xl_dims limit, xl_dims strides); /* strides.n 0: ones */
xl_value xl_b_concat(xl_b *b, const xl_value *x, uint32_t n, int64_t dim);
xl_value xl_b_pad(xl_b *b, xl_value x, xl_value value, xl_dims low, xl_dims high,
                  xl_dims interior); /* interior.n 0: zeros */
xl_value xl_b_dynamic_slice(xl_b *b, xl_value x, const xl_value *start, xl_dims sizes);
xl_value xl_b_dynamic_update_slice(xl_b *b, xl_value x, xl_value update, const xl_value *start);

/* Contractions and reductions. */
typedef struct {
    xl_dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
    xl_dtype dtype;
    int64_t precision;
} xl_b_dot_dims; /* dtype XL_DT_NONE: lhs's */
xl_value xl_b_dot_general(xl_b *b, xl_value x, xl_value y, const xl_b_dot_dims *d);
xl_value xl_b_matmul(xl_b *b, xl_value x, xl_value y);     /* [..., m, k] by [..., k, n], leading dimensions batched */
xl_value xl_b_reduce(xl_b *b, xl_value x, xl_value init, xl_dims dims,
                     xl_opcode code);                      /* XL_OP_ADD, XL_OP_MAXIMUM, ... */
xl_value xl_b_sum(xl_b *b, xl_value x, xl_dims dims);      /* from zero */
xl_value xl_b_max(xl_b *b, xl_value x, xl_dims dims);      /* from minus infinity, or the least integer */

typedef struct {
    xl_dims offset, collapsed, operand_batch, index_batch, map, sizes;
    int64_t vector_dim;
} xl_b_gather_dims;
xl_value xl_b_gather(xl_b *b, xl_value x, xl_value index, const xl_b_gather_dims *d);
typedef struct {
    xl_dims window, inserted, input_batch, index_batch, map;
    int64_t vector_dim;
    bool sorted, unique;
} xl_b_scatter_dims;
/* Combines with `code`; with XL_OP_RETURN updates replace elements. */
xl_value xl_b_scatter(xl_b *b, xl_value x, xl_value index, xl_value update, const xl_b_scatter_dims *d, xl_opcode code);

#endif
