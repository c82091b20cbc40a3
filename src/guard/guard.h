/* src/guard/guard.h
 * The guard: a PJRT_Api that forwards every call to the plugin's and records what it sees with lane/. It runs inside
 * another program, so it never aborts, never prints to standard output and changes no result. If it fails itself, it
 * only forwards.
 *
 * Handles are passed through unwrapped; what the guard knows of them is kept in side tables. Its function table is a
 * copy of the plugin's whole table (entries of newer PJRT versions included) with the entries of hooks.def replaced.
 * PJRT calls carry no context, so each plugin of a process gets its own set of replaced entries: see attach.c. */
#ifndef XL_GUARD_GUARD_H
#define XL_GUARD_GUARD_H

#include <stdatomic.h>

#include "base/table.h"
#include "base/thread.h"
#include "lane/cache.h"
#include "lane/contract.h"
#include "lane/metrics.h"
#include "lane/run.h"
#include "lane/steps.h"
#include "pjrt/abi.h"

typedef enum { XL_POLICY_ALLOW, XL_POLICY_WARN, XL_POLICY_STOP } xl_policy;

typedef struct spmd_info spmd_info;                        /* of a program for several devices: see spmd.c */

/* An executable whose compile or load we have seen. */
typedef struct exec_info {
    const void *handle;
    xl_module_metrics *metrics;                            /* of its module */
    bool helper;                                           /* a frontend's eager op or library function: never a step */
    uint32_t nout;                                         /* results on each device; 0: not known */
    spmd_info *spmd;                                       /* NULL: one device, or nothing known */
    char module[128];
} exec_info;

typedef struct guard_state guard_state;

typedef struct guard_plugin {
    guard_state *g;                                        /* the process's */
    const PJRT_Api *real;
    const PJRT_Api *table;                                 /* ours, which the frontend gets */
    const PJRT_Xla_Transform_Extension *transform;         /* the plugin's; NULL: it has none */
    char path[4096];
    char identity[256]; /* part of the cache key: file digest or build id, versions */
    char flags[16384];  /* XLA_FLAGS, LIBTPU_INIT_ARGS, ... when it was loaded */
    char all_flags[16384];                                 /* with flags that only dump, which keys leave out */
    _Atomic bool initialised;
    bool no_serialize_warned, no_store_warned;
} guard_plugin;

enum {
    GUARD_PLUGINS = 4, GUARD_FLIGHTS = 64, GUARD_STORES = 8, GUARD_NUMBERS = 16, GUARD_REFUSED = 16, GUARD_MADE = 4096
};

/* A client's key-value store: the callbacks live as long as the client. */
typedef struct {
    PJRT_Client *client;                                   /* NULL: free */
    PJRT_KeyValueGetCallback get;
    void *get_arg;
    PJRT_KeyValuePutCallback put;
    void *put_arg;
    bool tried, overwrites;                                /* under agree_lock */
} guard_store;

/* The processes that a program's devices belong to. */
typedef struct {
    int *rank;                                             /* increasing */
    uint32_t n, cap, round;                                /* round: compile count of this program, from 0 */
    uint32_t meeting;                                      /* compile count over these processes, from 0: see same.c */
    int me;
    char id[64];                                           /* of the program */
} guard_ranks;

/* A call in progress, for the watcher. */
typedef struct {
    _Atomic double since;                                  /* 0: free */
    _Atomic(const char *) what;                            /* "compile", "execute" */
    _Atomic(const char *) module;                          /* a name that lives as long as the process */
    _Atomic bool said;
} flight;

