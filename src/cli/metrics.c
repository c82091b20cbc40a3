#include "lane/metrics.h"

#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/unrecorded.h"
#include "lane/gaps.h"
#include "lane/run.h"
#include "lane/steps.h"
#include "lane/trained.h"
#include "lane/verdict.h"

static struct { bool modules, prometheus; } opt;
static const xl_opt opts[] = {
    { "modules", XL_OPT_FLAG, &opt.modules, NULL, "also print each module separately" },
    { "prometheus", XL_OPT_FLAG, &opt.prometheus, NULL, "print in Prometheus format" },
    { 0 },
};

/* ---- PyTorch/XLA's own counters: ops that it has no lowering for and runs on the host ---- */
typedef struct { xl_str name; int64_t n; } fallback;
typedef struct { fallback *p; size_t n, cap; bool recorded; } fallbacks;

static void add(xl_arena *a, fallbacks *f, xl_str name, int64_t n)
{
    for (size_t i = 0; i < f->n; i++)
        if (xl_str_eq(f->p[i].name, name)) {
            f->p[i].n += n;
            return;
        }
    XL_PUSH(a, f->p, f->n, f->cap, ((fallback){ name, n }));
}

/* Its last report in each file, `torch-metrics.txt` or one for each rank: XLA_METRICS_FILE gets one at each step. */
static fallbacks read_fallbacks(xl_arena *a, const char *dir)
{
    static const char mark[] = "[MetricsData; step=";
    fallbacks f = { 0 };
    xl_str *names = NULL, text;
    size_t n = 0;
    xl_error_free(xl_dir_list(a, dir, &names, &n));
    for (size_t i = 0; i < n; i++) {
        if (!xl_str_starts(names[i], XL_STR("torch-metrics.txt")))
            continue;
        xl_error *err = xl_file_read_max(a, xl_path_join(a, dir, xl_str_c(a, names[i])), 64 << 20, &text);
        xl_error_free(err);
        const char *last = NULL;
        for (const char *p = err ? NULL : text.p;
             p && (p = memmem(p, (size_t)(text.p + text.n - p), mark, sizeof mark - 1)); p++)
            last = p;
        if (!last)
            continue;
        f.recorded = true;
        text = (xl_str){ last, (size_t)(text.p + text.n - last) };
        while (text.n) {
            xl_str line = xl_str_trim(xl_str_cut(&text, '\n')), name = line;
            int64_t value;
            if (!xl_str_starts(line, XL_STR("Counter: aten::")))
                continue;
            xl_str_cut(&name, ' ');
            line = xl_str_trim(xl_str_cut(&text, '\n'));
            xl_str_cut(&line, ' ');
            if (xl_str_i64(line, &value))
                add(a, &f, name, value);
        }
    }
    return f;
}

static bool of_torch(xl_arena *a, const char *dir)
{
    xl_node **e = NULL;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        const xl_node *module = xl_node_get(e[i], "module");
        if (module && xl_str_starts(module->s, XL_STR("SyncTensorsGraph")))
            return true;
    }
    return false;
}

static void say_fallbacks(const fallbacks *f, xl_buf *b)
{
    for (size_t i = 0; i < f->n; i++)
        xl_buf_printf(b, "Counter: %.*s\n  Value: %lld\n", XL_FMT(f->p[i].name), (long long)f->p[i].n);
    if (f->n)
        xl_buf_puts(b, "aten:: ops ran on the host, up to the last torch_xla.sync(): each reads from the device and "
                       "waits for it; keep them "
                       "out of the step\n");
    else if (f->recorded)
        xl_buf_puts(b, "no aten:: op ran on the host, up to the last torch_xla.sync()\n");
    else
        xl_buf_puts(b, "aten:: ops that ran on the host were not recorded: run it with --profile debug-light\n");
}

/* What would lead to metrics, where the run has none. */
static xl_error *none(xl_arena *a, const char *dir, xl_error *err)
{
    xl_str unended = xl_run_unended(a, dir), gaps = xl_run_gaps_of(a, dir).text;
    const char *other = xl_run_newest(a, dir, XL_RUN_METRICS);
    xl_run_verdict v = { 0 };
    xl_error_free(xl_run_judge(a, dir, &v));
    if (xl_run_trained(a, dir)) {
        xl_error_free(err);
        err =
            XL_ERR(NOT_FOUND,
                   "%s is a run of `xlane train`, which counts no calls of a plugin: its figures are in %s/metrics.csv"
                   "; `xlane run -- xlane train ...` counts them",
                   dir, dir);
    } else if (gaps.n) {
        xl_error_free(err);
        err = XL_ERR(DATA_LOSS, "%s has no metrics, and its record is incomplete: %.*s%s%.*s", dir, XL_FMT(gaps),
                     unended.n ? "; " : "", XL_FMT(unended));
    } else if (v.recorded && !unended.n) {
        xl_error_free(err);
        err = XL_ERR(NOT_FOUND, "%s has no metrics: its guarded processes ended before they wrote any; `xlane explain` "
                                "has their compiles",
                     dir);
    } else {
        xl_error_free(err);
        err = XL_ERR(NOT_FOUND, "%s has no metrics: %.*s", dir, XL_FMT(xl_why_unrecorded(a, dir)));
    }
    return other ? xl_error_next(err, "the newest run here that has some is %s", other) : err;
}

