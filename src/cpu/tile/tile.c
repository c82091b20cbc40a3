/* Builds the tile program (tile.h) of a group: where its operands are, its instructions, where its results go. */
#include "cpu/tile/tile.h"

#include "cpu/kernel/dtype.h"

/* Columns that are worth a line of strips; elements times ops, a chunk; elements that are worth preparing a divisor. */
enum { LINE_MIN = 64, WORTH = 1 << 16, DIVISOR_MIN = 1 << 14 };

static uint16_t new_reg(xl_tile_maker *m, bool row, size_t elem)
{
    xl_tile_reg r = {
        .row = row, .elem = elem, .direct = -1, .def = -1, .slot = UINT32_MAX, .other = XL_NO_REG, .spread = XL_NO_REG
    };
    XL_PUSH(m->p->a, m->r, m->nreg, m->capreg, r);
    return (uint16_t)(m->nreg - 1);
}

static void emit(xl_tile_maker *m, xl_tile_instr x)
{
    if (x.dst != XL_NO_REG)
        m->r[x.dst].def = (int32_t)m->ni;
    XL_PUSH(m->p->a, m->i, m->ni, m->capi, x);
}

/* An instruction on the strip machine: src of them, into a new register. */
static uint16_t emit_strip(xl_tile_maker *m, int32_t op, const uint16_t *src, uint32_t nsrc, size_t elem)
{
    xl_tile_instr x = { .act = DO_EW, .strip = op, .nsrc = nsrc, .dst = new_reg(m, false, elem) };
    for (uint32_t k = 0; k < 3; k++)
        x.src[k] = src[k < nsrc ? k : 0];
    emit(m, x);
    return x.dst;
}

/* Truth values of one byte as strips have them, and back. */
static uint16_t as_truth(xl_tile_maker *m, uint16_t r, bool truth)
{
    if (m->r[r].truth == truth)
        return r;
    if (m->r[r].other == XL_NO_REG) {
        uint16_t o = emit_strip(m, truth ? XL_STRIP_LOAD_TRUTH : XL_STRIP_STORE_TRUTH, &r, 1, truth ? 4 : 1);
        m->r[o].truth = truth;
        m->r[o].other = r;
        m->r[r].other = o;
    }
    return m->r[r].other;
}

static uint32_t operand(xl_tile_maker *m, uint32_t buf, xl_value v, const xl_extent *s)
{
    for (uint32_t i = 0; i < m->nin; i++)
        if (m->in[i] == buf)
            return i;
    XL_PUSH(m->p->a, m->in, m->nin, m->capin, buf);
    uint32_t n = m->nin - 1, k = n;
    XL_PUSH(m->p->a, m->shape, n, m->capshape, *s);
    XL_PUSH(m->p->a, m->val, k, m->capval, v);
    if (m->nin <= 32)
        m->inplace |= 1u << (m->nin - 1);
    return m->nin - 1;
}
static void not_in_place(xl_tile_maker *m, uint32_t k)
{
    if (k < 32)
        m->inplace &= ~(1u << k);
}

static xl_error *base_buffer(xl_tile_maker *m, const xl_view *v, uint32_t *out)
{
    xl_planner *p = m->p;
    xl_extent s;
    const xl_type *t = xl_value_type(p->f, v->base);
    xl_error *err = xl_shape_of(p, t, &s);
    if (err)
        return err;
    const xl_op *def = p->f->val[v->base.id].def;
    if (v->kind == XL_VIEW_SPLAT) {
        const void *data = XL_ATTR(def, CONSTANT, value)->data.p;
        for (uint32_t i = 0; i < m->nin; i++)
            if (p->plan->buf[m->in[i]].kind == XL_BUF_CONST && p->plan->buf[m->in[i]].data == data &&
                m->shape[i].dtype == s.dtype) {
                *out = i;
                return NULL;
            }
        *out = operand(m, xl_plan_const(p, data, s.elem), XL_NO_VALUE, &s);
    } else if (v->kind == XL_VIEW_IOTA) {
        int64_t n = t->dims[xl_op_int(def, XL_SLOT(IOTA, iota_dimension))];
        int64_t *ids = xl_new(p->a, int64_t, n);
        char *data = xl_new(p->a, char, (size_t)n * s.elem + 16);
        for (int64_t i = 0; i < n; i++)
            ids[i] = i;
        xl_ew e = xl_ew_convert(p->a, XL_I64, s.dtype);
        const void *x[1] = { ids };
        e.fn(data, x, (size_t)n, e.ctx);
        *out = operand(m, xl_plan_const(p, data, (size_t)n * s.elem), XL_NO_VALUE, &s);
    } else {
        *out = operand(m, p->leaf[v->base.id].buf[0], v->base, &s);
        return NULL;
    }
    not_in_place(m, *out);
    return NULL;
}

