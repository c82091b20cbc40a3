/* xlane reduce: a smaller program that behaves the same, for a bug report. Delta debugging over the ops of the program:
 * any subset of them is a program, whose arguments stand for what the others would have made. Every attempt is a child
 * process, since what is looked for may be a crash. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/proc.h"
#include "base/time.h"
#include "base/word.h"
#include "cli/capture.h"
#include "cli/launch.h"
#include "cli/program.h"
#include "ir/scalar.h"
#include "ir/text/print.h"
#include "lane/bundle.h"
#include "lane/cut.h"
#include "pass/pass.h"
#include "pjrt/options.h"

static struct { const char *keep, *plugin, *out; int64_t seed; double limit, tolerance; } opt = {
    .out = "reduced", .seed = 1, .limit = 300, .tolerance = 1e-3 };
static const xl_opt opts[] = {
    { "keep", XL_OPT_STR, &opt.keep, "WHAT",
      "what must stay: fails (compile or execution, or a crash), fails~TEXT (with these words), slow (half of the "
      "compile's CPU time), nan (an output has one), differs (from the embedded device)" },
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH", "where it happens (the plugin of the capture; cpu: embedded)" },
    { "out", XL_OPT_STR, &opt.out, "DIR", "the folder for the report (reduced)" },
    { "limit", XL_OPT_SECONDS, &opt.limit, "SECONDS", "of one attempt; one that takes longer fails (300)" },
    { "tolerance", XL_OPT_NUM, &opt.tolerance, "X",
      "of differs: a difference of more than X times the largest element of an output (0.001)" },
    { "seed", XL_OPT_INT, &opt.seed, "NUMBER", "of random inputs, where none are captured (1)" },
    { 0 },
};

typedef enum { FAILS, SLOW, NAN_OUT, DIFFERS } keeping;
enum { MISSED = 10, KEPT = 11, FAILED = 12 };              /* what a child exits with */

typedef struct {
    const xl_cli *cli;
    keeping keep;
    const char *text;                                      /* of fails~TEXT */
    const char *plugin;
    xl_module *m;
    xl_func *f;
    const xl_region *root;
    xl_str options;
    const xl_cap_part *in;                                 /* of the entry function; NULL: random */
    int signal;                                            /* of the whole program's failure */
    double seconds;                                        /* of its compile */
    uint32_t runs;
} work;

typedef struct {
    work *w;
    xl_str text;
    const xl_value *in;
    uint32_t nin;
    const char *save;                                      /* write the inputs there; NULL: do not */
} attempt;

