/* xlane ladder: one structural feature at a time, cold and then restored in a new process. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/proc.h"
#include "base/time.h"
#include "cli/cli.h"
#include "lane/probe.h"
#include "lane/receipt.h"
#include "lane/rehearse.h"
#include "lane/run.h"
#include "train/loop.h"
#include "train/rung.h"

static struct {
    const char *plugin, *topology, *only, *runs, *child, *phase, *state;
    double timeout;
    xl_opt_list set;
    bool keep_going;
} opt = { .timeout = 300 };

static const xl_opt opts[] = {
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH", "the plugin to test (the best on this host)" },
    { "topology", XL_OPT_STR, &opt.topology, "NAME", "rehearse the rungs for devices this host does not have: "
                                                     "v6e:2x2, …" },
    { "only", XL_OPT_STR, &opt.only, "RUNG", "this rung alone, after the probe" },
    { "keep-going", XL_OPT_FLAG, &opt.keep_going, NULL, "do not stop at the first rung that fails" },
    { "set", XL_OPT_REPEAT, &opt.set, "KEY=VALUE", "a setting for every rung, as in a config" },
    { "timeout", XL_OPT_SECONDS, &opt.timeout, "SECONDS", "a rung that takes longer than this has failed (300)" },
    { "runs", XL_OPT_STR, &opt.runs, "DIR", "where the ladder's folder is made (XLANE_RUNS, else runs)" },
    { "rung", XL_OPT_STR, &opt.child, "RUNG",
      "internal: run this rung in this process and print the result" },
    { "phase", XL_OPT_STR, &opt.phase, "WORD", "with --rung: cold or restored" },
    { "state", XL_OPT_STR, &opt.state, "DIR", "with --rung: the ladder's cache and checkpoints" },
    { 0 },
};

/* ---- the process of one rung ---- */
static void mark(xl_layer l)
{
    printf("at %s\n", xl_layer_word(l));
    fflush(stdout);
}

static xl_error *settings(xl_arena *a, const xl_rung *r, const char *state, xl_config *c)
{
    char **words = xl_new(a, char *, opt.set.n + 1);
    for (size_t i = 0; i < opt.set.n; i++)
        words[i] = xl_str_c(a, xl_str_of(opt.set.p[i]));
    return xl_rung_config(a, r, opt.plugin, state ? xl_path_join(a, state, "cache") : NULL, words, (int)opt.set.n, c);
}

static xl_error *one_rung(const xl_cli *cli)
{
    xl_error *err = NULL;
    xl_config c;
    xl_rung_result res;
    xl_buf b = { 0 };
    const xl_rung *r = xl_rung_find(opt.child);
    if (!r || !opt.state || !opt.phase)
        return xl_cli_misuse(cli,
                             "--rung, --phase and --state go together; `xlane ladder` alone calls itself with them");
    XL_DO(settings(cli->arena, r, opt.state, &c));
    xl_rung_run(cli->arena, r, &c, opt.state, !strcmp(opt.phase, "restored"), mark, &res);
    xl_rung_json(&(xl_json){ .out = &b }, &res);
    printf("result ");
    err = xl_cli_put(&b);
out:
    return err;
}

/* ---- the ladder ---- */
typedef struct {
    const xl_rung *r;
    enum { PASSED, REHEARSED, FAILED, SKIPPED } verdict;
    xl_layer layer;
    xl_str why;
    xl_rung_result cold, warm;
    bool ran_cold, ran_warm;
    xl_rehearsal rehearsal;
    double seconds;
} climb;
static const char *const verdicts[] = { "passed", "rehearsed", "failed", "skipped" };

static xl_layer layer_of(xl_str word)
{
    for (int l = XL_LAYER_HOST; l <= XL_LAYER_CACHE; l++)
        if (xl_str_is(word, xl_layer_word((xl_layer)l)))
            return (xl_layer)l;
    return XL_LAYER_HOST;
}

