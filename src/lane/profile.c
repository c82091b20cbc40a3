#include "lane/profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/yaml.h"
#include "lane/flags.h"
#include "lane/profile_text.h"
#include "pjrt/gate.h"
#include "pjrt/plugin.h"

typedef enum {
    KIND_BOOL,
    KIND_BOOL1,
    KIND_INT,
    KIND_NUM,
    KIND_SIZE,
    KIND_TEXT,
    KIND_LIST,
    KIND_POLICY,
    KIND_DUMP
} kind;
static const struct row {
    const char *group, *key;
    kind kind;
    const char *var;
    xl_setting_use use;
    const char *otherwise;
} rows[] = {
#define SETTING(group, key, kind, var, use, otherwise, help)                                                           \
    { #group, #key, KIND_##kind, var, XL_USE_##use, otherwise },
#include "lane/profile.def"
};
enum { NROW = sizeof rows / sizeof *rows, DEPTH_MOST = 16 };

/* Lists of flags and the names the `flags` group has for them. */
static const struct { const char *key, *var; } lists[] = { { "xla", "XLA_FLAGS" }, { "libtpu", "LIBTPU_INIT_ARGS" } };

/* ---- where profiles are ---- */
enum { AT_PROJECT, AT_USER, AT_BUILT_IN, NPLACE };
static const char *const places[NPLACE] = { "project", "user", "built-in" };

static const char *folder(xl_arena *a, int place)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (place == AT_PROJECT)
        return ".xlane/profiles";
    if (config && *config)
        return xl_path_join(a, config, "xlane/profiles");
    return home && *home ? xl_path_join(a, home, ".config/xlane/profiles") : NULL;
}

typedef struct { xl_str name, text; const char *file; int place; } source;

static xl_error *read_file(xl_arena *a, const char *path, xl_str name, int place, source *out)
{
    *out = (source){ .name = name, .file = path, .place = place };
    return xl_file_read_max(a, path, 1 << 20, &out->text);
}

/* Names alone: nothing is read, since a profile that cannot be read may be why we are asked. */
static void name_rows(xl_arena *a, xl_profile_row **out, size_t *n)
{
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    for (int place = 0; place < NPLACE; place++) {
        xl_str *names = NULL;
        size_t count = 0;
        const char *dir = place < AT_BUILT_IN ? folder(a, place) : NULL;
        if (dir)
            xl_error_free(xl_dir_list(a, dir, &names, &count)); /* most people have no such folder */
        while (place == AT_BUILT_IN && xl_profile_texts[count].name)
            count++;
        for (size_t i = 0; i < count; i++) {
            xl_str name = place == AT_BUILT_IN ? xl_str_of(xl_profile_texts[i].name) : names[i];
            bool hidden = false;
            if (place < AT_BUILT_IN) {
                if (!xl_str_ends(name, XL_STR(".yaml")))
                    continue;
                name.n -= strlen(".yaml");
                name = xl_str_dup(a, name);
            }
            for (size_t k = 0; k < *n; k++)
                hidden |= xl_str_eq((*out)[k].name, name);
            if (!hidden)
                XL_PUSH(a, *out, *n, cap, ((xl_profile_row){ .name = name, .where = places[place] }));
        }
    }
}

/* Words that people use for what a profile is for. */
static const struct { const char *word, *name; } meant[] = {
    { "gpu", "cuda" },      { "nvidia", "cuda" },    { "a100", "cuda" },        { "h100", "cuda" },
    { "h200", "cuda" },     { "b200", "cuda" },      { "l4", "cuda" },          { "rtx", "cuda" },
    { "v5e", "tpu-v5e" },   { "v5litepod", "tpu-v5e" }, { "v6e", "tpu-v6e" },   { "trillium", "tpu-v6e" },
    { "xlane", "cpu" },     { "embedded", "cpu" },   { "host", "cpu" },         { "debug", "debug-light" },
    { "recompile", "debug-recompile" }, { "dump", "debug-dump" }, { "spmd", "tpu-v6e-spmd" },
};

