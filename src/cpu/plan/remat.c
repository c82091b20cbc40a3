/* A training step keeps what the forward pass made until the backward pass reads it. Much of that is a few additions
 * and products away from something else that is kept as well. Where a group reads such a value, and would be the last
 * to, the ops that make the value are copied into the group: they are done twice, on tiles that are in the cache
 * anyway, and nothing is kept.
 *
 * Units are what runs at once: a group, or an op outside of groups. They are visited from the last to the first, so
 * that those after the one at hand read what they will read in the end, and it is certain what lives across it in any
 * case. For a group,
 *   wanted: values that it is the last to read, made by cheap ops of another group over the same space, over a gap in
 *   which
 *           much memory is in use (half of the peak at least);
 *   leaves: what copies of their ops would read, going back through cheap ops. Free are arguments, numbers, what the
 *   group reads
 *           already, and what lives across it anyway; others would live longer, and cost their size.
 * While the leaves cost as much as the wanted values are worth, the wanted value with the dearest leaves is
 * given up. */
#include "cpu/plan/remat.h"

enum { WORK_MAX = 8, WANTED_MAX = 32, COPIES_MAX = 96, MEMBERS_MAX = 160, SMALL = 1 << 15 };

typedef struct { xl_value v; xl_group *g; } copy;

typedef struct {
    xl_units *x;
    xl_planner *p;
    size_t *live;                                          /* per unit: bytes */
    copy *made; uint32_t nmade, capmade;
    /* for the group at hand */
    uint32_t *stamp, now;                                  /* per value: leaf or copy of this round */
    xl_value *as;                                          /* per value: its copy in the group at hand */
    uint32_t *as_stamp;
} remat;

/* ---- memory in use ----------------------------------------------------------------------------------------------- */
static bool kept(const remat *x, xl_value v) { return x->x->returned[v.id] || x->x->shared[v.id]; } /* left alone */

static void count(remat *x, xl_value v, uint32_t from, uint32_t to, bool more)
{
    size_t n = xl_units_bytes(x->x, v);
    for (uint32_t i = from; i <= to; i++)
        x->live[i] += more ? n : (size_t)0 - n;
}

static size_t find_peak(remat *x)
{
    size_t peak = 0;
    for (uint32_t i = 0; i < x->x->nval; i++) {
        xl_value v = { i };
        uint32_t last = xl_units_last(x->x, v), from = x->x->of[i];
        if (from != XL_NO_UNIT && last != XL_NO_UNIT && last > from && !x->x->returned[i])
            count(x, v, from, last, true);
    }
    for (uint32_t i = 0; i < x->x->n; i++)
        peak = x->live[i] > peak ? x->live[i] : peak;
    return peak;
}

/* ---- what is worth it -------------------------------------------------------------------------------------------- */
/* How much work the op is for an element, WORK_MAX + 1: too much. */
static uint32_t work(const xl_op *op)
{
    switch (op->code) {
    case XL_OP_ADD:
    case XL_OP_SUBTRACT:
    case XL_OP_MULTIPLY:
    case XL_OP_NEGATE:
    case XL_OP_ABS:
    case XL_OP_MAXIMUM:
    case XL_OP_MINIMUM:
    case XL_OP_SELECT:
    case XL_OP_COMPARE:
    case XL_OP_AND:
    case XL_OP_OR:
    case XL_OP_XOR:
    case XL_OP_NOT:
    case XL_OP_CONVERT:
    case XL_OP_CLAMP:
    case XL_OP_PRODUCT_SUM:
    case XL_OP_BITCAST_CONVERT:
    case XL_OP_SIGN:
    case XL_OP_SHIFT_LEFT:
    case XL_OP_SHIFT_RIGHT_LOGICAL:
    case XL_OP_SHIFT_RIGHT_ARITHMETIC: return 1;
    case XL_OP_DIVIDE: case XL_OP_SQRT: return 2;
    default: return WORK_MAX + 1;
    }
}

static bool same_space(const xl_group *a, const xl_group *b)
{
    return a->rank == b->rank && (a->rank == 0 || !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim));
}

/* Could a copy of v's op be a member of g? */
static bool copyable(const remat *x, xl_value v, const xl_group *g)
{
    const xl_op *def = x->p->f->val[v.id].def;
    const xl_group *home = def && def->parent == x->x->r ? xl_group_of(x->p, v) : NULL;
    return home && home != g && !kept(x, v) && xl_member_class(x->p, v) == XL_CLASS_OF_FULL && same_space(home, g) &&
           work(def) <= WORK_MAX;
}

typedef struct { xl_value v; size_t gain, cost; } want;
typedef struct { uint32_t unit, work; size_t cost; } trip;

