/* src/lane/rehearse.h
 * Rehearsal: a plugin compiles a program for devices that this host does not have. The result has what a compiler can
 * know: whether it fits, how much memory of each kind, how many operations, which collectives. Nothing was run, and no
 * result claims it. Without a topology the program is compiled for the devices of this host, and can be run there.
 * The plugin is opened in a child process, since compilers abort. Call it while no other thread of ours runs (it
 * forks).
 * Everything in a result belongs to the arena. */
#ifndef XL_LANE_REHEARSE_H
#define XL_LANE_REHEARSE_H

#include "base/json.h"
#include "lane/collectives.h"
#include "pjrt/program.h"

typedef enum {
    XL_REHEARSAL_FITS,          /* it compiles */
    XL_REHEARSAL_TOO_LARGE,     /* the compiler says it needs more memory than a device has */
    XL_REHEARSAL_REFUSED,       /* the compiler refuses it, for another reason */
    XL_REHEARSAL_NO_TOPOLOGY,   /* the plugin does not know the topology */
    XL_REHEARSAL_NO_PLUGIN,     /* it cannot be opened here */
    XL_REHEARSAL_ENDED,         /* the compiler ended, or did not end in time */
} xl_rehearsal_verdict;
const char *xl_rehearsal_word(xl_rehearsal_verdict v);      /* "too-large" */

typedef struct {
    xl_rehearsal_verdict verdict;
    xl_str plugin, topology, kind;      /* kind of its devices: "TPU v6 lite" */
    int64_t devices, partitions;
    double seconds, cpu_seconds;        /* the compile; -1: not measured */
    double run_seconds;                 /* one run on the device that is here; -1: it did not run */
    xl_str not_run;                     /* asked to, and why it did not */
    xl_program_memory memory;           /* all -1 where the plugin does not say */
    double flops, bytes;                /* of the program, per device; -1: not said */
    int64_t used, limit; /* of a program that is too large, in the compiler's own figures; -1: not said */
    xl_collective *collective;
    size_t ncollective;
    bool scanned; /* the optimised program could be read: no collectives means that there are none */
    xl_str message;                     /* the compiler's words, cut to a few lines */
    xl_str next;                        /* the step to take; empty where it fits */
} xl_rehearsal;

typedef struct {
    const char *plugin;                 /* a path */
    const char *topology;               /* NULL: the devices that are here */
    const char *outputs; /* then run it, on random arguments, and write the outputs there; NULL: do not */
    xl_str code;
    xl_format format;
    int replicas, partitions;           /* 0: one */
    bool shardy;                        /* its shardings are sdy ones */
    const xl_mesh *
        mesh; /* the program's, so that collectives are told by axis; NULL: they are told by the size of their groups */
    double timeout_s;                   /* 0: an hour */
    const char *progress;               /* a word for a line on standard error while it compiles; NULL: none */
} xl_rehearse_opts;

/* Fails only where the rehearsal itself could not be made; everything else is a verdict. */
xl_error *xl_rehearse(xl_arena *a, const xl_rehearse_opts *opts, xl_rehearsal *out) XL_MUST_USE;
/* Both ways, for the catalog. */
void xl_rehearsal_json(xl_json *j, const xl_rehearsal *r);
xl_error *xl_rehearsal_read(xl_arena *a, const xl_node *n, xl_rehearsal *out) XL_MUST_USE;

/* The two figures of an out-of-memory message, "Used 34.20G of 31.25G hbm" or "(447.18G) exceeds available HBM
 * (31.24G)"; false if it has none. */
bool xl_oom_figures(xl_str message, int64_t *used, int64_t *limit);

#endif
