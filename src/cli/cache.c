#include "lane/cache.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/home.h"
#include "base/time.h"
#include "base/word.h"
#include "cli/cli.h"

static struct { const char *dir, *segment; uint64_t max; } opt;
static const xl_opt opts[] = {
    { "cache", XL_OPT_STR, &opt.dir, "DIR", "the cache folder (XLANE_CACHE, else ~/.cache/xlane)" },
    { "cache-segment", XL_OPT_STR, &opt.segment, "NAME",
      "this segment of the cache alone, as of `xlane run --cache-segment` (ls, verify, prune: all; export, import: "
      "none)" },
    { "max", XL_OPT_SIZE, &opt.max, "SIZE", "prune: keep at most this much, in each segment too" },
    { 0 },
};

static const char *folder(xl_arena *a)
{
    const char *env = getenv("XLANE_CACHE");
    return opt.dir ? opt.dir : env && *env ? env : xl_home_cache(a);
}

static xl_error *none(xl_arena *a, const char *dir)
{
    return XL_ERR(NOT_FOUND,
                  "there is no cache folder %s; `xlane run --cache=%s -- CMD` makes it, --cache=DIR names another", dir,
                  xl_word_of(a, dir));
}

/* A folder of entries: the cache's own, or a segment's. */
typedef struct {
    const char *name;                                      /* of the segment; "": the cache's own folder */
    char *dir;
    bool lists;                                            /* its entries are lists of what to load ahead */
    xl_cache_entry *e;
    xl_cache_note *note;                                   /* damaged files that are no entries */
    size_t n, nnote, bad;                                  /* bad: of both */
    uint64_t bytes;
} part;

/* The folder that was named, or the segment, and the segments below it. */
static xl_error *parts(const xl_cli *cli, const char *dir, part **out, size_t *n)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_str *name;
    size_t nname, cap = 0;
    const char *only = opt.segment;
    *out = NULL;
    *n = 0;
    XL_DO(xl_cache_segments(a, dir, &name, &nname));
    part first = { .name = only ? only : "" };
    XL_DO(xl_cache_where(a, dir, only, &first.dir));
    if (only && !xl_file_stat(first.dir, NULL)) {
        xl_buf all = { 0 };
        for (size_t i = 0; i < nname; i++)
            xl_buf_printf(&all, "%s%.*s", i ? ", " : "", XL_FMT(name[i]));
        err = XL_ERR(NOT_FOUND, "%s has no segment '%s'; %s%s", dir, only, all.n ? "it has " : "it has none",
                     all.n ? all.p : "");
        xl_buf_fini(&all);
        goto out;
    }
    XL_PUSH(a, *out, *n, cap, first);
    for (size_t i = 0; i < nname; i++) {
        part p = { .name = name[i].p };
        if (only && !xl_str_starts(name[i], xl_strf(a, "%s/", only)))
            continue;
        XL_DO(xl_cache_where(a, dir, p.name, &p.dir));
        XL_PUSH(a, *out, *n, cap, p);
    }
    for (size_t i = 0; i < *n; i++)
        (*out)[i].lists = xl_str_is(xl_path_base(xl_str_of((*out)[i].name)), XL_CACHE_AHEAD);
out:
    return err;
}

static xl_error *read_part(xl_arena *a, part *p)
{
    xl_error *err = NULL;
    XL_DO(xl_cache_list(a, p->dir, &p->e, &p->n));
    for (size_t i = 0; i < p->n; i++) {
        p->bad += p->e[i].bad != NULL;
        p->bytes += p->e[i].bytes;
    }
    XL_DO(xl_cache_notes(a, p->dir, &p->note, &p->nnote));
    p->bad += p->nnote;
out:
    return err;
}

