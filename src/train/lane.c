#include "train/lane.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/time.h"
#include "ir/compare/diff.h"
#include "ir/compare/hash.h"
#include "ir/text/print.h"
#include "lane/identity.h"
#include "pjrt/options.h"
#include "train/tuning.h"

/* XLA's CUDA client takes three quarters of the card at once by default, and for that writes a table of 8 bytes for
 * every 256: 3 GB and more than a second. Growing as needed costs neither, but its allocator then hands out regions of
 * powers of two and counts up to 128 MiB more than was asked for. A plugin that does not know the option is started
 * without. */
static xl_error *start(xl_plugin *p, bool whole, xl_job *job, xl_client **out)
{
    const xl_named who[] = {
        { .name = XL_STR("num_nodes"), .kind = XL_NAMED_INT, .i = xl_job_ranks(job) },
        { .name = XL_STR("node_id"), .kind = XL_NAMED_INT, .i = xl_job_me(job) },
    };
    const char *kind = xl_plugin_kind(xl_plugin_path(p)), *asked = getenv("XLA_PYTHON_CLIENT_PREALLOCATE");
    if (job && !(kind && !strcmp(kind, "tpu"))) /* libtpu knows its slice by itself */
        return xl_client_open(p, &(xl_client_opts){ .option = who, .noption = 2, .kv = xl_job_kv(job) }, out);
    const xl_named grow = { .name = XL_STR("preallocate"), .kind = XL_NAMED_BOOL, .b = false };
    if (kind && !strcmp(kind, "cuda") && !whole && !(asked && !strcmp(asked, "true"))) {
        xl_error *err = xl_client_open(p, &(xl_client_opts){ .option = &grow, .noption = 1 }, out);
        if (!err || xl_error_code(err) != XL_CODE_INVALID)
            return err;
        xl_error_free(err);
    }
    return xl_client_open(p, NULL, out);
}

xl_error *xl_lane_open(const char *plugin, xl_lane **out) { return xl_lane_open_as(plugin, false, NULL, out); }

xl_error *xl_lane_open_as(const char *plugin, bool whole, xl_job *job, xl_lane **out)
{
    xl_error *err = NULL;
    xl_plugin *p = NULL;
    xl_arena a = { 0 };
    *out = NULL;
    xl_lane *l = xl_new(&a, xl_lane, 1);
    XL_DO(xl_plugin_find(&a, &(xl_plugin_wish){ .named = plugin }, &l->choice));
    setenv("TF_CPP_MIN_LOG_LEVEL", "1",
           0); /* XLA's INFO lines are not ours to print; a profile, the user or -v may say otherwise */
    double at = xl_now();
    XL_DO(xl_plugin_open(l->choice.path, &p));
    l->plugin_seconds = xl_now() - at;
    char flags[16384];
    xl_identity_flags(flags, sizeof flags);
    l->flags = xl_str_c(&a, xl_str_of(flags));
    l->deterministic = true;
    at = xl_now();
    XL_TRY(start(p, whole, job, &l->client), "starting %s", l->choice.path);
    l->client_seconds = xl_now() - at;
    l->job = job;
    l->dev = xl_client_local(l->client, 0);
    if (!l->dev) {
        err = XL_ERR(UNAVAILABLE, "%s runs, but has no device for this process; see xlane probe", l->choice.path);
        goto out;
    }
    l->place = (xl_place){ &l->dev, 1, NULL };
    l->policy = XL_POLICY_WARN;
    l->name = xl_str_c(
        &a, xl_strf(&a, "%.*s (%.*s), %s", XL_FMT(xl_client_platform(l->client)), XL_FMT(l->dev->kind), l->choice.why));
    l->arena = a;
    *out = l;
    return NULL;
out:
    xl_client_close(l->client);
    xl_arena_fini(&a);
    return err;
}

void xl_lane_close(xl_lane *l)
{
    if (!l)
        return;
    xl_client_close(l->client);
    xl_arena a = l->arena;               /* the lane itself lies in it */
    xl_arena_fini(&a);
}

const char *xl_lane_name(const xl_lane *l) { return l->name; }

