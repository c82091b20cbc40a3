/* xlane upgrade: what another version of the plugin would change, before anybody installs it. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/launch.h"
#include "lane/run.h"
#include "lane/upgrade.h"

static struct {
    const char *from, *to, *topology, *module, *tolerance;
    double timeout;
    bool all;
} opt = { .timeout = 3600 };

static const xl_opt opts[] = {
    { "from", XL_OPT_STR, &opt.from, "PLUGIN", "the current version: a file, libtpu==0.0.40, or a Python environment" },
    { "to", XL_OPT_STR, &opt.to, "PLUGIN", "the version to move to" },
    { "topology", XL_OPT_STR, &opt.topology, "NAME",
      "compile for these devices: v6e:2x2, … (default: this host's, where the programs also run)" },
    { "module", XL_OPT_STR, &opt.module, "NAME", "only programs of a RUN with this name" },
    { "tolerance", XL_OPT_STR, &opt.tolerance, "SHARE",
      "how much worse a figure may get: 5%, or memory=5%,code=50%,time=30% (10%; cpu 50%, time 25%)" },
    { "all", XL_OPT_FLAG, &opt.all, NULL, "show the small changes too" },
    { "timeout", XL_OPT_SECONDS, &opt.timeout, "SECONDS", "give up on a compile after this long (3600)" },
    { 0 },
};

enum { ROUNDS = 3, SHOWN = 30 };

/* ---- text ----------------------------------------------------------------------------------------------------------
 * */
static const char *size(xl_arena *a, int64_t v)
{
    return v < 0         ? "-"
           : v < 1 << 20 ? xl_strf(a, "%.1fK", (double)v / 1024).p
                         : xl_strf(a, "%.1fM", (double)v / (1 << 20)).p;
}

static const char *count(xl_arena *a, double v)
{
    return v < 0 ? "-" : v < 1e6 ? xl_strf(a, "%.4gk", v / 1e3).p : xl_strf(a, "%.4gM", v / 1e6).p;
}

static const char *pair(xl_arena *a, const char *x, const char *y)
{
    return strcmp(x, y) ? xl_strf(a, "%s -> %s", x, y).p : x;
}

static const char *seconds(xl_arena *a, double v) { return v < 0 ? "-" : xl_strf(a, "%.2f", v).p; }

static void table(xl_arena *a, xl_buf *b, const xl_upgrade *u)
{
    xl_buf_printf(b, "%-28s %-20s %-20s %-18s %-18s %-20s %s\n", "program", "memory", "temporary", "flops", "bytes",
                  "code", "compile, CPU s");
    for (size_t i = 0; i < u->nprogram; i++) {
        const xl_upgrade_program *p = &u->program[i];
        const xl_rehearsal *f = &p->from, *t = &p->to;
        xl_buf_printf(b, "%-28.*s ", XL_FMT(p->name));
        if (f->verdict != XL_REHEARSAL_FITS || t->verdict != XL_REHEARSAL_FITS) {
            xl_buf_printf(b, "%s\n", pair(a, xl_rehearsal_word(f->verdict), xl_rehearsal_word(t->verdict)));
            continue;
        }
        xl_buf_printf(b, "%-20s %-20s ", pair(a, size(a, f->memory.needs), size(a, t->memory.needs)),
                      pair(a, size(a, f->memory.temporary), size(a, t->memory.temporary)));
        xl_buf_printf(b, "%-18s %-18s ", pair(a, count(a, f->flops), count(a, t->flops)),
                      pair(a, count(a, f->bytes), count(a, t->bytes)));
        xl_buf_printf(b, "%-20s %s -> %s\n", pair(a, size(a, f->memory.code), size(a, t->memory.code)),
                      seconds(a, f->cpu_seconds), seconds(a, t->cpu_seconds));
    }
}

static void ran(xl_buf *b, const xl_upgrade *u)
{
    size_t n = 0, same = 0;
    const xl_upgrade_program *not = NULL;
    for (size_t i = 0; i < u->nprogram; i++) {
        n += u->program[i].compared;
        same += u->program[i].compared && !u->program[i].outputs.differ;
        if (!u->program[i].compared && (u->program[i].from.not_run.n || u->program[i].to.not_run.n))
            not = &u->program[i];
    }
    if (u->topology)
        xl_buf_puts(b, "nothing ran: these figures are the compilers' (rehearsed)\n");
    else
        xl_buf_printf(b, "%zu of %zu programs ran on both; the outputs of %zu are the same bits\n", n, u->nprogram,
                      same);
    if (not )
        xl_buf_printf(b, "%.*s did not run: %.*s\n", XL_FMT(not ->name),
                      XL_FMT(not ->from.not_run.n ? not ->from.not_run : not ->to.not_run));
}

