/* Collectives: the members of a group publish their buffers, meet, read what they need from each other, and meet again before anybody may
 * write over what was read. An all_reduce of some size is done in two halves, each member folding one part of all operands and then
 * taking the other parts from those who folded them. Folding goes in the order of the group, so that all get the same bits.
 *
 * A group of one gives back what it was given, and takes no step at all. */
#include "cpu/collective.h"
#include "cpu/kernel/fold.h"
#include "cpu/planner.h"

int64_t xl_read_index(const void *p, xl_dtype d, int64_t i);

enum { WHOLE_MAX = 16 << 10 };                             /* bytes up to which everybody folds everything */
typedef enum { CROSS_REPLICA, CROSS_PARTITION, CROSS_BOTH, FLATTENED } mode;
typedef struct {
    mode mode;
    int64_t ngroup, size;
    const int64_t *ids;                                    /* ngroup rows of size; -1 pads. Or pairs */
    int64_t dim, split, count;
    xl_fold *fold;                                         /* per operand */
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
    case XL_OP_ALL_REDUCE: channel = xl_op_int(op, XL_SLOT(ALL_REDUCE, channel_id)), global = xl_op_int(op, XL_SLOT(ALL_REDUCE, use_global_device_ids)); break;
    case XL_OP_ALL_GATHER: channel = xl_op_int(op, XL_SLOT(ALL_GATHER, channel_id)), global = xl_op_int(op, XL_SLOT(ALL_GATHER, use_global_device_ids)); break;
    case XL_OP_REDUCE_SCATTER:
        channel = xl_op_int(op, XL_SLOT(REDUCE_SCATTER, channel_id)), global = xl_op_int(op, XL_SLOT(REDUCE_SCATTER, use_global_device_ids));
        break;
    case XL_OP_ALL_TO_ALL: channel = xl_op_int(op, XL_SLOT(ALL_TO_ALL, channel_id)), by_partition = true; break;
    case XL_OP_COLLECTIVE_BROADCAST: channel = xl_op_int(op, XL_SLOT(COLLECTIVE_BROADCAST, channel_id)), by_partition = true; break;
    case XL_OP_COLLECTIVE_PERMUTE: channel = xl_op_int(op, XL_SLOT(COLLECTIVE_PERMUTE, channel_id)), by_partition = true; break;
    default: break;
    }
    if (by_partition)
        return channel > 0 ? CROSS_PARTITION : CROSS_REPLICA;
    if (global)
        return FLATTENED;
    return channel > 0 ? CROSS_BOTH : CROSS_REPLICA;
}

static uint32_t my_id(const xl_frame *f) { return f->replica * f->npartition + f->partition; }

/* The devices (flat ids) of this device's group in its order; 0 when it is in none. `at`: our place. */
static uint32_t members(const coll *c, const xl_frame *f, uint32_t *out, uint32_t *at)
{
    uint32_t n = 0, me = my_id(f), total = f->nreplica * f->npartition;
    int64_t self = c->mode == CROSS_PARTITION ? (int64_t)f->partition : c->mode == FLATTENED ? (int64_t)me : (int64_t)f->replica;
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
            uint32_t d = c->mode == FLATTENED ? (uint32_t)id : c->mode == CROSS_PARTITION ? f->replica * f->npartition + (uint32_t)id
                       : (uint32_t)id * f->npartition + (c->mode == CROSS_BOTH ? p : f->partition);
            if (d == me)
                *at = n;
            out[n++] = d;
        }
    return n;
}

typedef struct { uint32_t n, at; uint32_t *id; void **in, **out; void *small[16]; uint32_t ids[64]; } meeting;

