/* Matrix products: by the GEMM for the types that it supports, otherwise by plain loops over a wider type. */
#include <stdlib.h>

#include "cpu/kernel/ew.h"
#include "cpu/plan/group.h"
#include "cpu/kernel/gemm.h"
#include "cpu/kernel/pairs.h"
#include "cpu/kernel/strided.h"
#include "cpu/run/feature.h"

XL_CPU_SETS(xl_pairs_set, xl_pairs)

/* XLA's CPU adds a product's terms one after another where the columns are a multiple of WHOLE, and elsewhere as four
 * sums. So as to be as exact, each sum is one of PARTS sums there. */
enum { WHOLE = 64, PARTS = 6 };

typedef struct {
    int64_t n[XL_RANK_MAX], a[XL_RANK_MAX], b[XL_RANK_MAX];
    uint32_t rank;
    int64_t count;
} axes; /* strides in elements */

typedef struct {
    axes batch, m, n, k;                                   /* a strides in lhs, b in rhs */
    xl_dtype in, out;
    bool gemm;
    xl_gemm g;
    int64_t off_a, off_b;                                  /* in bytes */
    size_t bytes_a, bytes_b;
    bool copy_a, copy_b;                                   /* operands that must be brought in order first */
    xl_strided va, vb;
    xl_ew load, loadb, store;                              /* to and from the wide type */
    xl_dtype wide;
} dot;

static bool gemm_type(xl_dtype d, xl_gemm_type *t)
{
    switch (d) {
    case XL_F32: *t = XL_GEMM_F32; return true;
    case XL_F64: *t = XL_GEMM_F64; return true;
    case XL_BF16: *t = XL_GEMM_BF16; return true;
    case XL_F16: *t = XL_GEMM_F16; return true;
    case XL_I8: *t = XL_GEMM_I8; return true;
    case XL_U8: *t = XL_GEMM_U8; return true;
    case XL_I32: *t = XL_GEMM_I32; return true;
    default: return false;
    }
}

static bool joins(const axes *x, const int64_t *stride, int64_t *out)
{
    *out = x->rank ? stride[x->rank - 1] : 0;
    for (uint32_t i = 0; i + 1 < x->rank; i++)
        if (stride[i] != stride[i + 1] * x->n[i + 1])
            return false;
    return true;
}

static xl_error *run_gemm(const xl_step *s, xl_frame *f)
{
    const dot *d = s->data;
    xl_gemm g = d->g;
    g.a = (const char *)xl_in(s, f, 0) + d->off_a;
    g.b = (const char *)xl_in(s, f, 1) + d->off_b;
    g.c = xl_out(s, f, 0);
    if (d->copy_a) {
        xl_strided_run(&d->va, xl_out(s, f, 1), g.a, f->pool);
        g.a = xl_out(s, f, 1);
    }
    if (d->copy_b) {
        xl_strided_run(&d->vb, xl_out(s, f, 2), g.b, f->pool);
        g.b = xl_out(s, f, 2);
    }
    return xl_gemm_run(f->pool, &g) ? NULL : XL_ERR(INTERNAL, "the matrix product refused its types");
}

static xl_error *run_members(const xl_step *s, xl_frame *f, size_t begin, size_t end)
{
    const dot *d = s->data;
    xl_gemm g = d->g;
    g.a = (const char *)xl_in(s, f, 0) + d->off_a;
    g.b = (const char *)xl_in(s, f, 1) + d->off_b;
    g.c = xl_out(s, f, 0);
    xl_gemm_members(&g, begin, end);
    return NULL;
}

/* The elements of a factor that a member of the batch has for itself, one member after the other; 0 if there are none.
 * It is rows x k. */
