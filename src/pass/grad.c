/* grad: reverse-mode differentiation within the program.
 *
 * How it works. The forward pass marks active values: those of a float type that depend on one of the values to
 * differentiate by. The backward pass visits the same ops in reverse: each active op whose results have a cotangent
 * computes the cotangents of its operands. A cotangent has the type of its value. Complex numbers follow JAX:
 * cotangents are transposed, not conjugated, so the rule of a holomorphic function is that of its real form.
 *
 * Regions. The gradient of a branch is a branch of the same kind that recomputes its side and then differentiates it
 * (grad_flow.c); the gradient of a loop is a loop in the opposite direction over values that the first one saved.
 * Values that a region uses from outside get their cotangents as results of that second op.
 *
 * What a new rule must respect: emit with g->e only; use primal operands and results freely (they are still there; in a
 * loop, pruning decides which must be saved, so prefer the form that needs the fewest); never add a cotangent of
 * another type than its value; ask xl_cot_active before doing expensive work for an operand.
 *
 * needs: no calls or composites on the path.  keeps: types.  breaks: existing ops do not change, but loops get more
 * results. */
#include "pass/grad.h"

#include "pass/cudnn.h"
#include "pass/triton.h"

static xl_grad_fn *const rules[XL_OP_COUNT] = {
#define OP(name, text, in, out, regions, types, grad, ...) [XL_OP_##name] = xl_grad_##grad,
#include "ir/ops.def"
};

static void grow(xl_grad_ctx *g, uint32_t id)
{
    if (id < g->cap)
        return;
    uint32_t cap = g->e.f->nval + g->e.f->nval / 2 + 64;
    xl_arena *a = &g->e.f->m->arena;
    xl_value *cot = xl_new(a, xl_value, cap);
    bool *active = xl_new(a, bool, cap);
    if (g->cap) {
        memcpy(cot, g->cot, g->cap * sizeof *cot);
        memcpy(active, g->active, g->cap * sizeof *active);
    }
    for (uint32_t i = g->cap; i < cap; i++)
        cot[i] = XL_NO_VALUE;
    g->cot = cot, g->active = active, g->cap = cap;
}

bool xl_cot_active(const xl_grad_ctx *g, xl_value v) { return v.id < g->cap && g->active[v.id]; }

void xl_cot_set(xl_grad_ctx *g, xl_value v, xl_value cot)
{
    grow(g, v.id);
    g->cot[v.id] = cot;
}

