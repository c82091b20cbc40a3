/* An entry file `ab/cdef....xle`, named by its digest:
 *   header (48 bytes: magic, manifest size, packed size, raw size, seconds), manifest (JSON: module, created, host,
 *   parts), packed blob (zstd), MAC (32 bytes, keyed BLAKE2b over all before).
 * The digest in the name is that of the parts in the manifest, so a renamed or exchanged entry is refused.
 *
 * Besides the 256 folders of entries there are `size` (bytes and number of entries, so that they need not be counted),
 * `near/` (by module and by program, the entries that a miss is compared with), `removed.log` (why entries were
 * removed, the latest of them), `writers/` (hosts that wrote) and `segment-*` (private caches). The folder belongs to
 * its user alone: see own_folder. */
#include "lane/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/json.h"
#include "base/time.h"
#include "base/zip.h"

struct xl_cache {
    char *dir;                                             /* where entries are read and written */
    xl_path_id id;                                         /* of that folder: another root has another one */
    xl_cache_opts opts;
    xl_key key;
};

typedef struct {
    char magic[8];
    uint64_t manifest, packed, raw;
    double seconds;
    uint64_t reserved;
} header;
_Static_assert(sizeof(header) == 48, "the header's layout is part of the format");
static const char magic[8] = "XLANEXE1";
static const char pack_magic[8] = "XLANEPK1";
enum { MAC = XL_DIGEST_SIZE };
static const uint64_t most_entry = UINT64_C(8) << 30;

/* ---- the user's key ------------------------------------------------------------------------------------------------
 * It lies outside the cache folder, so that whoever can write there cannot make entries that pass. */
static xl_error *key_in(xl_arena *a, const char *dir, xl_key *out)
{
    xl_error *err = NULL;
    char *path = xl_path_join(a, dir, "cache.key");
    xl_str bytes;
    for (int tries = 0; tries < 3; tries++) {
        struct stat st;
        if (lstat(path, &st) == 0) {
            if (!S_ISREG(st.st_mode))
                return XL_ERR(UNAUTHENTICATED, "%s is not a plain file; remove it, and a new one is made", path);
            if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 077))
                return XL_ERR(UNAUTHENTICATED, "%s can be read by others; remove it, and a new one is made", path);
            XL_TRY(xl_file_read_plain(a, path, 4096, &bytes), "reading the cache key");
            if (bytes.n != XL_KEY_SIZE)
                return XL_ERR(DATA_LOSS,
                              "%s is damaged; remove it, and a new one is made (old entries are then misses)", path);
            memcpy(out->b, bytes.p, XL_KEY_SIZE);
            return NULL;
        }
        XL_DO(xl_dir_make_private(dir));
        XL_DO(xl_random(out->b, XL_KEY_SIZE));
        err = xl_file_write_new(path, (xl_str){ (const char *)out->b, XL_KEY_SIZE }, 0600);
        if (!err)
            return NULL;
        if (xl_error_code(err) != XL_CODE_EXISTS)
            goto out;
        xl_error_free(err);                                /* another process was first: read what it wrote */
        err = NULL;
    }
    err = XL_ERR(UNAVAILABLE, "could not settle on a cache key in %s", dir);
out:
    return err;
}

/* Where there is no home folder, or none that can be written, it lies in the cache folder, which is the user's own. */
static xl_error *load_key(xl_arena *a, const char *cache_dir, xl_key *out)
{
    const char *named = getenv("XLANE_STATE");
    char *state = xl_home_state(a);
    xl_error *err = state ? key_in(a, state, out) : NULL;
    if (state && (!err || (named && *named) || xl_error_code(err) == XL_CODE_UNAUTHENTICATED ||
                  xl_error_code(err) == XL_CODE_DATA_LOSS))
        return err;
    xl_error_free(err);
    return xl_error_next(key_in(a, cache_dir, out), "XLANE_STATE=DIR names a folder for the cache's key");
}

/* The folder that is really used, for every verb alike: one that only this user and root can write, on the whole way to
 * it. In a folder that everybody may write and only owners may remove from (mode 1777, as /tmp) it is `xlane-<uid>`
 * there. */
static xl_error *own_folder(xl_arena *a, const char *named, bool make, char **out)
{
    xl_error *err = NULL;
    struct stat st;
    char *dir = xl_str_c(a, xl_str_of(named));
    if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX) && (st.st_mode & (S_IWOTH | S_IWGRP))) {
        dir = xl_path_join(a, dir, xl_strf(a, "xlane-%lu", (unsigned long)geteuid()).p);
        if (make && mkdir(dir, 0700) != 0 && errno != EEXIST) {
            err = xl_file_error(errno, "making the cache folder", dir);
            goto out;
        }
        if (lstat(dir, &st) == 0 && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())) {
            err = XL_ERR(UNAUTHENTICATED,
                         "cache folder refused: %s was put there by user %lu; name a folder of your own with --cache",
                         dir, (unsigned long)st.st_uid);
            goto out;
        }
    } else if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode)) {
        err = XL_ERR(INVALID, "%s is a file, and a cache is a folder", dir);
        goto out;
    } else if (make && !xl_file_stat(dir, NULL)) {
        XL_TRY(xl_dir_make_private(dir), "making the cache folder");
    }
    XL_TRY(xl_path_trusted(dir), "cache folder refused");
    *out = dir;
out:
    return err;
}

/* For the verbs that look into one that is there. */
static xl_error *look(xl_arena *a, const char *named, char **dir)
{
    return xl_error_next(xl_error_wrap(own_folder(a, named, false, dir), "looking into the cache folder"),
                         "--cache=DIR names another");
}

typedef struct { const char *dir; const xl_cache_opts *opts; xl_cache *c; } open_ctx;

static xl_error *do_open(xl_arena *a, void *p)
{
    xl_error *err = NULL;
    open_ctx *o = p;
    if (strstr(o->dir, "://"))
        return XL_ERR(INVALID, "%s is remote, and a cache folder must be local; use a local folder, with "
                               "`xlane cache export` and `xlane cache import` to carry it between hosts", o->dir);
    char *dir;
    XL_DO(own_folder(a, o->dir, !o->opts->read_only, &dir));
    if (o->opts->segment && *o->opts->segment)
        XL_DO(own_folder(a, xl_path_join(a, dir, xl_strf(a, "segment-%s", o->opts->segment).p), !o->opts->read_only,
                         &dir));
    XL_DO(load_key(a, dir, &o->c->key));
    o->c->dir = strdup(dir);
    if (!o->c->dir || !xl_path_identify(dir, &o->c->id))
        return XL_ERR(EXHAUSTED, "out of memory");
    o->c->opts = *o->opts;
    o->c->opts.segment = NULL;
    if (!o->c->opts.max_bytes)
        o->c->opts.max_bytes = UINT64_C(10) << 30;
out:
    return err;
}

