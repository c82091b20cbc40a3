/* src/pass/emit.h
 * The builder of ir/build.h for code that generates programs (gradients, the frontend, the optimizer): the same ops,
 * and a few compound ones. Callers check shapes that come from a user first; an op that the builder refuses here is a
 * bug of ours, and ends the program with its message. */
#ifndef XL_PASS_EMIT_H
#define XL_PASS_EMIT_H

#include "ir/build.h"

typedef xl_b xl_emit;

static inline const xl_type *xl_em_type(const xl_emit *e, xl_value v) { return xl_value_type(e->f, v); }
static inline xl_emit xl_em_in(const xl_emit *e, xl_region *r)
{
    xl_emit in = *e;
    in.r = r;
    return in;
} /* the same, elsewhere */
static inline bool xl_has(xl_value v) { return v.id != XL_NO_VALUE.id; }

/* An op of which the attributes are still to be set; xl_em_done checks it. */
xl_op *xl_em_op(xl_emit *e, xl_opcode code, const xl_value *in, uint32_t nin, const xl_type *out);
xl_value xl_em_done(xl_emit *e, xl_op *op);
xl_value xl_em_unary(xl_emit *e, xl_opcode code, xl_value a);                       /* result of the operand's type */
xl_value xl_em_binary(xl_emit *e, xl_opcode code, xl_value a, xl_value b);          /* result of a's type */
xl_value xl_em_select(xl_emit *e, xl_value p, xl_value a, xl_value b);
xl_value xl_em_compare(xl_emit *e, int direction, xl_value a, xl_value b);          /* XL_COMPARISON_DIRECTION_* */
xl_value xl_em_convert(xl_emit *e, xl_value a, xl_dtype d);                         /* a itself where d is its type */
xl_value xl_em_splat(xl_emit *e, const xl_type *t, double v);                       /* every element v */
xl_value xl_em_scalar(xl_emit *e, xl_dtype d, double v);
xl_value xl_em_like(xl_emit *e, xl_value a, double v);                              /* a splat of a's type */
xl_value xl_em_dense(xl_emit *e, const xl_type *t, const void *data, size_t bytes);
xl_value xl_em_iota(xl_emit *e, const xl_type *t, int64_t dim);
xl_value xl_em_reshape(xl_emit *e, xl_value a, xl_dims dims); /* a itself where it has that shape */
xl_value xl_em_transpose(xl_emit *e, xl_value a, xl_dims perm);
xl_value xl_em_broadcast(xl_emit *e, xl_value a, xl_dims dims, xl_dims at);         /* broadcast_in_dim */
xl_value xl_em_spread(xl_emit *e, xl_value scalar, xl_dims dims);                   /* a scalar over a shape */
xl_value xl_em_reduce(xl_emit *e, xl_opcode code, xl_value a, double init,
                      xl_dims over); /* ADD, MAXIMUM, MINIMUM, MULTIPLY */
xl_value xl_em_sum(xl_emit *e, xl_value a, xl_dims over);
xl_value xl_em_slice(xl_emit *e, xl_value a, const int64_t *start, const int64_t *limit, const int64_t *stride);
xl_value xl_em_pad(xl_emit *e, xl_value a, xl_value with, const int64_t *low, const int64_t *high,
                   const int64_t *interior);
xl_value xl_em_concat(xl_emit *e, const xl_value *in, uint32_t n, int64_t dim);
xl_value xl_em_reverse(xl_emit *e, xl_value a, xl_dims dims);
xl_value xl_em_dynamic_slice(xl_emit *e, xl_value a, const xl_value *start, const int64_t *sizes);
xl_value xl_em_dynamic_update(xl_emit *e, xl_value a, xl_value upd, const xl_value *start);
xl_value xl_em_dot(xl_emit *e, xl_value a, xl_value b, xl_dims abatch, xl_dims bbatch, xl_dims acontract,
                   xl_dims bcontract, xl_dtype out);
/* Element i along the leading axis, with that axis removed; and the reverse: stores `row` there. */
xl_value xl_em_row(xl_emit *e, xl_value a, xl_value i);
xl_value xl_em_put_row(xl_emit *e, xl_value a, xl_value row, xl_value i);
void xl_em_return(xl_emit *e, const xl_value *v, uint32_t n);
/* A region of a reduction over scalars of dtype d: two arguments, one op. */
void xl_em_combiner(xl_emit *e, xl_region *r, xl_opcode code, xl_dtype d);
xl_region *xl_em_enter(xl_emit *e, xl_region *r); /* the region it was in comes back */

#define XL_DIMS(...)                                                                                                   \
    ((xl_dims){ (const int64_t[]){ __VA_ARGS__ }, sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t) })
#define XL_NO_DIMS ((xl_dims){ NULL, 0 })

#endif