xl_elem xl_elem_of(xl_dtype d)
{
    return xl_elem_parse(xl_str_of(xl_dtypes[d].text));
}

xl_digest xl_graph_hash(xl_graph *g, xl_func *f)
{
    xl_module v = xl_graph_view(g, &f);
    return xl_module_hash(&v);
}

typedef struct { const char *reason, *words; xl_diff *diff; uint32_t ndiff; char against[XL_DIGEST_HEX]; } cause;

static void report(xl_lane *l, const char *module, const char *hash, const char *result, const cause *c, double seconds,
                   double cpu, xl_graph *g, xl_func *f, const xl_program *p, const xl_error *err)
{
    if (!l->run)
        return;
    xl_event e;
    xl_event_begin(l->run, &e, "compile");
    xl_json_put_text(&e.j, "module", module);
    xl_json_put_text(&e.j, "program", hash);
    xl_json_put_text(&e.j, "result", result);
    xl_json_put_num(&e.j, "seconds", seconds);
    xl_json_put_num(&e.j, "cpu_seconds", cpu);
    xl_json_put_text(&e.j, "phase", l->steady ? "steady" : "warmup");
    xl_json_put_int(&e.j, "step", l->step);
    xl_json_put_text(&e.j, "reason", c->reason);
    if (c->against[0])
        xl_json_put_text(&e.j, "against", c->against);
    if (c->ndiff) {
        xl_json_key(&e.j, "detail");
        xl_json_list(&e.j);
        for (uint32_t i = 0; i < c->ndiff; i++) {
            const xl_diff *d = &c->diff[i];
            xl_json_map(&e.j);
            xl_json_put_text(&e.j, "what", xl_diff_word(d->kind));
            if (d->arg >= 0)
                xl_json_put_int(&e.j, "arg", d->arg);
            if (d->name.n)
                xl_json_put_str(&e.j, "name", d->name);
            xl_json_put_str(&e.j, "before", d->before);
            xl_json_put_str(&e.j, "after", d->after);
            xl_json_put_str(&e.j, "text", d->text);
            xl_json_end(&e.j);
        }
        xl_json_end(&e.j);
    }
    if (p) { /* what was thought, and what the compiler says; the observed figure is in the stop event */
        xl_program_memory m;
        xl_error *none = xl_executable_memory(xl_program_executable(p), &m);
        xl_json_put_int(&e.j, "predicted_bytes", xl_lane_predict(g, f));
        if (!none && m.needs > 0)
            xl_json_put_int(&e.j, "compiled_bytes", m.needs);
        xl_error_free(none);
    }
    if (err)
        xl_json_put_text(&e.j, "error", xl_error_message(err));
    xl_event_end(l->run, &e);
}

/* Why this compile: the first of its name, the same program again, or what differs from the last of its name. */
static cause cause_of(xl_lane *l, xl_arena *tmp, xl_graph *g, xl_func *f, const char *module, const xl_digest *d)
{
    cause c = { .reason = "first", .words = "" };
    for (uint32_t i = l->nseen; i-- > 0;) {
        if (!xl_str_is(l->seen[i].module, module))
            continue;
        xl_digest_hex(&l->seen[i].program, c.against);
        if (xl_digest_eq(&l->seen[i].program, d)) {
            c.reason = "identical";
            return c;
        }
        xl_module a = xl_graph_view(l->seen[i].g, &l->seen[i].f), b = xl_graph_view(g, &f);
        c.diff = xl_module_diff(tmp, &a, &b, 16, &c.ndiff);
        c.reason = c.ndiff ? xl_diff_word(c.diff[0].kind) : "op";
        c.words = c.ndiff ? xl_str_c(tmp, c.diff[0].text) : "";
        break;
    }
    XL_PUSH(&l->arena, l->seen, l->nseen, l->capseen,
            ((__typeof__(*l->seen)){ xl_str_dup(&l->arena, xl_str_of(module)), *d, g, f }));
    return c;
}

