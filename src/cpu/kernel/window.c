/* Windows: reduce_window and select_and_scatter. A window as long as its dimension that grows from one end is a running
 * reduction and takes one pass; otherwise the positions of the window are folded, one at a time, into a tile of
 * results. */
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/kernel/fold.h"
#include "cpu/kernel/strided.h"

typedef struct {
    xl_fold fold, scatter;
    uint32_t n, rank;
    int64_t size[XL_RANK_MAX], step[XL_RANK_MAX], low[XL_RANK_MAX], spread[XL_RANK_MAX],
        base[XL_RANK_MAX];                                 /* spread: window dilation */
    int64_t window;                                        /* positions in it */
    int32_t scan;                                          /* dimension of a running reduction, or -1 */
    bool reverse;
    xl_block *select;
} windows;

/* A running reduction in levels (fold.h): since[l] is what came in the current unit of level l, of XL_CASCADE^(l + 1)
 * rows, before[l] all that came before it. Levels for 2^32 rows: every result is made of all units before it. */
enum { SCAN_LEVELS = 8 };
typedef struct {
    const windows *d;
    xl_frame *f;
    size_t inner;
    char *since[SCAN_LEVELS][16], *before[SCAN_LEVELS][16];
} scan;

static void scan_copy(const scan *c, char *const *to, const void *const *from)
{
    for (uint32_t i = 0; i < c->d->n; i++)
        memcpy(to[i], from[i], c->inner * c->d->fold.elem[i]);
}
static xl_error *scan_fold(const scan *c, char *const *to, const void *const *from)
{
    return xl_fold_run(&c->d->fold, c->f, (void *const *)to, from, c->inner);
}
/* Row k, at x; its result goes to y. */
static xl_error *scan_row(const scan *c, int64_t k, const void *const *x, char *const *y)
{
    enum { TOP = SCAN_LEVELS - 1 };
    xl_error *err = NULL;
#define FROM(a) (const void *const *)(a)
    if (k % XL_CASCADE == 0)
        scan_copy(c, c->since[0], x);
    else
        XL_DO(scan_fold(c, c->since[0], x));
    scan_copy(c, y, FROM(c->before[0]));
    XL_DO(scan_fold(c, y, FROM(c->since[0])));
    int l = 0;
    for (; l < TOP && (k + 1) % XL_CASCADE == 0; l++) {    /* a unit of level l is whole and goes to the next */
        k /= XL_CASCADE;
        if (l + 1 < TOP ? k % XL_CASCADE == 0 : k == 0)
            scan_copy(c, c->since[l + 1], FROM(c->since[l]));
        else
            XL_DO(scan_fold(c, c->since[l + 1], FROM(c->since[l])));
    }
    if (l > 0) {
        scan_copy(c, c->before[l - 1], FROM(c->before[l]));
        XL_DO(scan_fold(c, c->before[l - 1], FROM(c->since[l])));
    }
    for (l -= 2; l >= 0; l--)
        scan_copy(c, c->before[l], FROM(c->before[l + 1]));
#undef FROM
out:
    return err;
}

static xl_error *run_scan(const xl_step *s, xl_frame *f)
{
    const windows *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0);
    int64_t len = x->dims[d->scan], inner = 1, outer = 1;
    xl_error *err = NULL;
    char *mem[16] = { 0 };
    for (int32_t i = 0; i < d->scan; i++)
        outer *= x->dims[i];
    for (uint32_t i = (uint32_t)d->scan + 1; i < x->rank; i++)
        inner *= x->dims[i];
    if (!x->count)
        return NULL;
    scan c = { .d = d, .f = f, .inner = (size_t)inner };
    for (uint32_t i = 0; i < d->n; i++) {
        size_t line = (size_t)inner * d->fold.elem[i];
        mem[i] = malloc(2 * SCAN_LEVELS * line + 1);
        if (!mem[i]) {
            err = XL_ERR(EXHAUSTED, "no memory for a running reduction");
            goto out;
        }
        for (int l = 0; l < SCAN_LEVELS; l++)
            c.since[l][i] = mem[i] + 2 * (size_t)l * line, c.before[l][i] = c.since[l][i] + line;
    }
    for (int64_t o = 0; o < outer; o++) {
        for (uint32_t i = 0; i < d->n; i++)
            for (int l = 0; l < SCAN_LEVELS; l++)
                xl_fill(c.before[l][i], xl_in(s, f, d->n + i), d->fold.elem[i], (size_t)inner);
        for (int64_t k = 0; k < len; k++) {
            int64_t at = d->reverse ? len - 1 - k : k;
            const void *in[16];
            char *y[16];
            for (uint32_t i = 0; i < d->n; i++) {
                size_t off = (size_t)((o * len + at) * inner) * d->fold.elem[i];
                in[i] = (const char *)xl_in(s, f, i) + off;
                y[i] = (char *)xl_out(s, f, i) + off;
            }
            XL_DO(scan_row(&c, k, in, y));
        }
    }
