/* Sizes that do not divide evenly. A constraint that splits 12 rows over 8 devices makes them 16, the last four of
 * which are padding; so do the ops around it, forwards and backwards, as far as their rules (shard_rule.c) pass the
 * dimension on. The contents of the padding do not matter there. Where an op sums over the dimension, its padding is
 * replaced by a neutral element; where an op needs the true size, or the program returns the value, the padding is cut
 * off, which gathers the dimension. After this pass every such constraint divides evenly, and the rest of the
 * partitioner does not see the difference.
 *
 * First the sizes are determined (`want`), then the program is rewritten in place: a padded value changes its type. */
#include <math.h>

#include "ir/verify.h"
#include "pass/pass.h"
#include "pass/shard.h"

typedef struct {
    xl_op *op;
    const xl_rule *rule;
    const int64_t *parts;
} item; /* parts: of a constraint, per dimension */
typedef struct made {
    xl_value v;
    const xl_region *where;
    const xl_type *type;
    uint32_t mask;
    xl_opcode combine;
    struct made *next;
} made;
typedef struct {
    xl_shard_ctx *c;
    xl_func *f;
    xl_arena *a;
    uint32_t nval;                                         /* values of the program as it came */
    item *item;
    uint32_t nitem, capitem;
    int64_t **want; /* per value: padded size of each dimension, or 0; NULL: no tensor of ours */
    const xl_type **type;                                  /* per value: as it came */
    made **made;                                           /* per value: other sizes of it, to be used again */
    bool any, changed;
    xl_b b;
} padder;

static bool is_constraint(const xl_op *op)
{
    return op->code == XL_OP_SDY_CONSTRAINT || op->code == XL_OP_SDY_RESHARD ||
           (op->code == XL_OP_CUSTOM_CALL && op->nin == 1 && op->nout == 1 &&
            xl_str_is(xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name)), "Sharding"));
}
static bool is_flow(const xl_op *op)
{
    return op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE;
}
static bool is_source(const xl_op *op)
{
    return op &&
           ((op->code == XL_OP_CONSTANT && xl_attr_is_splat(XL_ATTR(op, CONSTANT, value))) || op->code == XL_OP_IOTA);
}

/* ---- what sizes -------------------------------------------------------------------------------------------------- */
static void ours(padder *p, xl_value v)
{
    const xl_type *t = p->f->val[v.id].type;
    p->type[v.id] = t;
    if (t->kind == XL_TY_TENSOR && !t->unranked && t->rank && t->rank <= 32 && !t->quant && xl_type_static(t))
        p->want[v.id] = xl_new(p->a, int64_t, t->rank);
}

/* Values that a region uses without our rewriting it keep their sizes. */
static void pin(padder *p, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin; k++)
            p->want[r->op[i]->in[k].id] = NULL;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            pin(p, r->op[i]->region[k]);
    }
}

static void set(padder *p, xl_value v, uint32_t d, int64_t size)
{
    if (!size || !p->want[v.id] || p->want[v.id][d])
        return;
    p->want[v.id][d] = size;
    p->changed = true;
}

static xl_error *constraint(padder *p, item *it)
{
    const xl_op *op = it->op;
    const xl_attr *note =
        op->code == XL_OP_CUSTOM_CALL ? xl_shard_note(op->extra) : XL_ATTR(op, SDY_CONSTRAINT, sharding);
    const xl_type *t = p->f->val[op->out[0].id].type;
    xl_axes *spec;
    uint32_t closed;
    xl_error *err = xl_shard_read(p->c, note, t, false, &spec, &closed);
    p->c->uneven = false;
    if (err || !spec)
        return err;
    int64_t *parts = xl_new(p->a, int64_t, t->rank);
    for (uint32_t d = 0; d < t->rank; d++) {
        parts[d] = p->c->asked[d];
        if (t->dims[d] > 1 && t->dims[d] % parts[d]) {
            set(p, op->out[0], d, (t->dims[d] + parts[d] - 1) / parts[d] * parts[d]);
            p->any = true;
        }
    }
    it->parts = parts;
    return NULL;
}

