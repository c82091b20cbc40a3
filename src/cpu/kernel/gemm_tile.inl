/* src/cpu/kernel/gemm_tile.inl: the micro-kernel, with the compiler's vectors. Define before including: P (element),
 * LANES (in a vector), MR, NR (a multiple of LANES), TILE (its name). The file is compiled with contraction: products
 * are meant to be fused with their sums. */
typedef P VEC(TILE) __attribute__((vector_size(LANES * sizeof(P)), aligned(sizeof(P)), may_alias));

__attribute__((always_inline)) static inline void BODY(TILE)(size_t k, const void *av, const void *bv, ptrdiff_t step,
                                                             void *cv, ptrdiff_t ldc, bool accumulate)
{
    enum { NV = NR / LANES };
    const P *a = av, *b = bv;
    P *c = cv;
    VEC(TILE) acc[MR][NV];
    UNROLL
    for (int i = 0; i < MR; i++)
        UNROLL
        for (int j = 0; j < NV; j++)
            acc[i][j] = (VEC(TILE)){ 0 };
    for (size_t p = 0; p < k; p++, a += MR, b += step) {
        VEC(TILE) x[NV];
        UNROLL
        for (int j = 0; j < NV; j++)
            x[j] = *(const VEC(TILE) *)(b + j * LANES);
        UNROLL
        for (int i = 0; i < MR; i++)
            UNROLL
            for (int j = 0; j < NV; j++)
                acc[i][j] += x[j] * a[i];
    }
    UNROLL
    for (int i = 0; i < MR; i++)
        UNROLL
        for (int j = 0; j < NV; j++) {
            VEC(TILE) *y = (VEC(TILE) *)(c + i * ldc + j * LANES);
            if (accumulate)
                acc[i][j] += *y;
            *y = acc[i][j];
        }
}

static void TILE(size_t k, const void *a, const void *b, void *c, ptrdiff_t ldc, bool accumulate)
{
    BODY(TILE)(k, a, b, NR, c, ldc, accumulate);
}
