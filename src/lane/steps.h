/* src/lane/steps.h
 * Step times of a guarded process: the time from the start of a step to the start of the next, how much of it the
 * device works, how much it waits for the host, and how this changes over the run. Memory is bounded: a step has its
 * own window until there are many, then windows are merged in pairs. Any thread may record. They are written to
 * `steps-<pid>.json` in the run folder, together with the phases of the time until the first step. */
#ifndef XL_LANE_STEPS_H
#define XL_LANE_STEPS_H

#include "base/json.h"
#include "base/str.h"

enum { XL_STEP_WINDOWS = 256 };
typedef struct {
    uint32_t n, nbusy;
    double time, busy, gap, max, other;                    /* other: of the device, for other programs between steps */
} xl_step_window; /* sums of seconds; max of a step's time */

typedef struct xl_steps xl_steps;
xl_steps *xl_steps_new(void);                              /* NULL: no memory */
/* Another module counts steps now, which ran `before` times already; what was recorded is forgotten if it is of another
 * one. `name` lives as long as s. */
void xl_steps_of(xl_steps *s, const char *name, uint64_t before);
/* A step started. Gives its number, and in *took the seconds from the start of the one before; 0: it is the first. */
uint64_t xl_steps_start(xl_steps *s, double now, double *took, double *gap);
/* Step k is done on the device, or its call returned where the device does not say (told: it did). Gives the seconds
 * it worked on it. */
double xl_steps_done(xl_steps *s, uint64_t k, double now, bool told);
/* Another program than the step was started at `start`; and it is done, as above. Both or neither is to be called;
 * false: there is no step yet, and nothing to call. */
bool xl_steps_other(xl_steps *s, double start);
void xl_steps_other_done(xl_steps *s, double start, double now, bool told);
void xl_steps_json(xl_steps *s, double run_began,
                   xl_json *j); /* run_began: the xl_now() at which the run's clock was 0 */

/* ---- reading ----------------------------------------------------------------------------------------------------- */
/* What the steps wait for. PAUSES: for the host, in a few long pauses. SHORT: in less than a millisecond
 * the calls themselves may be the larger part. */
typedef enum {
    XL_BOUND_UNKNOWN,
    XL_BOUND_DEVICE,
    XL_BOUND_SHORT,
    XL_BOUND_PAUSES,
    XL_BOUND_HOST,
    XL_BOUND_BOTH
} xl_bound;

typedef struct {
    int pid, rank;
    xl_str module;
    uint64_t steps, timed;                                 /* all; the last of them, which were timed */
    uint32_t width;                                        /* steps a window */
    xl_step_window *window;
    uint32_t nwindow;
    double median, p95, max, busy, gap;                    /* seconds; busy and gap are medians */
    xl_bound bound;
    double share, step_share; /* of the time that the device ran: from the first step to the last; of a median step */
    /* a lasting change of the step time: after this step, from and to; 0: none */
    uint64_t drift_step;
    double drift[2], drift_busy[2], drift_gap[2];
    /* until the first step was done, since the run began; negative: not recorded */
    double first, imports, client, host, compile, load, execute;
    int compiled, loaded;
    double idle;                                           /* seconds since the last step ended; < 0: not recorded */
    bool timeline;                                         /* of some steps a timeline was recorded */
} xl_step_times;

/* One for each process that had steps, by rank, in the arena; n is 0 where there are none that can be read. */
xl_error *xl_steps_read(xl_arena *a, const char *dir, xl_step_times **out, size_t *n) XL_MUST_USE;
/* Whether a process that is alive has ended no step for long, as its steps go; "25 s ago": the last one. */
bool xl_steps_idle(const xl_step_times *t);
xl_str xl_steps_idle_words(xl_arena *a, const xl_step_times *t);
/* Several lines, for people. several: the run has others too, so say whose they are. */
void xl_steps_say(const xl_step_times *t, bool several, xl_buf *b);
const char *xl_time_words(double s, char out[32]);         /* always in ms: "0.216 ms", "60.59 ms", "12345 ms" */
/* "median=1.2 ms; 95%=1.9 ms; max=4 ms": of n figures, the percentile only where it is not one of the two largest. */
void xl_steps_figures_say(double median, double p95, double max, uint64_t n, xl_buf *b);
void xl_steps_drift_say(const xl_step_times *t, xl_buf *b);/* one line, or nothing */
void xl_steps_put(const xl_step_times *t, xl_json *j);     /* a map */

#endif
