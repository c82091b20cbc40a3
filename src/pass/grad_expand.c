/* Gradients by expansion: an op that is rarely differentiated is rewritten with ops that have a gradient, beside the
 * backward pass, and those are differentiated instead. The forward program keeps the op. */
#include "pass/grad.h"

#define RULE(name) xl_error *xl_grad_##name(xl_grad_ctx *g, xl_op *op, const xl_value *ct)

static xl_arena *mem(const xl_grad_ctx *g) { return &g->e.f->m->arena; }
static xl_value bin(xl_grad_ctx *g, xl_opcode c, xl_value a, xl_value b) { return xl_em_binary(&g->e, c, a, b); }

/* The ops since `from` compute `out`, which is what op gives: they take its cotangents. */
static xl_error *through(xl_grad_ctx *g, uint32_t from, const xl_op *op, const xl_value *out, const xl_value *ct)
{
    uint32_t n = g->e.r->nop - from;
    xl_op **ops = xl_new(mem(g), xl_op *, n);
    memcpy(ops, g->e.r->op + from, n * sizeof *ops);
    xl_cot_mark(g, ops, n);
    for (uint32_t i = 0; i < op->nout; i++)
        xl_cot_add(g, out[i], ct[i]);
    return xl_cot_sweep(g, ops, n);
}

/* ---- functions of scalars, over tensors ---- */
/* A region over scalars as ops over tensors of one shape: arg[i] takes the place of its argument i. */
static xl_error *lift(xl_emit *e, const xl_region *r, const xl_value *arg, xl_dims dims, xl_value *out)
{
    xl_func *f = e->f;
    uint32_t n;
    xl_value *map = xl_cot_map(f, &n);
    bool *done = xl_new(&f->m->arena, bool, n);
    for (uint32_t i = 0; i < r->narg; i++) {
        map[r->arg[i].id] = arg[i];
        done[r->arg[i].id] = true;
    }
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        xl_value *in = xl_new(&f->m->arena, xl_value, op->nin);
        for (uint32_t k = 0; k < op->nin; k++) {
            uint32_t id = op->in[k].id;
            if (!done[id]) {                             /* a constant, or a scalar from outside */
                map[id] = xl_em_spread(e, map[id], dims);
                done[id] = true;
            }
            in[k] = map[id];
        }
        if (op->code == XL_OP_RETURN) {
            memcpy(out, in, op->nin * sizeof *out);
            return NULL;
        }
        if (op->code == XL_OP_CONSTANT) {
            xl_op_clone(f, e->r, f, op, map);
            continue;
        }
        if (!(xl_ops[op->code].flags & XL_OP_ELEMWISE) || op->nout != 1)
            return XL_ERR(UNIMPLEMENTED, "a function with %s inside; only elementwise ops can be differentiated there",
                          xl_op_text(op));
        xl_op *c =
            xl_em_op(e, (xl_opcode)op->code, in, op->nin, xl_type_tensor(f->m, xl_out_type(f, op, 0)->dtype, dims));
        memcpy(c->attr, op->attr, xl_op_nattr((xl_opcode)op->code) * sizeof *c->attr);
        map[op->out[0].id] = c->out[0];
        done[op->out[0].id] = true;
    }
    return XL_ERR(INTERNAL, "a region without an end");
}

RULE(map)
{
    xl_error *err = NULL;
    xl_value out;
    uint32_t from = g->e.r->nop;
    XL_DO(lift(&g->e, op->region[0], op->in, xl_type_dims(xl_out_type(g->e.f, op, 0)), &out));
    err = through(g, from, op, &out, ct);
out:
    return err;
}

/* A loop of n turns over `carry`, which holds the last values after it. */
typedef struct { const xl_op *op; const xl_value *in; } loop;
typedef xl_error *turn_fn(xl_emit *e, const loop *l, xl_value i, xl_value *carry);

