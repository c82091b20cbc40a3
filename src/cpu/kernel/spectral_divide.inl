/* Divide and conquer for tridiagonal and bidiagonal matrices: T, NAME. The matrix is split into small ones, which
 * LAPACK solves; neighbours are then merged in pairs. Small merges are done by LAPACK, one per thread. In a large
 * merge, LAPACK deflates (laed2, lasd2) and finds each root (laed4, lasd4); the rest, the vectors of the roots and
 * their products with the vectors of the two parts, is shared by blocks of columns.
 * The vectors are computed from the roots by Gu and Eisenstat's formula: not for the vector z of the merge, but for the
 * one whose roots are exactly those found. This keeps them orthogonal. */
static T NAME(norm)(const T *x, i32 n)
{
    double part[8] = { 0 };                                /* no number here is large or small enough to harm */
    i32 i = 0;
    for (; i + 8 <= n; i += 8)
        for (i32 k = 0; k < 8; k++)
            part[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++)
        part[0] += (double)x[i] * (double)x[i];
    return (T)sqrt(((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7])));
}
static T NAME(signed_root)(T square, T sign) { return (T)copysign(sqrt(fabs((double)square)), (double)sign); }

typedef struct {
    const xl_spectral *f;
    xl_pool *pool;
    i32 n;                                                 /* of the whole matrix */
    T *d, *e, *q, *vt, *mem;                               /* vectors: q, of a bidiagonal matrix also vt */
    i32 *order, *ints;
    const part *parts;                                     /* of the level under way */
    atomic_int info;
} NAME(divide);

/* A large merge. */
typedef struct {
    const xl_spectral *f;
    i32 k, n, first, square;                               /* roots; of the merged matrix; of its first part; sqre */
    T *d, *q, *vt, *root, *z, *was, *v, *sum, *q2, *vt2; /* v: the differences to each root, then its vector */
    i32 ldq, *place, *count;
    T rho;
    atomic_int *info;
} NAME(merge);

