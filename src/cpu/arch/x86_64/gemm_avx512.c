/* AVX-512: 14x32 f32 and 14x16 f64, 28 sums in 32 registers. */
#define BYTES 64
#define NEEDS (XL_CPU_AVX2 | XL_CPU_AVX512)
#define F32_MR 14
#define F32_NV 2
#define F64_MR 14
#define F64_NV 2
#define F32_NAME "avx512 14x32 f32"
#define F64_NAME "avx512 14x16 f64"
#define ISA(f) xl_gemm_avx512_##f
#include "cpu/kernel/gemm_set.inl"
