/* Ops that only move elements. */
#include "cpu/kernel/dtype.h"
#include "cpu/kernel/index.h"
#include "cpu/plan/planner.h"
#include "cpu/kernel/strided.h"

/* ---- a view of one operand, copied ------------------------------------------------------------------------------ */
typedef struct { xl_strided s; int64_t to, from; } view;   /* offsets in bytes */

static xl_error *run_view(const xl_step *s, xl_frame *f)
{
    const view *v = s->data;
    xl_strided_run(&v->s, (char *)xl_out(s, f, 0) + v->to, (const char *)xl_in(s, f, 0) + v->from, f->pool);
    return NULL;
}

static xl_error *shapes(xl_planner *p, const xl_op *op, xl_extent *in, xl_extent *out)
{
    xl_error *err = NULL;
    if (in)
        XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), in));
    XL_DO(xl_shape_of(p, xl_out_type(p->f, op, 0), out));
out:
    return err;
}

static xl_error *same(xl_planner *p, const xl_op *op)
{
    for (uint32_t i = 0; i < op->nout && i < op->nin; i++)
        xl_plan_alias(p, op->out[i], op->in[i]);
    return NULL;
}
xl_error *xl_kernel_identity(xl_planner *p, const xl_op *op) { return same(p, op); }
xl_error *xl_kernel_reshape(xl_planner *p, const xl_op *op)
{
    xl_extent in, out;
    xl_error *err = shapes(p, op, &in, &out);
    if (err)
        return err;
    if (in.bytes != out.bytes)
        return xl_plan_unsupported(p, op, "it changes the number of elements");
    xl_plan_alias(p, op->out[0], op->in[0]);
    return NULL;
}

static xl_error *broadcast(xl_planner *p, const xl_op *op, xl_dims dims)
{
    xl_extent in, out;
    int64_t own[XL_RANK_MAX], to[XL_RANK_MAX], from[XL_RANK_MAX] = { 0 };
    xl_error *err = shapes(p, op, &in, &out);
    if (err)
        return err;
    if (p->lanes > 1 || (in.count == out.count)) {         /* nothing is repeated; the order must be kept too */
        bool ordered = true;
        int64_t prev = -1;
        for (uint32_t i = 0; i < in.rank; i++)
            if (in.dims[i] != 1) {
                int64_t d = xl_dims_at(dims, i, 0);
                ordered = ordered && d > prev;
                prev = d;
            }
        if (ordered)
            return same(p, op);
    }
    view *v = xl_new(p->a, view, 1);
    xl_row_major(own, in.rank, in.dims, in.elem);
    xl_row_major(to, out.rank, out.dims, out.elem);
    for (uint32_t i = 0; i < in.rank; i++) {
        int64_t d = xl_dims_at(dims, i, -1);
        if (d < 0 || d >= out.rank || (in.dims[i] != 1 && in.dims[i] != out.dims[d]))
            return xl_plan_unsupported(p, op, "its dimensions do not fit its operand");
        if (in.dims[i] != 1)
            from[d] = own[i];
    }
    xl_strided_init(&v->s, out.elem, out.rank, out.dims, to, from);
    return xl_plan_step(p, op, run_view, v, 0);
}
xl_error *xl_kernel_broadcast_in_dim(xl_planner *p, const xl_op *op)
{
    return broadcast(p, op, xl_op_dims(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions)));
}
xl_error *xl_kernel_dynamic_broadcast_in_dim(xl_planner *p, const xl_op *op)
{
    return broadcast(p, op, xl_op_dims(op, XL_SLOT(DYNAMIC_BROADCAST_IN_DIM, broadcast_dimensions)));
}
xl_error *xl_kernel_broadcast(xl_planner *p, const xl_op *op)
{
    uint32_t in = xl_in_type(p->f, op, 0)->rank, out = xl_out_type(p->f, op, 0)->rank;
    int64_t *d = xl_new(p->a, int64_t, in);
    for (uint32_t i = 0; i < in; i++)
        d[i] = (int64_t)(out - in + i);
    return broadcast(p, op, (xl_dims){ d, in });
}

