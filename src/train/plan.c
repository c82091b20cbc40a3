/* What a run would be, said without a device. */
#include "ir/print.h"
#include "train/held.h"

/* ---- memory: a walk over the program in order --------------------------------------------------------------------- */
/* A value takes memory from the op that makes it to its last use. Elementwise results that only other elementwise ops read are
 * taken to be fused away; so are shapes and broadcasts. That is how compilers of this kind behave, near enough to tell what fits. */
static bool moves(const xl_op *op)
{
    if (xl_ops[op->code].flags & XL_OP_ELEMWISE)
        return true;
    switch (op->code) {
    case XL_OP_RESHAPE: case XL_OP_BROADCAST_IN_DIM: case XL_OP_IOTA: case XL_OP_CONSTANT: case XL_OP_OPTIMIZATION_BARRIER: case XL_OP_SLICE:
    case XL_OP_TRANSPOSE: case XL_OP_PAD:
        return true;
    default:
        return false;
    }
}

static int64_t peak(const xl_func *f, const xl_region *r, const uint32_t *last, const bool *counted)
{
    int64_t live = 0, most = 0;
    /* values that die after op i, by walking: sizes are subtracted when their last use has passed */
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        int64_t inner = 0;
        for (uint32_t k = 0; k < op->nregion; k++) {
            int64_t p = peak(f, op->region[k], last, counted);
            inner = p > inner ? p : inner;
        }
        for (uint32_t k = 0; k < op->nout; k++) {
            int64_t b = 0;
            if (counted[op->out[k].id] && xl_type_bytes(xl_out_type(f, op, k), &b))
                live += b;
        }
        most = live + inner > most ? live + inner : most;
        for (uint32_t k = 0; k < op->nin; k++) {
            xl_value v = op->in[k];
            const xl_op *def = xl_value_op(f, v);
            int64_t b = 0;
            bool again = false;
            for (uint32_t j = 0; j < k; j++)
                again |= op->in[j].id == v.id;
            if (!again && def && def->parent == r && last[v.id] == i && counted[v.id] && xl_type_bytes(xl_value_type(f, v), &b))
                live -= b;
        }
    }
    return most;
}

static void uses(const xl_func *f, const xl_region *r, uint32_t at, bool top, uint32_t *last, bool *counted)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nin; k++) {
            const xl_op *def = xl_value_op(f, op->in[k]);
            if (def && def->parent == r)
                last[op->in[k].id] = i;
            else if (!top)
                last[op->in[k].id] = at > last[op->in[k].id] ? at : last[op->in[k].id];
            if (def && (!moves(op) || !moves(def)))
                counted[op->in[k].id] = def->code != XL_OP_CONSTANT && def->code != XL_OP_IOTA;
        }
        for (uint32_t k = 0; k < op->nregion; k++)
            uses(f, op->region[k], top ? i : at, false, last, counted);
    }
}

static int64_t predict(const xl_func *f, int64_t *args)
{
    xl_arena a = { 0 };
    uint32_t *last = xl_new(&a, uint32_t, f->nval);
    bool *counted = xl_new(&a, bool, f->nval);
    int64_t b;
    *args = 0;
    for (uint32_t i = 0; i < f->body->narg; i++)
        *args += xl_type_bytes(xl_value_type(f, f->body->arg[i]), &b) ? b : 0;
    uses(f, f->body, 0, true, last, counted);
    int64_t p = peak(f, f->body, last, counted);
    xl_arena_fini(&a);
    return p;
}

int64_t xl_lane_predict(const xl_func *f)
{
    int64_t args, temp = predict(f, &args);
    return args + temp;
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
    xl_json_put_int(j, "argument_bytes", xl_held_on(&p->held, 0));
    xl_json_put_int(j, "replicated_bytes", xl_held_waste(&p->held, 0));
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
        xl_buf_printf(out, "state        %.1f MB: parameters and two moments in f32, donated and updated in place\n", (double)params * 12e-6);
        if (c->mesh.n)
            xl_buf_printf(out, "mesh         %.*s on %u devices; on each %.1f MB of arguments (%.1f MB also elsewhere), about %.1f MB for a step, %.1f MB through collectives; `xlane sharding` draws it\n",
                          XL_FMT(spread.held.mesh), spread.held.ndevice, (double)xl_held_on(&spread.held, 0) * 1e-6, (double)xl_held_waste(&spread.held, 0) * 1e-6, (double)spread.predicted * 1e-6,
                          crossing(&spread) * 1e-6);
    }
    for (int i = 0; i < n; i++) {
        xl_str *names;
        xl_func *f;
        char hex[XL_DIGEST_HEX];
        int64_t args;
        XL_DO(names_of(s.g[i], &names));
        XL_DO(xl_step_build(s.g[i], XL_STEP_TRAIN, names, s.g[i]->nparam, &(xl_step_opts){ .keep = !strcmp(c->keep_for_backward, "dots") ? XL_KEEP_DOTS : XL_KEEP_CARRY }, &f));
        int64_t temp = predict(f, &args);
        double flops = xl_model_flops(&c->model, params, c->data.batch, times[i]);
        xl_digest d = xl_graph_hash(s.g[i], f);
        xl_digest_hex(&d, hex);
        if (json) {
            xl_json_map(&j);
            xl_json_put_int(&j, "batch", c->data.batch);
            xl_json_put_int(&j, "time", times[i]);
            xl_json_put_num(&j, "flops", flops);
            xl_json_put_int(&j, "predicted_bytes", args + temp);
            xl_json_put_int(&j, "ops", count_ops(f->body));
            xl_json_put_text(&j, "program", hex);
            xl_json_end(&j);
        } else
            xl_buf_printf(out, "bucket %-5lld %lld x %lld tokens, %.3g GFLOP a step, %u ops, about %.1f MB, program %.16s\n", (long long)times[i],
                          (long long)c->data.batch, (long long)times[i], flops * 1e-9, count_ops(f->body), (double)(args + temp) * 1e-6, hex);
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
    xl_step_opts how = { .keep = !strcmp(c->keep_for_backward, "dots") ? XL_KEEP_DOTS : XL_KEEP_CARRY };
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
    xl_module v = xl_graph_view(g, &f);
    xl_print_module(&v, &(xl_print_opts){ .locations = true }, out);
out:
    xl_setup_fini(&s);
    return err;
}
