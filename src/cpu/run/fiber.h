/* src/cpu/run/fiber.h
 * A function with its own stack, which can be suspended and later resumed on any thread. Devices that run one program
 * together are fibers, executed by as many threads as there are cores: a device that waits costs a switch of stacks,
 * not a sleep in the kernel and a wake-up on a core that may be busy.
 * A fiber must not keep anything of its thread (a lock, thread-local memory) across xl_fiber_park, nor call code of the
 * frontend: Python would report a stack overflow. */
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
