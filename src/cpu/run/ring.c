#include "cpu/run/ring.h"

#include <string.h>

static void copy_in(xl_ring *r, uint64_t at, const void *from, size_t n)
{
    if (!n)                                                /* `from` may be NULL then */
        return;
    size_t k = at % XL_RING_BYTES, most = XL_RING_BYTES - k, first = n < most ? n : most;
    memcpy(r->data + k, from, first);
    memcpy(r->data, (const char *)from + first, n - first);
}

bool xl_ring_put(xl_ring *r, const void *a, size_t na, const void *b, size_t nb)
{
    uint64_t at = atomic_load_explicit(&r->written, memory_order_relaxed), used = at - atomic_load(&r->read);
    if (used > XL_RING_BYTES || na > XL_RING_BYTES - used || nb > XL_RING_BYTES - used - na)
        return false;
    copy_in(r, at, a, na);
    if (nb)
        copy_in(r, at + na, b, nb);
    atomic_store(&r->written, at + na + nb);
    return true;
}

size_t xl_ring_has(xl_ring *r)
{
    uint64_t n = atomic_load(&r->written) - atomic_load_explicit(&r->read, memory_order_relaxed);
    return n > XL_RING_BYTES ? SIZE_MAX : (size_t)n;
}

void xl_ring_peek(const xl_ring *r, size_t at, void *to, size_t n)
{
    uint64_t from = atomic_load_explicit(&((xl_ring *)(uintptr_t)r)->read, memory_order_relaxed) + at;
    size_t k = from % XL_RING_BYTES, most = XL_RING_BYTES - k, first = n < most ? n : most;
    memcpy(to, r->data + k, first);
    memcpy((char *)to + first, r->data, n - first);
}

void xl_ring_skip(xl_ring *r, size_t n)
{
    atomic_store(&r->read, atomic_load_explicit(&r->read, memory_order_relaxed) + n);
}