/* Counters are written every two seconds and at the end, events as they happen. */
static void say_age(const xl_run_verdict *v, const xl_metrics *m, xl_buf *b)
{
    xl_verdict_end_say(v, b);
    if ((uint64_t)v->compiled > xl_metrics_total(m, XL_M_CompileTime) ||
        (uint64_t)v->cached > xl_metrics_total(m, XL_M_CachedCompile) ||
        (uint64_t)v->loaded > xl_metrics_total(m, XL_M_FrontendCacheHit))
        xl_buf_printf(b,
                      "its events%s tell of %d compiled, %d from the cache, %d from the frontend's own cache\n",
                      xl_metrics_idle(m) ? "" : ", which are newer than these counts,", v->compiled, v->cached,
                      v->loaded);
}

static xl_error *metrics(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_metrics *m = NULL;
    xl_buf b = { 0 };
    char *dir;
    size_t processes, ntimes = 0;
    xl_step_times *times = NULL;
    xl_trained train = { 0 };
    XL_DO(xl_run_find(cli->arena, argc ? argv[0] : "last", &dir));
    err = xl_metrics_read(cli->arena, dir, &m, &processes);
    if (xl_error_code(err) == XL_CODE_NOT_FOUND) {
        train = xl_trained_read(cli->arena, dir);
        if (train.steps && !opt.prometheus) {              /* not guarded, but it wrote down its steps itself */
            xl_error_free(err);
            err = (m = xl_metrics_new()) ? NULL : XL_ERR(EXHAUSTED, "out of memory");
        } else {
            err = none(cli->arena, dir, err);
        }
    }
    if (err)
        goto out;
    XL_DO(xl_steps_read(cli->arena, dir, &times, &ntimes));
    fallbacks host = read_fallbacks(cli->arena, dir);
    bool torch = of_torch(cli->arena, dir);
    xl_run_verdict v = { 0 };
    xl_error_free(xl_run_judge(cli->arena, dir, &v));      /* where its events cannot be read, its counters can */
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_run_info about = xl_run_about(cli->arena, dir);
        xl_json_map(&j);
        xl_json_put_bool(&j, "diagnostic", about.diagnostic);
        xl_json_put_str(&j, "profile", about.profile);
        xl_json_put_bool(&j, "lower_bounds", xl_verdict_open(&v));
        xl_json_key(&j, "metrics");
        xl_metrics_json(m, &j);
        xl_json_key(&j, "steps");
        xl_json_list(&j);
        for (size_t i = 0; i < ntimes; i++)
            xl_steps_put(&times[i], &j);
        xl_json_end(&j);
        if (train.steps) {
            xl_json_key(&j, "training");
            xl_trained_put(&train, &j);
        }
        if (host.recorded) {
            xl_json_key(&j, "fallbacks");
            xl_json_map(&j);
            for (size_t i = 0; i < host.n; i++) {
                xl_json_keyn(&j, host.p[i].name);
                xl_json_int(&j, host.p[i].n);
            }
            xl_json_end(&j);
        }
        xl_json_end(&j);
    } else if (opt.prometheus) {
        xl_metrics_prometheus(m, 0, 0, &b);
    } else {
        xl_buf_str(&b, xl_run_mark(cli->arena, dir));
        if (v.cut || v.going)
            say_age(&v, m, &b);
        for (size_t i = 0; i < ntimes; i++)                /* what most people came for */
            xl_steps_say(&times[i], processes > 1, &b);
        if (train.steps) {
            xl_trained_say(&train, &b);
            xl_buf_printf(&b, "every step is in %s/metrics.csv; calls, transfers and waiting are counted under "
                              "`xlane run -- xlane train ...`\n", dir);
        }
        if (processes > 1)
            xl_buf_printf(&b, "Sums over %zu processes:\n", processes);
        size_t before = b.n;
        xl_metrics_print(m, opt.modules, &b);
        if (b.n == before && !train.steps)
            xl_buf_puts(&b, xl_verdict_open(&v)
                                ? "no count was written\n"
                                : "no count: nothing was compiled, executed or transferred through its plugin\n");
        if (torch)
            say_fallbacks(&host, &b);
    }
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    xl_metrics_free(m);
    return err;
}

XL_VERB(metrics) = {
    .name = "metrics",
    .args = "[RUN]",
    .help = "step times, counters and timings of a run: is it the device or the host?",
    .more =
        "Of the newest run, if none is named. The counters have the names that PyTorch/XLA gives them, and are written "
        "every two\nseconds and at the end of a process. A percentile is printed only where there are samples beyond "
        "it.",
    .example = "xlane metrics last --modules",
    .opts = opts,
    .min = 0,
    .max = 1,
    .run = metrics,
};
