/* From a module to steps. Three sweeps: number the ops and find each value's last use; walk them in order, letting
 * every op's kernel add its steps and deciding as we go where results lie; then give offsets to what was left
 * (place.c), and joins steps that treat the members of a batch apart (slices.c).
 *
 * Positions count ops in the order they stand, a region's ops between the begin and the end of their owner. What is
 * defined outside a region and read inside is live until the region's owner ends, since loops come round again.
 *
 * Hints carry the wish "make this value there": the results of a while body in the carried buffers, those of a branch
 * in the op's results, those of the program in its outputs. A hint is honoured when the content that lies there has
 * been read for the last time (or is read by this very op, in place); otherwise a copy follows at the end of
 * the block. */
#include <stdlib.h>

#include "cpu/plan/check.h"
#include "cpu/plan/fuse.h"
#include "cpu/plan/slices.h"
#include "cpu/run/env.h"
#include "cpu/plan/timing.h"

static xl_kernel_fn *const kernels[XL_OP_COUNT] = {
#define OP(name, text, nin, nout, nregion, types, grad, shard, kernel, ...) [XL_OP_##name] = xl_kernel_##kernel,
#include "ir/ops.def"
};

enum { DEPTH_MAX = 64 };

xl_error *xl_plan_unsupported(const xl_planner *p, const xl_op *op, const char *why)
{
    xl_str file = { 0 };
    uint32_t line = 0, col = 0;
    if (xl_loc_line(p->f->m, op->loc, &file, &line, &col))
        return XL_ERR(UNIMPLEMENTED, "%s (%.*s:%u): %s", xl_op_text(op), XL_FMT(file), line, why);
    return XL_ERR(UNIMPLEMENTED, "%s: %s", xl_op_text(op), why);
}

xl_error *xl_shape_of(xl_planner *p, const xl_type *t, xl_extent *out)
{
    static const int64_t none[1] = { 0 };
    if (t->kind == XL_TY_TOKEN) {
        *out = (xl_extent){ .dtype = XL_I1, .rank = 1, .dims = none, .elem = 1 };
        return NULL;
    }
    int64_t n;
    (void)p;
    if (t->kind != XL_TY_TENSOR || t->unranked)
        return XL_ERR(UNIMPLEMENTED, "a value that is neither a ranked tensor nor a token");
    if (t->quant)
        return XL_ERR(UNIMPLEMENTED, "quantised tensors are not supported by this device: dequantise before compiling");
    if (t->dtype == XL_TF32 || t->dtype == XL_INDEX || t->dtype == XL_DT_NONE)
        return XL_ERR(UNIMPLEMENTED, "element type %s is not supported by this device", xl_dtypes[t->dtype].text);
    if (t->rank > XL_RANK_MAX)
        return XL_ERR(UNIMPLEMENTED, "a tensor of %u dimensions: this device goes up to %d", t->rank, XL_RANK_MAX);
    if (!xl_type_count(t, &n))
        return XL_ERR(UNIMPLEMENTED, "a tensor whose size is not known when compiling: give static shapes");
    size_t elem = xl_dtype_bytes(t->dtype);
    if ((uint64_t)n > (uint64_t)(INT64_MAX / 4) / elem)
        return XL_ERR(EXHAUSTED, "a tensor of %lld elements cannot be addressed", (long long)n);
    *out = (xl_extent){ t->dtype, t->rank, t->dims, n, elem, (size_t)n * elem };
    return NULL;
}

/* ---- buffers ---------------------------------------------------------------------------------------------------- */
uint32_t xl_plan_buf_new(xl_planner *p, xl_buf_kind kind, size_t bytes)
{
    xl_plan *pl = p->plan;
    xl_plan_buf b = { .kind = kind, .bytes = bytes, .def = p->pos, .last = p->pos, .end = p->pos };
    XL_PUSH(p->a, pl->buf, pl->nbuf, pl->capbuf, b);
    return pl->nbuf - 1;
}

uint32_t xl_plan_const(xl_planner *p, const void *data, size_t bytes)
{
    uint32_t b = xl_plan_buf_new(p, XL_BUF_CONST, bytes);
    p->plan->buf[b].data = data;
    p->plan->buf[b].pinned = true;
    p->plan->const_bytes += bytes;
    return b;
}

void xl_plan_claim(xl_planner *p, uint32_t b)
{
    xl_plan_buf *x = &p->plan->buf[b];
    if (x->kind == XL_BUF_OUT && x->def > p->pos)
        x->def = p->pos;
}

static void touch(xl_planner *p, uint32_t b, int64_t pos)
{
    for (xl_plan_buf *x = &p->plan->buf[b]; ; x = &p->plan->buf[x->index]) {
        if (x->last < pos)
            x->last = pos;
        if (x->end < pos)
            x->end = pos;
        if (x->kind == XL_BUF_ARG && p->donee[x->index] != XL_NO_BUF) /* the same memory, to be written to later */
            touch(p, p->donee[x->index], pos);
        if (x->kind != XL_BUF_PART || x->index == XL_NO_BUF)
            return;
    }
}

static void set_leaves(xl_planner *p, xl_value v, const uint32_t *buf, uint32_t n)
{
    uint32_t *copy = xl_new(p->a, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = buf[i];
        touch(p, buf[i], p->last[v.id]);
    }
    p->leaf[v.id] = (xl_leaves){ copy, n };
}

