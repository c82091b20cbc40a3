/* src/cpu/kernel/dtype.h
 * Narrow floats: their values, and rounding to them. A type of N bits is stored in the low bits of one byte (or two);
 * the bits above are ignored on reads and written as zero. Conversions round once, to nearest, ties to even, from f32
 * and from f64; NaN, infinity and overflow are handled as in ml_dtypes (and so in NumPy and JAX). Every function is
 * pure; any thread may call it.
 *
 * For each row of XL_NARROW_FLOATS there are
 *   float    xl_f16_load(uint16_t)          exact
 *   uint16_t xl_f16_store(float)            uint16_t xl_f16_store_f64(double)
 * and over n elements, which may not overlap (where the CPU converts f16, a signalling NaN becomes a quiet one),
 *   void xl_f16_to_f32(float *y, const uint16_t *x, size_t n)      also _to_f64
 *   void xl_f16_from_f32(uint16_t *y, const float *x, size_t n)    also _from_f64 */
#ifndef XL_CPU_DTYPE_H
#define XL_CPU_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What the codes beyond the finite numbers mean. */
enum {
    XL_NARROW_IEEE, /* the top exponent holds infinity and NaN; overflow gives infinity */
    XL_NARROW_FN,   /* no infinity, one NaN (all ones) of each sign; overflow gives NaN */
    XL_NARROW_FNUZ, /* no infinity, no -0: that code is the one NaN; overflow gives NaN */
    XL_NARROW_FIN,  /* finite numbers only: overflow saturates, NaN becomes a zero */
    XL_NARROW_EXP   /* an unsigned power of two, code 255 is NaN; zero and the negative are NaN; ties go up */
};

/* The names are MLIR's.      bits, exponent, mantissa, bias, family, stored as */
#define XL_NARROW_FLOATS(F)                              \
    F(f4E2M1FN,       4,  2,  1,   1, FIN,  uint8_t)     \
    F(f6E2M3FN,       6,  2,  3,   1, FIN,  uint8_t)     \
    F(f6E3M2FN,       6,  3,  2,   3, FIN,  uint8_t)     \
    F(f8E3M4,         8,  3,  4,   3, IEEE, uint8_t)     \
    F(f8E4M3,         8,  4,  3,   7, IEEE, uint8_t)     \
    F(f8E4M3FN,       8,  4,  3,   7, FN,   uint8_t)     \
    F(f8E4M3FNUZ,     8,  4,  3,   8, FNUZ, uint8_t)     \
    F(f8E4M3B11FNUZ,  8,  4,  3,  11, FNUZ, uint8_t)     \
    F(f8E5M2,         8,  5,  2,  15, IEEE, uint8_t)     \
    F(f8E5M2FNUZ,     8,  5,  2,  16, FNUZ, uint8_t)     \
    F(f8E8M0FNU,      8,  8,  0, 127, EXP,  uint8_t)     \
    F(f16,           16,  5, 10,  15, IEEE, uint16_t)    \
    F(bf16,          16,  8,  7, 127, IEEE, uint16_t)

static inline uint32_t xl_f32_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float xl_f32_of_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint64_t xl_f64_bits(double f) { uint64_t u; memcpy(&u, &f, 8); return u; }
static inline double xl_f64_of_bits(uint64_t u) { double f; memcpy(&f, &u, 8); return f; }

/* 2^e for an e whose power is a normal number. */
static inline float xl_f32_pow2(int e) { return xl_f32_of_bits((uint32_t)(e + 127) << 23); }

/* Rounds to odd: the result keeps a trace of every bit it lost, so that rounding it again, to a type of at most 22
 * significant bits, is the same as rounding the double once. */
static inline float xl_f32_round_odd(double d)
{
    float f = (float)d;
    uint32_t u = xl_f32_bits(f);
    double back = f;
    uint32_t inexact = (back < d) | (back > d);              /* false for NaN */
    uint32_t away = d < 0 ? back < d : back > d;
    return xl_f32_of_bits((u - away) | inexact);
}