xl_error *xl_kernel_transpose(xl_planner *p, const xl_op *op)
{
    xl_extent in, out;
    int64_t own[XL_RANK_MAX], to[XL_RANK_MAX], from[XL_RANK_MAX];
    xl_error *err = shapes(p, op, &in, &out);
    if (err)
        return err;
    xl_dims perm = xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation));
    view *v = xl_new(p->a, view, 1);
    xl_row_major(own, in.rank, in.dims, in.elem);
    xl_row_major(to, out.rank, out.dims, out.elem);
    for (uint32_t i = 0; i < out.rank; i++)
        from[i] = own[xl_dims_at(perm, i, 0)];
    xl_strided_init(&v->s, out.elem, out.rank, out.dims, to, from);
    if (v->s.rank <= 1 && (v->s.rank == 0 || v->s.from[0] == v->s.to[0]))
        return same(p, op);                                /* only dimensions of one element moved */
    return xl_plan_step(p, op, run_view, v, 0);
}

xl_error *xl_kernel_slice(xl_planner *p, const xl_op *op)
{
    xl_extent in, out;
    int64_t own[XL_RANK_MAX], to[XL_RANK_MAX], from[XL_RANK_MAX];
    xl_error *err = shapes(p, op, &in, &out);
    if (err)
        return err;
    xl_dims start = xl_op_dims(op, XL_SLOT(SLICE, start_indices)), step = xl_op_dims(op, XL_SLOT(SLICE, strides));
    view *v = xl_new(p->a, view, 1);
    xl_row_major(own, in.rank, in.dims, in.elem);
    xl_row_major(to, out.rank, out.dims, out.elem);
    for (uint32_t i = 0; i < out.rank; i++) {
        from[i] = own[i] * (out.dims[i] > 1 ? xl_dims_at(step, i, 1) : 1); /* else it may be any number */
        v->from += own[i] * xl_dims_at(start, i, 0);
    }
    if (in.count == out.count && !v->from)
        return same(p, op);
    xl_strided_init(&v->s, out.elem, out.rank, out.dims, to, from);
    return xl_plan_step(p, op, run_view, v, 0);
}

xl_error *xl_kernel_reverse(xl_planner *p, const xl_op *op)
{
    xl_extent in, out;
    int64_t to[XL_RANK_MAX], from[XL_RANK_MAX];
    xl_error *err = shapes(p, op, &in, &out);
    if (err)
        return err;
    xl_dims dims = xl_op_dims(op, XL_SLOT(REVERSE, dimensions));
    view *v = xl_new(p->a, view, 1);
    xl_row_major(from, in.rank, in.dims, in.elem);
    xl_row_major(to, out.rank, out.dims, out.elem);
    for (size_t i = 0; i < dims.n; i++) {
        int64_t d = dims.p[i];
        if (d < 0 || d >= in.rank || in.dims[d] == 0)
            continue;
        v->from += (in.dims[d] - 1) * from[d];
        from[d] = -from[d];
    }
    xl_strided_init(&v->s, out.elem, out.rank, out.dims, to, from);
    return xl_plan_step(p, op, run_view, v, 0);
}

/* ---- pad -------------------------------------------------------------------------------------------------------- */
/* Negative edges cut: what remains of the operand is a range per dimension. */
__extension__ typedef __int128 wide;
static bool pad_view(view *v, const xl_extent *in, const xl_extent *out, const int64_t *low, const int64_t *interior)
{
    int64_t own[XL_RANK_MAX], to[XL_RANK_MAX], dim[XL_RANK_MAX];
    *v = (view){ 0 };
    xl_row_major(own, in->rank, in->dims, in->elem);
    xl_row_major(to, out->rank, out->dims, out->elem);
    for (uint32_t i = 0; i < in->rank; i++) {
        /* in 128 bits: edges and interior may be any number, the elements that remain lie within both tensors */
        wide by = (wide)interior[i] + 1, at = low[i];
        wide first = at < 0 ? (-at + by - 1) / by : 0;     /* first element that lands at 0 or later */
        wide past = out->dims[i] - at;                     /* positions low + k * by < out */
        wide last = past <= 0 ? 0 : (past + by - 1) / by;
        if (last > in->dims[i])
            last = in->dims[i];
        if (last <= first)
            return false;
        dim[i] = (int64_t)(last - first);
        v->from += (int64_t)first * own[i];
        v->to += (int64_t)(at + first * by) * to[i];
        if (dim[i] > 1)
            to[i] *= (int64_t)by;
    }
    xl_strided_init(&v->s, in->elem, in->rank, dim, to, own);
    return true;
}

