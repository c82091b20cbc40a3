/* Training steps in turns: programs, or one program compiled with different options, take steps on one state in one
 * process, so that a card that gets warm or slow does so for all of them.
 *   build/bench/turns PLUGIN ROUNDS STEPS NAME:FILE[:OPTION=VALUE+OPTION=VALUE...]...
 * FILE is what `xlane train --print=step` prints (--device=cuda model.attention=cudnn model.kernels=triton for CUDA's).
 * Each is compiled as `xlane train` compiles it for CUDA: once with measurements, then deterministic, with what was
 * measured; with the option "unmeasured", only deterministic. ROUNDS times each takes STEPS steps after one that does
 * not count, the order turned round every time. Prints the seconds and bytes of each compile, the mean and least
 * milliseconds of a step and each round's, and last, for each program, loss and norm of its sixth step from the same
 * state: equal numbers, equal bits. Weights and tokens are drawn (Zipf), so all files must have the same shapes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/time.h"
#include "pjrt/options.h"
#include "pjrt/program.h"
#include "train/step.h"
#include "xlane/xlane.h"

enum { ARGS_MAX = 1024, PROGRAMS_MAX = 32, ROUNDS_MAX = 64, OPTIONS_MAX = 24, INPUTS = 6, FILE_MAX = 1 << 28 };

typedef struct { xl_elem elem; int64_t dim[8]; size_t rank, count; } argument;
typedef struct {
    char *name, *file, *options;
    xl_program *p;
    double ms[ROUNDS_MAX];
} contender;

static xl_arena arena;
static xl_client *client;
static const xl_device *device;
static argument arg[ARGS_MAX];
static xl_buffer *state[ARGS_MAX];
static size_t narg, nstate, nmetric;
static float metric[64];
static uint64_t seed;

static void need(xl_error *err, const char *what)
{
    if (!err)
        return;
    fprintf(stderr, "%s: %s\n", what, xl_error_message(err));
    exit(1);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */
static void read_arguments(const char *text)
{
    const char *c = strstr(text, "@main("), *end = c ? strstr(c, ") -> ") : NULL;
    while (c && end && narg < ARGS_MAX && (c = strstr(c, "%arg")) && c < end) {
        argument *a = &arg[narg++];
        char *stop;
        a->count = 1;
        c = strstr(c, "tensor<") + strlen("tensor<");
        for (long n; n = strtol(c, &stop, 10), stop > c && *stop == 'x' && a->rank < 8; c = stop + 1) {
            a->dim[a->rank++] = n;
            a->count *= (size_t)n;
        }
        a->elem = xl_elem_parse((xl_str){ c, strcspn(c, ">") });
    }
    if (narg <= INPUTS || (narg - INPUTS) % 3) {
        fprintf(stderr, "this is no training step: %zu arguments\n", narg);
        exit(1);
    }
}

/* cuDNN's attention is written down as deterministic: a compile that is not must not find that. */
static void as_measured(char *text)
{
    static const char flag[] = "force_deterministic";
    for (char *c = text; (c = strstr(c, flag)); c++) {
        char *value = c + strlen(flag) + strcspn(c + strlen(flag), "tf");
        if (!strncmp(value, "true", 4)) {
            memmove(value + 5, value + 4, strlen(value + 4) + 1);
            memcpy(value, "false", 5);
        }
    }
}

static size_t given(char *text, xl_named *out)
{
    size_t n = 0;
    for (char *w = strtok(text, "+"); w && n < OPTIONS_MAX - 3; w = strtok(NULL, "+")) {
        char *value = strchr(w, '=');
        if (!value)
            continue;
        out[n] = (xl_named){ .name = { w, (size_t)(value - w) }, .kind = XL_NAMED_STR, .str = xl_str_of(value + 1) };
        if (!strcmp(value + 1, "true") || !strcmp(value + 1, "false"))
            out[n].kind = XL_NAMED_BOOL, out[n].b = value[1] == 't';
        else if (value[1 + strspn(value + 1, "0123456789")] == 0)
            out[n].kind = XL_NAMED_INT, out[n].i = atoll(value + 1);
        n++;
    }
    return n;
}

