/* The embedded device, got worse in one way, which XLANE_WORSE names: memory (a program needs twice as much), topology
 * (it refuses those of two devices), compile (it refuses programs with a sine), outputs (each f32 has the
 * other sign), ends (the process ends when a program runs), code (four times as much), cpu (a compile takes 1.5 s more
 * of CPU time), time (an execution takes 20 ms more), collectives (those of the file beside it), first (the first
 * buffer takes 0.6 s). */
#include <time.h>
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

static PJRT_Error *code(PJRT_Executable_GetCompiledMemoryStats_Args *a)
{
    PJRT_Error *err = real.PJRT_Executable_GetCompiledMemoryStats(a);
    a->generated_code_size_in_bytes = 4 * (a->generated_code_size_in_bytes > 0 ? a->generated_code_size_in_bytes : 1);
    return err;
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static PJRT_Error *slow_compile(PJRT_Client_Compile_Args *a)
{
    for (double until = cpu_now() + 1.5; cpu_now() < until;)
        continue;
    return real.PJRT_Client_Compile(a);
}

static PJRT_Error *slow_run(PJRT_LoadedExecutable_Execute_Args *a)
{
    usleep(20000);
    return real.PJRT_LoadedExecutable_Execute(a);
}

static PJRT_Error *slow_first(PJRT_Client_BufferFromHostBuffer_Args *a)
{
    static int done;
    if (!done++)
        usleep(600000);
    return real.PJRT_Client_BufferFromHostBuffer(a);
}

/* What an optimized program is: the HLO in the file beside this library, "<library>.hlo". */
static PJRT_Error *optimized(PJRT_Executable_OptimizedProgram_Args *a)
{
    Dl_info self;
    char path[4096];
    static char hlo[1 << 20];
    static size_t size;
    if (!size && dladdr((void *)&real, &self)) {
        snprintf(path, sizeof path, "%s.hlo", self.dli_fname);
        FILE *f = fopen(path, "r");
        size = f ? fread(hlo, 1, sizeof hlo, f) : 0;
        if (f)
            fclose(f);
    }
    a->program->format = "hlo";
    a->program->format_size = 3;
    if (a->program->code)
        memcpy(a->program->code, hlo, size);
    a->program->code_size = size;
    return NULL;
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
    if (!strcmp(mode(), "code"))
        api->PJRT_Executable_GetCompiledMemoryStats = code;
    if (!strcmp(mode(), "cpu"))
        api->PJRT_Client_Compile = slow_compile;
    if (!strcmp(mode(), "time"))
        api->PJRT_LoadedExecutable_Execute = slow_run;
    if (!strcmp(mode(), "first"))
        api->PJRT_Client_BufferFromHostBuffer = slow_first;
    if (!strcmp(mode(), "collectives"))
        api->PJRT_Executable_OptimizedProgram = optimized;
}