static xl_error *collect(padder *p, xl_region *r)
{
    xl_error *err = NULL;
    for (uint32_t i = 0; i < r->narg; i++)
        ours(p, r->arg[i]);
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        item it = { .op = op };
        for (uint32_t k = 0; k < op->nout; k++)
            ours(p, op->out[k]);
        for (uint32_t k = 0; k < op->nregion; k++) {
            if (is_flow(op))
                XL_DO(collect(p, op->region[k]));
            else
                pin(p, op->region[k]);
        }
        if (is_constraint(op))
            XL_DO(constraint(p, &it));
        op->mark = p->nitem;
        XL_PUSH(p->a, p->item, p->nitem, p->capitem, it);
    }
out:
    return err;
}

static bool fills(xl_opcode combine, xl_dtype d)
{
    return combine == XL_OP_ADD || combine == XL_OP_MULTIPLY || combine == XL_OP_AND || combine == XL_OP_OR ||
           ((combine == XL_OP_MAXIMUM || combine == XL_OP_MINIMUM) &&
            (d == XL_F32 || d == XL_F64 || d == XL_BF16 || d == XL_F16));
}

/* Which factors may be padded: each dimension that has one has no other, and padding can be kept out of sums. */
static void paddable(const padder *p, const xl_op *op, const xl_rule *r, bool *ok)
{
    bool sums = op->code == XL_OP_DOT || op->code == XL_OP_DOT_GENERAL || op->code == XL_OP_CONVOLUTION ||
                op->code == XL_OP_REDUCE;
    for (uint32_t f = 0; f < r->nfactor; f++)
        ok[f] = r->kind[f] == XL_FACTOR_PASS ||
                (r->kind[f] == XL_FACTOR_SUM && sums && fills(r->combine, p->type[op->in[0].id]->dtype));
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        xl_value v = i < op->nin ? op->in[i] : op->out[i - op->nin];
        for (uint32_t d = 0; d < p->type[v.id]->rank; d++)
            for (uint32_t k = 0; k < r->map[i][d].n; k++) {
                uint32_t f = r->map[i][d].f[k];
                ok[f] = ok[f] && r->map[i][d].n == 1 && p->type[v.id]->dims[d] == r->size[f];
            }
    }
}

/* The padded size of each factor, or 0: the first that a result or an operand wants. */
static void sizes(const padder *p, const xl_op *op, const xl_rule *r, int64_t *size)
{
    bool ok[XL_SHARD_FACTORS];
    paddable(p, op, r, ok);
    memset(size, 0, r->nfactor * sizeof *size);
    for (uint32_t n = 0; n < op->nin + op->nout; n++) {
        uint32_t i = (n + op->nin) % (op->nin + op->nout);
        xl_value v = i < op->nin ? op->in[i] : op->out[i - op->nin];
        for (uint32_t d = 0; p->want[v.id] && d < p->type[v.id]->rank; d++) {
            uint32_t f = r->map[i][d].n == 1 ? r->map[i][d].f[0] : UINT32_MAX;
            if (f != UINT32_MAX && ok[f] && !size[f])
                size[f] = p->want[v.id][d];
        }
    }
    for (uint32_t i = 0; i < op->nout; i++)                /* a result that must stay as it is */
        for (uint32_t d = 0; !p->want[op->out[i].id] && d < p->type[op->out[i].id]->rank; d++)
            for (uint32_t k = 0; k < r->map[op->nin + i][d].n; k++)
                size[r->map[op->nin + i][d].f[k]] = 0;
}

static void same(padder *p, xl_value a, xl_value b, const int64_t *parts)
{
    const int64_t *x = p->want[a.id], *y = p->want[b.id];
    for (uint32_t d = 0; x && y && d < p->type[a.id]->rank; d++) {
        if (!parts || x[d] % parts[d] == 0)
            set(p, b, d, x[d]);
        if (!parts || y[d] % parts[d] == 0)
            set(p, a, d, y[d]);
    }
}

