/* Reductions. If the body is one op, the operand is traversed in memory order: adjacent dimensions that are both kept
 * or both reduced are joined; a line along a reduced dimension is folded into one element, lines along a kept dimension
 * are folded elementwise, both in levels (fold.h). Any other body runs as a vector block, with a lane per result if
 * there are many results, and otherwise a lane per segment of the reduced range.
 * The order of folding depends only on the shapes. */
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/kernel/fold.h"
#include "cpu/kernel/strided.h"

/* ---- one op ----------------------------------------------------------------------------------------------------- */
typedef struct {
    xl_fold fold;
    uint32_t n, rank;                                      /* joined dimensions */
    int64_t dim[XL_RANK_MAX], from[XL_RANK_MAX], to[XL_RANK_MAX]; /* strides in elements; to is 0 where reduced */
    bool kept[XL_RANK_MAX];
    xl_line_fn *line;                                         /* NULL: the generic way */
    xl_ew ew;                                              /* over the type of the sums */
    xl_dtype dtype, sum;                                   /* narrow floats are summed in f32 */
    size_t elem, sum_elem;
    char identity[8];
    xl_widen_fn *widen;
    xl_narrow_fn *narrow;
    int64_t outs, reds;                                    /* number of results, and of elements that go into each */
    xl_strided to_outs_major, to_reds_major;               /* for the generic way */
} reduce;

/* *to = the n elements at x in one */
static void fold_line(const reduce *d, char *to, const char *x, int64_t n)
{
    memcpy(to, d->identity, d->sum_elem);
    if (!d->widen) {
        d->line(to, x, (size_t)n);
    } else if (n <= XL_FOLD_BLOCK) {
        float tile[XL_FOLD_BLOCK];
        d->widen(tile, x, (size_t)n);
        d->line(to, tile, (size_t)n);
    } else {
        int64_t half = (n / 2 + XL_FOLD_BLOCK - 1) / XL_FOLD_BLOCK * XL_FOLD_BLOCK;
        float right;
        fold_line(d, to, x, half);
        fold_line(d, (char *)&right, x + half * (int64_t)d->elem, n - half);
        d->line(to, &right, 1);
    }
}

/* A part of the work: a range of the first dimension if that is reduced, and of the first one that is kept. */
typedef struct { const reduce *d; uint32_t split; int64_t first, past, low, high; } part;

static void range(const part *t, uint32_t k, int64_t *a, int64_t *b)
{
    bool split = k == t->split, parts = k == 0 && !t->d->kept[0];
    *a = split ? t->first : parts ? t->low : 0;
    *b = split ? t->past : parts ? t->high : t->d->dim[k];
}
/* How many results there are to dimensions k and on, in this part. */
static int64_t results(const part *t, uint32_t k)
{
    int64_t n = 1, a, b;
    for (; k < t->d->rank; k++)
        if (t->d->kept[k]) {
            range(t, k, &a, &b);
            n *= b - a;
        }
    return n;
}
/* Rows of so few elements are folded many at a time. */
enum { TOGETHER = 128 };
static int64_t together(const part *t, uint32_t k, int64_t rows)
{
    const reduce *d = t->d;
    int64_t n = results(t, k + 1), g = 1;
    if (k + 2 != d->rank || !d->kept[k + 1] || n != d->dim[k + 1] || d->from[k] != n)
        return 1;
    while (2 * g * n <= TOGETHER && 2 * g <= rows)
        g *= 2;
    return g;
}
/* Elements that dimension k of a part needs: levels, and a row. */
static int64_t room(const part *t, uint32_t k)
{
    int64_t a, b, n = 0;
    for (; k < t->d->rank; k++)
        if (!t->d->kept[k]) {
            range(t, k, &a, &b);
            n += (XL_CASCADE_LEVELS + 1) * results(t, k + 1) * together(t, k, b - a);
        }
    return n;
}

