#include "lane/matrix.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/proc.h"
#include "lane/bundle.h"
#include "ir/read.h"
#include "ir/text/print.h"
#include "lane/cache.h"
#include "lane/contract.h"
#include "lane/holders.h"
#include "lane/identity.h"
#include "lane/profile.h"
#include "lane/retry.h"
#include "lane/run.h"
#include "lane/stack.h"
#include "lane/upgrade.h"
#include "lane/verdict.h"
#include "pjrt/options.h"
#include "pjrt/program.h"

const char *xl_matrix_word(xl_matrix_state s)
{
    static const char *const words[] = { "clear", "not here", "affected", "unknown" };
    return words[s];
}

typedef struct { xl_matrix_state state; xl_str text; } finding;

/* What a child that opened the plugin could tell; -1: it did not get so far. */
typedef struct { int client, loop, devices, memory, stats, serialise, restore, minor; xl_str trouble, platform; } live;

typedef struct {
    xl_arena *a;
    const char *plugin, *cache, *run;
    xl_bundle bundle;
    xl_profile profile;        /* the environment as it is, or as RUN had it */
    xl_node **e;               /* the run's events */
    size_t n;
    live live;
    bool tpu, cuda;
} lane;

#define FOUND(l, s, ...) ((finding){ XL_MATRIX_##s, xl_strf((l)->a, __VA_ARGS__) })

/* ---- the plugin, in a child ---- */
static const char loop_text[] =
    "module @loop {\n"
    "  func.func @main(%n: tensor<i32>, %x: tensor<8xf32>) -> tensor<8xf32> {\n"
    "    %zero = stablehlo.constant dense<0> : tensor<i32>\n"
    "    %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<8xf32>\n"
    "      cond {\n"
    "        %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    "        stablehlo.return %c : tensor<i1>\n"
    "      } do {\n"
    "        %one = stablehlo.constant dense<1> : tensor<i32>\n"
    "        %j = stablehlo.add %i, %one : tensor<i32>\n"
    "        %w = stablehlo.add %v, %v : tensor<8xf32>\n"
    "        stablehlo.return %j, %w : tensor<i32>, tensor<8xf32>\n"
    "      }\n"
    "    return %r#1 : tensor<8xf32>\n"
    "  }\n"
    "}\n";

static void tell(int fd, const char *key, int value)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%s %d\n", key, value);
    xl_proc_write(fd, line, (size_t)n);
}

static int look(void *arg, int fd)
{
    const char *path = arg;
    xl_error *err = NULL;
    xl_plugin *p = NULL;
    xl_client *c = NULL;
    xl_program *program = NULL, *again = NULL;
    xl_buf options = { 0 }, blob = { 0 };
    xl_device_memory memory;
    xl_program_memory stats;
    XL_DO(xl_plugin_load(path, &p));
    tell(fd, "minor", xl_plugin_minor(p));
    XL_DO(xl_client_open(p, NULL, &c));
    tell(fd, "client", 1);
    tell(fd, "devices", (int)xl_client_nlocal(c));
    dprintf(fd, "platform %.*s\n", XL_FMT(xl_client_platform(c)));
    const xl_device *d = xl_client_local(c, 0);
    if (!d)
        goto out;
    err = xl_device_memory_read(d, &memory);
    tell(fd, "memory", !err && memory.in_use >= 0);
    xl_error_free(err);
    int64_t id = d->id;
    xl_options_build(&options, &(xl_options){ .device = &id });
    XL_DO(xl_program_compile(c, XL_STR(loop_text), XL_FORMAT_MLIR, xl_buf_view(&options), &program));
    tell(fd, "loop", 1);
    err = xl_executable_memory(xl_program_executable(program), &stats);
    tell(fd, "stats", !err && stats.arguments > 0 && stats.outputs > 0);
    xl_error_free(err);
    err = xl_executable_serialize(xl_program_executable(program), &blob);
    tell(fd, "serialise", !err);
    XL_DO(err);
    XL_DO(xl_program_deserialize(c, xl_buf_view(&blob), (xl_str){ "", 0 }, &again));
    tell(fd, "restore", 1);
out:
    if (err)
        dprintf(fd, "trouble %s\n", xl_error_message(err));
    xl_error_free(err);
    return 0; /* nothing is closed: the process ends, and plugins crash on closing */
}

static void look_at_plugin(lane *l)
{
    xl_proc_result r;
    l->live = (live){ -1, -1, -1, -1, -1, -1, -1, -1, XL_STR(""), XL_STR("") };
    xl_error *err = xl_proc_call(l->a, look, (void *)l->plugin, 60000, &r);
    if (err) {
        l->live.trouble = xl_str_dup(l->a, xl_str_of(xl_error_message(err)));
        xl_error_free(err);
        return;
    }
    for (xl_str rest = r.out; rest.n;) {
        xl_str value = xl_str_cut(&rest, '\n'), key = xl_str_cut(&value, ' ');
        static const struct { const char *key; size_t at; } rows[] = {
#define ROW(f) { #f, offsetof(live, f) },
            ROW(client) ROW(loop) ROW(devices) ROW(memory) ROW(stats) ROW(serialise) ROW(restore) ROW(minor)
#undef ROW
        };
        int64_t v;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            if (xl_str_is(key, rows[i].key) && xl_str_i64(value, &v))
                *(int *)((char *)&l->live + rows[i].at) = (int)v;
        if (xl_str_is(key, "trouble"))
            l->live.trouble = value;
        if (xl_str_is(key, "platform"))
            l->live.platform = value;
    }
    if (!l->live.trouble.n && (r.signal || r.timed_out))
        l->live.trouble = xl_proc_words(l->a, &r);
}

static finding silent(const lane *l, const char *what)
{
    return FOUND(l, UNKNOWN, "the plugin %s did not get as far as %s: %.*s; `xlane probe` says more", l->plugin, what,
                 XL_FMT(l->live.trouble));
}

/* ---- small questions ---- */
static xl_str package(const lane *l, const char *name)
{
    for (size_t i = 0; i < l->bundle.npackage; i++)
        if (xl_str_is(l->bundle.package[i].name, name))
            return l->bundle.package[i].version;
    return (xl_str){ 0 };
}

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static bool starts(xl_str name, const char *const *with, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (xl_str_starts(name, xl_str_of(with[i])))
            return true;
    return false;
}

