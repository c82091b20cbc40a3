/* A training step keeps what the forward pass made until the backward pass reads it. Much of that is a few additions and products
 * away from something else that is kept as well. Where a group reads such a value, and would be the last to, the ops that make the value
 * are copied into the group: they are done twice, on tiles that are in the cache anyway, and nothing is kept.
 *
 * Units are what runs at once: a group, or an op outside of groups. They are visited from the last to the first, so that those
 * after the one at hand read what they will read in the end, and it is certain what lives across it in any case. For a group,
 *   wanted: values that it is the last to read, made by cheap ops of another group over the same space, over a gap in which
 *           much memory is in use (half of the peak at least);
 *   leaves: what copies of their ops would read, going back through cheap ops. Free are arguments, numbers, what the group reads
 *           already, and what lives across it anyway; others would live longer, and cost their size.
 * While the leaves cost as much as the wanted values are worth, the wanted value with the dearest leaves is given up. */
#include "cpu/remat.h"

enum { WORK_MAX = 8, WANTED_MAX = 32, COPIES_MAX = 96, MEMBERS_MAX = 160, SMALL = 1 << 15 };
#define NONE UINT32_MAX

typedef struct { uint32_t unit, next; } reader;            /* next: index + 1, 0 ends; later units first */
typedef struct { xl_group *g; uint32_t first, n; } unit;   /* ops of the region */
typedef struct { xl_value v; xl_group *g; } copy;

typedef struct {
    xl_planner *p;
    xl_region *r;
    uint32_t nval;                                         /* before copies */
    unit *u; uint32_t nunit, capunit;
    uint32_t *of;                                          /* per value: the unit that makes it, or NONE */
    uint32_t *head;                                        /* per value: readers */
    reader *rd; uint32_t nrd, caprd;
    bool *kept;                                            /* per value: returned, or its memory is shared: leave it alone */
    size_t *live;                                          /* per unit: bytes */
    copy *made; uint32_t nmade, capmade;
    /* for the group at hand */
    uint32_t *stamp, now;                                  /* per value: leaf or copy of this round */
    xl_value *as;                                          /* per value: its copy in the group at hand */
    uint32_t *as_stamp;
} remat;

static size_t bytes_of(const remat *x, xl_value v)
{
    xl_shape s;
    xl_error *err = xl_shape_of(x->p, xl_value_type(x->p->f, v), &s);
    xl_error_free(err);
    return err ? 0 : s.bytes;
}

/* ---- who reads what ---------------------------------------------------------------------------------------------- */
static void read_at(remat *x, xl_value v, uint32_t unit)
{
    uint32_t prev = 0, at = x->head[v.id];
    while (at && x->rd[at - 1].unit > unit) {
        prev = at;
        at = x->rd[at - 1].next;
    }
    if (at && x->rd[at - 1].unit == unit)
        return;
    reader n = { unit, at };
    XL_PUSH(x->p->a, x->rd, x->nrd, x->caprd, n);
    *(prev ? &x->rd[prev - 1].next : &x->head[v.id]) = x->nrd;
}

static uint32_t last_reader(const remat *x, xl_value v) { return x->head[v.id] ? x->rd[x->head[v.id] - 1].unit : NONE; }

/* The value whose memory v's is: reshapes that are made share their operand's. */
static xl_value memory_of(const remat *x, xl_value v)
{
    const xl_op *def = x->p->f->val[v.id].def;
    while (def && def->code == XL_OP_RESHAPE && def->parent == x->r) {
        v = def->in[0];
        def = x->p->f->val[v.id].def;
    }
    return v;
}

static void note(remat *x, const xl_op *op, uint32_t unit, const xl_group *g)
{
    for (uint32_t k = 0; k < op->nin; k++) {
        xl_view v;
        if (g)
            xl_operand_view(x->p, op, k, &v);
        else if (op->code == XL_OP_DOT_GENERAL && op->parent == x->r)
            xl_dot_view(x->p, op, k, &v);
        else
            xl_view_plain(x->p->f, op->in[k], &v);
        if (v.kind != XL_VIEW_VALUE || (g && xl_group_of(x->p, v.base) == g))
            continue;
        xl_value m = memory_of(x, v.base);
        read_at(x, m, unit);
        if (m.id != v.base.id || op->code == XL_OP_RETURN)
            x->kept[m.id] = x->kept[v.base.id] = true;
    }
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            note(x, op->region[k]->op[i], unit, NULL);
}

static void find_units(remat *x)
{
    xl_region *r = x->r;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        xl_group *g = op->nout ? xl_group_of(x->p, op->out[0]) : NULL;
        if (!g || !x->nunit || x->u[x->nunit - 1].g != g) {
            unit n = { g, i, 0 };
            XL_PUSH(x->p->a, x->u, x->nunit, x->capunit, n);
        }
        x->u[x->nunit - 1].n++;
        for (uint32_t k = 0; k < op->nout; k++)
            x->of[op->out[k].id] = x->nunit - 1;
        if (g || !xl_op_virtual(x->p, op))
            note(x, op, x->nunit - 1, g);
    }
}

