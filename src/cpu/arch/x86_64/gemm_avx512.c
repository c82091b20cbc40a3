/* AVX-512: 8x48 f32, 24 sums in 32 registers, and 14x16 f64. Matrix sizes are mostly multiples of 8 and 16; remainders
 * have code of their own: masks for columns; blocks of four, two and one for rows. */
#include <immintrin.h>

#include "cpu/arch/x86_64/gemm_avx512_tile.h"
#include "cpu/arch/x86_64/transpose.h"

enum { MR8 = 8, NR48 = 48, AHEAD = 8 };

/* x y + z and x + y by instruction: of two NaNs the result is the one that comes first, and which one that is must not
 * depend on the code that a compiler makes for this or that part of a tile. */
__attribute__((always_inline)) static inline __m512 fma16(__m512 x, __m512 y, __m512 z)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(z) : "v"(x), "v"(y));
    return z;
}
__attribute__((always_inline)) static inline __m512 add16(__m512 x, __m512 y)
{
    __asm__("vaddps %2, %1, %0" : "=v"(x) : "v"(x), "v"(y));
    return x;
}

/* Each sum gets a register of its own: of one zero for all, compilers keep copies, and copy back in the loop. */
__attribute__((always_inline)) static inline void zero16(__m512 *x)
{
    __asm__ volatile("vpxord %0, %0, %0" : "=v"(*x));
}

/* One step of k. A packed panel of A comes from L2 and is asked for ahead; B stays in L1 or L2 for all rows of A, but
 * the first of them find it `far` where it is not packed. */
__attribute__((always_inline)) static inline void step(const int MR, const int NV, const bool FAR, __m512 acc[MR8][3],
                                                       const float *a, ptrdiff_t ar, ptrdiff_t ak, const float *b,
                                                       ptrdiff_t bk, __mmask16 last)
{
    __m512 x[3];
    UNROLL
    for (int j = 0; j < NV; j++)
        x[j] = j + 1 < NV ? _mm512_loadu_ps(b + 16 * j) : _mm512_maskz_loadu_ps(last, b + 16 * j);
    if (FAR)
        UNROLL
        for (int j = 0; j < NV; j++)
            __builtin_prefetch(b + AHEAD * bk + 16 * j);
    if (ar == 1 && ak == MR8)
        __builtin_prefetch(a + 2 * AHEAD * MR8);
    UNROLL
    for (int i = 0; i < MR; i++) {
        __m512 y = _mm512_set1_ps(a[i * ar]);
        UNROLL
        for (int j = 0; j < NV; j++)
            acc[i][j] = fma16(x[j], y, acc[i][j]);
    }
}

/* MR x NV vectors of C; element (i, p) of A is a[i * ar + p * ak]; `last` masks the last vector of a row. The lines of
 * C are asked for row by row between the first steps: all at once, they would keep those of A and B waiting. */
__attribute__((always_inline)) static inline void block(const int MR, const int NV, const bool FAR, size_t k,
                                                        const float *a, ptrdiff_t ar, ptrdiff_t ak, const float *b,
                                                        ptrdiff_t bk, float *c, ptrdiff_t ldc, __mmask16 last,
                                                        bool accumulate)
{
    __m512 acc[MR8][3];
    UNROLL
    for (int i = 0; i < MR; i++)
        UNROLL
        for (int j = 0; j < NV; j++)
            zero16(&acc[i][j]);
    const float *line = c;
    if (k >= (size_t)(4 * MR))
        for (int i = 0; i < MR; i++, line += ldc, k -= 4) {
            UNROLL
            for (int j = 0; j < NV; j++)
                __builtin_prefetch(line + 16 * j, 1);
            UNROLL
            for (int q = 0; q < 4; q++, a += ak, b += bk)
                step(MR, NV, FAR, acc, a, ar, ak, b, bk, last);
        }
    for (; k; k--, a += ak, b += bk)
        step(MR, NV, FAR, acc, a, ar, ak, b, bk, last);
    __asm__("" : "+r"(c), "+r"(ldc));           /* or the compiler keeps the addresses below over the loop */
    UNROLL
    for (int i = 0; i < MR; i++)
        UNROLL
        for (int j = 0; j < NV; j++) {
            float *to = c + i * ldc + 16 * j;
            __mmask16 some = j + 1 < NV ? 0xffff : last;
            if (accumulate)
                acc[i][j] = add16(_mm512_maskz_loadu_ps(some, to), acc[i][j]);
            _mm512_mask_storeu_ps(to, some, acc[i][j]);
        }
}

#define BLOCK(name, MR, NV, FAR, AR, AK)                                                                               \
    static void name##_##MR##x##NV(size_t k, const float *a, ptrdiff_t ar, ptrdiff_t ak, const float *b, ptrdiff_t bk, \
                                   float *c, ptrdiff_t ldc, __mmask16 last, bool accumulate)                           \
    {                                                                                                                  \
        (void)ar, (void)ak;                                                                                            \
        block(MR, NV, FAR, k, a, AR, AK, b, bk, c, ldc, last, accumulate);                                             \
    }
