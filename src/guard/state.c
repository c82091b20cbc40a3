/* What the guard is told by the environment, and its end. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/home.h"
#include "base/str.h"
#include "base/variables.h"
#include "guard/guard.h"

/* What standard error was when the process began, as the preloaded object saw it, or else when the guard was loaded. A
 * program that has closed it and opened a file of its own as number 2 is not written to. */
static dev_t err_dev;
static ino_t err_ino;

static void remember_stderr(void)
{
    struct stat st;
    void (*told)(dev_t *, ino_t *) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "xlane_preload_stderr");
    memcpy(&told, &symbol, sizeof told);
    if (told) {
        told(&err_dev, &err_ino);
    } else if (fstat(2, &st) == 0) {
        err_dev = st.st_dev;
        err_ino = st.st_ino;
    }
}

void guard_say(const char *fmt, ...)
{
    char text[2048];
    struct stat st;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (fstat(2, &st) != 0 || st.st_dev != err_dev || st.st_ino != err_ino)
        return;
    xl_buf line = { 0 };
    xl_buf_puts(&line, "xlane: ");
    xl_buf_shown(&line, xl_str_of(text));
    xl_buf_putc(&line, '\n');
    if (!line.failed)
        (void)!xl_file_write_some(2, line.p, line.n);
    xl_buf_fini(&line);
}

void guard_fault(guard_state *g, const char *what, xl_error *err)
{
    xl_event e;
    xl_metrics_count(g->metrics, NULL, XL_M_GuardFault, 1);
    xl_event_begin(g->run, &e, "fault");
    xl_json_put_text(&e.j, "what", what);
    xl_json_put_text(&e.j, "error", xl_error_message(err));
    xl_event_end(g->run, &e);
    xl_error_free(err);
}

static const char *env(const char *name, const char *otherwise)
{
    const char *v = getenv(name);
    return v && *v ? v : otherwise;
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    uint64_t v;
    const char *s = getenv(name);
    return s && *s && xl_str_size(xl_str_of(s), &v) ? v : otherwise;
}

bool guard_spmd(void)
{
    const char *v = getenv("XLA_USE_SPMD");
    return v && *v && strcmp(v, "0") && strcmp(v, "false");
}

/* A forked child has its own counters, from nothing: what its parent did is the parent's to tell. The locks may have
 * been held by threads that it does not have. */
static _Atomic bool forked;

static void in_child(void)
{
    guard_state *g = guard_current();
    forked = true;
    xl_mutex_init(&g->compile_lock);
    xl_mutex_init(&g->table_lock);
    xl_mutex_init(&g->client_lock);
    xl_mutex_init(&g->agree_lock);
    xl_mutex_init(&g->made_lock);
    xl_metrics_reset(g->metrics);
    guard_profile_forked(g);
    guard_record_forked(g);
    g->step = g->compiles = g->reads = g->read_bytes = g->checks = g->awaited = 0;
    g->ran = NULL;
    g->nmade = 0;
    g->unread = 0;
}

void guard_end(guard_state *g)
{
    if (forked && xl_metrics_idle(g->metrics))
        return;
    guard_profile_end(g);
    guard_spmd_end(g);
    guard_record_end(g, true);
    bool written = guard_write_metrics(g);
    guard_ahead_write(g, true);
    xl_event e;
    xl_event_begin(g->run, &e, "exit");
    xl_json_put_int(&e.j, "steps", (int64_t)g->step);
    xl_json_put_int(&e.j, "compiles", (int64_t)xl_metrics_total(g->metrics, XL_M_CompileTime));
    xl_json_put_int(&e.j, "cached", (int64_t)xl_metrics_total(g->metrics, XL_M_CachedCompile));
    xl_json_put_int(&e.j, "executes", (int64_t)xl_metrics_total(g->metrics, XL_M_ExecuteTime));
    xl_json_put_bool(&e.j, "counters", written);
    xl_event_end(g->run, &e);
}

static void at_exit(void) { guard_end(guard_current()); }

/* Which program of the user this process runs. */
static const char *script(xl_arena *a)
{
    char args[4096], cwd[4096];
    FILE *f = fopen("/proc/self/cmdline", "re");
    size_t n = f ? fread(args, 1, sizeof args, f) : 0;
    if (f)
        fclose(f);
    return xl_str_c(a, xl_contract_script(a, (xl_str){ args, n }, getcwd(cwd, sizeof cwd) ? cwd : ""));
}

static xl_error *open_contracts(xl_arena *a, void *unused)
{
    guard_state *g = guard_current();
    (void)unused;
    g->contracts = xl_contracts_new(g->run, script(a));
    return NULL;
}

static void start(void)
{
    guard_state *g = guard_current();
    remember_stderr();
    xl_mutex_init(&g->compile_lock);
    xl_mutex_init(&g->table_lock);
    xl_mutex_init(&g->client_lock);
    xl_mutex_init(&g->agree_lock);
    xl_mutex_init(&g->made_lock);
    const char *dir = getenv("XLANE_RUN");
    xl_error *err = xl_run_open(dir && *dir ? dir : NULL, &g->run), *trouble = NULL;
    g->metrics = xl_metrics_new();
    g->steps = xl_steps_new();
    if (!g->run || !g->metrics) {
        xl_error_free(err);
        return;
    }
    if (err)
        guard_fault(g, "recording the run", err);
    trouble = xl_arena_call(open_contracts, NULL);
    if (trouble)
        guard_fault(g, "reading the command line", trouble);
    trouble = xl_variables_check();                        /* by a plugin's name, no command has checked them */
    if (trouble) {
        guard_say("%s; until then its default holds", xl_error_message(trouble));
        guard_fault(g, "reading the environment", trouble);
    }
    const char *policy = env("XLANE_POLICY", "warn");
    g->policy = !strcmp(policy, "stop") ? XL_POLICY_STOP : !strcmp(policy, "allow") ? XL_POLICY_ALLOW : XL_POLICY_WARN;
    g->warmup = env_number("XLANE_WARMUP", 10);
    g->warmup_compiles = env_number("XLANE_WARMUP_COMPILES", 0);
    g->watch_after = env_number("XLANE_WATCH_AFTER", 3);
    snprintf(g->watch, sizeof g->watch, "%s", env("XLANE_WATCH", ""));
    g->hang_after = (double)env_number("XLANE_HANG", 120);
    g->agree_seconds = (double)env_number("XLANE_AGREE", 60);
    /* "name@digest"; no digest: nothing in it changes the code. The name is not in the key, so that a diagnostic
     * profile finds the executables of the profile it looks into. */
    const char *profile = env("XLANE_PROFILE", ""), *at = strrchr(profile, '@');
    snprintf(g->profile, sizeof g->profile, "%s", at ? at + 1 : "none");
    const char *cache = env("XLANE_CACHE", "off");
    if (!xl_home_off(cache)) {
        xl_cache_opts opts = { .max_bytes = env_number("XLANE_CACHE_MAX", 0),
                               .read_only = env_number("XLANE_CACHE_READ_ONLY", 0) != 0,
                               .segment = getenv("XLANE_CACHE_SEGMENT") };
        trouble = xl_cache_open(cache, &opts, &g->cache);
        if (trouble) {
            guard_say("no executable cache in this run: %s", xl_error_message(trouble));
            guard_fault(g, "opening the cache", trouble);
        }
    }
    guard_record_start(g);
    atexit(at_exit);
    pthread_atfork(NULL, NULL, in_child);
    guard_profile_begin(g);
    guard_watch_start(g);
}

void guard_start(void)
{
    static xl_once once = XL_ONCE_INIT;
    xl_once_run(&once, start);
}
