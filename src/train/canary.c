/* Before the first evaluation: known numbers, one on each device, reduced over the axes that the metrics are reduced
 * over. Each device must hold the same right sums, maxima and counts afterwards; they are read from every one of them,
 * not from the first alone. */
#include "train/metric.h"
#include "train/trainer.h"

enum { SUM, MAX, COUNT, KINDS };
static const char *const kinds[KINDS] = { "sum", "maximum", "participant count" };

typedef struct { uint32_t axes[XL_MESH_AXES + 32], n; } sets;

static void add_set(sets *s, uint32_t axes)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->axes[i] == axes)
            return;
    if (axes && s->n < sizeof s->axes / sizeof *s->axes)
        s->axes[s->n++] = axes;
}

/* What the reduction of 1, 2, 3, ... gives for the devices that stand where device d does along the other axes. */
static double known(const xl_mesh_def *mesh, uint32_t axes, int kind, int64_t d)
{
    double sum = 0, max = 0, count = 0;
    for (int64_t e = 0; e < xl_mesh_size(mesh); e++) {
        bool same = true;
        int64_t a = d, b = e;
        for (uint32_t i = mesh->naxis; i-- > 0; a /= mesh->axis[i].size, b /= mesh->axis[i].size)
            same &= (axes >> i & 1) || a % mesh->axis[i].size == b % mesh->axis[i].size;
        if (same)
            sum += (double)(e + 1), max = (double)(e + 1), count++;
    }
    return kind == SUM ? sum : kind == MAX ? max : count;
}

/* All reductions as one vector: for each set and kind a value per place along the axes that are left. */
static xl_value reductions(xl_graph *g, const sets *s, xl_value value)
{
    xl_value part[3 * (XL_MESH_AXES + 32)];
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n; k++)
        for (int kind = 0; kind < KINDS; kind++) {
            int64_t over[XL_MESH_AXES], size = xl_mesh_size(&g->mesh) / xl_metric_expects(g, s->axes[k]);
            size_t m = 0;
            for (uint32_t i = 0; i < g->mesh.naxis; i++)
                if (s->axes[k] >> i & 1)
                    over[m++] = i;
            xl_value v = xl_em_reduce(&g->e, kind == MAX ? XL_OP_MAXIMUM : XL_OP_ADD, kind == COUNT ? g->parts : value,
                                      0, (xl_dims){ over, m });
            part[n++] = xl_em_reshape(&g->e, v, XL_DIMS(size));
        }
    return xl_em_concat(&g->e, part, n, 0);
}

static xl_error *compare(const xl_graph *g, const sets *s, const float *v, const xl_device *dev)
{
    uint32_t at = 0;
    char over[128];
    for (uint32_t k = 0; k < s->n; k++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int64_t d = 0; d < xl_mesh_size(&g->mesh); d++) {
                int64_t a = d; /* the first device of each place along the other axes stands for it */
                bool first = true;
                for (uint32_t i = g->mesh.naxis; i-- > 0; a /= g->mesh.axis[i].size)
                    first &= !(s->axes[k] >> i & 1) || a % g->mesh.axis[i].size == 0;
                if (!first)
                    continue;
                double want = known(&g->mesh, s->axes[k], kind, d);
                if ((double)v[at++] != want)
                    return XL_ERR(PRECONDITION,
                                  "canary: device %d holds %g as the %s over %s of known values, %g is right: a "
                                  "collective ran over the wrong devices, or this device did not take part; "
                                  "no evaluation on this mesh can be trusted",
                                  dev->id, (double)v[at - 1], kinds[kind],
                                  xl_axes_text(&g->mesh, s->axes[k], over, sizeof over), want);
            }
    return NULL;
}

static void report(xl_lane *l, const xl_graph *g, const sets *s, const xl_error *err)
{
    xl_event e;
    char over[128];
    if (!l->run)
        return;
    xl_event_begin(l->run, &e, "canary");
    xl_json_put_int(&e.j, "step", l->step);
    xl_json_put_int(&e.j, "devices", (int64_t)l->place.n);
    xl_json_put_text(&e.j, "result", err ? "wrong" : "right on every device");
    xl_json_key(&e.j, "reductions");
    xl_json_list(&e.j);
    for (uint32_t i = 0; i < s->n; i++) {
        xl_json_map(&e.j);
        xl_json_put_text(&e.j, "over", xl_axes_text(&g->mesh, s->axes[i], over, sizeof over));
        xl_json_put_int(&e.j, "participants", xl_metric_expects(g, s->axes[i]));
        xl_json_end(&e.j);
    }
    xl_json_end(&e.j);
    if (err)
        xl_json_put_text(&e.j, "error", xl_error_message(err));
    xl_event_end(l->run, &e);
}

xl_error *xl_trainer_canary(xl_trainer *t, const xl_graph *of)
{
    xl_error *err = NULL;
    xl_lane *l = t->lane;
    xl_arena a = { 0 };
    xl_array *in[2] = { NULL, t->parts }, *out = NULL;
    sets s = { .n = 0 };
    if (!of->mesh.naxis || t->canary)
        return NULL;
    xl_graph *g = t->canary = xl_graph_new("canary");       /* stays: the lane remembers what it compiled */
    if (!g)
        return XL_ERR(EXHAUSTED, "no memory for a graph");
    if (!xl_graph_mesh_def(g, &of->mesh)) {
        err = XL_ERR(INTERNAL, "%s", xl_error_message(g->err));
        goto out;
    }
    add_set(&s, (1u << of->mesh.naxis) - 1);
    for (uint32_t i = 0; i < of->nmetric; i++)
        add_set(&s, of->metric[i].axes);
    const xl_type *each = xl_value_type(g->f, g->parts);
    xl_tensor value = xl_input_dims(g, "value", XL_F32, xl_type_dims(each));
    g->input[0].spec = xl_mesh_each(&g->mesh);
    xl_tensor all = xl_tensor_of(reductions(g, &s, xl_val_of(value)));
    xl_func *f;
    XL_DO(xl_forward_build(g, NULL, 0, &all, 1, &f));
    XL_DO(xl_lane_compile(l, g, f, "canary", &t->canary_program));
    float *v = xl_new(&a, float, l->place.n);
    for (size_t i = 0; i < l->place.n; i++)
        v[i] = (float)(i + 1);
    if (of->plant == XL_PLANT_CANARY)
        v[l->place.n - 1] = 0;                             /* as if the last device brought nothing */
    XL_DO(xl_trainer_each(l, g, v, &in[0]));
    int64_t n = xl_dim(g, all, 0);
    XL_TRY(xl_array_execute(&l->place, t->canary_program, in, 2,
                            &(xl_array_type){ xl_elem_of(XL_F32), { &n, 1 }, NULL }, 1, &out),
           "running the canary");
    float *got = xl_new(&a, float, (size_t)n);
    for (size_t d = 0; d < l->place.n && !err; d++) {
        if (!out->part[d])
            continue; /* its own process reads it */
        XL_DO(xl_buffer_to_host(out->part[d], got, (size_t)n * sizeof *got, NULL));
        err = compare(g, &s, got, l->place.dev[d]);
    }
    report(l, g, &s, err);
out:
    xl_array_free(in[0]);
    xl_array_free(out);
    xl_arena_fini(&a);
    return err;
}
