#define BYTES 32
#define NEEDS XL_CPU_AVX2
#define SET xl_fold_avx2
#include "cpu/kernel/fold_set.inl"
