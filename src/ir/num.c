#include "ir/num.h"

#include <math.h>
#include <stdio.h>

/* What lies beyond the finite numbers of a type. */
enum { IEEE, FN /* one NaN, all ones */, FNUZ /* no -0: its code is the NaN */, FIN /* finite only */ };

static int family(xl_dtype d)
{
    switch (d) {
    case XL_F8E4M3FN: return FN;
    case XL_F8E4M3FNUZ: case XL_F8E4M3B11FNUZ: case XL_F8E5M2FNUZ: return FNUZ;
    case XL_F4E2M1FN: case XL_F6E2M3FN: case XL_F6E3M2FN: return FIN;
    default: return IEEE;
    }
}

static int bias(xl_dtype d)
{
    switch (d) {
    case XL_F8E4M3FNUZ: return 8;
    case XL_F8E4M3B11FNUZ: return 11;
    case XL_F8E5M2FNUZ: return 16;
    default: return (1 << (xl_dtypes[d].exp - 1)) - 1;
    }
}

static uint64_t f64_bits(double v) { uint64_t u; memcpy(&u, &v, 8); return u; }
static double f64_of(uint64_t u) { double v; memcpy(&v, &u, 8); return v; }

uint64_t xl_num_round(xl_dtype d, double v)
{
    if (d == XL_F64)
        return f64_bits(v);
    if (d == XL_F32) {
        float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, 4);
        return u;
    }
    int man = xl_dtypes[d].man, e, fam = family(d), b = bias(d);
    if (d == XL_F8E8M0FNU) {
        if (!(v > 0) || isinf(v))
            return 0xff;
        double m = frexp(v, &e);                           /* v = m 2^e, m in [1/2, 1) */
        int c = e - 1 + 127 + (m >= 0.75);                 /* ties go up */
        return c < 0 ? 0 : c > 254 ? 0xff : (uint64_t)c;
    }
    unsigned bits = xl_dtypes[d].bits;
    uint64_t sign = (f64_bits(v) >> 63) << (bits - 1), top = 1ull << (bits - 1);
    uint64_t inf = ((1ull << xl_dtypes[d].exp) - 1) << man;
    uint64_t nan = fam == FNUZ ? top : fam == FN ? (top - 1) | sign : inf | 1ull << (man - 1) | sign;
    if (fam == FIN)
        nan = sign;
    if (isnan(v))
        return nan;
    uint64_t code;
    if (isinf(v)) {
        code = UINT64_MAX;
    } else {
        double a = fabs(v);
        frexp(a, &e);
        e -= 1;                                            /* a in [2^e, 2^(e+1)) */
        if (a == 0 || e < 1 - b)
            e = 1 - b;
        double r = nearbyint(ldexp(a, man - e));           /* at most 2^(man+1): exact in a double */
        code = (uint64_t)r;
        if (code >= 1ull << man)
            code += (uint64_t)(e + b - 1) << man;
    }
    switch (fam) {
    case IEEE: return (code > inf ? inf : code) | sign;
    case FN: return code >= top - 1 ? nan : code | sign;
    case FNUZ: return code >= top ? nan : code == 0 ? 0 : code | sign;
    default: return (code > top - 1 ? top - 1 : code) | sign;
    }
}

double xl_num_value(xl_dtype d, uint64_t u)
{
    if (d == XL_F64)
        return f64_of(u);
    if (d == XL_F32) {
        uint32_t w = (uint32_t)u;
        float f;
        memcpy(&f, &w, 4);
        return f;
    }
    if (d == XL_F8E8M0FNU)
        return (u & 255) == 255 ? NAN : ldexp(1, (int)(u & 255) - 127);
    int man = xl_dtypes[d].man, fam = family(d);
    unsigned bits = xl_dtypes[d].bits;
    uint64_t top = 1ull << (bits - 1), c = u & (top - 1), inf = ((1ull << xl_dtypes[d].exp) - 1) << man;
    double s = u & top ? -1 : 1;
    if ((fam == IEEE && c > inf) || (fam == FN && c == top - 1) || (fam == FNUZ && c == 0 && s < 0))
        return NAN;
    if (fam == IEEE && c == inf)
        return s * INFINITY;
    int e = (int)(c >> man);
    uint64_t m = c & ((1ull << man) - 1);
    return s * (e ? ldexp((double)(m | 1ull << man), e - bias(d) - man) : ldexp((double)m, 1 - bias(d) - man));
}