/* Another word for it, or a typo in the name: the nearest of those there are. */
static xl_error *no_such(xl_arena *a, xl_str name)
{
    xl_profile_row *row;
    size_t n, best = SIZE_MAX;
    xl_str near = { 0 };
    name_rows(a, &row, &n);
    for (size_t i = 0; i < n; i++) {
        size_t d = xl_str_distance(row[i].name, name);
        if (d < best && d > 0) {
            best = d;
            near = row[i].name;
        }
    }
    for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
        if (strlen(meant[i].word) == name.n && !strncasecmp(meant[i].word, name.p, name.n)) {
            near = xl_str_of(meant[i].name);
            best = 0;
        }
    xl_buf all = { 0 };
    for (size_t i = 0; i < n; i++)
        xl_buf_printf(&all, "%s%.*s", i ? ", " : "", XL_FMT(row[i].name));
    const char *names = xl_str_c(a, xl_buf_view(&all));
    xl_buf_fini(&all);
    if (near.n && best <= (name.n < 6 ? 1 : name.n / 3))
        return XL_ERR(NOT_FOUND, "there is no profile '%.*s'; did you mean '%.*s'? There are %s", XL_FMT(name),
                      XL_FMT(near), names);
    return XL_ERR(NOT_FOUND, "there is no profile '%.*s'; there are %s (`xlane profile list` says what they are for)",
                  XL_FMT(name), names);
}

static xl_error *find(xl_arena *a, xl_str name, int from, source *out)
{
    if (memchr(name.p, '/', name.n) || xl_str_ends(name, XL_STR(".yaml"))) {
        xl_str base = xl_path_base(name);
        if (xl_str_ends(base, XL_STR(".yaml")))
            base.n -= strlen(".yaml");
        return read_file(a, xl_str_c(a, name), xl_str_dup(a, base), AT_PROJECT, out);
    }
    for (int place = from; place < AT_BUILT_IN; place++) {
        const char *dir = folder(a, place);
        char *path = dir ? xl_path_join(a, dir, xl_strf(a, "%.*s.yaml", XL_FMT(name)).p) : NULL;
        if (path && xl_file_stat(path, NULL))
            return read_file(a, path, name, place, out);
    }
    for (const xl_profile_text *t = xl_profile_texts; t->name; t++)
        if (xl_str_is(name, t->name)) {
            *out = (source){ .name = name,
                             .text = xl_str_of(t->text),
                             .file = xl_strf(a, "built-in %s.yaml", t->name).p,
                             .place = AT_BUILT_IN };
            return NULL;
        }
    return no_such(a, name);
}

xl_error *xl_profile_named(xl_arena *a, const char *name)
{
    source ignored;
    xl_error *err = find(a, xl_str_of(name), 0, &ignored);
    bool none = xl_error_code(err) == XL_CODE_NOT_FOUND && !strchr(name, '/');
    xl_error *out = none ? XL_ERR(INVALID, "%s", xl_error_message(err)) : NULL;
    xl_error_free(err);
    return out;
}

/* ---- reading ---- */
typedef struct {
    xl_arena *a;
    xl_profile *p;
    size_t cap, chaincap;
    xl_str open[DEPTH_MOST];
    int place[DEPTH_MOST];
} reader;

static void put(reader *r, xl_setting s)
{
    for (size_t i = 0; i < r->p->n; i++)
        if (xl_str_eq(r->p->set[i].name, s.name)) {
            r->p->set[i] = s;
            return;
        }
    XL_PUSH(r->a, r->p->set, r->p->n, r->cap, s);
}

static xl_str origin_of(xl_arena *a, const xl_node *n) { return xl_strf(a, "%s:%u", n->file, n->line); }

static xl_error *whole_of(xl_arena *a, const xl_node *n, xl_str *out)
{
    int64_t v = 0;
    bool number = n->kind == XL_NODE_INT || n->kind == XL_NODE_FLOAT;
    xl_error *err = number ? xl_str_whole(n->s, INT64_MAX, &v) : NULL, *wrong = NULL;
    if (xl_error_code(err) == XL_CODE_RANGE)
        wrong = xl_node_err(n, "%s", xl_error_message(err));
    else if (!number || err || v < 0)
        wrong = xl_node_err(n, "a whole number, zero or more, was expected%s%s", err ? ": " : "",
                            err ? xl_error_message(err) : "");
    xl_error_free(err);
    *out = xl_strf(a, "%lld", (long long)v);
    return wrong;
}