xl_error *xl_cache_open(const char *dir, const xl_cache_opts *opts, xl_cache **out)
{
    static const xl_cache_opts none;
    *out = NULL;
    xl_cache *c = calloc(1, sizeof *c);
    if (!c)
        return XL_ERR(EXHAUSTED, "out of memory");
    xl_error *err = xl_arena_call(do_open, &(open_ctx){ dir, opts ? opts : &none, c });
    if (err) {
        xl_cache_close(c);
        return err;
    }
    *out = c;
    return NULL;
}

xl_error *xl_cache_segment(const xl_cache *c, const char *name, uint64_t max_bytes, xl_cache **out)
{
    xl_error *err = xl_cache_open(
        c->dir, &(xl_cache_opts){ .segment = name, .max_bytes = max_bytes, .read_only = c->opts.read_only }, out);
    if (err && c->opts.read_only) {
        xl_error_free(err);
        return NULL;
    }
    return err;
}

void xl_cache_close(xl_cache *c)
{
    if (!c)
        return;
    free(c->dir);
    free(c);
}

const char *xl_cache_dir(const xl_cache *c) { return c->dir; }

/* ---- keys -------------------------------------------------------------------------------------------------------- */
void xl_cache_key_add(xl_cache_key *k, const char *name, xl_str value)
{
    if (k->n < XL_KEY_PARTS) {
        k->name[k->n] = name;
        k->value[k->n++] = value;
        return;
    }
    k->too_long = true;                                    /* a part that was left out would make two programs one */
}

static void digest_parts(uint32_t n, const xl_str *name, const xl_str *value, xl_digest *out)
{
    xl_hash h;
    xl_hash_init(&h);
    xl_hash_str(&h, XL_STR("xlane executable key 1"));
    for (uint32_t i = 0; i < n; i++) {
        xl_hash_str(&h, name[i]);
        xl_hash_str(&h, value[i]);
    }
    *out = xl_hash_final(&h);
}

void xl_cache_key_seal(xl_cache_key *k)
{
    xl_str name[XL_KEY_PARTS];
    for (uint32_t i = 0; i < k->n; i++)
        name[i] = xl_str_of(k->name[i]);
    digest_parts(k->n, name, k->value, &k->digest);
}

static char *entry_path(xl_arena *a, const char *dir, const xl_digest *d, const char *suffix)
{
    char hex[XL_DIGEST_HEX];
    xl_digest_hex(d, hex);
    return xl_path_join(a, dir, xl_strf(a, "%.2s/%s%s", hex, hex + 2, suffix).p);
}

/* "<digest>.xle", as entries are listed, back to its path. */
static char *listed_path(xl_arena *a, const char *dir, xl_str file)
{
    return xl_path_join(a, dir, xl_strf(a, "%.2s/%.*s", file.p, (int)file.n - 2, file.p + 2).p);
}

static void make_shard(const char *entry)
{
    char dir[4200];
    if (snprintf(dir, sizeof dir, "%.*s", XL_FMT(xl_path_dir(xl_str_of(entry)))) < (int)sizeof dir)
        (void)!mkdir(dir, 0700); /* there already, or the write that follows says what is wrong */
}

static bool all_hex(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
            return false;
    return true;
}

/* Goes through all entries of a folder. Only names of our own form are taken: nobody's newline gets into a log. */
typedef void visit_fn(void *ctx, const char *path, xl_str file); /* file: "<digest>.xle" */
static void each_entry(xl_arena *a, const char *dir, visit_fn *visit, void *ctx)
{
    enum { REST = XL_DIGEST_HEX - 1 - 2 };
    for (int shard = 0; shard < 256; shard++) {
        char path[4200];
        xl_str *names = NULL;
        size_t have = 0;
        int n = snprintf(path, sizeof path, "%s/%02x", dir, shard);
        if (n < 0 || (size_t)n > sizeof path - 80)
            return;
        xl_error_free(xl_dir_list(a, path, &names, &have)); /* not there: nobody has put any in it */
        for (size_t i = 0; i < have; i++) {
            if (names[i].n != REST + 4 || !all_hex(names[i].p, REST) || !xl_str_ends(names[i], XL_STR(".xle")))
                continue;
            snprintf(path + n, sizeof path - (size_t)n, "/%.*s", XL_FMT(names[i]));
            visit(ctx, path, xl_strf(a, "%02x%.*s", shard, XL_FMT(names[i])));
        }
    }
}

/* ---- one entry --------------------------------------------------------------------------------------------------- */
typedef struct {
    header h;
    xl_str manifest, packed;
    xl_cache_entry info;
} entry;

static const char *parse_manifest(xl_arena *a, entry *out)
{
    xl_node *m;
    xl_error *err = xl_json_read(a, "manifest", out->manifest, &m);
    if (err) {
        xl_error_free(err);
        return "its manifest does not parse";
    }
    const xl_node *parts = xl_node_get(m, "parts"), *n;
    xl_cache_entry *e = &out->info;
    e->raw_bytes = out->h.raw;
    e->compile_seconds = out->h.seconds;
    if ((n = xl_node_get(m, "module")) && n->kind == XL_NODE_STR)
        e->module = n->s;
    if ((n = xl_node_get(m, "host")) && n->kind == XL_NODE_STR)
        e->host = n->s;
    if ((n = xl_node_get(m, "created")))
        e->created = n->f;
    if (!parts || parts->kind != XL_NODE_MAP || parts->n > XL_KEY_PARTS)
        return "its manifest has no parts";
    e->n = (uint32_t)parts->n;
    for (uint32_t i = 0; i < e->n; i++) {
        e->name[i] = parts->kid[i]->key;
        e->value[i] = parts->kid[i]->s;
    }
    return NULL;
}

/* Takes an entry apart. `key` NULL: the MAC is not checked (a packed file has a plain digest instead). */
static const char *parse_entry(xl_arena *a, xl_str bytes, const xl_key *key, entry *out)
{
    if (bytes.n < sizeof(header) + MAC)
        return "truncated";
    memcpy(&out->h, bytes.p, sizeof out->h);
    if (memcmp(out->h.magic, magic, sizeof magic))
        return "not an entry of this format";
    size_t body = bytes.n - sizeof(header) - MAC;
    if (out->h.manifest > body || out->h.packed != body - out->h.manifest || out->h.raw > most_entry)
        return "truncated";
    if (key) {
        xl_digest mac = xl_mac_of(key, (xl_str){ bytes.p, bytes.n - MAC }), stored;
        memcpy(stored.b, bytes.p + bytes.n - MAC, MAC);
        if (!xl_digest_eq(&mac, &stored))
            return "damaged, or not written by this user (its seal does not fit)";
    }
    out->manifest = (xl_str){ bytes.p + sizeof(header), (size_t)out->h.manifest };
    out->packed = (xl_str){ out->manifest.p + out->manifest.n, (size_t)out->h.packed };
    return parse_manifest(a, out);
}

