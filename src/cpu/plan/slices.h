/* src/cpu/plan/slices.h: steps that follow each other and treat the members of one batch apart, as the products, the
 * softmax and the gradients of attention do, become one step that is done slice by slice: a thread takes some members
 * through all of them, so what they pass on stays in its cache, and threads meet once. What a step computes for a
 * member is the same either way, bit for bit. */
#ifndef XL_CPU_SLICES_H
#define XL_CPU_SLICES_H

#include "cpu/plan/planner.h"

typedef struct xl_slice_runs xl_slice_runs;

/* Which steps to join. All steps have been made. */
xl_slice_runs *xl_slices_find(xl_planner *p);
/* Places the plan's temporaries (place.h), those of a run apart from each other if that takes no more memory; otherwise
 * runs are shortened to steps that do not write over what another one of them reads. */
void xl_slices_place(xl_planner *p, xl_slice_runs *runs, int64_t npos);
/* Makes each run one step. */
void xl_slices_join(xl_planner *p, const xl_slice_runs *runs);

#endif