/* An operand that lies as the tiles read it: no load, only widening. along: every row reads the same line. */
static uint16_t read_direct(xl_tile_maker *m, const xl_view *v, uint32_t buf, xl_dtype dtype, bool row, bool along,
                            bool scalar)
{
    const xl_tile_program *pr = m->pr;
    size_t elem = xl_dtype_bytes(dtype);
    xl_tile_direct d = { buf, v->offset, row ? 1 : along ? 0 : pr->cols, row ? 0 : 1, elem };
    if (scalar)
        d.row = d.col = 0;
    uint16_t r = new_reg(m, row, elem);
    XL_PUSH(m->p->a, m->d, m->nd, m->capd, d);
    m->r[r].direct = (int32_t)m->nd - 1;
    m->r[r].along = along;
    /* a part of it may have the bytes of a result with wider elements: what is written would overtake
     * what is read */
    if (row || along || v->offset || v->kind != XL_VIEW_VALUE || m->shape[buf].count != pr->rows * pr->cols)
        not_in_place(m, buf);
    if (!xl_widen(dtype))
        return r;
    if (dtype == XL_BF16 && !row)
        return emit_strip(m, XL_STRIP_LOAD_BF16, &r, 1, 4);
    xl_tile_instr x = { .act = DO_EW,
                        .strip = -1,
                        .row = row,
                        .nsrc = 1,
                        .src = { r, r, r },
                        .ew = xl_ew_convert(m->p->a, dtype, XL_F32) };
    r = x.dst = new_reg(m, row, 4);
    emit(m, x);
    return r;
}

/* The register that holds what v shows (over the space, or over its rows). strip: who reads it takes a number per row
 * for an array. */
static xl_error *read_leaf(xl_tile_maker *m, xl_view *v, xl_dtype dtype, bool row, bool strip, uint16_t *out)
{
    xl_tile_program *pr = m->pr;
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
        for (uint32_t k = rank; k-- > 0;) { /* a joined dimension runs with the stride of its last part */
            int64_t n = 1;
            st[k] = at ? v->stride[at - 1] : 0;
            while (at && n < pr->dim[k])
                n *= v->dim[--at];
        }
    }
    for (uint32_t k = 0; k < rank; k++)
        if (st[k])
            *(k < pr->split ? &row_zero : &col_zero) = false;
    if (strip && m->lines && !row && !zero && col_zero && (xl_dtype_bytes(dtype) == 4 || xl_is_narrow(dtype))) {
        row = true;                                        /* one number per row: not spread */
        rank = pr->split;
    }
    for (uint32_t i = 0; i < m->nleaf; i++)
        if ((strip || !m->leaf[i].along) && m->leaf[i].buf == buf && m->leaf[i].dtype == dtype &&
            m->leaf[i].row == row && m->leaf[i].off == v->offset &&
            !memcmp(m->leaf[i].stride, st, pr->rank * sizeof *st)) {
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
    bool along = !dense && !row && row_zero && !zero &&
                 (pr->tile_rows == 1 || (strip && m->lines && (!widen || dtype == XL_BF16))) && single_col &&
                 pr->rank > pr->split && st[pr->rank - 1] == 1;
    uint16_t r;
    if (dense || along) {
        r = read_direct(m, v, buf, dtype, row, along, rank == 0 && !row);
    } else {
        xl_tile_load l = { buf, v->offset, elem, st, widen };
        xl_tile_instr x = { .act = row ? DO_LOAD_ROW : DO_LOAD, .strip = -1, .row = row, .arg = m->nl };
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
            emit(m, x);
        }
    }
    xl_tile_leaf lf = { .buf = buf,
                        .dtype = dtype,
                        .row = row,
                        .reg = r,
                        .off = v->offset,
                        .stride = st,
                        .along = along && pr->tile_rows > 1 };
    XL_PUSH(m->p->a, m->leaf, m->nleaf, m->capleaf, lf);
    *out = r;
    return NULL;
}

