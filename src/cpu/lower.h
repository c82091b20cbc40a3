/* src/cpu/lower.h: what a module goes through before it is planned: every call and composite inlined (composites that we know
 * by name become the op of that name), regions that only group spliced in, and ops whose results nobody reads dropped. */
#ifndef XL_CPU_LOWER_H
#define XL_CPU_LOWER_H

#include "ir/ir.h"

xl_error *xl_lower(xl_module *m, bool keep_manual) XL_MUST_USE;

#endif
