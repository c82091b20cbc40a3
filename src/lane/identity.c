#include "lane/identity.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/secret.h"
#include "base/str.h"
#include "pjrt/plugin.h"

extern char **environ;

/* ---- the runtime's variables as words ---------------------------------------------------------------------------- */
static bool matters(const char *var)
{
    static const char *const not_code[] = { "PJRT_NAMES_AND_LIBRARY_PATHS=", "PJRT_LIBRARY_PATH=", "TPU_LIBRARY_PATH=",
                                            "TPU_PROCESS_PORT=", "TPU_MIN_LOG_LEVEL=", "TPU_STDERR_LOG_LEVEL=" };
    for (size_t i = 0; i < sizeof not_code / sizeof *not_code; i++)
        if (!strncmp(var, not_code[i], strlen(not_code[i])))
            return false;
    return !strncmp(var, "PJRT_", 5) || !strncmp(var, "TPU_", 4);
}

static bool only_dumps(xl_str word)
{
    return xl_str_starts(word, XL_STR("--xla_dump_")) || xl_str_starts(word, XL_STR("--xla_detailed_logging"));
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void flag_words(char *out, size_t n, bool dumps)
{
    enum { WORDS = 512 };
    char *word[WORDS];
    size_t nword = 0, at = 0;
    bool cut = false;                                      /* not all of it is in out */
    xl_hash whole;
    xl_hash_init(&whole);
    static const char *const lists[] = { "XLA_FLAGS", "LIBTPU_INIT_ARGS" };
    for (size_t i = 0; i < 2; i++) {
        const char *v = getenv(lists[i]);
        for (xl_str rest = xl_str_of(v ? v : ""); rest.n;) {
            rest = xl_str_trim(rest);
            size_t len = 0;
            while (len < rest.n && rest.p[len] != ' ' && rest.p[len] != '\t' && rest.p[len] != '\n')
                len++;
            xl_str one = { rest.p, len };
            rest = (xl_str){ rest.p + len, rest.n - len };
            if (!one.n || (!dumps && only_dumps(one)))
                continue;
            xl_hash_str(&whole, one);
            if (nword < WORDS)
                word[nword++] = strndup(one.p, one.n);
            else
                cut = true;
        }
    }
    for (char **e = environ; e && *e; e++)
        if (matters(*e)) {
            xl_hash_str(&whole, xl_str_of(*e));
            if (nword == WORDS) {
                cut = true;
                continue;
            }
            char *w = strdup(*e);
            for (char *c = w; c && *c; c++)
                if (*c == ' ' || *c == '\t' || *c == '\n')
                    *c = ',';
            word[nword++] = w;
        }
    size_t have = 0;
    for (size_t i = 0; i < nword; i++)                     /* those that memory allowed */
        if (word[i])
            word[have++] = word[i];
    for (size_t i = 0; i < have; i++) {                    /* they go into manifests and events */
        xl_arena tmp = { .limit = 1 << 20 };
        xl_str shown = xl_secret_hide(&tmp, xl_str_of(word[i]));
        char hex[XL_DIGEST_HEX], *copy = NULL;
        if (shown.p != word[i]) {                          /* what it was still tells two keys apart */
            xl_digest d = xl_hash_of(xl_str_of(word[i]));
            copy = strndup(xl_strf(&tmp, "%.*s:%.8s", XL_FMT(shown), xl_digest_hex(&d, hex)).p, 4096);
        }
        if (copy) {
            free(word[i]);
            word[i] = copy;
        }
        xl_arena_fini(&tmp);
    }
    qsort(word, have, sizeof *word, by_text);
    out[0] = 0;
    for (size_t i = 0; i < have; i++) {
        int put = at < n ? snprintf(out + at, n - at, "%s%s", at ? " " : "", word[i]) : 0;
        at += put > 0 ? (size_t)put : 0;
        free(word[i]);
    }
    if (cut || at >= n) {                                  /* two long lists that begin alike are two keys */
        xl_digest d = xl_hash_final(&whole);
        char hex[XL_DIGEST_HEX];
        size_t keep = at < n - 20 ? at : n - 20;
        snprintf(out + keep, n - keep, " +%.16s", xl_digest_hex(&d, hex));
    }
}

void xl_identity_flags(char *out, size_t n) { flag_words(out, n, false); }
void xl_identity_all_flags(char *out, size_t n) { flag_words(out, n, true); }

/* ---- the plugin's file ---- */
typedef struct { const char *path; char *out; size_t n; long long size; } big;

static xl_error *build_id(xl_arena *a, void *ctx)
{
    big *b = ctx;
    xl_str id = xl_plugin_build_id(a, b->path);
    snprintf(b->out, b->n, "%.*s-%lld", XL_FMT(id.n ? id : XL_STR("no-build-id")), b->size);
    return NULL;
}

void xl_identity_file(const char *path, char *out, size_t n)
{
    enum { SMALL = 128 << 20 };
    struct stat st;
    xl_digest d;
    char hex[XL_DIGEST_HEX];
    xl_error *err;
    snprintf(out, n, "unknown");
    if (stat(path, &st))
        return;
    if (st.st_size <= SMALL) {
        err = xl_hash_file(path, &d);
        if (!err)
            snprintf(out, n, "%s", xl_digest_hex(&d, hex));
    } else {
        err = xl_arena_call(build_id, &(big){ path, out, n, (long long)st.st_size });
    }
    xl_error_free(err);
}
