/* src/cli/gang.h
 * Runs several copies of a command, the ranks of one job. Their output is forwarded line by line, prefixed with the
 * rank; signals are forwarded to all; when one fails, the others are ended after a grace period. For one thread; one
 * gang at a time. */
#ifndef XL_CLI_GANG_H
#define XL_CLI_GANG_H

#include "lane/retry.h"
#include "lane/run.h"

typedef struct {
    int n;
    char **argv;
    void (*keep)(void *ctx, const char *p, size_t n); /* may be NULL: gets what the ranks write to standard error */
    void *ctx;
    double grace; /* seconds before SIGTERM after the first failure, and again before SIGKILL */
    bool bare;                                             /* forward standard output of rank 0 without a prefix */
} xl_gang;

typedef struct {
    bool ended, first, ours;
    int status;
    double after;
    double raised;
    int failed;
    xl_str words;
} xl_gang_rank; /* ours: we ended it; after: seconds until its end; raised, failed, words:
                 * when its program failed, its status and why; 0: it did not */

typedef struct {
    int first;                                             /* the rank that failed first; -1: none */
    int asked;                                             /* by which signal the launcher was asked to end; 0: none */
    int killed_by;                                         /* the same, where ranks had to be killed for it */
    int status;                                            /* as of wait(): of `first`, or by `killed_by`, or 0 */
} xl_gang_end;

/* Runs them to their end. After SIGINT or SIGTERM it says who is waited for; a second one kills the ranks that are
 * left. ranks has n entries. */
xl_error *xl_gang_run(const xl_gang *g, xl_gang_rank *ranks, xl_gang_end *end) XL_MUST_USE;
/* A rank whose program has failed may wait in the frontend's shutdown before it ends, while others end because of it:
 * corrects which was the first, by what the guard recorded. began: when the gang was started, in seconds of the run. */
void xl_gang_blame(xl_arena *a, xl_run *run, double began, int n, xl_gang_rank *ranks, xl_gang_end *end);
/* "exited with 1", "was killed by signal 9 (Killed)". */
xl_str xl_gang_words(xl_arena *a, int status);
/* Reports which rank failed first and how the others ended: on standard error, as events, and in `words`. */
void xl_gang_tell(xl_arena *a, xl_run *run, const xl_gang *g, const xl_gang_rank *ranks, const xl_gang_end *end,
                  xl_buf *words);

/* The end of standard error. */
enum { XL_TAIL = 64 << 10 };
typedef struct { char *p; size_t n; } xl_tail;             /* p NULL: nothing is kept; else XL_TAIL bytes */
void xl_tail_keep(xl_tail *t, const char *p, size_t n);

/* Decides whether a gang that failed is restarted, at most `most` times: only if a retry can help on this host, and if
 * it did not fail before of the same cause at the same place. `at` is how far it got. */
typedef struct { const char *cause; int64_t at, made; } xl_restarts;
bool xl_restart(xl_restarts *r, int64_t most, const xl_failure *f, int64_t at, const char **then);
/* Reports the decision, as an event and on standard error. */
void xl_restart_tell(xl_run *run, const xl_restarts *r, const xl_failure *f, int64_t at, const char *then);

#endif
