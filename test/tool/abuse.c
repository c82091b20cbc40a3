/* Abuses a plugin as a broken or hostile caller would, and counts the answers.
 *   abuse PLUGIN ERRORS BLOBS CYCLES [SEED-FILE ...]
 * ERRORS calls with random wrong arguments (types, shapes, sizes, strides, layouts, buffers that are deleted or of
 * another shape, programs and options of noise), BLOBS serialised executables cut, flipped and grown (half of them with
 * a checksum that is right again, so that the readers behind it are reached), CYCLES of compile, execute and free, over
 * which memory may not grow. A seed file is a serialised executable. Prints a line each; ends with status 1 when a call
 * succeeded that may not, or memory grew. A crash is the finding. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/str.h"
#include "pjrt/abi.h"

static const PJRT_Api *api;
static PJRT_Client *client;
static PJRT_Device *device;
static uint64_t state = 88172645463325252u;

static uint64_t rnd(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1d;
}
static uint64_t below(uint64_t n) { return n ? rnd() % n : 0; }

/* true: it was an error, which is now gone. Its message is read, for that too may go wrong. */
static bool failed(PJRT_Error *e)
{
    if (!e)
        return false;
    PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = e };
    api->PJRT_Error_Message(&m);
    if (!m.message_size || !m.message[0]) {
        fprintf(stderr, "an error without a message\n");
        exit(1);
    }
    PJRT_Error_Destroy_Args d = { .struct_size = sizeof d, .error = e };
    api->PJRT_Error_Destroy(&d);
    return true;
}
static void must(PJRT_Error *e, const char *what)
{
    if (e) {
        PJRT_Error_Message_Args m = { .struct_size = sizeof m, .error = e };
        api->PJRT_Error_Message(&m);
        fprintf(stderr, "%s: %.*s\n", what, (int)m.message_size, m.message);
        exit(1);
    }
}
static void await(PJRT_Event *e)
{
    if (!e)
        return;
    PJRT_Event_Await_Args a = { .struct_size = sizeof a, .event = e };
    failed(api->PJRT_Event_Await(&a));
    PJRT_Event_Destroy_Args d = { .struct_size = sizeof d, .event = e };
    failed(api->PJRT_Event_Destroy(&d));
}
static void buffer_free(PJRT_Buffer *b)
{
    PJRT_Buffer_Destroy_Args d = { .struct_size = sizeof d, .buffer = b };
    if (b)
        failed(api->PJRT_Buffer_Destroy(&d));
}
static void loaded_free(PJRT_LoadedExecutable *x)
{
    PJRT_LoadedExecutable_Destroy_Args d = { .struct_size = sizeof d, .executable = x };
    if (x)
        failed(api->PJRT_LoadedExecutable_Destroy(&d));
}

static const char *const text[] = {
    "func.func public @main(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>) -> (tensor<4x5xf32>, tensor<4xf32>) {\n"
    "  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x5xf32>) -> "
    "tensor<4x5xf32>\n"
    "  %z = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "  %1 = stablehlo.tanh %0 : tensor<4x5xf32>\n"
    "  %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x5xf32>, "
    "tensor<f32>) -> tensor<4xf32>\n"
    "  return %1, %2 : tensor<4x5xf32>, tensor<4xf32>\n}\n",
    "func.func public @main(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>) -> tensor<6x4xf32> {\n"
    "  %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>\n"
    "  %1 = stablehlo.slice %b [0:6, 1:5] : (tensor<6x5xf32>) -> tensor<6x4xf32>\n"
    "  %2 = stablehlo.multiply %0, %1 : tensor<6x4xf32>\n"
    "  %3 = stablehlo.exponential %2 : tensor<6x4xf32>\n"
    "  return %3 : tensor<6x4xf32>\n}\n",
};

