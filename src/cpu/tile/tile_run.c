/* Runs tile programs. */
#include <math.h>
#include <stdatomic.h>

#include "cpu/kernel/strided.h"
#include "cpu/tile/tile.h"

/* Additions that take some 15 us: below, a thread that has to wake up comes too late, and one that is awake leaves half
 * the results in its own cache, where the next step may not want them. Bytes. */
enum { INLINE_MAX = 1 << 18, AHEAD = 2048 };

typedef struct { const xl_tile_program *p; const xl_step *s; void *const *ptr; atomic_bool *failed; } job;

/* One thread at work on one tile. */
typedef struct {
    const job *j;
    char **ref, **acc; /* operands in memory and slots; per partial result its levels (fold.h) */
    int64_t r0, nr, c0, nc;                                /* the tile */
    int64_t row, col, ncol; /* the chunk's first row and column, and how many columns it has */
    size_t tiles;                                          /* done so far */
    const xl_strip_set *set;
    xl_strip_ins *code;
    xl_strip_step *step;                                   /* of the code, from line to line */
    char *edge;                                            /* a strip for each ref, and for each fold */
    float (*part)[XL_STRIP_PARTS];                         /* of the reductions in a piece of strip code */
    float (*level)[XL_CASCADE_LEVELS];                     /* and of the pieces of a long row (fold.h) */
} worker;

static inline char *buffer(const job *j, uint32_t i) { return j->ptr[j->s->buf[i]]; }

static inline void fill4(char *to, const char *from, int64_t n)
{
    uint32_t v, *y = (uint32_t *)(void *)to;
    memcpy(&v, from, 4);
    for (int64_t i = 0; i < n; i++)
        y[i] = v;
}

static void load_line(char *to, const xl_tile_load *l, const char *from, int64_t n, int64_t stride)
{
    size_t e = l->elem, oe = l->widen ? 4 : e;
    if (stride == 1) {
        if (l->widen)
            l->widen((float *)(void *)to, from, (size_t)n);
        else
            memcpy(to, from, (size_t)n * e);
    } else if (stride == 0) {
        float one;
        if (l->widen) {
            l->widen(&one, from, 1);
            from = (const char *)&one;
        }
        if (oe == 4)
            fill4(to, from, n);
        else
            xl_fill(to, from, oe, (size_t)n);
    } else if (l->widen) {
        char raw[XL_TILE_LINE * 4];
        for (int64_t i = 0; i < n; i += XL_TILE_LINE) {
            int64_t m = n - i < XL_TILE_LINE ? n - i : XL_TILE_LINE;
            for (int64_t k = 0; k < m; k++)
                memcpy(raw + (size_t)k * e, from + (i + k) * stride * (int64_t)e, e);
            l->widen((float *)(void *)(to + (size_t)i * 4), raw, (size_t)m);
        }
    } else {
        int64_t s = stride * (int64_t)e;
        switch (e) {
        case 4:
            for (int64_t i = 0; i < n; i++)
                ((uint32_t *)(void *)to)[i] = *(const uint32_t *)(const void *)(from + i * s);
            break;
        case 8:
            for (int64_t i = 0; i < n; i++)
                ((uint64_t *)(void *)to)[i] = *(const uint64_t *)(const void *)(from + i * s);
            break;
        default: for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * e, from + i * s, e);
        }
    }
}

/* Rows one after another: where each begins, without a division per row. */
typedef struct { int64_t at[XL_RANK_MAX], offset; } walker;

static void walk_from(const xl_tile_program *p, const int64_t *stride, int64_t r, walker *w)
{
    w->offset = 0;
    for (uint32_t k = p->split; k-- > 0; ) {
        w->at[k] = r % p->dim[k];
        w->offset += w->at[k] * stride[k];
        r /= p->dim[k];
    }
}
static inline void walk_on(const xl_tile_program *p, const int64_t *stride, walker *w)
{
    for (uint32_t k = p->split; k-- > 0; ) {
        w->offset += stride[k];
        if (++w->at[k] < p->dim[k])
            return;
        w->offset -= stride[k] * p->dim[k];
        w->at[k] = 0;
    }
}

/* Short rows of 4-byte elements that stand still (stride 0) or run on, `step` apart: no call per row. */
typedef uint32_t four __attribute__((vector_size(16), aligned(4), may_alias));

