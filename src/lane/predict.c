/* Memory is predicted region by region. Ops that execute together form a unit: one op, or, if the device fuses,
 * elementwise ops and reductions that read one another point by point or row by row. Such ops are in the same unit if
 * the longest path from the start of the region to each of them passes the same number of other ops (products, gathers,
 * loops): then none waits for another through something outside the unit, and the order is preserved.
 * A unit has the position of its last member. Memory is needed for values that another unit reads; reshapes,
 * broadcasts, slices and transposes are looked through. A value lives from its unit to the last unit that reads it. The
 * regions of an op are alternatives or iterations of one loop, so the op's peak is the maximum over its regions, and
 * values that a region uses from outside live as long as the op. */
#include "lane/predict.h"

#include <stdlib.h>

#include "ir/text/print.h"
#include "ir/read.h"
#include "pass/pass.h"
#include "pass/shard.h"
#include "pjrt/options.h"

const char *xl_predict_word(xl_predict_rule r) { return r == XL_RULE_PLAIN ? "plain" : "fused"; }

enum { NOWHERE = UINT32_MAX };
typedef struct {
    xl_arena *a;
    const xl_func *f;
    xl_predict_rule rule;
    uint32_t *born, *last;  /* per value: positions in its own region; last NOWHERE: nobody reads it */
    uint32_t *uses;         /* per value: how many ops read it */
    bool *held;             /* takes memory of its own */
    bool *placed;           /* its memory is somebody else's: a result's, a loop's */
    int64_t constants;
} walk;
typedef struct {
    uint32_t level, into, at;
} unit; /* per op of a region: level; the op it is united with; where it runs */

static int64_t bytes_of(const walk *w, xl_value v)
{
    int64_t b = 0;
    const xl_type *t = xl_value_type(w->f, v);
    if (t->kind != XL_TY_TENSOR || !xl_type_bytes(t, &b))
        return 0;
    return (b + 63) / 64 * 64;
}

static int64_t count_of(const walk *w, xl_value v)
{
    int64_t n = 0;
    return xl_type_count(xl_value_type(w->f, v), &n) ? n : 0;
}

static bool is_light(const xl_op *op) { return (xl_ops[op->code].flags & XL_OP_ELEMWISE) || op->code == XL_OP_REDUCE; }

/* Read through, never made, by whoever can. */
static bool is_view(const xl_op *op)
{
    switch (op->code) {
    case XL_OP_RESHAPE:
    case XL_OP_BROADCAST_IN_DIM:
    case XL_OP_IOTA:
    case XL_OP_SLICE:
    case XL_OP_TRANSPOSE:
    case XL_OP_CONSTANT: return true;
    default:
        return false;
    }
}

static bool reads_through(const walk *w, const xl_op *op)
{
    return w->rule == XL_RULE_FUSED && (is_light(op) || op->code == XL_OP_DOT_GENERAL);
}

/* Works where an operand lies that ends with it. */
static bool in_place(const xl_op *op)
{
    return is_light(op) || op->code == XL_OP_OPTIMIZATION_BARRIER || op->code == XL_OP_WHILE ||
           op->code == XL_OP_RESHAPE || op->code == XL_OP_DYNAMIC_UPDATE_SLICE || op->code == XL_OP_SCATTER;
}

/* The value whose memory is read where v is. */
static xl_value base_of(const walk *w, xl_value v)
{
    for (const xl_op *def = w->f->val[v.id].def; def && is_view(def) && def->nin; def = w->f->val[v.id].def)
        v = def->in[0];
    return v;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */
static uint32_t root(const unit *u, uint32_t i)
{
    while (u[i].into != i)
        i = u[i].into;
    return i;
}

/* Does op read what `def` makes point by point, or a row of it per row? Rows are the leading dimensions. */
static bool joins(const walk *w, const xl_op *op, xl_value in, const xl_op **def)
{
    int64_t n = op->code == XL_OP_REDUCE ? count_of(w, op->in[0]) : count_of(w, op->out[0]);
    bool rows = false;
    for (*def = w->f->val[in.id].def; *def && is_view(*def); *def = w->f->val[in.id].def) {
        if ((*def)->code == XL_OP_BROADCAST_IN_DIM) {
            xl_dims d = xl_op_dims(*def, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions));
            for (size_t k = 0; k < d.n; k++)
                if (d.p[k] != (int64_t)k && xl_in_type(w->f, *def, 0)->dims[k] != 1)
                    return false;
            rows = true;
        } else if ((*def)->code != XL_OP_RESHAPE) {
            return false;
        }
        in = (*def)->in[0];
    }
    if (!*def || !is_light(*def))
        return false;
    int64_t made = count_of(w, in);
    return made > 1 && (made == n || (rows && n % made == 0));
}

