#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

#include "base/thread.h"
#include "ir/text/print.h"
#include "train/sized.h"

/* ---- first values ------------------------------------------------------------------------------------------------ */
static const uint64_t GOLDEN = 0x9e3779b97f4a7c15u;

static uint64_t mix(uint64_t *s)         /* splitmix64 */
{
    uint64_t z = (*s += GOLDEN);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Pair number i of a parameter is made of the state s + (i + 1) g alone, so threads make parts of it. */
enum { DRAW_THREADS_MAX = 16, DRAW_EACH_MIN = 1 << 17 };
typedef struct { const xl_param_info *p; uint64_t s; float *out; size_t n; xl_thread t; } part_drawn;

static void draw_part(void *arg)
{
    part_drawn *d = arg;
    const bool normal = d->p->init == XL_INIT_NORMAL;
    const float scale = (float)d->p->scale;
    float *out = d->out;
    for (size_t i = 0; d->p->init == XL_INIT_CONST && i < d->n; i++)
        out[i] = scale;
    for (size_t i = 0; d->p->init != XL_INIT_CONST && i < d->n; i += 2) {
        uint64_t r = mix(&d->s);
        float u = ((float)(r >> 40) + 0.5f) * 0x1p-24f, w = (float)(uint32_t)((r >> 8) & 0xffffff) * 0x1p-24f, a, b;
        if (normal) {
            float radius = sqrtf(-2 * logf(u)), angle = 6.28318531f * w;
            a = radius * cosf(angle);
            b = radius * sinf(angle);
        } else
            a = 2 * u - 1, b = 2 * w - 1;
        out[i] = a * scale;
        if (i + 1 < d->n)
            out[i + 1] = b * scale;
    }
}

void xl_param_draw(const xl_param_info *p, uint64_t seed, float *out, size_t n)
{
    uint64_t s = seed * 0x2545f4914f6cdd1du;
    for (size_t i = 0; i < p->name.n; i++) /* a parameter's numbers do not depend on what stands before it */
        s = (s ^ (unsigned char)p->name.p[i]) * 0x100000001b3u;
    part_drawn part[DRAW_THREADS_MAX] = { 0 };
    size_t most = n / DRAW_EACH_MIN + 1, parts = (size_t)xl_thread_cores();
    parts = parts > most ? most : parts;
    parts = parts > DRAW_THREADS_MAX ? DRAW_THREADS_MAX : parts;
    const size_t each = ((n + parts - 1) / parts + 1) & ~(size_t)1;
    bool started[DRAW_THREADS_MAX] = { 0 };
    for (size_t k = parts; k-- > 0;) {
        const size_t at = k * each < n ? k * each : n;
        part[k] = (part_drawn){ .p = p, .s = s + at / 2 * GOLDEN, .out = out + at, .n = n - at < each ? n - at : each };
        xl_error *err = k ? xl_thread_start(&part[k].t, "xlane-draw", draw_part, &part[k]) : NULL;
        started[k] = k && !err;
        xl_error_free(err);              /* no thread to be had: its part is made here */
        if (!started[k])
            draw_part(&part[k]);
    }
    for (size_t k = 1; k < parts; k++)
        if (started[k])
            xl_thread_join(&part[k].t);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
xl_error *xl_trainer_set_hyper(xl_trainer *t, const xl_adamw *opt)
{
    float h[XL_HYPER_COUNT];
    xl_array *b = NULL;
    xl_error *err = xl_hyper_fill(opt, h);
    if (!err)
        err = xl_array_put(&t->lane->place, xl_elem_of(XL_F32), XL_DIMS(XL_HYPER_COUNT), NULL, h, &b);
    if (err)
        return err;
    xl_array_free(t->hyper);
    t->hyper = b;
    t->opt = *opt;
    return NULL;
}

xl_error *xl_trainer_each(xl_lane *l, const xl_graph *g, const float *value, xl_array **out)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    float *v = xl_new(&a, float, l->place.n);
    xl_mesh_spec each = xl_mesh_each(&g->mesh);
    for (size_t i = 0; i < l->place.n; i++)
        v[i] = value ? value[i] : 1;
    err = xl_lane_put(l, xl_value_type(g->f, g->parts), &each, v, out);
    xl_arena_fini(&a);
    return err;
}

/* The optimizer's state begins as zeros. To a GPU they are not sent: a program writes them there. */
static xl_error *zeros_there(xl_lane *l, xl_trainer *t)
{
    xl_error *err = NULL;
    xl_buf text = { 0 }, types = { 0 };
    xl_program *p = NULL;
    xl_arena a = { 0 };
    for (uint32_t k = 0; k < 2 * t->n; k++) {
        const char *type = xl_type_str(&a, t->type[k % t->n]);
        xl_buf_printf(&text, "  %%%u = stablehlo.constant dense<0.0> : %s\n", k, type);
        xl_buf_printf(&types, "%s%s", k ? ", " : "", type);
    }
    xl_buf all = { 0 };
    xl_buf_printf(&all, "func.func @main() -> (%.*s) {\n%.*s  return ", XL_FMT(xl_buf_view(&types)),
                  XL_FMT(xl_buf_view(&text)));
    for (uint32_t k = 0; k < 2 * t->n; k++)
        xl_buf_printf(&all, "%s%%%u", k ? ", " : "", k);
    xl_buf_printf(&all, " : %.*s\n}\n", XL_FMT(xl_buf_view(&types)));
    XL_TRY(xl_lane_compile_text(l, "zeros", xl_buf_view(&all), &(xl_options){ .replicas = 1, .partitions = 1 }, &p),
           "zeros for the optimizer");
    XL_TRY(xl_array_execute(&l->place, p, NULL, 0, t->shape + t->n, 2 * (size_t)t->n, t->buf + t->n),
           "zeros for the optimizer");
out:
    xl_program_free(p);
    xl_buf_fini(&all);
    xl_buf_fini(&types);
    xl_buf_fini(&text);
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_trainer_new(xl_lane *l, xl_graph *g, const xl_adamw *opt, uint64_t seed, xl_trainer **out)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_trainer *t = NULL;
    float *host = NULL;
    *out = NULL;
    if (g->err)
        return XL_ERR(INVALID, "%s", xl_error_message(g->err));
    xl_adamw known = xl_adamw_default();
    if (opt)
        XL_DO(xl_sized_read("xl_adamw_default", opt, &known, sizeof known));
    if (!g->nparam)
        return XL_ERR(INVALID, "graph %.*s has no parameters to train", XL_FMT(g->name));
    if (g->mesh.naxis)
        XL_DO(xl_lane_spread(l, &g->mesh));
    t = xl_new(&a, xl_trainer, 1);
    t->lane = l;
    t->how.keep = XL_KEEP_DOTS;          /* as the command does by default */
    t->first = g;
    t->n = g->nparam;
    t->name = xl_new(&a, xl_str, t->n);
    t->type = xl_new(&a, const xl_type *, t->n);
    t->buf = xl_new(&a, xl_array *, 3 * (size_t)t->n + 1);
    t->shape = xl_new(&a, xl_array_type, 3 * (size_t)t->n + 2);
    int64_t most = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        int64_t n = 0;
        t->name[i] = xl_str_dup(&a, g->param[i].name);
        t->type[i] = g->param[i].type;
        for (uint32_t k = 0; k < 3; k++) {   /* the optimizer's state lies as its parameter does */
            xl_mesh_spec *spec = xl_new(&a, xl_mesh_spec, 1);
            *spec = g->param[i].spec;
            t->shape[k * t->n + i] = xl_array_type_of(t->type[i], spec);
        }
        xl_type_count(t->type[i], &n);
        most = n > most ? n : most;
    }
    host = calloc((size_t)most, sizeof *host);
    if (!host) {
        err = XL_ERR(EXHAUSTED, "no memory for the largest parameter, %lld numbers", (long long)most);
        goto out;
    }
    const bool there = !g->mesh.naxis && xl_str_is(xl_client_platform(l->client), "cuda");
    if (there)
        XL_DO(zeros_there(l, t));
    for (uint32_t i = 0; i < t->n && !there; i++)
        for (uint32_t k = 1; k < 3; k++)
            XL_TRY(xl_lane_put(l, t->type[i], t->shape[i].spec, host, &t->buf[k * t->n + i]), "optimizer state of %.*s",
                   XL_FMT(t->name[i]));
    for (uint32_t i = 0; i < t->n; i++) {
        int64_t n = 0;
        xl_type_count(t->type[i], &n);
        xl_param_draw(&g->param[i], seed, host, (size_t)n);
        XL_TRY(xl_lane_put(l, t->type[i], t->shape[i].spec, host, &t->buf[i]), "parameter %.*s", XL_FMT(t->name[i]));
    }
    int32_t zero[2] = { 0, 0 };
    static const int64_t two = 2;
    t->shape[3 * t->n] = (xl_array_type){ xl_elem_of(XL_I32), { &two, 1 }, NULL };
    XL_DO(xl_array_put(&l->place, t->shape[3 * t->n].elem, t->shape[3 * t->n].dims, NULL, zero, &t->buf[3 * t->n]));
    if (g->mesh.naxis)
        XL_DO(xl_trainer_each(l, g, NULL, &t->parts));
    XL_DO(xl_trainer_set_hyper(t, &known));
out:
    free(host);
    if (t)
        t->arena = a;
    if (err)
        xl_trainer_free(t);
    else
        *out = t;
    return err;
}

