/* xlane train: a model from a configuration. */
#include <stdlib.h>

#include "base/file.h"
#include "cli/launch.h"
#include "lane/profile.h"
#include "lane/receipt.h"
#include "lane/retry.h"
#include "train/calibrate.h"
#include "train/loop.h"

static struct { bool dry_run, quiet, fit, from_scratch, verbose; const char *print, *device, *profile, *runs; } opt;
static const xl_opt opts[] = {
    { "dry-run", XL_OPT_FLAG, &opt.dry_run, NULL,
      "say what the run would be: parameters, work, memory, buckets, programs; no device is opened" },
    { "print", XL_OPT_STR, &opt.print, "WHAT", "print the program instead of running it: loss, step or eval" },
    { "device", XL_OPT_STR, &opt.device, "PLUGIN", "cpu, cuda, tpu or the path of a plugin (the best that is here)" },
    { "profile", XL_OPT_STR, &opt.profile, "NAME",
      "launch policy, applied before the device is opened: `xlane profile list`" },
    { "fit", XL_OPT_FLAG, &opt.fit, NULL,
      "take the largest batch up to data.batch that fits the device, if need be with model.remat or in turns "
      "(model.micro): known good ones, then unseen, never known bad" },
    { "runs", XL_OPT_STR, &opt.runs, "DIR", "where the run's folder is made (runs; the key `runs` of a config)" },
    { "quiet", XL_OPT_FLAG, &opt.quiet, NULL, "no progress line" },
    { "v", XL_OPT_FLAG, &opt.verbose, NULL,
      "the runtime's own log as well: XLA's INFO lines (TF_CPP_MIN_LOG_LEVEL=0); -v" },
    { 0 }
};

static void say(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "fit: %s\n", line);
}

/* The run ended without learning anything: from some step on to its last one (and more than that one) no step updated
 * the model. */
static bool lost(const xl_loop_result *r) { return r->lost_from && (r->step > r->lost_from || r->left_out == r->done); }

static xl_error *judged_loss(const xl_cli *cli, const xl_config *c, const xl_loop_result *r)
{
    if (!lost(r))
        return NULL;
    xl_cli_exit(cli, XL_EXIT_FAILED);                      /* also where it was stopped */
    const char *back =
        r->lost_from > 1
            ? xl_strf(cli->arena, "start again, or from a checkpoint before step %lld, with", (long long)r->lost_from).p
            : "start again with";
    return XL_ERR(RANGE,
                  "loss or gradient was not finite from step %lld to the last, %lld: %lld of %lld steps updated "
                  "nothing; %s a lower rate (optimizer.lr is %g), optimizer.clip=1 "
                  "or a longer optimizer.warmup",
                  (long long)r->lost_from, (long long)r->step, (long long)r->left_out, (long long)r->done, back,
                  c->opt.lr);
}

static xl_error *result(const xl_cli *cli, const xl_loop_result *r)
{
    xl_buf b = { 0 };
    if (r->unwritten || r->stopped)
        xl_cli_exit(cli, r->unwritten ? XL_EXIT_INCOMPLETE : XL_EXIT_INTERRUPTED);
    if (cli->json) {
        xl_json j = { .out = &b };
        xl_json_map(&j);
        xl_json_put_text(&j, "run", r->dir);
        xl_json_put_int(&j, "step", r->step);
        xl_json_put_num(&j, "loss", r->loss);
        xl_json_put_num(&j, "validation", r->eval_loss);
        xl_json_put_int(&j, "skipped", r->skipped);
        xl_json_put_int(&j, "steps_here", r->done);
        xl_json_put_int(&j, "skipped_here", r->left_out);
        if (lost(r))
            xl_json_put_int(&j, "not_finite_from", r->lost_from);
        xl_json_put_bool(&j, "stopped", r->stopped);
        xl_json_put_int(&j, "lost", (int64_t)r->unwritten);
        xl_json_end(&j);
    } else if (r->step == r->from && !r->stopped) {
        xl_buf_printf(
            &b, "%s: all its steps were done before, at step %lld; to go further: xlane resume %s train.steps=%lld",
            r->dir, (long long)r->step, r->dir, (long long)(2 * r->step));
    } else {
        xl_buf_printf(&b, "%s: step %lld, loss %.4f", r->dir, (long long)r->step, r->loss);
        if (r->eval_loss == r->eval_loss)                  /* not a number: there was no evaluation */
            xl_buf_printf(&b, ", validation %.4f", r->eval_loss);
        if (r->left_out)
            xl_buf_printf(&b, "; %lld of %lld steps were skipped, their loss or gradient was not finite",
                          (long long)r->left_out, (long long)r->done);
    }
    return xl_cli_put(&b);
}

