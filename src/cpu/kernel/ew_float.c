/* Elementwise functions over f32 and f64; narrower floats are computed in f32. */
#include <math.h>

#include "cpu/kernel/ew_loop.h"
#include "cpu/kernel/special.h"
#include "cpu/kernel/vmath.h"

#define T float
#define M(g) g##f
#define NAME(f) f##_f32
#include "cpu/kernel/ew_float.inl"

#define T double
#define M(g) g
#define NAME(f) f##_f64
#include "cpu/kernel/ew_float.inl"
