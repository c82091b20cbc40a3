/* Metrics, typed by their reduction. A scalar of a graph is a value of the whole program, whatever it is split into: it
 * is global. What could lie is a number per row of the batch that was reduced over the rows of one device only, so that
 * reduction is made here: each device reduces its own rows to one number (local, one per device along the named axes),
 * these are summed over the axes in one collective together with their weights and with a one from each device that
 * takes part. That last sum is the participant count: the host compares it with the mesh whenever it reads a metric. */
#include <math.h>
#include <stdio.h>

#include "train/metric.h"

static const char *const words[] = { "mean", "sum", "max", "local" };

static uint32_t all_axes(const xl_graph *g) { return (1u << g->mesh.naxis) - 1; }

/* The axes that split the batch: those of the inputs. */
static uint32_t batch_axes(const xl_graph *g)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < g->ninput; i++)
        for (uint32_t d = 0; d < g->input[i].spec.rank; d++)
            for (uint32_t k = 0; k < g->input[i].spec.dim[d].n; k++)
                bits |= 1u << g->input[i].spec.dim[d].axis[k];
    return bits;
}

const char *xl_axes_text(const xl_mesh_def *mesh, uint32_t axes, char *out, size_t size)
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < mesh->naxis && n < size; i++)
        if (axes >> i & 1)
            n += (size_t)snprintf(out + n, size - n, "%s%.*s", n ? ", " : "", XL_FMT(mesh->axis[i].name));
    return out;
}

/* A global metric is reduced over every axis that splits the batch: along another one it would stay local. */
static xl_error *covers(const xl_graph *g, const xl_metric_info *m)
{
    char a[128], b[128], c[128];
    uint32_t left = batch_axes(g) & ~m->axes;
    if (!g->mesh.naxis || m->how == XL_HOW_LOCAL || !left)
        return NULL;
    return XL_ERR(INVALID,
                  "metric %.*s is reduced over %s, but the batch is split over %s: along %s it would stay local; "
                  "reduce it over all of them, or call it local",
                  XL_FMT(m->name), m->axes ? xl_axes_text(&g->mesh, m->axes, a, sizeof a) : "nothing",
                  xl_axes_text(&g->mesh, batch_axes(g), b, sizeof b), xl_axes_text(&g->mesh, left, c, sizeof c));
}

/* "mean over data, seq"; without `over` the axes are `otherwise`. */
static bool parse_how(xl_graph *g, const char *name, const char *how, uint32_t otherwise, xl_metric_info *m)
{
    xl_str rest = xl_str_of(how), word = xl_str_cut(&rest, ' ');
    int kind = -1;
    for (int i = 0; i < 4; i++)
        kind = xl_str_is(word, words[i]) ? i : kind;
    if (kind < 0) {
        xl_graph_fail(g,
                      "metric: \"%s\" is none of mean, sum, max, local; a metric must say what it is over all devices",
                      how ? how : "");
        return false;
    }
    m->how = (xl_metric_how)kind;
    m->axes = otherwise;
    rest = xl_str_trim(rest);
    if (rest.n) {
        xl_str over = xl_str_cut(&rest, ' ');
        if (!xl_str_is(over, "over") || !xl_str_trim(rest).n) {
            xl_graph_fail(g, "metric: \"%s\": after %s comes nothing, or `over` and the axes, as in \"mean over data\"",
                          how, words[kind]);
            return false;
        }
        m->axes = 0;
        while (rest.n && g->mesh.naxis) {                   /* on one device there are no axes to be wrong about */
            xl_str axis = xl_str_trim(xl_str_cut(&rest, ','));
            int i = xl_mesh_find(&g->mesh, axis);
            if (i < 0) {
                xl_graph_fail(g, "metric %s: the mesh has no axis \"%.*s\"", name, XL_FMT(axis));
                return false;
            }
            m->axes |= 1u << i;
        }
    }
    m->name = xl_str_of(name);
    xl_error *err = covers(g, m);
    if (err)
        xl_graph_fail(g, "%s", xl_error_message(err));
    xl_error_free(err);
    return !g->err;
}

xl_error *xl_metric_axes(const xl_graph *g)
{
    xl_error *err = NULL;
    for (uint32_t i = 0; i < g->nmetric && !err; i++)
        err = covers(g, &g->metric[i]);
    return err;
}

/* How many devices take part in a reduction over these axes, by a sum over what each of them has. The groups that the
 * other axes make all have as many, or the least of them is what counts. */
