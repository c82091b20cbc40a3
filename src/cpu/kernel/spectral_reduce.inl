/* Reduction of a real matrix to tridiagonal, bidiagonal and Hessenberg form: T, NAME. A panel of columns is reduced one
 * reflector at a time; of a reflector's effect on the rest of the matrix only the product with it is computed, by
 * blocks of columns. The rest is updated once per panel, also by blocks of columns. */
typedef struct {
    const xl_spectral *f;
    xl_pool *pool;
    i32 m, n;
    T *a, *x, *y, *part; /* x: m, y: n rows, PANEL columns; part: products of blocks */
    i32 row, col;                                          /* where the matrix that is multiplied begins */
    const T *v;                                            /* the vector, by rows or columns of the matrix */
    const T *t; /* of a Hessenberg panel: the triangle of its block of reflectors */
    i32 at, width;                                         /* the panel whose update is under way */
} NAME(reduction);

static T *NAME(el)(const NAME(reduction) *j, i32 row, i32 col) { return j->a + (size_t)col * (size_t)j->m + row; }
static void NAME(gemv)(const xl_spectral *f, char *trans, i32 m, i32 n, T alpha, const T *a, i32 ld, const T *x,
                       i32 incx, T *y, i32 incy)
{
    T one = 1;
    if (m > 0 && n > 0)
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P, L))f->gemv)(trans, &m, &n, &alpha, (P)(uintptr_t)a, &ld,
                                                                (P)(uintptr_t)x, &incx, &one, y, &incy, 1);
}
static void NAME(gemm)(const xl_spectral *f, char *ta, char *tb, i32 m, i32 n, i32 k, T alpha, const T *a, i32 lda,
                       const T *b, i32 ldb, T beta, T *c, i32 ldc)
{
    if (m > 0 && n > 0)
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))f->gemm)(
            ta, tb, &m, &n, &k, &alpha, (P)(uintptr_t)a, &lda, (P)(uintptr_t)b, &ldb, &beta, c, &ldc, 1, 1);
}
static T NAME(larfg)(const xl_spectral *f, i32 n, T *alpha, T *x, i32 inc)
{
    T tau;
    ((void (*)(P, P, P, P, P))f->larfg)(&n, alpha, x, &inc, &tau);
    return tau;
}
static void NAME(scale)(T *x, i32 n, T by)
{
    for (i32 i = 0; i < n; i++)
        x[i] *= by;
}

/* Blocks of columns begin at multiples of BLOCK, so that a thread meets the same ones again. */
static size_t NAME(pieces)(const NAME(reduction) *j) { return (size_t)((j->n - 1) / BLOCK - j->col / BLOCK + 1); }
static block NAME(piece)(const NAME(reduction) *j, size_t i)
{
    i32 k = j->col / BLOCK + (i32)i, from = k * BLOCK > j->col ? k * BLOCK : j->col,
        to = (k + 1) * BLOCK < j->n ? (k + 1) * BLOCK : j->n;
    return (block){ from, to - from };
}
static void NAME(share)(NAME(reduction) *j, xl_pool_fn *fn)
{
    double work = (double)(j->m - j->row) * (double)(j->n - j->col);
    xl_pool_for(work < ALONE ? NULL : j->pool, NAME(pieces)(j), 1, fn, j);
}
/* The products of the blocks, one after another. */
static void NAME(join)(const NAME(reduction) *j, T *y, i32 rows, bool lower)
{
    size_t n = NAME(pieces)(j);
    memcpy(y, j->part + j->row, (size_t)rows * sizeof(T));
    for (size_t i = 1; i < n; i++) {
        const T *restrict p = j->part + i * (size_t)j->m + j->row;
        T *restrict to = y;
        for (i32 r = lower ? NAME(piece)(j, i).col - j->row : 0; r < rows; r++)
            to[r] += p[r];
    }
}