/* Only the manifest, unauthenticated: good enough to say in words what differs, and quick however large the
 * entry is. */
static bool peek_entry(xl_arena *a, const char *path, entry *out)
{
    enum { MOST = 1 << 18 };
    struct stat st;
    bool ok = false;
    int fd = xl_file_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    *out = (entry){ 0 };
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && pread(fd, &out->h, sizeof out->h, 0) == sizeof out->h &&
        !memcmp(out->h.magic, magic, sizeof magic) && out->h.manifest <= MOST) {
        char *text = xl_new(a, char, (size_t)out->h.manifest + 1);
        out->manifest = (xl_str){ text, (size_t)out->h.manifest };
        ok = pread(fd, text, out->manifest.n, sizeof out->h) == (ssize_t)out->manifest.n && !parse_manifest(a, out);
        out->info.used = (double)st.st_mtim.tv_sec;
    }
    close(fd);
    return ok;
}

/* Reads an entry file that only we (or root) can have written. Returns what is wrong, or NULL. *missing:
 * there is none. */
static const char *read_entry(xl_arena *a, const char *path, const xl_key *key, xl_str *bytes, entry *out,
                              bool *missing)
{
    const char *bad = NULL;
    struct stat st;
    int fd = xl_file_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    *missing = fd < 0 && errno == ENOENT;
    if (fd < 0)
        return *missing ? "missing" : errno == ELOOP ? "a link, not a file" : "cannot be opened";
    char *p = NULL;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        bad = "not a file";
    } else if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 022)) {
        bad = "another user could have written it";
    } else if ((uint64_t)st.st_size > most_entry) {
        bad = "too large";
    } else if (!(p = malloc((size_t)st.st_size + 1))) {
        bad = "no memory to read it";
    } else {
        size_t have = 0;
        while (have < (size_t)st.st_size) {
            ssize_t got = read(fd, p + have, (size_t)st.st_size - have);
            if (got <= 0) {
                if (got < 0 && errno == EINTR)
                    continue;
                bad = got < 0 ? "cannot be read" : "shrank while it was read";
                break;
            }
            have += (size_t)got;
        }
    }
    close(fd);
    *bytes = (xl_str){ p, p && !bad ? (size_t)st.st_size : 0 };
    if (!bad) {
        *out = (entry){ 0 };
        bad = parse_entry(a, *bytes, key, out);
        out->info.bytes = (uint64_t)st.st_size;
        out->info.used = (double)st.st_mtim.tv_sec;
    }
    if (!bad) {
        char hex[XL_DIGEST_HEX];
        xl_digest d;
        digest_parts(out->info.n, out->info.name, out->info.value, &d);
        xl_digest_hex(&d, hex);
        if (!xl_str_ends(xl_str_of(path), xl_strf(a, "/%.2s/%s.xle", hex, hex + 2)))
            bad = "its name does not fit what is in it";
    }
    return bad;
}

static const char *unpack(const entry *e, xl_buf *raw)
{
    xl_error *err = xl_unzip(e->packed, e->h.raw, raw);
    const char *bad = !err && raw->n == e->h.raw ? NULL
                      : xl_error_code(err) == XL_CODE_EXHAUSTED ? "no memory to unpack it" : "does not unpack";
    xl_error_free(err);
    if (bad)
        xl_buf_fini(raw);
    return bad;
}

/* ---- differences in words ---------------------------------------------------------------------------------------- */
static bool next_word(xl_str *rest, xl_str *word)
{
    *rest = xl_str_trim(*rest);
    size_t n = 0;
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\n' && rest->p[n] != '\t')
        n++;
    *word = (xl_str){ rest->p, n };
    *rest = (xl_str){ rest->p + n, rest->n - n };
    return n > 0;
}

static bool find_word(xl_str list, xl_str name, xl_str *value)
{
    xl_str word;
    while (next_word(&list, &word)) {
        xl_str v = word, k = xl_str_cut(&v, '=');
        if (xl_str_eq(k, name)) {
            *value = v.p ? v : XL_STR("set");
            return true;
        }
    }
    return false;
}

static xl_str no_dashes(xl_str s)
{
    while (s.n && s.p[0] == '-') {
        s.p++;
        s.n--;
    }
    return s;
}

/* A digest is told by its beginning. */
static xl_str brief(xl_str value)
{
    enum { DIGEST = 40, SHOWN = 12 };
    size_t n = 0;
    while (n < value.n && strchr("0123456789abcdef", value.p[n]))
        n++;
    return n == value.n && n >= DIGEST ? (xl_str){ value.p, SHOWN } : value;
}

/* A space is kept as '_', so that a value is one word. */
static void put_value(xl_str value, xl_buf *out)
{
    value = brief(value);
    for (size_t i = 0; i < value.n; i++)
        xl_buf_putc(out, i && value.p[i] == '_' && value.p[i - 1] == ',' ? ' ' : value.p[i]);
}

/* Compile options as those know them who set them through a frontend; the name of XLA's field in parentheses. */
static const struct { const char *field, *words; } options[] = {
    { "env_option_overrides[", "compiler option" },        /* of jax.jit's compiler_options */
    { "executable_build_options.debug_options.", "XLA flag" },
    { "executable_build_options.num_partitions", "devices that share the program" },
    { "executable_build_options.num_replicas", "copies of the program" },
    { "executable_build_options.device_assignment", "its devices" },
    { "executable_build_options.use_spmd_partitioning", "partitioning by shardings" },
    { "executable_build_options.use_shardy_partitioner", "the Shardy partitioner" },
    { "executable_build_options.", "compile option" },
};

