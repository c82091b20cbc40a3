/* src/ir/hash.h
 * The canonical hash of a program: unchanged by locations, names of values, functions and module, the order of functions, of
 * attributes, and by jax.result_info; changed by everything that changes the code, the order of ops included. */
#ifndef XL_IR_HASH_H
#define XL_IR_HASH_H

#include "ir/ir.h"

typedef struct { uint8_t b[32]; } xl_digest;

xl_digest xl_module_hash(const xl_module *m);
void xl_digest_hex(const xl_digest *d, char out[65]);
/* A number per op (its code, attributes, operand types and result types; not its position): equal for ops that do the same. */
uint64_t xl_op_hash(const xl_func *f, const xl_op *op);

#endif
