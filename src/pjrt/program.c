#include "pjrt/program.h"

#include <stdlib.h>

#include "pjrt/call.h"
#include "pjrt/own.h"

struct xl_executable { const xl_plugin *plugin; PJRT_Executable *handle; };
struct xl_program { xl_client *client; PJRT_LoadedExecutable *handle; xl_executable *executable; };
struct xl_topology { xl_plugin *plugin; PJRT_TopologyDescription *handle; bool owned; };

/* ---- Compiling and loading ---- */

static PJRT_Program program_of(xl_str code, xl_format format)
{
    const char *word = format == XL_FORMAT_HLO ? "hlo" : "mlir";
    return (PJRT_Program){ .struct_size = sizeof(PJRT_Program),
                           .code = (char *)code.p,
                           .code_size = code.n,
                           .format = word,
                           .format_size = strlen(word) };
}

static xl_error *own_executable(const xl_plugin *p, PJRT_Executable *handle, xl_executable **out)
{
    xl_error *err = NULL;
    xl_executable *e = *out = xl_plugin_gave(p, handle, "executable", sizeof *e, &err);
    if (e)
        *e = (xl_executable){ p, handle };
    else if (handle)
        PJRT_DESTROY(p, Executable, executable, handle);
    return err;
}

void xl_executable_free(xl_executable *e)
{
    if (e)
        PJRT_DESTROY(e->plugin, Executable, executable, e->handle);
    free(e);
}

static xl_error *own_program(xl_client *c, PJRT_LoadedExecutable *handle, xl_program **out)
{
    xl_error *err = NULL;
    xl_program *p = xl_plugin_gave(c->plugin, handle, "program", sizeof *p, &err);
    *out = NULL;
    if (!p && handle)
        PJRT_DESTROY(c->plugin, LoadedExecutable, executable, handle);
    if (!p)
        goto out;
    p->client = c;
    p->handle = handle;
    PJRT_LoadedExecutable_GetExecutable_Args get = { .struct_size = sizeof get, .loaded_executable = handle };
    XL_DO(PJRT_CALL(c->plugin, PJRT_LoadedExecutable_GetExecutable, &get));
    XL_DO(own_executable(c->plugin, get.executable, &p->executable));
    *out = p;
    p = NULL;
out:
    xl_program_free(p);
    return err;
}

void xl_program_free(xl_program *p)
{
    if (!p)
        return;
    xl_executable_free(p->executable); /* first this one: frontends do it in this order */
    PJRT_DESTROY(p->client->plugin, LoadedExecutable, executable, p->handle);
    free(p);
}

xl_error *xl_program_compile(xl_client *c, xl_str code, xl_format format, xl_str options, xl_program **out)
{
    xl_error *err = NULL;
    PJRT_Program program = program_of(code, format);
    PJRT_Client_Compile_Args args = { .struct_size = sizeof args, .client = c->handle, .program = &program,
                                      .compile_options = options.p, .compile_options_size = options.n };
    *out = NULL;
    XL_DO(PJRT_CALL(c->plugin, PJRT_Client_Compile, &args));
    err = own_program(c, args.executable, out);
out:
    return err;
}

xl_error *xl_program_deserialize(xl_client *c, xl_str bytes, xl_str options, xl_program **out)
{
    xl_error *err = NULL;
    PJRT_LoadOptions load = { .struct_size = sizeof load };
    PJRT_Executable_DeserializeAndLoad_Args args = { .struct_size = sizeof args,
                                                     .client = c->handle,
                                                     .serialized_executable = bytes.p,
                                                     .serialized_executable_size = bytes.n,
                                                     .load_options = &load };
    *out = NULL;
    if (options.n) {
        if (xl_plugin_minor(c->plugin) < 71) { /* it would not see the field, and run with the old options in silence */
            err = XL_ERR(UNIMPLEMENTED, "%s speaks PJRT 0.%d: options can be overridden on loading since 0.71 only",
                         c->plugin->file, xl_plugin_minor(c->plugin));
            goto out;
        }
        args.overridden_serialized_compile_options = options.p;
        args.overridden_serialized_compile_options_size = options.n;
    }
    XL_DO(PJRT_CALL(c->plugin, PJRT_Executable_DeserializeAndLoad, &args));
    err = own_program(c, args.loaded_executable, out);
out:
    return err;
}

