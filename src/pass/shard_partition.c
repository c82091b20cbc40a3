/* A value may be unreduced over some atoms: the devices hold parts that are still to be summed over them (`owed`).
 * Constraints, results and the boundaries of manual regions create such values. Linear ops, loops and branches whose
 * result such a constraint reads keep them unreduced; every other op uses the sum.
 *
 * Partitioning: the ops of the original program are visited in order, and each is emitted on local shapes into a new
 * body. For every value of the original, `now` has its replacement and `at` the replacement's spec. The candidates for
 * an op are the splits that its operands or its results suggest; the one that moves the fewest bytes (and, with a small
 * weight, computes the least) is taken. Sums over a split factor give a partial result, completed by an all_reduce, or
 * by a reduce_scatter if the result is split over the same atoms. */
#include "pass/shard.h"

#include <stdio.h>

#include "base/log.h"
#include "ir/verify.h"
#include "pass/pass.h"

typedef struct kept {
    xl_axes *spec;
    xl_value v;
    const xl_region *where;
    struct kept *next;
} kept; /* a value in another split */
typedef struct {
    xl_shard_ctx *c;
    xl_b b;
    xl_value *now;
    xl_axes **at;
    kept **cache;                                          /* per value */
    const xl_region *open[80];
    uint32_t nopen;
    xl_owed *owed;                                         /* per value */
    xl_owed *later;                                        /* per value: its one reader takes it unreduced so */
    uint32_t manual;                                       /* manual regions around */
    xl_error *err;
} part;

static const xl_type *type_of(const part *p, xl_value v) { return p->c->f->val[v.id].type; }

static const char *line_of(const part *p, const xl_op *op, char *text, size_t size)
{
    xl_str file;
    uint32_t line, col;
    if (xl_loc_line(p->c->m, op->loc, &file, &line, &col))
        snprintf(text, size, "%s (%.*s:%u)", xl_op_text(op), XL_FMT(file), line);
    else
        snprintf(text, size, "%s", xl_op_text(op));
    return text;
}

static void fail(part *p, const xl_op *op, const char *why)
{
    char text[512];
    if (!p->err)
        p->err = XL_ERR(UNIMPLEMENTED, "partitioning %s: %s", line_of(p, op, text, sizeof text), why);
}

static void set(part *p, xl_value old, xl_value now, xl_axes *spec)
{
    p->now[old.id] = now;
    p->at[old.id] = spec;
    p->owed[old.id].over.n = 0;
}

static xl_owed owed_by(part *p, const xl_attr *a)
{
    xl_owed o = { 0 };
    xl_error *err = p->err ? NULL : xl_shard_owed(p->c, a, &o);
    p->err = err ? err : p->err;
    return o;
}

/* a without the atoms of b. */
static xl_axes without(const xl_axes *a, const xl_axes *b)
{
    xl_axes r = { 0 };
    for (uint32_t i = 0; i < a->n; i++)
        if (!memchr(b->atom, a->atom[i], b->n))
            r.atom[r.n++] = a->atom[i];
    return r;
}

/* A spec in which no dimension is split over the atoms of `over`. */
static xl_axes *spec_without(part *p, const xl_axes *spec, uint32_t rank, const xl_axes *over)
{
    xl_axes *s = xl_spec_copy(p->c, spec, rank);
    for (uint32_t d = 0; d < rank; d++)
        for (uint8_t i = 0; i < s[d].n; i++)
            if (memchr(over->atom, s[d].atom[i], over->n))
                s[d].n = i;
    return s;
}

/* ---- values that cost nothing to make again ---------------------------------------------------------------------- */
static xl_value source(part *p, const xl_op *op, const xl_axes *spec)
{
    const xl_type *t = xl_out_type(p->c->f, op, 0), *local = xl_shard_local(p->c, t, spec);
    xl_b *b = &p->b;
    if (op->code == XL_OP_CONSTANT) {
        const xl_attr *a = XL_ATTR(op, CONSTANT, value);
        return xl_b_const(b, local, a->data.p, xl_dtype_bytes(t->dtype));
    }
    if (op->code == XL_OP_BROADCAST_IN_DIM)
        return xl_b_fill(b, p->now[op->in[0].id], xl_type_dims(local));
    int64_t dim = xl_op_int(op, XL_SLOT(IOTA, iota_dimension));
    if (!spec[dim].n)
        return xl_b_iota(b, local, dim);
    xl_dtype d =
        t->dtype == XL_I64 || t->dtype == XL_U64 || t->dtype == XL_U32 || t->dtype == XL_I32 ? t->dtype : XL_I32;
    xl_value i = xl_b_iota(b, xl_type_with_dtype(p->c->m, local, d), dim),
             off = xl_shard_offset(p->c, b, &spec[dim], local->dims[dim], d);
    i = xl_b_binary(b, XL_OP_ADD, i, xl_b_fill(b, off, xl_type_dims(local)));
    return xl_b_convert(b, i, t->dtype);
}

static bool is_source(const part *p, xl_value v)
{
    const xl_op *op = p->c->f->val[v.id].def;
    if (!op || v.id >= p->c->nval)
        return false;
    if (op->code == XL_OP_CONSTANT)
        return xl_attr_is_splat(XL_ATTR(op, CONSTANT, value)) && !xl_out_type(p->c->f, op, 0)->quant;
    return op->code == XL_OP_IOTA || (op->code == XL_OP_BROADCAST_IN_DIM && xl_in_type(p->c->f, op, 0)->rank == 0);
}

static bool is_open(const part *p, const xl_region *r)
{
    for (uint32_t i = 0; i < p->nopen; i++)
        if (p->open[i] == r)
            return true;
    return false;
}

static const kept *cached(const part *p, xl_value old, const xl_axes *want, uint32_t rank)
{
    for (const kept *k = p->cache[old.id]; k; k = k->next)
        if (xl_spec_eq(k->spec, want, rank) && is_open(p, k->where))
            return k;
    return NULL;
}

static double move_cost(const part *p, xl_value old, const xl_axes *want)
{
    const xl_type *t = type_of(p, old);
    uint32_t rank = xl_shard_rank(t);
    if (!rank || !p->at[old.id] || xl_spec_eq(p->at[old.id], want, rank) || is_source(p, old) ||
        cached(p, old, want, rank))
        return 0;
    return xl_shard_cost(p->c, t, p->at[old.id], want);
}

static xl_value get(part *p, xl_value old, const xl_axes *want)
{
    const xl_type *t = type_of(p, old);
    uint32_t rank = xl_shard_rank(t);
    const xl_owed *o = &p->owed[old.id];
    bool there = !rank || !p->at[old.id] || xl_spec_eq(p->at[old.id], want, rank);
    if (there && !o->over.n)
        return p->now[old.id];
    const kept *k = cached(p, old, want, rank);
    if (k)
        return k->v;
    xl_value v = o->over.n ? xl_shard_all_reduce(p->c, &p->b, p->now[old.id], &o->over, o->combine) : p->now[old.id];
    if (!there)
        v = is_source(p, old) ? source(p, p->c->f->val[old.id].def, want)
                              : xl_shard_move(p->c, &p->b, v, t, p->at[old.id], want);
    kept *e = xl_new(p->c->a, kept, 1);
    *e = (kept){ xl_spec_copy(p->c, want, rank), v, p->b.r, p->cache[old.id] };
    p->cache[old.id] = e;
    return v;
}

/* v, split as `at`, among zeros where other devices have their parts: so it is unreduced over the atoms that `want`
 * does not split it over. *first loses those. False, and nothing done, where they are not all the last ones of their
 * dimensions. */
static bool among_zeros(part *p, xl_value *v, const xl_type *t, const xl_axes *at, const xl_axes *want, xl_axes *first)
{
    xl_value start[32];
    xl_axes gone = { 0 };
    for (uint32_t d = 0; d < t->rank; d++)
        for (uint32_t i = want[d].n; i < at[d].n || !xl_axes_prefix(&want[d], &at[d]); i++) {
            if (!xl_axes_prefix(&want[d], &at[d]) || !memchr(first->atom, at[d].atom[i], first->n))
                return false;
            gone.atom[gone.n++] = at[d].atom[i];
        }
    if (!gone.n)
        return false;
    const xl_type *local = xl_b_type(&p->b, *v);
    for (uint32_t d = 0; d < t->rank; d++) {
        xl_axes rest = { 0 };
        for (uint32_t i = want[d].n; i < at[d].n; i++)
            rest.atom[rest.n++] = at[d].atom[i];
        start[d] = rest.n ? xl_shard_offset(p->c, &p->b, &rest, local->dims[d], XL_I32)
                          : xl_b_splat(&p->b, xl_type_scalar(p->c->m, XL_I32), 0);
    }
    *v = xl_b_dynamic_update_slice(&p->b, xl_b_splat(&p->b, xl_shard_local(p->c, t, want), 0), *v, start);
    *first = without(first, &gone);
    return true;
}

/* The value split as `want`, which has none of the atoms of `to`, and unreduced over those: what was summed already is
 * the part of the first device. */