void xl_lane_key(xl_lane *l, xl_arena *a, const char *module, const char *hash, xl_str options, xl_str tuning,
                 xl_cache_key *k)
{
    char hex[XL_DIGEST_HEX];
    xl_digest od = xl_hash_of(options);
    xl_cache_key_add(k, "program", xl_str_of(hash));
    xl_cache_key_add(k, "options", xl_str_dup(a, xl_str_of(xl_digest_hex(&od, hex))));
    xl_cache_key_add(
        k, "plugin",
        xl_strf(a, "%.*s %.*s", XL_FMT(xl_client_platform(l->client)), XL_FMT(xl_client_version(l->client))));
    if (!l->file) {
        char file[128];
        xl_identity_file(l->choice.path, file, sizeof file);
        l->file = xl_str_c(&l->arena, xl_str_of(file));
    }
    xl_cache_key_add(k, "file", xl_str_of(l->file));
    xl_cache_key_add(k, "flags", xl_str_of(l->flags));
    xl_cache_key_add(k, "topology",
                     l->job
                         ? xl_strf(a, "%.*s %zu of %zu", XL_FMT(l->dev->kind), xl_client_nlocal(l->client), l->place.n)
                         : xl_strf(a, "%.*s %zu", XL_FMT(l->dev->kind), xl_client_nlocal(l->client)));
    const char *profile = getenv("XLANE_PROFILE"), *digest = profile ? strrchr(profile, '@') : NULL;
    xl_cache_key_add(k, "profile", xl_str_of(digest ? digest + 1 : "none"));
    if (tuning.n)
        xl_cache_key_add(k, "tuning", tuning);
    k->module = xl_str_of(module);
    xl_cache_key_seal(k);
}

/* Functions of somebody else's: was it made for this platform, and are its custom calls there? The embedded device is a
 * CPU to them, and has none but those that only carry notes. */
static xl_error *offers(const xl_lane *l, const xl_graph *g)
{
    static const char *const notes[] = { "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape",
                                         "annotate_device_placement" };
    xl_str name = xl_client_platform(l->client);
    bool own = xl_str_is(name, "xlane");
    for (uint32_t i = 0; i < g->nforeign; i++) {
        const xl_foreign *x = &g->foreign[i];
        bool made = !x->nplatform;
        for (uint32_t k = 0; k < x->nplatform; k++)
            made |= xl_str_is(name, x->platform[k]) || (own && !strcmp(x->platform[k], "cpu"));
        if (!made)
            return XL_ERR(PRECONDITION, "%s: not made for %.*s; export it for this platform", x->what, XL_FMT(name));
        for (uint32_t k = 0; own && k < x->ncustom; k++) {
            bool note = false;
            for (size_t n = 0; n < sizeof notes / sizeof *notes; n++)
                note |= !strcmp(notes[n], x->custom[k]);
            if (!note)
                return XL_ERR(PRECONDITION,
                              "%s: the embedded device has no custom call %s; run it on the platform it was made for",
                              x->what, x->custom[k]);
        }
    }
    return NULL;
}

/* Does the plugin read sdy annotations? XLA's do since 0.70 of the C API, and say so since they have versions of it. */
static bool takes_sdy(const xl_lane *l)
{
    const char *asked = getenv("XLANE_ANNOTATIONS");
    if (asked && *asked)
        return strcmp(asked, "mhlo") != 0;
    const xl_plugin *p = xl_client_plugin(l->client);
    return xl_plugin_major(p) > 0 || xl_plugin_minor(p) >= 70;
}

/* The cache's entry, if there is one that loads; else *out stays NULL. */
static xl_error *load(xl_lane *l, const char *module, const xl_cache_key *key, xl_program **out)
{
    xl_cache_found found = { 0 };
    xl_error *err = xl_cache_get(l->cache, key, &found);
    if (!err && found.hit) {
        err = xl_program_deserialize(l->client, (xl_str){ found.blob, found.size }, (xl_str){ "", 0 }, out);
        if (!err) {
            l->nloaded++;
        } else {
            XL_LOG(WARN, "the cache's entry for %s does not load: %s", module, xl_error_message(err));
            xl_cache_drop(l->cache, key, xl_error_message(err));
            xl_error_free(err);
            err = NULL;
        }
    }
    free(found.blob);
    return err;
}

