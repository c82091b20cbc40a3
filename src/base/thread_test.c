#include "base/thread.h"
#include "base/time.h"
#include "base/test.h"

static xl_mutex lock = XL_MUTEX_INIT;
static xl_cond ready = XL_COND_INIT;
static xl_once once = XL_ONCE_INIT;
static int count, onces;
static atomic_int loose;

static void first(void) { onces++; }

static void work(void *arg)
{
    xl_once_run(&once, first);
    for (int i = 0; i < 1000; i++) {
        xl_mutex_lock(&lock);
        count += *(int *)arg;
        xl_mutex_unlock(&lock);
        atomic_fetch_add(&loose, 1);
    }
    xl_mutex_lock(&lock);
    xl_cond_wake_all(&ready);
    xl_mutex_unlock(&lock);
}

TEST(threads_count_together)
{
    enum { N = 4 };
    xl_thread t[N];
    int one = 1;
    for (int i = 0; i < N; i++)
        CHECK_OK(xl_thread_start(&t[i], "xlane-test-with-a-long-name", work, &one));
    xl_mutex_lock(&lock);
    while (count < N * 1000)
        xl_cond_wait(&ready, &lock);
    xl_mutex_unlock(&lock);
    for (int i = 0; i < N; i++)
        xl_thread_join(&t[i]);
    CHECK(count == N * 1000 && atomic_load(&loose) == N * 1000 && onces == 1);
    CHECK(xl_thread_cores() >= 1);
}

TEST(time_reads_as_utc)
{
    char b[XL_TIME_ISO];
    CHECK_STR(xl_time_iso(0, b), "1970-01-01T00:00:00Z");
    CHECK_STR(xl_time_iso(1700000000.9, b), "2023-11-14T22:13:20Z");
    CHECK_STR(xl_time_name(1700000000, b), "20231114-221320");
    CHECK_STR(xl_time_iso(-1, b), "?");
    CHECK_STR(xl_time_iso(1e300, b), "?");
    double t = xl_now();
    xl_sleep(0.02);
    CHECK(xl_now() - t >= 0.02);
    CHECK(xl_now_wall() > 1700000000);
}
