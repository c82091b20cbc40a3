/* Finds plugins, in the order given in plugin.h. Only names and device files are examined here: nothing is opened. */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "pjrt/plugin.h"

/* What a plugin's file name says about the devices it wants. The first row that matches counts. */
static const struct { const char *name, *word, *nodes[3], *nodes_text; } kinds[] = {
    { "tpu", "libtpu", { "/dev/accel*", "/dev/vfio/[0-9]*", NULL }, "no TPU device file (/dev/accel*, /dev/vfio/*)" },
    { "cuda", "cuda", { "/dev/nvidia[0-9]*", "/dev/dxg", NULL }, "no NVIDIA device file (/dev/nvidia*)" },
    { "rocm", "rocm", { "/dev/kfd", NULL, NULL }, "no AMD device file (/dev/kfd)" },
    { "cpu", "libxlane-cpu", { NULL, NULL, NULL }, "" },
};
enum { NKIND = sizeof kinds / sizeof *kinds };

static int kind_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    for (int i = 0; i < NKIND; i++)
        if (strstr(slash ? slash : path, kinds[i].word))
            return i;
    return -1;
}

static bool any_exists(const char *const *pattern)
{
    for (; *pattern; pattern++) {
        glob_t g;
        bool hit = glob(*pattern, GLOB_NOSORT, NULL, &g) == 0 && g.gl_pathc > 0;
        globfree(&g);
        if (hit)
            return true;
    }
    return false;
}

static bool has_devices(int kind) { return kind < 0 || !kinds[kind].nodes[0] || any_exists(kinds[kind].nodes); }

const char *xl_plugin_kind(const char *path)
{
    int k = kind_of(path);
    return k < 0 ? NULL : kinds[k].name;
}

bool xl_plugin_word(const char *named)
{
    bool is = false;
    for (int k = 0; k < NKIND; k++)
        is |= strcmp(kinds[k].name, named) == 0;
    return is;
}

xl_error *xl_plugin_named(const char *named)
{
    const char *near = NULL;
    if (strchr(named, '/') || xl_plugin_word(named) || access(named, F_OK) == 0)
        return NULL;
    for (int k = 0; k < NKIND; k++)
        if (xl_str_distance(xl_str_of(named), xl_str_of(kinds[k].name)) <= 1)
            near = kinds[k].name;
    return XL_ERR(
        INVALID,
        "there is no plugin '%s', and no file of that name here; %s%s%scpu, cuda, rocm and tpu are known, and "
        "the path of a plugin",
        named, near ? "did you mean '" : "", near ? near : "", near ? "'? " : "");
}

bool xl_plugin_has_devices(const char *path) { return has_devices(kind_of(path)); }

typedef struct { xl_arena *a; const char **p; size_t n, cap; } list;

/* One entry for each place: lib64 is often a link to lib. */
static void add(list *l, const char *s)
{
    char real[PATH_MAX], other[PATH_MAX];
    bool resolved = realpath(s, real) != NULL;
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->p[i], s) == 0 || (resolved && realpath(l->p[i], other) && strcmp(real, other) == 0))
            return;
    XL_PUSH(l->a, l->p, l->n, l->cap, xl_str_c(l->a, xl_str_of(s)));
}

static void add_glob(list *l, const char *pattern)
{
    glob_t g;
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            add(l, g.gl_pathv[i]);
    globfree(&g);
}

static void add_prefix_sites(list *l, const char *prefix)
{
    static const char *const below[] = { "lib/python3*/site-packages", "lib64/python3*/site-packages",
                                         "lib/python3*/dist-packages", "local/lib/python3*/dist-packages",
                                         "lib/python3/dist-packages" };
    for (size_t i = 0; i < sizeof below / sizeof *below; i++)
        add_glob(l, xl_strf(l->a, "%s/%s", prefix, below[i]).p);
}

const char **xl_python_sites(xl_arena *a, size_t *n)
{
    list l = { .a = a };
    const char *env;
    if ((env = getenv("VIRTUAL_ENV")) && *env)
        add_prefix_sites(&l, env);
    if ((env = getenv("CONDA_PREFIX")) && *env)
        add_prefix_sites(&l, env);
    if ((env = getenv("PYTHONPATH"))) {
        for (xl_str rest = xl_str_of(env); rest.n;) {
            xl_str part = xl_str_cut(&rest, ':');
            if (part.n && part.p[0] == '/')
                add(&l, xl_str_c(a, part));
        }
    }
    /* The python3 that would run: <prefix>/bin/python3, as it is written (a venv's) and as it resolves. */
    if ((env = getenv("PATH"))) {
        for (xl_str rest = xl_str_of(env); rest.n;) {
            xl_str part = xl_str_cut(&rest, ':');
            if (!part.n || part.p[0] != '/')
                continue;
            xl_str exe = xl_strf(a, "%.*s/python3", XL_FMT(part));
            if (access(exe.p, X_OK))
                continue;
            char real[PATH_MAX];
            xl_str prefix = part;
            if (xl_str_ends(prefix, XL_STR("/bin")))
                add_prefix_sites(&l, xl_str_c(a, (xl_str){ prefix.p, prefix.n - 4 }));
            if (realpath(exe.p, real)) {
                char *slash = strstr(real, "/bin/");
                if (slash) {
                    *slash = 0;
                    add_prefix_sites(&l, real);
                }
            }
            break;
        }
    }
    if ((env = getenv("HOME")) && *env)
        add_glob(&l, xl_strf(a, "%s/.local/lib/python3*/site-packages", env).p);
    *n = l.n;
    return l.p;
}