static void put_name(xl_str name, xl_buf *out)
{
    name = no_dashes(name);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        xl_str field = xl_str_of(options[i].field);
        if (!xl_str_starts(name, field))
            continue;
        xl_str rest = { name.p + field.n, name.n - field.n };
        char last = field.p[field.n - 1];
        if (last == '[') {
            xl_str key = xl_str_cut(&rest, ']');
            xl_buf_printf(out, "%s %.*s (env_option_overrides)", options[i].words, XL_FMT(key));
        } else if (last == '.') {
            xl_buf_printf(out, "%s %.*s (%.*s)", options[i].words, XL_FMT(rest), (int)field.n - 1, field.p);
        } else {
            xl_buf_printf(out, "%s (%.*s)", options[i].words, XL_FMT(name));
        }
        return;
    }
    xl_buf_str(out, name);
}

/* The key of an override repeats its name. */
static bool repeats(xl_str name)
{
    return xl_str_starts(name, XL_STR("env_option_overrides[")) && xl_str_ends(name, XL_STR("].key"));
}

void xl_words_diff(xl_str before, xl_str after, xl_buf *out)
{
    xl_str word, rest = before;
    int said = 0;
    while (next_word(&rest, &word) && said < 8) {
        xl_str old = word, name = xl_str_cut(&old, '='), now;
        if (!old.p)
            old = XL_STR("set");
        if (!find_word(after, name, &now))
            now = XL_STR("absent");
        if (xl_str_eq(old, now) || repeats(name))
            continue;
        xl_buf_puts(out, said++ ? ", " : "");
        put_name(name, out);
        xl_buf_putc(out, ' ');
        put_value(old, out);
        xl_buf_puts(out, " -> ");
        put_value(now, out);
    }
    rest = after;
    while (next_word(&rest, &word) && said < 8) {
        xl_str now = word, name = xl_str_cut(&now, '='), old;
        if (find_word(before, name, &old) || repeats(name))
            continue;
        xl_buf_puts(out, said++ ? ", " : "");
        put_name(name, out);
        xl_buf_puts(out, " absent -> ");
        put_value(now.p ? now : XL_STR("set"), out);
    }
    if (!said)
        xl_buf_puts(out, "the order or spacing of the words");
}

/* Which part, when several differ, is the reason: in the order in which a person would look. */
static const char *const blame[] = { "program", "options",  "flags",    "profile",
                                     "plugin",  "versions", "topology", "process" };

/* ---- near: which entries a miss is compared with ----------------------------------------------------------------- */
enum { NEAR = 64 };

static char *near_path(xl_arena *a, const char *dir, char kind, xl_str name)
{
    char hex[XL_DIGEST_HEX];
    xl_digest d = xl_hash_of(xl_strf(a, "%c%.*s", kind, XL_FMT(name)));
    return xl_path_join(a, dir, xl_strf(a, "near/%.16s", xl_digest_hex(&d, hex)).p);
}

static xl_str program_of(const xl_cache_key *k)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (!strcmp(k->name[i], "program"))
            return k->value[i];
    return (xl_str){ 0 };
}

static void near_add(xl_arena *a, const char *dir, char kind, xl_str name, const char *hex)
{
    xl_str text;
    if (!name.n)
        return;
    char *path = near_path(a, dir, kind, name);
    xl_error *err = xl_file_read_plain(a, path, 1 << 16, &text);
    xl_error_free(err);
    if (!err && memmem(text.p, text.n, hex, XL_DIGEST_HEX - 1))
        return;
    if (!err && text.n >= NEAR * XL_DIGEST_HEX) {          /* the newer half stays */
        xl_str rest = { text.p + text.n / 2, text.n - text.n / 2 };
        xl_str_cut(&rest, '\n');
        xl_error_free(xl_file_write_quick(path, xl_strf(a, "%.*s%s\n", XL_FMT(rest), hex)));
    } else {
        xl_error_free(xl_file_append(path, xl_str_of(hex)));
    }
}

static void explain_miss(xl_arena *a, xl_cache *c, const xl_cache_key *k, xl_cache_found *out)
{
    struct { double used; entry e; uint32_t same; bool program; } best = { 0 };
    bool any = false;
    out->reason = "first";
    snprintf(out->detail, sizeof out->detail, "no entry for this program yet");
    for (int kind = 0; kind < 2; kind++) {
        xl_str name = kind ? k->module : program_of(k), list = { 0 };
        if (name.n)
            xl_error_free(xl_file_read_plain(a, near_path(a, c->dir, kind ? 'm' : 'p', name), 1 << 16, &list));
        while (list.n) {
            xl_str line = xl_str_cut(&list, '\n');
            entry e;
            if (line.n != XL_DIGEST_HEX - 1 || !all_hex(line.p, line.n) ||
                !peek_entry(a, listed_path(a, c->dir, xl_strf(a, "%.*s.xle", XL_FMT(line))), &e))
                continue;
            uint32_t same = 0;
            bool program = false;
            for (uint32_t i = 0; i < k->n && i < e.info.n; i++)
                if (xl_str_is(e.info.name[i], k->name[i]) && xl_str_eq(e.info.value[i], k->value[i])) {
                    same++;
                    program |= !strcmp(k->name[i], "program");
                }
            bool related = program || (k->module.n && xl_str_eq(e.info.module, k->module));
            if (!related || (any && (best.program > program || (best.program == program && best.same > same) ||
                                     (best.program == program && best.same == same && best.used > e.info.used))))
                continue;
            any = true;
            best.e = e;
            best.same = same;
            best.program = program;
            best.used = e.info.used;
        }
    }
    if (!any)
        return;
    xl_buf words = { 0 };
    xl_buf_puts(&words, best.program ? "same program" : "another program of the same name");
    const char *reason = NULL;
    for (size_t b = 0; b < sizeof blame / sizeof *blame; b++)
        for (uint32_t i = 0; i < k->n && i < best.e.info.n; i++) {
            if (strcmp(k->name[i], blame[b]) || xl_str_eq(best.e.info.value[i], k->value[i]))
                continue;
            if (!reason)
                reason = blame[b];
            if (strcmp(blame[b], "program")) {
                xl_buf_printf(&words, "; %s: ", blame[b]);
                xl_words_diff(best.e.info.value[i], k->value[i], &words);
            }
        }
    if (reason)
        out->reason = reason;
    snprintf(out->detail, sizeof out->detail, "%.*s", (int)words.n, words.p ? words.p : "");
    xl_buf_fini(&words);
}

