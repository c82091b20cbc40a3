/* xlane explain: why did it compile (again)? what moved between two runs? */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/cli.h"
#include "ir/read.h"
#include "lane/contract.h"
#include "lane/metrics.h"
#include "lane/receipt.h"
#include "lane/run.h"

static struct { bool all; } opt;
static const xl_opt opts[] = {
    { "all", XL_OPT_FLAG, &opt.all, NULL, "every compile, also first ones and those of initialisers and small helpers" },
    { 0 },
};

static xl_str str_of(const xl_node *map, const char *key)
{
    const xl_node *n = xl_node_get(map, key);
    return n ? n->s : (xl_str){ "", 0 };
}
static bool is(const xl_node *map, const char *key, const char *value) { return xl_str_is(str_of(map, key), value); }
static double num_of(const xl_node *map, const char *key)
{
    const xl_node *n = xl_node_get(map, key);
    return n ? n->f : 0;
}

/* ---- one run ---------------------------------------------------------------------------------------------------------- */
static void put_compile(xl_buf *b, const xl_node *e)
{
    xl_str reason = str_of(e, "reason"), words = str_of(e, "words"), cache = str_of(e, "cache_detail");
    xl_buf_printf(b, "%9.3f s  %-24.*s %-8.*s %8.3f s  %.*s, %.*s", num_of(e, "t"), XL_FMT(str_of(e, "module")), XL_FMT(str_of(e, "result")),
                  num_of(e, "seconds"), XL_FMT(str_of(e, "phase")), XL_FMT(reason));
    if (num_of(e, "step") > 0)
        xl_buf_printf(b, " (step %.0f)", num_of(e, "step"));
    xl_buf_putc(b, '\n');
    const xl_node *detail = xl_node_get(e, "detail");
    for (size_t i = 0; detail && i < detail->n; i++) {
        if (i == 8) {
            xl_buf_printf(b, "             and %zu more differences\n", detail->n - 8);
            break;
        }
        xl_buf_printf(b, "             %.*s\n", XL_FMT(str_of(detail->kid[i], "text")));
    }
    if (words.n)
        xl_buf_printf(b, "             %.*s\n", XL_FMT(words));
    if (str_of(e, "against_run").n)
        xl_buf_printf(b, "             compared with run %.*s\n", XL_FMT(str_of(e, "against_run")));
    if (cache.n && !is(e, "cache_reason", "first"))
        xl_buf_printf(b, "             not in the cache: %.*s\n", XL_FMT(cache));
    if (str_of(e, "uncacheable").n)
        xl_buf_printf(b, "             not cached: %.*s\n", XL_FMT(str_of(e, "uncacheable")));
    if (str_of(e, "error").n)
        xl_buf_printf(b, "             %.*s\n", XL_FMT(str_of(e, "error")));
}

typedef struct { int compiles, cached, loaded, failed, again; bool shape, policy, branch, identical, lines; } tally;

/* A compile that is not of a step counts, and answers no question. */
static void count(tally *t, const xl_node *e, bool step)
{
    xl_str r = str_of(e, "result");
    t->compiles += xl_str_is(r, "compiled");
    t->cached += xl_str_is(r, "cached");
    t->loaded += xl_str_is(r, "loaded");
    t->failed += xl_str_is(r, "failed");
    xl_str reason = str_of(e, "reason");
    if (xl_str_is(reason, "first"))
        return;
    t->again++;
    if (!step)
        return;
    t->identical |= xl_str_is(reason, "identical");
    t->shape |= xl_str_is(reason, "args");
    t->policy |= xl_str_is(reason, "flags") || xl_str_is(reason, "profile") || xl_str_is(reason, "sharding") || xl_str_is(reason, "options") ||
                 xl_str_is(reason, "plugin") || xl_str_is(reason, "topology");
    const xl_node *detail = xl_node_get(e, "detail");
    for (size_t i = 0; detail && i < detail->n; i++) {
        bool size = is(detail->kid[i], "what", "shape") || is(detail->kid[i], "what", "dtype");
        bool input = xl_node_get(detail->kid[i], "arg") != NULL; /* else a size that a Python number decided */
        t->shape |= size && input;
        t->branch |= (size && !input) || is(detail->kid[i], "what", "op") || is(detail->kid[i], "what", "constant");
        t->lines |= str_of(detail->kid[i], "where").n > 0;
    }
}

