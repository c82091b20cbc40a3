/* src/lane/run.h
 * A run: one recorded launch, a folder. `run.json` says what was launched; `events.jsonl` has one line per event, from
 * all of its processes; `programs/` keeps every program that was compiled. The commands that explain something read
 * these.
 * Any thread may add events. Events that cannot be written are kept, retried and counted: a run never fails its
 * program. Only its user can read the folder (mode 0700, files 0600). */
#ifndef XL_LANE_RUN_H
#define XL_LANE_RUN_H

#include "base/json.h"
#include "base/str.h"

typedef struct xl_run xl_run;

/* Makes `<parent>/<time>-<name>` (a number is appended where that exists) and gives its path. */
xl_error *xl_run_make(xl_arena *a, const char *parent, const char *name, char **path) XL_MUST_USE;
/* Attaches to an existing folder as one of its processes. NULL dir: a run that records nothing. */
xl_error *xl_run_open(const char *dir, xl_run **out) XL_MUST_USE;
void xl_run_close(xl_run *r);
const char *xl_run_dir(const xl_run *r);                   /* "" where nothing is recorded */
int xl_run_rank(const xl_run *r);                          /* from RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, ...; 0 */
void xl_run_set_rank(xl_run *r, int rank);
double xl_run_time(const xl_run *r);    /* seconds since the run began; a clock that is set does not move it */
const char *xl_run_clock(char out[96]); /* for XLANE_RUN_BEGAN: this moment, for all processes of the run */
bool xl_run_flush(xl_run *r);           /* tries once more what the disk did not take; false: some waits still */
uint64_t xl_run_lost(xl_run *r);                           /* events that are not in the file */
/* Whether the folder's path still leads to the folder that was opened: not in another root, nor where it was moved
 * away. Whoever writes a file there from inside a program of somebody else's asks first. False where nothing is
 * recorded. */
bool xl_run_there(const xl_run *r);

/* One event: begin writes t, rank, pid and event; the caller adds members; end writes the line. */
typedef struct { xl_json j; xl_buf line; } xl_event;
void xl_event_begin(const xl_run *r, xl_event *e, const char *event);
void xl_event_end(xl_run *r, xl_event *e);

/* A `fault` event, trouble of the guard's own: what it was doing, of which some are asked for by name. */
#define XL_FAULT_CACHE "writing to the cache"

/* Reading: the events of a run folder, in time order, as a list of maps. The list is not to be changed: in the arena of
 * a command all who ask get the same one (lane/kept.h). */
typedef struct {
    xl_node **event;
    size_t n, unread;                                      /* unread: lines that are no event */
    bool cut;                                              /* the last one is only the beginning of one */
} xl_run_log;
xl_error *xl_run_read(xl_arena *a, const char *dir, xl_run_log *out) XL_MUST_USE;
xl_error *xl_run_events(xl_arena *a, const char *dir, xl_node ***events, size_t *n) XL_MUST_USE;
const char *xl_runs_folder(void);                          /* XLANE_RUNS, or ./runs */
/* What is in such a folder, in the order in which it was made; an error that says what to do if it is not there or may
 * not be read. */
xl_error *xl_runs_list(xl_arena *a, const char *runs, xl_str **names, size_t *n) XL_MUST_USE;
bool xl_run_denied(xl_arena *a, const char *dir);          /* another user's: what is in it may not be read */
bool xl_run_is(xl_arena *a, const char *dir);              /* the folder is that of a run */
/* The folder a user means by RUN: a path, a name under ./runs, or "last". `xlane run -- xlane train` makes two: "last"
 * is that of `xlane run`. A name that no run has, or several, is a misuse (xl_error_misuse). */
xl_error *xl_run_find(xl_arena *a, const char *word, char **dir) XL_MUST_USE;
/* The same, but of those two the one that `xlane train` made, which has the checkpoints. */
xl_error *xl_run_find_trained(xl_arena *a, const char *word, char **dir) XL_MUST_USE;
bool xl_run_trained(xl_arena *a, const char *dir);         /* the folder is of `xlane train`, or a rung of the ladder */

/* The newest other run beside this one that has what this one has not: what an answer names as a next step. NULL: none.
 * Compiles; those whose programs were recorded too; counters of a guarded process. */
typedef enum { XL_RUN_COMPILES, XL_RUN_PROGRAMS, XL_RUN_METRICS } xl_run_part;
const char *xl_run_newest(xl_arena *a, const char *dir, xl_run_part part);

/* Whether programs were used and none compiled or taken from our cache: the frontend's own cache answered for all, so
 * nothing of them could be recorded. */
bool xl_run_loaded(xl_arena *a, const char *dir);
#define XL_FRONTEND_CACHE_OFF "JAX: JAX_ENABLE_COMPILATION_CACHE=false; xlane train: cache=none"

/* What run.json says of the launch. A run under a diagnostic profile is no benchmark: whoever shows its timings shows
 * the mark. */
typedef struct {
    xl_str profile;
    bool diagnostic;
    xl_str switches; /* "JAX_LOG_COMPILES=1", where the environment and not the profile made it diagnostic */
    bool unguarded;                                        /* by XLANE_GUARD=off */
    const xl_node *json;
} xl_run_info;
#define XL_GUARD_OFF "the guard was off (XLANE_GUARD=off)"
xl_run_info xl_run_about(xl_arena *a, const char *dir);     /* empty where there is no run.json */
/* Of a run that `xlane run` started and whose end it has not recorded: that it is still going, with its launcher or
 * without, or how it may have ended. Empty: it has ended, or nobody recorded a launcher. */
xl_str xl_run_unended(xl_arena *a, const char *dir);
bool xl_run_going(xl_arena *a, const char *dir);           /* no end is recorded, and a process of it is alive */

/* How it ended: by run.json, or by its last event, where run.json could not be written then. */
typedef struct {
    bool known, unwritten;
    bool has_status;                                       /* of a command; a training run says why it ended: */
    xl_str why;
    int64_t status, signal;                                /* signal 0: by none */
    double seconds;
} xl_run_end;
xl_run_end xl_run_end_of(xl_arena *a, const char *dir);

/* The same in a few words: "exit status 0", "signal 9 (Killed)", "running". going: may be NULL. */
xl_str xl_run_state(xl_arena *a, const char *dir, bool *going);

/* "", or lines for the head of an output: that its timings do not compare, and what its record lacks. */
xl_str xl_run_mark(xl_arena *a, const char *dir);

#endif
