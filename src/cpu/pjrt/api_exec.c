/* Executables: compiling, running, and queries from frontends. */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/proto.h"
#include "base/version.h"
#include "cpu/kernel/callback.h"
#include "cpu/pjrt/api.h"
#include "cpu/plan/contract.h"
#include "cpu/plan/lower.h"
#include "cpu/run/env.h"
#include "ir/hlo/hlo_fields.h"
#include "ir/read.h"
#include "pass/pass.h"
#include "pass/shard.h"
#include "pjrt/options.h"
#include "ir/verify.h"

/* ---- making ----------------------------------------------------------------------------------------------------- */
static void exec_unref(xl_compiled *e)
{
    if (!e || atomic_fetch_sub(&e->ref, 1) != 1)
        return;
    xl_plan_free(e->plan);
    free(e->name);
    free(e->assignment);
    free(e->loose);
    xl_buf_fini(&e->options);
    xl_buf_fini(&e->program);
    xl_buf_fini(&e->rewritten);
    xl_buf_fini(&e->text);
    xl_buf_fini(&e->gathered);
    free(e->out_types);
    free(e->out_dims);
    free(e->out_ranks);
    for (int k = 0; k < 2; k++) {
        free(e->kinds[k]);
        free(e->kind_sizes[k]);
    }
    free(e->out_space);
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < e->nsharding[k]; i++)
            free(e->shardings[k][i]);
        free(e->shardings[k]);
        free(e->sharding_sizes[k]);
    }
    free((void *)e->layouts[0]);
    free((void *)e->layouts[1]);
    for (size_t k = 0; e->spare && k < (size_t)e->nreplica * e->npartition; k++)
        free(atomic_load(&e->spare[k]));
    free((void *)e->spare);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static size_t memory_needed(const xl_plan *p, size_t *arg, size_t *out, size_t *alias)
{
    *arg = *out = *alias = 0;
    for (uint32_t i = 0; i < p->narg; i++)
        *arg += p->arg[i].bytes;
    for (uint32_t i = 0; i < p->nout; i++) {
        *out += p->out[i].bytes;
        if (p->out_donor[i] >= 0)
            *alias += p->out[i].bytes;
    }
    return *arg + *out - *alias + p->temp_bytes + p->const_bytes;
}

static const char *human(size_t n, char *text, size_t size)
{
    const char *unit = "B";
    double v = (double)n;
    if (v >= 1024) v /= 1024, unit = "K";
    if (v >= 1024) v /= 1024, unit = "M";
    if (v >= 1024) v /= 1024, unit = "G";
    snprintf(text, size, "%.2f%s", v, unit);
    return text;
}

static xl_error *out_of_hbm(const xl_plan *p, size_t need, size_t limit)
{
    char a[32], b[32], c[32], d[32], e[32], f[32];
    size_t arg, out, alias;
    memory_needed(p, &arg, &out, &alias);
    return XL_ERR(EXHAUSTED,
                  "E1000: CompileTimeHbmOom: XLA:xlane compile permanent error. Ran out of memory in memory space hbm. "
                  "Used %s of %s hbm. "
                  "Exceeded hbm capacity by %s. Total hbm usage >= %s: arguments %s, outputs %s (of which donated ones "
                  "share the arguments'), "
                  "program %zu bytes: use a smaller batch or model, donate arguments, or raise XLANE_CPU_HBM",
                  human(need, a, sizeof a), human(limit, b, sizeof b), human(need - limit, c, sizeof c),
                  human(need, d, sizeof d), human(arg, e, sizeof e), human(out, f, sizeof f),
                  p->temp_bytes + p->const_bytes);
}

