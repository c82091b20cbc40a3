#include "cpu/run/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/variables.h"

typedef enum { SIZE, SECONDS, FLAG, WORD, PATH } kind;
static const struct { const char *name; kind kind; uint64_t least, most; const char *words; } vars[XL_ENV_COUNT] = {
#define ENV(name, kind, least, most, words, what) { "XLANE_CPU_" #name, kind, least, most, words },
#include "base/variables.def"
};
static const char prefix[] = "XLANE_CPU_";

/* The place of v in a list of words, or -1. */
static int place(xl_str v, const char *words)
{
    int at = 0;
    for (const char *p = words; *p; at++) {
        size_t n = strcspn(p, " ");
        if (xl_str_eq(v, (xl_str){ p, n }))
            return at;
        p += n + (p[n] == ' ');
    }
    return -1;
}

static bool parse(xl_env i, const char *text, double *out)
{
    xl_str v = xl_str_of(text);
    uint64_t n;
    switch (vars[i].kind) {
    case SIZE:
        if (!xl_str_size(v, &n) || n < vars[i].least || n > vars[i].most)
            return false;
        *out = (double)n;
        return true;
    case SECONDS: return xl_str_f64(v, out) && *out > (double)vars[i].least && *out <= (double)vars[i].most;
    case FLAG:
        *out = place(v, "0 1");
        return *out >= 0;
    case WORD:
        *out = place(v, vars[i].words);
        return *out >= 0;
    default: return true;
    }
}

double xl_env_get(xl_env v, double otherwise)
{
    const char *text = getenv(vars[v].name);
    double x = 0;
    return text && *text && parse(v, text, &x) ? x : otherwise;
}

static xl_error *wrong(xl_env i, const char *text)
{
    const char *name = vars[i].name;
    unsigned long long least = vars[i].least, most = vars[i].most;
    switch (vars[i].kind) {
    case SECONDS:
        return XL_ERR(INVALID, "%s=%s: not a number of seconds above %llu and up to %llu: change it, or unset it", name,
                      text, least, most);
    case FLAG: return XL_ERR(INVALID, "%s=%s: not 0 or 1: change it, or unset it", name, text);
    case WORD: return XL_ERR(INVALID, "%s=%s: not one of: %s: change it, or unset it", name, text, vars[i].words);
    default:
        return XL_ERR(INVALID, "%s=%s: not a number from %llu to %llu: change it, or unset it", name, text, least,
                      most);
    }
}

static xl_error *unknown(const char *entry)
{
    char known[512];
    xl_str name = { entry, strcspn(entry, "=") };
    const char *near = xl_variables_near(name);
    if (near && *near)
        return XL_ERR(INVALID, "%.*s: the device has no such variable: did you mean %s?", XL_FMT(name), near);
    size_t at = 0;
    for (int i = 0; i < XL_ENV_COUNT; i++) {
        int n = snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", vars[i].name);
        at += n > 0 && at + (size_t)n < sizeof known ? (size_t)n : 0;
    }
    return XL_ERR(INVALID, "%.*s: the device has no such variable, only %s: unset it", XL_FMT(name), known);
}

xl_error *xl_env_check(void)
{
    extern char **environ;
    for (char **e = environ; e && *e; e++) {
        if (strncmp(*e, prefix, sizeof prefix - 1))
            continue;
        size_t n = strcspn(*e, "=");
        int i = 0;
        while (i < XL_ENV_COUNT && !(strlen(vars[i].name) == n && !memcmp(*e, vars[i].name, n)))
            i++;
        if (i == XL_ENV_COUNT)
            return unknown(*e);
        double x;
        if ((*e)[n] && (*e)[n + 1] && !parse((xl_env)i, *e + n + 1, &x))
            return wrong((xl_env)i, *e + n + 1);
    }
    return NULL;
}