void xl_cot_add(xl_grad_ctx *g, xl_value v, xl_value cot)
{
    if (!xl_cot_active(g, v) || !xl_has(cot))
        return;
    xl_value was = v.id < g->cap ? g->cot[v.id] : XL_NO_VALUE;
    xl_cot_set(g, v, xl_has(was) ? xl_em_binary(&g->e, XL_OP_ADD, was, cot) : cot);
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */
struct xl_cot_part {
    xl_value of, cot;
    uint32_t dim;
    int64_t lo, hi;
};

static xl_value zeros(xl_grad_ctx *g, const xl_type *t, uint32_t dim, int64_t n)
{
    int64_t *d = xl_new(&g->e.f->m->arena, int64_t, t->rank);
    memcpy(d, t->dims, t->rank * sizeof *d);
    d[dim] = n;
    return xl_em_splat(&g->e, xl_type_tensor(g->e.f->m, t->dtype, (xl_dims){ d, t->rank }), 0);
}

/* The parts of v, in the order of their places, and zeros between them. */
static void join_parts(xl_grad_ctx *g, xl_value v)
{
    const xl_type *t = xl_value_type(g->e.f, v);
    xl_value *list = xl_new(&g->e.f->m->arena, xl_value, 2 * (size_t)g->npart + 1);
    uint32_t n = 0, left = 0, dim = 0;
    int64_t at = 0;
    for (bool more = true; more;) {
        const struct xl_cot_part *next = NULL;
        for (uint32_t i = 0; i < g->npart; i++)
            if (g->part[i].of.id == v.id && g->part[i].lo >= at && (!next || g->part[i].lo < next->lo))
                next = &g->part[i];
        more = next != NULL;
        if (!more)
            break;
        dim = next->dim;
        if (next->lo > at)
            list[n++] = zeros(g, t, dim, next->lo - at);
        list[n++] = next->cot;
        at = next->hi;
    }
    for (uint32_t i = 0; i < g->npart; i++)
        if (g->part[i].of.id != v.id)
            g->part[left++] = g->part[i];
    g->npart = left;
    if (!n)
        return;
    if (at < t->dims[dim])
        list[n++] = zeros(g, t, dim, t->dims[dim] - at);
    xl_cot_add(g, v, n == 1 ? list[0] : xl_em_concat(&g->e, list, n, dim));
}

void xl_cot_add_part(xl_grad_ctx *g, xl_value v, uint32_t dim, int64_t lo, xl_value cot)
{
    if (!xl_cot_active(g, v))
        return;
    int64_t hi = lo + xl_value_type(g->e.f, cot)->dims[dim];
    for (uint32_t i = 0; i < g->npart; i++) {
        const struct xl_cot_part *p = &g->part[i];
        if (p->of.id == v.id && (p->dim != dim || (p->lo < hi && lo < p->hi))) {
            join_parts(g, v);
            break;
        }
    }
    XL_PUSH(&g->e.f->m->arena, g->part, g->npart, g->cappart, ((struct xl_cot_part){ v, cot, dim, lo, hi }));
}

xl_value xl_cot_get(xl_grad_ctx *g, xl_value v)
{
    if (g->npart)
        join_parts(g, v);
    return v.id < g->cap ? g->cot[v.id] : XL_NO_VALUE;
}

xl_grad_ctx xl_cot_inner(const xl_grad_ctx *g, xl_region *r)
{
    xl_grad_ctx in = { .e = xl_em_in(&g->e, r), .opts = g->opts };
    grow(&in, g->e.f->nval);
    memcpy(in.active, g->active, (g->cap < in.cap ? g->cap : in.cap) * sizeof *in.active);
    return in;
}

static bool set_active(xl_grad_ctx *g, xl_value v)
{
    if (!xl_cot_float(xl_value_type(g->e.f, v)))
        return false;
    grow(g, v.id);
    bool was = g->active[v.id];
    g->active[v.id] = true;
    return !was;
}

static void mark_op(xl_grad_ctx *g, xl_op *op)
{
    xl_grad_fn *rule = rules[op->code];
    if (rule == xl_grad_zero || op->code == XL_OP_RETURN || xl_dict_get(op->extra, XL_STR(XL_GRAD_STOP)))
        return;
    if (op->code == XL_OP_WHILE) {           /* what goes round may become active on a later turn */
        xl_region *body = op->region[1];
        const xl_op *ret = xl_region_end(body);
        for (uint32_t i = 0; i < op->nin; i++)
            if (xl_cot_active(g, op->in[i]))
                set_active(g, body->arg[i]);
        for (bool more = true; more;) {
            more = false;
            xl_cot_mark(g, body->op, body->nop);
            for (uint32_t i = 0; i < op->nin; i++)
                if (xl_cot_active(g, ret->in[i]))
                    more |= set_active(g, body->arg[i]);
        }
        for (uint32_t i = 0; i < op->nout; i++)
            if (xl_cot_active(g, body->arg[i]) || xl_cot_active(g, ret->in[i]))
                set_active(g, op->out[i]);
        return;
    }
    if (op->code == XL_OP_IF || op->code == XL_OP_CASE) {
        for (uint32_t k = 0; k < op->nregion; k++) {
            xl_cot_mark(g, op->region[k]->op, op->region[k]->nop);
            const xl_op *ret = xl_region_end(op->region[k]);
            for (uint32_t i = 0; i < op->nout; i++)
                if (xl_cot_active(g, ret->in[i]))
                    set_active(g, op->out[i]);
        }
        return;
    }
    bool any = false;
    for (uint32_t i = 0; i < op->nin && !any; i++)
        any = xl_cot_active(g, op->in[i]);
    for (uint32_t i = 0; any && i < op->nout; i++)
        set_active(g, op->out[i]);
}

void xl_cot_mark(xl_grad_ctx *g, xl_op *const *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mark_op(g, ops[i]);
}

static xl_error *at(const xl_grad_ctx *g, const xl_op *op, xl_error *err)
{
    xl_str file;
    uint32_t line, col;
    if (!err)
        return NULL;
    if (xl_loc_line(g->e.f->m, op->loc, &file, &line, &col))
        return xl_error_wrap(err, "%.*s:%u: the gradient of %s", XL_FMT(file), line, xl_op_text(op));
    return xl_error_wrap(err, "the gradient of %s", xl_op_text(op));
}

static xl_error *one(xl_grad_ctx *g, xl_op *op)
{
    xl_value few[8], *ct = op->nout > 8 ? xl_new(&g->e.f->m->arena, xl_value, op->nout) : few;
    bool any = false, active = false;
    for (uint32_t i = 0; i < op->nout; i++) {
        ct[i] = xl_cot_active(g, op->out[i]) ? xl_cot_get(g, op->out[i]) : XL_NO_VALUE;
        any |= xl_has(ct[i]);
        active |= xl_cot_active(g, op->out[i]);
    }
    if (!any || !active)
        return NULL;
    g->e.loc = op->loc;
    return at(g, op, rules[op->code](g, op, ct));
}

/* ---- rematerialised groups --------------------------------------------------------------------------------------- */
static int64_t group_of(const xl_op *op)
{
    const xl_attr *a = xl_dict_get(op->extra, XL_STR(XL_GRAD_REMAT));
    return a && a->kind == XL_AT_INT ? a->i : -1;
}

/* ops[0..n) are one group. Its inputs and the cotangents that reach it pass one barrier together, so that no later pass
 * can merge the second computation with the first; then a copy is made and walked back. */
static xl_error *remat(xl_grad_ctx *g, xl_op *const *ops, uint32_t n)
{
    xl_func *f = g->e.f;
    xl_arena *a = &f->m->arena;
    uint32_t nmap, nin = 0, capin = 0, nct = 0;
    xl_value *map = xl_cot_map(f, &nmap), *in = NULL;
    bool *mine = xl_new(a, bool, nmap), *seen = xl_new(a, bool, nmap);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < ops[i]->nout; k++)
            mine[ops[i]->out[k].id] = true;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t nc;
        xl_value *cap = xl_cot_captures(f, ops[i], &nc);
        for (uint32_t k = 0; k < ops[i]->nin + nc; k++) {
            xl_value v = k < ops[i]->nin ? ops[i]->in[k] : cap[k - ops[i]->nin];
            if (mine[v.id] || seen[v.id] || xl_value_type(f, v)->kind != XL_TY_TENSOR)
                continue;
            seen[v.id] = true;
            XL_PUSH(a, in, nin, capin, v);
        }
    }
    uint32_t ninput = nin;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < ops[i]->nout; k++)
            if (xl_cot_active(g, ops[i]->out[k]) && xl_has(xl_cot_get(g, ops[i]->out[k]))) {
                xl_value v = xl_cot_get(g, ops[i]->out[k]);
                XL_PUSH(a, in, nin, capin, v);
                nct++;
            }
    if (!nct)
        return NULL;
    const xl_type **types = xl_new(a, const xl_type *, nin);
    for (uint32_t i = 0; i < nin; i++)
        types[i] = xl_value_type(f, in[i]);
    g->e.loc = ops[n - 1]->loc;
    xl_op *bar = xl_op_new(f, g->e.r, XL_OP_OPTIMIZATION_BARRIER, in, nin, types, nin, 0, g->e.loc);
    for (uint32_t i = 0; i < ninput; i++)
        map[in[i].id] = bar->out[i];
    xl_op **copy = xl_new(a, xl_op *, n);
    for (uint32_t i = 0; i < n; i++) {
        copy[i] = xl_op_clone(f, g->e.r, f, ops[i], map);
        copy[i]->extra = xl_dict_with(f->m, copy[i]->extra, XL_STR(XL_GRAD_REMAT), NULL);
    }
    for (uint32_t i = 0; i < ninput; i++)
        if (xl_cot_active(g, in[i]))
            set_active(g, bar->out[i]);
    xl_cot_mark(g, copy, n);
    uint32_t next = ninput;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < ops[i]->nout; k++)
            if (xl_cot_active(g, ops[i]->out[k]) && xl_has(xl_cot_get(g, ops[i]->out[k])))
                xl_cot_set(g, copy[i]->out[k], bar->out[next++]);
    xl_error *err = xl_cot_sweep(g, copy, n);
    for (uint32_t i = 0; !err && i < ninput; i++)
        xl_cot_add(g, in[i], xl_cot_get(g, bar->out[i]));
    return err;
}

