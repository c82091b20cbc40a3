/* src/cpu/plan/schedule.h: units that free memory run as early as possible. */
#ifndef XL_CPU_SCHEDULE_H
#define XL_CPU_SCHEDULE_H

#include "cpu/plan/units.h"

/* Puts the units of a function's body in another order. The plan's donors are known (plan.h). */
void xl_schedule(xl_units *x);

#endif
