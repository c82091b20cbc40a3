/* What training, evaluating and sampling have in common: graphs, the device, its cache. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/home.h"
#include "base/log.h"
#include "base/time.h"
#include "pass/cudnn.h"
#include "pass/triton.h"
#include "train/blocks.h"
#include "train/loop.h"

/* Does this plugin have cuDNN's attention, there and back, for such heads? The one sure way to know is to compile it,
 * small; it comes from the cache the next time. */
static xl_error *try_fused(xl_lane *l, const xl_model *m, xl_setup *s)
{
    xl_error *err = NULL;
    xl_program *p = NULL;
    xl_func *f;
    xl_graph *g = s->trial = xl_graph_new("attention");
    if (!g)
        return XL_ERR(EXHAUSTED, "no memory for a graph");
    int64_t groups = m->kv_heads ? m->kv_heads : m->heads, size = m->dim / m->heads;
    xl_tensor in[3], out[3];
    for (int i = 0; i < 3; i++)
        in[i] = xl_input_dims(g, (const char *[]){ "q", "k", "v" }[i], XL_BF16,
                              XL_DIMS(1, 128, i ? groups : m->heads, size));
    xl_tensor o = xl_attention_fused(g, in[0], in[1], in[2], !m->nondeterministic);
    xl_gradient(g, xl_sum(g, xl_cast_to(g, o, XL_F32), NULL), in, 3, out);
    if (g->err)
        return XL_ERR(INTERNAL, "%s", xl_error_message(g->err));
    XL_DO(xl_forward_build(g, NULL, 0, out, 3, &f));
    err = xl_lane_compile(l, g, f, "attention.trial", &p);
out:
    xl_program_free(p);
    return err;
}

/* The same for kernels of our own: a norm and a loss of the model's width, there and back. */
static xl_error *try_kernels(xl_lane *l, const xl_model *m, xl_setup *s)
{
    xl_error *err = NULL;
    xl_program *p = NULL;
    xl_func *f;
    xl_graph *g = s->kernel_trial = xl_graph_new("kernels");
    if (!g)
        return XL_ERR(EXHAUSTED, "no memory for a graph");
    const int64_t rows = 128;
    xl_tensor in[3] = { xl_input_dims(g, "x", XL_BF16, XL_DIMS(rows, m->dim)),
                        xl_input_dims(g, "delta", XL_BF16, XL_DIMS(rows, m->dim)),
                        xl_input_dims(g, "gain", XL_F32, XL_DIMS(m->dim)) };
    xl_tensor label = xl_input_dims(g, "label", XL_I32, XL_DIMS(rows)),
              weight = xl_input_dims(g, "weight", XL_F32, XL_DIMS(rows)), out[3];
    xl_value x = xl_val_of(in[0]), nll, loss;
    xl_value n = xl_triton_norm(&g->e, &x, xl_val_of(in[1]), xl_val_of(in[2]), XL_RMSNORM_EPS);
    n = xl_em_binary(&g->e, XL_OP_ADD, xl_triton_norm(&g->e, &x, XL_NO_VALUE, xl_val_of(in[2]), XL_RMSNORM_EPS), n);
    xl_triton_loss(&g->e, n, xl_val_of(label), xl_val_of(weight), &nll, &loss);
    xl_gradient(g, xl_sum(g, xl_tensor_of(loss), NULL), in, 3, out);
    if (g->err)
        return XL_ERR(INTERNAL, "%s", xl_error_message(g->err));
    XL_DO(xl_forward_build(g, NULL, 0, out, 3, &f));
    err = xl_lane_compile(l, g, f, "kernels.trial", &p);
out:
    xl_program_free(p);
    return err;
}

static void choose_kernels(xl_setup *s, xl_model *m)
{
    const char *no = NULL;
    xl_error *err = NULL;
    s->kernels = "";
    if (strcmp(m->kernels, "auto"))
        return;
    m->kernels = "plain";
    if (!s->lane || !xl_str_is(xl_client_platform(s->lane->client), "cuda"))
        return;
    no = xl_triton_refuses(strcmp(m->compute, "bf16") ? XL_F32 : XL_BF16, m->dim);
    if (!no && s->mesh.naxis)
        no = "their calls are not split over a mesh";
    if (!no && (err = try_kernels(s->lane, m, s)))
        no = xl_str_c(&s->lane->arena, xl_str_of(xl_error_message(err)));
    s->kernels = no ? xl_str_c(&s->lane->arena, xl_strf(&s->lane->arena, "XLA's own, not ours: %s", no))
                    : "norms and loss by our own";
    m->kernels = no ? "plain" : "triton";
    xl_error_free(err);
}

