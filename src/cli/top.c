/* xlane top: a run while it goes on, in a terminal, from its folder alone: plain escape codes, no server. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "base/proc.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/unrecorded.h"
#include "lane/failed_rank.h"
#include "lane/memory_csv.h"
#include "lane/run.h"
#include "lane/steps.h"
#include "lane/trained.h"
#include "lane/verdict.h"

static struct { bool once; double every; } opt = { .every = 1 };
static const xl_opt opts[] = {
    { "once", XL_OPT_FLAG, &opt.once, NULL,
      "print one frame and exit; the default if standard output is not a terminal" },
    { 0 },
};

/* ---- what there is to see ---------------------------------------------------------------------------------------- */
typedef struct {
    int rank, pid;
    const xl_step_times *times;                            /* NULL: no steps yet */
    const xl_node *last, *compile;                         /* the last one, and that of no eager op, if there is one */
    bool own;                                              /* there is */
    int compiled, loaded;
} process;

typedef struct { xl_str rank, device; int64_t use, peak, limit; } memory;

typedef struct {
    xl_str name;
    xl_run_verdict v;
    process *p;
    size_t np;
    memory *mem;
    size_t nmem;
    bool ended, unguarded;
    xl_str failed;                                         /* what is known of how; empty: nothing */
    xl_run_end end;
    double seconds;
    xl_str mark;
    xl_trained train;                                      /* of a training run: metrics.csv */
} view;

static bool loads(const xl_node *e) { return xl_node_is(e, "result", "cached") || xl_node_is(e, "result", "loaded"); }

static process *process_of(xl_arena *a, view *v, size_t *cap, int pid, int rank)
{
    for (size_t i = 0; i < v->np; i++)
        if (v->p[i].pid == pid)
            return &v->p[i];
    XL_PUSH(a, v->p, v->np, *cap, ((process){ .rank = rank, .pid = pid }));
    return &v->p[v->np - 1];
}

static int by_rank(const void *x, const void *y)
{
    const process *p = x, *q = y;
    return p->rank != q->rank ? p->rank - q->rank : p->pid - q->pid;
}

static int by_device(const void *x, const void *y)
{
    const memory *m = x, *n = y;
    int64_t mine[2] = { 0 }, other[2] = { 0 };
    const xl_str of[] = { m->rank, m->device, n->rank, n->device };
    for (int i = 0; i < 4; i++)
        xl_str_i64(of[i], i < 2 ? &mine[i] : &other[i - 2]);
    int which = mine[0] == other[0];
    return mine[which] < other[which] ? -1 : mine[which] > other[which];
}

static void read_memory(xl_arena *a, const char *dir, view *v)
{
    size_t cap = 0;
    xl_memory_csv c = xl_memory_csv_open(a, dir);
    for (xl_memory_row r; xl_memory_csv_next(&c, &r);) {
        memory *m = NULL;
        for (size_t i = 0; i < v->nmem && !m; i++)
            if (xl_str_eq(v->mem[i].rank, r.rank) && xl_str_eq(v->mem[i].device, r.device))
                m = &v->mem[i];
        if (!m) {
            XL_PUSH(a, v->mem, v->nmem, cap, ((memory){ .rank = r.rank, .device = r.device }));
            m = &v->mem[v->nmem - 1];
        }
        m->use = r.in_use;
        m->peak = r.peak < r.in_use ? r.in_use : r.peak;
        m->limit = r.limit;
    }
    if (v->nmem)
        qsort(v->mem, v->nmem, sizeof *v->mem, by_device);
}