/* Before the runtime exists; a profile's plugin counts where no device was named. */
static xl_error *launch(xl_arena *a, xl_config *c)
{
    xl_error *err = NULL;
    xl_profile p;
    if (opt.profile) {
        XL_DO(xl_profile_effective(a, opt.profile, &p));
        XL_DO(xl_profile_apply(a, &p));
        const xl_setting *s = xl_profile_get(&p, "device.plugin");
        if (!opt.device && s && s->value.n)
            c->device = xl_str_c(a, s->value);
    }
    if (opt.device)
        c->device = opt.device;
    if (opt.verbose)
        setenv("TF_CPP_MIN_LOG_LEVEL", "0", 1);
out:
    return err;
}

/* What the run proved; a run that goes on leaves one receipt each time, under the step it came to. */
static void leave_receipt(xl_arena *a, const xl_config *c, const xl_loop_result *r, const char *verb, int argc,
                          char **argv)
{
    char **command = xl_new(a, char *, (size_t)argc + 2);
    command[0] = "xlane";
    command[1] = xl_str_c(a, xl_str_of(verb));
    for (int i = 0; i < argc; i++)
        command[i + 2] = argv[i];
    xl_plugin_choice plugin = { 0 };
    char *path = xl_path_join(a, r->dir, "receipt.json");
    for (int turn = 1; xl_file_stat(path, NULL); turn++)   /* a receipt is never overwritten */
        path = xl_path_join(a, r->dir,
                            (turn > 1 ? xl_strf(a, "receipt-%lld.%d.json", (long long)r->step, turn)
                                      : xl_strf(a, "receipt-%lld.json", (long long)r->step))
                                .p);
    xl_error_free(xl_plugin_find(a, &(xl_plugin_wish){ .named = c->device }, &plugin));
    xl_error *err = xl_receipt_write(a,
                                     &(xl_receipt_facts){ .kind = "train",
                                                          .dir = r->dir,
                                                          .argc = argc + 2,
                                                          .argv = command,
                                                          .plugin = plugin.path,
                                                          .cache = r->cache,
                                                          .devices = xl_strf(a, "yes: %s", r->device).p,
                                                          .executed = r->step - r->from,
                                                          .status = lost(r) ? XL_EXIT_FAILED : 0 },
                                     path);
    if (err)
        fprintf(stderr, "xlane: no receipt: %s\n", xl_error_message(err));
    xl_error_free(err);
}

/* What a failure means for another try, under the error itself. */
static xl_error *judged(xl_error *err)
{
    xl_failure f = xl_retry_classify((int)xl_error_code(err), xl_str_of(xl_error_message(err)), XL_PHASE_WINDOW);
    if (err && f.verdict == XL_RETRY_SMALLER)
        fprintf(stderr, "xlane: %s (%s): %s; --fit takes the largest batch that fits\n", f.cause,
                xl_retry_word(f.verdict), f.text);
    return err;
}

