/* src/train/model.h
 * Hybrid language models from a pattern of blocks.
 *   A  causal attention (rotary positions, grouped heads, masks by segment), then SwiGLU
 *   M  a selective state space, in chunks so that it is matrix work
 *   E  causal attention, then top-k experts with a capacity: static shapes, a balance loss, dropped tokens counted
 *   R  a gated linear recurrence, then SwiGLU
 *   D  SwiGLU alone: dense, each token for itself
 * "A*12" is twelve A; "AMER*3" the four in turn, three times; "AA(ME)*2" two A and then ME twice. A repeated unit is
 * one scan whose parameters have a row per iteration; names are unit.block.part, as in "u0.0A.wq". */
#ifndef XL_TRAIN_MODEL_H
#define XL_TRAIN_MODEL_H

#include "train/graph.h"

/* Checks the configuration: sizes that do not divide, an unknown block. */
xl_error *xl_model_check(const xl_model *c) XL_MUST_USE;

typedef struct { char block[64]; int n; int64_t times; } xl_pattern_unit; /* n blocks, times over */
enum { XL_UNITS_MAX = 64 };
xl_error *xl_pattern_parse(const char *pattern, xl_pattern_unit *out, int *n) XL_MUST_USE;

/* One token through the model, for sampling. Inputs: token i32[1,1], place i32[] (its position in the window of at most
 * `window`), then a state of fixed shape for each block (keys and values, the state of a convolution or a recurrence;
 * zeros at the beginning). Sets the logits f32[vocab] and the states after the token, in the order of the inputs.
 * Returns the number of states; 0 on an error. */
enum { XL_STATES_MAX = 4096 };
int xl_model_step(xl_graph *g, const xl_model *c, int64_t window, xl_tensor *logits, xl_tensor state[XL_STATES_MAX]);

int64_t xl_graph_params(const xl_graph *g);      /* number of trained parameters */
/* Multiply-adds of one training step count as two, the backward pass as twice the forward. */
double xl_model_flops(const xl_model *c, int64_t params, int64_t batch, int64_t time);

#endif
