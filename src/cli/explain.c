/* xlane explain: why did it compile (again)? what moved between two runs? */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "cli/cli.h"
#include "cli/unrecorded.h"
#include "ir/read.h"
#include "lane/contract.h"
#include "lane/gaps.h"
#include "lane/metrics.h"
#include "lane/receipt.h"
#include "lane/run.h"
#include "lane/steps.h"
#include "lane/verdict.h"

static struct { bool all; } opt;
static const xl_opt opts[] = {
    { "all", XL_OPT_FLAG, &opt.all, NULL, "every compile, also first ones and those of initialisers and helpers" },
    { 0 },
};

/* ---- one run ---- */
static void put_why(xl_buf *b, const xl_node *e)
{
    xl_str words = xl_node_text(e, "words"), cache = xl_node_text(e, "cache_detail");
    const xl_node *detail = xl_node_get(e, "detail");
    for (int follows = 0; follows < 2; follows++)
        for (size_t i = 0, shown = 0, said = 0; detail && i < detail->n; i++) {
            const xl_node *f = xl_node_get(detail->kid[i], "follows");
            if ((f && f->b) != (follows == 1))
                continue;
            if (shown++ == 8) {
                xl_buf_puts(b, "             and more like these: --json lists all\n");
                break;
            }
            const xl_node *maybe = xl_node_get(detail->kid[i], "perhaps");
            bool perhaps = maybe && maybe->b;
            const char *head = !follows  ? ""
                               : perhaps ? "perhaps as a result: "
                               : said++  ? "             "
                                         : "as a result: ";
            xl_buf_printf(b, "             %s%.*s\n", head, XL_FMT(xl_node_text(detail->kid[i], "text")));
        }
    if (words.n)
        xl_buf_printf(b, "             %.*s\n", XL_FMT(words));
    if (xl_node_text(e, "config").n)
        xl_buf_printf(b, "             %.*s\n", XL_FMT(xl_node_text(e, "config")));
    if (xl_node_text(e, "values").n)
        xl_buf_printf(b, "             Python values: %.*s\n", XL_FMT(xl_node_text(e, "values")));
    if (xl_node_text(e, "called").n)
        xl_buf_printf(b, "             called at %.*s\n", XL_FMT(xl_node_text(e, "called")));
    if (xl_node_get(e, "read_back"))
        xl_buf_printf(b,
                      xl_node_get(e, "read_mask")
                          ? "             the host had read a mask with %.0f true elements from the device since the "
                            "last step\n"
                          : "             the host had read the number %.0f from the device since the last step\n",
                      xl_node_num(e, "read_back", 0));
    if (xl_node_text(e, "against_run").n)
        xl_buf_printf(b, "             %s run %.*s\n",
                      xl_node_is(e, "reason", "first") && !(detail && detail->n) ? "the same program as in"
                                                                                 : "compared with",
                      XL_FMT(xl_node_text(e, "against_run")));
    if (cache.n && !xl_node_is(e, "cache_reason", "first") && !xl_node_is(e, "cache_reason", "program"))
        xl_buf_printf(b, "             not in the cache: %.*s\n", XL_FMT(cache));
    if (xl_node_text(e, "uncacheable").n)
        xl_buf_printf(b, "             not cached: %.*s\n", XL_FMT(xl_node_text(e, "uncacheable")));
    if (xl_node_text(e, "error").n && !xl_node_is(e, "result", "stopped")) /* what stopped it is told above */
        xl_buf_printf(b, "             %.*s\n", XL_FMT(xl_node_text(e, "error")));
}

/* Compiles that read the same, but for their times and steps, are one entry. */
typedef struct { uint64_t key; const xl_node *first, *last; size_t n; } alike;
typedef struct { alike *p; size_t n, cap; } alikes;

static void add_alike(xl_arena *a, alikes *g, const xl_node *e)
{
    static const char *const fields[] = { "module", "result", "phase", "reason" };
    xl_buf why = { 0 };
    uint64_t key = 0;
    put_why(&why, e);
    key = xl_hash64(why.p ? why.p : "", why.n, key);
    xl_buf_fini(&why);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        key = xl_hash64(xl_node_text(e, fields[i]).p, xl_node_text(e, fields[i]).n, key);
    for (size_t i = 0; i < g->n; i++)
        if (g->p[i].key == key) {
            g->p[i].last = e;
            g->p[i].n++;
            return;
        }
    XL_PUSH(a, g->p, g->n, g->cap, ((alike){ key, e, e, 1 }));
}

