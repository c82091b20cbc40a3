#include "train/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/time.h"
#include "base/version.h"
#include "ir/compare/hash.h"
#include "train/loop.h"

void xl_config_signature(xl_arena *a, const xl_config *c, xl_signature *s)
{
    const xl_model *m = &c->model;
    int64_t time = c->data.nbucket ? c->data.buckets[c->data.nbucket - 1] : c->data.time;
    s->model = xl_strf(a,
                       "%s vocab %lld dim %lld heads %lld/%lld ffn %lld state %lld chunk %lld experts %lld top %lld "
                       "capacity %g batch %lld time %lld",
                       m->pattern, (long long)m->vocab, (long long)m->dim, (long long)m->heads, (long long)m->kv_heads,
                       (long long)m->ffn, (long long)m->state, (long long)m->chunk, (long long)m->experts,
                       (long long)m->top_k, m->capacity, (long long)c->data.batch, (long long)time);
    s->features =
        xl_strf(a, "scan %s remat %s micro %lld compute %s keep %s", m->scan < 0 ? "auto" : m->scan ? "on" : "off",
                m->remat ? "on" : "off",
                (long long)(m->micro ? m->micro : 1), m->compute, c->keep_for_backward);
    s->parallelism = XL_STR("replicas 1 partitions 1");
}

/* The stack: versions, and the flags that change what the compiler or the device does. */
static void lane_signature(xl_arena *a, const xl_lane *l, const xl_device_memory *dm, xl_signature *s)
{
    static const char *const flags[] = { "XLA_FLAGS", "LIBTPU_INIT_ARGS", "XLANE_CPU_GRAIN" };
    xl_buf b = { 0 };
    xl_buf_printf(&b, "xlane %s, %s %.*s", XL_VERSION,
                  strrchr(l->choice.path, '/') ? strrchr(l->choice.path, '/') + 1 : l->choice.path,
                  XL_FMT(xl_plugin_build_id(a, l->choice.path)));
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const char *v = getenv(flags[i]);
        if (v && *v)
            xl_buf_printf(&b, ", %s=%s", flags[i], v);
    }
    s->bundle = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    s->hardware = xl_strf(a, "%zu x %.*s, %lld MiB", xl_client_nlocal(l->client), XL_FMT(l->dev->kind),
                          (long long)(dm->limit / (1 << 20)));
}

static xl_error *setup(const xl_config *c, xl_setup *s)
{
    int64_t time = c->data.nbucket ? c->data.buckets[c->data.nbucket - 1] : c->data.time;
    return xl_setup_graphs(c, &time, 1, c->data.batch, s);
}

static xl_error *step_of(const xl_config *c, xl_graph *g, xl_func **f)
{
    xl_arena a = { 0 };
    xl_str *name = xl_new(&a, xl_str, g->nparam);
    for (uint32_t i = 0; i < g->nparam; i++)
        name[i] = g->param[i].name;
    xl_error *err = xl_step_build(g, XL_STEP_TRAIN, name, g->nparam,
                                  &(xl_step_opts){ .keep = xl_config_keep(c) }, f);
    xl_arena_fini(&a);
    return err;
}

static xl_error *predict(const xl_config *c, xl_setup *s, xl_predict_rule rule, xl_prediction *p, xl_digest *code)
{
    xl_func *f;
    xl_error *err = step_of(c, s->g[0], &f);
    if (err)
        return err;
    xl_module v = xl_graph_view(s->g[0], &f);
    *code = xl_module_hash(&v);
    return xl_predict(&v, rule, p);
}

static int64_t turns_of(const xl_config *c) { return c->model.micro > 1 ? c->model.micro : 1; }

xl_error *xl_config_batch_step(const xl_config *c, int64_t *out)
{
    xl_arena a = { 0 };
    xl_mesh_def mesh = { 0 };
    int64_t devices = 1;
    xl_error *err = xl_spread_mesh(&a, &c->mesh, &mesh);
    for (uint32_t k = 0; !err && k < mesh.naxis; k++)
        devices *= mesh.axis[k].size;
    *out = turns_of(c);
    for (int64_t share = 1; share <= devices && devices > 1;
         share++) { /* the model's own rules and the configuration's say which axes share a batch */
        xl_setup s = { 0 };
        xl_config x = *c;
        if (devices % share)
            continue;
        xl_error_free(err);
        *out = x.data.batch = turns_of(c) * share;
        err = setup(&x, &s);
        xl_setup_fini(&s);
        if (!err)
            break;
    }
    xl_arena_fini(&a);
    return err;
}

