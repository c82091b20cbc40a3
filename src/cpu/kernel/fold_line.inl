/* One line of n elements folded into one: T, NAME. Sixteen partial results, joined in a fixed order. */
#define FOLD(name, first, expr)                                        \
    static void NAME(name)(void *acc_, const void *x_, size_t n)       \
    {                                                                  \
        T *acc = acc_;                                                 \
        const T *p = x_;                                               \
        size_t i = 0;                                                  \
        if (n >= 32) {                                                 \
            T part[16];                                                \
            for (int k = 0; k < 16; k++)                               \
                part[k] = p[k];                                        \
            for (i = 16; i + 16 <= n; i += 16)                         \
                for (int k = 0; k < 16; k++) {                         \
                    T x = part[k], y = p[i + k];                       \
                    part[k] = (T)(expr);                               \
                }                                                      \
            for (int w = 8; w; w /= 2)                                 \
                for (int k = 0; k < w; k++) {                          \
                    T x = part[k], y = part[k + w];                    \
                    part[k] = (T)(expr);                               \
                }                                                      \
            T x = *acc, y = part[0];                                   \
            *acc = (T)(expr);                                          \
        }                                                              \
        for (; i < n; i++) {                                           \
            T x = *acc, y = p[i];                                      \
            *acc = (T)(expr);                                          \
        }                                                              \
    }
FOLD(add, 0, x + y)
FOLD(mul, 1, x *y)
FOLD(max, 0, MAX(x, y))
FOLD(min, 0, MIN(x, y))
#ifdef INTEGER
FOLD(and, 0, x & y)
FOLD(or, 0, x | y)
FOLD(xor, 0, x ^ y)
#endif
static xl_line_fn *NAME(find)(xl_opcode code)
{
    switch (code) {
    case XL_OP_ADD: return NAME(add);
    case XL_OP_MULTIPLY: return NAME(mul);
    case XL_OP_MAXIMUM: return NAME(max);
    case XL_OP_MINIMUM: return NAME(min);
#ifdef INTEGER
    case XL_OP_AND: return NAME(and);
    case XL_OP_OR: return NAME(or);
    case XL_OP_XOR: return NAME(xor);
#endif
    default: return NULL;
    }
}
#undef FOLD
#undef T
#undef NAME
