#include "train/spread.h"

#include <stdio.h>

#include "pjrt/gate.h"

/* Which axis splits what. The first row that fits counts. Parameters of blocks have a row per turn of their unit in
 * front. */
static const struct { const char *name, *dims; bool soft;
} rules[] = {
    /* soft: whole where it does not divide */
    { "tokens", "data, seq" },
    { "targets", "data, seq" },
    { "segments", "data, seq" },
    { "positions", "data, seq" },
    { "residual", "data, seq, -" },
    { "logits", "data, seq, model" },
    { "experts", "expert, -, -" },
    { "embed", "model, -" },
    { "head", "-, model" },
    { "*E.gate", "-, expert, -, model" },
    { "*E.up", "-, expert, -, model" },
    { "*E.down", "-, expert, model, -" },
    { "*.wq", "-, -, model" },
    { "*.wk", "-, -, model" },
    { "*.wv", "-, -, model" },
    { "*.wo", "-, model, -" },
    { "*.gate", "-, -, model" },
    { "*.up", "-, -, model" },
    { "*.down", "-, model, -" },
    { "*M.win", "-, -, -, model" },
    { "*M.wout", "-, model, -" },
    { "*M.out_norm", "-, model" },
    { "*.conv", "-, -, model" },
    { "*M.wdt", "-, -, model", true },
    { "*M.dt_bias", "-, model", true },
    { "*M.a_log", "-, model", true },
    { "*M.skip", "-, model", true },
    { "*R.wx", "-, -, model" },
    { "*R.wg", "-, -, model" },
    { "*R.wr", "-, -, model" },
    { "*R.wi", "-, -, model" },
    { "*R.lambda", "-, model" },
};

bool xl_glob(xl_str p, xl_str s)
{
    if (!p.n)
        return !s.n;
    xl_str rest = { p.p + 1, p.n - 1 };
    if (*p.p == '*') {
        for (size_t i = 0; i <= s.n; i++)
            if (xl_glob(rest, (xl_str){ s.p + i, s.n - i }))
                return true;
        return false;
    }
    return s.n && (*p.p == '?' || *p.p == *s.p) && xl_glob(rest, (xl_str){ s.p + 1, s.n - 1 });
}

xl_error *xl_spread_mesh(xl_arena *a, const xl_pairs *axes, xl_mesh_def *out)
{
    xl_buf b = { 0 };
    xl_error *err = NULL;
    for (uint32_t i = 0; i < axes->n && !err; i++) {        /* one at a time, so that a mistake has its line */
        xl_buf_printf(&b, "%s%.*s=%.*s", i ? ", " : "", XL_FMT(axes->p[i].key), XL_FMT(axes->p[i].value));
        err = xl_mesh_parse(a, xl_buf_view(&b), 0, out);
        if (err)
            err = xl_error_wrap(err, "%s", axes->p[i].where);
    }
    xl_buf_fini(&b);
    return err;
}

static const char *axis_line(const xl_spread *s, xl_str dims)
{
    for (uint32_t i = 0; s->mesh && i < s->mesh->n; i++) {  /* the axis that the rule speaks of */
        xl_str rest = dims;
        while (rest.n)
            if (xl_str_eq(xl_str_trim(xl_str_cut(&rest, ',')), s->mesh->p[i].key))
                return s->mesh->p[i].where;
    }
    return NULL;
}

/* A rule of the model for this mesh: axes that it does not have go, and with `soft` those that do not divide. */
static xl_str fit(const xl_mesh_def *mesh, xl_str rule, xl_dims dims, bool soft, char *out, size_t size)
{
    size_t n = 0;
    uint32_t d = 0;
    xl_str rest = rule;
    for (; rest.n && n < size; d++) {
        xl_str name = xl_str_trim(xl_str_cut(&rest, ','));
        int i = xl_mesh_find(mesh, name);
        bool keep = i >= 0 && !(soft && d < dims.n && dims.p[d] % mesh->axis[i].size);
        n += (size_t)snprintf(out + n, size - n, "%s%.*s", d ? ", " : "", keep ? (int)name.n : 1, keep ? name.p : "-");
    }
    return (xl_str){ out, n < size ? n : size };
}

/* The configuration's rule for a name: an exact one before a pattern; two patterns that say different things
 * contradict. */