/* What the process said: where it was, and its result; one that ended early is blamed on where it was. */
static xl_error *phase(xl_arena *a, const char *exe, const xl_rung *r, const char *state, const char *word,
                       xl_rung_result *out)
{
    xl_error *err = NULL;
    xl_proc_result p;
    xl_layer at = XL_LAYER_HOST;
    bool has = false;
    size_t n = 0;
    char **argv = xl_new(a, char *, 16 + opt.set.n);
    argv[n++] = xl_str_c(a, xl_str_of(exe));
    argv[n++] = "ladder";
    argv[n++] = xl_str_c(a, xl_strf(a, "--rung=%s", r->name));
    argv[n++] = xl_str_c(a, xl_strf(a, "--phase=%s", word));
    argv[n++] = xl_str_c(a, xl_strf(a, "--state=%s", state));
    if (opt.plugin)
        argv[n++] = xl_str_c(a, xl_strf(a, "--plugin=%s", opt.plugin));
    for (size_t i = 0; i < opt.set.n; i++)
        argv[n++] = xl_str_c(a, xl_strf(a, "--set=%s", opt.set.p[i]));
    XL_DO(xl_proc_run(a, argv, NULL, (int)(opt.timeout * 1e3), &p));
    xl_str rest = p.out;
    while (rest.n) {
        xl_str line = xl_str_cut(&rest, '\n');
        if (xl_str_starts(line, XL_STR("at ")))
            at = layer_of((xl_str){ line.p + 3, line.n - 3 });
        if (xl_str_starts(line, XL_STR("result "))) {
            xl_node *node;
            XL_DO(xl_json_read(a, r->name, (xl_str){ line.p + 7, line.n - 7 }, &node));
            XL_DO(xl_rung_read(node, out));
            has = true;
        }
    }
    if (!has) {
        xl_str said = xl_str_trim(p.err);
        *out = (xl_rung_result){ .layer = at, .seconds = p.seconds };
        out->message = xl_strf(a, "its process %.*s; it said: %.*s", XL_FMT(xl_proc_words(a, &p)),
                               XL_FMT(said.n > 600 ? ((xl_str){ said.p + said.n - 600, 600 }) : said));
    }
out:
    return err;
}

static void fail(climb *c, xl_layer layer, xl_str why)
{
    c->verdict = FAILED;
    c->layer = layer;
    c->why = why;
}

/* The verdict comes from counters: compile flat, execute moving. */
static void judge(xl_arena *a, climb *c)
{
    const xl_rung_result *k = &c->cold, *w = &c->warm;
    if (k->compiles > 1)
        fail(c, XL_LAYER_GRAPH,
             xl_strf(a,
                     "one step was compiled %lld times in %lld executions: something that changes each step is a "
                     "constant of the "
                     "program; `xlane explain` on a run of it names which",
                     (long long)k->compiles, (long long)k->executes));
    else if (k->layer)
        fail(c, k->layer, k->message);
    else if (!k->executes)
        fail(c, XL_LAYER_GRAPH, XL_STR("nothing was executed"));
    else if (k->loaded)
        fail(c, XL_LAYER_CACHE, XL_STR("the cold process found an executable in a cache that was empty"));
    else if (!c->ran_warm)
        return;
    else if (w->layer)
        fail(c, w->layer, xl_strf(a, "restored: %.*s", XL_FMT(w->message)));
    else if (w->compiles)
        fail(c, XL_LAYER_CACHE,
             xl_strf(a,
                     "restored in a new process, it compiled %lld again instead of loading it: the cache was written "
                     "and not read, or its "
                     "entry does not load; `xlane cache ls` lists it",
                     (long long)w->compiles));
    else if (!w->executes)
        fail(c, XL_LAYER_CACHE, XL_STR("restored, nothing was executed"));
    else
        for (int i = 0, from = k->nloss - w->nloss; i < w->nloss && c->verdict == PASSED; i++) {
            if (from < 0 || k->loss[from + i] != w->loss[i]) /* bit for bit: the lane asks GPUs for that too */
                fail(c, XL_LAYER_CACHE,
                     xl_strf(a,
                             "restored, step %d has the loss %.9g; cold it had %.9g: the executable that came back is "
                             "not the one "
                             "that was kept",
                             from + i + 1, w->loss[i], from < 0 ? 0 : k->loss[from + i]));
        }
}

static xl_layer layer_of_probe(xl_probe_class c)
{
    switch (c) {
    case XL_PROBE_HEALTHY: return XL_LAYER_NONE;
    case XL_PROBE_MISSING: case XL_PROBE_NO_LOAD: case XL_PROBE_ABI: return XL_LAYER_HOST;
    case XL_PROBE_SETTING: case XL_PROBE_NO_DEVICE: case XL_PROBE_HELD: return XL_LAYER_STARTUP;
    default: return XL_LAYER_GRAPH;
    }
}