out:
    for (uint32_t i = 0; i < d->n; i++)
        free(mem[i]);
    return err;
}

enum { W = 256 };

/* Where window position w of result coordinates c reads, by the first `rank` dimensions; false: in the padding or
 * between dilated elements. */
static bool reads(const windows *d, const int64_t *c, const int64_t *w, const xl_extent *x, const int64_t *stride,
                  uint32_t rank, int64_t *at)
{
    *at = 0;
    for (uint32_t k = 0; k < rank; k++) {
        int64_t p = c[k] * d->step[k] + w[k] * d->spread[k] - d->low[k];
        if (p < 0 || p % d->base[k])
            return false;
        p /= d->base[k];
        if (p >= x->dims[k])
            return false;
        *at += p * stride[k];
    }
    return true;
}

static bool advance(int64_t *c, const int64_t *dims, uint32_t rank)
{
    for (uint32_t k = rank; k-- > 0; ) {
        if (++c[k] < dims[k])
            return true;
        c[k] = 0;
    }
    return false;
}

/* Results in tiles of W at most: `across` elements that no window spans side by side (channels that come last), at one
 * or several places of the dimensions before those. Tiles depend on the shape alone. */
typedef struct {
    const windows *d;
    const xl_step *s;
    xl_frame *f;
    int64_t stride[XL_RANK_MAX], across, chunk, places, count; /* chunk: of `across`; places: in a tile, of count */
    uint32_t rank;                                             /* dimensions before those */
    bool once;                                                 /* the initial value counts once, the padding not */
    xl_error *err;
    atomic_bool lacking;
} tiles;

/* Elements from `from` on, `step` (of them) apart, `width` side by side at each of n places. */
static void read_places(char *to, const char *from, size_t n, int64_t step, size_t width, size_t e)
{
    size_t bytes = width * e;
    if (step == (int64_t)width) {
        memcpy(to, from, n * bytes);
    } else if (e == 4 && width == 1) {
        for (size_t i = 0; i < n; i++)
            ((uint32_t *)(void *)to)[i] = ((const uint32_t *)(const void *)from)[(int64_t)i * step];
    } else {
        for (size_t i = 0; i < n; i++)
            memcpy(to + i * bytes, from + (int64_t)i * step * (int64_t)e, bytes);
    }
}

/* Window position w of m places: elements, or the initial value in the padding, where `padded` says so. Along a line of
 * results only the last coordinate changes. */
static void read_tile(const tiles *t, const int64_t *coord, size_t m, const int64_t *w, int64_t from, size_t width,
                      uint32_t k, char *to, bool *padded)
{
    const windows *d = t->d;
    const xl_extent *x = xl_in_shape(t->s, 0), *y = xl_out_shape(t->s, 0);
    size_t e = d->fold.elem[k], bytes = width * e;
    const char *in = (const char *)xl_in(t->s, t->f, k) + (size_t)from * e, *none = xl_in(t->s, t->f, d->n + k);
    if (!t->rank) {
        memset(padded, 0, m * sizeof *padded);
        for (size_t i = 0; i < m; i++, to += bytes)
            memcpy(to, in, bytes);
        return;
    }
    uint32_t last = t->rank - 1;
    int64_t step = d->step[last], base = d->base[last], dim = x->dims[last], at;
    for (size_t i = 0, n; i < m; i += n, coord += n * t->rank, to += n * bytes, padded += n) {
        bool line = reads(d, coord, w, x, t->stride, last, &at);
        int64_t p = coord[last] * step + w[last] * d->spread[last] - d->low[last];
        n = m - i < (size_t)(y->dims[last] - coord[last]) ? m - i : (size_t)(y->dims[last] - coord[last]);
        if (base != 1 && line) {                           /* one at a time */
            n = 1;
            line = p >= 0 && p % base == 0;
            p /= base;
        }
        size_t a = !line ? n : p >= 0 ? 0 : (size_t)((-p + step - 1) / step),
               b = !line || p >= dim ? 0 : (size_t)((dim - p + step - 1) / step);
        a = a < n ? a : n, b = b < a ? a : b < n ? b : n;
        for (size_t q = 0; q < n; q++)
            padded[q] = q < a || q >= b;
        if (a)
            xl_fill(to, none, e, a * width);
        if (b > a)
            read_places(to + a * bytes, in + (at + (p + (int64_t)a * step) * t->stride[last]) * (int64_t)e, b - a,
                        step * t->stride[last], width, e);
        if (b < n)
            xl_fill(to + b * bytes, none, e, (n - b) * width);
    }
}