/* Follows the copies of v's op: adds up the work and, for leaves not met in this round, their sizes. */
static void follow(remat *x, xl_value v, trip *t)
{
    const xl_op *op = x->p->f->val[v.id].def;
    const xl_group *g = x->x->u[t->unit].g;
    if (x->stamp[v.id] == x->now)
        return;
    x->stamp[v.id] = x->now;
    t->work += work(op);
    for (uint32_t k = 0; k < op->nin && t->work <= WORK_MAX; k++) {
        xl_view w;
        xl_operand_view(x->p, op, k, &w);
        if (w.kind != XL_VIEW_VALUE || x->stamp[w.base.id] == x->now)
            continue;
        xl_value m = xl_units_memory(x->x, w.base);
        uint32_t last = xl_units_last(x->x, m);
        bool lives = x->x->of[m.id] == XL_NO_UNIT || (last != XL_NO_UNIT && last >= t->unit);
        if (!lives && w.base.id == op->in[k].id && copyable(x, w.base, g)) {
            follow(x, w.base, t);
            continue;
        }
        if (!lives) {
            x->stamp[w.base.id] = x->now;
            t->cost += xl_units_bytes(x->x, m);
        }
    }
}

/* Does a member read v as it is, and none through a view? */
static bool read_plainly(const remat *x, const xl_group *g, xl_value v)
{
    bool plain = false;
    for (uint32_t i = 0; i < g->nop; i++)
        for (uint32_t k = 0; k < g->op[i]->nin; k++) {
            xl_view w;
            if (g->op[i]->in[k].id == v.id && g->op[i]->code != XL_OP_REDUCE) {
                plain = true;
                continue;
            }
            xl_operand_view(x->p, g->op[i], k, &w);
            if (w.kind == XL_VIEW_VALUE && w.base.id == v.id && (g->op[i]->in[k].id != v.id || k > 0))
                return false;
        }
    return plain;
}

/* Values that the unit is the last to read, over a gap where memory is short. */
static uint32_t find_wanted(remat *x, uint32_t unit, size_t much, want *out)
{
    const xl_group *g = x->x->u[unit].g;
    uint32_t n = 0;
    x->now++;
    for (uint32_t i = 0; i < g->nop; i++)
        for (uint32_t k = 0; k < g->op[i]->nin && n < WANTED_MAX; k++) {
            xl_value v = g->op[i]->in[k];
            if (x->stamp[v.id] == x->now || v.id >= x->x->nval)
                continue;
            x->stamp[v.id] = x->now;
            if (!copyable(x, v, g) || xl_units_last(x->x, v) != unit || xl_units_bytes(x->x, v) < SMALL ||
                !read_plainly(x, g, v))
                continue;
            uint32_t from = xl_units_before(x->x, v);
            size_t most = 0;
            for (uint32_t q = from + 1; q < unit; q++)
                most = x->live[q] > most ? x->live[q] : most;
            if (most >= much)
                out[n++] = (want){ v, xl_units_bytes(x->x, v), 0 };
        }
    return n;
}

/* Which of the n wanted values to make again: they come first in w; returns how many. */
static uint32_t choose(remat *x, uint32_t unit, want *w, uint32_t n)
{
    while (n) {
        size_t gain = 0, cost = 0;
        uint32_t dearest = 0;
        bool heavy = false;
        x->now++;
        for (uint32_t i = 0; i < n && !heavy; i++) {
            trip t = { unit, 0, 0 };
            follow(x, w[i].v, &t);
            w[i].cost = t.cost;
            gain += w[i].gain;
            cost += t.cost;
            heavy = t.work > WORK_MAX;
            if (heavy || w[i].cost > w[dearest].cost)
                dearest = i;
        }
        if (!heavy && gain > cost)
            return n;
        XL_KNOWN(dearest < n);
        memmove(w + dearest, w + dearest + 1, (n - dearest - 1) * sizeof *w);
        n--;
    }
    return 0;
}

/* ---- doing it ---------------------------------------------------------------------------------------------------- */
typedef struct { xl_op *op[COPIES_MAX]; uint32_t n; } copies;

