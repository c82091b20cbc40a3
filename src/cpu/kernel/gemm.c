/* The driver of the micro-kernels (gemm_set.h).
 *
 * C is cut into super-blocks of at most BLOCK x BLOCK, k into blocks of kc, and those into spans that fit in SPAN
 * bytes. For each span, all panels of A and B that the super-block needs are packed in parallel; then its tiles are
 * computed in parallel. A tile has about 128 x 252 elements: a panel of B stays in L1 for all its rows of A, which are
 * in L2. If there are only a few tiles for each of several threads, every thread packs what its own tile needs, some of
 * it more than once; that costs less than synchronizing and fetching what other threads have just written. A kernel
 * that multiplies any part of a tile directly from the operands (`part`) always works like this, with larger tiles, and
 * packs only what is used often: SUB_M rows of A at a time, and one panel of B while it multiplies by the previous one.
 * Sums to be rounded into a narrower C stay in the tile's thread if one span is enough.
 *
 * Problems too small to divide are distributed as a batch, each computed by one thread, or not distributed at all. A
 * matrix with at most 4 rows or columns is never packed: the other operand is read in place. The order of a sum depends
 * on shapes and strides. How C is cut into tiles and what is packed changes no sum, so the number of threads may decide
 * those.
 *
 * Sums over a long k are computed in groups of its blocks, each from zero, so that the rounding error grows with the
 * root of the number of blocks and of kc, not with k. */
#include "cpu/kernel/gemm.h"

#include <math.h>
#include <string.h>

#include "cpu/kernel/dtype.h"
#include "cpu/run/feature.h"
#include "cpu/kernel/fold.h"
#include "cpu/kernel/gemm_set.h"

enum {
    BLOCK = 2048,
    SKINNY = 4,
    SLAB = 32,
    SPAN = 16 << 20,
    OWN = 1 << 20,
    DIRECT_KC = 128,
    TINY_MN = 1024,  /* so few results: their sums are made of sums over so many */
    TINY_SIDE = 64,  /* and so few rows and columns */
    TINY_KC = 32,
    SHORT_MN = 4096, /* few results */
    SHORT_KC = 64,
    PART_KC = 50,    /* of the parts that the caller asks for, each is a sum over about so many, */
    PARTS_K = 32,    /* but of more than this there are two parts */
    GROUP = 8,
    DOT_KC = 4096,
    AXPY_KC = 256,
    LOCAL = 288, /* rows of a tile, at most */
    LONG = 512,  /* with `part`: steps of k that are packed in one go, at most, if a sum has fewer */
    SUB_M = 256,
    SUB_N = 240,   /* with `part`: rows of A packed at a time, a half of a small L2; columns finished at a time */
    SMALL_M = 128, /* rows that one thread multiplies without a tile of its own */
    AHEAD = 16,    /* so many steps of k of the next panel of B, or a multiple, are packed between two tiles */
    ASKS = 128,    /* lines that are asked for meanwhile, at most */
    SPLIT = 100,   /* rows that use a vector of B that lies in two lines, above which packing it is worth its cost */
    STEPS = 32,    /* the same of rows of B more than FETCHED bytes apart, which no prefetcher of L1 finds */
    FETCHED = 2048,
    RAW = 256      /* columns that use an element of A, or rows one of B, above which packing it is worth its cost */
};
#define SMALL 1e6   /* flops, of a kernel with speed 1: not worth waking anybody */
#define ALONE 32e6  /* flops: one member of a batch is shared only above this */

#if defined(__aarch64__)
extern const xl_gemm_kernel xl_gemm_neon_f32, xl_gemm_neon_f64, xl_gemm_neon_bf16;
#define ARCH_KERNELS &xl_gemm_neon_bf16, &xl_gemm_neon_f32, &xl_gemm_neon_f64,
#elif defined(__x86_64__)
extern const xl_gemm_kernel xl_gemm_amx_bf16, xl_gemm_avx512_bf16, xl_gemm_avx512_f32, xl_gemm_avx512_f64,
    xl_gemm_avx2_f32, xl_gemm_avx2_f64, xl_gemm_fma_f32, xl_gemm_fma_f64;
#define ARCH_KERNELS                                                                                                   \
    &xl_gemm_amx_bf16, &xl_gemm_avx512_bf16, &xl_gemm_avx512_f32, &xl_gemm_avx512_f64, &xl_gemm_avx2_f32,              \
        &xl_gemm_avx2_f64, &xl_gemm_fma_f32, &xl_gemm_fma_f64,
#else
#define ARCH_KERNELS
#endif
const xl_gemm_kernel *const xl_gemm_kernels[] = {
    ARCH_KERNELS &xl_gemm_generic_f32, &xl_gemm_generic_f64, &xl_gemm_generic_i32, NULL
};

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static const uint8_t type_size[XL_GEMM_TYPES] = { 4, 8, 2, 2, 1, 1, 4 };

static double padded(const xl_gemm_kernel *k, size_t m, size_t n)
{
    return (double)(ceil_div(m, k->mr) * k->mr) * (double)(ceil_div(n, k->nr) * k->nr);
}

static const xl_gemm_kernel *find(xl_gemm_type a, xl_gemm_type b, size_t m, size_t n)
{
    uint32_t have = xl_cpu_features();
    for (const xl_gemm_kernel *const *k = xl_gemm_kernels; *k; k++)
        if (((*k)->needs & ~have) == 0 && (*k)->pack_a[a] && (*k)->pack_b[b]) {
            const xl_gemm_kernel *alt = (*k)->alt;
            return alt && alt->pack_a[a] && alt->pack_b[b] && padded(alt, m, n) < 0.94 * padded(*k, m, n) ? alt : *k;
        }
    return NULL;
}

/* The kernel of plain f32, f64: what reads an unpacked matrix and rounds sums. */
static const xl_gemm_kernel *find_skinny(xl_gemm_type t)
{
    uint32_t have = xl_cpu_features();
    for (const xl_gemm_kernel *const *k = xl_gemm_kernels; *k; k++)
        if (((*k)->needs & ~have) == 0 && (*k)->axpy[t])
            return *k;
    return NULL;
}

