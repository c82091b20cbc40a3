#include "lane/receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/secret.h"
#include "base/time.h"
#include "lane/bundle.h"
#include "lane/identity.h"
#include "lane/memory_csv.h"
#include "lane/metrics.h"
#include "lane/run.h"
#include "lane/verdict.h"

/* Facts by how long they hold. `when` says what makes one worth checking again; NULL: it is durable. */
typedef struct { const char *name, *owner, *when; } durability;
static const durability held[] = {
    { "command", "user", NULL },
    { "exit_status", "run", NULL },
    { "profile", "launch", NULL },
    { "flags_at_load", "launch", NULL },
    { "plugin", "runtime", "after the plugin's package was upgraded: `xlane lock verify`" },
    { "driver", "system", "after a driver upgrade or a reboot" },
    { "kernel", "system", "after a reboot" },
    { "libc", "system", "after a system upgrade" },
    { "packages", "frontend", "after any pip install" },
    { "devices_answer", "device", "at every start: `xlane probe`" },
    { "restore", "cache", "after any change of program, flags, plugin or driver: run it again under the same cache" },
    { "peak_memory", "device", "after a stack change: `xlane calibrate`" },
};

static void put_fact(xl_json *j, const char *name, xl_str value)
{
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (!strcmp(held[i].name, name)) {
            xl_json_map(j);
            xl_json_put_text(j, "fact", name);
            xl_json_put_str(j, "value", value);
            xl_json_put_text(j, "owner", held[i].owner);
            xl_json_put_text(j, "holds", held[i].when ? "recheck" : "durable");
            if (held[i].when)
                xl_json_put_text(j, "when", held[i].when);
            xl_json_end(j);
            return;
        }
}

typedef struct {
    const xl_node *attach, *client;
    bool torch, jax;
    uint64_t compiled, cached, frontend, executed;
    bool restored, any;
    bool least;                                            /* more may have been executed than was counted */
    int64_t signal;                                        /* that ended it */
    xl_node **e;
    size_t n;
} story;

static void read_story(xl_arena *a, const char *dir, story *s)
{
    xl_metrics *m = NULL;
    size_t processes = 0;
    if (!dir)
        return;
    xl_error_free(xl_run_events(a, dir, &s->e, &s->n));
    for (size_t i = 0; i < s->n; i++) {
        const xl_node *what = xl_node_get(s->e[i], "event"), *module = xl_node_get(s->e[i], "module"),
                      *result = xl_node_get(s->e[i], "result");
        if (!what)
            continue;
        s->any |= xl_str_is(what->s, "attach");
        if (xl_str_is(what->s, "attach") && !s->attach)
            s->attach = s->e[i];
        if (xl_str_is(what->s, "client") && !s->client)
            s->client = s->e[i];
        if (xl_str_is(what->s, "compile") && result) {
            s->compiled += xl_str_is(result->s, "compiled");
            s->cached += xl_str_is(result->s, "cached");
            s->frontend += xl_str_is(result->s, "loaded");
            if (module && xl_str_starts(module->s, XL_STR("SyncTensorsGraph")))
                s->torch = true;
            if (module && xl_str_starts(module->s, XL_STR("jit_")))
                s->jax = true;
        }
    }
    xl_error_free(xl_metrics_read(a, dir, &m, &processes));
    if (m)
        s->executed = xl_metrics_total(m, XL_M_ExecuteTime);
    xl_metrics_free(m);
}

/* Of a command: how it ended, and what that leaves uncounted. */
static void read_end(xl_arena *a, const xl_receipt_facts *f, story *s)
{
    xl_run_verdict v = { 0 };
    if (!f->dir || strcmp(f->kind, "run"))
        return;
    xl_error_free(xl_run_judge(a, f->dir, &v));
    s->least = xl_verdict_open(&v);
    s->signal = v.end.signal;
}

/* "12", "at least 12", "not counted". */
static xl_str executed_text(xl_arena *a, const story *s)
{
    return s->least && !s->executed
               ? XL_STR("executions not counted")
               : xl_strf(a, "%s%llu executed", s->least ? "at least " : "", (unsigned long long)s->executed);
}