/* In which memory the program says that results and arguments lie. */
static xl_error *keep_kinds(xl_compiled *e)
{
    const xl_func *f = e->plan->f;
    for (int k = 0; k < 2; k++) {
        uint32_t n = k ? e->plan->narg : e->plan->nout;
        const xl_attr *const *attr = k ? f->arg_attr : f->res_attr;
        e->kinds[k] = calloc((size_t)n + 1, sizeof **e->kinds);
        e->kind_sizes[k] = calloc((size_t)n + 1, sizeof **e->kind_sizes);
        if (!k)
            e->out_space = calloc((size_t)n + 1, sizeof *e->out_space);
        if (!e->kinds[k] || !e->kind_sizes[k] || !e->out_space)
            return XL_ERR(EXHAUSTED, "no memory for an executable");
        for (uint32_t i = 0; i < n; i++) {
            const xl_attr *a = attr ? xl_dict_get(attr[i], XL_STR("mhlo.memory_kind")) : NULL;
            int space = a && a->kind == XL_AT_STR && xl_str_is(a->str, xl_space_kind[XL_SPACE_HOST]) ? XL_SPACE_HOST
                                                                                                     : XL_SPACE_DEVICE;
            e->kinds[k][i] = xl_space_kind[space];
            e->kind_sizes[k][i] = strlen(xl_space_kind[space]);
            if (!k)
                e->out_space[i] = (uint8_t)space;
        }
    }
    return NULL;
}

/* The OpSharding of every result and argument, as frontends ask for them. */
static xl_error *keep_shardings(xl_compiled *e, const xl_shard_info *info)
{
    for (int k = 0; k < 2; k++) {
        uint32_t n = k ? info->narg : info->nout;
        e->shardings[k] = calloc((size_t)n + 1, sizeof **e->shardings);
        e->sharding_sizes[k] = calloc((size_t)n + 1, sizeof **e->sharding_sizes);
        if (!e->shardings[k] || !e->sharding_sizes[k])
            return XL_ERR(EXHAUSTED, "no memory for shardings");
        for (uint32_t i = 0; i < n; i++) {
            const xl_extent *s = k ? &e->plan->arg[i] : &e->plan->out[i];
            xl_buf b = { 0 };
            xl_shard_proto(info, k ? info->arg[i] : info->out[i], s->rank, k ? &info->arg_owed[i] : &info->out_owed[i],
                           k ? info->arg_order[i] : info->out_order[i], &b);
            if (b.failed) {
                xl_buf_fini(&b);
                return XL_ERR(EXHAUSTED, "no memory for shardings");
            }
            e->shardings[k][i] = b.p;
            e->sharding_sizes[k][i] = b.n;
            e->nsharding[k] = i + 1;
        }
    }
    return NULL;
}

/* Tells the frontend how the values are split that it asked for. */
static xl_error *tell_inspected(const xl_shard_info *info)
{
    xl_error *err = NULL;
    for (uint32_t i = 0; i < info->ninspected && !err; i++) {
        const xl_inspected *in = &info->inspected[i];
        xl_buf b = { 0 };
        if (in->manual)
            xl_proto_put_int(&b, XL_HLO_SHARDING_type, XL_HLO_SHARDED_MANUAL);
        else
            xl_shard_proto(info, in->spec, in->rank, &in->owed, NULL, &b);
        int64_t n = (int64_t)b.n;
        err = b.failed ? XL_ERR(EXHAUSTED, "no memory for shardings")
                       : xl_host_call((uint64_t)in->number, &(xl_host_array){ b.p, 1, &n });
        xl_buf_fini(&b);
    }
    return err;
}

/* The frontend's answer lies in its own memory until it is asked again: lines, a zero, and a program. */
static xl_error *ask_partition(int64_t number, const xl_buf *in, uint32_t n, xl_module **out, xl_buf *lines)
{
    static const int64_t two = 2;
    uint64_t reply[2] = { 0 };
    xl_host_array *arrays = calloc((size_t)n + 1, sizeof *arrays);
    int64_t *sizes = calloc((size_t)n + 1, sizeof *sizes);
    xl_error *err = arrays && sizes ? NULL : XL_ERR(EXHAUSTED, "no memory to ask the frontend");
    for (uint32_t i = 0; !err && i < n; i++) {
        sizes[i] = (int64_t)in[i].n;
        arrays[i] = (xl_host_array){ in[i].p, 1, &sizes[i] };
        if (in[i].failed)
            err = XL_ERR(EXHAUSTED, "no memory for shardings");
    }
    if (!err) {
        arrays[n] = (xl_host_array){ reply, 1, &two };
        err = xl_host_call((uint64_t)number, arrays);
    }
    free(arrays);
    free(sizes);
    if (err)
        return err;
    xl_str text = { (const char *)(uintptr_t)reply[0], (size_t)reply[1] };
    xl_buf_str(lines, xl_str_cut(&text, '\0'));
    if (lines->failed)
        return XL_ERR(EXHAUSTED, "no memory for shardings");
    err = xl_read_text(text, NULL, out);
    if (!err)
        err = xl_verify(*out);
    return err ? err : xl_lower(*out, false);
}