static int64_t member_of(const xl_gemm *g, const ptrdiff_t *batch, int64_t off, size_t rows, ptrdiff_t row, ptrdiff_t k)
{
    int64_t each = batch[g->nbatch - 1], run = each;
    for (size_t i = g->nbatch; i-- > 0; run *= (int64_t)g->batch[i])
        if (batch[i] != run)
            return 0;
    int64_t last = off + (int64_t)(rows - 1) * row + (int64_t)(g->k - 1) * k;
    return off >= 0 && row >= 0 && k >= 0 && last < each ? each : 0;
}

static const xl_slices *slices_of(xl_arena *a, const dot *d, size_t elem_a, size_t elem_b, size_t elem_c)
{
    const xl_gemm *g = &d->g;
    if (!g->nbatch || d->copy_a || d->copy_b || !g->m || !g->n || !g->k)
        return NULL;
    xl_slices *s = xl_new(a, xl_slices, 1);
    size_t *stride = xl_new(a, size_t, 3);
    stride[0] = (size_t)member_of(g, g->a_batch, d->off_a / (int64_t)elem_a, g->m, g->a_row, g->a_col) * elem_a;
    stride[1] = (size_t)member_of(g, g->b_batch, d->off_b / (int64_t)elem_b, g->n, g->b_col, g->b_row) * elem_b;
    stride[2] = g->m * g->n * elem_c;
    *s = (xl_slices){ run_members, 1, stride };
    for (size_t i = 0; i < g->nbatch; i++)
        s->units *= (int64_t)g->batch[i];
    return s;
}

static int64_t offset(const axes *x, const int64_t *stride, int64_t i)
{
    int64_t at = 0;
    for (uint32_t k = x->rank; k-- > 0; ) {
        at += i % x->n[k] * stride[k];
        i /= x->n[k];
    }
    return at;
}

/* The factors in the wide type, and the result in it. */
typedef struct { const dot *d; const char *a, *b; char *c; const int64_t *ka, *kb; char *packed; bool turned; } plain;

#define LOOP(name, T, ACC)                                                                                             \
    static void name(const plain *p)                                                                                   \
    {                                                                                                                  \
        const dot *d = p->d;                                                                                           \
        T *to = (T *)(void *)p->c;                                                                                     \
        for (int64_t g = 0; g < d->batch.count; g++)                                                                   \
            for (int64_t i = 0; i < d->m.count; i++) {                                                                 \
                const T *a = (const T *)(const void *)p->a + offset(&d->batch, d->batch.a, g) +                        \
                             offset(&d->m, d->m.a, i);                                                                 \
                for (int64_t j = 0; j < d->n.count; j++) {                                                             \
                    const T *b = (const T *)(const void *)p->b + offset(&d->batch, d->batch.b, g) +                    \
                                 offset(&d->n, d->n.b, j);                                                             \
                    ACC sum = 0;                                                                                       \
                    for (int64_t k = 0; k < d->k.count; k++)                                                           \
                        sum += (ACC)a[p->ka[k]] * b[p->kb[k]];                                                         \
                    *to++ = (T)sum;                                                                                    \
                }                                                                                                      \
            }                                                                                                          \
    }
LOOP(floats, float, double)
LOOP(doubles, double, double)
LOOP(integers, uint64_t, uint64_t)
#undef LOOP

/* Complex numbers as pairs. ACC is wider than T where there is a wider type; not for a few products, which are as exact
 * as XLA's CPU's if they are rounded and added in order, as there.
 *
 * The factor with more columns (or rows: `turned`) is first laid out as ACC, real and imaginary parts apart, one line
 * for each k; then the sums of some columns are made side by side (pairs.h). Narrow factors are read where they lie. */
