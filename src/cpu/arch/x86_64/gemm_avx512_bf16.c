/* AVX512-BF16: VDPBF16PS adds two products to each of 16 sums. The tile is 14x32, two steps of k at a time. */
#include <immintrin.h>
#include <string.h>

#include "cpu/kernel/dtype.h"
#include "cpu/run/feature.h"
#include "cpu/kernel/gemm_set.h"

static void dpbf16_14x32(size_t k, const void *av, const void *bv, void *cv, ptrdiff_t ldc, bool accumulate)
{
    const uint16_t *a = av, *b = bv;
    float *c = cv;
    __m512 acc[14][2];
    UNROLL
    for (int i = 0; i < 14; i++)
        acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    for (size_t p = 0; p < k; p += 2, a += 28, b += 64) {
        __m512bh x0 = (__m512bh)_mm512_loadu_si512(b), x1 = (__m512bh)_mm512_loadu_si512(b + 32);
        UNROLL
        for (int i = 0; i < 14; i++) {
            int pair;
            memcpy(&pair, a + 2 * i, 4);
            __m512bh y = (__m512bh)_mm512_set1_epi32(pair);
            acc[i][0] = _mm512_dpbf16_ps(acc[i][0], y, x0);
            acc[i][1] = _mm512_dpbf16_ps(acc[i][1], y, x1);
        }
    }
    UNROLL
    for (int i = 0; i < 14; i++)
        UNROLL
        for (int j = 0; j < 2; j++) {
            float *y = c + i * ldc + 16 * j;
            _mm512_storeu_ps(y, accumulate ? _mm512_add_ps(_mm512_loadu_ps(y), acc[i][j]) : acc[i][j]);
        }
}

#define P uint16_t
#define MR 14
#define NR 32
#define KSTEP 2
#define S uint16_t
#define LOAD(s) (s)
#define NAME(f) f##_bf16
#include "cpu/kernel/gemm_pack.inl"

const xl_gemm_kernel xl_gemm_avx512_bf16 = {
    .name = "avx512 14x32 bf16",
    .needs = XL_CPU_AVX2 | XL_CPU_AVX512 | XL_CPU_AVX512_BF16,
    .packed = XL_GEMM_BF16,
    .size = 2,
    .mr = MR,
    .nr = NR,
    .kr = KSTEP,
    .kc = 1024,
    .tile_m = 128,
    .tile_n = 252,
    .speed = 1,
    .tile = dpbf16_14x32,
    .pack_a = { [XL_GEMM_BF16] = pack_a_bf16 },
    .pack_b = { [XL_GEMM_BF16] = pack_b_bf16 },
};
