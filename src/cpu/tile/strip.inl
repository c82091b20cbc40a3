/* src/cpu/tile/strip.inl: the strip machine of strip.h. Define before including: BYTES (of a vector), NEEDS and SET
 * (the name of the table). Instructions pass the vectors in the registers of the calling convention, which has eight
 * for vectors. */
#include "cpu/kernel/vmath_lane.inl"
#include "cpu/tile/strip.h"

#define STRIP vf a, vf b, vf c, vf d, vf e, vf f, vf g, vf h
/* GCC for AArch64 jumps through x16 or x17: loaded there, the address needs no copy. */
#if defined(__aarch64__)
#define TARGET register xl_strip_fn *fn __asm__("x16") = pc[1].fn; __asm__("" : "+r"(fn));
#else
#define TARGET xl_strip_fn *fn = pc[1].fn;
#endif
#define NEXT TARGET ((op_fn *)fn)(pc + 1, at, a, b, c, d, e, f, g, h)
enum { VECTORS = 8 };
/* F of every vector of the strip: its name, its number, and whatever else there is. */
#define WITH(F, ...) F(a, 0, __VA_ARGS__) F(b, 1, __VA_ARGS__) F(c, 2, __VA_ARGS__) F(d, 3, __VA_ARGS__) \
    F(e, 4, __VA_ARGS__) F(f, 5, __VA_ARGS__) F(g, 6, __VA_ARGS__) F(h, 7, __VA_ARGS__)