static xl_value participants(xl_graph *g, uint32_t axes)
{
    int64_t over[XL_MESH_AXES], other[XL_MESH_AXES];
    size_t n = 0, k = 0;
    for (uint32_t i = 0; i < g->mesh.naxis; i++)
        if (axes >> i & 1)
            over[n++] = i;
        else {
            other[k] = (int64_t)k;
            k++;
        }
    xl_value sum = xl_em_sum(&g->e, g->parts, (xl_dims){ over, n });
    return k ? xl_em_reduce(&g->e, XL_OP_MINIMUM, sum, 1e30, (xl_dims){ other, k }) : sum;
}

xl_value xl_metric_all(xl_graph *g) { return participants(g, all_axes(g)); }

static void push(xl_graph *g, const char *name, xl_metric_info m)
{
    m.name = xl_str_dup(&g->m->arena, xl_str_of(name));
    XL_PUSH(&g->m->arena, g->metric, g->nmetric, g->capmetric, m);
}

static bool is_float(xl_graph *g, xl_tensor t) { return xl_dtype_class(xl_graph_type(g, t)->dtype) == XL_CLASS_FLOAT; }

void xl_metric(xl_graph *g, const char *name, const char *how, xl_tensor t)
{
    xl_metric_info m = { .width = 1 };
    if (!xl_graph_ok(g, "metric", &t, 1))
        return;
    if (xl_graph_type(g, t)->rank || !is_float(g, t)) {
        xl_graph_fail(g,
                      "metric: %s is not one float; reduce it first, for example with xl_mean, or give its rows to "
                      "xl_metric_rows",
                      xl_shape(g, t));
        return;
    }
    if (!parse_how(g, name, how, all_axes(g), &m))
        return;
    m.value = xl_em_convert(&g->e, xl_val_of(t), XL_F32);
    if (g->mesh.naxis)
        m.count = participants(g, m.axes);
    push(g, name, m);
}

/* ---- per row ----------------------------------------------------------------------------------------------------- */
/* Which dimension of the rows an axis splits: that of the first input it splits, where the sizes agree; else
 * the first. */
static uint32_t split_by(const xl_graph *g, const xl_type *t, uint32_t axis)
{
    for (uint32_t i = 0; i < g->ninput; i++)
        for (uint32_t d = 0; d < g->input[i].spec.rank && d < t->rank; d++)
            for (uint32_t k = 0; k < g->input[i].spec.dim[d].n; k++)
                if (g->input[i].spec.dim[d].axis[k] == axis && g->input[i].type->dims[d] == t->dims[d])
                    return d;
    return 0;
}

typedef struct {
    uint8_t axis[XL_MESH_AXES];
    uint32_t n;
    int64_t size[XL_MESH_AXES];
} local; /* one number per device along these axes, in this order */

/* Each device's own rows, reduced: [batch, ...] becomes one number per device. */
static bool reduce_own(xl_graph *g, const char *name, xl_value v, xl_opcode code, uint32_t axes, local *l,
                       xl_value *out)
{
    const xl_type *t = xl_value_type(g->f, v);
    int64_t dims[2 * XL_MESH_RANK + XL_MESH_AXES], over[XL_MESH_RANK], parts;
    uint32_t n = 0, nover = 0;
    xl_mesh_spec spec = { 0 };
    l->n = 0;
    for (uint32_t d = 0; d < t->rank; d++) {
        parts = 1;
        for (uint32_t i = 0; i < g->mesh.naxis; i++)
            if (axes >> i & 1 && split_by(g, t, i) == d) {
                spec.dim[l->n] = (__typeof__(*spec.dim)){ 1, { (uint8_t)i } };
                l->size[l->n] = dims[n++] = g->mesh.axis[i].size;
                l->axis[l->n++] = (uint8_t)i;
                parts *= g->mesh.axis[i].size;
            }
        if (t->dims[d] % parts) {
            xl_graph_fail(g, "metric %s: %lld rows do not divide over %lld devices; the next number that does is %lld",
                          name, (long long)t->dims[d], (long long)parts,
                          (long long)((t->dims[d] + parts - 1) / parts * parts));
            return false;
        }
        over[nover++] = n;
        dims[n++] = t->dims[d] / parts;
    }
    spec.rank = l->n;
    v = xl_em_reshape(&g->e, v, (xl_dims){ dims, n });
    v = xl_em_reduce(&g->e, code, v, code == XL_OP_ADD ? 0 : -HUGE_VAL, (xl_dims){ over, nover });
    *out = xl_constrain(g, v, &spec);
    return true;
}

