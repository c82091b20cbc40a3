/* src/pass/triton.h
 * Our own kernels for XLA's CUDA plugin. They are written in Triton's IR and passed as custom calls, as JAX's Pallas
 * does; the plugin compiles them. Each reads and writes its tensors once, where XLA's fusions make several passes. Sums
 * have a fixed order: the same bits every time. */
#ifndef XL_PASS_TRITON_H
#define XL_PASS_TRITON_H

#include "pass/grad.h"

#define XL_TRITON_CALL "__gpu$xla.gpu.triton"

/* Why a model of this type and width cannot use them; NULL where it can. */
const char *xl_triton_refuses(xl_dtype d, int64_t width);

/* Cross-entropy of logits [.., n] (bf16 or f16) with labels i32 [..] and the weight f32 [..] of each row in the loss.
 * *nll is each row's loss, which has no gradient; *weighted is the same times its weight, and has: it is computed on
 * the way, in the place of the logits. */
void xl_triton_loss(xl_emit *e, xl_value logits, xl_value labels, xl_value weight, xl_value *nll, xl_value *weighted);

/* RMSNorm over the last dimension of *x + delta, or of *x where delta is XL_NO_VALUE. x and delta are bf16 or f16, gain
 * f32. Gives the normed tensor, and leaves the sum in *x. */
xl_value xl_triton_norm(xl_emit *e, xl_value *x, xl_value delta, xl_value gain, double eps);

/* x [batch, time, channels] has the channels of `heads` heads of queries, then of `groups` of keys, then of values, in
 * bf16 or f16. out: q [batch, time, heads, size] and k [batch, time, groups, size], turned by their positions, and v.
 * cos and sin f32 [batch, time, 1, size / 2], which have no gradient, are those of the pairs (i, i + size / 2). */
void xl_triton_rope(xl_emit *e, xl_value x, xl_value cos, xl_value sin, int64_t heads, int64_t groups, xl_value out[3]);

/* The same values as v, a concatenation along dimension 0 of equal parts in bf16 or f16, copied by one kernel, and
 * sums of their squares, which add up to that of v. A part that is a slice is read in place. Returns false without
 * changes if v is something else. */
bool xl_triton_join(xl_emit *e, xl_value v, xl_value *joined, xl_value *squares);

/* The same values as v, each row of which is the sum of the rows of a matrix in f32: a concatenation of such sums,
 * or the sum over the second dimension of a tensor of matrices. Gradients of the gains of norms have this form.
 * Returns false without changes if v is something else. */
bool xl_triton_columns(xl_emit *e, xl_value v, xl_value *out);

/* Rows lo to hi of x, available only once all of `after` are: XLA may compute in any order, and this makes it free
 * the inputs of those before it starts with these rows. (It removes its own barriers before it chooses the order.) */
xl_value xl_triton_after(xl_emit *e, xl_value x, int64_t lo, int64_t hi, const xl_value *after, uint32_t n);

/* Whether op is a norm, or the gradient of one, that can write this result of its to a row of stacked tensors, in
 * place, at an i32 index. */
bool xl_triton_puts_rows(const xl_func *f, const xl_op *op, xl_value result, xl_value index);
/* Then `result` is stored in row `index` of `rows`, and stands for all rows from now on; the caller makes its
 * readers read that row. If the index is another value plus a constant, it may be computed after op: only the other
 * value is read. */
void xl_triton_put_row(xl_func *f, xl_op *op, xl_value result, xl_value rows, xl_value index);
/* Whether the results of a call of ours take no longer to make again than to copy from a row. */
bool xl_triton_again(const xl_op *op);
/* Our own calls in r whose operands are rows of stacked tensors read them in place. */
void xl_triton_read_rows(xl_func *f, xl_region *r);

/* The gradient of such a call. *mine is false, and nothing was done, for a custom call of another kind. */
xl_error *xl_triton_grad(xl_grad_ctx *g, xl_op *op, const xl_value *ct, bool *mine) XL_MUST_USE;

#endif
