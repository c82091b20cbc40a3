/* Elementwise functions of an array and one number, for tile programs: the number is not spread out first. */
#include "cpu/ew.h"

#define ROWS(F) F(add, x + y) F(sub, x - y) F(mul, x *y) F(div, x / y)

#define SECOND(name, expr)                                                                     \
    static void name##_second(void *r_, const void *const *x_, size_t n, const void *ctx)      \
    {                                                                                          \
        (void)ctx;                                                                             \
        float *r = r_;                                                                         \
        const float *a = x_[0], y = *(const float *)x_[1];                                     \
        XL_IVDEP                                                                               \
        for (size_t i = 0; i < n; i++) {                                                       \
            float x = a[i];                                                                    \
            r[i] = (expr);                                                                     \
        }                                                                                      \
    }
#define FIRST(name, expr)                                                                      \
    static void name##_first(void *r_, const void *const *x_, size_t n, const void *ctx)       \
    {                                                                                          \
        (void)ctx;                                                                             \
        float *r = r_;                                                                         \
        const float *b = x_[1], x = *(const float *)x_[0];                                     \
        XL_IVDEP                                                                               \
        for (size_t i = 0; i < n; i++) {                                                       \
            float y = b[i];                                                                    \
            r[i] = (expr);                                                                     \
        }                                                                                      \
    }
ROWS(SECOND)
ROWS(FIRST)

xl_ew_fn *xl_ew_f32_scalar(xl_opcode code, uint32_t which)
{
    switch (code) {
    case XL_OP_ADD: return which ? add_second : add_first;
    case XL_OP_SUBTRACT: return which ? sub_second : sub_first;
    case XL_OP_MULTIPLY: return which ? mul_second : mul_first;
    case XL_OP_DIVIDE: return which ? div_second : div_first;
    default: return NULL;
    }
}
