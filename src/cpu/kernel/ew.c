/* Finds the elementwise function of an op: directly for types with loops of their own, through f32 for the narrow
 * floats. Conversions go through one wide type per class. */
#include "cpu/kernel/ew.h"

#include <math.h>

#include "cpu/kernel/dtype.h"
#include "cpu/kernel/vmath.h"
#include "cpu/plan/planner.h"

enum { TILE = 256 };

xl_ew_fn *xl_ew_compare_c64(int direction);
xl_ew_fn *xl_ew_compare_c128(int direction);

/* ---- narrow floats ---------------------------------------------------------------------------------------------- */
#define WIDEN(name, bits, e, m, b, family, T)                                                          \
    static void widen_##name(float *y, const void *x, size_t n) { xl_##name##_to_f32(y, x, n); }       \
    static void narrow_##name(void *y, const float *x, size_t n) { xl_##name##_from_f32(y, x, n); }    \
    static void narrow64_##name(void *y, const double *x, size_t n) { xl_##name##_from_f64(y, x, n); }
XL_NARROW_FLOATS(WIDEN)
typedef void narrow64_fn(void *y, const double *x, size_t n);

#define ROWS(F) F(F4E2M1FN, f4E2M1FN) F(F6E2M3FN, f6E2M3FN) F(F6E3M2FN, f6E3M2FN) F(F8E3M4, f8E3M4) F(F8E4M3, f8E4M3) \
    F(F8E4M3FN, f8E4M3FN) F(F8E4M3FNUZ, f8E4M3FNUZ) F(F8E4M3B11FNUZ, f8E4M3B11FNUZ) F(F8E5M2, f8E5M2)               \
    F(F8E5M2FNUZ, f8E5M2FNUZ) F(F8E8M0FNU, f8E8M0FNU) F(BF16, bf16) F(F16, f16)

xl_widen_fn *xl_widen(xl_dtype d)
{
    switch (d) {
#define CASE(D, name) case XL_##D: return widen_##name;
    ROWS(CASE)
#undef CASE
    default: return NULL;
    }
}
xl_narrow_fn *xl_narrow(xl_dtype d)
{
    switch (d) {
#define CASE(D, name) case XL_##D: return narrow_##name;
    ROWS(CASE)
#undef CASE
    default: return NULL;
    }
}
static narrow64_fn *narrow64(xl_dtype d)
{
    switch (d) {
#define CASE(D, name) case XL_##D: return narrow64_##name;
    ROWS(CASE)
#undef CASE
    default: return NULL;
    }
}

typedef struct {
    xl_ew_fn *fn;                                          /* over f32 */
    const void *ctx;
    xl_widen_fn *widen[3];                                 /* NULL: the operand is taken as it is, out_bytes wide */
    size_t in_bytes[3], out_bytes;
    uint32_t nin;
    xl_narrow_fn *narrow;                                  /* NULL: the result is not a float of ours */
} via;

static void run_via(void *y, const void *const *x, size_t n, const void *ctx)
{
    const via *v = ctx;
    float tile[4][TILE];
    const void *in[3] = { NULL, NULL, NULL };
    for (size_t i = 0; i < n; i += TILE) {
        size_t m = n - i < TILE ? n - i : TILE;
        for (uint32_t k = 0; k < v->nin; k++) {
            const char *from = (const char *)x[k] + i * v->in_bytes[k];
            in[k] = from;
            if (v->widen[k]) {
                v->widen[k](tile[k], from, m);
                in[k] = tile[k];
            }
        }
        char *to = (char *)y + i * v->out_bytes;
        if (v->narrow) {
            v->fn(tile[3], in, m, v->ctx);
            v->narrow(to, tile[3], m);
        } else {
            v->fn(to, in, m, v->ctx);
        }
    }
}

static xl_ew through_f32(xl_arena *a, xl_ew inner, const xl_dtype *in, uint32_t nin, xl_dtype out)
{
    if (!inner.fn)
        return inner;
    via *v = xl_new(a, via, 1);
    v->fn = inner.fn;
    v->ctx = inner.ctx;
    v->nin = nin;
    v->out_bytes = xl_dtype_bytes(out);
    v->narrow = xl_narrow(out);
    for (uint32_t k = 0; k < nin; k++) {
        v->widen[k] = xl_widen(in[k]);
        v->in_bytes[k] = xl_dtype_bytes(in[k]);
    }
    return (xl_ew){ run_via, v };
}