/* The results of dimensions k and on, at `to`, in order. */
static void walk(const part *t, uint32_t k, char *to, const char *from, char *mem)
{
    const reduce *d = t->d;
    int64_t a, b, e = (int64_t)d->elem, n = results(t, k + 1), line = (int64_t)d->sum_elem * n;
    range(t, k, &a, &b);
    if (k + 1 == d->rank) {
        if (!d->kept[k])
            fold_line(d, to, from + a * e, b - a);
        else if (d->widen)
            d->widen((float *)(void *)to, from + a * e, (size_t)(b - a));
        else
            memcpy(to, from + a * e, (size_t)((b - a) * e));
        return;
    }
    if (d->kept[k]) {
        for (int64_t i = a; i < b; i++)
            walk(t, k + 1, to + (i - a) * line, from + i * d->from[k] * e, mem);
        return;
    }
    int64_t g = together(t, k, b - a), i = a, rows = 0;
    char *row = mem + XL_CASCADE_LEVELS * g * line, *rest = mem + (XL_CASCADE_LEVELS + 1) * g * line;
    bool lies = k + 2 == d->rank && d->kept[k + 1];        /* rows are read where they lie */
    int64_t first = lies && k + 1 == t->split ? t->first : 0;
    char *sum = NULL;
    for (; i + g <= b; i += g, rows++) {
        const char *x = from + i * d->from[k] * e + first * e;
        if (!lies)
            walk(t, k + 1, row, x, rest);
        else if (d->widen)
            d->widen((float *)(void *)row, x, (size_t)(g * n));
        xl_cascade_row(&d->ew, d->sum_elem, mem, (size_t)(g * line), (size_t)rows, lies && !d->widen ? x : row,
                       (size_t)(g * n));
    }
    sum = xl_cascade_end(&d->ew, mem, (size_t)(g * line), (size_t)rows, (size_t)(g * n));
    for (int64_t h = g / 2; h; h /= 2) {
        const void *in[3] = { sum, sum + h * line, NULL };
        d->ew.fn(sum, in, (size_t)(h * n), d->ew.ctx);
    }
    for (; i < b; i++) {                                   /* fewer than g */
        const void *in[3] = { sum, from + i * d->from[k] * e, NULL };
        if (d->widen) {
            d->widen((float *)(void *)row, in[1], (size_t)n);
            in[1] = row;
        }
        d->ew.fn(sum, in, (size_t)n, d->ew.ctx);
    }
    memcpy(to, sum, (size_t)line);
}

/* Parts of the first dimension where that is reduced, times ranges of the first one that is kept: all from
 * the shapes. */
typedef struct {
    const reduce *d;
    part all;
    const char *from, *init;
    char *y, *sum;                                         /* sum: a line of results per part */
    int64_t parts, each, cols, grain;
    atomic_bool failed;
} job;

static void finish(const job *j, int64_t at, char *sum, int64_t n)
{
    const reduce *d = j->d;
    char tile[256 * 8];
    for (int64_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? (size_t)(n - i) : 256;
        const void *in[3] = { tile, sum + i * (int64_t)d->sum_elem, NULL };
        xl_fill(tile, j->init, d->sum_elem, m);
        char *to = d->widen ? tile : j->y + (at + i) * (int64_t)d->elem;
        d->ew.fn(to, in, m, d->ew.ctx);
        if (d->widen)
            d->narrow(j->y + (at + i) * (int64_t)d->elem, (const float *)(void *)tile, m);
    }
}

static void run_parts(void *ctx, size_t begin, size_t end)
{
    job *j = ctx;
    const reduce *d = j->d;
    for (size_t i = begin; i < end; i++) {
        part t = j->all;
        int64_t p = (int64_t)i / j->cols, c = (int64_t)i % j->cols;
        t.low = p * j->each;
        t.high = t.low + j->each < d->dim[0] ? t.low + j->each : d->dim[0];
        t.first = c * j->grain;
        if (t.split < d->rank)
            t.past = t.first + j->grain < d->dim[t.split] ? t.first + j->grain : d->dim[t.split];
        int64_t n = results(&t, 0), at = t.split < d->rank ? t.first * d->to[t.split] : 0;
        char *mem = xl_scratch(XL_SCRATCH_PLAN, (size_t)(room(&t, 0) + n) * d->sum_elem);
        if (!mem) {
            atomic_store(&j->failed, true);
            return;
        }
        char *to =
            j->sum ? j->sum + (p * d->outs + at) * (int64_t)d->sum_elem : mem + room(&t, 0) * (int64_t)d->sum_elem;
        walk(&t, 0, to, j->from, mem);
        if (!j->sum)
            finish(j, at, to, n);
    }
}