const char *xl_gemm_kernel_name(xl_gemm_type a, xl_gemm_type b)
{
    const xl_gemm_kernel *k = find(a, b, 4096, 4096);
    return k ? k->name : "none";
}

typedef struct {
    const xl_gemm *g;
    const xl_gemm_kernel *kn;
    xl_gemm_type acc;                   /* the type of the sums */
    size_t acc_size;
    const char *a, *b;                  /* this batch member */
    char *c;
    size_t batch;
    size_t i0, j0, m, n;                /* this super-block */
    size_t p0, k, kc;                   /* this span of k, in blocks of kc */
    size_t park;                        /* steps of k in one sum, which then goes to C: a block's, or fewer */
    size_t mpad, npad;                  /* m and n up to whole panels */
    char *pa, *pb;                      /* block by block */
    char *sum;                          /* where the super-block's sums lie: in C, or apart */
    ptrdiff_t ldsum;
    char *total;                        /* with groups of blocks: what sum, a group's, is added to */
    ptrdiff_t ldtotal;
    bool first_group;
    size_t mt, nt, tiles_n;
    bool first, last, narrow;
    xl_gemm_round_fn *round;            /* where narrow */
    bool local;                         /* narrow, and the only span: sums stay with the thread */
    bool direct;                        /* B is read where it lies; without `part` the last panel is packed if cut */
    bool raw;                           /* A is read where it lies */
    bool stream;                        /* rows from pa0 on are packed in pa; B is packed as it is needed */
    size_t pa0;
} job;


static float load_narrow(const void *c, ptrdiff_t at, xl_gemm_type t)
{
    uint16_t v = ((const uint16_t *)c)[at];
    return t == XL_GEMM_BF16 ? xl_bf16_load(v) : xl_f16_load(v);
}

/* The sums of a tile are complete: epilogue, then rounding into C if that is narrower. */
static void finish(const job *w, char *tile, ptrdiff_t ld, size_t i0, size_t j0, size_t m, size_t n)
{
    const xl_gemm *g = w->g;
    if (g->epilogue)
        g->epilogue(g->ctx, tile, ld, w->batch, i0, j0, m, n);
    if (!w->narrow)
        return;
    for (size_t i = 0; i < m; i++) {
        uint16_t *y = (uint16_t *)w->c + (ptrdiff_t)(i0 + i) * g->c_row + (ptrdiff_t)j0;
        const float *x = (const float *)tile + (ptrdiff_t)i * ld;
        w->round(y, x, n);
    }
}

typedef struct { size_t p, k, kpad; } block; /* of k: where it begins in the span, its steps, those with the zeros */

static block block_of(const job *w, size_t i)
{
    block b = { .p = i * w->kc };
    b.k = min_size(w->kc, w->k - b.p);
    b.kpad = ceil_div(b.k, w->kn->kr) * w->kn->kr;
    return b;
}

/* Panels `begin` to `end` of one factor, one block of k. Along the rows of a matrix a panel takes a short piece of
 * each, and rows a power of two apart collide in the cache: a few steps of k are packed for all of the panels before
 * the next few. */
static void pack_factor(const job *w, block b, bool is_a, size_t begin, size_t end)
{
    const xl_gemm *g = w->g;
    const xl_gemm_kernel *kn = w->kn;
    xl_gemm_type t = is_a ? g->a_type : g->b_type;
    xl_gemm_pack_fn *pack = is_a ? kn->pack_a[t] : kn->pack_b[t];
    ptrdiff_t rs = is_a ? g->a_row : g->b_col, cs = is_a ? g->a_col : g->b_row;
    size_t r = is_a ? kn->mr : kn->nr, all = is_a ? w->m : w->n;
    bool cut = !is_a && w->direct;              /* only the last panel, which is cut */
    const char *from = (is_a ? w->a : w->b) +
                       ((ptrdiff_t)(is_a ? w->i0 : w->j0) * rs + (ptrdiff_t)(w->p0 + b.p) * cs) * type_size[t];
    char *to = is_a ? w->pa + b.p * w->mpad * kn->size : w->pb + (cut ? b.p * r : b.p * w->npad) * kn->size;
    size_t slab = rs == 1 && b.k > SLAB ? SLAB : b.k;
    for (size_t p = 0; p < b.k; p += slab) {
        size_t k = min_size(slab, b.k - p), kpad = p + k == b.k ? b.kpad - p : k;
        for (size_t i = begin; i < end; i++) {
            size_t at = cut ? all / r * r : i * r;
            size_t put = cut ? 0 : is_a ? at - w->pa0 : at;
            pack(to + (put * b.kpad + p * r) * kn->size,
                 from + ((ptrdiff_t)at * rs + (ptrdiff_t)p * cs) * type_size[t], rs, cs, min_size(r, all - at), k,
                 kpad);
        }
    }
}

static size_t a_panels(const job *w) { return w->raw ? 0 : ceil_div(w->m, w->kn->mr); }

static size_t panels_of(const job *w)
{
    size_t nr = w->kn->nr;
    return a_panels(w) + (!w->direct ? ceil_div(w->n, nr) : w->kn->part ? 0 : w->n % nr != 0);
}

static void pack_panels(void *ctx, size_t begin, size_t end)
{
    const job *w = ctx;
    size_t na = a_panels(w), panels = panels_of(w);
    while (begin < end) {
        size_t i = begin / panels, from = begin % panels, to = min_size(panels, from + end - begin);
        if (from < na)
            pack_factor(w, block_of(w, i), true, from, min_size(to, na));
        if (to > na)
            pack_factor(w, block_of(w, i), false, from < na ? 0 : from - na, to - na);
        begin += to - from;
    }
}

/* Columns of the next panel when `left` are. Of a B that is read where it lies, or packed panel by panel, the last two
 * share what would leave one of them a third or less, with which its tiles would wait for each other's sums. Their
 * places in a packed B are as wide as all others. */
static size_t panel_cols(const job *w, size_t left)
{
    size_t nr = w->kn->nr;
    bool share = w->kn->part && (w->stream || w->direct) && left > nr && left <= nr + nr / 3;
    return share ? nr - nr / 3 : min_size(nr, left);
}