/* Rows of nc elements, or of one width that is known where this is called. */
__attribute__((always_inline)) static inline void rows_of(uint32_t *restrict to, const uint32_t *restrict from,
                                                          int64_t n, int64_t step, int64_t nc, bool still)
{
    for (int64_t r = 0; r < n; r++, to += nc, from += step) {
        uint32_t v = *from;
        four all = { v, v, v, v };
        int64_t i = 0;
        for (; i + 4 <= nc; i += 4)
            *(four *)(void *)(to + i) = still ? all : *(const four *)(const void *)(from + i);
        for (; i < nc; i++)
            to[i] = still ? v : from[i];
    }
}

static void short_rows(uint32_t *restrict to, const uint32_t *restrict from, int64_t n, int64_t step, int64_t nc,
                       bool still)
{
#define WIDTH(width) case width: still ? rows_of(to, from, n, step, width, true)                                       \
                                       : rows_of(to, from, n, step, width, false); return;
    switch (nc) {
    WIDTH(4)
    WIDTH(8)
    WIDTH(16)
    WIDTH(32)
    default: rows_of(to, from, n, step, nc, still);
    }
#undef WIDTH
}

static void load_short(const xl_tile_program *p, const xl_tile_load *l, uint32_t *to, const uint32_t *base, int64_t r0,
                       int64_t nr, int64_t nc, int64_t stride)
{
    walker w;
    walk_from(p, l->stride, r0, &w);
    if (!p->split) {
        short_rows(to, base, nr, 0, nc, !stride);
        return;
    }
    uint32_t k = p->split - 1;
    for (int64_t r = 0; r < nr; ) {
        int64_t n = p->dim[k] - w.at[k] < nr - r ? p->dim[k] - w.at[k] : nr - r;
        short_rows(to + r * nc, base + w.offset, n, l->stride[k], nc, !stride);
        r += n;
        w.at[k] += n - 1;                                  /* to the last of them, then on */
        w.offset += (n - 1) * l->stride[k];
        walk_on(p, l->stride, &w);
    }
}

static void run_load(const job *j, const xl_tile_load *l, char *to, int64_t r0, int64_t nr, int64_t c0, int64_t nc)
{
    const xl_tile_program *p = j->p;
    const char *base = buffer(j, l->buf) + l->off * (int64_t)l->elem;
    size_t oe = l->widen ? 4 : l->elem;
    uint32_t ncol = p->rank - p->split;
    walker w;
    int64_t only = ncol ? l->stride[p->split] : 0;
    if (ncol <= 1 && nc <= 64 && (only == 0 || only == 1) && l->elem == 4 && !l->widen) {
        load_short(p, l, (uint32_t *)(void *)to, (const uint32_t *)(const void *)base + c0 * only, r0, nr, nc, only);
        return;
    }
    walk_from(p, l->stride, r0, &w);
    for (int64_t r = 0; r < nr; r++, walk_on(p, l->stride, &w)) {
        const char *from = base + w.offset * (int64_t)l->elem;
        char *at = to + (size_t)(r * nc) * oe;
        if (ncol <= 1) {
            int64_t s = ncol ? l->stride[p->split] : 0;
            load_line(at, l, from + c0 * s * (int64_t)l->elem, nc, s);
            continue;
        }
        int64_t last = p->dim[p->rank - 1], lines = nc / last; /* whole rows here */
        for (int64_t i = 0; i < lines; i++) {
            int64_t o = 0, x = i;
            for (uint32_t k = p->rank - 1; k-- > p->split; ) {
                o += x % p->dim[k] * l->stride[k];
                x /= p->dim[k];
            }
            load_line(at + (size_t)(i * last) * oe, l, from + o * (int64_t)l->elem, last, l->stride[p->rank - 1]);
        }
    }
}

static void run_load_row(const job *j, const xl_tile_load *l, char *to, int64_t r0, int64_t nr)
{
    const char *base = buffer(j, l->buf) + l->off * (int64_t)l->elem;
    size_t oe = l->widen ? 4 : l->elem;
    walker w;
    walk_from(j->p, l->stride, r0, &w);
    for (int64_t r = 0; r < nr; r++, walk_on(j->p, l->stride, &w))
        load_line(to + (size_t)r * oe, l, base + w.offset * (int64_t)l->elem, 1, 1);
}

