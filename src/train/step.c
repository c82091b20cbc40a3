/* The training step: gradients, their norm, the clip, AdamW, the guard against what is not finite. Nothing that changes
 * from step to step is a constant here, so a schedule of a thousand steps is one program; and nothing is read by the
 * host in between: a step whose loss or gradient is not finite is skipped by selecting the old values, and counted. */
#include "train/step.h"

#include <math.h>

#include "ir/verify.h"
#include "pass/pass.h"
#include "pass/triton.h"
#include "train/metric.h"
#include "train/sized.h"

static const xl_adamw defaults = { .size = sizeof(xl_adamw),
                                   .lr = 1e-3,
                                   .min_lr = 0,
                                   .schedule = "constant",
                                   .warmup = 0,
                                   .steps = 0,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .decay = 0.01,
                                   .clip = 0 };

void xl_adamw_fill(xl_adamw *out, size_t size) { xl_sized_fill(out, size, &defaults, sizeof defaults); }

xl_error *xl_hyper_fill(const xl_adamw *o, float out[XL_HYPER_COUNT])
{
    static const char *const kinds[] = { "constant", "linear", "cosine" };
    int kind = -1;
    for (int i = 0; i < 3; i++)
        if (!strcmp(o->schedule ? o->schedule : "constant", kinds[i]))
            kind = i;
    if (kind < 0)
        return XL_ERR(INVALID, "optimizer.schedule \"%s\" is none of constant, linear, cosine", o->schedule);
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        return XL_ERR(INVALID, "optimizer.beta1 %g and beta2 %g: both must be at least 0 and less than 1", o->beta1,
                      o->beta2);
    if (!(o->lr >= 0 && o->min_lr >= 0 && o->eps >= 0 && o->decay >= 0 && o->clip >= 0 &&
          o->lr + o->min_lr + o->eps + o->decay + o->clip < 1e30))
        return XL_ERR(INVALID, "lr, min_lr, eps, decay and clip must be numbers, and not negative");
    if (o->warmup < 0)
        return XL_ERR(INVALID, "a warm-up of %lld steps: 0 is none", (long long)o->warmup);
    if (kind && o->steps <= o->warmup)
        return XL_ERR(INVALID,
                      "a %s schedule needs more steps (%lld) than its warm-up (%lld): give it more (train.steps), or a "
                      "shorter one (optimizer.warmup=%lld)",
                      kinds[kind], (long long)o->steps, (long long)o->warmup, (long long)(o->steps / 10));
    double v[XL_HYPER_COUNT] = { o->lr,
                                 o->min_lr,
                                 (double)o->warmup,
                                 (double)o->steps,
                                 kind,
                                 o->beta1,
                                 o->beta2,
                                 o->beta1 > 0 ? log(o->beta1) : -1e30,
                                 o->beta2 > 0 ? log(o->beta2) : -1e30,
                                 o->eps,
                                 o->decay,
                                 o->clip > 0 ? o->clip : 3e38 };
    for (int i = 0; i < XL_HYPER_COUNT; i++)
        out[i] = (float)v[i];
    return NULL;
}

typedef struct { xl_emit e; xl_value hyper[XL_HYPER_COUNT]; } opt;

static xl_value bin(opt *o, xl_opcode c, xl_value a, xl_value b)
{
    /* scalars meet tensors all the time here */
    const xl_type *ta = xl_em_type(&o->e, a), *tb = xl_em_type(&o->e, b);
    if (ta->rank < tb->rank)
        a = xl_em_spread(&o->e, a, xl_type_dims(tb));
    if (tb->rank < ta->rank)
        b = xl_em_spread(&o->e, b, xl_type_dims(ta));
    return xl_em_binary(&o->e, c, a, b);
}
static xl_value add(opt *o, xl_value a, xl_value b) { return bin(o, XL_OP_ADD, a, b); }
static xl_value sub(opt *o, xl_value a, xl_value b) { return bin(o, XL_OP_SUBTRACT, a, b); }
static xl_value mul(opt *o, xl_value a, xl_value b) { return bin(o, XL_OP_MULTIPLY, a, b); }
static xl_value dvd(opt *o, xl_value a, xl_value b) { return bin(o, XL_OP_DIVIDE, a, b); }
static xl_value num(opt *o, double v) { return xl_em_scalar(&o->e, XL_F32, v); }

