/* Convolution as a matrix product: patches of the input, laid out as rows, times the kernel as a matrix; group by
 * group, a block of rows at a time. Narrow floats are widened to f32, integers to i64.
 *
 * With a dilated input, most of a patch is zeros. Which kernel elements meet a nonzero input element repeats
 * periodically along the output. The outputs of each phase of that period are an ordinary convolution of the input with
 * every nth element of the kernel, and the zeros are never multiplied. An undilated input has one phase.
 *
 * The gradient of a kernel is also a convolution, with images and features exchanged and a "kernel" as large as an
 * activation. If outputs and kernel elements are exchanged too, its patches are those of the original convolution:
 * contiguous rows that are multiplied from the left, while the activation is used as a matrix in place.
 *
 * With few features, building patches costs more than the product. Outputs of one row are then computed directly from
 * the input's rows, padded where necessary (conv_line.h): each element is copied once per row of the window, not once
 * per element of the window. */
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/kernel/index.h"
#include "cpu/run/feature.h"
#include "cpu/kernel/conv_groups.h"
#include "cpu/kernel/conv_line.h"
#include "cpu/kernel/ew.h"
#include "cpu/kernel/gemm.h"
#include "cpu/plan/planner.h"
#include "cpu/kernel/strided.h"

XL_CPU_SETS(xl_conv_set, xl_conv)

const xl_conv_set *xl_conv_lines(void)
{
#if defined(__x86_64__)
    extern const xl_conv_set xl_conv_fma;
    if (xl_conv_best() == &xl_conv_generic && xl_cpu_features() & XL_CPU_FMA)
        return &xl_conv_fma;
#endif
    return xl_conv_best();
}

typedef struct conv {
    uint32_t ns;
    int64_t n, ci, co, groups, batch_groups;               /* ci: of one group */
    int64_t in[XL_RANK_MAX], out[XL_RANK_MAX], ker[XL_RANK_MAX];
    int64_t step[XL_RANK_MAX], low[XL_RANK_MAX], base[XL_RANK_MAX], spread[XL_RANK_MAX];
    bool flip[XL_RANK_MAX];
    int64_t xs[XL_RANK_MAX], ks[XL_RANK_MAX], ys[XL_RANK_MAX], xn, xc, kc, ko, yn, yc; /* strides in elements */
    int64_t sout, sker, chunk, block; /* rows at a time; of the kernel's first dimension at a time */
    int64_t parts;                    /* sums that are made apart and then added, from the other side */
    xl_dtype wide;
    xl_ew load, loadk, store;
    bool dynamic;
    int64_t group_block;                                   /* of conv_groups.h, where that is better; 0 */
    struct conv *other;                                    /* the same seen from the other side, where that is better */
} conv;

/* The outputs of one phase: a convolution without dilation of the input or reversal. */
typedef struct {
    int64_t out[XL_RANK_MAX], ker[XL_RANK_MAX], step[XL_RANK_MAX], spread[XL_RANK_MAX], low[XL_RANK_MAX];
    int64_t ks[XL_RANK_MAX], ys[XL_RANK_MAX], koff, yoff;
    int64_t sout, sker;
} phase;

static const int64_t FAR = INT64_C(1) << 31; /* of strides, dilations and paddings; keeps positions within 64 bits */
enum { WIDE_X, WIDE_K, WIDE_Y, ROWS, KERNEL, PART, TURNED, NTEMP }; /* memory that a step needs while it runs */
enum {
    CHUNK_BYTES = 1 << 20,
    BLOCK_BYTES = 1 << 22,
    ROWS_MIN = 256,
    SHARES = 16,
    SHARE_MIN = 128,
    PARTS_BYTES = 1 << 22
};

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static int64_t period(int64_t step, int64_t base) { return base / gcd(step % base ? step % base : base, base); }

/* How many phases of dimension i have an output at all: a large dilation has no more of them than there are outputs. */
static int64_t phases_along(const conv *c, uint32_t i)
{
    int64_t n = period(c->step[i], c->base[i]);
    return n < c->out[i] ? n : c->out[i];
}

/* Phase `which` (a number for all dimensions together). False where no element of the kernel meets the input: zeros. */
static bool phase_of(const conv *c, const int64_t *low, int64_t which, phase *p)
{
    *p = (phase){ .sout = 1, .sker = 1 };
    for (uint32_t i = c->ns; i-- > 0; ) {
        int64_t po = period(c->step[i], c->base[i]), pk = period(c->spread[i], c->base[i]), n = phases_along(c, i),
                r = n ? which % n : 0, k0 = -1;
        which /= n ? n : 1;
        for (int64_t k = 0; k < pk && k < c->ker[i] && k0 < 0; k++)
            if ((r * c->step[i] + k * c->spread[i] - low[i]) % c->base[i] == 0)
                k0 = k;
        p->out[i] = c->out[i] > r ? (c->out[i] - r + po - 1) / po : 0;
        p->ker[i] = k0 < 0 ? 0 : (c->ker[i] - k0 + pk - 1) / pk;
        p->step[i] = po * c->step[i] / c->base[i];
        p->spread[i] = pk * c->spread[i] / c->base[i];
        p->low[i] = k0 < 0 ? 0 : (low[i] - r * c->step[i] - k0 * c->spread[i]) / c->base[i];
        p->ys[i] = c->ys[i] * po;
        p->yoff += r * c->ys[i];
        p->ks[i] = (c->flip[i] ? -pk : pk) * c->ks[i];
        p->koff += (c->flip[i] ? c->ker[i] - 1 - k0 : k0) * c->ks[i];
        p->sout *= p->out[i];
        p->sker *= p->ker[i];
    }
    return p->sker > 0;
}