static void python_plugins(list *l)
{
    size_t nsite;
    const char **site = xl_python_sites(l->a, &nsite);
    static const char *const below[] = { "jax_plugins/*/*plugin*.so", "jax_plugins/*/*pjrt*.so", "libtpu/libtpu.so" };
    for (size_t i = 0; i < nsite; i++)
        for (size_t k = 0; k < sizeof below / sizeof *below; k++)
            add_glob(l, xl_strf(l->a, "%s/%s", site[i], below[k]).p);
}

static void system_plugins(list *l)
{
    static const char *const folders[] = { "/usr/local/lib/xlane", "/usr/lib/xlane", "/usr/local/lib", "/usr/lib",
                                           "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib" };
    static const char *const names[] = { "libtpu.so", "xla_cuda_plugin.so", "*pjrt*plugin*.so" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            add_glob(l, xl_strf(l->a, "%s/%s", folders[i], names[k]).p);
}

/* Beside this object: the command, or the library that a program of somebody else is linked with. */
static const char *embedded(xl_arena *a)
{
    char exe[PATH_MAX];
    const char *env = getenv("XLANE_CPU_PLUGIN");
    static const char *const below[] = { "", "/../lib", "/../lib/xlane" };
    if (env && *env)
        return env;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    Dl_info here = { 0 };
    const char *object[] = { dladdr((const void *)kinds, &here) && here.dli_fname ? here.dli_fname : "", exe };
    for (size_t k = 0; k < 2; k++) {
        xl_str folder = xl_path_dir(xl_str_of(object[k]));
        for (size_t i = 0; folder.n && i < sizeof below / sizeof *below; i++) {
            xl_str path = xl_strf(a, "%.*s%s/libxlane-cpu.so", XL_FMT(folder), below[i]);
            if (access(path.p, F_OK) == 0)
                return path.p;
        }
    }
    return NULL;
}

static void pass_over(xl_arena *a, xl_plugin_choice *c, size_t *cap, const char *path, int kind)
{
    XL_PUSH(a, c->passed_over, c->npassed_over, *cap,
            xl_strf(a, "%s: this machine has %s", path, kinds[kind].nodes_text).p);
}

/* Takes the first of `l` whose devices are here; the others are remembered with the reason. */
static bool take(xl_arena *a, const list *l, const char *why, size_t *cap, xl_plugin_choice *c)
{
    for (size_t i = 0; i < l->n; i++) {
        int kind = kind_of(l->p[i]);
        if (has_devices(kind)) {
            c->path = l->p[i];
            c->why = why;
            return true;
        }
        pass_over(a, c, cap, l->p[i], kind);
    }
    return false;
}

static xl_error *by_name(xl_arena *a, const char *named, const char *how, xl_plugin_choice *c)
{
    if (strcmp(named, "cpu") == 0) {
        c->path = embedded(a);
        c->why = xl_strf(a, "the embedded device, %s", how).p;
        return c->path ? NULL
                       : XL_ERR(NOT_FOUND, "libxlane-cpu.so is beside neither this program nor libxlane.so: run ./x "
                                           "build, put it there, or name a plugin file");
    }
    for (int k = 0; k < NKIND; k++) {
        if (strcmp(kinds[k].name, named))
            continue;
        list l = { .a = a };
        const char *env = k == 0 ? getenv("TPU_LIBRARY_PATH") : NULL;
        if (env && *env)
            add(&l, env);
        python_plugins(&l);
        system_plugins(&l);
        for (size_t i = 0; i < l.n; i++)
            if (kind_of(l.p[i]) == k || (env && *env && i == 0)) {
                c->path = l.p[i];
                c->why = xl_strf(a, "the first plugin for '%s', %s", named, how).p;
                return NULL;
            }
        return XL_ERR(NOT_FOUND,
                      "no plugin for '%s' is installed: neither in Python's site-packages nor in the system's folders; "
                      "install it (pip install %s) or give its path",
                      named, k == 0 ? "libtpu" : "jax-cuda13-pjrt");
    }
    xl_error *unknown = xl_plugin_named(named);
    if (unknown)
        return unknown;
    /* A bare name is a file here: the loader must not go looking for it elsewhere. */
    c->path = strchr(named, '/') ? xl_str_c(a, xl_str_of(named)) : xl_strf(a, "./%s", named).p;
    c->why = how;
    return NULL;
}

xl_error *xl_plugin_find(xl_arena *a, const xl_plugin_wish *wish, xl_plugin_choice *out)
{
    const char *env = getenv("XLANE_PLUGIN");
    list python = { .a = a }, system = { .a = a };
    size_t cap = 0;
    *out = (xl_plugin_choice){ 0 };
    if (wish && wish->named)
        return by_name(a, wish->named, "as requested", out);
    if (env && *env)
        return by_name(a, env, "as XLANE_PLUGIN says", out);
    if (wish && wish->profile)
        return by_name(a, wish->profile, "as the profile says", out);
    python_plugins(&python);
    if (take(a, &python, "found in the Python of the environment", &cap, out))
        return NULL;
    system_plugins(&system);
    if (take(a, &system, "found in the system's folders", &cap, out))
        return NULL;
    out->path = embedded(a);
    out->fallback = out->npassed_over > 0;
    out->why = out->fallback ? "the embedded device, as the devices of the plugins that were found are not here"
                             : "the embedded device, as no other plugin was named or found";
    return out->path
               ? NULL
               : XL_ERR(NOT_FOUND, "no plugin was named, none was found in Python or in the system's folders, and "
                                   "libxlane-cpu.so is beside neither this program nor libxlane.so: run ./x build, put "
                                   "it there, or name one (--plugin, or XLANE_PLUGIN)");
}
