/* Gradients of lookups without a scatter that adds: XLA's CUDA scatter adds with atomics, so its sums differ from run
 * to run and its time depends on how often an id repeats; its deterministic form sorts every element.
 *
 * One element of each row (the label's logit): the cotangent goes where the column is the index, zero elsewhere, which
 * fuses with the other gradients of the rows.
 *
 * Rows of a table: the ids are sorted with their positions, and rows with equal ids, now adjacent, are summed:
 *   - within a block of BLOCK rows by one product with a matrix of zeros and ones (row i, column j: the ids are equal),
 *     which gives every row the sum of its id within the block;
 *   - an id that continues from earlier blocks is the last id of each of them: a second, small product adds their sums.
 * The last row of each id then has the whole sum, which a scatter with unique indices adds to the table. All sums have
 * a fixed order, and the time is the same for every distribution of ids. A row that is not finite makes the sums of its
 * block NaN. */
#include "pass/grad.h"

enum { BLOCK = 128, LEAST = 2 * BLOCK };                   /* fewer rows than LEAST are left to the scatter */

static xl_value column(xl_emit *e, xl_value s2, int64_t blocks, int64_t at)
{
    const int64_t lo[2] = { 0, at }, hi[2] = { blocks, at + 1 };
    return xl_em_reshape(e, xl_em_slice(e, s2, lo, hi, NULL), XL_DIMS(blocks));
}

static xl_value product(xl_emit *e, xl_value a, xl_value b, xl_dims batch, int64_t ka, int64_t kb, xl_dtype out)
{
    return xl_b_dot_general(e, a, b,
                            &(xl_b_dot_dims){ batch, batch, { &ka, 1 }, { &kb, 1 }, out, XL_PRECISION_HIGHEST });
}

/* (ids, 0, 1, 2, ...) sorted by the ids, equal ones in their order. */
static void sorted(xl_emit *e, xl_value ids, xl_value *s, xl_value *perm)
{
    const xl_type *t = xl_em_type(e, ids), *out[2] = { t, t };
    xl_op *op = xl_op_new(e->f, e->r, XL_OP_SORT, (xl_value[]){ ids, xl_em_iota(e, t, 0) }, 2, out, 2, 1, e->loc);
    xl_op_set(op, XL_SLOT(SORT, dimension), xl_attr_i64(e->f->m, 0));
    xl_op_set(op, XL_SLOT(SORT, is_stable), xl_attr_bool(e->f->m, true));
    xl_op_normalize(e->f->m, op);
    for (int i = 0; i < 4; i++)
        xl_region_add_arg(e->f, op->region[0], xl_type_scalar(e->f->m, t->dtype), e->loc);
    xl_region *was = xl_em_enter(e, op->region[0]);
    xl_value less = xl_em_compare(e, XL_COMPARISON_DIRECTION_LT, op->region[0]->arg[0], op->region[0]->arg[1]);
    xl_em_return(e, &less, 1);
    xl_em_enter(e, was);
    *s = op->out[0];
    *perm = op->out[1];
}

static bool is_rows(const xl_grad_ctx *g, const xl_op *ga)
{
    const xl_func *f = g->e.f;
    const xl_type *t = xl_value_type(f, ga->in[0]), *it = xl_value_type(f, ga->in[1]);
    xl_dims off = xl_op_dims(ga, XL_SLOT(GATHER, offset_dims)), map = xl_op_dims(ga, XL_SLOT(GATHER, start_index_map));
    xl_dims gone = xl_op_dims(ga, XL_SLOT(GATHER, collapsed_slice_dims)),
            size = xl_op_dims(ga, XL_SLOT(GATHER, slice_sizes));
    int64_t vector = xl_op_int(ga, XL_SLOT(GATHER, index_vector_dim)), n = 0;
    bool rows = t->rank == 2 && off.n == 1 && off.p[0] == (int64_t)it->rank - 1 && map.n == 1 && map.p[0] == 0 &&
                gone.n == 1 && gone.p[0] == 0 && size.p[1] == t->dims[1] && vector == (int64_t)it->rank - 1 &&
                it->dims[vector] == 1;
    bool narrow = xl_dtype_class(t->dtype) == XL_CLASS_FLOAT && xl_dtype_bytes(t->dtype) <= 4;
    return rows && narrow && xl_type_count(it, &n) && n >= LEAST && n < INT32_MAX / 4 && t->dims[0] < INT32_MAX / 4;
}