typedef struct {
    const conv *c;
    const phase *p;
    const char *x;
    char *rows;
    int64_t first, xoff;
    size_t w;
    int64_t xn, xc;
    const int64_t *xs;
} patches;

/* n elements along the channels, or zeros (from NULL). */
static inline void piece(const patches *p, char *to, const char *from, int64_t n)
{
    if (!from) {
        memset(to, 0, (size_t)n * p->w);
    } else if (p->xc == 1) {
        memcpy(to, from, (size_t)n * p->w);
    } else if (p->w == 4) {
        for (int64_t j = 0; j < n; j++)
            ((float *)(void *)to)[j] = ((const float *)(const void *)from)[j * p->xc];
    } else {
        for (int64_t j = 0; j < n; j++)
            memcpy(to + (size_t)j * p->w, from + (size_t)(j * p->xc) * p->w, p->w);
    }
}

/* The kernel's last dimension at one place of the others; `at`: where the input's row begins, NULL outside. pos: of the
 * first element. */
static char *fill_line(const patches *p, char *to, const char *at, int64_t pos)
{
    const conv *c = p->c;
    uint32_t d = c->ns - 1;
    int64_t n = p->p->ker[d], s = p->p->spread[d], size = c->ci * (int64_t)p->w;
    if (!at) {
        piece(p, to, NULL, n * c->ci);
        return to + n * size;
    }
    if (s == 1 && p->xc == 1 && p->xs[d] == c->ci) {       /* one run of memory, cut off at both ends */
        int64_t a = pos < 0 ? (-pos < n ? -pos : n) : 0, b = c->in[d] - pos < n ? c->in[d] - pos : n;
        b = b < a ? a : b;
        piece(p, to, NULL, a * c->ci);
        if (b > a)
            memcpy(to + a * size, at + (pos + a) * size, (size_t)((b - a) * size));
        piece(p, to + b * size, NULL, (n - b) * c->ci);
        return to + n * size;
    }
    for (int64_t k = 0; k < n; k++, pos += s, to += size)
        piece(p, to, pos < 0 || pos >= c->in[d] ? NULL : at + pos * p->xs[d] * (int64_t)p->w, c->ci);
    return to;
}

static void fill_rows(void *ctx, size_t begin, size_t end)
{
    const patches *p = ctx;
    const conv *c = p->c;
    const phase *h = p->p;
    int64_t K = h->sker * c->ci, lines = c->ns ? h->sker / h->ker[c->ns - 1] : 1;
    for (size_t r = begin; r < end; r++) {
        int64_t o[XL_RANK_MAX], t = p->first + (int64_t)r, k[XL_RANK_MAX] = { 0 };
        for (uint32_t i = c->ns; i-- > 0; ) {
            o[i] = t % h->out[i] * h->step[i] - h->low[i];
            t /= h->out[i];
        }                                                  /* what is left is the image */
        int64_t image = p->xoff + t * p->xn;
        char *row = p->rows + r * (size_t)K * p->w;
        if (!c->ns) {
            piece(p, row, p->x + (size_t)image * p->w, c->ci);
            continue;
        }
        for (int64_t q = 0; q < lines; q++) {
            int64_t at = image;
            bool inside = true;
            for (uint32_t i = 0; i + 1 < c->ns && inside; i++) {
                int64_t pos = o[i] + k[i] * h->spread[i];
                inside = pos >= 0 && pos < c->in[i];
                at += pos * p->xs[i];
            }
            for (uint32_t i = c->ns - 1; i-- > 0; ) {
                if (++k[i] < h->ker[i])
                    break;
                k[i] = 0;
            }
            row = fill_line(p, row, inside ? p->x + at * (int64_t)p->w : NULL, o[c->ns - 1]);
        }
    }
}

static void plain(const char *a, const char *b, char *y, int64_t m, int64_t n, int64_t k, xl_dtype d)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            if (d == XL_I64) {
                uint64_t sum = 0;
                for (int64_t q = 0; q < k; q++)
                    sum +=
                        ((const uint64_t *)(const void *)a)[i * k + q] * ((const uint64_t *)(const void *)b)[q * n + j];
                ((uint64_t *)(void *)y)[i * n + j] = sum;
            } else {
                double re = 0, im = 0;
                for (int64_t q = 0; q < k; q++) {
                    const double *u = (const double *)(const void *)a + 2 * (i * k + q),
                                 *v = (const double *)(const void *)b + 2 * (q * n + j);
                    re += u[0] * v[0] - u[1] * v[1];
                    im += u[0] * v[1] + u[1] * v[0];
                }
                ((double *)(void *)y)[2 * (i * n + j)] = re;
                ((double *)(void *)y)[2 * (i * n + j) + 1] = im;
            }
        }
}

/* Where a run stands: the memory it works in, and the input as it lies there. */
typedef struct {
    char *temp[NTEMP];
    const char *x, *k;
    char *y;
    size_t w;
    int64_t xn, xc, xs[XL_RANK_MAX];
    xl_pool *pool;
} work;

/* Features last, so that a patch is copied in pieces. */
static void turn(const conv *c, work *v)
{
    int64_t dim[XL_RANK_MAX + 2], to[XL_RANK_MAX + 2], from[XL_RANK_MAX + 2], w = (int64_t)v->w;
    xl_strided s;
    dim[0] = c->n, from[0] = c->xn * w;
    for (uint32_t i = 0; i < c->ns; i++)
        dim[i + 1] = c->in[i], from[i + 1] = c->xs[i] * w;
    dim[c->ns + 1] = c->ci * c->groups, from[c->ns + 1] = c->xc * w;
    xl_row_major(to, c->ns + 2, dim, v->w);
    xl_strided_init(&s, v->w, c->ns + 2, dim, to, from);
    xl_strided_run(&s, v->temp[TURNED], v->x, v->pool);
    v->x = v->temp[TURNED];
    v->xn = to[0] / w, v->xc = 1;
    for (uint32_t i = 0; i < c->ns; i++)
        v->xs[i] = to[i + 1] / w;
}