uint64_t xl_num_load(xl_dtype d, const char *p)
{
    uint64_t u = 0;
    for (size_t i = 0, n = xl_dtype_bytes(d); i < n && i < 8; i++)
        u |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return u;
}

void xl_num_store(xl_dtype d, char *p, uint64_t u)
{
    unsigned bits = xl_dtypes[d].bits;
    if (bits < 64)
        u &= (1ull << bits) - 1;
    for (size_t i = 0, n = xl_dtype_bytes(d); i < n && i < 8; i++)
        p[i] = (char)(u >> (8 * i));
}

bool xl_num_fits(xl_dtype d, int64_t v, bool beyond)
{
    unsigned bits = xl_dtypes[d].bits;
    if (bits >= 64)
        return xl_dtype_class(d) != XL_CLASS_UINT || v >= 0 || beyond;
    if (beyond)
        return false;
    if (v < 0)
        return xl_dtype_class(d) != XL_CLASS_UINT && v >= -((int64_t)1 << (bits - 1));
    return v < (int64_t)1 << bits;
}

bool xl_num_scan(const char **at, double *out)
{
    static const double ten[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    const char *p = *at, *start = p;
    bool neg = *p == '-';
    if (neg || *p == '+')
        p++;
    uint64_t m = 0;
    int digits = 0, exp = 0;
    bool any = false;
    for (; *p >= '0' && *p <= '9'; p++, any = true)
        if (m || *p != '0')
            m = ++digits <= 19 ? m * 10 + (uint64_t)(*p - '0') : m;
    if (*p == '.') {
        p++;
        const char *frac = p;
        for (; *p >= '0' && *p <= '9'; p++, any = true)
            if (m || *p != '0')
                m = ++digits <= 19 ? m * 10 + (uint64_t)(*p - '0') : m;
        exp = p - frac > 100000 ? -100000 : -(int)(p - frac);
    }
    if (!any)
        return false;
    if (*p == 'e' || *p == 'E') {
        const char *q = p + 1;
        bool down = *q == '-';
        if (down || *q == '+')
            q++;
        if (*q >= '0' && *q <= '9') {
            int x = 0;
            for (; *q >= '0' && *q <= '9'; q++)
                x = x < 100000 ? x * 10 + (*q - '0') : x;
            exp += down ? -x : x;
            p = q;
        }
    }
    *at = p;
    if (digits <= 19 && m <= (1ull << 53) && exp >= -22 && exp <= 22) { /* both exact: one rounding, the right one */
        double v = (double)m;
        v = exp < 0 ? v / ten[-exp] : v * ten[exp];
        *out = neg ? -v : v;
        return true;
    }
    return xl_str_f64((xl_str){ start, (size_t)(p - start) }, out);
}

void xl_num_print(xl_dtype d, uint64_t bits, xl_buf *out)
{
    double v = xl_num_value(d, bits);
    if (isfinite(v)) {
        for (int digits = 1; digits <= 16; digits++) {
            char text[40];
            snprintf(text, sizeof text, "%.*e", digits, v);
            char *dot = strpbrk(text, ".,");               /* whatever the locale thinks of it */
            if (dot)
                *dot = '.';
            const char *p = text;
            double back;
            if (xl_num_scan(&p, &back) && xl_num_round(d, back) == bits) {
                xl_buf_puts(out, text);
                return;
            }
        }
    }
    xl_buf_printf(out, "0x%0*llX", (int)((xl_dtypes[d].bits + 3) / 4), (unsigned long long)bits);
}
