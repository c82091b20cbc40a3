/* xlane runs: the recorded runs, each on a line: what ran, how it ended, what it compiled. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "lane/gaps.h"
#include "lane/run.h"
#include "lane/steps.h"
#include "lane/trained.h"
#include "lane/verdict.h"

enum { SHOWN = 20, COMMAND_WIDTH = 60 };
static struct { bool all; } opt;
static const xl_opt opts[] = {
    { "all", XL_OPT_FLAG, &opt.all, NULL, "every run, not only the newest 20" },
    { 0 },
};

typedef struct {
    xl_str name;
    xl_str state, shown;                                   /* in words; with the time since the last step */
    bool running;
    xl_str command;
    const xl_node *json;                                   /* run.json; NULL: there is none that can be read */
    bool read;                                             /* its events */
    bool whole;                                            /* nothing of its record is missing */
    xl_run_end end;
    xl_run_verdict v;
} row;

static xl_str command_of(xl_arena *a, const xl_node *json)
{
    const xl_node *words = xl_node_get(json, "command");
    xl_buf b = { 0 };
    for (size_t i = 0; words && i < words->n; i++)
        xl_buf_printf(&b, "%s%.*s", i ? " " : "",
                      XL_FMT(i || !xl_node_is(json, "kind", "train") ? words->kid[i]->s
                                                                     : xl_path_base(words->kid[i]->s)));
    if (!words && xl_node_is(json, "kind", "train"))
        xl_buf_printf(&b, "xlane train (%.*s)", XL_FMT(xl_node_text(json, "name")));
    for (size_t i = 0; i < b.n; i++)                       /* python -c with several lines */
        b.p[i] = (unsigned char)b.p[i] < ' ' ? ' ' : b.p[i];
    xl_str s = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return s;
}

static row look(xl_arena *a, const char *runs, xl_str name)
{
    row r = { .name = name };
    const char *dir = xl_path_join(a, runs, xl_str_c(a, name));
    r.json = xl_run_about(a, dir).json;
    xl_error *err = xl_run_judge(a, dir, &r.v);
    r.read = !err;
    xl_error_free(err);
    r.whole = r.read && !xl_run_gaps_of(a, dir).text.n;
    r.end = xl_run_end_of(a, dir);
    r.state = xl_run_state(a, dir, &r.running);
    r.shown = r.state;
    xl_step_times *t = NULL;
    size_t n = 0;
    xl_error_free(r.running ? xl_steps_read(a, dir, &t, &n) : NULL);
    for (size_t i = 0; i < n; i++)
        if (xl_steps_idle(&t[i]))
            r.shown = xl_strf(a, "%.*s, last step %.*s", XL_FMT(r.state), XL_FMT(xl_steps_idle_words(a, &t[i])));
    r.command = !r.json && xl_str_starts(r.state, XL_STR("ladder")) ? XL_STR("xlane ladder") : command_of(a, r.json);
    return r;
}

/* Of its steps' programs, as `xlane run --summary` and explain count them: the same program again is none. */
static int changes(const row *r) { return r->v.early + r->v.late; }

/* Those whose new program was compiled, and not loaded from a cache. */
static int recompiles(const row *r)
{
    int loads = 0;
    for (size_t i = 0; i < r->v.nevent; i++) {
        const xl_node *e = r->v.event[i];
        loads += r->v.of[i] && r->v.of[i]->step && xl_event_again(e) && !xl_node_is(e, "reason", "identical") &&
                 !xl_node_text(e, "against_run").n &&
                 (xl_node_is(e, "result", "cached") || xl_node_is(e, "result", "loaded"));
    }
    return loads < changes(r) ? changes(r) - loads : 0;
}

static void put_json(const row *r, xl_json *j)
{
    xl_json_map(j);
    xl_json_put_str(j, "name", r->name);
    xl_json_put_bool(j, "running", r->running);
    xl_json_put_str(j, "state", r->state);
    if (r->end.has_status)
        xl_json_put_int(j, "status", r->end.status);
    if (r->end.known)
        xl_json_put_num(j, "seconds", r->end.seconds);
    xl_json_put_str(j, "command", r->command);
    xl_json_put_bool(j, "readable", r->read);
    xl_json_put_bool(j, "complete", r->whole);
    if (r->read) {
        xl_json_put_int(j, "compiled", r->v.compiled);
        xl_json_put_int(j, "cached", r->v.cached);
        xl_json_put_int(j, "loaded", r->v.loaded);
        xl_json_put_int(j, "failed", r->v.failed);
        xl_json_put_int(j, "changes", changes(r));
        xl_json_put_int(j, "recompiles", recompiles(r));
        xl_json_put_int(j, "traced_again", r->v.traced);
    }
    xl_json_end(j);
}

