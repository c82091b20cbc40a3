#define BYTES 32
#define ROWS 6
#define NEEDS XL_CPU_AVX2
#define SET xl_conv_avx2
#include "cpu/kernel/conv_line.inl"
