/* Gradients of ops that move elements: the cotangent moves in the opposite direction, and elements read twice are
 * summed. */
#include "pass/grad.h"

#define RULE(name) xl_error *xl_grad_##name(xl_grad_ctx *g, xl_op *op, const xl_value *ct)

static const xl_type *in_type(const xl_grad_ctx *g, const xl_op *op, uint32_t i) { return xl_in_type(g->e.f, op, i); }
static xl_arena *mem(const xl_grad_ctx *g) { return &g->e.f->m->arena; }
static bool has(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}

RULE(reshape)
{
    xl_cot_add(g, op->in[0], xl_em_reshape(&g->e, ct[0], xl_type_dims(in_type(g, op, 0))));
    return NULL;
}

RULE(transpose)
{
    xl_dims p = xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation));
    int64_t *back = xl_new(mem(g), int64_t, p.n);
    for (size_t i = 0; i < p.n; i++)
        back[p.p[i]] = (int64_t)i;
    xl_cot_add(g, op->in[0], xl_em_transpose(&g->e, ct[0], (xl_dims){ back, p.n }));
    return NULL;
}

RULE(reverse)
{
    xl_cot_add(g, op->in[0], xl_em_reverse(&g->e, ct[0], xl_op_dims(op, XL_SLOT(REVERSE, dimensions))));
    return NULL;
}

/* Sums over the dimensions that were made, and over those of size one that were stretched. */
static void unbroadcast(xl_grad_ctx *g, xl_op *op, xl_value ct, xl_dims at)
{
    const xl_type *in = in_type(g, op, 0), *out = xl_out_type(g->e.f, op, 0);
    int64_t *over = xl_new(mem(g), int64_t, out->rank), *perm = xl_new(mem(g), int64_t, in->rank);
    uint32_t n = 0;
    for (uint32_t d = 0; d < out->rank; d++) {
        bool sum = true;
        for (size_t i = 0; i < at.n; i++)
            if (at.p[i] == d)
                sum = in->dims[i] != out->dims[d];
        if (sum)
            over[n++] = d;
    }
    xl_value s = xl_em_sum(&g->e, ct, (xl_dims){ over, n });
    /* What is left has the kept dimensions in the order of the result; bring them into the operand's, then put the ones
     * back. */
    uint32_t kept = 0;
    for (size_t i = 0; i < at.n; i++) {
        if (has((xl_dims){ over, n }, at.p[i]))
            continue;
        int64_t rank = 0;
        for (size_t j = 0; j < at.n; j++)
            rank += !has((xl_dims){ over, n }, at.p[j]) && at.p[j] < at.p[i];
        perm[kept++] = rank;
    }
    s = xl_em_transpose(&g->e, s, (xl_dims){ perm, kept });
    xl_cot_add(g, op->in[0], xl_em_reshape(&g->e, s, xl_type_dims(in)));
}

RULE(broadcast_in_dim)
{
    unbroadcast(g, op, ct[0], xl_op_dims(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions)));
    return NULL;
}

RULE(broadcast)
{
    uint32_t front = xl_out_type(g->e.f, op, 0)->rank - in_type(g, op, 0)->rank, n = in_type(g, op, 0)->rank;
    int64_t *at = xl_new(mem(g), int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        at[i] = front + i;
    unbroadcast(g, op, ct[0], (xl_dims){ at, n });
    return NULL;
}

RULE(concatenate)
{
    int64_t dim = xl_op_int(op, XL_SLOT(CONCATENATE, dimension)), pos = 0;
    const xl_type *out = xl_out_type(g->e.f, op, 0);
    for (uint32_t i = 0; i < op->nin; i++) {
        int64_t size = in_type(g, op, i)->dims[dim];
        if (xl_cot_active(g, op->in[i])) {
            int64_t *start = xl_new(mem(g), int64_t, out->rank), *limit = xl_new(mem(g), int64_t, out->rank);
            memcpy(limit, out->dims, out->rank * sizeof *limit);
            start[dim] = pos;
            limit[dim] = pos + size;
            xl_cot_add(g, op->in[i], xl_em_slice(&g->e, ct[0], start, limit, NULL));
        }
        pos += size;
    }
    return NULL;
}

/* Whole in every dimension but one. */
static bool is_band(const xl_type *t, const xl_type *out, xl_dims strides, uint32_t *dim)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        if (out->dims[i] != t->dims[i])
            *dim = i, n++;
    return n == 1 && !strides.n && out->dims[*dim];
}

