/* Division by a constant must be the true quotient, bit for bit: what xl_strip_divisor prepares, as every set's
 * instruction uses it, is compared with the machine's own division. The other instructions are tested by whole programs
 * (test/fusion.py, test/jax_ops.py). */
#include "cpu/tile/strip.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "base/test.h"
#include "cpu/run/feature.h"

enum { LENGTH = 1 << 14 };                             /* at most; `length` numbers are divided at a time */
static int length = LENGTH;
static float in[LENGTH], per[LENGTH], quotient[LENGTH], want[LENGTH], out[LENGTH], again[LENGTH];
static uint64_t state = 1;

static uint32_t any(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}
static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static bool same(float x, float y) { return x != x ? y != y : !memcmp(&x, &y, sizeof x); }

static const struct { int32_t op; uint32_t form; } ops[] = {
    { XL_STRIP_DIVIDE_BY, XL_FORM_AS },        { XL_STRIP_DIVIDE_BY_SQRT, XL_FORM_AS },
    { XL_STRIP_DIVIDE_BY_DIVIDE, XL_FORM_AS }, { XL_STRIP_DIVIDE_BY_UNDER, XL_FORM_AS },
    { XL_STRIP_DIVIDE, XL_FORM_AS },           { XL_STRIP_DIVIDE, XL_FORM_MS },
};

static void quotients(const float *by, size_t k, bool stores, float *to)
{
    const xl_strip_set *s = xl_strips();
    bool under = ops[k].op == XL_STRIP_DIVIDE_BY_UNDER, ms = ops[k].form == XL_FORM_MS;
    const char *x = (const char *)(ms ? in : by), *y = (const char *)(ms ? by : under ? in : per);
    xl_strip_ins code[4] = { { s->fn[XL_STRIP_LOAD][XL_FORM_AM], (const char *)(under ? per : in), NULL, NULL },
                             { s->fn[ops[k].op][ops[k].form + (stores ? XL_FORM_STORE : 0)], x, y, (const char *)to },
                             { s->fn[stores ? XL_STRIP_END : XL_STRIP_STORE][XL_FORM_AM], (const char *)to, NULL,
                               NULL },
                             { s->fn[XL_STRIP_END][0], NULL, NULL, NULL } };
    s->run(code, (size_t)length / s->width, NULL);
}

/* in / c by every op that has it and both forms, and as it should be. Whether c could be prepared. */
static bool compare(float c)
{
    float by[4];
    xl_strip_divisor(c, by);
    volatile float y = c;                              /* or it is not the machine that divides */
    for (int i = 0; i < length; i++)
        quotient[i] = in[i] / y;
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        for (int i = 0; i < length; i++)
            want[i] = k == 1 ? sqrtf(quotient[i]) : k == 2 || k == 3 ? quotient[i] / per[i] : quotient[i];
        quotients(by, k, true, out);
        quotients(by, k, false, again);
        if (!memcmp(want, out, (size_t)length * sizeof *want) && !memcmp(want, again, (size_t)length * sizeof *want))
            continue;
        for (int i = 0; i < length; i++)
            if (!same(want[i], out[i]) || !same(want[i], again[i]))
                FAIL("op %zu: %a / %a: %a and %a, not %a (prepared: %a %a, from %a)", k, (double)in[i], (double)c,
                     (double)out[i], (double)again[i], (double)want[i], (double)by[1], (double)by[2], (double)by[3]);
    }
    return by[3] == by[3];
}

/* With all this CPU has, then with less. */
#define EACH_SET(stmt)                                                               \
    do {                                                                             \
        static const uint32_t masks[] = { ~0u, XL_CPU_AVX2, 0 };                     \
        const xl_strip_set *seen = NULL;                                             \
        length = xl_test_amount(LENGTH, LENGTH, LENGTH / 4);                         \
        for (int m_ = 0; m_ < 3; m_++) {                                             \
            xl_cpu_features_mask(masks[m_]);                                         \
            if (xl_strips() != seen)                                                 \
                stmt;                                                                \
            seen = xl_strips();                                                      \
        }                                                                            \
        xl_cpu_features_mask(~0u);                                                   \
    } while (0)

