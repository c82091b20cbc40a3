/* xlane run: any program under the guard. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/log.h"
#include "base/ranks.h"
#include "base/secret.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/gang.h"
#include "cli/relay.h"
#include "lane/bundle.h"
#include "lane/cache.h"
#include "lane/catalog.h"
#include "lane/contract.h"
#include "lane/gaps.h"
#include "lane/identity.h"
#include "lane/job.h"
#include "lane/metrics.h"
#include "lane/steps.h"
#include "lane/probe.h"
#include "lane/profile.h"
#include "lane/receipt.h"
#include "lane/retry.h"
#include "lane/run.h"
#include "lane/verdict.h"
#include "pjrt/plugin.h"

static struct {
    const char *profile, *cache, *segment, *policy, *runs, *name, *prometheus, *capture, *capture_module;
    uint64_t cache_max, capture_max;
    int64_t warmup, warmup_compiles, retries, restarts, n, capture_every, capture_times;
    double hang;
    xl_opt_list watch, smaller;
    bool read_only, summary, probe, capture_check;
} opt = { .warmup = -1, .hang = -1, .n = 1 };

static const xl_opt opts[] = {
    { "n", XL_OPT_INT, &opt.n, "N", "start the command N times, as the ranks of one job on this host (-n 4)" },
    { "restarts", XL_OPT_COUNT, &opt.restarts, "N",
      "with -n: restart all ranks up to N times if one failed and that can help; the program resumes from its own "
      "checkpoint (0)" },
    { "profile", XL_OPT_STR, &opt.profile, "NAME",
      "launch policy (`xlane profile list`); options given here override it" },
    { "probe", XL_OPT_FLAG, &opt.probe, NULL, "probe the device first; start nothing if that fails" },
    { "retries", XL_OPT_COUNT, &opt.retries, "N",
      "retry up to N times if startup or the first compiles failed and a retry can help (0)" },
    { "smaller", XL_OPT_REPEAT, &opt.smaller, "ARGS",
      "arguments that make the program smaller; repeat it for further candidates. One that the catalog knows to run "
      "is tried first" },
    { "cache", XL_OPT_STR, &opt.cache, "DIR",
      "folder of the executable cache, or off (XLANE_CACHE, else "
      "~/.cache/xlane)" },
    { "cache-max", XL_OPT_SIZE, &opt.cache_max, "SIZE",
      "size limit of the cache; the least recently used entries are dropped (10GiB)" },
    { "cache-read-only", XL_OPT_FLAG, &opt.read_only, NULL,
      "read the cache but never write it: for hosts that share one writer's cache" },
    { "cache-segment", XL_OPT_STR, &opt.segment, "NAME", "a private part of the cache for this process or host" },
    { "policy", XL_OPT_STR, &opt.policy, "WORD",
      "allow, warn or stop when a step's program changes or is traced again after the warm-up window (warn)" },
    { "warmup", XL_OPT_COUNT, &opt.warmup, "STEPS", "length of the warm-up window in steps; 0: none (10)" },
    { "warmup-compiles", XL_OPT_SOME, &opt.warmup_compiles, "N", "end the warm-up window after N compiles instead" },
    { "watch", XL_OPT_REPEAT, &opt.watch, "MODULE",
      "count this module as a step from the start; others count after three executions" },
    { "hang", XL_OPT_SECONDS, &opt.hang, "SECONDS",
      "report a compile or execute that has not returned after this long (120)" },
    { "runs", XL_OPT_STR, &opt.runs, "DIR",
      "where run folders are made; one that cannot be made is an error (XLANE_RUNS, else runs)" },
    { "name", XL_OPT_STR, &opt.name, "NAME", "what to call this run (the program's name)" },
    { "prometheus", XL_OPT_STR, &opt.prometheus, "FILE",
      "write counters to this file for Prometheus while it runs; further processes add their pid to the name; one that "
      "cannot be written is an error" },
    { "capture", XL_OPT_STR, &opt.capture, "WHEN",
      "write step.xlcap, one execution with its inputs: nonfinite (the program reads a NaN or Inf), step:N, signal "
      "(SIGUSR2) or slow (three times the median)" },
    { "capture-every", XL_OPT_SOME, &opt.capture_every, "N",
      "for nonfinite and slow: copy the inputs every N executions and recompute from there (by default often enough "
      "for about 64 MiB a step)" },
    { "capture-check", XL_OPT_FLAG, &opt.capture_check, NULL,
      "for nonfinite: also check outputs up to 64 KiB that the program does not read" },
    { "capture-module", XL_OPT_STR, &opt.capture_module, "NAME", "capture only programs with this in their name" },
    { "capture-times", XL_OPT_SOME, &opt.capture_times, "N",
      "for nonfinite and slow: capture up to N programs, one execution each: step.xlcap, step.2.xlcap, … (1)" },
    { "capture-max", XL_OPT_SIZE, &opt.capture_max, "SIZE", "do not copy inputs larger than this (16GiB)" },
    { "summary", XL_OPT_FLAG, &opt.summary, NULL,
      "print some lines at the end, of what was compiled, executed and recorded, also where standard error is no "
      "terminal" },
    { 0 },
};

/* Beside the program (a build folder), or in ../lib (an installation). */
static char *library(const xl_cli *cli, const char *name)
{
    char *beside = xl_path_join(cli->arena, cli->dir, name);
    char *installed = xl_path_join(cli->arena, cli->dir, xl_strf(cli->arena, "../lib/%s", name).p);
    return xl_file_stat(beside, NULL) ? beside : xl_file_stat(installed, NULL) ? installed : NULL;
}

