/* src/ir/text/print_part.h: the pieces that print.c and print_attr.c share. */
#ifndef XL_IR_PRINT_PART_H
#define XL_IR_PRINT_PART_H

#include "ir/ir.h"

void xl_print_string(xl_buf *b, xl_str s);                 /* quoted, as MLIR escapes */
void xl_print_symbol(xl_buf *b, xl_str s);                 /* @name or @"name" */
void xl_print_types(xl_buf *b, const xl_type *const *out, uint32_t n); /* after ->: T or (T, T) */
void xl_print_ints(xl_buf *b, xl_dims v);                  /* [1, 2] */
void xl_print_dense(xl_buf *b, const xl_attr *a, bool shorten);
void xl_print_mesh(xl_buf *b, const xl_mesh *m);           /* <["x"=2]> */
void xl_print_sharding(xl_buf *b, const xl_sharding *s);   /* <@mesh, [{"x"}]> */
void xl_print_shardings(xl_buf *b, const xl_attr *a);      /* [<...>, <...>] */
void xl_print_pairs(xl_buf *b, const xl_attr *dict);       /* k = v, ... without braces */

#endif
