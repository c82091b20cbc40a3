/* src/cpu/kernel/fft_set.inl: the transforms of one instruction set. Include after defining NEEDS and SET. */
#include <string.h>

#include "cpu/arch/feature.h"
#include "cpu/kernel/fft.h"

#define T float
#define NAME(f) f##_f32
#include "cpu/kernel/fft.inl"
#define T double
#define NAME(f) f##_f64
#include "cpu/kernel/fft.inl"

extern const xl_fft_set SET;
const xl_fft_set SET = { .needs = NEEDS, .f32 = lines_f32, .f64 = lines_f64 };