void xl_trainer_free(xl_trainer *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < 3 * t->n + 1; i++)
        xl_array_free(t->buf[i]);
    xl_array_free(t->hyper);
    xl_array_free(t->parts);
    xl_array_free(t->metrics);
    for (uint32_t i = 0; i < t->nprog; i++)
        xl_program_free(t->prog[i].p);
    xl_program_free(t->canary_program);
    xl_graph_free(t->canary);
    xl_arena a = t->arena;
    xl_arena_fini(&a);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */
static xl_error *same_params(const xl_trainer *t, const xl_graph *g)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const xl_param_info *p = xl_graph_param(g, t->name[i]);
        if (p && !xl_type_eq(p->type, t->type[i]))
            return XL_ERR(INVALID, "parameter \"%.*s\" has another shape in graph %.*s than in %.*s",
                          XL_FMT(t->name[i]), XL_FMT(g->name), XL_FMT(t->first->name));
        if (p && !xl_mesh_spec_eq(&p->spec, t->shape[i].spec))
            return XL_ERR(INVALID,
                          "parameter \"%.*s\" is split otherwise in graph %.*s than in %.*s, where it lies already",
                          XL_FMT(t->name[i]), XL_FMT(g->name), XL_FMT(t->first->name));
    }
    return NULL;
}

