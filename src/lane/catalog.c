#include "lane/catalog.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/time.h"

static const char *const words[] = { "predicted", "rehearsed", "ran", "failed", "killed" };
const char *xl_outcome_word(xl_outcome o) { return words[o]; }

xl_catalog_entry xl_catalog_blank(void)
{
    return (xl_catalog_entry){
        .predicted = -1, .compiled = -1, .observed = -1, .limit = -1, .host = -1, .flops = -1, .seconds = -1
    };
}

xl_digest xl_signature_digest(const xl_signature *s, bool with_bundle)
{
    xl_hash h;
    xl_hash_init(&h);
#define PART(name, help)                                   \
    if (with_bundle || strcmp(#name, "bundle")) {          \
        xl_hash_str(&h, XL_STR(#name));                    \
        xl_hash_str(&h, s->name);                          \
    }
    XL_SIGNATURE(PART)
#undef PART
    return xl_hash_final(&h);
}

char *xl_catalog_dir(xl_arena *a)
{
    const char *named = getenv("XLANE_CATALOG");
    char *state = xl_home_state(a);
    return named && *named ? xl_str_c(a, xl_str_of(named)) : state ? xl_path_join(a, state, "catalog") : NULL;
}

static void host_name(char out[128])
{
    if (gethostname(out, 128) != 0 || !*out)
        strcpy(out, "host");
    out[127] = 0;
    for (char *c = out; *c; c++)
        if (*c == '/' || *c == '.')
            *c = '-';
}

static void put_known(xl_json *j, const char *key, int64_t v)
{
    if (v >= 0)
        xl_json_put_int(j, key, v);
}

void xl_catalog_json(xl_json *j, const xl_catalog_entry *e)
{
    char iso[XL_TIME_ISO];
    xl_json_map(j);
    xl_json_put_num(j, "when", e->when);
    xl_json_put_text(j, "time", xl_time_iso(e->when, iso));
    xl_json_put_str(j, "where", e->where);
    xl_json_put_text(j, "outcome", xl_outcome_word(e->outcome));
    xl_json_put_str(j, "what", e->what);
    xl_json_key(j, "signature");
    xl_json_map(j);
#define PART(name, help) xl_json_put_str(j, #name, e->sig.name);
    XL_SIGNATURE(PART)
#undef PART
    xl_json_end(j);
    if (e->class.n)
        xl_json_put_str(j, "class", e->class);
    if (e->message.n)
        xl_json_put_str(j, "message", e->message);
    put_known(j, "predicted", e->predicted);
    put_known(j, "compiled", e->compiled);
    put_known(j, "observed", e->observed);
    put_known(j, "limit", e->limit);
    put_known(j, "host", e->host);
    if (e->flops >= 0)
        xl_json_put_num(j, "flops", e->flops);
    if (e->seconds >= 0)
        xl_json_put_num(j, "seconds", e->seconds);
    if (e->detail.n) {
        xl_json_key(j, "detail");
        xl_json_raw(j, e->detail);
    }
    xl_json_end(j);
}

/* A file that a crash left without its last newline gets one first, so that the torn line spoils no other. */
static xl_error *mend(xl_arena *a, const char *path)
{
    xl_file_info info;
    xl_str text;
    if (!xl_file_stat(path, &info) || info.size == 0)
        return NULL;
    xl_error *err = xl_file_read(a, path, &text);
    if (err || text.p[text.n - 1] == '\n')
        return err;
    return xl_file_append(path, XL_STR(""));
}

xl_error *xl_catalog_add(const char *dir, const xl_catalog_entry *e)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_buf b = { 0 };
    char host[128];
    xl_catalog_entry x = *e;
    host_name(host);
    x.where = xl_str_of(host);
    x.when = xl_now_wall();
    if (!dir) {
        err = XL_ERR(UNAVAILABLE, "HOME is not set, so there is no folder for it");
        goto out;
    }
    XL_TRY(xl_dir_make(dir), "making the catalog");
    char *path = xl_path_join(&a, dir, xl_strf(&a, "%s.jsonl", host).p);
    XL_TRY(mend(&a, path), "the catalog");
    xl_catalog_json(&(xl_json){ .out = &b }, &x);
    err = b.failed ? XL_ERR(EXHAUSTED, "no memory for a line of the catalog")
                   : xl_error_wrap(xl_file_append(path, xl_buf_view(&b)), "the catalog");
out:
    xl_buf_fini(&b);
    xl_arena_fini(&a);
    return err;
}

static bool entry_of(xl_arena *a, const xl_node *n, xl_catalog_entry *e)
{
    const xl_node *sig = xl_node_get(n, "signature"), *detail = xl_node_get(n, "detail");
    xl_str outcome = xl_node_text(n, "outcome");
    int which = -1;
    for (int i = XL_OUTCOME_PREDICTED; i <= XL_OUTCOME_KILLED; i++)
        if (xl_str_is(outcome, words[i]))
            which = i;
    if (!sig || sig->kind != XL_NODE_MAP || which < 0)
        return false;
    *e = (xl_catalog_entry){ .outcome = (xl_outcome)which,
                             .what = xl_node_text(n, "what"),
                             .class = xl_node_text(n, "class"),
                             .message = xl_node_text(n, "message"),
                             .predicted = xl_node_int(n, "predicted", -1),
                             .compiled = xl_node_int(n, "compiled", -1),
                             .observed = xl_node_int(n, "observed", -1),
                             .limit = xl_node_int(n, "limit", -1),
                             .host = xl_node_int(n, "host", -1),
                             .flops = xl_node_num(n, "flops", -1),
                             .seconds = xl_node_num(n, "seconds", -1),
                             .when = xl_node_num(n, "when", -1),
                             .where = xl_node_text(n, "where") };
#define PART(name, help) e->sig.name = xl_node_text(sig, #name);
    XL_SIGNATURE(PART)
#undef PART
    if (detail) {
        xl_buf b = { 0 };
        xl_json_node(&(xl_json){ .out = &b }, detail);
        e->detail = xl_str_dup(a, xl_buf_view(&b));
        xl_buf_fini(&b);
    }
    return true;
}

static int by_time(const void *x, const void *y)
{
    double a = ((const xl_catalog_entry *)x)->when, b = ((const xl_catalog_entry *)y)->when;
    return a < b ? -1 : a > b;
}

xl_error *xl_catalog_read(xl_arena *a, const char *dir, xl_catalog_entry **out, size_t *n, size_t *torn)
{
    xl_error *err = NULL;
    xl_str *names = NULL;
    size_t nname = 0, cap = 0, bad = 0;
    *out = NULL;
    *n = 0;
    if (torn)
        *torn = 0;
    if (!dir || !xl_file_stat(dir, NULL))
        return NULL;
    XL_TRY(xl_dir_list(a, dir, &names, &nname), "the catalog");
    for (size_t i = 0; i < nname; i++) {
        xl_str text;
        if (!xl_str_ends(names[i], XL_STR(".jsonl")))
            continue;
        char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        XL_TRY(xl_file_read_max(a, path, (uint64_t)256 << 20, &text), "the catalog");
        while (text.n) {
            xl_str line = xl_str_trim(xl_str_cut(&text, '\n'));
            xl_node *node = NULL;
            xl_catalog_entry e;
            if (!line.n)
                continue;
            xl_error *wrong = xl_json_read(a, path, line, &node);
            if (wrong || node->kind != XL_NODE_MAP || !entry_of(a, node, &e))
                bad++;
            else
                XL_PUSH(a, *out, *n, cap, e);
            xl_error_free(wrong);
        }
    }
    if (*n)
        qsort(*out, *n, sizeof **out, by_time);
    if (torn)
        *torn = bad;
out:
    return err;
}

xl_known xl_catalog_known(const xl_catalog_entry *e, size_t n, const xl_signature *s, const xl_catalog_entry **why)
{
    xl_digest want = xl_signature_digest(s, true);
    if (why)
        *why = NULL;
    for (size_t i = n; i-- > 0;) {
        xl_digest have = xl_signature_digest(&e[i].sig, true);
        if (e[i].outcome == XL_OUTCOME_PREDICTED || e[i].outcome == XL_OUTCOME_KILLED || !xl_digest_eq(&have, &want))
            continue;
        if (why)
            *why = &e[i];
        return e[i].outcome == XL_OUTCOME_FAILED ? XL_KNOWN_BAD : XL_KNOWN_GOOD;
    }
    return XL_UNSEEN;
}

const xl_catalog_entry *xl_catalog_before(const xl_catalog_entry *e, size_t n, const xl_signature *s)
{
    xl_digest want = xl_signature_digest(s, false);
    for (size_t i = n; i-- > 0;) {
        xl_digest have = xl_signature_digest(&e[i].sig, false);
        if (xl_digest_eq(&have, &want) && !xl_str_eq(e[i].sig.bundle, s->bundle) && e[i].outcome == XL_OUTCOME_RAN)
            return &e[i];
    }
    return NULL;
}
