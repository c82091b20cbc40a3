/* src/cpu/plan/place.h: assigns offsets in one allocation to a plan's temporaries; those that live at the same time do
 * not overlap. */
#ifndef XL_CPU_PLACE_H
#define XL_CPU_PLACE_H

#include "cpu/plan/plan.h"

/* Sets host and offset of every TEMP buffer and plan->temp_bytes, once more if called again. npos: positions run from
 * -1 to npos. */
void xl_place_buffers(xl_arena *a, xl_plan *plan, int64_t npos);

#endif
