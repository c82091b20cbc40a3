/* What the whole-program tests of pjrt/ talk to.
 *   pjrt options FILE            canonical bytes of a CompileOptionsProto, to standard output
 *   pjrt diff FILE FILE          what differs between two, a line each: path, before, after, quiet or not
 *   pjrt build R P [ID ...]      options for R replicas, P partitions and these devices, to standard output
 *   pjrt aot PLUGIN TOPOLOGY FILE    compile FILE for the topology; what came out, a line each
 *   pjrt twice PLUGIN FILE       an HloModuleProto of one square f32 argument and result, on 0, 1, 2 ... and on what
 *                                came of it; the numbers that came of that, on one line */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/time.h"
#include "pjrt/client.h"
#include "pjrt/options.h"
#include "pjrt/program.h"

static xl_error *options(xl_arena *a, const char *path)
{
    xl_error *err = NULL;
    xl_str bytes;
    xl_option *root;
    xl_buf out = { 0 };
    XL_DO(xl_file_read(a, path, &bytes));
    XL_DO(xl_options_parse(a, bytes, &root));
    xl_options_canonical(root, &out);
    fwrite(out.p, 1, out.n, stdout);
out:
    xl_buf_fini(&out);
    return err;
}

static xl_error *diff(xl_arena *a, const char *x, const char *y)
{
    xl_error *err = NULL;
    xl_str bytes[2];
    xl_option *root[2];
    xl_option_change *change;
    size_t n;
    XL_DO(xl_file_read(a, x, &bytes[0]));
    XL_DO(xl_file_read(a, y, &bytes[1]));
    XL_DO(xl_options_parse(a, bytes[0], &root[0]));
    XL_DO(xl_options_parse(a, bytes[1], &root[1]));
    xl_options_diff(a, root[0], root[1], &change, &n);
    for (size_t i = 0; i < n; i++)
        printf("%.*s\t%.*s\t%.*s\t%s\n", XL_FMT(change[i].path), XL_FMT(change[i].before), XL_FMT(change[i].after),
               change[i].quiet ? "quiet" : "loud");
out:
    return err;
}

static xl_error *build(int argc, char **argv)
{
    int64_t id[64];
    xl_options o = { .replicas = atoi(argv[0]), .partitions = atoi(argv[1]), .spmd = true, .shardy = true };
    for (int i = 2; i < argc && i < 66; i++, o.device = id)
        id[i - 2] = atoi(argv[i]);
    const xl_named named[] = { { .name = XL_STR("xla_b"), .kind = XL_NAMED_BOOL, .b = true },
                               { .name = XL_STR("xla_i"), .kind = XL_NAMED_INT, .i = -7 },
                               { .name = XL_STR("xla_s"), .kind = XL_NAMED_STR, .str = XL_STR("text") },
                               { .name = XL_STR("xla_f"), .kind = XL_NAMED_FLOAT, .f = 0.5f } };
    o.option = named;
    o.noption = 4;
    xl_buf out = { 0 };
    xl_options_build(&out, &o);
    fwrite(out.p, 1, out.n, stdout);
    xl_buf_fini(&out);
    return NULL;
}