static xl_error *look(xl_arena *a, const char *dir, view *v)
{
    xl_error *err = NULL;
    xl_step_times *times;
    size_t ntimes, cap = 0;
    *v = (view){ .name = xl_str_dup(a, xl_path_base(xl_str_of(dir))) };
    XL_DO(xl_run_judge(a, dir, &v->v));
    XL_DO(xl_steps_read(a, dir, &times, &ntimes));
    for (size_t i = 0; i < v->v.nevent; i++) {
        const xl_node *e = v->v.event[i];
        if (xl_node_num(e, "pid", 0) <= 0 || !(xl_node_is(e, "event", "attach") || xl_node_is(e, "event", "client") ||
                                               xl_node_is(e, "event", "compile")))
            continue;
        process *p = process_of(a, v, &cap, (int)xl_node_num(e, "pid", 0), (int)xl_node_num(e, "rank", 0));
        p->rank = (int)xl_node_num(e, "rank", 0);
        if (xl_node_is(e, "event", "compile")) {
            p->compiled += xl_node_is(e, "result", "compiled");
            p->loaded += loads(e);
            p->last = e;
            bool own = v->v.of[i] && (v->v.of[i]->step || !v->v.of[i]->helper);
            p->compile = own || !p->own ? e : p->compile;
            p->own |= own;
        }
        v->seconds = fmax(v->seconds, xl_node_num(e, "t", 0));
    }
    for (size_t i = 0; i < ntimes; i++)
        process_of(a, v, &cap, times[i].pid, 0)->times = &times[i];
    if (v->np)
        qsort(v->p, v->np, sizeof *v->p, by_rank);
    read_memory(a, dir, v);
    v->train = xl_trained_read(a, dir);
    v->mark = xl_run_mark(a, dir);
    v->failed = xl_failed_words(a, v->v.event, v->v.nevent);
    v->unguarded = xl_run_about(a, dir).unguarded;
    v->end = xl_run_end_of(a, dir);
    v->ended = v->end.known || !xl_run_going(a, dir);
    if (v->end.known)
        v->seconds = v->end.seconds;
out:
    return err;
}

/* ---- a frame ---- */
static bool utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v && *v)
            return strstr(v, "UTF-8") || strstr(v, "utf8") || strstr(v, "UTF8") || strstr(v, "utf-8");
    }
    return false;
}

static void spark(xl_buf *b, const double *v, size_t n, size_t width)
{
    static const char *const fine[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }, *const plain[] = {
        "_", ".", "-", "~", "=", "+", "*", "#"
    };
    const char *const *bar = utf8() ? fine : plain;
    size_t from = n > width ? n - width : 0;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = from; i < n; i++) {
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    for (size_t i = from; i < n; i++)
        xl_buf_puts(b, bar[high > low ? (int)(7 * (v[i] - low) / (high - low) + 0.5) : 0]);
}

static void put_ms(xl_buf *b, double s)
{
    if (s >= 1)
        xl_buf_printf(b, "%.2f s", s);
    else
        xl_buf_printf(b, "%.3g ms", s * 1e3);
}

static void put_process(xl_arena *a, xl_buf *b, const view *v, const process *p)
{
    const xl_step_times *t = p->times;
    xl_buf_printf(b, "rank %d  pid %d  ", p->rank, p->pid);
    if (t) {
        double *d = xl_new(a, double, t->nwindow + 1), gap = 0;
        size_t n = 0;
        for (uint32_t i = 0; i < t->nwindow; i++)
            if (t->window[i].n) {
                d[n++] = t->window[i].time / t->window[i].n;
                gap = t->window[i].gap / t->window[i].n;
            }
        xl_buf_printf(b, "step %llu  ", (unsigned long long)t->steps);
        if (n) { /* the newest steps while it runs, afterwards all, as `xlane metrics` has them */
            put_ms(b, v->ended ? t->median : d[n - 1]);
            xl_buf_puts(b, v->ended ? " a step (median)  " : " a step  ");
            spark(b, d, n, 24);
            xl_buf_puts(b, "  waiting for the host ");
            put_ms(b, v->ended ? t->gap : gap);
        }
        if (!v->ended && xl_steps_idle(t))
            xl_buf_printf(b, "\n  its last step ended %.*s; `py-spy dump --pid %d` shows where a Python program is",
                          XL_FMT(xl_steps_idle_words(a, t)), p->pid);
    } else if (v->train.steps) {
        const xl_trained *r = &v->train;
        xl_buf_printf(b, "step %.0f  loss %.4f  ", r->step, r->loss);
        if (r->ntook) {
            put_ms(b, v->ended ? r->median : r->took[r->ntook - 1]);
            xl_buf_puts(b, v->ended ? " a step (median)  " : " a step  ");
            spark(b, r->took, r->ntook, 24);
        }
    } else {
        xl_buf_puts(b, v->ended ? "no steps recorded" : "no step yet");
    }
    xl_buf_printf(b, "\n  programs: %d compiled, %d loaded from a cache", p->compiled, p->loaded);
    if (p->compile) {
        const xl_node *e = p->compile, *detail = xl_node_get(e, "detail");
        xl_str text = detail && detail->n ? xl_node_text(detail->kid[0], "text") : XL_STR("");
        xl_str word = xl_event_again(e) ? xl_node_text(e, "reason") : XL_STR(""); /* as explain lists it */
        xl_buf_printf(b, "; last %s%s: %.*s at %.1f s", loads(e) ? "load" : "compile",
                      p->last == e ? "" : " (eager ops aside)", XL_FMT(xl_node_text(e, "module")),
                      xl_node_num(e, "t", 0));
        if (word.n && !xl_str_starts(text, word)) /* "constant 0.1 -> 0.2" has it */
            xl_buf_printf(b, ", %.*s", XL_FMT(word));
        if (text.n)
            xl_buf_printf(b, ": %.*s", XL_FMT(text));
    }
    xl_buf_putc(b, '\n');
}

