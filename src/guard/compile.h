/* src/guard/compile.h
 * One compile, as compile.c takes it through its phases: examined and compared (compile_judge.c, with the parts of the
 * cache's key from compile_key.c), loaded or compiled, and recorded. Its caller's thread alone has it. */
#ifndef XL_GUARD_COMPILE_H
#define XL_GUARD_COMPILE_H

#include "guard/guard.h"
#include "pjrt/options.h"

/* What a compile is made of, and what is found out of it. */
typedef struct {
    guard_plugin *p;
    PJRT_Client_Compile_Args *args;
    /* found out */
    char module[256], hash[XL_DIGEST_HEX];
    char function[384]; /* of the user's, that it is made of, or "" */
    char name[256];     /* the module's, in this process: see guard_function_name */
    char called[128];   /* the function's, where the module has another, or "" */
    xl_buf options, topology, versions, process, devices;
    char place[256];         /* the line that asked for it, or "" */
    bool reads_value;        /* and that line reads a tensor's value */
    int64_t needs;           /* the compiler's own figure of memory; -1: not told */
    guard_ranks ranks;       /* those of its devices */
    bool together;           /* they load or compile together */
    const char *uncacheable; /* why it may not be cached, or NULL */
    char refused[512];       /* the plugin's own words for that */
    const char *phase;
    uint64_t step, number;   /* number: of the execution that it is for, from 1 */
    bool stop, ahead, quiet; /* ahead: it was loaded before it was asked for; quiet: `why` was told often enough */
    const char *reason;      /* why it compiled, in a word; static */
    xl_buf verdict;          /* what the contract says of it, a JSON map */
    xl_buf why;              /* for people: what changed, and the remedy */
    bool helper;             /* an eager op, or a library function: never a step */
    uint64_t own;            /* executions of what it was compared with, in this process */
    xl_cache_key key;
    xl_module *m; /* until the contracts own it */
    spmd_info *spmd;
} guard_compiling;

/* Compile options as words: "executable_build_options.num_partitions=1 ...", those that change the code. *devices: how
 * many programs they are for; *assignment: the option that says which devices, or NULL. */
xl_error *guard_option_words(xl_arena *a, xl_str bytes, xl_buf *out, bool *early_exit, int64_t *devices,
                             const xl_option **assignment) XL_MUST_USE;
void guard_put_devices(const xl_option *assignment, xl_buf *out); /* in words, for the key */
/* The processes of the devices that a program is compiled for; one alone, or none known: nobody else. */
xl_error *guard_ranks_of(guard_plugin *p, PJRT_Client *client, const xl_option *assignment, int64_t devices,
                         guard_ranks *out) XL_MUST_USE;

/* For xl_arena_call, with a guard_compiling. What is compiled, and its key; then the contract and the policy, whose
 * caller holds compile_lock. */
xl_error *guard_examine(xl_arena *a, void *compiling) XL_MUST_USE;
xl_error *guard_judge(xl_arena *a, void *compiling) XL_MUST_USE;
/* The event: result is compiled, cached, loaded, failed or refused. */
void guard_report(guard_state *g, guard_compiling *c, const char *result, double seconds, const xl_cache_found *miss,
                  const char *error);

#endif
