/* Processes that share devices, here as threads of one: what their collectives compute is what one process computes,
 * and a process that leaves, runs something else or does not come is named. */
#include "cpu/meet/meeting.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/test.h"
#include "base/thread.h"
#include "base/time.h"
#include "cpu/plan/lower.h"
#include "cpu/run/pool.h"
#include "ir/read.h"

enum { N = 4, PER = 2, ALL = N * PER };

/* A key-value store as JAX has one: get waits, put refuses to overwrite. */
static struct { xl_mutex lock; char key[64][64], value[64][512]; int n; } kv = { .lock = XL_MUTEX_INIT };
static xl_error *kv_put(void *ctx, const char *key, const char *value)
{
    xl_error *err = NULL;
    (void)ctx;
    xl_mutex_lock(&kv.lock);
    for (int i = 0; i < kv.n; i++)
        if (!strcmp(kv.key[i], key))
            err = XL_ERR(EXISTS, "there is a value for %s", key);
    if (!err && kv.n < 64) {
        snprintf(kv.key[kv.n], sizeof *kv.key, "%s", key);
        snprintf(kv.value[kv.n++], sizeof *kv.value, "%s", value);
    }
    xl_mutex_unlock(&kv.lock);
    return err;
}
static xl_error *kv_get(void *ctx, const char *key, int64_t ms, xl_buf *value)
{
    double until = xl_now() + (double)ms / 1000;
    (void)ctx;
    do {
        bool found = false;
        xl_mutex_lock(&kv.lock);
        for (int i = 0; i < kv.n && !found; i++)
            if ((found = !strcmp(kv.key[i], key)))
                xl_buf_puts(value, kv.value[i]);
        xl_mutex_unlock(&kv.lock);
        if (found)
            return NULL;
        xl_sleep(0.002);
    } while (xl_now() < until);
    return XL_ERR(DEADLINE, "no value for %s", key);
}

typedef struct {
    uint32_t me, epoch;
    const char *body, *other;                              /* other: what process 1 runs instead */
    int times;
    bool leaves;                                           /* process 1 closes its client after the first run */
    xl_mail *mail;
    xl_meet *meet;
    xl_plan *plan;
    float *x[ALL], *y[ALL];
    xl_error *err[ALL];
    size_t in, out;
    char told[2048];
    bool idles, kept_waiting;
} process;
static atomic_int named;

