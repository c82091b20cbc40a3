/* Three proofs.
 *
 * The program: every value gets a number, such that values that are certain to be equal have the same one: the same op
 * with the same attributes on the same numbers. Ops that the planner changed or added must have the numbers that they
 * had, or that their originals have.
 *
 * Memory: the steps are gone through in order, with a map of what each byte range holds: the number of a value, whole,
 * and the step that wrote it. A step must find the number that it means at each operand; then its results are put on
 * the map. A loop is gone through twice, what belongs to a round being forgotten in between; after branches only what
 * all of them agree on is left.
 *
 * Steps that stand for several ops, or read through views: each is run on random data in memory laid out as the plan
 * has it, and compared with its ops planned one by one (XLANE_CPU_PLAN=plain). How far results may differ is taken from
 * how far they move when the data moves by a rounding error. */
#include "cpu/plan/check.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cpu/plan/view.h"
#include "cpu/run/env.h"

#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ALWAYS = 1 };
#else
enum { ALWAYS = 0 };
#endif
enum {
    WORK_MAX = 1 << 24,
    SMALL = 1 << 16,
    MARGIN = 4096,
    ROUNDS = 4,
    MOVES = 24
}; /* elements times ops that a step is replayed for; that are replayed in any case; bytes; data sets; times that each
    * is moved by rounding errors */

typedef struct {
    xl_op *op;
    uint16_t code;
    const xl_value *in;
    const xl_attr **attr;
    const xl_type *type;
    uint32_t depth;
} shot;
typedef struct { uint32_t op, next; } node;                /* of the table: an op with its number */
typedef struct {
    uint32_t depth;
    xl_value v;
} number; /* depth: of the region whose rounds it changes with; v: one that has it */
typedef struct { uint64_t lo, hi, origin; uint32_t num, when; const xl_step *by; const xl_op *punched; } seg;
typedef struct { seg *s; uint32_t n, cap; } space;
typedef struct { uint32_t num, when, base; const xl_op *row_of; } part; /* row_of: the update that this is the row of */
typedef struct { space *sp; part *part; } state;

void (*xl_check_hook)(xl_planner *p);

struct xl_check {
    xl_planner *p;
    xl_arena *a;
    xl_func *f;
    shot *shot; uint32_t nshot, capshot;
    uint32_t nval;                                         /* before planning */
    uint32_t **num;                                        /* per value: a number per leaf */
    number *info; uint32_t ninfo, capinfo;
    uint32_t *table, ntable; node *node; uint32_t nnode, capnode;
    uint32_t *constant;                                    /* per buffer: the number of the constant there, or 0 */
    bool *stepped;                                         /* per value: a step makes it */
    uint32_t nspace, now;
};

/* ---- the program as it was ------------------------------------------------------------------------------------- */
static void note(xl_check *c, xl_region *r, uint32_t depth)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        uint32_t n = xl_op_nattr((xl_opcode)op->code);
        shot s = { op,
                   op->code,
                   xl_new(c->a, xl_value, op->nin + 1),
                   xl_new(c->a, const xl_attr *, n + 1),
                   op->nout ? xl_out_type(c->f, op, 0) : NULL,
                   depth };
        memcpy((xl_value *)s.in, op->in, op->nin * sizeof *op->in);
        for (uint32_t k = 0; k < n; k++)
            s.attr[k] = op->attr[k];
        for (uint32_t k = 0; k < op->nregion; k++)
            note(c, op->region[k], depth + 1);
        XL_PUSH(c->a, c->shot, c->nshot, c->capshot, s);
    }
}

xl_check *xl_check_begin(xl_planner *p)
{
    if (p->plain || !xl_env_get(XL_ENV_CHECK, ALWAYS))
        return NULL;
    xl_check *c = xl_new(p->a, xl_check, 1);
    *c = (xl_check){ .p = p, .a = p->a, .f = p->f, .nval = p->f->nval };
    note(c, p->f->body, 0);
    return c;
}

static const char *text_of(xl_check *c, xl_value v)
{
    const xl_op *def = v.id < c->f->nval ? c->f->val[v.id].def : NULL;
    xl_str file, name = v.id < c->f->nval ? c->f->val[v.id].name : XL_STR("");
    uint32_t line, col;
    if (!def)
        return xl_strf(c->a, "argument %u%s%.*s", v.id < c->f->nval ? c->f->val[v.id].index : 0, name.n ? " %" : "",
                       XL_FMT(name))
            .p;
    if (xl_loc_line(c->f->m, def->loc, &file, &line, &col))
        return xl_strf(c->a, "%s (%.*s:%u, value %u)", xl_op_text(def), XL_FMT(file), line, v.id).p;
    return xl_strf(c->a, "%s%s%.*s (value %u)", xl_op_text(def), name.n ? " %" : "", XL_FMT(name), v.id).p;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */
static uint32_t leaves(const xl_type *t)
{
    uint32_t n = 0;
    if (t->kind != XL_TY_TUPLE)
        return 1;
    for (uint32_t i = 0; i < t->nelem; i++)
        n += leaves(t->elem[i]);
    return n;
}

static uint32_t *fresh(xl_check *c, xl_value v, uint32_t depth)
{
    uint32_t n = leaves(xl_value_type(c->f, v)), *num = xl_new(c->a, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        number x = { depth, v };
        XL_PUSH(c->a, c->info, c->ninfo, c->capinfo, x);
        num[i] = c->ninfo;                                 /* from 1 */
    }
    return num;
}

/* What v is, where it is known by itself: an argument when it is met first. */
static const uint32_t *num_of(xl_check *c, xl_value v)
{
    if (!c->num[v.id]) {
        uint32_t depth = 0;
        const xl_val *x = &c->f->val[v.id];
        for (const xl_region *r = x->def ? x->def->parent : x->region; r && r->owner; r = r->owner->parent)
            depth++;
        c->num[v.id] = fresh(c, v, depth);
    }
    return c->num[v.id];
}

static bool pure(const xl_op *op, uint16_t code)
{
    return op->nout == 1 && !op->nregion && !(xl_ops[code].flags & (XL_OP_EFFECT | XL_OP_COLLECTIVE)) &&
           code != XL_OP_CUSTOM_CALL && code != XL_OP_RNG && code != XL_OP_UNKNOWN;
}

static bool same_bytes(xl_check *c, const xl_op *op, uint16_t code)
{
    if (code == XL_OP_RESHAPE || code == XL_OP_DYNAMIC_RESHAPE || code == XL_OP_SDY_CONSTRAINT ||
        code == XL_OP_SDY_RESHARD || code == XL_OP_SDY_BARRIER || code == XL_OP_OPTIMIZATION_BARRIER)
        return true;
    if (code == XL_OP_CONVERT && xl_in_type(c->f, op, 0)->dtype == xl_out_type(c->f, op, 0)->dtype)
        return true;
    if (code != XL_OP_CUSTOM_CALL && code != XL_OP_BITCAST_CONVERT && code != XL_OP_SET_DIMENSION_SIZE &&
        !xl_op_is_view(c->f, op) && !(xl_ops[code].flags & XL_OP_COLLECTIVE))
        return false;
    /* of these, a kernel that made no step gave its operand on */
    const xl_leaves *l = op->nin && op->nout ? &c->p->leaf[op->in[0].id] : NULL,
                    *o = l ? &c->p->leaf[op->out[0].id] : NULL;
    return l && l->n == 1 && o->n == 1 && l->buf[0] == o->buf[0] && !c->stepped[op->out[0].id];
}

/* The splat that v is, however it is written: one number for all of that size. */
static bool splat_of(xl_check *c, xl_value v, const void **data, size_t *elem, int64_t *count)
{
    xl_view w;
    const xl_type *t = xl_value_type(c->f, v);
    if (t->kind != XL_TY_TENSOR || !xl_type_count(t, count))
        return false;
    xl_view_of(c->f, v, &w);
    const xl_op *def = w.kind == XL_VIEW_SPLAT ? c->f->val[w.base.id].def : NULL;
    const xl_attr *a = def ? XL_ATTR(def, CONSTANT, value) : NULL;
    if (!a)
        return false;
    *data = a->data.p;
    *elem = xl_dtype_bytes(t->dtype);
    return true;
}

static bool same_key(xl_check *c, const shot *x, const shot *y)
{
    if (x->code != y->code || x->op->nin != y->op->nin || !xl_type_eq(x->type, y->type))
        return false;
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)x->code); i < n; i++)
        if (x->attr[i] != y->attr[i])
            return false;
    for (uint32_t i = 0; i < x->op->nin; i++)
        if (num_of(c, x->in[i])[0] != num_of(c, y->in[i])[0])
            return false;
    return true;
}

