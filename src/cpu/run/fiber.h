/* src/cpu/run/fiber.h
 * A function with a stack of its own, which can stop in the middle and go on later, in whichever thread resumes it.
 * Devices that run one program together are fibers: as many threads run them as there are cores, and a device that
 * waits costs a switch of stacks, not a thread asleep in the kernel that must be woken on a core which may not be the
 * free one.
 * Inside a fiber nothing that belongs to a thread (a lock, thread-local memory) may be kept across xl_fiber_park, and
 * no code of the frontend is called: Python would take the stack for overflown. */
#ifndef XL_CPU_FIBER_H
#define XL_CPU_FIBER_H

#include <stdbool.h>

typedef struct xl_fiber xl_fiber;
typedef struct xl_fibers xl_fibers; /* those that are done, kept for the next execution; any thread */

xl_fibers *xl_fibers_new(void);                            /* NULL: no memory */
void xl_fibers_free(xl_fibers *all);                       /* none may be in use */
xl_fiber *xl_fiber_take(xl_fibers *all, void (*fn)(void *arg), void *arg); /* NULL: no memory; has not begun */
void xl_fiber_give(xl_fibers *all, xl_fiber *f);           /* it has returned, or never begun */
bool xl_fiber_resume(xl_fiber *f);                         /* until it parks (false) or returns (true) */
void xl_fiber_park(xl_fiber *f);                           /* from inside */

#endif
