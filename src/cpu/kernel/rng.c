/* Random bits: counter-based generators with XLA's bits and order, and the distributions of the rng op. */
#include <math.h>

#include "cpu/kernel/ew.h"
#include "cpu/plan/planner.h"

static inline uint32_t rotl(uint32_t v, int d) { return v << d | v >> (32 - d); }

/* Threefry-2x32, twenty rounds. */
static void threefry(const uint32_t key[2], const uint32_t in[2], uint32_t out[2])
{
    static const int rot[2][4] = { { 13, 15, 26, 6 }, { 17, 29, 16, 24 } };
    uint32_t ks[3] = { key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda }, a = in[0] + ks[0], b = in[1] + ks[1];
    for (uint32_t r = 0; r < 5; r++) {
        for (int i = 0; i < 4; i++) {
            a += b;
            b = rotl(b, rot[r & 1][i]) ^ a;
        }
        a += ks[(r + 1) % 3];
        b += ks[(r + 2) % 3] + r + 1;
    }
    out[0] = a;
    out[1] = b;
}

/* Philox-4x32, ten rounds. */
static void philox(const uint32_t key[2], const uint32_t in[4], uint32_t x[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    memcpy(x, in, 16);
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)x[0] * 0xd2511f53u, p1 = (uint64_t)x[2] * 0xcd9e8d57u;
        uint32_t a = (uint32_t)(p1 >> 32) ^ x[1] ^ k0, b = (uint32_t)p1, c = (uint32_t)(p0 >> 32) ^ x[3] ^ k1,
                 d = (uint32_t)p0;
        x[0] = a, x[1] = b, x[2] = c, x[3] = d;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

static void put(void *y, size_t elem, int64_t i, uint64_t v)
{
    switch (elem) {
    case 1: ((uint8_t *)y)[i] = (uint8_t)v; return;
    case 2: ((uint16_t *)y)[i] = (uint16_t)v; return;
    case 4: ((uint32_t *)y)[i] = (uint32_t)v; return;
    default: ((uint64_t *)y)[i] = v;
    }
}

/* Two words per counter. For 32 bits and less the two lie next to each other along the first even dimension (else the
 * longest), the counters in the order of the halved shape. */
static uint64_t threefry_bits(void *y, const xl_extent *s, uint64_t key, uint64_t counter, unsigned mask)
{
    uint32_t k[2] = { (uint32_t)key, (uint32_t)(key >> 32) }, x[2];
    if (s->elem == 8) {
        for (int64_t i = 0; i < s->count; i++, counter++) {
            threefry(k, (uint32_t[2]){ (uint32_t)counter, (uint32_t)(counter >> 32) }, x);
            ((uint64_t *)y)[i] = x[0] | (uint64_t)x[1] << 32;
        }
        return counter;
    }
    int64_t split = 0, outer = 1, len = 1, inner = 1;
    if (s->rank) {
        split = -1;
        for (uint32_t i = 0; i < s->rank && split < 0; i++)
            if (s->dims[i] % 2 == 0)
                split = i;
        if (split < 0)
            for (uint32_t i = 0; i < s->rank; i++)
                if (split < 0 || s->dims[i] > s->dims[split])
                    split = i;
        len = s->dims[split];
        for (int64_t i = 0; i < split; i++)
            outer *= s->dims[i];
        for (uint32_t i = (uint32_t)split + 1; i < s->rank; i++)
            inner *= s->dims[i];
    }
    int64_t half = (len + 1) / 2;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t h = 0; h < half; h++)
            for (int64_t i = 0; i < inner; i++, counter++) {
                threefry(k, (uint32_t[2]){ (uint32_t)counter, (uint32_t)(counter >> 32) }, x);
                put(y, s->elem, (o * len + 2 * h) * inner + i, x[0] & mask);
                if (2 * h + 1 < len)
                    put(y, s->elem, (o * len + 2 * h + 1) * inner + i, x[1] & mask);
            }
    return counter;
}

static void philox_bits(void *y, const xl_extent *s, uint64_t key, uint64_t *low, uint64_t *high, unsigned mask)
{
    uint32_t k[2] = { (uint32_t)key, (uint32_t)(key >> 32) }, x[4];
    int64_t words = s->count * (s->elem == 8 ? 2 : 1);
    for (int64_t i = 0; i < words; i += 4) {
        philox(k, (uint32_t[4]){ (uint32_t)*low, (uint32_t)(*low >> 32), (uint32_t)*high, (uint32_t)(*high >> 32) }, x);
        if (++*low == 0)
            ++*high;
        for (int64_t j = 0; j < 4 && i + j < words; j++) {
            if (s->elem == 8)
                ((uint32_t *)y)[i + j] = x[j];
            else
                put(y, s->elem, i + j, x[j] & mask);
        }
    }
}