static void initial(const job *j, const xl_tile_instr *x, char *acc)
{
    const char *init = buffer(j, x->arg);
    if (x->widen)
        x->widen((float *)(void *)acc, init, 1);
    else
        memcpy(acc, init, x->elem);
}

static void spread(char *to, const char *from, int64_t nr, int64_t nc, size_t e)
{
    if (e == 4) {
        for (int64_t r = 0; r < nr; r++) {
            uint32_t v = ((const uint32_t *)(const void *)from)[r], *y = (uint32_t *)(void *)to + r * nc;
            for (int64_t i = 0; i < nc; i++)
                y[i] = v;
        }
        return;
    }
    for (int64_t r = 0; r < nr; r++)
        xl_fill(to + (size_t)(r * nc) * e, from + (size_t)r * e, e, (size_t)nc);
}

/* ---- strips ----------------------------------------------------------------------------------------------------- */
static inline float fold2(uint16_t op, float x, float y)
{
    if (op == XL_STRIP_SUM)
        return x + y;
    if (x != x || y != y)
        return x + y;
    if (x == y)                                            /* of two zeros the one with the right sign */
        return signbit(x) == (op == XL_STRIP_MAX) ? y : x;
    return (x > y) == (op == XL_STRIP_MAX) ? x : y;
}

static inline bool folds(uint16_t op) { return op == XL_STRIP_SUM || op == XL_STRIP_MAX || op == XL_STRIP_MIN; }

static void fold_begin(const worker *w, const xl_tile_code *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < XL_STRIP_PARTS && folds(t[i].op); k++)
            w->part[t[i].x.of][k] = t[i].op == XL_STRIP_SUM ? -0.0f : t[i].op == XL_STRIP_MAX ? -INFINITY : INFINITY;
}

/* Halves onto halves. The op is known where this is called: no question of it is left inside. */
__attribute__((always_inline)) static inline float join(uint16_t op, float *part)
{
    _Pragma("GCC unroll 4")
    for (int h = XL_STRIP_PARTS / 2; h; h /= 2)
        for (int k = 0; k < h; k++)
            part[k] = fold2(op, part[k], part[k + h]);
    return part[0];
}

/* The piece's partial results in one. */
static float fold_piece(const worker *w, const xl_tile_code *t)
{
    float *part = w->part[t->x.of];
    return t->op == XL_STRIP_SUM   ? join(XL_STRIP_SUM, part)
           : t->op == XL_STRIP_MAX ? join(XL_STRIP_MAX, part)
                                   : join(XL_STRIP_MIN, part);
}
static void fold_store(const worker *w, const xl_tile_code *t, int64_t line, float all)
{
    float first;
    initial(w->j, t->fold, (char *)&first);
    first = fold2(t->op, first, all);
    memcpy(w->ref[t->y.of] + line * t->y.step, &first, sizeof first);
}
static void fold_end(const worker *w, const xl_tile_code *t, uint32_t n, int64_t line)
{
    for (uint32_t i = 0; i < n; i++)
        if (folds(t[i].op))
            fold_store(w, &t[i], line, fold_piece(w, &t[i]));
}

/* xl_cascade_row and xl_cascade_end of one number. */
static void level_add(uint16_t op, float *level, size_t i, float x)
{
    for (int l = 0; ; l++, i /= XL_CASCADE, x = *level++) {
        bool top = l + 1 == XL_CASCADE_LEVELS;
        *level = i == 0 || (!top && i % XL_CASCADE == 0) ? x : fold2(op, *level, x);
        if (top || (i + 1) % XL_CASCADE)
            return;
    }
}
static float level_end(uint16_t op, const float *level, size_t rows)
{
    float sum = 0;
    bool any = false;
    for (int l = 0; l < XL_CASCADE_LEVELS; l++, rows /= XL_CASCADE, level++) {
        if (l + 1 == XL_CASCADE_LEVELS ? !rows : rows % XL_CASCADE == 0)
            continue;
        sum = any ? fold2(op, *level, sum) : *level;
        any = true;
    }
    return sum;
}

