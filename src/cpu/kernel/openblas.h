/* src/cpu/kernel/openblas.h
 * LAPACK and BLAS from OpenBLAS, loaded when the first program needs a decomposition and kept until the process ends.
 * The library is XLANE_LAPACK, or else libscipy_openblas.so beside ours (the bundle and the wheel have it), or else the
 * system's libopenblas.so.0. Its symbols are not visible to the process (RTLD_LOCAL), and it uses only the calling
 * thread. Any thread. */
#ifndef XL_CPU_OPENBLAS_H
#define XL_CPU_OPENBLAS_H

#include "base/error.h"

typedef void xl_openblas_fn(void);                         /* its real type is the routine's */
/* The routine `<type><name>`: type is one of s, d, c, z. The error says what to install. */
xl_error *xl_openblas_find(char type, const char *name, xl_openblas_fn **out) XL_MUST_USE;

#endif