/* The numbers of the results of an op as s describes it; those it had already if there is such an op. */
static void give_numbers(xl_check *c, uint32_t at)
{
    shot *s = &c->shot[at];
    xl_op *op = s->op;
    if (!op->nout)
        return;
    const void *data;
    size_t elem;
    int64_t count;
    bool is_splat = op->nout == 1 && splat_of(c, op->out[0], &data, &elem, &count);
    uint64_t h = s->code;
    if (is_splat) {
        h = 77 + (uint64_t)count;
        for (size_t i = 0; i < elem; i++)
            h = h * 1099511628211u + ((const uint8_t *)data)[i];
    } else if (same_bytes(c, op, s->code)) {
        for (uint32_t k = 0; k < op->nout; k++)
            c->num[op->out[k].id] = (uint32_t *)(uintptr_t)num_of(c, s->in[k]);
        return;
    } else if (s->code == XL_OP_TUPLE) {
        uint32_t k = 0, *num = xl_new(c->a, uint32_t, leaves(xl_out_type(c->f, op, 0)) + 1);
        for (uint32_t i = 0; i < op->nin; i++)
            for (uint32_t j = 0; j < leaves(xl_in_type(c->f, op, i)); j++)
                num[k++] = num_of(c, s->in[i])[j];
        c->num[op->out[0].id] = num;
        return;
    } else if (s->code == XL_OP_GET_TUPLE_ELEMENT) {
        const xl_type *t = xl_in_type(c->f, op, 0);
        uint32_t first = 0;
        for (int64_t i = 0; i < xl_op_int(op, XL_SLOT(GET_TUPLE_ELEMENT, index)); i++)
            first += leaves(t->elem[i]);
        c->num[op->out[0].id] = (uint32_t *)(uintptr_t)num_of(c, s->in[0]) + first;
        return;
    } else if (!pure(op, s->code)) {
        for (uint32_t k = 0; k < op->nout; k++)
            c->num[op->out[k].id] = fresh(c, op->out[k], s->depth);
        return;
    } else {
        for (uint32_t i = 0; i < op->nin; i++)
            h = (h ^ num_of(c, s->in[i])[0]) * 1099511628211u;
        for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)s->code); i < n; i++)
            h = (h ^ (uintptr_t)s->attr[i]) * 1099511628211u;
    }
    uint32_t *head = &c->table[(h ^ h >> 29) % c->ntable], depth = 0;
    for (uint32_t i = *head; i; i = c->node[i - 1].next) {
        const shot *o = &c->shot[c->node[i - 1].op];
        const void *other;
        size_t e;
        int64_t n;
        bool splat_too = o->op->nout == 1 && splat_of(c, o->op->out[0], &other, &e, &n);
        if (is_splat ? splat_too && e == elem && n == count && !memcmp(other, data, elem)
                     : !splat_too && same_key(c, s, o)) {
            c->num[op->out[0].id] = (uint32_t *)(uintptr_t)num_of(c, o->op->out[0]);
            return;
        }
    }
    for (uint32_t i = 0; i < op->nin && !is_splat; i++) {
        uint32_t d = c->info[num_of(c, s->in[i])[0] - 1].depth;
        depth = d > depth ? d : depth;
    }
    c->num[op->out[0].id] = fresh(c, op->out[0], depth);
    node n = { at, *head };
    XL_PUSH(c->a, c->node, c->nnode, c->capnode, n);
    *head = c->nnode;
}

/* transpose(a b) that became b' a': the product is now what the transpose was. */
static bool turned(xl_check *c, const shot *t, const shot *d)
{
    const xl_op *op = d->op;
#define IS(x, y) (op->attr[XL_SLOT(DOT_GENERAL, x)] == d->attr[XL_SLOT(DOT_GENERAL, y)])
    if (t->code != XL_OP_TRANSPOSE || t->op->code != XL_OP_RESHAPE || d->code != XL_OP_DOT_GENERAL ||
        op->in[0].id != d->in[1].id || op->in[1].id != d->in[0].id ||
        !IS(lhs_batching_dimensions, rhs_batching_dimensions) ||
        !IS(rhs_batching_dimensions, lhs_batching_dimensions) ||
        !IS(lhs_contracting_dimensions, rhs_contracting_dimensions) ||
        !IS(rhs_contracting_dimensions, lhs_contracting_dimensions))
        return false;
#undef IS
    xl_dims perm = { NULL, 0 };                            /* was [batch, n, m] */
    const xl_attr *a = t->attr[XL_SLOT(TRANSPOSE, permutation)];
    if (a && a->kind == XL_AT_INTS)
        perm = (xl_dims){ a->ints, a->n };
    int64_t b = (int64_t)xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_batching_dimensions)).n;
    int64_t n = (int64_t)xl_in_type(c->f, op, 0)->rank - b -
                (int64_t)xl_op_dims(op, XL_SLOT(DOT_GENERAL, lhs_contracting_dimensions)).n;
    int64_t m = (int64_t)d->type->rank - b - n;
    bool ok = a != NULL && perm.n == d->type->rank;
    for (int64_t k = 0; k < (int64_t)perm.n && ok; k++)
        ok = perm.p[k] == (k < b ? k : k < b + n ? k + m : k - n);
    return ok;
}

static bool unchanged(const shot *s)
{
    const xl_op *op = s->op;
    if (op->code != s->code || memcmp(op->in, s->in, op->nin * sizeof *op->in))
        return false;
    for (uint32_t k = 0, n = xl_op_nattr((xl_opcode)op->code); k < n; k++)
        if (op->attr[k] != s->attr[k])
            return false;
    return true;
}

