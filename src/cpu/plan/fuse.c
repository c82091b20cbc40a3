/* How groups grow. Ops are visited in program order. Each that can be a member begins as a group of its own, then is
 * merged with the groups that make its operands, and with the last group that reads the same large value, as long as
 *   - both have the same space, or one is over the rows of the other,
 *   - each reads the other's results point by point or row by row,
 *   - no path leads from one to the other through an op outside: then neither could run first.
 * Afterwards the region's ops are put in a new order, every group in one piece, otherwise as near to the old one as
 * possible. */
#include "cpu/plan/fuse.h"

#include <stdlib.h>

#include "cpu/plan/heap.h"
#include "cpu/plan/remat.h"
#include "cpu/plan/schedule.h"

enum { MEMBERS_MAX = 160, SHARE_MIN = 2048, ROW_MAX = 1 << 15, STRIDED_MAX = 4096, DEPTH_MAX = 64 };

typedef struct {
    xl_planner *p;
    xl_region *r;
    xl_group **node;                                       /* per position: its group, or a node of one op */
    uint32_t stamp;
} fuser;

static xl_group *root(xl_group *g)
{
    while (g->into)
        g = g->into;
    return g;
}

/* ---- what can be a member --------------------------------------------------------------------------------------- */
static bool tensor(const xl_type *t, int64_t *n)
{
    return t->kind == XL_TY_TENSOR && !t->quant && !t->unranked && t->rank <= XL_RANK_MAX && xl_type_count(t, n) &&
           *n > 0 && t->dtype != XL_TF32 && t->dtype != XL_INDEX && t->dtype != XL_DT_NONE;
}

static bool elementwise(const xl_planner *p, const xl_op *op)
{
    int64_t n, m;
    if (op->nout != 1 || op->nin == 0 || op->nin > 3 || op->nregion)
        return false;
    if (op->code == XL_OP_BITCAST_CONVERT) {
        xl_dtype a = xl_in_type(p->f, op, 0)->dtype, b = xl_out_type(p->f, op, 0)->dtype;
        if (xl_dtypes[a].bits != xl_dtypes[b].bits || xl_dtypes[a].bits < 8 || xl_is_narrow(a) || xl_is_narrow(b))
            return false;
    } else if (!(xl_ops[op->code].flags & XL_OP_ELEMWISE)) {
        return false;
    }
    if (!tensor(xl_out_type(p->f, op, 0), &n))
        return false;
    for (uint32_t i = 0; i < op->nin; i++)
        if (!tensor(xl_in_type(p->f, op, i), &m) || (m != n && m != 1))
            return false;
    return true;
}

bool xl_reduce_simple(const xl_planner *p, const xl_op *op, xl_opcode *single)
{
    int64_t n;
    if (op->code != XL_OP_REDUCE || op->nin != 2 || op->nout != 1 || !tensor(xl_in_type(p->f, op, 0), &n))
        return false;
    xl_dtype d = xl_in_type(p->f, op, 0)->dtype;
    *single = xl_region_single(p->f, op->region[0]);
    return d == xl_out_type(p->f, op, 0)->dtype && xl_kernel_folds(xl_is_narrow(d) ? XL_F32 : d, *single);
}

static void space_of(xl_group *g, const xl_type *t)
{
    g->rank = 0;
    g->count = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dims[i] != 1) {
            g->dim[g->rank++] = t->dims[i];
            g->count *= t->dims[i];
        }
}

/* A reduction as the first member of a group: over the last dimensions, the first, or all. */
static bool reduction(const fuser *u, const xl_op *op, xl_group *g, xl_tile_class *cls)
{
    xl_opcode single;
    if (!xl_reduce_simple(u->p, op, &single))
        return false;
    const xl_type *t = xl_in_type(u->p->f, op, 0);
    xl_dims dims = xl_op_dims(op, XL_SLOT(REDUCE, dimensions));
    bool red[XL_RANK_MAX] = { false }, in[XL_RANK_MAX];
    uint32_t n = 0, changes = 0, reduced = 0;
    for (size_t i = 0; i < dims.n; i++)
        if (dims.p[i] >= 0 && dims.p[i] < t->rank)
            red[dims.p[i]] = true;
    space_of(g, t);
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dims[i] != 1) {
            in[n] = red[i];
            reduced += red[i];
            if (n && in[n] != in[n - 1]) {
                changes++;
                g->split = (int32_t)n;
            }
            n++;
        }
    if (reduced == 0 || changes > 1)
        return false;
    if (changes == 0) {
        *cls = XL_CLASS_OF_ALL;
        return true;
    }
    *cls = in[0] ? XL_CLASS_OF_COL : XL_CLASS_OF_ROW;
    g->row_reduce = !in[0];
    int64_t columns = 1;
    for (uint32_t i = (uint32_t)g->split; i < g->rank; i++)
        columns *= g->dim[i];
    return in[0] || columns <= ROW_MAX;
}

