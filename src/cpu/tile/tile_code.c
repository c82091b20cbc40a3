/* Arranges instructions in stages and strip code.
 *
 * Stages: the array instructions of a stage run first, one after another over the whole tile, then its strip ops in one
 * pass. An instruction belongs to the first stage in which all its inputs are available; strip ops whose result is only
 * used in a later stage are moved there, if that keeps no more in memory than their result would.
 *
 * Strip code of a stage: the machine has one accumulator. Values are computed where they are first used, and stored if
 * they are used again or outside the stage. If both operands of an op must be computed, one is kept in memory. */
#include "cpu/tile/tile.h"

#include <stdlib.h>

enum { SLOTS_BYTES = 1 << 15 };

/* ---- which strip op ---------------------------------------------------------------------------------------------- */
typedef enum { F, I, U, T, NONE } kind;                    /* how a type lives in a strip */
static kind kind_of(xl_dtype d)
{
    return d == XL_F32 || xl_is_narrow(d) ? F : d == XL_I32 ? I : d == XL_U32 ? U : d == XL_I1 ? T : NONE;
}

static const struct { xl_opcode code; int32_t op[4]; } rows[] = {  /* by kind of the operands */
#define N -1
#define S(x) XL_STRIP_##x
    { XL_OP_ADD, { S(ADD), S(INT_ADD), S(INT_ADD), S(OR) } },
    { XL_OP_SUBTRACT, { S(SUBTRACT), S(INT_SUBTRACT), S(INT_SUBTRACT), N } },
    { XL_OP_MULTIPLY, { S(MULTIPLY), S(INT_MULTIPLY), S(INT_MULTIPLY), S(AND) } },
    { XL_OP_DIVIDE, { S(DIVIDE), N, N, N } },
    { XL_OP_MAXIMUM, { S(MAXIMUM), S(INT_MAXIMUM), S(UINT_MAXIMUM), S(OR) } },
    { XL_OP_MINIMUM, { S(MINIMUM), S(INT_MINIMUM), S(UINT_MINIMUM), S(AND) } },
    { XL_OP_CLAMP, { S(MAXIMUM), S(INT_MAXIMUM), S(UINT_MAXIMUM), N } },
    { XL_OP_AND, { N, S(AND), S(AND), S(AND) } },
    { XL_OP_OR, { N, S(OR), S(OR), S(OR) } },
    { XL_OP_XOR, { N, S(XOR), S(XOR), S(XOR) } },
    { XL_OP_SHIFT_LEFT, { N, S(SHIFT_LEFT), S(SHIFT_LEFT), N } },
    { XL_OP_SHIFT_RIGHT_LOGICAL, { N, S(SHIFT_RIGHT), S(SHIFT_RIGHT), N } },
    { XL_OP_SHIFT_RIGHT_ARITHMETIC, { N, S(SHIFT_RIGHT_SIGNED), S(SHIFT_RIGHT_SIGNED), N } },
    { XL_OP_NOT, { N, S(NOT), S(NOT), S(NOT) } },
    { XL_OP_NEGATE, { S(NEGATE), S(INT_NEGATE), S(INT_NEGATE), N } },
    { XL_OP_ABS, { S(ABS), S(INT_ABS), N, N } },
    { XL_OP_SIGN, { S(SIGN), N, N, N } },
    { XL_OP_SQRT, { S(SQRT), N, N, N } },
    { XL_OP_RSQRT, { S(RSQRT), N, N, N } },
    { XL_OP_EXPONENTIAL, { S(EXP), N, N, N } },
    { XL_OP_EXPONENTIAL_MINUS_ONE, { S(EXPM1), N, N, N } },
    { XL_OP_LOG, { S(LOG), N, N, N } },
    { XL_OP_LOG_PLUS_ONE, { S(LOG1P), N, N, N } },
    { XL_OP_TANH, { S(TANH), N, N, N } },
    { XL_OP_LOGISTIC, { S(LOGISTIC), N, N, N } },
    { XL_OP_CHLO_ERF, { S(ERF), N, N, N } },
    { XL_OP_CHLO_SQUARE, { S(SQUARE), N, N, N } },
    { XL_OP_IS_FINITE, { S(IS_FINITE), N, N, N } },
    { XL_OP_SELECT, { S(SELECT), S(SELECT), S(SELECT), S(SELECT) } },
};
/* eq, ne, ge, gt, le, lt */
static const int32_t compares[4][6] = {
    { S(EQ), S(NE), S(GE), S(GT), S(LE), S(LT) },
    { S(INT_EQ), S(INT_NE), S(INT_GE), S(INT_GT), S(INT_LE), S(INT_LT) },
    { S(INT_EQ), S(INT_NE), S(UINT_GE), S(UINT_GT), S(UINT_LE), S(UINT_LT) },
    { S(INT_EQ), S(INT_NE), N, N, N, N },
};
static const int32_t converts[4][4] = {                    /* from, to; XL_STRIP_LOAD: nothing to do */
    { S(LOAD), S(FLOAT_TO_INT), N, S(FLOAT_TO_TRUTH) },
    { S(INT_TO_FLOAT), S(LOAD), S(LOAD), S(INT_TO_TRUTH) },
    { S(UINT_TO_FLOAT), S(LOAD), S(LOAD), S(INT_TO_TRUTH) },
    { S(TRUTH_TO_FLOAT), S(TRUTH_TO_INT), S(TRUTH_TO_INT), S(LOAD) },
};