static void resolve(const worker *w, const xl_tile_code *t, uint32_t n, int64_t line)
{
    for (uint32_t i = 0; i < n; i++) {
        bool fold = folds(t[i].op);
        w->code[i].fn = w->set->fn[t[i].op][t[i].form];
        w->code[i].x = fold ? (const char *)w->part[t[i].x.of] : w->ref[t[i].x.of] + line * t[i].x.step;
        w->code[i].y = w->ref[t[i].y.of] + line * t[i].y.step;
        w->code[i].z = w->ref[t[i].z.of] + line * t[i].z.step;
    }
    w->code[n].fn = w->set->fn[XL_STRIP_END][0];
}

/* Lines of whole strips: what is the same for all of them is looked up once. False, and nothing done, if there are more
 * folds than that. */
enum { LINE_FOLDS = 8 };
static bool run_whole_lines(const worker *w, const xl_tile_code *t, uint32_t n, size_t lines, size_t strips,
                            const xl_strip_ahead *ahead)
{
    xl_strip_fold fold[LINE_FOLDS];
    uint32_t nfold = 0;
    for (uint32_t i = 0; i < n; i++) {
        w->step[i] = (xl_strip_step){ 0, t[i].x.step, t[i].y.step, t[i].z.step };
        if (!folds(t[i].op))
            continue;
        if (nfold == LINE_FOLDS)
            return false;
        fold[nfold] = (xl_strip_fold){ t[i].op, w->part[t[i].x.of], 0, w->ref[t[i].y.of], t[i].y.step };
        initial(w->j, t[i].fold, (char *)&fold[nfold++].first);
    }
    resolve(w, t, n, 0);
    w->set->lines(w->code, w->step, n, strips, lines, ahead, fold, nfold);
    return true;
}

/* The elements past the last whole strip, `rest` of them after `done`. Operands are read where they lie if there are
 * many of them and what follows is a part of the tile too; others, and all results, go through a strip of their own. */
static char *edge_of(const worker *w, const xl_tile_point *x)
{
    return w->edge + (size_t)x->of * XL_STRIP_WIDTH_MAX * 4;
}

typedef struct {
    int64_t line;
    size_t done, rest;
    bool lines, in_place, inner; /* inner: lines of the tile follow, as long as a strip */
    uint64_t written;            /* of the first 64 refs, those that are also results */
} edge;

static inline bool lies_in_tile(const worker *w, const xl_tile_point *x, const edge *e)
{
    if (x->write || x->of >= 64 || e->written >> x->of & 1)
        return false;
    return x->of >= w->j->p->ndirect || (e->inner && x->step == w->nc * x->size); /* slots have room at their end */
}

static inline const char *edge_in(const worker *w, const xl_tile_point *x, const char *p, const edge *e)
{
    if (!x->size)
        return p;
    p += e->done * x->size;
    if (x->of >= w->j->p->ndirect && !e->lines)
        return p;
    if (e->in_place && lies_in_tile(w, x, e))
        return p;
    if (!x->write)
        memcpy(edge_of(w, x), p, e->rest * x->size);
    return edge_of(w, x);
}

static inline void edge_out(const worker *w, const xl_tile_point *x, const edge *e)
{
    if (x->write && x->size && (e->lines || x->of < w->j->p->ndirect))
        memcpy(w->ref[x->of] + e->line * x->step + e->done * x->size, edge_of(w, x), e->rest * x->size);
}

/* A strip of which `rest` elements count goes into its partial results; less than two for each, and no others, are
 * folded in order, as kernel/fold.h does it. */
