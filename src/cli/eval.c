/* xlane eval, xlane sample: what a run has learned. */
#include <stdio.h>

#include "cli/launch.h"
#include "train/loop.h"

static struct {
    const char *device, *prompt, *ids;
    int64_t tokens, seed;
    double temperature, top_p;
    bool recompute;
} opt = { .tokens = 256, .seed = 1, .temperature = 0.8, .top_p = 0.95 };
static const xl_opt eval_opts[] = {
    { "device", XL_OPT_PLUGIN, &opt.device, "PLUGIN", "cpu, cuda, tpu or the path of a plugin (that of the run)" },
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
    XL_DO(xl_run_find_trained(cli->arena, argv[0], &dir));
    XL_DO(xl_cli_run_config(cli, dir, argv + 1, argc - 1, &c));
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
        xl_buf_printf(&b, "%s, step %lld: %.6f nats/token (%.4f bits), mean over %lld tokens", dir, (long long)step,
                      nll, nll / 0.69314718056, (long long)tokens);
    if (!cli->json && who.over[0])
        xl_buf_printf(&b, ", %lld participants over %s", (long long)who.n, who.over);
    err = xl_cli_put(&b);
out:
    return err;
}

XL_VERB(eval) = {
    .name = "eval",
    .args = "RUN [key=value ...]",
    .help = "evaluate the newest checkpoint of a run",
    .example = "xlane eval last train.eval_batches=100",
    .opts = eval_opts,
    .min = 1,
    .max = -1,
    .run = eval,
};

/* What is drawn: bytes as they come, numbers where tokens are no bytes; or kept, for --json. */
typedef struct { bool bytes, json; xl_arena *a; int32_t *v; uint32_t n, cap; } drawn;

static void put(void *ctx, int token)
{
    drawn *d = ctx;
    XL_PUSH(d->a, d->v, d->n, d->cap, token);
    if (d->json)
        return;
    if (d->bytes)
        putchar(token);
    else
        printf("%s%d", d->n > 1 ? " " : "", token);
    fflush(stdout);
}

/* The prompt as tokens: of --ids, or the bytes of --prompt. */
static xl_error *prompt(const xl_cli *cli, const xl_config *c, int32_t **out, uint32_t *n)
{
    uint32_t cap = 0;
    xl_str rest = xl_str_of(opt.ids ? opt.ids : opt.prompt && *opt.prompt ? opt.prompt : "\n");
    *out = NULL;
    *n = 0;
    if (!opt.ids && c->model.vocab > 256)
        return XL_ERR(PRECONDITION, "the run's tokens are not bytes: give the prompt as numbers, --ids=1,2,3, and "
                                    "decode what is printed with the tokenizer that made the data");
    if (opt.ids && opt.prompt)
        return xl_cli_misuse(cli, "--ids and --prompt exclude each other: give one of them");
    while (rest.n) {
        int64_t id = (unsigned char)*rest.p;
        if (opt.ids) {
            xl_str word = xl_str_trim(xl_str_cut(&rest, ','));
            if (!xl_str_i64(word, &id) || id < 0 || id > INT32_MAX)
                return xl_cli_misuse(cli, "--ids: \"%.*s\" is not a token's number", XL_FMT(word));
        } else
            rest.p++, rest.n--;
        XL_PUSH(cli->arena, *out, *n, cap, (int32_t)id);
    }
    return *n ? NULL : xl_cli_misuse(cli, "--ids: at least one token");
}

static xl_error *sample(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_config c;
    xl_buf b = { 0 };
    char *dir;
    int32_t *in;
    uint32_t n;
    XL_DO(xl_run_find_trained(cli->arena, argv[0], &dir));
    XL_DO(xl_cli_run_config(cli, dir, argv + 1, argc - 1, &c));
    if (opt.device)
        c.device = opt.device;
    if (!(opt.top_p > 0 && opt.top_p <= 1))
        return xl_cli_misuse(cli, "--top-p=%g: above 0, at most 1", opt.top_p);
    if (!(opt.temperature >= 0 && opt.temperature < 1e6))
        return xl_cli_misuse(cli, "--temperature=%g: at least 0, below 1e6; 0.8 is usual", opt.temperature);
    XL_DO(prompt(cli, &c, &in, &n));
    drawn d = { .bytes = c.model.vocab <= 256, .json = cli->json, .a = cli->arena };
    if (opt.prompt && !cli->json)
        fputs(opt.prompt, stdout);
    xl_sample_opts how = { in, n, opt.tokens, opt.temperature, opt.top_p, (uint64_t)opt.seed, opt.recompute };
    XL_DO(xl_train_sample(cli->arena, &c, dir, &how, put, &d));
    if (!cli->json) {
        putchar('\n');
        goto out;
    }
    xl_json j = { .out = &b };
    xl_json_map(&j);
    xl_json_put_text(&j, "run", dir);
    xl_json_key(&j, "tokens");
    xl_json_list(&j);
    for (uint32_t i = 0; i < d.n; i++)
        xl_json_int(&j, d.v[i]);
    xl_json_end(&j);
    if (d.bytes) {
        char *text = xl_new(cli->arena, char, (size_t)d.n + 1);
        for (uint32_t i = 0; i < d.n; i++)
            text[i] = (char)d.v[i];
        xl_json_put_str(&j, "text", (xl_str){ text, d.n });
    }
    xl_json_end(&j);
    err = xl_cli_put(&b);
out:
    return err;
}

static const xl_opt sample_opts[] = {
    { "prompt", XL_OPT_TEXT, &opt.prompt, "TEXT", "the text to continue" },
    { "ids", XL_OPT_STR, &opt.ids, "N,N,...",
      "the prompt as token ids, for a run whose tokens are not bytes; ids are printed then" },
    { "tokens", XL_OPT_COUNT, &opt.tokens, "N", "how many tokens to sample (256)" },
    { "temperature", XL_OPT_NUM, &opt.temperature, "T", "0 always takes the most likely token (0.8)" },
    { "top-p", XL_OPT_NUM, &opt.top_p, "P", "sample from the most likely tokens whose probabilities add up to P "
                                            "(0.95)" },
    { "seed", XL_OPT_INT, &opt.seed, "N", "the random seed (1)" },
    { "recompute", XL_OPT_FLAG, &opt.recompute, NULL,
      "recompute the whole window for every token instead of caching keys, values and states (slow; for comparison)" },
    { "device", XL_OPT_PLUGIN, &opt.device, "PLUGIN", "cpu, cuda, tpu or the path of a plugin (that of the run)" },
    { 0 }
};
XL_VERB(sample) = {
    .name = "sample",
    .args = "RUN [--prompt=TEXT]",
    .help = "sample text from the newest checkpoint of a run",
    .example = "xlane sample last --prompt='The ' --tokens=200",
    .opts = sample_opts,
    .min = 1,
    .max = -1,
    .run = sample,
};
