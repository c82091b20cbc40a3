/* Values, regions, ops, functions and the module of the text; and the reader's front door. */
#include <stdlib.h>

#include "ir/read.h"
#include "ir/text/text.h"

#define PUSH(arr, n, cap, x) XL_PUSH(&p->tmp, p->arr, p->n, p->cap, x)

/* ---- names of values -------------------------------------------------------------------------------------------- */
static inline bool value_char(char c) { return xl_text_is(c, XL_CH_WORD) || c == '-'; }

/* The entry of a name; its binding is -1 where nothing has it. */
static uint32_t name_entry(xl_text *p, xl_str name, uint32_t h)
{
    XL_TABLE_EACH(&p->name_index, h, k)
        if (xl_str_eq(p->name[k].name, name))
            return k;
    xl_text_name fresh = { name, -1 };
    xl_table_add(&p->name_index, &p->tmp, h, p->nname);
    PUSH(name, nname, capname, fresh);
    return p->nname - 1;
}

static xl_str scan_name(xl_text *p, uint32_t *hash)
{
    uint32_t h = 2166136261u;
    if (!text_take(p, '%'))
        xl_text_fail(p, "expected a value");
    const char *s = p->s;
    for (; value_char(*p->s); p->s++)
        h = (h ^ (unsigned char)*p->s) * 16777619u;
    if (p->s == s)
        xl_text_fail(p, "a value has no name");
    *hash = h ^ h >> 15;
    return (xl_str){ s, (size_t)(p->s - s) };
}

xl_str xl_text_value_name(xl_text *p)
{
    uint32_t h;
    return scan_name(p, &h);
}

void xl_text_define(xl_text *p, xl_str name, uint32_t first, uint32_t count)
{
    uint32_t k = name_entry(p, name, xl_text_hash(name));
    xl_text_binding b = { k, first, count, p->name[k].binding };
    p->name[k].binding = (int32_t)p->nbind;
    PUSH(bind, nbind, capbind, b);
    for (uint32_t i = 0; i < count; i++)
        p->f->val[first + i].name = name;
}

xl_text_scope xl_text_open(xl_text *p)
{
    xl_text_enter(p);
    return p->nbind;
}

void xl_text_close(xl_text *p, xl_text_scope s)
{
    while (p->nbind > s) {
        const xl_text_binding *b = &p->bind[--p->nbind];
        p->name[b->name].binding = b->below;
    }
    text_leave(p);
}

xl_value xl_text_value(xl_text *p)
{
    uint32_t h;
    xl_str name = scan_name(p, &h);
    uint32_t k = name_entry(p, name, h);
    if (p->name[k].binding < 0) {
        p->s = name.p - 1;
        xl_text_fail(p, "%%%.*s is used before it is defined", (int)(name.n < 80 ? name.n : 80), name.p);
    }
    const xl_text_binding *b = &p->bind[p->name[k].binding];
    int64_t at = 0;
    if (*p->s == '#') {
        p->s++;
        at = xl_text_int(p);
    }
    if (at < 0 || at >= b->count)
        xl_text_fail(p, "%%%.*s has %u results", (int)(name.n < 80 ? name.n : 80), name.p, b->count);
    return (xl_value){ b->first + (uint32_t)at };
}

void xl_text_operand(xl_text *p)
{
    xl_value v = xl_text_value(p);
    PUSH(val, nval, capval, v);
}

void xl_text_operands(xl_text *p, char close)
{
    if (text_take(p, close))
        return;
    do
        xl_text_operand(p);
    while (text_take(p, ','));
    xl_text_want(p, close);
}

/* ---- parts of an op --------------------------------------------------------------------------------------------- */
void xl_text_put(xl_text *p, xl_text_op *c, xl_str key, const xl_attr *a)
{
    const char *why = c->code == XL_OP_UNKNOWN ? "" : xl_slot_put(p->m, c->code, c->slot, key, a);
    if (!why)
        return;
    if (*why)
        xl_text_fail(p, "%.*s: %s", XL_FMT(key), why);
    xl_text_pair e = { key, a };
    PUSH(pair, npair, cappair, e);
}

