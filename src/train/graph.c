#include "train/graph.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/text/print.h"
#include "pass/grad.h"
#include "train/spread.h"

/* ---- life, errors, places ---------------------------------------------------------------------------------------- */
xl_graph *xl_graph_new(const char *name)
{
    xl_module *m = xl_module_new();
    if (!m)
        return NULL;
    xl_graph *g = xl_new(&m->arena, xl_graph, 1);
    g->m = m;
    g->name = xl_str_dup(&m->arena, xl_str_of(name && *name ? name : "graph"));
    m->name = g->name;
    g->f = xl_func_new(m, XL_STR("graph"));
    g->f->visibility = XL_PRIVATE;
    g->e = xl_b_at(g->f, NULL);
    g->compute = XL_F32;
    g->loss = XL_NO_VALUE;
    g->remat_from = UINT32_MAX;
    return g;
}

void xl_graph_free(xl_graph *g)
{
    if (!g)
        return;
    xl_error_free(g->err);
    xl_module_free(g->m);
}

const xl_error *xl_graph_error(const xl_graph *g) { return g->err; }

xl_graph *xl_graph_at(xl_graph *g, const char *file, int line)
{
    if (!g)
        return NULL;
    g->file = file;
    g->line = line;
    if (line != g->last_line || g->last_file != file) {
        g->last_file = file;
        g->last_line = line;
        g->e.loc = xl_loc_file(g->m, xl_str_dup(&g->m->arena, xl_str_of(file)), (uint32_t)line, 1);
    }
    return g;
}

xl_tensor xl_graph_fail(xl_graph *g, const char *fmt, ...)
{
    if (g->err)
        return XL_NO_TENSOR;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    g->err = g->file ? XL_ERR(INVALID, "%s:%d: %s", g->file, g->line, text) : XL_ERR(INVALID, "%s", text);
    return XL_NO_TENSOR;
}

bool xl_graph_ok(xl_graph *g, const char *op, const xl_tensor *t, int n)
{
    if (g->err)
        return false;
    for (int i = 0; i < n; i++)
        if (t[i].id >= g->f->nval) {
            xl_graph_fail(g, "%s: operand %d is not a tensor of this graph", op, i + 1);
            return false;
        }
    return true;
}

const char *xl_shape(xl_graph *g, xl_tensor t)
{
    if (t.id >= g->f->nval)
        return "?";
    const xl_type *ty = xl_graph_type(g, t);
    xl_buf b = { 0 };
    xl_buf_printf(&b, "%s[", xl_dtypes[ty->dtype].text);
    for (uint32_t i = 0; i < ty->rank; i++)
        xl_buf_printf(&b, i ? ",%lld" : "%lld", (long long)ty->dims[i]);
    xl_buf_putc(&b, ']');
    const char *s = xl_str_c(&g->m->arena, xl_buf_view(&b));
    xl_buf_fini(&b);
    return s;
}

int64_t xl_dim(xl_graph *g, xl_tensor t, int i)
{
    if (!xl_graph_ok(g, "dim", &t, 1))
        return 0;
    const xl_type *ty = xl_graph_type(g, t);
    int at = i < 0 ? i + (int)ty->rank : i;
    if (at >= 0 && (uint32_t)at < ty->rank)
        return ty->dims[at];
    xl_graph_fail(g, "dim: %s has no dimension %d", xl_shape(g, t), i);
    return 0;
}

/* ---- the small language of types and lists ----------------------------------------------------------------------- */
static bool parse_list(xl_graph *g, const char *what, const char *text, int64_t *out, uint32_t *n)
{
    const char *s = text ? text : "";
    bool bracket = *s == '[';
    s += bracket;
    *n = 0;
    while (*s && *s != ']') {
        char *end;
        long long v = strtoll(s, &end, 10);
        if (end == s || *n == XL_DIMS_MAX || (*end && *end != ',' && *end != ']')) {
            xl_graph_fail(g, "%s: \"%s\" is not a list such as \"[8,-1]\"", what, text);
            return false;
        }
        out[(*n)++] = v;
        s = *end == ',' ? end + 1 : end;
    }
    if (bracket && strcmp(s, "]")) {
        xl_graph_fail(g, "%s: \"%s\" lacks its closing bracket", what, text);
        return false;
    }
    return true;
}