static bool is_cuda(const xl_lane *l) { return xl_str_is(xl_client_platform(l->client), "cuda"); }

/* What is left to the device in `c` becomes what was chosen on it, so that smaller programs are of the same kind. */
static void as_chosen(const xl_setup *s, xl_config *c)
{
    c->model.attention = s->model.attention;
    c->model.kernels = s->model.kernels;
}

/* What is predicted of the config's step and what its compiler says of it; nothing runs. */
static xl_error *compile_small(const xl_config *c, xl_lane *lane, xl_predict_rule rule, xl_prediction *said,
                               xl_program_memory *is)
{
    xl_error *err = NULL;
    xl_setup s = { 0 };
    xl_func *f;
    xl_program *p = NULL;
    s.cuda = is_cuda(lane);
    XL_DO(setup(c, &s));
    XL_DO(step_of(c, s.g[0], &f));
    xl_module v = xl_graph_view(s.g[0], &f);
    XL_DO(xl_predict(&v, rule, said));
    XL_DO(xl_lane_compile(lane, s.g[0], f, "small_step", &p));
    err = xl_executable_memory(xl_program_executable(p), is);
out:
    xl_program_free(p);
    lane->nseen = 0;                    /* it points into the graph */
    xl_setup_fini(&s);
    return err;
}

/* Compiles the same model with three quarters of the batch, or less where that is too large as well, and with two
 * thirds of that. Returns the larger; 0, and a scale of 1, where there is no smaller batch or the compiler gives no
 * figures. */
static int64_t measure_small(const xl_config *c, xl_lane *lane, xl_predict_rule rule, xl_predict_scale *out)
{
    xl_config small = *c;
    xl_prediction said[2];
    xl_program_memory is[2];
    int64_t step, units, found = 0;
    *out = (xl_predict_scale){ .temporary = 1 };
    xl_error *err = xl_config_batch_step(c, &step);
    int64_t whole = err ? 0 : c->data.batch / step;
    for (units = whole < 4 ? whole - 1 : (3 * whole + 3) / 4; units > 0 && !found; units = 2 * units / 3) {
        small.data.batch = units * step;
        xl_error_free(err);
        err = compile_small(&small, lane, rule, &said[1], &is[1]);
        if (err && xl_error_code(err) != XL_CODE_EXHAUSTED)
            break;
        if (!err)
            found = small.data.batch;
    }
    xl_error_free(err);
    if (!found)
        return 0;
    *out = xl_predict_compare(&said[1], &is[1]);
    if (units > 0) {
        small.data.batch = units * step;
        err = compile_small(&small, lane, rule, &said[0], &is[0]);
        if (!err)
            *out = xl_predict_line(said, is);
        xl_error_free(err);
    }
    return found;
}

/* Everything but the batch is the same. */
static bool same_family(const xl_signature *x, const xl_signature *y)
{
    const char *end = x->model.n ? memmem(x->model.p, x->model.n, " batch ", 7) : NULL;
    size_t n = end ? (size_t)(end - x->model.p) + 7 : x->model.n;
    return xl_str_eq(x->hardware, y->hardware) && xl_str_eq(x->bundle, y->bundle) &&
           xl_str_eq(x->features, y->features) && xl_str_eq(x->parallelism, y->parallelism) && y->model.n >= n &&
           !memcmp(x->model.p, y->model.p, n);
}

/* How far the newest calibration of this model on this stack was from what the program alone had said. */
static double learned(xl_arena *a, const xl_catalog_entry *all, size_t n, const xl_signature *s)
{
    for (size_t i = n; i-- > 0;) {
        xl_node *node;
        double raw = 0;
        if (all[i].outcome != XL_OUTCOME_RAN || all[i].observed <= 0 || !all[i].detail.n ||
            !same_family(s, &all[i].sig))
            continue;
        xl_error *err = xl_json_read(a, "catalog", all[i].detail, &node);
        if (!err)
            err = xl_node_get_float(node, "raw", &raw);
        xl_error_free(err);
        if (raw > 0)
            return (double)all[i].observed / raw;
    }
    return 1;
}

