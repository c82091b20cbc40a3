/* xlane train: a model from a configuration. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/ranks.h"
#include "base/word.h"
#include "cli/gang.h"
#include "cli/launch.h"
#include "lane/cache.h"
#include "lane/profile.h"
#include "lane/receipt.h"
#include "lane/retry.h"
#include "train/calibrate.h"
#include "train/loop.h"

static struct {
    bool dry_run, quiet, fit, from_scratch, verbose;
    const char *print, *device, *profile, *runs;
    int64_t n, restarts;
} opt = { .n = 1 };
#define RANKS                                                                                                          \
    { "n", XL_OPT_INT, &opt.n, "N",                                                                                    \
      "train as N ranks on this host (-n 4), each with its own XLANE_CPU_DEVICES (1); without a mesh they share the "  \
      "batch" },                                                                                                       \
    {                                                                                                                  \
        "restarts", XL_OPT_COUNT, &opt.restarts, "N",                                                                  \
            "with -n: start all ranks again from the newest checkpoint, at most N times, where one failed and that "   \
            "can help "                                                                                                \
            "(0)"                                                                                                      \
    }
static const xl_opt opts[] = {
    RANKS,
    { "dry-run", XL_OPT_FLAG, &opt.dry_run, NULL,
      "print what the run would be: parameters, work, memory, buckets, programs; no device is opened" },
    { "print", XL_OPT_STR, &opt.print, "WHAT", "print the program instead of running it: loss, step or eval" },
    { "device", XL_OPT_PLUGIN, &opt.device, "PLUGIN",
      "cpu, cuda, tpu or the path of a plugin (the best on this host)" },
    { "profile", XL_OPT_PROFILE, &opt.profile, "NAME",
      "launch policy, applied before the device is opened: `xlane profile list`" },
    { "fit", XL_OPT_FLAG, &opt.fit, NULL,
      "use the largest batch up to data.batch that fits, if needed with model.remat or micro-batches (model.micro); "
      "known good configurations first, known bad ones never" },
    { "runs", XL_OPT_STR, &opt.runs, "DIR", "where the run's folder is made (runs; the key `runs` of a config)" },
    { "quiet", XL_OPT_FLAG, &opt.quiet, NULL, "no progress line" },
    { "v", XL_OPT_FLAG, &opt.verbose, NULL,
      "also show the runtime's own log, with XLA's INFO lines (TF_CPP_MIN_LOG_LEVEL=0)" },
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

/* What it exits with, which its receipt says too. */
static int status_of(const xl_loop_result *r)
{
    return lost(r)                         ? XL_EXIT_FAILED
           : r->unwritten                  ? XL_EXIT_INCOMPLETE
           : r->stopped && !r->preempted   ? XL_EXIT_INTERRUPTED
                                           : XL_EXIT_DONE;
}

static xl_error *judged_loss(const xl_cli *cli, const xl_config *c, const xl_loop_result *r)
{
    if (!lost(r))
        return NULL;
    const char *back =
        r->lost_from > 1
            ? xl_strf(cli->arena, "start again, or from a checkpoint before step %lld, with", (long long)r->lost_from).p
            : "start again with";
    return XL_ERR(RANGE,
                  "loss or gradient was not finite from step %lld to the last, %lld: %lld of %lld steps updated "
                  "nothing; %s a lower rate (optimizer.lr is %g), optimizer.clip=1 "
                  "or a longer optimizer.warmup%s",
                  (long long)r->lost_from, (long long)r->step, (long long)r->left_out, (long long)r->done, back,
                  c->opt.lr,
                  getenv("XLANE_CAPTURE") ? "" /* the guard says what it captured */
                                          : "; `xlane run --capture=nonfinite -- xlane train ... cache=none`, then "
                                            "`xlane nan last`, names the op that made the first one");
}