static const xl_type *parse_type(xl_graph *g, const char *what, const char *text)
{
    const char *open = text ? strchr(text, '[') : NULL;
    xl_dtype d = open ? xl_dtype_find((xl_str){ text, (size_t)(open - text) }) : XL_DT_NONE;
    int64_t dims[XL_DIMS_MAX], count;
    uint32_t n;
    if (d == XL_DT_NONE) {
        xl_graph_fail(g, "%s: \"%s\" is not a type; write one such as \"f32[8,128]\"", what, text ? text : "");
        return NULL;
    }
    if (!parse_list(g, what, open, dims, &n))
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        if (dims[i] < 0) {
            xl_graph_fail(g, "%s: \"%s\" has a negative dimension", what, text);
            return NULL;
        }
    const xl_type *t = xl_type_tensor(g->m, d, (xl_dims){ dims, n });
    if (!xl_type_bytes(t, &count)) {
        xl_graph_fail(g, "%s: \"%s\" has more elements than can be counted", what, text);
        return NULL;
    }
    return t;
}

static bool axes_of(xl_graph *g, const char *what, const xl_type *t, const char *text, int64_t *out, uint32_t *n)
{
    if (!text) {
        *n = t->rank;
        for (uint32_t i = 0; i < t->rank; i++)
            out[i] = i;
        return true;
    }
    if (!parse_list(g, what, text, out, n))
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        if (out[i] < 0)
            out[i] += t->rank;
        if (out[i] < 0 || out[i] >= (int64_t)t->rank) {
            xl_graph_fail(g, "%s: \"%s\" names an axis that a tensor with %u does not have", what, text, t->rank);
            return false;
        }
        for (uint32_t k = 0; k < i; k++)
            if (out[k] == out[i]) {
                xl_graph_fail(g, "%s: \"%s\" names axis %lld twice", what, text, (long long)out[i]);
                return false;
            }
    }
    return true;
}

