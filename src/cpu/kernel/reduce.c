/* Reductions. With one op for a body, the operand is walked as it lies in memory: dimensions that are kept or reduced together
 * are joined, lines along a reduced dimension fold into one element, lines along a kept one fold elementwise. Any other body
 * runs as a vector block, its lanes over the results where there are many, over segments of the reduced range otherwise.
 * The order of folding depends on the shapes alone. */
#include <math.h>
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
    xl_widen_fn *widen;
    xl_narrow_fn *narrow;
    int64_t outs, reds;                                    /* number of results, and of elements that go into each */
    xl_strided to_outs_major, to_reds_major;               /* for the generic way */
} reduce;

static void fold_line(const reduce *d, char *acc, const char *x, int64_t n)
{
    if (!d->widen) {
        d->line(acc, x, (size_t)n);
        return;
    }
    float tile[512];
    for (int64_t i = 0; i < n; i += 512) {
        size_t m = n - i < 512 ? (size_t)(n - i) : 512;
        d->widen(tile, x + (size_t)i * d->elem, m);
        d->line(acc, tile, m);
    }
}
static void fold_across(const reduce *d, char *acc, const char *x, int64_t n)
{
    const void *in[3] = { acc, x, NULL };
    if (!d->widen) {
        d->ew.fn(acc, in, (size_t)n, d->ew.ctx);
        return;
    }
    float tile[512];
    for (int64_t i = 0; i < n; i += 512) {
        size_t m = n - i < 512 ? (size_t)(n - i) : 512;
        d->widen(tile, x + (size_t)i * d->elem, m);
        in[0] = acc + (size_t)i * d->sum_elem;
        in[1] = tile;
        d->ew.fn(acc + (size_t)i * d->sum_elem, in, m, d->ew.ctx);
    }
}

typedef struct { const reduce *d; uint32_t split; int64_t first, past; char *to; const char *from; } walk_range;

static void walk(const walk_range *w, uint32_t k, char *to, const char *from)
{
    const reduce *d = w->d;
    int64_t a = k == w->split ? w->first : 0, b = k == w->split ? w->past : d->dim[k];
    if (k + 1 == d->rank) {
        from += a * (int64_t)d->elem;
        if (d->kept[k])
            fold_across(d, to + a * (int64_t)d->sum_elem, from, b - a);
        else
            fold_line(d, to, from, b - a);
        return;
    }
    for (int64_t i = a; i < b; i++)
        walk(w, k + 1, to + i * d->to[k] * (int64_t)d->sum_elem, from + i * d->from[k] * (int64_t)d->elem);
}
static void walk_part(void *ctx, size_t begin, size_t end)
{
    walk_range w = *(const walk_range *)ctx;
    w.first = (int64_t)begin;
    w.past = (int64_t)end;
    walk(&w, 0, w.to, w.from);
}

enum { PARTS = 1 << 16 };
typedef struct { const reduce *d; const char *from; char *part; const char *init; } parts;
static void fold_part(void *ctx, size_t begin, size_t end)
{
    const parts *p = ctx;
    char *acc = p->part + begin / PARTS * p->d->sum_elem;
    char first[16];
    if (p->d->widen)
        p->d->widen((float *)(void *)first, p->from + begin * p->d->elem, 1);
    memcpy(acc, p->d->widen ? first : p->from + begin * p->d->elem, p->d->sum_elem);
    fold_line(p->d, acc, p->from + (begin + 1) * p->d->elem, (int64_t)(end - begin - 1));
}

static xl_error *run_single(const xl_step *s, xl_frame *f)
{
    const reduce *d = s->data;
    char *y = xl_out(s, f, 0), *sum = y, *mem = NULL;
    const char *init = xl_in(s, f, 1);
    float init32 = 0;
    if (d->widen) {
        d->widen(&init32, init, 1);
        init = (const char *)&init32;
        if (!(sum = mem = malloc((size_t)d->outs * 4 + 64)))
            return XL_ERR(EXHAUSTED, "no memory for the sums");
    }
    xl_fill(sum, init, d->sum_elem, (size_t)d->outs);
    int64_t total = d->outs * d->reds;
    if (total && d->rank == 1 && !d->kept[0] && d->dim[0] > 2 * PARTS) {
        size_t n = ((size_t)d->dim[0] + PARTS - 1) / PARTS;
        char *part = malloc(n * d->sum_elem);
        if (!part) {
            free(mem);
            return XL_ERR(EXHAUSTED, "no memory for the sums");
        }
        parts p = { d, xl_in(s, f, 0), part, init };
        xl_pool_for(f->pool, (size_t)d->dim[0], PARTS, fold_part, &p);
        d->line(sum, part, n);
        free(part);
    } else if (total) {
        walk_range w = { .d = d, .split = UINT32_MAX, .to = sum, .from = xl_in(s, f, 0) };
        for (uint32_t k = 0; k < d->rank && w.split == UINT32_MAX; k++)
            if (d->kept[k] && d->dim[k] > 1)
                w.split = k;
        if (total < 1 << 15 || w.split == UINT32_MAX) {
            w.split = UINT32_MAX;
            walk(&w, 0, sum, w.from);
        } else {
            int64_t each = total / d->dim[w.split], grain = (1 << 14) / (each + 1) + 1;
            if (w.split + 1 == d->rank && grain < 256)     /* columns: keep lines long enough to vectorise */
                grain = 256;
            xl_pool_for(f->pool, (size_t)d->dim[w.split], (size_t)grain, walk_part, &w);
        }
    }
    if (d->widen)
        d->narrow(y, (const float *)(void *)sum, (size_t)d->outs);
    free(mem);
    return NULL;
}

/* ---- any body --------------------------------------------------------------------------------------------------- */
static xl_error *run_any(const xl_step *s, xl_frame *f)
{
    const reduce *d = s->data;
    uint32_t n = d->n;
    xl_error *err = NULL;
    void *mem[16] = { 0 }, *acc[16];
    const void *x[16], *init[16];
    bool across = d->outs >= 64 || d->reds < 1024;         /* lanes over the results */
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
    if (across) {
        for (int64_t r = 0; r < d->reds; r++) {
            const void *at[16];
            for (uint32_t i = 0; i < n; i++)
                at[i] = (const char *)x[i] + (size_t)(r * d->outs) * d->fold.elem[i];
            XL_DO(xl_fold_run(&d->fold, f, acc, at, (size_t)d->outs));
        }
        goto out;
    }
    /* few results of many elements: each lane folds a segment, then the segments are folded in their order */
    enum { SEG = XL_LANES };
    int64_t len = d->reds / SEG;
    char *tile = malloc((size_t)n * 2 * SEG * 16);
    if (!tile) {
        err = XL_ERR(EXHAUSTED, "no memory to reduce");
        goto out;
    }
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
                char *to = r ? (char *)(uintptr_t)next[i] : lane[i];
                for (int64_t k = 0; k < SEG; k++)
                    memcpy(to + (size_t)k * e, from + (size_t)(k * len) * e, e);
            }
            if (r)
                err = xl_fold_run(&d->fold, f, lane, next, SEG);
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
out:
    for (uint32_t i = 0; i < n; i++)
        free(mem[i]);
    return err;
}

xl_error *xl_kernel_reduce(xl_planner *p, const xl_op *op)
{
    uint32_t n = op->nin / 2;
    xl_shape in;
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