static void step(padder *p, item *it)
{
    xl_op *op = it->op;
    if (is_constraint(op)) {
        if (it->parts)
            same(p, op->in[0], op->out[0], it->parts);
    } else if (op->code == XL_OP_OPTIMIZATION_BARRIER) {
        for (uint32_t k = 0; k < op->nin; k++)
            same(p, op->in[k], op->out[k], NULL);
    } else if (op->code == XL_OP_WHILE) {
        for (uint32_t k = 0; k < op->nout; k++) {
            same(p, op->in[k], op->out[k], NULL);
            for (uint32_t j = 0; j < op->nregion; j++)
                same(p, op->region[j]->arg[k], op->out[k], NULL);
            same(p, xl_region_end(op->region[1])->in[k], op->out[k], NULL);
        }
    } else if (is_flow(op)) {
        for (uint32_t j = 0; j < op->nregion; j++)
            for (uint32_t k = 0; k < op->nout; k++)
                same(p, xl_region_end(op->region[j])->in[k], op->out[k], NULL);
    } else if (op->nout && op->code != XL_OP_CONSTANT && op->code != XL_OP_IOTA) {
        int64_t size[XL_SHARD_FACTORS];
        if (!it->rule) {
            xl_rule *r = xl_new(p->a, xl_rule, 1);
            if (!xl_shard_rule(p->f, op, p->a, r))
                r->nfactor = 0;
            it->rule = r;
        }
        if (!it->rule->nfactor)
            return;
        sizes(p, op, it->rule, size);
        for (uint32_t i = 0; i < op->nin + op->nout; i++) {
            xl_value v = i < op->nin ? op->in[i] : op->out[i - op->nin];
            for (uint32_t d = 0; d < p->type[v.id]->rank; d++)
                if (it->rule->map[i][d].n == 1)
                    set(p, v, d, size[it->rule->map[i][d].f[0]]);
        }
    }
}

/* What a loop carries has one size; if some place needs the true one, all do. */
static void tie(padder *p, const xl_op *op)
{
    for (uint32_t k = 0; op->code == XL_OP_WHILE && k < op->nout; k++) {
        bool free = p->want[op->out[k].id];
        for (uint32_t j = 0; j < op->nregion; j++)
            free = free && p->want[op->region[j]->arg[k].id];
        for (uint32_t j = 0; !free && j < op->nregion; j++)
            p->want[op->region[j]->arg[k].id] = NULL;
        if (!free)
            p->want[op->out[k].id] = NULL;
    }
}

/* ---- the program with these sizes ---- */
static const xl_type *wanted(const padder *p, xl_value v)
{
    const xl_type *t = p->type[v.id];
    int64_t dims[32];
    if (!p->want[v.id])
        return t;
    for (uint32_t d = 0; d < t->rank; d++)
        dims[d] = p->want[v.id][d] ? p->want[v.id][d] : t->dims[d];
    return xl_type_tensor(p->c->m, t->dtype, (xl_dims){ dims, t->rank });
}

static double neutral(xl_opcode combine)
{
    return combine == XL_OP_MULTIPLY || combine == XL_OP_AND ? 1
           : combine == XL_OP_MAXIMUM                        ? -INFINITY
           : combine == XL_OP_MINIMUM                        ? INFINITY
                                                             : 0;
}

/* All bits set, where that is what leaves an AND alone. */
static xl_value fill(padder *p, xl_dtype d, xl_opcode combine)
{
    return combine == XL_OP_AND && d != XL_I1 ? xl_b_unary(&p->b, XL_OP_NOT, xl_b_scalar(&p->b, d, 0))
                                              : xl_b_scalar(&p->b, d, neutral(combine));
}

