/* src/train/blocks.h: the blocks of model.h. Each maps x [batch, time, dim] to the same shape, with the residual. */
#ifndef XL_TRAIN_BLOCKS_H
#define XL_TRAIN_BLOCKS_H

#include "train/model.h"

typedef struct {
    xl_graph *g;
    const xl_model *c;
    int64_t batch, time;
    xl_tensor segments, positions;               /* i32[batch, time] */
    xl_tensor mask;                              /* i1[batch, time, time]: may attend */
    xl_tensor fresh;                             /* f32[batch, time, 1]: 0 at the first token of a document, else 1 */
    xl_tensor valid;                             /* f32[batch, time] */
    /* Parameters of the current block: created once, with a row per iteration of the scan, then read by row. */
    const char *prefix;
    int64_t rows;
    bool making;
    xl_tensor turn;                              /* iteration of the current scan; XL_NO_TENSOR: use `row` */
    int64_t row;
    xl_tensor *made;                             /* in the order in which the blocks ask */
    int nmade, at;
    xl_tensor cos, sin;                          /* of rotary positions, if computed once for all layers */
    xl_tensor delta;                             /* output of the last block that is not yet added to x */
    xl_tensor balance, dropped;                  /* sums over the E blocks so far, f32[] */
    /* One token at a time, for sampling: earlier tokens are summarised in states of fixed shape, a row per iteration,
     * which are inputs and outputs. `place` is the token's position in the window, i32[]; mask is i1[1, 1, window]. */
    bool stepping;
    xl_tensor place;
    int64_t window;
    xl_tensor *state;                            /* of the current unit, in the order of the calls */
    int nstate, state_at;
} xl_blocks;

/* A parameter of the current block. */
xl_tensor xl_block_param(xl_blocks *b, const char *name, xl_dims dims, const char *init);
xl_tensor xl_block_build(xl_blocks *b, char kind, xl_tensor x);
/* A state of the current block (stepping only): its value before this token. xl_block_leave sets the value after it, in
 * the order of the calls, for every state that was read. */
xl_tensor xl_block_state(xl_blocks *b, const char *name, xl_dtype d, xl_dims dims);
void xl_block_leave(xl_blocks *b, xl_tensor value);
/* The norm at the beginning of a block. With our own kernels it also adds the previous block's output to *x;
 * xl_block_settle does that if no norm follows. */
xl_tensor xl_block_norm(xl_blocks *b, xl_tensor *x, xl_tensor gain);
xl_tensor xl_block_settle(xl_blocks *b, xl_tensor x);
void xl_block_turns(xl_blocks *b);               /* computes cos and sin */
/* Causal attention by cuDNN: see pass/cudnn.h for the shapes. A platform that lacks it refuses the graph before it
 * compiles. */
xl_tensor xl_attention_fused(xl_graph *g, xl_tensor q, xl_tensor k, xl_tensor v, bool deterministic);
enum { XL_MADE_MAX = 1024, XL_STATE_MAX = 256 };

#endif