static xl_error *begin(const xl_step *s, xl_frame *f, meeting *m)
{
    const coll *c = s->data;
    uint32_t total = f->nreplica * f->npartition;
    m->n = m->at = 0;
    m->in = m->small;
    m->id = m->ids;
    if (!f->meet)
        return XL_ERR(PRECONDITION, "%s: the program was started on one device alone, the others of its group are not there", s->name);
    if (total > 64 || s->nin + s->nout > 16) {
        m->id = xl_scratch(XL_SCRATCH_MEET, total * sizeof *m->id + (s->nin + s->nout) * sizeof(void *));
        if (!m->id)
            return XL_ERR(EXHAUSTED, "no memory for a collective");
        m->in = (void **)(void *)(m->id + (total + 1) / 2 * 2);
    }
    m->out = m->in + s->nin;
    for (uint32_t i = 0; i < s->nin; i++)
        m->in[i] = xl_in(s, f, i);
    for (uint32_t i = 0; i < s->nout; i++)
        m->out[i] = xl_out(s, f, i);
    m->n = members(c, f, m->id, &m->at);
    if (m->n == 0)
        return NULL;
    return xl_meet_barrier(f->meet, my_id(f), m->id, m->n, s, m->in, m->out);
}

static xl_error *again(const xl_step *s, xl_frame *f, const meeting *m)
{
    return xl_meet_barrier(f->meet, my_id(f), m->id, m->n, s, m->in, m->out);
}

static const char *theirs(const xl_frame *f, const meeting *m, uint32_t k, uint32_t i) { return xl_meet_in(f->meet, m->id[k])[i]; }

static xl_error *absent(const xl_step *s, const xl_frame *f)
{
    return XL_ERR(INVALID, "%s: device %u (replica %u, partition %u) is in none of its replica groups", s->name, my_id(f), f->replica, f->partition);
}

static xl_error *fold_part(const coll *c, const xl_step *s, xl_frame *f, const meeting *m, uint32_t i, size_t first, size_t count, char *out)
{
    size_t e = s->shape[i].elem;
    if (!count)
        return NULL;
    memcpy(out, theirs(f, m, 0, i) + first * e, count * e);
    for (uint32_t k = 1; k < m->n; k++) {
        const void *x = theirs(f, m, k, i) + first * e;
        void *acc = out;
        xl_error *err = xl_fold_run(&c->fold[i], f, &acc, &x, count);
        if (err)
            return err;
    }
    return NULL;
}

static xl_error *run_all_reduce(const xl_step *s, xl_frame *f)
{
    const coll *c = s->data;
    meeting m;
    xl_error *err = NULL;
    XL_DO(begin(s, f, &m));
    if (!m.n) {
        err = absent(s, f);
        goto out;
    }
    for (uint32_t i = 0; i < s->nin; i++) {
        size_t count = (size_t)s->shape[i].count, e = s->shape[i].elem;
        xl_meet_count(f->meet, s->shape[i].bytes);
        if (s->shape[i].bytes <= WHOLE_MAX) {
            XL_DO(fold_part(c, s, f, &m, i, 0, count, m.out[i]));
            continue;
        }
        size_t part = ((count + m.n - 1) / m.n + 15) & ~(size_t)15, first = part * m.at < count ? part * m.at : count;
        XL_DO(fold_part(c, s, f, &m, i, first, first + part < count ? part : count - first, (char *)m.out[i] + first * e));
    }
    XL_DO(again(s, f, &m));
    bool split = false;
    for (uint32_t i = 0; i < s->nin; i++) {
        size_t count = (size_t)s->shape[i].count, e = s->shape[i].elem;
        if (s->shape[i].bytes <= WHOLE_MAX)
            continue;
        split = true;
        size_t part = ((count + m.n - 1) / m.n + 15) & ~(size_t)15;
        for (uint32_t k = 0; k < m.n; k++) {
            size_t first = part * k < count ? part * k : count, len = first + part < count ? part : count - first;
            if (k != m.at && len)
                memcpy((char *)m.out[i] + first * e, (const char *)xl_meet_out(f->meet, m.id[k])[i] + first * e, len * e);
        }
    }
    if (split)
        XL_DO(again(s, f, &m));
out:
    return err;
}