int32_t xl_tile_strip_of(const xl_op *op, const xl_dtype *in, xl_dtype out)
{
    kind k = kind_of(in[op->code == XL_OP_SELECT]), to = kind_of(out);
    if (k == NONE || to == NONE || (op->code == XL_OP_SELECT && in[0] != XL_I1))
        return -1;
    if (op->code == XL_OP_COMPARE) {
        int64_t d = xl_op_int(op, XL_SLOT(COMPARE, comparison_direction));
        bool total = xl_op_int(op, XL_SLOT(COMPARE, compare_type)) == XL_COMPARISON_TYPE_TOTALORDER;
        return d < 0 || d > 5 || (total && k == F) ? -1 : compares[k][d];
    }
    if (op->code == XL_OP_CONVERT)
        return converts[k][to];
    if (op->code == XL_OP_PRODUCT_SUM)
        return out == XL_F32 ? XL_STRIP_PLUS_PRODUCT + (int32_t)xl_op_int(op, XL_SLOT(PRODUCT_SUM, form)) : -1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == op->code)
            return rows[i].op[k];
    return -1;
}
#undef N
#undef S

/* ---- stages ------------------------------------------------------------------------------------------------------ */
static bool strip(const xl_tile_instr *x) { return x->strip >= 0; }
/* Read as one number (per row): no array. */
static bool number(const xl_tile_reg *r) { return r->elem == 4 && !r->truth && (r->same || r->row); }

static void set_stages(xl_tile_maker *m)
{
    uint32_t most = 0;
    m->stage = xl_new(m->p->a, uint32_t, m->ni + 1);
    for (uint32_t i = 0; i < m->ni; i++) {
        const xl_tile_instr *x = &m->i[i];
        for (uint32_t k = 0; k < x->nsrc; k++) {
            int32_t d = m->r[x->src[k]].def;
            if (d < 0)
                continue;
            /* a fold is there when its stage's strips are through, as are all strip ops for array instructions */
            uint32_t s = m->stage[d] + (strip(&m->i[d]) && (!strip(x) || m->i[d].act == DO_ROW));
            m->stage[i] = s > m->stage[i] ? s : m->stage[i];
        }
        most = m->stage[i] > most ? m->stage[i] : most;
    }
    m->nstage = most + 1;
    for (uint32_t i = 0; i < m->ni; i++)
        if (m->i[i].late)
            m->stage[i] = most;
    uint32_t *first = xl_new(m->p->a, uint32_t, m->nreg);   /* stage of the first that reads it */
    for (uint32_t i = 0; i < m->nreg; i++)
        first[i] = UINT32_MAX;
    for (uint32_t i = m->ni; i-- > 0; ) {
        const xl_tile_instr *x = &m->i[i];
        uint32_t want = x->dst == XL_NO_REG ? UINT32_MAX : first[x->dst], loads = 0;
        for (uint32_t k = 0; k < x->nsrc; k++)
            loads += m->r[x->src[k]].direct < 0 && !number(&m->r[x->src[k]]) && !m->r[x->src[k]].hoisted &&
                     !(k && x->src[k] == x->src[k - 1]);
        bool moves = x->act == DO_LOAD || (strip(x) && x->act != DO_ROW && loads <= 1);
        if (moves && want != UINT32_MAX && want > m->stage[i] && !m->r[x->dst].outside)
            m->stage[i] = want;
        for (uint32_t k = 0; k < x->nsrc; k++) {
            int32_t d = m->r[x->src[k]].def;
            uint32_t s = m->stage[i] - (d >= 0 && strip(&m->i[d]) && !strip(x)), *f = &first[x->src[k]];
            *f = s < *f ? s : *f;
        }
    }
}

/* ---- strip code -------------------------------------------------------------------------------------------------- */
static xl_tile_point point(const xl_tile_maker *m, uint16_t r, bool write)
{
    const xl_tile_reg *q = &m->r[r];
    bool one = number(q);
    return (xl_tile_point){ .of = r, .used = true, .write = write, .size = one ? 0 : (uint8_t)q->elem,
                            .step = one ? (q->row ? 4 : 0) : q->along ? 0 : m->pr->cols * (int64_t)q->elem };
}

