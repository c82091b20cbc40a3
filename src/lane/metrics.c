#include "lane/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/thread.h"
#include "lane/kept.h"
#include "lane/steps.h"

static const struct { const char *name, *help; bool timing; } rows[XL_M_COUNT] = {
#define TIMING(n, h) [XL_M_##n] = { #n, h, true },
#define COUNTER(n, h) [XL_M_##n] = { #n, h, false },
    XL_METRICS(TIMING, COUNTER)
};

struct xl_module_metrics {
    char *name;
    xl_meter meter[XL_M_COUNT];
    _Atomic uint64_t waited;                               /* the last execution with a HostSync; */
    _Atomic uint32_t row;                                  /* how many in a row; UINT32_MAX: told */
};

enum { MODULES = 2048 }; /* eager programs have many small ones; beyond this they share a last one */
struct xl_metrics {
    xl_meter total[XL_M_COUNT];
    xl_mutex lock;
    _Atomic uint32_t n;
    xl_module_metrics *module[MODULES];
};

xl_metrics *xl_metrics_new(void)
{
    xl_metrics *m = calloc(1, sizeof *m);
    if (m)
        xl_mutex_init(&m->lock);
    return m;
}

/* A histogram is made with its first value: most of a module's timings are never taken. NULL: no memory, and only the
 * sum counts. */
static _Atomic uint32_t *buckets(xl_meter *t)
{
    _Atomic uint32_t *b = atomic_load_explicit(&t->bucket, memory_order_acquire), *none = NULL;
    if (!b && (b = calloc(XL_HIST, sizeof *b)) && !atomic_compare_exchange_strong(&t->bucket, &none, b)) {
        free(b);
        b = none;
    }
    return b;
}

static uint32_t bucket_at(const xl_meter *t, int b)
{
    const _Atomic uint32_t *all = atomic_load_explicit(&t->bucket, memory_order_acquire);
    return all ? all[b] : 0;
}

static void free_set(xl_meter *set)
{
    for (int w = 0; w < XL_M_COUNT; w++)
        free((void *)set[w].bucket);
}

static void clear(xl_meter *t)
{
    t->n = t->sum = t->below = t->most = 0;
    for (int b = 0; t->bucket && b < XL_HIST; b++)
        t->bucket[b] = 0;
}
static void clear_set(xl_meter *set)
{
    for (int w = 0; w < XL_M_COUNT; w++)
        clear(&set[w]);
}

void xl_metrics_free(xl_metrics *m)
{
    if (!m)
        return;
    free_set(m->total);
    for (uint32_t i = 0; i < m->n; i++) {
        free_set(m->module[i]->meter);
        free(m->module[i]->name);
        free(m->module[i]);
    }
    xl_mutex_fini(&m->lock);
    free(m);
}

void xl_metrics_reset(xl_metrics *m)
{
    xl_mutex_init(&m->lock);
    clear_set(m->total);
    for (uint32_t i = 0; i < m->n; i++) {
        clear_set(m->module[i]->meter);
        m->module[i]->waited = 0;
        m->module[i]->row = 0;
    }
}

void xl_metrics_forget(xl_metrics *m, xl_metric_id w) { clear(&m->total[w]); }

bool xl_metrics_idle(const xl_metrics *m)
{
    for (int w = 0; w < XL_M_COUNT; w++)
        if (m->total[w].n)
            return false;
    return true;
}

xl_module_metrics *xl_metrics_module(xl_metrics *m, xl_str name)
{
    xl_module_metrics *mm = NULL;
    xl_mutex_lock(&m->lock);
    uint32_t n = m->n;
    if (n >= MODULES - 1)
        name = XL_STR("(others)");
    for (uint32_t i = 0; i < n && !mm; i++)
        if (xl_str_is(name, m->module[i]->name))
            mm = m->module[i];
    if (!mm && n < MODULES && (mm = calloc(1, sizeof *mm))) {
        mm->name = malloc(name.n + 1);
        if (mm->name) {
            memcpy(mm->name, name.p, name.n);
            mm->name[name.n] = 0;
            m->module[n] = mm;
            m->n = n + 1;
        } else {
            free(mm);
            mm = NULL;
        }
    }
    xl_mutex_unlock(&m->lock);
    return mm;
}

