/* src/cpu/plan/lower.h: prepares a module for planning: inlines calls and composites (composites with a known name
 * become the op of that name), splices in regions that only group ops, moves gathers before the elementwise ops whose
 * results they read, and drops ops whose results are unused. */
#ifndef XL_CPU_LOWER_H
#define XL_CPU_LOWER_H

#include "ir/ir.h"

xl_error *xl_lower(xl_module *m, bool keep_manual) XL_MUST_USE;

/* chlo.scan, or a composite of that name with its body as a region, as a loop appended to `to`; its results go to out.
 * *done is false, and nothing was made, where it does not have the form of one. */
xl_error *xl_lower_scan(xl_func *f, xl_region *to, const xl_op *op, xl_value *out, bool *done) XL_MUST_USE;

/* The collective that a custom call of JAX's starts, not appended; its result stands for the call's. NULL: the call is
 * none of them. *done: it is the one that waits, and its result is its operand. */
xl_error *xl_lower_async(xl_func *f, const xl_op *op, xl_op **out, bool *done) XL_MUST_USE;

#endif
