/* src/lane/trained.h
 * What `xlane train` wrote of its steps into a run's folder (metrics.csv), for the verbs that tell of any run. Such a
 * run is not guarded: it has no counters of calls and keeps no programs, only their hashes. */
#ifndef XL_LANE_TRAINED_H
#define XL_LANE_TRAINED_H

#include "base/json.h"
#include "base/str.h"

typedef struct {
    uint64_t steps;                      /* rows of metrics.csv */
    double step, loss, first_loss;       /* the newest row's; the first row's loss */
    double skipped;                      /* steps that were not finite, as the newest row counts them */
    double *took;                        /* seconds from a row to the next of the same process, in order */
    size_t ntook;
    double median, p95, max;             /* of those; 0: there is none */
    int compiled, loaded;                /* programs, by its events */
    double first;                        /* seconds to the end of the first step; negative: not recorded */
} xl_trained;

/* The numbers live in the arena; steps is 0 where there is no row. */
xl_trained xl_trained_read(xl_arena *a, const char *dir);
bool xl_trained_saved(xl_arena *a, const char *dir);       /* its events tell of a checkpoint */
void xl_trained_say(const xl_trained *t, xl_buf *b);       /* several lines, for people */
void xl_trained_put(const xl_trained *t, xl_json *j);      /* a map */

#endif