RULE(slice)
{
    uint32_t dim = 0;
    const xl_type *t = in_type(g, op, 0), *out = xl_out_type(g->e.f, op, 0);
    xl_dims s = xl_op_dims(op, XL_SLOT(SLICE, start_indices)), st = xl_op_dims(op, XL_SLOT(SLICE, strides));
    if (g->opts.gpu && is_band(t, out, st, &dim)) {
        xl_cot_add_part(g, op->in[0], dim, s.p[dim], ct[0]);
        return NULL;
    }
    xl_value was = xl_cot_get(g, op->in[0]);
    if (xl_has(was) && !st.n && t->rank && xl_cot_active(g, op->in[0])) { /* in place, as a dynamic slice does it */
        xl_value *start = xl_new(mem(g), xl_value, t->rank);
        for (uint32_t i = 0; i < t->rank; i++)
            start[i] = xl_em_scalar(&g->e, XL_I32, (double)s.p[i]);
        xl_value part = xl_em_slice(&g->e, was, s.p, xl_op_dims(op, XL_SLOT(SLICE, limit_indices)).p, NULL);
        part = xl_em_binary(&g->e, XL_OP_ADD, part, ct[0]);
        xl_cot_set(g, op->in[0], xl_em_dynamic_update(&g->e, was, part, start));
        return NULL;
    }
    int64_t *low = xl_new(mem(g), int64_t, t->rank), *high = xl_new(mem(g), int64_t, t->rank),
            *inner = xl_new(mem(g), int64_t, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        int64_t step = xl_dims_at(st, i, 1), n = out->dims[i];
        low[i] = s.p[i];
        inner[i] = step - 1;
        high[i] = t->dims[i] - low[i] - (n ? (n - 1) * step + 1 : 0);
    }
    xl_value zero = xl_em_scalar(&g->e, t->dtype, 0);
    xl_cot_add(g, op->in[0], xl_em_pad(&g->e, ct[0], zero, low, high, inner));
    return NULL;
}

RULE(pad)
{
    const xl_type *t = in_type(g, op, 0), *out = xl_out_type(g->e.f, op, 0);
    xl_dims lo = xl_op_dims(op, XL_SLOT(PAD, edge_padding_low)), hi = xl_op_dims(op, XL_SLOT(PAD, edge_padding_high));
    xl_dims in = xl_op_dims(op, XL_SLOT(PAD, interior_padding));
    int64_t *low = xl_new(mem(g), int64_t, t->rank), *high = xl_new(mem(g), int64_t, t->rank),
            *start = xl_new(mem(g), int64_t, t->rank);
    int64_t *limit = xl_new(mem(g), int64_t, t->rank), *step = xl_new(mem(g), int64_t, t->rank),
            *all = xl_new(mem(g), int64_t, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) { /* edges cut off, or zeros where the padding had cut the operand */
        low[i] = -lo.p[i] > 0 ? -lo.p[i] : 0;
        high[i] = -hi.p[i] > 0 ? -hi.p[i] : 0;
        start[i] = lo.p[i] > 0 ? lo.p[i] : 0;
        limit[i] = out->dims[i] + low[i] + high[i] - (hi.p[i] > 0 ? hi.p[i] : 0);
        step[i] = in.p[i] + 1;
        all[i] = i;
    }
    xl_value zero = xl_em_scalar(&g->e, t->dtype, 0);
    xl_value wide = xl_em_pad(&g->e, ct[0], zero, low, high, NULL);
    xl_value mine = xl_em_slice(&g->e, wide, start, limit, step);
    xl_cot_add(g, op->in[0], mine);
    if (xl_cot_active(g, op->in[1])) {
        xl_dims d = { all, t->rank };
        xl_value whole = xl_em_sum(&g->e, ct[0], d), inside = xl_em_sum(&g->e, mine, d);
        xl_cot_add(g, op->in[1], xl_em_binary(&g->e, XL_OP_SUBTRACT, whole, inside));
    }
    return NULL;
}

