/* First the outputs: until an output is written its memory is as good as any other, unless it is a donated argument's.
 * The largest temporaries that are done by then go there. Then a sweep over positions: at each, first the buffers that
 * begin take the best-fitting hole (or the end), then those that end give theirs back and holes that touch
 * are joined. */
#include "cpu/plan/place.h"

#include <stdlib.h>

enum { WORTH = 1 << 14, OUTS_MAX = 256 };                  /* bytes below which it is not looked at; outputs that are */

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

static size_t rounded(size_t bytes)
{
    size_t size = (bytes + XL_ALIGN - 1) & ~(size_t)(XL_ALIGN - 1);
    return size ? size : XL_ALIGN;
}
static int64_t end_of(const xl_plan_buf *b) { return b->end > b->last ? b->end : b->last; }

/* The lowest place in the output where b is alone while it lives, or SIZE_MAX. `in`: those that lie there already, as a
 * list through next. */
static size_t room(const xl_plan *plan, const xl_plan_buf *out, const xl_plan_buf *b, uint32_t in, const uint32_t *next)
{
    size_t at = 0, size = rounded(b->bytes);
    if (end_of(b) >= out->def)
        return SIZE_MAX;
    for (bool moved = true; moved; ) {
        moved = false;
        for (uint32_t i = in; i; i = next[i]) {
            const xl_plan_buf *x = &plan->buf[i - 1];
            bool together = x->def <= end_of(b) && b->def <= end_of(x);
            if (together && at < x->offset + rounded(x->bytes) && x->offset < at + size) {
                at = x->offset + rounded(x->bytes);
                moved = true;
            }
        }
    }
    return at + b->bytes <= out->bytes ? at : SIZE_MAX;
}

typedef struct { size_t bytes; uint32_t i; } sized;
static int larger(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : (x->i > y->i) - (x->i < y->i);
}

static void use_outputs(xl_arena *a, xl_plan *plan)
{
    uint32_t n = plan->nbuf, nt = 0, no = 0;
    sized *temp = xl_new(a, sized, n), *out = xl_new(a, sized, n);
    uint32_t *first = xl_new(a, uint32_t, n), *next = xl_new(a, uint32_t, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const xl_plan_buf *b = &plan->buf[i];
        if (b->bytes < WORTH)
            continue;
        if (b->kind == XL_BUF_TEMP)
            temp[nt++] = (sized){ b->bytes, i };
        else if (b->kind == XL_BUF_OUT && plan->out_donor[b->index] < 0)
            out[no++] = (sized){ b->bytes, i };
    }
    qsort(temp, nt, sizeof *temp, larger);
    qsort(out, no, sizeof *out, larger);
    for (uint32_t k = 0; k < nt; k++) {
        xl_plan_buf *b = &plan->buf[temp[k].i];
        for (uint32_t q = no < OUTS_MAX ? no : OUTS_MAX; q-- > 0 && !b->host; ) { /* the smallest that it fits */
            uint32_t o = out[q].i;
            size_t at = room(plan, &plan->buf[o], b, first[o], next);
            if (at == SIZE_MAX)
                continue;
            b->host = o + 1;
            b->offset = at;
            next[temp[k].i + 1] = first[o];
            first[o] = temp[k].i + 1;
        }
    }
}

void xl_place_buffers(xl_arena *a, xl_plan *plan, int64_t npos)
{
    uint32_t n = plan->nbuf;
    plan->temp_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        plan->buf[i].host = 0;
    use_outputs(a, plan);
    size_t slots = (size_t)(npos + 3);
    uint32_t *first = xl_new(a, uint32_t, slots), *last = xl_new(a, uint32_t, slots); /* lists by position, 0 ends */
    uint32_t *next1 = xl_new(a, uint32_t, (size_t)n + 1), *next2 = xl_new(a, uint32_t, (size_t)n + 1);
    for (uint32_t i = n; i-- > 0; ) {
        xl_plan_buf *b = &plan->buf[i];
        if (b->kind != XL_BUF_TEMP || b->host)
            continue;
        int64_t end = end_of(b);
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
            plan->buf[i - 1].offset = take(&s, rounded(plan->buf[i - 1].bytes));
            if (s.top > plan->temp_bytes)
                plan->temp_bytes = s.top;
        }
        for (uint32_t i = last[t]; i; i = next2[i]) {
            give(a, &s, plan->buf[i - 1].offset, rounded(plan->buf[i - 1].bytes));
        }
    }
}
