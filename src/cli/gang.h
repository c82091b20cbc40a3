/* src/cli/gang.h
 * Several copies of a command, the ranks of one job: their output is passed on line by line behind the rank's number,
 * signals go to all of them, and when one fails the others are given a moment and then ended. For one thread; one gang
 * at a time. */
#ifndef XL_CLI_GANG_H
#define XL_CLI_GANG_H

#include "base/str.h"

typedef struct {
    int n;
    char **argv;
    void (*keep)(void *ctx, const char *p, size_t n);      /* may be NULL: sees what is written to standard error */
    void *ctx;
    double grace; /* seconds that the others have after the first failure, and again after SIGTERM */
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

#endif
