/* A row of outputs is one line of numbers, features innermost. Each element of the window adds a line of the input
 * times a line of the kernel to it. In the input's lines a channel is repeated for the features that it goes into, and
 * elements that a stride skips are left out, so that an element of the window is a shift by whole outputs. The kernel's
 * line repeats after as many vectors as hold a whole number of outputs.
 *
 * A line of the input is kept for the rows of outputs below, which meet most of them again. Groups come in blocks, and
 * outputs of long rows too, so that these lines stay in the second-level cache. */
#include "cpu/kernel/conv_groups.h"

#include <stdatomic.h>
#include <string.h>

#include "cpu/kernel/conv_line.h"
#include "cpu/run/pool.h"

/* CHANNELS_MAX, PRODUCTS_MAX: of a group, at one element of the window; with more, repeating the channels costs more
 * than is gained. LINES_BYTES: of the input's lines, where blocks need not be narrower than NARROW numbers or outputs
 * for that; MOST_BYTES: where they do. */
enum {
    TERMS_MAX = 4096,
    CHANNELS_MAX = 32,
    PRODUCTS_MAX = 64,
    NARROW = 64,
    LINES_BYTES = 1 << 18,
    MOST_BYTES = 1 << 22,
    FEW_PRODUCTS = 3,
    SUM = 16,
    CHUNK_PRODUCTS = 1 << 17
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Numbers per output: some zeros more than the features, where the kernel's lines would be long without them. */
static int64_t width_of(int64_t features)
{
    return features <= XL_CONV_COLUMNS ? features : up(features, features <= NARROW ? 4 : 8);
}

/* Of a kernel's line: what repeats, and more of it, so that a loop may read on. */
static int64_t period_of(int64_t width)
{
    int64_t n = width;
    while (n % XL_CONV_COLUMNS)
        n += width;
    return n;
}
static int64_t line_of(int64_t width) { return period_of(width) + XL_CONV_AHEAD; }

static int64_t taps_of(const xl_conv_groups *c)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < c->ns; i++)
        n *= c->ker[i];
    return n;
}

/* The positions k spread have so many residues of the stride: each has a plane of the line. */
static int64_t planes_of(int64_t ker, int64_t step, int64_t spread)
{
    int64_t n = 1;
    while (n < ker && n * spread % step)
        n++;
    return n;
}

size_t xl_conv_groups_plan(xl_conv_groups *c)
{
    uint32_t d = c->ns - 1;
    int64_t taps = taps_of(c), lines = c->ker[d] ? taps / c->ker[d] : 0;
    if (c->groups < 2 || c->ci < 1 || c->ci > CHANNELS_MAX || c->co >= XL_CONV_COLUMNS ||
        c->ci * c->co > PRODUCTS_MAX || taps < 2 || taps * c->ci > TERMS_MAX || lines > XL_CONV_LINES ||
        c->spread[d] > TERMS_MAX)
        return 0;
    int64_t halo = (c->ker[d] - 1) * c->spread[d], planes = least(c->ker[d], c->step[d]),
            each = lines * planes * c->ci * c->co * (int64_t)sizeof(float), /* of one group */
        narrow = least((NARROW + c->co - 1) / c->co, c->groups);
    if (each * narrow * (NARROW + halo) > MOST_BYTES)
        return 0;
    int64_t n = least(most(LINES_BYTES / (each * least(c->out[d] + halo + 1, 4 * NARROW + halo)), narrow), c->groups),
            parts = (c->groups + n - 1) / n, even = XL_CONV_COLUMNS;
    while (even > 1 && c->co * even % (2 * XL_CONV_COLUMNS) == 0)
        even /= 2;
    c->block = least(up((c->groups + parts - 1) / parts, parts > 1 ? even : 1), c->groups);
    parts = (c->groups + c->block - 1) / c->block;
    int64_t last = c->groups - (parts - 1) * c->block;
    return (size_t)((parts - 1) * line_of(width_of(c->block * c->co)) + line_of(width_of(last * c->co))) *
           (size_t)(taps * c->ci) * sizeof(float);
}