static xl_error *turns(xl_grad_ctx *g, int64_t n, xl_value *carry, uint32_t ncarry, turn_fn *fn, const loop *l)
{
    xl_error *err = NULL;
    xl_func *f = g->e.f;
    uint32_t nall = ncarry + 1;
    xl_value *all = xl_new(mem(g), xl_value, nall);
    const xl_type **types = xl_new(mem(g), const xl_type *, nall);
    all[0] = xl_em_scalar(&g->e, XL_I32, 0);
    memcpy(all + 1, carry, ncarry * sizeof *all);
    for (uint32_t i = 0; i < nall; i++)
        types[i] = xl_value_type(f, all[i]);
    xl_op *w = xl_op_new(f, g->e.r, XL_OP_WHILE, all, nall, types, nall, 2, g->e.loc);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < nall; i++)
            xl_region_add_arg(f, w->region[k], types[i], g->e.loc);
    xl_emit c = xl_em_in(&g->e, w->region[0]), b = xl_em_in(&g->e, w->region[1]);
    xl_value more =
        xl_em_compare(&c, XL_COMPARISON_DIRECTION_LT, w->region[0]->arg[0], xl_em_scalar(&c, XL_I32, (double)n));
    xl_em_return(&c, &more, 1);
    xl_value i = w->region[1]->arg[0];
    memcpy(all, w->region[1]->arg, nall * sizeof *all);
    XL_DO(fn(&b, l, i, all + 1));
    all[0] = xl_em_binary(&b, XL_OP_ADD, i, xl_em_scalar(&b, XL_I32, 1));
    xl_em_return(&b, all, nall);
    memcpy(carry, w->out + 1, ncarry * sizeof *carry);
out:
    return err;
}

/* ---- reductions by any function: one row after another ---- */
static xl_error *reduce_turn(xl_emit *e, const loop *l, xl_value i, xl_value *carry)
{
    uint32_t n = l->op->nin / 2;
    xl_value *arg = xl_new(&e->f->m->arena, xl_value, l->op->nin);
    memcpy(arg, carry, n * sizeof *arg);
    for (uint32_t k = 0; k < n; k++)
        arg[n + k] = xl_em_row(e, l->in[k], i);
    return lift(e, l->op->region[0], arg, xl_type_dims(xl_em_type(e, carry[0])), carry);
}

xl_error *xl_grad_reduce_any(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    xl_error *err = NULL;
    uint32_t n = op->nin / 2, from = g->e.r->nop, lead = 0, rest = 0;
    const xl_type *t = xl_in_type(g->e.f, op, 0);
    xl_dims over = xl_op_dims(op, XL_SLOT(REDUCE, dimensions)), out = xl_type_dims(xl_out_type(g->e.f, op, 0));
    int64_t *perm = xl_new(mem(g), int64_t, t->rank), *dims = xl_new(mem(g), int64_t, out.n + 1);
    dims[0] = 1;
    memcpy(dims + 1, out.p, out.n * sizeof *dims);
    for (uint32_t d = 0; d < t->rank; d++) {
        bool gone = false;
        for (size_t k = 0; k < over.n; k++)
            gone |= over.p[k] == d;
        if (gone)
            dims[0] *= t->dims[d];
        perm[gone ? lead++ : over.n + rest++] = d;
    }
    xl_value *rows = xl_new(mem(g), xl_value, n), *carry = xl_new(mem(g), xl_value, n);
    for (uint32_t k = 0; k < n; k++) {
        rows[k] = xl_em_reshape(&g->e, xl_em_transpose(&g->e, op->in[k], (xl_dims){ perm, t->rank }),
                                (xl_dims){ dims, out.n + 1 });
        carry[k] = xl_em_spread(&g->e, op->in[n + k], out);
    }
    XL_DO(turns(g, dims[0], carry, n, reduce_turn, &(loop){ .op = op, .in = rows }));
    err = through(g, from, op, carry, ct);
out:
    return err;
}

/* ---- windows: one place of the window after another, for all windows at once ---- */
typedef struct { xl_dims win, str, base, dil, pad, out; } windows;

