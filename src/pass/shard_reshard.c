/* Converts from one spec to another: slices where a tensor is split further (no communication), one collective_permute
 * where only the owners change, all_to_all where atoms move from one dimension to another, all_gather for the rest. The
 * same code counts the bytes and emits the ops. */
#include "pass/shard.h"

typedef enum { DONE, SLICE, PERMUTE, ALL_TO_ALL, GATHER } kind;
typedef struct { kind kind; uint32_t dim, to; xl_axes over; } step;

static step next_step(const xl_shard_ctx *c, const xl_axes *cur, const xl_axes *to, uint32_t rank)
{
    bool same = true;
    for (uint32_t d = 0; d < rank; d++) {
        if (!xl_axes_prefix(&cur[d], &to[d]) || cur[d].n == to[d].n)
            continue;
        xl_axes run = { 0 };
        for (uint32_t i = cur[d].n; i < to[d].n && !xl_spec_uses(cur, rank, to[d].atom[i]); i++)
            run.atom[run.n++] = to[d].atom[i];
        if (run.n)
            return (step){ SLICE, d, 0, run };
    }
    if (xl_spec_eq(cur, to, rank))
        return (step){ .kind = DONE };
    for (uint32_t d = 0; d < rank; d++)
        same = same && xl_axes_parts(c, &cur[d]) == xl_axes_parts(c, &to[d]);
    if (same)
        return (step){ .kind = PERMUTE };
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t keep = 0;
        while (keep < cur[i].n && keep < to[i].n && cur[i].atom[keep] == to[i].atom[keep])
            keep++;
        for (uint32_t n = cur[i].n - keep; n > 0; n--)     /* the longest tail that another dimension wants next */
            for (uint32_t j = 0; j < rank; j++) {
                const uint8_t *tail = cur[i].atom + cur[i].n - n;
                if (j == i || !xl_axes_prefix(&cur[j], &to[j]) || to[j].n < cur[j].n + n ||
                    memcmp(to[j].atom + cur[j].n, tail, n))
                    continue;
                step s = { ALL_TO_ALL, i, j, { .n = (uint8_t)n } };
                memcpy(s.over.atom, tail, n);
                return s;
            }
    }
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t keep = 0;
        while (keep < cur[i].n && keep < to[i].n && cur[i].atom[keep] == to[i].atom[keep])
            keep++;
        if (keep == cur[i].n)
            continue;
        step s = { GATHER, i, 0, { .n = (uint8_t)(cur[i].n - keep) } };
        memcpy(s.over.atom, cur[i].atom + keep, s.over.n);
        return s;
    }
    return (step){ .kind = DONE };
}

static void apply(const step *s, xl_axes *cur, const xl_axes *to, uint32_t rank)
{
    switch (s->kind) {
    case DONE: break;
    case SLICE:
        memcpy(cur[s->dim].atom + cur[s->dim].n, s->over.atom, s->over.n);
        cur[s->dim].n = (uint8_t)(cur[s->dim].n + s->over.n);
        break;
    case PERMUTE: memcpy(cur, to, rank * sizeof *cur); break;
    case ALL_TO_ALL:
        cur[s->dim].n = (uint8_t)(cur[s->dim].n - s->over.n);
        memcpy(cur[s->to].atom + cur[s->to].n, s->over.atom, s->over.n);
        cur[s->to].n = (uint8_t)(cur[s->to].n + s->over.n);
        break;
    case GATHER: cur[s->dim].n = (uint8_t)(cur[s->dim].n - s->over.n); break;
    }
}

static double local_bytes(const xl_shard_ctx *c, const xl_type *t, const xl_axes *spec)
{
    double n = (double)xl_dtype_bytes(t->dtype);
    for (uint32_t d = 0; d < t->rank; d++)
        n *= (double)t->dims[d] / (double)xl_axes_parts(c, &spec[d]);
    return n;
}

