/* src/cpu/kernel/conv_line.inl: conv_line.h with the compiler's vectors. Include after defining BYTES (of a vector),
 * ROWS (outputs at a time), NEEDS and SET. The file is compiled with contraction: products here are meant to be fused.
 * */
#include <stdbool.h>

#include "cpu/run/feature.h"
#include "cpu/kernel/conv_line.h"

enum { LANES = BYTES / 4, NV = XL_CONV_COLUMNS / LANES };
typedef float vec __attribute__((vector_size(BYTES), aligned(4), may_alias));

/* ROWS outputs of 16 features. */
static void tile(const xl_conv_line *c, size_t first, size_t column)
{
    vec acc[ROWS][NV];
    size_t step = c->step, columns = c->columns, sum = 0;
    bool again = false;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < NV; j++)
            acc[i][j] = (vec){ 0 };
    for (size_t l = 0; l < c->lines; l++)
        for (size_t from = 0; from < c->run; ) {
            size_t n = c->run - from < XL_CONV_SUM ? c->run - from : XL_CONV_SUM;
            if (sum && sum + n > XL_CONV_SUM) {
                for (int i = 0; i < ROWS; i++)
                    for (int j = 0; j < NV; j++) {
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
                vec k[NV];
                for (int j = 0; j < NV; j++)
                    k[j] = *(const vec *)(b + j * LANES);
#pragma GCC unroll 16
                for (int i = 0; i < ROWS; i++)
                    for (int j = 0; j < NV; j++)
                        acc[i][j] += k[j] * a[(size_t)i * step];
            }
            sum += n;
            from += n;
        }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < NV; j++) {
            vec *y = (vec *)(c->y + (first + (size_t)i) * c->ld + column + (size_t)(j * LANES));
            if (again)
                acc[i][j] += *y;
            *y = acc[i][j];
        }
}

/* The last outputs are done with some of those before them once more. */
static void line(const xl_conv_line *c)
{
    for (size_t column = 0; column < c->columns; column += XL_CONV_COLUMNS)
        for (size_t i = 0; i < c->n; i += ROWS)
            tile(c, i + ROWS <= c->n ? i : c->n - ROWS, column);
}

extern const xl_conv_set SET;
const xl_conv_set SET = { .needs = NEEDS, .rows = ROWS, .f32 = line };
