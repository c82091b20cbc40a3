/* A float format is exponent and mantissa bits, a bias, and what it does with its last codes; one routine serves them
 * all, since scaling by powers of two is exact in double. */
#include "ir/scalar.h"

#include <math.h>

typedef enum {
    IEEE,
    FN /* all ones is NaN, no infinity */,
    FNUZ /* negative zero is NaN */,
    FINITE /* neither */
} tail;
typedef struct { int exp, man, bias; tail tail; } format;

static format format_of(xl_dtype d)
{
    const xl_dtype_info *i = &xl_dtypes[d];
    format f = { i->exp, i->man, (1 << (i->exp - 1)) - 1, IEEE };
    switch (d) {
    case XL_F8E4M3FN: f.tail = FN; break;
    case XL_F8E4M3FNUZ: case XL_F8E5M2FNUZ: f.bias++; f.tail = FNUZ; break;
    case XL_F8E4M3B11FNUZ: f.bias = 11; f.tail = FNUZ; break;
    case XL_F4E2M1FN: case XL_F6E2M3FN: case XL_F6E3M2FN: f.tail = FINITE; break;
    default: break;
    }
    return f;
}

static uint32_t encode(format f, double v)
{
    uint32_t sign = signbit(v) ? 1u << (f.exp + f.man) : 0, ones = (1u << (f.exp + f.man)) - 1;
    uint32_t inf = ones & ~((1u << f.man) - 1), nan = f.tail == IEEE   ? inf | (1u << f.man >> 1)
                                                      : f.tail == FN   ? ones
                                                      : f.tail == FNUZ ? 1u << (f.exp + f.man)
                                                                       : ones;
    uint32_t top = f.tail == IEEE ? inf - 1 : f.tail == FN ? ones - 1 : ones; /* the largest finite */
    if (isnan(v))
        return f.tail == FNUZ ? nan : nan | sign;
    uint32_t code;
    double a = fabs(v);
    if (a == 0)
        return f.tail == FNUZ ? 0 : sign;
    int e = isinf(a) ? 1 << 20 : ilogb(a), emin = 1 - f.bias;
    if (e > (1 << f.exp))
        code = top + 1;
    else {
        if (e < emin)
            e = emin;
        uint32_t q =
            (uint32_t)nearbyint(ldexp(a, f.man - e)); /* may round up to the next power: the sum below carries */
        code = ((uint32_t)(e + f.bias - 1) << f.man) + q;
    }
    if (code > top)
        return f.tail == IEEE ? inf | sign : f.tail == FINITE ? top | sign : f.tail == FNUZ ? nan : nan | sign;
    return f.tail == FNUZ && code == 0 ? 0 : code | sign;
}

static double decode(format f, uint32_t code)
{
    uint32_t ones = (1u << (f.exp + f.man)) - 1, mag = code & ones, sign = code >> (f.exp + f.man) & 1;
    int e = (int)(mag >> f.man), m = (int)(mag & ((1u << f.man) - 1));
    double v;
    if (f.tail == IEEE && e == (1 << f.exp) - 1)
        v = m ? NAN : INFINITY;
    else if ((f.tail == FN && mag == ones) || (f.tail == FNUZ && sign && mag == 0))
        v = NAN;
    else
        v = e ? ldexp(m + (1 << f.man), e - f.bias - f.man) : ldexp(m, 1 - f.bias - f.man);
    return sign ? -v : v;
}

static void store(void *out, uint64_t u, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)(u >> (8 * i));
}

void xl_scalar_put(xl_dtype d, double v, void *out)
{
    const xl_dtype_info *info = &xl_dtypes[d];
    switch (d) {
    case XL_F64: memcpy(out, &v, 8); return;
    case XL_F32: { float f = (float)v; memcpy(out, &f, 4); return; }
    case XL_C64: { float f[2] = { (float)v, 0 }; memcpy(out, f, 8); return; }
    case XL_C128: { double f[2] = { v, 0 }; memcpy(out, f, 16); return; }
    case XL_F8E8M0FNU: {                                   /* powers of two only */
        int e = v > 0 && isfinite(v) ? (int)nearbyint(log2(v)) + 127 : 255;
        store(out, (uint64_t)(e < 0 ? 0 : e > 254 ? 255 : e), 1);
        return;
    }
    default: break;
    }
    if (info->cls == XL_CLASS_FLOAT) {
        store(out, encode(format_of(d), v), info->bytes);
        return;
    }
    if (info->cls == XL_CLASS_PRED) {
        store(out, v != 0, 1);
        return;
    }
    double hi = ldexp(1, info->cls == XL_CLASS_INT ? info->bits - 1 : info->bits),
           lo = info->cls == XL_CLASS_INT ? -hi : 0;
    uint64_t u;
    if (isnan(v))
        u = 0;
    else if (v >= hi)
        u = info->cls == XL_CLASS_INT ? (UINT64_C(1) << (info->bits - 1)) - 1
            : info->bits == 64        ? UINT64_MAX
                                      : (UINT64_C(1) << info->bits) - 1;
    else if (v <= lo)
        u = info->cls == XL_CLASS_INT ? ~UINT64_C(0) << (info->bits - 1) : 0;
    else
        u = info->cls == XL_CLASS_INT ? (uint64_t)(int64_t)v : (uint64_t)v;
    xl_scalar_put_int(d, (int64_t)u, out);
}

void xl_scalar_put_int(xl_dtype d, int64_t v, void *out)
{
    const xl_dtype_info *info = &xl_dtypes[d];
    if (info->cls == XL_CLASS_FLOAT || info->cls == XL_CLASS_COMPLEX)
        xl_scalar_put(d, (double)v, out);
    else if (info->cls == XL_CLASS_PRED)
        store(out, v != 0, 1);
    else
        store(out, info->bits < 64 ? (uint64_t)v & ((UINT64_C(1) << info->bits) - 1) : (uint64_t)v, info->bytes);
}

double xl_scalar_get(xl_dtype d, const void *p)
{
    const xl_dtype_info *info = &xl_dtypes[d];
    uint64_t u = 0;
    switch (d) {
    case XL_F64: case XL_C128: { double v; memcpy(&v, p, 8); return v; }
    case XL_F32: case XL_C64: { float v; memcpy(&v, p, 4); return v; }
    default: break;
    }
    for (size_t i = 0; i < info->bytes && i < 8; i++)
        u |= (uint64_t)((const unsigned char *)p)[i] << (8 * i);
    if (d == XL_F8E8M0FNU)
        return u == 255 ? NAN : ldexp(1, (int)u - 127);
    if (info->cls == XL_CLASS_FLOAT)
        return decode(format_of(d), (uint32_t)u);
    if (info->cls == XL_CLASS_PRED)
        return u != 0;
    if (info->bits < 64)
        u &= (UINT64_C(1) << info->bits) - 1;
    if (info->cls == XL_CLASS_INT && info->bits < 64 && u >> (info->bits - 1))
        u |= ~UINT64_C(0) << info->bits;
    return info->cls == XL_CLASS_INT ? (double)(int64_t)u : (double)u;
}
