#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/thread.h"

static xl_code code_of(int e)
{
    switch (e) {
    case ENOENT: case ENOTDIR: return XL_CODE_NOT_FOUND;
    case EACCES: case EPERM: case EROFS: return XL_CODE_PERMISSION;
    case EEXIST: return XL_CODE_EXISTS;
    case ENOMEM: return XL_CODE_EXHAUSTED;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO: return XL_CODE_UNAVAILABLE; /* of the disk: no smaller batch would help */
    case EISDIR: case ENAMETOOLONG: case ELOOP: case EINVAL: return XL_CODE_INVALID;
    default: return XL_CODE_UNAVAILABLE;
    }
}

xl_error *xl_file_error(int e, const char *doing, const char *path)
{
    return xl_error_new(code_of(e), "%s %s: %s%s", doing, path, strerror(e),
                        e == ENOSPC || e == EDQUOT ? "; make room there" : "");
}

int xl_file_open(const char *path, int flags, unsigned mode)
{
    enum { HIGH = 4096 };
    struct rlimit r;
    int from = HIGH, fd = open(path, flags | O_CLOEXEC, mode);
    if (fd < 0)
        return fd;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur != RLIM_INFINITY && r.rlim_cur < 2 * HIGH)
        from = (int)(r.rlim_cur / 2);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

typedef struct { void (*fn)(void *arg); void *arg; } apart_job;

static void apart(void *p)
{
    apart_job *j = p;
#ifdef SYS_close_range
    enum { UNSHARE = 2 }; /* CLOSE_RANGE_UNSHARE */
    syscall(SYS_close_range, 3u, ~0u, UNSHARE);
#endif
    j->fn(j->arg);
}

void xl_file_apart(void (*fn)(void *arg), void *arg)
{
    xl_thread t;
    xl_error *err = xl_thread_start(&t, "xlane-files", apart, &(apart_job){ fn, arg });
    if (!err) {
        xl_thread_join(&t);
        return;
    }
    xl_error_free(err);
    fn(arg);
}

xl_error *xl_file_read(xl_arena *a, const char *path, xl_str *out)
{
    return xl_file_read_max(a, path, XL_FILE_MAX, out);
}

static ssize_t read_some(int fd, char *p, size_t n)
{
    ssize_t got;
    do
        got = read(fd, p, n < (1u << 30) ? n : (1u << 30));
    while (got < 0 && errno == EINTR);
    return got;
}

static xl_error *read_max(xl_arena *a, const char *path, uint64_t most, bool plain, xl_str *out)
{
    xl_error *err = NULL;
    xl_buf grown = { 0 };
    struct stat st;
    *out = (xl_str){ "", 0 };
    int fd = xl_file_open(path, O_RDONLY | (plain ? O_NOFOLLOW | O_NONBLOCK : 0), 0);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = xl_file_error(errno, "opening", path);
        goto out;
    }
    if (plain && !S_ISREG(st.st_mode)) {
        err = XL_ERR(INVALID, "%s is not a plain file", path);
        goto out;
    }
    if (S_ISDIR(st.st_mode)) {
        err = XL_ERR(INVALID, "%s is a folder; name a file", path);
        goto out;
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > most) {
        err = XL_ERR(EXHAUSTED, "%s has %lld bytes, more than the %llu that are allowed here", path,
                     (long long)st.st_size, (unsigned long long)most);
        goto out;
    }
    if (S_ISREG(st.st_mode) && st.st_size > 0) {
        size_t size = (size_t)st.st_size, n = 0;
        char *p = xl_arena_try(a, size + 1);
        if (!p) {
            err = XL_ERR(EXHAUSTED, "no memory for the %zu bytes of %s", size, path);
            goto out;
        }
        while (n < size) {
            ssize_t got = read_some(fd, p + n, size - n);
            if (got < 0) {
                err = xl_file_error(errno, "reading", path);
                goto out;
            }
            if (got == 0)
                break; /* it shrank meanwhile: what is there is what it has */
            n += (size_t)got;
        }
        *out = (xl_str){ p, n };
        goto out;
    }
    /* A pipe, or a file of /proc: its size is known when it ends. */
    for (;;) {
        char piece[1 << 14];
        ssize_t got = read_some(fd, piece, sizeof piece);
        if (got < 0) {
            err = xl_file_error(errno, "reading", path);
            goto out;
        }
        if (got == 0)
            break;
        if ((uint64_t)got > most - grown.n) {
            err = XL_ERR(EXHAUSTED, "%s has more than the %llu bytes that are allowed here", path,
                         (unsigned long long)most);
            goto out;
        }
        xl_buf_add(&grown, piece, (size_t)got);
        if (grown.failed) {
            err = XL_ERR(EXHAUSTED, "no memory for more than %zu bytes of %s", grown.n, path);
            goto out;
        }
    }
    char *p = xl_arena_try(a, grown.n + 1);
    if (!p) {
        err = XL_ERR(EXHAUSTED, "no memory for the %zu bytes of %s", grown.n, path);
        goto out;
    }
    if (grown.n)
        memcpy(p, grown.p, grown.n);
    p[grown.n] = 0;
    *out = (xl_str){ p, grown.n };
