/* Gradients of branches and loops.
 *
 * A branch: an op of the same kind on the same predicate. Each of its regions recomputes its side, differentiates it,
 * and returns the cotangents of all active values that any side uses.
 *
 * A loop of known length: the forward loop gets an additional carried buffer for each value that the backward pass
 * needs, with one row per iteration. A second loop runs from the last iteration to the first: it reads its rows,
 * recomputes the body, differentiates it, and carries the cotangents of the carried values and the sums for values that
 * the body uses from outside. What the backward pass needs is only known once its body is written and pruned, so that
 * is done first; then the forward loop is widened. */
#include "pass/grad.h"
#include "pass/pass.h"
#include "pass/triton.h"

static xl_arena *mem(const xl_grad_ctx *g) { return &g->e.f->m->arena; }

/* ---- branches ---- */
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

/* ---- loops ---- */
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

static bool is_dot(const xl_op *op) { return op->code == XL_OP_DOT_GENERAL || op->code == XL_OP_DOT; }

/* A GPU keeps what was computed element by element for a product, too: the gradient of the other factor needs it whole,
 * and it is written to its row where it is computed. Elsewhere it is cheaper to compute it again. */
static bool factor(const xl_region *r, const xl_op *op)
{
    if (!(xl_ops[op->code].flags & XL_OP_ELEMWISE) || op->code == XL_OP_CONVERT || op->nout != 1)
        return false;
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; is_dot(r->op[i]) && k < r->op[i]->nin; k++)
            if (r->op[i]->in[k].id == op->out[0].id)
                return true;
    return false;
}

static bool worth_keeping(const xl_op *op, const xl_region *r, xl_grad_keep keep, bool gpu)
{
    return keep == XL_KEEP_DOTS &&
           (is_dot(op) || op->code == XL_OP_CONVOLUTION ||
            (op->code == XL_OP_CUSTOM_CALL && !xl_triton_again(op)) || (gpu && factor(r, op)));
}

/* A value of the forward body that the backward pass reads from its row: `slice` is the op that reads, whose first
 * operand is filled in once the forward loop carries the rows. */
typedef struct {
    xl_value primal, seen;
    xl_op *slice;
    const xl_type *type;
    uint32_t first, slot;                                  /* turn t writes row t + first; see round_by_row */
    xl_value arg;
} kept;

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
    *out = (kept){ .primal = primal,
                   .seen = v,
                   .slice = s,
                   .type = xl_type_tensor(f->m, ty->dtype, (xl_dims){ d, ty->rank + 1 }) };
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

/* Rows that the loop writes before anybody reads them. XLA fills a constant with zeros, which takes as long as writing
 * the rows; it has a call of its own for memory as it comes. */
static xl_value unwritten(const xl_grad_ctx *g, xl_emit *e, const xl_type *t)
{
    if (!g->opts.gpu)
        return xl_em_splat(e, t, 0);
    xl_op *op = xl_op_new(e->f, e->r, XL_OP_CUSTOM_CALL, NULL, 0, &t, 1, 0, e->loc);
    op->attr[XL_SLOT(CUSTOM_CALL, call_target_name)] = xl_attr_str(e->f->m, XL_STR("AllocateBuffer"));
    xl_op_normalize(e->f->m, op);
    return op->out[0];
}

/* The gradient of a loop, while it is made. */
typedef struct {
    xl_grad_ctx *g;
    xl_op *op, *ret;                                       /* the loop, and its body's return */
    xl_region *body;
    trips tr;
    uint32_t n;                                            /* values that the loop carries */
    bool *same;                                            /* per carried value: the body returns it unchanged */
    uint32_t *round, nround, *as;                          /* those that change and are active; as: see sweep_body */
    xl_value *caps;                                        /* active values that the body uses as they are */
    uint32_t ncap, capcap;
    bool *later;                                           /* per cap: see sum_later */
    xl_op *w;                                              /* the backward loop: counter, round, caps */
    const xl_type **types;
    uint32_t ncarry;
    xl_value t;                                            /* in its body: the turn of the forward loop */
    xl_grad_keep keep;
    xl_value *map;                                         /* forward body to its copy in the backward body */
    kept *rows;
    uint32_t nkept, capkept;
    xl_op **ops;                                           /* the copies */
    uint32_t nops;
} loop_grad;