/* The group's kernel as [spatial, ci, co]. */
static void lay_kernel(const conv *c, const phase *h, const work *v, int64_t g, int64_t cog)
{
    int64_t dim[XL_RANK_MAX + 2], to[XL_RANK_MAX + 2], from[XL_RANK_MAX + 2], w = (int64_t)v->w;
    xl_strided s;
    for (uint32_t i = 0; i < c->ns; i++)
        dim[i] = h->ker[i], from[i] = h->ks[i] * w;
    dim[c->ns] = c->ci, from[c->ns] = c->kc * w;
    dim[c->ns + 1] = cog, from[c->ns + 1] = c->ko * w;
    xl_row_major(to, c->ns + 2, dim, v->w);
    xl_strided_init(&s, v->w, c->ns + 2, dim, to, from);
    xl_strided_run(&s, v->temp[KERNEL], v->k + (h->koff + g * cog * c->ko) * w, v->pool);
}

typedef struct { const conv *c; const phase *h; const work *v; int64_t g, cog, first; const char *part; } result;

/* Rows of C to their places in the result; zeros where there is no C. */
static void put_rows(void *ctx, size_t begin, size_t end)
{
    const result *q = ctx;
    const conv *c = q->c;
    int64_t w = (int64_t)q->v->w, cog = q->cog;
    for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
        int64_t at = q->h->yoff + q->g * cog * c->yc, t = q->first + r;
        for (uint32_t i = c->ns; i-- > 0; ) {
            at += t % q->h->out[i] * q->h->ys[i];
            t /= q->h->out[i];
        }
        at += t * c->yn;
        char *to = q->v->y + at * w;
        const char *from = q->part ? q->part + r * cog * w : NULL;
        for (int64_t j = 0; j < cog && !from && c->yc != 1; j++)
            memset(to + j * c->yc * w, 0, (size_t)w);
        if (!from && c->yc == 1)
            memset(to, 0, (size_t)(cog * w));
        else if (from && c->yc == 1)
            memcpy(to, from, (size_t)(cog * w));
        else if (from && w == 4)
            for (int64_t j = 0; j < cog; j++)
                ((float *)(void *)to)[j * c->yc] = ((const float *)(const void *)from)[j];
        else if (from)
            for (int64_t j = 0; j < cog; j++)
                memcpy(to + j * c->yc * w, from + j * w, (size_t)w);
    }
}

static void put(const conv *c, const phase *h, const work *v, int64_t g, int64_t cog, int64_t first, int64_t m,
                const char *part)
{
    result q = { c, h, v, g, cog, first, part };
    xl_pool_for(v->pool, (size_t)m, (size_t)(16384 / (cog + 1) + 1), put_rows, &q);
}

/* Rows of C are rows of the result: channels last, no gaps between one output and the next. */
static bool in_order(const conv *c, const phase *h, int64_t nout)
{
    bool ok = c->yc == 1 && c->ns > 0 && h->ys[c->ns - 1] == c->co && h->yoff == 0;
    for (uint32_t i = 0; i + 1 < c->ns; i++)
        ok = ok && h->ys[i] == h->ys[i + 1] * h->out[i + 1];
    return ok && (nout == 1 || c->yn == h->ys[0] * h->out[0]);
}

/* Patches of one element, one after another as they lie: the input is the matrix. */
static bool is_matrix(const conv *c, const phase *h, const work *v, int64_t nout)
{
    bool ok = h->sker == 1 && c->ns > 0 && v->xc == 1;
    for (uint32_t i = 0; i < c->ns; i++)
        ok = ok && h->step[i] == 1 && h->low[i] == 0 && h->out[i] == c->in[i] &&
             (i + 1 == c->ns || v->xs[i] == v->xs[i + 1] * c->in[i + 1]);
    return ok && (nout == 1 || v->xn == v->xs[0] * c->in[0]);
}

/* Results of so few products have them rounded and added in order, as XLA's CPU has, bit for bit. */
enum { FEW_PRODUCTS = 3 };
static void few(const float *a, const float *b, float *y, int64_t m, int64_t n, int64_t k, int64_t ld)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = a[i * k] * b[j];
            for (int64_t q = 1; q < k; q++)
                sum += a[i * k + q] * b[q * n + j];
            y[i * ld + j] = sum;
        }
}

/* The product for rows first..first + m of a phase and the part of the kernel that is laid out; again: added to what is
 * there. */
static void multiply(const conv *c, const phase *h, const work *v, int64_t cog, int64_t xoff, int64_t first, int64_t m,
                     bool matrix, char *dst, int64_t ld, bool again)
{
    int64_t K = h->sker * c->ci, row = matrix ? v->xs[c->ns - 1] : K;
    patches p = { c, h, v->x, v->temp[ROWS], first, xoff, v->w, v->xn, v->xc, v->xs };
    if (!matrix)
        xl_pool_for(v->pool, (size_t)m, (size_t)(16384 / (K + 1) + 1), fill_rows, &p);
    if (c->wide != XL_F32 && c->wide != XL_F64) {
        plain(v->temp[ROWS], v->temp[KERNEL], dst, m, cog, K, c->wide);
        return;
    }
    if (c->wide == XL_F32 && K && K <= FEW_PRODUCTS && cog < XL_CONV_COLUMNS && !matrix && !again) {
        few((const float *)(const void *)v->temp[ROWS], (const float *)(const void *)v->temp[KERNEL],
            (float *)(void *)dst, m, cog, K, ld);
        return;
    }
    xl_gemm_type t = c->wide == XL_F32 ? XL_GEMM_F32 : XL_GEMM_F64;
    xl_gemm g = { .m = (size_t)m,
                  .n = (size_t)cog,
                  .k = (size_t)K,
                  .a_type = t,
                  .b_type = t,
                  .c_type = t,
                  .b = v->temp[KERNEL],
                  .c = dst,
                  .a = matrix ? v->x + (xoff + first * row) * (int64_t)v->w : v->temp[ROWS],
                  .a_row = row,
                  .a_col = 1,
                  .b_row = cog,
                  .b_col = 1,
                  .c_row = ld,
                  .accumulate = again };
    xl_gemm_run(v->pool, &g);
}

