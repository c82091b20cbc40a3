/* Several jobs may be open at a time. A poster takes a job, fills it, opens it (OPEN in `state`), bumps `epoch` and
 * wakes whoever sleeps on it. A thread that finds a job open counts itself into `state`, takes chunks until there are
 * none, and counts itself out. The chunks are cut into lanes, one for each thread: a thread empties its own before it
 * takes from others, so that of loops over the same data each thread gets the part that is in its own cache. A job has
 * seats for as many threads as it has chunks, so that of many threads those it has no work for do not pass its words
 * around among their caches; who has a chunk of its own sits down first. The poster closes the job when it finds no
 * more chunks, after which nobody can join, and waits for the count to drop to zero: only then is the job's memory free
 * to be filled again. */
#include "cpu/run/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "cpu/run/env.h"

#define OPEN 0x80000000u
#define CREW 0x40000000u /* its chunks post loops themselves */
#define INSIDE(state) ((state) & MOST)
#define FREE(state) ((state) >> 10 & MOST)
#define SEATS(state) ((state) >> 20 & MOST)
#define SEAT (1u << 10)
#define SEATED(n) ((unsigned)(n) << 20 | (unsigned)(n) << 10)
#define SPIN_MOST 100e-6 /* seconds */
enum { JOBS = 64, LANES = 64, MOST = 1023, LATE = 16 };

typedef struct {
    _Alignas(64) atomic_size_t next;
    size_t end;
} lane; /* chunks of a job: next to take, behind the last */

typedef struct {
    _Alignas(64) atomic_uint state;    /* OPEN | CREW | seats | free ones | threads inside */
    atomic_bool taken;                 /* by a poster */
    _Alignas(64) size_t n, grain, lanes;
    xl_pool_fn *fn;
    void *ctx;
    lane *lane;
} job;

struct xl_pool {
    _Alignas(64) xl_bell bell;         /* threads without work sleep on it */
    xl_bell *_Atomic also;             /* rings with it: between processes */
    atomic_int waker;                  /* the CPU of who woke them last, which they keep off */
    cpu_set_t cpus;                    /* that this process might use when the pool was made */
    atomic_bool quit;
    bool own_cores;                    /* no more threads than there are cores: who spins takes none from the others */
    atomic_size_t high;                /* jobs from here on were never taken */
    job job[JOBS];
    size_t lanes;                      /* of a job, at most */
    size_t threads;                    /* beside the caller */
    pthread_t *thread;
    lane lane[];                       /* of all jobs */
};

static _Thread_local bool inside;

static void futex_wait(atomic_uint *word, unsigned seen, const struct timespec *most)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, seen, most, NULL, 0);
}

static void futex_wake(atomic_uint *word, size_t n)
{
    syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, n < INT32_MAX ? (int)n : INT32_MAX, NULL, NULL, 0);
}

static bool take_chunks(job *j, bool crew, size_t own)
{
    bool some = false;
    inside = !crew;
    for (size_t k = 0; k < j->lanes; k++) {
        lane *l = &j->lane[(own + k) % j->lanes];
        while (atomic_load_explicit(&l->next, memory_order_relaxed) < l->end) {
            size_t i = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed);
            if (i >= l->end)
                break;
            size_t begin = i * j->grain, left = j->n - begin;
            j->fn(j->ctx, begin, begin + (left < j->grain ? left : j->grain));
            some = true;
        }
    }
    inside = false;
    return some;
}

/* One with a `first` beyond the seats waits a moment: their chunks are others' own. */
static bool join(job *j, size_t first, unsigned refused)
{
    unsigned s = atomic_load(&j->state);
    for (int i = 0; i < LATE && (s & OPEN) && !(s & refused) && FREE(s) && first > SEATS(s); i++) {
        xl_cpu_pause();
        s = atomic_load_explicit(&j->state, memory_order_relaxed);
    }
    while ((s & OPEN) && !(s & refused) && FREE(s))
        if (atomic_compare_exchange_weak(&j->state, &s, s + 1 - SEAT))
            return true;
    return false;
}

/* Chunks of every open job, beginning with one that differs from thread to thread. False: there were none. */
static bool help(xl_pool *p, size_t first, bool crews)
{
    bool some = false;
    size_t high = atomic_load_explicit(&p->high, memory_order_acquire);
    for (size_t i = 0; i < high; i++) {
        job *j = &p->job[(first + i) % high];
        if (!join(j, first, crews ? 0 : CREW))
            continue;
        some |= take_chunks(j, atomic_load_explicit(&j->state, memory_order_relaxed) & CREW, first);
        unsigned s = atomic_fetch_sub(&j->state, 1);
        if (!(s & OPEN) && INSIDE(s) == 1)                   /* closed, and we were the last */
            futex_wake(&j->state, 1);
    }
    return some;
}