xl_tile_class xl_member_class(const xl_planner *p, xl_value v) { return (xl_tile_class)p->member[v.id]; }

/* xl_view_of, remembered: each is asked for a dozen times, and is mostly empty. */
static void view_of(const xl_planner *p, xl_value v, xl_view *out)
{
    if (v.id >= p->nview) {
        xl_view_of(p->f, v, out);
        return;
    }
    const xl_view *m = p->view[v.id];
    if (!m) {
        xl_view_of(p->f, v, out);
        size_t used = offsetof(xl_view, dim) + 2 * out->rank * sizeof *out->dim;
        xl_view *keep = xl_arena_alloc(p->a, used);
        memcpy(keep, out, offsetof(xl_view, dim));
        memcpy(keep->dim, out->dim, out->rank * sizeof *out->dim);
        memcpy(keep->dim + out->rank, out->stride, out->rank * sizeof *out->stride);
        p->view[v.id] = keep;
        return;
    }
    memcpy(out, m, offsetof(xl_view, dim));
    memcpy(out->dim, m->dim, m->rank * sizeof *m->dim);
    memcpy(out->stride, m->dim + m->rank, m->rank * sizeof *m->dim);
}

void xl_operand_view(const xl_planner *p, const xl_op *op, uint32_t i, xl_view *out)
{
    int64_t n = 1;
    view_of(p, op->in[i], out);
    uint32_t last = out->rank;
    for (uint32_t k = 0; k < out->rank; k++) {
        n *= out->dim[k];
        if (out->dim[k] != 1)
            last = k;
    }
    /* far apart in memory: a copy in squares is faster than a column at a time */
    if (out->kind == XL_VIEW_VALUE && n > STRIDED_MAX && last < out->rank && out->stride[last] != 0 &&
        out->stride[last] != 1)
        xl_view_plain(p->f, op->in[i], out);
}

void xl_dot_view(const xl_planner *p, const xl_op *op, uint32_t k, xl_view *out)
{
    if (!p->plain)
        view_of(p, op->in[k], out);
    if (p->plain || out->kind != XL_VIEW_VALUE)
        xl_view_plain(p->f, op->in[k], out);
}

/* ---- may a and b be one? ---------------------------------------------------------------------------------------- */
static bool same_dims(const xl_group *a, uint32_t n, const xl_group *b)
{
    return b->rank == n && (n == 0 || !memcmp(a->dim, b->dim, n * sizeof *a->dim));
}

/* b's members are over a's rows. */
static bool over_rows(const xl_group *a, const xl_group *b)
{
    if (b->split >= 0 || b->row_reduce || a->rank == 0 || b->rank >= a->rank || b->rank == 0)
        return false;
    for (uint32_t i = 0; i < b->nop; i++)
        if (b->op[i]->code == XL_OP_REDUCE)
            return false;
    return a->split >= 0 && same_dims(a, (uint32_t)a->split, b);
}

/* v (of a member with dimensions dim[0..n)) steps through a dense value of its first m dimensions and stands still
 * along the others. */
static bool steps(const xl_view *v, uint32_t m)
{
    int64_t s = 1;
    for (uint32_t i = v->rank; i-- > m; )
        if (v->stride[i] != 0)
            return false;
    for (uint32_t i = m; i-- > 0; ) {
        if (v->stride[i] != s)
            return false;
        s *= v->dim[i];
    }
    return v->offset == 0;
}

/* Each of x's members that reads a result of y: can it, when x's are of class cx and y's of class cy (FULL: as they
 * are)? */