static const process *ours(const view *v, const xl_node *e)
{
    for (size_t i = 0; i < v->np; i++)
        if (v->p[i].pid == xl_node_int(e, "pid", 0))
            return &v->p[i];
    return NULL;
}

/* several: there are several ranks, so say whose it is, where it is not the launcher's. */
static void put_event(xl_buf *b, const view *v, const xl_node *e, bool several)
{
    static const struct { const char *event, *words;
    } say[] = {
        { "launch", "launched" },
        { "command", "program started" },
        { "start", "started" },
        { "attach", "plugin loaded" },
        { "client", "runtime started" },
        { "first_buffer", "first tensor" },
        { "first_step", "first step done" },
        { "program_end", "program failed" },
        { "unguarded", "not guarded" },
        { "execute", "failed when it ran:" },
        { "sync", "the host reads each step of" },
        { "late-flag", "flag set too late" },
        { "late-spmd", "SPMD switched on too late" },
        { "attempt", "attempt started" },
        { "retry", "attempt failed" },
        { "restart", "ranks started again" },
        { "capture", "captured" },
        { "client_end", "runtime ended" },
        { "exit", "process ended" },
        { "rank_end", "rank ended" },
        { "end", "run ended" },
        { "ahead", "executables loaded ahead of their first use" },
        { "fault", "xlane could not do something, and the program went on" },
        { "eval", "evaluated" },
        { "checkpoint", "checkpoint saved" },
        { "stop", "stopped" },
    };
    xl_str text = xl_node_text(e, "text"), what = xl_node_text(e, "event"), module = xl_node_text(e, "module"),
           reason = xl_node_text(e, "reason");
    xl_buf_printf(b, "  %8.1f s  ", xl_node_num(e, "t", 0));
    const process *whose = ours(v, e);
    int64_t rank = xl_node_int(e, "of", whose ? whose->rank : -1);
    if (several && rank >= 0)
        xl_buf_printf(b, "rank %lld  ", (long long)rank);
    if (xl_str_is(what, "compile")) {
        xl_str result = xl_node_text(e, "result");
        xl_buf_printf(b, "%.*s ", XL_FMT(module));
        if (loads(e))
            xl_buf_puts(b, "loaded from a cache");
        else
            xl_buf_str(b, result);
        if (xl_node_is(e, "cache_reason", "unreadable") || xl_node_is(e, "cache_reason", "evicted"))
            xl_buf_puts(b, ", which the cache had lost");
        else if (reason.n && !xl_str_is(reason, "first"))
            xl_buf_printf(b, " again: %.*s", XL_FMT(reason));
    } else {
        for (size_t i = 0; i < sizeof say / sizeof *say; i++)
            what = xl_str_is(what, say[i].event) ? xl_str_of(say[i].words) : what;
        xl_buf_str(b, what);
        if (module.n)
            xl_buf_printf(b, " %.*s", XL_FMT(module));
    }
    if (!text.n && xl_node_is(e, "event", "fault"))
        xl_buf_printf(b, ": %.*s: %.*s", XL_FMT(xl_node_text(e, "what")), XL_FMT(xl_node_text(e, "error")));
    if (text.n)
        xl_buf_printf(b, ": %.*s", XL_FMT(text));
    xl_buf_putc(b, '\n');
}

static void put_end(const view *v, xl_buf *b)
{
    const xl_run_end *end = &v->end;
    if (end->has_status)
        xl_buf_printf(b, "ended after %.1f s with status %lld%s%.*s", v->seconds, (long long)end->status,
                      end->why.n ? ", " : "", XL_FMT(end->why));
    else
        xl_buf_printf(b, "ended%s%.*s", end->why.n ? ": " : "", XL_FMT(end->why));
    if (end->signal)
        xl_buf_printf(b, ", by signal %lld (%s)", (long long)end->signal, strsignal((int)end->signal));
    xl_buf_putc(b, '\n');
    if (v->failed.n)
        xl_buf_printf(b, "%.*s\n", XL_FMT(v->failed));
}

