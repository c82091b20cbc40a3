#include "lane/steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/proc.h"
#include "base/thread.h"
#include "base/time.h"
#include "lane/contract.h"
#include "lane/kept.h"
#include "lane/run.h"

/* ---- recording --------------------------------------------------------------------------------------------------- */
struct xl_steps {
    xl_mutex lock;
    const char *module;
    uint64_t n, done;                                      /* started; the last one that is done, counted from 1 */
    uint64_t before;                                       /* ran before it was known to be the step: not timed */
    double first, first_done, start, start_before, done_at;
    /* Other programs: when the device was last done with any, how long it ran them since the last step was done, how
     * many are under way, and since when one is. */
    double idle_at, others, other_start;
    uint32_t flying;
    uint64_t untold;                                       /* executions whose end the plugin did not tell */
    uint32_t width;
    xl_step_window window[XL_STEP_WINDOWS];
};

xl_steps *xl_steps_new(void)
{
    xl_steps *s = calloc(1, sizeof *s);
    if (s) {
        xl_mutex_init(&s->lock);
        s->width = 1;
    }
    return s;
}

void xl_steps_of(xl_steps *s, const char *name, uint64_t before)
{
    xl_mutex_lock(&s->lock);
    if (!s->module || strcmp(s->module, name)) {
        s->n = s->done = 0;
        s->before = before;
        s->width = 1;
        s->first = s->first_done = s->start = s->start_before = s->done_at = s->idle_at = s->others = 0;
        s->flying = 0;
        s->untold = 0;
        memset(s->window, 0, sizeof s->window);
    }
    s->module = name;
    xl_mutex_unlock(&s->lock);
}

static void join(xl_step_window *to, const xl_step_window *from)
{
    to->n += from->n;
    to->nbusy += from->nbusy;
    to->time += from->time;
    to->busy += from->busy;
    to->gap += from->gap;
    to->other += from->other;
    to->max = fmax(to->max, from->max);
}

static xl_step_window *window_of(xl_steps *s, uint64_t k)  /* k from 1 */
{
    while ((k - 1) / s->width >= XL_STEP_WINDOWS) {
        for (uint32_t i = 0; i < XL_STEP_WINDOWS / 2; i++) {
            xl_step_window both = s->window[2 * i];
            join(&both, &s->window[2 * i + 1]);
            s->window[i] = both;
        }
        memset(s->window + XL_STEP_WINDOWS / 2, 0, sizeof s->window / 2);
        s->width *= 2;
    }
    return &s->window[(k - 1) / s->width];
}

uint64_t xl_steps_start(xl_steps *s, double now, double *took, double *gap)
{
    xl_mutex_lock(&s->lock);
    *took = *gap = 0;
    if (s->n) {
        xl_step_window *w = window_of(s, s->n);
        *took = fmax(0, now - s->start);
        double end = s->flying ? fmin(now, s->other_start) : now;
        *gap = s->done == s->n ? fmax(0, end - s->done_at - s->others) : 0; /* else the device still works on it */
        w->n++;
        w->time += *took;
        w->gap += *gap;
        w->max = fmax(w->max, *took);
    } else {
        s->first = now;
    }
    s->start_before = s->start;
    s->start = now;
    uint64_t k = ++s->n;
    xl_mutex_unlock(&s->lock);
    return k;
}

double xl_steps_done(xl_steps *s, uint64_t k, double now, bool told)
{
    xl_mutex_lock(&s->lock);
    double busy = 0;
    if (k <= s->n && k > s->done) {
        /* It began when it was started or when what ran before was done. With more than two under way the latter is the
         * later one. */
        double began = fmax(s->idle_at, k == s->n ? s->start : k + 1 == s->n ? s->start_before : 0);
        xl_step_window *w = window_of(s, k);
        busy = began > 0 ? fmax(0, now - began) : 0;
        w->busy += busy;
        w->nbusy++;
        if (k == 1)
            s->first_done = now;
        s->done = k;
        s->done_at = now;
        s->others = 0;
        s->untold += !told;
    }
    s->idle_at = fmax(s->idle_at, now);
    xl_mutex_unlock(&s->lock);
    return busy;
}