/* The state of the guard in this process. Functions get it as `g`, or through their plugin. */
struct guard_state {
    _Atomic bool recording;                                /* the flight recorder is armed: see record.c */
    _Atomic bool rewrites;                                 /* somebody registered to rewrite programs as they compile */
    xl_run *run;
    xl_metrics *metrics;
    xl_cache *cache;                                       /* NULL: off */
    xl_contracts *contracts;
    xl_mutex compile_lock;                                 /* contracts, and: */
    xl_digest refused[GUARD_REFUSED];                      /* the programs that the policy refused last */
    uint32_t nrefused;
    xl_mutex table_lock;                                   /* execs */
    exec_info **exec;
    uint32_t nexec, capexec;
    xl_table exec_index; /* by handle */
    _Atomic uint64_t exec_changes; /* number of changes of exec: invalidates cached look-ups */
    xl_policy policy;
    uint64_t warmup, warmup_compiles;                      /* the window in steps; in compiles if that is not 0 */
    uint64_t watch_after;                                  /* executions after which a module counts as a step */
    _Atomic uint64_t compiles;
    char watch[1024];                                      /* names given by the user, separated by commas */
    double hang_after;
    char profile[256]; /* the part of the profile that changes the code */
    _Atomic int tensor; /* the first tensor: 1 while it is put on a device, 2 after; */
    bool tensor_spmd;                                      /* whether SPMD was on then, */
    double tensor_time;                                    /* and when, in seconds of the run */
    /* steps: executions of the module with the most execute time */
    _Atomic(xl_module_metrics *) step_module;
    _Atomic uint64_t step;
    _Atomic bool profiling;                                /* record each execution: see profile_steps.c */
    xl_steps *steps;                                       /* their times; NULL: no memory */
    /* reads to the host of what was computed in or since the last execution that was no helper's (checks: by JAX's own
     * search for NaN); whose that was, and its number */
    _Atomic uint64_t read_bytes, reads, checks, awaited, ran_number;
    _Atomic(xl_module_metrics *) ran;
    _Atomic(const char *) read_place, wait_place; /* "train.py:12": the user's line of the last of them; or NULL */
    _Atomic uint64_t unread; /* executions of no helper since one that the host waited for */
    xl_mutex made_lock;                                    /* made: those results on the first device, the newest */
    const PJRT_Buffer *made[GUARD_MADE];
    uint64_t nmade;
    /* the latest integers that the host read, and the step after which: one of them may decide a shape */
    _Atomic int64_t number[GUARD_NUMBERS];
    _Atomic uint64_t number_step[GUARD_NUMBERS];
    _Atomic bool number_mask[GUARD_NUMBERS]; /* it is how many of an array of booleans are true */
    _Atomic uint32_t nnumber;
    flight flight[GUARD_FLIGHTS];
    guard_plugin plugin[GUARD_PLUGINS];
    uint32_t nplugin;
    xl_mutex agree_lock;
    double agree_seconds;                                  /* how long a rank waits for the votes of the others */
    guard_store store[GUARD_STORES];                       /* under client_lock */
    xl_mutex client_lock;                                  /* client: held while its memory is read */
    PJRT_Client *client;                                   /* the newest, for memory figures */
    guard_plugin *client_plugin;
};

/* The state of this process, for code without an argument: hooks, threads, exit and fork handlers. */
guard_state *guard_current(void);
static inline bool guard_recording(const guard_state *g)
{
    return atomic_load_explicit(&g->recording, memory_order_relaxed);
}

void guard_end(guard_state *g);                            /* writes the last counts; what the process' exit() calls */
void guard_start(void);                                    /* once: reads the environment, opens run and cache */
void guard_fault(guard_state *g, const char *what, xl_error *err);         /* frees err; counts and records it */
void guard_say(const char *fmt, ...) XL_PRINTF(1, 2);      /* one line to standard error, and an event */

/* attach.c */
PJRT_Error *guard_error(PJRT_Error_Code code, xl_str text);/* an error of the guard, with its vtable */
bool guard_spmd(void);                                     /* is PyTorch/XLA's SPMD mode on, by the environment? */

/* compile.c, executables.c, compile_key.c */
PJRT_Error *guard_compile(guard_plugin *p, PJRT_Client_Compile_Args *args);
void guard_loaded(guard_plugin *p, PJRT_Executable_DeserializeAndLoad_Args *args, double seconds);
void guard_exec_add(guard_plugin *p, PJRT_LoadedExecutable *handle, xl_str module, bool helper, spmd_info *spmd);
exec_info *guard_exec_find(guard_state *g, const void *handle);            /* NULL: unknown */
void guard_exec_drop(guard_state *g, const void *handle);

xl_error *guard_take(guard_plugin *p, PJRT_Error *err,
                     const char *call) XL_MUST_USE; /* converts the plugin's error */