/* ---- get and put ------------------------------------------------------------------------------------------------- */
bool xl_cache_has(xl_cache *c, const xl_cache_key *k)
{
    char hex[XL_DIGEST_HEX], path[4200];
    xl_digest_hex(&k->digest, hex);
    int n = snprintf(path, sizeof path, "%s/%.2s/%s.xle", c->dir, hex, hex + 2);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

typedef struct { xl_cache *c; const xl_cache_key *k; xl_cache_found *out; } get_ctx;

static const char *dropped_reason(xl_arena *a, xl_cache *c, const xl_cache_key *k)
{
    char hex[XL_DIGEST_HEX];
    xl_str log, line;
    xl_error *err = xl_file_read_plain(a, xl_path_join(a, c->dir, "removed.log"), 1 << 22, &log);
    if (err) {
        xl_error_free(err);
        return NULL;
    }
    xl_digest_hex(&k->digest, hex);
    const char *why = NULL;
    while (log.n) {
        line = xl_str_cut(&log, '\n');
        xl_str id = xl_str_cut(&line, ' ');
        if (xl_str_is(id, hex))
            why = xl_str_c(a, line);
    }
    return why;
}

static xl_error *do_get(xl_arena *a, void *p)
{
    get_ctx *g = p;
    xl_cache_found *out = g->out;
    entry e;
    xl_str bytes = { 0 };
    bool missing;
    char *path = entry_path(a, g->c->dir, &g->k->digest, ".xle");
    const char *bad = read_entry(a, path, &g->c->key, &bytes, &e, &missing);
    if (!bad) {
        xl_buf raw = { 0 };
        bad = unpack(&e, &raw);
        if (!bad) {
            out->hit = true;
            out->blob = raw.p;
            out->size = raw.n;
            out->compile_seconds = e.h.seconds;
            if (!g->c->opts.read_only)
                utimensat(AT_FDCWD, path, NULL, 0);        /* used now: the last to be evicted */
        }
    }
    free((void *)bytes.p);
    if (out->hit)
        return NULL;
    const char *gone = missing ? dropped_reason(a, g->c, g->k) : NULL;
    if (!missing) {
        out->reason = "unreadable";
        snprintf(out->detail, sizeof out->detail, "%s: %s", path, bad);
    } else if (gone) {
        out->reason = !strncmp(gone, "evicted", 7) ? "evicted" : "unreadable";
        out->removed = true;
        snprintf(out->detail, sizeof out->detail, "%s", gone);
    } else {
        explain_miss(a, g->c, g->k, out);
    }
    return NULL;
}

xl_error *xl_cache_get(xl_cache *c, const xl_cache_key *k, xl_cache_found *out)
{
    *out = (xl_cache_found){ 0 };
    if (k->too_long)
        return XL_ERR(INVALID, "a cache key has more than %d parts: raise XL_KEY_PARTS in lane/cache.h", XL_KEY_PARTS);
    *out = (xl_cache_found){ .reason = "first" };
    if (!xl_path_is(c->dir, &c->id)) {
        out->reason = "unreadable";
        snprintf(out->detail, sizeof out->detail, "%s is not the folder that was opened", c->dir);
        return NULL;
    }
    return xl_arena_call(do_get, &(get_ctx){ c, k, out });
}

static const char *host_name(char *buf, size_t n)
{
    if (gethostname(buf, n))
        snprintf(buf, n, "unknown");
    buf[n - 1] = 0;
    return buf;
}

enum { LOG_MAX = 1 << 19 };                                /* of removed.log; then its newest half stays */

/* Keeps the newest lines, however large it has become. */
static void shorten(xl_arena *a, const char *path, uint64_t size)
{
    struct stat st;
    size_t n = LOG_MAX / 2;
    char *p = xl_arena_try(a, n);
    int fd = p ? xl_file_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0) : -1;
    ssize_t got = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? pread(fd, p, n, (off_t)(size - n)) : -1;
    if (got > 0) {
        xl_str text = { p, (size_t)got };
        xl_str_cut(&text, '\n');
        xl_error_free(xl_file_write_quick(path, text));
    }
    if (fd >= 0)
        close(fd);
}

static void note_removed(xl_arena *a, const char *dir, xl_str file, const char *why)
{
    char *path = xl_path_join(a, dir, "removed.log");
    xl_str id = { file.p, file.n > 4 ? file.n - 4 : 0 };
    xl_file_info st;
    if (!all_hex(id.p, id.n))
        return;
    if (xl_file_stat(path, &st) && st.size > LOG_MAX)
        shorten(a, path, st.size);
    xl_error_free(xl_file_append(path, xl_strf(a, "%.*s %s", XL_FMT(id), why)));
}

/* ---- how large the folder is
 * ------------------------------------------------------------------------------------------ `size` holds bytes and
 * entries. Whoever puts an entry adds it, under a lock; the entries themselves are looked at only when the bound is
 * reached, or when there is no count yet. */
typedef struct { xl_str file; double used; uint64_t bytes; } lru;
typedef struct { xl_arena *a; lru *p; size_t n, cap; uint64_t bytes; } census;

static int oldest_first(const void *x, const void *y)
{
    const lru *a = x, *b = y;
    return a->used < b->used ? -1 : a->used > b->used;
}

static void count_one(void *ctx, const char *path, xl_str file)
{
    census *c = ctx;
    struct stat st;
    if (lstat(path, &st) || !S_ISREG(st.st_mode))
        return;
    lru one = { file, (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec, (uint64_t)st.st_size };
    XL_PUSH(c->a, c->p, c->n, c->cap, one);
    c->bytes += one.bytes;
}

/* Entries of a folder without sub-folders, as they were once kept, move to their places. */
static void adopt(xl_arena *a, const char *dir)
{
    xl_str *names;
    size_t n = 0;
    xl_error *err = xl_dir_list(a, dir, &names, &n);
    xl_error_free(err);
    for (size_t i = 0; !err && i < n; i++) {
        if (names[i].n != XL_DIGEST_HEX - 1 + 4 || !all_hex(names[i].p, XL_DIGEST_HEX - 1) ||
            !xl_str_ends(names[i], XL_STR(".xle")))
            continue;
        char *to = listed_path(a, dir, names[i]);
        make_shard(to);
        (void)!rename(xl_path_join(a, dir, xl_str_c(a, names[i])), to);
    }
}

/* *locked: false where the file system has no locks (NFS without lockd): then the count is not to be trusted. */
static int lock_size(const char *dir, bool wait, bool *locked)
{
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s/size", dir);
    int fd = xl_file_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *locked = true;
    for (int turn = 0; flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)); turn++) {
        if (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS || errno == EINVAL) {
            *locked = false;
            return fd;
        }
        if ((errno != EWOULDBLOCK && errno != EINTR) || turn > 100) {
            close(fd); /* another process counts all of them: it will count ours too, or the next one does */
            return -1;
        }
        nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
    }
    return fd;
}

/* What stays of a folder that has reached its bound. */
static uint64_t kept_of(uint64_t most) { return most - most / 10; }