/* Ops that were changed still mean what they meant. */
static xl_error *changes(xl_check *c)
{
    uint32_t *shot_of = xl_new(c->a, uint32_t, c->f->nval + 1);
    for (uint32_t i = 0; i < c->nshot; i++)
        for (uint32_t k = 0; k < c->shot[i].op->nout; k++)
            shot_of[c->shot[i].op->out[k].id] = i + 1;
    for (uint32_t i = 0; i < c->nshot; i++) {              /* products first: others read their numbers */
        const shot *t = &c->shot[i];
        uint32_t d = t->op->nin && t->code == XL_OP_TRANSPOSE ? shot_of[t->in[0].id] : 0;
        if (d && t->op->code == XL_OP_RESHAPE) {
            if (!turned(c, t, &c->shot[d - 1]))
                return XL_ERR(INTERNAL, "plan check: %s is no longer the transpose of %s", text_of(c, t->op->out[0]),
                              text_of(c, t->in[0]));
            c->num[t->in[0].id] = (uint32_t *)(uintptr_t)num_of(c, t->op->out[0]);
            c->shot[d - 1].code = XL_OP_UNKNOWN;           /* done */
        }
    }
    uint32_t was = c->nshot;
    for (uint32_t i = 0; i < was; i++) {
        shot *s = &c->shot[i];
        xl_op *op = s->op;
        if (s->code == XL_OP_UNKNOWN || unchanged(s) || (s->code == XL_OP_TRANSPOSE && op->code == XL_OP_RESHAPE))
            continue;
        bool same = op->code == s->code;
        for (uint32_t k = 0, n = xl_op_nattr((xl_opcode)op->code); k < n && same; k++)
            same = op->attr[k] == s->attr[k];
        if (!same)
            return XL_ERR(INTERNAL, "plan check: %s was changed while planning",
                          op->nout ? text_of(c, op->out[0]) : xl_op_text(op));
        for (uint32_t k = 0; k < op->nin; k++) {
            if (op->in[k].id == s->in[k].id)
                continue;
            if (!c->num[op->in[k].id] &&
                op->in[k].id >= c->nval) { /* an op that was added: number what it reads first */
                xl_op *stack[256];
                uint32_t n = 0;
                stack[n++] = c->f->val[op->in[k].id].def;
                while (n) {
                    xl_op *top = stack[n - 1];
                    bool ready = true;
                    for (uint32_t q = 0; q < top->nin && n < 256; q++)
                        if (top->in[q].id >= c->nval && !c->num[top->in[q].id]) {
                            stack[n++] = c->f->val[top->in[q].id].def;
                            ready = false;
                        }
                    if (!ready && n < 256)
                        continue;
                    n--;
                    shot more = { top, top->code, top->in, top->attr, xl_out_type(c->f, top, 0), s->depth };
                    XL_PUSH(c->a, c->shot, c->nshot, c->capshot, more);
                    give_numbers(c, c->nshot - 1);
                    s = &c->shot[i];
                }
            }
            if (num_of(c, op->in[k])[0] != num_of(c, s->in[k])[0])
                return XL_ERR(INTERNAL, "plan check: %s reads %s in place of %s, which is another value",
                              op->nout ? text_of(c, op->out[0]) : xl_op_text(op), text_of(c, op->in[k]),
                              text_of(c, s->in[k]));
        }
    }
    return NULL;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
static const xl_plan_buf *buf_of(const xl_check *c, uint32_t b) { return &c->p->plan->buf[b]; }

static bool where(const xl_check *c, uint32_t b, uint32_t *sp, uint64_t *lo)
{
    const xl_plan *pl = c->p->plan;
    const xl_plan_buf *x = &pl->buf[b];
    *lo = 0;
    if (x->kind == XL_BUF_TEMP) {
        *lo = x->offset;
        *sp = 0;
        if (!x->host)
            return true;
        x = &pl->buf[x->host - 1];
    }
    if (x->kind == XL_BUF_OUT) {
        *sp = pl->out_donor[x->index] >= 0 ? 1 + (uint32_t)pl->out_donor[x->index] : 1 + pl->narg + x->index;
        return true;
    }
    *sp = 1 + x->index;
    return x->kind == XL_BUF_ARG;
}

static uint32_t find(const space *s, uint64_t lo)          /* the first that ends after lo */
{
    uint32_t a = 0, b = s->n;
    while (a < b) {
        uint32_t mid = (a + b) / 2;
        if (s->s[mid].hi > lo)
            b = mid;
        else
            a = mid + 1;
    }
    return a;
}

static void put_range(xl_check *c, space *s, seg n)
{
    uint32_t i = find(s, n.lo), j = i, k = 0;
    seg with[3], none = { 0 };
    while (j < s->n && s->s[j].lo < n.hi)
        j++;
    if (i < j && s->s[i].lo < n.lo) {
        with[k] = s->s[i];
        with[k++].hi = n.lo;
    }
    with[k++] = n;
    if (i < j && s->s[j - 1].hi > n.hi) {
        with[k] = s->s[j - 1];
        with[k++].lo = n.hi;
    }
    for (uint32_t q = j - i; q < k; q++)
        XL_PUSH(c->a, s->s, s->n, s->cap, none);
    uint32_t tail = (j - i < k ? s->n - (k - (j - i)) : s->n) - j;
    memmove(s->s + i + k, s->s + j, tail * sizeof *s->s);
    if (j - i > k)
        s->n -= j - i - k;
    memcpy(s->s + i, with, k * sizeof *with);
}

static seg *segment(const xl_check *c, const state *st, uint32_t b)
{
    uint32_t sp;
    uint64_t lo;
    if (!where(c, b, &sp, &lo) || !buf_of(c, b)->bytes)
        return NULL;
    const space *s = &st->sp[sp];
    uint32_t i = find(s, lo);
    return i < s->n && s->s[i].lo < lo + buf_of(c, b)->bytes ? &s->s[i] : NULL;
}

static uint32_t root_of(const xl_check *c, const state *st, uint32_t b)
{
    while (buf_of(c, b)->kind == XL_BUF_PART)
        b = st->part[b].base;
    return b;
}

static xl_error *put(xl_check *c, state *st, uint32_t b, uint32_t num, const xl_step *by)
{
    uint32_t sp;
    uint64_t lo;
    const xl_plan_buf *x = buf_of(c, b);
    c->now++;
    if (x->kind == XL_BUF_PART) {
        part *p = &st->part[b];
        seg *base = segment(c, st, root_of(c, st, b));
        p->num = num;
        if (base) {
            if (p->row_of)
                base->punched = p->row_of;                 /* whole only for the update */
            p->when = base->when;
        }
        return NULL;
    }
    if (x->kind == XL_BUF_CONST)
        return x->bytes ? XL_ERR(INTERNAL, "plan check: step %s writes to a constant", by->name) : NULL;
    if (!where(c, b, &sp, &lo) || !x->bytes)
        return NULL;
    if (x->kind == XL_BUF_ARG && by && !c->p->plan->arg_donated[x->index])
        return XL_ERR(INTERNAL, "plan check: step %s writes to argument %u, which was not donated", by->name, x->index);
    put_range(c, &st->sp[sp], (seg){ lo, lo + x->bytes, lo, num, c->now, by, NULL });
    return NULL;
}

/* Part b, or one that it is a part of, is the row that this op writes. */
static bool in_row(const xl_check *c, const state *st, uint32_t b, const xl_op *op)
{
    for (; buf_of(c, b)->kind == XL_BUF_PART; b = st->part[b].base)
        if (st->part[b].row_of == op)
            return true;
    return false;
}

/* Buffer b holds the value numbered num, whole. */
static xl_error *holds(xl_check *c, const state *st, uint32_t b, uint32_t num, const xl_step *s, const xl_op *reader)
{
    uint32_t sp;
    uint64_t lo;
    const xl_plan_buf *x = buf_of(c, b);
    const char *want = num ? text_of(c, c->info[num - 1].v) : "a value", *who = s ? s->name : "the end of the program";
    if (x->kind == XL_BUF_CONST) {
        if (!x->bytes || !c->constant[b] || c->constant[b] == num)
            return NULL;
        return XL_ERR(INTERNAL, "plan check: %s reads %s, but the constant there is %s", who, want,
                      text_of(c, c->info[c->constant[b] - 1].v));
    }
    if (x->kind == XL_BUF_PART) {
        const part *p = &st->part[b];
        seg *base = segment(c, st, root_of(c, st, b));
        if (p->num == num && (!base || (base->when == p->when && (!base->punched || in_row(c, st, b, base->punched)))))
            return NULL;
        return XL_ERR(INTERNAL, "plan check: %s reads %s as a part of another, which was written over by %s", who, want,
                      base && base->by ? base->by->name : "nobody");
    }
    if (!where(c, b, &sp, &lo) || !x->bytes)
        return NULL;
    const space *q = &st->sp[sp];
    uint32_t i = find(q, lo);
    const seg *g = i < q->n ? &q->s[i] : NULL;
    if (g && g->lo == lo && g->origin == lo && g->hi == lo + x->bytes && g->num == num &&
        (!g->punched || g->punched == reader))
        return NULL;
    for (; g && g->num == num && g->origin == lo && i + 1 < q->n && q->s[i + 1].lo < lo + x->bytes; g = &q->s[++i])
        ;                                                  /* whoever wrote over a part of it */
    if (!g || g->lo >= lo + x->bytes || !g->num)
        return XL_ERR(INTERNAL, "plan check: %s reads %s, but nothing was written there%s%s", who, want,
                      g && g->by ? " that outlives " : "", g && g->by ? g->by->name : "");
    return XL_ERR(INTERNAL, "plan check: %s reads %s, but %s lies there, written by %s", who, want,
                  text_of(c, c->info[g->num - 1].v), g->by ? g->by->name : "the caller");
}

static bool overlap(const xl_check *c, uint32_t a, uint32_t b, bool *same)
{
    uint32_t x, y;
    uint64_t i, j;
    *same = a == b;
    if (!buf_of(c, a)->bytes || !buf_of(c, b)->bytes || !where(c, a, &x, &i) || !where(c, b, &y, &j) || x != y)
        return false;
    *same = i == j && buf_of(c, a)->bytes == buf_of(c, b)->bytes;
    return i < j + buf_of(c, b)->bytes && j < i + buf_of(c, a)->bytes;
}

/* Results and the memory a step works in are apart; a result lies in an operand only where the kernel can work so. */
static xl_error *apart(xl_check *c, const xl_step *s)
{
    bool same;
    for (uint32_t k = s->nin; k < s->nin + s->nout; k++) {
        for (uint32_t i = 0; i < k; i++) {
            if (!overlap(c, s->buf[i], s->buf[k], &same))
                continue;
            bool result = k < s->nin + s->nres;
            if (i >= s->nin || !result || !same || !(i < 32 && (s->inplace >> i & 1)))
                return XL_ERR(INTERNAL, "plan check: in step %s the memory of %s %u is that of %s %u", s->name,
                              result ? "result" : "work", k - s->nin, i < s->nin ? "operand" : "result",
                              i < s->nin ? i : i - s->nin);
        }
    }
    return NULL;
}

static void forget(xl_check *c, state *st, uint32_t depth)
{
    for (uint32_t i = 0; i < c->nspace; i++)
        for (uint32_t k = 0; k < st->sp[i].n; k++) {
            seg *g = &st->sp[i].s[k];
            if (g->num && c->info[g->num - 1].depth >= depth)
                g->num = 0;
        }
    for (uint32_t i = 0; i < c->p->plan->nbuf; i++)
        if (st->part[i].num && c->info[st->part[i].num - 1].depth >= depth)
            st->part[i].num = 0;
}

static state copy(xl_check *c, const state *st)
{
    state n = { xl_new(c->a, space, c->nspace), xl_new(c->a, part, c->p->plan->nbuf + 1) };
    memcpy(n.part, st->part, c->p->plan->nbuf * sizeof *n.part);
    for (uint32_t i = 0; i < c->nspace; i++) {
        n.sp[i] = (space){ xl_new(c->a, seg, st->sp[i].n + 4), st->sp[i].n, st->sp[i].n + 4 };
        if (st->sp[i].n)
            memcpy(n.sp[i].s, st->sp[i].s, st->sp[i].n * sizeof(seg));
    }
    return n;
}

/* Of a keeps what b has as well. */
static void agree(xl_check *c, state *a, const state *b)
{
    for (uint32_t i = 0; i < c->nspace; i++)
        for (uint32_t k = 0; k < a->sp[i].n; k++) {
            seg *g = &a->sp[i].s[k];
            uint32_t at = find(&b->sp[i], g->lo);
            const seg *o = at < b->sp[i].n ? &b->sp[i].s[at] : NULL;
            if (!o || o->num != g->num || o->origin != g->origin || o->lo > g->lo || o->hi < g->hi ||
                o->punched != g->punched)
                g->num = 0;
        }
    for (uint32_t i = 0; i < c->p->plan->nbuf; i++)
        if (a->part[i].num != b->part[i].num || a->part[i].when != b->part[i].when)
            a->part[i].num = 0;
}

static uint32_t depth_of(const xl_region *r)
{
    uint32_t d = 0;
    for (; r && r->owner; r = r->owner->parent)
        d++;
    return d;
}

static xl_error *block(xl_check *c, state *st, const xl_block *b);

/* The values of a list, leaf by leaf, against buffers: checks them, or puts them there. */
static xl_error *all(xl_check *c, state *st, const xl_value *v, uint32_t n, const uint32_t *buf, const xl_step *s,
                     bool write)
{
    for (uint32_t i = 0, k = 0; i < n; i++) {
        const uint32_t *num = num_of(c, v[i]);
        for (uint32_t j = 0; j < leaves(xl_value_type(c->f, v[i])); j++, k++) {
            xl_error *err = write ? put(c, st, buf[k], num[j], s) : holds(c, st, buf[k], num[j], s, s ? s->op : NULL);
            if (err)
                return err;
        }
    }
    return NULL;
}

static xl_error *region_once(xl_check *c, state *st, const xl_step *s, uint32_t k, bool in_carry)
{
    xl_error *err = NULL;
    const xl_region *r = s->op->region[k];
    const xl_op *end = xl_region_end(r);
    XL_DO(all(c, st, r->arg, r->narg, s->sub[k]->arg, s, true));
    XL_DO(block(c, st, s->sub[k]));
    XL_DO(all(c, st, end->in, end->nin, s->sub[k]->ret, s, false));
    if (in_carry)                                          /* a condition leaves what is carried as it is */
        XL_DO(all(c, st, r->arg, r->narg, s->sub[k]->arg, s, false));
out:
    return err;
}

static xl_error *loop(xl_check *c, state *st, const xl_step *s)
{
    xl_error *err = NULL;
    const uint32_t *carry = s->sub[1]->arg;
    uint32_t depth = depth_of(s->op->region[1]);
    XL_DO(all(c, st, s->op->in, s->op->nin, carry, s, false));
    for (int round = 0; round < 2; round++) {
        forget(c, st, depth);
        XL_DO(region_once(c, st, s, 0, true));
        XL_DO(region_once(c, st, s, 1, false));
    }
    forget(c, st, depth);
    XL_DO(region_once(c, st, s, 0, true));
    forget(c, st, depth);
    XL_DO(all(c, st, s->op->out, s->op->nout, carry, s, true));
out:
    return err;
}

static xl_error *branches(xl_check *c, state *st, const xl_step *s)
{
    xl_error *err = NULL;
    state entry = copy(c, st);
    XL_DO(holds(c, st, s->buf[0], num_of(c, s->op->in[0])[0], s, s->op));
    for (uint32_t k = 0; k < s->op->nregion; k++) {
        state own = copy(c, &entry);
        XL_DO(region_once(c, &own, s, k, false));
        forget(c, &own, depth_of(s->op->region[k]));
        if (k)
            agree(c, st, &own);
        else
            *st = own;
    }
    XL_DO(all(c, st, s->op->out, s->op->nout, s->sub[0]->ret, s, true));
out:
    return err;
}

/* A number for memory that is filled with one element. */
static uint32_t fill_number(xl_check *c, const xl_extent *s, const void *elem)
{
    for (uint32_t i = 0; i < c->nnode; i++) {
        const xl_op *op = c->shot[c->node[i].op].op;
        const void *data;
        size_t e;
        int64_t n;
        if (op->nout == 1 && splat_of(c, op->out[0], &data, &e, &n) && n == s->count && e == s->elem &&
            !memcmp(data, elem, e))
            return num_of(c, op->out[0])[0];
    }
    return 0;
}

static xl_error *operands(xl_check *c, state *st, const xl_step *s)
{
    xl_error *err = NULL;
    if (!s->ops)
        return all(c, st, s->op->in, s->op->nin, s->buf, s, false);
    for (uint32_t i = 0; i < s->nin; i++)
        if (s->val[i] != UINT32_MAX)
            XL_DO(holds(c, st, s->buf[i], num_of(c, (xl_value){ s->val[i] })[0], s, NULL));
out:
    return err;
}

static xl_error *results(xl_check *c, state *st, const xl_step *s, bool write)
{
    xl_error *err = NULL;
    if (!s->ops)
        return all(c, st, s->op->out, s->op->nout, s->buf + s->nin, s, write);
    for (uint32_t i = s->nin; i < s->nin + s->nres; i++) {
        uint32_t num = num_of(c, (xl_value){ s->val[i] })[0];
        XL_DO(write ? put(c, st, s->buf[i], num, s) : holds(c, st, s->buf[i], num, s, NULL));
    }
out:
    return err;
}

static xl_error *one_step(xl_check *c, state *st, const xl_step *s)
{
    xl_error *err = NULL;
    bool same;
    if (s->run == xl_run_copy) {
        uint32_t from = s->buf[0], num;
        const xl_plan_buf *x = buf_of(c, from);
        const seg *g = segment(c, st, from);
        num = x->kind == XL_BUF_CONST  ? c->constant[from]
              : x->kind == XL_BUF_PART ? st->part[from].num
              : g                      ? g->num
                                       : 0;
        XL_DO(x->bytes ? holds(c, st, from, num, s, NULL) : NULL);
        return put(c, st, s->buf[1], num, s);
    }
    if (!s->op && !s->ops)
        return s->nin || s->nout != 1 ? NULL : put(c, st, s->buf[0], fill_number(c, &s->shape[0], s->data), s);
    if (s->sub && s->op->code == XL_OP_WHILE)
        return loop(c, st, s);
    if (s->sub && (s->op->code == XL_OP_IF || s->op->code == XL_OP_CASE))
        return branches(c, st, s);
    if (s->nout == 1 && buf_of(c, s->buf[s->nin])->kind == XL_BUF_PART && !s->ops &&
        !s->nres) { /* it points into its operand */
        part *p = &st->part[s->buf[s->nin]];
        bool row = s->op->code == XL_OP_DYNAMIC_UPDATE_SLICE;
        *p = (part){ .base = s->buf[0], .row_of = row ? s->op : NULL };
        for (uint32_t i = 0; i < s->nin; i++)
            if (i == 0 || !row || s->buf[i] != s->buf[0])
                XL_DO(holds(c, st, s->buf[i], num_of(c, s->op->in[row && i ? i + 1 : i])[0], s, s->op));
        return row ? NULL : put(c, st, s->buf[s->nin], num_of(c, s->op->out[0])[0], s);
    }
    XL_DO(operands(c, st, s));
    XL_DO(apart(c, s));
    for (uint32_t k = s->nin + s->nres; k < s->nin + s->nout; k++)
        XL_DO(put(c, st, s->buf[k], 0, s));
    XL_DO(results(c, st, s, true));
    for (uint32_t i = 0; i < c->p->plan->nbuf && s->op && s->op->code == XL_OP_DYNAMIC_UPDATE_SLICE; i++)
        if (st->part[i].row_of == s->op &&
            root_of(c, st, i) == s->buf[s->nin]) /* made in its place, where the row stays */
            st->part[i].when = segment(c, st, s->buf[s->nin]) ? segment(c, st, s->buf[s->nin])->when : 0;
    if (s->sub && !s->ops) { /* regions that run many times while results are made and operands read */
        for (uint32_t k = 0; k < s->op->nregion; k++)
            for (int round = 0; round < 2 && s->sub[k]; round++) {
                forget(c, st, depth_of(s->op->region[k]));
                XL_DO(region_once(c, st, s, k, false));
            }
        XL_DO(results(c, st, s, false));
        for (uint32_t i = 0; i < s->nin; i++) {
            bool over = false;
            for (uint32_t k = s->nin; k < s->nin + s->nout; k++)
                over = over || overlap(c, s->buf[i], s->buf[k], &same);
            const seg *g = segment(c, st, s->buf[i]);
            if (!over && g && (!g->num || g->origin != g->lo))
                return XL_ERR(INTERNAL, "plan check: operand %u of %s is written over by its region", i, s->name);
        }
    }
out:
    return err;
}

static xl_error *block(xl_check *c, state *st, const xl_block *b)
{
    for (uint32_t i = 0; i < b->nstep; i++) {
        xl_error *err = one_step(c, st, &b->step[i]);
        if (err)
            return err;
    }
    return NULL;
}

static xl_error *memory(xl_check *c)
{
    xl_error *err = NULL;
    const xl_plan *pl = c->p->plan;
    const xl_region *r = c->f->body;
    c->nspace = 1 + pl->narg + pl->nout;
    state st = { xl_new(c->a, space, c->nspace), xl_new(c->a, part, pl->nbuf + 1) };
    for (uint32_t i = 0; i < pl->nbuf; i++)
        if (pl->buf[i].kind == XL_BUF_ARG)
            XL_DO(put(c, &st, i, num_of(c, r->arg[pl->buf[i].index])[0], NULL));
    XL_DO(block(c, &st, pl->body));
    const xl_op *end = xl_region_end(r);
    for (uint32_t i = 0; i < pl->nbuf; i++)
        if (pl->buf[i].kind == XL_BUF_OUT)
            XL_DO(holds(c, &st, i, num_of(c, end->in[pl->buf[i].index])[0], NULL, NULL));
out:
    return err;
}

/* ---- replaying --------------------------------------------------------------------------------------------------- */
typedef struct {
    xl_op **op;                                            /* in the order in which they are computed */
    uint32_t n, cap;
    bool *seen, *input;                                    /* by value */
    xl_value *in, missing; /* what the ops read of the step's operands; what they lack */
    uint32_t *at, nin;                                     /* which operand each of `in` is */
} gathered;

static void add_input(gathered *g, xl_value v, uint32_t operand)
{
    g->input[v.id] = true;
    g->at[g->nin] = operand;
    g->in[g->nin++] = v;
}

/* Whether operand k of a step is a view of another operand, or its bits: its data follow from that one's. */
static bool follows(const xl_check *c, const xl_step *s, uint32_t k)
{
    if (s->val[k] == UINT32_MAX || buf_of(c, s->buf[k])->kind == XL_BUF_CONST)
        return false;
    const xl_op *def = c->f->val[s->val[k]].def;
    for (; def && (def->code == XL_OP_BITCAST_CONVERT || xl_op_is_view(c->f, def)); def = c->f->val[def->in[0].id].def)
        for (uint32_t i = 0; i < s->nin; i++)
            if (s->val[i] == def->in[0].id)
                return true;
    return false;
}

/* An operand that has the bytes of v under another name: read through a barrier, computed twice and found to be the
 * same, or a reshape of what was copied. */
static bool same_operand(xl_check *c, gathered *g, xl_value v, const xl_step *s)
{
    const uint32_t *num = num_of(c, v);
    for (uint32_t i = 0; num && i < s->nin; i++)
        if (s->val[i] != UINT32_MAX && !follows(c, s, i) && leaves(xl_value_type(c->f, v)) == 1 &&
            num_of(c, (xl_value){ s->val[i] })[0] == num[0]) {
            add_input(g, v, i);
            return true;
        }
    return false;
}

static bool gather(xl_check *c, gathered *g, xl_value v, const xl_step *s)
{
    const xl_op *def = c->f->val[v.id].def;
    if (g->input[v.id] || g->seen[v.id])
        return true;
    g->seen[v.id] = true;
    bool member = false;
    for (uint32_t i = 0; i < s->nop; i++)
        member = member || s->ops[i] == def;
    if (!def || !(member || def->code == XL_OP_CONSTANT || def->code == XL_OP_IOTA ||
                  def->code == XL_OP_BITCAST_CONVERT || xl_op_is_view(c->f, def))) {
        if (same_operand(c, g, v, s))
            return true;
        g->missing = v;
        return false;
    }
    if (!member && xl_op_is_view(c->f, def) && same_operand(c, g, v, s))
        return true;
    for (uint32_t i = 0; i < def->nin; i++)
        if (!gather(c, g, def->in[i], s))
            return false;
    XL_PUSH(c->a, g->op, g->n, g->cap, (xl_op *)(uintptr_t)def);
    return true;
}

static uint64_t next_random(uint64_t *x) { return *x = *x * 6364136223846793005u + 1442695040888963407u, *x >> 33; }

static void random_data(void *to, const xl_extent *s, uint64_t *seed)
{
    int64_t n = s->count * (xl_dtype_class(s->dtype) == XL_CLASS_COMPLEX ? 2 : 1);
    size_t elem = s->elem / (size_t)(n / (s->count ? s->count : 1) ? n / (s->count ? s->count : 1) : 1);
    bool real = xl_dtype_class(s->dtype) == XL_CLASS_FLOAT || xl_dtype_class(s->dtype) == XL_CLASS_COMPLEX;
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = next_random(seed);
        double x = (0.25 + (double)(r % 4096) / 2048) * (r >> 20 & 3 ? 1 : -1);
        char *at = (char *)to + (size_t)i * elem;
        if (!real) {
            uint64_t k = s->dtype == XL_I1 ? r >> 8 & 1 : r >> 8 & 3;
            memcpy(at, &k, elem);                          /* little-endian */
        } else if (xl_is_narrow(s->dtype)) {
            xl_kernel_round(s->dtype, (float)x, at);
        } else if (elem == 4) {
            float f = (float)x;
            memcpy(at, &f, 4);
        } else {
            memcpy(at, &x, 8);
        }
    }
}

