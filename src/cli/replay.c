/* xlane replay: a captured execution again, here or on another plugin. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/word.h"
#include "cli/capture.h"
#include "cli/program.h"
#include "ir/scalar.h"
#include "ir/text/print.h"
#include "lane/cut.h"
#include "lane/walk.h"
#include "pass/pass.h"
#include "pjrt/options.h"

static struct { const char *plugin; int64_t times; double tolerance; bool plain, diverge, f64; } opt = { .times = 2 };
static const xl_opt opts[] = {
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH", "where to execute it (the plugin of the capture; cpu: embedded)" },
    { "times", XL_OPT_SOME, &opt.times, "N", "execute it N times and compare all with the first (2)" },
    { "tolerance", XL_OPT_NUM, &opt.tolerance, "X",
      "accept differences of up to X times the largest element of an output (0: bit for bit)" },
    { "diverge", XL_OPT_FLAG, &opt.diverge, NULL,
      "execute every op on the plugin and on the embedded device, and name the first whose results differ" },
    { "f64", XL_OPT_FLAG, &opt.f64, NULL,
      "also compare with the embedded device in f64, to see the rounding error of the outputs" },
    { "plain", XL_OPT_FLAG, &opt.plain, NULL, "on the embedded device, op by op, without fusion" },
    { 0 },
};

typedef struct { uint32_t outputs, compared, equal, beyond; xl_buf text; } tally;

/* A sentence about one output; nothing where it is equal. */
static void compare(const xl_cli *cli, tally *t, uint32_t k, const xl_cap_step *s, uint32_t device,
                    const xl_cap_part *want, const xl_cap_part *have, const char *against)
{
    xl_buf *b = &t->text;
    size_t before = b->n;
    t->outputs++;
    if (want->elem == XL_ELEM_INVALID)
        return;
    t->compared++;
    if (want->elem != have->elem || want->size != have->size) {
        t->beyond++;
        xl_buf_printf(b, "output %u: %s of %llu bytes here, %s of %llu in %s\n", k, xl_elem_text(have->elem),
                      (unsigned long long)have->size, xl_elem_text(want->elem), (unsigned long long)want->size,
                      against);
        return;
    }
    if (want->bytes ? !memcmp(want->bytes, have->bytes, want->size) : false) {
        t->equal++;
        return;
    }
    xl_buf_printf(b, "output %u", k);
    if (s->ndevice > 1)
        xl_buf_printf(b, " on device %u", device);
    xl_buf_printf(b, " %s: ", xl_cli_shape(cli->arena, have));
    if (!want->bytes) {
        xl_digest d = xl_hash_of((xl_str){ have->bytes, have->size });
        if (want->has_digest && xl_digest_eq(&d, &want->digest)) {
            t->equal++;
            b->n = before;
        } else {
            t->beyond++;
            xl_buf_puts(b, "its digest differs from the captured one\n");
        }
        return;
    }
    xl_difference d = xl_difference_of(want->elem, want->bytes, have->bytes, want->size);
    bool beyond = d.max_abs > opt.tolerance * d.scale || opt.tolerance == 0;
    xl_dtype part = xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(want->elem))));
    size_t each = xl_dtype_bytes(part);
    uint64_t x = 0, y = 0;
    memcpy(&x, want->bytes + d.first * each, each);
    memcpy(&y, have->bytes + d.first * each, each);
    t->beyond += beyond;
    xl_buf_printf(b, "%llu of %llu elements differ from %s, by at most %.6g ulp and %.6g%s; first %s: %.9g, was %.9g",
                  (unsigned long long)d.differ, (unsigned long long)d.count, against, d.max_ulp, d.max_abs,
                  beyond ? "" : ", within the tolerance", xl_cli_element(cli->arena, have->dims, d.first),
                  xl_scalar_get(part, have->bytes + d.first * each), xl_scalar_get(part, want->bytes + d.first * each));
    if (d.differ == 1 && __builtin_popcountll(x ^ y) == 1)
        xl_buf_printf(b, " (one bit, number %d)", __builtin_ctzll(x ^ y));
    xl_buf_putc(b, '\n');
}

