/* Fewer collectives. A sum of two all_reduces with no other use becomes one all_reduce of the sum, so the gradients
 * that meet at the input of several projections are reduced once. Then small all_reduces over the same groups are
 * combined, and so are all_gathers: each is delayed until its result is needed, and others that become ready before
 * then join it. The gradients of a data-parallel step are thus reduced in a few collectives instead of one per
 * parameter. */
#include "pass/shard.h"

#include "pass/pass.h"

enum { SMALL = 1 << 20, MOST = 64, LISTS = 8 };

static xl_opcode combiner(const xl_op *op)
{
    const xl_region *r = op->region[0];
    return r->nop == 2 && r->op[0]->nin == 2 ? (xl_opcode)r->op[0]->code : XL_OP_UNKNOWN;
}

static bool joins(const xl_func *f, const xl_op *a, const xl_op *b)
{
    if (a->code != b->code)
        return false;
    for (uint32_t i = 0; i < xl_op_nattr((xl_opcode)a->code); i++)
        if (!(a->attr[i] == b->attr[i] || (a->attr[i] && b->attr[i] && xl_attr_eq(a->attr[i], b->attr[i]))))
            return false;
    return a->code == XL_OP_ALL_GATHER || (combiner(a) == combiner(b) && combiner(a) != XL_OP_UNKNOWN &&
                                           xl_in_type(f, a, 0)->dtype == xl_in_type(f, b, 0)->dtype);
}

static void count(const xl_region *r, uint32_t *use)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin; k++)
            use[r->op[i]->in[k].id]++;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            count(r->op[i]->region[k], use);
    }
}

static xl_op *sum_of(const xl_func *f, const xl_region *r, xl_value v, const uint32_t *use)
{
    xl_op *op = f->val[v.id].def;
    return op && op->code == XL_OP_ALL_REDUCE && op->nin == 1 && op->parent == r && use[v.id] == 1 &&
                   combiner(op) == XL_OP_ADD
               ? op
               : NULL;
}

static void drop(xl_region *r, const xl_op *op)
{
    for (uint32_t k = r->nop; k-- > 0; )
        if (r->op[k] == op) {
            memmove(r->op + k, r->op + k + 1, (r->nop - k - 1) * sizeof *r->op);
            r->nop--;
            return;
        }
}

