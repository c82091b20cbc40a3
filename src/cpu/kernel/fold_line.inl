/* Folds one line of n elements into one: T, NAME. The line is cut into blocks of XL_FOLD_BLOCK elements that are joined
 * in pairs, so the rounding error of a sum grows with log n. Each block has sixteen partial results, joined in a fixed
 * order. */
#define FOLD(name, expr, keeps)                                                                                        \
    static T NAME(name##_pairs)(const T *p, size_t n)                                                                  \
    {                                                                                                                  \
        if (n > XL_FOLD_BLOCK) {                                                                                       \
            size_t half = (n / 2 + XL_FOLD_BLOCK - 1) / XL_FOLD_BLOCK * XL_FOLD_BLOCK;                                 \
            T x = NAME(name##_pairs)(p, half), y = NAME(name##_pairs)(p + half, n - half);                             \
            return (T)(expr);                                                                                          \
        }                                                                                                              \
        T part[16];                                                                                                    \
        size_t whole = n < 32 ? 1 : 16, i = whole;                                                                     \
        for (size_t k = 0; k < whole; k++)                                                                             \
            part[k] = p[k];                                                                                            \
        if (n >= 32) {                                                                                                 \
            for (; i + 16 <= n; i += 16)                                                                               \
                for (int k = 0; k < 16; k++) {                                                                         \
                    T x = part[k], y = p[i + k];                                                                       \
                    part[k] = (T)(expr);                                                                               \
                }                                                                                                      \
            for (size_t k = 0; i + k < n; k++) {                                                                       \
                T x = part[k], y = p[i + k];                                                                           \
                part[k] = (T)(expr);                                                                                   \
            }                                                                                                          \
            i = n;                                                                                                     \
            _Pragma("GCC unroll 4") for (int w = 8; w; w /= 2) for (int k = 0; k < w; k++)                             \
            {                                                                                                          \
                T x = part[k], y = part[k + w];                                                                        \
                part[k] = (T)(expr);                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        T all = part[0];                                                                                               \
        for (; i < n; i++) {                                                                                           \
            T x = all, y = p[i];                                                                                       \
            all = (T)(expr);                                                                                           \
        }                                                                                                              \
        return all;                                                                                                    \
    }                                                                                                                  \
    static void NAME(name)(void *acc, const void *p, size_t n)                                                         \
    {                                                                                                                  \
        if (!n)                                                                                                        \
            return;                                                                                                    \
        T x = *(T *)acc, y = NAME(name##_pairs)(p, n);                                                                 \
        *(T *)acc = (T)(expr);                                                                                         \
    }                                                                                                                  \
    static void NAME(name##_at)(void *to, const void *from, const int64_t *place, size_t n, int64_t step)              \
    {                                                                                                                  \
        const T *up = from;                                                                                            \
        for (size_t i = 0; i < n; i++, up += step)                                                                     \
            if (place[i] >= 0) {                                                                                       \
                T x = ((T *)to)[place[i]], y = *up;                                                                    \
                if (!(keeps))                                                                                          \
                    ((T *)to)[place[i]] = (T)(expr);                                                                   \
            }                                                                                                          \
    }                                                                                                                  \
    static void NAME(name##_at32)(void *to, const void *from, const int32_t *place, size_t n, int64_t most)            \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            if ((uint64_t)(int64_t)place[i] <= (uint64_t)most) {                                                       \
                T x = ((T *)to)[place[i]], y = ((const T *)from)[i];                                                   \
                if (!(keeps))                                                                                          \
                    ((T *)to)[place[i]] = (T)(expr);                                                                   \
            }                                                                                                          \
    }                                                                                                                  \
    static void NAME(name##_rows)(void *to, const void *from, const int64_t *place, size_t rows, size_t step,          \
                                  size_t n)                                                                            \
    {                                                                                                                  \
        for (size_t b = 0; b < rows; b++) {                                                                            \
            size_t soon = b + 4 < rows && place[b + 4] >= 0 ? (size_t)place[b + 4] : 0; /* rows come anywhere */       \
            for (size_t i = 0; i < n && i * sizeof(T) < 512; i += 64 / sizeof(T))                                      \
                __builtin_prefetch((const T *)to + soon + i, 1);                                                       \
            if (place[b] < 0)                                                                                          \
                continue;                                                                                              \
            T *restrict old = (T *)to + place[b];                                                                      \
            const T *restrict up = (const T *)from + b * step;                                                         \
            for (size_t i = 0; i < n; i++) {                                                                           \
                T x = old[i], y = up[i];                                                                               \
                old[i] = (T)(expr);                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }
#ifdef INTEGER
#ifdef UNSIGNED                                            /* modulo 2^bits, for the signed type of this size as well */
FOLD(add, (uint64_t)x + (uint64_t)y, false)
FOLD(mul, (uint64_t)x * (uint64_t)y, false)
FOLD(and, x & y, false)
FOLD(or, x | y, false)
FOLD(xor, x ^ y, false)
#endif
FOLD(max, MAX(x, y), y < x)
FOLD(min, MIN(x, y), y > x)
#else
FOLD(add, x + y, false)
FOLD(mul, x *y, false)
FOLD(exact_max, MAX(x, y), y < x)
FOLD(exact_min, MIN(x, y), y > x)
#if defined(__aarch64__)                                   /* its instruction is the specification's maximum */
#define EXTREME(name, which, less)                                                    \
    static void NAME(name)(void *acc_, const void *x_, size_t n)                      \
    {                                                                                 \
        T *acc = acc_;                                                                \
        const T *p = x_;                                                              \
        size_t i = 0, lanes = sizeof(V) / sizeof(T);                                  \
        V part[4];                                                                    \
        for (int k = 0; k < 4; k++)                                                   \
            part[k] = HARDWARE(dup)(*acc);                                            \
        for (; i + 4 * lanes <= n; i += 4 * lanes)                                    \
            for (int k = 0; k < 4; k++)                                               \
                part[k] = HARDWARE(name)(part[k], *(const V *)(const void *)(p + i + (size_t)k * lanes)); \
        part[0] = HARDWARE(name)(HARDWARE(name)(part[0], part[1]), HARDWARE(name)(part[2], part[3])); \
        *acc = HARDWARE(name##v)(part[0]);                                            \
        NAME(exact_##name)(acc, p + i, n - i);                                        \
    }
#else
/* Neither NaN nor a zero at the end: then the order of numbers is all there is to know. Otherwise once more, exactly.
 * */
#define EXTREME(name, which, less)                                                    \
    static void NAME(name)(void *acc_, const void *x_, size_t n)                      \
    {                                                                                 \
        T *acc = acc_, all = *acc;                                                    \
        const T *p = x_;                                                              \
        V part[4];                                                                    \
        unsigned unordered = all != all;                                              \
        size_t i = 0, lanes = sizeof(V) / sizeof(T);                                  \
        for (int k = 0; k < 4; k++)                                                   \
            part[k] = (V){ 0 } + all;                                                 \
        for (; i + 4 * lanes <= n; i += 4 * lanes)                                    \
            for (int k = 0; k < 4; k += 2) {                                          \
                const V *y = (const V *)(const void *)(p + i + (size_t)k * lanes);    \
                unordered |= LANES(unordered)(y[0], y[1]);                            \
                part[k] = LANES(which)(y[0], part[k]);                                \
                part[k + 1] = LANES(which)(y[1], part[k + 1]);                        \
            }                                                                         \
        for (; i + lanes <= n; i += lanes) {                                          \
            V y = *(const V *)(const void *)(p + i);                                  \
            unordered |= LANES(unordered)(y, y);                                      \
            part[0] = LANES(which)(y, part[0]);                                       \
        }                                                                             \
        part[0] = LANES(which)(LANES(which)(part[0], part[1]), LANES(which)(part[2], part[3])); \
        for (; i < n; i++) {                                                          \
            unordered |= p[i] != p[i];                                                \
            all = all less p[i] ? p[i] : all;                                         \
        }                                                                             \
        for (size_t j = 0; j < lanes; j++)                                            \
            all = all less part[0][j] ? part[0][j] : all;                             \
        if (unordered || all == 0)                                                    \
            NAME(exact_##name)(acc, p, n);                                            \
        else                                                                          \
            *acc = all;                                                               \
    }
#endif
EXTREME(max, larger, <)
EXTREME(min, smaller, >)
#undef EXTREME
#endif
static xl_line_fn *NAME(find)(xl_opcode code)
{
    switch (code) {
    case XL_OP_MAXIMUM: return NAME(max);
    case XL_OP_MINIMUM: return NAME(min);
#if !defined(INTEGER) || defined(UNSIGNED)
    case XL_OP_ADD: return NAME(add);
    case XL_OP_MULTIPLY: return NAME(mul);
#endif
#ifdef UNSIGNED
    case XL_OP_AND: return NAME(and);
    case XL_OP_OR: return NAME(or);
    case XL_OP_XOR: return NAME(xor);
#endif
    default: return NULL;
    }
}
#define PUT(name) (xl_put){ NAME(name##_at), NAME(name##_at32), NAME(name##_rows) }
static xl_put NAME(put)(xl_opcode code)
{
    switch (code) {
#if !defined(INTEGER) || defined(UNSIGNED)
    case XL_OP_ADD: return PUT(add);
    case XL_OP_MULTIPLY: return PUT(mul);
#endif
#ifdef INTEGER
    case XL_OP_MAXIMUM: return PUT(max);
    case XL_OP_MINIMUM: return PUT(min);
#ifdef UNSIGNED
    case XL_OP_AND: return PUT(and);
    case XL_OP_OR: return PUT(or);
    case XL_OP_XOR: return PUT(xor);
#endif
#else
    case XL_OP_MAXIMUM: return PUT(exact_max);
    case XL_OP_MINIMUM: return PUT(exact_min);
#endif
    default: return (xl_put){ 0 };
    }
}
#undef PUT
#undef FOLD
#undef T
#undef NAME