/* Of the first two the nearest float to what is left of 1/c would be wrong for some number, of the third its neighbours
 * too. */
static const float divisors[] = { 0x1.c475cep0f, 0x1.abff46p0f, 0x1.a9e846p0f, 3,           7,           10,
                                  0.1f,          0x1.fffffep0f, 0x1.000002p0f, 0.52170312f, 0.30166268f, -0.001f };

static void every_mantissa(void)
{
    for (int i = 0; i < length; i++)
        per[i] = from_bits((any() & 0x807fffff) | (100 + any() % 50) << 23);
    int n = xl_test_amount(sizeof divisors / sizeof *divisors, 2, 1);
    for (int k = 0; k < n; k++)
        for (uint32_t m = 0; m < 1u << 23; m += (uint32_t)length) {
            for (uint32_t i = 0; i < (uint32_t)length; i++)
                in[i] = from_bits((m + i) | 127u << 23 | (i & 1) << 31);
            compare(divisors[k]);
        }
}
TEST(quotients_of_every_mantissa) { EACH_SET(every_mantissa()); }

/* Divisors of every exponent and sign, numbers of every kind; most strips have one that is not large. */
static void every_kind(void)
{
    int n = xl_test_amount(4000, 300, 100);
    for (int k = 0; k < n; k++) {
        float c = from_bits(any());
        for (int i = 0; i < length; i++)
            in[i] = from_bits(any()), per[i] = from_bits(any());
        compare(c);
    }
}
TEST(quotients_of_all_bits) { EACH_SET(every_kind()); }

/* What training divides: numbers about one, divisors about one. Nearly all divisors can be prepared, and of those that
 * can none is wrong. */
static void near_one(void)
{
    int n = xl_test_amount(4000, 300, 100), prepared = 0;
    for (int k = 0; k < n; k++) {
        float c = from_bits((any() & 0x807fffff) | (120 + any() % 16) << 23);
        for (int i = 0; i < length; i++)
            in[i] = from_bits((any() & 0x807fffff) | (110 + any() % 30) << 23);
        prepared += compare(c);
    }
    CHECK(prepared >= n * 9 / 10);
}
TEST(quotients_near_one) { EACH_SET(near_one()); }

/* Zeros of both signs, infinities, NaN, the smallest and largest numbers, alone in a strip of ordinary ones and by
 * themselves; and numbers about the one from which on the product is used. */
static void edges(void)
{
    static const float special[] = { 0,        -0.0f,     INFINITY,         -INFINITY,
                                     NAN,      0x1p-149f, -0x1p-149f,       0x1.fffffcp-127f,
                                     FLT_MIN,  -FLT_MIN,  0x1.000002p-126f, FLT_MAX,
                                     -FLT_MAX, 0x1p-100f, 0x1p-120f,        1 };
    static const float by_these[] = { 1,          -1,       2,         0.5f,        3,           1.1f,      0x1p100f,
                                      0x1.8p120f, FLT_MAX,  0x1p-126f, 0x1.4p-126f, 0x1p-127f,   0x1p-149f, 0,
                                      -0.0f,      INFINITY, -INFINITY, NAN,         0x1.8p-100f, 0.1f,      -7 };
    for (size_t k = 0; k < sizeof by_these / sizeof *by_these; k++)
        for (size_t s = 0; s < sizeof special / sizeof *special; s++)
            for (int alone = 0; alone < 2; alone++) {
                for (int i = 0; i < length; i++)
                    in[i] = alone || i % 131 == 5 ? special[s] : from_bits((any() & 0x7fffff) | 127u << 23);
                compare(by_these[k]);
            }
    int n = xl_test_amount(500, 100, 50);
    for (int k = 0; k < n; k++) {
        float by[4], c = from_bits((any() & 0x807fffff) | (100 + any() % 60) << 23);
        xl_strip_divisor(c, by);
        for (int i = 0; i < length; i++)
            in[i] = by[3] * from_bits((any() & 0x807fffff) | (123 + any() % 8) << 23) * (i % 7 ? 1 : 0);
        compare(c);
    }
}
TEST(quotients_of_edges) { EACH_SET(edges()); }
