/* Collectives. The members of a group publish their buffers and meet (cpu/meet/meeting.h); the last one to arrive does
 * the work for all. Every buffer is directly accessible, so nothing is staged: a sum is computed once, in pieces that
 * fit in the cache, and written to every member. Operands are folded in group order, so every member gets the same
 * bits, whoever arrives last.
 *
 * If some members belong to other processes, their operands have been copied here (cpu/meet/far.c), and each process
 * writes the results of its own members. A large all_reduce is divided instead: each process folds part of the
 * elements, and the processes exchange the parts.
 *
 * In a group of one, the result is the operand, without a step. */
#include <stdlib.h>

#include "cpu/kernel/index.h"
#include "cpu/meet/meeting.h"
#include "cpu/kernel/fold.h"
#include "cpu/plan/planner.h"

enum { PIECE = 64 << 10 }; /* bytes handled at a time: few enough to stay in the cache between a sum and its copies */
typedef enum { CROSS_REPLICA, CROSS_PARTITION, CROSS_BOTH, FLATTENED } mode;
typedef struct {
    mode mode;
    int64_t ngroup, size;
    const int64_t *ids;                                    /* ngroup rows of size; -1 pads */
    int64_t npair;
    const int64_t *pair;                                   /* of a collective_permute: from, to */
    int64_t dim, split, count;
    xl_fold *fold;                                         /* per operand */
    xl_meet_fn *work;
} coll;

static uint32_t groups_slot(const xl_op *op)
{
    switch (op->code) {
    case XL_OP_ALL_REDUCE: return XL_SLOT(ALL_REDUCE, replica_groups);
    case XL_OP_ALL_GATHER: return XL_SLOT(ALL_GATHER, replica_groups);
    case XL_OP_ALL_TO_ALL: return XL_SLOT(ALL_TO_ALL, replica_groups);
    case XL_OP_REDUCE_SCATTER: return XL_SLOT(REDUCE_SCATTER, replica_groups);
    case XL_OP_COLLECTIVE_BROADCAST: return XL_SLOT(COLLECTIVE_BROADCAST, replica_groups);
    case XL_OP_CROSS_REPLICA_SUM: return XL_SLOT(CROSS_REPLICA_SUM, replica_groups);
    case XL_OP_COLLECTIVE_REDUCE: return XL_SLOT(COLLECTIVE_REDUCE, replica_groups);
    default: return UINT32_MAX;
    }
}

static mode mode_of(const xl_op *op)
{
    int64_t channel = 0, global = 0;
    bool by_partition = false;
    switch (op->code) {
    case XL_OP_ALL_REDUCE:
        channel = xl_op_int(op, XL_SLOT(ALL_REDUCE, channel_id)),
        global = xl_op_int(op, XL_SLOT(ALL_REDUCE, use_global_device_ids));
        break;
    case XL_OP_ALL_GATHER:
        channel = xl_op_int(op, XL_SLOT(ALL_GATHER, channel_id)),
        global = xl_op_int(op, XL_SLOT(ALL_GATHER, use_global_device_ids));
        break;
    case XL_OP_REDUCE_SCATTER:
        channel = xl_op_int(op, XL_SLOT(REDUCE_SCATTER, channel_id)),
        global = xl_op_int(op, XL_SLOT(REDUCE_SCATTER, use_global_device_ids));
        break;
    case XL_OP_ALL_TO_ALL: channel = xl_op_int(op, XL_SLOT(ALL_TO_ALL, channel_id)), by_partition = true; break;
    case XL_OP_COLLECTIVE_BROADCAST:
        channel = xl_op_int(op, XL_SLOT(COLLECTIVE_BROADCAST, channel_id)), by_partition = true;
        break;
    case XL_OP_COLLECTIVE_PERMUTE:
        channel = xl_op_int(op, XL_SLOT(COLLECTIVE_PERMUTE, channel_id)), by_partition = true;
        break;
    default: break;
    }
    if (by_partition)
        return channel > 0 ? CROSS_PARTITION : CROSS_REPLICA;
    if (global)
        return FLATTENED;
    return channel > 0 ? CROSS_BOTH : CROSS_REPLICA;
}

