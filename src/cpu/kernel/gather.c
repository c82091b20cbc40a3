/* Gather, scatter, and indexing by one dimension. */
#include <stdlib.h>

#include "cpu/kernel/fold.h"
#include "cpu/kernel/index.h"
#include "cpu/kernel/strided.h"

/* Both ops walk the same space: an index position (batch coordinates) and a window offset. */
typedef struct {
    uint32_t nbatch, nwin;
    int64_t batch_dim[XL_RANK_MAX], batch_out[XL_RANK_MAX],
        batch_idx[XL_RANK_MAX]; /* sizes; strides in result and indices, in elements */
    int64_t win_dim[XL_RANK_MAX], win_out[XL_RANK_MAX], win_op[XL_RANK_MAX];
    uint32_t nmap;
    int64_t map_dim[XL_RANK_MAX], map_stride[XL_RANK_MAX], map_most[XL_RANK_MAX], map_size[XL_RANK_MAX];
    uint32_t nshare; /* batching dimensions: operand stride per batch coordinate */
    int64_t share_op[XL_RANK_MAX];
    uint32_t share_batch[XL_RANK_MAX];
    int64_t index_step;                                    /* between the components of one index */
    int64_t nb, nw;
    xl_fold fold;
    uint32_t n;
    bool overwrite;                                        /* the region returns the update */
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
            for (size_t k = 0; k < idx_batch.n; k++)
                if (idx_batch.p[k] == next_idx && k < op_batch.n) {
                    x->share_op[x->nshare] = os[op_batch.p[k]];
                    x->share_batch[x->nshare++] = x->nbatch;
                }
            x->nbatch++;
            next_idx++;
            x->nb *= out->dims[i];
        }
    }
    x->index_step = vector_dim < idx->rank ? is[vector_dim] : 0;
    x->nmap = (uint32_t)map.n;
    for (uint32_t i = 0; i < x->nmap; i++) {
        x->map_stride[i] = os[map.p[i]];
        x->map_size[i] = op->dims[map.p[i]];
        x->map_most[i] = op->dims[map.p[i]] - size[map.p[i]];
    }
    xl_strided_init(&x->line, 1, x->nwin, x->win_dim, x->win_out, x->win_op);
}

