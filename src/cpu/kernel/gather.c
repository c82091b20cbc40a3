/* Gather, scatter, and indexing by one dimension. */
#include <stdlib.h>

#include "cpu/kernel/fold.h"
#include "cpu/kernel/index.h"
#include "cpu/kernel/strided.h"

/* Both ops walk the same space: an index position (batch coordinates) and a window offset. */
typedef struct {
    uint32_t nbatch, nwin;
    /* sizes; strides in the result, the indices and, of a batching dimension, the operand, in elements */
    int64_t batch_dim[XL_RANK_MAX], batch_out[XL_RANK_MAX], batch_idx[XL_RANK_MAX], batch_op[XL_RANK_MAX];
    int64_t win_dim[XL_RANK_MAX], win_out[XL_RANK_MAX], win_op[XL_RANK_MAX];
    uint32_t nmap;
    int64_t map_dim[XL_RANK_MAX], map_stride[XL_RANK_MAX], map_most[XL_RANK_MAX], map_size[XL_RANK_MAX];
    int64_t index_step;                                    /* between the components of one index */
    int64_t nb, nw;
    xl_fold fold;
    uint32_t n;
    bool overwrite;                                        /* the region returns the update */
    bool apart;                                            /* an element is met at one place of the windows only */
    xl_strided line; /* a window, result and operand strides of one byte per element */
} indexing;

static bool in_list(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}

/* out: the result of gather, or the updates of scatter. window_dims: which of its dimensions are the window's. */
static void describe(indexing *x, const xl_extent *op, const xl_extent *idx, const xl_extent *out, xl_dims window_dims,
                     xl_dims dropped, xl_dims op_batch, xl_dims idx_batch, xl_dims map, int64_t vector_dim,
                     const int64_t *size)
{
    int64_t os[XL_RANK_MAX], is[XL_RANK_MAX], rs[XL_RANK_MAX];
    xl_row_major(os, op->rank, op->dims, 1);
    xl_row_major(is, idx->rank, idx->dims, 1);
    xl_row_major(rs, out->rank, out->dims, 1);
    x->nb = x->nw = 1;
    uint32_t next_idx = 0, next_op = 0;
    for (uint32_t i = 0; i < out->rank; i++) {
        if (in_list(window_dims, i)) {
            while (next_op < op->rank && (in_list(dropped, next_op) || in_list(op_batch, next_op)))
                next_op++;
            x->win_dim[x->nwin] = out->dims[i];
            x->win_out[x->nwin] = rs[i];
            x->win_op[x->nwin++] = next_op < op->rank ? os[next_op] : 0;
            x->nw *= out->dims[i];
            next_op++;
        } else {
            if (next_idx == vector_dim)
                next_idx++;
            if (out->dims[i] == 1) {                       /* always at its only place */
                next_idx++;
                continue;
            }
            x->batch_dim[x->nbatch] = out->dims[i];
            x->batch_out[x->nbatch] = rs[i];
            x->batch_idx[x->nbatch] = next_idx < idx->rank ? is[next_idx] : 0;
            for (size_t k = 0; k < idx_batch.n && k < op_batch.n; k++)
                if (idx_batch.p[k] == next_idx)
                    x->batch_op[x->nbatch] = os[op_batch.p[k]];
            x->nbatch++;
            next_idx++;
            x->nb *= out->dims[i];
        }
    }
    x->index_step = vector_dim < idx->rank ? is[vector_dim] : 0;
    x->nmap = (uint32_t)map.n;
    x->apart = true;
    for (uint32_t i = 0; i < x->nmap; i++) {
        x->map_stride[i] = os[map.p[i]];
        x->map_size[i] = op->dims[map.p[i]];
        x->map_most[i] = op->dims[map.p[i]] - size[map.p[i]];
        x->apart = x->apart && (size[map.p[i]] == 1 || x->map_most[i] == 0);
    }
    xl_strided_init(&x->line, 1, x->nwin, x->win_dim, x->win_out, x->win_op);
}

