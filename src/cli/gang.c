#include "cli/gang.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"

enum { LINE = 1 << 16 };
typedef struct { int fd; char *line; size_t n; } stream;   /* of a child; its unfinished line */
typedef struct { pid_t pid; int pidfd; stream out[2]; } member;

static volatile sig_atomic_t count;
static volatile pid_t group[4096];                         /* of each rank; 0 once it has ended */

/* SIGINT or SIGTERM, which ask for the end: the first one, and another that came so much later that it is not the same
 * one twice (`timeout` signals a process and then its group). 0: none. */
static const double APART = 0.3;
static volatile sig_atomic_t asked_by, insisted_by;
static double asked_at;                                    /* of the handler alone, which does not interrupt itself */

static void pass_on(int sig)
{
    int e = errno;
    for (int i = 0; i < count; i++)
        if (group[i] > 0)
            kill(-group[i], sig);
    if (sig == SIGINT || sig == SIGTERM) {
        double now = xl_now();
        if (asked_by && !insisted_by && now > asked_at + APART)
            insisted_by = sig;
        if (!asked_by) {
            asked_at = now;
            asked_by = sig;
        }
    }
    errno = e;
}

static void tell_all(member *m, int n, int sig, xl_gang_rank *r)
{
    for (int i = 0; i < n; i++)
        if (!r[i].ended) {
            r[i].ours = true;
            kill(-m[i].pid, sig);
        }
}

/* A port that is free now, for rank 0 to listen at. */
static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a) && !getsockname(fd, (struct sockaddr *)&a, &n))
        port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* In the child: who it is, under the names of ours, of torchrun, of JAX and of PyTorch/XLA. */
static void name_rank(int rank, int n, const int port[3])
{
    char text[64];
#define PUT(name, ...) (snprintf(text, sizeof text, __VA_ARGS__), setenv(name, text, 1))
    PUT("XLANE_RANK", "%d", rank), PUT("XLANE_RANKS", "%d", n);
    PUT("XLANE_JOB", "%ld-%d", (long)getppid(), port[0]);
    PUT("XLANE_COORDINATOR", "127.0.0.1:%d", port[0]), PUT("JAX_COORDINATOR_ADDRESS", "127.0.0.1:%d", port[0]);
    PUT("RANK", "%d", rank), PUT("LOCAL_RANK", "%d", rank), PUT("WORLD_SIZE", "%d", n),
        PUT("LOCAL_WORLD_SIZE", "%d", n);
    PUT("MASTER_ADDR", "127.0.0.1"), PUT("MASTER_PORT", "%d", port[1]), PUT("XLA_COORDINATOR_PORT", "%d", port[2]);
#undef PUT
}

static void put_line(const xl_gang *g, stream *s, int which, int rank)
{
    char head[16];
    int n = g->n, to = which + 1, width = n > 1000 ? 4 : n > 100 ? 3 : n > 10 ? 2 : 1;
    int k = g->bare && !rank && !which ? 0 : snprintf(head, sizeof head, "[%*d] ", width, rank);
    char *whole = malloc((size_t)k + s->n + 1);
    if (whole) {                                           /* one write: lines of ranks do not mix */
        memcpy(whole, head, (size_t)k);
        memcpy(whole + k, s->line, s->n);
        whole[(size_t)k + s->n] = '\n';
        for (size_t at = 0, all = (size_t)k + s->n + 1; at < all; ) {
            ssize_t w = write(to, whole + at, all - at);
            if (w < 0 && errno != EINTR && errno != EAGAIN)
                break;
            at += w > 0 ? (size_t)w : 0;
        }
        free(whole);
    }
    s->n = 0;
}

/* False at the end of the stream. */
static bool pump(const xl_gang *g, stream *s, int which, int rank)
{
    char piece[1 << 14];
    ssize_t got = read(s->fd, piece, sizeof piece);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got <= 0)
        return false;
    if (which == 1 && g->keep)
        g->keep(g->ctx, piece, (size_t)got);
    for (ssize_t i = 0; i < got; i++) {
        if (piece[i] == '\n' || s->n == LINE)
            put_line(g, s, which, rank);
        if (piece[i] != '\n')
            s->line[s->n++] = piece[i];
    }
    return true;
}

static void close_stream(const xl_gang *g, stream *s, int which, int rank)
{
    if (s->fd < 0)
        return;
    if (s->n)
        put_line(g, s, which, rank);
    close(s->fd);
    s->fd = -1;
}

