/* xlane eval, xlane sample: what a run has learned. */
#include <stdio.h>

#include "cli/cli.h"
#include "train/loop.h"

static struct { const char *device, *prompt; int64_t tokens, seed; double temperature, top_p; bool recompute; } opt = { .tokens = 256, .seed = 1, .temperature = 0.8, .top_p = 0.95 };
static const xl_opt eval_opts[] = {
    { "device", XL_OPT_STR, &opt.device, "PLUGIN", "cpu, cuda, tpu or the path of a plugin (that of the run)" },
    { 0 } };

static xl_error *eval(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_config c;
    xl_buf b = { 0 };
    char *dir;
    double nll;
    xl_participants who = { 0 };
    int64_t tokens, step;
    XL_DO(xl_run_find(cli->arena, argv[0], &dir));
    XL_DO(xl_run_config(cli->arena, dir, argv + 1, argc - 1, &c));
    if (opt.device)
        c.device = opt.device;
    XL_DO(xl_train_eval(cli->arena, &c, dir, &nll, &tokens, &step, &who));
    if (cli->json) {
        xl_json j = { .out = &b };
        xl_json_map(&j);
        xl_json_put_text(&j, "run", dir);
        xl_json_put_int(&j, "step", step);
        xl_json_put_num(&j, "nll", nll);
        xl_json_put_text(&j, "reduction", "mean");
        xl_json_put_int(&j, "tokens", tokens);
        xl_json_put_int(&j, "participants", who.n);
        if (who.over[0])
            xl_json_put_text(&j, "over", who.over);
        xl_json_end(&j);
    } else
        xl_buf_printf(&b, "%s, step %lld: %.6f nats/token (%.4f bits), mean over %lld tokens", dir, (long long)step, nll, nll / 0.69314718056, (long long)tokens);
    if (!cli->json && who.over[0])
        xl_buf_printf(&b, ", %lld participants over %s", (long long)who.n, who.over);
    err = xl_cli_put(&b);
out:
    return err;
}

const xl_verb xl_verb_eval = {
    .name = "eval", .args = "RUN [key=value ...]", .help = "evaluate the newest checkpoint of a run", .example = "xlane eval last train.eval_batches=100",
    .opts = eval_opts, .min = 1, .max = -1, .run = eval,
};

static void put(void *ctx, int token)
{
    (void)ctx;
    putchar(token);
    fflush(stdout);
}

static xl_error *sample(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_config c;
    char *dir;
    XL_DO(xl_run_find(cli->arena, argv[0], &dir));
    XL_DO(xl_run_config(cli->arena, dir, argv + 1, argc - 1, &c));
    if (opt.device)
        c.device = opt.device;
    if (c.model.vocab > 256)
        return XL_ERR(UNIMPLEMENTED, "the run's tokens are not bytes: their text is known only to the tokenizer that made them");
    if (!(opt.top_p > 0 && opt.top_p <= 1))
        return xl_cli_misuse(cli, "--top-p=%g: above 0, at most 1", opt.top_p);
    if (!(opt.temperature >= 0 && opt.temperature < 1e6) || opt.tokens < 0)
        return xl_cli_misuse(cli, "--temperature=%g --tokens=%lld: neither is negative", opt.temperature, (long long)opt.tokens);
    if (opt.prompt)
        fputs(opt.prompt, stdout);
    XL_DO(xl_train_sample(cli->arena, &c, dir, &(xl_sample_opts){ opt.prompt, opt.tokens, opt.temperature, opt.top_p, (uint64_t)opt.seed, opt.recompute }, put, NULL));
    putchar('\n');
out:
    return err;
}

static const xl_opt sample_opts[] = {
    { "prompt", XL_OPT_STR, &opt.prompt, "TEXT", "what to go on from" },
    { "tokens", XL_OPT_INT, &opt.tokens, "N", "how many to draw (256)" },
    { "temperature", XL_OPT_NUM, &opt.temperature, "T", "0 always takes the likeliest (0.8)" },
    { "top-p", XL_OPT_NUM, &opt.top_p, "P", "draw from the likeliest tokens that have this much together (0.95)" },
    { "seed", XL_OPT_INT, &opt.seed, "N", "of the draw (1)" },
    { "recompute", XL_OPT_FLAG, &opt.recompute, NULL, "the whole window for every token instead of cached keys, values and states: slow, to compare with" },
    { "device", XL_OPT_STR, &opt.device, "PLUGIN", "cpu, cuda, tpu or the path of a plugin (that of the run)" },
    { 0 } };
const xl_verb xl_verb_sample = {
    .name = "sample", .args = "RUN [--prompt=TEXT]", .help = "draw text from the newest checkpoint of a run",
    .example = "xlane sample last --prompt='The ' --tokens=200", .opts = sample_opts, .min = 1, .max = -1, .run = sample,
};