void xl_plan_bind(xl_planner *p, xl_value v, uint32_t buf) { set_leaves(p, v, &buf, 1); }

void xl_plan_alias(xl_planner *p, xl_value to, xl_value from)
{
    if (p->plain && xl_value_type(p->f, to)->kind == XL_TY_TENSOR) {
        xl_extent s;
        xl_error *err = xl_shape_of(p, xl_value_type(p->f, to), &s);
        if (!err) {
            uint32_t b = xl_plan_buf_new(p, XL_BUF_TEMP, s.bytes * p->lanes);
            xl_copy_step(p, p->leaf[from.id].buf[0], b, &s);
            xl_plan_bind(p, to, b);
            return;
        }
        xl_error_free(err);                                /* whoever reads it says so */
    }
    set_leaves(p, to, p->leaf[from.id].buf, p->leaf[from.id].n);
}

static uint32_t type_leaves(const xl_type *t)
{
    if (t->kind != XL_TY_TUPLE)
        return 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->nelem; i++)
        n += type_leaves(t->elem[i]);
    return n;
}

static xl_error *leaf_shapes(xl_planner *p, const xl_type *t, xl_extent *out, uint32_t *n)
{
    if (t->kind != XL_TY_TUPLE)
        return xl_shape_of(p, t, &out[(*n)++]);
    for (uint32_t i = 0; i < t->nelem; i++) {
        xl_error *err = leaf_shapes(p, t->elem[i], out, n);
        if (err)
            return err;
    }
    return NULL;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */
static xl_step *step_new(xl_planner *p, const char *name, xl_step_fn *run, const void *data, uint32_t nin,
                         uint32_t nout)
{
    xl_block *b = p->block;
    xl_step s = { .run = run, .name = name, .data = data, .nin = nin, .nout = nout, .pos = p->pos };
    s.buf = xl_new(p->a, uint32_t, (size_t)nin + nout);
    s.shape = xl_new(p->a, xl_extent, (size_t)nin + nout);
    XL_PUSH(p->a, b->step, b->nstep, b->capstep, s);
    p->plan->nstep++;
    return &b->step[b->nstep - 1];
}

void xl_plan_add(xl_planner *p, const char *name, xl_step_fn *run, const void *data, const uint32_t *in, uint32_t nin,
                 const uint32_t *out, uint32_t nout, const xl_extent *shape)
{
    xl_step *s = step_new(p, name, run, data, nin, nout);
    uint32_t *buf = (uint32_t *)s->buf;
    for (uint32_t i = 0; i < nin; i++)
        buf[i] = in[i];
    for (uint32_t i = 0; i < nout; i++) {
        buf[nin + i] = out[i];
        xl_plan_claim(p, out[i]);
    }
    for (uint32_t i = 0; i < nin + nout; i++) {
        ((xl_extent *)s->shape)[i] = shape[i];
        touch(p, buf[i], p->pos);
    }
}

xl_error *xl_run_copy(const xl_step *s, xl_frame *f)
{
    const void *from = xl_in(s, f, 0);
    void *to = xl_out(s, f, 0);
    size_t n = f->lanes ? f->lanes * s->shape[0].elem : s->shape[0].bytes;
    if (from != to && n)
        memcpy(to, from, n);
    return NULL;
}

void xl_copy_step(xl_planner *p, uint32_t from, uint32_t to, const xl_extent *s)
{
    xl_extent both[2] = { *s, *s };
    xl_plan_add(p, "copy", xl_run_copy, NULL, &from, 1, &to, 1, both);
}

/* now: until when the op reads; the end of an op with regions. */
static uint32_t place_result(xl_planner *p, xl_value v, size_t bytes, uint32_t inplace, const uint32_t *in,
                             uint32_t nin, int64_t now)
{
    xl_plan_buf *buf = p->plan->buf;
    uint32_t h = p->hint[v.id];
    bytes *= p->lanes;
    if (p->plain)
        return xl_plan_buf_new(p, XL_BUF_TEMP, bytes);
    if (h != XL_NO_BUF && buf[h].bytes == bytes) {
        bool ok = buf[h].last < p->pos;
        if (!ok && buf[h].last == now) {                /* read by this very op: fine where the op works in place */
            bool reads = false, all = true;
            for (uint32_t i = 0; i < nin; i++)
                if (in[i] == h) {
                    reads = true;
                    all = all && i < 32 && (inplace >> i & 1);
                }
            ok = reads ? all : now == p->pos;              /* a region may read what is no operand */
            if (!reads && buf[h].kind == XL_BUF_OUT && p->plan->out_donor[buf[h].index] >= 0) {
                uint32_t donor = (uint32_t)p->plan->out_donor[buf[h].index]; /* its memory is an argument's */
                for (uint32_t i = 0; i < nin; i++)
                    if (buf[in[i]].kind == XL_BUF_ARG && buf[in[i]].index == donor)
                        ok = ok && i < 32 && (inplace >> i & 1);
            }
        }
        if (ok) {
            xl_plan_claim(p, h);
            return h;
        }
    }
    if (h == XL_NO_BUF)
        for (uint32_t i = 0; i < nin && i < 32; i++) {
            xl_plan_buf *b = &buf[in[i]];
            if (!(inplace >> i & 1) || b->kind != XL_BUF_TEMP || b->pinned || b->bytes != bytes || b->last > now ||
                b->end > now)
                continue;
            bool twice = false;
            for (uint32_t k = 0; k < nin; k++)
                twice = twice || (k != i && in[k] == in[i] && !(k < 32 && (inplace >> k & 1)));
            if (!twice)
                return in[i];
        }
    return xl_plan_buf_new(p, XL_BUF_TEMP, bytes);
}

xl_error *xl_plan_step_sub(xl_planner *p, const xl_op *op, xl_step_fn *run, const void *data, uint32_t inplace,
                           xl_block *const *sub)
{
    uint32_t nin = 0, nout = 0, k = 0;
    xl_error *err;
    for (uint32_t i = 0; i < op->nin; i++)
        nin += p->leaf[op->in[i].id].n;
    for (uint32_t i = 0; i < op->nout; i++)
        nout += type_leaves(xl_out_type(p->f, op, i));
    xl_step *s = step_new(p, xl_op_text(op), run, data, nin, nout);
    uint32_t at = p->block->nstep - 1;
    uint32_t *buf = (uint32_t *)s->buf;
    xl_extent *shape = (xl_extent *)s->shape;
    s->op = op;
    s->sub = sub;
    s->nres = nout;
    s->inplace = inplace;
    for (uint32_t i = 0; i < op->nin; i++) {
        uint32_t n = k;
        if ((err = leaf_shapes(p, xl_in_type(p->f, op, i), shape, &n)))
            return err;
        for (uint32_t j = 0; j < p->leaf[op->in[i].id].n; j++)
            buf[k++] = p->leaf[op->in[i].id].buf[j];
    }
    for (uint32_t i = 0; i < op->nout; i++) {
        uint32_t first = k, n = k;
        if ((err = leaf_shapes(p, xl_out_type(p->f, op, i), shape, &n)))
            return err;
        for (; k < n; k++) {
            if (n - first == 1)
                buf[k] = place_result(p, op->out[i], shape[k].bytes, inplace, buf, nin,
                                      op->nregion ? p->end[op->mark] : p->pos);
            else
                buf[k] = xl_plan_buf_new(p, XL_BUF_TEMP, shape[k].bytes);
            for (uint32_t j = nin; j < k; j++)             /* two results cannot lie in one operand's memory */
                if (buf[j] == buf[k])
                    buf[k] = xl_plan_buf_new(p, XL_BUF_TEMP, shape[k].bytes * p->lanes);
            touch(p, buf[k], p->end[op->mark]);            /* written until the op ends */
        }
        set_leaves(p, op->out[i], buf + first, k - first);
        for (uint32_t j = first; j < k; j++)
            p->plan->bytes_accessed += (double)shape[j].bytes;
    }
    (void)at;
    for (uint32_t i = 0; i < nin; i++)
        p->plan->bytes_accessed += (double)shape[i].bytes;
    return NULL;
}

bool xl_plan_part(xl_planner *p, const xl_op *op, xl_step_fn *run, const void *data)
{
    xl_value v = op->out[0], base = op->in[0];
    const xl_leaves *l = &p->leaf[base.id];
    if (p->plain || p->lanes > 1 || l->n != 1 || p->hint[v.id] != XL_NO_BUF || p->last[v.id] >= p->last[base.id])
        return false;
    uint32_t b = xl_plan_buf_new(p, XL_BUF_PART, 0);       /* its size below */
    p->plan->buf[b].index = l->buf[0];
    p->plan->buf[b].pinned = true;
    xl_step *s = step_new(p, xl_op_text(op), run, data, op->nin, 1);
    uint32_t *buf = (uint32_t *)s->buf;
    s->op = op;
    for (uint32_t i = 0; i <= op->nin; i++) {
        xl_value x = i < op->nin ? op->in[i] : v;
        xl_error *err = xl_shape_of(p, xl_value_type(p->f, x), (xl_extent *)&s->shape[i]);
        xl_error_free(err);                                /* its caller has asked before */
        buf[i] = i < op->nin ? p->leaf[x.id].buf[0] : b;
    }
    p->plan->buf[b].bytes = s->shape[op->nin].bytes;
    xl_plan_bind(p, v, b);
    return true;
}

xl_error *xl_plan_step_group(xl_planner *p, const char *name, xl_step_fn *run, const void *data, xl_op *const *ops,
                             uint32_t nop, const uint32_t *in, const xl_value *in_val, const xl_extent *shape,
                             uint32_t nin, const xl_value *out, const bool *in_place, uint32_t nout, uint32_t inplace,
                             const size_t *temp, uint32_t ntemp, xl_step **step)
{
    xl_step *s = step_new(p, name, run, data, nin, nout + ntemp);
    uint32_t *buf = (uint32_t *)s->buf;
    xl_extent *shapes = (xl_extent *)s->shape;
    uint32_t *val = xl_new(p->a, uint32_t, (size_t)nin + nout);
    xl_error *err;
    s->val = val;
    s->ops = ops;
    s->nop = nop;
    s->nres = nout;
    s->inplace = inplace;
    if (nin)
        memcpy(buf, in, nin * sizeof *buf);
    for (uint32_t i = 0; i < nin; i++) {
        shapes[i] = shape[i];
        val[i] = in_val[i].id;
        p->plan->bytes_accessed += (double)shape[i].bytes;
    }
    for (uint32_t i = 0; i < nout; i++) {
        uint32_t k = nin + i;
        val[k] = out[i].id;
        if ((err = xl_shape_of(p, xl_value_type(p->f, out[i]), &shapes[k])))
            return err;
        buf[k] = place_result(p, out[i], shapes[k].bytes, in_place[i] ? inplace : 0, buf, nin, p->pos);
        for (uint32_t j = nin; j < k; j++)
            if (buf[j] == buf[k])
                buf[k] = xl_plan_buf_new(p, XL_BUF_TEMP, shapes[k].bytes);
        touch(p, buf[k], p->pos);
        set_leaves(p, out[i], &buf[k], 1);
        p->plan->bytes_accessed += (double)shapes[k].bytes;
    }
    for (uint32_t i = 0; i < ntemp; i++) {
        shapes[nin + nout + i] = (xl_extent){ .dtype = XL_U8, .count = (int64_t)temp[i], .elem = 1, .bytes = temp[i] };
        buf[nin + nout + i] = xl_plan_buf_new(p, XL_BUF_TEMP, temp[i]);
    }
    *step = s;
    return NULL;
}

xl_error *xl_plan_step(xl_planner *p, const xl_op *op, xl_step_fn *run, const void *data, uint32_t inplace)
{
    return xl_plan_step_sub(p, op, run, data, inplace, NULL);
}

/* ---- regions ---------------------------------------------------------------------------------------------------- */
/* Carried values of which a loop's body does nothing but put one row in: the row need not be made elsewhere and copied.
 * The old content of its place is read by nobody, and the new one stays. */
typedef struct { const xl_op *op; xl_value row; bool done; } slot;
typedef struct { slot *s; uint32_t n, cap; } slots;

/* Points to the places of rows that are still to be made, once it is known where they are. */
static void point_slots(xl_planner *p, const slots *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t b;
        if (s->s[i].done || p->leaf[s->s[i].row.id].n || !xl_slot_step(p, s->s[i].op, &b))
            continue;
        s->s[i].done = true;
        p->plan->buf[b].last = -2;                         /* nothing lies there yet */
        p->hint[s->s[i].row.id] = b;
    }
}