/* Both what the plugin offers and what the model and the data need, said in words either way. */
static void choose_attention(const xl_config *c, xl_setup *s, xl_model *m)
{
    const char *no = NULL;
    xl_error *err = NULL;
    s->attention = "";
    if (!strcmp(m->attention, "auto") && s->lane && xl_str_is(xl_client_platform(s->lane->client), "cuda")) {
        no = xl_cudnn_refuses(strcmp(m->compute, "bf16") ? XL_F32 : XL_BF16, m->dim / m->heads);
        if (!no && c->data.pack)
            no = "several documents share a row";
        if (!no && s->mesh.naxis)
            no = "its calls are not split over a mesh";
        if (!no && (err = try_fused(s->lane, m, s)))
            no = xl_str_c(&s->lane->arena, xl_str_of(xl_error_message(err)));
        s->attention = no ? xl_str_c(&s->lane->arena, xl_strf(&s->lane->arena, "plain, not cuDNN's: %s", no))
                          : "cuDNN's fused kernel";
        m->attention = no ? "plain" : "cudnn";
        xl_error_free(err);
    }
}

/* On CUDA layers one after the other in the program are faster than a loop over them, which copies a row of all that it
 * keeps for the backward pass in and out; they compile in a tenth of a second each (36 of 774M parameters: 4.2 s on an
 * H200, the loop 1.3 s). */
enum { WRITTEN_OUT_MAX = 64 };

static const char *choose_scan(const xl_config *c, const xl_setup *s, xl_model *m)
{
    xl_pattern_unit unit[XL_UNITS_MAX];
    int n = 0;
    int64_t blocks = 0;
    bool cuda = s->lane ? xl_str_is(xl_client_platform(s->lane->client), "cuda")
                        : s->cuda || (c->device && !strcmp(c->device, "cuda"));
    if (m->scan >= 0)
        return NULL;
    m->scan = true;
    xl_error *err = xl_pattern_parse(m->pattern, unit, &n);
    for (int i = 0; !err && i < n; i++)
        blocks += unit[i].times > 1 ? unit[i].times * unit[i].n : 0;
    if (!err && cuda && !s->mesh.naxis && blocks && blocks <= WRITTEN_OUT_MAX)
        m->scan = false;
    xl_error_free(err);
    return m->scan ? NULL : "written out they are faster on CUDA (model.scan=true: one loop)";
}

/* The mesh of the configuration; once, whichever of device and graphs comes first. The ranks of a job that names none
 * share the batch: the axis "data" over all their devices, which are known once the device is open. */
static xl_error *spread_over(const xl_config *c, xl_setup *s)
{
    const xl_pairs *axes = &c->mesh;
    if (s->mesh.naxis)
        return NULL;
    if (s->job && !axes->n && s->lane) {
        size_t n;
        xl_pairs *own = xl_new(&s->arena, xl_pairs, 1);
        xl_client_devices(s->lane->client, &n);
        own->p = xl_new(&s->arena, xl_pair, 1);
        own->p[0] = (xl_pair){ XL_STR("data"), xl_strf(&s->arena, "%zu", n),
                               "the mesh of the ranks (no mesh was given: they share the batch)" };
        own->n = 1;
        axes = own;
    }
    if (axes->n) {
        xl_error *err = xl_spread_mesh(&s->arena, axes, &s->mesh);
        if (err)
            return err;
        s->spread = (xl_spread){
            .mesh = axes, .rule = &c->sharding, .small = s->small, .used = xl_new(&s->arena, bool, c->sharding.n)
        };
    } else if (s->job && !s->lane) {
        return NULL; /* comes with the device */
    } else if (c->sharding.n)
        return XL_ERR(INVALID, "%s: sharding needs a mesh; say for example mesh: {data: 2, model: 4}",
                      c->sharding.p[0].where);
    return NULL;
}

/* An axis that splits nothing is no mistake, but seldom what was meant: every device along it does the same work. */
static void idle_axes(const xl_mesh_def *mesh, const xl_graph *g)
{
    static bool said;
    uint32_t used = 0;
    if (said)
        return;
    said = true;
    for (uint32_t i = 0; i < g->nparam + g->ninput; i++) {
        const xl_mesh_spec *s = i < g->nparam ? &g->param[i].spec : &g->input[i - g->nparam].spec;
        for (uint32_t d = 0; d < s->rank; d++)
            for (uint32_t k = 0; k < s->dim[d].n; k++)
                used |= 1u << s->dim[d].axis[k];
    }
    for (uint32_t i = 0; i < mesh->naxis; i++)
        if (mesh->axis[i].size > 1 && !(used >> i & 1))
            XL_LOG(WARN,
                   "axis \"%.*s\" of the mesh splits no parameter and no input: its %lld devices all do the same; name "
                   "it under sharding:",
                   XL_FMT(mesh->axis[i].name), (long long)mesh->axis[i].size);
}