/* The kernel's elements for the groups from `first` on: [element of the window][channel][line]. */
static float *lay_kernel(const xl_conv_groups *c, int64_t first, int64_t features, float *to)
{
    int64_t taps = taps_of(c), width = width_of(features), line = line_of(width), k[XL_RANK_MAX] = { 0 };
    for (int64_t t = 0; t < taps; t++) {
        const float *from = c->k + first * c->co * c->ko;
        for (uint32_t i = 0; i < c->ns; i++)
            from += k[i] * c->ks[i];
        for (uint32_t i = c->ns; i-- > 0 && ++k[i] == c->ker[i]; )
            k[i] = 0;
        for (int64_t q = 0; q < c->ci; q++, from += c->kc, to += line) {
            for (int64_t j = 0; j < width; j++)
                to[j] = j < features ? from[j * c->ko] : 0;
            for (int64_t j = width; j < line; j++)
                to[j] = to[j - width];
        }
    }
    return to;
}

typedef struct {
    const xl_conv_groups *c;
    const xl_conv_set *set;
    const float *kernel;
    int64_t taps, lines, planes, rows, outs, parts;        /* outs: of a block; parts: blocks of a row */
    int64_t kernel_block;                                  /* floats of the kernel for a whole block */
    size_t sum;                                            /* products that are added up apart */
    bool finite;                                           /* the kernel: 0 times it adds nothing */
    atomic_bool *short_of_memory;
} job;

/* What is computed at the moment, and the lines that a thread has for it. */
typedef struct {
    const job *j;
    int64_t first, features, width, out, outs;             /* groups from; outputs from */
    int64_t plane;                                         /* floats from a channel's line to the next one's */
    float *lines, *row, *zeros;                            /* zeros: a line beside the input */
    xl_conv_term *term;
    int64_t *at;                                           /* offsets of what stands side by side in a line */
    int64_t *id, *used;                                    /* of each line that is kept: which, the last row with it */
} block;

/* Elements of the input's row at x (image and outer dimensions are chosen) as the lines of a slot. */
static void fill(const block *b, float *to, const float *x)
{
    const xl_conv_groups *c = b->j->c;
    uint32_t d = c->ns - 1;
    int64_t shifts = (c->ker[d] - 1) * c->spread[d] / c->step[d], n = b->outs + shifts, w = b->width;
    for (int64_t p = 0; p < b->j->planes; p++) {
        int64_t pos = b->out * c->step[d] - c->low[d] + p * c->spread[d] % c->step[d], s = c->step[d];
        int64_t from = pos < 0 ? least((-pos + s - 1) / s, n) : 0,
                end = pos < c->in[d] ? most(least((c->in[d] - pos + s - 1) / s, n), from) : from;
        for (int64_t q = 0; q < c->ci; q++, to += b->plane) {
            const int64_t *at = b->at;
            const float *e = x + (b->first * c->ci + q) * c->xc + (pos + from * s) * c->xs[d];
            float *y = to + from * w;
            int64_t next = s * c->xs[d];
            memset(to, 0, (size_t)(from * w) * sizeof *to);
            memset(to + end * w, 0, (size_t)(b->plane - end * w) * sizeof *to);
            if (c->ci * c->co == 1 && c->xc == 1 && w == b->features && next == w) {
                memcpy(y, e, (size_t)((end - from) * w) * sizeof *y);
                continue;
            }
            for (int64_t m = from; m < end && c->xc == 1; m++, y += w, e += next) {
                if (c->ci * c->co == 1)
                    memcpy(y, e, (size_t)b->features * sizeof *y);
                else
                    for (int64_t f = 0; f < b->features; f++)
                        y[f] = e[at[f]];
                for (int64_t f = b->features; f < w; f++)
                    y[f] = 0;
            }
            for (int64_t f = 0; f < w && c->xc != 1; f++)
                for (int64_t m = 0; m < end - from; m++)
                    y[m * w + f] = f < b->features ? e[at[f] + m * next] : 0;
        }
    }
}