static void put_entries(xl_json *j, const part *p)
{
    xl_json_key(j, "entries");
    xl_json_list(j);
    for (size_t i = 0; i < p->n; i++) {
        const xl_cache_entry *e = &p->e[i];
        xl_json_map(j);
        xl_json_put_str(j, "file", e->file);
        xl_json_put_str(j, "module", e->module);
        xl_json_put_int(j, "bytes", (int64_t)e->bytes);
        xl_json_put_num(j, "compile_seconds", e->compile_seconds);
        xl_json_put_num(j, "created", e->created);
        xl_json_put_num(j, "used", e->used);
        xl_json_put_str(j, "host", e->host);
        xl_json_put_text(j, "bad", e->bad);
        xl_json_key(j, "parts");
        xl_json_map(j);
        for (uint32_t k = 0; k < e->n; k++) {
            xl_json_keyn(j, e->name[k]);
            xl_json_str(j, e->value[k]);
        }
        xl_json_end(j);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_key(j, "notes");
    xl_json_list(j);
    for (size_t i = 0; i < p->nnote; i++) {
        xl_json_map(j);
        xl_json_put_text(j, "file", p->note[i].file);
        xl_json_put_text(j, "bad", p->note[i].bad);
        xl_json_end(j);
    }
    xl_json_end(j);
}

static const char *noun(const part *p, size_t n)
{
    return p->lists ? n == 1 ? "list of what a command loads ahead" : "lists of what commands load ahead"
                    : n == 1 ? "entry" : "entries";
}

static void say_part(xl_buf *b, const part *p, bool verify)
{
    char size[32];
    if (*p->name)
        xl_buf_printf(b, "segment %s: %zu %s, %s; %zu bad\n", p->name, p->n, noun(p, p->n),
                      xl_size_words((double)p->bytes, size), p->bad);
    for (size_t i = 0; i < p->n; i++) {
        const xl_cache_entry *e = &p->e[i];
        char iso[XL_TIME_ISO];
        if (!e->bad && (verify || p->lists))               /* a list says nothing to people */
            continue;
        xl_buf_printf(b, "%.12s  %9.1f KiB  %10.1f ms to compile  used %s  %.*s%s%s\n", e->file.p,
                      (double)e->bytes / 1024, e->compile_seconds * 1e3, xl_time_iso(e->used, iso),
                      XL_FMT(e->module.n ? e->module : XL_STR("?")), e->bad ? "  BAD: " : "", e->bad ? e->bad : "");
    }
    for (size_t i = 0; i < p->nnote; i++)
        xl_buf_printf(b, "%s  BAD: %s (no entry: runs ignore what is damaged in it)\n", p->note[i].file,
                      p->note[i].bad);
}

static xl_error *list(const xl_cli *cli, const char *dir, bool verify)
{
    xl_error *err = NULL;
    part *p;
    size_t n, bad = 0, entries = 0, apart = 0;
    uint64_t bytes = 0;
    char size[32];
    xl_buf b = { 0 };
    if (!xl_file_stat(dir, NULL))
        return none(cli->arena, dir);
    XL_DO(parts(cli, dir, &p, &n));
    for (size_t i = 0; i < n; i++) {
        XL_DO(read_part(cli->arena, &p[i]));
        bad += p[i].bad;
        bytes += p[i].bytes;
        entries += p[i].lists && i ? 0 : p[i].n;
        apart += p[i].lists || !i ? 0 : p[i].n;
    }
    const char *others = xl_cache_writers(cli->arena, p[0].dir);
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "folder", p[0].dir);
        xl_json_put_int(&j, "bytes", (int64_t)bytes);
        xl_json_put_int(&j, "bad", (int64_t)bad);
        xl_json_put_text(&j, "writers", others);
        put_entries(&j, &p[0]);
        xl_json_key(&j, "segments");
        xl_json_list(&j);
        for (size_t i = 1; i < n; i++) {
            xl_json_map(&j);
            xl_json_put_text(&j, "name", p[i].name);
            xl_json_put_text(&j, "folder", p[i].dir);
            xl_json_put_int(&j, "bytes", (int64_t)p[i].bytes);
            xl_json_put_int(&j, "bad", (int64_t)p[i].bad);
            put_entries(&j, &p[i]);
            xl_json_end(&j);
        }
        xl_json_end(&j);
        xl_json_end(&j);
    } else {
        for (size_t i = 0; i < n; i++)
            say_part(&b, &p[i], verify);
        xl_buf_printf(&b, "%zu %s, %s in %s", entries, noun(&(part){ .lists = p[0].lists }, entries),
                      xl_size_words((double)bytes, size), p[0].dir);
        if (apart)
            xl_buf_printf(&b, ", %zu of them in segments", apart);
        xl_buf_printf(&b, "; %zu bad%s\n", bad, bad ? "; `xlane cache prune` removes them" : "");
        if (*others)
            xl_buf_printf(&b, "%s\n", others);
    }
    if (verify && bad)
        xl_cli_exit(cli, XL_EXIT_FAILED);
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

/* The lists of what to load ahead have a bound of their own: of them only what is damaged goes. */
static xl_error *prune(const xl_cli *cli, const char *dir, size_t *removed, uint64_t *freed)
{
    xl_error *err = NULL;
    part *p;
    size_t n;
    XL_DO(parts(cli, dir, &p, &n));
    for (size_t i = 0; i < n; i++) {
        size_t went = 0;
        uint64_t bytes = 0;
        XL_DO(xl_cache_prune(cli->arena, p[i].dir, p[i].lists ? 0 : opt.max, &went, &bytes));
        XL_DO(xl_cache_notes_prune(cli->arena, p[i].dir, &went));
        *removed += went;
        *freed += bytes;
    }
out:
    return err;
}