/* Some rows of C: the product, and where it belongs if it is not made there. */
typedef struct {
    const conv *c;
    const phase *h;
    const work *v;
    int64_t g, cog, xoff, total, chunk;
    bool direct, matrix, whole, again, last;
    atomic_bool *short_of_memory;
} rows;

static void run_rows(const rows *q, const work *v, int64_t first)
{
    const conv *c = q->c;
    int64_t m = q->total - first < q->chunk ? q->total - first : q->chunk, w = (int64_t)v->w;
    char *dst =
        q->direct ? v->y + (q->g * q->cog + first * c->co) * w : v->temp[PART] + (q->whole ? first * q->cog * w : 0);
    multiply(c, q->h, v, q->cog, q->xoff, first, m, q->matrix, dst, q->direct ? c->co : q->cog, q->again);
    if (!q->direct && q->last)
        put(c, q->h, v, q->g, q->cog, first, m, dst);
}

/* Each thread makes its own patches and multiplies them while they are near: nobody waits for anybody. */
static void share_rows(void *ctx, size_t begin, size_t end)
{
    const rows *q = ctx;
    work v = *q->v;
    size_t patch = q->matrix ? 0 : (size_t)(q->chunk * q->h->sker * q->c->ci) * v.w,
           part = q->direct ? 0 : (size_t)(q->chunk * q->cog) * v.w;
    char *own = xl_scratch(XL_SCRATCH_CONV, patch + part + 64);
    if (!own) {
        atomic_store(q->short_of_memory, true);
        return;
    }
    v.temp[ROWS] = own;
    v.temp[PART] = own + (patch + 63) / 64 * 64;
    for (size_t i = begin; i < end; i++)
        run_rows(q, &v, (int64_t)i * q->chunk);
}

/* ---- outputs of a row together ---- */
enum { FEATURES_MAX = 64, WINDOW_MAX = 4096 };

static bool by_lines(const conv *c, const phase *h, const work *v, int64_t cog)
{
    uint32_t d = c->ns - 1;
    return c->wide == XL_F32 && c->ns && v->xc == 1 && h->sker > 1 && h->spread[d] == 1 && cog % XL_CONV_COLUMNS == 0 &&
           cog <= FEATURES_MAX && h->sker * c->ci <= WINDOW_MAX && h->sker / h->ker[d] <= XL_CONV_LINES &&
           h->out[d] >= (int64_t)xl_conv_lines()->rows;
}

static void run_lines(void *ctx, size_t begin, size_t end)
{
    const rows *q = ctx;
    const conv *c = q->c;
    const phase *h = q->h;
    const work *v = q->v;
    uint32_t d = c->ns - 1;
    int64_t lines = h->sker / h->ker[d], wide = (h->out[d] - 1) * h->step[d] + h->ker[d], run = h->ker[d] * c->ci;
    patches p = { c, h, v->x, NULL, 0, 0, v->w, v->xn, 1, v->xs };
    float *own = xl_scratch(XL_SCRATCH_CONV, (size_t)(lines * wide * c->ci) * sizeof *own);
    if (!own) {
        atomic_store(q->short_of_memory, true);
        return;
    }
    for (size_t r = begin; r < end; r++) {
        int64_t o[XL_RANK_MAX], k[XL_RANK_MAX] = { 0 }, t = (int64_t)r;
        for (uint32_t i = d; i-- > 0; ) {
            o[i] = t % h->out[i] * h->step[i] - h->low[i];
            t /= h->out[i];
        }
        xl_conv_line l = { .run = (size_t)run,
                           .step = (size_t)(h->step[d] * c->ci),
                           .n = (size_t)h->out[d],
                           .columns = (size_t)q->cog,
                           .ld = (size_t)c->co,
                           .y = (float *)(void *)v->y + (int64_t)r * h->out[d] * c->co + q->g * q->cog };
        for (int64_t s = 0; s < lines; s++) {
            int64_t at = q->xoff + t * v->xn;
            bool inside = true;
            for (uint32_t i = 0; i < d && inside; i++) {
                int64_t pos = o[i] + k[i] * h->spread[i];
                inside = pos >= 0 && pos < c->in[i];
                at += pos * v->xs[i];
            }
            for (uint32_t i = d; i-- > 0; ) {
                if (++k[i] < h->ker[i])
                    break;
                k[i] = 0;
            }
            if (!inside)                                   /* zeros add nothing */
                continue;
            float *to = own + (int64_t)l.lines * wide * c->ci;
            phase whole = { 0 };
            whole.ker[d] = wide, whole.spread[d] = 1;
            p.p = &whole;
            fill_line(&p, (char *)to, v->x + at * (int64_t)v->w, -h->low[d]);
            l.x[l.lines] = to;
            l.k[l.lines++] = (const float *)(const void *)v->temp[KERNEL] + s * run * q->cog;
        }
        xl_conv_lines()->f32(&l);
    }
}