static xl_error *environment(const xl_cli *cli, const char *dir, const char *cache)
{
    xl_arena *a = cli->arena;
    char *guard = library(cli, "libxlane-guard.so"), *stub = library(cli, "libxlane-preload.so");
    if (!guard || !stub)
        return XL_ERR(
            NOT_FOUND,
            "libxlane-guard.so and libxlane-preload.so are neither beside this program in %s nor in ../lib from there; "
            "install them in one of the two",
            cli->dir);
    xl_error *err = NULL;
    XL_TRY(xl_path_trusted(guard), "not loading the guard");
    XL_TRY(xl_path_trusted(stub), "not preloading the guard");
    const char *before = getenv("LD_PRELOAD");
    setenv("LD_PRELOAD", before && *before ? xl_strf(a, "%s:%s", stub, before).p : stub, 1);
    setenv("XLANE_GUARD_LIBRARY", guard, 1);
    if (xl_file_stat(dir, NULL))
        setenv("XLANE_RUN", dir, 1);
    else
        unsetenv("XLANE_RUN");                             /* not recorded, not in an outer run's folder either */
    char clock[96];
    setenv("XLANE_RUN_BEGAN", xl_run_clock(clock), 1);
    setenv("XLANE_CACHE", cache, 1);
    setenv("XLANE_POLICY", opt.policy, 1);
    if (opt.warmup >= 0)
        setenv("XLANE_WARMUP", xl_strf(a, "%lld", (long long)opt.warmup).p, 1);
    if (opt.warmup_compiles > 0)
        setenv("XLANE_WARMUP_COMPILES", xl_strf(a, "%lld", (long long)opt.warmup_compiles).p, 1);
    if (opt.hang >= 0)
        setenv("XLANE_HANG", xl_strf(a, "%.0f", ceil(opt.hang)).p, 1);
    if (opt.cache_max)
        setenv("XLANE_CACHE_MAX", xl_strf(a, "%llu", (unsigned long long)opt.cache_max).p, 1);
    if (opt.read_only)
        setenv("XLANE_CACHE_READ_ONLY", "1", 1);
    if (opt.segment)
        setenv("XLANE_CACHE_SEGMENT", opt.segment, 1);
    const char *level = getenv("PT_XLA_DEBUG_LEVEL");
    if (level && atoi(level) > 0) { /* what PyTorch/XLA says then is for explain and metrics, not for the terminal */
        setenv("PT_XLA_DEBUG_FILE", xl_path_join(a, dir, "torch-debug.txt"), 0);
        setenv("XLA_METRICS_FILE", xl_path_join(a, dir, "torch-metrics.txt"), 0);
    }
    if (opt.prometheus)
        setenv("XLANE_PROMETHEUS",
               xl_path_join(a, xl_str_c(a, xl_str_of(getenv("PWD") ? getenv("PWD") : ".")), opt.prometheus), 1);
    if (opt.capture)
        setenv("XLANE_CAPTURE", opt.capture, 1);
    if (opt.capture_every > 0)
        setenv("XLANE_CAPTURE_EVERY", xl_strf(a, "%lld", (long long)opt.capture_every).p, 1);
    if (opt.capture_times > 0)
        setenv("XLANE_CAPTURE_TIMES", xl_strf(a, "%lld", (long long)opt.capture_times).p, 1);
    if (opt.capture_check)
        setenv("XLANE_CAPTURE_CHECK", "1", 1);
    if (opt.capture_module)
        setenv("XLANE_CAPTURE_MODULE", opt.capture_module, 1);
    if (opt.capture_max)
        setenv("XLANE_CAPTURE_MAX", xl_strf(a, "%llu", (unsigned long long)opt.capture_max).p, 1);
    xl_buf watch = { 0 };
    for (size_t i = 0; i < opt.watch.n; i++)
        xl_buf_printf(&watch, "%s%s", i ? "," : "", opt.watch.p[i]);
    if (watch.n)
        setenv("XLANE_WATCH", watch.p, 1);
    xl_buf_fini(&watch);
out:
    return err;
}

/* Who asks JAX for several devices of the CPU means those of the embedded one too. */
static void count_devices(xl_arena *a)
{
    static const char flag[] = "--xla_force_host_platform_device_count=";
    const char *from = "JAX_NUM_CPU_DEVICES", *flags = getenv("XLA_FLAGS"), *number = getenv(from);
    int64_t n;
    for (const char *p = number && *number ? NULL : flags; p && (p = strstr(p, flag)); from = "XLA_FLAGS")
        number = p += sizeof flag - 1;                     /* the last one counts */
    xl_str text = xl_str_of(number ? number : "");
    if (getenv("XLANE_CPU_DEVICES") || !xl_str_i64(xl_str_cut(&text, ' '), &n) || n < 2 || n > 4096)
        return;
    setenv("XLANE_CPU_DEVICES", xl_strf(a, "%lld", (long long)n).p, 1);
    fprintf(stderr, "xlane: the embedded device shows %lld devices, since %s asks for as many of the CPU "
                    "(XLANE_CPU_DEVICES is another way to say it)\n", (long long)n, from);
}

/* A profile for the embedded device also says where that is, so that it works without the wheel. */
static xl_error *embedded(xl_arena *a, const xl_profile *p)
{
    const xl_setting *s = xl_profile_get(p, "device.plugin");
    if (!s || !xl_str_is(s->value, "cpu"))
        return NULL;
    xl_error *err = NULL;
    xl_plugin_choice c;
    XL_DO(xl_plugin_find(a, &(xl_plugin_wish){ .named = "cpu" }, &c));
    setenv("PJRT_NAMES_AND_LIBRARY_PATHS", xl_strf(a, "xlane:%s", c.path).p, 0);
    setenv("PJRT_LIBRARY_PATH", c.path, 0);
    count_devices(a);
out:
    return err;
}

/* Packages are looked for beside the python3 in PATH; where the command names another Python, that one counts. Gives
 * PATH as it was, to be put back: the program's own PATH is not ours to change. */
static const char *python_first(xl_arena *a, const char *program)
{
    const char *path = getenv("PATH");
    const char *before = path ? xl_str_c(a, xl_str_of(path)) : "";
    if (strchr(program, '/') && xl_str_starts(xl_path_base(xl_str_of(program)), XL_STR("python")))
        setenv("PATH", xl_strf(a, "%.*s:%s", XL_FMT(xl_path_dir(xl_str_of(program))), before).p, 1);
    return before;
}

/* The run's events, read once when it has ended. */
typedef struct {
    xl_node **p;
    size_t n;
    bool stopped;                                          /* the policy ended it */
} event_list;

static void read_events(xl_arena *a, const char *dir, event_list *log)
{
    *log = (event_list){ 0 };
    xl_error_free(xl_run_events(a, dir, &log->p, &log->n));
    for (size_t i = 0; i < log->n && !log->stopped; i++) {
        const xl_node *what = xl_node_get(log->p[i], "event");
        log->stopped = what && xl_str_is(what->s, "stop");
    }
}

/* "JAX_LOG_COMPILES=1": the diagnostic switches, where the environment has them and the profile none; else empty. */
static xl_str only_environment(xl_arena *a, const xl_profile *p)
{
    xl_str all = { "", 0 };
    for (size_t i = 0; i < p->n; i++) {
        const xl_setting *s = &p->set[i];
        if (!xl_setting_diagnoses(s))
            continue;
        if (!s->var || !xl_str_is(s->origin, "environment"))
            return (xl_str){ "", 0 };
        all = xl_strf(a, "%.*s%s%s=%.*s", XL_FMT(all), all.n ? " " : "", s->var, XL_FMT(s->value));
    }
    return all;
}

