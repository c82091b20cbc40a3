/* Programs are written down in an order that is good to read: all gradients, then all updates. Run so, every gradient
 * lives until the end. Here units run in the old order, except that one which gives back more memory than it takes runs
 * as soon as it can: when what it reads is made, and, if its result takes over the memory of a donated argument, when
 * all others have read that argument (or the result would have to be made elsewhere and copied). Running it early makes
 * nothing else live longer.
 *
 * Ops with effects keep their order; the end stays the end. */
#include "cpu/plan/schedule.h"

#include "cpu/plan/heap.h"

typedef struct { uint32_t to, next; } edge;
typedef struct {
    xl_units *x;
    uint32_t *waits;                                       /* per unit: how many must run before it */
    uint32_t *edges;                                       /* per unit: those that wait for it, as indices + 1 */
    edge *e; uint32_t ne, cape;
    uint32_t *left;                                        /* per value: readers that have not run */
    size_t *takes;                                         /* per unit: bytes of temporaries it makes */
    uint32_t *reads;                                       /* per unit: what it reads, a list through `read` */
    struct { xl_value v; uint32_t next; } *read; uint32_t nread, capread;
    bool *ready, *done, *early;                            /* early: is in `now` */
    xl_heap later, now;
    uint32_t *donor;                                       /* per value: 1 + the argument whose memory it takes over */
} schedule;

static void wait_for(schedule *s, uint32_t unit, uint32_t before)
{
    if (unit == before)
        return;
    edge n = { unit, s->edges[before] };
    XL_PUSH(s->x->p->a, s->e, s->ne, s->cape, n);
    s->edges[before] = s->ne;
    s->waits[unit]++;
}

static void wait_for_operands(schedule *s, const xl_op *op, uint32_t unit, const xl_group *g)
{
    const xl_units *x = s->x;
    for (uint32_t k = 0; k < op->nin; k++) {
        xl_view v = { .base = op->in[k] };
        if (g)
            xl_operand_view(x->p, op, k, &v);
        if (v.base.id < x->nval && x->of[v.base.id] != XL_NO_UNIT)
            wait_for(s, unit, x->of[v.base.id]);
    }
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            wait_for_operands(s, op->region[k]->op[i], unit, NULL);
}

static bool effect(const xl_op *op)
{
    if ((xl_ops[op->code].flags & (XL_OP_EFFECT | XL_OP_COLLECTIVE)) || op->code == XL_OP_CUSTOM_CALL)
        return true;
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            if (op->region[k]->op[i]->code != XL_OP_RETURN && effect(op->region[k]->op[i]))
                return true;
    return false;
}

static void prepare(schedule *s)
{
    xl_units *x = s->x;
    xl_planner *p = x->p;
    uint32_t last = XL_NO_UNIT;
    for (uint32_t u = 0; u < x->n; u++)
        for (uint32_t i = x->u[u].first; i < x->u[u].first + x->u[u].n; i++) {
            const xl_op *op = x->r->op[i];
            wait_for_operands(s, op, u, x->u[u].g);
            if (effect(op)) {
                if (last != XL_NO_UNIT)
                    wait_for(s, u, last);
                last = u;
            }
            for (uint32_t k = 0; k < op->nout; k++)
                if (op->out[k].id < x->nval && (x->u[u].g ? p->need[op->out[k].id] : !xl_op_virtual(p, op)) &&
                    !x->returned[op->out[k].id] && op->code != XL_OP_RESHAPE)
                    s->takes[u] += xl_units_bytes(x, op->out[k]);
        }
    for (uint32_t u = 0; u + 1 < x->n; u++)
        wait_for(s, x->n - 1, u);                          /* the return */
    for (uint32_t v = 0; v < x->nval; v++)
        for (uint32_t at = x->head[v]; at; at = x->rd[at - 1].next) {
            uint32_t u = x->rd[at - 1].unit;
            s->left[v]++;
            XL_PUSH(p->a, s->read, s->nread, s->capread, ((__typeof__(*s->read)){ { v }, s->reads[u] }));
            s->reads[u] = s->nread;
        }
    const xl_op *end = xl_region_end(x->r);
    for (uint32_t i = 0; i < end->nin; i++)
        if (p->plan->out_donor[i] >= 0)
            s->donor[xl_units_memory(x, end->in[i]).id] = 1 + (uint32_t)p->plan->out_donor[i];
}