/* What XLA logs at this level of detail, under the name by which it was asked for. */
static void log_pass(void *ctx, const char *name, const xl_module *m)
{
    const xl_func *f = xl_module_entry(m);
    (void)ctx;
    xl_log_write(XL_LOG_INFO, "pass/pipeline.c (hlo_pass_pipeline.cc in XLA): %.*s: after pass %s %u ops",
                 XL_FMT(m->name), name, f ? f->body->nop : 0);
}

/* From a program as it came to one function, on the shapes of one device. */
static xl_error *make_local(xl_module *m, uint32_t npartition, uint32_t nreplica, xl_shard_info *shards,
                            const PJRT_Layouts_MemoryLayout **layouts[2])
{
    xl_error *err = xl_verify(m);                          /* kernels trust shapes and attributes from here on */
    if (!err)
        err = xl_lower(m, npartition > 1);
    if (!err && npartition > 1)
        err = xl_shard(m, npartition, nreplica, shards);
    if (!err && layouts)
        err = xl_layouts_apply(m, layouts);
    return err;
}
static xl_error *simplify(xl_module *m)
{
    bool plain = xl_env_get(XL_ENV_PLAN, XL_ENV_PLANNED) ==
                 XL_ENV_PLAIN; /* the oracle does without what only makes programs faster */
    return xl_pipeline_run(m, &(xl_pipeline_opts){ .device = true,
                                                   .only = plain ? "canonical" : NULL,
                                                   .after = xl_python_logs_passes() ? log_pass : NULL });
}
/* The stages of a compile that grow the module. */
static xl_error *localise(xl_compiled *e, xl_module *m, xl_shard_info *shards)
{
    jmp_buf oom, *outer = m->arena.oom;
    if (setjmp(oom)) {
        m->arena.oom = outer;
        return XL_ERR(EXHAUSTED, "no memory left while compiling the program");
    }
    m->arena.oom = &oom;
    if (xl_syntax_of(xl_buf_view(&e->program)) == XL_SYNTAX_HLO)
        xl_layouts_forget(m);
    xl_error *err = make_local(m, e->npartition, e->nreplica, shards, e->layouts);
    if (!err)
        err = tell_inspected(shards);
    m->arena.oom = outer;
    return err;
}
xl_error *xl_compiled_ready(const xl_compiled *e, xl_module *m, xl_shard_info *shards)
{
    *shards = (xl_shard_info){ .loose = e->loose, .nloose = e->nloose, .partition = ask_partition };
    xl_error *err = make_local(m, e->npartition, e->nreplica, shards, NULL);
    return err ? err : simplify(m);
}
static xl_error *simplify_bounded(xl_module *m)
{
    jmp_buf oom, *outer = m->arena.oom;
    if (setjmp(oom)) {
        m->arena.oom = outer;
        return XL_ERR(EXHAUSTED, "no memory left while compiling the program");
    }
    m->arena.oom = &oom;
    xl_contract(m);                                        /* not in xl_compiled_ready: its readers know no such op */
    xl_error *err = simplify(m);
    m->arena.oom = outer;
    return err;
}

/* What frontends ask of the outputs: types, ranks, dimensions. */
static xl_error *keep_outputs(xl_compiled *e)
{
    const xl_plan *p = e->plan;
    const xl_op *end = xl_region_end(p->f->body);
    size_t dims = 0;
    for (uint32_t i = 0; i < p->nout; i++)
        dims += p->out[i].rank;
    e->out_types = calloc((size_t)p->nout + 1, sizeof *e->out_types);
    e->out_ranks = calloc((size_t)p->nout + 1, sizeof *e->out_ranks);
    e->out_dims = calloc(dims + 1, sizeof *e->out_dims);
    if (!e->out_types || !e->out_ranks || !e->out_dims)
        return XL_ERR(EXHAUSTED, "no memory for an executable");
    dims = 0;
    for (uint32_t i = 0; i < p->nout; i++) {
        bool token = xl_in_type(p->f, end, i)->kind == XL_TY_TOKEN;
        e->out_types[i] = token ? PJRT_Buffer_Type_TOKEN : xl_api_type(p->out[i].dtype);
        e->out_ranks[i] = p->out[i].rank;
        for (uint32_t k = 0; k < p->out[i].rank; k++)
            e->out_dims[dims + (size_t)e->layouts[0][i]->minor_to_major[p->out[i].rank - 1 - k]] = p->out[i].dims[k];
        dims += p->out[i].rank;
    }
    return NULL;
}

