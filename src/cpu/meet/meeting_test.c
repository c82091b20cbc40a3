/* Eight devices of one execution, on fewer threads and on more: the collectives compute the right values, and nothing
 * waits forever. */
#include "cpu/meet/meeting.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/test.h"
#include "base/thread.h"
#include "cpu/plan/lower.h"
#include "ir/read.h"

enum { N = 8 };
typedef struct {
    const xl_plan *p;
    xl_meet *meet;
    float x[N][64], y[N][1024];
    xl_error *err[N];
    bool fails[N];
    atomic_int ended[N];
} eight;

static void device(void *ctx, uint32_t k)
{
    eight *e = ctx;
    _Alignas(64) char temp[1 << 14];
    xl_frame f = { .partition = k, .nreplica = 1, .npartition = N, .meet = e->meet };
    CHECK(e->p->temp_bytes <= sizeof temp);
    if (e->fails[k])
        e->err[k] = XL_ERR(EXHAUSTED, "no memory on this one");
    else
        e->err[k] = xl_plan_run(e->p, &f, (void *[]){ e->x[k] }, (void *[]){ e->y[k] }, temp);
    xl_meet_leave(e->meet, k, e->err[k]);
}

static void ended(void *ctx, uint32_t k) { atomic_fetch_add(&((eight *)ctx)->ended[k], 1); }

static xl_plan *plan_of(const char *body)
{
    xl_module *m;
    xl_plan *p;
    xl_buf b = { 0 };
    xl_buf_printf(&b, "func.func public @main(%%x: tensor<64xf32>) -> %s", body);
    CHECK_OK(xl_read_text(xl_buf_view(&b), NULL, &m));
    CHECK_OK(xl_lower(m, false));
    CHECK_OK(xl_plan_new(m, N, &p));
    xl_buf_fini(&b);
    return p;
}

/* Runs it `times` times with `cores` devices at a time; the last time's results and errors stay. */
static void run(eight *e, xl_plan *p, size_t cores, int times)
{
    xl_pool *pool = xl_pool_new(cores);
    xl_fibers *fibers = xl_fibers_new();
    xl_meet_task task = { e, device, ended };
    e->p = p;
    for (int t = 0; t < times; t++) {
        for (int k = 0; k < N; k++) {
            xl_error_free(e->err[k]);
            for (int i = 0; i < 64; i++)
                e->x[k][i] = (float)(100 * k + i + t);
        }
        CHECK_OK(xl_meet_new(N, pool, NULL, &e->meet));
        xl_meet_run(e->meet, fibers, &task);
        for (int k = 0; k < N; k++)
            CHECK_INT(e->ended[k], t + 1);
        xl_meet_free(e->meet);
    }
    xl_pool_free(pool);
    xl_fibers_free(fibers);
    xl_plan_free(p);
}

static bool fine(eight *e)
{
    for (int k = 0; k < N; k++)
        if (e->err[k])
            return false;
    return true;
}

static void done(eight *e)
{
    for (int k = 0; k < N; k++)
        xl_error_free(e->err[k]);
    free(e);
}

#define SUM                                                                                                            \
    "({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n %s = stablehlo.add %a, %b : tensor<f32>\n stablehlo.return %s : "    \
    "tensor<f32> })"
#define ALL                                                                                                            \
    "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, " \
    "7]]> : tensor<1x8xi64>"
#define TWO                                                                                                            \
    "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 2, 4, 6], [1, 3, "  \
    "5, 7]]> : tensor<2x4xi64>"

TEST(sums_are_the_same_everywhere)
{
    static const size_t cores[] = { 1, 2, 16 };
    for (size_t c = 0; c < 3; c++) {
        eight *e = calloc(1, sizeof *e);
        run(e,
            plan_of("tensor<64xf32> {\n"
                    "%0 = \"stablehlo.all_reduce\"(%x) <{" ALL ", use_global_device_ids}> " SUM
                    " : (tensor<64xf32>) -> tensor<64xf32>\n"
                    "%1 = \"stablehlo.all_reduce\"(%0) <{" TWO ", use_global_device_ids}> " SUM
                    " : (tensor<64xf32>) -> tensor<64xf32>\n"
                    "return %1 : tensor<64xf32> }"),
            cores[c], 20);
        CHECK(fine(e));
        for (int k = 0; k < N; k++)
            for (int i = 0; i < 64; i++)
                CHECK(e->y[k][i] == (float)(4 * (2800 + 8 * (i + 19))));
        done(e);
    }
}

