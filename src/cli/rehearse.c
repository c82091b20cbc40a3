/* xlane rehearse: compile for a TPU that is not here, with the real compiler. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/version.h"
#include "cli/launch.h"
#include "lane/catalog.h"
#include "lane/profile.h"
#include "lane/rehearse.h"

static struct {
    const char *plugin, *topology, *module, *profile;
    double timeout;
    bool search, again;
} opt = { .timeout = 3600 };

static const xl_opt opts[] = {
    { "topology", XL_OPT_STR, &opt.topology, "NAME", "the devices to compile for: v6e:2x2, v5e:4x4, …" },
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH", "the compiler (the libtpu of the environment's Python)" },
    { "module", XL_OPT_STR, &opt.module, "NAME", "which program of a RUN (that of the step)" },
    { "profile", XL_OPT_PROFILE, &opt.profile, "NAME",
      "launch policy: its flags are the compiler's (`xlane profile list`); this host's memory is not asked" },
    { "search", XL_OPT_FLAG, &opt.search, NULL, "of a config: find the largest batch that fits" },
    { "again", XL_OPT_FLAG, &opt.again, NULL, "compile even where the catalog knows the answer" },
    { "timeout", XL_OPT_SECONDS, &opt.timeout, "SECONDS", "give up after this long (3600)" },
    { 0 },
};

static void put_size(xl_buf *b, const char *what, int64_t v)
{
    if (v >= 0)
        xl_buf_printf(b, "  %-12s %12.2f MiB\n", what, (double)v / (1 << 20));
}

static void put_count(xl_buf *b, const char *what, double v)
{
    static const char *const unit[] = { "", "k", "M", "G", "T", "P" };
    int u = 0;
    if (v < 0)
        return;
    while (v >= 1000 && u < 5) {
        v /= 1000;
        u++;
    }
    xl_buf_printf(b, "%-14s %.4g %s\n", what, v, unit[u]);
}

static void put_text(xl_buf *b, const xl_launch *l, const xl_rehearsal *r, const xl_catalog_entry *known)
{
    static const char *const text[] = { "it compiles for these devices (rehearsed: nothing ran)",
                                        "it needs more memory than one of these devices has",
                                        "the compiler refuses it",
                                        "the plugin does not know this topology",
                                        "the compiler cannot be opened here",
                                        "the compiler did not come to an end" };
    xl_buf_printf(b, "%s: %s\n", xl_rehearsal_word(r->verdict), text[r->verdict]);
    xl_buf_printf(b, "%-14s %s\n", "program", l->about);
    xl_buf_printf(b, "%-14s %.*s", "topology", XL_FMT(r->topology));
    if (r->devices)
        xl_buf_printf(b, ", %lld x %.*s", (long long)r->devices, XL_FMT(r->kind));
    if (r->partitions > 1)
        xl_buf_printf(b, "; the program is for %lld of them", (long long)r->partitions);
    xl_buf_putc(b, '\n');
    if (r->used >= 0)
        xl_buf_printf(b, "%-14s %.2f MiB of %.2f MiB a device, by the compiler's own figures\n", "memory",
                      (double)r->used / (1 << 20), (double)r->limit / (1 << 20));
    if (r->memory.needs >= 0) {
        xl_buf_puts(b, "memory of a device\n");
        put_size(b, "arguments", r->memory.arguments);
        put_size(b, "outputs", r->memory.outputs);
        put_size(b, "aliased", r->memory.aliased);
        put_size(b, "temporary", r->memory.temporary);
        put_size(b, "code", r->memory.code);
        put_size(b, "needs", r->memory.needs);
        put_size(b, "peak", r->memory.peak);
        xl_buf_puts(b, "  needs: code + arguments + outputs - aliased + temporary, as if all were held at once\n");
        if (r->memory.peak >= 0)
            xl_buf_puts(b,
                        "  peak: the most that the compiler sees alive at one time; plan with the larger of the two\n");
        if (r->memory.host_arguments + r->memory.host_outputs + r->memory.host_temporary > 0)
            put_size(b, "on the host", r->memory.host_arguments + r->memory.host_outputs + r->memory.host_temporary);
    }
    put_count(b, "flops", r->flops);
    put_count(b, "bytes accessed", r->bytes);
    if (r->scanned) {
        bool once = false;
        xl_buf_printf(b, "%-14s %s\n", "collectives", r->ncollective ? "of one device and one run" : "none");
        for (size_t i = 0; i < r->ncollective; i++) {
            const xl_collective *c = &r->collective[i];
            xl_buf_printf(b, "  %-22.*s over %-16.*s %6lld times %12.2f MiB%s\n", XL_FMT(c->name), XL_FMT(c->over),
                          (long long)c->count, (double)c->bytes / (1 << 20), c->loops ? " *" : "");
            once |= c->loops;
        }
        if (once)
            xl_buf_puts(b, "  * in a loop whose number of turns the program does not say: one turn counted\n");
    }
    if (r->seconds >= 0)
        xl_buf_printf(b, "%-14s %.1f s%s\n", "compile", r->seconds,
                      known ? ", when it was rehearsed; this answer is the catalog's (--again compiles anew)" : "");
    if (r->message.n)
        xl_buf_printf(b, "%-14s %.*s\n", "it said", XL_FMT(r->message));
    if (r->next.n)
        xl_buf_printf(b, "%-14s %.*s\n", "next", XL_FMT(r->next));
}

/* From the catalog where that knows it, else by compiling; what was compiled goes into the catalog. */
static xl_error *one(const xl_cli *cli, const xl_launch *l, const char *plugin, bool again, xl_rehearsal *r,
                     const xl_catalog_entry **known)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    char *dir = xl_catalog_dir(a);
    xl_catalog_entry *all;
    size_t n;
    xl_buf detail = { 0 };
    *known = NULL;
    xl_catalog_entry e = xl_catalog_blank();
    e.sig = l->sig;
    const char *hbm = strncmp(opt.topology, "xlane", 5)
                          ? NULL
                          : getenv("XLANE_CPU_HBM"); /* how large a simulated device is belongs to it */
    e.sig.hardware = xl_strf(a, "%s%s%s", opt.topology, hbm ? " with " : "", hbm ? hbm : "");
    e.sig.bundle = xl_strf(a, "xlane %s, %.*s %.*s", XL_VERSION, XL_FMT(xl_path_base(xl_str_of(plugin))),
                           XL_FMT(xl_plugin_build_id(a, plugin)));
    static const char *const flags[] = { "XLA_FLAGS", "LIBTPU_INIT_ARGS" };
    for (size_t i = 0; i < 2; i++)
        if (getenv(flags[i]) && *getenv(flags[i]))          /* another compile, and another answer */
            e.sig.bundle = xl_strf(a, "%.*s, %s=%s", XL_FMT(e.sig.bundle), flags[i], getenv(flags[i]));
    XL_DO(xl_catalog_read(a, dir, &all, &n, NULL));
    if (!again && xl_catalog_known(all, n, &e.sig, known) != XL_UNSEEN && (*known)->detail.n) {
        xl_node *node;
        xl_error *bad = xl_json_read(a, "catalog", (*known)->detail, &node);
        if (!bad)
            bad = xl_rehearsal_read(a, node, r);
        if (!bad)
            goto out;
        xl_error_free(bad);             /* an entry of another version: compile as if it were not there */
    }
    *known = NULL;
    XL_DO(xl_rehearse(a,
                      &(xl_rehearse_opts){ .plugin = plugin,
                                           .topology = opt.topology,
                                           .code = l->code,
                                           .format = l->format,
                                           .replicas = l->replicas,
                                           .partitions = l->partitions,
                                           .shardy = l->shardy,
                                           .mesh = l->mesh,
                                           .timeout_s = opt.timeout,
                                           .progress = l->name },
                      r));
    if (r->verdict == XL_REHEARSAL_NO_PLUGIN || r->verdict == XL_REHEARSAL_NO_TOPOLOGY)
        goto out;                       /* says nothing of the program */
    e.outcome = r->verdict == XL_REHEARSAL_FITS ? XL_OUTCOME_REHEARSED : XL_OUTCOME_FAILED;
    e.what = XL_STR("rehearse");
    e.class = r->verdict == XL_REHEARSAL_FITS        ? XL_STR("")
              : r->verdict == XL_REHEARSAL_TOO_LARGE ? XL_STR("E1000")
                                                     : xl_str_of(xl_rehearsal_word(r->verdict));
    e.message = r->message;
    e.compiled = r->memory.needs >= 0 ? r->memory.needs : r->used;
    e.limit = r->limit;
    e.flops = r->flops;
    e.seconds = r->seconds;
    xl_rehearsal_json(&(xl_json){ .out = &detail }, r);
    e.detail = xl_buf_view(&detail);
    xl_error *no = xl_catalog_add(dir, &e);
    if (no)
        fprintf(stderr, "xlane: not kept in the catalog: %s; XLANE_CATALOG=DIR names another folder\n",
                xl_error_message(no));
    xl_error_free(no);