const char *xl_module_metrics_name(const xl_module_metrics *mm) { return mm->name; }
uint64_t xl_module_metrics_count(const xl_module_metrics *mm, xl_metric_id w) { return mm->meter[w].n; }
double xl_module_metrics_seconds(const xl_module_metrics *mm, xl_metric_id w)
{
    return (double)mm->meter[w].sum * 1e-9;
}
double xl_metrics_seconds(const xl_metrics *m, xl_metric_id w) { return (double)m->total[w].sum * 1e-9; }
const xl_module_metrics *xl_metrics_at(const xl_metrics *m, uint32_t i) { return i < m->n ? m->module[i] : NULL; }
uint64_t xl_metrics_total(const xl_metrics *m, xl_metric_id w)
{
    return rows[w].timing ? m->total[w].n : m->total[w].sum;
}

/* Eight buckets an octave from 128 ns on: the place of the highest bit, and the three bits below it. */
static uint32_t bucket_of(uint64_t ns)
{
    if (ns < 128)
        return 0;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(ns), b = (top - 7) * 8 + ((uint32_t)(ns >> (top - 3)) & 7);
    return b < XL_HIST ? b : XL_HIST - 1;
}
/* At: 0 is where the bucket begins, 1 where it ends. */
static double bucket_seconds(int b, double at)
{
    int octave = b / 8;
    return 1e-9 * 128 * exp2(octave) * (1 + (b % 8 + at) / 8);
}