static finding no_package(const lane *l, const char *name) { return FOUND(l, ABSENT, "no %s in this Python", name); }
static finding no_run(const lane *l)
{
    return FOUND(l, UNKNOWN, XL_MATRIX_NO_RUN);
}

static bool compile_event(const xl_node *e) { return xl_node_is(e, "event", "compile"); }

/* The first compile of the run with this reason that was not the warm-up's. */
static const xl_node *recompile(const lane *l, const char *reason)
{
    for (size_t i = 0; i < l->n; i++)
        if (compile_event(l->e[i]) && xl_str_is(xl_node_text(l->e[i], "reason"), reason) &&
            xl_node_is(l->e[i], "phase", "steady"))
            return l->e[i];
    return NULL;
}

static int ranks(void)
{
    static const char *const names[] = { "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "JAX_NUM_PROCESSES" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (env(names[i]))
            return atoi(env(names[i]));
    return 1;
}

static const char *jax_cache(void) { return env("JAX_COMPILATION_CACHE_DIR"); }

/* ---- the checks ---- */
/* Two processes with torch_xla's own cache on the embedded device; the second tells whether it could read what the
 * first wrote. */
static const char torch_script[] = "import os, sys, torch, torch_xla\n"
                                   "import torch_xla.runtime as xr, torch_xla.debug.metrics as met\n"
                                   "xr.initialize_cache(sys.argv[1], readonly=False)\n"
                                   "d = torch_xla.device()\n"
                                   "x = torch.ones(16, 16, device=d)\n"
                                   "(x @ x).sum().item()\n"
                                   "print('HIT', met.counter_value('PersistentCacheHit') or 0, 'BAD', "
                                   "met.counter_value('PersistentCacheDeserializeFailure') or 0)\n";

static finding check_torch_cache(const lane *l)
{
    xl_str version = package(l, "torch_xla");
    char dir[] = "/tmp/xlane-matrix-XXXXXX";
    if (!version.n)
        return no_package(l, "torch_xla");
    xl_plugin_choice cpu;
    xl_error *err = xl_plugin_find(l->a, &(xl_plugin_wish){ .named = "cpu" }, &cpu);
    if (err || !mkdtemp(dir)) {
        finding f =
            FOUND(l, UNKNOWN, "torch_xla %.*s is here, but the live test needs the embedded device and /tmp: %s",
                  XL_FMT(version), xl_error_message(err));
        xl_error_free(err);
        return f;
    }
    const char *keep[] = { env("PATH"), env("HOME"), env("VIRTUAL_ENV"), env("PYTHONPATH") };
    static const char *const names[] = { "PATH", "HOME", "VIRTUAL_ENV", "PYTHONPATH" };
    char *vars[16];
    size_t n = 0;
    for (size_t i = 0; i < 4; i++)
        if (keep[i])
            vars[n++] = (char *)xl_strf(l->a, "%s=%s", names[i], keep[i]).p;
    vars[n++] = (char *)"PJRT_DEVICE=LIBRARY";
    vars[n++] = (char *)"PJRT_DYNAMIC_PLUGINS=1";
    vars[n++] = (char *)xl_strf(l->a, "PJRT_LIBRARY_PATH=%s", cpu.path).p;
    vars[n] = NULL;
    char *argv[] = { (char *)"python3", (char *)"-c", (char *)torch_script, dir, NULL };
    xl_proc_result r = { 0 };
    for (int k = 0; k < 2 && !err; k++)
        err = xl_proc_run(l->a, argv, vars, 300000, &r); /* its import alone may take a minute */
    finding f = FOUND(l, UNKNOWN, "torch_xla %.*s is here, but its two processes did not end well: %.*s %s",
                      XL_FMT(version), XL_FMT(err ? XL_STR("") : xl_proc_words(l->a, &r)), xl_error_message(err));
    xl_error_free(err);
    const char *hit = strstr(r.out.p ? r.out.p : "", "HIT "), *bad = hit ? strstr(hit, "BAD ") : NULL;
    if (bad)
        f = atoi(bad + 4) > 0 || atoi(hit + 4) == 0
                ? FOUND(l, HIT, "torch_xla %.*s: the second process read nothing back (%d hits, %d failures)",
                        XL_FMT(version), atoi(hit + 4), atoi(bad + 4))
                : FOUND(l, CLEAR, "torch_xla %.*s: the second process read %d entries back", XL_FMT(version),
                        atoi(hit + 4));
    glob_t g;
    if (glob(xl_strf(l->a, "%s/*", dir).p, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            unlink(g.gl_pathv[i]);
    globfree(&g);
    rmdir(dir);
    return f;
}

static finding check_torch_memory(const lane *l)
{
    xl_str version = package(l, "torch_xla");
    if (l->live.memory < 0)
        return silent(l, "memory figures");
    if (!version.n)
        return FOUND(l, ABSENT, "no torch_xla in this Python; the physical devices %s",
                     l->live.memory ? "answer" : "give no figures");
    return FOUND(l, HIT, "torch_xla %.*s refuses the virtual device; the physical ones %s", XL_FMT(version),
                 l->live.memory ? "answer beside it" : "give no figures either");
}

/* PyTorch/XLA names every graph so. */
static bool torch_compile(const xl_node *e)
{
    return compile_event(e) && xl_str_starts(xl_node_text(e, "module"), XL_STR("SyncTensorsGraph"));
}

static finding check_torch_constant(const lane *l)
{
    size_t graphs = 0;
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++) {
        if (!torch_compile(l->e[i]))
            continue;
        graphs++;
        if (xl_node_is(l->e[i], "reason", "constant"))
            return FOUND(l, HIT, "%.*s was compiled again for a changed constant at %.*s s",
                         XL_FMT(xl_node_text(l->e[i], "module")), XL_FMT(xl_node_text(l->e[i], "t")));
    }
    return graphs ? FOUND(l, CLEAR, "no graph of this run came from a changed constant")
                  : FOUND(l, ABSENT, "no graph of PyTorch/XLA in this run");
}

static finding check_optax_constant(const lane *l)
{
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++) {
        const xl_node *detail = compile_event(l->e[i]) ? xl_node_get(l->e[i], "detail") : NULL;
        for (size_t k = 0; detail && k < detail->n; k++)
            if (xl_node_is(detail->kid[k], "library", "optax"))
                return FOUND(l, HIT, "%.*s: %.*s", XL_FMT(xl_node_text(l->e[i], "module")),
                             XL_FMT(xl_node_text(detail->kid[k], "text")));
    }
    return FOUND(l, CLEAR, "no compile of this run came from a constant that Optax reads");
}

static finding check_resume_placement(const lane *l)
{
    if (!l->run)
        return no_run(l);
    const xl_node *e = recompile(l, "sharding");
    if (!e)
        e = recompile(l, "donation");
    if (!e)
        e = recompile(l, "layout");
    return e ? FOUND(l, HIT, "%.*s was compiled again for a changed %.*s after the warm-up: an argument was replaced",
                     XL_FMT(xl_node_text(e, "module")), XL_FMT(xl_node_text(e, "reason")))
             : FOUND(l, CLEAR, "no argument of a step changed its sharding, donation or layout in this run");
}

/* Matrix products outside of loops, by what they are applied to: how many of the most frequent there are. */
typedef struct { xl_arena *a; xl_str *name; size_t *count, n, cap, ncap; bool custom; } products;

static void count_products(products *p, const xl_func *f, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        if (op->code == XL_OP_CUSTOM_CALL)
            p->custom = true;
        if (op->code != XL_OP_DOT_GENERAL)
            continue;
        xl_str name =
            xl_strf(p->a, "%s x %s -> %s", xl_type_str(p->a, xl_value_type(f, op->in[0])),
                    xl_type_str(p->a, xl_value_type(f, op->in[1])), xl_type_str(p->a, xl_value_type(f, op->out[0])));
        size_t k = 0;
        while (k < p->n && !xl_str_eq(p->name[k], name))
            k++;
        if (k == p->n) {
            XL_PUSH(p->a, p->name, p->n, p->cap, name);
            p->count = xl_arena_grow(p->a, p->count, sizeof *p->count, p->ncap, p->cap);
            p->ncap = p->cap;
            p->count[k] = 0;
        }
        p->count[k]++;
    }
}

