/* AMX: TDPBF16PS adds the product of 16x32 and 32x16 bf16 to 16x16 sums. The tile is 32x32: four registers of sums, 32
 * steps of k at a time. Panels of A hold 32 steps of each row, panels of B hold pairs of steps column by column;
 * operands stored the other way are transposed in blocks of 16x16 pairs. If the compiler does not support AMX, the row
 * requires a feature that no CPU reports. */
#include "cpu/run/feature.h"
#include "cpu/kernel/gemm_set.h"

#if defined(__AMX_BF16__)
#include "cpu/arch/x86_64/transpose.h"

enum { MR = 32, NR = 32, KR = 32 };

/* Eight registers of 16 rows of 64 bytes, until `leave`: tiles in use make every switch of threads dearer. */
static void enter(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = { .palette = 1,
                                              .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                                              .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    _tile_loadconfig(&config);
}

static void leave(void)
{
    _tile_release();
}

static void tdpbf16_32x32(size_t k, const void *av, const void *bv, void *cv, ptrdiff_t ldc, bool accumulate)
{
    const uint16_t *a = av, *b = bv;
    float *c = cv;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t p = 0; p < k; p += KR, a += MR * KR, b += NR * KR) {
        _tile_loadd(6, b, 128);
        _tile_loadd(4, a, 64);
        _tile_loadd(7, b + 32, 128);
        _tile_loadd(5, a + 16 * KR, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _Alignas(64) float sum[MR * NR];
    float *to = accumulate ? sum : c;
    size_t ld = accumulate ? NR : (size_t)ldc;
    _tile_stored(0, to, ld * 4);
    _tile_stored(1, to + 16, ld * 4);
    _tile_stored(2, to + 16 * ld, ld * 4);
    _tile_stored(3, to + 16 * ld + 16, ld * 4);
    if (accumulate)
        for (int i = 0; i < MR; i++, c += ldc) {
            _mm512_storeu_ps(c, _mm512_add_ps(_mm512_loadu_ps(c), _mm512_load_ps(sum + i * NR)));
            _mm512_storeu_ps(c + 16, _mm512_add_ps(_mm512_loadu_ps(c + 16), _mm512_load_ps(sum + i * NR + 16)));
        }
}

/* The first n of 32 elements, zeros behind them. */
static __m512i load(const uint16_t *p, size_t n)
{
    return n >= 32 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1), p);
}

/* Steps p and p + 1 of 32 rows, as pairs: rows 0 to 15, rows 16 to 31. */
static void pairs(__m512i out[2], const uint16_t *src, ptrdiff_t cs, size_t rows, size_t k)
{
    static const uint16_t order[2][32] __attribute__((aligned(64))) = {
        { 0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
          8,  40, 9,  41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47 },
        { 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
          24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63 }
    };
    __m512i x = k > 0 ? load(src, rows) : _mm512_setzero_si512();
    __m512i y = k > 1 ? load(src + cs, rows) : _mm512_setzero_si512();
    out[0] = _mm512_permutex2var_epi16(x, _mm512_load_si512(order[0]), y);
    out[1] = _mm512_permutex2var_epi16(x, _mm512_load_si512(order[1]), y);
}

static size_t left(size_t k, size_t p)
{
    return k > p ? k - p : 0;
}

static void pack_a(void *dv, const void *sv, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k, size_t kpad)
{
    uint16_t *dst = dv;
    const uint16_t *src = sv;
    if (cs == 1) {
        for (size_t i = 0; i < MR; i++)
            for (size_t p = 0; p < kpad; p += KR)
                _mm512_storeu_si512(dst + p * MR + i * KR,
                                    load(src + (ptrdiff_t)i * rs + (ptrdiff_t)p, i < rows ? left(k, p) : 0));
    } else if (rs == 1) {
        for (size_t p = 0; p < kpad; p += KR, dst += MR * KR) {
            __m512i x[2][16];
            for (size_t q = 0; q < 16; q++) {
                __m512i two[2];
                pairs(two, src + (ptrdiff_t)(p + 2 * q) * cs, cs, rows, left(k, p + 2 * q));
                x[0][q] = two[0], x[1][q] = two[1];
            }
            for (size_t h = 0; h < 2; h++) {
                xl_transpose16(x[h]);
                for (size_t i = 0; i < 16; i++)
                    _mm512_storeu_si512(dst + (16 * h + i) * KR, x[h][i]);
            }
        }
    } else {
        for (size_t p = 0; p < kpad; p++)
            for (size_t i = 0; i < MR; i++)
                dst[(p / KR * MR + i) * KR + p % KR] =
                    i < rows && p < k ? src[(ptrdiff_t)i * rs + (ptrdiff_t)p * cs] : 0;
    }
}

static void pack_b(void *dv, const void *sv, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k, size_t kpad)
{
    uint16_t *dst = dv;
    const uint16_t *src = sv;
    if (rs == 1) {
        for (size_t p = 0; p < kpad; p += 2, dst += 2 * NR) {
            __m512i two[2];
            pairs(two, src + (ptrdiff_t)p * cs, cs, rows, left(k, p));
            _mm512_storeu_si512(dst, two[0]);
            _mm512_storeu_si512(dst + 32, two[1]);
        }
    } else if (cs == 1) {
        for (size_t p = 0; p < kpad; p += KR, dst += NR * KR)
            for (size_t h = 0; h < 2; h++) {
                __m512i x[16];
                for (size_t i = 0; i < 16; i++)
                    x[i] = load(src + (ptrdiff_t)(16 * h + i) * rs + (ptrdiff_t)p, 16 * h + i < rows ? left(k, p) : 0);
                xl_transpose16(x);
                for (size_t q = 0; q < 16; q++)
                    _mm512_storeu_si512(dst + q * 2 * NR + 32 * h, x[q]);
            }
    } else {
        for (size_t p = 0; p < kpad; p++)
            for (size_t i = 0; i < NR; i++)
                dst[(p / 2 * NR + i) * 2 + p % 2] = i < rows && p < k ? src[(ptrdiff_t)i * rs + (ptrdiff_t)p * cs] : 0;
    }
}

const xl_gemm_kernel xl_gemm_amx_bf16 = {
    .name = "amx 32x32 bf16",
    .needs = XL_CPU_AVX2 | XL_CPU_AVX512 | XL_CPU_AVX512_BF16 | XL_CPU_AMX_BF16,
    .packed = XL_GEMM_BF16,
    .size = 2,
    .mr = MR,
    .nr = NR,
    .kr = KR,
    .kc = 512,
    .tile_m = 256,
    .tile_n = 512,
    .speed = 6,
    .own = true,
    .enter = enter,
    .leave = leave,
    .tile = tdpbf16_32x32,
    .pack_a = { [XL_GEMM_BF16] = pack_a },
    .pack_b = { [XL_GEMM_BF16] = pack_b },
};
#else
const xl_gemm_kernel xl_gemm_amx_bf16 = { .name = "amx", .needs = XL_CPU_NEVER };
#endif
