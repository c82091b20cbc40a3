/* src/lane/kept.h
 * What was read from files of run folders, kept in the arena of the command: a file is read again only if it changed.
 * One thread; nothing is kept before xl_kept_in, or in another arena. */
#ifndef XL_LANE_KEPT_H
#define XL_LANE_KEPT_H

#include "base/node.h"

void xl_kept_in(xl_arena *a);                              /* until it is called with another, or NULL */

/* A file as it was when it was looked up. */
typedef struct { const char *path; uint64_t dev, ino, size; int64_t sec, nsec; } xl_kept_file;
/* What was kept of the file as it is now, or NULL; *file is for xl_kept_add. */
void *xl_kept_find(xl_arena *a, const char *path, xl_kept_file *file);
void xl_kept_add(xl_arena *a, const xl_kept_file *file, void *what); /* `what` is in the arena */

xl_error *xl_kept_json(xl_arena *a, const char *path, xl_node **out) XL_MUST_USE; /* a file of one JSON value */

#endif