xl_error *xl_cot_sweep(xl_grad_ctx *g, xl_op *const *ops, uint32_t n)
{
    xl_error *err = NULL;
    for (uint32_t i = n; i-- > 0 && !err;) {
        int64_t group = group_of(ops[i]);
        if (group < 0) {
            err = one(g, ops[i]);
            continue;
        }
        uint32_t first = i;
        while (first > 0 && group_of(ops[first - 1]) == group)
            first--;
        err = remat(g, ops + first, i + 1 - first);
        i = first;
    }
    return err;
}

/* ---- helpers of the rules ---------------------------------------------------------------------------------------- */
xl_value *xl_cot_map(const xl_func *f, uint32_t *n)
{
    xl_value *map = xl_new(&f->m->arena, xl_value, f->nval);
    for (uint32_t i = 0; i < f->nval; i++)
        map[i] = (xl_value){ i };
    *n = f->nval;
    return map;
}

typedef struct {
    const xl_func *f;
    xl_value *v;
    uint32_t n, cap;
    uint8_t *state;
} captures; /* state 1: inside, 2: taken */

static void defines(captures *c, const xl_region *r)
{
    for (uint32_t i = 0; i < r->narg; i++)
        c->state[r->arg[i].id] = 1;
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nout; k++)
            c->state[r->op[i]->out[k].id] = 1;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            defines(c, r->op[i]->region[k]);
    }
}