/* What the rungs did, all passes together. */
static void add_rungs(const xl_receipt_facts *f, story *s)
{
    for (size_t i = 0; i < f->nrung; i++)
        for (int k = 0; k < 2; k++) {
            const xl_receipt_pass *p = k ? &f->rung[i].restored : &f->rung[i].cold;
            if (!p->seen)
                continue;
            s->compiled += (uint64_t)p->compiled;
            s->cached += (uint64_t)p->loaded;
            s->executed += (uint64_t)p->executed;
            s->restored |= k;
        }
}

/* Of a command that loaded no plugin under the guard, where nobody counted: what it compiled itself is not known. */
static bool unseen(const xl_receipt_facts *f, const story *s)
{
    return !strcmp(f->kind, "run") && !s->any && !s->compiled && !s->cached && !s->frontend && !s->executed;
}

static const char *restore_method(const xl_receipt_facts *f, const story *s)
{
    const char *cache = f->cache;
    if (f->nrung)
        return s->restored ? s->cached ? "executable-cache: each rung that passed, in a process of its own"
                                       : "tried; nothing came back"
                           : "not seen: no rung came to its restored pass";
    if (unseen(f, s))
        return "not-seen";
    if (!s->compiled && !s->cached && !s->frontend)
        return "nothing-compiled";
    if (!s->compiled)
        return s->cached ? "executable-cache" : "frontend-cache";
    if (s->cached || s->frontend)
        return "partly-restored";
    return cache && strcmp(cache, "off") ? "cold" : "cold-without-cache";
}

static uint64_t peak_memory(xl_arena *a, const char *dir)
{
    int64_t peak = 0;
    xl_memory_csv c = xl_memory_csv_open(a, dir);
    for (xl_memory_row r; xl_memory_csv_next(&c, &r);)
        peak = r.peak > peak ? r.peak : peak;
    return (uint64_t)peak;
}

/* What the run proved, in a word, and in a sentence. Only what was seen to run counts as such. */
static const char *proof_of(xl_arena *a, const xl_receipt_facts *f, const story *s, const char **claim, xl_str *why)
{
    *claim = "none";
    bool failed = f->status && !f->yet;
    if (failed && s->signal)
        *why = xl_strf(a, "it was ended by signal %d (%s)", (int)s->signal, strsignal((int)s->signal));
    else if (failed)
        *why =
            xl_strf(a, "it ended with exit status %d%s%s", f->status,
                    f->next_failing ? "; the first rung that failed is " : "", f->next_failing ? f->next_failing : "");
    if (failed)
        return "failed";
    if (f->rehearsed) {
        *claim = "compiles";
        *why = XL_STR("compiled for devices that were not there; nothing ran");
        return "rehearsed";
    }
    if (!s->executed) {
        *why = !strcmp(f->kind, "train")
                   ? XL_STR("no step was trained: all were done before, or it was stopped before the first")
               : s->least
                   ? XL_STR("a plugin was loaded under the guard, and its process ended without writing how often it "
                            "executed")
               : s->any
                   ? XL_STR("a plugin was loaded under the guard, and nothing was executed on it")
                   : XL_STR("no process loaded a plugin under the guard, so nothing that it did on a device was seen");
        return "not observed";
    }
    *claim = "viability"; /* that it starts, compiles and runs here; nothing of how good the result is */
    *why = f->yet ? xl_strf(a, "it ended with exit status %d: %s", f->status, f->yet) : (xl_str){ "", 0 };
    return "ran";
}

static void put_pass(xl_json *j, const char *key, const xl_receipt_pass *p)
{
    xl_json_key(j, key);
    if (!p->seen) {
        xl_json_text(j, "not seen");
        return;
    }
    xl_json_map(j);
    xl_json_put_int(j, "compiled", p->compiled);
    xl_json_put_int(j, "from_cache", p->loaded);
    xl_json_put_int(j, "executed", p->executed);
    xl_json_end(j);
}

