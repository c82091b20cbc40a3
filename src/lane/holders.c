#include "lane/holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/secret.h"

static const struct { const char *kind, *patterns; bool exclusive; } kinds[] = {
    { "tpu", "/dev/accel*:/dev/vfio/[0-9]*:/tmp/libtpu_lockfile", true },
    { "cuda", "/dev/nvidia[0-9]*", false },
    { "rocm", "/dev/kfd", false },
};

typedef struct { xl_arena *a; xl_str *path; size_t n, cap, row_cap; } devices;

static void add_patterns(devices *d, const char *patterns)
{
    for (xl_str rest = xl_str_of(patterns); rest.n;) {
        glob_t g;
        char real[PATH_MAX];
        xl_str one = xl_str_cut(&rest, ':');
        if (glob(xl_str_c(d->a, one), 0, NULL, &g) == 0)
            for (size_t i = 0; i < g.gl_pathc; i++)
                if (realpath(g.gl_pathv[i], real))
                    XL_PUSH(d->a, d->path, d->n, d->cap, xl_str_dup(d->a, xl_str_of(real)));
        globfree(&g);
    }
}

/* The parent of a process, or 0: the fourth word of stat, after the name in brackets, which may have anything in it. */
static int parent_of(xl_arena *a, int pid)
{
    xl_str text;
    int ppid = 0;
    xl_error *err = xl_file_read_max(a, xl_strf(a, "/proc/%d/stat", pid).p, 4096, &text);
    if (!err) {
        const char *bracket = memrchr(text.p, ')', text.n);
        if (bracket && text.p + text.n - bracket > 4)
            ppid = atoi(bracket + 4);
    }
    xl_error_free(err);
    return ppid;
}

static bool ours(xl_arena *a, int pid)
{
    for (int depth = 0; pid > 1 && depth < 16; depth++, pid = parent_of(a, pid))
        if (pid == getpid())
            return true;
    return false;
}

static xl_str command_of(xl_arena *a, int pid)
{
    xl_str text = { 0 };
    xl_error *err = xl_file_read_max(a, xl_strf(a, "/proc/%d/cmdline", pid).p, 1 << 16, &text);
    xl_error_free(err);
    if (err || !text.n)
        return XL_STR("(unknown)");
    char **word = NULL;
    size_t n = 0, cap = 0;
    while (text.n)
        XL_PUSH(a, word, n, cap, xl_str_c(a, xl_str_cut(&text, 0)));
    xl_str all = xl_secret_command(a, (int)n, word);
    char *c = xl_str_c(a, all);
    for (size_t i = 0; i < all.n; i++)
        if (c[i] == '\n')
            c[i] = ' ';
    xl_str s = xl_str_trim((xl_str){ c, all.n });
    return s.n > 200 ? xl_strf(a, "%.*s…", 199, s.p) : xl_str_dup(a, s);
}

static void look_into(devices *d, int pid, xl_holders *out)
{
    xl_str folder = xl_strf(d->a, "/proc/%d/fd", pid);
    DIR *dir = opendir(folder.p);
    if (!dir) {
        out->nhidden += errno == EACCES || errno == EPERM;
        return;
    }
    xl_str command = { 0 };
    size_t first = out->n;
    for (struct dirent *e; (e = readdir(dir));) {
        char to[PATH_MAX];
        ssize_t n = readlinkat(dirfd(dir), e->d_name, to, sizeof to);
        if (n <= 0 || n == sizeof to)
            continue;
        for (size_t i = 0; i < d->n; i++) {
            if (!xl_str_eq(d->path[i], (xl_str){ to, (size_t)n }))
                continue;
            bool known = false;
            for (size_t k = first; k < out->n; k++)
                known = known || xl_str_eq(out->holder[k].device, d->path[i]);
            if (known)
                continue;
            if (!command.p && ours(d->a, pid))
                goto out;
            if (!command.p)
                command = command_of(d->a, pid);
            xl_holder h = { pid, command, d->path[i] };
            XL_PUSH(d->a, out->holder, out->n, d->row_cap, h);
        }
    }
out:
    closedir(dir);
}

void xl_holders_find(xl_arena *a, const char *kind, xl_holders *out)
{
    devices d = { .a = a };
    const char *env = getenv("XLANE_PROBE_DEVICES");
    *out = (xl_holders){ 0 };
    out->exclusive = env && *env && !kind;
    if (env && *env)
        add_patterns(&d, env);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!kind || strcmp(kind, kinds[i].kind) == 0) {
            if (!env || !*env)
                add_patterns(&d, kinds[i].patterns);
            out->exclusive |= kinds[i].exclusive && kind;
        }
    out->ndevice = d.n;
    DIR *proc = d.n ? opendir("/proc") : NULL;
    if (!proc)
        return;
    for (struct dirent *e; (e = readdir(proc));)
        if (isdigit((unsigned char)e->d_name[0]))
            look_into(&d, atoi(e->d_name), out);
    closedir(proc);
}