/* The devices (flat ids) of this device's group in its order; 0 when it is in none. `at`: our place. */
static uint32_t members(const coll *c, const xl_frame *f, uint32_t *out, uint32_t *at)
{
    uint32_t n = 0, me = xl_meet_number(f), total = f->nreplica * f->npartition;
    int64_t self = c->mode == CROSS_PARTITION ? (int64_t)f->partition
                   : c->mode == FLATTENED     ? (int64_t)me
                                              : (int64_t)f->replica;
    uint32_t limit = c->mode == CROSS_PARTITION ? f->npartition : c->mode == FLATTENED ? total : f->nreplica;
    const int64_t *row = NULL;
    int64_t size = c->size;
    for (int64_t g = 0; g < c->ngroup && !row; g++)
        for (int64_t i = 0; i < c->size; i++)
            if (c->ids[g * c->size + i] == self)
                row = c->ids + g * c->size;
    bool everybody = c->ngroup == 0 || c->size == 0;
    if (everybody)
        size = limit;
    if (!row && !everybody)
        return 0;
    uint32_t parts = c->mode == CROSS_BOTH ? f->npartition : 1;
    for (uint32_t p = 0; p < parts; p++)
        for (int64_t i = 0; i < size; i++) {
            int64_t id = everybody ? i : row[i];
            if (id < 0 || id >= limit || n >= total)
                continue;
            uint32_t d = c->mode == FLATTENED ? (uint32_t)id
                         : c->mode == CROSS_PARTITION
                             ? f->replica * f->npartition + (uint32_t)id
                             : (uint32_t)id * f->npartition + (c->mode == CROSS_BOTH ? p : f->partition);
            if (d == me)
                *at = n;
            out[n++] = d;
        }
    return n;
}

static void count(const xl_step *s, const xl_frame *f)
{
    if (s->op->code == XL_OP_COLLECTIVE_PERMUTE) {         /* what stays where it is does not cross */
        const coll *c = s->data;
        int64_t self = c->mode == CROSS_PARTITION ? f->partition : f->replica;
        bool comes = false;
        for (int64_t i = 0; i < c->npair; i++)
            comes = comes || (c->pair[2 * i + 1] == self && c->pair[2 * i] != self);
        if (!comes)
            return;
    }
    for (uint32_t i = 0; i < s->nin; i++)
        xl_meet_count(f->meet, (s->op->code == XL_OP_REDUCE_SCATTER ? &s->shape[i] : xl_out_shape(s, i))->bytes);
}

static xl_error *run_collective(const xl_step *s, xl_frame *f)
{
    const coll *c = s->data;
    uint32_t total = f->nreplica * f->npartition, at = 0, few[64], *id = few;
    void *small[16], **in = small;
    if (!f->meet)
        return XL_ERR(PRECONDITION,
                      "%s: the program was started on one device alone, the others of its group are not there",
                      s->name);
    if (total > 64 || s->nin + s->nout > 16) {
        in = malloc((s->nin + s->nout) * sizeof *in +
                    total * sizeof *id); /* not the thread's: another may take over while we wait */
        if (!in)
            return XL_ERR(EXHAUSTED, "no memory for a collective");
        id = (uint32_t *)(void *)(in + s->nin + s->nout);
    }
    for (uint32_t i = 0; i < s->nin; i++)
        in[i] = xl_in(s, f, i);
    for (uint32_t i = 0; i < s->nout; i++)
        in[s->nin + i] = xl_out(s, f, i);
    xl_error *err = NULL;
    uint32_t n = members(c, f, id, &at);
    if (n) {
        count(s, f);
        err = xl_meet_at(f->meet, xl_meet_number(f), id, n, s, f, in, in + s->nin, c->work);
    } else if (s->op->code != XL_OP_COLLECTIVE_BROADCAST) {
        err = XL_ERR(INVALID, "%s: device %u (replica %u, partition %u) is in none of its replica groups", s->name,
                     xl_meet_number(f), f->replica, f->partition);
    } else {
        for (uint32_t i = 0; i < s->nout; i++)
            memset(in[s->nin + i], 0, xl_out_shape(s, i)->bytes);
    }
    if (in != small)
        free(in);
    return err;
}

/* ---- sums ---- */
/* Operand i of all members folded, in parts: rows of `len` elements, `stride` apart in the operands, those of part k
 * after k * len. One part is for all members; of several part k is member k's. In the results its rows lie one after
 * another. `first` elements of both are left out. */
typedef struct {
    const coll *c;
    xl_frame *f;
    const xl_group_view *g;
    uint32_t i, parts, lead; /* lead: the first member that is ours; it gets the sum, the others copies of it */
    xl_dtype dtype;
    size_t first, elem, rows, len, stride, piece, pieces;         /* elements; pieces of a row */
    bool f32;                                              /* a sum of these */
    xl_error *err;
} sums;

