/* src/cli/run_tell.h
 * What `xlane run` says on standard error when its program has ended. Texts are borrowed; one thread. */
#ifndef XL_CLI_RUN_TELL_H
#define XL_CLI_RUN_TELL_H

#include "cli/opt.h"
#include "lane/profile.h"
#include "lane/run.h"

/* The run's events, read once when it has ended. */
typedef struct {
    xl_node **p;
    size_t n;
    bool stopped; /* the policy ended it */
} xl_run_ended;
void xl_run_ended_read(xl_arena *a, const char *dir, xl_run_ended *log);

/* What its events and its status say of the guard; full: they may not have been written. */
void xl_run_tell_guard(const char *dir, const xl_run_ended *log, int code, bool full);
/* Names given to --watch that never came: misspelt, or without jit_ before them. */
void xl_run_tell_unseen(const xl_run_ended *log, const xl_opt_list *watch);
/* Executables that the next start will compile again; said once, however many there were. */
void xl_run_tell_cache(const xl_run_ended *log, const char *cache);
/* The lines of --summary; full: run.json could not be written. */
void xl_run_tell_summary(xl_arena *a, const char *dir, const xl_profile *p, double seconds, int status, bool stopped,
                         bool full);
/* A short program on CUDA that waited for XLA's first allocation. */
void xl_run_tell_growth(xl_arena *a, const xl_run_ended *log, double seconds);

#endif