enum { WRITTEN_OUT = 16 }; /* so many products of one shape are layers, and worth a loop */

static finding check_scan(const lane *l)
{
    if (l->live.devices > 0 && l->live.loop < 0)
        return FOUND(l, HIT, "the plugin does not compile a loop: %.*s", XL_FMT(l->live.trouble));
    if (l->live.loop < 0)
        return silent(l, "compiling a loop");
    xl_str largest = { 0 };
    for (size_t i = 0; i < l->n && l->run; i++) {
        xl_str code;
        if (!compile_event(l->e[i]) || !xl_node_text(l->e[i], "program").n)
            continue;
        xl_error *gone = xl_recorded_load(l->a, l->run, xl_str_c(l->a, xl_node_text(l->e[i], "program")), &code);
        if (!gone && code.n > largest.n)
            largest = code;
        xl_error_free(gone);
    }
    xl_module *m = NULL;
    xl_error *err = largest.n ? xl_read(largest, NULL, &m) : NULL;
    if (m) {
        products p = { .a = l->a };
        size_t most = 0;
        for (uint32_t i = 0; i < m->nfunc; i++)
            if (m->func[i]->body)
                count_products(&p, m->func[i], m->func[i]->body);
        for (size_t k = 0; k < p.n; k++)
            most = p.count[k] > p.count[most] ? k : most;
        finding f =
            p.n && p.count[most] >= WRITTEN_OUT
                ? FOUND(l, HIT, "%.*s has %zu products %.*s written out: layers that are not scanned%s",
                        XL_FMT(m->name), p.count[most], XL_FMT(p.name[most]),
                        p.custom ? " (it has custom calls, around which the plain loop must stay)" : "")
                : FOUND(l, CLEAR,
                        "the largest program of this run has at most %zu products of one shape outside of loops",
                        p.n ? p.count[most] : 0);
        xl_module_free(m);
        return f;
    }
    xl_error_free(err);
    xl_str torch = package(l, "torch_xla"), jax = package(l, "jax");
    const char *api = jax.n ? "jax.lax.scan" : torch.n ? "torch_xla.experimental.scan" : "the C frontend's scan";
    return FOUND(l, CLEAR,
                 "the API is here (%s) and the plugin compiles loops; a program qualifies if its blocks are of one "
                 "shape, pure, and free of custom calls",
                 api);
}

static finding check_whole_graph_oom(const lane *l)
{
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++)
        if (compile_event(l->e[i]) && xl_node_is(l->e[i], "result", "failed")) {
            xl_failure f = xl_retry_classify(0, xl_node_text(l->e[i], "error"), XL_PHASE_WINDOW);
            if (f.verdict == XL_RETRY_SMALLER)
                return FOUND(l, HIT, "%.*s did not fit: %s %s", XL_FMT(xl_node_text(l->e[i], "module")), f.ecode,
                             f.text);
        }
    return FOUND(l, CLEAR, "every compile of this run found memory");
}

static finding check_device_subset(const lane *l)
{
    const char *chips = env("TPU_VISIBLE_CHIPS") ? env("TPU_VISIBLE_CHIPS") : env("TPU_VISIBLE_DEVICES");
    if (!l->tpu)
        return FOUND(l, ABSENT, "this lane's plugin is not for TPUs");
    if (!chips)
        return FOUND(l, CLEAR, "all chips are visible");
    for (const char *c = chips; c; c = strchr(c, ',') ? strchr(c, ',') + 1 : NULL)
        if (atoi(c) == 0)
            return FOUND(l, CLEAR, "chip 0 is among the visible ones (%s)", chips);
    return FOUND(l, HIT, "chip 0 is not among the visible ones (%s)", chips);
}

static finding check_cache_key(const lane *l)
{
    xl_cache_entry *e;
    size_t n, good = 0;
    if (!l->cache)
        return jax_cache()
                   ? FOUND(l, HIT,
                           "JAX's own cache is on (%s) and xlane's is not named: its key may lack the plugin's version",
                           jax_cache())
                   : FOUND(l, ABSENT, "no executable cache was named (--cache) and JAX's own is off");
    xl_error *err = xl_cache_list(l->a, l->cache, &e, &n);
    if (err) {
        finding f = FOUND(l, UNKNOWN, "the cache cannot be read: %s", xl_error_message(err));
        xl_error_free(err);
        return f;
    }
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < e[i].n; k++)
            good += xl_str_is(e[i].name[k], "plugin");
    return good == n ? FOUND(l, CLEAR, "all %zu entries carry the plugin's identity", n)
                     : FOUND(l, HIT, "%zu of %zu entries do not say which plugin made them", n - good, n);
}

