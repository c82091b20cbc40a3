#include "train/config.h"

#include <stddef.h>

#include "base/file.h"
#include "base/json.h"
#include "base/word.h"
#include "base/yaml.h"
#include "lane/run.h"
#include "pjrt/plugin.h"
#include "train/step.h"

typedef enum {
    STR,
    INT,
    NUM,
    BOOL,
    FLAG,
    FLAG_AUTO,
    INTS,
    PAIRS
} kind; /* FLAG: an int, as the public header has it, FLAG_AUTO: -1 for auto; PAIRS: any keys below it */
typedef struct {
    const char *key;
    kind k;
    size_t at;
    double least;
    bool above;
} row; /* least: of numbers; above: and not it either */
#define AT(field) offsetof(xl_config, field)

static const row rows[] = {
    { "name", STR, AT(name) },
    { "device", STR, AT(device) },
    { "runs", STR, AT(runs) },
    { "cache", STR, AT(cache) },
    { "seed", INT, AT(seed), INT64_MIN },
    { "mesh", PAIRS, AT(mesh) },
    { "sharding", PAIRS, AT(sharding) },
    { "model.pattern", STR, AT(model.pattern) },
    { "model.vocab", INT, AT(model.vocab), 2 },
    { "model.dim", INT, AT(model.dim), 2 },
    { "model.heads", INT, AT(model.heads), 1 },
    { "model.kv_heads", INT, AT(model.kv_heads) },
    { "model.ffn", INT, AT(model.ffn) },
    { "model.state", INT, AT(model.state), 1 },
    { "model.chunk", INT, AT(model.chunk), 1 },
    { "model.experts", INT, AT(model.experts), 1 },
    { "model.top_k", INT, AT(model.top_k), 1 },
    { "model.capacity", NUM, AT(model.capacity), 0, true },
    { "model.balance", NUM, AT(model.balance) },
    { "model.rope_base", NUM, AT(model.rope_base), 0, true },
    { "model.scan", FLAG_AUTO, AT(model.scan) },
    { "model.remat", FLAG, AT(model.remat) },
    { "model.micro", INT, AT(model.micro) },
    { "model.compute", STR, AT(model.compute) },
    { "model.attention", STR, AT(model.attention) },
    { "model.kernels", STR, AT(model.kernels) },
    { "model.tie", FLAG, AT(model.tie) },
    { "data.train", STR, AT(data.train) },
    { "data.valid", STR, AT(data.valid) },
    { "data.format", STR, AT(data.format) },
    { "data.batch", INT, AT(data.batch), 1 },
    { "data.time", INT, AT(data.time), 2 },
    { "data.buckets", INTS, AT(data.buckets) },
    { "data.pack", BOOL, AT(data.pack) },
    { "data.end", INT, AT(data.end), -1 },
    { "optimizer.lr", NUM, AT(opt.lr) },
    { "optimizer.min_lr", NUM, AT(opt.min_lr) },
    { "optimizer.schedule", STR, AT(opt.schedule) },
    { "optimizer.warmup", INT, AT(opt.warmup) },
    { "optimizer.beta1", NUM, AT(opt.beta1) },
    { "optimizer.beta2", NUM, AT(opt.beta2) },
    { "optimizer.eps", NUM, AT(opt.eps), 0, true },
    { "optimizer.decay", NUM, AT(opt.decay) },
    { "optimizer.clip", NUM, AT(opt.clip) },
    { "optimizer.bake_lr", BOOL, AT(bake_lr) },
    { "train.steps", INT, AT(steps), 1 },
    { "train.log_every", INT, AT(log_every), 1 },
    { "train.eval_every", INT, AT(eval_every) },
    { "train.eval_batches", INT, AT(eval_batches), 1 },
    { "train.save_every", INT, AT(save_every) },
    { "train.keep", INT, AT(keep), 1 },
    { "train.policy", STR, AT(policy) },
    { "train.deterministic", BOOL, AT(deterministic) },
    { "train.tune", BOOL, AT(tune) },
    { "train.warmup_steps", INT, AT(warmup_steps) },
    { "train.keep_for_backward", STR, AT(keep_for_backward) },
    { "train.plant", STR, AT(plant) },
};
enum { NROW = sizeof rows / sizeof *rows };