static size_t panel_place(const xl_gemm_kernel *kn, size_t col) { return ceil_div(col, kn->nr) * kn->nr; }

/* While a panel of B is multiplied by the first rows of A, the next one is packed, some steps of k between two tiles,
 * whose lines were asked for one tile earlier: so the memory that B comes from is never waited for. With later rows the
 * packed panel is brought near. */
typedef struct {
    const char *from;                   /* NULL: it is packed */
    char *to;
    size_t cols, left;                  /* the panel's columns; its steps of k that are left */
    size_t steps;                       /* between two tiles */
    size_t lines;                       /* in the list: of each step, if its columns lie side by side, or of all */
    ptrdiff_t list[ASKS];
} ahead;

/* The panel at column `at`, while `tiles` tiles are made. */
static void start_ahead(const job *w, block b, size_t i0, size_t at, size_t tiles, ahead *next)
{
    const xl_gemm *g = w->g;
    size_t size = type_size[g->b_type], nr = w->kn->nr;
    next->left = 0;
    if (!w->stream || w->direct || at >= w->n)
        return;
    next->cols = panel_cols(w, w->n - at), next->left = b.k;
    next->steps = ceil_div(ceil_div(b.k, tiles), AHEAD) * AHEAD;
    next->to = w->pb + (b.p * w->npad + panel_place(w->kn, at) * b.kpad) * w->kn->size;
    next->from = i0 ? NULL
                    : w->b + ((ptrdiff_t)(w->j0 + at) * g->b_col + (ptrdiff_t)(w->p0 + b.p) * g->b_row) *
                          (ptrdiff_t)size;
    bool along = g->b_col == 1;
    size_t bytes = i0 ? next->steps * nr * w->kn->size : (along ? next->cols : next->steps) * size;
    ptrdiff_t step = i0 ? 0 : (along ? g->b_row : g->b_col) * (ptrdiff_t)size;
    size_t off = step & 63 ? 63 : (uintptr_t)next->from & 63, rows = i0 ? 1 : along ? next->steps : next->cols;
    next->lines = ceil_div(off + bytes, 64);
    for (size_t r = 0, n = 0; r < rows; r++)
        for (size_t l = 0; l < next->lines && n < ASKS; l++)
            next->list[n++] = (ptrdiff_t)r * step + (ptrdiff_t)l * 64;
    if (i0 || !along)
        next->lines *= rows;
}

/* Between two tiles: packs some steps, or all that are `rest`. What the tile that follows has to ask for is in *ask. */
static void pack_ahead(const job *w, ahead *next, bool rest, xl_gemm_ask *ask)
{
    const xl_gemm *g = w->g;
    const xl_gemm_kernel *kn = w->kn;
    size_t k = rest ? next->left : min_size(next->steps, next->left);
    *ask = (xl_gemm_ask){ 0 };
    if (k == 0)
        return;
    next->left -= k;
    if (next->from) {
        kn->pack_b[g->b_type](next->to, next->from, g->b_col, g->b_row, next->cols, k,
                              next->left ? k : ceil_div(k, kn->kr) * kn->kr);
        next->from += (ptrdiff_t)k * g->b_row * (ptrdiff_t)type_size[g->b_type];
        ask->at = (const char *)((uintptr_t)next->from & ~(uintptr_t)63);
        ask->count = g->b_col == 1 ? min_size(next->steps, next->left) * next->lines : next->left ? next->lines : 0;
    } else {
        ask->at = next->to;
        ask->count = rest ? 0 : next->lines;
    }
    next->to += k * kn->nr * kn->size;
    ask->list = next->list;
    ask->count = min_size(ask->count, ASKS);
    if (w->raw) {                               /* the tiles have no time for it: bring them near at once */
        for (size_t l = 0; l < ask->count; l++)
            __builtin_prefetch(ask->at + ask->list[l]);
        ask->count = 0;
    }
}

static void add_edge(xl_gemm_type t, void *c, const void *x, size_t n, bool accumulate)
{
    if (!accumulate)
        memcpy(c, x, n * type_size[t]);
    else if (t == XL_GEMM_F64)
        for (size_t j = 0; j < n; j++)
            ((double *)c)[j] += ((const double *)x)[j];
    else if (t == XL_GEMM_F32)
        for (size_t j = 0; j < n; j++)
            ((float *)c)[j] += ((const float *)x)[j];
    else
        for (size_t j = 0; j < n; j++)
            ((uint32_t *)c)[j] += ((const uint32_t *)x)[j];
}

