/* src/base/variables.h
 * What an environment variable XLANE_* may be (base/variables.def; the device checks its own XLANE_CPU_*).
 * Any thread. */
#ifndef XL_BASE_VARIABLES_H
#define XL_BASE_VARIABLES_H

#include "base/str.h"

/* The first variable with a value that it cannot have, in words that name those it can. Empty ones are not set. */
xl_error *xl_variables_check(void) XL_MUST_USE;

/* NULL: there is a variable of that name; else the name that was probably meant, or "" where none is near. */
const char *xl_variables_near(xl_str name);
/* A line for each XLANE_* of the environment that is not known. */
void xl_variables_unknown(xl_buf *out);

#endif
