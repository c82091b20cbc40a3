/* src/train/blocks.h: the blocks of model.h. Each takes x [batch, time, dim] and gives the same shape, residual
 * included. */
#ifndef XL_TRAIN_BLOCKS_H
#define XL_TRAIN_BLOCKS_H

#include "train/model.h"

typedef struct {
    xl_graph *g;
    const xl_model *c;
    int64_t batch, time;
    xl_tensor segments, positions;               /* i32[batch, time] */
    xl_tensor mask;                              /* i1[batch, time, time]: may look there */
    xl_tensor fresh;                             /* f32[batch, time, 1]: 0 at the first token of a document, else 1 */
    xl_tensor valid;                             /* f32[batch, time] */
    /* Parameters of the block at work: made once, with a row per turn of the scan, then read by row. */
    const char *prefix;
    int64_t rows;
    bool making;
    xl_tensor turn;                              /* of the scan at work, or XL_NO_TENSOR: row `row` then */
    int64_t row;
    xl_tensor *made;                             /* in the order in which the blocks ask */
    int nmade, at;
    xl_tensor cos, sin;                          /* of rotary positions, where they are made once for all layers */
    xl_tensor delta;                             /* what the last block adds to x, where that is still to be done */
    xl_tensor balance, dropped;                  /* sums over the E blocks so far, f32[] */
    /* One token at a time, for sampling: what came before is in states of fixed shape, a row per turn, which go in and
     * come out. `place` is the token's place in the window, i32[]; mask is then i1[1, 1, window]. */
    bool stepping;
    xl_tensor place;
    int64_t window;
    xl_tensor *state;                            /* of the unit at work, in the order in which the blocks ask */
    int nstate, state_at;
} xl_blocks;

/* A parameter of the block at work. */
xl_tensor xl_block_param(xl_blocks *b, const char *name, xl_dims dims, const char *init);
xl_tensor xl_block_build(xl_blocks *b, char kind, xl_tensor x);
/* A state of the block at work (stepping only): its value before this token; xl_block_leave says what it is after it.
 * In the order of the calls; every state that is read is left. */
xl_tensor xl_block_state(xl_blocks *b, const char *name, xl_dtype d, xl_dims dims);
void xl_block_leave(xl_blocks *b, xl_tensor value);
/* The norm that a block begins with. With kernels of our own what the block before adds to *x is added in the same
 * pass; xl_block_settle does it where no norm follows. */
xl_tensor xl_block_norm(xl_blocks *b, xl_tensor *x, xl_tensor gain);
xl_tensor xl_block_settle(xl_blocks *b, xl_tensor x);
void xl_block_turns(xl_blocks *b);               /* cos and sin, here and now */
/* Causal attention by cuDNN: see pass/cudnn.h for the shapes. A platform that lacks it refuses the graph before it
 * compiles. */
xl_tensor xl_attention_fused(xl_graph *g, xl_tensor q, xl_tensor k, xl_tensor v, bool deterministic);
enum { XL_MADE_MAX = 1024, XL_STATE_MAX = 256 };

#endif