out:
    xl_buf_fini(&detail);
    return err;
}

typedef struct { int64_t batch; xl_rehearsal r; bool known; } trial;

static int64_t needed(const xl_rehearsal *r) { return r->memory.needs >= 0 ? r->memory.needs : r->used; }

/* Where a search stands, in steps of the batch: the largest that fits, the smallest that does not, and what
 * each needs. */
typedef struct {
    int64_t fits, too_large, low, high, limit, step;
    bool above;                         /* the last one fitted */
    int same;                           /* as did so many before it */
} bracket;

/* The next to try. Memory grows with the batch about evenly, and the compiler has given both figures and the limit: a
 * little below where the line meets it or, when the last one fitted, a little above, so that both ends come near.
 * Without figures, or when one end does not move, the middle. */
static int64_t between(const bracket *s)
{
    int64_t gap = s->too_large - s->fits, mid = s->fits + gap / 2, margin = (gap / 64) << (s->same < 3 ? s->same : 0);
    if (s->fits && s->low > 0 && s->high > s->low && s->limit > s->low && s->same < 3) {
        double meets = (double)gap * (double)(s->limit - s->low) / (double)(s->high - s->low);
        mid = s->fits + (int64_t)meets + (s->above ? margin + 1 + s->same : -margin - s->same);
    }
    return mid <= s->fits ? s->fits + 1 : mid >= s->too_large ? s->too_large - 1 : mid;
}

