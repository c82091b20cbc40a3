/* src/cpu/plan/heap.h
 * A priority queue of numbers, the smallest first. The creator provides room for all that are in it at once. */
#ifndef XL_CPU_HEAP_H
#define XL_CPU_HEAP_H

#include <stdint.h>

typedef struct { uint32_t *key; uint32_t n; } xl_heap;

static inline void xl_heap_push(xl_heap *h, uint32_t key)
{
    uint32_t i = h->n++;
    for (; i && h->key[(i - 1) / 2] > key; i = (i - 1) / 2)
        h->key[i] = h->key[(i - 1) / 2];
    h->key[i] = key;
}

static inline uint32_t xl_heap_pop(xl_heap *h)
{
    uint32_t top = h->key[0], last = h->key[--h->n], i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= h->n)
            break;
        if (c + 1 < h->n && h->key[c + 1] < h->key[c])
            c++;
        if (h->key[c] >= last)
            break;
        h->key[i] = h->key[c];
        i = c;
    }
    h->key[i] = last;
    return top;
}

#endif