#define WIDTHS(name, MR, FAR, AR, AK)                                                                                  \
    BLOCK(name, MR, 3, FAR, AR, AK) BLOCK(name, MR, 2, FAR, AR, AK) BLOCK(name, MR, 1, FAR, AR, AK)
#define BLOCKS(name, FAR, AR, AK)                                                                                      \
    WIDTHS(name, 8, FAR, AR, AK) WIDTHS(name, 4, FAR, AR, AK) WIDTHS(name, 2, FAR, AR, AK) WIDTHS(name, 1, FAR, AR, AK)
BLOCKS(packed, false, 1, MR8)
BLOCKS(along_k, false, ar, 1)
BLOCKS(along_m, false, 1, ak)
BLOCKS(far_packed, true, 1, MR8)
BLOCKS(far_along_k, true, ar, 1)
BLOCKS(far_along_m, true, 1, ak)

typedef void plain_tile_fn(size_t k, const float *a, ptrdiff_t as, const float *b, ptrdiff_t bs, float *c,
                           ptrdiff_t cs, int add);
typedef void block_fn(size_t k, const float *a, ptrdiff_t ar, ptrdiff_t ak, const float *b, ptrdiff_t bk, float *c,
                      ptrdiff_t ldc, __mmask16 last, bool accumulate);
#define ROWS(name, MR) { name##_##MR##x1, name##_##MR##x2, name##_##MR##x3 }
#define TABLE(name) { ROWS(name, 1), ROWS(name, 2), ROWS(name, 4), ROWS(name, 8) }
static block_fn *const blocks[2][3][4][3] = { { TABLE(packed), TABLE(along_k), TABLE(along_m) },
                                              { TABLE(far_packed), TABLE(far_along_k), TABLE(far_along_m) } };

static void tile_8x48(size_t k, const void *a, const void *b, void *c, ptrdiff_t ldc, bool accumulate)
{
    xl_tile_8x48_packed(k, a, b, c, ldc, accumulate, &(xl_gemm_ask){ 0 });
}

enum { PACKED, ALONG_K, ALONG_M };

/* One sum of a part of a tile. Of whole tiles those in assembly are faster, unless B is far. */
static void sums_8x48(int kind, size_t k, const float *a, ptrdiff_t ar, ptrdiff_t ak, const float *b, ptrdiff_t bk,
                      bool far, float *c, ptrdiff_t ldc, size_t rows, size_t cols, bool accumulate)
{
    size_t nv = (cols + 15) / 16;
    __mmask16 last = (__mmask16)(0xffffu >> (16 * nv - cols));
    if (rows == MR8 && nv > 1 && cols % 16 == 0 && !far) {
        static plain_tile_fn *const whole[2][2] = { { xl_tile_8x32_along_k, xl_tile_8x48_along_k },
                                                    { xl_tile_8x32_along_m, xl_tile_8x48_along_m } };
        whole[kind != ALONG_K][nv - 2](k, a, 4 * (kind == ALONG_K ? ar : ak), b, 4 * bk, c, 4 * ldc, accumulate);
        return;
    }
    for (int e = 3; e >= 0; e--)
        for (; rows >= 1u << e; rows -= 1u << e, a += (ptrdiff_t)(1 << e) * ar, c += (ptrdiff_t)(1 << e) * ldc)
            blocks[far][kind][e][nv - 1](k, a, ar, ak, b, bk, c, ldc, last, accumulate);
}

static void part_8x48(size_t k, size_t park, const void *av, ptrdiff_t ar, ptrdiff_t ak, const void *bv, ptrdiff_t bk,
                      bool far, void *c, ptrdiff_t ldc, size_t rows, size_t cols, bool accumulate,
                      const xl_gemm_ask *ask)
{
    int kind = ar == 1 ? ak == MR8 ? PACKED : ALONG_M : ALONG_K;
    bool packed = kind == PACKED && bk == NR48 && rows == MR8 && cols == NR48;
    xl_gemm_ask left = { 0 };
    if (ask)
        left = *ask;
    const float *a = av, *b = bv;
    for (size_t p = 0; p < k; p += park, a += (ptrdiff_t)park * ak, b += (ptrdiff_t)park * bk) {
        size_t steps = k - p < park ? k - p : park;
        if (packed)
            xl_tile_8x48_packed(steps, a, b, c, ldc, accumulate || p, &left);
        else
            sums_8x48(kind, steps, a, ar, ak, b, bk, far, c, ldc, rows, cols, accumulate || p);
    }
}