/* So few products are rounded and added in order, as XLA's CPU has it. */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
static void few(float *y, const xl_conv_term *t, size_t terms, size_t sum, size_t n, size_t period)
{
    (void)sum;
    for (size_t i = 0, at = 0; i < n; i += 4) {
        four all = { 0 };
        for (size_t k = 0; k < terms; k++) {
            four product = *(const four *)(t[k].x + i) * *(const four *)(t[k].k + at);
            if (k)
                all += product;
            else
                all = product;
        }
        *(four *)(y + i) = all;
        at = at + 4 == period ? 0 : at + 4;
    }
}

static void put(const block *b, float *y)
{
    const xl_conv_groups *c = b->j->c;
    int64_t next = c->ys[c->ns - 1], w = b->width;
    if (c->yc == 1 && next == w)
        memcpy(y, b->row, (size_t)(b->outs * w) * sizeof *y);
    else if (c->yc == 1)
        for (int64_t o = 0; o < b->outs; o++)
            memcpy(y + o * next, b->row + o * w, (size_t)b->features * sizeof *y);
    else
        for (int64_t f = 0; f < b->features; f++)
            for (int64_t o = 0; o < b->outs; o++)
                y[f * c->yc + o * next] = b->row[o * w + f];
}

/* One row of the block; r: image and outputs of the outer dimensions. */
static void compute(const block *b, int64_t r)
{
    const job *j = b->j;
    const xl_conv_groups *c = j->c;
    uint32_t d = c->ns - 1;
    int64_t o[XL_RANK_MAX], k[XL_RANK_MAX] = { 0 }, image = r, slot = j->planes * c->ci * b->plane;
    int64_t line[XL_CONV_LINES], place[XL_CONV_LINES], offset[XL_CONV_LINES];
    float *y = c->y + b->first * c->co * c->yc + b->out * c->ys[d];
    for (uint32_t i = d; i-- > 0; ) {
        y += image % c->out[i] * c->ys[i];
        o[i] = image % c->out[i] * c->step[i] - c->low[i];
        image /= c->out[i];
    }
    y += image * c->yn;
    for (int64_t l = 0; l < j->lines; l++) {               /* lines that are here already */
        int64_t at = image * c->xn, id = image;
        place[l] = -1, line[l] = 0;
        for (uint32_t i = 0; i < d && line[l] >= 0; i++) {
            int64_t pos = o[i] + k[i] * c->spread[i];
            line[l] = pos >= 0 && pos < c->in[i] ? 0 : -1;
            at += pos * c->xs[i];
            id = id * c->in[i] + pos;
        }
        for (uint32_t i = d; i-- > 0 && ++k[i] == c->ker[i]; )
            k[i] = 0;
        if (line[l] < 0)
            continue;
        line[l] = id, offset[l] = at;
        for (int64_t s = 0; s < j->lines && place[l] < 0; s++)
            if (b->id[s] == id)
                place[l] = s, b->used[s] = r;
    }
    size_t terms = 0;
    for (int64_t l = 0, free = 0; l < j->lines; l++) {
        if (line[l] < 0 && j->finite)
            continue;
        if (line[l] >= 0 && place[l] < 0) {
            while (b->used[free] == r)
                free++;
            place[l] = free;
            b->used[free] = r, b->id[free] = line[l];
            fill(b, b->lines + free * slot, c->x + offset[l]);
        }
        for (int64_t t = 0; t < c->ker[d]; t++) {
            int64_t p = t % j->planes, shift = (t * c->spread[d] - p * c->spread[d] % c->step[d]) / c->step[d];
            for (int64_t q = 0; q < c->ci; q++)
                b->term[terms++] = (xl_conv_term){
                    line[l] < 0 ? b->zeros
                                : b->lines + place[l] * slot + (p * c->ci + q) * b->plane + shift * b->width,
                    j->kernel + b->first / c->block * j->kernel_block +
                        ((l * c->ker[d] + t) * c->ci + q) * line_of(b->width)
                };
        }
    }
    bool direct = c->yc == 1 && c->ys[d] == b->width && b->width == b->features &&
                  b->outs * b->width % XL_CONV_COLUMNS == 0;
    (j->taps * c->ci <= FEW_PRODUCTS ? few : j->set->terms)(direct ? y : b->row, b->term, terms, j->sum,
                                                            (size_t)up(b->outs * b->width, XL_CONV_COLUMNS),
                                                            (size_t)period_of(b->width));
    if (!direct)
        put(b, y);
}