/* Adds `added` bytes and `more` entries to the count, and keeps the folder within its bound, with a tenth to spare once
 * it was reached. `recount`: by looking at all of them. What went is added to removed and freed. */
static void account(xl_arena *a, const char *dir, uint64_t most, int64_t added, int64_t more, bool recount,
                    size_t *removed, uint64_t *freed)
{
    char text[64] = "";
    unsigned long long bytes = 0, entries = 0;
    bool locked = false;
    int fd = lock_size(dir, recount, &locked);
    if (fd < 0 && !recount)
        return;
    bool known = fd >= 0 && locked && pread(fd, text, sizeof text - 1, 0) > 0 &&
                 sscanf(text, "%llu %llu", &bytes, &entries) == 2;
    if (!known)
        adopt(a, dir);
    bytes = added < 0 && bytes < (uint64_t)-added ? 0 : bytes + (uint64_t)added;
    entries = more < 0 && entries < (uint64_t)-more ? 0 : entries + (uint64_t)more;
    if (!known || recount || bytes > most) {
        census c = { .a = a };
        each_entry(a, dir, count_one, &c);
        if (c.bytes > most) {
            uint64_t target = recount ? most : kept_of(most);
            qsort(c.p, c.n, sizeof *c.p, oldest_first);
            size_t gone = 0;
            for (size_t i = 0; i < c.n && c.bytes > target; i++)
                if (unlink(listed_path(a, dir, c.p[i].file)) == 0) {
                    c.bytes -= c.p[i].bytes;
                    *freed += c.p[i].bytes;
                    gone++;
                    note_removed(a, dir, c.p[i].file, "evicted: the folder had reached its size bound");
                }
            *removed += gone;
            c.n -= gone;
        }
        bytes = c.bytes;
        entries = c.n;
    }
    if (fd >= 0) {
        int n = snprintf(text, sizeof text, "%020llu %020llu\n", bytes, entries);
        (void)!pwrite(fd, text, (size_t)n, 0);
        close(fd);
    }
}

typedef struct { xl_cache *c; const xl_cache_key *k; const void *blob; size_t size; double seconds; } put_ctx;

static xl_error *add_entry(xl_arena *a, const xl_cache *c, const xl_digest *digest, xl_str module, xl_str program,
                           xl_str bytes)
{
    xl_error *err = NULL;
    XL_KNOWN(c);                                           /* xl_cache_open gave no error */
    char host[256], hex[XL_DIGEST_HEX], *path = entry_path(a, c->dir, digest, ".xle");
    xl_file_info before;
    uint64_t most = kept_of(c->opts.max_bytes);
    if (bytes.n > most) {
        err = XL_ERR(EXHAUSTED, "an entry of %zu bytes would be dropped at once: --cache-max=SIZE keeps %llu bytes",
                     bytes.n, (unsigned long long)most);
        goto out;
    }
    XL_TRY(xl_dir_make_private(xl_str_c(a, xl_path_dir(xl_str_of(path)))), "writing a cache entry");
    int64_t had = xl_file_stat(path, &before) ? (int64_t)before.size : -1;
    XL_TRY(xl_file_write_mode(path, bytes, 0600), "writing a cache entry");
    xl_error_free(xl_dir_make_private(xl_path_join(a, c->dir, "near")));
    xl_digest_hex(digest, hex);
    near_add(a, c->dir, 'p', program, hex);
    near_add(a, c->dir, 'm', module, hex);
    char *writers = xl_path_join(a, c->dir, "writers");
    xl_error_free(xl_dir_make_private(writers));
    int fd = xl_file_open(xl_path_join(a, writers, host_name(host, sizeof host)),
                          O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0) {
        futimens(fd, NULL);
        close(fd);
    }
    size_t removed = 0;
    uint64_t freed = 0;
    account(a, c->dir, c->opts.max_bytes, (int64_t)bytes.n - (had > 0 ? had : 0), had < 0, false, &removed, &freed);
out:
    return err;
}

static xl_error *do_put(xl_arena *a, void *p)
{
    xl_error *err = NULL;
    put_ctx *o = p;
    xl_buf file = { 0 }, manifest = { 0 };
    char host[256];
    xl_json j = { .out = &manifest };
    xl_json_map(&j);
    xl_json_put_str(&j, "module", o->k->module);
    xl_json_put_int(&j, "created", (int64_t)xl_now_wall());
    xl_json_put_text(&j, "host", host_name(host, sizeof host));
    xl_json_key(&j, "parts");
    xl_json_map(&j);
    for (uint32_t i = 0; i < o->k->n; i++)
        xl_json_put_str(&j, o->k->name[i], o->k->value[i]);
    xl_json_end(&j);
    xl_json_end(&j);
    header h = { .manifest = manifest.n, .raw = o->size, .seconds = o->seconds };
    memcpy(h.magic, magic, sizeof magic);
    xl_buf_add(&file, &h, sizeof h);
    xl_buf_str(&file, xl_buf_view(&manifest));
    XL_TRY(xl_zip((xl_str){ o->blob, o->size }, 1, &file), "packing the executable");
    h.packed = file.n - sizeof h - manifest.n;
    if (file.failed || manifest.failed) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    memcpy(file.p, &h, sizeof h);
    xl_digest mac = xl_mac_of(&o->c->key, xl_buf_view(&file));
    xl_buf_add(&file, mac.b, MAC);
    if (file.failed) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    err = add_entry(a, o->c, &o->k->digest, o->k->module, program_of(o->k), xl_buf_view(&file));
out:
    xl_buf_fini(&file);
    xl_buf_fini(&manifest);
    return err;
}

xl_error *xl_cache_put(xl_cache *c, const xl_cache_key *k, const void *blob, size_t size, double seconds)
{
    if (k->too_long)
        return XL_ERR(INVALID, "a cache key has more than %d parts: raise XL_KEY_PARTS in lane/cache.h", XL_KEY_PARTS);
    if (c->opts.read_only || !xl_path_is(c->dir, &c->id))
        return NULL;
    return xl_arena_call(do_put, &(put_ctx){ c, k, blob, size, seconds });
}

typedef struct { xl_cache *c; const xl_cache_key *k; const char *why; } drop_ctx;
static xl_error *do_drop(xl_arena *a, void *p)
{
    drop_ctx *d = p;
    char hex[XL_DIGEST_HEX], *path = entry_path(a, d->c->dir, &d->k->digest, ".xle");
    xl_file_info st = { 0 };
    size_t removed = 0;
    uint64_t freed = 0;
    xl_file_stat(path, &st);
    if (unlink(path) == 0) {
        note_removed(a, d->c->dir, xl_strf(a, "%s.xle", xl_digest_hex(&d->k->digest, hex)), d->why);
        account(a, d->c->dir, UINT64_MAX, -(int64_t)st.size, -1, false, &removed, &freed);
    }
    return NULL;
}