static uint32_t member_index(const xl_tile_maker *m, xl_value v)
{
    for (uint32_t i = 0; i < m->g->nop; i++)
        if (m->g->op[i]->out[0].id == v.id)
            return i;
    return UINT32_MAX;
}

/* For a member that runs in strips a number per row is as good as an array, if rows are long enough. */
static uint16_t spread(xl_tile_maker *m, uint16_t r, bool strip)
{
    if (!m->r[r].row || (strip && m->lines && m->r[r].elem == 4))
        return r;
    if (m->r[r].spread == XL_NO_REG) {
        xl_tile_instr x = { .act = DO_SPREAD, .strip = -1, .src = { r, r, r }, .nsrc = 1, .elem = m->r[r].elem };
        x.dst = new_reg(m, false, x.elem);
        m->r[r].spread = x.dst;
        emit(m, x);
    }
    return m->r[r].spread;
}

static xl_error *read_operand(xl_tile_maker *m, const xl_op *op, uint32_t k, bool row, bool strip, uint16_t *out)
{
    xl_view v;
    xl_dtype d = xl_in_type(m->p->f, op, k)->dtype;
    xl_operand_view(m->p, op, k, &v);
    if (v.kind == XL_VIEW_VALUE && xl_group_of(m->p, v.base) == m->g) {
        *out = m->of[member_index(m, v.base)];
        if (!row)
            *out = spread(m, *out, strip);
    } else {
        xl_error *err = read_leaf(m, &v, d, row, strip, out);
        if (err)
            return err;
    }
    if (d == XL_I1 && !row)
        *out = as_truth(m, *out, strip);
    return NULL;
}

typedef struct { xl_narrow_fn *narrow; xl_widen_fn *widen; xl_ew ew; size_t in; } narrowing;
static void round_narrow(void *y, const void *const *x, size_t n, const void *ctx)
{
    const narrowing *c = ctx;
    uint16_t raw[XL_TILE_LINE];
    for (size_t i = 0; i < n; i += XL_TILE_LINE) {
        size_t m = n - i < XL_TILE_LINE ? n - i : XL_TILE_LINE;
        c->narrow(raw, (const float *)x[0] + i, m);
        c->widen((float *)y + i, raw, m);
    }
}
static void convert_narrow(void *y, const void *const *x, size_t n, const void *ctx)
{
    const narrowing *c = ctx;
    uint16_t raw[XL_TILE_LINE];
    for (size_t i = 0; i < n; i += XL_TILE_LINE) {
        size_t m = n - i < XL_TILE_LINE ? n - i : XL_TILE_LINE;
        const void *in[1] = { (const char *)x[0] + i * c->in };
        c->ew.fn(raw, in, m, c->ew.ctx);
        c->widen((float *)y + i, raw, m);
    }
}
static void emit_ew(xl_tile_maker *m, xl_ew ew, bool row, const uint16_t *src, uint32_t nsrc, size_t elem,
                    uint16_t *out)
{
    xl_tile_instr x = { .act = DO_EW, .strip = -1, .row = row, .ew = ew, .nsrc = nsrc };
    for (uint32_t k = 0; k < 3; k++)
        x.src[k] = src[k < nsrc ? k : 0];
    *out = x.dst = new_reg(m, row, elem);
    emit(m, x);
}