static finding check_torch_key_flags(const lane *l)
{
    if (!package(l, "torch_xla").n)
        return no_package(l, "torch_xla");
    bool flags = env("XLA_FLAGS") || env("LIBTPU_INIT_ARGS"), cache = env("XLA_PERSISTENT_CACHE_PATH") != NULL;
    return flags && cache
               ? FOUND(l, HIT, "flags are set and torch_xla's cache is on (%s)", env("XLA_PERSISTENT_CACHE_PATH"))
               : FOUND(l, CLEAR, "%s", cache ? "no flags are set" : "torch_xla's own cache is off");
}

static finding check_foreign_cpu(const lane *l)
{
    const char *platforms = env("JAX_PLATFORMS"), *cache = jax_cache();
    if (!package(l, "jaxlib").n)
        return no_package(l, "jaxlib");
    if (!cache)
        return FOUND(l, CLEAR, "JAX's own cache is off");
    bool cpu = platforms && strstr(platforms, "cpu") && !strchr(platforms, ',');
    return cpu && (!strncmp(cache, "gs://", 5) || !strncmp(cache, "/mnt", 4) || !strncmp(cache, "/nfs", 4))
               ? FOUND(l, HIT, "JAX's CPU programs are cached in a shared place, %s", cache)
               : FOUND(l, CLEAR, "JAX's cache is in %s, on this machine", cache);
}