/* The entry of which `e` is the first, or NULL. */
static const alike *alike_of(const alikes *g, const xl_node *e)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->p[i].first == e)
            return &g->p[i];
    return NULL;
}

static void put_compile(xl_buf *b, const alike *mine)
{
    const xl_node *e = mine->first;
    xl_str name = xl_node_text(e, "name").n ? xl_node_text(e, "name")
                                            : xl_node_text(e, "module"); /* pmap's modules are all one's */
    xl_buf_printf(b, "%9.3f s  %-24.*s %-8.*s %7.1f ms  %.*s, %.*s%s", xl_node_num(e, "t", 0), XL_FMT(name),
                  XL_FMT(xl_node_text(e, "result")), xl_node_num(e, "seconds", 0) * 1e3,
                  XL_FMT(xl_node_text(e, "phase")), XL_FMT(xl_node_text(e, "reason")),
                  xl_node_is(e, "reason", "first") ? " of its name" : "");
    if (xl_node_num(e, "number", 0) > 1 && !xl_node_is(e, "reason", "first"))
        xl_buf_printf(b, " (step %.0f)", xl_node_num(e, "number", 0));
    xl_buf_putc(b, '\n');
    put_why(b, e);
    if (mine->n > 1)
        xl_buf_printf(b, "             %zu more like this, the last at %.3f s: --json lists all\n", mine->n - 1,
                      xl_node_num(mine->last, "t", 0));
}

/* Of one function: entries that are left out, as they would bury the others, and the compiles in those. */
enum { ENTRIES = 12 };
typedef struct { size_t entries, shown, compiles; } listing;

static listing *listing_of(const xl_run_verdict *v, listing *of, const xl_run_unit *u)
{
    size_t k = 0;
    while (v->unit[k] != u)
        k++;
    return &of[k];
}

static void count_entries(const xl_run_verdict *v, const alikes *g, listing *of)
{
    for (size_t i = 0; i < v->nevent; i++) {
        const alike *mine = v->of[i] ? alike_of(g, v->event[i]) : NULL;
        listing *l = mine ? listing_of(v, of, v->of[i]) : NULL;
        if (l && l->entries++ >= ENTRIES)
            l->compiles += mine->n;
    }
}

static void put_entry(xl_buf *b, const alike *mine, const xl_run_unit *u, listing *l)
{
    if (opt.all || l->entries <= ENTRIES + 1 || l->shown < ENTRIES)
        put_compile(b, mine);
    else if (l->shown == ENTRIES)
        xl_buf_printf(b, "             ... and %zu more compiles of `%.*s`: --all lists them\n", l->compiles,
                      XL_FMT(u->name));
    l->shown++;
}

/* How many steps did so in the whole run, and what is known of why. */
static void put_sync(xl_buf *b, const xl_node *e, const xl_metrics *m, const xl_run_verdict *v)
{
    const xl_module_metrics *mm = NULL;
    for (uint32_t i = 0; m && (mm = xl_metrics_at(m, i)); i++)
        if (xl_node_is(e, "module", xl_module_metrics_name(mm)))
            break;
    xl_buf_printf(b, "%9.3f s  sync: ", xl_node_num(e, "t", 0));
    xl_run_name_say(v, e, b);
    xl_buf_printf(b, ": %.*s", XL_FMT(xl_node_text(e, "text")));
    const xl_run_unit *u = xl_run_unit_of(v, e);
    unsigned long long waited = mm ? xl_module_metrics_count(mm, XL_M_HostSync) : 0,
                       ran = mm ? xl_module_metrics_count(mm, XL_M_ExecuteTime) : 0;
    if (u && u->shares)
        waited = u->waited, ran = u->runs;
    if (waited)
        xl_buf_printf(b, " (%s%llu of %llu steps in all)", xl_verdict_open(v) ? "at least " : "", waited, ran);
    if (xl_node_text(e, "where").n)
        xl_buf_printf(b, ", as at %.*s", XL_FMT(xl_node_text(e, "where")));
    xl_buf_puts(b,
                "; print or convert it every N steps (if step % 100 == 0), or keep the results in a list and convert "
                "them after the loop, or read that of the step before");
    if (u && u->filtered)
        xl_buf_puts(b, "; equinox.filter_jit waits in each call too, and jax.jit does not");
    if (xl_verdict_sized(v))
        xl_buf_puts(b, "; a size that depends on data, named above, is such a read");
    xl_buf_putc(b, '\n');
}

