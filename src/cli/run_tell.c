#include "cli/run_tell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/home.h"
#include "cli/cli.h"
#include "lane/contract.h"
#include "lane/gaps.h"
#include "lane/metrics.h"
#include "lane/steps.h"
#include "lane/verdict.h"
#include "pjrt/plugin.h"

void xl_run_ended_read(xl_arena *a, const char *dir, xl_run_ended *log)
{
    *log = (xl_run_ended){ 0 };
    xl_error_free(xl_run_events(a, dir, &log->p, &log->n));
    for (size_t i = 0; i < log->n && !log->stopped; i++)
        log->stopped = xl_node_is(log->p[i], "event", "stop");
}

/* A program this short need not wait for most of the card's memory. */
void xl_run_tell_growth(xl_arena *a, const xl_run_ended *log, double seconds)
{
    static const double short_s = 120, worth_s = 0.3;
    const char *asked = getenv("XLA_PYTHON_CLIENT_PREALLOCATE");
    double took = 0;
    if (seconds > short_s || (asked && (!strcmp(asked, "false") || !strcmp(asked, "0"))))
        return;
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *e = log->p[i];
        if (!xl_node_is(e, "event", "first_buffer"))
            continue;
        const char *kind = xl_plugin_kind(xl_str_c(a, xl_node_text(e, "plugin")));
        double s = xl_node_num(e, "seconds", 0);
        took = kind && !strcmp(kind, "cuda") && s > took ? s : took;
    }
    if (took >= worth_s)
        fprintf(
            stderr,
            "xlane: its first buffer took %.1f s: XLA takes most of the card's memory with it. A short program need "
            "not wait for that: xlane run --profile=cuda-short takes memory as it is needed\n",
            took);
}

/* Single ops that compile for new shapes all along. */
static int ops_again(const xl_run_verdict *v)
{
    int times = 0;
    for (size_t i = 0; i < v->ngrown; i++)
        times += v->grown[i].times;
    return times;
}

/* Where the device waits for most of a step, whatever the host does meanwhile: compiling, where at least every second
 * step does. */
static void say_gap(xl_arena *a, const char *dir, const xl_run_verdict *v)
{
    int again = v->early + v->late + v->traced + ops_again(v);
    xl_step_times *t = NULL;
    size_t n = 0;
    xl_error_free(xl_steps_read(a, dir, &t, &n));
    for (size_t i = 0; i < n; i++)
        if (t[i].bound == XL_BOUND_HOST && t[i].gap > 0.5 * t[i].median && t[i].gap > 1e-3) {
            fprintf(
                stderr,
                "xlane: a step of %.*s takes %.3g ms, and the device waits %.3g ms of it for the host (medians)%s\n",
                XL_FMT(t[i].module), t[i].median * 1e3, t[i].gap * 1e3,
                2 * (uint64_t)again < t[i].steps ? "; `xlane metrics last` has more"
                : v->compiled > v->cached + v->loaded
                    ? ", which traces and compiles in it; `xlane explain last` says why"
                    : ", which traces and loads programs in it; `xlane explain last` "
                      "says why");
            return;
        }
}

static void say_timeline(xl_arena *a, const char *dir)
{
    xl_str *names = NULL;
    size_t n = 0;
    xl_error_free(xl_dir_list(a, dir, &names, &n));
    for (size_t i = 0; i < n; i++)
        if (xl_str_starts(names[i], XL_STR("profile-")) && xl_str_ends(names[i], XL_STR(".json"))) {
            fprintf(stderr, "xlane: a timeline of some steps was recorded: `xlane profile-steps last` writes it\n");
            return;
        }
}

/* Why counts are lower bounds, in parentheses; "": not known. */
static xl_str why_lost(xl_arena *a, const xl_run_verdict *v, bool full)
{
    if (full)
        return XL_STR(" (the run's folder could not be written)");
    if (v->end.signal)
        return XL_STR(" (it was killed before it wrote its last counts)");
    if (v->going)
        return XL_STR(" (a process of it goes on)");
    if (!v->cut)
        return XL_STR("");
    return xl_strf(a, " (%d ended without writing %s last counts: os._exit, exec, a signal or a full disk does that)",
                   v->cut, v->cut == 1 ? "its" : "their");
}