/* By a rounding error, up or down. */
static void move_data(void *data, const xl_extent *s, uint64_t *seed)
{
    int64_t n = s->count * (xl_dtype_class(s->dtype) == XL_CLASS_COMPLEX ? 2 : 1);
    bool narrow = xl_is_narrow(s->dtype);
    size_t elem = s->elem / (xl_dtype_class(s->dtype) == XL_CLASS_COMPLEX ? 2 : 1);
    for (int64_t i = 0;
         i < n && (xl_dtype_class(s->dtype) == XL_CLASS_FLOAT || xl_dtype_class(s->dtype) == XL_CLASS_COMPLEX); i++) {
        char *at = (char *)data + (size_t)i * elem;
        bool up = next_random(seed) & 1;
        if (narrow && elem == 2) {
            uint16_t x;
            memcpy(&x, at, 2);
            x = (uint16_t)(x + (up ? 1 : 0));
            memcpy(at, &x, 2);
        } else if (elem == 4) {
            float x;
            memcpy(&x, at, 4);
            x *= 1 + (up ? 4e-7f : -4e-7f);
            memcpy(at, &x, 4);
        } else if (elem == 8) {
            double x;
            memcpy(&x, at, 8);
            x *= 1 + (up ? 1e-15 : -1e-15);
            memcpy(at, &x, 8);
        }
    }
}