/* Where the operand already has a cotangent its slice is added in place: a loop over rows then costs one row a turn. */
RULE(dynamic_slice)
{
    xl_value x = op->in[0], was = xl_cot_get(g, x);
    xl_dims sizes = xl_op_dims(op, XL_SLOT(DYNAMIC_SLICE, slice_sizes));
    if (!xl_cot_active(g, x))
        return NULL;
    if (!xl_has(was)) {
        xl_cot_set(g, x, xl_em_dynamic_update(&g->e, xl_em_like(&g->e, x, 0), ct[0], op->in + 1));
        return NULL;
    }
    xl_value part = xl_em_dynamic_slice(&g->e, was, op->in + 1, sizes.p);
    xl_cot_set(g, x, xl_em_dynamic_update(&g->e, was, xl_em_binary(&g->e, XL_OP_ADD, part, ct[0]), op->in + 1));
    return NULL;
}

RULE(dynamic_update_slice)
{
    if (xl_cot_active(g, op->in[0]))
        xl_cot_add(g, op->in[0], xl_em_dynamic_update(&g->e, ct[0], xl_em_like(&g->e, op->in[1], 0), op->in + 2));
    if (xl_cot_active(g, op->in[1]))
        xl_cot_add(g, op->in[1], xl_em_dynamic_slice(&g->e, ct[0], op->in + 2, in_type(g, op, 1)->dims));
    return NULL;
}

/* ---- gather and scatter ---- */
static void dims_slot(xl_op *op, uint32_t slot, xl_grad_ctx *g, xl_dims d)
{
    xl_op_set(op, slot, xl_attr_dims(g->e.f->m, d));
}

/* A scatter that adds the cotangent of a gather back to where it was read. */
static xl_value scatter_add(xl_grad_ctx *g, const xl_op *ga, xl_value into, xl_value idx, xl_value upd)
{
    xl_value in[3] = { into, idx, upd };
    const xl_type *t = xl_value_type(g->e.f, into);
    xl_op *s = xl_op_new(g->e.f, g->e.r, XL_OP_SCATTER, in, 3, &t, 1, 1, g->e.loc);
    dims_slot(s, XL_SLOT(SCATTER, update_window_dims), g, xl_op_dims(ga, XL_SLOT(GATHER, offset_dims)));
    dims_slot(s, XL_SLOT(SCATTER, inserted_window_dims), g, xl_op_dims(ga, XL_SLOT(GATHER, collapsed_slice_dims)));
    dims_slot(s, XL_SLOT(SCATTER, input_batching_dims), g, xl_op_dims(ga, XL_SLOT(GATHER, operand_batching_dims)));
    dims_slot(s, XL_SLOT(SCATTER, scatter_indices_batching_dims), g,
              xl_op_dims(ga, XL_SLOT(GATHER, start_indices_batching_dims)));
    dims_slot(s, XL_SLOT(SCATTER, scatter_dims_to_operand_dims), g, xl_op_dims(ga, XL_SLOT(GATHER, start_index_map)));
    xl_op_set(s, XL_SLOT(SCATTER, index_vector_dim),
              xl_attr_i64(g->e.f->m, xl_op_int(ga, XL_SLOT(GATHER, index_vector_dim))));
    xl_op_set(s, XL_SLOT(SCATTER, indices_are_sorted), ga->attr[XL_SLOT(GATHER, indices_are_sorted)]);
    xl_em_combiner(&g->e, s->region[0], XL_OP_ADD, t->dtype);
    xl_op_normalize(g->e.f->m, s);
    return s->out[0];
}

