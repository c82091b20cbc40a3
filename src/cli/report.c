/* xlane report: one HTML file of one run, or of several side by side. Everything in it comes from the run folders. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/home.h"
#include "base/time.h"
#include "base/version.h"
#include "base/word.h"
#include "cli/chart.h"
#include "cli/cli.h"
#include "cli/report_placement.h"
#include "lane/memory_csv.h"
#include "lane/metrics.h"
#include "lane/receipt.h"
#include "lane/run.h"
#include "lane/steps.h"
#include "lane/upgrade.h"
#include "lane/verdict.h"

static struct { const char *out; bool follow; } opt = { 0 };
static const xl_opt opts[] = {
    { "out", XL_OPT_STR, &opt.out, "FILE",
      "where to write it (report.html in the run's folder; here if there are several runs)" },
    { "o", XL_OPT_STR, &opt.out, "FILE", "the same as --out" },
    { "follow", XL_OPT_FLAG, &opt.follow, NULL,
      "write it again every few seconds until the runs have ended; the page reloads itself" },
    { 0 },
};

typedef struct { xl_str rank, device; double *t, *use; size_t n, cap, captime; int64_t peak, limit, peak_step; } device;
typedef struct {
    char *dir;
    const char *name;
    xl_str mark;
    xl_node *run, *ladder, *receipt, **event;
    const char *receipt_trouble;
    size_t nevent;
    xl_run_verdict v;
    xl_str state;                                          /* how it ended, in words */
    const char *executed;                                  /* how often, in words */
    double *step, *loss, *took, *eval_step, *eval_loss; /* of metrics.csv and the evaluations */
    size_t nstep, neval;
    double compile_s, load_s, execute_s, total_s;
    int64_t executes;
    xl_metrics *metrics;
    xl_step_times *times;                                  /* of guarded processes */
    size_t ntimes;
    device *dev;
    size_t ndev, capdev;
} story;

static xl_node *json_file(xl_arena *a, const char *dir, const char *name)
{
    xl_str text;
    xl_node *n = NULL;
    char *path = xl_path_join(a, dir, name);
    if (!xl_file_stat(path, NULL))
        return NULL;
    xl_error *err = xl_file_read_max(a, path, 64 << 20, &text);
    if (!err)
        err = xl_json_read(a, path, text, &n);
    if (err)
        fprintf(stderr, "xlane: left out: %s\n", xl_error_message(err));
    xl_error_free(err);
    return err ? NULL : n;
}

/* ---- gathering ---- */
static int column(xl_str head, const char *name)
{
    for (int i = 0; head.n; i++)
        if (xl_str_is(xl_str_trim(xl_str_cut(&head, ',')), name))
            return i;
    return -1;
}

static void read_steps(xl_arena *a, story *s)
{
    xl_str text;
    char *path = xl_path_join(a, s->dir, "metrics.csv");
    if (!xl_file_stat(path, NULL))
        return;
    xl_error *err = xl_file_read_max(a, path, 256 << 20, &text);
    if (err) {
        xl_error_free(err);
        return;
    }
    xl_str head = xl_str_cut(&text, '\n');
    int loss = column(head, "loss"), wall = column(head, "seconds");
    size_t rows = 0;
    for (size_t i = 0; i < text.n; i++)
        rows += text.p[i] == '\n';
    s->step = xl_new(a, double, rows + 1);
    s->loss = xl_new(a, double, rows + 1);
    s->took = xl_new(a, double, rows + 1);
    double before = NAN;
    while (text.n && s->nstep <= rows) {
        xl_str line = xl_str_cut(&text, '\n'), cell;
        double v, at = NAN;
        if (!line.n)
            continue;
        size_t k = s->nstep;
        s->loss[k] = s->took[k] = NAN;
        for (int i = 0; line.n; i++) {
            cell = xl_str_cut(&line, ',');
            if (!xl_str_f64(cell, &v))
                continue;
            if (i == 0)
                s->step[k] = v;
            if (i == loss)
                s->loss[k] = v;
            if (i == wall)
                at = v;
        }
        s->took[k] = at - before >= 0 ? at - before : NAN;  /* a resumed run starts its clock again */
        before = at;
        s->nstep++;
    }
}

static void read_memory(xl_arena *a, story *s)
{
    xl_memory_csv c = xl_memory_csv_open(a, s->dir);
    for (xl_memory_row r; xl_memory_csv_next(&c, &r);) {
        device *d = NULL;
        for (size_t i = 0; i < s->ndev && !d; i++)
            if (xl_str_eq(s->dev[i].rank, r.rank) && xl_str_eq(s->dev[i].device, r.device))
                d = &s->dev[i];
        if (!d) {
            XL_PUSH(a, s->dev, s->ndev, s->capdev,
                    ((device){ .rank = r.rank, .device = r.device, .peak = -1, .limit = -1 }));
            d = &s->dev[s->ndev - 1];
        }
        size_t n = d->n;
        XL_PUSH(a, d->t, n, d->captime, r.t);
        XL_PUSH(a, d->use, d->n, d->cap, (double)r.in_use / (1 << 20));
        int64_t peak = r.peak < r.in_use ? r.in_use : r.peak;
        if (peak > d->peak) {
            d->peak = peak;
            d->peak_step = r.step;
        }
        d->limit = r.limit > 0 ? r.limit : d->limit;
    }
}

