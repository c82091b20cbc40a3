/* src/cpu/kernel/gemm_skinny.inl: products with m or n of at most 4: the large matrix is read once, in place. Define
 * before including: S (type of the matrix), P (type of the sums), LANES, LOAD(s), GET(p) (LANES elements as a vector of
 * P), NAME(f). */
typedef P NAME(vec) __attribute__((vector_size(LANES * sizeof(P)), aligned(sizeof(P)), may_alias));

__attribute__((always_inline)) static inline void NAME(axpy_block)(size_t k, const P *x, const S *mat, ptrdiff_t step,
                                                                   P *y, ptrdiff_t ldy, const int count, const int nv)
{
    NAME(vec) acc[16];
    UNROLL
    for (int i = 0; i < count * nv; i++)
        acc[i] = (NAME(vec)){ 0 };
    for (size_t p = 0; p < k; p++, x += 4, mat += step)
        UNROLL
        for (int j = 0; j < nv; j++) {
            NAME(vec) m = GET(mat + j * LANES);
            UNROLL
            for (int s = 0; s < count; s++)
                acc[s * nv + j] += m * x[s];
        }
    UNROLL
    for (int s = 0; s < count; s++)
        UNROLL
        for (int j = 0; j < nv; j++)
            *(NAME(vec) *)(y + s * ldy + j * LANES) = acc[s * nv + j];
}

/* One row: nothing is used twice, so all that counts is that the matrix comes in long pieces. Four of its rows at a
 * time. */
__attribute__((always_inline)) static inline void NAME(axpy_rows)(size_t n, const P *x, const S *mat, ptrdiff_t step,
                                                                  P *y, const int rows)
{
    size_t r = 0;
    P f[4];
    UNROLL
    for (int i = 0; i < rows; i++)
        f[i] = x[4 * i];
    for (; r + 4 * LANES <= n; r += 4 * LANES) {
        NAME(vec) acc[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            acc[j] = *(NAME(vec) *)(y + r + j * LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            __builtin_prefetch(mat + (i + 2 * rows) * step + r);
            UNROLL
            for (int j = 0; j < 4; j++)
                acc[j] += GET(mat + i * step + r + j * LANES) * f[i];
        }
        UNROLL
        for (int j = 0; j < 4; j++)
            *(NAME(vec) *)(y + r + j * LANES) = acc[j];
    }
    for (; r < n; r += LANES) {
        NAME(vec) acc = *(NAME(vec) *)(y + r);
        UNROLL
        for (int i = 0; i < rows; i++)
            acc += GET(mat + i * step + r) * f[i];
        *(NAME(vec) *)(y + r) = acc;
    }
}

static void NAME(axpy)(size_t k, size_t n, size_t count, const void *xv, const void *matv, ptrdiff_t step, void *yv,
                       ptrdiff_t ldy)
{
    const P *x = xv;
    const S *mat = matv;
    P *y = yv;
    size_t r = 0;
    switch (count) {
    case 1: {
        r = n / LANES * LANES;
        memset(y, 0, r * sizeof *y);
        size_t p = 0;
        for (; p + 4 <= k; p += 4)
            NAME(axpy_rows)(r, x + 4 * p, mat + (ptrdiff_t)p * step, step, y, 4);
        for (; p < k; p++)
            NAME(axpy_rows)(r, x + 4 * p, mat + (ptrdiff_t)p * step, step, y, 1);
        break;
    }
    case 2:
        for (; r + 8 * LANES <= n; r += 8 * LANES)
            NAME(axpy_block)(k, x, mat + r, step, y + r, ldy, 2, 8);
        break;
    case 3:
        for (; r + 4 * LANES <= n; r += 4 * LANES)
            NAME(axpy_block)(k, x, mat + r, step, y + r, ldy, 3, 4);
        break;
    default:
        for (; r + 4 * LANES <= n; r += 4 * LANES)
            NAME(axpy_block)(k, x, mat + r, step, y + r, ldy, 4, 4);
    }
    for (; r < n; r++)
        for (size_t s = 0; s < count; s++) {
            P acc = 0;
            for (size_t p = 0; p < k; p++)
                acc += x[p * 4 + s] * LOAD(mat[(ptrdiff_t)r + (ptrdiff_t)p * step]);
            y[(ptrdiff_t)s * ldy + (ptrdiff_t)r] = acc;
        }
}

__attribute__((always_inline)) static inline void NAME(dot_block)(size_t k, const P *x, const S *mat, ptrdiff_t step,
                                                                  P *y, const int rows)
{
    enum { U = 4 };
    NAME(vec) acc[4][U];
    UNROLL
    for (int r = 0; r < rows; r++)
        UNROLL
        for (int u = 0; u < U; u++)
            acc[r][u] = (NAME(vec)){ 0 };
    size_t p = 0;
    for (; p + U * LANES <= k; p += U * LANES)
        UNROLL
        for (int u = 0; u < U; u++) {
            NAME(vec) xv = *(const NAME(vec) *)(x + p + u * LANES);
            UNROLL
            for (int r = 0; r < rows; r++)
                acc[r][u] += xv * GET(mat + r * step + p + u * LANES);
        }
    UNROLL
    for (int u = 0; u < U - 1; u++)                          /* vectors that are left */
        if (p + LANES <= k) {
            NAME(vec) xv = *(const NAME(vec) *)(x + p);
            UNROLL
            for (int r = 0; r < rows; r++)
                acc[r][u] += xv * GET(mat + r * step + p);
            p += LANES;
        }
    UNROLL
    for (int r = 0; r < rows; r++) {
        NAME(vec) t = (acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3]);
        P rest = 0;                                          /* numbers that are left, apart from the large sum */
        UNROLL
        for (int w = LANES / 2; w; w /= 2)
            UNROLL
            for (int l = 0; l < w; l++)
                t[l] += t[l + w];
        for (size_t q = p; q < k; q++)
            rest += x[q] * LOAD(mat[r * step + (ptrdiff_t)q]);
        y[r] = t[0] + rest;
    }
}

static void NAME(dot)(size_t k, size_t n, const void *x, const void *matv, ptrdiff_t step, void *yv)
{
    const S *mat = matv;
    P *y = yv;
    size_t r = 0;
    for (; r + 4 <= n; r += 4)
        NAME(dot_block)(k, x, mat + (ptrdiff_t)r * step, step, y + r, 4);
    for (; r < n; r++)
        NAME(dot_block)(k, x, mat + (ptrdiff_t)r * step, step, y + r, 1);
}
#undef S
#undef LOAD
#undef GET
#undef NAME
