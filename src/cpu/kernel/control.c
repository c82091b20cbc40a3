/* Control flow: while, if, case, and ops that call another function or region. */
#include "cpu/kernel/index.h"
#include "cpu/meet/meeting.h"
#include "cpu/plan/planner.h"
#include "cpu/plan/view.h"

/* ---- while ------------------------------------------------------------------------------------------------------ */
/* The carried values live in one set of buffers that are at once the arguments of both regions and the results of the
 * op; the body's results are made in them where nobody still reads the old ones. */
static xl_error *run_while(const xl_step *s, xl_frame *f)
{
    const xl_block *cond = s->sub[0], *body = s->sub[1];
    for (;;) {
        xl_error *err = xl_block_run(cond, f);
        if (err)
            return err;
        if (!*(const uint8_t *)f->ptr[cond->ret[0]])
            return NULL;
        err = xl_block_run(body, f);
        if (!err && f->meet)
            err = xl_meet_turn(f);
        if (err)
            return err;
    }
}

const void *xl_carry_splat(const xl_planner *p, xl_value v)
{
    xl_view w;
    if (p->plain || p->lanes > 1 || p->f->val[v.id].type->kind != XL_TY_TENSOR)
        return NULL;
    xl_view_of(p->f, v, &w);
    const xl_op *def = w.kind == XL_VIEW_SPLAT ? p->f->val[w.base.id].def : NULL;
    const xl_attr *a = def ? XL_ATTR(def, CONSTANT, value) : NULL;
    return a && xl_type_count(p->f->val[v.id].type, &(int64_t){ 0 }) ? a->data.p : NULL;
}

typedef struct { uint32_t from; const void *splat; xl_extent shape; uint32_t hint; } source; /* of a carried buffer */

static xl_error *sources(xl_planner *p, const xl_op *op, source *s, uint32_t *n)
{
    xl_error *err = NULL;
    *n = 0;
    for (uint32_t i = 0; i < op->nin; i++) {
        const void *splat = xl_carry_splat(p, op->in[i]);
        const xl_leaves *l = &p->leaf[op->in[i].id];
        uint32_t m = splat ? 1 : l->n;
        for (uint32_t j = 0; j < m; j++, (*n)++) {
            if (!s)                                        /* only counting */
                continue;
            s[*n] =
                (source){ splat ? XL_NO_BUF : l->buf[j], splat, { 0 }, m == 1 ? p->hint[op->out[i].id] : XL_NO_BUF };
            size_t bytes = splat ? 0 : p->plan->buf[l->buf[j]].bytes;
            s[*n].shape = (xl_extent){ .dtype = XL_U8, .count = (int64_t)bytes, .elem = 1, .bytes = bytes };
            if (splat)
                XL_DO(xl_shape_of(p, xl_in_type(p->f, op, i), &s[*n].shape));
        }
    }
out:
    return err;
}

/* The buffer a value is carried in: where the result is wanted, its operand's if that is free, or a new one. */
static uint32_t carried_in(xl_planner *p, const source *s, const uint32_t *carry, uint32_t n)
{
    const xl_plan_buf *h = s->hint == XL_NO_BUF ? NULL : &p->plan->buf[s->hint],
                      *b = s->splat ? NULL : &p->plan->buf[s->from];
    for (uint32_t k = 0; k < n; k++) {
        if (h && carry[k] == s->hint)
            h = NULL;
        if (b && carry[k] == s->from)
            h = b = NULL;
    }
    if (p->plain)
        return xl_plan_buf_new(p, XL_BUF_TEMP, s->shape.bytes);
    if (h && h->bytes == s->shape.bytes && (h->last < p->pos || (h->last == p->pos && s->from == s->hint)))
        return xl_plan_claim(p, s->hint), s->hint;
    if (b && b->kind == XL_BUF_TEMP && !b->pinned && b->last <= p->pos && b->end <= p->pos)
        return s->from;
    return xl_plan_buf_new(p, XL_BUF_TEMP, s->shape.bytes);
}

xl_error *xl_kernel_while(xl_planner *p, const xl_op *op)
{
    xl_error *err = NULL;
    uint32_t n = 0;
    int64_t end = p->end[op->mark];
    if (op->nregion != 2 || op->nin != op->nout)
        return xl_plan_unsupported(p, op, "it needs a condition, a body, and as many results as operands");
    XL_DO(sources(p, op, NULL, &n));
    source *from = xl_new(p->a, source, n);
    XL_DO(sources(p, op, from, &n));
    uint32_t *carry = xl_new(p->a, uint32_t, n);
    bool *pinned = xl_new(p->a, bool, n);
    for (uint32_t k = 0; k < n; k++)
        carry[k] = carried_in(p, &from[k], carry, k);
    for (uint32_t k = 0; k < n; k++) {                     /* no source is a target of another */
        if (from[k].splat)
            xl_fill_step(p, carry[k], from[k].splat, &from[k].shape);
        else if (carry[k] != from[k].from)
            xl_copy_step(p, from[k].from, carry[k], &from[k].shape);
        xl_plan_buf *b = &p->plan->buf[carry[k]];
        pinned[k] = b->pinned;                             /* an outer loop's buffer stays so */
        b->pinned = true;
        if (b->end < end)
            b->end = end;
    }
    xl_block **sub = xl_new(p->a, xl_block *, 2);
    XL_DO(xl_plan_region(p, op, 0, carry, NULL, &sub[0]));
    XL_DO(xl_plan_region(p, op, 1, carry, carry, &sub[1]));
    xl_plan_add(p, "stablehlo.while", run_while, NULL, NULL, 0, NULL, 0, NULL);
    p->block->step[p->block->nstep - 1].sub = sub;
    p->block->step[p->block->nstep - 1].op = op;
    p->pos = end;
    for (uint32_t i = 0, k = 0; i < op->nout; i++) {
        uint32_t m = xl_carry_splat(p, op->in[i]) ? 1 : p->leaf[op->in[i].id].n;
        xl_leaves l = { carry + k, m };
        p->leaf[op->out[i].id] = l;
        for (uint32_t j = 0; j < m; j++, k++) {
            xl_plan_buf *b = &p->plan->buf[carry[k]];
            b->last = p->last[op->out[i].id] > end ? p->last[op->out[i].id] : end;
            if (b->end < b->last)
                b->end = b->last;
            b->pinned = pinned[k];
        }
    }
out:
    return err;
}

