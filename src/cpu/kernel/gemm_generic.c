/* The kernels that every machine can run, and the reference for testing the others: 16-byte vectors, lowered by the
 * compiler to what the machine has. Integers wrap, so they are multiplied as unsigned. */
#define BYTES 16
#define NEEDS 0
#define F32_MR 4
#define F32_NV 2
#define F64_MR 4
#define F64_NV 2
#define F32_NAME "generic 4x8 f32"
#define F64_NAME "generic 4x4 f64"
#define ISA(f) xl_gemm_generic_##f
#include "cpu/kernel/gemm_set.inl"

#define P uint32_t
#define LANES 4
#define MR 4
#define NR 8
#define TILE tile_i32
#include "cpu/kernel/gemm_tile.inl"
#define S int8_t
#define LOAD(s) ((uint32_t)(int32_t)(s))
#define NAME(f) f##_i8
#include "cpu/kernel/gemm_pack.inl"
#define S uint8_t
#define LOAD(s) ((uint32_t)(s))
#define NAME(f) f##_u8
#include "cpu/kernel/gemm_pack.inl"
#define S uint32_t
#define LOAD(s) (s)
#define NAME(f) f##_i32
#include "cpu/kernel/gemm_pack.inl"
const xl_gemm_kernel xl_gemm_generic_i32 = {
    .name = "generic 4x8 i32",
    .needs = 0,
    .packed = XL_GEMM_I32,
    .size = 4,
    .mr = MR,
    .nr = NR,
    .kr = 1,
    .kc = 512,
    .tile_m = 128,
    .tile_n = 252,
    .speed = 1,
    .tile = tile_i32,
    .pack_a = { [XL_GEMM_I8] = pack_a_i8, [XL_GEMM_U8] = pack_a_u8, [XL_GEMM_I32] = pack_a_i32 },
    .pack_b = { [XL_GEMM_I8] = pack_b_i8, [XL_GEMM_U8] = pack_b_u8, [XL_GEMM_I32] = pack_b_i32 },
};