static double newest_mtime(const lane *l, const char *pattern, double *oldest)
{
    glob_t g;
    double newest = 0;
    if (glob(pattern, GLOB_NOSORT, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++) {
            xl_file_info info;
            if (!xl_file_stat(g.gl_pathv[i], &info))
                continue;
            newest = info.mtime > newest ? info.mtime : newest;
            if (oldest && (*oldest == 0 || info.mtime < *oldest))
                *oldest = info.mtime;
        }
    globfree(&g);
    (void)l;
    return newest;
}

static finding check_stale_jax_cache(const lane *l)
{
    size_t n;
    double oldest = 0, installed = 0;
    const char **site = xl_python_sites(l->a, &n);
    if (!package(l, "jaxlib").n)
        return no_package(l, "jaxlib");
    if (!jax_cache())
        return FOUND(l, CLEAR, "JAX's own cache is off");
    for (size_t i = 0; i < n && installed == 0; i++)
        installed = newest_mtime(l, xl_strf(l->a, "%s/jaxlib-*.dist-info", site[i]).p, NULL);
    newest_mtime(l, xl_strf(l->a, "%s/*-cache", jax_cache()).p, &oldest);
    return oldest && oldest < installed
               ? FOUND(l, HIT, "%s has entries that are older than the installed jaxlib %.*s", jax_cache(),
                       XL_FMT(package(l, "jaxlib")))
               : FOUND(l, CLEAR, "no entry in %s is older than the installed jaxlib", jax_cache());
}

static finding check_orphan_entry(const lane *l)
{
    glob_t g;
    finding f = FOUND(l, CLEAR, "%s", jax_cache() ? "every entry of JAX's cache is whole" : "JAX's own cache is off");
    if (jax_cache() && glob(xl_strf(l->a, "%s/*-atime", jax_cache()).p, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc && f.state == XL_MATRIX_CLEAR; i++) {
            xl_str path = xl_str_of(g.gl_pathv[i]);
            path.n -= strlen("-atime");
            if (!xl_file_stat(xl_strf(l->a, "%.*s-cache", XL_FMT(path)).p, NULL))
                f = FOUND(l, HIT, "%s stands alone: later writes fail in silence", g.gl_pathv[i]);
        }
        globfree(&g);
    }
    return f;
}

static finding check_many_writers(const lane *l)
{
    if (!l->cache)
        return FOUND(l, ABSENT, "no executable cache was named (--cache)");
    const char *others = xl_cache_writers(l->a, l->cache);
    return *others ? FOUND(l, HIT, "%s", others) : FOUND(l, CLEAR, "nobody else wrote %s within ten minutes", l->cache);
}

static finding check_remote_cache(const lane *l)
{
    const char *tries[] = { l->cache, jax_cache(), env("XLA_PERSISTENT_CACHE_PATH") };
    for (size_t i = 0; i < 3; i++)
        if (tries[i] && strstr(tries[i], "://"))
            return FOUND(l, HIT, "a cache is in a bucket: %s", tries[i]);
    return FOUND(l, CLEAR, "no cache of this lane is in a bucket");
}

static finding check_cuda_skew(const lane *l)
{
    static const char *const names[] = { "jaxlib", "jax_cuda12_plugin", "jax_cuda12_pjrt", "jax_cuda13_plugin",
                                         "jax_cuda13_pjrt" };
    xl_str jax = package(l, "jax");
    size_t cuda = 0;
    if (!jax.n)
        return no_package(l, "jax");
    for (size_t i = 0; i < 5; i++) {
        xl_str v = package(l, names[i]);
        cuda += v.n && i > 0;
        if (v.n && !xl_str_eq(v, jax))
            return FOUND(l, HIT, "jax is %.*s and %s is %.*s", XL_FMT(jax), names[i], XL_FMT(v));
    }
    return cuda ? FOUND(l, CLEAR, "jax and its CUDA packages are all %.*s", XL_FMT(jax))
                : FOUND(l, CLEAR, "jax and jaxlib are %.*s; no CUDA packages", XL_FMT(jax));
}

static finding check_abi_skew(const lane *l)
{
    if (l->live.minor < 0)
        return silent(l, "telling its PJRT version");
    return l->live.client > 0 ? FOUND(l, CLEAR, "the plugin speaks PJRT 0.%d and makes a client", l->live.minor)
                              : silent(l, "making a client");
}

/* "Requires-Dist: libtpu==0.0.42.*; extra == 'tpu'" in a package's METADATA. */
static xl_str pinned(const lane *l, const char *of, const char *what)
{
    size_t n;
    const char **site = xl_python_sites(l->a, &n);
    for (size_t i = 0; i < n; i++) {
        xl_str text;
        xl_error *err = xl_file_read_max(
            l->a, xl_strf(l->a, "%s/%s-%.*s.dist-info/METADATA", site[i], of, XL_FMT(package(l, of))).p, 4 << 20,
            &text);
        bool got = !err;
        xl_error_free(err);
        while (got && text.n) {
            xl_str line = xl_str_cut(&text, '\n');
            xl_str want = xl_strf(l->a, "Requires-Dist: %s", what);
            if (!xl_str_starts(line, want))
                continue;
            const char *eq = memmem(line.p, line.n, "==", 2);
            if (!eq)
                continue;
            xl_str v = { eq + 2, (size_t)(line.p + line.n - eq - 2) };
            size_t k = 0;
            while (k < v.n && ((v.p[k] >= '0' && v.p[k] <= '9') || v.p[k] == '.'))
                k++;
            while (k && v.p[k - 1] == '.')
                k--;
            return (xl_str){ v.p, k };
        }
    }
    return (xl_str){ 0 };
}

static finding check_libtpu_pin(const lane *l)
{
    xl_str have = package(l, "libtpu");
    static const char *const frontends[] = { "jax", "torch_xla" };
    xl_buf b = { 0 };
    bool off = false;
    for (size_t i = 0; i < 2; i++) {
        xl_str pin = package(l, frontends[i]).n ? pinned(l, frontends[i], "libtpu") : (xl_str){ 0 };
        if (!pin.n)
            continue;
        off |= have.n && !xl_str_starts(have, pin);
        xl_buf_printf(&b, "%s%s %.*s pins libtpu %.*s", b.n ? "; " : "", frontends[i], XL_FMT(package(l, frontends[i])),
                      XL_FMT(pin));
    }
    xl_str text = xl_str_dup(l->a, xl_buf_view(&b));
    xl_buf_fini(&b);
    if (!have.n)
        return FOUND(l, ABSENT, "no libtpu in this Python%s%.*s", text.n ? "; " : "", XL_FMT(text));
    return off ? FOUND(l, HIT, "libtpu is %.*s; %.*s", XL_FMT(have), XL_FMT(text))
               : FOUND(l, CLEAR, "libtpu %.*s; %.*s", XL_FMT(have), XL_FMT(text));
}

static finding check_unknown_flag(const lane *l)
{
    xl_finding *f;
    size_t n, flags = 0;
    for (size_t i = 0; i < l->profile.n; i++)
        flags += l->profile.set[i].flag;
    if (!flags)
        return FOUND(l, CLEAR, "no XLA flags are set");
    xl_error *err = xl_profile_check(l->a, &l->profile, l->plugin, NULL, &f, &n);
    if (err) {
        finding out = FOUND(l, UNKNOWN, "the plugin's flags cannot be read: %s", xl_error_message(err));
        xl_error_free(err);
        return out;
    }
    for (size_t i = 0; i < n; i++)
        if (f[i].fatal)
            return (finding){ XL_MATRIX_HIT, f[i].text };
    return FOUND(l, CLEAR, "the plugin knows all %zu flags", flags);
}

static finding check_launch_barrier(const lane *l)
{
    const char *args = env("LIBTPU_INIT_ARGS");
    bool said = args && strstr(args, "xla_tpu_use_enhanced_launch_barrier"),
         both = package(l, "jax").n && package(l, "torch_xla").n;
    if (said)
        return FOUND(l, CLEAR, "LIBTPU_INIT_ARGS says the value, so neither frontend appends one");
    if (!l->tpu)
        return FOUND(l, ABSENT, "this lane's plugin is not for TPUs");
    return FOUND(l, HIT, "LIBTPU_INIT_ARGS does not say it, and %s",
                 both ? "both frontends are installed" : "what holds depends on the frontend that is imported");
}

static finding check_no_gate(const lane *l)
{
    const xl_setting *s = xl_profile_get(&l->profile, "shapes.policy");
    return s && xl_str_is(s->value, "allow")
               ? FOUND(l, HIT, "the policy is allow (%.*s)", XL_FMT(s->origin))
               : FOUND(l, CLEAR, "the policy is %.*s (%.*s)", XL_FMT(s ? s->value : XL_STR("warn")),
                       XL_FMT(s ? s->origin : XL_STR("default")));
}

static bool compiled(const xl_node *e) { return compile_event(e) && xl_node_is(e, "result", "compiled"); }

/* What a cache loads again costs no compile, and of a recompile with a cause of its own explain names the argument. */
static finding check_compiled_twice(const lane *l)
{
    size_t loaded = 0, caused = 0;
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++) {
        size_t times = 0;
        if (!compile_event(l->e[i]) || !xl_node_is(l->e[i], "reason", "identical"))
            continue;
        bool known = strcmp(xl_event_cause(l->e[i])->word, "identical") != 0;
        caused += known;
        loaded += !known && !compiled(l->e[i]);
        if (known || !compiled(l->e[i]))
            continue;
        for (size_t k = 0; k < l->n; k++)
            times += compiled(l->e[k]) && xl_node_num(l->e[k], "pid", 0) == xl_node_num(l->e[i], "pid", 0) &&
                     xl_str_eq(xl_node_text(l->e[k], "program"), xl_node_text(l->e[i], "program"));
        const xl_node *detail = xl_node_get(l->e[i], "detail");
        xl_str how = detail && detail->n ? xl_node_text(detail->kid[0], "text") : (xl_str){ 0 };
        if (times > 1)
            return FOUND(l, HIT, "%.*s was compiled %zu times: %.*s", XL_FMT(xl_node_text(l->e[i], "module")), times,
                         XL_FMT(how.n ? how : XL_STR("the same program each time")));
    }
    if (loaded + caused)
        return FOUND(l, CLEAR,
                     "no program was compiled twice for nothing: %zu times one was traced again and loaded, %zu times "
                     "with a cause that `xlane explain` names",
                     loaded, caused);
    return FOUND(l, CLEAR, "no program was compiled twice in one process");
}

static finding check_dynamic_section(const lane *l)
{
    if (!l->run)
        return no_run(l);
    size_t shapes = 0;
    for (size_t i = 0; i < l->n; i++)
        shapes +=
            compile_event(l->e[i]) && xl_node_is(l->e[i], "reason", "shape") && xl_node_is(l->e[i], "phase", "steady");
    return shapes > 2 ? FOUND(l, HIT, "%zu compiles after the warm-up came from changing shapes", shapes)
                      : FOUND(l, CLEAR, "%zu compiles after the warm-up came from changing shapes", shapes);
}

