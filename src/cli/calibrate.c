/* xlane calibrate: predicted, compiled and observed memory of a training step. */
#include <math.h>

#include <stdio.h>

#include "base/file.h"
#include "base/time.h"
#include "cli/launch.h"
#include "ir/read.h"
#include "lane/contract.h"
#include "lane/retry.h"
#include "lane/run.h"
#include "train/calibrate.h"

static struct { const char *device; } opt;
static const xl_opt opts[] = {
    { "device", XL_OPT_PLUGIN, &opt.device, "PLUGIN",
      "cpu, cuda, tpu or the path of a plugin (the config's, else the best on this host)" },
    { 0 },
};

static void put_row(xl_buf *b, const char *what, int64_t v, const char *note)
{
    char size[32];
    xl_buf_printf(b, "%-11s %12s   %s\n", what, v >= 0 ? xl_size_words((double)v, size) : "not recorded", note);
}

/* How it was launched, as far as run.json says. */
static xl_catalog_launch launched(xl_arena *a, const char *dir, double *began)
{
    xl_run_info info = xl_run_about(a, dir);
    const xl_node *command = xl_node_get(info.json, "command"), *folder = xl_node_get(info.json, "folder"),
                  *flags = xl_node_get(info.json, "flags_at_load"), *at = xl_node_get(info.json, "began");
    xl_catalog_launch l = { .folder = folder ? xl_str_c(a, folder->s) : "", .flags = flags ? xl_str_c(a, flags->s) : "",
                            .profile = xl_str_c(a, info.profile) };
    char **argv = xl_new(a, char *, command ? command->n + 1 : 1);
    for (size_t i = 0; command && i < command->n; i++)
        argv[l.argc++] = xl_str_c(a, command->kid[i]->s);
    l.argv = argv;
    *began = at ? xl_time_read(xl_str_c(a, at->s)) : 0;
    return l;
}

/* Of an execution that found no room for what it asked for, what it was told: that is no peak, and does not fit. Empty:
 * there was none. */
static xl_str refused(xl_arena *a, const char *dir)
{
    xl_node **e = NULL;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        xl_str text = xl_node_text(e[i], "error");
        if (xl_node_is(e[i], "event", "execute") && text.n &&
            xl_retry_classify(0, text, XL_PHASE_RUN).verdict == XL_RETRY_SMALLER)
            return text;
    }
    return (xl_str){ "", 0 };
}