/* Tile (i0, j0) of the super-block, m x n. */
static void compute_tile(const job *w, size_t i0, size_t j0, size_t m, size_t n)
{
    const xl_gemm *g = w->g;
    const xl_gemm_kernel *kn = w->kn;
    _Alignas(64) char edge[32 * 32 * 4], local[LOCAL * 48 * 4];
    char *out = w->sum + ((ptrdiff_t)i0 * w->ldsum + (ptrdiff_t)j0) * (ptrdiff_t)w->acc_size;
    size_t blocks = ceil_div(w->k, w->kc);
    for (size_t j = 0, cols; j < n; j += cols) {
        cols = panel_cols(w, n - j);
        char *sums = w->local ? local : out + j * w->acc_size;
        ptrdiff_t ld = w->local ? kn->nr : w->ldsum;
        bool preload = w->first && w->narrow && g->accumulate && !w->total;
        if (preload)
            for (size_t i = 0; i < m; i++)
                for (size_t q = 0; q < cols; q++)
                    ((float *)sums)[(ptrdiff_t)i * ld + (ptrdiff_t)q] = load_narrow(
                        w->c, (ptrdiff_t)(w->i0 + i0 + i) * g->c_row + (ptrdiff_t)(w->j0 + j0 + j + q), g->c_type);
        for (size_t x = 0; x < blocks; x++) {
            block b = block_of(w, x);
            bool accumulate = x || !w->first || preload || (g->accumulate && !w->narrow && !w->total);
            bool direct = w->direct && (kn->part || cols == kn->nr);
            const char *pb = direct ? w->b + ((ptrdiff_t)(w->p0 + b.p) * g->b_row +
                                              (ptrdiff_t)(w->j0 + j0 + j) * g->b_col) * kn->size
                                    : w->pb + (w->direct ? b.p * kn->nr
                                                  : b.p * w->npad + panel_place(kn, j0 + j) * b.kpad) * kn->size;
            ahead next;
            start_ahead(w, b, i0, j0 + j + cols, ceil_div(m, kn->mr), &next);
            for (size_t i = 0; i < m; i += kn->mr) {
                xl_gemm_ask ask;
                pack_ahead(w, &next, i + kn->mr >= m, &ask);
                const char *pa = w->raw ? w->a + ((ptrdiff_t)(w->i0 + i0 + i) * g->a_row +
                                                  (ptrdiff_t)(w->p0 + b.p) * g->a_col) * kn->size
                                        : w->pa + (b.p * w->mpad + (i0 - w->pa0 + i) * b.kpad) * kn->size;
                char *c = sums + (ptrdiff_t)i * ld * (ptrdiff_t)w->acc_size;
                ptrdiff_t ak = w->raw ? g->a_col : kn->mr, bk = direct ? g->b_row : kn->nr;
                size_t rows = min_size(kn->mr, m - i), k;
                if (kn->part) {
                    kn->part(b.k, w->park, pa, w->raw ? g->a_row : 1, ak, pb, bk, direct && i == 0, c, ld, rows, cols,
                             accumulate, &ask);
                    continue;
                }
                bool whole = w->local || (i + kn->mr <= m && cols == kn->nr);
                char *to = whole ? c : edge;
                ptrdiff_t ldto = whole ? ld : kn->nr;
                for (size_t q = 0; q < b.k; q += k) {
                    const char *qa = pa + (ptrdiff_t)q * ak * kn->size, *qb = pb + (ptrdiff_t)q * bk * kn->size;
                    bool add = accumulate || q;
                    k = min_size(w->park, b.k - q);
                    if (direct)
                        kn->direct(k, qa, qb, g->b_row, to, ldto, add && whole);
                    else
                        kn->tile(q + k == b.k ? b.kpad - q : k, qa, qb, to, ldto, add && whole);
                    for (size_t r = 0; !whole && r < rows; r++)
                        add_edge(w->acc, c + (ptrdiff_t)r * ld * (ptrdiff_t)w->acc_size,
                                 edge + r * kn->nr * w->acc_size, cols, add);
                }
            }
        }
        if (w->local)
            finish(w, local, ld, w->i0 + i0, w->j0 + j0 + j, m, cols);
    }
    if (w->last && !w->local && !w->total)
        finish(w, out, w->ldsum, w->i0 + i0, w->j0 + j0, m, n);
}

/* A task's tile: with `part` in pieces whose A and sums stay in L2. */
static void compute_task(job *w, size_t i0, size_t j0, size_t m, size_t n)
{
    const xl_gemm_kernel *kn = w->kn;
    size_t most = w->local ? SMALL_M : SUB_M;
    size_t sub_m = kn->part ? ceil_div(ceil_div(m, ceil_div(m, most)), kn->mr) * kn->mr : m,
           sub_n = kn->part ? SUB_N : n;
    if (w->stream && !w->direct)
        pack_factor(w, block_of(w, 0), false, 0, 1);
    for (size_t i = 0; i < m; i += sub_m) {
        size_t rows = min_size(sub_m, m - i);
        if (w->stream && !w->raw) {
            w->pa0 = i;
            pack_factor(w, block_of(w, 0), true, i / kn->mr, ceil_div(i + rows, kn->mr));
        }
        for (size_t j = 0, cols; j < n; j += cols) {
            cols = n - j < sub_n + 2u * kn->nr ? n - j : sub_n;
            compute_tile(w, i0 + i, j0 + j, rows, cols);
        }
    }
}

static void compute_tiles(void *ctx, size_t begin, size_t end)
{
    job own = *(const job *)ctx, *w = &own;
    if (w->kn->enter)
        w->kn->enter();
    for (size_t t = begin; t < end; t++) {
        size_t i0 = t / w->tiles_n * w->mt, j0 = t % w->tiles_n * w->nt;
        compute_task(w, i0, j0, min_size(w->mt, w->m - i0), min_size(w->nt, w->n - j0));
    }
    if (w->kn->leave)
        w->kn->leave();
}

/* Rows of a group's sums go to the others. */
static void add_group(void *ctx, size_t begin, size_t end)
{
    const job *w = ctx;
    for (size_t i = begin; i < end; i++) {
        char *to = w->total + (ptrdiff_t)i * w->ldtotal * (ptrdiff_t)w->acc_size;
        char *from = w->sum + (ptrdiff_t)i * w->ldsum * (ptrdiff_t)w->acc_size;
        if (w->first_group && w->narrow && w->g->accumulate)
            for (size_t j = 0; j < w->n; j++)
                ((float *)to)[j] =
                    load_narrow(w->c, (ptrdiff_t)(w->i0 + i) * w->g->c_row + (ptrdiff_t)(w->j0 + j), w->g->c_type) +
                    ((const float *)from)[j];
        else
            add_edge(w->acc, to, from, w->n, !w->first_group || w->g->accumulate);
        if (w->last)
            finish(w, to, w->ldtotal, w->i0 + i, w->j0, 1, w->n);
    }
}

/* The largest tiles, or those with which the last thread is done first: none below what pays for a task. Threads are
 * not equally fast: where each packs for itself, up to half a tile is what the last of many takes longer, and smaller
 * tiles leave more for the others to take; two threads have too much to pack twice for that. To pack an element costs
 * as much as some products, more where it comes from far, and little if both factors are read where they lie. */
