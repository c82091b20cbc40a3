/* src/lane/stack.h
 * A plugin by the name a user gives it: a file, a version on PyPI, or a Python environment. Several versions can be
 * installed side by side, each in its own folder; the user's environment is not changed, and nothing is opened here.
 * Strings belong to the arena. */
#ifndef XL_LANE_STACK_H
#define XL_LANE_STACK_H

#include "base/str.h"

typedef struct {
    const char *path;        /* the plugin's file */
    const char *label;       /* "libtpu 0.0.40"; of a file that no wheel brought, its path */
    xl_str package, version; /* of the wheel it came with; empty: none */
    char identity[128];      /* digest of the file; of a large one its build id and size */
    bool fetched;            /* from PyPI, just now */
} xl_stack;

/* `word`: PATH, cpu, tpu or cuda as --plugin takes them; libtpu==0.0.40 or another package that brings a plugin,
 * fetched once with pip into $XDG_CACHE_HOME/xlane/plugins; or a folder with bin/python. `kind` is the kind of plugin
 * wanted where an environment has several ("tpu"; NULL: the one whose devices are here). */
xl_error *xl_stack_find(xl_arena *a, const char *word, const char *kind, xl_stack *out) XL_MUST_USE;

#endif