/* Steps' programs that an earlier run had, or the cache under another key, and that were compiled here. */
static int since_earlier(const xl_run_verdict *v)
{
    int n = 0;
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i];
        n += v->of[i] && v->of[i]->step && xl_node_is(e, "result", "compiled") &&
             ((xl_event_again(e) && xl_node_text(e, "against_run").n) ||
              xl_str_starts(xl_node_text(e, "cache_detail"), XL_STR("same program;")));
    }
    return n > v->since ? n : v->since;
}

static void say_changes(const xl_run_verdict *v, uint64_t processes)
{
    bool any = v->early + v->late + v->traced > 0;
    const char *steps = getenv("XLANE_WARMUP"), *compiles = getenv("XLANE_WARMUP_COMPILES");
    bool window = v->early || !steps || strcmp(steps, "0") || (compiles && *compiles && strcmp(compiles, "0"));
    int changed = window ? v->early : v->late;
    fprintf(stderr, "xlane: a step's program changed %d time%s", changed, changed == 1 ? "" : "s");
    if (window)
        fprintf(stderr, " in the warm-up window, %d after it", v->late);
    if (v->traced)
        fprintf(stderr, "; the same program was traced again %d time%s", v->traced, v->traced == 1 ? "" : "s");
    fputs(any && processes > 1 ? " (all processes together)" : "", stderr);
    int since = since_earlier(v);
    if (since)
        fprintf(stderr, "; %d program%s of an earlier run %s compiled again", since, since == 1 ? "" : "s",
                since == 1 ? "was" : "were");
    int ops = ops_again(v);
    if (ops)
        fprintf(stderr, "; single ops compiled again for new shapes %d time%s", ops, ops == 1 ? "" : "s");
    fprintf(stderr, "%s\n", any || since || ops ? "; `xlane explain last` says why" : "");
}

enum { MANY_OPS = 200 };                                   /* a script that runs fewer needs no jit */

