/* xlane profile: what policy would apply, and where does each value come from? */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/cli.h"
#include "lane/flags.h"
#include "lane/profile.h"
#include "pjrt/plugin.h"

static struct { const char *plugin, *frontend; bool all; } opt;
static const xl_opt opts[] = {
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH",
      "check: the library whose flags count, or tpu, cuda (the profile's own, where it is installed)" },
    { "frontend", XL_OPT_STR, &opt.frontend, "PATH",
      "check: the frontend's own XLA, which reads XLA_FLAGS too (jaxlib's, where it is installed)" },
    { "all", XL_OPT_FLAG, &opt.all, NULL, "show: defaults too" },
    { 0 },
};

static xl_error *list(const xl_cli *cli)
{
    xl_error *err = NULL;
    xl_profile_row *row;
    size_t n;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_profile_list(cli->arena, &row, &n));
    if (cli->json)
        xl_json_list(&j);
    for (size_t i = 0; i < n; i++) {
        if (cli->json) {
            xl_json_map(&j);
            xl_json_put_str(&j, "name", row[i].name);
            xl_json_put_text(&j, "where", row[i].where);
            xl_json_put_str(&j, "file", row[i].file);
            xl_json_put_str(&j, "about", row[i].about);
            xl_json_put_bool(&j, "diagnostic", row[i].diagnostic);
            if (row[i].bad.n)
                xl_json_put_str(&j, "error", row[i].bad);
            xl_json_end(&j);
        } else {
            xl_buf_printf(&b, "%-18.*s %-9s %s%.*s\n", XL_FMT(row[i].name), row[i].where,
                          row[i].diagnostic ? "(diagnostic) " : "", XL_FMT(row[i].bad.n ? row[i].bad : row[i].about));
        }
    }
    if (cli->json)
        xl_json_end(&j);
    err = xl_cli_put(&b);
out:
    return err;
}

static const char *size_words(xl_arena *a, uint64_t n)
{
    static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    int u = 0;
    uint64_t v = n;
    while (u < 4 && v >= 1024 && v % 1024 == 0) {
        v /= 1024;
        u++;
    }
    if (u < 2 && n >= 1 << 20)                              /* no round figure */
        return xl_strf(a, n >= 1 << 30 ? "%.1f GiB" : "%.1f MiB", (double)n / (n >= 1 << 30 ? 1 << 30 : 1 << 20)).p;
    return xl_strf(a, "%llu %s", (unsigned long long)v, unit[u]).p;
}

/* A value for people: sizes with their unit. */
static xl_str shown(xl_arena *a, const xl_setting *s)
{
    uint64_t n;
    if (!s->value.n)
        return XL_STR("(the runtime's own)");
    return s->bytes && xl_str_size(s->value, &n) ? xl_str_of(size_words(a, n)) : s->value;
}

