/* Pairing two sequences. What is equal at both ends is paired at once; the middle by the shortest edit script (Myers'
 * greedy search) as long as that is short; beyond, keys that occur once on both sides serve as anchors, in their
 * longest increasing run, and each gap is tried again. */
#include "ir/compare/diff.h"

#include <stdlib.h>

enum { EDITS_MAX = 300, DEPTH = 12 };

/* Fills match for a[0..na) against b[0..nb); false if more than EDITS_MAX edits are needed. */
static bool shortest(xl_arena *tmp, const uint64_t *a, int32_t na, const uint64_t *b, int32_t nb, int32_t *match,
                     int32_t b0)
{
    int32_t most = na + nb < EDITS_MAX ? na + nb : EDITS_MAX, width = 2 * most + 3, mid = most + 1, d, k;
    int32_t **row = xl_new(tmp, int32_t *, (size_t)most + 1);
    int32_t *v = xl_new(tmp, int32_t, (size_t)width);
    for (d = 0; d <= most; d++) {
        row[d] =
            xl_new(tmp, int32_t, 2 * (size_t)d + 3); /* v before this round, for walking back: diagonals -d-1 .. d+1 */
        memcpy(row[d], v + mid - d - 1, (2 * (size_t)d + 3) * sizeof *v);
        for (k = -d; k <= d; k += 2) {
            int32_t x = k == -d || (k != d && v[mid + k - 1] < v[mid + k + 1]) ? v[mid + k + 1] : v[mid + k - 1] + 1;
            while (x < na && x - k < nb && x >= 0 && x - k >= 0 && a[x] == b[x - k])
                x++;
            v[mid + k] = x;
            if (x >= na && x - k >= nb)
                goto found;
        }
    }
    return false;
found:
    for (int32_t x = na, y = nb; d >= 0; d--) {
        const int32_t *p = row[d] + d + 1;                 /* p[k] is v[k] before round d */
        k = x - y;
        bool down = k == -d || (k != d && p[k - 1] < p[k + 1]);
        int32_t from = d == 0 ? 0 : down ? p[k + 1] : p[k - 1] + 1; /* where the run of equals began */
        while (x > from && x > 0 && y > 0) {
            match[--x] = b0 + --y;
        }
        if (d == 0)
            break;
        if (down)
            y--;
        else
            x--;
    }
    return true;
}

typedef struct { uint64_t key; int32_t at; } keyed;

static int by_key(const void *p, const void *q)
{
    const keyed *a = p, *b = q;
    return a->key < b->key ? -1 : a->key > b->key ? 1 : a->at - b->at;
}

static keyed *sorted(xl_arena *tmp, const uint64_t *k, int32_t n)
{
    keyed *s = xl_new(tmp, keyed, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        s[i] = (keyed){ k[i], i };
    qsort(s, (size_t)n, sizeof *s, by_key);
    return s;
}

static bool once(const keyed *s, int32_t n, int32_t i)
{
    return (i == 0 || s[i - 1].key != s[i].key) && (i + 1 == n || s[i + 1].key != s[i].key);
}

static void align(xl_arena *tmp, const uint64_t *a, int32_t na, const uint64_t *b, int32_t nb, int32_t *match,
                  int32_t b0, int depth)
{
    int32_t head = 0;
    while (head < na && head < nb && a[head] == b[head]) {
        match[head] = b0 + head;
        head++;
    }
    a += head, b += head, match += head, b0 += head, na -= head, nb -= head;
    while (na > 0 && nb > 0 && a[na - 1] == b[nb - 1]) {
        na--, nb--;
        match[na] = b0 + nb;
    }
    if (na == 0 || nb == 0 || shortest(tmp, a, na, b, nb, match, b0) || depth >= DEPTH)
        return;
    keyed *s = sorted(tmp, a, na), *t = sorted(tmp, b, nb);
    int32_t *to = xl_new(tmp, int32_t, (size_t)na), *tail = xl_new(tmp, int32_t, (size_t)na),
            *back = xl_new(tmp, int32_t, (size_t)na), len = 0;
    memset(to, 0xff, (size_t)na * sizeof *to);
    for (int32_t i = 0, k = 0; i < na && k < nb; ) {
        if (s[i].key < t[k].key)
            i++;
        else if (s[i].key > t[k].key)
            k++;
        else {
            if (once(s, na, i) && once(t, nb, k))
                to[s[i].at] = t[k].at;
            i++;
        }
    }
    for (int32_t i = 0; i < na; i++) {                     /* the longest increasing run of anchors */
        if (to[i] < 0)
            continue;
        int32_t lo = 0, hi = len;
        while (lo < hi) {
            int32_t m = (lo + hi) / 2;
            if (to[tail[m]] < to[i])
                lo = m + 1;
            else
                hi = m;
        }
        back[i] = lo ? tail[lo - 1] : -1;
        tail[lo] = i;
        len = lo == len ? len + 1 : len;
    }
    if (len == 0)
        return;
    int32_t *run = xl_new(tmp, int32_t, (size_t)len), at = tail[len - 1], pa = 0, pb = 0;
    for (int32_t i = len; i-- > 0; at = back[at])
        run[i] = at;
    for (int32_t i = 0; i <= len; i++) {
        int32_t ea = i < len ? run[i] : na, eb = i < len ? to[run[i]] : nb;
        align(tmp, a + pa, ea - pa, b + pb, eb - pb, match + pa, b0 + pb, depth + 1);
        if (i < len)
            match[ea] = b0 + eb;
        pa = ea + 1;
        pb = eb + 1;
    }
}

void xl_align(xl_arena *tmp, const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb, int32_t *match)
{
    for (uint32_t i = 0; i < na; i++)
        match[i] = -1;
    align(tmp, a, (int32_t)na, b, (int32_t)nb, match, 0, 0);
}