/* How many elements of a are neither b's nor as near to them as rounding explains (moved: b from data that was moved by
 * it; lost: what may be left of operands that cancel). near: elements that were with other data; more are added. */
static int64_t differing(xl_check *c, const xl_extent *s, xl_dtype coarse, double lost, const void *a, const void *b,
                         const void *moved, bool *near, int64_t *first)
{
    xl_dclass cls = xl_dtype_class(s->dtype);
    int64_t bad = 0, n = s->count * (cls == XL_CLASS_COMPLEX ? 2 : 1);
    bool real = cls == XL_CLASS_FLOAT || cls == XL_CLASS_COMPLEX;
    if (!memcmp(a, b, (size_t)s->count * s->elem))
        return 0;
    xl_dtype d = cls == XL_CLASS_COMPLEX ? (s->elem == 8 ? XL_F32 : XL_F64) : s->dtype;
    double *v[3],
        tol = !real              ? 0
              : coarse == XL_F64 ? 1e-10
              : coarse == XL_F32 ? 1e-4
              : coarse == XL_F16 ? 0x1p-7
                                 : 0x1p-4,
        scale = 0;
    const void *from[3] = { a, b, moved };
    for (int k = 0; k < 3; k++) {
        v[k] = malloc((size_t)n * sizeof **v + 1);
        if (!v[k]) {
            while (k--)
                free(v[k]);
            return 0;
        }
        xl_kernel_to_f64(c->a, d, v[k], from[k], (size_t)n);
    }
    for (int64_t i = 0; i < n; i++)
        if (isfinite(v[1][i]) && fabs(v[1][i]) > scale)
            scale = fabs(v[1][i]);
    for (int64_t i = 0; i < n; i++) {
        double x = v[0][i], y = v[1][i], z = v[2][i];
        near[i] = near[i] || x == y || (isnan(x) && isnan(y)) ||
                  fabs(x - y) <= tol * scale + 64 * fabs(z - y) + (real ? lost : 0) || (isnan(y) != isnan(z)) ||
                  (isinf(y) != isinf(z));
        if (!near[i]) {
            *first = bad ? *first : i;
            bad++;
        }
    }
    for (int k = 0; k < 3; k++)
        free(v[k]);
    return bad;
}