/* x with the padding and the holes of the base dilation filled in. */
static xl_value widened(xl_grad_ctx *g, const windows *w, xl_value x, xl_value with)
{
    uint32_t n = (uint32_t)w->win.n;
    int64_t *low = xl_new(mem(g), int64_t, n), *high = xl_new(mem(g), int64_t, n), *inner = xl_new(mem(g), int64_t, n);
    for (uint32_t d = 0; d < n; d++) {
        low[d] = w->pad.n ? w->pad.p[2 * d] : 0;
        high[d] = w->pad.n ? w->pad.p[2 * d + 1] : 0;
        inner[d] = xl_dims_at(w->base, d, 1) - 1;
    }
    return xl_em_pad(&g->e, x, with, low, high, inner);
}

/* Of every window the element at place i: a slice that starts there, with the windows' strides. */
static xl_value at_place(xl_emit *e, const windows *w, xl_value x, xl_value i)
{
    uint32_t n = (uint32_t)w->win.n;
    xl_arena *a = &e->f->m->arena;
    xl_value *start = xl_new(a, xl_value, n);
    int64_t *span = xl_new(a, int64_t, n), *zero = xl_new(a, int64_t, n), *step = xl_new(a, int64_t, n);
    for (uint32_t d = n; d-- > 0;) {
        xl_value size = xl_em_scalar(e, XL_I32, (double)w->win.p[d]);
        start[d] = xl_em_binary(e, XL_OP_MULTIPLY, xl_em_binary(e, XL_OP_REMAINDER, i, size),
                                xl_em_scalar(e, XL_I32, (double)xl_dims_at(w->dil, d, 1)));
        i = xl_em_binary(e, XL_OP_DIVIDE, i, size);
        step[d] = xl_dims_at(w->str, d, 1);
        span[d] = w->out.p[d] ? (w->out.p[d] - 1) * step[d] + 1 : 0;
    }
    return xl_em_slice(e, xl_em_dynamic_slice(e, x, start, span), zero, span, step);
}

static int64_t places(const windows *w)
{
    int64_t n = 1;
    for (size_t d = 0; d < w->win.n; d++)
        n *= w->win.p[d];
    return n;
}

static windows windows_of(const xl_func *f, const xl_op *op)
{
    return (windows){ xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dimensions)),
                      xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_strides)),
                      xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, base_dilations)),
                      xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, window_dilations)),
                      xl_op_dims(op, XL_SLOT(REDUCE_WINDOW, padding)),
                      xl_type_dims(xl_out_type(f, op, 0)) };
}

static xl_error *window_turn(xl_emit *e, const loop *l, xl_value i, xl_value *carry)
{
    windows w = windows_of(e->f, l->op);
    uint32_t n = l->op->nin / 2;
    xl_value *arg = xl_new(&e->f->m->arena, xl_value, l->op->nin);
    memcpy(arg, carry, n * sizeof *arg);
    for (uint32_t k = 0; k < n; k++)
        arg[n + k] = at_place(e, &w, l->in[k], i);
    return lift(e, l->op->region[0], arg, w.out, carry);
}

xl_error *xl_grad_window_any(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    xl_error *err = NULL;
    uint32_t n = op->nin / 2, from = g->e.r->nop;
    windows w = windows_of(g->e.f, op);
    xl_value *wide = xl_new(mem(g), xl_value, n), *carry = xl_new(mem(g), xl_value, n);
    for (uint32_t k = 0; k < n; k++) {
        wide[k] = widened(g, &w, op->in[k], op->in[n + k]);
        carry[k] = xl_em_spread(&g->e, op->in[n + k], w.out);
    }
    XL_DO(turns(g, places(&w), carry, n, window_turn, &(loop){ .op = op, .in = wide }));
    err = through(g, from, op, carry, ct);
out:
    return err;
}

/* select_and_scatter moves each source to the place of its window that the selection picks: its cotangent is read from
 * there. carry: whether anything was picked, the picked value, the cotangent at its place. */
static windows scattered(const xl_func *f, const xl_op *op)
{
    return (windows){ .win = xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, window_dimensions)),
                      .str = xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, window_strides)),
                      .pad = xl_op_dims(op, XL_SLOT(SELECT_AND_SCATTER, padding)),
                      .out = xl_type_dims(xl_in_type(f, op, 1)) };
}