static uint32_t level_of(const unit *u, const xl_region *r, const walk *w, const xl_op *op)
{
    uint32_t level = 0;
    for (uint32_t k = 0; k < op->nin; k++) {
        const xl_op *def = w->f->val[op->in[k].id].def;
        if (!def || def->parent != r)
            continue;
        uint32_t l = u[def->mark].level + (is_light(def) || is_view(def) ? 0 : 1);
        level = l > level ? l : level;
    }
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++) {
            uint32_t l = level_of(u, r, w, op->region[k]->op[i]);
            level = l > level ? l : level;
        }
    return level;
}

/* Sums over the rows, or over everything, are there when the unit has ended: its own members cannot read them. */
static bool ends(const walk *w, const xl_op *def)
{
    if (def->code != XL_OP_REDUCE)
        return false;
    xl_dims d = xl_op_dims(def, XL_SLOT(REDUCE, dimensions));
    uint32_t rank = xl_in_type(w->f, def, 0)->rank;
    for (size_t k = 0; k < d.n; k++)
        if (d.p[k] < (int64_t)(rank - d.n))
            return true;
    return d.n == rank;
}

/* A unit runs when something first needs it, at the latest where its last member stood. */
typedef struct { const walk *w; const xl_region *r; unit *u; uint32_t *next, *first, now; } orderer;

static void run_unit(orderer *o, uint32_t i);

static void run_inputs(orderer *o, const xl_op *op, uint32_t own)
{
    for (uint32_t k = 0; k < op->nin; k++) {
        const xl_op *def = o->w->f->val[op->in[k].id].def;
        while (def && def->parent == o->r && is_view(def) && def->nin)
            def = o->w->f->val[def->in[0].id].def;
        if (def && def->parent == o->r && root(o->u, def->mark) != own)
            run_unit(o, root(o->u, def->mark));
    }
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++)
            run_inputs(o, op->region[k]->op[i], own);
}

static void run_unit(orderer *o, uint32_t i)
{
    if (o->u[i].at != NOWHERE)
        return;
    o->u[i].at = 0;                                         /* at work */
    for (uint32_t k = o->first[i]; k != NOWHERE; k = o->next[k])
        run_inputs(o, o->r->op[k], i);
    o->u[i].at = o->now++;
}

static void put_in_order(const walk *w, const xl_region *r, unit *u)
{
    orderer o = {
        .w = w, .r = r, .u = u, .next = xl_new(w->a, uint32_t, r->nop + 1), .first = xl_new(w->a, uint32_t, r->nop + 1)
    };
    memset(o.first, 0xff, r->nop * sizeof *o.first);
    for (uint32_t i = r->nop; i-- > 0;) {
        uint32_t at = root(u, i);
        o.next[i] = o.first[at];
        o.first[at] = i;
    }
    for (uint32_t i = 0; i < r->nop; i++)
        if (u[i].into == i && !(is_view(r->op[i]) && w->rule == XL_RULE_FUSED && i + 1 < r->nop))
            run_unit(&o, i);
    for (uint32_t i = 0; i < r->nop; i++)
        if (u[i].into == i && u[i].at == NOWHERE)           /* views: where what they show is made */
            run_unit(&o, i);
    for (uint32_t i = 0; i < r->nop; i++)
        u[i].at = u[root(u, i)].at;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *def = is_view(r->op[i]) && r->op[i]->nin ? w->f->val[r->op[i]->in[0].id].def : NULL;
        if (w->rule == XL_RULE_FUSED && is_view(r->op[i]))
            u[i].at = def && def->parent == r ? u[def->mark].at : 0;
    }
}

static unit *find_units(walk *w, const xl_region *r)
{
    unit *u = xl_new(w->a, unit, r->nop + 1);
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        op->mark = i;
        u[i] = (unit){ .into = i, .at = NOWHERE };
        u[i].level = level_of(u, r, w, op);
        for (uint32_t k = 0; w->rule == XL_RULE_FUSED && is_light(op) && k < op->nin; k++) {
            const xl_op *def;
            if (!joins(w, op, op->in[k], &def) || def->parent != r || ends(w, def) || u[def->mark].level != u[i].level)
                continue;
            u[root(u, def->mark)].into = i;                 /* the last member stands for all */
        }
    }
    put_in_order(w, r, u);
    return u;
}