static void count(remat *x, xl_value v, uint32_t from, uint32_t to, bool more)
{
    size_t n = bytes_of(x, v);
    for (uint32_t i = from; i <= to; i++)
        x->live[i] += more ? n : (size_t)0 - n;
}

static size_t find_peak(remat *x)
{
    size_t peak = 0;
    for (uint32_t i = 0; i < x->nval; i++) {
        xl_value v = { i };
        uint32_t last = last_reader(x, v), from = x->of[i];
        if (from != NONE && last != NONE && last > from && !x->kept[i])
            count(x, v, from, last, true);
    }
    for (uint32_t i = 0; i < x->nunit; i++)
        peak = x->live[i] > peak ? x->live[i] : peak;
    return peak;
}

/* ---- what is worth it -------------------------------------------------------------------------------------------- */
/* How much work the op is for an element, WORK_MAX + 1: too much. */
static uint32_t work(const xl_op *op)
{
    switch (op->code) {
    case XL_OP_ADD: case XL_OP_SUBTRACT: case XL_OP_MULTIPLY: case XL_OP_NEGATE: case XL_OP_ABS: case XL_OP_MAXIMUM: case XL_OP_MINIMUM:
    case XL_OP_SELECT: case XL_OP_COMPARE: case XL_OP_AND: case XL_OP_OR: case XL_OP_XOR: case XL_OP_NOT: case XL_OP_CONVERT: case XL_OP_CLAMP:
    case XL_OP_BITCAST_CONVERT: case XL_OP_SIGN: case XL_OP_SHIFT_LEFT: case XL_OP_SHIFT_RIGHT_LOGICAL: case XL_OP_SHIFT_RIGHT_ARITHMETIC: return 1;
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
    const xl_group *home = def && def->parent == x->r ? xl_group_of(x->p, v) : NULL;
    return home && home != g && !x->kept[v.id] && xl_member_class(x->p, v) == XL_CLASS_OF_FULL && same_space(home, g) && work(def) <= WORK_MAX;
}

typedef struct { xl_value v; size_t gain, cost; } want;
typedef struct { uint32_t unit, work; size_t cost; } trip;

/* Follows the copies of v's op: adds up the work and, for leaves not met in this round, their sizes. */
static void follow(remat *x, xl_value v, trip *t)
{
    const xl_op *op = x->p->f->val[v.id].def;
    const xl_group *g = x->u[t->unit].g;
    if (x->stamp[v.id] == x->now)
        return;
    x->stamp[v.id] = x->now;
    t->work += work(op);
    for (uint32_t k = 0; k < op->nin && t->work <= WORK_MAX; k++) {
        xl_view w;
        xl_operand_view(x->p, op, k, &w);
        if (w.kind != XL_VIEW_VALUE || x->stamp[w.base.id] == x->now)
            continue;
        xl_value m = memory_of(x, w.base);
        uint32_t last = last_reader(x, m);
        bool lives = x->of[m.id] == NONE || (last != NONE && last >= t->unit);
        if (!lives && w.base.id == op->in[k].id && copyable(x, w.base, g)) {
            follow(x, w.base, t);
            continue;
        }
        if (!lives) {
            x->stamp[w.base.id] = x->now;
            t->cost += bytes_of(x, m);
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
    const xl_group *g = x->u[unit].g;
    uint32_t n = 0;
    x->now++;
    for (uint32_t i = 0; i < g->nop; i++)
        for (uint32_t k = 0; k < g->op[i]->nin && n < WANTED_MAX; k++) {
            xl_value v = g->op[i]->in[k];
            if (x->stamp[v.id] == x->now || v.id >= x->nval)
                continue;
            x->stamp[v.id] = x->now;
            if (!copyable(x, v, g) || last_reader(x, v) != unit || bytes_of(x, v) < SMALL || !read_plainly(x, g, v))
                continue;
            uint32_t before = x->rd[x->head[v.id] - 1].next, from = before ? x->rd[before - 1].unit : x->of[v.id];
            size_t most = 0;
            for (uint32_t q = from + 1; q < unit; q++)
                most = x->live[q] > most ? x->live[q] : most;
            if (most >= much)
                out[n++] = (want){ v, bytes_of(x, v), 0 };
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
    const xl_group *g = x->u[unit].g;
    xl_value in[3];
    if (x->as_stamp[v.id] == unit + 1)
        return x->as[v.id];
    for (uint32_t k = 0; k < op->nin; k++) {
        xl_view w;
        in[k] = op->in[k];
        xl_operand_view(x->p, op, k, &w);
        if (w.kind != XL_VIEW_VALUE)
            continue;
        xl_value m = memory_of(x, w.base);
        uint32_t last = last_reader(x, m);
        bool lives = x->of[m.id] == NONE || (last != NONE && last >= unit), again = x->as_stamp[w.base.id] == unit + 1;
        if ((again || !lives) && w.base.id == op->in[k].id && copyable(x, w.base, g) && c->n + 1 < COPIES_MAX) {
            in[k] = make_again(x, unit, w.base, c);
            continue;
        }
        if (x->of[m.id] == NONE)
            continue;
        uint32_t from = last == NONE ? x->of[m.id] : last;
        if (!lives && !x->kept[m.id])
            count(x, m, from + 1, unit, true);
        read_at(x, m, unit);
    }
    const xl_type *type = xl_value_type(f, v);
    xl_op *d = xl_op_new(f, NULL, (xl_opcode)op->code, in, op->nin, &type, 1, 0, op->loc);
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++)
        d->attr[i] = op->attr[i];
    d->extra = op->extra;
    d->parent = x->r;
    x->as[v.id] = d->out[0];
    x->as_stamp[v.id] = unit + 1;
    c->op[c->n++] = d;
    copy made = { d->out[0], x->u[unit].g };
    XL_PUSH(x->p->a, x->made, x->nmade, x->capmade, made);
    return d->out[0];
}

static void forget(remat *x, uint32_t unit, xl_value v)
{
    uint32_t before = x->rd[x->head[v.id] - 1].next, from = before ? x->rd[before - 1].unit : x->of[v.id];
    x->head[v.id] = before;
    count(x, v, from + 1, unit, false);
}

static void apply(remat *x, uint32_t unit, const want *w, uint32_t n)
{
    xl_group *g = x->u[unit].g;
    copies c = { .n = 0 };
    for (uint32_t i = 0; i < n; i++)                       /* none of them is a leaf of another */
        forget(x, unit, w[i].v);
    for (uint32_t i = 0; i < n; i++)
        make_again(x, unit, w[i].v, &c);
    for (uint32_t i = 0; i < g->nop; i++)
        for (uint32_t k = 0; k < g->op[i]->nin; k++) {
            xl_value v = g->op[i]->in[k];
            if (v.id < x->nval && x->as_stamp[v.id] == unit + 1)
                g->op[i]->in[k] = x->as[v.id];
        }
    xl_op **all = xl_new(x->p->a, xl_op *, c.n + g->nop);
    memcpy(all, c.op, c.n * sizeof *all);
    memcpy(all + c.n, g->op, g->nop * sizeof *all);
    g->op = all;
    g->nop = g->capop = c.n + g->nop;
}

/* Groups with their new members in the region; the planner's arrays for the new values. */
static void settle(remat *x)
{
    xl_planner *p = x->p;
    xl_region *r = x->r;
    uint32_t n = p->f->nval, k = 0;
    xl_op **op = xl_new(&p->f->m->arena, xl_op *, r->nop + x->nmade);
    for (uint32_t i = 0; i < x->nunit; i++) {
        const unit *u = &x->u[i];
        if (u->g)
            memcpy(op + k, u->g->op, u->g->nop * sizeof *op);
        else
            memcpy(op + k, r->op + u->first, u->n * sizeof *op);
        k += u->g ? u->g->nop : u->n;
    }
    r->op = op;
    r->nop = r->capop = k;
    p->need = xl_arena_grow(p->a, p->need, sizeof *p->need, x->nval, n);
    p->group = xl_arena_grow(p->a, p->group, sizeof *p->group, x->nval, n);
    p->member = xl_arena_grow(p->a, p->member, sizeof *p->member, x->nval, n);
    memset(p->need, false, n * sizeof *p->need);
    for (uint32_t i = 0; i < x->nmade; i++) {
        p->group[x->made[i].v.id] = x->made[i].g;
        p->member[x->made[i].v.id] = XL_CLASS_OF_FULL;
    }
}

bool xl_remat(xl_planner *p, xl_region *r)
{
    remat x = { .p = p, .r = r, .nval = p->f->nval };
    want w[WANTED_MAX];
    x.of = xl_new(p->a, uint32_t, x.nval);
    x.head = xl_new(p->a, uint32_t, x.nval);
    x.kept = xl_new(p->a, bool, x.nval);
    x.stamp = xl_new(p->a, uint32_t, x.nval);
    x.as_stamp = xl_new(p->a, uint32_t, x.nval);
    x.as = xl_new(p->a, xl_value, x.nval);
    memset(x.of, 0xff, x.nval * sizeof *x.of);
    find_units(&x);
    x.live = xl_new(p->a, size_t, x.nunit);
    size_t much = find_peak(&x) / 2;
    if (much < 8 * SMALL)
        return false;
    for (uint32_t i = x.nunit; i-- > 0; ) {
        const xl_group *g = x.u[i].g;
        uint32_t n = g && g->nop < MEMBERS_MAX - COPIES_MAX ? find_wanted(&x, i, much, w) : 0;
        if (n && (n = choose(&x, i, w, n)))
            apply(&x, i, w, n);
    }
    if (!x.nmade)
        return false;
    settle(&x);
    return true;
}