static xl_error *run_pad(const xl_step *s, xl_frame *f)
{
    const view *v = s->data;
    char *y = xl_out(s, f, 0);
    xl_fill(y, xl_in(s, f, 1), s->shape[0].elem, (size_t)xl_out_shape(s, 0)->count);
    if (v)
        xl_strided_run(&v->s, y + v->to, (const char *)xl_in(s, f, 0) + v->from, f->pool);
    return NULL;
}

xl_error *xl_kernel_pad(xl_planner *p, const xl_op *op)
{
    xl_extent in, out;
    int64_t low[XL_RANK_MAX], interior[XL_RANK_MAX];
    xl_error *err = shapes(p, op, &in, &out);
    if (err)
        return err;
    xl_dims l = xl_op_dims(op, XL_SLOT(PAD, edge_padding_low)), n = xl_op_dims(op, XL_SLOT(PAD, interior_padding));
    for (uint32_t i = 0; i < in.rank; i++) {
        low[i] = xl_dims_at(l, i, 0);
        interior[i] = xl_dims_at(n, i, 0);
        if (interior[i] < 0)
            return xl_plan_unsupported(p, op, "negative interior padding");
    }
    view *v = xl_new(p->a, view, 1);
    if (!pad_view(v, &in, &out, low, interior))
        v = NULL;
    return xl_plan_step(p, op, run_pad, v, 0);
}

static xl_error *run_dynamic_pad(const xl_step *s, xl_frame *f)
{
    int64_t low[XL_RANK_MAX], interior[XL_RANK_MAX];
    const xl_extent *in = xl_in_shape(s, 0), *out = xl_out_shape(s, 0);
    view v;
    for (uint32_t i = 0; i < in->rank; i++) {
        low[i] = xl_read_index(xl_in(s, f, 2), s->shape[2].dtype, i);
        interior[i] = xl_read_index(xl_in(s, f, 4), s->shape[4].dtype, i);
        if (interior[i] < 0)
            return XL_ERR(INVALID, "negative interior padding");
    }
    char *y = xl_out(s, f, 0);
    xl_fill(y, xl_in(s, f, 1), in->elem, (size_t)out->count);
    if (pad_view(&v, in, out, low, interior))
        xl_strided_run(&v.s, y + v.to, (const char *)xl_in(s, f, 0) + v.from, f->pool);
    return NULL;
}
xl_error *xl_kernel_dynamic_pad(xl_planner *p, const xl_op *op)
{
    return xl_plan_step(p, op, run_dynamic_pad, NULL, 0);
}

/* ---- concatenate ------------------------------------------------------------------------------------------------ */
static xl_error *run_concatenate(const xl_step *s, xl_frame *f)
{
    const view *v = s->data;
    for (uint32_t i = 0; i < s->nin; i++)
        xl_strided_run(&v[i].s, (char *)xl_out(s, f, 0) + v[i].to, xl_in(s, f, i), f->pool);
    return NULL;
}
xl_error *xl_kernel_concatenate(xl_planner *p, const xl_op *op)
{
    xl_extent in, out;
    int64_t own[XL_RANK_MAX], to[XL_RANK_MAX], at = 0;
    xl_error *err = shapes(p, op, NULL, &out);
    if (err)
        return err;
    int64_t d = xl_op_int(op, XL_SLOT(CONCATENATE, dimension));
    if (d < 0 || d >= out.rank)
        return xl_plan_unsupported(p, op, "its dimension is out of range");
    view *v = xl_new(p->a, view, op->nin);
    xl_row_major(to, out.rank, out.dims, out.elem);
    for (uint32_t i = 0; i < op->nin; i++) {
        if ((err = xl_shape_of(p, xl_in_type(p->f, op, i), &in)))
            return err;
        xl_row_major(own, in.rank, in.dims, in.elem);
        v[i].to = at * to[d];
        xl_strided_init(&v[i].s, in.elem, in.rank, in.dims, to, own);
        at += in.dims[d];
    }
    return xl_plan_step(p, op, run_concatenate, v, 0);
}

/* ---- dynamic slices --------------------------------------------------------------------------------------------- */
static int64_t clamp_start(const xl_step *s, const xl_frame *f, uint32_t operand, int64_t most)
{
    int64_t v = xl_read_index(xl_in(s, f, operand), s->shape[operand].dtype, 0);
    return v < 0 ? 0 : v > most ? most : v;
}

