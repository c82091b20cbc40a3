#include "cpu/plan/timing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/run/env.h"

enum { KINDS = 512, NAME = 128 };
static struct { char name[NAME]; unsigned long long n; double s, own; } kinds[KINDS];
static uint32_t nkind;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int state;                                   /* 0: not asked yet, 1: off, 2: on */

static int by_time(const void *a, const void *b)
{
    double x = kinds[*(const uint32_t *)a].own, y = kinds[*(const uint32_t *)b].own;
    return (x < y) - (x > y);
}

static void print(void)
{
    uint32_t order[KINDS];
    for (uint32_t i = 0; i < nkind; i++)
        order[i] = i;
    qsort(order, nkind, sizeof *order, by_time);
    for (uint32_t i = 0; i < nkind; i++)
        fprintf(stderr, "%10.3f ms, %10.3f of the caller's CPU, %8llu x  %s\n", kinds[order[i]].s * 1e3,
                kinds[order[i]].own * 1e3, kinds[order[i]].n, kinds[order[i]].name);
}

bool xl_profile_on(void)
{
    int s = atomic_load_explicit(&state, memory_order_relaxed);
    if (s)
        return s == 2;
    bool on = xl_env_get(XL_ENV_PROFILE, 0) != 0;
    int none = 0;
    if (atomic_compare_exchange_strong(&state, &none, on ? 2 : 1) && on)
        atexit(print);
    return on;
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Its name, and for an op of its own the shapes that it works on: "stablehlo.dot_general 8x128,128x64->8x64". */
static void label(const xl_step *s, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "%s", s->name);
    bool own = !strcmp(s->name, "stablehlo.convolution") || !strcmp(s->name, "stablehlo.dot_general");
    for (uint32_t i = 0; own && i < 3 && at < room; i++) {
        const xl_extent *x = i < 2 ? xl_in_shape(s, i) : xl_out_shape(s, 0);
        at += (size_t)snprintf(out + at, room - at, "%s", i == 0 ? " " : i == 1 ? "," : "->");
        for (uint32_t k = 0; k < x->rank && at < room; k++)
            at += (size_t)snprintf(out + at, room - at, "%s%lld", k ? "x" : "", (long long)x->dims[k]);
    }
}

xl_error *xl_profile_run(const xl_step *s, xl_frame *f)
{
    char name[NAME];
    label(s, name, sizeof name);
    double t = seconds(CLOCK_MONOTONIC), own = seconds(CLOCK_THREAD_CPUTIME_ID);
    xl_error *err = s->run(s, f);
    /* a device that waits for others lets them run in its thread, and goes on in whichever is free */
    own = xl_ops[s->op ? s->op->code : XL_OP_UNKNOWN].flags & XL_OP_COLLECTIVE ? 0
                                                                               : seconds(CLOCK_THREAD_CPUTIME_ID) - own;
    t = seconds(CLOCK_MONOTONIC) - t;
    pthread_mutex_lock(&lock);
    uint32_t k = 0;
    while (k < nkind && strcmp(kinds[k].name, name))
        k++;
    if (k == nkind && nkind < KINDS) {
        memcpy(kinds[nkind].name, name, NAME);
        nkind++;
    }
    if (k < nkind) {
        kinds[k].n++;
        kinds[k].s += t;
        kinds[k].own += own;
    }
    pthread_mutex_unlock(&lock);
    return err;
}
