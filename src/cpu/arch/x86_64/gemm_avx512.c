/* AVX-512: 14x32 f32 and 14x16 f64, 28 sums in 32 registers. */
#include "cpu/arch/x86_64/transpose.h"

/* f32 that lies along k, 16 steps of all rows at a time; false where that is not the case. */
static bool pack_rows(float *dst, const float *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k)
{
    enum { R = 14 };
    if (cs != 1 || rows != R)
        return false;
    for (size_t p = 0; p < k; p += 16, src += 16, dst += 16 * R) {
        size_t n = k - p < 16 ? k - p : 16;
        __mmask16 steps = (__mmask16)((1u << n) - 1);
        __m512i x[16];
        UNROLL
        for (int i = 0; i < R; i++)
            x[i] = _mm512_maskz_loadu_epi32(steps, src + i * rs);
        x[14] = x[15] = _mm512_setzero_si512();
        xl_transpose16(x);
        UNROLL
        for (size_t q = 0; q < 16; q++)
            if (q < n)
                _mm512_mask_storeu_epi32(dst + q * R, (1u << R) - 1, x[q]);
    }
    return true;
}

#define BYTES 64
#define NEEDS (XL_CPU_AVX2 | XL_CPU_AVX512)
#define F32_MR 14
#define F32_NV 2
#define F32_PACK_A pack_rows
#define F64_MR 14
#define F64_NV 2
#define F32_NAME "avx512 14x32 f32"
#define F64_NAME "avx512 14x16 f64"
#define ISA(f) xl_gemm_avx512_##f
#include "cpu/kernel/gemm_set.inl"