static xl_error *run_dynamic_slice(const xl_step *s, xl_frame *f)
{
    const view *v = s->data;
    const xl_extent *in = xl_in_shape(s, 0), *out = xl_out_shape(s, 0);
    int64_t own[XL_RANK_MAX], at = 0;
    xl_row_major(own, in->rank, in->dims, in->elem);
    for (uint32_t i = 0; i < in->rank; i++)
        at += own[i] * clamp_start(s, f, 1 + i, in->dims[i] - out->dims[i]);
    xl_strided_run(&v->s, xl_out(s, f, 0), (const char *)xl_in(s, f, 0) + at, f->pool);
    return NULL;
}

/* A slice in one piece is not copied: its pointer is the result. */
static xl_error *run_part(const xl_step *s, xl_frame *f)
{
    const int64_t *own = s->data;
    const xl_extent *in = xl_in_shape(s, 0), *out = xl_out_shape(s, 0);
    char *at = xl_in(s, f, 0);
    for (uint32_t i = 0; i < in->rank; i++)
        if (in->dims[i] != out->dims[i])
            at += own[i] * clamp_start(s, f, 1 + i, in->dims[i] - out->dims[i]);
    f->ptr[s->buf[s->nin]] = at;
    return NULL;
}
static bool one_piece(const xl_extent *in, const xl_extent *out)
{
    uint32_t i = 0;
    while (i < out->rank && out->dims[i] == 1)
        i++;
    for (i++; i < out->rank; i++)
        if (out->dims[i] != in->dims[i])
            return false;
    return out->count > 0;
}

xl_error *xl_kernel_dynamic_slice(xl_planner *p, const xl_op *op)
{
    xl_extent in, out;
    int64_t to[XL_RANK_MAX];
    xl_error *err = shapes(p, op, &in, &out);
    if (err)
        return err;
    if (op->nin != 1 + in.rank)
        return xl_plan_unsupported(p, op, "it has not one start index per dimension");
    int64_t *strides = xl_new(p->a, int64_t, in.rank);
    xl_row_major(strides, in.rank, in.dims, in.elem);
    if (one_piece(&in, &out) && xl_plan_part(p, op, run_part, strides))
        return NULL;
    view *v = xl_new(p->a, view, 1);
    xl_row_major(to, out.rank, out.dims, out.elem);
    xl_strided_init(&v->s, out.elem, out.rank, out.dims, to, strides);
    return xl_plan_step(p, op, run_dynamic_slice, v, 0);
}

bool xl_slot_step(xl_planner *p, const xl_op *op, uint32_t *slot)
{
    xl_extent shape[XL_RANK_MAX + 2], *in = &shape[0];
    uint32_t buf[XL_RANK_MAX + 1], rank = op->nin - 2;
    xl_error *err = xl_shape_of(p, xl_in_type(p->f, op, 0), in);
    if (!err)
        err = xl_shape_of(p, xl_in_type(p->f, op, 1), &shape[rank + 1]);
    xl_error_free(err);
    if (err || in->rank != rank || !one_piece(in, &shape[rank + 1]) || p->leaf[op->in[0].id].n != 1)
        return false;
    buf[0] = p->leaf[op->in[0].id].buf[0];
    for (uint32_t i = 0; i < rank; i++) {
        const xl_leaves *l = &p->leaf[op->in[2 + i].id];
        bool whole = in->dims[i] == shape[rank + 1].dims[i]; /* then its start does not matter */
        if (!whole && l->n != 1)
            return false;
        buf[1 + i] = whole ? buf[0] : l->buf[0];
        shape[1 + i] = *in;
        if (!whole && (err = xl_shape_of(p, xl_in_type(p->f, op, 2 + i), &shape[1 + i]))) {
            xl_error_free(err);
            return false;
        }
    }
    int64_t *own = xl_new(p->a, int64_t, rank);
    xl_row_major(own, rank, in->dims, in->elem);
    *slot = xl_plan_buf_new(p, XL_BUF_PART, shape[rank + 1].bytes);
    p->plan->buf[*slot].index = XL_NO_BUF;
    p->plan->buf[*slot].pinned = true;
    xl_plan_add(p, "place of a row", run_part, own, buf, rank + 1, slot, 1, shape);
    p->block->step[p->block->nstep - 1].op = op;
    return true;
}

