#include "cli/attempts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/time.h"
#include "cli/gang.h"
#include "cli/relay.h"
#include "lane/catalog.h"
#include "lane/identity.h"
#include "lane/retry.h"
#include "lane/run.h"

/* ---- one attempt ---- */
/* Standard error goes through us, and on. A grandchild may keep the pipe open: once the child is gone, what is there is
 * taken. */
static void pump(int fd, pid_t pid, xl_tail *t, int *status)
{
    char piece[1 << 14];
    bool gone = false;
    for (;;) {
        struct pollfd p = { fd, POLLIN, 0 };
        int ready = poll(&p, 1, gone ? 0 : 200);
        if (ready > 0) {
            ssize_t n = read(fd, piece, sizeof piece);
            if (n <= 0 && !(n < 0 && errno == EINTR))
                break;
            if (n > 0) {
                xl_tail_keep(t, piece, (size_t)n);
                (void)!write(2, piece, (size_t)n);
            }
        } else if (gone) {
            return;
        }
        gone = gone || waitpid(pid, status, WNOHANG) == pid;
    }
    while (!gone && waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
}

/* The process of the command: it may go on when this one is killed. */
static void tell_command(xl_run *r, pid_t pid)
{
    xl_event e;
    xl_event_begin(r, &e, "command");
    xl_json_put_int(&e.j, "program", pid);
    xl_event_end(r, &e);
}

static xl_error *attempt(xl_run *run, char **argv, xl_tail *t, int *status)
{
    int words[2] = { -1, -1 };
    fflush(NULL);
    xl_relay_begin();
    if (t->p && pipe2(words, O_CLOEXEC)) {
        xl_relay_to(0);
        xl_relay_end();
        return XL_ERR(EXHAUSTED, "making a pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        xl_relay_child();
        if (words[1] >= 0)
            dup2(words[1], 2);
        execvp(argv[0], argv);
        fprintf(stderr, "xlane: %s: %s; nothing ran: check the command and its path\n", argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    int e = errno;
    if (words[1] >= 0)
        close(words[1]);
    xl_relay_to(pid > 0 ? pid : 0);
    if (pid > 0) {
        tell_command(run, pid);
        if (words[0] >= 0)
            pump(words[0], pid, t, status);
        else
            while (waitpid(pid, status, 0) < 0 && errno == EINTR)
                ;
    }
    xl_relay_end();
    if (words[0] >= 0)
        close(words[0]);
    return pid < 0 ? XL_ERR(UNAVAILABLE, "starting %s: %s", argv[0], strerror(e)) : NULL;
}

/* The ranks of a job; the status is that of the one that failed first. */
static void keep_words(void *ctx, const char *p, size_t n) { xl_tail_keep(ctx, p, n); }

static xl_error *attempt_ranks(const xl_attempts_opts *o, xl_arena *a, xl_run *run, char **argv, xl_tail *t,
                               xl_buf *words, int *status, bool *asked)
{
    int n = (int)o->n;
    xl_gang_end end;
    xl_gang_rank *r = xl_new(a, xl_gang_rank, (size_t)n);
    xl_gang g = { .n = n, .argv = argv, .keep = keep_words, .ctx = t, .grace = 5 };
    double began = xl_run_time(run);
    xl_error *err = xl_gang_run(&g, r, &end);
    if (err)
        return err;
    xl_gang_blame(a, run, began, n, r, &end);
    *status = end.status;
    *asked = end.asked != 0;
    xl_gang_tell(a, run, &g, r, &end, words);
    return NULL;
}

/* ---- what is recorded of them ---- */
static void put_command(xl_json *j, char **argv)
{
    xl_json_key(j, "command");
    xl_json_list(j);
    for (; *argv; argv++)
        xl_json_text(j, *argv);
    xl_json_end(j);
}

static void tell_attempt(xl_run *r, int64_t number, char **argv)
{
    xl_event e;
    xl_event_begin(r, &e, "attempt");
    xl_json_put_int(&e.j, "number", number);
    put_command(&e.j, argv);
    xl_event_end(r, &e);
}

static void tell_end(xl_run *r, int code, int sig, xl_phase phase)
{
    xl_event e;
    xl_event_begin(r, &e, "end");
    xl_json_put_int(&e.j, "status", code);
    xl_json_put_int(&e.j, "signal", sig);
    xl_json_put_text(&e.j, "phase", xl_phase_word(phase));
    xl_event_end(r, &e);
}

static void tell_retry(xl_run *r, const xl_failure *f, xl_phase phase, int64_t number, int code, char **argv,
                       const char *then)
{
    xl_event e;
    xl_event_begin(r, &e, "retry");
    xl_json_put_int(&e.j, "attempt", number);
    xl_json_put_int(&e.j, "status", code);
    xl_json_put_text(&e.j, "phase", xl_phase_word(phase));
    xl_failure_json(&e.j, f);
    xl_json_put_text(&e.j, "then", then);
    put_command(&e.j, argv);
    xl_event_end(r, &e);
}

/* The command of the k-th smaller candidate. */
static char **shrunk(const xl_attempts_opts *o, xl_arena *a, int argc, char **argv, size_t k)
{
    size_t n = 0, cap = 0;
    char **out = NULL;
    for (int i = 0; i < argc; i++)
        XL_PUSH(a, out, n, cap, argv[i]);
    xl_str rest = xl_str_of(k ? o->smaller.p[k - 1] : "");
    while (rest.n) {
        xl_str word = xl_str_cut(&rest, ' ');
        if (word.n)
            XL_PUSH(a, out, n, cap, xl_str_c(a, word));
    }
    XL_PUSH(a, out, n, cap, NULL);
    return out;
}

/* ---- candidates: the command, then with each --smaller, in the order in which they are tried ---- */
typedef struct {
    size_t at;
    xl_known known;
} candidate; /* at: 0 the command as it is, k with the k-th --smaller */

static int by_known(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    return a->known != b->known ? (int)a->known - (int)b->known : (a->at > b->at) - (a->at < b->at);
}

static xl_catalog_launch launch_of(const xl_attempts_opts *o, xl_arena *a, char **argv)
{
    static const char *const devices[] = { "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION",
                                           "XLANE_CPU_DEVICES", "XLANE_CPU_HBM" }; /* how many, how large */
    char flags[16384], cwd[4096];
    int n = 0;
    while (argv[n])
        n++;
    xl_identity_flags(flags, sizeof flags);
    xl_buf all = { 0 };
    xl_buf_puts(&all, flags);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (getenv(devices[i]))
            xl_buf_printf(&all, "%s%s=%s", all.n ? " " : "", devices[i], getenv(devices[i]));
    if (o->n > 1)
        xl_buf_printf(&all, "%sranks=%lld", all.n ? " " : "", (long long)o->n);
    const char *kept = xl_str_c(a, xl_buf_view(&all)), *profile = getenv("XLANE_PROFILE");
    xl_buf_fini(&all);
    return (xl_catalog_launch){ n, argv, getcwd(cwd, sizeof cwd) ? xl_str_c(a, xl_str_of(cwd)) : "", kept,
                                profile ? profile : "" };
}

/* What the catalog knows to run is tried first, what it knows not to fit last. */
static candidate *order(const xl_attempts_opts *o, xl_arena *a, int argc, char **argv)
{
    size_t n = o->smaller.n + 1, have = 0;
    xl_catalog_entry *e = NULL;
    candidate *c = xl_new(a, candidate, n);
    if (n > 1)
        xl_error_free(xl_catalog_read(a, xl_catalog_dir(a), &e, &have, NULL));
    for (size_t i = 0; i < n; i++) {
        xl_catalog_launch l = launch_of(o, a, shrunk(o, a, argc, argv, i));
        c[i] = (candidate){ i, n > 1 ? xl_catalog_known_launch(a, e, have, &l, NULL) : XL_UNSEEN };
    }
    qsort(c, n, sizeof *c, by_known);
    if (c[0].at)
        fprintf(stderr, "xlane: the catalog knows \"%s\" to run here%s: it is tried first\n", o->smaller.p[c[0].at - 1],
                c[n - 1].known == XL_KNOWN_BAD ? " and a larger one not to fit" : "");
    return c;
}

/* The next candidate after one that was too large: larger ones than that are left out. NULL: none. */
static const candidate *next_smaller(const xl_attempts_opts *o, const candidate *c, const candidate *now)
{
    for (const candidate *k = now + 1; k <= c + o->smaller.n; k++)
        if (k->at > now->at)
            return k;
    return NULL;
}

/* One line in the catalog for what came of an attempt: it came through its first compiles, or it did not fit. Other
 * failures say nothing of a launch. */
static void keep_outcome(const xl_attempts_opts *o, xl_arena *a, const char *dir, size_t before, char **argv, int code,
                         int sig, xl_phase phase, const xl_failure *f)
{
    xl_catalog_entry e;
    xl_catalog_launch l = launch_of(o, a, argv);
    bool large = code && f->verdict == XL_RETRY_SMALLER && phase != XL_PHASE_RUN;
    if ((code && phase != XL_PHASE_RUN && !large && !sig) || !xl_catalog_of_run(a, dir, before, &l, &e))
        return;
    if (sig) {
        e.outcome = XL_OUTCOME_KILLED;
        e.class = xl_strf(a, "signal %d", sig);
        e.message = xl_strf(a, "%s, phase: %s", strsignal(sig), xl_phase_word(phase));
    } else if (large) {
        e.outcome = XL_OUTCOME_FAILED;
        e.class = xl_str_of(f->ecode[0] ? f->ecode : f->cause);
        e.message = xl_str_of(f->text);
    }
    xl_error *err = xl_catalog_add(xl_catalog_dir(a), &e);
    if (err)
        XL_LOG(INFO, "not kept in the catalog: %s", xl_error_message(err));
    xl_error_free(err);
}

static size_t count_events(xl_arena *a, const char *dir)
{
    xl_node **e;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    return n;
}

/* The furthest step that the events behind the first `before` tell of. */
static int64_t steps_since(xl_arena *a, const char *dir, size_t before)
{
    xl_node **e = NULL;
    size_t n = 0;
    int64_t most = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = before; i < n; i++) {
        const xl_node *step = xl_node_get(e[i], "step"), *all = xl_node_get(e[i], "steps");
        most = step && step->i > most ? step->i : most;
        most = all && all->i > most ? all->i : most;
    }
    return most;
}

/* What is in the way needs time to go. Gives the signal that ended the wait, or 0. */
static int wait_for_retry(int64_t attempt)
{
    static const double slice = 0.1;
    for (double s = attempt < 6 ? (double)(1 << (attempt - 1)) * 0.5 : 16; s > 0 && !xl_relay_stray(); s -= slice)
        xl_sleep(slice);
    return xl_relay_stray();
}

xl_error *xl_attempts(xl_arena *a, const xl_attempts_opts *o, const char *dir, int argc, char **argv, int *code,
                      int64_t *made, char ***ran)
{
    xl_error *err = NULL;
    xl_run *r = NULL;
    xl_tail t = { 0 };
    xl_buf words = { 0 }; /* who failed first */
    xl_restarts again = { 0 };
    xl_error_free(xl_run_open(dir, &r));
    if (!r)
        return XL_ERR(EXHAUSTED, "out of memory");
    const candidate *all = order(o, a, argc, argv), *now = all;
    if (o->retries > 0 || o->restarts > 0)
        t.p = xl_arena_alloc(a, XL_TAIL);
    for (int64_t k = 1;; k++) {
        int status = 0;
        bool asked = false;                                /* by a signal to us: nothing is started again */
        t.n = words.n = 0;
        *made = k;
        *ran = shrunk(o, a, argc, argv, now->at);
        if (o->retries > 0 || o->restarts > 0) {
            setenv("XLANE_ATTEMPT", xl_strf(a, "%lld", (long long)k).p, 1);
            tell_attempt(r, k, *ran);
        }
        size_t before = count_events(a, dir);
        XL_DO(o->n > 1 ? attempt_ranks(o, a, r, *ran, &t, &words, &status, &asked) : attempt(r, *ran, &t, &status));
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        xl_buf texts = { 0 };
        xl_phase phase = xl_run_phase(a, dir, &texts);
        xl_buf_add(&texts, t.p ? t.p : "", t.n);
        xl_buf_str(&texts, xl_buf_view(&words));
        xl_failure f = xl_retry_classify(0, xl_buf_view(&texts), phase);
        xl_buf_fini(&texts);
        keep_outcome(o, a, dir, before, *ran, *code, sig, phase, &f);
        tell_end(r, *code, sig, phase);
        asked |= sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT;
        if (*code && o->restarts > 0 && !asked) {
            const char *then;
            int64_t at = steps_since(a, dir, before);
            bool once_more = xl_restart(&again, o->restarts, &f, at, &then);
            xl_restart_tell(r, &again, &f, at, then);
            if (once_more)
                continue;
        }
        if (!*code || o->retries <= 0)
            break;
        if (asked || sig == SIGKILL)
            f.again = false; /* somebody wanted it to end */
        const candidate *next = next_smaller(o, all, now);
        const char *then = "tried again";
        if (!f.again)
            then = phase == XL_PHASE_RUN ? "stopped: it failed after the compile window, where nothing is retried"
                                         : "stopped: a retry could not help";
        else if (f.verdict == XL_RETRY_SMALLER && !next)
            then = o->smaller.n ? "stopped: no smaller candidate is left"
                                : "stopped: no smaller candidate was given (--smaller)";
        else if (k > o->retries)
            then = "stopped: no retries are left";
        else if (f.verdict == XL_RETRY_SMALLER)
            then = "tried again with the next smaller candidate";
        bool again = !strncmp(then, "tried", 5);
        tell_retry(r, &f, phase, k, *code, *ran, then);
        fprintf(stderr, "xlane: attempt %lld failed with %d at %s: %s (%s, %s); %s\n", (long long)k, *code,
                xl_phase_word(phase), f.text, f.cause, xl_retry_word(f.verdict), then);
        if (!again)
            break;
        if (f.verdict == XL_RETRY_SMALLER)
            now = next;
        else if ((sig = wait_for_retry(k))) {
            *code = 128 + sig;
            fprintf(stderr, "xlane: ended by signal %d (%s) while it waited to try again\n", sig, strsignal(sig));
            break;
        }
    }
out:
    xl_buf_fini(&words);
    xl_run_close(r);
    return err;
}