static xl_error *value_of(xl_arena *a, const struct row *row, const xl_node *n, xl_str *out)
{
    uint64_t size;
    switch (row->kind) {
    case KIND_BOOL:
    case KIND_BOOL1:
        if (n->kind != XL_NODE_BOOL)
            return xl_node_err(n, "true or false was expected, not %s", xl_node_word(n->kind));
        *out = row->kind == KIND_BOOL ? xl_str_of(n->b ? "true" : "false") : xl_str_of(n->b ? "1" : "0");
        return NULL;
    case KIND_INT:
        return whole_of(a, n, out);
    case KIND_NUM:
        if (n->kind != XL_NODE_INT && n->kind != XL_NODE_FLOAT)
            return xl_node_err(n, "a number was expected, not %s", xl_node_word(n->kind));
        *out = n->s;
        return NULL;
    case KIND_SIZE:
        if ((n->kind != XL_NODE_INT && n->kind != XL_NODE_STR) || !xl_str_size(n->s, &size))
            return xl_node_err(n, "a size was expected, such as 4096 or 16MiB");
        *out = xl_strf(a, "%llu", (unsigned long long)size);
        return NULL;
    case KIND_LIST: {
        xl_buf b = { 0 };
        if (n->kind != XL_NODE_LIST && n->kind != XL_NODE_STR && n->kind != XL_NODE_INT)
            return xl_node_err(n, "a list was expected, not %s", xl_node_word(n->kind));
        for (size_t i = 0; i < n->n; i++)
            xl_buf_printf(&b, "%s%.*s", i ? "," : "", XL_FMT(n->kid[i]->s));
        *out = n->kind == XL_NODE_LIST ? xl_str_dup(a, xl_buf_view(&b)) : n->s;
        xl_buf_fini(&b);
        return NULL;
    }
    case KIND_POLICY:
        if (!xl_str_is(n->s, "allow") && !xl_str_is(n->s, "warn") && !xl_str_is(n->s, "stop"))
            return xl_node_err(n, "allow, warn or stop was expected, not '%.*s'", XL_FMT(n->s));
        *out = n->s;
        return NULL;
    case KIND_TEXT:
    case KIND_DUMP:
        if (n->kind == XL_NODE_LIST || n->kind == XL_NODE_MAP)
            return xl_node_err(n, "a string was expected, not %s", xl_node_word(n->kind));
        *out = n->s;
        return NULL;
    }
    return NULL;
}

static xl_error *read_group(reader *r, const xl_node *map)
{
    xl_error *err = NULL;
    const char *keys[NROW + 1];
    size_t n = 0;
    if (map->kind == XL_NODE_NULL)
        return NULL;
    if (map->kind != XL_NODE_MAP)
        return xl_node_err(map, "a map was expected, not %s", xl_node_word(map->kind));
    for (size_t i = 0; i < NROW; i++)
        if (xl_str_is(map->key, rows[i].group))
            keys[n++] = rows[i].key;
    keys[n] = NULL;
    XL_DO(xl_node_only(map, keys));
    for (size_t i = 0; i < NROW; i++) {
        const xl_node *v = xl_str_is(map->key, rows[i].group) ? xl_node_get(map, rows[i].key) : NULL;
        if (!v)
            continue;
        xl_setting s = { .name = xl_strf(r->a, "%s.%s", rows[i].group, rows[i].key),
                         .var = rows[i].var,
                         .use = rows[i].use,
                         .bytes = rows[i].kind == KIND_SIZE,
                         .origin = origin_of(r->a, v) };
        if (v->kind != XL_NODE_NULL)                       /* null: back to the runtime's own */
            XL_DO(value_of(r->a, &rows[i], v, &s.value));
        if (rows[i].kind == KIND_DUMP) {
            s.flag = true;
            s.word = XL_STR("xla_dump_to");
        }
        put(r, s);
    }
out:
    return err;
}

