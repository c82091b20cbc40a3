/* src/ir/verify.h
 * What a program must satisfy, and the types that follow from it. A message names the op, the operand, what was
 * expected, what was found, and the source line. */
#ifndef XL_IR_VERIFY_H
#define XL_IR_VERIFY_H

#include "ir/ir.h"

/* The result types of an op of this code with these operands, attributes and regions: what the `types` column of
 * ops.def says.
 * Fills out (nout of them). Where the operands do not determine a result (constant, iota, convert, custom_call, ...)
 * the type that the op already has, given in out[], is checked and kept. */
xl_error *xl_infer(xl_func *f, const xl_op *op, const xl_type **out, uint32_t nout) XL_MUST_USE;
xl_error *xl_verify_op(xl_func *f, const xl_op *op) XL_MUST_USE;
xl_error *xl_verify(xl_module *m) XL_MUST_USE;

#endif