static xl_error *rehearse(const xl_cli *cli, const char *plugin, climb *c)
{
    xl_error *err = NULL;
    xl_config conf;
    xl_buf text = { 0 };
    XL_DO(settings(cli->arena, c->r, NULL, &conf));
    XL_DO(xl_train_print(&conf, "step", &text));
    XL_DO(xl_rehearse(cli->arena,
                      &(xl_rehearse_opts){ .plugin = plugin,
                                           .topology = opt.topology,
                                           .code = xl_buf_view(&text),
                                           .format = XL_FORMAT_MLIR,
                                           .timeout_s = opt.timeout,
                                           .progress = c->r->name },
                      &c->rehearsal));
    const xl_rehearsal *r = &c->rehearsal;
    c->verdict = REHEARSED;
    if (r->verdict != XL_REHEARSAL_FITS)
        fail(c,
             r->verdict == XL_REHEARSAL_NO_PLUGIN     ? XL_LAYER_HOST
             : r->verdict == XL_REHEARSAL_NO_TOPOLOGY ? XL_LAYER_STARTUP
                                                      : XL_LAYER_GRAPH,
             xl_strf(cli->arena, "%.*s; %.*s", XL_FMT(r->message), XL_FMT(r->next)));
out:
    xl_buf_fini(&text);
    return err;
}

static void put_row(const xl_cli *cli, const climb *c)
{
    FILE *out = cli->json ? stderr : stdout;
    if (c->r->kind == XL_RUNG_PROBE || c->verdict == SKIPPED)
        fprintf(out, "%-8s %-10s %34s %6.1f s  %s", c->r->name, verdicts[c->verdict], "", c->seconds,
                c->verdict == SKIPPED ? c->why.p : c->r->about);
    else if (opt.topology)
        fprintf(out, "%-8s %-10s %31s %9.1f s  %s", c->r->name, verdicts[c->verdict],
                c->rehearsal.memory.needs >= 0
                    ? xl_strf(cli->arena, "%.1f MiB", (double)c->rehearsal.memory.needs / (1 << 20)).p
                    : "not compiled",
                c->seconds, c->r->about);
    else
        fprintf(out, "%-8s %-10s %8lld %8lld %8s %8s %6.1f s  %s", c->r->name, verdicts[c->verdict],
                (long long)c->cold.compiles, (long long)c->cold.executes,
                c->ran_warm ? xl_strf(cli->arena, "%lld", (long long)c->warm.compiles).p : "-",
                c->ran_warm ? xl_strf(cli->arena, "%lld", (long long)c->warm.executes).p : "-", c->seconds,
                c->r->about);
    if (c->verdict == PASSED && c->why.n)
        fprintf(out, "\n         note: %.*s", XL_FMT(c->why));
    fputc('\n', out);
    fflush(out);
}