static bool plain_value(xl_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ')
            return false;
    return true;
}

static xl_error *read_flags(reader *r, const xl_node *map)
{
    xl_error *err = NULL;
    static const char *const keys[] = { "xla", "libtpu", "environment", NULL };
    if (map->kind == XL_NODE_NULL)
        return NULL;
    if (map->kind != XL_NODE_MAP)
        return xl_node_err(map, "a map was expected, not %s", xl_node_word(map->kind));
    XL_DO(xl_node_only(map, keys));
    for (size_t i = 0; i < map->n; i++) {
        const xl_node *group = map->kid[i];
        bool env = xl_str_is(group->key, "environment");
        if (group->kind == XL_NODE_NULL)
            continue;
        if (group->kind != XL_NODE_MAP)
            return xl_node_err(group, "a map of names and values was expected, not %s", xl_node_word(group->kind));
        for (size_t k = 0; k < group->n; k++) {
            const xl_node *v = group->kid[k];
            xl_str name = v->key;
            if (v->kind == XL_NODE_LIST || v->kind == XL_NODE_MAP)
                return xl_node_err(v, "one value was expected, not %s", xl_node_word(v->kind));
            while (!env && name.n && name.p[0] == '-')
                name = (xl_str){ name.p + 1, name.n - 1 };
            if (!name.n || memchr(name.p, '=', name.n) || !plain_value(name))
                return xl_node_err(v, "a name has neither spaces nor '='; write  name: value");
            if (env && (xl_str_starts(name, XL_STR("LD_")) || xl_str_is(name, "PATH") || xl_str_is(name, "PYTHONPATH")))
                return xl_node_err(
                    v, "a profile sets the runtime's variables, not those that choose which code is loaded");
            if (!env && !plain_value(v->s))
                return xl_node_err(v, "a flag's value has no spaces: XLA splits its flags there");
            xl_setting s = { .name = xl_strf(r->a, "flags.%.*s.%.*s", XL_FMT(group->key), XL_FMT(name)),
                             .use = XL_USE_CODE,
                             .origin = origin_of(r->a, v),
                             .value = v->kind == XL_NODE_NULL ? (xl_str){ "", 0 } : v->s };
            if (env) {
                s.var = xl_str_c(r->a, name);
            } else {
                s.flag = true;
                s.word = name;
                s.var = xl_str_is(group->key, "xla") ? lists[0].var : lists[1].var;
                if (xl_str_starts(name, XL_STR("xla_dump_")))
                    s.use = XL_USE_DIAG;
            }
            put(r, s);
        }
    }
out:
    return err;
}

static xl_error *read_profile(reader *r, xl_str name, int from, int depth);

static xl_error *read_inherited(reader *r, const xl_node *n, const source *self, int depth)
{
    bool same = xl_str_eq(n->s, self->name);
    source next;
    if (n->kind != XL_NODE_STR)
        return xl_node_err(n, "a profile's name was expected, not %s", xl_node_word(n->kind));
    for (int i = 0; i <= depth; i++)
        if (xl_str_eq(r->open[i], n->s) && !(same && i == depth && self->place < AT_BUILT_IN)) {
            xl_buf b = { 0 };
            for (int k = i; k <= depth; k++)
                xl_buf_printf(&b, "%.*s inherits ", XL_FMT(r->open[k]));
            xl_error *err = xl_node_err(n, "profiles inherit one another in a circle: %.*s%.*s",
                                        XL_FMT(xl_buf_view(&b)), XL_FMT(n->s));
            xl_buf_fini(&b);
            return err;
        }
    xl_error *none = same ? find(r->a, n->s, self->place + 1, &next) : NULL;
    bool itself = xl_error_code(none) == XL_CODE_NOT_FOUND;
    xl_error_free(none);
    if (itself)
        return xl_node_err(n, "'%.*s' inherits itself, and there is no other profile of that name to extend: take the "
                              "line out", XL_FMT(n->s));
    return xl_error_wrap(read_profile(r, n->s, same ? self->place + 1 : 0, depth + 1), "%s:%u", n->file, n->line);
}

