/* Says it is "cuda", and does as XLA does there when it is asked to write down what it measured: a file appears. Each
 * compile is a line in the file XLANE_MEASURES_LOG: "measured", "loaded FILE" or "plain", and one before it where
 * kernels may run side by side: "overlapping HOW". With XLANE_MEASURES_FAIL a compile with measurements fails, with
 * XLANE_MEASURES_OLD one with kernels side by side. */
#include "wrap.h"

static PJRT_Error *platform_name(PJRT_Client_PlatformName_Args *a)
{
    PJRT_Error *err = real.PJRT_Client_PlatformName(a);
    a->platform_name = "cuda";
    a->platform_name_size = 4;
    return err;
}

/* The text of a compiler option: after its name come the tags and lengths of two fields, all below 128 here. */
static size_t option(const PJRT_Client_Compile_Args *a, const char *name, char *out, size_t n)
{
    const size_t len = strlen(name);
    const char *p = memmem(a->compile_options, a->compile_options_size, name, len);
    if (!p)
        return 0;
    const size_t size = (unsigned char)p[len + 3];
    snprintf(out, n, "%.*s", (int)size, p + len + 4);
    return size;
}

static void note(const char *what, const char *file)
{
    FILE *f = fopen(getenv("XLANE_MEASURES_LOG"), "a");
    if (f) {
        fprintf(f, "%s %s\n", what, file);
        fclose(f);
    }
}

static PJRT_Error *compile(PJRT_Client_Compile_Args *a)
{
    char file[256];
    PJRT_Program none = *a->program;
    if (option(a, "xla_gpu_command_buffer_scheduling_mode", file, sizeof file)) {
        note("overlapping", file);
        if (getenv("XLANE_MEASURES_OLD")) {
            none.code_size = 0;
            a->program = &none;
            return real.PJRT_Client_Compile(a);
        }
    }
    if (option(a, "xla_gpu_dump_autotune_results_to", file, sizeof file)) {
        note("measured", "");
        if (getenv("XLANE_MEASURES_FAIL")) {
            none.code_size = 0;
            a->program = &none;
        } else {
            FILE *f = fopen(file, "w");
            if (f) {
                fprintf(f, "entries { key { hlo_fingerprint: \"%zu\" } }\n", a->program->code_size);
                fclose(f);
            }
        }
    } else if (option(a, "xla_gpu_load_autotune_results_from", file, sizeof file))
        note("loaded", file);
    else
        note("plain", "");
    return real.PJRT_Client_Compile(a);
}

static void change(PJRT_Api *api)
{
    api->PJRT_Client_PlatformName = platform_name;
    api->PJRT_Client_Compile = compile;
}
