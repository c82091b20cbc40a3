#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { void (*fn)(void *); void *arg; char name[16]; } start_info;

static void *body(void *p)
{
    start_info s = *(start_info *)p;
    free(p);
    pthread_setname_np(pthread_self(), s.name);
    s.fn(s.arg);
    return NULL;
}

xl_error *xl_thread_start(xl_thread *t, const char *name, void (*fn)(void *arg), void *arg)
{
    start_info *s = malloc(sizeof *s);
    if (!s)
        return XL_ERR(EXHAUSTED, "no memory for the thread %s", name);
    *s = (start_info){ .fn = fn, .arg = arg };
    snprintf(s->name, sizeof s->name, "%s", name);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int e = pthread_create(&t->t, NULL, body, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e) {
        free(s);
        return XL_ERR(EXHAUSTED, "starting the thread %s: %s", name, strerror(e));
    }
    return NULL;
}

void xl_thread_join(xl_thread *t) { pthread_join(t->t, NULL); }

int xl_thread_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}
