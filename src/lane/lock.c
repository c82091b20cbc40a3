#include "lane/lock.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/secret.h"
#include "base/hash.h"
#include "base/time.h"
#include "base/word.h"
#include "lane/bundle.h"
#include "lane/profile.h"
#include "lane/receipt.h"
#include "pjrt/plugin.h"

/* Every kind of item: whether it belongs to an architecture, and what its drift can break. */
static const struct { const char *kind; bool native; const char *breaks;
} kinds[] = {
    { "xlane", false, "files and cache entries of another version of xlane" },
    { "machine", true, "plugins, executables and hashes are of another architecture" },
    { "kernel", true, "device drivers and memory mapping; executables stay valid" },
    { "libc", true, "libraries built against a newer libc do not load" },
    { "driver", true,
      "GPU executables are keyed to the driver: the cache misses, and an older driver may refuse the plugin" },
    { "python", false, "wheels of another Python do not import" },
    { "package", false,
      "another frontend or plugin: its programs, flags and PJRT version may differ; cached executables may miss" },
    { "plugin", true, "another compiler and runtime: every executable is compiled again, numbers may differ" },
    { "environment", false, "the runtime reads it at start: other code, other devices or other memory" },
    { "profile", false, "another launch policy; `xlane profile show` tells each value" },
    { "folder", false, "without the cache's folder the restart is cold; without the runs' folder nothing is recorded" },
};

static const char *breaks(const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].kind, kind))
            return kinds[i].breaks;
    return "";
}

static bool native(const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].kind, kind))
            return kinds[i].native;
    return true;
}

static const char *known_kind(xl_str s)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (xl_str_is(s, kinds[i].kind))
            return kinds[i].kind;
    return NULL;
}

typedef struct { xl_arena *a; xl_lock *l; size_t cap; } builder;

static void add(builder *b, const char *kind, xl_str name, xl_str value)
{
    XL_PUSH(b->a, b->l->item, b->l->n, b->cap,
            ((xl_lock_item){ kind, xl_str_dup(b->a, name), xl_str_dup(b->a, value) }));
}

static const xl_lock_item *find(const xl_lock *l, const char *kind, xl_str name)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->item[i].kind, kind) && xl_str_eq(l->item[i].name, name))
            return &l->item[i];
    return NULL;
}

/* Every distribution that Python would import; of two of one name the first folder's counts. */
static void packages(builder *b)
{
    size_t n;
    const char **site = xl_python_sites(b->a, &n), *lib = n ? strstr(site[0], "/lib") : NULL;
    xl_str prefix = lib ? (xl_str){ site[0], (size_t)(lib - site[0]) } : (xl_str){ 0 }, cfg;
    /* A virtual environment imports only what is in it, unless it says otherwise. */
    xl_error *err = xl_file_read_max(b->a, xl_strf(b->a, "%.*s/pyvenv.cfg", XL_FMT(prefix)).p, 1 << 16, &cfg);
    bool alone = !err && strstr(cfg.p, "include-system-site-packages = false");
    xl_error_free(err);
    for (size_t s = 0; s < n; s++) {
        glob_t g;
        if (alone && !xl_str_starts(xl_str_of(site[s]), prefix))
            continue;
        if (glob(xl_strf(b->a, "%s/*.dist-info", site[s]).p, 0, NULL, &g) == 0)
            for (size_t i = 0; i < g.gl_pathc; i++) {
                xl_str base = xl_path_base(xl_str_of(g.gl_pathv[i]));
                base.n -= strlen(".dist-info");
                xl_str version = base, name = xl_str_cut(&version, '-');
                if (name.n && version.n && !find(b->l, "package", name))
                    add(b, "package", name, version);
            }
        globfree(&g);
    }
}