static xl_error *plan_ops(xl_planner *p, const xl_region *r, const slots *rows)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        p->pos = p->begin[op->mark];
        if (op->code == XL_OP_RETURN)
            break;
        xl_group *g = op->nout ? xl_group_of(p, op->out[0]) : NULL;
        xl_error *err = NULL;
        if (rows)
            point_slots(p, rows);
        if (g && !g->planned) {
            g->planned = true;
            err = xl_tile_plan(p, g);
        } else if (!g && (p->lanes > 1 || !xl_op_virtual(p, op))) {
            err = kernels[op->code](p, op);
        }
        if (err)
            return err;
        p->pos = p->end[op->mark];
    }
    return NULL;
}

/* Ops that show their operand under another type: a hint for the result is one for the operand. */
static bool passes_through(const xl_func *f, const xl_op *op)
{
    switch (op->code) {
    case XL_OP_RESHAPE: case XL_OP_SDY_CONSTRAINT: case XL_OP_SDY_RESHARD: case XL_OP_SDY_BARRIER:
        return xl_in_type(f, op, 0)->kind == XL_TY_TENSOR;
    default:
        return false;
    }
}

/* Ops that write over a part of their first operand: made where the result is wanted, it need not be copied there. */
static bool updates(const xl_planner *p, const xl_op *op)
{
    return (op->code == XL_OP_SCATTER || op->code == XL_OP_DYNAMIC_UPDATE_SLICE) && op->nout == 1 && p->nuse &&
           p->nuse[op->in[0].id] == 1;
}