/* ---- what lives, and how long ------------------------------------------------------------------------------------ */
static void read_by(walk *w, const xl_region *r, xl_value v, uint32_t at)
{
    const xl_val *x = &w->f->val[v.id];
    if ((x->def ? x->def->parent : x->region) == r && (w->last[v.id] == NOWHERE || w->last[v.id] < at))
        w->last[v.id] = at;
}

static void count_uses(walk *w, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        for (uint32_t k = 0; k < r->op[i]->nin && !is_view(r->op[i]); k++)
            w->uses[base_of(w, r->op[i]->in[k]).id]++;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            count_uses(w, r->op[i]->region[k]);
    }
}

/* Regions inside read from this one as long as their op runs. */
static void read_inside(walk *w, const xl_region *r, const xl_op *op, uint32_t at)
{
    for (uint32_t k = 0; k < op->nregion; k++)
        for (uint32_t i = 0; i < op->region[k]->nop; i++) {
            const xl_op *x = op->region[k]->op[i];
            for (uint32_t n = 0; n < x->nin; n++) {
                xl_value v = reads_through(w, x) ? base_of(w, x->in[n]) : x->in[n];
                const xl_val *y = &w->f->val[v.id];
                if ((y->def ? y->def->parent : y->region) != r)
                    continue;
                w->held[v.id] = true;
                read_by(w, r, v, at);
            }
            read_inside(w, r, x, at);
        }
}

/* Backwards: a value that is not held is made where it is read, and its operands are read there. */
static void find_lives(walk *w, const xl_region *r, const unit *u)
{
    for (uint32_t i = r->nop; i-- > 0;) {
        const xl_op *op = r->op[i];
        uint32_t at = u[i].at;
        bool light = w->rule == XL_RULE_FUSED && (is_light(op) || is_view(op)), made = false;
        for (uint32_t k = 0; k < op->nout; k++) {
            w->born[op->out[k].id] = at;
            made = made || w->held[op->out[k].id];
        }
        if (light && !made && op->nout && w->last[op->out[0].id] != NOWHERE && w->last[op->out[0].id] > at)
            at = w->last[op->out[0].id];
        bool alias = op->code == XL_OP_RESHAPE && w->rule == XL_RULE_FUSED;  /* another shape of the same memory */
        for (uint32_t k = 0; k < op->nin; k++) {
            xl_value v = op->in[k];
            const xl_op *def = w->f->val[v.id].def;
            read_by(w, r, v,
                    alias && w->last[op->out[0].id] != NOWHERE && w->last[op->out[0].id] > at ? w->last[op->out[0].id]
                                                                                              : at);
            if (!def || def->parent != r || def->code == XL_OP_CONSTANT)
                continue;
            if (light && is_view(op) && !made)
                continue;                               /* whoever reads it decides */
            xl_value b = reads_through(w, op) ? base_of(w, v) : v;
            const xl_op *from = w->f->val[b.id].def;
            if (!from || from->parent != r ||
                (b.id != v.id && (from->code == XL_OP_IOTA || from->code == XL_OP_CONSTANT)))
                continue;
            if (reads_through(w, op) && from->code == XL_OP_IOTA)
                continue;
            bool same = w->rule == XL_RULE_FUSED && is_light(from) && is_light(op) && root(u, from->mark) == root(u, i);
            bool once = w->rule == XL_RULE_FUSED && is_light(from) && is_light(op) && from->code != XL_OP_REDUCE &&
                        w->uses[b.id] == 1;
            if (same || once)
                continue;
            w->held[b.id] = true;
            read_by(w, r, b, at);
        }
        read_inside(w, r, op, u[i].at);
    }
}

/* ---- the sum ----------------------------------------------------------------------------------------------------- */
static int64_t peak(walk *w, const xl_region *r);

static int64_t inside(walk *w, const xl_op *op)
{
    int64_t most = 0;
    if (op->code != XL_OP_WHILE && op->code != XL_OP_IF && op->code != XL_OP_CASE)
        return 0;                                       /* scalars at work */
    for (uint32_t k = 0; k < op->nregion; k++) {
        int64_t p = peak(w, op->region[k]);
        most = p > most ? p : most;
    }
    return most;
}

/* A result may lie where `over` lies (a loop's carried value, a donated argument) once that is read for the
 * last time. */
static void place_over(walk *w, xl_value result, xl_value over)
{
    const xl_op *def = w->f->val[result.id].def;
    if (!def || bytes_of(w, result) != bytes_of(w, over))
        return;
    uint32_t read = w->last[over.id], made = w->born[result.id];
    w->placed[result.id] =
        read == NOWHERE || read < made || (read == made && in_place(def)) || base_of(w, result).id == over.id;
}

