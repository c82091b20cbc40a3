#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

static xl_code code_of(int e)
{
    switch (e) {
    case ENOENT: case ENOTDIR: return XL_CODE_NOT_FOUND;
    case EACCES: case EPERM: case EROFS: return XL_CODE_PERMISSION;
    case EEXIST: return XL_CODE_EXISTS;
    case ENOSPC: case EDQUOT: case ENOMEM: return XL_CODE_EXHAUSTED;
    case EISDIR: case ENAMETOOLONG: case ELOOP: case EINVAL: return XL_CODE_INVALID;
    default: return XL_CODE_UNAVAILABLE;
    }
}

static xl_error *os_error(int e, const char *doing, const char *path)
{
    return xl_error_new(code_of(e), "%s %s: %s", doing, path, strerror(e));
}

xl_error *xl_file_read(xl_arena *a, const char *path, xl_str *out) { return xl_file_read_max(a, path, XL_FILE_MOST, out); }

static ssize_t read_some(int fd, char *p, size_t n)
{
    ssize_t got;
    do
        got = read(fd, p, n < (1u << 30) ? n : (1u << 30));
    while (got < 0 && errno == EINTR);
    return got;
}

xl_error *xl_file_read_max(xl_arena *a, const char *path, uint64_t most, xl_str *out)
{
    xl_error *err = NULL;
    xl_buf grown = { 0 };
    struct stat st;
    *out = (xl_str){ "", 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = os_error(errno, "opening", path);
        goto out;
    }
    if (S_ISDIR(st.st_mode)) {
        err = XL_ERR(INVALID, "%s is a folder", path);
        goto out;
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > most) {
        err = XL_ERR(EXHAUSTED, "%s has %lld bytes, more than the %llu that are allowed here", path, (long long)st.st_size,
                     (unsigned long long)most);
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
                err = os_error(errno, "reading", path);
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
            err = os_error(errno, "reading", path);
            goto out;
        }
        if (got == 0)
            break;
        if ((uint64_t)got > most - grown.n) {
            err = XL_ERR(EXHAUSTED, "%s has more than the %llu bytes that are allowed here", path, (unsigned long long)most);
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

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t w = write(fd, p, n < (1u << 30) ? n : (1u << 30));
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
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

static xl_error *write_whole(const char *path, xl_str bytes, unsigned mode, bool fresh, bool sync)
{
    xl_error *err = NULL;
    char dir[PATH_MAX], name[PATH_MAX];
    int fd = -1;
    uint64_t r = 0;
    bool made = false;
    xl_str d = xl_path_dir(xl_str_of(path));
    XL_TRY(xl_random(&r, sizeof r), "naming a temporary file beside %s", path);
    if (snprintf(dir, sizeof dir, "%.*s", XL_FMT(d)) >= (int)sizeof dir ||
        snprintf(name, sizeof name, "%.*s/.xlane-%lx-%016llx.tmp", XL_FMT(d), (unsigned long)getpid(),
                 (unsigned long long)r) >= (int)sizeof name) {
        err = XL_ERR(INVALID, "writing a file: its path has %zu bytes", strlen(path));
        goto out;
    }
    fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        err = os_error(errno, "making a temporary file for", path);
        goto out;
    }
    made = true;
    if (write_all(fd, bytes.p, bytes.n) != 0 || (sync && fsync(fd) != 0)) {
        err = os_error(errno, "writing", path);
        goto out;
    }
    int closed = close(fd);
    fd = -1;
    if (closed != 0) {
        err = os_error(errno, "writing", path);
        goto out;
    }
    if (fresh ? link(name, path) : rename(name, path)) {
        err = os_error(errno, "putting in place", path);
        goto out;
    }
    made = fresh; /* link left the temporary name behind, rename did not */
    if (sync)
        sync_dir(dir);
out:
    if (fd >= 0)
        close(fd);
    if (made)
        unlink(name);
    return err;
}

xl_error *xl_file_write_atomic(const char *path, xl_str bytes) { return write_whole(path, bytes, 0666, false, true); }

xl_error *xl_file_write_new(const char *path, xl_str bytes, unsigned mode) { return write_whole(path, bytes, mode, true, true); }

xl_error *xl_file_write_mode(const char *path, xl_str bytes, unsigned mode) { return write_whole(path, bytes, mode, false, true); }

xl_error *xl_file_write_quick(const char *path, xl_str bytes) { return write_whole(path, bytes, 0666, false, false); }

xl_error *xl_file_append(const char *path, xl_str line)
{
    xl_error *err = NULL;
    xl_buf b = { 0 };
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        err = os_error(errno, "opening", path);
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
        err = os_error(errno, "adding to", path);
out:
    if (fd >= 0)
        close(fd);
    xl_buf_fini(&b);
    return err;
}

xl_error *xl_file_remove(const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? NULL : os_error(errno, "removing", path);
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

xl_error *xl_dir_make(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return XL_ERR(INVALID, "making a folder: the path has %zu bytes", n);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0)
            continue;
        char at = part[i];
        part[i] = 0;
        struct stat st;
        if (mkdir(part, 0777) != 0) {
            int e = errno;
            /* A folder above may be one that we may not write, or (on some systems) not even ask to make. */
            if (stat(part, &st) != 0)
                return os_error(e, "making the folder", part);
            if (!S_ISDIR(st.st_mode))
                return XL_ERR(INVALID, "making the folder %s: %s is a file", path, part);
        }
        part[i] = at;
    }
    return NULL;
}

static int by_name(const void *a, const void *b) { return xl_str_cmp(*(const xl_str *)a, *(const xl_str *)b); }

xl_error *xl_dir_list(xl_arena *a, const char *path, xl_str **names, size_t *n)
{
    size_t cap = 0;
    *names = NULL;
    *n = 0;
    DIR *d = opendir(path);
    if (!d)
        return os_error(errno, "listing", path);
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
        return os_error(e, "listing", path);
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
        return os_error(errno, "looking at", step);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return XL_ERR(UNAUTHENTICATED, "%s is not to be trusted: %s belongs to user %lu; use a folder of your own",
                      path, step, (unsigned long)st.st_uid);
    /* Others may write a sticky folder (/tmp), but not replace in it what is ours; a link's own mode says nothing. */
    bool sticky = S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !sticky && !S_ISLNK(st.st_mode))
        return XL_ERR(UNAUTHENTICATED, "%s is not to be trusted: others may write %s; run: chmod go-w '%s'", path, step, step);
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
            return os_error(errno, "looking for", path);
        strcat(abs, "/");
    }
    if (strlen(path) >= PATH_MAX)
        return XL_ERR(INVALID, "the path has %zu bytes", strlen(path));
    strcat(abs, path);
    if (!realpath(path, real))
        return os_error(errno, "looking at", path);
    /* As written, for the links on the way; then as it really is, for where they lead. */
    xl_error *err = trusted_steps(abs, path);
    return err ? err : trusted_steps(real, path);
}