/* Rounds f32 to a narrow float and stays in f32. */
static uint16_t emit_rounding(xl_tile_maker *m, xl_dtype d, bool row, uint16_t r)
{
    if (d == XL_BF16 && !row)
        return emit_strip(m, XL_STRIP_ROUND_BF16, &r, 1, 4);
    narrowing *c = xl_new(m->p->a, narrowing, 1);
    c->narrow = xl_narrow(d);
    c->widen = xl_widen(d);
    emit_ew(m, (xl_ew){ round_narrow, c }, row, &r, 1, 4, &r);
    return r;
}

/* Moves and sign changes of a narrow float give one; others are rounded. */
static bool exact(xl_opcode c)
{
    return c == XL_OP_SELECT || c == XL_OP_NEGATE || c == XL_OP_ABS || c == XL_OP_MAXIMUM || c == XL_OP_MINIMUM ||
           c == XL_OP_CLAMP;
}

/* x over the number c, where there are enough x to prepare c for it. */
static uint16_t emit_divide_by(xl_tile_maker *m, uint16_t x, uint16_t c, size_t elem)
{
    xl_tile_instr prepare = {
        .act = DO_DIVISOR, .strip = -1, .nsrc = 1, .src = { c, c, c }, .dst = new_reg(m, false, 4)
    };
    m->r[prepare.dst].hoisted = m->r[prepare.dst].same = true;
    XL_PUSH(m->p->a, m->h, m->nh, m->caph, prepare);
    uint16_t src[2] = { x, prepare.dst };
    return emit_strip(m, XL_STRIP_DIVIDE_BY, src, 2, elem);
}

static uint16_t emit_member(xl_tile_maker *m, const xl_op *op, int32_t strip, const uint16_t *src, size_t elem)
{
    if (strip == XL_STRIP_MULTIPLY && src[0] == src[1])
        return emit_strip(m, XL_STRIP_SQUARE, src, 1, elem);
    if (strip == XL_STRIP_DIVIDE && m->r[src[1]].same && m->g->count >= DIVISOR_MIN)
        return emit_divide_by(m, src[0], src[1], elem);
    if (op->code == XL_OP_CLAMP) {                         /* the least of high and of the greatest of low and x */
        uint16_t most[2] = { src[1], src[0] };
        uint16_t least[2] = { emit_strip(m, strip, most, 2, elem), src[2] };
        return emit_strip(m,
                          strip == XL_STRIP_MAXIMUM       ? XL_STRIP_MINIMUM
                          : strip == XL_STRIP_INT_MAXIMUM ? XL_STRIP_INT_MINIMUM
                                                          : XL_STRIP_UINT_MINIMUM,
                          least, 2, elem);
    }
    return emit_strip(m, strip, src, op->nin, elem);
}

/* Members that are no work: their result is their operand. */
static bool is_nothing(const xl_op *op, xl_dtype in, xl_dtype out)
{
    return op->code == XL_OP_BITCAST_CONVERT ||
           (op->code == XL_OP_CONVERT && (in == out || (xl_is_narrow(in) && out == XL_F32)));
}

