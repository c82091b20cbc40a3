/* src/cpu/plan/fuse.h
 * Finds the groups (group.h) of a program. */
#ifndef XL_CPU_FUSE_H
#define XL_CPU_FUSE_H

#include "cpu/plan/group.h"

/* Finds groups in r and the regions inside it, brings the ops of each group together, and says which values
 * must exist. */
xl_error *xl_fuse(xl_planner *p, xl_region *r) XL_MUST_USE;

#endif
