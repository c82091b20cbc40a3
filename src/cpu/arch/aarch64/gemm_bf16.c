/* BFMMLA: each instruction adds a 2x4 by 4x2 product of bf16 to a 2x2 block of f32. The tile is 8x12, 24 blocks. */
#include <arm_neon.h>

#include "cpu/kernel/dtype.h"
#include "cpu/run/feature.h"
#include "cpu/kernel/gemm_set.h"

static void bfmmla_8x12(size_t k, const void *av, const void *bv, void *cv, ptrdiff_t ldc, bool accumulate)
{
    const bfloat16_t *a = av, *b = bv;
    float *c = cv;
    float32x4_t acc[4][6];
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
        for (int j = 0; j < 6; j++)
            acc[i][j] = vdupq_n_f32(0);
    for (size_t p = 0; p < k; p += 4, a += 32, b += 48) {
        bfloat16x8_t x[4] = { vld1q_bf16(a), vld1q_bf16(a + 8), vld1q_bf16(a + 16), vld1q_bf16(a + 24) };
        UNROLL
        for (int h = 0; h < 6; h += 3) {
            bfloat16x8_t y[3] = { vld1q_bf16(b + 8 * h), vld1q_bf16(b + 8 * h + 8), vld1q_bf16(b + 8 * h + 16) };
            UNROLL
            for (int j = 0; j < 3; j++)
                UNROLL
                for (int i = 0; i < 4; i++)
                    acc[i][h + j] = vbfmmlaq_f32(acc[i][h + j], x[i], y[j]);
            __asm__ volatile("" ::: "memory"); /* all six of B at once would not fit beside 24 sums and A */
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++)
        UNROLL
        for (int j = 0; j < 3; j++) {
            float64x2_t l = vreinterpretq_f64_f32(acc[i][2 * j]), r = vreinterpretq_f64_f32(acc[i][2 * j + 1]);
            float32x4_t top = vreinterpretq_f32_f64(vzip1q_f64(l, r)), low = vreinterpretq_f32_f64(vzip2q_f64(l, r));
            float *y0 = c + 2 * i * ldc + 4 * j, *y1 = y0 + ldc;
            vst1q_f32(y0, accumulate ? vaddq_f32(vld1q_f32(y0), top) : top);
            vst1q_f32(y1, accumulate ? vaddq_f32(vld1q_f32(y1), low) : low);
        }
}

#define P uint16_t
#define MR 8
#define NR 12
#define KSTEP 4
#define S uint16_t
#define LOAD(s) (s)
#define NAME(f) f##_bf16
#include "cpu/kernel/gemm_pack.inl"

const xl_gemm_kernel xl_gemm_neon_bf16 = {
    .name = "bfmmla 8x12 bf16",
    .needs = XL_CPU_NEON | XL_CPU_NEON_BF16,
    .packed = XL_GEMM_BF16,
    .size = 2,
    .mr = MR,
    .nr = NR,
    .kr = KSTEP,
    .kc = 1024,
    .tile_m = 128,
    .tile_n = 252,
    .speed = 1,
    .tile = bfmmla_8x12,
    .pack_a = { [XL_GEMM_BF16] = pack_a_bf16 },
    .pack_b = { [XL_GEMM_BF16] = pack_b_bf16 },
};