static xl_error *add_member(xl_tile_maker *m, uint32_t at)
{
    const xl_op *op = m->g->op[at];
    xl_planner *p = m->p;
    bool row = xl_member_class(p, op->out[0]) == XL_CLASS_OF_ROW;
    xl_dtype out = xl_out_type(p->f, op, 0)->dtype, in[3], as[3];
    uint16_t src[3] = { 0, 0, 0 }, r;
    for (uint32_t k = 0; k < op->nin; k++) {
        in[k] = xl_in_type(p->f, op, k)->dtype;
        as[k] = xl_is_narrow(in[k]) ? XL_F32 : in[k];
    }
    int32_t strip = row || is_nothing(op, in[0], out) ? -1 : xl_tile_strip_of(op, in, out);
    bool nothing = is_nothing(op, in[0], out) || (strip == XL_STRIP_LOAD && !xl_is_narrow(out));
    bool strips = strip >= 0 && (strip != XL_STRIP_LOAD || out == XL_BF16);
    for (uint32_t k = 0; k < op->nin; k++) {
        xl_error *err = read_operand(m, op, k, row, strips, &src[k]);
        if (err)
            return err;
    }
    size_t elem = xl_is_narrow(out) ? 4 : xl_dtype_bytes(out);
    p->plan->flops += (double)(row ? m->pr->rows : m->g->count);
    m->of[at] = src[0];
    if (nothing)
        return NULL;
    if (op->code == XL_OP_CONVERT && xl_is_narrow(out) && as[0] == XL_F32) {
        m->of[at] = emit_rounding(m, out, row, src[0]);
        return NULL;
    }
    if (strip < 0 && op->code == XL_OP_CONVERT && xl_is_narrow(out)) {
        narrowing *c = xl_new(p->a, narrowing, 1);
        c->ew = xl_ew_convert(p->a, in[0], out);
        c->widen = xl_widen(out);
        c->in = xl_dtype_bytes(in[0]);
        emit_ew(m, (xl_ew){ convert_narrow, c }, row, src, 1, 4, &m->of[at]);
        return NULL;
    }
    if (strip >= 0) {
        r = emit_member(m, op, strip, src, out == XL_I1 ? 4 : elem);
        m->r[r].truth = out == XL_I1;
    } else {
        xl_ew ew = xl_ew_find(p->a, op, as, xl_is_narrow(out) ? XL_F32 : out);
        if (!ew.fn) {
            xl_str what = xl_strf(p->a, "no such operation on %s", xl_dtypes[in[op->code == XL_OP_SELECT]].text);
            return xl_plan_unsupported(p, op, what.p);
        }
        emit_ew(m, ew, row, src, op->nin, elem, &r);
    }
    m->of[at] = xl_is_narrow(out) && !exact((xl_opcode)op->code) ? emit_rounding(m, out, row, r) : r;
    return NULL;
}

static int32_t fold_of(xl_opcode single)
{
    return single == XL_OP_ADD       ? XL_STRIP_SUM
           : single == XL_OP_MAXIMUM ? XL_STRIP_MAX
           : single == XL_OP_MINIMUM ? XL_STRIP_MIN
                                     : -1;
}

static xl_error *add_reduce(xl_tile_maker *m, uint32_t at)
{
    const xl_op *op = m->g->op[at];
    xl_planner *p = m->p;
    xl_tile_class cls = xl_member_class(p, op->out[0]);
    xl_dtype d = xl_in_type(p->f, op, 0)->dtype, sum = xl_is_narrow(d) ? XL_F32 : d;
    xl_opcode single = XL_OP_UNKNOWN;
    uint16_t src;
    xl_view v;
    uint32_t init;
    if (!xl_reduce_simple(p, op, &single))
        return xl_plan_unsupported(p, op, "its body changed while planning");
    int32_t strip = cls != XL_CLASS_OF_ROW || !m->lines || sum != XL_F32 ? -1 : fold_of(single);
    xl_error *err = read_operand(m, op, 0, false, strip >= 0, &src);
    if (!err && m->r[src].along && m->r[src].def < 0 &&
        m->pr->tile_rows > 1) /* one line for all rows lies there once: strips know, an array function reads on */
        err = read_operand(m, op, 0, false, false, &src);
    if (err)
        return err;
    bool made =
        m->r[src].def >= 0 && m->i[m->r[src].def].strip >= 0; /* else it lies in memory, and is read from there */
    xl_operand_view(p, op, 1, &v);
    if ((err = base_buffer(m, &v, &init)))
        return err;
    not_in_place(m, init);
    xl_tile_instr x = { .nsrc = 1,
                        .src = { src, src, src },
                        .elem = xl_dtype_bytes(sum),
                        .line = xl_fold_line(sum, single),
                        .rows = xl_fold_rows(sum, single),
                        .widen = xl_widen(d),
                        .ew = xl_ew_of(p->a, single, sum, sum),
                        .dst = XL_NO_REG,
                        .strip = -1 };
    p->plan->flops += (double)m->g->count;
    m->of[at] = XL_NO_REG;
    if (cls == XL_CLASS_OF_ROW) {
        x.act = DO_ROW;
        x.arg = init;
        if (made)
            x.strip = strip;
        else if (strip >= 0)
            src = x.src[0] = x.src[1] = x.src[2] = spread(m, src, false);
        x.dst = new_reg(m, true, x.elem);
        emit(m, x);
        m->of[at] = xl_is_narrow(d) ? emit_rounding(m, d, true, x.dst) : x.dst;
        return NULL;
    }
    xl_tile_partial q = { .init = init,
                          .all = cls == XL_CLASS_OF_ALL,
                          .ew = x.ew,
                          .elem = x.elem,
                          .widen = x.widen,
                          .narrow = xl_narrow(d),
                          .out = at };
    x.act = q.all ? DO_ALL : DO_COL;
    x.arg = m->npart;
    XL_PUSH(p->a, m->part, m->npart, m->cappart, q);
    emit(m, x);
    return NULL;
}

