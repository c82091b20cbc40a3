/* Propagation. Each op's tensors are seen through its factors; what is known about a factor from one tensor is applied
 * to the others where allowed.
 * Order: first ops that only move or map elements, to a fixed point, then all ops; each sweep goes forwards and then
 * backwards.
 * Conflicts: if two tensors split a factor differently, only their common prefix is used; if a tensor could use an atom
 * in two dimensions, the earlier factor of the op's rule gets it (batch, then rows, then columns, then sums);
 * dimensions that an annotation closed stay as they are. */
#include "pass/shard.h"

enum { SPREAD = 64 << 10 }; /* bytes of a sum on each device from which it is worth a second meeting */

static bool extend(const xl_shard_ctx *c, uint32_t v, const xl_type *t, uint32_t d, const xl_axes *to)
{
    xl_axes *spec = c->spec[v];
    xl_axes next = spec[d];
    if ((c->closed[v] >> d & 1) || to->n <= spec[d].n || !xl_axes_prefix(&spec[d], to))
        return false;
    for (uint32_t i = spec[d].n; i < to->n; i++) {
        next.atom[next.n] = to->atom[i];
        next.n++;
        if (xl_spec_uses(spec, t->rank, to->atom[i]) || t->dims[d] % xl_axes_parts(c, &next)) {
            next.n--;
            break;
        }
    }
    if (next.n == spec[d].n)
        return false;
    spec[d] = next;
    return true;
}

static xl_value tensor_of(const xl_op *op, uint32_t i) { return i < op->nin ? op->in[i] : op->out[i - op->nin]; }

static bool op_step(xl_shard_ctx *c, const xl_op *op, const xl_rule *r)
{
    xl_axes have[XL_SHARD_FACTORS], all[XL_SHARD_FACTORS], want[32];
    bool changed = false;
    for (uint32_t i = 0; i < r->nfactor; i++)
        all[i].n = 0;
    bool fixed[XL_SHARD_FACTORS] = { false };              /* two tensors disagree: no longer than this */
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        xl_value v = tensor_of(op, i);
        const xl_type *t = xl_value_type(c->f, v);
        xl_shard_project(c, r, i, c->spec[v.id], t->rank, have);
        for (uint32_t k = 0; k < r->nfactor; k++) {
            if (!have[k].n)
                continue;
            if (xl_axes_prefix(&all[k], &have[k])) {
                if (!fixed[k])
                    all[k] = have[k];
            } else if (!xl_axes_prefix(&have[k], &all[k])) {
                uint32_t n = 0;
                while (n < all[k].n && n < have[k].n && all[k].atom[n] == have[k].atom[n])
                    n++;
                all[k].n = (uint8_t)n;
                fixed[k] = true;
            }
        }
    }
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        xl_value v = tensor_of(op, i);
        const xl_type *t = xl_value_type(c->f, v);
        xl_shard_unproject(c, r, i, all, t->rank, want);
        for (uint32_t d = 0; d < t->rank; d++)
            changed |= extend(c, v.id, t, d, &want[d]);
    }
    return changed;
}

static bool edges(xl_shard_ctx *c)
{
    bool changed = false;
    for (uint32_t i = 0; i < c->nedge; i++) {
        const xl_shard_edge *e = &c->edge[i];
        if (!c->spec[e->a] || !c->spec[e->b])
            continue;
        const xl_type *tb = e->b < c->nval ? c->f->val[e->b].type : c->f->val[e->a].type,
                      *ta = e->a < c->nval ? c->f->val[e->a].type : tb;
        for (uint32_t d = 0; d < tb->rank; d++) {
            xl_axes in = { 0 }, out = { 0 };
            uint32_t skip = e->skip ? e->skip[d].n : 0;
            for (uint32_t k = skip;
                 k < c->spec[e->a][d].n && !memchr(e->manual.atom, c->spec[e->a][d].atom[k], e->manual.n); k++)
                in.atom[in.n++] = c->spec[e->a][d].atom[k];
            if (!e->skip || xl_axes_prefix(&e->skip[d], &c->spec[e->a][d]))
                changed |= extend(c, e->b, tb, d, &in);
            if (e->skip)
                out = e->skip[d];
            for (uint32_t k = 0; k < c->spec[e->b][d].n && out.n < XL_AXES_MAX; k++)
                out.atom[out.n++] = c->spec[e->b][d].atom[k];
            changed |= extend(c, e->a, ta, d, &out);
        }
    }
    return changed;
}

typedef struct { const xl_op *op; xl_rule *rule; } item;
typedef struct { item *p; uint32_t n, cap; } items;

static void collect(xl_shard_ctx *c, const xl_region *r, items *list)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        if (op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE || op->code == XL_OP_SDY_MANUAL) {
            for (uint32_t k = 0; k < op->nregion; k++)
                collect(c, op->region[k], list);
            continue;
        }
        xl_rule big;
        if (!op->nout || !xl_shard_rule(c->f, op, c->a, &big) || !big.nfactor)
            continue;
        xl_rule *rule = xl_new(c->a, xl_rule, 1);
        *rule = big;
        item it = { op, rule };
        XL_PUSH(c->a, list->p, list->n, list->cap, it);
    }
}

