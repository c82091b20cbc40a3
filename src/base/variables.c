#include "base/variables.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/str.h"

static const struct { const char *name, *words; } kinds[] = {
#define VALUES(name, words) { "XLANE_" #name, words },
#include "base/variables.def"
};

static bool among(xl_str value, xl_str words)
{
    while (words.n)
        if (xl_str_eq(value, xl_str_cut(&words, ' ')))
            return true;
    return false;
}

xl_error *xl_variables_check(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *value = getenv(kinds[i].name), *words = kinds[i].words;
        uint64_t n;
        if (!value || !*value)
            continue;
        if (!*words && !xl_str_size(xl_str_of(value), &n))
            return XL_ERR(INVALID, "%s=%s: not a number of at least 0: change it, or unset it", kinds[i].name, value);
        if (*words && !among(xl_str_of(value), xl_str_of(words)))
            return XL_ERR(INVALID, "%s=%s: not one of: %s: change it, or unset it", kinds[i].name, value, words);
    }
    return NULL;
}