static xl_error *train(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_config c;
    xl_buf b = { 0 };
    const char *file = argc && !xl_config_is_word(argv[0]) ? argv[0] : NULL;
    int skip = file ? 1 : 0;
    for (int i = skip; i < argc; i++)
        if (!xl_config_is_word(argv[i]))
            return xl_cli_misuse(cli, "\"%s\" is not of the form key=value; a configuration file comes before those",
                                 argv[i]);
    XL_DO(xl_cli_config(cli, file, argv + skip, argc - skip, &c));
    if (opt.runs)
        c.runs = opt.runs;
    if (opt.print && cli->json)
        return xl_cli_misuse(cli,
                             "--print writes the program as text, not JSON; `xlane print --json FILE` describes one");
    XL_DO(launch(cli->arena, &c));
    if (opt.print || opt.dry_run) {
        err = opt.print ? xl_train_print(&c, opt.print, &b) : xl_train_plan(&c, cli->json, &b);
        if (!err)
            return xl_cli_put(&b);
        xl_buf_fini(&b);
        goto out;
    }
    if (opt.fit) {
        xl_calibration fitted;
        XL_TRY(xl_fit(cli->arena, &c, say, NULL, &fitted), "fitting the batch");
        setenv(
            "XLA_PYTHON_CLIENT_PREALLOCATE", "true",
            0); /* fitted to the brim with the memory taken at once, it has no room for what growing in pieces wastes */
    }
    xl_loop_result r;
    XL_DO(judged(xl_train_loop(cli->arena, &c, &(xl_loop_opts){ .quiet = opt.quiet }, &r)));
    leave_receipt(cli->arena, &c, &r, "train", argc, argv);
    XL_DO(result(cli, &r));
    err = judged_loss(cli, &c, &r);
out:
    return err;
}

const xl_verb xl_verb_train = {
    .name = "train",
    .args = "[--dry-run] [CONF.yaml] [key=value ...]",
    .help = "train a model from a configuration",
    .more =
        "The keys are listed in docs/train.md; words on the command line win over the file. Ctrl-C finishes the step, "
        "saves and says "
        "how to go on; a second one ends at once. SIGTERM, SIGHUP, SIGQUIT and a closed pipe (SIGPIPE) save as well.\n"
        "Exit status: 0 all steps done; 4 stopped by a signal and saved, to be resumed; 5 done or stopped, but rows or "
        "events could not be "
        "written down (run.json counts them); 1 failed.",
    .example = "xlane train examples/hybrid.yaml\nxlane train data.train=book.txt model.pattern='A*4' train.steps=500",
    .opts = opts,
    .min = 0,
    .max = -1,
    .run = train,
};

static xl_error *resume(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_config c;
    char *dir;
    XL_DO(xl_run_find(cli->arena, argv[0], &dir));
    XL_DO(xl_cli_run_config(cli, dir, argv + 1, argc - 1, &c));
    XL_DO(launch(cli->arena, &c));
    xl_loop_result r;
    XL_DO(xl_train_loop(cli->arena, &c,
                        &(xl_loop_opts){ .dir = dir, .quiet = opt.quiet, .from_scratch = opt.from_scratch }, &r));
    leave_receipt(cli->arena, &c, &r, "resume", argc, argv);
    XL_DO(result(cli, &r));
    err = judged_loss(cli, &c, &r);
out:
    return err;
}

static const xl_opt resume_opts[] = {
    { "profile", XL_OPT_STR, &opt.profile, "NAME", "launch policy, applied before the device is opened" },
    { "device", XL_OPT_STR, &opt.device, "PLUGIN", "cpu, cuda, tpu or the path of a plugin (that of the run)" },
    { "from-scratch", XL_OPT_FLAG, &opt.from_scratch, NULL,
      "begin at step 0 where no checkpoint of the run can be read (otherwise an error)" },
    { "quiet", XL_OPT_FLAG, &opt.quiet, NULL, "no progress line" },
    { "v", XL_OPT_FLAG, &opt.verbose, NULL,
      "the runtime's own log as well: XLA's INFO lines (TF_CPP_MIN_LOG_LEVEL=0); -v" },
    { 0 }
};
const xl_verb xl_verb_resume = {
    .name = "resume",
    .args = "RUN [key=value ...]",
    .help = "go on with a training run from its newest checkpoint",
    .more = "RUN is the folder of a run, its name under ./runs, or `last`. The losses are those of a run that was "
            "never interrupted, bit for bit.\n"
            "Every tensor is compared with the digest it was written with; a damaged checkpoint is named and the one "
            "before it taken.\n"
            "Exit status as of `xlane train`: 4 stopped by a signal and saved.",
    .example = "xlane resume last\n"
               "xlane resume last train.steps=1000",
    .opts = resume_opts,
    .min = 1,
    .max = -1,
    .run = resume,
};
