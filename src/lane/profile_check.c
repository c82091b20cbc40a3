/* Checks a profile before anything starts. */
#include <stdio.h>
#include <stdlib.h>

#include "base/secret.h"
#include "base/file.h"
#include "lane/flags.h"
#include "lane/profile.h"
#include "pjrt/plugin.h"

/* ---- the host's memory ---- */
static uint64_t number_in(xl_arena *a, const char *path, const char *after)
{
    xl_str text;
    uint64_t v = 0;
    xl_error *err = xl_file_read_max(a, path, 1 << 16, &text);
    if (!err) {
        const char *at = strstr(text.p, after);
        v = at ? strtoull(at + strlen(after), NULL, 10) : 0;
    }
    xl_error_free(err);
    return v;
}

/* What this process may have: the machine's memory, or its control group's if that is less. */
static uint64_t host_memory(xl_arena *a)
{
    const char *test = getenv("XLANE_HOST_MEMORY"); /* another host's figure, to check a profile for it */
    uint64_t want, total = number_in(a, "/proc/meminfo", "MemTotal:") << 10,
                   group = number_in(a, "/sys/fs/cgroup/memory.max", "");
    if (test && xl_str_size(xl_str_of(test), &want))
        return want;
    return group && group < total ? group : total;
}

static uint64_t size_of(const xl_profile *p, const char *name)
{
    const xl_setting *s = xl_profile_get(p, name);
    uint64_t v = 0;
    return s && xl_str_size(s->value, &v) ? v : 0;
}

static xl_str gib(xl_arena *a, uint64_t n)
{
    return n >= 1 << 30   ? xl_strf(a, "%.2f GiB", (double)n / (1 << 30))
           : n >= 1 << 20 ? xl_strf(a, "%.1f MiB", (double)n / (1 << 20))
                          : xl_strf(a, "%llu bytes", (unsigned long long)n);
}

xl_error *xl_profile_budget(xl_arena *a, const xl_profile *p, xl_host_budget *out)
{
    enum { PAGE = 4096 };
    *out = (xl_host_budget){ size_of(p, "device.premapped_buffer"), size_of(p, "device.loader_memory"),
                             size_of(p, "device.headroom"), host_memory(a) };
    const xl_setting *s = xl_profile_get(p, "device.premapped_buffer");
    if (!out->premapped)
        return NULL;
    if (out->premapped % PAGE)
        return XL_ERR(INVALID,
                      "TPU_PREMAPPED_BUFFER_SIZE is %llu (%.*s), which is not a multiple of the page size, %d; the "
                      "next one that is: %llu",
                      (unsigned long long)out->premapped, XL_FMT(s->origin), PAGE,
                      (unsigned long long)((out->premapped / PAGE + 1) * PAGE));
    uint64_t sum = out->premapped, host = out->host;
    if (host && (__builtin_add_overflow(sum, out->loader, &sum) || __builtin_add_overflow(sum, out->headroom, &sum) ||
                 sum > host)) {
        uint64_t others = out->loader + out->headroom, room = host > others ? (host - others) / PAGE * PAGE : 0;
        return XL_ERR(EXHAUSTED,
                      "this host has %.*s of memory; the premapped buffer wants %.*s (%.*s), the data loader keeps "
                      "%.*s and %.*s are left "
                      "to the system: at most %.*s remain for TPU_PREMAPPED_BUFFER_SIZE; set "
                      "device.premapped_buffer to %llu or less",
                      XL_FMT(gib(a, host)), XL_FMT(gib(a, out->premapped)), XL_FMT(s->origin),
                      XL_FMT(gib(a, out->loader)), XL_FMT(gib(a, out->headroom)), XL_FMT(gib(a, room)),
                      (unsigned long long)room);
    }
    return NULL;
}

/* ---- findings ---- */
typedef struct { xl_arena *a; xl_finding *p; size_t n, cap; } findings;

static void add(findings *f, bool fatal, xl_str text)
{
    XL_PUSH(f->a, f->p, f->n, f->cap, ((xl_finding){ .fatal = fatal, .text = text }));
}

/* Flags that a frontend adds on import where nobody named them, so that what holds depends on who was imported. */
static const struct { const char *flag, *by, *value; } appended[] = {
    { "xla_tpu_use_enhanced_launch_barrier", "JAX", "true" },
    { "xla_tpu_use_enhanced_launch_barrier", "PyTorch/XLA", "false" },
};

