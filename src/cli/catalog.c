/* xlane catalog: which launches were tried on this stack, and what came of each. */
#include "lane/catalog.h"

#include <stdio.h>

#include "base/time.h"
#include "cli/cli.h"

static struct { const char *outcome; int64_t most; } opt = { .most = 50 };
static const xl_opt opts[] = {
    { "outcome", XL_OPT_STR, &opt.outcome, "WORD", "only these: predicted, rehearsed, ran, failed or killed" },
    { "most", XL_OPT_COUNT, &opt.most, "N", "show the newest N; 0: all (50)" },
    { 0 },
};

static void put_size(xl_buf *b, const char *what, int64_t v)
{
    char size[32];
    if (v >= 0)
        xl_buf_printf(b, ", %s %s", what, xl_size_words((double)v, size));
}

static void put_entry(xl_buf *b, const xl_catalog_entry *e)
{
    char iso[XL_TIME_ISO];
    xl_buf_printf(b, "%s  %-9s %.*s: %.*s\n", xl_time_iso(e->when, iso), xl_outcome_word(e->outcome), XL_FMT(e->what),
                  XL_FMT(e->sig.model));
    xl_buf_printf(b, "    program %.12s on %.*s", e->sig.code.n >= 12 ? e->sig.code.p : "?", XL_FMT(e->sig.hardware));
    put_size(b, "predicted", e->predicted);
    put_size(b, "compiled", e->compiled);
    put_size(b, "observed", e->observed);
    put_size(b, "limit", e->limit);
    xl_buf_printf(b, "\n    %.*s; %.*s\n", XL_FMT(e->sig.bundle), XL_FMT(e->sig.features));
    if (e->class.n)
        xl_buf_printf(b, "    %.*s: %.*s\n", XL_FMT(e->class), XL_FMT(e->message));
}

static xl_error *catalog(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_catalog_entry *e;
    size_t n, torn, shown = 0, from = 0;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    const char *dir = xl_catalog_dir(cli->arena);
    (void)argc;
    (void)argv;
    bool known = !opt.outcome;
    for (int i = XL_OUTCOME_PREDICTED; i <= XL_OUTCOME_KILLED; i++)
        known |= opt.outcome && !strcmp(opt.outcome, xl_outcome_word((xl_outcome)i));
    if (!known)
        return xl_cli_misuse(cli, "--outcome is predicted, rehearsed, ran, failed or killed, not %s", opt.outcome);
    XL_DO(xl_catalog_read(cli->arena, dir, &e, &n, &torn));
    for (size_t i = n; i-- > 0 && (!opt.most || shown < (size_t)opt.most);)
        if (!opt.outcome || !strcmp(opt.outcome, xl_outcome_word(e[i].outcome))) {
            shown++;
            from = i;
        }
    if (cli->json)
        xl_json_list(&j);
    for (size_t i = from; i < n && shown; i++) {
        if (opt.outcome && strcmp(opt.outcome, xl_outcome_word(e[i].outcome)))
            continue;
        if (cli->json)
            xl_catalog_json(&j, &e[i]);
        else
            put_entry(&b, &e[i]);
    }
    if (cli->json)
        xl_json_end(&j);
    else if (!dir)
        xl_buf_puts(&b, "there is no catalog: HOME is not set; XLANE_CATALOG=DIR names a folder for it\n");
    else if (!n)
        xl_buf_printf(&b, "the catalog %s is empty; `xlane run`, `rehearse`, `calibrate` and `train --fit` fill it\n",
                      dir);
    else
        xl_buf_printf(&b, "%zu of %zu launches in %s%s\n", shown, n, dir,
                      torn ? xl_strf(cli->arena, "; %zu lines were torn and are passed over", torn).p : "");
    err = xl_cli_put(&b);
out:
    return err;
}

XL_VERB(catalog) = {
    .name = "catalog",
    .args = "[--outcome=WORD] [--most=N]",
    .help = "launches tried on this machine, with their memory and outcome",
    .more =
        "A launch is identified by its program, devices, flags and versions. `xlane run` adds the step of every "
        "guarded program\n"
        "with the compiler's memory figure and the observed peak; `rehearse` and `calibrate` add what they compiled. "
        "With\n"
        "--smaller, `xlane run` starts with the candidate that is known to run.",
    .example = "xlane catalog\nxlane catalog --outcome=failed --json",
    .opts = opts,
    .min = 0,
    .max = 0,
    .run = catalog,
};