/* Whether the arguments took each other's shapes: what they had and what they have are the same list. */
static bool exchanged(const xl_node *e)
{
    const xl_node *detail = xl_node_get(e, "detail");
    size_t args = 0;
    for (size_t i = 0; detail && i < detail->n; i++) {
        const xl_node *d = detail->kid[i];
        int more = 0;
        if (!xl_node_get(d, "arg") || !xl_node_is(d, "what", "shape"))
            continue;
        args++;
        for (size_t k = 0; k < detail->n; k++)
            if (xl_node_get(detail->kid[k], "arg") && xl_node_is(detail->kid[k], "what", "shape"))
                more += xl_str_eq(xl_node_text(detail->kid[k], "before"), xl_node_text(d, "before")) -
                        xl_str_eq(xl_node_text(detail->kid[k], "after"), xl_node_text(d, "before"));
        if (more)
            return false;
    }
    return args > 1;
}

static finding check_parameter_order(const lane *l)
{
    if (!package(l, "torch_xla").n)
        return no_package(l, "torch_xla");
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++)
        if (torch_compile(l->e[i]) && xl_node_is(l->e[i], "phase", "steady") && exchanged(l->e[i]))
            return FOUND(l, HIT, "%.*s was compiled again after the warm-up: arguments took each other's shapes",
                         XL_FMT(xl_node_text(l->e[i], "module")));
    return FOUND(l, CLEAR, "no arguments of a graph took each other's shapes after the warm-up");
}

/* Graphs of the lazy frontend that came after the warm-up, each another program. */
static finding check_lazy_eager(const lane *l)
{
    size_t n = 0;
    if (!package(l, "torch_xla").n)
        return no_package(l, "torch_xla");
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++) {
        bool first = torch_compile(l->e[i]) && xl_node_is(l->e[i], "phase", "steady");
        for (size_t k = 0; k < i && first; k++)
            first = !compile_event(l->e[k]) ||
                    !xl_str_eq(xl_node_text(l->e[k], "program"), xl_node_text(l->e[i], "program"));
        n += first;
    }
    return n >= 5 ? FOUND(l, HIT, "%zu different lazy graphs came after the warm-up", n)
                  : FOUND(l, CLEAR, "%zu new lazy graphs came after the warm-up", n);
}

static finding check_pin_layout(const lane *l)
{
    static const char text[] = "mix of layout constrained and unconstrained";
    if (!package(l, "torch_xla").n)
        return no_package(l, "torch_xla");
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++) {
        xl_str error = xl_node_text(l->e[i], "error");
        if (error.n && memmem(error.p, error.n, text, sizeof text - 1))
            return FOUND(l, HIT, "%.*s was refused for that", XL_FMT(xl_node_text(l->e[i], "module")));
    }
    return FOUND(l, CLEAR, "no compile of this run was refused for that");
}

static finding check_pallas_import(const lane *l)
{
    bool both = package(l, "jax").n && package(l, "torch_xla").n;
    if (!both)
        return FOUND(l, ABSENT, "jax and torch_xla are not both in this Python");
    return l->tpu ? FOUND(l, HIT, "both are installed, and the plugin is for TPUs: whichever starts first has it")
                  : FOUND(l, CLEAR, "both are installed, but this lane's plugin is not for TPUs");
}

static finding check_debug_cost(const lane *l)
{
    const char *ir = env("XLA_IR_DEBUG"), *hlo = env("XLA_HLO_DEBUG");
    bool on = (ir && strcmp(ir, "0")) || (hlo && strcmp(hlo, "0"));
    return on ? FOUND(l, HIT, "XLA_IR_DEBUG=%s XLA_HLO_DEBUG=%s in the environment", ir ? ir : "", hlo ? hlo : "")
              : FOUND(l, CLEAR, "neither is set");
}

static finding check_peak_reset(const lane *l)
{
    if (l->live.minor < 0)
        return silent(l, "telling its PJRT version");
    return l->live.minor >= 106
               ? FOUND(l, CLEAR, "the API is here (PJRT 0.%d); a program must reset it itself, after loading",
                       l->live.minor)
               : FOUND(l, HIT, "PJRT 0.%d has no call to reset the peak; it came with 0.106", l->live.minor);
}

static finding check_memory_analysis(const lane *l)
{
    if (l->live.stats < 0)
        return silent(l, "the memory figures of a program");
    return l->live.stats ? FOUND(l, CLEAR, "a compiled program's argument and output bytes are told")
                         : FOUND(l, HIT, "a compiled program's argument and output bytes are not told");
}

static finding check_stale_lock(const lane *l)
{
    xl_holders h;
    if (!xl_file_stat("/tmp/libtpu_lockfile", NULL))
        return FOUND(l, CLEAR, "there is no /tmp/libtpu_lockfile");
    xl_holders_find(l->a, "tpu", &h);
    if (h.n)
        return FOUND(l, CLEAR, "the lock is held by process %d (%.*s)", h.holder[0].pid, XL_FMT(h.holder[0].command));
    if (access("/tmp/libtpu_lockfile", R_OK | W_OK) == 0)   /* libtpu leaves it behind each time, and takes it again */
        return FOUND(l, CLEAR, "/tmp/libtpu_lockfile is there and this user may open it: libtpu takes it again");
    return h.nhidden ? FOUND(l, UNKNOWN,
                             "this user may not open /tmp/libtpu_lockfile, and %zu processes of other users cannot be "
                             "looked into; ask as root",
                             h.nhidden)
                     : FOUND(l, HIT, "this user may not open /tmp/libtpu_lockfile, and nobody holds a TPU");
}

static finding check_device_busy(const lane *l)
{
    xl_holders h;
    xl_holders_find(l->a, NULL, &h);
    if (!h.ndevice)
        return FOUND(l, ABSENT, "this host has no accelerator's device file");
    return h.n && h.exclusive ? FOUND(l, HIT, "process %d (%.*s) has %.*s open", h.holder[0].pid,
                                      XL_FMT(h.holder[0].command), XL_FMT(h.holder[0].device))
                              : FOUND(l, CLEAR, "no other process keeps the device from us");
}