/* Doubles the batch while it fits, halves it while it does not, then closes in: to the batch itself, or to half a
 * percent of a large one, for each trial is a compile. */
static xl_error *search(const xl_cli *cli, xl_launch *l, const char *plugin, trial **out, size_t *n, int64_t *best)
{
    xl_error *err = NULL;
    bracket s = { .low = -1, .high = -1, .limit = -1, .step = l->batch_step > 0 ? l->batch_step : 1 };
    int64_t units = l->batch > s.step ? l->batch / s.step : 1;
    size_t cap = 0;
    *best = 0;
    *n = 0;
    *out = NULL;
    while (units >= 1 && units <= (int64_t)1 << 24 && *n < 40) {
        const int64_t batch = units * s.step;
        trial t = { .batch = batch };
        const xl_catalog_entry *known;
        XL_DO(xl_launch_batch(cli, l, batch));
        XL_DO(one(cli, l, plugin, opt.again, &t.r, &known));
        t.known = known != NULL;
        XL_PUSH(cli->arena, *out, *n, cap, t);
        if (!cli->json)
            fprintf(stderr, "xlane: batch %lld: %s%s%s\n", (long long)batch, xl_rehearsal_word(t.r.verdict),
                    t.r.memory.needs >= 0 ? xl_strf(cli->arena, ", %.1f MiB", (double)t.r.memory.needs / (1 << 20)).p
                    : t.r.used >= 0       ? xl_strf(cli->arena, ", %.1f of %.1f MiB", (double)t.r.used / (1 << 20),
                                                    (double)t.r.limit / (1 << 20))
                                          .p
                                    : "",
                    t.known ? " (catalog)" : "");
        bool fitted = t.r.verdict == XL_REHEARSAL_FITS;
        if (!fitted && t.r.verdict != XL_REHEARSAL_TOO_LARGE)
            break;                      /* another batch would not help */
        s.same = s.fits && s.too_large && fitted == s.above ? s.same + 1 : 0;
        if (fitted) {
            s.fits = units;
            s.low = needed(&t.r);
        } else {
            s.too_large = units;
            s.high = t.r.used;
            s.limit = t.r.limit > 0 ? t.r.limit : s.limit;
        }
        if (s.too_large && (s.too_large - s.fits <= 1 || s.too_large - s.fits <= s.fits / 200))
            break;
        s.above = fitted;
        units = s.too_large ? between(&s) : 2 * s.fits;
    }
    *best = s.fits * s.step;
out:
    return err;
}