static const char *line_of(xl_arena *a, const xl_module *m, const xl_op *op)
{
    xl_str file;
    uint32_t line, col;
    return xl_loc_line(m, op->loc, &file, &line, &col) ? xl_strf(a, "%.*s:%u", XL_FMT(file), line).p : "no source line";
}

/* ---- --f64 ------------------------------------------------------------------------------------------------------ */
static bool narrow(const xl_type *t)
{
    return xl_type_is_tensor(t) && xl_dtype_class(t->dtype) == XL_CLASS_FLOAT && t->dtype != XL_F64;
}

/* Every float of the program becomes an f64. */
static xl_error *widen(xl_arena *a, xl_func *f, const xl_region *r)
{
    xl_error *err = NULL;
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        bool bits = op->code == XL_OP_BITCAST_CONVERT &&
                    (narrow(xl_value_type(f, op->in[0])) || narrow(xl_out_type(f, op, 0)));
        if (bits || (op->code == XL_OP_CUSTOM_CALL && op->nout && narrow(xl_out_type(f, op, 0))))
            return XL_ERR(UNIMPLEMENTED, "%s at %s depends on the bits of its operands: the program has no form in f64",
                          xl_op_text(op), line_of(a, f->m, op));
        for (uint32_t k = 0; k < op->nregion; k++)
            XL_DO(widen(a, f, op->region[k]));
        if (op->code != XL_OP_CONSTANT || !narrow(xl_out_type(f, op, 0)))
            continue;
        const xl_attr *c = XL_ATTR(op, CONSTANT, value);
        xl_dtype d = xl_out_type(f, op, 0)->dtype;
        size_t each = xl_dtype_bytes(d), n = each ? c->data.n / each : 0;
        char *wide = xl_new(&f->m->arena, char, 8 * n + 1);
        for (size_t k = 0; k < n; k++)
            xl_scalar_put(XL_F64, xl_scalar_get(d, c->data.p + k * each), wide + 8 * k);
        op->attr[xl_slot_find(XL_OP_CONSTANT, XL_STR("value"))] = xl_attr_dense(
            f->m, xl_type_with_dtype(f->m, xl_out_type(f, op, 0), XL_F64), (xl_str){ wide, 8 * n });
    }
out:
    return err;
}

/* A tensor in f64; others are as they are. */
static xl_cap_part wide_part(xl_arena *a, const xl_cap_part *p)
{
    xl_dtype d = xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(p->elem))));
    size_t each = xl_dtype_bytes(d), n = each ? p->size / each : 0;
    if (xl_dtype_class(xl_dtype_find(xl_str_of(xl_elem_text(p->elem)))) != XL_CLASS_FLOAT || d == XL_F64)
        return *p;
    char *wide = xl_new(a, char, 8 * n + 1);
    for (size_t k = 0; k < n; k++)
        xl_scalar_put(XL_F64, xl_scalar_get(d, p->bytes + k * each), wide + 8 * k);
    return (xl_cap_part){ .elem = XL_ELEM_F64, .dims = p->dims, .size = 8 * n, .bytes = wide };
}

