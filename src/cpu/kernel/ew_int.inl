/* Elementwise functions of one integer type. T: stored type; A: type for arithmetic; U: its unsigned counterpart; BITS;
 * SIGNED; LOAD, STORE, NAME. Arithmetic wraps. */
#define UNARY(name, expr) XL_EW_UNARY(NAME(name), XL_IVDEP, T, T, A, LOAD, STORE((A)(expr)))
#define BINARY(name, expr) XL_EW_BINARY(NAME(name), XL_IVDEP, T, T, A, LOAD, STORE((A)(expr)))
#define UBITS(x) ((U)((U)(x) & (U)((U)-1 >> (8 * sizeof(U) - BITS)))) /* the value's own bits, no more */

static inline A NAME(div1)(A x, A y)
{
    if (y == 0)
        return (A)-1;
    if (SIGNED && y == (A)-1)
        return (A)(0 - (U)x);                              /* the least number over -1 is itself */
    return (A)(x / y);
}
static inline A NAME(rem1)(A x, A y)
{
    if (y == 0)
        return x;
    if (SIGNED && y == (A)-1)
        return 0;
    return (A)(x % y);
}
static inline A NAME(pow1)(A x, A y)
{
    if (SIGNED && y < 0)
        return x == 1 ? 1 : x == (A)-1 ? ((U)y & 1 ? (A)-1 : 1) : 0;
    uint64_t r = 1, b = (uint64_t)x;
    for (U e = (U)y; e; e >>= 1, b *= b)
        if (e & 1)
            r *= b;
    return (A)r;
}
static inline A NAME(shra1)(A x, A y)
{
    U s = (U)y;
    return s >= BITS ? (SIGNED && x < 0 ? (A)-1
                        : SIGNED        ? 0
                                        : (x >> (BITS - 1) & 1 ? (A)-1 : 0))
           : SIGNED  ? (A)(x >> s)
                     : (A)((U)((U)x >> s) | (x >> (BITS - 1) & 1 && s ? (U) ~(U)0 << (BITS - s) : (U)0));
}
static inline A NAME(mulhi1)(A x, A y)
{
#if SIGNED
    return (A)(((__int128)x * (__int128)y) >> BITS);
#else
    return (A)(((unsigned __int128)x * (unsigned __int128)y) >> BITS);
#endif
}

UNARY(abs, SIGNED && x < 0 ? (A)(0 - (U)x) : x)
UNARY(negate, 0 - (U)x)
UNARY(sign, x > 0 ? 1 : x == 0 ? 0 : -1)
UNARY(not, ~(U)x)
UNARY(same, x)
UNARY(popcnt, __builtin_popcountll((unsigned long long)UBITS(x)))
UNARY(clz, UBITS(x) == 0 ? BITS : __builtin_clzll((unsigned long long)UBITS(x)) - (64 - BITS))
UNARY(square, (U)((uint64_t)(U)x * (U)x))
BINARY(add, (U)x + (U)y)
BINARY(sub, (U)x - (U)y)
BINARY(mul, (U)((WIDE)(U)x * (WIDE)(U)y))
BINARY(div, NAME(div1)(x, y))
BINARY(rem, NAME(rem1)(x, y))
BINARY(pow, NAME(pow1)(x, y))
BINARY(max, x > y ? x : y)
BINARY(min, x < y ? x : y)
BINARY(and, x & y)
BINARY(or, x | y)
BINARY(xor, x ^ y)
BINARY(shl, (U)y >= BITS ? 0 : (U)x << ((U)y & (BITS - 1)))
BINARY(shr, (U)y >= BITS ? 0 : UBITS(x) >> ((U)y & (BITS - 1)))
BINARY(shra, NAME(shra1)(x, y))
BINARY(mulhi, NAME(mulhi1)(x, y))

static void NAME(clamp)(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    (void)ctx;
    T *y = y_;
    const T *lo = x_[0], *x = x_[1], *hi = x_[2];
    XL_IVDEP
    for (size_t i = 0; i < n; i++) {
        A v = LOAD(x[i]), l = LOAD(lo[i]), h = LOAD(hi[i]);
        v = v < l ? l : v;
        y[i] = STORE((A)(v > h ? h : v));
    }
}
#define COMPARE(name, cmp)                                                                     \
    static void NAME(name)(void *y_, const void *const *x_, size_t n, const void *ctx)         \
    {                                                                                          \
        (void)ctx;                                                                             \
        uint8_t *y = y_;                                                                       \
        const T *a = x_[0], *b = x_[1];                                                        \
        for (size_t i = 0; i < n; i++)                                                         \
            y[i] = LOAD(a[i]) cmp LOAD(b[i]);                                                  \
    }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(ge, >=)
COMPARE(gt, >)
COMPARE(le, <=)
COMPARE(lt, <)
#undef COMPARE
static xl_ew_fn *const NAME(compare)[6] = { NAME(eq), NAME(ne), NAME(ge), NAME(gt), NAME(le), NAME(lt) };

static xl_ew_fn *const NAME(none) = NULL;
static xl_ew_fn *NAME(find)(xl_opcode code)
{
    switch (code) {
#define EW(op, f, i, c) case XL_OP_##op: return NAME(i);
#include "cpu/kernel/ew.def"
    default: return NULL;
    }
}
#undef UNARY
#undef BINARY
#undef UBITS
#undef T
#undef A
#undef U
#undef WIDE
#undef BITS
#undef SIGNED
#undef LOAD
#undef STORE
#undef NAME