/* What goes round and changes; what the body uses as it is: the same outer value may come both ways. */
static void split_carry(loop_grad *l, const xl_value *ct)
{
    xl_grad_ctx *g = l->g;
    xl_arena *a = mem(g);
    uint32_t nall, at;
    l->round = xl_new(a, uint32_t, l->n);
    l->same = xl_new(a, bool, l->n);
    xl_value *outer = xl_cot_captures(g->e.f, l->op, &nall);
    for (uint32_t i = 0; i < nall; i++)
        if (xl_cot_active(g, outer[i]))
            XL_PUSH(a, l->caps, l->ncap, l->capcap, outer[i]);
    for (uint32_t i = 0; i < l->n; i++) {
        l->same[i] = l->ret->in[i].id == l->body->arg[i].id;
        if (l->same[i]) {
            xl_cot_add(g, l->op->in[i], ct[i]);
            if (xl_cot_active(g, l->op->in[i]) && !index_of(l->caps, l->ncap, l->op->in[i], &at))
                XL_PUSH(a, l->caps, l->ncap, l->capcap, l->op->in[i]);
        } else if (xl_cot_active(g, l->body->arg[i]) || xl_cot_active(g, l->ret->in[i]))
            l->round[l->nround++] = i;
    }
}

/* The backward loop with its condition; its body is empty. */
static void backward_loop(loop_grad *l, const xl_value *ct)
{
    xl_grad_ctx *g = l->g;
    xl_func *f = g->e.f;
    uint32_t ncarry = l->ncarry = 1 + l->nround + l->ncap;
    l->later = xl_new(mem(g), bool, l->ncap + 1);
    const xl_type *it = xl_value_type(f, l->op->in[l->tr.slot]);
    xl_value *init = xl_new(mem(g), xl_value, ncarry);
    l->types = xl_new(mem(g), const xl_type *, ncarry);
    init[0] = xl_em_splat(&g->e, it, 0);
    for (uint32_t i = 0; i < l->nround; i++)
        init[1 + i] = xl_has(ct[l->round[i]]) ? ct[l->round[i]] : xl_em_like(&g->e, l->op->out[l->round[i]], 0);
    for (uint32_t i = 0; i < l->ncap; i++)
        init[1 + l->nround + i] = xl_em_like(&g->e, l->caps[i], 0);
    for (uint32_t i = 0; i < ncarry; i++)
        l->types[i] = xl_value_type(f, init[i]);
    l->w = xl_op_new(f, NULL, XL_OP_WHILE, init, ncarry, l->types, ncarry, 2, g->e.loc);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < ncarry; i++)
            xl_region_add_arg(f, l->w->region[k], l->types[i], g->e.loc);
    xl_emit c = xl_em_in(&g->e, l->w->region[0]);
    xl_value more = xl_em_compare(&c, XL_COMPARISON_DIRECTION_LT, l->w->region[0]->arg[0],
                                  xl_em_splat(&c, it, (double)l->tr.count));
    xl_em_return(&c, &more, 1);
}