void xl_text_attrs(xl_text *p, xl_text_op *c)
{
    if (!text_at(p, '{'))
        return;
    uint32_t mark = p->npair;
    xl_text_pairs(p);
    uint32_t end = p->npair;
    p->npair = mark; /* what is kept moves down: never past what is still to be read */
    for (uint32_t i = mark; i < end; i++) {
        xl_text_pair e = p->pair[i];
        xl_text_put(p, c, e.key, e.value);
    }
}

static const xl_type *operand_type(const xl_text *p, const xl_text_op *c, uint32_t i)
{
    return p->f->val[p->val[c->val0 + i].id].type;
}

void xl_text_functype(xl_text *p, xl_text_op *c)
{
    uint32_t n = p->nval - c->val0, i = 0;
    xl_text_want(p, '(');
    if (!text_take(p, ')')) {
        do {
            const char *at = p->s;
            const xl_type *t = xl_text_type_of(p);
            if (i >= n)
                xl_text_fail(p, "there are more operand types than operands");
            if (t != operand_type(p, c, i)) {
                p->s = at;
                xl_text_fail(p, "operand %u was defined with another type", i);
            }
            i++;
        } while (text_take(p, ','));
        xl_text_want(p, ')');
    }
    if (i != n)
        xl_text_fail(p, "there are %u operands and %u operand types", n, i);
    text_skip(p);
    if (p->s[0] != '-' || p->s[1] != '>')
        xl_text_fail(p, "expected '->'");
    p->s += 2;
    if (text_take(p, '(')) {
        if (text_take(p, ')'))
            return;
        do {
            const xl_type *t = xl_text_type_of(p);
            PUSH(ty, nty, capty, t);
        } while (text_take(p, ','));
        xl_text_want(p, ')');
    } else {
        const xl_type *t = xl_text_type_of(p);
        PUSH(ty, nty, capty, t);
    }
}

void xl_text_generic(xl_text *p, xl_text_op *c)
{
    xl_text_want(p, '(');
    xl_text_operands(p, ')');
    if (text_at(p, '['))
        xl_text_fail(p, "control flow between blocks is not StableHLO's");
    if (text_at(p, '<')) {
        p->s++;
        xl_text_attrs(p, c);
        xl_text_want(p, '>');
    }
    if (text_take(p, '(')) {
        do {
            xl_region *r = xl_region_new(p->f, NULL);
            xl_text_region(p, r);
            PUSH(reg, nreg, capreg, r);
        } while (text_take(p, ','));
        xl_text_want(p, ')');
    }
    xl_text_attrs(p, c);
    xl_text_want(p, ':');
    xl_text_functype(p, c);
}

/* Takes the op off the stacks and into the region. */
static void finish(xl_text *p, xl_text_op *c, xl_loc loc)
{
    uint32_t nin = p->nval - c->val0, nout = p->nty - c->ty0, nreg = p->nreg - c->reg0, named = 0;
    for (uint32_t i = c->want0; i < p->nwant; i++)
        if (__builtin_add_overflow(named, p->want[i].count, &named))
            xl_text_fail(p, "too many results");
    if (p->nwant > c->want0 && named != nout)
        xl_text_fail(p, "%u results are named, the op has %u", named, nout);
    const xl_op_info *info = &xl_ops[c->code];
    if ((info->nin >= 0 && nin != (uint32_t)info->nin) || (info->nout >= 0 && nout != (uint32_t)info->nout) ||
        (info->nregion >= 0 && nreg != (uint32_t)info->nregion))
        xl_text_fail(p, "wrong number of operands, results or regions: %u, %u and %u", nin, nout, nreg);
    if (nreg > UINT16_MAX)
        xl_text_fail(p, "too many regions");
    uint32_t first = p->f->nval;
    if (c->forward) {
        for (uint32_t i = c->want0, k = 0; i < p->nwant; k += p->want[i++].count)
            if (p->want[i].count == 1)
                xl_text_define(p, p->want[i].name, p->val[c->val0 + k].id, 1);
            else
                xl_text_fail(p, "a cast of several values needs a name for each");
    } else {
        xl_op *op = xl_op_new(p->f, c->r, c->code, p->val + c->val0, nin, p->ty + c->ty0, nout, 0, loc);
        for (uint32_t i = 0, n = xl_op_nattr(c->code); i < n; i++)
            op->attr[i] = c->slot[i];
        if (p->npair > c->pair0)
            op->extra = xl_text_keyed(p, c->pair0, (xl_str){ 0 });
        if (c->code == XL_OP_UNKNOWN)
            op->name = xl_str_dup(&p->m->arena, c->name);
        if (nreg) {
            op->region = xl_new(&p->m->arena, xl_region *, nreg);
            op->nregion = (uint16_t)nreg;
            for (uint32_t i = 0; i < nreg; i++) {
                op->region[i] = p->reg[c->reg0 + i];
                op->region[i]->owner = op;
            }
        }
        xl_op_normalize(p->m, op);
        for (uint32_t i = c->want0; i < p->nwant; first += p->want[i++].count)
            xl_text_define(p, p->want[i].name, first, p->want[i].count);
    }
    p->nval = c->val0;
    p->nty = c->ty0;
    p->npair = c->pair0;
    p->nreg = c->reg0;
    p->nwant = c->want0;
}