static xl_plan *plan_of(const char *body)
{
    xl_module *m;
    xl_plan *p;
    xl_buf b = { 0 };
    xl_buf_printf(&b, "func.func public @main(%%x: tensor<64xf32>) -> %s", body);
    CHECK_OK(xl_read_text(xl_buf_view(&b), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    CHECK_OK(xl_plan_new(m, ALL, &p));
    xl_buf_fini(&b);
    return p;
}

static void device(void *ctx, uint32_t k)
{
    process *w = ctx;
    xl_frame f = { .partition = k, .nreplica = 1, .npartition = ALL, .meet = w->meet };
    void *temp = aligned_alloc(64, (w->plan->temp_bytes + 128) & ~(size_t)63);
    w->err[k] = xl_plan_run(w->plan, &f, (void *[]){ w->x[k] }, (void *[]){ w->y[k] }, temp);
    free(temp);
    xl_meet_leave(w->meet, k, w->err[k]);
}
static void ended(void *ctx, uint32_t k) { (void)ctx, (void)k; }

/* All devices in one process when there is no mail. */
static void execute(process *w, xl_pool *pool, xl_fibers *fibers)
{
    uint32_t process[ALL];
    for (uint32_t d = 0; d < ALL; d++)
        process[d] = d / PER;
    xl_meet_far far = { w->mail, process, 7, "program" };
    xl_meet_task task = { w, device, ended };
    CHECK_OK(xl_meet_new(ALL, pool, w->mail ? &far : NULL, &w->meet));
    xl_meet_run(w->meet, fibers, &task);
    xl_meet_free(w->meet);
}

static void play(void *arg)
{
    process *w = arg;
    xl_pool *pool = xl_pool_new(w->me == 2 ? 1 : 2);
    xl_fibers *fibers = xl_fibers_new();
    bool alone = w->me == UINT32_MAX;
    if (!alone) {
        xl_mail_opts o = { .me = w->me, .n = N, .devices = PER, .epoch = w->epoch, .store = { NULL, kv_put, kv_get } };
        CHECK_OK(xl_mail_open(&o, &w->mail));
        xl_mail_serve(w->mail, pool);
    }
    w->plan = plan_of(w->me == 1 && w->other ? w->other : w->body);
    w->in = w->plan->arg[0].bytes / sizeof(float);
    w->out = w->plan->out[0].bytes / sizeof(float);
    for (uint32_t d = 0; d < ALL; d++) {
        w->x[d] = aligned_alloc(64, (w->in * sizeof(float) + 127) & ~(size_t)63);
        w->y[d] = aligned_alloc(64, (w->out * sizeof(float) + 127) & ~(size_t)63);
    }
    for (int t = 0; t < w->times; t++) {
        for (uint32_t d = 0; d < ALL; d++)
            for (size_t i = 0; i < w->in; i++)
                w->x[d][i] = (float)(100 * d + i + (size_t)t) * 0.37f;
        execute(w, pool, fibers);
        for (uint32_t d = 0; d < ALL; d++) {
            if (w->err[d] && !*w->told)
                snprintf(w->told, sizeof w->told, "%s", xl_error_message(w->err[d]));
            xl_error_free(w->err[d]);
            w->err[d] = NULL;
        }
        if (*w->told)
            atomic_fetch_add(&named, 1);
        if (*w->told || (w->leaves && w->me == 1))
            break;
        if (w->idles && w->me == 2) { /* alive, and in no program, until the others have ended */
            for (int k = 0; k < 1000 && atomic_load(&named) < 2; k++)
                xl_sleep(0.01);
            w->kept_waiting = atomic_load(&named) < 2;
            break;
        }
    }
    if (!alone)
        xl_mail_serve(w->mail, NULL);
    xl_mail_close(w->mail);
    xl_pool_free(pool);
    xl_fibers_free(fibers);
}

static void free_all(process *w)
{
    xl_plan_free(w->plan);
    for (uint32_t d = 0; d < ALL; d++) {
        free(w->x[d]);
        free(w->y[d]);
    }
}

static void run(process *w, const char *body, const char *other, int times, bool leaves, bool idles)
{
    static uint32_t epoch;
    named = 0;
    xl_thread t[N];
    kv.n = 0;
    epoch++;
    for (uint32_t p = 0; p < N; p++) {
        w[p] = (process){
            .me = p, .epoch = epoch, .body = body, .other = other, .times = times, .leaves = leaves, .idles = idles
        };
        CHECK_OK(xl_thread_start(&t[p], "process", play, &w[p]));
    }
    for (uint32_t p = 0; p < N; p++)
        xl_thread_join(&t[p]);
}

static void same(const char *body, int times)
{
    process w[N], one = { .me = UINT32_MAX, .body = body, .times = times };
    play(&one);
    run(w, body, NULL, times, false, false);
    for (uint32_t d = 0; d < ALL; d++) {
        process *p = &w[d / PER];
        CHECK_STR(p->told, "");
        CHECK(!memcmp(p->y[d], one.y[d], one.out * sizeof(float)));
    }
    for (uint32_t p = 0; p < N; p++)
        free_all(&w[p]);
    free_all(&one);
}

/* each group has members in every process, in an order of its own */
#define GROUPS                                                                                                         \
    "replica_groups = dense<[[0, 3, 5, 6], [1, 2, 4, 7]]> : tensor<2x4xi64>, channel_handle = "                        \
    "#stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids"

TEST(small_sum)
{
    same("tensor<64xf32> {\n"
         "  %0 = \"stablehlo.all_reduce\"(%x) <{" GROUPS "}> ({\n"
         "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
         "    %s = stablehlo.add %a, %b : tensor<f32>\n"
         "    stablehlo.return %s : tensor<f32>\n"
         "  }) : (tensor<64xf32>) -> tensor<64xf32>\n"
         "  return %0 : tensor<64xf32>\n"
         "}\n",
         20);
}

TEST(large_sum)                                            /* shared out, and by reference */
{
    same("tensor<64x5000xf32> {\n"
         "  %y = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<64xf32>) -> tensor<64x5000xf32>\n"
         "  %0 = \"stablehlo.all_reduce\"(%y) <{" GROUPS "}> ({\n"
         "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
         "    %s = stablehlo.add %a, %b : tensor<f32>\n"
         "    stablehlo.return %s : tensor<f32>\n"
         "  }) : (tensor<64x5000xf32>) -> tensor<64x5000xf32>\n  return %0 : tensor<64x5000xf32>\n}\n",
         3);
}

static const char gather[] = "tensor<256xf32> {\n"
                             "  %0 = \"stablehlo.all_gather\"(%x) <{all_gather_dim = 0 : i64, " GROUPS
                             "}> : (tensor<64xf32>) -> tensor<256xf32>\n"
                             "  return %0 : tensor<256xf32>\n}\n";
static const char nothing[] = "tensor<64xf32> {\n  return %x : tensor<64xf32>\n}\n";

TEST(gathered) { same(gather, 20); }

/* Small and large messages of one group take different ways, and must not overtake each other. */
TEST(small_and_large_keep_their_order)
{
#define SUM(to, from, type)                                                                                            \
    "  " to " = \"stablehlo.all_reduce\"(" from ") <{" GROUPS "}> ({\n"                                                \
    "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"                                                                      \
    "    %s = stablehlo.add %a, %b : tensor<f32>\n"                                                                    \
    "    stablehlo.return %s : tensor<f32>\n"                                                                          \
    "  }) : (" type ") -> " type "\n"
    same("tensor<64x500xf32> {\n" SUM("%1", "%x", "tensor<64xf32>")
         "  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<64xf32>) -> tensor<64x500xf32>\n"
         SUM("%3", "%2", "tensor<64x500xf32>")
         SUM("%4", "%1", "tensor<64xf32>")
         "  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<64xf32>) -> tensor<64x500xf32>\n"
         "  %6 = stablehlo.add %3, %5 : tensor<64x500xf32>\n"
         SUM("%7", "%6", "tensor<64x500xf32>")
         "  return %7 : tensor<64x500xf32>\n}\n",
         20);
}

enum { FLOOD = 100, FLOOD_BYTES = 4000 };
typedef struct { uint32_t me; xl_mail *mail; } pair;

static void open_pair(void *arg)
{
    pair *p = arg;
    xl_mail_opts o = { .me = p->me, .n = 2, .devices = 1, .epoch = 98, .store = { NULL, kv_put, kv_get } };
    CHECK_OK(xl_mail_open(&o, &p->mail));
}

/* More than a ring holds, to one who does not look: the rest takes the connection, and all come in order. */
TEST(a_full_ring_keeps_the_order)
{
    pair p[2] = { { .me = 0 }, { .me = 1 } };
    xl_thread t;
    xl_channel c = { 7, 8, 1 };
    kv.n = 0;
    CHECK_OK(xl_thread_start(&t, "process", open_pair, &p[1]));
    open_pair(&p[0]);
    xl_thread_join(&t);
    for (int k = 0; k < FLOOD; k++) {
        xl_parcel *x = xl_parcel_new(p[0].mail, FLOOD_BYTES, false);
        memset(xl_parcel_data(x), k, FLOOD_BYTES);
        CHECK_OK(xl_mail_send(p[0].mail, 1, &c, &(xl_mail_tag){ .what = (uint64_t)k }, x, 0, FLOOD_BYTES));
        xl_parcel_drop(p[0].mail, x);
    }
    for (int k = 0; k < FLOOD; k++) {
        xl_letter l = { 0 };
        double until = xl_now() + 60;
        while (xl_mail_ready(p[1].mail, 0, &c) == XL_MAIL_WAIT && xl_now() < until)
            xl_mail_rest(p[1].mail, xl_mail_news(p[1].mail), 5);
        CHECK_OK(xl_mail_take(p[1].mail, 0, &c, &l));
        CHECK(l.tag->what == (uint64_t)k && l.bytes == FLOOD_BYTES && l.data[0] == k && l.data[FLOOD_BYTES - 1] == k);
        xl_letter_drop(p[1].mail, &l);
    }
    xl_mail_close(p[0].mail);
    xl_mail_close(p[1].mail);
}

TEST(a_process_that_leaves_is_named)
{
    process w[N];
    run(w, gather, NULL, 2, true, false);
    for (uint32_t p = 0; p < N; p++) {
        CHECK(p == 1 ? !*w[p].told : strstr(w[p].told, "process 1 of 4") != NULL);
        free_all(&w[p]);
    }
}

TEST(who_has_gone_is_named_while_another_is_still_out)
{
    process w[N];
    run(w, gather, NULL, 2, true, true);
    CHECK(!w[2].kept_waiting);
    for (uint32_t p = 0; p < N; p++) {
        CHECK(p == 1 || p == 2 ? !*w[p].told : strstr(w[p].told, "process 1 of 4") != NULL);
        free_all(&w[p]);
    }
}

TEST(a_process_with_another_program_is_named)
{
    process w[N];
    run(w, gather, nothing, 1, false, false);
    for (uint32_t p = 0; p < N; p++) {
        CHECK(p == 1 || strstr(w[p].told, "process 1 of 4"));
        free_all(&w[p]);
    }
}

TEST(who_does_not_join_is_named)
{
    xl_mail *m;
    kv.n = 0;
    setenv("XLANE_CPU_JOIN_TIMEOUT", "0.2", 1);
    xl_error *err = xl_mail_open(
        &(xl_mail_opts){ .me = 0, .n = 2, .devices = 1, .epoch = 99, .store = { NULL, kv_put, kv_get } }, &m);
    unsetenv("XLANE_CPU_JOIN_TIMEOUT");
    CHECK(err && strstr(xl_error_message(err), "process 1 of 2 did not join"));
    xl_error_free(err);
}
