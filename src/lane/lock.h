/* src/lane/lock.h
 * A lock: everything a lane depends on, one item per line, so that it can be compared with this or another host and
 * restored. Plugins are identified by the hash of their whole file. Read and written whole; the file carries a
 * checksum. One thread at a time. */
#ifndef XL_LANE_LOCK_H
#define XL_LANE_LOCK_H

#include "base/json.h"
#include "base/str.h"

typedef struct { const char *kind; xl_str name, value; } xl_lock_item;
typedef struct { xl_lock_item *item; size_t n; xl_str machine, made; } xl_lock;

typedef struct {
    const char **plugin;     /* files to hash; `lock verify` takes those the lock names */
    size_t nplugin;
    const char *profile;     /* NULL: none */
    const char *cache, *runs;
} xl_lock_wish;

xl_error *xl_lock_collect(xl_arena *a, const xl_lock_wish *w, xl_lock *out) XL_MUST_USE;
xl_error *xl_lock_write(xl_arena *a, const xl_lock *l, const char *path) XL_MUST_USE; /* EXISTS: never overwrites */
xl_error *xl_lock_read(xl_arena *a, const char *path, xl_lock *out) XL_MUST_USE;           /* DATA_LOSS: edited */

typedef struct { const char *kind; xl_str name, locked, now; const char *breaks; } xl_drift;
/* What is different here, and what that can break. Of a lock from another architecture, what belongs to it is not
 * compared. */
void xl_lock_compare(xl_arena *a, const xl_lock *l, const xl_lock *now, xl_drift **out, size_t *n);
/* The profile and plugins a lock names, for collecting the same here. */
xl_lock_wish xl_lock_wanted(xl_arena *a, const xl_lock *l);
void xl_lock_restore(const xl_lock *l, xl_buf *out);                                       /* a shell script */

#endif
