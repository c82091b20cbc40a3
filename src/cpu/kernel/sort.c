/* Sort and top_k. Each line sorts positions, by radix if it is long and by merging otherwise; always stable.
 * Comparators that compare elements of one operand use integer keys; others run as vector blocks, one level of merges
 * at a time, with a lane for each pair of runs. */
#include <stdlib.h>

#include "cpu/kernel/dtype.h"
#include "cpu/kernel/fold.h"
#include "cpu/kernel/index.h"

typedef enum { KEY_NONE, KEY_TOTAL, KEY_CANONICAL, KEY_NUMBER } key_kind;
typedef struct {
    int64_t dim, len, inner, lines;
    uint32_t n;
    uint32_t key;                                          /* which operand */
    key_kind kind;
    bool down;
    size_t elem[64];
} sorting;

/* A number whose order is the comparator's. canonical: all NaN are one, and -0 is 0. */
static int64_t key_of(const char *p, xl_dtype d, bool canonical)
{
    int64_t k;
    switch (xl_dtype_class(d)) {
    case XL_CLASS_FLOAT: {
        if (d == XL_F64) {
            double v;
            memcpy(&v, p, 8);
            if (canonical)
                v = v == 0 ? 0 : v != v ? xl_f64_of_bits(0x7ff8000000000000) : v;
            k = (int64_t)xl_f64_bits(v);
            return k < 0 ? k ^ INT64_MAX : k;
        }
        float v;
        if (d == XL_F32)
            memcpy(&v, p, 4);
        else
            xl_widen(d)(&v, p, 1);
        if (canonical)
            v = v == 0 ? 0 : v != v ? xl_f32_of_bits(0x7fc00000) : v;
        int32_t b = (int32_t)xl_f32_bits(v);
        return b < 0 ? b ^ INT32_MAX : b;
    }
    case XL_CLASS_UINT:
        if (d == XL_U64) {
            uint64_t v;
            memcpy(&v, p, 8);
            return (int64_t)(v ^ (uint64_t)1 << 63);
        }
        return xl_read_index(p, d, 0);
    default: return xl_read_index(p, d, 0);
    }
}