/* The modules that a training run is about: no small ones, and they run at least half as often as the one that runs most, or take a
 * quarter of the execute time. Initialisers and eager ops compile for each shape they meet while a program starts; that is no
 * news, unless there is nothing else. */
typedef struct { xl_metrics *m; uint64_t runs; } steps;

static bool small(const xl_node *e)
{
    const xl_node *n = xl_node_get(e, "small");
    return n && n->b;
}

static bool is_step(const steps *s, const xl_node *e)
{
    xl_str group = xl_contract_group(str_of(e, "module"));
    if (!s->m || is(e, "phase", "steady") || is(e, "result", "failed"))
        return true;
    for (uint32_t i = 0; !small(e) && xl_metrics_at(s->m, i); i++) {
        const xl_module_metrics *mm = xl_metrics_at(s->m, i);
        uint64_t runs = xl_module_metrics_count(mm, XL_M_ExecuteTime);
        bool much = runs > 2 && 4 * xl_module_metrics_seconds(mm, XL_M_ExecuteTime) >= xl_metrics_seconds(s->m, XL_M_ExecuteTime);
        if (xl_str_eq(xl_contract_group(xl_str_of(xl_module_metrics_name(mm))), group) && (much || 2 * runs >= s->runs))
            return true;
    }
    return false;
}

static bool again(const xl_node *e) { return is(e, "event", "compile") && !is(e, "reason", "first"); }

static steps steps_of(xl_arena *a, const char *dir, xl_node **e, size_t n)
{
    steps s = { 0 };
    size_t processes;
    bool any = false;
    xl_error_free(xl_metrics_read(a, dir, &s.m, &processes));
    for (size_t i = 0; s.m && i < n; i++)
        if (is(e[i], "event", "compile") && !small(e[i])) {
            uint64_t runs = xl_module_metrics_count(xl_metrics_module(s.m, str_of(e[i], "module")), XL_M_ExecuteTime);
            s.runs = runs > s.runs ? runs : s.runs;
        }
    for (size_t i = 0; i < n; i++)
        any |= again(e[i]) && is_step(&s, e[i]);
    if (!any || opt.all) {
        xl_metrics_free(s.m);
        s.m = NULL;
    }
    return s;
}

static xl_error *one_run(const xl_cli *cli, const char *dir)
{
    xl_error *err = NULL;
    xl_node **e;
    size_t n;
    tally t = { 0 };
    steps s = { 0 };
    xl_buf b = { 0 };
    XL_DO(xl_run_events(cli->arena, dir, &e, &n));
    if (cli->json) {
        xl_json j = { .out = &b };
        xl_json_list(&j);
        for (size_t i = 0; i < n; i++)
            if (is(e[i], "event", "compile"))
                xl_json_node(&j, e[i]);
        xl_json_end(&j);
        err = xl_cli_put(&b);
        goto out;
    }
    bool torch = false;
    int aside = 0;
    s = steps_of(cli->arena, dir, e, n);
    xl_buf_str(&b, xl_run_mark(cli->arena, dir));
    for (size_t i = 0; i < n; i++) {
        if (is(e[i], "event", "compile")) {
            bool shown = is_step(&s, e[i]);
            count(&t, e[i], shown);
            aside += again(e[i]) && !shown;
            if (!shown)
                continue;
            torch |= xl_str_starts(str_of(e[i], "module"), XL_STR("SyncTensorsGraph"));
            if (opt.all || !is(e[i], "reason", "first") || is(e[i], "result", "failed"))
                put_compile(&b, e[i]);
        } else if (is(e[i], "event", "retry")) {
            xl_buf_printf(&b, "%9.3f s  attempt %.0f failed at %.*s: %.*s (%.*s, %.*s); %.*s\n", num_of(e[i], "t"), num_of(e[i], "attempt"), XL_FMT(str_of(e[i], "phase")),
                          XL_FMT(str_of(e[i], "text")), XL_FMT(str_of(e[i], "cause")), XL_FMT(str_of(e[i], "verdict")), XL_FMT(str_of(e[i], "then")));
        } else if (is(e[i], "event", "late-flag") || is(e[i], "event", "late-spmd") || is(e[i], "event", "sync") || is(e[i], "event", "not-reduced") || is(e[i], "event", "local-read") || is(e[i], "event", "collective") || is(e[i], "event", "gathered")) {
            xl_buf_printf(&b, "%9.3f s  %.*s: %.*s%s%.*s\n", num_of(e[i], "t"), XL_FMT(str_of(e[i], "event")), XL_FMT(str_of(e[i], "words")),
                          str_of(e[i], "words").n ? ": " : "", XL_FMT(str_of(e[i], "text")));
        } else if (is(e[i], "event", "hang")) {
            xl_buf_printf(&b, "%9.3f s  hang: %.*s of %.*s had not returned after %.0f s\n", num_of(e[i], "t"), XL_FMT(str_of(e[i], "what")),
                          XL_FMT(str_of(e[i], "module")), num_of(e[i], "seconds"));
        }
    }
    if (aside)
        xl_buf_printf(&b, "%d more before the steps, of initialisers and small helpers that met other shapes: --all shows them\n", aside);
    xl_buf_printf(&b, "%d compiled, %d from the cache, %d from the frontend's own cache, %d failed; %d were not the first of their name\n", t.compiles,
                  t.cached, t.loaded, t.failed, t.again);
    xl_buf_printf(&b, "did input shapes change?                     %s\n", t.shape ? "yes" : "no");
    xl_buf_printf(&b, "did the runtime profile or SPMD policy move? %s\n", t.policy ? "yes" : "no");
    xl_buf_printf(&b, "did a hidden graph branch become active?     %s\n", t.branch ? "yes" : "no");
    if (t.identical)
        xl_buf_puts(&b, "identical: the program is the same, the frontend did not know it again: a fresh jax.jit or lambda, a changed jax.config, a static argument\n"
                        "that changes nothing, or another tree of arguments (a tuple for a list, another key)\n");
    if (torch && t.again && !t.lines)
        xl_buf_puts(&b, "these programs carry no source lines; XLA_IR_DEBUG=1 XLA_HLO_DEBUG=1 makes PyTorch/XLA add them\n");
    err = xl_cli_put(&b);
out:
    xl_metrics_free(s.m);
    xl_buf_fini(&b);
    return err;
}

