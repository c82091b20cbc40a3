/* AVX2 with FMA: 6x16 f32 and 6x8 f64, 12 sums in 16 registers. */
#define BYTES 32
#define NEEDS XL_CPU_AVX2
#define F32_MR 6
#define F32_NV 2
#define F64_MR 6
#define F64_NV 2
#define F32_NAME "avx2 6x16 f32"
#define F64_NAME "avx2 6x8 f64"
#define ISA(f) xl_gemm_avx2_##f
#include "cpu/kernel/gemm_set.inl"