/* Memory for a replay, with a margin behind it that must stay as it is. */
typedef struct { char *p; size_t bytes; } piece;
typedef struct { piece *m; uint32_t n; } pieces;

static void *room_for(pieces *all, size_t bytes)
{
    char *p = aligned_alloc(XL_ALIGN, (bytes + MARGIN + XL_ALIGN) / XL_ALIGN * XL_ALIGN);
    if (p)
        memset(p, 0x5a, bytes + MARGIN);
    all->m[all->n++] = (piece){ p, bytes };
    return p;
}

static bool within(const pieces *all)
{
    for (uint32_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < MARGIN; k++)
            if (all->m[i].p[all->m[i].bytes + k] != 0x5a)
                return false;
    return true;
}

/* The float type of the fewest digits among the values of these ops: what their results can be held to. */
static xl_dtype coarsest(const xl_func *f, const xl_region *r)
{
    xl_dtype d = XL_F64;
    for (uint32_t i = 0; i < r->nop; i++)
        for (uint32_t k = 0; k < r->op[i]->nout; k++) {
            const xl_type *t = xl_value_type(f, r->op[i]->out[k]);
            xl_dclass cls = xl_dtype_class(t->dtype);
            xl_dtype x = cls == XL_CLASS_COMPLEX ? (xl_dtype_bytes(t->dtype) == 8 ? XL_F32 : XL_F64) : t->dtype;
            if (cls != XL_CLASS_FLOAT && cls != XL_CLASS_COMPLEX)
                continue;
            if (xl_is_narrow(x) ? x != XL_F16 || !xl_is_narrow(d) : x == XL_F32 && d == XL_F64)
                d = x;
        }
    return d;
}

