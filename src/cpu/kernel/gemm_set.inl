/* src/cpu/kernel/gemm_set.inl: all the kernels of one instruction set, with the compiler's vectors. Define before
 * including: ISA(f), NEEDS, BYTES (of a vector), the tile shapes F32_MR, F32_NV (vectors), F64_MR, F64_NV, and the
 * names as strings. F32_PART requires F32_KC, F32_TILE_M, F32_TILE_N, and F32_PACK_A and F32_PACK_B, faster packing for
 * some strides. */
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <string.h>

#include "cpu/kernel/dtype.h"
#include "cpu/run/feature.h"
#include "cpu/kernel/gemm_set.h"

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define VEC(t) GLUE(t, _vec)
#define BODY(t) GLUE(t, _body)
#define KSTEP 1
#define PLAIN(s) (s)

/* Narrow floats by the vector: four for packing, BYTES / 4 for reading in place. */
#define INLINE __attribute__((always_inline)) static inline
typedef float f32x4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float f32xn __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint32_t u32xn __attribute__((vector_size(BYTES)));
typedef uint16_t u16x4 __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint16_t u16xn __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
INLINE f32x4 bf16x4(const uint16_t *p) { return (f32x4)(__builtin_convertvector(*(const u16x4 *)p, u32x4) << 16); }
INLINE f32xn bf16xn(const uint16_t *p) { return (f32xn)(__builtin_convertvector(*(const u16xn *)p, u32xn) << 16); }
#if defined(__aarch64__)
typedef __fp16 f16x4 __attribute__((vector_size(8), aligned(2), may_alias));
INLINE f32x4 f16_x4(const uint16_t *p) { return __builtin_convertvector(*(const f16x4 *)p, f32x4); }
INLINE f32xn f16_xn(const uint16_t *p) { return f16_x4(p); }
#elif defined(__F16C__)
INLINE f32x4 f16_x4(const uint16_t *p) { return (f32x4)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)p)); }
#if BYTES == 32
INLINE f32xn f16_xn(const uint16_t *p) { return (f32xn)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
#else
INLINE f32xn f16_xn(const uint16_t *p) { return (f32xn)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
#endif
#else
INLINE f32x4 f16_x4(const uint16_t *p)
{
    return (f32x4){ xl_f16_load(p[0]), xl_f16_load(p[1]), xl_f16_load(p[2]), xl_f16_load(p[3]) };
}
INLINE f32xn f16_xn(const uint16_t *p) { return f16_x4(p); }
#endif

#define P float
#define LANES (BYTES / 4)
#define MR F32_MR
#define NR (F32_NV * LANES)
#ifndef F32_TILE
#define TILE tile_f32
#include "cpu/kernel/gemm_tile.inl"
#undef TILE
static void direct_f32(size_t k, const void *a, const void *b, ptrdiff_t step, void *c, ptrdiff_t ldc, bool accumulate)
{
    tile_f32_body(k, a, b, step, c, ldc, accumulate);
}
#define F32_TILE tile_f32
#define F32_DIRECT direct_f32
#endif
#define S float
#define LOAD PLAIN
#define LOAD4(p) (*(const f32x4 *)(p))
#define NAME(f) f##_f32
#include "cpu/kernel/gemm_pack.inl"
#ifdef F32_PART
static void pack_a_fast(void *dst, const void *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k, size_t kpad)
{
    if (!F32_PACK_A(dst, src, rs, cs, rows, k))
        pack_a_f32(dst, src, rs, cs, rows, k, kpad);
}
static void pack_b_fast(void *dst, const void *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k, size_t kpad)
{
    if (!F32_PACK_B(dst, src, rs, cs, rows, k))
        pack_b_f32(dst, src, rs, cs, rows, k, kpad);
}
#else
#define pack_a_fast pack_a_f32
#define pack_b_fast pack_b_f32
#define F32_KC 512
#define F32_TILE_M 128
#define F32_TILE_N 252
#endif
#define S uint16_t
#define LOAD xl_bf16_load
#define LOAD4 bf16x4
#define NAME(f) f##_bf16
#include "cpu/kernel/gemm_pack.inl"
#define S uint16_t
#define LOAD xl_f16_load
#define LOAD4 f16_x4
#define NAME(f) f##_f16
#include "cpu/kernel/gemm_pack.inl"
#define S float
#define LOAD PLAIN
#define GET(p) (*(const f32xn *)(p))
#define NAME(f) f##_f32
#include "cpu/kernel/gemm_skinny.inl"
#define S uint16_t
#define LOAD xl_bf16_load
#define GET bf16xn
#define NAME(f) f##_bf16
#include "cpu/kernel/gemm_skinny.inl"
#define S uint16_t
#define LOAD xl_f16_load
#define GET f16_xn
#define NAME(f) f##_f16
#include "cpu/kernel/gemm_skinny.inl"
static void round_bf16(uint16_t *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = xl_bf16_store(x[i]);
}
static void round_f16(uint16_t *restrict y, const float *restrict x, size_t n)
{
    xl_f16_from_f32(y, x, n);
}
const xl_gemm_kernel ISA(f32) = {
    .name = F32_NAME,
    .needs = NEEDS,
    .packed = XL_GEMM_F32,
    .size = 4,
    .mr = MR,
    .nr = NR,
    .kr = 1,
    .kc = F32_KC,
    .tile_m = F32_TILE_M,
    .tile_n = F32_TILE_N,
    .speed = 1,
    .tile = F32_TILE,
#ifdef F32_PART
    .part = F32_PART,
    .own = true,
#else
    .direct = F32_DIRECT,
#endif
    .pack_a = { [XL_GEMM_F32] = pack_a_fast, [XL_GEMM_BF16] = pack_a_bf16, [XL_GEMM_F16] = pack_a_f16 },
    .pack_b = { [XL_GEMM_F32] = pack_b_fast, [XL_GEMM_BF16] = pack_b_bf16, [XL_GEMM_F16] = pack_b_f16 },
    .axpy = { [XL_GEMM_F32] = axpy_f32, [XL_GEMM_BF16] = axpy_bf16, [XL_GEMM_F16] = axpy_f16 },
    .dot = { [XL_GEMM_F32] = dot_f32, [XL_GEMM_BF16] = dot_bf16, [XL_GEMM_F16] = dot_f16 },
    .round = { [XL_GEMM_BF16] = round_bf16, [XL_GEMM_F16] = round_f16 },
#ifdef F32_ALT
    .alt = F32_ALT,
#endif
};
#undef P
#undef LANES
#undef MR
#undef NR

#define P double
#define LANES (BYTES / 8)
#define MR F64_MR
#define NR (F64_NV * LANES)
#ifndef F64_TILE
#define TILE tile_f64
#include "cpu/kernel/gemm_tile.inl"
#undef TILE
static void direct_f64(size_t k, const void *a, const void *b, ptrdiff_t step, void *c, ptrdiff_t ldc, bool accumulate)
{
    tile_f64_body(k, a, b, step, c, ldc, accumulate);
}
#define F64_TILE tile_f64
#define F64_DIRECT direct_f64
#endif
#define S double
#define LOAD PLAIN
#define NAME(f) f##_f64
#include "cpu/kernel/gemm_pack.inl"
#define S double
#define LOAD PLAIN
#define GET(p) (*(const vec_f64 *)(p))
#define NAME(f) f##_f64
#include "cpu/kernel/gemm_skinny.inl"
const xl_gemm_kernel ISA(f64) = {
    .name = F64_NAME,
    .needs = NEEDS,
    .packed = XL_GEMM_F64,
    .size = 8,
    .mr = MR,
    .nr = NR,
    .kr = 1,
    .kc = 256,
    .tile_m = 128,
    .tile_n = 252,
    .speed = 1,
    .tile = F64_TILE,
    .direct = F64_DIRECT,
    .pack_a = { [XL_GEMM_F64] = pack_a_f64 },
    .pack_b = { [XL_GEMM_F64] = pack_b_f64 },
    .axpy = { [XL_GEMM_F64] = axpy_f64 },
    .dot = { [XL_GEMM_F64] = dot_f64 },
};
#undef P
#undef LANES
#undef MR
#undef NR