static xl_config defaults(void)
{
    xl_config c = {
        .name = "train", .runs = xl_runs_folder(), .seed = 1, .model = xl_model_default(), .opt = xl_adamw_default()
    };
    c.model.scan = -1;
    c.data.format = "auto";
    c.data.batch = 8;
    c.data.time = 128;
    c.data.end = -1;
    c.opt.lr = 3e-3;
    c.opt.schedule = "cosine";
    c.opt.warmup = 20;
    c.opt.beta2 = 0.95;
    c.opt.decay = 0.1;
    c.opt.clip = 1;
    c.steps = 200;
    c.log_every = 10;
    c.eval_every = 100;
    c.eval_batches = 8;
    c.save_every = 100;
    c.keep = 3;
    c.warmup_steps = 10;
    c.keep_for_backward = "dots";
    c.deterministic = true;
    c.tune = true;
    c.policy = "warn";
    c.plant = "none";
    return c;
}

static xl_error *ints(xl_config *c, xl_str v, const char *key)
{
    v = xl_str_trim(v);
    if (v.n >= 2 && v.p[0] == '[' && v.p[v.n - 1] == ']')
        v = (xl_str){ v.p + 1, v.n - 2 };
    c->data.nbucket = 0;
    while (v.n) {
        int64_t i;
        xl_str word = xl_str_trim(xl_str_cut(&v, ','));
        if (!xl_str_i64(word, &i) || i < 1)
            return XL_ERR(INVALID, "%s: '%.*s' is not a positive number", key, XL_FMT(word));
        if (c->data.nbucket == XL_BUCKETS_MAX)
            return XL_ERR(INVALID, "%s: more than %d", key, XL_BUCKETS_MAX);
        if (c->data.nbucket && c->data.buckets[c->data.nbucket - 1] >= i)
            return XL_ERR(INVALID, "%s must grow: %lld comes after %lld", key, (long long)i,
                          (long long)c->data.buckets[c->data.nbucket - 1]);
        c->data.buckets[c->data.nbucket++] = i;
    }
    return NULL;
}

static xl_error *unknown(xl_str key)
{
    for (int i = 0; i < NROW; i++)
        if (key.n && strlen(rows[i].key) > key.n && rows[i].key[key.n] == '.' &&
            !memcmp(rows[i].key, key.p, key.n))
            return XL_ERR(INVALID, "'%.*s' is a group of keys, such as %s", XL_FMT(key), rows[i].key);
    const char *near = NULL;
    size_t best = 5;
    for (int i = 0; i < NROW; i++) {
        /* a name given without its section counts as near */
        const char *dot = strchr(rows[i].key, '.');
        size_t d = xl_str_distance(key, xl_str_of(rows[i].key)),
               e = dot ? xl_str_distance(key, xl_str_of(dot + 1)) + 1 : d;
        d = e < d ? e : d;
        if (d < best)
            best = d, near = rows[i].key;
    }
    return near ? XL_ERR(INVALID, "unknown key '%.*s'; did you mean '%s'?", XL_FMT(key), near)
                : XL_ERR(INVALID, "unknown key '%.*s'; docs/train.md lists the keys", XL_FMT(key));
}

/* "mesh.data" is one entry; "mesh" alone is all of them, "data=2, model=4" or "{data: 2, model: 4}", and empty for
 * none. */