static xl_value add_rows(xl_grad_ctx *g, xl_value into, xl_value index, xl_value rows)
{
    xl_emit *e = &g->e;
    const xl_type *t = xl_em_type(e, into);
    int64_t vocab = t->dims[0], wide = t->dims[1], n = 0;
    xl_type_count(xl_em_type(e, index), &n);
    int64_t padded = (n + BLOCK - 1) / BLOCK * BLOCK, blocks = padded / BLOCK, b;
    xl_value ids = xl_em_convert(e, xl_em_reshape(e, index, XL_DIMS(n)), XL_I32), s, perm;
    rows = xl_em_reshape(e, rows, XL_DIMS(n, wide));
    if (padded > n) { /* ids beyond the table, which the scatter drops, and rows of zeros */
        const int64_t none[2] = { 0, 0 }, more[2] = { padded - n, 0 };
        ids = xl_em_pad(e, ids, xl_em_scalar(e, XL_I32, (double)vocab), none, more, none);
        rows = xl_em_pad(e, rows, xl_em_scalar(e, t->dtype, 0), none, more, none);
    }
    sorted(e, ids, &s, &perm);
    rows = xl_b_gather(e, rows, xl_em_reshape(e, perm, XL_DIMS(padded, 1)),
                       &(xl_b_gather_dims){ .offset = XL_DIMS(1),
                                            .collapsed = XL_DIMS(0),
                                            .map = XL_DIMS(0),
                                            .sizes = XL_DIMS(1, wide),
                                            .vector_dim = 1 });
    xl_value s2 = xl_em_reshape(e, s, XL_DIMS(blocks, BLOCK)), first = column(e, s2, blocks, 0),
             last = column(e, s2, blocks, BLOCK - 1);

    xl_dims cube = XL_DIMS(blocks, BLOCK, BLOCK), square = XL_DIMS(blocks, blocks);
    xl_value same = xl_em_compare(e, XL_COMPARISON_DIRECTION_EQ, xl_em_broadcast(e, s2, cube, XL_DIMS(0, 1)),
                                  xl_em_broadcast(e, s2, cube, XL_DIMS(0, 2)));
    xl_value sum = product(e, xl_em_convert(e, same, t->dtype), xl_em_reshape(e, rows, XL_DIMS(blocks, BLOCK, wide)),
                           XL_DIMS(0), 2, 1, XL_F32);

    const xl_type *pairs = xl_type_tensor(e->f->m, XL_I32, square);
    xl_value earlier = xl_em_compare(e, XL_COMPARISON_DIRECTION_GT, xl_em_iota(e, pairs, 0), xl_em_iota(e, pairs, 1));
    same = xl_em_compare(e, XL_COMPARISON_DIRECTION_EQ, xl_em_broadcast(e, first, square, XL_DIMS(0)),
                         xl_em_broadcast(e, last, square, XL_DIMS(1)));
    const int64_t lo[3] = { 0, BLOCK - 1, 0 }, hi[3] = { blocks, BLOCK, wide };
    xl_value tail = xl_em_reshape(e, xl_em_slice(e, sum, lo, hi, NULL), XL_DIMS(blocks, wide));
    xl_value before =
        product(e, xl_em_convert(e, xl_em_binary(e, XL_OP_AND, earlier, same), XL_F32), tail, XL_NO_DIMS, 1, 0, XL_F32);
    xl_dims all = XL_DIMS(blocks, BLOCK, wide), flat = XL_DIMS(blocks, BLOCK);
    same = xl_em_compare(e, XL_COMPARISON_DIRECTION_EQ, s2, xl_em_broadcast(e, first, flat, XL_DIMS(0)));
    before = xl_em_select(e, xl_em_broadcast(e, same, all, XL_DIMS(0, 1)),
                          xl_em_broadcast(e, before, all, XL_DIMS(0, 2)), xl_em_like(e, sum, 0));
    sum = xl_em_convert(e, xl_em_reshape(e, xl_em_binary(e, XL_OP_ADD, sum, before), XL_DIMS(padded, wide)), t->dtype);

    b = 1;
    xl_value next[2] = { xl_em_slice(e, s, &b, &padded, NULL),
                         xl_em_splat(e, xl_type_tensor(e->f->m, XL_I32, XL_DIMS(1)), -1) };
    xl_value end = xl_em_compare(e, XL_COMPARISON_DIRECTION_NE, s, xl_em_concat(e, next, 2, 0));
    xl_value away = xl_em_binary(e, XL_OP_ADD, xl_em_iota(e, xl_em_type(e, s), 0), xl_em_like(e, s, (double)vocab + 1));
    xl_value at = xl_em_reshape(e, xl_em_select(e, end, s, away), XL_DIMS(padded, 1));
    return xl_b_scatter(
        e, into, at, sum,
        &(xl_b_scatter_dims){
            .window = XL_DIMS(1), .inserted = XL_DIMS(0), .map = XL_DIMS(0), .vector_dim = 1, .unique = true },
        XL_OP_ADD);
}

