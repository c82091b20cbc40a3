/* Not a plugin: faults for the guard alone. Preloaded beside it, this fails calls that come from libxlane-guard.so and
 * from nobody else: XLANE_INJECT=malloc:7 every seventh allocation, write:ENOSPC, write:EIO, open:EMFILE, rename:EROFS
 * and so on, always. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* they stand before libc's own */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static _Atomic uintptr_t from, to;
static atomic_ulong count;

static int find_guard(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!strstr(info->dlpi_name, "libxlane-guard"))
        return 0;
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            low = at < low ? at : low;
            high = at + info->dlpi_phdr[i].p_memsz > high ? at + info->dlpi_phdr[i].p_memsz : high;
        }
    from = low;
    to = high;
    return 1;
}

static const char *fault(const char *call)
{
    const char *v = getenv("XLANE_INJECT");
    size_t n = strlen(call);
    return v && !strncmp(v, call, n) && v[n] == ':' ? v + n + 1 : NULL;
}

static int ours(const void *caller)
{
    static _Thread_local int looking;
    if (!to && !looking) {
        looking = 1;
        dl_iterate_phdr(find_guard, NULL);
        looking = 0;
    }
    return (uintptr_t)caller >= from && (uintptr_t)caller < to;
}

static int number(const char *name)
{
    return !strcmp(name, "ENOSPC")   ? ENOSPC
           : !strcmp(name, "EIO")    ? EIO
           : !strcmp(name, "EMFILE") ? EMFILE
           : !strcmp(name, "EROFS")  ? EROFS
                                     : EACCES;
}

static int fails(const char *call, const void *caller)
{
    const char *f = fault(call);
    if (!f || !ours(caller))
        return 0;
    errno = number(f);
    return 1;
}

static int no_memory(const void *caller)
{
    const char *f = fault("malloc");
    if (!f || !ours(caller))
        return 0;
    unsigned long every = strtoul(f, NULL, 10);
    if (!every || (atomic_fetch_add(&count, 1) + 1) % every)
        return 0;
    errno = ENOMEM;
    return 1;
}

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
#define NEXT(fn, T) static T *real; if (!real) { void *p_ = dlsym(RTLD_NEXT, fn); memcpy(&real, &p_, sizeof real); }

EXPORT void *malloc(size_t n) { return no_memory(CALLER) ? NULL : __libc_malloc(n); }
EXPORT void *calloc(size_t a, size_t b) { return no_memory(CALLER) ? NULL : __libc_calloc(a, b); }
EXPORT void *realloc(void *p, size_t n) { return no_memory(CALLER) ? NULL : __libc_realloc(p, n); }

typedef int open_fn(const char *, int, ...);
EXPORT int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = va_arg(ap, int);
    va_end(ap);
    NEXT("open", open_fn)
    return fails("open", CALLER) ? -1 : real(path, flags, mode);
}
typedef ssize_t write_fn(int, const void *, size_t);
EXPORT ssize_t write(int fd, const void *p, size_t n)
{
    NEXT("write", write_fn)
    return fails("write", CALLER) ? -1 : real(fd, p, n);
}
typedef ssize_t read_fn(int, void *, size_t);
EXPORT ssize_t read(int fd, void *p, size_t n)
{
    NEXT("read", read_fn)
    return fails("read", CALLER) ? -1 : real(fd, p, n);
}
typedef int fsync_fn(int);
EXPORT int fsync(int fd)
{
    NEXT("fsync", fsync_fn)
    return fails("fsync", CALLER) ? -1 : real(fd);
}
typedef int rename_fn(const char *, const char *);
EXPORT int rename(const char *a, const char *b)
{
    NEXT("rename", rename_fn)
    return fails("rename", CALLER) ? -1 : real(a, b);
}
typedef int mkdir_fn(const char *, mode_t);
EXPORT int mkdir(const char *a, mode_t m)
{
    NEXT("mkdir", mkdir_fn)
    return fails("mkdir", CALLER) ? -1 : real(a, m);
}