static void put_other(xl_buf *b, const xl_node *e)
{
    static const char *const told[] = {
        "late-flag", "late-spmd", "not-reduced", "local-read", "collective", "gathered"
    };
    if (xl_node_is(e, "event", "retry"))
        xl_buf_printf(b, "%9.3f s  attempt %.0f failed at %.*s: %.*s (%.*s, %.*s); %.*s\n", xl_node_num(e, "t", 0),
                      xl_node_num(e, "attempt", 0), XL_FMT(xl_node_text(e, "phase")), XL_FMT(xl_node_text(e, "text")),
                      XL_FMT(xl_node_text(e, "cause")), XL_FMT(xl_node_text(e, "verdict")),
                      XL_FMT(xl_node_text(e, "then")));
    if (xl_node_is(e, "event", "hang"))
        xl_buf_printf(b, "%9.3f s  hang: %.*s of %.*s had not returned after %.0f s\n", xl_node_num(e, "t", 0),
                      XL_FMT(xl_node_text(e, "what")), XL_FMT(xl_node_text(e, "module")), xl_node_num(e, "seconds", 0));
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (xl_node_is(e, "event", told[i]))
            xl_buf_printf(b, "%9.3f s  %s: %.*s%s%.*s\n", xl_node_num(e, "t", 0), told[i],
                          XL_FMT(xl_node_text(e, "words")), xl_node_text(e, "words").n ? ": " : "",
                          XL_FMT(xl_node_text(e, "text")));
}

/* The compile events, each with its cause and remedy. */
static void put_json(const xl_run_verdict *v, xl_buf *b)
{
    xl_json j = { .out = b };
    xl_json_list(&j);
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i];
        if (!v->of[i])
            continue;
        xl_json_map(&j);
        for (size_t k = 0; k < e->n; k++) {
            xl_json_keyn(&j, e->kid[k]->key);
            xl_json_node(&j, e->kid[k]);
        }
        xl_json_put_bool(&j, "of_step", v->of[i]->step);
        if (!xl_node_is(e, "reason", "first")) {
            xl_json_put_text(&j, "cause", xl_run_cause(v, i)->word);
            xl_json_put_text(&j, "remedy", xl_run_remedy(v, i));
        }
        xl_json_end(&j);
    }
    xl_json_end(&j);
}

static bool recorded(xl_node **e, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (xl_node_is(e[i], "event", "attach") || xl_node_is(e[i], "event", "compile"))
            return true;
    return false;
}

static xl_error *not_recorded(xl_arena *a, const char *dir)
{
    const char *other = xl_run_newest(a, dir, XL_RUN_COMPILES);
    xl_run_gaps gaps = xl_run_gaps_of(a, dir);
    xl_str unended = xl_run_unended(a, dir);
    if (gaps.compiles)
        return XL_ERR(DATA_LOSS, "the record of %s is incomplete: %.*s%s%.*s",
                      xl_str_c(a, xl_path_base(xl_str_of(dir))), XL_FMT(gaps.text), unended.n ? "; " : "",
                      XL_FMT(unended));
    return XL_ERR(NOT_FOUND, "%s: compiles were not recorded: %.*s%s%s", xl_str_c(a, xl_path_base(xl_str_of(dir))),
                  XL_FMT(xl_why_unrecorded(a, dir)), other ? "; the newest run here that has some is " : "",
                  other ? other : "");
}