typedef struct { uint32_t at; int64_t bytes; } span;
static int by_place(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int64_t peak(walk *w, const xl_region *r)
{
    const unit *u = find_units(w, r);
    find_lives(w, r, u);
    const xl_op *end = xl_region_end(r);
    for (uint32_t k = 0; r->owner && r->owner->code == XL_OP_WHILE && end && k < end->nin && k < r->narg; k++)
        place_over(w, end->in[k], r->arg[k]);
    int64_t *born = xl_new(w->a, int64_t, r->nop + 1), *gone = xl_new(w->a, int64_t, r->nop + 1),
            *within = xl_new(w->a, int64_t, r->nop + 1);
    int64_t live = 0, most = 0;
    size_t nbirth = 0, ndeath = 0, cap = 0, room = 0;
    span *birth = NULL, *death = NULL;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        uint32_t at = u[i].at;
        if (op->code == XL_OP_CONSTANT) {
            const xl_attr *v = XL_ATTR(op, CONSTANT, value);
            w->constants += v && v->kind == XL_AT_DENSE && !v->splat ? bytes_of(w, op->out[0]) : 0;
            continue;
        }
        within[at] += inside(w, op);
        for (uint32_t k = 0; k < op->nout; k++) {
            xl_value v = op->out[k];
            bool alias = op->code == XL_OP_RESHAPE && w->rule == XL_RULE_FUSED;
            if (!w->held[v.id] || w->placed[v.id] || alias)
                continue;
            int64_t b = bytes_of(w, v);
            uint32_t until = w->last[v.id] == NOWHERE ? at : w->last[v.id];
            born[at] += b;
            gone[until] += b;
            XL_PUSH(w->a, death, ndeath, room, ((span){ until, b }));
            if (in_place(op))
                XL_PUSH(w->a, birth, nbirth, cap, ((span){ at, b }));
        }
    }
    /* What is born may lie where something of its size ends. */
    int64_t *kept = xl_new(w->a, int64_t, r->nop + 1);
    if (nbirth && ndeath) {
        qsort(birth, nbirth, sizeof *birth, by_place);
        qsort(death, ndeath, sizeof *death, by_place);
    }
    for (size_t i = 0, k = 0; i < nbirth && k < ndeath;) {
        int order = by_place(&birth[i], &death[k]);
        if (!order)
            kept[birth[i].at] += birth[i].bytes;
        i += order <= 0;
        k += order >= 0;
    }
    for (uint32_t i = 0; i < r->nop; i++) {
        int64_t now = live + born[i] - kept[i] + within[i];
        most = now > most ? now : most;
        live += born[i] - gone[i];
    }
    return most;
}

static bool donated(const xl_func *f, uint32_t i)
{
    const xl_attr *d = f->arg_attr ? f->arg_attr[i] : NULL;
    return d && (xl_dict_get(d, XL_STR("tf.aliasing_output")) || xl_dict_get(d, XL_STR("jax.buffer_donor")));
}

static int64_t devices_of(const xl_module *m)
{
    int64_t n = 1;
    for (uint32_t i = 0; m->nmesh && i < m->mesh[0].mesh->naxis; i++)
        n *= m->mesh[0].mesh->axis[i].size;
    return n;
}

xl_error *xl_predict(const xl_module *original, xl_predict_rule rule, xl_prediction *out)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_buf text = { 0 };
    xl_module *m = NULL;
    *out = (xl_prediction){ 0 };
    xl_print_module(original, NULL, &text);
    if (text.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for a copy of the program");
        goto out;
    }
    XL_TRY(xl_read_text(xl_buf_view(&text), NULL, &m), "predicting memory");
    if (devices_of(m) > 1) {                                /* a program for several devices: what each of them runs */
        xl_shard_info shards;
        XL_TRY(xl_pass_inline(m, NULL), "predicting memory");
        XL_TRY(xl_shard(m, devices_of(m), 1, &shards), "predicting memory");
    }
    XL_TRY(xl_pipeline_run(m, NULL), "predicting memory");
    const xl_func *f = xl_module_entry(m);
    if (!f || !f->body) {
        err = XL_ERR(INVALID, "the program has no entry function");
        goto out;
    }
    walk w = { .a = &a,
               .f = f,
               .rule = rule,
               .born = xl_new(&a, uint32_t, f->nval + 1),
               .last = xl_new(&a, uint32_t, f->nval + 1),
               .uses = xl_new(&a, uint32_t, f->nval + 1),
               .held = xl_new(&a, bool, f->nval + 1),
               .placed = xl_new(&a, bool, f->nval + 1) };
    memset(w.last, 0xff, f->nval * sizeof *w.last);
    count_uses(&w, f->body);
    for (uint32_t i = 0; i < f->body->narg; i++)
        out->arguments += bytes_of(&w, f->body->arg[i]);
    const xl_op *end = xl_region_end(f->body);
    bool *taken = xl_new(&a, bool, f->body->narg + 1);
    for (uint32_t k = 0; end && k < end->nin; k++) {
        int64_t b = bytes_of(&w, end->in[k]);
        out->outputs += b;
        for (uint32_t i = 0; i < f->body->narg; i++)
            if (!taken[i] && donated(f, i) && bytes_of(&w, f->body->arg[i]) == b) {
                taken[i] = true;
                out->aliased += b;
                break;
            }
    }
    /* Results are written where they are wanted: their memory is the outputs', not temporary. */
    for (uint32_t k = 0; end && k < end->nin; k++)
        w.placed[end->in[k].id] = true;
    out->temporary = peak(&w, f->body);
    out->constants = w.constants;
    out->total = out->arguments + out->outputs - out->aliased + out->temporary + out->constants;