/* A gather clamps its indices into the operand, a scatter drops what falls outside: so the scatter gets
 * clamped ones. */
static xl_value clamped(xl_grad_ctx *g, const xl_op *ga)
{
    xl_module *m = g->e.f->m;
    const xl_type *t = in_type(g, ga, 0), *it = in_type(g, ga, 1);
    xl_dims map = xl_op_dims(ga, XL_SLOT(GATHER, start_index_map)),
            sizes = xl_op_dims(ga, XL_SLOT(GATHER, slice_sizes));
    int64_t ivd = xl_op_int(ga, XL_SLOT(GATHER, index_vector_dim));
    if (xl_dtype_bytes(it->dtype) < 4) /* a narrow type may not hold the bound, then nothing exceeds it */
        return ga->in[1];
    int64_t *most = xl_new(mem(g), int64_t, map.n);
    for (size_t i = 0; i < map.n; i++)
        most[i] = t->dims[map.p[i]] - sizes.p[map.p[i]];
    xl_value hi;
    if (map.n == 1) {
        hi = xl_em_splat(&g->e, it, (double)most[0]);
    } else {
        unsigned char *b = xl_new(mem(g), unsigned char, 8 * map.n);
        size_t w = xl_dtype_bytes(it->dtype);
        for (size_t i = 0; i < map.n; i++)
            memcpy(b + i * w, &most[i], w);
        int64_t one = (int64_t)map.n;
        hi = xl_em_dense(&g->e, xl_type_tensor(m, it->dtype, (xl_dims){ &one, 1 }), b, w * map.n);
        hi = xl_em_broadcast(&g->e, hi, xl_type_dims(it), (xl_dims){ &ivd, 1 });
    }
    xl_value in[3] = { xl_em_splat(&g->e, it, 0), ga->in[1], hi };
    return xl_em_op(&g->e, XL_OP_CLAMP, in, 3, it)->out[0];
}

RULE(gather)
{
    xl_value x = op->in[0], was = xl_cot_get(g, x);
    if (!xl_cot_active(g, x))
        return NULL;
    xl_value into = xl_has(was) ? was : xl_em_like(&g->e, x, 0);
    xl_value at = clamped(g, op);
    xl_value sum = xl_grad_lookup(g, op, into, at, ct[0]);
    xl_cot_set(g, x, xl_has(sum) ? sum : scatter_add(g, op, into, at, ct[0]));
    return NULL;
}

/* The one op of a region of two scalars, if it is that simple: XL_OP_RETURN for "the second argument", UNKNOWN
 * otherwise. */
static xl_opcode combiner(const xl_region *r)
{
    const xl_op *end = xl_region_end(r);
    if (r->narg != 2 || end->nin != 1)
        return XL_OP_UNKNOWN;
    if (r->nop == 1)
        return end->in[0].id == r->arg[1].id ? XL_OP_RETURN : XL_OP_UNKNOWN;
    const xl_op *op = r->op[0];
    if (r->nop != 2 || op->nout != 1 || op->nin != 2 || end->in[0].id != op->out[0].id)
        return XL_OP_UNKNOWN;
    bool both = (op->in[0].id == r->arg[0].id && op->in[1].id == r->arg[1].id) ||
                (op->in[0].id == r->arg[1].id && op->in[1].id == r->arg[0].id);
    return both ? (xl_opcode)op->code : XL_OP_UNKNOWN;
}

/* The gather that reads what a scatter wrote. Its indices are not clamped by the scatter, so what fell outside would be
 * read at the border: the caller masks that. */