/* Folds a window position into acc, and of `once` not what is padded. `kept`: as much memory as acc has. */
static xl_error *fold_position(const tiles *t, void *const *acc, const void *const *in, size_t m, size_t width,
                               const bool *padded, char *kept)
{
    const windows *d = t->d;
    xl_error *err = NULL;
    bool some = false;
    for (size_t i = 0; t->once && i < m; i++)
        some = some || padded[i];
    for (uint32_t k = 0; some && k < d->n; k++)
        memcpy(kept + (size_t)k * W * 16, acc[k], m * width * d->fold.elem[k]);
    XL_DO(xl_fold_run(&d->fold, t->f, acc, in, m * width));
    for (uint32_t k = 0; some && k < d->n; k++) {
        size_t bytes = width * d->fold.elem[k];
        for (size_t i = 0; i < m; i++)
            if (padded[i])
                memcpy((char *)acc[k] + i * bytes, kept + (size_t)k * W * 16 + i * bytes, bytes);
    }
out:
    return err;
}

/* Whether it matters how often the initial values are folded in: not where they are neutral, but a region of the
 * program's own may have no neutral ones (of NaN, comparisons). */
static xl_error *counts_once(const windows *d, const xl_step *s, xl_frame *f, bool *once)
{
    _Alignas(16) char value[16][16];
    void *acc[16] = { 0 };
    const void *in[16] = { 0 };
    xl_error *err = NULL;
    for (uint32_t k = 0; k < d->n; k++) {
        in[k] = xl_in(s, f, d->n + k);
        acc[k] = memcpy(value[k], in[k], d->fold.elem[k]);
    }
    *once = !d->fold.ew.fn;
    if (*once)
        goto out;
    XL_DO(xl_fold_run(&d->fold, f, acc, in, 1));
    for (uint32_t k = 0; k < d->n; k++)
        *once = *once || memcmp(acc[k], in[k], d->fold.elem[k]) != 0;
out:
    return err;
}

static void run_tiles(void *ctx, size_t begin, size_t end)
{
    tiles *t = ctx;
    const windows *d = t->d;
    const xl_extent *y = xl_out_shape(t->s, 0);
    uint32_t n = d->n;
    xl_error *err = NULL;
    size_t levels = t->once ? (size_t)n * W * 16 : XL_CASCADE_LEVELS * W * 16;
    char *tile = malloc((size_t)n * W * 16 * 2 + W * XL_RANK_MAX * sizeof(int64_t) + levels);
    if (!tile) {
        atomic_store(&t->lacking, true);
        return;
    }
    int64_t *coord = (int64_t *)(void *)(tile + (size_t)n * W * 32), w[XL_RANK_MAX], c[XL_RANK_MAX];
    char *more = (char *)(coord + W * XL_RANK_MAX),
         *level = d->fold.ew.fn && !d->fold.ordered && !t->once ? more : NULL; /* (fold.h) */
    bool padded[W];
    size_t line = W * d->fold.elem[0];
    int64_t chunks = (t->across + t->chunk - 1) / t->chunk;
    for (size_t q = begin; q < end; q++) {
        int64_t first = (int64_t)q / chunks * t->places, from = (int64_t)q % chunks * t->chunk, r = first;
        size_t width = (size_t)(t->across - from < t->chunk ? t->across - from : t->chunk),
               m = (size_t)(t->count - first < t->places ? t->count - first : t->places), all = m * width;
        void *acc[16] = { 0 };
        const void *in[16] = { 0 };
        for (uint32_t k = t->rank; k-- > 0; r /= y->dims[k])
            c[k] = r % y->dims[k];
        for (size_t i = 0; i < m; i++) {
            memcpy(coord + i * t->rank, c, t->rank * sizeof *c);
            advance(c, y->dims, t->rank);
        }
        for (uint32_t k = 0; k < n; k++) {
            acc[k] = tile + (size_t)k * W * 32;
            in[k] = tile + (size_t)k * W * 32 + W * 16;
            xl_fill(acc[k], xl_in(t->s, t->f, n + k), d->fold.elem[k], all);
        }
        memset(w, 0, sizeof w);
        for (int64_t p = 0; p < d->window; p++) {
            for (uint32_t k = 0; k < n; k++)
                read_tile(t, coord, m, w, from, width, k, (char *)(uintptr_t)in[k], padded);
            if (level)
                xl_cascade_row(&d->fold.ew, d->fold.elem[0], level, line, (size_t)p, in[0], all);
            else
                XL_DO(fold_position(t, acc, in, m, width, padded, more));
            advance(w, d->size, d->rank);
        }
        if (level) {
            const void *sum[1] = { xl_cascade_end(&d->fold.ew, level, line, (size_t)d->window, all) };
            XL_DO(xl_fold_run(&d->fold, t->f, acc, sum, all));
        }
        for (uint32_t k = 0; k < n; k++) {                 /* one place, or whole ones */
            XL_KNOWN(acc[k] != NULL);                      /* of a tile, above, for as many */
            memcpy((char *)xl_out(t->s, t->f, k) + (size_t)(first * t->across + from) * d->fold.elem[k], acc[k],
                   all * d->fold.elem[k]);
        }
    }
out:
    if (err)                                               /* of a region, which has one thread */
        t->err = err;
    free(tile);
}