static xl_value get_owed(part *p, xl_value old, const xl_axes *want, const xl_owed *to)
{
    const xl_owed *from = &p->owed[old.id];
    const xl_type *t = type_of(p, old);
    uint32_t rank = xl_shard_rank(t);
    xl_axes sum = without(&from->over, &to->over), first = without(&to->over, &from->over);
    if (!to->over.n)
        return get(p, old, want);
    if (from->over.n && from->combine != to->combine && !p->err)
        p->err = XL_ERR(UNIMPLEMENTED,
                        "a value that is unreduced in one way becomes unreduced in another: reduce it in between");
    xl_value v = p->now[old.id];
    if (sum.n)
        v = xl_shard_all_reduce(p->c, &p->b, v, &sum, from->combine);
    bool there = !rank || !p->at[old.id] || xl_spec_eq(p->at[old.id], want, rank);
    if (!there && to->combine == XL_OP_ADD && !is_source(p, old))
        there = among_zeros(p, &v, t, p->at[old.id], want, &first);
    if (!there)
        v = is_source(p, old) ? source(p, p->c->f->val[old.id].def, want)
                              : xl_shard_move(p->c, &p->b, v, t, p->at[old.id], want);
    if (first.n && to->combine == XL_OP_ADD) {
        xl_value at = xl_shard_offset(p->c, &p->b, &first, 1, XL_I32),
                 is = xl_b_compare(&p->b, XL_COMPARISON_DIRECTION_EQ, at, xl_b_splat(&p->b, xl_b_type(&p->b, at), 0));
        const xl_type *local = xl_b_type(&p->b, v);
        v = xl_b_select(&p->b, local->rank ? xl_b_fill(&p->b, is, xl_type_dims(local)) : is, v,
                        xl_b_splat(&p->b, local, 0));
    }
    return v;
}

/* The same bytes on every device, all zero, whatever constraints lie between. */
static bool is_zero(const part *p, xl_value v)
{
    const xl_op *def = p->c->f->val[v.id].def;
    while (v.id < p->c->nval && def && (def->code == XL_OP_SDY_CONSTRAINT || def->code == XL_OP_SDY_RESHARD)) {
        v = def->in[0];
        def = p->c->f->val[v.id].def;
    }
    if (is_source(p, v) && def->code == XL_OP_BROADCAST_IN_DIM)
        v = def->in[0];
    const xl_attr *a = xl_value_const(p->c->f, v);
    return a && xl_attr_is_splat(a) &&
           !memcmp(a->data.p, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", xl_dtype_bytes(type_of(p, v)->dtype));
}

static xl_axes *whole_spec(part *p, const xl_type *t)
{
    return xl_shard_rank(t) ? xl_spec_copy(p->c, NULL, t->rank) : NULL;
}
static xl_value get_whole(part *p, xl_value old) { return get(p, old, whole_spec(p, type_of(p, old))); }

/* ---- one op ------------------------------------------------------------------------------------------------------ */
/* Groups given by axes of a mesh, one of `m`, become groups of devices. */
static void plain_groups(part *p, const xl_module *m, xl_op *op)
{
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++) {
        const xl_attr *a = op->attr[i];
        if (!a || a->kind != XL_AT_STRUCT || !xl_str_is(a->str, "stablehlo.replica_group_mesh_axes"))
            continue;
        const xl_attr *mesh = xl_dict_get(a, XL_STR("mesh")), *axes = xl_dict_get(a, XL_STR("axes"));
        xl_axes over = { 0 };
        xl_sharding on = { .mesh = mesh && mesh->kind == XL_AT_SYM ? mesh->str : (xl_str){ 0 } };
        on.inlined = xl_module_mesh(m, on.mesh);
        for (uint32_t k = 0; axes && axes->kind == XL_AT_ARRAY && k < axes->n; k++) {
            const xl_attr *name = xl_dict_get(axes->item[k], XL_STR("name")),
                          *sub = xl_dict_get(axes->item[k], XL_STR("sub_axis_info"));
            bool whole = !sub || sub->kind != XL_AT_INTS || sub->n != 2;
            xl_error *err =
                name && name->kind == XL_AT_STR
                    ? xl_shard_axis(p->c, &on, name->str, whole ? 0 : sub->ints[0], whole ? 0 : sub->ints[1], &over)
                    : XL_ERR(INVALID, "replica groups name an axis that is none");
            char text[512];
            if (err && !p->err)
                p->err = xl_error_wrap(err, "partitioning %s", line_of(p, op, text, sizeof text));
            else
                xl_error_free(err);
        }
        bool by_partition = op->code == XL_OP_ALL_TO_ALL || op->code == XL_OP_COLLECTIVE_BROADCAST;
        op->attr[i] = xl_shard_groups(p->c, &over, !by_partition);
    }
}

/* A copy of op with these operands and result types; regions of scalars come along, without the annotations in them. */
static xl_op *copy(part *p, const xl_op *op, const xl_value *in, const xl_type *const *out)
{
    xl_func *f = p->c->f;
    xl_op *n = xl_op_new(f, NULL, (xl_opcode)op->code, in, op->nin, out, op->nout, op->nregion, op->loc);
    n->name = op->name;
    n->extra = xl_dict_with(p->c->m, xl_dict_with(p->c->m, op->extra, XL_STR("sdy.sharding"), NULL),
                            XL_STR("mhlo.sharding"), NULL);
    if (n->extra && n->extra->n == 0)
        n->extra = NULL;
    for (uint32_t i = 0, k = xl_op_nattr((xl_opcode)op->code); i < k; i++)
        n->attr[i] = op->attr[i];
    if (xl_ops[op->code].flags & XL_OP_COLLECTIVE)
        plain_groups(p, p->c->m, n);
    for (uint32_t k = 0; k < op->nregion; k++) {
        const xl_region *r = op->region[k];
        for (uint32_t i = 0; i < r->narg; i++)
            p->now[r->arg[i].id] = xl_region_add_arg(f, n->region[k], type_of(p, r->arg[i]), f->val[r->arg[i].id].loc);
        for (uint32_t i = 0; i < r->nop; i++) {
            if (r->op[i]->code == XL_OP_SDY_CONSTRAINT)
                p->now[r->op[i]->out[0].id] = p->now[r->op[i]->in[0].id];
            else
                xl_op_clone(f, n->region[k], f, r->op[i], p->now);
        }
    }
    return n;
}

static void say_gathered(xl_shard_ctx *c, const char *what, xl_loc loc, const char *why, double bytes)
{
    xl_gathered g = { .op = what, .times = 1, .bytes = bytes };
    uint32_t col;
    if (bytes <= 0)
        return;
    xl_loc_line(c->m, loc, &g.file, &g.line, &col);
    XL_LOG(INFO, "spmd: %s (%.*s:%u) %s: %.0f bytes", what, XL_FMT(g.file), g.line, why, bytes);
    for (uint32_t i = 0; i < c->ngathered; i++) {
        xl_gathered *o = &c->gathered[i];
        if (!strcmp(o->op, g.op) && o->line == g.line && xl_str_eq(o->file, g.file)) {
            o->times++;
            o->bytes += bytes;
            return;
        }
    }
    XL_PUSH(c->a, c->gathered, c->ngathered, c->capgathered, g);
}
static const char *const no_rule = "is not split along what its operands are split along, which are gathered";

void xl_shard_gathered(const xl_shard_info *info, xl_buf *out)
{
    for (uint32_t i = 0; i < info->ngathered; i++) {
        const xl_gathered *g = &info->gathered[i];
        xl_buf_printf(out, "%s\t%.*s:%u\t%u\t%.0f\n", g->op, XL_FMT(g->file), g->line, g->times, g->bytes);
    }
}

static void emit_whole(part *p, const xl_op *op)
{
    xl_value *in = xl_new(p->c->a, xl_value, op->nin);
    const xl_type **out = xl_new(p->c->a, const xl_type *, op->nout);
    double bytes = 0;
    for (uint32_t i = 0; i < op->nin; i++) {
        const xl_type *t = type_of(p, op->in[i]);
        if (xl_shard_rank(t))
            bytes += move_cost(p, op->in[i], whole_spec(p, t));
        in[i] = get_whole(p, op->in[i]);
    }
    for (uint32_t i = 0; i < op->nout; i++)
        out[i] = xl_out_type(p->c->f, op, i);
    say_gathered(p->c, xl_op_text(op), op->loc, no_rule, bytes);
    xl_op *n = copy(p, op, in, out);
    xl_region_append(p->c->f, p->b.r, n);
    for (uint32_t i = 0; i < op->nout; i++) {
        xl_value v = n->out[i];
        if (op->code == XL_OP_RNG) { /* every device would draw numbers of its own: all take the first one's */
            xl_op *bc = xl_b_begin(&p->b, XL_OP_COLLECTIVE_BROADCAST, &v, 1, &out[i], 1, 0);
            int64_t *ids = xl_new(p->c->a, int64_t, (size_t)p->c->n);
            for (int64_t k = 0; k < p->c->n; k++)
                ids[k] = k;
            xl_b_set_int(&p->b, bc, XL_SLOT(COLLECTIVE_BROADCAST, channel_id), 1);
            xl_b_set(&p->b, bc, XL_SLOT(COLLECTIVE_BROADCAST, replica_groups),
                     xl_attr_dense(p->c->m, xl_type_tensor(p->c->m, XL_I64, (xl_dims){ (int64_t[]){ 1, p->c->n }, 2 }),
                                   (xl_str){ (const char *)ids, (size_t)p->c->n * 8 }));
            v = xl_b_end1(&p->b, bc);
        }
        set(p, op->out[i], v, whole_spec(p, out[i]));
    }
}