/* The common case, without a pass over acc for each operand: a cache line of all of them at a time. The same bits as
 * adding one after another. */
typedef float v4f __attribute__((vector_size(16), aligned(4), may_alias));
static void sum_f32(float *acc, const xl_group_view *g, uint32_t i, size_t from, size_t n)
{
    size_t p = 0;
    for (; p + 16 <= n; p += 16) {
        const v4f *x = (const v4f *)(const void *)((const char *)g->in[0][i] + from + p * sizeof *acc);
        v4f a = x[0], b = x[1], c = x[2], d = x[3];
        for (uint32_t k = 1; k < g->n; k++) {
            x = (const v4f *)(const void *)((const char *)g->in[k][i] + from + p * sizeof *acc);
            a += x[0], b += x[1], c += x[2], d += x[3];
        }
        v4f *y = (v4f *)(void *)(acc + p);
        y[0] = a, y[1] = b, y[2] = c, y[3] = d;
    }
    for (; p < n; p++) {
        float a = 0, x;
        for (uint32_t k = 0; k < g->n; k++) {
            memcpy(&x, (const char *)g->in[k][i] + from + p * sizeof x, sizeof x);
            a = k ? a + x : x;
        }
        acc[p] = a;
    }
}

static void sum_pieces(void *ctx, size_t begin, size_t end)
{
    sums *w = ctx;
    const xl_group_view *g = w->g;
    for (size_t p = begin; p < end; p++) {
        size_t part = p / w->pieces / w->rows, row = p / w->pieces % w->rows, at = p % w->pieces * w->piece,
               n = w->len - at < w->piece ? w->len - at : w->piece;
        size_t from = (w->first + part * w->len + row * w->stride + at) * w->elem,
               to = (w->first + row * w->len + at) * w->elem;
        void *const *out = g->out[w->parts == 1 ? w->lead : part];
        if (!out)
            continue;
        void *acc = (char *)out[w->i] + to;
        if (w->f32)
            sum_f32(acc, g, w->i, from, n);
        else if (acc != (char *)g->in[0][w->i] + from)
            memcpy(acc, (const char *)g->in[0][w->i] + from, n * w->elem);
        for (uint32_t k = 1; k < g->n && !w->f32; k++) {
            const void *x = (const char *)g->in[k][w->i] + from;
            xl_error *err = xl_fold_run(&w->c->fold[w->i], w->f, &acc, &x, n);
            if (err) {                                     /* of a region, and those are not run side by side */
                w->err = err;
                return;
            }
        }
        for (uint32_t k = w->lead + 1; k < g->n && w->parts == 1; k++)
            if (g->out[k])
                memcpy((char *)g->out[k][w->i] + to, acc, n * w->elem);
    }
}

static xl_error *sum_rows(sums *w)
{
    bool alone = !w->c->fold[w->i].ew.fn;                  /* a region needs the frame to itself */
    if (!w->rows || !w->len)
        return NULL;
    w->f32 = w->c->fold[w->i].single == XL_OP_ADD && w->dtype == XL_F32;
    w->piece = PIECE / w->elem;
    w->pieces = (w->len + w->piece - 1) / w->piece;
    size_t n = w->parts * w->rows * w->pieces;
    xl_pool_for(w->g->pool, n, alone ? n : w->len < w->piece ? (w->piece + w->len - 1) / w->len : 1, sum_pieces, w);
    return w->err;
}

static uint32_t lead_of(const xl_group_view *g)
{
    uint32_t k = 0;
    while (k + 1 < g->n && !g->out[k])
        k++;
    return k;
}

/* Between the results of operand i and a packed copy of process `part`'s elements of it. Returns where the
 * copy ends. */
static char *slice_copy(const xl_step *s, const xl_group_view *g, uint32_t i, uint32_t part, char *packed, bool out)
{
    size_t from, to, elem = s->shape[i].elem;
    xl_meet_slice((size_t)s->shape[i].count, part, g->parts, &from, &to);
    for (uint32_t k = 0; k < g->n; k++)
        if (g->out[k] && out)
            memcpy((char *)g->out[k][i] + from * elem, packed, (to - from) * elem);
        else if (g->out[k]) {
            memcpy(packed, (const char *)g->out[k][i] + from * elem, (to - from) * elem);
            break;
        }
    return packed + (to - from) * elem;
}