static xl_error *select_turn(xl_emit *e, const loop *l, xl_value i, xl_value *carry)
{
    xl_error *err = NULL;
    windows w = scattered(e->f, l->op);
    xl_value x = at_place(e, &w, l->in[0], i), t = at_place(e, &w, l->in[1], i), real = at_place(e, &w, l->in[2], i),
             stays = XL_NO_VALUE;
    XL_DO(lift(e, l->op->region[0], (xl_value[]){ carry[1], x }, w.out, &stays));
    xl_value take =
        xl_em_binary(e, XL_OP_AND, real, xl_em_unary(e, XL_OP_NOT, xl_em_binary(e, XL_OP_AND, carry[0], stays)));
    carry[0] = xl_em_binary(e, XL_OP_OR, carry[0], real);
    carry[1] = xl_em_select(e, take, x, carry[1]);
    carry[2] = xl_em_select(e, take, t, carry[2]);
out:
    return err;
}

RULE(select_and_scatter)
{
    xl_error *err = NULL;
    const xl_region *sum = op->region[1];
    if (sum->nop != 2 || sum->op[0]->code != XL_OP_ADD)
        return XL_ERR(UNIMPLEMENTED, "a select_and_scatter that combines otherwise than by adding");
    xl_func *f = g->e.f;
    windows w = scattered(f, op);
    const xl_type *t = xl_in_type(f, op, 0);
    xl_value zero = xl_em_scalar(&g->e, t->dtype, 0), no = xl_em_scalar(&g->e, XL_I1, 0);
    xl_value in[3] = { widened(g, &w, op->in[0], zero), widened(g, &w, ct[0], zero),
                       widened(g, &w, xl_em_splat(&g->e, xl_type_with_dtype(f->m, t, XL_I1), 1), no) };
    xl_value carry[3] = { xl_em_spread(&g->e, no, w.out), xl_em_spread(&g->e, zero, w.out),
                          xl_em_spread(&g->e, zero, w.out) };
    if (xl_cot_active(g, op->in[1])) {
        XL_DO(turns(g, places(&w), carry, 3, select_turn, &(loop){ .op = op, .in = in }));
        xl_cot_add(g, op->in[1], carry[2]);
    }
    if (xl_cot_active(g, op->in[2])) {
        int64_t *all = xl_new(mem(g), int64_t, t->rank);
        for (uint32_t d = 0; d < t->rank; d++)
            all[d] = d;
        xl_cot_add(g, op->in[2], xl_em_sum(&g->e, ct[0], (xl_dims){ all, t->rank }));
    }
out:
    return err;
}

/* ---- batch normalisation ---- */
typedef struct { xl_grad_ctx *g; xl_dims dims, over; int64_t feature; double count; } norm;

static norm norm_of(xl_grad_ctx *g, const xl_op *op, uint32_t slot)
{
    const xl_type *t = xl_in_type(g->e.f, op, 0);
    norm n = { g, xl_type_dims(t), { NULL, 0 }, xl_op_int(op, slot), 1 };
    int64_t *over = xl_new(mem(g), int64_t, t->rank);
    uint32_t k = 0;
    for (uint32_t d = 0; d < t->rank; d++)
        if (d != n.feature) {
            over[k++] = d;
            n.count *= (double)t->dims[d];
        }
    n.over = (xl_dims){ over, k };
    return n;
}

static xl_value per(norm *n, xl_value feature)
{
    return xl_em_broadcast(&n->g->e, feature, n->dims, (xl_dims){ &n->feature, 1 });
}
static xl_value mean(norm *n, xl_value x)
{
    xl_value s = xl_em_sum(&n->g->e, x, n->over);
    return bin(n->g, XL_OP_DIVIDE, s, xl_em_like(&n->g->e, s, n->count));
}
static xl_value rstd(norm *n, xl_value var, const xl_attr *eps)
{
    return xl_em_unary(&n->g->e, XL_OP_RSQRT, bin(n->g, XL_OP_ADD, var, xl_em_like(&n->g->e, var, eps->f)));
}

