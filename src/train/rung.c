#include "train/rung.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/time.h"
#include "lane/run.h"
#include "train/loop.h"

static const char *const layers[] = { "", "host", "startup", "graph", "cache" };
const char *xl_layer_word(xl_layer l) { return layers[l]; }

static const xl_rung rungs[] = {
    { "probe", NULL, "compile, run and read back a known answer", XL_RUNG_PROBE, 0, 0 },
#define RUNG(name, pattern, about, kind, first, last) { name, pattern, about, XL_RUNG_##kind, first, last },
#include "train/rungs.def"
};
/* A rung that trains has known answers. */
#define RUNG(name, pattern, about, kind, first, last)                                                                  \
    _Static_assert((XL_RUNG_##kind != XL_RUNG_TRAIN && XL_RUNG_##kind != XL_RUNG_SCAN) ||                              \
                       ((int)first > 0 && (int)last > 0),                                                              \
                   name " has no losses: test/_rungs.py prints them");
#include "train/rungs.def"

const xl_rung *xl_rungs(size_t *n)
{
    *n = sizeof rungs / sizeof *rungs;
    return rungs;
}

const xl_rung *xl_rung_find(const char *name)
{
    for (size_t i = 0; i < sizeof rungs / sizeof *rungs; i++)
        if (!strcmp(rungs[i].name, name))
            return &rungs[i];
    return NULL;
}

xl_error *xl_rung_config(xl_arena *a, const xl_rung *r, const char *device, const char *cache, char *const *words,
                         int n, xl_config *out)
{
    char **all = xl_new(a, char *, (size_t)n + 16);
    int k = 0;
    const char *own[] = { xl_strf(a, "model.pattern=%s", r->pattern ? r->pattern : "D").p,
                          "model.dim=32",
                          "model.heads=2",
                          "model.vocab=64",
                          "model.state=8",
                          "model.chunk=8",
                          "model.experts=4",
                          "data.batch=2",
                          "data.time=32",
                          "data.train=none",
                          "train.steps=6",
                          "optimizer.warmup=1",
                          "optimizer.lr=0.02",
                          xl_strf(a, "cache=%s", cache ? cache : "none").p };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        all[k++] = xl_str_c(a, xl_str_of(own[i]));
    for (int i = 0; i < n; i++)
        all[k++] = words[i];
    xl_error *err = xl_config_read(a, NULL, all, k, out);
    if (!err)
        out->device = device;
    return err;
}

/* A sequence that can be learned: each token follows from the one before. */
static int32_t token(int64_t row, int64_t i) { return (int32_t)((7 * i * i + 5 * i + 11 * row) % 61); }

static xl_error *feed(xl_lane *l, const xl_graph *g, xl_array **in)
{
    xl_error *err = NULL;
    int32_t data[2 * 32];
    for (uint32_t i = 0; i < g->ninput && i < 4; i++) {
        xl_str name = g->input[i].name;
        for (int64_t k = 0; k < 64; k++) {
            int64_t row = k / 32, at = k % 32;
            data[k] = xl_str_is(name, "segments")    ? 1
                      : xl_str_is(name, "positions") ? (int32_t)at
                                                     : token(row, xl_str_is(name, "targets") ? at + 1 : at);
        }
        XL_DO(xl_lane_put(l, g->input[i].type, &g->input[i].spec, data, &in[i]));
    }
out:
    return err;
}

static xl_error *train(xl_arena *a, const xl_rung *r, const xl_config *c, const char *state, bool restored,
                       void (*at)(xl_layer), xl_rung_result *out)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    xl_array *in[4] = { 0 }, *m = NULL;
    int64_t time = 32;
    int from = 0;
    char *ckpt = xl_path_join(a, state, xl_strf(a, "%s.safetensors", r->name).p);
    at(XL_LAYER_HOST);
    xl_config own = *c;
    if (r->kind == XL_RUNG_SCAN && own.model.scan < 0)
        own.model.scan = true;
    c = &own;
    XL_DO(xl_setup_graphs(c, &time, 1, 2, &s));
    if (r->kind == XL_RUNG_SCAN && s.why && *s.why) {
        err = XL_ERR(PRECONDITION, "the layers are not scanned: %s", s.why);
        at(XL_LAYER_GRAPH);
        goto out;
    }
    at(XL_LAYER_STARTUP);
    XL_DO(xl_setup_device(c, &s));
    XL_DO(xl_trainer_new(s.lane, s.g[0], &c->opt, 1, &s.t));
    at(XL_LAYER_GRAPH);
    if (r->kind == XL_RUNG_RESUME && restored) {
        at(XL_LAYER_CACHE);             /* what was kept does not come back */
        XL_TRY(xl_trainer_load(s.t, ckpt), "the checkpoint of the cold phase");
        at(XL_LAYER_GRAPH);
        from = XL_RUNG_STEPS / 2;
    }
    for (int step = from; step < XL_RUNG_STEPS; step++) {
        const xl_prepared *p;
        float v[64];
        if (c->bake_lr) {
            s.t->how.bake_lr = true;
            s.t->how.baked = c->opt.lr / (1 + step);
        }
        XL_DO(xl_trainer_prepare(s.t, s.g[0], XL_STEP_TRAIN, &p));
        XL_DO(feed(s.lane, p->g, in));
        XL_DO(xl_trainer_update(s.t, p, in, &m));
        XL_TRY(xl_array_get(m, v, xl_metric_slots(p->g, XL_STEP_TRAIN) * sizeof(float), NULL), "step %d", step + 1);
        out->loss[out->nloss++] = (double)v[XL_AT_LOSS];
        out->executes++;
        xl_array_free(m);
        m = NULL;
        for (int i = 0; i < 4; i++) {
            xl_array_free(in[i]);
            in[i] = NULL;
        }
        if (r->kind == XL_RUNG_RESUME && !restored && step + 1 == XL_RUNG_STEPS / 2)
            XL_TRY(xl_trainer_save(s.t, ckpt), "saving a checkpoint");
    }
out:
    out->compiles = s.lane ? (int64_t)s.lane->ncompile : 0;
    out->loaded = s.lane ? (int64_t)s.lane->nloaded : 0;
    for (int i = 0; i < 4; i++)
        xl_array_free(in[i]);
    xl_array_free(m);
    xl_setup_fini(&s);
    return err;
}

