#include "lane/cache.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/home.h"
#include "base/time.h"
#include "cli/cli.h"

static struct { const char *dir; uint64_t max; } opt;
static const xl_opt opts[] = {
    { "cache", XL_OPT_STR, &opt.dir, "DIR", "the cache folder (XLANE_CACHE, else ~/.cache/xlane)" },
    { "max", XL_OPT_SIZE, &opt.max, "SIZE", "prune: keep at most this much" },
    { 0 },
};

static const char *folder(xl_arena *a)
{
    const char *env = getenv("XLANE_CACHE");
    return opt.dir ? opt.dir : env && *env ? env : xl_home_cache(a);
}

static xl_error *none(const char *dir)
{
    return XL_ERR(NOT_FOUND,
                  "there is no cache folder %s; `xlane run --cache=%s -- CMD` makes it, --cache=DIR names another", dir,
                  dir);
}

static xl_error *list(const xl_cli *cli, const char *dir, bool verify)
{
    xl_error *err = NULL;
    xl_cache_entry *e;
    size_t n, bad = 0;
    uint64_t bytes = 0;
    char size[32];
    xl_buf b = { 0 };
    if (!xl_file_stat(dir, NULL))
        return none(dir);
    XL_DO(xl_cache_list(cli->arena, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        bad += e[i].bad != NULL;
        bytes += e[i].bytes;
    }
    const char *others = xl_cache_writers(cli->arena, dir);
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "folder", dir);
        xl_json_put_int(&j, "bytes", (int64_t)bytes);
        xl_json_put_int(&j, "bad", (int64_t)bad);
        xl_json_put_text(&j, "writers", others);
        xl_json_key(&j, "entries");
        xl_json_list(&j);
        for (size_t i = 0; i < n; i++) {
            xl_json_map(&j);
            xl_json_put_str(&j, "file", e[i].file);
            xl_json_put_str(&j, "module", e[i].module);
            xl_json_put_int(&j, "bytes", (int64_t)e[i].bytes);
            xl_json_put_num(&j, "compile_seconds", e[i].compile_seconds);
            xl_json_put_num(&j, "created", e[i].created);
            xl_json_put_num(&j, "used", e[i].used);
            xl_json_put_str(&j, "host", e[i].host);
            xl_json_put_text(&j, "bad", e[i].bad);
            xl_json_key(&j, "parts");
            xl_json_map(&j);
            for (uint32_t k = 0; k < e[i].n; k++) {
                xl_json_keyn(&j, e[i].name[k]);
                xl_json_str(&j, e[i].value[k]);
            }
            xl_json_end(&j);
            xl_json_end(&j);
        }
        xl_json_end(&j);
        xl_json_end(&j);
    } else {
        for (size_t i = 0; i < n; i++) {
            char iso[XL_TIME_ISO];
            if (verify && !e[i].bad)
                continue;
            xl_buf_printf(&b, "%.12s  %9.1f KiB  %10.1f ms to compile  used %s  %.*s%s%s\n", e[i].file.p,
                          (double)e[i].bytes / 1024, e[i].compile_seconds * 1e3, xl_time_iso(e[i].used, iso),
                          XL_FMT(e[i].module.n ? e[i].module : XL_STR("?")), e[i].bad ? "  BAD: " : "",
                          e[i].bad ? e[i].bad : "");
        }
        xl_buf_printf(&b, "%zu entr%s, %s in %s; %zu bad%s\n", n, n == 1 ? "y" : "ies",
                      xl_size_words((double)bytes, size), dir, bad, bad ? "; `xlane cache prune` removes them" : "");
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
        return none(dir);
    if (!strcmp(what, "prune")) {
        XL_DO(xl_cache_prune(cli->arena, dir, opt.max, &n, &freed));
        err = done(cli, dir, NULL, n, freed,
                   xl_strf(cli->arena, "removed %zu entr%s, freed %s", n, n == 1 ? "y" : "ies",
                           xl_size_words((double)freed, size))
                       .p);
    } else if (!strcmp(what, "export")) {
        XL_DO(xl_error_next(xl_cache_export(cli->arena, dir, argv[1], &n), "`xlane cache export FILE` writes another"));
        err = done(
            cli, dir, argv[1], n, 0,
            xl_strf(cli->arena, "%zu entr%s in %s; copy it to another host, and there: xlane cache import FILE", n,
                    n == 1 ? "y" : "ies", argv[1])
                .p);
    } else if (!strcmp(what, "import")) {
        err = xl_cache_import(cli->arena, dir, argv[1], &n);
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
        "verify exits with 1 when an entry is damaged.\n"
        "export writes all valid entries into one file; import adds the entries of such a file, so that one host can\n"
        "warm the caches of a fleet.",
    .example = "xlane cache ls --cache /var/cache/xlane",
    .opts = opts,
    .min = 1,
    .max = 2,
    .run = cache,
};
