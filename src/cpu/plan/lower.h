/* src/cpu/plan/lower.h: what a module goes through before it is planned: every call and composite inlined (composites
 * that we know by name become the op of that name), regions that only group spliced in, elements gathered before the
 * elementwise ops that they come from, and ops whose results nobody reads dropped. */
#ifndef XL_CPU_LOWER_H
#define XL_CPU_LOWER_H

#include "ir/ir.h"

xl_error *xl_lower(xl_module *m, bool keep_manual) XL_MUST_USE;

/* chlo.scan, or a composite of that name with its body as a region, as a loop appended to `to`; its results go to out.
 * *done is false, and nothing was made, where it does not have the form of one. */
xl_error *xl_lower_scan(xl_func *f, xl_region *to, const xl_op *op, xl_value *out, bool *done) XL_MUST_USE;

#endif
