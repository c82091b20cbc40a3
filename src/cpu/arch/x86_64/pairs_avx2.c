#define BYTES 32
#define NEEDS XL_CPU_AVX2
#define SET xl_pairs_avx2
#include "cpu/kernel/pairs.inl"
