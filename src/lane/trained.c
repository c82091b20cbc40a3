#include "lane/trained.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "lane/run.h"
#include "lane/steps.h"

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static void quantiles(xl_arena *a, xl_trained *t)
{
    double *v = xl_new(a, double, t->ntook + 1);
    if (!t->ntook)
        return;
    memcpy(v, t->took, t->ntook * sizeof *v);
    qsort(v, t->ntook, sizeof *v, by_value);
    size_t at = (size_t)(0.95 * (double)t->ntook);
    t->median = v[t->ntook / 2];
    t->p95 = v[at < t->ntook ? at : t->ntook - 1];
    t->max = v[t->ntook - 1];
}

static void read_events(xl_arena *a, const char *dir, xl_trained *t)
{
    xl_node **e = NULL;
    size_t n = 0;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n; i++) {
        const xl_node *what = xl_node_get(e[i], "event"), *result = xl_node_get(e[i], "result"),
                      *seconds = xl_node_get(e[i], "seconds");
        if (what && result && xl_str_is(what->s, "compile")) {
            t->compiled += xl_str_is(result->s, "compiled");
            t->loaded += xl_str_is(result->s, "cached") || xl_str_is(result->s, "loaded");
        }
        if (what && seconds && xl_str_is(what->s, "first_step") && t->first < 0)
            t->first = seconds->f;
    }
}

xl_trained xl_trained_read(xl_arena *a, const char *dir)
{
    xl_trained t = { .first = -1 };
    xl_str text;
    char *path = xl_path_join(a, dir, "metrics.csv");
    int loss = -1, wall = -1, skipped = -1, k = 0;
    size_t cap = 0;
    xl_error *err = xl_file_stat(path, NULL) ? xl_file_read_max(a, path, 256 << 20, &text) : XL_ERR(NOT_FOUND, "none");
    if (err) {
        xl_error_free(err);
        return t;
    }
    xl_str head = xl_str_cut(&text, '\n');
    for (; head.n; k++) {
        xl_str name = xl_str_trim(xl_str_cut(&head, ','));
        loss = xl_str_is(name, "loss") ? k : loss;
        wall = xl_str_is(name, "seconds") ? k : wall;
        skipped = xl_str_is(name, "skipped") ? k : skipped;
    }
    double before = NAN;
    while (text.n) {
        xl_str line = xl_str_cut(&text, '\n');
        double at = NAN, x;
        for (int i = 0; line.n; i++) {
            if (!xl_str_f64(xl_str_cut(&line, ','), &x))
                continue;
            if (i == 0)
                t.step = x, t.steps++;
            if (i == loss)
                t.loss = x;
            if (i == loss && t.steps == 1)
                t.first_loss = x;
            if (i == skipped)
                t.skipped = x;
            if (i == wall)
                at = x;
        }
        if (at - before >= 0)
            XL_PUSH(a, t.took, t.ntook, cap, at - before);
        before = at;
    }
    quantiles(a, &t);
    read_events(a, dir, &t);
    return t;
}

bool xl_trained_saved(xl_arena *a, const char *dir)
{
    xl_node **e = NULL;
    size_t n = 0;
    bool saved = false;
    xl_error_free(xl_run_events(a, dir, &e, &n));
    for (size_t i = 0; i < n && !saved; i++)
        saved = xl_node_is(e[i], "event", "checkpoint");
    return saved;
}

void xl_trained_say(const xl_trained *t, xl_buf *b)
{
    xl_buf_printf(b, "Steps: %llu of xlane train, the last is step %.0f; loss %.4f -> %.4f\n",
                  (unsigned long long)t->steps, t->step, t->first_loss, t->loss);
    char ms[32];
    if (t->ntook) {
        xl_buf_puts(b, "  StepTime: ");
        xl_steps_figures_say(t->median, t->p95, t->max, t->ntook, b);
        xl_buf_putc(b, '\n');
    }
    if (t->first >= 0)
        xl_buf_printf(b, "  FirstStep: done after %s\n", xl_time_words(t->first, ms));
    xl_buf_printf(b, "  Programs: %d compiled, %d loaded from a cache\n", t->compiled, t->loaded);
    if (t->skipped > 0)
        xl_buf_printf(b, "  Skipped: %.0f steps, whose loss or gradient was not finite\n", t->skipped);
}

void xl_trained_put(const xl_trained *t, xl_json *j)
{
    xl_json_map(j);
    xl_json_put_int(j, "steps", (int64_t)t->steps);
    xl_json_put_num(j, "step", t->step);
    xl_json_put_num(j, "first_loss", t->first_loss);
    xl_json_put_num(j, "loss", t->loss);
    xl_json_put_int(j, "skipped", (int64_t)t->skipped);
    if (t->ntook) {
        xl_json_put_num(j, "median", t->median);
        xl_json_put_num(j, "p95", t->p95);
        xl_json_put_num(j, "max", t->max);
    }
    if (t->first >= 0)
        xl_json_put_num(j, "first_step", t->first);
    xl_json_put_int(j, "compiled", t->compiled);
    xl_json_put_int(j, "loaded", t->loaded);
    xl_json_end(j);
}