double xl_shard_cost(const xl_shard_ctx *c, const xl_type *t, const xl_axes *from, const xl_axes *to)
{
    uint32_t rank = xl_shard_rank(t);
    xl_axes cur[32];
    double sum = 0;
    if (!rank)
        return 0;
    memcpy(cur, from, rank * sizeof *cur);
    for (int i = 0; i < 128; i++) {
        step s = next_step(c, cur, to, rank);
        if (s.kind == DONE)
            break;
        double k = (double)xl_axes_parts(c, &s.over);
        if (s.kind == PERMUTE)
            sum += local_bytes(c, t, cur);
        else if (s.kind == ALL_TO_ALL)
            sum += (k - 1) / k * local_bytes(c, t, cur);
        else if (s.kind == GATHER)
            sum += (k - 1) * local_bytes(c, t, cur);
        apply(&s, cur, to, rank);
    }
    return sum;
}

/* ---- emitting ---------------------------------------------------------------------------------------------------- */
static int64_t coordinate(const xl_shard_ctx *c, const xl_axes *a, int64_t p)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < a->n; i++)
        at = at * c->size[a->atom[i]] + p / c->stride[a->atom[i]] % c->size[a->atom[i]];
    return at;
}

const xl_attr *xl_shard_groups(xl_shard_ctx *c, const xl_axes *over, bool flat)
{
    int64_t k = xl_axes_parts(c, over), reps = flat ? c->nreplica : 1, rows = c->n / k * reps;
    int64_t *ids = xl_new(c->a, int64_t, (size_t)(rows * k));
    int64_t row = 0;
    for (int64_t r = 0; r < reps; r++)
        for (int64_t p = 0; p < c->n; p++) {
            if (coordinate(c, over, p))
                continue;
            for (int64_t j = 0; j < k; j++) {
                int64_t q = p, rest = j;
                for (uint32_t i = over->n; i-- > 0; rest /= c->size[over->atom[i]])
                    q += rest % c->size[over->atom[i]] * c->stride[over->atom[i]];
                ids[row * k + j] = r * c->n + q;
            }
            row++;
        }
    const xl_type *t = xl_type_tensor(c->m, XL_I64, (xl_dims){ (int64_t[]){ rows, k }, 2 });
    if (rows * k == 1) {                                   /* one element would be taken for a splat */
        return xl_attr_dense(c->m, t, (xl_str){ (const char *)ids, 8 });
    }
    return xl_attr_dense(c->m, t, (xl_str){ (const char *)ids, (size_t)(rows * k) * sizeof *ids });
}

xl_value xl_shard_offset(xl_shard_ctx *c, xl_b *b, const xl_axes *a, int64_t unit, xl_dtype d)
{
    int64_t *table = xl_new(c->a, int64_t, (size_t)c->n);
    for (int64_t p = 0; p < c->n; p++)
        table[p] = coordinate(c, a, p) * unit;
    const xl_type *u32 = xl_type_scalar(c->m, XL_U32);
    xl_value t = xl_b_ints(b, d, (xl_dims){ table, (size_t)c->n });
    xl_value id = xl_b_end1(b, xl_b_begin(b, XL_OP_PARTITION_ID, NULL, 0, &u32, 1, 0));
    id = xl_b_convert(b, id, XL_I32);
    xl_value one = xl_b_dynamic_slice(b, t, &id, (xl_dims){ (int64_t[]){ 1 }, 1 });
    return xl_b_reshape(b, one, (xl_dims){ NULL, 0 });
}

static void combiner(xl_b *b, xl_op *op, xl_opcode code, xl_dtype d)
{
    xl_b in = xl_b_region(b, op, 0);
    const xl_type *t = xl_type_scalar(b->f->m, d);
    xl_value x = xl_b_arg(&in, t), y = xl_b_arg(&in, t), z = xl_b_binary(&in, code, x, y);
    xl_b_return(&in, &z, 1);
}

