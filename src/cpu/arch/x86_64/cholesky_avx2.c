#define BYTES 32
#define WIDE 2
#define MOST 256
#define NEEDS XL_CPU_AVX2
#define SET xl_cholesky_avx2
#include "cpu/kernel/cholesky_set.inl"