static xl_error *pairs(xl_arena *a, xl_pairs *out, const char *row, xl_str key, xl_str v, const char *where)
{
    size_t n = strlen(row);
    v = xl_str_trim(v);
    if (key.n > n) {
        xl_pair one = { xl_str_dup(a, (xl_str){ key.p + n + 1, key.n - n - 1 }), xl_str_dup(a, v), where };
        if (!one.key.n || !v.n)
            return XL_ERR(INVALID, "%.*s: '%.*s' says nothing", XL_FMT(key), XL_FMT(v));
        for (uint32_t i = 0; i < out->n; i++)
            if (xl_str_eq(out->p[i].key, one.key)) {
                out->p[i] = one;
                return NULL;
            }
        XL_PUSH(a, out->p, out->n, out->cap, one);
        return NULL;
    }
    if (v.n >= 2 && v.p[0] == '{' && v.p[v.n - 1] == '}')
        v = (xl_str){ v.p + 1, v.n - 2 };
    out->n = 0;
    while (v.n) {
        xl_str value = xl_str_cut(&v, ',');
        xl_str name = xl_str_trim(xl_str_cut(&value, memchr(value.p, '=', value.n) ? '=' : ':'));
        for (uint32_t i = 0; i < out->n; i++)
            if (xl_str_eq(out->p[i].key, name))
                return XL_ERR(INVALID, "%s: '%.*s' is there twice", row, XL_FMT(name));
        xl_error *err = pairs(a, out, row, xl_strf(a, "%s.%.*s", row, XL_FMT(name)), value, where);
        if (err)
            return err;
    }
    return NULL;
}

#define XL_CONFIG_MAX 1e30               /* far below what f32 holds, so that sums of settings stay finite */
static xl_error *in_range(const row *r, double v)
{
    if ((r->above ? v > r->least : v >= r->least) && v < XL_CONFIG_MAX)
        return NULL;
    return XL_ERR(INVALID, "%s is %g: it takes a number %s %g and below %g", r->key, v,
                  r->above ? "above" : "of at least", r->least, XL_CONFIG_MAX);
}

/* After what is wrong with a number, one that is right: the default. */
static xl_error *as_in(xl_error *err, const row *r)
{
    const xl_config c = defaults();
    const char *at = (const char *)&c + r->at;
    if (r->k == INT)
        return xl_error_next(err, "as in %s=%lld, the default", r->key, (long long)*(const int64_t *)(const void *)at);
    return xl_error_next(err, "as in %s=%g, the default", r->key, *(const double *)(const void *)at);
}

static xl_error *set(xl_arena *a, xl_config *c, xl_str key, xl_str v, const char *where)
{
    for (int i = 0; i < NROW; i++) {
        size_t len = strlen(rows[i].key);
        bool below = rows[i].k == PAIRS && key.n > len && key.p[len] == '.' && !memcmp(key.p, rows[i].key, len);
        if (!below && !xl_str_is(key, rows[i].key))
            continue;
        char *at = (char *)c + rows[i].at;
        int64_t n = 0;
        double f;
        xl_error *err;
        switch (rows[i].k) {
        case STR:
            *(const char **)(void *)at = v.n ? xl_str_c(a, v) : NULL;
            return NULL;
        case INT:
            err = xl_str_whole(v, strncmp(rows[i].key, "model.", 6) ? INT64_MAX : INT32_MAX, &n);
            if (err)
                return as_in(xl_error_wrap(err, "%s", rows[i].key), &rows[i]);
            *(int64_t *)(void *)at = n;
            if ((double)n < rows[i].least)
                err = XL_ERR(INVALID, "%s is %lld: it takes a number of at least %g", rows[i].key, (long long)n,
                             rows[i].least);
            return err;
        case NUM:
            if (!xl_str_f64(v, &f))
                return as_in(XL_ERR(INVALID, "%s: '%.*s' is not a number", rows[i].key, XL_FMT(v)), &rows[i]);
            *(double *)(void *)at = f;
            return in_range(&rows[i], f);
        case BOOL: case FLAG: case FLAG_AUTO:
            if (rows[i].k == FLAG_AUTO && xl_str_is(v, "auto")) {
                *(int *)(void *)at = -1;
                return NULL;
            }
            if (!xl_str_is(v, "true") && !xl_str_is(v, "false"))
                return XL_ERR(INVALID, "%s: '%.*s' is %s true nor false", rows[i].key, XL_FMT(v),
                              rows[i].k == FLAG_AUTO ? "neither auto nor" : "neither");
            if (rows[i].k != BOOL)
                *(int *)(void *)at = v.p[0] == 't';
            else
                *(bool *)(void *)at = v.p[0] == 't';
            return NULL;
        case INTS:
            return ints(c, v, rows[i].key);
        case PAIRS:
            return pairs(a, (xl_pairs *)(void *)at, rows[i].key, key, v, where);
        }
    }
    return unknown(key);
}

