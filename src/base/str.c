#include "base/str.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int xl_str_cmp(xl_str a, xl_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

bool xl_str_starts(xl_str s, xl_str prefix) { return s.n >= prefix.n && xl_str_eq((xl_str){ s.p, prefix.n }, prefix); }

bool xl_str_ends(xl_str s, xl_str suffix)
{
    return s.n >= suffix.n && xl_str_eq((xl_str){ s.p + s.n - suffix.n, suffix.n }, suffix);
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

xl_str xl_str_trim(xl_str s)
{
    while (s.n && is_space(s.p[0])) { s.p++; s.n--; }
    while (s.n && is_space(s.p[s.n - 1])) s.n--;
    return s;
}

xl_str xl_str_cut(xl_str *rest, char sep)
{
    xl_str all = *rest;
    const char *at = all.n ? memchr(all.p, sep, all.n) : NULL;
    if (!at) {
        *rest = (xl_str){ NULL, 0 };
        return all;
    }
    *rest = (xl_str){ at + 1, all.n - (size_t)(at + 1 - all.p) };
    return (xl_str){ all.p, (size_t)(at - all.p) };
}

char *xl_str_c(xl_arena *a, xl_str s)
{
    char *c = xl_arena_alloc(a, s.n + 1);
    if (s.n)
        memcpy(c, s.p, s.n);
    c[s.n] = 0;
    return c;
}

xl_str xl_str_dup(xl_arena *a, xl_str s) { return (xl_str){ xl_str_c(a, s), s.n }; }

xl_str xl_strf(xl_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return (xl_str){ "", 0 };
    char *c = xl_arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(c, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return (xl_str){ c, (size_t)n };
}

size_t xl_str_distance(xl_str a, xl_str b)
{
    enum { MOST = 128 };
    if (a.n > MOST || b.n > MOST)
        return a.n > b.n ? a.n : b.n;
    size_t row[MOST + 1];
    for (size_t j = 0; j <= b.n; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            size_t best = diag + (a.p[i - 1] != b.p[j - 1]);
            diag = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b.n];
}

bool xl_str_i64(xl_str s, int64_t *out)
{
    char tmp[32];
    if (s.n == 0 || s.n >= sizeof tmp || is_space(s.p[0]))
        return false;
    memcpy(tmp, s.p, s.n);
    tmp[s.n] = 0;
    char *end;
    errno = 0;
    bool hex = strncmp(tmp, "0x", 2) == 0 || strncmp(tmp, "-0x", 3) == 0;
    long long v = strtoll(tmp, &end, hex ? 16 : 10);
    if (errno || *end)
        return false;
    *out = v;
    return true;
}

/* strtod follows the locale of whatever process we live in; numbers in files do not. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

bool xl_str_f64(xl_str s, double *out)
{
    char tmp[512]; /* longer than any double's exact decimal form that somebody would write down */
    if (s.n == 0 || s.n >= sizeof tmp || is_space(s.p[0]))
        return false;
    memcpy(tmp, s.p, s.n);
    tmp[s.n] = 0;
    pthread_once(&c_locale_once, make_c_locale);
    char *end;
    double v = c_locale ? strtod_l(tmp, &end, c_locale) : strtod(tmp, &end);
    if (end != tmp + s.n)
        return false;
    *out = v;
    return true;
}

xl_error *xl_str_whole(xl_str s, int64_t most, int64_t *out)
{
    double f;
    bool is = xl_str_i64(s, out);
    if (is && *out <= most)
        return NULL;
    if (!is && (!s.n || !memchr("+-.0123456789", s.p[0], 14) || !xl_str_f64(s, &f) || f != floor(f)))
        return XL_ERR(INVALID, "'%.*s' is not a whole number", XL_FMT(s));
    if (is || f > (double)most)
        return XL_ERR(RANGE, "%.*s is too large (at most %lld)", XL_FMT(s), (long long)most);
    if (f < (double)INT64_MIN)
        return XL_ERR(RANGE, "%.*s is too small (at least %lld)", XL_FMT(s), (long long)INT64_MIN);
    if (fabs(f) < 0x1p63)
        return XL_ERR(INVALID, "'%.*s' is not written as a whole number: write %.0f", XL_FMT(s), f);
    return XL_ERR(RANGE, "%.*s is too large (at most %lld)", XL_FMT(s), (long long)most);
}

const char *xl_size_words(double n, char out[32])
{
    static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    int u = 0;
    for (; n >= 1024 && u < 4; u++)
        n /= 1024;
    snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", n, unit[u]);
    return out;
}

bool xl_str_size(xl_str s, uint64_t *out)
{
    static const struct { const char *unit; uint64_t by; } units[] = {
        { "", 1 },          { "B", 1 },
        { "K", 1u << 10 },  { "KiB", 1u << 10 },        { "KB", 1000 },
        { "M", 1u << 20 },  { "MiB", 1u << 20 },        { "MB", 1000000 },
        { "G", 1u << 30 },  { "GiB", 1u << 30 },        { "GB", 1000000000 },
        { "T", 1ull << 40 }, { "TiB", 1ull << 40 },     { "TB", 1000000000000 },
    };
    size_t digits = 0;
    s = xl_str_trim(s);
    while (digits < s.n && s.p[digits] >= '0' && s.p[digits] <= '9')
        digits++;
    int64_t v;
    if (!xl_str_i64((xl_str){ s.p, digits }, &v))
        return false;
    xl_str unit = xl_str_trim((xl_str){ s.p + digits, s.n - digits });
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (xl_str_is(unit, units[i].unit)) {
            if ((uint64_t)v > UINT64_MAX / units[i].by)
                return false;
            *out = (uint64_t)v * units[i].by;
            return true;
        }
    return false;
}

static bool reserve(xl_buf *b, size_t more)
{
    if (b->failed || more > SIZE_MAX / 2 - b->n) {
        b->failed = true;
        return false;
    }
    size_t need = b->n + more + 1;
    if (need <= b->cap)
        return true;
    size_t cap = b->cap ? b->cap : 256;
    while (cap < need)
        cap *= 2;
    char *p = realloc(b->p, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void xl_buf_add(xl_buf *b, const void *p, size_t n)
{
    if (!reserve(b, n))
        return;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void xl_buf_str(xl_buf *b, xl_str s) { xl_buf_add(b, s.p, s.n); }
void xl_buf_puts(xl_buf *b, const char *c) { xl_buf_add(b, c, strlen(c)); }
void xl_buf_putc(xl_buf *b, char c) { xl_buf_add(b, &c, 1); }

void xl_buf_shown(xl_buf *b, xl_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i], next = i + 1 < s.n ? (unsigned char)s.p[i + 1] : 0;
        bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0; /* as UTF-8 */
        if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f)
            xl_buf_printf(b, "\\x%02x", c);
        else if (c1)
            xl_buf_printf(b, "\\x%02x", s.p[++i] & 0xff);
        else
            xl_buf_putc(b, (char)c);
    }
}

void xl_buf_printf(xl_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

void xl_buf_fini(xl_buf *b)
{
    free(b->p);
    *b = (xl_buf){ 0 };
}