/* The body again, its arguments read from rows (or known), the results worth keeping too. */
static xl_grad_ctx copy_body(loop_grad *l)
{
    xl_grad_ctx *g = l->g;
    xl_func *f = g->e.f;
    xl_arena *a = mem(g);
    xl_region *body = l->body, *wb = l->w->region[1];
    const trips *tr = &l->tr;
    const xl_type *it = l->types[0];
    xl_emit e = xl_em_in(&g->e, wb);
    xl_value i0 = l->t = xl_em_binary(&e, XL_OP_SUBTRACT, xl_em_splat(&e, it, (double)(tr->count - 1)), wb->arg[0]);
    if (tr->step != 1)
        i0 = xl_em_binary(&e, XL_OP_MULTIPLY, i0, xl_em_splat(&e, it, (double)tr->step));
    if (tr->start)
        i0 = xl_em_binary(&e, XL_OP_ADD, i0, xl_em_splat(&e, it, (double)tr->start));
    uint32_t nmap, from = body->nop - 1;
    l->map = xl_cot_map(f, &nmap);
    for (uint32_t i = 0; i < l->n; i++) {
        if (i == tr->slot)
            l->map[body->arg[i].id] = i0;
        else if (l->same[i])
            l->map[body->arg[i].id] = l->op->in[i];
        else {
            kept r;
            l->map[body->arg[i].id] = read_row(&e, body->arg[i], tr->count, l->t, &r);
            XL_PUSH(a, l->rows, l->nkept, l->capkept, r);
        }
    }
    l->ops = xl_new(a, xl_op *, from);
    xl_grad_ctx in = xl_cot_inner(g, wb);
    for (uint32_t i = 0; i < l->n; i++)                  /* the copies of the arguments are as active as they */
        if (xl_cot_active(g, body->arg[i])) {
            xl_value m = l->map[body->arg[i].id];
            xl_cot_set(&in, m, XL_NO_VALUE);
            in.active[m.id] = true;
        }
    for (uint32_t i = 0; i < from; i++) {
        xl_op *b = body->op[i], *copy = xl_op_clone(f, wb, f, b, l->map);
        l->ops[l->nops++] = copy;
        copy->mark = 0;
        if (!worth_keeping(b, body, l->keep, g->opts.gpu))
            continue;
        /* users of the copy will read the rows: the copy is then pruned. Cotangents of the rows must reach it: a relay
         * from each row's value, swept before it */
        copy->mark = l->nkept + 1;
        for (uint32_t o = 0; o < b->nout; o++) {
            kept r;
            l->map[b->out[o].id] = read_row(&e, b->out[o], tr->count, l->t, &r);
            XL_PUSH(a, l->rows, l->nkept, l->capkept, r);
        }
    }
    return in;
}

/* Everything in `op` that reads `from` reads `to`. */
static void read_instead(xl_op *op, xl_value from, xl_value to)
{
    for (uint32_t i = 0; i < op->nin; i++)
        if (op->in[i].id == from.id)
            op->in[i] = to;
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            read_instead(op->region[k]->op[i], from, to);
}

static uint32_t uses_in(const xl_region *r, xl_value v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin; k++)
            n += r->op[i]->in[k].id == v.id;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            n += uses_in(r->op[i]->region[k], v);
    }
    return n;
}

/* `next` is what the body makes of `sum`: is it the sum with something added to row t, and is nothing else read of it?
 * Then every turn has a row of its own, and the rows need neither zeros before the loop nor to be read: a product can
 * be written where it belongs. *added is what is added, *put the op that puts it there. */
static bool adds_row(const xl_func *f, const xl_region *r, xl_value sum, xl_value next, xl_value t, int64_t turns,
                     xl_op **put, xl_value *added)
{
    xl_op *to = xl_value_op(f, next);
    if (!to || to->code != XL_OP_DYNAMIC_UPDATE_SLICE || to->in[0].id != sum.id || to->in[2].id != t.id ||
        uses_in(r, sum) != 2 || uses_in(r, next))
        return false;
    const xl_op *add = xl_value_op(f, to->in[1]);
    const xl_type *all = xl_value_type(f, sum), *row = xl_value_type(f, to->in[1]);
    bool whole = all->dims[0] == turns && row->dims[0] == 1;
    for (uint32_t i = 1; i < all->rank; i++)             /* as long as the whole: it begins at 0 */
        whole &= row->dims[i] == all->dims[i];
    for (uint32_t k = 0; whole && add && add->code == XL_OP_ADD && k < 2; k++) {
        const xl_op *from = xl_value_op(f, add->in[k]);
        if (!from || from->code != XL_OP_DYNAMIC_SLICE || from->in[0].id != sum.id || from->in[1].id != t.id)
            continue;
        *put = to;
        *added = add->in[1 - k];
        return true;
    }
    return false;
}