RULE(batch_norm_inference)
{
    norm n = norm_of(g, op, XL_SLOT(BATCH_NORM_INFERENCE, feature_index));
    uint32_t from = g->e.r->nop;
    xl_value s = bin(g, XL_OP_MULTIPLY, op->in[1], rstd(&n, op->in[4], XL_ATTR(op, BATCH_NORM_INFERENCE, epsilon)));
    xl_value y = bin(g, XL_OP_MULTIPLY, bin(g, XL_OP_SUBTRACT, op->in[0], per(&n, op->in[3])), per(&n, s));
    y = bin(g, XL_OP_ADD, y, per(&n, op->in[2]));
    return through(g, from, op, &y, ct);
}

RULE(batch_norm_training)
{
    norm n = norm_of(g, op, XL_SLOT(BATCH_NORM_TRAINING, feature_index));
    uint32_t from = g->e.r->nop;
    xl_value m = mean(&n, op->in[0]), d = bin(g, XL_OP_SUBTRACT, op->in[0], per(&n, m)),
             v = mean(&n, bin(g, XL_OP_MULTIPLY, d, d));
    xl_value s = bin(g, XL_OP_MULTIPLY, op->in[1], rstd(&n, v, XL_ATTR(op, BATCH_NORM_TRAINING, epsilon)));
    xl_value out[3] = { bin(g, XL_OP_ADD, bin(g, XL_OP_MULTIPLY, d, per(&n, s)), per(&n, op->in[2])), m, v };
    return through(g, from, op, out, ct);
}

RULE(batch_norm_grad)
{
    norm n = norm_of(g, op, XL_SLOT(BATCH_NORM_GRAD, feature_index));
    uint32_t from = g->e.r->nop;
    xl_value r = rstd(&n, op->in[3], XL_ATTR(op, BATCH_NORM_GRAD, epsilon)), t = op->in[4];
    xl_value hat = bin(g, XL_OP_MULTIPLY, bin(g, XL_OP_SUBTRACT, op->in[0], per(&n, op->in[2])), per(&n, r)),
             th = bin(g, XL_OP_MULTIPLY, t, hat);
    xl_value rest = bin(g, XL_OP_SUBTRACT, bin(g, XL_OP_SUBTRACT, t, per(&n, mean(&n, t))),
                        bin(g, XL_OP_MULTIPLY, hat, per(&n, mean(&n, th))));
    xl_value out[3] = { bin(g, XL_OP_MULTIPLY, rest, per(&n, bin(g, XL_OP_MULTIPLY, op->in[1], r))),
                        xl_em_sum(&g->e, th, n.over), xl_em_sum(&g->e, t, n.over) };
    return through(g, from, op, out, ct);
}

/* ---- a gather by another name ---- */
RULE(torch_index_select)
{
    int64_t dim = xl_op_int(op, XL_SLOT(TORCH_INDEX_SELECT, dim));
    const xl_type *t = xl_in_type(g->e.f, op, 0), *it = xl_in_type(g->e.f, op, 1);
    if (xl_op_int(op, XL_SLOT(TORCH_INDEX_SELECT, batch_dims)))
        return XL_ERR(UNIMPLEMENTED,
                      "a torch_index_select with batch dimensions; gather with batching dimensions instead");
    uint32_t from = g->e.r->nop, n = 0;
    int64_t *offset = xl_new(mem(g), int64_t, t->rank), *sizes = xl_new(mem(g), int64_t, t->rank);
    for (uint32_t d = 0; d < t->rank; d++) {
        sizes[d] = d == dim ? 1 : t->dims[d];
        if (d != dim)
            offset[n++] = d < dim ? d : d + (int64_t)it->rank - 1;
    }
    xl_b_gather_dims how = { .offset = { offset, n },
                             .collapsed = { &dim, 1 },
                             .map = { &dim, 1 },
                             .sizes = { sizes, t->rank },
                             .vector_dim = it->rank };
    xl_value y = xl_b_gather(&g->e, op->in[0], op->in[1], &how);
    return through(g, from, op, &y, ct);
}