static void put_line(xl_arena *a, const row *r, size_t name, size_t state, xl_buf *b)
{
    char took[16] = "", compiled[64] = "", again[64] = "";
    int changed = recompiles(r), loads = changes(r) - changed;
    if (r->end.known)
        snprintf(took, sizeof took, "%.1f s", r->end.seconds);
    if (!r->read)
        snprintf(compiled, sizeof compiled, "events unreadable");
    else if (r->v.recorded)
        snprintf(compiled, sizeof compiled, "%d compiled, %d cached", r->v.compiled, r->v.cached + r->v.loaded);
    if (r->read && !r->whole)
        snprintf(compiled + strlen(compiled), sizeof compiled - strlen(compiled), "%sincomplete",
                 *compiled ? ", " : "");
    if (r->read && changed)
        snprintf(again, sizeof again, "%d recompile%s", changed, changed == 1 ? "" : "s");
    if (r->read && loads)
        snprintf(again + strlen(again), sizeof again - strlen(again), "%s%d change%s", changed ? ", " : "", loads,
                 loads == 1 ? "" : "s");
    if (r->read && r->v.traced)
        snprintf(again + strlen(again), sizeof again - strlen(again), "%s%d traced again", *again ? ", " : "",
                 r->v.traced);
    size_t cut = r->command.n > COMMAND_WIDTH ? COMMAND_WIDTH : r->command.n;
    xl_str line = xl_strf(a, "%-*.*s  %9s  %-*.*s  %-26s  %-14s  %.*s%s", (int)name, XL_FMT(r->name), took, (int)state,
                          XL_FMT(r->shown), compiled, again, (int)cut, r->command.p, cut < r->command.n ? "..." : "");
    while (line.n && line.p[line.n - 1] == ' ')
        line.n--;
    xl_buf_printf(b, "%.*s\n", XL_FMT(line));
}

static xl_error *list(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    xl_str *names = NULL;
    size_t n = 0, kept = 0, denied = 0, name = 0, state = 0;
    const char *runs = argc ? argv[0] : xl_runs_folder();
    if (!*runs)
        return xl_cli_misuse(cli, "the name of the folder is empty; without one, `xlane runs` reads %s",
                             xl_runs_folder());
    XL_DO(xl_runs_list(cli->arena, runs, &names, &n));
    for (size_t i = 0; i < n; i++) {
        const char *dir = xl_path_join(cli->arena, runs, xl_str_c(cli->arena, names[i]));
        bool closed = xl_run_denied(cli->arena, dir);
        denied += closed;
        if (!closed && xl_run_is(cli->arena, dir))
            names[kept++] = names[i];
    }
    if (denied && !kept) {
        err = XL_ERR(PERMISSION,
                     "no run in %s can be read: Permission denied; ask their owner, or give another folder: "
                     "xlane runs DIR",
                     runs);
        goto out;
    }
    if (denied)
        fprintf(stderr, "xlane: %zu more in %s cannot be read: Permission denied; ask their owner\n", denied, runs);
    size_t first = opt.all || kept <= SHOWN ? 0 : kept - SHOWN, many = kept - first;
    row *rows = xl_new(cli->arena, row, many + 1);
    for (size_t i = 0; i < many; i++) {
        rows[i] = look(cli->arena, runs, names[first + i]);
        name = rows[i].name.n > name ? rows[i].name.n : name;
        state = rows[i].shown.n > state ? rows[i].shown.n : state;
    }
    xl_json j = { .out = &b, .pretty = true };
    if (cli->json)
        xl_json_list(&j);
    else if (first)
        xl_buf_printf(&b, "%zu older ones: --all\n", first);
    for (size_t i = 0; i < many; i++)
        if (cli->json)
            put_json(&rows[i], &j);
        else
            put_line(cli->arena, &rows[i], name, state, &b);
    if (cli->json)
        xl_json_end(&j);
    else if (!many)
        xl_buf_printf(&b, "no runs in %s; make one with `xlane run -- CMD`\n", runs);
    return xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

XL_VERB(runs) = {
    .name = "runs",
    .args = "[DIR]",
    .help = "the recorded runs: what ran, how it ended, what it compiled",
    .more =
        "The oldest first, from ./runs or the folder in XLANE_RUNS. Every verb that takes a RUN takes one of these "
        "names, a part\nof it between dashes, or `last`. A recompile is a change of a step's program within the run, "
        "and a change one\nwhose program was loaded from a cache; the same program traced again is counted apart. "
        "`xlane explain RUN` says why.",
    .example = "xlane runs",
    .opts = opts,
    .min = 0,
    .max = 1,
    .run = list,
};