xl_error *guard_platform(guard_plugin *p, PJRT_Client *client, xl_buf *topology,
                         xl_buf *versions) XL_MUST_USE; /* as parts of a cache key */
xl_error *guard_load(guard_plugin *p, PJRT_Client *client, const xl_cache_found *f, xl_str options,
                     PJRT_LoadedExecutable **out) XL_MUST_USE;

/* frames.c */
/* The user's line that made PyTorch/XLA compile this graph ("train.py:9") or "", and whether that line reads a tensor's
 * value. The caller holds compile_lock. */
void guard_frame(guard_state *g, char *place, size_t room, bool *reads_value);
/* The last compile in the text of such a file: its first frame outside of libraries. */
void guard_frame_parse(xl_str text, char *place, size_t room, bool *reads_value);
bool guard_frame_read(xl_str place);                       /* a value was read on this line */
void guard_frames_trim(guard_state *g);                    /* keeps the files that PyTorch/XLA writes for us small */

/* function.c */
/* What JAX says of the function whose module is about to compile. */
typedef struct {
    char function[384];                                    /* "/home/me/train.py:31", or "": not known */
    char name[128];                                        /* where the module is not called by it, else "" */
    char
        config[2048]; /* the values of jax.config that JAX looks its programs up by, as words: "jax_enable_x64=False" */
    char call[8192];                                       /* how it was called, see lane/call.h; "": not known */
    xl_x64 x64;
    xl_owner owner;
} guard_told;
guard_told guard_function(xl_str module);
/* What a module of that function is called: two functions of one name are two. The caller holds compile_lock. */
void guard_function_name(xl_str module, const char *function, char *out, size_t room);

/* ahead.c */
void guard_ahead_start(guard_plugin *p, PJRT_Client *client);
void guard_ahead_stop(guard_state *g, PJRT_Client *client);
/* The executable that was loaded ahead for this key and these options, or NULL. The caller owns it. */
PJRT_LoadedExecutable *guard_ahead_take(PJRT_Client *client, const xl_digest *digest, xl_str options);
void guard_ahead_note(PJRT_Client *client, const xl_digest *digest,
                      xl_str options); /* it is cached and this process uses it */
void guard_ahead_write(guard_state *g, bool end);

/* agree.c */
void guard_store_add(guard_state *g, const PJRT_Client_Create_Args *a);
void guard_store_drop(guard_state *g, PJRT_Client *client);
const char *guard_cannot_agree(guard_plugin *p, PJRT_Client *client, int rank); /* the reason, or NULL */
uint32_t guard_agree_round(guard_state *g, const char *id);                /* 0, 1, ... for each program */
/* True only if every rank said yes; every rank gets the same answer. */
bool guard_agree(guard_plugin *p, PJRT_Client *client, const guard_ranks *who, const char *question, bool yes);

bool guard_has_store(guard_state *g, PJRT_Client *client);
bool guard_store_put(guard_plugin *p, PJRT_Client *client, const char *key, xl_str value); /* false: it has a value */
bool guard_store_get(guard_plugin *p, PJRT_Client *client, const char *key, double seconds,
                     xl_buf *out); /* false: none within the time */

/* same.c */
uint32_t guard_meeting(guard_state *g,
                       const guard_ranks *who); /* the next number for these processes; UINT32_MAX: no memory */
/* Compares what the ranks of a program are about to compile; every rank gets the same answer. True if one differs:
 * *text then names the rank and the difference. *text also names ranks that did not answer in time; these do not count
 * as a difference. */
bool guard_differ(guard_plugin *p, PJRT_Client *client, const guard_ranks *who, const xl_cache_key *key, xl_str program,
                  xl_buf *text);

/* execute.c */
PJRT_Error *guard_execute(guard_plugin *p, PJRT_LoadedExecutable_Execute_Args *args);
void guard_read(guard_state *g, const PJRT_Buffer *b, uint64_t bytes);
void guard_awaited(guard_state *g, const PJRT_Buffer *b);  /* the frontend asked for the event of its being ready */
/* Remembers an integer that the host reads: from its copy once that has arrived, or in the buffer itself. */
void guard_copied_number(guard_plugin *p, const PJRT_Buffer_ToHostBuffer_Args *a);
void guard_shared_number(guard_plugin *p, PJRT_Buffer *b, const void *at, uint64_t bytes);
/* Since the last step; *mask: as the true ones of an array of booleans. */
bool guard_number_read(guard_state *g, int64_t n, bool *mask);