static void run_phase(const conv *c, const phase *all, const work *v, int64_t g, int64_t cog)
{
    int64_t nout = c->n / c->batch_groups, total = nout * all->sout;
    int64_t image = c->batch_groups > 1 ? g * nout : 0, channel = c->groups > 1 ? g * c->ci : 0,
            xoff = image * v->xn + channel * v->xc;
    bool fl = c->wide == XL_F32 || c->wide == XL_F64, direct = fl && in_order(c, all, nout),
         matrix = fl && is_matrix(c, all, v, nout);
    int64_t taps = c->ns ? all->ker[0] : 1,
            share = total / SHARES < SHARE_MIN ? SHARE_MIN : (total + SHARES - 1) / SHARES;
    bool whole = c->block < taps; /* the kernel comes in blocks: C is kept whole until the last */
    bool shared = fl && !whole && !(matrix && direct) && total >= 2 * share;
    int64_t chunk = matrix && direct ? total : shared && share < c->chunk ? share : c->chunk;
    for (int64_t a = 0; a < taps; a += c->block) {
        phase h = *all;
        if (c->ns) {
            h.ker[0] = taps - a < c->block ? taps - a : c->block;
            h.sker = all->sker / taps * h.ker[0];
            h.low[0] -= a * h.spread[0];
            h.koff += a * h.ks[0];
        }
        lay_kernel(c, &h, v, g, cog);
        atomic_bool short_of_memory = false;
        rows q = {
            c, &h, v, g, cog, xoff, total, chunk, direct, matrix, whole, a > 0, a + c->block >= taps, &short_of_memory
        };
        if (direct && !whole && !matrix && by_lines(c, &h, v, cog)) {
            int64_t width = h.out[c->ns - 1];
            xl_pool_for(v->pool, (size_t)(total / width), (size_t)(SHARE_MIN / width + 1), run_lines, &q);
            if (!atomic_load(&short_of_memory))
                continue;
        }
        if (shared)
            xl_pool_for(v->pool, (size_t)((total + chunk - 1) / chunk), 1, share_rows, &q);
        for (int64_t first = 0; first < total && (!shared || atomic_load(&short_of_memory)); first += chunk)
            run_rows(&q, v, first);
    }
}

static xl_conv_groups groups_of(const conv *c, const phase *h, const work *v)
{
    xl_conv_groups g = { .ns = c->ns,
                         .n = c->n,
                         .groups = c->groups,
                         .ci = c->ci,
                         .co = c->co / c->groups,
                         .xn = v->xn,
                         .xc = v->xc,
                         .kc = c->kc,
                         .ko = c->ko,
                         .yn = c->yn,
                         .yc = c->yc,
                         .block = c->group_block };
    for (uint32_t i = 0; i < c->ns; i++) {
        g.in[i] = c->in[i], g.out[i] = h->out[i], g.ker[i] = h->ker[i];
        g.step[i] = h->step[i], g.spread[i] = h->spread[i], g.low[i] = h->low[i];
        g.xs[i] = v->xs[i], g.ks[i] = h->ks[i], g.ys[i] = h->ys[i];
    }
    return g;
}

static bool run_groups(const conv *c, const phase *h, const work *v)
{
    xl_conv_groups g = groups_of(c, h, v);
    g.x = (const float *)(const void *)v->x;
    g.k = (const float *)(const void *)v->k + h->koff;
    g.y = (float *)(void *)v->y + h->yoff;
    return xl_conv_groups_run(v->pool, &g, (float *)(void *)v->temp[KERNEL]);
}

/* A part of the sum over the elements of the "kernel": o->parts of them, each with its own C. */
typedef struct {
    const conv *c;
    const phase *h;
    const work *v;
    int64_t total, each;
    bool turned; /* each C is made by columns: what there is more of are the columns of the product then */
    atomic_bool *short_of_memory;
} sums;

static void add_products(const sums *q, int64_t first, int64_t end, char *patches_at, char *to)
{
    const conv *c = q->c, *o = c->other;
    const work *v = q->v;
    int64_t row = c->sout * c->n, from = first;
    xl_gemm_type t = c->wide == XL_F32 ? XL_GEMM_F32 : XL_GEMM_F64;
    for (; from < end; from += o->chunk) {
        int64_t m = end - from < o->chunk ? end - from : o->chunk;
        patches p = { o, q->h, v->x, patches_at, from, 0, v->w, o->xn, 1, o->xs };
        xl_pool_for(v->pool, (size_t)m, (size_t)(16384 / (row + 1) + 1), fill_rows, &p);
        xl_gemm g = { .m = (size_t)row,
                      .n = (size_t)c->co,
                      .k = (size_t)m,
                      .a_type = t,
                      .b_type = t,
                      .c_type = t,
                      .a = patches_at,
                      .b = v->k + from * c->co * (int64_t)v->w,
                      .c = to,
                      .a_row = 1,
                      .a_col = row,
                      .b_row = c->co,
                      .b_col = 1,
                      .c_row = c->co,
                      .accumulate = from > first };
        if (q->turned)
            g = (xl_gemm){ .m = g.n,
                           .n = g.m,
                           .k = g.k,
                           .a_type = t,
                           .b_type = t,
                           .c_type = t,
                           .a = g.b,
                           .b = g.a,
                           .c = to,
                           .a_row = 1,
                           .a_col = c->co,
                           .b_row = row,
                           .b_col = 1,
                           .c_row = row,
                           .accumulate = g.accumulate };
        xl_gemm_run(v->pool, &g);
    }
}

