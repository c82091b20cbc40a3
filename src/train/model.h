/* src/train/model.h
 * Hybrid language models from a pattern of blocks.
 *   A  causal attention (rotary positions, grouped heads, masks by segment), then SwiGLU
 *   M  a selective state space, in chunks so that it is matrix work
 *   E  causal attention, then top-k experts with a capacity: static shapes, a balance loss, dropped tokens counted
 *   R  a gated linear recurrence, then SwiGLU
 *   D  SwiGLU alone: dense, each token for itself
 * "A*12" is twelve A; "AMER*3" the four in turn, three times; "AA(ME)*2" two A and then ME twice. A repeated unit is one scan
 * whose parameters have a row per turn; names are unit.block.part, as in "u0.0A.wq". */
#ifndef XL_TRAIN_MODEL_H
#define XL_TRAIN_MODEL_H

#include "train/graph.h"

typedef struct {
    const char *pattern;
    int64_t vocab, dim, heads, kv_heads, ffn;    /* kv_heads 0: as heads; ffn 0: 8/3 dim, rounded up to 32 */
    int64_t state, chunk;                        /* M: size of a head's state; length of a chunk */
    int64_t experts, top_k;                      /* E */
    double capacity, balance;                    /* E: slots per token beyond the even share; weight of the balance loss */
    double rope_base;
    bool scan;                                   /* scan over repeated units where it can be done */
    bool remat;                                  /* without scan: blocks are computed again on the way back */
    const char *compute;                         /* "f32" or "bf16" */
} xl_model;
xl_model xl_model_default(void);
/* Says what does not fit together: sizes that do not divide, an unknown block. */
xl_error *xl_model_check(const xl_model *c) XL_MUST_USE;

typedef struct { char block[64]; int n; int64_t times; } xl_unit; /* n blocks, times over */
enum { XL_MOST_UNITS = 64 };
xl_error *xl_pattern_parse(const char *pattern, xl_unit *out, int *n) XL_MUST_USE;

/* Inputs tokens, targets i32[batch, time], segments i32[batch, time] (0: padding, which neither sees nor counts), and
 * positions i32[batch, time] within the document. Sets the loss and the metrics; logits f32[batch, time, vocab] come back. `why` (may
 * be NULL) gets why a repeated unit is not scanned, or "". */
xl_tensor xl_model_build(xl_graph *g, const xl_model *c, int64_t batch, int64_t time, const char **why);

int64_t xl_graph_params(const xl_graph *g);      /* how many numbers are trained */
/* Multiply-adds of one training step count as two, the backward pass as twice the forward. */
double xl_model_flops(const xl_model *c, int64_t params, int64_t batch, int64_t time);

#endif