enum { WORTH = 1 << 15, PART = 1 << 16, PARTS_MAX = 32, COLUMNS = 256 };
static xl_error *run_single(const xl_step *s, xl_frame *f)
{
    const reduce *d = s->data;
    int64_t total = d->outs * d->reds;
    char *y = xl_out(s, f, 0);
    const char *init = xl_in(s, f, 1);
    float init32 = 0;
    if (!total) {
        xl_fill(y, init, d->elem, (size_t)d->outs);
        return NULL;
    }
    if (d->widen) {
        d->widen(&init32, init, 1);
        init = (const char *)&init32;
    }
    job j = { .d = d, .all = { .d = d, .split = d->kept[0] ? 0 : 1 }, .from = xl_in(s, f, 0), .init = init, .y = y,
              .parts = 1, .each = d->dim[0], .cols = 1, .grain = 1 };
    if (j.all.split < d->rank) {
        int64_t n = d->dim[j.all.split], each = total / n;
        j.grain = total < WORTH ? n : (1 << 14) / (each + 1) + 1;
        if (j.all.split == 1 && j.grain * d->to[1] < COLUMNS)      /* columns: keep lines long enough to vectorise */
            j.grain = (COLUMNS + d->to[1] - 1) / d->to[1];
        j.grain = j.grain < n ? j.grain : n;
        j.cols = (n + j.grain - 1) / j.grain;
    }
    if (!d->kept[0] && j.cols < 16 && total >= 2 * PART) {
        int64_t parts = total / PART < PARTS_MAX ? total / PART : PARTS_MAX;
        j.each = (d->dim[0] + parts - 1) / parts;
        if (d->rank > 1 && j.each < XL_CASCADE)
            j.each = XL_CASCADE;
        j.parts = (d->dim[0] + j.each - 1) / j.each;
    }
    if (j.parts > 1 && !(j.sum = malloc((size_t)(j.parts * d->outs) * d->sum_elem)))
        return XL_ERR(EXHAUSTED, "no memory for the sums");
    xl_pool_for(total < WORTH ? NULL : f->pool, (size_t)(j.parts * j.cols), 1, run_parts, &j);
    for (int64_t step = 1; step < j.parts; step *= 2)
        for (int64_t p = 0; p + step < j.parts; p += 2 * step) {
            char *a = j.sum + p * d->outs * (int64_t)d->sum_elem;
            const void *in[3] = { a, a + step * d->outs * (int64_t)d->sum_elem, NULL };
            d->ew.fn(a, in, (size_t)d->outs, d->ew.ctx);
        }
    if (j.sum)
        finish(&j, 0, j.sum, d->outs);
    free(j.sum);
    return atomic_load(&j.failed) ? XL_ERR(EXHAUSTED, "no memory for the sums") : NULL;
}

/* ---- any body --------------------------------------------------------------------------------------------------- */
/* Lanes over the results: rows of x[i] are folded onto acc[i]. */
static xl_error *run_across(const reduce *d, xl_frame *f, void **acc, const void *const *x)
{
    xl_error *err = NULL;
    if (d->fold.ew.fn && !d->fold.ordered) {               /* one op on a type without line folds: complex */
        size_t e = d->fold.elem[0], line = (size_t)d->outs * e;
        char *level = malloc(XL_CASCADE_LEVELS * line);
        if (!level)
            return XL_ERR(EXHAUSTED, "no memory for the sums");
        for (int64_t r = 0; r < d->reds; r++)
            xl_cascade_row(&d->fold.ew, e, level, line, (size_t)r, (const char *)x[0] + (size_t)r * line,
                           (size_t)d->outs);
        const void *sum[1] = { xl_cascade_end(&d->fold.ew, level, line, (size_t)d->reds, (size_t)d->outs) };
        err = xl_fold_run(&d->fold, f, acc, sum, (size_t)d->outs);
        free(level);
        return err;
    }
    for (int64_t r = 0; r < d->reds && !err; r++) {
        const void *at[16];
        for (uint32_t i = 0; i < d->n; i++)
            at[i] = (const char *)x[i] + (size_t)(r * d->outs) * d->fold.elem[i];
        err = xl_fold_run(&d->fold, f, acc, at, (size_t)d->outs);
    }
    return err;
}

