/* Elementwise functions over complex numbers, by way of C's own. */
#include <complex.h>
#include <math.h>

#include "cpu/ew.h"

xl_ew_fn *xl_ew_compare_c64(int direction);
xl_ew_fn *xl_ew_compare_c128(int direction);

#define T float
#define C float complex
#define M(g) g##f
#define R(g) g##f
#define NAME(f) f##_c64
#include "cpu/kernel/ew_complex.inl"

#define T double
#define C double complex
#define M(g) g
#define R(g) g
#define NAME(f) f##_c128
#include "cpu/kernel/ew_complex.inl"