/* A guarded run of somebody else's program: what was recorded of its step, nothing runs again. */
static xl_error *of_run(const xl_cli *cli, const char *what)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_catalog_entry e;
    xl_module *m = NULL;
    xl_str code;
    xl_prediction p;
    xl_buf b = { 0 };
    char *dir;
    XL_DO(xl_run_find(a, what, &dir));
    double began;
    xl_catalog_launch how = launched(a, dir, &began);
    xl_run_log recorded;
    XL_DO(xl_run_read(a, dir, &recorded));
    if (!xl_catalog_of_run(a, dir, 0, &how, &e)) {
        const char *other = xl_run_newest(a, dir, XL_RUN_PROGRAMS);
        err = xl_run_loaded(a, dir)
                  ? XL_ERR(NOT_FOUND, "%s recorded no program: the frontend's own cache answered, which has none to "
                                      "record; run it once without that cache (" XL_FRONTEND_CACHE_OFF ")",
                           dir)
                  : XL_ERR(NOT_FOUND,
                           "%s recorded no compile, so there is nothing to calibrate: run it under `xlane run -- CMD` "
                           "with a plugin that the guard can attach to",
                           dir);
        if (other)
            err = xl_error_next(err, "the newest run here that has some is %s", other);
        goto out;
    }
    e.when = began;
    const xl_node *device = xl_node_get(xl_run_about(a, dir).json, "device"); /* of `xlane train` */
    if (device && device->s.n)
        e.sig.hardware = device->s;
    err = xl_recorded_load(a, dir, xl_str_c(a, e.sig.code), &code);
    if (!err)
        err = xl_read(code, NULL, &m);
    if (!err)
        err = xl_predict(m, XL_RULE_FUSED, &p);
    if (!err)
        e.predicted = p.total;
    xl_error_free(err);
    err = NULL;
    xl_str name = e.sig.model;                             /* "jit_step of python train.py" */
    name = xl_str_cut(&name, ' ');
    /* What the device was seen to hold counts most, then the compiler's figure, then ours. */
    xl_str why = refused(a, dir);
    bool no = why.n > 0;
    int64_t need = e.observed >= 0 ? e.observed : e.compiled >= 0 ? e.compiled : e.predicted;
    const char *verdict = no ? "asked for, and refused" : e.observed >= 0 ? "observed" : "not observed";
    bool fits = !no && need <= e.limit;
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "verdict", verdict);
        if (no || (need >= 0 && e.limit > 0))
            xl_json_put_bool(&j, "fits", fits);
        if (no)
            xl_json_put_str(&j, "refused", why);
        xl_json_key(&j, "entry");
        xl_catalog_json(&j, &e);
        xl_json_end(&j);
    } else {
        char took[32], of[32];
        if (no)
            xl_buf_printf(&b, "does not fit: asked for, and refused: %.*s; %.*s of run %s\n", XL_FMT(why), XL_FMT(name),
                          dir);
        else if (need >= 0 && e.limit > 0)
            xl_buf_printf(&b, "%s: %s of %s (%s); %.*s of run %s\n", fits ? "fits" : "does not fit",
                          xl_size_words((double)need, took), xl_size_words((double)e.limit, of),
                          verdict, XL_FMT(name), dir);
        else
            xl_buf_printf(&b, "%s: %.*s of run %s; the device names no limit\n", verdict, XL_FMT(name), dir);
        xl_buf_printf(&b, "%-11s %.*s\n", "device", XL_FMT(e.sig.hardware));
        put_row(&b, "predicted", e.predicted,
                e.predicted >= 0 ? "from the program alone: what is alive at once, if elementwise ops are fused"
                                 : "the program was not recorded");
        put_row(&b, "compiled", e.compiled,
                e.compiled >= 0 ? "the compiler's own figure" : "the plugin gives no figure");
        put_row(&b, "observed", e.observed,
                no                ? "peak of the physical device; more was asked for, and refused"
                : e.observed >= 0 ? "peak of the physical device over the whole run"
                                : "not recorded: no step was executed, or the device gives no figure");
        put_row(&b, "limit", e.limit, "of the device");
    }
    XL_DO(xl_cli_put(&b));
    if (e.observed < 0 || no || (e.limit > 0 && need > e.limit))
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_module_free(m);
    xl_buf_fini(&b);
    return err;
}

static bool is_run(xl_arena *a, const char *word)
{
    xl_file_info info;
    char *dir;
    if (!strcmp(word, "last"))                             /* where there is none, that is what is wrong */
        return true;
    if (xl_config_is_word(word) || xl_str_ends(xl_str_of(word), XL_STR(".yaml")) ||
        xl_str_ends(xl_str_of(word), XL_STR(".yml")) || (xl_file_stat(word, &info) && !info.dir))
        return false;
    xl_error *err = xl_run_find(a, word, &dir);
    xl_error_free(err);
    return !err;
}