/* Of a run that goes on: processes that have ended no step for long. */
static void put_idle(xl_arena *a, const char *dir, xl_buf *b)
{
    xl_step_times *t = NULL;
    size_t n = 0;
    xl_error_free(xl_steps_read(a, dir, &t, &n));
    for (size_t i = 0; i < n; i++)
        if (xl_steps_idle(&t[i]))
            xl_buf_printf(b,
                          "the last step of process %d, %llu of %.*s, ended %.*s; `py-spy dump --pid %d` shows where a "
                          "Python program is\n",
                          t[i].pid, (unsigned long long)t[i].steps, XL_FMT(t[i].module),
                          XL_FMT(xl_steps_idle_words(a, &t[i])), t[i].pid);
}

static xl_error *one_run(const xl_cli *cli, const char *dir)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    xl_run_verdict v;
    xl_metrics *m = NULL;
    size_t processes;
    XL_DO(xl_run_judge(cli->arena, dir, &v));
    if (!v.recorded) {
        err = not_recorded(cli->arena, dir);
        goto out;
    }
    if (cli->json) {
        put_json(&v, &b);
        err = xl_cli_put(&b);
        goto out;
    }
    xl_buf_str(&b, xl_run_mark(cli->arena, dir));
    xl_verdict_end_say(&v, &b);
    if (v.going)
        put_idle(cli->arena, dir, &b);
    xl_verdict_say(cli->arena, &v, opt.all, &b);
    alikes g = { 0 };
    xl_error_free(xl_metrics_read(cli->arena, dir, &m, &processes));
    xl_buf rows = { 0 };
    listing *of = xl_new(cli->arena, listing, v.nunit + 1);
    for (size_t i = 0; i < v.nevent; i++) {
        const xl_node *e = v.event[i];
        if (v.of[i] && (opt.all || (v.of[i]->step && (xl_event_again(e) || xl_node_is(e, "result", "failed")))))
            add_alike(cli->arena, &g, e);
    }
    count_entries(&v, &g, of);
    for (size_t i = 0; i < v.nevent; i++) {
        const alike *mine = v.of[i] ? alike_of(&g, v.event[i]) : NULL;
        if (mine)
            put_entry(&rows, mine, v.of[i], listing_of(&v, of, v.of[i]));
        else if (v.of[i])
            continue;                                      /* one of an entry above, or of none */
        else if (xl_node_is(v.event[i], "event", "sync"))
            put_sync(&rows, v.event[i], m, &v);
        else
            put_other(&rows, v.event[i]);
    }
    if (rows.n && g.n)
        xl_buf_printf(&b, "%11s  %-24s %-8s %10s  %s\n", "at", "module", "", "compiler", "phase, reason");
    else if (rows.n)
        xl_buf_printf(&b, "%11s  %s\n", "at", "what happened");
    xl_buf_str(&b, xl_buf_view(&rows));
    if (g.n)
        xl_buf_puts(&b, "compiler: the time in the plugin's compile, or in loading, alone; the frontend's tracing and "
                        "lowering come before it and often take longer\n");
    if (rows.n)
        xl_buf_putc(&b, '\n');
    xl_buf_fini(&rows);
    xl_buf_printf(&b, "%d compiled, %d from the cache, %d from the frontend's own cache, %d failed to compile\n",
                  v.compiled, v.cached, v.loaded, v.failed);
    if (!v.nunit)
        xl_cli_exit(cli, XL_EXIT_FAILED);
    xl_triage_say(&v, &b);
    if (v.torch && !v.lines && (v.shape || v.policy || v.branch || v.value))
        xl_buf_puts(&b, "these programs carry no source lines: --profile debug-recompile has PyTorch/XLA add them (it "
                        "sets XLA_IR_DEBUG=1 "
                        "XLA_HLO_DEBUG=1 and others)\n");
    else if (v.torch && !v.placed && v.steps > 1)
        xl_buf_puts(&b, "PyTorch/XLA's graphs have no names: which line runs which, and whether two are of one line, "
                        "--profile debug-recompile tells\n");
    xl_cli_wrap(&b);
    err = xl_cli_put(&b);
out:
    xl_metrics_free(m);
    xl_buf_fini(&b);
    return err;
}

/* ---- two runs ---- */
typedef struct { xl_str module; char hash[XL_DIGEST_HEX]; int compiles; } last_program;