/* ---- two runs --------------------------------------------------------------------------------------------------------- */
typedef struct { xl_str module; char hash[XL_DIGEST_HEX]; int compiles; } last_program;

static void last_programs(xl_arena *a, xl_node **e, size_t n, last_program **out, size_t *nout)
{
    size_t cap = 0;
    *out = NULL;
    *nout = 0;
    for (size_t i = 0; i < n; i++) {
        xl_str program = str_of(e[i], "program"), module = xl_contract_group(str_of(e[i], "module"));
        if (!is(e[i], "event", "compile") || program.n != XL_DIGEST_HEX - 1)
            continue;
        last_program *p = NULL;
        for (size_t k = 0; k < *nout && !p; k++)
            if (xl_str_eq((*out)[k].module, module))
                p = &(*out)[k];
        if (!p) {
            XL_PUSH(a, *out, *nout, cap, ((last_program){ .module = module }));
            p = &(*out)[*nout - 1];
        }
        memcpy(p->hash, program.p, program.n);
        p->compiles++;
    }
}

static const xl_node *first_event(xl_node **e, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (is(e[i], "event", what))
            return e[i];
    return NULL;
}

typedef struct { xl_buf *b; xl_json *j; bool any; } sink;

static void moved(sink *s, const char *what, const char *where, xl_str text)
{
    s->any = true;
    if (s->j) {
        xl_json_map(s->j);
        xl_json_put_text(s->j, "moved", what);
        xl_json_put_text(s->j, "module", where);
        xl_json_put_str(s->j, "text", text);
        xl_json_end(s->j);
    } else {
        xl_buf_printf(s->b, "%-8s %s%s%.*s\n", what, where, *where ? ": " : "", XL_FMT(text));
    }
}

static void compare_words(sink *s, const char *what, xl_str before, xl_str after)
{
    if (xl_str_eq(before, after))
        return;
    xl_buf w = { 0 };
    xl_words_diff(before, after, &w);
    moved(s, what, "", xl_buf_view(&w));
    xl_buf_fini(&w);
}