static finding check_quiet_fallback(const lane *l)
{
    const xl_setting *s = xl_profile_get(&l->profile, "device.jax_platforms");
    if (!package(l, "jax").n)
        return no_package(l, "jax");
    if (!s || !s->value.n)
        return FOUND(l, HIT, "JAX_PLATFORMS is not set: without an accelerator JAX goes on with the CPU");
    xl_str rest = s->value, first = xl_str_trim(xl_str_cut(&rest, ','));
    bool gpu = xl_str_is(first, "cuda") || xl_str_is(first, "rocm") || xl_str_is(first, "gpu");
    bool here = xl_plugin_has_devices(xl_str_is(first, "rocm") ? "rocm" : "cuda") ||
                (xl_str_is(first, "gpu") && xl_plugin_has_devices("rocm"));
    if (gpu && rest.n)                                     /* JAX passes over it where no GPU is visible */
        return here ? FOUND(l, CLEAR, "JAX_PLATFORMS says %.*s (%.*s), and a GPU is here", XL_FMT(s->value),
                            XL_FMT(s->origin))
                    : FOUND(l, HIT, "JAX_PLATFORMS says %.*s (%.*s), and no GPU is here: JAX goes on with the CPU",
                            XL_FMT(s->value), XL_FMT(s->origin));
    return FOUND(l, CLEAR, "JAX_PLATFORMS says %.*s (%.*s): a missing device is an error", XL_FMT(s->value),
                 XL_FMT(s->origin));
}

static finding check_metadata_wait(const lane *l)
{
    if (!l->tpu)
        return FOUND(l, ABSENT, "this lane's plugin is not libtpu");
    bool skip = env("TPU_SKIP_MDS_QUERY") != NULL, here = xl_plugin_has_devices(l->plugin);
    return skip || here ? FOUND(l, CLEAR, "%s", here ? "a TPU is here" : "TPU_SKIP_MDS_QUERY is set")
                        : FOUND(l, HIT, "no TPU is here and TPU_SKIP_MDS_QUERY is not set");
}

static finding check_stuck_call(const lane *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (xl_node_is(l->e[i], "event", "hang"))
            return FOUND(l, HIT, "%.*s of %.*s did not return for %.*s s", XL_FMT(xl_node_text(l->e[i], "what")),
                         XL_FMT(xl_node_text(l->e[i], "module")), XL_FMT(xl_node_text(l->e[i], "seconds")));
    const xl_setting *s = xl_profile_get(&l->profile, "shapes.hang");
    return FOUND(l, CLEAR, "a call that hangs is named after %.*s s%s", XL_FMT(s ? s->value : XL_STR("120")),
                 l->run ? "; none did in this run" : "");
}

static finding check_autotune_split(const lane *l)
{
    if (!l->cuda)
        return FOUND(l, ABSENT, "this lane's plugin is not for GPUs");
    return ranks() > 1
               ? FOUND(l, HIT,
                       "%d ranks compile together here: one that restores while another compiles would hang the job",
                       ranks())
               : FOUND(l, CLEAR, "one rank: it tunes for itself");
}

static finding check_rank_graphs(const lane *l)
{
    if (!l->run)
        return no_run(l);
    for (size_t i = 0; i < l->n; i++)
        for (size_t k = 0; k < i && compile_event(l->e[i]); k++) {
            if (!compile_event(l->e[k]) || xl_str_eq(xl_node_text(l->e[i], "rank"), xl_node_text(l->e[k], "rank")) ||
                !xl_str_eq(xl_node_text(l->e[i], "module"), xl_node_text(l->e[k], "module")) ||
                !xl_node_text(l->e[i], "program").n ||
                xl_str_eq(xl_node_text(l->e[i], "program"), xl_node_text(l->e[k], "program")))
                continue;
            bool same = false; /* another compile of that rank may be the partner */
            for (size_t m = 0; m < l->n && !same; m++)
                same = compile_event(l->e[m]) &&
                       xl_str_eq(xl_node_text(l->e[m], "rank"), xl_node_text(l->e[k], "rank")) &&
                       xl_str_eq(xl_node_text(l->e[m], "program"), xl_node_text(l->e[i], "program"));
            if (!same)
                return FOUND(l, HIT, "rank %.*s built a %.*s that rank %.*s did not",
                             XL_FMT(xl_node_text(l->e[i], "rank")), XL_FMT(xl_node_text(l->e[i], "module")),
                             XL_FMT(xl_node_text(l->e[k], "rank")));
        }
    return FOUND(l, CLEAR, "the ranks of this run built the same programs");
}

static finding check_one_host_started(const lane *l)
{
    const char *hosts = env("TPU_WORKER_HOSTNAMES");
    if (!l->tpu)
        return FOUND(l, ABSENT, "this lane's plugin is not for TPUs");
    return hosts && strchr(hosts, ',') && ranks() == 1
               ? FOUND(l, HIT, "TPU_WORKER_HOSTNAMES names several hosts, and this launch knows of one process")
               : FOUND(l, CLEAR, "this launch is of one host, or knows its ranks");
}

static finding check_masked_cause(const lane *l)
{
    if (!l->run)
        return no_run(l);
    xl_buf texts = { 0 };
    xl_phase phase = xl_run_phase(l->a, l->run, &texts);
    xl_failure f = xl_retry_classify(0, xl_buf_view(&texts), phase);
    size_t n = texts.n;
    xl_buf_fini(&texts);
    return f.masked_by
               ? FOUND(l, HIT, "a %s error stands over the cause, %s: %s", f.masked_by, f.cause, f.text)
               : FOUND(l, CLEAR, "%s", n ? "what failed in this run says its own cause" : "nothing failed in this run");
}

static finding check_serialise(const lane *l)
{
    if (l->live.serialise < 0)
        return silent(l, "serialising");
    return l->live.restore > 0
               ? FOUND(l, CLEAR, "the plugin serialises an executable and loads it back")
               : FOUND(l, HIT, "the plugin %s: %.*s",
                       l->live.serialise ? "does not load back what it serialised" : "does not serialise",
                       XL_FMT(l->live.trouble));
}