static void keep_costs(xl_compiled *e, const xl_shard_info *shards)
{
    const struct { const char *name; double value; } cost[] = {
        { "flops", e->plan->flops },
        { "bytes accessed", e->plan->bytes_accessed },
        { "transcendentals", e->plan->transcendentals },
        { "collective bytes", shards->traffic.operands },  /* per device and run, loops counted once */
        { "collective ring bytes", shards->traffic.ring },
    };
    for (size_t i = 0; i < sizeof cost / sizeof *cost; i++)
        e->cost[i] = (PJRT_NamedValue){ .struct_size = PJRT_SIZE(PJRT_NamedValue, value_size),
                                        .name = cost[i].name,
                                        .name_size = strlen(cost[i].name),
                                        .type = PJRT_NamedValue_kFloat,
                                        .float_value = (float)cost[i].value,
                                        .value_size = 1 };
    xl_shard_gathered(shards, &e->gathered);               /* given only where there is any */
    e->cost[5] = (PJRT_NamedValue){ .struct_size = PJRT_SIZE(PJRT_NamedValue, value_size),
                                    .name = "gathered",
                                    .name_size = 8,
                                    .type = PJRT_NamedValue_kString,
                                    .string_value = e->gathered.p,
                                    .value_size = e->gathered.n };
}

/* rewrite: it is compiled, not loaded, so what was registered to rewrite programs gets it. */
static xl_error *exec_new(xl_str program, xl_str opts, size_t limit, bool rewrite, xl_compiled **out)
{
    xl_error *err = NULL;
    xl_module *m = NULL, *came = NULL, *rewritten = NULL;
    xl_compiled *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e)
        return XL_ERR(EXHAUSTED, "no memory for an executable");
    atomic_init(&e->ref, 1);
    XL_DO(xl_env_check());
    pthread_mutex_init(&e->lock, NULL);
    e->loaded = !rewrite;
    XL_DO(xl_compiled_options(e, opts));
    xl_shard_info shards = { .loose = e->loose, .nloose = e->nloose, .partition = ask_partition };
    e->spare = calloc((size_t)e->nreplica * e->npartition, sizeof *e->spare);
    if (!e->spare) {
        err = XL_ERR(EXHAUSTED, "no memory for an executable");
        goto out;
    }
    xl_buf_str(&e->program, program);
    xl_buf_str(&e->options, opts);
    XL_DO(xl_read(program, NULL, &m));
    e->name = strndup(m->name.n ? m->name.p : "main", m->name.n ? m->name.n : 4);
    XL_DO(localise(e, m, &shards));
    if (rewrite)
        XL_DO(xl_transform(m, &rewritten, &e->rewritten));
    if (rewritten) {
        came = m;                                          /* shards point into it */
        m = rewritten;
    }
    XL_DO(simplify_bounded(m));
    XL_DO(xl_plan_new(m, e->nreplica * e->npartition, &e->plan));
    m = NULL;                                              /* the plan's now */
    const xl_plan *p = e->plan;
    size_t arg, res, alias, need = memory_needed(p, &arg, &res, &alias);
    if (limit && need > limit) {
        err = out_of_hbm(p, need, limit);
        goto out;
    }
    if (!e->name || e->program.failed || e->options.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for an executable");
        goto out;
    }
    if (e->npartition > 1)
        XL_DO(keep_shardings(e, &shards));
    XL_DO(keep_outputs(e));
    XL_DO(keep_kinds(e));
    xl_hash h;
    xl_hash_init(&h);
    xl_hash_str(&h, XL_STR(XL_VERSION));
    xl_hash_str(&h, program);
    xl_hash_str(&h, opts);
    xl_hash_str(&h, xl_buf_view(&e->rewritten));
    xl_digest digest = xl_hash_final(&h);
    xl_digest_hex(&digest, e->fingerprint);
    keep_costs(e, &shards);
    *out = e;
