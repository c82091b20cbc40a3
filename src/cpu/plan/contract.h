/* src/cpu/plan/contract.h: products and sums that are rounded once. */
#ifndef XL_CPU_CONTRACT_H
#define XL_CPU_CONTRACT_H

#include "ir/ir.h"

/* The attribute `form` of xlane.product_sum: x y + z, x y - z, z - x y. */
typedef enum { XL_PRODUCT_PLUS, XL_PRODUCT_LESS, XL_LESS_PRODUCT, XL_PRODUCT_FORMS } xl_product_form;

/* Rules of the program as it was lowered: the planner, the sizes and the machine have no part in them.
 * An f32 or f64 product of the same region that one addition or subtraction reads, and nothing else, becomes one op
 * with it (xlane.product_sum), which rounds once. Of two products the first.
 * A sum of a sum becomes one sum over the dimensions of both, so that the order in which a program names them does not
 * matter: two such sums of the same numbers are equal, and their difference is 0, as on XLA's CPU. */
void xl_contract(xl_module *m);

#endif