void xl_cache_drop(xl_cache *c, const xl_cache_key *k, const char *why)
{
    if (!c->opts.read_only && xl_path_is(c->dir, &c->id))
        xl_error_free(xl_arena_call(do_drop, &(drop_ctx){ c, k, why }));
}

/* ---- leases: flock, so that a process that dies lets go ---------------------------------------------------------- */
xl_lease_state xl_cache_lease(xl_cache *c, const xl_cache_key *k, double seconds, xl_lease *out)
{
    char hex[XL_DIGEST_HEX], path[4096];
    bool waited = false;
    out->fd = -1;
    if (c->opts.read_only || !xl_path_is(c->dir, &c->id))
        return XL_LEASE_MINE;
    xl_digest_hex(&k->digest, hex);
    snprintf(path, sizeof path, "%s/%.2s/%s.lock", c->dir, hex, hex + 2);
    make_shard(path);
    for (double left = seconds;;) {
        struct stat plain;
        int fd = xl_file_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd >= 0 && (fstat(fd, &plain) || !S_ISREG(plain.st_mode) || plain.st_uid != geteuid())) {
            close(fd);
            fd = -1;
        }
        if (fd < 0)
            return XL_LEASE_MINE;                          /* no lease to be had: everybody compiles for themselves */
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            struct stat held, named;
            if (fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino) {
                out->fd = fd;
                return waited ? XL_LEASE_WAITED : XL_LEASE_MINE;
            }
            close(fd);                                     /* it was removed while we opened it */
            continue;
        }
        bool busy = errno == EWOULDBLOCK || errno == EINTR;
        close(fd);
        if (!busy)
            return XL_LEASE_MINE;
        if (left <= 0)
            return XL_LEASE_TIMEOUT;
        waited = true;
        nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
        left -= 0.02;
    }
}

void xl_cache_release(xl_cache *c, const xl_cache_key *k, xl_lease *l)
{
    char hex[XL_DIGEST_HEX], path[4096];
    if (l->fd < 0)
        return;
    xl_digest_hex(&k->digest, hex);
    snprintf(path, sizeof path, "%s/%.2s/%s.lock", c->dir, hex, hex + 2);
    unlink(path);
    close(l->fd);
    l->fd = -1;
}

const char *xl_cache_writers(xl_arena *a, const char *named)
{
    char *dir = NULL, me[256];
    xl_str *names;
    size_t n, others = 0;
    xl_buf said = { 0 };
    xl_error *err = own_folder(a, named, false, &dir);
    char *writers = err ? NULL : xl_path_join(a, dir, "writers");
    if (!err)
        err = xl_dir_list(a, writers, &names, &n);
    xl_error_free(err);
    if (err)
        return "";
    host_name(me, sizeof me);
    for (size_t i = 0; i < n; i++) {
        xl_file_info st;
        if (!xl_str_is(names[i], me) && xl_file_stat(xl_path_join(a, writers, xl_str_c(a, names[i])), &st) &&
            xl_now_wall() - st.mtime < 600)
            xl_buf_printf(&said, "%s%.*s", others++ ? ", " : "", XL_FMT(names[i]));
    }
    const char *text = others ? xl_strf(a,
                                        "%s also writes to %s: several hosts write one folder, and their locks may not "
                                        "reach one another, so that all "
                                        "compile and each evicts what the others need; give one host the folder and "
                                        "the others --cache-read-only, or each a segment",
                                        said.p, dir)
                                    .p
                              : "";
    xl_buf_fini(&said);
    return text;
}

/* ---- looking after a folder -------------------------------------------------------------------------------------- */
static const char segment_prefix[] = "segment-";

xl_error *xl_cache_where(xl_arena *a, const char *named, const char *segment, char **out)
{
    xl_error *err = NULL;
    xl_str rest = xl_str_of(segment);
    *out = NULL;
    XL_DO(look(a, named, out));
    while (rest.n) {                                       /* "host7/ahead" is a segment of a segment */
        xl_str part = xl_str_cut(&rest, '/');
        *out = xl_path_join(a, *out, xl_strf(a, "%s%.*s", segment_prefix, XL_FMT(part)).p);
    }
out:
    return err;
}

static void add_segments(xl_arena *a, const char *dir, xl_str above, xl_str **out, size_t *n, size_t *cap)
{
    xl_str *names = NULL;
    size_t have = 0;
    xl_file_info st;
    xl_error_free(xl_dir_list(a, dir, &names, &have));
    for (size_t i = 0; i < have; i++) {
        xl_str name = names[i];
        char *path = xl_path_join(a, dir, xl_str_c(a, name));
        if (!xl_str_starts(name, XL_STR(segment_prefix)) || !xl_file_stat(path, &st) || !st.dir)
            continue;
        name = (xl_str){ name.p + sizeof segment_prefix - 1, name.n - (sizeof segment_prefix - 1) };
        name = xl_strf(a, "%.*s%s%.*s", XL_FMT(above), above.n ? "/" : "", XL_FMT(name));
        XL_PUSH(a, *out, *n, *cap, name);
        if (!above.n)
            add_segments(a, path, name, out, n, cap);
    }
}

xl_error *xl_cache_segments(xl_arena *a, const char *named, xl_str **out, size_t *n)
{
    xl_error *err = NULL;
    char *dir;
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    XL_DO(look(a, named, &dir));
    add_segments(a, dir, (xl_str){ 0 }, out, n, &cap);
out:
    return err;
}

typedef struct { xl_arena *a; const xl_key *key; xl_cache_entry *p; size_t n, cap; } listing;

static void list_one(void *ctx, const char *path, xl_str file)
{
    listing *l = ctx;
    xl_str bytes = { 0 };
    entry e = { 0 };
    bool missing;
    const char *bad = read_entry(l->a, path, l->key, &bytes, &e, &missing);
    if (!bad) {
        xl_buf raw = { 0 };
        bad = unpack(&e, &raw);
        xl_buf_fini(&raw);
    }
    free((void *)bytes.p);
    e.info.file = file;
    e.info.bad = bad;
    XL_PUSH(l->a, l->p, l->n, l->cap, e.info);
}

static int by_file(const void *x, const void *y)
{
    return xl_str_cmp(((const xl_cache_entry *)x)->file, ((const xl_cache_entry *)y)->file);
}

