/* No plugin: faults for the tests, preloaded into a program: they fail what the C library would have done.
 *   FAULT_FSYNC=PART      fsync of a file whose name has PART in it gives EIO
 *   FAULT_FULL=FILE       while FILE exists the disk is full: write gives ENOSPC after at most 7 bytes of each call
 *   have been taken FAULT_STEP=SECONDS    the wall clock goes back by so much after its 40th reading
 *   FAULT_SHORT=N         every write takes at most N bytes
 *   FAULT_LINGER=PART     a thread that opened a file whose path has PART in it goes on 20 ms later */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))

static int name_of(int fd, char *out, size_t n)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, out, n - 1);
    out[got > 0 ? got : 0] = 0;
    return got > 0;
}

SHOWN int fsync(int fd)
{
    char name[4096];
    const char *part = getenv("FAULT_FSYNC");
    if (part && name_of(fd, name, sizeof name) && strstr(name, part)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

SHOWN int open(const char *path, int flags, ...)
{
    const char *part = getenv("FAULT_LINGER");
    va_list more;
    va_start(more, flags);
    unsigned mode = flags & O_CREAT ? va_arg(more, unsigned) : 0;
    va_end(more);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode), e = errno;
    if (part && strstr(path, part))
        usleep(20000);
    errno = e;
    return fd;
}

SHOWN ssize_t write(int fd, const void *p, size_t n)
{
    const char *full = getenv("FAULT_FULL"), *most = getenv("FAULT_SHORT");
    struct stat st;
    char name[4096];
    if (most && n > (size_t)atoi(most) && fd > 2)
        n = (size_t)atoi(most);
    if (full && fd > 2 && stat(full, &st) == 0 && name_of(fd, name, sizeof name) && name[0] == '/' &&
        strncmp(name, "/dev/", 5)) {
        static _Thread_local int taken;
        if (taken || n < 8) {
            taken = 0;
            errno = ENOSPC;
            return -1;
        }
        taken = 1;
        n = 7;
    }
    return (ssize_t)syscall(SYS_write, fd, p, n);
}

SHOWN int clock_gettime(clockid_t id, struct timespec *t)
{
    static atomic_int readings;
    const char *step = getenv("FAULT_STEP");
    long rc = syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && step && id == CLOCK_REALTIME && atomic_fetch_add(&readings, 1) >= 40)
        t->tv_sec -= atol(step);
    return (int)rc;
}