static xl_error *calibrate(const xl_cli *cli, int argc, char **argv)
{
    if (argc == 1 && is_run(cli->arena, argv[0]))
        return of_run(cli, argv[0]);
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_config c;
    xl_calibration k;
    xl_buf b = { 0 };
    const char *file = !xl_config_is_word(argv[0]) ? argv[0] : NULL;
    int skip = file ? 1 : 0;
    for (int i = skip; i < argc; i++)
        if (!xl_config_is_word(argv[i]))
            return xl_cli_misuse(cli, "\"%s\" is not of the form key=value; a configuration file comes before those",
                                 argv[i]);
    XL_DO(xl_cli_config(cli, file, argv + skip, argc - skip, &c));
    if (opt.device)
        c.device = opt.device;
    XL_DO(xl_calibrate(a, &c, &k));
    const xl_catalog_entry *e = &k.entry;
    bool bad = e->outcome == XL_OUTCOME_FAILED;
    const char *verdict = bad ? "does not fit" : isnan(k.off) ? "not observed" : k.mismatch ? "mismatch" : "calibrated";
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "verdict", verdict);
        xl_json_put_str(&j, "device", k.device_name);
        xl_json_put_text(&j, "rule", xl_predict_word(k.rule));
        xl_json_put_bool(&j, "rule_measured", k.measured);
        xl_json_put_int(&j, "alone", k.alone);
        xl_json_put_int(&j, "small_batch", k.small);
        xl_json_put_num(&j, "scale", k.scale.temporary);
        xl_json_put_int(&j, "scale_base", k.scale.base);
        xl_json_put_num(&j, "factor", k.factor);
        xl_json_put_num(&j, "off", k.off);
        xl_json_put_int(&j, "host_peak", k.host_peak);
        xl_json_put_int(&j, "host_free", k.host_free);
        xl_json_put_str(&j, "moved", k.moved);
        xl_json_key(&j, "before");
        if (k.before)
            xl_catalog_json(&j, k.before);
        else
            xl_json_null(&j);
        xl_json_key(&j, "entry");
        xl_catalog_json(&j, e);
        xl_json_end(&j);
    } else {
        xl_buf_printf(&b, "%s: %s, batch %lld\n", verdict, c.model.pattern, (long long)c.data.batch);
        xl_buf_printf(&b, "%-11s %.*s\n", "device", XL_FMT(k.device_name));
        put_row(
            &b, "predicted", e->predicted,
            xl_strf(
                a, "liveness of the program (%s rule%s: %.2f MiB)%s%s", xl_predict_word(k.rule),
                k.measured ? ", measured" : "", (double)k.alone / (1 << 20),
                k.small
                    ? xl_strf(
                          a,
                          ", temporaries times %.3f%s as in this model's steps of batch %lld and less, compiled first",
                          k.scale.temporary,
                          k.scale.base ? xl_strf(a, " and %+.2f MiB", (double)k.scale.base / (1 << 20)).p : "",
                          (long long)k.small)
                          .p
                    : "",
                k.factor != 1 ? xl_strf(a, ", times %.3f as this model was observed before", k.factor).p : "")
                .p);
        put_row(&b, "compiled", e->compiled, "the compiler's own figure");
        put_row(&b, "observed", e->observed,
                e->observed >= 0 ? "peak of the physical device over two steps"
                : e->message.n   ? e->message.p
                                 : "the device gives no figure");
        put_row(&b, "limit", e->limit, "of the device");
        put_row(&b, "host", k.host_peak,
                xl_strf(a, "peak of this process; the machine has %.0f MiB free", (double)k.host_free / (1 << 20)).p);
        if (!isnan(k.off))
            xl_buf_printf(
                &b, "%-11s %+9.1f %%     prediction against observation; more than %.0f %% either way is a mismatch\n",
                "off", 100 * k.off, 100 * XL_CALIBRATE_OFF);
        if (bad)
            xl_buf_printf(&b, "%-11s %.*s: %.*s\n", "failed", XL_FMT(e->class), XL_FMT(e->message));
        if (k.before)
            xl_buf_printf(&b,
                          "%-11s %s%.*s\n"
                          "            was %.*s\n"
                          "            is  %.*s\n",
                          "stack", k.moved.n ? "changed, and moved " : "changed; no figure moved", XL_FMT(k.moved),
                          XL_FMT(k.before->sig.bundle), XL_FMT(e->sig.bundle));
        if (k.mismatch)
            xl_buf_puts(&b, "next        what was observed is kept: predictions of this model with other batches take "
                            "it into account; calibrate once more at the batch you want\n");
    }
    XL_DO(xl_cli_put(&b));
    if (bad || k.mismatch || (k.before && k.moved.n))
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_buf_fini(&b);
    return err;
}

XL_VERB(calibrate) = {
    .name = "calibrate",
    .args = "[CONF.yaml] [key=value ...] | RUN",
    .help = "predicted, compiled and observed memory of a training step",
    .more =
        "Predicts the memory of a step from its program (liveness analysis, scaled by compiling the step for one "
        "half and three\n"
        "quarters of the batch), compiles the step, runs it twice and reads the device's peak. All three figures go "
        "into the\n"
        "catalog. The exit status is 1 when the prediction is off by more than 10 %, or when a figure changed with "
        "the software\n"
        "stack. For a RUN (a JAX or PyTorch/XLA program under `xlane run`) it says whether its step fits and shows "
        "the recorded\n"
        "figures; nothing runs again, and the exit status is 1 only if none was observed or the step does not fit.",
    .example = "xlane calibrate conf.yaml\n"
               "xlane calibrate conf.yaml data.batch=32\n"
               "xlane calibrate last",
    .opts = opts,
    .min = 1,
    .max = -1,
    .run = calibrate,
};