static xl_error *against_f64(const xl_cli *cli, const char *what, const xl_cap_program *g, const xl_cap_step *s,
                             const xl_cap_part *in, const xl_cap_part *got, xl_buf *text, xl_json *j)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_module *m = NULL;
    xl_play cpu = { 0 };
    xl_played wide = { 0 };
    xl_buf code = { 0 }, options = { 0 };
    xl_cap_part *arg = xl_new(a, xl_cap_part, s->narg + 1), *out = xl_new(a, xl_cap_part, s->nout + 1);
    if (s->ndevice > 1) {
        err = XL_ERR(UNIMPLEMENTED, "--f64 is for programs of one device");
        goto out;
    }
    XL_DO(xl_cli_parse(what, g->code, &m));
    XL_TRY(xl_pass_inline(m, &(xl_pipeline_opts){ 0 }), "inlining calls");
    xl_func *f = xl_module_entry(m);
    XL_DO(widen(a, f, f->body));
    for (uint32_t i = 0; i < f->nval; i++)
        if (narrow(f->val[i].type))
            f->val[i].type = xl_type_with_dtype(m, f->val[i].type, XL_F64);
    xl_func_set_type(f);
    xl_print_module(m, NULL, &code);
    xl_options_build(&options, &(xl_options){ .replicas = 1, .partitions = 1 });
    setenv("XLANE_CPU_PLAN", "plain", 1);
    XL_DO(xl_play_open(a, "cpu", 1, &cpu));
    XL_TRY(xl_play_compile(&cpu, a, xl_buf_view(&code), XL_FORMAT_MLIR, xl_buf_view(&options), &wide),
           "compiling it in f64");
    for (uint32_t i = 0; i < s->narg; i++)
        arg[i] = wide_part(a, &in[i]);
    XL_TRY(xl_play_run(&wide, arg, s->narg, NULL, 0, out, NULL), "executing it in f64");
    for (uint32_t i = 0; i < s->nout; i++) {
        xl_cap_part have = wide_part(a, &got[i]);
        xl_difference d = xl_difference_of(have.elem, out[i].bytes, have.bytes, have.size);
        if (have.elem != XL_ELEM_F64 && !d.differ)
            continue;                                      /* integers that are equal */
        double relative = d.scale > 0 ? d.max_abs / d.scale : d.max_abs;
        uint64_t here = 0, both = 0, n = have.elem == XL_ELEM_F64 ? have.size / sizeof(double) : 0;
        for (uint64_t e = 0; e < n; e++) {
            double x = ((const double *)have.bytes)[e], y = ((const double *)out[i].bytes)[e];
            here += isnan(x) && !isnan(y);
            both += isnan(x) && isnan(y);
        }
        xl_buf_printf(text, "against f64: output %u %s ", i, xl_cli_shape(a, &got[i]));
        if (n && both == n)
            xl_buf_puts(text, "is NaN in f64 too");
        else
            xl_buf_printf(text, "is off by at most %.3g, %.3g of its largest element", d.max_abs, relative);
        if (both && both < n)
            xl_buf_printf(text, "; %llu of %llu elements are NaN in both", (unsigned long long)both,
                          (unsigned long long)n);
        if (here)
            xl_buf_printf(text, "; %llu of %llu elements are NaN and a number in f64", (unsigned long long)here,
                          (unsigned long long)n);
        xl_buf_puts(text, "\n");
        xl_json_map(j);
        xl_json_put_int(j, "output", i);
        xl_json_put_int(j, "nan_in_both", (int64_t)both);
        xl_json_put_int(j, "nan_here_only", (int64_t)here);
        xl_json_put_num(j, "max_abs", d.max_abs);
        xl_json_put_num(j, "relative", relative);
        xl_json_end(j);
    }
out:
    xl_play_drop(out, s->nout);
    xl_played_free(&wide);
    xl_play_close(&cpu);
    xl_module_free(m);
    xl_buf_fini(&code);
    xl_buf_fini(&options);
    return err;
}

/* ---- --diverge -------------------------------------------------------------------------------------------------- */
/* Does value v of the program, cut off there, differ between the two? */
static xl_error *cut_differs(xl_arena *a, const xl_play *p, const xl_play *q, xl_func *f, const xl_cap_part *in,
                             xl_value v, double tolerance, xl_difference *d, bool *yes)
{
    xl_error *err = NULL;
    xl_buf text = { 0 }, options = { 0 };
    xl_played g[2] = { { 0 } };
    xl_cap_part out[2] = { { 0 } };
    XL_DO(xl_cut(f, &v, 1, XL_CUT_VALUE, false, &text));
    xl_options_build(&options, &(xl_options){ .replicas = 1, .partitions = 1 });
    for (int k = 0; k < 2; k++) {
        XL_DO(xl_play_compile(k ? q : p, a, xl_buf_view(&text), XL_FORMAT_MLIR, xl_buf_view(&options), &g[k]));
        XL_DO(xl_play_run(&g[k], in, f->body->narg, NULL, 0, &out[k], NULL));
    }
    *d = xl_difference_of(out[0].elem, out[0].bytes, out[1].bytes, out[0].size);
    *yes = d->max_abs > tolerance * d->scale;
out:
    for (int k = 0; k < 2; k++) {
        xl_played_free(&g[k]);
        xl_play_drop(&out[k], 1);
    }
    xl_buf_fini(&text);
    xl_buf_fini(&options);
    return err;
}