static xl_error *gather(xl_arena *a, const char *word, story *s)
{
    xl_error *err = NULL;
    size_t processes, cap = 0, cap2 = 0;
    XL_DO(xl_run_find(a, word, &s->dir));
    XL_DO(xl_run_judge(a, s->dir, &s->v));
    s->event = s->v.event;
    s->nevent = s->v.nevent;
    s->state = xl_run_state(a, s->dir, NULL);
    s->name = xl_str_c(a, xl_path_base(xl_str_of(s->dir)));
    s->mark = xl_run_mark(a, s->dir);
    s->run = json_file(a, s->dir, "run.json");
    s->ladder = json_file(a, s->dir, "ladder.json");
    if (xl_file_stat(xl_receipt_newest(a, s->dir), NULL)) {
        xl_error *bad = xl_receipt_read(a, s->dir, &s->receipt);
        if (bad)
            s->receipt_trouble = xl_str_c(a, xl_str_of(xl_error_message(bad)));
        xl_error_free(bad);
    }
    read_steps(a, s);
    read_memory(a, s);
    XL_DO(xl_steps_read(a, s->dir, &s->times, &s->ntimes));
    for (size_t i = 0; i < s->nevent; i++) {
        const xl_node *e = s->event[i];
        xl_str what = xl_node_text(e, "event"), result = xl_node_text(e, "result");
        double seconds = xl_node_num(e, "seconds", 0), t = xl_node_num(e, "t", 0);
        s->total_s = fmax(s->total_s, t);
        if (xl_str_is(what, "eval") && xl_node_get(e, "nll")) {
            size_t n = s->neval;
            XL_PUSH(a, s->eval_step, n, cap, xl_node_num(e, "step", 0));
            XL_PUSH(a, s->eval_loss, s->neval, cap2, xl_node_num(e, "nll", NAN));
        }
        if (!xl_str_is(what, "compile"))
            continue;
        *(xl_str_is(result, "cached") || xl_str_is(result, "loaded") ? &s->load_s : &s->compile_s) += seconds;
    }
    s->total_s = fmax(s->total_s, xl_node_num(s->run, "seconds", 0));
    xl_error_free(xl_metrics_read(a, s->dir, &s->metrics, &processes));
    if (s->metrics && xl_metrics_total(s->metrics, XL_M_ExecuteTime)) {
        s->executes = (int64_t)xl_metrics_total(s->metrics, XL_M_ExecuteTime);
        s->execute_s = xl_metrics_seconds(s->metrics, XL_M_ExecuteTime);
    } else {
        s->executes = (int64_t)s->nstep;
        for (size_t i = 0; i < s->nstep; i++)
            s->execute_s += isfinite(s->took[i]) ? s->took[i] : 0;
    }
    bool least = s->metrics && xl_verdict_open(&s->v);
    s->executed = least && !s->executes
                      ? "not counted"
                      : xl_strf(a, "%s%lld", least ? "at least " : "", (long long)s->executes).p;
    if (s->execute_s > s->total_s - s->compile_s -
                           s->load_s) /* steps are clocked from one to the next: what stood between is in them */
        s->execute_s = fmax(0, s->total_s - s->compile_s - s->load_s);
out:
    return err;
}

/* The middle of the step times, which a compile or a save between two steps does not move. */
static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}
static double median_step(xl_arena *a, const story *s)
{
    double *v = xl_new(a, double, s->nstep + 1);
    size_t n = 0;
    for (size_t i = 0; i < s->nstep; i++)
        if (isfinite(s->took[i]))
            v[n++] = s->took[i];
    if (!n)
        return s->ntimes && s->times->steps > 1 ? s->times->median : NAN;
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* ---- writing ---- */
static const char style[] =
    ":root{--bg:#fff;--fg:#1c2128;--quiet:#667085;--line:#d8dee6;--card:#f6f8fa;--bad:#b42318;--good:#18794e;--k0:#"
    "2563eb;--k1:#d97706;--k2:#059669;--k3:#9333ea}"
    "@media(prefers-color-scheme:dark){:root{--bg:#0f1419;--fg:#e6e9ee;--quiet:#98a2b3;--line:#2d3640;--card:#171d24;--"
    "bad:#f97066;--good:#47cd89;"
    "--k0:#6ea8fe;--k1:#fbbf24;--k2:#34d399;--k3:#c084fc}}"
    "*{box-sizing:border-box}body{margin:0 "
    "auto;max-width:980px;padding:1rem;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}"
    "h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .4rem;border-bottom:1px solid "
    "var(--line);padding-bottom:.2rem}"
    "h3{font-size:1rem;margin:1rem 0 "
    ".2rem}.quiet{color:var(--quiet)}.bad{color:var(--bad);font-weight:600}.good{color:var(--good);font-weight:600}"
    "figure{margin:.6rem 0;background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;padding:.6rem}figcaption{font-weight:600;font-size:.9rem}"
    "svg{width:100%;height:auto;display:block}svg.bar{height:36px}.grid{stroke:var(--line)}.tick{fill:var(--quiet);"
    "font-size:12px}"
    ".line{fill:none;stroke-width:2}.line.k0{stroke:var(--k0)}.line.k1{stroke:var(--k1)}.line.k2{stroke:var(--k2)}."
    "line.k3{stroke:var(--k3)}"
    ".part.k0,.dot.k0{fill:var(--k0)}.part.k1,.dot.k1{fill:var(--k1)}.part.k2,.dot.k2{fill:var(--k2)}.part.k3,.dot.k3{"
    "fill:var(--k3)}"
    ".key{white-space:nowrap;font-weight:400;font-size:.85rem;margin-right:.6rem}.key::before{content:'';display:"
    "inline-block;width:.8em;height:.8em;border-radius:2px;"
    "margin-right:.3em;vertical-align:-1px;background:var(--k0)}.key.k1::before{background:var(--k1)}.key.k2::before{"
    "background:var(--k2)}"
    ".key.k3::before{background:var(--k3)}.legend{margin:.3rem 0 "
    "0}.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}"
    "th,td{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid "
    "var(--line);vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:"
    "nowrap}.names td.n{white-space:normal}"
    "pre{white-space:pre-wrap;font-size:.85rem}code{font-size:.85em;overflow-wrap:anywhere}.tiles{display:grid;grid-"
    "template-columns:repeat(auto-fit,minmax(130px,1fr));gap:.5rem;margin:.6rem 0}"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.5rem .7rem}.tile "
    "b{display:block;font-size:1.15rem}"
    "@media(max-width:600px){.tick{font-size:22px}}"
    "@media "
    "print{:root{--bg:#fff;--fg:#000;--card:#fff;--line:#bbb}body{max-width:none;font-size:11px}figure,table,.tiles{"
    "break-inside:avoid}h2{break-after:avoid}}";

static void put(xl_buf *b, xl_str s) { xl_html_text(b, s); }

static void tile(xl_buf *b, const char *name, const char *value)
{
    xl_buf_printf(b, "<div class=\"tile\"><span class=\"quiet\">%s</span><b>", name);
    put(b, xl_str_of(value));
    xl_buf_puts(b, "</b></div>");
}

