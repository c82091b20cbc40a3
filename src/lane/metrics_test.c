#include "lane/metrics.h"

#include "base/test.h"

TEST(G3_metrics_add_up_and_survive_json)
{
    xl_metrics *m = xl_metrics_new(), *n = xl_metrics_new();
    xl_module_metrics *step = xl_metrics_module(m, XL_STR("jit_step"));
    CHECK(step == xl_metrics_module(m, XL_STR("jit_step")));
    for (int i = 1; i <= 100; i++)
        xl_metrics_time(m, step, XL_M_ExecuteTime, i * 1e-3);
    xl_metrics_count(m, step, XL_M_InboundData, 4096);
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_metrics_json(m, &j);
    xl_arena a = { 0 };
    xl_node *node;
    CHECK_OK(xl_json_read(&a, "t", xl_buf_view(&b), &node));
    CHECK_OK(xl_metrics_add_json(n, node));
    CHECK_OK(xl_metrics_add_json(n, node));                /* two processes */
    CHECK_INT(xl_metrics_total(n, XL_M_ExecuteTime), 200);
    CHECK_INT(xl_metrics_total(n, XL_M_InboundData), 8192);
    b.n = 0;
    xl_metrics_print(n, true, &b);
    CHECK(strstr(b.p, "Metric: ExecuteTime\n  TotalSamples: 200\n  Accumulator: 10s100ms"));
    CHECK(strstr(b.p, "Counter: InboundData\n  Value: 8192\n"));
    CHECK(strstr(b.p, "Module: jit_step"));
    b.n = 0;
    xl_metrics_prometheus(n, 3, 0, &b);
    CHECK(strstr(b.p, "xlane_execute_time_seconds_count{rank=\"3\"} 200"));
    xl_buf_fini(&b);
    xl_arena_fini(&a);
    xl_metrics_free(m);
    xl_metrics_free(n);
}

TEST(G3_one_timing_is_each_of_its_percentiles)
{
    xl_metrics *m = xl_metrics_new();
    xl_buf b = { 0 };
    xl_metrics_time(m, NULL, XL_M_CompileTime, 0.0385);
    xl_metrics_print(m, false, &b);
    CHECK(strstr(b.p, " 1%=038ms500.000us;") && strstr(b.p, " 50%=038ms500.000us;") &&
          strstr(b.p, " 99%=038ms500.000us\n"));
    xl_buf_fini(&b);
    xl_metrics_free(m);
}
