#include "cpu/run/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/test.h"

typedef struct { xl_pool *pool; atomic_uint hit[1000]; float part[64]; const float *x; atomic_size_t sum; } job;

static void mark(void *ctx, size_t b, size_t e)
{
    job *j = ctx;
    for (size_t i = b; i < e; i++)
        atomic_fetch_add(&j->hit[i], 1);
}

TEST(every_index_once)
{
    static job j;
    for (size_t threads = 1; threads <= 5; threads++) {
        xl_pool *p = xl_pool_new(threads);
        CHECK_INT(xl_pool_size(p), threads);
        for (size_t n = 0; n <= 1000; n += 37)
            for (size_t grain = 0; grain <= 130; grain += 13) {
                memset(&j, 0, sizeof j);
                xl_pool_for(p, n, grain, mark, &j);
                for (size_t i = 0; i < 1000; i++)
                    CHECK_INT(j.hit[i], i < n);
            }
        xl_pool_free(p);
    }
}

static void partial(void *ctx, size_t b, size_t e)
{
    job *j = ctx;
    float s = 0;
    for (size_t i = b; i < e; i++)
        s += j->x[i];
    j->part[b / 16] = s;
}

TEST(chunks_do_not_depend_on_threads)
{
    static float x[1000], first[64];
    for (int i = 0; i < 1000; i++)
        x[i] = 1.0f / (float)(i + 3);
    for (size_t threads = 1; threads <= 4; threads++) {
        xl_pool *p = threads == 1 ? NULL : xl_pool_new(threads);
        static job j;
        j = (job){ .x = x };
        xl_pool_for(p, 1000, 16, partial, &j);
        if (threads == 1)
            memcpy(first, j.part, sizeof first);
        CHECK(!memcmp(first, j.part, sizeof first));
        xl_pool_free(p);
    }
}

static void inner(void *ctx, size_t b, size_t e)
{
    atomic_fetch_add(&((job *)ctx)->sum, e - b);
}

static void outer(void *ctx, size_t b, size_t e)
{
    for (size_t i = b; i < e; i++)
        xl_pool_for(((job *)ctx)->pool, 10, 3, inner, ctx);
}

TEST(nested_runs_inline)
{
    static job j;
    j.pool = xl_pool_new(3);
    xl_pool_for(j.pool, 100, 1, outer, &j);
    CHECK_INT(j.sum, 1000);
    xl_pool_free(j.pool);
}

static void *caller(void *arg)
{
    for (int i = 0; i < 2000; i++)
        xl_pool_for(((job *)arg)->pool, 8, 1, inner, arg);
    return NULL;
}

TEST(many_callers)
{
    static job j;
    j.pool = xl_pool_new(3);
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], NULL, caller, &j) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    CHECK_INT(j.sum, 3 * 2000 * 8);
    xl_pool_free(j.pool);
}

typedef struct { xl_pool *pool; atomic_uint here; atomic_int together; } pair;

/* A chunk that waits, for a while, until as many are inside as there are threads. */
static void meet_two(void *ctx, size_t b, size_t e)
{
    pair *q = ctx;
    struct timespec a, t;
    (void)b, (void)e;
    atomic_fetch_add(&q->here, 1);
    clock_gettime(CLOCK_MONOTONIC, &a);
    do
        clock_gettime(CLOCK_MONOTONIC, &t);
    while (atomic_load(&q->here) < 4 && t.tv_sec - a.tv_sec < 20);
    if (atomic_load(&q->here) >= 4)
        atomic_store(&q->together, 1);
}

static void *two_chunks(void *arg)
{
    xl_pool_for(((pair *)arg)->pool, 2, 1, meet_two, arg);
    return NULL;
}

/* Two callers and two threads of the pool: each loop has a helper at the same time. */
TEST(several_loops_are_helped_at_once)
{
    static pair q;
    q.pool = xl_pool_new(3);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, two_chunks, &q) == 0);
    two_chunks(&q);
    pthread_join(t, NULL);
    CHECK_INT(q.together, 1);
    xl_pool_free(q.pool);
}

typedef struct { xl_pool *pool; atomic_int left, threads; job loop; } crew;

static void crewman(void *ctx, size_t b, size_t e)
{
    crew *c = ctx;
    (void)b, (void)e;
    atomic_fetch_add(&c->threads, 1);
    while (atomic_load(&c->left) > 0) {
        unsigned seen = xl_pool_news(c->pool);
        if (atomic_fetch_sub(&c->left, 1) > 0) {
            xl_pool_for(c->pool, 10, 3, inner, &c->loop);
            xl_pool_tell(c->pool, 1);
        } else {
            xl_pool_rest(c->pool, seen, 1);
        }
    }
}

TEST(a_crew_posts_loops)
{
    for (size_t threads = 1; threads <= 4; threads++) {
        static crew c;
        c = (crew){ .pool = xl_pool_new(threads), .left = 500 };
        xl_pool_crew(c.pool, SIZE_MAX, crewman, &c);
        CHECK_INT(c.loop.sum, 5000);
        CHECK(c.threads >= 1);
        xl_pool_free(c.pool);
    }
}

static long cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void *spinner(void *stop)
{
    while (!atomic_load((atomic_int *)stop))
        ;
    return NULL;
}

/* The control is a thread that does spin, over the same time: under an emulator or on a busy machine both are slow
 * alike.
 * The pool has three such threads. One quiet try is enough; a pool that spins has none. */
TEST(idle_pool_does_not_spin)
{
    xl_pool *p = xl_pool_new(4);
    static job j;
    xl_pool_for(p, 8, 1, inner, &j);
    const struct timespec wait = { 0, 200000000 };
    long idle = 0, spun = 0;
    for (int try = 0; try < 5; try++) {
        nanosleep(&(struct timespec){ 0, 20000000 }, NULL);
        long a = cpu_us();
        nanosleep(&wait, NULL);
        idle = cpu_us() - a;
        atomic_int stop = 0;
        pthread_t t;
        CHECK(pthread_create(&t, NULL, spinner, &stop) == 0);
        a = cpu_us();
        nanosleep(&wait, NULL);
        spun = cpu_us() - a;
        atomic_store(&stop, 1);
        pthread_join(t, NULL);
        if (idle * 5 < spun)
            break;
    }
    if (idle * 5 >= spun)
        FAIL("an idle pool used %ld us of CPU time, a spinning thread %ld us in as long", idle, spun);
    xl_pool_free(p);
}

TEST(forked_child_runs_alone)
{
    xl_pool *p = xl_pool_new(3);
    static job j;
    pid_t pid = fork();
    if (pid == 0) {
        xl_pool_for(p, 50, 1, inner, &j);
        _exit(j.sum == 50 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    xl_pool_free(p);
}

TEST(environment_sets_the_size)
{
    setenv("XLANE_CPU_THREADS", "3", 1);
    xl_pool *p = xl_pool_new(0);
    CHECK_INT(xl_pool_size(p), 3);
    xl_pool_free(p);
    setenv("XLANE_CPU_THREADS", "many", 1);
    p = xl_pool_new(0);
    CHECK(xl_pool_size(p) >= 1);
    xl_pool_free(p);
    unsetenv("XLANE_CPU_THREADS");
}

TEST(scratch_is_kept_and_aligned)
{
    char *a = xl_scratch(0, 100), *b = xl_scratch(1, 100);
    CHECK(a && b && a != b);
    CHECK_INT((uintptr_t)a % 64, 0);
    CHECK(xl_scratch(0, 50) == a);
    CHECK(xl_scratch(0, SIZE_MAX) == NULL);
}