static void choose_tile(job *w, size_t threads)
{
    bool own = w->kn->part, small = own && w->m <= RAW && w->n <= RAW;
    size_t more = own ? 16 : 8;
    double each = 1 / (double)threads, tail = small ? 0.25 - 0.25 * each : own ? 0.5 - each : 0;
    double pack = small ? 4 : own ? 20 : 10, least_flops = (small ? SMALL / 4 : SMALL / 2) * w->kn->speed;
    size_t mr = w->kn->mr, nr = w->kn->nr, mp = w->mpad / mr, np = w->npad / nr;
    size_t rows = ceil_div(mp, ceil_div(w->kn->tile_m, mr)), cols = ceil_div(np, w->kn->tile_n / nr);
    size_t best_m = ceil_div(mp, rows), best_n = ceil_div(np, cols);
    double least = 0;
    for (size_t tm = rows; threads > 1 && tm < rows + more; tm++)
        for (size_t tn = cols; tn < cols + more; tn++) {
            size_t pm = ceil_div(mp, tm), pn = ceil_div(np, tn), tiles = ceil_div(mp, pm) * ceil_div(np, pn);
            double m = (double)(pm * mr), n = (double)(pn * nr);
            double cost = ((double)ceil_div(tiles, threads) + tail) * (m * n + pack * (m + n));
            if (tiles > 1 && 2 * m * n * (double)w->k < least_flops)
                break;
            if (least == 0 || cost < least)
                least = cost, best_m = pm, best_n = pn;
        }
    w->mt = best_m * mr;
    w->nt = best_n * nr;
    w->tiles_n = ceil_div(w->n, w->nt);
}

/* Without memory to pack into, m x n of C: one dot product after another. */
static void plain(const job *w, size_t i0, size_t j0, size_t m, size_t n)
{
    const xl_gemm *g = w->g;
    const xl_gemm_kernel *kn = w->kn;
    union { float f; double d; uint32_t u; uint16_t h; } x, y;
    for (size_t i = i0; i < i0 + m; i++)
        for (size_t j = j0; j < j0 + n; j++) {
            float f = 0;
            double d = 0;
            uint32_t u = 0;
            for (size_t p = 0; p < g->k; p++) {
                char pa[32 * 8 * 8], pb[32 * 8 * 8];
                kn->pack_a[g->a_type](pa,
                                      w->a + ((ptrdiff_t)i * g->a_row + (ptrdiff_t)p * g->a_col) * type_size[g->a_type],
                                      0, 0, 1, 1, kn->kr);
                kn->pack_b[g->b_type](pb,
                                      w->b + ((ptrdiff_t)p * g->b_row + (ptrdiff_t)j * g->b_col) * type_size[g->b_type],
                                      0, 0, 1, 1, kn->kr);
                memcpy(&x, pa, kn->size);
                memcpy(&y, pb, kn->size);
                if (kn->packed == XL_GEMM_F64)
                    d += x.d * y.d;
                else if (kn->packed == XL_GEMM_F32)
                    f += x.f * y.f;
                else if (kn->packed == XL_GEMM_BF16)
                    f += xl_bf16_load(x.h) * xl_bf16_load(y.h);
                else
                    u += x.u * y.u;
            }
            char *c = w->c + ((ptrdiff_t)i * g->c_row + (ptrdiff_t)j) * type_size[g->c_type];
            if (g->accumulate && w->narrow)
                f += load_narrow(c, 0, g->c_type);
            const void *sum = w->acc == XL_GEMM_F64   ? (const void *)&d
                              : w->acc == XL_GEMM_F32 ? (const void *)&f
                                                      : (const void *)&u;
            char one[8];
            memcpy(one, sum, w->acc_size);
            if (!w->narrow) {
                add_edge(w->acc, c, sum, 1, g->accumulate);
                finish(w, c, g->c_row, i, j, 1, 1);
            } else {
                finish(w, one, 1, i, j, 1, 1);
            }
        }
}

/* Sums that lie in memory already (k = 0 adds nothing), then the epilogue. */
static void empty_k(job *w)
{
    const xl_gemm *g = w->g;
    float row[256];
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j += 256) {
            size_t n = min_size(256, g->n - j);
            char *c = w->c + ((ptrdiff_t)i * g->c_row + (ptrdiff_t)j) * type_size[g->c_type];
            if (w->narrow)
                for (size_t q = 0; q < n; q++)
                    row[q] = g->accumulate ? load_narrow(c, (ptrdiff_t)q, g->c_type) : 0;
            else if (!g->accumulate)
                memset(c, 0, n * w->acc_size);
            finish(w, w->narrow ? (char *)row : c, 0, i, j, 1, n);
        }
}

/* Whether a factor of a tile is read where it lies: `used` times each element, so that packing costs more than it
 * saves. Rows a multiple of a page apart have few places in the cache, of many rows those a multiple of half a kilobyte
 * apart too, and vectors of B that begin anywhere lie in two lines each (NumPy's arrays begin at a multiple of 16
 * bytes). */
static bool in_place(const job *w, bool is_a, size_t used)
{
    const xl_gemm *g = w->g;
    ptrdiff_t rs = is_a ? g->a_row : g->b_col, cs = is_a ? g->a_col : g->b_row, far = rs == 1 ? cs : rs;
    if (!w->kn->part || (is_a ? g->a_type : g->b_type) != w->kn->packed || (rs != 1 && (cs != 1 || !is_a)))
        return false;
    if (!is_a && used > STEPS && far * w->kn->size > FETCHED)
        return false;
    if (!is_a && used > SPLIT && (((uintptr_t)w->b | (uintptr_t)far * w->kn->size) & 63))
        return false;
    return used <= (far % 1024 == 0 ? RAW / 4 : far % 128 == 0 && g->k > RAW ? RAW / 2 : RAW);
}

/* Steps of k that are packed in one go: as many sums as fit, so that C is fetched seldom. */
static size_t long_block(size_t k, size_t sum)
{
    size_t sums = ceil_div(k, sum), most = sum < LONG ? LONG / sum : 1;
    return sum * ceil_div(sums, ceil_div(sums, most));
}

