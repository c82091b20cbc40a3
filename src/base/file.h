/* src/base/file.h
 * Whole files: bounded reads, and atomic writes (a reader sees the old contents or the new, never a mixture). Any
 * thread. Paths are C strings; results live in the caller's arena. */
#ifndef XL_BASE_FILE_H
#define XL_BASE_FILE_H

#include "base/str.h"

#define XL_FILE_MAX ((uint64_t)4 << 30) /* what xl_file_read takes at most */

/* The bytes of a file (or pipe), with a NUL after them. A file that is too large, or does not fit in memory, is an
 * error. */
xl_error *xl_file_read(xl_arena *a, const char *path, xl_str *out) XL_MUST_USE;
xl_error *xl_file_read_max(xl_arena *a, const char *path, uint64_t most, xl_str *out) XL_MUST_USE;

/* The same, but only for regular files: does not follow a symbolic link or block on a pipe. For folders that other
 * users may write to. */
xl_error *xl_file_read_plain(xl_arena *a, const char *path, uint64_t most, xl_str *out) XL_MUST_USE;

/* Writes a temporary file beside `path`, syncs it, renames it over `path`, syncs the folder. Mode 0600: the files
 * of a run are private. */
xl_error *xl_file_write_atomic(const char *path, xl_str bytes) XL_MUST_USE;
xl_error *xl_file_write_mode(const char *path, xl_str bytes, unsigned mode) XL_MUST_USE;
/* The same without the syncs: still atomic, but a crash of the machine may lose the file. */
xl_error *xl_file_write_quick(const char *path, xl_str bytes) XL_MUST_USE;
xl_error *xl_file_write_shown(const char *path,
                              xl_str bytes) XL_MUST_USE; /* quick, and readable by all that the umask allows */
/* An atomic write in pieces: open, add ..., commit. Close frees it, and removes a file that was not committed. */
typedef struct { char path[4096], tmp[4096]; int fd; bool made; } xl_file_out;
xl_error *xl_file_out_open(xl_file_out *o, const char *path, unsigned mode) XL_MUST_USE;
xl_error *xl_file_out_add(xl_file_out *o, const void *p, size_t n) XL_MUST_USE;
xl_error *xl_file_out_commit(xl_file_out *o) XL_MUST_USE;
void xl_file_out_close(xl_file_out *o);
bool xl_file_is_temporary(xl_str name); /* a name that these functions give to an unfinished file */
/* An atomic write that never overwrites: EXISTS if `path` exists. mode: 0600 for secrets. */
xl_error *xl_file_write_new(const char *path, xl_str bytes, unsigned mode) XL_MUST_USE;
/* Appends one line (adding a newline if it has none) in a single write, so that several processes may share the file. A
 * new file gets mode 0600; anything but a regular file is refused, a symbolic link too. */
xl_error *xl_file_append(const char *path, xl_str line) XL_MUST_USE;
/* open(2) with O_CLOEXEC and a high descriptor number, so that the program we live in neither closes it by accident nor
 * gets other numbers for its own files than it would without us. */
int xl_file_open(const char *path, int flags, unsigned mode);
/* Calls fn(arg) on a thread with its own descriptor table, and waits for it. Files that fn opens never appear in the
 * table of the process; of that table it sees only descriptors 0 to 2. For file work inside another program, whose code
 * may assume that any number is free. Before Linux 5.9, or if no thread can be started, fn runs with the table of the
 * process. */
void xl_file_apart(void (*fn)(void *arg), void *arg);
/* write(2) without signals: an exceeded file size limit or a closed pipe is an error, never SIGXFSZ or SIGPIPE. */
int64_t xl_file_write_some(int fd, const void *p, size_t n);
xl_error *xl_file_error(int number, const char *doing, const char *path) XL_MUST_USE; /* of errno */
xl_error *xl_file_remove(const char *path) XL_MUST_USE; /* a missing one is fine */

typedef struct { uint64_t size; double mtime; bool dir; } xl_file_info;
bool xl_file_stat(const char *path, xl_file_info *out); /* false: missing, or not accessible; out may be NULL */

xl_error *xl_dir_make(const char *path) XL_MUST_USE;    /* with its parents; an existing one is fine */
xl_error *xl_dir_make_private(const char *path) XL_MUST_USE; /* the same; mode 0700 for the last one, if it is new */
/* Names in a folder, sorted, without "." and ".."; files that start with a dot are included. */
xl_error *xl_dir_list(xl_arena *a, const char *path, xl_str **names, size_t *n) XL_MUST_USE;

char *xl_path_join(xl_arena *a, const char *dir, const char *name); /* an absolute name is returned as it is */
xl_str xl_path_base(xl_str path);                       /* what follows the last slash */
xl_str xl_path_dir(xl_str path);                        /* what precedes it; "." if there is none */

/* The identity of a folder, to notice later that its path leads elsewhere (chroot, mount, rename). */
typedef struct { uint64_t dev, ino; } xl_path_id;
bool xl_path_identify(const char *path, xl_path_id *out);
bool xl_path_is(const char *path, const xl_path_id *id);

/* NULL if only this user and root can have created or changed what is at `path`: its folders, its links and the file
 * itself. Otherwise UNAUTHENTICATED, whose message says who else can, and what to do. */
xl_error *xl_path_trusted(const char *path) XL_MUST_USE;

#endif