TEST(parts_go_where_they_belong)
{
    eight *e = calloc(1, sizeof *e);
    run(e,
        plan_of("tensor<512xf32> {\n"
                "%0 = \"stablehlo.reduce_scatter\"(%x) <{" ALL
                ", scatter_dimension = 0 : i64, use_global_device_ids}> " SUM " : (tensor<64xf32>) -> tensor<8xf32>\n"
                "%1 = \"stablehlo.all_gather\"(%0) <{all_gather_dim = 0 : i64, " ALL
                ", use_global_device_ids}> : (tensor<8xf32>) -> tensor<64xf32>\n"
                "%2 = \"stablehlo.all_to_all\"(%x) <{concat_dimension = 0 : i64, split_count = 8 : i64, "
                "split_dimension = 0 : i64, " ALL "}> : (tensor<64xf32>) -> tensor<64xf32>\n"
                "%3 = \"stablehlo.collective_permute\"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 1, "
                "type = 0>, source_target_pairs = dense<[[0, 1], [1, 0], [2, 2]]> : tensor<3x2xi64>}> : "
                "(tensor<64xf32>) -> tensor<64xf32>\n"
                "%4 = \"stablehlo.collective_broadcast\"(%x) <{channel_handle = #stablehlo.channel_handle<handle = 1, "
                "type = 0>, replica_groups = dense<[[3, 0, 1, 2, 4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<64xf32>) "
                "-> tensor<64xf32>\n"
                "%5 = stablehlo.reshape %x : (tensor<64xf32>) -> tensor<8x8xf32>\n"
                "%6 = \"stablehlo.all_to_all\"(%5) <{concat_dimension = 0 : i64, split_count = 8 : i64, "
                "split_dimension = 1 : i64, " ALL "}> : (tensor<8x8xf32>) -> tensor<64x1xf32>\n"
                "%7 = stablehlo.reshape %6 : (tensor<64x1xf32>) -> tensor<64xf32>\n"
                "%8 = \"stablehlo.all_to_all\"(%5) <{concat_dimension = 1 : i64, split_count = 8 : i64, "
                "split_dimension = 0 : i64, " ALL "}> : (tensor<8x8xf32>) -> tensor<1x64xf32>\n"
                "%9 = stablehlo.reshape %8 : (tensor<1x64xf32>) -> tensor<64xf32>\n"
                "%10 = \"stablehlo.all_gather\"(%5) <{all_gather_dim = 1 : i64, " TWO
                ", use_global_device_ids}> : (tensor<8x8xf32>) -> tensor<8x32xf32>\n"
                "%11 = stablehlo.slice %10 [0:2, 0:32] : (tensor<8x32xf32>) -> tensor<2x32xf32>\n"
                "%12 = stablehlo.reshape %11 : (tensor<2x32xf32>) -> tensor<64xf32>\n"
                "%13 = stablehlo.concatenate %1, %2, %3, %4, %7, %9, %12, %x, dim = 0 : (tensor<64xf32>, "
                "tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, "
                "tensor<64xf32>) -> tensor<512xf32>\n"
                "return %13 : tensor<512xf32> }"),
        2, 20);
    CHECK(fine(e));
    for (int k = 0; k < N; k++) {
        const float *y = e->y[k];
        int other = k < 2 ? 1 - k : 2;
        for (int i = 0; i < 64; i++) {
            float x = (float)(i + 19);
            CHECK(y[i] == 2800 + 8 * x);
            CHECK(y[64 + i] == (float)(100 * (i / 8) + 8 * k + i % 8 + 19));
            CHECK(y[128 + i] == (k > 2 ? 0 : (float)(100 * (i / 8) + 8 * other + i % 8 + 19)));
            CHECK(y[192 + i] == 300 + x);
            CHECK(y[256 + i] ==
                  (float)(100 * (i / 8) + 8 * (i % 8) + k + 19)); /* column k of every device, one under the other */
            CHECK(y[320 + i] == (float)(100 * (i / 8) + 8 * k + i % 8 + 19)); /* row k of every device, side by side */
            CHECK(y[384 + i] == (float)(100 * (2 * (i % 32 / 8) + k % 2) + 8 * (i / 32) + i % 8 + 19));
            CHECK(y[448 + i] == (float)(100 * k) + x);
        }
    }
    done(e);
}

/* Who stops is told to the others; nobody is left waiting. */
TEST(one_that_stops_stops_the_others)
{
    eight *e = calloc(1, sizeof *e);
    e->fails[5] = true;
    run(e,
        plan_of("tensor<64xf32> {\n"
                "%0 = \"stablehlo.all_reduce\"(%x) <{" ALL ", use_global_device_ids}> " SUM
                " : (tensor<64xf32>) -> tensor<64xf32>\n"
                " return %0 : tensor<64xf32> }"),
        2, 5);
    for (int k = 0; k < N; k++) {
        CHECK(e->err[k] && strstr(xl_error_message(e->err[k]),
                                  k == 5 ? "no memory on this one" : "device 5 stopped: no memory on this one"));
        CHECK_INT(xl_error_code(e->err[k]), k == 5 ? XL_CODE_EXHAUSTED : XL_CODE_ABORTED);
    }
    done(e);
}