static void set_hint(xl_planner *p, const xl_region *r, xl_value v, uint32_t buf)
{
    for (;;) {
        const xl_op *def = p->f->val[v.id].def;
        if (p->plain || !def || def->parent != r || p->hint[v.id] != XL_NO_BUF)
            return;
        p->hint[v.id] = buf;
        if (!passes_through(p->f, def) && !updates(p, def))
            return;
        v = def->in[0];
    }
}

static void find_slots(xl_planner *p, const xl_region *r, const xl_op *end, slots *s)
{
    for (uint32_t i = 0; i < end->nin && p->nuse && p->lanes == 1 && r->narg == end->nin; i++) {
        const xl_op *op = p->f->val[end->in[i].id].def;
        if (!op || op->parent != r || op->code != XL_OP_DYNAMIC_UPDATE_SLICE || op->in[0].id != r->arg[i].id ||
            p->nuse[r->arg[i].id] != 1 || p->nuse[op->out[0].id] != 1)
            continue;
        slot n = { op, op->in[1], false };
        const xl_op *def = p->f->val[n.row.id].def;
        while (def && def->parent == r && passes_through(p->f, def)) {
            n.row = def->in[0];
            def = p->f->val[n.row.id].def;
        }
        bool taken =
            !def || def->parent != r || (def->nregion && !xl_group_of(p, n.row)) || def->code == XL_OP_CONSTANT;
        for (uint32_t k = 0; k < s->n; k++)
            taken = taken || s->s[k].row.id == n.row.id;
        if (!taken)
            XL_PUSH(p->a, s->s, s->n, s->cap, n);
    }
}

