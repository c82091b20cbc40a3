#include "lane/receipt.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/secret.h"
#include "base/time.h"
#include "lane/bundle.h"
#include "lane/metrics.h"
#include "lane/run.h"

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
        const xl_node *what = xl_node_get(s->e[i], "event"), *module = xl_node_get(s->e[i], "module"), *result = xl_node_get(s->e[i], "result");
        if (!what)
            continue;
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

static const char *restore_method(const story *s, const char *cache)
{
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
    xl_str text;
    uint64_t peak = 0;
    xl_error *err = xl_file_read_max(a, xl_path_join(a, dir, "memory.csv"), 64 << 20, &text);
    while (!err && text.n) { /* t,rank,pid,device,step,bytes_in_use,peak,... */
        xl_str line = xl_str_cut(&text, '\n'), field = { 0 };
        int64_t v;
        for (int i = 0; i < 7; i++)
            field = xl_str_cut(&line, ',');
        if (xl_str_i64(field, &v) && v > 0 && (uint64_t)v > peak)
            peak = (uint64_t)v;
    }
    xl_error_free(err);
    return peak;
}

static xl_str text_of(const xl_node *n, const char *key)
{
    const xl_node *v = xl_node_get(n, key);
    return v ? v->s : (xl_str){ "", 0 };
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
        xl_str what = text_of(s->e[i], "event"), text = text_of(s->e[i], "text");
        static const char *const kept[] = { "late-flag", "late-spmd", "sync", "hang", "stop", "retry", "memory" };
        bool keep = false;
        for (size_t k = 0; k < sizeof kept / sizeof *kept; k++)
            keep |= xl_str_is(what, kept[k]);
        if (!keep)
            continue;
        xl_json_map(j);
        xl_json_put_str(j, "text", xl_strf(a, "%.*s: %.*s%.*s", XL_FMT(what), XL_FMT(text), XL_FMT(text_of(s->e[i], "error"))));
        xl_json_put_str(j, "source", xl_strf(a, "events.jsonl:%u", s->e[i]->line));
        xl_json_end(j);
    }
    xl_json_end(j);
}

static void put_facts(xl_arena *a, xl_json *j, const xl_receipt_facts *f, const story *s, const xl_bundle *b, xl_str plugin)
{
    xl_buf t = { 0 };
    xl_json_key(j, "facts");
    xl_json_list(j);
    for (int i = 0; i < f->argc; i++)
        xl_buf_printf(&t, "%s%.*s", i ? " " : "", XL_FMT(xl_secret_arg(a, f->argc, f->argv, i)));
    put_fact(j, "command", xl_buf_view(&t));
    put_fact(j, "exit_status", xl_strf(a, "%d", f->status));
    const char *profile = getenv("XLANE_PROFILE");
    put_fact(j, "profile", xl_str_of(profile ? profile : "none"));
    put_fact(j, "flags_at_load", text_of(s->client ? s->client : s->attach, "flags"));
    put_fact(j, "plugin", xl_strf(a, "%.*s %.*s", XL_FMT(plugin), XL_FMT(text_of(s->attach, "identity"))));
    put_fact(j, "driver", b->driver.n ? b->driver : XL_STR("none"));
    put_fact(j, "kernel", b->kernel);
    put_fact(j, "libc", b->libc);
    t.n = 0;
    for (size_t i = 0; i < b->npackage; i++)
        xl_buf_printf(&t, "%s%.*s==%.*s", i ? " " : "", XL_FMT(b->package[i].name), XL_FMT(b->package[i].version));
    put_fact(j, "packages", xl_buf_view(&t));
    if (!f->rehearsed) {
        const xl_node *ok = xl_node_get(s->client, "ok");
        put_fact(j, "devices_answer", ok ? ok->b ? XL_STR("yes") : XL_STR("no") : XL_STR("not asked"));
        put_fact(j, "restore", xl_strf(a, "%s: %llu compiled, %llu from the cache, %llu from the frontend's own, %llu executed", restore_method(s, f->cache),
                                       (unsigned long long)s->compiled, (unsigned long long)s->cached, (unsigned long long)s->frontend,
                                       (unsigned long long)s->executed));
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
    xl_str plugin = f->plugin ? xl_str_of(f->plugin) : text_of(s.attach, "plugin");
    xl_bundle_collect(a, plugin.n ? xl_str_c(a, plugin) : NULL, &b);
    xl_json_map(&j);
    xl_json_put_int(&j, "receipt", 1);
    xl_json_put_text(&j, "kind", f->kind);
    xl_json_put_text(&j, "made", xl_time_iso(xl_now_wall(), iso));
    if (f->dir)
        xl_json_put_str(&j, "run", xl_path_base(xl_str_of(f->dir)));
    xl_json_put_text(&j, "proof", f->rehearsed ? "rehearsed" : "ran");
    if (f->topology)
        xl_json_put_text(&j, "topology", f->topology);
    xl_json_put_text(&j, "claim", "viability"); /* that it starts, compiles and runs here; nothing of how good the result is */
    const char *diagnostic = getenv("XLANE_DIAGNOSTIC");
    xl_json_put_bool(&j, "diagnostic", diagnostic && !strcmp(diagnostic, "1"));
    xl_json_key(&j, "rungs");
    xl_json_map(&j);
    xl_json_put_text(&j, "first_passing", f->first_passing);
    xl_json_put_text(&j, "next_failing", f->next_failing);
    xl_json_end(&j);
    xl_json_key(&j, "restore");
    xl_json_map(&j);
    xl_json_put_text(&j, "method", f->rehearsed ? "none: rehearsed" : restore_method(&s, f->cache));
    xl_json_put_text(&j, "cache", f->cache);
    xl_json_put_text(&j, "again", "xlane lock verify, then the same command under the same cache");
    xl_json_end(&j);
    xl_json_key(&j, "owners");
    xl_json_map(&j);
    xl_json_put_text(&j, "frontend", s.torch ? "PyTorch/XLA" : s.jax ? "JAX" : strcmp(f->kind, "run") ? "xlane" : s.client ? "another" : "none");
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

xl_error *xl_receipt_read(xl_arena *a, const char *path, xl_node **out)
{
    xl_error *err = NULL;
    xl_file_info info;
    xl_str text;
    if (xl_file_stat(path, &info) && info.dir)
        path = xl_path_join(a, path, "receipt.json");
    *out = NULL;
    if (!xl_file_stat(path, NULL))
        return XL_ERR(NOT_FOUND, "%s is not there; name a run's folder, `last`, or a receipt's file: `xlane run`, `train` and `ladder` leave one", path);
    XL_DO(xl_file_read_max(a, path, 64 << 20, &text));
    XL_TRY(xl_json_read(a, path, text, out), "this receipt is damaged; do not lean on it");
    if (!xl_node_get(*out, "receipt"))
        err = XL_ERR(INVALID, "%s is not a receipt; `xlane run`, `train` and `ladder` leave one in a run's folder", path);
    else if (!xl_sealed_check(*out))
        err = XL_ERR(DATA_LOSS, "%s was changed after it was written: its checksum does not fit what it says; do not lean on it", path);
out:
    return err;
}