/* Waits for the next loop and returns how long to look for the one after it before sleeping. Between the loops of one
 * program, and between short programs that a frontend runs one after another, there are some 10 to 100 us, and to be
 * woken may take as long: who was woken that soon looks for longer the next time, and who sleeps for long soon looks no
 * longer than before. */
static double rest(xl_pool *p, unsigned seen, double spin)
{
    double from = xl_now();
    if (!xl_bell_wait(&p->bell, seen, spin, -1, false))
        return spin;
    if (p->own_cores && xl_now() - from < SPIN_MOST)
        return SPIN_MOST;
    return spin / 2 < XL_BELL_SPIN ? XL_BELL_SPIN : spin / 2;
}

typedef struct { xl_pool *p; size_t k; } worker;

static void *work(void *arg)
{
    worker w = *(worker *)arg;
    free(arg);
    double spin = XL_BELL_SPIN;
    while (!atomic_load(&w.p->quit)) {
        unsigned seen = xl_bell_news(&w.p->bell);
        if (!help(w.p, w.k + 1, true) && !atomic_load(&w.p->quit))
            spin = rest(w.p, seen, spin);
    }
    return NULL;
}

static size_t default_size(void)
{
    double set_to = xl_env_get(XL_ENV_THREADS, 0);
    if (set_to)
        return (size_t)set_to;
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (size_t)n;
}

static bool start(xl_pool *p, size_t k)
{
    worker *w = malloc(sizeof *w);
    if (!w)
        return false;
    *w = (worker){ p, k };
    if (pthread_create(&p->thread[k], NULL, work, w) == 0)
        return true;
    free(w);
    return false;
}

xl_pool *xl_pool_new(size_t n)
{
    if (n == 0)
        n = default_size();
    size_t lanes = n < LANES ? n : LANES, bytes = sizeof(xl_pool) + JOBS * lanes * sizeof(lane);
    xl_pool *p = aligned_alloc(64, bytes);
    if (!p)
        return NULL;
    memset(p, 0, bytes);
    p->thread = calloc(n, sizeof *p->thread);
    if (!p->thread) {
        free(p);
        return NULL;
    }
    p->lanes = lanes;
    for (size_t i = 0; i < JOBS; i++)
        p->job[i].lane = p->lane + i * lanes;
    p->waker = -1;
    if (sched_getaffinity(0, sizeof p->cpus, &p->cpus))
        CPU_ZERO(&p->cpus);
    p->own_cores = n <= (size_t)CPU_COUNT(&p->cpus);
    while (p->threads + 1 < n && start(p, p->threads))
        p->threads++;
    return p;
}

void xl_pool_free(xl_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    xl_pool_tell(p, INT32_MAX);
    for (size_t i = 0; i < p->threads; i++)
        pthread_join(p->thread[i], NULL);
    free(p->thread);
    free(p);
}

size_t xl_pool_size(const xl_pool *p)
{
    return p ? p->threads + 1 : 1;
}

static job *take_job(xl_pool *p)
{
    for (size_t i = 0; i < JOBS; i++) {
        job *j = &p->job[i];
        if (atomic_load_explicit(&j->taken, memory_order_relaxed) || atomic_exchange(&j->taken, true))
            continue;
        size_t high = atomic_load_explicit(&p->high, memory_order_relaxed);
        while (high <= i && !atomic_compare_exchange_weak(&p->high, &high, i + 1))
            ;
        return j;
    }
    return NULL;
}

static void run(xl_pool *p, job *j, unsigned kind, size_t n, size_t grain, size_t chunks, xl_pool_fn *fn, void *ctx)
{
    j->n = n;
    j->grain = grain;
    j->lanes = chunks < p->lanes ? chunks : p->lanes;
    j->fn = fn;
    j->ctx = ctx;
    for (size_t i = 0, at = 0; i < j->lanes; i++) {
        atomic_store_explicit(&j->lane[i].next, at, memory_order_relaxed);
        at += chunks / j->lanes + (i < chunks % j->lanes);
        j->lane[i].end = at;
    }
    atomic_store(&j->state, OPEN | kind | SEATED(chunks - 1 < MOST ? chunks - 1 : MOST));
    xl_pool_tell(p, chunks - 1);
    take_chunks(j, kind, 0);
    unsigned s = atomic_fetch_and(&j->state, ~OPEN) & ~OPEN;
    double end = INSIDE(s) ? xl_now() + (p->own_cores ? SPIN_MOST : XL_BELL_SPIN) : 0;
    while (INSIDE(s) && xl_now() < end)
        s = xl_bell_look(&j->state, s, XL_BELL_SPIN);
    while (INSIDE(s)) {
        futex_wait(&j->state, s, NULL);
        s = atomic_load_explicit(&j->state, memory_order_acquire);
    }
    atomic_store_explicit(&j->taken, false, memory_order_release);
}