static bool reads_fit(const fuser *u, const xl_group *x, bool x_rows, const xl_group *y, bool y_rows, uint32_t rank,
                      uint32_t split)
{
    for (uint32_t i = 0; i < x->nop; i++) {
        const xl_op *op = x->op[i];
        bool reduce = op->code == XL_OP_REDUCE;
        xl_tile_class own = x_rows ? XL_CLASS_OF_ROW : xl_member_class(u->p, op->out[0]);
        for (uint32_t k = 0; k < op->nin; k++) {
            xl_view v;
            xl_operand_view(u->p, op, k, &v);
            if (v.kind != XL_VIEW_VALUE)
                continue;
            xl_group *home = u->p->group[v.base.id];
            if (!home || root(home) != y)
                continue;
            xl_tile_class from = y_rows ? XL_CLASS_OF_ROW : xl_member_class(u->p, v.base);
            if (from == XL_CLASS_OF_COL || from == XL_CLASS_OF_ALL || (reduce && k == 1))
                return false;
            xl_view_strip(&v);
            if (!reduce && own == XL_CLASS_OF_ROW) {
                if (from != XL_CLASS_OF_ROW || v.rank != split || !steps(&v, split))
                    return false;
            } else if (v.rank != rank || !steps(&v, from == XL_CLASS_OF_ROW ? split : rank)) {
                return false;
            }
        }
    }
    return true;
}

/* Is there a way from a member of `to` back to a member of `from` through ops outside both? */
static bool reaches(fuser *u, xl_group *start, const xl_group *from, const xl_group *to, uint32_t depth);

static bool reaches_op(fuser *u, const xl_op *op, const xl_group *from, const xl_group *to, uint32_t depth)
{
    const xl_func *f = u->p->f;
    for (uint32_t k = 0; k < op->nin; k++) {
        const xl_op *def = f->val[op->in[k].id].def;
        while (def && def->parent != u->r)
            def = def->parent && def->parent->owner ? def->parent->owner : NULL;
        if (!def)
            continue;
        xl_group *g = root(u->node[def->mark]);
        if (g == from)
            return true;
        if (g == to || g->stamp == u->stamp || g->max < from->min)
            continue;
        if (reaches(u, g, from, to, depth))
            return true;
    }
    for (uint32_t r = 0; r < op->nregion && op->code != XL_OP_REDUCE; r++)
        for (uint32_t i = 0; i < op->region[r]->nop; i++)
            if (reaches_op(u, op->region[r]->op[i], from, to, depth))
                return true;
    return false;
}

static bool reaches(fuser *u, xl_group *start, const xl_group *from, const xl_group *to, uint32_t depth)
{
    start->stamp = u->stamp;
    if (depth > 512)                                       /* too far to look: say yes, and do not merge */
        return true;
    for (uint32_t i = 0; i < start->nop; i++)
        if (reaches_op(u, start->op[i], from, to, depth + 1))
            return true;
    return false;
}

/* The op of this region that makes what the member's operand shows, or NULL. */
static const xl_op *maker_of(const fuser *u, const xl_op *op, uint32_t k)
{
    xl_view v;
    xl_operand_view(u->p, op, k, &v);
    const xl_op *def = v.kind == XL_VIEW_VALUE ? u->p->f->val[v.base.id].def : NULL;
    return def && def->parent == u->r ? def : NULL;
}

/* A path between a and b through others. Direct edges do not count, and views in between are not made. */
static bool tangled(fuser *u, xl_group *a, xl_group *b)
{
    for (int way = 0; way < 2; way++) {
        xl_group *to = way ? a : b, *from = way ? b : a;
        u->stamp++;
        for (uint32_t i = 0; i < to->nop; i++)
            for (uint32_t k = 0; k < to->op[i]->nin; k++) {
                const xl_op *def = maker_of(u, to->op[i], k);
                xl_group *g = def ? root(u->node[def->mark]) : NULL;
                if (!g || g == from || g == to || g->stamp == u->stamp || g->max < from->min)
                    continue;
                if (reaches(u, g, from, to, 0))
                    return true;
            }
    }
    return false;
}

