/* src/lane/metrics.h
 * Counters and timings of a process, in total and by module, under the names that PyTorch/XLA users know. Incrementing
 * one takes some tens of nanoseconds and allocates only the first time; any thread may do so. They are written as JSON
 * beside the run's events; `xlane metrics` reads them and adds up the processes of a run. */
#ifndef XL_LANE_METRICS_H
#define XL_LANE_METRICS_H

#include <stdatomic.h>

#include "base/json.h"
#include "base/str.h"

/* Every metric, once: a timing has a distribution, a counter a number. `help` is for scrapers. */
#define XL_METRICS(TIMING, COUNTER)                                                                  \
    TIMING(CompileTime, "seconds spent compiling")                                                  \
    TIMING(LoadTime, "seconds spent loading executables from a cache")                              \
    TIMING(ExecuteTime, "seconds spent in execute calls")                                           \
    TIMING(StepTime, "seconds from the start of a step to the start of the next")                   \
    TIMING(StepDeviceTime, "seconds the device worked on a step")                                   \
    TIMING(StepHostGap, "seconds the device waited from the end of a step to the start of the next")\
    COUNTER(CompileCacheMiss, "compiles that no cache answered")                                    \
    COUNTER(UncachedCompile, "compiles that were not written to the cache")                         \
    COUNTER(CachedCompile, "compiles that the cache answered")                                      \
    COUNTER(FrontendCacheHit, "executables that the frontend's own cache answered")                 \
    COUNTER(SteadyRecompile, "changes of a watched module's program after the warm-up window")      \
    COUNTER(SteadyRetrace, "times a watched module's same program was traced again after that")     \
    COUNTER(InboundData, "bytes to the device")                                                     \
    COUNTER(OutboundData, "bytes from the device")                                                  \
    COUNTER(TransferToDevice, "transfers to the device")                                            \
    COUNTER(TransferFromDevice, "transfers from the device")                                        \
    COUNTER(HostSync, "steps that were read from the device before the next one")         \
    COUNTER(HostWait, "steps that the host waited for, without a read, before the next one")        \
    COUNTER(NanCheck, "steps that waited while JAX looked for NaN in their results (jax_debug_nans)") \
    COUNTER(GuardFault, "times the guard stepped aside for trouble of its own")

typedef enum {
#define ROW(name, help) XL_M_##name,
    XL_METRICS(ROW, ROW)
#undef ROW
    XL_M_COUNT
} xl_metric_id;

enum { XL_HIST = 320 };                                    /* eight buckets an octave from 128 ns on */
typedef struct {
    _Atomic uint64_t n;
    _Atomic uint64_t sum;                                  /* nanoseconds, or the counter */
    _Atomic uint64_t below, most;                          /* of timings: the least is UINT64_MAX - below; 0: none */
    _Atomic(_Atomic uint32_t *) bucket;                    /* XL_HIST of them, of timings that were taken; else NULL */
} xl_meter;

typedef struct xl_metrics xl_metrics;                      /* one set: a process */
typedef struct xl_module_metrics xl_module_metrics;        /* one module of it */

xl_metrics *xl_metrics_new(void);                          /* NULL: no memory */
void xl_metrics_free(xl_metrics *m);
void xl_metrics_reset(xl_metrics *m); /* all from nothing: in a forked child, whose parent tells the rest */
void xl_metrics_forget(xl_metrics *m, xl_metric_id which); /* its total, from nothing; modules keep theirs */
bool xl_metrics_idle(const xl_metrics *m);                 /* nothing was counted */
/* The module's own set, made when first asked for; NULL without memory. Lives as long as m. */
xl_module_metrics *xl_metrics_module(xl_metrics *m, xl_str module);
const char *xl_module_metrics_name(const xl_module_metrics *mm);
uint64_t xl_module_metrics_count(const xl_module_metrics *mm, xl_metric_id which);
double xl_module_metrics_seconds(const xl_module_metrics *mm, xl_metric_id which);
/* mm may be NULL: then only the total counts. */
void xl_metrics_time(xl_metrics *m, xl_module_metrics *mm, xl_metric_id which, double seconds);
void xl_metrics_count(xl_metrics *m, xl_module_metrics *mm, xl_metric_id which, uint64_t by);
/* Counts a HostSync after the module's execution of that number. True when `row` executions in a row did so, each soon
 * after the last wait of any module, for the first time. */
bool xl_metrics_waited(xl_metrics *m, xl_module_metrics *mm, uint64_t number, bool soon, uint32_t row);
uint64_t xl_metrics_total(const xl_metrics *m, xl_metric_id which);
double xl_metrics_seconds(const xl_metrics *m, xl_metric_id which);
const xl_module_metrics *xl_metrics_at(const xl_metrics *m, uint32_t i);     /* NULL past the last */

void xl_metrics_json(const xl_metrics *m, xl_json *j);
xl_error *xl_metrics_add_json(xl_metrics *m, const xl_node *n) XL_MUST_USE; /* adds what another process wrote */
void xl_metrics_print(const xl_metrics *m, bool modules, xl_buf *out);      /* the layout of PyTorch/XLA's report */
void xl_metrics_prometheus(const xl_metrics *m, int rank, int pid, xl_buf *out); /* pid 0: of all processes */
/* All metrics-*.json of a run folder that can be read, added up; an error where there are none. */
xl_error *xl_metrics_read(xl_arena *a, const char *dir, xl_metrics **out, size_t *processes) XL_MUST_USE;
xl_error *xl_metrics_read_process(xl_arena *a, const char *dir, int64_t pid, xl_metrics **out) XL_MUST_USE;

#endif
