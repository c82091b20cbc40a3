/* The files of a cache folder that are no entries, but are read to explain a miss or to keep the bound. */
#include "lane/cache.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum { HEX = XL_DIGEST_HEX - 1, NOTE_MAX = 1 << 26 };

static bool digest_begins(xl_str line) { return line.n >= HEX && strspn(line.p, "0123456789abcdef") >= HEX; }

static bool is_near(xl_str line) { return line.n == HEX && digest_begins(line); }
static bool is_removed(xl_str line) { return line.n > HEX && line.p[HEX] == ' ' && digest_begins(line); }
static bool is_size(xl_str line)
{
    unsigned long long bytes, entries;
    char text[64];
    snprintf(text, sizeof text, "%.*s", XL_FMT(line));
    return line.n < sizeof text && strspn(text, "0123456789 ") == line.n &&
           sscanf(text, "%llu %llu", &bytes, &entries) == 2;
}

typedef bool line_fn(xl_str line);

static void check(xl_arena *a, const char *dir, const char *name, line_fn *fits, xl_cache_note **out, size_t *n,
                  size_t *cap)
{
    xl_str text = { 0 };
    const char *bad = NULL;
    xl_error *err = xl_file_read_plain(a, xl_path_join(a, dir, name), NOTE_MAX, &text);
    if (err && xl_error_code(err) != XL_CODE_NOT_FOUND)
        bad = "cannot be read as a plain file";
    xl_error_free(err);
    for (int line = 1; !err && text.n && !bad; line++)
        if (!fits(xl_str_cut(&text, '\n')))
            bad = xl_strf(a, "damaged in line %d", line).p;
    if (bad)
        XL_PUSH(a, *out, *n, *cap, ((xl_cache_note){ name, bad }));
}

xl_error *xl_cache_notes(xl_arena *a, const char *named, xl_cache_note **out, size_t *n)
{
    xl_error *err = NULL;
    xl_str *names = NULL;
    size_t have = 0, cap = 0;
    char *dir;
    *out = NULL;
    *n = 0;
    XL_DO(xl_cache_where(a, named, NULL, &dir));
    xl_error_free(xl_dir_list(a, xl_path_join(a, dir, "near"), &names, &have)); /* not there: nothing was put */
    check(a, dir, "size", is_size, out, n, &cap);
    check(a, dir, "removed.log", is_removed, out, n, &cap);
    for (size_t i = 0; i < have; i++)
        if (!xl_file_is_temporary(names[i]))
            check(a, dir, xl_strf(a, "near/%.*s", XL_FMT(names[i])).p, is_near, out, n, &cap);
out:
    return err;
}

xl_error *xl_cache_notes_prune(xl_arena *a, const char *named, size_t *removed)
{
    xl_error *err = NULL;
    xl_cache_note *note;
    size_t n;
    char *dir;
    XL_DO(xl_cache_where(a, named, NULL, &dir));
    XL_DO(xl_cache_notes(a, named, &note, &n));
    for (size_t i = 0; i < n; i++)
        *removed += unlink(xl_path_join(a, dir, note[i].file)) == 0;
out:
    return err;
}