typedef struct { int64_t out, idx, share; } spot;
static spot at_batch(const indexing *x, int64_t b)
{
    spot s = { 0, 0, 0 };
    int64_t c[XL_RANK_MAX];
    for (uint32_t k = x->nbatch; k-- > 0; ) {
        c[k] = b % x->batch_dim[k];
        b /= x->batch_dim[k];
        s.out += c[k] * x->batch_out[k];
        s.idx += c[k] * x->batch_idx[k];
    }
    for (uint32_t k = 0; k < x->nshare; k++)
        s.share += c[x->share_batch[k]] * x->share_op[k];
    return s;
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

static int64_t leads_to(const gjob *j, const spot *s)
{
    const indexing *x = j->x;
    int64_t from = s->share;
    for (uint32_t k = 0; k < x->nmap; k++) {
        int64_t v = xl_read_index(j->idx, j->it, s->idx + k * x->index_step);
        from += (v < 0 ? 0 : v > x->map_most[k] ? x->map_most[k] : v) * x->map_stride[k];
    }
    return from;
}

static void gather_part(void *ctx, size_t begin, size_t end)
{
    const gjob *j = ctx;
    const indexing *x = j->x;
    for (size_t b = begin; b < end; b++) {
        spot s = at_batch(x, (int64_t)b);
        int64_t from = leads_to(j, &s);
        if (x->nw == 1)
            memcpy(j->y + (size_t)s.out * j->elem, j->op + (size_t)from * j->elem, j->elem);
        else
            xl_strided_run(&j->line, j->y + (size_t)s.out * j->elem, j->op + (size_t)from * j->elem, NULL);
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
    size_t n = (size_t)j->x->nb, e = j->elem;
    for (size_t w = begin; w < end; w++) {
        char *to = j->y + (int64_t)w * j->line.to[0];
        const char *op = j->op + (int64_t)w * j->line.from[0];
        if (e == 4)
            for (size_t b = 0; b < n; b++)
                memcpy(to + b * 4, op + j->from[b] * 4, 4);
        else if (e == 8)
            for (size_t b = 0; b < n; b++)
                memcpy(to + b * 8, op + j->from[b] * 8, 8);
        else
            for (size_t b = 0; b < n; b++)
                memcpy(to + b * e, op + j->from[b] * (int64_t)e, e);
    }
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
        for (int64_t b = 0; b < x->nb; b++) {
            spot at = at_batch(x, b);
            from[b] = leads_to(&j, &at);
        }
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
/* One number per update, one operand, sums (or no op) of four bytes: no call per update. False: none of that. In order,
 * as everything here. */
#define NUMBERS(T, expr)                                                           \
    for (int64_t b = 0; b < x->nb; b++) {                                          \
        int64_t i = it == XL_I32 ? ((const int32_t *)idx)[b] : ((const int64_t *)idx)[b]; \
        if (i < 0 || i > x->map_most[0])                                           \
            continue;                                                              \
        T *to = (T *)(void *)y + i * x->map_stride[0], from = ((const T *)(const void *)up)[b]; \
        *to = (T)(expr);                                                           \
    }
static bool run_numbers(const indexing *x, char *y, const char *up, const void *idx, xl_dtype it, xl_dtype d)
{
    if (x->n != 1 || x->nw != 1 || x->nmap != 1 || x->nbatch != 1 || x->nshare || x->batch_out[0] != 1 ||
        x->batch_idx[0] != 1 || (it != XL_I32 && it != XL_I64))
        return false;
    if (x->overwrite && xl_dtype_bytes(d) == 4)
        NUMBERS(uint32_t, from)
    else if (x->overwrite || x->fold.single != XL_OP_ADD)
        return false;
    else if (d == XL_F32)
        NUMBERS(float, *to + from)
    else if (d == XL_F64)
        NUMBERS(double, *to + from)
    else if (d == XL_I32 || d == XL_U32)
        NUMBERS(uint32_t, *to + from)
    else
        return false;
    return true;
}
#undef NUMBERS

/* Rows of updates in a row of the operand each: threads take columns, so that each element's sum keeps its order. */
typedef struct {
    const indexing *x;
    char *y;
    const char *up;
    const int64_t *place;                                  /* of each update in the operand, or -1 */
    xl_rows_fn *sums;                                      /* NULL: by the fold's own op */
} rows_job;
static void scatter_columns(void *ctx, size_t begin, size_t end)
{
    const rows_job *j = ctx;
    const indexing *x = j->x;
    size_t e = x->fold.elem[0], n = end - begin;
    if (j->sums) {
        j->sums(j->y + begin * e, j->up + begin * e, j->place, (size_t)x->nb, (size_t)x->batch_out[0], n);
        return;
    }
    for (int64_t b = 0; b < x->nb; b++) {
        if (j->place[b] < 0)
            continue;
        char *to = j->y + ((size_t)j->place[b] + begin) * e;
        const char *from = j->up + ((size_t)(b * x->batch_out[0]) + begin) * e;
        if (x->overwrite)
            memcpy(to, from, n * e);
        else
            x->fold.ew.fn(to, (const void *[3]){ to, from, NULL }, n, x->fold.ew.ctx);
    }
}
/* *done is false where the scatter is no such one. */
static xl_error *run_rows(const indexing *x, char *y, const char *up, const void *idx, xl_dtype it, xl_dtype type,
                          xl_pool *pool, bool *done)
{
    *done = false;
    if (x->n != 1 || x->nwin != 1 || x->nmap != 1 || x->nbatch != 1 || x->nshare || x->win_op[0] != 1 ||
        x->win_out[0] != 1 || (!x->overwrite && !x->fold.ew.fn))
        return NULL;
    *done = true;
    int64_t *place = malloc((size_t)x->nb * sizeof *place);
    if (!place)
        return XL_ERR(EXHAUSTED, "no memory to scatter");
    for (int64_t b = 0; b < x->nb; b++) {
        int64_t at = b * x->batch_idx[0],
                i = it == XL_I32 ? ((const int32_t *)idx)[at] : xl_read_index(idx, it, at);
        place[b] = i < 0 || i > x->map_most[0] ? -1 : i * x->map_stride[0];
    }
    bool sums = !x->overwrite && x->fold.single == XL_OP_ADD;
    rows_job j = { x, y, up, place, sums ? xl_fold_rows(type) : NULL };
    if (x->nb * x->nw < 1 << 20) /* below, waking threads costs more than they save: measured */
        scatter_columns(&j, 0, (size_t)x->nw);
    else
        xl_pool_for(pool, (size_t)x->nw, x->nw >= 256 ? 128 : 32, scatter_columns, &j);
    free(place);
    return NULL;
}

static xl_error *run_scatter(const xl_step *s, xl_frame *f)
{
    const indexing *x = s->data;
    uint32_t n = x->n;
    char *y[16];
    const char *up[16];
    const void *idx = xl_in(s, f, n);
    xl_dtype it = s->shape[n].dtype;
    for (uint32_t i = 0; i < n; i++) {
        y[i] = xl_out(s, f, i);
        up[i] = xl_in(s, f, n + 1 + i);
        if (y[i] != xl_in(s, f, i))
            memcpy(y[i], xl_in(s, f, i), s->shape[i].bytes);
    }
    if (!x->nb || !x->nw)
        return NULL;
    if (run_numbers(x, y[0], up[0], idx, it, s->shape[0].dtype))
        return NULL;
    bool done;
    xl_error *err = run_rows(x, y[0], up[0], idx, it, s->shape[0].dtype, f->pool, &done);
    if (err || done)
        return err;
    int64_t row = x->nwin ? x->win_dim[x->nwin - 1] : 1;
    bool lines = x->nwin && x->win_op[x->nwin - 1] == 1 && x->win_out[x->nwin - 1] == 1;
    if (!lines)
        row = 1;
    for (int64_t b = 0; b < x->nb; b++) {
        spot at = at_batch(x, b);
        int64_t start[XL_RANK_MAX], to = at.share;
        bool whole = true, none = false;
        for (uint32_t k = 0; k < x->nmap; k++) {
            start[k] = xl_read_index(idx, it, at.idx + k * x->index_step);
            whole = whole && start[k] >= 0 && start[k] <= x->map_most[k];
            none = none || start[k] < 0 || start[k] > x->map_most[k];
            to += start[k] * x->map_stride[k];
        }
        /* an update window that reaches outside in any dimension is left out whole, as XLA does */
        if (none || !whole)
            continue;
        for (int64_t w = 0; w < x->nw; w += row) {
            int64_t uo = at.out, oo = to, r = w;
            for (uint32_t k = x->nwin; k-- > 0; ) {
                int64_t c = r % x->win_dim[k];
                r /= x->win_dim[k];
                uo += c * x->win_out[k];
                oo += c * x->win_op[k];
            }
            void *acc[16];
            const void *v[16];
            for (uint32_t i = 0; i < n; i++) {
                acc[i] = y[i] + (size_t)oo * x->fold.elem[i];
                v[i] = up[i] + (size_t)uo * x->fold.elem[i];
            }
            if (x->overwrite) {
                for (uint32_t i = 0; i < n; i++)
                    memcpy(acc[i], v[i], (size_t)row * x->fold.elem[i]);
                continue;
            }
            err = xl_fold_run(&x->fold, f, acc, v, (size_t)row);
            if (err)
                return err;
        }
    }
    return NULL;
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
