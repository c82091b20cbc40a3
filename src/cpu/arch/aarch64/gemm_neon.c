/* NEON: the f32 tile is 8x12, the f64 tile 8x6. Each FMA takes one factor from a lane, so a step of k is
 * 5 loads and 24 FMAs, and 24 sums are in flight: enough for 4 pipes of latency 4. */
#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernel/gemm_set.h"

__attribute__((always_inline)) static inline void body_f32(int columns, size_t k, const void *av, const void *bv,
                                                           ptrdiff_t step, void *cv, ptrdiff_t ldc, bool accumulate)
{
    const float *a = av, *b = bv;
    float *c = cv;
    float32x4_t acc[8][3], x[3];
    UNROLL
    for (int i = 0; i < 8; i++)
        UNROLL
        for (int j = 0; j < columns; j++)
            acc[i][j] = vdupq_n_f32(0);
    for (size_t p = 0; p < k; p++, a += 8, b += step) {
        float32x4_t a0 = vld1q_f32(a), a1 = vld1q_f32(a + 4);
        UNROLL
        for (int j = 0; j < columns; j++)
            x[j] = vld1q_f32(b + 4 * j);
        UNROLL
        for (int j = 0; j < columns; j++) {
            acc[0][j] = vfmaq_laneq_f32(acc[0][j], x[j], a0, 0);
            acc[1][j] = vfmaq_laneq_f32(acc[1][j], x[j], a0, 1);
            acc[2][j] = vfmaq_laneq_f32(acc[2][j], x[j], a0, 2);
            acc[3][j] = vfmaq_laneq_f32(acc[3][j], x[j], a0, 3);
            acc[4][j] = vfmaq_laneq_f32(acc[4][j], x[j], a1, 0);
            acc[5][j] = vfmaq_laneq_f32(acc[5][j], x[j], a1, 1);
            acc[6][j] = vfmaq_laneq_f32(acc[6][j], x[j], a1, 2);
            acc[7][j] = vfmaq_laneq_f32(acc[7][j], x[j], a1, 3);
        }
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        UNROLL
        for (int j = 0; j < columns; j++) {
            float *y = c + i * ldc + j * 4;
            vst1q_f32(y, accumulate ? vaddq_f32(vld1q_f32(y), acc[i][j]) : acc[i][j]);
        }
}

static void neon8_f32(size_t k, const void *a, const void *b, void *c, ptrdiff_t ldc, bool accumulate)
{
    body_f32(2, k, a, b, 8, c, ldc, accumulate);
}

static void direct8_f32(size_t k, const void *a, const void *b, ptrdiff_t step, void *c, ptrdiff_t ldc, bool accumulate)
{
    body_f32(2, k, a, b, step, c, ldc, accumulate);
}

__attribute__((always_inline)) static inline void body_f64(size_t k, const void *av, const void *bv, ptrdiff_t step,
                                                           void *cv, ptrdiff_t ldc, bool accumulate)
{
    const double *a = av, *b = bv;
    double *c = cv;
    float64x2_t acc[8][3];
    UNROLL
    for (int i = 0; i < 8; i++)
        UNROLL
        for (int j = 0; j < 3; j++)
            acc[i][j] = vdupq_n_f64(0);
    for (size_t p = 0; p < k; p++, a += 8, b += step) {
        float64x2_t x[3] = { vld1q_f64(b), vld1q_f64(b + 2), vld1q_f64(b + 4) };
        UNROLL
        for (int i = 0; i < 4; i++) {
            float64x2_t pair = vld1q_f64(a + 2 * i);
            UNROLL
            for (int j = 0; j < 3; j++) {
                acc[2 * i][j] = vfmaq_laneq_f64(acc[2 * i][j], x[j], pair, 0);
                acc[2 * i + 1][j] = vfmaq_laneq_f64(acc[2 * i + 1][j], x[j], pair, 1);
            }
        }
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        UNROLL
        for (int j = 0; j < 3; j++) {
            double *y = c + i * ldc + j * 2;
            vst1q_f64(y, accumulate ? vaddq_f64(vld1q_f64(y), acc[i][j]) : acc[i][j]);
        }
}

static void neon_f32(size_t k, const void *a, const void *b, void *c, ptrdiff_t ldc, bool accumulate)
{
    body_f32(3, k, a, b, 12, c, ldc, accumulate);
}

static void neon_f64(size_t k, const void *a, const void *b, void *c, ptrdiff_t ldc, bool accumulate)
{
    body_f64(k, a, b, 6, c, ldc, accumulate);
}

static void direct_f32(size_t k, const void *a, const void *b, ptrdiff_t step, void *c, ptrdiff_t ldc, bool accumulate)
{
    body_f32(3, k, a, b, step, c, ldc, accumulate);
}

static void direct_f64(size_t k, const void *a, const void *b, ptrdiff_t step, void *c, ptrdiff_t ldc, bool accumulate)
{
    body_f64(k, a, b, step, c, ldc, accumulate);
}

static const xl_gemm_kernel neon8;
#define F32_ALT &neon8
#define BYTES 16
#define NEEDS XL_CPU_NEON
#define F32_MR 8
#define F32_NV 3
#define F64_MR 8
#define F64_NV 3
#define F32_TILE neon_f32
#define F64_TILE neon_f64
#define F32_DIRECT direct_f32
#define F64_DIRECT direct_f64
#define F32_NAME "neon 8x12 f32"
#define F64_NAME "neon 8x6 f64"
#define ISA(f) xl_gemm_neon_##f
#include "cpu/kernel/gemm_set.inl"

#define P float
#define MR 8
#define NR 8
#define S float
#define LOAD PLAIN
#define LOAD4(p) (*(const f32x4 *)(p))
#define NAME(f) f##8_f32
#include "cpu/kernel/gemm_pack.inl"
static const xl_gemm_kernel neon8 = {
    .name = "neon 8x8 f32",
    .needs = XL_CPU_NEON,
    .packed = XL_GEMM_F32,
    .size = 4,
    .mr = MR,
    .nr = NR,
    .kr = 1,
    .kc = 512,
    .tile_m = 128,
    .tile_n = 252,
    .speed = 1,
    .tile = neon8_f32,
    .direct = direct8_f32,
    .pack_a = { [XL_GEMM_F32] = pack_a8_f32 },
    .pack_b = { [XL_GEMM_F32] = pack_b8_f32 },
};
