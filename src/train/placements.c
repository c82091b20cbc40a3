#include "train/placements.h"

#include <stdlib.h>

#include "base/file.h"
#include "ir/text/print.h"
#include "ir/read.h"
#include "pass/shard.h"

/* ---- real buffers ---- */
xl_error *xl_placement_array(xl_arena *a, xl_placements *l, xl_str name, const xl_array *x)
{
    xl_error *err = NULL;
    xl_placement t = { .name = xl_str_dup(a, name),
                  .dtype = xl_str_of(xl_elem_text(x->elem)),
                  .rank = x->rank,
                  .npart = (uint32_t)x->place->n };
    xl_buf b = { 0 };
    size_t bytes = 0;
    t.part = xl_new(a, xl_placement_part, t.npart);
    memcpy(t.dims, x->dims, x->rank * sizeof *t.dims);
    if (xl_elem_size(x->elem, (xl_dims){ x->dims, x->rank }, &bytes))
        t.bytes = (int64_t)bytes;
    for (uint32_t d = 0; d < x->rank; d++) {
        xl_buf_puts(&b, d ? ", " : "");
        if (!x->spec.dim[d].n)
            xl_buf_puts(&b, "whole");
        for (uint32_t k = 0; k < x->spec.dim[d].n; k++)
            xl_buf_printf(&b, "%s%.*s", k ? "+" : "", XL_FMT(x->place->mesh->axis[x->spec.dim[d].axis[k]].name));
    }
    t.split = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    XL_TRY(xl_array_check(x), "%.*s", XL_FMT(name));
    for (uint32_t i = 0; i < t.npart; i++) {
        xl_placement_part *p = &t.part[i];
        const xl_device *dev;
        xl_dims have;
        int64_t shape[XL_MESH_RANK];
        xl_array_part(x, i, p->lo, shape);
        if (!x->part[i]) { /* another process's, which has checked that it lies as the sharding says */
            p->device = x->place->dev[i]->id;
            p->bytes = (int64_t)(xl_array_local(x) * xl_elem_bytes(x->elem));
            for (uint32_t d = 0; d < x->rank; d++)
                p->hi[d] = p->lo[d] + shape[d];
            continue;
        }
        XL_DO(xl_buffer_device(x->part[i], &dev));
        XL_DO(xl_buffer_dims(x->part[i], &have));
        XL_DO(xl_buffer_bytes(x->part[i], &bytes));
        p->device = dev->id;
        p->bytes = (int64_t)bytes;
        for (uint32_t d = 0; d < x->rank; d++)
            p->hi[d] = p->lo[d] + have.p[d];
    }
    l->ndevice = t.npart > l->ndevice ? t.npart : l->ndevice;
    XL_PUSH(a, l->t, l->n, l->cap, t);
out:
    return err;
}

xl_error *xl_placement_record(const xl_trainer *t, const xl_graph *g, xl_array *const *input, const xl_array *metrics,
                         const char *dir)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_placements l = { 0 };
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    if (g->mesh.naxis)
        xl_mesh_text(&g->mesh, &b);
    l.mesh = xl_str_dup(&a, xl_buf_view(&b));
    b.n = 0;
    for (uint32_t i = 0; i < 3 * t->n + 1; i++)
        XL_DO(xl_placement_array(&a, &l, xl_state_name(&a, t, i), t->buf[i]));
    for (uint32_t i = 0; i < g->ninput; i++)
        XL_DO(xl_placement_array(&a, &l, g->input[i].name, input[i]));
    XL_DO(xl_placement_array(&a, &l, XL_STR("hyper"), t->hyper));
    if (t->parts)
        XL_DO(xl_placement_array(&a, &l, XL_STR("participants"), t->parts));
    XL_DO(xl_placement_array(&a, &l, XL_STR("metrics"), metrics));
    xl_placement_json(&l, &j);
    if (dir)
        err = xl_file_write_atomic(xl_path_join(&a, dir, "sharding.json"), xl_buf_view(&b));
out:
    xl_buf_fini(&b);
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_placement_config(xl_arena *a, const char *dir, char *const *words, int n, xl_config *out)
{
    xl_error *err = NULL;
    char *path = xl_path_join(a, dir, "sharding.json"), **all = xl_new(a, char *, (size_t)n + 1);
    int have = 0;
    if (xl_file_stat(path, NULL)) {
        xl_placements l;
        XL_DO(xl_placement_read(a, path, &l));
        all[have++] = xl_str_c(a, xl_strf(a, "mesh=%.*s", XL_FMT(l.mesh)));
    }
    for (int i = 0; i < n; i++)
        all[have++] = words[i];
    err = xl_run_config(a, dir, all, have, out);
out:
    return err;
}

