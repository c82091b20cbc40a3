/* Gradients of branches and loops.
 *
 * A branch: an op of the same kind on the same predicate. Each of its regions computes its side again, walks it back,
 * and returns the cotangents of everything active that any side uses.
 *
 * A loop of known length: the forward loop gets one more carried buffer for each value that the backward pass needs, a
 * row a turn. A second loop runs from the last turn to the first: it reads its rows, computes the body again, walks it
 * back, and carries the cotangents of what goes round and the sums for what the body uses from outside. What the
 * backward pass needs is known only after its body is written and pruned, so that is done first, and the forward loop
 * is widened after. */
#include "pass/grad.h"
#include "pass/pass.h"

static xl_arena *mem(const xl_grad_ctx *g) { return &g->e.f->m->arena; }

/* ---- branches
 * --------------------------------------------------------------------------------------------------------- */
static xl_error *branches(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    xl_error *err = NULL;
    xl_func *f = g->e.f;
    uint32_t n, ncap = 0;
    xl_value *cap = xl_cot_captures(f, op, &n);
    const xl_type **types = xl_new(mem(g), const xl_type *, n);
    for (uint32_t i = 0; i < n; i++)
        if (xl_cot_active(g, cap[i])) {
            types[ncap] = xl_value_type(f, cap[i]);
            cap[ncap++] = cap[i];
        }
    if (!ncap)
        return NULL;
    xl_op *b = xl_op_new(f, g->e.r, (xl_opcode)op->code, op->in, 1, types, ncap, op->nregion, g->e.loc);
    for (uint32_t k = 0; k < op->nregion; k++) {
        uint32_t nmap;
        xl_region *r = b->region[k];
        xl_value *map = xl_cot_map(f, &nmap), *ret = xl_new(mem(g), xl_value, op->nout),
                 *out = xl_new(mem(g), xl_value, ncap);
        xl_region_clone_into(f, r, f, op->region[k], map, ret, op->nout);
        uint32_t nops = r->nop;
        xl_op **ops = xl_new(mem(g), xl_op *, nops);
        if (nops)                          /* a branch may only hand its arguments on */
            memcpy(ops, r->op, nops * sizeof *ops);
        xl_grad_ctx in = xl_cot_inner(g, r);
        xl_cot_mark(&in, ops, nops);
        for (uint32_t i = 0; i < op->nout; i++)
            if (xl_has(ct[i]))
                xl_cot_add(&in, ret[i], ct[i]);
        XL_DO(xl_cot_sweep(&in, ops, nops));
        for (uint32_t i = 0; i < ncap; i++) {
            out[i] = xl_cot_get(&in, cap[i]);
            if (!xl_has(out[i]))
                out[i] = xl_em_like(&in.e, cap[i], 0);
        }
        xl_em_return(&in.e, out, ncap);
        xl_cot_prune(f, r);
    }
    for (uint32_t i = 0; i < ncap; i++)
        xl_cot_add(g, cap[i], b->out[i]);
out:
    return err;
}

xl_error *xl_grad_if(xl_grad_ctx *g, xl_op *op, const xl_value *ct) { return branches(g, op, ct); }
xl_error *xl_grad_case(xl_grad_ctx *g, xl_op *op, const xl_value *ct) { return branches(g, op, ct); }

xl_error *xl_grad_composite(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    (void)g, (void)ct;
    xl_str to = op->code == XL_OP_CALL ? xl_op_str(op, XL_SLOT(CALL, callee))
                                       : xl_op_str(op, XL_SLOT(COMPOSITE, decomposition));
    return XL_ERR(PRECONDITION, "a call of @%.*s; calls and composites are inlined before gradients are taken",
                  XL_FMT(to));
}

/* ---- loops
 * ------------------------------------------------------------------------------------------------------------ */
typedef struct { uint32_t slot; int64_t start, step, count; } trips; /* turn t has the counter at start + t * step */

static bool constant_int(const xl_func *f, xl_value v, int64_t *out)
{
    const xl_op *d = xl_value_op(f, v);
    while (d && (d->code == XL_OP_CONVERT || d->code == XL_OP_RESHAPE || d->code == XL_OP_BROADCAST_IN_DIM))
        d = xl_value_op(f, d->in[0]);
    if (!d || d->code != XL_OP_CONSTANT)
        return false;
    const xl_attr *a = XL_ATTR(d, CONSTANT, value);
    xl_dclass c = xl_dtype_class(a->type->dtype);
    if (c != XL_CLASS_INT && c != XL_CLASS_UINT)
        return false;
    *out = xl_dense_int(a, 0);
    return true;
}