static void op(xl_text *p, xl_region *r)
{
    xl_text_op c = { .r = r, .val0 = p->nval, .ty0 = p->nty, .pair0 = p->npair, .reg0 = p->nreg, .want0 = p->nwant };
    xl_loc loc;
    p->nop = 0;
    if (*p->s == '%') {
        do {
            xl_text_result w = { xl_text_value_name(p), 1 };
            if (*p->s == ':') {
                p->s++;
                int64_t n = xl_text_int(p);
                if (n < 1 || n > 1 << 20)
                    xl_text_fail(p, "a number of results is out of range");
                w.count = (uint32_t)n;
            }
            PUSH(want, nwant, capwant, w);
        } while (text_take(p, ','));
        xl_text_want(p, '=');
    }
    bool quoted = text_at(p, '"');
    const char *at = p->s;
    c.name = quoted ? xl_text_string(p) : xl_text_ident(p);
    if (!quoted && xl_str_is(c.name, "return"))
        c.code = XL_OP_RETURN;
    else if (!quoted && xl_str_is(c.name, "call"))
        c.code = XL_OP_CALL;
    else
        c.code = c.name.n ? xl_opcode_find(c.name) : XL_OP_UNKNOWN;
    if (c.name.n == 0) {
        p->s = at;
        xl_text_fail(p, "an op has no name");
    }
    p->op = c.name.p;
    p->nop = c.name.n;
    if (quoted)
        xl_text_generic(p, &c);
    else
        xl_text_custom(p, &c);
    if (quoted && c.code == XL_OP_UNKNOWN && xl_str_is(c.name, "builtin.unrealized_conversion_cast"))
        c.forward = p->nval - c.val0 == p->nty - c.ty0;
    p->op = c.name.p;
    p->nop = c.name.n;
    (void)xl_text_loc(p, &loc);
    if (c.code == XL_OP_REDUCE && p->nreg > c.reg0) /* what `applies` wrote for us lies where the reduction does */
        for (uint32_t i = 0; i < p->reg[c.reg0]->nop; i++)
            if (!p->reg[c.reg0]->op[i]->loc.id)
                p->reg[c.reg0]->op[i]->loc = loc;
    finish(p, &c, loc);
    p->nop = 0;
}

/* ---- regions ---------------------------------------------------------------------------------------------------- */
void xl_text_region_args(xl_text *p, xl_region *r)
{
    if (text_take(p, ')'))
        return;
    do {
        xl_loc loc;
        xl_str name = xl_text_value_name(p);
        xl_text_want(p, ':');
        const xl_type *t = xl_text_type_of(p);
        (void)xl_text_loc(p, &loc);
        xl_text_define(p, name, xl_region_add_arg(p->f, r, t, loc).id, 1);
    } while (text_take(p, ','));
    xl_text_want(p, ')');
}

void xl_text_body(xl_text *p, xl_region *r)
{
    xl_text_want(p, '{');
    if (text_at(p, '^')) {
        p->s++;
        while (value_char(*p->s))
            p->s++;
        if (text_take(p, '('))
            xl_text_region_args(p, r);
        xl_text_want(p, ':');
    }
    const char *outer = p->op;
    size_t nouter = p->nop;
    while (!text_take(p, '}')) {
        if (*p->s == '^')
            xl_text_fail(p, "a region has more than one block; StableHLO's have one");
        op(p, r);
    }
    p->op = outer;
    p->nop = nouter;
}