static xl_value make_again(remat *x, uint32_t unit, xl_value v, copies *c)
{
    xl_func *f = x->p->f;
    const xl_op *op = f->val[v.id].def;
    const xl_group *g = x->x->u[unit].g;
    xl_value in[3];
    if (x->as_stamp[v.id] == unit + 1)
        return x->as[v.id];
    for (uint32_t k = 0; k < op->nin; k++) {
        xl_view w;
        in[k] = op->in[k];
        xl_operand_view(x->p, op, k, &w);
        if (w.kind != XL_VIEW_VALUE)
            continue;
        xl_value m = xl_units_memory(x->x, w.base);
        uint32_t last = xl_units_last(x->x, m);
        bool lives = x->x->of[m.id] == XL_NO_UNIT || (last != XL_NO_UNIT && last >= unit),
             again = x->as_stamp[w.base.id] == unit + 1;
        if ((again || !lives) && w.base.id == op->in[k].id && copyable(x, w.base, g) && c->n + 1 < COPIES_MAX) {
            in[k] = make_again(x, unit, w.base, c);
            continue;
        }
        if (x->x->of[m.id] == XL_NO_UNIT)
            continue;
        uint32_t from = last == XL_NO_UNIT ? x->x->of[m.id] : last;
        if (!lives && !kept(x, m))
            count(x, m, from + 1, unit, true);
        xl_units_read(x->x, m, unit);
    }
    const xl_type *type = xl_value_type(f, v);
    xl_op *d = xl_op_new(f, NULL, (xl_opcode)op->code, in, op->nin, &type, 1, 0, op->loc);
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++)
        d->attr[i] = op->attr[i];
    d->extra = op->extra;
    d->parent = x->x->r;
    x->as[v.id] = d->out[0];
    x->as_stamp[v.id] = unit + 1;
    c->op[c->n++] = d;
    copy made = { d->out[0], x->x->u[unit].g };
    XL_PUSH(x->p->a, x->made, x->nmade, x->capmade, made);
    return d->out[0];
}

static void forget(remat *x, uint32_t unit, xl_value v)
{
    uint32_t from = xl_units_before(x->x, v);
    x->x->head[v.id] = x->x->rd[x->x->head[v.id] - 1].next;
    count(x, v, from + 1, unit, false);
}

static void apply(remat *x, uint32_t unit, const want *w, uint32_t n)
{
    xl_group *g = x->x->u[unit].g;
    copies c = { .n = 0 };
    for (uint32_t i = 0; i < n; i++)                       /* none of them is a leaf of another */
        forget(x, unit, w[i].v);
    for (uint32_t i = 0; i < n; i++)
        make_again(x, unit, w[i].v, &c);
    for (uint32_t i = 0; i < g->nop; i++)
        for (uint32_t k = 0; k < g->op[i]->nin; k++) {
            xl_value v = g->op[i]->in[k];
            if (v.id < x->x->nval && x->as_stamp[v.id] == unit + 1)
                g->op[i]->in[k] = x->as[v.id];
        }
    xl_op **all = xl_new(x->p->a, xl_op *, c.n + g->nop);
    memcpy(all, c.op, c.n * sizeof *all);
    memcpy(all + c.n, g->op, g->nop * sizeof *all);
    g->op = all;
    g->nop = g->capop = c.n + g->nop;
}

/* Groups with their new members in the region; the planner's arrays for the new values. What is needed changes, and the
 * units. */
static void settle(remat *x)
{
    xl_planner *p = x->p;
    xl_region *r = x->x->r;
    uint32_t n = p->f->nval, was = x->x->nval, k = 0;
    xl_op **op = xl_new(&p->f->m->arena, xl_op *, r->nop + x->nmade);
    for (uint32_t i = 0; i < x->x->n; i++) {
        const xl_unit *u = &x->x->u[i];
        uint32_t nop = u->g ? u->g->nop : u->n;
        memcpy(op + k, u->g ? u->g->op : r->op + u->first, nop * sizeof *op);
        k += nop;
    }
    r->op = op;
    r->nop = r->capop = k;
    p->need = xl_arena_grow(p->a, p->need, sizeof *p->need, was, n);
    p->group = xl_arena_grow(p->a, p->group, sizeof *p->group, was, n);
    p->member = xl_arena_grow(p->a, p->member, sizeof *p->member, was, n);
    for (uint32_t i = 0; i < x->nmade; i++) {
        p->group[x->made[i].v.id] = x->made[i].g;
        p->member[x->made[i].v.id] = XL_CLASS_OF_FULL;
    }
}

bool xl_remat(xl_units *units)
{
    xl_planner *p = units->p;
    remat x = { .x = units, .p = p };
    want w[WANTED_MAX];
    x.stamp = xl_new(p->a, uint32_t, units->nval);
    x.as_stamp = xl_new(p->a, uint32_t, units->nval);
    x.as = xl_new(p->a, xl_value, units->nval);
    x.live = xl_new(p->a, size_t, units->n);
    size_t much = find_peak(&x) / 2;
    if (much < 8 * SMALL)
        return false;
    for (uint32_t i = units->n; i-- > 0; ) {
        const xl_group *g = units->u[i].g;
        uint32_t n = g && g->nop < MEMBERS_MAX - COPIES_MAX ? find_wanted(&x, i, much, w) : 0;
        if (n && (n = choose(&x, i, w, n)))
            apply(&x, i, w, n);
    }
    if (!x.nmade)
        return false;
    settle(&x);
    return true;
}