/* Where a plugin and the embedded device part. op NULL: nowhere. */
typedef struct {
    xl_arena *a;
    xl_play p, cpu;
    xl_module *m;
    const xl_cap_part *in;
    double tolerance;
    xl_walk_apart apart;
    const xl_op *op;
    xl_difference d;
    bool together, whole;                                  /* only compiled together; that could be compared */
    int64_t turn;                                          /* of a loop, or -1 */
    size_t executed;
} parting;

/* No op alone: by bisection over programs that end early. */
static xl_error *part_together(parting *t)
{
    xl_error *err = NULL;
    xl_func *f = xl_module_entry(t->m);
    const xl_region *r = f->body;
    uint32_t *at = xl_new(t->a, uint32_t, r->nop + 1), nat = 0;
    for (uint32_t i = 0; i < r->nop; i++)
        if (r->op[i]->nout == 1 && r->op[i]->code != XL_OP_CONSTANT && xl_type_static(xl_out_type(f, r->op[i], 0)))
            at[nat++] = i;
    bool yes = false;
    uint32_t low = 0, high = nat;
    xl_error *no = nat ? cut_differs(t->a, &t->cpu, &t->p, f, t->in, r->op[at[nat - 1]]->out[0], t->tolerance, &t->d,
                                     &yes)
                       : NULL;
    t->whole = !no; /* a kernel that only the plugin has: op by op is all there is */
    xl_error_free(no);
    while (yes && high - low > 1) {                        /* at[high - 1] differs */
        uint32_t half = low + (high - low) / 2;
        bool early;
        XL_DO(cut_differs(t->a, &t->cpu, &t->p, f, t->in, r->op[at[half - 1]]->out[0], t->tolerance, &t->d, &early));
        if (early)
            high = half;
        else
            low = half;
    }
    if (yes) {
        t->op = r->op[at[high - 1]];
        t->together = true;
        XL_DO(cut_differs(t->a, &t->cpu, &t->p, f, t->in, t->op->out[0], t->tolerance, &t->d, &yes));
    }
out:
    return err;
}

static void parting_json(const parting *t, xl_buf *b)
{
    xl_json j = { .out = b, .pretty = true };
    xl_json_map(&j);
    xl_json_put_bool(&j, "found", t->op != NULL);
    if (t->op) {
        xl_str file;
        uint32_t line, col;
        xl_json_put_text(&j, "op", xl_op_text(t->op));
        if (xl_loc_line(t->m, t->op->loc, &file, &line, &col)) {
            xl_json_put_str(&j, "file", file);
            xl_json_put_int(&j, "line", line);
        }
        if (t->turn >= 0)
            xl_json_put_int(&j, "iteration", t->turn);
        xl_json_put_bool(&j, "together", t->together);
        xl_json_put_num(&j, "max_ulp", t->d.max_ulp);
        xl_json_put_num(&j, "max_abs", t->d.max_abs);
        if (t->apart.refused)
            xl_json_put_text(&j, "refused", t->apart.refused);
    }
    xl_json_put_int(&j, "executed", (int64_t)t->executed);
    xl_json_put_num(&j, "tolerance", t->tolerance);
    xl_json_end(&j);
}