typedef struct { int64_t out, idx, share; } spot;
static spot at_batch(const indexing *x, int64_t b)
{
    spot s = { 0, 0, 0 };
    for (uint32_t k = x->nbatch; k-- > 0; ) {
        int64_t c = b % x->batch_dim[k];
        b /= x->batch_dim[k];
        s.out += c * x->batch_out[k];
        s.idx += c * x->batch_idx[k];
        s.share += c * x->batch_op[k];
    }
    return s;
}

enum { PLACES = 256 };                                     /* indices at a time */

/* place[i] += stride * index i. An index that leads outside is moved to the nearest one that does not (`clamp`, of
 * gather), or makes it -1: an update that reaches outside in any dimension is left out whole, as XLA does. */
static void add_index(int64_t *place, const void *idx, xl_dtype it, int64_t at, int64_t step, size_t n, int64_t most,
                      int64_t stride, bool clamp)
{
#define EACH(read)                                                                 \
    for (size_t i = 0; i < n && clamp; i++) {                                      \
        int64_t v = (read);                                                        \
        place[i] += (v < 0 ? 0 : v > most ? most : v) * stride;                    \
    }                                                                              \
    for (size_t i = 0; i < n && !clamp; i++) {                                     \
        int64_t v = (read);                                                        \
        place[i] = place[i] < 0 || v < 0 || v > most ? -1 : place[i] + v * stride; \
    }
    if (it == XL_I32) {
        EACH(((const int32_t *)idx)[at + (int64_t)i * step])
    } else {
        EACH(xl_read_index(idx, it, at + (int64_t)i * step))
    }
#undef EACH
}
/* Where window b and those behind it lie in the operand; how many: to the end of a dimension, `most` and PLACES at
 * most. *out: the first one's place in the result of gather or the updates of scatter, *step: between them. */
static size_t places(const indexing *x, const void *idx, xl_dtype it, bool clamp, int64_t b, size_t most,
                     int64_t *place, int64_t *out, int64_t *step)
{
    uint32_t last = x->nbatch - 1;
    int64_t left = x->nbatch ? x->batch_dim[last] - b % x->batch_dim[last] : 1;
    int64_t share = x->nbatch ? x->batch_op[last] : 0;
    size_t n = left < PLACES ? (size_t)left : PLACES;
    spot s = at_batch(x, b);
    n = n < most ? n : most;
    for (size_t i = 0; i < n; i++)
        place[i] = s.share + (int64_t)i * share;
    for (uint32_t k = 0; k < x->nmap; k++)
        add_index(place, idx, it, s.idx + k * x->index_step, x->nbatch ? x->batch_idx[last] : 0, n, x->map_most[k],
                  x->map_stride[k], clamp);
    *out = s.out;
    *step = x->nbatch ? x->batch_out[last] : 0;
    return n;
}

/* ---- gather ----------------------------------------------------------------------------------------------------- */
typedef struct {
    const indexing *x;
    char *y;
    const char *op;
    const void *idx;
    xl_dtype it;
    size_t elem;
    xl_strided line;
    const int64_t *from;                                   /* of gather_across: where each index leads */
} gjob;

enum {
    MISS = 31
}; /* to find where a window lies, and to wait for it, takes as long as to copy so many elements more */

/* n elements of e bytes, `step` of them between results. */
static void gather_numbers(char *y, const char *op, const int64_t *place, size_t n, int64_t step, size_t e)
{
    if (e == 4)
        for (size_t i = 0; i < n; i++, y += step * 4)
            memcpy(y, op + place[i] * 4, 4);
    else if (e == 8)
        for (size_t i = 0; i < n; i++, y += step * 8)
            memcpy(y, op + place[i] * 8, 8);
    else
        for (size_t i = 0; i < n; i++, y += step * (int64_t)e)
            memcpy(y, op + place[i] * (int64_t)e, e);
}