static void share_sums(void *ctx, size_t begin, size_t end)
{
    const sums *q = ctx;
    int64_t row = q->c->sout * q->c->n, most = q->each < q->c->other->chunk ? q->each : q->c->other->chunk;
    char *own = xl_scratch(XL_SCRATCH_CONV, (size_t)(most * row) * q->v->w);
    if (!own) {
        atomic_store(q->short_of_memory, true);
        return;
    }
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++)
        add_products(q, i * q->each, (i + 1) * q->each < q->total ? (i + 1) * q->each : q->total, own,
                     q->v->temp[PART] + (size_t)(i * row * q->c->co) * q->v->w);
}

/* The parts' sum at some rows; each but the first is added to what there is. */
#define ADD_PARTS(T)                                                                                                   \
    static void add_parts_##T(const sums *q, size_t begin, size_t end)                                                 \
    {                                                                                                                  \
        size_t rows = (size_t)(q->c->sout * q->c->n), cols = (size_t)q->c->co;                                         \
        T *y = (T *)(void *)q->v->y;                                                                                   \
        for (size_t i = 0; i < (size_t)q->c->other->parts; i++) {                                                      \
            const T *from = (const T *)(const void *)q->v->temp[PART] + i * rows * cols;                               \
            if (!q->turned)                                                                                            \
                for (size_t k = begin * cols; k < end * cols; k++)                                                     \
                    y[k] = (i ? y[k] : 0) + from[k];                                                                   \
            else                                                                                                       \
                for (size_t j = 0; j < cols; j++)                                                                      \
                    for (size_t r = begin; r < end; r++)                                                               \
                        y[r * cols + j] = (i ? y[r * cols + j] : 0) + from[j * rows + r];                              \
        }                                                                                                              \
    }
ADD_PARTS(float)
ADD_PARTS(double)
#undef ADD_PARTS
static void add_parts(void *ctx, size_t begin, size_t end)
{
    const sums *q = ctx;
    (q->c->wide == XL_F32 ? add_parts_float : add_parts_double)(q, begin, end);
}

static void run_other(const conv *c, const work *v)
{
    const conv *o = c->other;
    int64_t total = c->ci * c->sker, rows = c->sout * c->n, count = rows * c->co;
    atomic_bool short_of_memory = false;
    phase h;
    phase_of(o, o->low, 0, &h);
    sums q = { c, &h, v, total, (total + o->parts - 1) / o->parts, o->parts > 1 && rows > c->co, &short_of_memory };
    if (o->parts == 1) {
        add_products(&q, 0, total, v->temp[ROWS], v->y);
        return;
    }
    xl_pool_for(v->pool, (size_t)o->parts, 1, share_sums, &q);
    for (int64_t i = 0; i < o->parts && atomic_load(&short_of_memory); i++)
        add_products(&q, i * q.each, (i + 1) * q.each < total ? (i + 1) * q.each : total, v->temp[ROWS],
                     v->temp[PART] + (size_t)(i * count) * v->w);
    xl_pool_for(v->pool, (size_t)rows, (size_t)(4096 / c->co + 1), add_parts, &q);
}

static xl_error *run_conv(const xl_step *s, xl_frame *f)
{
    const conv *c = s->data;
    const xl_extent *x = xl_in_shape(s, 0), *k = xl_in_shape(s, 1), *y = xl_out_shape(s, 0);
    int64_t groups = c->groups * c->batch_groups, cog = c->co / groups, phases = 1, low[XL_RANK_MAX];
    work v = { .x = xl_in(s, f, 0),
               .k = xl_in(s, f, 1),
               .y = xl_out(s, f, 0),
               .w = xl_dtype_bytes(c->wide),
               .xn = c->xn,
               .xc = c->xc,
               .pool = f->pool };
    if (!y->count)
        return NULL;
    for (uint32_t i = 0; i < NTEMP; i++)
        v.temp[i] = xl_out(s, f, 1 + i);
    memcpy(v.xs, c->xs, sizeof v.xs);
    for (uint32_t i = 0; i < c->ns; i++) {
        low[i] = c->dynamic ? xl_read_index(xl_in(s, f, 2), s->shape[2].dtype, 2 * i) : c->low[i];
        low[i] = low[i] > FAR ? FAR : low[i] < -FAR ? -FAR : low[i]; /* that far out there are zeros only */
        phases *= phases_along(c, i);
    }
    const void *in[1] = { v.x };
    if (c->wide != x->dtype) {
        c->load.fn(v.temp[WIDE_X], in, (size_t)x->count, c->load.ctx);
        v.x = v.temp[WIDE_X];
    }
    in[0] = v.k;
    if (c->wide != k->dtype) {
        c->loadk.fn(v.temp[WIDE_K], in, (size_t)k->count, c->loadk.ctx);
        v.k = v.temp[WIDE_K];
    }
    if (c->wide != y->dtype)
        v.y = v.temp[WIDE_Y];
    if (c->other)
        run_other(c, &v);
    else if (c->xc != 1 && c->sker != 1 && !c->group_block)
        turn(c, &v);
    for (int64_t i = 0; i < phases && !c->other; i++) {
        phase h;
        bool some = phase_of(c, low, i, &h);
        if (some && c->group_block) {
            if (!run_groups(c, &h, &v))
                return XL_ERR(EXHAUSTED, "no memory for the convolution");
            continue;
        }
        for (int64_t g = 0; g < groups && h.sout; g++)
            if (some)
                run_phase(c, &h, &v, g, cog);
            else
                put(c, &h, &v, g, cog, 0, c->n / c->batch_groups * h.sout, NULL);
    }
    in[0] = v.y;
    if (c->wide != y->dtype)
        c->store.fn(xl_out(s, f, 0), in, (size_t)y->count, c->store.ctx);
    return NULL;
}