static xl_value gather_back(xl_grad_ctx *g, const xl_op *sc, xl_value from, const xl_type *ut)
{
    const xl_type *t = in_type(g, sc, 0);
    xl_dims win = xl_op_dims(sc, XL_SLOT(SCATTER, update_window_dims)),
            ins = xl_op_dims(sc, XL_SLOT(SCATTER, inserted_window_dims));
    xl_dims bat = xl_op_dims(sc, XL_SLOT(SCATTER, input_batching_dims));
    int64_t *sizes = xl_new(mem(g), int64_t, t->rank);
    for (uint32_t d = 0, w = 0; d < t->rank; d++)
        sizes[d] = has(ins, d) || has(bat, d) ? 1 : ut->dims[win.p[w++]];
    xl_op *ga = xl_em_op(&g->e, XL_OP_GATHER, (xl_value[]){ from, sc->in[1] }, 2, ut);
    dims_slot(ga, XL_SLOT(GATHER, offset_dims), g, win);
    dims_slot(ga, XL_SLOT(GATHER, collapsed_slice_dims), g, ins);
    dims_slot(ga, XL_SLOT(GATHER, operand_batching_dims), g, bat);
    dims_slot(ga, XL_SLOT(GATHER, start_indices_batching_dims), g,
              xl_op_dims(sc, XL_SLOT(SCATTER, scatter_indices_batching_dims)));
    dims_slot(ga, XL_SLOT(GATHER, start_index_map), g, xl_op_dims(sc, XL_SLOT(SCATTER, scatter_dims_to_operand_dims)));
    dims_slot(ga, XL_SLOT(GATHER, slice_sizes), g, (xl_dims){ sizes, t->rank });
    xl_op_set(ga, XL_SLOT(GATHER, index_vector_dim),
              xl_attr_i64(g->e.f->m, xl_op_int(sc, XL_SLOT(SCATTER, index_vector_dim))));
    xl_op_normalize(g->e.f->m, ga);
    return ga->out[0];
}

/* Updates whose window lies inside the operand: 1, the others, which the scatter dropped: 0. Scattering ones into a
 * widened array would say it too; comparing the indices with their bounds is cheaper. */
static xl_value inside(xl_grad_ctx *g, const xl_op *sc, xl_value ct)
{
    xl_module *m = g->e.f->m;
    const xl_type *t = in_type(g, sc, 0), *it = in_type(g, sc, 1), *ut = in_type(g, sc, 2);
    xl_dims win = xl_op_dims(sc, XL_SLOT(SCATTER, update_window_dims)),
            ins = xl_op_dims(sc, XL_SLOT(SCATTER, inserted_window_dims));
    xl_dims bat = xl_op_dims(sc, XL_SLOT(SCATTER, input_batching_dims)),
            map = xl_op_dims(sc, XL_SLOT(SCATTER, scatter_dims_to_operand_dims));
    int64_t ivd = xl_op_int(sc, XL_SLOT(SCATTER, index_vector_dim)), *size = xl_new(mem(g), int64_t, t->rank);
    for (uint32_t d = 0, w = 0; d < t->rank; d++)
        size[d] = has(ins, d) || has(bat, d) ? 1 : ut->dims[win.p[w++]];
    /* the update's dimensions that are not of the window, in order: those of the indices without the vector's */
    int64_t *at = xl_new(mem(g), int64_t, ut->rank), *idx = xl_new(mem(g), int64_t, it->rank + 1);
    uint32_t nat = 0, nidx = 0;
    for (uint32_t d = 0; d < ut->rank; d++)
        if (!has(win, d))
            at[nat++] = d;
    for (uint32_t d = 0; d < it->rank; d++)
        if (d != ivd)
            idx[nidx++] = it->dims[d];
    xl_value ok = XL_NO_VALUE;
    for (size_t k = 0; k < map.n; k++) {
        xl_value i = sc->in[1];
        if (ivd < (int64_t)it->rank) {
            int64_t *start = xl_new(mem(g), int64_t, it->rank), *limit = xl_new(mem(g), int64_t, it->rank);
            memcpy(limit, it->dims, it->rank * sizeof *limit);
            start[ivd] = (int64_t)k;
            limit[ivd] = (int64_t)k + 1;
            i = xl_em_slice(&g->e, i, start, limit, NULL);
        }
        i = xl_em_reshape(&g->e, i, (xl_dims){ idx, nidx });
        xl_value low = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_GE, i, xl_em_like(&g->e, i, 0));
        xl_value high = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_LE, i,
                                      xl_em_like(&g->e, i, (double)(t->dims[map.p[k]] - size[map.p[k]])));
        xl_value both = xl_em_binary(&g->e, XL_OP_AND, low, high);
        ok = xl_has(ok) ? xl_em_binary(&g->e, XL_OP_AND, ok, both) : both;
    }
    if (!xl_has(ok))
        return ct;
    (void)m;
    ok = xl_em_broadcast(&g->e, ok, xl_type_dims(ut), (xl_dims){ at, nat });
    return xl_em_select(&g->e, ok, ct, xl_em_like(&g->e, ct, 0));
}