xl_error *xl_plan_region(xl_planner *p, const xl_op *op, uint32_t k, const uint32_t *args, const uint32_t *rets,
                         xl_block **out)
{
    const xl_region *r = op->region[k];
    xl_op *end = xl_region_end(r);
    xl_error *err = NULL;
    if (!end || end->code != XL_OP_RETURN)
        return xl_plan_unsupported(p, op, "its region does not end in a return");
    if (++p->depth > DEPTH_MAX)
        return xl_plan_unsupported(p, op, "regions are nested too deeply");
    xl_block *b = xl_new(p->a, xl_block, 1), *outer = p->block;
    int64_t pos = p->pos;
    b->lanes = p->lanes;
    for (uint32_t i = 0; i < r->narg; i++)
        b->narg += type_leaves(xl_value_type(p->f, r->arg[i]));
    for (uint32_t i = 0; i < end->nin; i++)
        b->nret += type_leaves(xl_in_type(p->f, end, i));
    b->arg = xl_new(p->a, uint32_t, b->narg);
    b->ret = xl_new(p->a, uint32_t, b->nret);
    b->arg_shape = xl_new(p->a, xl_extent, b->narg);
    b->ret_shape = xl_new(p->a, xl_extent, b->nret);
    p->block = b;
    for (uint32_t i = 0, at = 0; i < r->narg; i++) {
        uint32_t first = at;
        XL_DO(leaf_shapes(p, xl_value_type(p->f, r->arg[i]), b->arg_shape, &at));
        for (uint32_t j = first; j < at; j++) {
            b->arg[j] = args ? args[j] : xl_plan_buf_new(p, XL_BUF_TEMP, b->arg_shape[j].bytes * p->lanes);
            if (args)                                      /* the content now is this argument */
                p->plan->buf[args[j]].last = pos;
            else /* filled anew for every element: it lives as long as the block */
                touch(p, b->arg[j], p->end[op->mark]);
            p->plan->buf[b->arg[j]].pinned = true;
        }
        set_leaves(p, r->arg[i], b->arg + first, at - first);
    }
    if (rets)
        for (uint32_t i = 0, at = 0; i < end->nin; i++) {
            uint32_t n = type_leaves(xl_in_type(p->f, end, i));
            if (n == 1)
                set_hint(p, r, end->in[i], rets[at]);
            at += n;
        }
    slots rows = { .n = 0 };
    if (args && rets)                                      /* a loop's body */
        find_slots(p, r, end, &rows);
    XL_DO(plan_ops(p, r, &rows));
    p->pos = p->begin[end->mark];
    for (uint32_t i = 0, at = 0; i < end->nin; i++) {
        XL_DO(leaf_shapes(p, xl_in_type(p->f, end, i), b->ret_shape, &at));
        const xl_leaves *l = &p->leaf[end->in[i].id];
        for (uint32_t j = 0; j < l->n; j++)
            b->ret[at - l->n + j] = l->buf[j];
    }
    if (rets) { /* parallel move into place; a source that gets overwritten is saved first */
        uint32_t *from = xl_new(p->a, uint32_t, b->nret);
        for (uint32_t i = 0; i < b->nret; i++) {
            from[i] = b->ret[i];
            for (uint32_t j = 0; j < b->nret && from[i] != rets[i] && from[i] == b->ret[i]; j++)
                if (rets[j] == from[i] && b->ret[j] != rets[j]) {
                    from[i] = xl_plan_buf_new(p, XL_BUF_TEMP, b->ret_shape[i].bytes * p->lanes);
                    xl_copy_step(p, b->ret[i], from[i], &b->ret_shape[i]);
                }
        }
        for (uint32_t i = 0; i < b->nret; i++) {
            if (from[i] != rets[i])
                xl_copy_step(p, from[i], rets[i], &b->ret_shape[i]);
            b->ret[i] = rets[i];
        }
    } else {
        for (uint32_t i = 0; i < b->nret; i++)
            touch(p, b->ret[i], p->end[op->mark]);
    }
    *out = b;
out:
    p->block = outer;
    p->pos = pos;
    p->depth--;
    return err;
}

static bool lanes_ok(const xl_func *f, const xl_region *r)
{
    for (uint32_t i = 0; i < r->narg; i++) {
        const xl_type *t = xl_value_type(f, r->arg[i]);
        if (t->kind != XL_TY_TENSOR || t->rank)
            return false;
    }
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        bool ok = (xl_ops[op->code].flags & XL_OP_ELEMWISE) || op->code == XL_OP_CONSTANT || op->code == XL_OP_RETURN ||
                  op->code == XL_OP_RESHAPE || op->code == XL_OP_BROADCAST_IN_DIM || op->code == XL_OP_BITCAST_CONVERT;
        if (!ok)
            return false;
        for (uint32_t k = 0; k < op->nin; k++) {           /* captured values are one element wide */
            const xl_val *v = &f->val[op->in[k].id];
            if (v->type->kind != XL_TY_TENSOR || v->type->rank || (v->def ? v->def->parent : v->region) != r)
                return false;
        }
        for (uint32_t k = 0; k < op->nout; k++)
            if (xl_out_type(f, op, k)->kind != XL_TY_TENSOR || xl_out_type(f, op, k)->rank)
                return false;
        if (op->code == XL_OP_BITCAST_CONVERT &&
            xl_dtypes[xl_in_type(f, op, 0)->dtype].bits != xl_dtypes[xl_out_type(f, op, 0)->dtype].bits)
            return false;
    }
    return true;
}