/* Its number among the simple ops (strip.h), or -1. */
static int32_t simple(int32_t op, uint32_t form)
{
    static const struct { int32_t op; uint32_t form; } list[] = {
#define ROW(op, form) { XL_STRIP_##op, XL_FORM_##form },
        XL_STRIP_SIMPLE(ROW)
#undef ROW
    };
    for (int32_t i = 0; i < XL_STRIP_SIMPLES; i++)
        if (list[i].op == op && list[i].form == form)
            return i;
    return -1;
}

/* x op y is y op x: the accumulator goes first. */
static uint32_t turned(int32_t op, uint32_t form)
{
    bool commutes = op == XL_STRIP_ADD || op == XL_STRIP_MULTIPLY;
    return !commutes ? form : form == XL_FORM_MA ? XL_FORM_AM : form == XL_FORM_SA ? XL_FORM_AS : form;
}

/* The second of two simple ops joins the first; a root, or a quotient by an array, the quotient by a number. */
static bool pair(xl_tile_maker *m, int32_t op, uint32_t form, const uint16_t *x)
{
    xl_tile_code *last = m->list[m->nlist - 1].ncode ? &m->code[m->ncode - 1] : NULL;
    if (!last || last->z.used)
        return false;
    if (last->op == XL_STRIP_DIVIDE_BY && form == XL_FORM_AM && (op == XL_STRIP_SQRT || op == XL_STRIP_DIVIDE)) {
        last->op = op == XL_STRIP_SQRT ? XL_STRIP_DIVIDE_BY_SQRT : XL_STRIP_DIVIDE_BY_DIVIDE;
    } else if (simple(op, form) >= 0 && simple(last->op, last->form) >= 0) {
        last->op =
            (uint16_t)(XL_STRIP_ADD_AM_ADD_AM + simple(last->op, last->form) * XL_STRIP_SIMPLES + simple(op, form));
        last->form = XL_FORM_AM;
    } else {
        return false;
    }
    if (x)
        last->y = point(m, *x, false);
    return true;
}

static void push(xl_tile_maker *m, int32_t op, uint32_t form, const uint16_t *x, const uint16_t *y)
{
    form = turned(op, form);
    xl_tile_code c = { .op = (uint16_t)op, .form = (uint8_t)form };
    if (x)
        c.x = point(m, *x, op == XL_STRIP_STORE || op == XL_STRIP_STORE_BF16 || op == XL_STRIP_STORE_TRUTH);
    if (y)
        c.y = point(m, *y, false);
    xl_tile_instr *at = &m->list[m->nlist - 1];
    at->lines = at->lines || (x && (m->r[*x].row || m->r[*x].along)) || (y && (m->r[*y].row || m->r[*y].along));
    if (pair(m, op, form, x))
        return;
    XL_PUSH(m->p->a, m->code, m->ncode, m->capcode, c);
    at->ncode++;
}

/* In memory, or made elsewhere (then it is). */
static bool at_hand(const xl_tile_maker *m, uint16_t r, uint32_t stage)
{
    const xl_tile_reg *q = &m->r[r];
    if (q->again && !q->outside && !q->kept)
        return false;
    return q->kept || q->def < 0 || !strip(&m->i[q->def]) || m->i[q->def].act == DO_ROW || m->stage[q->def] != stage;
}

/* The accumulator, which holds r, into memory: by the instruction that made it, if it was the last. */
static void keep(xl_tile_maker *m, uint16_t r)
{
    if (m->r[r].kept)
        return;
    m->r[r].kept = true;
    xl_tile_code *last = m->list[m->nlist - 1].ncode ? &m->code[m->ncode - 1] : NULL;
    if (!last || last->z.used || last->x.write || last->fold) {
        push(m, XL_STRIP_STORE, XL_FORM_AM, &r, NULL);
        return;
    }
    last->form += XL_FORM_STORE;
    last->z = point(m, r, true);
}

static void compute(xl_tile_maker *m, uint16_t r, uint32_t stage);

/* r into the accumulator. */
static void fetch(xl_tile_maker *m, uint16_t r, uint32_t stage)
{
    if (m->acc == r)
        return;
    if (at_hand(m, r, stage))
        push(m, XL_STRIP_LOAD, number(&m->r[r]) ? XL_FORM_AS : XL_FORM_AM, &r, NULL);
    else
        compute(m, r, stage);
    m->acc = r;
}

/* r into memory, unless it is there. */
static void settle(xl_tile_maker *m, uint16_t r, uint32_t stage)
{
    if (at_hand(m, r, stage))
        return;
    fetch(m, r, stage);
    keep(m, r);
}