/* The same scatter of other values: of the cotangent, of numbers, of ones. */
static xl_value scatter_like(xl_grad_ctx *g, const xl_op *sc, xl_value into, xl_value upd, xl_opcode code)
{
    const xl_type *t = xl_value_type(g->e.f, into);
    xl_op *s = xl_op_new(g->e.f, g->e.r, XL_OP_SCATTER, (xl_value[]){ into, sc->in[1], upd }, 3, &t, 1, 1, g->e.loc);
    memcpy(s->attr, sc->attr, xl_op_nattr(XL_OP_SCATTER) * sizeof *s->attr);
    if (code == XL_OP_RETURN) {
        const xl_type *e = xl_type_scalar(g->e.f->m, t->dtype);
        xl_emit in = xl_em_in(&g->e, s->region[0]);
        xl_region_add_arg(g->e.f, s->region[0], e, g->e.loc);
        xl_value second = xl_region_add_arg(g->e.f, s->region[0], e, g->e.loc);
        xl_em_return(&in, &second, 1);
    } else
        xl_em_combiner(&g->e, s->region[0], code, t->dtype);
    return s->out[0];
}

/* 1 where the update is the one that stayed: of several for one place the scatter keeps one, and numbers scattered the
 * same way say which. */
static xl_value stayed(xl_grad_ctx *g, const xl_op *op)
{
    xl_module *m = g->e.f->m;
    const xl_type *t = xl_type_with_dtype(m, in_type(g, op, 0), XL_I32), *ut = in_type(g, op, 2);
    int64_t n = 1;
    for (uint32_t i = 0; i < ut->rank; i++)
        n *= ut->dims[i];
    xl_value number =
        xl_em_reshape(&g->e, xl_em_iota(&g->e, xl_type_tensor(m, XL_I32, (xl_dims){ &n, 1 }), 0), xl_type_dims(ut));
    xl_value last = scatter_like(g, op, xl_em_splat(&g->e, t, -1), number, XL_OP_RETURN);
    return xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, gather_back(g, op, last, xl_type_with_dtype(m, ut, XL_I32)),
                         number);
}

/* The largest (or least) of what meets at a place: those that tie share. */
static xl_error *scatter_extremum(xl_grad_ctx *g, xl_op *op, xl_value ct)
{
    xl_value x = op->in[0], u = op->in[2], r = op->out[0];
    xl_value at = gather_back(g, op, r, in_type(g, op, 2));
    xl_value one = xl_em_like(&g->e, u, 1), zero = xl_em_like(&g->e, u, 0), zx = xl_em_like(&g->e, x, 0);
    xl_value won = xl_em_select(&g->e, xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, u, at), one, zero);
    xl_value had =
        xl_em_select(&g->e, xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, x, r), xl_em_like(&g->e, x, 1), zx);
    xl_value share = xl_em_binary(&g->e, XL_OP_DIVIDE, ct,
                                  xl_em_binary(&g->e, XL_OP_ADD, had, scatter_like(g, op, zx, won, XL_OP_ADD)));
    if (xl_cot_active(g, x))
        xl_cot_add(g, x, xl_em_binary(&g->e, XL_OP_MULTIPLY, had, share));
    if (xl_cot_active(g, u))
        xl_cot_add(
            g, u,
            inside(g, op, xl_em_binary(&g->e, XL_OP_MULTIPLY, won, gather_back(g, op, share, in_type(g, op, 2)))));
    return NULL;
}