/* Tiles of which each thread packs its own factors, block by block of k; the whole of k if sums are `local`. */
static void own_tiles(void *ctx, size_t begin, size_t end)
{
    const job *w = ctx;
    const xl_gemm *g = w->g;
    const xl_gemm_kernel *kn = w->kn;
    bool stream = kn->part && !w->local;
    size_t kc = stream ? long_block(g->k, w->kc) : w->kc, step = w->local ? w->k : kc,
           kpad = ceil_div(step, kn->kr) * kn->kr;
    for (size_t t = begin; t < end; t++) {
        size_t i0 = t / w->tiles_n * w->mt, j0 = t % w->tiles_n * w->nt;
        job own = *w;
        own.i0 += i0, own.j0 += j0;
        own.kc = kc;
        own.m = min_size(w->mt, w->m - i0), own.n = min_size(w->nt, w->n - j0);
        own.mpad = ceil_div(own.m, kn->mr) * kn->mr, own.npad = ceil_div(own.n, kn->nr) * kn->nr;
        if (!w->narrow)
            own.sum += ((ptrdiff_t)i0 * w->ldsum + (ptrdiff_t)j0) * (ptrdiff_t)w->acc_size;
        own.raw = in_place(w, true, own.n), own.direct = w->direct || in_place(w, false, own.m);
        own.stream = stream;
        /* one piece, so that one large page has both */
        size_t a_rows = own.stream ? min_size(SUB_M, w->mt) : w->mt;
        size_t a_bytes = own.raw ? 0 : a_rows * kpad * kn->size, b_bytes = own.direct ? 0 : w->nt * kpad * kn->size;
        own.pa = a_bytes + b_bytes ? xl_scratch(XL_SCRATCH_GEMM_A, a_bytes + b_bytes) : NULL;
        own.pb = own.pa ? own.pa + a_bytes : NULL;
        if (a_bytes + b_bytes && !own.pa) {
            plain(&own, own.i0, own.j0, own.m, own.n);
            continue;
        }
        if (kn->enter)
            kn->enter();
        for (own.p0 = 0; own.p0 < g->k; own.p0 += own.k) {
            own.k = min_size(step, g->k - own.p0);
            own.first = own.p0 == 0;
            own.last = own.p0 + own.k >= g->k;
            if (!own.stream)
                pack_panels(&own, 0, panels_of(&own) * ceil_div(own.k, kc));
            compute_task(&own, 0, 0, own.m, own.n);
        }
        if (kn->leave)
            kn->leave();
    }
}

/* False where sharing panels costs less: many tiles would pack the same rows, and a long k would not fit the cache. */
static bool run_own(xl_pool *pool, job *w, size_t group)
{
    const xl_gemm *g = w->g;
    w->m = g->m, w->n = g->n, w->k = g->k;
    w->mpad = ceil_div(w->m, w->kn->mr) * w->kn->mr;
    w->npad = ceil_div(w->n, w->kn->nr) * w->kn->nr;
    w->local = w->narrow;
    choose_tile(w, xl_pool_size(pool));
    size_t tiles = ceil_div(w->m, w->mt) * ceil_div(w->n, w->nt);
    if (group || (!w->kn->part && tiles > 2 * xl_pool_size(pool)) ||
        (w->local && (w->mt + w->nt) * w->k * w->kn->size > OWN))
        return false;
    w->sum = w->c;
    w->ldsum = w->narrow ? 0 : g->c_row;
    xl_pool_for(pool, tiles, 1, own_tiles, w);
    return true;
}

/* At least so many sums make one: more of them where there are few results, which costs little, or the caller asks. */
static size_t least_parts(const job *w)
{
    const xl_gemm *g = w->g;
    size_t count = g->m * g->n, few = 1;
    size_t parts = min_size(g->parts, g->k <= PARTS_K ? 1 : g->k <= PART_KC ? 2 : ceil_div(g->k, PART_KC));
    if (w->kn->packed != XL_GEMM_F32)
        return 1;
    if (count <= TINY_MN && g->m <= TINY_SIDE && g->n <= TINY_SIDE)
        few = min_size(ceil_div(g->k, TINY_KC), GROUP);
    else if (count <= SHORT_MN && g->k > SHORT_KC)
        few = min_size(g->k / SHORT_KC, GROUP);
    return few > parts ? few : parts > 1 ? parts : 1;
}

/* One thread, few blocks of k, nothing to pack: parts of tiles straight from the factors. */
static bool run_small(const job *w, size_t kblocks)
{
    const xl_gemm *g = w->g;
    const xl_gemm_kernel *kn = w->kn;
    if (!kn->part || w->narrow || kblocks > least_parts(w) || g->m > SMALL_M || g->n > SUB_N ||
        !in_place(w, true, g->n) || !(w->direct || in_place(w, false, g->m)))
        return false;
    job all = *w;
    all.direct = true;
    for (size_t j = 0, cols; j < g->n; j += cols) {
        cols = panel_cols(&all, g->n - j);
        for (size_t i = 0; i < g->m; i += kn->mr)
            kn->part(g->k, w->park, w->a + (ptrdiff_t)i * g->a_row * (ptrdiff_t)kn->size, g->a_row, g->a_col,
                     w->b + j * kn->size, g->b_row, i == 0 && g->nbatch,
                     w->c + ((ptrdiff_t)i * g->c_row + (ptrdiff_t)j) * (ptrdiff_t)w->acc_size, g->c_row,
                     min_size(kn->mr, g->m - i), cols, g->accumulate, NULL);
    }
    finish(w, w->c, g->c_row, 0, 0, g->m, g->n);
    return true;
}