static void put_json(xl_json *j, const climb *c, size_t n, xl_str device, double seconds, const char *dir)
{
    const climb *bad = NULL;
    const char *passed = NULL;
    for (size_t i = 0; i < n; i++) {
        if (c[i].verdict == FAILED && !bad)
            bad = &c[i];
        if (c[i].verdict <= REHEARSED && !bad)
            passed = c[i].r->name;
    }
    xl_json_map(j);
    xl_json_put_text(j, "verdict", bad ? "failed" : opt.topology ? "rehearsed" : "passed");
    xl_json_put_text(j, "standing", opt.topology ? "rehearsed" : "ran");
    xl_json_put_text(j, "highest", passed);
    xl_json_put_text(j, "failing", bad ? bad->r->name : NULL);
    xl_json_put_text(j, "layer", bad ? xl_layer_word(bad->layer) : NULL);
    xl_json_put_str(j, "why", bad ? bad->why : XL_STR(""));
    xl_json_put_str(j, "device", device);
    xl_json_put_num(j, "seconds", seconds);
    xl_json_put_text(j, "folder", dir);
    xl_json_key(j, "rungs");
    xl_json_list(j);
    for (size_t i = 0; i < n; i++) {
        xl_json_map(j);
        xl_json_put_text(j, "rung", c[i].r->name);
        xl_json_put_text(j, "about", c[i].r->about);
        xl_json_put_text(j, "verdict", verdicts[c[i].verdict]);
        xl_json_put_text(j, "layer", xl_layer_word(c[i].layer));
        xl_json_put_str(j, "why", c[i].why);
        xl_json_put_num(j, "seconds", c[i].seconds);
        if (c[i].ran_cold) {
            xl_json_key(j, "cold");
            xl_rung_json(j, &c[i].cold);
        }
        if (c[i].ran_warm) {
            xl_json_key(j, "restored");
            xl_rung_json(j, &c[i].warm);
        }
        if (opt.topology && c[i].r->kind != XL_RUNG_PROBE) {
            xl_json_key(j, "rehearsal");
            xl_rehearsal_json(j, &c[i].rehearsal);
        }
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_end(j);
}

static void note(xl_run *run, const climb *c)
{
    xl_event e;
    xl_event_begin(run, &e, "rung");
    xl_json_put_text(&e.j, "rung", c->r->name);
    xl_json_put_text(&e.j, "verdict", verdicts[c->verdict]);
    xl_json_put_text(&e.j, "layer", xl_layer_word(c->layer));
    xl_json_put_str(&e.j, "why", c->why);
    xl_json_put_num(&e.j, "seconds", c->seconds);
    if (c->ran_cold) {
        xl_json_put_int(&e.j, "cold_compiles", c->cold.compiles);
        xl_json_put_int(&e.j, "cold_executes", c->cold.executes);
    }
    if (c->ran_warm) {
        xl_json_put_int(&e.j, "restored_compiles", c->warm.compiles);
        xl_json_put_int(&e.j, "restored_executes", c->warm.executes);
    }
    xl_event_end(run, &e);
}

static void put_names(xl_buf *b, const char *before, const climb *c, size_t n, int verdict)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if ((int)c[i].verdict == verdict) {
            xl_buf_printf(b, "%s%s", k++ ? ", " : before, c[i].r->name);
            if (verdict == SKIPPED)
                xl_buf_printf(b, " (%.*s)", XL_FMT(c[i].why));
        }
}

/* The sentence at the end: every rung passed, or how many of them, which failed, which were skipped, and how many were
 * not tried. */
static void put_end(xl_buf *b, const climb *c, size_t n, size_t all, bool *bad)
{
    size_t count[4] = { 0 };
    for (size_t i = 0; i < n; i++)
        count[c[i].verdict]++;
    size_t passed = count[PASSED] + count[REHEARSED], tried = n - count[SKIPPED], left = all - n;
    const char *word = opt.topology ? "rehearsed" : "passed";
    *bad = count[FAILED] > 0;
    if (opt.topology)
        left -= left > 0;                                   /* the probe is no rung of a rehearsal */
    if (passed == tried && !left && !count[SKIPPED])
        xl_buf_printf(b, "every rung %s", word);
    else
        xl_buf_printf(b, "%zu of %zu rungs %s", passed, tried, word);
    put_names(b, "; failed: ", c, n, FAILED);
    put_names(b, "; skipped: ", c, n, SKIPPED);
    if (left)
        xl_buf_printf(b, "; %zu not tried", left);
}