/* Each process has folded its elements; they give them to each other. */
static xl_error *share_slices(const xl_step *s, const xl_group_view *g)
{
    xl_error *err = NULL;
    size_t *bytes = calloc(g->parts, sizeof *bytes);
    const void **theirs = calloc(g->parts, sizeof *theirs);
    char *mine = NULL;
    for (uint32_t p = 0; bytes && p < g->parts; p++)
        for (uint32_t i = 0; i < s->nin; i++) {
            size_t from, to;
            xl_meet_slice((size_t)s->shape[i].count, p, g->parts, &from, &to);
            bytes[p] += (to - from) * s->shape[i].elem;
        }
    if (!bytes || !theirs || !(mine = xl_meet_room(g, bytes[g->part]))) {
        err = XL_ERR(EXHAUSTED, "%s: no memory for %zu bytes of a sum", s->name, bytes ? bytes[g->part] : 0);
        goto out;
    }
    char *at = mine;
    for (uint32_t i = 0; i < s->nin; i++)
        at = slice_copy(s, g, i, g->part, at, false);
    XL_DO(xl_meet_exchange(g, theirs, bytes));
    for (uint32_t p = 0; p < g->parts; p++) {
        at = p == g->part ? NULL : (char *)(uintptr_t)theirs[p];
        for (uint32_t i = 0; i < s->nin && at; i++)
            at = slice_copy(s, g, i, p, at, true);
    }
out:
    free(bytes);
    free(theirs);
    return err;
}

static xl_error *all_reduce(const xl_step *s, xl_frame *f, const xl_group_view *g)
{
    xl_error *err = NULL;
    bool sliced = xl_meet_sliced(s, g->parts);
    for (uint32_t i = 0; i < s->nin && !err; i++) {
        sums w = { .c = s->data,
                   .f = f,
                   .g = g,
                   .i = i,
                   .parts = 1,
                   .lead = lead_of(g),
                   .dtype = s->shape[i].dtype,
                   .elem = s->shape[i].elem,
                   .rows = 1,
                   .len = (size_t)s->shape[i].count };
        if (sliced) {
            xl_meet_slice(w.len, g->part, g->parts, &w.first, &w.len);
            w.len -= w.first;
        }
        err = sum_rows(&w);
    }
    return err || !sliced ? err : share_slices(s, g);
}

static size_t product(const xl_extent *x, int64_t from, int64_t to)
{
    size_t n = 1;
    for (int64_t d = from; d < to; d++)
        n *= (size_t)x->dims[d];
    return n;
}

static xl_error *reduce_scatter(const xl_step *s, xl_frame *f, const xl_group_view *g)
{
    const coll *c = s->data;
    const xl_extent *x = &s->shape[0];
    if (x->bytes != xl_out_shape(s, 0)->bytes * g->n)
        return XL_ERR(INVALID, "%s: its operand is not %u times its result, the size of its group", s->name, g->n);
    size_t len = product(x, c->dim, x->rank) / g->n;
    sums w = { .c = c,
               .f = f,
               .g = g,
               .parts = g->n,
               .dtype = x->dtype,
               .elem = x->elem,
               .rows = product(x, 0, c->dim),
               .len = len,
               .stride = len * g->n };
    return sum_rows(&w);
}

/* ---- copies ---- */
/* From member k to member j, for the pairs (k, j) that are given or for all: `outer` times `rows` rows of `len` bytes.
 * Member j's part of an operand begins at j * from_part; what came from k goes to k * to_part. */
typedef struct {
    const xl_group_view *g;
    uint32_t i;
    const int64_t *pair;
    size_t npair, outer, rows, len, from_part, to_part, from_outer, to_outer, from_row, to_row;
} copies;

static void copy_rows(void *ctx, size_t begin, size_t end)
{
    const copies *w = ctx;
    size_t each = w->outer * w->rows, pair = begin / each, o = begin % each / w->rows, r = begin % w->rows;
    for (size_t p = begin; p < end; pair++, o = 0) {
        size_t j = w->pair ? (size_t)w->pair[2 * pair + 1] : pair / w->g->n,
               k = w->pair ? (size_t)w->pair[2 * pair] : pair % w->g->n;
        if (!w->g->out[j]) {                               /* another process writes it */
            p += each - (o * w->rows + r);
            r = 0;
            continue;
        }
        const char *from = (const char *)w->g->in[k][w->i] + j * w->from_part;
        char *to = (char *)w->g->out[j][w->i] + k * w->to_part;
        for (; o < w->outer && p < end; o++, r = 0)
            for (; r < w->rows && p < end; r++, p++)
                memcpy(to + o * w->to_outer + r * w->to_row, from + o * w->from_outer + r * w->from_row, w->len);
    }
}

