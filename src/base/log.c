#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = { "off", "error", "warn", "info", "debug" };

static atomic_int level_now = -1; /* -1: the environment has not been asked yet */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static xl_log_sink *sink_fn;
static void *sink_ctx;

const char *xl_log_word(xl_log_level level) { return words[level]; }

bool xl_log_parse(const char *word, xl_log_level *out)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word && strcmp(word, words[i]) == 0) {
            *out = (xl_log_level)i;
            return true;
        }
    return false;
}

void xl_log_set_level(xl_log_level level) { atomic_store(&level_now, (int)level); }

bool xl_log_wants(xl_log_level level)
{
    int now = atomic_load_explicit(&level_now, memory_order_relaxed);
    if (now < 0) {
        xl_log_level l = XL_LOG_WARN;
        xl_log_parse(getenv("XLANE_LOG"), &l);
        int unset = -1;
        atomic_compare_exchange_strong(&level_now, &unset, (int)l);
        now = atomic_load(&level_now);
    }
    return (int)level <= now;
}

void xl_log_set_sink(xl_log_sink *sink, void *ctx)
{
    pthread_mutex_lock(&lock);
    sink_fn = sink;
    sink_ctx = ctx;
    pthread_mutex_unlock(&lock);
}

/* One write per line, so that lines of several threads and processes do not mix. */
static void to_stderr(xl_log_level level, const char *text)
{
    char line[2048];
    int n = snprintf(line, sizeof line - 1, "xlane: %s: %s", xl_log_word(level), text);
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof line - 2 ? (size_t)n : sizeof line - 2;
    line[len++] = '\n';
    for (size_t at = 0; at < len; ) {
        ssize_t w = write(STDERR_FILENO, line + at, len - at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return;
        at += (size_t)w;
    }
}

void xl_log_write(xl_log_level level, const char *fmt, ...)
{
    char text[2000];
    int keep = errno; /* a log line between a call and the look at its errno does no harm */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= 0) {
        for (char *c = text; *c; c++)
            if (*c == '\n')
                *c = ' ';
        pthread_mutex_lock(&lock);
        if (sink_fn)
            sink_fn(sink_ctx, level, text);
        else
            to_stderr(level, text);
        pthread_mutex_unlock(&lock);
    }
    errno = keep;
}