out:
    xl_module_free(came);
    if (err) {
        xl_module_free(m);
        exec_unref(e);
    }
    return err;
}

static void loaded_free(PJRT_LoadedExecutable *l)
{
    if (!l)
        return;
    free(l->devices);
    free(l->ids);
    free(l->process);
    free(l);
}

static xl_error *load(PJRT_Client *c, xl_compiled *e, PJRT_LoadedExecutable **out)
{
    XL_KNOWN(e);                                           /* exec_new gave no error */
    size_t n = (size_t)e->nreplica * e->npartition;
    PJRT_LoadedExecutable *l = calloc(1, sizeof *l);
    *out = NULL;
    if (l) {
        l->devices = calloc(n, sizeof *l->devices);
        l->ids = calloc(n, sizeof *l->ids);
        l->process = calloc(n, sizeof *l->process);
    }
    if (!l || !l->devices || !l->ids || !l->process) {
        loaded_free(l);
        return XL_ERR(EXHAUSTED, "no memory for an executable");
    }
    l->client = c;
    l->hash = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < n; i++) {
        int64_t id = e->assignment ? e->assignment[i] : (int64_t)i;
        if (id < 0 || (size_t)id >= c->n) {
            loaded_free(l);
            return XL_ERR(INVALID,
                          "the program is for device %lld, this client has devices 0 to %zu: set XLANE_CPU_DEVICES",
                          (long long)id, c->n - 1);
        }
        l->hash = (l->hash ^ (uint64_t)id) * 0x100000001b3ULL;
        l->process[i] = (uint32_t)c->device[id].desc.process;
        if ((int)l->process[i] != c->process)
            continue;
        l->devices[l->n] = &c->device[id];
        l->ids[l->n++] = (PJRT_LogicalDeviceIds){ (int)(i / e->npartition), (int)(i % e->npartition) };
    }
    if (!l->n) {
        loaded_free(l);
        return XL_ERR(INVALID, "none of the program's %zu devices belongs to this process, number %d", n, c->process);
    }
    if (l->n == n) {
        free(l->process);
        l->process = NULL;
    }
    l->e = e;                                              /* last: see api.h */
    *out = l;
    return NULL;
}

PJRT_Error *xl_PJRT_Client_Compile(PJRT_Client_Compile_Args *args)
{
    xl_compiled *e = NULL;
    xl_str program = { args->program->code, args->program->code_size },
           opts = { args->compile_options, args->compile_options_size };
    xl_error *err = exec_new(program, opts, (size_t)args->client->device[0].limit, true, &e);
    if (!err)
        err = load(args->client, e, &args->executable);
    if (err && e)
        exec_unref(e);
    return xl_api_error(err);
}

static PJRT_Error *executable_handle(xl_compiled *e, PJRT_Executable **out)
{
    *out = malloc(sizeof **out);
    if (!*out)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for an executable");
    (*out)->e = e;
    return NULL;
}

PJRT_Error *xl_PJRT_Compile(PJRT_Compile_Args *args)
{
    xl_compiled *e = NULL;
    xl_str program = { args->program->code, args->program->code_size },
           opts = { args->compile_options, args->compile_options_size };
    xl_error *err = exec_new(program, opts, (size_t)xl_env_get(XL_ENV_HBM, 0), true, &e);
    if (!err && (size_t)e->nreplica * e->npartition > args->topology->n)
        err = XL_ERR(INVALID, "%u replicas of %u partitions do not fit a topology of %zu devices", e->nreplica,
                     e->npartition, args->topology->n);
    if (err) {
        exec_unref(e);
        return xl_api_error(err);
    }
    return executable_handle(e, &args->executable);
}

PJRT_Error *xl_PJRT_Client_Load(PJRT_Client_Load_Args *args)
{
    xl_compiled *e = args->executable->e;
    atomic_fetch_add(&e->ref, 1);
    xl_error *err = load(args->client, e, &args->loaded_executable);
    if (err)
        exec_unref(e);
    return xl_api_error(err);
}

