#include "cpu/kernel/dtype.h"

#include <stdbool.h>

#include "cpu/run/feature.h"

/* f16 and f32 by the CPU's own conversions. False where it has none. */
static inline bool f16_to_f32(float *restrict y, const uint16_t *restrict x, size_t n)
{
#if defined(__x86_64__)
    if (!(xl_cpu_features() & XL_CPU_AVX2))
        return false;
    xl_f16_to_f32_f16c(y, x, n);
    return true;
#elif defined(__aarch64__)
    const __fp16 *half = (const void *)x;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)half[i];
    return true;
#else
    return (void)y, (void)x, (void)n, false;
#endif
}
static inline bool f16_from_f32(uint16_t *restrict y, const float *restrict x, size_t n)
{
#if defined(__x86_64__)
    if (!(xl_cpu_features() & XL_CPU_AVX2))
        return false;
    xl_f16_from_f32_f16c(y, x, n);
    return true;
#elif defined(__aarch64__)
    for (size_t i = 0; i < n; i++) {
        __fp16 half = (__fp16)x[i];
        uint16_t u;
        memcpy(&u, &half, sizeof u);
        y[i] = x[i] != x[i] ? (uint16_t)(xl_f32_bits(x[i]) >> 31 << 15 | 0x7e00) : u;
    }
    return true;
#else
    return (void)y, (void)x, (void)n, false;
#endif
}

#define IS_F16(ebits, man) ((ebits) == 5 && (man) == 10)
#define BULK(name, bits, ebits, man, bias, family, T)                                  \
    void xl_##name##_to_f32(float *restrict y, const T *restrict x, size_t n)          \
    {                                                                                  \
        if (IS_F16(ebits, man) && f16_to_f32(y, (const void *)x, n))                   \
            return;                                                                    \
        for (size_t i = 0; i < n; i++)                                                 \
            y[i] = xl_##name##_load(x[i]);                                             \
    }                                                                                  \
    void xl_##name##_to_f64(double *restrict y, const T *restrict x, size_t n)         \
    {                                                                                  \
        for (size_t i = 0; i < n; i++)                                                 \
            y[i] = (double)xl_##name##_load(x[i]);                                     \
    }                                                                                  \
    void xl_##name##_from_f32(T *restrict y, const float *restrict x, size_t n)        \
    {                                                                                  \
        if (IS_F16(ebits, man) && f16_from_f32((void *)y, x, n))                       \
            return;                                                                    \
        for (size_t i = 0; i < n; i++)                                                 \
            y[i] = xl_##name##_store(x[i]);                                            \
    }                                                                                  \
    void xl_##name##_from_f64(T *restrict y, const double *restrict x, size_t n)       \
    {                                                                                  \
        for (size_t i = 0; i < n; i++)                                                 \
            y[i] = xl_##name##_store_f64(x[i]);                                        \
    }
XL_NARROW_FLOATS(BULK)

void xl_bits_pack(uint8_t *restrict packed, const uint8_t *restrict x, size_t n, int bits)
{
    uint32_t acc = 0, mask = (1u << bits) - 1;
    int have = 0;
    for (size_t i = 0; i < n; i++) {
        acc |= (x[i] & mask) << have;
        for (have += bits; have >= 8; have -= 8, acc >>= 8)
            *packed++ = (uint8_t)acc;
    }
    if (have)
        *packed = (uint8_t)acc;
}

void xl_bits_unpack(uint8_t *restrict y, const uint8_t *restrict packed, size_t n, int bits)
{
    uint32_t acc = 0, mask = (1u << bits) - 1;
    int have = 0;
    for (size_t i = 0; i < n; i++) {
        if (have < bits) {
            acc |= (uint32_t)*packed++ << have;
            have += 8;
        }
        y[i] = (uint8_t)(acc & mask);
        acc >>= bits;
        have -= bits;
    }
}
