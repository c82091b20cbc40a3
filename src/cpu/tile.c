/* Tile programs: how a group runs. The space of a group is rows and columns; a tile is some rows with all their columns, or a piece
 * of one row. For each tile a short list of instructions runs over slots of a few kilobytes that stay in the first cache:
 * loads of what does not lie there as it is wanted, elementwise functions, reductions, stores. Operands that lie in order are read, and
 * results that may be written are written, where they are; nothing is copied then.
 *
 * Narrow floats are f32 in slots, and rounded after each op, as the specification has it. What does not depend on the tile (numbers,
 * vectors along the columns) is laid out once per chunk. Chunks are what the pool shares; they and the order in which their
 * partial sums meet depend on the shapes alone. */
#include <stdatomic.h>
#include <stdlib.h>

#include "cpu/dtype.h"
#include "cpu/ew.h"
#include "cpu/fuse.h"
#include "cpu/kernel/fold.h"
#include "cpu/strided.h"

enum { TILE = 1024, CHUNK = 1 << 15, PARTS_MAX = 32, INLINE_MAX = 1 << 14, WORTH = 1 << 16, LINE = 256 };
enum { NO_REG = 0xffff, NOT_ONE = 99 };

typedef enum { DO_EW, DO_EW_ROWS, DO_SPREAD, DO_LOAD, DO_LOAD_ROW, DO_ROW, DO_COL, DO_ALL } act;

typedef struct { uint32_t buf; int64_t off, row, col; size_t elem; } direct; /* elements: off + r * row + c * col */

typedef struct {                                           /* what is not read where it lies */
    uint32_t buf;
    int64_t off;
    size_t elem;
    const int64_t *stride;                                 /* per dimension of the space */
    xl_widen_fn *widen;
} load;

typedef struct {
    act act;
    bool row;                                              /* over the tile's rows, not its elements */
    uint16_t dst, src[3];
    uint32_t nsrc, arg;                                    /* arg: which load; DO_ROW: operand with the initial value; DO_COL, DO_ALL: which partial */
    size_t elem;
    xl_ew ew;
    xl_line_fn *line;
    xl_widen_fn *widen;                                    /* of the initial value */
} instr;

typedef struct {                                           /* a result that chunks make in parts */
    uint32_t out, init, temp;                              /* buffers of the step */
    bool all;
    xl_ew ew;
    size_t elem;
    xl_widen_fn *widen;
    xl_narrow_fn *narrow;
} partial;

typedef struct {
    uint32_t rank, split;
    int64_t dim[XL_RANK_MAX];
    int64_t rows, cols, tile_rows, tile_cols;
    bool by_cols;                                          /* chunks are ranges of columns */
    size_t n, grain, nchunk;                               /* of rows or columns */
    uint32_t nhoist, ninstr;
    const instr *hoist, *ins;
    uint32_t ndirect, nslot, npart, nload;
    const direct *dir;
    const load *loads;
    const partial *part;
    size_t slot_bytes;
    double work;
} program;

typedef struct { const program *p; const xl_step *s; void *const *ptr; atomic_bool *failed; } job;

/* ---- running ---------------------------------------------------------------------------------------------------- */
static inline char *buffer(const job *j, uint32_t i) { return j->ptr[j->s->buf[i]]; }

static inline void fill4(char *to, const char *from, int64_t n)
{
    uint32_t v, *y = (uint32_t *)(void *)to;
    memcpy(&v, from, 4);
    for (int64_t i = 0; i < n; i++)
        y[i] = v;
}

static void load_line(char *to, const load *l, const char *from, int64_t n, int64_t stride)
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
        char raw[LINE * 4];
        for (int64_t i = 0; i < n; i += LINE) {
            int64_t m = n - i < LINE ? n - i : LINE;
            for (int64_t k = 0; k < m; k++)
                memcpy(raw + (size_t)k * e, from + (i + k) * stride * (int64_t)e, e);
            l->widen((float *)(void *)(to + (size_t)i * 4), raw, (size_t)m);
        }
    } else {
        int64_t s = stride * (int64_t)e;
        switch (e) {
        case 4: for (int64_t i = 0; i < n; i++) ((uint32_t *)(void *)to)[i] = *(const uint32_t *)(const void *)(from + i * s); break;
        case 8: for (int64_t i = 0; i < n; i++) ((uint64_t *)(void *)to)[i] = *(const uint64_t *)(const void *)(from + i * s); break;
        default: for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * e, from + i * s, e);
        }
    }
}

/* Rows one after another: where each begins, without a division per row. */
typedef struct { int64_t at[XL_RANK_MAX], offset; } walker;

static void walk_from(const program *p, const int64_t *stride, int64_t r, walker *w)
{
    w->offset = 0;
    for (uint32_t k = p->split; k-- > 0; ) {
        w->at[k] = r % p->dim[k];
        w->offset += w->at[k] * stride[k];
        r /= p->dim[k];
    }
}
static inline void walk_on(const program *p, const int64_t *stride, walker *w)
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

static void short_rows(uint32_t *restrict to, const uint32_t *restrict from, int64_t n, int64_t step, int64_t nc, int64_t stride)
{
    if (stride == 0) {
        for (int64_t r = 0; r < n; r++, to += nc, from += step) {
            uint32_t v = *from;
            four all = { v, v, v, v };
            int64_t i = 0;
            for (; i + 4 <= nc; i += 4)
                *(four *)(void *)(to + i) = all;
            for (; i < nc; i++)
                to[i] = v;
        }
        return;
    }
    for (int64_t r = 0; r < n; r++, to += nc, from += step) {
        int64_t i = 0;
        for (; i + 4 <= nc; i += 4)
            *(four *)(void *)(to + i) = *(const four *)(const void *)(from + i);
        for (; i < nc; i++)
            to[i] = from[i];
    }
}