static void parting_text(const parting *t, xl_buf *b)
{
    xl_arena *a = t->a;
    const xl_op *op = t->op;
    const xl_difference *d = &t->d;
    if (op && t->apart.refused) {
        xl_buf_printf(b, "first divergence: %s, %s: %s does not execute it: %s\n", xl_op_text(op),
                      line_of(a, t->m, op), t->p.path, t->apart.refused);
    } else if (op && t->together) {
        xl_buf_printf(b,
                      "every op alone agrees, compiled together they do not: the first value beyond the tolerance is "
                      "that of %s, %s: %llu of %llu elements, by at most %.6g ulp and %.6g\n",
                      xl_op_text(op), line_of(a, t->m, op), (unsigned long long)d->differ,
                      (unsigned long long)d->count, d->max_ulp, d->max_abs);
    } else if (op) {
        const xl_cap_part *mine = &t->apart.mine, *theirs = &t->apart.theirs;
        xl_dtype type = xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(mine->elem))));
        size_t each = xl_dtype_bytes(type);
        xl_buf_printf(b, "first divergence: %s, %s", xl_op_text(op), line_of(a, t->m, op));
        if (t->turn >= 0)
            xl_buf_printf(b, ", iteration %lld", (long long)t->turn);
        xl_buf_printf(b,
                      "\n  with the same operands %llu of %llu elements differ, by at most %.6g ulp and %.6g; first "
                      "%s: %.9g on %s, %.9g on the embedded device\n",
                      (unsigned long long)d->differ, (unsigned long long)d->count, d->max_ulp, d->max_abs,
                      xl_cli_element(a, mine->dims, d->first), xl_scalar_get(type, theirs->bytes + d->first * each),
                      t->p.path, xl_scalar_get(type, mine->bytes + d->first * each));
    } else {
        xl_buf_printf(b, "no divergence: %zu ops agree within %g of the largest element, alone%s\n", t->executed,
                      t->tolerance, t->whole ? " and together" : "; compiled together they could not be compared");
    }
}

/* Op by op with the same operands; then, where no op differs alone, compiled together. */
static xl_error *diverge(const xl_cli *cli, const char *what)
{
    xl_error *err = NULL;
    parting t = { .a = cli->arena, .tolerance = opt.tolerance > 0 ? opt.tolerance : 1e-5, .turn = -1 };
    xl_capture c = { 0 };
    xl_walk *w = NULL;
    xl_forward forward;
    xl_buf b = { 0 };
    XL_DO(xl_cli_capture(cli, what, opt.plugin, &c, &t.p));
    const xl_cap_step *s = &c.step[c.nstep - 1];
    const xl_cap_program *g = &c.program[s->program];
    XL_DO(xl_play_inputs(&t.p, t.a, &c, &t.in, &forward));
    setenv("XLANE_CPU_PLAN", "plain", 1);
    XL_DO(xl_play_open(t.a, "cpu", t.p.devices, &t.cpu));
    XL_DO(xl_cli_parse(what, g->code, &t.m));
    XL_DO(xl_walk_ready(&t.cpu, t.a, g->options, &t.m));
    XL_DO(xl_walk_open(t.a, &t.cpu, &t.p, t.m, s->ndevice, t.in, &w));
    xl_walk_rival rival = { &t.p, t.tolerance };
    XL_TRY(xl_walk_run(w, XL_WALK_ALL, &rival, &t.apart), "executing op by op");
    const xl_walk_step *step = xl_walk_steps(w, &t.executed);
    t.d = t.apart.d;
    t.whole = s->ndevice == 1;
    if (t.apart.found && t.apart.step < (int64_t)t.executed) {
        t.op = step[t.apart.step].op;
        t.turn = step[t.apart.step].turn;
    } else if (!t.apart.found && s->ndevice == 1) {
        XL_DO(part_together(&t));
    }
    if (cli->json)
        parting_json(&t, &b);
    else
        parting_text(&t, &b);
    err = xl_cli_put(&b);
    if (!err && t.op)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_play_drop(&t.apart.mine, 1);
    xl_play_drop(&t.apart.theirs, 1);
    xl_walk_close(w);
    xl_module_free(t.m);
    xl_play_close(&t.cpu);
    xl_play_close(&t.p);
    xl_capture_close(&c);
    xl_buf_fini(&b);
    return err;
}

/* A step executed again, and how its outputs compare. */
typedef struct {
    xl_capture c;
    xl_play p;
    xl_played g;
    const xl_cap_step *s;
    const xl_cap_program *program;
    const xl_cap_part *in;
    xl_cap_part *first, *again;
    size_t nout;
    xl_forward forward;
    tally captured, repeated;
    uint64_t nan, inf;
    double best;                                           /* seconds of an execution */
    bool same;                                             /* the plugin is that of the capture */
    xl_buf f64, f64_json;
} rerun;