/* The whole frame; `rows` bounds the events that are shown. */
static void put_frame(xl_arena *a, const view *v, size_t rows, xl_buf *b)
{
    xl_buf_printf(b, "xlane top  %.*s  ", XL_FMT(v->name));
    if (v->end.known)
        put_end(v, b);
    else if (v->ended)
        xl_buf_puts(b, "its processes are gone\n");
    else
        xl_buf_puts(b, "running\n");
    xl_buf_str(b, v->mark);
    if (!v->np && !v->v.gaps)
        xl_buf_puts(b, v->unguarded ? XL_GUARD_OFF "\n"
                       : v->ended   ? "no process of it was guarded\n"
                                    : "waiting for a process to attach to a plugin\n");
    size_t used = 3;
    bool several = false;
    for (size_t i = 0; i < v->np; i++, used += 2) {
        several |= v->p[i].rank > 0;
        put_process(a, b, v, &v->p[i]);
    }
    for (size_t i = 0; i < v->nmem; i++, used++) {
        const memory *m = &v->mem[i];
        char size[3][32];
        xl_buf_printf(b, "memory of rank %.*s device %.*s: %s in use, peak %s", XL_FMT(m->rank), XL_FMT(m->device),
                      xl_size_words((double)m->use, size[0]), xl_size_words((double)m->peak, size[1]));
        if (m->limit > 0)
            xl_buf_printf(b, " (%.1f%% of the device's %s)", 100.0 * (double)m->peak / (double)m->limit,
                          xl_size_words((double)m->limit, size[2]));
        xl_buf_putc(b, '\n');
    }
    size_t room = rows > used + 1 ? rows - used - 1 : 3, n = v->v.nevent, from = n > room ? n - room : 0;
    xl_buf_puts(b, n ? "newest events\n" : "");
    for (size_t i = from; i < n; i++)
        put_event(b, v, v->v.event[i], several);
}

static void put_json(const view *v, xl_buf *b)
{
    xl_json j = { .out = b, .pretty = true };
    xl_json_map(&j);
    xl_json_put_str(&j, "run", v->name);
    xl_json_put_bool(&j, "running", !v->ended);
    if (v->end.has_status)
        xl_json_put_int(&j, "status", v->end.status);
    if (v->end.why.n)
        xl_json_put_str(&j, "end", v->end.why);
    xl_json_key(&j, "processes");
    xl_json_list(&j);
    for (size_t i = 0; i < v->np; i++) {
        const process *p = &v->p[i];
        xl_json_map(&j);
        xl_json_put_int(&j, "rank", p->rank);
        xl_json_put_int(&j, "pid", p->pid);
        xl_json_put_int(&j, "compiled", p->compiled);
        xl_json_put_int(&j, "loaded", p->loaded);
        if (p->times) {
            xl_json_key(&j, "steps");
            xl_steps_put(p->times, &j);
            if (!v->ended && p->times->idle >= 0)
                xl_json_put_num(&j, "seconds_since_last_step", p->times->idle);
        }
        if (p->compile) {
            xl_json_key(&j, "last_compile");
            xl_json_node(&j, p->compile);
        }
        xl_json_end(&j);
    }
    xl_json_end(&j);
    if (v->train.steps) {
        xl_json_put_num(&j, "step", v->train.step);
        xl_json_put_num(&j, "loss", v->train.loss);
        if (v->train.ntook)
            xl_json_put_num(&j, "median", v->train.median);
    }
    xl_json_key(&j, "memory");
    xl_json_list(&j);
    for (size_t i = 0; i < v->nmem; i++) {
        xl_json_map(&j);
        xl_json_put_str(&j, "rank", v->mem[i].rank);
        xl_json_put_str(&j, "device", v->mem[i].device);
        xl_json_put_int(&j, "bytes_in_use", v->mem[i].use);
        xl_json_put_int(&j, "peak_bytes_in_use", v->mem[i].peak);
        if (v->mem[i].limit > 0)
            xl_json_put_int(&j, "bytes_limit", v->mem[i].limit);
        xl_json_end(&j);
    }
    xl_json_end(&j);
    xl_json_end(&j);
}

/* ---- the terminal ---- */
static struct termios before;
static volatile sig_atomic_t leave, resized;
static void on_leave(int sig) { (void)sig; leave = 1; }
static void on_resize(int sig) { (void)sig; resized = 1; }

static void size_of_terminal(size_t *rows, size_t *columns)
{
    struct winsize w = { 0 };
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row;
    *rows = known ? w.ws_row : 24;
    *columns = known ? w.ws_col : 80;
}