const xl_executable *xl_program_executable(const xl_program *p) { return p->executable; }

xl_error *xl_program_devices(const xl_program *p, xl_arena *a, const xl_device *const **out, size_t *n)
{
    xl_error *err = NULL;
    PJRT_LoadedExecutable_AddressableDevices_Args args = { .struct_size = sizeof args, .executable = p->handle };
    *out = NULL;
    *n = 0;
    XL_DO(PJRT_CALL(p->client->plugin, PJRT_LoadedExecutable_AddressableDevices, &args));
    const xl_device **list = xl_new(a, const xl_device *, args.num_addressable_devices);
    for (size_t i = 0; i < args.num_addressable_devices; i++) {
        list[i] = xl_device_of(p->client, args.addressable_devices[i]);
        if (!list[i]) {
            err = XL_ERR(INTERNAL, "%s runs a program on a device it does not list", p->client->plugin->file);
            goto out;
        }
    }
    *out = list;
    *n = args.num_addressable_devices;
out:
    return err;
}

/* ---- Running ---- */

xl_error *xl_program_execute(const xl_program *p, const xl_exec *x)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    const xl_client *c = p->client;
    size_t nout = 0;
    PJRT_Event **event = NULL;
    XL_DO(xl_executable_noutputs(p->executable, &nout));
    PJRT_Buffer ***arg = xl_new(&tmp, PJRT_Buffer **, x->ndevice), ***res = xl_new(&tmp, PJRT_Buffer **, x->ndevice);
    for (size_t d = 0; d < x->ndevice; d++) {
        arg[d] = xl_new(&tmp, PJRT_Buffer *, x->narg);
        res[d] = xl_new(&tmp, PJRT_Buffer *, nout);
        for (size_t i = 0; i < x->narg; i++)
            arg[d][i] = x->arg[d][i]->handle;
        for (size_t i = 0; i < nout; i++)
            x->out[d][i] = NULL;
        if (x->done)
            x->done[d] = NULL;
    }
    if (x->done)
        event = xl_new(&tmp, PJRT_Event *, x->ndevice);
    PJRT_ExecuteOptions options = { .struct_size = sizeof options, .launch_id = x->launch_id,
                                    .non_donatable_input_indices = x->keep, .num_non_donatable_input_indices = x->nkeep,
                                    .call_location = x->where };
    PJRT_LoadedExecutable_Execute_Args args = {
        .struct_size = sizeof args, .executable = p->handle, .options = &options,
        .argument_lists = (PJRT_Buffer *const *const *)arg, .num_devices = x->ndevice, .num_args = x->narg,
        .output_lists = (PJRT_Buffer **const *)res, .device_complete_events = event,
        .execute_device = x->only ? x->only->handle : NULL,
    };
    XL_DO(PJRT_CALL(c->plugin, PJRT_LoadedExecutable_Execute, &args));
    /* Wrap everything even after a failure, so that nothing of the plugin's is lost. */
    for (size_t d = 0; d < x->ndevice; d++) {
        for (size_t i = 0; i < nout; i++) {
            xl_error *one = xl_buffer_own(c, res[d][i], &x->out[d][i]);
            if (!err)
                err = xl_error_wrap(one, "output %zu of device row %zu", i, d);
            else
                xl_error_free(one);
        }
        if (x->done) {
            XL_KNOWN(event);                               /* made above where x->done */
            xl_error *one = xl_fence_own(c->plugin, event[d], &x->done[d]);
            if (!err)
                err = one;
            else
                xl_error_free(one);
        }
    }
    if (err)
        for (size_t d = 0; d < x->ndevice; d++) {
            for (size_t i = 0; i < nout; i++) {
                xl_buffer_free(x->out[d][i]);
                x->out[d][i] = NULL;
            }
            if (x->done) {
                xl_fence_free(x->done[d]);
                x->done[d] = NULL;
            }
        }