/* Called with constants for everything but the value, these fold into a few selects that the compiler vectorises. */
__attribute__((always_inline)) static inline uint32_t xl_narrow_store(float x, int bits, int man, int bias, int family)
{
    uint32_t u = xl_f32_bits(x), sign = u >> 31, a = u & 0x7fffffff, nan = a > 0x7f800000;
    if (family == XL_NARROW_EXP) {
        uint32_t c = a <= 0x400000 ? 0 : (a + 0x400000) >> 23;   /* subnormals of f32 go up, as in ml_dtypes */
        return (u - 1) >= 0x7f800000 ? 0xff : c;             /* zero, negative, NaN; infinity rounds to 255 by itself */
    }
    int sh = 23 - man, emin = 1 - bias, ebits = bits - 1 - man;
    uint32_t top = 1u << (bits - 1);                         /* one past the largest code without sign */
    uint32_t c = (a + ((a >> sh) & 1) + (1u << (sh - 1)) - 1) >> sh;
    if (bias < 127) {
        uint32_t rebias = (uint32_t)(127 - bias) << man;
        c = c < rebias ? 0 : c - rebias;
        /* below the normal numbers the unit is fixed: let an addition round */
        float magic = xl_f32_pow2(emin - man + 23);
        uint32_t sub = xl_f32_bits(xl_f32_of_bits(a) + magic) - xl_f32_bits(magic);
        c = a < (uint32_t)(emin + 127) << 23 ? sub : c;
    }
    uint32_t over, isnan;
    switch (family) {
    case XL_NARROW_IEEE:
        over = ((1u << ebits) - 1) << man;
        isnan = over | 1u << (man - 1);
        c = c > over ? over : c;
        break;
    case XL_NARROW_FN:
        over = isnan = top - 1;
        c = c > over ? over : c;
        break;
    case XL_NARROW_FNUZ:
        c = c >= top || nan ? top : c;
        return c == 0 || c == top ? c : c | sign << (bits - 1);
    default: /* FIN: ml_dtypes turns NaN into the zero of the other sign */
        over = top - 1;
        c = c > over ? over : c;
        return (nan ? 0 : c) | (sign ^ nan) << (bits - 1);
    }
    return (nan ? isnan : c) | sign << (bits - 1);
}

__attribute__((always_inline)) static inline float xl_narrow_load(uint32_t code, int bits, int man, int bias,
                                                                  int family)
{
    code &= (1u << (bits - 1) << 1) - 1;
    if (family == XL_NARROW_EXP)
        return xl_f32_of_bits(code == 255 ? 0x7fc00000 : code == 0 ? 0x400000 : code << 23);
    uint32_t sign = code >> (bits - 1), c = code & ((1u << (bits - 1)) - 1);
    int ebits = bits - 1 - man;
    uint32_t a = (c << (23 - man)) + ((uint32_t)(127 - bias) << 23);
    if (bias < 127) {                                        /* subnormals of the narrow type are normal in f32 */
        uint32_t sub = xl_f32_bits((float)(int32_t)c * xl_f32_pow2(1 - bias - man));
        a = c < 1u << man ? sub : a;
    }
    uint32_t inf = ((1u << ebits) - 1) << man;
    if (family == XL_NARROW_IEEE)
        a = c >= inf ? 0x7f800000 | (c & ((1u << man) - 1)) << (23 - man) : a;
    else if (family == XL_NARROW_FN)
        a = c == (1u << (bits - 1)) - 1 ? 0x7fc00000 : a;
    else if (family == XL_NARROW_FNUZ)
        a = code == 1u << (bits - 1) ? 0x7fc00000 : a;
    return xl_f32_of_bits(a | sign << 31);
}

#define XL_NARROW_DECLARE(name, bits, ebits, man, bias, family, T)                                                     \
    static inline float xl_##name##_load(T c) { return xl_narrow_load(c, bits, man, bias, XL_NARROW_##family); }       \
    static inline T xl_##name##_store(float x) { return (T)xl_narrow_store(x, bits, man, bias, XL_NARROW_##family); }  \
    static inline T xl_##name##_store_f64(double x) { return xl_##name##_store(xl_f32_round_odd(x)); }                 \
    void xl_##name##_to_f32(float *restrict y, const T *restrict x, size_t n);                                         \
    void xl_##name##_to_f64(double *restrict y, const T *restrict x, size_t n);                                        \
    void xl_##name##_from_f32(T *restrict y, const float *restrict x, size_t n);                                       \
    void xl_##name##_from_f64(T *restrict y, const double *restrict x, size_t n);
XL_NARROW_FLOATS(XL_NARROW_DECLARE)
#undef XL_NARROW_DECLARE
#if defined(__x86_64__)
void xl_f16_to_f32_f16c(float *restrict y, const uint16_t *restrict x, size_t n);
void xl_f16_from_f32_f16c(uint16_t *restrict y, const float *restrict x, size_t n);
#endif

/* Integers of 2 and 4 bits, one to a byte. Writing keeps the low bits (numbers wrap). */
static inline int8_t xl_i4_load(uint8_t c) { return (int8_t)((int8_t)((c & 15) ^ 8) - 8); }
static inline int8_t xl_i2_load(uint8_t c) { return (int8_t)((int8_t)((c & 3) ^ 2) - 2); }
static inline uint8_t xl_ui4_load(uint8_t c) { return c & 15; }
static inline uint8_t xl_ui2_load(uint8_t c) { return c & 3; }
static inline uint8_t xl_i4_store(int64_t v) { return (uint8_t)v & 15; }
static inline uint8_t xl_i2_store(int64_t v) { return (uint8_t)v & 3; }

/* Packed forms, first element in the lowest bits: `bits` is 2, 4 or 6 (6 packs four into three bytes). n elements on
 * the unpacked side, ceil(n * bits / 8) bytes on the packed one. */
void xl_bits_pack(uint8_t *restrict packed, const uint8_t *restrict x, size_t n, int bits);
void xl_bits_unpack(uint8_t *restrict y, const uint8_t *restrict packed, size_t n, int bits);

#endif