static void gather_part(void *ctx, size_t begin, size_t end)
{
    const gjob *j = ctx;
    const indexing *x = j->x;
    int64_t place[PLACES], out, step, e = (int64_t)j->elem;
    bool whole = j->line.rank == 1 && j->line.to[0] == e && j->line.from[0] == e; /* a window is one piece of memory */
    for (size_t b = begin; b < end; ) {
        size_t n = places(x, j->idx, j->it, true, (int64_t)b, end - b, place, &out, &step);
        if (x->nw == 1)
            gather_numbers(j->y + out * e, j->op, place, n, step, j->elem);
        for (size_t i = 0; i < n && x->nw > 1; i++) {
            char *y = j->y + (out + (int64_t)i * step) * e;
            if (whole)
                memcpy(y, j->op + place[i] * e, (size_t)(x->nw * e));
            else
                xl_strided_run(&j->line, y, j->op + place[i] * e, NULL);
        }
        b += n;
    }
}

/* Results of neighbouring indices lie side by side, those of a window far apart (columns of a matrix): line by line. */
static bool across(const indexing *x)
{
    return x->nbatch == 1 && x->batch_out[0] == 1 && x->nb >= 8 && x->nw >= 8 && x->line.rank == 1 && x->line.to[0] > 1;
}
static void gather_across(void *ctx, size_t begin, size_t end)
{
    const gjob *j = ctx;
    for (size_t w = begin; w < end; w++)
        gather_numbers(j->y + (int64_t)w * j->line.to[0], j->op + (int64_t)w * j->line.from[0], j->from,
                       (size_t)j->x->nb, 1, j->elem);
}

static xl_error *run_gather(const xl_step *s, xl_frame *f)
{
    const indexing *x = s->data;
    gjob j = { x, xl_out(s, f, 0), xl_in(s, f, 0), xl_in(s, f, 1), s->shape[1].dtype, s->shape[0].elem, x->line };
    if (!xl_out_shape(s, 0)->count)
        return NULL;
    j.line.elem = j.elem;
    for (uint32_t k = 0; k < j.line.rank; k++)
        j.line.to[k] *= (int64_t)j.elem, j.line.from[k] *= (int64_t)j.elem;
    if (across(x)) {
        int64_t *from = malloc((size_t)x->nb * sizeof *from);
        if (!from)
            return XL_ERR(EXHAUSTED, "no memory to gather");
        int64_t out, step;
        for (int64_t b = 0; b < x->nb; )
            b += (int64_t)places(x, j.idx, j.it, true, b, PLACES, from + b, &out, &step);
        j.from = from;
        xl_pool_for(f->pool, (size_t)x->nw, (size_t)(8192 / x->nb + 1), gather_across, &j);
        free(from);
        return NULL;
    }
    int64_t each = x->nw + MISS;
    if (x->nb * each < 1 << 14)
        gather_part(&j, 0, (size_t)x->nb);
    else
        xl_pool_for(f->pool, (size_t)x->nb, (size_t)(4096 / each + 1), gather_part, &j);
    return NULL;
}
xl_error *xl_kernel_gather(xl_planner *p, const xl_op *op)
{
    xl_extent a, i, o;
    xl_error *err = NULL;
    indexing *x = xl_new(p->a, indexing, 1);
    int64_t size[XL_RANK_MAX];
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &a));
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 1), &i));
    XL_DO(xl_shape_of(p, xl_out_type(p->f, op, 0), &o));
    bool dyn = op->code == XL_OP_DYNAMIC_GATHER;
#define GD(name) (dyn ? xl_op_dims(op, XL_SLOT(DYNAMIC_GATHER, name)) : xl_op_dims(op, XL_SLOT(GATHER, name)))
    xl_dims offset = GD(offset_dims), dropped = GD(collapsed_slice_dims), ob = GD(operand_batching_dims);
    if (dyn) {                                             /* the sizes follow from the result */
        uint32_t k = 0;
        for (uint32_t d = 0; d < a.rank; d++)
            size[d] = in_list(dropped, d) || in_list(ob, d) ? 1 : k < offset.n ? o.dims[offset.p[k++]] : 1;
    } else {
        xl_dims sz = xl_op_dims(op, XL_SLOT(GATHER, slice_sizes));
        for (uint32_t d = 0; d < a.rank; d++)
            size[d] = xl_dims_at(sz, d, 1);
    }
    describe(x, &a, &i, &o, offset, dropped, ob, GD(start_indices_batching_dims), GD(start_index_map),
             dyn ? xl_op_int(op, XL_SLOT(DYNAMIC_GATHER, index_vector_dim))
                 : xl_op_int(op, XL_SLOT(GATHER, index_vector_dim)),
             size);
    return xl_plan_step(p, op, run_gather, x, 0);