static xl_error *start(const xl_gang *g, member *m, int rank, const int port[3], const sigset_t *mask, pid_t parent)
{
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC))
        return XL_ERR(EXHAUSTED, "making a pipe: %s", strerror(errno));
    if (pipe2(err, O_CLOEXEC)) {
        close(out[0]), close(out[1]);
        return XL_ERR(EXHAUSTED, "making a pipe: %s", strerror(errno));
    }
    m->pid = fork();
    if (m->pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        sigprocmask(SIG_SETMASK, mask, NULL);
        dup2(out[1], 1), dup2(err[1], 2);
        name_rank(rank, g->n, port);
        execvp(g->argv[0], g->argv);
        fprintf(stderr, "xlane: %s: %s; nothing ran: check the command and its path\n", g->argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    close(out[1]), close(err[1]);
    m->out[0].fd = out[0], m->out[1].fd = err[0];
    if (m->pid < 0)
        return XL_ERR(UNAVAILABLE, "starting rank %d of %d: %s", rank, g->n, strerror(errno));
    setpgid(m->pid, m->pid);                               /* whoever is first: the child or we */
    m->pidfd = (int)syscall(SYS_pidfd_open, m->pid, 0);
    if (m->pidfd >= 0)
        fcntl(m->pidfd, F_SETFD, FD_CLOEXEC);
    group[rank] = m->pid;
    return NULL;
}

/* "rank 1", "ranks 0, 2 and 3 more": those that have not ended. */
static void put_left(xl_buf *b, int n, const xl_gang_rank *r)
{
    enum { NAMED = 8 };
    int left = 0, named = 0;
    for (int i = 0; i < n; i++)
        left += !r[i].ended;
    xl_buf_puts(b, left == 1 ? "rank " : "ranks ");
    for (int i = 0; i < n && named < NAMED; i++)
        if (!r[i].ended)
            xl_buf_printf(b, "%s%d", named++ ? ", " : "", i);
    if (left > named)
        xl_buf_printf(b, " and %d more", left - named);
}

/* After a signal: what was done with it, who is waited for if the first rank has ended a while ago (it may be saving),
 * and the end of those that are left where a second one came. */
typedef struct { int said; double since; } obedience;

static void obey(const xl_gang *g, member *m, xl_gang_rank *r, xl_gang_end *end, obedience *o, double now)
{
    int left = 0, by = asked_by;
    xl_buf b = { 0 };
    for (int i = 0; i < g->n; i++)
        left += !r[i].ended;
    if (!by || !left)
        return;
    const char *name = by == SIGINT ? "SIGINT" : "SIGTERM";
    end->asked = by;
    o->since = left < g->n && !o->since ? now : o->since;
    if (!o->said && ++o->said)
        fprintf(stderr, "xlane: sent %s to %d rank%s; a second one kills %s\n", name, left, left == 1 ? "" : "s",
                left == 1 ? "it" : "them");
    if (o->said == 1 && o->since && now > o->since + g->grace && end->first < 0 && ++o->said) {
        put_left(&b, g->n, r);
        fprintf(stderr, "xlane: after %s, %.*s of %d %s still running, and waited for; a second signal kills %s\n",
                name, XL_FMT(xl_buf_view(&b)), g->n, left == 1 ? "is" : "are", left == 1 ? "it" : "them");
    }
    if (insisted_by && o->said < 3) {
        o->said = 3;
        end->killed_by = insisted_by;
        put_left(&b, g->n, r);
        fprintf(stderr, "xlane: a second signal: killing %.*s of %d\n", XL_FMT(xl_buf_view(&b)), g->n);
        tell_all(m, g->n, SIGKILL, r);
    }
    xl_buf_fini(&b);
}

static bool failed(int status) { return !WIFEXITED(status) || WEXITSTATUS(status); }

/* Those that have ended; of two that did at once, one that was killed comes before one that gave up. */
static void reap(member *m, const xl_gang *g, xl_gang_rank *r, int *first, double began)
{
    int now = -1;
    for (int i = 0; i < g->n; i++) {
        if (r[i].ended || waitpid(m[i].pid, &r[i].status, WNOHANG) != m[i].pid)
            continue;
        r[i].ended = true;
        r[i].after = xl_now() - began;
        kill(-m[i].pid, SIGKILL);                          /* what it left behind */
        group[i] = 0;
        if (failed(r[i].status) && !r[i].ours && *first < 0 &&
            (now < 0 || (WIFSIGNALED(r[i].status) && !WIFSIGNALED(r[now].status))))
            now = i;
    }
    if (now >= 0) {
        *first = now;
        r[now].first = true;
    }
}

static bool any_left(const xl_gang *g, const member *m, const xl_gang_rank *r)
{
    for (int i = 0; i < g->n; i++)
        if (!r[i].ended || m[i].out[0].fd >= 0 || m[i].out[1].fd >= 0)
            return true;
    return false;
}

static void follow(const xl_gang *g, member *m, xl_gang_rank *r, struct pollfd *fd, xl_gang_end *end, double began)
{
    double failed_at = 0, ended_at = 0;
    bool asked = false;
    int after_signal = 0;
    obedience o = { 0 };
    while (any_left(g, m, r)) {
        bool alive = false;
        for (int i = 0; i < g->n; i++) {
            for (int k = 0; k < 2; k++)
                fd[3 * i + k] = (struct pollfd){ m[i].out[k].fd, POLLIN, 0 };
            fd[3 * i + 2] = (struct pollfd){ r[i].ended ? -1 : m[i].pidfd, POLLIN, 0 };
            alive = alive || !r[i].ended;
        }
        poll(fd, 3 * (nfds_t)g->n, 200);
        for (int i = 0; i < g->n; i++)
            for (int k = 0; k < 2; k++)
                if (fd[3 * i + k].revents && !pump(g, &m[i].out[k], k, i))
                    close_stream(g, &m[i].out[k], k, i);
        reap(m, g, r, &end->first, began);
        double now = xl_now();
        obey(g, m, r, end, &o, now);
        if (end->first >= 0 && !failed_at) {
            failed_at = now;
            after_signal = end->asked;
        }
        if (alive && failed_at && !asked && now > failed_at + g->grace) {
            tell_all(m, g->n, SIGTERM, r);
            asked = true;
            end->killed_by = end->killed_by ? end->killed_by : after_signal;
        }
        if (alive && failed_at && now > failed_at + 2 * g->grace)
            tell_all(m, g->n, SIGKILL, r);
        if (!alive && !ended_at)
            ended_at = now;
        if (ended_at && now > ended_at + 1)                /* a descendant in another group keeps a pipe open */
            for (int i = 0; i < g->n; i++)
                for (int k = 0; k < 2; k++)
                    close_stream(g, &m[i].out[k], k, i);
    }
}

xl_error *xl_gang_run(const xl_gang *g, xl_gang_rank *r, xl_gang_end *end)
{
    static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT };
    enum { NPASSED = sizeof passed / sizeof *passed };
    xl_error *err = NULL;
    struct sigaction before[NPASSED], act = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
    sigset_t block, old;
    int port[3] = { free_port(), free_port(), free_port() };
    double began = xl_now();
    member *m = calloc((size_t)g->n, sizeof *m);
    struct pollfd *fd = calloc(3 * (size_t)g->n, sizeof *fd);
    *end = (xl_gang_end){ .first = -1 };
    asked_by = insisted_by = 0;
    memset(r, 0, (size_t)g->n * sizeof *r);
    if (!m || !fd) {
        err = XL_ERR(EXHAUSTED, "no memory for %d ranks", g->n);
        goto none;
    }
    for (int i = 0; i < g->n; i++) {
        m[i].pidfd = m[i].out[0].fd = m[i].out[1].fd = -1;
        for (int k = 0; k < 2; k++)
            if (!(m[i].out[k].line = malloc(LINE + 1)))
                err = XL_ERR(EXHAUSTED, "no memory for %d ranks", g->n);
        if (err)
            goto none;
        r[i].ended = true;                                 /* until it is started */
    }
    fflush(NULL);
    sigemptyset(&block);
    for (size_t i = 0; i < NPASSED; i++)
        sigaddset(&block, passed[i]);
    sigprocmask(SIG_BLOCK, &block, &old);
    count = g->n;
    for (int i = 0; i < g->n && !err; i++) {
        err = start(g, &m[i], i, port, &old, getpid());
        r[i].ended = err != NULL;
    }
    for (size_t i = 0; i < NPASSED; i++)
        sigaction(passed[i], &act, &before[i]);
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (err)
        tell_all(m, g->n, SIGKILL, r);
    follow(g, m, r, fd, end, began);
    end->asked = asked_by;
    end->status = end->killed_by ? end->killed_by : end->first >= 0 ? r[end->first].status : 0;
    count = 0;
    for (size_t i = 0; i < NPASSED; i++)
        sigaction(passed[i], &before[i], NULL);
none:
    for (int i = 0; m && i < g->n; i++) {
        if (m[i].pidfd >= 0)
            close(m[i].pidfd);
        free(m[i].out[0].line);
        free(m[i].out[1].line);
    }
    free(m);
    free(fd);
    return err;
}

