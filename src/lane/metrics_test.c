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
    CHECK(strstr(b.p, "Metric: ExecuteTime\n  TotalSamples: 200\n  Accumulator: 10100 ms\n"));
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

static bool prints(const xl_metrics *m, const char *words)
{
    xl_buf b = { 0 };
    xl_metrics_print(m, false, &b);
    bool found = b.p && strstr(b.p, words);
    xl_buf_fini(&b);
    return found;
}

TEST(G3_percentiles_are_told_of_as_many_timings_as_they_need)
{
    xl_metrics *m = xl_metrics_new();
    xl_metrics_time(m, NULL, XL_M_CompileTime, 0.0385);
    CHECK(prints(m, "  TotalSamples: 1\n  Accumulator: 38.5 ms\n") && !prints(m, "Percentiles"));
    xl_metrics_time(m, NULL, XL_M_CompileTime, 0.0606);
    CHECK(prints(m, "  Percentiles: min=38.5 ms; max=60.6 ms\n"));
    for (int i = 0; i < 2; i++)
        xl_metrics_time(m, NULL, XL_M_CompileTime, 0.04);
    CHECK(prints(m, "min=38.5 ms; 50%=") && !prints(m, "80%="));
    for (int i = 0; i < 36; i++)
        xl_metrics_time(m, NULL, XL_M_CompileTime, 0.04);
    CHECK(prints(m, "; 5%=") && prints(m, "; 95%=") && !prints(m, " 1%=") && !prints(m, "99%="));
    for (int i = 0; i < 160; i++)
        xl_metrics_time(m, NULL, XL_M_CompileTime, 0.04);
    CHECK(prints(m, "min=38.5 ms; 1%=") && prints(m, "; 99%=") && !prints(m, "us"));
    xl_metrics_free(m);
}