static xl_error *run_window(const xl_step *s, xl_frame *f)
{
    enum { WORTH = 1 << 16 };
    const windows *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0), *y = xl_out_shape(s, 0);
    tiles t = { .d = d, .s = s, .f = f, .across = 1, .rank = d->rank };
    xl_error *err = NULL;
    if (!y->count)
        return NULL;
    XL_DO(counts_once(d, s, f, &t.once));
    xl_row_major(t.stride, x->rank, x->dims, 1);
    for (uint32_t k = d->rank; k-- > 0 && d->size[k] == 1 && d->step[k] == 1 && d->low[k] == 0 && d->base[k] == 1 &&
                               x->dims[k] == y->dims[k]; t.rank = k)
        t.across *= x->dims[k];
    t.count = y->count / t.across;
    t.chunk = t.across < W ? t.across : W;
    t.places = W / t.chunk;
    int64_t total = (t.count + t.places - 1) / t.places * ((t.across + t.chunk - 1) / t.chunk);
    bool shared = d->fold.ew.fn && y->count * d->window >= WORTH; /* a region's values are this thread's */
    if (shared)
        xl_pool_for(f->pool, (size_t)total, (size_t)(WORTH / 4 / (W * d->window) + 1), run_tiles, &t);
    else
        run_tiles(&t, 0, (size_t)total);
    if (atomic_load(&t.lacking))
        return XL_ERR(EXHAUSTED, "no memory for windows");
    err = t.err;
out:
    return err;
}

static const int64_t FAR = INT64_C(1) << 31; /* of strides, dilations and paddings; keeps positions within 64 bits */

static xl_error *read_windows(xl_planner *p, const xl_op *op, windows *d, const xl_extent *x, xl_dims size,
                              xl_dims step, xl_dims pad, xl_dims spread, xl_dims base)
{
    d->rank = x->rank;
    d->window = 1;
    for (uint32_t k = 0; k < x->rank; k++) {
        d->size[k] = xl_dims_at(size, k, 1);
        d->step[k] = xl_dims_at(step, k, 1);
        d->low[k] = xl_dims_at(pad, 2 * k, 0);
        d->spread[k] = xl_dims_at(spread, k, 1);
        d->base[k] = xl_dims_at(base, k, 1);
        if (d->size[k] < 1 || d->step[k] < 1 || d->spread[k] < 1 || d->base[k] < 1)
            return xl_plan_unsupported(p, op, "a window size, stride or dilation below one");
        if (d->step[k] > FAR || d->spread[k] > FAR || d->base[k] > FAR || d->low[k] > FAR || d->low[k] < -FAR)
            return xl_plan_unsupported(p, op, "a stride, dilation or padding of its window is beyond 2^31");
        d->window *= d->size[k];
    }
    return NULL;
}

