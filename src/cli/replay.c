/* xlane replay: a captured execution again, here or on another plugin. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "cli/capture.h"
#include "ir/scalar.h"
#include "lane/play.h"

static struct { const char *plugin; int64_t times; double tolerance; bool plain, diverge; } opt = { .times = 2 };
static const xl_opt opts[] = {
    { "plugin", XL_OPT_STR, &opt.plugin, "PATH", "where to execute it (the plugin of the capture; cpu: embedded)" },
    { "times", XL_OPT_INT, &opt.times, "N", "execute it so often and compare all with the first (2)" },
    { "tolerance", XL_OPT_NUM, &opt.tolerance, "X",
      "differences up to X times the largest element of an output are no failure (0: bit for bit)" },
    { "plain", XL_OPT_FLAG, &opt.plain, NULL, "on the embedded device, op by op, without fusion" },
    { 0 },
};

typedef struct { uint32_t outputs, compared, equal, beyond; xl_buf text; } tally;

/* A sentence about one output; nothing where it is equal. */
static void compare(const xl_cli *cli, tally *t, uint32_t k, const xl_cap_step *s, uint32_t device,
                    const xl_cap_part *want, const xl_cap_part *have, const char *against)
{
    xl_buf *b = &t->text;
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
            b->n = 0;
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

static xl_error *replay(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_capture c = { 0 };
    xl_play p = { 0 };
    xl_played g = { 0 };
    const xl_cap_part *in;
    xl_cap_part *first = NULL, *again = NULL;
    xl_forward forward;
    xl_buf b = { 0 };
    tally captured = { 0 }, repeated = { 0 };
    double best = -1, seconds;
    size_t nout = 0;
    (void)argc;
    if (opt.times < 1)
        return xl_cli_misuse(cli, "--times needs a number above 0");
    if (opt.plain) {
        setenv("XLANE_CPU_PLAN", "plain", 1);
        opt.plugin = opt.plugin ? opt.plugin : "cpu";
    }
    XL_DO(xl_cli_capture(cli, argv[0], opt.plugin, &c, &p));
    const xl_cap_step *s = &c.step[c.nstep - 1];
    const xl_cap_program *cp = &c.program[s->program];
    XL_DO(xl_play_inputs(&p, a, &c, &in, &forward));
    XL_TRY(xl_play_compile(&p, a, cp->code, cp->hlo ? XL_FORMAT_HLO : XL_FORMAT_MLIR, cp->options, &g),
           "compiling %.*s", XL_FMT(cp->module));
    if (g.ndevice != s->ndevice || g.nout != s->nout) {
        err = XL_ERR(INVALID, "%.*s has %zu outputs on %zu devices here, in the capture %u on %u; use the plugin that "
                              "it was captured with",
                     XL_FMT(cp->module), g.nout, g.ndevice, s->nout, s->ndevice);
        goto out;
    }
    nout = g.ndevice * g.nout;
    first = xl_new(a, xl_cap_part, nout + 1);
    again = xl_new(a, xl_cap_part, nout + 1);
    for (int64_t i = 0; i < opt.times; i++) {
        XL_TRY(xl_play_run(&g, in, s->narg, s->keep, s->nkeep, i ? again : first, &seconds), "executing %.*s",
               XL_FMT(cp->module));
        best = best < 0 || seconds < best ? seconds : best;
        for (size_t k = 0; i && k < nout; k++)
            compare(cli, &repeated, (uint32_t)(k % g.nout), s, (uint32_t)(k / g.nout), &first[k], &again[k],
                    "the first execution");
        if (i)
            xl_play_drop(again, nout);
    }
    for (size_t k = 0; k < nout; k++)
        compare(cli, &captured, (uint32_t)(k % g.nout), s, (uint32_t)(k / g.nout), &s->out[k], &first[k],
                "the capture");
    uint64_t nan = 0, inf = 0;
    for (size_t k = 0; k < nout; k++)
        if (xl_elem_is_float(first[k].elem)) {
            xl_finite f = xl_finite_of(first[k].elem, first[k].bytes, first[k].size);
            nan += f.nan;
            inf += f.inf;
        }
    bool same = xl_str_is(c.plugin, p.path);
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_str(&j, "module", cp->module);
        xl_json_put_int(&j, "number", (int64_t)s->number);
        xl_json_put_text(&j, "plugin", p.path);
        xl_json_put_bool(&j, "same_plugin", same);
        xl_json_put_int(&j, "forward", forward.steps);
        xl_json_put_int(&j, "forward_compared", forward.compared);
        xl_json_put_int(&j, "forward_equal", forward.equal);
        xl_json_put_int(&j, "outputs", captured.outputs);
        xl_json_put_int(&j, "compared", captured.compared);
        xl_json_put_int(&j, "equal", captured.equal);
        xl_json_put_int(&j, "beyond_tolerance", captured.beyond);
        xl_json_put_int(&j, "times", opt.times);
        xl_json_put_bool(&j, "deterministic", repeated.equal == repeated.compared);
        xl_json_put_int(&j, "nan", (int64_t)nan);
        xl_json_put_int(&j, "inf", (int64_t)inf);
        xl_json_put_num(&j, "compile_seconds", g.seconds);
        xl_json_put_num(&j, "run_seconds", best);
        if (g.needs >= 0)
            xl_json_put_int(&j, "bytes", g.needs);
        xl_json_put_str(&j, "differences", xl_buf_view(&captured.text));
        xl_json_end(&j);
    } else {
        xl_cli_about_capture(&c, &b);
        xl_buf_puts(&b, "  ");
        xl_forward_text(&forward, &b);
        xl_buf_printf(&b, "\non %s%s: compiled in %.3f s, executed in %.6f s", p.path,
                      same ? "" : ", another plugin than the captured one", g.seconds, best);
        if (g.needs >= 0)
            xl_buf_printf(&b, ", %lld bytes on a device", (long long)g.needs);
        xl_buf_printf(&b, "\nagainst the capture: %u of %u outputs equal bit for bit", captured.equal,
                      captured.compared);
        if (captured.compared < captured.outputs)
            xl_buf_printf(&b, "; %u were not recorded", captured.outputs - captured.compared);
        xl_buf_putc(&b, '\n');
        xl_buf_str(&b, xl_buf_view(&captured.text));
        if (opt.times > 1) {
            if (repeated.equal == repeated.compared)
                xl_buf_printf(&b, "deterministic: %lld executions are equal bit for bit\n", (long long)opt.times);
            else
                xl_buf_puts(&b, "not deterministic:\n");
            xl_buf_str(&b, xl_buf_view(&repeated.text));
        }
        if (nan || inf)
            xl_buf_printf(&b, "the outputs have %llu NaN and %llu Inf; `xlane nan %s` finds where they come from\n",
                          (unsigned long long)nan, (unsigned long long)inf, argv[0]);
        if (captured.equal < captured.compared && repeated.equal == repeated.compared && same)
            xl_buf_puts(&b, "the same plugin repeats itself and not the capture: the device or the machine computed "
                            "something else then; run this on both\n");
    }
    XL_DO(xl_cli_put(&b));
    if (captured.beyond || repeated.equal < repeated.compared)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_buf_fini(&captured.text);
    xl_buf_fini(&repeated.text);
    xl_play_drop(first, nout);
    xl_play_drop(again, nout);
    xl_played_free(&g);
    xl_play_close(&p);
    xl_capture_close(&c);
    return err;
}

const xl_verb xl_verb_replay = {
    .name = "replay",
    .args = "[--plugin=PATH] [--times=N] CAPTURE",
    .help = "execute a captured step again and compare every output",
    .more = "CAPTURE is a step.xlcap of `xlane run --capture=…`, or the RUN that has one. Outputs are compared bit by "
            "bit and in units of the last\nplace with what was captured, and with each other. The exit status is 1 "
            "where one differs.",
    .example = "xlane replay runs/last/step.xlcap --times=10\nxlane replay last --plugin=cpu",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = replay,
};
