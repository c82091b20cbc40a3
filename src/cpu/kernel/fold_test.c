/* Folding a line with every instruction set: sums and products must have exactly the bits of blocks with sixteen
 * partial results, joined in pairs; maxima and minima follow the specification. The strip machine's maximum, minimum
 * and folds are tested in the same way. */
#include "cpu/kernel/fold.h"

#include <math.h>

#include "base/test.h"
#include "cpu/run/feature.h"
#include "cpu/tile/strip.h"

enum { MOST = 2800 };
static uint64_t state = 1;
static uint32_t any(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static double extreme(double x, double y, bool max)
{
    if (x != x || y != y)
        return NAN;
    if (x == 0 && y == 0)
        return signbit(x) == max ? y : x;
    return (x > y) == max ? x : y;
}
/* Rounded to float where that is the type: a sum or a product of two floats in double is rounded once more
 * to the same. */
static double two(xl_opcode op, double x, double y, bool f32)
{
    volatile double z = op == XL_OP_ADD ? x + y : op == XL_OP_MULTIPLY ? x * y : extreme(x, y, op == XL_OP_MAXIMUM);
    return f32 ? (double)(float)z : z;
}
static double pairs(xl_opcode op, const double *x, size_t n, bool f32)
{
    if (n > XL_FOLD_BLOCK) {
        size_t half = (n / 2 + XL_FOLD_BLOCK - 1) / XL_FOLD_BLOCK * XL_FOLD_BLOCK;
        return two(op, pairs(op, x, half, f32), pairs(op, x + half, n - half, f32), f32);
    }
    double part[16] = { x[0] };
    size_t i = n < 32 ? 1 : 16;
    if (n >= 32) {
        memcpy(part, x, sizeof part);
        for (; i + 16 <= n; i += 16)
            for (int k = 0; k < 16; k++)
                part[k] = two(op, part[k], x[i + (size_t)k], f32);
        for (int k = 0; i < n; i++, k++)
            part[k] = two(op, part[k], x[i], f32);
        for (int w = 8; w; w /= 2)
            for (int k = 0; k < w; k++)
                part[k] = two(op, part[k], part[k + w], f32);
    }
    for (; i < n; i++)
        part[0] = two(op, part[0], x[i], f32);
    return part[0];
}
static double line(xl_opcode op, double acc, const double *x, size_t n, bool f32)
{
    return n ? two(op, acc, pairs(op, x, n, f32), f32) : acc;
}
static bool same(double x, double y) { return (x != x && y != y) || !memcmp(&x, &y, sizeof x); }

/* Numbers of all sizes, or few of them and zeros of both signs, sometimes with an infinity or a NaN among them. */
static double number(int kind)
{
    static const double special[] = { 0, -0.0, 1, -1, INFINITY, -INFINITY };
    if (kind == 0)
        return (float)((int32_t)any() * 0x1p-31);
    if (kind < 3)
        return special[any() % (kind == 1 ? 2 : 4)] * (kind == 1 && any() % 4 == 0 ? -1 : 1);
    return any() % 100 == 0 ? NAN : any() % 50 ? (float)((int32_t)any() * 0x1p-31) : special[any() % 6];
}

/* With all this CPU has, then with less. */
static const uint32_t masks[] = { ~0u, XL_CPU_AVX2, 0 };

TEST(lines)
{
    static const xl_opcode ops[] = { XL_OP_ADD, XL_OP_MULTIPLY, XL_OP_MAXIMUM, XL_OP_MINIMUM };
    double x[MOST], d[MOST];
    float f[MOST];
    for (int m = 0; m < 3; m++) {
        xl_cpu_features_mask(masks[m]);
        for (size_t n = 0; n < MOST; n += n < 140 ? 1 : n < 300 ? 37 : 311)
            for (int kind = 0; kind < 4; kind++)
                for (int o = 0; o < 4; o++) {
                    for (size_t i = 0; i < n; i++)
                        f[i] = (float)(d[i] = x[i] = number(kind));
                    double acc = number(kind), d_acc = acc;
                    float f_acc = (float)acc;
                    xl_fold_line(XL_F32, ops[o])(&f_acc, f, n);
                    xl_fold_line(XL_F64, ops[o])(&d_acc, d, n);
                    double f_want = line(ops[o], acc, x, n, true), d_want = line(ops[o], acc, x, n, false);
                    if (!same(f_acc, f_want) || !same(d_acc, d_want))
                        FAIL("op %d of %zu numbers of kind %d, features %x: %a and %a, not %a and %a", o, n, kind,
                             masks[m], (double)f_acc, d_acc, f_want, d_want);
                }
    }
    xl_cpu_features_mask(~0u);
}

/* Many short rows at once have the bits of each on its own. */
TEST(short_rows)
{
    enum { ROWS = 21, WIDEST = 31 };
    float x[ROWS * WIDEST], acc[ROWS];
    for (int m = 0; m < 3; m++) {
        xl_cpu_features_mask(masks[m]);
        xl_rows_fn *add = xl_fold_rows(XL_F32, XL_OP_ADD);
        xl_line_fn *each = xl_fold_line(XL_F32, XL_OP_ADD);
        for (size_t n = 0; add && n <= WIDEST; n++)
            for (size_t rows = 0; rows <= ROWS; rows++)
                for (int kind = 0; kind < 4; kind++) {
                    float want[ROWS];
                    for (size_t i = 0; i < rows * n; i++)
                        x[i] = (float)number(kind);
                    for (size_t r = 0; r < rows; r++) {
                        acc[r] = want[r] = (float)number(kind);
                        each(&want[r], x + r * n, n);
                    }
                    add(acc, x, rows, n);
                    for (size_t r = 0; r < rows; r++)
                        if (!same((double)acc[r], (double)want[r]))
                            FAIL("row %zu of %zu, %zu numbers of kind %d, features %x: %a, not %a", r, rows, n, kind,
                                 masks[m], (double)acc[r], (double)want[r]);
                }
        CHECK(add);
    }
    xl_cpu_features_mask(~0u);
}

TEST(lines_of_integers)
{
    static const xl_opcode ops[] = { XL_OP_ADD, XL_OP_MULTIPLY, XL_OP_MAXIMUM, XL_OP_MINIMUM,
                                     XL_OP_AND, XL_OP_OR,       XL_OP_XOR };
    static const xl_dtype types[] = { XL_I8, XL_U8, XL_I16, XL_U16, XL_I32, XL_U32, XL_I64, XL_U64, XL_I1 };
    uint64_t x[MOST], want = 0;
    for (size_t n = 0; n < MOST; n += n < 70 ? 1 : n < 300 ? 37 : 311)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
                for (size_t i = 0; i < n; i++)
                    x[i] = types[t] == XL_I1 ? (any() & 1) * 0x0101010101010101u : (uint64_t)any() << 32 | any();
                for (int m = 2; m >= 0; m--) {
                    uint64_t acc = 1;
                    xl_cpu_features_mask(masks[m]);
                    xl_fold_line(types[t], ops[o])(&acc, x, n);
                    want = m == 2 ? acc : want;            /* the order matters to none of them */
                    CHECK(acc == want);
                }
            }
    xl_cpu_features_mask(~0u);
}