out:
    xl_module_free(m);
    xl_buf_fini(&text);
    xl_arena_fini(&a);
    return err;
}

static double kept(const xl_prediction *p) { return (double)(p->temporary + p->constants); }

xl_predict_scale xl_predict_compare(const xl_prediction *p, const xl_program_memory *compiled)
{
    double said = kept(p), is = (double)compiled->temporary;
    xl_predict_scale s = { .temporary = 1, .code = compiled->code > 0 ? compiled->code : 0 };
    if (said > 0 && is > said)
        s.base = (int64_t)(is - said);
    else if (said > 0 && is > 0)
        s.temporary = is / said;
    return s;
}

xl_predict_scale xl_predict_line(const xl_prediction p[2], const xl_program_memory compiled[2])
{
    xl_predict_scale s = xl_predict_compare(&p[1], &compiled[1]);
    double said = kept(&p[1]) - kept(&p[0]), is = (double)(compiled[1].temporary - compiled[0].temporary);
    if (said <= 0 || compiled[0].temporary <= 0)
        return s;
    double slope = is / said, least = s.temporary / 2, most = s.temporary * 2;
    slope = slope < least ? least : slope > most ? most : slope;
    s.base = compiled[1].temporary - (int64_t)(slope * kept(&p[1]));
    s.temporary = slope;
    return s;
}

void xl_predict_apply(xl_prediction *p, const xl_predict_scale *s)
{
    int64_t all = s->base + (int64_t)(kept(p) * s->temporary);
    p->constants = (int64_t)((double)p->constants * s->temporary);
    p->temporary = all > p->constants ? all - p->constants : 0;
    p->total = p->arguments + p->outputs - p->aliased + p->temporary + p->constants + s->code;
}

xl_error *xl_predict_measure(xl_client *c, xl_predict_rule *out)
{
    /* Two branches of elementwise work that meet: written to memory they need a quarter of a million numbers
     * at least. */
    static const char text[] =
        "func.func @main(%x: tensor<262144xf32>) -> tensor<262144xf32> {\n"
        "  %a = stablehlo.exponential %x : tensor<262144xf32>\n  %b = stablehlo.cosine %x : tensor<262144xf32>\n"
        "  %c = stablehlo.multiply %a, %x : tensor<262144xf32>\n  %d = stablehlo.add %b, %x : tensor<262144xf32>\n"
        "  %e = stablehlo.multiply %c, %d : tensor<262144xf32>\n  %f = stablehlo.subtract %e, %a : tensor<262144xf32>\n"
        "  %g = stablehlo.add %f, %b : tensor<262144xf32>\n  return %g : tensor<262144xf32>\n}\n";
    xl_error *err = NULL;
    xl_program *p = NULL;
    xl_buf opts = { 0 };
    xl_program_memory m;
    *out = XL_RULE_FUSED;
    xl_options_build(&opts, &(xl_options){ .replicas = 1, .partitions = 1 });
    XL_TRY(xl_program_compile(c, XL_STR(text), XL_FORMAT_MLIR, xl_buf_view(&opts), &p),
           "measuring what the device keeps in memory");
    XL_TRY(xl_executable_memory(xl_program_executable(p), &m), "measuring what the device keeps in memory");
    *out = m.temporary >= 262144 * 4 ? XL_RULE_PLAIN : XL_RULE_FUSED;
out:
    xl_program_free(p);
    xl_buf_fini(&opts);
    return err;
}