/* Of the ranks of a job one compiles and the others load what it has kept; one that dies meanwhile is replaced. Other
 * plugins than the embedded device may compile all together, each waiting for the rest: there nobody waits here. */
static xl_error *load_after_others(xl_lane *l, const char *module, const xl_cache_key *key, xl_lease *lease,
                                   xl_program **out)
{
    static const double lease_s = 600;
    if (!l->job || !xl_str_is(xl_client_platform(l->client), "xlane"))
        return NULL;
    xl_lease_state s = xl_cache_lease(l->cache, key, lease_s, lease);
    bool again = s == XL_LEASE_WAITED || (s == XL_LEASE_MINE && xl_cache_has(l->cache, key));
    return again ? load(l, module, key, out) : NULL;
}

/* How a program is compiled. `file` is an option more, which is not part of the cache's key: `name` stands for it. */
typedef struct {
    xl_options with;
    xl_tuning tuning;
} recipe;

static void write_options(const recipe *r, bool all, xl_buf *out)
{
    xl_named option[8];
    xl_options o = r->with;
    if (o.noption)
        memcpy(option, o.option, o.noption * sizeof *option);
    if (all && *r->tuning.file)
        option[o.noption++] = (xl_named){ .name = XL_STR("xla_gpu_load_autotune_results_from"),
                                          .kind = XL_NAMED_STR,
                                          .str = xl_str_of(r->tuning.file) };
    o.option = option;
    xl_options_build(out, &o);
}

/* From the cache, or compiled and kept there; `text`, or where that is empty what `view` prints. *result: "cached",
 * "compiled" or "failed". */
static xl_error *obtain(xl_lane *l, xl_arena *tmp, const char *module, const char *hash, const recipe *how,
                        const xl_module *view, xl_str text, xl_program **out, const char **result)
{
    xl_error *err = NULL;
    xl_buf printed = { 0 }, blob = { 0 }, options = { 0 };
    xl_cache_key key = { 0 };
    xl_lease lease = { -1 };
    double start = xl_now();
    *result = "failed";
    if (l->cache) {
        write_options(how, false, &options);
        xl_lane_key(l, tmp, module, hash, xl_buf_view(&options), how->tuning.name, &key);
        xl_buf_fini(&options);
        XL_DO(load(l, module, &key, out));
        if (!*out)
            XL_DO(load_after_others(l, module, &key, &lease, out));
        if (*out) {
            *result = "cached";
            goto out;
        }
    }
    if (!text.n) {
        xl_print_module(view, &(xl_print_opts){ .locations = true }, &printed);
        text = xl_buf_view(&printed);
    }
    if (printed.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for the text of %s", module);
        goto out;
    }
    write_options(how, true, &options);
    XL_TRY(xl_program_compile(l->client, text, XL_FORMAT_MLIR, xl_buf_view(&options), out), "compiling %s", module);
    *result = "compiled";
    l->tuned |= *how->tuning.file != 0;
    l->ncompile++;
    l->compile_seconds += xl_now() - start;
    if (l->cache) {                      /* a cache that cannot be written costs a compile next time, not this run */
        xl_error *e = xl_executable_serialize(xl_program_executable(*out), &blob);
        if (!e)
            e = xl_cache_put(l->cache, &key, blob.p, blob.n, xl_now() - start);
        if (e)
            XL_LOG(INFO, "%s is not kept in the cache: %s", module, xl_error_message(e));
        xl_error_free(e);
    }
out:
    if (l->cache)
        xl_cache_release(l->cache, &key, &lease);
    xl_buf_fini(&printed);
    xl_buf_fini(&blob);
    xl_buf_fini(&options);
    return err;
}

xl_error *xl_lane_compile_text(xl_lane *l, const char *module, xl_str text, const xl_options *how, xl_program **out)
{
    xl_arena tmp = { 0 };
    char hash[XL_DIGEST_HEX];
    const char *result;
    xl_digest d = xl_hash_of(text);
    *out = NULL;
    const recipe r = { *how, { XL_STR(""), "" } };
    xl_error *err = obtain(l, &tmp, module, xl_digest_hex(&d, hash), &r, NULL, text, out, &result);
    xl_arena_fini(&tmp);
    return err;
}