static void retype(xl_func *f, xl_op *loop, uint32_t at, const xl_type *t)
{
    f->val[loop->out[at].id].type = t;
    for (int k = 0; k < 2; k++)
        f->val[loop->region[k]->arg[at].id].type = t;
}

/* A row that is the sum, over the first dimension, of what a kernel of ours can write to rows: those go round in its
 * place, and are summed after the loop, all at once. */
static bool sum_later(loop_grad *l, uint32_t at, xl_value row, xl_value *next)
{
    xl_func *f = l->g->e.f;
    const xl_region *wb = l->w->region[1];
    const xl_op *sum = xl_value_op(f, row);
    while (sum && sum->code == XL_OP_RESHAPE)
        sum = xl_value_op(f, sum->in[0]);
    if (!sum || sum->code != XL_OP_REDUCE || sum->nin != 2 || sum->region[0]->op[0]->code != XL_OP_ADD)
        return false;
    xl_dims over = xl_op_dims(sum, XL_SLOT(REDUCE, dimensions));
    xl_op *made = xl_value_op(f, sum->in[0]);
    if (over.n != 1 || over.p[0] || !made || !xl_triton_puts_rows(f, made, sum->in[0], l->t) ||
        uses_in(wb, sum->in[0]) != 1)
        return false;
    const xl_type *part = xl_value_type(f, sum->in[0]);
    int64_t *d = xl_new(mem(l->g), int64_t, part->rank + 1);
    memcpy(d + 1, part->dims, part->rank * sizeof *d);
    d[0] = l->tr.count;
    l->types[at] = xl_type_tensor(f->m, part->dtype, (xl_dims){ d, part->rank + 1 });
    retype(f, l->w, at, l->types[at]);
    *next = sum->in[0];
    xl_triton_put_row(f, made, *next, wb->arg[at], l->t);
    return true;
}

/* Sums of which each turn adds to its own row become rows that are written once. */
static void write_rows_once(loop_grad *l, xl_value *next)
{
    xl_region *wb = l->w->region[1];
    for (uint32_t i = 0; i < l->ncap; i++) {
        const uint32_t at = 1 + l->nround + i;
        xl_op *put;
        xl_value added;
        if (!adds_row(l->g->e.f, wb, wb->arg[at], next[at], l->t, l->tr.count, &put, &added))
            continue;
        put->in[1] = added;
        l->later[i] = sum_later(l, at, added, &next[at]);
        l->w->in[at] = unwritten(l->g, &l->g->e, l->types[at]);
    }
}

