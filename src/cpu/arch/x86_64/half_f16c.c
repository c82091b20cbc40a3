/* f16 by the CPU's conversions, eight at a time. A NaN is stored as the one that kernel/dtype.h has for it. */
#include <immintrin.h>

#include "cpu/kernel/dtype.h"

void xl_f16_to_f32_f16c(float *restrict y, const uint16_t *restrict x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
    for (; i < n; i++)
        y[i] = xl_f16_load(x[i]);
}

void xl_f16_from_f32_f16c(uint16_t *restrict y, const float *restrict x, size_t n)
{
    const __m256 one = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), sign = _mm256_set1_ps(-0.0f);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i), nan = _mm256_or_ps(_mm256_and_ps(v, sign), one);
        v = _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        _mm_storeu_si128((__m128i *)(void *)(y + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    for (; i < n; i++)
        y[i] = xl_f16_store(x[i]);
}
