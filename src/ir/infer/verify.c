/* The verifier: what no single op can see. Symbols are unique and calls lead somewhere, never in a circle; a value is
 * defined before its uses and within their sight; regions end in a return. The rest is inference, op by op. */
#include "base/hash.h"
#include "base/table.h"
#include "ir/infer/infer.h"

enum { DEPTH = 256 };

typedef struct {
    xl_module *m;
    xl_func *f;
    bool *seen;                                            /* per value of f: defined above, and visible here */
    uint32_t capseen;
} walk;

static xl_error *bad_op(const walk *w, const xl_op *op, const char *what, uint32_t i)
{
    xl_str file;
    uint32_t line, col;
    if (xl_loc_line(w->m, op->loc, &file, &line, &col))
        return XL_ERR(INVALID, "@%.*s: %s: %s %u at %.*s:%u", XL_FMT(w->f->name), xl_op_text(op), what, i, XL_FMT(file),
                      line);
    return XL_ERR(INVALID, "@%.*s: %s: %s %u", XL_FMT(w->f->name), xl_op_text(op), what, i);
}

static xl_error *region(walk *w, const xl_region *r, int depth)
{
    xl_error *err = NULL;
    xl_func *f = w->f;
    if (depth > DEPTH)
        return XL_ERR(INVALID, "@%.*s: regions are nested more than %d deep", XL_FMT(f->name), DEPTH);
    for (uint32_t i = 0; i < r->narg; i++)
        w->seen[r->arg[i].id] = true;
    if (r->nop == 0 || !(xl_ops[r->op[r->nop - 1]->code].flags & XL_OP_TERMINATOR))
        return XL_ERR(INVALID, "@%.*s: %s does not end in a return", XL_FMT(f->name),
                      r->owner ? xl_op_text(r->owner) : "the body");
    for (uint32_t k = 0; k < r->nop; k++) {
        const xl_op *op = r->op[k];
        if ((xl_ops[op->code].flags & XL_OP_TERMINATOR) && k + 1 < r->nop)
            return bad_op(w, op, "stands before the end of its block, as op", k);
        for (uint32_t i = 0; i < op->nin; i++)
            if (op->in[i].id >= f->nval || !w->seen[op->in[i].id])
                return bad_op(w, op, "uses a value that is not defined before it, as operand", i);
        for (uint32_t i = 0; i < op->nout; i++)
            if (op->out[i].id >= f->nval || f->val[op->out[i].id].def != op || w->seen[op->out[i].id])
                return bad_op(w, op, "does not own its result", i);
        for (uint32_t i = 0; i < op->nregion; i++)
            XL_DO(region(w, op->region[i], depth + 1));
        XL_TRY(xl_verify_op(f, op), "@%.*s", XL_FMT(f->name));
        for (uint32_t i = 0; i < op->nout; i++)
            w->seen[op->out[i].id] = true;
    }
    for (uint32_t i = 0; i < r->narg; i++)
        w->seen[r->arg[i].id] = false;
    for (uint32_t k = 0; k < r->nop; k++)
        for (uint32_t i = 0; i < r->op[k]->nout; i++)
            w->seen[r->op[k]->out[i].id] = false;
out:
    return err;
}

static xl_error *func(walk *w)
{
    xl_func *f = w->f;
    if (!f->type || f->type->kind != XL_TY_FUNC)
        return XL_ERR(INVALID, "@%.*s has no function type", XL_FMT(f->name));
    if (!f->body)
        return NULL;
    if (f->type->nin != f->body->narg)
        return XL_ERR(INVALID, "@%.*s has %u arguments, its type %u", XL_FMT(f->name), f->body->narg, f->type->nin);
    for (uint32_t i = 0; i < f->body->narg; i++)
        if (!xl_type_eq(f->type->elem[i], xl_value_type(f, f->body->arg[i])))
            return XL_ERR(INVALID, "@%.*s: argument %u differs from the function's type", XL_FMT(f->name), i);
    xl_error *err = region(w, f->body, 0);
    if (err)
        return err;
    const xl_op *end = xl_region_end(f->body);
    if (end->nin != f->type->nelem - f->type->nin)
        return XL_ERR(INVALID, "@%.*s returns %u values, its type says %u", XL_FMT(f->name), end->nin,
                      f->type->nelem - f->type->nin);
    for (uint32_t i = 0; i < end->nin; i++)
        if (!xl_type_eq(f->type->elem[f->type->nin + i], xl_in_type(f, end, i)))
            return bad_op(w, end, "differs from the function's type in value", i);
    return NULL;
}

/* ---- symbols and calls ------------------------------------------------------------------------------------------ */
typedef struct {
    xl_module *m;
    uint8_t *state;
    xl_table index; /* functions by name */
} calls; /* state: 0 new, 1 open, 2 done */

