/* The report's drawing of shardings. A tensor is a small grid: a row for each part along the first dimension that is
 * split, a column for each along the second, and in each cell the devices that hold it. Everything comes from
 * sharding*.json of the run; the collectives from its program. */
#include "cli/report_placement.h"

#include <stdio.h>

#include "base/file.h"
#include "cli/chart.h"
#include "train/placements.h"

bool xl_placement_as_parameter(const xl_placements *l, const xl_placement *t)
{
    xl_str n = t->name;                                    /* NAME.m or adamw.m.NAME, and v */
    if (xl_str_starts(n, XL_STR("adamw.")) && n.n > 8)
        n = (xl_str){ n.p + 8, n.n - 8 };
    else if (xl_str_ends(n, XL_STR(".m")) || xl_str_ends(n, XL_STR(".v")))
        n.n -= 2;
    else
        return false;
    for (uint32_t i = 0; i < l->n; i++)
        if (xl_str_eq(l->t[i].name, n))
            return l->t[i].rank == t->rank && l->t[i].npart == t->npart &&
                   !memcmp(l->t[i].part, t->part, t->npart * sizeof *t->part);
    return false;
}

enum { DRAWN = 48, GRID = 16 };

static int64_t parts_along(const xl_placement *t, uint32_t d)
{
    int64_t len = t->npart ? t->part[0].hi[d] - t->part[0].lo[d] : 0;
    return len > 0 ? (t->dims[d] + len - 1) / len : 1;
}

static void grid(const xl_placement *t, xl_buf *b)
{
    uint32_t row = t->rank, col = t->rank;
    for (uint32_t d = 0; d < t->rank; d++)
        if (parts_along(t, d) > 1) {
            if (row == t->rank)
                row = d;
            else if (col == t->rank)
                col = d;
        }
    int64_t nr = row < t->rank ? parts_along(t, row) : 1, nc = col < t->rank ? parts_along(t, col) : 1;
    if (nr > GRID || nc > GRID) {
        xl_buf_printf(b, "<span class=\"quiet\">%lld parts</span>", (long long)(nr * nc));
        return;
    }
    if (row < t->rank && col == t->rank && row > 0) {      /* a split of columns looks like one */
        nc = nr;
        nr = 1;
        col = row;
        row = t->rank;
    }
    xl_buf_puts(b, "<table class=\"held\" style=\"border-collapse:collapse;margin:2px\">");
    for (int64_t r = 0; r < nr; r++) {
        xl_buf_puts(b, "<tr>");
        for (int64_t c = 0; c < nc; c++) {
            xl_buf_puts(b, "<td style=\"border:1px solid;padding:1px 5px;font-size:11px\">");
            for (uint32_t p = 0, n = 0; p < t->npart; p++) {
                const xl_placement_part *h = &t->part[p];
                bool here = (row == t->rank || h->lo[row] / (t->part[0].hi[row] - t->part[0].lo[row]) == r) &&
                            (col == t->rank || h->lo[col] / (t->part[0].hi[col] - t->part[0].lo[col]) == c);
                if (here)
                    xl_buf_printf(b, "%s%d", n++ ? " " : "", h->device);
            }
            xl_buf_puts(b, "</td>");
        }
        xl_buf_puts(b, "</tr>");
    }
    xl_buf_puts(b, "</table>");
}