static void tiles(xl_arena *a, xl_buf *b, const story *s)
{
    char w[32];
    double median = median_step(a, s);
    xl_buf_puts(b, "<div class=\"tiles\">");
    if (s->nstep) {
        tile(b, "steps", xl_strf(a, "%.0f", s->step[s->nstep - 1]).p);
        tile(b, "last loss", xl_strf(a, "%.4f", s->loss[s->nstep - 1]).p);
    }
    if (!s->nstep && s->ntimes)
        tile(b, "steps", xl_strf(a, "%llu", (unsigned long long)s->times->steps).p);
    if (s->neval)
        tile(b, "validation", xl_strf(a, "%.4f", s->eval_loss[s->neval - 1]).p);
    if (isfinite(median))
        tile(b, "step time", xl_html_seconds(w, median));
    if (s->ntimes && s->times->first >= 0)
        tile(b, "until the first step", xl_html_seconds(w, s->times->first));
    tile(b, "compiled", xl_strf(a, "%d", s->v.compiled).p);
    tile(b, "from caches", xl_strf(a, "%d", s->v.cached + s->v.loaded).p);
    tile(b, "executions", s->executed);
    tile(b, "whole run", xl_html_seconds(w, s->total_s));
    tile(b, "end", xl_str_c(a, s->state));
    xl_buf_puts(b, "</div>\n");
}

static void about(xl_buf *b, const story *s)
{
    static const char *const keys[] = { "kind",  "device", "plugin", "pattern", "parameters", "data",  "started",
                                        "began", "ended",  "status", "profile", "policy",     "cache", "folder" };
    xl_buf_puts(b, "<div class=\"wide\"><table>");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        xl_str v = xl_node_text(s->run, keys[i]);
        if (!v.n)
            continue;
        xl_buf_printf(b, "<tr><th>%s</th><td>", keys[i]);
        put(b, v);
        xl_buf_puts(b, "</td></tr>");
    }
    const xl_node *cmd = xl_node_get(s->run, "command");
    if (cmd && cmd->n) {
        xl_buf_puts(b, "<tr><th>command</th><td><code>");
        for (size_t i = 0; i < cmd->n; i++) {
            xl_buf_puts(b, i ? " " : "");
            put(b, cmd->kid[i]->s);
        }
        xl_buf_puts(b, "</code></td></tr>");
    }
    xl_buf_puts(b, "<tr><th>recorded in</th><td><code>");
    put(b, xl_str_of(s->dir));
    xl_buf_puts(b, "</code></td></tr></table></div>\n");
}

static void curves(xl_arena *a, xl_buf *b, const story *s)
{
    xl_buf_puts(b, "<h2>Loss and step time</h2>\n");
    if (!s->nstep) {
        xl_buf_printf(
            b,
            "<p class=\"quiet\">The loss is not recorded: `xlane run` sees compiles, executions and transfers, "
            "not what a program prints. Executions: %s%s.</p>\n",
            s->executed, s->metrics ? "; the table below has the times of each module" : "");
        return;
    }
    double *ms = xl_new(a, double, s->nstep);
    for (size_t i = 0; i < s->nstep; i++)
        ms[i] = s->took[i] * 1e3;
    xl_series loss[2] = { { s->step, s->loss, s->nstep, "training" },
                          { s->eval_step, s->eval_loss, s->neval, "validation" } };
    xl_series took = { s->step, ms, s->nstep, "step" };
    xl_chart_lines(b, "Loss", "step", "nats", loss, s->neval ? 2 : 1, false);
    xl_chart_lines(b, "Time from one step to the next", "step", "ms", &took, 1, true);
}

static void times(xl_buf *b, const story *s)
{
    double host = s->total_s - s->compile_s - s->load_s - s->execute_s;
    const xl_part part[] = { { "execute", s->execute_s },
                             { "compile", s->compile_s },
                             { "cache", s->load_s },
                             { "host and the rest", host > 0 ? host : 0 } };
    xl_buf_puts(b, "<h2>Where the time went</h2>\n");
    xl_chart_bar(b, s->metrics ? "Seconds of the run: in calls into the plugin, and the rest" : "Seconds of the run",
                 part, 4);
    if (!s->metrics)
        return;
    xl_buf_puts(b, "<div class=\"wide\"><table><tr><th>module</th><th class=\"n\">compiles</th><th "
                   "class=\"n\">compile</th><th class=\"n\">executions</th>"
                   "<th class=\"n\">execute</th></tr>");
    char w[32];
    const xl_module_metrics *m;
    for (uint32_t i = 0; i < 40 && (m = xl_metrics_at(s->metrics, i)); i++) {
        xl_buf_puts(b, "<tr><td><code>");
        put(b, xl_str_of(xl_module_metrics_name(m)));
        xl_buf_printf(b, "</code></td><td class=\"n\">%llu</td><td class=\"n\">%s</td>",
                      (unsigned long long)xl_module_metrics_count(m, XL_M_CompileTime),
                      xl_html_seconds(w, xl_module_metrics_seconds(m, XL_M_CompileTime)));
        xl_buf_printf(b, "<td class=\"n\">%llu</td><td class=\"n\">%s</td></tr>",
                      (unsigned long long)xl_module_metrics_count(m, XL_M_ExecuteTime),
                      xl_html_seconds(w, xl_module_metrics_seconds(m, XL_M_ExecuteTime)));
    }
    xl_buf_puts(b, "</table></div>\n");
}

/* ---- several ranks: a lane of each ---- */
enum { RANKS_DRAWN = 64, LANE = 24, LEFT = 90, WIDE = 960 };
typedef struct {
    int64_t rank, compiles, cached, step;
    double from, to;
    const xl_node *end;
} rank_lane;