static void last_programs(xl_arena *a, xl_node **e, size_t n, last_program **out, size_t *nout)
{
    size_t cap = 0;
    *out = NULL;
    *nout = 0;
    for (size_t i = 0; i < n; i++) {
        xl_str program = xl_node_text(e[i], "program"), module = xl_contract_group(xl_node_text(e[i], "module"));
        const xl_node *helper = xl_node_get(e[i], "helper");
        if (!xl_node_is(e[i], "event", "compile") || program.n != XL_DIGEST_HEX - 1 ||
            (helper && helper->b && !opt.all))
            continue;
        last_program *p = NULL;
        for (size_t k = 0; k < *nout && !p; k++)
            if (xl_str_eq((*out)[k].module, module))
                p = &(*out)[k];
        if (!p) {
            XL_PUSH(a, *out, *nout, cap, ((last_program){ .module = module }));
            p = &(*out)[*nout - 1];
        }
        memcpy(p->hash, program.p, program.n);
        p->compiles++;
    }
}

static const xl_node *first_event(xl_node **e, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (xl_node_is(e[i], "event", what))
            return e[i];
    return NULL;
}

typedef struct { xl_buf *b; xl_json *j; bool any; } sink;

static void moved(sink *s, const char *what, const char *where, xl_str text)
{
    s->any = true;
    if (s->j) {
        xl_json_map(s->j);
        xl_json_put_text(s->j, "moved", what);
        xl_json_put_text(s->j, "module", where);
        xl_json_put_str(s->j, "text", text);
        xl_json_end(s->j);
    } else {
        xl_buf_printf(s->b, "%-8s %s%s%.*s\n", what, where, *where ? ": " : "", XL_FMT(text));
    }
}

static void compare_words(sink *s, const char *what, xl_str before, xl_str after)
{
    if (xl_str_eq(before, after))
        return;
    xl_buf w = { 0 };
    xl_words_diff(before, after, &w);
    moved(s, what, "", xl_buf_view(&w));
    xl_buf_fini(&w);
}

static void compare_programs(xl_arena *a, sink *s, const char *da, const char *db, const last_program *x,
                             const last_program *y)
{
    xl_str bytes;
    xl_module *p = NULL, *q = NULL;
    xl_error *err = xl_recorded_load(a, da, x->hash, &bytes);
    if (!err)
        err = xl_read(bytes, NULL, &p);
    if (!err)
        err = xl_recorded_load(a, db, y->hash, &bytes);
    if (!err)
        err = xl_read(bytes, NULL, &q);
    char *module = xl_str_c(a, x->module);
    if (err) {
        moved(s, "graph", module, xl_strf(a, "another program, which cannot be compared: %s", xl_error_message(err)));
        xl_error_free(err);
    } else {
        xl_verdict v = { 0 };
        xl_error_free(xl_contract_compare(a, p, q, &v));
        for (uint32_t i = 0, shown = 0; i < v.ndiff && shown < 16; i++) {
            bool input = v.diff[i].kind == XL_DIFF_ARGS || v.diff[i].kind == XL_DIFF_ORDER ||
                         v.diff[i].kind == XL_DIFF_KEY ||
                         (v.diff[i].arg >= 0 && (v.diff[i].kind == XL_DIFF_SHAPE || v.diff[i].kind == XL_DIFF_DTYPE ||
                                                v.diff[i].kind == XL_DIFF_WEAK));
            if (v.diff[i].follows)
                continue;
            shown++;
            moved(s,
                  input                                ? "inputs"
                  : v.diff[i].kind == XL_DIFF_SHARDING ? "profile"
                                                       : "graph",
                  module, v.diff[i].text);
        }
        if (!v.ndiff)
            moved(s, "graph", module, XL_STR("another program"));
    }
    xl_module_free(p);
    xl_module_free(q);
}

