/* Exact division by a constant, as one product and one fused multiply-add.
 *
 * Let 1 <= c < 2, high the largest float below 1/c, and low the float nearest to 1/c - high, which is positive and at
 * most 2^-24. For 1 <= x < 2, q = x high + RN(x low) differs from x/c by less than 2^-49 x (low is rounded) plus 2^-48
 * (the product is): less than 2^-47. RN(q) is RN(x/c) unless a midpoint between two floats lies between q and x/c. With
 * c = C 2^-23 and x = X 2^-23 such a midpoint is K 2^-24 if x >= c and K 2^-25 if x < c, K odd, and its distance from
 * x/c is |2^24 X - K C| / (2^24 C), or the same with 25: |j| / c 2^-47 or |j| / c 2^-48, for an integer j that is never
 * 0. So j is between -3 and 3, and for a given C each j allows only a few X: K C = -j modulo 2^24 or 2^25. These X are
 * computed and tried, which proves or refutes exactness for this c. If one fails, the neighbours of low are tried:
 * their error is at most 2^-49 x 3 + 2^-48 < 2^-46, and |j| is at most 7. For about one number in forty none works;
 * those use the divide instruction.
 *
 * Other exponents change nothing as long as high, low and x low are normal numbers: out[3] ensures that. Zeros,
 * infinities and NaNs are correct because high and low have the sign of c and neither is zero; so are results that
 * overflow. */
#include "cpu/tile/strip.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

/* Is x/c right for the numbers of 24 bits whose quotient by c (of 24 bits too) comes as near to the middle between two
 * floats as j from -near to near? */
static bool right(uint32_t c, float high, float low, int near)
{
    int zeros = __builtin_ctz(c);
    uint32_t odd = c >> zeros, inverse = odd;
    for (int i = 0; i < 4; i++)
        inverse *= 2 - odd * inverse;                      /* modulo 2^32: each step doubles the bits, from three */
    for (int e = 24; e <= 25; e++)
        for (int j = -near; j <= near; j++) {
            if (j == 0 || j % (1 << zeros) != 0)
                continue;
            uint64_t period = 1ull << (e - zeros), k = (uint32_t)(-j / (1 << zeros)) * inverse & (period - 1);
            for (; k < 1u << 25; k += period) { /* k: bits of a float and one more, the last of which is set */
                uint64_t x = (k * c + (uint64_t)(int64_t)j) >> e;
                if (k < 1u << 24 || k % 2 == 0 || x < 1u << 23 || x >= 1u << 24 || (x >= c) != (e == 24))
                    continue;
                if (fmaf((float)x, high, (float)x * low) != (float)x / (float)c)
                    return false;
            }
        }
    return true;
}

void xl_strip_divisor(float c, float out[4])
{
    int e;
    float m = frexpf(fabsf(c), &e) * 0x1p24f;              /* a whole number, if c is normal */
    out[0] = c, out[1] = out[2] = 1, out[3] = NAN;
    if (!(fabsf(c) >= FLT_MIN && fabsf(c) <= FLT_MAX))
        return;
    double whole = 1.0 / m;
    float high = (float)whole;
    if (high >= whole)
        high = nextafterf(high, 0);
    float rest = (float)(fma(-high, m, 1.0) / m), low[3] = { rest, nextafterf(rest, 0), nextafterf(rest, 1) };
    for (int i = 0; i < 3; i++) {
        float h = copysignf(ldexpf(high, 24 - e), c), l = copysignf(ldexpf(low[i], 24 - e), c),
              least = 0x1p-126f / fabsf(l);
        if (!(fabsf(l) >= FLT_MIN && fabsf(h) <= FLT_MAX && least <= 0x1p100f) ||
            !right((uint32_t)m, high, low[i], i ? 7 : 3))
            continue;
        out[1] = h, out[2] = l, out[3] = least * 2;
        return;
    }
}