static void leave_receipt(const xl_cli *cli, const climb *c, size_t n, const xl_probe *probe, const char *plugin,
                          const char *dir, const char *state, bool bad)
{
    xl_arena *a = cli->arena;
    xl_receipt_rung *rung = xl_new(a, xl_receipt_rung, n);
    const char *passing = NULL, *failing = NULL;
    for (size_t i = 0; i < n; i++) {
        failing = !failing && c[i].verdict == FAILED ? c[i].r->name : failing;
        passing = !passing && c[i].verdict <= REHEARSED ? c[i].r->name : passing;
        rung[i] =
            (xl_receipt_rung){ .name = c[i].r->name,
                               .verdict = verdicts[c[i].verdict],
                               .layer = xl_layer_word(c[i].layer),
                               .why = c[i].why,
                               .cold = { c[i].ran_cold, c[i].cold.compiles, c[i].cold.loaded, c[i].cold.executes },
                               .restored = { c[i].ran_warm, c[i].warm.compiles, c[i].warm.loaded,
                                             c[i].warm.executes } };
    }
    size_t narg = 2;
    char **command = xl_new(a, char *, 8 + opt.set.n);
    command[0] = "xlane";
    command[1] = "ladder";
    const struct {
        const char *name, *value;
    } given[] = { { "plugin", opt.plugin }, { "topology", opt.topology }, { "only", opt.only } };
    for (size_t i = 0; i < 3; i++)
        if (given[i].value)
            command[narg++] = xl_str_c(a, xl_strf(a, "--%s=%s", given[i].name, given[i].value));
    for (size_t i = 0; i < opt.set.n; i++)
        command[narg++] = xl_str_c(a, xl_strf(a, "--set=%s", opt.set.p[i]));
    size_t right = 0;
    for (size_t i = 0; i < probe->ndevice; i++)
        right += probe->device[i].right;
    const char *devices = opt.topology ? NULL
                          : probe->ndevice
                              ? xl_strf(a, "%zu of %zu: %.*s", right, probe->ndevice, XL_FMT(probe->device[0].kind)).p
                              : "no: none came up";
    xl_error *no = xl_receipt_write(a,
                                    &(xl_receipt_facts){ .kind = "ladder",
                                                         .dir = dir,
                                                         .argc = (int)narg,
                                                         .argv = command,
                                                         .status = bad,
                                                         .plugin = plugin,
                                                         .devices = devices,
                                                         .cache = opt.topology ? NULL : xl_path_join(a, state, "cache"),
                                                         .first_passing = passing,
                                                         .next_failing = failing,
                                                         .rung = rung,
                                                         .nrung = n,
                                                         .rehearsed = opt.topology != NULL,
                                                         .topology = opt.topology },
                                    NULL);
    if (no)
        fprintf(stderr, "xlane: no receipt: %s\n", xl_error_message(no));
    xl_error_free(no);
}

/* What the rungs share. */
typedef struct { const xl_cli *cli; xl_probe probe; xl_plugin_choice choice; char exe[4096], *state; } climber;

/* Why a rung of this kind is not tried; NULL: it is. A rehearsal compiles a model, so a rung without one is skipped. */
static const char *why_skipped(xl_rung_kind kind, size_t ndevice)
{
    switch (kind) {
    case XL_RUNG_MESH:
        return opt.topology ? "rehearsals of one program tell nothing of it" : ndevice < 2 ? "one device only" : NULL;
    case XL_RUNG_PROBE: case XL_RUNG_TRAIN: case XL_RUNG_SCAN: case XL_RUNG_RESUME: break;
    }
    return NULL;
}

static xl_error *climb_rung(climber *w, climb *k)
{
    xl_error *err = NULL;
    xl_arena *a = w->cli->arena;
    const xl_probe *p = &w->probe;
    const char *why = why_skipped(k->r->kind, p->ndevice);
    double began = xl_now();
    if (k->r->kind == XL_RUNG_PROBE) {
        XL_DO(xl_probe_run(a, &(xl_probe_opts){ .plugin = opt.plugin }, &w->probe));
        if (p->class != XL_PROBE_HEALTHY)
            fail(k, layer_of_probe(p->class),
                 xl_strf(a, "%s: %.*s; %.*s", xl_probe_word(p->class), XL_FMT(p->reason), XL_FMT(p->next)));
        if (!opt.plugin && p->plugin.n)
            opt.plugin = xl_str_c(a, p->plugin); /* the rungs climb on what was probed, whatever else may be found */
    } else if (why) {
        k->verdict = SKIPPED;
        k->why = xl_str_of(why);
    } else if (opt.topology) {
        XL_DO(rehearse(w->cli, w->choice.path, k));
    } else {
        XL_DO(phase(a, w->exe, k->r, w->state, "cold", &k->cold));
        k->ran_cold = true;
        judge(a, k);
        if (k->verdict == PASSED) {
            XL_DO(phase(a, w->exe, k->r, w->state, "restored", &k->warm));
            k->ran_warm = true;
            judge(a, k);
        }
    }
    k->seconds = xl_now() - began;
out:
    return err;
}