out:
    xl_buf_fini(&grown);
    if (fd >= 0)
        close(fd);
    return err;
}

xl_error *xl_file_read_max(xl_arena *a, const char *path, uint64_t most, xl_str *out)
{
    return read_max(a, path, most, false, out);
}
xl_error *xl_file_read_plain(xl_arena *a, const char *path, uint64_t most, xl_str *out)
{
    return read_max(a, path, most, true, out);
}

/* Both signals are sent to the thread that writes, so they can be held back and taken away unseen. */
int64_t xl_file_write_some(int fd, const void *p, size_t n)
{
    sigset_t held, before, pending;
    ssize_t w;
    sigemptyset(&held);
    sigaddset(&held, SIGXFSZ);
    sigaddset(&held, SIGPIPE);
    bool blocked = pthread_sigmask(SIG_BLOCK, &held, &before) == 0;
    bool had =
        sigpending(&pending) == 0 && (sigismember(&pending, SIGXFSZ) == 1 || sigismember(&pending, SIGPIPE) == 1);
    do
        w = write(fd, p, n < (1u << 30) ? n : (1u << 30));
    while (w < 0 && errno == EINTR);
    int e = w < 0 ? errno : 0;
    if (blocked) {
        if ((e == EFBIG || e == EPIPE) && !had)
            while (sigtimedwait(&held, NULL, &(struct timespec){ 0, 0 }) < 0 && errno == EINTR)
                ;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    errno = e;
    return w;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        int64_t w = xl_file_write_some(fd, p, n);
        if (w <= 0) {
            errno = w ? errno : ENOSPC;
            return -1;
        }
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

/* The folder's entry is as much a part of the file as its bytes. Some file systems cannot sync a folder; then the
 * rename is as durable as they make it. */
static void sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
}

bool xl_file_is_temporary(xl_str name)
{
    return xl_str_starts(name, XL_STR(".xlane-")) && xl_str_ends(name, XL_STR(".tmp"));
}

xl_error *xl_file_out_open(xl_file_out *o, const char *path, unsigned mode)
{
    xl_error *err = NULL;
    uint64_t r = 0;
    xl_str d = xl_path_dir(xl_str_of(path));
    *o = (xl_file_out){ .fd = -1 };
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) { /* a rename would replace a device */
        err = XL_ERR(INVALID, "writing %s: it is %s", path, S_ISDIR(st.st_mode) ? "a folder" : "no plain file");
        goto out;
    }
    XL_TRY(xl_random(&r, sizeof r), "naming a temporary file beside %s", path);
    if (snprintf(o->path, sizeof o->path, "%s", path) >= (int)sizeof o->path ||
        snprintf(o->tmp, sizeof o->tmp, "%.*s/.xlane-%lx-%016llx.tmp", XL_FMT(d), (unsigned long)getpid(),
                 (unsigned long long)r) >= (int)sizeof o->tmp) {
        err = XL_ERR(INVALID, "writing a file: its path has %zu bytes", strlen(path));
        goto out;
    }
    o->fd = xl_file_open(o->tmp, O_WRONLY | O_CREAT | O_EXCL, mode);
    o->made = o->fd >= 0;
    if (!o->made)
        err = xl_file_error(errno, "making a temporary file for", path);
    if (xl_error_code(err) == XL_CODE_PERMISSION)
        err = xl_error_next(err, "its folder must be writable");
out:
    return err;
}

xl_error *xl_file_out_add(xl_file_out *o, const void *p, size_t n)
{
    return write_all(o->fd, p, n) == 0 ? NULL : xl_file_error(errno, "writing", o->path);
}