/* ---- symmetric tridiagonal --------------------------------------------------------------------------------------- */
static void NAME(eigh_roots)(void *ctx, size_t begin, size_t end)
{
    NAME(merge) *g = ctx;
    for (size_t i = begin; i < end; i++) {
        i32 which = (i32)i + 1, info = 0;
        ((void (*)(P, P, P, P, P, P, P, P))g->f->laed4)(&g->k, &which, g->root, g->was, g->v + i * (size_t)g->k,
                                                        &g->rho, g->d + i, &info);
        if (info)
            failed(g->info, info);
    }
}
static void NAME(eigh_weights)(void *ctx, size_t begin, size_t end)
{
    NAME(merge) *g = ctx;
    size_t k = (size_t)g->k;
    T *restrict z = g->z;
    const T *restrict root = g->root;
    for (size_t i = begin; i < end; i++)
        z[i] = g->v[i * k + i];
    for (size_t j = 0; j < k; j++) {
        const T *restrict v = g->v + j * k, own = root[j];
        for (size_t i = begin; i < end; i++)
            z[i] *= i == j ? 1 : v[i] / (root[i] - own);
    }
    for (size_t i = begin; i < end; i++)
        z[i] = NAME(signed_root)(z[i], g->was[i]);
}
static void NAME(eigh_columns)(void *ctx, size_t begin, size_t end)
{
    NAME(merge) *g = ctx;
    i32 k = g->k, cols = (i32)(end - begin), upper = g->count[0] + g->count[1], lower = g->count[1] + g->count[2],
        below = g->n - g->first;
    T *s = malloc((size_t)k * sizeof(T)), *v = g->v + begin * (size_t)k, *q = g->q + begin * (size_t)g->ldq;
    if (!s) {
        failed(g->info, XL_SPECTRAL_LACKING);
        return;
    }
    for (i32 j = 0; j < cols; j++) {
        T *col = v + (size_t)j * (size_t)k;
        for (i32 i = 0; i < k; i++)
            s[i] = g->z[i] / col[i];
        T norm = NAME(norm)(s, k);
        for (i32 i = 0; i < k; i++)
            col[i] = s[g->place[i] - 1] / norm;
    }
    free(s);
    for (i32 j = 0; j < cols; j++)
        memset(q + (size_t)j * (size_t)g->ldq, 0, (size_t)g->n * sizeof(T));
    if (upper)
        NAME(gemm)(g->f, plain, plain, g->first, cols, upper, 1, g->q2, g->first, v, k, 0, q, g->ldq);
    if (lower)
        NAME(gemm)(g->f, plain, plain, below, cols, lower, 1, g->q2 + (size_t)g->first * (size_t)upper, below,
                   v + g->count[0], k, 0, q + g->first, g->ldq);
}
/* Of the parts d[0, first) and d[first, n), whose vectors are the diagonal blocks of q. */
static void NAME(eigh_merge)(NAME(divide) *j, part p, i32 first)
{
    i32 n = p.n, k = 0, info = 0, *ints = j->ints, *order = j->order + p.at, forth = 1, back = -1;
    size_t size = (size_t)n;
    T *d = j->d + p.at, *q = j->q + (size_t)p.at * (size_t)(j->n + 1), *z = j->mem, *root = z + n, *w = root + n,
      *q2 = w + n, *v = q2 + size * size, rho = j->e[p.at + first - 1];
    for (i32 i = 0; i < n; i++)
        z[i] = q[(size_t)i * (size_t)j->n + (size_t)(i < first ? first - 1 : first)];
    ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P))j->f->laed2)(
        &k, &n, &first, d, q, &j->n, order, &rho, z, root, w, q2, ints, ints + n, ints + 2 * n, ints + 3 * n, &info);
    if (k == 0) {
        for (i32 i = 0; i < n; i++)
            order[i] = i + 1;
        return;
    }
    NAME(merge) g = { .f = j->f, .k = k, .n = n, .first = first, .d = d, .q = q, .root = root, .z = z, .was = w, .v = v,
                      .q2 = q2, .ldq = j->n, .place = ints + n, .count = ints + 3 * n, .rho = rho, .info = &j->info };
    if (k <= 2) {
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P))j->f->laed3)(&k, &n, &first, d, q, &j->n, &rho, root, q2,
                                                                          g.place, g.count, w, v, &info);
    } else {
        xl_pool_for(j->pool, (size_t)k, 16, NAME(eigh_roots), &g);
        xl_pool_for(j->pool, (size_t)k, 64, NAME(eigh_weights), &g);
        xl_pool_for(j->pool, (size_t)k, 64, NAME(eigh_columns), &g);
    }
    i32 others = n - k;
    ((void (*)(P, P, P, P, P, P))j->f->lamrg)(&k, &others, d, &forth, &back, order);
    if (info)
        failed(&j->info, info);
}
static void NAME(eigh_leaf)(void *ctx, size_t begin, size_t end)
{
    NAME(divide) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        part p = j->parts[i];
        i32 info = 0;
        T *work = j->mem + (size_t)p.at * 4;
        for (i32 k = 0; k < p.n; k++)
            j->order[p.at + k] = k + 1;
        ((void (*)(P, P, P, P, P, P, P, P, L))j->f->steqr)(alone, &p.n, j->d + p.at, j->e + p.at,
                                                           j->q + (size_t)p.at * (size_t)(j->n + 1), &j->n, work, &info,
                                                           1);
        if (info)
            failed(&j->info, info);
    }
}
static void NAME(eigh_small)(void *ctx, size_t begin, size_t end)
{
    NAME(divide) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        part p = j->parts[2 * i], next = j->parts[2 * i + 1];
        i32 info = 0, n = p.n + next.n;
        T rho = j->e[next.at - 1];
        ((void (*)(P, P, P, P, P, P, P, P, P, P))j->f->laed1)(
            &n, j->d + p.at, j->q + (size_t)p.at * (size_t)(j->n + 1), &j->n, j->order + p.at, &rho, &p.n,
            j->mem + (size_t)p.at * (size_t)(j->n + 4), j->ints + 4 * (size_t)p.at, &info);
        if (info)
            failed(&j->info, info);
    }
}
/* d, e: the diagonals; q: n x n. Gives ascending eigenvalues in d, their vectors in q; e is used up. */
static i32 NAME(divide_eigh)(const xl_spectral *f, xl_pool *pool, i32 n, T *d, T *e, T *q)
{
    size_t size = (size_t)n;
    T norm = 0, *mem = malloc((2 * size * size + 4 * size + 64) * sizeof(T));
    i32 *ints = malloc(5 * size * sizeof *ints);
    part *parts = malloc(size * sizeof *parts);
    NAME(divide) j = { .f = f, .pool = pool, .n = n, .d = d, .e = e, .q = q, .mem = mem, .order = ints,
                       .ints = ints ? ints + n : NULL, .parts = parts };
    i32 count = 1;
    if (!mem || !ints || !parts) {
        failed(&j.info, XL_SPECTRAL_LACKING);
        goto out;
    }
    memset(q, 0, size * size * sizeof(T));
    for (i32 i = 0; i < n; i++)
        norm = (T)fmax(norm, fmax(fabs(d[i]), i + 1 < n ? fabs(e[i]) : 0));
    if (norm == 0)
        norm = 1;
    for (i32 i = 0; i < n; i++)
        d[i] /= norm, e[i] = i + 1 < n ? e[i] / norm : 0;
    parts[0] = (part){ 0, n };
    for (; parts[count - 1].n > LEAF; count *= 2)          /* the last is never smaller than the others */
        for (i32 i = count; i-- > 0; ) {
            part p = parts[i];
            parts[2 * i] = (part){ p.at, p.n / 2 };
            parts[2 * i + 1] = (part){ p.at + p.n / 2, p.n - p.n / 2 };
        }
    for (i32 i = 1; i < count; i++) {
        T rho = (T)fabs(e[parts[i].at - 1]);
        d[parts[i].at - 1] -= rho, d[parts[i].at] -= rho;
    }
    xl_pool_for(pool, (size_t)count, 1, NAME(eigh_leaf), &j);
    for (; count > 1 && !atomic_load(&j.info); count /= 2) {
        if (parts[count - 1].n * 2 <= SMALL)
            xl_pool_for(pool, (size_t)count / 2, 1, NAME(eigh_small), &j);
        for (i32 i = 0; i < count / 2; i++) {
            part whole = { parts[2 * i].at, parts[2 * i].n + parts[2 * i + 1].n };
            if (parts[count - 1].n * 2 > SMALL)
                NAME(eigh_merge)(&j, whole, parts[2 * i].n);
            parts[i] = whole;
        }
    }
    memcpy(mem, d, size * sizeof(T));
    memcpy(mem + n, q, size * size * sizeof(T));
    for (i32 i = 0; i < n; i++) {
        size_t from = (size_t)(j.order[i] - 1);
        d[i] = mem[from] * norm;
        memcpy(q + (size_t)i * size, mem + size + from * size, size * sizeof(T));
    }
out:
    free(mem);
    free(ints);
    free(parts);
    return atomic_load(&j.info);
}