/* Block `k` of `n` along a dimension of a tensor of this shape: rows of `inner` bytes. */
typedef struct { size_t outer, block; } blocks;
static blocks blocks_of(const xl_shape *sh, int64_t dim, int64_t parts)
{
    blocks b = { 1, sh->elem };
    for (uint32_t i = 0; i < sh->rank; i++) {
        if ((int64_t)i < dim)
            b.outer *= (size_t)sh->dims[i];
        else
            b.block *= (size_t)sh->dims[i];
    }
    b.block /= (size_t)parts;
    return b;
}

static xl_error *run_all_gather(const xl_step *s, xl_frame *f)
{
    const coll *c = s->data;
    meeting m;
    xl_error *err = NULL;
    XL_DO(begin(s, f, &m));
    if (!m.n) {
        err = absent(s, f);
        goto out;
    }
    for (uint32_t i = 0; i < s->nin; i++) {
        blocks b = blocks_of(&s->shape[i], c->dim, 1);
        xl_meet_count(f->meet, xl_out_shape(s, i)->bytes);
        if (xl_out_shape(s, i)->bytes != s->shape[i].bytes * m.n) {
            err = XL_ERR(INVALID, "%s: its result is not %u times its operand, the size of its group", s->name, m.n);
            goto out;
        }
        for (uint32_t k = 0; k < m.n; k++)
            for (size_t o = 0; o < b.outer; o++)
                memcpy((char *)m.out[i] + (o * m.n + k) * b.block, theirs(f, &m, k, i) + o * b.block, b.block);
    }
    XL_DO(again(s, f, &m));
out:
    return err;
}

static xl_error *run_reduce_scatter(const xl_step *s, xl_frame *f)
{
    const coll *c = s->data;
    meeting m;
    xl_error *err = NULL;
    XL_DO(begin(s, f, &m));
    if (!m.n) {
        err = absent(s, f);
        goto out;
    }
    blocks b = blocks_of(&s->shape[0], c->dim, m.n);
    xl_meet_count(f->meet, s->shape[0].bytes);
    if (s->shape[0].bytes != xl_out_shape(s, 0)->bytes * m.n) {
        err = XL_ERR(INVALID, "%s: its operand is not %u times its result, the size of its group", s->name, m.n);
        goto out;
    }
    for (size_t o = 0; o < b.outer && b.block; o++)
        XL_DO(fold_part(c, s, f, &m, 0, (o * m.n + m.at) * (b.block / s->shape[0].elem), b.block / s->shape[0].elem, (char *)m.out[0] + o * b.block));
    XL_DO(again(s, f, &m));
out:
    return err;
}

static xl_error *run_all_to_all(const xl_step *s, xl_frame *f)
{
    const coll *c = s->data;
    meeting m;
    xl_error *err = NULL;
    XL_DO(begin(s, f, &m));
    if (!m.n) {
        err = absent(s, f);
        goto out;
    }
    if ((int64_t)m.n != c->count) {
        err = XL_ERR(INVALID, "%s: split_count is %lld, its group has %u devices", s->name, (long long)c->count, m.n);
        goto out;
    }
    for (uint32_t i = 0; i < s->nin; i++) {
        const xl_shape *x = &s->shape[i];
        int64_t cd = c->dim, sd = c->split, n = m.n;
        xl_meet_count(f->meet, x->bytes);
        /* A block is x with dims[sd] / n; blocks from all members lie side by side along cd. Copied in runs that are whole in both. */
        int64_t dims[XL_RANK_MAX], last = x->rank ? (int64_t)x->rank - 1 : 0;
        int64_t low = cd > sd ? cd : sd;
        size_t run = x->elem;
        for (int64_t d = 0; d < (int64_t)x->rank; d++)
            dims[d] = d == sd ? x->dims[d] / n : x->dims[d];
        for (int64_t d = last; d > low; d--)
            run *= (size_t)dims[d];
        size_t rows = 1;
        for (int64_t d = 0; d <= low; d++)
            rows *= (size_t)dims[d];
        for (int64_t k = 0; k < n && rows && run; k++) {
            int64_t ix[XL_RANK_MAX] = { 0 };
            const char *from = theirs(f, &m, (uint32_t)k, i);
            for (size_t r = 0; r < rows; r++) {
                size_t a = 0, o = 0;
                for (int64_t d = 0; d <= low; d++) {
                    a = a * (size_t)x->dims[d] + (size_t)(ix[d] + (d == sd ? (int64_t)m.at * dims[d] : 0));
                    o = o * (size_t)(dims[d] * (d == cd ? n : 1)) + (size_t)(ix[d] + (d == cd ? k * dims[d] : 0));
                }
                memcpy((char *)m.out[i] + o * run, from + a * run, run);
                for (int64_t d = low; d >= 0 && ++ix[d] == dims[d]; d--)
                    ix[d] = 0;
            }
        }
    }
    XL_DO(again(s, f, &m));
out:
    return err;
}