/* The keys of a line, elements `step` apart, so that a smaller key goes first. */
static void keys_of(uint64_t *key, const char *x, xl_dtype d, int64_t n, int64_t step, bool canonical, bool down)
{
    uint64_t flip = down ? UINT64_MAX : 0;
    if (d == XL_F32) {
        const uint32_t *p = (const uint32_t *)(const void *)x;
        for (int64_t i = 0; i < n; i++) {
            uint32_t b = p[i * step];
            if (canonical)
                b = b << 1 > 0xff000000u ? 0x7fc00000 : b << 1 == 0 ? 0 : b;
            uint32_t k = b ^ ((uint32_t)((int32_t)b >> 31) | 0x80000000u); /* unsigned, in the order of the numbers */
            key[i] = (uint64_t)(k ^ (uint32_t)flip);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t k = (uint64_t)key_of(x + i * step * (int64_t)xl_dtype_bytes(d), d, canonical) ^ (uint64_t)1 << 63;
        key[i] = k ^ flip;
    }
}

typedef struct { uint64_t key; int64_t at; } item;

/* Stable, by the bytes of the keys, the least first; bytes in which all keys agree are passed over. Gives where the
 * result lies. */
static item *radix_sort(item *a, item *tmp, int64_t n)
{
    static const size_t bytes = 8;
    uint32_t (*count)[256] = calloc(bytes, sizeof *count);
    if (!count)
        return NULL;
    for (int64_t i = 0; i < n; i++)
        for (size_t b = 0; b < bytes; b++)
            count[b][a[i].key >> 8 * b & 255]++;
    for (size_t b = 0; b < bytes; b++) {
        uint32_t sum = 0;
        if (count[b][a[0].key >> 8 * b & 255] == (uint32_t)n)
            continue;
        for (int v = 0; v < 256; v++) {
            uint32_t c = count[b][v];
            count[b][v] = sum;
            sum += c;
        }
        for (int64_t i = 0; i < n; i++)
            tmp[count[b][a[i].key >> 8 * b & 255]++] = a[i];
        item *t = a;
        a = tmp;
        tmp = t;
    }
    free(count);
    return a;
}

static item *merge_sort(item *a, item *tmp, int64_t n)
{
    enum { RUN = 16 };
    for (int64_t i = 0; i < n; i += RUN)                   /* short runs by insertion */
        for (int64_t j = i + 1; j < n && j < i + RUN; j++) {
            item x = a[j];
            int64_t k = j;
            for (; k > i && a[k - 1].key > x.key; k--)
                a[k] = a[k - 1];
            a[k] = x;
        }
    item *from = a, *to = tmp;
    for (int64_t w = RUN; w < n; w *= 2) {
        for (int64_t i = 0; i < n; i += 2 * w) {
            int64_t l = i, m = i + w < n ? i + w : n, r = m, e = i + 2 * w < n ? i + 2 * w : n, k = i;
            while (l < m && r < e) {                       /* without a branch to guess */
                bool right = from[r].key < from[l].key;
                to[k++] = from[right ? r : l];
                r += right, l += !right;
            }
            memcpy(to + k, from + (l < m ? l : r), (size_t)(e - k) * sizeof *to);
        }
        item *t = from;
        from = to;
        to = t;
    }
    return from;
}

/* Items of n keys in order, in a or in tmp. */
static item *sort_items(item *a, item *tmp, const uint64_t *key, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = (item){ key[i], i };
    item *y = n >= 1 << 10 && n <= UINT32_MAX ? radix_sort(a, tmp, n) : NULL;
    return y ? y : merge_sort(a, tmp, n);
}

typedef struct { const sorting *d; const xl_step *s; xl_frame *f; _Atomic int failed; } sjob;

static void sort_lines(void *ctx, size_t begin, size_t end)
{
    sjob *j = ctx;
    const sorting *d = j->d;
    item *a = malloc((size_t)d->len * 2 * sizeof *a);
    uint64_t *key = malloc((size_t)d->len * sizeof *key);
    char *copy = malloc((size_t)d->len * 16);
    if (!a || !copy || !key) {
        j->failed = 1;
        goto out;
    }
    for (size_t l = begin; l < end; l++) {
        int64_t base = (int64_t)l / d->inner * d->len * d->inner + (int64_t)l % d->inner;
        const char *x = xl_in(j->s, j->f, d->key);
        keys_of(key, x + (size_t)base * d->elem[d->key], j->s->shape[d->key].dtype, d->len, d->inner,
                d->kind == KEY_CANONICAL, d->down);
        const item *it = sort_items(a, a + d->len, key, d->len);
        for (uint32_t k = 0; k < d->n; k++) {
            size_t e = d->elem[k];
            const char *from = (const char *)xl_in(j->s, j->f, k);
            char *to = xl_out(j->s, j->f, k);
            if (e == 4 && d->inner == 1) {
                uint32_t *c = (uint32_t *)(void *)copy;
                const uint32_t *v = (const uint32_t *)(const void *)from + base;
                for (int64_t i = 0; i < d->len; i++)
                    c[i] = v[it[i].at];
                memcpy(to + (size_t)base * e, copy, (size_t)d->len * e);
                continue;
            }
            for (int64_t i = 0; i < d->len; i++)
                memcpy(copy + (size_t)i * e, from + (size_t)(base + it[i].at * d->inner) * e, e);
            for (int64_t i = 0; i < d->len; i++)
                memcpy(to + (size_t)(base + i * d->inner) * e, copy + (size_t)i * e, e);
        }
    }
out:
    free(a);
    free(key);
    free(copy);
}

static xl_error *run_sort_key(const xl_step *s, xl_frame *f)
{
    const sorting *d = s->data;
    sjob j = { .d = d, .s = s, .f = f };
    if (!d->lines || !d->len)
        return NULL;
    xl_pool_for(f->pool, (size_t)d->lines, (size_t)((1 << 14) / (d->len + 1) + 1), sort_lines, &j);
    return j.failed ? XL_ERR(EXHAUSTED, "no memory to sort") : NULL;
}

/* Any comparator. Merges at one level proceed together: each lane compares the heads of one pair of runs. */
static xl_error *run_sort_any(const xl_step *s, xl_frame *f)
{
    const sorting *d = s->data;
    const xl_block *b = s->sub[0];
    xl_error *err = NULL;
    uint32_t n = d->n;
    int64_t len = d->len;
    if (!d->lines || !len)
        return NULL;
    enum { W = XL_LANES };
    int64_t *at = malloc((size_t)len * 2 * sizeof *at), *state = malloc((size_t)W * 4 * sizeof *state);
    char *tile = malloc((size_t)2 * n * W * 16), *copy = malloc((size_t)len * 16);
    uint8_t less[W];
    if (!at || !state || !tile || !copy) {
        err = XL_ERR(EXHAUSTED, "no memory to sort");
        goto out;
    }
    int64_t *to = at + len;
    const void *in[128];
    void *out[1] = { less };
    for (uint32_t i = 0; i < 2 * n; i++)
        in[i] = tile + (size_t)i * W * 16;
    for (int64_t l = 0; l < d->lines; l++) {
        int64_t base = l / d->inner * len * d->inner + l % d->inner, *src = at, *dst = to;
        for (int64_t i = 0; i < len; i++)
            src[i] = i;
        for (int64_t w = 1; w < len; w *= 2) {
            for (int64_t first = 0; first < len; first += 2 * w * W) { /* up to W pairs of runs together */
                int64_t np = 0;
                for (int64_t i = first; i < len && np < W; i += 2 * w, np++) {
                    int64_t *t = state + np * 4;           /* left, right, and the two ends follow from i */
                    t[0] = i;
                    t[1] = i + w < len ? i + w : len;
                    t[2] = i;                              /* where the next goes */
                    t[3] = i;
                }
                for (;;) {
                    int64_t lane[W], m = 0;
                    for (int64_t p = 0; p < np; p++) {
                        int64_t *t = state + p * 4, mid = t[3] + w < len ? t[3] + w : len,
                                end = t[3] + 2 * w < len ? t[3] + 2 * w : len;
                        if (t[0] >= mid || t[1] >= end) {  /* one side is used up: the rest follows as it is */
                            while (t[0] < mid)
                                dst[t[2]++] = src[t[0]++];
                            while (t[1] < end)
                                dst[t[2]++] = src[t[1]++];
                            continue;
                        }
                        for (uint32_t k = 0; k < n;
                             k++) { /* comparator(right, left): right goes first only if it is less */
                            size_t e = d->elem[k];
                            const char *x = xl_in(s, f, k);
                            memcpy((char *)(uintptr_t)in[2 * k] + (size_t)m * e,
                                   x + (size_t)(base + src[t[1]] * d->inner) * e, e);
                            memcpy((char *)(uintptr_t)in[2 * k + 1] + (size_t)m * e,
                                   x + (size_t)(base + src[t[0]] * d->inner) * e, e);
                        }
                        lane[m++] = p;
                    }
                    if (!m)
                        break;
                    XL_DO(xl_block_apply(b, f, in, out, (size_t)m));
                    for (int64_t i = 0; i < m; i++) {
                        int64_t *t = state + lane[i] * 4;
                        dst[t[2]++] = less[i] ? src[t[1]++] : src[t[0]++];
                    }
                }
            }
            int64_t *t = src;
            src = dst;
            dst = t;
        }
        for (uint32_t k = 0; k < n; k++) {
            size_t e = d->elem[k];
            const char *x = xl_in(s, f, k);
            char *y = xl_out(s, f, k);
            for (int64_t i = 0; i < len; i++)
                memcpy(copy + (size_t)i * e, x + (size_t)(base + src[i] * d->inner) * e, e);
            for (int64_t i = 0; i < len; i++)
                memcpy(y + (size_t)(base + i * d->inner) * e, copy + (size_t)i * e, e);
        }
    }
out:
    free(at);
    free(state);
    free(tile);
    free(copy);
    return err;
}

/* What one side of the comparison is: the argument itself, or that argument with its NaN and zeros made one. */
static bool side(const xl_func *f, const xl_region *r, xl_value v, uint32_t *arg, bool *canonical)
{
    for (int depth = 0; depth < 4; depth++) {
        const xl_val *x = &f->val[v.id];
        if (!x->def) {
            *arg = x->index;
            return x->region == r;
        }
        if (x->def->code != XL_OP_SELECT)
            return false;
        *canonical = true;                                 /* select(x != x or x == 0, constant, x): JAX's way */
        v = x->def->in[2];
    }
    return false;
}

static void find_key(const xl_func *f, const xl_op *op, sorting *d)
{
    const xl_region *r = op->region[0];
    const xl_op *end = xl_region_end(r);
    uint32_t a, b;
    bool ca = false, cb = false;
    d->kind = KEY_NONE;
    if (!end || end->nin != 1)
        return;
    const xl_op *cmp = f->val[end->in[0].id].def;
    if (!cmp || cmp->code != XL_OP_COMPARE || cmp->parent != r)
        return;
    int64_t dir = xl_op_int(cmp, XL_SLOT(COMPARE, comparison_direction));
    bool total = xl_op_int(cmp, XL_SLOT(COMPARE, compare_type)) == XL_COMPARISON_TYPE_TOTALORDER;
    if (dir != XL_COMPARISON_DIRECTION_LT && dir != XL_COMPARISON_DIRECTION_GT)
        return;
    if (!side(f, r, cmp->in[0], &a, &ca) || !side(f, r, cmp->in[1], &b, &cb) || ca != cb || a / 2 != b / 2 || a == b)
        return;
    xl_dclass cls = xl_dtype_class(xl_value_type(f, r->arg[a])->dtype);
    bool floats = cls == XL_CLASS_FLOAT;
    if (cls == XL_CLASS_COMPLEX || (floats && !total) || (!floats && ca))
        return; /* float comparison of NaN is no order: leave it to the block */
    if (ca && r->nop > 12)
        return;
    d->kind = !floats ? KEY_NUMBER : ca ? KEY_CANONICAL : KEY_TOTAL;
    d->key = a / 2;
    d->down = (dir == XL_COMPARISON_DIRECTION_GT) != (a % 2 == 1);
}

static xl_error *lines(xl_planner *p, const xl_op *op, sorting *d, int64_t dim)
{
    xl_extent a;
    xl_error *err = xl_shape_of(p, xl_in_type(p->f, op, 0), &a);
    if (err)
        return err;
    if (dim < 0)
        dim += a.rank;
    if (dim < 0 || dim >= a.rank)
        return xl_plan_unsupported(p, op, "its dimension is out of range");
    d->dim = dim;
    d->len = a.dims[dim];
    d->inner = 1;
    for (uint32_t i = (uint32_t)dim + 1; i < a.rank; i++)
        d->inner *= a.dims[i];
    d->lines = d->len ? a.count / d->len : 0;
    return NULL;
}

xl_error *xl_kernel_sort(xl_planner *p, const xl_op *op)
{
    sorting *d = xl_new(p->a, sorting, 1);
    if (op->nin == 0 || op->nin > 64 || op->region[0]->narg != 2 * op->nin)
        return xl_plan_unsupported(p, op, "it sorts no operand, or more than 64");
    xl_error *err = lines(p, op, d, xl_op_int(op, XL_SLOT(SORT, dimension)));
    if (err)
        return err;
    d->n = op->nin;
    for (uint32_t i = 0; i < d->n; i++)
        d->elem[i] = xl_dtype_bytes(xl_in_type(p->f, op, i)->dtype);
    find_key(p->f, op, d);
    if (d->kind != KEY_NONE)
        return xl_plan_step(p, op, run_sort_key, d, 0);
    xl_block **sub = xl_new(p->a, xl_block *, 1);
    if ((err = xl_plan_lanes(p, op, 0, &sub[0])))
        return err;
    return xl_plan_step_sub(p, op, run_sort_any, d, 0, sub);
}

/* ---- top_k ------------------------------------------------------------------------------------------------------ */
/* The k largest of each line of the last dimension, in IEEE's total order (-NaN least, NaN greatest), ties in order of
 * position. */
typedef struct { const xl_step *s; xl_frame *f; _Atomic int failed; } top_job;

enum { SAMPLE = 64 };
/* A key that some more than k of n keys are not above, as a sample has it; the largest if k is no small part of n. */
static uint64_t guess_bound(const uint64_t *key, int64_t n, int64_t k)
{
    uint64_t least[SAMPLE] = { 0 };                        /* of the sample, in order */
    int64_t rank = 2 * k * SAMPLE / n + 4;
    if (n < 4 * SAMPLE || rank > SAMPLE / 2)
        return UINT64_MAX;
    for (int64_t i = 0; i < rank; i++)
        least[i] = UINT64_MAX;
    for (int64_t i = 0; i < SAMPLE; i++) {
        uint64_t x = key[i * n / SAMPLE];
        if (x >= least[rank - 1])
            continue;
        int64_t at = rank - 1;
        for (; at > 0 && least[at - 1] > x; at--)
            least[at] = least[at - 1];
        least[at] = x;
    }
    return least[rank - 1];
}
/* The first k of n in order, at a, which has room for most + 1. Those that can be among them are collected below a
 * bound: a guess, which comes down whenever `most` have come together. */
static void select_items(item *a, item *tmp, const uint64_t *key, int64_t n, int64_t k, int64_t most)
{
    uint64_t bound = guess_bound(key, n, k);
    int64_t have = 0;
    for (int turn = 0; have < k && turn < 2; turn++, bound = UINT64_MAX) {
        bool above = false;                                /* the bound itself is: k keys not above it are there */
        have = 0;
        for (int64_t i = 0; i < n; i++) {
            a[have] = (item){ key[i], i };
            have += above ? key[i] < bound : key[i] <= bound;
            if (have < most)
                continue;
            item *y = merge_sort(a, tmp, have);            /* stable: of equal keys those that came first */
            if (y != a)
                memcpy(a, y, (size_t)k * sizeof *a);
            have = k;
            bound = a[k - 1].key, above = true;
        }
    }
    item *y = merge_sort(a, tmp, have);
    if (y != a)
        memcpy(a, y, (size_t)k * sizeof *a);
}

static void top_lines(void *ctx, size_t begin, size_t end)
{
    top_job *j = ctx;
    const xl_step *s = j->s;
    const sorting *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0);
    int64_t k = xl_out_shape(s, 0)->dims[x->rank - 1], most = 4 * k > SAMPLE ? 4 * k : SAMPLE;
    bool some = k && most <= d->len / 2;
    if (!some)
        most = d->len;
    item *a = malloc((size_t)(most + 1) * 2 * sizeof *a), *it = a;
    uint64_t *key = malloc((size_t)d->len * sizeof *key + 1);
    if (!a || !key) {
        j->failed = 1;
        goto out;
    }
    for (size_t l = begin; l < end; l++) {
        const char *p = (const char *)xl_in(s, j->f, 0) + l * (size_t)d->len * x->elem;
        keys_of(key, p, x->dtype, d->len, 1, false, true);
        if (some)
            select_items(a, a + most + 1, key, d->len, k, most);
        else
            it = sort_items(a, a + most, key, d->len);
        for (int64_t i = 0; i < k; i++) {
            memcpy((char *)xl_out(s, j->f, 0) + (l * (size_t)k + (size_t)i) * x->elem, p + (size_t)it[i].at * x->elem,
                   x->elem);
            ((int32_t *)xl_out(s, j->f, 1))[l * (size_t)k + (size_t)i] = (int32_t)it[i].at;
        }
    }
out:
    free(a);
    free(key);
}
static xl_error *run_top_k(const xl_step *s, xl_frame *f)
{
    const sorting *d = s->data;
    top_job j = { .s = s, .f = f };
    if (d->lines && d->len)
        xl_pool_for(f->pool, (size_t)d->lines, (size_t)((1 << 14) / (d->len + 1) + 1), top_lines, &j);
    return j.failed ? XL_ERR(EXHAUSTED, "no memory to sort") : NULL;
}
xl_error *xl_kernel_top_k(xl_planner *p, const xl_op *op)
{
    sorting *d = xl_new(p->a, sorting, 1);
    xl_error *err = lines(p, op, d, -1);
    if (err)
        return err;
    const xl_type *in = xl_in_type(p->f, op, 0), *out = xl_out_type(p->f, op, 0);
    if (op->nout != 2 || out->rank != in->rank || out->dims[in->rank - 1] > d->len ||
        xl_out_type(p->f, op, 1)->dtype != XL_I32)
        return xl_plan_unsupported(p, op, "its result shapes or types do not match a top_k");
    return xl_plan_step(p, op, run_top_k, d, 0);
}