/* Cotangents through the copy, from its results to its arguments, and what the backward loop carries on. */
static xl_error *sweep_body(loop_grad *l, xl_grad_ctx *in)
{
    xl_error *err = NULL;
    xl_arena *a = mem(l->g);
    xl_region *wb = l->w->region[1];
    xl_value *end = xl_new(a, xl_value, l->n), *next = xl_new(a, xl_value, l->ncarry);
    for (uint32_t i = 0; i < l->n; i++)
        end[i] = l->map[l->ret->in[i].id];
    /* Activity in order: a row stands for its copy. */
    for (uint32_t i = 0; i < l->nops; i++) {
        xl_cot_mark(in, &l->ops[i], 1);
        if (l->ops[i]->mark) {
            for (uint32_t o = 0; o < l->ops[i]->nout; o++) {
                xl_value seen = l->rows[l->ops[i]->mark - 1 + o].seen;
                xl_cot_set(in, seen, XL_NO_VALUE);
                in->active[seen.id] = xl_cot_active(in, l->ops[i]->out[o]);
            }
        }
    }
    for (uint32_t i = 0; i < l->ncap; i++)
        xl_cot_set(in, l->caps[i], wb->arg[1 + l->nround + i]);
    for (uint32_t i = 0; i < l->nround; i++)
        xl_cot_add(in, end[l->round[i]], wb->arg[1 + i]);
    for (uint32_t i = l->nops; i-- > 0;) {
        xl_op *op = l->ops[i];
        uint32_t from_row = op->mark, at;
        for (uint32_t o = 0; from_row && o < op->nout; o++) {
            xl_value seen = l->rows[from_row - 1 + o].seen;
            if (xl_has(xl_cot_get(in, seen)))
                xl_cot_set(in, op->out[o], xl_cot_get(in, seen));
        }
        uint32_t made = wb->nop;
        op->mark = 0;
        XL_DO(xl_cot_sweep(in, &l->ops[i], 1));
        for (uint32_t k = made; from_row && k < wb->nop; k++) /* a rule that reads the op's results reads the rows */
            for (uint32_t x = 0; x < wb->op[k]->nin; x++)
                if (index_of(op->out, op->nout, wb->op[k]->in[x], &at))
                    wb->op[k]->in[x] = l->rows[from_row - 1 + at].seen;
    }
    next[0] = xl_em_binary(&in->e, XL_OP_ADD, wb->arg[0], xl_em_splat(&in->e, l->types[0], 1));
    for (uint32_t i = 0; i < l->nround; i++) {
        next[1 + i] = xl_cot_get(in, l->map[l->body->arg[l->round[i]].id]);
        if (!xl_has(next[1 + i]))
            next[1 + i] = xl_em_splat(&in->e, l->types[1 + i], 0);
    }
    for (uint32_t i = 0; i < l->ncap; i++)
        next[1 + l->nround + i] = xl_cot_get(in, l->caps[i]);
    if (l->g->opts.gpu)
        write_rows_once(l, next);
    l->as = xl_new(a, uint32_t, l->nround);
    for (uint32_t i = 0; i < l->nround; i++) {           /* cotangents that are always equal: one of them is read */
        l->as[i] = i;
        for (uint32_t k = 0; k < i && l->as[i] == i; k++)
            if (l->w->in[1 + k].id == l->w->in[1 + i].id && next[1 + k].id == next[1 + i].id)
                l->as[i] = k;
        for (uint32_t o = 0; l->as[i] != i && o < wb->nop; o++)
            read_instead(wb->op[o], wb->arg[1 + i], wb->arg[1 + l->as[i]]);
    }
    xl_em_return(&in->e, next, l->ncarry);
    xl_cot_prune(l->g->e.f, wb);
out:
    return err;
}

/* What was appended to r from place `from` on goes to place `to`, before what stands there. */
static void move_ops(xl_arena *a, xl_region *r, uint32_t from, uint32_t to)
{
    const uint32_t n = r->nop - from;
    xl_op **moved = xl_new(a, xl_op *, n + 1);
    memcpy(moved, r->op + from, n * sizeof *moved);
    memmove(r->op + to + n, r->op + to, (from - to) * sizeof *r->op);
    memcpy(r->op + to, moved, n * sizeof *moved);
}

static uint32_t place_of(const xl_region *r, const xl_op *op)
{
    uint32_t i = 0;
    while (r->op[i] != op)
        i++;
    return i;
}

/* The rows of r are one more buffer that goes round the forward loop: from before it, to the backward loop. */
static void carry_more(loop_grad *l, kept *r, xl_op *fret, const xl_value *first)
{
    xl_region *home = l->op->parent;
    const uint32_t end = home->nop;
    uint32_t nin = l->op->nin, nret = fret->nin;
    xl_emit oe = xl_em_in(&l->g->e, home);
    xl_value rows = unwritten(l->g, &oe, r->type);
    if (first)
        rows = xl_em_put_row(&oe, rows, *first, xl_em_scalar(&oe, XL_I32, 0));
    move_ops(mem(l->g), home, end, place_of(home, l->op));
    extend(&l->op->in, &nin, mem(l->g), rows);
    l->op->nin = nin;
    xl_region_add_arg(l->g->e.f, l->op->region[0], r->type, l->g->e.loc);
    r->arg = xl_region_add_arg(l->g->e.f, l->body, r->type, l->g->e.loc);
    r->slot = nret;
    extend(&fret->in, &nret, mem(l->g), r->arg);
    fret->nin = nret;
    r->slice->in[0] = add_result(l->g->e.f, l->op, r->type);
}