static xl_error *result(const xl_cli *cli, const xl_loop_result *r)
{
    xl_buf b = { 0 };
    xl_cli_exit(cli, status_of(r));
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
        xl_json_put_bool(&j, "preempted", r->preempted);
        xl_json_put_int(&j, "lost", (int64_t)r->unwritten);
        xl_json_end(&j);
    } else if (r->step == r->from && !r->stopped) {
        xl_buf_printf(
            &b, "%s: all its steps were done before, at step %lld; to go further: xlane resume %s train.steps=%lld",
            r->dir, (long long)r->step, xl_word_of(cli->arena, r->dir), (long long)(2 * r->step));
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
    int status = status_of(r);
    const char *yet = status == XL_EXIT_INTERRUPTED  ? "stopped by a signal and saved"
                      : status == XL_EXIT_INCOMPLETE ? "not everything could be recorded"
                                                     : NULL;
    xl_error *err = xl_receipt_write(a,
                                     &(xl_receipt_facts){ .kind = "train",
                                                          .dir = r->dir,
                                                          .argc = argc + 2,
                                                          .argv = command,
                                                          .plugin = plugin.path,
                                                          .cache = r->cache,
                                                          .devices = xl_strf(a, "yes: %s", r->device).p,
                                                          .executed = r->step - r->from,
                                                          .status = status,
                                                          .yet = yet },
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

/* ---- several ranks ---- */
#define RUN_FOLDER "XLANE_TRAIN_RUN" /* tells a rank of ours the folder that was made for it */

static xl_error *misused(const xl_cli *cli)
{
    xl_ranks seen = xl_ranks_seen();
    if (opt.n < 1 || opt.n > 4096)
        return xl_cli_misuse(cli, "-n is the number of ranks, from 1 to 4096, not %lld", (long long)opt.n);
    if (opt.n > 1 && seen.n > 1 && !getenv(RUN_FOLDER))
        return xl_cli_misuse(cli, "-n starts ranks, and %s has started %lld already (%s): leave -n out, and they join",
                             seen.launcher, (long long)seen.n, seen.variable);
    if (opt.restarts && opt.n == 1)
        return xl_cli_misuse(cli, "--restarts starts all ranks of -n again; a process alone goes on with xlane resume");
    if (opt.fit && (opt.n > 1 || seen.n > 1))
        return xl_cli_misuse(cli,
                             "--fit tries batches on one process; find one there, then train with it as data.batch");
    return NULL;
}

/* The command that this process was started with. */
static xl_error *own_command(xl_arena *a, char ***out)
{
    xl_error *err = NULL;
    xl_str text;
    size_t n = 0, cap = 0;
    char *exe = xl_arena_alloc(a, 4096), **argv = NULL;
    ssize_t k = readlink("/proc/self/exe", exe, 4095);
    XL_DO(xl_file_read(a, "/proc/self/cmdline", &text));
    exe[k > 0 ? k : 0] = 0;
    while (text.n) {
        char *word = xl_str_c(a, xl_str_cut(&text, 0));
        XL_PUSH(a, argv, n, cap, word);
    }
    XL_PUSH(a, argv, n, cap, NULL);
    if (k > 0)
        argv[0] = exe;
    *out = argv;
out:
    return err;
}

static void keep_words(void *ctx, const char *p, size_t n) { xl_tail_keep(ctx, p, n); }

/* Starts the ranks, and starts them again from the newest checkpoint where that can help. */
static xl_error *supervise(const xl_cli *cli, const xl_config *c, const char *given)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_run *run = NULL;
    xl_buf words = { 0 }, texts = { 0 };
    xl_restarts again = { 0 };
    xl_tail t = { xl_arena_alloc(a, XL_TAIL), 0 };
    xl_gang_rank *r = xl_new(a, xl_gang_rank, (size_t)opt.n);
    xl_gang g = { .n = (int)opt.n, .keep = keep_words, .ctx = &t, .grace = 5, .bare = true };
    xl_data *data = NULL;
    char *dir = (char *)(uintptr_t)given;
    xl_gang_end ended = { .first = -1 };
    XL_DO(own_command(a, &g.argv));
    XL_DO(xl_data_open(c, false, &data)); /* what is wrong with it is said once */
    xl_data_close(data);
    if (!dir)
        XL_DO(xl_run_make(a, c->runs, c->name, &dir));
    XL_DO(xl_run_open(dir, &run));
    setenv(RUN_FOLDER, dir, 1);
    for (;;) {
        xl_event e;
        char *path;
        int64_t at = 0;
        const char *then;
        t.n = words.n = texts.n = 0;
        xl_event_begin(run, &e, "attempt");
        xl_json_put_int(&e.j, "number", again.made + 1);
        xl_json_put_int(&e.j, "ranks", opt.n);
        xl_event_end(run, &e);
        XL_DO(xl_gang_run(&g, r, &ended));
        xl_job_sweep(dir);
        xl_gang_tell(a, run, &g, r, &ended, &words);
        int code = WIFEXITED(ended.status) ? WEXITSTATUS(ended.status) : 128 + WTERMSIG(ended.status);
        xl_cli_exit(cli, code);
        if (!code || code == XL_EXIT_INTERRUPTED || code == XL_EXIT_INCOMPLETE || !opt.restarts || ended.asked)
            break;
        xl_phase phase = xl_run_phase(a, dir, &texts);
        xl_buf_add(&texts, t.p, t.n);
        xl_buf_str(&texts, xl_buf_view(&words));
        xl_failure f = xl_retry_classify(0, xl_buf_view(&texts), phase);
        xl_error_free(xl_ckpt_newest(a, dir, &path, &at, NULL));
        bool once_more = xl_restart(&again, opt.restarts, &f, at, &then);
        xl_restart_tell(run, &again, &f, at, then);
        if (!once_more)
            break;
    }
out:
    xl_buf_fini(&words);
    xl_buf_fini(&texts);
    xl_run_close(run);
    return err;
}

/* Joins the ranks that a launcher has started, this one among them: the folder they share, and their store. *job is
 * NULL for a process by itself; *link is to be removed at the end. */
static xl_error *join(const xl_cli *cli, const xl_config *c, char **dir, char **link, xl_job **job)
{
    xl_error *err = NULL;
    const char *made = getenv(RUN_FOLDER), *name = xl_job_name(cli->arena);
    const char *alone = getenv("XLANE_ALONE");
    *job = NULL;
    *link = NULL;
    if (xl_ranks_seen().n < 2 || (alone && !strcmp(alone, "1")))
        return NULL;
    if (made && *made) {
        *dir = xl_str_c(cli->arena, xl_str_of(made));
    } else if (!*dir && *name) {
        XL_DO(xl_error_next(xl_dir_make(c->runs), "--runs=DIR names another folder"));
        XL_DO(xl_job_folder(cli->arena, c->runs, c->name, name, dir, link));
    }
    err = xl_job_open(*dir ? *dir : c->runs, job);
out:
    return err;
}

static void leave(xl_job *job, const char *link, bool whole)
{
    if (link && !xl_job_me(job))
        unlink(link);
    xl_job_close(job, whole);
}

/* As `xlane run` says it: without a folder for executables every start compiles again. */
static void tell_cache(xl_arena *a, const xl_config *c)
{
    const char *named = getenv("XLANE_CACHE"), *dir = xl_home_cache(a);
    xl_cache *opened = NULL;
    xl_error *err = NULL;
    if (c->cache || (named && *named))                     /* what is wrong with that one is an error, or it is off */
        return;
    err = dir ? xl_cache_open(dir, NULL, &opened) : XL_ERR(NOT_FOUND, "HOME is not set");
    if (err)
        fprintf(stderr, "xlane: no cache of executables: %s; cache=DIR names a folder for it\n", xl_error_message(err));
    xl_error_free(err);
    xl_cache_close(opened);
}

static xl_error *train(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_job *job = NULL;
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
    if (opt.print && strcmp(opt.print, "loss") && strcmp(opt.print, "step") && strcmp(opt.print, "eval"))
        return xl_cli_misuse(cli, "--print is loss, step or eval, not %s", opt.print);
    if (opt.print && cli->json)
        return xl_cli_misuse(cli,
                             "--print writes the program as text, not JSON; `xlane print --json FILE` describes one");
    XL_DO(misused(cli));
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
    if (opt.n > 1 && !getenv(RUN_FOLDER))
        return supervise(cli, &c, NULL);
    xl_loop_result r;
    char *dir = NULL, *link;
    XL_DO(join(cli, &c, &dir, &link, &job));
    if (!xl_job_me(job))
        tell_cache(cli->arena, &c);
    err =
        xl_train_loop(cli->arena, &c, &(xl_loop_opts){ .quiet = opt.quiet, .dir = dir, .fresh = dir, .job = job }, &r);
    bool leads = !xl_job_me(job);
    leave(job, link, !err);
    XL_DO(judged(err));
    if (leads) {
        leave_receipt(cli->arena, &c, &r, "train", argc, argv);
        XL_DO(result(cli, &r));
    }
    err = judged_loss(cli, &c, &r);
out:
    return err;
}

XL_VERB(train) = {
    .name = "train",
    .args = "[--dry-run] [CONF.yaml] [key=value ...]",
    .help = "train a model from a configuration",
    .more =
        "docs/train.md lists the keys; those on the command line override the file. Ctrl-C finishes the step, saves, "
        "and prints\n"
        "how to continue; a second Ctrl-C ends at once. SIGTERM, SIGHUP, SIGQUIT and SIGPIPE save as well.\n"
        "Exit status: 0 all steps done; 4 stopped by a signal and saved, to be resumed; 5 done or stopped, but some "
        "rows or\n"
        "events could not be written (run.json counts them); 1 failed.\n"
        "With -n, or under mpirun, srun or torchrun, the processes are ranks of one run over one mesh "
        "(docs/scale.md). SIGTERM\n"
        "to one of them is a preemption: all save the same step, print \"preempted\" and exit with 0.",
    .example = "xlane train examples/hybrid.yaml\nxlane train data.train=book.txt model.pattern='A*4' train.steps=500\n"
               "xlane train -n 4 --restarts 3 examples/hybrid.yaml",
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
    XL_DO(xl_run_find_trained(cli->arena, argv[0], &dir));
    XL_DO(xl_cli_run_config(cli, dir, argv + 1, argc - 1, &c));
    XL_DO(misused(cli));
    XL_DO(launch(cli->arena, &c));
    if (opt.n > 1 && !getenv(RUN_FOLDER))
        return supervise(cli, &c, dir);
    xl_loop_result r;
    char *link;
    xl_job *job;
    XL_DO(join(cli, &c, &dir, &link, &job));
    if (!xl_job_me(job))
        tell_cache(cli->arena, &c);
    err = xl_train_loop(cli->arena, &c,
                        &(xl_loop_opts){ .dir = dir, .quiet = opt.quiet, .from_scratch = opt.from_scratch, .job = job },
                        &r);
    bool leads = !xl_job_me(job);
    leave(job, link, !err);
    if (err)
        goto out;
    if (leads) {
        leave_receipt(cli->arena, &c, &r, "resume", argc, argv);
        XL_DO(result(cli, &r));
    }
    err = judged_loss(cli, &c, &r);
out:
    return err;
}

static const xl_opt resume_opts[] = {
    RANKS,
    { "profile", XL_OPT_PROFILE, &opt.profile, "NAME", "launch policy, applied before the device is opened" },
    { "device", XL_OPT_PLUGIN, &opt.device, "PLUGIN", "cpu, cuda, tpu or the path of a plugin (that of the run)" },
    { "from-scratch", XL_OPT_FLAG, &opt.from_scratch, NULL,
      "start at step 0 if no checkpoint of the run can be read (otherwise an error)" },
    { "quiet", XL_OPT_FLAG, &opt.quiet, NULL, "no progress line" },
    { "v", XL_OPT_FLAG, &opt.verbose, NULL,
      "also show the runtime's own log, with XLA's INFO lines (TF_CPP_MIN_LOG_LEVEL=0)" },
    { 0 }
};
XL_VERB(resume) = {
    .name = "resume",
    .args = "RUN [key=value ...]",
    .help = "continue a training run from its newest checkpoint",
    .more =
        "RUN is the folder of a run, its name under ./runs, or `last`. The losses are bit for bit those of an "
        "uninterrupted run.\n"
        "The digest of every tensor is checked; a damaged checkpoint is named and the previous one is used. The "
        "number of ranks\n"
        "(-n) and the mesh may differ from those that wrote the checkpoint.\n"
        "Exit status as for `xlane train`: 4 stopped by a signal and saved; ranks that were preempted: 0.",
    .example = "xlane resume last\n"
               "xlane resume last train.steps=1000",
    .opts = resume_opts,
    .min = 1,
    .max = -1,
    .run = resume,
};
