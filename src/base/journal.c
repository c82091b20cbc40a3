#include "base/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

enum { KEPT_MAX = 4 << 20 };

static bool is_ours(const xl_journal *j, int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_dev == j->dev &&
           (uint64_t)st.st_ino == j->ino;
}

static int open_plain(const char *path, int flags)
{
    struct stat st;
    int fd = xl_file_open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

xl_error *xl_journal_open(xl_journal *j, const char *path, xl_str head, bool shared)
{
    char real[PATH_MAX];
    struct stat st;
    *j = (xl_journal){ .fd = -1, .shared = shared, .pid = (int)getpid() };
    xl_mutex_init(&j->lock);
    int fd = open_plain(path, O_CREAT | O_EXCL);
    bool fresh = fd >= 0;
    if (!fresh && errno == EEXIST)
        fd = open_plain(path, 0);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return xl_file_error(e, "opening", path);
    }
    j->fd = fd;
    j->dev = (uint64_t)st.st_dev;
    j->ino = (uint64_t)st.st_ino;
    j->path = strdup(realpath(path, real) ? real : path);
    if (!j->path) {
        close(fd);
        j->fd = -1;
        return XL_ERR(EXHAUSTED, "out of memory");
    }
    if (fresh && head.n)
        xl_journal_add(j, head, 0);
    return NULL;
}

/* All of it, or nothing that counts. */
static bool write_to(xl_journal *j, int fd, const char *p, size_t n)
{
    if (j->torn) {
        if (xl_file_write_some(fd, "\n", 1) != 1)
            return false;
        j->torn = false;
    }
    size_t done = 0;
    while (done < n) {
        ssize_t w = xl_file_write_some(fd, p + done, n - done);
        if (w <= 0)
            break;
        done += (size_t)w;
    }
    if (done == n)
        return true;
    struct stat st;
    if (done && !j->shared && fstat(fd, &st) == 0 && (size_t)st.st_size >= done &&
        ftruncate(fd, st.st_size - (off_t)done) == 0)
        done = 0;
    j->torn = done > 0;
    return false;
}

typedef struct { xl_journal *j; const char *p; size_t n; bool ok; } by_path;

static void write_by_path(void *arg)
{
    by_path *w = arg;
    int fd = open_plain(w->j->path, 0);
    w->ok = is_ours(w->j, fd) && write_to(w->j, fd, w->p, w->n);
    if (fd >= 0)
        close(fd);
}

static bool write_whole(xl_journal *j, const char *p, size_t n)
{
    if (is_ours(j, j->fd))
        return write_to(j, j->fd, p, n);
    by_path w = { j, p, n, false };
    j->fd = -1; /* what the number means now is somebody else's: it stays open */
    xl_file_apart(write_by_path, &w);
    return w.ok;
}

/* Never waits long: the thread that held it may have been lost in a fork, or stopped. */
static bool enter(xl_journal *j)
{
    struct timespec until;
    int me = (int)getpid(), was = j->pid;
    if (was != me && atomic_compare_exchange_strong(&j->pid, &was, me)) {
        xl_mutex_init(&j->lock);
        j->kept = (xl_buf){ 0 }; /* the parent's to write; its memory may be in use by a copy of a lost thread */
        j->nkept = 0;
        j->lost = 0;
        j->torn = false;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    return pthread_mutex_timedlock(&j->lock.m, &until) == 0;
}

static bool flush(xl_journal *j)
{
    if (j->kept.n) {
        if (!write_whole(j, j->kept.p, j->kept.n))
            return false;
        j->kept.n = 0;
        j->nkept = 0;
    }
    return true;
}

bool xl_journal_add(xl_journal *j, xl_str lines, uint64_t n)
{
    if (!j->path)
        return false;
    if (!enter(j)) {
        j->lost += n;
        return false;
    }
    bool ok = flush(j) && write_whole(j, lines.p, lines.n);
    if (!ok && j->kept.n + lines.n <= KEPT_MAX) {
        size_t before = j->kept.n;
        xl_buf_str(&j->kept, lines);
        if (j->kept.failed) {
            j->kept.n = before;
            j->kept.failed = false;
            j->lost += n;
        } else {
            j->nkept += n;
        }
    } else if (!ok) {
        j->lost += n;
    }
    xl_mutex_unlock(&j->lock);
    return ok;
}

bool xl_journal_flush(xl_journal *j)
{
    if (!j->path)
        return true;
    if (!enter(j))
        return false;
    bool ok = flush(j);
    xl_mutex_unlock(&j->lock);
    return ok;
}

uint64_t xl_journal_missing(xl_journal *j) { return j->lost + (j->pid == (int)getpid() ? j->nkept : 0); }

void xl_journal_close(xl_journal *j)
{
    if (!j->path)
        return;
    if (!xl_journal_flush(j))
        j->lost += j->nkept;
    j->nkept = 0;
    if (is_ours(j, j->fd))
        close(j->fd);
    j->fd = -1;
    xl_buf_fini(&j->kept);
    free(j->path);
    j->path = NULL;
}
