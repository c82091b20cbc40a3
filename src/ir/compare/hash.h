/* src/ir/compare/hash.h
 * The canonical hash of a program: unchanged by locations, names of values, functions and module, the order of
 * functions, of attributes, by where constants stand, by functions that the entry does not reach, and by
 * jax.result_info; changed by everything that changes the code, the order of ops included. */
#ifndef XL_IR_HASH_H
#define XL_IR_HASH_H

#include "base/hash.h"
#include "ir/ir.h"

/* If memory runs out, frees its own and jumps to the module's `arena.oom` (see arena.h). */
xl_digest xl_module_hash(const xl_module *m);
/* A number per op (its code, attributes, operand and result types, regions; not its position): equal for ops that do
 * the same.
 * A function that it calls counts by its type only. For tables in memory: equal numbers are a hint, not a proof. */
uint64_t xl_op_hash(const xl_func *f, const xl_op *op);
/* Of an attribute, without the names of symbols. */
uint64_t xl_attr_hash(const xl_module *m, const xl_attr *a);

#endif
