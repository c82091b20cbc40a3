/* xlane matrix: which known breakages does this lane have? */
#include "lane/matrix.h"

#include <stdio.h>

#include "cli/cli.h"
#include "lane/run.h"

static struct { const char *plugin, *cache; bool all; } opt;
static const xl_opt opts[] = {
    { "plugin", XL_OPT_STR, &opt.plugin, "PATH", "check: the plugin's file, or cpu, tpu, cuda (the one that would be used)" },
    { "cache", XL_OPT_STR, &opt.cache, "DIR", "check: the executable cache to look into" },
    { "all", XL_OPT_FLAG, &opt.all, NULL, "check: the rows that are clear or not here, too" },
    { 0 },
};

static xl_error *matrix(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_matrix_row *r;
    size_t n, count[4] = { 0 };
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    char *run = NULL;
    bool check = !strcmp(argv[0], "check");
    if (!check && (strcmp(argv[0], "list") || argc > 1))
        return xl_cli_misuse(cli, "matrix: usage: list, or check [RUN]");
    if (argc > 1)
        XL_DO(xl_run_find(cli->arena, argv[1], &run));
    XL_DO(xl_matrix(cli->arena, &(xl_matrix_wish){ opt.plugin, opt.cache, run }, check, &r, &n));
    if (cli->json)
        xl_json_list(&j);
    for (size_t i = 0; i < n; i++) {
        count[r[i].state]++;
        if (cli->json) {
            xl_json_map(&j);
            xl_json_put_text(&j, "name", r[i].name);
            xl_json_put_text(&j, "class", r[i].class);
            xl_json_put_text(&j, "surface", r[i].surface);
            xl_json_put_text(&j, "symptom", r[i].symptom);
            xl_json_put_text(&j, "remedy", r[i].remedy);
            xl_json_put_text(&j, "source", r[i].source);
            if (check) {
                xl_json_put_text(&j, "state", xl_matrix_word(r[i].state));
                xl_json_put_str(&j, "text", r[i].text);
            }
            xl_json_end(&j);
        } else if (!check) {
            xl_buf_printf(&b, "%-18s %s (%s)\n    %s\n    do: %s\n    see %s\n", r[i].name, r[i].surface, r[i].class, r[i].symptom, r[i].remedy, r[i].source);
        } else if (opt.all || r[i].state == XL_MATRIX_HIT || r[i].state == XL_MATRIX_UNKNOWN) {
            xl_buf_printf(&b, "%-9s %-18s %.*s\n", xl_matrix_word(r[i].state), r[i].name, XL_FMT(r[i].text));
            if (r[i].state == XL_MATRIX_HIT)
                xl_buf_printf(&b, "%-9s %s: %s\n%-9s do: %s (%s)\n", "", r[i].surface, r[i].symptom, "", r[i].remedy, r[i].source);
        }
    }
    if (cli->json)
        xl_json_end(&j);
    else if (check)
        xl_buf_printf(&b, "%zu rows: %zu clear, %zu not here, %zu affected, %zu unknown\n", n, count[XL_MATRIX_CLEAR], count[XL_MATRIX_ABSENT], count[XL_MATRIX_HIT],
                      count[XL_MATRIX_UNKNOWN]);
    err = xl_cli_put(&b);
out:
    return err;
}

const xl_verb xl_verb_matrix = {
    .name = "matrix", .args = "list | check [RUN]", .help = "known breakages of XLA lanes, and which of them this one has",
    .more = "Each row has a check that runs: on the plugin (in a child process), the packages, the environment, the cache, or a recorded RUN.\n"
            "A row is clear, not here (its surface is not installed), affected, or unknown with what would be needed to know.",
    .example = "xlane matrix check last\nxlane matrix list --json", .opts = opts, .min = 1, .max = 2, .run = matrix,
};