out:
    return err;
}

/* ---- scatter ---------------------------------------------------------------------------------------------------- */
/* Updates in their order. Where those of one element are all of one place in the window (`apart`), that leaves the rest
 * of the order free: many updates at a place of the window before the next one, places shared by threads. */
#define SET(T)                                                                     \
    static void set_##T(void *y, const void *x, const int64_t *place, size_t n, int64_t step) \
    {                                                                              \
        const T *from = x;                                                         \
        for (size_t i = 0; i < n; i++, from += step)                               \
            if (place[i] >= 0)                                                     \
                ((T *)y)[place[i]] = *from;                                        \
    }                                                                              \
    static void set32_##T(void *y, const void *x, const int32_t *place, size_t n, int64_t most) \
    {                                                                              \
        for (size_t i = 0; i < n; i++)                                             \
            if (place[i] >= 0 && place[i] <= most)                                 \
                ((T *)y)[place[i]] = ((const T *)x)[i];                            \
    }
SET(uint8_t)
SET(uint16_t)
SET(uint32_t)
SET(uint64_t)
#undef SET
static xl_put put_of(const indexing *x, xl_dtype d)
{
    if (x->n != 1)
        return (xl_put){ 0 };
    if (!x->overwrite)
        return x->fold.single == XL_OP_UNKNOWN ? (xl_put){ 0 } : xl_fold_put(d, x->fold.single);
    switch (x->fold.elem[0]) {
    case 1: return (xl_put){ set_uint8_t, set32_uint8_t, NULL };
    case 2: return (xl_put){ set_uint16_t, set32_uint16_t, NULL };
    case 4: return (xl_put){ set_uint32_t, set32_uint32_t, NULL };
    case 8: return (xl_put){ set_uint64_t, set32_uint64_t, NULL };
    default: return (xl_put){ 0 };
    }
}

enum { WORTH = 1 << 20, FEW = 16 };                        /* numbers for threads; a short line */
typedef struct {
    const indexing *x;
    xl_frame *f;
    const void *idx;
    xl_dtype it;
    xl_put put; /* a number or a line per update; NULL: by the fold's own op */
    int64_t row;                                           /* elements that lie side by side */
    char *y[16];
    const char *up[16];
    xl_error *err;
} scatter;

/* n updates, elements begin to end of one line of their windows, which lies at `to` and `from`. */
static xl_error *put_lines(scatter *j, const int64_t *place, size_t n, int64_t to, int64_t from, int64_t step,
                           int64_t begin, int64_t end)
{
    const indexing *x = j->x;
    size_t e = x->fold.elem[0], width = (size_t)(end - begin);
    to += begin, from += begin;
    if (width == 1 && j->put.at) {
        j->put.at(j->y[0] + to * (int64_t)e, j->up[0] + from * (int64_t)e, place, n, step);
        return NULL;
    }
    if (width > 1 && j->put.rows) {
        j->put.rows(j->y[0] + to * (int64_t)e, j->up[0] + from * (int64_t)e, place, n, (size_t)step, width);
        return NULL;
    }
    xl_error *err = NULL;
    for (size_t i = 0; i < n && !err; i++, from += step) {
        void *acc[16];
        const void *v[16];
        if (place[i] < 0)
            continue;
        for (uint32_t k = 0; k < x->n; k++) {
            acc[k] = j->y[k] + (size_t)(place[i] + to) * x->fold.elem[k];
            v[k] = j->up[k] + (size_t)from * x->fold.elem[k];
        }
        for (uint32_t k = 0; x->overwrite && k < x->n; k++)
            memcpy(acc[k], v[k], width * x->fold.elem[k]);
        if (!x->overwrite)
            err = xl_fold_run(&x->fold, j->f, acc, v, width);
    }
    return err;
}

