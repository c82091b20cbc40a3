/* xlane run: any program under the guard. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/ranks.h"
#include "base/secret.h"
#include "base/time.h"
#include "base/word.h"
#include "cli/attempts.h"
#include "cli/cli.h"
#include "cli/run_tell.h"
#include "lane/cache.h"
#include "lane/job.h"
#include "lane/probe.h"
#include "lane/profile.h"
#include "lane/receipt.h"
#include "lane/run.h"
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
    { "profile", XL_OPT_PROFILE, &opt.profile, "NAME",
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
      "count this module (jit_step), or function (step), as a step from the start; others count after three "
      "executions" },
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

/* The devices that the run's clients had: flags that none of them reads added no work. */
static void devices_ran(xl_arena *a, xl_profile *p, const xl_run_ended *log)
{
    const char *kind = NULL;
    bool any = false;
    for (size_t i = 0; i < log->n; i++) {
        const xl_node *plugin = xl_node_is(log->p[i], "event", "client") ? xl_node_get(log->p[i], "plugin") : NULL;
        const char *own = plugin ? xl_plugin_kind(xl_str_c(a, plugin->s)) : NULL;
        if (!plugin || (any && own && !strcmp(own, "cpu")))
            continue;
        kind = own;
        any = true;
        if (!own || !strcmp(own, "tpu"))                   /* reads all of them, or may */
            break;
    }
    if (!any)
        return;
    xl_profile_device(p, kind);
    if (p->diagnostic)
        setenv("XLANE_DIAGNOSTIC", "1", 1);
    else
        unsetenv("XLANE_DIAGNOSTIC");
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
        all = xl_strf(a, "%.*s%s%.*s", XL_FMT(all), all.n ? " and " : "", XL_FMT(xl_setting_words(a, s)));
    }
    return all;
}

/* log: NULL when it begins. */
static xl_error *write_run(xl_arena *a, const char *dir, const xl_profile *profile, int argc, char **argv,
                           const char *cache, double began, double ended, int status, const xl_run_ended *log)
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
    if (opt.capture && !strncmp(opt.capture, "step:", 5) && !captures(opt.capture))
        return xl_cli_misuse(cli, "--capture=%s: it is step:N, and N starts at 1, the first execution", opt.capture);
    if (opt.smaller.n && !opt.retries)
        fprintf(stderr, "xlane: --smaller without --retries: after a failure none of its candidates is tried; "
                        "--retries=%zu tries all\n", opt.smaller.n);
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
        XL_DO(xl_profile_plugin(a, profile));
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
    const char *word = xl_word_of(a, name);
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
                here || there ? "this file is not executable" : "this is a file here, not a command", word);
    else if (file && !here)
        fprintf(stderr, "this is a file here, not a command; nothing ran: did you mean ./%s?\n", word);
    else if (file)
        fprintf(stderr, "this file is not executable; nothing ran: chmod +x makes it so\n");
    else
        fprintf(stderr, "%s; nothing ran: check the command and its path\n", strerror(why));
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

/* XLA ends a process at a flag that it does not know, and says so on the program's own standard error. The flags are
 * looked at only where the command has failed: reading a library's takes some tenths of a second. */
static void tell_flags(xl_arena *a, const xl_profile *p, const xl_run_ended *log)
{
    const char *plugin = NULL;
    xl_finding *f;
    size_t n = 0;
    for (size_t i = 0; i < log->n && !plugin; i++) {
        const xl_node *path = xl_node_is(log->p[i], "event", "attach") ? xl_node_get(log->p[i], "plugin") : NULL;
        plugin = path ? xl_str_c(a, path->s) : NULL;
    }
    const xl_setting *s = xl_profile_get(p, "device.plugin");
    xl_plugin_choice named = { 0 };
    if (!plugin && s && s->value.n) {
        xl_error_free(xl_plugin_find(a, &(xl_plugin_wish){ .named = xl_str_c(a, s->value) }, &named));
        plugin = named.path;
    }
    const char *kind = plugin ? xl_plugin_kind(plugin) : NULL;
    if (plugin && ((kind && !strcmp(kind, "cpu")) || !xl_file_stat(plugin, NULL)))
        plugin = NULL;                                     /* reads none */
    xl_error_free(xl_profile_check(a, p, plugin, xl_profile_frontend(a), &f, &n));
    for (size_t i = 0; i < n; i++)
        if (f[i].flag) {
            fprintf(stderr, "xlane: %.*s; `xlane profile check%s%s` checks all flags\n", XL_FMT(f[i].text),
                    opt.profile ? " " : "", opt.profile ? xl_word_of(a, opt.profile) : "");
            return;
        }
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
    const xl_attempts_opts tries = { opt.n, opt.retries, opt.restarts, opt.smaller };
    XL_DO(xl_attempts(a, &tries, dir, argc, argv, &code, &made, &ran));
    double seconds = xl_now() - clock;
    xl_run_ended log = { 0 };
    if (recorded)
        xl_run_ended_read(a, dir, &log);
    devices_ran(a, &profile, &log);
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
    xl_run_tell_guard(dir, &log, code, full);
    xl_run_tell_unseen(&log, &opt.watch);
    xl_run_tell_cache(&log, cache);
    python_first(a, argv[0]);
    if (code && leads)
        tell_flags(a, &profile, &log);
    if (leads)
        write_receipt(a, dir, argc, ran, made, log.stopped ? XL_EXIT_STOPPED : code, cache, full);
    if (opt.summary || isatty(2))
        xl_run_tell_summary(a, dir, &profile, seconds, code, log.stopped, full);
    xl_run_tell_growth(a, &log, seconds);
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
        "start with the rank; the exit status is that of the rank that failed first. SIGINT and SIGTERM go to all "
        "ranks; "
        "a\nsecond one kills those that are left (docs/scale.md).",
    .example = "xlane run --policy stop -- python train.py --steps 1000",
    .opts = opts,
    .min = 1,
    .max = -1,
    .stop_at_first = true,
    .run = run,
    .no_json = "standard output is the program's; `xlane metrics last --json` and `xlane explain last --json` read "
               "what was recorded",
};