static void raise_to(_Atomic uint64_t *most, uint64_t value)
{
    uint64_t now = atomic_load_explicit(most, memory_order_relaxed);
    while (value > now &&
           !atomic_compare_exchange_weak_explicit(most, &now, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void add(xl_meter *t, uint64_t value, int bucket)
{
    atomic_fetch_add_explicit(&t->n, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->sum, value, memory_order_relaxed);
    if (bucket < 0)
        return;
    raise_to(&t->below, UINT64_MAX - value);
    raise_to(&t->most, value);
    _Atomic uint32_t *all = buckets(t);
    if (all)
        atomic_fetch_add_explicit(&all[bucket], 1, memory_order_relaxed);
}

void xl_metrics_time(xl_metrics *m, xl_module_metrics *mm, xl_metric_id w, double seconds)
{
    uint64_t ns = seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
    int b = (int)bucket_of(ns);
    add(&m->total[w], ns, b);
    if (mm)
        add(&mm->meter[w], ns, b);
}

void xl_metrics_count(xl_metrics *m, xl_module_metrics *mm, xl_metric_id w, uint64_t by)
{
    add(&m->total[w], by, -1);
    if (mm)
        add(&mm->meter[w], by, -1);
}

bool xl_metrics_waited(xl_metrics *m, xl_module_metrics *mm, uint64_t number, bool soon, uint32_t row)
{
    xl_metrics_count(m, mm, XL_M_HostSync, 1);
    uint64_t before = atomic_exchange_explicit(&mm->waited, number, memory_order_relaxed);
    uint32_t now = atomic_load_explicit(&mm->row, memory_order_relaxed);
    if (now == UINT32_MAX)
        return false;
    now = before + 1 == number && soon ? now + 1 : 1;
    atomic_store_explicit(&mm->row, now == row ? UINT32_MAX : now, memory_order_relaxed);
    return now == row;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */
static void set_json(const xl_meter *set, xl_json *j)
{
    xl_json_map(j);
    for (int w = 0; w < XL_M_COUNT; w++) {
        if (!set[w].n)
            continue;
        xl_json_key(j, rows[w].name);
        xl_json_map(j);
        xl_json_put_int(j, "n", (int64_t)set[w].n);
        xl_json_put_int(j, "sum", (int64_t)set[w].sum);
        if (rows[w].timing && set[w].below) {
            xl_json_put_int(j, "least", (int64_t)(UINT64_MAX - set[w].below));
            xl_json_put_int(j, "most", (int64_t)set[w].most);
        }
        if (rows[w].timing) {                              /* [bucket, count] pairs of those that are not empty */
            xl_json_key(j, "hist");
            xl_json_list(j);
            for (int b = 0; b < XL_HIST; b++)
                if (bucket_at(&set[w], b)) {
                    xl_json_int(j, b);
                    xl_json_int(j, bucket_at(&set[w], b));
                }
            xl_json_end(j);
        }
        xl_json_end(j);
    }
    xl_json_end(j);
}

void xl_metrics_json(const xl_metrics *m, xl_json *j)
{
    xl_json_map(j);
    xl_json_key(j, "total");
    set_json(m->total, j);
    xl_json_key(j, "modules");
    xl_json_map(j);
    for (uint32_t i = 0; i < m->n; i++) {
        xl_json_key(j, m->module[i]->name);
        set_json(m->module[i]->meter, j);
    }
    xl_json_end(j);
    xl_json_end(j);
}

static void set_add(xl_meter *set, const xl_node *n)
{
    for (int w = 0; w < XL_M_COUNT; w++) {
        const xl_node *one = xl_node_get(n, rows[w].name), *v, *hist = xl_node_get(one, "hist");
        if ((v = xl_node_get(one, "n")) && v->i > 0)
            set[w].n += (uint64_t)v->i;
        if ((v = xl_node_get(one, "sum")) && v->i > 0)
            set[w].sum += (uint64_t)v->i;
        if ((v = xl_node_get(one, "least")) && v->i >= 0)
            raise_to(&set[w].below, UINT64_MAX - (uint64_t)v->i);
        if ((v = xl_node_get(one, "most")) && v->i > 0)
            raise_to(&set[w].most, (uint64_t)v->i);
        for (size_t k = 0; hist && k + 1 < hist->n; k += 2)
            if (hist->kid[k]->i >= 0 && hist->kid[k]->i < XL_HIST && hist->kid[k + 1]->i > 0 && buckets(&set[w]))
                set[w].bucket[hist->kid[k]->i] += (uint32_t)hist->kid[k + 1]->i;
    }
}

xl_error *xl_metrics_add_json(xl_metrics *m, const xl_node *n)
{
    set_add(m->total, xl_node_get(n, "total"));
    const xl_node *mods = xl_node_get(n, "modules");
    for (size_t i = 0; mods && mods->kind == XL_NODE_MAP && i < mods->n; i++) {
        xl_module_metrics *mm = xl_metrics_module(m, mods->kid[i]->key);
        if (!mm)
            return XL_ERR(EXHAUSTED, "out of memory");
        set_add(mm->meter, mods->kid[i]);
    }
    return NULL;
}

xl_error *xl_metrics_read_process(xl_arena *a, const char *dir, int64_t pid, xl_metrics **out)
{
    xl_error *err = NULL;
    xl_str text;
    xl_node *node;
    char *path = xl_path_join(a, dir, xl_strf(a, "metrics-%lld.json", (long long)pid).p);
    *out = xl_metrics_new();
    if (!*out)
        return XL_ERR(EXHAUSTED, "out of memory");
    XL_TRY(xl_file_read(a, path, &text), "reading metrics");
    XL_TRY(xl_json_read(a, path, text, &node), "reading metrics");
    err = xl_metrics_add_json(*out, node);
out:
    if (err) {
        xl_metrics_free(*out);
        *out = NULL;
    }
    return err;
}

xl_error *xl_metrics_read(xl_arena *a, const char *dir, xl_metrics **out, size_t *processes)
{
    xl_error *err = NULL, *unread = NULL;
    xl_str *names;
    size_t n;
    *processes = 0;
    *out = xl_metrics_new();
    if (!*out)
        return XL_ERR(EXHAUSTED, "out of memory");
    XL_TRY(xl_dir_list(a, dir, &names, &n), "reading the run");
    for (size_t i = 0; i < n; i++) {
        xl_node *node;
        if (!xl_str_starts(names[i], XL_STR("metrics-")) || !xl_str_ends(names[i], XL_STR(".json")))
            continue;
        char *path = xl_path_join(a, dir, xl_str_c(a, names[i]));
        xl_error_free(unread);
        unread = xl_kept_json(a, path, &node);
        if (unread)
            continue;
        XL_DO(xl_metrics_add_json(*out, node));
        ++*processes;
    }
    if (!*processes && unread) {
        err = xl_error_wrap(unread, "reading metrics");
        unread = NULL;
    } else if (!*processes) {
        err = XL_ERR(NOT_FOUND, "%s has no metrics: no process of it loaded a PJRT plugin", dir);
    }
out:
    xl_error_free(unread);
    if (err) {
        xl_metrics_free(*out);
        *out = NULL;
    }
    return err;
}

/* ---- for people and scrapers ------------------------------------------------------------------------------------- */
/* Not less than the least that was taken, nor more than the most. */
static double percentile(const xl_meter *t, double q)
{
    uint64_t n = 0, want = (uint64_t)(q * (double)t->n);
    double s = bucket_seconds(XL_HIST - 1, 0.5), least = (double)(UINT64_MAX - t->below) * 1e-9;
    for (int b = 0; b < XL_HIST; b++) {
        uint64_t here = bucket_at(t, b);
        if (n + here > want) {                             /* as if those of a bucket were spread evenly in it */
            s = bucket_seconds(b, ((double)(want - n) + 0.5) / (double)here);
            break;
        }
        n += here;
    }
    if (!t->below)                                         /* of a file without them */
        return s;
    return s < least ? least : s > (double)t->most * 1e-9 ? (double)t->most * 1e-9 : s;
}

/* Under PyTorch/XLA's names. A percentile that has not two samples on either side is none: the least and the most are
 * always told, of two samples and more. */
static void print_timing(const xl_meter *t, const char *name, xl_buf *out)
{
    static const int q[] = { 1, 5, 10, 20, 50, 80, 90, 95, 99 };
    char ms[32];
    xl_buf_printf(out, "Metric: %s\n  TotalSamples: %llu\n  Accumulator: %s\n", name, (unsigned long long)t->n,
                  xl_time_words((double)t->sum * 1e-9, ms));
    if (t->n < 2 || !t->below)
        return;
    xl_buf_printf(out, "  Percentiles: min=%s", xl_time_words((double)(UINT64_MAX - t->below) * 1e-9, ms));
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        if (t->n * (uint64_t)(q[i] < 50 ? q[i] : 100 - q[i]) >= 200)
            xl_buf_printf(out, "; %d%%=%s", q[i], xl_time_words(percentile(t, q[i] / 100.0), ms));
    xl_buf_printf(out, "; max=%s\n", xl_time_words((double)t->most * 1e-9, ms));
}

static void print_set(const xl_meter *set, xl_buf *out)
{
    for (int w = 0; w < XL_M_COUNT; w++)
        if (rows[w].timing && set[w].n)
            print_timing(&set[w], rows[w].name, out);
    for (int w = 0; w < XL_M_COUNT; w++)
        if (!rows[w].timing && set[w].sum)
            xl_buf_printf(out, "Counter: %s\n  Value: %llu\n", rows[w].name, (unsigned long long)set[w].sum);
}

void xl_metrics_print(const xl_metrics *m, bool modules, xl_buf *out)
{
    print_set(m->total, out);
    for (uint32_t i = 0; modules && i < m->n; i++) {
        xl_buf_printf(out, "\nModule: %s\n", m->module[i]->name);
        print_set(m->module[i]->meter, out);
    }
}

void xl_metrics_prometheus(const xl_metrics *m, int rank, int pid, xl_buf *out)
{
    char who[48];
    int n0 = snprintf(who, sizeof who, "rank=\"%d\"", rank);
    if (pid)
        snprintf(who + n0, sizeof who - (size_t)n0, ",pid=\"%d\"", pid);
    for (int w = 0; w < XL_M_COUNT; w++) {
        char name[64];
        size_t n = 0;
        for (const char *c = rows[w].name; *c && n < 50; c++) { /* CompileTime -> compile_time */
            if (*c >= 'A' && *c <= 'Z' && n)
                name[n++] = '_';
            name[n++] = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
        }
        name[n] = 0;
        if (rows[w].timing)
            xl_buf_printf(out,
                          "# HELP xlane_%s_seconds %s\n"
                          "# TYPE xlane_%s_seconds summary\n"
                          "xlane_%s_seconds_sum{%s} %.9f\n"
                          "xlane_%s_seconds_count{%s} %llu\n",
                          name, rows[w].help, name, name, who, (double)m->total[w].sum * 1e-9, name, who,
                          (unsigned long long)m->total[w].n);
        else
            xl_buf_printf(out,
                          "# HELP xlane_%s_total %s\n"
                          "# TYPE xlane_%s_total counter\n"
                          "xlane_%s_total{%s} %llu\n",
                          name, rows[w].help, name, name, who, (unsigned long long)m->total[w].sum);
    }
}