/* Follows a value through carried slots that never change to what the loop began with. */
static bool invariant_int(const xl_func *f, const xl_op *op, const xl_region *cond, xl_value v, int64_t *out)
{
    for (uint32_t i = 0; i < cond->narg; i++)
        if (cond->arg[i].id == v.id) {
            if (xl_region_end(op->region[1])->in[i].id != op->region[1]->arg[i].id)
                return false;
            return constant_int(f, op->in[i], out);
        }
    return constant_int(f, v, out);
}

static bool find_trips(const xl_func *f, const xl_op *op, trips *out)
{
    const xl_region *cond = op->region[0], *body = op->region[1];
    const xl_op *cmp = xl_value_op(f, xl_region_end(cond)->in[0]);
    if (!cmp || cmp->code != XL_OP_COMPARE)
        return false;
    int64_t dir = xl_op_int(cmp, XL_SLOT(COMPARE, comparison_direction)), limit;
    uint32_t side = 0, slot = cond->narg;
    for (uint32_t s = 0; s < 2 && slot == cond->narg; s++)
        for (uint32_t i = 0; i < cond->narg; i++)
            if (cmp->in[s].id == cond->arg[i].id && xl_region_end(body)->in[i].id != body->arg[i].id)
                slot = i, side = s;
    if (slot == cond->narg || !invariant_int(f, op, cond, cmp->in[1 - side], &limit))
        return false;
    if (side) {                                          /* limit > i is i < limit */
        static const int64_t flip[] = { XL_COMPARISON_DIRECTION_EQ, XL_COMPARISON_DIRECTION_NE,
                                        XL_COMPARISON_DIRECTION_LE, XL_COMPARISON_DIRECTION_LT,
                                        XL_COMPARISON_DIRECTION_GE, XL_COMPARISON_DIRECTION_GT };
        dir = flip[dir];
    }
    const xl_op *inc = xl_value_op(f, xl_region_end(body)->in[slot]);
    int64_t step, start;
    if (!inc || (inc->code != XL_OP_ADD && inc->code != XL_OP_SUBTRACT))
        return false;
    if (inc->in[0].id == body->arg[slot].id && constant_int(f, inc->in[1], &step))
        ;
    else if (inc->code == XL_OP_ADD && inc->in[1].id == body->arg[slot].id && constant_int(f, inc->in[0], &step))
        ;
    else
        return false;
    if (inc->code == XL_OP_SUBTRACT)
        step = -step;
    if (!constant_int(f, op->in[slot], &start) || step == 0)
        return false;
    int64_t span;
    switch (dir) {
    case XL_COMPARISON_DIRECTION_LT: span = limit - start; break;
    case XL_COMPARISON_DIRECTION_LE: span = limit - start + 1; break;
    case XL_COMPARISON_DIRECTION_GT: span = start - limit; break;
    case XL_COMPARISON_DIRECTION_GE: span = start - limit + 1; break;
    case XL_COMPARISON_DIRECTION_NE:
        span = step > 0 ? limit - start : start - limit;
        if (span % step)
            return false;
        break;
    default: return false;
    }
    bool up = dir == XL_COMPARISON_DIRECTION_LT || dir == XL_COMPARISON_DIRECTION_LE;
    bool down = dir == XL_COMPARISON_DIRECTION_GT || dir == XL_COMPARISON_DIRECTION_GE;
    if ((up && step < 0) || (down && step > 0))
        return false;
    int64_t by = step < 0 ? -step : step;
    *out = (trips){ slot, start, step, span > 0 ? (span + by - 1) / by : 0 };
    return true;
}

bool xl_while_turns(const xl_func *f, const xl_op *op, int64_t *turns)
{
    trips t;
    if (!find_trips(f, op, &t))
        return false;
    *turns = t.count;
    return true;
}

static xl_op *pop_return(xl_region *r) { return r->op[--r->nop]; }

/* One more value carried by the loop: gives its argument in the body; `next` is what the body returns for it. */
static void extend(xl_value **list, uint32_t *n, xl_arena *a, xl_value v)
{
    xl_value *grown = xl_new(a, xl_value, *n + 1);
    memcpy(grown, *list, *n * sizeof *grown);
    grown[(*n)++] = v;
    *list = grown;
}