void xl_text_region(xl_text *p, xl_region *r)
{
    xl_text_scope s = xl_text_open(p);
    xl_text_body(p, r);
    xl_text_close(p, s);
}

/* ---- functions and the module ----------------------------------------------------------------------------------- */
static void once(xl_text *p, xl_str symbol)
{
    xl_text_alias *a = xl_text_find_alias(p, xl_strf(&p->tmp, "@%.*s", XL_FMT(symbol)));
    if (a->defined)
        xl_text_fail(p, "@%.*s is defined twice", (int)(symbol.n < 80 ? symbol.n : 80), symbol.p);
    a->defined = true;
}

static xl_func *new_func(xl_text *p, xl_str name)
{
    p->f = xl_func_new(p->m, name);
    return p->f;
}

static int visibility(xl_text *p, xl_str w)
{
    if (xl_str_is(w, "private"))
        return XL_PRIVATE;
    if (xl_str_is(w, "nested"))
        return XL_NESTED;
    if (!xl_str_is(w, "public"))
        xl_text_fail(p, "a function is public, private or nested");
    return XL_PUBLIC;
}

static void function(xl_text *p)                           /* after func.func */
{
    uint32_t tmark = p->nty, imark = p->nitem;
    xl_text_scope s = xl_text_open(p);
    int vis = XL_PUBLIC;
    if (!text_at(p, '@'))
        vis = visibility(p, xl_text_ident(p));
    xl_str name = xl_text_symbol(p);
    once(p, name);
    xl_func *f = new_func(p, name);
    f->visibility = vis == XL_PRIVATE ? XL_PRIVATE : vis == XL_NESTED ? XL_NESTED : XL_PUBLIC;
    xl_text_want(p, '(');
    bool named = text_at(p, '%');
    if (!text_take(p, ')')) {
        do {
            xl_str arg = { 0 };
            xl_loc loc;
            if (named) {
                arg = xl_text_value_name(p);
                xl_text_want(p, ':');
            }
            const xl_type *t = xl_text_type_of(p);
            const xl_attr *attr = text_at(p, '{') ? xl_text_dict(p) : NULL;
            (void)xl_text_loc(p, &loc);
            if (named) {
                xl_value v = xl_region_add_arg(f, f->body, t, loc);
                xl_text_define(p, arg, v.id, 1);
            }
            PUSH(ty, nty, capty, t);
            PUSH(item, nitem, capitem, attr);
        } while (text_take(p, ','));
        xl_text_want(p, ')');
    }
    uint32_t nin = p->nty - tmark;
    text_skip(p);
    if (p->s[0] == '-' && p->s[1] == '>') {
        p->s += 2;
        bool many = text_take(p, '(');
        if (!many || !text_take(p, ')')) {
            do {
                const xl_type *t = xl_text_type_of(p);
                const xl_attr *attr = many && text_at(p, '{') ? xl_text_dict(p) : NULL;
                PUSH(ty, nty, capty, t);
                PUSH(item, nitem, capitem, attr);
            } while (many && text_take(p, ','));
            if (many)
                xl_text_want(p, ')');
        }
    }
    uint32_t nout = p->nty - tmark - nin;
    f->type = xl_type_func(p->m, p->ty + tmark, nin, p->ty + tmark + nin, nout);
    f->arg_attr = xl_new(&p->m->arena, const xl_attr *, (size_t)nin + nout);
    f->res_attr = f->arg_attr + nin;
    if (nin + nout)
        memcpy(f->arg_attr, p->item + imark, ((size_t)nin + nout) * sizeof *f->arg_attr);
    p->nty = tmark;
    p->nitem = imark;
    if (xl_text_word(p, "attributes"))
        f->extra = xl_text_dict(p);
    if (text_at(p, '{')) {
        if (!named && nin)
            xl_text_fail(p, "a function with a body must name its arguments");
        xl_text_region(p, f->body);
    } else {
        if (named)
            xl_text_fail(p, "a function without a body does not name its arguments");
        f->body = NULL;
    }
    (void)xl_text_loc(p, &f->loc);
    xl_text_close(p, s);
    p->f = NULL;
}

