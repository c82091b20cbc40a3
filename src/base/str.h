/* src/base/str.h
 * xl_str is a borrowed slice, not NUL-terminated. xl_buf is a growing one that owns its bytes (malloc); it is always
 * NUL-terminated at p[n]. If memory runs out, its contents stay as they were and `failed` is set. */
#ifndef XL_BASE_STR_H
#define XL_BASE_STR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

typedef struct { const char *p; size_t n; } xl_str;
typedef struct { const int64_t *p; size_t n; } xl_dims;

#define XL_STR(lit) ((xl_str){ (lit), sizeof(lit) - 1 })
#define XL_FMT(s) (int)(s).n, (s).p ? (s).p : ""            /* for "%.*s" */

static inline xl_str xl_str_of(const char *c) { return (xl_str){ c, c ? strlen(c) : 0 }; }
static inline bool xl_str_eq(xl_str a, xl_str b) { return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0); }
static inline bool xl_str_is(xl_str a, const char *c) { return xl_str_eq(a, xl_str_of(c)); }
int xl_str_cmp(xl_str a, xl_str b);                          /* bytewise, shorter first */
bool xl_str_starts(xl_str s, xl_str prefix);
bool xl_str_ends(xl_str s, xl_str suffix);
xl_str xl_str_trim(xl_str s);                                /* spaces, tabs and newlines at both ends */
xl_str xl_str_cut(xl_str *rest, char sep);                   /* the part before sep; *rest becomes the part after */
xl_str xl_str_dup(xl_arena *a, xl_str s);                    /* NUL-terminated copy */
char *xl_str_c(xl_arena *a, xl_str s);                       /* the same as a C string */
xl_str xl_strf(xl_arena *a, const char *fmt, ...) XL_PRINTF(2, 3);
size_t xl_str_distance(xl_str a, xl_str b);                  /* edit distance, for "did you mean" */
bool xl_str_i64(xl_str s, int64_t *out);                     /* whole string, decimal or 0x; false if not a number */
/* The same of at most `most`, for what a person wrote. The error: INVALID, it is none, "'x' is not a whole number";
 * RANGE, "99 is too large (at most 64)", where `most` or an int64_t cannot hold it. 1e9 is to be written out. */
xl_error *xl_str_whole(xl_str s, int64_t most, int64_t *out) XL_MUST_USE;
bool xl_str_f64(xl_str s, double *out);                      /* whole string, whatever the locale; inf and nan too */
const char *xl_size_words(double n, char out[32]);           /* "512 bytes", "22.1 KiB", "23.5 GiB"; returns out */
bool xl_str_size(xl_str s, uint64_t *out);                   /* "16MiB", "2GB", "4096" */

typedef struct { char *p; size_t n, cap; bool failed; } xl_buf;

void xl_buf_add(xl_buf *b, const void *p, size_t n);
void xl_buf_str(xl_buf *b, xl_str s);
void xl_buf_puts(xl_buf *b, const char *c);
void xl_buf_putc(xl_buf *b, char c);
void xl_buf_printf(xl_buf *b, const char *fmt, ...) XL_PRINTF(2, 3);
/* Untrusted text for a terminal: control characters (C0 but newline and tab, DEL, C1) become \xNN. */
void xl_buf_shown(xl_buf *b, xl_str s);
static inline xl_str xl_buf_view(const xl_buf *b) { return (xl_str){ b->p ? b->p : "", b->n }; }
void xl_buf_fini(xl_buf *b);

#endif