static void run_rows(void *ctx, size_t begin, size_t end)
{
    const job *j = ctx;
    const xl_conv_groups *c = j->c;
    uint32_t d = c->ns - 1;
    int64_t shifts = (c->ker[d] - 1) * c->spread[d] / c->step[d], width = width_of(c->block * c->co),
            plane = up((j->outs + shifts) * width + XL_CONV_COLUMNS, XL_CONV_COLUMNS),
            row = up(j->outs * width, XL_CONV_COLUMNS), size = j->lines * j->planes * c->ci * plane;
    size_t terms = (size_t)(j->taps * c->ci);
    char *own =
        xl_scratch(XL_SCRATCH_CONV, terms * sizeof(xl_conv_term) + (size_t)(size + row + plane) * sizeof(float) +
                                        (size_t)(width + 2 * j->lines) * sizeof(int64_t));
    if (!own) {
        atomic_store(j->short_of_memory, true);
        return;
    }
    block b = { .j = j, .first = -1, .lines = (float *)(void *)own, .plane = plane };
    b.row = b.lines + size;
    b.zeros = b.row + row;
    b.term = (xl_conv_term *)(void *)(b.zeros + plane);
    memset(b.zeros, 0, (size_t)plane * sizeof *b.zeros);
    b.at = (int64_t *)(void *)(b.term + terms);
    b.id = b.at + width, b.used = b.id + j->lines;
    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++) {
        int64_t at = i / j->rows, first = at / j->parts * c->block, out = at % j->parts * j->outs;
        if (first != b.first || out != b.out) {
            b.first = first, b.out = out;
            b.features = least(c->groups - first, c->block) * c->co;
            b.width = width_of(b.features);
            b.outs = least(c->out[d] - out, j->outs);
            for (int64_t f = 0; f < b.features; f++)
                b.at[f] = f / c->co * c->ci * c->xc;
            for (int64_t s = 0; s < j->lines; s++)
                b.id[s] = b.used[s] = -1;
        }
        compute(&b, i % j->rows);
    }
}

bool xl_conv_groups_run(xl_pool *pool, const xl_conv_groups *c, float *kernel)
{
    uint32_t d = c->ns - 1;
    atomic_bool short_of_memory = false;
    job j = { .c = c, .set = xl_conv_lines(), .kernel = kernel, .taps = taps_of(c), .rows = c->n,
              .short_of_memory = &short_of_memory };
    for (uint32_t i = 0; i < d; i++)
        j.rows *= c->out[i];
    if (!j.rows || !c->out[d])
        return true;
    j.lines = j.taps / c->ker[d];
    j.planes = planes_of(c->ker[d], c->step[d], c->spread[d]);
    int64_t width = width_of(c->block * c->co), blocks = (c->groups + c->block - 1) / c->block;
    int64_t halo = (c->ker[d] - 1) * c->spread[d] / c->step[d],
            room = LINES_BYTES / (int64_t)sizeof(float) / (j.lines * j.planes * c->ci * width) - halo;
    j.outs = least(most(room, NARROW), c->out[d]);
    j.parts = (c->out[d] + j.outs - 1) / j.outs;
    j.outs = (c->out[d] + j.parts - 1) / j.parts;
    j.parts = (c->out[d] + j.outs - 1) / j.outs;
    for (j.sum = SUM; (int64_t)(j.sum * j.sum) < j.taps * c->ci; )
        j.sum *= 2;
    j.kernel_block = j.taps * c->ci * line_of(width);
    for (int64_t i = 0; i < blocks; i++)
        kernel = lay_kernel(c, i * c->block, least(c->groups - i * c->block, c->block) * c->co, kernel);
    float none = 0;
    for (const float *k = j.kernel; k < kernel; k++)
        none += 0 * *k;
    j.finite = none == 0;
    int64_t work = j.outs * width * j.taps * c->ci, grain = most(CHUNK_PRODUCTS / work + 1, 2 * j.lines);
    xl_pool_for(pool, (size_t)(blocks * j.parts * j.rows), (size_t)grain, run_rows, &j);
    return !atomic_load(&short_of_memory);
}