static xl_error *execute(const xl_cli *cli, rerun *r)
{
    xl_error *err = NULL;
    const xl_cap_step *s = r->s;
    xl_str module = r->program->module;
    double seconds;
    XL_TRY(xl_play_compile(&r->p, cli->arena, r->program->code, r->program->hlo ? XL_FORMAT_HLO : XL_FORMAT_MLIR,
                           r->program->options, &r->g),
           "compiling %.*s", XL_FMT(module));
    if (r->g.ndevice != s->ndevice || r->g.nout != s->nout) {
        err = XL_ERR(INVALID, "%.*s has %zu outputs on %zu devices here, in the capture %u on %u; use the plugin that "
                              "it was captured with",
                     XL_FMT(module), r->g.nout, r->g.ndevice, s->nout, s->ndevice);
        goto out;
    }
    r->nout = r->g.ndevice * r->g.nout;
    r->first = xl_new(cli->arena, xl_cap_part, r->nout + 1);
    r->again = xl_new(cli->arena, xl_cap_part, r->nout + 1);
    for (int64_t i = 0; i < opt.times; i++) {
        XL_TRY(xl_play_run(&r->g, r->in, s->narg, s->keep, s->nkeep, i ? r->again : r->first, &seconds),
               "executing %.*s", XL_FMT(module));
        r->best = r->best < 0 || seconds < r->best ? seconds : r->best;
        for (size_t k = 0; i && k < r->nout; k++)
            compare(cli, &r->repeated, (uint32_t)(k % r->g.nout), s, (uint32_t)(k / r->g.nout), &r->first[k],
                    &r->again[k], "the first execution");
        if (i)
            xl_play_drop(r->again, r->nout);
    }
    for (size_t k = 0; k < r->nout; k++) {
        compare(cli, &r->captured, (uint32_t)(k % r->g.nout), s, (uint32_t)(k / r->g.nout), &s->out[k], &r->first[k],
                "the capture");
        if (xl_elem_is_float(r->first[k].elem)) {
            xl_finite f = xl_finite_of(r->first[k].elem, r->first[k].bytes, r->first[k].size);
            r->nan += f.nan;
            r->inf += f.inf;
        }
    }
out:
    return err;
}

static void rerun_json(const rerun *r, xl_buf *b)
{
    xl_json j = { .out = b, .pretty = true };
    xl_json_map(&j);
    xl_json_put_str(&j, "module", r->program->module);
    xl_json_put_int(&j, "number", (int64_t)r->s->number);
    xl_json_put_text(&j, "plugin", r->p.path);
    xl_json_put_bool(&j, "same_plugin", r->same);
    xl_json_put_int(&j, "forward", r->forward.steps);
    xl_json_put_int(&j, "forward_compared", r->forward.compared);
    xl_json_put_int(&j, "forward_equal", r->forward.equal);
    xl_json_put_int(&j, "outputs", r->captured.outputs);
    xl_json_put_int(&j, "compared", r->captured.compared);
    xl_json_put_int(&j, "equal", r->captured.equal);
    xl_json_put_int(&j, "beyond_tolerance", r->captured.beyond);
    xl_json_put_int(&j, "times", opt.times);
    xl_json_put_bool(&j, "deterministic", r->repeated.equal == r->repeated.compared);
    xl_json_put_int(&j, "nan", (int64_t)r->nan);
    xl_json_put_int(&j, "inf", (int64_t)r->inf);
    xl_json_put_num(&j, "compile_seconds", r->g.seconds);
    xl_json_put_num(&j, "run_seconds", r->best);
    if (r->g.needs >= 0)
        xl_json_put_int(&j, "bytes", r->g.needs);
    xl_json_put_str(&j, "differences", xl_buf_view(&r->captured.text));
    if (opt.f64) {
        xl_json_key(&j, "f64");
        xl_json_raw(&j, xl_buf_view(&r->f64_json));
    }
    xl_json_end(&j);
}

