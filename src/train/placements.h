/* src/train/placements.h
 * The placement of a training run's tensors: from its configuration, before anything runs, and of its real buffers. */
#ifndef XL_TRAIN_PLACEMENTS_H
#define XL_TRAIN_PLACEMENTS_H

#include "lane/placement.h"
#include "train/loop.h"

typedef struct {
    xl_placements held;                   /* arguments of the training step, as the partitioner splits them */
    xl_crossings crossing;
    xl_str gathered;                     /* ops for which operands are gathered (xl_shard_gathered) */
    int64_t predicted; /* bytes of one device: arguments and temporaries, from a walk over its program */
    int64_t needs, limit;                /* reported by the plugin after compiling; -1: unknown */
    const char *
        refused; /* the plugin's message, if memory did not suffice to compile; NULL: it did, or was not asked */
    const char *device;                  /* the device that was asked */
} xl_sharding_plan;
/* The largest bucket's training step. With `compile` the device is opened (the embedded one with as many devices as the
 * mesh has) and the step is compiled for it; nothing runs. */
xl_error *xl_train_sharding(xl_arena *a, const xl_config *c, bool compile, xl_sharding_plan *out) XL_MUST_USE;

/* The buffers of an array, as the plugin reports them. */
xl_error *xl_placement_array(xl_arena *a, xl_placements *l, xl_str name, const xl_array *x) XL_MUST_USE;
/* The configuration of a run on the mesh that it last ran on (it may have been resumed on another); `words` override
 * it. */
xl_error *xl_placement_config(xl_arena *a, const char *dir, char *const *words, int n, xl_config *out) XL_MUST_USE;
/* State, one batch and the metrics of a step, into sharding.json of the run; dir NULL: they are only checked. */
xl_error *xl_placement_record(const xl_trainer *t, const xl_graph *g, xl_array *const *input, const xl_array *metrics,
                         const char *dir) XL_MUST_USE;

#endif