static void copy_all(copies *w)
{
    if (w->outer == 1 && w->rows == 1) {                   /* one long row: cut where it can be */
        size_t cut = w->len;
        while (cut > 8 * PIECE && cut % 2 == 0)
            cut /= 2;
        w->rows = cut ? w->len / cut : 0;
        w->len = w->from_row = w->to_row = cut;
    }
    size_t n = w->outer * w->rows * (w->pair ? w->npair : (size_t)w->g->n * w->g->n);
    if (n && w->len)
        xl_pool_for(w->g->pool, n, w->len < 2 * PIECE ? (2 * PIECE + w->len - 1) / w->len : 1, copy_rows, w);
}

static xl_error *all_gather(const xl_step *s, xl_frame *f, const xl_group_view *g)
{
    const coll *c = s->data;
    (void)f;
    for (uint32_t i = 0; i < s->nin; i++) {
        const xl_extent *x = &s->shape[i];
        if (xl_out_shape(s, i)->bytes != x->bytes * g->n)
            return XL_ERR(INVALID, "%s: its result is not %u times its operand, the size of its group", s->name, g->n);
        size_t block = product(x, c->dim, x->rank) * x->elem;
        copies w = { .g = g,
                     .i = i,
                     .outer = 1,
                     .rows = product(x, 0, c->dim),
                     .len = block,
                     .from_row = block,
                     .to_row = block * g->n,
                     .to_part = block };
        copy_all(&w);
    }
    return NULL;
}

/* Part j of k's operand along `split` goes to place k of j's result along `dim`. */
static xl_error *all_to_all(const xl_step *s, xl_frame *f, const xl_group_view *g)
{
    const coll *c = s->data;
    int64_t cd = c->dim, sd = c->split;
    (void)f;
    if ((int64_t)g->n != c->count)
        return XL_ERR(INVALID, "%s: split_count is %lld, its group has %u devices", s->name, (long long)c->count, g->n);
    for (uint32_t i = 0; i < s->nin; i++) {
        const xl_extent *x = &s->shape[i];
        size_t n = g->n, split = product(x, sd, x->rank) * x->elem,
               at = product(x, cd, x->rank) * x->elem; /* bytes from a dimension on */
        copies w = { .g = g, .i = i, .from_part = split / n, .to_part = sd > cd ? at / n : at };
        if (sd == cd) {
            w.outer = 1;
            w.rows = product(x, 0, sd);
            w.len = w.to_part = split / n;
            w.from_row = w.to_row = split;
        } else if (sd < cd) {                              /* a part has rows from the concatenated dimension on */
            w.outer = product(x, 0, sd);
            w.len = w.from_row = at;
            w.rows = at ? split / n / at : 0;
            w.from_outer = split;
            w.to_row = at * n;
            w.to_outer = split;
        } else {
            w.outer = product(x, 0, cd);
            w.len = w.to_row = split / n;
            w.rows = split ? at / split : 0;
            w.from_row = split;
            w.from_outer = at;
            w.to_outer = at;
        }
        copy_all(&w);
    }
    return NULL;
}

/* Everybody of the replica (or partition) meets: a pair names who reads from whom, a member may be in none. */
static xl_error *permute(const xl_step *s, xl_frame *f, const xl_group_view *g)
{
    const coll *c = s->data;
    (void)f;
    for (int64_t i = 0; i < 2 * c->npair; i++)
        if (c->pair[i] < 0 || c->pair[i] >= (int64_t)g->n)
            return XL_ERR(INVALID, "%s: its pairs name device %lld, there are %u", s->name, (long long)c->pair[i],
                          g->n);
    for (uint32_t j = 0; j < g->n; j++) {
        bool reads = false;
        for (int64_t i = 0; i < c->npair; i++)
            reads = reads || c->pair[2 * i + 1] == (int64_t)j;
        for (uint32_t i = 0; i < s->nin && !reads && g->out[j]; i++)
            memset(g->out[j][i], 0, s->shape[i].bytes);
    }
    for (uint32_t i = 0; i < s->nin; i++) {
        copies w = {
            .g = g, .i = i, .pair = c->pair, .npair = (size_t)c->npair, .outer = 1, .rows = 1, .len = s->shape[i].bytes
        };
        copy_all(&w);
    }
    return NULL;
}

