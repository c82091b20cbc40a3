/* A sweep over positions: at each, first the buffers that begin take the best-fitting hole (or the end), then those that
 * end give theirs back and holes that touch are joined. */
#include "cpu/place.h"

typedef struct { size_t at, size; } hole;
typedef struct { hole *h; size_t n, cap; size_t top; } holes;

static size_t take(holes *s, size_t size)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < s->n; i++)
        if (s->h[i].size >= size && (best == SIZE_MAX || s->h[i].size < s->h[best].size))
            best = i;
    if (best == SIZE_MAX) {
        if (s->n && s->h[s->n - 1].at + s->h[s->n - 1].size == s->top) { /* grow the last hole */
            size_t at = s->h[--s->n].at;
            s->top = at + size;
            return at;
        }
        s->top += size;
        return s->top - size;
    }
    size_t at = s->h[best].at;
    s->h[best].at += size;
    s->h[best].size -= size;
    if (!s->h[best].size) {
        memmove(s->h + best, s->h + best + 1, (s->n - best - 1) * sizeof *s->h);
        s->n--;
    }
    return at;
}

static void give(xl_arena *a, holes *s, size_t at, size_t size)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->h[mid].at < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    bool left = lo > 0 && s->h[lo - 1].at + s->h[lo - 1].size == at;
    bool right = lo < s->n && at + size == s->h[lo].at;
    if (left && right) {
        s->h[lo - 1].size += size + s->h[lo].size;
        memmove(s->h + lo, s->h + lo + 1, (s->n - lo - 1) * sizeof *s->h);
        s->n--;
    } else if (left) {
        s->h[lo - 1].size += size;
    } else if (right) {
        s->h[lo].at = at;
        s->h[lo].size += size;
    } else {
        hole none = { 0 };
        XL_PUSH(a, s->h, s->n, s->cap, none);
        memmove(s->h + lo + 1, s->h + lo, (s->n - 1 - lo) * sizeof *s->h);
        s->h[lo] = (hole){ at, size };
    }
}

void xl_place(xl_arena *a, xl_plan *plan, int64_t npos)
{
    uint32_t n = plan->nbuf;
    size_t slots = (size_t)(npos + 3);
    uint32_t *first = xl_new(a, uint32_t, slots), *last = xl_new(a, uint32_t, slots); /* lists by position, 0 ends */
    uint32_t *next1 = xl_new(a, uint32_t, (size_t)n + 1), *next2 = xl_new(a, uint32_t, (size_t)n + 1);
    for (uint32_t i = n; i-- > 0; ) {
        xl_plan_buf *b = &plan->buf[i];
        if (b->kind != XL_BUF_TEMP)
            continue;
        int64_t end = b->end > b->last ? b->end : b->last;
        if (end > npos)
            end = npos;
        size_t d = (size_t)(b->def + 2), e = (size_t)(end + 2);
        next1[i + 1] = first[d];
        first[d] = i + 1;
        next2[i + 1] = last[e];
        last[e] = i + 1;
    }
    holes s = { 0 };
    for (size_t t = 0; t < slots; t++) {
        for (uint32_t i = first[t]; i; i = next1[i]) {
            size_t size = (plan->buf[i - 1].bytes + XL_ALIGN - 1) & ~(size_t)(XL_ALIGN - 1);
            plan->buf[i - 1].offset = take(&s, size ? size : XL_ALIGN);
            if (s.top > plan->temp_bytes)
                plan->temp_bytes = s.top;
        }
        for (uint32_t i = last[t]; i; i = next2[i]) {
            size_t size = (plan->buf[i - 1].bytes + XL_ALIGN - 1) & ~(size_t)(XL_ALIGN - 1);
            give(a, &s, plan->buf[i - 1].offset, size ? size : XL_ALIGN);
        }
    }
}