out:
    xl_arena_fini(&tmp);
    return err;
}

/* ---- What an executable says about itself ---- */

xl_error *xl_executable_name(const xl_executable *e, xl_arena *a, xl_str *out)
{
    PJRT_Executable_Name_Args args = { .struct_size = sizeof args, .executable = e->handle };
    xl_error *err = PJRT_CALL(e->plugin, PJRT_Executable_Name, &args);
    *out = err ? (xl_str){ "", 0 } : xl_pjrt_str(a, args.executable_name, args.executable_name_size);
    return err;
}

xl_error *xl_executable_shape(const xl_executable *e, size_t *replicas, size_t *partitions)
{
    xl_error *err = NULL;
    *replicas = *partitions = 0;
    PJRT_Executable_NumReplicas_Args r = { .struct_size = sizeof r, .executable = e->handle };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_NumReplicas, &r));
    PJRT_Executable_NumPartitions_Args p = { .struct_size = sizeof p, .executable = e->handle };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_NumPartitions, &p));
    *replicas = r.num_replicas;
    *partitions = p.num_partitions;
out:
    return err;
}

xl_error *xl_executable_noutputs(const xl_executable *e, size_t *out)
{
    PJRT_Executable_NumOutputs_Args args = { .struct_size = sizeof args, .executable = e->handle };
    xl_error *err = PJRT_CALL(e->plugin, PJRT_Executable_NumOutputs, &args);
    *out = err ? 0 : args.num_outputs;
    return err;
}

xl_error *xl_executable_outputs(const xl_executable *e, xl_arena *a, const xl_output **out, size_t *n)
{
    xl_error *err = NULL;
    *out = NULL;
    *n = 0;
    PJRT_Executable_OutputElementTypes_Args types = { .struct_size = sizeof types, .executable = e->handle };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_OutputElementTypes, &types));
    PJRT_Executable_OutputDimensions_Args dims = { .struct_size = sizeof dims, .executable = e->handle };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_OutputDimensions, &dims));
    if (dims.num_outputs != types.num_output_types) {
        err = XL_ERR(INTERNAL, "%s says %zu outputs have types and %zu have dimensions", e->plugin->file,
                     types.num_output_types, dims.num_outputs);
        goto out;
    }
    xl_output *list = xl_new(a, xl_output, dims.num_outputs);
    const int64_t *at = dims.dims;
    for (size_t i = 0; i < dims.num_outputs; i++) {
        int64_t *copy = xl_new(a, int64_t, dims.dim_sizes[i]);
        if (dims.dim_sizes[i])
            memcpy(copy, at, dims.dim_sizes[i] * sizeof *copy);
        at += dims.dim_sizes[i];
        list[i] = (xl_output){ (xl_elem)types.output_types[i], { copy, dims.dim_sizes[i] }, { "", 0 } };
    }
    PJRT_Executable_OutputMemoryKinds_Args kinds = { .struct_size = sizeof kinds, .executable = e->handle };
    xl_error *silent = PJRT_CALL(e->plugin, PJRT_Executable_OutputMemoryKinds, &kinds);
    for (size_t i = 0; !silent && i < kinds.num_outputs && i < dims.num_outputs; i++)
        list[i].memory = xl_pjrt_str(a, kinds.memory_kinds[i], kinds.memory_kind_sizes[i]);
    xl_error_free(silent);
    *out = list;
    *n = dims.num_outputs;
out:
    return err;
}

