/* Which line of a PyTorch/XLA program had a graph compiled. Under PT_XLA_DEBUG_LEVEL it writes that to
 * PT_XLA_DEBUG_FILE just before each compile:
 *
 *     Compilation Analysis: Compilation Cause
 *     Compilation Analysis:   most likely user code trying to access tensor value before torch_xla.sync
 *     ...
 *     Compilation Analysis: Python Frame Triggered Execution:
 *     Compilation Analysis:   train (/home/me/train.py:9)
 *
 * Its graphs have no names, so the line is what they are known by. Read only where the launcher named the file, which
 * is in the run's folder; it grows with each execution, so the watcher starts it again now and then. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "guard/guard.h"

enum { TAIL = 16 << 10, MOST = 4 << 20, READS = 32 };

/* Lines where the program read a tensor's value: what is uploaded from there has a size that a value decided. */
static char reads[READS][256];
static uint32_t nreads;                                    /* under compile_lock */

static const char *in_run(guard_state *g, const char *variable)
{
    const char *file = getenv(variable), *dir = xl_run_dir(g->run);
    return file && *dir && !strncmp(file, dir, strlen(dir)) ? file : NULL;
}

static bool in_library(xl_str frame)
{
    return memmem(frame.p, frame.n, "/site-packages/", 15) || memmem(frame.p, frame.n, "/dist-packages/", 15) ||
           memmem(frame.p, frame.n, "/lib/python3", 12);
}

void guard_frame_parse(xl_str text, char *place, size_t room, bool *reads_value)
{
    static const char head[] = "Compilation Analysis: ", start[] = "Compilation Analysis: Compilation Cause\n";
    const char *at = NULL;
    for (const char *p = text.p, *end = text.p + text.n;
         (p = memmem(p, (size_t)(end - p), start, sizeof start - 1)); p++)
        at = p;
    if (!at || (at > text.p && at[-1] != '\n'))            /* "Post Compilation Analysis" is another */
        return;
    xl_str rest = { at, (size_t)(text.p + text.n - at) };
    bool frames = false;
    for (int n = 0; rest.n && n < 200; n++) {
        xl_str line = xl_str_cut(&rest, '\n');
        if (!xl_str_starts(line, XL_STR(head)))
            return;
        line = xl_str_trim((xl_str){ line.p + sizeof head - 1, line.n - sizeof head + 1 });
        if (n == 1)
            *reads_value = memmem(line.p, line.n, "access tensor value", 19) != NULL;
        if (xl_str_starts(line, XL_STR("Python Frame")))
            frames = true;
        else if (frames && line.n && line.p[line.n - 1] == ')') {
            const char *open = memrchr(line.p, '(', line.n);
            xl_str where = open ? (xl_str){ open + 1, (size_t)(line.p + line.n - 2 - open) } : (xl_str){ "", 0 };
            if (where.n && !in_library(where)) {
                snprintf(place, room, "%.*s", XL_FMT(where));
                return;
            }
        }
    }
}

void guard_frame(guard_state *g, char *place, size_t room, bool *reads_value)
{
    const char *file = in_run(g, "PT_XLA_DEBUG_FILE");
    struct stat st;
    char *text = NULL;
    *place = 0;
    *reads_value = false;
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && (text = malloc(TAIL))) {
        ssize_t n = pread(fd, text, TAIL, st.st_size > TAIL ? st.st_size - TAIL : 0);
        if (n > 0)
            guard_frame_parse((xl_str){ text, (size_t)n }, place, room, reads_value);
    }
    free(text);
    close(fd);
    if (*reads_value && *place && !guard_frame_read(xl_str_of(place)) && nreads < READS)
        snprintf(reads[nreads++], sizeof *reads, "%s", place);
}

bool guard_frame_read(xl_str place)
{
    for (uint32_t i = 0; i < nreads; i++)
        if (xl_str_is(place, reads[i]))
            return true;
    return false;
}

void guard_frames_trim(guard_state *g)
{
    static const char *const variable[] = { "PT_XLA_DEBUG_FILE", "XLA_METRICS_FILE" };
    struct stat st;
    for (size_t i = 0; i < sizeof variable / sizeof *variable; i++) {
        const char *file = in_run(g, variable[i]);
        if (file && !lstat(file, &st) && S_ISREG(st.st_mode) && st.st_size > MOST && truncate(file, 0))
            XL_LOG(INFO, "%s could not be started again", file);
    }
}
