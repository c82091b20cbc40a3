/* src/cpu/kernel/fold_set.inl: the loops of xl_fold_line (fold.h). Define before including: BYTES (of a vector), NEEDS
 * and SET (the name of the table). Sums and products have sixteen partial results whatever the vector length, so their
 * order is the same in every set. */
#include "cpu/kernel/fold.h"
#include "cpu/kernel/vmath_lane.inl"

/* NaN if either is; of two zeros the larger (smaller) is the one with the right sign. Selects only, so that loops
 * become vectors. */
#define EXTREMES(T, max, min)                                                                             \
    static inline T max(T x, T y)                                                                         \
    {                                                                                                     \
        T r = x > y ? x : y;                                                                              \
        r = x == y ? x + y == 0 ? x + y : x : r;                                                          \
        return x != x ? x : r;                                                                            \
    }                                                                                                     \
    static inline T min(T x, T y)                                                                         \
    {                                                                                                     \
        T r = x < y ? x : y;                                                                              \
        r = x == y ? x + y == 0 ? -(-x - y) : x : r;                                                      \
        return x != x ? x : r;                                                                            \
    }
EXTREMES(float, fmax1, fmin1)
EXTREMES(double, dmax1, dmin1)

#if defined(__aarch64__)
#define HARDWARE(f) neon_##f##_f32
#define neon_dup_f32(x) ((vf)vdupq_n_f32(x))
#define neon_max_f32(x, y) ((vf)vmaxq_f32((float32x4_t)(x), (float32x4_t)(y)))
#define neon_min_f32(x, y) ((vf)vminq_f32((float32x4_t)(x), (float32x4_t)(y)))
#define neon_maxv_f32(x) vmaxvq_f32((float32x4_t)(x))
#define neon_minv_f32(x) vminvq_f32((float32x4_t)(x))
#define neon_dup_f64(x) ((vd)vdupq_n_f64(x))
#define neon_max_f64(x, y) ((vd)vmaxq_f64((float64x2_t)(x), (float64x2_t)(y)))
#define neon_min_f64(x, y) ((vd)vminq_f64((float64x2_t)(x), (float64x2_t)(y)))
#define neon_maxv_f64(x) vmaxvq_f64((float64x2_t)(x))
#define neon_minv_f64(x) vminvq_f64((float64x2_t)(x))
#else                                                      /* not zero if x or y of any lane is NaN */
#if defined(__x86_64__) && BYTES == 64
INLINE unsigned f_unordered(vf x, vf y) { return _mm512_cmp_ps_mask(X86F x, X86F y, _CMP_UNORD_Q); }
INLINE unsigned d_unordered(vd x, vd y) { return _mm512_cmp_pd_mask(X86D x, X86D y, _CMP_UNORD_Q); }
#elif defined(__x86_64__) && BYTES == 32
INLINE unsigned f_unordered(vf x, vf y)
{
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(X86F x, X86F y, _CMP_UNORD_Q));
}
INLINE unsigned d_unordered(vd x, vd y)
{
    return (unsigned)_mm256_movemask_pd(_mm256_cmp_pd(X86D x, X86D y, _CMP_UNORD_Q));
}
#elif defined(__x86_64__)
INLINE unsigned f_unordered(vf x, vf y) { return (unsigned)_mm_movemask_ps(_mm_cmpunord_ps(X86F x, X86F y)); }
INLINE unsigned d_unordered(vd x, vd y) { return (unsigned)_mm_movemask_pd(_mm_cmpunord_pd(X86D x, X86D y)); }
#else
INLINE unsigned f_unordered(vf x, vf y) { return !f_all((x == x) & (y == y)); }
INLINE unsigned d_unordered(vd x, vd y) { return !f_all((vi)((x == x) & (y == y))); }
#endif
#endif
#define V vf
#define LANES(f) f_##f
#define MAX fmax1
#define MIN fmin1
#define T float
#define NAME(f) f##_f32
#include "cpu/kernel/fold_line.inl"
#undef MAX
#undef MIN
#undef V
#undef LANES
#if defined(__aarch64__)
#undef HARDWARE
#define HARDWARE(f) neon_##f##_f64
#endif
#define V vd
#define LANES(f) d_##f
#define MAX dmax1
#define MIN dmin1
#define T double
#define NAME(f) f##_f64
#include "cpu/kernel/fold_line.inl"
#undef MAX
#undef MIN
#define INTEGER
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define T int8_t
#define NAME(f) f##_i8
#include "cpu/kernel/fold_line.inl"
#define UNSIGNED
#define T uint8_t
#define NAME(f) f##_u8
#include "cpu/kernel/fold_line.inl"
#undef UNSIGNED
#define T int16_t
#define NAME(f) f##_i16
#include "cpu/kernel/fold_line.inl"
#define UNSIGNED
#define T uint16_t
#define NAME(f) f##_u16
#include "cpu/kernel/fold_line.inl"
#undef UNSIGNED
#define T int32_t
#define NAME(f) f##_i32
#include "cpu/kernel/fold_line.inl"
#define UNSIGNED
#define T uint32_t
#define NAME(f) f##_u32
#include "cpu/kernel/fold_line.inl"
#undef UNSIGNED
#define T int64_t
#define NAME(f) f##_i64
#include "cpu/kernel/fold_line.inl"
#define UNSIGNED
#define T uint64_t
#define NAME(f) f##_u64
#include "cpu/kernel/fold_line.inl"
#undef UNSIGNED