/* ---- serialised form: magic, version, sizes, options, program, checksum ----------------------------------------- */
static const char magic[16] = "XLANE-CPU-PLAN\n";
enum { FORMAT = 1 };
struct PJRT_SerializedExecutable { xl_buf b; };
static void serialized_free(PJRT_SerializedExecutable *s)
{
    if (s)
        xl_buf_fini(&s->b);
    free(s);
}
static void put64(xl_buf *b, uint64_t v)
{
    char c[8];
    for (int i = 0; i < 8; i++)
        c[i] = (char)(v >> 8 * i);
    xl_buf_add(b, c, 8);
}
static uint64_t get64(const char *p)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)(unsigned char)p[i] << 8 * i;
    return v;
}

PJRT_Error *xl_PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args *args)
{
    const xl_compiled *e = args->executable->e;
    if (e->plan->host)
        return xl_api_fail(
            XL_CODE_UNIMPLEMENTED,
            "%s calls Python functions of this process (jax.debug.print, pure_callback, io_callback), which cannot be "
            "stored with it; a program without such calls can be stored",
            e->name);
    if (e->rewritten.n)
        return xl_api_fail(XL_CODE_UNIMPLEMENTED,
                           "%s was rewritten by an XLA transformation of this process, so it cannot be serialised",
                           e->name);
    PJRT_SerializedExecutable *s = calloc(1, sizeof *s);
    if (!s)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory to serialise an executable");
    xl_buf_add(&s->b, magic, sizeof magic);
    put64(&s->b, FORMAT);
    put64(&s->b, sizeof XL_VERSION - 1);
    xl_buf_add(&s->b, XL_VERSION, sizeof XL_VERSION - 1);
    put64(&s->b, e->options.n);
    put64(&s->b, e->program.n);
    xl_buf_add(&s->b, e->options.p, e->options.n);
    xl_buf_add(&s->b, e->program.p, e->program.n);
    xl_digest d = xl_hash_of(xl_buf_view(&s->b));
    xl_buf_add(&s->b, d.b, sizeof d.b);
    if (s->b.failed) {
        serialized_free(s);
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory to serialise an executable");
    }
    args->serialized_bytes = s->b.p;
    args->serialized_bytes_size = s->b.n;
    args->serialized_executable = s;
    args->serialized_executable_deleter = serialized_free;
    return NULL;
}

static xl_error *deserialize(xl_str s, xl_str *opts, xl_str *program)
{
    size_t head = sizeof magic + 16;
    if (s.n < head + sizeof(xl_digest) || memcmp(s.p, magic, sizeof magic))
        return XL_ERR(INVALID, "not an executable of the xlane CPU device");
    if (get64(s.p + sizeof magic) != FORMAT)
        return XL_ERR(INVALID, "an executable of format %llu: this plugin reads %d, compile it again",
                      (unsigned long long)get64(s.p + sizeof magic), FORMAT);
    xl_digest want, have;
    memcpy(want.b, s.p + s.n - sizeof want.b, sizeof want.b);
    have = xl_hash_of((xl_str){ s.p, s.n - sizeof want.b });
    if (!xl_digest_eq(&want, &have))
        return XL_ERR(DATA_LOSS, "the executable is damaged: its checksum does not match");
    size_t left = s.n - sizeof want.b - head;
    uint64_t nv = get64(s.p + sizeof magic + 8);
    const char *p = s.p + head;
    if (nv > left || left - nv < 16)
        return XL_ERR(DATA_LOSS, "the executable is cut short");
    if (nv != sizeof XL_VERSION - 1 || memcmp(p, XL_VERSION, nv))
        return XL_ERR(INVALID, "the executable was made by version %.*s, this is %s: compile it again",
                      (int)(nv > 32 ? 32 : nv), p, XL_VERSION);
    p += nv;
    left -= nv + 16;
    uint64_t no = get64(p), np = get64(p + 8);
    p += 16;
    if (no > left || np != left - no)
        return XL_ERR(DATA_LOSS, "the executable is cut short");
    *opts = (xl_str){ p, no };
    *program = (xl_str){ p + no, np };
    return NULL;
}