/* Cuts each line to the width, in characters, and erases what was right of it. */
static void fit(xl_str frame, size_t rows, size_t columns, xl_buf *out)
{
    for (size_t row = 0; frame.n && row < rows; row++) {
        xl_str line = xl_str_cut(&frame, '\n');
        size_t n = 0, at = 0;
        for (; at < line.n; at++) {
            n += ((unsigned char)line.p[at] & 0xC0) != 0x80;
            if (n > columns)
                break;
        }
        xl_buf_puts(out, row ? "\r\n" : "");
        for (size_t i = 0; i < at; i++)
            xl_buf_putc(out, (unsigned char)line.p[i] < 32 || line.p[i] == 127 ? ' ' : line.p[i]);
        xl_buf_puts(out, n < columns ? "\033[K" : "");
    }
    xl_buf_puts(out, "\033[J");
}

static void put_raw(xl_str s)
{
    while (s.n) {
        ssize_t n = write(STDOUT_FILENO, s.p, s.n);
        if (n < 0 && errno != EINTR)
            return;
        s.p += n > 0 ? n : 0;
        s.n -= n > 0 ? (size_t)n : 0;
    }
}

/* Draws until the run ends or the user does. */
static xl_error *follow(const char *dir)
{
    xl_error *err = NULL;
    bool tty = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0, gone = false;
    struct sigaction act = { .sa_handler = on_leave };
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    act.sa_handler = on_resize;
    sigaction(SIGWINCH, &act, NULL);
    if (tty) {
        struct termios raw = before;
        raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    put_raw(XL_STR("\033[?1049h\033[?25l"));
    for (;;) {
        xl_arena a = { 0 };
        xl_buf frame = { 0 }, out = { 0 };
        view v;
        size_t rows, columns;
        char key;
        err = look(&a, dir, &v);
        if (!err) {
            size_of_terminal(&rows, &columns);
            put_frame(&a, &v, rows, &frame);
            xl_buf_puts(&frame, "q ends this view, not the run\n");
            xl_buf_puts(&out, "\033[H");
            fit(xl_buf_view(&frame), rows, columns, &out);
            put_raw(xl_buf_view(&out));
        }
        bool end = err || v.end.known || (v.ended && gone);
        gone = !err && v.ended; /* run.json may be written a moment after the last process went */
        xl_buf_fini(&frame);
        xl_buf_fini(&out);
        xl_arena_fini(&a);
        if (end || leave)
            break;
        struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
        int n = poll(&in, tty ? 1 : 0, (int)(opt.every * 1000));
        if (n > 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
            break;
        resized = 0;
    }
    put_raw(XL_STR("\033[?25h\033[?1049l"));
    if (tty)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return err;
}

static xl_error *top(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    view v;
    char *dir;
    XL_DO(xl_run_find(cli->arena, argc ? argv[0] : "last", &dir));
    if (!opt.once && !cli->json && isatty(STDOUT_FILENO)) {
        XL_DO(follow(dir));
        XL_DO(look(cli->arena, dir, &v));
        if (v.end.known) {
            xl_buf_printf(&b, "%.*s ", XL_FMT(v.name));
            put_end(&v, &b);
        } else
            xl_buf_printf(&b, "%.*s %s\n", XL_FMT(v.name),
                          v.ended ? "ended without a word: its processes are gone" : "goes on");
    } else {
        XL_DO(look(cli->arena, dir, &v));
        if (cli->json) {
            put_json(&v, &b);
            err = xl_cli_put(&b);
            goto out;
        }
        put_frame(cli->arena, &v, 30, &b);
    }
    if (v.ended && v.v.recorded) {
        xl_verdict_say(cli->arena, &v.v, false, &b);
        xl_triage_say(&v.v, &b);
    } else if (v.ended && !v.train.steps && !v.v.gaps) {
        xl_buf_printf(&b, "compiles were not recorded: %.*s\n", XL_FMT(xl_why_unrecorded(cli->arena, dir)));
    }
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

XL_VERB(top) = {
    .name = "top",
    .args = "[--once] [RUN]",
    .help = "watch a run in the terminal: steps, compiles, cache, memory, events",
    .more =
        "Reads the run's folder once a second, also over ssh; it changes nothing. It ends with the run and prints "
        "the verdict of\n"
        "`xlane explain`; press q to leave earlier. The figures come from files that are written about every two "
        "seconds.",
    .example = "xlane top\nxlane top last --once",
    .opts = opts,
    .min = 0,
    .max = 1,
    .run = top,
};
