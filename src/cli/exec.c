/* xlane exec: a StableHLO program on its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/time.h"
#include "cli/launch.h"
#include "cli/program.h"
#include "ir/text/print.h"
#include "ir/scalar.h"
#include "lane/trial.h"
#include "pjrt/options.h"

static struct {
    const char *plugin, *outputs;
    xl_opt_list input;
    int64_t seed, times, show;
} opt = { .seed = 1, .times = 1, .show = 16 };

static const xl_opt opts[] = {
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH", "where to run it (the best device of this host)" },
    { "input", XL_OPT_REPEAT, &opt.input, "N=VALUE",
      "argument N: a number for all elements, or @FILE with its raw bytes; other arguments are random" },
    { "seed", XL_OPT_INT, &opt.seed, "NUMBER", "of the random inputs (1)" },
    { "times", XL_OPT_SOME, &opt.times, "NUMBER", "run it N times and print the time per run (1)" },
    { "show", XL_OPT_INT, &opt.show, "NUMBER", "elements printed of each output (16)" },
    { "outputs", XL_OPT_STR, &opt.outputs, "DIR", "write each output's raw bytes to DIR/out0.bin, …" },
    { 0 },
};

static xl_error *given(const xl_cli *cli, uint32_t n, const char **value)
{
    for (uint32_t i = 0; i < n; i++)
        value[i] = NULL;
    for (size_t i = 0; i < opt.input.n; i++) {
        xl_str rest = xl_str_of(opt.input.p[i]), key = xl_str_cut(&rest, '=');
        int64_t at;
        if (!xl_str_i64(key, &at) || !rest.n)
            return xl_cli_misuse(cli, "--input=%s: it is N=VALUE or N=@FILE", opt.input.p[i]);
        if (at < 0 || at >= n)
            return xl_cli_misuse(cli, "--input=%s: the program has arguments 0 to %lld", opt.input.p[i],
                                 (long long)n - 1);
        double number;
        if (*rest.p != '@' && !xl_str_f64(rest, &number))
            return xl_cli_misuse(cli, "--input=%s: '%s' is no number; a file is @FILE", opt.input.p[i], rest.p);
        value[at] = rest.p;
    }
    return NULL;
}

static xl_error *input(const xl_cli *cli, const xl_device *d, const xl_type *t, uint32_t i, const char *value,
                       uint64_t *state, xl_buffer **out)
{
    xl_error *err = NULL;
    xl_elem elem = XL_ELEM_INVALID;
    size_t bytes = 0;
    char *data = NULL;
    double v = 0;
    XL_DO(xl_trial_type(t, i, &elem, &bytes));
    if (value && *value == '@') {
        xl_str file;
        XL_TRY(xl_file_read(cli->arena, value + 1, &file), "argument %u", i);
        if (file.n != bytes) {
            err = XL_ERR(INVALID, "argument %u: %s has %zu bytes, %s is %zu", i, value + 1, file.n,
                         xl_type_str(cli->arena, t), bytes);
            goto out;
        }
        err = xl_buffer_from_host(d, elem, xl_type_dims(t), file.p, NULL, out);
        goto out;
    }
    if (value)
        (void)xl_str_f64(xl_str_of(value), &v);            /* a number: it was looked at first */
    data = malloc(bytes ? bytes : 1);
    if (!data) {
        err = XL_ERR(EXHAUSTED, "no memory for argument %u, %zu bytes", i, bytes);
        goto out;
    }
    xl_trial_fill(t, value ? &v : NULL, state, data, bytes);
    err = xl_buffer_from_host(d, elem, xl_type_dims(t), data, NULL, out);
out:
    free(data);
    return err;
}

/* An integer with all its digits. */
static void put_value(xl_buf *b, xl_dtype d, const char *p)
{
    int64_t v;
    bool whole = xl_dtype_class(d) == XL_CLASS_INT || xl_dtype_class(d) == XL_CLASS_UINT;
    if (whole && xl_dtype_bytes(d) == sizeof v) {
        memcpy(&v, p, sizeof v);
        xl_buf_printf(b, xl_dtype_class(d) == XL_CLASS_INT ? " %lld" : " %llu", (long long)v);
    } else {
        xl_buf_printf(b, whole ? " %.0f" : " %.9g", xl_scalar_get(d, p));
    }
}