static xl_value element(opt *o, xl_value v, int64_t i)
{
    int64_t lo = i, hi = i + 1;
    return xl_em_reshape(&o->e, xl_em_slice(&o->e, v, &lo, &hi, NULL), XL_NO_DIMS);
}

/* `t` counts updates from 1. Linear warm-up, then flat, or down to min_lr linearly or along a cosine. */
static xl_value rate(opt *o, xl_value t)
{
    xl_value lr = o->hyper[XL_HYPER_LR], low = o->hyper[XL_HYPER_MIN_LR], warm = o->hyper[XL_HYPER_WARMUP];
    xl_value one = num(o, 1), zero = num(o, 0), kind = o->hyper[XL_HYPER_SCHEDULE];
    xl_value up = xl_em_binary(&o->e, XL_OP_MINIMUM, one, dvd(o, t, bin(o, XL_OP_MAXIMUM, warm, one)));
    xl_value span = bin(o, XL_OP_MAXIMUM, sub(o, o->hyper[XL_HYPER_STEPS], warm), one);
    xl_value at = bin(o, XL_OP_MAXIMUM, zero, bin(o, XL_OP_MINIMUM, one, dvd(o, sub(o, t, warm), span)));
    xl_value cosine = mul(o, num(o, 0.5), add(o, one, xl_em_unary(&o->e, XL_OP_COSINE, mul(o, num(o, M_PI), at))));
    xl_value linear = sub(o, one, at);
    xl_value is_cos = xl_em_compare(&o->e, XL_COMPARISON_DIRECTION_GT, kind, num(o, 1.5));
    xl_value is_flat = xl_em_compare(&o->e, XL_COMPARISON_DIRECTION_LT, kind, num(o, 0.5));
    xl_value shape = xl_em_select(&o->e, is_flat, one, xl_em_select(&o->e, is_cos, cosine, linear));
    return mul(o, up, add(o, low, mul(o, sub(o, lr, low), shape)));
}

/* 1 - beta^t, from log beta: exact to rounding where 1 - powf would cancel */
static xl_value correction(opt *o, xl_value ln_beta, xl_value t)
{
    return xl_em_unary(&o->e, XL_OP_NEGATE, xl_em_unary(&o->e, XL_OP_EXPONENTIAL_MINUS_ONE, mul(o, t, ln_beta)));
}

