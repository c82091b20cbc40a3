/* What the guard costs: an execution through the bare plugin and through the guard, in turns, in one process; and the
 * time to key and compare a program of a few hundred kilobytes.
 *   build/bench/guard [PLUGIN] [GUARD] [PROGRAM.mlir] */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/time.h"
#include "ir/compare/diff.h"
#include "ir/compare/hash.h"
#include "ir/read.h"
#include "pjrt/abi.h"
#include "pjrt/options.h"

static const char tiny[] = "module @tiny { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
                           "  %0 = stablehlo.add %a, %a : tensor<4xf32>\n  return %0 : tensor<4xf32>\n} }\n";

static void need(PJRT_Error *e, const PJRT_Api *api, const char *what)
{
    if (!e)
        return;
    PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = e };
    api->PJRT_Error_Message(&m);
    fprintf(stderr, "%s: %.*s\n", what, (int)m.message_size, m.message);
    exit(1);
}

static PJRT_LoadedExecutable *exe;
static PJRT_Buffer *arg;

/* This thread's own time: what others do on the machine does not count. */
static double own_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double per_execute(const PJRT_Api *api, int n)
{
    PJRT_ExecuteOptions how = { .struct_size = sizeof how };
    PJRT_Buffer *const row[] = { arg }, *const *const rows[] = { row };
    double t = own_time();
    for (int i = 0; i < n; i++) {
        PJRT_Buffer *out = NULL, **const outs[] = { &out };
        PJRT_Event *done = NULL;
        PJRT_LoadedExecutable_Execute_Args x = { .struct_size = sizeof x,
                                                 .executable = exe,
                                                 .options = &how,
                                                 .argument_lists = rows,
                                                 .num_devices = 1,
                                                 .num_args = 1,
                                                 .output_lists = outs,
                                                 .device_complete_events = &done };
        need(api->PJRT_LoadedExecutable_Execute(&x), api, "execute");
        api->PJRT_Event_Destroy(
            &(PJRT_Event_Destroy_Args){ .struct_size = sizeof(PJRT_Event_Destroy_Args), .event = done });
        api->PJRT_Buffer_Destroy(
            &(PJRT_Buffer_Destroy_Args){ .struct_size = sizeof(PJRT_Buffer_Destroy_Args), .buffer = out });
    }
    return (own_time() - t) / n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void executes(const char *plugin, const char *guard)
{
    void *lib = dlopen(plugin, RTLD_NOW | RTLD_LOCAL), *g = dlopen(guard, RTLD_NOW | RTLD_LOCAL);
    if (!lib || !g) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    PJRT_GetPjrtApi *get, *ours;
    void *(*attach)(void *), *symbol = dlsym(lib, "GetPjrtApi"), *entry = dlsym(g, "xlane_guard_attach");
    memcpy(&get, &symbol, sizeof get);
    memcpy(&attach, &entry, sizeof attach);
    void *wrapped = attach(symbol);
    memcpy(&ours, &wrapped, sizeof ours);
    const PJRT_Api *bare = get(), *api = ours();
    PJRT_Plugin_Initialize_Args init = { .struct_size = sizeof init };
    need(api->PJRT_Plugin_Initialize(&init), api, "initialize");
    PJRT_Client_Create_Args create = { .struct_size = sizeof create };
    need(api->PJRT_Client_Create(&create), api, "client");
    xl_buf options = { 0 };
    xl_options_build(&options, &(xl_options){ 0 });
    PJRT_Program program = { .struct_size = sizeof program,
                             .code = (char *)tiny,
                             .code_size = sizeof tiny - 1,
                             .format = "mlir",
                             .format_size = 4 };
    PJRT_Client_Compile_Args compile = { .struct_size = sizeof compile, .client = create.client, .program = &program,
                                         .compile_options = options.p, .compile_options_size = options.n };
    need(api->PJRT_Client_Compile(&compile), api, "compile");
    exe = compile.executable;
    PJRT_Client_AddressableDevices_Args devices = { .struct_size = sizeof devices, .client = create.client };
    need(api->PJRT_Client_AddressableDevices(&devices), api, "devices");
    float x[4] = { 1, 2, 3, 4 };
    int64_t dims[] = { 4 };
    PJRT_Client_BufferFromHostBuffer_Args b = { .struct_size = sizeof b,
                                                .client = create.client,
                                                .data = x,
                                                .type = PJRT_Buffer_Type_F32,
                                                .dims = dims,
                                                .num_dims = 1,
                                                .device = devices.addressable_devices[0] };
    need(api->PJRT_Client_BufferFromHostBuffer(&b), api, "buffer");
    arg = b.buffer;
    enum { TURNS = 31, EACH = 4000 };
    double without[TURNS], with[TURNS];
    per_execute(api, EACH);
    for (int i = 0; i < TURNS; i++) {
        without[i] = per_execute(bare, EACH);
        with[i] = per_execute(api, EACH);
    }
    qsort(without, TURNS, sizeof *without, by_value);
    qsort(with, TURNS, sizeof *with, by_value);
    printf("execute, bare plugin   %8.1f ns (median of %d x %d)\n", without[TURNS / 2] * 1e9, TURNS, EACH);
    printf("execute, guarded       %8.1f ns\n", with[TURNS / 2] * 1e9);
    printf("the guard's share      %8.1f ns (the bound is 1000 ns)\n", (with[TURNS / 2] - without[TURNS / 2]) * 1e9);
    xl_buf_fini(&options);
}

static void programs(const char *path)
{
    enum { TURNS = 15 };
    xl_arena a = { 0 };
    xl_str bytes;
    xl_error *err = xl_file_read(&a, path, &bytes);
    double read[TURNS], hash[TURNS], diff[TURNS];
    for (int i = 0; i < TURNS && !err; i++) {
        xl_module *m = NULL, *n = NULL;
        uint32_t count;
        double t = xl_now();
        err = xl_read(bytes, NULL, &m);
        read[i] = xl_now() - t;
        t = xl_now();
        if (!err)
            xl_module_hash(m);
        hash[i] = xl_now() - t;
        if (!err)
            err = xl_read(bytes, NULL, &n);
        t = xl_now();
        if (!err)
            xl_module_diff(&a, m, n, 32, &count);
        diff[i] = xl_now() - t;
        xl_module_free(m);
        xl_module_free(n);
    }
    if (err) {
        fprintf(stderr, "%s\n", xl_error_message(err));
        exit(1);
    }
    qsort(read, TURNS, sizeof *read, by_value);
    qsort(hash, TURNS, sizeof *hash, by_value);
    qsort(diff, TURNS, sizeof *diff, by_value);
    printf("a program of %zu bytes: read %.3f ms, key %.3f ms, compare %.3f ms (the bound is 10 ms in all)\n", bytes.n,
           read[TURNS / 2] * 1e3, hash[TURNS / 2] * 1e3, diff[TURNS / 2] * 1e3);
    xl_arena_fini(&a);
}

int main(int argc, char **argv)
{
    executes(argc > 1 ? argv[1] : "build/libxlane-cpu.so", argc > 2 ? argv[2] : "build/libxlane-guard.so");
    if (argc > 3)
        programs(argv[3]);
    return 0;
}
