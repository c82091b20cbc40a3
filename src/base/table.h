/* src/base/table.h
 * An open-addressing hash index. The caller keeps the entries in an array; the table maps a 32-bit hash to their
 * indices, and the caller compares the keys:
 *     XL_TABLE_EACH(&t, hash, i)
 *         if (xl_str_eq(all[i].name, name))
 *             return &all[i];
 *     xl_table_add(&t, arena, hash, n);
 * {0} is an empty table. One thread at a time. The slots live in the arena; without one they are malloc'ed, and the
 * caller frees them with xl_table_fini. */
#ifndef XL_BASE_TABLE_H
#define XL_BASE_TABLE_H

#include <stdbool.h>

#include "base/arena.h"

typedef struct { uint32_t hash, entry; } xl_table_slot;   /* entry: the number plus one; 0: free */
typedef struct { xl_table_slot *slot; uint32_t n, cap; } xl_table; /* cap is 0 or a power of two */

/* Room for n entries without growing. False only without an arena, when memory runs out. */
bool xl_table_reserve(xl_table *t, xl_arena *a, size_t n);
/* Does not look for an equal entry. False as above; the table is then unchanged. */
bool xl_table_add(xl_table *t, xl_arena *a, uint32_t hash, uint32_t entry);
void xl_table_drop(xl_table *t, uint32_t hash, uint32_t entry); /* not there: fine; never inside XL_TABLE_EACH */
void xl_table_fini(xl_table *t);                                /* of malloc'ed slots */

/* A hash of a number or an address. */
static inline uint32_t xl_table_hash(uint64_t key) { return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32); }

static inline bool xl_table_next(const xl_table *t, uint32_t hash, uint32_t *at, uint32_t *entry)
{
    while (t->cap) {
        const xl_table_slot *s = &t->slot[(*at)++ & (t->cap - 1)];
        if (!s->entry)
            break;
        if (s->hash == hash) {
            *entry = s->entry - 1;
            return true;
        }
    }
    return false;
}

/* The body runs for each entry with this hash, its number in i. */
#define XL_TABLE_EACH(t, hash, i) for (uint32_t at_ = (hash), i; xl_table_next((t), (hash), &at_, &i); )

#endif
