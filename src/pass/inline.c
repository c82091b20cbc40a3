/* inline: replace calls by the functions called, composites by their decomposition, named computations by their body.
 * needs: no recursion (the verifier checks it).  keeps: types, locations.  breaks: shardings on arguments of private
 * functions.
 * Callees are processed first, so a copied function has no calls left. Private functions that are no longer reachable
 * are dropped. */
#include "pass/calls.h"
#include "pass/pass.h"

enum { OPS_MAX = 1 << 22 };                               /* calls that double at each level would never end */

typedef struct {
    xl_module *m;
    const xl_pipeline_opts *opts;
    uint8_t *state;                                        /* per function: 0 new, 1 open, 2 done */
    uint32_t *nop;                                         /* ops of a done function, regions included */
    uint64_t total;
} work;

static xl_error *func(work *w, uint32_t i);

static int64_t index_of(const xl_module *m, xl_str name)
{
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (xl_str_eq(m->func[i]->name, name))
            return i;
    return -1;
}

/* The function that an op stands for, or -1. */
static int64_t callee(const work *w, const xl_op *op)
{
    xl_str name = { "", 0 };
    if (op->code == XL_OP_CALL && !(w->opts->keep_call && w->opts->keep_call(op)))
        name = xl_op_str(op, XL_SLOT(CALL, callee));
    else if (op->code == XL_OP_COMPOSITE && !(w->opts->keep_composite && w->opts->keep_composite(op)))
        name = xl_op_str(op, XL_SLOT(COMPOSITE, decomposition));
    if (!name.n)
        return -1;
    int64_t i = index_of(w->m, name);
    return i >= 0 && w->m->func[i]->body ? i : -1;
}

static xl_error *region(work *w, xl_func *f, xl_region *r, xl_subst *s, uint32_t *count)
{
    xl_error *err = NULL;
    xl_op **old = r->op;
    uint32_t nold = r->nop;
    bool any = false;
    for (uint32_t k = 0; k < nold && !any; k++)
        any = old[k]->code == XL_OP_SDY_NAMED || callee(w, old[k]) >= 0;
    if (any) {                                             /* rebuilt in place */
        r->op = NULL;
        r->nop = r->capop = 0;
    }
    for (uint32_t k = 0; k < nold; k++) {
        xl_op *op = old[k];
        xl_subst_op(s, op);
        int64_t to = callee(w, op);
        if (to >= 0) {
            const xl_func *g = w->m->func[to];
            XL_DO(func(w, (uint32_t)to));
            w->total += w->nop[to];
            if (w->total > OPS_MAX) {
                err = XL_ERR(EXHAUSTED, "@%.*s has more than %d ops once its calls are inlined", XL_FMT(f->name),
                             OPS_MAX);
                goto out;
            }
            xl_value *map = xl_new(&w->m->arena, xl_value, g->nval), *ret = xl_new(&w->m->arena, xl_value, op->nout);
            for (uint32_t i = 0; i < g->body->narg && i < op->nin; i++)
                map[g->body->arg[i].id] = op->in[i];
            uint32_t first = r->nop;
            xl_region_clone_into(f, r, g, g->body, map, ret, op->nout);
            xl_region_called_from(w->m, r, first, op->loc);
            for (uint32_t i = 0; i < op->nout; i++)
                xl_subst_set(s, op->out[i], ret[i]);
            *count += w->nop[to];
        } else if (op->code == XL_OP_SDY_NAMED && op->nregion == 1) {
            xl_region *body = op->region[0];
            for (uint32_t i = 0; i < body->narg && i < op->nin; i++)
                xl_subst_set(s, body->arg[i], op->in[i]);
            XL_DO(region(w, f, body, s, count));
            for (uint32_t i = 0; i + 1 < body->nop; i++)
                xl_region_append(f, r, body->op[i]);
            const xl_op *end = xl_region_end(body);
            for (uint32_t i = 0; end && i < op->nout && i < end->nin; i++)
                xl_subst_set(s, op->out[i], end->in[i]);
        } else {
            for (uint32_t i = 0; i < op->nregion; i++)
                XL_DO(region(w, f, op->region[i], s, count));
            if (any)
                xl_region_append(f, r, op);
            ++*count;
        }
    }
out:
    return err;
}

static xl_error *func(work *w, uint32_t i)
{
    xl_error *err = NULL;
    xl_func *f = w->m->func[i];
    if (w->state[i] == 2 || !f->body)
        return NULL;
    if (w->state[i] == 1)
        return XL_ERR(INVALID, "@%.*s calls itself", XL_FMT(f->name));
    w->state[i] = 1;
    xl_subst s = xl_subst_new(f);
    w->nop[i] = 0;
    XL_DO(region(w, f, f->body, &s, &w->nop[i]));
    w->state[i] = 2;
out:
    return err;
}

/* ---- what is still reached -------------------------------------------------------------------------------------- */
static void mark(const xl_module *m, bool *used, xl_str name);

static void mark_attr(const xl_module *m, bool *used, const xl_attr *a)
{
    if (!a)
        return;
    if (a->kind == XL_AT_SYM)
        mark(m, used, a->str);
    else if (a->kind == XL_AT_ARRAY || a->kind == XL_AT_DICT || a->kind == XL_AT_STRUCT)
        for (uint32_t i = 0; i < a->n; i++)
            mark_attr(m, used, a->item[i]);
}

static void mark_region(const xl_module *m, bool *used, const xl_region *r)
{
    for (uint32_t k = 0; k < r->nop; k++) {
        const xl_op *op = r->op[k];
        for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++)
            mark_attr(m, used, op->attr[i]);
        mark_attr(m, used, op->extra);
        for (uint32_t i = 0; i < op->nregion; i++)
            mark_region(m, used, op->region[i]);
    }
}

static void mark(const xl_module *m, bool *used, xl_str name)
{
    int64_t i = index_of(m, name);
    if (i < 0 || used[i])
        return;
    used[i] = true;
    if (m->func[i]->body)
        mark_region(m, used, m->func[i]->body);
}

static void drop_unreached(xl_module *m)
{
    bool *used = xl_new(&m->arena, bool, m->nfunc);
    uint32_t n = 0;
    const xl_func *entry = xl_module_entry(m);
    if (entry)
        mark(m, used, entry->name);
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (m->func[i]->visibility == XL_PUBLIC)
            mark(m, used, m->func[i]->name);
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (used[i])
            m->func[n++] = m->func[i];
    m->nfunc = n;
}

xl_error *xl_pass_inline(xl_module *m, const xl_pipeline_opts *opts)
{
    static const xl_pipeline_opts none;
    xl_error *err = NULL;
    work w = { .m = m,
               .opts = opts ? opts : &none,
               .state = xl_new(&m->arena, uint8_t, m->nfunc),
               .nop = xl_new(&m->arena, uint32_t, m->nfunc) };
    XL_DO(xl_calls_check(m));
    for (uint32_t i = 0; i < m->nfunc; i++)
        XL_DO(func(&w, i));
    drop_unreached(m);
out:
    return err;
}
