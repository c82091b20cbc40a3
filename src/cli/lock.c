/* xlane lock: everything a lane stands on, written down, compared and rebuilt. */
#include "lane/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/cli.h"
#include "pjrt/plugin.h"

static struct {
    const char *file, *profile, *cache, *runs;
    xl_opt_list plugin;
    bool print;
} opt = { .file = "xlane.lock" };
static const xl_opt opts[] = {
    { "file", XL_OPT_STR, &opt.file, "FILE", "the lock (xlane.lock)" },
    { "plugin", XL_OPT_REPEAT, &opt.plugin, "PATH",
      "write: a plugin's file, or cpu, tpu, cuda; several may be given (the one that would be used)" },
    { "profile", XL_OPT_PROFILE, &opt.profile, "NAME", "write: the profile that runs use" },
    { "cache", XL_OPT_STR, &opt.cache, "DIR", "write: the executable cache to record" },
    { "runs", XL_OPT_STR, &opt.runs, "DIR", "write: the folder of its runs" },
    { "print", XL_OPT_FLAG, &opt.print, NULL, "restore: print the commands (nothing is run)" },
    { 0 },
};

static xl_error *write_lock(const xl_cli *cli)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_lock l;
    xl_lock_wish w = { .profile = opt.profile, .cache = opt.cache, .runs = opt.runs };
    size_t cap = 0;
    xl_buf b = { 0 };
    for (size_t i = 0; i < (opt.plugin.n ? opt.plugin.n : 1); i++) {
        xl_plugin_choice c;
        XL_DO(xl_plugin_find(a, &(xl_plugin_wish){ .named = opt.plugin.n ? opt.plugin.p[i] : NULL }, &c));
        char *whole = realpath(c.path, NULL);
        if (!whole) {
            err = XL_ERR(NOT_FOUND, "the plugin %s is not there", c.path);
            goto out;
        }
        XL_PUSH(a, w.plugin, w.nplugin, cap, (const char *)xl_str_c(a, xl_str_of(whole)));
        free(whole);
    }
    XL_DO(xl_lock_collect(a, &w, &l));
    err = xl_lock_write(a, &l, opt.file);
    if (xl_error_code(err) == XL_CODE_EXISTS) {
        xl_error_free(err);
        err = XL_ERR(EXISTS, "%s is there already, and a lock is never overwritten: name another --file", opt.file);
    } else {
        err = xl_error_next(err, "--file=PATH writes the lock elsewhere");
    }
    XL_DO(err);
    if (cli->json)
        xl_buf_printf(&b, "{\"items\":%zu}", l.n);
    else
        xl_buf_printf(
            &b,
            "wrote %s: %zu items (plugin, driver, versions, settings); `xlane lock verify` compares a host with it\n",
            opt.file, l.n);
    err = xl_cli_put(&b);
out:
    return err;
}

static xl_error *verify(const xl_cli *cli)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_lock l, now;
    xl_drift *d;
    size_t n;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_lock_read(a, opt.file, &l));
    xl_lock_wish w = xl_lock_wanted(a, &l);
    XL_DO(xl_lock_collect(a, &w, &now));
    xl_lock_compare(a, &l, &now, &d, &n);
    if (cli->json)
        xl_json_list(&j);
    if (!cli->json && !xl_str_eq(l.machine, now.machine))
        xl_buf_printf(&b,
                      "this lock is of %.*s and this host is %.*s: plugins, drivers and executables cannot be the "
                      "same; what can be compared is below\n",
                      XL_FMT(l.machine), XL_FMT(now.machine));
    for (size_t i = 0; i < n; i++) {
        if (cli->json) {
            xl_json_map(&j);
            xl_json_put_text(&j, "kind", d[i].kind);
            xl_json_put_str(&j, "name", d[i].name);
            xl_json_put_str(&j, "locked", d[i].locked);
            xl_json_put_str(&j, "now", d[i].now);
            xl_json_put_text(&j, "breaks", d[i].breaks);
            xl_json_end(&j);
        } else {
            xl_buf_printf(&b,
                          "%s %.*s: %.*s -> %.*s\n"
                          "    can break: %s\n",
                          d[i].kind, XL_FMT(d[i].name), XL_FMT(d[i].locked.n ? d[i].locked : XL_STR("(not there)")),
                          XL_FMT(d[i].now.n ? d[i].now : XL_STR("(not there)")), d[i].breaks);
        }
    }
    if (cli->json)
        xl_json_end(&j);
    else
        xl_buf_printf(&b, "%zu of %zu items drifted\n", n, l.n);
    if (n)
        xl_cli_exit(cli, XL_EXIT_FAILED);
    err = xl_cli_put(&b);
out:
    return err;
}

static xl_error *lock(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_lock l;
    xl_buf b = { 0 };
    (void)argc;
    if (!strcmp(argv[0], "write"))
        return write_lock(cli);
    if (!strcmp(argv[0], "verify"))
        return verify(cli);
    if (strcmp(argv[0], "restore") || !opt.print)
        return xl_cli_misuse(cli, "lock: usage: write, verify, or restore --print");
    if (cli->json)
        return xl_cli_misuse(
            cli, "lock restore --print writes a shell script, not JSON; the lock file itself (%s) is JSON", opt.file);
    XL_DO(xl_lock_read(cli->arena, opt.file, &l));
    xl_lock_restore(&l, &b);
    err = xl_cli_put(&b);
out:
    return err;
}

XL_VERB(lock) = {
    .name = "lock",
    .args = "write | verify | restore --print",
    .help = "record the whole software stack in a file, compare a host with it, rebuild it",
    .more =
        "The lock records the plugin files by hash, driver, kernel, libc, Python and its packages, the runtime's "
        "variables,\n"
        "folders and the profile. `verify`, on this or another host, names each item that differs and what that can "
        "break; it\n"
        "then exits with 1.",
    .example = "xlane lock write --plugin=tpu --profile=tpu-v6e\n"
               "xlane lock verify\n"
               "xlane lock restore --print >restore.sh",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = lock,
};
