/* src/cpu/kernel/ew_loop.h
 * The loops of elementwise functions: result[i] = expr of x, and of y if there are two operands, for i < n. FROM and TO
 * are the types of elements in memory, X that of x and y; LOAD takes an element to it. HINT is XL_IVDEP or nothing. */
#ifndef XL_CPU_EW_LOOP_H
#define XL_CPU_EW_LOOP_H

#include "cpu/kernel/ew.h"

#define XL_EW_UNARY(name, HINT, TO, FROM, X, LOAD, expr)                                       \
    static void name(void *to, const void *const *from, size_t n, const void *ctx)             \
    {                                                                                          \
        (void)ctx;                                                                             \
        TO *result = to;                                                                       \
        const FROM *a = from[0];                                                               \
        HINT                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                       \
            X x = LOAD(a[i]);                                                                  \
            result[i] = (expr);                                                                \
        }                                                                                      \
    }
#define XL_EW_BINARY(name, HINT, TO, FROM, X, LOAD, expr)                                      \
    static void name(void *to, const void *const *from, size_t n, const void *ctx)             \
    {                                                                                          \
        (void)ctx;                                                                             \
        TO *result = to;                                                                       \
        const FROM *a = from[0], *b = from[1];                                                 \
        HINT                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                       \
            X x = LOAD(a[i]), y = LOAD(b[i]);                                                  \
            result[i] = (expr);                                                                \
        }                                                                                      \
    }

#endif
