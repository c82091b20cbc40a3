/* src/lane/cache.h
 * The executable cache: serialised executables in a folder, found by a key whose parts are named, so that a miss can
 * say which part differs from the nearest entry. Entries are code. They are written to a temporary name, synced and
 * renamed; compressed; authenticated with a key that only this user can read; and refused if another user could have
 * written them. A damaged entry is a miss with a reason. Any thread may use an open cache; several processes share a
 * folder.
 * Nothing here aborts: it also runs inside other people's programs. */
#ifndef XL_LANE_CACHE_H
#define XL_LANE_CACHE_H

#include "base/hash.h"
#include "base/str.h"

typedef struct xl_cache xl_cache;

typedef struct {
    uint64_t max_bytes;                                    /* least recently used go first; 0: 10 GiB */
    bool read_only;                                        /* a follower: reads, never writes or waits */
    const char *segment; /* NULL: shared; else a private sub-folder for this process or host */
} xl_cache_opts;

/* Makes the folder if need be, for this user alone. A remote URL, or a folder that others can write, is an error that
 * says what to do instead; in a sticky one that everybody may write (/tmp) it is the sub-folder xlane-<uid>. The
 * functions below that take a folder follow the same rule. */
xl_error *xl_cache_open(const char *dir, const xl_cache_opts *opts, xl_cache **out) XL_MUST_USE;
/* A private sub-folder with its own bound, for the same user. *out stays NULL where this one is read-only and there is
 * none. */
xl_error *xl_cache_segment(const xl_cache *c, const char *name, uint64_t max_bytes, xl_cache **out) XL_MUST_USE;
void xl_cache_close(xl_cache *c);
const char *xl_cache_dir(const xl_cache *c);

/* What a key is made of. Values are texts: flags and options as "name=value" words, so that a difference can be said in
 * words; programs and files as digests. Names and values are borrowed until the key is done with. */
enum { XL_KEY_PARTS = 12 };
typedef struct {
    const char *name[XL_KEY_PARTS]; /* "program", "options", "plugin", "topology", "flags", "profile" ... */
    xl_str value[XL_KEY_PARTS];
    uint32_t n;
    xl_str module;                                         /* not part of the key: finds the nearest entry */
    xl_digest digest;
    bool too_long;                                         /* more parts than that: get and put refuse it */
} xl_cache_key;
void xl_cache_key_add(xl_cache_key *k, const char *name, xl_str value);
void xl_cache_key_seal(xl_cache_key *k);                   /* computes the digest; once all parts are in */

typedef struct {
    bool hit;
    void *blob;                                            /* malloc'd: the caller frees */
    size_t size;
    double compile_seconds;                                /* what it took when it was made */
    /* A miss: why ("first", "flags", "options", "plugin", "topology", "profile", "program", "evicted", "unreadable"),
     * and in words. */
    const char *reason;
    bool removed;                                          /* "unreadable": the entry was, and is there no longer */
    char detail[512];
} xl_cache_found;

xl_error *xl_cache_get(xl_cache *c, const xl_cache_key *k, xl_cache_found *out) XL_MUST_USE;
bool xl_cache_has(xl_cache *c, const xl_cache_key *k);     /* a file of that name is there; sound or not */
xl_error *xl_cache_put(xl_cache *c, const xl_cache_key *k, const void *blob, size_t size,
                       double compile_seconds) XL_MUST_USE;
/* The entry turned out not to load: it goes, and the next miss says why. */
void xl_cache_drop(xl_cache *c, const xl_cache_key *k, const char *why);

/* Of several processes that miss the same entry one compiles; the others wait here, at most `seconds`, and
 * look again. */
typedef struct { int fd; } xl_lease;
typedef enum { XL_LEASE_MINE, XL_LEASE_WAITED, XL_LEASE_TIMEOUT } xl_lease_state;
xl_lease_state xl_cache_lease(xl_cache *c, const xl_cache_key *k, double seconds, xl_lease *out);
void xl_cache_release(xl_cache *c, const xl_cache_key *k, xl_lease *l);

/* Other hosts that wrote here within the last ten minutes: "" or a sentence that names them. */
const char *xl_cache_writers(xl_arena *a, const char *dir);

/* The differing words of two lists of words: "xla_gpu_autotune_level 4 -> 0". */
void xl_words_diff(xl_str before, xl_str after, xl_buf *out);

/* ---- looking after a folder -------------------------------------------------------------------------------------- */
typedef struct {
    xl_str file, module;
    uint64_t bytes, raw_bytes;
    double created, used, compile_seconds;
    xl_str host;
    const char *bad;                                       /* NULL: sound; else what is wrong with it */
    uint32_t n;                                            /* parts */
    xl_str name[XL_KEY_PARTS], value[XL_KEY_PARTS];
} xl_cache_entry;
/* The folder that is really used for `dir`, and below it for a segment of that name; it need not be there. */
xl_error *xl_cache_where(xl_arena *a, const char *dir, const char *segment, char **out) XL_MUST_USE;
/* The segments below a folder that is there, by the names that xl_cache_where takes, and those inside them
 * ("host7/ahead"). XL_CACHE_AHEAD is the name of those that keep what the guard loads ahead. */
#define XL_CACHE_AHEAD "ahead"
xl_error *xl_cache_segments(xl_arena *a, const char *dir, xl_str **out, size_t *n) XL_MUST_USE;
/* Of one folder, without its segments, as are all functions below. */
xl_error *xl_cache_list(xl_arena *a, const char *dir, xl_cache_entry **out, size_t *n) XL_MUST_USE;
/* Removes damaged entries, left-over temporary files, and the least recently used beyond max_bytes. */
xl_error *xl_cache_prune(xl_arena *a, const char *dir, uint64_t max_bytes, size_t *removed,
                         uint64_t *freed) XL_MUST_USE;
/* The damaged ones of the other files that a run reads: `size`, `removed.log`, `near/`. A run ignores what is damaged
 * of them; they only explain misses and keep the bound, and are made anew. */
typedef struct { const char *file, *bad; } xl_cache_note;  /* below the folder; what is wrong with it */
xl_error *xl_cache_notes(xl_arena *a, const char *dir, xl_cache_note **out, size_t *n) XL_MUST_USE;
xl_error *xl_cache_notes_prune(xl_arena *a, const char *dir, size_t *removed) XL_MUST_USE; /* adds to *removed */
/* One file with all sound entries, to warm another host; import checks and adopts them. */
xl_error *xl_cache_export(xl_arena *a, const char *dir, const char *file, size_t *n) XL_MUST_USE;
xl_error *xl_cache_import(xl_arena *a, const char *dir, const char *file, size_t *n) XL_MUST_USE;

#endif