#define EACH(F) WITH(F, )
typedef void op_fn(const xl_strip_ins *pc, size_t at, STRIP);   /* at: bytes into arrays of 4-byte elements */
#define INS(name) static void name(const xl_strip_ins *pc, size_t at, STRIP)
/* The same twice: as it is, and with the strip stored at z afterwards. */
#define OPS(name, ...)                                                             \
    INS(name) { __VA_ARGS__ NEXT; }                                                \
    INS(name##_store) { __VA_ARGS__ { vf *x = (vf *)(void *)place(pc->z, at); EACH(PUT) } NEXT; }
#define PUT(v, i, _) x[i] = v;
/* The sum is made before it is used: left to itself GCC reads the first vector alone, and of the pairs that follow
 * every second one straddles two cache lines. */
INLINE char *place(const char *base, size_t at)
{
    char *p = (char *)(uintptr_t)base + at;
#if defined(__aarch64__)
    __asm__("" : "+r"(p));
#endif
    return p;
}
#define ARRAY(p) ((const vf *)(const void *)place(pc->p, at))
#define F(f) (xl_strip_fn *)(f)
#define NUMBER(p) ((vf)((vi){ 0 } | *(const int32_t *)(const void *)pc->p))

INLINE vf half(vd lo, vd hi)
{
    vh x = __builtin_convertvector(lo, vh), y = __builtin_convertvector(hi, vh);
    vf r;
    memcpy(&r, &x, sizeof x);
    memcpy((char *)&r + sizeof x, &y, sizeof y);
    return r;
}
#define THROUGH_F64(f)                                                             \
    INLINE vf f_##f(vf x)                                                          \
    {                                                                              \
        vh lo, hi;                                                                 \
        memcpy(&lo, &x, sizeof lo);                                                \
        memcpy(&hi, (const char *)&x + sizeof lo, sizeof hi);                      \
        return half(d_##f(__builtin_convertvector(lo, vd)), d_##f(__builtin_convertvector(hi, vd))); \
    }
THROUGH_F64(rsqrt) THROUGH_F64(log1p) THROUGH_F64(expm1)

INLINE vf f_round_bf16(vf x)
{
    vu u = (vu)x, r = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    return fsel(x == x, (vf)r, (vf)((u & 0x80000000u) | 0x7fc00000u));
}
/* To the nearest end where it does not fit, NaN to zero. */
INLINE vf f_to_int(vf x)
{
    vi big = x >= 0x1p31f, r = __builtin_convertvector(x, vi);
    return (vf)((big & INT32_MAX) | (~big & r & (x == x)));
}

#define UNARY(name, expr)                                                          \
    INLINE vf do_##name(vf x) { return (expr); }
#define BINARY(name, expr)                                                         \
    INLINE vf do_##name(vf x, vf y) { return (expr); }
#include "cpu/tile/strip.def"

/* ---- memory ---- */
#define GET(v, i, _) v = x[i];
#define ALL(v, i, _) v = x;
OPS(load_m, const vf *x = ARRAY(x); EACH(GET))
OPS(load_s, vf x = NUMBER(x); EACH(ALL))
INS(store) { vf *x = (vf *)(void *)place(pc->x, at); EACH(PUT) NEXT; }

typedef uint16_t v16 __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
#define GET16(v, i, _) v = (vf)(__builtin_convertvector(x[i], vu) << 16);
#define PUT16(v, i, _) x[i] = __builtin_convertvector((vu)v >> 16, v16);
OPS(load_bf16, const v16 *x = (const v16 *)(const void *)(pc->x + at / 2); EACH(GET16))
INS(store_bf16) { v16 *x = (v16 *)(void *)((char *)(uintptr_t)pc->x + at / 2); EACH(PUT16) NEXT; }
OPS(load_truth,
    const uint8_t *p = (const uint8_t *)pc->x + at / 4;
    int32_t t[VECTORS * FL];
    for (int i = 0; i < VECTORS * FL; i++)
        t[i] = p[i] ? -1 : 0;
    const vf *x = (const vf *)t;
    EACH(GET))
INS(store_truth)
{
    uint8_t *p = (uint8_t *)(uintptr_t)pc->x + at / 4;
    int32_t t[VECTORS * FL];
    vf *x = (vf *)t;
    EACH(PUT)
    for (int i = 0; i < VECTORS * FL; i++)
        p[i] = (uint8_t)(t[i] & 1);
    NEXT;
}

/* ---- one op ---- */
#define ONE(v, i, OP) v = OP(v);
#define AM(v, i, OP) v = OP(v, y[i]);
#define MA(v, i, OP) v = OP(y[i], v);
#define AS(v, i, OP) v = OP(v, y);
#define SA(v, i, OP) v = OP(y, v);
#define MM(v, i, OP) v = OP(x[i], y[i]);
#define MS(v, i, OP) v = OP(x[i], y);
#define SM(v, i, OP) v = OP(x, y[i]);
#define UNARY(name, expr) OPS(name##_am, WITH(ONE, do_##name))
/* TANH is made in steps of some vectors, as many as there are registers for. */
enum { STEPS = BYTES == 64 ? 4 : 1 };
#define KEEP(v, i, _) x[i] = v;
#define GIVE(v, i, _) v = x[i];
#define TOGETHER(name, expr) OPS(name##_am, TANHS)
#define TANHS                                                                                                          \
    vf x[VECTORS];                                                                                                     \
    EACH(KEEP)                                                                                                         \
    _Pragma("GCC unroll 8") for (int i = 0; i < VECTORS; i += STEPS) f_tanhs(x + i, STEPS);                            \
    EACH(GIVE)
#define BINARY(name, expr)                                                                     \
    NOT_BY_NUMBER(name)                                                               \
    OPS(name##_as, vf y = NUMBER(x); WITH(AS, do_##name))                             \
    OPS(name##_ms, const vf *x = ARRAY(x); vf y = NUMBER(y); WITH(MS, do_##name))
#define NOT_BY_NUMBER(name)                                                           \
    OPS(name##_am, const vf *y = ARRAY(x); WITH(AM, do_##name))                       \
    OPS(name##_ma, const vf *y = ARRAY(x); WITH(MA, do_##name))                       \
    OPS(name##_sa, vf y = NUMBER(x); WITH(SA, do_##name))                             \
    OPS(name##_mm, const vf *x = ARRAY(x), *y = ARRAY(y); WITH(MM, do_##name))        \
    OPS(name##_sm, vf x = NUMBER(x); const vf *y = ARRAY(y); WITH(SM, do_##name))
#if FAST_FMA && defined(__x86_64__)
#define DIVISION(name, expr) NOT_BY_NUMBER(name)           /* the others are below */
#endif
#include "cpu/tile/strip.def"

#if FAST_FMA && defined(__x86_64__)
/* A quotient by a number without the divider, which takes six times as long: with y the float nearest to 1/c and q = x
 * y, q + (x - q c) y is off by less than a unit in the last place, and the same once more is x/c, rounded (Markstein:
 * of such a q, with such a y). Nothing under- or overflows if x and c lie between 2^-60 and 2^60; zero comes out right
 * but for its sign. */
#define BETWEEN(x) (((vu)(x) & 0x7fffffff) - 0x21800000u <= 0x3c000000u)
#define ALL_BETWEEN(v, i, X) between &= BETWEEN(X(v, i));
#define BETWEEN_OR_ZERO(v, i, X) between &= BETWEEN(X(v, i)) | ((vi)X(v, i) == 0);
#define BY_NUMBER(v, i, X)                                                                                             \
    {                                                                                                                  \
        vf x_ = X(v, i), q_ = f_product(x_, inverse);                                                                  \
        q_ = f_fma(f_fma(-q_, number, x_), inverse, q_);                                                               \
        v = f_fma(f_fma(-q_, number, x_), inverse, q_);                                                                \
    }
#define ACCUMULATED(v, i) v
#define IN_ARRAY(v, i) array[i]
#define BY_NUMBER_ANY(p, X)                                                                                            \
    vf number = NUMBER(p);                                                                                             \
    vi between = BETWEEN(number);                                                                                      \
    WITH(BETWEEN_OR_ZERO, X)                                                                                           \
    if (f_all(between)) {                                                                                              \
        vf inverse = 1 / number;                                                                                       \
        WITH(BY_NUMBER, X)                                                                                             \
    } else {                                                                                                           \
        WITH(BY_MACHINE, X)                                                                                            \
    }
#define BY_MACHINE(v, i, X) v = do_DIVIDE(X(v, i), number);
#define BY_NUMBER_FAST(any, p, X)                                                                                      \
    vf number = NUMBER(p), inverse = 1 / number;                                                                       \
    vi between = BETWEEN(number);                                                                                      \
    WITH(ALL_BETWEEN, X)                                                                                               \
    if (!f_all(between)) {                                                                                             \
        any(pc, at, a, b, c, d, e, f, g, h);                                                                           \
        return;                                                                                                        \
    }                                                                                                                  \
    WITH(BY_NUMBER, X)
#define NUMBER_DIVIDES(name, HAVE, p, X)                                                                               \
    __attribute__((noinline)) INS(name##_any);                                                                         \
    __attribute__((noinline)) INS(name##_any_store);                                                                   \
    OPS(name##_any, HAVE BY_NUMBER_ANY(p, X))                                                                          \
    INS(name) { HAVE BY_NUMBER_FAST(name##_any, p, X) NEXT; }                                                          \
    INS(name##_store)                                                                                                  \
    {                                                                                                                  \
        HAVE BY_NUMBER_FAST(name##_any_store, p, X)                                                                    \
        {                                                                                                              \
            vf *x = (vf *)(void *)place(pc->z, at);                                                                    \
            EACH(PUT)                                                                                                  \
        }                                                                                                              \
        NEXT;                                                                                                          \
    }
NUMBER_DIVIDES(DIVIDE_as, , x, ACCUMULATED)
NUMBER_DIVIDES(DIVIDE_ms, const vf *array = ARRAY(x);, y, IN_ARRAY)
#endif

/* ---- division by one number, exactly, and mostly without the divider: see xl_strip_divisor; THEN: what is done with
 * the quotient ---- */
#define BY_DIVIDER(v, i, THEN) v = THEN(do_DIVIDE(v, divisor), i);
#define AT(p, i) ((vf)((vi){ 0 } | ((const int32_t *)(const void *)pc->p)[i]))
#if FAST_FMA
#define LARGE(v, i, _) large &= fabsv(v) >= least;
#define LARGE_OR_ZERO(v, i, _) large &= (fabsv(v) >= least) | ((v == 0) & known);
#if defined(__aarch64__) && BYTES == 16                    /* in place: the compiler would copy the strip first */
typedef float part;
#define PART(i) ((const float *)(const void *)pc->x)[i]
#define BY(v, i, THEN)                                                                                                 \
    {                                                                                                                  \
        vf q_;                                                                                                         \
        __asm__("fmul %1.4s, %0.4s, %3.s[0]\n\tfmla %1.4s, %0.4s, %2.s[0]\n\t" ASM_##THEN                              \
                : "+w"(v), "=&w"(q_)                                                                                   \
                : "w"(high), "w"(low)OF_##THEN(i));                                                                    \
    }
#define ASM_QUOTIENT "mov %0.16b, %1.16b"
#define ASM_ROOT_OF "fsqrt %0.4s, %1.4s"
#define ASM_PER_Y "fdiv %0.4s, %1.4s, %4.4s"
#define OF_QUOTIENT(i)
#define OF_ROOT_OF(i)
#define OF_PER_Y(i) , "w"(y[i])
#define UNDER(v, i, _)                                                                                                 \
    {                                                                                                                  \
        vf q_;                                                                                                         \
        __asm__("fmul %1.4s, %4.4s, %3.s[0]\n\tfmla %1.4s, %4.4s, %2.s[0]\n\tfdiv %0.4s, %1.4s, %0.4s"                 \
                : "+w"(v), "=&w"(q_)                                                                                   \
                : "w"(high), "w"(low), "w"(y[i]));                                                                     \
    }
#else
typedef vf part;
#define PART(i) AT(x, i)
#define BY(v, i, THEN) v = THEN(f_fma(v, high, f_product(v, low)), i);
#define UNDER(v, i, _) v = do_DIVIDE(f_fma(y[i], high, f_product(y[i], low)), v);
#endif
/* No number of the strip lies below the divisor's least. Some do not that are refused here. */
INLINE bool all_large(const xl_strip_ins *pc, STRIP)
{
#if defined(__aarch64__) &&                                                                                            \
    BYTES == 16 /* by the first byte of each, which has the sign and all but one bit of the exponent */
#define TOPS(u, v) (uint8x16_t)vuzp2q_u16((uint16x8_t)u, (uint16x8_t)v)
    uint8x16_t x = vuzp2q_u8(TOPS(a, b), TOPS(c, d)), y = vuzp2q_u8(TOPS(e, f), TOPS(g, h));
    return vminvq_u8(vminq_u8(vaddq_u8(x, x), vaddq_u8(y, y))) >=
           ((((const uint32_t *)(const void *)pc->x)[3] >> 24) + 1) * 2;
#else
    vf least = AT(x, 3);
    vi large = ~(vi){ 0 };
    EACH(LARGE)
    return f_all(large);
#endif
}
/* The same without a hurry: zeros are as good as large numbers. A function of its own, so that the other one has its
 * registers. */
#define DIVIDE_BY_ANY(THEN)                                                        \
    vf least = AT(x, 3); vi known = least == least; vi large = ~(vi){ 0 };         \
    EACH(LARGE_OR_ZERO)                                                            \
    if (f_all(large)) {                                                            \
        part high = PART(1), low = PART(2);                                        \
        WITH(BY, THEN)                                                             \
    } else {                                                                       \
        vf divisor = NUMBER(x);                                                    \
        WITH(BY_DIVIDER, THEN)                                                     \
    }
#define DIVIDE_BY(any, THEN)                                                       \
    if (!all_large(pc, a, b, c, d, e, f, g, h)) {                                  \
        any(pc, at, a, b, c, d, e, f, g, h);                                       \
        return;                                                                    \
    }                                                                              \
    part high = PART(1), low = PART(2);                                            \
    WITH(BY, THEN)
#define DIVIDING(name, HAVE, THEN)                                                                                     \
    __attribute__((noinline)) INS(name##_any);                                                                         \
    __attribute__((noinline)) INS(name##_any_store);                                                                   \
    OPS(name##_any, HAVE DIVIDE_BY_ANY(THEN))                                                                          \
    INS(name) { HAVE DIVIDE_BY(name##_any, THEN) NEXT; }                                                               \
    INS(name##_store)                                                                                                  \
    {                                                                                                                  \
        HAVE DIVIDE_BY(name##_any_store, THEN)                                                                         \
        {                                                                                                              \
            vf *x = (vf *)(void *)place(pc->z, at);                                                                    \
            EACH(PUT)                                                                                                  \
        }                                                                                                              \
        NEXT;                                                                                                          \
    }
#else
#define DIVIDING(name, HAVE, THEN) OPS(name, HAVE vf divisor = NUMBER(x); WITH(BY_DIVIDER, THEN))
#endif
#define QUOTIENT(q, i) q
#define ROOT_OF(q, i) do_SQRT(q)
#define PER_Y(q, i) do_DIVIDE(q, y[i])
DIVIDING(divide_by, , QUOTIENT)
DIVIDING(divide_by_sqrt, , ROOT_OF)
DIVIDING(divide_by_divide, const vf *y = ARRAY(y);, PER_Y)
/* The array y is divided, and the quotient by the strip. */
#define UNDER_DIVIDER(v, i, _) v = do_DIVIDE(do_DIVIDE(y[i], divisor), v);
#if FAST_FMA
#define UNDER_LARGE(v, i, _) large &= (fabsv(y[i]) >= least) | ((y[i] == 0) & known);
#define UNDER_ANY                                                                  \
    const vf *y = ARRAY(y);                                                        \
    vf least = AT(x, 3); vi known = least == least; vi large = ~(vi){ 0 };         \
    EACH(UNDER_LARGE)                                                              \
    if (f_all(large)) {                                                            \
        part high = PART(1), low = PART(2);                                        \
        EACH(UNDER)                                                                \
    } else {                                                                       \
        vf divisor = NUMBER(x);                                                    \
        EACH(UNDER_DIVIDER)                                                        \
    }
#define UNDER_FAST(any)                                                            \
    const vf *y = ARRAY(y);                                                        \
    if (!all_large(pc, y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7])) {          \
        any(pc, at, a, b, c, d, e, f, g, h);                                       \
        return;                                                                    \
    }                                                                              \
    part high = PART(1), low = PART(2);                                            \
    EACH(UNDER)
__attribute__((noinline)) INS(divide_by_under_any);
__attribute__((noinline)) INS(divide_by_under_any_store);
OPS(divide_by_under_any, UNDER_ANY)
INS(divide_by_under) { UNDER_FAST(divide_by_under_any) NEXT; }
INS(divide_by_under_store)
{
    UNDER_FAST(divide_by_under_any_store)
    {
        vf *x = (vf *)(void *)place(pc->z, at);
        EACH(PUT)
    }
    NEXT;
}
#else
OPS(divide_by_under, const vf *y = ARRAY(y); vf divisor = NUMBER(x); EACH(UNDER_DIVIDER))
#endif

/* ---- a product and a sum, rounded once ---- */
#define PLUS(v, i, _) v = f_fma(XAT(i), YAT(i), v);
#define LESS(v, i, _) v = f_fma(XAT(i), YAT(i), -v);
#define FROM(v, i, _) v = f_fma(-XAT(i), YAT(i), v);
#define TIMES_PLUS(v, i, _) v = f_fma(v, XAT(i), YAT(i));
#define TIMES_LESS(v, i, _) v = f_fma(v, XAT(i), -YAT(i));
#define TIMES_FROM(v, i, _) v = f_fma(-v, XAT(i), YAT(i));
#define OF_PRODUCT(form, HAVE)                                                     \
    OPS(plus_##form, HAVE EACH(PLUS))                                              \
    OPS(less_##form, HAVE EACH(LESS))                                              \
    OPS(from_##form, HAVE EACH(FROM))
#define OF_TIMES(form, HAVE)                                                       \
    OPS(times_plus_##form, HAVE EACH(TIMES_PLUS))                                  \
    OPS(times_less_##form, HAVE EACH(TIMES_LESS))                                  \
    OPS(times_from_##form, HAVE EACH(TIMES_FROM))
#define XAT(i) x[i]
#define YAT(i) y[i]
#define HAVE_MM const vf *x = ARRAY(x), *y = ARRAY(y);
#define HAVE_MS const vf *x = ARRAY(x); vf y = NUMBER(y);
#define HAVE_SM vf x = NUMBER(x); const vf *y = ARRAY(y);
#define HAVE_SS vf x = NUMBER(x), y = NUMBER(y);
OF_PRODUCT(mm, HAVE_MM) OF_TIMES(mm, HAVE_MM)
#undef YAT
#define YAT(i) y
OF_TIMES(ms, HAVE_MS)
#undef XAT
#define XAT(i) x
OF_PRODUCT(ss, HAVE_SS) OF_TIMES(ss, HAVE_SS)
#undef YAT
#define YAT(i) y[i]
OF_PRODUCT(sm, HAVE_SM) OF_TIMES(sm, HAVE_SM)
#undef XAT
#undef YAT

/* ---- select ---- */
#define CHOOSE(v, i, _) v = fsel((vi)v, XAT(i), YAT(i));
#define YES(v, i, _) v = fsel((vi)x[i], v, YAT(i));
#define NO(v, i, _) v = fsel((vi)x[i], YAT(i), v);
#define YAT(i) y[i]
#define XAT(i) x[i]
OPS(select_mm, const vf *x = ARRAY(x), *y = ARRAY(y); EACH(CHOOSE))
OPS(select_yes_m, const vf *x = ARRAY(x), *y = ARRAY(y); EACH(YES))
OPS(select_no_m, const vf *x = ARRAY(x), *y = ARRAY(y); EACH(NO))
#undef XAT
#define XAT(i) x
OPS(select_sm, vf x = NUMBER(x); const vf *y = ARRAY(y); EACH(CHOOSE))
#undef YAT
#define YAT(i) y
OPS(select_ss, vf x = NUMBER(x), y = NUMBER(y); EACH(CHOOSE))
OPS(select_yes_s, const vf *x = ARRAY(x); vf y = NUMBER(y); EACH(YES))
OPS(select_no_s, const vf *x = ARRAY(x); vf y = NUMBER(y); EACH(NO))
#undef XAT
#define XAT(i) x[i]
OPS(select_ms, const vf *x = ARRAY(x); vf y = NUMBER(y); EACH(CHOOSE))

/* ---- two simple ops on the strip: x for the first, y for the second; each rounds ---- */
#define SIMPLE_ADD_AM(p, i, v) (v + p##_[i])
#define SIMPLE_ADD_AS(p, i, v) (v + p##_)
#define SIMPLE_SUBTRACT_AM(p, i, v) (v - p##_[i])
#define SIMPLE_SUBTRACT_AS(p, i, v) (v - p##_)
#define SIMPLE_SUBTRACT_MA(p, i, v) (p##_[i] - v)
#define SIMPLE_SUBTRACT_SA(p, i, v) (p##_ - v)
#define SIMPLE_MULTIPLY_AM(p, i, v) (v * p##_[i])
#define SIMPLE_MULTIPLY_AS(p, i, v) (v * p##_)
#define HAVE_AM(p) const vf *p##_ = ARRAY(p);
#define HAVE_MA(p) const vf *p##_ = ARRAY(p);
#define HAVE_AS(p) vf p##_ = NUMBER(p);
#define HAVE_SA(p) vf p##_ = NUMBER(p);
#define TWO(v, i, O, P, Q, R) v = SIMPLE_##Q##_##R(y, i, f_rounded(SIMPLE_##O##_##P(x, i, v)));
#define PAIR(O, P, Q, R)                                                           \
    OPS(pair_##O##_##P##_##Q##_##R, HAVE_##P(x) HAVE_##R(y)                        \
        WITH(TWO, O, P, Q, R))
#define PAIRS(O, P) PAIR(O, P, ADD, AM) PAIR(O, P, ADD, AS) PAIR(O, P, SUBTRACT, AM) PAIR(O, P, SUBTRACT, AS) \
    PAIR(O, P, SUBTRACT, MA) PAIR(O, P, SUBTRACT, SA) PAIR(O, P, MULTIPLY, AM) PAIR(O, P, MULTIPLY, AS)
XL_STRIP_SIMPLE(PAIRS)
#undef PAIR

/* ---- folding: elements i and i + 16 of every 32 are joined, then go into partial result i mod 16 of their line ----
 * */
enum { PARTS = XL_STRIP_PARTS / FL, BLOCK = 2 * PARTS };
#define TAKE(v, i, _) strip[i] = v;
#define FOLDING(name, op)                                                          \
    INS(name)                                                                      \
    {                                                                              \
        vf strip[VECTORS], *x = (vf *)(uintptr_t)pc->x;                            \
        EACH(TAKE)                                                                 \
        for (int k = 0; k < PARTS; k++) {                                          \
            vf part = x[k];                                                        \
            for (int i = 0; i < VECTORS; i += BLOCK)                                     \
                part = op(part, op(strip[i + k], strip[i + k + PARTS]));           \
            x[k] = part;                                                           \
        }                                                                          \
        NEXT;                                                                      \
    }
FOLDING(sum, do_ADD)
FOLDING(max, f_max)
FOLDING(min, f_min)

static void end(const xl_strip_ins *pc, size_t at, STRIP)
{
    (void)pc, (void)at, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
}

/* What a strip holds at first is never read: it is whatever lies in the registers, where that can be said. */
#if defined(__aarch64__)
#define ANYTHING(v, i, _) vf v; __asm__ volatile("" : "=w"(v));
#elif defined(__x86_64__)
#define ANYTHING(v, i, _) vf v; __asm__ volatile("" : "=x"(v));
#else
#define ANYTHING(v, i, _) vf v = { 0 };
#endif
INLINE void ask_ahead(const xl_strip_ahead *ahead, size_t strip)
{
    enum { CACHE_LINE = 64 };
    for (uint32_t k = 0; k < ahead->n; k++) {
        size_t bytes = VECTORS * FL * (size_t)ahead->of[k].size;
        const char *p = ahead->of[k].at + strip * bytes;
        if (ahead->of[k].write)
            for (size_t b = 0; b < bytes; b += CACHE_LINE)
                __builtin_prefetch(p + b, 1);
        else
            for (size_t b = 0; b < bytes; b += CACHE_LINE)
                __builtin_prefetch(p + b, 0, 2);
    }
}
INLINE void run_line(const xl_strip_ins *code, size_t from, size_t n, const xl_strip_ahead *ahead)
{
    op_fn *first = (op_fn *)code->fn;
    for (size_t i = 0; i < n; i++) {
        if (ahead)
            ask_ahead(ahead, from + i);
        EACH(ANYTHING)
        first(code, i * VECTORS * BYTES, a, b, c, d, e, f, g, h);
    }
#if defined(__AVX__)    /* the compiler, which sees vectors passed, leaves this to us; without it every SSE */
    _mm256_zeroupper(); /* instruction from here on would wait for the register that it overwrites */
#endif
}
static void run(const xl_strip_ins *code, size_t n, const xl_strip_ahead *ahead) { run_line(code, 0, n, ahead); }

/* The folds of a line: halves onto halves. Four at a time, or the registers of the strip would have to be cleared. */
typedef float f4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t i4 __attribute__((vector_size(16), aligned(4), may_alias));
INLINE f4 fold4(uint16_t op, f4 x, f4 y)
{
    if (op == XL_STRIP_SUM)
        return x + y;
    i4 less = op == XL_STRIP_MAX ? x > y : x < y, same = x == y, nan = (x != x) | (y != y);
    i4 equal = op == XL_STRIP_MAX ? (i4)x & (i4)y : (i4)x | (i4)y; /* of two zeros the one with the right sign */
    i4 r = (less & (i4)x) | (~less & ((same & equal) | (~same & (i4)y)));
    return (f4)((nan & (i4)(x + y)) | (~nan & r));
}
INLINE float join(uint16_t op, const float *part, float first)
{
    const f4 *p = (const f4 *)(const void *)part;
    f4 all = fold4(op, fold4(op, p[0], p[2]), fold4(op, p[1], p[3]));
    all = fold4(op, all, (f4){ all[2], all[3], all[2], all[3] });
    all = fold4(op, all, (f4){ all[1], all[1], all[1], all[1] });
    return fold4(op, (f4){ first, first, first, first }, all)[0];
}
INLINE void begin_fold(const xl_strip_fold *f)
{
    float none = f->op == XL_STRIP_SUM ? -0.0f : f->op == XL_STRIP_MAX ? -INFINITY : INFINITY;
    for (int k = 0; k < XL_STRIP_PARTS / FL; k++)
        ((vf *)(void *)f->part)[k] = fset(0) + none;
}

static void lines(xl_strip_ins *code, const xl_strip_step *step, uint32_t ncode, size_t n, size_t lines,
                  const xl_strip_ahead *ahead, const xl_strip_fold *fold, uint32_t nfold)
{
    for (size_t l = 0; l < lines; l++) {
        for (uint32_t k = 0; k < nfold; k++)
            begin_fold(&fold[k]);
        run_line(code, l * n, n, ahead);
        for (uint32_t k = 0; k < nfold; k++) {
            const xl_strip_fold *f = &fold[k];
            float all = f->op == XL_STRIP_SUM   ? join(XL_STRIP_SUM, f->part, f->first)
                        : f->op == XL_STRIP_MAX ? join(XL_STRIP_MAX, f->part, f->first)
                                                : join(XL_STRIP_MIN, f->part, f->first);
            memcpy(f->to + (int64_t)l * f->step, &all, sizeof all);
        }
        for (uint32_t k = 0; k < ncode; k++) {
            code[k].x += step[k].x;
            code[k].y += step[k].y;
            code[k].z += step[k].z;
        }
    }
}

#define BOTH(form, f) [form] = F(f), [XL_FORM_STORE + (form)] = F(f##_store)
#undef OF_PRODUCT
#undef OF_TIMES
const xl_strip_set SET = {
    .needs = NEEDS,
    .width = VECTORS * FL,
    .run = run,
    .lines = lines,
    .fn = {
        [XL_STRIP_LOAD] = { BOTH(XL_FORM_AM, load_m), BOTH(XL_FORM_AS, load_s) },
        [XL_STRIP_STORE] = { F(store) },
        [XL_STRIP_LOAD_BF16] = { BOTH(XL_FORM_AM, load_bf16) },
        [XL_STRIP_STORE_BF16] = { F(store_bf16) },
        [XL_STRIP_LOAD_TRUTH] = { BOTH(XL_FORM_AM, load_truth) },
        [XL_STRIP_STORE_TRUTH] = { F(store_truth) },
        [XL_STRIP_SELECT] = { BOTH(XL_SELECT_MM, select_mm), BOTH(XL_SELECT_MS, select_ms),
                              BOTH(XL_SELECT_SM, select_sm), BOTH(XL_SELECT_SS, select_ss),
                              BOTH(XL_SELECT_YES_M, select_yes_m), BOTH(XL_SELECT_YES_S, select_yes_s),
                              BOTH(XL_SELECT_NO_M, select_no_m),
                              BOTH(XL_SELECT_NO_S, select_no_s) },
#define OF_PRODUCT(f) { BOTH(XL_FORM_MM, f##_mm), BOTH(XL_FORM_SM, f##_sm), BOTH(XL_FORM_SS, f##_ss) }
#define OF_TIMES(f)                                                                                                    \
    { BOTH(XL_FORM_MM, f##_mm), BOTH(XL_FORM_MS, f##_ms), BOTH(XL_FORM_SM, f##_sm), BOTH(XL_FORM_SS, f##_ss) }
        [XL_STRIP_PLUS_PRODUCT] = OF_PRODUCT(plus),
        [XL_STRIP_PRODUCT_LESS] = OF_PRODUCT(less),
        [XL_STRIP_LESS_PRODUCT] = OF_PRODUCT(from),
        [XL_STRIP_TIMES_PLUS] = OF_TIMES(times_plus),
        [XL_STRIP_TIMES_LESS] = OF_TIMES(times_less),
        [XL_STRIP_LESS_TIMES] = OF_TIMES(times_from),
#define PAIR(O, P, Q, R) [XL_STRIP_##O##_##P##_##Q##_##R] = { BOTH(XL_FORM_AM, pair_##O##_##P##_##Q##_##R) },
        XL_STRIP_SIMPLE(PAIRS)
        [XL_STRIP_END] = { F(end) },
        [XL_STRIP_DIVIDE_BY] = { BOTH(XL_FORM_AS, divide_by) },
        [XL_STRIP_DIVIDE_BY_SQRT] = { BOTH(XL_FORM_AS, divide_by_sqrt) },
        [XL_STRIP_DIVIDE_BY_DIVIDE] = { BOTH(XL_FORM_AS, divide_by_divide) },
        [XL_STRIP_DIVIDE_BY_UNDER] = { BOTH(XL_FORM_AS, divide_by_under) },
        [XL_STRIP_SUM] = { F(sum) },
        [XL_STRIP_MAX] = { F(max) },
        [XL_STRIP_MIN] = { F(min) },
#define UNARY(name, expr) [XL_STRIP_##name] = { BOTH(XL_FORM_AM, name##_am) },
#define BINARY(name, expr)                                                                                             \
    [XL_STRIP_##name] = { BOTH(XL_FORM_AM, name##_am), BOTH(XL_FORM_MA, name##_ma), BOTH(XL_FORM_AS, name##_as),       \
                          BOTH(XL_FORM_SA, name##_sa), BOTH(XL_FORM_MM, name##_mm), BOTH(XL_FORM_MS, name##_ms),       \
                          BOTH(XL_FORM_SM, name##_sm) },
#include "cpu/tile/strip.def"
    },
};