static PJRT_Error *compile(const char *code, size_t n, const char *format, const char *opts, size_t nopts,
                           PJRT_LoadedExecutable **out)
{
    char *copy = malloc(n + 1);                            /* exactly sized, so that reading past it is seen */
    memcpy(copy, code, n);
    PJRT_Program p = {
        .struct_size = sizeof p, .code = copy, .code_size = n, .format = format, .format_size = strlen(format)
    };
    PJRT_Client_Compile_Args a = {
        .struct_size = sizeof a, .client = client, .program = &p, .compile_options = opts, .compile_options_size = nopts
    };
    PJRT_Error *e = api->PJRT_Client_Compile(&a);
    *out = e ? NULL : a.executable;
    free(copy);
    return e;
}
static PJRT_Error *upload(const void *data, PJRT_Buffer_Type type, const int64_t *dims, size_t n, PJRT_Buffer **out)
{
    PJRT_Client_BufferFromHostBuffer_Args a = { .struct_size = sizeof a,
                                                .client = client,
                                                .data = data,
                                                .type = type,
                                                .dims = dims,
                                                .num_dims = n,
                                                .device = device,
                                                .host_buffer_semantics =
                                                    PJRT_HostBufferSemantics_kImmutableOnlyDuringCall };
    PJRT_Error *e = api->PJRT_Client_BufferFromHostBuffer(&a);
    *out = e ? NULL : a.buffer;
    if (!e)
        await(a.done_with_host_buffer);
    return e;
}
static PJRT_Error *execute(PJRT_LoadedExecutable *x, PJRT_Buffer **arg, size_t narg, size_t ndev, PJRT_Buffer **out)
{
    PJRT_Buffer *const *lists[1] = { arg };
    PJRT_Buffer **outs[1] = { out };
    PJRT_Event *done[1] = { NULL };
    PJRT_ExecuteOptions o = { .struct_size = sizeof o };
    PJRT_LoadedExecutable_Execute_Args a = { .struct_size = sizeof a,
                                             .executable = x,
                                             .options = &o,
                                             .argument_lists = lists,
                                             .num_devices = ndev,
                                             .num_args = narg,
                                             .output_lists = outs,
                                             .device_complete_events = done };
    PJRT_Error *e = api->PJRT_LoadedExecutable_Execute(&a);
    if (!e)
        await(done[0]);
    return e;
}

static float data[64];
static const int64_t da[2] = { 4, 6 }, db[2] = { 6, 5 };

/* One call that must fail. */
static bool wrong(PJRT_LoadedExecutable *x, PJRT_Buffer *good[2], PJRT_Buffer *deleted)
{
    PJRT_Buffer *b = NULL, *out[4] = { NULL };
    bool ok = true;
    switch (below(9)) {
    case 0: {                                              /* no such type, or dimensions that are none */
        int64_t d[40];
        size_t n = below(6);
        for (size_t i = 0; i < n; i++)
            d[i] = below(2) ? -(int64_t)below(1u << 30) - 1
                            : (int64_t)(rnd() >> 1 >> below(63)) | 1; /* nothing is empty */
        d[n] = below(2) ? -1 : INT64_MAX;
        ok = failed(
            upload(data, below(2) ? PJRT_Buffer_Type_F32 : (PJRT_Buffer_Type)(1000 + below(1u << 20)), d, n + 1, &b));
        break;
    }
    case 1: {                                              /* other arguments than the program's */
        int64_t d[3] = { 1 + (int64_t)below(4), 1 + (int64_t)below(4), 1 + (int64_t)below(3) };
        PJRT_Buffer *other = NULL;
        if (failed(upload(data, below(2) ? PJRT_Buffer_Type_F32 : PJRT_Buffer_Type_S32, d, 1 + below(3), &other)))
            return false;
        PJRT_Buffer *arg[2] = { good[0], other };
        ok = failed(execute(x, arg, 2, 1, out));
        buffer_free(other);
        break;
    }
    case 2: ok = failed(execute(x, good, below(2) ? below(2) : 3 + below(100), 1, out)); break;
    case 3: ok = failed(execute(x, good, 2, below(2) ? 0 : 2 + below(1000), out)); break;
    case 4: {
        PJRT_Buffer *arg[2] = { deleted, good[1] };
        ok = failed(execute(x, arg, 2, 1, out));
        break;
    }
    case 5: {                                              /* too little room */
        char small[8];
        PJRT_Buffer_ToHostBuffer_Args a = {
            .struct_size = sizeof a, .src = below(4) ? good[0] : deleted, .dst = small, .dst_size = below(8)
        };
        ok = failed(api->PJRT_Buffer_ToHostBuffer(&a));
        break;
    }
    case 6: {                                              /* noise for a program */
        char noise[64];
        size_t n = below(sizeof noise);
        for (size_t i = 0; i < n; i++)
            noise[i] = (char)rnd();
        static const char *const format[] = { "mlir", "hlo", "hlo_with_config", "", "elf" };
        if (n > 4 && below(2))
            memcpy(noise, "ML\xefR", 4);
        PJRT_LoadedExecutable *y = NULL;
        ok = failed(compile(noise, n, format[below(5)], noise, below(n + 1), &y));
        loaded_free(y);
        return ok || y;                                    /* some noise is an empty program */
    }
    case 7: {                                              /* a program with a letter changed; it may still be one */
        const char *t = text[below(2)];
        size_t n = strlen(t);
        char *copy = malloc(n);
        memcpy(copy, t, n);
        for (size_t k = 1 + below(4); k > 0; k--)
            copy[below(n)] = (char)(below(3) ? 32 + below(95) : rnd());
        PJRT_LoadedExecutable *y = NULL;
        failed(compile(copy, below(4) ? n : below(n), "mlir", "", 0, &y));
        loaded_free(y);
        free(copy);
        return true;
    }
    default: {                                             /* a piece that lies outside */
        char room[256];
        int64_t at = (int64_t)(rnd() >> below(64)), n = (int64_t)(rnd() >> below(64));
        if (below(2))
            at = -at;
        if (at >= 0 && n >= 0 && at <= 96 && n <= 96 - at)
            n = 97;
        PJRT_Buffer_CopyRawToHost_Args a = {
            .struct_size = sizeof a, .buffer = good[0], .dst = room, .offset = at, .transfer_size = n
        };
        ok = failed(api->PJRT_Buffer_CopyRawToHost(&a));
        if (!ok)
            await(a.event);
    }
    }
    buffer_free(b);
    return ok;
}

