#define BYTES 64
#define WIDE 4
#define MOST 256
#define NEEDS (XL_CPU_AVX2 | XL_CPU_AVX512)
#define SET xl_cholesky_avx512
#include "cpu/kernel/cholesky_set.inl"