/* Tokens that touch every row of the tables now and then; one document a row. */
static xl_error *two_steps(xl_setup *s, const xl_prepared *p)
{
    xl_error *err = NULL;
    const xl_graph *g = p->g;
    int32_t *data = NULL;
    xl_array *in[8] = { 0 }, *m = NULL;
    int64_t n = 0;
    xl_type_count(g->input[0].type, &n);
    int64_t time = g->input[0].type->dims[g->input[0].type->rank - 1];
    data = malloc((size_t)n * sizeof *data);
    if (!data)
        return XL_ERR(EXHAUSTED, "no memory for a batch");
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < g->ninput && i < 8; i++) {
            for (int64_t k = 0; k < n; k++)
                data[k] = xl_str_is(g->input[i].name, "segments")    ? 1
                          : xl_str_is(g->input[i].name, "positions") ? (int32_t)(k % time)
                                                                     : (int32_t)((k * 31 + turn) % 97);
            XL_DO(xl_lane_put(s->lane, g->input[i].type, &g->input[i].spec, data, &in[i]));
        }
        XL_DO(xl_trainer_update(s->t, p, in, &m));
        float out[64];
        XL_DO(xl_array_get(m, out, xl_metric_slots(g, XL_STEP_TRAIN) * sizeof(float), NULL)); /* waits for the step */
        xl_array_free(m);
        m = NULL;
        for (uint32_t i = 0; i < 8; i++) {
            xl_array_free(in[i]);
            in[i] = NULL;
        }
    }
out:
    for (uint32_t i = 0; i < 8; i++)
        xl_array_free(in[i]);
    xl_array_free(m);
    free(data);
    return err;
}

static void failed(xl_arena *a, xl_catalog_entry *e, const xl_error *err)
{
    xl_str m = xl_str_of(xl_error_message(err));
    const char *code = memmem(m.p, m.n, "E1000", 5)   ? "E1000"
                       : memmem(m.p, m.n, "E1001", 5) ? "E1001"
                                                      : xl_code_name(xl_error_code(err));
    e->outcome = XL_OUTCOME_FAILED;
    e->class = xl_str_of(code);
    e->message = xl_str_dup(a, m);
}

static void compare(xl_arena *a, xl_calibration *k)
{
    xl_catalog_entry *all;
    size_t n;
    xl_error *err = xl_catalog_read(a, xl_catalog_dir(a), &all, &n, NULL);
    if (err) {
        xl_error_free(err);
        return;
    }
    k->before = xl_catalog_before(all, n, &k->entry.sig);
    if (!k->before)
        return;
    xl_buf b = { 0 };
    const struct {
        const char *what;
        int64_t was, is;
    } row[] = { { "predicted", k->before->predicted, k->entry.predicted },
                { "compiled", k->before->compiled, k->entry.compiled },
                { "observed", k->before->observed, k->entry.observed } };
    for (size_t i = 0; i < 3; i++)
        if (row[i].was > 0 && row[i].is > 0 && llabs(row[i].is - row[i].was) * 50 > row[i].was)
            xl_buf_printf(&b, "%s%s %.2f -> %.2f MiB", b.n ? ", " : "", row[i].what, (double)row[i].was / (1 << 20),
                          (double)row[i].is / (1 << 20));
    k->moved = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
}