static bool one_axis(xl_graph *g, const char *what, xl_tensor a, int *axis)
{
    const xl_type *t = xl_graph_type(g, a);
    if (*axis < 0)
        *axis += (int)t->rank;
    if (*axis >= 0 && (uint32_t)*axis < t->rank)
        return true;
    xl_graph_fail(g, "%s: %s has no axis %d", what, xl_shape(g, a), *axis);
    return false;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */
static bool fresh_name(xl_graph *g, const char *what, const char *name)
{
    if (!name || !*name)
        xl_graph_fail(g, "%s: it needs a name", what);
    else if (xl_graph_param(g, xl_str_of(name)) || xl_graph_input(g, xl_str_of(name)))
        xl_graph_fail(g, "%s: there is a \"%s\" already", what, name);
    else if (g->depth)
        xl_graph_fail(g, "%s: \"%s\" is made inside a scan; make it before, with one row a turn", what, name);
    return !g->err;
}

static xl_value new_arg(xl_graph *g, xl_str name, const xl_type *t)
{
    xl_value v = xl_region_add_arg(g->f, g->f->body, t, xl_loc_name(g->m, name, g->e.loc));
    g->f->val[v.id].name = name;
    return v;
}

xl_tensor xl_input_dims(xl_graph *g, const char *name, xl_dtype d, xl_dims dims)
{
    if (g->err || !fresh_name(g, "input", name))
        return XL_NO_TENSOR;
    xl_input_info in = { .name = xl_str_dup(&g->m->arena, xl_str_of(name)), .type = xl_type_tensor(g->m, d, dims) };
    in.spec.rank = in.type->rank;
    if (g->spread && !xl_spread_of(g, in.name, dims, true, &in.spec, &in.said))
        return XL_NO_TENSOR;
    in.arg = new_arg(g, in.name, in.type);
    XL_PUSH(&g->m->arena, g->input, g->ninput, g->capinput, in);
    return xl_tensor_of(in.arg);
}

xl_tensor xl_input(xl_graph *g, const char *name, const char *type)
{
    const xl_type *t = g->err ? NULL : parse_type(g, "input", type);
    return t ? xl_input_dims(g, name, t->dtype, xl_type_dims(t)) : XL_NO_TENSOR;
}

static bool parse_init(xl_graph *g, const char *init, xl_param_info *p)
{
    xl_str rest = xl_str_of(init), word = xl_str_cut(&rest, ' ');
    double v = 0;
    if (rest.n && !xl_str_f64(xl_str_trim(rest), &v)) {
        xl_graph_fail(g, "param: \"%s\": what follows the word must be a number", init);
        return false;
    }
    p->scale = v;
    if (xl_str_is(word, "zeros"))
        p->init = XL_INIT_CONST, p->scale = 0;
    else if (xl_str_is(word, "ones"))
        p->init = XL_INIT_CONST, p->scale = 1;
    else if (xl_str_is(word, "const"))
        p->init = XL_INIT_CONST;
    else if (xl_str_is(word, "normal"))
        p->init = XL_INIT_NORMAL;
    else if (xl_str_is(word, "uniform"))
        p->init = XL_INIT_UNIFORM;
    else
        xl_graph_fail(g, "param: \"%s\" is none of zeros, ones, const C, normal S, uniform S", init ? init : "");
    return !g->err;
}

static xl_tensor new_param(xl_graph *g, const char *name, const xl_type *t, bool matrix, const char *init)
{
    xl_param_info p = { .type = t, .matrix = matrix };
    if (g->err || !fresh_name(g, "param", name) || !parse_init(g, init, &p))
        return XL_NO_TENSOR;
    if (t->dtype != XL_F32)
        return xl_graph_fail(g, "param: \"%s\" is of %s; parameters are kept in f32, see xl_graph_compute", name,
                             xl_dtypes[t->dtype].text);
    p.name = xl_str_dup(&g->m->arena, xl_str_of(name));
    p.spec.rank = t->rank;
    if (g->spread && !xl_spread_of(g, p.name, xl_type_dims(t), false, &p.spec, &p.said))
        return XL_NO_TENSOR;
    p.arg = new_arg(g, p.name, t);
    XL_PUSH(&g->m->arena, g->param, g->nparam, g->capparam, p);
    /* vectors (gains, biases) stay in f32: they are small, and where they act the computation is in f32 anyway */
    return xl_tensor_of(matrix ? xl_em_convert(&g->e, p.arg, g->compute) : p.arg);
}

xl_tensor xl_param(xl_graph *g, const char *name, const char *type, const char *init)
{
    const xl_type *t = g->err ? NULL : parse_type(g, "param", type);
    return t ? new_param(g, name, t, t->rank >= 2, init) : XL_NO_TENSOR;
}

xl_tensor xl_param_dims(xl_graph *g, const char *name, xl_dims dims, const char *init)
{
    return new_param(g, name, xl_type_tensor(g->m, XL_F32, dims), dims.n >= 2, init);
}

xl_tensor xl_param_rows(xl_graph *g, const char *name, xl_dims dims, const char *init)
{
    return new_param(g, name, xl_type_tensor(g->m, XL_F32, dims), dims.n >= 3, init);
}

void xl_graph_compute(xl_graph *g, const char *dtype)
{
    xl_dtype d = xl_dtype_find(xl_str_of(dtype));
    if (g->err)
        return;
    if (d != XL_F32 && d != XL_BF16 && d != XL_F16)
        xl_graph_fail(g, "compute: \"%s\" is none of f32, bf16, f16", dtype ? dtype : "");
    else if (g->nparam)
        xl_graph_fail(g, "compute: say it before the first parameter");
    else
        g->compute = d;
}

void xl_graph_foreign(xl_graph *g, const char *what, const char *const *custom, uint32_t n)
{
    static const char *const platform[] = { "cuda" };
    for (uint32_t i = 0; i < g->nforeign; i++)
        if (g->foreign[i].what == what)
            return;
    xl_foreign x = { .what = what,
                     .custom = (const char **)custom,
                     .ncustom = n,
                     .platform = (const char **)platform,
                     .nplatform = 1 };
    XL_PUSH(&g->m->arena, g->foreign, g->nforeign, g->capforeign, x);
}

const xl_param_info *xl_graph_param(const xl_graph *g, xl_str name)
{
    for (uint32_t i = 0; i < g->nparam; i++)
        if (xl_str_eq(g->param[i].name, name))
            return &g->param[i];
    return NULL;
}

const xl_input_info *xl_graph_input(const xl_graph *g, xl_str name)
{
    for (uint32_t i = 0; i < g->ninput; i++)
        if (xl_str_eq(g->input[i].name, name))
            return &g->input[i];
    return NULL;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
static bool scalar_float(xl_graph *g, const char *what, xl_tensor t)
{
    if (!xl_graph_ok(g, what, &t, 1))
        return false;
    const xl_type *ty = xl_graph_type(g, t);
    if (ty->rank || xl_dtype_class(ty->dtype) != XL_CLASS_FLOAT)
        xl_graph_fail(g, "%s: %s is not one float; reduce it first, for example with xl_mean", what, xl_shape(g, t));
    return !g->err;
}

void xl_loss(xl_graph *g, xl_tensor t)
{
    if (scalar_float(g, "loss", t))
        g->loss = xl_em_convert(&g->e, xl_val_of(t), XL_F32);
}

xl_func *xl_graph_func(xl_graph *g, const char *name)
{
    xl_func *f = xl_func_new(g->m, xl_str_dup(&g->m->arena, xl_str_of(name)));
    g->m->nfunc--;
    return f;
}

xl_module xl_graph_view(const xl_graph *g, xl_func **f)
{
    xl_module v = *g->m;
    v.func = f;
    v.nfunc = v.capfunc = 1;
    return v;
}

xl_error *xl_graph_text(xl_graph *g, const xl_tensor *out, int n, char **text)
{
    *text = NULL;
    if (!xl_graph_ok(g, "text", out, n))
        return XL_ERR(INVALID, "%s", xl_error_message(g->err));
    xl_func *f = xl_graph_func(g, "main");
    xl_value *map = xl_new(&g->m->arena, xl_value, g->f->nval), *ret = xl_new(&g->m->arena, xl_value, (size_t)n);
    for (uint32_t i = 0; i < g->f->body->narg; i++) {
        xl_value a = g->f->body->arg[i];
        map[a.id] = xl_region_add_arg(f, f->body, xl_value_type(g->f, a), g->f->val[a.id].loc);
    }
    xl_region_clone_into(f, f->body, g->f, g->f->body, map, NULL, 0);
    for (int i = 0; i < n; i++)
        ret[i] = map[out[i].id];
    xl_emit e = xl_b_at(f, NULL);
    xl_em_return(&e, ret, (uint32_t)n);
    for (uint32_t i = 0; g->mesh.naxis && i < f->body->narg; i++) {
        xl_value arg = g->f->body->arg[i];
        xl_mesh_spec spec = xl_mesh_each(&g->mesh);        /* of the participants */
        for (uint32_t k = 0; k < g->nparam; k++)
            spec = g->param[k].arg.id == arg.id ? g->param[k].spec : spec;
        for (uint32_t k = 0; k < g->ninput; k++)
            spec = g->input[k].arg.id == arg.id ? g->input[k].spec : spec;
        xl_mesh_shard_arg(g->m, f, i, &g->mesh, &spec);
    }
    xl_func_set_type(f);
    xl_grad_strip(f);
    xl_module v = xl_graph_view(g, &f);
    xl_buf b = { 0 };
    xl_print_module(&v, NULL, &b);
    if (b.failed) {
        xl_buf_fini(&b);
        return XL_ERR(EXHAUSTED, "no memory for the text of the graph");
    }
    *text = b.p;
    return NULL;
}

void xl_gradient(xl_graph *g, xl_tensor loss, const xl_tensor *wrt, int n, xl_tensor *out)
{
    for (int i = 0; i < n; i++)
        out[i] = XL_NO_TENSOR;
    if (!xl_graph_ok(g, "gradient", &loss, 1) || !xl_graph_ok(g, "gradient", wrt, n))
        return;
    if (g->depth) {
        xl_graph_fail(g, "gradient: not inside a scan; take it of the whole");
        return;
    }
    xl_value *w = xl_new(&g->m->arena, xl_value, (size_t)n), *d = xl_new(&g->m->arena, xl_value, (size_t)n);
    for (int i = 0; i < n; i++)
        w[i] = xl_val_of(wrt[i]);
    xl_error *err = xl_grad(g->f, xl_val_of(loss), w, (uint32_t)n, NULL, d);
    if (err) {
        xl_graph_fail(g, "gradient: %s", xl_error_message(err));
        xl_error_free(err);
        return;
    }
    for (int i = 0; i < n; i++)
        out[i] = xl_tensor_of(d[i]);
}

/* ---- constants, scans, groups ------------------------------------------------------------------------------------ */
xl_tensor xl_const(xl_graph *g, const char *type, double value)
{
    const xl_type *t = g->err ? NULL : parse_type(g, "const", type);
    return t ? xl_tensor_of(xl_em_splat(&g->e, t, value)) : XL_NO_TENSOR;
}

xl_tensor xl_const_of(xl_graph *g, xl_dtype d, xl_dims dims, double v)
{
    return g->err ? XL_NO_TENSOR : xl_tensor_of(xl_em_splat(&g->e, xl_type_tensor(g->m, d, dims), v));
}

xl_tensor xl_iota_of(xl_graph *g, xl_dtype d, xl_dims dims, int dim)
{
    return g->err ? XL_NO_TENSOR : xl_tensor_of(xl_em_iota(&g->e, xl_type_tensor(g->m, d, dims), dim));
}

xl_tensor xl_iota(xl_graph *g, const char *type, int dim)
{
    const xl_type *t = g->err ? NULL : parse_type(g, "iota", type);
    if (!t)
        return XL_NO_TENSOR;
    int at = dim < 0 ? dim + (int)t->rank : dim;
    if (at < 0 || (uint32_t)at >= t->rank)
        return xl_graph_fail(g, "iota: \"%s\" has no dimension %d", type, dim);
    return xl_tensor_of(xl_em_iota(&g->e, t, at));
}

void xl_scan(xl_graph *g, int64_t n, xl_tensor *carry, int ncarry, xl_scan_body *body, void *arg)
{
    if (!xl_graph_ok(g, "scan", carry, ncarry))
        return;
    if (n < 0 || n > INT32_MAX) {
        xl_graph_fail(g, "scan: %lld turns", (long long)n);
        return;
    }
    xl_arena *a = &g->m->arena;
    uint32_t nc = (uint32_t)ncarry + 1;
    xl_value *in = xl_new(a, xl_value, nc), *ret = xl_new(a, xl_value, nc);
    const xl_type **types = xl_new(a, const xl_type *, nc);
    in[0] = xl_em_scalar(&g->e, XL_I32, 0);
    for (uint32_t i = 1; i < nc; i++)
        in[i] = xl_val_of(carry[i - 1]);
    for (uint32_t i = 0; i < nc; i++)
        types[i] = xl_value_type(g->f, in[i]);
    xl_loc loc = g->e.loc;
    xl_op *w = xl_op_new(g->f, NULL, XL_OP_WHILE, in, nc, types, nc, 2, loc);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < nc; i++)
            xl_region_add_arg(g->f, w->region[k], types[i], loc);
    xl_region *was = xl_em_enter(&g->e, w->region[0]);
    xl_value more =
        xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_LT, w->region[0]->arg[0], xl_em_scalar(&g->e, XL_I32, (double)n));
    xl_em_return(&g->e, &more, 1);
    xl_em_enter(&g->e, w->region[1]);
    for (uint32_t i = 1; i < nc; i++)
        carry[i - 1] = xl_tensor_of(w->region[1]->arg[i]);
    g->depth++;
    body(g, xl_tensor_of(w->region[1]->arg[0]), carry, arg);
    g->depth--;
    g->e.loc = loc;
    if (xl_graph_ok(g, "scan", carry, ncarry)) {
        for (uint32_t i = 1; i < nc; i++) {
            ret[i] = xl_val_of(carry[i - 1]);
            if (xl_value_type(g->f, ret[i]) != types[i])
                xl_graph_fail(g, "scan: carry %u came in as %s and goes out as %s", i - 1,
                              xl_shape(g, xl_tensor_of(in[i])), xl_shape(g, carry[i - 1]));
        }
        ret[0] = xl_em_binary(&g->e, XL_OP_ADD, w->region[1]->arg[0], xl_em_scalar(&g->e, XL_I32, 1));
        xl_em_return(&g->e, ret, nc);
    }
    xl_em_enter(&g->e, was);
    if (g->err)
        return;
    xl_region_append(g->f, was, w);
    for (uint32_t i = 1; i < nc; i++)
        carry[i - 1] = xl_tensor_of(w->out[i]);
}