static bool for_tpu(const xl_profile *p, const char *plugin)
{
    const xl_setting *s = xl_profile_get(p, "device.plugin"), *d = xl_profile_get(p, "device.pjrt_device"),
                     *j = xl_profile_get(p, "device.jax_platforms");
    return (plugin && strstr(plugin, "libtpu")) || (s && xl_str_is(s->value, "tpu")) ||
           (d && xl_str_is(d->value, "TPU")) || (j && xl_str_starts(j->value, XL_STR("tpu")));
}

static void check_appended(findings *f, const xl_profile *p)
{
    const xl_setting *s = NULL;
    for (size_t i = 0; i < p->n; i++)
        if (p->set[i].flag && xl_str_is(p->set[i].word, appended[0].flag) && !strcmp(p->set[i].var, "LIBTPU_INIT_ARGS"))
            s = &p->set[i];
    if (s && s->value.n)
        return;
    add(f, false,
        xl_strf(f->a,
                "LIBTPU_INIT_ARGS does not say %s: on import %s appends %s and %s appends %s, so the value depends on "
                "the frontend; "
                "set flags.libtpu.%s",
                appended[0].flag, appended[0].by, appended[0].value, appended[1].by, appended[1].value,
                appended[0].flag));
}

static void check_flag(findings *f, const xl_setting *s, const xl_flag_set *set, const char *who)
{
    if (xl_flags_know(set, s->word))
        return;
    xl_str near = xl_flags_nearest(set, s->word);
    add(f, true,
        xl_strf(f->a, "%.*s: %s, %s, knows no flag --%.*s and would end the process at start%s%.*s%s",
                XL_FMT(s->origin), xl_path_base(xl_str_of(set->path)).p, who, XL_FMT(s->word),
                near.n ? "; the nearest it knows is --" : "; it knows none like it", XL_FMT(near),
                near.n ? "" : ": take it out"));
    f->p[f->n - 1].flag = true;
}

static bool scannable(xl_str word)
{
    return xl_str_starts(word, XL_STR("xla_")) || xl_str_starts(word, XL_STR("megascale_")) ||
           xl_str_starts(word, XL_STR("tpu_"));
}

xl_error *xl_profile_check(xl_arena *a, const xl_profile *p, const char *plugin, const char *frontend, xl_finding **out,
                           size_t *n)
{
    xl_error *err = NULL;
    findings f = { .a = a };
    xl_flag_set in_plugin = { 0 }, in_frontend = { 0 };
    xl_host_budget budget;
    size_t flags = 0;
    for (size_t i = 0; i < p->n; i++)
        flags += p->set[i].flag && p->set[i].value.n;
    if (flags && plugin)
        XL_TRY(xl_flags_scan(a, plugin, &in_plugin), "reading the flags the plugin knows");
    if (flags && frontend)
        XL_TRY(xl_flags_scan(a, frontend, &in_frontend), "reading the flags the frontend knows");
    for (size_t i = 0; i < p->n; i++) {
        const xl_setting *s = &p->set[i];
        if (s->shadow.n)
            add(&f, false,
                xl_strf(a, "%.*s: %.*s=%.*s; the environment says %.*s, which does not count", XL_FMT(s->origin),
                        XL_FMT(s->name), XL_FMT(s->value), XL_FMT(s->shadow)));
        if (!s->flag || !s->value.n)
            continue;
        if (!scannable(s->word)) {
            if (plugin)
                add(&f, false,
                    xl_strf(a,
                            "%.*s: --%.*s could not be checked: only names that start with xla_, tpu_ or megascale_ "
                            "can be told apart from other "
                            "strings of a library",
                            XL_FMT(s->origin), XL_FMT(s->word)));
            continue;
        }
        if (in_plugin.n && (strcmp(s->var, "LIBTPU_INIT_ARGS") || for_tpu(p, plugin)))
            check_flag(&f, s, &in_plugin, "the plugin");
        if (in_frontend.n && !strcmp(s->var, "XLA_FLAGS"))  /* the frontend's own XLA reads that one too */
            check_flag(&f, s, &in_frontend, "which the frontend loads");
    }
    if (for_tpu(p, plugin))
        check_appended(&f, p);
    xl_error *refused = xl_profile_budget(a, p, &budget);
    if (refused)
        add(&f, true, xl_str_dup(a, xl_str_of(xl_error_message(refused))));
    xl_error_free(refused);
    const xl_setting *chips = xl_profile_get(p, "device.visible_chips"), *spmd = xl_profile_get(p, "spmd.enabled"),
                     *automatic = xl_profile_get(p, "spmd.automatic");
    if (automatic && xl_str_is(automatic->value, "1") && spmd && xl_str_is(spmd->value, "0"))
        add(&f, true,
            xl_strf(a, "%.*s: spmd.automatic needs spmd.enabled, which is off (%.*s)", XL_FMT(automatic->origin),
                    XL_FMT(spmd->origin)));
    if (chips && chips->value.n && spmd && xl_str_is(spmd->value, "1") && !memchr(chips->value.p, ',', chips->value.n))
        add(&f, false,
            xl_strf(a, "%.*s: one visible chip leaves SPMD nothing to partition over", XL_FMT(chips->origin)));
out:
    *out = f.p;
    *n = f.n;
    return err;
}