/* log: NULL when it begins. */
static xl_error *write_run(xl_arena *a, const char *dir, const xl_profile *profile, int argc, char **argv,
                           const char *cache, double began, double ended, int status, const event_list *log)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    xl_bundle bundle;
    char iso[XL_TIME_ISO], cwd[4096];
    xl_json_map(&j);
    xl_json_key(&j, "command");
    xl_json_list(&j);
    for (int i = 0; i < argc; i++)
        xl_json_str(&j, xl_secret_arg(a, argc, argv, i));
    xl_json_end(&j);
    xl_json_put_text(&j, "folder", getcwd(cwd, sizeof cwd) ? cwd : "");
    xl_json_put_text(&j, "began", xl_time_iso(began, iso));
    xl_json_put_int(&j, "launcher", (int64_t)getpid());
    if (ended > 0) {
        xl_json_put_text(&j, "ended", xl_time_iso(ended, iso));
        xl_json_put_num(&j, "seconds", ended - began);
        xl_json_put_int(&j, "status", log->stopped ? XL_EXIT_STOPPED : status);
        if (log->stopped) {
            xl_json_put_text(&j, "end", "stopped by the policy");
            xl_json_put_int(&j, "command_status", status);
        }
    }
    xl_json_put_text(&j, "profile", getenv("XLANE_PROFILE"));
    xl_json_put_bool(&j, "diagnostic", profile->diagnostic);
    xl_str switches = only_environment(a, profile);
    if (switches.n)
        xl_json_put_str(&j, "diagnostic_by", switches);
    xl_json_key(&j, "launch");
    xl_profile_json(&j, profile);
    for (size_t i = 0; log && i < log->n; i++) { /* what the plugin really saw: frontends add flags of their own */
        const xl_node *what = xl_node_get(log->p[i], "event"), *flags = xl_node_get(log->p[i], "flags");
        if (what && flags && xl_str_is(what->s, "client")) {
            xl_json_put_str(&j, "flags_at_load", flags->s);
            break;
        }
    }
    xl_json_put_text(&j, "policy", opt.policy);
    xl_json_put_text(&j, "cache", cache);
    xl_json_key(&j, "environment");
    xl_json_map(&j);
    static const char *const prefixes[] = { "XLA_", "LIBTPU_", "PJRT_", "TPU_", "JAX_", "PT_XLA_", "XLANE_" };
    extern char **environ;
    for (char **e = environ; *e; e++)
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            if (!strncmp(*e, prefixes[i], strlen(prefixes[i]))) {
                xl_str value = xl_str_of(*e), name = xl_str_cut(&value, '=');
                xl_json_keyn(&j, name);
                xl_json_str(&j, xl_secret_env(a, name, value));
                break;
            }
    xl_json_end(&j);
    const char *path = python_first(a, argv[0]);
    xl_bundle_collect(a, NULL, &bundle);
    setenv("PATH", path, 1);
    xl_json_key(&j, "bundle");
    xl_bundle_json(&j, &bundle);
    xl_json_end(&j);
    xl_error *err = b.failed ? XL_ERR(EXHAUSTED, "out of memory")
                             : xl_file_write_atomic(xl_path_join(a, dir, "run.json"), xl_buf_view(&b));
    xl_buf_fini(&b);
    return err;
}