/* Sixteen steps of eight rows that lie along k, into a panel; of less, `rows` and `n` of them, zeros for other rows. */
__attribute__((always_inline)) static inline void pack_16(float *dst, const float *src, ptrdiff_t rs, size_t rows,
                                                          size_t n)
{
    const __m512i lo = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), hi = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i x[MR8], y[MR8];
    UNROLL
    for (size_t i = 0; i < MR8; i++)
        x[i] = i >= rows ? _mm512_setzero_si512()
               : n == 16 ? _mm512_loadu_si512(src + (ptrdiff_t)i * rs)
                         : _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), src + (ptrdiff_t)i * rs);
    UNROLL
    for (int i = 0; i < MR8; i++) {             /* the next panel's rows, and where this one goes on */
        __builtin_prefetch(src + (i + MR8) * rs);
        __builtin_prefetch(dst + 4 * 16 * MR8 + 16 * i, 1);
    }
    UNROLL
    for (int i = 0; i < MR8; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    UNROLL
    for (int h = 0; h < MR8; h += 4)            /* x[h + q]: rows h to h + 3 of steps q, 4 + q, 8 + q, 12 + q */
        UNROLL
        for (int q = 0; q < 2; q++) {
            x[h + 2 * q] = _mm512_unpacklo_epi64(y[h + q], y[h + 2 + q]);
            x[h + 2 * q + 1] = _mm512_unpackhi_epi64(y[h + q], y[h + 2 + q]);
        }
    UNROLL
    for (size_t q = 0; q < 4; q++) {            /* y[q]: steps q and 4 + q; y[4 + q]: 8 + q and 12 + q */
        y[q] = _mm512_permutex2var_epi64(x[q], lo, x[4 + q]);
        y[4 + q] = _mm512_permutex2var_epi64(x[q], hi, x[4 + q]);
    }
    UNROLL
    for (size_t s = 0; s < 16; s += 2) {
        size_t at = s / 8 * 4 + s % 4;
        __m512i two = s % 8 < 4 ? _mm512_shuffle_i64x2(y[at], y[at + 1], 0x44)
                                : _mm512_shuffle_i64x2(y[at], y[at + 1], 0xee);
        if (s + 1 < n)
            _mm512_storeu_si512(dst + s * MR8, two);
        else if (s < n)
            _mm256_storeu_si256((__m256i *)(dst + s * MR8), _mm512_castsi512_si256(two));
    }
}

/* f32 that lies along k into panels of 8; of rows that are not there, zeros. */
static bool pack_rows(float *dst, const float *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k)
{
    if (cs != 1)
        return false;
    for (; k >= 16 && rows == MR8; k -= 16, src += 16, dst += 16 * MR8)
        pack_16(dst, src, rs, MR8, 16);
    for (; k; src += 16, dst += 16 * MR8) {
        size_t n = k < 16 ? k : 16;
        pack_16(dst, src, rs, rows, n);
        k -= n;
    }
    return true;
}

/* Panels of 48 columns of B: those that lie side by side are copied, those that lie along k transposed. */
static bool pack_cols(float *dst, const float *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k)
{
    if (rs == 1) {
        __mmask16 mask[3];
        for (size_t j = 0; j < 3; j++)
            mask[j] = (__mmask16)(rows >= 16 * (j + 1) ? 0xffff : rows > 16 * j ? (1u << (rows - 16 * j)) - 1 : 0);
        for (size_t p = 0; p < k; p++, src += cs, dst += NR48)
            UNROLL
            for (int j = 0; j < 3; j++) {
                _mm512_storeu_ps(dst + 16 * j, _mm512_maskz_loadu_ps(mask[j], src + 16 * j));
                __builtin_prefetch(src + NR48 + 16 * j);
                __builtin_prefetch(dst + 8 * NR48 + 16 * j, 1);
            }
        return true;
    }
    if (cs != 1)
        return false;
    for (size_t p = 0; p < k; p += 16, src += 16, dst += 16 * NR48) {
        size_t n = k - p < 16 ? k - p : 16;
        __mmask16 steps = (__mmask16)((1u << n) - 1);
        for (size_t j = 0; j < NR48; j += 16) {
            __m512i x[16];
            UNROLL
            for (size_t i = 0; i < 16; i++)
                x[i] = j + i < rows ? _mm512_maskz_loadu_epi32(steps, src + (ptrdiff_t)(j + i) * rs)
                                    : _mm512_setzero_si512();
            xl_transpose16(x);
            UNROLL
            for (size_t q = 0; q < 16; q++)
                if (q < n)
                    _mm512_storeu_epi32(dst + q * NR48 + j, x[q]);
        }
    }
    return true;
}

#define BYTES 64
#define NEEDS (XL_CPU_AVX2 | XL_CPU_AVX512)
#define F32_MR 8
#define F32_NV 3
#define F32_KC 256
#define F32_TILE_M 8192
#define F32_TILE_N 2064
#define F32_TILE tile_8x48
#define F32_PART part_8x48
#define F32_PACK_A pack_rows
#define F32_PACK_B pack_cols
#define F64_MR 14
#define F64_NV 2
#define F32_NAME "avx512 8x48 f32"
#define F64_NAME "avx512 14x16 f64"
#define ISA(f) xl_gemm_avx512_##f
#include "cpu/kernel/gemm_set.inl"