xl_error *xl_plan_lanes(xl_planner *p, const xl_op *op, uint32_t r, xl_block **out)
{
    uint32_t outer = p->lanes;
    p->lanes = lanes_ok(p->f, op->region[r]) ? XL_LANES : 1;
    xl_error *err = xl_plan_region(p, op, r, NULL, NULL, out);
    p->lanes = outer;
    return err;
}

xl_opcode xl_region_single(const xl_func *f, const xl_region *r)
{
    if (r->narg != 2 || r->nop != 2)
        return XL_OP_UNKNOWN;
    const xl_op *op = r->op[0], *end = r->op[1];
    if (end->code != XL_OP_RETURN || end->nin != 1 || op->nin != 2 || op->nout != 1 || end->in[0].id != op->out[0].id)
        return XL_OP_UNKNOWN;
    bool straight = op->in[0].id == r->arg[0].id && op->in[1].id == r->arg[1].id;
    bool crossed = op->in[0].id == r->arg[1].id && op->in[1].id == r->arg[0].id;
    if (!straight && !(crossed && (xl_ops[op->code].flags & XL_OP_COMMUTES)))
        return XL_OP_UNKNOWN;
    (void)f;
    return (xl_opcode)op->code;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */
static xl_error *number_ops(xl_planner *p, const xl_region *r, uint32_t *nop, int64_t *pos, uint32_t depth)
{
    if (depth > DEPTH_MAX)
        return XL_ERR(INVALID, "regions are nested more than %d deep", DEPTH_MAX);
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        op->mark = (*nop)++;
        xl_group *g = op->nout ? xl_group_of(p, op->out[0]) : NULL;
        if (g) {                                           /* its members stand at one position */
            if (g->op[0] == op)
                (*pos)++;
            p->begin[op->mark] = p->end[op->mark] = *pos - 1;
            continue;
        }
        p->begin[op->mark] = (*pos)++;
        for (uint32_t k = 0; k < op->nregion; k++) {
            xl_error *err = number_ops(p, op->region[k], nop, pos, depth + 1);
            if (err)
                return err;
        }
        p->end[op->mark] = op->nregion ? (*pos)++ : p->begin[op->mark];
    }
    return NULL;
}

static uint32_t count_ops(const xl_region *r)
{
    uint32_t n = r->nop;
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            n += count_ops(r->op[i]->region[k]);
    return n;
}

static void uses(xl_planner *p, const xl_region *r, const xl_op *op, xl_value value)
{
    const xl_val *v = &p->f->val[value.id];
    const xl_region *home = v->def ? v->def->parent : v->region;
    int64_t pos = p->begin[op->mark]; /* loops and branches have read their operands when they begin */
    if (op->nregion && op->code != XL_OP_WHILE && op->code != XL_OP_IF && op->code != XL_OP_CASE)
        pos = p->end[op->mark];
    for (const xl_region *at = r; at != home && at->owner; at = at->owner->parent)
        pos = p->end[at->owner->mark];
    if (p->last[value.id] < pos)
        p->last[value.id] = pos;
}

static void find_uses(xl_planner *p, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        bool member = op->nout && xl_group_of(p, op->out[0]);
        for (uint32_t k = 0; k < op->nin; k++) {
            xl_view view = { .base = op->in[k] };
            uses(p, r, op, op->in[k]);
            if (member)
                xl_operand_view(p, op, k, &view);
            else if (op->code == XL_OP_DOT_GENERAL)
                xl_dot_view(p, op, k, &view);
            uses(p, r, op, view.base);
        }
        for (uint32_t k = 0; k < op->nregion && !member; k++)
            find_uses(p, op->region[k]);
    }
}

static bool same_place(const xl_extent *a, const xl_extent *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims));
}

/* tf.aliasing_output names the output; jax.buffer_donor leaves the choice to us. */
static void find_donors(xl_planner *p)
{
    xl_plan *pl = p->plan;
    for (uint32_t i = 0; i < pl->nout; i++)
        pl->out_donor[i] = -1;
    for (uint32_t i = 0; i < pl->narg && p->f->arg_attr; i++) {
        const xl_attr *a = xl_dict_get(p->f->arg_attr[i], XL_STR("tf.aliasing_output"));
        if (!a || a->kind != XL_AT_INT || a->i < 0 || a->i >= pl->nout)
            continue;
        pl->arg_donated[i] = true;
        if (pl->out_donor[a->i] < 0 && same_place(&pl->arg[i], &pl->out[a->i]))
            pl->out_donor[a->i] = (int32_t)i;
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < pl->narg && p->f->arg_attr; i++) {
        const xl_attr *a = xl_dict_get(p->f->arg_attr[i], XL_STR("jax.buffer_donor"));
        if (!a || (a->kind == XL_AT_BOOL && !a->i))
            continue;
        for (uint32_t k = next; k < pl->nout && k < next + 64;
             k++) /* arguments and results usually come in one order */
            if (pl->out_donor[k] < 0 && same_place(&pl->arg[i], &pl->out[k])) {
                pl->out_donor[k] = (int32_t)i;
                pl->arg_donated[i] = true;                 /* one that no result can take stays the caller's */
                next = k + 1;
                break;
            }
    }
}