/* A minor factor can be split only where those before it in the same dimension are split entirely. */
static void settle(const part *p, const xl_op *op, const xl_rule *r, xl_axes *fs)
{
    for (bool again = true; again; ) {
        again = false;
        for (uint32_t i = 0; i < op->nin + op->nout; i++) {
            const xl_type *t = i < op->nin ? xl_in_type(p->c->f, op, i) : xl_out_type(p->c->f, op, i - op->nin);
            for (uint32_t d = 0; d < t->rank; d++) {
                bool full = true;
                for (uint32_t k = 0; k < r->map[i][d].n; k++) {
                    uint32_t f = r->map[i][d].f[k];
                    if (!full && fs[f].n) {
                        fs[f].n = 0;
                        again = true;
                    }
                    full = full && xl_axes_parts(p->c, &fs[f]) == r->size[f];
                }
            }
        }
    }
}

static void suggest(const part *p, const xl_rule *r, const xl_axes *have, xl_axes *fs, uint32_t *used)
{
    for (uint32_t f = 0; f < r->nfactor; f++) {
        if (have[f].n <= fs[f].n || !xl_axes_prefix(&fs[f], &have[f]))
            continue;
        for (uint32_t i = fs[f].n; i < have[f].n && !(*used >> have[f].atom[i] & 1); i++) {
            fs[f].atom[fs[f].n++] = have[f].atom[i];
            *used |= 1u << have[f].atom[i];
        }
    }
    (void)p;
}

static void partial_atoms(const xl_rule *r, const xl_op *op, const xl_axes *fs, xl_axes *out)
{
    out->n = 0;
    for (uint32_t f = 0; f < r->nfactor; f++)
        if (r->kind[f] == XL_FACTOR_SUM || (r->kind[f] == XL_FACTOR_INDEX && op->code == XL_OP_GATHER))
            for (uint32_t i = 0; i < fs[f].n && out->n < XL_AXES_MAX; i++)
                out->atom[out->n++] = fs[f].atom[i];
}

/* Of the atoms of a partial result: those that `to` splits dimension *dim over next. */
static xl_axes scatter_atoms(const xl_axes *from, const xl_axes *to, uint32_t rank, const xl_axes *over, uint32_t *dim)
{
    xl_axes s = { 0 };
    for (uint32_t d = 0; d < rank && !s.n; d++) {
        if (!xl_axes_prefix(&from[d], &to[d]))
            continue;
        for (uint32_t i = from[d].n; i < to[d].n; i++) {
            bool in = false;
            for (uint32_t k = 0; k < over->n; k++)
                in = in || over->atom[k] == to[d].atom[i];
            if (!in)
                break;
            s.atom[s.n++] = to[d].atom[i];
        }
        *dim = d;
    }
    return s;
}

static double local_elements(const part *p, const xl_type *t, const xl_axes *spec)
{
    double n = 1;
    for (uint32_t d = 0; d < t->rank; d++)
        n *= (double)t->dims[d] / (double)xl_axes_parts(p->c, &spec[d]);
    return n;
}

static double cost(const part *p, const xl_op *op, const xl_rule *r, const xl_axes *fs)
{
    xl_axes want[32], over;
    double sum = 0, work = 0;
    for (uint32_t i = 0; i < op->nin; i++) {
        const xl_type *t = type_of(p, op->in[i]);
        xl_shard_unproject(p->c, r, i, fs, t->rank, want);
        sum += move_cost(p, op->in[i], want);
    }
    partial_atoms(r, op, fs, &over);
    for (uint32_t i = 0; i < op->nout; i++) {
        const xl_type *t = type_of(p, op->out[i]);
        const xl_axes *to = p->c->spec[op->out[i].id];
        uint32_t dim = 0;
        xl_shard_unproject(p->c, r, op->nin + i, fs, t->rank, want);
        work += local_elements(p, t, want);
        if (over.n) {
            double bytes = local_elements(p, t, want) * (double)xl_dtype_bytes(t->dtype),
                   all = (double)xl_axes_parts(p->c, &over);
            xl_axes s = scatter_atoms(want, to, t->rank, &over, &dim);
            double k = (double)xl_axes_parts(p->c, &s), rest = all / k;
            sum +=
                bytes * ((k - 1) / k + 2 * (rest - 1) / rest /
                                           k); /* a reduce_scatter, then an all_reduce of the part over what is left */
            if (s.n) {
                memcpy(want[dim].atom + want[dim].n, s.atom, s.n);
                want[dim].n = (uint8_t)(want[dim].n + s.n);
            }
        }
        sum += xl_shard_cost(p->c, t, want, to);
    }
    if (r->work > 0) {
        work = r->work;
        for (uint32_t f = 0; f < r->nfactor; f++)
            work *= (double)r->size[f] / (double)xl_axes_parts(p->c, &fs[f]);
    }
    return sum + work / 16;
}

static void choose(const part *p, const xl_op *op, const xl_rule *r, xl_axes *best)
{
    xl_axes have[XL_SHARD_FACTORS], fs[XL_SHARD_FACTORS];
    double least = 0;
    uint32_t n = op->nin < 3 ? op->nin : 3;
    bool any = false;
    /* candidate k: results first, or operand k - 1 first; then the rest. The second half: no sums over split
     * factors. */
    for (uint32_t k = 0; k <= 2 * n + 1; k++) {
        uint32_t first = k % (n + 1), used = 0;
        bool sums = k <= n;
        memset(fs, 0, r->nfactor * sizeof *fs);
        for (uint32_t turn = 0; turn < 3; turn++)
            for (uint32_t i = 0; i < op->nin + op->nout; i++) {
                bool result = i >= op->nin;
                uint32_t when = (first == 0 ? result : i == first - 1) ? 0 : result ? 2 : 1;
                xl_value v = result ? op->out[i - op->nin] : op->in[i];
                const xl_axes *spec = result ? p->c->spec[v.id] : p->at[v.id];
                if (when != turn || !spec || (!result && is_source(p, v)))
                    continue;
                xl_shard_project(p->c, r, i, spec, type_of(p, v)->rank, have);
                for (uint32_t f = 0; !sums && f < r->nfactor; f++)
                    if (r->kind[f] != XL_FACTOR_PASS)
                        have[f].n = 0;
                suggest(p, r, have, fs, &used);
            }
        settle(p, op, r, fs);
        double x = cost(p, op, r, fs);
        if (!any || x < least * 0.999999) {
            least = x;
            any = true;
            memcpy(best, fs, r->nfactor * sizeof *fs);
        }
    }
}

/* ---- gather and scatter: indices into one's own part ------------------------------------------------------------- */
/* v[k] for each component of the index vector, as a tensor like the indices. */
static xl_value spread(part *p, const xl_type *ix, int64_t vec, xl_dtype d, const int64_t *v, size_t n)
{
    xl_b *b = &p->b;
    if (vec >= (int64_t)ix->rank)
        return xl_b_fill(b, xl_b_reshape(b, xl_b_ints(b, d, (xl_dims){ v, 1 }), (xl_dims){ 0 }), xl_type_dims(ix));
    return xl_b_broadcast(b, xl_b_ints(b, d, (xl_dims){ v, n }), xl_type_dims(ix), (xl_dims){ &vec, 1 });
}

/* The indices less the beginning of this device's part, for the components whose dimension is split. mask (may be
 * NULL): which are within. */
static xl_value shift(part *p, xl_value index, int64_t vec, xl_dims to, const xl_axes *const *split,
                      const int64_t *local, xl_value *mask)
{
    xl_b *b = &p->b;
    const xl_type *t = xl_b_type(b, index);
    xl_dtype d =
        t->dtype == XL_I32 || t->dtype == XL_I16 || t->dtype == XL_I8 || t->dtype == XL_U16 || t->dtype == XL_U8
            ? XL_I32
            : XL_I64;
    int64_t most = INT32_MAX, lo[32], hi[32], top[32];
    xl_value off = XL_NO_VALUE;
    index = xl_b_convert(b, index, d);
    t = xl_b_type(b, index);
    for (size_t k = 0; k < to.n; k++) {
        bool on = split[k] && split[k]->n;
        lo[k] = on ? 0 : -most;
        hi[k] = on ? local[k] : most;
        top[k] = on ? local[k] * xl_axes_parts(p->c, split[k]) - 1 : most;
    }
    if (mask)                                              /* a gather takes what is out of range from the edge */
        index = xl_b_clamp(b, spread(p, t, vec, d, lo, to.n), index, spread(p, t, vec, d, top, to.n));
    for (size_t k = 0; k < to.n; k++) {
        if (!split[k] || !split[k]->n)
            continue;
        int64_t one[32] = { 0 };
        one[k] = 1;
        xl_value o = xl_b_fill(b, xl_shard_offset(p->c, b, split[k], local[k], d), xl_type_dims(t));
        if (to.n > 1)
            o = xl_b_binary(b, XL_OP_MULTIPLY, o, spread(p, t, vec, d, one, to.n));
        off = off.id == XL_NO_VALUE.id ? o : xl_b_binary(b, XL_OP_ADD, off, o);
    }
    index = xl_b_binary(b, XL_OP_SUBTRACT, index, off);
    if (mask) {
        xl_value m = xl_b_binary(b, XL_OP_AND,
                                 xl_b_compare(b, XL_COMPARISON_DIRECTION_GE, index, spread(p, t, vec, d, lo, to.n)),
                                 xl_b_compare(b, XL_COMPARISON_DIRECTION_LT, index, spread(p, t, vec, d, hi, to.n)));
        if (vec < (int64_t)t->rank)
            m = xl_b_reduce(b, m, xl_b_scalar(b, XL_I1, 1), (xl_dims){ &vec, 1 }, XL_OP_AND);
        *mask = m;
    }
    return index;
}

