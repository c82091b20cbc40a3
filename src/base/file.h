/* src/base/file.h
 * Files whole: read with a bound, written so that a reader sees the old bytes or the new ones and never a part of
 * either. Any thread. Paths are C strings; what comes back lives in the caller's arena. */
#ifndef XL_BASE_FILE_H
#define XL_BASE_FILE_H

#include "base/str.h"

#define XL_FILE_MOST ((uint64_t)4 << 30) /* what xl_file_read takes at most */

/* The bytes of a file (or pipe), with a NUL after them. Too large, or too large for memory, is an error. */
xl_error *xl_file_read(xl_arena *a, const char *path, xl_str *out) XL_MUST_USE;
xl_error *xl_file_read_max(xl_arena *a, const char *path, uint64_t most, xl_str *out) XL_MUST_USE;

/* Writes a temporary file beside `path`, syncs it, renames it over `path`, syncs the folder. */
xl_error *xl_file_write_atomic(const char *path, xl_str bytes) XL_MUST_USE;
xl_error *xl_file_write_mode(const char *path, xl_str bytes, unsigned mode) XL_MUST_USE;
/* The same without the syncs, for what a crash of the machine may take: whole or absent while the machine stands. */
xl_error *xl_file_write_quick(const char *path, xl_str bytes) XL_MUST_USE;
/* The same as the first with a mode (0600 for secrets), and EXISTS where `path` is there already: never overwrites. */
xl_error *xl_file_write_new(const char *path, xl_str bytes, unsigned mode) XL_MUST_USE;
/* Adds one line (a newline is put where it lacks) in a single write, so that several processes may share the file. */
xl_error *xl_file_append(const char *path, xl_str line) XL_MUST_USE;
xl_error *xl_file_remove(const char *path) XL_MUST_USE; /* a missing one is fine */

typedef struct { uint64_t size; double mtime; bool dir; } xl_file_info;
bool xl_file_stat(const char *path, xl_file_info *out); /* false: nothing there (or not for us); out may be NULL */

xl_error *xl_dir_make(const char *path) XL_MUST_USE;    /* with its parents; there already is fine */
/* Names in a folder, sorted, without "." and ".."; files that start with a dot are included. */
xl_error *xl_dir_list(xl_arena *a, const char *path, xl_str **names, size_t *n) XL_MUST_USE;

char *xl_path_join(xl_arena *a, const char *dir, const char *name); /* an absolute name stands alone */
xl_str xl_path_base(xl_str path);                       /* what follows the last slash */
xl_str xl_path_dir(xl_str path);                        /* what precedes it; "." where there is none */

/* NULL when nobody but this user and root could have put or changed what lies at `path`: every folder on the way,
 * every link and the thing itself. Otherwise UNAUTHENTICATED, with who could and what to do. */
xl_error *xl_path_trusted(const char *path) XL_MUST_USE;

#endif
