/* src/pjrt/gate.h
 * Two orders that XLA depends on and does not check: environment before runtime (it reads its flags once), and SPMD
 * before the first tensor (an existing tensor has no sharding). Here they are states of the process: passing a gate too
 * late is an error that names both moments. Any thread. */
#ifndef XL_PJRT_GATE_H
#define XL_PJRT_GATE_H

#include "base/error.h"

typedef enum {
    XL_GATE_ENVIRONMENT, /* flags and variables are being set: not after RUNTIME */
    XL_GATE_RUNTIME,     /* a client is being made */
    XL_GATE_SPMD,        /* a mesh or SPMD is being switched on: not after TENSOR */
    XL_GATE_TENSOR,      /* the first buffer on a device */
    XL_GATE_COUNT
} xl_gate;

/* `who` names the caller, for the message of the other gate; it is copied. */
xl_error *xl_gate_pass(xl_gate g, const char *who) XL_MUST_USE;
/* The first moment a gate was passed: seconds on xl_now's clock, 0 if never. */
double xl_gate_when(xl_gate g);
void xl_gate_reset(void); /* for tests, and for a child after fork that starts a lane of its own */

#endif
