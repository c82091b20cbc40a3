/* src/ir/scalar.h
 * One number of any element type, to and from the bytes that constants hold. */
#ifndef XL_IR_SCALAR_H
#define XL_IR_SCALAR_H

#include "ir/ir.h"

/* Writes xl_dtype_bytes(d) bytes. Floats are rounded to nearest even; beyond the range they become infinity, or NaN or
 * the largest where the type has none. Integers are truncated towards zero and saturate. A complex gets the imaginary
 * part 0. */
void xl_scalar_put(xl_dtype d, double v, void *out);
void xl_scalar_put_int(xl_dtype d, int64_t v,
                       void *out); /* integers and booleans, modulo their width; floats rounded */
/* The value as a double; 64-bit integers may lose bits (see xl_dense_int). The real part of a complex. */
double xl_scalar_get(xl_dtype d, const void *p);

#endif