xl_error *xl_kernel_reduce_window(xl_planner *p, const xl_op *op)
{
    xl_extent x;
    xl_error *err = NULL;
    windows *d = xl_new(p->a, windows, 1);
    uint32_t n = op->nin / 2;
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &x));
    XL_DO(xl_fold_plan(p, op, 0, n, &d->fold));
    d->n = n;
    xl_dims pad = xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, padding));
    XL_DO(read_windows(p, op, d, &x, xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dimensions)),
                       xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_strides)), pad,
                       xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dilations)),
                       xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, base_dilations))));
    d->scan = -1;
    bool plain = !d->fold.ordered;
    for (uint32_t k = 0; k < x.rank && plain; k++) {
        int64_t low = d->low[k], high = xl_dims_at(pad, 2 * k + 1, 0), len = x.dims[k];
        if (d->step[k] != 1 || d->spread[k] != 1 || d->base[k] != 1)
            plain = false;
        else if (d->size[k] == 1 && !low && !high)
            continue;
        else if (d->scan < 0 && d->size[k] == len && low + high == len - 1 && (low == 0 || high == 0)) {
            d->scan = (int32_t)k;
            d->reverse = low == 0;
        } else {
            plain = false;
        }
    }
    xl_block **sub = xl_new(p->a, xl_block *, 1);
    sub[0] = d->fold.block;
    if (plain && d->scan >= 0)
        return xl_plan_step_sub(p, op, run_scan, d, 0, sub);
    return xl_plan_step_sub(p, op, run_window, d, 0, sub);
out:
    return err;
}

/* For every window, the element that `select` prefers over all others receives the source's value. */
static xl_error *run_select_and_scatter(const xl_step *s, xl_frame *f)
{
    const windows *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0), *src = xl_in_shape(s, 1);
    int64_t stride[XL_RANK_MAX], c[XL_RANK_MAX] = { 0 }, w[XL_RANK_MAX];
    size_t e = x->elem;
    char *y = xl_out(s, f, 0);
    const char *op = xl_in(s, f, 0);
    xl_error *err = NULL;
    int64_t best[W], at[W];
    uint8_t pick[W] = { 0 };
    char *tile = malloc((size_t)2 * W * 16);
    if (!tile)
        return XL_ERR(EXHAUSTED, "no memory for windows");
    xl_row_major(stride, x->rank, x->dims, 1);
    xl_fill(y, xl_in(s, f, 2), e, (size_t)x->count);
    for (int64_t first = 0; first < src->count; first += W) {
        size_t m = src->count - first < W ? (size_t)(src->count - first) : W;
        int64_t start[XL_RANK_MAX];
        memcpy(start, c, d->rank * sizeof *c);
        for (size_t i = 0; i < m; i++)
            best[i] = -1;
        memset(w, 0, sizeof w);
        for (int64_t p = 0; p < d->window; p++) {
            memcpy(c, start, d->rank * sizeof *c);
            size_t k = 0, lane[W];
            for (size_t i = 0; i < m; i++) {
                if (reads(d, c, w, x, stride, d->rank, &at[i])) {
                    if (best[i] < 0) {
                        best[i] = at[i];
                    } else {
                        memcpy(tile + k * e, op + (size_t)best[i] * e, e);
                        memcpy(tile + W * 16 + k * e, op + (size_t)at[i] * e, e);
                        lane[k++] = i;
                    }
                }
                advance(c, src->dims, d->rank);
            }
            if (k) {
                const void *in[2] = { tile, tile + W * 16 };
                void *out[1] = { pick };
                XL_DO(xl_block_apply(d->select, f, in, out, k));
                for (size_t i = 0; i < k; i++)
                    if (!pick[i])
                        best[lane[i]] = at[lane[i]];
            }
            advance(w, d->size, d->rank);
        }
        for (size_t i = 0; i < m; i++)
            if (best[i] >= 0) {
                void *acc[1] = { y + (size_t)best[i] * e };
                const void *v[1] = { (const char *)xl_in(s, f, 1) + (size_t)(first + (int64_t)i) * e };
                XL_DO(xl_fold_run(&d->scatter, f, acc, v, 1));
            }
    }
out:
    free(tile);
    return err;
}
xl_error *xl_kernel_select_and_scatter(xl_planner *p, const xl_op *op)
{
    xl_extent x;
    xl_error *err = NULL;
    windows *d = xl_new(p->a, windows, 1);
    xl_dims none = { NULL, 0 };
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &x));
    XL_DO(xl_plan_lanes(p, op, 0, &d->select));
    XL_DO(xl_fold_plan(p, op, 1, 1, &d->scatter));
    XL_DO(read_windows(p, op, d, &x, xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, window_dimensions)),
                       xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, window_strides)),
                       xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, padding)), none, none));
    return xl_plan_step(p, op, run_select_and_scatter, d, 0);
out:
    return err;
}