/* ---- tridiagonal ------------------------------------------------------------------------------------------------- */
/* y[0, n) of the n x n triangle that begins at row and column `at`. */
static void NAME(symv)(const NAME(reduction) *j, i32 at, i32 n, const T *v, T *y)
{
    i32 ld = j->m, inc = 1;
    T one = 1;
    memset(y, 0, (size_t)n * sizeof(T));
    ((void (*)(P, P, P, P, P, P, P, P, P, P, L))j->f->symv)(low, &n, &one, NAME(el)(j, at, at), &ld, (P)(uintptr_t)v,
                                                            &inc, &one, y, &inc, 1);
}
static void NAME(symv_piece)(void *ctx, size_t begin, size_t end)
{
    const NAME(reduction) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        block b = NAME(piece)(j, i);
        i32 below = b.col + b.cols, rest = j->n - below, ld = j->m;
        T *y = j->part + i * (size_t)j->m;
        const T *v = j->v;
        memset(y + below, 0, (size_t)rest * sizeof(T));
        NAME(symv)(j, b.col, b.cols, v + b.col, y + b.col);
        for (i32 r = 0; r < rest; r += ROWS) {             /* the second product finds the rows in the cache */
            i32 rows = least(ROWS, rest - r);
            const T *a = NAME(el)(j, below + r, b.col);
            NAME(gemv)(j->f, plain, rows, b.cols, 1, a, ld, v + b.col, 1, y + below + r, 1);
            NAME(gemv)(j->f, turned, rows, b.cols, 1, a, ld, v + below + r, 1, y + b.col, 1);
        }
    }
}
/* a -= v w' + w v' behind a panel; x has v and w, y has w and v. */
static void NAME(symmetric_update)(void *ctx, size_t begin, size_t end)
{
    const NAME(reduction) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        block b = NAME(piece)(j, i);
        NAME(gemm)(j->f, plain, turned, j->n - b.col, b.cols, 2 * PANEL, -1, j->x + b.col, j->m, j->y + b.col, j->m, 1,
                   NAME(el)(j, b.col, b.col), j->m);
    }
}
static i32 NAME(tridiagonal)(const xl_spectral *f, xl_pool *pool, i32 n, T *a, T *d, T *e, T *tau)
{
    size_t rows = (size_t)n, pieces = rows / BLOCK + 2;
    T *mem = malloc((rows * (4 * PANEL + pieces) + PANEL + 1) * sizeof(T));
    if (!mem)
        return XL_SPECTRAL_LACKING;
    T *t = mem + rows * (4 * PANEL + pieces);
    NAME(reduction) j = { f, pool, n, n, a, mem, mem + 2 * PANEL * rows, mem + 4 * PANEL * rows };
    T *v = j.x, *w = j.y;                                  /* the other halves are copies for the update */
    i32 at = 0, info = 0;
    for (; n - at > REST; at += PANEL) {
        for (i32 i = 0; i < PANEL; i++) {
            i32 c = at + i, left = n - c, rest = left - 1;
            T *col = NAME(el)(&j, 0, c), *wi = w + (size_t)i * rows;
            NAME(gemv)(f, plain, left, i, -1, NAME(el)(&j, c, at), n, w + c, n, col + c, 1);
            NAME(gemv)(f, plain, left, i, -1, w + c, n, NAME(el)(&j, c, at), n, col + c, 1);
            d[c] = col[c];
            tau[c] = NAME(larfg)(f, rest, col + c + 1, col + least(c + 2, n - 1), 1);
            e[c] = col[c + 1];
            col[c + 1] = 1;
            j.row = j.col = c + 1, j.v = col;
            if (rest <= WHOLE) {
                NAME(symv)(&j, c + 1, rest, col + c + 1, wi + c + 1);
            } else {
                NAME(share)(&j, NAME(symv_piece));
                NAME(join)(&j, wi + c + 1, rest, true);
            }
            memset(t, 0, PANEL * sizeof(T));
            NAME(gemv)(f, turned, rest, i, 1, w + c + 1, n, col + c + 1, 1, t, 1);
            NAME(gemv)(f, plain, rest, i, -1, NAME(el)(&j, c + 1, at), n, t, 1, wi + c + 1, 1);
            memset(t, 0, PANEL * sizeof(T));
            NAME(gemv)(f, turned, rest, i, 1, NAME(el)(&j, c + 1, at), n, col + c + 1, 1, t, 1);
            NAME(gemv)(f, plain, rest, i, -1, w + c + 1, n, t, 1, wi + c + 1, 1);
            NAME(scale)(wi + c + 1, rest, tau[c]);
            t[0] = 0;
            NAME(gemv)(f, turned, rest, 1, 1, wi + c + 1, n, col + c + 1, 1, t, 1);
            T alpha = (T)-0.5 * tau[c] * t[0];
            for (i32 r = c + 1; r < n; r++)
                wi[r] += alpha * col[r];
        }
        j.at = at, j.row = j.col = at + PANEL;
        for (i32 i = 0; i < PANEL; i++) {
            size_t from = (size_t)j.row, bytes = (size_t)(n - j.row) * sizeof(T);
            memcpy(v + (size_t)i * rows + from, NAME(el)(&j, j.row, at + i), bytes);
            memcpy(v + (size_t)(PANEL + i) * rows + from, w + (size_t)i * rows + from, bytes);
            memcpy(w + (size_t)(PANEL + i) * rows + from, NAME(el)(&j, j.row, at + i), bytes);
        }
        NAME(share)(&j, NAME(symmetric_update));
        for (i32 c = at; c < at + PANEL; c++)
            *NAME(el)(&j, c + 1, c) = e[c];
    }
    i32 rest = n - at, lwork = (i32)(4 * PANEL * rows);
    ((void (*)(P, P, P, P, P, P, P, P, P, P, L))f->sytrd)(low, &rest, NAME(el)(&j, at, at), &n, d + at, e + at,
                                                          tau + at, mem, &lwork, &info, 1);
    free(mem);
    return info;
}