/* What the program takes and gives, and which of the one lies in which of the other. */
static xl_error *signature(xl_planner *p)
{
    xl_error *err = NULL;
    xl_plan *pl = p->plan;
    const xl_region *r = p->f->body;
    const xl_op *end = xl_region_end(r);
    if (!end || end->code != XL_OP_RETURN)
        return XL_ERR(INVALID, "function %.*s has no return", XL_FMT(p->f->name));
    pl->narg = r->narg;
    pl->nout = end->nin;
    pl->arg = xl_new(p->a, xl_extent, pl->narg);
    pl->out = xl_new(p->a, xl_extent, pl->nout);
    pl->out_donor = xl_new(p->a, int32_t, pl->nout);
    pl->arg_donated = xl_new(p->a, bool, pl->narg);
    for (uint32_t i = 0; i < pl->narg; i++)
        XL_TRY(xl_shape_of(p, xl_value_type(p->f, r->arg[i]), &pl->arg[i]), "argument %u", i);
    for (uint32_t i = 0; i < pl->nout; i++)
        XL_TRY(xl_shape_of(p, xl_in_type(p->f, end, i), &pl->out[i]), "result %u", i);
    find_donors(p);
out:
    return err;
}

static xl_error *plan_main(xl_planner *p)
{
    xl_error *err = NULL;
    xl_plan *pl = p->plan;
    const xl_region *r = p->f->body;
    const xl_op *end = xl_region_end(r);
    pl->body = p->block = xl_new(p->a, xl_block, 1);
    pl->body->lanes = p->lanes = 1;
    p->pos = -1;
    p->donee = xl_new(p->a, uint32_t, pl->narg);
    for (uint32_t i = 0; i < pl->narg; i++)
        p->donee[i] = XL_NO_BUF;
    for (uint32_t i = 0; i < pl->narg; i++) {
        uint32_t b = xl_plan_buf_new(p, XL_BUF_ARG, pl->arg[i].bytes);
        pl->buf[b].index = i;
        pl->buf[b].pinned = true;
        xl_plan_bind(p, r->arg[i], b);
    }
    uint32_t *out = xl_new(p->a, uint32_t, pl->nout);
    for (uint32_t i = 0; i < pl->nout; i++) {
        out[i] = xl_plan_buf_new(p, XL_BUF_OUT, pl->out[i].bytes);
        pl->buf[out[i]].index = i;
        pl->buf[out[i]].pinned = true;
        pl->buf[out[i]].last = -2;
        pl->buf[out[i]].def = INT64_MAX;
        if (pl->out_donor[i] >= 0) {                       /* what lies there first is the donated argument */
            pl->buf[out[i]].last = p->last[r->arg[pl->out_donor[i]].id];
            p->donee[pl->out_donor[i]] = out[i];
        }
        set_hint(p, r, end->in[i], out[i]);
    }
    XL_DO(plan_ops(p, r, NULL));
    p->pos = p->begin[end->mark];
    /* Copies at the end: first those that read an argument or another output whose memory a later copy may take. */
    uint32_t *from = xl_new(p->a, uint32_t, pl->nout);
    for (uint32_t i = 0; i < pl->nout; i++) {
        uint32_t b = p->leaf[end->in[i].id].buf[0];
        from[i] = b;
        if (b == out[i])
            continue;
        const xl_plan_buf *x = &pl->buf[b];
        bool own = x->kind == XL_BUF_ARG && pl->out_donor[i] == (int32_t)x->index;
        bool taken = false;
        if (x->kind == XL_BUF_ARG && !own)
            for (uint32_t k = 0; k < pl->nout; k++)
                taken = taken || pl->out_donor[k] == (int32_t)x->index;
        if (taken) {
            from[i] = xl_plan_buf_new(p, XL_BUF_TEMP, pl->out[i].bytes);
            xl_copy_step(p, b, from[i], &pl->out[i]);
        }
    }
    for (uint32_t i = 0; i < pl->nout; i++)
        if (from[i] != out[i])
            xl_copy_step(p, from[i], out[i], &pl->out[i]);
out:
    return err;
}