/* spmd.c */
spmd_info *guard_spmd_of(guard_state *g, xl_arena *a, xl_module *m, int64_t devices); /* NULL: nothing to watch */
void guard_spmd_before(guard_plugin *p, exec_info *e, PJRT_LoadedExecutable_Execute_Args *args);
void guard_spmd_after(guard_plugin *p, exec_info *e, PJRT_LoadedExecutable_Execute_Args *args);
void guard_spmd_read(const PJRT_Buffer *b);                /* the host reads it */
void guard_spmd_destroyed(guard_state *g, const PJRT_Buffer *b);
void guard_spmd_end(guard_state *g);
void guard_spmd_error(guard_state *g, xl_str text); /* an error for the frontend: does it come from a collective? */
enum { GUARD_TYPES = 33 };
extern const uint8_t guard_type_bytes[GUARD_TYPES]; /* by PJRT_Buffer_Type; sub-byte types take a byte on the host */

/* record.c: the flight recorder. Called only while it is recording; start, end and forked always. */
void guard_record_start(guard_state *g);
void guard_record_end(guard_state *g, bool exits); /* writes what is still unwritten; exits: the process does */
void guard_record_forked(guard_state *g);
void guard_record_program(guard_plugin *p, const PJRT_Client_Compile_Args *args, const char *module);
void guard_record_dropped(const void *executable);
/* Around an execution: the result of `before` (NULL: not recorded) is passed to `after`. */
void *guard_record_before(guard_plugin *p, exec_info *info, const PJRT_LoadedExecutable_Execute_Args *args);
void guard_record_after(guard_plugin *p, void *recorded, const PJRT_LoadedExecutable_Execute_Args *args, bool failed);
void guard_record_took(guard_state *g, const char *module, double seconds);
void guard_record_destroyed(PJRT_Buffer *b);
/* The host reads bytes: from its copy, or from the buffer's memory. */
void guard_record_copied(guard_plugin *p, const PJRT_Buffer_ToHostBuffer_Args *a);
void guard_record_shared(guard_plugin *p, PJRT_Buffer *b, const void *at, uint64_t bytes);

/* profile_steps.c */
void guard_profile_begin(guard_state *g);                            /* starts if the environment asks for it */
void guard_profile_look(guard_state *g);                             /* starts or stops if the run folder asks for it */
void guard_profile_end(guard_state *g);
void guard_profile_forked(guard_state *g);                           /* in a child: nothing is in progress */
/* Around an execution, while g->profiling: pass the slice number from `before` to `after`. */
uint32_t guard_profile_before(guard_plugin *p, xl_module_metrics *mm, bool step, double now);
void guard_profile_after(guard_plugin *p, uint32_t slice, const PJRT_LoadedExecutable_Execute_Args *args, bool ok);

/* watch.c */
void guard_watch_start(guard_state *g);
void guard_watch_stir(void);                               /* activity: wakes the watcher if it sleeps */
/* `module` must live as long as the process (a name in g->metrics); `now` is xl_now(). NULL: too many at once. */
flight *guard_takeoff(guard_state *g, const char *what, const char *module, double now);
void guard_land(flight *f);
bool guard_write_metrics(guard_state *g); /* false: its counters are not in the file */
void guard_memory_due(void);                               /* sample the devices' memory soon */
void guard_memory_now(guard_state *g);
/* The frontend asks: peaks that the guard has reset since are put back. */
/* Bytes a program takes on a device by the compiler's own figures; -1 where the plugin does not say. */
int64_t guard_needs(guard_plugin *p, PJRT_LoadedExecutable *loaded);
PJRT_Error *guard_memory_stats(guard_plugin *p, PJRT_Device_MemoryStats_Args *a);
void guard_memory_forget(guard_plugin *p, PJRT_Client *client); /* its devices go */
PJRT_Error *guard_memory_clear(guard_plugin *p, PJRT_Device_ClearMemoryStats_Args *a);

#endif