static void put_rungs(xl_json *j, const xl_receipt_facts *f)
{
    xl_json_key(j, "rungs");
    xl_json_map(j);
    xl_json_put_text(j, "first_passing", f->first_passing);
    xl_json_put_text(j, "next_failing", f->next_failing ? f->next_failing : f->nrung ? "none of those tried" : NULL);
    if (f->nrung) {
        xl_json_key(j, "each");
        xl_json_list(j);
        for (size_t i = 0; i < f->nrung; i++) {
            const xl_receipt_rung *r = &f->rung[i];
            xl_json_map(j);
            xl_json_put_text(j, "name", r->name);
            xl_json_put_text(j, "verdict", r->verdict);
            if (r->layer && *r->layer)
                xl_json_put_text(j, "layer", r->layer);
            if (r->why.n)
                xl_json_put_str(j, "why", r->why);
            put_pass(j, "cold", &r->cold);
            put_pass(j, "restored", &r->restored);
            xl_json_end(j);
        }
        xl_json_end(j);
    }
    xl_json_end(j);
}

static void put_notes(xl_arena *a, xl_json *j, const xl_receipt_facts *f, const story *s)
{
    xl_json_key(j, "notes");
    xl_json_list(j);
    for (size_t i = 0; i < f->nnote; i++) {
        xl_json_map(j);
        xl_json_put_text(j, "text", f->note[i].text);
        xl_json_put_text(j, "source", f->note[i].source);
        xl_json_end(j);
    }
    for (size_t i = 0; i < s->n; i++) {
        xl_str what = xl_node_text(s->e[i], "event"), text = xl_node_text(s->e[i], "text");
        static const char *const kept[] = { "late-flag", "late-spmd", "sync", "hang", "stop", "retry", "memory" };
        bool keep = false;
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
            keep |= xl_str_is(what, kept[k]);
        if (!keep)
            continue;
        xl_json_map(j);
        xl_json_put_str(j, "text",
                        xl_strf(a, "%.*s: %.*s%.*s%.*s", XL_FMT(what), XL_FMT(text),
                                XL_FMT(xl_node_text(s->e[i], "why")), XL_FMT(xl_node_text(s->e[i], "error"))));
        xl_json_put_str(j, "source", xl_strf(a, "events.jsonl:%u", s->e[i]->line));
        xl_json_end(j);
    }
    xl_json_end(j);
}

static void put_facts(xl_arena *a, xl_json *j, const xl_receipt_facts *f, const story *s, const xl_bundle *b,
                      xl_str plugin)
{
    xl_buf t = { 0 };
    xl_json_key(j, "facts");
    xl_json_list(j);
    put_fact(j, "command", xl_secret_command(a, f->argc, f->argv));
    put_fact(j, "exit_status", xl_strf(a, "%d", f->status));
    const char *profile = getenv("XLANE_PROFILE");
    put_fact(j, "profile", xl_str_of(profile ? profile : "none"));
    put_fact(j, "flags_at_load", xl_node_text(s->client ? s->client : s->attach, "flags"));
    char file[128] = "";
    xl_str identity = xl_node_text(s->attach, "identity");
    if (!identity.n && plugin.n) {
        xl_identity_file(xl_str_c(a, plugin), file, sizeof file);
        identity = xl_strf(a, "file=%s", file);
    }
    put_fact(j, "plugin",
             plugin.n ? xl_strf(a, "%.*s %llu bytes %.*s", XL_FMT(plugin), (unsigned long long)b->plugin_size,
                                XL_FMT(identity))
                      : XL_STR("none was seen"));
    put_fact(j, "driver", b->driver.n ? b->driver : XL_STR("none"));
    put_fact(j, "kernel", b->kernel);
    put_fact(j, "libc", b->libc);
    for (size_t i = 0; i < b->npackage; i++)
        xl_buf_printf(&t, "%s%.*s==%.*s", i ? " " : "", XL_FMT(b->package[i].name), XL_FMT(b->package[i].version));
    put_fact(j, "packages", xl_buf_view(&t));
    if (!f->rehearsed) {
        const xl_node *ok = xl_node_get(s->client, "ok");
        put_fact(j, "devices_answer",
                 f->devices ? xl_str_of(f->devices)
                 : ok       ? ok->b ? XL_STR("yes") : XL_STR("no")
                            : XL_STR("not asked"));
        xl_str counts = xl_strf(a, ": %llu compiled, %llu from the cache, %llu from the frontend's own, %.*s",
                                (unsigned long long)s->compiled, (unsigned long long)s->cached,
                                (unsigned long long)s->frontend, XL_FMT(executed_text(a, s)));
        put_fact(j, "restore",
                 xl_strf(a, "%s%.*s", restore_method(f, s), XL_FMT(unseen(f, s) ? XL_STR("") : counts)));
        if (f->dir && peak_memory(a, f->dir))
            put_fact(j, "peak_memory", xl_strf(a, "%llu", (unsigned long long)peak_memory(a, f->dir)));
    }
    xl_json_end(j);
    xl_buf_fini(&t);
}

