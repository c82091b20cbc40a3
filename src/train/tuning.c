#include "train/tuning.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "ir/text/print.h"

enum { FILE_BYTES_MAX = 1 << 26 };
#define ABOUT "# What XLA measured to be fastest, for the programs named here; a resumed run takes the same.\n"
#define PROGRAM "# program "

static void report(xl_lane *l, const char *module, const char *hash, const char *result, double seconds,
                   const xl_error *why)
{
    xl_event e;
    xl_event_begin(l->run, &e, "tuning");
    xl_json_put_text(&e.j, "module", module);
    xl_json_put_text(&e.j, "program", hash);
    xl_json_put_text(&e.j, "result", result);
    xl_json_put_num(&e.j, "seconds", seconds);
    if (why)
        xl_json_put_text(&e.j, "error", xl_error_message(why));
    xl_event_end(l->run, &e);
}

static bool skip(xl_str *s, const char *word)
{
    xl_str w = xl_str_of(word);
    if (!xl_str_starts(*s, w))
        return false;
    *s = (xl_str){ s->p + w.n, s->n - w.n };
    return true;
}

/* The lines of the file that name programs: "# program HASH NAME". */
static bool named(xl_arena *a, xl_str file, const char *hash, xl_str *name, xl_buf *lines)
{
    bool found = false;
    xl_str rest = file;
    while (rest.n) {
        xl_str line = xl_str_cut(&rest, '\n'), words = line;
        if (!skip(&words, PROGRAM))
            continue;
        if (skip(&words, hash) && skip(&words, " ")) {
            *name = xl_str_dup(a, words);
            found = true;
        }
        xl_buf_printf(lines, "%.*s\n", XL_FMT(line));
    }
    return found;
}

/* cuDNN's attention is written down as deterministic; a compile that is not refuses to find its kernel. */
static void as_measured(xl_str text, xl_buf *out)
{
    static const char flag[] = "force_deterministic";
    const size_t n = sizeof flag - 1;
    size_t from = 0;
    for (size_t i = 0; i + n < text.n; i++) {
        if (memcmp(text.p + i, flag, n))
            continue;
        size_t at = i + n;
        while (at < text.n && at < i + n + 8 && text.p[at] != 't' && text.p[at] != 'f')
            at++;
        if (at + 4 <= text.n && !memcmp(text.p + at, "true", 4)) {
            xl_buf_add(out, text.p + from, at - from);
            xl_buf_puts(out, "false");
            from = at + 4;
        }
        i = at;
    }
    xl_buf_add(out, text.p + from, text.n - from);
}

/* Compiles with measurements; *file is what XLA has written of them. */
static xl_error *measure(xl_lane *l, xl_arena *a, const char *module, const xl_module *view, const xl_options *how,
                         const char *known, const char *into, xl_str *file)
{
    xl_error *err = NULL;
    xl_buf printed = { 0 }, text = { 0 }, bytes = { 0 };
    xl_program *p = NULL;
    xl_named with[8];
    xl_options o = *how;
    o.option = with;
    o.noption = 0;
    for (size_t i = 0; i < how->noption; i++)
        if (!xl_str_is(how->option[i].name, "xla_gpu_deterministic_ops"))
            with[o.noption++] = how->option[i];
    with[o.noption++] =
        (xl_named){ .name = XL_STR("xla_gpu_dump_autotune_results_to"), .kind = XL_NAMED_STR, .str = xl_str_of(into) };
    if (*known)
        with[o.noption++] = (xl_named){ .name = XL_STR("xla_gpu_load_autotune_results_from"),
                                        .kind = XL_NAMED_STR,
                                        .str = xl_str_of(known) };
    xl_options_build(&bytes, &o);
    xl_print_module(view, &(xl_print_opts){ 0 }, &printed);
    as_measured(xl_buf_view(&printed), &text);
    if (printed.failed || text.failed || bytes.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for the text of %s", module);
        goto out;
    }
    XL_DO(xl_program_compile(l->client, xl_buf_view(&text), XL_FORMAT_MLIR, xl_buf_view(&bytes), &p));
    XL_DO(xl_file_read_plain(a, into, FILE_BYTES_MAX, file));
out:
    xl_program_free(p);
    xl_error_free(xl_file_remove(into));
    xl_buf_fini(&printed);
    xl_buf_fini(&text);
    xl_buf_fini(&bytes);
    return err;
}

xl_error *xl_tuning_of(xl_lane *l, xl_arena *a, const char *module, const char *hash, const xl_module *view,
                       const xl_options *how, xl_tuning *out)
{
    xl_error *err = NULL, *no = NULL;
    xl_buf lines = { 0 }, file = { 0 }, options = { 0 };
    xl_str old = { 0 }, made = { 0 };
    xl_cache_key key = { 0 };
    xl_cache_found found = { 0 };
    const char *dir = xl_run_dir(l->run), *path = xl_path_join(a, dir, "tuning.txt"), *result = "of the run";
    double start = xl_now();
    *out = (xl_tuning){ XL_STR(""), "" };
    bool there = xl_file_stat(path, NULL);
    if (there)
        XL_DO(xl_file_read_plain(a, path, FILE_BYTES_MAX, &old));
    if (l->cache && !there) {
        xl_options_build(&options, how);
        xl_lane_key(l, a, module, hash, xl_buf_view(&options), XL_STR("choices"), &key);
        XL_DO(xl_cache_get(l->cache, &key, &found));
        if (found.hit) {
            old = xl_str_dup(a, (xl_str){ found.blob, found.size });
            XL_DO(xl_file_write_mode(path, old, 0600));
            there = true;
            result = "of the cache";
        }
    }
    if (!named(a, old, hash, &out->name, &lines)) {
        const char *known = there && !l->tuned ? path : "";
        result = "measured";
        no = measure(l, a, module, view, how, known, xl_path_join(a, dir, "tuning.new.txt"), &made);
        if (no) {
            result = "failed";
            out->name = XL_STR("none");
            xl_buf_printf(&file, "%.*s", XL_FMT(old));
            xl_buf_printf(&file, PROGRAM "%s none\n", hash);
        } else {
            char hex[XL_DIGEST_HEX];
            xl_digest d = xl_hash_of(made);
            l->tuned = true;
            out->name = xl_str_dup(a, (xl_str){ xl_digest_hex(&d, hex), 16 });
            xl_buf_printf(&file, ABOUT "%.*s" PROGRAM "%s %.*s\n%.*s", XL_FMT(xl_buf_view(&lines)), hash,
                          XL_FMT(out->name), XL_FMT(made));
        }
        XL_DO(xl_file_write_mode(path, xl_buf_view(&file), 0600));
        if (l->cache && !no && key.n) {
            xl_error *e = xl_cache_put(l->cache, &key, file.p, file.n, xl_now() - start);
            if (e)
                XL_LOG(INFO, "what was measured for %s is not kept in the cache: %s", module, xl_error_message(e));
            xl_error_free(e);
        }
    }
    if (xl_str_is(out->name, "none"))
        out->name = XL_STR("");
    else if (!l->tuned)
        out->file = path;
    report(l, module, hash, result, xl_now() - start, no);
    l->tuning_seconds += xl_now() - start;
out:
    xl_error_free(no);
    free(found.blob);
    xl_buf_fini(&lines);
    xl_buf_fini(&file);
    xl_buf_fini(&options);
    return err;
}