xl_error *xl_trainer_whole(const xl_trainer *t)
{
    return t->half
               ? XL_ERR(
                     PRECONDITION,
                     "a checkpoint was loaded only in part, and what is on the device is of two states: load one again")
               : NULL;
}

xl_error *xl_trainer_prepare(xl_trainer *t, xl_graph *g, xl_step_kind kind, const xl_prepared **out)
{
    xl_error *err = NULL;
    xl_func *f;
    xl_prepared p = { .g = g, .kind = kind };
    XL_DO(xl_trainer_whole(t));
    for (uint32_t i = 0; i < t->nprog; i++)
        if (t->prog[i].g == g && t->prog[i].kind == kind &&
            (kind != XL_STEP_TRAIN || !t->how.bake_lr || t->prog[i].baked == t->how.baked)) {
            *out = &t->prog[i];
            return NULL;
        }
    p.baked = t->how.baked;
    XL_DO(same_params(t, g));
    xl_lane_suit(t->lane, g);
    XL_DO(xl_step_build(g, kind, t->name, t->n, &t->how, &f));
    p.module =
        xl_str_c(&t->arena, xl_strf(&t->arena, "%s_%.*s", kind == XL_STEP_TRAIN ? "train" : "eval", XL_FMT(g->name)));
    XL_DO(xl_lane_compile(t->lane, g, f, p.module, &p.p));
    if (t->nprog == t->capprog) {        /* earlier ones are pointed at: they stay where they are */
        uint32_t cap = t->capprog ? 2 * t->capprog : 16;
        xl_prepared *more = xl_new(&t->arena, xl_prepared, cap);
        if (t->nprog)
            memcpy(more, t->prog, t->nprog * sizeof *more);
        t->prog = more;
        t->capprog = cap;
    }
    t->prog[t->nprog] = p;
    *out = &t->prog[t->nprog++];
out:
    return err;
}

