/* src/base/log.h
 * The log: one line per event, to one sink that the program sets (standard error by default). The level is
 * XLANE_LOG=off|error|warn|info|debug, `warn` if unset. Any thread may log. What is returned as an error is not also
 * logged; kernels and parsers do not log. */
#ifndef XL_BASE_LOG_H
#define XL_BASE_LOG_H

#include <stdbool.h>

#include "base/error.h"

typedef enum { XL_LOG_OFF, XL_LOG_ERROR, XL_LOG_WARN, XL_LOG_INFO, XL_LOG_DEBUG } xl_log_level;

/* `text` is one line without its newline, borrowed for the call. Called by one thread at a time. */
typedef void xl_log_sink(void *ctx, xl_log_level level, const char *text);

void xl_log_set_sink(xl_log_sink *sink, void *ctx); /* NULL: back to standard error */
void xl_log_set_level(xl_log_level level);          /* overrides XLANE_LOG */
bool xl_log_wants(xl_log_level level);
void xl_log_write(xl_log_level level, const char *fmt, ...) XL_PRINTF(2, 3);
const char *xl_log_word(xl_log_level level);        /* "warn" */
bool xl_log_parse(const char *word, xl_log_level *out);

#define XL_LOG(level, ...)                               \
    do {                                                 \
        if (xl_log_wants(XL_LOG_##level))                \
            xl_log_write(XL_LOG_##level, __VA_ARGS__);   \
    } while (0)

#endif
