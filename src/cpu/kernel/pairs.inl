/* src/cpu/kernel/pairs.inl: pairs.h with the compiler's vectors. Define before including: BYTES (of a vector), NEEDS
 * and SET. The file is compiled without contraction: products are rounded. */
#include "cpu/kernel/pairs.h"

#include "cpu/run/feature.h"

typedef float vec_float __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef double vec_double __attribute__((vector_size(BYTES), aligned(8), may_alias));

/* `count` vectors side by side, or one number. */
#define SOME(name, T, ACC, VEC, lanes)                                                                                 \
    __attribute__((always_inline)) static inline void name(const int count, ACC *re, ACC *im, const T *u,              \
                                                           const int64_t *at, const ACC *v, size_t ld, size_t n)       \
    {                                                                                                                  \
        VEC r[4], i[4];                                                                                                \
        _Pragma("GCC unroll 4")                                                                                        \
        for (int j = 0; j < count; j++)                                                                                \
            r[j] = i[j] = (VEC){ 0 };                                                                                  \
        for (size_t k = 0; k < n; k++, v += 2 * ld) {                                                                  \
            ACC a = u[2 * at[k]], b = u[2 * at[k] + 1];                                                                \
            _Pragma("GCC unroll 4")                                                                                    \
            for (int j = 0; j < count; j++) {                                                                          \
                VEC x = *(const VEC *)(v + j * (lanes)), y = *(const VEC *)(v + ld + j * (lanes));                     \
                r[j] += a * x - b * y;                                                                                 \
                i[j] += a * y + b * x;                                                                                 \
            }                                                                                                          \
        }                                                                                                              \
        _Pragma("GCC unroll 4")                                                                                        \
        for (int j = 0; j < count; j++)                                                                                \
            *(VEC *)(re + j * (lanes)) = r[j], *(VEC *)(im + j * (lanes)) = i[j];                                      \
    }
#define PAIRS(name, T, ACC)                                                                                            \
    enum { LANES_##name = BYTES / sizeof(ACC) };                                                                       \
    SOME(some_##name, T, ACC, vec_##ACC, LANES_##name)                                                                 \
    SOME(one_##name, T, ACC, ACC, 1)                                                                                   \
    static void sum_##name(ACC *re, ACC *im, const T *u, const int64_t *at, const ACC *v, size_t ld, size_t n,         \
                           size_t m)                                                                                   \
    {                                                                                                                  \
        size_t j = 0;                                                                                                  \
        for (; j + 4 * LANES_##name <= m; j += 4 * LANES_##name)                                                       \
            some_##name(4, re + j, im + j, u, at, v + j, ld, n);                                                       \
        for (; j + LANES_##name <= m; j += LANES_##name)                                                               \
            some_##name(1, re + j, im + j, u, at, v + j, ld, n);                                                       \
        for (; j < m; j++)                                                                                             \
            one_##name(1, re + j, im + j, u, at, v + j, ld, n);                                                        \
    }
PAIRS(few, float, float)
PAIRS(c64, float, double)
PAIRS(c128, double, double)
#undef PAIRS

extern const xl_pairs_set SET;
const xl_pairs_set SET = { .needs = NEEDS, .few = sum_few, .c64 = sum_c64, .c128 = sum_c128 };