/* ---- moving elements by size: select, and copies ---------------------------------------------------------------- */
#define SELECT(bits)                                                                                  \
    static void select_##bits(void *y_, const void *const *x, size_t n, const void *ctx)              \
    {                                                                                                 \
        (void)ctx;                                                                                    \
        uint##bits##_t *y = y_;                                                                       \
        const uint8_t *c = x[0];                                                                      \
        const uint##bits##_t *a = x[1], *b = x[2];                                                    \
        XL_IVDEP                                                                                      \
        for (size_t i = 0; i < n; i++) {                                                              \
            uint##bits##_t u = a[i], v = b[i], m = (uint##bits##_t)-(uint##bits##_t)(c[i] != 0);      \
            y[i] = (uint##bits##_t)(v ^ ((u ^ v) & m));                                               \
        }                                                                                             \
    }
SELECT(8)
SELECT(16)
SELECT(32)
SELECT(64)
typedef struct { uint64_t u[2]; } wide128;
static void select_128(void *y_, const void *const *x, size_t n, const void *ctx)
{
    (void)ctx;
    wide128 *y = y_;
    const uint8_t *c = x[0];
    const wide128 *a = x[1], *b = x[2];
    for (size_t i = 0; i < n; i++)
        y[i] = c[i] ? a[i] : b[i];
}

/* ---- comparison of floats --------------------------------------------------------------------------------------- */
#define COMPARE(name, T, cmp)                                                                         \
    static void name(void *y_, const void *const *x, size_t n, const void *ctx)                       \
    {                                                                                                 \
        (void)ctx;                                                                                    \
        uint8_t *y = y_;                                                                              \
        const T *a = x[0], *b = x[1];                                                                 \
        for (size_t i = 0; i < n; i++)                                                                \
            y[i] = a[i] cmp b[i];                                                                     \
    }
#define COMPARES(t, T) COMPARE(eq_##t, T, ==) COMPARE(ne_##t, T, !=) COMPARE(ge_##t, T, >=) COMPARE(gt_##t, T, >) \
    COMPARE(le_##t, T, <=) COMPARE(lt_##t, T, <)                                                                  \
    static xl_ew_fn *const compare_##t[6] = { eq_##t, ne_##t, ge_##t, gt_##t, le_##t, lt_##t };
COMPARES(f32, float)
COMPARES(f64, double)

/* -NaN < -inf < ... < -0 < +0 < ... < inf < NaN: the order of the bits once negatives are turned over. */
static inline int32_t order32(int32_t v) { return v < 0 ? v ^ INT32_MAX : v; }
static inline int64_t order64(int64_t v) { return v < 0 ? v ^ INT64_MAX : v; }
#define TOTAL(name, T, order, cmp)                                                                    \
    static void name(void *y_, const void *const *x, size_t n, const void *ctx)                       \
    {                                                                                                 \
        (void)ctx;                                                                                    \
        uint8_t *y = y_;                                                                              \
        const T *a = x[0], *b = x[1];                                                                 \
        for (size_t i = 0; i < n; i++)                                                                \
            y[i] = order(a[i]) cmp order(b[i]);                                                       \
    }
#define TOTALS(t, T, o)                                                                                                \
    TOTAL(teq_##t, T, o, ==)                                                                                           \
    TOTAL(tne_##t, T, o, !=) TOTAL(tge_##t, T, o, >=) TOTAL(tgt_##t, T, o, >) TOTAL(tle_##t, T, o, <=)                 \
        TOTAL(tlt_##t, T, o, <) static xl_ew_fn *const total_##t[6] = { teq_##t, tne_##t, tge_##t,                     \
                                                                        tgt_##t, tle_##t, tlt_##t };
TOTALS(f32, int32_t, order32)
TOTALS(f64, int64_t, order64)

static xl_ew find_compare(xl_arena *a, const xl_dtype *in, int64_t direction, bool total)
{
    xl_ew e = { 0 };
    if (direction < 0 || direction > 5)
        return e;
    switch (xl_dtype_class(in[0])) {
    case XL_CLASS_PRED: case XL_CLASS_INT: case XL_CLASS_UINT:
        e.fn = xl_ew_int_compare(in[0], (int)direction);
        return e;
    case XL_CLASS_COMPLEX:
        e.fn = in[0] == XL_C64 ? xl_ew_compare_c64((int)direction) : xl_ew_compare_c128((int)direction);
        return e;
    case XL_CLASS_FLOAT:
        if (in[0] == XL_F64) {
            e.fn = total ? total_f64[direction] : compare_f64[direction];
            return e;
        }
        e.fn = total ? total_f32[direction] : compare_f32[direction];
        return in[0] == XL_F32 ? e : through_f32(a, e, in, 2, XL_I1);
    case XL_CLASS_NONE: break;
    }
    return e;
}

/* ---- conversion ------------------------------------------------------------------------------------------------- */
typedef enum { W_I64, W_U64, W_F32, W_F64 } wide;
typedef struct {
    xl_dtype from, to;
    wide w;
    xl_widen_fn *widen;
    xl_narrow_fn *narrow;
    narrow64_fn *narrow64;
} conv;
typedef union { int64_t i[TILE]; uint64_t u[TILE]; float f[TILE]; double d[TILE]; } wide_tile;

#define LOADI(T, field, expr) do { const T *p = x; for (size_t i = 0; i < n; i++) t->field[i] = (expr); } while (0)
static void load_wide(wide_tile *t, const void *x, size_t n, const conv *c)
{
    switch (c->from) {
    case XL_I1: LOADI(uint8_t, i, p[i] != 0); break;
    case XL_I2: LOADI(uint8_t, i, xl_i2_load(p[i])); break;
    case XL_I4: LOADI(uint8_t, i, xl_i4_load(p[i])); break;
    case XL_U2: LOADI(uint8_t, i, xl_ui2_load(p[i])); break;
    case XL_U4: LOADI(uint8_t, i, xl_ui4_load(p[i])); break;
    case XL_I8: LOADI(int8_t, i, p[i]); break;
    case XL_I16: LOADI(int16_t, i, p[i]); break;
    case XL_I32: LOADI(int32_t, i, p[i]); break;
    case XL_I64: LOADI(int64_t, i, p[i]); break;
    case XL_U8: LOADI(uint8_t, i, p[i]); break;
    case XL_U16: LOADI(uint16_t, i, p[i]); break;
    case XL_U32: LOADI(uint32_t, i, p[i]); break;
    case XL_U64: LOADI(uint64_t, u, p[i]); break;
    case XL_F32: LOADI(float, f, p[i]); break;
    case XL_F64: LOADI(double, d, p[i]); break;
    case XL_C64: LOADI(float, f, p[2 * i]); break;
    case XL_C128: LOADI(double, d, p[2 * i]); break;
    default: c->widen(t->f, x, n); break;
    }
}

/* Out of range goes to the nearest end, NaN to zero. */
static inline int64_t clip(double v, int64_t lo, int64_t hi)
{
    return v != v ? 0 : v <= (double)lo ? lo : v >= (double)hi ? hi : (int64_t)v;
}
static inline uint64_t clip_u64(double v)
{
    return !(v > 0) ? 0 : v >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)v;
}

#define STORE_ALL(T, intexpr, lo, hi)                                                                                  \
    do {                                                                                                               \
        T *p = y;                                                                                                      \
        switch (c->w) {                                                                                                \
        case W_I64:                                                                                                    \
            for (size_t i = 0; i < n; i++) {                                                                           \
                int64_t v = t->i[i];                                                                                   \
                p[i] = (T)(intexpr);                                                                                   \
            }                                                                                                          \
            break;                                                                                                     \
        case W_U64:                                                                                                    \
            for (size_t i = 0; i < n; i++) {                                                                           \
                int64_t v = (int64_t)t->u[i];                                                                          \
                p[i] = (T)(intexpr);                                                                                   \
            }                                                                                                          \
            break;                                                                                                     \
        case W_F32:                                                                                                    \
            for (size_t i = 0; i < n; i++) {                                                                           \
                int64_t v = clip((double)t->f[i], lo, hi);                                                             \
                p[i] = (T)(intexpr);                                                                                   \
            }                                                                                                          \
            break;                                                                                                     \
        case W_F64:                                                                                                    \
            for (size_t i = 0; i < n; i++) {                                                                           \
                int64_t v = clip(t->d[i], lo, hi);                                                                     \
                p[i] = (T)(intexpr);                                                                                   \
            }                                                                                                          \
            break;                                                                                                     \
        }                                                                                                              \
    } while (0)
#define STORE_FLOAT(T, step)                                                                                    \
    do {                                                                                                       \
        T *p = y;                                                                                              \
        switch (c->w) {                                                                                        \
        case W_I64: for (size_t i = 0; i < n; i++) p[step * i] = (T)t->i[i]; break;                             \
        case W_U64: for (size_t i = 0; i < n; i++) p[step * i] = (T)t->u[i]; break;                             \
        case W_F32: for (size_t i = 0; i < n; i++) p[step * i] = (T)t->f[i]; break;                             \
        case W_F64: for (size_t i = 0; i < n; i++) p[step * i] = (T)t->d[i]; break;                             \
        }                                                                                                      \
    } while (0)

static void store_wide(void *y, wide_tile *t, size_t n, const conv *c)
{
    switch (c->to) {
    case XL_I1: {
        uint8_t *p = y;
        switch (c->w) {
        case W_I64: case W_U64: for (size_t i = 0; i < n; i++) p[i] = t->i[i] != 0; break;
        case W_F32: for (size_t i = 0; i < n; i++) p[i] = t->f[i] != 0; break;
        case W_F64: for (size_t i = 0; i < n; i++) p[i] = t->d[i] != 0; break;
        }
        break;
    }
    case XL_I2: STORE_ALL(uint8_t, xl_i2_store(v), -2, 1); break;
    case XL_I4: STORE_ALL(uint8_t, xl_i4_store(v), -8, 7); break;
    case XL_U2: STORE_ALL(uint8_t, xl_i2_store(v), 0, 3); break;
    case XL_U4: STORE_ALL(uint8_t, xl_i4_store(v), 0, 15); break;
    case XL_I8: STORE_ALL(int8_t, v, INT8_MIN, INT8_MAX); break;
    case XL_I16: STORE_ALL(int16_t, v, INT16_MIN, INT16_MAX); break;
    case XL_I32: STORE_ALL(int32_t, v, INT32_MIN, INT32_MAX); break;
    case XL_I64: STORE_ALL(int64_t, v, INT64_MIN, INT64_MAX); break;
    case XL_U8: STORE_ALL(uint8_t, v, 0, UINT8_MAX); break;
    case XL_U16: STORE_ALL(uint16_t, v, 0, UINT16_MAX); break;
    case XL_U32: STORE_ALL(uint32_t, v, 0, UINT32_MAX); break;
    case XL_U64: {
        uint64_t *p = y;
        switch (c->w) {
        case W_I64: case W_U64: for (size_t i = 0; i < n; i++) p[i] = t->u[i]; break;
        case W_F32: for (size_t i = 0; i < n; i++) p[i] = clip_u64((double)t->f[i]); break;
        case W_F64: for (size_t i = 0; i < n; i++) p[i] = clip_u64(t->d[i]); break;
        }
        break;
    }
    case XL_F32: STORE_FLOAT(float, 1); break;
    case XL_F64: STORE_FLOAT(double, 1); break;
    case XL_C64: STORE_FLOAT(float, 2); for (size_t i = 0; i < n; i++) ((float *)y)[2 * i + 1] = 0; break;
    case XL_C128: STORE_FLOAT(double, 2); for (size_t i = 0; i < n; i++) ((double *)y)[2 * i + 1] = 0; break;
    default:
        switch (c->w) {
        case W_F32: c->narrow(y, t->f, n); break;
        case W_F64: c->narrow64(y, t->d, n); break;
        case W_I64: case W_U64: {
            double d[TILE];
            for (size_t i = 0; i < n; i++)
                d[i] = c->w == W_I64 ? (double)t->i[i] : (double)t->u[i];
            c->narrow64(y, d, n);
            break;
        }
        }
    }
}

static void run_convert(void *y, const void *const *x, size_t n, const void *ctx)
{
    const conv *c = ctx;
    size_t from = xl_dtype_bytes(c->from), to = xl_dtype_bytes(c->to);
    wide_tile t;
    for (size_t i = 0; i < n; i += TILE) {
        size_t m = n - i < TILE ? n - i : TILE;
        load_wide(&t, (const char *)x[0] + i * from, m, c);
        store_wide((char *)y + i * to, &t, m, c);
    }
}
static void run_widen(void *y, const void *const *x, size_t n, const void *ctx)
{
    ((const conv *)ctx)->widen(y, x[0], n);
}
static void run_narrow(void *y, const void *const *x, size_t n, const void *ctx)
{
    ((const conv *)ctx)->narrow(y, x[0], n);
}
static void run_complex(void *y, const void *const *x, size_t n, const void *ctx)
{
    const conv *c = ctx;
    if (c->from == XL_C64)
        for (size_t i = 0; i < 2 * n; i++)
            ((double *)y)[i] = ((const float *)x[0])[i];
    else
        for (size_t i = 0; i < 2 * n; i++)
            ((float *)y)[i] = (float)((const double *)x[0])[i];
}
static void run_same(void *y, const void *const *x, size_t n, const void *ctx)
{
    if (y != x[0])
        memmove(y, x[0], n * xl_dtype_bytes(((const conv *)ctx)->to));
}

xl_ew xl_ew_convert(xl_arena *a, xl_dtype from, xl_dtype to)
{
    conv *c = xl_new(a, conv, 1);
    xl_dclass cls = xl_dtype_class(from);
    *c = (conv){ from, to, W_I64, xl_widen(from), xl_narrow(to), narrow64(to) };
    if (from == to || (from == XL_I1 && to == XL_U8)) /* truth values are bytes: as in XLA, whatever the byte is */
        return (xl_ew){ run_same, c };
    if (cls == XL_CLASS_COMPLEX && xl_dtype_class(to) == XL_CLASS_COMPLEX)
        return (xl_ew){ run_complex, c };
    if (c->widen && to == XL_F32)
        return (xl_ew){ run_widen, c };
    if (from == XL_F32 && c->narrow)
        return (xl_ew){ run_narrow, c };
    c->w = from == XL_U64                            ? W_U64
           : from == XL_F64 || from == XL_C128       ? W_F64
           : cls == XL_CLASS_FLOAT || from == XL_C64 ? W_F32
                                                     : W_I64;
    return (xl_ew){ run_convert, c };
}

/* ---- reduce_precision ------------------------------------------------------------------------------------------- */
typedef struct { int exp, man; } precision;

#define REDUCE(name, T, U, MAN, EXP)                                                                            \
    static void name(void *y_, const void *const *x_, size_t n, const void *ctx)                                 \
    {                                                                                                           \
        const precision *r = ctx;                                                                               \
        U *y = y_;                                                                                              \
        const U *x = x_[0];                                                                                     \
        const U inf = (((U)1 << EXP) - 1) << MAN, sign = (U)1 << (MAN + EXP);                                    \
        for (size_t i = 0; i < n; i++) {                                                                        \
            U v = x[i], s = v & sign, m = v & ~sign;                                                            \
            if (m > inf) {                                                                                      \
                y[i] = r->man ? v : s | inf; /* no bit is left to tell NaN from infinity */                     \
                continue;                                                                                       \
            }                                                                                                   \
            if (r->man < MAN) {                                                                                 \
                int drop = MAN - r->man;                                                                        \
                U last = m >> drop & 1;                                                                         \
                m = (m + (((U)1 << (drop - 1)) - 1) + last) & ~(((U)1 << drop) - 1);                            \
            }                                                                                                   \
            if (r->exp < EXP) {                                                                                 \
                U bias = ((U)1 << (EXP - 1)) - 1, rbias = ((U)1 << (r->exp - 1)) - 1;                           \
                U e = m >> MAN;                                                                                 \
                if (e > bias + rbias)                                                                           \
                    m = inf;                                                                                    \
                else if (e <= bias - rbias)                                                                     \
                    m = 0;                                                                                      \
            }                                                                                                   \
            y[i] = s | m;                                                                                       \
        }                                                                                                       \
    }
REDUCE(reduce_f32, float, uint32_t, 23, 8)
REDUCE(reduce_f64, double, uint64_t, 52, 11)

/* Every op that these kernels serve has a row in ew.def: XL_EW_<op> is missing where one was forgotten. */
enum {
#define EW(op, f, i, c) XL_EW_##op,
#include "cpu/kernel/ew.def"
};
#define SERVED_unary ~,
#define SERVED_binary ~,
#define SERVED_select ~,
#define SERVED_clamp ~,
#define SECOND(a, b, ...) b
#define ROW_OF(name, served) SECOND(served XL_EW_##name, 0, 0)
#define OP(name, text, in, out, regions, types, grad, shard, kernel, flags) ROW_OF(name, SERVED_##kernel),
_Static_assert(sizeof((int[]){
#include "ir/ops.def"
               }) > 0, "");
#undef ROW_OF
#undef SECOND

/* ---- finding ---------------------------------------------------------------------------------------------------- */
xl_ew xl_ew_of(xl_arena *a, xl_opcode code, xl_dtype in, xl_dtype out)
{
    xl_ew e = { 0 };
    if (code == XL_OP_SELECT) {
        switch (xl_dtype_bytes(in)) {
        case 1: e.fn = select_8; break;
        case 2: e.fn = select_16; break;
        case 4: e.fn = select_32; break;
        case 8: e.fn = select_64; break;
        case 16: e.fn = select_128; break;
        default: break;
        }
        return e;
    }
    switch (xl_dtype_class(in)) {
    case XL_CLASS_PRED: case XL_CLASS_INT: case XL_CLASS_UINT: e.fn = xl_ew_int(in, code); return e;
    case XL_CLASS_COMPLEX: e.fn = in == XL_C64 ? xl_ew_c64(code) : xl_ew_c128(code); return e;
    case XL_CLASS_FLOAT: {
        if (in == XL_F64) {
            e.fn = xl_ew_f64(code);
            return e;
        }
        e.fn = xl_ew_f32(code);
        if (in == XL_F32)
            return e;
        xl_dtype three[3] = { in, in, in };
        return through_f32(a, e, three, (uint32_t)xl_ops[code].nin, out);
    }
    case XL_CLASS_NONE: break;
    }
    return e;
}

#define PRODUCT(name, T, form)                                                                          \
    static void name(void *y, const void *const *x, size_t n, const void *ctx)                          \
    {                                                                                                   \
        (void)ctx;                                                                                      \
        xl_vproduct_of_##T(form)(y, x[0], x[1], x[2], n);                                               \
    }
PRODUCT(product_plus_f32, f32, XL_PRODUCT_PLUS)
PRODUCT(product_less_f32, f32, XL_PRODUCT_LESS)
PRODUCT(less_product_f32, f32, XL_LESS_PRODUCT)
PRODUCT(product_plus_f64, f64, XL_PRODUCT_PLUS)
PRODUCT(product_less_f64, f64, XL_PRODUCT_LESS)
PRODUCT(less_product_f64, f64, XL_LESS_PRODUCT)

static xl_ew find_product_sum(xl_dtype d, int64_t form)
{
    static xl_ew_fn *const fn[2][XL_PRODUCT_FORMS] = { { product_plus_f32, product_less_f32, less_product_f32 },
                                                       { product_plus_f64, product_less_f64, less_product_f64 } };
    bool known = (d == XL_F32 || d == XL_F64) && form >= 0 && form < XL_PRODUCT_FORMS;
    return (xl_ew){ known ? fn[d == XL_F64][form] : NULL, NULL };
}

xl_ew xl_ew_find(xl_arena *a, const xl_op *op, const xl_dtype *in, xl_dtype out)
{
    xl_ew e = { 0 };
    switch (op->code) {
    case XL_OP_CONVERT: return xl_ew_convert(a, in[0], out);
    case XL_OP_COMPARE:
        return find_compare(a, in, xl_op_int(op, XL_SLOT(COMPARE, comparison_direction)),
                            xl_op_int(op, XL_SLOT(COMPARE, compare_type)) == XL_COMPARISON_TYPE_TOTALORDER);
    case XL_OP_SELECT: return xl_ew_of(a, XL_OP_SELECT, in[1], out);
    case XL_OP_PRODUCT_SUM: return find_product_sum(in[0], xl_op_int(op, XL_SLOT(PRODUCT_SUM, form)));
    case XL_OP_REDUCE_PRECISION: {
        precision *r = xl_new(a, precision, 1);
        *r = (precision){ (int)xl_op_int(op, XL_SLOT(REDUCE_PRECISION, exponent_bits)),
                          (int)xl_op_int(op, XL_SLOT(REDUCE_PRECISION, mantissa_bits)) };
        if (r->exp < 1 || r->man < 0)
            return e;
        e = (xl_ew){ in[0] == XL_F64 ? reduce_f64 : reduce_f32, r };
        return xl_is_narrow(in[0]) ? through_f32(a, e, in, 1, out) : e;
    }
    default: break;
    }
    if (op->nin == 0 || op->nin > 3)
        return e;
    if (xl_is_narrow(in[0])) {
        e.fn = xl_ew_f32((xl_opcode)op->code);
        return through_f32(a, e, in, op->nin, out);
    }
    return xl_ew_of(a, (xl_opcode)op->code, in[0], out);
}

/* ---- what the planner asks -------------------------------------------------------------------------------------- */
void xl_kernel_to_f64(xl_arena *a, xl_dtype d, double *y, const void *x, size_t n)
{
    xl_ew e = xl_ew_convert(a, d, XL_F64);
    e.fn(y, &x, n, e.ctx);
}

void xl_kernel_round(xl_dtype narrow, float x, void *y) { xl_narrow(narrow)(y, &x, 1); }