/* ---- if, case --------------------------------------------------------------------------------------------------- */

static xl_error *run_branch(const xl_step *s, xl_frame *f)
{
    uint32_t n = s->op->nregion;
    int64_t k = xl_read_index(xl_in(s, f, 0), s->shape[0].dtype, 0);
    if (s->op->code == XL_OP_IF)
        k = k ? 0 : 1;
    else if (k < 0 || k >= n)
        k = n - 1;
    return xl_block_run(s->sub[k], f);
}

static xl_error *branch(xl_planner *p, const xl_op *op)
{
    xl_error *err = NULL;
    uint32_t n = 0;
    if (op->nregion == 0)
        return xl_plan_unsupported(p, op, "it has no branch");
    for (uint32_t r = 0; r < op->nregion; r++) {
        xl_op *ret = xl_region_end(op->region[r]);
        if (!ret || ret->nin != op->nout)
            return xl_plan_unsupported(p, op, "a branch does not return what the op has as results");
    }
    /* one step for the selector alone; the results are made by the branches */
    xl_extent sel;
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &sel));
    uint32_t selector = p->leaf[op->in[0].id].buf[0];
    int64_t end = p->end[op->mark];
    if (p->plan->buf[selector].last < end && p->plan->buf[selector].kind == XL_BUF_TEMP)
        p->plan->buf[selector].end = end;
    uint32_t *res = NULL, cap = 0;
    bool *was = xl_new(p->a, bool, op->nout);
    for (uint32_t i = 0; i < op->nout; i++) {
        const xl_type *type = xl_out_type(p->f, op, i);
        if (type->kind == XL_TY_TUPLE) {
            err = xl_plan_unsupported(p, op, "tuples as results of a branch");
            goto out;
        }
        xl_extent s;
        XL_DO(xl_shape_of(p, type, &s));
        uint32_t h = p->hint[op->out[i].id];
        bool taken = false;
        for (uint32_t k = 0; k < n; k++)
            taken = taken || res[k] == h;
        uint32_t b;
        if (h != XL_NO_BUF && !taken && p->plan->buf[h].bytes == s.bytes && p->plan->buf[h].last < p->pos) {
            b = h;
            xl_plan_claim(p, b);
        } else {
            b = xl_plan_buf_new(p, XL_BUF_TEMP, s.bytes);
        }
        was[i] = p->plan->buf[b].pinned;
        p->plan->buf[b].pinned = true;
        if (p->plan->buf[b].end < end)
            p->plan->buf[b].end = end;
        XL_PUSH(p->a, res, n, cap, b);
    }
    xl_block **sub = xl_new(p->a, xl_block *, op->nregion);
    for (uint32_t r = 0; r < op->nregion; r++) {
        for (uint32_t k = 0; k < n; k++)
            p->plan->buf[res[k]].last = p->pos - 1;        /* nothing lies there yet, in this branch as in the last */
        XL_DO(xl_plan_region(p, op, r, NULL, res, &sub[r]));
    }
    xl_plan_add(p, xl_op_text(op), run_branch, NULL, &selector, 1, NULL, 0, &sel);
    p->block->step[p->block->nstep - 1].sub = sub;
    p->block->step[p->block->nstep - 1].op = op;
    p->pos = end;
    for (uint32_t i = 0; i < op->nout; i++) {
        XL_KNOWN(res);                                     /* one was pushed for each result */
        p->plan->buf[res[i]].last = end;
        p->plan->buf[res[i]].pinned = was[i];
        xl_plan_bind(p, op->out[i], res[i]);
    }
out:
    return err;
}
xl_error *xl_kernel_if(xl_planner *p, const xl_op *op) { return branch(p, op); }
xl_error *xl_kernel_case(xl_planner *p, const xl_op *op) { return branch(p, op); }

/* ---- calls that should be gone ---------------------------------------------------------------------------------- */
xl_error *xl_kernel_call(xl_planner *p, const xl_op *op)
{
    return xl_plan_unsupported(p, op, "a call that was not inlined (recursion is not supported)");
}
xl_error *xl_kernel_none(xl_planner *p, const xl_op *op)
{
    if (op->code == XL_OP_SDY_GROUP)
        return NULL;
    return xl_plan_unsupported(p, op, "this device does not serve it");
}