static xl_error *finish(xl_file_out *o, bool fresh, bool sync)
{
    int failed = sync && fsync(o->fd) != 0 ? errno : 0;
    if (close(o->fd) != 0 && !failed)
        failed = errno;
    o->fd = -1;
    if (failed)
        return xl_file_error(failed, "writing", o->path);
    if (fresh ? link(o->tmp, o->path) : rename(o->tmp, o->path))
        return xl_file_error(errno, "putting in place", o->path);
    o->made = fresh;                                       /* link left the temporary name behind, rename did not */
    if (sync) {
        char dir[PATH_MAX];
        snprintf(dir, sizeof dir, "%.*s", XL_FMT(xl_path_dir(xl_str_of(o->path))));
        sync_dir(dir);
    }
    return NULL;
}

xl_error *xl_file_out_commit(xl_file_out *o) { return finish(o, false, true); }

void xl_file_out_close(xl_file_out *o)
{
    if (o->fd >= 0)
        close(o->fd);
    if (o->made)
        unlink(o->tmp);
    o->fd = -1;
    o->made = false;
}

static xl_error *write_whole(const char *path, xl_str bytes, unsigned mode, bool fresh, bool sync)
{
    xl_file_out o;
    xl_error *err = xl_file_out_open(&o, path, mode);
    if (!err)
        err = xl_file_out_add(&o, bytes.p, bytes.n);
    if (!err)
        err = finish(&o, fresh, sync);
    xl_file_out_close(&o);
    return err;
}

xl_error *xl_file_write_atomic(const char *path, xl_str bytes) { return write_whole(path, bytes, 0600, false, true); }

xl_error *xl_file_write_new(const char *path, xl_str bytes, unsigned mode)
{
    return write_whole(path, bytes, mode, true, true);
}

xl_error *xl_file_write_mode(const char *path, xl_str bytes, unsigned mode)
{
    return write_whole(path, bytes, mode, false, true);
}

xl_error *xl_file_write_quick(const char *path, xl_str bytes) { return write_whole(path, bytes, 0600, false, false); }

xl_error *xl_file_write_shown(const char *path, xl_str bytes) { return write_whole(path, bytes, 0666, false, false); }

xl_error *xl_file_append(const char *path, xl_str line)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    struct stat st;
    int fd = xl_file_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = xl_file_error(errno, "opening", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        err = XL_ERR(INVALID, "%s is not a plain file", path);
        goto out;
    }
    xl_buf_str(&b, line);
    if (!line.n || line.p[line.n - 1] != '\n')
        xl_buf_putc(&b, '\n');
    if (b.failed) {
        err = XL_ERR(EXHAUSTED, "no memory to add %zu bytes to %s", line.n, path);
        goto out;
    }
    if (write_all(fd, b.p, b.n) != 0)
        err = xl_file_error(errno, "adding to", path);
out:
    if (fd >= 0)
        close(fd);
    xl_buf_fini(&b);
    return err;
}

xl_error *xl_file_remove(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? NULL : xl_file_error(errno, "removing", path);
}

bool xl_file_stat(const char *path, xl_file_info *out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    if (out)
        *out = (xl_file_info){ .size = (uint64_t)st.st_size, .dir = S_ISDIR(st.st_mode),
                               .mtime = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec };
    return true;
}

static xl_error *make_dirs(const char *path, unsigned last)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return n ? XL_ERR(INVALID, "making a folder: its path has %zu bytes, and %d are the most", n, PATH_MAX - 1)
                 : XL_ERR(INVALID, "making a folder: its name is empty");
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0)
            continue;
        char at = part[i];
        part[i] = 0;
        struct stat st;
        if (mkdir(part, i == n ? last : 0777) != 0) {
            int e = errno;
            /* A folder above may be one that we may not write, or (on some systems) not even ask to make. */
            if (stat(part, &st) != 0)
                return xl_file_error(e, "making the folder", part);
            if (!S_ISDIR(st.st_mode))
                return XL_ERR(INVALID, "making the folder %s: %s is a file", path, part);
        }
        part[i] = at;
    }
    return NULL;
}

xl_error *xl_dir_make(const char *path) { return make_dirs(path, 0777); }
xl_error *xl_dir_make_private(const char *path) { return make_dirs(path, 0700); }

bool xl_path_identify(const char *path, xl_path_id *out)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *out = (xl_path_id){ (uint64_t)st.st_dev, (uint64_t)st.st_ino };
    return true;
}

