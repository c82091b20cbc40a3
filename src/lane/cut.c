#include "lane/cut.h"

#include "ir/build.h"
#include "ir/text/print.h"

static void print_alone(xl_func *g, uint32_t before, xl_buf *text)
{
    xl_module *m = g->m;
    xl_func **all = m->func, *one[1] = { g };
    m->func = one;
    m->nfunc = 1;
    xl_print_module(m, NULL, text);
    m->func = all;
    m->nfunc = before;                                     /* the new function was only for printing */
}

static const xl_region *home(const xl_func *f, xl_value v)
{
    return f->val[v.id].def ? f->val[v.id].def->parent : f->val[v.id].region;
}

/* Values of region `of` that the op uses, itself or in its regions: fn for each. */
static void uses(const xl_func *f, const xl_op *op, const xl_region *of, bool *used)
{
    for (uint32_t i = 0; i < op->nin; i++)
        if (!of || home(f, op->in[i]) == of)
            used[op->in[i].id] = true;
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            uses(f, op->region[k]->op[i], of, used);
}

static bool is_float(const xl_type *t)
{
    return xl_type_is_tensor(t) && xl_dtype_class(xl_dtype_part(t->dtype)) == XL_CLASS_FLOAT;
}

static xl_value ask(xl_b *b, xl_value v, xl_cut_kind kind)
{
    const xl_type *t = xl_b_type(b, v);
    if (kind == XL_CUT_VALUE || !is_float(t))
        return v;
    int64_t dims[32];
    for (uint32_t i = 0; i < t->rank && i < 32; i++)
        dims[i] = i;
    xl_dims all = { dims, t->rank };
    if (kind == XL_CUT_HAS_NAN)
        return xl_b_reduce(b, xl_b_compare(b, XL_COMPARISON_DIRECTION_NE, v, v), xl_b_scalar(b, XL_I1, 0), all,
                           XL_OP_OR);
    xl_value finite = xl_b_unary(b, XL_OP_IS_FINITE, v);
    return xl_b_reduce(b, xl_b_unary(b, XL_OP_NOT, finite), xl_b_scalar(b, XL_I1, 0), all, XL_OP_OR);
}

xl_error *xl_cut(xl_func *f, const xl_value *v, size_t n, xl_cut_kind kind, bool results, xl_buf *text)
{
    xl_module *m = f->m;
    uint32_t before = m->nfunc;
    const xl_region *body = f->body;
    const xl_op *end = xl_region_end(body);
    bool *used = xl_new(&m->arena, bool, f->nval + 1);
    xl_value *map = xl_new(&m->arena, xl_value, f->nval + 1);
    for (size_t i = 0; i < n; i++)
        used[v[i].id] = true;
    for (uint32_t i = 0; results && i < end->nin; i++)
        used[end->in[i].id] = true;
    bool *need = xl_new(&m->arena, bool, body->nop + 1);
    for (uint32_t i = body->nop; i-- > 0;) {
        const xl_op *op = body->op[i];
        for (uint32_t k = 0; k < op->nout; k++)
            need[i] = need[i] || used[op->out[k].id];
        if (need[i])
            uses(f, op, body, used);
    }
    xl_b b = xl_b_func(m, XL_STR("main"));
    for (uint32_t i = 0; i < body->narg; i++)
        map[body->arg[i].id] = xl_b_arg(&b, xl_value_type(f, body->arg[i]));
    for (uint32_t i = 0; i < body->nop; i++)
        if (need[i])
            xl_op_clone(b.f, b.f->body, f, body->op[i], map);
    size_t nret = 0, most = n + end->nin;
    xl_value *ret = xl_new(&m->arena, xl_value, most + 1);
    for (uint32_t i = 0; results && i < end->nin; i++)
        ret[nret++] = map[end->in[i].id];
    for (size_t i = 0; i < n; i++)
        ret[nret++] = ask(&b, map[v[i].id], kind);
    xl_b_return(&b, ret, (uint32_t)nret);
    xl_error *err = xl_b_error(&b);
    if (!err && results && f->arg_attr)                    /* shardings and donation are part of how it is compiled */
        b.f->arg_attr = f->arg_attr;
    print_alone(b.f, before, text);
    return err ? err : text->failed ? XL_ERR(EXHAUSTED, "out of memory") : NULL;
}

uint32_t xl_cut_count(const xl_region *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nop; i++) {
        n += r->op[i]->code != XL_OP_RETURN;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            n += xl_cut_count(r->op[i]->region[k]);
    }
    return n;
}

xl_error *xl_pick(xl_arena *a, xl_func *f, const xl_region *r, const bool *keep, xl_value **in, uint32_t *nin,
                  uint32_t *nout, xl_buf *text)
{
    xl_module *m = f->m;
    uint32_t before = m->nfunc, n = 0;
    xl_value *map = xl_new(a, xl_value, f->nval + 1), *ret;
    bool *used = xl_new(a, bool, f->nval + 1), *made = xl_new(a, bool, f->nval + 1);
    bool *own = xl_new(a, bool, f->nval + 1);
    xl_b b = xl_b_func(m, XL_STR("main"));
    size_t cap = 0, have = 0;
    *in = NULL;
    for (uint32_t i = 0; i < r->nop; i++)
        if (keep[i]) {
            bool *mine = xl_new(a, bool, f->nval + 1);
            uses(f, r->op[i], NULL, mine);
            for (uint32_t v = 0; v < f->nval; v++) {
                const xl_region *at = home(f, (xl_value){ v });
                bool inner = false;                        /* made inside of the op's own regions */
                for (const xl_region *x = at; mine[v] && x && x != r; x = x->owner ? x->owner->parent : NULL)
                    inner = inner || (x->owner && x->owner == r->op[i]);
                for (const xl_region *x = at; mine[v] && x && !inner; x = x->owner ? x->owner->parent : NULL)
                    for (uint32_t k = 0; k < r->op[i]->nregion; k++)
                        inner = inner || x == r->op[i]->region[k];
                if (!mine[v] || inner)
                    continue;
                used[v] = true;
                if (made[v] || own[v])
                    continue;
                own[v] = true;
                map[v] = xl_b_arg(&b, xl_value_type(f, (xl_value){ v }));
                XL_PUSH(a, *in, have, cap, (xl_value){ v });
            }
            for (uint32_t k = 0; k < r->op[i]->nout; k++)
                made[r->op[i]->out[k].id] = true;
        }
    ret = xl_new(a, xl_value, f->nval + 1);
    for (uint32_t i = 0; i < r->nop; i++)
        if (keep[i])
            xl_op_clone(b.f, b.f->body, f, r->op[i], map);
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; keep[i] && k < r->op[i]->nout; k++)
            if (!used[r->op[i]->out[k].id] && xl_type_is_tensor(xl_out_type(f, r->op[i], k)))
                ret[n++] = map[r->op[i]->out[k].id];
    xl_b_return(&b, ret, n);
    *nin = (uint32_t)have;
    *nout = n;
    xl_error *err = xl_b_error(&b);
    print_alone(b.f, before, text);
    return err ? err : text->failed ? XL_ERR(EXHAUSTED, "out of memory") : NULL;
}