/* ---- bidiagonal -------------------------------------------------------------------------------------------------- */
static void NAME(gemv_t_piece)(void *ctx, size_t begin, size_t end)
{
    const NAME(reduction) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        block b = NAME(piece)(j, i);
        memset(j->part + b.col, 0, (size_t)b.cols * sizeof(T));
        NAME(gemv)
        (j->f, turned, j->m - j->row, b.cols, 1, NAME(el)(j, j->row, b.col), j->m, j->v, 1, j->part + b.col, 1);
    }
}
static void NAME(gemv_n_piece)(void *ctx, size_t begin, size_t end)
{
    const NAME(reduction) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        block b = NAME(piece)(j, i);
        T *y = j->part + i * (size_t)j->m + j->row;
        memset(y, 0, (size_t)(j->m - j->row) * sizeof(T));
        NAME(gemv)
        (j->f, plain, j->m - j->row, b.cols, 1, NAME(el)(j, j->row, b.col), j->m, j->v + (b.col - j->col), 1, y, 1);
    }
}
static void NAME(general_update)(void *ctx, size_t begin, size_t end)
{
    const NAME(reduction) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        block b = NAME(piece)(j, i);
        i32 rows = j->m - j->row;
        T *to = NAME(el)(j, j->row, b.col);
        NAME(gemm)
        (j->f, plain, turned, rows, b.cols, PANEL, -1, NAME(el)(j, j->row, j->at), j->m, j->y + b.col, j->n, 1, to,
         j->m);
        NAME(gemm)(j->f, plain, plain, rows, b.cols, PANEL, -1, j->x + j->row, j->m, NAME(el)(j, j->at, b.col), j->m, 1,
                   to, j->m);
    }
}
/* m >= n: upper bidiagonal. */
static i32 NAME(bidiagonal)(const xl_spectral *f, xl_pool *pool, i32 m, i32 n, T *a, T *d, T *e, T *tauq, T *taup)
{
    size_t rows = (size_t)m, cols = (size_t)n, pieces = cols / BLOCK + 2;
    size_t all = rows * (PANEL + pieces) + cols * (PANEL + 1) + PANEL + 1;
    T *mem = malloc(all * sizeof(T)), *x = mem;
    if (!mem)
        return XL_SPECTRAL_LACKING;
    T *y = x + rows * PANEL;
    NAME(reduction) j = { f, pool, m, n, a, x, y, y + cols * PANEL };
    T *u = j.part + rows * pieces, *t = u + cols;
    i32 at = 0, info = 0;
    for (; n - at > REST; at += PANEL) {
        for (i32 i = 0; i < PANEL; i++) {
            i32 c = at + i, long_ = m - c, wide = n - c - 1;
            T *col = NAME(el)(&j, c, c), *row = NAME(el)(&j, c, c + 1), *yi = y + (size_t)i * cols + c + 1,
              *xi = x + (size_t)i * rows + c + 1;
            NAME(gemv)(f, plain, long_, i, -1, NAME(el)(&j, c, at), m, y + c, n, col, 1);
            NAME(gemv)(f, plain, long_, i, -1, x + c, m, NAME(el)(&j, at, c), 1, col, 1);
            tauq[c] = NAME(larfg)(f, long_, col, col + least(1, long_ - 1), 1);
            d[c] = *col;
            *col = 1;
            j.row = c, j.col = c + 1, j.v = col;
            NAME(share)(&j, NAME(gemv_t_piece));
            memcpy(yi, j.part + c + 1, (size_t)wide * sizeof(T));
            memset(t, 0, PANEL * sizeof(T));
            NAME(gemv)(f, turned, long_, i, 1, NAME(el)(&j, c, at), m, col, 1, t, 1);
            NAME(gemv)(f, plain, wide, i, -1, y + c + 1, n, t, 1, yi, 1);
            memset(t, 0, PANEL * sizeof(T));
            NAME(gemv)(f, turned, long_, i, 1, x + c, m, col, 1, t, 1);
            NAME(gemv)(f, turned, i, wide, -1, NAME(el)(&j, at, c + 1), m, t, 1, yi, 1);
            NAME(scale)(yi, wide, tauq[c]);
            NAME(gemv)(f, plain, wide, i + 1, -1, y + c + 1, n, NAME(el)(&j, c, at), m, row, m);
            NAME(gemv)(f, turned, i, wide, -1, NAME(el)(&j, at, c + 1), m, x + c, m, row, m);
            taup[c] = NAME(larfg)(f, wide, row, row + (wide > 1 ? m : 0), m);
            e[c] = *row;
            *row = 1;
            for (i32 k = 0; k < wide; k++)
                u[k] = row[(size_t)k * rows];
            j.row = c + 1, j.v = u;
            NAME(share)(&j, NAME(gemv_n_piece));
            NAME(join)(&j, xi, long_ - 1, false);
            memset(t, 0, (PANEL + 1) * sizeof(T));
            NAME(gemv)(f, turned, wide, i + 1, 1, y + c + 1, n, u, 1, t, 1);
            NAME(gemv)(f, plain, long_ - 1, i + 1, -1, NAME(el)(&j, c + 1, at), m, t, 1, xi, 1);
            memset(t, 0, PANEL * sizeof(T));
            NAME(gemv)(f, plain, i, wide, 1, NAME(el)(&j, at, c + 1), m, u, 1, t, 1);
            NAME(gemv)(f, plain, long_ - 1, i, -1, x + c + 1, m, t, 1, xi, 1);
            NAME(scale)(xi, long_ - 1, taup[c]);
        }
        j.at = at, j.row = j.col = at + PANEL;
        NAME(share)(&j, NAME(general_update));
        for (i32 c = at; c < at + PANEL; c++)
            *NAME(el)(&j, c, c) = d[c], *NAME(el)(&j, c, c + 1) = e[c];
    }
    i32 high = m - at, wide = n - at, lwork = (i32)(rows * PANEL + cols * PANEL);
    ((void (*)(P, P, P, P, P, P, P, P, P, P, P))f->gebrd)(&high, &wide, NAME(el)(&j, at, at), &m, d + at, e + at,
                                                          tauq + at, taup + at, mem, &lwork, &info);
    free(mem);
    return info;
}