xl_error *xl_setup_graphs(const xl_config *c, const int64_t *times, int n, int64_t batch, xl_setup *s)
{
    xl_error *err = spread_over(c, s);
    if (err)
        return err;
    xl_model m = c->model;
    m.nondeterministic = !c->deterministic;
    double start = xl_now();
    choose_attention(c, s, &m);
    choose_kernels(s, &m);
    s->trial_seconds = xl_now() - start;
    const char *written_out = choose_scan(c, s, &m);
    s->model = m;
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "b%lldt%lld", (long long)batch, (long long)times[i]);
        s->g[i] = xl_graph_new(name);
        if (!s->g[i])
            return XL_ERR(EXHAUSTED, "no memory for a graph");
        s->n = i + 1;
        if (s->mesh.naxis) {
            if (xl_graph_mesh_def(s->g[i], &s->mesh))
                s->g[i]->spread = &s->spread;
            s->g[i]->plant = c->plant[0] == 'l'   ? XL_PLANT_LOCAL
                             : c->plant[0] == 'r' ? XL_PLANT_READ
                             : c->plant[0] == 'g' ? XL_PLANT_GROUP
                             : c->plant[0] == 'c' ? XL_PLANT_CANARY
                                                  : XL_PLANT_NONE;
        }
        if (s->lane)
            xl_lane_suit(s->lane, s->g[i]);
        else                             /* printed or predicted: as the device that is named would get it */
            s->g[i]->gpu = !s->mesh.naxis && (s->cuda || (c->device && !strcmp(c->device, "cuda")));
        s->logits[i] = xl_model_build(s->g[i], &m, batch, times[i], &s->why);
        if (s->g[i]->err)
            return XL_ERR(INVALID, "%s", xl_error_message(s->g[i]->err));
        s->g[i]->spread = NULL;
    }
    if (written_out)
        s->why = written_out;
    if (!s->mesh.naxis)
        return NULL;
    if (!s->small)
        idle_axes(&s->mesh, s->g[0]);
    return xl_spread_unused(&s->spread);
}

static xl_error *open_cache(const xl_config *c, xl_setup *s)
{
    xl_arena a = { 0 };
    const char *dir = c->cache ? c->cache : getenv("XLANE_CACHE");
    if (!dir || !*dir)
        dir = xl_home_cache(&a);
    xl_error *err = NULL;
    if (!xl_home_off(dir)) {
        err = xl_cache_open(dir, NULL, &s->cache);
        if (err && !c->cache) {          /* nobody asked for it by name: go on without */
            XL_LOG(INFO, "no executable cache: %s", xl_error_message(err));
            xl_error_free(err);
            err = NULL;
        }
    }
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_setup_device(const xl_config *c, xl_setup *s)
{
    xl_error *err = spread_over(c, s);
    if (!err)
        err = open_cache(c, s);
    if (!err)
        err = xl_lane_open_as(c->device, s->whole, s->job, &s->lane);
    if (!err)
        err = spread_over(c, s);
    if (err)
        return err;
    if (s->mesh.naxis) {
        err = xl_lane_spread(s->lane, &s->mesh);
        if (err)
            return xl_error_wrap(err, "%s", s->spread.mesh->p[0].where);
    }
    s->lane->cache = s->cache;
    s->lane->deterministic = c->deterministic;
    s->lane->tune = c->tune;
    s->lane->policy = c->policy[0] == 'a' ? XL_POLICY_ALLOW : c->policy[0] == 's' ? XL_POLICY_STOP : XL_POLICY_WARN;
    return NULL;
}

void xl_setup_fini(xl_setup *s)
{
    xl_trainer_free(s->t);
    for (int i = 0; i < s->n; i++)
        xl_graph_free(s->g[i]);
    xl_graph_free(s->trial);
    xl_graph_free(s->kernel_trial);
    xl_lane_close(s->lane);
    xl_cache_close(s->cache);
    xl_arena_fini(&s->arena);
    *s = (xl_setup){ 0 };
}

xl_error *xl_run_config(xl_arena *a, const char *dir, char *const *words, int n, xl_config *out)
{
    char *path = xl_path_join(a, dir, "config.yaml");
    if (!xl_file_stat(path, NULL))
        return XL_ERR(NOT_FOUND,
                      "%s has no config.yaml: it is not the folder of a training run, or the run was killed before its "
                      "first write and "
                      "nothing was trained; start one with `xlane train`",
                      dir);
    xl_error *own = xl_config_read(a, path, NULL, 0, out);
    if (own) {                           /* the run wrote every key into it: no key that is given mends it */
        xl_str text = { "", 0 };
        xl_error *unread = xl_file_read_max(a, path, 1 << 20, &text);
        xl_error *err = XL_ERR(DATA_LOSS,
                               "%s, which the run wrote, is damaged: %s\nput it back from a copy, or start a new run "
                               "with the command in %s/run.json",
                               path, unread || xl_str_trim(text).n ? xl_error_message(own) : "it is empty", dir);
        xl_error_free(own);
        xl_error_free(unread);
        return err;
    }
    return xl_config_read(a, path, words, n, out);
}