static bool lane_variable(const char *e)
{
    static const char *const prefixes[] = { "XLA_",    "LIBTPU_",    "PJRT_", "TPU_",         "JAX_",
                                            "PT_XLA_", "MEGASCALE_", "NCCL_", "CUDA_VISIBLE", "XLANE_CPU_" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(e, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

static int by_kind(const void *x, const void *y)
{
    const xl_lock_item *a = x, *b = y;
    size_t i = 0, k = 0;
    while (strcmp(kinds[i].kind, a->kind))
        i++;
    while (strcmp(kinds[k].kind, b->kind))
        k++;
    return i != k ? (i < k ? -1 : 1) : xl_str_cmp(a->name, b->name);
}

xl_error *xl_lock_collect(xl_arena *a, const xl_lock_wish *w, xl_lock *out)
{
    xl_error *err = NULL;
    xl_bundle v;
    char iso[XL_TIME_ISO];
    extern char **environ;
    *out = (xl_lock){ 0 };
    builder b = { .a = a, .l = out };
    xl_bundle_collect(a, NULL, &v);
    out->machine = v.machine;
    out->made = xl_str_dup(a, xl_str_of(xl_time_iso(xl_now_wall(), iso)));
    add(&b, "xlane", XL_STR("xlane"), v.xlane);
    add(&b, "machine", XL_STR("machine"), v.machine);
    add(&b, "kernel", XL_STR("kernel"), v.kernel);
    add(&b, "libc", XL_STR("libc"), v.libc);
    add(&b, "driver", XL_STR("nvidia"), v.driver.n ? v.driver : XL_STR("none"));
    if (v.python.n)
        add(&b, "python", XL_STR("python"), v.python);
    packages(&b);
    for (size_t i = 0; i < w->nplugin; i++) {
        xl_digest d;
        char hex[XL_DIGEST_HEX];
        xl_error *missing = xl_hash_file(w->plugin[i], &d);
        xl_str id = missing ? (xl_str){ 0 } : xl_plugin_build_id(a, w->plugin[i]);
        add(&b, "plugin", xl_str_of(w->plugin[i]),
            missing ? XL_STR("not there")
                    : xl_strf(a, "blake2b %s%s%.*s", xl_digest_hex(&d, hex), id.n ? " build-id " : "", XL_FMT(id)));
        xl_error_free(missing);
    }
    for (char **e = environ; *e; e++)
        if (lane_variable(*e)) {
            xl_str value = xl_str_of(*e), name = xl_str_cut(&value, '=');
            add(&b, "environment", name, value.p ? xl_secret_env(a, name, value) : XL_STR(""));
        }
    if (w->profile) {
        xl_profile p;
        xl_hash h;
        char hex[XL_DIGEST_HEX];
        XL_TRY(xl_profile_load(a, w->profile, &p), "the profile of the lock");
        xl_hash_init(&h);
        for (size_t i = 0; i < p.n; i++) {
            xl_hash_str(&h, p.set[i].name);
            xl_hash_str(&h, p.set[i].value);
        }
        xl_digest d = xl_hash_final(&h);
        add(&b, "profile", xl_str_of(w->profile), xl_strf(a, "%.16s", xl_digest_hex(&d, hex)));
    }
    if (w->cache)
        add(&b, "folder", xl_str_of(w->cache), xl_file_stat(w->cache, NULL) ? XL_STR("there") : XL_STR("not there"));
    if (w->runs)
        add(&b, "folder", xl_str_of(w->runs), xl_file_stat(w->runs, NULL) ? XL_STR("there") : XL_STR("not there"));
    qsort(out->item, out->n, sizeof *out->item, by_kind);
out:
    return err;
}

xl_error *xl_lock_write(xl_arena *a, const xl_lock *l, const char *path)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_json_map(&j);
    xl_json_put_int(&j, "lock", 1);
    xl_json_put_str(&j, "made", l->made);
    xl_json_put_str(&j, "machine", l->machine);
    xl_json_key(&j, "items");
    xl_json_list(&j);
    for (size_t i = 0; i < l->n; i++) {
        xl_json_map(&j);
        xl_json_put_text(&j, "kind", l->item[i].kind);
        xl_json_put_str(&j, "name", l->item[i].name);
        xl_json_put_str(&j, "value", l->item[i].value);
        xl_json_end(&j);
    }
    xl_json_end(&j);
    xl_json_end(&j);
    xl_error *err = b.failed ? XL_ERR(EXHAUSTED, "out of memory") : xl_sealed_write(a, path, xl_buf_view(&b), true);
    xl_buf_fini(&b);
    return err;
}

xl_error *xl_lock_read(xl_arena *a, const char *path, xl_lock *out)
{
    xl_error *err = NULL;
    xl_str text;
    xl_node *root;
    *out = (xl_lock){ 0 };
    builder b = { .a = a, .l = out };
    if (!xl_file_stat(path, NULL))
        return XL_ERR(NOT_FOUND, "%s is not there; `xlane lock write` makes one, --file names another", path);
    XL_DO(xl_file_read_max(a, path, 64 << 20, &text));
    XL_TRY(xl_json_read(a, path, text, &root), "this lock is damaged (`xlane lock write` makes another)");
    const xl_node *items = xl_node_get(root, "items");
    if (!xl_node_get(root, "lock") || !items || items->kind != XL_NODE_LIST)
        return XL_ERR(INVALID, "%s is not a lock; `xlane lock write` makes one", path);
    if (!xl_sealed_check(root))
        return XL_ERR(DATA_LOSS, "%s was changed after it was written: its checksum does not fit; remove it and write "
                                 "another (`xlane lock write`), or name another with --file",
                      path);
    XL_DO(xl_node_get_str(root, "machine", &out->machine));
    XL_DO(xl_node_get_str(root, "made", &out->made));
    for (size_t i = 0; i < items->n; i++) {
        xl_str kind = { 0 }, name = { 0 }, value = { 0 };
        XL_DO(xl_node_get_str(items->kid[i], "kind", &kind));
        XL_DO(xl_node_get_str(items->kid[i], "name", &name));
        XL_DO(xl_node_get_str(items->kid[i], "value", &value));
        if (known_kind(kind)) /* one that a newer version knows is left alone */
            add(&b, known_kind(kind), name, value);
    }
out:
    return err;
}

void xl_lock_compare(xl_arena *a, const xl_lock *l, const xl_lock *now, xl_drift **out, size_t *n)
{
    size_t cap = 0;
    bool foreign = !xl_str_eq(l->machine, now->machine);
    *out = NULL;
    *n = 0;
    for (int side = 0; side < 2; side++) {
        const xl_lock *from = side ? now : l, *to = side ? l : now;
        for (size_t i = 0; i < from->n; i++) {
            const xl_lock_item *x = &from->item[i], *y = find(to, x->kind, x->name);
            if ((side && y) || (y && xl_str_eq(x->value, y->value)))
                continue;
            if (foreign && native(x->kind) && strcmp(x->kind, "machine"))
                continue; /* that these differ says nothing more */
            xl_str locked = side ? (xl_str){ 0 } : x->value, here = side ? x->value : y ? y->value : (xl_str){ 0 };
            XL_PUSH(a, *out, *n, cap, ((xl_drift){ x->kind, x->name, locked, here, breaks(x->kind) }));
        }
    }
}

xl_lock_wish xl_lock_wanted(xl_arena *a, const xl_lock *l)
{
    xl_lock_wish w = { 0 };
    size_t cap = 0, folders = 0;
    for (size_t i = 0; i < l->n; i++) {
        const char *name = l->item[i].name.p;
        if (!strcmp(l->item[i].kind, "plugin"))
            XL_PUSH(a, w.plugin, w.nplugin, cap, name);
        else if (!strcmp(l->item[i].kind, "profile"))
            w.profile = name;
        else if (!strcmp(l->item[i].kind, "folder") && folders++ == 0)
            w.cache = name;
        else if (!strcmp(l->item[i].kind, "folder"))
            w.runs = name;
    }
    return w;
}

static void quoted(xl_buf *b, xl_str s)
{
    xl_buf_putc(b, '\'');
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\'')
            xl_buf_puts(b, "'\\''");
        else
            xl_buf_putc(b, s.p[i]);
    }
    xl_buf_putc(b, '\'');
}

