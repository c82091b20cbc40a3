/* src/cpu/plan/timing.h
 * Where a plan spends its time: XLANE_CPU_PROFILE=1 prints, when the process ends, the time and number of each kind of
 * step to stderr. A loop's time holds that of the steps inside it. Any thread. */
#ifndef XL_CPU_TIMING_H
#define XL_CPU_TIMING_H

#include "cpu/plan/plan.h"

bool xl_profile_on(void);
xl_error *xl_profile_run(const xl_step *s, xl_frame *f) XL_MUST_USE;

#endif