/* A product and a sum, rounded once: the strip is the addend or one factor, the others are in memory. What is not there
 * yet is computed, the addend last if it can be. */
static void product_sum(xl_tile_maker *m, const xl_tile_instr *x, uint32_t stage)
{
    static const int32_t times[] = { XL_STRIP_TIMES_PLUS, XL_STRIP_TIMES_LESS, XL_STRIP_LESS_TIMES };
    uint32_t last = 2;                                     /* which of them is the strip */
    for (uint32_t k = 0; k < 2; k++)
        if (m->acc == x->src[k] || (at_hand(m, x->src[2], stage) && !at_hand(m, x->src[k], stage)))
            last = k;
    if (m->acc == x->src[2])
        last = 2;
    uint16_t a = x->src[last], p = x->src[last == 0], q = x->src[last == 2 ? 1 : 2];
    if (p != a)
        settle(m, p, stage);
    if (q != a)
        settle(m, q, stage);
    if (p == a || q == a)
        settle(m, a, stage);
    fetch(m, a, stage);
    bool np = number(&m->r[p]), nq = number(&m->r[q]);
    if (last == 2 && nq && !np) {                          /* factors: the number first */
        uint16_t t = p;
        p = q, q = t;
        np = true, nq = false;
    }
    push(m, last == 2 ? x->strip : times[x->strip - XL_STRIP_PLUS_PRODUCT],
         np ? (nq ? XL_FORM_SS : XL_FORM_SM) : nq ? XL_FORM_MS : XL_FORM_MM, &p, &q);
}

/* (t / number) / b, when the quotient is used nowhere else and t will lie in memory anyway: b need not. */
static bool with_quotient(xl_tile_maker *m, uint16_t quotient, uint16_t b, uint32_t stage)
{
    const xl_tile_reg *r = &m->r[quotient];
    if (quotient == b || at_hand(m, quotient, stage) || m->acc == quotient || r->users > 1 || r->outside ||
        m->i[r->def].strip != XL_STRIP_DIVIDE_BY || at_hand(m, b, stage))
        return false;
    uint16_t t = m->i[r->def].src[0], by = m->i[r->def].src[1];
    if (number(&m->r[t]) || (!at_hand(m, t, stage) && !m->r[t].outside && m->r[t].users < 2))
        return false;
    settle(m, t, stage);
    fetch(m, b, stage);
    push(m, XL_STRIP_DIVIDE_BY_UNDER, XL_FORM_AS, &by, &t);
    return true;
}

static void binary(xl_tile_maker *m, const xl_tile_instr *x, uint32_t stage)
{
    uint16_t a = x->src[0], b = x->src[1];
    bool sa = number(&m->r[a]), sb = number(&m->r[b]);
    int32_t op = x->strip;
    if (op == XL_STRIP_DIVIDE_BY) {
        fetch(m, a, stage);
        push(m, op, XL_FORM_AS, &b, NULL);
        return;
    }
    if (a == b) {
        settle(m, a, stage);
        fetch(m, a, stage);
        push(m, op, sb ? XL_FORM_AS : XL_FORM_AM, &b, NULL);
        return;
    }
    if (x->strip == XL_STRIP_DIVIDE && with_quotient(m, a, b, stage))
        return;
    bool ha = at_hand(m, a, stage), hb = at_hand(m, b, stage);
    if (m->acc == b && ha) {
        push(m, x->strip, sa ? XL_FORM_SA : XL_FORM_MA, &a, NULL);
        return;
    }
    if (m->acc != a && ha && hb && !(sa && sb)) {
        push(m, op, sa ? XL_FORM_SM : sb ? XL_FORM_MS : XL_FORM_MM, &a, &b);
        return;
    }
    if (ha && !hb) {
        fetch(m, b, stage);
        push(m, x->strip, sa ? XL_FORM_SA : XL_FORM_MA, &a, NULL);
        return;
    }
    settle(m, b, stage);
    fetch(m, a, stage);
    push(m, op, sb ? XL_FORM_AS : XL_FORM_AM, &b, NULL);
}

static void choose(xl_tile_maker *m, const xl_tile_instr *x, uint32_t stage)
{
    uint16_t c = x->src[0], yes = x->src[1], no = x->src[2];
    bool sy = number(&m->r[yes]), sn = number(&m->r[no]);
    bool hc = at_hand(m, c, stage), hy = at_hand(m, yes, stage), hn = at_hand(m, no, stage);
    if (hc && hy && !hn) {
        fetch(m, no, stage);
        push(m, XL_STRIP_SELECT, sy ? XL_SELECT_NO_S : XL_SELECT_NO_M, &c, &yes);
        return;
    }
    if (hc && !hy) {
        settle(m, no, stage);
        fetch(m, yes, stage);
        push(m, XL_STRIP_SELECT, sn ? XL_SELECT_YES_S : XL_SELECT_YES_M, &c, &no);
        return;
    }
    settle(m, yes, stage);
    settle(m, no, stage);
    fetch(m, c, stage);
    push(m, XL_STRIP_SELECT, sy ? (sn ? XL_SELECT_SS : XL_SELECT_SM) : (sn ? XL_SELECT_MS : XL_SELECT_MM), &yes, &no);
}

