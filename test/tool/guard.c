/* What the tests of the guard drive: a small frontend of its own, quick to start, with several threads if asked.
 *   guard PLUGIN ROUNDS THREADS [SEED [HABIT [PATH]]]
 * Each round compiles one of a few programs, runs it on known numbers and checks the answer; at the end one line with a
 * sum over all results goes to standard output, which must be the same with the guard, without it, and under every
 * fault. Habits of programs that the guard lives in, between a first and a second turn of ROUNDS:
 *   closes PATH   closes every descriptor, standard ones too, and opens files of its own, PATH.0 to PATH.39, under
 *                 their numbers
 *   daemonizes    again and again closes every descriptor and opens three, which must get the numbers 0 to 2
 *   forks         has three children that exit at once
 *   chroots PATH  makes PATH its root
 *   names         gives every program of the second turn a name of its own; prints by how many KiB each half grew */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "pjrt/options.h"
#include "pjrt/program.h"

enum { PROGRAMS = 6, N = 16 };

typedef struct { xl_client *c; int rounds, seed; double sum; xl_error *err; } job;

static xl_error *one(xl_client *c, int k, const char *name, double *sum)
{
    xl_error *err = NULL;
    xl_buf text = { 0 }, options = { 0 };
    xl_program *p = NULL;
    xl_buffer *in = NULL, *out = NULL;
    float x[N], y[N];
    xl_buf_printf(&text,
                  "module @%s { func.func public @main(%%a: tensor<4x4xf32>) -> tensor<4x4xf32> {\n"
                  "  %%c = stablehlo.constant dense<%d.0> : tensor<4x4xf32>\n"
                  "  %%0 = stablehlo.multiply %%a, %%c : tensor<4x4xf32>\n"
                  "  %%1 = stablehlo.add %%0, %%a : tensor<4x4xf32>\n"
                  "  return %%1 : tensor<4x4xf32>\n"
                  "} }\n",
                  name, k + 2);
    xl_options_build(&options, &(xl_options){ 0 });
    XL_DO(xl_program_compile(c, xl_buf_view(&text), XL_FORMAT_MLIR, xl_buf_view(&options), &p));
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    int64_t dims[] = { 4, 4 };
    XL_DO(xl_buffer_from_host(xl_client_local(c, 0), XL_ELEM_F32, (xl_dims){ dims, 2 }, x, NULL, &in));
    xl_buffer *const args[] = { in }, *const *const rows[] = { args };
    xl_buffer **const outs[] = { &out };
    XL_DO(xl_program_execute(p, &(xl_exec){ .ndevice = 1, .narg = 1, .arg = rows, .out = outs }));
    XL_DO(xl_buffer_to_host(out, y, sizeof y, NULL));
    for (int i = 0; i < N; i++) {
        if (y[i] != (float)i * (float)(k + 3)) {
            err = XL_ERR(DATA_LOSS, "program %d gave %g for %d", k, (double)y[i], i);
            goto out;
        }
        *sum += (double)y[i];
    }
out:
    xl_buffer_free(in);
    xl_buffer_free(out);
    xl_program_free(p);
    xl_buf_fini(&text);
    xl_buf_fini(&options);
    return err;
}

static void work(void *arg)
{
    job *j = arg;
    for (int i = 0; i < j->rounds && !j->err; i++)
        j->err = one(j->c, (j->seed + i) % PROGRAMS, "jit_step", &j->sum);
}

enum { FILES = 40 };

/* What each of its files must hold at the end, whatever else the process has loaded. */
static xl_error *close_all(xl_client *c, int rounds, const char *path, double *sum)
{
    xl_error *err = NULL;
    char name[4096], text[64];
    closefrom(0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%s.%d", path, i);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
        if (fd != i)                                       /* another thread held the number, if for an instant */
            _exit(7);
    }
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < FILES; i++) {
            int n = snprintf(text, sizeof text, "user data %d of file %d\n", turn, i);
            if (write(i, text, (size_t)n) != n)
                _exit(8);
        }
        for (int i = 0; i < rounds; i++)
            XL_DO(one(c, i % PROGRAMS, turn ? "jit_other" : "jit_step", sum));
        usleep(100000);
    }
out:
    return err;
}

/* Each time the numbers must be those that are free, whatever threads there are. */
static xl_error *daemonize(xl_client *c, int rounds, double *sum)
{
    xl_error *err = NULL;
    for (int turn = 0; turn < 200; turn++) {
        closefrom(0);
        usleep(12000);
        for (int i = 0; i < 3; i++)
            if (open("/dev/null", O_RDWR) != i)
                _exit(7);
        if (turn % 100 == 0)
            for (int i = 0; i < rounds; i++)
                XL_DO(one(c, (rounds + i) % PROGRAMS, "jit_step", sum));
    }
out:
    return err;
}

static long resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static xl_error *second_turn(xl_client *c, int rounds, const char *habit, const char *path, double *sum)
{
    xl_error *err = NULL;
    if (!strcmp(habit, "closes"))
        return close_all(c, rounds, path, sum);
    if (!strcmp(habit, "daemonizes"))
        return daemonize(c, rounds, sum);
    if (!strcmp(habit, "forks"))
        for (int i = 0; i < 3; i++) {
            pid_t pid = fork();
            if (pid == 0)
                exit(0);
            waitpid(pid, NULL, 0);
        }
    if (!strcmp(habit, "chroots") && (chroot(path) || chdir("/")))
        return XL_ERR(PERMISSION, "chroot to %s", path);
    long before = resident(), half = before;
    for (int i = 0; i < rounds; i++) {
        char name[32] = "jit_step";
        if (!strcmp(habit, "names"))
            snprintf(name, sizeof name, "jit_name_%c%d", 'a' + i % 26, i);
        XL_DO(one(c, i % PROGRAMS, name, sum));
        if (i + 1 == rounds / 2)
            half = resident();
    }
    if (!strcmp(habit, "names"))
        printf("grew %ld KiB, then %ld KiB\n", half - before, resident() - half);
out:
    return err;
}

int main(int argc, char **argv)
{
    xl_error *err = NULL;
    xl_plugin *p;
    xl_client *c = NULL;
    job jobs[64] = { 0 };
    xl_thread t[64];
    double sum = 0;
    if (argc < 4) {
        fprintf(stderr, "usage: guard PLUGIN ROUNDS THREADS [SEED [HABIT [PATH]]]\n");
        return 2;
    }
    int rounds = atoi(argv[2]), threads = atoi(argv[3]), seed = argc > 4 ? atoi(argv[4]) : 0;
    XL_DO(xl_plugin_load(argv[1], &p));
    XL_DO(xl_plugin_init(p));
    XL_DO(xl_client_open(p, NULL, &c));
    for (int i = 0; i < threads && i < 64; i++) {
        jobs[i] = (job){ c, rounds, seed + i, 0, NULL };
        XL_DO(xl_thread_start(&t[i], "driver", work, &jobs[i]));
    }
    for (int i = 0; i < threads && i < 64; i++)
        xl_thread_join(&t[i]);
    for (int i = 0; i < threads && i < 64; i++) {
        sum += jobs[i].sum;
        if (jobs[i].err && !err)
            err = jobs[i].err;
    }
    if (argc > 5 && !err)
        err = second_turn(c, rounds, argv[5], argc > 6 ? argv[6] : "", &sum);
    if (argc <= 5 || strcmp(argv[5], "closes"))            /* its standard output is a file of data then */
        printf("sum %.1f\n", sum);
out:
    xl_client_close(c);
    if (err)
        fprintf(stderr, "guard: %s\n", xl_error_message(err));
    return err ? 1 : 0;
}