/* The user's program itself: another one explains every difference below. */
static void compare_script(xl_arena *a, sink *s, const xl_run_info *x, const xl_run_info *y)
{
    xl_str script[2];
    for (int side = 0; side < 2; side++) {
        const xl_node *cmd = xl_node_get((side ? y : x)->json, "command");
        xl_buf args = { 0 };
        for (size_t i = 0; cmd && i < cmd->n; i++)
            xl_buf_add(&args, cmd->kid[i]->s.p, cmd->kid[i]->s.n), xl_buf_putc(&args, 0);
        script[side] =
            xl_contract_script(a, xl_buf_view(&args), xl_str_c(a, xl_node_text((side ? y : x)->json, "folder")));
        xl_buf_fini(&args);
    }
    if (!xl_str_eq(script[0], script[1]))
        moved(s, "script", "", xl_strf(a, "%.*s -> %.*s", XL_FMT(script[0]), XL_FMT(script[1])));
}

static void compare_cache(xl_arena *a, sink *s, xl_node **ea, size_t na, xl_node **eb, size_t nb)
{
    int made[2] = { 0 }, loaded[2] = { 0 };
    double seconds[2] = { 0 };
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < (side ? nb : na); i++) {
            const xl_node *e = (side ? eb : ea)[i];
            if (!xl_node_is(e, "event", "compile"))
                continue;
            made[side] += xl_node_is(e, "result", "compiled");
            loaded[side] += xl_node_is(e, "result", "cached") || xl_node_is(e, "result", "loaded");
            seconds[side] += xl_node_num(e, "seconds", 0);
        }
    if ((made[0] > 0) != (made[1] > 0) || (loaded[0] > 0) != (loaded[1] > 0))
        moved(s, "cache", "",
              xl_strf(a,
                      "the first run compiled %d and loaded %d programs in %.3g s, the second loaded %d and compiled "
                      "%d in %.3g s",
                      made[0], loaded[0], seconds[0], loaded[1], made[1], seconds[1]));
}

/* Launch policy, value by value; raw flags are compared as the plugin saw them. */
static void compare_launch(xl_arena *a, sink *s, const xl_run_info *x, const xl_run_info *y)
{
    const xl_node *p = xl_node_get(xl_node_get(x->json, "launch"), "values"),
                  *q = xl_node_get(xl_node_get(y->json, "launch"), "values");
    if (!xl_str_eq(x->profile, y->profile))
        moved(s, "profile", "", xl_strf(a, "%.*s -> %.*s", XL_FMT(x->profile), XL_FMT(y->profile)));
    for (int side = 0; side < 2; side++) {
        const xl_node *from = side ? q : p, *to = side ? p : q;
        for (size_t i = 0; from && i < from->n; i++) {
            xl_str name = from->kid[i]->key;
            const xl_node *other = xl_node_get(to, xl_str_c(a, name));
            if (xl_str_starts(name, XL_STR("flags.")) || (side && other) ||
                (other && xl_str_eq(xl_node_text(from->kid[i], "value"), xl_node_text(other, "value"))))
                continue;
            const xl_node *l = side ? other : from->kid[i], *r = side ? from->kid[i] : other;
            moved(s, "profile", xl_str_c(a, name),
                  xl_strf(a, "%.*s -> %.*s (%.*s)", XL_FMT(l ? xl_node_text(l, "value") : XL_STR("not set")),
                          XL_FMT(r ? xl_node_text(r, "value") : XL_STR("not set")),
                          XL_FMT(xl_node_text(r ? r : l, "origin"))));
        }
    }
}

/* Versions below the program: what the plugin's own file does not tell. */
static void compare_stack(xl_arena *a, sink *s, const xl_run_info *x, const xl_run_info *y)
{
    xl_node_change *c;
    size_t n;
    const xl_node *p = xl_node_get(x->json, "bundle"), *q = xl_node_get(y->json, "bundle");
    if (!p || !q)
        return;
    xl_node_changes(a, p, q, &c, &n);
    for (size_t i = 0; i < n; i++)
        moved(s, "stack", xl_str_c(a, c[i].name),
              xl_strf(a, "%.*s -> %.*s", XL_FMT(c[i].before.n ? c[i].before : XL_STR("none")),
                      XL_FMT(c[i].after.n ? c[i].after : XL_STR("none"))));
}