xl_error *xl_receipt_write(xl_arena *a, const xl_receipt_facts *f, const char *path)
{
    xl_error *err = NULL;
    xl_buf out = { 0 };
    xl_json j = { .out = &out };
    story s = { 0 };
    xl_bundle b;
    char iso[XL_TIME_ISO];
    if (!path && !f->dir)
        return XL_ERR(INVALID, "a receipt needs a file or a run's folder");
    read_story(a, f->dir, &s);
    read_end(a, f, &s);
    add_rungs(f, &s);
    if (f->executed > 0)
        s.executed = (uint64_t)f->executed;
    const char *claim;
    xl_str why = { "", 0 };
    const char *proof = proof_of(a, f, &s, &claim, &why);
    xl_str plugin = f->plugin ? xl_str_of(f->plugin) : xl_node_text(s.attach, "plugin");
    xl_bundle_collect(a, plugin.n ? xl_str_c(a, plugin) : NULL, &b);
    xl_json_map(&j);
    xl_json_put_int(&j, "receipt", 1);
    xl_json_put_text(&j, "kind", f->kind);
    xl_json_put_text(&j, "made", xl_time_iso(xl_now_wall(), iso));
    if (f->dir)
        xl_json_put_str(&j, "run", xl_path_base(xl_str_of(f->dir)));
    xl_json_put_text(&j, "proof", proof);
    if (why.n)
        xl_json_put_str(&j, "why", why);
    if (f->topology)
        xl_json_put_text(&j, "topology", f->topology);
    xl_json_put_text(&j, "claim", claim);
    const char *diagnostic = getenv("XLANE_DIAGNOSTIC");
    xl_json_put_bool(&j, "diagnostic", diagnostic && !strcmp(diagnostic, "1"));
    put_rungs(&j, f);
    xl_json_key(&j, "restore");
    xl_json_map(&j);
    xl_json_put_text(&j, "method", f->rehearsed ? "none: rehearsed" : restore_method(f, &s));
    xl_json_put_text(&j, "cache", f->cache);
    xl_json_put_text(&j, "again", "xlane lock verify, then the same command under the same cache");
    xl_json_end(&j);
    xl_json_key(&j, "owners");
    xl_json_map(&j);
    xl_json_put_text(&j, "frontend",
                     s.torch                  ? "PyTorch/XLA"
                     : s.jax                  ? "JAX"
                     : strcmp(f->kind, "run") ? "xlane"
                     : s.client               ? "another"
                     : unseen(f, &s)          ? "not seen"
                                              : "none");
    xl_json_put_str(&j, "runtime", plugin.n ? plugin : XL_STR("none"));
    xl_json_put_str(&j, "device", b.platform.n ? b.platform : XL_STR("the runtime's"));
    xl_json_put_text(&j, "cache", f->cache ? "xlane" : "none");
    xl_json_put_text(&j, "fallback", "none");
    xl_json_end(&j);
    xl_json_key(&j, "pins");
    xl_bundle_json(&j, &b);
    put_facts(a, &j, f, &s, &b, plugin);
    put_notes(a, &j, f, &s);
    xl_json_end(&j);
    if (out.failed) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    if (!path)
        path = xl_path_join(a, f->dir, "receipt.json");
    XL_TRY(xl_sealed_write(a, path, xl_buf_view(&out), true), "writing the receipt");
out:
    xl_buf_fini(&out);
    return err;
}