static xl_array_type metrics_type(const xl_prepared *p, int64_t *n)
{
    *n = xl_metric_slots(p->g, p->kind);
    return (xl_array_type){ xl_elem_of(XL_F32), { n, 1 }, NULL };
}

xl_error *xl_trainer_update(xl_trainer *t, const xl_prepared *p, xl_array *const *input, xl_array **metrics)
{
    xl_error *err = NULL;
    uint32_t ns = 3 * t->n + 1, nin = ns + 1 + p->g->ninput + (t->parts != NULL);
    int64_t n;
    xl_array **in = calloc(nin, sizeof *in), **out = calloc(ns + 1, sizeof *out);
    if (!in || !out) {
        err = XL_ERR(EXHAUSTED, "no memory for the arguments of a step");
        goto out;
    }
    memcpy(in, t->buf, ns * sizeof *in);
    in[ns] = t->hyper;
    XL_KNOWN(input || !p->g->ninput);
    if (p->g->ninput)
        memcpy(in + ns + 1, input, p->g->ninput * sizeof *in);
    if (t->parts)
        in[nin - 1] = t->parts;
    t->shape[ns] = metrics_type(p, &n);
    XL_TRY(xl_array_execute(&t->lane->place, p->p, in, nin, t->shape, ns + 1, out), "running %s", p->module);
    for (uint32_t i = 0; i < ns; i++) {  /* the old ones were given away: only their handles are left */
        xl_array_free(t->buf[i]);
        t->buf[i] = out[i];
    }
    *metrics = out[ns];
out:
    free(in);
    free(out);
    return err;
}

xl_error *xl_trainer_measure(xl_trainer *t, const xl_prepared *p, xl_array *const *input, xl_array **metrics)
{
    xl_error *err = NULL;
    uint32_t nin = t->n + p->g->ninput + (t->parts != NULL);
    int64_t n;
    xl_array **in = calloc(nin, sizeof *in), *out[1] = { NULL };
    if (!in)
        return XL_ERR(EXHAUSTED, "no memory for the arguments of an evaluation");
    memcpy(in, t->buf, t->n * sizeof *in);
    XL_KNOWN(input || !p->g->ninput);
    if (p->g->ninput)
        memcpy(in + t->n, input, p->g->ninput * sizeof *in);
    if (t->parts)
        in[nin - 1] = t->parts;
    xl_array_type shape = metrics_type(p, &n);
    XL_TRY(xl_array_execute(&t->lane->place, p->p, in, nin, &shape, 1, out), "running %s", p->module);
    *metrics = out[0];
out:
    free(in);
    return err;
}

/* ---- the public calls -------------------------------------------------------------------------------------------- */
static void free_all(xl_array **b, uint32_t n)
{
    for (uint32_t i = 0; b && i < n; i++)
        xl_array_free(b[i]);
    free(b);
}

static xl_error *put_feed(xl_trainer *t, const xl_graph *g, const xl_feed *feed, int n, xl_array ***out)
{
    xl_error *err = NULL;
    xl_array **b = calloc(g->ninput ? g->ninput : 1, sizeof *b);
    if (!b)
        return XL_ERR(EXHAUSTED, "no memory for the inputs");
    for (uint32_t i = 0; i < g->ninput; i++) {
        const xl_feed *f = NULL;
        int64_t bytes = 0;
        for (int k = 0; k < n; k++)
            if (xl_str_is(g->input[i].name, feed[k].name))
                f = &feed[k];
        xl_type_bytes(g->input[i].type, &bytes);
        if (!f) {
            err = XL_ERR(INVALID, "input \"%.*s\" was not given", XL_FMT(g->input[i].name));
            goto out;
        }
        if ((size_t)bytes != f->bytes) {
            err =
                XL_ERR(INVALID, "input \"%s\" has %zu bytes, its type takes %lld", f->name, f->bytes, (long long)bytes);
            goto out;
        }
        XL_TRY(xl_lane_put(t->lane, g->input[i].type, &g->input[i].spec, f->data, &b[i]), "input \"%s\"", f->name);
    }
    for (int k = 0; k < n; k++)
        if (!xl_graph_input(g, xl_str_of(feed[k].name))) {
            err = XL_ERR(INVALID, "graph %.*s has no input \"%s\"", XL_FMT(g->name), feed[k].name);
            goto out;
        }
    *out = b;
    return NULL;
out:
    free_all(b, g->ninput);
    return err;
}