/* ---- Hessenberg -------------------------------------------------------------------------------------------------- */
/* Rows above a panel's own: y = a v, then times the triangle. */
static void NAME(product_above)(void *ctx, size_t begin, size_t end)
{
    const NAME(reduction) *j = ctx;
    i32 inner = j->n - j->row;
    for (size_t i = begin; i < end; i++) {
        i32 r = (i32)i * BLOCK, some = least(BLOCK, j->row - r);
        T av[BLOCK * PANEL];
        NAME(gemm)(j->f, plain, plain, some, PANEL, inner, 1, NAME(el)(j, r, j->row), j->m, j->x + j->row, j->m, 0, av,
                   BLOCK);
        NAME(gemm)(j->f, plain, plain, some, PANEL, PANEL, 1, av, BLOCK, j->t, PANEL, 0, j->y + r, j->m);
    }
}
/* a = (I - v t v')' (a - y v') behind a panel. */
static void NAME(similar_update)(void *ctx, size_t begin, size_t end)
{
    const NAME(reduction) *j = ctx;
    i32 top = j->at + 1, rows = j->n - top;
    for (size_t i = begin; i < end; i++) {
        block b = NAME(piece)(j, i);
        T va[PANEL * BLOCK], tva[PANEL * BLOCK];
        NAME(gemm)(j->f, plain, turned, j->n, b.cols, PANEL, -1, j->y, j->m, j->x + b.col, j->m, 1,
                   NAME(el)(j, 0, b.col), j->m);
        NAME(gemm)(j->f, turned, plain, PANEL, b.cols, rows, 1, j->x + top, j->m, NAME(el)(j, top, b.col), j->m, 0, va,
                   PANEL);
        NAME(gemm)(j->f, turned, plain, PANEL, b.cols, PANEL, 1, j->t, PANEL, va, PANEL, 0, tva, PANEL);
        NAME(gemm)(j->f, plain, plain, rows, b.cols, PANEL, -1, j->x + top, j->m, tva, PANEL, 1,
                   NAME(el)(j, top, b.col), j->m);
    }
}
/* a has n columns, ld elements apart. */
static i32 NAME(hessenberg)(const xl_spectral *f, xl_pool *pool, i32 n, T *a, i32 ld, T *tau)
{
    size_t rows = (size_t)ld, pieces = (size_t)n / BLOCK + 2;
    T *mem = malloc((rows * (2 * PANEL + pieces + 1) + PANEL * PANEL + PANEL) * sizeof(T));
    if (!mem)
        return XL_SPECTRAL_LACKING;
    T *v = mem, *y = v + rows * PANEL, *last = y + rows * (PANEL + pieces), *t = last + rows, *w = t + PANEL * PANEL;
    NAME(reduction) j = { f, pool, ld, n, a, v, y, y + rows * PANEL, .t = t };
    i32 at = 0, info = 0;
    for (; n - at > REST; at += PANEL) {
        i32 top = at + 1;
        memset(v, 0, rows * PANEL * sizeof(T));
        memset(t, 0, PANEL * PANEL * sizeof(T));
        for (i32 i = 0; i < PANEL; i++) {
            i32 c = at + i, rest = n - c - 1;
            T *col = NAME(el)(&j, 0, c), *vi = v + (size_t)i * rows, *yi = y + (size_t)i * rows, *ti = t + i * PANEL;
            if (i) {                                       /* what the panel's reflectors so far do to this column */
                T tw[PANEL] = { 0 };
                NAME(gemv)(f, plain, n - top, i, -1, y + top, ld, v + c, ld, col + top, 1);
                memset(w, 0, PANEL * sizeof(T));
                NAME(gemv)(f, turned, n - top, i, 1, v + top, ld, col + top, 1, w, 1);
                NAME(gemv)(f, turned, i, i, 1, t, PANEL, w, 1, tw, 1);
                NAME(gemv)(f, plain, n - top, i, -1, v + top, ld, tw, 1, col + top, 1);
            }
            tau[c] = NAME(larfg)(f, rest, col + c + 1, col + least(c + 2, n - 1), 1);
            memcpy(vi + c + 1, col + c + 1, (size_t)rest * sizeof(T));
            vi[c + 1] = 1;
            j.row = top, j.col = c + 1, j.v = vi + c + 1;
            NAME(share)(&j, NAME(gemv_n_piece));
            NAME(join)(&j, yi + top, n - top, false);
            memset(w, 0, PANEL * sizeof(T));
            NAME(gemv)(f, turned, rest, i, 1, v + c + 1, ld, vi + c + 1, 1, w, 1);
            NAME(gemv)(f, plain, n - top, i, -1, y + top, ld, w, 1, yi + top, 1);
            NAME(scale)(yi + top, n - top, tau[c]);
            NAME(gemv)(f, plain, i, i, -tau[c], t, PANEL, w, 1, ti, 1);
            ti[i] = tau[c];
        }
        j.at = at, j.row = top;
        xl_pool_for(pool, (size_t)((top + BLOCK - 1) / BLOCK), 1, NAME(product_above), &j);
        NAME(gemm)(f, plain, turned, top, PANEL - 1, PANEL, -1, y, ld, v + top, ld, 1, NAME(el)(&j, 0, top), ld);
        j.col = at + PANEL;
        NAME(share)(&j, NAME(similar_update));
    }
    i32 from = at + 1, lwork = (i32)(2 * PANEL * rows);
    ((void (*)(P, P, P, P, P, P, P, P, P))f->gehrd)(&n, &from, &n, a, &ld, last, mem, &lwork, &info);
    memcpy(tau + at, last + at, (size_t)(n - 1 - at) * sizeof(T));
    free(mem);
    return info;
}