/* A part of each window: of its lines, or, where it has one, of that line's elements. */
static void put_part(void *ctx, size_t begin, size_t end)
{
    scatter *j = ctx;
    const indexing *x = j->x;
    int64_t place[PLACES], from, step, lines = x->nw / j->row, first = (int64_t)begin, past = (int64_t)end, c0 = 0,
                                                   c1 = j->row;
    if (lines == 1)
        c0 = first, c1 = past, first = 0, past = 1;
    for (int64_t b = 0; b < x->nb && !j->err; ) {
        size_t n = places(x, j->idx, j->it, false, b, PLACES, place, &from, &step),
               together = x->apart && (lines == 1 || j->row < FEW) ? n : 1;
        for (size_t i = 0; i < n && !j->err; i += together)
            for (int64_t w = first; w < past && !j->err; w++) {
                int64_t uo = from + (int64_t)i * step, oo = 0, r = w * j->row;
                for (uint32_t k = lines == 1 ? 0 : x->nwin; k-- > 0; ) {
                    int64_t c = r % x->win_dim[k];
                    r /= x->win_dim[k];
                    uo += c * x->win_out[k];
                    oo += c * x->win_op[k];
                }
                xl_error *err = put_lines(j, place + i, together, oo, uo, step, c0, c1);
                if (err)                                   /* never where threads share */
                    j->err = err;
            }
        b += (int64_t)n;
    }
}

static xl_error *run_scatter(const xl_step *s, xl_frame *f)
{
    const indexing *x = s->data;
    uint32_t n = x->n;
    xl_dtype d = s->shape[0].dtype;
    scatter j = { .x = x, .f = f, .idx = xl_in(s, f, n), .it = s->shape[n].dtype, .put = put_of(x, d), .row = 1 };
    for (uint32_t i = 0; i < n; i++) {
        j.y[i] = xl_out(s, f, i);
        j.up[i] = xl_in(s, f, n + 1 + i);
        if (j.y[i] != xl_in(s, f, i))
            memcpy(j.y[i], xl_in(s, f, i), s->shape[i].bytes);
    }
    if (!x->nb || !x->nw)
        return NULL;
    if (x->nw == 1 && x->nbatch == 1 && x->nmap == 1 && !x->batch_op[0] && x->batch_out[0] == 1 &&
        x->batch_idx[0] == 1 && x->map_stride[0] == 1 && j.it == XL_I32 && j.put.at32) {
        j.put.at32(j.y[0], j.up[0], j.idx, (size_t)x->nb, x->map_most[0]);
        return NULL;
    }
    if (x->nwin && x->win_op[x->nwin - 1] == 1 && x->win_out[x->nwin - 1] == 1)
        j.row = x->win_dim[x->nwin - 1];
    bool alone = !x->overwrite && !x->fold.ew.fn;          /* a region's values are this thread's */
    int64_t parts = x->nw > j.row ? x->nw / j.row : j.row, grain = parts == j.row ? parts >= 256 ? 128 : 32
                                                                                   : (parts + 15) / 16;
    if (!x->apart || alone || x->nb * x->nw < WORTH || x->nw < 64) /* waking threads costs more than they save */
        put_part(&j, 0, (size_t)parts);
    else
        xl_pool_for(f->pool, (size_t)parts, (size_t)grain, put_part, &j);
    return j.err;
}

