/* src/cpu/kernel/vmath.inl: the functions of vmath.h with the compiler's vectors. Define before including: BYTES (of a
 * vector), NEEDS and SET (the name of the table). */
#include "cpu/kernel/special.h"
#include "cpu/kernel/vmath_lane.inl"
#include "cpu/kernel/vmath_set.h"

/* ---- over arrays; the rest goes through a vector of its own ---- */

/* Four vectors at a time: the chains of one are longer than the machine looks ahead. */
#define FLOATS(f)                                                     \
    static void v_##f(float *y, const float *x, size_t n)             \
    {                                                                 \
        size_t i = 0;                                                 \
        for (; i + 4 * FL <= n; i += 4 * FL) {                        \
            const vf *p = (const vf *)(x + i);                        \
            vf *q = (vf *)(y + i);                                    \
            vf a = f_##f(p[0]), b = f_##f(p[1]), c = f_##f(p[2]), d = f_##f(p[3]); \
            q[0] = a, q[1] = b, q[2] = c, q[3] = d;                   \
        }                                                             \
        for (; i + FL <= n; i += FL)                                  \
            *(vf *)(y + i) = f_##f(*(const vf *)(x + i));             \
        if (i < n) {                                                  \
            vf t = { 0 };                                             \
            memcpy(&t, x + i, (n - i) * 4);                           \
            t = f_##f(t);                                             \
            memcpy(y + i, &t, (n - i) * 4);                           \
        }                                                             \
    }
FLOATS(exp) FLOATS(log) FLOATS(tanh) FLOATS(logistic) FLOATS(erf) FLOATS(sqrt)

INLINE vd widen(const float *x) { return __builtin_convertvector(*(const vh *)x, vd); }
INLINE void narrow(float *y, vd v) { *(vh *)y = __builtin_convertvector(v, vh); }

#define DOUBLES(f)                                                    \
    static void v_##f(float *y, const float *x, size_t n)             \
    {                                                                 \
        size_t i = 0;                                                 \
        for (; i + DL <= n; i += DL)                                  \
            narrow(y + i, d_##f(widen(x + i)));                       \
        if (i < n) {                                                  \
            float t[DL] = { 0 };                                      \
            memcpy(t, x + i, (n - i) * 4);                            \
            narrow(t, d_##f(widen(t)));                               \
            memcpy(y + i, t, (n - i) * 4);                            \
        }                                                             \
    }
DOUBLES(exp2)
DOUBLES(expm1) DOUBLES(log2) DOUBLES(log10) DOUBLES(log1p) DOUBLES(rsqrt) DOUBLES(cbrt) DOUBLES(erfc) DOUBLES(sinh)
    DOUBLES(cosh) DOUBLES(asin) DOUBLES(acos) DOUBLES(atan) DOUBLES(asinh) DOUBLES(acosh) DOUBLES(atanh)

/* Where the lanes' way does not hold (sin, cos and tan past 2^28, the gamma functions left of 0) elements go through
 * the scalar one. */
#define PARTLY(f, holds, scalar)                                      \
    static void v_##f(float *y, const float *x, size_t n)             \
    {                                                                 \
        for (size_t i = 0; i < n; i += DL) {                          \
            float t[DL] = { 0 }, r[DL];                               \
            size_t m = n - i < DL ? n - i : DL;                       \
            memcpy(t, x + i, m * 4);                                  \
            narrow(r, d_##f(widen(t)));                               \
            for (size_t j = 0; j < DL; j++)                           \
                if (!(holds))                                         \
                    r[j] = (float)scalar((double)t[j]);               \
            memcpy(y + i, r, m * 4);                                  \
        }                                                             \
    }
        PARTLY(sin, __builtin_fabsf(t[j]) < 0x1p28f, sin) PARTLY(cos, __builtin_fabsf(t[j]) < 0x1p28f, cos)
            PARTLY(tan, __builtin_fabsf(t[j]) < 0x1p28f, tan) PARTLY(lgamma, t[j] > 0, xl_special_lgamma)
                PARTLY(digamma, t[j] > 0, xl_special_digamma)

#define PAIRS(f)                                                      \
    static void v_##f(float *z, const float *x, const float *y, size_t n) \
    {                                                                 \
        size_t i = 0;                                                 \
        for (; i + DL <= n; i += DL)                                  \
            narrow(z + i, d_##f(widen(x + i), widen(y + i)));         \
        if (i < n) {                                                  \
            float a[DL] = { 0 }, b[DL] = { 0 };                       \
            memcpy(a, x + i, (n - i) * 4);                            \
            memcpy(b, y + i, (n - i) * 4);                            \
            narrow(a, d_##f(widen(a), widen(b)));                     \
            memcpy(z + i, a, (n - i) * 4);                            \
        }                                                             \
    }
                    PAIRS(pow) PAIRS(atan2)

/* A product and a sum. */
#define FUSED(name, T, V, LANES, fma, X, Z)                                                               \
    static void v_##name(T *r, const T *x, const T *y, const T *z, size_t n)                              \
    {                                                                                                     \
        size_t i = 0;                                                                                     \
        for (; i + LANES <= n; i += LANES) {                                                              \
            V a = *(const V *)(x + i), b = *(const V *)(y + i), c = *(const V *)(z + i);                  \
            for (size_t k = 0; k < LANES; k++)                                                            \
                c[k] = fma(X a[k], b[k], Z c[k]);                                                         \
            *(V *)(r + i) = c;                                                                            \
        }                                                                                                 \
        for (; i < n; i++)                                                                                \
            r[i] = fma(X x[i], y[i], Z z[i]);                                                             \
    }
FUSED(plus_f32, float, vf, FL, __builtin_fmaf, +, +)
FUSED(less_f32, float, vf, FL, __builtin_fmaf, +, -)
FUSED(from_f32, float, vf, FL, __builtin_fmaf, -, +)
FUSED(plus_f64, double, vd, DL, __builtin_fma, +, +)
FUSED(less_f64, double, vd, DL, __builtin_fma, +, -)
FUSED(from_f64, double, vd, DL, __builtin_fma, -, +)

const xl_vmath_set SET = { .needs = NEEDS,
                           .product_f32 = { v_plus_f32, v_less_f32, v_from_f32 },
                           .product_f64 = { v_plus_f64, v_less_f64, v_from_f64 },
#define SLOT(f) .f = v_##f,
                           XL_VMATH_UNARY(SLOT) XL_VMATH_BINARY(SLOT) };