/* Memory for a step's buffers: those that touch share a piece, as they do in the plan. */
static void lay_out(xl_check *c, const xl_step *s, pieces *mem, void **ptr)
{
    for (uint32_t i = 0; i < s->nin + s->nout; i++) {
        const xl_plan_buf *x = buf_of(c, s->buf[i]);
        uint32_t sp, sq;
        uint64_t lo, lq;
        if (x->kind == XL_BUF_CONST) {
            ptr[s->buf[i]] = (void *)(uintptr_t)x->data;
        } else if (x->kind == XL_BUF_PART) {
            if (!ptr[s->buf[i]])
                ptr[s->buf[i]] = room_for(mem, x->bytes);
        } else if (where(c, s->buf[i], &sp, &lo) && !ptr[s->buf[i]]) {
            for (uint32_t k = 0; k < i && !ptr[s->buf[i]];
                 k++) /* apart() has made sure that they are the same, or apart */
                if (where(c, s->buf[k], &sq, &lq) && buf_of(c, s->buf[k])->kind != XL_BUF_PART && sp == sq &&
                    lo == lq && buf_of(c, s->buf[k])->bytes)
                    ptr[s->buf[i]] = ptr[s->buf[k]];
            if (!ptr[s->buf[i]])
                ptr[s->buf[i]] = room_for(mem, x->bytes > s->shape[i].bytes ? x->bytes : s->shape[i].bytes);
        }
    }
}

/* A step beside its ops one by one: memory, operands, and what both made of them. */
typedef struct {
    const xl_step *s;
    xl_plan *plain;
    pieces mem;
    void **ptr;                                            /* by buffer of the plan */
    const uint32_t *at, *slot;                             /* which operand of the step arg[i] is; where want[i] goes */
    const xl_value *out;                                   /* what the ops give one by one */
    uint32_t nin, nwant;
    void **arg, **original, **want, **moved, *temp;
    bool **near;
    xl_dtype coarse;
    double lost;
    uint64_t seed;
} trial;

static void fill(xl_check *c, trial *t)
{
    const xl_step *s = t->s;
    for (uint32_t i = 0; i < t->nin; i++) {
        uint32_t first = i;                                /* the same operand under another name has the same data */
        for (uint32_t k = 0; k < i && first == i; k++)
            first = t->at[k] == t->at[i] ? k : i;
        if (first == i)
            random_data(t->arg[i], &s->shape[t->at[i]], &t->seed);
        else
            memcpy(t->arg[i], t->arg[first], s->shape[t->at[i]].bytes);
        if (t->ptr[s->buf[t->at[i]]] && buf_of(c, s->buf[t->at[i]])->kind != XL_BUF_CONST)
            memcpy(t->ptr[s->buf[t->at[i]]], t->arg[i], s->shape[t->at[i]].bytes);
        else if (s->shape[t->at[i]].bytes && buf_of(c, s->buf[t->at[i]])->kind == XL_BUF_CONST)
            memcpy(t->arg[i], buf_of(c, s->buf[t->at[i]])->data, s->shape[t->at[i]].bytes);
    }
    for (uint32_t i = 0; i < t->nin; i++)                  /* operands in the same memory: two views of one value */
        if (t->ptr[s->buf[t->at[i]]] && buf_of(c, s->buf[t->at[i]])->kind != XL_BUF_CONST)
            memcpy(t->arg[i], t->ptr[s->buf[t->at[i]]], s->shape[t->at[i]].bytes);
}

/* Runs both on new data and compares. *differ: the error is that results differ. */
static xl_error *replay_once(xl_check *c, trial *t, bool *differ)
{
    xl_error *err = NULL;
    const xl_step *s = t->s;
    fill(c, t);
    xl_frame frame = { .plan = c->p->plan, .ptr = t->ptr }, other = { 0 };
    XL_DO(xl_plan_run(t->plain, &other, t->arg, t->want, t->temp));
    for (uint32_t i = s->nres; i < t->nwant; i++)
        memcpy(t->ptr[s->buf[t->slot[i]]], t->want[i], s->shape[t->slot[i]].bytes);
    XL_DO(s->run(s, &frame));
    if (!within(&t->mem)) {
        err = XL_ERR(INTERNAL, "plan check: step %s writes behind the memory of %s or of what it works in", s->name,
                     text_of(c, t->out[0]));
        goto out;
    }
    for (uint32_t i = 0; i < t->nin; i++)
        memcpy(t->original[i], t->arg[i], s->shape[t->at[i]].bytes);
    for (uint32_t i = 0; i < s->nres; i++)
        memset(t->near[i], 0, 2 * (size_t)s->shape[s->nin + i].count);
    for (int k = 0; k < MOVES && (k == 0 || err); k++) {   /* one is enough, but where a sign decides about noise */
        xl_error_free(err);
        err = NULL;
        for (uint32_t i = 0; i < t->nin; i++) {
            memcpy(t->arg[i], t->original[i], s->shape[t->at[i]].bytes);
            if (buf_of(c, s->buf[t->at[i]])->kind != XL_BUF_CONST)
                move_data(t->arg[i], &s->shape[t->at[i]], &t->seed);
        }
        *differ = false;
        XL_DO(xl_plan_run(t->plain, &other, t->arg, t->moved, t->temp));
        for (uint32_t i = 0; i < s->nres; i++) {
            int64_t first = 0, bad = differing(c, &s->shape[s->nin + i], t->coarse, t->lost, t->ptr[s->buf[s->nin + i]],
                                               t->want[i], t->moved[i], t->near[i], &first);
            if (bad && !err)
                err = XL_ERR(INTERNAL,
                             "plan check: step %s does not compute %s: %lld of %lld elements differ from its ops one "
                             "by one, the first is number %lld",
                             s->name, text_of(c, t->out[i]), (long long)bad, (long long)s->shape[s->nin + i].count,
                             (long long)first);
        }
        *differ = err;
    }
out:
    return err;
}