__attribute__((always_inline)) static inline void in_order(uint16_t op, float *first, const float *v, size_t rest)
{
    float all = *first;
    for (size_t k = 0; k < rest; k++)
        all = fold2(op, all, v[k]);
    *first = all;
}
enum { FEW_READ = 32, FEW_LEFT = 16 };                     /* FEW_LEFT: at most XL_STRIP_PARTS */
static void fold_edge(const worker *w, const xl_tile_code *t, float *v, const edge *e)
{
    float *part = w->part[t->x.of], none = t->op == XL_STRIP_SUM ? -0.0f : t->op == XL_STRIP_MAX ? -INFINITY : INFINITY;
    if (e->done == 0 && e->rest < (size_t)2 * XL_STRIP_PARTS) {
        if (t->op == XL_STRIP_SUM)
            in_order(XL_STRIP_SUM, part, v, e->rest);
        else
            in_order(t->op, part, v, e->rest);
        return;
    }
    if (e->rest <= FEW_LEFT) {
        for (size_t k = 0; k < e->rest; k++)
            part[k] = fold2(t->op, part[k], v[k]);
        return;
    }
    for (size_t k = e->rest; k < w->set->width; k++)
        v[k] = none;
    const xl_strip_ins code[3] = { { w->set->fn[XL_STRIP_LOAD][XL_FORM_AM], (const char *)v, NULL, NULL },
                                   { w->set->fn[t->op][t->form], (const char *)part, NULL, NULL },
                                   { w->set->fn[XL_STRIP_END][0], NULL, NULL, NULL } };
    w->set->run(code, 1, NULL);
}

static void run_edge(const worker *w, const xl_tile_code *t, uint32_t n, int64_t line, size_t done, size_t rest,
                     bool lines)
{
    const xl_tile_program *p = w->j->p;
    float(*folded)[XL_STRIP_WIDTH_MAX] =
        (float(*)[XL_STRIP_WIDTH_MAX])(void *)(w->edge + ((size_t)p->ndirect + p->nslot) * XL_STRIP_WIDTH_MAX * 4);
    int64_t left = (w->nr - line) * w->nc - (int64_t)done;
    edge e = { line, done, rest, lines, rest > FEW_READ, lines && left >= (int64_t)w->set->width, 0 };
    for (uint32_t i = 0; i < n && e.in_place; i++)
        e.written |= (t[i].x.write && t[i].x.of < 64 ? UINT64_C(1) << t[i].x.of : 0) |
                     (t[i].z.write && t[i].z.of < 64 ? UINT64_C(1) << t[i].z.of : 0);
    for (uint32_t i = 0; i < n; i++) {
        if (folds(t[i].op)) {
            w->code[i].fn = w->set->fn[XL_STRIP_STORE][0];
            w->code[i].x = (const char *)folded[t[i].x.of];
            continue;
        }
        w->code[i].x = edge_in(w, &t[i].x, w->code[i].x, &e);
        w->code[i].y = edge_in(w, &t[i].y, w->code[i].y, &e);
        w->code[i].z = edge_in(w, &t[i].z, w->code[i].z, &e);
    }
    w->set->run(w->code, 1, NULL);
    for (uint32_t i = 0; i < n; i++) {
        if (folds(t[i].op)) {
            fold_edge(w, &t[i], folded[t[i].x.of], &e);
            continue;
        }
        edge_out(w, &t[i].x, &e);
        edge_out(w, &t[i].z, &e);
    }
}

/* What to ask for while strips of `line` run, `at` elements into it; NULL where all of it fits the cache. */
static const xl_strip_ahead *look_ahead(const worker *w, const xl_tile_instr *x, int64_t line, size_t at,
                                        xl_strip_ahead *out)
{
    const xl_tile_program *p = w->j->p;
    if (!x->nahead)
        return NULL;
    for (uint32_t i = 0; i < x->nahead; i++) {
        const xl_tile_ahead *a = &x->ahead[i];
        int64_t elem = (int64_t)p->dir[a->of].elem, row = p->cols * elem;
        int64_t on = a->when == XL_AHEAD_NEXT_TILE ? w->nr * row : a->when == XL_AHEAD_THIS_PASS ? AHEAD : 0;
        out->of[i].at = w->ref[a->of] + line * row + (int64_t)at * elem + on;
        out->of[i].size = (uint8_t)elem;
        out->of[i].write = a->when != XL_AHEAD_NEXT_TILE;
    }
    out->n = x->nahead;
    return out;
}