/* Does the unit give back more than it takes, and disturb nobody? What makes nothing may run at any time. */
static bool worth(const schedule *s, uint32_t u)
{
    const xl_units *x = s->x;
    size_t gives = 0;
    if (!x->u[u].g && xl_op_virtual(x->p, x->r->op[x->u[u].first]))
        return true;
    for (uint32_t at = s->reads[u]; at; at = s->read[at - 1].next) {
        xl_value v = s->read[at - 1].v;
        if (x->of[v.id] != XL_NO_UNIT && s->left[v.id] == 1 && !x->returned[v.id])
            gives += xl_units_bytes(x, v);
    }
    if (gives <= s->takes[u])
        return false;
    for (uint32_t i = x->u[u].first; i < x->u[u].first + x->u[u].n; i++)
        for (uint32_t k = 0; k < x->r->op[i]->nout; k++) {
            xl_value v = x->r->op[i]->out[k];
            uint32_t donor = v.id < x->nval ? s->donor[v.id] : 0;
            if (!donor)
                continue;
            xl_value arg = x->r->arg[donor - 1];
            uint32_t mine = 0;
            for (uint32_t at = s->reads[u]; at; at = s->read[at - 1].next)
                mine += s->read[at - 1].v.id == arg.id;
            if (s->left[arg.id] > mine)
                return false;
        }
    return true;
}

static void look_at(schedule *s, uint32_t u)
{
    if (s->ready[u] && !s->done[u] && !s->early[u] && worth(s, u)) {
        s->early[u] = true;
        xl_heap_push(&s->now, u);
    }
}

/* Others that read v and may now be the last to. */
static void look_at_readers(schedule *s, xl_value v)
{
    for (uint32_t at = s->x->head[v.id]; at; at = s->x->rd[at - 1].next)
        look_at(s, s->x->rd[at - 1].unit);
}

static void run(schedule *s, uint32_t u)
{
    s->done[u] = true;
    for (uint32_t at = s->edges[u]; at; at = s->e[at - 1].next) {
        uint32_t t = s->e[at - 1].to;
        if (--s->waits[t] == 0) {
            s->ready[t] = true;
            xl_heap_push(&s->later, t);
            look_at(s, t);
        }
    }
    for (uint32_t at = s->reads[u]; at; at = s->read[at - 1].next) {
        xl_value v = s->read[at - 1].v;
        if (--s->left[v.id] == 1)
            look_at_readers(s, v);
    }
}

void xl_schedule(xl_units *x)
{
    xl_planner *p = x->p;
    schedule s = { .x = x };
    uint32_t n = x->n, k = 0;
    s.waits = xl_new(p->a, uint32_t, n);
    s.edges = xl_new(p->a, uint32_t, n);
    s.reads = xl_new(p->a, uint32_t, n);
    s.takes = xl_new(p->a, size_t, n);
    s.ready = xl_new(p->a, bool, n);
    s.done = xl_new(p->a, bool, n);
    s.early = xl_new(p->a, bool, n);
    s.left = xl_new(p->a, uint32_t, x->nval);
    s.donor = xl_new(p->a, uint32_t, x->nval);
    s.later.key = xl_new(p->a, uint32_t, n);
    s.now.key = xl_new(p->a, uint32_t, n);
    prepare(&s);
    xl_op **op = xl_new(&p->f->m->arena, xl_op *, x->r->nop);
    for (uint32_t u = 0; u < n; u++)
        if (!s.waits[u]) {
            s.ready[u] = true;
            xl_heap_push(&s.later, u);
            look_at(&s, u);
        }
    while (s.now.n || s.later.n) {
        uint32_t u = xl_heap_pop(s.now.n ? &s.now : &s.later);
        if (s.done[u])
            continue;
        memcpy(op + k, x->r->op + x->u[u].first, x->u[u].n * sizeof *op);
        k += x->u[u].n;
        run(&s, u);
    }
    if (k == x->r->nop) /* else they wait for each other, which cannot be: the old order is right */
        memcpy(x->r->op, op, k * sizeof *op);
}
