/* src/base/file.h
 * Files whole: read with a bound, written so that a reader sees the old bytes or the new ones and never a part of
 * either. Any thread. Paths are C strings; what comes back lives in the caller's arena. */
#ifndef XL_BASE_FILE_H
#define XL_BASE_FILE_H

#include "base/str.h"

#define XL_FILE_MAX ((uint64_t)4 << 30) /* what xl_file_read takes at most */

/* The bytes of a file (or pipe), with a NUL after them. Too large, or too large for memory, is an error. */
xl_error *xl_file_read(xl_arena *a, const char *path, xl_str *out) XL_MUST_USE;
xl_error *xl_file_read_max(xl_arena *a, const char *path, uint64_t most, xl_str *out) XL_MUST_USE;

/* The same of a plain file only, without following a link or waiting at a pipe: for folders that others may have had a
 * hand in. */
xl_error *xl_file_read_plain(xl_arena *a, const char *path, uint64_t most, xl_str *out) XL_MUST_USE;

/* Writes a temporary file beside `path`, syncs it, renames it over `path`, syncs the folder. Mode 0600: what runs leave
 * is private. */
xl_error *xl_file_write_atomic(const char *path, xl_str bytes) XL_MUST_USE;
xl_error *xl_file_write_mode(const char *path, xl_str bytes, unsigned mode) XL_MUST_USE;
/* The same without the syncs, for what a crash of the machine may take: whole or absent while the machine stands. */
xl_error *xl_file_write_quick(const char *path, xl_str bytes) XL_MUST_USE;
xl_error *xl_file_write_shown(const char *path,
                              xl_str bytes) XL_MUST_USE; /* quick, and for whomever the umask allows */
/* The same as the first in pieces: open, add ..., commit; close frees it, and removes what was not committed. */
typedef struct { char path[4096], tmp[4096]; int fd; bool made; } xl_file_out;
xl_error *xl_file_out_open(xl_file_out *o, const char *path, unsigned mode) XL_MUST_USE;
xl_error *xl_file_out_add(xl_file_out *o, const void *p, size_t n) XL_MUST_USE;
xl_error *xl_file_out_commit(xl_file_out *o) XL_MUST_USE;
void xl_file_out_close(xl_file_out *o);
bool xl_file_is_temporary(xl_str name); /* a name that the functions above give to what is not whole yet */
/* The same as the first with a mode (0600 for secrets), and EXISTS where `path` is there already: never overwrites. */
xl_error *xl_file_write_new(const char *path, xl_str bytes, unsigned mode) XL_MUST_USE;
/* Adds one line (a newline is put where it lacks) in a single write, so that several processes may share the file. Made
 * with mode 0600; a link or anything but a plain file is refused. */
xl_error *xl_file_append(const char *path, xl_str line) XL_MUST_USE;
/* open(2) with O_CLOEXEC whose descriptor is a high number: a program that closes and opens its own from below does not
 * meet it, and what it opens gets the lowest numbers, as it would without us. */
int xl_file_open(const char *path, int flags, unsigned mode);
/* Calls fn(arg) on a thread with a descriptor table of its own, and waits: what fn opens has no number in the table of
 * the process, not even for an instant, and it has of that table only 0 to 2. For the file work of threads of ours in
 * somebody else's process, whose code may take any number to be free. Where the kernel cannot (before Linux 5.9), or no
 * thread can be had, fn runs with the table of the process. */
void xl_file_apart(void (*fn)(void *arg), void *arg);
/* write(2) that changes nothing else in the process: a full quota or a closed pipe is an error, never SIGXFSZ or
 * SIGPIPE. */
int64_t xl_file_write_some(int fd, const void *p, size_t n);
xl_error *xl_file_error(int number, const char *doing, const char *path) XL_MUST_USE; /* of errno */
xl_error *xl_file_remove(const char *path) XL_MUST_USE; /* a missing one is fine */

typedef struct { uint64_t size; double mtime; bool dir; } xl_file_info;
bool xl_file_stat(const char *path, xl_file_info *out); /* false: nothing there (or not for us); out may be NULL */

xl_error *xl_dir_make(const char *path) XL_MUST_USE;    /* with its parents; there already is fine */
xl_error *xl_dir_make_private(const char *path) XL_MUST_USE; /* the same, the last one with mode 0700 where it is new */
/* Names in a folder, sorted, without "." and ".."; files that start with a dot are included. */
xl_error *xl_dir_list(xl_arena *a, const char *path, xl_str **names, size_t *n) XL_MUST_USE;

char *xl_path_join(xl_arena *a, const char *dir, const char *name); /* an absolute name stands alone */
xl_str xl_path_base(xl_str path);                       /* what follows the last slash */
xl_str xl_path_dir(xl_str path);                        /* what precedes it; "." where there is none */

/* Which folder a path leads to, to see later that it still does (another root, another mount, somebody's rename). */
typedef struct { uint64_t dev, ino; } xl_path_id;
bool xl_path_identify(const char *path, xl_path_id *out);
bool xl_path_is(const char *path, const xl_path_id *id);

/* NULL when nobody but this user and root could have put or changed what lies at `path`: every folder on the way,
 * every link and the thing itself. Otherwise UNAUTHENTICATED, with who could and what to do. */
xl_error *xl_path_trusted(const char *path) XL_MUST_USE;

#endif
