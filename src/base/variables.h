/* src/base/variables.h
 * What an environment variable XLANE_* may be (base/variables.def; the device checks its own XLANE_CPU_*).
 * Any thread. */
#ifndef XL_BASE_VARIABLES_H
#define XL_BASE_VARIABLES_H

#include "base/error.h"

/* The first variable with a value that it cannot have, in words that name those it can. Empty ones are not set. */
xl_error *xl_variables_check(void) XL_MUST_USE;

#endif
