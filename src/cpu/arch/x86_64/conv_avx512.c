#define BYTES 64
#define ROWS 12
#define WIDE_ROWS 8
#define NEEDS (XL_CPU_AVX2 | XL_CPU_AVX512)
#define SET xl_conv_avx512
#include "cpu/kernel/conv_line.inl"