/* ---- bidiagonal -------------------------------------------------------------------------------------------------- */
static void NAME(svd_roots)(void *ctx, size_t begin, size_t end)
{
    NAME(merge) *g = ctx;
    for (size_t i = begin; i < end; i++) {
        i32 which = (i32)i + 1, info = 0;
        size_t at = i * (size_t)g->k;
        ((void (*)(P, P, P, P, P, P, P, P, P))g->f->lasd4)(&g->k, &which, g->root, g->z, g->v + at, &g->rho, g->d + i,
                                                           g->sum + at, &info);
        if (info)
            failed(g->info, info);
    }
}
/* v: differences, sum: sums of each pole and root. */
static void NAME(svd_weights)(void *ctx, size_t begin, size_t end)
{
    NAME(merge) *g = ctx;
    size_t k = (size_t)g->k, last = (k - 1) * k;
    T *restrict z = g->z;
    const T *restrict root = g->root;
    for (size_t i = begin; i < end; i++)
        z[i] = g->v[last + i] * g->sum[last + i];
    for (size_t j = 0; j + 1 < k; j++) {
        const T *restrict v = g->v + j * k, *restrict sum = g->sum + j * k, before = root[j], after = root[j + 1];
        for (size_t i = begin; i < end; i++) {
            T other = j < i ? before : after;
            z[i] *= v[i] * sum[i] / (root[i] - other) / (root[i] + other);
        }
    }
    for (size_t i = begin; i < end; i++)
        z[i] = NAME(signed_root)(z[i], g->was[i]);
}
static void NAME(svd_columns)(void *ctx, size_t begin, size_t end)
{
    NAME(merge) *g = ctx;
    i32 k = g->k, cols = (i32)(end - begin), nl = g->first, nr = g->n - nl - 1, m = g->n + g->square, c1 = g->count[0],
        c2 = g->count[1], c3 = g->count[2], dense = 1 + c1 + c2;
    T *left = g->v + begin * (size_t)k, *right = g->sum + begin * (size_t)k, *u = g->q + begin * (size_t)g->ldq,
      *vt = g->vt + begin, *s = malloc((size_t)k * 2 * sizeof(T));
    if (!s) {
        failed(g->info, XL_SPECTRAL_LACKING);
        return;
    }
    T *t = s + k;
    for (i32 j = 0; j < cols; j++) {
        T *a = left + (size_t)j * (size_t)k, *b = right + (size_t)j * (size_t)k;
        for (i32 i = 0; i < k; i++)
            t[i] = g->z[i] / a[i] / b[i], s[i] = i ? g->root[i] * t[i] : -1;
        T x = NAME(norm)(s, k), y = NAME(norm)(t, k);
        for (i32 i = 0; i < k; i++) {
            i32 from = i ? g->place[i] - 1 : 0;
            a[i] = s[from] / x, b[i] = t[from] / y;
        }
    }
    free(s);
    for (i32 j = 0; j < cols; j++) {
        memset(u + (size_t)j * (size_t)g->ldq, 0, (size_t)nl * sizeof(T));
        u[(size_t)j * (size_t)g->ldq + (size_t)nl] = left[(size_t)j * (size_t)k];
    }
    NAME(gemm)(g->f, plain, plain, nl, cols, c1, 1, g->q2 + g->n, g->n, left + 1, k, 0, u, g->ldq);
    if (c3)
        NAME(gemm)
        (g->f, plain, plain, nl, cols, c3, 1, g->q2 + (size_t)dense * (size_t)g->n, g->n, left + dense, k, 1, u,
         g->ldq);
    NAME(gemm)(g->f, plain, plain, nr, cols, c2 + c3, 1, g->q2 + (size_t)(1 + c1) * (size_t)g->n + nl + 1, g->n,
               left + 1 + c1, k, 0, u + nl + 1, g->ldq);
    NAME(gemm)(g->f, turned, plain, cols, nl + 1, 1 + c1, 1, right, k, g->vt2, m, 0, vt, g->ldq);
    if (c3)
        NAME(gemm)(g->f, turned, plain, cols, nl + 1, c3, 1, right + dense, k, g->vt2 + dense, m, 1, vt, g->ldq);
    for (i32 j = 0; j < cols; j++)                         /* the first row belongs to both halves */
        right[(size_t)j * (size_t)k + (size_t)c1] = right[(size_t)j * (size_t)k];
    NAME(gemm)(g->f, turned, plain, cols, nr + g->square, 1 + c2 + c3, 1, right + c1, k,
               g->vt2 + (size_t)(nl + 1) * (size_t)m + c1, m, 0, vt + (size_t)(nl + 1) * (size_t)g->ldq, g->ldq);
}
static void NAME(svd_merge)(NAME(divide) *j, part p)
{
    i32 nl = p.n / 2, nr = p.n - nl - 1, n = p.n, m = n + p.more, k = 0, info = 0, forth = 1, back = -1,
        *ints = j->ints, *order = j->order + p.at;
    size_t size = (size_t)n, wide = (size_t)m, at = (size_t)p.at * (size_t)(j->n + 1);
    T *d = j->d + p.at, *u = j->q + at, *vt = j->vt + at, alpha = d[nl], beta = j->e[p.at + nl], norm;
    T *z = j->mem, *root = z + wide, *was = root + wide, *u2 = was + wide, *vt2 = u2 + size * size,
      *v = vt2 + wide * wide, *sum = v + size * size;
    d[nl] = 0;
    norm = (T)fmax(fabs(alpha), fabs(beta));
    for (i32 i = 0; i < n; i++)
        norm = (T)fmax(norm, fabs(d[i]));
    for (i32 i = 0; i < n; i++)
        d[i] /= norm;
    alpha /= norm, beta /= norm;
    ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P))j->f->lasd2)(
        &nl, &nr, &p.more, &k, d, z, &alpha, &beta, u, &j->n, vt, &j->n, root, u2, &n, vt2, &m, ints, ints + n,
        ints + 2 * n, order, ints + 3 * n, &info);
    NAME(merge) g = { .f = j->f, .k = k, .n = n, .first = nl, .square = p.more, .d = d, .q = u, .vt = vt, .root = root,
                      .z = z, .was = was, .v = v, .sum = sum, .q2 = u2, .vt2 = vt2, .ldq = j->n, .place = ints + 2 * n,
                      .count = ints + 3 * n, .info = &j->info };
    if (k <= 2) {
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P))j->f->lasd3)(
            &nl, &nr, &p.more, &k, d, v, &k, root, u, &j->n, u2, &n, vt, &j->n, vt2, &m, g.place, g.count, z, &info);
    } else {
        memcpy(was, z, (size_t)k * sizeof(T));
        T length = NAME(norm)(z, k);
        for (i32 i = 0; i < k; i++)
            z[i] /= length;
        g.rho = length * length;
        xl_pool_for(j->pool, (size_t)k, 16, NAME(svd_roots), &g);
        xl_pool_for(j->pool, (size_t)k, 64, NAME(svd_weights), &g);
        for (size_t c = (size_t)nl + 1; g.count[0] && c < wide; c++)
            vt2[c * wide + (size_t)g.count[0]] = vt2[c * wide];
        xl_pool_for(j->pool, (size_t)k, 64, NAME(svd_columns), &g);
    }
    for (i32 i = 0; i < n; i++)
        d[i] *= norm;
    i32 others = n - k;
    ((void (*)(P, P, P, P, P, P))j->f->lamrg)(&k, &others, d, &forth, &back, order);
    if (info)
        failed(&j->info, info);
}
static void NAME(svd_small)(void *ctx, size_t begin, size_t end)
{
    NAME(divide) *j = ctx;
    for (size_t i = begin; i < end; i++) {
        part p = j->parts[i];
        i32 info = 0, nl = p.n / 2, nr = p.n - nl - 1, rows = p.n + p.more, none = 0;
        size_t at = (size_t)p.at * (size_t)(j->n + 1);
        T *d = j->d + p.at, *e = j->e + p.at, *u = j->q + at, *vt = j->vt + at;
        if (p.n > LEAF) {                                  /* WORK: 3m^2 + 2m, IWORK: 4n */
            T *work = j->mem + (size_t)p.at * (size_t)(3 * SMALL + 8), alpha = d[nl], beta = e[nl];
            ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P))j->f->lasd1)(&nl, &nr, &p.more, d, &alpha, &beta, u,
                                                                              &j->n, vt, &j->n, j->order + p.at,
                                                                              j->ints + 4 * (size_t)p.at, work, &info);
        } else {
            ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L))j->f->lasdq)(
                high, &p.more, &p.n, &rows, &p.n, &none, d, e, vt, &j->n, u, &j->n, u, &j->n,
                j->mem + (size_t)p.at * (size_t)(3 * SMALL + 8), &info, 1);
            for (i32 k = 0; k < p.n; k++)
                j->order[p.at + k] = k + 1;
        }
        if (info)
            failed(&j->info, info);
    }
}
/* Upper bidiagonal. Gives descending singular values in d, U in u and V's transpose in vt, both n x n. e is used up. */
static i32 NAME(divide_svd)(const xl_spectral *f, xl_pool *pool, i32 n, T *d, T *e, T *u, T *vt)
{
    size_t size = (size_t)n, most = size * (3 * SMALL + 8), need = 4 * (size + 1) * (size + 1) + 3 * (size + 1);
    T norm = 0, eps = sizeof(T) == 4 ? (T)5.4e-8 : (T)1e-16, *mem = malloc((most > need ? most : need) * sizeof(T));
    i32 *ints = malloc(6 * (size + 1) * sizeof *ints), count = 1, level = 0, first[32];
    part *parts = malloc(2 * size * sizeof *parts);
    NAME(divide) j = { .f = f, .pool = pool, .n = n, .d = d, .e = e, .q = u, .vt = vt, .mem = mem, .order = ints,
                       .ints = ints ? ints + n : NULL };
    if (!mem || !ints || !parts) {
        failed(&j.info, XL_SPECTRAL_LACKING);
        goto out;
    }
    memset(u, 0, size * size * sizeof(T));
    memset(vt, 0, size * size * sizeof(T));
    for (size_t i = 0; i < size; i++)
        u[i * size + i] = vt[i * size + i] = 1, norm = (T)fmax(norm, fmax(fabs(d[i]), i + 1 < size ? fabs(e[i]) : 0));
    if (norm == 0)
        goto out;
    for (i32 i = 0; i < n; i++) {
        d[i] /= norm, e[i] = i + 1 < n ? e[i] / norm : 0;
        if (fabs(d[i]) < (double)eps)
            d[i] = (T)copysign(eps, d[i]);
    }
    parts[0] = (part){ 0, n, 0 }, first[0] = 0;
    for (i32 begin = 0, end = 1; begin < end; begin = end, end = count, first[++level] = begin)
        for (i32 i = begin; i < end; i++) {
            part p = parts[i];
            if (p.n <= LEAF)
                continue;
            parts[count++] = (part){ p.at, p.n / 2, 1 };
            parts[count++] = (part){ p.at + p.n / 2 + 1, p.n - p.n / 2 - 1, p.more };
        }
    for (; level-- > 0 && !atomic_load(&j.info); ) {
        i32 begin = first[level], end = first[level + 1];
        j.parts = parts + begin;
        if (parts[begin].n < SMALL)                        /* the first of a level is as large as any */
            xl_pool_for(pool, (size_t)(end - begin), 1, NAME(svd_small), &j);
        else
            for (i32 i = begin; i < end; i++)
                NAME(svd_merge)(&j, parts[i]);
    }
    /* descending, the vectors with them; the order says which is ascending */
    memcpy(mem, d, size * sizeof(T));
    memcpy(mem + size, u, size * size * sizeof(T));
    for (size_t i = 0; i < size; i++) {
        size_t from = (size_t)(j.order[size - 1 - i] - 1);
        d[i] = mem[from] * norm;
        memcpy(u + i * size, mem + size + from * size, size * sizeof(T));
    }
    memcpy(mem, vt, size * size * sizeof(T));
    for (size_t c = 0; c < size; c++)
        for (size_t i = 0; i < size; i++)
            vt[c * size + i] = mem[c * size + (size_t)(j.order[size - 1 - i] - 1)];
out:
    free(mem);
    free(ints);
    free(parts);
    return atomic_load(&j.info);
}
