/* Ops that the planner should never see: this device does not support them in any form. */
#include "cpu/plan/planner.h"

#define ABSENT(name, why)                                                                                              \
    xl_error *xl_kernel_##name(xl_planner *p, const xl_op *op) { return xl_plan_unsupported(p, op, why); }
ABSENT(einsum, "einsum is not supported: use dot_general")
ABSENT(composite, "a composite that was not inlined")
ABSENT(manual, "a manual computation that was not partitioned")
ABSENT(named, "a named computation that was not spliced in")
ABSENT(async_start, "an asynchronous computation that was not spliced in")
ABSENT(async_done, "an asynchronous computation that was not spliced in")
ABSENT(ragged_dot, "ragged_dot is not supported: expand it into plain ops")
ABSENT(scan, "a scan that was not made a loop")
ABSENT(chlo_broadcast, "broadcasting CHLO ops are not supported: legalise them to StableHLO")
