/* xlane memory: what each physical device held, from memory.csv. */
#include <stdlib.h>

#include "cli/cli.h"
#include "lane/memory_csv.h"
#include "lane/run.h"

typedef struct { xl_str rank, device; int64_t last, peak, limit, samples, peak_step; } row;

static int64_t number(xl_str s)
{
    int64_t v = -1;
    return xl_str_i64(s, &v) ? v : -1;
}

static void put_size(xl_buf *b, int64_t v)
{
    char size[32];
    if (v < 0)
        xl_buf_printf(b, "%12s", "-");
    else
        xl_buf_printf(b, "%12s", xl_size_words((double)v, size));
}

static xl_error *memory(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_arena *a = cli->arena;
    xl_buf b = { 0 };
    char *dir;
    row *rows = NULL;
    size_t n = 0, cap = 0, nevent = 0;
    xl_node **event = NULL;
    XL_DO(xl_run_find(a, argc ? argv[0] : "last", &dir));
    xl_memory_csv c = xl_memory_csv_open(a, dir);
    for (xl_memory_row m; xl_memory_csv_next(&c, &m);) {
        row *r = NULL;
        for (size_t i = 0; i < n && !r; i++)
            if (xl_str_eq(rows[i].rank, m.rank) && xl_str_eq(rows[i].device, m.device))
                r = &rows[i];
        if (!r) {
            XL_PUSH(a, rows, n, cap, ((row){ m.rank, m.device, 0, -1, -1, 0, 0 }));
            r = &rows[n - 1];
        }
        r->last = m.in_use;
        r->samples++;
        int64_t peak = m.peak > r->last ? m.peak : r->last;
        if (peak > r->peak) {
            r->peak = peak;
            r->peak_step = m.step;
        }
        if (m.limit >= 0)
            r->limit = m.limit;
    }
    const char *refused = NULL;
    XL_DO(xl_run_events(a, dir, &event, &nevent));
    for (size_t i = 0; i < nevent; i++) {
        const xl_node *what = xl_node_get(event[i], "event"), *call = xl_node_get(event[i], "call"),
                      *why = xl_node_get(event[i], "error"), *plugin = xl_node_get(event[i], "plugin");
        if (what && xl_str_is(what->s, "memory") && call && why && plugin)
            refused =
                xl_strf(a, "%.*s of %.*s cannot answer: %.*s", XL_FMT(call->s), XL_FMT(plugin->s), XL_FMT(why->s)).p;
    }
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        xl_json_map(&j);
        xl_json_key(&j, "devices");
        xl_json_list(&j);
        for (size_t i = 0; i < n; i++) {
            xl_json_map(&j);
            xl_json_put_int(&j, "rank", number(rows[i].rank));
            xl_json_put_int(&j, "device", number(rows[i].device));
            xl_json_put_int(&j, "bytes_in_use", rows[i].last);
            xl_json_put_int(&j, "peak_bytes_in_use", rows[i].peak);
            xl_json_put_int(&j, "peak_step", rows[i].peak_step);
            if (rows[i].limit >= 0)
                xl_json_put_int(&j, "bytes_limit", rows[i].limit);
            xl_json_put_int(&j, "samples", rows[i].samples);
            xl_json_end(&j);
        }
        xl_json_end(&j);
        if (refused)
            xl_json_put_text(&j, "refused", refused);
        xl_json_end(&j);
    } else {
        if (n)
            xl_buf_puts(&b, "rank  device        in use          peak         limit   peak at step   samples\n");
        for (size_t i = 0; i < n; i++) {
            xl_buf_printf(&b, "%4.*s  %6.*s  ", XL_FMT(rows[i].rank), XL_FMT(rows[i].device));
            put_size(&b, rows[i].last);
            xl_buf_puts(&b, "  ");
            put_size(&b, rows[i].peak);
            xl_buf_puts(&b, "  ");
            put_size(&b, rows[i].limit);
            xl_buf_printf(&b, "   %12lld   %7lld\n", (long long)rows[i].peak_step, (long long)rows[i].samples);
        }
        if (refused)
            xl_buf_printf(&b, "%s\n", refused);
        if (!n && !refused)
            xl_buf_printf(&b, "%s has no memory figures: no step was executed under the guard\n", dir);
    }
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    return err;
}

XL_VERB(memory) = {
    .name = "memory",
    .args = "[RUN]",
    .help = "what each physical device held during a run",
    .more = "Of the newest run, if none is named. The figures are the plugin's, taken at the boundaries of steps.",
    .example = "xlane memory last",
    .min = 0,
    .max = 1,
    .run = memory,
};