static xl_error *walk(xl_arena *a, xl_config *c, const xl_node *n, xl_str prefix)
{
    for (size_t i = 0; i < n->n; i++) {
        const xl_node *k = n->kid[i];
        xl_str key = prefix.n ? xl_strf(a, "%.*s.%.*s", XL_FMT(prefix), XL_FMT(k->key)) : k->key, v = k->s;
        xl_error *err = NULL;
        if (k->kind == XL_NODE_NULL)
            continue;
        if (k->kind == XL_NODE_MAP)
            err = walk(a, c, k, key);
        else {
            if (k->kind == XL_NODE_LIST) {
                xl_buf b = { 0 };
                for (size_t j = 0; j < k->n; j++) {
                    xl_buf_puts(&b, j ? "," : "");
                    xl_buf_str(&b, k->kid[j]->s);
                }
                v = xl_str_dup(a, xl_buf_view(&b));
                xl_buf_fini(&b);
            }
            err = set(a, c, key, v, xl_strf(a, "%s:%u", k->file, k->line).p);
            if (err)
                err = xl_error_wrap(err, "%s:%u", k->file, k->line);
        }
        if (err)
            return err;
    }
    return NULL;
}

bool xl_config_is_word(const char *arg)
{
    const char *eq = strchr(arg, '=');
    return eq && eq != arg && arg[0] != '-' && !memchr(arg, '/', (size_t)(eq - arg));
}

static xl_error *check(const xl_config *c)
{
    xl_error *err = xl_model_check(&c->model);
    if (err)
        return err;
    if (c->device && (err = xl_plugin_named(c->device)))
        return xl_error_wrap(err, "device");
    if (!c->data.train)
        return XL_ERR(INVALID, "data.train is not set: the file to train on, as in data.train=book.txt");
    int64_t longest = c->data.nbucket ? c->data.buckets[c->data.nbucket - 1] : c->data.time;
    if (longest > INT32_MAX || c->data.batch > INT32_MAX / longest)
        return XL_ERR(INVALID, "data.batch %lld of %lld tokens: a step takes less than 2^31 tokens",
                      (long long)c->data.batch, (long long)longest);
    if (c->data.end >= c->model.vocab)
        return XL_ERR(INVALID,
                      "data.end is %lld, beyond the vocabulary of %lld (model.vocab): no document would end; name the "
                      "token that ends one",
                      (long long)c->data.end, (long long)c->model.vocab);
    if (c->opt.min_lr > c->opt.lr)
        return XL_ERR(INVALID, "optimizer.min_lr %g is above optimizer.lr %g: the rate would rise; make it smaller",
                      c->opt.min_lr, c->opt.lr);
    if (strcmp(c->keep_for_backward, "carry") && strcmp(c->keep_for_backward, "dots"))
        return XL_ERR(INVALID, "train.keep_for_backward is carry or dots");
    if (strcmp(c->plant, "none") && strcmp(c->plant, "local") && strcmp(c->plant, "read") &&
        strcmp(c->plant, "group") && strcmp(c->plant, "canary"))
        return XL_ERR(INVALID,
                      "train.plant is none, local, read, group or canary: a mistake on purpose, to see it caught");
    if (strcmp(c->policy, "allow") && strcmp(c->policy, "warn") && strcmp(c->policy, "stop"))
        return XL_ERR(INVALID, "train.policy is allow, warn or stop");
    float unused[XL_HYPER_COUNT];
    err = xl_hyper_fill(&c->opt, unused);
    if (err)
        return err;
    return NULL;
}

xl_grad_keep xl_config_keep(const xl_config *c)
{
    return strcmp(c->keep_for_backward, "carry") ? XL_KEEP_DOTS : XL_KEEP_CARRY;
}