/* A one from each device along the axes, in the order of l. */
static xl_value ones(xl_graph *g, const local *l, uint32_t axes)
{
    int64_t other[XL_MESH_AXES], perm[XL_MESH_AXES], place[XL_MESH_AXES] = { 0 };
    size_t k = 0, n = 0;
    for (uint32_t i = 0; i < g->mesh.naxis; i++)
        if (axes >> i & 1)
            place[i] = (int64_t)n++;
        else
            other[k++] = i;
    for (uint32_t i = 0; i < l->n; i++)
        perm[i] = place[l->axis[i]];
    xl_value one = k ? xl_em_reduce(&g->e, XL_OP_MAXIMUM, g->parts, -HUGE_VAL, (xl_dims){ other, k }) : g->parts;
    return xl_em_transpose(&g->e, one, (xl_dims){ perm, l->n });
}

static xl_value scalar_at(xl_graph *g, xl_value v, int64_t i)
{
    int64_t hi = i + 1;
    return xl_em_reshape(&g->e, xl_em_slice(&g->e, v, &i, &hi, NULL), XL_NO_DIMS);
}

/* See train.plant: one device's number taken for that of all, or a group of half the devices. */
static xl_value planted(xl_graph *g, xl_value v, const int64_t *dims, uint32_t n)
{
    int64_t lo[XL_MESH_AXES + 1] = { 0 }, hi[XL_MESH_AXES + 1];
    if (g->plant != XL_PLANT_LOCAL && g->plant != XL_PLANT_GROUP)
        return v;
    for (uint32_t i = 0; i < n; i++)
        hi[i] = i && g->plant == XL_PLANT_LOCAL ? 1 : i == 1 ? (dims[i] + 1) / 2 : dims[i];
    return xl_em_slice(&g->e, v, lo, hi, NULL);
}

static void rows_on_mesh(xl_graph *g, const char *name, xl_metric_info m, xl_value v, xl_value w)
{
    xl_value part[3], sum;
    local l;
    int64_t dims[XL_MESH_AXES + 1] = { 1 }, over[XL_MESH_AXES];
    bool max = m.how == XL_HOW_MAX;
    if (!reduce_own(g, name, max ? v : xl_em_binary(&g->e, XL_OP_MULTIPLY, v, w), max ? XL_OP_MAXIMUM : XL_OP_ADD,
                    m.axes, &l, &part[0]) ||
        !reduce_own(g, name, w, XL_OP_ADD, m.axes, &l, &part[1]))
        return;
    part[2] = ones(g, &l, m.axes);
    m.how = g->plant == XL_PLANT_READ && m.how == XL_HOW_MEAN ? XL_HOW_LOCAL : m.how;
    m.width = 1;
    m.rows = true;
    if (m.how == XL_HOW_LOCAL) {
        xl_value one = xl_em_like(&g->e, part[1], 1);
        for (uint32_t i = 0; i < l.n; i++)
            m.width *= (uint32_t)l.size[i];
        m.value = xl_em_binary(&g->e, XL_OP_DIVIDE, part[0], xl_em_binary(&g->e, XL_OP_MAXIMUM, part[1], one));
        m.value = xl_em_reshape(&g->e, m.value, XL_DIMS(m.width));
        m.count = participants(g, m.axes);
        push(g, name, m);
        return;
    }
    for (uint32_t i = 0; i < l.n; i++) {
        dims[i + 1] = l.size[i];
        over[i] = i + 1;
    }
    for (int i = 0; i < 3; i++) {
        part[i] = xl_em_reshape(&g->e, part[i], (xl_dims){ dims, l.n + 1 });
        part[i] = planted(g, part[i], dims, l.n + 1);
    }
    xl_dims all = { over, l.n };
    sum = xl_em_sum(&g->e, xl_em_concat(&g->e, part, 3, 0),
                    all); /* one collective: value, weight and count come from the same devices */
    xl_value total = scalar_at(g, sum, 0), weight = scalar_at(g, sum, 1);
    m.count = scalar_at(g, sum, 2);
    if (max)
        total = scalar_at(g, xl_em_reduce(&g->e, XL_OP_MAXIMUM, part[0], -HUGE_VAL, all), 0);
    m.value = m.how == XL_HOW_MEAN
                  ? xl_em_binary(&g->e, XL_OP_DIVIDE, total,
                                 xl_em_binary(&g->e, XL_OP_MAXIMUM, weight, xl_em_scalar(&g->e, XL_F32, 1)))
                  : total;
    push(g, name, m);
}

