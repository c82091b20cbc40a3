/* src/base/home.h
 * Folders of the user's own that nobody named. NULL where the environment names no home folder: then nothing is kept,
 * rather than left in the current folder. */
#ifndef XL_BASE_HOME_H
#define XL_BASE_HOME_H

#include <stdbool.h>

#include "base/arena.h"

bool xl_home_off(const char *cache); /* a cache folder that is none: NULL, "", "off" or "none" */
char *xl_home_cache(xl_arena *a);   /* XDG_CACHE_HOME/xlane, else ~/.cache/xlane */
char *xl_home_state(xl_arena *a);   /* XLANE_STATE, else XDG_STATE_HOME/xlane, else ~/.local/state/xlane */

#endif