/* v with the sizes of `to`; in the dimensions of mask the padding holds what combine does not notice. */
static xl_value fit(padder *p, xl_value v, const xl_type *to, uint32_t mask, xl_opcode combine)
{
    const xl_type *from = p->f->val[v.id].type, *true_type = p->type[v.id];
    const xl_op *def = p->f->val[v.id].def;
    int64_t zero[32] = { 0 }, limit[32], high[32];
    uint32_t rank = xl_shard_rank(to), key;
    bool cut = false, grow = false;
    for (uint32_t d = 0; d < rank; d++)
        if (to->dims[d] == true_type->dims[d])
            mask &= ~(1u << d);
    key = mask;
    if (!rank || (!mask && xl_type_eq(from, to)))
        return v;
    for (const made *m = p->made[v.id]; m; m = m->next)
        if (m->where == p->b.r && xl_type_eq(m->type, to) && m->mask == mask && (!mask || m->combine == combine))
            return m->v;
    xl_value x = v;
    if (is_source(def) && !xl_type_eq(from, to)) {
        x = def->code == XL_OP_IOTA
                ? xl_b_iota(&p->b, to, xl_op_int(def, XL_SLOT(IOTA, iota_dimension)))
                : xl_b_const(&p->b, to, XL_ATTR(def, CONSTANT, value)->data.p, xl_dtype_bytes(to->dtype));
    } else {
        for (uint32_t d = 0; d < rank; d++) {
            limit[d] = from->dims[d] == to->dims[d] ? from->dims[d] : true_type->dims[d];
            high[d] = to->dims[d] - limit[d];
            cut = cut || limit[d] != from->dims[d];
            grow = grow || high[d];
            if (high[d] && mask >> d & 1)
                mask &= ~(1u << d);                        /* padded with what is right */
        }
        xl_value with = grow ? fill(p, to->dtype, combine) : XL_NO_VALUE;
        if (cut)
            x = xl_b_slice(&p->b, x, (xl_dims){ zero, rank }, (xl_dims){ limit, rank }, (xl_dims){ 0 });
        if (grow)
            x = xl_b_pad(&p->b, x, with, (xl_dims){ zero, rank }, (xl_dims){ high, rank }, (xl_dims){ 0 });
    }
    for (uint32_t d = 0; d < rank; d++)
        if (mask >> d & 1) {
            const xl_type *ix = xl_type_with_dtype(p->c->m, to, XL_I32);
            xl_value real = xl_b_compare(&p->b, XL_COMPARISON_DIRECTION_LT, xl_b_iota(&p->b, ix, d),
                                         xl_b_splat(&p->b, ix, (double)true_type->dims[d]));
            x = xl_b_select(&p->b, real, x, xl_b_fill(&p->b, fill(p, to->dtype, combine), xl_type_dims(to)));
        }
    made *m = xl_new(p->a, made, 1);
    *m = (made){ x, p->b.r, to, key, combine, p->made[v.id] };
    p->made[v.id] = m;
    return x;
}

static void grow_attrs(padder *p, xl_op *op, const xl_type *x, const xl_type *padded, const xl_type *out)
{
    uint32_t slot = op->code == XL_OP_SLICE ? XL_SLOT(SLICE, limit_indices) : XL_SLOT(GATHER, slice_sizes);
    int64_t v[32];
    if (op->code == XL_OP_SLICE || op->code == XL_OP_GATHER) {
        xl_dims s = xl_op_dims(op, slot);
        for (size_t d = 0; d < s.n; d++)
            v[d] = s.p[d] == x->dims[d] ? padded->dims[d] : s.p[d];
        xl_op_set(op, slot, xl_attr_dims(p->c->m, (xl_dims){ v, s.n }));
    } else if (op->code == XL_OP_DYNAMIC_SLICE) {
        xl_op_set(op, XL_SLOT(DYNAMIC_SLICE, slice_sizes), xl_attr_dims(p->c->m, xl_type_dims(out)));
    } else if (op->code == XL_OP_BROADCAST) {
        xl_op_set(op, XL_SLOT(BROADCAST, broadcast_sizes),
                  xl_attr_dims(p->c->m, (xl_dims){ out->dims, xl_op_dims(op, XL_SLOT(BROADCAST, broadcast_sizes)).n }));
    }
}