/* Of signed types only the larger and the smaller of two differ from those of the unsigned type of their size. */
static xl_dtype folded_as(xl_dtype d, xl_opcode code)
{
    if (code == XL_OP_MAXIMUM || code == XL_OP_MINIMUM)
        return d;
    switch (d) {
    case XL_I8: return XL_U8;
    case XL_I16: return XL_U16;
    case XL_I32: return XL_U32;
    case XL_I64: return XL_U64;
    default: return d;
    }
}

static xl_line_fn *find(xl_dtype d, xl_opcode code)
{
    switch (folded_as(d, code)) {
    case XL_F32: return find_f32(code);
    case XL_F64: return find_f64(code);
    case XL_I1:
        return code == XL_OP_ADD ? find_u8(XL_OP_OR) : code == XL_OP_MULTIPLY ? find_u8(XL_OP_AND) : find_u8(code);
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

static void add_short_rows(void *acc, const void *x, size_t rows, size_t n)
{
    enum { SIDE = 8 };                                     /* more of them leave no registers */
    float *a = acc;
    const float *p = x;
    size_t r = 0;
    for (; n && r + SIDE <= rows; r += SIDE, p += SIDE * n) {
        float all[SIDE];
        for (size_t k = 0; k < SIDE; k++)
            all[k] = p[k * n];
        for (size_t i = 1; i < n; i++)
            for (size_t k = 0; k < SIDE; k++)
                all[k] += p[k * n + i];
        for (size_t k = 0; k < SIDE; k++)
            a[r + k] += all[k];
    }
    for (; r < rows; r++, p += n)
        add_f32(a + r, p, n);
}

static xl_rows_fn *rows(xl_dtype d, xl_opcode code)
{
    return d == XL_F32 && code == XL_OP_ADD ? add_short_rows : NULL;
}

static xl_put put(xl_dtype d, xl_opcode code)
{
    switch (folded_as(d, code)) {
    case XL_I1:
        return code == XL_OP_ADD ? put_u8(XL_OP_OR) : code == XL_OP_MULTIPLY ? put_u8(XL_OP_AND) : put_u8(code);
    case XL_F32: return put_f32(code);
    case XL_F64: return put_f64(code);
    case XL_I8: return put_i8(code);
    case XL_U8: return put_u8(code);
    case XL_I16: return put_i16(code);
    case XL_U16: return put_u16(code);
    case XL_I32: return put_i32(code);
    case XL_U32: return put_u32(code);
    case XL_I64: return put_i64(code);
    case XL_U64: return put_u64(code);
    default: return (xl_put){ 0 };
    }
}

const xl_fold_set SET = { .needs = NEEDS, .find = find, .rows = rows, .put = put };