/* Seconds a call took on average, over the run's processes. */
static double mean_of(xl_arena *a, const char *dir, const char *metric)
{
    xl_str *names = NULL, text;
    size_t n = 0;
    double sum = 0, count = 0;
    xl_error_free(xl_dir_list(a, dir, &names, &n));
    for (size_t i = 0; i < n; i++) {
        xl_node *root = NULL;
        if (!xl_str_starts(names[i], XL_STR("metrics-")) || !xl_str_ends(names[i], XL_STR(".json")))
            continue;
        char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        xl_error *err = xl_file_read_max(a, path, 64 << 20, &text);
        if (!err)
            err = xl_json_read(a, path, text, &root);
        const xl_node *m = err ? NULL : xl_node_get(xl_node_get(root, "total"), metric);
        xl_error_free(err);
        sum += xl_node_num(m, "sum", 0) * 1e-9;
        count += xl_node_num(m, "n", 0);
    }
    return count > 0 ? sum / count : 0;
}

static void compare_steps(xl_arena *a, xl_buf *b, const char *da, const char *db)
{
    xl_step_times *t[2] = { NULL, NULL };
    size_t n[2] = { 0 };
    xl_error_free(xl_steps_read(a, da, &t[0], &n[0]));
    xl_error_free(xl_steps_read(a, db, &t[1], &n[1]));
    const char *const which[] = { "first", "second" };
    for (int side = 0; side < 2; side++)
        if (n[side] && t[side]->drift_step) {
            xl_buf_printf(b, "numbers  in the %s run ", which[side]);
            xl_steps_drift_say(t[side], b);
        }
    if (!n[0] || !n[1])
        return;
    const xl_step_times *x = t[0], *y = t[1];
    if (x->median > 0 && y->median > 0 && (x->median > 1.2 * y->median || y->median > 1.2 * x->median))
        xl_buf_printf(b,
                      "numbers  median step: %.4g ms -> %.4g ms (%.2gx): on the device %.4g -> %.4g ms, waiting for "
                      "the host %.4g -> %.4g ms\n",
                      x->median * 1e3, y->median * 1e3, y->median / x->median, x->busy * 1e3, y->busy * 1e3,
                      x->gap * 1e3, y->gap * 1e3);
    if (x->first >= 0 && y->first >= 0)
        xl_buf_printf(b,
                      "numbers  first step done: %.3f s -> %.3f s (start and imports %.3f -> %.3f, client %.3f -> "
                      "%.3f, tracing and lowering %.3f -> %.3f, "
                      "compiling %.3f -> %.3f, loading %.3f -> %.3f, first execute %.3f -> %.3f)\n",
                      x->first, y->first, x->imports, y->imports, x->client, y->client, x->host, y->host, x->compile,
                      y->compile, x->load, y->load, x->execute, y->execute);
}

static void compare_numbers(xl_arena *a, xl_buf *b, const char *da, const char *db)
{
    static const struct {
        const char *metric, *what;
    } means[] = { { "CompileTime", "mean compile" },
                  { "LoadTime", "mean load from the cache" },
                  { "ExecuteTime", "mean execute call" } };
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) {
        double x = mean_of(a, da, means[i].metric), y = mean_of(a, db, means[i].metric);
        if (x > 0 && y > 0 && (y > 1.2 * x || x > 1.2 * y))
            xl_buf_printf(b, "numbers  %s: %.4g ms -> %.4g ms (%.3gx)\n", means[i].what, x * 1e3, y * 1e3, y / x);
    }

    compare_steps(a, b, da, db);
    xl_metrics *m[2] = { NULL, NULL };
    size_t processes;
    xl_error_free(xl_metrics_read(a, da, &m[0], &processes));
    xl_error_free(xl_metrics_read(a, db, &m[1], &processes));
    if (m[0] && m[1]) {
        static const struct { xl_metric_id w; const char *what;
        } rows[] = {
            { XL_M_CompileTime, "compiles" },
            { XL_M_CachedCompile, "from the cache" },
            { XL_M_ExecuteTime, "executions" },
            { XL_M_InboundData, "bytes to the device" },
            { XL_M_OutboundData, "bytes from the device" },
            { XL_M_HostSync, "steps that waited for the host" },
        };
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            unsigned long long x = xl_metrics_total(m[0], rows[i].w), y = xl_metrics_total(m[1], rows[i].w);
            if (x != y)
                xl_buf_printf(b, "numbers  %s: %llu -> %llu\n", rows[i].what, x, y);
        }
    }
    xl_metrics_free(m[0]);
    xl_metrics_free(m[1]);
}