/* full: run.json could not be written. */
void xl_run_tell_summary(xl_arena *a, const char *dir, const xl_profile *p, double seconds, int status, bool stopped,
                         bool full)
{
    xl_metrics *m = NULL;
    xl_run_verdict v = { 0 };
    size_t read;
    xl_error_free(xl_metrics_read(a, dir, &m, &read));
    xl_error_free(xl_run_judge(a, dir, &v));
    xl_run_gaps gaps = xl_run_gaps_of(a, dir);
    fprintf(stderr, "xlane: ran %.1f s, ", seconds);
    if (stopped)
        fprintf(stderr, "exit status %d: the policy said stop (the command's own was %d)\n", XL_EXIT_STOPPED, status);
    else if (v.end.signal)
        fprintf(stderr, "ended by signal %d (%s): exit status %d\n", (int)v.end.signal, strsignal((int)v.end.signal),
                status);
    else
        fprintf(stderr, "exit status %d\n", status);
    if (!m && (v.recorded || gaps.counters))
        m = xl_metrics_new();                              /* killed before it wrote any */
    if (m && !(v.builtin && !v.nunit && !gaps.executes)) { /* else all was where nothing is counted, as was said */
        /* Events are written as they happen, counters every two seconds and at the end. */
        uint64_t made = xl_metrics_total(m, XL_M_CompileTime), cached = xl_metrics_total(m, XL_M_CachedCompile),
                 loaded = xl_metrics_total(m, XL_M_FrontendCacheHit);
        bool lost = v.cut || (uint64_t)v.compiled > made || (uint64_t)v.cached > cached;
        bool least = lost && !gaps.left;
        unsigned long long executes = gaps.executes, waited = 0, checked = xl_metrics_total(m, XL_M_NanCheck),
                           awaited = 0;
        bool told = false, synced = false;                 /* explain has a line on it */
        for (size_t i = 0; i < v.nunit; i++) {
            waited += v.unit[i]->step ? v.unit[i]->waited : 0;
            awaited += v.unit[i]->step ? v.unit[i]->awaited : 0;
            told |= xl_unit_waits(v.unit[i]);
        }
        for (size_t i = 0; i < v.nevent; i++)
            synced |= xl_node_is(v.event[i], "event", "sync");
        fprintf(stderr,
                "xlane: %llu compiled, %llu from the cache, %llu from the frontend's own cache; %.*s in %llu process%s"
                "%.*s\n",
                (unsigned long long)(lost ? (uint64_t)v.compiled : made),
                (unsigned long long)(lost ? (uint64_t)v.cached : cached),
                (unsigned long long)(lost ? (uint64_t)v.loaded : loaded),
                XL_FMT(least && !executes ? XL_STR("executions were not counted")
                                          : xl_strf(a, "%s%llu execution%s", least ? "at least " : "", executes,
                                                    executes == 1 ? "" : "s")),
                (unsigned long long)gaps.processes, gaps.processes == 1 ? "" : "es",
                XL_FMT(least ? why_lost(a, &v, full) : XL_STR("")));
        say_changes(&v, gaps.processes);
        if (!v.steps && v.eager_runs >= MANY_OPS && !gaps.text.n)
            fprintf(stderr,
                    "xlane: no step: %llu executions of single ops or library functions, and of nothing else; is there "
                    "a jax.jit? `xlane explain last` has more\n",
                    (unsigned long long)v.eager_runs);
        if (!gaps.counters && !(least && !waited))
            fprintf(stderr,
                    "xlane: %s%llu step%s waited until the host had read a result (float, print, .item()%s)%s\n",
                    least ? "at least " : "", waited, waited == 1 ? "" : "s",
                    xl_verdict_sized(&v) ? ", or a size that depends on data" : "",
                    synced && waited ? "; `xlane explain last` has more" : "");
        if (!gaps.counters && awaited)
            fprintf(stderr, "xlane: the host waited for the device to end %s%llu step%s, without a read "
                    "(block_until_ready)%s\n",
                    least ? "at least " : "", awaited, awaited == 1 ? "" : "s",
                    told ? "; `xlane explain last` has more" : "");
        if (!gaps.counters && checked)
            fprintf(stderr, "xlane: %s%llu step%s waited while JAX looked for NaN in the results (jax_debug_nans)\n",
                    least ? "at least " : "", checked, checked == 1 ? "" : "s");
        say_gap(a, dir, &v);
        say_timeline(a, dir);
    }
    if (gaps.text.n)
        fprintf(stderr, "xlane: incomplete record: %.*s\n", XL_FMT(gaps.text));
    const xl_setting *plugin = xl_profile_get(p, "device.plugin");
    const char *jax = getenv("JAX_COMPILATION_CACHE_DIR"), *ours = getenv("XLANE_CACHE");
    if (jax && *jax && plugin && xl_str_is(plugin->value, "cpu"))
        fprintf(
            stderr,
            "xlane: JAX keeps nothing in JAX_COMPILATION_CACHE_DIR here: it caches for its own platforms alone, and "
            "the embedded device is none; %s\n",
            xl_home_off(ours) ? "xlane's cache would serve, and is off" : "xlane's cache serves instead");
    size_t slow = 0;
    for (size_t i = 0; i < p->n; i++) {
        const xl_setting *s = &p->set[i];
        if (!xl_setting_diagnoses(s))
            continue;
        slow++;
        fprintf(stderr, "xlane: diagnostic: %.*s (%.*s) adds work: the timings are no benchmark\n",
                XL_FMT(xl_setting_words(a, s)), XL_FMT(s->origin));
    }
    if (p->diagnostic && !slow)
        fprintf(stderr, "xlane: diagnostic: profile %.*s says that it adds work; its timings are no benchmark\n",
                XL_FMT(p->name));
    if (xl_file_stat(dir, NULL))
        fprintf(stderr, "xlane: recorded in %s\n", dir);
    else
        fprintf(stderr, "xlane: not recorded: %s was removed while it ran\n", dir);
    xl_metrics_free(m);
}

