/* Eigenvalues and eigenvectors of a general real matrix: T, NAME. */
typedef struct {
    const xl_spectral *f;
    i32 n, ld;
    const T *s, *z, *scale;                                /* Schur's form and vectors; of balancing */
    T *v;
    bool left;
    i32 first, last;                                       /* of balancing: rows that were not set apart, from 1 */
    atomic_int info;
} NAME(vectors);

/* Makes a vector's norm 1, and a complex one's largest element real. */
static void NAME(normal)(const xl_spectral *f, i32 n, T *re, T *im)
{
    i32 one = 1, most = 0;
    T norm[2] = { ((T (*)(P, P, P))f->nrm2)(&n, re, &one), im ? ((T (*)(P, P, P))f->nrm2)(&n, im, &one) : 0 };
    T by = 1 / (im ? (T)hypot((double)norm[0], (double)norm[1]) : norm[0]), c, s, r, top = -1;
    NAME(scale)(re, n, by);
    if (!im)
        return;
    NAME(scale)(im, n, by);
    for (i32 i = 0; i < n; i++)
        if (re[i] * re[i] + im[i] * im[i] > top)
            top = re[i] * re[i] + im[i] * im[i], most = i;
    ((void (*)(P, P, P, P, P))f->lartg)(re + most, im + most, &c, &s, &r);
    for (i32 i = 0; i < n; i++) {
        T x = re[i];
        re[i] = c * x + s * im[i], im[i] = c * im[i] - s * x;
    }
    im[most] = 0;
}
/* The vectors of a block of columns, a pair with the block in which it begins: of the triangular form, times Z. */
static void NAME(vectors_of)(void *ctx, size_t begin, size_t end)
{
    NAME(vectors) *j = ctx;
    i32 n = j->n, ld = j->ld, info = 0;
    i32 *chosen = malloc((size_t)n * sizeof *chosen), most = WIDTH + 1, found;
    T *x = malloc((size_t)n * (WIDTH + 1) * sizeof(T)), *work = malloc(3 * (size_t)n * sizeof(T));
    if (!chosen || !x || !work)
        failed(&j->info, XL_SPECTRAL_LACKING);
    for (size_t i = begin; i < end && chosen && x && work; i++) {
        i32 from = (i32)i * WIDTH, past = least(n, from + WIDTH), lwork = 3 * n;
        const T *below = j->s + 1;                         /* s[c + 1][c] is not 0: a pair begins at c */
#define PAIR(c) ((c) >= 0 && (c) + 1 < n && below[(size_t)(c) * (size_t)ld + (size_t)(c)] != 0)
        from += PAIR(from - 1);
        past += PAIR(past - 1);
        memset(chosen, 0, (size_t)n * sizeof *chosen);
        for (i32 c = from; c < past; c++)
            chosen[c] = 1;
        memset(x, 0, (size_t)n * (size_t)most * sizeof(T));
        ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))j->f->trevc3)(
            j->left ? left : right, some, chosen, &n, (P)(uintptr_t)j->s, &ld, x, &n, x, &n, &most, &found, work,
            &lwork, &info, 1, 1);
        i32 cols = past - from, k0 = j->left ? from : 0, k = j->left ? n - from : past;
        T *v = j->v + (size_t)from * (size_t)ld;
        if (info || found != cols) {
            failed(&j->info, info ? info : 1);
            continue;
        }
        NAME(gemm)(j->f, plain, plain, n, cols, k, 1, j->z + (size_t)k0 * (size_t)ld, ld, x + k0, n, 0, v, ld);
        ((void (*)(P, P, P, P, P, P, P, P, P, P, L, L))j->f->gebak)(both, j->left ? left : right, &n,
                                                                    (P)(uintptr_t)&j->first, (P)(uintptr_t)&j->last,
                                                                    (P)(uintptr_t)j->scale, &cols, v, &ld, &info, 1, 1);
        for (i32 c = from; c < past; c++, v += ld) {
            bool pair = PAIR(c);
            NAME(normal)(j->f, n, v, pair ? v + ld : NULL);
            if (pair)
                c++, v += ld;
        }
#undef PAIR
    }
    free(chosen);
    free(x);
    free(work);
}
static i32 NAME(eig)(const xl_spectral *f, xl_pool *pool, i32 n, T *a, i32 ld, T *wr, T *wi, T *vl, T *vr)
{
    size_t size = (size_t)n, sq = size * (size_t)ld;
    i32 info = 0, ilo, ihi, lwork = 64 * n;
    bool vectors = vl || vr;
    T *scale = malloc(2 * size * sizeof(T)), *tau = scale ? scale + size : NULL;
    T *work = malloc((size_t)lwork * sizeof(T)), *z = NULL;
    if (vectors)
        z = malloc(sq * sizeof(T));
    if (!scale || !work || (vectors && !z)) {
        info = XL_SPECTRAL_LACKING;
        goto out;
    }
    ((void (*)(P, P, P, P, P, P, P, P, L))f->gebal)(both, &n, a, &ld, &ilo, &ihi, scale, &info, 1);
    if (ilo == 1 && ihi == n)
        info = NAME(hessenberg)(f, pool, n, a, ld, tau);
    else
        ((void (*)(P, P, P, P, P, P, P, P, P))f->gehrd)(&n, &ilo, &ihi, a, &ld, tau, work, &lwork, &info);
    if (info)
        goto out;
    if (z) {
        memset(z, 0, sq * sizeof(T));
        for (size_t i = 0; i < size; i++)
            z[i * (size_t)ld + i] = 1;
        back j = { .f = f, .m = n - 1, .k = n - 1, .ldv = ld, .ldc = ld, .count = n - 1, .v = (const char *)(a + 1),
                   .tau = (const char *)tau, .c = (char *)(z + ld + 1), .identity = true };
        if ((info = reflect_back(&j, pool)))
            goto out;
    }
    ((void (*)(P, P, P, P, P, P, P, P, P, P, P, P, P, P, L, L))f->hseqr)(vectors ? schur : values,
                                                                         vectors ? vectors_too : plain, &n, &ilo, &ihi,
                                                                         a, &ld, wr, wi, z, &ld, work, &lwork, &info, 1,
                                                                         1);
    for (int side = 0; side < 2 && !info; side++) {
        NAME(vectors) j = { .f = f, .n = n, .ld = ld, .s = a, .z = z, .scale = scale, .v = side ? vl : vr,
                            .left = side, .first = ilo, .last = ihi };
        if (!j.v)
            continue;
        xl_pool_for(pool, (size_t)((n + WIDTH - 1) / WIDTH), 1, NAME(vectors_of), &j);
        info = atomic_load(&j.info);
    }
out:
    free(scale);
    free(work);
    free(z);
    return info;
}
