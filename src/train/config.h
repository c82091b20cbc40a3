/* src/train/config.h
 * The configuration of a run: a YAML file, then key=value words that override it. Every key is one row of the table in
 * config.c. */
#ifndef XL_TRAIN_CONFIG_H
#define XL_TRAIN_CONFIG_H

#include "pass/grad.h"
#include "train/model.h"
#include "train/spread.h"

enum { XL_BUCKETS_MAX = 16 };
typedef struct {
    const char *name, *device, *runs, *cache; /* device NULL: the best available; cache "none": none */
    int64_t seed;
    xl_pairs mesh, sharding;                  /* axes and their sizes; how tensors are split, by name or pattern */
    xl_model model;
    struct {
        const char *train, *valid;            /* files; valid NULL: the last tenth of train */
        const char *format;                   /* auto, bytes, lines, nanogpt, llmc */
        int64_t batch, time, buckets[XL_BUCKETS_MAX];
        int nbucket;                          /* 0: one, of `time` */
        bool pack;                            /* lines: several documents per row, with segments */
        int64_t end;                          /* a token that ends a document; -1: none */
    } data;
    xl_adamw opt;
    int64_t steps, log_every, eval_every, eval_batches, save_every, keep, warmup_steps;
    bool bake_lr;                             /* a deliberate mistake, to test that it is caught */
    const char *plant;                        /* another, on a mesh: none, local, read, group, canary */
    const char *keep_for_backward;            /* carry, dots */
    bool tune; /* choose among deterministic kernels by measurement */
    bool deterministic;                       /* ask the backend for reproducible losses */
    const char *policy;                       /* of a recompile after warmup_steps: allow, warn, stop */
} xl_config;

/* `file` NULL: only the words. Strings live in the arena. */
xl_grad_keep xl_config_keep(const xl_config *c);   /* keep_for_backward, for a step */
xl_error *xl_config_read(xl_arena *a, const char *file, char *const *words, int n, xl_config *out) XL_MUST_USE;
void xl_config_write(const xl_config *c, xl_buf *out);                /* as YAML, every key */
bool xl_config_is_word(const char *arg);                              /* has the form key=value */

#endif