/* The atoms of the indexed factor of each component's dimension. */
static bool indexed(const part *p, const xl_op *op, const xl_rule *r, const xl_axes *fs, xl_dims to,
                    const xl_axes **split, int64_t *local)
{
    const xl_type *x = type_of(p, op->in[0]);
    bool any = false;
    for (size_t k = 0; k < to.n && k < 32; k++) {
        const xl_dim_factors *m = &r->map[0][to.p[k]];
        split[k] = NULL;
        if (m->n == 1 && r->kind[m->f[0]] == XL_FACTOR_INDEX) {
            split[k] = &fs[m->f[0]];
            local[k] = x->dims[to.p[k]] / xl_axes_parts(p->c, split[k]);
            any = any || split[k]->n;
        }
    }
    return any;
}

static void local_attrs(part *p, xl_op *n, const xl_type *const *out)
{
    xl_module *m = p->c->m;
    xl_func *f = p->c->f;
    int64_t v[32];
    if (n->code == XL_OP_SLICE) {
        xl_dims lim = xl_op_dims(n, XL_SLOT(SLICE, limit_indices));
        for (size_t d = 0; d < lim.n; d++)
            v[d] = lim.p[d] < xl_in_type(f, n, 0)->dims[d] ? lim.p[d] : xl_in_type(f, n, 0)->dims[d];
        xl_op_set(n, XL_SLOT(SLICE, limit_indices), xl_attr_dims(m, (xl_dims){ v, lim.n }));
    } else if (n->code == XL_OP_DYNAMIC_SLICE) {
        xl_op_set(n, XL_SLOT(DYNAMIC_SLICE, slice_sizes), xl_attr_dims(m, xl_type_dims(out[0])));
    } else if (n->code == XL_OP_GATHER) {
        xl_dims s = xl_op_dims(n, XL_SLOT(GATHER, slice_sizes));
        for (size_t d = 0; d < s.n; d++)
            v[d] = s.p[d] < xl_in_type(f, n, 0)->dims[d] ? s.p[d] : xl_in_type(f, n, 0)->dims[d];
        xl_op_set(n, XL_SLOT(GATHER, slice_sizes), xl_attr_dims(m, (xl_dims){ v, s.n }));
    } else if (n->code == XL_OP_BROADCAST) {
        xl_dims s = xl_op_dims(n, XL_SLOT(BROADCAST, broadcast_sizes));
        xl_op_set(n, XL_SLOT(BROADCAST, broadcast_sizes), xl_attr_dims(m, (xl_dims){ out[0]->dims, s.n }));
    }
}

/* The op is linear in its operands of `bits`, all together: of parts that sum to them it makes parts of its result. */
static bool linear(const part *p, const xl_op *op, uint32_t *bits)
{
    uint32_t all = op->nin >= 32 ? 0 : (1u << op->nin) - 1;
    const xl_type *t = op->nin ? type_of(p, op->in[0]) : NULL;
    switch (op->code) {
    case XL_OP_ADD: case XL_OP_SUBTRACT: case XL_OP_CONCATENATE: *bits = all; break;
    case XL_OP_NEGATE:
    case XL_OP_TRANSPOSE:
    case XL_OP_RESHAPE:
    case XL_OP_BROADCAST_IN_DIM:
    case XL_OP_SLICE:
    case XL_OP_REVERSE:
    case XL_OP_DYNAMIC_SLICE:
    case XL_OP_DIVIDE: *bits = 1; break;
    case XL_OP_CONVERT:
        *bits = xl_dtype_class(t->dtype) == XL_CLASS_FLOAT &&
                xl_dtype_class(type_of(p, op->out[0])->dtype) == XL_CLASS_FLOAT;
        break;
    case XL_OP_PAD: case XL_OP_DYNAMIC_UPDATE_SLICE: *bits = 3; break;
    case XL_OP_SELECT: *bits = 6; break;
    case XL_OP_MULTIPLY: case XL_OP_DOT_GENERAL: {
        bool l = p->owed[op->in[0].id].over.n, r = p->owed[op->in[1].id].over.n;
        *bits = l && r ? 0 : l ? 1 : 2;
        break;
    }
    default: *bits = 0;
    }
    return *bits && (op->code != XL_OP_DIVIDE || xl_dtype_class(t->dtype) == XL_CLASS_FLOAT);
}

/* What the result of op stays unreduced over: its reader wants that, an operand is that, and no factor is split over
 * it. */
static xl_axes carried_owed(const part *p, const xl_op *op, const xl_rule *r, const xl_axes *fs, uint32_t *bits)
{
    xl_axes keep = op->nout == 1 ? p->later[op->out[0].id].over : (xl_axes){ 0 };
    bool some = false;
    if (!keep.n || p->later[op->out[0].id].combine != XL_OP_ADD || !linear(p, op, bits))
        return (xl_axes){ 0 };
    for (uint32_t f = 0; f < r->nfactor; f++)
        for (uint32_t k = 0; k < fs[f].n; k++)
            if (memchr(keep.atom, fs[f].atom[k], keep.n))
                return (xl_axes){ 0 };
    for (uint32_t i = 0; i < op->nin; i++) {
        const xl_owed *o = &p->owed[op->in[i].id];
        if (!(*bits >> i & 1) || !o->over.n)
            continue;
        if (o->combine != XL_OP_ADD || without(&keep, &o->over).n)
            return (xl_axes){ 0 };
        some = true;
    }
    return some ? keep : (xl_axes){ 0 };
}