static xl_error *ladder(const xl_cli *cli, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (opt.child)
        return one_rung(cli);
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    climber w = { .cli = cli };
    xl_run *run = NULL;
    xl_buf b = { 0 };
    size_t n, done = 0;
    const xl_rung *all = xl_rungs(&n);
    climb *c = xl_new(a, climb, n);
    char *dir = NULL;
    double start = xl_now();
    bool stop = false;
    ssize_t len = readlink("/proc/self/exe", w.exe, sizeof w.exe - 1);
    w.exe[len > 0 ? len : 0] = 0;
    if (opt.only && !xl_rung_find(opt.only)) {
        for (size_t i = 0; i < n; i++)
            xl_buf_printf(&b, "%s%s", i ? ", " : "", all[i].name);
        err = xl_cli_misuse(cli, "there is no rung '%s'; there are %.*s", opt.only, (int)b.n, b.p);
        goto out;
    }
    if (opt.topology)
        XL_DO(xl_plugin_find(a,
                             &(xl_plugin_wish){ .named = opt.plugin                          ? opt.plugin
                                                         : strncmp(opt.topology, "xlane", 5) ? "tpu"
                                                                                             : "cpu" },
                             &w.choice));
    XL_DO(xl_run_make(a, opt.runs ? opt.runs : xl_runs_folder(), opt.topology ? "ladder-rehearsed" : "ladder", &dir));
    XL_DO(xl_run_open(dir, &run));
    char *whole = realpath(dir, NULL);
    w.state = xl_path_join(a, whole ? whole : dir, "state");
    free(whole);
    XL_DO(xl_dir_make(w.state));
    chmod(w.state, 0700);
    FILE *out = cli->json ? stderr : stdout;
    if (opt.topology)
        fprintf(out, "%-8s %-10s %31s %11s  %s\n", "rung", "verdict", "needs", "compile", "what it adds");
    else
        fprintf(out, "%19s %17s %17s\n%-8s %-10s %8s %8s %8s %8s %8s  %s\n", "", "---- cold start -",
                "---- restored ---", "rung", "verdict", "compiles", "runs", "compiles", "runs", "time", "what it adds");
    for (size_t i = 0; i < n && !stop; i++) {
        climb *k = &c[done];
        k->r = &all[i];
        if (opt.only && strcmp(all[i].name, opt.only) && all[i].kind != XL_RUNG_PROBE)
            continue;
        if (all[i].kind == XL_RUNG_PROBE && opt.topology)
            continue;                       /* there is no device to probe */
        XL_DO(climb_rung(&w, k));
        put_row(cli, k);
        note(run, k);
        done++;
        if (k->verdict == FAILED) {
            fprintf(cli->json ? stderr : stdout, "         blamed on the %s layer: %.*s\n", xl_layer_word(k->layer),
                    XL_FMT(k->why));
            stop = !opt.keep_going || all[i].kind == XL_RUNG_PROBE;
        }
    }
    xl_str device = opt.topology ? xl_str_of(opt.topology) : w.probe.ndevice ? w.probe.device[0].text : XL_STR("");
    put_json(&(xl_json){ .out = &b, .pretty = true }, c, done, device, xl_now() - start, dir);
    XL_DO(xl_file_write_atomic(xl_path_join(a, dir, "ladder.json"), xl_buf_view(&b)));
    bool bad = false;
    xl_buf said = { 0 };
    put_end(&said, c, done, n, &bad);
    leave_receipt(cli, c, done, &w.probe, opt.topology ? w.choice.path : xl_str_c(a, w.probe.plugin), dir, w.state,
                  bad);
    if (cli->json)
        XL_DO(xl_cli_put(&b));
    else
        printf("%.*s; it took %.1f s; recorded in %s/ladder.json\n", XL_FMT(xl_buf_view(&said)), xl_now() - start, dir);
    xl_buf_fini(&said);
    if (bad)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_run_close(run);
    xl_buf_fini(&b);
    return err;
}

XL_VERB(ladder) = {
    .name = "ladder",
    .args = "[--plugin=PATH] [--topology=NAME]",
    .help = "bring up a device: from the probe to a hybrid model, one feature at a time",
    .more =
        "Each rung is trained for six steps in its own process, cold, and again in a second process that must find "
        "the\n"
        "executable in the cache. A rung passes when the losses are right, nothing is recompiled and executions are "
        "counted;\n"
        "time does not matter. The first failure is attributed to a layer: host (files, libraries), startup "
        "(device), graph\n"
        "(compile, numbers, recompiles) or cache.",
    .example = "xlane ladder\n"
               "xlane ladder --plugin=tpu --json\n"
               "xlane ladder --topology=v6e:2x2",
    .opts = opts,
    .min = 0,
    .max = 0,
    .run = ladder,
};