static xl_value square_sum(opt *o, xl_value g)
{
    const xl_type *t = xl_em_type(&o->e, g);
    int64_t *all = xl_new(&o->e.f->m->arena, int64_t, t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        all[i] = i;
    return xl_em_sum(&o->e, mul(o, g, g), (xl_dims){ all, t->rank });
}

static xl_value pack(xl_emit *e, const xl_value *v, uint32_t n)
{
    xl_value *one = xl_new(&e->f->m->arena, xl_value, n);
    for (uint32_t i = 0; i < n; i++)
        one[i] = xl_em_type(e, v[i])->rank ? v[i] : xl_em_reshape(e, v[i], XL_DIMS(1));
    return n == 1 ? one[0] : xl_em_concat(e, one, n, 0);
}

void xl_func_donate(xl_func *f, uint32_t arg, uint32_t out)
{
    f->arg_attr[arg] =
        xl_dict_with(f->m, f->arg_attr[arg], XL_STR("tf.aliasing_output"), xl_attr_int(f->m, XL_I32, out));
}

static xl_error *find(const xl_graph *g, xl_str name, const xl_param_info **out)
{
    *out = xl_graph_param(g, name);
    return *out ? NULL
                : XL_ERR(INVALID, "graph %.*s has no parameter \"%.*s\"; all graphs of a trainer share the same ones",
                         XL_FMT(g->name), XL_FMT(name));
}

static xl_value named_arg(xl_func *f, const xl_graph *g, xl_str name, const xl_type *t)
{
    xl_value v = xl_region_add_arg(f, f->body, t, xl_loc_name(g->m, name, (xl_loc){ 0 }));
    f->val[v.id].name = name;
    return v;
}

static xl_error *ready(xl_graph *g, uint32_t n)
{
    if (g->err)
        return XL_ERR(INVALID, "%s", xl_error_message(g->err));
    if (g->nparam != n)
        return XL_ERR(INVALID,
                      "graph %.*s has %u parameters, the trainer %u; all graphs of a trainer share the same ones",
                      XL_FMT(g->name), g->nparam, n);
    return NULL;
}

static void finish(xl_func *f)
{
    xl_func_set_type(f);
    xl_grad_strip(f);
}

static void attrs(xl_func *f, uint32_t nres)
{
    f->arg_attr = xl_new(&f->m->arena, const xl_attr *, f->body->narg);
    f->res_attr = xl_new(&f->m->arena, const xl_attr *, nres);
}

/* Dead ops go before the program is hashed or printed. Passes work on modules: for the while this one has only f. */
static xl_error *tidy(xl_graph *g, xl_func *f)
{
    xl_func **was = g->m->func;
    uint32_t n = g->m->nfunc;
    g->m->func = &f;
    g->m->nfunc = 1;
    xl_error *err = xl_pass_dce(g->m, NULL);
    if (!err)
        err = xl_verify(g->m);
    g->m->func = was;
    g->m->nfunc = n;
    return err;
}

/* Arguments and results as the graph says they are split; what it does not name is whole on every device. */
static void spread(const xl_graph *g, xl_func *f, const xl_param_info *const *info, uint32_t n, uint32_t copies,
                   uint32_t extra)
{
    uint32_t nres = xl_region_end(f->body)->nin, at = copies * n, last = f->body->narg - 1;
    if (!g->mesh.naxis)
        return;
    for (uint32_t i = 0; i < last; i++) {
        xl_mesh_spec whole = { .rank = xl_value_type(f, f->body->arg[i])->rank };
        uint32_t in = i - at - extra;
        xl_mesh_shard_arg(g->m, f, i, &g->mesh,
                          i < at                              ? &info[i % n]->spec
                          : i >= at + extra && in < g->ninput ? &g->input[in].spec
                                                              : &whole);
    }
    xl_mesh_spec each = xl_mesh_each(&g->mesh);
    xl_mesh_shard_arg(g->m, f, last, &g->mesh, &each);     /* the participants */
    for (uint32_t i = 0; i < nres; i++) {
        xl_mesh_spec whole = { .rank = xl_in_type(f, xl_region_end(f->body), i)->rank };
        xl_mesh_shard_result(g->m, f, i, &g->mesh, copies == 3 && i < at ? &info[i % n]->spec : &whole);
    }
}

xl_error *xl_forward_build(xl_graph *g, const xl_str *names, uint32_t n, const xl_tensor *outs, uint32_t nout,
                           xl_func **out)
{
    xl_error *err = NULL;
    xl_func *f = NULL;
    XL_DO(ready(g, n));
    f = xl_graph_func(g, "main");
    xl_value *map = xl_new(&g->m->arena, xl_value, g->f->nval), *ret = xl_new(&g->m->arena, xl_value, nout);
    const xl_param_info **info = xl_new(&g->m->arena, const xl_param_info *, n);
    for (uint32_t i = 0; i < n; i++) {
        XL_DO(find(g, names[i], &info[i]));
        map[info[i]->arg.id] = named_arg(f, g, info[i]->name, info[i]->type);
    }
    for (uint32_t i = 0; i < g->ninput; i++)
        map[g->input[i].arg.id] = named_arg(f, g, g->input[i].name, g->input[i].type);
    if (g->mesh.naxis)
        map[g->parts.id] = named_arg(f, g, XL_STR("participants"), xl_value_type(g->f, g->parts));
    xl_region_clone_into(f, f->body, g->f, g->f->body, map, NULL, 0);
    for (uint32_t i = 0; i < nout; i++)
        ret[i] = map[outs[i].id];
    xl_emit e = xl_b_at(f, NULL);
    xl_em_return(&e, ret, nout);
    attrs(f, nout);
    spread(g, f, info, n, 1, 0);
    finish(f);
    XL_DO(tidy(g, f));
    *out = f;
out:
    return err;
}

static xl_error *eval_build(xl_graph *g, const xl_str *names, uint32_t n, xl_func **out)
{
    xl_tensor outs;
    xl_value *v = xl_new(&g->m->arena, xl_value, 2 * (1 + g->nmetric));
    uint32_t k = 0;
    v[k++] = g->loss;
    for (uint32_t i = 0; i < g->nmetric; i++)
        v[k++] = g->metric[i].value;
    if (g->mesh.naxis) {
        v[k++] = xl_metric_all(g);
        for (uint32_t i = 0; i < g->nmetric; i++)
            v[k++] = g->metric[i].count;
    }
    outs = xl_tensor_of(pack(&g->e, v, k));
    return xl_forward_build(g, names, n, &outs, 1, out);
}

/* XLA moves the optimizer's arithmetic into the concatenation that joins the gradients of a stack's rows: three kernels
 * and a copy of each moment instead of one in place. Behind a barrier the joined gradients are there first, in the type
 * they were computed in. With kernels of our own they are joined at once, and squares[i] comes with it. */
static void settle(xl_emit *e, bool kernels, xl_value *grad, xl_value *squares, uint32_t n)
{
    xl_value *in = xl_new(&e->f->m->arena, xl_value, n), joined;
    const xl_type **t = xl_new(&e->f->m->arena, const xl_type *, n);
    uint32_t *who = xl_new(&e->f->m->arena, uint32_t, n), nbar = 0;
    for (uint32_t i = 0; i < n; i++) {
        const xl_op *from = xl_value_op(e->f, grad[i]);
        xl_value narrow = from && from->code == XL_OP_CONVERT ? from->in[0] : grad[i];
        if (kernels && xl_triton_columns(e, grad[i], &grad[i]))
            continue;
        if (kernels && xl_triton_join(e, narrow, &joined, &squares[i])) {
            grad[i] = xl_em_convert(e, joined, xl_em_type(e, grad[i])->dtype);
            squares[i] = xl_em_sum(e, squares[i], XL_DIMS(0));
            continue;
        }
        const xl_op *cut = xl_value_op(e->f, narrow),
                    *whole = cut && cut->code == XL_OP_SLICE ? xl_value_op(e->f, cut->in[0]) : NULL;
        if (whole && whole->code == XL_OP_WHILE)
            continue;                    /* a loop has joined them: the optimizer reads its part where it lies */
        who[nbar] = i;
        in[nbar] = narrow;
        t[nbar++] = xl_em_type(e, narrow);
    }
    if (!nbar)
        return;
    xl_op *bar = xl_op_new(e->f, e->r, XL_OP_OPTIMIZATION_BARRIER, in, nbar, t, nbar, 0, e->loc);
    for (uint32_t i = 0; i < nbar; i++)
        grad[who[i]] = xl_em_convert(e, bar->out[i], xl_em_type(e, grad[who[i]])->dtype);
}

/* What the host reads after a step: the numbers of every step (at[], XL_AT_LOSS and its kin), then the graph's metrics,
 * on a mesh with their counts. map leads from the graph's values to the step's. */
static xl_value pack_metrics(xl_emit *e, const xl_graph *g, const xl_value *map, xl_value all, const xl_value *at)
{
    xl_value *v = xl_new(&g->m->arena, xl_value, XL_AT_OWN + 1 + 2 * g->nmetric);
    uint32_t n = XL_AT_OWN;
    memcpy(v, at, XL_AT_OWN * sizeof *v);
    for (uint32_t i = 0; i < g->nmetric; i++)
        v[n++] = map[g->metric[i].value.id];
    if (g->mesh.naxis) {
        v[n++] = map[all.id];
        for (uint32_t i = 0; i < g->nmetric; i++)
            v[n++] = map[g->metric[i].count.id];
    }
    return pack(e, v, n);
}

xl_error *xl_step_build(xl_graph *g, xl_step_kind kind, const xl_str *names, uint32_t n, const xl_step_opts *opts,
                        xl_func **out)
{
    xl_error *err = NULL;
    xl_arena *a = &g->m->arena;
    xl_func *f = NULL;
    XL_DO(ready(g, n));
    if (!xl_has(g->loss)) {
        err = XL_ERR(INVALID, "graph %.*s has no loss; say which value it is with xl_loss", XL_FMT(g->name));
        goto out;
    }
    XL_DO(xl_metric_axes(g));
    if (kind == XL_STEP_EVAL)
        return eval_build(g, names, n, out);
    xl_value all = g->mesh.naxis ? xl_metric_all(g) : XL_NO_VALUE;
    f = xl_graph_func(g, "main");
    xl_value *map = xl_new(a, xl_value, g->f->nval), *p = xl_new(a, xl_value, n), *m = xl_new(a, xl_value, n),
             *v = xl_new(a, xl_value, n);
    const xl_param_info **info = xl_new(a, const xl_param_info *, n);
    for (uint32_t i = 0; i < n; i++) {
        XL_DO(find(g, names[i], &info[i]));
        map[info[i]->arg.id] = p[i] = named_arg(f, g, info[i]->name, info[i]->type);
    }
    for (uint32_t i = 0; i < n; i++)
        m[i] = named_arg(f, g, xl_strf(a, "%.*s.m", XL_FMT(names[i])), info[i]->type);
    for (uint32_t i = 0; i < n; i++)
        v[i] = named_arg(f, g, xl_strf(a, "%.*s.v", XL_FMT(names[i])), info[i]->type);
    xl_value counters = named_arg(f, g, XL_STR("counters"), xl_type_tensor(g->m, XL_I32, XL_DIMS(2)));
    xl_value hyper = named_arg(f, g, XL_STR("hyper"), xl_type_tensor(g->m, XL_F32, XL_DIMS(XL_HYPER_COUNT)));
    for (uint32_t i = 0; i < g->ninput; i++)
        map[g->input[i].arg.id] = named_arg(f, g, g->input[i].name, g->input[i].type);
    if (g->mesh.naxis)
        map[g->parts.id] = named_arg(f, g, XL_STR("participants"), xl_value_type(g->f, g->parts));
    xl_region_clone_into(f, f->body, g->f, g->f->body, map, NULL, 0);

    xl_value loss = map[g->loss.id], *grad = xl_new(a, xl_value, n);
    xl_grad_opts how = { opts ? opts->keep : XL_KEEP_CARRY, g->gpu };
    XL_DO(xl_grad(f, loss, p, n, &how, grad));

    opt o = { .e = xl_b_at(f, NULL) };
    o.e.loc = xl_loc_name(g->m, XL_STR("adamw"), (xl_loc){ 0 });
    xl_value *squares = xl_new(a, xl_value, n);
    for (uint32_t i = 0; i < n; i++)
        squares[i] = XL_NO_VALUE;
    if (g->gpu)
        settle(&o.e, g->triton, grad, squares, n);
    for (int i = 0; i < XL_HYPER_COUNT; i++)
        o.hyper[i] = element(&o, hyper, i);
    xl_value step = element(&o, counters, 0), skipped = element(&o, counters, 1);
    xl_value t = add(&o, xl_em_convert(&o.e, step, XL_F32), num(&o, 1)), total = num(&o, 0);
    for (uint32_t i = 0; i < n; i++)
        total = add(&o, total, xl_has(squares[i]) ? squares[i] : square_sum(&o, grad[i]));
    xl_value norm = xl_em_unary(&o.e, XL_OP_SQRT, total);
    const xl_type *yes_t = xl_type_scalar(g->m, XL_I1);
    xl_value fin = xl_em_binary(&o.e, XL_OP_AND, xl_em_op(&o.e, XL_OP_IS_FINITE, &norm, 1, yes_t)->out[0],
                                xl_em_op(&o.e, XL_OP_IS_FINITE, &loss, 1, yes_t)->out[0]);
    xl_value lr = opts && opts->bake_lr ? num(&o, opts->baked) : rate(&o, t);
    xl_value clip = o.hyper[XL_HYPER_CLIP], one = num(&o, 1);
    xl_value small = xl_em_compare(&o.e, XL_COMPARISON_DIRECTION_LT, norm, clip);
    xl_value factor = xl_em_select(&o.e, small, one, dvd(&o, clip, norm));
    xl_value b1 = o.hyper[XL_HYPER_BETA1], b2 = o.hyper[XL_HYPER_BETA2], c1 = sub(&o, one, b1), c2 = sub(&o, one, b2);
    xl_value fix1 = correction(&o, o.hyper[XL_HYPER_LN_BETA1], t), fix2 = correction(&o, o.hyper[XL_HYPER_LN_BETA2], t);
    xl_value r1 = dvd(&o, one, fix1), r2 = dvd(&o, one, fix2), decay = mul(&o, lr, o.hyper[XL_HYPER_DECAY]);

    uint32_t nret = 3 * n + 2;
    xl_value *ret = xl_new(a, xl_value, nret);
    for (uint32_t i = 0; i < n; i++) {
        xl_dims dims = xl_type_dims(info[i]->type);
        xl_value g1 = mul(&o, grad[i], factor);
        xl_value nm = add(&o, mul(&o, m[i], b1), mul(&o, g1, c1)),
                 nv = add(&o, mul(&o, v[i], b2), mul(&o, mul(&o, g1, g1), c2));
        xl_value den = add(&o, xl_em_unary(&o.e, XL_OP_SQRT, mul(&o, nv, r2)), o.hyper[XL_HYPER_EPS]);
        xl_value upd = mul(&o, dvd(&o, mul(&o, nm, r1), den), lr);
        if (info[i]->matrix)
            upd = add(&o, upd, mul(&o, p[i], decay));
        xl_value np = sub(&o, p[i], upd), keep = xl_em_spread(&o.e, fin, dims);
        ret[i] = xl_em_select(&o.e, keep, np, p[i]);
        ret[n + i] = xl_em_select(&o.e, keep, nm, m[i]);
        ret[2 * n + i] = xl_em_select(&o.e, keep, nv, v[i]);
    }
    xl_value went = xl_em_convert(&o.e, fin, XL_I32), one_i = xl_em_scalar(&o.e, XL_I32, 1);
    xl_value count[2] = { add(&o, step, went), add(&o, skipped, sub(&o, one_i, went)) };
    ret[3 * n] = pack(&o.e, count, 2);
    xl_value at[XL_AT_OWN] = { [XL_AT_LOSS] = loss, [XL_AT_GRAD_NORM] = norm, [XL_AT_LR] = lr };
    at[XL_AT_SKIPPED] = xl_em_convert(&o.e, count[1], XL_F32);
    at[XL_AT_STEP] = xl_em_convert(&o.e, count[0], XL_F32);
    ret[3 * n + 1] = pack_metrics(&o.e, g, map, all, at);
    xl_em_return(&o.e, ret, nret);
    attrs(f, nret);
    for (uint32_t i = 0; i < 3 * n + 1; i++)
        xl_func_donate(f, i, i);
    spread(g, f, info, n, 3, 2);
    finish(f);
    XL_DO(tidy(g, f));
    *out = f;
out:
    return err;
}