static void mesh(xl_text *p)                               /* after sdy.mesh */
{
    xl_mesh_sym m = { 0 };
    m.name = xl_text_symbol(p);
    once(p, m.name);
    xl_text_want(p, '=');
    m.mesh = xl_text_mesh(p);
    if (text_at(p, '{'))
        (void)xl_text_dict(p);                             /* stablehlo.mesh, which says the same */
    (void)xl_text_loc(p, &m.loc);
    XL_PUSH(&p->m->arena, p->m->mesh, p->m->nmesh, p->m->capmesh, m);
}

static const xl_attr *take(xl_module *m, const xl_attr **dict, const char *key)
{
    const xl_attr *a = xl_dict_get(*dict, xl_str_of(key));
    if (a)
        *dict = xl_dict_with(m, *dict, xl_str_of(key), NULL);
    return a;
}

static void each_attr(xl_text *p, const xl_attr *list, const xl_attr **out, uint32_t n)
{
    if (list && (list->kind != XL_AT_ARRAY || list->n != n))
        xl_text_fail(p, "there must be one dictionary for each argument or result");
    for (uint32_t i = 0; list && i < n; i++)
        out[i] = list->item[i]->kind == XL_AT_DICT && list->item[i]->n ? list->item[i] : NULL;
}

static void items(xl_text *p, bool inside);

/* "func.func"() <{function_type = ..., sym_name = "main"}> ({ ... }) : () -> () and its kin. */
static void generic_symbol(xl_text *p, bool inside)
{
    xl_str name = xl_text_string(p);
    uint32_t mark = p->npair;
    bool is_func = xl_str_is(name, "func.func"), is_module = xl_str_is(name, "builtin.module"),
         is_mesh = xl_str_is(name, "sdy.mesh");
    xl_loc loc;
    if (!is_func && !is_module && !is_mesh)
        xl_text_fail(p, "'%.*s' cannot stand outside a function", (int)(name.n < 80 ? name.n : 80), name.p);
    if (is_module && inside)
        xl_text_fail(p, "a module inside a module is not supported");
    xl_text_want(p, '(');
    xl_text_want(p, ')');
    if (text_take(p, '<')) {
        xl_text_pairs(p);
        xl_text_want(p, '>');
    }
    xl_func *f = is_func ? new_func(p, XL_STR("")) : NULL;
    if (text_take(p, '(')) {
        if (is_mesh)
            xl_text_fail(p, "a mesh has no region");
        if (is_module) {
            xl_text_want(p, '{');
            if (text_at(p, '^'))
                while (*p->s && *p->s++ != ':')
                    ;
            items(p, true);
        } else {
            XL_KNOWN(f);                                   /* neither mesh nor module: a function */
            text_skip(p);
            const char *at = p->s;
            xl_text_want(p, '{');
            if (text_take(p, '}')) {                       /* an empty region is a declaration */
                f->body = NULL;
            } else {
                p->s = at;
                xl_text_region(p, f->body);
            }
        }
        xl_text_want(p, ')');
    }
    if (text_at(p, '{'))
        xl_text_pairs(p);
    const xl_attr *d = p->npair > mark ? xl_text_keyed(p, mark, (xl_str){ 0 }) : NULL;
    xl_text_want(p, ':');
    (void)xl_text_type_of(p);
    (void)xl_text_loc(p, &loc);
    const xl_attr *sym = take(p->m, &d, "sym_name"), *vis = take(p->m, &d, "sym_visibility");
    if ((sym && sym->kind != XL_AT_STR) || (vis && vis->kind != XL_AT_STR) || (!sym && !is_module))
        xl_text_fail(p, "%.*s: sym_name is missing or not a string", XL_FMT(name));
    if (is_module) {
        p->m->name = sym ? sym->str : (xl_str){ "", 0 };
        p->m->extra = d;
        return;
    }
    once(p, sym->str);
    if (is_mesh) {
        const xl_attr *v = take(p->m, &d, "mesh");
        if (!v || v->kind != XL_AT_MESH)
            xl_text_fail(p, "sdy.mesh: the mesh is missing");
        xl_mesh_sym m = { sym->str, v->mesh, loc };
        XL_PUSH(&p->m->arena, p->m->mesh, p->m->nmesh, p->m->capmesh, m);
        return;
    }
    XL_KNOWN(f);
    const xl_attr *type = take(p->m, &d, "function_type");
    if (!type || type->kind != XL_AT_TYPE || type->type->kind != XL_TY_FUNC)
        xl_text_fail(p, "func.func: function_type is missing");
    uint32_t nin = type->type->nin, nout = type->type->nelem - nin;
    if (f->body && f->body->narg != nin)
        xl_text_fail(p, "func.func: the block has %u arguments, the type %u", f->body->narg, nin);
    for (uint32_t i = 0; f->body && i < nin; i++)
        if (f->val[f->body->arg[i].id].type != type->type->elem[i])
            xl_text_fail(p, "func.func: argument %u has another type than the function's", i);
    f->name = xl_str_dup(&p->m->arena, sym->str);
    int v = vis ? visibility(p, vis->str) : XL_PUBLIC;
    f->visibility = v == XL_PRIVATE ? XL_PRIVATE : v == XL_NESTED ? XL_NESTED : XL_PUBLIC;
    f->type = type->type;
    f->loc = loc;
    f->arg_attr = xl_new(&p->m->arena, const xl_attr *, (size_t)nin + nout);
    f->res_attr = f->arg_attr + nin;
    each_attr(p, take(p->m, &d, "arg_attrs"), f->arg_attr, nin);
    each_attr(p, take(p->m, &d, "res_attrs"), f->res_attr, nout);
    f->extra = d;
    p->f = NULL;
}

