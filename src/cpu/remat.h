/* src/cpu/remat.h: cheap values are made again where they are read late, instead of being kept until then. */
#ifndef XL_CPU_REMAT_H
#define XL_CPU_REMAT_H

#include "cpu/fuse.h"

/* After grouping, before numbering: r is a function's body, its groups in one piece each, `need` filled. Copies of ops join the
 * groups that read their results. True if anything changed: then `need` is to be found anew. The planner's arrays per value grow. */
bool xl_remat(xl_planner *p, xl_region *r);

#endif
