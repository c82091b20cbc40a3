/* src/cpu/plan/timing.h
 * Profiles plans: with XLANE_CPU_PROFILE=1 the time and count of each kind of step is printed to stderr when the
 * process ends. A loop's time includes its steps. Any thread. */
#ifndef XL_CPU_TIMING_H
#define XL_CPU_TIMING_H

#include "cpu/plan/plan.h"

bool xl_profile_on(void);
xl_error *xl_profile_run(const xl_step *s, xl_frame *f) XL_MUST_USE;

#endif