/* The space with dimensions joined where every leaf runs on, and how it is cut. */
static void shape_space(xl_tile_maker *m)
{
    xl_planner *p = m->p;
    xl_group *g = m->g;
    xl_tile_program *pr = m->pr;
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
        while (pr->split > 0 && c * pr->dim[pr->split - 1] <= XL_TILE_SIZE) {
            pr->split--;
            c *= pr->dim[pr->split];
        }
    }
    pr->rows = pr->cols = 1;
    for (uint32_t d = 0; d < pr->rank; d++)
        *(d < pr->split ? &pr->rows : &pr->cols) *= pr->dim[d];
    bool one_col = pr->rank - pr->split <= 1;
    pr->tile_cols = g->row_reduce || !one_col || pr->cols <= XL_TILE_SIZE ? pr->cols : XL_TILE_SIZE;
    int64_t size =
        g->row_reduce ? XL_TILE_ROWS_SIZE : XL_TILE_SIZE; /* what is done once per row is done for several at once */
    pr->tile_rows = pr->cols < size ? size / pr->cols : 1;
    if (pr->tile_rows > pr->rows)
        pr->tile_rows = pr->rows;
    /* Chunks of XL_TILE_CHUNK elements; where that makes few, smaller ones that are still worth handing to another
     * thread. */
    int64_t chunk = XL_TILE_CHUNK, fair = g->count / 8 > WORTH / g->nop ? g->count / 8 : WORTH / g->nop;
    if (fair < chunk)
        chunk = fair;
    pr->by_cols = one_col && !g->row_reduce && !rows && pr->cols >= 4096 && pr->rows < 64;
    if (pr->by_cols) {
        pr->n = (size_t)pr->cols;
        int64_t each = chunk / pr->rows / XL_TILE_SIZE * XL_TILE_SIZE;
        pr->grain = (size_t)(each < XL_TILE_SIZE ? XL_TILE_SIZE : each);
    } else {
        pr->n = (size_t)pr->rows;
        int64_t each = chunk / pr->cols;
        if (parts && each < (pr->rows + XL_TILE_PARTS - 1) / XL_TILE_PARTS)
            each = (pr->rows + XL_TILE_PARTS - 1) / XL_TILE_PARTS;
        each = (each + pr->tile_rows - 1) / pr->tile_rows * pr->tile_rows;
        pr->grain = (size_t)(each < pr->tile_rows ? pr->tile_rows : each);
    }
    pr->nchunk = (pr->n + pr->grain - 1) / pr->grain;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
typedef struct { uint16_t reg; xl_dtype dtype; uint32_t buf; } result;

/* Calls what shares memory with result `buf` an alias of it: does the program read operand j there, and until when? */
static bool aliased(const xl_tile_maker *m, const xl_step *s, uint32_t buf, uint32_t *read)
{
    const xl_plan *plan = m->p->plan;
    const xl_plan_buf *o = &plan->buf[s->buf[buf]];
    bool any = false;
    *read = 0;
    for (uint32_t j = 0; j < m->nin; j++) {
        const xl_plan_buf *i = &plan->buf[m->in[j]];
        if (o != i &&
            !(o->kind == XL_BUF_OUT && i->kind == XL_BUF_ARG && plan->out_donor[o->index] == (int32_t)i->index))
            continue;
        uint32_t last = m->nlist ? xl_tile_read_last(m, j) : 0;
        *read = last > *read ? last : *read;
        any = true;
    }
    return any;
}