static void uses(captures *c, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin; k++) {
            xl_value v = r->op[i]->in[k];
            if (c->state[v.id])
                continue;
            c->state[v.id] = 2;
            XL_PUSH(&c->f->m->arena, c->v, c->n, c->cap, v);
        }
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            uses(c, r->op[i]->region[k]);
    }
}

xl_value *xl_cot_captures(const xl_func *f, const xl_op *op, uint32_t *n)
{
    captures c = { .f = f };
    if (op->nregion) {
        c.state = xl_new(&f->m->arena, uint8_t, f->nval);
        for (uint32_t k = 0; k < op->nregion; k++)
            defines(&c, op->region[k]);
        for (uint32_t k = 0; k < op->nregion; k++)
            uses(&c, op->region[k]);
    }
    *n = c.n;
    return c.v;
}

static void count_uses(const xl_region *r, uint32_t *use)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin; k++)
            use[r->op[i]->in[k].id]++;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            count_uses(r->op[i]->region[k], use);
    }
}

static void drop_uses(const xl_op *op, uint32_t *use)
{
    for (uint32_t k = 0; k < op->nin; k++)
        use[op->in[k].id]--;
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            drop_uses(op->region[k]->op[i], use);
}

static void prune(xl_region *r, uint32_t *use)
{
    uint32_t kept = r->nop;
    for (uint32_t i = r->nop; i-- > 0;) {
        xl_op *op = r->op[i];
        bool live = (xl_ops[op->code].flags & (XL_OP_EFFECT | XL_OP_TERMINATOR)) != 0;
        for (uint32_t k = 0; k < op->nout && !live; k++)
            live = use[op->out[k].id] > 0;
        if (live) {
            r->op[--kept] = op;
            for (uint32_t k = 0; k < op->nregion; k++)
                prune(op->region[k], use);
        } else
            drop_uses(op, use);
    }
    memmove(r->op, r->op + kept, (r->nop - kept) * sizeof *r->op);
    r->nop -= kept;
}

