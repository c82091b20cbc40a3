/* xlane matrix: which known breakages does this lane have? */
#include "lane/matrix.h"

#include <stdio.h>

#include "cli/cli.h"
#include "lane/run.h"

static struct { const char *plugin, *cache; xl_opt_list allow; bool all; } opt;
static const xl_opt opts[] = {
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH",
      "check: the plugin's file, or cpu, tpu, cuda (the one that would be used)" },
    { "cache", XL_OPT_STR, &opt.cache, "DIR", "check: the executable cache to look into" },
    { "allow", XL_OPT_REPEAT, &opt.allow, "ROW",
      "check: a row that may be affected without the exit status being 1; may be repeated" },
    { "all", XL_OPT_FLAG, &opt.all, NULL, "check: also show rows that are clear or not here" },
    { 0 },
};

static bool allowed(const char *row)
{
    for (size_t i = 0; i < opt.allow.n; i++)
        if (!strcmp(opt.allow.p[i], row))
            return true;
    return false;
}

static xl_error *known_rows(const xl_cli *cli, const xl_matrix_row *r, size_t n)
{
    for (size_t i = 0; i < opt.allow.n; i++) {
        size_t k = 0;
        while (k < n && strcmp(r[k].name, opt.allow.p[i]))
            k++;
        if (k == n)
            return xl_cli_misuse(cli, "--allow: there is no row '%s'; `xlane matrix list` names them", opt.allow.p[i]);
    }
    return NULL;
}

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
    XL_DO(known_rows(cli, r, n));
    size_t stop = 0, waiting = 0;
    if (cli->json)
        xl_json_list(&j);
    for (size_t i = 0; i < n; i++) {
        count[r[i].state]++;
        stop += check && r[i].state == XL_MATRIX_HIT && !allowed(r[i].name);
        if (cli->json) {
            xl_json_map(&j);
            xl_json_put_text(&j, "name", r[i].name);
            xl_json_put_text(&j, "class", r[i].class);
            xl_json_put_text(&j, "surface", r[i].surface);
            xl_json_put_text(&j, "symptom", r[i].symptom);
            xl_json_put_text(&j, "remedy", r[i].remedy);
            xl_json_put_text(&j, "how", r[i].how);
            xl_json_put_text(&j, "seen", r[i].seen);
            xl_json_put_text(&j, "source", r[i].source);
            if (check) {
                xl_json_put_bool(&j, "allowed", allowed(r[i].name));
                xl_json_put_text(&j, "state", xl_matrix_word(r[i].state));
                xl_json_put_str(&j, "text", r[i].text);
            }
            xl_json_end(&j);
        } else if (!check) {
            xl_buf_printf(&b,
                          "%-18s %s (%s)\n"
                          "    %s\n"
                          "    do: %s\n"
                          "    detected by: %s\n"
                          "    seen on: %s\n"
                          "    see %s\n",
                          r[i].name, r[i].surface, r[i].class, r[i].symptom, r[i].remedy, r[i].how, r[i].seen,
                          r[i].source);
        }
    }
    for (int pass = 0; pass < 2 && check && !cli->json; pass++) /* what affects this lane first */
        for (size_t i = 0; i < n; i++) {
            bool hit = r[i].state == XL_MATRIX_HIT, unknown = r[i].state == XL_MATRIX_UNKNOWN;
            bool wants_run = unknown && !opt.all && xl_str_is(r[i].text, XL_MATRIX_NO_RUN);
            waiting += pass && wants_run;
            if (hit == (pass > 0) || wants_run || !(hit || unknown || opt.all))
                continue;
            xl_buf_printf(&b, "%-9s %-18s %.*s\n", xl_matrix_word(r[i].state), r[i].name, XL_FMT(r[i].text));
            if (hit)
                xl_buf_printf(&b,
                              "%-9s %s: %s\n"
                              "%-9s do: %s (%s)\n",
                              "", r[i].surface, r[i].symptom, "", r[i].remedy, r[i].source);
        }
    if (waiting)
        xl_buf_printf(&b, "%-9s %zu rows show in a recorded run alone: `xlane matrix check last` (--all names them)\n",
                      "unknown", waiting);
    if (cli->json)
        xl_json_end(&j);
    else if (check)
        xl_buf_printf(&b, "%zu rows: %zu clear, %zu not here, %zu affected%s, %zu unknown\n", n, count[XL_MATRIX_CLEAR],
                      count[XL_MATRIX_ABSENT], count[XL_MATRIX_HIT],
                      count[XL_MATRIX_HIT] && !stop ? " (all allowed)" : "", count[XL_MATRIX_UNKNOWN]);
    if (stop)
        xl_cli_exit(cli, XL_EXIT_FAILED);
    err = xl_cli_put(&b);
out:
    return err;
}

XL_VERB(matrix) = {
    .name = "matrix",
    .args = "list | check [RUN]",
    .help = "known bugs of XLA stacks, and which of them affect this one",
    .more =
        "Each row has a check that runs against the plugin (in a child process), the packages, the environment, the "
        "cache or a\n"
        "recorded RUN. A row is clear, not here (the component is not installed), affected, or unknown, with what is "
        "needed to\n"
        "find out. For use in CI the exit status is 1 if a row is affected that --allow does not name; unknown rows "
        "do not count.",
    .example = "xlane matrix check last\n"
               "xlane matrix check --allow quiet_fallback\n"
               "xlane matrix list --json",
    .opts = opts,
    .min = 1,
    .max = 2,
    .run = matrix,
};