/* From the other side: the kernel must be a matrix [ci, spatial][co] and the result one of [spatial, n][co]. */
static conv *other_side(xl_planner *p, const conv *c)
{
    bool ok = c->ns > 0 && c->groups == 1 && c->batch_groups == 1 && (c->wide == XL_F32 || c->wide == XL_F64) &&
              !c->dynamic && c->xn == 1 && c->xc != 1 && c->sker > 1 && c->sker * c->ci > c->sout * c->n &&
              c->sout * c->n * c->co > 0;
    int64_t k = c->co, y = c->n * c->co;
    for (uint32_t i = c->ns; i-- > 0 && ok; ) {
        ok = c->base[i] == 1 && !c->flip[i] && c->ks[i] == k && c->ys[i] == y;
        k *= c->ker[i], y *= c->out[i];
    }
    if (!ok || c->ko != 1 || c->kc != k || c->yc != 1 || c->yn != c->co)
        return NULL;
    conv *o = xl_new(p->a, conv, 1);
    *o = *c;
    o->n = c->ci, o->ci = c->n, o->xn = c->xc, o->xc = 1;
    for (uint32_t i = 0; i < c->ns; i++)
        o->out[i] = c->ker[i], o->ker[i] = c->out[i], o->step[i] = c->spread[i], o->spread[i] = c->step[i];
    o->sout = c->sker, o->sker = c->sout;
    o->chunk = CHUNK_BYTES / (c->sout * c->n * (int64_t)xl_dtype_bytes(c->wide) + 1);
    o->chunk = o->chunk < ROWS_MIN ? ROWS_MIN : o->chunk;
    if (o->chunk > c->ci * c->sker)
        o->chunk = c->ci * c->sker;
    o->parts = PARTS_BYTES / (c->sout * c->n * c->co * (int64_t)xl_dtype_bytes(c->wide));
    o->parts = o->parts > SHARES ? SHARES : o->parts;
    if (o->parts > c->ci * c->sker / SHARE_MIN)
        o->parts = c->ci * c->sker / SHARE_MIN;
    o->parts = o->parts < 1 ? 1 : o->parts;
    while (o->parts > 1 && (o->parts - 1) * ((c->ci * c->sker + o->parts - 1) / o->parts) >= c->ci * c->sker)
        o->parts--;                                        /* none is empty */
    return o;
}

/* The step, with the memory it works in. */
static xl_error *add(xl_planner *p, const xl_op *op, conv *c, const xl_extent *x, const xl_extent *k,
                     const xl_extent *y)
{
    int64_t K = c->sker * c->ci, total = c->n / c->batch_groups * c->sout, w = (int64_t)xl_dtype_bytes(c->wide);
    int64_t cog = c->co / (c->groups * c->batch_groups);
    int64_t taps = c->ns && c->ker[0] > 0 ? c->ker[0] : 1,
            line = K / taps * w; /* bytes of a row per element of the first dimension */
    c->block = (BLOCK_BYTES / ROWS_MIN) / (line + 1);
    c->block = c->block < 1 ? 1 : c->block > taps ? taps : c->block;
    if (c->wide != XL_F32 && c->wide != XL_F64)            /* sums of those are not added to */
        c->block = taps;
    K = K / taps * c->block;
    c->chunk = CHUNK_BYTES / (K * w + 1);
    c->chunk = c->chunk < ROWS_MIN
                   ? ROWS_MIN
                   : c->chunk; /* as many rows as stay near, but enough to be worth packing the kernel */
    if (c->chunk > total)
        c->chunk = total;
    size_t temp[NTEMP] = { [WIDE_X] = c->wide == x->dtype ? 0 : (size_t)(x->count * w),
                           [WIDE_K] = c->wide == k->dtype ? 0 : (size_t)(k->count * w),
                           [WIDE_Y] = c->wide == y->dtype ? 0 : (size_t)(y->count * w),
                           [ROWS] = (size_t)(c->chunk * K * w),
                           [KERNEL] = (size_t)(K * cog * w),
                           [PART] = (size_t)((c->block < taps ? total : c->chunk) * cog * w),
                           [TURNED] = c->xc == 1 || c->sker == 1 ? 0 : (size_t)(x->count * w) };
    bool one = true;
    phase h;
    for (uint32_t i = 0; i < c->ns; i++)
        one = one && period(c->step[i], c->base[i]) == 1;
    phase_of(c, c->low, 0, &h);
    if (one && (c->wide == XL_F32 || c->wide == XL_F64) && in_order(c, &h, c->n / c->batch_groups))
        temp[PART] = 0;                                    /* the product goes where it belongs */
    if ((c->other = other_side(p, c))) {
        temp[ROWS] = (size_t)(c->other->chunk * c->sout * c->n * w);
        temp[KERNEL] = temp[TURNED] = 0;
        temp[PART] = c->other->parts > 1 ? (size_t)(c->other->parts * c->sout * c->n * c->co * w) : 0;
    }
    if (!p->plain && c->wide == XL_F32 && c->ns && c->batch_groups == 1 && c->sout * c->n * c->co > 0) {
        work v = { .xn = c->xn, .xc = c->xc };
        memcpy(v.xs, c->xs, sizeof v.xs);
        memcpy(h.out, c->out, sizeof h.out);
        memcpy(h.ker, c->ker, sizeof h.ker);
        memcpy(h.step, c->step, sizeof h.step);
        memcpy(h.spread, c->spread, sizeof h.spread);
        xl_conv_groups g = groups_of(c, &h, &v);
        size_t bytes = xl_conv_groups_plan(&g);
        if (bytes) {
            c->group_block = g.block;
            temp[KERNEL] = bytes;
            temp[ROWS] = temp[PART] = temp[TURNED] = 0;
        }
    }
    uint32_t in[3];
    xl_extent shape[3];
    bool in_place = false;
    xl_step *s;
    xl_op **ops = xl_new(p->a, xl_op *, 1);
    ops[0] = (xl_op *)(uintptr_t)op;
    for (uint32_t i = 0; i < op->nin && i < 3; i++) {
        xl_error *err = xl_shape_of(p, xl_in_type(p->f, op, i), &shape[i]);
        if (err)
            return err;
        in[i] = p->leaf[op->in[i].id].buf[0];
    }
    return xl_plan_step_group(p, xl_op_text(op), run_conv, c, ops, 1, in, op->in, shape, op->nin, op->out, &in_place, 1,
                              0, temp, NTEMP, &s);
}