/* JSON has no numbers for these: they are the words that the text has. */
static void json_value(xl_json *j, double v)
{
    if (isfinite(v))
        xl_json_num(j, v);
    else
        xl_json_text(j, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

static xl_error *output(const xl_cli *cli, xl_json *j, xl_buf *b, uint32_t i, const xl_buffer *buf)
{
    xl_error *err = NULL;
    xl_elem elem = XL_ELEM_INVALID;
    xl_dims dims = { 0 };
    size_t bytes = 0;
    char *data = NULL;
    XL_DO(xl_buffer_elem(buf, &elem));
    XL_DO(xl_buffer_dims(buf, &dims));
    if (!xl_elem_size(elem, dims, &bytes)) {
        err = XL_ERR(UNIMPLEMENTED, "output %u is of a type that has no bytes", i);
        goto out;
    }
    data = malloc(bytes ? bytes : 1);
    if (!data) {
        err = XL_ERR(EXHAUSTED, "no memory for output %u, %zu bytes", i, bytes);
        goto out;
    }
    XL_DO(xl_buffer_to_host(buf, data, bytes, NULL));
    if (opt.outputs) {
        XL_DO(xl_error_next(xl_dir_make(opt.outputs), "--outputs=DIR names another"));
        XL_DO(xl_file_write_shown(xl_path_join(cli->arena, opt.outputs, xl_strf(cli->arena, "out%u.bin", i).p),
                                  (xl_str){ data, bytes }));
    }
    xl_dtype d = xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(elem))));
    size_t each = xl_dtype_bytes(d), count = each ? bytes / each : 0,
           shown = opt.show < 0 || (size_t)opt.show > count ? count : (size_t)opt.show;
    if (j) {
        xl_json_map(j);
        xl_json_put_text(j, "dtype", xl_elem_text(elem));
        xl_json_key(j, "shape");
        xl_json_list(j);
        for (size_t k = 0; k < dims.n; k++)
            xl_json_int(j, dims.p[k]);
        xl_json_end(j);
        xl_json_key(j, "values");
        xl_json_list(j);
        for (size_t k = 0; k < shown; k++)
            json_value(j, xl_scalar_get(d, data + k * each));
        xl_json_end(j);
        xl_json_end(j);
        goto out;
    }
    xl_buf_printf(b, "out%u %s[", i, xl_elem_text(elem));
    for (size_t k = 0; k < dims.n; k++)
        xl_buf_printf(b, "%s%lld", k ? "," : "", (long long)dims.p[k]);
    xl_buf_puts(b, "]");
    for (size_t k = 0; k < shown; k++)
        put_value(b, d, data + k * each);
    xl_buf_puts(b, shown < count ? " …\n" : "\n");
out:
    free(data);
    return err;
}

typedef struct {
    const xl_func *f;
    const char **value;                                    /* per argument: what --in gave, or NULL */
    xl_buffer **in, **out;
    uint32_t nin;
    size_t nout;
    double best;                                           /* seconds */
} turns;

static xl_error *run_turn(const xl_cli *cli, xl_program *prog, const xl_device *d, turns *t)
{
    xl_error *err = NULL;
    uint64_t state = (uint64_t)opt.seed; /* donated arguments are gone: each turn has its own, all alike */
    for (uint32_t i = 0; i < t->nin; i++) {
        xl_buffer_free(t->in[i]);
        t->in[i] = NULL;
        XL_DO(input(cli, d, xl_value_type(t->f, t->f->body->arg[i]), i, t->value[i], &state, &t->in[i]));
    }
    for (size_t i = 0; i < t->nout; i++) {
        xl_buffer_free(t->out[i]);
        t->out[i] = NULL;
    }
    xl_fence *done = NULL;
    double start = xl_now();
    XL_DO(xl_program_execute(prog, &(xl_exec){ .ndevice = 1,
                                               .narg = t->nin,
                                               .arg = (xl_buffer *const *const *)&t->in,
                                               .out = &t->out,
                                               .done = &done }));
    if (done)
        err = xl_fence_await(done);
    xl_fence_free(done);
    double took = xl_now() - start;
    t->best = t->best < 0 || took < t->best ? took : t->best;
out:
    return err;
}

