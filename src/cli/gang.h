/* src/cli/gang.h
 * Several copies of a command, the ranks of one job: their output is passed on line by line behind the rank's number,
 * signals go to all of them, and when one fails the others are given a moment and then ended. For one thread; one gang
 * at a time. */
#ifndef XL_CLI_GANG_H
#define XL_CLI_GANG_H

#include "lane/retry.h"
#include "lane/run.h"

typedef struct {
    int n;
    char **argv;
    void (*keep)(void *ctx, const char *p, size_t n);      /* may be NULL: sees what is written to standard error */
    void *ctx;
    double grace; /* seconds that the others have after the first failure, and again after SIGTERM */
    bool bare;                                             /* standard output of rank 0 goes out as it is */
} xl_gang;

typedef struct {
    bool ended, first, ours;
    int status;
    double after;
} xl_gang_rank; /* ours: we ended it; after: seconds until its end */

/* Runs them to their end. *first is the rank that failed first, or -1. ranks has n entries. */
xl_error *xl_gang_run(const xl_gang *g, xl_gang_rank *ranks, int *first) XL_MUST_USE;
/* "exited with 1", "was killed by signal 9 (Killed)". */
xl_str xl_gang_words(xl_arena *a, int status);
/* Who failed first and what became of the others, on standard error and as events; that line also into `words`. */
void xl_gang_tell(xl_arena *a, xl_run *run, const xl_gang *g, const xl_gang_rank *ranks, int first, xl_buf *words);

/* The last words on standard error. */
enum { XL_TAIL = 64 << 10 };
typedef struct { char *p; size_t n; } xl_tail;             /* p NULL: nothing is kept; else XL_TAIL bytes */
void xl_tail_keep(xl_tail *t, const char *p, size_t n);

/* Whether a gang that failed is started again, at most `most` times. It is where a retry can help on this host, however
 * long it had run, and where it has not failed before of the same cause at the same place: `at` is how far it came. */
typedef struct { const char *cause; int64_t at, made; } xl_restarts;
bool xl_restart(xl_restarts *r, int64_t most, const xl_failure *f, int64_t at, const char **then);
/* As an event, and in a line. */
void xl_restart_tell(xl_run *run, const xl_restarts *r, const xl_failure *f, int64_t at, const char *then);

#endif