/* Of the launcher itself, not of a rank. */
static bool of_launcher(xl_str event)
{
    static const char *const names[] = { "launch", "command", "attempt", "retry", "restart", "rank_end" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (xl_str_is(event, names[i]))
            return true;
    return false;
}

static rank_lane *lanes_of(xl_arena *a, const story *s, size_t *n)
{
    rank_lane *all = NULL;
    size_t cap = 0;
    *n = 0;
    for (size_t i = 0; i < s->nevent; i++) {
        const xl_node *e = s->event[i];
        xl_str what = xl_node_text(e, "event");
        bool end = xl_str_is(what, "rank_end");
        int64_t rank = (int64_t)xl_node_num(e, end ? "of" : "rank", 0), step = (int64_t)xl_node_num(e, "step", 0);
        double t = xl_node_num(e, "t", 0);
        rank_lane *l = NULL;
        if (of_launcher(what) && !end)
            continue;
        for (size_t k = 0; k < *n && !l; k++)
            l = all[k].rank == rank ? &all[k] : NULL;
        if (!l) {
            XL_PUSH(a, all, *n, cap, ((rank_lane){ .rank = rank, .from = t, .to = t }));
            l = &all[*n - 1];
        }
        l->to = t > l->to ? t : l->to;
        l->step = step > l->step ? step : l->step;
        l->end = end ? e : l->end;
        l->compiles += xl_str_is(what, "compile") && xl_node_is(e, "result", "compiled");
        l->cached += xl_str_is(what, "compile") && xl_node_is(e, "result", "cached");
    }
    return all;
}

static int by_rank(const void *x, const void *y)
{
    const rank_lane *a = x, *b = y;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static void ranks(xl_arena *a, xl_buf *b, const story *s)
{
    size_t n, drawn;
    char w[32];
    rank_lane *l = lanes_of(a, s, &n);
    double last = 0;
    if (n < 2)
        return;
    qsort(l, n, sizeof *l, by_rank);
    for (size_t i = 0; i < n; i++)
        last = l[i].to > last ? l[i].to : last;
    double unit = (WIDE - LEFT) / (last > 0 ? last : 1);
    drawn = n < RANKS_DRAWN ? n : RANKS_DRAWN;
    xl_buf_printf(b,
                  "<h2>Ranks</h2>\n<figure><figcaption>%zu ranks over %s: alive, compiling, checkpoints</figcaption>"
                  "<svg viewBox=\"0 0 %d %zu\" role=\"img\">",
                  n, xl_html_seconds(w, last), WIDE, drawn * LANE + 4);
    for (size_t i = 0; i < drawn; i++) {
        double y = (double)(i * LANE) + 4;
        xl_buf_printf(b,
                      "<text class=\"tick\" x=\"0\" y=\"%.0f\">rank %lld</text><rect class=\"part k0\" "
                      "x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"12\" opacity=\"0.35\"/>",
                      y + 11, (long long)l[i].rank, LEFT + l[i].from * unit, y, (l[i].to - l[i].from) * unit + 1);
        for (size_t k = 0; k < s->nevent; k++) {
            const xl_node *e = s->event[k];
            bool compile = xl_node_is(e, "event", "compile");
            double t = xl_node_num(e, "t", 0), took = compile ? xl_node_num(e, "seconds", 0) : 0;
            if ((int64_t)xl_node_num(e, "rank", 0) != l[i].rank || !(compile || xl_node_is(e, "event", "checkpoint")))
                continue;
            xl_buf_printf(b, "<rect class=\"part %s\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"12\"/>",
                          compile ? "k1" : "k2", LEFT + (t > took ? t - took : 0) * unit, y,
                          compile ? took * unit + 1 : 2);
        }
    }
    xl_buf_puts(b, "</svg><p class=\"legend\"><span class=\"key k0\">alive</span><span class=\"key k1\">compile"
                   "</span><span class=\"key k2\">checkpoint</span></p></figure>\n<div class=\"wide\"><table><tr>"
                   "<th>rank</th><th class=\"n\">step</th><th class=\"n\">compiled</th><th class=\"n\">from the cache"
                   "</th><th class=\"n\">from</th><th class=\"n\">to</th><th>ended</th></tr>");
    for (size_t i = 0; i < drawn; i++) {
        xl_buf_printf(b, "<tr><td>%lld</td><td class=\"n\">%lld</td><td class=\"n\">%lld</td><td class=\"n\">%lld</td>",
                      (long long)l[i].rank, (long long)l[i].step, (long long)l[i].compiles, (long long)l[i].cached);
        xl_buf_printf(b, "<td class=\"n\">%s</td>", xl_html_seconds(w, l[i].from));
        xl_buf_printf(b, "<td class=\"n\">%s</td><td>", xl_html_seconds(w, l[i].to));
        if (!l[i].end)
            xl_buf_puts(b, "<span class=\"quiet\">not recorded</span>");
        else
            xl_buf_printf(b, "<span class=\"%s\">status %.0f%s</span>",
                          xl_node_num(l[i].end, "status", 0) > 0 ? "bad" : "good", xl_node_num(l[i].end, "status", 0),
                          xl_node_get(l[i].end, "first_failure") && xl_node_get(l[i].end, "first_failure")->b
                              ? ", the first to fail"
                          : xl_node_get(l[i].end, "ended_by_launcher") && xl_node_get(l[i].end, "ended_by_launcher")->b
                              ? ", ended by the launcher"
                              : "");
        xl_buf_puts(b, "</td></tr>");
    }
    xl_buf_puts(b, "</table></div>\n");
    if (drawn < n)
        xl_buf_printf(b, "<p class=\"quiet\">and %zu ranks more</p>\n", n - drawn);
}

/* Step times of guarded processes: a curve, and the words of `xlane metrics`. */
static void step_times(xl_arena *a, xl_buf *b, const story *s)
{
    for (size_t i = 0; i < s->ntimes; i++) {
        const xl_step_times *t = &s->times[i];
        double *x = xl_new(a, double, t->nwindow + 1), *whole = xl_new(a, double, t->nwindow + 1),
               *device = xl_new(a, double, t->nwindow + 1);
        size_t n = 0;
        for (uint32_t k = 0; k < t->nwindow; k++)
            if (t->window[k].n) {
                x[n] = (double)(k * (uint64_t)t->width + 1);
                whole[n] = 1e3 * t->window[k].time / t->window[k].n;
                device[n++] = t->window[k].nbusy ? 1e3 * t->window[k].busy / t->window[k].nbusy : NAN;
            }
        if (!i)
            xl_buf_puts(b, "<h2>Steps</h2>\n");
        xl_series line[2] = { { x, whole, n, "step" }, { x, device, n, "on the device" } };
        if (n > 1)
            xl_chart_lines(b, "Step time", "step", "ms", line, 2, true);
        xl_buf words = { 0 };
        xl_steps_say(t, s->ntimes > 1, &words);
        xl_buf_puts(b, "<pre>");
        put(b, xl_buf_view(&words));
        xl_buf_puts(b, "</pre>\n");
        xl_buf_fini(&words);
    }
}

static void compiles(xl_arena *a, xl_buf *b, const story *s)
{
    char w[32];
    size_t shown = 0, all = 0;
    xl_buf_puts(b, "<h2>Compiles and their causes</h2>\n");
    const xl_run_verdict *v = &s->v;
    xl_buf_printf(b,
                  "<p>%d compiled, %d from the cache, %d from the frontend's own cache, %d failed to compile. A step's "
                  "program changed %d time%s in the warm-up window and <span class=\"%s\">%d after it</span>",
                  v->compiled, v->cached, v->loaded, v->failed, v->early, v->early == 1 ? "" : "s",
                  v->late ? "bad" : "good", v->late);
    if (v->traced)
        xl_buf_printf(b, "; the same program was traced again %d time%s", v->traced, v->traced == 1 ? "" : "s");
    xl_buf_puts(b, ".</p>\n<p>");
    xl_buf words = { 0 };
    xl_verdict_say(a, v, true, &words);
    for (xl_str all_words = xl_str_trim(xl_buf_view(&words)); all_words.n;) {
        put(b, xl_str_cut(&all_words, '\n'));
        xl_buf_puts(b, all_words.n ? "<br>\n" : "");
    }
    xl_buf_fini(&words);
    xl_buf_puts(b, "</p>\n");
    xl_buf_puts(b, "<div class=\"wide\"><table><tr><th class=\"n\">at</th><th>module</th><th>result</th><th "
                   "class=\"n\">took</th><th>cause</th><th>what</th></tr>");
    for (size_t i = 0; i < s->nevent; i++) {
        const xl_node *e = s->event[i], *detail = xl_node_get(e, "detail");
        xl_str reason = xl_node_text(e, "reason");
        if (!xl_node_is(e, "event", "compile"))
            continue;
        all++;
        if (shown == 60)
            continue;
        shown++;
        xl_buf_printf(b, "<tr><td class=\"n\">%s</td><td><code>", xl_html_seconds(w, xl_node_num(e, "t", 0)));
        put(b, xl_node_text(e, "module"));
        xl_buf_puts(b, "</code></td><td>");
        put(b, xl_node_text(e, "result"));
        xl_buf_printf(b, "</td><td class=\"n\">%s</td><td>", xl_html_seconds(w, xl_node_num(e, "seconds", 0)));
        put(b, reason);
        xl_buf_puts(b, "</td><td>");
        for (size_t k = 0; detail && k < detail->n && k < 4; k++) {
            xl_str text = xl_node_text(detail->kid[k], "text"), where = xl_node_text(detail->kid[k], "where");
            xl_buf_puts(b, k ? "<br>" : "");
            put(b, text.n ? text : xl_node_text(detail->kid[k], "what"));
            if (where.n && !memmem(text.p, text.n, where.p, where.n)) {
                xl_buf_puts(b, " <code>");
                put(b, where);
                xl_buf_puts(b, "</code>");
            }
        }
        put(b, xl_node_text(e, "error"));
        xl_buf_puts(b, "</td></tr>");
    }
    xl_buf_puts(b, "</table></div>\n");
    if (all > shown)
        xl_buf_printf(b, "<p class=\"quiet\">and %zu more: `xlane explain --all %s` lists all</p>\n", all - shown,
                      xl_word_of(a, s->name));
    if (!all)
        xl_buf_puts(b, "<p class=\"quiet\">Nothing was compiled in this run's own processes.</p>\n");
}

static void memory(xl_arena *a, xl_buf *b, const story *s)
{
    char w[32];
    xl_buf_puts(b, "<h2>Memory of the physical devices</h2>\n");
    if (!s->ndev) {
        xl_buf_puts(b, "<p class=\"quiet\">No figures: the device gave none, or no step was watched.</p>\n");
        return;
    }
    xl_series line[4];
    size_t n = s->ndev < 4 ? s->ndev : 4;
    for (size_t i = 0; i < n; i++)
        line[i] =
            (xl_series){ s->dev[i].t, s->dev[i].use, s->dev[i].n,
                         xl_strf(a, "rank %.*s device %.*s", XL_FMT(s->dev[i].rank), XL_FMT(s->dev[i].device)).p };
    xl_chart_lines(b, "In use between steps", "seconds", "MiB", line, n, true);
    xl_buf_puts(b, "<div class=\"wide\"><table><tr><th>rank</th><th>device</th><th class=\"n\">peak</th><th "
                   "class=\"n\">at step</th><th class=\"n\">limit</th></tr>");
    for (size_t i = 0; i < s->ndev; i++) {
        xl_buf_printf(b, "<tr><td>%.*s</td><td>%.*s</td><td class=\"n\">%s</td>", XL_FMT(s->dev[i].rank),
                      XL_FMT(s->dev[i].device), xl_html_bytes(w, (double)s->dev[i].peak));
        xl_buf_printf(b, "<td class=\"n\">%lld</td><td class=\"n\">%s</td></tr>", (long long)s->dev[i].peak_step,
                      s->dev[i].limit > 0 ? xl_html_bytes(w, (double)s->dev[i].limit) : "not said");
    }
    xl_buf_puts(b, "</table></div>\n");
}

/* A miss, by its reason in the event. */
static const char *missed(xl_str reason)
{
    static const struct { const char *reason, *words; } row[] = {
        { "first", "never stored before" },
        { "evicted", "dropped earlier to keep the cache's size" },
        { "unreadable", "the entry could not be used" },
        { "rank", "another rank had none" },
        { "program", "stored for another program of this name" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (xl_str_is(reason, row[i].reason))
            return row[i].words;
    return "stored, but for another value of ";
}

static void cache(xl_arena *a, xl_buf *b, const story *s)
{
    int cached = s->v.cached, asked = s->v.compiled + cached;
    bool off = xl_home_off(xl_str_c(a, xl_node_text(s->run, "cache")));
    size_t n = 0, nreason = 0;
    struct { xl_str word; int64_t n; } reason[16];
    xl_buf_puts(b, "<h2>Executable cache</h2>\n");
    if (off)
        xl_buf_puts(b, "<p>The run had no cache.</p>\n");
    else
        xl_buf_printf(b, "<p>%d of %d programs came from the cache%s.</p>\n", cached, asked,
                      asked && cached == asked ? ": nothing had to be compiled" : "");
    for (size_t i = 0; i < s->nevent; i++) {
        xl_str why = xl_node_text(s->event[i], "cache_reason");
        if (!xl_node_is(s->event[i], "event", "compile") || !why.n || xl_node_is(s->event[i], "result", "cached"))
            continue;
        for (n = 0; n < nreason && !xl_str_eq(reason[n].word, why); n++)
            ;
        if (n == nreason && nreason < 16) {
            reason[nreason].word = why;
            reason[nreason++].n = 0;
        }
        if (n < 16)
            reason[n].n++;
    }
    for (n = 0; n < nreason; n++) {
        const char *words = missed(reason[n].word);
        xl_buf_printf(b, "%s%lld (%s", n ? ", " : "<p>Not in it: ", (long long)reason[n].n, words);
        if (words[strlen(words) - 1] == ' ')
            put(b, reason[n].word);
        xl_buf_putc(b, ')');
    }
    xl_buf_puts(b, nreason ? ".</p>\n" : "");
}

static void ladder(xl_buf *b, const xl_node *l)
{
    xl_buf_puts(b, "<h2>Ladder</h2>\n");
    if (!l) {
        xl_buf_puts(b, "<p class=\"quiet\">No ladder beside this run: `xlane ladder` climbs one.</p>\n");
        return;
    }
    bool ok = !xl_node_text(l, "failing").n;
    xl_buf_printf(b, "<p><span class=\"%s\">", ok ? "good" : "bad");
    put(b, xl_node_text(l, "verdict"));
    xl_buf_puts(b, "</span> on ");
    put(b, xl_node_text(l, "device"));
    xl_buf_puts(b, ", in <code>");
    put(b, xl_node_text(l, "folder"));
    xl_buf_puts(b, "</code>");
    if (!ok) {
        xl_buf_puts(b, ": rung ");
        put(b, xl_node_text(l, "failing"));
        xl_buf_puts(b, ", blamed on the ");
        put(b, xl_node_text(l, "layer"));
        xl_buf_puts(b, " layer. ");
        put(b, xl_node_text(l, "why"));
    }
    xl_buf_puts(b, "</p><div class=\"wide\"><table><tr><th>rung</th><th>verdict</th><th class=\"n\">cold: "
                   "compiled</th><th class=\"n\">executed</th>"
                   "<th class=\"n\">restored: compiled</th><th class=\"n\">executed</th><th>adds</th></tr>");
    const xl_node *r = xl_node_get(l, "rungs");
    for (size_t i = 0; r && i < r->n; i++) {
        const xl_node *k = r->kid[i], *phase[2] = { xl_node_get(k, "cold"), xl_node_get(k, "restored") };
        xl_buf_puts(b, "<tr><td>");
        put(b, xl_node_text(k, "rung"));
        xl_buf_printf(b, "</td><td class=\"%s\">",
                      xl_node_is(k, "verdict", "failed")   ? "bad"
                      : xl_node_is(k, "verdict", "passed") ? "good"
                                                           : "quiet");
        put(b, xl_node_text(k, "verdict"));
        xl_buf_puts(b, "</td>");
        for (int p = 0; p < 2; p++) {
            xl_buf_puts(b, "<td class=\"n\">");
            put(b, xl_node_text(phase[p], "compiles"));
            xl_buf_puts(b, "</td><td class=\"n\">");
            put(b, xl_node_text(phase[p], "executes"));
            xl_buf_puts(b, "</td>");
        }
        xl_buf_puts(b, "<td>");
        put(b, xl_node_text(k, "about"));
        xl_buf_puts(b, "</td></tr>");
    }
    xl_buf_puts(b, "</table></div>\n");
}

/* Upgrades that were rehearsed with this run's programs; nothing where none was. */
static void upgrades(xl_arena *a, xl_buf *b, const story *s)
{
    xl_node **u;
    size_t n;
    xl_error *err = xl_upgrade_load(a, s->dir, &u, &n);
    if (err)
        fprintf(stderr, "xlane: left out: %s\n", xl_error_message(err));
    if (err || !n) {
        xl_error_free(err);
        return;
    }
    xl_buf_puts(b, "<h2>Rehearsed upgrades</h2>\n");
    for (size_t i = 0; i < n; i++) {
        const xl_node *moved = xl_node_get(u[i], "moved");
        double bad = xl_node_num(u[i], "regressions", 0);
        xl_buf_puts(b, "<p>");
        put(b, xl_node_text(xl_node_get(u[i], "from"), "label"));
        xl_buf_puts(b, " to ");
        put(b, xl_node_text(xl_node_get(u[i], "to"), "label"));
        xl_buf_puts(b, ", for ");
        put(b, xl_node_text(u[i], "topology").n ? xl_node_text(u[i], "topology") : XL_STR("the devices here"));
        xl_buf_printf(b, ": <span class=\"%s\">%.0f regression%s</span>%s</p>\n", bad > 0 ? "bad" : "good", bad,
                      bad == 1 ? "" : "s", moved && moved->n ? "" : "; nothing moved");
        if (!moved || !moved->n)
            continue;
        xl_buf_puts(b, "<div class=\"wide\"><table><tr><th></th><th>program</th><th>what moved</th>"
                       "<th>from and to</th></tr>");
        for (size_t k = 0; k < moved->n && k < 20; k++) {
            bool regression = xl_node_is(moved->kid[k], "regression", "true");
            xl_buf_printf(b, "<tr><td class=\"%s\">%s</td><td>", regression ? "bad" : "quiet",
                          regression                                   ? "regression"
                          : xl_node_is(moved->kid[k], "worse", "true") ? "more"
                                                                       : "less");
            put(b, xl_node_text(moved->kid[k], "program"));
            xl_buf_puts(b, "</td><td>");
            put(b, xl_node_text(moved->kid[k], "what"));
            xl_buf_puts(b, "</td><td>");
            put(b, xl_node_text(moved->kid[k], "text"));
            xl_buf_puts(b, "</td></tr>");
        }
        xl_buf_puts(b, "</table></div>\n");
    }
}

static void receipt(xl_arena *a, xl_buf *b, const story *s)
{
    xl_buf_puts(b, "<h2>Receipt</h2>\n");
    if (s->receipt_trouble) {
        xl_buf_puts(b, "<p class=\"bad\">");
        put(b, xl_str_of(s->receipt_trouble));
        xl_buf_puts(b, "</p>\n");
    }
    if (!s->receipt) {
        if (!s->receipt_trouble)
            xl_buf_puts(b, "<p class=\"quiet\">This run has none.</p>\n");
        return;
    }
    const xl_node *facts = xl_node_get(s->receipt, "facts"), *rungs = xl_node_get(s->receipt, "rungs");
    xl_buf_puts(b, "<p>");
    put(b, xl_receipt_words(a, s->receipt));
    if (xl_node_text(rungs, "first_passing").n) {
        xl_buf_puts(b, "; rungs: first passing ");
        put(b, xl_node_text(rungs, "first_passing"));
        xl_buf_puts(b, ", next failing ");
        put(b, xl_node_text(rungs, "next_failing").n ? xl_node_text(rungs, "next_failing") : XL_STR("none"));
    }
    xl_buf_puts(
        b, "</p><div class=\"wide\"><table><tr><th>fact</th><th>value</th><th>holds</th><th>check again</th></tr>");
    for (size_t i = 0; facts && i < facts->n; i++) {
        static const char *const col[] = { "fact", "value", "holds", "when" };
        char w[32];
        int64_t bytes;
        bool size = xl_node_is(facts->kid[i], "fact", "peak_memory");
        xl_buf_puts(b, "<tr>");
        for (int k = 0; k < 4; k++) {
            xl_buf_puts(b, k == 1 ? "<td><code>" : "<td>");
            xl_str text = xl_node_text(facts->kid[i], col[k]);
            put(b, k == 1 && size && xl_str_i64(text, &bytes)   ? xl_str_of(xl_html_bytes(w, (double)bytes))
                   : k == 2 && xl_str_is(text, "durable")         ? XL_STR("for good")
                   : k == 2                                       ? XL_STR("until something changes")
                                                                  : text);
            xl_buf_puts(b, k == 1 ? "</code></td>" : "</td>");
        }
        xl_buf_puts(b, "</tr>");
    }
    xl_buf_puts(b, "</table></div>\n");
}

static void row(xl_buf *b, const char *name, size_t n, const char *const *value)
{
    xl_buf_printf(b, "<tr><th>%s</th>", name);
    bool same = true;
    for (size_t i = 1; i < n; i++)
        same = same && !strcmp(value[i], value[0]);
    for (size_t i = 0; i < n; i++) {
        xl_buf_puts(b, "<td class=\"n\">");
        put(b, xl_str_of(value[i]));
        xl_buf_puts(b, "</td>");
    }
    xl_buf_printf(b, "<td class=\"quiet\">%s</td></tr>", same ? "" : "moved");
}

static void versus(xl_arena *a, xl_buf *b, const story *s, size_t n)
{
    char w[32];
    const char **v = xl_new(a, const char *, n);
    xl_series *line = xl_new(a, xl_series, n);
    size_t curves = n < 4 ? n : 4, has = 0;
    xl_buf_puts(b, "<h2>Comparison</h2>\n");
    for (size_t i = 0; i < curves; i++) {
        line[i] = (xl_series){ s[i].step, s[i].loss, s[i].nstep, s[i].name };
        has += s[i].nstep > 0;
    }
    if (has)
        xl_chart_lines(b, "Loss of each", "step", "nats", line, curves, false);
    xl_buf_puts(b, "<div class=\"wide names\"><table><tr><th></th>");
    for (size_t i = 0; i < n; i++) {
        xl_buf_puts(b, "<th class=\"n\">");
        put(b, xl_str_of(s[i].name));
        xl_buf_puts(b, "</th>");
    }
    xl_buf_puts(b, "<th></th></tr>");
#define ROW(label, expr)                                                                                               \
    do {                                                                                                               \
        for (size_t i = 0; i < n; i++) {                                                                               \
            const story *k = &s[i];                                                                                    \
            v[i] = xl_str_c(a, xl_str_of(expr));                                                                       \
        }                                                                                                              \
        row(b, label, n, v);                                                                                           \
    } while (0)
    ROW("steps", k->nstep || !k->ntimes ? xl_strf(a, "%zu", k->nstep).p
                                        : xl_strf(a, "%llu", (unsigned long long)k->times->steps).p);
    ROW("last loss", k->nstep ? xl_strf(a, "%.5f", k->loss[k->nstep - 1]).p : "–");
    ROW("validation", k->neval ? xl_strf(a, "%.5f", k->eval_loss[k->neval - 1]).p : "–");
    ROW("step time (median)", isfinite(median_step(a, k)) ? xl_html_seconds(w, median_step(a, k)) : "–");
    ROW("until the first step", k->ntimes && k->times->first >= 0 ? xl_html_seconds(w, k->times->first) : "–");
    ROW("executions", k->executed);
    ROW("compiled", xl_strf(a, "%d", k->v.compiled).p);
    ROW("from the cache", xl_strf(a, "%d", k->v.cached).p);
    ROW("recompiles in the warm-up window", xl_strf(a, "%d", k->v.early).p);
    ROW("recompiles after it", xl_strf(a, "%d", k->v.late).p);
    ROW("traced again", xl_strf(a, "%d", k->v.traced).p);
    ROW("seconds compiling", xl_html_seconds(w, k->compile_s));
    ROW("whole run", xl_html_seconds(w, k->total_s));
    ROW("peak of a device", k->ndev ? xl_html_bytes(w, (double)k->dev[0].peak) : "–");
    ROW("end", xl_str_c(a, k->state));
    ROW("device", xl_strf(a, "%.*s", XL_FMT(xl_node_text(k->run, "device"))).p);
    ROW("profile", xl_strf(a, "%.*s", XL_FMT(xl_node_text(k->run, "profile"))).p);
#undef ROW
    xl_buf_puts(b, "</table></div>\n"
                   "<p class=\"quiet\">`xlane explain RUN RUN` says in words whether the graph, the inputs or the "
                   "profile moved.</p>\n");
}

/* The ladder of a run: its own, or the newest in the same folder of runs. */
static xl_node *ladder_near(xl_arena *a, const story *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i].ladder)
            return s[i].ladder;
    char *parent = xl_str_c(a, xl_path_dir(xl_str_of(s[0].dir)));
    xl_str *names = NULL;
    size_t count = 0;
    xl_error_free(xl_dir_list(a, parent, &names, &count));
    for (size_t i = count; i-- > 0;) {
        char *dir = xl_path_join(a, parent, xl_str_c(a, names[i]));
        if (xl_file_stat(xl_path_join(a, dir, "ladder.json"), NULL))
            return json_file(a, dir, "ladder.json");
    }
    return NULL;
}

/* A run that xlane started says when it ended; one whose processes are gone without that has ended too. */
static bool goes_on(xl_arena *a, const story *s)
{
    bool any = false, known = false;
    if (xl_run_end_of(a, s->dir).known)
        return false;
    for (size_t i = 0; i < s->nevent && !any; i++) {
        int pid = (int)xl_node_num(s->event[i], "pid", 0);
        known |= pid > 0;
        any = pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
    }
    return any || !known;
}

/* One page of the runs as they are now. */
static xl_error *draw(xl_arena *a, int argc, char **argv, bool *on, size_t *bytes)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    size_t n = (size_t)argc;
    story *s = xl_new(a, story, n);
    char iso[XL_TIME_ISO];
    *on = false;
    for (size_t i = 0; i < n; i++) {
        XL_DO(gather(a, argv[i], &s[i]));
        *on |= opt.follow && goes_on(a, &s[i]);
    }
    const xl_node *climbed = ladder_near(a, s, n);
    xl_buf_puts(&b, "<!doctype html>\n"
                    "<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                    "content=\"width=device-width,initial-scale=1\">"
                    "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">");
    xl_buf_printf(&b, "%s<title>xlane: ", *on ? "<meta http-equiv=\"refresh\" content=\"3\">" : "");
    put(&b, xl_str_of(s[0].name));
    xl_buf_printf(&b, "</title><style>%s</style></head><body>\n<header><h1>", style);
    for (size_t i = 0; i < n; i++) {
        xl_buf_puts(&b, i ? " and " : "");
        put(&b, xl_str_of(s[i].name));
    }
    xl_buf_printf(&b, "</h1><p class=\"quiet\">drawn by xlane %s, %s%s</p></header>\n", XL_VERSION,
                  xl_time_iso(xl_now_wall(), iso), *on ? "; the run goes on, and this page reloads itself" : "");
    if (n > 1)
        versus(a, &b, s, n);
    for (size_t i = 0; i < n; i++) {
        if (n > 1) {
            xl_buf_puts(&b, "<h1>");
            put(&b, xl_str_of(s[i].name));
            xl_buf_puts(&b, "</h1>\n");
        }
        xl_buf_puts(&b, "<main>");
        if (s[i].mark.n) {
            xl_buf_puts(&b, "<p class=\"bad\">");
            put(&b, s[i].mark);
            xl_buf_puts(&b, "</p>\n");
        }
        tiles(a, &b, &s[i]);
        about(&b, &s[i]);
        ranks(a, &b, &s[i]);
        curves(a, &b, &s[i]);
        step_times(a, &b, &s[i]);
        times(&b, &s[i]);
        compiles(a, &b, &s[i]);
        memory(a, &b, &s[i]);
        xl_placement_html(a, s[i].dir, &b);
        cache(a, &b, &s[i]);
        upgrades(a, &b, &s[i]);
        receipt(a, &b, &s[i]);
        xl_buf_puts(&b, "</main>\n");
    }
    ladder(&b, climbed);
    xl_buf_puts(&b, "</body></html>\n");
    if (b.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for the report");
        goto out;
    }
    *bytes = b.n;
    XL_TRY(xl_error_next(xl_file_write_mode(opt.out, xl_buf_view(&b), 0666), "--out=FILE writes it elsewhere"),
           "writing the report");
out:
    for (size_t i = 0; i < n; i++)
        xl_metrics_free(s[i].metrics);
    xl_buf_fini(&b);
    return err;
}

static xl_error *report(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf said = { 0 };
    size_t bytes = 0;
    bool on = true;
    char *newest[] = { "last" }, **run = xl_new(cli->arena, char *, (size_t)argc + 1);
    if (!argc)
        argc = 1, argv = newest;
    for (int i = 0; i < argc; i++)                         /* "last" stays the run it is now */
        XL_DO(xl_run_find(cli->arena, argv[i], &run[i]));
    if (!opt.out)
        opt.out = argc == 1 ? xl_path_join(cli->arena, run[0], "report.html") : "report.html";
    while (on) {
        xl_arena a = { 0 };
        err = draw(&a, argc, run, &on, &bytes);
        xl_arena_fini(&a);
        if (err)
            goto out;
        if (on)
            xl_sleep(2);
    }
    if (cli->json) {
        xl_json j = { .out = &said };
        xl_json_map(&j);
        xl_json_put_text(&j, "report", opt.out);
        xl_json_put_int(&j, "runs", argc);
        xl_json_put_int(&j, "bytes", (int64_t)bytes);
        xl_json_end(&j);
    } else
        xl_buf_printf(&said, "wrote %s (%zu KiB); it opens in any browser, without a network", opt.out,
                      (bytes + 1023) / 1024);
    err = xl_cli_put(&said);
out:
    xl_buf_fini(&said);
    return err;
}

XL_VERB(report) = {
    .name = "report",
    .args = "[RUN ...] [--follow] [--out=FILE]",
    .help = "write an HTML report of a run, or of several side by side",
    .more = "Of the newest run, if none is named. Loss and step time, where the time went, each compile with its "
            "cause, memory,\n"
            "cache, ladder and receipt. The file needs neither network nor scripts, follows the reader's light or dark "
            "setting,\n"
            "and can be printed.",
    .example = "xlane report last\n"
               "xlane report RUN1 RUN2 --out=two.html",
    .opts = opts,
    .min = 0,
    .max = 8,
    .run = report,
};
