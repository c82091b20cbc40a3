/* src/cpu/kernel/gemm_set.inl: all the kernels of one instruction set from the compiler's vectors. Include after defining ISA(f),
 * NEEDS, BYTES (of a vector), the tile shapes F32_MR, F32_NV (vectors), F64_MR, F64_NV, and the names as strings. */
#include "cpu/dtype.h"
#include "cpu/feature.h"
#include "cpu/kernel/gemm.h"

#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
#define VEC(t) GLUE(t, _vec)
#define KSTEP 1
#define PLAIN(s) (s)

#define P float
#define LANES (BYTES / 4)
#define MR F32_MR
#define NR (F32_NV * LANES)
#ifndef F32_TILE
#define TILE tile_f32
#include "cpu/kernel/gemm_tile.inl"
#undef TILE
#define F32_TILE tile_f32
#endif
#define S float
#define LOAD PLAIN
#define NAME(f) f##_f32
#include "cpu/kernel/gemm_pack.inl"
#define S uint16_t
#define LOAD xl_bf16_load
#define NAME(f) f##_bf16
#include "cpu/kernel/gemm_pack.inl"
#define S uint16_t
#define LOAD xl_f16_load
#define NAME(f) f##_f16
#include "cpu/kernel/gemm_pack.inl"
#define S float
#define LOAD PLAIN
#define NAME(f) f##_f32
#include "cpu/kernel/gemm_skinny.inl"
#define S uint16_t
#define LOAD xl_bf16_load
#define NAME(f) f##_bf16
#include "cpu/kernel/gemm_skinny.inl"
#define S uint16_t
#define LOAD xl_f16_load
#define NAME(f) f##_f16
#include "cpu/kernel/gemm_skinny.inl"
const xl_gemm_kernel ISA(f32) = {
    .name = F32_NAME, .needs = NEEDS, .packed = XL_GEMM_F32, .size = 4, .mr = MR, .nr = NR, .kr = 1, .tile = F32_TILE,
    .pack_a = { [XL_GEMM_F32] = pack_a_f32, [XL_GEMM_BF16] = pack_a_bf16, [XL_GEMM_F16] = pack_a_f16 },
    .pack_b = { [XL_GEMM_F32] = pack_b_f32, [XL_GEMM_BF16] = pack_b_bf16, [XL_GEMM_F16] = pack_b_f16 },
    .axpy = { [XL_GEMM_F32] = axpy_f32, [XL_GEMM_BF16] = axpy_bf16, [XL_GEMM_F16] = axpy_f16 },
    .dot = { [XL_GEMM_F32] = dot_f32, [XL_GEMM_BF16] = dot_bf16, [XL_GEMM_F16] = dot_f16 },
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
#define F64_TILE tile_f64
#endif
#define S double
#define LOAD PLAIN
#define NAME(f) f##_f64
#include "cpu/kernel/gemm_pack.inl"
#define S double
#define LOAD PLAIN
#define NAME(f) f##_f64
#include "cpu/kernel/gemm_skinny.inl"
const xl_gemm_kernel ISA(f64) = {
    .name = F64_NAME, .needs = NEEDS, .packed = XL_GEMM_F64, .size = 8, .mr = MR, .nr = NR, .kr = 1, .tile = F64_TILE,
    .pack_a = { [XL_GEMM_F64] = pack_a_f64 }, .pack_b = { [XL_GEMM_F64] = pack_b_f64 },
    .axpy = { [XL_GEMM_F64] = axpy_f64 }, .dot = { [XL_GEMM_F64] = dot_f64 },
};
#undef P
#undef LANES
#undef MR
#undef NR