static long resident(void)
{
    long pages = 0, rss = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &pages, &rss) != 2)
        rss = 0;
    if (f)
        fclose(f);
    return rss * (sysconf(_SC_PAGESIZE) / 1024);
}

static PJRT_LoadedExecutable *deserialize(const char *p, size_t n, bool expect)
{
    PJRT_Executable_DeserializeAndLoad_Args a = {
        .struct_size = sizeof a, .client = client, .serialized_executable = p, .serialized_executable_size = n
    };
    PJRT_Error *e = api->PJRT_Executable_DeserializeAndLoad(&a);
    if (expect)
        must(e, "an unchanged executable");
    return failed(e) ? NULL : a.loaded_executable;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: abuse PLUGIN ERRORS BLOBS CYCLES [SEED-FILE ...]\n");
        return 2;
    }
    void *h = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const PJRT_Api *(*get)(void) = NULL;
    if (h)
        *(void **)&get = dlsym(h, "GetPjrtApi");
    if (!get) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    long errors = atol(argv[2]), blobs = atol(argv[3]), cycles = atol(argv[4]);
    api = get();
    PJRT_Client_Create_Args c = { .struct_size = sizeof c };
    must(api->PJRT_Client_Create(&c), "client");
    client = c.client;
    PJRT_Client_AddressableDevices_Args d = { .struct_size = sizeof d, .client = client };
    must(api->PJRT_Client_AddressableDevices(&d), "devices");
    device = d.addressable_devices[0];
    for (int i = 0; i < 64; i++)
        data[i] = (float)i / 16;

    PJRT_LoadedExecutable *x[2];
    PJRT_Buffer *good[2], *deleted, *out[4] = { NULL };
    int status = 0;
    for (int i = 0; i < 2; i++)
        must(compile(text[i], strlen(text[i]), "mlir", "", 0, &x[i]), "compile");
    must(upload(data, PJRT_Buffer_Type_F32, da, 2, &good[0]), "upload");
    must(upload(data, PJRT_Buffer_Type_F32, db, 2, &good[1]), "upload");
    must(upload(data, PJRT_Buffer_Type_F32, da, 2, &deleted), "upload");
    PJRT_Buffer_Delete_Args gone = { .struct_size = sizeof gone, .buffer = deleted };
    must(api->PJRT_Buffer_Delete(&gone), "delete");
    must(execute(x[0], good, 2, 1, out), "execute");
    buffer_free(out[0]);
    buffer_free(out[1]);

    long taken = 0;
    for (long i = 0; i < errors; i++)
        taken += !wrong(x[i & 1], good, deleted);
    printf("%ld wrong calls, %ld of them taken\n", errors, taken);
    status |= taken != 0;

    xl_arena arena = { 0 };
    xl_str seed[64];
    size_t nseed = 0;
    for (int i = 0; i < 2; i++) {
        PJRT_LoadedExecutable_GetExecutable_Args g = { .struct_size = sizeof g, .loaded_executable = x[i] };
        must(api->PJRT_LoadedExecutable_GetExecutable(&g), "executable");
        PJRT_Executable_Serialize_Args s = { .struct_size = sizeof s, .executable = g.executable };
        must(api->PJRT_Executable_Serialize(&s), "serialise");
        seed[nseed++] = xl_str_dup(&arena, (xl_str){ s.serialized_bytes, s.serialized_bytes_size });
        s.serialized_executable_deleter(s.serialized_executable);
        PJRT_Executable_Destroy_Args e = { .struct_size = sizeof e, .executable = g.executable };
        must(api->PJRT_Executable_Destroy(&e), "destroy");
    }
    for (int i = 5; i < argc && nseed < 64; i++) {
        xl_error *err = xl_file_read(&arena, argv[i], &seed[nseed]);
        if (err) {
            fprintf(stderr, "%s\n", xl_error_message(err));
            return 2;
        }
        nseed++;
    }
    for (size_t i = 0; i < nseed; i++)
        loaded_free(deserialize(seed[i].p, seed[i].n, true));
    long accepted = 0, unsigned_accepted = 0;
    for (long i = 0; i < blobs; i++) {
        xl_str s = seed[below(nseed)];
        size_t n = below(8) ? s.n : below(s.n + 1), sum = sizeof(xl_digest);
        char *copy = malloc(n + 64);
        memcpy(copy, s.p, n);
        if (!below(16))                                    /* grown */
            for (size_t k = below(64); k > 0; k--)
                copy[n++] = (char)rnd();
        bool changed = n != s.n;
        for (size_t k = n ? 1 + below(6) : 0; k > 0; k--) {
            size_t at = below(n);
            char was = copy[at];
            copy[at] = below(2) ? (char)(copy[at] ^ 1 << below(8)) : (char)rnd();
            changed = changed || copy[at] != was;
        }
        bool mended = below(2) && n > sum;
        if (mended) {
            xl_digest dg = xl_hash_of((xl_str){ copy, n - sum });
            memcpy(copy + n - sum, &dg, sum);
        }
        char *exact = malloc(n ? n : 1);
        memcpy(exact, copy, n);
        PJRT_LoadedExecutable *y = deserialize(exact, n, false);
        accepted += y != NULL;
        unsigned_accepted += y && !mended && changed && memcmp(exact, s.p, n < s.n ? n : s.n) != 0;
        loaded_free(y);
        free(exact);
        free(copy);
    }
    printf("%ld changed executables, %ld accepted of those with a mended checksum, %ld of the others\n", blobs,
           accepted - unsigned_accepted, unsigned_accepted);
    status |= unsigned_accepted != 0;

    long early = 0, late = 0;
    for (long i = 0; i < cycles; i++) {
        PJRT_LoadedExecutable *y;
        must(compile(text[i & 1], strlen(text[i & 1]), "mlir", "", 0, &y), "compile");
        must(execute(y, good, 2, 1, out), "execute");
        buffer_free(out[0]);
        if (!(i & 1))
            buffer_free(out[1]);
        loaded_free(y);
        if (i == cycles / 4)
            early = resident();
    }
    late = resident();
    printf("%ld cycles: %ld KiB resident after a quarter, %ld at the end\n", cycles, early, late);
    status |= cycles > 0 && late > early + 1024;

    must(execute(x[0], good, 2, 1, out), "the client does not live on");
    buffer_free(out[0]);
    buffer_free(out[1]);
    loaded_free(x[0]);
    loaded_free(x[1]);
    buffer_free(good[0]);
    buffer_free(good[1]);
    buffer_free(deleted);
    PJRT_Client_Destroy_Args end = { .struct_size = sizeof end, .client = client };
    must(api->PJRT_Client_Destroy(&end), "close");
    xl_arena_fini(&arena);
    return status;
}