static void compute(xl_tile_maker *m, uint16_t r, uint32_t stage)
{
    const xl_tile_instr *x = &m->i[m->r[r].def];
    if (x->strip == XL_STRIP_LOAD_BF16 || x->strip == XL_STRIP_LOAD_TRUTH) {
        push(m, x->strip, XL_FORM_AM, &x->src[0], NULL);
    } else if (x->nsrc == 1) {
        fetch(m, x->src[0], stage);
        push(m, x->strip, XL_FORM_AM, NULL, NULL);
    } else if (x->nsrc == 2) {
        binary(m, x, stage);
    } else if (x->strip != XL_STRIP_SELECT) {
        product_sum(m, x, stage);
    } else {
        choose(m, x, stage);
    }
    m->acc = r;
    if (m->r[r].outside || m->r[r].users > 1)
        keep(m, r);
}

static void fold(xl_tile_maker *m, uint32_t i, uint32_t *nfold, uint32_t stage)
{
    const xl_tile_instr *x = &m->i[i];
    fetch(m, x->src[0], stage);
    push(m, x->strip, XL_FORM_AM, NULL, NULL);
    xl_tile_code *c = &m->code[m->ncode - 1];
    c->x.of = (uint16_t)(*nfold)++;
    c->y = point(m, x->dst, true);
    c->y.used = true;
    c->fold = x;
    m->list[m->nlist - 1].lines = m->list[m->nlist - 1].folds = true;
}

static void strip_stage(xl_tile_maker *m, uint32_t stage)
{
    uint32_t n = 0, nfold = 0;
    for (uint32_t i = 0; i < m->ni; i++)
        n += m->stage[i] == stage && strip(&m->i[i]);
    if (!n)
        return;
    xl_tile_instr run = { .act = DO_STRIPS, .dst = XL_NO_REG, .arg = m->ncode, .strip = -1 };
    XL_PUSH(m->p->a, m->list, m->nlist, m->caplist, run);
    m->acc = XL_NO_REG;
    for (uint32_t q = 0; q < 2 * m->ni;
         q++) { /* what nobody here reads; the rest is computed when it is read. Late ones last */
        uint32_t i = q % m->ni;
        const xl_tile_instr *x = &m->i[i];
        if (!strip(x) || m->stage[i] != stage || x->late != (q >= m->ni))
            continue;
        if (x->act == DO_ROW) {
            fold(m, i, &nfold, stage);
        } else if (x->strip == XL_STRIP_STORE_BF16 || x->strip == XL_STRIP_STORE_TRUTH) {
            fetch(m, x->src[0], stage);
            push(m, x->strip, XL_FORM_AM, &x->dst, NULL);
        } else if (m->r[x->dst].outside && !m->r[x->dst].users) {
            compute(m, x->dst, stage);
        }
    }
    xl_tile_program *pr = m->pr;
    uint32_t len = m->list[m->nlist - 1].ncode;
    pr->longest = len > pr->longest ? len : pr->longest;
    pr->nfold = nfold > pr->nfold ? nfold : pr->nfold;
}

/* One simple op on an operand in memory and a number: in a later pass it is made again rather than kept in a slot. */
static bool cheap(const xl_tile_maker *m, const xl_tile_instr *x)
{
    if (x->strip != XL_STRIP_ADD && x->strip != XL_STRIP_SUBTRACT && x->strip != XL_STRIP_MULTIPLY)
        return false;
    const xl_tile_reg *a = &m->r[x->src[0]], *b = &m->r[x->src[1]], *array = number(a) ? b : a;
    return number(a) != number(b) && array->direct >= 0 && array->def < 0;
}

/* Who reads what, by strip ops of its own stage or by others. */
static void count_users(xl_tile_maker *m)
{
    for (uint32_t i = 0; i < m->ni; i++)
        for (uint32_t k = 0; k < m->i[i].nsrc; k++) {
            xl_tile_reg *r = &m->r[m->i[i].src[k]];
            bool again = false;
            for (uint32_t q = 0; q < k; q++)
                again = again || m->i[i].src[q] == m->i[i].src[k];
            if (again || r->def < 0)
                continue;
            if (strip(&m->i[i]) && m->stage[r->def] == m->stage[i])
                r->users++;
            else if (strip(&m->i[i]) && cheap(m, &m->i[r->def]))
                r->again = true;
            else
                r->outside = true;
        }
}