enum { FEW_PRODUCTS = 8, NARROW = 8, PACKED = 1 << 14, CHUNK_PRODUCTS = 1 << 15 };
#define PAIRS(name, T, ACC)                                                                                            \
    static void pack_##name(void *ctx, size_t begin, size_t end)                                                       \
    {                                                                                                                  \
        const plain *p = ctx;                                                                                          \
        const dot *d = p->d;                                                                                           \
        const axes *x = p->turned ? &d->m : &d->n;                                                                     \
        const int64_t *stride = p->turned ? x->a : x->b, *batch = p->turned ? d->batch.a : d->batch.b,                 \
                      *k = p->turned ? p->ka : p->kb;                                                                  \
        const T *from = (const T *)(const void *)(p->turned ? p->a : p->b);                                            \
        for (int64_t l = (int64_t)begin; l < (int64_t)end; l++) {                                                      \
            int64_t g = l / d->k.count, first = offset(&d->batch, batch, g) + k[l % d->k.count], n = x->count;         \
            int64_t last = x->rank ? x->n[x->rank - 1] : 1, next = x->rank ? stride[x->rank - 1] : 0;                  \
            ACC *re = (ACC *)(void *)p->packed + 2 * l * n, *im = re + n;                                              \
            for (int64_t j = 0; j < n; j += last) {                                                                    \
                const T *v = from + 2 * (first + offset(x, stride, j));                                                \
                for (int64_t i = 0; i < last; i++)                                                                     \
                    re[j + i] = v[2 * i * next], im[j + i] = v[2 * i * next + 1];                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void rows_##name(void *ctx, size_t begin, size_t end)                                                       \
    {                                                                                                                  \
        const plain *p = ctx;                                                                                          \
        const dot *d = p->d;                                                                                           \
        const axes *x = p->turned ? &d->n : &d->m;                                                                     \
        const int64_t *stride = p->turned ? x->b : x->a, *batch = p->turned ? d->batch.b : d->batch.a,                 \
                      *ks = p->turned ? p->kb : p->ka;                                                                 \
        const T *from = (const T *)(const void *)(p->turned ? p->b : p->a);                                            \
        int64_t n = p->turned ? d->m.count : d->n.count;                                                               \
        const xl_pairs_set *pairs = xl_pairs_best();                                                                   \
        for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {                                                      \
            int64_t g = r / x->count, i = r % x->count;                                                                \
            const T *u = from + 2 * (offset(&d->batch, batch, g) + offset(x, stride, i));                              \
            for (int64_t j = 0; j < n; j += XL_PAIRS_MOST) {                                                           \
                ACC re[XL_PAIRS_MOST], im[XL_PAIRS_MOST];                                                              \
                int64_t m = n - j < XL_PAIRS_MOST ? n - j : XL_PAIRS_MOST;                                             \
                pairs->name(re, im, u, ks, (const ACC *)(const void *)p->packed + 2 * g * d->k.count * n + j,          \
                            (size_t)n, (size_t)d->k.count, (size_t)m);                                                 \
                int64_t apart = p->turned ? x->count : 1;                                                              \
                T *to = (T *)(void *)p->c + 2 * (p->turned ? (g * n + j) * apart + i : r * n + j);                     \
                for (int64_t q = 0; q < m; q++)                                                                        \
                    to[2 * q * apart] = (T)re[q], to[2 * q * apart + 1] = (T)im[q];                                    \
            }                                                                                                          \
        }                                                                                                              \
    }
#define DIRECT(name, T, ACC)                                                                                           \
    static void narrow_##name(const plain *p)                                                                          \
    {                                                                                                                  \
        const dot *d = p->d;                                                                                           \
        T *to = (T *)(void *)p->c;                                                                                     \
        for (int64_t g = 0; g < d->batch.count; g++)                                                                   \
            for (int64_t i = 0; i < d->m.count; i++)                                                                   \
                for (int64_t j = 0; j < d->n.count; j++, to += 2) {                                                    \
                    const T *a = (const T *)(const void *)p->a +                                                       \
                                 2 * (offset(&d->batch, d->batch.a, g) + offset(&d->m, d->m.a, i));                    \
                    const T *b = (const T *)(const void *)p->b +                                                       \
                                 2 * (offset(&d->batch, d->batch.b, g) + offset(&d->n, d->n.b, j));                    \
                    ACC re = 0, im = 0;                                                                                \
                    for (int64_t k = 0; k < d->k.count; k++) {                                                         \
                        const T *u = a + 2 * p->ka[k], *v = b + 2 * p->kb[k];                                          \
                        re += (ACC)u[0] * v[0] - (ACC)u[1] * v[1];                                                     \
                        im += (ACC)u[0] * v[1] + (ACC)u[1] * v[0];                                                     \
                    }                                                                                                  \
                    to[0] = (T)re, to[1] = (T)im;                                                                      \
                }                                                                                                      \
    }
DIRECT(few, float, float)
DIRECT(c64, float, double)
DIRECT(c128, double, double)
#undef DIRECT
PAIRS(few, float, float)
PAIRS(c64, float, double)
PAIRS(c128, double, double)
#undef PAIRS

static void run_pairs(const plain *p, xl_pool *pool)
{
    const dot *d = p->d;
    bool few = d->wide == XL_C64 && d->k.count <= FEW_PRODUCTS;
    plain q = *p;
    if (!p->packed) {
        (few ? narrow_few : d->wide == XL_C64 ? narrow_c64 : narrow_c128)(&q);
        return;
    }
    int64_t lines = d->batch.count * d->k.count, across = p->turned ? d->m.count : d->n.count,
            rows = d->batch.count * (p->turned ? d->n.count : d->m.count);
    xl_pool_for(pool, (size_t)lines, (size_t)(PACKED / (across + 1) + 1),
                few ? pack_few : d->wide == XL_C64 ? pack_c64 : pack_c128, &q);
    xl_pool_for(pool, (size_t)rows, (size_t)(CHUNK_PRODUCTS / (across * d->k.count + 1) + 1),
                few ? rows_few : d->wide == XL_C64 ? rows_c64 : rows_c128, &q);
}

static xl_error *run_plain(const xl_step *s, xl_frame *f)
{
    const dot *d = s->data;
    const xl_extent *x = xl_in_shape(s, 0), *y = xl_in_shape(s, 1), *z = xl_out_shape(s, 0);
    size_t w = xl_dtype_bytes(d->wide);
    bool pairs = d->wide == XL_C64 || d->wide == XL_C128, own_a = x->dtype != d->wide, own_b = y->dtype != d->wide,
         own_c = z->dtype != d->wide;
    plain p = { .d = d, .turned = pairs && d->n.count < 4 && d->m.count > d->n.count };
    int64_t across = p.turned ? d->m.count : d->n.count;
    bool pack = pairs && across >= NARROW;
    xl_error *err = NULL;
    void *wa = malloc(own_a ? (size_t)x->count * w + 1 : 1), *wb = malloc(own_b ? (size_t)y->count * w + 1 : 1),
         *c = malloc(own_c ? (size_t)z->count * w + 1 : 1);
    int64_t *ka = malloc((size_t)d->k.count * 2 * sizeof *ka + 1);
    p.packed = pack ? malloc((size_t)(d->batch.count * d->k.count * across) * 2 * sizeof(double) + 1) : NULL;
    if (!wa || !wb || !c || !ka || (pack && !p.packed)) {
        err = XL_ERR(EXHAUSTED, "no memory for the product");
        goto out;
    }
    int64_t *kb = ka + d->k.count;
    for (int64_t k = 0; k < d->k.count; k++) {
        ka[k] = offset(&d->k, d->k.a, k);
        kb[k] = offset(&d->k, d->k.b, k);
    }
    const void *in[1] = { xl_in(s, f, 0) };
    if (own_a)
        d->load.fn(wa, in, (size_t)x->count, d->load.ctx);
    p.a = (own_a ? wa : in[0]);
    in[0] = xl_in(s, f, 1);
    if (own_b)
        d->loadb.fn(wb, in, (size_t)y->count, d->loadb.ctx);
    p.b = (own_b ? wb : in[0]);
    p.a += d->off_a / (int64_t)x->elem * (int64_t)w;
    p.b += d->off_b / (int64_t)y->elem * (int64_t)w;
    p.c = own_c ? c : xl_out(s, f, 0);
    p.ka = ka, p.kb = kb;
    switch (d->wide) {
    case XL_F32: floats(&p); break;
    case XL_F64: doubles(&p); break;
    case XL_I64: integers(&p); break;
    default: run_pairs(&p, f->pool); break;
    }
    in[0] = c;
    if (own_c)
        d->store.fn(xl_out(s, f, 0), in, (size_t)z->count, d->store.ctx);
out:
    free(wa);
    free(wb);
    free(c);
    free(ka);
    free(p.packed);
    return err;
}

static bool in_list(xl_dims d, int64_t v)
{
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] == v)
            return true;
    return false;
}
static void add_axis(axes *x, int64_t n, int64_t a, int64_t b)
{
    x->n[x->rank] = n;
    x->a[x->rank] = a;
    x->b[x->rank++] = b;
    x->count *= n;
}

static xl_error *add(xl_planner *p, const xl_op *op, xl_step_fn *run, const dot *d, const xl_view *a, const xl_view *b,
                     xl_step **s)
{
    uint32_t in[2] = { p->leaf[a->base.id].buf[0], p->leaf[b->base.id].buf[0] };
    xl_value val[2] = { a->base, b->base };
    xl_op **ops = xl_new(p->a, xl_op *, 1);
    ops[0] = (xl_op *)(uintptr_t)op;
    xl_extent shape[2];
    bool in_place = false;
    xl_error *err = xl_shape_of(p, xl_value_type(p->f, a->base), &shape[0]);
    if (!err)
        err = xl_shape_of(p, xl_value_type(p->f, b->base), &shape[1]);
    size_t temp[2] = { d->copy_a ? d->bytes_a : 0, d->copy_b ? d->bytes_b : 0 };
    return err ? err
               : xl_plan_step_group(p, xl_op_text(op), run, d, ops, 1, in, val, shape, 2, op->out, &in_place, 1, 0,
                                    temp, d->copy_a || d->copy_b ? 2 : 0, s);
}

/* Does the matrix kernel take these types? It sums in the type of the result, or wider. */
static bool gemm_types(xl_gemm *g, xl_dtype l, xl_dtype r, xl_dtype o)
{
    if (!gemm_type(l, &g->a_type) || !gemm_type(r, &g->b_type) || !gemm_type(o, &g->c_type))
        return false;
    if (l == XL_F64 || r == XL_F64 || o == XL_F64)
        return l == XL_F64 && r == XL_F64 && o == XL_F64;
    if (xl_dtype_class(l) == XL_CLASS_FLOAT)
        return xl_dtype_class(r) == XL_CLASS_FLOAT && xl_dtype_class(o) == XL_CLASS_FLOAT;
    return o == XL_I32;
}

/* The type of the plain loops: integers whose product is a float are numbers like any other, they do not wrap. */
static xl_dtype wide_type(xl_dtype l, xl_dtype r, xl_dtype o)
{
    xl_dclass cl = xl_dtype_class(l), cr = xl_dtype_class(r), co = xl_dtype_class(o);
    if (cl == XL_CLASS_COMPLEX || cr == XL_CLASS_COMPLEX || co == XL_CLASS_COMPLEX)
        return o == XL_C64 ? XL_C64 : XL_C128;
    if (cl != XL_CLASS_FLOAT && cr != XL_CLASS_FLOAT && co != XL_CLASS_FLOAT)
        return XL_I64;
    bool narrow = cl == XL_CLASS_FLOAT && cr == XL_CLASS_FLOAT && l != XL_F64 && r != XL_F64 && o != XL_F64;
    return narrow ? XL_F32 : XL_F64;
}

/* The batch dimensions, those joined that run on in both operands. */
static axes join_batch(const axes *batch)
{
    axes bt = { .rank = 0, .count = 1 };
    for (uint32_t i = 0; i < batch->rank; i++) {
        if (batch->n[i] == 1)
            continue;
        uint32_t t = bt.rank;
        if (t && bt.a[t - 1] == batch->a[i] * batch->n[i] && bt.b[t - 1] == batch->b[i] * batch->n[i]) {
            bt.n[t - 1] *= batch->n[i];
            bt.a[t - 1] = batch->a[i];
            bt.b[t - 1] = batch->b[i];
        } else {
            add_axis(&bt, batch->n[i], batch->a[i], batch->b[i]);
        }
    }
    return bt;
}

/* The copy of an operand (b: the second) that makes it dense, with its dimensions in the order of `all`. */
static void copy_operand(xl_strided *v, const axes *const all[3], bool b, size_t elem)
{
    int64_t dim[XL_RANK_MAX], from[XL_RANK_MAX], to[XL_RANK_MAX];
    uint32_t k = 0;
    for (int t = 0; t < 3; t++)
        for (uint32_t i = 0; i < all[t]->rank; i++)
            dim[k] = all[t]->n[i], from[k++] = (b ? all[t]->b[i] : all[t]->a[i]) * (int64_t)elem;
    xl_row_major(to, k, dim, elem);
    xl_strided_init(v, elem, k, dim, to, from);
}

/* The product as matrices with strides; an operand that cannot be read like that is copied first. */
static void plan_gemm(dot *d, const xl_extent *l, const xl_extent *r)
{
    xl_gemm *g = &d->g;
    int64_t ma = 0, ka = 0, kb = 0, nb = 0;
    bool a_ok = joins(&d->m, d->m.a, &ma) && joins(&d->k, d->k.a, &ka),
         b_ok = joins(&d->n, d->n.b, &nb) && joins(&d->k, d->k.b, &kb);
    axes bt = join_batch(&d->batch);
    if (bt.rank > XL_GEMM_BATCH)
        a_ok = b_ok = false;
    if (!a_ok) {
        copy_operand(&d->va, (const axes *const[]){ &d->batch, &d->m, &d->k }, false, l->elem);
        d->copy_a = true;
        ma = d->k.count, ka = 1;
    }
    if (!b_ok) {
        copy_operand(&d->vb, (const axes *const[]){ &d->batch, &d->k, &d->n }, true, r->elem);
        d->copy_b = true;
        kb = d->n.count, nb = 1;
    }
    if (bt.rank > XL_GEMM_BATCH) {
        bt = (axes){ .rank = 0, .count = 1 };
        add_axis(&bt, d->batch.count, d->m.count * d->k.count, d->n.count * d->k.count);
    } else if (bt.rank) {                                  /* a copied operand's batches are dense */
        int64_t run = 1;
        for (uint32_t i = bt.rank; i-- > 0; ) {
            if (!a_ok)
                bt.a[i] = run * d->m.count * d->k.count;
            if (!b_ok)
                bt.b[i] = run * d->n.count * d->k.count;
            run *= bt.n[i];
        }
    }
    g->m = (size_t)d->m.count, g->n = (size_t)d->n.count, g->k = (size_t)d->k.count;
    g->parts = g->c_type == XL_GEMM_F32 && g->n % WHOLE ? PARTS : 0;
    g->a_row = ma, g->a_col = ka, g->b_row = kb, g->b_col = nb, g->c_row = d->n.count;
    int64_t run = 1;
    g->nbatch = bt.rank;
    for (uint32_t i = bt.rank; i-- > 0; ) {
        g->batch[i] = (size_t)bt.n[i];
        g->a_batch[i] = bt.a[i];
        g->b_batch[i] = bt.b[i];
        g->c_batch[i] = run * d->m.count * d->n.count;
        run *= bt.n[i];
    }
}

static xl_error *plan_dot(xl_planner *p, const xl_op *op, xl_dims lb, xl_dims rb, xl_dims lc, xl_dims rc)
{
    xl_extent l, r, o;
    int64_t ls[XL_RANK_MAX], rs[XL_RANK_MAX];
    xl_error *err = xl_shape_of(p, xl_in_type(p->f, op, 0), &l);
    if (!err)
        err = xl_shape_of(p, xl_in_type(p->f, op, 1), &r);
    if (!err)
        err = xl_shape_of(p, xl_out_type(p->f, op, 0), &o);
    if (err)
        return err;
    dot *d = xl_new(p->a, dot, 1);
    d->batch.count = d->m.count = d->n.count = d->k.count = 1;
    xl_view va, vb;
    xl_step *s;
    xl_dot_view(p, op, 0, &va);
    xl_dot_view(p, op, 1, &vb);
    memcpy(ls, va.stride, l.rank * sizeof *ls);
    memcpy(rs, vb.stride, r.rank * sizeof *rs);
    d->off_a = va.offset * (int64_t)l.elem, d->off_b = vb.offset * (int64_t)r.elem;
    d->bytes_a = l.bytes, d->bytes_b = r.bytes;
    for (size_t i = 0; i < lb.n; i++)
        add_axis(&d->batch, l.dims[lb.p[i]], ls[lb.p[i]], rs[xl_dims_at(rb, i, 0)]);
    for (size_t i = 0; i < lc.n; i++)
        add_axis(&d->k, l.dims[lc.p[i]], ls[lc.p[i]], rs[xl_dims_at(rc, i, 0)]);
    for (uint32_t i = 0; i < l.rank; i++)
        if (!in_list(lb, i) && !in_list(lc, i))
            add_axis(&d->m, l.dims[i], ls[i], 0);
    for (uint32_t i = 0; i < r.rank; i++)
        if (!in_list(rb, i) && !in_list(rc, i))
            add_axis(&d->n, r.dims[i], 0, rs[i]);
    if (d->batch.count * d->m.count * d->n.count != o.count)
        return xl_plan_unsupported(p, op, "its result shape does not match the product");
    p->plan->flops += 2.0 * (double)o.count * (double)d->k.count;
    d->in = l.dtype;
    d->out = o.dtype;
    if (gemm_types(&d->g, l.dtype, r.dtype, o.dtype)) {
        plan_gemm(d, &l, &r);
        if (!(err = add(p, op, run_gemm, d, &va, &vb, &s)))
            s->slices = slices_of(p->a, d, l.elem, r.elem, o.elem);
        return err;
    }
    d->wide = wide_type(l.dtype, r.dtype, o.dtype);
    d->load = xl_ew_convert(p->a, l.dtype, d->wide);
    d->loadb = xl_ew_convert(p->a, r.dtype, d->wide);
    d->store = xl_ew_convert(p->a, d->wide, o.dtype);
    return add(p, op, run_plain, d, &va, &vb, &s);
}

xl_error *xl_kernel_dot_general(xl_planner *p, const xl_op *op)
{
    return plan_dot(p, op, xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)),
                    xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_batching_dimensions)),
                    xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)),
                    xl_op_dims(op, XL_SLOT(DOT_GENERAL, rhs_contracting_dimensions)));
}
xl_error *xl_kernel_dot(xl_planner *p, const xl_op *op)
{
    int64_t *c = xl_new(p->a, int64_t, 2);
    c[0] = (int64_t)xl_in_type(p->f, op, 0)->rank - 1;
    xl_dims none = { NULL, 0 };
    if (c[0] < 0)
        return xl_plan_unsupported(p, op, "an operand without dimensions");
    return plan_dot(p, op, none, none, (xl_dims){ c, 1 }, (xl_dims){ c + 1, 1 });
}