xl_error *xl_kernel_convolution(xl_planner *p, const xl_op *op)
{
    xl_extent x, k, y;
    int64_t xs[XL_RANK_MAX], ks[XL_RANK_MAX], ys[XL_RANK_MAX];
    xl_error *err = NULL;
    conv *c = xl_new(p->a, conv, 1);
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 0), &x));
    XL_DO(xl_shape_of(p, xl_in_type(p->f, op, 1), &k));
    XL_DO(xl_shape_of(p, xl_out_type(p->f, op, 0), &y));
    c->dynamic = op->code == XL_OP_DYNAMIC_CONV;
#define CD(name) (c->dynamic ? xl_op_dims(op, XL_SLOT(DYNAMIC_CONV, name)) : xl_op_dims(op, XL_SLOT(CONVOLUTION, name)))
#define CI(name) (c->dynamic ? xl_op_int(op, XL_SLOT(DYNAMIC_CONV, name)) : xl_op_int(op, XL_SLOT(CONVOLUTION, name)))
    xl_dims is = CD(input_spatial_dimensions), kd = CD(kernel_spatial_dimensions), os = CD(output_spatial_dimensions);
    xl_dims step = CD(window_strides), base = CD(lhs_dilation), spread = CD(rhs_dilation), flip = CD(window_reversal);
    xl_dims pad = c->dynamic ? (xl_dims){ NULL, 0 } : xl_op_dims(op, XL_SLOT(CONVOLUTION, padding));
    xl_row_major(xs, x.rank, x.dims, 1);
    xl_row_major(ks, k.rank, k.dims, 1);
    xl_row_major(ys, y.rank, y.dims, 1);
    c->ns = (uint32_t)is.n;
    if (x.rank != c->ns + 2 || k.rank != x.rank || y.rank != x.rank || kd.n != is.n || os.n != is.n)
        return xl_plan_unsupported(p, op, "its dimension numbers do not fit its operands");
    c->groups = CI(feature_group_count);
    c->batch_groups = CI(batch_group_count);
    int64_t ib = CI(input_batch_dimension), ic = CI(input_feature_dimension), kc = CI(kernel_input_feature_dimension);
    int64_t ko = CI(kernel_output_feature_dimension), ob = CI(output_batch_dimension),
            oc = CI(output_feature_dimension);
    c->n = x.dims[ib], c->ci = k.dims[kc], c->co = k.dims[ko];
    c->xn = xs[ib], c->xc = xs[ic], c->kc = ks[kc], c->ko = ks[ko], c->yn = ys[ob], c->yc = ys[oc];
    if (c->groups < 1 || c->batch_groups < 1 || c->co % (c->groups * c->batch_groups) || c->n % c->batch_groups)
        return xl_plan_unsupported(p, op, "its groups do not divide its features");
    c->sout = c->sker = 1;
    for (uint32_t i = 0; i < c->ns; i++) {
        c->in[i] = x.dims[is.p[i]], c->ker[i] = k.dims[kd.p[i]], c->out[i] = y.dims[os.p[i]];
        c->xs[i] = xs[is.p[i]], c->ks[i] = ks[kd.p[i]], c->ys[i] = ys[os.p[i]];
        c->step[i] = xl_dims_at(step, i, 1), c->base[i] = xl_dims_at(base, i, 1),
        c->spread[i] = xl_dims_at(spread, i, 1);
        c->flip[i] = xl_dims_at(flip, i, 0), c->low[i] = xl_dims_at(pad, 2 * i, 0);
        c->sout *= c->out[i], c->sker *= c->ker[i];
        /* what separates one element from none has no effect, whatever number was given */
        c->step[i] = c->out[i] > 1 ? c->step[i] : 1, c->base[i] = c->in[i] > 1 ? c->base[i] : 1,
        c->spread[i] = c->ker[i] > 1 ? c->spread[i] : 1;
        if (c->step[i] > FAR || c->base[i] > FAR || c->spread[i] > FAR || c->low[i] > FAR || c->low[i] < -FAR)
            return xl_plan_unsupported(p, op, "a stride, dilation or padding of its window is beyond 2^31");
    }
    xl_dclass cls = xl_dtype_class(x.dtype);
    if (cls == XL_CLASS_COMPLEX)
        c->wide = XL_C128;
    else if (cls == XL_CLASS_FLOAT)
        c->wide = x.dtype == XL_F64 || k.dtype == XL_F64 || y.dtype == XL_F64 ? XL_F64 : XL_F32;
    else                                                   /* integers do not wrap where the result is a float */
        c->wide = xl_dtype_class(y.dtype) == XL_CLASS_FLOAT ? XL_F64 : XL_I64;
    c->load = xl_ew_convert(p->a, x.dtype, c->wide);
    c->loadk = xl_ew_convert(p->a, k.dtype, c->wide);
    c->store = xl_ew_convert(p->a, c->wide, y.dtype);
    p->plan->flops += 2.0 * (double)y.count * (double)(c->sker * c->ci);
    return add(p, op, c, &x, &k, &y);
out:
    return err;
}