static xl_error *two_runs(const xl_cli *cli, const char *da, const char *db)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_node **ea, **eb;
    size_t na, nb, np, nq;
    last_program *p, *q;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_run_events(a, da, &ea, &na));
    XL_DO(xl_run_events(a, db, &eb, &nb));
    if (!recorded(ea, na) || !recorded(eb, nb)) {
        err = not_recorded(a, recorded(ea, na) ? db : da);
        goto out;
    }
    sink s = { &b, cli->json ? &j : NULL, false };
    if (cli->json)
        xl_json_list(&j);
    xl_run_info about[2] = { xl_run_about(a, da), xl_run_about(a, db) };
    if (!cli->json) {
        xl_buf_str(&b, xl_run_mark(a, da));
        xl_buf_str(&b, xl_run_mark(a, db));
    } else if (about[0].diagnostic || about[1].diagnostic) {
        moved(&s, "diagnostic", "", XL_STR("a run under a diagnostic profile takes part: timings do not compare"));
    }
    compare_script(a, &s, &about[0], &about[1]);
    compare_launch(a, &s, &about[0], &about[1]);
    compare_stack(a, &s, &about[0], &about[1]);
    const xl_node *x = first_event(ea, na, "client"), *y = first_event(eb, nb, "client");
    compare_words(&s, "profile", xl_node_text(x, "flags"), xl_node_text(y, "flags"));
    x = first_event(ea, na, "attach");
    y = first_event(eb, nb, "attach");
    compare_words(&s, "plugin", xl_node_text(x, "identity"), xl_node_text(y, "identity"));
    last_programs(a, ea, na, &p, &np);
    last_programs(a, eb, nb, &q, &nq);
    for (size_t i = 0; i < np; i++) {
        const last_program *other = NULL;
        for (size_t k = 0; k < nq && !other; k++)
            if (xl_str_eq(p[i].module, q[k].module))
                other = &q[k];
        if (!other)
            moved(&s, "graph", xl_str_c(a, p[i].module), XL_STR("only in the first run"));
        else if (strcmp(p[i].hash, other->hash))
            compare_programs(a, &s, da, db, &p[i], other);
    }
    for (size_t k = 0; k < nq; k++) {
        bool there = false;
        for (size_t i = 0; i < np; i++)
            there |= xl_str_eq(p[i].module, q[k].module);
        if (!there)
            moved(&s, "graph", xl_str_c(a, q[k].module), XL_STR("only in the second run"));
    }
    compare_cache(a, &s, ea, na, eb, nb);
    if (cli->json) {
        xl_json_end(&j);
    } else {
        compare_numbers(a, &b, da, db);
        if (!s.any)
            xl_buf_puts(&b, "same graphs, same inputs, same flags and plugin, same use of the cache: what moved, if "
                            "anything did, is the machine\n");
    }
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

static xl_error *explain(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    char *da, *db;
    XL_DO(xl_run_find(cli->arena, argc ? argv[0] : "last", &da));
    if (argc < 2)
        return one_run(cli, da);
    XL_DO(xl_run_find(cli->arena, argv[1], &db));
    err = two_runs(cli, da, db);
out:
    return err;
}

XL_VERB(explain) = {
    .name = "explain",
    .args = "[RUN [RUN]]",
    .help = "why did it compile again; with two runs, what changed between them",
    .more =
        "The first lines say, for each step module, why it compiled again, where, and what to do about it. A step is "
        "a function\n"
        "of yours that ran at least three times, or ten times if it compiled only before the first step. Initialisers, "
        "eager ops\n"
        "and library functions are summed up in one line (--all lists them) and are not counted in the answers at the "
        "end.\n"
        "Consequences of a changed shape are marked as such.\n"
        "\"changed from\" compares with the nearest earlier program of the module, not always that of the previous "
        "step.\n"
        "Compiles that read the same are listed once, with their number, and of one function the first twelve; --all\n"
        "lists the rest, --json prints all compile events. The time of each is the plugin's compile alone, without "
        "tracing.",
    .example = "xlane explain last",
    .opts = opts,
    .min = 0,
    .max = 2,
    .run = explain,
};