/* add, subtract: the cotangent passes to the operand and is read back for the updates. Replacement: what was
 * overwritten gets none, and of the updates those that stayed get theirs. */
RULE(scatter)
{
    if (op->nin != 3)
        return XL_ERR(UNIMPLEMENTED, "a scatter of several tensors at once; scatter each on its own");
    xl_value x = op->in[0], u = op->in[2];
    xl_opcode code = combiner(op->region[0]);
    bool unique = xl_op_int(op, XL_SLOT(SCATTER, unique_indices)) != 0;
    if (code == XL_OP_MAXIMUM || code == XL_OP_MINIMUM)
        return scatter_extremum(g, op, ct[0]);
    if (code == XL_OP_SUBTRACT && op->region[0]->op[0]->in[0].id != op->region[0]->arg[0].id)
        code = XL_OP_UNKNOWN;                            /* the update less what was there */
    if (code != XL_OP_ADD && code != XL_OP_SUBTRACT && code != XL_OP_RETURN && !(code == XL_OP_MULTIPLY && unique))
        return XL_ERR(UNIMPLEMENTED,
                      "a scatter that %s has no gradient here; add, subtract, replace, take the largest or the least, "
                      "or multiply at unique "
                      "indices",
                      code == XL_OP_MULTIPLY ? "multiplies at indices that may repeat"
                                             : "combines by another function");
    if (xl_cot_active(g, u)) {
        xl_value back = inside(g, op, gather_back(g, op, ct[0], in_type(g, op, 2)));
        if (code == XL_OP_SUBTRACT)
            back = xl_em_unary(&g->e, XL_OP_NEGATE, back);
        else if (code == XL_OP_MULTIPLY)
            back = xl_em_binary(&g->e, XL_OP_MULTIPLY, back, gather_back(g, op, x, in_type(g, op, 2)));
        else if (code == XL_OP_RETURN && !unique)
            back = xl_em_select(&g->e, stayed(g, op), back, xl_em_like(&g->e, u, 0));
        xl_cot_add(g, u, back);
    }
    if (!xl_cot_active(g, x))
        return NULL;
    if (code == XL_OP_ADD || code == XL_OP_SUBTRACT)
        xl_cot_add(g, x, ct[0]);
    else
        xl_cot_add(g, x, scatter_like(g, op, ct[0], code == XL_OP_MULTIPLY ? u : xl_em_like(&g->e, u, 0), code));
    return NULL;
}

/* The chosen elements' cotangents go back to the positions that the op gives beside them. */
RULE(top_k)
{
    xl_value x = op->in[0];
    const xl_type *t = in_type(g, op, 0), *it = xl_out_type(g->e.f, op, 1);
    int64_t *batch = xl_new(mem(g), int64_t, t->rank), *one = xl_new(mem(g), int64_t, t->rank + 1),
            last = (int64_t)t->rank - 1;
    for (uint32_t i = 0; i < t->rank; i++) {
        batch[i] = i;
        one[i] = it->dims[i];
    }
    one[t->rank] = 1;
    xl_value idx = xl_em_reshape(&g->e, op->out[1], (xl_dims){ one, t->rank + 1 });
    xl_dims lead = { batch, t->rank - 1 }, at = { &last, 1 };
    xl_b_scatter_dims d = {
        .inserted = at, .input_batch = lead, .index_batch = lead, .map = at, .vector_dim = t->rank, .unique = true
    };
    xl_cot_add(g, x, xl_b_scatter(&g->e, xl_em_like(&g->e, x, 0), idx, ct[0], &d, XL_OP_ADD));
    return NULL;
}

