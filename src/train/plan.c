/* What a run would be, said without a device. */
#include <stdlib.h>

#include "ir/text/print.h"
#include "lane/predict.h"
#include "train/placements.h"

/* By the rule that most compilers follow: elementwise results are fused into their readers. 0 where the program cannot
 * be read. */
int64_t xl_lane_predict(xl_graph *g, xl_func *f)
{
    xl_prediction p;
    xl_module v = xl_graph_view(g, &f);
    xl_error_free(xl_predict(&v, XL_RULE_FUSED, &p));
    return p.total;
}

static xl_error *names_of(xl_graph *g, xl_str **out)
{
    *out = xl_new(&g->m->arena, xl_str, g->nparam);
    for (uint32_t i = 0; i < g->nparam; i++)
        (*out)[i] = g->param[i].name;
    return NULL;
}

static uint32_t count_ops(const xl_region *r)
{
    uint32_t n = r->nop;
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            n += count_ops(r->op[i]->region[k]);
    return n;
}

static double crossing(const xl_sharding_plan *p)
{
    double bytes = 0;
    for (uint32_t i = 0; i < p->crossing.n; i++)
        bytes += p->crossing.c[i].bytes;
    return bytes;
}

static void mesh_json(const xl_sharding_plan *p, xl_json *j)
{
    xl_json_key(j, "mesh");
    xl_json_map(j);
    xl_json_put_str(j, "axes", p->held.mesh);
    xl_json_put_int(j, "devices", p->held.ndevice);
    xl_json_put_int(j, "argument_bytes", xl_placement_on(&p->held, 0));
    xl_json_put_int(j, "replicated_bytes", xl_placement_waste(&p->held, 0));
    xl_json_put_int(j, "predicted_bytes", p->predicted);
    xl_json_put_num(j, "collective_bytes", crossing(p));
    xl_json_end(j);
}

xl_error *xl_train_plan(const xl_config *c, bool json, xl_buf *out)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    xl_json j = { .out = out, .pretty = true };
    int64_t one = c->data.time;
    const int64_t *times = c->data.nbucket ? c->data.buckets : &one;
    int n = c->data.nbucket ? c->data.nbucket : 1;
    float hyper[XL_HYPER_COUNT];
    xl_sharding_plan spread = { 0 };
    XL_DO(xl_hyper_fill(&c->opt, hyper));
    XL_DO(xl_setup_graphs(c, times, n, c->data.batch, &s));
    int64_t params = xl_graph_params(s.g[0]);
    if (c->mesh.n)
        XL_DO(xl_train_sharding(&s.arena, c, false, &spread));
    if (json) {
        xl_json_map(&j);
        xl_json_put_text(&j, "pattern", c->model.pattern);
        xl_json_put_int(&j, "parameters", params);
        xl_json_put_int(&j, "state_bytes", params * 12 + 8);
        xl_json_put_text(&j, "scan", s.why[0] ? s.why : "over repeated units");
        if (c->mesh.n)
            mesh_json(&spread, &j);
        xl_json_key(&j, "buckets");
        xl_json_list(&j);
    } else {
        xl_buf_printf(out, "pattern      %s%s%s\n", c->model.pattern, s.why[0] ? ", no scan: " : "", s.why);
        xl_buf_printf(out, "parameters   %lld\n", (long long)params);
        xl_buf_printf(out, "state        %.1f MB: parameters and two moments in f32, donated and updated in place\n",
                      (double)params * 12e-6);
        if (c->mesh.n)
            xl_buf_printf(out,
                          "mesh         %.*s on %u devices; on each %.1f MB of arguments (%.1f MB also elsewhere), "
                          "about %.1f MB for a step, %.1f MB through collectives; `xlane sharding` draws it\n",
                          XL_FMT(spread.held.mesh), spread.held.ndevice,
                          (double)xl_placement_on(&spread.held, 0) * 1e-6,
                          (double)xl_placement_waste(&spread.held, 0) * 1e-6, (double)spread.predicted * 1e-6,
                          crossing(&spread) * 1e-6);
    }
    for (int i = 0; i < n; i++) {
        xl_str *names;
        xl_func *f;
        char hex[XL_DIGEST_HEX];
        XL_DO(names_of(s.g[i], &names));
        XL_DO(xl_step_build(s.g[i], XL_STEP_TRAIN, names, s.g[i]->nparam, &(xl_step_opts){ .keep = xl_config_keep(c) },
                            &f));
        int64_t bytes = xl_lane_predict(s.g[i], f);
        double flops = xl_model_flops(&c->model, params, c->data.batch, times[i]);
        xl_digest d = xl_graph_hash(s.g[i], f);
        xl_digest_hex(&d, hex);
        if (json) {
            xl_json_map(&j);
            xl_json_put_int(&j, "batch", c->data.batch);
            xl_json_put_int(&j, "time", times[i]);
            xl_json_put_num(&j, "flops", flops);
            xl_json_put_int(&j, "predicted_bytes", bytes);
            xl_json_put_int(&j, "ops", count_ops(f->body));
            xl_json_put_text(&j, "program", hex);
            xl_json_end(&j);
        } else
            xl_buf_printf(out,
                          "bucket %-5lld %lld x %lld tokens, %.3g GFLOP a step, %u ops, about %.1f MB, program %.16s\n",
                          (long long)times[i], (long long)c->data.batch, (long long)times[i], flops * 1e-9,
                          count_ops(f->body), (double)(bytes)*1e-6, hex);
    }
    if (json) {
        xl_json_end(&j);
        xl_json_end(&j);
    }
out:
    xl_setup_fini(&s);
    return err;
}

xl_error *xl_train_print(const xl_config *c, const char *what, xl_buf *out)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    xl_str *names;
    xl_func *f;
    int64_t one = c->data.nbucket ? c->data.buckets[0] : c->data.time;
    XL_DO(xl_setup_graphs(c, &one, 1, c->data.batch, &s));
    xl_graph *g = s.g[0];
    XL_DO(names_of(g, &names));
    xl_step_opts how = { .keep = xl_config_keep(c) };
    if (!strcmp(what, "loss")) {
        xl_tensor loss = xl_tensor_of(g->loss);
        XL_DO(xl_forward_build(g, names, g->nparam, &loss, 1, &f));
    } else if (!strcmp(what, "step"))
        XL_DO(xl_step_build(g, XL_STEP_TRAIN, names, g->nparam, &how, &f));
    else if (!strcmp(what, "eval"))
        XL_DO(xl_step_build(g, XL_STEP_EVAL, names, g->nparam, NULL, &f));
    else {
        err = XL_ERR(INVALID, "--print=%s: it is loss, step or eval", what);
        goto out;
    }
    const char *asked = getenv("XLANE_ANNOTATIONS");
    xl_module v = xl_graph_view(g, &f);
    if (g->mesh.naxis && asked && !strcmp(asked, "mhlo")) {
        xl_mesh_to_mhlo(f, &g->mesh);
        v.nmesh = 0;
    }
    xl_print_module(&v, &(xl_print_opts){ .locations = true }, out);
out:
    xl_setup_fini(&s);
    return err;
}
