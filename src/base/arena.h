/* src/base/arena.h
 * An arena: allocations that are all freed together. {0} is an empty one. Memory is zeroed, 16-byte aligned and never
 * moved. For one thread at a time.
 * When memory or `limit` is exhausted, the arena jumps to `*oom` if that is set; otherwise it prints a message and
 * aborts. The command may abort. The guard and the plugins may not: their entry points use xl_arena_call and return
 * EXHAUSTED. */
#ifndef XL_BASE_ARENA_H
#define XL_BASE_ARENA_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct xl_arena {
    struct xl_chunk *chunk; /* newest first */
    char *p, *end;          /* free space in the newest */
    size_t used;            /* bytes handed out */
    size_t limit;           /* 0: none */
    jmp_buf *oom;
} xl_arena;

void *xl_arena_alloc(xl_arena *a, size_t size);               /* never NULL; size 0 is fine */
void *xl_arena_try(xl_arena *a, size_t size);                 /* NULL instead of a jump: for sizes that a user chose */
void *xl_arena_array(xl_arena *a, size_t elem, size_t count); /* checks the product */
void *xl_arena_grow(xl_arena *a, void *old, size_t elem, size_t count, size_t newcount); /* old stays valid */
void xl_arena_fini(xl_arena *a);                              /* frees all; the arena is empty and usable again */

/* Calls fn with a temporary arena. Returns EXHAUSTED if the arena ran out of memory; files that fn had opened stay open
 * and locks stay held, so fn must not allocate while it holds a lock. */
xl_error *xl_arena_call(xl_error *(*fn)(xl_arena *a, void *ctx), void *ctx) XL_MUST_USE;

#define xl_new(a, T, n) ((T *)xl_arena_array((a), sizeof(T), (n)))

/* Appends to a growing array in an arena: XL_PUSH(arena, f->op, f->nop, f->cap, op). */
#define XL_PUSH(a, arr, n, cap, x)                                                          \
    do {                                                                                    \
        if ((n) == (cap)) {                                                                 \
            size_t cap_ = (cap) ? 2 * (size_t)(cap) : 8;                                    \
            (arr) = xl_arena_grow((a), (arr), sizeof *(arr), (n), cap_);                    \
            (cap) = cap_;                                                                   \
        }                                                                                   \
        (arr)[(n)++] = (x);                                                                 \
    } while (0)

#endif
