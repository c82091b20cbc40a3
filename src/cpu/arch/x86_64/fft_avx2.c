#define BYTES 32
#define NEEDS XL_CPU_AVX2
#define SET xl_fft_avx2
#include "cpu/kernel/fft_set.inl"