/* All devices add up what each of them has: the sum of 1 to n on every one. */
static xl_error *mesh(const xl_config *c, void (*at)(xl_layer), xl_rung_result *out)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    xl_arena a = { 0 };
    xl_buf text = { 0 };
    xl_program *p = NULL;
    xl_buffer **in = NULL, **res = NULL;
    size_t n = 0;
    at(XL_LAYER_STARTUP);
    XL_DO(xl_setup_device(c, &s));
    n = xl_client_nlocal(s.lane->client);
    xl_buf_puts(&text, "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
                       "  %0 = \"stablehlo.all_reduce\"(%x) ({\n"
                       "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
                       "    %1 = stablehlo.add %a, %b : tensor<f32>\n"
                       "    stablehlo.return %1 : tensor<f32>\n"
                       "  }) {replica_groups = dense<[[");
    for (size_t i = 0; i < n; i++)
        xl_buf_printf(&text, "%s%zu", i ? ", " : "", i);
    xl_buf_printf(&text, "]]> : tensor<1x%zuxi64>} : (tensor<f32>) -> tensor<f32>\n  return %%0 : tensor<f32>\n}\n", n);
    at(XL_LAYER_GRAPH);
    XL_TRY(xl_lane_compile_text(s.lane, "all_reduce", xl_buf_view(&text),
                                &(xl_options){ .replicas = (int)n, .partitions = 1 }, &p),
           "an all-reduce over %zu devices", n);
    in = xl_new(&a, xl_buffer *, n);
    res = xl_new(&a, xl_buffer *, n);
    xl_buffer *const **args = xl_new(&a, xl_buffer *const *, n);
    xl_buffer ***outs = xl_new(&a, xl_buffer **, n);
    for (size_t i = 0; i < n; i++) {
        float v = (float)(i + 1);
        XL_DO(xl_buffer_from_host(xl_client_local(s.lane->client, i), xl_elem_parse(XL_STR("f32")),
                                  (xl_dims){ NULL, 0 }, &v, NULL, &in[i]));
        args[i] = &in[i];
        outs[i] = &res[i];
    }
    XL_TRY(xl_program_execute(p, &(xl_exec){ .ndevice = n,
                                             .narg = 1,
                                             .arg = (xl_buffer *const *const *)args,
                                             .out = (xl_buffer * *const *)outs }),
           "running an all-reduce");
    for (size_t i = 0; i < n; i++) {
        float v = 0;
        XL_TRY(xl_buffer_to_host(res[i], &v, sizeof v, NULL), "device %zu", i);
        size_t sum = n * (n + 1) / 2;
        if (v != (float)sum) {
            err = XL_ERR(INTERNAL, "the all-reduce gave %g on device %zu, not %zu", (double)v, i, sum);
            goto out;
        }
    }
    out->executes = 1;
