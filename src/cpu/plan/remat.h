/* src/cpu/plan/remat.h: rematerialisation: cheap values are computed again for late readers instead of being kept. */
#ifndef XL_CPU_REMAT_H
#define XL_CPU_REMAT_H

#include "cpu/plan/units.h"

/* Copies of ops join the groups that read their results. True if anything changed: then `need` and the units must be
 * computed again. The planner's arrays per value grow. */
bool xl_remat(xl_units *x);

#endif
