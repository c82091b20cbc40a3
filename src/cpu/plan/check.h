/* src/cpu/plan/check.h
 * Proves that a finished plan computes its program. It uses only the steps and the program as it was before planning,
 * not the planner's notes on live ranges, uses and offsets. It runs if XLANE_CPU_CHECK=1, and in builds with a
 * sanitizer or without optimisation.
 * A plan that fails is an internal error that names the two ops. How it works: check.c. */
#ifndef XL_CPU_CHECK_H
#define XL_CPU_CHECK_H

#include "cpu/plan/planner.h"

typedef struct xl_check xl_check;

/* Notes the program before the planner changes it. NULL if plans are not to be checked. */
xl_check *xl_check_begin(xl_planner *p);
/* c may be NULL. */
xl_error *xl_check_plan(xl_check *c) XL_MUST_USE;

extern void (*xl_check_hook)(xl_planner *p);               /* for its test: changes the plan before it is looked at */

#endif