static xl_error *run_dynamic_update_slice(const xl_step *s, xl_frame *f)
{
    const view *v = s->data;
    const xl_extent *in = xl_in_shape(s, 0), *up = xl_in_shape(s, 1);
    int64_t own[XL_RANK_MAX], at = 0;
    char *y = xl_out(s, f, 0);
    if (y != xl_in(s, f, 0))
        memcpy(y, xl_in(s, f, 0), in->bytes);
    xl_row_major(own, in->rank, in->dims, in->elem);
    for (uint32_t i = 0; i < in->rank; i++)
        at += own[i] * clamp_start(s, f, 2 + i, in->dims[i] - up->dims[i]);
    if (y + at != xl_in(s, f, 1))                          /* else it was made there */
        xl_strided_run(&v->s, y + at, xl_in(s, f, 1), f->pool);
    return NULL;
}
xl_error *xl_kernel_dynamic_update_slice(xl_planner *p, const xl_op *op)
{
    xl_extent in, up;
    int64_t own[XL_RANK_MAX], to[XL_RANK_MAX];
    xl_error *err = xl_shape_of(p, xl_in_type(p->f, op, 0), &in);
    if (!err)
        err = xl_shape_of(p, xl_in_type(p->f, op, 1), &up);
    if (err)
        return err;
    if (op->nin != 2 + in.rank)
        return xl_plan_unsupported(p, op, "it has not one start index per dimension");
    view *v = xl_new(p->a, view, 1);
    xl_row_major(to, in.rank, in.dims, in.elem);
    xl_row_major(own, up.rank, up.dims, up.elem);
    xl_strided_init(&v->s, up.elem, up.rank, up.dims, to, own);
    return xl_plan_step(p, op, run_dynamic_update_slice, v, 1);
}

static xl_error *run_real_dynamic_slice(const xl_step *s, xl_frame *f)
{
    const xl_extent *in = xl_in_shape(s, 0), *out = xl_out_shape(s, 0);
    int64_t own[XL_RANK_MAX], to[XL_RANK_MAX], at = 0;
    xl_strided v;
    xl_row_major(own, in->rank, in->dims, in->elem);
    xl_row_major(to, out->rank, out->dims, out->elem);
    for (uint32_t i = 0; i < in->rank; i++) {
        int64_t start = xl_read_index(xl_in(s, f, 1), s->shape[1].dtype, i),
                step = xl_read_index(xl_in(s, f, 3), s->shape[3].dtype, i);
        if (step < 1 || start < 0 || (out->dims[i] > 0 && start + (out->dims[i] - 1) * step >= in->dims[i]))
            return XL_ERR(INVALID, "the slice reaches outside dimension %u", i);
        at += own[i] * start;
        own[i] *= step;
    }
    xl_strided_init(&v, out->elem, out->rank, out->dims, to, own);
    xl_strided_run(&v, xl_out(s, f, 0), (const char *)xl_in(s, f, 0) + at, f->pool);
    return NULL;
}
xl_error *xl_kernel_real_dynamic_slice(xl_planner *p, const xl_op *op)
{
    return xl_plan_step(p, op, run_real_dynamic_slice, NULL, 0);
}

/* ---- bitcast ---------------------------------------------------------------------------------------------------- */
/* Elements of less than a byte take a byte each; between them and wider ones bits are packed or spread. */
static xl_error *run_bitcast(const xl_step *s, xl_frame *f)
{
    const xl_extent *in = xl_in_shape(s, 0), *out = xl_out_shape(s, 0);
    int ib = xl_dtypes[in->dtype].bits, ob = xl_dtypes[out->dtype].bits;
    const uint8_t *x = xl_in(s, f, 0);
    uint8_t *y = xl_out(s, f, 0);
    if (ib < 8 && ob < 8 && ib != ob) {                    /* between two kinds of small ones */
        int64_t bits = in->count * ib;
        memset(y, 0, out->bytes);
        for (int64_t i = 0; i < bits; i++)
            if (x[i / ib] >> (i % ib) & 1)
                y[i / ob] |= (uint8_t)(1 << (i % ob));
    } else if (ib < 8 && ob >= 8) {
        memset(y, 0, out->bytes);
        for (int64_t i = 0; i < in->count; i++)
            y[i * ib / 8] |= (uint8_t)((x[i] & ((1 << ib) - 1)) << (i * ib % 8));
    } else if (ob < 8 && ib >= 8) {
        for (int64_t i = 0; i < out->count; i++)
            y[i] = (uint8_t)(x[i * ob / 8] >> (i * ob % 8) & ((1 << ob) - 1));
    }
    return NULL;
}
xl_error *xl_kernel_bitcast_convert(xl_planner *p, const xl_op *op)
{
    xl_dtype in = xl_in_type(p->f, op, 0)->dtype, out = xl_out_type(p->f, op, 0)->dtype;
    int ib = xl_dtypes[in].bits, ob = xl_dtypes[out].bits;
    if (ib == ob || (ib >= 8 && ob >= 8))
        return same(p, op);
    return xl_plan_step(p, op, run_bitcast, NULL, 0);
}