static xl_error *aot(xl_arena *a, const char *path, const char *name, const char *file)
{
    xl_error *err = NULL;
    xl_plugin *p;
    xl_topology *t = NULL;
    xl_executable *e = NULL;
    xl_buf opts = { 0 }, bytes = { 0 };
    xl_str code, print, opt_code, opt_format;
    const xl_device *device;
    const xl_named *cost;
    size_t ndevice, ncost;
    xl_program_memory m;
    XL_DO(xl_file_read(a, file, &code));
    XL_DO(xl_plugin_load(path, &p));
    XL_DO(xl_topology_create(p, xl_str_of(name), NULL, 0, &t));
    XL_DO(xl_topology_devices(t, a, &device, &ndevice));
    printf("devices %zu %.*s\n", ndevice, XL_FMT(device[0].kind));
    xl_options_build(&opts, &(xl_options){ .replicas = 1 });
    double start = xl_now();
    XL_DO(xl_executable_compile(t, code, XL_FORMAT_MLIR, xl_buf_view(&opts), &e));
    printf("compiled %.2f s\n", xl_now() - start);
    XL_DO(xl_executable_memory(e, &m));
    printf("memory arguments %lld outputs %lld temporary %lld code %lld\n", (long long)m.arguments,
           (long long)m.outputs, (long long)m.temporary, (long long)m.code);
    XL_DO(xl_executable_cost(e, a, &cost, &ncost));
    for (size_t i = 0; i < ncost; i++)
        if (xl_str_is(cost[i].name, "flops"))
            printf("flops %.0f\n", (double)cost[i].f);
    XL_DO(xl_executable_fingerprint(e, a, &print));
    printf("fingerprint %zu bytes\n", print.n);
    XL_DO(xl_executable_serialize(e, &bytes));
    printf("serialised %zu bytes\n", bytes.n);
    XL_DO(xl_executable_optimized(e, a, &opt_code, &opt_format));
    printf("optimised %.*s %zu bytes\n", XL_FMT(opt_format), opt_code.n);
out:
    xl_executable_free(e);
    xl_topology_free(t);
    xl_buf_fini(&opts);
    xl_buf_fini(&bytes);
    return err;
}

static xl_error *twice(xl_arena *a, const char *path, const char *file)
{
    enum { N = 3 };
    xl_error *err = NULL;
    xl_plugin *plugin;
    xl_client *c = NULL;
    xl_program *p = NULL;
    xl_buffer *b[3] = { 0 };
    xl_buf opts = { 0 };
    xl_str code;
    int64_t dims[] = { N, N };
    float x[N * N];
    for (int i = 0; i < N * N; i++)
        x[i] = (float)i;
    XL_DO(xl_file_read(a, file, &code));
    XL_DO(xl_plugin_load(path, &plugin));
    XL_DO(xl_client_open(plugin, NULL, &c));
    xl_options_build(&opts, &(xl_options){ .replicas = 1 });
    XL_DO(xl_program_compile(c, code, XL_FORMAT_HLO, xl_buf_view(&opts), &p));
    XL_DO(xl_buffer_from_host(xl_client_local(c, 0), XL_ELEM_F32, (xl_dims){ dims, 2 }, x, NULL, &b[0]));
    for (int i = 0; i < 2; i++) {
        xl_buffer *const args[] = { b[i] }, *const *const rows[] = { args };
        xl_buffer **const outs[] = { &b[i + 1] };
        XL_DO(xl_program_execute(p, &(xl_exec){ .ndevice = 1, .narg = 1, .arg = rows, .out = outs }));
    }
    XL_DO(xl_buffer_to_host(b[2], x, sizeof x, NULL));
    for (int i = 0; i < N * N; i++)
        printf("%g%s", (double)x[i], i + 1 < N * N ? " " : "\n");
out:
    for (int i = 0; i < 3; i++)
        xl_buffer_free(b[i]);
    xl_program_free(p);
    xl_client_close(c);
    xl_buf_fini(&opts);
    return err;
}

int main(int argc, char **argv)
{
    xl_arena a = { 0 };
    xl_error *err;
    if (argc == 3 && strcmp(argv[1], "options") == 0)
        err = options(&a, argv[2]);
    else if (argc == 4 && strcmp(argv[1], "diff") == 0)
        err = diff(&a, argv[2], argv[3]);
    else if (argc >= 4 && strcmp(argv[1], "build") == 0)
        err = build(argc - 2, argv + 2);
    else if (argc == 5 && strcmp(argv[1], "aot") == 0)
        err = aot(&a, argv[2], argv[3], argv[4]);
    else if (argc == 4 && strcmp(argv[1], "twice") == 0)
        err = twice(&a, argv[2], argv[3]);
    else
        err = XL_ERR(INVALID, "see the head of test/tool/pjrt.c");
    if (err)
        fprintf(stderr, "pjrt: %s\n", xl_error_message(err));
    int bad = err != NULL;
    xl_error_free(err);
    xl_arena_fini(&a);
    return bad;
}
