/* xlane run: any program under the guard. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/time.h"
#include "cli/cli.h"
#include "lane/bundle.h"
#include "lane/cache.h"
#include "lane/metrics.h"
#include "lane/run.h"

static struct {
    const char *cache, *segment, *policy, *runs, *name, *prometheus;
    uint64_t cache_max;
    int64_t warmup;
    double hang;
    xl_opt_list watch;
    bool read_only, summary;
} opt = { .policy = "warn", .runs = "runs", .warmup = 10, .hang = 120 };

static const xl_opt opts[] = {
    { "cache", XL_OPT_STR, &opt.cache, "DIR", "where executables are kept, or off (XLANE_CACHE, else ~/.cache/xlane)" },
    { "cache-max", XL_OPT_SIZE, &opt.cache_max, "SIZE", "how large it may grow before the least recently used go (10GiB)" },
    { "cache-read-only", XL_OPT_FLAG, &opt.read_only, NULL, "read the cache, never write it: for followers of one writer" },
    { "cache-segment", XL_OPT_STR, &opt.segment, "NAME", "a private part of the cache for this process or host" },
    { "policy", XL_OPT_STR, &opt.policy, "WORD", "allow, warn or stop when a step is compiled again after the warm-up window (warn)" },
    { "warmup", XL_OPT_INT, &opt.warmup, "STEPS", "how many steps the warm-up window has (10)" },
    { "watch", XL_OPT_REPEAT, &opt.watch, "MODULE", "a module that counts as a step from the start; others do once they ran three times" },
    { "hang", XL_OPT_NUM, &opt.hang, "SECONDS", "name a compile or execute that has not returned after this long (120)" },
    { "runs", XL_OPT_STR, &opt.runs, "DIR", "where run folders are made (runs)" },
    { "name", XL_OPT_STR, &opt.name, "NAME", "what to call this run (the program's name)" },
    { "prometheus", XL_OPT_STR, &opt.prometheus, "FILE", "keep counters in this file for a scraper, while it runs" },
    { "summary", XL_OPT_FLAG, &opt.summary, NULL, "five lines at the end, also when standard error is no terminal" },
    { 0 },
};

static volatile sig_atomic_t child;

/* A signal that came from the keyboard reaches the child by itself; one that was sent to us alone is passed on. */
static void pass_on(int sig, siginfo_t *info, void *unused)
{
    (void)unused;
    if (child > 0 && info->si_code <= 0)
        kill((pid_t)child, sig);
}

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
        return XL_ERR(NOT_FOUND, "libxlane-guard.so and libxlane-preload.so are neither beside this program in %s nor in ../lib from there; "
                                 "install them in one of the two", cli->dir);
    xl_error *err = NULL;
    XL_TRY(xl_path_trusted(guard), "not loading the guard");
    XL_TRY(xl_path_trusted(stub), "not preloading the guard");
    const char *before = getenv("LD_PRELOAD");
    setenv("LD_PRELOAD", before && *before ? xl_strf(a, "%s:%s", stub, before).p : stub, 1);
    setenv("XLANE_GUARD_LIBRARY", guard, 1);
    setenv("XLANE_RUN", dir, 1);
    setenv("XLANE_RUN_BEGAN", xl_strf(a, "%.6f", xl_now_wall()).p, 1);
    setenv("XLANE_CACHE", cache, 1);
    setenv("XLANE_POLICY", opt.policy, 1);
    setenv("XLANE_WARMUP", xl_strf(a, "%lld", (long long)opt.warmup).p, 1);
    setenv("XLANE_HANG", xl_strf(a, "%.0f", opt.hang).p, 1);
    if (opt.cache_max)
        setenv("XLANE_CACHE_MAX", xl_strf(a, "%llu", (unsigned long long)opt.cache_max).p, 1);
    if (opt.read_only)
        setenv("XLANE_CACHE_READ_ONLY", "1", 1);
    if (opt.segment)
        setenv("XLANE_CACHE_SEGMENT", opt.segment, 1);
    if (opt.prometheus)
        setenv("XLANE_PROMETHEUS", xl_path_join(a, xl_str_c(a, xl_str_of(getenv("PWD") ? getenv("PWD") : ".")), opt.prometheus), 1);
    xl_buf watch = { 0 };
    for (size_t i = 0; i < opt.watch.n; i++)
        xl_buf_printf(&watch, "%s%s", i ? "," : "", opt.watch.p[i]);
    if (watch.n)
        setenv("XLANE_WATCH", watch.p, 1);
    xl_buf_fini(&watch);