xl_value xl_shard_all_reduce(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_axes *over, xl_opcode combine)
{
    if (!over->n)
        return v;
    const xl_type *t = xl_b_type(b, v);
    xl_op *op = xl_b_begin(b, XL_OP_ALL_REDUCE, &v, 1, &t, 1, 1);
    xl_b_set(b, op, XL_SLOT(ALL_REDUCE, replica_groups), xl_shard_groups(c, over, true));
    xl_b_set_int(b, op, XL_SLOT(ALL_REDUCE, channel_id), 1);
    xl_b_set(b, op, XL_SLOT(ALL_REDUCE, use_global_device_ids), xl_attr_bool(c->m, true));
    combiner(b, op, combine, t->dtype);
    return xl_b_end1(b, op);
}

xl_value xl_shard_reduce_scatter(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_axes *over, uint32_t dim,
                                 xl_opcode combine)
{
    const xl_type *t = xl_b_type(b, v);
    int64_t dims[32];
    memcpy(dims, t->dims, t->rank * sizeof *dims);
    dims[dim] /= xl_axes_parts(c, over);
    const xl_type *out = xl_type_tensor(c->m, t->dtype, (xl_dims){ dims, t->rank });
    xl_op *op = xl_b_begin(b, XL_OP_REDUCE_SCATTER, &v, 1, &out, 1, 1);
    xl_b_set(b, op, XL_SLOT(REDUCE_SCATTER, replica_groups), xl_shard_groups(c, over, true));
    xl_b_set_int(b, op, XL_SLOT(REDUCE_SCATTER, channel_id), 1);
    xl_b_set_int(b, op, XL_SLOT(REDUCE_SCATTER, scatter_dimension), dim);
    xl_b_set(b, op, XL_SLOT(REDUCE_SCATTER, use_global_device_ids), xl_attr_bool(c->m, true));
    combiner(b, op, combine, t->dtype);
    return xl_b_end1(b, op);
}

static xl_value slice(xl_shard_ctx *c, xl_b *b, xl_value v, const step *s)
{
    const xl_type *t = xl_b_type(b, v);
    int64_t sizes[32];
    xl_value start[32];
    memcpy(sizes, t->dims, t->rank * sizeof *sizes);
    sizes[s->dim] /= xl_axes_parts(c, &s->over);
    xl_value zero = xl_b_scalar(b, XL_I32, 0);
    for (uint32_t d = 0; d < t->rank; d++)
        start[d] = d == s->dim ? xl_shard_offset(c, b, &s->over, sizes[d], XL_I32) : zero;
    return xl_b_dynamic_slice(b, v, start, (xl_dims){ sizes, t->rank });
}

static xl_value emit_permute(xl_shard_ctx *c, xl_b *b, xl_value v, const int64_t *pairs, size_t n)
{
    const xl_type *t = xl_b_type(b, v);
    xl_op *op = xl_b_begin(b, XL_OP_COLLECTIVE_PERMUTE, &v, 1, &t, 1, 0);
    (void)c;
    xl_b_set_int(b, op, XL_SLOT(COLLECTIVE_PERMUTE, channel_id), 1);
    xl_b_set_dims(b, op, XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs), (xl_dims){ pairs, n });
    return xl_b_end1(b, op);
}

xl_value xl_shard_mirror(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_axes *spec, xl_dims dims)
{
    int64_t *pairs = xl_new(c->a, int64_t, (size_t)c->n * 2);
    bool moves = false;
    for (int64_t p = 0; p < c->n; p++) {
        int64_t to = p;
        for (size_t k = 0; k < dims.n; k++)
            for (uint32_t i = 0; i < spec[dims.p[k]].n; i++) {
                uint8_t a = spec[dims.p[k]].atom[i];
                to += (c->size[a] - 1 - 2 * (p / c->stride[a] % c->size[a])) * c->stride[a];
            }
        moves = moves || to != p;
        pairs[2 * p] = p;
        pairs[2 * p + 1] = to;
    }
    return moves ? emit_permute(c, b, v, pairs, (size_t)c->n * 2) : v;
}

