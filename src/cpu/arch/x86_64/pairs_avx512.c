#define BYTES 64
#define NEEDS (XL_CPU_AVX2 | XL_CPU_AVX512)
#define SET xl_pairs_avx512
#include "cpu/kernel/pairs.inl"