static xl_error *replay(xl_check *c, const xl_step *s)
{
    xl_error *err = NULL;
    xl_func *f = c->f, g = *f;
    gathered ops = { .seen = xl_new(c->a, bool, f->nval),
                     .input = xl_new(c->a, bool, f->nval),
                     .in = xl_new(c->a, xl_value, f->nval),
                     .at = xl_new(c->a, uint32_t, f->nval) };
    /* what the ops give one by one: the step's results, then operands that follow from others */
    xl_value *out = xl_new(c->a, xl_value, s->nres + s->nin + 1);
    uint32_t *slot = xl_new(c->a, uint32_t, s->nres + s->nin + 1), nwant = s->nres;
    double most = 0;
    for (uint32_t i = 0; i < s->nin; i++)
        if (follows(c, s, i)) {
            out[nwant] = (xl_value){ s->val[i] };
            slot[nwant++] = i;
        } else if (s->val[i] != UINT32_MAX && !ops.input[s->val[i]]) {
            add_input(&ops, (xl_value){ s->val[i] }, i);
        }
    for (uint32_t i = 0; i < s->nin + s->nout; i++)
        most = (double)s->shape[i].count > most ? (double)s->shape[i].count : most;
    bool views = s->nop > 1 || (xl_ops[s->ops[0]->code].flags & XL_OP_ELEMWISE) || s->ops[0]->code == XL_OP_REDUCE;
    for (uint32_t i = 0; i < s->ops[0]->nin && i < s->nin; i++)
        views = views || s->ops[0]->in[i].id != s->val[i];
    if (most * s->nop > (views ? WORK_MAX : SMALL))
        return NULL;
    for (uint32_t i = 0; i < nwant; i++) {
        if (i < s->nres) {
            out[i] = (xl_value){ s->val[s->nin + i] };
            slot[i] = s->nin + i;
        }
        if (!gather(c, &ops, out[i], s))
            return XL_ERR(INTERNAL, "plan check: step %s has no operand for %s, which %s reads", s->name,
                          text_of(c, ops.missing), text_of(c, out[i]));
    }
    const uint32_t *at = ops.at, nin = ops.nin;
    xl_op *end = xl_op_new(f, NULL, XL_OP_RETURN, out, nwant, NULL, 0, 0, s->ops[0]->loc);
    XL_PUSH(c->a, ops.op, ops.n, ops.cap, end);
    xl_region body = { .arg = ops.in, .narg = nin, .op = ops.op, .nop = ops.n };
    g.val = f->val, g.nval = f->nval;
    g.body = &body;
    g.arg_attr = NULL;
    xl_plan *plain;
    if ((err = xl_plan_plain(&g, &plain))) {               /* nothing to compare with */
        xl_error_free(err);
        return NULL;
    }
    trial t = { .s = s, .plain = plain, .at = at, .slot = slot, .out = out, .nin = nin, .nwant = nwant,
                .coarse = coarsest(f, &body), .seed = 88172645463325252u };
    t.mem.m = xl_new(c->a, piece, 5 * (size_t)(s->nin + s->nout) + 2 * (size_t)nin + 8);
    t.ptr = xl_new(c->a, void *, c->p->plan->nbuf);
    t.arg = xl_new(c->a, void *, nin + 1);
    t.original = xl_new(c->a, void *, nin + 1);
    t.near = xl_new(c->a, bool *, s->nres + 1);
    t.want = xl_new(c->a, void *, nwant + 1);
    t.moved = xl_new(c->a, void *, nwant + 1);
    lay_out(c, s, &t.mem, t.ptr);
    for (uint32_t i = 0; i < nin; i++) {
        t.arg[i] = room_for(&t.mem, s->shape[at[i]].bytes);
        t.original[i] = room_for(&t.mem, s->shape[at[i]].bytes);
    }
    for (uint32_t i = 0; i < s->nres; i++)                 /* of complex numbers both parts */
        t.near[i] = room_for(&t.mem, 2 * (size_t)s->shape[s->nin + i].count);
    for (uint32_t i = 0; i < nwant; i++) {
        t.want[i] = room_for(&t.mem, s->shape[slot[i]].bytes);
        t.moved[i] = room_for(&t.mem, s->shape[slot[i]].bytes);
    }
    t.temp = room_for(&t.mem, plain->temp_bytes);
    bool short_of_memory = false;
    for (uint32_t i = 0; i < t.mem.n; i++)
        short_of_memory = short_of_memory || !t.mem.m[i].p;
    /* random_data is of the order of 2; constants are what they are, and seldom larger */
    t.lost = 2 * (t.coarse == XL_F64   ? 64 * DBL_EPSILON
                  : t.coarse == XL_F32 ? 64 * FLT_EPSILON
                  : t.coarse == XL_F16 ? 4 * 0x1p-11
                                       : 4 * 0x1p-8);
    /* A difference that rounding could explain after all is seen with some data only; a value that is read in the wrong
     * place with all. */
    bool again = !short_of_memory;
    for (int round = 0; round < ROUNDS && again; round++) {
        xl_error_free(err);
        again = false;
        err = replay_once(c, &t, &again);
    }
    for (uint32_t i = 0; i < t.mem.n; i++)
        free(t.mem.m[i].p);
    xl_plan_free(plain);
    return err;
}

static xl_error *replay_all(xl_check *c, const xl_block *b)
{
    for (uint32_t i = 0; i < b->nstep; i++) {
        const xl_step *s = &b->step[i];
        xl_error *err = s->ops && b->lanes == 1 ? replay(c, s) : NULL;
        for (uint32_t k = 0; !err && s->sub && k < s->op->nregion; k++)
            err = s->sub[k] ? replay_all(c, s->sub[k]) : NULL;
        if (err)
            return err;
    }
    return NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */
static void find_stepped(xl_check *c, const xl_block *b)
{
    for (uint32_t i = 0; i < b->nstep; i++) {
        const xl_step *s = &b->step[i];
        for (uint32_t k = 0; s->ops && k < s->nres; k++)
            c->stepped[s->val[s->nin + k]] = true;
        for (uint32_t k = 0; s->op && s->op->code != XL_OP_RETURN && k < s->op->nout; k++)
            c->stepped[s->op->out[k].id] = true;
        for (uint32_t k = 0; s->sub && k < s->op->nregion; k++)
            if (s->sub[k])
                find_stepped(c, s->sub[k]);
    }
}

xl_error *xl_check_plan(xl_check *c)
{
    xl_error *err = NULL;
    if (!c)
        return NULL;
    if (xl_check_hook)
        xl_check_hook(c->p);
    const xl_plan *pl = c->p->plan;
    c->num = xl_new(c->a, uint32_t *, c->f->nval + 1);
    c->stepped = xl_new(c->a, bool, c->f->nval + 1);
    c->ntable = c->nval + 1;
    c->table = xl_new(c->a, uint32_t, c->ntable);
    c->constant = xl_new(c->a, uint32_t, pl->nbuf + 1);
    find_stepped(c, pl->body);
    for (uint32_t i = 0, n = c->nshot; i < n; i++)
        give_numbers(c, i);
    XL_DO(changes(c));
    for (uint32_t v = 0; v < c->f->nval; v++)
        for (uint32_t j = 0; j < c->p->leaf[v].n; j++)
            if (pl->buf[c->p->leaf[v].buf[j]].kind == XL_BUF_CONST)
                c->constant[c->p->leaf[v].buf[j]] = num_of(c, (xl_value){ v })[j];
    XL_DO(memory(c));
    XL_DO(replay_all(c, pl->body));
out:
    return err;
}