xl_value xl_shard_renumber(xl_shard_ctx *c, xl_b *b, xl_value v, const int64_t *order, bool argument)
{
    if (!order)
        return v;
    int64_t *pairs = xl_new(c->a, int64_t, (size_t)c->n * 2);
    for (int64_t p = 0; p < c->n; p++) {
        pairs[2 * p] = argument ? order[p] : p;
        pairs[2 * p + 1] = argument ? p : order[p];
    }
    return emit_permute(c, b, v, pairs, (size_t)c->n * 2);
}

static xl_value permute(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_axes *from, const xl_axes *to, uint32_t rank)
{
    int64_t *need = xl_new(c->a, int64_t, (size_t)c->n), *has = xl_new(c->a, int64_t, (size_t)c->n),
            *pairs = xl_new(c->a, int64_t, (size_t)c->n * 2);
    bool *used = xl_new(c->a, bool, (size_t)c->n);
    size_t n = 0;
    for (int64_t p = 0; p < c->n; p++)
        for (uint32_t d = 0; d < rank; d++) {
            need[p] = need[p] * xl_axes_parts(c, &to[d]) + coordinate(c, &to[d], p);
            has[p] = has[p] * xl_axes_parts(c, &from[d]) + coordinate(c, &from[d], p);
        }
    for (int64_t p = 0; p < c->n; p++)
        used[p] = need[p] == has[p];
    for (int64_t p = 0; p < c->n; p++) {
        int64_t src = p;
        if (need[p] != has[p]) {
            for (src = 0; src < c->n && (used[src] || has[src] != need[p]); src++)
                ;
            if (src == c->n)
                continue; /* as many hold a tile before as after: there is always one */
            used[src] = true;
        }
        pairs[n++] = src;
        pairs[n++] = p;
    }
    return emit_permute(c, b, v, pairs, n);
}

xl_value xl_shard_move(xl_shard_ctx *c, xl_b *b, xl_value v, const xl_type *global, const xl_axes *from,
                       const xl_axes *to)
{
    uint32_t rank = xl_shard_rank(global);
    xl_axes cur[32];
    if (!rank)
        return v;
    memcpy(cur, from, rank * sizeof *cur);
    for (int i = 0; i < 128 && !xl_b_failed(b); i++) {
        step s = next_step(c, cur, to, rank);
        const xl_type *out;
        xl_op *op;
        if (s.kind == DONE)
            break;
        if (s.kind == SLICE) {
            v = slice(c, b, v, &s);
        } else if (s.kind == PERMUTE) {
            v = permute(c, b, v, cur, to, rank);
        }
        apply(&s, cur, to, rank);
        out = xl_shard_local(c, global, cur);
        if (s.kind == GATHER) {
            op = xl_b_begin(b, XL_OP_ALL_GATHER, &v, 1, &out, 1, 0);
            xl_b_set_int(b, op, XL_SLOT(ALL_GATHER, all_gather_dim), s.dim);
            xl_b_set_int(b, op, XL_SLOT(ALL_GATHER, channel_id), 1);
            xl_b_set(b, op, XL_SLOT(ALL_GATHER, replica_groups), xl_shard_groups(c, &s.over, true));
            xl_b_set(b, op, XL_SLOT(ALL_GATHER, use_global_device_ids), xl_attr_bool(c->m, true));
            v = xl_b_end1(b, op);
        } else if (s.kind == ALL_TO_ALL) {
            op = xl_b_begin(b, XL_OP_ALL_TO_ALL, &v, 1, &out, 1, 0);
            xl_b_set_int(b, op, XL_SLOT(ALL_TO_ALL, channel_id), 1);
            xl_b_set_int(b, op, XL_SLOT(ALL_TO_ALL, split_dimension), s.to);
            xl_b_set_int(b, op, XL_SLOT(ALL_TO_ALL, concat_dimension), s.dim);
            xl_b_set_int(b, op, XL_SLOT(ALL_TO_ALL, split_count), xl_axes_parts(c, &s.over));
            xl_b_set(b, op, XL_SLOT(ALL_TO_ALL, replica_groups), xl_shard_groups(c, &s.over, false));
            v = xl_b_end1(b, op);
        }
    }
    return v;
}
