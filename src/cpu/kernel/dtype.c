#include "cpu/kernel/dtype.h"

#define BULK(name, bits, ebits, man, bias, family, T)                                  \
    void xl_##name##_to_f32(float *restrict y, const T *restrict x, size_t n)          \
    {                                                                                  \
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
