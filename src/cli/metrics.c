#include "lane/metrics.h"

#include "cli/cli.h"
#include "lane/run.h"
#include "lane/steps.h"

static struct { bool modules, prometheus; } opt;
static const xl_opt opts[] = {
    { "modules", XL_OPT_FLAG, &opt.modules, NULL, "each module on its own after the total" },
    { "prometheus", XL_OPT_FLAG, &opt.prometheus, NULL, "in the form a scraper reads" },
    { 0 },
};

static xl_error *metrics(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_metrics *m = NULL;
    xl_buf b = { 0 };
    char *dir;
    size_t processes, ntimes = 0;
    xl_step_times *times = NULL;
    XL_DO(xl_run_find(cli->arena, argc ? argv[0] : "last", &dir));
    XL_DO(xl_metrics_read(cli->arena, dir, &m, &processes));
    XL_DO(xl_steps_read(cli->arena, dir, &times, &ntimes));
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_run_info about = xl_run_about(cli->arena, dir);
        xl_json_map(&j);
        xl_json_put_bool(&j, "diagnostic", about.diagnostic);
        xl_json_put_str(&j, "profile", about.profile);
        xl_json_key(&j, "metrics");
        xl_metrics_json(m, &j);
        xl_json_key(&j, "steps");
        xl_json_list(&j);
        for (size_t i = 0; i < ntimes; i++)
            xl_steps_put(&times[i], &j);
        xl_json_end(&j);
        xl_json_end(&j);
    } else if (opt.prometheus) {
        xl_metrics_prometheus(m, 0, 0, &b);
    } else {
        xl_buf_str(&b, xl_run_mark(cli->arena, dir));
        xl_metrics_print(m, opt.modules, &b);
        for (size_t i = 0; i < ntimes; i++)
            xl_steps_say(&times[i], &b);
    }
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    xl_metrics_free(m);
    return err;
}

const xl_verb xl_verb_metrics = {
    .name = "metrics", .args = "[RUN]", .help = "the counters and timings of a run, in the layout PyTorch/XLA prints",
    .example = "xlane metrics last --modules", .opts = opts, .min = 0, .max = 1, .run = metrics,
};