static uint16_t target(xl_tile_maker *m, const result *q)
{
    bool row = m->r[q->reg].row;
    xl_tile_direct to = { q->buf, 0, row ? 1 : m->pr->cols, row ? 0 : 1, xl_dtype_bytes(q->dtype) };
    uint16_t r = new_reg(m, row, to.elem);
    XL_PUSH(m->p->a, m->d, m->nd, m->capd, to);
    m->r[r].direct = (int32_t)m->nd - 1;
    return r;
}

/* A result is made where it belongs, unless it must be narrowed, or operands that lie there are read once more later.
 * Then it waits in a slot, and is copied out after all else. What is copied out therefore never comes from an operand's
 * own memory: another result may lie there by then. */
static void place_results(xl_tile_maker *m, const xl_step *s, result *res, uint32_t n)
{
    xl_arena *a = m->p->a;
    uint32_t read, left = 0, nstored = 0;
    result *stored = xl_new(a, result, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        uint16_t r = res[k].reg;
        if (r == XL_NO_REG)
            continue;
        if (m->r[r].truth || (res[k].dtype == XL_BF16 && !m->r[r].row)) {
            xl_tile_instr x = { .act = DO_EW,
                                .strip = m->r[r].truth ? XL_STRIP_STORE_TRUTH : XL_STRIP_STORE_BF16,
                                .nsrc = 1,
                                .src = { r, r, r },
                                .dst = target(m, &res[k]),
                                .late = aliased(m, s, res[k].buf, &read) };
            emit(m, x);
            stored[nstored++] = (result){ x.dst, res[k].dtype, res[k].buf };
            continue;
        }
        if (m->r[r].direct >= 0 && m->r[r].def < 0) {      /* an operand as it is: read when its turn comes */
            emit_ew(m, xl_ew_convert(a, res[k].dtype, res[k].dtype), m->r[r].row, &r, 1, m->r[r].elem, &res[k].reg);
            r = res[k].reg;
        }
        m->r[r].outside = true;
        res[left++] = res[k];
    }
    xl_tile_schedule(m);
    xl_tile_positions(m);
    for (uint32_t k = 0; k < nstored; k++) {
        result *q = &stored[k];
        if (!aliased(m, s, q->buf, &read) || read <= m->r[q->reg].made)
            continue;
        uint16_t to = target(m, q);
        m->r[q->reg].direct = -1;
        xl_tile_copy_out(m, q->reg, to, xl_ew_convert(a, q->dtype, q->dtype));
    }
    for (uint32_t k = 0; k < left; k++) {
        xl_tile_reg *r = &m->r[res[k].reg];
        bool narrow = xl_is_narrow(res[k].dtype), after = aliased(m, s, res[k].buf, &read) && read > r->made;
        uint16_t to = target(m, &res[k]);
        r = &m->r[res[k].reg];
        if (r->def >= 0 && !narrow && r->direct < 0 && !after) {
            r->direct = m->r[to].direct;
            continue;
        }
        bool strips = r->def >= 0 && !narrow && r->elem == 4 && !r->row;
        xl_ew none = { 0 };
        xl_tile_copy_out(m, res[k].reg, to,
                         strips ? none : xl_ew_convert(a, narrow ? XL_F32 : res[k].dtype, res[k].dtype));
    }
    xl_tile_finish(m);
}

/* About how long an op takes for an element, in additions of f32. */
static double weight(const xl_func *f, const xl_op *op)
{
    double wide = xl_dtype_bytes(xl_out_type(f, op, 0)->dtype) > 4 ? 2 : 1;
    switch (op->code) {
    case XL_OP_ADD: case XL_OP_SUBTRACT: case XL_OP_MULTIPLY: case XL_OP_MAXIMUM: case XL_OP_MINIMUM: case XL_OP_AND:
    case XL_OP_OR: case XL_OP_XOR: case XL_OP_NOT: case XL_OP_NEGATE: case XL_OP_ABS: case XL_OP_COMPARE:
    case XL_OP_SELECT: case XL_OP_CLAMP: case XL_OP_CONVERT: case XL_OP_REDUCE: case XL_OP_PRODUCT_SUM:
        return wide;
    default:
        return 8 * wide;
    }
}