static void strip_run(const xl_strip_set *s, uint32_t op, const float *x, const float *y, float *z)
{
    xl_strip_ins code[4] = { { s->fn[XL_STRIP_LOAD][XL_FORM_AM], (const char *)x, NULL, NULL } };
    if (op == XL_STRIP_MAXIMUM || op == XL_STRIP_MINIMUM) {
        code[1] = (xl_strip_ins){ s->fn[op][XL_FORM_AM], (const char *)y, NULL, NULL };
        code[2] = (xl_strip_ins){ s->fn[XL_STRIP_STORE][0], (const char *)z, NULL, NULL };
    } else {
        code[1] = (xl_strip_ins){ s->fn[op][0], (const char *)z, NULL, NULL };
        code[2].fn = s->fn[XL_STRIP_END][0];
    }
    code[3].fn = s->fn[XL_STRIP_END][0];
    s->run(code, 256 / s->width, NULL);
}

TEST(strips)
{
    float x[256], y[256], z[256];
    for (int m = 0; m < 3; m++) {
        xl_cpu_features_mask(masks[m]);
        for (int turn = 0; turn < 200; turn++)
            for (int max = 0; max < 2; max++) {
                for (int i = 0; i < 256; i++)
                    x[i] = (float)number(turn % 4), y[i] = (float)number(turn % 4);
                strip_run(xl_strips(), max ? XL_STRIP_MAXIMUM : XL_STRIP_MINIMUM, x, y, z);
                for (int i = 0; i < 256; i++)
                    if (!same(z[i], extreme(x[i], y[i], max)))
                        FAIL("%s of %a and %a, features %x: %a", max ? "maximum" : "minimum", (double)x[i],
                             (double)y[i], masks[m], (double)z[i]);
                for (int i = 0; i < XL_STRIP_PARTS; i++)
                    z[i] = y[i];
                strip_run(xl_strips(), max ? XL_STRIP_MAX : XL_STRIP_MIN, x, NULL, z);
                for (int i = 0; i < XL_STRIP_PARTS; i++) {
                    double want = y[i];
                    for (int k = i; k < 256; k += XL_STRIP_PARTS)
                        want = extreme(want, x[k], max);
                    CHECK(same(z[i], want));
                }
                for (int i = 0; i < XL_STRIP_PARTS; i++)
                    z[i] = y[i];
                strip_run(xl_strips(), XL_STRIP_SUM, x, NULL, z);
                for (int i = 0; i < XL_STRIP_PARTS; i++) {
                    double want = y[i];
                    for (int k = i; k < 256; k += 2 * XL_STRIP_PARTS)
                        want = two(XL_OP_ADD, want, two(XL_OP_ADD, x[k], x[k + XL_STRIP_PARTS], true), true);
                    CHECK(same(z[i], want));
                }
            }
    }
    xl_cpu_features_mask(~0u);
}

