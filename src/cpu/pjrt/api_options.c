/* The compile options that this device uses. */
#include <stdlib.h>

#include "cpu/pjrt/api.h"
#include "pjrt/options.h"

#define BUILD "executable_build_options."

/* An option that a frontend names: those of XLA and libtpu mean nothing to this device, any other name is a mistake. */
static xl_error *check_override(const xl_option *entry)
{
    static const char *const prefix[] = { "xla_", "megascale_", "tpu_" };
    static const char *const truths[] = { "xla_embed_ir_in_executable", "xla_cpu_enable_fast_math",
                                          "xla_cpu_enable_fast_min_max", "xla_dump_hlo_as_text" };
    static const char *const words[] = { "true", "false", "True", "False" };
    const xl_option *name = xl_options_find(entry, "key"), *text = xl_options_find(entry, "value.string_field");
    xl_str key = name ? name->bytes : (xl_str){ 0 };
    bool known = false, truth = false, fits = !text;
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        known = known || xl_str_starts(key, xl_str_of(prefix[i]));
    if (!known)
        return XL_ERR(INVALID, "No such compile option: '%.*s': this device takes XLA's, whose names begin with xla_",
                      XL_FMT(key));
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        truth = truth || xl_str_is(key, truths[i]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        fits = fits || xl_str_is(text->bytes, words[i]);
    if (truth && !fits)
        return XL_ERR(INVALID, "While setting option %.*s, '%.*s' is not a valid bool value. Give true or false",
                      XL_FMT(key), XL_FMT(text->bytes));
    return NULL;
}

/* One row per partition, each with its replicas' devices; the result is replica-major. */
static xl_error *read_assignment(const xl_option *rows, xl_compiled *e)
{
    size_t n = (size_t)e->nreplica * e->npartition;
    bool whole = rows->n >= e->npartition;
    e->assignment = calloc(n, sizeof *e->assignment);
    if (!e->assignment)
        return XL_ERR(EXHAUSTED, "no memory for a device assignment");
    for (uint32_t p = 0; p < e->npartition && whole; p++) {
        const xl_option *ids = xl_options_find(&rows->child[p], "replica_device_ids");
        whole = ids && ids->n >= e->nreplica;
        for (uint32_t r = 0; r < e->nreplica && whole; r++) {
            e->assignment[r * e->npartition + p] = (int64_t)ids->list[r];
            whole = (int64_t)ids->list[r] >= 0;
        }
    }
    return whole ? NULL
                 : XL_ERR(INVALID, "the device assignment does not have %u replicas of %u partitions", e->nreplica,
                          e->npartition);
}

typedef struct { xl_compiled *e; xl_str bytes; } job;

static xl_error *read_options(xl_arena *a, void *ctx)
{
    job *j = ctx;
    xl_compiled *e = j->e;
    xl_error *err = NULL;
    xl_option *root;
    XL_DO(xl_options_parse(a, j->bytes, &root));
    int64_t replicas = xl_options_int(root, BUILD "num_replicas", 1);
    int64_t partitions = xl_options_int(root, BUILD "num_partitions", 1);
    if (replicas > 65536 || partitions > 65536) {
        err = XL_ERR(INVALID, "compile options: %lld replicas of %lld partitions", (long long)replicas,
                     (long long)partitions);
        goto out;
    }
    e->nreplica = replicas < 1 ? 1 : (uint32_t)replicas;
    e->npartition = partitions < 1 ? 1 : (uint32_t)partitions;
    e->portable = xl_options_int(root, "compile_portable_executable", 0) != 0;
    const xl_option *overrides = xl_options_find(root, "env_option_overrides");
    for (size_t i = 0; overrides && i < overrides->n; i++)
        XL_TRY(check_override(&overrides->child[i]), "compile options");
    const xl_option *devices = xl_options_find(root, BUILD "device_assignment");
    if (devices && devices->n) {
        const xl_option *rows = xl_options_find(devices, "computation_devices");
        XL_TRY(read_assignment(rows ? rows : &(xl_option){ .kind = XL_OPTION_LIST }, e), "compile options");
    }
    const xl_option *loose = xl_options_find(root, BUILD "allow_spmd_sharding_propagation_to_parameters");
    if (loose && loose->n) {
        e->loose = calloc(loose->n, sizeof *e->loose);
        if (!e->loose) {
            err = XL_ERR(EXHAUSTED, "no memory for an executable");
            goto out;
        }
        for (size_t i = 0; i < loose->n; i++)
            e->loose[i] = loose->list[i] != 0;
        e->nloose = (uint32_t)loose->n;
    }
out:
    return err;
}

xl_error *xl_compiled_options(xl_compiled *e, xl_str bytes)
{
    return xl_arena_call(read_options, &(job){ e, bytes });
}