void xl_tile_schedule(xl_tile_maker *m)
{
    set_stages(m);
    count_users(m);
    for (uint32_t s = 0; s < m->nstage; s++) {
        for (uint32_t i = 0; i < m->ni; i++)
            if (m->stage[i] == s && !strip(&m->i[i]))
                XL_PUSH(m->p->a, m->list, m->nlist, m->caplist, m->i[i]);
        strip_stage(m, s);
    }
}

/* ---- positions and slots ----------------------------------------------------------------------------------------- */
typedef struct { uint32_t pos; uint16_t reg; bool write; } touch;
typedef void touch_fn(xl_tile_maker *m, void *ctx, const touch *t);

static void walk_point(xl_tile_maker *m, touch_fn *fn, void *ctx, const xl_tile_point *p, uint32_t pos, uint32_t begin,
                       uint32_t end)
{
    if (!p->used)
        return;
    if (p->size) {
        fn(m, ctx, &(touch){ pos, p->of, p->write });
        return;
    }
    if (p->write)                                          /* a number per line lives from the first line to the last */
        fn(m, ctx, &(touch){ begin, p->of, true });
    fn(m, ctx, &(touch){ end, p->of, false });
}

/* Every read and write of a register. Positions count instructions of the list and of strip code alike. */
static void walk(xl_tile_maker *m, touch_fn *fn, void *ctx)
{
    uint32_t pos = 0;
    for (uint32_t i = 0; i < m->nlist; i++) {
        const xl_tile_instr *x = &m->list[i];
        uint32_t begin = pos, end = pos + x->ncode;
        for (uint32_t k = 0; k < x->nsrc; k++)
            fn(m, ctx, &(touch){ pos, x->src[k], false });
        if (x->dst != XL_NO_REG)
            fn(m, ctx, &(touch){ pos, x->dst, true });
        for (uint32_t k = 0; k < x->ncode; k++, pos++) {
            const xl_tile_code *c = &m->code[x->arg + k];
            walk_point(m, fn, ctx, &c->x, pos, begin, end);
            walk_point(m, fn, ctx, &c->y, pos, begin, end);
            walk_point(m, fn, ctx, &c->z, pos, begin, end);
        }
        pos++;
    }
}

static void note(xl_tile_maker *m, void *ctx, const touch *t)
{
    xl_tile_reg *r = &m->r[t->reg];
    (void)ctx;
    if (t->write && r->made == UINT32_MAX)
        r->made = t->pos;
    r->last = t->pos > r->last ? t->pos : r->last;
}

void xl_tile_positions(xl_tile_maker *m)
{
    for (uint32_t i = 0; i < m->nreg; i++)
        m->r[i].made = UINT32_MAX, m->r[i].last = 0;
    walk(m, note, NULL);
}

/* After which position operand `buf` is read no more. */
uint32_t xl_tile_read_last(const xl_tile_maker *m, uint32_t buf)
{
    uint32_t last = 0, pos = 0;
    for (uint32_t i = 0; i < m->nreg; i++)
        if (m->r[i].direct >= 0 && m->d[m->r[i].direct].buf == buf && m->r[i].last > last)
            last = m->r[i].last;
    for (uint32_t i = 0; i < m->nlist; i++) {
        const xl_tile_instr *x = &m->list[i];
        bool reads = ((x->act == DO_LOAD || x->act == DO_LOAD_ROW) && m->l[x->arg].buf == buf) ||
                     (x->act == DO_ROW && x->arg == buf);
        for (uint32_t k = 0; k < x->ncode; k++)
            reads = reads || (m->code[x->arg + k].fold && m->code[x->arg + k].fold->arg == buf);
        pos += x->ncode;
        if (reads && pos > last)
            last = pos;
        pos++;
    }
    return last;
}

/* Appends what copies register r to register `to` after all else. */
void xl_tile_copy_out(xl_tile_maker *m, uint16_t r, uint16_t to, xl_ew ew)
{
    if (!ew.fn) {
        if (!m->nlist || m->list[m->nlist - 1].act != DO_STRIPS) {
            xl_tile_instr run = { .act = DO_STRIPS, .dst = XL_NO_REG, .arg = m->ncode, .strip = -1 };
            XL_PUSH(m->p->a, m->list, m->nlist, m->caplist, run);
        }
        push(m, XL_STRIP_LOAD, XL_FORM_AM, &r, NULL);
        push(m, XL_STRIP_STORE, XL_FORM_AM, &to, NULL);
        uint32_t len = m->list[m->nlist - 1].ncode;
        m->pr->longest = len > m->pr->longest ? len : m->pr->longest;
        return;
    }
    xl_tile_instr x = {
        .act = DO_EW, .row = m->r[r].row, .nsrc = 1, .src = { r, r, r }, .dst = to, .ew = ew, .strip = -1
    };
    XL_PUSH(m->p->a, m->list, m->nlist, m->caplist, x);
}