xl_error *xl_kernel_scatter(xl_planner *p, const xl_op *op)
{
    xl_extent a, i, u;
    xl_error *err = NULL;
    uint32_t n = op->nout;
    indexing *x = xl_new(p->a, indexing, 1);
    int64_t size[XL_RANK_MAX];
    if (n == 0 || op->nin != 2 * n + 1)
        return xl_plan_unsupported(p, op, "it has not one update per operand");
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &a));
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, n), &i));
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, n + 1), &u));
    x->n = n;
    const xl_region *r = op->region[0];
    xl_op *end = xl_region_end(r);
    x->overwrite = r->nop == 1 && end && end->nin == n && n <= 16;
    for (uint32_t k = 0; x->overwrite && k < n; k++)
        x->overwrite = end->in[k].id == r->arg[n + k].id;
    if (x->overwrite) {
        x->fold.n = n;
        for (uint32_t k = 0; k < n; k++)
            x->fold.elem[k] = xl_dtype_bytes(xl_in_type(p->f, op, k)->dtype);
    } else {
        XL_DO(xl_fold_plan(p, op, 0, n, &x->fold));
    }
    xl_dims win = xl_op_dims(op, XL_SLOT(SCATTER, update_window_dims)),
            dropped = xl_op_dims(op, XL_SLOT(SCATTER, inserted_window_dims));
    xl_dims ob = xl_op_dims(op, XL_SLOT(SCATTER, input_batching_dims));
    uint32_t k = 0;
    for (uint32_t d = 0; d < a.rank; d++)
        size[d] = in_list(dropped, d) || in_list(ob, d) ? 1 : k < win.n ? u.dims[win.p[k++]] : 1;
    describe(x, &a, &i, &u, win, dropped, ob, xl_op_dims(op, XL_SLOT(SCATTER, scatter_indices_batching_dims)),
             xl_op_dims(op, XL_SLOT(SCATTER, scatter_dims_to_operand_dims)),
             xl_op_int(op, XL_SLOT(SCATTER, index_vector_dim)), size);
    xl_block **sub = xl_new(p->a, xl_block *, 1);
    sub[0] = x->fold.block;
    return xl_plan_step_sub(p, op, run_scatter, x, n >= 32 ? 0 : (1u << n) - 1, sub);
out:
    return err;
}

/* ---- torch_index_select ----------------------------------------------------------------------------------------- */
typedef struct { int64_t dim, batch; } select_dim;
static xl_error *run_index_select(const xl_step *s, xl_frame *f)
{
    const select_dim *d = s->data;
    const xl_extent *a = xl_in_shape(s, 0), *ix = xl_in_shape(s, 1);
    int64_t outer = 1, mid = 1, inner = 1, per = 1, n = a->dims[d->dim];
    for (int64_t i = 0; i < d->batch; i++)
        outer *= a->dims[i];
    for (int64_t i = d->batch; i < d->dim; i++)
        mid *= a->dims[i];
    for (uint32_t i = (uint32_t)d->dim + 1; i < a->rank; i++)
        inner *= a->dims[i];
    for (uint32_t i = (uint32_t)d->batch; i < ix->rank; i++)
        per *= ix->dims[i];
    const char *x = xl_in(s, f, 0);
    char *y = xl_out(s, f, 0);
    size_t line = (size_t)inner * a->elem;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t m = 0; m < mid; m++)
            for (int64_t k = 0; k < per; k++) {
                int64_t v = xl_read_index(xl_in(s, f, 1), ix->dtype, o * per + k);
                v = v < 0 ? 0 : v >= n ? n - 1 : v;
                memcpy(y + (size_t)((o * mid + m) * per + k) * line, x + (size_t)((o * mid + m) * n + v) * line, line);
            }
    return NULL;
}
xl_error *xl_kernel_torch_index_select(xl_planner *p, const xl_op *op)
{
    select_dim *d = xl_new(p->a, select_dim, 1);
    *d = (select_dim){ xl_op_int(op, XL_SLOT(TORCH_INDEX_SELECT, dim)),
                       xl_op_int(op, XL_SLOT(TORCH_INDEX_SELECT, batch_dims)) };
    if (d->dim < 0 || d->dim >= xl_in_type(p->f, op, 0)->rank || d->batch < 0 || d->batch > d->dim)
        return xl_plan_unsupported(p, op, "its dimension is out of range");
    return xl_plan_step(p, op, run_index_select, d, 0);
}