static void compare_programs(xl_arena *a, sink *s, const char *da, const char *db, const last_program *x, const last_program *y)
{
    xl_str bytes;
    xl_module *p = NULL, *q = NULL;
    xl_error *err = xl_recorded_load(a, da, x->hash, &bytes);
    if (!err)
        err = xl_read(bytes, NULL, &p);
    if (!err)
        err = xl_recorded_load(a, db, y->hash, &bytes);
    if (!err)
        err = xl_read(bytes, NULL, &q);
    char *module = xl_str_c(a, x->module);
    if (err) {
        moved(s, "graph", module, xl_strf(a, "another program, which cannot be compared: %s", xl_error_message(err)));
        xl_error_free(err);
    } else {
        xl_verdict v = { 0 };
        xl_error_free(xl_contract_compare(a, p, q, &v));
        for (uint32_t i = 0; i < v.ndiff && i < 16; i++) {
            bool input = v.diff[i].kind == XL_DIFF_SHAPE || v.diff[i].kind == XL_DIFF_DTYPE;
            moved(s, input ? "inputs" : v.diff[i].kind == XL_DIFF_SHARDING ? "profile" : "graph", module, v.diff[i].text);
        }
        if (!v.ndiff)
            moved(s, "graph", module, XL_STR("another program"));
    }
    xl_module_free(p);
    xl_module_free(q);
}

/* Launch policy, value by value; raw flags are compared as the plugin saw them. */
static void compare_launch(xl_arena *a, sink *s, const xl_run_info *x, const xl_run_info *y)
{
    const xl_node *p = xl_node_get(xl_node_get(x->json, "launch"), "values"), *q = xl_node_get(xl_node_get(y->json, "launch"), "values");
    if (!xl_str_eq(x->profile, y->profile))
        moved(s, "profile", "", xl_strf(a, "%.*s -> %.*s", XL_FMT(x->profile), XL_FMT(y->profile)));
    for (int side = 0; side < 2; side++) {
        const xl_node *from = side ? q : p, *to = side ? p : q;
        for (size_t i = 0; from && i < from->n; i++) {
            xl_str name = from->kid[i]->key;
            const xl_node *other = xl_node_get(to, xl_str_c(a, name));
            if (xl_str_starts(name, XL_STR("flags.")) || (side && other) || (other && xl_str_eq(str_of(from->kid[i], "value"), str_of(other, "value"))))
                continue;
            const xl_node *l = side ? other : from->kid[i], *r = side ? from->kid[i] : other;
            moved(s, "profile", xl_str_c(a, name), xl_strf(a, "%.*s -> %.*s (%.*s)", XL_FMT(l ? str_of(l, "value") : XL_STR("not set")),
                                                           XL_FMT(r ? str_of(r, "value") : XL_STR("not set")), XL_FMT(str_of(r ? r : l, "origin"))));
        }
    }
}

/* Versions below the program: what the plugin's own file does not tell. */
static void compare_stack(xl_arena *a, sink *s, const xl_run_info *x, const xl_run_info *y)
{
    xl_node_change *c;
    size_t n;
    const xl_node *p = xl_node_get(x->json, "bundle"), *q = xl_node_get(y->json, "bundle");
    if (!p || !q)
        return;
    xl_node_changes(a, p, q, &c, &n);
    for (size_t i = 0; i < n; i++)
        moved(s, "stack", xl_str_c(a, c[i].name), xl_strf(a, "%.*s -> %.*s", XL_FMT(c[i].before.n ? c[i].before : XL_STR("none")),
                                                          XL_FMT(c[i].after.n ? c[i].after : XL_STR("none"))));
}

/* Seconds a call took on average, over the run's processes. */
static double mean_of(xl_arena *a, const char *dir, const char *metric)
{
    xl_str *names = NULL, text;
    size_t n = 0;
    double sum = 0, count = 0;
    xl_error_free(xl_dir_list(a, dir, &names, &n));
    for (size_t i = 0; i < n; i++) {
        xl_node *root = NULL;
        if (!xl_str_starts(names[i], XL_STR("metrics-")) || !xl_str_ends(names[i], XL_STR(".json")))
            continue;
        char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        xl_error *err = xl_file_read_max(a, path, 64 << 20, &text);
        if (!err)
            err = xl_json_read(a, path, text, &root);
        const xl_node *m = err ? NULL : xl_node_get(xl_node_get(root, "total"), metric);
        xl_error_free(err);
        sum += num_of(m, "sum") * 1e-9;
        count += num_of(m, "n");
    }
    return count > 0 ? sum / count : 0;
}

