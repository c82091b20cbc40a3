/* src/cli/attempts.h
 * The attempts of `xlane run`: the command, or its ranks, started until it succeeds, or until another attempt could not
 * help (lane/retry.h). Each is recorded in the run's events, and what came of it in the catalog. One thread. */
#ifndef XL_CLI_ATTEMPTS_H
#define XL_CLI_ATTEMPTS_H

#include "cli/opt.h"

typedef struct {
    int64_t n; /* ranks; 1: the command alone */
    int64_t retries, restarts;
    xl_opt_list smaller; /* arguments that make the program smaller, in order */
} xl_attempts_opts;

/* *code: the exit status of the last attempt, 128 and its number for a signal; *made: how many there were; *ran: the
 * command of the last one. */
xl_error *xl_attempts(xl_arena *a, const xl_attempts_opts *o, const char *dir, int argc, char **argv, int *code,
                      int64_t *made, char ***ran) XL_MUST_USE;

#endif