xl_str xl_receipt_words(xl_arena *a, const xl_node *r)
{
    xl_str proof = xl_node_text(r, "proof"), why = xl_node_text(r, "why"), claim = xl_node_text(r, "claim");
    if (xl_str_is(claim, "viability"))
        return xl_strf(a, "it %.*s%s%.*s, so it works here; nothing is said of the quality of its results",
                       XL_FMT(proof), why.n ? ": " : "", XL_FMT(why));
    return xl_strf(a, "%.*s%s%.*s, %.*s", XL_FMT(proof), why.n ? ": " : "", XL_FMT(why),
                   XL_FMT(xl_str_is(claim, "none") ? XL_STR("so it proves nothing") : claim));
}

const char *xl_receipt_newest(xl_arena *a, const char *dir)
{
    xl_str *names = NULL;
    xl_str made[2] = { 0 };              /* of the newest so far, by whether something ran */
    double at[2] = { 0 };
    const char *best[2] = { NULL, NULL };
    size_t n = 0;
    xl_error_free(xl_dir_list(a, dir, &names, &n));
    for (size_t i = 0; i < n; i++) {
        xl_node *r = NULL;
        xl_file_info info;
        const char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        if (!xl_receipt_name(names[i]) || !xl_file_stat(path, &info) || info.dir)
            continue;
        xl_error_free(xl_receipt_read(a, path, &r));
        xl_str when = xl_node_text(r, "made");
        int ran = r && !xl_node_is(r, "proof", "not observed");
        int order = best[ran] ? xl_str_cmp(when, made[ran]) : 1;
        if (order > 0 || (!order && info.mtime >= at[ran])) {
            best[ran] = path;
            made[ran] = when;
            at[ran] = info.mtime;
        }
    }
    return best[1] ? best[1] : best[0] ? best[0] : xl_path_join(a, dir, "receipt.json");
}

bool xl_receipt_name(xl_str name)
{
    return xl_str_starts(name, XL_STR("receipt")) && xl_str_ends(name, XL_STR(".json"));
}

xl_error *xl_receipt_read(xl_arena *a, const char *path, xl_node **out)
{
    xl_error *err = NULL;
    xl_file_info info;
    xl_str text;
    if (xl_file_stat(path, &info) && info.dir)
        path = xl_receipt_newest(a, path);
    *out = NULL;
    xl_str unended =
        xl_file_stat(path, NULL) ? (xl_str){ "", 0 } : xl_run_unended(a, xl_str_c(a, xl_path_dir(xl_str_of(path))));
    if (unended.n)
        return XL_ERR(NOT_FOUND, "%s is not there: %.*s", path, XL_FMT(unended));
    if (!xl_file_stat(path, NULL))
        return XL_ERR(NOT_FOUND,
                      "%s is not there; name a run's folder, `last`, or a receipt's file: `xlane run`, `train` and "
                      "`ladder` leave one",
                      path);
    XL_DO(xl_file_read_max(a, path, 64 << 20, &text));
    XL_TRY(xl_json_read(a, path, text, out), "this receipt is damaged; do not lean on it");
    if (!xl_node_get(*out, "receipt"))
        err =
            XL_ERR(INVALID, "%s is not a receipt; `xlane run`, `train` and `ladder` leave one in a run's folder", path);
    else if (!xl_sealed_check(*out))
        err = XL_ERR(DATA_LOSS,
                     "%s was changed after it was written: its checksum does not fit what it says; do not lean on it",
                     path);
out:
    return err;
}