/* What may stand at the top, or inside the module up to its closing brace. */
static void items(xl_text *p, bool inside)
{
    bool seen = inside;
    for (;;) {
        p->nop = 0;
        text_skip(p);
        if (inside && text_take(p, '}'))
            return;
        if (p->s >= p->end) {
            if (inside)
                xl_text_fail(p, "the module's closing brace is missing");
            if (!seen)
                xl_text_fail(p, "the text has no module and no function");
            return;
        }
        if (!inside && (*p->s == '#' || *p->s == '!')) {
            xl_text_alias_def(p);
            continue;
        }
        if (!inside && !strncmp(p->s, "{-#", 3)) {
            p->nres = 0;
            xl_text_resources(p);
            continue;
        }
        if (*p->s == '"') {
            generic_symbol(p, inside);
            seen = true;
            continue;
        }
        const char *at = p->s;
        xl_str w = xl_text_ident(p);
        p->op = w.p;
        p->nop = w.n;
        if (xl_str_is(w, "func.func") || xl_str_is(w, "func")) {
            function(p);
        } else if (xl_str_is(w, "sdy.mesh")) {
            mesh(p);
        } else if ((xl_str_is(w, "module") || xl_str_is(w, "builtin.module")) && !inside) {
            xl_loc loc;
            if (seen)
                xl_text_fail(p, "there is more than one module");
            if (text_at(p, '@'))
                p->m->name = xl_text_symbol(p);
            if (xl_text_word(p, "attributes"))
                p->m->extra = xl_text_dict(p);
            xl_text_want(p, '{');
            items(p, true);
            (void)xl_text_loc(p, &loc);
        } else {
            p->s = at;
            p->nop = 0;
            xl_text_fail(p, "'%.*s' cannot stand outside a function", (int)(w.n < 80 ? w.n : 80), w.p);
        }
        seen = true;
    }
}

/* Constants refer to a trailer that follows them. */
static void find_resources(xl_text *p)
{
    size_t n = (size_t)(p->end - p->start);
    if (!memmem(p->start, n, "dense_resource", 14))
        return;
    const char *at = memmem(p->start, n, "\n{-#", 4);
    if (!at)
        return;
    p->s = at + 1;
    xl_text_resources(p);
    p->s = p->start;
}

static void set_up(xl_text *p)
{
    xl_str bytes = p->bytes;
    /* The stacks exist from the start, so that "above the mark" is an address even where there is nothing. */
    p->capnum = p->capty = p->capval = p->capitem = p->cappair = p->capreg = p->capwant = 64;
    p->num = xl_new(&p->tmp, int64_t, p->capnum);
    p->ty = xl_new(&p->tmp, const xl_type *, p->capty);
    p->val = xl_new(&p->tmp, xl_value, p->capval);
    p->item = xl_new(&p->tmp, const xl_attr *, p->capitem);
    p->pair = xl_new(&p->tmp, xl_text_pair, p->cappair);
    p->reg = xl_new(&p->tmp, xl_region *, p->capreg);
    p->want = xl_new(&p->tmp, xl_text_result, p->capwant);
    if (bytes.n > UINT32_MAX / 2)
        xl_text_fail(p, "the text is larger than 2 GiB");
    p->s = p->start = xl_str_dup(&p->m->arena, bytes).p;
    p->end = p->start + bytes.n;
    const char *nul = memchr(p->start, 0, bytes.n);
    if (nul) {
        p->s = nul;
        xl_text_fail(p, "the text has a NUL byte in it");
    }
}