void xl_pool_for(xl_pool *p, size_t n, size_t grain, xl_pool_fn *fn, void *ctx)
{
    if (n == 0)
        return;
    if (grain == 0)
        grain = 1;
    size_t chunks = (n - 1) / grain + 1;
    job *j = NULL;
    if (chunks == 1)
        fn(ctx, 0, n);
    else if (p && p->threads && !inside && (j = take_job(p)))
        run(p, j, 0, n, grain, chunks, fn, ctx);
    else
        for (size_t i = 0; i < chunks; i++)
            fn(ctx, i * grain, i + 1 < chunks ? (i + 1) * grain : n);
}

void xl_pool_crew(xl_pool *p, size_t most, xl_pool_fn *fn, void *ctx)
{
    size_t n = xl_pool_size(p) < most ? xl_pool_size(p) : most;
    job *j = NULL;
    if (n > 1 && !inside && (j = take_job(p)))
        run(p, j, CREW, n, 1, n, fn, ctx);
    else
        fn(ctx, 0, 1);
}

/* Where CPUs share no cache that it knows of, the kernel may wake a thread on the CPU of the one who wakes it, and
 * there it waits for milliseconds until the other stops or is interrupted, with the next CPU idle. So the few threads
 * of a small pool keep off that CPU. */
static void keep_off(xl_pool *p)
{
    enum { FEW = 8 };
    int here = p->threads < FEW ? sched_getcpu() : -1;
    if (here < 0 || here >= CPU_SETSIZE || !CPU_ISSET(here, &p->cpus) || CPU_COUNT(&p->cpus) < 2 ||
        atomic_exchange(&p->waker, here) == here)
        return;
    cpu_set_t others = p->cpus;
    CPU_CLR(here, &others);
    for (size_t i = 0; i < p->threads; i++)
        pthread_setaffinity_np(p->thread[i], sizeof others, &others);
}

unsigned xl_pool_news(const xl_pool *p) { return p ? xl_bell_news(&((xl_pool *)(uintptr_t)p)->bell) : 0; }

void xl_pool_tell(xl_pool *p, size_t n)
{
    if (!p)
        return;
    if (n && atomic_load(&p->bell.sleepers))
        keep_off(p);
    xl_bell_ring(&p->bell, n, false);
    xl_bell *also = atomic_load(&p->also);
    if (also)
        xl_bell_ring(also, n ? SIZE_MAX : 0, true); /* those of other crews sleep there too */
}

void xl_pool_link(xl_pool *p, xl_bell *also)
{
    if (p)
        atomic_store(&p->also, also);
}

bool xl_pool_help(xl_pool *p) { return p && help(p, 0, false); }

bool xl_pool_rest(xl_pool *p, unsigned seen, int64_t ms)
{
    if (!p)
        return nanosleep(&(struct timespec){ (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 }, NULL), false;
    if (xl_pool_help(p))
        return true;
    xl_bell_wait(&p->bell, seen, XL_BELL_SPIN, ms, false);
    return false;
}

void *xl_data_alloc(size_t bytes)
{
    enum { LINE = 64, LARGE = 2 << 20, WORTH = 1 << 20 };
    if (bytes > SIZE_MAX - LINE)
        return NULL;
    size_t whole = (bytes + LINE - 1) & ~(size_t)(LINE - 1);
#if defined(__x86_64__) && defined(MADV_HUGEPAGE)
    void *p = NULL;
    if (bytes >= WORTH && posix_memalign(&p, LARGE, whole) == 0) {
        madvise(p, whole & ~(size_t)4095, MADV_HUGEPAGE);  /* a wish: the memory is good without it */
        return p;
    }
#endif
    return aligned_alloc(LINE, whole);
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
        free(s->p[slot]);
        s->n[slot] = 0;
        s->p[slot] = xl_data_alloc(bytes);
        if (s->p[slot])
            s->n[slot] = bytes;
    }
    return s->p[slot];
}
