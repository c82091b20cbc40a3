#include "base/variables.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *name, *words; } kinds[] = {
#define VALUES(name, words) { "XLANE_" #name, words },
#include "base/variables.def"
};

static const char *const known[] = {
#define VAR(name, ...) "XLANE_" #name,
#define ENV(name, ...) "XLANE_CPU_" #name,
#include "base/variables.def"
};

const char *xl_variables_near(xl_str name)
{
    size_t best = SIZE_MAX;
    const char *near = "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t d = xl_str_distance(xl_str_of(known[i]), name);
        if (!d)
            return NULL;
        if (d < best) {
            best = d;
            near = known[i];
        }
    }
    size_t own = name.n - (xl_str_starts(name, XL_STR("XLANE_CPU_")) ? sizeof "XLANE_CPU_" : sizeof "XLANE_") + 1;
    return name.n > own && best <= 1 + own / 4 ? near : "";
}

void xl_variables_unknown(xl_buf *out)
{
    static const char prefix[] = "XLANE_";
    extern char **environ;
    for (char **e = environ; e && *e; e++) {
        xl_str name = { *e, strcspn(*e, "=") };
        const char *near = xl_str_starts(name, XL_STR(prefix)) ? xl_variables_near(name) : NULL;
        if (near && *near)
            xl_buf_printf(out, "%.*s is set, and there is no such variable: did you mean %s?\n", XL_FMT(name), near);
        else if (near)
            xl_buf_printf(out, "%.*s is set, and there is no such variable; docs/variables.md lists those there are\n",
                          XL_FMT(name));
    }
}

static bool among(xl_str value, xl_str words)
{
    while (words.n)
        if (xl_str_eq(value, xl_str_cut(&words, ' ')))
            return true;
    return false;
}

static bool a_range(xl_str value)
{
    int64_t first, last;
    xl_str rest = xl_str_trim(value), a = xl_str_cut(&rest, ':');
    return xl_str_i64(a, &first) && xl_str_i64(rest, &last) && first >= 1 && last >= first;
}

xl_error *xl_variables_check(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *value = getenv(kinds[i].name), *words = kinds[i].words;
        uint64_t n;
        if (!value || !*value)
            continue;
        if (!strcmp(words, "A:B")) {
            if (!a_range(xl_str_of(value)))
                return XL_ERR(INVALID, "%s=%s: not two numbers A:B from 1, as 20:30: change it, or unset it",
                              kinds[i].name, value);
            continue;
        }
        int64_t whole;
        bool size = *words || xl_str_size(xl_str_of(value), &n);
        xl_error *err = size ? NULL : xl_str_whole(xl_str_of(value), INT64_MAX, &whole);
        if (xl_error_code(err) == XL_CODE_RANGE && value[0] != '-')
            return xl_error_next(xl_error_wrap(err, "%s", kinds[i].name), "change it, or unset it");
        xl_error_free(err);
        if (!size)
            return XL_ERR(INVALID, "%s=%s: not a number of at least 0: change it, or unset it", kinds[i].name, value);
        if (*words && !among(xl_str_of(value), xl_str_of(words)))
            return XL_ERR(INVALID, "%s=%s: not one of: %s: change it, or unset it", kinds[i].name, value, words);
    }
    return NULL;
}