static bool merge(fuser *u, xl_group *a, xl_group *b)
{
    a = root(a), b = root(b);
    if (a == b || a->nop + b->nop > MEMBERS_MAX)
        return a == b;
    bool a_rows = false, b_rows = false;
    int32_t split = a->split >= 0 ? a->split : b->split;
    if (same_dims(a, a->rank, b)) {
        if (a->split >= 0 && b->split >= 0 && a->split != b->split)
            return false;
    } else if (over_rows(a, b)) {
        b_rows = true;
        split = a->split;
    } else if (over_rows(b, a)) {
        a_rows = true;
        split = b->split;
    } else {
        return false;
    }
    const xl_group *space = a_rows ? b : a;
    if (split >= 0 && (a->row_reduce || b->row_reduce)) {
        int64_t columns = 1;
        for (uint32_t i = (uint32_t)split; i < space->rank; i++)
            columns *= space->dim[i];
        if (columns > ROW_MAX)
            return false;
    }
    uint32_t rank = space->rank, at = split >= 0 ? (uint32_t)split : rank;
    if (!reads_fit(u, a, a_rows, b, b_rows, rank, at) || !reads_fit(u, b, b_rows, a, a_rows, rank, at) ||
        tangled(u, a, b))
        return false;
    xl_group *to = a_rows ? b : a, *from = a_rows ? a : b;
    if (a_rows || b_rows)
        for (uint32_t i = 0; i < from->nop; i++)
            u->p->member[from->op[i]->out[0].id] = XL_CLASS_OF_ROW;
    for (uint32_t i = 0; i < from->nop; i++)
        XL_PUSH(u->p->a, to->op, to->nop, to->capop, from->op[i]);
    to->split = split;
    to->row_reduce = to->row_reduce || from->row_reduce;
    to->min = to->min < from->min ? to->min : from->min;
    to->max = to->max > from->max ? to->max : from->max;
    from->into = to;
    return true;
}

/* ---- a region --------------------------------------------------------------------------------------------------- */
static void grow(fuser *u, const xl_op *op)
{
    const xl_planner *p = u->p;
    xl_group *g = u->node[op->mark];
    for (uint32_t k = 0; k < op->nin; k++) {
        xl_view v;
        xl_operand_view(p, op, k, &v);
        if (v.kind != XL_VIEW_VALUE)
            continue;
        const xl_op *def = p->f->val[v.base.id].def;
        if (def && def->parent == u->r && p->group[v.base.id])
            merge(u, root(p->group[v.base.id]), root(g));
        xl_view_strip(&v);
        if (root(g)->count >= SHARE_MIN && xl_view_dense(&v) && v.rank == g->rank) {
            xl_group *last = p->reader[v.base.id];
            if (last && last->home == u->r)
                merge(u, root(last), root(g));
            p->reader[v.base.id] = g;
        }
    }
}

static int by_mark(const void *a, const void *b)
{
    uint32_t x = (*(const xl_op *const *)a)->mark, y = (*(const xl_op *const *)b)->mark;
    return (x > y) - (x < y);
}

/* Kahn's order: of all that is ready, what stood first. A group stands where its last member stood. */
typedef struct { uint32_t to, next; } edge;
typedef struct { edge *e; uint32_t n, cap; uint32_t *first; } edges;

static void add_edge(fuser *u, edges *es, xl_group *from, xl_group *to)
{
    if (from == to)
        return;
    edge e = { to->max, es->first[from->max] };
    XL_PUSH(u->p->a, es->e, es->n, es->cap, e);
    es->first[from->max] = es->n;
    to->waits++;
}

static void edges_of(fuser *u, edges *es, const xl_op *op, xl_group *to)
{
    bool member = op->nout && op->parent == u->r && u->p->group[op->out[0].id];
    for (uint32_t k = 0; k < op->nin; k++) {
        const xl_op *def = member ? maker_of(u, op, k) : u->p->f->val[op->in[k].id].def;
        if (def && def->parent == u->r)
            add_edge(u, es, root(u->node[def->mark]), to);
    }
    for (uint32_t r = 0; r < op->nregion; r++)
        for (uint32_t i = 0; i < op->region[r]->nop; i++)
            edges_of(u, es, op->region[r]->op[i], to);
}

static bool effect(const xl_op *op)
{
    if (xl_ops[op->code].flags & (XL_OP_EFFECT | XL_OP_COLLECTIVE))
        return true;
    if (op->code == XL_OP_CUSTOM_CALL)
        return true;
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            if (op->region[k]->op[i]->code != XL_OP_RETURN && effect(op->region[k]->op[i]))
                return true;
    return false;
}