static void run_packed(xl_pool *pool, job *w)
{
    const xl_gemm *g = w->g;
    const xl_gemm_kernel *kn = w->kn;
    /* packing B pays if its elements are used often; a small one stays in L1 anyway, if its rows do not
     * collide there */
    w->direct = (kn->direct || kn->part) && g->b_type == kn->packed && g->b_col == 1 &&
                (g->m <= 4u * kn->mr || (g->k <= 64 && g->n <= 512 && g->k * g->n * kn->size <= 32768));
    size_t kblocks = ceil_div(g->k, w->direct ? DIRECT_KC : kn->kc);
    size_t each = ceil_div(least_parts(w), kblocks);            /* parts of a block */
    w->park = ceil_div(ceil_div(g->k, kblocks * each), kn->kr) * kn->kr;
    w->kc = each * w->park;
    size_t mb = min_size(g->m, BLOCK), nb = min_size(g->n, BLOCK);
    if (2.0 * (double)g->m * (double)g->n * (double)g->k < SMALL * kn->speed)
        pool = NULL;
    if (xl_pool_size(pool) == 1 && run_small(w, kblocks))
        return;
    size_t group = kblocks > GROUP && w->acc != XL_GEMM_I32 ? (size_t)ceil(sqrt((double)kblocks)) : 0;
    if (kn->own && (kn->part || xl_pool_size(pool) > 1) && run_own(pool, w, group))
        return;
    size_t mpad = ceil_div(mb, kn->mr) * kn->mr, npad = w->direct ? kn->nr : ceil_div(nb, kn->nr) * kn->nr;
    size_t span = min_size(group ? group : kblocks, 1 + SPAN / ((mpad + npad) * w->kc * kn->size)) * w->kc;
    w->local = w->narrow && span >= g->k;
    w->pa = xl_scratch(XL_SCRATCH_GEMM_A, mpad * span * kn->size);
    w->pb = xl_scratch(XL_SCRATCH_GEMM_B, npad * span * kn->size);
    char *apart = w->narrow && !w->local ? xl_scratch(XL_SCRATCH_GEMM_C, mb * nb * w->acc_size) : NULL;
    char *group_sum = group ? xl_scratch(XL_SCRATCH_GEMM_SUM, mb * nb * w->acc_size) : NULL;
    if (!w->pa || !w->pb || (w->narrow && !w->local && !apart) || (group && !group_sum)) {
        plain(w, 0, 0, g->m, g->n);
        return;
    }
    for (w->j0 = 0; w->j0 < g->n; w->j0 += nb)
        for (w->i0 = 0; w->i0 < g->m; w->i0 += mb) {
            w->m = min_size(mb, g->m - w->i0);
            w->n = min_size(nb, g->n - w->j0);
            w->mpad = ceil_div(w->m, kn->mr) * kn->mr;
            w->npad = ceil_div(w->n, kn->nr) * kn->nr;
            w->sum =
                w->narrow ? apart : w->c + ((ptrdiff_t)w->i0 * g->c_row + (ptrdiff_t)w->j0) * (ptrdiff_t)w->acc_size;
            w->ldsum = w->narrow ? (ptrdiff_t)w->n : g->c_row;
            if (group) {
                w->total = w->sum, w->ldtotal = w->ldsum;
                w->sum = group_sum, w->ldsum = (ptrdiff_t)w->n;
            }
            size_t in_group = 0;
            for (w->p0 = 0; w->p0 < g->k; w->p0 += w->k) {
                w->k = min_size(span, g->k - w->p0);
                if (group)                              /* spans end where groups do */
                    w->k = min_size(w->k, group * w->kc - in_group);
                w->first = group ? in_group == 0 : w->p0 == 0;
                w->last = w->p0 + w->k >= g->k;
                in_group += w->k;
                choose_tile(w, xl_pool_size(pool));
                size_t all = panels_of(w) * ceil_div(w->k, w->kc), grain = ceil_div(32768, w->kc * kn->size * kn->nr);
                xl_pool_for(pool, all, grain, pack_panels, w);
                xl_pool_for(pool, ceil_div(w->m, w->mt) * w->tiles_n, 1, compute_tiles, w);
                if (group && (w->last || in_group >= group * w->kc)) {
                    w->first_group = w->p0 + w->k <= group * w->kc;
                    xl_pool_for(pool, w->m, 1 + 16384 / (w->n + 1), add_group, w);
                    in_group = 0;
                }
            }
        }
}

/* m or n at most SKINNY: `s` is the small factor, `big` the other, read in place; dots if big is contiguous along k. */
typedef struct {
    job *w;
    bool rows;                  /* m is the small one */
    size_t count, len;          /* the small and the large extent */
    const char *big;
    xl_gemm_type big_type;
    ptrdiff_t step;
    bool dots;
    const xl_gemm_kernel *kn;
    char *x;                    /* the small factor: [k][4] for axpy, [count][k] for dots */
    xl_ew add;
} skinny;

static void skinny_chunk(void *ctx, size_t begin, size_t end)
{
    skinny *s = ctx;
    job *w = s->w;
    const xl_gemm *g = w->g;
    size_t n = end - begin, size = w->acc_size, step = type_size[s->big_type];
    _Alignas(64) char first[SKINNY * 256 * 8];               /* or one row of 1024 */
    size_t block = s->dots ? DOT_KC : AXPY_KC, stride = s->count * n * size;
    char *levels = g->k > block ? xl_scratch(XL_SCRATCH_SKINNY, XL_CASCADE_LEVELS * sizeof first) : NULL, *y = first;
    if (!levels)                                             /* without memory in one go, less exactly */
        block = g->k;
    for (size_t p = 0, i = 0; p < g->k; p += block, i++) {
        size_t k = min_size(block, g->k - p);
        if (s->dots) {
            const char *mat = s->big + ((ptrdiff_t)begin * s->step + (ptrdiff_t)p) * (ptrdiff_t)step;
            for (size_t c = 0; c < s->count; c++)
                s->kn->dot[s->big_type](k, n, s->x + (c * g->k + p) * size, mat, s->step, first + c * n * size);
        } else {
            s->kn->axpy[s->big_type](k, n, s->count, s->x + p * 4 * size,
                                     s->big + ((ptrdiff_t)begin + (ptrdiff_t)p * s->step) * (ptrdiff_t)step, s->step,
                                     first, (ptrdiff_t)n);
        }
        if (levels)
            xl_cascade_row(&s->add, size, levels, stride, i, first, s->count * n);
    }
    if (levels)
        y = xl_cascade_end(&s->add, levels, stride, ceil_div(g->k, block), s->count * n);
    size_t m = s->rows ? s->count : n, cols = s->rows ? n : s->count, i0 = s->rows ? 0 : begin,
           j0 = s->rows ? begin : 0;
    _Alignas(64) char turned[SKINNY * 256 * 8];
    char *tile = y;
    if (!s->rows && s->count > 1) {
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < s->count; c++)
                memcpy(turned + (i * s->count + c) * size, y + (c * n + i) * size, size);
        tile = turned;
    }
    for (size_t i = 0; i < m; i++) {
        ptrdiff_t at = (ptrdiff_t)(i0 + i) * g->c_row + (ptrdiff_t)j0;
        if (!w->narrow)
            add_edge(w->acc, w->c + at * (ptrdiff_t)size, tile + i * cols * size, cols, g->accumulate);
        else if (g->accumulate)
            for (size_t j = 0; j < cols; j++)
                ((float *)tile)[i * cols + j] += load_narrow(w->c, at + (ptrdiff_t)j, g->c_type);
    }
    if (w->narrow)
        finish(w, tile, (ptrdiff_t)cols, i0, j0, m, cols);
    else
        finish(w, w->c + ((ptrdiff_t)i0 * g->c_row + (ptrdiff_t)j0) * (ptrdiff_t)size, g->c_row, i0, j0, m, cols);
}

