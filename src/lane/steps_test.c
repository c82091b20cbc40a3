#include "base/test.h"
#include "lane/steps.h"

static bool says(const xl_step_times *t, const char *words)
{
    xl_buf b = { 0 };
    xl_steps_drift_say(t, &b);
    bool found = b.p && strstr(b.p, words);
    xl_buf_fini(&b);
    return found;
}

TEST(a_time_that_tripled_is_not_equal_however_short)
{
    xl_step_times t = { .steps = 200, .drift_step = 100, .drift = { 0.01, 0.03 }, .drift_busy = { 3e-6, 9e-6 },
                        .drift_gap = { 0.010, 0.011 } };
    CHECK(says(&t, "time on the device grew (0.003 -> 0.009 ms)"));
    CHECK(says(&t, "wait for the host about equal (10 -> 11 ms)"));
    t.drift_busy[1] = 1e-6;
    CHECK(says(&t, "time on the device shrank (0.003 -> 0.001 ms)"));
}
