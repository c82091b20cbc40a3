/* src/cpu/kernel/gemm_pack.inl: packs S into panels of P: one always-inline body, called with constants. Define before
 * including: S (source), P (packed), LOAD(s), NAME(f), and LOAD4(p) if four elements can be loaded as a vector of P. */
__attribute__((always_inline)) static inline void NAME(pack)(P *restrict dst, const S *restrict src, ptrdiff_t rs,
                                                             ptrdiff_t cs, size_t rows, size_t k, size_t kpad, size_t R,
                                                             size_t KR)
{
    if (KR == 1 && rows == R && rs == 1) {
        for (size_t p = 0; p < k; p++, src += cs, dst += R) {
            size_t i = 0;
#ifdef LOAD4
            for (; i + 4 <= R; i += 4)
                *(f32x4 *)(dst + i) = LOAD4(src + i);
#endif
            for (; i < R; i++)
                dst[i] = LOAD(src[i]);
        }
        return;
    }
    if (KR == 1 && rows == R && cs == 1) {
        size_t p = 0;
        for (; p + 4 <= k; p += 4)
            for (size_t i = 0; i < R; i += R - i >= 4 ? 4 : 1) {
                if (R - i < 4) {
                    for (size_t q = 0; q < 4; q++)
                        dst[(p + q) * R + i] = LOAD(src[(ptrdiff_t)i * rs + (ptrdiff_t)(p + q)]);
                    continue;
                }
#ifdef LOAD4
                const S *q0 = src + (ptrdiff_t)i * rs + (ptrdiff_t)p;
                f32x4 a = LOAD4(q0), b = LOAD4(q0 + rs), c = LOAD4(q0 + 2 * rs), d = LOAD4(q0 + 3 * rs);
                f32x4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
                f32x4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
                P *to = dst + p * R + i;
                *(f32x4 *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
                *(f32x4 *)(to + R) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
                *(f32x4 *)(to + 2 * R) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
                *(f32x4 *)(to + 3 * R) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
#else
                P t[4][4];
                for (size_t r = 0; r < 4; r++)
                    for (size_t q = 0; q < 4; q++)
                        t[q][r] = LOAD(src[(ptrdiff_t)(i + r) * rs + (ptrdiff_t)(p + q)]);
                for (size_t q = 0; q < 4; q++)
                    for (size_t r = 0; r < 4; r++)
                        dst[(p + q) * R + i + r] = t[q][r];
#endif
            }
        for (; p < k; p++)
            for (size_t i = 0; i < R; i++)
                dst[p * R + i] = LOAD(src[(ptrdiff_t)i * rs + (ptrdiff_t)p]);
        return;
    }
    if (KR > 1 && rows == R && cs == 1) {
        size_t p = 0;
        for (; p + KR <= k; p += KR)
            for (size_t i = 0; i < R; i++)
                for (size_t q = 0; q < KR; q++)
                    dst[(p * R) + i * KR + q] = LOAD(src[(ptrdiff_t)i * rs + (ptrdiff_t)(p + q)]);
        if (p < kpad)
            for (size_t i = 0; i < R; i++)
                for (size_t q = 0; q < KR; q++)
                    dst[(p * R) + i * KR + q] = p + q < k ? LOAD(src[(ptrdiff_t)i * rs + (ptrdiff_t)(p + q)]) : 0;
        return;
    }
    if (KR > 1 && rows == R && rs == 1) {
        size_t p = 0;
        for (; p + KR <= k; p += KR)
            for (size_t i = 0; i < R; i++)
                for (size_t q = 0; q < KR; q++)
                    dst[(p * R) + i * KR + q] = LOAD(src[i + (p + q) * (size_t)cs]);
        if (p < kpad)
            for (size_t i = 0; i < R; i++)
                for (size_t q = 0; q < KR; q++)
                    dst[(p * R) + i * KR + q] = p + q < k ? LOAD(src[i + (p + q) * (size_t)cs]) : 0;
        return;
    }
    for (size_t p = 0; p < kpad; p++)
        for (size_t i = 0; i < R; i++)
            dst[(p / KR * R + i) * KR + p % KR] =
                i < rows && p < k ? LOAD(src[(ptrdiff_t)i * rs + (ptrdiff_t)p * cs]) : 0;
}
static void NAME(pack_a)(void *dst, const void *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k, size_t kpad)
{
    NAME(pack)(dst, src, rs, cs, rows, k, kpad, MR, KSTEP);
}
static void NAME(pack_b)(void *dst, const void *src, ptrdiff_t rs, ptrdiff_t cs, size_t rows, size_t k, size_t kpad)
{
    NAME(pack)(dst, src, rs, cs, rows, k, kpad, NR, KSTEP);
}
#undef S
#undef LOAD
#undef LOAD4
#undef NAME