static xl_error *read_profile(reader *r, xl_str name, int from, int depth)
{
    xl_error *err = NULL;
    static const char *const keys[] = { "about",  "inherits", "diagnostic", "spmd",  "cache",
                                        "shapes", "debug",    "device",     "flags", NULL };
    source src;
    xl_node *root;
    if (depth == DEPTH_MOST)
        return XL_ERR(INVALID, "profile '%.*s' is inherited through more than %d others", XL_FMT(name), DEPTH_MOST);
    XL_DO(find(r->a, name, from, &src));
    r->open[depth] = src.name;
    XL_DO(xl_yaml_read(r->a, src.file, src.text, &root));
    if (root->kind != XL_NODE_MAP && root->kind != XL_NODE_NULL)
        return XL_ERR(INVALID, "%s: a profile is a map, not %s", src.file, xl_node_word(root->kind));
    XL_DO(xl_node_only(root, keys));
    const xl_node *inherits = xl_node_get(root, "inherits");
    if (inherits && inherits->kind == XL_NODE_LIST) {
        for (size_t i = 0; i < inherits->n; i++)
            XL_DO(read_inherited(r, inherits->kid[i], &src, depth));
    } else if (inherits && inherits->kind != XL_NODE_NULL) {
        XL_DO(read_inherited(r, inherits, &src, depth));
    }
    r->open[depth] = src.name;
    r->p->about = (xl_str){ "", 0 };
    XL_DO(xl_node_get_str(root, "about", &r->p->about));
    bool diagnostic = false;                               /* a diagnostic parent makes a diagnostic child */
    XL_DO(xl_node_get_bool(root, "diagnostic", &diagnostic));
    r->p->declared |= diagnostic;
    for (size_t i = 0; i < root->n; i++) {
        xl_str key = root->kid[i]->key;
        if (xl_str_is(key, "flags"))
            XL_DO(read_flags(r, root->kid[i]));
        else if (!xl_str_is(key, "about") && !xl_str_is(key, "inherits") && !xl_str_is(key, "diagnostic"))
            XL_DO(read_group(r, root->kid[i]));
    }
    XL_PUSH(r->a, r->p->chain, r->p->nchain, r->chaincap, xl_str_of(src.file));
    r->p->name = src.name;
    r->p->file = xl_str_of(src.file);
out:
    return err;
}

static int by_name(const void *x, const void *y)
{
    return xl_str_cmp(((const xl_setting *)x)->name, ((const xl_setting *)y)->name);
}

bool xl_setting_diagnoses(const xl_setting *s)
{
    return s->use == XL_USE_DIAG && !s->unread && s->value.n && !xl_str_is(s->value, "0") &&
           !xl_str_is(s->value, "false");
}

xl_str xl_setting_words(xl_arena *a, const xl_setting *s)
{
    if (s->flag)
        return xl_strf(a, "--%.*s=%.*s in %s", XL_FMT(s->word), XL_FMT(s->value), s->var);
    return s->var ? xl_strf(a, "%s=%.*s", s->var, XL_FMT(s->value))
                  : xl_strf(a, "%.*s=%.*s", XL_FMT(s->name), XL_FMT(s->value));
}

static void mark(xl_profile *p)
{
    p->diagnostic = p->declared;
    for (size_t i = 0; i < p->n; i++)
        p->diagnostic |= xl_setting_diagnoses(&p->set[i]);
}

void xl_profile_device(xl_profile *p, const char *kind)
{
    bool embedded = kind && !strcmp(kind, "cpu"), tpu = !kind || !strcmp(kind, "tpu");
    for (size_t i = 0; i < p->n; i++)
        p->set[i].unread = p->set[i].flag && (embedded || (!tpu && !strcmp(p->set[i].var, lists[1].var)));
    mark(p);
}

