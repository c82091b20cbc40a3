/* How a signal to the process group is told from one to this process alone: a second child, the witness, blocks all of
 * these signals and does nothing but answer whether one of them has come to it too. The kernel signals the newest
 * process of a group first, so the witness has it before we do. */
#include "cli/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int passed[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT };
enum { PASSED = sizeof passed / sizeof *passed };

static struct {
    sigset_t set, old;
    struct sigaction before[PASSED];
    bool installed;
    volatile sig_atomic_t child, stray;
    pid_t witness;
    int fd;                                                /* to the witness; -1: there is none */
} R = { .fd = -1 };

static bool came(int sig, long milliseconds)
{
    sigset_t one;
    struct timespec wait = { 0, milliseconds * 1000000 };
    int got;
    sigemptyset(&one);
    sigaddset(&one, sig);
    do
        got = sigtimedwait(&one, NULL, &wait);
    while (got < 0 && errno == EINTR);
    return got == sig;
}

static void witness(int fd, pid_t parent)
{
    unsigned char sig, yes;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "xlane-signals");
    signal(SIGTSTP, SIG_IGN);
    if (getppid() != parent)
        _exit(0);
    while (read(fd, &sig, 1) == 1) {
        yes = came(sig, 20);
        if (write(fd, &yes, 1) != 1)
            break;
    }
    _exit(0);
}

/* Whether the signal went to our process group. */
static bool to_group(int sig, const siginfo_t *info)
{
    unsigned char word = (unsigned char)sig, yes = 0;
    struct pollfd p = { R.fd, POLLIN, 0 };
    if (R.fd < 0 || write(R.fd, &word, 1) != 1 || poll(&p, 1, 1000) != 1 || read(R.fd, &yes, 1) != 1)
        return info->si_code > 0;                          /* the kernel's: from the keyboard */
    return yes || info->si_code > 0;
}

static void pass_on(int sig, siginfo_t *info, void *unused)
{
    int e = errno;
    pid_t child = (pid_t)R.child;
    (void)unused;
    bool shared = to_group(sig, info);
    if (child > 0 && shared && getpgid(child) == getpgrp())
        (void)came(sig, 0);                                /* `timeout` sends it to us, then to the group */
    else if (child > 0)
        kill(child, sig);
    else if (sig != SIGUSR1 && sig != SIGUSR2)
        R.stray = sig;
    errno = e;
}

void xl_relay_begin(void)
{
    int pair[2];
    pid_t parent = getpid();
    sigemptyset(&R.set);
    for (int i = 0; i < PASSED; i++)
        sigaddset(&R.set, passed[i]);
    sigprocmask(SIG_BLOCK, &R.set, &R.old);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return;
    R.fd = fcntl(pair[0], F_DUPFD_CLOEXEC, 3);             /* where 2 was closed, it is not taken for standard error */
    close(pair[0]);
    R.witness = R.fd < 0 ? -1 : fork();
    if (R.witness == 0) {
        close(R.fd);
        witness(pair[1], parent);
    }
    close(pair[1]);
    if (R.witness < 0 && R.fd >= 0) {
        close(R.fd);
        R.fd = -1;
    }
}

void xl_relay_child(void)
{
    for (int i = 0; R.installed && i < PASSED; i++)        /* nohup's SIGHUP stays ignored in a second attempt too */
        sigaction(passed[i], &R.before[i], NULL);
    sigprocmask(SIG_SETMASK, &R.old, NULL);
}

void xl_relay_to(pid_t child)
{
    struct sigaction act = { .sa_sigaction = pass_on, .sa_mask = R.set, .sa_flags = SA_SIGINFO | SA_RESTART };
    R.child = (sig_atomic_t)child;
    for (int i = 0; i < PASSED; i++)
        sigaction(passed[i], &act, R.installed ? NULL : &R.before[i]);
    R.installed = true;
    sigprocmask(SIG_SETMASK, &R.old, NULL);
}

int xl_relay_stray(void) { return R.stray; }

void xl_relay_end(void)
{
    R.child = R.stray = 0;
    if (R.fd < 0)
        return;
    close(R.fd);
    R.fd = -1;
    while (waitpid(R.witness, NULL, 0) < 0 && errno == EINTR)
        ;
}