static xl_error *compile(contender *c, bool measure)
{
    xl_str file;
    xl_buf options = { 0 };
    xl_named option[OPTIONS_MAX];
    char dump[64], *words = xl_str_c(&arena, xl_str_of(c->options));
    xl_error *err = xl_file_read_plain(&arena, c->file, FILE_MAX, &file);
    if (err)
        return err;
    char *text = xl_new(&arena, char, 2 * file.n + 1);
    memcpy(text, file.p, file.n);
    size_t n = given(words, option);
    option[n++] = (xl_named){ .name = XL_STR("xla_gpu_enable_triton_gemm"), .kind = XL_NAMED_BOOL, .b = false };
    if (measure) {
        as_measured(text);
        snprintf(dump, sizeof dump, "/tmp/turns-%d.txt", (int)getpid());
        option[n++] = (xl_named){
            .name = XL_STR("xla_gpu_dump_autotune_results_to"), .kind = XL_NAMED_STR, .str = xl_str_of(dump)
        };
    } else
        option[n++] = (xl_named){ .name = XL_STR("xla_gpu_deterministic_ops"), .kind = XL_NAMED_BOOL, .b = true };
    xl_options_build(&options, &(xl_options){ .replicas = 1, .partitions = 1, .option = option, .noption = n });
    xl_program_free(c->p);
    c->p = NULL;
    err = xl_program_compile(client, xl_str_of(text), XL_FORMAT_MLIR, xl_buf_view(&options), &c->p);
    xl_buf_fini(&options);
    if (measure)
        xl_error_free(xl_file_remove(dump));
    return err;
}

static void prepare(contender *c)
{
    xl_program_memory m;
    const xl_output *out;
    size_t nout;
    const double at = xl_now();
    xl_error *err = strstr(c->options, "unmeasured") ? NULL : compile(c, true);
    const double measured = xl_now() - at;
    if (!err)
        err = compile(c, false);
    if (err) {
        printf("%-14s %.300s\n", c->name, xl_error_message(err));
        xl_error_free(err);
        xl_program_free(c->p);
        c->p = NULL;
        return;
    }
    need(xl_executable_memory(xl_program_executable(c->p), &m), c->name);
    need(xl_executable_outputs(xl_program_executable(c->p), &arena, &out, &nout), c->name);
    nmetric = (size_t)out[nout - 1].dims.p[0];
    printf("%-14s measured in %.2f s, compiled in %.2f s; temporaries %.0f, all %.0f MiB  %s\n", c->name, measured,
           xl_now() - at - measured, (double)m.temporary / 0x1p20, (double)m.needs / 0x1p20, c->options);
    fflush(stdout);
}

/* ---- the state --------------------------------------------------------------------------------------------------- */
static uint64_t drawn(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void put(size_t i, const void *data)
{
    xl_buffer_free(state[i]);
    need(xl_buffer_from_host(device, arg[i].elem, (xl_dims){ arg[i].dim, arg[i].rank }, data, NULL, &state[i]),
         "an argument");
}

/* Ids with probability 1 / rank, over ids in some order. */
static void draw_tokens(int32_t *out, size_t n, int vocab)
{
    double *sum = xl_new(&arena, double, (size_t)vocab), all = 0;
    int *id = xl_new(&arena, int, (size_t)vocab);
    for (int i = 0; i < vocab; i++) {
        sum[i] = all += 1. / (i + 1);
        id[i] = i;
    }
    for (int i = vocab - 1; i > 0; i--) {
        int j = (int)(drawn() % (uint64_t)(i + 1)), t = id[i];
        id[i] = id[j];
        id[j] = t;
    }
    for (size_t i = 0; i < n; i++) {
        double x = (double)(drawn() >> 11) * 0x1p-53 * all;
        int lo = 0, hi = vocab - 1;
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (sum[mid] < x)
                lo = mid + 1;
            else
                hi = mid;
        }
        out[i] = id[lo];
    }
}

/* The arguments of a step: parameters, first and second moments, counters, hyper, tokens, targets, segments and
 * positions. The first parameter is the table. */
static void begin(void)
{
    const size_t n = (narg - INPUTS) / 3, ntoken = arg[3 * n + 2].count;
    float hyper[XL_HYPER_COUNT];
    size_t most = 0;
    seed = 88172645463325252u;
    for (size_t i = 0; i < narg; i++)
        most = arg[i].count > most ? arg[i].count : most;
    float *value = malloc(most * sizeof *value), *zero = calloc(most, sizeof *zero);
    int32_t *token = malloc((ntoken + 1) * sizeof *token), *number = malloc(ntoken * sizeof *number);
    if (!value || !zero || !token || !number)
        exit(1);
    for (size_t i = 0; i < n; i++) {
        const argument *a = &arg[i];
        const bool gain = a->rank == 1 || (a->rank == 2 && a->dim[0] <= 512 && i > 0);
        const float by = i ? 1.5f / sqrtf((float)a->dim[a->rank == 3]) : 0.035f;
        for (size_t k = 0; k < a->count; k++)
            value[k] = gain ? 1 : ((float)(drawn() >> 40) * 0x1p-23f - 1) * by;
        put(i, value);
        put(n + i, zero);
        put(2 * n + i, zero);
    }
    put(3 * n, zero);
    xl_adamw adamw = xl_adamw_default();
    adamw.lr = 3e-4f;
    need(xl_hyper_fill(&adamw, hyper), "hyper");
    put(3 * n + 1, hyper);
    draw_tokens(token, ntoken + 1, (int)arg[0].dim[0]);
    put(3 * n + 2, token);
    put(3 * n + 3, token + 1);
    for (size_t i = 0; i < ntoken; i++)
        number[i] = 1;
    put(3 * n + 4, number);
    for (size_t i = 0; i < ntoken; i++)
        number[i] = (int32_t)(i % (size_t)arg[3 * n + 2].dim[1]);
    put(3 * n + 5, number);
    nstate = 3 * n + 1;
    free(value);
    free(zero);
    free(token);
    free(number);
}

