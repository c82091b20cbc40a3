#include "cli/chart.h"

#include <math.h>
#include <stdio.h>

void xl_html_text(xl_buf *b, xl_str s)
{
    for (size_t i = 0; i < s.n; i++)
        switch (s.p[i]) {
        case '<': xl_buf_puts(b, "&lt;"); break;
        case '>': xl_buf_puts(b, "&gt;"); break;
        case '&': xl_buf_puts(b, "&amp;"); break;
        case '"': xl_buf_puts(b, "&quot;"); break;
        default: xl_buf_putc(b, (unsigned char)s.p[i] < ' ' ? ' ' : s.p[i]);
        }
}

const char *xl_html_bytes(char out[32], double v)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    int u = 0;
    while (v >= 1024 && u < 4)
        v /= 1024, u++;
    snprintf(out, 32, v < 10 && u ? "%.2f %s" : v < 100 && u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return out;
}

const char *xl_html_seconds(char out[32], double s)
{
    if (s < 1e-3)
        snprintf(out, 32, "%.0f µs", s * 1e6);
    else if (s < 1)
        snprintf(out, 32, "%.1f ms", s * 1e3);
    else if (s < 120)
        snprintf(out, 32, "%.1f s", s);
    else
        snprintf(out, 32, "%d min %02d s", (int)(s / 60), (int)fmod(s, 60));
    return out;
}

/* A step of 1, 2 or 5 times a power of ten, so that about four fit. */
static double nice_step(double range)
{
    if (!(range > 0))
        return 1;
    double raw = range / 4, p = pow(10, floor(log10(raw))), m = raw / p;
    return p * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
}

enum { W = 720, H = 260, LEFT = 64, RIGHT = 16, TOP = 12, BOTTOM = 36, MOST = 600 };

void xl_chart_lines(xl_buf *b, const char *title, const char *xname, const char *unit, const xl_series *s, size_t n,
                    bool zero)
{
    double x0 = INFINITY, x1 = -INFINITY, y0 = zero ? 0 : INFINITY, y1 = -INFINITY;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < s[k].n; i++)
            if (isfinite(s[k].y[i]) && isfinite(s[k].x[i])) {
                x0 = fmin(x0, s[k].x[i]);
                x1 = fmax(x1, s[k].x[i]);
                y0 = fmin(y0, s[k].y[i]);
                y1 = fmax(y1, s[k].y[i]);
            }
    xl_buf_puts(b, "<figure><figcaption>");
    xl_html_text(b, xl_str_of(title));
    for (size_t k = 0; k < n && n > 1; k++) {
        xl_buf_printf(b, " <span class=\"key k%zu\">", k);
        xl_html_text(b, xl_str_of(s[k].name));
        xl_buf_puts(b, "</span>");
    }
    xl_buf_puts(b, "</figcaption>");
    if (!(x1 >= x0) || !(y1 >= y0)) {
        xl_buf_puts(b, "<p class=\"quiet\">no figures</p></figure>\n");
        return;
    }
    if (x1 == x0)
        x1 = x0 + 1;
    if (y1 == y0)
        y1 = y0 + (y0 ? fabs(y0) * 0.1 : 1);
    double sx = (W - LEFT - RIGHT) / (x1 - x0), sy = (H - TOP - BOTTOM) / (y1 - y0), step = nice_step(y1 - y0);
    xl_buf_printf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", W, H);
    xl_html_text(b, xl_str_of(title));
    xl_buf_puts(b, "\">");
    for (double y = ceil(y0 / step) * step; y <= y1 + step * 1e-9; y += step) {
        double py = H - BOTTOM - (y - y0) * sy;
        xl_buf_printf(b,
                      "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" x=\"%d\" "
                      "y=\"%.1f\" text-anchor=\"end\">%.4g</text>",
                      LEFT, W - RIGHT, py, py, LEFT - 6, py + 4, fabs(y) < step * 1e-6 ? 0.0 : y);
    }
    step = nice_step(x1 - x0);
    for (double x = ceil(x0 / step) * step; x <= x1 + step * 1e-9; x += step)
        xl_buf_printf(b, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>",
                      LEFT + (x - x0) * sx, H - BOTTOM + 16, x);
    xl_buf_printf(b, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", W - RIGHT, H - 4);
    xl_html_text(b, xl_str_of(xname));
    xl_buf_printf(b, "</text><text class=\"tick\" x=\"4\" y=\"%d\">", H - 4);
    xl_html_text(b, xl_str_of(unit));
    xl_buf_puts(b, "</text>");
    for (size_t k = 0; k < n; k++) {
        size_t every = s[k].n / MOST + 1, shown = 0; /* more points than pixels draw nothing more */
        double px = 0, py = 0;
        xl_buf_printf(b, "<polyline class=\"line k%zu\" points=\"", k);
        for (size_t i = 0; i < s[k].n; i++) {
            if ((i % every && i + 1 != s[k].n) || !isfinite(s[k].y[i]) || !isfinite(s[k].x[i]))
                continue;
            px = LEFT + (s[k].x[i] - x0) * sx;
            py = H - BOTTOM - (s[k].y[i] - y0) * sy;
            xl_buf_printf(b, "%.1f,%.1f ", px, py);
            shown++;
        }
        xl_buf_puts(b, "\"/>");
        if (shown == 1)
            xl_buf_printf(b, "<circle class=\"dot k%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", k, px, py);
    }
    xl_buf_puts(b, "</svg></figure>\n");
}

void xl_chart_bar(xl_buf *b, const char *title, const xl_part *p, size_t n)
{
    double sum = 0, at = 0;
    char word[32];
    for (size_t i = 0; i < n; i++)
        sum += p[i].value > 0 ? p[i].value : 0;
    xl_buf_puts(b, "<figure><figcaption>");
    xl_html_text(b, xl_str_of(title));
    xl_buf_puts(b, "</figcaption>");
    if (!(sum > 0)) {
        xl_buf_puts(b, "<p class=\"quiet\">no figures</p></figure>\n");
        return;
    }
    xl_buf_printf(b, "<svg viewBox=\"0 0 %d 36\" role=\"img\" preserveAspectRatio=\"none\" class=\"bar\">", W);
    for (size_t i = 0; i < n; i++) {
        double w = p[i].value > 0 ? p[i].value / sum * W : 0;
        xl_buf_printf(
            b, "<rect class=\"part k%zu\" x=\"%.1f\" y=\"4\" width=\"%.1f\" height=\"28\"><title>%s %s</title></rect>",
            i, at, w, p[i].name, xl_html_seconds(word, p[i].value));
        at += w;
    }
    xl_buf_puts(b, "</svg><p class=\"legend\">");
    for (size_t i = 0; i < n; i++)
        xl_buf_printf(b, "<span class=\"key k%zu\">%s %s (%.1f %%)</span> ", i, p[i].name,
                      xl_html_seconds(word, p[i].value > 0 ? p[i].value : 0),
                      100 * (p[i].value > 0 ? p[i].value : 0) / sum);
    xl_buf_puts(b, "</p></figure>\n");
}
