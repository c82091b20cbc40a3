#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/time.h"

extern char **environ;

typedef struct { char *const *argv, *const *env; xl_proc_fn *fn; void *arg; bool show; } job;

bool xl_proc_write(int fd, const void *p, size_t n)
{
    const char *c = p;
    while (n) {
        ssize_t w = write(fd, c, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        c += w;
        n -= (size_t)w;
    }
    return true;
}

/* In the child. `out` and `err` are its ends of the pipes; `failed` tells the parent why it could not start. */
static void child(const job *j, pid_t parent, int out, int err, int failed)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || (!j->show && dup2(err, 2) < 0) ||
        dup2(j->show ? 2 : j->fn ? err : out, 1) < 0)
        _exit(127);
    if (!j->argv) {
        struct rlimit none_kept = { 0, 0 };
        setrlimit(RLIMIT_CORE,
                  &none_kept); /* that it may die is expected; a core of our size each time is not wanted */
        int status = j->fn(j->arg, out);
        fflush(NULL);
        _exit(status);
    }
    execvpe(j->argv[0], j->argv, j->env ? j->env : environ);
    int e = errno;
    xl_proc_write(failed, &e, sizeof e);
    _exit(127);
}

/* Takes what is there; false when the other end is closed. `tail`: the last `most` bytes are the ones to keep. */
static bool take(int fd, xl_buf *b, size_t most, bool tail, bool *cut)
{
    char piece[1 << 14];
    ssize_t n = read(fd, piece, sizeof piece);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (n == 0)
        return false;
    if (tail) {
        xl_buf_add(b, piece, (size_t)n);
        if (b->n > 4 * most) { /* seldom, so that keeping a tail costs little */
            memmove(b->p, b->p + b->n - most, most);
            b->n = most;
            *cut = true;
        }
    } else {
        size_t room = most - b->n;
        *cut = *cut || (size_t)n > room;
        xl_buf_add(b, piece, (size_t)n < room ? (size_t)n : room);
    }
    return true;
}

static void close_pair(int p[2])
{
    for (int i = 0; i < 2; i++)
        if (p[i] >= 0)
            close(p[i]);
}

static void close_one(int *fd)
{
    close(*fd);
    *fd = -1;
}