/* A loop over layers copies some of what it keeps to rows and back, while nothing else runs. XLA captures a turn as a
 * CUDA graph, whose nodes wait only for those they need with this option. On an H200 a step of GPT-2 small takes 30.70
 * instead of 30.84 ms, one of 774M 88.2 instead of 88.4; layers that are written out gain nothing, and it takes memory
 * (200 MB of 8.8 GB). The kernels are the same, and so are the bits. */
static xl_named side_by_side(void)
{
    return (xl_named){ .name = XL_STR("xla_gpu_command_buffer_scheduling_mode"),
                       .kind = XL_NAMED_STR,
                       .str = XL_STR("CONCURRENT") };
}

/* Whether the plugin knows the option: an older one refuses a compile with it. */
static bool overlaps(xl_lane *l)
{
    static const char nothing[] = "module @trial {\n"
                                  "  func.func public @main() -> tensor<f32> {\n"
                                  "    %0 = stablehlo.constant dense<0.0> : tensor<f32>\n"
                                  "    return %0 : tensor<f32>\n"
                                  "  }\n"
                                  "}\n";
    xl_buf options = { 0 };
    xl_program *p = NULL;
    if (!l->overlap) {
        const xl_named option = side_by_side();
        xl_options_build(&options, &(xl_options){ .replicas = 1, .partitions = 1, .option = &option, .noption = 1 });
        xl_error *no = xl_program_compile(l->client, XL_STR(nothing), XL_FORMAT_MLIR, xl_buf_view(&options), &p);
        l->overlap = no ? -1 : 1;
        if (no)
            XL_LOG(INFO, "kernels of a turn run one after the other: %s", xl_error_message(no));
        xl_error_free(no);
        xl_program_free(p);
        xl_buf_fini(&options);
    }
    return l->overlap > 0;
}

xl_error *xl_lane_compile(xl_lane *l, xl_graph *g, xl_func *f, const char *module, xl_program **out)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    char hash[XL_DIGEST_HEX];
    xl_module view = xl_graph_view(g, &f);
    bool many = l->place.mesh != NULL, sdy = many && takes_sdy(l);
    if (many && !sdy) {                  /* the program is only ever looked at and printed from here on */
        xl_mesh_to_mhlo(f, l->place.mesh);
        view.nmesh = 0;
    }
    xl_digest d = xl_module_hash(&view);
    cause why = cause_of(l, &tmp, g, f, module, &d);
    const char *result = "compiled";
    double start = xl_now(), cpu = xl_now_cpu();
    *out = NULL;
    xl_digest_hex(&d, hash);
    err = offers(l, g);
    if (err) {
        result = "refused";
        goto out;
    }
    if (l->steady && why.against[0] && l->policy != XL_POLICY_ALLOW) {
        if (l->policy == XL_POLICY_STOP) {
            result = "refused";
            err = XL_ERR(PRECONDITION, "step %lld: %s would compile again after the warm-up window: %s. %s",
                         (long long)l->step, module, why.reason, why.words);
            goto out;
        }
        XL_LOG(WARN, "step %lld: %s compiles again after the warm-up window: %s. %s", (long long)l->step, module,
               why.reason, why.words);
    }
    view.name = xl_str_of(module);
    /* XLA's GPU scatter adds in whatever order comes, unless it is told not to: a resumed run must give the same
     * losses. Products by Triton, which XLA prefers where something can be fused into them, are slower than cuBLAS's:
     * 34.9 against 32.6 ms for a step of GPT-2 small on an H200. */
    const bool gpu = xl_str_is(xl_client_platform(l->client), "cuda");
    xl_named cuda[3];
    size_t ncuda = 0;
    if (gpu)
        cuda[ncuda++] = (xl_named){ .name = XL_STR("xla_gpu_enable_triton_gemm"), .kind = XL_NAMED_BOOL, .b = false };
    if (gpu && l->deterministic)
        cuda[ncuda++] = (xl_named){ .name = XL_STR("xla_gpu_deterministic_ops"), .kind = XL_NAMED_BOOL, .b = true };
    if (gpu && g->layers_loop && overlaps(l))
        cuda[ncuda++] = side_by_side();
    int64_t *ids = xl_new(&tmp, int64_t, l->place.n);
    for (size_t i = 0; i < l->place.n; i++)
        ids[i] = l->place.dev[i]->id;
    recipe how = { { .replicas = 1,
                     .partitions = (int)l->place.n,
                     .device = many ? ids : NULL,
                     .spmd = many,
                     .shardy = sdy,
                     .option = cuda,
                     .noption = ncuda },
                   { XL_STR(""), "" } };
    if (gpu && l->deterministic && l->tune && l->run && *xl_run_dir(l->run) && !l->job && !many &&
        xl_str_starts(xl_str_of(module), XL_STR("train_")))
        XL_TRY(xl_tuning_of(l, &tmp, module, hash, &view, &how.with, &how.tuning), "kernels for %s", module);
    err = obtain(l, &tmp, module, hash, &how, &view, XL_STR(""), out, &result);