xl_error *xl_executable_cost(const xl_executable *e, xl_arena *a, const xl_named **out, size_t *n)
{
    xl_error *err = NULL;
    *out = NULL;
    *n = 0;
    PJRT_Executable_GetCostAnalysis_Args args = { .struct_size = sizeof args, .executable = e->handle };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_GetCostAnalysis, &args));
    *n = args.num_properties;
    *out = xl_named_from_pjrt(a, args.properties, *n);
out:
    return err;
}

xl_error *xl_executable_memory(const xl_executable *e, xl_program_memory *out)
{
    xl_error *err = NULL;
    /* -1 stays where an older plugin's struct ends before the field */
    PJRT_Executable_GetCompiledMemoryStats_Args s = {
        .struct_size = sizeof s,
        .executable = e->handle,
        .generated_code_size_in_bytes = -1,
        .argument_size_in_bytes = -1,
        .output_size_in_bytes = -1,
        .alias_size_in_bytes = -1,
        .temp_size_in_bytes = -1,
        .host_generated_code_size_in_bytes = -1,
        .host_argument_size_in_bytes = -1,
        .host_output_size_in_bytes = -1,
        .host_alias_size_in_bytes = -1,
        .host_temp_size_in_bytes = -1,
        .peak_memory_in_bytes = -1,
        .total_size_in_bytes = -1,
        .total_allocation_bytes = -1,
        .indefinite_allocations = -1,
        .peak_unpadded_heap_bytes = -1,
    };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_GetCompiledMemoryStats, &s));
    *out = (xl_program_memory){ .code = s.generated_code_size_in_bytes,
                                .arguments = s.argument_size_in_bytes,
                                .outputs = s.output_size_in_bytes,
                                .aliased = s.alias_size_in_bytes,
                                .temporary = s.temp_size_in_bytes,
                                .host_code = s.host_generated_code_size_in_bytes,
                                .host_arguments = s.host_argument_size_in_bytes,
                                .host_outputs = s.host_output_size_in_bytes,
                                .host_aliased = s.host_alias_size_in_bytes,
                                .host_temporary = s.host_temp_size_in_bytes,
                                .peak = s.peak_memory_in_bytes,
                                .total = s.total_size_in_bytes };
    out->needs = out->code + out->arguments + out->outputs - out->aliased + out->temporary;
out:
    return err;
}

xl_error *xl_executable_fingerprint(const xl_executable *e, xl_arena *a, xl_str *out)
{
    PJRT_Executable_Fingerprint_Args args = { .struct_size = sizeof args, .executable = e->handle };
    xl_error *err = PJRT_CALL(e->plugin, PJRT_Executable_Fingerprint, &args);
    *out = err ? (xl_str){ "", 0 } : xl_pjrt_str(a, args.executable_fingerprint, args.executable_fingerprint_size);
    return err;
}

xl_error *xl_executable_optimized(const xl_executable *e, xl_arena *a, xl_str *code, xl_str *format)
{
    xl_error *err = NULL;
    PJRT_Program program = { .struct_size = sizeof program };
    PJRT_Executable_OptimizedProgram_Args args = { .struct_size = sizeof args,
                                                   .executable = e->handle,
                                                   .program = &program };
    char *bytes = NULL;
    *code = *format = (xl_str){ "", 0 };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_OptimizedProgram, &args)); /* the first call only gives the size */
    bytes = malloc(program.code_size ? program.code_size : 1);
    if (!bytes) {
        err = XL_ERR(EXHAUSTED, "no memory for an optimised program of %zu bytes", program.code_size);
        goto out;
    }
    size_t room = program.code_size;
    program.code = bytes;
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_OptimizedProgram, &args));
    if (program.code_size > room)
        program.code_size = room;
    *code = xl_str_dup(a, (xl_str){ bytes, program.code_size });
    *format = xl_pjrt_str(a, program.format, program.format_size);
out:
    free(bytes);
    return err;
}