const char *xl_profile_frontend(xl_arena *a)
{
    size_t n;
    const char **site = xl_python_sites(a, &n);
    static const char *const names[] = { "jaxlib/libjax_common.so", "jaxlib/xla_extension.so" };
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++) {
            char *path = xl_path_join(a, site[i], names[k]);
            if (xl_file_stat(path, NULL))
                return path;
        }
    return NULL;
}

xl_error *xl_profile_plugin(xl_arena *a, const xl_profile *p)
{
    xl_error *err = NULL;
    xl_plugin_choice choice;
    const xl_setting *s = xl_profile_get(p, "device.plugin");
    const char *named = s && s->value.n && !xl_str_is(s->origin, "environment") ? xl_str_c(a, s->value) : NULL;
    if (!named || xl_plugin_word(named))
        return NULL;
    err = xl_plugin_find(a, &(xl_plugin_wish){ .named = named }, &choice);
    if (!err)
        err = xl_plugin_inspect(choice.path);
    if (!err && !xl_plugin_exports(a, choice.path))
        err = XL_ERR(PRECONDITION, "%s: a library, but no PJRT plugin: it exports no GetPjrtApi", choice.path);
    return xl_error_next(xl_error_wrap(err, "%.*s: device.plugin", XL_FMT(s->origin)),
                         "name the plugin's file there, or one of cpu, tpu, cuda");
}

/* ---- two profiles ---- */
void xl_profile_diff(xl_arena *a, const xl_profile *x, const xl_profile *y, xl_profile_change **out, size_t *n)
{
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    for (size_t i = 0, k = 0; i < x->n || k < y->n;) { /* both are sorted by name */
        int c = i == x->n ? 1 : k == y->n ? -1 : xl_str_cmp(x->set[i].name, y->set[k].name);
        const xl_setting *l = c <= 0 ? &x->set[i++] : NULL, *r = c >= 0 ? &y->set[k++] : NULL;
        if (l && r && xl_str_eq(l->value, r->value))
            continue;
        xl_profile_change ch = { .name = (l ? l : r)->name };
        if (l) {
            ch.before = l->value;
            ch.before_origin = l->origin;
        }
        if (r) {
            ch.after = r->value;
            ch.after_origin = r->origin;
        }
        XL_PUSH(a, *out, *n, cap, ch);
    }
}

/* A flag in XLA_FLAGS has a name of its own beside that of the variable. */
static xl_str hidden(xl_arena *a, const xl_setting *s, xl_str value)
{
    return xl_secret_env(a, s->var && xl_secret_name(xl_str_of(s->var)) ? xl_str_of(s->var) : s->name, value);
}

void xl_profile_json(xl_json *j, const xl_profile *p)
{
    xl_arena tmp = { 0 };
    xl_json_map(j);
    xl_json_put_str(j, "name", p->name);
    xl_json_put_text(j, "digest", p->digest);
    xl_json_put_bool(j, "diagnostic", p->diagnostic);
    xl_json_key(j, "files");
    xl_json_list(j);
    for (size_t i = 0; i < p->nchain; i++)
        xl_json_str(j, p->chain[i]);
    xl_json_end(j);
    xl_json_key(j, "values");
    xl_json_map(j);
    for (size_t i = 0; i < p->n; i++) {
        const xl_setting *s = &p->set[i];
        xl_json_keyn(j, s->name);
        xl_json_map(j);
        xl_json_put_str(j, "value", hidden(&tmp, s, s->value));
        if (s->var)
            xl_json_put_text(j, "variable", s->var);
        xl_json_put_str(j, "origin", s->origin);
        if (s->shadow.n)
            xl_json_put_str(j, "overrides", hidden(&tmp, s, s->shadow));
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_end(j);
    xl_arena_fini(&tmp);
}