static xl_error *show(const xl_cli *cli, const char *name)
{
    xl_error *err = NULL;
    xl_profile p;
    xl_buf b = { 0 };
    xl_host_budget budget;
    XL_DO(xl_profile_effective(cli->arena, name, &p));
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_profile_json(&j, &p);
        return xl_cli_put(&b);
    }
    bool compiles = strcmp(p.digest, "none") != 0;         /* it says something of the compiled code */
    xl_buf_printf(&b, "%.*s%s%s%s: %.*s\n", XL_FMT(p.name), compiles ? "@" : "", compiles ? p.digest : "",
                  p.diagnostic ? " (diagnostic: its timings are marked)" : "", XL_FMT(p.about));
    for (size_t i = 0; i < p.nchain; i++)
        xl_buf_printf(&b, "  %s %.*s\n", i + 1 == p.nchain ? "from     " : "inherited", XL_FMT(p.chain[i]));
    xl_str group = { 0 };
    int wide[2] = { 0 };                                    /* of the names and of the values shown */
    for (size_t i = 0; i < p.n; i++) {
        xl_str key = p.set[i].name;
        xl_str_cut(&key, '.');
        if (!opt.all && xl_str_is(p.set[i].origin, "default"))
            continue;
        size_t n[2] = { key.n, shown(cli->arena, &p.set[i]).n };
        for (int k = 0; k < 2; k++)
            wide[k] = (int)n[k] > wide[k] ? (int)n[k] : wide[k];
    }
    for (size_t i = 0; i < p.n; i++) {
        const xl_setting *s = &p.set[i];
        xl_str key = s->name, g = xl_str_cut(&key, '.');
        if (!opt.all && (xl_str_is(s->origin, "default")))
            continue;
        if (!xl_str_eq(g, group))
            xl_buf_printf(&b, "%.*s\n", XL_FMT(g));
        group = g;
        xl_buf_printf(&b, "  %-*.*s  %-*.*s  %.*s", wide[0], XL_FMT(key), wide[1], XL_FMT(shown(cli->arena, s)),
                      XL_FMT(s->origin));
        if (s->var)
            xl_buf_printf(&b, "  -> %s", s->var);
        if (s->shadow.n)
            xl_buf_printf(&b, "  (the environment's %.*s does not count)", XL_FMT(s->shadow));
        xl_buf_putc(&b, '\n');
    }
    xl_error *refused = xl_profile_budget(cli->arena, &p, &budget);
    if (budget.premapped)
        xl_buf_printf(
            &b,
            "host memory\n"
            "  premapped %s + loader %s + headroom %s of %s: %s\n",
            size_words(cli->arena, budget.premapped), size_words(cli->arena, budget.loader),
            size_words(cli->arena, budget.headroom), size_words(cli->arena, budget.host),
            refused ? "does not fit; device.premapped_buffer, loader_memory and headroom are the profile's to change"
                    : "fits");
    xl_error_free(refused);
    err = xl_cli_put(&b);
out:
    return err;
}

static xl_error *diff(const xl_cli *cli, const char *one, const char *two)
{
    xl_error *err = NULL;
    xl_profile x, y;
    xl_profile_change *c;
    size_t n;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_profile_load(cli->arena, one, &x));
    XL_DO(xl_profile_load(cli->arena, two, &y));
    xl_profile_diff(cli->arena, &x, &y, &c, &n);
    if (cli->json)
        xl_json_list(&j);
    for (size_t i = 0; i < n; i++) {
        if (cli->json) {
            xl_json_map(&j);
            xl_json_put_str(&j, "name", c[i].name);
            xl_json_put_str(&j, "before", c[i].before);
            xl_json_put_str(&j, "after", c[i].after);
            xl_json_put_str(&j, "before_origin", c[i].before_origin);
            xl_json_put_str(&j, "after_origin", c[i].after_origin);
            xl_json_end(&j);
            continue;
        }
        xl_buf_printf(&b, "%-44.*s ", XL_FMT(c[i].name));
        xl_buf_printf(&b, c[i].before_origin.n ? "%.*s (%.*s)" : "not set%.*s%.*s", XL_FMT(c[i].before),
                      XL_FMT(c[i].before_origin));
        xl_buf_printf(&b, c[i].after_origin.n ? " -> %.*s (%.*s)\n" : " -> not set%.*s%.*s\n", XL_FMT(c[i].after),
                      XL_FMT(c[i].after_origin));
    }
    if (cli->json)
        xl_json_end(&j);
    else if (!n)
        xl_buf_puts(&b, "the same values\n");
    xl_cli_exit(cli, n ? XL_EXIT_FAILED : XL_EXIT_DONE);
    err = xl_cli_put(&b);
out:
    return err;
}

