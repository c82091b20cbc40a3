/* src/lane/weak.h
 * Arguments of a weak type: to JAX a Python number, and what is computed from such alone, has a type that gives way to
 * the type of what it meets. An argument whose type became weak, or is no longer, has its function compiled again. JAX
 * tells the guard which arguments those are (lane/call.h); where it did not, as of a run before, the conversions in the
 * two programs tell. */
#ifndef XL_LANE_WEAK_H
#define XL_LANE_WEAK_H

#include "lane/contract.h"

/* Adds a difference XL_DIFF_WEAK for each argument of which that is so, behind those of other arguments, and marks what
 * follows from it: conversions of what depends on such an argument or meets it. same_work: the programs have as many
 * ops of each kind, but for those that only change a form. */
void xl_weak_find(xl_arena *a, const xl_module *before, const xl_module *after, bool same_work, xl_verdict *v);

#endif