bool xl_path_is(const char *path, const xl_path_id *id)
{
    xl_path_id now;
    return xl_path_identify(path, &now) && now.dev == id->dev && now.ino == id->ino;
}

static int by_name(const void *a, const void *b) { return xl_str_cmp(*(const xl_str *)a, *(const xl_str *)b); }

xl_error *xl_dir_list(xl_arena *a, const char *path, xl_str **names, size_t *n)
{
    size_t cap = 0;
    *names = NULL;
    *n = 0;
    DIR *d = opendir(path);
    if (!d)
        return xl_file_error(errno, "listing", path);
    /* An arena that jumps must not leave the folder open: take each name with xl_arena_try. */
    for (struct dirent *e; (errno = 0, e = readdir(d)); ) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        size_t len = strlen(e->d_name);
        char *copy = xl_arena_try(a, len + 1);
        if (copy && *n == cap) {
            size_t more = cap ? 2 * cap : 16;
            xl_str *list = xl_arena_try(a, more * sizeof *list);
            if (list && cap)
                memcpy(list, *names, cap * sizeof *list);
            if (list) {
                *names = list;
                cap = more;
            }
        }
        if (!copy || *n == cap) {
            closedir(d);
            return XL_ERR(EXHAUSTED, "no memory for the %zu names in %s", *n, path);
        }
        memcpy(copy, e->d_name, len);
        (*names)[(*n)++] = (xl_str){ copy, len };
    }
    int e = errno;
    closedir(d);
    if (e)
        return xl_file_error(e, "listing", path);
    if (*n)
        qsort(*names, *n, sizeof **names, by_name);
    return NULL;
}

char *xl_path_join(xl_arena *a, const char *dir, const char *name)
{
    if (name[0] == '/' || !dir[0])
        return xl_str_c(a, xl_str_of(name));
    size_t n = strlen(dir);
    return xl_str_c(a, xl_strf(a, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name));
}

xl_str xl_path_base(xl_str path)
{
    size_t i = path.n;
    while (i > 0 && path.p[i - 1] != '/')
        i--;
    return (xl_str){ path.p + i, path.n - i };
}

xl_str xl_path_dir(xl_str path)
{
    size_t i = path.n;
    while (i > 0 && path.p[i - 1] != '/')
        i--;
    if (i == 0)
        return XL_STR(".");
    while (i > 1 && path.p[i - 1] == '/')
        i--;
    return (xl_str){ path.p, i };
}

static xl_error *trusted_step(const char *step, const char *path)
{
    struct stat st;
    if (lstat(step, &st) != 0)
        return xl_file_error(errno, "looking at", step);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return XL_ERR(UNAUTHENTICATED, "%s is not to be trusted: %s belongs to user %lu; use a folder of your own",
                      path, step, (unsigned long)st.st_uid);
    /* Others may write a sticky folder (/tmp), but not replace in it what is ours; a link's own mode says nothing. */
    bool sticky = S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !sticky && !S_ISLNK(st.st_mode))
        return XL_ERR(UNAUTHENTICATED, "%s is not to be trusted: others may write %s; run: chmod go-w '%s'", path, step,
                      step);
    return NULL;
}

/* Looks at "/", "/a", "/a/b" ... of an absolute path. */
static xl_error *trusted_steps(char *abs, const char *path)
{
    xl_error *err = trusted_step("/", path);
    for (size_t i = 1; !err && abs[i - 1]; i++) {
        if (abs[i] != '/' && abs[i] != 0)
            continue;
        char at = abs[i];
        abs[i] = 0;
        err = trusted_step(abs, path);
        abs[i] = at;
    }
    return err;
}

xl_error *xl_path_trusted(const char *path)
{
    char abs[2 * PATH_MAX], real[PATH_MAX];
    if (path[0] == '/') {
        abs[0] = 0;
    } else {
        if (!getcwd(abs, PATH_MAX))
            return xl_file_error(errno, "looking for", path);
        strcat(abs, "/");
    }
    if (strlen(path) >= PATH_MAX)
        return XL_ERR(INVALID, "the path has %zu bytes", strlen(path));
    strcat(abs, path);
    if (!realpath(path, real))
        return xl_file_error(errno, "looking at", path);
    /* As written, for the links on the way; then as it really is, for where they lead. */
    xl_error *err = trusted_steps(abs, path);
    return err ? err : trusted_steps(real, path);
}