/* Sorting moves elements by a permutation; carrying an iota along gives it, and the cotangents go back the same way. */
RULE(sort)
{
    xl_func *f = g->e.f;
    const xl_type *t = xl_out_type(f, op, 0), *it = xl_type_with_dtype(f->m, t, XL_I32);
    int64_t dim = xl_op_int(op, XL_SLOT(SORT, dimension));
    if (dim < 0)
        dim += t->rank;
    /* the same sort once more with positions beside; XLA merges the two, and the plan's cost is one sort */
    xl_value *in = xl_new(mem(g), xl_value, op->nin + 1);
    const xl_type **out = xl_new(mem(g), const xl_type *, op->nin + 1);
    for (uint32_t i = 0; i < op->nin; i++) {
        in[i] = op->in[i];
        out[i] = xl_in_type(f, op, i);
    }
    in[op->nin] = xl_em_iota(&g->e, it, dim);
    out[op->nin] = it;
    xl_op *s = xl_op_new(f, g->e.r, XL_OP_SORT, in, op->nin + 1, out, op->nin + 1, 1, g->e.loc);
    memcpy(s->attr, op->attr, xl_op_nattr(XL_OP_SORT) * sizeof *s->attr);
    xl_op_set(s, XL_SLOT(SORT, is_stable), xl_attr_bool(f->m, true));
    uint32_t n;
    xl_value *map = xl_cot_map(f, &n);
    const xl_region *from = op->region[0];
    for (uint32_t i = 0; i < from->narg; i++)
        map[from->arg[i].id] = xl_region_add_arg(f, s->region[0], xl_value_type(f, from->arg[i]), g->e.loc);
    xl_region_add_arg(f, s->region[0], xl_type_scalar(f->m, XL_I32), g->e.loc);
    xl_region_add_arg(f, s->region[0], xl_type_scalar(f->m, XL_I32), g->e.loc);
    for (uint32_t i = 0; i < from->nop; i++)
        xl_op_clone(f, s->region[0], f, from->op[i], map);
    /* sorting the permutation gives its inverse: (perm, cotangents) by perm */
    xl_value *back = xl_new(mem(g), xl_value, op->nin + 1);
    const xl_type **bt = xl_new(mem(g), const xl_type *, op->nin + 1);
    uint32_t nb = 0;
    back[nb] = s->out[op->nin];
    bt[nb++] = it;
    for (uint32_t i = 0; i < op->nin; i++)
        if (xl_has(ct[i]) && xl_cot_active(g, op->in[i])) {
            back[nb] = ct[i];
            bt[nb++] = out[i];
        }
    xl_op *b = xl_op_new(f, g->e.r, XL_OP_SORT, back, nb, bt, nb, 1, g->e.loc);
    xl_op_set(b, XL_SLOT(SORT, dimension), xl_attr_i64(f->m, dim));
    xl_op_normalize(f->m, b);
    xl_op_normalize(f->m, s);
    for (uint32_t i = 0; i < nb; i++)
        for (int k = 0; k < 2; k++)
            xl_region_add_arg(f, b->region[0], xl_type_scalar(f->m, bt[i]->dtype), g->e.loc);
    xl_region *was = xl_em_enter(&g->e, b->region[0]);
    xl_value lt = xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_LT, b->region[0]->arg[0], b->region[0]->arg[1]);
    xl_em_return(&g->e, &lt, 1);
    xl_em_enter(&g->e, was);
    for (uint32_t i = 0, k = 1; i < op->nin; i++)
        if (xl_has(ct[i]) && xl_cot_active(g, op->in[i]))
            xl_cot_add(g, op->in[i], b->out[k++]);
    return NULL;
}
