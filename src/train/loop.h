/* src/train/loop.h
 * A training run from its configuration: opens the device and the data, trains, evaluates, saves, and leaves a run
 * folder. */
#ifndef XL_TRAIN_LOOP_H
#define XL_TRAIN_LOOP_H

#include <stdio.h>

#include "train/ckpt.h"
#include "train/config.h"
#include "train/data.h"

typedef struct {
    const char *dir;                     /* an existing run to resume; NULL: a new one */
    bool fresh;                          /* `dir` was created for this run: do not report a missing checkpoint */
    xl_job *job;                         /* the ranks that train together in `dir`; NULL: only this process */
    bool quiet;                          /* no progress line */
    bool from_scratch;                   /* start at step 0 if no checkpoint of `dir` can be read */
    FILE *say;                           /* progress and remarks; NULL: standard error */
} xl_loop_opts;

typedef struct {
    char *dir;
    int64_t from, step, skipped;         /* from: the last step before this run */
    double loss, eval_loss;              /* of the last step; nan: none */
    bool stopped;                        /* by a signal, after saving */
    bool preempted;                      /* by SIGTERM to one of several ranks */
    int64_t done,
        left_out;      /* steps of this process, and those skipped because the loss or gradient was not finite */
    int64_t lost_from; /* all steps from this one on were skipped; 0: the last one was not */
    const char *device, *cache;          /* the device's name; the cache's folder, NULL: none */
    uint64_t unwritten;                  /* rows and events that could not be written */
} xl_loop_result;

/* Strings of the result live in the arena. */
xl_error *xl_train_loop(xl_arena *a, const xl_config *c, const xl_loop_opts *opts, xl_loop_result *out) XL_MUST_USE;
/* Describes the run without a device: parameters, work, memory, buckets, hashes of the programs. */
xl_error *xl_train_plan(const xl_config *c, bool json, xl_buf *out) XL_MUST_USE;
/* The program as text: "loss" (parameters, inputs -> loss), "step" or "eval". */
xl_error *xl_train_print(const xl_config *c, const char *what, xl_buf *out) XL_MUST_USE;
/* The number of devices that took part in a reduction, and the axes; "" on one device. */
typedef struct { int64_t n; char over[128]; } xl_participants;
/* Evaluates the newest checkpoint of a run on all validation data. */
xl_error *xl_train_eval(xl_arena *a, const xl_config *c, const char *dir, double *nll, int64_t *tokens, int64_t *step,
                        xl_participants *who) XL_MUST_USE;

typedef struct {
    const int32_t *prompt;               /* at least one token */
    size_t nprompt;
    int64_t tokens;
    double temperature, top_p;
    uint64_t seed;
    bool recompute; /* run the whole window for every token, without states: slow, for comparison */
} xl_sample_opts;
/* Samples tokens from the newest checkpoint of a run, after the prompt; `put` is called with each. */
xl_error *xl_train_sample(xl_arena *a, const xl_config *c, const char *dir, const xl_sample_opts *o,
                          void (*put)(void *ctx, int token), void *ctx) XL_MUST_USE;

/* The configuration stored in a run folder, overridden by `words`. */
xl_error *xl_run_config(xl_arena *a, const char *dir, char *const *words, int n, xl_config *out) XL_MUST_USE;
/* Shared by the above: device with its cache, and the graphs, one per bucket. */
typedef struct {
    xl_arena arena;
    bool small;                          /* set before the graphs are made: a batch that the mesh need not divide */
    bool whole; /* set before the device is opened: its memory is taken at once, and counted exactly */
    bool cuda;   /* set before the graphs are made, where no device is open: as a CUDA device gets them */
    xl_job *job; /* set before the device is opened: its processes share the devices; NULL: this one alone. Not owned */
    xl_mesh_def mesh; /* of the configuration, or of the ranks; naxis 0: none */
    xl_spread spread;
    xl_lane *lane;
    xl_cache *cache;
    xl_graph *g[XL_BUCKETS_MAX];
    int n;
    xl_tensor logits[XL_BUCKETS_MAX];
    xl_model model;                      /* of the graphs: what the configuration left to the device is chosen */
    const char *why;                     /* not scanned, or "" */
    const char *attention;               /* which was chosen and why, or "" where there was no choice */
    const char *kernels;                 /* the same for norms and loss */
    xl_graph *trial, *kernel_trial;      /* of those choices */
    double trial_seconds;                /* that they took */
    xl_trainer *t;
} xl_setup;
/* Call xl_setup_device first, so that the graphs use what the device offers; without, they run on every device. */
xl_error *xl_setup_graphs(const xl_config *c, const int64_t *times, int n, int64_t batch, xl_setup *out) XL_MUST_USE;
xl_error *xl_setup_device(const xl_config *c, xl_setup *s) XL_MUST_USE;
void xl_setup_fini(xl_setup *s);

#endif