xl_error *xl_calibrate(xl_arena *a, const xl_config *c, xl_calibration *out)
{
    xl_error *err = NULL, *no = NULL;
    xl_setup s = { .whole = true };
    const xl_prepared *p = NULL;
    xl_digest code;
    char hex[XL_DIGEST_HEX];
    struct rusage ru;
    xl_catalog_entry *all;
    size_t n;
    *out = (xl_calibration){ .entry = xl_catalog_blank(), .rule = XL_RULE_FUSED, .off = NAN, .factor = 1 };
    xl_catalog_entry *e = &out->entry;
    e->what = XL_STR("calibrate");
    XL_DO(xl_setup_device(c, &s));
    XL_DO(setup(c, &s));
    xl_config chosen = *c;
    as_chosen(&s, &chosen);
    no = xl_predict_measure(s.lane->client, &out->rule);
    out->measured = !no;
    xl_error_free(no);
    XL_DO(predict(c, &s, out->rule, &out->predicted, &code));
    out->alone = out->predicted.total;
    out->small = measure_small(&chosen, s.lane, out->rule, &out->scale);
    xl_predict_apply(&out->predicted, &out->scale);
    no = xl_device_memory_read(s.lane->dev, &out->device);
    if (no)                                 /* S4: which call of which plugin cannot answer */
        out->device = (xl_device_memory){ .limit = -1, .in_use = -1, .peak_in_use = -1 };
    e->message = no ? xl_str_dup(a, xl_str_of(xl_error_message(no))) : XL_STR("");
    xl_error_free(no);
    e->limit = out->device.limit;
    out->device_name = xl_str_dup(a, xl_str_of(xl_lane_name(s.lane)));
    xl_config_signature(a, c, &e->sig);
    lane_signature(a, s.lane, &out->device, &e->sig);
    e->sig.code = xl_str_dup(a, xl_str_of(xl_digest_hex(&code, hex)));
    XL_DO(xl_catalog_read(a, xl_catalog_dir(a), &all, &n, NULL));
    out->factor = learned(a, all, n, &e->sig);
    e->predicted = (int64_t)((double)out->predicted.total * out->factor);
    e->detail = xl_strf(a, "{\"raw\":%lld,\"alone\":%lld,\"rule\":\"%s\"}", (long long)out->predicted.total,
                        (long long)out->alone, xl_predict_word(out->rule));
    xl_error_free(xl_device_memory_reset_peak(s.lane->dev));

    double start = xl_now();
    no = xl_trainer_new(s.lane, s.g[0], &c->opt, (uint64_t)c->seed, &s.t);
    if (!no) {
        s.t->how.keep = xl_config_keep(c);
        no = xl_trainer_prepare(s.t, s.g[0], XL_STEP_TRAIN, &p);
    }
    e->seconds = xl_now() - start;
    if (!no) {
        xl_error *stats = xl_executable_memory(xl_program_executable(p->p), &out->compiled);
        e->compiled = stats ? -1 : out->compiled.needs;
        xl_error_free(stats);
        no = two_steps(&s, p);
    }
    if (no && xl_error_code(no) != XL_CODE_EXHAUSTED) { /* says nothing of memory: not the catalog's business */
        err = no;
        goto out;
    }
    if (no) {
        failed(a, e, no);
        xl_error_free(no);
    } else {
        e->outcome = XL_OUTCOME_RAN;
        no = xl_device_memory_read(s.lane->dev, &out->device);
        e->observed = no ? -1 : out->device.peak_in_use >= 0 ? out->device.peak_in_use : out->device.in_use;
        xl_error_free(no);
    }
    if (e->observed > 0) {
        out->off = ((double)e->predicted - (double)e->observed) / (double)e->observed;
        out->mismatch = fabs(out->off) > XL_CALIBRATE_OFF;
    }
    getrusage(RUSAGE_SELF, &ru);
    out->host_peak = e->host = (int64_t)ru.ru_maxrss * 1024;
    out->host_free = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    compare(a, out);
    no = xl_catalog_add(xl_catalog_dir(a), e);              /* what was measured is told all the same */
    if (no)
        XL_LOG(WARN, "not kept in the catalog: %s; XLANE_CATALOG=DIR names another folder", xl_error_message(no));
    xl_error_free(no);
out:
    xl_setup_fini(&s);
    return err;
}

/* ---- fitting ----------------------------------------------------------------------------------------------------- */
typedef struct { int64_t batch; int way; xl_known known; int64_t predicted; } candidate;

/* What fitting knows of the device and of a way to run the model on it. */
typedef struct {
    xl_arena *a;
    xl_config c;                /* as it would run; its batch varies */
    xl_predict_rule rule;
    xl_predict_scale scale;
    double factor;
    xl_signature lane;
    int64_t room, step;         /* batches come in multiples of step */
    bool cuda;
} way;

static xl_error *predict_at(const way *w, int64_t batch, int64_t *bytes, xl_signature *sig)
{
    xl_setup s = { 0 };
    xl_prediction p;
    xl_digest code;
    char hex[XL_DIGEST_HEX];
    xl_config x = w->c;
    x.data.batch = batch;
    s.cuda = w->cuda;
    xl_error *err = setup(&x, &s);
    if (!err)
        err = predict(&x, &s, w->rule, &p, &code);
    xl_setup_fini(&s);
    if (err)
        return err;
    xl_predict_apply(&p, &w->scale);
    *bytes = (int64_t)((double)p.total * w->factor);
    *sig = w->lane;
    xl_config_signature(w->a, &x, sig);
    sig->code = xl_str_dup(w->a, xl_str_of(xl_digest_hex(&code, hex)));
    return NULL;
}