typedef struct { uint32_t made; uint16_t reg; } birth;
static int by_birth(const void *a, const void *b)
{
    const birth *x = a, *y = b;
    return x->made != y->made ? (x->made > y->made) - (x->made < y->made) : (x->reg > y->reg) - (x->reg < y->reg);
}

/* An array function may write where it reads: the slot of an operand that dies there, or UINT32_MAX. */
static uint32_t slot_at_hand(const xl_tile_maker *m, const uint32_t *at, uint16_t r)
{
    const xl_tile_reg *d = &m->r[r];
    if (at[d->made] == UINT32_MAX || m->list[at[d->made]].act != DO_EW)
        return UINT32_MAX;
    const xl_tile_instr *x = &m->list[at[d->made]];
    for (uint32_t k = 0; k < x->nsrc; k++) {
        const xl_tile_reg *s = &m->r[x->src[k]];
        if (s->direct < 0 && !s->hoisted && s->last == d->made && s->elem == d->elem && s->row == d->row &&
            s->slot != UINT32_MAX)
            return s->slot;
    }
    return UINT32_MAX;
}

/* Registers that are read where they lie or written where they belong have no slot; the others share slots by their
 * lives. Slots of arrays of four bytes are not shared with others: strips of both would overlap. */
static void assign_slots(xl_tile_maker *m)
{
    xl_tile_program *pr = m->pr;
    xl_arena *a = m->p->a;
    uint32_t nslot = 0, nbirth = 0, nlive = 0, nfree[2] = { 0, 0 }, npos = 1;
    birth *b = xl_new(a, birth, m->nreg + 1);
    uint16_t *live = xl_new(a, uint16_t, m->nreg + 1);
    uint32_t *freed[2] = { xl_new(a, uint32_t, m->nreg + 1), xl_new(a, uint32_t, m->nreg + 1) };
    for (uint32_t i = 0; i < m->nlist; i++)
        npos += m->list[i].ncode + 1;
    uint32_t *at = xl_new(a, uint32_t, npos);              /* position to place in the list, outside strip code */
    memset(at, 0xff, npos * sizeof *at);
    for (uint32_t i = 0, pos = 0; i < m->nlist; pos += m->list[i++].ncode + 1)
        at[pos] = m->list[i].act == DO_STRIPS ? UINT32_MAX : i;
    for (uint32_t i = 0; i < m->nh; i++)
        m->r[m->h[i].dst].slot = nslot++;
    for (uint32_t i = 0; i < m->nreg; i++)
        if (m->r[i].direct < 0 && !m->r[i].hoisted && m->r[i].made != UINT32_MAX)
            b[nbirth++] = (birth){ m->r[i].made, (uint16_t)i };
    qsort(b, nbirth, sizeof *b, by_birth);
    for (uint32_t i = 0; i < nbirth; i++) {
        xl_tile_reg *r = &m->r[b[i].reg];
        int pool = r->elem != 4;
        for (uint32_t k = 0; k < nlive; k++)
            if (m->r[live[k]].last < r->made) {
                freed[m->r[live[k]].elem != 4][nfree[m->r[live[k]].elem != 4]++] = m->r[live[k]].slot;
                live[k--] = live[--nlive];
            }
        r->slot = slot_at_hand(m, at, b[i].reg);
        if (r->slot != UINT32_MAX) {                       /* taken over: the other one does not free it */
            for (uint32_t k = 0; k < nlive; k++)
                if (m->r[live[k]].slot == r->slot)
                    live[k--] = live[--nlive];
        } else {
            r->slot = nfree[pool] ? freed[pool][--nfree[pool]] : nslot++;
        }
        live[nlive++] = b[i].reg;
    }
    pr->nslot = nslot;
}

static uint16_t ref_of(const xl_tile_maker *m, uint16_t r)
{
    const xl_tile_reg *q = &m->r[r];
    return (uint16_t)(q->direct >= 0 ? (uint32_t)q->direct : q->slot == UINT32_MAX ? 0 : m->nd + q->slot);
}

static void to_refs(xl_tile_maker *m, xl_tile_instr *x)
{
    for (uint32_t k = 0; k < 3; k++)
        x->src[k] = x->nsrc ? ref_of(m, x->src[k]) : 0;
    if (x->dst != XL_NO_REG)
        x->dst = ref_of(m, x->dst);
}

/* Loads of numbers that nobody reads as an array need not lay out a tile. How many there are. */
static uint32_t numbers_only(xl_tile_maker *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->nh; i++) {
        bool array = !number(&m->r[m->h[i].dst]);
        for (uint32_t k = 0; k < m->nlist; k++)
            for (uint32_t q = 0; q < m->list[k].nsrc; q++)
                array = array || m->list[k].src[q] == m->h[i].dst;
        if (!array && m->h[i].act == DO_LOAD)
            m->h[i].act = DO_LOAD_ONE;
        n += !array;
    }
    return n;
}