void xl_gang_blame(xl_arena *a, xl_run *run, double began, int n, xl_gang_rank *r, xl_gang_end *end)
{
    static const double late = 1; /* an end is noticed after this long at most, on a busy machine */
    xl_node **e = NULL;
    size_t ne = 0;
    int to = -1;
    if (end->first < 0 || !*xl_run_dir(run))
        return;
    xl_error_free(xl_run_events(a, xl_run_dir(run), &e, &ne));
    for (size_t i = 0; i < ne; i++) {
        int64_t rank = xl_node_int(e[i], "rank", -1);
        double t = xl_node_num(e[i], "t", 0) - began;
        if (!xl_node_is(e[i], "event", "program_end") || t <= 0 || rank < 0 || rank >= n || r[rank].raised)
            continue;
        r[rank].raised = t;
        r[rank].words = xl_node_text(e[i], "text");
        r[rank].failed = (int)xl_node_int(e[i], "status", 1);
        if (to < 0)
            to = (int)rank;                                /* events are in time order */
    }
    xl_gang_rank *first = &r[end->first];
    if (to < 0 || to == end->first || r[to].raised > (first->raised ? first->raised : first->after - late))
        return;
    first->first = false;
    r[to].first = true;
    end->first = to;
    if (!end->killed_by)
        end->status = W_EXITCODE(r[to].failed, 0);
}

