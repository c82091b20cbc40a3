#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct xl_error {
    xl_code code;
    bool misuse;
    char text[];
};

/* One static error for the moment when there is no memory left to say so. */
static struct { xl_code code; bool misuse; char text[32]; } no_memory = { XL_CODE_EXHAUSTED, false, "out of memory" };

xl_error *xl_error_new(xl_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    xl_error *e = n < 0 ? NULL : malloc(sizeof *e + (size_t)n + 1);
    if (!e)
        return (xl_error *)&no_memory;
    e->code = code;
    e->misuse = false;
    va_start(ap, fmt);
    vsnprintf(e->text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return e;
}

xl_error *xl_error_wrap(xl_error *err, const char *fmt, ...)
{
    if (!err || err == (xl_error *)&no_memory)
        return err;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    size_t tail = strlen(err->text);
    xl_error *e = n < 0 ? NULL : malloc(sizeof *e + (size_t)n + 2 + tail + 1);
    if (!e)
        return err;
    e->code = err->code;
    e->misuse = err->misuse;
    va_start(ap, fmt);
    vsnprintf(e->text, (size_t)n + 1, fmt, ap);
    va_end(ap);
    memcpy(e->text + n, ": ", 2);
    memcpy(e->text + n + 2, err->text, tail + 1);
    free(err);
    return e;
}

xl_error *xl_error_next(xl_error *err, const char *fmt, ...)
{
    if (!err || err == (xl_error *)&no_memory)
        return err;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    size_t head = strlen(err->text);
    xl_error *e = n < 0 ? NULL : malloc(sizeof *e + head + 2 + (size_t)n + 1);
    if (!e)
        return err;
    e->code = err->code;
    e->misuse = err->misuse;
    memcpy(e->text, err->text, head);
    memcpy(e->text + head, "; ", 2);
    va_start(ap, fmt);
    vsnprintf(e->text + head + 2, (size_t)n + 1, fmt, ap);
    va_end(ap);
    free(err);
    return e;
}

xl_error *xl_error_misuse(xl_error *err)
{
    if (err && err != (xl_error *)&no_memory)
        err->misuse = true;
    return err;
}

bool xl_error_is_misuse(const xl_error *err) { return err && err->misuse; }

xl_code xl_error_code(const xl_error *err) { return err ? err->code : XL_OK; }

const char *xl_error_message(const xl_error *err) { return err ? err->text : "ok"; }

void xl_error_free(xl_error *err)
{
    if (err != (xl_error *)&no_memory)
        free(err);
}

const char *xl_code_word(xl_code code)
{
    switch (code) {
    case XL_OK: return "ok";
#define CODE(name, number, word) case XL_CODE_##name: return word;
#include "base/codes.def"
    }
    return "unknown";
}

const char *xl_code_name(xl_code code)
{
    switch (code) {
    case XL_OK: return "OK";
#define CODE(name, number, word) case XL_CODE_##name: return #name;
#include "base/codes.def"
    }
    return "UNKNOWN";
}

void xl_bug(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "xlane: bug at %s:%d: ", file, line);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