static uint32_t name_hash(xl_str s) { return (uint32_t)xl_hash64(s.p, s.n, 0); }

static int64_t find(const calls *c, xl_str name)
{
    XL_TABLE_EACH(&c->index, name_hash(name), i)
        if (xl_str_eq(c->m->func[i]->name, name))
            return i;
    return -1;
}

static xl_error *visit(calls *c, uint32_t i, int depth);

static xl_error *leads_to(calls *c, const xl_func *from, const xl_op *op, xl_str name, int depth)
{
    int64_t to = find(c, name);
    if (to < 0) {
        if (op->code == XL_OP_CALL)
            return NULL;                                   /* inference says it, with the line */
        return XL_ERR(INVALID, "@%.*s: %s: there is no function @%.*s", XL_FMT(from->name), xl_op_text(op),
                      XL_FMT(name));
    }
    if (c->state[to] == 1)
        return XL_ERR(INVALID, "@%.*s: %s: @%.*s calls itself, directly or through others", XL_FMT(from->name),
                      xl_op_text(op), XL_FMT(name));
    return c->state[to] == 2 ? NULL : visit(c, (uint32_t)to, depth + 1);
}

static xl_error *region_calls(calls *c, const xl_func *f, const xl_region *r, int depth)
{
    xl_error *err = NULL;
    if (depth > 4 * DEPTH)
        return XL_ERR(INVALID, "@%.*s: calls are nested too deep", XL_FMT(f->name));
    for (uint32_t k = 0; k < r->nop; k++) {
        const xl_op *op = r->op[k];
        if (op->code == XL_OP_CALL)
            XL_DO(leads_to(c, f, op, xl_op_str(op, XL_SLOT(CALL, callee)), depth));
        else if (op->code == XL_OP_COMPOSITE) {
            xl_str name = xl_op_str(op, XL_SLOT(COMPOSITE, decomposition));
            int64_t to = find(c, name);
            const xl_type *t = to < 0 ? NULL : c->m->func[to]->type;
            XL_DO(leads_to(c, f, op, name, depth));
            bool fits = t && t->nin == op->nin && t->nelem - t->nin == op->nout;
            for (uint32_t i = 0; fits && i < t->nelem; i++) {
                const xl_type *have = i < t->nin ? xl_in_type(f, op, i) : xl_out_type(f, op, i - t->nin);
                fits = xl_type_like(have, t->elem[i]);
            }
            if (!fits) {
                err = XL_ERR(INVALID, "@%.*s: %s: its operands and results are not those of @%.*s", XL_FMT(f->name),
                             xl_op_text(op), XL_FMT(name));
                goto out;
            }
        }
        for (uint32_t i = 0; i < op->nregion; i++)
            XL_DO(region_calls(c, f, op->region[i], depth + 1));
    }
out:
    return err;
}

static xl_error *visit(calls *c, uint32_t i, int depth)
{
    xl_error *err = NULL;
    c->state[i] = 1;
    if (c->m->func[i]->body)
        err = region_calls(c, c->m->func[i], c->m->func[i]->body, depth);
    c->state[i] = 2;
    return err;
}

static xl_error *symbols(xl_module *m)
{
    xl_error *err = NULL;
    calls c = { .m = m };
    xl_table_reserve(&c.index, &m->arena, m->nfunc);
    c.state = xl_new(&m->arena, uint8_t, m->nfunc);
    for (uint32_t i = 0; i < m->nfunc; i++) {
        xl_str name = m->func[i]->name;
        if (find(&c, name) >= 0 || xl_module_mesh(m, name))
            return XL_ERR(INVALID, "the symbol @%.*s is defined twice", XL_FMT(name));
        xl_table_add(&c.index, &m->arena, name_hash(name), i);
    }
    for (uint32_t i = 0; i < m->nmesh; i++)
        for (uint32_t k = 0; k < i; k++)
            if (xl_str_eq(m->mesh[i].name, m->mesh[k].name))
                return XL_ERR(INVALID, "the symbol @%.*s is defined twice", XL_FMT(m->mesh[i].name));
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (c.state[i] == 0)
            XL_DO(visit(&c, i, 0));
out:
    return err;
}

xl_error *xl_verify(xl_module *m)
{
    xl_error *err = NULL;
    walk w = { .m = m };
    XL_DO(symbols(m));
    for (uint32_t i = 0; i < m->nfunc; i++) {
        w.f = m->func[i];
        if (w.capseen < w.f->nval) {
            w.capseen = w.f->nval;
            w.seen = xl_new(&m->arena, bool, w.capseen);
        } else if (w.f->nval)
            memset(w.seen, 0, w.f->nval * sizeof *w.seen);
        XL_DO(func(&w));
    }
out:
    return err;
}