/* Few results of many elements: each lane folds a segment, then the segments are folded in their order. */
static xl_error *run_segments(const reduce *d, xl_frame *f, void **acc, const void *const *x)
{
    xl_error *err = NULL;
    uint32_t n = d->n;
    enum { SEG = XL_LANES };
    int64_t len = d->reds / SEG;
    char *tile = malloc(((size_t)n * 2 + XL_CASCADE_LEVELS) * SEG * 16),
         *level = tile && d->fold.ew.fn ? tile + (size_t)n * 2 * SEG * 16 : NULL;
    if (!tile)
        return XL_ERR(EXHAUSTED, "no memory to reduce");
    for (int64_t o = 0; o < d->outs && !err; o++) {
        void *lane[16], *one[16];
        const void *next[16];
        for (uint32_t i = 0; i < n; i++) {
            lane[i] = tile + (size_t)i * 2 * SEG * 16;
            next[i] = (char *)lane[i] + SEG * 16;
            one[i] = (char *)acc[i] + (size_t)o * d->fold.elem[i];
        }
        for (int64_t r = 0; r < len && !err; r++) {
            for (uint32_t i = 0; i < n; i++) {
                size_t e = d->fold.elem[i];
                const char *from = (const char *)x[i] + (size_t)(o * d->reds + r) * e;
                char *to = r || level ? (char *)(uintptr_t)next[i] : lane[i];
                for (int64_t k = 0; k < SEG; k++)
                    memcpy(to + (size_t)k * e, from + (size_t)(k * len) * e, e);
            }
            if (level)
                xl_cascade_row(&d->fold.ew, d->fold.elem[0], level, SEG * 16, (size_t)r, next[0], SEG);
            else if (r)
                err = xl_fold_run(&d->fold, f, lane, next, SEG);
        }
        if (level) {                                       /* one op on a type without line folds: complex */
            size_t e = d->fold.elem[0], rest = (size_t)(d->reds - len * SEG);
            char *sum = xl_cascade_end(&d->fold.ew, level, SEG * 16, (size_t)len, SEG);
            const void *in[3] = { sum, (const char *)x[0] + (size_t)(o * d->reds + len * SEG) * e, NULL };
            d->fold.ew.fn(sum, in, rest, d->fold.ew.ctx);
            for (size_t h = SEG / 2; h; h /= 2) {
                in[1] = sum + h * e;
                d->fold.ew.fn(sum, in, h, d->fold.ew.ctx);
            }
            const void *at[1] = { sum };
            err = xl_fold_run(&d->fold, f, one, at, 1);
            continue;
        }
        for (int64_t k = 0; k < SEG && !err && len; k++) {
            const void *at[16];
            for (uint32_t i = 0; i < n; i++)
                at[i] = (const char *)lane[i] + (size_t)k * d->fold.elem[i];
            err = xl_fold_run(&d->fold, f, one, at, 1);
        }
        for (int64_t r = len * SEG; r < d->reds && !err; r++) {
            const void *at[16];
            for (uint32_t i = 0; i < n; i++)
                at[i] = (const char *)x[i] + (size_t)(o * d->reds + r) * d->fold.elem[i];
            err = xl_fold_run(&d->fold, f, one, at, 1);
        }
    }
    free(tile);
    return err;
}

static xl_error *run_any(const xl_step *s, xl_frame *f)
{
    const reduce *d = s->data;
    uint32_t n = d->n;
    xl_error *err = NULL;
    void *mem[16] = { 0 }, *acc[16];
    const void *x[16], *init[16];
    bool across = d->outs >= 64 || d->reds < 1024 || d->fold.ordered;
    for (uint32_t i = 0; i < n; i++) {
        acc[i] = xl_out(s, f, i);
        init[i] = xl_in(s, f, n + i);
        xl_fill(acc[i], init[i], d->fold.elem[i], (size_t)d->outs);
    }
    if (!d->outs || !d->reds)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        xl_strided v = across ? d->to_reds_major : d->to_outs_major;
        size_t e = d->fold.elem[i];
        for (uint32_t k = 0; k < v.rank; k++)              /* made for elements of one byte */
            v.to[k] *= (int64_t)e, v.from[k] *= (int64_t)e;
        v.elem = e;
        x[i] = xl_in(s, f, i);
        if (v.rank == 0 || (v.rank == 1 && v.to[0] == (int64_t)e && v.from[0] == (int64_t)e))
            continue;
        mem[i] = malloc((size_t)(d->outs * d->reds) * e);
        if (!mem[i]) {
            err = XL_ERR(EXHAUSTED, "no memory to bring the operand in order");
            goto out;
        }
        xl_strided_run(&v, mem[i], x[i], f->pool);
        x[i] = mem[i];
    }
    err = across ? run_across(d, f, acc, x) : run_segments(d, f, acc, x);
out:
    for (uint32_t i = 0; i < n; i++)
        free(mem[i]);
    return err;
}