/* The prediction grows with the batch: the largest that is predicted to fit is found by halving. 0: none. */
static xl_error *largest(const way *w, int64_t wanted, int64_t *out)
{
    int64_t low = 0, high = wanted / w->step, bytes;
    xl_signature sig;
    while (low < high) {
        int64_t mid = low + (high - low + 1) / 2;
        xl_error *err = predict_at(w, mid * w->step, &bytes, &sig);
        if (err)
            return err;
        if (bytes <= w->room)
            low = mid;
        else
            high = mid - 1;
    }
    *out = low * w->step;
    return NULL;
}

/* First by liveness alone, to know which small batch to ask the compiler about; then by what it made of that. */
static xl_error *largest_measured(way *w, xl_lane *lane, int64_t wanted, int64_t *out)
{
    xl_error *err = largest(w, wanted, out);
    if (err || !*out)
        return err;
    xl_config x = w->c;
    x.data.batch = *out;
    measure_small(&x, lane, w->rule, &w->scale);
    return largest(w, wanted, out);
}

/* The larger batch first; of two alike the way that comes first: it computes less. */
static int by_size(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->batch != y->batch ? (x->batch < y->batch ? 1 : -1) : x->way - y->way;
}

typedef struct { xl_config *c; void (*say)(void *ctx, const char *line); void *ctx; double limit; } attempt;

/* "batch 20 with remat", "batch 64 in 4 turns" */
static const char *candidate_words(const way *w, int64_t batch)
{
    const char *remat = w->c.model.remat ? " with remat" : "";
    const int64_t turns = turns_of(&w->c);
    return turns > 1 ? xl_strf(w->a, "batch %lld in %lld turns%s", (long long)batch, (long long)turns, remat).p
                     : xl_strf(w->a, "batch %lld%s", (long long)batch, remat).p;
}

/* Calibrates a candidate and says how it went. */
static xl_error *try_one(const way *w, const attempt *t, const candidate *x, xl_calibration *out, bool *taken)
{
    t->c->data.batch = x->batch;
    t->c->model.remat = w->c.model.remat;
    t->c->model.micro = w->c.model.micro;
    xl_error *err = xl_calibrate(w->a, t->c, out);
    if (err)
        return err;
    bool ran = out->entry.outcome == XL_OUTCOME_RAN, tight = ran && out->entry.observed > w->room;
    *taken = ran && !tight;
    if (t->say)
        t->say(t->ctx,
               xl_strf(w->a, "%s (%s): predicted %.1f MiB, observed %.1f MiB of %.1f: %s", candidate_words(w, x->batch),
                       x->known == XL_KNOWN_GOOD ? "known good" : "unseen", (double)x->predicted / (1 << 20),
                       out->entry.observed > 0 ? (double)out->entry.observed / (1 << 20) : 0.0, t->limit / (1 << 20),
                       tight ? "too tight"
                       : ran ? "taken"
                             : xl_str_c(w->a, out->entry.class))
                   .p);
    return NULL;
}

/* Where less was observed than had been predicted there may be room for more: the prediction is corrected by that, and
 * asked again. */
static xl_error *go_up(way *w, const attempt *t, int64_t wanted, const xl_catalog_entry *all, size_t n,
                       xl_calibration *out)
{
    xl_error *err = NULL;
    for (int turn = 0; turn < 4; turn++) {
        int64_t at = t->c->data.batch, said, up;
        xl_calibration more;
        xl_signature sig;
        bool taken;
        w->factor = 1;
        XL_DO(predict_at(w, at, &said, &sig));
        w->factor = (double)out->entry.observed / (double)said;
        XL_DO(largest(w, wanted, &up));
        if (up <= at)
            break;
        candidate x = { .batch = up };
        XL_DO(predict_at(w, up, &x.predicted, &sig));
        x.known = xl_catalog_known(all, n, &sig, NULL);
        if (x.known == XL_KNOWN_BAD)
            break;
        XL_DO(try_one(w, t, &x, &more, &taken));
        if (!taken) {
            t->c->data.batch = at;
            if (t->say)
                t->say(t->ctx, xl_strf(w->a, "%s: taken", candidate_words(w, at)).p);
            break;
        }
        *out = more;
    }
out:
    return err;
}

