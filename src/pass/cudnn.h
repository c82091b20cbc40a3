/* src/pass/cudnn.h
 * cuDNN's fused attention, as XLA's CUDA plugin offers it: one custom call in the forward pass and one in the backward
 * pass, each configured by XLA's JSON. Scores and probabilities are never written to memory. Causal; every row is one
 * document. */
#ifndef XL_PASS_CUDNN_H
#define XL_PASS_CUDNN_H

#include "pass/grad.h"

#define XL_CUDNN_ATTENTION "__cudnn$fmhaSoftmax"
#define XL_CUDNN_ATTENTION_BACK "__cudnn$fmhaSoftmaxBackward"

/* deterministic: as the program will be compiled (xla_gpu_deterministic_ops). */
typedef struct { double scale; bool deterministic; } xl_cudnn_how;
/* q [batch, time, heads, size], k and v [batch, time, groups, size], groups divide heads; all f16 or bf16. The result
 * is as q. */
xl_value xl_cudnn_attention(xl_emit *e, xl_value q, xl_value k, xl_value v, xl_cudnn_how how);
/* Why cuDNN would refuse heads of this size and type; NULL where it would not. */
const char *xl_cudnn_refuses(xl_dtype d, int64_t size);
/* The gradient of such a call. *mine is false, and nothing was done, for a custom call of another kind. */
xl_error *xl_cudnn_grad(xl_grad_ctx *g, xl_op *op, const xl_value *ct, bool *mine) XL_MUST_USE;

#endif