static void emit_split(part *p, const xl_op *op, const xl_rule *r)
{
    xl_shard_ctx *c = p->c;
    uint32_t bits = 0;
    xl_axes fs[XL_SHARD_FACTORS], over, want[32];
    xl_value *in = xl_new(c->a, xl_value, op->nin), mask = XL_NO_VALUE, base = XL_NO_VALUE;
    const xl_type **out = xl_new(c->a, const xl_type *, op->nout);
    xl_axes **rs = xl_new(c->a, xl_axes *, op->nout);
    const xl_axes *split[32];
    int64_t local[32];
    double bytes = 0;
    choose(p, op, r, fs);
    partial_atoms(r, op, fs, &over);
    const xl_owed carried = { carried_owed(p, op, r, fs, &bits), XL_OP_ADD }, none = { 0 };
    for (uint32_t i = 0; i < op->nin; i++) {
        const xl_type *t = type_of(p, op->in[i]);
        bool lost = false;                                 /* split along a dimension that the rule says nothing of */
        for (uint32_t d = 0; p->at[op->in[i].id] && d < t->rank; d++)
            lost = lost || (p->at[op->in[i].id][d].n && !r->map[i][d].n);
        xl_shard_unproject(c, r, i, fs, t->rank, want);
        bytes += lost ? move_cost(p, op->in[i], want) : 0;
        in[i] = get_owed(p, op->in[i], want, bits >> i & 1 ? &carried : &none);
    }
    say_gathered(c, xl_op_text(op), op->loc, no_rule, bytes);
    for (uint32_t i = 0; i < op->nout; i++) {
        const xl_type *t = type_of(p, op->out[i]);
        rs[i] = xl_spec_copy(c, NULL, t->rank);
        xl_shard_unproject(c, r, op->nin + i, fs, t->rank, rs[i]);
        out[i] = xl_shard_local(c, t, rs[i]);
    }
    if (op->code == XL_OP_GATHER) {
        xl_dims to = xl_op_dims(op, XL_SLOT(GATHER, start_index_map));
        if (to.n <= 32 && indexed(p, op, r, fs, to, split, local))
            in[1] = shift(p, in[1], xl_op_int(op, XL_SLOT(GATHER, index_vector_dim)), to, split, local, &mask);
    } else if (op->code == XL_OP_SCATTER) {
        xl_dims to = xl_op_dims(op, XL_SLOT(SCATTER, scatter_dims_to_operand_dims));
        if (to.n <= 32 && indexed(p, op, r, fs, to, split, local))
            in[1] = shift(p, in[1], xl_op_int(op, XL_SLOT(SCATTER, index_vector_dim)), to, split, local, NULL);
        if (over.n) {                                      /* what was there is added once, after the sums */
            base = in[0];
            in[0] = xl_b_splat(&p->b, xl_b_type(&p->b, base), 0);
        }
    }
    xl_op *n = copy(p, op, in, out);
    local_attrs(p, n, out);
    xl_region_append(c->f, p->b.r, n);
    for (uint32_t i = 0; i < op->nout; i++) {
        xl_value v = n->out[i];
        xl_owed later = { 0 };
        const xl_type *t = type_of(p, op->out[i]);
        if (op->code == XL_OP_REVERSE)
            v = xl_shard_mirror(c, &p->b, v, rs[i], xl_op_dims(op, XL_SLOT(REVERSE, dimensions)));
        if (mask.id != XL_NO_VALUE.id) {
            xl_dims off = xl_op_dims(op, XL_SLOT(GATHER, offset_dims));
            int64_t at[32];
            size_t k = 0;
            for (uint32_t d = 0; d < t->rank; d++) {
                bool o = false;
                for (size_t j = 0; j < off.n; j++)
                    o = o || off.p[j] == d;
                if (!o)
                    at[k++] = d;
            }
            xl_value m = xl_b_broadcast(&p->b, mask, xl_type_dims(out[i]), (xl_dims){ at, k });
            v = xl_b_select(&p->b, m, v, xl_b_splat(&p->b, out[i], 0));
        }
        if (over.n) {
            uint32_t dim = 0;
            xl_axes rest = { 0 }, s = scatter_atoms(rs[i], c->spec[op->out[i].id], t->rank, &over, &dim);
            if (s.n) {
                v = xl_shard_reduce_scatter(c, &p->b, v, &s, dim, r->combine);
                memcpy(rs[i][dim].atom + rs[i][dim].n, s.atom, s.n);
                rs[i][dim].n = (uint8_t)(rs[i][dim].n + s.n);
            }
            for (uint32_t k = 0; k < over.n; k++)
                if (!memchr(s.atom, over.atom[k], s.n))
                    rest.atom[rest.n++] = over.atom[k];
            later = (xl_owed){ rest, r->combine };
            const xl_owed *asked = &p->later[op->out[i].id];
            rest = asked->combine == r->combine ? without(&rest, &asked->over) : rest;
            later.over = without(&later.over, &rest);
            v = xl_shard_all_reduce(c, &p->b, v, &rest, r->combine);
            if (base.id != XL_NO_VALUE.id && !is_zero(p, op->in[0]))
                v = xl_b_binary(&p->b, XL_OP_ADD, get_owed(p, op->in[0], rs[i], &later), v);
        }
        for (uint32_t k = 0; k < carried.over.n; k++)
            later.over.atom[later.over.n++] = carried.over.atom[k];
        later.combine = carried.over.n ? XL_OP_ADD : later.combine;
        const xl_axes *to =
            later.over.n ? spec_without(p, c->spec[op->out[i].id], t->rank, &later.over) : c->spec[op->out[i].id];
        if (!xl_spec_eq(rs[i], to, t->rank))
            v = xl_shard_move(c, &p->b, v, t, rs[i], to);
        set(p, op->out[i], v, xl_spec_copy(c, to, t->rank));
        p->owed[op->out[i].id] = later;
    }
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */
static void emit_op(part *p, const xl_op *op);

/* The ops of r into the builder's region, and its RETURN with operand i in spec[i], unreduced over owed[i] (NULL: as
 * the program's results say). manual: its operands go to ret instead. */
static void emit_ops(part *p, const xl_region *r, xl_axes *const *spec, const xl_owed *unreduced, xl_value *ret)
{
    for (uint32_t i = 0; i < r->nop && !p->err && !xl_b_failed(&p->b); i++) {
        const xl_op *op = r->op[i];
        p->b.loc = op->loc;
        if (op->code != XL_OP_RETURN) {
            emit_op(p, op);
            continue;
        }
        xl_value *v = xl_new(p->c->a, xl_value, op->nin);
        bool entry = r == p->c->f->body;
        for (uint32_t k = 0; k < op->nin; k++) {
            xl_owed owed = unreduced
                               ? unreduced[k]
                               : owed_by(p, entry && p->c->f->res_attr ? xl_shard_note(p->c->f->res_attr[k]) : NULL);
            xl_axes *to = spec && spec[k] ? spec[k] : whole_spec(p, type_of(p, op->in[k]));
            v[k] = get_owed(
                p, op->in[k],
                owed.over.n && to ? spec_without(p, to, xl_shard_rank(type_of(p, op->in[k])), &owed.over) : to, &owed);
            if (entry && p->c->f->res_attr)
                v[k] = xl_shard_renumber(p->c, &p->b, v[k], xl_shard_order(p->c, xl_shard_note(p->c->f->res_attr[k])),
                                         false);
        }
        if (ret)
            memcpy(ret, v, op->nin * sizeof *v);
        else
            xl_region_append(p->c->f, p->b.r, xl_op_new(p->c->f, NULL, XL_OP_RETURN, v, op->nin, NULL, 0, 0, op->loc));
        return;
    }
}

static void emit_region(part *p, const xl_op *op, xl_op *n, uint32_t k, xl_axes *const *args, xl_axes *const *rets,
                        const xl_owed *owed)
{
    const xl_region *r = op->region[k];
    xl_region *outer = p->b.r;
    if (p->nopen == sizeof p->open / sizeof *p->open) {
        fail(p, op, "regions are nested too deeply");
        return;
    }
    for (uint32_t i = 0; i < r->narg; i++) {
        const xl_type *t = type_of(p, r->arg[i]);
        set(p, r->arg[i],
            xl_region_add_arg(p->c->f, n->region[k], args && args[i] ? xl_shard_local(p->c, t, args[i]) : t,
                              p->c->f->val[r->arg[i].id].loc),
            args ? args[i] : whole_spec(p, t));
        if (args)
            p->owed[r->arg[i].id] = owed[i];
    }
    p->b.r = n->region[k];
    p->open[p->nopen++] = n->region[k];
    emit_ops(p, r, rets, rets ? owed : NULL, NULL);
    p->nopen--;
    p->b.r = outer;
}

/* What result k stays unreduced over: what every region returns there is so by a constraint, or came so. */
static xl_owed flow_owed(part *p, const xl_op *op, uint32_t k)
{
    bool loop = op->code == XL_OP_WHILE;
    xl_owed all = { 0 };
    for (uint32_t j = loop; j < op->nregion; j++) {
        xl_value v = xl_region_end(op->region[j])->in[k];
        const xl_op *def = p->c->f->val[v.id].def;
        bool note = def && (def->code == XL_OP_SDY_CONSTRAINT || def->code == XL_OP_SDY_RESHARD);
        xl_owed o = note                                       ? owed_by(p, XL_ATTR(def, SDY_CONSTRAINT, sharding))
                    : loop && v.id == op->region[j]->arg[k].id ? p->owed[op->in[k].id]
                                                               : p->owed[v.id];
        if (j > loop && (o.combine != all.combine || !xl_axes_eq(&o.over, &all.over)))
            return (xl_owed){ 0 };
        all = o;
    }
    return all;
}

static void emit_flow(part *p, const xl_op *op)
{
    xl_shard_ctx *c = p->c;
    xl_value *in = xl_new(c->a, xl_value, op->nin);
    const xl_type **out = xl_new(c->a, const xl_type *, op->nout);
    xl_axes **spec = xl_new(c->a, xl_axes *, op->nout);
    bool loop = op->code == XL_OP_WHILE;
    xl_owed *owed = xl_new(c->a, xl_owed, op->nout);
    for (uint32_t i = 0; i < op->nout; i++) {
        owed[i] = flow_owed(p, op, i);
        spec[i] = c->spec[op->out[i].id];
        if (owed[i].over.n && spec[i])
            spec[i] = spec_without(p, spec[i], xl_shard_rank(type_of(p, op->out[i])), &owed[i].over);
        out[i] = xl_shard_local(c, type_of(p, op->out[i]), spec[i]);
    }
    for (uint32_t i = 0; i < op->nin; i++)
        in[i] = loop && spec[i] ? get_owed(p, op->in[i], spec[i], &owed[i]) : get_whole(p, op->in[i]);
    xl_op *n = xl_op_new(c->f, NULL, (xl_opcode)op->code, in, op->nin, out, op->nout, op->nregion, op->loc);
    for (uint32_t k = 0; k < op->nregion; k++)
        emit_region(p, op, n, k, loop ? spec : NULL, loop && k == 0 ? NULL : spec, owed);
    xl_region_append(c->f, p->b.r, n);
    for (uint32_t i = 0; i < op->nout; i++) {
        set(p, op->out[i], n->out[i], spec[i]);
        p->owed[op->out[i].id] = owed[i];
    }
}

/* Its region is emitted in place: an argument is the operand in the split that in_shardings say, seen without the
 * manual atoms. */
static void emit_manual(part *p, const xl_op *op)
{
    xl_shard_ctx *c = p->c;
    const xl_region *r = op->region[0];
    const xl_attr *in_list = XL_ATTR(op, SDY_MANUAL, in_shardings), *out_list = XL_ATTR(op, SDY_MANUAL, out_shardings);
    for (uint32_t i = 0; i < r->narg; i++) {
        const xl_type *t = type_of(p, r->arg[i]), *outer = type_of(p, op->in[i]);
        xl_owed owed = owed_by(p, in_list && i < in_list->n ? in_list->item[i] : NULL);
        if (!xl_shard_rank(t)) {
            set(p, r->arg[i], get_owed(p, op->in[i], NULL, &owed), NULL);
            continue;
        }
        xl_axes *full = xl_spec_copy(c, NULL, t->rank), *inner = c->spec[r->arg[i].id];
        const xl_axes *skip = c->edge[op->mark + i].skip;
        for (uint32_t d = 0; d < t->rank; d++) {
            full[d] = skip[d];
            for (uint32_t k = 0; k < inner[d].n && full[d].n < XL_AXES_MAX; k++)
                full[d].atom[full[d].n++] = inner[d].atom[k];
        }
        if (xl_shard_local(c, outer, full) != xl_shard_local(c, t, inner)) {
            fail(p, op, "an argument of the manual region does not have the local shape of its operand");
            return;
        }
        set(p, r->arg[i],
            get_owed(p, op->in[i], owed.over.n ? spec_without(p, full, t->rank, &owed.over) : full, &owed), inner);
    }
    xl_value *ret = xl_new(c->a, xl_value, op->nout);
    xl_axes **want = xl_new(c->a, xl_axes *, op->nout);
    for (uint32_t i = 0; i < op->nout; i++) {
        const xl_type *t = type_of(p, op->out[i]);
        const xl_axes *skip = c->edge[op->mark + r->narg + i].skip;
        if (!xl_shard_rank(t))
            continue;
        want[i] = xl_spec_copy(c, NULL, t->rank);
        for (uint32_t d = 0; d < t->rank; d++)
            for (uint32_t k = skip[d].n; k < c->spec[op->out[i].id][d].n; k++)
                want[i][d].atom[want[i][d].n++] = c->spec[op->out[i].id][d].atom[k];
    }
    p->manual++;
    emit_ops(p, r, want, NULL, ret);
    p->manual--;
    for (uint32_t i = 0; i < op->nout && !p->err && !xl_b_failed(&p->b); i++) {
        if (xl_b_type(&p->b, ret[i]) != xl_shard_local(c, type_of(p, op->out[i]), c->spec[op->out[i].id])) {
            fail(p, op, "a result of the manual region does not have the local shape of its result");
            return;
        }
        set(p, op->out[i], ret[i], c->spec[op->out[i].id]);
        p->owed[op->out[i].id] = owed_by(p, out_list && i < out_list->n ? out_list->item[i] : NULL);
    }
}

/* The one device that an annotation names, or 0; -1: every device for itself. */
static int64_t device_of(const part *p, const xl_op *op)
{
    const xl_attr *a = xl_shard_note(op->extra);
    if (a && a->kind == XL_AT_ARRAY)
        a = a->n ? a->item[0] : NULL;
    if (p->manual)
        return -1;
    if (a && a->kind == XL_AT_STR) {
        xl_str s = xl_str_trim(a->str), head = XL_STR("{maximal device=");
        int64_t device;
        if (xl_str_starts(s, XL_STR("{manual")))
            return -1;
        return xl_str_starts(s, head) && s.n > head.n &&
                       xl_str_i64((xl_str){ s.p + head.n, s.n - head.n - 1 }, &device) && device >= 0 &&
                       device < p->c->n
                   ? device
                   : 0;
    }
    const xl_sharding *s = a && a->kind == XL_AT_SHARDING ? a->sharding : NULL;
    const xl_mesh *mesh = !s ? NULL : s->inlined ? s->inlined : xl_module_mesh(p->c->m, s->mesh);
    return mesh && mesh->naxis == 0 && mesh->nids == 1 && mesh->ids[0] >= 0 && mesh->ids[0] < p->c->n ? mesh->ids[0]
                                                                                                      : 0;
}

/* Outside of manual regions a callback is called once, with whole operands, for all devices (cpu/kernel/callback.c); a
 * partitioned one on each device with what that one has. */
static void emit_callback(part *p, const xl_op *op, bool partitioned)
{
    if (!partitioned) {
        int64_t device = device_of(p, op);
        emit_whole(p, op);
        if (device >= 0) {
            xl_op *n = p->b.r->op[p->b.r->nop - 1];
            n->extra = xl_dict_with(p->c->m, n->extra, XL_STR("xlane.device"), xl_attr_int(p->c->m, XL_I64, device));
        }
        return;
    }
    xl_value *in = xl_new(p->c->a, xl_value, op->nin);
    const xl_type **out = xl_new(p->c->a, const xl_type *, op->nout);
    for (uint32_t i = 0; i < op->nin; i++)
        in[i] = get(p, op->in[i], p->at[op->in[i].id]);
    for (uint32_t i = 0; i < op->nout; i++)
        out[i] = xl_out_type(p->c->f, op, i);
    xl_op *n = copy(p, op, in, out);
    xl_region_append(p->c->f, p->b.r, n);
    for (uint32_t i = 0; i < op->nout; i++)
        set(p, op->out[i], n->out[i], whole_spec(p, out[i]));
}

/* The ops of a region of another module. Its RETURN's operands go to ret; in nested regions it is an op like the
 * others. */
static void import_region(part *p, xl_region *to, const xl_func *g, const xl_region *from, xl_value *map, xl_value *ret)
{
    xl_func *f = p->c->f;
    xl_module *m = p->c->m;
    for (uint32_t i = 0; i < from->nop; i++) {
        const xl_op *op = from->op[i];
        xl_value *in = xl_new(p->c->a, xl_value, op->nin);
        const xl_type **out = xl_new(p->c->a, const xl_type *, op->nout);
        for (uint32_t k = 0; k < op->nin; k++)
            in[k] = map[op->in[k].id];
        for (uint32_t k = 0; k < op->nout; k++)
            out[k] = xl_type_intern(m, xl_out_type(g, op, k));
        if (op->code == XL_OP_RETURN && ret) {
            memcpy(ret, in, op->nin * sizeof *in);
            return;
        }
        xl_op *n = xl_op_new(f, NULL, (xl_opcode)op->code, in, op->nin, out, op->nout, op->nregion, p->b.loc);
        n->name = xl_str_dup(&m->arena, op->name);
        n->extra = op->extra ? xl_attr_import(m, op->extra) : NULL;
        for (uint32_t k = 0, w = xl_op_nattr((xl_opcode)op->code); k < w; k++)
            n->attr[k] = op->attr[k] ? xl_attr_import(m, op->attr[k]) : NULL;
        if (xl_ops[op->code].flags & XL_OP_COLLECTIVE)
            plain_groups(p, g->m, n);
        for (uint32_t k = 0; k < op->nout; k++)
            map[op->out[k].id] = n->out[k];
        for (uint32_t k = 0; k < op->nregion; k++) {
            for (uint32_t j = 0; j < op->region[k]->narg; j++)
                map[op->region[k]->arg[j].id] = xl_region_add_arg(
                    f, n->region[k], xl_type_intern(m, xl_value_type(g, op->region[k]->arg[j])), p->b.loc);
            import_region(p, n->region[k], g, op->region[k], map, NULL);
        }
        xl_region_append(f, to, n);
    }
}

/* What the frontend makes of its call takes the call's place. */
static xl_error *take_answer(part *p, const xl_op *op, xl_module *m, xl_str lines)
{
    xl_shard_ctx *c = p->c;
    const xl_func *g = xl_module_entry(m);
    const xl_op *end = g && g->body ? xl_region_end(g->body) : NULL;
    uint32_t closed, n = op->nin + op->nout;
    if (!end || g->body->narg != op->nin || end->nin != op->nout)
        return XL_ERR(INVALID, "the frontend's answer takes or gives another number of values");
    xl_axes **spec = xl_new(c->a, xl_axes *, n);
    xl_value *map = xl_new(c->a, xl_value, g->nval), *ret = xl_new(c->a, xl_value, op->nout);
    for (uint32_t i = 0; i < n; i++) {
        const xl_type *t = i < op->nin ? type_of(p, op->in[i]) : type_of(p, op->out[i - op->nin]);
        xl_str line = xl_str_cut(&lines, '\n');
        xl_error *err = xl_shard_read(c, xl_attr_str(c->m, line), t, true, &spec[i], &closed);
        if (err)
            return err;
        spec[i] = spec[i] ? spec[i] : whole_spec(p, t);
        const xl_type *have =
            xl_type_intern(c->m, i < op->nin ? xl_value_type(g, g->body->arg[i]) : xl_in_type(g, end, i - op->nin));
        if (have != xl_shard_local(c, t, spec[i]))
            return XL_ERR(INVALID, "the frontend's answer does not have the local shape of %s %u",
                          i < op->nin ? "operand" : "result", i < op->nin ? i : i - op->nin);
    }
    for (uint32_t i = 0; i < op->nin; i++)
        map[g->body->arg[i].id] = get(p, op->in[i], spec[i]);
    import_region(p, p->b.r, g, g->body, map, ret);
    for (uint32_t i = 0; i < op->nout; i++)
        set(p, op->out[i], ret[i], spec[op->nin + i]);
    return NULL;
}

static void emit_asked(part *p, const xl_op *op)
{
    xl_shard_ctx *c = p->c;
    const xl_shard_info info = { .natom = c->natom, .size = c->size, .stride = c->stride, .npartition = c->n };
    const xl_owed none = { 0 };
    uint32_t n = op->nin + op->nout;
    xl_buf *in = xl_new(c->a, xl_buf, n), lines = { 0 };
    xl_module *m = NULL;
    int64_t number = 0;
    if (!c->partition || !xl_str_i64(xl_op_str(op, XL_SLOT(CUSTOM_CALL, backend_config)), &number)) {
        fail(p, op, "only the process that traced it knows how it is partitioned: compile it there");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        xl_value v = i < op->nin ? op->in[i] : op->out[i - op->nin];
        xl_shard_proto(&info, i < op->nin ? p->at[v.id] : c->spec[v.id], xl_shard_rank(type_of(p, v)), &none, NULL,
                       &in[i]);
    }
    xl_error *err = c->partition(number, in, n, &m, &lines);
    if (!err)
        err = take_answer(p, op, m, xl_buf_view(&lines));
    for (uint32_t i = 0; i < n; i++)
        xl_buf_fini(&in[i]);
    xl_buf_fini(&lines);
    xl_module_free(m);
    char text[512];
    if (err && !p->err)
        p->err = xl_error_wrap(err, "partitioning %s", line_of(p, op, text, sizeof text));
    else
        xl_error_free(err);
}

static void emit_custom(part *p, const xl_op *op)
{
    xl_str name = xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name));
    xl_shard_ctx *c = p->c;
    if (op->nin == 1 && op->nout == 1 && xl_str_is(name, "Sharding")) {
        xl_axes *to = c->spec[op->out[0].id];
        set(p, op->out[0], get(p, op->in[0], to), to);
    } else if (op->nin == 1 && op->nout == 1 && xl_str_is(name, "SPMDFullToShardShape")) {
        xl_value v = get(p, op->in[0], c->spec[op->in[0].id]);
        if (xl_value_type(c->f, v) != type_of(p, op->out[0]))
            fail(p, op, "its result is not the local shape of its operand");
        set(p, op->out[0], v, whole_spec(p, type_of(p, op->out[0])));
    } else if (op->nin == 1 && op->nout == 1 && xl_str_is(name, "SPMDShardToFullShape")) {
        xl_value v = get_whole(p, op->in[0]);
        if (xl_value_type(c->f, v) != xl_shard_local(c, type_of(p, op->out[0]), c->spec[op->out[0].id]))
            fail(p, op, "its operand is not the local shape of its result");
        set(p, op->out[0], v, c->spec[op->out[0].id]);
    } else if (xl_str_is(name, "xlane_partition")) {
        emit_asked(p, op);
    } else if (op->nin == 1 && op->nout == 1 && xl_str_is(name, "xlane_inspect_sharding")) {
        xl_inspected in = { .manual = p->manual > 0,
                            .spec = p->at[op->in[0].id],
                            .rank = xl_shard_rank(type_of(p, op->in[0])),
                            .owed = p->owed[op->in[0].id] };
        if (!xl_str_i64(xl_op_str(op, XL_SLOT(CUSTOM_CALL, backend_config)), &in.number))
            fail(p, op, "its configuration is not a number");
        XL_PUSH(c->a, c->inspected, c->ninspected, c->capinspected, in);
        set(p, op->out[0], p->now[op->in[0].id], p->at[op->in[0].id]);
    } else if (xl_str_is(name, "xlane_python_callback") || xl_str_is(name, "xlane_partitioned_python_callback")) {
        emit_callback(p, op, xl_str_is(name, "xlane_partitioned_python_callback"));
    } else if (xl_str_starts(name, XL_STR("xla.sdy."))) {
        fail(p, op, "annotations in the form of an old export: export the program again");
    } else {
        xl_rule r;
        if (xl_shard_rule(c->f, op, c->a, &r))
            emit_split(p, op, &r);
        else
            emit_whole(p, op);
    }
}

