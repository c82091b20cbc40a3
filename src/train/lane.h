/* src/train/lane.h
 * The inside of an xl_lane: the devices of one client, the cache of its programs, and the run that records them. */
#ifndef XL_TRAIN_LANE_H
#define XL_TRAIN_LANE_H

#include "lane/cache.h"
#include "lane/job.h"
#include "lane/run.h"
#include "pjrt/array.h"
#include "pjrt/options.h"
#include "train/graph.h"

struct xl_lane {
    xl_arena arena;
    xl_plugin_choice choice;
    xl_client *client;
    const xl_device *dev;      /* the first of the place */
    xl_place place;            /* one device, or those of the mesh */
    xl_job *job;               /* whose processes share the client; NULL: only this process. Not owned */
    const char *name, *file;    /* file: digest of the plugin's file, once computed */
    char *flags;               /* the runtime's variables when the plugin was loaded */
    bool tune;                 /* measure kernels for training steps, where deterministic ops would leave that out */
    bool tuned;                /* XLA knows the choices of the run in this process */
    int overlap;               /* may kernels of a turn run side by side? 0: not known yet, 1, or -1: no */
    bool deterministic;        /* ask the backend for reproducible results */
    xl_cache *cache;           /* NULL: none */
    xl_run *run;               /* NULL: not recorded. Neither is owned */
    int64_t step;              /* the current step, for the events */
    bool steady;               /* after the warm-up window */
    uint64_t ncompile, nloaded;
    double compile_seconds, tuning_seconds;
    double plugin_seconds, client_seconds; /* to load the plugin's library, and to start its client */
    /* The programs compiled so far by name, for the reasons in the events. The graphs must live until the last
     * compile. */
    struct { xl_str module; xl_digest program; xl_graph *g; xl_func *f; } *seen;
    uint32_t nseen, capseen;
    enum { XL_POLICY_ALLOW, XL_POLICY_WARN, XL_POLICY_STOP } policy; /* of a recompile after the warm-up window */
};

/* Like xl_lane_open. With `whole` the plugin reserves the device's memory at once, if it can, so that its figures are
 * those of what was allocated. With `job` the devices are those of all its processes. */
xl_error *xl_lane_open_as(const char *plugin, bool whole, xl_job *job, xl_lane **out) XL_MUST_USE;

/* The only place where a graph becomes an executable: printed, looked up, compiled, stored, reported. `module`
 * names it in the events ("train.t256"). The caller owns *out. */
xl_error *xl_lane_compile(xl_lane *l, xl_graph *g, xl_func *f, const char *module, xl_program **out) XL_MUST_USE;
/* The key of a program's entry in the cache; `tuning` names what was chosen by measurements, "" where nothing was. */
void xl_lane_key(xl_lane *l, xl_arena *a, const char *module, const char *hash, xl_str options, xl_str tuning,
                 xl_cache_key *k);
/* The same for a program that is text: from the cache, or compiled and stored. */
xl_error *xl_lane_compile_text(xl_lane *l, const char *module, xl_str text, const xl_options *how,
                               xl_program **out) XL_MUST_USE;
/* Bytes a program will take on one device, arguments and temporaries, by liveness before it is compiled. */
int64_t xl_lane_predict(xl_graph *g, xl_func *f);
/* The program's canonical hash, for cache keys and events. */
xl_digest xl_graph_hash(xl_graph *g, xl_func *f);

/* Sets the graph's options for the lane's backend. Call it before a step is built; results do not change. */
void xl_lane_suit(const xl_lane *l, xl_graph *g);

xl_elem xl_elem_of(xl_dtype d);
/* Makes the lane use all its devices, in this mesh. Call it before the first tensor; the same mesh again is fine. */
xl_error *xl_lane_spread(xl_lane *l, const xl_mesh_def *mesh) XL_MUST_USE;
/* The device array for an input, a parameter or a result of a graph. */
xl_array_type xl_array_type_of(const xl_type *t, const xl_mesh_spec *spec);
/* A tensor on the lane's devices, from host data of its global shape; spec NULL: replicated. */
xl_error *xl_lane_put(xl_lane *l, const xl_type *t, const xl_mesh_spec *spec, const void *data,
                      xl_array **out) XL_MUST_USE;

#endif
