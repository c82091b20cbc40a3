/* src/cpu/arch/x86_64/transpose.h
 * For kernels built with AVX-512: transposes 16x16 elements of four bytes in registers. */
#ifndef XL_CPU_X86_TRANSPOSE_H
#define XL_CPU_X86_TRANSPOSE_H

#include <immintrin.h>

#include "cpu/kernel/gemm_set.h"

/* x[i] is row i, then column i. */
__attribute__((always_inline)) static inline void xl_transpose16(__m512i x[16])
{
    __m512i y[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4)
        UNROLL
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + 2 + j]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + 2 + j]);
        }
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
        for (int h = 0; h < 2; h++) {
            y[8 * h + i] = _mm512_shuffle_i32x4(x[8 * h + i], x[8 * h + 4 + i], 0x88);
            y[8 * h + 4 + i] = _mm512_shuffle_i32x4(x[8 * h + i], x[8 * h + 4 + i], 0xdd);
        }
    UNROLL
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0x88);
        x[8 + i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0xdd);
    }
}

#endif