static bool order(fuser *u)
{
    xl_region *r = u->r;
    xl_planner *p = u->p;
    edges es = { .first = xl_new(p->a, uint32_t, r->nop) };
    xl_heap h = { xl_new(p->a, uint32_t, r->nop), 0 };
    xl_op **out = xl_new(p->a, xl_op *, r->nop);
    uint32_t n = 0;
    xl_group *last = NULL;
    for (uint32_t i = 0; i < r->nop; i++) {
        edges_of(u, &es, r->op[i], root(u->node[i]));
        if (effect(r->op[i])) {                            /* effects keep their order */
            if (last)
                add_edge(u, &es, last, root(u->node[i]));
            last = root(u->node[i]);
        }
        if (r->op[i]->code == XL_OP_RETURN)                /* the end stays the end */
            for (uint32_t k = 0; k < i; k++)
                add_edge(u, &es, root(u->node[k]), root(u->node[i]));
    }
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_group *g = root(u->node[i]);
        if (g->max == i && !g->waits)
            xl_heap_push(&h, i);
    }
    while (h.n) {
        xl_group *g = root(u->node[xl_heap_pop(&h)]);
        qsort(g->op, g->nop, sizeof *g->op, by_mark);
        for (uint32_t i = 0; i < g->nop; i++)
            out[n++] = r->op[g->op[i]->mark];
        for (uint32_t e = es.first[g->max]; e; e = es.e[e - 1].next) {
            xl_group *t = root(u->node[es.e[e - 1].to]);
            if (--t->waits == 0)
                xl_heap_push(&h, t->max);
        }
    }
    if (n != r->nop)
        return false;
    memcpy(r->op, out, n * sizeof *out);
    return true;
}

static xl_error *region(xl_planner *p, xl_region *r, uint32_t depth)
{
    xl_error *err = NULL;
    if (depth > DEPTH_MAX)
        return XL_ERR(INVALID, "regions are nested more than %d deep", DEPTH_MAX);
    for (uint32_t i = 0; i < r->nop; i++)
        if (r->op[i]->code == XL_OP_WHILE || r->op[i]->code == XL_OP_IF || r->op[i]->code == XL_OP_CASE)
            for (uint32_t k = 0; k < r->op[i]->nregion; k++)
                XL_DO(region(p, r->op[i]->region[k], depth + 1));
    fuser u = { .p = p, .r = r, .node = xl_new(p->a, xl_group *, r->nop) };
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        xl_group *g = xl_new(p->a, xl_group, 1);
        xl_tile_class cls = XL_CLASS_OF_FULL;
        op->mark = i;
        g->min = g->max = i;
        g->split = -1;
        g->home = r;
        XL_PUSH(p->a, g->op, g->nop, g->capop, op);
        u.node[i] = g;
        bool member = elementwise(p, op);
        if (member)
            space_of(g, xl_out_type(p->f, op, 0));
        else
            member = reduction(&u, op, g, &cls);
        if (!member)
            continue;
        p->group[op->out[0].id] = g;
        p->member[op->out[0].id] = (uint8_t)cls;
        grow(&u, op);
    }
    if (!order(&u)) {                                      /* cannot be; run the ops one by one then */
        for (uint32_t i = 0; i < r->nop; i++)
            for (uint32_t k = 0; k < r->op[i]->nout; k++)
                p->group[r->op[i]->out[k].id] = NULL;
        return NULL;
    }
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        if (!op->nout || !p->group[op->out[0].id])
            continue;
        xl_group *g = root(p->group[op->out[0].id]);
        p->group[op->out[0].id] = g->nop == 1 && op->code == XL_OP_REDUCE ? NULL : g;
    }
out:
    return err;
}

/* ---- what must exist -------------------------------------------------------------------------------------------- */
static void needs(xl_planner *p, const xl_region *r)
{
    for (uint32_t i = r->nop; i-- > 0; ) {
        const xl_op *op = r->op[i];
        xl_group *g = op->nout ? xl_group_of(p, op->out[0]) : NULL;
        for (uint32_t k = 0; k < op->nregion && !g; k++)
            needs(p, op->region[k]);
        if (g ? !(p->live[op->out[0].id] |= p->need[op->out[0].id])
              : xl_op_is_view(p->f, op) && !p->need[op->out[0].id])
            continue;
        for (uint32_t k = 0; k < op->nin; k++) {
            xl_view v;
            if (g || op->code == XL_OP_DOT_GENERAL) {
                if (g)
                    xl_operand_view(p, op, k, &v);
                else
                    xl_dot_view(p, op, k, &v);
                if (v.kind != XL_VIEW_VALUE)
                    continue;
                *(g && xl_group_of(p, v.base) == g ? &p->live[v.base.id] : &p->need[v.base.id]) = true;
            } else if (op->code != XL_OP_WHILE || !xl_carry_splat(p, op->in[k])) {
                p->need[op->in[k].id] = true;
            }
        }
    }
}