/* A long line with reductions, in pieces. */
enum { PIECE = 2048 };                                     /* a multiple of every strip */
static void run_pieces(const worker *w, const xl_tile_instr *x, int64_t line, size_t len)
{
    const xl_tile_code *t = w->j->p->code + x->arg;
    size_t piece = 0;
    xl_strip_ahead ahead;
    for (size_t at = 0; at < len; at += PIECE, piece++) {
        size_t m = len - at < PIECE ? len - at : PIECE, whole = m / w->set->width, done = whole * w->set->width;
        fold_begin(w, t, x->ncode);
        resolve(w, t, x->ncode, line);
        for (uint32_t i = 0; i < x->ncode; i++) {
            w->code[i].x += folds(t[i].op) ? 0 : at * t[i].x.size;
            w->code[i].y += at * t[i].y.size;
            w->code[i].z += at * t[i].z.size;
        }
        if (whole)
            w->set->run(w->code, whole, look_ahead(w, x, line, at, &ahead));
        if (m > done) {
            resolve(w, t, x->ncode, line);
            run_edge(w, t, x->ncode, line, at + done, m - done, x->lines);
        }
        for (uint32_t i = 0; i < x->ncode; i++)
            if (folds(t[i].op))
                level_add(t[i].op, w->level[t[i].x.of], piece, fold_piece(w, &t[i]));
    }
    for (uint32_t i = 0; i < x->ncode; i++)
        if (folds(t[i].op))
            fold_store(w, &t[i], line, level_end(t[i].op, w->level[t[i].x.of], piece));
}

static void run_strips(const worker *w, const xl_tile_instr *x)
{
    const xl_tile_code *t = w->j->p->code + x->arg;
    int64_t lines = x->lines ? w->nr : 1;
    xl_strip_ahead ahead;
    size_t len = (size_t)(x->lines ? w->nc : w->nr * w->nc), whole = len / w->set->width, done = whole * w->set->width;
    for (int64_t l = 0; x->folds && len > PIECE && l < lines; l++)
        run_pieces(w, x, l, len);
    if (x->folds && len > PIECE)
        return;
    if (whole && len == done && lines > 1 &&
        run_whole_lines(w, t, x->ncode, (size_t)lines, whole, look_ahead(w, x, 0, 0, &ahead)))
        return;
    for (int64_t l = 0; l < lines; l++) {
        if (x->folds)
            fold_begin(w, t, x->ncode);
        resolve(w, t, x->ncode, l);
        if (whole)
            w->set->run(w->code, whole, look_ahead(w, x, l, 0, &ahead));
        if (len > done)
            run_edge(w, t, x->ncode, l, done, len - done, x->lines);
        if (x->folds)
            fold_end(w, t, x->ncode, l);
    }
}

/* ---- the program ------------------------------------------------------------------------------------------------ */
static void run_instr(const worker *w, const xl_tile_instr *x)
{
    const job *j = w->j;
    int64_t nr = w->nr, nc = w->nc;
    char **ref = w->ref, *dst = x->dst == XL_NO_REG ? NULL : ref[x->dst];
    const char *src = ref[x->src[0]];
    switch (x->act) {
    case DO_STRIPS: run_strips(w, x); break;
    case DO_EW: {
        const void *in[3] = { src, ref[x->src[1]], ref[x->src[2]] };
        x->ew.fn(dst, in, (size_t)(x->row ? nr : nr * nc), x->ew.ctx);
        break;
    }
    case DO_SPREAD: spread(dst, src, nr, nc, x->elem); break;
    case DO_LOAD_ONE:
        load_line(dst, &j->p->loads[x->arg],
                  buffer(j, j->p->loads[x->arg].buf) + j->p->loads[x->arg].off * (int64_t)j->p->loads[x->arg].elem, 1,
                  1);
        break;
    case DO_DIVISOR: {
        float c;
        memcpy(&c, src, sizeof c);
        xl_strip_divisor(c, (float *)(void *)dst);
        break;
    }
    case DO_LOAD: run_load(j, &j->p->loads[x->arg], dst, w->r0, nr, w->c0, nc); break;
    case DO_LOAD_ROW: run_load_row(j, &j->p->loads[x->arg], dst, w->r0, nr); break;
    case DO_ROW:
        if (x->rows && nc < 2 * XL_STRIP_PARTS) {
            char one[16];
            initial(j, x, one);
            xl_fill(dst, one, x->elem, (size_t)nr);
            x->rows(dst, src, (size_t)nr, (size_t)nc);
            break;
        }
        for (int64_t r = 0; r < nr; r++) {
            char *a = dst + (size_t)r * x->elem;
            initial(j, x, a);
            x->line(a, src + (size_t)(r * nc) * x->elem, (size_t)nc);
        }
        break;
    case DO_COL: {
        size_t stride = (size_t)w->ncol * x->elem;
        char *a = w->acc[x->arg] + (size_t)(w->c0 - w->col) * x->elem;
        for (int64_t r = 0; r < nr; r++)
            xl_cascade_row(&x->ew, x->elem, a, stride, (size_t)(w->r0 - w->row + r), src + (size_t)(r * nc) * x->elem,
                           (size_t)nc);
        break;
    }
    case DO_ALL: {
        char one[16];
        memcpy(one, src, x->elem);
        if (nr * nc < 2 * XL_STRIP_PARTS)                  /* in order, as a short row */
            for (int64_t k = 1; k < nr * nc; k++)
                x->line(one, src + (size_t)k * x->elem, 1);
        else
            x->line(one, src + x->elem, (size_t)(nr * nc) - 1);
        xl_cascade_row(&x->ew, x->elem, w->acc[x->arg], x->elem, w->tiles, one, 1);
        break;
    }
    }
}