static xl_error *list_all(xl_arena *a, const char *dir, xl_cache_entry **out, size_t *n)
{
    xl_error *err = NULL;
    xl_key key;
    XL_DO(load_key(a, dir, &key));
    adopt(a, dir);
    listing l = { .a = a, .key = &key };
    each_entry(a, dir, list_one, &l);
    if (l.n)
        qsort(l.p, l.n, sizeof *l.p, by_file);
    *out = l.p;
    *n = l.n;
out:
    return err;
}

xl_error *xl_cache_list(xl_arena *a, const char *named, xl_cache_entry **out, size_t *n)
{
    xl_error *err = NULL;
    char *dir;
    *n = 0;
    *out = NULL;
    XL_DO(look(a, named, &dir));
    err = list_all(a, dir, out, n);
out:
    return err;
}

/* Left behind by processes that were killed. */
static void sweep(xl_arena *a, const char *dir, size_t *removed, uint64_t *freed)
{
    xl_str *names;
    size_t n = 0;
    xl_error *err = xl_dir_list(a, dir, &names, &n);
    xl_error_free(err);
    for (size_t i = 0; !err && i < n; i++) {
        struct stat st;
        char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        bool lock = xl_str_ends(names[i], XL_STR(".lock"));
        if ((xl_file_is_temporary(names[i]) || lock) && lstat(path, &st) == 0 &&
            xl_now_wall() - (double)st.st_mtim.tv_sec > 3600 && unlink(path) == 0) {
            *freed += (uint64_t)st.st_size;
            ++*removed;
        }
    }
}

xl_error *xl_cache_prune(xl_arena *a, const char *named, uint64_t max_bytes, size_t *removed, uint64_t *freed)
{
    xl_error *err = NULL;
    xl_cache_entry *e;
    char *dir, shard[3];
    size_t n;
    *removed = 0;
    *freed = 0;
    XL_DO(look(a, named, &dir));
    XL_DO(list_all(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++)
        if (e[i].bad && unlink(listed_path(a, dir, e[i].file)) == 0) {
            note_removed(a, dir, e[i].file, e[i].bad);
            *freed += e[i].bytes;
            ++*removed;
        }
    sweep(a, dir, removed, freed);
    for (int i = 0; i < 256; i++) {
        snprintf(shard, sizeof shard, "%02x", i);
        sweep(a, xl_path_join(a, dir, shard), removed, freed);
    }
    account(a, dir, max_bytes ? max_bytes : UINT64_MAX, 0, 0, true, removed, freed);
out:
    return err;
}

/* A pack: magic, then for each entry its length, its bytes without the MAC, and a plain digest of them. The user who
 * imports it vouches for it; the file itself must be one that nobody else can write. */
xl_error *xl_cache_export(xl_arena *a, const char *named, const char *file, size_t *count)
{
    xl_error *err = NULL;
    char *dir;
    xl_cache_entry *e;
    size_t n;
    xl_key key;
    xl_buf out = { 0 };
    *count = 0;
    XL_DO(look(a, named, &dir));
    XL_DO(list_all(a, dir, &e, &n));
    XL_DO(load_key(a, dir, &key));
    xl_buf_add(&out, pack_magic, sizeof pack_magic);
    for (size_t i = 0; i < n; i++) {
        xl_str bytes = { 0 };
        entry parsed;
        bool missing;
        if (e[i].bad)
            continue;
        if (!read_entry(a, listed_path(a, dir, e[i].file), &key, &bytes, &parsed, &missing)) {
            uint64_t size = bytes.n - MAC;
            xl_digest d = xl_hash_of((xl_str){ bytes.p, (size_t)size });
            xl_buf_add(&out, &size, sizeof size);
            xl_buf_add(&out, bytes.p, (size_t)size);
            xl_buf_add(&out, d.b, sizeof d.b);
            ++*count;
        }
        free((void *)bytes.p);
    }
    if (out.failed)
        err = XL_ERR(EXHAUSTED, "out of memory");
    else
        err = xl_file_write_atomic(file, xl_buf_view(&out));
out:
    xl_buf_fini(&out);
    return err;
}

xl_error *xl_cache_import(xl_arena *a, const char *dir, const char *file, size_t *count)
{
    xl_error *err = NULL;
    xl_cache *c = NULL;
    xl_str in;
    *count = 0;
    XL_TRY(xl_path_trusted(file), "not importing executables from there");
    XL_TRY(xl_file_read(a, file, &in), "importing");
    if (in.n < 8 || memcmp(in.p, pack_magic, 8)) {
        err = XL_ERR(INVALID, "%s is not an exported cache; make one with `xlane cache export`", file);
        goto out;
    }
    XL_DO(xl_cache_open(dir, NULL, &c));
    for (size_t at = 8; at < in.n;) {
        uint64_t size;
        entry e = { 0 };
        if (in.n - at < sizeof size + MAC) {
            err = XL_ERR(DATA_LOSS, "%s is truncated at byte %zu; %zu entries before it were taken", file, at, *count);
            goto out;
        }
        memcpy(&size, in.p + at, sizeof size);
        at += sizeof size;
        if (size > in.n - at - MAC) {
            err = XL_ERR(DATA_LOSS, "%s is truncated at byte %zu; %zu entries before it were taken", file, at, *count);
            goto out;
        }
        xl_digest d = xl_hash_of((xl_str){ in.p + at, (size_t)size }), stored;
        memcpy(stored.b, in.p + at + size, MAC);
        const char *bad =
            xl_digest_eq(&d, &stored) ? parse_entry(a, (xl_str){ in.p + at, (size_t)size + MAC }, NULL, &e) : "damaged";
        if (bad) {
            err = XL_ERR(DATA_LOSS, "%s: the entry at byte %zu is %s; %zu entries before it were taken", file, at, bad,
                         *count);
            goto out;
        }
        xl_buf out = { 0 };
        xl_buf_add(&out, in.p + at, (size_t)size);
        xl_digest mac = xl_mac_of(&c->key, xl_buf_view(&out));
        xl_buf_add(&out, mac.b, MAC);
        digest_parts(e.info.n, e.info.name, e.info.value, &d);
        xl_str program = { 0 };
        for (uint32_t i = 0; i < e.info.n; i++)
            program = xl_str_is(e.info.name[i], "program") ? e.info.value[i] : program;
        err = out.failed ? XL_ERR(EXHAUSTED, "out of memory")
                         : add_entry(a, c, &d, e.info.module, program, xl_buf_view(&out));
        xl_buf_fini(&out);
        if (err)
            goto out;
        ++*count;
        at += size + MAC;
    }
out:
    xl_cache_close(c);
    return err;
}
