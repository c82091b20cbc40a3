/* src/train/rung.h
 * The rungs of the ladder: one structural feature each, on a tiny model with known losses. Each rung runs in its own
 * process, first cold and then restored from the same cache; this is the code of such a process. */
#ifndef XL_TRAIN_RUNG_H
#define XL_TRAIN_RUNG_H

#include "base/json.h"
#include "train/config.h"

/* Which layer failed (B4). */
typedef enum { XL_LAYER_NONE, XL_LAYER_HOST, XL_LAYER_STARTUP, XL_LAYER_GRAPH, XL_LAYER_CACHE } xl_layer;
const char *xl_layer_word(xl_layer l);       /* "startup"; "" for none */

typedef enum { XL_RUNG_PROBE, XL_RUNG_TRAIN, XL_RUNG_SCAN, XL_RUNG_RESUME, XL_RUNG_MESH } xl_rung_kind;
enum { XL_RUNG_STEPS = 6 };
typedef struct {
    const char *name, *pattern, *about;
    xl_rung_kind kind;
    float first, last;                       /* the loss of the first and of the last step, known answers; 0: none */
} xl_rung;
const xl_rung *xl_rungs(size_t *n);
const xl_rung *xl_rung_find(const char *name);

typedef struct {
    xl_layer layer;                          /* of the failure; NONE: success */
    xl_str message;
    int64_t compiles, loaded, executes;
    xl_str reason;                           /* of the last cache miss */
    double loss[XL_RUNG_STEPS];
    int nloss;
    double seconds;
} xl_rung_result;

/* The rung's configuration, overridden by words (key=value). */
xl_error *xl_rung_config(xl_arena *a, const xl_rung *r, const char *device, const char *cache, char *const *words,
                         int n, xl_config *out) XL_MUST_USE;
/* Runs it here. `state`: a folder for the checkpoint of the resume rung. `at` is called whenever another layer begins
 * its work, so that a crash can be blamed on it. */
void xl_rung_run(xl_arena *a, const xl_rung *r, const xl_config *c, const char *state, bool restored,
                 void (*at)(xl_layer l), xl_rung_result *out);
void xl_rung_json(xl_json *j, const xl_rung_result *r);
xl_error *xl_rung_read(const xl_node *n, xl_rung_result *out) XL_MUST_USE;

#endif
