#include "pjrt/gate.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/thread.h"
#include "base/time.h"

static xl_mutex lock = XL_MUTEX_INIT;
static struct { _Atomic bool passed; double when; char who[160]; } gates[XL_GATE_COUNT];

static const struct { xl_gate early, late; const char *what, *already, *next;
} orders[] = {
    { XL_GATE_ENVIRONMENT, XL_GATE_RUNTIME, "the environment is set too late, XLA reads it once",
      "the runtime was started", "apply the profile before the first client is made: `xlane run --profile` does" },
    { XL_GATE_SPMD, XL_GATE_TENSOR, "SPMD is switched on too late, what exists already has no sharding",
      "the first tensor was made", "make the mesh before anything is put on a device" },
};

xl_error *xl_gate_pass(xl_gate g, const char *who)
{
    xl_error *err = NULL;
    if ((g == XL_GATE_TENSOR || g == XL_GATE_RUNTIME) && atomic_load_explicit(&gates[g].passed, memory_order_acquire))
        return NULL; /* the common case, without a lock: every buffer comes through here */
    double now = xl_now();
    xl_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof orders / sizeof *orders && !err; i++)
        if (orders[i].early == g && gates[orders[i].late].passed)
            err = XL_ERR(PRECONDITION, "%s: %s: %s %.3f s ago (%s); %s", who, orders[i].what, orders[i].already,
                         now - gates[orders[i].late].when, gates[orders[i].late].who, orders[i].next);
    if (!err && !gates[g].passed) {
        gates[g].when = now;
        snprintf(gates[g].who, sizeof gates[g].who, "%s", who);
        atomic_store_explicit(&gates[g].passed, true, memory_order_release);
    }
    xl_mutex_unlock(&lock);
    return err;
}

double xl_gate_when(xl_gate g) { return gates[g].passed ? gates[g].when : 0; }

void xl_gate_reset(void)
{
    xl_mutex_lock(&lock);
    for (int i = 0; i < XL_GATE_COUNT; i++)
        gates[i].passed = false;
    xl_mutex_unlock(&lock);
}