xl_error *xl_trainer_step_with(xl_trainer *t, xl_graph *g, const xl_feed *feed, int n)
{
    xl_error *err = NULL;
    const xl_prepared *p;
    xl_array **in = NULL, *metrics = NULL;
    XL_DO(xl_trainer_prepare(t, g, XL_STEP_TRAIN, &p));
    XL_DO(put_feed(t, g, feed, n, &in));
    XL_DO(xl_trainer_update(t, p, in, &metrics));
    xl_array_free(t->metrics);
    t->metrics = metrics;
    t->last = p;
    t->lane->step++;
out:
    free_all(in, g->ninput);
    return err;
}

xl_error *xl_trainer_step(xl_trainer *t, const xl_feed *feed, int n)
{
    return xl_trainer_step_with(t, t->first, feed, n);
}

xl_error *xl_trainer_metrics(const xl_prepared *p, const xl_array *b, float *v)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    size_t n = xl_metric_slots(p->g, p->kind);
    float *other = xl_new(&a, float, n);
    XL_KNOWN(b);                                           /* the step that made it gave no error */
    XL_DO(xl_array_get(b, v, n * sizeof *v, NULL));
    size_t here = xl_place_first(b->place);
    for (size_t d = here + 1; d < b->place->n; d++) {
        if (!b->part[d])
            continue;
        XL_DO(xl_buffer_to_host(b->part[d], other, n * sizeof *v, NULL));
        for (uint32_t i = 0; i < xl_metric_count(p->g, p->kind); i++) {
            uint32_t at = xl_metric_at(p->g, p->kind, i);
            if (memcmp(&v[at], &other[at], sizeof *v)) {
                err =
                    XL_ERR(PRECONDITION,
                           "metric %s is %.9g on device %d and %.9g on device %d: it was not reduced over all of them",
                           xl_metric_name(p->g, p->kind, i), (double)v[at], b->place->dev[here]->id, (double)other[at],
                           b->place->dev[d]->id);
                goto out;
            }
        }
    }
    err = xl_metric_check(p->g, p->kind, v);
out:
    xl_arena_fini(&a);
    return err;
}

static xl_error *read_metrics(const xl_prepared *p, const xl_array *b, float **out)
{
    uint32_t n = xl_metric_slots(p->g, p->kind);
    float *v = calloc(n, sizeof *v);
    if (!v)
        return XL_ERR(EXHAUSTED, "no memory for %u metrics", n);
    xl_error *err = xl_trainer_metrics(p, b, v);
    if (err) {
        free(v);
        v = NULL;
    }
    *out = v;
    return err;
}

static xl_error *find_metric(const xl_prepared *p, const char *name, uint32_t *at)
{
    int i = xl_metric_find(p->g, p->kind, name);
    *at = (uint32_t)i;
    return i < 0 ? XL_ERR(NOT_FOUND, "%s has no metric \"%s\"", p->module, name) : NULL;
}

static xl_error *read_metric(const xl_prepared *p, const xl_array *b, const char *name, double *out)
{
    uint32_t i;
    float *v = NULL;
    xl_error *err = find_metric(p, name, &i);
    if (!err)
        err = xl_metric_global(p->g, p->kind, i);
    if (!err)
        err = read_metrics(p, b, &v);
    *out = err ? 0 : v[xl_metric_at(p->g, p->kind, i)];
    free(v);
    return err;
}

