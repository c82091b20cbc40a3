#include "base/home.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static char *below(xl_arena *a, const char *variable, const char *in_home)
{
    const char *xdg = getenv(variable), *home = getenv("HOME");
    if (xdg && *xdg)
        return xl_path_join(a, xdg, "xlane");
    return home && *home ? xl_path_join(a, home, in_home) : NULL;
}

bool xl_home_off(const char *cache) { return !cache || !*cache || !strcmp(cache, "off") || !strcmp(cache, "none"); }

char *xl_home_cache(xl_arena *a) { return below(a, "XDG_CACHE_HOME", ".cache/xlane"); }

char *xl_home_state(xl_arena *a)
{
    const char *named = getenv("XLANE_STATE");
    return named && *named ? xl_str_c(a, xl_str_of(named)) : below(a, "XDG_STATE_HOME", ".local/state/xlane");
}