static xl_error *run_broadcast(const xl_step *s, xl_frame *f)
{
    meeting m;
    xl_error *err = NULL;
    XL_DO(begin(s, f, &m));
    for (uint32_t i = 0; i < s->nout; i++) {
        if (m.n) {
            xl_meet_count(f->meet, s->shape[i].bytes);
            memcpy(m.out[i], theirs(f, &m, 0, i), s->shape[i].bytes);
        } else {
            memset(m.out[i], 0, s->shape[i].bytes);
        }
    }
    if (m.n)
        XL_DO(again(s, f, &m));
out:
    return err;
}

/* Everybody of the replica (or partition) meets: a pair names who reads from whom, and a source may be nobody's target. */
static xl_error *run_permute(const xl_step *s, xl_frame *f)
{
    const coll *c = s->data;
    meeting m;
    coll all = *c;
    xl_error *err = NULL;
    int64_t self = c->mode == CROSS_PARTITION ? f->partition : f->replica, from = -1;
    all.ngroup = 0;
    uint32_t total = f->nreplica * f->npartition;
    if (!f->meet)
        return XL_ERR(PRECONDITION, "%s: the program was started on one device alone, the others are not there", s->name);
    m.id = total <= 64 ? m.ids : xl_scratch(XL_SCRATCH_MEET, total * sizeof *m.id);
    if (!m.id)
        return XL_ERR(EXHAUSTED, "no memory for a collective");
    m.in = m.small;
    m.out = m.small + 1;
    m.in[0] = xl_in(s, f, 0);
    m.out[0] = xl_out(s, f, 0);
    m.n = members(&all, f, m.id, &m.at);
    XL_DO(again(s, f, &m));
    for (int64_t i = 0; i < c->size; i++)
        if (c->ids[2 * i + 1] == self)
            from = c->ids[2 * i];
    if (from >= 0 && from < (int64_t)m.n) {
        if (from != self)
            xl_meet_count(f->meet, s->shape[0].bytes);
        memcpy(m.out[0], theirs(f, &m, (uint32_t)from, 0), s->shape[0].bytes);
    } else {
        memset(m.out[0], 0, s->shape[0].bytes);
    }
    XL_DO(again(s, f, &m));
out:
    return err;
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
        c->ids = pairs.p;
        c->size = (int64_t)pairs.n / 2;
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
        return xl_plan_step(p, op, op->code == XL_OP_ALL_REDUCE ? run_all_reduce : run_reduce_scatter, c, 0);
    case XL_OP_ALL_GATHER:
        c->dim = xl_op_int(op, XL_SLOT(ALL_GATHER, all_gather_dim));
        return xl_plan_step(p, op, run_all_gather, c, 0);
    case XL_OP_ALL_TO_ALL:
        c->dim = xl_op_int(op, XL_SLOT(ALL_TO_ALL, concat_dimension));
        c->split = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_dimension));
        c->count = xl_op_int(op, XL_SLOT(ALL_TO_ALL, split_count));
        return xl_plan_step(p, op, run_all_to_all, c, 0);
    case XL_OP_COLLECTIVE_BROADCAST: return xl_plan_step(p, op, run_broadcast, c, 0);
    case XL_OP_COLLECTIVE_PERMUTE: return xl_plan_step(p, op, run_permute, c, 0);
    default: return xl_plan_unsupported(p, op, "this device does not serve it");
    }
out:
    return err;
}