out:
    return err;
}

static xl_error *write_run(xl_arena *a, const char *dir, int argc, char **argv, const char *cache, double began, double ended, int status)
{
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    xl_bundle bundle;
    char iso[XL_TIME_ISO], cwd[4096];
    xl_json_map(&j);
    xl_json_key(&j, "command");
    xl_json_list(&j);
    for (int i = 0; i < argc; i++)
        xl_json_text(&j, argv[i]);
    xl_json_end(&j);
    xl_json_put_text(&j, "folder", getcwd(cwd, sizeof cwd) ? cwd : "");
    xl_json_put_text(&j, "began", xl_time_iso(began, iso));
    if (ended > 0) {
        xl_json_put_text(&j, "ended", xl_time_iso(ended, iso));
        xl_json_put_num(&j, "seconds", ended - began);
        xl_json_put_int(&j, "status", status);
    }
    xl_json_put_text(&j, "profile", getenv("XLANE_PROFILE"));
    xl_json_put_text(&j, "policy", opt.policy);
    xl_json_put_int(&j, "warmup", opt.warmup);
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
                xl_json_str(&j, value);
                break;
            }
    xl_json_end(&j);
    xl_bundle_collect(a, NULL, &bundle);
    xl_json_key(&j, "bundle");
    xl_bundle_json(&j, &bundle);
    xl_json_end(&j);
    xl_error *err = b.failed ? XL_ERR(EXHAUSTED, "out of memory") : xl_file_write_atomic(xl_path_join(a, dir, "run.json"), xl_buf_view(&b));
    xl_buf_fini(&b);
    return err;
}

static void summary(xl_arena *a, const char *dir, double seconds, int status, bool stopped)
{
    xl_metrics *m = NULL;
    xl_node **e = NULL;
    size_t n = 0, processes = 0, again = 0;
    xl_error_free(xl_metrics_read(a, dir, &m, &processes));
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        const xl_node *what = xl_node_get(e[i], "event"), *phase = xl_node_get(e[i], "phase"), *reason = xl_node_get(e[i], "reason");
        again += what && xl_str_is(what->s, "compile") && phase && xl_str_is(phase->s, "steady") && reason && !xl_str_is(reason->s, "first");
    }
    fprintf(stderr, "xlane: ran %.1f s, exit status %d%s\n", seconds, status, stopped ? " (the policy said stop)" : "");
    if (m) {
        fprintf(stderr, "xlane: %llu compiled, %llu from the cache, %llu from the frontend's own; %llu executions in %zu process%s\n",
                (unsigned long long)xl_metrics_total(m, XL_M_CompileTime), (unsigned long long)xl_metrics_total(m, XL_M_CachedCompile),
                (unsigned long long)xl_metrics_total(m, XL_M_FrontendCacheHit), (unsigned long long)xl_metrics_total(m, XL_M_ExecuteTime),
                processes, processes == 1 ? "" : "es");
        fprintf(stderr, "xlane: %zu recompiles of a step after the warm-up window%s\n", again, again ? "; `xlane explain` names their causes" : "");
        fprintf(stderr, "xlane: %llu steps waited for a read to the host\n", (unsigned long long)xl_metrics_total(m, XL_M_HostSync));
    }
    fprintf(stderr, "xlane: recorded in %s\n", dir);
    xl_metrics_free(m);
}

