/* src/lane/flags.h
 * Which XLA flags does a library know? XLA ends the process on an unknown flag, so this must be found out before it
 * starts. Flag names are strings in the library: they are read from its file, without executing any of it. A file of
 * half a gigabyte takes some tenths of a second. One thread at a time; the set belongs to the arena. */
#ifndef XL_LANE_FLAGS_H
#define XL_LANE_FLAGS_H

#include "base/str.h"

typedef struct {
    const char *path;
    xl_str *name;        /* sorted; "xla_dump_to" */
    size_t n;
} xl_flag_set;

/* The file is there and is a shared library, of whatever machine; none of it is read. */
xl_error *xl_flags_file(const char *path) XL_MUST_USE;
/* Every word of the file that starts with "xla_" (or libtpu's "tpu_", "megascale_") and ends as a C string does. */
xl_error *xl_flags_scan(xl_arena *a, const char *path, xl_flag_set *out) XL_MUST_USE;
bool xl_flags_know(const xl_flag_set *s, xl_str name);
xl_str xl_flags_nearest(const xl_flag_set *s, xl_str name);   /* empty where nothing comes near */

/* The next word of XLA_FLAGS and its like: "--xla_a=1" -> name "xla_a", value "1" ("true" for a bare one). False at the
 * end. */
bool xl_flags_next(xl_str *rest, xl_str *name, xl_str *value);

#endif