static const xl_pair *given(xl_graph *g, xl_str name)
{
    const xl_spread *s = g->spread;
    const xl_pair *found = NULL;
    for (uint32_t i = 0; s->rule && i < s->rule->n; i++) {
        const xl_pair *r = &s->rule->p[i];
        if (!xl_glob(r->key, name))
            continue;
        s->used[i] = true;
        if (found && xl_str_eq(found->key, name))
            continue;
        if (found && !xl_str_eq(r->key, name) && !xl_str_eq(found->value, r->value)) {
            xl_graph_fail(g,
                          "%s: sharding of %.*s: \"%.*s\" says \"%.*s\", but \"%.*s\" (%s) says \"%.*s\": give one "
                          "under the full name, which wins",
                          r->where, XL_FMT(name), XL_FMT(r->key), XL_FMT(r->value), XL_FMT(found->key), found->where,
                          XL_FMT(found->value));
            return NULL;
        }
        found = r;
    }
    return found;
}

bool xl_spread_of(xl_graph *g, xl_str name, xl_dims dims, bool batch, xl_mesh_spec *out, const char **said)
{
    char text[256];
    const xl_spread *s = g->spread;
    xl_str rule = { 0 };
    bool soft = batch && s->small;
    *out = (xl_mesh_spec){ .rank = (uint32_t)dims.n };
    const xl_pair *own = given(g, name);
    if (g->err)
        return false;
    if (own) {
        *said = own->where;
        rule = soft ? fit(&g->mesh, own->value, dims, true, text, sizeof text) : own->value;
    } else {
        for (size_t i = 0; i < sizeof rules / sizeof *rules && !rule.n; i++)
            if (xl_glob(xl_str_of(rules[i].name), name)) {
                rule = fit(&g->mesh, xl_str_of(rules[i].dims), dims, soft || rules[i].soft, text, sizeof text);
                *said = axis_line(s, rule);
            }
    }
    if (!rule.n)
        return true;
    xl_error *err = xl_mesh_spec_parse(&g->mesh, dims, name, rule, out);
    if (!err)
        return true;
    char other[128] = "";
    size_t n = 0;
    for (size_t d = 0; d < dims.n && !own; d++)
        n += (size_t)snprintf(other + n, sizeof other - n, d ? ", -" : "-");
    xl_graph_fail(g, "%s%ssharding of %s%s%.*s%s%s%s", *said ? *said : "", *said ? ": " : "", xl_error_message(err),
                  own ? "" : "; or keep it whole with sharding: {\"", own ? 0 : (int)name.n, name.p,
                  own ? "" : "\": \"", other, own ? "" : "\"}");
    xl_error_free(err);
    return false;
}

xl_error *xl_spread_unused(const xl_spread *s)
{
    for (uint32_t i = 0; s->rule && i < s->rule->n; i++)
        if (!s->used[i])
            return XL_ERR(
                INVALID,
                "%s: sharding: \"%.*s\" is the name of no tensor; `xlane sharding` with the configuration lists them",
                s->rule->p[i].where, XL_FMT(s->rule->p[i].key));
    return NULL;
}

xl_tensor xl_spread_act(xl_graph *g, const char *name, xl_tensor t)
{
    xl_mesh_spec spec;
    const char *said = NULL;
    if (!g->mesh.naxis || !g->spread || !xl_graph_ok(g, "sharding", &t, 1))
        return t;
    if (!xl_spread_of(g, xl_str_of(name), xl_type_dims(xl_graph_type(g, t)), true, &spec, &said))
        return XL_NO_TENSOR;
    return xl_tensor_of(xl_constrain(g, xl_val_of(t), &spec));
}

/* ---- the public calls -------------------------------------------------------------------------------------------- */
xl_value xl_constrain(xl_graph *g, xl_value v, const xl_mesh_spec *spec)
{
    xl_op *op = xl_em_op(&g->e, XL_OP_SDY_CONSTRAINT, &v, 1, xl_value_type(g->f, v));
    op->attr[XL_SLOT(SDY_CONSTRAINT, sharding)] = xl_mesh_attr(g->m, &g->mesh, spec);
    return xl_em_done(&g->e, op);
}

static const char *place_of(xl_graph *g, xl_loc loc)
{
    xl_str file;
    uint32_t line, col;
    return xl_loc_line(g->m, loc, &file, &line, &col) ? xl_strf(&g->m->arena, "%.*s:%u", XL_FMT(file), line).p
                                                      : "an earlier call";
}

