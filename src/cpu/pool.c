/* One job at a time. The poster fills the job, opens it (OPEN in `state`), bumps `epoch` and wakes whoever sleeps on it. A
 * worker that finds the job open counts itself into `state`, takes chunks until there are none, and counts itself out. The
 * poster closes the job when it finds no more chunks, after which nobody can join, and waits for the count to drop to
 * zero: only then is the job's memory free to be filled again. */
#include "cpu/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPEN 0x80000000u
#define SPINS 1500 /* some 10 to 30 us */

struct xl_pool {
    _Alignas(64) atomic_uint epoch;    /* changes when there is news; workers sleep on it */
    atomic_uint sleepers;
    atomic_bool quit;
    _Alignas(64) atomic_uint state;    /* OPEN | workers inside */
    _Alignas(64) atomic_size_t next;   /* chunk to take */
    _Alignas(64) size_t n, grain, chunks;
    xl_pool_fn *fn;
    void *ctx;
    pthread_mutex_t busy;              /* held by the poster */
    size_t threads;                    /* beside the caller */
    pthread_t thread[];
};

static _Thread_local bool inside;

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void take_chunks(xl_pool *p)
{
    inside = true;
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (i >= p->chunks)
            break;
        size_t begin = i * p->grain, left = p->n - begin;
        p->fn(p->ctx, begin, begin + (left < p->grain ? left : p->grain));
    }
    inside = false;
}

static void *work(void *arg)
{
    xl_pool *p = arg;
    unsigned seen = 0;
    for (;;) {
        unsigned now = atomic_load_explicit(&p->epoch, memory_order_acquire);
        for (int i = 0; now == seen && i < SPINS; i++) {
            pause_cpu();
            now = atomic_load_explicit(&p->epoch, memory_order_acquire);
        }
        while (now == seen) {
            atomic_fetch_add(&p->sleepers, 1);               /* before the kernel compares, so the poster sees it or we see the epoch */
            futex_wait(&p->epoch, seen);
            atomic_fetch_sub(&p->sleepers, 1);
            now = atomic_load_explicit(&p->epoch, memory_order_acquire);
        }
        seen = now;
        if (atomic_load(&p->quit))
            return NULL;
        unsigned s = atomic_load(&p->state);
        while ((s & OPEN) && !atomic_compare_exchange_weak(&p->state, &s, s + 1))
            ;
        if (!(s & OPEN))
            continue;
        take_chunks(p);
        if (atomic_fetch_sub(&p->state, 1) == 1)             /* closed, and we were the last */
            futex_wake(&p->state, 1);
    }
}

static size_t default_size(void)
{
    const char *env = getenv("XLANE_CPU_THREADS");
    char *end;
    if (env && *env) {
        errno = 0;
        long n = strtol(env, &end, 10);
        if (!errno && !*end && n >= 1 && n <= 1024)
            return (size_t)n;
    }
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (size_t)n;
}

xl_pool *xl_pool_new(size_t n)
{
    if (n == 0)
        n = default_size();
    size_t bytes = (sizeof(xl_pool) + n * sizeof(pthread_t) + 63) & ~(size_t)63;
    xl_pool *p = aligned_alloc(64, bytes);
    if (!p)
        return NULL;
    *p = (xl_pool){ .threads = 0 };
    pthread_mutex_init(&p->busy, NULL);
    while (p->threads + 1 < n && pthread_create(&p->thread[p->threads], NULL, work, p) == 0)
        p->threads++;
    return p;
}

void xl_pool_free(xl_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    atomic_fetch_add(&p->epoch, 1);
    futex_wake(&p->epoch, INT32_MAX);
    for (size_t i = 0; i < p->threads; i++)
        pthread_join(p->thread[i], NULL);
    pthread_mutex_destroy(&p->busy);
    free(p);
}

size_t xl_pool_size(const xl_pool *p)
{
    return p ? p->threads + 1 : 1;
}

void xl_pool_for(xl_pool *p, size_t n, size_t grain, xl_pool_fn *fn, void *ctx)
{
    if (n == 0)
        return;
    if (grain == 0)
        grain = 1;
    size_t chunks = (n - 1) / grain + 1;
    if (chunks == 1) {
        fn(ctx, 0, n);
        return;
    }
    if (!p || p->threads == 0 || inside || pthread_mutex_trylock(&p->busy) != 0) {
        for (size_t i = 0; i < chunks; i++)
            fn(ctx, i * grain, i + 1 < chunks ? (i + 1) * grain : n);
        return;
    }
    p->n = n;
    p->grain = grain;
    p->chunks = chunks;
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store(&p->state, OPEN);
    atomic_fetch_add(&p->epoch, 1);
    if (atomic_load(&p->sleepers))
        futex_wake(&p->epoch, chunks - 1 < p->threads ? (int)(chunks - 1) : INT32_MAX);
    take_chunks(p);
    unsigned s = atomic_fetch_and(&p->state, ~OPEN) & ~OPEN;
    for (int i = 0; s && i < SPINS; i++) {
        pause_cpu();
        s = atomic_load_explicit(&p->state, memory_order_acquire);
    }
    while (s) {
        futex_wait(&p->state, s);
        s = atomic_load_explicit(&p->state, memory_order_acquire);
    }
    pthread_mutex_unlock(&p->busy);
}

typedef struct { void *p[XL_SCRATCH_SLOTS]; size_t n[XL_SCRATCH_SLOTS]; } scratch;

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static bool scratch_ready;

static void scratch_free(void *arg)
{
    scratch *s = arg;
    for (int i = 0; i < XL_SCRATCH_SLOTS; i++)
        free(s->p[i]);
    free(s);
}

static void scratch_init(void)
{
    scratch_ready = pthread_key_create(&scratch_key, scratch_free) == 0;
}

void *xl_scratch(unsigned slot, size_t bytes)
{
    pthread_once(&scratch_once, scratch_init);
    if (!scratch_ready)
        return NULL;
    scratch *s = pthread_getspecific(scratch_key);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            return NULL;
        if (pthread_setspecific(scratch_key, s) != 0) {
            free(s);
            return NULL;
        }
    }
    if (s->n[slot] < bytes) {
        if (bytes > SIZE_MAX - 4096)
            return NULL;
        free(s->p[slot]);
        s->n[slot] = 0;
        s->p[slot] = aligned_alloc(64, (bytes + 4095) & ~(size_t)4095);
        if (s->p[slot])
            s->n[slot] = bytes;
    }
    return s->p[slot];
}