void xl_tail_keep(xl_tail *t, const char *p, size_t n)
{
    if (!t->p)
        return;
    if (n > XL_TAIL) {
        p += n - XL_TAIL;
        n = XL_TAIL;
    }
    if (t->n + n > XL_TAIL) {
        size_t drop = t->n + n - XL_TAIL;
        memmove(t->p, t->p + drop, t->n - drop);
        t->n -= drop;
    }
    memcpy(t->p + t->n, p, n);
    t->n += n;
}

void xl_gang_tell(xl_arena *a, xl_run *run, const xl_gang *g, const xl_gang_rank *r, const xl_gang_end *end,
                  xl_buf *words)
{
    int first = end->first;
    for (int i = 0; i < g->n; i++) {
        xl_event e;
        xl_event_begin(run, &e, "rank_end");
        xl_json_put_int(&e.j, "of", i);
        xl_json_put_int(&e.j, "status",
                        WIFEXITED(r[i].status) ? WEXITSTATUS(r[i].status) : 128 + WTERMSIG(r[i].status));
        xl_json_put_num(&e.j, "seconds", r[i].after);
        xl_json_put_bool(&e.j, "first_failure", r[i].first);
        xl_json_put_bool(&e.j, "ended_by_launcher", r[i].ours);
        xl_event_end(run, &e);
    }
    if (first < 0)
        return;
    xl_buf_printf(words, "xlane: rank %d of %d failed first: it %.*s after %.1f s", first, g->n,
                  XL_FMT(xl_gang_words(a, r[first].status)), r[first].after);
    if (r[first].raised)
        xl_buf_printf(words, "; its program had ended after %.1f s (%.*s)", r[first].raised, XL_FMT(r[first].words));
    xl_buf_putc(words, '\n');
    fprintf(stderr, "%.*s", XL_FMT(xl_buf_view(words)));
    for (int i = 0; i < g->n; i++)
        if (i != first)
            fprintf(stderr, "xlane: rank %d %s%.*s\n", i,
                    !r[i].ours    ? ""
                    : end->asked  ? "was ended: it "
                                  : xl_strf(a, "was ended by xlane, because rank %d had failed: it ", first).p,
                    XL_FMT(xl_gang_words(a, r[i].status)));
}

bool xl_restart(xl_restarts *r, int64_t most, const xl_failure *f, int64_t at, const char **then)
{
    bool same = r->cause && !strcmp(r->cause, f->cause) && r->at == at;
    *then = f->verdict != XL_RETRY_HERE ? "stopped: a restart could not help"
            : same                      ? "stopped: it failed of the same cause before, and came no further since"
            : r->made >= most           ? "stopped: no restarts are left"
                                        : "all ranks are started again";
    if (f->verdict != XL_RETRY_HERE || same || r->made >= most)
        return false;
    *r = (xl_restarts){ f->cause, at, r->made + 1 };
    return true;
}

void xl_restart_tell(xl_run *run, const xl_restarts *r, const xl_failure *f, int64_t at, const char *then)
{
    xl_event e;
    xl_event_begin(run, &e, "restart");
    xl_json_put_int(&e.j, "restarts", r->made);
    xl_json_put_int(&e.j, "step", at);
    xl_failure_json(&e.j, f);
    xl_json_put_text(&e.j, "then", then);
    xl_event_end(run, &e);
    fprintf(stderr, "xlane: the ranks failed, step %lld was reached: %s (%s, %s); %s\n", (long long)at, f->text,
            f->cause, xl_retry_word(f->verdict), then);
}

xl_str xl_gang_words(xl_arena *a, int status)
{
    if (WIFEXITED(status))
        return xl_strf(a, "exited with %d", WEXITSTATUS(status));
    return xl_strf(a, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
}