/* Takes entries into the folder, or into a segment that is made if need be. */
static xl_error *take_in(const xl_cli *cli, const char *dir, const char *file, size_t *n)
{
    xl_error *err = NULL;
    xl_cache *made = NULL;
    *n = 0;
    if (opt.segment) {
        XL_DO(xl_cache_open(dir, &(xl_cache_opts){ .segment = opt.segment }, &made));
        dir = xl_cache_dir(made);
    }
    err = xl_cache_import(cli->arena, dir, file, n);
out:
    xl_cache_close(made);
    return err;
}

/* What was done: a sentence, or an object. */
static xl_error *done(const xl_cli *cli, const char *dir, const char *file, size_t n, uint64_t freed,
                      const char *sentence)
{
    xl_buf b = { 0 };
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "folder", dir);
        if (file)
            xl_json_put_text(&j, "file", file);
        xl_json_put_int(&j, file ? "entries" : "removed", (int64_t)n);
        if (!file)
            xl_json_put_int(&j, "freed", (int64_t)freed);
        xl_json_end(&j);
        xl_buf_putc(&b, '\n');
    } else {
        xl_buf_printf(&b, "%s\n", sentence);
    }
    xl_error *err = xl_cli_put(&b);
    xl_buf_fini(&b);
    return err;
}

static xl_error *cache(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    const char *what = argv[0], *dir = folder(cli->arena);
    bool carries = !strcmp(what, "export") || !strcmp(what, "import");
    size_t n = 0;
    uint64_t freed = 0;
    char size[32];
    if (carries != (argc == 2))
        return xl_cli_misuse(cli, carries ? "cache %s takes a file: xlane cache %s FILE" : "cache %s takes no file",
                             what, what);
    if (dir && xl_home_off(dir))
        return XL_ERR(NOT_FOUND, "the cache is switched off (XLANE_CACHE=%s); --cache=DIR names one", dir);
    if (!dir)
        return XL_ERR(NOT_FOUND, "HOME is not set, so there is no cache folder; --cache=DIR names one");
    if (!strcmp(what, "ls") || !strcmp(what, "list") || !strcmp(what, "verify"))
        return list(cli, dir, what[0] == 'v');
    if ((!strcmp(what, "prune") || !strcmp(what, "export")) && !xl_file_stat(dir, NULL))
        return none(cli->arena, dir);
    if (!strcmp(what, "prune")) {
        XL_DO(prune(cli, dir, &n, &freed));
        err = done(cli, dir, NULL, n, freed,
                   xl_strf(cli->arena, "removed %zu entr%s, freed %s", n, n == 1 ? "y" : "ies",
                           xl_size_words((double)freed, size))
                       .p);
    } else if (!strcmp(what, "export")) {
        part *p;
        size_t nparts;
        XL_DO(parts(cli, dir, &p, &nparts));
        dir = p[0].dir;
        XL_DO(xl_error_next(xl_cache_export(cli->arena, dir, argv[1], &n), "`xlane cache export FILE` writes another"));
        err = done(
            cli, dir, argv[1], n, 0,
            xl_strf(cli->arena, "%zu entr%s in %s; copy it to another host, and there: xlane cache import FILE", n,
                    n == 1 ? "y" : "ies", argv[1])
                .p);
    } else if (!strcmp(what, "import")) {
        err = take_in(cli, dir, argv[1], &n);
        if (err) {
            err = xl_error_code(err) == XL_CODE_NOT_FOUND   ? xl_error_next(err, "check its path")
                  : xl_error_code(err) == XL_CODE_DATA_LOSS ? xl_error_next(err, "copy it again, or export it again")
                                                            : err;
            goto out;
        }
        err = done(cli, dir, argv[1], n, 0,
                   xl_strf(cli->arena, "%zu entr%s taken into %s", n, n == 1 ? "y" : "ies", dir).p);
    } else {
        return xl_cli_misuse(
            cli, "there is no `cache %s`; there are ls (or list), verify, prune, export FILE and import FILE", what);
    }
out:
    return err;
}

XL_VERB(cache) = {
    .name = "cache",
    .args = "ls|list|verify|prune|export FILE|import FILE",
    .help = "the executable cache: list, verify, prune, export, import",
    .more =
        "verify exits with 1 when an entry is damaged, or one of the folder's other files: size, removed.log, near/.\n"
        "ls, verify and prune go through the segments too: those of `xlane run --cache-segment`, and \"ahead\", the\n"
        "lists of what commands load ahead (docs/guard.md). export writes all valid entries into one file; import "
        "adds\n"
        "the entries of such a file, so that one host can warm the caches of a fleet.",
    .example = "xlane cache ls --cache /var/cache/xlane",
    .opts = opts,
    .min = 1,
    .max = 2,
    .run = cache,
};