static void moves(xl_buf *b, const xl_upgrade *u)
{
    size_t small = 0, shown = 0;
    if (!u->nmove) {
        size_t compile = 0;
        for (size_t i = 0; i < u->nprogram; i++)
            compile += u->program[i].from.verdict == XL_REHEARSAL_FITS;
        xl_buf_printf(b, "nothing moved: %zu of %zu programs compile on both, with the same figures", compile,
                      u->nprogram);
        xl_buf_puts(b, compile < u->nprogram ? "; the others on neither\n" : "\n");
        return;
    }
    for (size_t i = 0; i < u->nmove; i++)
        small += !opt.all && (u->move[i].minor || shown++ >= SHOWN);
    shown = 0;
    xl_buf_puts(b, small < u->nmove ? "what moved, worst first\n" : "nothing large moved\n");
    for (size_t i = 0; i < u->nmove; i++) {
        const xl_move *m = &u->move[i];
        if (!opt.all && (m->minor || shown++ >= SHOWN))
            continue;
        xl_buf_printf(b, "  %-10s %-28.*s %.*s: %.*s\n",
                      m->regression ? "REGRESSION"
                      : m->worse    ? "more"
                                    : "less",
                      XL_FMT(u->program[m->program].name), XL_FMT(m->what), XL_FMT(m->text));
    }
    if (small)
        xl_buf_printf(b, "  and %zu smaller ones (--all shows them)\n", small);
}

static void refused(xl_buf *b, const xl_upgrade *u, const xl_stack *s, const xl_rehearsal *r)
{
    if (r->verdict == XL_REHEARSAL_NO_TOPOLOGY)
        xl_buf_printf(b, "%s refuses the topology %s: %.*s\n", s->label, u->topology, XL_FMT(r->message));
    else
        xl_buf_printf(b, "%s cannot be opened here: %.*s\n", s->label, XL_FMT(r->message));
}

/* ---- compiling -----------------------------------------------------------------------------------------------------
 * */
typedef struct {
    const xl_cli *cli;
    xl_upgrade *u;
    const char *tmp;
} work;

static xl_error *side(work *w, int which, const xl_launch *l, xl_rehearsal *r)
{
    const xl_stack *s = which ? &w->u->to : &w->u->from;
    return xl_upgrade_side(
        w->cli->arena,
        &(xl_rehearse_opts){ .plugin = s->path,
                             .topology = opt.topology,
                             .outputs =
                                 opt.topology ? NULL : xl_path_join(w->cli->arena, w->tmp, which ? "to" : "from"),
                             .code = l->code,
                             .format = l->format,
                             .replicas = l->replicas,
                             .partitions = l->partitions,
                             .shardy = l->shardy,
                             .mesh = l->mesh,
                             .timeout_s = opt.timeout,
                             .progress = l->name },
        r);
}

static bool usable(const xl_rehearsal *r)
{
    return r->verdict != XL_REHEARSAL_NO_TOPOLOGY && r->verdict != XL_REHEARSAL_NO_PLUGIN;
}

static xl_error *both(work *w, const xl_launch *l, xl_upgrade_program *p)
{
    xl_error *err = NULL;
    p->name = xl_str_of(l->name);
    XL_DO(side(w, 0, l, &p->from));
    XL_DO(side(w, 1, l, &p->to));
    if (p->from.run_seconds >= 0 && p->to.run_seconds >= 0) {
        XL_DO(xl_trial_compare(xl_path_join(w->cli->arena, w->tmp, "from"), xl_path_join(w->cli->arena, w->tmp, "to"),
                               &p->outputs));
        p->compared = true;
    }
    /* Times are noisy: a difference counts once it has stayed over several rounds, the two sides in turn. */
    for (int i = 1; i < ROUNDS && xl_upgrade_noisy(w->u, p); i++) {
        xl_rehearsal from, to;
        XL_DO(side(w, 0, l, &from));
        XL_DO(side(w, 1, l, &to));
        xl_upgrade_again(w->u, p, &from, &to);
    }
out:
    return err;
}

/* ---- the verb ------------------------------------------------------------------------------------------------------
 * */
static xl_error *collect(const xl_cli *cli, int argc, char **argv, xl_launch **out, size_t *n, const char **run)
{
    xl_error *err = NULL;
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    for (int i = 0; i < argc;) {
        int words = 0;
        xl_launch *l;
        size_t nl;
        xl_file_info info;
        char *dir;
        while (i + 1 + words < argc && strchr(argv[i + 1 + words], '=') && !xl_file_stat(argv[i + 1 + words], NULL))
            words++; /* settings of a config */
        XL_DO(xl_launch_all(cli, argv[i], words, argv + i + 1, opt.module, &l, &nl));
        for (size_t k = 0; k < nl; k++)
            XL_PUSH(cli->arena, *out, *n, cap, l[k]);
        if (!*run && !words && (!xl_file_stat(argv[i], &info) || info.dir)) {
            XL_DO(xl_run_find(cli->arena, argv[i], &dir));
            *run = dir;
        }
        i += 1 + words;
    }
out:
    return err;
}

static xl_error *keep(const char *run, const xl_upgrade *u)
{
    xl_error *err = run ? xl_upgrade_save(run, u) : NULL, *state = xl_upgrade_save(NULL, u);
    if (err && state) {
        xl_error_free(state);
        return err;
    }
    return err ? err : state;
}