static xl_error *plan_func(xl_plan *plan, xl_func *f, bool plain)
{
    xl_error *err = NULL;
    xl_planner *p = xl_new(&plan->arena, xl_planner, 1);
    p->plan = plan;
    p->a = &plan->arena;
    p->f = plan->f = f;
    p->plain = plain;
    int64_t pos = 0;
    p->lanes = 1;
    XL_DO(signature(p));
    xl_check *check = xl_check_begin(p);
    XL_DO(xl_fuse(p, p->f->body));                         /* may add ops and values */
    uint32_t nop = count_ops(p->f->body), n = 0;
    p->begin = xl_new(p->a, int64_t, nop);
    p->end = xl_new(p->a, int64_t, nop);
    p->leaf = xl_new(p->a, xl_leaves, p->f->nval);
    p->last = xl_new(p->a, int64_t, p->f->nval);
    p->hint = xl_new(p->a, uint32_t, p->f->nval);
    for (uint32_t i = 0; i < p->f->nval; i++) {
        p->hint[i] = XL_NO_BUF;
        p->last[i] = -1;
    }
    XL_DO(number_ops(p, p->f->body, &n, &pos, 0));
    find_uses(p, p->f->body);
    XL_DO(plan_main(p));
    for (uint32_t i = 0; i < plan->nbuf && p->plain; i++)  /* no memory is used twice */
        plan->buf[i].def = 0, plan->buf[i].end = pos;
    xl_slice_runs *runs = xl_slices_find(p);
    xl_slices_place(p, runs, pos);
    XL_DO(xl_check_plan(check));
    xl_slices_join(p, runs);
out:
    return err;
}

typedef struct xl_plan_end { void (*fn)(void *ctx); void *ctx; struct xl_plan_end *next; } xl_plan_end;
void xl_plan_at_end(xl_plan *p, void (*fn)(void *ctx), void *ctx)
{
    xl_plan_end *e = xl_new(&p->arena, xl_plan_end, 1);
    *e = (xl_plan_end){ fn, ctx, p->ends };
    p->ends = e;
}
static void end_all(const xl_plan *p)
{
    for (const xl_plan_end *e = p->ends; e; e = e->next)
        e->fn(e->ctx);
}

xl_error *xl_plan_new(xl_module *m, uint32_t ndevice, xl_plan **out)
{
    xl_error *err = NULL;
    jmp_buf oom;
    xl_plan *volatile plan = calloc(1, sizeof *plan);
    *out = NULL;
    if (!plan)
        return XL_ERR(EXHAUSTED, "no memory for a plan");
    jmp_buf *outer = m->arena.oom;
    if (setjmp(oom)) {
        m->arena.oom = outer;
        end_all(plan);
        xl_arena_fini(&plan->arena);
        free(plan);
        return XL_ERR(EXHAUSTED, "no memory left while planning the program");
    }
    plan->arena.oom = &oom;
    plan->ndevice = ndevice;
    m->arena.oom = &oom;
    xl_func *f = xl_module_entry(m);
    if (!f || !f->body)
        err = XL_ERR(INVALID, "the program has no entry function: give one public function, or name it main");
    else
        err = plan_func(plan, f, xl_env_get(XL_ENV_PLAN, XL_ENV_PLANNED) == XL_ENV_PLAIN);
    m->arena.oom = outer;
    plan->arena.oom = NULL;
    if (err) {
        end_all(plan);
        xl_arena_fini(&plan->arena);
        free(plan);
        return err;
    }
    plan->m = m;
    *out = plan;
    return NULL;
}

xl_error *xl_plan_plain(xl_func *f, xl_plan **out)
{
    xl_plan *plan = calloc(1, sizeof *plan);
    *out = NULL;
    if (!plan)
        return XL_ERR(EXHAUSTED, "no memory for a plan");
    plan->arena.oom = f->m->arena.oom;                     /* what is short of memory gives up the program it is for */
    plan->ndevice = 1;
    xl_error *err = plan_func(plan, f, true);
    if (err)
        xl_plan_free(plan);
    else
        *out = plan;
    return err;
}

void xl_plan_free(xl_plan *p)
{
    if (!p)
        return;
    end_all(p);
    xl_module_free(p->m);
    xl_arena_fini(&p->arena);
    free(p);
}

/* ---- running ---------------------------------------------------------------------------------------------------- */
xl_error *xl_block_run(const xl_block *b, xl_frame *f)
{
    bool timed = xl_profile_on();
    for (uint32_t i = 0; i < b->nstep; i++) {
        xl_error *err = timed ? xl_profile_run(&b->step[i], f) : b->step[i].run(&b->step[i], f);
        if (err)
            return xl_error_wrap(err, "%s", b->step[i].name);
    }
    return NULL;
}

xl_error *xl_plan_run(const xl_plan *p, xl_frame *f, void *const *arg, void *const *out, void *temp)
{
    void *small[512];
    void **ptr = p->nbuf <= 512 ? small : malloc(p->nbuf * sizeof *ptr);
    if (!ptr)
        return XL_ERR(EXHAUSTED, "no memory for a frame of %u buffers", p->nbuf);
    for (uint32_t i = 0; i < p->nbuf; i++) {
        const xl_plan_buf *b = &p->buf[i];
        switch (b->kind) {
        case XL_BUF_TEMP: ptr[i] = (char *)(b->host ? out[p->buf[b->host - 1].index] : temp) + b->offset; break;
        case XL_BUF_ARG: ptr[i] = arg[b->index]; break;
        case XL_BUF_OUT: ptr[i] = out[b->index]; break;
        case XL_BUF_CONST: ptr[i] = (void *)(uintptr_t)b->data; break;
        case XL_BUF_PART: ptr[i] = NULL; break;
        }
    }
    f->plan = p;
    f->ptr = ptr;
    f->lanes = 0;
    xl_error *err = xl_block_run(p->body, f);
    if (ptr != small)
        free(ptr);
    f->ptr = NULL;
    return err;
}
