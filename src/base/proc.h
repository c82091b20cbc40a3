/* src/base/proc.h
 * Child processes with a time limit and bounded output, for programs that may hang, abort or print without end.
 * The child leads its own process group, so that its children are ended with it. It is killed when we die. */
#ifndef XL_BASE_PROC_H
#define XL_BASE_PROC_H

#include "base/str.h"

enum { XL_PROC_OUT_MAX = 16 << 20, XL_PROC_ERR_MAX = 16 << 10 };

typedef struct {
    int status;      /* its exit status; -1 if it did not exit */
    int signal;      /* the signal that ended it; 0: none */
    bool timed_out;  /* we killed it (signal is then SIGKILL) */
    double seconds;
    xl_str out;      /* the first XL_PROC_OUT_MAX bytes it gave */
    xl_str err;      /* the last XL_PROC_ERR_MAX bytes of standard error */
    bool out_cut, err_cut;
} xl_proc_result;

/* Runs argv[0] (looked up in PATH) with nothing on standard input. env NULL: ours. timeout_ms <= 0: none.
 * An error means that it could not be started; how it ended is in *out, whose strings live in the arena. */
xl_error *xl_proc_run(xl_arena *a, char *const argv[], char *const env[], int timeout_ms,
                      xl_proc_result *out) XL_MUST_USE;

/* The same, but what it prints goes to our standard error as it comes: for what takes minutes and shows its progress.
 * */
xl_error *xl_proc_show(xl_arena *a, char *const argv[], char *const env[], int timeout_ms,
                       xl_proc_result *out) XL_MUST_USE;

/* Calls fn in a child of this process (fork): what it writes to fd becomes out->out, what it returns out->status;
 * everything it or a library it loads prints becomes out->err. To be called while no other thread of ours runs. */
typedef int xl_proc_fn(void *arg, int fd);
xl_error *xl_proc_call(xl_arena *a, xl_proc_fn *fn, void *arg, int timeout_ms, xl_proc_result *out) XL_MUST_USE;

/* For xl_proc_fn: all n bytes, or false. */
bool xl_proc_write(int fd, const void *p, size_t n);
/* "exited with 3", "ended by signal 6 (Aborted)", "did not end within 5 s". */
xl_str xl_proc_words(xl_arena *a, const xl_proc_result *r);

/* True if the process exists and runs; false for a zombie. */
bool xl_pid_alive(int64_t pid);
double xl_pid_started(int64_t pid);                        /* on the clock of xl_now_wall(); 0: not known */

#endif