static size_t level_bytes(const worker *w, const xl_tile_partial *q)
{
    return (XL_CASCADE_LEVELS * (q->all ? 1 : (size_t)w->ncol) * q->elem + 63) & ~(size_t)63;
}

/* A thread's memory: slots, refs, strip code, edges, partial results. */
static bool set_out(worker *w)
{
    const xl_tile_program *p = w->j->p;
    size_t slots = (size_t)p->nslot * p->slot_bytes, nref = (size_t)p->ndirect + p->nslot + p->npart + 1;
    size_t edge = ((size_t)p->ndirect + p->nslot + p->nfold) * XL_STRIP_WIDTH_MAX * 4,
           part = (size_t)p->nfold * sizeof *w->part;
    size_t pieces = ((size_t)p->nfold * sizeof *w->level + 63) & ~(size_t)63;
    size_t levels = 0;
    for (uint32_t i = 0; i < p->npart; i++)
        levels += level_bytes(w, &p->part[i]);
    char *mem =
        xl_scratch(XL_SCRATCH_PLAN, slots + edge + part + pieces + levels +
                                        (p->longest + 1) * (sizeof *w->code + sizeof *w->step) + nref * sizeof *w->ref);
    if (!mem)
        return false;
    w->edge = mem + slots;
    w->part = (float (*)[XL_STRIP_PARTS])(void *)(w->edge + edge);
    w->level = (float (*)[XL_CASCADE_LEVELS])(void *)(w->edge + edge + part);
    char *level = w->edge + edge + part + pieces;
    w->code = (xl_strip_ins *)(void *)(level + levels);
    w->step = (xl_strip_step *)(void *)(w->code + p->longest + 1);
    w->ref = (char **)(void *)(w->step + p->longest + 1);
    w->acc = w->ref + p->ndirect + p->nslot;
    w->set = xl_strips();
    for (uint32_t i = 0; i < p->nslot; i++)
        w->ref[p->ndirect + i] = mem + (size_t)i * p->slot_bytes;
    for (uint32_t i = 0; i < p->npart; i++) {
        w->acc[i] = level;
        level += level_bytes(w, &p->part[i]);
    }
    return true;
}

/* The chunk's share of a partial result goes where combine expects it. */
static void hand_in(const worker *w, size_t chunk, int64_t rows)
{
    const xl_tile_program *p = w->j->p;
    for (uint32_t i = 0; i < p->npart; i++) {
        const xl_tile_partial *q = &p->part[i];
        size_t n = q->all ? 1 : (size_t)w->ncol, at = q->all       ? chunk
                                                      : p->by_cols ? (size_t)w->col
                                                                   : chunk * (size_t)p->cols;
        const char *sum = xl_cascade_end(&q->ew, w->acc[i], n * q->elem, q->all ? w->tiles : (size_t)rows, n);
        memcpy(buffer(w->j, q->temp) + at * q->elem, sum, n * q->elem);
    }
}

