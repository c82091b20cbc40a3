#define BYTES 64
#define NEEDS (XL_CPU_AVX2 | XL_CPU_AVX512)
#define SET xl_fold_avx512
#include "cpu/kernel/fold_set.inl"