static xl_error *run_bits(const xl_step *s, xl_frame *f)
{
    uint64_t state[3] = { 0 };
    const xl_extent *in = xl_in_shape(s, 0), *y = xl_out_shape(s, 1);
    memcpy(state, xl_in(s, f, 0), in->bytes > sizeof state ? sizeof state : in->bytes);
    int64_t algorithm = xl_op_int(s->op, XL_SLOT(RNG_BIT_GENERATOR, rng_algorithm));
    int bits = xl_dtypes[y->dtype].bits;
    unsigned mask = bits < 8 ? (1u << bits) - 1 : ~0u;
    if (algorithm == XL_RNG_ALGORITHM_THREE_FRY) {
        state[1] = threefry_bits(xl_out(s, f, 1), y, state[0], state[1], mask);
    } else if (in->bytes >= 24) {
        philox_bits(xl_out(s, f, 1), y, state[0], &state[1], &state[2], mask);
    } else { /* two words of state: the key stands in for the upper counter */
        uint64_t high = state[0];
        philox_bits(xl_out(s, f, 1), y, state[0], &state[1], &high, mask);
    }
    memcpy(xl_out(s, f, 0), state, in->bytes > sizeof state ? sizeof state : in->bytes);
    return NULL;
}
xl_error *xl_kernel_rng_bit_generator(xl_planner *p, const xl_op *op)
{
    xl_extent s, y;
    xl_error *err = xl_shape_of(p, xl_in_type(p->f, op, 0), &s);
    if (!err)
        err = xl_shape_of(p, xl_out_type(p->f, op, 1), &y);
    if (err)
        return err;
    if (s.bytes < 16 || y.elem > 8 || xl_dtype_class(y.dtype) == XL_CLASS_PRED)
        return xl_plan_unsupported(p, op,
                                   "its state is shorter than 128 bits, or its type is neither integer nor float");
    return xl_plan_step(p, op, run_bits, NULL, 0);
}

/* ---- rng: uniform and normal ------------------------------------------------------------------------------------ */
typedef struct { xl_ew load, store; bool integer; } distribution;

static double unit(uint64_t *rng)
{
    uint32_t x[2], k[2] = { (uint32_t)rng[0], (uint32_t)(rng[0] >> 32) };
    rng[1]++;
    threefry(k, (uint32_t[2]){ (uint32_t)rng[1], (uint32_t)(rng[1] >> 32) }, x);
    return (double)((x[0] | (uint64_t)x[1] << 32) >> 11) * 0x1p-53;
}
static xl_error *run_rng(const xl_step *s, xl_frame *f)
{
    const distribution *d = s->data;
    const xl_extent *y = xl_out_shape(s, 0);
    bool normal = xl_op_int(s->op, XL_SLOT(RNG, rng_distribution)) == XL_RNG_DISTRIBUTION_NORMAL;
    double a, b, tile[256];
    const void *in[1] = { xl_in(s, f, 0) };
    d->load.fn(&a, in, 1, d->load.ctx);
    in[0] = xl_in(s, f, 1);
    d->load.fn(&b, in, 1, d->load.ctx);
    for (int64_t at = 0; at < y->count; at += 256) {
        int64_t m = y->count - at < 256 ? y->count - at : 256;
        for (int64_t i = 0; i < m; i++) {
            double u = unit(f->rng);
            if (normal) {
                double v = unit(f->rng);
                tile[i] = a + b * sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
            } else {
                tile[i] = a + (b - a) * u;
                if (d->integer)
                    tile[i] = floor(tile[i]);
                else if (tile[i] >= b && b > a)
                    tile[i] = a;
            }
        }
        in[0] = tile;
        d->store.fn((char *)xl_out(s, f, 0) + (size_t)at * y->elem, in, (size_t)m, d->store.ctx);
    }
    return NULL;
}
xl_error *xl_kernel_rng(xl_planner *p, const xl_op *op)
{
    distribution *d = xl_new(p->a, distribution, 1);
    xl_dtype in = xl_in_type(p->f, op, 0)->dtype, out = xl_out_type(p->f, op, 0)->dtype;
    *d = (distribution){ xl_ew_convert(p->a, in, XL_F64), xl_ew_convert(p->a, XL_F64, out),
                         xl_dtype_class(out) != XL_CLASS_FLOAT };
    return xl_plan_step(p, op, run_rng, d, 0);
}
