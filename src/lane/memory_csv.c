#include "lane/memory_csv.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"

enum { T, RANK, PID, DEVICE, STEP, IN_USE, PEAK, LIMIT, LARGEST, SINCE, COUNT };
static const char *const names[COUNT] = { [T] = "t", [RANK] = "rank", [PID] = "pid", [DEVICE] = "device",
                                          [STEP] = "step", [IN_USE] = "bytes_in_use", [PEAK] = "peak_bytes_in_use",
                                          [LIMIT] = "bytes_limit", [LARGEST] = "largest_alloc",
                                          [SINCE] = "peak_since_last" };

xl_error *xl_memory_csv_create(xl_journal *j, const char *dir, bool shared)
{
    char path[4096];                                       /* no arena: without memory it would end the host process */
    xl_buf head = { 0 };
    for (int i = 0; i < COUNT; i++)
        xl_buf_printf(&head, "%s%c", names[i], i + 1 < COUNT ? ',' : '\n');
    int n = snprintf(path, sizeof path, "%s/memory.csv", dir);
    xl_error *err = n < 0 || n >= (int)sizeof path
                        ? XL_ERR(INVALID, "the name of the run's folder is too long: %s", dir)
                        : xl_journal_open(j, path, xl_buf_view(&head), shared);
    xl_buf_fini(&head);
    return err;
}

void xl_memory_csv_put(xl_buf *b, int rank, int pid, int64_t device, const xl_memory_row *r)
{
    const int64_t last[] = { r->peak, r->limit, r->largest, r->since };
    xl_buf_printf(b, "%.6f,%d,%d,%lld,%lld,%lld", r->t, rank, pid, (long long)device, (long long)r->step,
                  (long long)r->in_use);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        xl_buf_putc(b, ',');
        if (last[i] >= 0)
            xl_buf_printf(b, "%lld", (long long)last[i]);
    }
    xl_buf_putc(b, '\n');
}

xl_memory_csv xl_memory_csv_open(xl_arena *a, const char *dir)
{
    xl_memory_csv c = { 0 };
    char *path = xl_path_join(a, dir, "memory.csv");
    if (xl_file_stat(path, NULL))
        xl_error_free(xl_file_read_max(a, path, 256 << 20, &c.text));
    memset(c.column, -1, sizeof c.column);
    return c;
}

static int64_t number(xl_str s)
{
    int64_t v;
    return xl_str_i64(s, &v) ? v : -1;
}

bool xl_memory_csv_next(xl_memory_csv *c, xl_memory_row *r)
{
    while (c->text.n) {
        xl_str line = xl_str_cut(&c->text, '\n'), f[COUNT] = { 0 };
        bool head = line.n && line.p[0] == 't';
        for (int i = 0; line.n && i < XL_MEMORY_CSV_COLUMNS_MAX; i++) {
            xl_str word = xl_str_cut(&line, ',');
            if (head) {
                c->column[i] = -1;
                for (int k = 0; k < COUNT; k++)
                    c->column[i] = xl_str_is(word, names[k]) ? (int8_t)k : c->column[i];
            } else if (c->column[i] >= 0) {
                f[c->column[i]] = word;
            }
        }
        *r = (xl_memory_row){ .rank = f[RANK], .device = f[DEVICE], .step = number(f[STEP]),
                              .in_use = number(f[IN_USE]), .peak = number(f[PEAK]), .limit = number(f[LIMIT]),
                              .largest = number(f[LARGEST]), .since = number(f[SINCE]) };
        if (!head && xl_str_f64(f[T], &r->t) && r->in_use >= 0)
            return true;
    }
    return false;
}