/* One element of each row of the last dimension, all dimensions before it batched. */
static bool is_pick(const xl_grad_ctx *g, const xl_op *ga)
{
    const xl_type *t = xl_value_type(g->e.f, ga->in[0]), *it = xl_value_type(g->e.f, ga->in[1]);
    xl_dims batch = xl_op_dims(ga, XL_SLOT(GATHER, operand_batching_dims)),
            of = xl_op_dims(ga, XL_SLOT(GATHER, start_indices_batching_dims));
    xl_dims map = xl_op_dims(ga, XL_SLOT(GATHER, start_index_map)),
            gone = xl_op_dims(ga, XL_SLOT(GATHER, collapsed_slice_dims));
    int64_t last = (int64_t)t->rank - 1;
    bool fits = t->rank && it->rank == t->rank && map.n == 1 && map.p[0] == last && gone.n == 1 && gone.p[0] == last &&
                batch.n == (size_t)last && xl_op_int(ga, XL_SLOT(GATHER, index_vector_dim)) == last;
    for (size_t i = 0; fits && i < batch.n; i++)
        fits = batch.p[i] == (int64_t)i && of.p[i] == (int64_t)i;
    return fits;
}

static xl_value add_picks(xl_grad_ctx *g, xl_value into, xl_value index, xl_value ct)
{
    xl_emit *e = &g->e;
    const xl_type *t = xl_em_type(e, into), *it = xl_em_type(e, index);
    int64_t *lead = xl_new(&e->f->m->arena, int64_t, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        lead[i] = i;
    xl_dims all = xl_type_dims(t), before = { lead, t->rank - 1 };
    index = xl_em_broadcast(e, xl_em_reshape(e, index, (xl_dims){ it->dims, it->rank - 1 }), all, before);
    xl_value hit = xl_em_compare(e, XL_COMPARISON_DIRECTION_EQ,
                                 xl_em_iota(e, xl_type_with_dtype(e->f->m, t, it->dtype), (int64_t)t->rank - 1), index);
    return xl_em_binary(e, XL_OP_ADD, into,
                        xl_em_select(e, hit, xl_em_broadcast(e, ct, all, before), xl_em_like(e, into, 0)));
}

xl_value xl_grad_lookup(xl_grad_ctx *g, const xl_op *gather, xl_value into, xl_value index, xl_value ct)
{
    if (g->opts.gpu && is_rows(g, gather))
        return add_rows(g, into, index, ct);
    if (g->opts.gpu && is_pick(g, gather))
        return add_picks(g, into, index, ct);
    return XL_NO_VALUE;
}