static void compare_numbers(xl_arena *a, xl_buf *b, const char *da, const char *db)
{
    static const struct { const char *metric, *what; } means[] = { { "CompileTime", "mean compile" }, { "LoadTime", "mean load from the cache" }, { "ExecuteTime", "mean execute call" } };
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) {
        double x = mean_of(a, da, means[i].metric), y = mean_of(a, db, means[i].metric);
        if (x > 0 && y > 0 && (y > 1.2 * x || x > 1.2 * y))
            xl_buf_printf(b, "numbers  %s: %.4g ms -> %.4g ms (%.2fx)\n", means[i].what, x * 1e3, y * 1e3, y / x);
    }

    xl_metrics *m[2] = { NULL, NULL };
    size_t processes;
    xl_error_free(xl_metrics_read(a, da, &m[0], &processes));
    xl_error_free(xl_metrics_read(a, db, &m[1], &processes));
    if (m[0] && m[1]) {
        static const struct { xl_metric w; const char *what; } rows[] = {
            { XL_M_CompileTime, "compiles" }, { XL_M_CachedCompile, "from the cache" }, { XL_M_ExecuteTime, "executions" },
            { XL_M_InboundData, "bytes to the device" }, { XL_M_OutboundData, "bytes from the device" }, { XL_M_HostSync, "steps that waited for the host" },
        };
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            unsigned long long x = xl_metrics_total(m[0], rows[i].w), y = xl_metrics_total(m[1], rows[i].w);
            if (x != y)
                xl_buf_printf(b, "numbers  %s: %llu -> %llu\n", rows[i].what, x, y);
        }
    }
    xl_metrics_free(m[0]);
    xl_metrics_free(m[1]);
}

static xl_error *two_runs(const xl_cli *cli, const char *da, const char *db)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_node **ea, **eb;
    size_t na, nb, np, nq;
    last_program *p, *q;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_run_events(a, da, &ea, &na));
    XL_DO(xl_run_events(a, db, &eb, &nb));
    sink s = { &b, cli->json ? &j : NULL, false };
    if (cli->json)
        xl_json_list(&j);
    xl_run_info about[2] = { xl_run_about(a, da), xl_run_about(a, db) };
    if (!cli->json) {
        xl_buf_str(&b, xl_run_mark(a, da));
        xl_buf_str(&b, xl_run_mark(a, db));
    } else if (about[0].diagnostic || about[1].diagnostic) {
        moved(&s, "diagnostic", "", XL_STR("a run under a diagnostic profile takes part: timings do not compare"));
    }
    compare_launch(a, &s, &about[0], &about[1]);
    compare_stack(a, &s, &about[0], &about[1]);
    const xl_node *x = first_event(ea, na, "client"), *y = first_event(eb, nb, "client");
    compare_words(&s, "profile", str_of(x, "flags"), str_of(y, "flags"));
    x = first_event(ea, na, "attach");
    y = first_event(eb, nb, "attach");
    compare_words(&s, "plugin", str_of(x, "identity"), str_of(y, "identity"));
    last_programs(a, ea, na, &p, &np);
    last_programs(a, eb, nb, &q, &nq);
    for (size_t i = 0; i < np; i++) {
        const last_program *other = NULL;
        for (size_t k = 0; k < nq && !other; k++)
            if (xl_str_eq(p[i].module, q[k].module))
                other = &q[k];
        if (!other)
            moved(&s, "graph", xl_str_c(a, p[i].module), XL_STR("only in the first run"));
        else if (strcmp(p[i].hash, other->hash))
            compare_programs(a, &s, da, db, &p[i], other);
    }
    for (size_t k = 0; k < nq; k++) {
        bool there = false;
        for (size_t i = 0; i < np; i++)
            there |= xl_str_eq(p[i].module, q[k].module);
        if (!there)
            moved(&s, "graph", xl_str_c(a, q[k].module), XL_STR("only in the second run"));
    }
    if (cli->json) {
        xl_json_end(&j);
    } else {
        compare_numbers(a, &b, da, db);
        if (!s.any)
            xl_buf_puts(&b, "same graphs, same inputs, same flags and plugin: what moved, if anything did, is the machine\n");
    }
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

static xl_error *explain(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    char *da, *db;
    XL_DO(xl_run_find(cli->arena, argc ? argv[0] : "last", &da));
    if (argc < 2)
        return one_run(cli, da);
    XL_DO(xl_run_find(cli->arena, argv[1], &db));
    err = two_runs(cli, da, db);
out:
    return err;
}

const xl_verb xl_verb_explain = {
    .name = "explain", .args = "[RUN [RUN]]", .help = "why did it compile again; with two runs, what moved between them",
    .more = "Without --all only compiles that were not the first of their module are shown, and of those the steps': the modules where the time\n"
            "goes. The three answers at the end are about what is shown. --json prints the compile events themselves.",
    .example = "xlane explain last", .opts = opts, .min = 0, .max = 2, .run = explain,
};