static void finish(xl_profile *p)
{
    xl_hash h;
    bool any = false;
    char hex[XL_DIGEST_HEX];
    if (p->n)
        qsort(p->set, p->n, sizeof *p->set, by_name);
    xl_hash_init(&h);
    for (size_t i = 0; i < p->n; i++) {
        const xl_setting *s = &p->set[i];
        if (s->use != XL_USE_CODE || !s->value.n || xl_str_is(s->origin, "environment") ||
            xl_str_is(s->origin, "default"))
            continue;
        any = true;
        xl_hash_str(&h, s->name);
        xl_hash_str(&h, s->value);
    }
    mark(p);
    xl_digest d = xl_hash_final(&h);
    snprintf(p->digest, sizeof p->digest, "%.16s", any ? xl_digest_hex(&d, hex) : "none");
}

xl_error *xl_profile_load(xl_arena *a, const char *name, xl_profile *out)
{
    *out = (xl_profile){ .name = XL_STR("none"), .file = XL_STR(""), .about = XL_STR("") };
    reader r = { .a = a, .p = out };
    xl_error *err = read_profile(&r, xl_str_dup(a, xl_str_of(name)), 0, 0);
    finish(out);
    return err;
}

xl_error *xl_profile_list(xl_arena *a, xl_profile_row **out, size_t *n)
{
    name_rows(a, out, n);
    for (size_t i = 0; i < *n; i++) {
        xl_profile_row *row = &(*out)[i];
        xl_profile p;
        xl_error *err = xl_profile_load(a, row->name.p, &p);
        if (err)
            row->bad = xl_str_dup(a, xl_str_of(xl_error_message(err)));
        xl_error_free(err);
        row->file = p.file;
        row->about = p.about;
        row->diagnostic = p.diagnostic;
    }
    return NULL;
}

/* ---- with the environment ---- */
static bool runtime_variable(const char *e)
{
    static const char *const prefixes[] = { "XLA_",    "LIBTPU_",    "PJRT_",      "TPU_", "JAX_",
                                            "PT_XLA_", "XLANE_CPU_", "MEGASCALE_", "NCCL_" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(e, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

static bool list_variable(xl_str name) { return xl_str_is(name, lists[0].var) || xl_str_is(name, lists[1].var); }

static xl_setting *flag_of(xl_profile *p, const char *var, xl_str word)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->set[i].flag && !strcmp(p->set[i].var, var) && xl_str_eq(p->set[i].word, word))
            return &p->set[i];
    return NULL;
}

static void join_flags(reader *r)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *v = getenv(lists[i].var);
        xl_str rest = xl_str_dup(r->a, xl_str_of(v ? v : "")), word, value;
        while (xl_flags_next(&rest, &word, &value)) {
            xl_setting *had = flag_of(r->p, lists[i].var, word);
            if (had && !xl_str_is(had->origin, "environment")) {
                if (!xl_str_eq(had->value, value))
                    had->shadow = value;
                continue;
            }
            put(r, (xl_setting){ .name = xl_strf(r->a, "flags.%s.%.*s", lists[i].key, XL_FMT(word)),
                                 .var = lists[i].var,
                                 .flag = true,
                                 .word = word,
                                 .value = value,
                                 .origin = XL_STR("environment"),
                                 .use = xl_str_starts(word, XL_STR("xla_dump_")) ? XL_USE_DIAG : XL_USE_CODE });
        }
    }
}

static void join_variables(reader *r)
{
    extern char **environ;
    for (char **e = environ; *e; e++) {
        xl_str value = xl_str_of(*e), name = xl_str_cut(&value, '=');
        xl_setting *had = NULL;
        const struct row *row = NULL;
        for (size_t i = 0; i < r->p->n && !had; i++)
            if (!r->p->set[i].flag && r->p->set[i].var && xl_str_is(name, r->p->set[i].var))
                had = &r->p->set[i];
        if (had) {
            if (!xl_str_eq(had->value, value))
                had->shadow = value.n ? xl_str_dup(r->a, value) : XL_STR("(empty)");
            continue;
        }
        for (size_t i = 0; i < NROW && !row; i++)
            if (rows[i].var && rows[i].kind != KIND_DUMP && xl_str_is(name, rows[i].var))
                row = &rows[i];
        if (!row && (!runtime_variable(*e) || list_variable(name)))
            continue;
        put(r, (xl_setting){ .name = row ? xl_strf(r->a, "%s.%s", row->group, row->key)
                                         : xl_strf(r->a, "flags.environment.%.*s", XL_FMT(name)),
                             .var = xl_str_c(r->a, name),
                             .value = xl_str_dup(r->a, value),
                             .origin = XL_STR("environment"),
                             .use = row ? row->use : XL_USE_CODE,
                             .bytes = row && row->kind == KIND_SIZE });
    }
}