bool xl_steps_other(xl_steps *s, double start)
{
    xl_mutex_lock(&s->lock);
    bool counts = s->n > 0;
    if (counts && !s->flying++)
        s->other_start = start;
    xl_mutex_unlock(&s->lock);
    return counts;
}

void xl_steps_other_done(xl_steps *s, double start, double now, bool told)
{
    xl_mutex_lock(&s->lock);
    if (s->n && s->flying) {                               /* else the step is of another module since */
        double took = fmax(0, now - fmax(s->idle_at, start));
        window_of(s, s->n)->other += took;
        s->others += took;
        s->idle_at = fmax(s->idle_at, now);
        s->flying--;
        s->other_start = now;                              /* the next one under way runs from here on */
        s->untold += !told;
    }
    xl_mutex_unlock(&s->lock);
}

void xl_steps_json(xl_steps *s, double began, xl_json *j)
{
    xl_mutex_lock(&s->lock);
    xl_json_map(j);
    xl_json_put_text(j, "module", s->module ? s->module : "");
    xl_json_put_int(j, "steps", (int64_t)s->n);
    xl_json_put_int(j, "before", (int64_t)s->before);
    xl_json_put_num(j, "first", s->n ? s->first - began : 0);
    xl_json_put_num(j, "first_seconds", s->first_done > s->first ? s->first_done - s->first : 0);
    if (s->done)
        xl_json_put_num(j, "idle", fmax(0, xl_now() - s->done_at)); /* since the last step ended */
    xl_json_put_int(j, "untold", (int64_t)s->untold);
    xl_json_put_int(j, "width", s->width);
    /* steps, of those measured on the device, seconds: time, busy, gap, longest, other programs */
    xl_json_key(j, "windows");
    xl_json_list(j);
    for (uint64_t i = 0; s->n && i <= (s->n - 1) / s->width && i < XL_STEP_WINDOWS; i++) {
        const xl_step_window *w = &s->window[i];
        xl_json_list(j);
        xl_json_int(j, w->n);
        xl_json_int(j, w->nbusy);
        xl_json_num(j, w->time);
        xl_json_num(j, w->busy);
        xl_json_num(j, w->gap);
        xl_json_num(j, w->max);
        xl_json_num(j, w->other);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_end(j);
    xl_mutex_unlock(&s->lock);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

/* The middle of what the windows from..to-1 have on average, each counted once for a step of it. q in 0..1. */
typedef enum { TIME, BUSY, GAP, SHARE } figure;
static double quantile(xl_arena *a, const xl_step_times *t, uint32_t from, uint32_t to, figure what, double q)
{
    double *v = xl_new(a, double, t->nwindow + 1);
    size_t n = 0;
    for (uint32_t i = from; i < to && i < t->nwindow; i++) {
        const xl_step_window *w = &t->window[i];
        uint32_t of = what == BUSY ? w->nbusy : w->n;
        if (what == SHARE && w->time > 0)
            v[n++] = fmin(1, (w->busy + w->other) / w->time);
        else if (what != SHARE && of)
            v[n++] = (what == TIME ? w->time : what == BUSY ? w->busy : w->gap) / of;
    }
    if (!n)
        return 0;
    qsort(v, n, sizeof *v, by_value);
    size_t at = (size_t)(q * (double)n);
    if (q == 0.5 && n % 2 == 0)
        return (v[at - 1] + v[at]) / 2;
    return v[at < n ? at : n - 1];
}

/* A lasting change: the place that splits the run's windows into two parts whose times differ most from each other
 * against how they vary within. Told where the medians are a fifth apart and each part is a tenth of the run or more.
 * Outliers are cut down first. */
static void find_drift(xl_arena *a, xl_step_times *t)
{
    uint32_t n = t->nwindow, best = 0;
    double *v = xl_new(a, double, n + 1), sum = 0, square = 0, left = 0, most = 0;
    while (n && !t->window[n - 1].n)
        n--;
    if (n < 20)
        return;
    for (uint32_t i = 0; i < n; i++) {
        v[i] = fmin(t->window[i].n ? t->window[i].time / t->window[i].n : t->median, 3 * t->median);
        sum += v[i];
        square += v[i] * v[i];
    }
    double all = square - sum * sum / n;
    for (uint32_t i = 0; i + 1 < n; i++) {
        left += v[i];
        uint32_t k = i + 1;
        double between = left * left / k + (sum - left) * (sum - left) / (n - k) - sum * sum / n;
        if (k >= n / 10 && n - k >= n / 10 && k > 1 && between > most) {
            most = between;
            best = k;
        }
    }
    double before = quantile(a, t, 0, best, TIME, 0.5), after = quantile(a, t, best, n, TIME, 0.5);
    if (!best || most < 0.3 * all || before <= 0 || after <= 0 || (after < 1.2 * before && before < 1.2 * after))
        return;
    t->drift_step = (uint64_t)best * t->width;
    t->drift[0] = before;
    t->drift[1] = after;
    for (int side = 0; side < 2; side++) {
        t->drift_busy[side] = quantile(a, t, side ? best : 0, side ? n : best, BUSY, 0.5);
        t->drift_gap[side] = quantile(a, t, side ? best : 0, side ? n : best, GAP, 0.5);
    }
}

static int longest_first(const void *x, const void *y) { return by_value(y, x); }

/* Whether the waiting between steps is mostly that of a few windows, each of which waited for several steps' time. */
static bool few_pauses(xl_arena *a, const xl_step_times *t)
{
    static const double mostly = 2.0 / 3;
    enum { OF = 10, LONG = 3 };
    double *wait = xl_new(a, double, t->nwindow + 1), all = 0, few = 0;
    for (uint32_t i = 0; i < t->nwindow; i++) {
        const xl_step_window *w = &t->window[i];
        wait[i] = w->n ? fmax(0, w->time - w->busy - w->other) : 0;
        all += wait[i];
    }
    qsort(wait, t->nwindow, sizeof *wait, longest_first);
    uint32_t most = t->nwindow > OF ? t->nwindow / OF : 1;
    for (uint32_t i = 0; i < most && i < t->nwindow && wait[i] > LONG * t->median; i++)
        few += wait[i];
    return few > mostly * all;
}

/* From the device's share of the time, where the plugin told the end of nearly all executions (untold < 0: that is not
 * known), and there are steps enough for a verdict that one more would not change. */
static void find_bound(xl_arena *a, xl_step_times *t, double untold)
{
    static const double most = 0.8, half = 0.5, short_s = 1e-3;
    enum { ENOUGH = 10 };
    double time = 0, ran = 0;
    for (uint32_t i = 0; i < t->nwindow; i++) {
        time += t->window[i].time;
        ran +=
            t->window[i].n ? t->window[i].busy + t->window[i].other : 0; /* not of the last step, which has no time */
    }
    if (untold < 0 || 10 * untold > (double)t->timed || t->timed <= ENOUGH || time <= 0)
        return;
    t->share = fmin(1, ran / time);
    t->step_share = quantile(a, t, 0, t->nwindow, SHARE, 0.5);
    bool steady = t->step_share >= most; /* then what is waited for lies in a few steps, or is spread */
    t->bound = t->share < most && steady && few_pauses(a, t) ? XL_BOUND_PAUSES
               : t->share <= half                            ? XL_BOUND_HOST
               : t->share < most || !steady                  ? XL_BOUND_BOTH
               : fmax(t->median, t->busy) < short_s          ? XL_BOUND_SHORT
                                                             : XL_BOUND_DEVICE;
}

/* The time until the first step was done, in parts. */
static void first_step(xl_node **e, size_t n, double first, double seconds, xl_step_times *t)
{
    double attach = -1, client = -1, compiles = 0;
    t->first = t->imports = t->client = t->host = t->compile = t->load = t->execute = -1;
    for (size_t i = 0; i < n; i++) {
        if (xl_node_num(e[i], "pid", -1) != t->pid)
            continue;
        if (xl_node_is(e[i], "event", "attach") && attach < 0) {
            attach = xl_node_num(e[i], "t", -1);
            t->rank = (int)xl_node_int(e[i], "rank", 0);
        }
        if (xl_node_is(e[i], "event", "client") && client < 0) {
            client = xl_node_num(e[i], "t", -1);
            t->client = xl_node_num(e[i], "seconds", 0);
        }
    }
    if (attach < 0 || client < 0 || first < client)
        return;
    t->imports = fmax(0, client - t->client);
    t->compile = t->load = 0;
    for (size_t i = 0; i < n; i++)
        if (xl_node_num(e[i], "pid", -1) == t->pid && xl_node_is(e[i], "event", "compile") &&
            xl_node_num(e[i], "t", 0) <= first) {
            bool loaded = xl_node_is(e[i], "result", "cached") || xl_node_is(e[i], "result", "loaded");
            *(loaded ? &t->load : &t->compile) += xl_node_num(e[i], "seconds", 0);
            ++*(loaded ? &t->loaded : &t->compiled);
            compiles += xl_node_num(e[i], "seconds", 0);
        }
    t->execute = seconds;
    t->host = fmax(0, first - client - compiles);
    t->first = first + seconds;
}

static int by_rank(const void *x, const void *y)
{
    const xl_step_times *s = x, *t = y;
    return s->rank != t->rank ? s->rank - t->rank : s->pid - t->pid;
}

xl_error *xl_steps_read(xl_arena *a, const char *dir, xl_step_times **out, size_t *n)
{
    xl_error *err = NULL;
    xl_str *names;
    xl_node **event;
    size_t nname, nevent, cap = 0;
    bool timeline = false;
    *out = NULL;
    *n = 0;
    XL_DO(xl_run_events(a, dir, &event, &nevent));
    XL_DO(xl_dir_list(a, dir, &names, &nname));
    for (size_t i = 0; i < nname; i++) {
        xl_node *root;
        struct stat st;
        timeline |= xl_str_starts(names[i], XL_STR("profile-"));
        if (!xl_str_starts(names[i], XL_STR("steps-")) || !xl_str_ends(names[i], XL_STR(".json")))
            continue;
        char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        xl_error *unread = xl_kept_json(a, path, &root);
        xl_error_free(unread);
        if (unread)
            continue;
        const xl_node *w = xl_node_get(root, "windows"), *module = xl_node_get(root, "module");
        double steps = xl_node_num(root, "steps", 0), before = fmax(0, xl_node_num(root, "before", 0)),
               width = xl_node_num(root, "width", 1);
        if (!w || w->kind != XL_NODE_LIST || !module || steps < 1 || width < 1 || width > 1e9)
            continue;
        xl_step_times t = {
            .pid = atoi(names[i].p + 6), .module = module->s, .steps = (uint64_t)(steps + before),
            .timed = (uint64_t)steps, .width = (uint32_t)width, .idle = xl_node_num(root, "idle", -1)
        };
        if (t.idle >= 0 && stat(path, &st) == 0)
            t.idle += fmax(0, xl_now_wall() - ((double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9));
        t.window = xl_new(a, xl_step_window, w->n + 1);
        for (size_t k = 0; k < w->n && k < XL_STEP_WINDOWS; k++) {
            const xl_node *v = w->kid[k];
            if (v->kind != XL_NODE_LIST || v->n < 6)
                continue;
            t.window[t.nwindow++] = (xl_step_window){
                .n = (uint32_t)v->kid[0]->i, .nbusy = (uint32_t)v->kid[1]->i, .time = v->kid[2]->f,
                .busy = v->kid[3]->f, .gap = v->kid[4]->f, .max = v->kid[5]->f, .other = v->n > 6 ? v->kid[6]->f : 0
            };
            t.max = fmax(t.max, v->kid[5]->f);
        }
        t.median = quantile(a, &t, 0, t.nwindow, TIME, 0.5);
        t.p95 = quantile(a, &t, 0, t.nwindow, TIME, 0.95);
        t.busy = quantile(a, &t, 0, t.nwindow, BUSY, 0.5);
        t.gap = quantile(a, &t, 0, t.nwindow, GAP, 0.5);
        find_bound(a, &t, xl_node_num(root, "untold", -1));
        find_drift(a, &t);
        if (t.drift_step)
            t.drift_step += (uint64_t)before;
        first_step(event, nevent, before > 0 ? -1 : xl_node_num(root, "first", -1),
                   xl_node_num(root, "first_seconds", 0), &t);
        XL_PUSH(a, *out, *n, cap, t);
    }
    for (size_t i = 0; i < *n; i++)
        (*out)[i].timeline = timeline;
    if (*n)
        qsort(*out, *n, sizeof **out, by_rank);
out:
    return err;
}

bool xl_steps_idle(const xl_step_times *t)
{
    static const double least = 10;
    return t->idle > least && t->idle > 10 * t->median && xl_pid_alive(t->pid);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */
static const char *moved(double before, double after)
{
    return after > 1.2 * before ? "grew" : before > 1.2 * after ? "shrank" : "about equal";
}

void xl_steps_drift_say(const xl_step_times *t, xl_buf *b)
{
    unsigned long long at = t->drift_step;
    if (!at)
        return;
    if (t->drift[1] < t->drift[0] && at < t->steps / 4)    /* a start that is slow is no change of the loop's pace */
        xl_buf_printf(b, "the first %llu steps took %.3g ms in the median, those after them %.3g ms", at,
                      t->drift[0] * 1e3, t->drift[1] * 1e3);
    else
        xl_buf_printf(b, "steps %s from %.3g to %.3g ms after step %llu",
                      t->drift[1] > t->drift[0] ? "stretch" : "shorten", t->drift[0] * 1e3, t->drift[1] * 1e3, at);
    xl_buf_printf(b, ": time on the device %s (%.3g -> %.3g ms), wait for the host %s (%.3g -> %.3g ms)\n",
                  moved(t->drift_busy[0], t->drift_busy[1]), t->drift_busy[0] * 1e3, t->drift_busy[1] * 1e3,
                  moved(t->drift_gap[0], t->drift_gap[1]), t->drift_gap[0] * 1e3, t->drift_gap[1] * 1e3);
}

const char *xl_time_words(double s, char out[32])
{
    double ms = s * 1e3;                                   /* one unit: figures are compared with each other */
    snprintf(out, 32, ms >= 1000 ? "%.0f ms" : ms >= 0.001 || ms == 0 ? "%.4g ms" : "%.6f ms", ms);
    return out;
}

xl_str xl_steps_idle_words(xl_arena *a, const xl_step_times *t)
{
    return t->idle < 120 ? xl_strf(a, "%.0f s ago", t->idle) : xl_strf(a, "%.0f min ago", t->idle / 60);
}

void xl_steps_figures_say(double median, double p95, double max, uint64_t n, xl_buf *b)
{
    char ms[3][32];
    xl_buf_printf(b, "median=%s; ", xl_time_words(median, ms[0]));
    if (n / 20 > 1)
        xl_buf_printf(b, "95%%=%s; ", xl_time_words(p95, ms[1]));
    xl_buf_printf(b, "max=%s", xl_time_words(max, ms[2]));
}

/* A sentence on the verdict, and what to do next. */
static const struct { const char *word, *words, *next;
} bounds[] = {
    [XL_BOUND_UNKNOWN] = { 0 },
    [XL_BOUND_DEVICE] = { "device", "the device", "make the step's program faster; the host keeps up" },
    [XL_BOUND_SHORT] = { "short", "not told apart, as calls may fill a step under 1 ms",
                         "a larger batch, or several steps in one program (jax.lax.scan)" },
    [XL_BOUND_PAUSES] = { "pauses", "the host, in a few long pauses",
                          "look at what the host does there: a compile, evaluation, a checkpoint, input, other "
                          "programs" },
    [XL_BOUND_HOST] = { "host", "the host", "look at its work between executions: Python, input, reads" },
    [XL_BOUND_BOTH] = { "both", "both", "look at the host's work between executions: Python, input, reads" },
};

static void bound_say(const xl_step_times *t, xl_buf *b)
{
    if (!bounds[t->bound].word)
        return;
    long ran = lround(100 * t->share);
    xl_buf_printf(b,
                  "  Device or host: %s\n"
                  "    from the first step to the last programs ran for %ld%% of the time, calls included, and the "
                  "device waited\n"
                  "    for the host for %ld%%; in the median step they ran for %ld%%\n"
                  "    next: %s; %s\n",
                  bounds[t->bound].words, ran, 100 - ran, lround(100 * t->step_share), bounds[t->bound].next,
                  t->timeline ? "`xlane profile-steps` writes the timeline that this run recorded"
                              : "XLANE_PROFILE_STEPS=A:B records a timeline");
}

static void first_say(const xl_step_times *t, xl_buf *b)
{
    const struct { const char *what; double seconds; } part[] = {
        { "start and imports", t->imports }, { "client", t->client },
        { "tracing, lowering and the rest of the host's work", t->host },
        { "compiling", t->compile }, { "loading", t->load }, { "first execution", t->execute },
    };
    char ms[32];
    xl_buf_printf(b, "  FirstStep: done after %s, with %d program%s compiled and %d loaded before it\n   ",
                  xl_time_words(t->first, ms), t->compiled, t->compiled == 1 ? "" : "s", t->loaded);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        xl_buf_printf(b, "%s %s %s",
                      !i       ? ""
                      : i == 3 ? ";\n   "
                               : ";",
                      part[i].what, xl_time_words(part[i].seconds, ms));
    xl_buf_putc(b, '\n');
}

void xl_steps_say(const xl_step_times *t, bool several, xl_buf *b)
{
    char ms[2][32];
    xl_buf_puts(b, "Steps");
    if (several)
        xl_buf_printf(b, " of rank %d (process %d)", t->rank, t->pid);
    xl_buf_printf(b, ": %llu of %.*s", (unsigned long long)t->steps, XL_FMT(t->module));
    if (t->timed < t->steps)                               /* another function took more time until then */
        xl_buf_printf(b, ", the last %llu of them timed", (unsigned long long)t->timed);
    xl_buf_putc(b, '\n');
    if (t->timed > 1) {
        xl_buf_puts(b, "  StepTime: ");
        xl_steps_figures_say(t->median, t->p95, t->max, t->timed - 1, b);
        xl_buf_printf(b, "%s\n  of it on the device: median=%s; waiting for the host: median=%s\n",
                      t->width > 1 ? " (quantiles of windows of several steps)" : "", xl_time_words(t->busy, ms[0]),
                      xl_time_words(t->gap, ms[1]));
        bound_say(t, b);
    }
    if (t->timed > 1 && t->nwindow >= 20) {
        xl_buf_puts(b, "  Drift: ");
        if (t->drift_step)
            xl_steps_drift_say(t, b);
        else
            xl_buf_puts(b, "none\n");
    }
    if (t->first >= 0)
        first_say(t, b);
}

void xl_steps_put(const xl_step_times *t, xl_json *j)
{
    xl_json_map(j);
    xl_json_put_int(j, "pid", t->pid);
    xl_json_put_int(j, "rank", t->rank);
    xl_json_put_str(j, "module", t->module);
    xl_json_put_int(j, "steps", (int64_t)t->steps);
    xl_json_put_int(j, "timed", (int64_t)t->timed);
    xl_json_put_num(j, "median", t->median);
    xl_json_put_num(j, "p95", t->p95);
    xl_json_put_num(j, "max", t->max);
    xl_json_put_num(j, "device", t->busy);
    xl_json_put_num(j, "host_gap", t->gap);
    if (t->bound != XL_BOUND_UNKNOWN) {
        xl_json_put_text(j, "bound", bounds[t->bound].word);
        xl_json_put_num(j, "device_share", t->share);
        xl_json_put_num(j, "device_share_of_median_step", t->step_share);
    }
    if (t->drift_step) {
        xl_json_key(j, "drift");
        xl_json_map(j);
        xl_json_put_int(j, "step", (int64_t)t->drift_step);
        xl_json_put_num(j, "before", t->drift[0]);
        xl_json_put_num(j, "after", t->drift[1]);
        xl_json_put_text(j, "device", moved(t->drift_busy[0], t->drift_busy[1]));
        xl_json_put_text(j, "host_gap", moved(t->drift_gap[0], t->drift_gap[1]));
        xl_json_end(j);
    }
    if (t->first >= 0) {
        xl_json_key(j, "first_step");
        xl_json_map(j);
        xl_json_put_num(j, "seconds", t->first);
        xl_json_put_num(j, "imports", t->imports);
        xl_json_put_num(j, "client", t->client);
        xl_json_put_num(j, "trace_and_lower", t->host);
        xl_json_put_num(j, "compile", t->compile);
        xl_json_put_num(j, "load", t->load);
        xl_json_put_num(j, "first_execute", t->execute);
        xl_json_end(j);
    }
    xl_json_end(j);
}