/* Rows are made apart unless sums are made of them, and so are the elements of a single row that nothing is made of as
 * a whole. Buffers that are read or written one after another as they lie: through `dir`, and in no other way. */
static const xl_slices *slices_of(xl_arena *a, const xl_tile_program *pr, const xl_step *s)
{
    bool by_element = pr->by_cols && pr->rows == 1;
    if (pr->npart || (pr->by_cols && !by_element))
        return NULL;
    xl_slices *out = xl_new(a, xl_slices, 1);
    size_t *stride = xl_new(a, size_t, (size_t)s->nin + s->nout);
    bool *shared = xl_new(a, bool, (size_t)s->nin + s->nout);
    for (uint32_t i = 0; i < pr->ndirect; i++) {
        const xl_tile_direct *d = &pr->dir[i];
        size_t unit = (size_t)(by_element ? d->col : d->row) * d->elem;
        bool full = d->col == 1 && (by_element || d->row == pr->cols), one = !by_element && d->row == 1 && d->col == 0;
        shared[d->buf] |= d->off || !(full || one) || (stride[d->buf] && stride[d->buf] != unit);
        stride[d->buf] = unit;
    }
    for (uint32_t i = 0; i < pr->nload; i++)
        shared[pr->loads[i].buf] = true;
    for (uint32_t i = 0; i < pr->ninstr; i++) {            /* initial values */
        const xl_tile_instr *x = &pr->ins[i];
        if (x->act == DO_ROW)
            shared[x->arg] = true;
        for (uint32_t k = 0; x->act == DO_STRIPS && k < x->ncode; k++)
            if (pr->code[x->arg + k].fold)
                shared[pr->code[x->arg + k].fold->arg] = true;
    }
    for (uint32_t k = 0; k < s->nin + s->nout; k++)
        stride[k] = shared[k] ? 0 : stride[k];
    *out = (xl_slices){ xl_tile_run_part, by_element ? pr->cols : pr->rows, stride };
    return out;
}

xl_error *xl_tile_plan(xl_planner *p, xl_group *g)
{
    xl_tile_program *pr = xl_new(p->a, xl_tile_program, 1);
    xl_tile_maker *m = xl_new(p->a, xl_tile_maker, 1);
    xl_error *err = NULL;
    *m = (xl_tile_maker){ .p = p, .g = g, .pr = pr };
    m->of = xl_new(p->a, uint16_t, g->nop);
    shape_space(m);
    m->lines = pr->cols >= LINE_MIN;
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
    xl_str name = xl_strf(p->a, "fused %ux%lldx%lld%s%s", g->nop, (long long)pr->rows, (long long)pr->cols,
                          g->row_reduce ? " rows" : "", m->npart ? " parts" : "");
    XL_DO(xl_plan_step_group(p, name.p, xl_tile_run, pr, g->op, g->nop, m->in, m->val, m->shape, m->nin, out, in_place,
                             nout, m->inplace, temp, m->npart, &s));
    for (uint32_t i = 0; i < m->npart; i++) {
        uint32_t at = m->part[i].out;
        m->part[i].temp = m->nin + nout + i;
        m->part[i].out = UINT32_MAX;
        for (uint32_t k = 0; k < nout; k++)
            if (who[k] == at)
                m->part[i].out = m->nin + k;
    }
    result *res = xl_new(p->a, result, nout + 1);
    for (uint32_t k = 0; k < nout; k++)
        res[k] = (result){ m->of[who[k]], xl_value_type(p->f, out[k])->dtype, m->nin + k };
    place_results(m, s, res, nout);
    for (uint32_t i = 0; i < g->nop; i++)
        pr->work += (double)g->count * weight(p->f, g->op[i]);
    s->slices = slices_of(p->a, pr, s);
out:
    return err;
}