xl_error *xl_profile_effective(xl_arena *a, const char *name, xl_profile *out)
{
    xl_error *err = NULL;
    if (name)
        XL_DO(xl_profile_load(a, name, out));
    else
        *out = (xl_profile){ .name = XL_STR("none"),
                             .file = XL_STR(""),
                             .about = XL_STR("no profile: the environment and the defaults") };
    reader r = { .a = a, .p = out, .cap = out->n };
    join_flags(&r);
    join_variables(&r);
    for (size_t i = 0; i < NROW; i++) {
        xl_str key = xl_strf(a, "%s.%s", rows[i].group, rows[i].key);
        if (rows[i].otherwise[0] && !xl_profile_get(out, key.p))
            put(&r, (xl_setting){ .name = key,
                                  .var = rows[i].var,
                                  .value = xl_str_of(rows[i].otherwise),
                                  .bytes = rows[i].kind == KIND_SIZE,
                                  .origin = XL_STR("default"),
                                  .use = rows[i].use });
    }
    finish(out);
    const xl_setting *plugin = xl_profile_get(out, "device.plugin");
    const char *named = plugin && plugin->value.n ? xl_str_c(a, plugin->value) : NULL;
    if (named)
        xl_profile_device(out, xl_plugin_word(named) ? named : xl_plugin_kind(named));
out:
    return err;
}

const xl_setting *xl_profile_get(const xl_profile *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (xl_str_is(p->set[i].name, name))
            return &p->set[i];
    return NULL;
}

xl_error *xl_profile_apply(xl_arena *a, const xl_profile *p)
{
    xl_error *err = NULL;
    xl_host_budget budget;
    XL_DO(xl_gate_pass(XL_GATE_ENVIRONMENT, xl_strf(a, "applying profile %.*s", XL_FMT(p->name)).p));
    XL_DO(xl_profile_budget(a, p, &budget));
    err = xl_profile_set(a, p);
out:
    return err;
}

xl_error *xl_profile_set(xl_arena *a, const xl_profile *p)
{
    xl_error *err = NULL;
    XL_DO(xl_gate_pass(XL_GATE_ENVIRONMENT, xl_strf(a, "applying profile %.*s", XL_FMT(p->name)).p));
    for (size_t i = 0; i < p->n; i++) {
        const xl_setting *s = &p->set[i];
        if (s->flag || !s->var || xl_str_is(s->origin, "environment") || xl_str_is(s->origin, "default"))
            continue;
        if (s->value.n)
            setenv(s->var, xl_str_c(a, s->value), 1);
        else
            unsetenv(s->var);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        xl_buf b = { 0 };
        for (size_t k = 0; k < p->n; k++)
            if (p->set[k].flag && p->set[k].value.n && !strcmp(p->set[k].var, lists[i].var))
                xl_buf_printf(&b, "%s--%.*s=%.*s", b.n ? " " : "", XL_FMT(p->set[k].word), XL_FMT(p->set[k].value));
        if (b.n)
            setenv(lists[i].var, b.p, 1);
        xl_buf_fini(&b);
    }
    bool same = !strcmp(p->digest, "none");
    setenv("XLANE_PROFILE", xl_strf(a, "%.*s%s%s", XL_FMT(p->name), same ? "" : "@", same ? "" : p->digest).p, 1);
    if (p->diagnostic)
        setenv("XLANE_DIAGNOSTIC", "1", 1);
    else
        unsetenv("XLANE_DIAGNOSTIC");
out:
    return err;
}