static void spread(void *dst, const char *src, xl_gemm_type t, ptrdiff_t step, size_t k, size_t stride)
{
    for (size_t p = 0; p < k; p++) {
        const char *v = src + (ptrdiff_t)p * step * type_size[t];
        if (t == XL_GEMM_F64)
            ((double *)dst)[p * stride] = *(const double *)v;
        else
            ((float *)dst)[p * stride] = t == XL_GEMM_F32 ? *(const float *)v : load_narrow(v, 0, t);
    }
}

static bool run_skinny(xl_pool *pool, job *w)
{
    const xl_gemm *g = w->g;
    skinny s = { .w = w };
    if (g->m <= SKINNY && (g->b_col == 1 || g->b_row == 1)) {
        s = (skinny){ .w = w, .rows = true, .count = g->m, .len = g->n, .big = w->b, .big_type = g->b_type,
                      .dots = g->b_row == 1 && g->b_col != 1, .step = g->b_col == 1 ? g->b_row : g->b_col };
    } else if (g->n <= SKINNY && (g->a_row == 1 || g->a_col == 1)) {
        s = (skinny){ .w = w, .rows = false, .count = g->n, .len = g->m, .big = w->a, .big_type = g->a_type,
                      .dots = g->a_col == 1, .step = g->a_col == 1 ? g->a_row : g->a_col };
    } else {
        return false;
    }
    s.kn = find_skinny(s.big_type);
    if (!s.kn)
        return false;
    s.add.fn = w->acc == XL_GEMM_F64 ? xl_ew_f64(XL_OP_ADD) : xl_ew_f32(XL_OP_ADD);
    s.x = xl_scratch(XL_SCRATCH_GEMM_A, g->k * SKINNY * w->acc_size);
    if (!s.x)
        return false;
    for (size_t c = 0; c < s.count; c++) {
        const char *src = s.rows ? w->a + (ptrdiff_t)c * g->a_row * type_size[g->a_type]
                                 : w->b + (ptrdiff_t)c * g->b_col * type_size[g->b_type];
        spread(s.x + c * w->acc_size * (s.dots ? g->k : 1), src, s.rows ? g->a_type : g->b_type,
               s.rows ? g->a_col : g->b_row, g->k, s.dots ? 1 : 4);
    }
    if (2.0 * (double)g->k * (double)s.len * (double)s.count < SMALL / 4)
        pool = NULL;
    /* a single row wants long pieces; how long changes no sum, so here the number of threads may decide */
    size_t chunk = s.dots ? 64 : s.count > 1 ? 256 : xl_pool_size(pool) == 1 ? 1024 : 512;
    xl_pool_for(pool, s.len, chunk, skinny_chunk, &s);
    return true;
}

static void run_one(xl_pool *pool, const xl_gemm *g, const xl_gemm_kernel *kn, size_t batch)
{
    job w = { .g = g, .kn = kn, .a = g->a, .b = g->b, .c = g->c, .batch = batch };
    w.acc = kn->packed == XL_GEMM_BF16 ? XL_GEMM_F32 : kn->packed;
    w.acc_size = type_size[w.acc];
    w.narrow = g->c_type != w.acc;
    if (w.narrow)
        w.round = find_skinny(g->c_type)->round[g->c_type];
    size_t rest = batch;
    for (size_t d = g->nbatch; d-- > 0; ) {
        ptrdiff_t at = (ptrdiff_t)(rest % g->batch[d]);
        rest /= g->batch[d];
        w.a += at * g->a_batch[d] * type_size[g->a_type];
        w.b += at * g->b_batch[d] * type_size[g->b_type];
        w.c += at * g->c_batch[d] * type_size[g->c_type];
    }
    if (g->m == 0 || g->n == 0)
        return;
    if (g->k == 0)
        empty_k(&w);
    else if ((g->m > SKINNY && g->n > SKINNY) || !run_skinny(pool, &w))
        run_packed(pool, &w);
}

typedef struct { const xl_gemm *g; const xl_gemm_kernel *kn; } batch_job;

static void run_members(void *ctx, size_t begin, size_t end)
{
    const batch_job *b = ctx;
    for (size_t i = begin; i < end; i++)
        run_one(NULL, b->g, b->kn, i);
}

void xl_gemm_members(const xl_gemm *g, size_t begin, size_t end)
{
    batch_job b = { g, find(g->a_type, g->b_type, g->m, g->n) };
    run_members(&b, begin, end);
}

bool xl_gemm_run(xl_pool *pool, const xl_gemm *g)
{
    const xl_gemm_kernel *kn = find(g->a_type, g->b_type, g->m, g->n);
    if (!kn)
        return false;
    xl_gemm_type acc = kn->packed == XL_GEMM_BF16 ? XL_GEMM_F32 : kn->packed;
    if (g->c_type != acc && !(acc == XL_GEMM_F32 && (g->c_type == XL_GEMM_BF16 || g->c_type == XL_GEMM_F16)))
        return false;
    size_t batch = 1;
    for (size_t d = 0; d < g->nbatch; d++)
        batch *= g->batch[d];
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    if (batch > 1 && flops < ALONE * kn->speed) {
        batch_job b = { g, kn };
        double small = SMALL * kn->speed;
        xl_pool_for(flops * (double)batch < small ? NULL : pool, batch, 1 + (size_t)(small / (flops + 1)), run_members,
                    &b);
    } else {
        for (size_t i = 0; i < batch; i++)
            run_one(pool, g, kn, i);
    }
    return true;
}