/* What the body returns as value u of those that go round, if it is kept and a kernel of ours writes its row, and what
 * came in as u is not kept itself. */
static kept *goes_by_row(loop_grad *l, const xl_op *fret, uint32_t u)
{
    const xl_func *f = l->g->e.f;
    kept *r = NULL;
    for (uint32_t i = 0; i < l->nkept; i++) {
        const xl_value v = l->rows[i].primal;
        if (!in_region(l->w->region[1], l->rows[i].slice))
            continue;
        if (v.id == l->body->arg[u].id)
            return NULL;
        if (v.id == fret->in[u].id && xl_value_op(f, v) && xl_triton_puts_rows(f, xl_value_op(f, v), v, l->t))
            r = &l->rows[i];
    }
    return r && !r->first ? r : NULL;
}

/* A value that goes round and is kept, too, would be copied from its row to where the next turn finds it. Instead there
 * is a row more: row 0 is what the loop begins with, turn t reads row t and writes row t + 1, and the last one is what
 * the loop ends with. The loop still returns it for those who come later; XLA removes what nobody reads. */
static void round_by_row(loop_grad *l, xl_emit *fe, xl_op **ops, uint32_t n, xl_op *fret, uint32_t u, xl_value row_at)
{
    xl_func *f = l->g->e.f;
    xl_region *wb = l->w->region[1], *home = l->op->parent;
    kept *r = home == l->g->e.r ? goes_by_row(l, fret, u) : NULL;
    if (!r)
        return;
    int64_t *d = xl_new(mem(l->g), int64_t, r->type->rank);
    memcpy(d, r->type->dims, r->type->rank * sizeof *d);
    d[0] += r->first = 1;
    r->type = xl_type_tensor(f->m, r->type->dtype, (xl_dims){ d, r->type->rank });
    carry_more(l, r, fret, &l->op->in[u]);
    xl_value before = xl_em_row(fe, r->arg, row_at);
    for (uint32_t i = 0; i < n; i++)
        read_instead(ops[i], l->body->arg[u], before);
    uint32_t end = wb->nop;
    xl_emit we = xl_em_in(&l->g->e, wb);
    r->slice->in[1] = xl_em_binary(&we, XL_OP_ADD, r->slice->in[1], xl_em_like(&we, r->slice->in[1], 1));
    move_ops(mem(l->g), wb, end, place_of(wb, r->slice));
    end = home->nop;
    xl_emit he = xl_em_in(&l->g->e, home);
    xl_value last = xl_em_row(&he, r->slice->in[0], xl_em_scalar(&he, XL_I32, (double)l->tr.count));
    const uint32_t after = place_of(home, l->op) + 1 + home->nop - end;
    move_ops(mem(l->g), home, end, after - (home->nop - end));
    for (uint32_t i = after; i < home->nop; i++)
        read_instead(home->op[i], l->op->out[u], last);
}

/* Row `row_at` of what the body has as r->arg is replaced. Gives the buffer after that. *in_place: the op itself writes
 * there, and its result is that buffer. */
static xl_value write_row(loop_grad *l, xl_emit *fe, const kept *r, xl_value row_at, xl_op *fret, bool *in_place)
{
    xl_func *f = l->g->e.f;
    xl_op *def = xl_value_op(f, r->primal);
    *in_place = l->g->opts.gpu && def && xl_triton_puts_rows(f, def, r->primal, row_at);
    if (*in_place)
        xl_triton_put_row(f, def, r->primal, r->arg, row_at);
    return fret->in[r->slot] = *in_place ? r->primal : xl_em_put_row(fe, r->arg, r->primal, row_at);
}

/* Now it is known which rows are read: let the forward loop carry those. On a GPU the rest of the body then reads a
 * product from its row: XLA lets a product write there, but computes it a second time for those who want it elsewhere.
 * Kernels of ours do the same. What cuDNN gives is copied there. */