PJRT_Error *xl_PJRT_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args)
{
    xl_str opts, program;
    xl_compiled *e = NULL;
    xl_error *err =
        deserialize((xl_str){ args->serialized_executable, args->serialized_executable_size }, &opts, &program);
    if (err)
        return xl_api_error(err);
    if (PJRT_HAS(args, overridden_serialized_compile_options_size) && args->overridden_serialized_compile_options &&
        args->overridden_serialized_compile_options_size)
        opts =
            (xl_str){ args->overridden_serialized_compile_options, args->overridden_serialized_compile_options_size };
    err = exec_new(program, opts, (size_t)args->client->device[0].limit, false, &e);
    if (!err)
        err = load(args->client, e, &args->loaded_executable);
    if (err && e)
        exec_unref(e);
    return xl_api_error(err);
}

/* ---- questions -------------------------------------------------------------------------------------------------- */
PJRT_Error *xl_PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args *args)
{
    if (args->executable)
        exec_unref(args->executable->e);
    free(args->executable);
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_Name(PJRT_Executable_Name_Args *args)
{
    args->executable_name = args->executable->e->name;
    args->executable_name_size = strlen(args->executable_name);
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args)
{
    args->num_replicas = args->executable->e->nreplica;
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args)
{
    args->num_partitions = args->executable->e->npartition;
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args)
{
    args->num_outputs = args->executable->e->plan->nout;
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *args)
{
    args->size_in_bytes = (int64_t)(args->executable->e->plan->nstep * sizeof(xl_step));
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args)
{
    args->properties = args->executable->e->cost;
    args->num_properties = args->executable->e->gathered.n ? 6 : 5;
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args *args)
{
    args->num_outputs = args->executable->e->plan->nout;
    args->memory_kinds = args->executable->e->kinds[0];
    args->memory_kind_sizes = args->executable->e->kind_sizes[0];
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args *args)
{
    args->num_parameters = args->executable->e->plan->narg;
    args->memory_kinds = args->executable->e->kinds[1];
    args->memory_kind_sizes = args->executable->e->kind_sizes[1];
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args)
{
    args->output_types = args->executable->e->out_types;
    args->num_output_types = args->executable->e->plan->nout;
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args *args)
{
    args->num_outputs = args->executable->e->plan->nout;
    args->dims = args->executable->e->out_dims;
    args->dim_sizes = args->executable->e->out_ranks;
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args)
{
    args->executable_fingerprint = args->executable->e->fingerprint;
    args->executable_fingerprint_size = strlen(args->executable_fingerprint);
    return NULL;
}
PJRT_Error *xl_PJRT_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args *args)
{
    args->executable_fingerprint = args->executable->e->fingerprint;
    args->executable_fingerprint_size = strlen(args->executable_fingerprint);
    return NULL;
}
PJRT_Error *xl_PJRT_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args)
{
    const xl_plan *p = args->executable->e->plan;
    size_t arg, out, alias, need = memory_needed(p, &arg, &out, &alias);
#define FIELD(field, v) do { if (PJRT_HAS(args, field)) args->field = (int64_t)(v); } while (0)
    FIELD(generated_code_size_in_bytes, p->const_bytes);
    FIELD(argument_size_in_bytes, arg);
    FIELD(output_size_in_bytes, out);
    FIELD(alias_size_in_bytes, alias);
    FIELD(temp_size_in_bytes, p->temp_bytes);
    FIELD(host_generated_code_size_in_bytes, 0);
    FIELD(host_argument_size_in_bytes, 0);
    FIELD(host_output_size_in_bytes, 0);
    FIELD(host_alias_size_in_bytes, 0);
    FIELD(host_temp_size_in_bytes, 0);
    FIELD(peak_memory_in_bytes, need);
    FIELD(total_size_in_bytes, need);
    FIELD(total_allocation_bytes, need);
    FIELD(indefinite_allocations, 0);
    FIELD(peak_unpadded_heap_bytes, need);
    return NULL;
}
struct PJRT_SerializedCompileOptions { char *p; };
static void options_free(PJRT_SerializedCompileOptions *o)
{
    if (o)
        free(o->p);
    free(o);
}
PJRT_Error *xl_PJRT_Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args *args)
{
    const xl_compiled *e = args->executable->e;
    PJRT_SerializedCompileOptions *o = calloc(1, sizeof *o);
    if (o)
        o->p = malloc(e->options.n + 1);
    if (!o || !o->p) {
        free(o);
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory");
    }
    if (e->options.n)
        memcpy(o->p, e->options.p, e->options.n);
    args->serialized_bytes = o->p;
    args->serialized_bytes_size = e->options.n;
    args->serialized_compile_options = o;
    args->serialized_compile_options_deleter = options_free;
    return NULL;
}