/* ---- all of them ---- */
static const struct {
    const char *name, *class;
    finding (*check)(const lane *l);
    const char *surface, *symptom, *remedy, *how, *seen, *source;
} table[] = {
#define CLASS_DEFECT "upstream defect"
#define CLASS_POLICY "policy"
#define CLASS_GATED "version-gated"
#define ROW(name, check, class, surface, symptom, remedy, how, seen, source)                                           \
    { #name, CLASS_##class, check_##check, surface, symptom, remedy, how, seen, source },
#include "lane/matrix.def"
};
enum { NROW = sizeof table / sizeof *table };

/* ---- rehearsed upgrades --------------------------------------------------------------------------------------------
 * What `xlane upgrade` found of the plugin at hand: a row for each kind of regression. */
static void upgrade_rows(const lane *l, const xl_node *u, xl_matrix_row **out, size_t *n, size_t *cap)
{
    char identity[128];
    const xl_node *moved = xl_node_get(u, "moved"), *when = xl_node_get(u, "topology");
    const xl_node *from = xl_node_get(u, "from"), *to = xl_node_get(u, "to");
    xl_identity_file(l->plugin, identity, sizeof identity);
    bool here = xl_str_is(xl_node_text(to, "identity"), identity),
         ahead = xl_str_is(xl_node_text(from, "identity"), identity);
    if (!here && !ahead)
        return;
    xl_str topology = when && when->kind == XL_NODE_STR ? when->s : XL_STR("the devices here"),
           package = xl_node_text(from, "package");
    for (int k = 0; k < XL_MOVE_COUNT; k++) {
        const xl_node *worst = NULL;
        size_t more = 0;
        for (size_t i = 0; moved && i < moved->n; i++) {
            const xl_node *m = moved->kid[i], *bad = xl_node_get(m, "regression");
            if (!bad || !bad->b || !xl_str_is(xl_node_text(m, "kind"), xl_move_word((xl_move_kind)k)))
                continue;
            more += worst != NULL;
            worst = worst ? worst : m;
        }
        if (!worst)
            continue;
        xl_str symptom = xl_strf(l->a, "%.*s: %.*s: %.*s", XL_FMT(xl_node_text(worst, "program")),
                                 XL_FMT(xl_node_text(worst, "what")), XL_FMT(xl_node_text(worst, "text")));
        xl_matrix_row r = {
            .name = xl_strf(l->a, "upgrade.%s", xl_move_word((xl_move_kind)k)).p,
            .class = CLASS_GATED,
            .surface = xl_strf(l->a, "%.*s to %.*s, for %.*s", XL_FMT(xl_node_text(from, "label")),
                               XL_FMT(xl_node_text(to, "label")), XL_FMT(topology))
                           .p,
            .symptom = more ? xl_strf(l->a, "%.*s, and %zu more", XL_FMT(symptom), more).p : symptom.p,
            .remedy = package.n
                          ? xl_strf(l->a, "pip install %.*s==%.*s until it is fixed", XL_FMT(package),
                                    XL_FMT(xl_node_text(from, "version")))
                                .p
                          : xl_strf(l->a, "stay with %.*s until it is fixed", XL_FMT(xl_node_text(from, "path"))).p,
            .how = "both versions compiled the same programs, and ran them where the device was here",
            .seen = xl_str_c(l->a, xl_node_text(to, "label")),
            .source = "xlane upgrade, on this machine",
            .state = here ? XL_MATRIX_HIT : XL_MATRIX_ABSENT,
            .text = here ? xl_strf(l->a, "a rehearsed upgrade to this plugin got worse")
                         : xl_strf(l->a, "this lane has the version before it"),
        };
        XL_PUSH(l->a, *out, *n, *cap, r);
    }
}

static xl_error *upgrades(const lane *l, xl_matrix_row **out, size_t *n)
{
    xl_error *err = NULL;
    xl_node **u;
    size_t nu, cap = *n;
    XL_DO(xl_upgrade_load(l->a, NULL, &u, &nu));
    for (size_t i = 0; i < nu; i++)
        upgrade_rows(l, u[i], out, n, &cap);
out:
    return err;
}

/* A run is judged by the settings that it had, not by those of the shell that asks: from here on this process has them.
 * What belongs to one run alone (its folder, its clock) stays away, and where the state lies is this host's matter. */
static void take_settings(const lane *l)
{
    static const char *const settings[] = { "XLA_", "LIBTPU_", "TPU_", "JAX_", "PT_XLA_", "XLANE_" };
    static const char *const own[] = { "XLANE_RUN", "XLANE_GUARD", "XLANE_STATE", "XLANE_LOG" };
    const xl_node *had = xl_node_get(xl_run_about(l->a, l->run).json, "environment");
    extern char **environ;
    if (!had)
        return;
    xl_str *gone = NULL;
    size_t n = 0, cap = 0;
    for (char **e = environ; *e; e++) {
        xl_str name = xl_str_dup(l->a, xl_str_of(*e));
        name = xl_str_cut(&name, '=');
        if (starts(name, settings, 6) && !starts(name, own, 4))
            XL_PUSH(l->a, gone, n, cap, name);
    }
    for (size_t i = 0; i < n; i++)
        unsetenv(xl_str_c(l->a, gone[i]));
    for (size_t i = 0; i < had->n; i++)
        if (starts(had->kid[i]->key, settings, 6) && !starts(had->kid[i]->key, own, 4))
            setenv(xl_str_c(l->a, had->kid[i]->key), xl_str_c(l->a, had->kid[i]->s), 1);
}

xl_error *xl_matrix(xl_arena *a, const xl_matrix_wish *w, bool check, xl_matrix_row **out, size_t *n)
{
    xl_error *err = NULL;
    lane l = { .a = a, .cache = w->cache, .run = w->run };
    *out = xl_new(a, xl_matrix_row, NROW);
    *n = NROW;
    if (check) {
        xl_plugin_choice c;
        if (l.run)
            take_settings(&l);
        XL_DO(xl_plugin_find(a, &(xl_plugin_wish){ .named = w->plugin }, &c));
        l.plugin = c.path;
        const char *kind = xl_plugin_kind(c.path);
        l.tpu = kind && !strcmp(kind, "tpu");
        l.cuda = kind && !strcmp(kind, "cuda");
        xl_bundle_collect(a, c.path, &l.bundle);
        XL_DO(xl_profile_effective(a, NULL, &l.profile));
        if (l.run)
            XL_DO(xl_run_events(a, l.run, &l.e, &l.n));
        look_at_plugin(&l);
    }
    for (size_t i = 0; i < NROW; i++) {
        xl_matrix_row *r = &(*out)[i];
        *r = (xl_matrix_row){ table[i].name, table[i].class, table[i].surface, table[i].symptom,  table[i].remedy,
                              table[i].how,  table[i].seen,  table[i].source,  XL_MATRIX_UNKNOWN, XL_STR("") };
        if (!check)
            continue;
        finding f = table[i].check(&l);
        r->state = f.state;
        r->text = f.text;
    }
    if (check)
        XL_DO(upgrades(&l, out, n));
out:
    return err;
}