static void emit_op(part *p, const xl_op *op)
{
    xl_rule r;
    switch (op->code) {
    case XL_OP_WHILE: case XL_OP_IF: case XL_OP_CASE: emit_flow(p, op); return;
    case XL_OP_SDY_MANUAL: emit_manual(p, op); return;
    case XL_OP_SDY_GROUP: return;
    case XL_OP_CUSTOM_CALL: emit_custom(p, op); return;
    case XL_OP_SDY_CONSTRAINT:
    case XL_OP_SDY_RESHARD:
    case XL_OP_SDY_BARRIER:
    case XL_OP_SDY_ALL_GATHER:
    case XL_OP_SDY_ALL_SLICE:
    case XL_OP_SDY_ALL_TO_ALL:
    case XL_OP_SDY_COLLECTIVE_PERMUTE: {
        xl_axes *to = p->c->spec[op->out[0].id];
        xl_owed owed = op->code == XL_OP_SDY_CONSTRAINT || op->code == XL_OP_SDY_RESHARD
                           ? owed_by(p, XL_ATTR(op, SDY_CONSTRAINT, sharding))
                           : (xl_owed){ 0 };
        if (owed.over.n) {
            to = to ? spec_without(p, to, xl_shard_rank(type_of(p, op->out[0])), &owed.over) : NULL;
            set(p, op->out[0], get_owed(p, op->in[0], to, &owed), to);
            p->owed[op->out[0].id] = owed;
            return;
        }
        set(p, op->out[0], get(p, op->in[0], to), to);
        return;
    }
    case XL_OP_OPTIMIZATION_BARRIER: {
        xl_value *in = xl_new(p->c->a, xl_value, op->nin);
        const xl_type **out = xl_new(p->c->a, const xl_type *, op->nin);
        for (uint32_t i = 0; i < op->nin; i++) {
            in[i] = p->now[op->in[i].id];
            out[i] = xl_value_type(p->c->f, in[i]);
        }
        xl_op *n = copy(p, op, in, out);
        xl_region_append(p->c->f, p->b.r, n);
        for (uint32_t i = 0; i < op->nout; i++)
            set(p, op->out[i], n->out[i], p->at[op->in[i].id]);
        for (uint32_t i = 0; i < op->nout; i++)
            p->owed[op->out[i].id] = p->owed[op->in[i].id];
        return;
    }
    case XL_OP_CONSTANT: case XL_OP_IOTA:
        if (is_source(p, op->out[0])) {
            set(p, op->out[0], source(p, op, p->c->spec[op->out[0].id]), p->c->spec[op->out[0].id]);
            return;
        }
        emit_whole(p, op);                                 /* a table: whole, and sliced where it is used */
        return;
    default: break;
    }
    if (op->nout && xl_shard_rule(p->c->f, op, p->c->a, &r))
        emit_split(p, op, &r);
    else
        emit_whole(p, op);
}