xl_tensor xl_row(xl_graph *g, xl_tensor a, xl_tensor turn)
{
    if (!xl_graph_ok(g, "row", (xl_tensor[]){ a, turn }, 2))
        return XL_NO_TENSOR;
    const xl_type *t = xl_graph_type(g, turn);
    if (!xl_graph_type(g, a)->rank || t->rank || xl_dtype_class(t->dtype) != XL_CLASS_INT)
        return xl_graph_fail(g, "row: %s by %s; it takes a tensor with rows and one integer", xl_shape(g, a),
                             xl_shape(g, turn));
    return xl_tensor_of(xl_em_row(&g->e, xl_val_of(a), xl_val_of(turn)));
}

void xl_remat_begin(xl_graph *g)
{
    if (g->err)
        return;
    if (g->remat_from != UINT32_MAX)
        xl_graph_fail(g, "remat_begin: a group is open already");
    g->remat_from = g->e.r->nop;
}

void xl_remat_end(xl_graph *g)
{
    if (g->err)
        return;
    if (g->remat_from == UINT32_MAX || g->remat_from > g->e.r->nop) {
        xl_graph_fail(g, "remat_end: no group is open here");
        return;
    }
    const xl_attr *id = xl_attr_i64(g->m, g->ngroup++);
    for (uint32_t i = g->remat_from; i < g->e.r->nop; i++)
        g->e.r->op[i]->extra = xl_dict_with(g->m, g->e.r->op[i]->extra, XL_STR(XL_GRAD_REMAT), id);
    g->remat_from = UINT32_MAX;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */
xl_tensor xl_reshape_dims(xl_graph *g, xl_tensor a, xl_dims dims)
{
    if (!xl_graph_ok(g, "reshape", &a, 1))
        return XL_NO_TENSOR;
    int64_t d[XL_DIMS_MAX], known = 1, have = 0, rest = -1;
    if (dims.n > XL_DIMS_MAX || !xl_type_count(xl_graph_type(g, a), &have))
        return xl_graph_fail(g, "reshape: more than %d dimensions", XL_DIMS_MAX);
    for (size_t i = 0; i < dims.n; i++) {
        d[i] = dims.p[i];
        if (d[i] == -1 && rest < 0)
            rest = (int64_t)i;
        else if (d[i] < 0)
            return xl_graph_fail(g, "reshape: dimension %zu is %lld; one may be -1, the others are sizes", i,
                                 (long long)d[i]);
        else
            known *= d[i];
    }
    if (rest >= 0 && known > 0 && have % known == 0)
        d[rest] = have / known, known = have;
    if (known != have || (rest >= 0 && d[rest] < 0))
        return xl_graph_fail(g, "reshape: %s has %lld elements, the new shape takes %lld", xl_shape(g, a),
                             (long long)have, (long long)known);
    return xl_tensor_of(xl_em_reshape(&g->e, xl_val_of(a), (xl_dims){ d, dims.n }));
}

xl_tensor xl_reshape(xl_graph *g, xl_tensor a, const char *dims)
{
    int64_t d[XL_DIMS_MAX];
    uint32_t n;
    return g->err || !parse_list(g, "reshape", dims, d, &n) ? XL_NO_TENSOR : xl_reshape_dims(g, a, (xl_dims){ d, n });
}

xl_tensor xl_transpose_dims(xl_graph *g, xl_tensor a, xl_dims perm)
{
    if (!xl_graph_ok(g, "transpose", &a, 1))
        return XL_NO_TENSOR;
    if (perm.n != xl_graph_type(g, a)->rank)
        return xl_graph_fail(g, "transpose: %zu axes for %s", perm.n, xl_shape(g, a));
    return xl_tensor_of(xl_em_transpose(&g->e, xl_val_of(a), perm));
}

xl_tensor xl_transpose(xl_graph *g, xl_tensor a, const char *axes)
{
    int64_t d[XL_DIMS_MAX];
    uint32_t n;
    if (!xl_graph_ok(g, "transpose", &a, 1) || !axes_of(g, "transpose", xl_graph_type(g, a), axes, d, &n))
        return XL_NO_TENSOR;
    return xl_transpose_dims(g, a, (xl_dims){ d, n });
}

/* numpy's rule: dimensions are matched from the last; a missing one or one of size 1 stretches. */
xl_tensor xl_broadcast_dims(xl_graph *g, xl_tensor a, xl_dims dims)
{
    if (!xl_graph_ok(g, "broadcast", &a, 1))
        return XL_NO_TENSOR;
    const xl_type *t = xl_graph_type(g, a);
    int64_t at[XL_DIMS_MAX];
    bool fits = t->rank <= dims.n && dims.n <= XL_DIMS_MAX;
    for (uint32_t i = 0; fits && i < t->rank; i++) {
        at[i] = (int64_t)(dims.n - t->rank + i);
        fits = t->dims[i] == 1 || t->dims[i] == dims.p[at[i]];
    }
    if (!fits)
        return xl_graph_fail(g, "broadcast: %s does not stretch to what is wanted", xl_shape(g, a));
    return xl_tensor_of(xl_em_broadcast(&g->e, xl_val_of(a), dims, (xl_dims){ at, t->rank }));
}

xl_tensor xl_broadcast(xl_graph *g, xl_tensor a, const char *dims)
{
    int64_t d[XL_DIMS_MAX];
    uint32_t n;
    return g->err || !parse_list(g, "broadcast", dims, d, &n) ? XL_NO_TENSOR
                                                              : xl_broadcast_dims(g, a, (xl_dims){ d, n });
}

xl_tensor xl_slice(xl_graph *g, xl_tensor a, int axis, int64_t from, int64_t to)
{
    if (!xl_graph_ok(g, "slice", &a, 1) || !one_axis(g, "slice", a, &axis))
        return XL_NO_TENSOR;
    const xl_type *t = xl_graph_type(g, a);
    if (from < 0 || to > t->dims[axis] || from > to)
        return xl_graph_fail(g, "slice: %lld to %lld of axis %d of %s", (long long)from, (long long)to, axis,
                             xl_shape(g, a));
    if (from == 0 && to == t->dims[axis])
        return a;
    int64_t lo[XL_DIMS_MAX] = { 0 }, hi[XL_DIMS_MAX];
    memcpy(hi, t->dims, t->rank * sizeof *hi);
    lo[axis] = from;
    hi[axis] = to;
    return xl_tensor_of(xl_em_slice(&g->e, xl_val_of(a), lo, hi, NULL));
}

xl_tensor xl_concat(xl_graph *g, const xl_tensor *list, int n, int axis)
{
    if (n < 1)
        return xl_graph_fail(g, "concat: of nothing");
    if (!xl_graph_ok(g, "concat", list, n) || !one_axis(g, "concat", list[0], &axis))
        return XL_NO_TENSOR;
    const xl_type *t = xl_graph_type(g, list[0]);
    xl_value *v = xl_new(&g->m->arena, xl_value, (size_t)n);
    for (int i = 0; i < n; i++) {
        const xl_type *u = xl_graph_type(g, list[i]);
        bool same = u->rank == t->rank && u->dtype == t->dtype;
        for (uint32_t d = 0; same && d < t->rank; d++)
            same = d == (uint32_t)axis || u->dims[d] == t->dims[d];
        if (!same)
            return xl_graph_fail(g, "concat: %s and %s along axis %d", xl_shape(g, list[0]), xl_shape(g, list[i]),
                                 axis);
        v[i] = xl_val_of(list[i]);
    }
    return n == 1 ? list[0] : xl_tensor_of(xl_em_concat(&g->e, v, (uint32_t)n, axis));
}

xl_tensor xl_shift(xl_graph *g, xl_tensor a, int axis, int64_t by, double fill)
{
    if (!xl_graph_ok(g, "shift", &a, 1) || !one_axis(g, "shift", a, &axis))
        return XL_NO_TENSOR;
    const xl_type *t = xl_graph_type(g, a);
    int64_t lo[XL_DIMS_MAX] = { 0 }, hi[XL_DIMS_MAX] = { 0 };
    if (by > t->dims[axis] || by < -t->dims[axis])
        return xl_graph_fail(g, "shift: by %lld along an axis of %lld", (long long)by, (long long)t->dims[axis]);
    lo[axis] = by;
    hi[axis] = -by;
    return xl_tensor_of(xl_em_pad(&g->e, xl_val_of(a), xl_em_scalar(&g->e, t->dtype, fill), lo, hi, NULL));
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */
static xl_tensor reduce(xl_graph *g, const char *what, xl_opcode code, xl_tensor a, double init, const char *axes,
                        int64_t *count)
{
    int64_t d[XL_DIMS_MAX];
    uint32_t n;
    if (!xl_graph_ok(g, what, &a, 1) || !axes_of(g, what, xl_graph_type(g, a), axes, d, &n))
        return XL_NO_TENSOR;
    const xl_type *t = xl_graph_type(g, a);
    for (uint32_t i = 0; count && i < n; i++)
        *count *= t->dims[d[i]];
    return xl_tensor_of(xl_em_reduce(&g->e, code, xl_val_of(a), init, (xl_dims){ d, n }));
}

xl_tensor xl_sum(xl_graph *g, xl_tensor a, const char *axes) { return reduce(g, "sum", XL_OP_ADD, a, 0, axes, NULL); }

xl_tensor xl_mean(xl_graph *g, xl_tensor a, const char *axes)
{
    int64_t n = 1;
    xl_tensor s = reduce(g, "mean", XL_OP_ADD, a, 0, axes, &n);
    return g->err ? s : xl_scale(g, s, n ? 1.0 / (double)n : 0);
}

xl_tensor xl_max(xl_graph *g, xl_tensor a, const char *axes)
{
    if (xl_graph_ok(g, "max", &a, 1) && xl_dtype_class(xl_graph_type(g, a)->dtype) != XL_CLASS_FLOAT)
        return xl_graph_fail(g, "max: %s is not of a float type; cast it with xl_cast", xl_shape(g, a));
    return reduce(g, "max", XL_OP_MAXIMUM, a, -1.0 / 0.0, axes, NULL);
}

xl_tensor xl_keep(xl_graph *g, xl_tensor reduced, xl_tensor like, const char *axes)
{
    int64_t d[XL_DIMS_MAX], out[XL_DIMS_MAX];
    uint32_t n;
    if (!xl_graph_ok(g, "keep", (xl_tensor[]){ reduced, like }, 2) ||
        !axes_of(g, "keep", xl_graph_type(g, like), axes, d, &n))
        return XL_NO_TENSOR;
    const xl_type *t = xl_graph_type(g, like);
    memcpy(out, t->dims, t->rank * sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[d[i]] = 1;
    return xl_reshape_dims(g, reduced, (xl_dims){ out, t->rank });
}

/* Doubling: log n shifted additions of the whole, each a plain elementwise op with a plain gradient. */
xl_tensor xl_cumsum(xl_graph *g, xl_tensor a, int axis)
{
    if (!xl_graph_ok(g, "cumsum", &a, 1) || !one_axis(g, "cumsum", a, &axis))
        return XL_NO_TENSOR;
    int64_t n = xl_graph_type(g, a)->dims[axis];
    for (int64_t by = 1; by < n && !g->err; by *= 2)
        a = xl_add(g, a, xl_shift(g, a, axis, by, 0));
    return a;
}
