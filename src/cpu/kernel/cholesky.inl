/* Row by row, XL_CHOLESKY_ROWS at once: an element is what it was less the sum of all products of the rows above,
 * divided by the diagonal's. That sum is made by itself, in runs of RUN products, so the large element is rounded once.
 * T, ROOT, NAME; cholesky_set.inl has the rest. */
typedef T NAME(vec) __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
#define V NAME(vec)
#define LANES ((int32_t)(BYTES / sizeof(T)))
#define AT(row, v) (*(V *)((row) + from + (v) * LANES))
#define RUN 16

/* Rows i to i + 3, `nv` vectors from column `from` on; `first`: those that have the diagonal. */
INLINE int32_t NAME(block)(const int nv, const bool first, T *a, int32_t step, int32_t i, int32_t from)
{
    V sum[XL_CHOLESKY_ROWS][WIDE], part[XL_CHOLESKY_ROWS][WIDE];
    UNROLL for (int r = 0; r < XL_CHOLESKY_ROWS; r++)
        UNROLL for (int v = 0; v < nv; v++)
            sum[r][v] = (V){ 0 };
    T *row = a;
    for (int32_t k = 0; k < i; ) {
        int32_t end = i - k < RUN ? i : k + RUN;
        UNROLL for (int r = 0; r < XL_CHOLESKY_ROWS; r++)
            UNROLL for (int v = 0; v < nv; v++)
                part[r][v] = (V){ 0 };
        for (; k < end; k++, row += step)
            UNROLL for (int r = 0; r < XL_CHOLESKY_ROWS; r++)
                UNROLL for (int v = 0; v < nv; v++)
                    part[r][v] += row[i + r] * AT(row, v);
        UNROLL for (int r = 0; r < XL_CHOLESKY_ROWS; r++)
            UNROLL for (int v = 0; v < nv; v++)
                sum[r][v] += part[r][v];
    }
    UNROLL for (int r = 0; r < XL_CHOLESKY_ROWS; r++, row += step) {
        V x[WIDE];
        UNROLL for (int v = 0; v < nv; v++)
            x[v] = AT(row, v) - sum[r][v];
        if (first) {
            UNROLL for (int v = 0; v < nv; v++)
                AT(row, v) = x[v];
            if (!(row[i + r] > 0))
                return i + r + 1;
            row[i + r] = ROOT(row[i + r]);
        }
        T root = row[i + r];
        UNROLL for (int v = 0; v < nv; v++)
            AT(row, v) = x[v] / root;
        row[i + r] = root;
        UNROLL for (int q = 1; q < XL_CHOLESKY_ROWS; q++)
            UNROLL for (int v = 0; v < nv && q > r; v++)
                sum[q][v] += row[i + q] * AT(row, v);
    }
    return 0;
}
INLINE int32_t NAME(some)(int32_t nv, const bool first, T *a, int32_t step, int32_t i, int32_t from)
{
    switch (nv) {
    case 1: return NAME(block)(1, first, a, step, i, from);
    case 2: return NAME(block)(WIDE < 2 ? WIDE : 2, first, a, step, i, from);
    case 3: return NAME(block)(WIDE < 3 ? WIDE : 3, first, a, step, i, from);
    default: return NAME(block)(WIDE, first, a, step, i, from);
    }
}
static int32_t NAME(factor)(T *a, int32_t n, int32_t step)
{
    for (int32_t i = 0; i < n; i += XL_CHOLESKY_ROWS)
        for (int32_t from = i / LANES * LANES, begin = from; from < n; from += WIDE * LANES) {
            int32_t left = (n - from + LANES - 1) / LANES, nv = left < WIDE ? left : WIDE;
            int32_t info = from == begin ? NAME(some)(nv, true, a, step, i, from)
                                         : NAME(some)(nv, false, a, step, i, from);
            if (info)
                return info;
        }
    return 0;
}
#undef V
#undef LANES
#undef AT
#undef RUN