static xl_error *rehearse(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_plugin_choice choice;
    xl_launch l = { 0 };
    xl_rehearsal r;
    const xl_catalog_entry *known = NULL;
    trial *t = NULL;
    size_t nt = 0;
    int64_t best = 0;
    xl_buf b = { 0 };
    if (!opt.topology || !*opt.topology) {
        err = xl_cli_misuse(
            cli, "--topology is missing: the devices to compile for, as in --topology=v6e:2x2 (v5e:4x4, xlane:4, …)");
        goto out;
    }
    if (opt.profile) {
        xl_profile p;
        XL_DO(xl_profile_effective(a, opt.profile, &p));
        XL_DO(xl_profile_set(a, &p));
    }
    XL_TRY(xl_plugin_find(a,
                          &(xl_plugin_wish){ .named = opt.plugin                          ? opt.plugin
                                                      : strncmp(opt.topology, "xlane", 5) ? "tpu"
                                                                                          : "cpu" },
                          &choice),
           "the compiler for %s", opt.topology);
    XL_DO(xl_launch_find(cli, argv[0], argc - 1, argv + 1, opt.module, &l));
    if (opt.search && !l.batch) {
        err = xl_cli_misuse(
            cli, "%s has one batch, built in; --search needs a config (conf.yaml), whose batch can be changed",
            argv[0]);
        goto out;
    }
    if (opt.search) {
        XL_DO(search(cli, &l, choice.path, &t, &nt, &best));
        r = t[nt - 1].r;
        for (size_t i = 0; i < nt; i++)
            if (best && t[i].batch == best)
                r = t[i].r;
        XL_DO(xl_launch_batch(cli, &l, best ? best : t[nt - 1].batch));      /* for its description */
    } else {
        XL_DO(one(cli, &l, choice.path, opt.again, &r, &known));
    }
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "program", l.about);
        xl_json_put_text(&j, "from", known ? "catalog" : "compiler");
        if (opt.search) {
            xl_json_put_int(&j, "largest_batch", best);
            xl_json_key(&j, "trials");
            xl_json_list(&j);
            for (size_t i = 0; i < nt; i++) {
                xl_json_map(&j);
                xl_json_put_int(&j, "batch", t[i].batch);
                xl_json_put_text(&j, "from", t[i].known ? "catalog" : "compiler");
                xl_json_key(&j, "rehearsal");
                xl_rehearsal_json(&j, &t[i].r);
                xl_json_end(&j);
            }
            xl_json_end(&j);
        }
        xl_json_key(&j, "rehearsal");
        xl_rehearsal_json(&j, &r);
        xl_json_end(&j);
    } else {
        if (opt.search)
            xl_buf_printf(&b, best ? "largest batch that fits %s: %lld\n" : "no batch fits %s\n", opt.topology,
                          (long long)best);
        put_text(&b, &l, &r, known);
    }
    XL_DO(xl_cli_put(&b));
    if (r.verdict != XL_REHEARSAL_FITS)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_launch_fini(&l);
    xl_buf_fini(&b);
    return err;
}

XL_VERB(rehearse) = {
    .name = "rehearse",
    .args = "--topology=NAME (RUN | conf.yaml [key=value ...] | FILE.mlir)",
    .help = "will it compile and fit on that TPU, without having one?",
    .more =
        "Compiles with the real TPU compiler (libtpu) in a child process, for devices that this host does not have: "
        "the step of\n"
        "a training config, a program of a recorded run, or a StableHLO file. Reports memory by kind, operations, "
        "bytes,\n"
        "collectives and the compile time. The result is kept in the catalog as rehearsed, never as ran, and reused "
        "next time.",
    .example = "xlane rehearse --topology=v6e:2x2 step.mlir\n"
               "xlane rehearse --topology=v5e:4x4 last --module=jit_step\n"
               "xlane rehearse --topology=v6e:2x2 conf.yaml --search",
    .opts = opts,
    .min = 1,
    .max = -1,
    .run = rehearse,
};