/* XLA's GPU clients take most of the card with their first buffer, which a short program waits for. */
static void suggest_growth(xl_arena *a, const event_list *log, double seconds)
{
    static const double short_s = 120, worth_s = 0.3;
    const char *asked = getenv("XLA_PYTHON_CLIENT_PREALLOCATE");
    double took = 0;
    if (seconds > short_s || (asked && (!strcmp(asked, "false") || !strcmp(asked, "0"))))
        return;
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *what = xl_node_get(log->p[i], "event"), *path = xl_node_get(log->p[i], "plugin");
        double s = 0;
        if (!what || !xl_str_is(what->s, "first_buffer") || !path)
            continue;
        const char *kind = xl_plugin_kind(xl_str_c(a, path->s));
        xl_error *err = xl_node_get_float(log->p[i], "seconds", &s);
        took = !err && kind && !strcmp(kind, "cuda") && s > took ? s : took;
        xl_error_free(err);
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
        if (t[i].timed >= 10 && t[i].gap > 0.5 * t[i].median && t[i].gap > 1e-3) {
            fprintf(
                stderr,
                "xlane: a step of %.*s takes %.3g ms, and the device waits %.3g ms of it for the host (medians)%s\n",
                XL_FMT(t[i].module), t[i].median * 1e3, t[i].gap * 1e3,
                2 * (uint64_t)again >= t[i].steps ? ", which traces and compiles in it; `xlane explain last` says why"
                                                  : "; `xlane metrics last` has more");
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
    if (v->since)
        fprintf(stderr, "; %d program%s of an earlier run %s compiled again", v->since, v->since == 1 ? "" : "s",
                v->since == 1 ? "was" : "were");
    int ops = ops_again(v);
    if (ops)
        fprintf(stderr, "; single ops compiled again for new shapes %d time%s", ops, ops == 1 ? "" : "s");
    fprintf(stderr, "%s\n", any || v->since || ops ? "; `xlane explain last` says why" : "");
}

/* full: run.json could not be written. */
static void summary(xl_arena *a, const char *dir, const xl_profile *p, double seconds, int status, bool stopped,
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
        unsigned long long executes = gaps.executes, waited = 0, checked = xl_metrics_total(m, XL_M_NanCheck);
        for (size_t i = 0; i < v.nunit; i++)
            waited += v.unit[i]->step ? v.unit[i]->waited : 0;
        fprintf(stderr,
                "xlane: %llu compiled, %llu from the cache, %llu from the frontend's own cache; %.*s in %llu process%s"
                "%.*s\n",
                (unsigned long long)(lost ? (uint64_t)v.compiled : made),
                (unsigned long long)(lost ? (uint64_t)v.cached : cached),
                (unsigned long long)(lost ? (uint64_t)v.loaded : loaded),
                XL_FMT(least && !executes
                           ? XL_STR("executions were not counted")
                           : xl_strf(a, "%s%llu execution%s", least ? "at least " : "", executes,
                                     executes == 1 ? "" : "s")),
                (unsigned long long)gaps.processes, gaps.processes == 1 ? "" : "es",
                XL_FMT(least ? why_lost(a, &v, full) : XL_STR("")));
        say_changes(&v, gaps.processes);
        if (!gaps.counters && !(least && !waited))
            fprintf(stderr, "xlane: %s%llu step%s waited until the host had read a result (float, print, .item()%s)\n",
                    least ? "at least " : "", waited,
                    waited == 1 ? "" : "s", xl_verdict_sized(&v) ? ", or a size that depends on data" : "");
        if (!gaps.counters && checked)
            fprintf(stderr, "xlane: %s%llu step%s waited while JAX looked for NaN in the results (jax_debug_nans)\n",
                    least ? "at least " : "", checked, checked == 1 ? "" : "s");
        say_gap(a, dir, &v);
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
        fprintf(stderr, "xlane: diagnostic: %.*s is %.*s (%.*s), which adds work: the timings are no benchmark\n",
                XL_FMT(s->var && !s->flag ? xl_str_of(s->var) : s->name), XL_FMT(s->value), XL_FMT(s->origin));
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

/* ---- one attempt
 * --------------------------------------------------------------------------------------------------------- */
/* Standard error goes through us, and on. A grandchild may keep the pipe open: once the child is gone, what is there is
 * taken. */
static void pump(int fd, pid_t pid, xl_tail *t, int *status)
{
    char piece[1 << 14];
    bool gone = false;
    for (;;) {
        struct pollfd p = { fd, POLLIN, 0 };
        int ready = poll(&p, 1, gone ? 0 : 200);
        if (ready > 0) {
            ssize_t n = read(fd, piece, sizeof piece);
            if (n <= 0 && !(n < 0 && errno == EINTR))
                break;
            if (n > 0) {
                xl_tail_keep(t, piece, (size_t)n);
                (void)!write(2, piece, (size_t)n);
            }
        } else if (gone) {
            return;
        }
        gone = gone || waitpid(pid, status, WNOHANG) == pid;
    }
    while (!gone && waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
}

/* The process of the command: it may go on when this one is killed. */
static void tell_command(xl_run *r, pid_t pid)
{
    xl_event e;
    xl_event_begin(r, &e, "command");
    xl_json_put_int(&e.j, "program", pid);
    xl_event_end(r, &e);
}

static xl_error *attempt(xl_run *run, char **argv, xl_tail *t, int *status)
{
    int words[2] = { -1, -1 };
    fflush(NULL);
    xl_relay_begin();
    if (t->p && pipe2(words, O_CLOEXEC)) {
        xl_relay_to(0);
        xl_relay_end();
        return XL_ERR(EXHAUSTED, "making a pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        xl_relay_child();
        if (words[1] >= 0)
            dup2(words[1], 2);
        execvp(argv[0], argv);
        fprintf(stderr, "xlane: %s: %s; nothing ran: check the command and its path\n", argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    int e = errno;
    if (words[1] >= 0)
        close(words[1]);
    xl_relay_to(pid > 0 ? pid : 0);
    if (pid > 0) {
        tell_command(run, pid);
        if (words[0] >= 0)
            pump(words[0], pid, t, status);
        else
            while (waitpid(pid, status, 0) < 0 && errno == EINTR)
                ;
    }
    xl_relay_end();
    if (words[0] >= 0)
        close(words[0]);
    return pid < 0 ? XL_ERR(UNAVAILABLE, "starting %s: %s", argv[0], strerror(e)) : NULL;
}

/* The ranks of a job; the status is that of the one that failed first. */
static void keep_words(void *ctx, const char *p, size_t n) { xl_tail_keep(ctx, p, n); }

static xl_error *attempt_ranks(xl_arena *a, xl_run *run, char **argv, xl_tail *t, xl_buf *words, int *status)
{
    int n = (int)opt.n, first;
    xl_gang_rank *r = xl_new(a, xl_gang_rank, (size_t)n);
    xl_gang g = { .n = n, .argv = argv, .keep = keep_words, .ctx = t, .grace = 5 };
    xl_error *err = xl_gang_run(&g, r, &first);
    if (err)
        return err;
    *status = first >= 0 ? r[first].status : 0;
    xl_gang_tell(a, run, &g, r, first, words);
    return NULL;
}

/* ---- attempts
 * -------------------------------------------------------------------------------------------------------------- */
static void put_command(xl_json *j, char **argv)
{
    xl_json_key(j, "command");
    xl_json_list(j);
    for (; *argv; argv++)
        xl_json_text(j, *argv);
    xl_json_end(j);
}

static void tell_attempt(xl_run *r, int64_t number, char **argv)
{
    xl_event e;
    xl_event_begin(r, &e, "attempt");
    xl_json_put_int(&e.j, "number", number);
    put_command(&e.j, argv);
    xl_event_end(r, &e);
}

static void tell_end(xl_run *r, int code, int sig, xl_phase phase)
{
    xl_event e;
    xl_event_begin(r, &e, "end");
    xl_json_put_int(&e.j, "status", code);
    xl_json_put_int(&e.j, "signal", sig);
    xl_json_put_text(&e.j, "phase", xl_phase_word(phase));
    xl_event_end(r, &e);
}

static void tell_retry(xl_run *r, const xl_failure *f, xl_phase phase, int64_t number, int code, char **argv,
                       const char *then)
{
    xl_event e;
    xl_event_begin(r, &e, "retry");
    xl_json_put_int(&e.j, "attempt", number);
    xl_json_put_int(&e.j, "status", code);
    xl_json_put_text(&e.j, "phase", xl_phase_word(phase));
    xl_failure_json(&e.j, f);
    xl_json_put_text(&e.j, "then", then);
    put_command(&e.j, argv);
    xl_event_end(r, &e);
}

/* The command of the k-th smaller candidate. */
static char **shrunk(xl_arena *a, int argc, char **argv, size_t k)
{
    size_t n = 0, cap = 0;
    char **out = NULL;
    for (int i = 0; i < argc; i++)
        XL_PUSH(a, out, n, cap, argv[i]);
    xl_str rest = xl_str_of(k ? opt.smaller.p[k - 1] : "");
    while (rest.n) {
        xl_str word = xl_str_cut(&rest, ' ');
        if (word.n)
            XL_PUSH(a, out, n, cap, xl_str_c(a, word));
    }
    XL_PUSH(a, out, n, cap, NULL);
    return out;
}

/* ---- candidates: the command, then with each --smaller, in the order in which they are tried
 * ---------------------------------- */
typedef struct { size_t at; xl_known known; } candidate;    /* at: 0 the command as it is, k with the k-th --smaller */

static int by_known(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    return a->known != b->known ? (int)a->known - (int)b->known : (a->at > b->at) - (a->at < b->at);
}

static xl_catalog_launch launch_of(xl_arena *a, char **argv)
{
    static const char *const devices[] = { "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_MEM_FRACTION",
                                           "XLANE_CPU_DEVICES", "XLANE_CPU_HBM" }; /* how many, how large */
    char flags[16384], cwd[4096];
    int n = 0;
    while (argv[n])
        n++;
    xl_identity_flags(flags, sizeof flags);
    xl_buf all = { 0 };
    xl_buf_puts(&all, flags);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (getenv(devices[i]))
            xl_buf_printf(&all, "%s%s=%s", all.n ? " " : "", devices[i], getenv(devices[i]));
    if (opt.n > 1)
        xl_buf_printf(&all, "%sranks=%lld", all.n ? " " : "", (long long)opt.n);
    const char *kept = xl_str_c(a, xl_buf_view(&all)), *profile = getenv("XLANE_PROFILE");
    xl_buf_fini(&all);
    return (xl_catalog_launch){ n, argv, getcwd(cwd, sizeof cwd) ? xl_str_c(a, xl_str_of(cwd)) : "", kept,
                                profile ? profile : "" };
}

/* What the catalog knows to run is tried first, what it knows not to fit last. */
static candidate *order(xl_arena *a, int argc, char **argv)
{
    size_t n = opt.smaller.n + 1, have = 0;
    xl_catalog_entry *e = NULL;
    candidate *c = xl_new(a, candidate, n);
    if (n > 1)
        xl_error_free(xl_catalog_read(a, xl_catalog_dir(a), &e, &have, NULL));
    for (size_t i = 0; i < n; i++) {
        xl_catalog_launch l = launch_of(a, shrunk(a, argc, argv, i));
        c[i] = (candidate){ i, n > 1 ? xl_catalog_known_launch(a, e, have, &l, NULL) : XL_UNSEEN };
    }
    qsort(c, n, sizeof *c, by_known);
    if (c[0].at)
        fprintf(stderr, "xlane: the catalog knows \"%s\" to run here%s: it is tried first\n",
                opt.smaller.p[c[0].at - 1], c[n - 1].known == XL_KNOWN_BAD ? " and a larger one not to fit" : "");
    return c;
}

/* The next candidate after one that was too large: larger ones than that are left out. NULL: none. */
static const candidate *next_smaller(const candidate *c, const candidate *now)
{
    for (const candidate *k = now + 1; k <= c + opt.smaller.n; k++)
        if (k->at > now->at)
            return k;
    return NULL;
}

/* One line in the catalog for what came of an attempt: it came through its first compiles, or it did not fit. Other
 * failures say nothing of a launch. */
static void keep_outcome(xl_arena *a, const char *dir, size_t before, char **argv, int code, int sig, xl_phase phase,
                         const xl_failure *f)
{
    xl_catalog_entry e;
    xl_catalog_launch l = launch_of(a, argv);
    bool large = code && f->verdict == XL_RETRY_SMALLER && phase != XL_PHASE_RUN;
    if ((code && phase != XL_PHASE_RUN && !large && !sig) || !xl_catalog_of_run(a, dir, before, &l, &e))
        return;
    if (sig) {
        e.outcome = XL_OUTCOME_KILLED;
        e.class = xl_strf(a, "signal %d", sig);
        e.message = xl_strf(a, "%s, phase: %s", strsignal(sig), xl_phase_word(phase));
    } else if (large) {
        e.outcome = XL_OUTCOME_FAILED;
        e.class = xl_str_of(f->ecode[0] ? f->ecode : f->cause);
        e.message = xl_str_of(f->text);
    }
    xl_error *err = xl_catalog_add(xl_catalog_dir(a), &e);
    if (err)
        XL_LOG(INFO, "not kept in the catalog: %s", xl_error_message(err));
    xl_error_free(err);
}

static size_t count_events(xl_arena *a, const char *dir)
{
    xl_node **e;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    return n;
}

/* The furthest step that the events behind the first `before` tell of. */
static int64_t steps_since(xl_arena *a, const char *dir, size_t before)
{
    xl_node **e = NULL;
    size_t n = 0;
    int64_t most = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = before; i < n; i++) {
        const xl_node *step = xl_node_get(e[i], "step"), *all = xl_node_get(e[i], "steps");
        most = step && step->i > most ? step->i : most;
        most = all && all->i > most ? all->i : most;
    }
    return most;
}

/* What is in the way needs time to go. Gives the signal that ended the wait, or 0. */
static int wait_for_retry(int64_t attempt)
{
    static const double slice = 0.1;
    for (double s = attempt < 6 ? (double)(1 << (attempt - 1)) * 0.5 : 16; s > 0 && !xl_relay_stray(); s -= slice)
        xl_sleep(slice);
    return xl_relay_stray();
}

/* *ran: the command of the last attempt. */
static xl_error *attempts(xl_arena *a, const char *dir, int argc, char **argv, int *code, int64_t *made, char ***ran)
{
    xl_error *err = NULL;
    xl_run *r = NULL;
    xl_tail t = { 0 };
    xl_buf words = { 0 };                                  /* who failed first */
    xl_restarts again = { 0 };
    xl_error_free(xl_run_open(dir, &r));
    if (!r)
        return XL_ERR(EXHAUSTED, "out of memory");
    const candidate *all = order(a, argc, argv), *now = all;
    if (opt.retries > 0 || opt.restarts > 0)
        t.p = xl_arena_alloc(a, XL_TAIL);
    for (int64_t k = 1;; k++) {
        int status = 0;
        t.n = words.n = 0;
        *made = k;
        *ran = shrunk(a, argc, argv, now->at);
        if (opt.retries > 0 || opt.restarts > 0) {
            setenv("XLANE_ATTEMPT", xl_strf(a, "%lld", (long long)k).p, 1);
            tell_attempt(r, k, *ran);
        }
        size_t before = count_events(a, dir);
        XL_DO(opt.n > 1 ? attempt_ranks(a, r, *ran, &t, &words, &status) : attempt(r, *ran, &t, &status));
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        xl_buf texts = { 0 };
        xl_phase phase = xl_run_phase(a, dir, &texts);
        xl_buf_add(&texts, t.p ? t.p : "", t.n);
        xl_buf_str(&texts, xl_buf_view(&words));
        xl_failure f = xl_retry_classify(0, xl_buf_view(&texts), phase);
        xl_buf_fini(&texts);
        keep_outcome(a, dir, before, *ran, *code, sig, phase, &f);
        tell_end(r, *code, sig, phase);
        if (*code && opt.restarts > 0 && sig != SIGINT && sig != SIGTERM && sig != SIGHUP && sig != SIGQUIT) {
            const char *then;
            int64_t at = steps_since(a, dir, before);
            bool once_more = xl_restart(&again, opt.restarts, &f, at, &then);
            xl_restart_tell(r, &again, &f, at, then);
            if (once_more)
                continue;
        }
        if (!*code || opt.retries <= 0)
            break;
        if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT || sig == SIGKILL)
            f.again = false;                               /* somebody wanted it to end */
        const candidate *next = next_smaller(all, now);
        const char *then = "tried again";
        if (!f.again)
            then = phase == XL_PHASE_RUN ? "stopped: it failed after the compile window, where nothing is retried"
                                         : "stopped: a retry could not help";
        else if (f.verdict == XL_RETRY_SMALLER && !next)
            then = opt.smaller.n ? "stopped: no smaller candidate is left"
                                 : "stopped: no smaller candidate was given (--smaller)";
        else if (k > opt.retries)
            then = "stopped: no retries are left";
        else if (f.verdict == XL_RETRY_SMALLER)
            then = "tried again with the next smaller candidate";
        bool again = !strncmp(then, "tried", 5);
        tell_retry(r, &f, phase, k, *code, *ran, then);
        fprintf(stderr, "xlane: attempt %lld failed with %d at %s: %s (%s, %s); %s\n", (long long)k, *code,
                xl_phase_word(phase), f.text, f.cause, xl_retry_word(f.verdict), then);
        if (!again)
            break;
        if (f.verdict == XL_RETRY_SMALLER)
            now = next;
        else if ((sig = wait_for_retry(k))) {
            *code = 128 + sig;
            fprintf(stderr, "xlane: ended by signal %d (%s) while it waited to try again\n", sig, strsignal(sig));
            break;
        }
    }
out:
    xl_buf_fini(&words);
    xl_run_close(r);
    return err;
}

static xl_error *prove(xl_arena *a, const xl_profile *p)
{
    xl_error *err = NULL;
    xl_probe probe;
    const xl_setting *s = xl_profile_get(p, "device.plugin");
    XL_DO(xl_probe_run(a, &(xl_probe_opts){ .profile = s && s->value.n ? xl_str_c(a, s->value) : NULL }, &probe));
    if (probe.class != XL_PROBE_HEALTHY)
        err = XL_ERR(UNAVAILABLE, "not started, for the device does not answer: %s: %.*s; %.*s",
                     xl_probe_word(probe.class), XL_FMT(probe.reason), XL_FMT(probe.next));
out:
    return err;
}

/* *named: by the user or a profile, who then want to know if it cannot be had. */
static const char *cache_folder(xl_arena *a, bool *named)
{
    const char *cache = opt.cache;
    if (!cache)
        cache = getenv("XLANE_CACHE");
    *named = cache && *cache;
    if (!*named)
        cache = xl_home_cache(a);
    if (!cache) {
        fprintf(stderr, "xlane: no cache of executables: HOME is not set; --cache=DIR names a folder for it\n");
        cache = "off";
    }
    if (xl_home_off(cache))
        return "off";
    if (!strstr(cache, "://") && cache[0] != '/') { /* the program may change folders */
        char cwd[4096];
        if (getcwd(cwd, sizeof cwd))
            cache = xl_path_join(a, cwd, cache);
    }
    return cache;
}

static const char *added(xl_arena *a, char **words)
{
    xl_buf b = { 0 };
    for (; *words; words++)
        xl_buf_printf(&b, "%s%s", b.n ? " " : "", *words);
    const char *s = xl_str_c(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return s;
}

static bool captures(const char *when)
{
    int64_t n;
    return !strcmp(when, "nonfinite") || !strcmp(when, "signal") || !strcmp(when, "slow") ||
           (!strncmp(when, "step:", 5) && xl_str_i64(xl_str_of(when + 5), &n) && n > 0);
}

static xl_error *check_options(const xl_cli *cli, const xl_ranks *seen)
{
    if (opt.policy && strcmp(opt.policy, "allow") && strcmp(opt.policy, "warn") && strcmp(opt.policy, "stop"))
        return xl_cli_misuse(cli, "--policy is allow, warn or stop, not %s", opt.policy);
    if (opt.n > 1 && seen->n > 1)
        return xl_cli_misuse(cli, "-n starts ranks, and %s has started %lld already (%s): leave -n out, and they join",
                             seen->launcher, (long long)seen->n, seen->variable);
    if (opt.restarts && opt.n == 1)
        return xl_cli_misuse(cli, "--restarts starts all ranks of -n again; one process alone has --retries");
    if (opt.n < 1 || opt.n > 4096)
        return xl_cli_misuse(cli, "-n is the number of ranks, from 1 to 4096, not %lld", (long long)opt.n);
    if (opt.capture && !captures(opt.capture))
        return xl_cli_misuse(cli, "--capture is nonfinite, step:N, signal or slow, not %s", opt.capture);
    return NULL;
}

/* The guard writes it again and again, inside the program: what is in the way is said before. */
static xl_error *check_scraped(void)
{
    xl_file_out o;
    if (!opt.prometheus)
        return NULL;
    xl_error *err = xl_file_out_open(&o, opt.prometheus, 0600);
    xl_file_out_close(&o);
    return err ? xl_error_next(xl_error_wrap(err, "--prometheus"), "--prometheus=FILE names another") : NULL;
}

static xl_error *apply_profile(xl_arena *a, xl_profile *profile)
{
    xl_error *err = NULL;
    XL_DO(xl_profile_effective(a, opt.profile, profile));
    if (opt.profile) {
        XL_DO(xl_profile_apply(a, profile));
        XL_DO(embedded(a, profile));
        for (size_t i = 0; i < profile->n; i++)
            if (profile->set[i].shadow.n)
                fprintf(stderr, "xlane: profile %.*s sets %.*s to %.*s; the environment's %.*s does not count\n",
                        XL_FMT(profile->name), XL_FMT(profile->set[i].name), XL_FMT(profile->set[i].value),
                        XL_FMT(profile->set[i].shadow));
    }
    if (!opt.policy) {
        const xl_setting *s = xl_profile_get(profile, "shapes.policy");
        opt.policy = s && s->value.n ? xl_str_c(a, s->value) : "warn";
    }
    if (opt.probe)
        XL_DO(prove(a, profile));
out:
    return err;
}

/* The folder for executables, or "off"; what is wrong with it is said now, not from inside the program. */
static xl_error *choose_cache(xl_arena *a, const char **out)
{
    xl_error *err = NULL;
    bool named;
    const char *cache = cache_folder(a, &named);
    if (opt.read_only && strcmp(cache, "off") && !strstr(cache, "://") && !xl_file_stat(cache, NULL)) {
        fprintf(stderr,
                "xlane: %s is not there yet, so a follower that only reads it runs without a cache; start the one that "
                "writes it first\n",
                cache);
        cache = "off";
    }
    if (strcmp(cache, "off")) {
        xl_cache *probe;
        xl_cache_opts how = { .read_only = opt.read_only, .segment = opt.segment };
        err = xl_cache_open(cache, &how, &probe);
        if (err && named) {
            err = xl_error_next(err, "--cache=DIR names another folder for executables, --cache=off goes without one");
            goto out;
        }
        if (err) {                                         /* nobody asked for it: the program runs all the same */
            fprintf(stderr, "xlane: no cache of executables: %s; --cache=DIR names another folder for it\n",
                    xl_error_message(err));
            xl_error_free(err);
            err = NULL;
            *out = "off";
            goto out;
        }
        xl_cache_close(probe);
        const char *others = xl_cache_writers(a, cache);
        if (*others)
            fprintf(stderr, "xlane: %s\n", others);
    }
    *out = cache;
out:
    return err;
}

/* The command is found as execvp does it, before a run folder is made for one that cannot start. *code: a shell's
 * status for that, else 0. */
static void find_command(xl_arena *a, const char *name, int *code)
{
    const char *path = getenv("PATH");
    xl_str rest = xl_str_of(path ? path : "/bin:/usr/bin");
    bool here = strchr(name, '/') != NULL, there = false;
    struct stat st;
    *code = 0;
    for (bool more = true; more;) {
        more = !here && memchr(rest.p, ':', rest.n);
        xl_str dir = xl_str_cut(&rest, ':');
        const char *file = here ? name : xl_path_join(a, dir.n ? xl_str_c(a, dir) : ".", name);
        if (stat(file, &st) || !S_ISREG(st.st_mode))
            continue;
        if (access(file, X_OK) == 0)
            return;
        there = true;
    }
    bool found = stat(name, &st) == 0, file = found && S_ISREG(st.st_mode);
    int why = there || (here && !found && errno == EACCES) ? EACCES : here && found ? EISDIR : ENOENT;
    bool script = file && xl_str_ends(xl_str_of(name), XL_STR(".py"));
    *code = why == EACCES ? 126 : 127;
    fprintf(stderr, "xlane: %s: ", name);
    if (script)
        fprintf(stderr, "%s; nothing ran: did you mean `python %s`?\n",
                here || there ? "this file is not executable" : "this is a file here, not a command", name);
    else if (file && !here)
        fprintf(stderr, "this is a file here, not a command; nothing ran: did you mean ./%s?\n", name);
    else if (file)
        fprintf(stderr, "this file is not executable; nothing ran: chmod +x makes it so\n");
    else
        fprintf(stderr, "%s; nothing ran: check the command and its path\n", strerror(why));
}

/* What the run's events and its status say of the guard, in words; full: they may not have been written. */
static void tell_guard(const event_list *log, int code, bool full)
{
    bool attached = false, builtin = false;
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *what = xl_node_get(log->p[i], "event");
        attached |= what && xl_str_is(what->s, "attach");
        builtin |= what && xl_str_is(what->s, "unguarded"); /* said already, with the remedy */
    }
    const char *off = getenv("XLANE_GUARD"), *named = getenv("PJRT_NAMES_AND_LIBRARY_PATHS");
    if (off && !strcmp(off, "off"))
        fprintf(stderr, "xlane: " XL_GUARD_OFF ": nothing was guarded, and no compile was recorded\n");
    else if (!attached && full)
        fprintf(stderr, "xlane: what the guard saw, if anything, could not be written\n");
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
static void tell_cache(const event_list *log, const char *cache)
{
    unsigned long n = 0;
    xl_str why = { "", 0 };
    for (size_t i = log->n; i-- > 0;) {
        const xl_node *event = xl_node_get(log->p[i], "event"), *what = xl_node_get(log->p[i], "what"),
                      *error = xl_node_get(log->p[i], "error");
        if (!event || !what || !error || !xl_str_is(event->s, "fault") || !xl_str_is(what->s, XL_FAULT_CACHE))
            continue;
        why = error->s;
        n++;
    }
    if (n)
        fprintf(stderr,
                "xlane: %lu executable%s could not be written to the cache in %s, so the next start compiles %s again: "
                "%.*s; --cache=DIR names another folder, --cache-read-only writes to none\n",
                n, n == 1 ? "" : "s", cache, n == 1 ? "it" : "them", XL_FMT(why));
}

static void tell_unseen_one(xl_str name, const event_list *log)
{
    enum { SHOWN = 8 };
    xl_str seen[SHOWN] = { 0 };
    size_t ns = 0, more = 0;
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *what = xl_node_get(log->p[i], "event"), *m = xl_node_get(log->p[i], "module");
        if (!what || !m || !xl_str_is(what->s, "compile"))
            continue;
        xl_str rest = m->s, module = xl_contract_group(xl_str_cut(&rest, '@'));
        if (xl_str_eq(name, m->s) || xl_str_eq(name, module))
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
            "xlane: --watch=%.*s: no module of this name was compiled, so it was not watched; there were %.*s%s\n",
            XL_FMT(name), XL_FMT(xl_buf_view(&b)), more ? ", ..." : "");
    xl_buf_fini(&b);
}

/* Names given to --watch that never came: misspelt, or without jit_ before them. */
static void tell_unseen(const event_list *log)
{
    for (size_t i = 0; i < opt.watch.n; i++)
        for (xl_str rest = xl_str_of(opt.watch.p[i]); rest.n;) {
            xl_str one = xl_str_trim(xl_str_cut(&rest, ','));
            if (one.n)
                tell_unseen_one(one, log);
        }
}

/* ran: the candidate that really ran, which may not be the command as it was typed. */
static void write_receipt(xl_arena *a, char *dir, int argc, char **ran, int64_t made, int code, const char *cache,
                          bool full)
{
    int nran = 0;
    while (ran[nran])
        nran++;
    xl_receipt_note took = {
        xl_strf(a, "it took %lld attempts; the command is that of the last, \"%s\" was added to what was typed",
                (long long)made, nran > argc ? added(a, ran + argc) : "nothing")
            .p,
        "events.jsonl"
    };
    xl_receipt_facts facts = { .kind = "run",
                               .dir = dir,
                               .argc = nran,
                               .argv = ran,
                               .status = code,
                               .cache = strcmp(cache, "off") ? cache : NULL,
                               .note = &took,
                               .nnote = made > 1 || nran > argc };
    xl_error *unwritten = xl_receipt_write(a, &facts, NULL);
    if (unwritten && !full)                                /* or it has been said */
        fprintf(stderr, "xlane: no receipt: %s; --runs=DIR names another folder\n",
                xl_error_message(unwritten));
    xl_error_free(unwritten);
}

/* What a run is called: the first script or Python module of the command ("timeout 60 python train.py"), else the
 * first argument that is a file, else the command. */
static const char *program_name(xl_arena *a, int argc, char **argv)
{
    const char *name = NULL;
    struct stat st;
    for (int i = 0; i < argc && !name; i++)
        if (xl_str_ends(xl_str_of(argv[i]), XL_STR(".py")))
            name = argv[i];
        else if (i && i + 1 < argc && !strcmp(argv[i], "-m"))
            name = argv[i + 1];
    for (int i = 1; i < argc && !name; i++)
        if (argv[i][0] != '-' && stat(argv[i], &st) == 0 && S_ISREG(st.st_mode))
            name = argv[i];
    return xl_str_c(a, xl_path_base(xl_str_of(name ? name : argv[0])));
}

/* Below no folder: what is asked of it there is not there, and nothing can be made. */
static const char UNRECORDED[] = "/dev/null/unrecorded";

/* One that was named must be there, and so must the one of a capture; otherwise the program runs all the same. */
static bool folder_named(void)
{
    const char *variable = getenv("XLANE_RUNS");
    return opt.runs || opt.capture || (variable && *variable);
}

/* The run folder; link: of the ranks of `job`; NULL: none is joined. */
static xl_error *choose_folder(xl_arena *a, const char *name, const char *job, char **dir, char **link)
{
    const char *runs = opt.runs ? opt.runs : xl_runs_folder();
    xl_error *err = job ? xl_job_folder(a, runs, name, job, dir, link) : xl_run_make(a, runs, name, dir);
    if (!err || folder_named())
        return err;
    fprintf(stderr, "xlane: this run is not recorded: %s\n", xl_error_message(err));
    xl_error_free(err);
    *dir = xl_str_c(a, xl_str_of(UNRECORDED));
    *link = NULL;
    return NULL;
}

static xl_error *run(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    char *dir;
    const char *cache;
    xl_profile profile;
    xl_ranks seen = xl_ranks_seen();
    XL_DO(check_options(cli, &seen));
    XL_DO(check_scraped());
    XL_DO(apply_profile(a, &profile));
    int code = 0;
    find_command(a, argv[0], &code);
    if (code) {
        xl_cli_exit(cli, code);
        goto out;
    }
    XL_DO(choose_cache(a, &cache));
    const char *name = opt.name ? opt.name : program_name(a, argc, argv);
    const char *job = xl_job_name(a);
    char *link = NULL;
    bool joins = opt.n == 1 && seen.n > 1 && *job, leads = !joins || seen.me == 0;
    XL_DO(choose_folder(a, name, joins ? job : NULL, &dir, &link));
    bool told_full = false, recorded = strcmp(dir, UNRECORDED) != 0;
    char *absolute = realpath(dir, NULL);
    if (absolute) {
        dir = xl_str_c(a, xl_str_of(absolute));
        free(absolute);
    }
    double began = xl_now_wall(), clock = xl_now();
    XL_DO(environment(cli, dir, cache));
    leads &= recorded;
    if (leads) {
        err = write_run(a, dir, &profile, argc, argv, cache, began, 0, 0, NULL);
        if (err && folder_named()) {
            err = xl_error_wrap(err, "recording the run");
            goto out;
        }
        if (err)
            fprintf(stderr, "xlane: the record of this run is not complete: %s; --runs=DIR names another folder\n",
                    xl_error_message(err));
        told_full = err != NULL;
        xl_error_free(err);
        err = NULL;
    }
    if (leads)
        xl_error_free(
            xl_file_append(xl_path_join(a, dir, "events.jsonl"), XL_STR("{\"t\":0,\"rank\":0,\"event\":\"launch\"}")));
    int64_t made = 1;
    char **ran = argv;
    XL_DO(attempts(a, dir, argc, argv, &code, &made, &ran));
    double seconds = xl_now() - clock;
    event_list log = { 0 };
    if (recorded)
        read_events(a, dir, &log);
    xl_error *unrecorded =
        leads ? write_run(a, dir, &profile, argc, argv, cache, began, began + seconds, code, &log) : NULL;
    if (unrecorded && !told_full)
        fprintf(stderr,
                "xlane: the run's folder is not complete, and has no receipt: %s; --runs=DIR names another folder\n",
                xl_error_message(unrecorded));
    bool full = unrecorded != NULL;
    xl_error_free(unrecorded);
    if (leads && link)
        unlink(link);
    if (!recorded) {
        if (opt.summary || isatty(2))
            fprintf(stderr, "xlane: ran %.1f s, exit status %d; not recorded, so nothing of it was counted\n", seconds,
                    code);
        xl_cli_exit(cli, code);
        goto out;
    }
    tell_guard(&log, code, full);
    tell_unseen(&log);
    tell_cache(&log, cache);
    python_first(a, argv[0]);
    if (leads)
        write_receipt(a, dir, argc, ran, made, log.stopped ? XL_EXIT_STOPPED : code, cache, full);
    if (opt.summary || isatty(2))
        summary(a, dir, &profile, seconds, code, log.stopped, full);
    suggest_growth(a, &log, seconds);
    xl_cli_exit(cli, log.stopped ? XL_EXIT_STOPPED : code);
out:
    return err;
}

XL_VERB(run) = {
    .name = "run",
    .args = "[OPTIONS] -- CMD ...",
    .help = "run any JAX or PyTorch/XLA program under the guard",
    .more =
        "Caches the program's executables for the next start, compares each compile with earlier ones, counts "
        "compiles and\n"
        "executions, and watches for hangs. The program itself is not changed. Its exit status is passed through, "
        "except that 3\n"
        "means that the policy stopped it. XLANE_GUARD=off turns the guard off. To use the guard without this "
        "command, name\n"
        "libxlane-guard.so as the plugin and put the path of the real one into XLANE_GUARD_PLUGIN.\n"
        "A step is a compiled function that a loop calls over and over: one that ran three times, or that --watch "
        "names.\n"
        "With --retries, a failure at startup or in the first compiles is classified (docs/profiles.md) and retried "
        "only if that\n"
        "can help: as is after a pause, or with the arguments of the next --smaller. Later failures are never "
        "retried.\n"
        "With -n, the command runs N times, each with XLANE_RANK, XLANE_RANKS and XLANE_COORDINATOR in its "
        "environment, and what\n"
        "torchrun and PyTorch/XLA expect; a JAX program joins with jax.distributed.initialize(), without arguments. "
        "Output lines\n"
        "start with the rank; the exit status is that of the rank that failed first (docs/scale.md).",
    .example = "xlane run --policy stop -- python train.py --steps 1000",
    .opts = opts,
    .min = 1,
    .max = -1,
    .stop_at_first = true,
    .run = run,
    .no_json = "standard output is the program's; `xlane metrics last --json` and `xlane explain last --json` read "
               "what was recorded",
};