PJRT_Error *xl_PJRT_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args)
{
    PJRT_LoadedExecutable *l = args->executable;
    if (!l)
        return NULL;
    exec_unref(l->e);
    loaded_free(l);
    return NULL;
}
PJRT_Error *xl_PJRT_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args)
{
    xl_compiled *e = args->loaded_executable->e;
    atomic_fetch_add(&e->ref, 1);
    PJRT_Error *bad = executable_handle(e, &args->executable);
    if (bad)
        exec_unref(e);
    return bad;
}
PJRT_Error *xl_PJRT_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args *args)
{
    const PJRT_LoadedExecutable *l = xl_loaded(args->executable);
    args->addressable_devices = l->devices;
    args->num_addressable_devices = l->n;
    return NULL;
}
PJRT_Error *
xl_PJRT_LoadedExecutable_AddressableDeviceLogicalIds(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args *args)
{
    const PJRT_LoadedExecutable *l = xl_loaded(args->executable);
    args->addressable_device_logical_ids = l->ids;
    args->num_addressable_device_logical_ids = l->n;
    return NULL;
}
PJRT_Error *xl_PJRT_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args *args)
{
    atomic_store(&xl_loaded(args->executable)->deleted, true);
    return NULL;
}
PJRT_Error *xl_PJRT_LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args *args)
{
    args->is_deleted = atomic_load(&xl_loaded(args->executable)->deleted);
    return NULL;
}
struct PJRT_DeviceAssignmentSerialized { xl_buf b; };
static void assignment_free(PJRT_DeviceAssignmentSerialized *s)
{
    if (s)
        xl_buf_fini(&s->b);
    free(s);
}
PJRT_Error *xl_PJRT_LoadedExecutable_GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args *args)
{
    const PJRT_LoadedExecutable *l = xl_loaded(args->executable);
    PJRT_DeviceAssignmentSerialized *s = calloc(1, sizeof *s);
    if (!s)
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for a device assignment");
    xl_options_assignment(&s->b, l->e->assignment, (int)l->e->nreplica, (int)l->e->npartition);
    if (s->b.failed) {
        assignment_free(s);
        return xl_api_fail(XL_CODE_EXHAUSTED, "no memory for a device assignment");
    }
    args->serialized_bytes = s->b.p;
    args->serialized_bytes_size = s->b.n;
    args->serialized_device_assignment = s;
    args->serialized_device_assignment_deleter = assignment_free;
    return NULL;
}

/* ---- extension: shardings --------------------------------------------------------------------------------------- */
static PJRT_Error *parameter_shardings(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args *args)
{
    args->num_parameters = args->executable->e->plan->narg;
    args->shardings = (const char *const *)args->executable->e->shardings[1];
    args->sharding_sizes = args->executable->e->sharding_sizes[1];
    return NULL;
}
static PJRT_Error *output_shardings(PJRT_Shardings_PJRT_Executable_OutputShardings_Args *args)
{
    args->num_outputs =
        args->executable->e->plan->nout; /* of no outputs nothing is said: XLA wants one for its empty tuple */
    args->shardings = args->num_outputs ? (const char *const *)args->executable->e->shardings[0] : NULL;
    args->sharding_sizes = args->executable->e->sharding_sizes[0];
    return NULL;
}
PJRT_Shardings_Extension xl_shardings_extension = {
    .base = { PJRT_SIZE(PJRT_Shardings_Extension, PJRT_Shardings_PJRT_Executable_OutputShardings),
              PJRT_Extension_Type_Shardings, NULL },
    .PJRT_Shardings_PJRT_Executable_ParameterShardings = parameter_shardings,
    .PJRT_Shardings_PJRT_Executable_OutputShardings = output_shardings,
};