xl_error *xl_trainer_read_local(xl_trainer *t, const char *metric, double *out, int n)
{
    uint32_t i;
    float *v = NULL;
    if (!t->metrics)
        return XL_ERR(PRECONDITION, "no step has been made yet");
    xl_error *err = find_metric(t->last, metric, &i);
    uint32_t width = err ? 0 : xl_metric_of(t->last->g, t->last->kind, i)->width;
    if (!err && width != (uint32_t)n)
        err = XL_ERR(INVALID, "metric %s has %u values, not %d", metric, width, n);
    if (!err)
        err = read_metrics(t->last, t->metrics, &v);
    for (uint32_t k = 0; !err && k < width; k++)
        out[k] = v[xl_metric_at(t->last->g, t->last->kind, i) + k];
    free(v);
    return err;
}

xl_error *xl_trainer_read(xl_trainer *t, const char *metric, double *out)
{
    if (!t->metrics)
        return XL_ERR(PRECONDITION, "no step has been made yet");
    return read_metric(t->last, t->metrics, metric, out);
}

xl_error *xl_trainer_eval(xl_trainer *t, xl_graph *g, const xl_feed *feed, int n, const char *metric, double *out)
{
    xl_error *err = NULL;
    const xl_prepared *p;
    xl_array **in = NULL, *b = NULL;
    XL_DO(xl_trainer_prepare(t, g, XL_STEP_EVAL, &p));
    XL_DO(xl_trainer_canary(t, g));
    XL_DO(put_feed(t, g, feed, n, &in));
    XL_DO(xl_trainer_measure(t, p, in, &b));
    err = read_metric(p, b, metric, out);
out:
    xl_array_free(b);
    free_all(in, g->ninput);
    return err;
}

static xl_error *param_at(const xl_trainer *t, const char *name, size_t bytes, uint32_t *at)
{
    for (uint32_t i = 0; i < t->n; i++) {
        int64_t have = 0;
        if (!xl_str_is(t->name[i], name))
            continue;
        xl_type_bytes(t->type[i], &have);
        *at = i;
        return (size_t)have == bytes
                   ? NULL
                   : XL_ERR(INVALID, "parameter \"%s\" has %lld bytes, not %zu", name, (long long)have, bytes);
    }
    return XL_ERR(NOT_FOUND, "there is no parameter \"%s\"", name);
}

xl_error *xl_trainer_get(xl_trainer *t, const char *param, void *data, size_t bytes)
{
    uint32_t i;
    xl_error *err = param_at(t, param, bytes, &i);
    return err ? err : xl_array_get(t->buf[i], data, bytes, NULL);
}

xl_error *xl_trainer_set(xl_trainer *t, const char *param, const void *data, size_t bytes)
{
    uint32_t i;
    xl_array *b = NULL;
    xl_error *err = param_at(t, param, bytes, &i);
    if (err || (err = xl_lane_put(t->lane, t->type[i], t->shape[i].spec, data, &b)))
        return err;
    xl_array_free(t->buf[i]);
    t->buf[i] = b;
    return NULL;
}

xl_str xl_trainer_layout(xl_arena *a, const xl_trainer *t)
{
    for (uint32_t i = 0; i < 3 * t->n; i++) {
        int64_t first[XL_MESH_RANK] = { 0 }, order[XL_MESH_RANK] = { 0 };
        size_t here = xl_place_first(t->buf[i]->place);
        for (size_t d = here; d < t->buf[i]->place->n; d++) {
            if (!t->buf[i]->part[d])
                continue;
            xl_error *err = xl_buffer_layout(t->buf[i]->part[d], d > here ? order : first, XL_MESH_RANK);
            if (err) {
                xl_error_free(err);
                return XL_STR("the plugin does not say how its buffers lie");
            }
            if (d > here && memcmp(order, first, t->buf[i]->rank * sizeof *first))
                return xl_strf(a, "%.*s lies otherwise on device %d than on device %d: the layouts are mixed",
                               XL_FMT(t->name[i % t->n]), t->buf[i]->place->dev[d]->id,
                               t->buf[i]->place->dev[here]->id);
        }
    }
    return xl_strf(a, "each of the %u parameters and their moments lies alike on every device", t->n);
}
