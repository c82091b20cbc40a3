/* src/cpu/crew.h
 * Threads for devices that run together: kept from one execution to the next, since an execution may be shorter than the start of a thread. Any thread may
 * call; several may at once. A forked child has none of its parent's threads and starts its own. */
#ifndef XL_CPU_CREW_H
#define XL_CPU_CREW_H

#include <stddef.h>

#include "base/error.h"

typedef struct xl_crew xl_crew;

xl_crew *xl_crew_new(void);                                /* NULL: no memory */
void xl_crew_free(xl_crew *c);                             /* no call may be under way */
/* fn(ctx, k) for k = 0 .. n-1 at the same time: 0 in the calling thread, the others in one each. Returns when all have. Those for whom there is no thread
 * are not called, and the error says why; begin, called before any fn, is told how many will be. */
xl_error *xl_crew_run(xl_crew *c, size_t n, void (*begin)(void *ctx, size_t started, const xl_error *why), void (*fn)(void *ctx, size_t k), void *ctx) XL_MUST_USE;

#endif