xl_error *xl_kernel_reduce(xl_planner *p, const xl_op *op)
{
    uint32_t n = op->nin / 2;
    xl_extent in;
    xl_error *err = NULL;
    bool reduced[XL_RANK_MAX] = { false };
    int64_t stride[XL_RANK_MAX], ostride[XL_RANK_MAX] = { 0 }, kept_dim[XL_RANK_MAX], red_dim[XL_RANK_MAX];
    if (op->nin != 2 * n || op->nout != n || !n)
        return xl_plan_unsupported(p, op, "it has not one initial value and one result per operand");
    reduce *d = xl_new(p->a, reduce, 1);
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &in));
    XL_DO(xl_fold_plan(p, op, 0, n, &d->fold));
    xl_dims dims = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    for (size_t i = 0; i < dims.n; i++)
        if (dims.p[i] >= 0 && dims.p[i] < in.rank)
            reduced[dims.p[i]] = true;
    d->n = n;
    d->outs = d->reds = 1;
    xl_row_major(stride, in.rank, in.dims, 1);
    for (uint32_t i = in.rank; i-- > 0; ) {
        if (reduced[i]) {
            d->reds *= in.dims[i];
        } else {
            ostride[i] = d->outs;
            d->outs *= in.dims[i];
        }
    }
    for (uint32_t i = 0; i < in.rank; i++) {
        if (in.dims[i] == 1)
            continue;
        if (d->rank && d->kept[d->rank - 1] == !reduced[i]) {
            d->dim[d->rank - 1] *= in.dims[i];
            d->from[d->rank - 1] = stride[i];
            d->to[d->rank - 1] = ostride[i];
            continue;
        }
        d->kept[d->rank] = !reduced[i];
        d->dim[d->rank] = in.dims[i];
        d->from[d->rank] = stride[i];
        d->to[d->rank++] = ostride[i];
    }
    if (!d->rank) {                                        /* one element */
        d->rank = 1;
        d->dim[0] = in.count ? 1 : 0;
        d->from[0] = 1;
        d->kept[0] = false;
    }
    d->dtype = in.dtype;
    d->elem = in.elem;
    d->widen = xl_widen(in.dtype);
    d->narrow = xl_narrow(in.dtype);
    d->sum = d->widen ? XL_F32 : in.dtype;
    d->sum_elem = xl_dtype_bytes(d->sum);
    p->plan->flops += (double)in.count;
    if (d->fold.ew.fn && n == 1 && (d->line = xl_fold_line(d->sum, d->fold.single))) {
        d->ew = xl_ew_of(p->a, d->fold.single, d->sum, d->sum);
        xl_fold_identity(d->sum, d->fold.single, d->identity);
        return xl_plan_step(p, op, run_single, d, 0);
    }
    /* views that put the kept dimensions first, or last */
    int64_t a[XL_RANK_MAX], from[XL_RANK_MAX], dim[XL_RANK_MAX];
    uint32_t nk = 0, nr = 0, k = 0;
    int64_t ks[XL_RANK_MAX], rs[XL_RANK_MAX];
    for (uint32_t i = 0; i < in.rank; i++) {
        if (reduced[i])
            red_dim[nr] = in.dims[i], rs[nr++] = stride[i];
        else
            kept_dim[nk] = in.dims[i], ks[nk++] = stride[i];
    }
    int64_t ka[XL_RANK_MAX], ra[XL_RANK_MAX];
    xl_row_major(ka, nk, kept_dim, 1);
    xl_row_major(ra, nr, red_dim, 1);
    for (uint32_t pass = 0; pass < 2; pass++) {
        k = 0;
        for (uint32_t i = 0; i < nk; i++, k++)
            dim[k] = kept_dim[i], from[k] = ks[i], a[k] = ka[i] * (pass ? 1 : d->reds);
        for (uint32_t i = 0; i < nr; i++, k++)
            dim[k] = red_dim[i], from[k] = rs[i], a[k] = ra[i] * (pass ? d->outs : 1);
        xl_strided_init(pass ? &d->to_reds_major : &d->to_outs_major, 1, k, dim, a, from);
    }
    xl_block **sub = xl_new(p->a, xl_block *, 1);
    sub[0] = d->fold.block;
    return xl_plan_step_sub(p, op, run_any, d, 0, sub);
out:
    return err;
}

/* ---- map -------------------------------------------------------------------------------------------------------- */
static xl_error *run_map(const xl_step *s, xl_frame *f)
{
    const void *in[64];
    void *out[1] = { xl_out(s, f, 0) };
    for (uint32_t i = 0; i < s->nin; i++)
        in[i] = xl_in(s, f, i);
    return xl_block_apply(s->sub[0], f, in, out, (size_t)xl_out_shape(s, 0)->count);
}
xl_error *xl_kernel_map(xl_planner *p, const xl_op *op)
{
    xl_block **sub = xl_new(p->a, xl_block *, 1);
    if (op->nin > 64)
        return xl_plan_unsupported(p, op, "it maps more than 64 operands");
    xl_error *err = xl_plan_lanes(p, op, 0, &sub[0]);
    return err ? err : xl_plan_step_sub(p, op, run_map, NULL, 0, sub);
}