static uint64_t mix(uint64_t *s)
{
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static xl_error *random_part(xl_arena *a, const xl_type *t, uint64_t *state, xl_cap_part *out)
{
    size_t size;
    xl_elem elem = xl_type_static(t) && !t->quant ? xl_elem_parse(xl_str_of(xl_dtypes[t->dtype].text))
                                                  : XL_ELEM_INVALID;
    if (elem == XL_ELEM_INVALID || !xl_elem_size(elem, xl_type_dims(t), &size))
        return XL_ERR(UNIMPLEMENTED, "an argument of type %s cannot be made up", xl_type_str(a, t));
    char *p = xl_arena_try(a, size + 1);
    if (!p)
        return XL_ERR(EXHAUSTED, "no memory for an argument");
    xl_dtype part = xl_dtype_part(t->dtype);
    size_t each = xl_dtype_bytes(part);
    xl_dclass cls = xl_dtype_class(part);
    for (size_t i = 0; each && i + each <= size; i += each) {
        uint64_t r = mix(state);
        xl_scalar_put(part,
                      cls == XL_CLASS_FLOAT  ? (double)(r >> 11) * 0x1p-52 - 1
                      : cls == XL_CLASS_PRED ? (double)(r & 1)
                                             : (double)(r & 7),
                      p + i);
    }
    *out = (xl_cap_part){ .elem = elem, .dims = xl_type_dims(t), .size = size, .bytes = p };
    return NULL;
}

/* What the arguments of the attempt stand for: captured, computed on the embedded device, or random. */
static xl_error *inputs(attempt *x, xl_arena *a, xl_cap_part *out)
{
    xl_error *err = NULL;
    work *w = x->w;
    uint64_t state = (uint64_t)opt.seed;
    bool values = w->keep == NAN_OUT || w->keep == DIFFERS, computed = false;
    uint32_t narg = w->f->body->narg;
    xl_play cpu = { 0 };
    xl_played g = { 0 };
    xl_buf text = { 0 }, options = { 0 };
    xl_cap_part *all = xl_new(a, xl_cap_part, narg + 1);
    for (uint32_t i = 0; i < narg; i++)
        if (w->in)
            all[i] = w->in[i];
        else
            XL_DO(random_part(a, xl_value_type(w->f, w->f->body->arg[i]), &state, &all[i]));
    for (uint32_t i = 0; i < x->nin; i++) {
        const xl_val *v = &w->f->val[x->in[i].id];
        if (!v->def && v->region == w->f->body)
            out[i] = all[v->index];
        else if (values)
            computed = true;
        else
            XL_DO(random_part(a, v->type, &state, &out[i]));
    }
    if (!computed)
        goto out;
    xl_cap_part *got = xl_new(a, xl_cap_part, x->nin + 1);
    XL_DO(xl_cut(w->f, x->in, x->nin, XL_CUT_VALUE, false, &text));
    xl_options_build(&options, &(xl_options){ .replicas = 1, .partitions = 1 });
    XL_DO(xl_play_open(a, "cpu", 1, &cpu));
    XL_DO(xl_play_compile(&cpu, a, xl_buf_view(&text), XL_FORMAT_MLIR, xl_buf_view(&options), &g));
    XL_DO(xl_play_run(&g, all, narg, NULL, 0, got, NULL));
    for (uint32_t i = 0; i < x->nin; i++)
        out[i] = got[i];
out:
    xl_played_free(&g);
    xl_play_close(&cpu);
    xl_buf_fini(&text);
    xl_buf_fini(&options);
    return err;
}

static double cpu_seconds(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static xl_error *judge(attempt *x, xl_arena *a, bool *kept, double *seconds)
{
    xl_error *err = NULL;
    work *w = x->w;
    xl_play p = { 0 }, cpu = { 0 };
    xl_played g = { 0 }, h = { 0 };
    xl_cap_part *in = xl_new(a, xl_cap_part, x->nin + 1);
    XL_DO(inputs(x, a, in));
    for (uint32_t i = 0; x->save && i < x->nin; i++)
        XL_DO(xl_file_write_shown(xl_path_join(a, x->save, xl_strf(a, "arg%u.bin", i).p),
                                  (xl_str){ in[i].bytes, in[i].size }));
    XL_DO(xl_play_open(a, w->plugin, 1, &p));
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    XL_TRY(xl_play_compile(&p, a, x->text, XL_FORMAT_MLIR, w->options, &g), "compiling");
    getrusage(RUSAGE_SELF, &after);
    *seconds = cpu_seconds(&after) - cpu_seconds(&before);
    if (w->keep == SLOW)
        goto out;
    xl_cap_part *got = xl_new(a, xl_cap_part, g.nout + 1), *want = xl_new(a, xl_cap_part, g.nout + 1);
    XL_TRY(xl_play_run(&g, in, x->nin, NULL, 0, got, NULL), "executing");
    if (w->keep == DIFFERS) {
        setenv("XLANE_CPU_PLAN", "plain", 1);
        XL_DO(xl_play_open(a, "cpu", 1, &cpu));
        XL_TRY(xl_play_compile(&cpu, a, x->text, XL_FORMAT_MLIR, w->options, &h), "compiling on the embedded device");
        XL_TRY(xl_play_run(&h, in, x->nin, NULL, 0, want, NULL), "executing on the embedded device");
    }
    for (size_t i = 0; i < g.nout; i++) {
        if (w->keep == NAN_OUT && xl_elem_is_float(got[i].elem))
            *kept = *kept || xl_finite_of(got[i].elem, got[i].bytes, got[i].size).nan > 0;
        if (w->keep == DIFFERS && got[i].size == want[i].size) {
            xl_difference d = xl_difference_of(got[i].elem, want[i].bytes, got[i].bytes, got[i].size);
            *kept = *kept || d.max_abs > opt.tolerance * d.scale;
        }
    }
out:
    return err;                                            /* the process ends: what it opened goes with it */
}

static int child(void *arg, int fd)
{
    attempt *x = arg;
    xl_arena a = { 0 };
    bool kept = false;
    double seconds = 0;
    xl_error *err = judge(x, &a, &kept, &seconds);
    char line[64];
    if (err) {
        xl_proc_write(fd, xl_error_message(err), strlen(xl_error_message(err)));
        return FAILED;
    }
    snprintf(line, sizeof line, "%.6f", seconds);
    xl_proc_write(fd, line, strlen(line));
    return kept ? KEPT : MISSED;
}

/* One attempt in a child. *words: how it failed, where it did. */
static xl_error *try_it(work *w, attempt *x, bool *kept, xl_proc_result *r, xl_str *words)
{
    xl_error *err = NULL;
    xl_arena *a = w->cli->arena;
    *kept = false;
    w->runs++;
    XL_DO(xl_proc_call(a, child, x, (int)(opt.limit * 1000), r));
    bool failed = r->signal || r->timed_out || (r->status != MISSED && r->status != KEPT);
    *words = !failed                ? (xl_str){ "", 0 }
             : r->status == FAILED ? r->out
                                   : xl_strf(a, "%.*s; its last words: %.*s", XL_FMT(xl_proc_words(a, r)),
                                             XL_FMT(r->err));
    double seconds = 0;
    if (!failed)
        (void)xl_str_f64(r->out, &seconds);
    switch (w->keep) {
    case FAILS:
        *kept = failed && (w->text ? memmem(words->p, words->n, w->text, strlen(w->text)) != NULL
                                   : r->signal == w->signal);
        break;
    case SLOW: *kept = !failed && seconds >= w->seconds / 2; break;
    default: *kept = r->status == KEPT; break;
    }
    if (!failed)
        r->seconds = seconds;
out:
    return err;
}

static xl_error *with_ops(work *w, const bool *keep, const char *save, bool *kept, xl_buf *program, xl_value **in,
                          uint32_t *nin)
{
    xl_error *err = NULL;
    xl_proc_result r;
    xl_str words;
    uint32_t nout;
    xl_buf text = { 0 };
    attempt x = { .w = w, .save = save };
    XL_DO(xl_pick(w->cli->arena, w->f, w->root, keep, in, nin, &nout, &text));
    x.in = *in;
    x.nin = *nin;
    x.text = xl_buf_view(&text);
    *kept = false;
    if (nout)
        XL_DO(try_it(w, &x, kept, &r, &words));
    if (program) {
        *program = text;
        text = (xl_buf){ 0 };
    }
out:
    xl_buf_fini(&text);
    return err;
}

/* Zeller's ddmin: first one part alone, then all but one part, in ever smaller parts. */
static xl_error *shrink(work *w, bool *keep)
{
    xl_error *err = NULL;
    xl_arena *a = w->cli->arena;
    uint32_t n = w->root->nop, left = 0;
    uint32_t *op = xl_new(a, uint32_t, n + 1);
    bool *try = xl_new(a, bool, n + 1);
    for (uint32_t i = 0; i < n; i++)
        if (keep[i])
            op[left++] = i;
    for (uint32_t parts = 2; left > 1;) {
        bool smaller = false;
        parts = parts > left ? left : parts;
        for (uint32_t round = 0; round < 2 && !smaller; round++)
            for (uint32_t k = 0; k < parts && !smaller; k++) {
                uint32_t low = (uint32_t)((uint64_t)left * k / parts),
                         high = (uint32_t)((uint64_t)left * (k + 1) / parts);
                if (round == 1 && parts == 2)
                    break;                                 /* the other half was tried alone */
                xl_value *in;
                uint32_t nin;
                memset(try, 0, n);
                for (uint32_t i = 0; i < left; i++)
                    try[op[i]] = (i >= low && i < high) == (round == 0);
                XL_DO(with_ops(w, try, NULL, &smaller, NULL, &in, &nin));
                if (!smaller)
                    continue;
                uint32_t now = 0;
                for (uint32_t i = 0; i < left; i++)
                    if (try[op[i]])
                        op[now++] = op[i];
                left = now;
                parts = round == 0 ? 2 : parts > 2 ? parts - 1 : 2;
                fprintf(stderr, "xlane: %u attempts: %u op%s left\n", w->runs, left, left == 1 ? "" : "s");
            }
        if (smaller)
            continue;
        if (parts >= left)
            break;
        parts *= 2;
    }
    memset(keep, 0, n);
    for (uint32_t i = 0; i < left; i++)
        keep[op[i]] = true;
out:
    return err;
}

/* The body of a kept loop or branch instead of the whole. */
static xl_error *hoist(work *w, bool **keep, bool *again)
{
    xl_error *err = NULL;
    *again = false;
    if (w->keep == NAN_OUT || w->keep == DIFFERS)
        return NULL;                                       /* its values are not known */
    for (uint32_t i = 0; i < w->root->nop && !*again; i++) {
        const xl_op *op = w->root->op[i];
        bool flow = op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE;
        for (uint32_t k = 0; (*keep)[i] && flow && k < op->nregion && !*again; k++) {
            const xl_region *outer = w->root;
            xl_value *in;
            uint32_t nin;
            w->root = op->region[k];
            bool *all = xl_new(w->cli->arena, bool, w->root->nop + 1);
            for (uint32_t x = 0; x + 1 < w->root->nop; x++)
                all[x] = true;
            XL_DO(with_ops(w, all, NULL, again, NULL, &in, &nin));
            if (*again)
                *keep = all;
            else
                w->root = outer;
        }
    }
out:
    return err;
}

static const char *numpy_type(xl_arena *a, xl_dtype d)
{
    const char *t = xl_dtypes[d].text;
    xl_dclass c = xl_dtype_class(d);
    if (d == XL_BF16)
        return "bfloat16";
    if (c == XL_CLASS_PRED)
        return "bool";
    if (c == XL_CLASS_INT || c == XL_CLASS_UINT)
        return xl_strf(a, "%s%d", *t == 'u' ? "uint" : "int", (int)xl_dtypes[d].bits).p;
    if (c == XL_CLASS_COMPLEX)
        return xl_dtype_bytes(d) == 8 ? "complex64" : "complex128";
    return d == XL_F16 || d == XL_F32 || d == XL_F64 ? xl_strf(a, "float%d", (int)xl_dtypes[d].bits).p
                                                     : xl_strf(a, "float8_%s", t + 2).p;
}

static xl_error *report(work *w, const xl_capture *c, const bool *keep, const char *command, bool *kept)
{
    xl_error *err = NULL;
    xl_arena *a = w->cli->arena;
    xl_buf program = { 0 }, py = { 0 }, b = { 0 };
    xl_value *in;
    uint32_t nin;
    if (xl_file_stat(xl_path_join(a, opt.out, "command.txt"), NULL))
        fprintf(stderr, "xlane: %s held an earlier report, whose files are replaced; --out=DIR names another folder\n",
                opt.out);
    XL_DO(xl_dir_make(opt.out));
    XL_DO(with_ops(w, keep, opt.out, kept, &program, &in, &nin));
    XL_DO(xl_file_write_shown(xl_path_join(a, opt.out, "program.mlir"), xl_buf_view(&program)));
    xl_buf_puts(&py, "\"\"\"Runs program.mlir with arg*.bin on JAX's first device.\"\"\"\n"
                     "import numpy as np, jax, jax.numpy as jnp\n"
                     "from jax._src.lib import xla_client\n"
                     "args = [");
    for (uint32_t i = 0; i < nin; i++) {
        const xl_type *t = xl_value_type(w->f, in[i]);
        xl_buf_printf(&py, "%s(\"%s\", (", i ? ", " : "", numpy_type(a, t->dtype));
        for (uint32_t k = 0; k < t->rank; k++)
            xl_buf_printf(&py, "%lld,", (long long)t->dims[k]);
        xl_buf_puts(&py, "))");
    }
    xl_buf_puts(&py, "]\n"
                     "device = jax.devices()[0]\n"
                     "data = [np.fromfile(f\"arg{i}.bin\", jnp.dtype(t)).reshape(s) for i, (t, s) in enumerate(args)]\n"
                     "text = open(\"program.mlir\").read()\n"
                     "exe = device.client.compile_and_load(text.encode(), xla_client.DeviceList((device,)), "
                     "xla_client.CompileOptions())\n"
                     "for out in exe.execute_sharded([jax.device_put(x, device) for x in "
                     "data]).disassemble_into_single_device_arrays():\n"
                     "    print(np.asarray(out[0]))\n");
    XL_DO(xl_file_write_shown(xl_path_join(a, opt.out, "run.py"), xl_buf_view(&py)));
    xl_json j = { .out = &b, .pretty = true };
    if (c->run && xl_node_get(c->run, "bundle")) {
        xl_json_node(&j, xl_node_get(c->run, "bundle"));
    } else {
        xl_bundle bundle;
        xl_bundle_collect(a, strchr(w->plugin, '/') ? w->plugin : NULL, &bundle);
        xl_bundle_json(&j, &bundle);
    }
    XL_DO(xl_file_write_shown(xl_path_join(a, opt.out, "bundle.json"), xl_buf_view(&b)));
    b.n = 0;
    xl_buf_printf(&b, "%s\nxlane exec --plugin=%s program.mlir", command, xl_word_of(a, w->plugin));
    for (uint32_t i = 0; i < nin; i++)
        xl_buf_printf(&b, " --input=%u=@arg%u.bin", i, i);
    xl_buf_putc(&b, '\n');
    if (c->flags.n)
        xl_buf_printf(&b, "flags: %.*s\n", XL_FMT(c->flags));
    err = xl_file_write_shown(xl_path_join(a, opt.out, "command.txt"), xl_buf_view(&b));
out:
    xl_buf_fini(&program);
    xl_buf_fini(&py);
    xl_buf_fini(&b);
    return err;
}

static bool keep_of(work *w)
{
    static const char *const words[] = { "fails", "slow", "nan", "differs" };
    if (opt.keep && !strncmp(opt.keep, "fails~", 6) && opt.keep[6]) {
        w->text = opt.keep + 6;
        return true;
    }
    for (size_t i = 0; opt.keep && i < 4; i++)
        if (!strcmp(opt.keep, words[i])) {
            w->keep = (keeping)i;
            return true;
        }
    return false;
}

/* The program of a file or of a capture, with the capture's inputs and plugin. */
static xl_error *load(work *w, const char *name, xl_capture *c)
{
    xl_error *err = NULL;
    xl_arena *a = w->cli->arena;
    xl_str bytes;
    xl_file_info info;
    bool file = xl_file_stat(name, &info) && !info.dir;
    if (file)
        XL_DO(xl_cli_bytes(w->cli, name, &bytes));
    if (!file || xl_capture_is(bytes)) {
        XL_DO(xl_cli_capture(w->cli, name, NULL, c, NULL));
        const xl_cap_step *s = &c->step[c->nstep - 1];
        if (s->ndevice > 1 || c->nstep > 1) {
            err = XL_ERR(UNIMPLEMENTED, "%s is %s; capture one device, with --capture-every=1", name,
                         s->ndevice > 1 ? "of several devices" : "computed forward from an earlier step");
            goto out;
        }
        bytes = c->program[s->program].code;
        w->plugin = w->plugin ? w->plugin : xl_str_c(a, c->plugin);
        xl_cap_part *in = xl_new(a, xl_cap_part, s->narg + 1);
        for (uint32_t i = 0; i < s->narg; i++)
            in[i] = s->in[i].part;
        w->in = in;
    }
    w->plugin = w->plugin ? w->plugin : "cpu";
    XL_DO(xl_cli_parse(name, bytes, &w->m));
    XL_TRY(xl_pass_inline(w->m, &(xl_pipeline_opts){ 0 }), "inlining calls");
    w->f = xl_module_entry(w->m);
    if (!w->f || !w->f->body) {
        err = XL_ERR(INVALID, "%s has no entry function", name);
        goto out;
    }
    w->root = w->f->body;
out:
    return err;
}

static xl_error *reduce(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    work w = { .cli = cli, .plugin = opt.plugin };
    xl_capture c = { 0 };
    xl_buf options = { 0 }, b = { 0 }, whole = { 0 };
    (void)argc;
    if (!keep_of(&w))
        return xl_cli_misuse(
            cli, "--keep is missing: what must stay, one of fails, fails~TEXT, slow, nan, differs, as in --keep=fails");
    xl_options_build(&options, &(xl_options){ .replicas = 1, .partitions = 1 });
    w.options = xl_buf_view(&options);
    XL_DO(load(&w, argv[0], &c));
    uint32_t from = xl_cut_count(w.root);
    /* the program as a whole, as it is: what is to stay must be there */
    xl_proc_result r;
    xl_str words;
    bool kept, again = true;
    attempt x = { .w = &w, .in = w.root->arg, .nin = w.root->narg };
    XL_DO(xl_cut(w.f, NULL, 0, XL_CUT_VALUE, true, &whole));
    x.text = xl_buf_view(&whole);
    double t = xl_now();
    w.signal = -1;
    XL_DO(try_it(&w, &x, &kept, &r, &words));
    w.signal = r.signal;
    w.seconds = r.seconds;
    kept = w.keep == SLOW ? !words.n : w.keep == FAILS && !w.text ? words.n > 0 : kept;
    if (!kept) {
        err = XL_ERR(PRECONDITION,
                     "the whole program does not do that on %s: it %s%.*s; --plugin=PATH names where it does", w.plugin,
                     words.n ? "fails otherwise: " : "runs", XL_FMT(words));
        goto out;
    }
    if (w.keep == SLOW && w.seconds < 0.5) {
        err = XL_ERR(PRECONDITION,
                     "compiling it takes %.3f s of CPU time on %s, too little to compare; --keep=slow is for "
                     "compiles of half a second and more",
                     w.seconds, w.plugin);
        goto out;
    }
    bool *keep = xl_new(a, bool, w.root->nop + 1);
    for (uint32_t i = 0; i + 1 < w.root->nop; i++)
        keep[i] = true;
    while (again) {
        XL_DO(shrink(&w, keep));
        XL_DO(hoist(&w, &keep, &again));
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < w.root->nop; i++)
        if (keep[i]) {
            left++;
            for (uint32_t k = 0; k < w.root->op[i]->nregion; k++)
                left += xl_cut_count(w.root->op[i]->region[k]);
        }
    const char *command = xl_strf(a, "xlane reduce --keep=%s --plugin=%s %s", xl_word_of(a, opt.keep),
                                  xl_word_of(a, w.plugin), xl_word_of(a, argv[0]))
                              .p;
    XL_DO(report(&w, &c, keep, command, &kept));
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_int(&j, "ops_before", from);
        xl_json_put_int(&j, "ops", left);
        xl_json_put_int(&j, "attempts", w.runs);
        xl_json_put_num(&j, "seconds", xl_now() - t);
        xl_json_put_bool(&j, "kept", kept);
        xl_json_put_str(&j, "failure", words);
        xl_json_put_text(&j, "folder", opt.out);
        xl_json_end(&j);
    } else {
        xl_buf_printf(&b, "from %u ops to %u in %u attempts, %.1f s: %s/program.mlir, with its inputs, bundle.json, "
                          "command.txt and run.py\n",
                      from, left, w.runs, xl_now() - t, opt.out);
        if (!kept)
            xl_buf_puts(&b, "the last attempt did not do it again: it does not happen every time\n");
    }
    err = xl_cli_put(&b);
out:
    xl_module_free(w.m);
    xl_capture_close(&c);
    xl_buf_fini(&options);
    xl_buf_fini(&whole);
    xl_buf_fini(&b);
    return err;
}

XL_VERB(reduce) = {
    .name = "reduce",
    .args = "--keep=WHAT [--plugin=PATH] [--out=DIR] PROGRAM | CAPTURE",
    .help = "shrink a program that fails, is slow, gives NaN or differs, keeping the symptom",
    .more =
        "PROGRAM is StableHLO text, bytecode or an HLO proto; CAPTURE is a step.xlcap, or the RUN that contains one, "
        "with the\n"
        "real inputs. Each attempt runs in a child process. The output folder has what a bug report needs: the "
        "program, its\n"
        "inputs, versions, command lines and a script for JAX.",
    .example = "xlane reduce --keep='fails~Check failed' --plugin=libtpu.so step.mlir",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = reduce,
};