static xl_value add_result(xl_func *f, xl_op *op, const xl_type *t)
{
    xl_val v = { .type = t, .def = op, .index = op->nout };
    XL_PUSH(&f->m->arena, f->val, f->nval, f->capval, v);
    xl_value id = { f->nval - 1 };
    uint32_t n = op->nout;
    extend(&op->out, &n, &f->m->arena, id);
    op->nout = n;
    return id;
}

/* The row of turn t for a counter value i. */
static xl_value turn(xl_emit *e, const trips *tr, xl_value i)
{
    if (tr->start)
        i = xl_em_binary(e, XL_OP_SUBTRACT, i, xl_em_like(e, i, (double)tr->start));
    if (tr->step != 1)
        i = xl_em_binary(e, XL_OP_DIVIDE, i, xl_em_like(e, i, (double)tr->step));
    return i;
}

static bool worth_keeping(const xl_op *op, xl_grad_keep keep)
{
    if (keep != XL_KEEP_DOTS)
        return false;
    return op->code == XL_OP_DOT_GENERAL || op->code == XL_OP_DOT || op->code == XL_OP_CONVOLUTION ||
           op->code == XL_OP_CUSTOM_CALL;
}

/* A value of the forward body that the backward pass reads from its row: `slice` is the op that reads, whose first
 * operand is filled in once the forward loop carries the rows. */
typedef struct { xl_value primal, seen; xl_op *slice; xl_type const *type; } kept;

static xl_value read_row(xl_emit *e, xl_value primal, int64_t count, xl_value t, kept *out)
{
    xl_func *f = e->f;
    const xl_type *ty = xl_value_type(f, primal);
    int64_t *d = xl_new(&f->m->arena, int64_t, ty->rank + 1), *one = xl_new(&f->m->arena, int64_t, ty->rank + 1);
    memcpy(d + 1, ty->dims, ty->rank * sizeof *d);
    memcpy(one + 1, ty->dims, ty->rank * sizeof *d);
    d[0] = count;
    one[0] = 1;
    xl_value *start = xl_new(&f->m->arena, xl_value, ty->rank + 2), zero = ty->rank ? xl_em_like(e, t, 0) : t;
    start[0] = primal;                                   /* stands in until there are rows */
    start[1] = t;
    for (uint32_t i = 0; i < ty->rank; i++)
        start[2 + i] = zero;
    const xl_type *row = xl_type_tensor(f->m, ty->dtype, (xl_dims){ one, ty->rank + 1 });
    xl_op *s = xl_em_op(e, XL_OP_DYNAMIC_SLICE, start, ty->rank + 2, row);
    xl_op_set(s, XL_SLOT(DYNAMIC_SLICE, slice_sizes), xl_attr_dims(f->m, (xl_dims){ one, ty->rank + 1 }));
    xl_value v = xl_em_reshape(e, s->out[0], (xl_dims){ ty->dims, ty->rank });
    *out = (kept){ primal, v, s, xl_type_tensor(f->m, ty->dtype, (xl_dims){ d, ty->rank + 1 }) };
    return v;
}

static bool in_region(const xl_region *r, const xl_op *op)
{
    for (uint32_t i = 0; i < r->nop; i++)
        if (r->op[i] == op)
            return true;
    return false;
}

static bool index_of(const xl_value *v, uint32_t n, xl_value x, uint32_t *at)
{
    for (uint32_t i = 0; i < n; i++)
        if (v[i].id == x.id) {
            *at = i;
            return true;
        }
    return false;
}