out:
    report(l, module, hash, result, &why, xl_now() - start, xl_now_cpu() - cpu, g, f, *out, err);
    xl_arena_fini(&tmp);
    return err;
}

void xl_lane_suit(const xl_lane *l, xl_graph *g)
{
    g->gpu = !g->mesh.naxis && xl_str_is(xl_client_platform(l->client), "cuda");
}

xl_error *xl_lane_spread(xl_lane *l, const xl_mesh_def *mesh)
{
    size_t n;
    const xl_device *all = xl_client_devices(l->client, &n);
    xl_buf b = { 0 };
    xl_error *err = NULL;
    if (!l->job)
        n = xl_client_nlocal(l->client);
    xl_mesh_text(mesh, &b);
    if (l->place.mesh) {
        xl_buf have = { 0 };
        xl_mesh_text(l->place.mesh, &have);
        if (!xl_str_eq(xl_buf_view(&b), xl_buf_view(&have)))
            err = XL_ERR(PRECONDITION,
                         "the lane has the mesh %.*s already, and is asked for %.*s: open another lane for it",
                         XL_FMT(xl_buf_view(&have)), XL_FMT(xl_buf_view(&b)));
        xl_buf_fini(&have);
    } else if (xl_mesh_size(mesh) != (int64_t)n)
        err = XL_ERR(INVALID, "mesh %.*s multiplies to %lld devices, %.*s has %zu: %s", XL_FMT(xl_buf_view(&b)),
                     (long long)xl_mesh_size(mesh), XL_FMT(xl_client_platform(l->client)), n,
                     l->job ? "start another number of ranks, or change the mesh"
                     : xl_str_is(xl_client_platform(l->client), "xlane")
                         ? "set XLANE_CPU_DEVICES to that number, or change the mesh"
                         : "make the product of its axes the number of devices");
    else {
        const xl_device **dev = xl_new(&l->arena, const xl_device *, n);
        xl_mesh_def *copy = xl_new(&l->arena, xl_mesh_def, 1);
        *copy = *mesh;
        for (uint32_t i = 0; i < copy->naxis; i++)
            copy->axis[i].name = xl_str_dup(&l->arena, mesh->axis[i].name);
        for (size_t i = 0; i < n; i++)
            dev[i] = l->job ? &all[i] : xl_client_local(l->client, i);
        l->place = (xl_place){ dev, n, copy };
    }
    xl_buf_fini(&b);
    return err;
}

xl_array_type xl_array_type_of(const xl_type *t, const xl_mesh_spec *spec)
{
    return (xl_array_type){ xl_elem_of(t->dtype), xl_type_dims(t), spec };
}

xl_error *xl_lane_put(xl_lane *l, const xl_type *t, const xl_mesh_spec *spec, const void *data, xl_array **out)
{
    return xl_array_put(&l->place, xl_elem_of(t->dtype), xl_type_dims(t), spec, data, out);
}