static xl_error *run(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    char *dir;
    if (strcmp(opt.policy, "allow") && strcmp(opt.policy, "warn") && strcmp(opt.policy, "stop"))
        return xl_cli_misuse(cli, "--policy is allow, warn or stop, not %s", opt.policy);
    const char *cache = opt.cache, *home = getenv("XDG_CACHE_HOME");
    if (!cache)
        cache = getenv("XLANE_CACHE");
    if (!cache || !*cache)
        cache = home && *home ? xl_path_join(a, home, "xlane")
                : getenv("HOME")  ? xl_path_join(a, getenv("HOME"), ".cache/xlane") : "off";
    if (strcmp(cache, "off") && !strstr(cache, "://") && cache[0] != '/') { /* the program may change folders */
        char cwd[4096];
        if (getcwd(cwd, sizeof cwd))
            cache = xl_path_join(a, cwd, cache);
    }
    if (strcmp(cache, "off")) {                            /* say now what would otherwise be said from inside the program */
        xl_cache *probe;
        xl_cache_opts how = { .read_only = opt.read_only, .segment = opt.segment };
        XL_DO(xl_cache_open(cache, &how, &probe));
        xl_cache_close(probe);
        const char *others = xl_cache_writers(a, cache);
        if (*others)
            fprintf(stderr, "xlane: %s\n", others);
    }
    const char *name = opt.name ? opt.name : xl_str_c(a, xl_path_base(xl_str_of(argc > 1 && argv[1][0] != '-' ? argv[1] : argv[0])));
    XL_DO(xl_run_make(a, opt.runs, name, &dir));
    char *absolute = realpath(dir, NULL);
    if (absolute) {
        dir = xl_str_c(a, xl_str_of(absolute));
        free(absolute);
    }
    double began = xl_now_wall(), clock = xl_now();
    XL_DO(environment(cli, dir, cache));
    XL_TRY(write_run(a, dir, argc, argv, cache, began, 0, 0), "recording the run");
    xl_error_free(xl_file_append(xl_path_join(a, dir, "events.jsonl"), XL_STR("{\"t\":0,\"rank\":0,\"event\":\"launch\"}")));
    fflush(NULL);
    static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT };
    sigset_t block, old;
    sigemptyset(&block);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&block, passed[i]);
    sigprocmask(SIG_BLOCK, &block, &old);                  /* none may come before there is a child to pass it to */
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &old, NULL);
        execvp(argv[0], argv);
        fprintf(stderr, "xlane: %s: %s\n", argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    if (pid < 0) {
        err = XL_ERR(UNAVAILABLE, "starting %s: %s", argv[0], strerror(errno));
        goto out;
    }
    child = (sig_atomic_t)pid;
    struct sigaction act = { .sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART };
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaction(passed[i], &act, NULL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    xl_node **e = NULL;
    size_t n = 0;
    bool attached = false, stopped = false;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        const xl_node *what = xl_node_get(e[i], "event");
        attached |= what && xl_str_is(what->s, "attach");
        stopped |= what && xl_str_is(what->s, "stop");
    }
    double seconds = xl_now() - clock;
    xl_error_free(write_run(a, dir, argc, argv, cache, began, began + seconds, code));
    const char *off = getenv("XLANE_GUARD");
    if (!attached && !(off && !strcmp(off, "off")))
        fprintf(stderr, "xlane: no process of this run loaded a PJRT plugin under the guard: it used none, its plugin is built in (JAX's own "
                        "cpu is), or it is a static or setuid program; nothing was guarded\n");
    if (opt.summary || isatty(2))
        summary(a, dir, seconds, code, stopped);
    xl_cli_exit(cli, stopped ? XL_EXIT_STOPPED : code);
out:
    return err;
}

const xl_verb xl_verb_run = {
    .name = "run", .args = "[OPTIONS] -- CMD ...", .help = "run any JAX or PyTorch/XLA program under the guard",
    .more = "Keeps its executables in a cache that a restart reads, compares each compile with the ones before, counts, and watches.\n"
            "The program is not changed; its exit status is passed through, except that 3 means the policy said stop.\n"
            "Without this command: name libxlane-guard.so as the plugin and put the real one's path into XLANE_GUARD_PLUGIN.\n"
            "XLANE_GUARD=off switches the guard off.",
    .example = "xlane run --policy stop -- python train.py --steps 1000", .opts = opts, .min = 1, .max = -1, .stop_at_first = true, .run = run,
};