/* ---- memory ahead ------------------------------------------------------------------------------------------------ */
static void ask(xl_tile_instr *x, uint16_t of, xl_ahead_when when)
{
    for (uint32_t i = 0; i < x->nahead; i++)
        if (x->ahead[i].of == of)
            return;
    if (x->nahead < XL_STRIP_AHEADS)
        x->ahead[x->nahead++] = (xl_tile_ahead){ of, (uint8_t)when };
}

static bool writes(const xl_tile_maker *m, const xl_tile_instr *x, uint16_t of)
{
    for (uint32_t k = 0; k < x->ncode; k++) {
        const xl_tile_code *c = &m->code[x->arg + k];
        if ((c->x.write && c->x.size && c->x.of == of) || (c->z.write && c->z.size && c->z.of == of))
            return true;
    }
    return false;
}

/* Of arrays that fit no cache. With several passes over a tile, results are asked for in the pass before they are
 * written, the next tile's operands in the last. */
static void look_ahead(xl_tile_maker *m)
{
    enum { MUCH = 1 << 18 };                               /* elements */
    const xl_tile_program *pr = m->pr;
    xl_tile_instr *first = NULL, *last = NULL;
#if !defined(__x86_64__)                                   /* a Neoverse V1 gains nothing by it (docs/kernels.md) */
    return;
#endif
    if (pr->rows * pr->cols < MUCH)
        return;
    for (uint32_t i = 0; i < m->nlist; i++) {
        xl_tile_instr *x = &m->list[i], *before = last && pr->tile_cols == pr->cols ? last : NULL;
        if (x->act != DO_STRIPS)
            continue;
        for (uint32_t d = 0; d < m->nd; d++)
            if (m->d[d].col == 1 && m->d[d].row == pr->cols && writes(m, x, (uint16_t)d))
                ask(before ? before : x, (uint16_t)d, before ? XL_AHEAD_THIS_TILE : XL_AHEAD_THIS_PASS);
        first = first ? first : x;
        last = x;
    }
    for (uint32_t d = 0; last != first && pr->tile_cols == pr->cols && d < m->nd; d++) {
        bool written = m->d[d].col != 1 || m->d[d].row != pr->cols;
        for (uint32_t i = 0; i < m->nlist && !written; i++)
            written = m->list[i].dst == d || (m->list[i].act == DO_STRIPS && writes(m, &m->list[i], (uint16_t)d));
        if (!written)
            ask(last, (uint16_t)d, XL_AHEAD_NEXT_TILE);
    }
}

void xl_tile_finish(xl_tile_maker *m)
{
    xl_tile_program *pr = m->pr;
    xl_tile_positions(m);
    assign_slots(m);
    uint32_t ones = numbers_only(m);
    size_t most = 4;
    for (uint32_t i = 0; i < m->nreg; i++)
        most = m->r[i].elem > most ? m->r[i].elem : most;
    while (pr->tile_rows == 1 && pr->tile_cols >= XL_TILE_SIZE && pr->tile_cols < XL_TILE_ROWS_SIZE &&
           pr->cols >= 4 * pr->tile_cols &&
           (size_t)(pr->nslot - ones + 1) * (size_t)pr->tile_cols * 2 * most <= SLOTS_BYTES)
        pr->tile_cols *= 2; /* pieces of a row: long ones, if few slots keep them in the first cache */
    pr->slot_bytes = (((size_t)(pr->tile_rows * pr->tile_cols) + XL_STRIP_WIDTH_MAX) * most + XL_ALIGN - 1) &
                     ~(size_t)(XL_ALIGN - 1);
    for (uint32_t i = 0; i < m->nh; i++)
        to_refs(m, &m->h[i]);
    for (uint32_t i = 0; i < m->nlist; i++)
        to_refs(m, &m->list[i]);
    for (uint32_t i = 0; i < m->ncode; i++) {
        xl_tile_code *c = &m->code[i];
        if (c->x.used)
            c->x.of = ref_of(m, c->x.of);
        if (c->y.used)
            c->y.of = ref_of(m, c->y.of);
        if (c->z.used)
            c->z.of = ref_of(m, c->z.of);
    }
    look_ahead(m);
    pr->hoist = m->h, pr->nhoist = m->nh;
    pr->ins = m->list, pr->ninstr = m->nlist;
    pr->code = m->code;
    pr->dir = m->d, pr->ndirect = m->nd;
    pr->loads = m->l, pr->nload = m->nl;
    pr->part = m->part, pr->npart = m->npart;
}