static void rerun_text(const rerun *r, const char *name, xl_buf *b)
{
    const tally *captured = &r->captured, *repeated = &r->repeated;
    uint32_t missing = captured->outputs - captured->compared;
    xl_buf word = { 0 };
    xl_buf_word(&word, name);
    xl_cli_about_capture(&r->c, b);
    xl_buf_puts(b, "  ");
    xl_forward_text(&r->forward, b);
    xl_buf_printf(b, "\non %s%s: compiled in %.3f s, executed in %.6f s", r->p.path,
                  r->same ? "" : ", another plugin than the captured one", r->g.seconds, r->best);
    if (r->g.needs >= 0)
        xl_buf_printf(b, ", %lld bytes on a device", (long long)r->g.needs);
    xl_buf_printf(b, "\nagainst the capture: %u of %u outputs equal bit for bit", captured->equal, captured->compared);
    if (missing)
        xl_buf_printf(b, "; %u more %s not recorded", missing, missing == 1 ? "was" : "were");
    xl_buf_putc(b, '\n');
    xl_buf_str(b, xl_buf_view(&captured->text));
    if (opt.times > 1) {
        if (repeated->equal == repeated->compared)
            xl_buf_printf(b, "deterministic: %lld executions are equal bit for bit\n", (long long)opt.times);
        else
            xl_buf_puts(b, "not deterministic:\n");
        xl_buf_str(b, xl_buf_view(&repeated->text));
    }
    xl_buf_str(b, xl_buf_view(&r->f64));
    if (r->nan || r->inf)
        xl_buf_printf(b, "the outputs have %llu NaN and %llu Inf; `xlane nan %s%.*s` finds where they come from\n",
                      (unsigned long long)r->nan, (unsigned long long)r->inf, r->nan ? "" : "--inf ",
                      XL_FMT(xl_buf_view(&word)));
    if (captured->equal < captured->compared && repeated->equal == repeated->compared && r->same)
        xl_buf_printf(b, "the same plugin repeats itself and not the capture: the device or the machine computed "
                         "something else then; run `xlane replay %.*s` on that machine too\n",
                      XL_FMT(xl_buf_view(&word)));
    xl_buf_fini(&word);
}

static xl_error *replay(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    rerun r = { .best = -1 };
    xl_buf b = { 0 };
    (void)argc;
    if (opt.diverge)
        return diverge(cli, argv[0]);
    if (opt.plain) {
        setenv("XLANE_CPU_PLAN", "plain", 1);
        opt.plugin = opt.plugin ? opt.plugin : "cpu";
    }
    XL_DO(xl_cli_capture(cli, argv[0], opt.plugin, &r.c, &r.p));
    r.s = &r.c.step[r.c.nstep - 1];
    r.program = &r.c.program[r.s->program];
    r.same = xl_str_is(r.c.plugin, r.p.path);
    XL_DO(xl_play_inputs(&r.p, cli->arena, &r.c, &r.in, &r.forward));
    XL_DO(execute(cli, &r));
    xl_json list = { .out = &r.f64_json };
    xl_json_list(&list);
    if (opt.f64)
        XL_DO(against_f64(cli, argv[0], r.program, r.s, r.in, r.first, &r.f64, &list));
    xl_json_end(&list);
    if (cli->json)
        rerun_json(&r, &b);
    else
        rerun_text(&r, argv[0], &b);
    XL_DO(xl_cli_put(&b));
    if (r.captured.beyond || r.repeated.equal < r.repeated.compared)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_buf_fini(&b);
    xl_buf_fini(&r.captured.text);
    xl_buf_fini(&r.repeated.text);
    xl_buf_fini(&r.f64);
    xl_buf_fini(&r.f64_json);
    xl_play_drop(r.first, r.nout);
    xl_play_drop(r.again, r.nout);
    xl_played_free(&r.g);
    xl_play_close(&r.p);
    xl_capture_close(&r.c);
    return err;
}

XL_VERB(replay) = {
    .name = "replay",
    .args = "[--plugin=PATH] [--times=N] [--diverge | --f64] CAPTURE",
    .help = "execute a captured step again and compare every output",
    .more =
        "CAPTURE is a step.xlcap written by `xlane run --capture=…`, or the RUN that contains one. The outputs of "
        "all executions\n"
        "are compared with the captured ones and with each other, bit by bit and in ulp. The exit status is 1 if one "
        "differs.\n"
        "--diverge names the first op whose results, for the same operands, differ from those of the embedded device "
        "by more\n"
        "than the tolerance (by default 1e-5 of the largest element).",
    .example = "xlane replay last --times=10\nxlane replay last --plugin=cpu",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = replay,
};
