/* The generic kernels with products fused with their sums, as all other instruction sets have them: so the plain plan's
 * f32 products have the planned one's bits wherever the two add in the same order. */
#define BYTES 16
#define NEEDS XL_CPU_FMA
#define F32_MR 4
#define F32_NV 2
#define F64_MR 4
#define F64_NV 2
#define F32_NAME "fma 4x8 f32"
#define F64_NAME "fma 4x4 f64"
#define ISA(f) xl_gemm_fma_##f
#include "cpu/kernel/gemm_set.inl"