/* TRANSPOSE or RESHAPE for an op that only moves elements: also a reduction over dimensions of one element. */
static xl_opcode moves(const xl_func *f, const xl_op *op)
{
    if (op->code == XL_OP_TRANSPOSE || op->code == XL_OP_RESHAPE)
        return (xl_opcode)op->code;
    if (op->code != XL_OP_REDUCE || op->nin != 2 || op->region[0]->nop != 2 || op->region[0]->op[0]->code != XL_OP_ADD)
        return XL_OP_UNKNOWN;
    xl_dims dims = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    const xl_attr *zero = xl_value_const(f, op->in[1]);
    for (size_t i = 0; i < dims.n; i++)
        if (xl_in_type(f, op, 0)->dims[dims.p[i]] != 1)
            return XL_OP_UNKNOWN;
    return zero && xl_attr_is_splat(zero) &&
                   memcmp(zero->data.p, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", xl_dtype_bytes(zero->dtype)) == 0
               ? XL_OP_RESHAPE
               : XL_OP_UNKNOWN;
}

/* add(all_reduce(x), all_reduce(y)) -> all_reduce(add(x, y)); floats may differ in the last bit, as with any order of a
 * sum over devices. */
static void reassociate(xl_func *f, xl_region *r, uint32_t *use, uint32_t nuse)
{
    xl_op **old = r->op;
    uint32_t n = r->nop;
    r->op = NULL;
    r->nop = r->capop = 0;
    for (uint32_t i = 0; i < n; i++) {
        xl_op *op = old[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            if (op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE)
                reassociate(f, op->region[k], use, nuse);
        xl_opcode move = moves(f, op);
        if (move != XL_OP_UNKNOWN && op->in[0].id < nuse && op->parent == r) {
            xl_op *c = sum_of(f, r, op->in[0], use); /* first moved, then reduced: a sum further down may join it */
            if (c) {
                const xl_type *to = xl_out_type(f, op, 0);
                xl_op *moved = xl_op_new(f, NULL, move, c->in, 1, &to, 1, 0, op->loc);
                for (uint32_t k = 0; move == op->code && k < xl_op_nattr(move); k++)
                    moved->attr[k] = op->attr[k];
                drop(r, c);
                xl_region_append(f, r, moved);
                c->in[0] = moved->out[0];
                c->out[0] = op->out[0];
                f->val[c->out[0].id].def = c;
                xl_region_append(f, r, c);
                continue;
            }
        }
        bool old_values =
            op->code == XL_OP_ADD && op->in[0].id < nuse && op->in[1].id < nuse && op->in[0].id != op->in[1].id;
        xl_op *a = old_values ? sum_of(f, r, op->in[0], use) : NULL,
              *b = old_values ? sum_of(f, r, op->in[1], use) : NULL;
        if (!a || !b || !joins(f, a, b)) {
            xl_region_append(f, r, op);
            continue;
        }
        /* b becomes the reduction of the sum and gives op's result; a is dropped */
        xl_value in[2] = { a->in[0], b->in[0] };
        const xl_type *t = xl_in_type(f, a, 0);
        xl_op *add = xl_op_new(f, r, XL_OP_ADD, in, 2, &t, 1, 0, op->loc);
        drop(r, a);
        drop(r, b);
        b->in[0] = add->out[0];
        b->out[0] = op->out[0];
        f->val[b->out[0].id].def = b;
        xl_region_append(f, r, b);
    }
}

typedef struct { xl_op *op[MOST]; uint32_t n; } waiting;

static bool uses(const xl_func *f, const xl_op *op, const waiting *w)
{
    for (uint32_t i = 0; i < op->nin; i++) {
        const xl_op *d = f->val[op->in[i].id].def;
        for (uint32_t k = 0; k < w->n; k++)
            if (d == w->op[k])
                return true;
    }
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            if (uses(f, op->region[k]->op[i], w))
                return true;
    return false;
}

static void flush(xl_func *f, xl_region *r, waiting *w)
{
    if (w->n == 1) {
        xl_region_append(f, r, w->op[0]);
    } else if (w->n > 1) {
        xl_opcode code = (xl_opcode)w->op[0]->code;
        xl_value in[MOST];
        const xl_type *out[MOST];
        for (uint32_t i = 0; i < w->n; i++) {
            in[i] = w->op[i]->in[0];
            out[i] = xl_out_type(f, w->op[i], 0);
        }
        xl_op *all = xl_op_new(f, NULL, code, in, w->n, out, w->n, 0, w->op[0]->loc);
        all->region = w->op[0]->region;
        all->nregion = w->op[0]->nregion;
        if (all->nregion)
            all->region[0]->owner = all;
        for (uint32_t i = 0; i < xl_op_nattr(code); i++)
            all->attr[i] = w->op[0]->attr[i];
        for (uint32_t i = 0; i < w->n; i++) {              /* the old results are this op's from now on */
            all->out[i] = w->op[i]->out[0];
            f->val[all->out[i].id].def = all;
            f->val[all->out[i].id].index = i;
        }
        xl_region_append(f, r, all);
    }
    w->n = 0;
}

/* The list that op may wait in: one it joins, or an empty one; NULL when it does not wait. */
static waiting *list_for(xl_func *f, xl_region *r, const xl_op *op, waiting *list)
{
    int64_t bytes;
    waiting *empty = NULL;
    bool small =
        op->code == XL_OP_ALL_REDUCE && op->nin == 1 && xl_type_bytes(xl_in_type(f, op, 0), &bytes) && bytes <= SMALL;
    if (!small && (op->code != XL_OP_ALL_GATHER || op->nin != 1))
        return NULL;
    for (int k = 0; k < LISTS; k++) {
        if (list[k].n && joins(f, list[k].op[0], op)) {
            if (list[k].n == MOST)
                flush(f, r, &list[k]);
            return &list[k];
        }
        if (!list[k].n && !empty)
            empty = &list[k];
    }
    if (!empty) {
        flush(f, r, &list[0]);
        empty = &list[0];
    }
    return empty;
}

static void combine(xl_func *f, xl_region *r)
{
    xl_op **old = r->op;
    uint32_t n = r->nop;
    waiting list[LISTS] = { { .n = 0 } };
    r->op = NULL;
    r->nop = r->capop = 0;
    for (uint32_t i = 0; i < n; i++) {
        xl_op *op = old[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            if (op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE)
                combine(f, op->region[k]);
        for (int k = 0; k < LISTS; k++)
            if (list[k].n && (uses(f, op, &list[k]) || op->code == XL_OP_RETURN))
                flush(f, r, &list[k]);
        waiting *w = list_for(f, r, op, list);
        if (w)
            w->op[w->n++] = op;
        else
            xl_region_append(f, r, op);
    }
}

/* ---- what crosses ---- */
xl_traffic xl_shard_traffic(const xl_func *f, const xl_op *op, int64_t ndevice)
{
    xl_traffic t = { .group = ndevice };
    if (!(xl_ops[op->code].flags & XL_OP_COLLECTIVE))
        return t;
    for (uint32_t i = 0; i < xl_op_nattr((xl_opcode)op->code); i++) {
        const xl_attr *a = op->attr[i];
        if (a && a->kind == XL_AT_DENSE && a->type->rank == 2 && op->code != XL_OP_COLLECTIVE_PERMUTE &&
            a->type->dims[1] > 0)
            t.group = a->type->dims[1];
    }
    double k = (double)t.group, share = (k - 1) / k;
    for (uint32_t i = 0; i < op->nin; i++) {
        int64_t n;
        if (!xl_type_bytes(xl_in_type(f, op, i), &n))
            continue;
        t.operands += (double)n;
        switch (op->code) {
        case XL_OP_ALL_REDUCE: t.ring += 2 * share * (double)n; break;
        case XL_OP_ALL_GATHER: t.ring += (k - 1) * (double)n; break;
        case XL_OP_REDUCE_SCATTER: case XL_OP_ALL_TO_ALL: t.ring += share * (double)n; break;
        default: t.ring += (double)n; break;               /* permute, broadcast */
        }
    }
    return t;
}

static void add_up(const xl_func *f, const xl_region *r, int64_t ndevice, xl_traffic *sum)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_traffic t = xl_shard_traffic(f, r->op[i], ndevice);
        sum->operands += t.operands;
        sum->ring += t.ring;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            add_up(f, r->op[i]->region[k], ndevice, sum);
    }
}

xl_traffic xl_shard_combine(xl_func *f, int64_t ndevice)
{
    uint32_t *use = xl_new(&f->m->arena, uint32_t, f->nval);
    xl_traffic sum = { .group = ndevice };
    count(f->body, use);
    reassociate(f, f->body, use, f->nval);
    combine(f, f->body);
    add_up(f, f->body, ndevice, &sum);
    return sum;
}
