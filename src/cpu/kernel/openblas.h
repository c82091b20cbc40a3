/* src/cpu/kernel/openblas.h
 * LAPACK and BLAS from OpenBLAS, loaded when the first program asks for a decomposition and kept until the process
 * ends. The library is that of XLANE_LAPACK, or libscipy_openblas.so beside ours (the bundle and the wheel have it), or
 * the system's libopenblas.so.0. Its symbols stay out of the process's (RTLD_LOCAL), and it uses the calling thread
 * alone. Any thread. */
#ifndef XL_CPU_OPENBLAS_H
#define XL_CPU_OPENBLAS_H

#include "base/error.h"

typedef void xl_openblas_fn(void);                         /* its real type is the routine's */
/* The routine `<type><name>`: type is one of s, d, c, z. The error says what to install. */
xl_error *xl_openblas_find(char type, const char *name, xl_openblas_fn **out) XL_MUST_USE;

#endif
