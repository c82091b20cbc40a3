/* src/cpu/plan/place.h: offsets for a plan's temporaries in one piece of memory, such that no two that live at once
 * overlap. */
#ifndef XL_CPU_PLACE_H
#define XL_CPU_PLACE_H

#include "cpu/plan/plan.h"

/* Sets offset of every TEMP buffer and plan->temp_bytes. npos: positions run from -1 to npos. */
void xl_place_buffers(xl_arena *a, xl_plan *plan, int64_t npos);

#endif
