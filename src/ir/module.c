/* Modules, functions, regions, ops and values: making, copying, and access by name. */
#include <stdlib.h>

#include "ir/intern.h"
#include "ir/ir.h"

xl_module *xl_module_new_bounded(size_t limit, jmp_buf *oom)
{
    xl_module *m = calloc(1, sizeof *m + sizeof *m->intern);
    if (!m)
        return NULL;
    m->arena.limit = limit;
    m->arena.oom = oom;
    m->intern = (struct xl_intern *)(m + 1);
    return m;
}

xl_module *xl_module_new(void) { return xl_module_new_bounded(0, NULL); }

void xl_module_free(xl_module *m)
{
    if (!m)
        return;
    xl_arena_fini(&m->arena);
    free(m);
}

xl_func *xl_module_func(const xl_module *m, xl_str name)
{
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (xl_str_eq(m->func[i]->name, name))
            return m->func[i];
    return NULL;
}

xl_func *xl_module_entry(const xl_module *m)
{
    xl_func *only = xl_module_func(m, XL_STR("main"));
    if (only)
        return only;
    for (uint32_t i = 0; i < m->nfunc; i++)
        if (m->func[i]->visibility == XL_PUBLIC) {
            if (only)
                return NULL;
            only = m->func[i];
        }
    return only;
}

const xl_mesh *xl_module_mesh(const xl_module *m, xl_str name)
{
    for (uint32_t i = 0; i < m->nmesh; i++)
        if (xl_str_eq(m->mesh[i].name, name))
            return m->mesh[i].mesh;
    return NULL;
}

/* ---- functions, regions, values --------------------------------------------------------------------------------- */
xl_func *xl_func_new(xl_module *m, xl_str name)
{
    xl_func *f = xl_new(&m->arena, xl_func, 1);
    f->m = m;
    f->name = xl_str_dup(&m->arena, name);
    f->body = xl_region_new(f, NULL);
    XL_PUSH(&m->arena, m->func, m->nfunc, m->capfunc, f);
    return f;
}

xl_region *xl_region_new(xl_func *f, xl_op *owner)
{
    xl_region *r = xl_new(&f->m->arena, xl_region, 1);
    r->owner = owner;
    return r;
}

static xl_value value_new(xl_func *f, const xl_val *v)
{
    xl_value id = { f->nval };
    XL_PUSH(&f->m->arena, f->val, f->nval, f->capval, *v);
    return id;
}

xl_value xl_region_add_arg(xl_func *f, xl_region *r, const xl_type *t, xl_loc loc)
{
    xl_value v = value_new(f, &(xl_val){ .type = t, .region = r, .index = r->narg, .loc = loc });
    if ((r->narg & (r->narg - 1)) == 0)                    /* room for the next power of two */
        r->arg = xl_arena_grow(&f->m->arena, r->arg, sizeof *r->arg, r->narg, r->narg ? 2 * (size_t)r->narg : 1);
    r->arg[r->narg++] = v;
    return v;
}

void xl_region_append(xl_func *f, xl_region *r, xl_op *op)
{
    XL_PUSH(&f->m->arena, r->op, r->nop, r->capop, op);
    op->parent = r;
}

xl_op *xl_op_new(xl_func *f, xl_region *r, xl_opcode code, const xl_value *in, uint32_t nin,
                 const xl_type *const *out, uint32_t nout, uint32_t nregion, xl_loc loc)
{
    xl_arena *a = &f->m->arena;
    xl_op *op = xl_new(a, xl_op, 1);
    uint32_t nattr = xl_op_nattr(code);
    op->code = (uint16_t)code;
    op->loc = loc;
    op->nin = nin;
    op->nout = nout;
    op->nregion = (uint16_t)nregion;
    op->in = xl_new(a, xl_value, (size_t)nin + nout);
    op->out = op->in + nin;
    if (nin)
        memcpy(op->in, in, nin * sizeof *in);
    if (nattr)
        op->attr = xl_new(a, const xl_attr *, nattr);
    if (nregion) {
        op->region = xl_new(a, xl_region *, nregion);
        for (uint32_t i = 0; i < nregion; i++)
            op->region[i] = xl_region_new(f, op);
    }
    for (uint32_t i = 0; i < nout; i++)
        op->out[i] = value_new(f, &(xl_val){ .type = out[i], .def = op, .index = i });
    if (r)
        xl_region_append(f, r, op);
    return op;
}