static xl_error *check(const xl_cli *cli, const char *name)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_profile p;
    xl_finding *f;
    size_t n, fatal = 0;
    xl_buf b = { 0 };
    xl_plugin_choice choice = { 0 };
    const char *plugin = NULL, *skipped = NULL;
    xl_str unread = { 0 };                                 /* a file is named, and cannot be read: it will not start */
    XL_DO(xl_profile_effective(a, name, &p));
    const xl_setting *own = xl_profile_get(&p, "device.plugin");
    if (opt.plugin || (own && own->value.n)) {
        xl_error *missing =
            xl_plugin_find(a, &(xl_plugin_wish){ .named = opt.plugin ? opt.plugin : xl_str_c(a, own->value) }, &choice);
        if (!missing)
            missing = xl_flags_file(choice.path);
        if (missing && opt.plugin)
            return xl_error_next(missing, "--plugin=PATH names another file, --plugin=tpu or cuda finds one");
        if (missing)                                       /* a profile may be checked where its device is not */
            skipped = xl_str_c(a, xl_str_of(xl_error_message(missing)));
        if (missing && !xl_plugin_word(xl_str_c(a, own->value)))
            unread = xl_str_is(own->origin, "environment") ? xl_strf(a, "XLANE_PLUGIN: %s", skipped)
                                                           : xl_strf(a, "%.*s: device.plugin: %s", XL_FMT(own->origin),
                                                                     skipped);
        choice.path = missing ? NULL : choice.path;
        xl_error_free(missing);
        const char *kind = choice.path ? xl_plugin_kind(choice.path) : NULL;
        if (choice.path && kind && !strcmp(kind, "cpu") && !opt.plugin)
            skipped = "the embedded device reads no XLA flags";
        else
            plugin = choice.path;
    }
    const char *frontend = opt.frontend ? opt.frontend : xl_profile_frontend(a);
    XL_DO(xl_profile_check(a, &p, plugin, frontend, &f, &n));
    if (unread.n) {
        f = xl_arena_grow(a, f, sizeof *f, n, n + 1);
        f[n++] = (xl_finding){ .fatal = true, .text = unread };
    }
    for (size_t i = 0; i < n; i++)
        fatal += f[i].fatal;
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_str(&j, "profile", p.name);
        xl_json_put_text(&j, "plugin", plugin);
        xl_json_put_text(&j, "frontend", frontend);
        xl_json_put_text(&j, "not_checked", skipped);
        xl_json_key(&j, "findings");
        xl_json_list(&j);
        for (size_t i = 0; i < n; i++) {
            xl_json_map(&j);
            xl_json_put_bool(&j, "fatal", f[i].fatal);
            xl_json_put_str(&j, "text", f[i].text);
            xl_json_end(&j);
        }
        xl_json_end(&j);
        xl_json_end(&j);
    } else {
        for (size_t i = 0; i < n; i++)
            xl_buf_printf(&b, "%s  %.*s\n", f[i].fatal ? "wrong" : "note ", XL_FMT(f[i].text));
        xl_buf_printf(&b, "%.*s: %zu wrong, %zu notes; flags %s%s%s%s\n", XL_FMT(p.name), fatal,
                      n - fatal, plugin || frontend ? "checked against " : "not checked", plugin ? plugin : "",
                      plugin && frontend ? " and " : "", frontend ? frontend : "");
        if (skipped)
            xl_buf_printf(&b, "not checked against the plugin: %s\n", skipped);
    }
    if (fatal)
        xl_cli_exit(cli, XL_EXIT_FAILED);
    err = xl_cli_put(&b);
out:
    return err;
}

static xl_error *profile(const xl_cli *cli, int argc, char **argv)
{
    const char *what = argc ? argv[0] : "list";
    if (!strcmp(what, "list") && argc <= 1)
        return list(cli);
    if (!strcmp(what, "show") && argc <= 2)
        return show(cli, argc > 1 ? argv[1] : NULL);
    if (!strcmp(what, "diff") && argc == 3)
        return diff(cli, argv[1], argv[2]);
    if (!strcmp(what, "check") && argc <= 2)
        return check(cli, argc > 1 ? argv[1] : NULL);
    return xl_cli_misuse(cli, "profile: usage: list, show [NAME], diff NAME NAME, or check [NAME] [--plugin=PATH]");
}

XL_VERB(profile) = {
    .name = "profile",
    .args = "list | show [NAME] | diff NAME NAME | check [NAME]",
    .help = "launch policy: the settings a run would get, and where each comes from",
    .more =
        "Profiles are YAML files in ./.xlane/profiles or ~/.config/xlane/profiles, or built in. `check` reads the "
        "known flag\n"
        "names from the plugin's file without loading it, since XLA aborts the process on an unknown flag. It exits "
        "with 1 if\n"
        "something is wrong, or the plugin's file cannot be read. Without a NAME, show and check use the current "
        "environment.",
    .example = "xlane profile show tpu-v6e-spmd\n"
               "xlane profile check tpu-v6e --plugin=tpu",
    .opts = opts,
    .min = 0,
    .max = 3,
    .run = profile,
};
