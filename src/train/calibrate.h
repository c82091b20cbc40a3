/* src/train/calibrate.h
 * Three figures for the memory of a training step, side by side: predicted from the program, reported by the compiler,
 * observed on the physical device after two steps. They go into the catalog under the launch's signature. */
#ifndef XL_TRAIN_CALIBRATE_H
#define XL_TRAIN_CALIBRATE_H

#include "lane/catalog.h"
#include "lane/predict.h"
#include "train/config.h"

typedef struct {
    xl_catalog_entry entry;         /* for the catalog */
    xl_prediction predicted;
    xl_program_memory compiled;
    xl_device_memory device;
    xl_predict_rule rule;
    bool measured;                  /* the rule was measured with the compiler; else it is the default */
    int64_t alone;                  /* total by liveness alone, before scale and factor */
    int64_t small;                  /* the batch that `scale` was measured at, compiled and not run; 0: none */
    xl_predict_scale scale;
    double factor; /* from an earlier calibration of this model on this stack; 1: none */
    double off;                     /* (predicted - observed) / observed; nan where nothing was observed */
    bool mismatch;                  /* by more than XL_CALIBRATE_OFF */
    const xl_catalog_entry *before; /* the same launch on another stack; NULL: none */
    xl_str moved;                   /* what changed since, in words; empty: nothing */
    xl_str device_name;
    int64_t host_peak, host_free;   /* peak of this process; free memory of the machine */
} xl_calibration;

#define XL_CALIBRATE_OFF 0.10

/* The signature of a configuration in the catalog: model and features; with a lane also hardware and bundle. */
void xl_config_signature(xl_arena *a, const xl_config *c, xl_signature *s);
/* The batch must be a multiple of this: model.micro micro-batches, each split evenly over the devices of the mesh. */
xl_error *xl_config_batch_step(const xl_config *c, int64_t *out) XL_MUST_USE;
/* Compiles and runs two steps on the configured device. A step that does not fit is not an error; the entry's outcome
 * says so. */
xl_error *xl_calibrate(xl_arena *a, const xl_config *c, xl_calibration *out) XL_MUST_USE;

/* The largest batch up to the config's own that fits the device, as configured or, where that allows a larger one, with
 * model.remat or in turns (model.micro): candidates that the catalog knows to run, then unseen ones by what is
 * predicted, each calibrated before it is believed; known bad ones are left out. c's batch, remat and micro are set.
 * `say` gets a line per candidate. */
xl_error *xl_fit(xl_arena *a, xl_config *c, void (*say)(void *ctx, const char *line), void *ctx,
                 xl_calibration *out) XL_MUST_USE;

#endif