out:
    out->compiles = s.lane ? (int64_t)s.lane->ncompile : 0;
    out->loaded = s.lane ? (int64_t)s.lane->nloaded : 0;
    for (size_t i = 0; i < n && in; i++) {
        xl_buffer_free(in[i]);
        xl_buffer_free(res[i]);
    }
    xl_program_free(p);
    xl_setup_fini(&s);
    xl_buf_fini(&text);
    xl_arena_fini(&a);
    return err;
}

static xl_layer now;
static void (*tell)(xl_layer l);
static void at_layer(xl_layer l)
{
    now = l;
    if (tell)
        tell(l);
}

void xl_rung_run(xl_arena *a, const xl_rung *r, const xl_config *c, const char *state, bool restored,
                 void (*at)(xl_layer), xl_rung_result *out)
{
    double start = xl_now();
    *out = (xl_rung_result){ 0 };
    tell = at;
    xl_error *err = NULL;
    switch (r->kind) {
    case XL_RUNG_PROBE: err = XL_ERR(INTERNAL, "the probe is no training"); break;
    case XL_RUNG_TRAIN: case XL_RUNG_SCAN: case XL_RUNG_RESUME:
        err = train(a, r, c, state, restored, at_layer, out);
        break;
    case XL_RUNG_MESH: err = mesh(c, at_layer, out); break;
    }
    if (!err) {
        for (int i = 0; i < out->nloss && !err; i++)
            if (!isfinite(out->loss[i]))
                err = XL_ERR(INTERNAL, "the loss of step %d is not finite", i + 1);
        double first = out->loss[0], last = out->nloss ? out->loss[out->nloss - 1] : 0;
        if (!err && r->first > 0 && !restored && fabs(first - (double)r->first) > 0.01 * (double)r->first)
            err = XL_ERR(
                INTERNAL,
                "the loss of the first step is %.4f; the right answer is %.4f: the device computes something else",
                first, (double)r->first);
        else if (!err && r->last > 0 && fabs(last - (double)r->last) > 0.01 * (double)r->last)
            err = XL_ERR(
                INTERNAL,
                "the loss of the last step is %.4f; the right answer is %.4f: the gradient or the update is another",
                last, (double)r->last);
        now = XL_LAYER_GRAPH;
    }
    out->seconds = xl_now() - start;
    if (err) {
        out->layer = now == XL_LAYER_NONE ? XL_LAYER_HOST : now;
        out->message = xl_str_dup(a, xl_str_of(xl_error_message(err)));
        xl_error_free(err);
    }
}

void xl_rung_json(xl_json *j, const xl_rung_result *r)
{
    xl_json_map(j);
    xl_json_put_text(j, "layer", xl_layer_word(r->layer));
    xl_json_put_str(j, "message", r->message);
    xl_json_put_int(j, "compiles", r->compiles);
    xl_json_put_int(j, "loaded", r->loaded);
    xl_json_put_int(j, "executes", r->executes);
    xl_json_put_num(j, "seconds", r->seconds);
    xl_json_key(j, "loss");
    xl_json_list(j);
    for (int i = 0; i < r->nloss; i++)
        xl_json_num(j, r->loss[i]);
    xl_json_end(j);
    xl_json_end(j);
}

xl_error *xl_rung_read(const xl_node *n, xl_rung_result *out)
{
    xl_error *err = NULL;
    xl_str layer = { 0 };
    *out = (xl_rung_result){ 0 };
    XL_DO(xl_node_get_str(n, "layer", &layer));
    for (int i = 0; i < 5; i++)
        if (xl_str_is(layer, layers[i]))
            out->layer = (xl_layer)i;
    XL_DO(xl_node_get_str(n, "message", &out->message));
    XL_DO(xl_node_get_int(n, "compiles", 0, INT32_MAX, &out->compiles));
    XL_DO(xl_node_get_int(n, "loaded", 0, INT32_MAX, &out->loaded));
    XL_DO(xl_node_get_int(n, "executes", 0, INT32_MAX, &out->executes));
    XL_DO(xl_node_get_float(n, "seconds", &out->seconds));
    const xl_node *loss = xl_node_get(n, "loss");
    for (size_t i = 0; loss && i < loss->n && i < XL_RUNG_STEPS; i++)
        out->loss[out->nloss++] = loss->kid[i]->f;
out:
    return err;
}