void xl_cot_prune(xl_func *f, xl_region *r)
{
    uint32_t *use = xl_new(&f->m->arena, uint32_t, f->nval);
    count_uses(r, use);
    prune(r, use);
}

/* ---- the rules that say no, and the one that says nothing ---- */
xl_error *xl_grad_none(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    (void)g, (void)ct;
    return XL_ERR(UNIMPLEMENTED, "%s has no gradient here; compute it from other ops, or stop the gradient before it",
                  xl_op_text(op));
}

xl_error *xl_grad_custom_call(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    bool known;
    xl_error *err = xl_cudnn_grad(g, op, ct, &known);
    if (!known)
        err = xl_triton_grad(g, op, ct, &known);
    if (known)
        return err;
    xl_str t = xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name));
    return XL_ERR(UNIMPLEMENTED,
                  "a custom call to %.*s has no gradient that we could know; stop the gradient before it, or "
                  "export the function together with its gradient",
                  XL_FMT(t));
}

xl_error *xl_grad_zero(xl_grad_ctx *g, xl_op *op, const xl_value *ct)
{
    (void)g, (void)op, (void)ct;
    return NULL;
}

static void strip(xl_func *f, xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        static const char *const ours[] = { XL_GRAD_REMAT, XL_GRAD_STOP, XL_GRAD_LEAN };
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            r->op[i]->extra = xl_dict_with(f->m, r->op[i]->extra, xl_str_of(ours[k]), NULL);
        if (r->op[i]->extra && !r->op[i]->extra->n)
            r->op[i]->extra = NULL;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            strip(f, r->op[i]->region[k]);
    }
}

void xl_grad_strip(xl_func *f) { strip(f, f->body); }

/* ---- the entrance ---- */
xl_error *xl_grad(xl_func *f, xl_value loss, const xl_value *wrt, uint32_t n, const xl_grad_opts *opts, xl_value *out)
{
    xl_error *err = NULL;
    xl_region *r = f->body;
    const xl_type *t = xl_value_type(f, loss);
    if (!xl_cot_float(t) || xl_dtype_class(t->dtype) != XL_CLASS_FLOAT || t->rank != 0)
        return XL_ERR(INVALID, "the loss must be a scalar of a float type; reduce it first");
    xl_op *end = r->nop && xl_region_end(r)->code == XL_OP_RETURN ? r->op[--r->nop] : NULL;
    uint32_t nop = r->nop;
    xl_op **ops = xl_new(&f->m->arena, xl_op *, nop);
    memcpy(ops, r->op, nop * sizeof *ops);
    xl_grad_ctx g = { .e = xl_b_at(f, r), .opts = opts ? *opts : (xl_grad_opts){ 0 } };
    grow(&g, f->nval);
    for (uint32_t i = 0; i < n; i++)
        if (!set_active(&g, wrt[i]) && !xl_cot_active(&g, wrt[i])) {
            err = XL_ERR(INVALID, "cannot differentiate by value %u: it is not of a float type", i);
            goto out;
        }
    xl_cot_mark(&g, ops, nop);
    if (xl_cot_active(&g, loss))
        xl_cot_set(&g, loss, xl_em_splat(&g.e, t, 1));
    XL_DO(xl_cot_sweep(&g, ops, nop));
    for (uint32_t i = 0; i < n; i++) {
        out[i] = xl_cot_get(&g, wrt[i]);
        if (!xl_has(out[i]))
            out[i] = xl_em_like(&g.e, wrt[i], 0);
    }
out:
    if (end)
        xl_region_append(f, r, end);
    return err;
}