static bool moves(const xl_op *op)
{
    switch (op->code) {
    case XL_OP_TRANSPOSE: case XL_OP_RESHAPE: case XL_OP_REVERSE: case XL_OP_BITCAST_CONVERT: return true;
    default: return (xl_ops[op->code].flags & XL_OP_ELEMWISE) != 0;
    }
}

static void settle(xl_shard_ctx *c, const items *list, int level)
{
    for (int round = 0; round < 64; round++) {
        bool changed = edges(c);
        for (uint32_t i = 0; i < list->n; i++)
            if (level || moves(list->p[i].op))
                changed |= op_step(c, list->p[i].op, list->p[i].rule);
        changed |= edges(c);
        for (uint32_t i = list->n; i-- > 0; )
            if (level || moves(list->p[i].op))
                changed |= op_step(c, list->p[i].op, list->p[i].rule);
        if (!changed)
            break;
    }
}

/* The atoms that an op sums over, as its operands are split. */
static xl_axes summed(const xl_shard_ctx *c, const xl_op *op, const xl_rule *r)
{
    xl_axes have[XL_SHARD_FACTORS], over = { 0 };
    for (uint32_t i = 0; i < op->nin; i++) {
        xl_shard_project(c, r, i, c->spec[op->in[i].id], xl_value_type(c->f, op->in[i])->rank, have);
        for (uint32_t k = 0; k < r->nfactor; k++)
            for (uint32_t a = 0; r->kind[k] == XL_FACTOR_SUM && a < have[k].n; a++)
                if (!memchr(over.atom, have[k].atom[a], over.n))
                    over.atom[over.n++] = have[k].atom[a];
    }
    return over;
}

/* A large result that is summed over some atoms and then lies whole on all of them is split over them instead, along
 * its first dimension that divides, and what follows from it with it. A reduce_scatter takes the place of the
 * all_reduce and an all_gather comes where the whole is needed: as many bytes cross, but what lies between the two
 * (norms, residuals, the loss) is no longer computed by every device for itself. */
static bool spread(xl_shard_ctx *c, const items *list)
{
    bool any = false;
    for (uint32_t i = 0; i < list->n; i++) {
        const xl_op *op = list->p[i].op;
        const xl_rule *r = list->p[i].rule;
        const xl_type *t = xl_value_type(c->f, op->out[0]);
        xl_axes *spec = c->spec[op->out[0].id];
        int64_t bytes;
        if (op->nout != 1 || !xl_type_bytes(xl_shard_local(c, t, spec), &bytes) || bytes < SPREAD)
            continue;
        xl_axes over = summed(c, op, r);
        bool free = over.n > 0, done = false;
        for (uint32_t k = 0; k < over.n; k++)
            free = free && !xl_spec_uses(spec, t->rank, over.atom[k]);
        for (uint32_t d = 0; free && !done && d < t->rank; d++) {
            xl_axes next = spec[d];
            for (uint32_t k = 0; k < over.n && next.n < XL_AXES_MAX; k++)
                next.atom[next.n++] = over.atom[k];
            bool passes = r->map[op->nin][d].n == 1 && r->kind[r->map[op->nin][d].f[0]] == XL_FACTOR_PASS;
            if (passes && t->dims[d] % xl_axes_parts(c, &next) == 0)
                done = extend(c, op->out[0].id, t, d, &next);
        }
        any |= done;
    }
    return any;
}

void xl_shard_propagate(xl_shard_ctx *c)
{
    items list = { 0 };
    collect(c, c->f->body, &list);
    settle(c, &list, 0);
    settle(c, &list, 1);
    for (uint32_t i = 0; i < c->f->body->narg; i++) {      /* nor what it takes */
        xl_value v = c->f->body->arg[i];
        for (uint32_t d = 0; c->spec[v.id] && c->closed[v.id] != UINT32_MAX && d < xl_shard_rank(c->f->val[v.id].type);
             d++)
            c->spec[v.id][d].n = (uint8_t)xl_shard_whole_axes(c, &c->spec[v.id][d]);
        c->closed[v.id] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < c->nresult; i++) {            /* what the program returns is not split further than this */
        const xl_op *end = xl_region_end(c->f->body);
        xl_axes *spec = c->spec[c->nval + i];
        for (uint32_t d = 0; spec && d < xl_shard_rank(xl_in_type(c->f, end, i)); d++)
            if (!(c->closed[c->nval + i] >> d & 1))
                spec[d].n = (uint8_t)xl_shard_whole_axes(c, &spec[d]);
        c->closed[c->nval + i] = UINT32_MAX;
    }
    if (spread(c, &list))
        settle(c, &list, 1);
}