/* Members that nobody reads leave their group: a tile program has no place for them, since it computes what is read. */
static void drop_dead(xl_planner *p, xl_region *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        xl_group *g = op->nout ? xl_group_of(p, op->out[0]) : NULL;
        for (uint32_t k = 0; k < op->nregion && !g; k++)
            drop_dead(p, op->region[k]);
        if (g && op == g->op[0]) {
            uint32_t left = 0;
            for (uint32_t k = 0; k < g->nop; k++)
                if (p->live[g->op[k]->out[0].id])
                    g->op[left++] = g->op[k];
            g->nop = left;
        }
        if (!g || p->live[op->out[0].id])
            r->op[n++] = op;
    }
    r->nop = n;
}

static void find_needs(xl_planner *p, xl_region *r)
{
    memset(p->need, false, p->f->nval * sizeof *p->need);
    p->live = xl_new(p->a, bool, p->f->nval);
    needs(p, r);
    drop_dead(p, r);
}

/* ---- a product whose only use is turned over -------------------------------------------------------------------- */
static void count_uses(const xl_region *r, uint32_t *n)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin; k++)
            n[r->op[i]->in[k].id]++;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            count_uses(r->op[i]->region[k], n);
    }
}

/* transpose(a b) with rows and columns exchanged is the product of b and a: made in that order at once. */
static void turn_products(xl_planner *p, xl_region *r, const uint32_t *n)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *t = r->op[i];
        for (uint32_t k = 0; k < t->nregion; k++)
            turn_products(p, t->region[k], n);
        xl_op *d = t->code == XL_OP_TRANSPOSE ? p->f->val[t->in[0].id].def : NULL;
        if (!d || d->code != XL_OP_DOT_GENERAL || d->parent != r || n[d->out[0].id] != 1 ||
            XL_ATTR(d, DOT_GENERAL, accumulation_type))
            continue;
        xl_dims perm = xl_op_dims(t, XL_SLOT(TRANSPOSE, permutation)),
                batch = xl_op_dims(d, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)),
                con = xl_op_dims(d, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions));
        int64_t b = (int64_t)batch.n, m = (int64_t)xl_in_type(p->f, d, 0)->rank - b - (int64_t)con.n,
                all = (int64_t)perm.n;
        bool turned = m >= 0 && m <= all - b;
        for (int64_t k = 0; k < all && turned; k++)        /* [batch, m, n] -> [batch, n, m] */
            turned = perm.p[k] == (k < b ? k : k < all - m ? k + m : k - (all - b - m));
        if (!turned)
            continue;
        const xl_attr **a = d->attr, *x = a[XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)],
                      *y = a[XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)];
        a[XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)] = a[XL_SLOT(DOT_GENERAL, rhs_batching_dimensions)];
        a[XL_SLOT(DOT_GENERAL, rhs_batching_dimensions)] = x;
        a[XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)] = a[XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions)];
        a[XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions)] = y;
        xl_value v = d->in[0];
        d->in[0] = d->in[1];
        d->in[1] = v;
        p->f->val[d->out[0].id].type = xl_out_type(p->f, t, 0);
        t->code = XL_OP_RESHAPE;                           /* of the same shape: nothing */
    }
}

xl_error *xl_fuse(xl_planner *p, xl_region *r)
{
    p->need = xl_new(p->a, bool, p->f->nval);
    p->group = xl_new(p->a, xl_group *, p->f->nval);
    p->member = xl_new(p->a, uint8_t, p->f->nval);
    p->reader = xl_new(p->a, xl_group *, p->f->nval);
    if (p->plain) {
        memset(p->need, true, p->f->nval * sizeof *p->need);
        return NULL;
    }
    uint32_t *n = p->nuse = xl_new(p->a, uint32_t, p->f->nval);
    count_uses(r, n);
    turn_products(p, r, n);
    p->view = xl_new(p->a, xl_view *, p->f->nval);         /* values are what they are from here on */
    p->nview = p->f->nval;
    xl_error *err = region(p, r, 0);
    if (err)
        return err;
    xl_units x;
    find_needs(p, r);
    xl_units_find(&x, p, r);
    if (xl_remat(&x)) {                                    /* other members, other readers */
        find_needs(p, r);
        xl_units_find(&x, p, r);
    }
    xl_schedule(&x);
    return NULL;
}
