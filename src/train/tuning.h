/* src/train/tuning.h
 * XLA's CUDA backend measures several kernels for a product or a fusion and takes the fastest, but under deterministic
 * ops it takes the first that compiles: another choice is other bits. So a step is compiled once with measurements,
 * for their choices alone, and then as it will run, with these choices. They are kept in the run's folder (tuning.txt),
 * which is what a resumed run goes by, and in the cache for other runs of the same program. */
#ifndef XL_TRAIN_TUNING_H
#define XL_TRAIN_TUNING_H

#include "pjrt/options.h"
#include "train/lane.h"

/* Choices for one program: `name` tells them from others in a cache key, `file` is what XLA reads them from, "" where
 * XLA knows them in this process. */
typedef struct {
    xl_str name;
    const char *file;
} xl_tuning;

/* The choices for the program `hash` that `view` is, compiled with `how`: those of the run, of the cache, or measured
 * now. Where measuring fails the program has none, and the run remembers that too. */
xl_error *xl_tuning_of(xl_lane *l, xl_arena *a, const char *module, const char *hash, const xl_module *view,
                       const xl_options *how, xl_tuning *out) XL_MUST_USE;

#endif
