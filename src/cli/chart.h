/* src/cli/chart.h
 * HTML and SVG output: escaped text, readable numbers, line charts and bars without scripts or network access. */
#ifndef XL_CLI_CHART_H
#define XL_CLI_CHART_H

#include "base/str.h"

typedef struct {
    const double *x, *y;
    size_t n;
    const char *name;
} xl_series; /* points whose y is not finite are left out */

void xl_html_text(xl_buf *b, xl_str s);                                        /* escaped */
const char *xl_html_bytes(char out[32], double bytes);                         /* "12.5 MiB" */
const char *xl_html_seconds(char out[32], double s);                           /* "3.2 ms" */
/* Up to four series over one x axis. `unit` labels the y axis, which starts at zero if `zero` is set. */
void xl_chart_lines(xl_buf *b, const char *title, const char *xname, const char *unit, const xl_series *s, size_t n,
                    bool zero);
/* One bar of parts, each with its name and share. */
typedef struct { const char *name; double value; } xl_part;
void xl_chart_bar(xl_buf *b, const char *title, const xl_part *p, size_t n);

#endif
