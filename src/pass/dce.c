/* dce: remove ops whose results are not used.
 * needs: nothing.  keeps: types, locations.  breaks: nothing; values are renumbered at the end.
 * Ops are visited backwards, so one sweep removes a whole dead chain. Loops also lose carried values whose result is
 * not used and which only feed themselves. */
#include "pass/pass.h"

static bool region_has_effect(const xl_module *m, const xl_region *r, int depth);

static bool has_effect(const xl_module *m, const xl_op *op, int depth)
{
    if ((xl_ops[op->code].flags & XL_OP_EFFECT) || depth > 64)
        return true;
    if (op->code == XL_OP_CUSTOM_CALL && xl_op_int(op, XL_SLOT(CUSTOM_CALL, has_side_effect)))
        return true;
    if (op->code == XL_OP_CALL || op->code == XL_OP_COMPOSITE) {
        const xl_func *g = xl_module_func(
            m, xl_op_str(op, op->code == XL_OP_CALL ? XL_SLOT(CALL, callee) : XL_SLOT(COMPOSITE, decomposition)));
        return !g || !g->body || region_has_effect(m, g->body, depth + 1);
    }
    for (uint32_t i = 0; i < op->nregion; i++)
        if (region_has_effect(m, op->region[i], depth + 1))
            return true;
    return false;
}

static bool region_has_effect(const xl_module *m, const xl_region *r, int depth)
{
    for (uint32_t k = 0; k < r->nop; k++)
        if (has_effect(m, r->op[k], depth))
            return true;
    return false;
}

bool xl_op_has_effect(const xl_module *m, const xl_op *op) { return has_effect(m, op, 0); }

static void count(const xl_region *r, uint32_t *use, int32_t by)
{
    for (uint32_t k = 0; k < r->nop; k++) {
        const xl_op *op = r->op[k];
        for (uint32_t i = 0; i < op->nin; i++)
            use[op->in[i].id] += (uint32_t)by;
        for (uint32_t i = 0; i < op->nregion; i++)
            count(op->region[i], use, by);
    }
}

/* A value is carried for nothing if its result is unread and its arguments feed only its own place in the body's
 * return. */
static void shrink_loop(xl_func *f, xl_op *op, uint32_t *use)
{
    xl_region *cond = op->region[0], *body = op->region[1];
    xl_op *end = xl_region_end(body);
    uint32_t n = 0;
    if (!end || end->nin != op->nin || cond->narg != op->nin || body->narg != op->nin || op->nout != op->nin)
        return;
    for (uint32_t i = 0; i < op->nin; i++) {
        xl_value arg = body->arg[i];
        uint32_t own = end->in[i].id == arg.id;            /* the pass-through use, where there is one */
        bool dead = use[op->out[i].id] == 0 && use[cond->arg[i].id] == 0 && use[arg.id] == own;
        if (dead) {
            use[op->in[i].id]--;
            use[end->in[i].id]--;
            continue;
        }
        op->in[n] = op->in[i];
        op->out[n] = op->out[i];
        cond->arg[n] = cond->arg[i];
        body->arg[n] = body->arg[i];
        end->in[n] = end->in[i];
        f->val[op->out[n].id].index = f->val[cond->arg[n].id].index = f->val[body->arg[n].id].index = n;
        n++;
    }
    op->nin = op->nout = end->nin = cond->narg = body->narg = n;
}

static void region(xl_func *f, xl_region *r, uint32_t *use)
{
    uint32_t live = r->nop;                                /* ops kept are packed towards the end, then moved */
    for (uint32_t k = r->nop; k-- > 0; ) {
        xl_op *op = r->op[k];
        bool used = (xl_ops[op->code].flags & XL_OP_TERMINATOR) != 0;
        for (uint32_t i = 0; i < op->nout && !used; i++)
            used = use[op->out[i].id] > 0;
        if (!used && !xl_op_has_effect(f->m, op)) {
            for (uint32_t i = 0; i < op->nin; i++)
                use[op->in[i].id]--;
            for (uint32_t i = 0; i < op->nregion; i++)
                count(op->region[i], use, -1);
            continue;
        }
        if (op->code == XL_OP_WHILE)
            shrink_loop(f, op, use);
        for (uint32_t i = op->nregion; i-- > 0; )
            region(f, op->region[i], use);
        r->op[--live] = op;
    }
    for (uint32_t k = live; k < r->nop; k++)
        r->op[k - live] = r->op[k];
    r->nop -= live;
}

/* ---- renumbering ------------------------------------------------------------------------------------------------ */
static void renumber(xl_func *f, xl_region *r, const xl_val *old, xl_value *map)
{
    for (uint32_t i = 0; i < r->narg; i++) {
        map[r->arg[i].id] = (xl_value){ f->nval };
        f->val[f->nval] = old[r->arg[i].id];
        r->arg[i].id = f->nval++;
    }
    for (uint32_t k = 0; k < r->nop; k++) {
        xl_op *op = r->op[k];
        for (uint32_t i = 0; i < op->nin; i++)
            op->in[i] = map[op->in[i].id];
        for (uint32_t i = 0; i < op->nout; i++) {
            map[op->out[i].id] = (xl_value){ f->nval };
            f->val[f->nval] = old[op->out[i].id];
            op->out[i].id = f->nval++;
        }
        for (uint32_t i = 0; i < op->nregion; i++)
            renumber(f, op->region[i], old, map);
    }
}

void xl_func_compact(xl_func *f)
{
    if (!f->body)
        return;
    const xl_val *old = f->val;
    xl_value *map = xl_new(&f->m->arena, xl_value, f->nval);
    f->val = xl_new(&f->m->arena, xl_val, f->nval);
    f->capval = f->nval;
    f->nval = 0;
    renumber(f, f->body, old, map);
}

xl_error *xl_pass_dce(xl_module *m, const xl_pipeline_opts *opts)
{
    (void)opts;
    for (uint32_t i = 0; i < m->nfunc; i++) {
        xl_func *f = m->func[i];
        if (!f->body)
            continue;
        uint32_t *use = xl_new(&m->arena, uint32_t, f->nval);
        count(f->body, use, 1);
        for (int round = 0; round < 8; round++) { /* a loop may free what an earlier op made: until nothing changes */
            uint32_t before = 0, after = 0;
            for (uint32_t v = 0; v < f->nval; v++)
                before += use[v];
            region(f, f->body, use);
            for (uint32_t v = 0; v < f->nval; v++)
                after += use[v];
            if (after == before)
                break;
        }
        xl_func_compact(f);
    }
    return NULL;
}
