#include "lane/probe.h"

#include <stdio.h>

#include "cli/cli.h"
#include "lane/profile.h"

static struct { const char *plugin, *profile; double timeout; } opt = { .timeout = 60 };
static const xl_opt opts[] = {
    { "plugin", XL_OPT_PLUGIN, &opt.plugin, "PATH",
      "the plugin's file, or one of cpu, tpu, cuda; otherwise the first that is found" },
    { "profile", XL_OPT_PROFILE, &opt.profile, "NAME",
      "as a launch with this profile would: its environment, flags and plugin (`xlane profile list`)" },
    { "timeout", XL_OPT_SECONDS, &opt.timeout, "SECONDS", "how long the plugin may take in all (60)" },
    { 0 },
};

static void put_bytes(xl_buf *b, int64_t n)
{
    char size[32];
    xl_buf_puts(b, xl_size_words((double)n, size));
}

static void put_device(xl_buf *b, const xl_probe_device *d)
{
    xl_buf_printf(b, "device    %d  %.*s: ", d->id, XL_FMT(d->kind));
    if (d->right)
        xl_buf_printf(b, "right answer; compiled in %.3g ms, copied and ran in %.3g ms", d->compile_s * 1e3,
                      d->run_s * 1e3);
    else
        xl_buf_str(b, d->trouble);
    if (d->has_memory) {
        xl_buf_puts(b, "; memory ");
        put_bytes(b, d->memory.in_use);
        xl_buf_puts(b, " in use");
        if (d->memory.limit >= 0) {
            xl_buf_puts(b, " of ");
            put_bytes(b, d->memory.limit);
        }
        if (d->memory.peak_in_use >= 0) {
            xl_buf_puts(b, ", peak ");
            put_bytes(b, d->memory.peak_in_use);
        }
    } else {
        xl_buf_puts(b, "; the plugin gives no memory figures");
    }
    xl_buf_putc(b, '\n');
}

/* All it said last where that is the only evidence; otherwise its last line with an error in it, for plugins are
 * talkative. */
static void put_words(xl_buf *b, xl_str words, bool all)
{
    if (all) {
        if (words.n > 1000)
            words = (xl_str){ words.p + words.n - 1000, 1000 };
        xl_buf_printf(b, "it said   %.*s\n", XL_FMT(words));
        return;
    }
    xl_str found = { 0 };
    while (words.n) {
        xl_str line = xl_str_cut(&words, '\n');
        if (memmem(line.p, line.n, "rror", 4) || memmem(line.p, line.n, "ERROR", 5))
            found = line;
    }
    if (found.n)
        xl_buf_printf(b, "it said   %.*s%s\n", (int)(found.n > 300 ? 300 : found.n), found.p, found.n > 300 ? "…" : "");
}

static void put_text(xl_buf *b, const xl_probe *p)
{
    const xl_bundle *v = &p->bundle;
    xl_buf_printf(b, "%s: %s\n", xl_probe_word(p->class), xl_probe_text(p->class));
    if (p->plugin.n)
        xl_buf_printf(b, "plugin    %.*s (%.*s)\n", XL_FMT(p->plugin), XL_FMT(p->why));
    for (size_t i = 0; i < p->npassed_over; i++)
        xl_buf_printf(b, "skipped   %s\n", p->passed_over[i]);
    if (p->reason.n)
        xl_buf_printf(b, "reason    %.*s\n", XL_FMT(p->reason));
    if (p->class != XL_PROBE_HEALTHY && p->last_words.n)
        put_words(b, p->last_words, p->ended.n > 0);
    if (v->api_major >= 0) {
        xl_buf_printf(b, "api       PJRT %d.%d", v->api_major, v->api_minor);
        if (v->stablehlo_now.n)
            xl_buf_printf(b, ", StableHLO %.*s to %.*s", XL_FMT(v->stablehlo_min), XL_FMT(v->stablehlo_now));
        if (v->platform.n)
            xl_buf_printf(b, ", platform %.*s", XL_FMT(v->platform));
        xl_buf_putc(b, '\n');
    }
    for (size_t i = 0; i < p->ndevice; i++)
        put_device(b, &p->device[i]);
    for (size_t i = 0; i < p->holders.n; i++)
        xl_buf_printf(b, "open in   process %d (%.*s): %.*s\n", p->holders.holder[i].pid,
                      XL_FMT(p->holders.holder[i].command), XL_FMT(p->holders.holder[i].device));
    if (p->note.n)
        xl_buf_printf(b, "note      %.*s\n", XL_FMT(p->note));
    xl_buf_printf(b, "bundle    xlane %.*s, %.*s, %.*s", XL_FMT(v->xlane), XL_FMT(v->kernel), XL_FMT(v->libc));
    if (v->driver.n)
        xl_buf_printf(b, ", %.*s", XL_FMT(v->driver));
    for (size_t i = 0; i < v->npackage; i++)
        xl_buf_printf(b, ", %.*s %.*s", XL_FMT(v->package[i].name), XL_FMT(v->package[i].version));
    xl_buf_putc(b, '\n');
    if (p->next.n)
        xl_buf_printf(b, "next      %.*s\n", XL_FMT(p->next));
}

static xl_error *probe(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    xl_probe p;
    (void)argc;
    (void)argv;
    if (!(opt.timeout > 0)) {
        err = xl_cli_misuse(cli, "--timeout needs a number of seconds above 0");
        goto out;
    }
    if (opt.profile) {                                     /* sets XLANE_PLUGIN too */
        xl_profile profile;
        XL_DO(xl_profile_effective(cli->arena, opt.profile, &profile));
        XL_DO(xl_profile_apply(cli->arena, &profile));
    }
    XL_DO(xl_probe_run(cli->arena, &(xl_probe_opts){ .plugin = opt.plugin, .timeout_s = opt.timeout }, &p));
    if (cli->json)
        xl_probe_json(&(xl_json){ .out = &b, .pretty = true }, &p);
    else
        put_text(&b, &p);
    XL_DO(xl_cli_put(&b));
    if (p.class != XL_PROBE_HEALTHY)
        xl_cli_exit(cli, XL_EXIT_FAILED);
out:
    xl_buf_fini(&b);
    return err;
}

XL_VERB(probe) = {
    .name = "probe",
    .args = "[--plugin=PATH | --profile=NAME] [--timeout=SECONDS]",
    .help = "does the accelerator answer, and if not, what is broken: driver, plugin or program?",
    .more = "Opens the plugin in a child process, compiles a small program, runs it on every addressable device, reads "
            "the result\n"
            "back and compares it with the known answer; then asks for the physical memory. The first line is one of: "
            "healthy,\n"
            "library-missing, will-not-load, abi-mismatch, bad-setting, no-device, device-held, compile-fails, "
            "wrong-answer.\n"
            "The exit status is 0 only for healthy.",
    .example = "xlane probe\n"
               "xlane probe --plugin=tpu --json\n"
               "xlane probe --plugin=$VIRTUAL_ENV/lib/python3.11/site-packages/libtpu/libtpu.so",
    .opts = opts,
    .run = probe,
};