/* ---- sizes and tuples ------------------------------------------------------------------------------------------- */
xl_error *xl_kernel_get_dimension_size(xl_planner *p, const xl_op *op)
{
    const xl_type *t = xl_in_type(p->f, op, 0);
    int64_t d = xl_op_int(op, XL_SLOT(GET_DIMENSION_SIZE, dimension));
    int32_t *v = xl_new(p->a, int32_t, 2);
    if (d < 0 || d >= t->rank || t->dims[d] == XL_DYN)
        return xl_plan_unsupported(p, op, "the size of this dimension is not known when compiling");
    v[0] = (int32_t)t->dims[d];
    xl_plan_bind(p, op->out[0], xl_plan_const(p, v, 4));
    return NULL;
}
xl_error *xl_kernel_set_dimension_size(xl_planner *p, const xl_op *op)
{
    if (!xl_type_static(xl_out_type(p->f, op, 0)))
        return xl_plan_unsupported(p, op, "dynamic sizes are not supported by this device: give static shapes");
    xl_plan_alias(p, op->out[0], op->in[0]);
    return NULL;
}

xl_error *xl_kernel_tuple(xl_planner *p, const xl_op *op)
{
    uint32_t n = 0, k = 0;
    for (uint32_t i = 0; i < op->nin; i++)
        n += p->leaf[op->in[i].id].n;
    xl_leaves l = { xl_new(p->a, uint32_t, n), n };
    for (uint32_t i = 0; i < op->nin; i++)
        for (uint32_t j = 0; j < p->leaf[op->in[i].id].n; j++) {
            uint32_t b = p->leaf[op->in[i].id].buf[j];
            l.buf[k++] = b;
            if (p->plan->buf[b].last < p->last[op->out[0].id])
                p->plan->buf[b].last = p->plan->buf[b].end = p->last[op->out[0].id];
        }
    p->leaf[op->out[0].id] = l;
    return NULL;
}
static uint32_t leaves(const xl_type *t)
{
    uint32_t n = 0;
    if (t->kind != XL_TY_TUPLE)
        return 1;
    for (uint32_t i = 0; i < t->nelem; i++)
        n += leaves(t->elem[i]);
    return n;
}
xl_error *xl_kernel_get_tuple_element(xl_planner *p, const xl_op *op)
{
    const xl_type *t = xl_in_type(p->f, op, 0);
    int64_t k = xl_op_int(op, XL_SLOT(GET_TUPLE_ELEMENT, index));
    uint32_t at = 0;
    if (t->kind != XL_TY_TUPLE || k < 0 || k >= t->nelem)
        return xl_plan_unsupported(p, op, "its operand has no such element");
    for (int64_t i = 0; i < k; i++)
        at += leaves(t->elem[i]);
    xl_leaves l = { p->leaf[op->in[0].id].buf + at, leaves(t->elem[k]) };
    p->leaf[op->out[0].id] = l;
    for (uint32_t i = 0; i < l.n; i++) {
        xl_plan_buf *b = &p->plan->buf[l.buf[i]];
        if (b->last < p->last[op->out[0].id])
            b->last = p->last[op->out[0].id];
        if (b->end < b->last)
            b->end = b->last;
    }
    return NULL;
}
xl_error *xl_kernel_token(xl_planner *p, const xl_op *op)
{
    static const char nothing[1];
    for (uint32_t i = 0; i < op->nout; i++)
        xl_plan_bind(p, op->out[i], xl_plan_const(p, nothing, 0));
    return NULL;
}