static void step(const contender *c, bool wait)
{
    xl_buffer *out[ARGS_MAX] = { 0 }, *const *in[] = { state }, **const outs[] = { out };
    need(xl_program_execute(c->p, &(xl_exec){ .ndevice = 1, .narg = narg, .arg = in, .out = outs }), c->name);
    for (size_t i = 0; i < nstate; i++) {
        xl_buffer_free(state[i]);
        state[i] = out[i];
    }
    if (wait)
        need(xl_buffer_to_host(out[nstate], metric, nmetric * sizeof *metric, NULL), c->name);
    xl_buffer_free(out[nstate]);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */
static void open_device(const char *named)
{
    xl_plugin_choice choice;
    xl_plugin *plugin;
    const xl_named grow = { .name = XL_STR("preallocate"), .kind = XL_NAMED_BOOL, .b = false };
    setenv("TF_CPP_MIN_LOG_LEVEL", "1", 0);
    need(xl_plugin_find(&arena, &(xl_plugin_wish){ .named = named }, &choice), "finding the plugin");
    need(xl_plugin_load(choice.path, &plugin), "loading the plugin");
    const char *kind = xl_plugin_kind(choice.path);
    bool cuda = kind && !strcmp(kind, "cuda");
    need(xl_client_open(plugin, cuda ? &(xl_client_opts){ .option = &grow, .noption = 1 } : NULL, &client), "client");
    device = xl_client_local(client, 0);
}

static void measure(contender *c, int n, int rounds, int steps)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; c[i].p && k < 3; k++)
            step(&c[i], true);
    for (int r = 0; r < rounds; r++)
        for (int q = 0; q < n; q++) {
            contender *x = &c[r % 2 ? n - 1 - q : q];
            if (!x->p)
                continue;
            step(x, true);
            const double at = xl_now();
            for (int k = 0; k < steps; k++)
                step(x, k == steps - 1);
            x->ms[r] = (xl_now() - at) * 1e3 / steps;
        }
    for (int i = 0; i < n; i++) {
        double sum = 0, least = INFINITY;
        for (int r = 0; r < rounds; r++) {
            sum += c[i].ms[r];
            least = fmin(least, c[i].ms[r]);
        }
        if (!c[i].p)
            continue;
        printf("%-14s mean %.3f, least %.3f ms:", c[i].name, sum / rounds, least);
        for (int r = 0; r < rounds; r++)
            printf(" %.2f", c[i].ms[r]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    contender c[PROGRAMS_MAX] = { 0 };
    const int n = argc - 4, rounds = argc > 4 ? atoi(argv[2]) : 0, steps = argc > 4 ? atoi(argv[3]) : 0;
    if (n < 1 || n > PROGRAMS_MAX || rounds < 1 || rounds > ROUNDS_MAX || steps < 1) {
        fprintf(stderr, "usage: turns PLUGIN ROUNDS STEPS NAME:FILE[:OPTION=VALUE+...]...\n");
        return 2;
    }
    for (int i = 0; i < n; i++) {
        c[i].name = strtok(argv[4 + i], ":");
        c[i].file = strtok(NULL, ":");
        c[i].options = strtok(NULL, "");
        if (!c[i].file)
            return fprintf(stderr, "%s: NAME:FILE\n", argv[4 + i]), 2;
        c[i].options = c[i].options ? c[i].options : "";
    }
    xl_str text;
    open_device(argv[1]);
    need(xl_file_read_plain(&arena, c[0].file, FILE_MAX, &text), "the first program");
    read_arguments(xl_str_c(&arena, text));
    begin();
    for (int i = 0; i < n; i++)
        prepare(&c[i]);
    measure(c, n, rounds, steps);
    for (int i = 0; i < n; i++) {
        if (!c[i].p)
            continue;
        begin();
        for (int k = 0; k < 6; k++)
            step(&c[i], true);
        printf("%-14s sixth step: loss %.9g, norm %.9g\n", c[i].name, (double)metric[XL_AT_LOSS],
               (double)metric[XL_AT_GRAD_NORM]);
    }
    fflush(stdout);
    _exit(0);                            /* buffers and programs are as many as the device holds */
}