xl_error *xl_executable_serialize(const xl_executable *e, xl_buf *out)
{
    xl_error *err = NULL;
    PJRT_Executable_Serialize_Args args = { .struct_size = sizeof args, .executable = e->handle };
    XL_DO(PJRT_CALL(e->plugin, PJRT_Executable_Serialize, &args));
    xl_buf_add(out, args.serialized_bytes, args.serialized_bytes_size);
    if (out->failed)
        err = XL_ERR(EXHAUSTED, "no memory for a serialised program of %zu bytes", args.serialized_bytes_size);
    if (args.serialized_executable_deleter)
        args.serialized_executable_deleter(args.serialized_executable);
out:
    return err;
}

/* ---- Topologies ---- */

static xl_error *own_topology(xl_plugin *p, PJRT_TopologyDescription *handle, bool owned, xl_topology **out)
{
    xl_error *err = NULL;
    xl_topology *t = *out = xl_plugin_gave(p, handle, "topology", sizeof *t, &err);
    if (t)
        *t = (xl_topology){ p, handle, owned };
    else if (handle && owned)
        PJRT_DESTROY(p, TopologyDescription, topology, handle);
    return err;
}

xl_error *xl_topology_create(xl_plugin *p, xl_str name, const xl_named *option, size_t noption, xl_topology **out)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    *out = NULL;
    if (!name.n) { /* libtpu takes an empty name for a TPU v2, in silence */
        err = XL_ERR(INVALID, "a topology needs a name, such as v6e:2x2");
        goto out;
    }
    XL_DO(xl_plugin_init(p)); /* libtpu aborts the process when asked before */
    PJRT_TopologyDescription_Create_Args args = { .struct_size = sizeof args, .topology_name = xl_str_c(&tmp, name),
                                                  .topology_name_size = name.n,
                                                  .create_options = xl_named_to_pjrt(&tmp, option, noption),
                                                  .num_options = noption };
    XL_DO(PJRT_CALL(p, PJRT_TopologyDescription_Create, &args));
    err = own_topology(p, args.topology, true, out);
out:
    xl_arena_fini(&tmp);
    return err;
}

xl_error *xl_topology_of(xl_client *c, xl_topology **out)
{
    PJRT_Client_TopologyDescription_Args args = { .struct_size = sizeof args, .client = c->handle };
    *out = NULL;
    xl_error *err = PJRT_CALL(c->plugin, PJRT_Client_TopologyDescription, &args);
    return err ? err : own_topology(c->plugin, args.topology, false, out);
}

xl_error *xl_topology_devices(const xl_topology *t, xl_arena *a, const xl_device **out, size_t *n)
{
    xl_error *err = NULL;
    *out = NULL;
    *n = 0;
    PJRT_TopologyDescription_GetDeviceDescriptions_Args args = { .struct_size = sizeof args, .topology = t->handle };
    XL_DO(PJRT_CALL(t->plugin, PJRT_TopologyDescription_GetDeviceDescriptions, &args));
    xl_device *list = xl_new(a, xl_device, args.num_descriptions);
    for (size_t i = 0; i < args.num_descriptions; i++) {
        XL_TRY(xl_describe_device(t->plugin, a, args.descriptions[i], &list[i]),
               "asking about device %zu of the topology", i);
        list[i].hardware = -1;
    }
    *out = list;
    *n = args.num_descriptions;
out:
    return err;
}

void xl_topology_free(xl_topology *t)
{
    if (t && t->owned)
        PJRT_DESTROY(t->plugin, TopologyDescription, topology, t->handle);
    free(t);
}

xl_error *xl_executable_compile(const xl_topology *t, xl_str code, xl_format format, xl_str options,
                                xl_executable **out)
{
    xl_error *err = NULL;
    PJRT_Program program = program_of(code, format);
    PJRT_Compile_Args args = { .struct_size = sizeof args, .topology = t->handle, .program = &program,
                               .compile_options = options.p, .compile_options_size = options.n };
    *out = NULL;
    XL_DO(PJRT_CALL(t->plugin, PJRT_Compile, &args));
    err = own_executable(t->plugin, args.executable, out);
out:
    return err;
}
