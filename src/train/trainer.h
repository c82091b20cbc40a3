/* src/train/trainer.h
 * The inside of an xl_trainer, for the loop and the checkpoints: names and types of the parameters, their buffers and
 * those of the optimizer, and one program per graph and kind. */
#ifndef XL_TRAIN_TRAINER_H
#define XL_TRAIN_TRAINER_H

#include "train/lane.h"
#include "train/metric.h"

typedef struct {
    xl_graph *g;
    xl_step_kind kind;
    xl_program *p;
    const char *module;
    double baked;                        /* see xl_step_opts */
} xl_prepared;

struct xl_trainer {
    xl_arena arena;
    xl_lane *lane;
    xl_graph *first;                     /* the graph that named the parameters */
    uint32_t n;
    xl_str *name;
    const xl_type **type;                /* of the first graph's module */
    xl_array **buf;                     /* 3n + 1: parameters, first and second moments, counters */
    xl_array_type *shape;                /* the results of a step: types of buf, then space for the metrics */
    xl_array *hyper, *parts;             /* parts: with a mesh, a one on each device */
    xl_adamw opt;
    xl_step_opts how;
    xl_prepared *prog;
    uint32_t nprog, capprog;
    bool half;                           /* a checkpoint was loaded in part: the trainer must not be used */
    xl_array *metrics;                  /* of the last step */
    const xl_prepared *last;
    xl_graph *canary;                    /* with a mesh, once it ran */
    xl_program *canary_program;
};

/* The program of a graph, compiled when first asked for. */
xl_error *xl_trainer_prepare(xl_trainer *t, xl_graph *g, xl_step_kind kind, const xl_prepared **out) XL_MUST_USE;
xl_error *xl_trainer_whole(const xl_trainer *t) XL_MUST_USE;    /* an error if half-loaded */
/* One update with inputs already on the device, in the order of the graph's. The metrics buffer is the caller's. */
xl_error *xl_trainer_update(xl_trainer *t, const xl_prepared *p, xl_array *const *input,
                            xl_array **metrics) XL_MUST_USE;
xl_error *xl_trainer_measure(xl_trainer *t, const xl_prepared *p, xl_array *const *input,
                             xl_array **metrics) XL_MUST_USE;
xl_error *xl_trainer_set_hyper(xl_trainer *t, const xl_adamw *opt) XL_MUST_USE;
/* A number on each device, in the order of the mesh; value NULL: ones. */
xl_error *xl_trainer_each(xl_lane *l, const xl_graph *g, const float *value, xl_array **out) XL_MUST_USE;
/* Checks reductions over the axes of the metrics with known values, once per trainer. See canary.c. */
xl_error *xl_trainer_canary(xl_trainer *t, const xl_graph *g) XL_MUST_USE;
/* The metrics of an evaluation, read from every device: they must be bit-identical, with as many participants as the
 * mesh has devices. */
xl_error *xl_trainer_metrics(const xl_prepared *p, const xl_array *b, float *v) XL_MUST_USE;
/* Describes whether each parameter has the same layout on every device. */
xl_str xl_trainer_layout(xl_arena *a, const xl_trainer *t);
/* Initialises a parameter at random, as a function of its seed and name. */
void xl_param_draw(const xl_param_info *p, uint64_t seed, float *out, size_t n);

#endif
