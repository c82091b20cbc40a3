/* src/cpu/plan/remat.h: cheap values are made again where they are read late, instead of being kept until then. */
#ifndef XL_CPU_REMAT_H
#define XL_CPU_REMAT_H

#include "cpu/plan/units.h"

/* Copies of ops join the groups that read their results. True if anything changed: then `need` and the units are to be
 * found anew. The planner's arrays per value grow. */
bool xl_remat(xl_units *x);

#endif
