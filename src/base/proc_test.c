#include "base/proc.h"
#include "base/test.h"
#include "base/time.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static xl_arena a;
static xl_proc_result r;

static xl_error *sh(const char *script, int ms)
{
    char *argv[] = { "sh", "-c", (char *)script, NULL };
    return xl_proc_run(&a, argv, NULL, ms, &r);
}

TEST(proc_gives_output_and_status)
{
    CHECK_OK(sh("echo out; echo err >&2; read x || echo no input; exit 3", 10000));
    CHECK(r.status == 3 && r.signal == 0 && !r.timed_out);
    CHECK_STR(r.out.p, "out\nno input\n");
    CHECK_STR(r.err.p, "err\n");
    CHECK(xl_str_is(xl_proc_words(&a, &r), "exited with 3"));
}

TEST(proc_that_ended_is_not_alive)
{
    siginfo_t ended;
    pid_t pid = fork();
    if (!pid)
        _exit(0);
    CHECK(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) == 0);   /* it has ended, and nobody waited for it */
    CHECK(!xl_pid_alive(pid) && xl_pid_alive(getpid()) && !xl_pid_alive(0) && !xl_pid_alive(-1));
    CHECK(waitid(P_PID, (id_t)pid, &ended, WEXITED) == 0 && !xl_pid_alive(pid));
}

TEST(proc_environment)
{
    char *argv[] = { "/bin/sh", "-c", "echo $A", NULL }, *env[] = { "A=b", NULL };
    CHECK_OK(xl_proc_run(&a, argv, env, 10000, &r));
    CHECK_STR(r.out.p, "b\n");
    char *none[] = { "/nowhere/at/all", NULL };
    CHECK_ERR(xl_proc_run(&a, none, NULL, 1000, &r), "starting /nowhere/at/all: No such file");
}

TEST(proc_time_limit_ends_it_and_its_children)
{
    CHECK_OK(sh("echo begun; (sleep 100 & echo $! >&2); sleep 100", 300));
    CHECK(r.timed_out && r.signal == SIGKILL && r.seconds < 10);
    CHECK_STR(r.out.p, "begun\n");
    int pid = atoi(r.err.p);
    CHECK(pid > 1);
    for (int i = 0; i < 200 && kill(pid, 0) == 0; i++) { /* dead at once, but reaped by whoever inherits it */
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *f = fopen(path, "r");
        if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1 || state == 'Z') {
            if (f)
                fclose(f);
            return;
        }
        fclose(f);
        usleep(10000);
    }
    CHECK(kill(pid, 0) != 0 && errno == ESRCH);
}

TEST(proc_does_not_wait_for_what_the_child_leaves_behind)
{
    CHECK_OK(sh("sleep 100 & exit 0", 20000));
    CHECK(r.status == 0 && r.seconds < 10);
}

TEST(proc_output_is_bounded)
{
    CHECK_OK(sh("head -c 100000 /dev/zero | tr '\\0' x >&2; echo end >&2; head -c 17000000 /dev/zero", 60000));
    CHECK_INT(r.status, 0);
    CHECK(r.out.n == XL_PROC_OUT_MAX && r.out_cut);
    CHECK(r.err.n == XL_PROC_ERR_MAX && r.err_cut && xl_str_ends(r.err, XL_STR("xend\n")));
}

static int speak(void *arg, int fd)
{
    printf("noise\n");
    fprintf(stderr, "more noise\n");
    return xl_proc_write(fd, arg, strlen(arg)) ? 7 : 1;
}

static int die(void *arg, int fd)
{
    (void)fd;
    fprintf(stderr, "last words: %s\n", (char *)arg);
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
    return 0;
}

static int hang(void *arg, int fd)
{
    (void)arg;
    (void)fd;
    for (;;)
        pause();
    return 0;
}

TEST(proc_calls_a_function_in_a_child)
{
    CHECK_OK(xl_proc_call(&a, speak, "answer", 10000, &r));
    CHECK(r.status == 7 && xl_str_is(r.out, "answer"));
    CHECK(strstr(r.err.p, "more noise\n") && strstr(r.err.p, "noise\n"));
    CHECK_OK(xl_proc_call(&a, die, "goodbye", 10000, &r));
    CHECK_INT(r.signal, SIGABRT);
    CHECK(xl_str_starts(r.err, XL_STR("last words: goodbye\n"))); /* an emulator adds a line of its own */
    CHECK(xl_str_is(xl_proc_words(&a, &r), "ended by signal 6 (Aborted)"));
    const int limit_ms = 100;
    double took = -xl_now();
    CHECK_OK(xl_proc_call(&a, hang, NULL, limit_ms, &r));
    took += xl_now();
    CHECK(r.timed_out && took * 1000 >= limit_ms && r.seconds <= took);
    CHECK(xl_str_eq(xl_proc_words(&a, &r), xl_strf(&a, "did not end within %.3g s", r.seconds)));
    r.seconds = 0.1;
    CHECK(xl_str_is(xl_proc_words(&a, &r), "did not end within 0.1 s"));
    xl_arena_fini(&a);
}