/* ---- before the run ---- */
static xl_error *ask_device(xl_arena *a, const xl_config *c, xl_setup *s, xl_func *f, xl_sharding_plan *out)
{
    xl_error *err = NULL;
    xl_program *p = NULL;
    char n[32];
    snprintf(n, sizeof n, "%lld", (long long)(s->mesh.naxis ? xl_mesh_size(&s->mesh) : 1));
    setenv("XLANE_CPU_DEVICES", n,
           0); /* nothing runs: the embedded device has as many as are asked about, unless somebody said */
    XL_DO(xl_setup_device(c, s));
    s->lane->cache = NULL;
    out->device = xl_str_c(a, xl_str_of(xl_lane_name(s->lane)));
    xl_device_memory m;
    xl_error *silent = xl_device_memory_read(s->lane->dev, &m);
    if (!silent)
        out->limit = m.limit;
    xl_error_free(silent);
    err = xl_lane_compile(s->lane, s->g[0], f, "sharding", &p);
    if (err && xl_error_code(err) == XL_CODE_EXHAUSTED) {
        out->refused = xl_str_c(a, xl_str_of(xl_error_message(err)));
        xl_error_free(err);
        err = NULL;
    } else if (!err) {
        xl_program_memory pm;
        silent = xl_executable_memory(xl_program_executable(p), &pm);
        if (!silent)
            out->needs = pm.needs;
        xl_error_free(silent);
    }
out:
    xl_program_free(p);
    return err;
}

xl_error *xl_train_sharding(xl_arena *a, const xl_config *c, bool compile, xl_sharding_plan *out)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    xl_module *m = NULL;
    xl_buf text = { 0 };
    xl_func *f;
    xl_shard_info info = { 0 };
    int64_t time = c->data.nbucket ? c->data.buckets[c->data.nbucket - 1] : c->data.time;
    *out = (xl_sharding_plan){ .needs = -1, .limit = -1 };
    XL_DO(xl_setup_graphs(c, &time, 1, c->data.batch, &s));
    xl_graph *g = s.g[0];
    xl_str *names = xl_new(a, xl_str, g->nparam);
    for (uint32_t i = 0; i < g->nparam; i++)
        names[i] = g->param[i].name;
    xl_step_opts how = { .keep = xl_config_keep(c) };
    XL_DO(xl_step_build(g, XL_STEP_TRAIN, names, g->nparam, &how, &f));
    xl_module view = xl_graph_view(g, &f);
    xl_print_module(&view, &(xl_print_opts){ .locations = true }, &text);
    XL_DO(xl_read_text(xl_buf_view(&text), NULL, &m));     /* partitioning changes the program: a copy of it */
    xl_func *local = xl_module_entry(m);
    int64_t n = g->mesh.naxis ? xl_mesh_size(&g->mesh) : 1;
    const xl_type **type = xl_new(a, const xl_type *, local->body->narg);
    for (uint32_t i = 0; i < local->body->narg; i++)
        type[i] = xl_value_type(local, local->body->arg[i]);
    XL_TRY(xl_shard(m, n, 1, &info), "splitting the training step over %lld devices", (long long)n);
    const xl_mesh *mesh = m->nmesh ? m->mesh[0].mesh : NULL;
    for (uint32_t i = 0; i < info.narg; i++)
        xl_placement_add(a, &out->held, f->val[f->body->arg[i].id].name, type[i], &info, info.arg[i], mesh);
    if (g->mesh.naxis) {
        xl_buf b = { 0 };
        xl_mesh_text(&g->mesh, &b);
        out->held.mesh = xl_str_dup(a, xl_buf_view(&b));
        xl_buf_fini(&b);
    }
    xl_crossings_of(a, local, n, mesh, &out->crossing);
    text.n = 0;
    xl_shard_gathered(&info, &text);
    out->gathered = xl_str_dup(a, xl_buf_view(&text));
    out->predicted = xl_lane_predict(g, f);
    if (compile)
        XL_DO(ask_device(a, c, &s, f, out));
out:
    xl_setup_fini(&s);
    xl_module_free(m);
    xl_buf_fini(&text);
    return err;
}
