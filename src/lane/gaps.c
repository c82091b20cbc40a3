#include "lane/gaps.h"

#include <sys/statvfs.h>

#include "base/file.h"
#include "lane/kept.h"
#include "lane/metrics.h"
#include "lane/run.h"

/* The name of a JSON file that cannot be read, of those whose names begin so; "": none. */
static const char *unreadable(xl_arena *a, const char *dir, const char *begin)
{
    xl_str *names = NULL;
    size_t n = 0;
    xl_error_free(xl_dir_list(a, dir, &names, &n));
    for (size_t i = 0; i < n; i++) {
        xl_node *node;
        if (!xl_str_starts(names[i], xl_str_of(begin)) || !xl_str_ends(names[i], XL_STR(".json")))
            continue;
        char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        xl_error *err = xl_kept_json(a, path, &node);
        xl_error_free(err);
        if (err)
            return xl_str_c(a, names[i]);
    }
    return "";
}

bool xl_run_full(const char *dir)
{
    struct statvfs s;
    return statvfs(dir, &s) == 0 && s.f_bavail == 0;
}

/* What the events tell, as far as they can be read. */
typedef struct { uint64_t compiles, attached, left, executes; bool unwritten; } told;

static told listen(const xl_run_log *log)
{
    told t = { 0 };
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *e = log->event[i], *written = xl_node_get(e, "counters"), *runs = xl_node_get(e, "executes");
        bool exit = xl_node_is(e, "event", "exit");
        t.compiles += xl_node_is(e, "event", "compile") &&
                      (xl_node_is(e, "result", "compiled") || xl_node_is(e, "result", "cached") ||
                       xl_node_is(e, "result", "loaded"));
        t.attached += xl_node_is(e, "event", "attach");
        t.left += exit;
        t.executes += exit && runs && runs->i > 0 ? (uint64_t)runs->i : 0;
        t.unwritten |= exit && written && !written->b;
    }
    return t;
}

static void say_events(const char *dir, const xl_run_log *log, size_t bad, uint64_t told, uint64_t counted, xl_buf *b)
{
    size_t all = log->n + bad;
    if (!all)
        xl_buf_puts(b, xl_run_full(dir)
                           ? "events.jsonl is empty (No space left on device): make room there and run again"
                           : "events.jsonl is empty: it could not be written, as on a full disk, or was "
                             "not copied; run again");
    else if (bad == all)
        xl_buf_printf(b, "none of the %zu line%s of events.jsonl can be read", all, all == 1 ? "" : "s");
    else if (bad)
        xl_buf_printf(b, "%zu of the %zu lines of events.jsonl cannot be read", bad, all);
    if (bad < all && counted > told)
        xl_buf_printf(b, "%s of %llu of %llu compiles and loads", bad ? ", and it tells" : "events.jsonl tells",
                      (unsigned long long)told, (unsigned long long)counted);
}

xl_run_gaps xl_run_gaps_of(xl_arena *a, const char *dir)
{
    xl_run_gaps g = { 0 };
    xl_run_log log;
    xl_metrics *m = NULL;
    xl_buf b = { 0 };
    size_t processes;
    xl_error *err = xl_run_read(a, dir, &log);
    if (err) {                                             /* whoever asks for its events says so */
        xl_error_free(err);
        return g;
    }
    told t = listen(&log);
    bool going = xl_run_going(a, dir);
    size_t bad = log.unread + (log.cut && !going);         /* else that line is being written */
    xl_error_free(xl_metrics_read(a, dir, &m, &processes));
    const char *unread = unreadable(a, dir, "metrics-"), *times = unreadable(a, dir, "steps-"),
               *about = unreadable(a, dir, "run.json");
    unsigned long long made = m ? xl_metrics_total(m, XL_M_CompileTime) : 0,
                       cached = m ? xl_metrics_total(m, XL_M_CachedCompile) : 0,
                       loaded = m ? xl_metrics_total(m, XL_M_FrontendCacheHit) : 0,
                       runs = m ? xl_metrics_total(m, XL_M_ExecuteTime) : 0,
                       counted = going ? 0 : made + cached + loaded;
    bool lines = bad || (!log.n && !going), fewer = counted > t.compiles;
    g.left = t.attached && t.left >= t.attached;
    g.counters = t.unwritten && t.executes > runs;
    g.executes = g.counters ? t.executes : runs;
    g.processes = processes > t.left ? processes : t.left;
    g.compiles = fewer || (lines && !(m && !*unread && g.left)); /* they were written at the end of each */
    if (lines || fewer)
        say_events(dir, &log, bad, t.compiles, counted, &b);
    if (g.compiles && m && !*unread)
        xl_buf_printf(&b,
                      "; its counters tell of %llu compiled, %llu from the cache, %llu from the frontend's own cache, "
                      "%llu executions: `xlane metrics` has them",
                      made, cached, loaded, runs);
    if (*unread)
        xl_buf_printf(&b, "%s%s cannot be read, so the executions that it counted are missing", b.n ? "; " : "",
                      unread);
    if (*times)
        xl_buf_printf(&b, "%s%s cannot be read, so the times of steps in it are missing", b.n ? "; " : "", times);
    if (*about)
        xl_buf_printf(&b, "%srun.json cannot be read, so what was started, and how it ended, is not known",
                      b.n ? "; " : "");
    if (g.counters)
        xl_buf_printf(&b, "%sthe last counters could not be written: it executed %llu times, and they tell of %llu",
                      b.n ? "; " : "", (unsigned long long)t.executes, runs);
    if (xl_run_end_of(a, dir).unwritten)
        xl_buf_printf(&b, "%srun.json could not be written at its end", b.n ? "; " : "");
    g.text = xl_str_dup(a, xl_buf_view(&b));
    xl_metrics_free(m);
    xl_buf_fini(&b);
    return g;
}