static void run_chunk(void *ctx, size_t begin, size_t end)
{
    const job *j = ctx;
    const xl_tile_program *p = j->p;
    int64_t ra = p->by_cols ? 0 : (int64_t)begin, rb = p->by_cols ? p->rows : (int64_t)end;
    int64_t ca = p->by_cols ? (int64_t)begin : 0, cb = p->by_cols ? (int64_t)end : p->cols;
    worker w = { .j = j, .row = ra, .col = ca, .ncol = cb - ca };
    if (!set_out(&w)) {
        atomic_store(j->failed, true);
        return;
    }
    w.nr = p->tile_rows, w.nc = p->tile_cols;
    for (uint32_t i = 0; i < p->nhoist; i++)
        run_instr(&w, &p->hoist[i]);
    for (w.r0 = ra; w.r0 < rb; w.r0 += p->tile_rows) {
        w.nr = rb - w.r0 < p->tile_rows ? rb - w.r0 : p->tile_rows;
        for (w.c0 = ca; w.c0 < cb; w.c0 += p->tile_cols) {
            w.nc = cb - w.c0 < p->tile_cols ? cb - w.c0 : p->tile_cols;
            for (uint32_t i = 0; i < p->ndirect; i++) {
                const xl_tile_direct *d = &p->dir[i];
                w.ref[i] = buffer(j, d->buf) + (d->off + w.r0 * d->row + w.c0 * d->col) * (int64_t)d->elem;
            }
            for (uint32_t i = 0; i < p->ninstr; i++)
                run_instr(&w, &p->ins[i]);
            w.tiles++;
        }
    }
    hand_in(&w, begin / p->grain, rb - ra);
}

static void combine(const job *j, const xl_tile_partial *q)
{
    const xl_tile_program *p = j->p;
    size_t n = q->all ? 1 : (size_t)p->cols, parts = q->all || !p->by_cols ? p->nchunk : 1;
    char *sum = buffer(j, q->temp), one[16];
    const char *init = buffer(j, q->init);
    if (q->widen)
        q->widen((float *)(void *)one, init, 1);
    else
        memcpy(one, init, q->elem);
    for (size_t step = 1; step < parts; step *= 2)         /* in pairs, then with the initial value */
        for (size_t k = 0; k + step < parts; k += 2 * step) {
            const void *in[3] = { sum + k * n * q->elem, sum + (k + step) * n * q->elem, NULL };
            q->ew.fn(sum + k * n * q->elem, in, n, q->ew.ctx);
        }
    char tile[XL_TILE_LINE * 16];
    for (size_t i = 0; i < n; i += XL_TILE_LINE) {
        size_t m = n - i < XL_TILE_LINE ? n - i : XL_TILE_LINE;
        xl_fill(tile, one, q->elem, m);
        const void *in[3] = { tile, sum + i * q->elem, NULL };
        q->ew.fn(tile, in, m, q->ew.ctx);
        if (q->narrow)
            q->narrow(buffer(j, q->out) + i * xl_dtype_bytes(j->s->shape[q->out].dtype), (const float *)(void *)tile,
                      m);
        else
            memcpy(buffer(j, q->out) + i * q->elem, tile, m * q->elem);
    }
}

static xl_error *no_memory(const xl_tile_program *p)
{
    return XL_ERR(EXHAUSTED, "no memory for %u tiles of %zu bytes", p->nslot, p->slot_bytes);
}

xl_error *xl_tile_run_part(const xl_step *s, xl_frame *f, size_t begin, size_t end)
{
    atomic_bool failed = false;
    job j = { s->data, s, f->ptr, &failed };
    run_chunk(&j, begin, end);
    return atomic_load(&failed) ? no_memory(s->data) : NULL;
}

xl_error *xl_tile_run(const xl_step *s, xl_frame *f)
{
    const xl_tile_program *p = s->data;
    atomic_bool failed = false;
    job j = { p, s, f->ptr, &failed };
    if (p->nchunk == 1 || p->work < INLINE_MAX)
        for (size_t i = 0; i < p->n; i += p->grain)
            run_chunk(&j, i, i + p->grain < p->n ? i + p->grain : p->n);
    else
        xl_pool_for(f->pool, p->n, p->grain, run_chunk, &j);
    if (atomic_load(&failed))
        return no_memory(p);
    for (uint32_t i = 0; i < p->npart; i++)
        if (p->part[i].out != UINT32_MAX)                  /* else nobody reads it */
            combine(&j, &p->part[i]);
    return NULL;
}