xl_error *xl_fit(xl_arena *a, xl_config *c, void (*say)(void *ctx, const char *line), void *ctx, xl_calibration *out)
{
    xl_error *err = NULL;
    xl_setup device = { 0 };
    xl_device_memory dm;
    xl_catalog_entry *all;
    size_t n, ncand = 0, cap = 0;
    const int64_t wanted = c->data.batch;
    candidate *cand = NULL;
    enum { WAYS = 10 };
    way w[WAYS] = { 0 }; /* as configured; made again in the backward pass; in 2, 4, 8, ... turns */
    int nway = 0;
    XL_DO(xl_setup_device(c, &device));
    XL_TRY(xl_device_memory_read(device.lane->dev, &dm), "fitting needs the size of the device's memory");
    if (dm.limit <= 0) {
        err = XL_ERR(UNIMPLEMENTED,
                     "%s does not say how much memory it has, so nothing can be fitted to it; set data.batch by hand",
                     xl_lane_name(device.lane));
        goto out;
    }
    XL_DO(xl_catalog_read(a, xl_catalog_dir(a), &all, &n, NULL));
    way first = { .a = a,
                  .c = *c,
                  .rule = XL_RULE_FUSED,
                  .room = dm.limit - dm.limit / 50, /* the loop has the next batch there while a step runs */
                  .step = 1,
                  .cuda = is_cuda(device.lane) };
    xl_config chosen = *c;
    chosen.data.batch = turns_of(c);    /* only to see what is chosen; a mesh may not divide it */
    if (!c->mesh.n) {
        XL_DO(setup(&chosen, &device));
        as_chosen(&device, &chosen);
    }
    xl_error_free(xl_predict_measure(device.lane->client, &first.rule));
    lane_signature(a, device.lane, &dm, &first.lane);
    xl_str plain = { 0 };
    int64_t low = 0;
    for (int k = 0; k < WAYS && low < wanted - wanted % first.step; k++) {
        xl_signature sig;
        int64_t bytes;
        first.c.model = chosen.model;
        if (k == 1)
            first.c.model.remat = true;
        if (k > 1)
            first.c.model.micro = (c->model.micro > 1 ? c->model.micro : 1) << (k - 1);
        XL_DO(xl_config_batch_step(&first.c, &first.step));
        if (first.step > wanted)
            break;
        first.scale = (xl_predict_scale){ .temporary = 1 };
        XL_DO(predict_at(&first, first.step, &bytes, &sig));
        if (k == 1 && xl_str_eq(sig.code, plain))   /* a scan makes its body again anyway */
            continue;
        plain = sig.code;
        first.factor = learned(a, all, n, &sig);
        XL_DO(largest_measured(&first, device.lane, wanted, &low));
        w[nway] = first;
        size_t before = ncand;
        for (int64_t b = low / first.step;
             b >= 1 && ncand - before<24; b = b> 1 && b * 15 / 16 == b ? b - 1 : b * 15 / 16) {
            XL_DO(predict_at(&first, b * first.step, &bytes, &sig));
            XL_PUSH(a, cand, ncand, cap,
                    ((candidate){ b * first.step, nway, xl_catalog_known(all, n, &sig, NULL), bytes }));
        }
        nway++;
    }
    xl_setup_fini(&device);
    if (!ncand) {
        const char *least = w[0].step > 1 ? xl_strf(a, "a batch of %lld", (long long)w[0].step).p : "one row";
        err = XL_ERR(EXHAUSTED, "not even %s fits %lld MiB: a smaller model, or shorter rows (data.time)", least,
                     (long long)(dm.limit >> 20));
        goto out;
    }
    qsort(cand, ncand, sizeof *cand, by_size);
    const attempt t = { c, say, ctx, (double)dm.limit };
    for (int pass = XL_KNOWN_GOOD; pass <= XL_UNSEEN; pass++)
        for (size_t i = 0; i < ncand; i++) {
            bool taken;
            way *of = &w[cand[i].way];
            if ((int)cand[i].known != pass)
                continue;
            XL_DO(try_one(of, &t, &cand[i], out, &taken));
            if (taken) {
                err = go_up(of, &t, wanted, all, n, out);
                goto out;
            }
        }
    err =
        XL_ERR(EXHAUSTED, "no batch up to %lld fits: a smaller model, or shorter rows (data.time)", (long long)wanted);
out:
    xl_setup_fini(&device);
    return err;
}
