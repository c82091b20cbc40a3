#include "cpu/run/ring.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "base/thread.h"

static char byte_of(size_t message, size_t i) { return (char)(message * 31 + i * 7); }
static size_t size_of(size_t message) { return message * 977 % 9000; }

typedef struct { size_t length; char text[16]; } head;
enum { MESSAGES = 20000 };

static void writer(void *arg)
{
    xl_ring *r = arg;
    static char data[9000];
    for (size_t k = 0; k < MESSAGES; k++) {
        head h = { .length = size_of(k) };
        for (size_t i = 0; i < h.length; i++)
            data[i] = byte_of(k, i);
        while (!xl_ring_put(r, &h, sizeof h, data, h.length))
            sched_yield();
    }
}

/* Messages of all sizes wrap around the end; the reader sees each of them whole. */
TEST(messages_come_whole_and_in_order)
{
    xl_ring *r = aligned_alloc(64, sizeof *r);
    memset(r, 0, sizeof *r);
    xl_thread t;
    char *data = malloc(9000);
    size_t bad = 0;
    CHECK_OK(xl_thread_start(&t, "writer", writer, r));
    for (size_t k = 0; k < MESSAGES; k++) {
        head h;
        size_t n;
        while (!(n = xl_ring_has(r)))
            sched_yield();
        CHECK(n >= sizeof h);
        xl_ring_peek(r, 0, &h, sizeof h);
        CHECK(h.length == size_of(k) && n >= sizeof h + h.length);
        xl_ring_peek(r, sizeof h, data, h.length);
        xl_ring_skip(r, sizeof h + h.length);
        for (size_t i = 0; i < h.length; i++)
            bad += data[i] != byte_of(k, i);
    }
    xl_thread_join(&t);
    CHECK_INT(bad, 0);
    CHECK_INT(xl_ring_has(r), 0);
    free(data);
    free(r);
}

TEST(what_does_not_fit_is_refused)
{
    xl_ring *r = aligned_alloc(64, sizeof *r);
    memset(r, 0, sizeof *r);
    char *big = calloc(1, XL_RING_BYTES + 1);
    CHECK(!xl_ring_put(r, big, 1, big, XL_RING_BYTES));
    CHECK(!xl_ring_put(r, big, 8, big, SIZE_MAX));
    CHECK(xl_ring_put(r, big, 8, big, XL_RING_BYTES - 8));
    CHECK(!xl_ring_put(r, big, 1, NULL, 0));
    CHECK_INT(xl_ring_has(r), XL_RING_BYTES);
    r->written += 1;                                       /* not by us: no ring */
    CHECK(xl_ring_has(r) == SIZE_MAX);
    CHECK(!xl_ring_put(r, big, 1, NULL, 0));
    free(big);
    free(r);
}