/* Has it ended? It is left unreaped, so that its number (and its group's) still is its own. */
static bool ended(pid_t pid)
{
    siginfo_t info = { 0 };
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

static xl_error *run(xl_arena *a, const job *j, int timeout_ms, xl_proc_result *res)
{
    xl_error *err = NULL;
    int out[2] = { -1, -1 }, words[2] = { -1, -1 }, failed[2] = { -1, -1 }, status = 0, why = 0;
    xl_buf ob = { 0 }, wb = { 0 };
    double start = xl_now();
    pid_t pid = -1, parent = getpid();
    *res = (xl_proc_result){ .status = -1, .out = XL_STR(""), .err = XL_STR("") };
    if (pipe2(out, O_CLOEXEC) || pipe2(words, O_CLOEXEC) || pipe2(failed, O_CLOEXEC)) {
        err = XL_ERR(EXHAUSTED, "making pipes for a child: %s", strerror(errno));
        goto out;
    }
    fflush(NULL); /* or the child would print it a second time */
    pid = fork();
    if (pid < 0) {
        err = XL_ERR(EXHAUSTED, "starting a child: %s", strerror(errno));
        goto out;
    }
    if (pid == 0)
        child(j, parent, out[1], words[1], failed[1]);
    setpgid(pid, pid); /* both sides do it, so that it is done whoever runs first */
    close_one(&out[1]);
    close_one(&words[1]);
    close_one(&failed[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(words[0], F_SETFL, O_NONBLOCK);

    bool done = false;
    while (!done) {
        struct pollfd p[2] = { { out[0], POLLIN, 0 }, { words[0], POLLIN, 0 } }; /* a closed one, -1, is passed over */
        double left = timeout_ms > 0 ? timeout_ms / 1e3 - (xl_now() - start) : 1;
        if (left <= 0) {
            res->timed_out = !ended(pid);
            break;
        }
        int slice = out[0] < 0 && words[0] < 0 ? 1 : 20;
        poll(p, 2, left * 1e3 < slice ? (int)(left * 1e3) + 1 : slice);
        done = ended(pid); /* asked before the last look at the pipes, so that nothing is missed */
        do {
            if (out[0] >= 0 && p[0].revents && !take(out[0], &ob, XL_PROC_OUT_MAX, false, &res->out_cut))
                close_one(&out[0]);
            if (words[0] >= 0 && p[1].revents && !take(words[0], &wb, XL_PROC_ERR_MAX, true, &res->err_cut))
                close_one(&words[0]);
            p[0].fd = out[0];
            p[1].fd = words[0];
        } while (done && poll(p, 2, 0) > 0 && ob.n < XL_PROC_OUT_MAX && xl_now() - start < 3600);
    }
    kill(-pid, SIGKILL); /* the child if it is late, and whatever it left behind */
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    res->seconds = xl_now() - start;
    if (j->argv && read(failed[0], &why, sizeof why) == (ssize_t)sizeof why) {
        err = xl_error_new(why == ENOENT ? XL_CODE_NOT_FOUND : XL_CODE_PERMISSION, "starting %s: %s", j->argv[0],
                           strerror(why));
        goto out;
    }
    if (WIFEXITED(status))
        res->status = WEXITSTATUS(status);
    else if (WIFSIGNALED(status))
        res->signal = WTERMSIG(status);
    if (wb.n > XL_PROC_ERR_MAX)
        res->err_cut = true;
    xl_str last = { wb.p + (wb.n > XL_PROC_ERR_MAX ? wb.n - XL_PROC_ERR_MAX : 0),
                    wb.n < XL_PROC_ERR_MAX ? wb.n : XL_PROC_ERR_MAX };
    char *oc = xl_arena_try(a, ob.n + 1), *wc = xl_arena_try(a, last.n + 1);
    if (ob.failed || wb.failed || !oc || !wc) {
        err = XL_ERR(EXHAUSTED, "no memory for what a child said");
        goto out;
    }
    if (ob.n)
        memcpy(oc, ob.p, ob.n);
    if (last.n)
        memcpy(wc, last.p, last.n);
    oc[ob.n] = wc[last.n] = 0;
    res->out = (xl_str){ oc, ob.n };
    res->err = (xl_str){ wc, last.n };
out:
    close_pair(out);
    close_pair(words);
    close_pair(failed);
    xl_buf_fini(&ob);
    xl_buf_fini(&wb);
    return err;
}

xl_error *xl_proc_run(xl_arena *a, char *const argv[], char *const env[], int timeout_ms, xl_proc_result *out)
{
    return run(a, &(job){ .argv = argv, .env = env }, timeout_ms, out);
}

xl_error *xl_proc_show(xl_arena *a, char *const argv[], char *const env[], int timeout_ms, xl_proc_result *out)
{
    return run(a, &(job){ .argv = argv, .env = env, .show = true }, timeout_ms, out);
}

xl_error *xl_proc_call(xl_arena *a, xl_proc_fn *fn, void *arg, int timeout_ms, xl_proc_result *out)
{
    return run(a, &(job){ .fn = fn, .arg = arg }, timeout_ms, out);
}

xl_str xl_proc_words(xl_arena *a, const xl_proc_result *r)
{
    if (r->timed_out)
        return xl_strf(a, "did not end within %.3g s", r->seconds);
    if (r->signal)
        return xl_strf(a, "ended by signal %d (%s)", r->signal, strsignal(r->signal));
    return xl_strf(a, "exited with %d", r->status);
}

bool xl_pid_alive(int64_t pid)
{
    char path[64], text[512];
    if (pid <= 0 || pid > INT32_MAX || (kill((pid_t)pid, 0) && errno != EPERM))
        return false;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    const char *name = strrchr(text, ')');                 /* "PID (NAME) STATE ..." */
    return !(name && name[1] == ' ' && (name[2] == 'Z' || name[2] == 'X'));
}

double xl_pid_started(int64_t pid)
{
    char path[64], text[1024];
    unsigned long long ticks = 0;
    double up = 0;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "re"), *u = fopen("/proc/uptime", "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)         /* the 22nd; the name, which may have spaces, is the 2nd */
        at = strchr(at + 1, ' ');
    bool known = at && sscanf(at, "%llu", &ticks) == 1 && u && fscanf(u, "%lf", &up) == 1;
    if (f)
        fclose(f);
    if (u)
        fclose(u);
    return known ? xl_now_wall() - up + (double)ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}
