/* The generic kernel with products fused with their sums (gemm_fma.c). */
#define BYTES 16
#define ROWS 3
#define NEEDS XL_CPU_FMA
#define SET xl_conv_fma
#include "cpu/kernel/conv_line.inl"
