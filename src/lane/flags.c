#include "lane/flags.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool in_name(unsigned char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }
static bool in_word(unsigned char c) { return in_name(c) || (c >= 'A' && c <= 'Z'); }

static int by_name(const void *a, const void *b) { return xl_str_cmp(*(const xl_str *)a, *(const xl_str *)b); }

enum { NAME_MOST = 120, NAMES_MOST = 1 << 16 };

/* A word counts when a C string ends with it and it is not the tail of a longer word. Linkers let one string be the
 * tail of another, which this misses; no flag of the plugins looked at is stored so. */
static void take(xl_arena *a, const char *p, size_t n, const char *prefix, xl_flag_set *out, size_t *cap)
{
    size_t len = strlen(prefix);
    const char *at = p, *end = p + n;
    while (out->n < NAMES_MOST && (at = memmem(at, (size_t)(end - at), prefix, len))) {
        const char *stop = at + len;
        while (stop < end && in_name((unsigned char)*stop))
            stop++;
        size_t size = (size_t)(stop - at);
        if (stop < end && !*stop && size > len && size < NAME_MOST && (at == p || !in_word((unsigned char)at[-1])))
            XL_PUSH(a, out->name, out->n, *cap, xl_str_dup(a, (xl_str){ at, size }));
        at = stop;
    }
}

/* Opens a shared library to read its bytes. */
static xl_error *open_library(const char *path, int *out, size_t *size)
{
    struct stat st;
    char head[4] = "";
    xl_error *err = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not hold us up */
    if (fd < 0 || fstat(fd, &st))
        err = xl_error_new(errno == ENOENT ? XL_CODE_NOT_FOUND : XL_CODE_UNAVAILABLE, "opening %s: %s", path,
                           strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size < 64)
        err = XL_ERR(INVALID, "%s is not a shared library", path);
    else if (pread(fd, head, sizeof head, 0) != sizeof head || memcmp(head, "\177ELF", sizeof head))
        err = XL_ERR(INVALID, "%s is not a shared library (no ELF header)", path);
    if (err && fd >= 0)
        close(fd);
    *out = err ? -1 : fd;
    *size = err ? 0 : (size_t)st.st_size;
    return err;
}

xl_error *xl_flags_file(const char *path)
{
    int fd;
    size_t n;
    xl_error *err = open_library(path, &fd, &n);
    if (fd >= 0)
        close(fd);
    return err;
}

xl_error *xl_flags_scan(xl_arena *a, const char *path, xl_flag_set *out)
{
    size_t cap = 0, n;
    int fd;
    *out = (xl_flag_set){ .path = xl_str_c(a, xl_str_of(path)) };
    xl_error *err = open_library(path, &fd, &n);
    if (err)
        return err;
    const char *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return XL_ERR(EXHAUSTED, "mapping %s: %s", path, strerror(errno));
    madvise((void *)p, n, MADV_SEQUENTIAL);
    static const char *const prefixes[] = { "xla_", "megascale_", "tpu_" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        take(a, p, n, prefixes[i], out, &cap);
    munmap((void *)p, n);
    if (out->n)
        qsort(out->name, out->n, sizeof *out->name, by_name);
    size_t kept = 0;
    for (size_t i = 0; i < out->n; i++)
        if (!kept || !xl_str_eq(out->name[kept - 1], out->name[i]))
            out->name[kept++] = out->name[i];
    out->n = kept;
    return NULL;
}

bool xl_flags_know(const xl_flag_set *s, xl_str name)
{
    return s->n && bsearch(&name, s->name, s->n, sizeof *s->name, by_name);
}

xl_str xl_flags_nearest(const xl_flag_set *s, xl_str name)
{
    size_t best = SIZE_MAX;
    xl_str near = { "", 0 };
    for (size_t i = 0; i < s->n; i++) {
        size_t gap = s->name[i].n > name.n ? s->name[i].n - name.n : name.n - s->name[i].n;
        if (gap >= best || gap > 1 + name.n / 3)
            continue;
        size_t d = xl_str_distance(s->name[i], name);
        if (d < best) {
            best = d;
            near = s->name[i];
        }
    }
    return best <= 1 + name.n / 4 ? near : (xl_str){ "", 0 };
}

bool xl_flags_next(xl_str *rest, xl_str *name, xl_str *value)
{
    *rest = xl_str_trim(*rest);
    if (!rest->n)
        return false;
    size_t len = 0;
    while (len < rest->n && rest->p[len] != ' ' && rest->p[len] != '\t' && rest->p[len] != '\n')
        len++;
    xl_str word = { rest->p, len };
    *rest = (xl_str){ rest->p + len, rest->n - len };
    while (word.n && word.p[0] == '-')
        word = (xl_str){ word.p + 1, word.n - 1 };
    *value = word;
    *name = xl_str_cut(value, '=');
    if (!value->p)
        *value = XL_STR("true");
    return true;
}
