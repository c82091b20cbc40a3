/* src/cpu/run/ring.h
 * Small messages between two processes of one host: a ring buffer in shared memory. One thread writes at a time and one
 * reads; a message is never seen in part. Zeroed memory is an empty ring. */
#ifndef XL_CPU_RING_H
#define XL_CPU_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XL_RING_BYTES = 64 << 10 };

typedef struct {
    _Alignas(64) _Atomic uint64_t written;                 /* bytes, ever */
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) char data[XL_RING_BYTES];
} xl_ring;

/* A message of two parts. False: there is no room for it now. */
bool xl_ring_put(xl_ring *r, const void *a, size_t na, const void *b, size_t nb);
/* Bytes that are there; of more than fit, what the other side wrote is no ring, and SIZE_MAX. */
size_t xl_ring_has(xl_ring *r);
/* Copies n bytes that are there, `at` bytes after the first unread one. */
void xl_ring_peek(const xl_ring *r, size_t at, void *to, size_t n);
void xl_ring_skip(xl_ring *r, size_t n);

#endif