static xl_error *exec(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_plugin_choice choice;
    xl_plugin *p;
    xl_client *c = NULL;
    xl_program *prog = NULL;
    xl_module *m = NULL;
    xl_launch l = { 0 };
    xl_buf options = { 0 }, b = { 0 };
    turns t = { .best = -1 };
    XL_DO(xl_launch_find(cli, argv[0], argc - 1, argv + 1, NULL, &l));
    XL_DO(xl_cli_parse(l.name, l.code, &m));
    t.f = xl_module_entry(m);
    if (!t.f || !t.f->body) {
        err = XL_ERR(INVALID, "%s has no entry function (a public @main)", l.name);
        goto out;
    }
    t.nin = t.f->body->narg;
    t.value = xl_new(a, const char *, t.nin + 1);
    XL_DO(given(cli, t.nin, t.value));
    XL_DO(xl_plugin_find(a, &(xl_plugin_wish){ .named = opt.plugin }, &choice));
    XL_DO(xl_plugin_open(choice.path, &p));
    XL_TRY(xl_client_open(p, NULL, &c), "starting %s", choice.path);
    const xl_device *d = xl_client_local(c, 0);
    if (!d) {
        err = XL_ERR(UNAVAILABLE, "%s has no device for this process; `xlane probe` says why", choice.path);
        goto out;
    }
    if (l.partitions > 1) {
        err = XL_ERR(UNIMPLEMENTED, "%s is for %d devices; exec runs programs of one", l.name, l.partitions);
        goto out;
    }
    xl_options_build(&options, &(xl_options){ .replicas = 1, .partitions = 1 });
    double start = xl_now();
    XL_TRY(xl_program_compile(c, l.code, l.format, xl_buf_view(&options), &prog), "compiling %s", l.name);
    double compile = xl_now() - start;
    XL_DO(xl_executable_noutputs(xl_program_executable(prog), &t.nout));
    t.in = xl_new(a, xl_buffer *, t.nin + 1);
    t.out = xl_new(a, xl_buffer *, t.nout + 1);
    for (int64_t turn = 0; turn < opt.times; turn++)
        XL_TRY(run_turn(cli, prog, d, &t), "running %s", l.name);
    xl_json j = { .out = &b, .pretty = true };
    if (cli->json) {
        xl_json_map(&j);
        xl_json_put_text(&j, "plugin", choice.path);
        xl_json_put_str(&j, "device", d->text);
        xl_json_put_num(&j, "compile_seconds", compile);
        xl_json_put_num(&j, "run_seconds", t.best);
        xl_json_key(&j, "outputs");
        xl_json_list(&j);
    }
    for (size_t i = 0; i < t.nout; i++)
        XL_DO(output(cli, cli->json ? &j : NULL, &b, (uint32_t)i, t.out[i]));
    if (cli->json) {
        xl_json_end(&j);
        xl_json_end(&j);
    } else {
        fprintf(stderr, "xlane: %s on %.*s (%s): compiled in %.3f s, ran in %.6f s\n", l.name, XL_FMT(d->text),
                choice.why, compile, t.best);
    }
    err = xl_cli_put(&b);
out:
    for (uint32_t i = 0; t.in && i < t.nin; i++)
        xl_buffer_free(t.in[i]);
    for (size_t i = 0; t.out && i < t.nout; i++)
        xl_buffer_free(t.out[i]);
    xl_program_free(prog);
    xl_client_close(c);
    xl_module_free(m);
    xl_launch_fini(&l);
    xl_buf_fini(&options);
    xl_buf_fini(&b);
    return err;
}

XL_VERB(exec) = {
    .name = "exec",
    .args = "[--plugin=PATH] [--input=N=VALUE] FILE | RUN | CONF.yaml [key=value ...]",
    .help = "run a StableHLO program on its own and print its results",
    .more =
        "FILE is StableHLO text, MLIR bytecode, an HLO proto or one of a run's programs/*.zst. For a RUN, its "
        "largest program is\n"
        "taken; for a CONF.yaml, its training step. In --json, values that are not finite are the strings \"inf\", "
        "\"-inf\" and\n"
        "\"nan\".",
    .example = "xlane exec step.mlir --input=0=1 --input=1=@batch.bin",
    .opts = opts,
    .min = 1,
    .max = -1,
    .run = exec,
};
