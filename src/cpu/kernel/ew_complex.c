/* Elementwise functions over complex numbers, using C's own. Both types are computed in double, so the parts of a
 * complex of floats are exact to the last place or nearly so. */
#include <complex.h>
#include <math.h>

#include "cpu/kernel/ew_loop.h"

xl_ew_fn *xl_ew_compare_c64(int direction);
xl_ew_fn *xl_ew_compare_c128(int direction);

#define T float
#define C float complex
#define M(g) g
#define R(g) g
#define NAME(f) f##_c64
#include "cpu/kernel/ew_complex.inl"

#define T double
#define C double complex
#define M(g) g
#define R(g) g
#define NAME(f) f##_c128
#include "cpu/kernel/ew_complex.inl"