static void load_short(const program *p, const load *l, uint32_t *to, const uint32_t *base, int64_t r0, int64_t nr, int64_t nc, int64_t stride)
{
    walker w;
    walk_from(p, l->stride, r0, &w);
    if (!p->split) {
        short_rows(to, base, nr, 0, nc, stride);
        return;
    }
    uint32_t k = p->split - 1;
    for (int64_t r = 0; r < nr; ) {
        int64_t n = p->dim[k] - w.at[k] < nr - r ? p->dim[k] - w.at[k] : nr - r;
        short_rows(to + r * nc, base + w.offset, n, l->stride[k], nc, stride);
        r += n;
        w.at[k] += n - 1;                                  /* to the last of them, then on */
        w.offset += (n - 1) * l->stride[k];
        walk_on(p, l->stride, &w);
    }
}

static void run_load(const job *j, const load *l, char *to, int64_t r0, int64_t nr, int64_t c0, int64_t nc)
{
    const program *p = j->p;
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

static void run_load_row(const job *j, const load *l, char *to, int64_t r0, int64_t nr)
{
    const char *base = buffer(j, l->buf) + l->off * (int64_t)l->elem;
    size_t oe = l->widen ? 4 : l->elem;
    walker w;
    walk_from(j->p, l->stride, r0, &w);
    for (int64_t r = 0; r < nr; r++, walk_on(j->p, l->stride, &w))
        load_line(to + (size_t)r * oe, l, base + w.offset * (int64_t)l->elem, 1, 1);
}

static void initial(const job *j, const instr *x, char *acc)
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

static void run_instr(const job *j, const instr *x, char *const *ref, int64_t r0, int64_t nr, int64_t c0, int64_t nc, char *const *acc, const bool *fresh)
{
    const program *p = j->p;
    char *dst = x->dst == NO_REG ? NULL : ref[x->dst];
    switch (x->act) {
    case DO_EW: {
        const void *in[3] = { ref[x->src[0]], ref[x->src[1]], ref[x->src[2]] };
        x->ew.fn(dst, in, (size_t)(x->row ? nr : nr * nc), x->ew.ctx);
        break;
    }
    case DO_EW_ROWS:                                       /* operand `arg` is one number per row */
        for (int64_t r = 0; r < nr; r++) {
            const void *in[3] = { ref[x->src[0]] + (x->arg == 0 ? r : r * nc) * 4, ref[x->src[1]] + (x->arg == 1 ? r : r * nc) * 4, NULL };
            x->ew.fn(dst + r * nc * 4, in, (size_t)nc, x->ew.ctx);
        }
        break;
    case DO_SPREAD: spread(dst, ref[x->src[0]], nr, nc, x->elem); break;
    case DO_LOAD: run_load(j, &p->loads[x->arg], dst, r0, nr, c0, nc); break;
    case DO_LOAD_ROW: run_load_row(j, &p->loads[x->arg], dst, r0, nr); break;
    case DO_ROW: {
        const char *src = ref[x->src[0]];
        for (int64_t r = 0; r < nr; r++) {
            char *a = dst + (size_t)r * x->elem;
            initial(j, x, a);
            x->line(a, src + (size_t)(r * nc) * x->elem, (size_t)nc);
        }
        break;
    }
    case DO_COL: {
        const char *src = ref[x->src[0]];
        char *a = acc[x->arg] + (size_t)c0 * x->elem;
        for (int64_t r = 0; r < nr; r++) {
            const void *in[3] = { a, src + (size_t)(r * nc) * x->elem, NULL };
            if (*fresh && r == 0)
                memcpy(a, in[1], (size_t)nc * x->elem);
            else
                x->ew.fn(a, in, (size_t)nc, x->ew.ctx);
        }
        break;
    }
    case DO_ALL: {
        const char *src = ref[x->src[0]];
        char *a = acc[x->arg];
        size_t n = (size_t)(nr * nc), skip = 0;
        if (fresh[1]) {
            memcpy(a, src, x->elem);
            skip = 1;
        }
        x->line(a, src + skip * x->elem, n - skip);
        break;
    }
    }
}

static void run_chunk(void *ctx, size_t begin, size_t end)
{
    const job *j = ctx;
    const program *p = j->p;
    char *small[192];
    char **ref = small;
    size_t nref = (size_t)p->ndirect + p->nslot + p->npart;
    char *mem = xl_scratch(XL_SCRATCH_PLAN, (size_t)p->nslot * p->slot_bytes + nref * sizeof *ref + XL_ALIGN);
    if (!mem) {
        atomic_store(j->failed, true);
        return;
    }
    if (nref > 192)
        ref = (char **)(void *)(mem + (size_t)p->nslot * p->slot_bytes);
    char **acc = ref + p->ndirect + p->nslot;
    for (uint32_t i = 0; i < p->nslot; i++)
        ref[p->ndirect + i] = mem + (size_t)i * p->slot_bytes;
    for (uint32_t i = 0; i < p->npart; i++) {
        const partial *q = &p->part[i];
        size_t each = (q->all ? 1 : p->by_cols ? 0 : (size_t)p->cols) * q->elem;
        acc[i] = buffer(j, q->temp) + begin / p->grain * each;
    }
    int64_t ra = p->by_cols ? 0 : (int64_t)begin, rb = p->by_cols ? p->rows : (int64_t)end;
    int64_t ca = p->by_cols ? (int64_t)begin : 0, cb = p->by_cols ? (int64_t)end : p->cols;
    for (uint32_t i = 0; i < p->nhoist; i++)
        run_instr(j, &p->hoist[i], ref, 0, p->tile_rows, 0, p->tile_cols, acc, NULL);
    bool fresh[2] = { true, true };                        /* of the columns, of the whole */
    for (int64_t r = ra; r < rb; r += p->tile_rows) {
        int64_t nr = rb - r < p->tile_rows ? rb - r : p->tile_rows;
        for (int64_t c = ca; c < cb; c += p->tile_cols) {
            int64_t nc = cb - c < p->tile_cols ? cb - c : p->tile_cols;
            for (uint32_t i = 0; i < p->ndirect; i++) {
                const direct *d = &p->dir[i];
                ref[i] = buffer(j, d->buf) + (d->off + r * d->row + c * d->col) * (int64_t)d->elem;
            }
            for (uint32_t i = 0; i < p->ninstr; i++)
                run_instr(j, &p->ins[i], ref, r, nr, c, nc, acc, fresh);
            fresh[1] = false;
        }
        fresh[0] = false;
    }
}

static void combine(const job *j, const partial *q)
{
    const program *p = j->p;
    size_t n = q->all ? 1 : (size_t)p->cols, parts = q->all || !p->by_cols ? p->nchunk : 1;
    char *sum = buffer(j, q->temp), one[16];
    const char *init = buffer(j, q->init);
    if (q->widen)
        q->widen((float *)(void *)one, init, 1);
    else
        memcpy(one, init, q->elem);
    /* the first part becomes initial value + first part, then the others in their order */
    char tile[LINE * 16];
    for (size_t i = 0; i < n; i += LINE) {
        size_t m = n - i < LINE ? n - i : LINE;
        xl_fill(tile, one, q->elem, m);
        for (size_t k = 0; k < parts; k++) {
            const void *in[3] = { tile, sum + (k * n + i) * q->elem, NULL };
            q->ew.fn(tile, in, m, q->ew.ctx);
        }
        if (q->narrow)
            q->narrow(buffer(j, q->out) + i * xl_dtype_bytes(j->s->shape[q->out].dtype), (const float *)(void *)tile, m);
        else
            memcpy(buffer(j, q->out) + i * q->elem, tile, m * q->elem);
    }
}

static xl_error *run_tile(const xl_step *s, xl_frame *f)
{
    const program *p = s->data;
    atomic_bool failed = false;
    job j = { p, s, f->ptr, &failed };
    if (p->nchunk == 1 || p->work < INLINE_MAX)
        for (size_t i = 0; i < p->n; i += p->grain)
            run_chunk(&j, i, i + p->grain < p->n ? i + p->grain : p->n);
    else
        xl_pool_for(f->pool, p->n, p->grain, run_chunk, &j);
    if (atomic_load(&failed))
        return XL_ERR(EXHAUSTED, "no memory for %u tiles of %zu bytes", p->nslot, p->slot_bytes);
    for (uint32_t i = 0; i < p->npart; i++)
        if (p->part[i].out != UINT32_MAX)                  /* else nobody reads it */
            combine(&j, &p->part[i]);
    return NULL;
}

/* ---- making the program ----------------------------------------------------------------------------------------- */
typedef struct {
    bool row, hoisted, same;                               /* same: one number throughout */
    size_t elem;
    int32_t direct;                                        /* index, or -1 */
    uint32_t last;                                         /* instruction that reads it last */
    uint32_t slot;
} reg;

typedef struct { uint32_t buf; xl_dtype dtype; bool row; uint16_t reg; int64_t off; const int64_t *stride; } leaf;

typedef struct {
    xl_planner *p;
    xl_group *g;
    program *pr;
    reg *r; uint32_t nreg, capreg;
    instr *i; uint32_t ni, capi;
    instr *h; uint32_t nh, caph;
    load *l; uint32_t nl, capl;
    direct *d; uint32_t nd, capd;
    leaf *leaf; uint32_t nleaf, capleaf;
    partial *part; uint32_t npart, cappart;
    uint32_t *in; xl_shape *shape; uint32_t nin, capin, capshape;
    uint32_t *lastread; uint32_t caplast;
    uint32_t inplace;
    uint16_t *of;                                          /* per member: its register, NO_REG for COL and ALL */
    uint16_t *spread_of;
} maker;

static uint16_t new_reg(maker *m, bool row, size_t elem)
{
    reg r = { .row = row, .elem = elem, .direct = -1, .slot = UINT32_MAX };
    XL_PUSH(m->p->a, m->r, m->nreg, m->capreg, r);
    return (uint16_t)(m->nreg - 1);
}

static void uses(maker *m, uint16_t r)
{
    m->r[r].last = m->ni;
}

static uint32_t operand(maker *m, uint32_t buf, const xl_shape *s)
{
    for (uint32_t i = 0; i < m->nin; i++)
        if (m->in[i] == buf)
            return i;
    XL_PUSH(m->p->a, m->in, m->nin, m->capin, buf);
    uint32_t n = m->nin - 1;
    XL_PUSH(m->p->a, m->shape, n, m->capshape, *s);
    n = m->nin - 1;
    XL_PUSH(m->p->a, m->lastread, n, m->caplast, 0);
    if (m->nin <= 32)
        m->inplace |= 1u << (m->nin - 1);
    return m->nin - 1;
}
static void not_in_place(maker *m, uint32_t k)
{
    if (k < 32)
        m->inplace &= ~(1u << k);
}

static xl_error *base_buffer(maker *m, const xl_view *v, uint32_t *out)
{
    xl_planner *p = m->p;
    xl_shape s;
    const xl_type *t = xl_value_type(p->f, v->base);
    xl_error *err = xl_shape_of(p, t, &s);
    if (err)
        return err;
    const xl_op *def = p->f->val[v->base.id].def;
    if (v->kind == XL_VIEW_SPLAT) {
        const void *data = XL_ATTR(def, CONSTANT, value)->data.p;
        for (uint32_t i = 0; i < m->nin; i++)
            if (p->plan->buf[m->in[i]].kind == XL_BUF_CONST && p->plan->buf[m->in[i]].data == data && m->shape[i].dtype == s.dtype) {
                *out = i;
                return NULL;
            }
        *out = operand(m, xl_plan_const(p, data, s.elem), &s);
    } else if (v->kind == XL_VIEW_IOTA) {
        int64_t n = t->dims[xl_op_int(def, XL_SLOT(IOTA, iota_dimension))];
        int64_t *ids = xl_new(p->a, int64_t, n);
        char *data = xl_new(p->a, char, (size_t)n * s.elem + 16);
        for (int64_t i = 0; i < n; i++)
            ids[i] = i;
        xl_ew e = xl_ew_convert(p->a, XL_I64, s.dtype);
        const void *x[1] = { ids };
        e.fn(data, x, (size_t)n, e.ctx);
        *out = operand(m, xl_plan_const(p, data, (size_t)n * s.elem), &s);
    } else {
        *out = operand(m, p->leaf[v->base.id].buf[0], &s);
        return NULL;
    }
    not_in_place(m, *out);
    return NULL;
}

/* The register that holds what v shows (over the space, or over its rows). */
static xl_error *read_leaf(maker *m, xl_view *v, xl_dtype dtype, bool row, uint16_t *out)
{
    program *pr = m->pr;
    uint32_t buf;
    xl_error *err = base_buffer(m, v, &buf);
    if (err)
        return err;
    uint32_t rank = row ? pr->split : pr->rank;
    int64_t *st = xl_new(m->p->a, int64_t, pr->rank);
    bool zero = true, row_zero = true, col_zero = true;
    /* v has the dimensions of the space, joined as the space is: strip and fold */
    xl_view_strip(v);
    for (uint32_t k = v->rank; k-- > 0; )
        if (v->stride[k])
            zero = false;
    if (!zero) {
        uint32_t at = v->rank;
        for (uint32_t k = rank; k-- > 0; ) {               /* a joined dimension runs with the stride of its last part */
            int64_t n = 1;
            st[k] = at ? v->stride[at - 1] : 0;
            while (at && n < pr->dim[k])
                n *= v->dim[--at];
        }
    }
    for (uint32_t k = 0; k < rank; k++)
        if (st[k])
            *(k < pr->split ? &row_zero : &col_zero) = false;
    for (uint32_t i = 0; i < m->nleaf; i++)
        if (m->leaf[i].buf == buf && m->leaf[i].dtype == dtype && m->leaf[i].row == row && m->leaf[i].off == v->offset && !memcmp(m->leaf[i].stride, st, pr->rank * sizeof *st)) {
            *out = m->leaf[i].reg;
            return NULL;
        }
    size_t elem = xl_dtype_bytes(dtype);
    xl_widen_fn *widen = xl_widen(dtype);
    bool dense = !zero;
    int64_t s = 1;
    for (uint32_t k = rank; k-- > 0; ) {
        dense = dense && st[k] == s;
        s *= pr->dim[k];
    }
    if (rank == 0)
        dense = true;
    bool single_col = pr->rank - pr->split <= 1;
    bool along = !dense && !row && row_zero && !zero && pr->tile_rows == 1 && single_col && pr->rank > pr->split && st[pr->rank - 1] == 1;
    uint16_t r;
    if (dense || along) {
        direct d = { buf, v->offset, row ? 1 : along ? 0 : pr->cols, row ? 0 : 1, elem };
        if (rank == 0 && !row)
            d.row = d.col = 0;
        r = new_reg(m, row, elem);
        XL_PUSH(m->p->a, m->d, m->nd, m->capd, d);
        m->r[r].direct = (int32_t)m->nd - 1;
        m->lastread[buf] = m->ni;
        if (row || along || v->offset || v->kind != XL_VIEW_VALUE)
            not_in_place(m, buf);
        if (widen) {
            instr x = { .act = DO_EW, .row = row, .nsrc = 1, .src = { r, r, r }, .ew = xl_ew_convert(m->p->a, dtype, XL_F32) };
            uses(m, r);
            r = new_reg(m, row, 4);
            x.dst = r;
            XL_PUSH(m->p->a, m->i, m->ni, m->capi, x);
        }
    } else {
        load l = { buf, v->offset, elem, st, widen };
        instr x = { .act = row ? DO_LOAD_ROW : DO_LOAD, .row = row, .arg = m->nl };
        not_in_place(m, buf);
        XL_PUSH(m->p->a, m->l, m->nl, m->capl, l);
        r = new_reg(m, row, widen ? 4 : elem);
        x.dst = r;
        /* the same for every tile: laid out once (a row of several tiles is not) */
        if (zero || (row_zero && !row && pr->tile_cols == pr->cols)) {
            m->r[r].hoisted = true;
            m->r[r].same = zero;
            XL_PUSH(m->p->a, m->h, m->nh, m->caph, x);
        } else {
            m->lastread[buf] = m->ni;
            XL_PUSH(m->p->a, m->i, m->ni, m->capi, x);
        }
    }
    leaf lf = { .buf = buf, .dtype = dtype, .row = row, .reg = r, .off = v->offset, .stride = st };
    XL_PUSH(m->p->a, m->leaf, m->nleaf, m->capleaf, lf);
    *out = r;
    return NULL;
}

static uint32_t member_index(const maker *m, xl_value v)
{
    for (uint32_t i = 0; i < m->g->nop; i++)
        if (m->g->op[i]->out[0].id == v.id)
            return i;
    return UINT32_MAX;
}

static xl_error *read_operand(maker *m, const xl_op *op, uint32_t k, bool row, uint16_t *out)
{
    xl_view v;
    xl_operand_view(m->p, op, k, &v);
    if (v.kind == XL_VIEW_VALUE && xl_group_of(m->p, v.base) == m->g) {
        uint32_t i = member_index(m, v.base);
        uint16_t r = m->of[i];
        if (!row && m->r[r].row) {
            if (m->spread_of[i] == NO_REG) {
                instr x = { .act = DO_SPREAD, .src = { r, r, r }, .nsrc = 1, .elem = m->r[r].elem };
                uses(m, r);
                m->spread_of[i] = x.dst = new_reg(m, false, x.elem);
                XL_PUSH(m->p->a, m->i, m->ni, m->capi, x);
            }
            r = m->spread_of[i];
        }
        *out = r;
        return NULL;
    }
    return read_leaf(m, &v, xl_in_type(m->p->f, op, k)->dtype, row, out);
}

/* Rounds f32 to bf16 and stays in f32. */
static void round_bf16(void *y_, const void *const *x_, size_t n, const void *ctx)
{
    uint32_t *y = y_;
    const uint32_t *x = x_[0];
    (void)ctx;
    XL_IVDEP
    for (size_t i = 0; i < n; i++) {
        uint32_t u = x[i], r = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
        y[i] = (u & 0x7fffffff) > 0x7f800000 ? (u & 0x80000000u) | 0x7fc00000u : r;
    }
}
typedef struct { xl_narrow_fn *narrow; xl_widen_fn *widen; xl_ew ew; size_t in; } narrowing;
static void round_narrow(void *y, const void *const *x, size_t n, const void *ctx)
{
    const narrowing *c = ctx;
    uint16_t raw[LINE];
    for (size_t i = 0; i < n; i += LINE) {
        size_t m = n - i < LINE ? n - i : LINE;
        c->narrow(raw, (const float *)x[0] + i, m);
        c->widen((float *)y + i, raw, m);
    }
}
static void convert_narrow(void *y, const void *const *x, size_t n, const void *ctx)
{
    const narrowing *c = ctx;
    uint16_t raw[LINE];
    for (size_t i = 0; i < n; i += LINE) {
        size_t m = n - i < LINE ? n - i : LINE;
        const void *in[1] = { (const char *)x[0] + i * c->in };
        c->ew.fn(raw, in, m, c->ew.ctx);
        c->widen((float *)y + i, raw, m);
    }
}
static xl_ew rounding(maker *m, xl_dtype d)
{
    if (d == XL_BF16)
        return (xl_ew){ round_bf16, NULL };
    narrowing *c = xl_new(m->p->a, narrowing, 1);
    c->narrow = xl_narrow(d);
    c->widen = xl_widen(d);
    return (xl_ew){ round_narrow, c };
}

static void emit_ew(maker *m, xl_ew ew, bool row, const uint16_t *src, uint32_t nsrc, size_t elem, uint16_t *out)
{
    instr x = { .act = DO_EW, .row = row, .ew = ew, .nsrc = nsrc };
    for (uint32_t k = 0; k < 3; k++)
        x.src[k] = src[k < nsrc ? k : 0];
    for (uint32_t k = 0; k < nsrc; k++)
        uses(m, src[k]);
    *out = x.dst = new_reg(m, row, elem);
    XL_PUSH(m->p->a, m->i, m->ni, m->capi, x);
}

/* Moves and sign changes of a narrow float give one; others are rounded. */
static bool exact(xl_opcode c)
{
    return c == XL_OP_SELECT || c == XL_OP_NEGATE || c == XL_OP_ABS || c == XL_OP_MAXIMUM || c == XL_OP_MINIMUM || c == XL_OP_CLAMP;
}

/* Which operand of a FULL member of two is a ROW member's result (the other being FULL) that need not be spread; else NOT_ONE. */
static uint32_t by_row(const maker *m, const xl_op *op, bool row)
{
    const xl_planner *p = m->p;
    xl_dtype d = xl_in_type(p->f, op, 0)->dtype;
    if (row || op->nin != 2 || (d != XL_F32 && !xl_is_narrow(d)) || m->pr->cols < 64 || !xl_ew_f32_scalar((xl_opcode)op->code, 0))
        return NOT_ONE;
    bool is[2] = { false, false };
    for (uint32_t k = 0; k < 2; k++) {
        xl_view v;
        xl_operand_view(p, op, k, &v);
        is[k] = v.kind == XL_VIEW_VALUE && xl_group_of(p, v.base) == m->g && xl_member_class(p, v.base) == XL_CLASS_OF_ROW;
    }
    return is[0] == is[1] ? NOT_ONE : is[0] ? 0 : 1;
}

static xl_error *add_member(maker *m, uint32_t at)
{
    const xl_op *op = m->g->op[at];
    xl_planner *p = m->p;
    bool row = xl_member_class(p, op->out[0]) == XL_CLASS_OF_ROW;
    xl_dtype out = xl_out_type(p->f, op, 0)->dtype, in[3];
    uint16_t src[3] = { 0, 0, 0 }, r;
    uint32_t per_row = by_row(m, op, row);
    for (uint32_t k = 0; k < op->nin; k++) {
        in[k] = xl_in_type(p->f, op, k)->dtype;
        xl_error *err = read_operand(m, op, k, row || k == per_row, &src[k]);
        if (err)
            return err;
    }
    size_t elem = xl_is_narrow(out) ? 4 : xl_dtype_bytes(out);
    p->plan->flops += (double)(row ? m->pr->rows : m->g->count);
    if (op->code == XL_OP_BITCAST_CONVERT || (op->code == XL_OP_CONVERT && (in[0] == out || (xl_is_narrow(in[0]) && out == XL_F32)))) {
        m->of[at] = src[0];                                /* the same in a slot */
        return NULL;
    }
    if (op->code == XL_OP_CONVERT && xl_is_narrow(out)) {
        if (xl_is_narrow(in[0]) || in[0] == XL_F32) {
            emit_ew(m, rounding(m, out), row, src, 1, 4, &m->of[at]);
        } else {
            narrowing *c = xl_new(p->a, narrowing, 1);
            c->ew = xl_ew_convert(p->a, in[0], out);
            c->widen = xl_widen(out);
            c->in = xl_dtype_bytes(in[0]);
            emit_ew(m, (xl_ew){ convert_narrow, c }, row, src, 1, 4, &m->of[at]);
        }
        return NULL;
    }
    xl_dtype as[3];
    for (uint32_t k = 0; k < op->nin; k++)
        as[k] = xl_is_narrow(in[k]) ? XL_F32 : in[k];
    xl_ew ew = xl_ew_find(p->a, op, as, xl_is_narrow(out) ? XL_F32 : out);
    if (!ew.fn) {
        xl_str what = xl_strf(p->a, "no such operation on %s", xl_dtypes[in[op->code == XL_OP_SELECT]].text);
        return xl_plan_unsupported(p, op, what.p);
    }
    for (uint32_t k = 0; k < op->nin && op->nin == 2 && as[0] == XL_F32 && per_row > 1; k++)
        if (m->r[src[k]].same && !m->r[src[1 - k]].same && xl_ew_f32_scalar((xl_opcode)op->code, k))
            ew = (xl_ew){ xl_ew_f32_scalar((xl_opcode)op->code, k), NULL };
    emit_ew(m, per_row < 2 ? (xl_ew){ xl_ew_f32_scalar((xl_opcode)op->code, per_row), NULL } : ew, row, src, op->nin, elem, &r);
    if (per_row < 2) {
        m->i[m->ni - 1].act = DO_EW_ROWS;
        m->i[m->ni - 1].arg = per_row;
    }
    if (xl_is_narrow(out) && !exact((xl_opcode)op->code)) {
        uint16_t wide[1] = { r };
        emit_ew(m, rounding(m, out), row, wide, 1, 4, &r);
    }
    m->of[at] = r;
    return NULL;
}

static xl_error *add_reduce(maker *m, uint32_t at)
{
    const xl_op *op = m->g->op[at];
    xl_planner *p = m->p;
    xl_tile_class cls = xl_member_class(p, op->out[0]);
    xl_dtype d = xl_in_type(p->f, op, 0)->dtype, sum = xl_is_narrow(d) ? XL_F32 : d;
    xl_opcode single = XL_OP_UNKNOWN;
    uint16_t src;
    xl_view v;
    uint32_t init;
    xl_error *err = read_operand(m, op, 0, false, &src);
    if (err)
        return err;
    if (!xl_reduce_simple(p, op, &single))
        return xl_plan_unsupported(p, op, "its body changed while planning");
    xl_operand_view(p, op, 1, &v);
    if ((err = base_buffer(m, &v, &init)))
        return err;
    not_in_place(m, init);
    instr x = { .nsrc = 1, .src = { src, src, src }, .elem = xl_dtype_bytes(sum), .line = xl_fold_line(sum, single), .widen = xl_widen(d),
                .ew = xl_ew_of(p->a, single, sum, sum), .dst = NO_REG };
    p->plan->flops += (double)m->g->count;
    uses(m, src);
    m->of[at] = NO_REG;
    if (cls == XL_CLASS_OF_ROW) {
        x.act = DO_ROW;
        x.arg = init;
        m->lastread[init] = m->ni;
        x.dst = new_reg(m, true, x.elem);
        XL_PUSH(p->a, m->i, m->ni, m->capi, x);
        m->of[at] = x.dst;
        if (xl_is_narrow(d)) {
            uint16_t wide[1] = { x.dst };
            emit_ew(m, rounding(m, d), true, wide, 1, 4, &m->of[at]);
        }
        return NULL;
    }
    partial q = { .init = init, .all = cls == XL_CLASS_OF_ALL, .ew = x.ew, .elem = x.elem, .widen = x.widen, .narrow = xl_narrow(d), .out = at };
    x.act = q.all ? DO_ALL : DO_COL;
    x.arg = m->npart;
    XL_PUSH(p->a, m->part, m->npart, m->cappart, q);
    XL_PUSH(p->a, m->i, m->ni, m->capi, x);
    return NULL;
}

/* The space with dimensions joined where every leaf runs on, and how it is cut. */
static void shape_space(maker *m)
{
    xl_planner *p = m->p;
    xl_group *g = m->g;
    program *pr = m->pr;
    bool cut[XL_RANK_MAX + 1] = { false }, rows = false, parts = false, cols_part = false;
    for (uint32_t i = 0; i < g->nop; i++) {
        const xl_op *op = g->op[i];
        xl_tile_class cls = xl_member_class(p, op->out[0]);
        rows = rows || cls == XL_CLASS_OF_ROW;
        parts = parts || cls == XL_CLASS_OF_COL || cls == XL_CLASS_OF_ALL;
        cols_part = cols_part || cls == XL_CLASS_OF_COL;
        for (uint32_t k = 0; k < op->nin; k++) {
            xl_view v;
            xl_operand_view(p, op, k, &v);
            xl_view_strip(&v);
            if (v.kind == XL_VIEW_VALUE && xl_group_of(p, v.base) == g)
                continue;
            if (op->code == XL_OP_REDUCE && k == 1)
                continue;
            for (uint32_t d = 0; d + 1 < v.rank; d++)
                if (v.stride[d] != v.stride[d + 1] * v.dim[d + 1])
                    cut[d + 1] = true;
        }
    }
    if (g->split >= 0)
        cut[g->split] = true;
    pr->rank = 0;
    for (uint32_t d = 0; d < g->rank; d++) {
        if ((int32_t)d == g->split)
            pr->split = pr->rank;
        if (d && !cut[d])
            pr->dim[pr->rank - 1] *= g->dim[d];
        else
            pr->dim[pr->rank++] = g->dim[d];
    }
    if (g->split < 0) {                                    /* free to choose: short last dimensions go together */
        int64_t c = pr->rank ? pr->dim[pr->rank - 1] : 1;
        pr->split = pr->rank ? pr->rank - 1 : 0;
        while (pr->split > 0 && c * pr->dim[pr->split - 1] <= TILE) {
            pr->split--;
            c *= pr->dim[pr->split];
        }
    }
    pr->rows = pr->cols = 1;
    for (uint32_t d = 0; d < pr->rank; d++)
        *(d < pr->split ? &pr->rows : &pr->cols) *= pr->dim[d];
    bool one_col = pr->rank - pr->split <= 1;
    pr->tile_cols = g->row_reduce || !one_col || pr->cols <= TILE ? pr->cols : TILE;
    pr->tile_rows = pr->cols < TILE ? TILE / pr->cols : 1;
    if (pr->tile_rows > pr->rows)
        pr->tile_rows = pr->rows;
    /* Chunks of CHUNK elements; where that makes few, smaller ones that are still worth handing to another thread. */
    int64_t chunk = CHUNK, fair = g->count / 8 > WORTH / g->nop ? g->count / 8 : WORTH / g->nop;
    if (fair < chunk)
        chunk = fair;
    pr->by_cols = one_col && !g->row_reduce && !rows && pr->cols >= 4096 && pr->rows < 64;
    if (pr->by_cols) {
        pr->n = (size_t)pr->cols;
        int64_t each = chunk / pr->rows / TILE * TILE;
        pr->grain = (size_t)(each < TILE ? TILE : each);
    } else {
        pr->n = (size_t)pr->rows;
        int64_t each = chunk / pr->cols;
        if (parts && each < (pr->rows + PARTS_MAX - 1) / PARTS_MAX)
            each = (pr->rows + PARTS_MAX - 1) / PARTS_MAX;
        each = (each + pr->tile_rows - 1) / pr->tile_rows * pr->tile_rows;
        pr->grain = (size_t)(each < pr->tile_rows ? pr->tile_rows : each);
    }
    pr->nchunk = (pr->n + pr->grain - 1) / pr->grain;
}

/* Registers that are read where they lie or written where they belong have no slot; the others share slots by their lives. */
static void assign_slots(maker *m)
{
    program *pr = m->pr;
    uint32_t nslot = 0, nfree = 0;
    uint32_t *freed = xl_new(m->p->a, uint32_t, m->nreg + 1);
    for (uint32_t i = 0; i < m->nh; i++)
        m->r[m->h[i].dst].slot = nslot++;
    for (uint32_t i = 0; i < m->ni; i++) {
        instr *x = &m->i[i];
        if (x->dst != NO_REG && m->r[x->dst].direct < 0 && m->r[x->dst].slot == UINT32_MAX) {
            reg *d = &m->r[x->dst];
            for (uint32_t k = 0; k < x->nsrc && x->act == DO_EW; k++) {
                reg *s = &m->r[x->src[k]];
                if (s->direct < 0 && !s->hoisted && s->last == i && s->elem == d->elem && s->slot != UINT32_MAX && s->row == d->row) {
                    d->slot = s->slot;
                    break;
                }
            }
            if (d->slot == UINT32_MAX)
                d->slot = nfree ? freed[--nfree] : nslot++;
        }
        for (uint32_t k = 0; k < x->nsrc; k++) {
            reg *s = &m->r[x->src[k]];
            bool again = false;
            for (uint32_t q = 0; q < k; q++)
                again = again || x->src[q] == x->src[k];
            if (again || s->direct >= 0 || s->hoisted || s->last != i || s->slot == UINT32_MAX)
                continue;
            if (x->dst == NO_REG || m->r[x->dst].direct >= 0 || m->r[x->dst].slot != s->slot)
                freed[nfree++] = s->slot;
        }
        if (x->dst != NO_REG && m->r[x->dst].direct < 0 && m->r[x->dst].last <= i && !m->r[x->dst].hoisted)
            freed[nfree++] = m->r[x->dst].slot;            /* nobody reads it */
    }
    pr->nslot = nslot;
    size_t most = 4;
    for (uint32_t i = 0; i < m->nreg; i++)
        most = m->r[i].elem > most ? m->r[i].elem : most;
    pr->slot_bytes = (((size_t)(pr->tile_rows * pr->tile_cols) * most) + XL_ALIGN - 1) & ~(size_t)(XL_ALIGN - 1);
    instr *all[2] = { m->h, m->i };
    uint32_t n[2] = { m->nh, m->ni };
    for (int t = 0; t < 2; t++)
        for (uint32_t i = 0; i < n[t]; i++) {
            instr *x = &all[t][i];
            for (uint32_t k = 0; k < 3; k++) {
                const reg *s = x->nsrc ? &m->r[x->src[k]] : NULL;
                x->src[k] = !s ? 0 : (uint16_t)(s->direct >= 0 ? (uint32_t)s->direct : m->nd + s->slot);
            }
            if (x->dst != NO_REG) {
                const reg *d = &m->r[x->dst];
                x->dst = (uint16_t)(d->direct >= 0 ? (uint32_t)d->direct : m->nd + d->slot);
            }
        }
}

xl_error *xl_tile_plan(xl_planner *p, xl_group *g)
{
    program *pr = xl_new(p->a, program, 1);
    maker *m = xl_new(p->a, maker, 1);
    xl_error *err = NULL;
    *m = (maker){ .p = p, .g = g, .pr = pr };
    m->of = xl_new(p->a, uint16_t, g->nop);
    m->spread_of = xl_new(p->a, uint16_t, g->nop);
    for (uint32_t i = 0; i < g->nop; i++)
        m->spread_of[i] = NO_REG;
    shape_space(m);
    for (uint32_t i = 0; i < g->nop; i++)
        XL_DO(g->op[i]->code == XL_OP_REDUCE ? add_reduce(m, i) : add_member(m, i));
    /* results: values that somebody outside reads */
    xl_value *out = xl_new(p->a, xl_value, g->nop);
    uint32_t *who = xl_new(p->a, uint32_t, g->nop), nout = 0;
    bool *in_place = xl_new(p->a, bool, g->nop);
    for (uint32_t i = 0; i < g->nop; i++)
        if (p->need[g->op[i]->out[0].id]) {
            out[nout] = g->op[i]->out[0];
            in_place[nout] = xl_member_class(p, out[nout]) == XL_CLASS_OF_FULL;
            who[nout++] = i;
        }
    size_t *temp = xl_new(p->a, size_t, m->npart + 1);
    for (uint32_t i = 0; i < m->npart; i++)
        temp[i] = m->part[i].elem * (m->part[i].all ? pr->nchunk : (size_t)pr->cols * (pr->by_cols ? 1 : pr->nchunk));
    xl_step *s;
    xl_str name = xl_strf(p->a, "fused %ux%lldx%lld%s%s", g->nop, (long long)pr->rows, (long long)pr->cols, g->row_reduce ? " rows" : "", m->npart ? " parts" : "");
    XL_DO(xl_plan_step_group(p, name.p, run_tile, pr, m->in, m->shape, m->nin, out, in_place, nout, m->inplace, temp, m->npart, &s));
    for (uint32_t i = 0; i < m->npart; i++) {
        uint32_t at = m->part[i].out;
        m->part[i].temp = m->nin + nout + i;
        m->part[i].out = UINT32_MAX;
        for (uint32_t k = 0; k < nout; k++)
            if (who[k] == at)
                m->part[i].out = m->nin + k;
    }
    for (uint32_t k = 0; k < nout; k++) {
        uint16_t r = m->of[who[k]];
        if (r == NO_REG)
            continue;
        xl_dtype d = xl_value_type(p->f, out[k])->dtype;
        const xl_plan_buf *ob = &p->plan->buf[s->buf[m->nin + k]];
        bool row = m->r[r].row;
        direct to = { m->nin + k, 0, row ? 1 : pr->cols, row ? 0 : 1, xl_dtype_bytes(d) };
        uint32_t made = UINT32_MAX, read = 0;
        bool aliased = false;
        for (uint32_t i = 0; i < m->ni; i++)
            if (m->i[i].dst == r)
                made = i;
        for (uint32_t j = 0; j < m->nin; j++) {
            const xl_plan_buf *ib = &p->plan->buf[m->in[j]];
            if (ob == ib || (ob->kind == XL_BUF_OUT && ib->kind == XL_BUF_ARG && p->plan->out_donor[ob->index] == (int32_t)ib->index)) {
                aliased = true;
                for (uint32_t i = 0; i < m->ni; i++)       /* directs count where they are used */
                    for (uint32_t q = 0; q < m->i[i].nsrc; q++)
                        if (m->r[m->i[i].src[q]].direct >= 0 && m->d[m->r[m->i[i].src[q]].direct].buf == j)
                            read = i;
                if (m->lastread[j] > read)
                    read = m->lastread[j];
            }
        }
        XL_PUSH(p->a, m->d, m->nd, m->capd, to);
        if (made != UINT32_MAX && !xl_is_narrow(d) && m->r[r].direct < 0 && (!aliased || read <= made)) {
            m->r[r].direct = (int32_t)m->nd - 1;           /* made where it belongs */
            continue;
        }
        uint16_t target = new_reg(m, row, to.elem);
        m->r[target].direct = (int32_t)m->nd - 1;
        instr x = { .act = DO_EW, .row = row, .nsrc = 1, .src = { r, r, r }, .dst = target,
                    .ew = xl_is_narrow(d) ? xl_ew_convert(p->a, XL_F32, d) : xl_ew_convert(p->a, d, d) };
        uses(m, r);
        XL_PUSH(p->a, m->i, m->ni, m->capi, x);
    }
    assign_slots(m);
    pr->hoist = m->h, pr->nhoist = m->nh;
    pr->ins = m->i, pr->ninstr = m->ni;
    pr->dir = m->d, pr->ndirect = m->nd;
    pr->loads = m->l, pr->nload = m->nl;
    pr->part = m->part, pr->npart = m->npart;
    pr->work = (double)g->count * (double)m->ni;
out:
    return err;
}