static void list(const xl_placements *l, xl_buf *b)
{
    char w[32], v[32];
    uint32_t shown = 0, left = 0;
    xl_buf_puts(b, "<p>");
    if (l->program.n) {
        xl_html_text(b, l->program);
        xl_buf_puts(b, ": ");
    }
    if (l->mesh.n) {
        xl_buf_puts(b, "mesh ");
        xl_html_text(b, l->mesh);
        xl_buf_puts(b, ", ");
    }
    xl_buf_printf(
        b, "%u devices. Device 0 holds %s of these tensors, of which %s only because others hold the same.</p>\n",
        l->ndevice, xl_html_bytes(w, (double)xl_placement_on(l, 0)),
        xl_html_bytes(v, (double)xl_placement_waste(l, 0)));
    xl_buf_puts(b, "<div class=\"wide\"><table><tr><th>tensor</th><th>shape</th><th>split over</th><th class=\"n\">on "
                   "each device</th><th class=\"n\">copies</th><th>devices by part</th></tr>");
    for (uint32_t i = 0; i < l->n; i++) {
        const xl_placement *t = &l->t[i];
        if (!t->npart || xl_placement_as_parameter(l, t))
            continue;
        if (shown++ >= DRAWN) {
            left++;
            continue;
        }
        xl_buf_puts(b, "<tr><td>");
        xl_html_text(b, t->name);
        xl_buf_puts(b, "</td><td>");
        xl_html_text(b, t->dtype);
        for (uint32_t d = 0; d < t->rank; d++)
            xl_buf_printf(b, d ? " x %lld" : " %lld", (long long)t->dims[d]);
        xl_buf_puts(b, "</td><td>");
        xl_html_text(b, t->split);
        xl_buf_printf(b, "</td><td class=\"n\">%s</td><td class=\"n\">%lld</td><td>",
                      xl_html_bytes(w, (double)t->part[0].bytes), (long long)xl_placement_copies(t));
        grid(t, b);
        xl_buf_puts(b, "</td></tr>");
    }
    xl_buf_puts(b, "</table></div>\n");
    if (left)
        xl_buf_printf(b,
                      "<p class=\"quiet\">%u more are in the run's sharding.json; optimizer moments lie as their "
                      "parameters.</p>\n",
                      left);
    else
        xl_buf_puts(b, "<p class=\"quiet\">Optimizer moments that lie as their parameters are not drawn again.</p>\n");
}

static void crossings(const xl_crossings *c, xl_buf *b)
{
    char w[32];
    if (!c->n)
        return;
    xl_buf_puts(b, "<div class=\"wide\"><table><tr><th>collective</th><th>over</th><th class=\"n\">times a "
                   "step</th><th class=\"n\">bytes per device and step</th></tr>");
    for (uint32_t i = 0; i < c->n; i++)
        xl_buf_printf(b, "<tr><td>%s</td><td>%s</td><td class=\"n\">%lld</td><td class=\"n\">%s%s</td></tr>",
                      xl_ops[c->c[i].op].text, c->c[i].axes, (long long)c->c[i].count, xl_html_bytes(w, c->c[i].bytes),
                      c->c[i].loops ? ", a loop counted once" : "");
    xl_buf_puts(b, "</table></div>\n");
}

void xl_placement_html(xl_arena *a, const char *dir, xl_buf *b)
{
    xl_str *names;
    size_t n = 0;
    bool head = false;
    xl_error *err = xl_dir_list(a, dir, &names, &n);
    for (size_t i = 0; !err && i < n; i++) {
        xl_placements l;
        if (!xl_str_starts(names[i], XL_STR("sharding")) || !xl_str_ends(names[i], XL_STR(".json")))
            continue;
        err = xl_placement_read(a, xl_path_join(a, dir, xl_str_c(a, names[i])), &l);
        if (err || l.ndevice < 2)
            continue;
        if (!head)
            xl_buf_puts(b, "<h2>Who holds what</h2>\n");
        head = true;
        list(&l, b);
    }
    xl_config c;
    if (!err && head && xl_file_stat(xl_path_join(a, dir, "config.yaml"), NULL)) {
        xl_sharding_plan p;
        err = xl_placement_config(a, dir, NULL, 0, &c);
        if (!err)
            err = xl_train_sharding(a, &c, false, &p);
        if (!err)
            crossings(&p.crossing, b);
    }
    if (err)
        fprintf(stderr, "xlane: left out: %s\n", xl_error_message(err));
    xl_error_free(err);
}