void xl_op_set(xl_op *op, uint32_t slot, const xl_attr *a) { op->attr[slot] = a; }

const char *xl_op_text(const xl_op *op) { return op->code == XL_OP_UNKNOWN ? op->name.p : xl_ops[op->code].text; }

void xl_func_set_type(xl_func *f)
{
    if (!f->body)
        return;
    xl_op *end = xl_region_end(f->body);
    uint32_t nin = f->body->narg, nout = end ? end->nin : 0;
    const xl_type **t = xl_new(&f->m->arena, const xl_type *, (size_t)nin + nout);
    for (uint32_t i = 0; i < nin; i++)
        t[i] = xl_value_type(f, f->body->arg[i]);
    for (uint32_t i = 0; i < nout; i++)
        t[nin + i] = xl_in_type(f, end, i);
    f->type = xl_type_func(f->m, t, nin, t + nin, nout);
}

/* ---- one form for one program ----------------------------------------------------------------------------------- */
static bool all_are(const xl_attr *a, int64_t want)
{
    if (a->kind == XL_AT_INTS) {
        for (uint32_t i = 0; i < a->n; i++)
            if (a->ints[i] != want)
                return false;
        return true;
    }
    if (a->kind == XL_AT_ARRAY) {
        for (uint32_t i = 0; i < a->n; i++)
            if ((a->item[i]->kind != XL_AT_ENUM && a->item[i]->kind != XL_AT_INT) || a->item[i]->i != want)
                return false;
        return true;
    }
    return false;
}

/* #stablehlo.result_accuracy with nothing in it but zeros. */
static bool all_default(const xl_attr *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const xl_attr *v = a->item[i];
        bool zero = v->kind == XL_AT_FLOAT ? v->f == 0 : (v->kind == XL_AT_INT || v->kind == XL_AT_ENUM) && v->i == 0;
        if (!zero)
            return false;
    }
    return true;
}

static bool is_default(const xl_attr *a, xl_attr_default def)
{
    bool number = a->kind == XL_AT_INT || a->kind == XL_AT_BOOL || a->kind == XL_AT_ENUM;
    switch (def) {
    case XL_DEF_REQUIRED: return false;
    case XL_DEF_ZERO: return number && a->i == 0;
    case XL_DEF_ONE: return number && a->i == 1;
    case XL_DEF_MINUS_ONE: return number && a->i == -1;
    case XL_DEF_ONES: return all_are(a, 1);
    case XL_DEF_ALL_ZERO: return all_are(a, 0);
    case XL_DEF_NONE: return a->kind == XL_AT_TYPE && a->type->kind == XL_TY_NONE;
    case XL_DEF_EMPTY:
        if (a->kind == XL_AT_STR)
            return a->str.n == 0;
        if (a->kind == XL_AT_STRUCT)
            return all_default(a);
        return (a->kind == XL_AT_INTS || a->kind == XL_AT_ARRAY || a->kind == XL_AT_DICT) && a->n == 0;
    }
    return false;
}

void xl_op_normalize(xl_module *m, xl_op *op)
{
    (void)m;
    const xl_attr_row *row = &xl_attr_rows[xl_ops[op->code].row0];
    for (uint32_t i = 0, n = xl_op_nattr(op->code); i < n; i++)
        if (op->attr[i] && is_default(op->attr[i], row[i].def) &&
            !(row[i].want == XL_AK_PRECISIONS && op->attr[i]->n > 2))
            op->attr[i] = NULL; /* three precisions are no default but a mistake: the verifier's */
    if (op->extra && op->extra->n == 0)
        op->extra = NULL;
}

