#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct xl_chunk {
    struct xl_chunk *next;
    size_t size;
    _Alignas(16) char data[];
};

enum { FIRST = 4096, LARGEST = 1 << 20 };

static void out_of_memory(xl_arena *a, size_t size)
{
    if (a->oom)
        longjmp(*a->oom, 1);
    fprintf(stderr, "xlane: out of memory (%zu bytes more were needed)\n", size);
    abort();
}

void *xl_arena_alloc(xl_arena *a, size_t size)
{
    void *p = xl_arena_try(a, size);
    if (!p)
        out_of_memory(a, size);
    return p;
}

void *xl_arena_try(xl_arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    if (a->limit && (size > a->limit || a->used > a->limit - size))
        return NULL;
    if (!a->chunk || (size_t)(a->end - a->p) < size) {
        size_t want = a->chunk ? a->chunk->size * 2 : FIRST;
        if (want > LARGEST)
            want = LARGEST;
        if (want < size)
            want = size;
        struct xl_chunk *c = calloc(1, sizeof *c + want);
        if (!c)
            return NULL;
        c->size = want;
        if (a->chunk && want == size && (size_t)(a->end - a->p) > size / 4) {
            c->next = a->chunk->next; /* a large block of its own: keep filling the present chunk */
            a->chunk->next = c;
            a->used += size;
            return c->data;
        }
        c->next = a->chunk;
        a->chunk = c;
        a->p = c->data;
        a->end = c->data + want;
    }
    void *p = a->p;
    a->p += size;
    a->used += size;
    return p;
}

void *xl_arena_array(xl_arena *a, size_t elem, size_t count)
{
    if (elem && count > SIZE_MAX / 4 / elem)
        out_of_memory(a, SIZE_MAX);
    return xl_arena_alloc(a, elem * count);
}

void *xl_arena_grow(xl_arena *a, void *old, size_t elem, size_t count, size_t newcount)
{
    void *p = xl_arena_array(a, elem, newcount);
    if (count)
        memcpy(p, old, elem * count);
    return p;
}

void xl_arena_fini(xl_arena *a)
{
    for (struct xl_chunk *c = a->chunk, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    a->chunk = NULL;
    a->p = a->end = NULL;
    a->used = 0;
}

xl_error *xl_arena_call(xl_error *(*fn)(xl_arena *a, void *ctx), void *ctx)
{
    jmp_buf oom;
    xl_arena a = { .oom = &oom };
    xl_error *err = setjmp(oom) ? XL_ERR(EXHAUSTED, "out of memory") : fn(&a, ctx);
    xl_arena_fini(&a);
    return err;
}