void xl_metric_rows(xl_graph *g, const char *name, const char *how, xl_tensor rows, xl_tensor weight)
{
    xl_metric_info m = { .width = 1 };
    bool weighted = weight.id != UINT32_MAX;
    if (!xl_graph_ok(g, "metric", (xl_tensor[]){ rows, weight }, weighted ? 2 : 1) ||
        !parse_how(g, name, how, batch_axes(g), &m))
        return;
    const xl_type *t = xl_graph_type(g, rows);
    if (!t->rank || !is_float(g, rows) ||
        (weighted && !xl_type_eq(xl_type_with_dtype(g->m, xl_graph_type(g, weight), t->dtype), t))) {
        xl_graph_fail(g, "metric %s: %s%s%s; it takes floats by row, and weights of the same shape", name,
                      xl_shape(g, rows), weighted ? " with weights " : "", weighted ? xl_shape(g, weight) : "");
        return;
    }
    rows = xl_cast_to(g, rows, XL_F32);
    weight = weighted ? xl_cast_to(g, weight, XL_F32) : xl_const_of(g, XL_F32, xl_type_dims(t), 1);
    if (g->err)
        return;
    if (g->mesh.naxis && m.axes) {
        rows_on_mesh(g, name, m, xl_val_of(rows), xl_val_of(weight));
        return;
    }
    xl_tensor v = m.how == XL_HOW_MAX   ? xl_max(g, rows, NULL)
                  : m.how == XL_HOW_SUM ? xl_sum(g, xl_mul(g, rows, weight), NULL)
                                        : xl_masked_mean(g, rows, weight);
    xl_metric(g, name, words[m.how], v);
}

/* ---- on the host ------------------------------------------------------------------------------------------------- */
static const char *const own_names[XL_AT_OWN] = { "loss", "grad_norm", "lr", "skipped", "step" };
static uint32_t own_of(xl_step_kind kind) { return kind == XL_STEP_TRAIN ? XL_AT_OWN : 1; }

uint32_t xl_metric_count(const xl_graph *g, xl_step_kind kind) { return own_of(kind) + g->nmetric; }

uint32_t xl_metric_at(const xl_graph *g, xl_step_kind kind, uint32_t i)
{
    uint32_t own = own_of(kind), at = i < own ? i : own;
    for (uint32_t k = own; k < i; k++)
        at += g->metric[k - own].width;
    return at;
}

uint32_t xl_metric_slots(const xl_graph *g, xl_step_kind kind)
{
    return xl_metric_at(g, kind, xl_metric_count(g, kind)) + (g->mesh.naxis ? 1 + g->nmetric : 0);
}

const char *xl_metric_name(const xl_graph *g, xl_step_kind kind, uint32_t i)
{
    uint32_t own = own_of(kind);
    return i < own ? own_names[i] : g->metric[i - own].name.p;
}

const xl_metric_info *xl_metric_of(const xl_graph *g, xl_step_kind kind, uint32_t i)
{
    static const xl_metric_info plain = { .how = XL_HOW_MEAN, .width = 1 };
    return i < own_of(kind) ? &plain : &g->metric[i - own_of(kind)];
}

int xl_metric_find(const xl_graph *g, xl_step_kind kind, const char *name)
{
    for (uint32_t i = 0; i < xl_metric_count(g, kind); i++)
        if (!strcmp(xl_metric_name(g, kind, i), name))
            return (int)i;
    return -1;
}

int64_t xl_metric_expects(const xl_graph *g, uint32_t axes)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < g->mesh.naxis; i++)
        n *= axes >> i & 1 ? g->mesh.axis[i].size : 1;
    return n;
}

xl_error *xl_metric_check(const xl_graph *g, xl_step_kind kind, const float *v)
{
    uint32_t n = xl_metric_count(g, kind), at = xl_metric_at(g, kind, n);
    char over[128];
    for (uint32_t i = 0; g->mesh.naxis && i <= g->nmetric; i++) {
        uint32_t axes = i ? g->metric[i - 1].axes : all_axes(g);
        double want = (double)xl_metric_expects(g, axes), have = (double)v[at + i];
        if (have != want)
            return XL_ERR(PRECONDITION,
                          "metric %s: %g devices took part in its reduction over %s, the mesh has %g along it: a "
                          "collective ran over the wrong group. Its value is not that of the whole "
                          "batch and is not logged; see the collectives with `xlane sharding`",
                          i ? g->metric[i - 1].name.p : "loss", have, xl_axes_text(&g->mesh, axes, over, sizeof over),
                          want);
    }
    return NULL;
}

xl_error *xl_metric_global(const xl_graph *g, xl_step_kind kind, uint32_t i)
{
    const xl_metric_info *m = xl_metric_of(g, kind, i);
    char over[128];
    if (m->how != XL_HOW_LOCAL || !g->mesh.naxis)
        return NULL;
    return XL_ERR(PRECONDITION,
                  "metric %s is local: it is read before any collective over %s, one value for each of %u devices, and "
                  "none of them is that of the batch. Reduce it in the graph (\"mean over %s\"), "
                  "or read all of them with xl_trainer_read_local",
                  m->name.p, xl_axes_text(&g->mesh, m->axes, over, sizeof over), m->width, over);
}