bool xl_graph_mesh_def(xl_graph *g, const xl_mesh_def *mesh)
{
    char who[160];
    xl_buf b = { 0 };
    if (g->err)
        return false;
    if (g->mesh.naxis)
        xl_graph_fail(g, "mesh: the graph has one already");
    else if (g->f->nval)
        xl_graph_fail(g,
                      "mesh: SPMD is switched on too late: the first tensor of the graph, \"%.*s\", was made before, "
                      "at %s; give the mesh right after xl_graph_new",
                      XL_FMT(g->f->val[0].name),
                      place_of(g, g->f->val[0].def ? g->f->val[0].def->loc : g->f->val[0].loc));
    xl_mesh_text(mesh, &b);
    snprintf(who, sizeof who, "the mesh %.*s of graph %.*s", XL_FMT(xl_buf_view(&b)), XL_FMT(g->name));
    xl_buf_fini(&b);
    if (!g->err && xl_gate_when(XL_GATE_SPMD) <= 0) {       /* once on, it stays on: what came since could be sharded */
        xl_error *err = xl_gate_pass(XL_GATE_SPMD, who);
        if (err)
            xl_graph_fail(g, "%s", xl_error_message(err));
        xl_error_free(err);
    }
    if (g->err)
        return false;
    g->mesh = *mesh;
    for (uint32_t i = 0; i < mesh->naxis; i++)
        g->mesh.axis[i].name = xl_str_dup(&g->m->arena, mesh->axis[i].name);
    xl_mesh_define(g->m, &g->mesh);
    int64_t dims[XL_MESH_AXES];
    for (uint32_t i = 0; i < mesh->naxis; i++)
        dims[i] = mesh->axis[i].size;
    g->parts = xl_region_add_arg(g->f, g->f->body, xl_type_tensor(g->m, XL_F32, (xl_dims){ dims, mesh->naxis }),
                                 xl_loc_name(g->m, XL_STR("participants"), g->e.loc));
    return true;
}

void xl_graph_mesh(xl_graph *g, const char *text)
{
    xl_mesh_def mesh;
    if (g->err)
        return;
    xl_error *err = xl_mesh_parse(&g->m->arena, xl_str_of(text), 0, &mesh);
    if (err)
        xl_graph_fail(g, "%s", xl_error_message(err));
    else
        xl_graph_mesh_def(g, &mesh);
    xl_error_free(err);
}

/* The argument that a value is, seen through the cast of a parameter to the type of the matrix work. */
static bool argument(xl_graph *g, xl_value v, xl_str *name, xl_mesh_spec **spec, const char ***said)
{
    const xl_op *def = xl_value_op(g->f, v);
    xl_value arg = def && def->code == XL_OP_CONVERT ? def->in[0] : v;
    for (uint32_t i = 0; i < g->nparam; i++)
        if (g->param[i].arg.id == arg.id)
            return *name = g->param[i].name, *spec = &g->param[i].spec, *said = &g->param[i].said, true;
    for (uint32_t i = 0; i < g->ninput; i++)
        if (g->input[i].arg.id == v.id)
            return *name = g->input[i].name, *spec = &g->input[i].spec, *said = &g->input[i].said, true;
    return false;
}

xl_tensor xl_sharded(xl_graph *g, xl_tensor t, const char *dims)
{
    xl_mesh_spec spec, *have;
    const char **said;
    xl_str name = XL_STR("shard");
    if (!xl_graph_ok(g, "shard", &t, 1))
        return XL_NO_TENSOR;
    if (!g->mesh.naxis)
        return xl_graph_fail(g, "shard: the graph has no mesh; call xl_graph_mesh right after xl_graph_new");
    bool arg = argument(g, xl_val_of(t), &name, &have, &said);
    xl_error *err = xl_mesh_spec_parse(&g->mesh, xl_type_dims(xl_graph_type(g, t)), name, xl_str_of(dims), &spec);
    if (err) {
        xl_graph_fail(g, "%s", xl_error_message(err));
        xl_error_free(err);
        return XL_NO_TENSOR;
    }
    if (!arg)
        return xl_tensor_of(xl_constrain(g, xl_val_of(t), &spec));
    if (*said && !xl_mesh_spec_eq(&spec, have)) {
        xl_buf b = { 0 };
        xl_mesh_spec_text(&g->mesh, have, &b);
        xl_graph_fail(g, "shard: %.*s is to be split as \"%s\", but at %s it was said to be split as \"%.*s\"",
                      XL_FMT(name), dims, *said, XL_FMT(xl_buf_view(&b)));
        xl_buf_fini(&b);
        return XL_NO_TENSOR;
    }
    *have = spec;
    *said = g->file ? xl_strf(&g->m->arena, "%s:%d", g->file, g->line).p : "an earlier call";
    return t;
}