xl_error *xl_grad_while(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    xl_error *err = NULL;
    xl_func *f = g->e.f;
    xl_arena *a = mem(g);
    xl_region *body = op->region[1];
    xl_op *ret = xl_region_end(body);
    trips tr;
    if (!find_trips(f, op, &tr))
        return XL_ERR(UNIMPLEMENTED,
                      "a loop whose number of turns is not a constant; count up to a constant, as a scan does");
    uint32_t n = op->nin, at;

    /* What goes round and changes; what the body uses as it is: the same outer value may come both ways. */
    xl_value *caps = NULL;
    uint32_t ncap = 0, capcap = 0, nround = 0, nall;
    uint32_t *round = xl_new(a, uint32_t, n);
    xl_value *outer = xl_cot_captures(f, op, &nall);
    for (uint32_t i = 0; i < nall; i++)
        if (xl_cot_active(g, outer[i]))
            XL_PUSH(a, caps, ncap, capcap, outer[i]);
    bool *same = xl_new(a, bool, n);
    for (uint32_t i = 0; i < n; i++) {
        same[i] = ret->in[i].id == body->arg[i].id;
        if (same[i]) {
            xl_cot_add(g, op->in[i], ct[i]);
            if (xl_cot_active(g, op->in[i]) && !index_of(caps, ncap, op->in[i], &at))
                XL_PUSH(a, caps, ncap, capcap, op->in[i]);
        } else if (xl_cot_active(g, body->arg[i]) || xl_cot_active(g, ret->in[i]))
            round[nround++] = i;
    }
    if (!nround && !ncap)
        return NULL;

    /* The backward loop: counter, cotangents that go round, sums. */
    uint32_t ncarry = 1 + nround + ncap;
    const xl_type *it = xl_value_type(f, op->in[tr.slot]);
    xl_value *init = xl_new(a, xl_value, ncarry), *next = xl_new(a, xl_value, ncarry);
    const xl_type **types = xl_new(a, const xl_type *, ncarry);
    init[0] = xl_em_splat(&g->e, it, 0);
    for (uint32_t i = 0; i < nround; i++)
        init[1 + i] = xl_has(ct[round[i]]) ? ct[round[i]] : xl_em_like(&g->e, op->out[round[i]], 0);
    for (uint32_t i = 0; i < ncap; i++)
        init[1 + nround + i] = xl_em_like(&g->e, caps[i], 0);
    for (uint32_t i = 0; i < ncarry; i++)
        types[i] = xl_value_type(f, init[i]);
    xl_op *w = xl_op_new(f, NULL, XL_OP_WHILE, init, ncarry, types, ncarry, 2, g->e.loc);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < ncarry; i++)
            xl_region_add_arg(f, w->region[k], types[i], g->e.loc);
    xl_emit c = xl_em_in(&g->e, w->region[0]);
    xl_value more =
        xl_em_compare(&c, XL_COMPARISON_DIRECTION_LT, w->region[0]->arg[0], xl_em_splat(&c, it, (double)tr.count));
    xl_em_return(&c, &more, 1);

    xl_region *wb = w->region[1];
    xl_emit e = xl_em_in(&g->e, wb);
    xl_value j = wb->arg[0], t = xl_em_binary(&e, XL_OP_SUBTRACT, xl_em_splat(&e, it, (double)(tr.count - 1)), j),
             i0 = t;
    if (tr.step != 1)
        i0 = xl_em_binary(&e, XL_OP_MULTIPLY, i0, xl_em_splat(&e, it, (double)tr.step));
    if (tr.start)
        i0 = xl_em_binary(&e, XL_OP_ADD, i0, xl_em_splat(&e, it, (double)tr.start));

    /* The body again, its arguments read from rows (or known), the results worth keeping too. */
    const xl_grad_keep keep = op->extra && xl_dict_get(op->extra, XL_STR(XL_GRAD_LEAN)) ? XL_KEEP_CARRY : g->opts.keep;
    uint32_t nmap, nkept = 0, capkept = 0;
    xl_value *map = xl_cot_map(f, &nmap);
    kept *rows = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (i == tr.slot)
            map[body->arg[i].id] = i0;
        else if (same[i])
            map[body->arg[i].id] = op->in[i];
        else {
            kept r;
            map[body->arg[i].id] = read_row(&e, body->arg[i], tr.count, t, &r);
            XL_PUSH(a, rows, nkept, capkept, r);
        }
    }
    uint32_t nops = 0, from = body->nop - 1;
    xl_op **ops = xl_new(a, xl_op *, from);
    xl_grad_ctx in = xl_cot_inner(g, wb);
    for (uint32_t i = 0; i < n; i++)                     /* the copies of the arguments are as active as they */
        if (xl_cot_active(g, body->arg[i])) {
            xl_value m = map[body->arg[i].id];
            xl_cot_set(&in, m, XL_NO_VALUE);
            in.active[m.id] = true;
        }
    for (uint32_t i = 0; i < from; i++) {
        xl_op *b = body->op[i], *copy = xl_op_clone(f, wb, f, b, map);
        ops[nops++] = copy;
        if (!worth_keeping(b, keep))
            continue;
        kept r; /* users of the copy will read the row: the copy is then pruned */
        xl_value v = read_row(&e, b->out[0], tr.count, t, &r);
        map[b->out[0].id] = v;
        XL_PUSH(a, rows, nkept, capkept, r);
        rows[nkept - 1].seen = v;
        /* its cotangent must reach the copy: a relay from the row's value, swept before it */
        copy->mark = nkept;
    }
    xl_value *end = xl_new(a, xl_value, n);
    for (uint32_t i = 0; i < n; i++)
        end[i] = map[ret->in[i].id];
    /* Activity in order: a row stands for its copy. */
    for (uint32_t i = 0; i < nops; i++) {
        xl_cot_mark(&in, &ops[i], 1);
        if (worth_keeping(ops[i], keep) && ops[i]->mark) {
            xl_value seen = rows[ops[i]->mark - 1].seen;
            xl_cot_set(&in, seen, XL_NO_VALUE);
            in.active[seen.id] = xl_cot_active(&in, ops[i]->out[0]);
        }
    }
    for (uint32_t i = 0; i < ncap; i++)
        xl_cot_set(&in, caps[i], wb->arg[1 + nround + i]);
    for (uint32_t i = 0; i < nround; i++)
        xl_cot_add(&in, end[round[i]], wb->arg[1 + i]);
    for (uint32_t i = nops; i-- > 0;) {
        if (worth_keeping(ops[i], keep) && ops[i]->mark) {
            xl_value seen = rows[ops[i]->mark - 1].seen;
            if (xl_has(xl_cot_get(&in, seen)))
                xl_cot_set(&in, ops[i]->out[0], xl_cot_get(&in, seen));
            ops[i]->mark = 0;
        }
        XL_DO(xl_cot_sweep(&in, &ops[i], 1));
    }
    next[0] = xl_em_binary(&in.e, XL_OP_ADD, j, xl_em_splat(&in.e, it, 1));
    for (uint32_t i = 0; i < nround; i++) {
        next[1 + i] = xl_cot_get(&in, map[body->arg[round[i]].id]);
        if (!xl_has(next[1 + i]))
            next[1 + i] = xl_em_splat(&in.e, types[1 + i], 0);
    }
    for (uint32_t i = 0; i < ncap; i++)
        next[1 + nround + i] = xl_cot_get(&in, caps[i]);
    xl_em_return(&in.e, next, ncarry);
    xl_cot_prune(f, wb);

    /* Now it is known which rows are read: let the forward loop carry those. */
    xl_op *fret = pop_return(body);
    xl_emit fe = xl_em_in(&g->e, body);
    xl_value row_at = XL_NO_VALUE;
    for (uint32_t i = 0; i < nkept; i++) {
        if (!in_region(wb, rows[i].slice))
            continue;
        if (!xl_has(row_at))
            row_at = turn(&fe, &tr, body->arg[tr.slot]);
        /* the buffer must exist before the loop: it is made where the loop stands, just before it */
        xl_region *home = op->parent;
        uint32_t pos = 0;
        while (home->op[pos] != op)
            pos++;
        xl_emit oe = xl_em_in(&g->e, home);
        xl_value zero = xl_em_splat(&oe, rows[i].type, 0);
        xl_op *zop = home->op[--home->nop];
        xl_region_append(f, home, zop);                  /* room for one more, then shift */
        memmove(home->op + pos + 1, home->op + pos, (home->nop - 1 - pos) * sizeof *home->op);
        home->op[pos] = zop;
        uint32_t nin = op->nin;
        extend(&op->in, &nin, a, zero);
        op->nin = nin;
        xl_region_add_arg(f, op->region[0], rows[i].type, g->e.loc);
        xl_value arg = xl_region_add_arg(f, body, rows[i].type, g->e.loc);
        uint32_t nret = fret->nin;
        extend(&fret->in, &nret, a, xl_em_put_row(&fe, arg, rows[i].primal, row_at));
        fret->nin = nret;
        rows[i].slice->in[0] = add_result(f, op, rows[i].type);
    }
    xl_region_append(f, body, fret);

    xl_region_append(f, g->e.r, w);
    for (uint32_t i = 0; i < nround; i++)
        xl_cot_add(g, op->in[round[i]], w->out[1 + i]);
    for (uint32_t i = 0; i < ncap; i++)
        xl_cot_add(g, caps[i], w->out[1 + nround + i]);
out:
    return err;
}
