/* What compiling costs without a frontend: a program (text or bytecode) through the plugin's own PJRT_Client_Compile,
 * in a process that has nothing else in it; then its serialised form, and loading that back. The first compile is told
 * apart from the best of many.
 *   build/bench/plan PLUGIN PROGRAM        milliseconds: first compile, best compile, serialise, load; then bytes */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "pjrt/abi.h"
#include "pjrt/options.h"

enum { TURNS = 20 };

static const PJRT_Api *api;
static PJRT_Client *client;

static void need(PJRT_Error *e, const char *what)
{
    if (!e)
        return;
    PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = e };
    api->PJRT_Error_Message(&m);
    fprintf(stderr, "%s: %.*s\n", what, (int)m.message_size, m.message);
    exit(1);
}

static double now(void)
{
    const char *c = getenv("XLANE_BENCH_CLOCK");
    struct timespec t;
    clock_gettime(c && !strcmp(c, "cpu") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void drop(PJRT_LoadedExecutable *l)
{
    need(api->PJRT_LoadedExecutable_Destroy(&(PJRT_LoadedExecutable_Destroy_Args){
             .struct_size = sizeof(PJRT_LoadedExecutable_Destroy_Args), .executable = l }),
         "destroy");
}

static double compile(xl_str program, xl_str options, PJRT_LoadedExecutable **out)
{
    PJRT_Program p = {
        .struct_size = sizeof p, .code = (char *)program.p, .code_size = program.n, .format = "mlir", .format_size = 4
    };
    PJRT_Client_Compile_Args c = { .struct_size = sizeof c,
                                   .client = client,
                                   .program = &p,
                                   .compile_options = options.p,
                                   .compile_options_size = options.n };
    double t = now();
    need(api->PJRT_Client_Compile(&c), "compile");
    t = now() - t;
    *out = c.executable;
    return t;
}

static double load(const char *blob, size_t n)
{
    PJRT_Executable_DeserializeAndLoad_Args d = {
        .struct_size = sizeof d, .client = client, .serialized_executable = blob, .serialized_executable_size = n
    };
    double t = now();
    need(api->PJRT_Executable_DeserializeAndLoad(&d), "load");
    t = now() - t;
    drop(d.loaded_executable);
    return t;
}

int main(int argc, char **argv)
{
    xl_arena a = { 0 };
    xl_str program;
    xl_buf options = { 0 };
    if (argc != 3) {
        fprintf(stderr, "usage: %s PLUGIN PROGRAM\n", argv[0]);
        return 2;
    }
    xl_error *err = xl_file_read(&a, argv[2], &program);
    void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *symbol = lib ? dlsym(lib, "GetPjrtApi") : NULL;
    if (err || !symbol) {
        fprintf(stderr, "%s\n", err ? xl_error_message(err) : dlerror());
        return 1;
    }
    PJRT_GetPjrtApi *get;
    memcpy(&get, &symbol, sizeof get);
    api = get();
    need(api->PJRT_Plugin_Initialize(
             &(PJRT_Plugin_Initialize_Args){ .struct_size = sizeof(PJRT_Plugin_Initialize_Args) }),
         "initialize");
    PJRT_Client_Create_Args create = { .struct_size = sizeof create };
    need(api->PJRT_Client_Create(&create), "client");
    client = create.client;
    xl_options_build(&options, &(xl_options){ 0 });
    PJRT_LoadedExecutable *exe, *other;
    double first = compile(program, (xl_str){ options.p, options.n }, &exe), best = first, write = 1e9, read = 1e9;
    for (int i = 0; i < TURNS; i++) {
        double t = compile(program, (xl_str){ options.p, options.n }, &other);
        best = t < best ? t : best;
        drop(other);
    }
    PJRT_LoadedExecutable_GetExecutable_Args g = { .struct_size = sizeof g, .loaded_executable = exe };
    need(api->PJRT_LoadedExecutable_GetExecutable(&g), "executable");
    PJRT_Executable_Serialize_Args s = { .struct_size = sizeof s, .executable = g.executable };
    size_t bytes = 0;
    for (int i = 0; i < TURNS; i++) {
        double t = now();
        need(api->PJRT_Executable_Serialize(&s), "serialise");
        t = now() - t;
        write = t < write ? t : write;
        t = load(s.serialized_bytes, s.serialized_bytes_size);
        read = t < read ? t : read;
        bytes = s.serialized_bytes_size;
        s.serialized_executable_deleter(s.serialized_executable);
    }
    printf("%.3f %.3f %.3f %.3f %zu\n", first, best, write, read, bytes);
    drop(exe);
    xl_buf_fini(&options);
    xl_arena_fini(&a);
    return 0;
}