static void by_rule(padder *p, xl_op *op, const xl_rule *r)
{
    int64_t size[XL_SHARD_FACTORS], dims[32];
    const xl_type *first = op->nin ? p->type[op->in[0].id] : NULL;
    sizes(p, op, r, size);
    for (uint32_t i = 0; i < op->nin + op->nout; i++) {
        xl_value v = i < op->nin ? op->in[i] : op->out[i - op->nin];
        const xl_type *t = p->type[v.id], *to = t;
        uint32_t mask = 0;
        bool grown = false;
        for (uint32_t d = 0; d < t->rank; d++) {
            uint32_t f = r->map[i][d].n == 1 ? r->map[i][d].f[0] : UINT32_MAX;
            dims[d] = f != UINT32_MAX && size[f] ? size[f] : t->dims[d];
            grown = grown || dims[d] != t->dims[d];
            mask |= f != UINT32_MAX && size[f] && r->kind[f] == XL_FACTOR_SUM ? 1u << d : 0;
        }
        if (grown)
            to = xl_type_tensor(p->c->m, t->dtype, (xl_dims){ dims, t->rank });
        if (i < op->nin)
            op->in[i] = fit(p, v, to, mask, r->combine);
        else
            p->f->val[v.id].type = to;
        if (grown && (i == 0 || i == op->nin))
            grow_attrs(p, op, first, p->f->val[op->in[0].id].type, to);
    }
}

/* ret: the types of what it returns; NULL: as they came. */
static void rewrite(padder *p, xl_region *r, const xl_type *const *ret)
{
    xl_region *before = p->b.r, *now = xl_region_new(p->f, r->owner);
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        const item *it = &p->item[op->mark];
        bool alike = op->code == XL_OP_OPTIMIZATION_BARRIER || op->code == XL_OP_WHILE ||
                     (is_constraint(op) && it->parts); /* operand k is as result k */
        const xl_type **out = xl_new(p->a, const xl_type *, op->nout);
        p->b.r = now;
        p->b.loc = op->loc;
        if (it->rule && it->rule->nfactor) {
            by_rule(p, op, it->rule);
        } else {
            for (uint32_t k = 0; k < op->nout && (alike || is_flow(op)); k++)
                p->f->val[op->out[k].id].type = out[k] = wanted(p, op->out[k]);
            for (uint32_t k = 0; k < op->nin; k++)
                op->in[k] = fit(p, op->in[k],
                                alike                             ? out[k]
                                : op->code == XL_OP_RETURN && ret ? ret[k]
                                                                  : p->type[op->in[k].id],
                                0, XL_OP_ADD);
        }
        for (uint32_t k = 0; is_flow(op) && k < op->nregion; k++) {
            for (uint32_t j = 0; j < op->region[k]->narg; j++)
                p->f->val[op->region[k]->arg[j].id].type = out[j];
            rewrite(p, op->region[k], op->code == XL_OP_WHILE && k == 0 ? NULL : out);
        }
        p->b.r = now;
        xl_region_append(p->f, now, op);
    }
    r->op = now->op;
    r->nop = now->nop;
    r->capop = now->capop;
    for (uint32_t i = 0; i < r->nop; i++)
        r->op[i]->parent = r;
    p->b.r = before;
}

xl_error *xl_shard_divide(xl_shard_ctx *c)
{
    xl_func *f = c->f;
    padder p = { .c = c, .f = f, .a = c->a, .nval = f->nval, .b = xl_b_at(f, f->body) };
    p.want = xl_new(c->a, int64_t *, f->nval);
    p.type = xl_new(c->a, const xl_type *, f->nval);
    xl_error *err = NULL;
    XL_DO(collect(&p, f->body));
    if (!p.any)
        goto out;
    p.made = xl_new(c->a, made *, f->nval);
    for (uint32_t i = 0; i < p.nitem; i++)
        tie(&p, p.item[i].op);
    do {
        p.changed = false;
        for (uint32_t i = 0; i < p.nitem; i++)
            step(&p, &p.item[i]);
        for (uint32_t i = p.nitem; i-- > 0;)
            step(&p, &p.item[i]);
    } while (p.changed);
    rewrite(&p, f->body, NULL);
    XL_DO(xl_b_error(&p.b));
    XL_TRY(xl_verify(c->m), "the program with padded sizes");
out:
    return err;
}
