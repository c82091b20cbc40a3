#include "ir/compare/diff.h"

#include <stdio.h>

#include "base/file.h"
#include "cli/program.h"
#include "ir/compare/hash.h"

static struct { int64_t most; const char *module; bool unchecked; } opt = { .most = 20 };
static const xl_opt opts[] = {
    { "most", XL_OPT_INT, &opt.most, "N", "print at most N differences (20)" },
    { "module", XL_OPT_STR, &opt.module, "NAME", "which program of a RUN (that of the step)" },
    { "unchecked", XL_OPT_FLAG, &opt.unchecked, NULL, "compare even programs that do not verify" },
    { 0 } };

static void put_json(xl_buf *b, const char *ha, const char *hb, const xl_diff *d, uint32_t n)
{
    xl_json j = { .out = b, .pretty = true };
    xl_json_map(&j);
    xl_json_put_bool(&j, "same", strcmp(ha, hb) == 0);
    xl_json_put_text(&j, "before", ha);
    xl_json_put_text(&j, "after", hb);
    xl_json_key(&j, "detail");
    xl_json_list(&j);
    for (uint32_t i = 0; i < n; i++, d++) {
        xl_json_map(&j);
        xl_json_put_text(&j, "what", xl_diff_word(d->kind));
        if (d->arg >= 0)
            xl_json_put_int(&j, "arg", d->arg);
        if (d->name.n)
            xl_json_put_str(&j, "name", d->name);
        if (d->dim >= 0)
            xl_json_put_int(&j, "dim", d->dim);
        if (d->before.n || d->after.n) {
            xl_json_put_str(&j, "before", d->before);
            xl_json_put_str(&j, "after", d->after);
        }
        if (d->file.n) {
            char line[16];
            snprintf(line, sizeof line, ":%u", d->line);
            xl_buf where = { 0 };
            xl_buf_str(&where, d->file);
            xl_buf_puts(&where, line);
            xl_json_put_str(&j, "where", xl_buf_view(&where));
            xl_buf_fini(&where);
        }
        xl_json_put_str(&j, "text", d->text);
        xl_json_end(&j);
    }
    xl_json_end(&j);
    xl_json_end(&j);
}

static bool is_run(const char *what)
{
    xl_file_info info;
    return strcmp(what, "-") && (!xl_file_stat(what, &info) || info.dir);
}

/* Of runs, of which only one program is compared. */
static void say_which(xl_buf *b, char **argv, const xl_module *x, const xl_module *y)
{
    if (is_run(argv[0]) && is_run(argv[1]))
        xl_buf_printf(b, "%.*s of %s, %.*s of %s; `xlane explain RUN1 RUN2` compares all programs of both\n",
                      XL_FMT(x->name), argv[0], XL_FMT(y->name), argv[1]);
}

static xl_error *diff(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    xl_module *x = NULL, *y = NULL;
    (void)argc;
    if (opt.most < 1 || opt.most > 1000000) {
        err = xl_cli_misuse(cli, "--most needs a number from 1 to 1000000");
        goto out;
    }
    *cli->status = XL_EXIT_MISUSED;                        /* a file that is no program: not a difference */
    XL_DO(xl_cli_program(cli, argv[0], is_run(argv[0]) ? opt.module : NULL, opt.unchecked, &x));
    XL_DO(xl_cli_program(cli, argv[1], is_run(argv[1]) ? opt.module : NULL, opt.unchecked, &y));
    char ha[XL_DIGEST_HEX], hb[XL_DIGEST_HEX];
    xl_digest dx = xl_module_hash(x), dy = xl_module_hash(y);
    xl_digest_hex(&dx, ha);
    xl_digest_hex(&dy, hb);
    uint32_t n;
    const xl_diff *d = xl_module_diff(cli->arena, x, y, (uint32_t)opt.most, &n);
    if (cli->json)
        put_json(&b, ha, hb, d, n);
    else
        say_which(&b, argv, x, y);
    if (!cli->json && n == 0)
        xl_buf_printf(&b, "the same program, %s\n", ha);
    else if (!cli->json)
        for (uint32_t i = 0; i < n; i++)
            xl_buf_printf(&b, "%-9s %.*s\n", xl_diff_word(d[i].kind), XL_FMT(d[i].text));
    XL_DO(xl_cli_put(&b));
    xl_cli_exit(cli, xl_digest_eq(&dx, &dy) ? XL_EXIT_DONE : XL_EXIT_FAILED);
out:
    xl_buf_fini(&b);
    xl_module_free(x);
    xl_module_free(y);
    return err;
}

XL_VERB(diff) = {
    .name = "diff",
    .args = "[--most=N] BEFORE AFTER",
    .help = "the differences between two programs, in words, with source lines",
    .more =
        "BEFORE and AFTER are files that `xlane print` can read (also programs/HASH.zst of a run), or RUNs: of each\n"
        "that is the program of its step, or the one of --module. `xlane explain RUN1 RUN2` compares all programs of "
        "two\n"
        "runs, their flags and versions, and their times.\n"
        "Each line is one difference: its kind (args, shape, dtype, sharding, constant, op, layout, donation) and a "
        "sentence.\n"
        "Names, source lines and the order of functions do not count as differences.\n"
        "Exit status: 0 same program, 1 they differ, 2 usage error or a file that is not a program.",
    .example = "xlane diff step-1.mlir step-2.mlir\n"
               "xlane diff RUN1 RUN2 --module=jit_step\n"
               "xlane diff --json before.bc after.bc",
    .opts = opts,
    .min = 2,
    .max = 2,
    .run = diff,
};