/* ---- what the program says --------------------------------------------------------------------------------------- */
static void edge(xl_shard_ctx *c, uint32_t a, uint32_t b, const xl_axes *skip)
{
    xl_shard_edge e = { .a = a, .b = b, .skip = skip };
    XL_PUSH(c->a, c->edge, c->nedge, c->capedge, e);
}

static void value(xl_shard_ctx *c, xl_value v)
{
    const xl_type *t = c->f->val[v.id].type;
    if (t->kind == XL_TY_TENSOR && !t->unranked && t->rank <= 32 && xl_type_static(t))
        c->spec[v.id] = xl_spec_copy(c, NULL, t->rank);
}

static xl_error *annotate(xl_shard_ctx *c, xl_value v, const xl_attr *a, bool strict)
{
    xl_axes *s;
    uint32_t closed;
    xl_error *err = xl_shard_read(c, a, c->f->val[v.id].type, strict, &s, &closed);
    if (!err && s && c->spec[v.id]) {
        c->spec[v.id] = s;
        c->closed[v.id] = closed;
    }
    if (!err && c->uneven) {
        const xl_op *op = c->f->val[v.id].def;
        int64_t bytes = 0;
        if (op && xl_type_bytes(xl_shard_local(c, c->f->val[v.id].type, s), &bytes))
            say_gathered(
                c, "uneven sharding", op->loc,
                "is of a size that its devices cannot share evenly, and is split only as far as they can; each holds",
                (double)bytes);
    }
    c->uneven = false;
    return err;
}

typedef struct { int64_t id; uint32_t value; } group;
typedef struct { group *p; uint32_t n, cap; } group_list;

/* Manual atoms of each dimension, in front of what else an in or out sharding has; the whole spec goes to the outer
 * value. */
static xl_error *border_of(xl_shard_ctx *c, const xl_op *op, const xl_attr *list, uint32_t i, xl_value outer,
                           xl_value inner, bool result)
{
    const xl_type *t = c->f->val[outer.id].type;
    xl_axes *skip = xl_spec_copy(c, NULL, xl_shard_rank(t)), *s = NULL, all = { 0 };
    const xl_attr *names = XL_ATTR(op, SDY_MANUAL, manual_axes),
                  *one = list && list->kind == XL_AT_ARRAY && i < list->n ? list->item[i] : NULL;
    uint32_t closed = 0;
    xl_error *err = xl_shard_read(c, one, t, true, &s, &closed);
    if (err)
        return err;
    for (uint32_t k = 0; one && one->kind == XL_AT_SHARDING && names && k < names->n; k++)
        if ((err = xl_shard_axis(c, one->sharding, names->item[k]->str, 0, 0, &all)))
            return err;
    for (uint32_t d = 0; s && d < t->rank; d++)
        for (uint32_t k = 0; k < s[d].n && memchr(all.atom, s[d].atom[k], all.n); k++)
            skip[d].atom[skip[d].n++] = s[d].atom[k];
    if (s && c->spec[inner.id])
        for (uint32_t d = 0; d < t->rank; d++) {
            for (uint32_t k = skip[d].n; k < s[d].n; k++)
                c->spec[inner.id][d].atom[c->spec[inner.id][d].n++] = s[d].atom[k];
            if (closed >> d & 1)
                c->closed[inner.id] |= 1u << d;
        }
    if (s && result) {
        c->spec[outer.id] = s;
        c->closed[outer.id] = closed;
    }
    edge(c, outer.id, inner.id, skip);
    c->edge[c->nedge - 1].manual = all;
    return NULL;
}