static xl_error *broadcast(const xl_step *s, xl_frame *f, const xl_group_view *g)
{
    (void)f;
    for (uint32_t i = 0; i < s->nin; i++)
        for (int64_t j = 0; j < (int64_t)g->n; j++) {
            copies w = {
                .g = g, .i = i, .pair = (int64_t[]){ 0, j }, .npair = 1, .outer = 1, .rows = 1, .len = s->shape[i].bytes
            };
            copy_all(&w);
        }
    return NULL;
}

static xl_error *run_zero(const xl_step *s, xl_frame *f)
{
    memset(xl_out(s, f, 0), 0, xl_out_shape(s, 0)->bytes);
    return NULL;
}

xl_error *xl_kernel_collective(xl_planner *p, const xl_op *op)
{
    xl_error *err = NULL;
    coll *c = xl_new(p->a, coll, 1);
    uint32_t slot = groups_slot(op);
    bool one = false;
    c->mode = mode_of(op);
    if (op->code == XL_OP_COLLECTIVE_PERMUTE) {
        xl_dims pairs = xl_op_dims(op, XL_SLOT(COLLECTIVE_PERMUTE, source_target_pairs));
        if (pairs.n == 0)
            return xl_plan_step(p, op, run_zero, NULL, 0);
        c->pair = pairs.p;
        c->npair = (int64_t)pairs.n / 2;
        one = pairs.n == 2 && pairs.p[0] == 0 && pairs.p[1] == 0 && p->plan->ndevice <= 1;
    } else if (slot != UINT32_MAX) {
        const xl_attr *a = op->attr[slot];
        if (!a || a->kind != XL_AT_DENSE || a->type->rank != 2)
            return xl_plan_unsupported(p, op, "replica groups that are no table of numbers");
        c->ngroup = a->type->dims[0];
        c->size = a->type->dims[1];
        int64_t *ids = xl_new(p->a, int64_t, (size_t)(c->ngroup * c->size));
        for (int64_t i = 0; i < c->ngroup * c->size; i++)
            ids[i] = xl_dense_int(a, i);
        c->ids = ids;
        one = (c->ngroup > 0 && c->size == 1 && c->mode != CROSS_BOTH) || p->plan->ndevice <= 1;
    }
    for (uint32_t i = 0; one && i < op->nout; i++)
        one = i < op->nin && xl_type_eq(xl_in_type(p->f, op, i), xl_out_type(p->f, op, i));
    if (one) {
        for (uint32_t i = 0; i < op->nout; i++)
            xl_plan_alias(p, op->out[i], op->in[i]);
        return NULL;
    }
    if (p->plan->ndevice <= 1)
        return xl_plan_unsupported(p, op, "a collective of several devices in a program compiled for one");
    if (op->nin + op->nout > XL_RANK_MAX * 8)
        return xl_plan_unsupported(p, op, "it has too many operands");
    p->plan->collective = true;
    uint32_t inplace = 0;
    switch (op->code) {
    case XL_OP_ALL_REDUCE: case XL_OP_REDUCE_SCATTER:
        c->fold = xl_new(p->a, xl_fold, op->nin);
        for (uint32_t i = 0; i < op->nin; i++) {
            XL_DO(xl_fold_plan(p, op, 0, 1, &c->fold[i]));
            xl_dtype d = xl_in_type(p->f, op, i)->dtype;
            if (d != xl_in_type(p->f, op, 0)->dtype && c->fold[i].single != XL_OP_UNKNOWN)
                c->fold[i].ew = xl_ew_of(p->a, c->fold[i].single, d, d);
        }
        if (op->code == XL_OP_REDUCE_SCATTER)
            c->dim = xl_op_int(op, XL_SLOT(REDUCE_SCATTER, scatter_dimension));
        c->work = op->code == XL_OP_ALL_REDUCE ? all_reduce : reduce_scatter;
        break;
    case XL_OP_ALL_GATHER:
        c->dim = xl_op_int(op, XL_SLOT(ALL_GATHER, all_gather_dim));
        c->work = all_gather;
        break;
    case XL_OP_ALL_TO_ALL:
        c->dim = xl_op_int(op, XL_SLOT(ALL_TO_ALL, concat_dimension));
        c->split = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_dimension));
        c->count = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_count));
        c->work = all_to_all;
        break;
    case XL_OP_COLLECTIVE_BROADCAST: c->work = broadcast; break;
    case XL_OP_COLLECTIVE_PERMUTE: c->work = permute; break;
    default: return xl_plan_unsupported(p, op, "this device does not serve it");
    }
    return xl_plan_step(p, op, run_collective, c, inplace);
out:
    return err;
}