void xl_lock_restore(const xl_lock *l, xl_buf *out)
{
    size_t packages = 0;
    xl_buf_printf(out, "# restores the lane locked at %.*s on %.*s; then: xlane lock verify\n", XL_FMT(l->made),
                  XL_FMT(l->machine));
    for (size_t i = 0; i < l->n; i++) {
        const xl_lock_item *x = &l->item[i];
        if (!strcmp(x->kind, "python"))
            xl_buf_printf(out, "python%.*s -m venv venv && . venv/bin/activate\n", XL_FMT(x->value));
        if (!strcmp(x->kind, "package")) {
            xl_buf_puts(out, packages++ ? " \\\n    " : "pip install --no-deps \\\n    ");
            quoted(out, (xl_str){ x->name.p, x->name.n });
            out->n--; /* into the quotes of the name */
            xl_buf_printf(out, "==%.*s'", XL_FMT(x->value));
        }
    }
    if (packages)
        xl_buf_putc(out, '\n');
    for (size_t i = 0; i < l->n; i++) {
        const xl_lock_item *x = &l->item[i];
        if (!strcmp(x->kind, "environment")) {
            xl_buf_printf(out, "export %.*s=", XL_FMT(x->name));
            quoted(out, x->value);
            xl_buf_putc(out, '\n');
        } else if (!strcmp(x->kind, "folder")) {
            xl_buf_puts(out, "mkdir -p ");
            quoted(out, x->name);
            xl_buf_putc(out, '\n');
        } else if (!strcmp(x->kind, "plugin")) {
            xl_buf_printf(out, "# %.*s must be %.*s\n", XL_FMT(x->name), XL_FMT(x->value));
        } else if (!strcmp(x->kind, "driver") || !strcmp(x->kind, "kernel") || !strcmp(x->kind, "libc")) {
            xl_buf_printf(out, "# %s was %.*s; the system's administrator owns it\n", x->kind, XL_FMT(x->value));
        } else if (!strcmp(x->kind, "profile")) {
            xl_buf_puts(out, "# launch with: xlane run --profile ");
            xl_buf_word(out, x->name.p);
            xl_buf_puts(out, " -- ...\n");
        }
    }
}