/* ---- typed access ----------------------------------------------------------------------------------------------- */
xl_dims xl_op_dims(const xl_op *op, uint32_t slot)
{
    const xl_attr *a = op->attr[slot];
    return a && a->kind == XL_AT_INTS ? (xl_dims){ a->ints, a->n } : (xl_dims){ NULL, 0 };
}

int64_t xl_op_int(const xl_op *op, uint32_t slot)
{
    const xl_attr *a = op->attr[slot];
    if (a)
        return a->kind == XL_AT_INT || a->kind == XL_AT_BOOL || a->kind == XL_AT_ENUM ? a->i : 0;
    xl_attr_default def = xl_attr_rows[xl_ops[op->code].row0 + slot].def;
    return def == XL_DEF_ONE ? 1 : def == XL_DEF_MINUS_ONE ? -1 : 0;
}

xl_str xl_op_str(const xl_op *op, uint32_t slot)
{
    const xl_attr *a = op->attr[slot];
    return a && (a->kind == XL_AT_STR || a->kind == XL_AT_SYM) ? a->str : (xl_str){ "", 0 };
}

bool xl_op_groups(const xl_op *op, uint32_t slot, const int64_t **ids, int64_t *ngroup, int64_t *size)
{
    const xl_attr *a = op->attr[slot];
    if (!a || a->kind != XL_AT_DENSE || a->dtype != XL_I64 || a->type->rank != 2 || a->splat)
        return false;
    *ids = (const int64_t *)(const void *)a->data.p;
    *ngroup = a->type->dims[0];
    *size = a->type->dims[1];
    return true;
}

/* ---- copies ----------------------------------------------------------------------------------------------------- */
xl_op *xl_op_clone(xl_func *g, xl_region *r, const xl_func *f, const xl_op *op, xl_value *map)
{
    xl_arena *a = &g->m->arena;
    xl_value *in = xl_new(a, xl_value, op->nin);
    const xl_type **out = xl_new(a, const xl_type *, op->nout);
    for (uint32_t i = 0; i < op->nin; i++)
        in[i] = map[op->in[i].id];
    for (uint32_t i = 0; i < op->nout; i++)
        out[i] = xl_out_type(f, op, i);
    xl_op *c = xl_op_new(g, r, (xl_opcode)op->code, in, op->nin, out, op->nout, op->nregion, op->loc);
    c->extra = op->extra;
    c->name = op->name;
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++)
        c->attr[i] = op->attr[i];
    for (uint32_t i = 0; i < op->nout; i++) {
        g->val[c->out[i].id].name = f->val[op->out[i].id].name;
        map[op->out[i].id] = c->out[i];
    }
    for (uint32_t k = 0; k < op->nregion; k++) {
        const xl_region *from = op->region[k];
        for (uint32_t i = 0; i < from->narg; i++) {
            xl_val v = f->val[from->arg[i].id];
            map[from->arg[i].id] = xl_region_add_arg(g, c->region[k], v.type, v.loc);
        }
        for (uint32_t i = 0; i < from->nop; i++)
            xl_op_clone(g, c->region[k], f, from->op[i], map);
    }
    return c;
}

void xl_region_clone_into(xl_func *g, xl_region *r, const xl_func *f, const xl_region *body, xl_value *map,
                          xl_value *ret, uint32_t nret)
{
    for (uint32_t i = 0; i < body->nop; i++) {
        const xl_op *op = body->op[i];
        if (op->code == XL_OP_RETURN) {
            for (uint32_t k = 0; k < nret && k < op->nin; k++)
                ret[k] = map[op->in[k].id];
            return;
        }
        xl_op_clone(g, r, f, op, map);
    }
}

void xl_region_called_from(xl_module *m, const xl_region *r, uint32_t first, xl_loc caller)
{
    xl_loc_info last = { .kind = XL_LOC_CALL, .b = caller };
    xl_loc made = { 0 };
    for (uint32_t i = first; i < r->nop; i++) {
        if (!made.id || last.a.id != r->op[i]->loc.id) {
            last.a = r->op[i]->loc;
            made = xl_loc_add(m, &last);
        }
        r->op[i]->loc = made;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            xl_region_called_from(m, r->op[i]->region[k], 0, caller);
    }
}