TEST(different_collectives_are_named)
{
    eight *e = calloc(1, sizeof *e);
    run(e,
        plan_of("tensor<64xf32> {\n"
                "%id = stablehlo.partition_id : tensor<ui32>\n"
                "%three = stablehlo.constant dense<3> : tensor<ui32>\n"
                "%low = stablehlo.compare LT, %id, %three, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>\n"
                "%r = \"stablehlo.if\"(%low) ({\n"
                " %0 = \"stablehlo.all_reduce\"(%x) <{" ALL ", use_global_device_ids}> " SUM
                " : (tensor<64xf32>) -> tensor<64xf32>\n"
                " stablehlo.return %0 : tensor<64xf32> }, {\n"
                " %1 = \"stablehlo.all_to_all\"(%x) <{concat_dimension = 0 : i64, split_count = 8 : i64, "
                "split_dimension = 0 : i64, " ALL "}> : (tensor<64xf32>) -> tensor<64xf32>\n"
                " stablehlo.return %1 : tensor<64xf32> }) : (tensor<i1>) -> tensor<64xf32>\n"
                "return %r : tensor<64xf32> }"),
        2, 5);
    for (int k = 0; k < N; k++)
        CHECK(e->err[k] && strstr(xl_error_message(e->err[k]), "all_reduce") &&
              strstr(xl_error_message(e->err[k]), "all_to_all"));
    done(e);
}

/* Device 0 turns in its loop for ever while the others wait for it: an error for all of them, and it is stopped, also
 * where there is but one thread. */
TEST(one_that_never_comes_is_an_error_in_time)
{
    static const size_t cores[] = { 1, 2, 16 };
    setenv("XLANE_CPU_COLLECTIVE_TIMEOUT", "0.4", 1);
    for (size_t c = 0; c < 3; c++) {
        eight *e = calloc(1, sizeof *e);
        run(e,
            plan_of("tensor<64xf32> {\n"
                    "%id = stablehlo.partition_id : tensor<ui32>\n"
                    "%zero = stablehlo.constant dense<0> : tensor<ui32>\n"
                    "%w = \"stablehlo.while\"(%id) ({\n"
                    "^bb0(%i: tensor<ui32>):\n"
                    " %c = stablehlo.compare EQ, %i, %zero, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>\n"
                    " stablehlo.return %c : tensor<i1> }, {\n"
                    "^bb0(%i: tensor<ui32>):\n"
                    " %n = stablehlo.multiply %i, %id : tensor<ui32>\n"
                    " stablehlo.return %n : tensor<ui32> }) : (tensor<ui32>) -> tensor<ui32>\n"
                    "%f = stablehlo.convert %w : (tensor<ui32>) -> tensor<f32>\n"
                    "%v = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<64xf32>\n"
                    "%0 = \"stablehlo.all_reduce\"(%v) <{" ALL ", use_global_device_ids}> " SUM
                    " : (tensor<64xf32>) -> tensor<64xf32>\n"
                    "return %0 : tensor<64xf32> }"),
            cores[c], 1);
        for (int k = 0; k < N; k++)
            CHECK(e->err[k] &&
                  strstr(xl_error_message(e->err[k]),
                         "which is still at work elsewhere")); /* device 0, or on a very busy machine another */
        done(e);
    }
    unsetenv("XLANE_CPU_COLLECTIVE_TIMEOUT");
}

typedef struct { xl_pool *pool; xl_fibers *fibers; const xl_plan *p; eight *e; } execution;

static void execute(void *arg)
{
    execution *x = arg;
    xl_meet_task task = { x->e, device, ended };
    x->e->p = x->p;
    for (int t = 0; t < 50; t++) {
        CHECK_OK(xl_meet_new(N, x->pool, NULL, &x->e->meet));
        xl_meet_run(x->e->meet, x->fibers, &task);
        xl_meet_free(x->e->meet);
    }
}

/* Several executions at a time on one pool; of each the same devices meet, and none waits for another's. */
TEST(executions_do_not_wait_for_each_other)
{
    enum { X = 4 };
    xl_plan *p = plan_of("tensor<64xf32> {\n"
                         "%0 = \"stablehlo.all_reduce\"(%x) <{" ALL ", use_global_device_ids}> " SUM
                         " : (tensor<64xf32>) -> tensor<64xf32>\n"
                         "%1 = \"stablehlo.all_reduce\"(%0) <{" TWO ", use_global_device_ids}> " SUM
                         " : (tensor<64xf32>) -> tensor<64xf32>\n"
                         "return %1 : tensor<64xf32> }");
    for (size_t cores = 1; cores <= 3; cores++) {
        execution x[X];
        xl_thread t[X];
        xl_pool *pool = xl_pool_new(cores);
        xl_fibers *fibers = xl_fibers_new();
        for (int i = 0; i < X; i++) {
            x[i] = (execution){ pool, fibers, p, calloc(1, sizeof(eight)) };
            for (int k = 0; k < N; k++)
                for (int j = 0; j < 64; j++)
                    x[i].e->x[k][j] = (float)(i + j);
            CHECK_OK(xl_thread_start(&t[i], "execution", execute, &x[i]));
        }
        for (int i = 0; i < X; i++) {
            xl_thread_join(&t[i]);
            CHECK(fine(x[i].e));
            for (int k = 0; k < N; k++)
                for (int j = 0; j < 64; j++)
                    CHECK(x[i].e->y[k][j] == (float)(32 * (i + j)));
            done(x[i].e);
        }
        xl_pool_free(pool);
        xl_fibers_free(fibers);
    }
    xl_plan_free(p);
}