/* A text to train on is easily given where a configuration is wanted. */
static xl_error *text_next(xl_arena *a, xl_error *err, const char *file)
{
    xl_file_info info;
    bool yaml = xl_str_ends(xl_str_of(file), XL_STR(".yaml")) || xl_str_ends(xl_str_of(file), XL_STR(".yml"));
    if (!err || yaml || !xl_file_stat(file, &info) || info.dir)
        return err;
    return xl_error_next(err, "%s is read as a configuration; to train on it as a text: xlane train data.train=%s",
                         file, xl_word_of(a, file));
}

xl_error *xl_config_read(xl_arena *a, const char *file, char *const *words, int n, xl_config *out)
{
    xl_error *err = NULL;
    xl_config c = defaults();
    if (file) {
        xl_str text;
        xl_node *root = NULL;
        err = xl_file_read_max(a, file, XL_YAML_BYTES, &text);
        if (!err)
            err = xl_yaml_read(a, file, text, &root);
        if (!err && root->kind == XL_NODE_MAP)
            err = walk(a, &c, root, (xl_str){ "" });
        else if (!err && root->kind != XL_NODE_NULL)
            err = XL_ERR(INVALID, "%s: a configuration is a map of keys", file);
        XL_DO(text_next(a, err, file));
    }
    for (int i = 0; i < n; i++) {
        xl_str rest = xl_str_of(words[i]), key = xl_str_cut(&rest, '=');
        XL_DO(set(a, &c, key, rest, words[i]));
    }
    c.opt.steps = c.steps;
    XL_DO(check(&c));
    *out = c;
out:
    return err;
}

static void quoted(xl_buf *out, xl_str s)                  /* YAML reads what JSON quotes */
{
    xl_json j = { .out = out };
    xl_json_str(&j, s);
}

void xl_config_write(const xl_config *c, xl_buf *out)
{
    char section[32] = "";
    for (int i = 0; i < NROW; i++) {
        const char *dot = strchr(rows[i].key, '.'), *name = dot ? dot + 1 : rows[i].key;
        const char *at = (const char *)c + rows[i].at;
        if (dot && (strncmp(section, rows[i].key, (size_t)(dot - rows[i].key)) || section[dot - rows[i].key])) {
            memcpy(section, rows[i].key, (size_t)(dot - rows[i].key));
            section[dot - rows[i].key] = 0;
            xl_buf_printf(out, "%s:\n", section);
        }
        const char *s = rows[i].k == STR ? *(const char *const *)(const void *)at : NULL;
        if (rows[i].k == PAIRS) {
            const xl_pairs *list = (const xl_pairs *)(const void *)at;
            section[0] = 0;
            for (uint32_t k = 0; k < list->n; k++) {
                xl_buf_printf(out, "%s%s  ", k ? "" : name, k ? "" : ":\n");
                quoted(out, list->p[k].key);
                xl_buf_puts(out, ": ");
                quoted(out, list->p[k].value);
                xl_buf_putc(out, '\n');
            }
            continue;
        }
        if ((rows[i].k == STR && !s) || (rows[i].k == INTS && !c->data.nbucket))
            continue;
        xl_buf_printf(out, "%s%s: ", dot ? "  " : "", name);
        switch (rows[i].k) {
        case STR:
            quoted(out, xl_str_of(s));
            xl_buf_putc(out, '\n');
            break;
        case INT: xl_buf_printf(out, "%lld\n", (long long)*(const int64_t *)(const void *)at); break;
        case NUM: xl_buf_printf(out, "%.17g\n", *(const double *)(const void *)at); break;
        case BOOL: xl_buf_printf(out, "%s\n", *(const bool *)(const void *)at ? "true" : "false"); break;
        case FLAG: case FLAG_AUTO:
            xl_buf_printf(out, "%s\n", *(const int *)(const void *)at < 0 ? "auto"
                                       : *(const int *)(const void *)at    ? "true"
                                                                           : "false");
            break;
        case INTS:
            xl_buf_puts(out, "[");
            for (int k = 0; k < c->data.nbucket; k++)
                xl_buf_printf(out, k ? ", %lld" : "%lld", (long long)c->data.buckets[k]);
            xl_buf_puts(out, "]\n");
            break;
        case PAIRS: break;
        }
    }
}
