#define BYTES 32
#define NEEDS XL_CPU_AVX2
#define SET xl_strip_avx2
#include "cpu/tile/strip.inl"