/* What the run's events and its status say of the guard, in words; full: they may not have been written. */
void xl_run_tell_guard(const char *dir, const xl_run_ended *log, int code, bool full)
{
    bool attached = false, builtin = false;
    for (size_t i = 0; i < log->n; i++) {
        attached |= xl_node_is(log->p[i], "event", "attach");
        builtin |= xl_node_is(log->p[i], "event", "unguarded"); /* said already, with the remedy */
    }
    const char *off = getenv("XLANE_GUARD"), *named = getenv("PJRT_NAMES_AND_LIBRARY_PATHS");
    if (off && !strcmp(off, "off"))
        fprintf(stderr, "xlane: " XL_GUARD_OFF ": nothing was guarded, and no compile was recorded\n");
    else if (!attached && (full || !log->n))
        fprintf(stderr, "xlane: what the guard saw, if anything, could not be written%s; run again then, or with "
                        "--runs=DIR in another folder\n",
                xl_run_full(dir) ? " (No space left on device): make room there"
                                 : ": the folder of the run takes no events");
    else if (!attached && builtin)
        fprintf(stderr, "xlane: JAX used its built-in cpu backend; nothing was guarded\n");
    else if (!attached && code)
        fprintf(stderr,
                "xlane: it ended with status %d, and no process of it had loaded a PJRT plugin under the guard, "
                "so no compile was recorded; if it failed, its own output may say why\n",
                code);
    else if (!attached && named && *named)
        fprintf(stderr, "xlane: no process of this run loaded a PJRT plugin under the guard: it used no device, took "
                        "JAX's built-in cpu, is a static or setuid program, or was started without this environment "
                        "(env -i, sudo); nothing was guarded\n");
    else if (!attached)
        fprintf(stderr, "xlane: no process of this run loaded a PJRT plugin under the guard: it used none, its plugin "
                        "is built in (JAX's own cpu is), it is a static or setuid program, or was started without this "
                        "environment (env -i, sudo); nothing was guarded. On this machine's CPU, `xlane run "
                        "--profile=cpu` takes the embedded device, which is guarded\n");
}

/* Executables that the next start will compile again; said once, however many there were. */
void xl_run_tell_cache(const xl_run_ended *log, const char *cache)
{
    unsigned long n = 0;
    xl_str why = { "", 0 };
    for (size_t i = log->n; i-- > 0;) {
        const xl_node *e = log->p[i];
        if (!xl_node_is(e, "event", "fault") || !xl_node_is(e, "what", XL_FAULT_CACHE) || !xl_node_get(e, "error"))
            continue;
        why = xl_node_text(e, "error");
        n++;
    }
    if (n)
        fprintf(stderr,
                "xlane: %lu executable%s could not be written to the cache in %s, so the next start compiles %s again: "
                "%.*s; --cache=DIR names another folder, --cache-read-only writes to none\n",
                n, n == 1 ? "" : "s", cache, n == 1 ? "it" : "them", XL_FMT(why));
}

static void tell_unseen_one(xl_str name, const xl_run_ended *log)
{
    enum { SHOWN = 8 };
    xl_str seen[SHOWN] = { 0 };
    size_t ns = 0, more = 0;
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *m = xl_node_get(log->p[i], "module");
        if (!m || !xl_node_is(log->p[i], "event", "compile"))
            continue;
        xl_str rest = m->s, module = xl_contract_group(xl_str_cut(&rest, '@'));
        if (xl_run_module_is(m->s, name) || xl_run_module_is(module, name) ||
            xl_str_eq(name, xl_node_text(log->p[i], "name")))
            return;
        bool known = false;
        for (size_t k = 0; k < ns; k++)
            known = known || xl_str_eq(seen[k], module);
        more += !known && ns == SHOWN;
        if (!known && ns < SHOWN)
            seen[ns++] = module;
    }
    if (!ns)
        return;
    xl_buf b = { 0 };
    for (size_t k = 0; k < ns; k++)
        xl_buf_printf(&b, "%s%.*s", k ? ", " : "", XL_FMT(seen[k]));
    fprintf(stderr,
            "xlane: --watch=%.*s: no module or function of this name was compiled, so it was not watched; there were "
            "%.*s%s\n",
            XL_FMT(name), XL_FMT(xl_buf_view(&b)), more ? ", ..." : "");
    xl_buf_fini(&b);
}

/* Names given to --watch that never came. */
void xl_run_tell_unseen(const xl_run_ended *log, const xl_opt_list *watch)
{
    for (size_t i = 0; i < watch->n; i++)
        for (xl_str rest = xl_str_of(watch->p[i]); rest.n;) {
            xl_str one = xl_str_trim(xl_str_cut(&rest, ','));
            if (one.n)
                tell_unseen_one(one, log);
        }
}