/* What an identity is folded with stays as it is; rows in levels make the exact sum where there is no rounding, and a
 * good one where there is. */
TEST(identities)
{
    static const xl_opcode ops[] = { XL_OP_ADD, XL_OP_MULTIPLY, XL_OP_MAXIMUM, XL_OP_MINIMUM,
                                     XL_OP_AND, XL_OP_OR,       XL_OP_XOR };
    static const xl_dtype types[] = { XL_F32, XL_F64, XL_I8,  XL_U8,  XL_I16, XL_U16,
                                      XL_I32, XL_U32, XL_I64, XL_U64, XL_I1 };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            xl_line_fn *fold = xl_fold_line(types[t], ops[o]);
            for (int turn = 0; turn < 100 && fold; turn++) {
                uint64_t x = (uint64_t)any() << 32 | any(), acc = 0;
                float f = (float)number(turn % 3);
                double d = number(turn % 3);
                size_t n = xl_dtype_bytes(types[t]);
                memcpy(&x, types[t] == XL_F32 ? (void *)&f : types[t] == XL_F64 ? (void *)&d : (void *)&x, n);
                if (types[t] == XL_I1)
                    x &= 1;
                xl_fold_identity(types[t], ops[o], &acc);
                fold(&acc, &x, 1);
                CHECK(!memcmp(&acc, &x, n));
            }
        }
}

TEST(cascade)
{
    enum { N = 5, LEVELS = XL_CASCADE_LEVELS };
    xl_arena a = { 0 };
    xl_ew ew = xl_ew_of(&a, XL_OP_ADD, XL_F32, XL_F32);
    for (size_t rows = 1; rows < 200000; rows += rows < 40 ? 1 : rows) {
        float level[LEVELS * 8], x[N];
        double want[N] = { 0 };
        for (size_t i = 0; i < rows; i++) {
            for (int k = 0; k < N; k++)
                want[k] += (double)(x[k] = k == 0 ? 1 : (float)(any() * 0x1p-32));
            xl_cascade_row(&ew, 4, (char *)level, 8 * sizeof *level, i, x, N);
        }
        const float *got = (const float *)(void *)xl_cascade_end(&ew, (char *)level, 8 * sizeof *level, rows, N);
        CHECK(got[0] == (float)rows);
        for (int k = 1; k < N; k++)
            CHECK(fabs((double)got[k] - want[k]) <= 4e-7 * want[k]);
    }
    xl_arena_fini(&a);
}
