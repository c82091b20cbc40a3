/* xlane classify: can a retry of this failure teach something? */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "lane/failed_rank.h"
#include "lane/retry.h"
#include "lane/run.h"

static struct { const char *phase; } opt = { .phase = "compile" };
static const xl_opt opts[] = {
    { "phase", XL_OPT_STR, &opt.phase, "WORD",
      "when it happened: startup, compile or run (compile; of a RUN, as its events say)" },
    { 0 },
};

/* The attempts of a run that failed, as `xlane run --retries` classified each when it did. False: there were none. */
static bool attempts(const xl_cli *cli, const char *dir, xl_buf *b)
{
    xl_node **e = NULL;
    size_t n = 0, found = 0;
    xl_json j = { .out = b, .pretty = true };
    xl_error_free(xl_run_events(cli->arena, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        if (!xl_node_is(e[i], "event", "retry"))
            continue;
        if (cli->json && !found++)
            xl_json_list(&j);
        if (cli->json) {
            xl_json_node(&j, e[i]);
            continue;
        }
        const xl_node *number = xl_node_get(e[i], "attempt"), *status = xl_node_get(e[i], "status"),
                      *command = xl_node_get(e[i], "command");
        xl_buf_printf(b,
                      "attempt %lld ended with %lld in the %.*s phase: %.*s (%.*s): %.*s\n"
                      "  command:",
                      (long long)(number ? number->i : 0), (long long)(status ? status->i : 0),
                      XL_FMT(xl_node_text(e[i], "phase")), XL_FMT(xl_node_text(e[i], "cause")),
                      XL_FMT(xl_node_text(e[i], "verdict")), XL_FMT(xl_node_text(e[i], "text")));
        for (size_t k = 0; command && k < command->n; k++)
            xl_buf_printf(b, " %.*s", XL_FMT(command->kid[k]->s));
        xl_buf_printf(b, "\n  then: %.*s\n", XL_FMT(xl_node_text(e[i], "then")));
        found++;
    }
    if (cli->json && found)
        xl_json_end(&j);
    return found > 0;
}

static const xl_node *last_end(xl_arena *a, const char *dir)
{
    xl_node **e = NULL;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    while (n-- > 0)
        if (xl_node_is(e[n], "event", "end"))
            return e[n];
    return NULL;
}

static xl_error *classify(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_str text;
    xl_buf b = { 0 }, texts = { 0 };
    const char *from = argc ? argv[0] : "-";
    xl_str rank = { "", 0 };                               /* which one failed first, where the launcher saw it */
    int sig = 0;
    bool of_run = false;
    xl_file_info info;
    xl_phase phase = !strcmp(opt.phase, "startup") ? XL_PHASE_STARTUP
                     : !strcmp(opt.phase, "run")   ? XL_PHASE_RUN
                                                   : XL_PHASE_WINDOW;
    if (phase == XL_PHASE_WINDOW && strcmp(opt.phase, "compile"))
        return xl_cli_misuse(cli, "--phase is startup, compile or run, not %s", opt.phase);
    if (strcmp(from, "-") && (!xl_file_stat(from, &info) || info.dir)) {
        char *dir;
        err = xl_run_find(a, from, &dir);
        if (err) {
            xl_error_free(err);
            err = XL_ERR(NOT_FOUND,
                         "%s is neither a file nor a run (`xlane runs` lists the runs); `xlane classify -` reads "
                         "the text of an error from standard input",
                         from);
            goto out;
        }
        xl_run_log recorded;
        XL_DO(xl_run_read(a, dir, &recorded));
        rank = xl_failed_rank(a, recorded.event, recorded.n);
        xl_str failed = xl_failed_words(a, recorded.event, recorded.n);
        if (attempts(cli, dir, &b))
            return xl_cli_put(&b);
        of_run = true;
        phase = xl_run_phase(a, dir, &texts);
        text = xl_str_dup(a, xl_buf_view(&texts));
        const xl_node *end = last_end(a, dir), *status = xl_node_get(end, "status"),
                      *number = xl_node_get(end, "signal");
        xl_str unended = xl_run_unended(a, dir);
        if (number && number->i > 0) {
            sig = (int)number->i;
        } else if (!text.n) {
            err = unended.n              ? XL_ERR(NOT_FOUND, "%s: %.*s", dir, XL_FMT(unended))
                  : status && !status->i ? XL_ERR(NOT_FOUND, "nothing failed in %s: it ended with status 0", dir)
                  : rank.n ? XL_ERR(NOT_FOUND,
                                    "%s: %.*s, and no failure of XLA's was recorded: see what that rank printed", dir,
                                    XL_FMT(rank))
                  : status
                      ? XL_ERR(NOT_FOUND,
                               "%s ended with status %lld%s%.*s, and no failure of XLA's was recorded: give the text "
                               "that it printed (xlane classify LOG)",
                               dir, (long long)status->i, failed.n ? "; " : "", XL_FMT(failed))
                      : XL_ERR(NOT_FOUND, "nothing failed in %s that the guard saw; give the text of the error", dir);
            goto out;
        }
    } else {
        err = xl_file_read_max(a, strcmp(from, "-") ? from : "/dev/stdin", 64 << 20, &text);
        XL_DO(xl_error_next(err, "`tail -n 1000 LOG | xlane classify -` reads the end of one"));
    }
    xl_failure f = sig ? xl_retry_signal(sig) : xl_retry_classify(0, text, phase);
    bool known = f.boundary != XL_AT_UNKNOWN;
    if (!known)
        xl_cli_exit(cli, XL_EXIT_FAILED);
    if (!known && of_run)
        f.text = "nothing that this run recorded is a failure that xlane knows: give the whole log of every rank, from "
                 "its first error on (xlane classify LOG)";
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_put_text(&j, "phase", xl_phase_word(phase));
        if (sig)
            xl_json_put_int(&j, "signal", sig);
        xl_failure_json(&j, &f);
        if (rank.n)
            xl_json_put_str(&j, "failed_first", rank);
        xl_json_end(&j);
    } else {
        if (rank.n)
            xl_buf_printf(&b, "%.*s\n", XL_FMT(rank));
        if (sig)
            xl_buf_printf(&b, "ended by signal %d (%s), phase: %s\n", sig, strsignal(sig), xl_phase_word(phase));
        xl_buf_printf(&b, "%s", f.cause);
        if (known || f.ecode[0])
            xl_buf_printf(&b, " (%s%s%s)", known ? xl_boundary_word(f.boundary) : "", known && f.ecode[0] ? ", " : "",
                          f.ecode);
        xl_buf_printf(&b, ": %s\n",
                      rank.n && !strcmp(f.cause, "rank_gone")
                          ? "the other ranks lost it; what it printed itself (the lines with its number) has the cause"
                          : f.text);
        if (f.masked_by)
            xl_buf_printf(&b, "a %s error stands over it and is not the cause\n", f.masked_by);
        static const char *const words[] = { "try again here", "try a smaller candidate", "try on another host",
                                             "something must be fixed first", "do not retry" };
        xl_buf_printf(&b, "%s%s\n", known ? words[f.verdict] : "no retry by itself: what failed is not known",
                      !known || f.again || sig || f.verdict > XL_RETRY_SMALLER
                          ? ""
                          : ", but not by itself: it failed after the compile window");
    }
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&texts);
    return err;
}

XL_VERB(classify) = {
    .name = "classify",
    .args = "[FILE | RUN | -]",
    .help = "whether retrying after an XLA error can help: here, smaller, elsewhere, fix, never",
    .more =
        "Reads the text of an error, or the failures of a recorded run; for a run with --retries, every failed "
        "attempt with its\n"
        "command and what was done next. If a coordination error hides the failure of another rank, that failure is "
        "classified.\n"
        "The exit status is 1 for an unknown failure.",
    .example = "python train.py 2>&1 | tail -100 | xlane classify -",
    .opts = opts,
    .min = 0,
    .max = 1,
    .run = classify,
};
