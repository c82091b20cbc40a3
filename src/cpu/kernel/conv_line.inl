/* src/cpu/kernel/conv_line.inl: conv_line.h with the compiler's vectors. Define before including: BYTES (of a vector),
 * ROWS (outputs computed together), NEEDS and SET; also WIDE_ROWS if computing that many outputs of twice the features
 * is faster, because each input element is then loaded once for two products. The file is compiled with contraction:
 * products are meant to be fused with their sums. */
#include <stdbool.h>

#include "cpu/run/feature.h"
#include "cpu/kernel/conv_line.h"

enum { LANES = BYTES / 4, NV = XL_CONV_COLUMNS / LANES };
typedef float vec __attribute__((vector_size(BYTES), aligned(4), may_alias));

/* `rows` outputs of `nv` vectors of features. */
__attribute__((always_inline)) static inline void tile(const int rows, const int nv, const xl_conv_line *c,
                                                       size_t first, size_t column)
{
    vec acc[ROWS][2 * NV];
    size_t step = c->step, columns = c->columns, sum = 0;
    bool again = false;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < nv; j++)
            acc[i][j] = (vec){ 0 };
    for (size_t l = 0; l < c->lines; l++)
        for (size_t from = 0; from < c->run; ) {
            size_t n = c->run - from < XL_CONV_SUM ? c->run - from : XL_CONV_SUM;
            if (sum && sum + n > XL_CONV_SUM) {
#pragma GCC unroll 16
                for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
                    for (int j = 0; j < nv; j++) {
                        vec *y = (vec *)(c->y + (first + (size_t)i) * c->ld + column + (size_t)(j * LANES));
                        if (again)
                            acc[i][j] += *y;
                        *y = acc[i][j];
                        acc[i][j] = (vec){ 0 };
                    }
                again = true;
                sum = 0;
            }
            const float *a = c->x[l] + first * step + from, *b = c->k[l] + from * columns + column;
            for (size_t p = 0; p < n; p++, a++, b += columns) {
                vec k[2 * NV];
#pragma GCC unroll 8
                for (int j = 0; j < nv; j++)
                    k[j] = *(const vec *)(b + j * LANES);
#pragma GCC unroll 16
                for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
                    for (int j = 0; j < nv; j++)
                        acc[i][j] += k[j] * a[(size_t)i * step];
            }
            sum += n;
            from += n;
        }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 16
        for (int j = 0; j < nv; j++) {
            vec *y = (vec *)(c->y + (first + (size_t)i) * c->ld + column + (size_t)(j * LANES));
            if (again)
                acc[i][j] += *y;
            *y = acc[i][j];
        }
}

/* The last outputs are done with some of those before them once more. */
__attribute__((always_inline)) static inline void tiles(const int rows, const int nv, const xl_conv_line *c,
                                                        size_t column)
{
    for (size_t i = 0; i < c->n; i += (size_t)rows)
        tile(rows, nv, c, i + (size_t)rows <= c->n ? i : c->n - (size_t)rows, column);
}
static void line(const xl_conv_line *c)
{
    size_t column = 0;
#ifdef WIDE_ROWS
    for (; column + 2 * XL_CONV_COLUMNS <= c->columns; column += 2 * XL_CONV_COLUMNS)
        tiles(WIDE_ROWS, 2 * NV, c, column);
#endif
    for (; column < c->columns; column += XL_CONV_COLUMNS)
        tiles(ROWS, NV, c, column);
}

/* `count` vectors from i on; the kernel's from `at` on. */
__attribute__((always_inline)) static inline void sum_terms(const int count, float *y, const xl_conv_term *t,
                                                            size_t terms, size_t sum, size_t i, size_t at)
{
    vec acc[8];
    for (size_t from = 0; from < terms || !from; from += sum) {
        size_t end = from + sum < terms ? from + sum : terms;
#pragma GCC unroll 8
        for (int r = 0; r < count; r++)
            acc[r] = (vec){ 0 };
        for (size_t k = from; k < end; k++) {
            const float *x = t[k].x + i, *w = t[k].k + at;
#pragma GCC unroll 8
            for (int r = 0; r < count; r++)
                acc[r] += *(const vec *)(x + r * LANES) * *(const vec *)(w + r * LANES);
        }
#pragma GCC unroll 8
        for (int r = 0; r < count; r++) {
            vec *to = (vec *)(y + i + (size_t)r * LANES);
            if (from)
                acc[r] += *to;
            *to = acc[r];
        }
    }
}

static void sum_lines(float *y, const xl_conv_term *t, size_t terms, size_t sum, size_t n, size_t period)
{
    size_t i = 0, at = 0;
    for (; i + 8 * LANES <= n; i += 8 * LANES, at = (at + 8 * LANES) % period)
        sum_terms(8, y, t, terms, sum, i, at);
    for (; i + 4 * LANES <= n; i += 4 * LANES, at = (at + 4 * LANES) % period)
        sum_terms(4, y, t, terms, sum, i, at);
    for (; i + 2 * LANES <= n; i += 2 * LANES, at = (at + 2 * LANES) % period)
        sum_terms(2, y, t, terms, sum, i, at);
    for (; i < n; i += LANES, at = (at + LANES) % period)
        sum_terms(1, y, t, terms, sum, i, at);
}

extern const xl_conv_set SET;
const xl_conv_set SET = { .needs = NEEDS, .rows = ROWS, .f32 = line, .terms = sum_lines };