static void carry_rows(loop_grad *l)
{
    xl_grad_ctx *g = l->g;
    xl_region *body = l->body;
    xl_op *fret = pop_return(body);
    const uint32_t n = body->nop;
    xl_op **ops = xl_new(mem(g), xl_op *, n + 1);
    if (n)
        memcpy(ops, body->op, n * sizeof *ops);
    body->nop = 0;
    xl_emit fe = xl_em_in(&g->e, body);
    xl_value row_at = XL_NO_VALUE;
    if (g->opts.gpu) {                                   /* known before the first op that writes there */
        row_at = turn(&fe, &l->tr, body->arg[l->tr.slot]);
        for (uint32_t u = 0; u < l->n; u++)
            round_by_row(l, &fe, ops, n, fret, u, row_at);
    }
    for (uint32_t k = 0; k <= n; k++) {                  /* first the rows of the arguments, then those of each op */
        const xl_op *def = k ? ops[k - 1] : NULL;
        if (k)
            xl_region_append(g->e.f, body, ops[k - 1]);
        for (uint32_t i = 0; i < l->nkept; i++) {
            kept *r = &l->rows[i];
            if (xl_value_op(g->e.f, r->primal) != def || !in_region(l->w->region[1], r->slice))
                continue;
            if (!xl_has(row_at))
                row_at = turn(&fe, &l->tr, body->arg[l->tr.slot]);
            if (!r->first)
                carry_more(l, r, fret, NULL);
            xl_value to = r->first ? xl_em_binary(&fe, XL_OP_ADD, row_at, xl_em_like(&fe, row_at, r->first)) : row_at;
            bool in_place;
            xl_value all = write_row(l, &fe, r, to, fret, &in_place);
            if (!in_place && (!g->opts.gpu || !def || def->code == XL_OP_CUSTOM_CALL))
                continue;
            xl_value seen = xl_em_row(&fe, all, to);
            for (uint32_t u = k; u < n; u++)
                read_instead(ops[u], r->primal, seen);
            for (uint32_t u = 0; u < l->n; u++)          /* not where the rows themselves go round */
                if (fret->in[u].id == r->primal.id)
                    fret->in[u] = seen;
        }
    }
    xl_region_append(g->e.f, body, fret);
}

xl_error *xl_grad_while(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    xl_error *err = NULL;
    loop_grad l = { .g = g, .op = op, .body = op->region[1], .ret = xl_region_end(op->region[1]), .n = op->nin };
    l.keep = op->extra && xl_dict_get(op->extra, XL_STR(XL_GRAD_LEAN)) ? XL_KEEP_CARRY : g->opts.keep;
    if (!find_trips(g->e.f, op, &l.tr))
        return XL_ERR(UNIMPLEMENTED,
                      "a loop whose number of turns is not a constant; count up to a constant, as a scan does");
    xl_cot_prune(g->e.f, l.body);        /* what nobody reads needs no gradient */
    split_carry(&l, ct);
    if (!l.nround && !l.ncap)
        return NULL;
    backward_loop(&l, ct);
    xl_grad_ctx in = copy_body(&l);
    XL_DO(sweep_body(&l, &in));
    carry_rows(&l);
    if (g->opts.gpu) {
        xl_triton_read_rows(g->e.f, l.body);
        xl_triton_read_rows(g->e.f, l.w->region[1]);
    }
    xl_region_append(g->e.f, g->e.r, l.w);
    for (uint32_t i = 0; i < l.nround; i++)
        xl_cot_add(g, op->in[l.round[i]], l.w->out[1 + l.as[i]]);
    for (uint32_t i = 0; i < l.ncap; i++)
        xl_cot_add(g, l.caps[i], l.later[i] ? xl_em_sum(&g->e, l.w->out[1 + l.nround + i], XL_DIMS(1))
                                            : l.w->out[1 + l.nround + i]);
out:
    return err;
}
