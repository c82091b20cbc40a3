#include "lane/steps.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/test.h"

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

/* Seconds of each step: on the device; of another program on it after that; of the host then; of a pause, once or
 * in every such step. */
typedef struct { int n, every; double device, other, host, pause; bool told, queued; } loop;

/* What is read of such steps, in the arena. queued: all are started at once, and a read waits for the last. */
static xl_step_times read_loop(xl_arena *a, const loop *l, double *busy)
{
    char dir[] = "/tmp/xlane-steps-XXXXXX";
    xl_steps *s = xl_steps_new();
    xl_step_times *t = NULL;
    size_t n = 0;
    double now = 100, took, gap;
    xl_steps_of(s, "jit_step", 0);
    *busy = 0;
    for (int i = 0; i < l->n; i++) {
        uint64_t k = xl_steps_start(s, now, &took, &gap);
        now += l->queued ? 1e-5 : l->device;
        if (l->queued)
            continue;
        *busy += xl_steps_done(s, k, now, l->told);
        if (l->other > 0 && xl_steps_other(s, now - l->device / 2)) { /* started while the step was under way */
            xl_steps_other_done(s, now - l->device / 2, now + l->other, l->told);
            now += l->other;
        }
        now += l->host + ((l->every ? i % l->every == 0 : i == l->n / 2) ? l->pause : 0);
    }
    for (int i = 0; l->queued && i < l->n; i++)
        *busy += xl_steps_done(s, (uint64_t)i + 1, now += l->device, l->told);
    CHECK(mkdtemp(dir));
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_steps_json(s, 0, &j);
    char *steps = xl_path_join(a, dir, "steps-7.json"), *events = xl_path_join(a, dir, "events.jsonl");
    CHECK_OK(xl_file_write_quick(steps, xl_buf_view(&b)));
    CHECK_OK(xl_file_write_quick(events, XL_STR("{\"t\":1,\"rank\":3,\"pid\":7,\"event\":\"attach\"}\n")));
    CHECK_OK(xl_steps_read(a, dir, &t, &n));
    CHECK_INT(n, 1);
    unlink(steps);
    unlink(events);
    rmdir(dir);
    xl_buf_fini(&b);
    free(s);
    return t[0];
}

TEST(what_steps_wait_for_is_told_where_that_is_known)
{
    static const struct { const char *what; loop l; xl_bound bound; double share;
    } rows[] = {
        { "a host that keeps up", { .n = 40, .device = 0.01, .host = 1e-4, .told = true }, XL_BOUND_DEVICE, 0.99 },
        { "input that does not", { .n = 40, .device = 0.01, .host = 0.03, .told = true }, XL_BOUND_HOST, 0.25 },
        { "both", { .n = 40, .device = 0.01, .host = 0.006, .told = true }, XL_BOUND_BOTH, 0.63 },
        { "one evaluation",
          { .n = 40, .device = 0.01, .host = 1e-4, .pause = 2, .told = true },
          XL_BOUND_PAUSES,
          0.16 },
        { "waiting that is spread over many steps", /* more of it is no weaker verdict */
          { .n = 40, .every = 4, .device = 0.01, .host = 1e-4, .pause = 0.02, .told = true },
          XL_BOUND_BOTH,
          0.66 },
        { "more of it",
          { .n = 40, .every = 4, .device = 0.01, .host = 1e-4, .pause = 0.1, .told = true },
          XL_BOUND_HOST,
          0.28 },
        { "more still, in the median step too",
          { .n = 40, .every = 4, .device = 0.01, .host = 0.004, .pause = 0.15, .told = true },
          XL_BOUND_HOST,
          0.19 },
        { "two pauses",
          { .n = 40, .every = 20, .device = 0.01, .host = 1e-4, .pause = 0.4, .told = true },
          XL_BOUND_PAUSES,
          0.33 },
        { "short steps with a pause",
          { .n = 40, .device = 1e-4, .host = 1e-6, .pause = 1, .told = true },
          XL_BOUND_PAUSES,
          0.004 },
        { "short steps", { .n = 40, .device = 1e-4, .host = 1e-6, .told = true }, XL_BOUND_SHORT, 0.99 },
        { "another program",
          { .n = 40, .device = 0.01, .other = 0.02, .host = 1e-3, .told = true },
          XL_BOUND_DEVICE,
          0.97 },
        { "that and input",
          { .n = 40, .device = 0.01, .other = 0.01, .host = 0.08, .told = true },
          XL_BOUND_HOST,
          0.2 },
        { "few steps", { .n = 8, .device = 0.01, .host = 0.03, .told = true }, XL_BOUND_UNKNOWN, 0 },
        { "an end that is not told", { .n = 40, .device = 0.01, .host = 0.03 }, XL_BOUND_UNKNOWN, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const loop *l = &rows[i].l;
        xl_arena a = { 0 };
        double busy;
        xl_step_times t = read_loop(&a, l, &busy);
        CHECK_STR(t.bound == rows[i].bound ? rows[i].what : "another verdict", rows[i].what);
        CHECK(fabs(t.share - rows[i].share) < 0.015 && t.rank == 3);
        CHECK(fabs(busy - l->n * l->device) < 1e-6);       /* what ran after it is not counted to a step */
        CHECK(fabs(t.gap - l->host) < 1e-6);               /* nor to the wait for the host */
        xl_buf b = { 0 };
        xl_steps_say(&t, false, &b);
        CHECK(!strstr(b.p, "Device or host: ") == (t.bound == XL_BOUND_UNKNOWN) && !strstr(b.p, "rank"));
        CHECK(!strstr(b.p, "Device or host: the host\n") == (t.bound != XL_BOUND_HOST));
        CHECK(!strstr(b.p, "Device or host: the device\n") == (t.bound != XL_BOUND_DEVICE));
        b.n = 0;
        xl_steps_say(&t, true, &b);
        CHECK(strstr(b.p, "Steps of rank 3 (process 7): ") != NULL);
        xl_buf_fini(&b);
        xl_arena_fini(&a);
    }
}

TEST(a_device_that_has_steps_queued_is_what_they_wait_for)
{
    xl_arena a = { 0 };
    double busy;
    xl_step_times t = read_loop(&a, &(loop){ .n = 40, .device = 0.01, .told = true, .queued = true }, &busy);
    CHECK(t.share == 1 && t.step_share == 1 && t.bound == XL_BOUND_DEVICE && busy > 0.38);
    xl_arena_fini(&a);
}

TEST(times_have_one_unit)
{
    static const struct { double s; const char *words; } rows[] = {
        { 0, "0 ms" }, { 1.5e-7, "0.000150 ms" }, { 0.000216, "0.216 ms" }, { 0.06058607, "60.59 ms" },
        { 12.3456, "12346 ms" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_STR(xl_time_words(rows[i].s, (char[32]){ 0 }), rows[i].words);
}

TEST(a_95th_percentile_needs_two_figures_above_it)
{
    xl_buf b = { 0 };
    xl_steps_figures_say(0.001, 0.002, 0.003, 39, &b);
    CHECK_STR(b.p, "median=1 ms; max=3 ms");
    b.n = 0;
    xl_steps_figures_say(0.001, 0.002, 0.003, 40, &b);
    CHECK_STR(b.p, "median=1 ms; 95%=2 ms; max=3 ms");
    xl_buf_fini(&b);
}
