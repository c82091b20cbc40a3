/* The embedded device, got worse in one way, which XLANE_WORSE names: memory (a program needs twice as much), topology
 * (it refuses those of two devices), compile (it refuses programs with a sine), outputs (each f32 has the
 * other sign), ends (the process ends when a program runs). */
#include <unistd.h>

#include "wrap.h"

static const char *mode(void)
{
    const char *m = getenv("XLANE_WORSE");
    return m ? m : "";
}

static PJRT_Error *memory(PJRT_Executable_GetCompiledMemoryStats_Args *a)
{
    PJRT_Error *err = real.PJRT_Executable_GetCompiledMemoryStats(a);
    a->temp_size_in_bytes += a->argument_size_in_bytes + a->output_size_in_bytes + a->temp_size_in_bytes;
    return err;
}

static PJRT_Error *topology(PJRT_TopologyDescription_Create_Args *a)
{
    if (a->topology_name_size == 7 && !memcmp(a->topology_name, "xlane:2", 7)) {
        a->topology_name = "two devices are too few";
        a->topology_name_size = strlen(a->topology_name);
    }
    return real.PJRT_TopologyDescription_Create(a);
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *a)
{
    PJRT_Program bad = *a->program;
    PJRT_Client_Compile_Args b = *a;
    if (!memmem(a->program->code, a->program->code_size, "sine", 4))
        return real.PJRT_Client_Compile(a);
    bad.code = "this is no program";
    bad.code_size = strlen(bad.code);
    b.program = &bad;
    return real.PJRT_Client_Compile(&b);
}

static PJRT_Error *outputs(PJRT_Buffer_ToHostBuffer_Args *a)
{
    PJRT_Error *err = real.PJRT_Buffer_ToHostBuffer(a);
    if (!err && a->dst && a->dst_size) {
        if (a->event)
            real.PJRT_Event_Await(
                &(PJRT_Event_Await_Args){ .struct_size = sizeof(PJRT_Event_Await_Args), .event = a->event });
        for (size_t i = 3; i < a->dst_size; i += 4)
            ((unsigned char *)a->dst)[i] ^= 0x80;
    }
    return err;
}

static PJRT_Error *ends(PJRT_LoadedExecutable_Execute_Args *a)
{
    (void)a;
    fprintf(stderr, "Check failed: it ran\n");
    _exit(134);
}

static void change(PJRT_Api *api)
{
    if (!strcmp(mode(), "memory"))
        api->PJRT_Executable_GetCompiledMemoryStats = memory;
    if (!strcmp(mode(), "topology"))
        api->PJRT_TopologyDescription_Create = topology;
    if (!strcmp(mode(), "compile"))
        api->PJRT_Client_Compile = compile;
    if (!strcmp(mode(), "outputs"))
        api->PJRT_Buffer_ToHostBuffer = outputs;
    if (!strcmp(mode(), "ends"))
        api->PJRT_LoadedExecutable_Execute = ends;
}
