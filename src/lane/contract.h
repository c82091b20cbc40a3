/* src/lane/contract.h
 * Contracts: the inputs of each compile of a module, remembered within a process and, in the folder of runs, across
 * processes.
 * A later compile of a module of the same name is compared with the nearest one, and the difference is described in
 * words. Where names are only numbers (PyTorch/XLA's), the nearest must be of its kind.
 * Not thread-safe: the caller locks. Nothing here aborts. */
#ifndef XL_LANE_CONTRACT_H
#define XL_LANE_CONTRACT_H

#include "ir/compare/diff.h"
#include "lane/cache.h"
#include "lane/run.h"

typedef struct xl_contracts xl_contracts;
typedef enum { XL_X64_UNKNOWN, XL_X64_OFF, XL_X64_ON } xl_x64; /* jax_enable_x64 */
/* Who had a function compiled: the user, or the library that it belongs to. */
typedef enum {
    XL_OWNER_UNKNOWN, XL_OWNER_USER, XL_OWNER_LIBRARY,
    XL_OWNER_SEARCH                                        /* the library, to find where a NaN came from */
} xl_owner;

typedef struct {
    const char *reason;                                    /* "first", "shape", ... as in events.jsonl */
    char against[XL_DIGEST_HEX];                           /* hash of the program it was compared with, or "" */
    xl_str against_run;                                    /* the run that one belongs to, if an earlier one */
    xl_diff *diff;                                         /* in the arena that was given */
    uint32_t ndiff;
    xl_str words; /* what differs outside the program: flags, options, plugin ... */
    xl_str config; /* "jax.config: jax_default_matmul_precision None -> highest": what was switched since, or empty */
    bool mapped;   /* the same program again, of jax.pmap */
    bool remade;   /* its function is another one of the same code */
    bool filtered; /* equinox.filter_jit called it */
    const char *way; /* a word of cause.def, where how it was called is why: "cleared", "keywords", "anew"; or NULL */
    xl_str values;   /* Python values that are otherwise than in the call before: "`lr` changed from 0.1 to 0.05" */
    xl_str called; /* file:line that called the function which changed; empty where the program does not say */
    xl_str against_module;                                 /* its name in this process; empty: an earlier run's */
    bool wide, steady_wide; /* known before: 64-bit numbers were seen, and never switched */
    xl_x64 x64_before, x64_after;                          /* of the compile it was compared with, and of this one */
    xl_str call_before, call_after;                        /* the same, see lane/call.h; empty: not known */
} xl_verdict;

/* What is known of a compile beside the parts of its key. */
typedef struct {
    xl_str place; /* the line that asked for it, where names are only numbers: programs of other places are none of its
                     kind */
    xl_str devices; /* "0", "0,1": those it is for */
    xl_str function; /* "/home/me/train.py:31": the function that it was made of; empty where that is not known.
                        Programs of other functions are none of its kind, whatever their names */
    xl_str name; /* what the module is called in this process; empty: as it calls itself */
    xl_str config; /* "jax_enable_x64=False ...": settings that JAX looks its programs up by; empty: not known */
    xl_str call;   /* how the function was called, see lane/call.h; empty: not known */
    xl_x64 x64;
    xl_owner owner;
    uint64_t runs;                                         /* its executions so far */
} xl_compile_site;

/* `run` may record nothing; then nothing is remembered across runs. `script` says which program of the user this
 * process runs: its compiles are compared with those of earlier runs of the same script alone. NULL: no memory. */
xl_contracts *xl_contracts_new(xl_run *run, const char *script);
/* The script of a command line: its absolute path, "-m MODULE" or "-c", else the program. `args` are separated by NULs,
 * as in /proc. */
xl_str xl_contract_script(xl_arena *a, xl_str args, const char *cwd);
void xl_contracts_free(xl_contracts *c);

/* Judges a compile and remembers it. `m` is the parsed program (it becomes ours, also on error) or NULL where it could
 * not be read; `bytes` the program as it came; `key` its parts, "program" the canonical hash. */
xl_error *xl_contracts_judge(xl_contracts *c, xl_arena *a, const xl_cache_key *key, const xl_compile_site *site,
                             xl_module *m, xl_str bytes, xl_verdict *out) XL_MUST_USE;

/* A frontend's eager op, or a function of a library that it compiles by itself (jnp.ones, jax.random.normal). Where the
 * owner is not known: none of its ops is of a line below the one that called it; where a program carries no lines, it
 * computes a single thing. `m` may be NULL. */
bool xl_contract_helper(const xl_module *m, xl_owner owner);
/* "jit_step" of "jit_step"; "SyncTensorsGraph" of "SyncTensorsGraph.17": the name under which programs are compared. */
xl_str xl_contract_group(xl_str module);
/* What it was compared with and how it differs, as members of the map that is open. The reason is the caller's to
 * write. */
void xl_verdict_json(const xl_verdict *v, xl_json *j);

/* The recorded programs of a run: `programs/<hash>.zst`. */
xl_error *xl_recorded_save(xl_run *run, const char *hash, xl_str bytes) XL_MUST_USE;
xl_error *xl_recorded_load(xl_arena *a, const char *run_dir, const char *hash, xl_str *bytes) XL_MUST_USE;
/* Compares two recorded programs: fills reason and diff. */
xl_error *xl_contract_compare(xl_arena *a, const xl_module *before, const xl_module *after,
                              xl_verdict *out) XL_MUST_USE;

#endif
