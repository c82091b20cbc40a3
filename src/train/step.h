/* src/train/step.h
 * Programs built from a graph. A training step takes and returns all state, as tensors on the device:
 *   (parameters, first moments, second moments, counters i32[2], hyper f32[], inputs) -> (the same four, updated,
 *   metrics f32[])
 * with the first four kinds donated. An evaluation is (parameters, inputs) -> metrics. See the metric names below. */
#ifndef XL_TRAIN_STEP_H
#define XL_TRAIN_STEP_H

#include "pass/grad.h"
#include "train/graph.h"

typedef enum { XL_STEP_TRAIN, XL_STEP_EVAL } xl_step_kind;

/* What every training step reports before the graph's own metrics; an evaluation has only the loss. */
enum { XL_AT_LOSS, XL_AT_GRAD_NORM, XL_AT_LR, XL_AT_SKIPPED, XL_AT_STEP, XL_AT_OWN };

enum { /* the hyper tensor */
       XL_HYPER_LR,
       XL_HYPER_MIN_LR,
       XL_HYPER_WARMUP,
       XL_HYPER_STEPS,
       XL_HYPER_SCHEDULE,
       XL_HYPER_BETA1,
       XL_HYPER_BETA2,
       XL_HYPER_LN_BETA1,
       XL_HYPER_LN_BETA2,
       XL_HYPER_EPS,
       XL_HYPER_DECAY,
       XL_HYPER_CLIP,
       XL_HYPER_COUNT
};
xl_error *xl_hyper_fill(const xl_adamw *opt, float out[XL_HYPER_COUNT]) XL_MUST_USE;

typedef struct {
    bool bake_lr; /* a deliberate mistake: the rate as a constant, to test contracts (O4) */
    double baked;
    xl_grad_keep keep;
} xl_step_opts;

/* names: the parameters in the order of the arguments (n of them); the graph must have exactly these. opts
 * may be NULL. */
xl_error *xl_step_build(xl_graph *g, xl_step_kind kind, const xl_str *names, uint32_t n, const xl_step_opts *opts,
                        xl_func **out) XL_MUST_USE;
/* A function (parameters, inputs) -> outputs. */
xl_error *xl_forward_build(xl_graph *g, const xl_str *names, uint32_t n, const xl_tensor *outs, uint32_t nout,
                           xl_func **out) XL_MUST_USE;
/* Donates argument `arg`: result `out` reuses its memory. */
void xl_func_donate(xl_func *f, uint32_t arg, uint32_t out);

#endif
