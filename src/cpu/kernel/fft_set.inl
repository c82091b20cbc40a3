/* src/cpu/kernel/fft_set.inl: the transforms of one instruction set. Define before including: BYTES (of a vector),
 * NEEDS and SET. */
#include <string.h>

#include "cpu/run/feature.h"
#include "cpu/kernel/fft.h"

/* Elements of two vectors of so many: by turns, the lower halves or the higher ones; every other one; fours of them by
 * turns. */
#define LOW_2 0, 2
#define HIGH_2 1, 3
#define EVEN_2 0, 2
#define ODD_2 1, 3
#define LOW_4 0, 4, 1, 5
#define HIGH_4 2, 6, 3, 7
#define EVEN_4 0, 2, 4, 6
#define ODD_4 1, 3, 5, 7
#define LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_8 1, 3, 5, 7, 9, 11, 13, 15
#define LOW4_8 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH4_8 4, 5, 6, 7, 12, 13, 14, 15
#define LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define EVEN_16 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD_16 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define LOW4_16 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23
#define HIGH4_16 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define PICK(a, b, which) __builtin_shufflevector(a, b, PASTE(which, W))

#define T float
#define NAME(f) f##_f32
#if BYTES == 64
#define W 16
#elif BYTES == 32
#define W 8
#else
#define W 4
#endif
#include "cpu/kernel/fft.inl"
#define T double
#define NAME(f) f##_f64
#if BYTES == 64
#define W 8
#elif BYTES == 32
#define W 4
#else
#define W 2
#endif
#include "cpu/kernel/fft.inl"

extern const xl_fft_set SET;
const xl_fft_set SET = { .needs = NEEDS, .f32 = lines_f32, .f64 = lines_f64 };