static xl_text *text_new(xl_str bytes, size_t limit)
{
    xl_text *p = calloc(1, sizeof *p);
    if (p) {
        p->bytes = bytes;
        p->tmp.limit = limit;
        p->tmp.oom = &p->out;
    }
    return p;
}

static void text_free(xl_text *p)
{
    if (!p)
        return;
    xl_arena_fini(&p->tmp);
    free(p);
}

static void whole(xl_text *p)
{
    set_up(p);
    find_resources(p);
    items(p, false);
    xl_text_check_aliases(p);
}

static void fragment_end(xl_text *p)
{
    text_skip(p);
    if (p->s != p->end)
        xl_text_fail(p, "something follows where nothing should");
    xl_text_check_aliases(p);
}

static void just_attr(xl_text *p)
{
    set_up(p);
    p->attr = xl_text_attr(p);
    fragment_end(p);
}

static void just_type(xl_text *p)
{
    set_up(p);
    p->just = xl_text_type_of(p);
    fragment_end(p);
}

/* False if it left by longjmp; then p->err says why, or is NULL for want of memory. */
static bool attempt(xl_text *p, void (*run)(xl_text *))
{
    if (setjmp(p->out))
        return false;
    run(p);
    return true;
}

xl_error *xl_read_text(xl_str bytes, const xl_read_opts *opts, xl_module **out)
{
    xl_error *err = NULL;
    /* An op of twenty characters takes some three hundred bytes; 64 per byte is generous, and the floor is for small
     * texts. */
    size_t limit = opts && opts->memory ? opts->memory
                                        : ((size_t)64 << 20) + (bytes.n < SIZE_MAX / 256 ? bytes.n * 64 : SIZE_MAX / 4);
    xl_text *p = text_new(bytes, limit);
    *out = NULL;
    if (p)
        p->m = xl_module_new_bounded(limit, &p->out);
    if (!p || !p->m) {
        err = XL_ERR(EXHAUSTED, "no memory to read a program");
        goto out;
    }
    p->no_locations = opts && opts->no_locations;
    if (attempt(p, whole)) {
        p->m->arena.oom = NULL;                            /* the module outlives this frame */
        p->m->arena.limit = 0;
        *out = p->m;
    } else {
        err = p->err ? p->err
                     : XL_ERR(EXHAUSTED,
                              "the program needs more than %zu MiB to be read; raise the limit if it is trusted",
                              limit >> 20);
        xl_module_free(p->m);
    }
out:
    text_free(p);
    return err;
}

/* One attribute or type: the module and its limits are the caller's; only our own exit is put in for the while. */
static xl_error *fragment(xl_module *m, xl_str text, void (*run)(xl_text *), const xl_attr **attr, const xl_type **type)
{
    xl_text *p = text_new(text, ((size_t)16 << 20) + text.n * 64);
    if (!p)
        return XL_ERR(EXHAUSTED, "no memory to read an attribute");
    jmp_buf *outer = m->arena.oom;
    xl_error *err = NULL;
    p->m = m;
    m->arena.oom = &p->out;
    if (!attempt(p, run))
        err = p->err ? p->err : XL_ERR(EXHAUSTED, "no memory to read an attribute");
    m->arena.oom = outer;
    if (attr)
        *attr = p->attr;
    if (type)
        *type = p->just;
    text_free(p);
    return err;
}

xl_error *xl_read_text_attr(xl_module *m, xl_str text, const xl_attr **out)
{
    return fragment(m, text, just_attr, out, NULL);
}
xl_error *xl_read_text_type(xl_module *m, xl_str text, const xl_type **out)
{
    return fragment(m, text, just_type, NULL, out);
}