static xl_error *scan(xl_shard_ctx *c, const xl_region *r, group_list *groups)
{
    xl_error *err = NULL;
    for (uint32_t i = 0; i < r->narg; i++)
        value(c, r->arg[i]);
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nout; k++)
            value(c, op->out[k]);
        bool flow =
            op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE || op->code == XL_OP_SDY_MANUAL;
        for (uint32_t k = 0; flow && k < op->nregion; k++)
            XL_DO(scan(c, op->region[k], groups));
        const xl_attr *note = xl_shard_note(op->extra);
        for (uint32_t k = 0; note && op->code != XL_OP_CUSTOM_CALL && k < op->nout; k++)
            XL_DO(annotate(c, op->out[k], note->kind == XL_AT_ARRAY ? (k < note->n ? note->item[k] : NULL) : note,
                           false));
        switch (op->code) {
        case XL_OP_SDY_CONSTRAINT: case XL_OP_SDY_RESHARD:
            XL_DO(annotate(c, op->out[0], XL_ATTR(op, SDY_CONSTRAINT, sharding), false));
            edge(c, op->in[0].id, op->out[0].id, NULL);
            break;
        case XL_OP_SDY_ALL_GATHER:
            XL_DO(annotate(c, op->out[0], XL_ATTR(op, SDY_ALL_GATHER, out_sharding), false));
            break;
        case XL_OP_SDY_ALL_SLICE:
            XL_DO(annotate(c, op->out[0], XL_ATTR(op, SDY_ALL_SLICE, out_sharding), false));
            break;
        case XL_OP_SDY_ALL_TO_ALL:
            XL_DO(annotate(c, op->out[0], XL_ATTR(op, SDY_ALL_TO_ALL, out_sharding), false));
            break;
        case XL_OP_SDY_COLLECTIVE_PERMUTE:
            XL_DO(annotate(c, op->out[0], XL_ATTR(op, SDY_COLLECTIVE_PERMUTE, out_sharding), false));
            break;
        case XL_OP_SDY_GROUP: {
            int64_t id = xl_op_int(op, XL_SLOT(SDY_GROUP, group_id));
            bool found = false;
            c->grouped[op->in[0].id] = true;
            for (uint32_t k = 0; k < groups->n; k++)
                if (groups->p[k].id == id) {
                    edge(c, groups->p[k].value, op->in[0].id, NULL);
                    found = true;
                }
            group g = { id, op->in[0].id };
            if (!found)
                XL_PUSH(c->a, groups->p, groups->n, groups->cap, g);
            break;
        }
        case XL_OP_CUSTOM_CALL: {
            xl_str name = xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name));
            if (op->nin != 1 || op->nout != 1)
                break;
            if (xl_str_is(name, "Sharding") || xl_str_is(name, "SPMDShardToFullShape"))
                XL_DO(annotate(c, op->out[0], note, false));
            if (xl_str_is(name, "Sharding"))
                edge(c, op->in[0].id, op->out[0].id, NULL);
            break;
        }
        case XL_OP_OPTIMIZATION_BARRIER:
            for (uint32_t k = 0; k < op->nin; k++)
                edge(c, op->in[k].id, op->out[k].id, NULL);
            break;
        case XL_OP_WHILE:
            for (uint32_t k = 0; k < op->nout; k++) {
                edge(c, op->in[k].id, op->out[k].id, NULL);
                for (uint32_t j = 0; j < op->nregion; j++)
                    edge(c, op->region[j]->arg[k].id, op->out[k].id, NULL);
                edge(c, xl_region_end(op->region[1])->in[k].id, op->out[k].id, NULL);
            }
            break;
        case XL_OP_IF: case XL_OP_CASE:
            for (uint32_t j = 0; j < op->nregion; j++)
                for (uint32_t k = 0; k < op->nout; k++)
                    edge(c, xl_region_end(op->region[j])->in[k].id, op->out[k].id, NULL);
            break;
        case XL_OP_SDY_MANUAL:
            op->mark = c->nedge;                           /* its edges hold the manual atoms */
            for (uint32_t k = 0; k < op->nin + op->nout; k++) {
                const xl_attr *list = k < op->nin ? XL_ATTR(op, SDY_MANUAL, in_shardings)
                                                  : XL_ATTR(op, SDY_MANUAL, out_shardings);
                uint32_t at = k < op->nin ? k : k - op->nin;
                if (list && list->kind == XL_AT_ARRAY && at < list->n && xl_shard_order(c, list->item[at])) {
                    err = XL_ERR(UNIMPLEMENTED, "a manual region over a mesh that numbers its devices in an order that "
                                                "is no transposition of 0, 1, 2, ...");
                    goto out;
                }
            }
            for (uint32_t k = 0; k < op->nin; k++)
                XL_DO(border_of(c, op, XL_ATTR(op, SDY_MANUAL, in_shardings), k, op->in[k], op->region[0]->arg[k],
                                false));
            for (uint32_t k = 0; k < op->nout; k++)
                XL_DO(border_of(c, op, XL_ATTR(op, SDY_MANUAL, out_shardings), k, op->out[k],
                                xl_region_end(op->region[0])->in[k], true));
            break;
        default: break;
        }
    }
out:
    return err;
}

/* Values with one reader, which makes them unreduced: what they are parts of need not be made. */
static void find_later(part *p, const xl_region *r, uint32_t *uses)
{
    for (uint32_t i = r->nop; i-- > 0; ) {
        const xl_op *op = r->op[i];
        bool note = op->code == XL_OP_SDY_CONSTRAINT || op->code == XL_OP_SDY_RESHARD;
        for (uint32_t k = 0; k < op->nregion; k++)
            find_later(p, op->region[k], uses);
        for (uint32_t k = 0; k < op->nin; k++)
            p->later[op->in[k].id] =
                !uses[op->in[k].id]++ && note ? owed_by(p, XL_ATTR(op, SDY_CONSTRAINT, sharding)) : (xl_owed){ 0 };
    }
}

xl_error *xl_shard(xl_module *m, int64_t npartition, int64_t nreplica, xl_shard_info *info)
{
    xl_func *f = xl_module_entry(m);
    xl_shard_ctx c = {
        .m = m, .f = f, .a = &m->arena, .n = npartition, .nreplica = nreplica, .partition = info->partition
    };
    xl_op *end = xl_region_end(f->body);
    xl_error *err = NULL;
    group_list groups = { 0 };
    part p = { .c = &c, .b = xl_b_at(f, xl_region_new(f, NULL)) };
    uint32_t narg = f->body->narg, nout = end->nin;
    XL_DO(xl_shard_atoms(&c));
    XL_DO(xl_shard_divide(&c));
    c.nval = f->nval;
    c.nresult = nout;
    c.spec = xl_new(c.a, xl_axes *, (size_t)f->nval + nout);
    c.closed = xl_new(c.a, uint32_t, (size_t)f->nval + nout);
    c.grouped = xl_new(c.a, bool, (size_t)f->nval);
    XL_DO(scan(&c, f->body, &groups));
    for (uint32_t i = 0; i < narg; i++) {
        xl_value v = f->body->arg[i];
        c.closed[v.id] = UINT32_MAX;                       /* without a word it lies whole on every device */
        const xl_attr *note = xl_shard_note(f->arg_attr ? f->arg_attr[i] : NULL);
        xl_str label = xl_loc_label(m, f->val[v.id].loc);
        XL_TRY(annotate(&c, v, note, true), "argument %u (%.*s)", i, XL_FMT(label));
        bool chosen = !note && i < info->nloose && info->loose[i] && c.grouped[v.id]; /* split as its group is */
        c.closed[v.id] = chosen ? 0 : UINT32_MAX;
    }
    for (uint32_t i = 0; i < nout; i++) {
        const xl_type *t = xl_in_type(f, end, i);
        uint32_t id = c.nval + i;
        xl_axes *s = NULL;
        const xl_attr *note = xl_shard_note(f->res_attr ? f->res_attr[i] : NULL);
        if (!c.spec[end->in[i].id])
            continue;
        XL_TRY(xl_shard_read(&c, note, t, true, &s, &c.closed[id]), "result %u", i);
        c.spec[id] = s ? s : xl_spec_copy(&c, NULL, t->rank);
        edge(&c, end->in[i].id, id, NULL);
    }
    xl_shard_propagate(&c);
    p.now = xl_new(c.a, xl_value, c.nval);
    p.at = xl_new(c.a, xl_axes *, c.nval);
    p.cache = xl_new(c.a, kept *, c.nval);
    p.owed = xl_new(c.a, xl_owed, c.nval);
    p.later = xl_new(c.a, xl_owed, c.nval);
    find_later(&p, f->body, xl_new(c.a, uint32_t, c.nval));
    p.open[p.nopen++] = p.b.r;
    info->arg = xl_new(c.a, xl_axes *, narg);
    info->arg_owed = xl_new(c.a, xl_owed, narg);
    info->out_owed = xl_new(c.a, xl_owed, nout);
    info->arg_order = xl_new(c.a, const int64_t *, narg);
    info->out_order = xl_new(c.a, const int64_t *, nout);
    for (uint32_t i = 0; i < nout; i++) {
        info->out_owed[i] = owed_by(&p, xl_shard_note(f->res_attr ? f->res_attr[i] : NULL));
        info->out_order[i] = xl_shard_order(&c, xl_shard_note(f->res_attr ? f->res_attr[i] : NULL));
    }
    for (uint32_t i = 0; i < narg; i++) {
        xl_value v = f->body->arg[i];
        info->arg[i] = c.spec[v.id];
        set(&p, v, xl_region_add_arg(f, p.b.r, xl_shard_local(&c, f->val[v.id].type, c.spec[v.id]), f->val[v.id].loc),
            c.spec[v.id]);
        p.owed[v.id] = owed_by(&p, xl_shard_note(f->arg_attr ? f->arg_attr[i] : NULL));
        info->arg_owed[i] = p.owed[v.id];
        info->arg_order[i] = xl_shard_order(&c, xl_shard_note(f->arg_attr ? f->arg_attr[i] : NULL));
    }
    for (uint32_t i = 0; i < narg; i++) {
        xl_value v = f->body->arg[i];
        p.now[v.id] = xl_shard_renumber(&c, &p.b, p.now[v.id], info->arg_order[i], true);
    }
    info->out = c.spec + c.nval;
    emit_ops(&p, f->body, info->out, NULL, NULL);
    XL_DO(p.err);
    XL_DO(xl_b_error(&p.b));
    f->body = p.b.r;
    f->body->owner = NULL;
    xl_func_set_type(f);
    info->traffic = xl_shard_combine(f, npartition * nreplica);
    info->narg = narg;
    info->nout = nout;
    info->natom = c.natom;
    info->size = c.size;
    info->stride = c.stride;
    info->npartition = c.n;
    info->gathered = c.gathered;
    info->ngathered = c.ngathered;
    info->inspected = c.inspected;
    info->ninspected = c.ninspected;
    XL_TRY(xl_verify(m), "the partitioned program");
out:
    return err;
}