static xl_error *upgrade(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_upgrade u = { .topology = opt.topology, .tolerance = xl_tolerance_default() };
    xl_launch *l = NULL;
    const char *run = NULL, *base = getenv("TMPDIR");
    char tmp[4096] = "";
    xl_buf b = { 0 };
    size_t n = 0;
    if (!opt.from || !opt.to) {
        err = xl_cli_misuse(
            cli, "--from and --to are needed, the two versions: a plugin's file, libtpu==0.0.40, or a Python "
                 "environment");
        goto out;
    }
    if (opt.tolerance && (err = xl_tolerance_parse(opt.tolerance, &u.tolerance))) {
        xl_cli_exit(cli, XL_EXIT_MISUSED);
        goto out;
    }
    XL_DO(collect(cli, argc, argv, &l, &n, &run));
    const char *kind = !opt.topology ? NULL : strncmp(opt.topology, "xlane", 5) ? "tpu" : "cpu";
    XL_TRY(xl_stack_find(a, opt.from, kind, &u.from), "--from");
    XL_TRY(xl_stack_find(a, opt.to, kind, &u.to), "--to");
    if (!opt.topology && (!xl_plugin_has_devices(u.from.path) || !xl_plugin_has_devices(u.to.path))) {
        err = xl_cli_misuse(cli, "this machine has no device for %s; say what to compile for: --topology=v6e:2x2",
                            u.from.label);
        goto out;
    }
    snprintf(tmp, sizeof tmp, "%s/xlane-upgrade-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(tmp)) {
        *tmp = 0;
        err = XL_ERR(UNAVAILABLE, "no folder for outputs; TMPDIR names one that can be written to");
        goto out;
    }
    u.program = xl_new(a, xl_upgrade_program, n + 1);
    work w = { .cli = cli, .u = &u, .tmp = tmp };
    const xl_upgrade_program *p = u.program;
    for (size_t i = 0; i < n; i++) {
        fprintf(stderr, "xlane: %zu of %zu: %s\n", i + 1, n, l[i].name);
        XL_DO(both(&w, &l[i], &u.program[i]));
        u.nprogram++;
        if (!usable(&p[i].from) || !usable(&p[i].to))
            break; /* it would say the same of every program */
    }
    xl_upgrade_compare(a, &u);
    const xl_upgrade_program *last = &p[u.nprogram - 1];
    bool from_down = !usable(&last->from), to_down = !usable(&last->to), stopped = from_down || to_down;
    if (cli->json) {
        xl_upgrade_json(&(xl_json){ .out = &b, .pretty = true }, &u);
    } else {
        xl_buf_printf(&b, "%s -> %s, for %s: %zu program%s, ", u.from.label, u.to.label,
                      opt.topology ? opt.topology : "the devices here", n, n == 1 ? "" : "s");
        xl_buf_printf(&b, stopped ? "not compared\n" : "%zu regression%s\n", u.regressions,
                      u.regressions == 1 ? "" : "s");
        if (from_down)
            refused(&b, &u, &u.from, &last->from);
        if (to_down)
            refused(&b, &u, &u.to, &last->to);
        if (!stopped) {
            table(a, &b, &u);
            moves(&b, &u);
            ran(&b, &u);
        }
    }
    if (!from_down && !(to_down && last->to.verdict == XL_REHEARSAL_NO_PLUGIN)) {
        xl_error *no = keep(run, &u);
        if (no)
            fprintf(stderr, "xlane: not kept for `report` and `matrix`: %s\n", xl_error_message(no));
        xl_error_free(no);
    }
    XL_DO(xl_cli_put(&b));
    if (u.regressions || stopped)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    for (int i = 0; *tmp && i < 2; i++)
        xl_error_free(xl_file_remove(xl_path_join(a, tmp, i ? "to" : "from")));
    if (*tmp)
        rmdir(tmp);
    for (size_t i = 0; i < n; i++)
        xl_launch_fini(&l[i]);
    xl_buf_fini(&b);
    return err;
}

XL_VERB(upgrade) = {
    .name = "upgrade",
    .args = "--from=PLUGIN --to=PLUGIN (RUN | conf.yaml [key=value ...] | FILE.mlir) ...",
    .help = "what another version of libtpu or a CUDA plugin changes, before it is installed",
    .more =
        "Both versions compile every program of a recorded run, in child processes. Compared are: whether it "
        "compiles, memory by\n"
        "kind, operations, bytes, collectives, code size and CPU seconds of the compile. With --topology no device "
        "is needed;\n"
        "without it the programs also run on this host's device with random inputs, and outputs and times are "
        "compared. The worst\n"
        "change comes first. The exit status is 1 if something got worse by more than --tolerance. Versions are "
        "installed with\n"
        "pip into ~/.cache/xlane/plugins and stay there.",
    .example = "xlane upgrade last --from=libtpu==0.0.40 --to=libtpu==0.0.51 --topology=v6e:2x2\n"
               "xlane upgrade last --from=/venv/old --to=/venv/new --tolerance=memory=2%,time=10%",
    .opts = opts,
    .min = 1,
    .max = -1,
    .run = upgrade,
};
