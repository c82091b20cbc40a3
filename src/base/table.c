/* Linear probing at a load of at most one half. The hashes are kept, so growing needs no key. */
#include "base/table.h"

#include <stdlib.h>

static void place(xl_table *t, xl_table_slot s)
{
    uint32_t k = s.hash & (t->cap - 1);
    while (t->slot[k].entry)
        k = (k + 1) & (t->cap - 1);
    t->slot[k] = s;
}

bool xl_table_reserve(xl_table *t, xl_arena *a, size_t n)
{
    xl_table big = { .n = t->n, .cap = t->cap ? t->cap : 32 };
    while (big.cap < 2 * n)
        big.cap *= 2;
    if (big.cap == t->cap)
        return true;
    big.slot = a ? xl_new(a, xl_table_slot, big.cap) : calloc(big.cap, sizeof *big.slot);
    if (!big.slot)
        return false;
    for (uint32_t i = 0; i < t->cap; i++)
        if (t->slot[i].entry)
            place(&big, t->slot[i]);
    if (!a)
        free(t->slot);
    *t = big;
    return true;
}

bool xl_table_add(xl_table *t, xl_arena *a, uint32_t hash, uint32_t entry)
{
    if (2 * ((size_t)t->n + 1) > t->cap && !xl_table_reserve(t, a, (size_t)t->n + 1))
        return false;
    place(t, (xl_table_slot){ hash, entry + 1 });
    t->n++;
    return true;
}

void xl_table_drop(xl_table *t, uint32_t hash, uint32_t entry)
{
    uint32_t mask = t->cap - 1, k = hash;
    if (!t->cap)
        return;
    for (k &= mask; t->slot[k].entry != entry + 1 || t->slot[k].hash != hash; k = (k + 1) & mask)
        if (!t->slot[k].entry)
            return;
    t->slot[k].entry = 0;
    t->n--;
    for (k = (k + 1) & mask; t->slot[k].entry; k = (k + 1) & mask) { /* close the gap */
        xl_table_slot s = t->slot[k];
        t->slot[k].entry = 0;
        place(t, s);
    }
}

void xl_table_fini(xl_table *t)
{
    free(t->slot);
    *t = (xl_table){ 0 };
}
