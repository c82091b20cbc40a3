/* Elementwise functions over the integers and booleans. */
#include "cpu/kernel/dtype.h"
#include "cpu/kernel/ew_loop.h"

#pragma GCC diagnostic ignored "-Wpedantic"                /* __int128, for the high half of a product */
#pragma GCC diagnostic ignored "-Wtype-limits"

#define T uint8_t
#define A int8_t
#define U uint8_t
#define WIDE uint32_t
#define BITS 2
#define SIGNED 1
#define LOAD(x) xl_i2_load(x)
#define STORE(x) xl_i2_store(x)
#define NAME(f) f##_i2
#include "cpu/kernel/ew_int.inl"

#define T uint8_t
#define A int8_t
#define U uint8_t
#define WIDE uint32_t
#define BITS 4
#define SIGNED 1
#define LOAD(x) xl_i4_load(x)
#define STORE(x) xl_i4_store(x)
#define NAME(f) f##_i4
#include "cpu/kernel/ew_int.inl"

#define T uint8_t
#define A uint8_t
#define U uint8_t
#define WIDE uint32_t
#define BITS 2
#define SIGNED 0
#define LOAD(x) xl_ui2_load(x)
#define STORE(x) xl_i2_store(x)
#define NAME(f) f##_u2
#include "cpu/kernel/ew_int.inl"

#define T uint8_t
#define A uint8_t
#define U uint8_t
#define WIDE uint32_t
#define BITS 4
#define SIGNED 0
#define LOAD(x) xl_ui4_load(x)
#define STORE(x) xl_i4_store(x)
#define NAME(f) f##_u4
#include "cpu/kernel/ew_int.inl"

#define T int8_t
#define A int8_t
#define U uint8_t
#define WIDE uint32_t
#define BITS 8
#define SIGNED 1
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_i8
#include "cpu/kernel/ew_int.inl"

#define T uint8_t
#define A uint8_t
#define U uint8_t
#define WIDE uint32_t
#define BITS 8
#define SIGNED 0
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_u8
#include "cpu/kernel/ew_int.inl"

#define T int16_t
#define A int16_t
#define U uint16_t
#define WIDE uint32_t
#define BITS 16
#define SIGNED 1
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_i16
#include "cpu/kernel/ew_int.inl"

#define T uint16_t
#define A uint16_t
#define U uint16_t
#define WIDE uint32_t
#define BITS 16
#define SIGNED 0
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_u16
#include "cpu/kernel/ew_int.inl"

#define T int32_t
#define A int32_t
#define U uint32_t
#define WIDE uint32_t
#define BITS 32
#define SIGNED 1
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_i32
#include "cpu/kernel/ew_int.inl"

#define T uint32_t
#define A uint32_t
#define U uint32_t
#define WIDE uint32_t
#define BITS 32
#define SIGNED 0
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_u32
#include "cpu/kernel/ew_int.inl"

#define T int64_t
#define A int64_t
#define U uint64_t
#define WIDE uint64_t
#define BITS 64
#define SIGNED 1
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_i64
#include "cpu/kernel/ew_int.inl"

#define T uint64_t
#define A uint64_t
#define U uint64_t
#define WIDE uint64_t
#define BITS 64
#define SIGNED 0
#define LOAD(x) (x)
#define STORE(x) (x)
#define NAME(f) f##_u64
#include "cpu/kernel/ew_int.inl"

/* Booleans: addition is or, multiplication is and, as the specification has it. */
#define BOOL2(name, expr)                                                                      \
    static void name##_i1(void *y_, const void *const *x_, size_t n, const void *ctx)          \
    {                                                                                          \
        (void)ctx;                                                                             \
        uint8_t *r = y_;                                                                       \
        const uint8_t *a = x_[0], *b = x_[1];                                                  \
        XL_IVDEP                                                                               \
        for (size_t i = 0; i < n; i++) {                                                       \
            uint8_t x = a[i] != 0, y = b[i] != 0;                                              \
            r[i] = (expr);                                                                     \
        }                                                                                      \
    }
BOOL2(or, x | y)
BOOL2(and, x & y)
BOOL2(xor, x ^ y)
BOOL2(eq, x == y)
BOOL2(ge, x >= y)
BOOL2(gt, x > y)
BOOL2(le, x <= y)
BOOL2(lt, x < y)

static void not_i1(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    uint8_t *y = y_;
    const uint8_t *a = x_[0];
    for (size_t i = 0; i < n; i++)
        y[i] = !a[i];
}
static void clamp_i1(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    uint8_t *y = y_;
    const uint8_t *lo = x_[0], *x = x_[1], *hi = x_[2];
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] | lo[i]) & hi[i];
}
static xl_ew_fn *const compare_i1[6] = { NULL, xor_i1, ge_i1, gt_i1, le_i1, lt_i1 };

static xl_ew_fn *find_i1(xl_opcode code)
{
    switch (code) {
    case XL_OP_ADD: case XL_OP_OR: case XL_OP_MAXIMUM: return or_i1;
    case XL_OP_MULTIPLY: case XL_OP_AND: case XL_OP_MINIMUM: return and_i1;
    case XL_OP_XOR: return xor_i1;
    case XL_OP_NOT: return not_i1;
    case XL_OP_CLAMP: return clamp_i1;
    default: return NULL;
    }
}

xl_ew_fn *xl_ew_int(xl_dtype d, xl_opcode code)
{
    switch (d) {
    case XL_I1: return find_i1(code);
    case XL_I2: return find_i2(code);
    case XL_I4: return find_i4(code);
    case XL_U2: return find_u2(code);
    case XL_U4: return find_u4(code);
    case XL_I8: return find_i8(code);
    case XL_U8: return find_u8(code);
    case XL_I16: return find_i16(code);
    case XL_U16: return find_u16(code);
    case XL_I32: return find_i32(code);
    case XL_U32: return find_u32(code);
    case XL_I64: return find_i64(code);
    case XL_U64: return find_u64(code);
    default: return NULL;
    }
}

/* The directions of comparison in the order of the enumeration. */
xl_ew_fn *xl_ew_int_compare(xl_dtype d, int direction)
{
    switch (d) {
    case XL_I1: return direction == 0 ? eq_i1 : compare_i1[direction];
    case XL_I2: return compare_i2[direction];
    case XL_I4: return compare_i4[direction];
    case XL_U2: return compare_u2[direction];
    case XL_U4: return compare_u4[direction];
    case XL_I8: return compare_i8[direction];
    case XL_U8: return compare_u8[direction];
    case XL_I16: return compare_i16[direction];
    case XL_U16: return compare_u16[direction];
    case XL_I32: return compare_i32[direction];
    case XL_U32: return compare_u32[direction];
    case XL_I64: return compare_i64[direction];
    case XL_U64: return compare_u64[direction];
    default: return NULL;
    }
}
