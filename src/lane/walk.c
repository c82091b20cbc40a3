#include "lane/walk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/read.h"
#include "ir/scalar.h"
#include "ir/text/print.h"
#include "ir/verify.h"
#include "pass/pass.h"
#include "pjrt/options.h"

typedef xl_walk_value value;

typedef struct {
    const xl_op *op;
    xl_value *in;                                          /* operands, then what the regions use from outside */
    uint32_t nin;
    xl_played played, rival;
    bool tried, elsewhere, rival_tried;
    char *refused;                                         /* the rival's error */
} leaf;

struct xl_walk {
    xl_arena *a;
    const xl_play *p, *other;
    xl_module *m;
    xl_func *f;
    uint32_t ndevice;
    value **val;                                           /* by value id: what it is now */
    uint32_t *last;                                        /* by value id: see last_uses */
    value **result;
    size_t nresult;
    xl_walk_step *step;
    size_t nstep, capstep;
    leaf *leaf;                                            /* by op->mark - 1 */
    uint32_t nleaf, capleaf;
    xl_walk_look look;
    const xl_walk_rival *rival;
    xl_walk_apart *apart;
    size_t elsewhere;
    xl_str first_elsewhere;
    int64_t *earliest[2];                                  /* by step, of NaN and of anything not finite; see there */
};

enum { TURN_MAX = 1 << 24, STEP_MAX = 1 << 24 };

/* ---- values ----------------------------------------------------------------------------------------------------- */
static void unref(xl_walk *w, value *v)
{
    if (!v || --v->ref)
        return;
    xl_play_drop(v->part, w->ndevice);
    free(v->part);
    free(v->stat);
    free(v);
}

static value *hold(value *v)
{
    v->ref++;
    return v;
}

/* Bytes go when the program has no use for the value any more and no question can be about it. */
static void unneed(xl_walk *w, value *v)
{
    if (--v->live)
        return;
    for (uint32_t d = 0; d < w->ndevice; d++) {
        free((void *)v->part[d].bytes);
        v->part[d].bytes = NULL;
    }
}

/* Takes the parts over. */
static xl_error *value_of(xl_walk *w, xl_cap_part *part, int64_t by, uint32_t out, value **v)
{
    value *x = calloc(1, sizeof *x);
    *v = x;
    if (x) {
        x->part = calloc(w->ndevice, sizeof *x->part);
        x->stat = calloc(w->ndevice, sizeof *x->stat);
    }
    if (!x || !x->part || !x->stat)
        return XL_ERR(EXHAUSTED, "out of memory");
    x->ref = 1;
    x->by = by;
    x->out = out;
    for (uint32_t d = 0; d < w->ndevice; d++) {
        x->part[d] = part[d];
        x->stat[d] = xl_finite_of(part[d].elem, part[d].bytes, part[d].size);
    }
    return NULL;
}

static xl_error *copy_part(const xl_cap_part *from, xl_cap_part *to)
{
    int64_t *d = malloc((from->dims.n + 1) * sizeof *d);
    char *b = malloc(from->size + 1);
    if (!d || !b) {
        free(d);
        free(b);
        return XL_ERR(EXHAUSTED, "no memory for %llu bytes", (unsigned long long)from->size);
    }
    for (size_t i = 0; i < from->dims.n; i++)
        d[i] = from->dims.p[i];
    memcpy(b, from->bytes, from->size);
    *to = (xl_cap_part){ .elem = from->elem, .dims = { d, from->dims.n }, .size = from->size, .bytes = b };
    return NULL;
}

static bool bad(const xl_finite *f, bool nonfinite) { return f->nan || (nonfinite && f->inf); }

static bool value_bad(const xl_walk *w, const value *v, bool nonfinite)
{
    for (uint32_t d = 0; v && d < w->ndevice; d++)
        if (bad(&v->stat[d], nonfinite))
            return true;
    return false;
}

/* ---- ops -------------------------------------------------------------------------------------------------------- */
static bool inside(const xl_region *r, const xl_region *of)
{
    for (; r; r = r->owner ? r->owner->parent : NULL)
        if (r == of)
            return true;
    return false;
}

static const xl_region *home(const xl_func *f, xl_value v)
{
    return f->val[v.id].def ? f->val[v.id].def->parent : f->val[v.id].region;
}

static void outside(xl_walk *w, const xl_op *top, const xl_region *r, leaf *l, size_t *cap)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nin; k++) {
            bool own = false, known = false;
            for (uint32_t x = 0; x < top->nregion; x++)
                own = own || inside(home(w->f, op->in[k]), top->region[x]);
            for (uint32_t x = 0; x < l->nin; x++)
                known = known || l->in[x].id == op->in[k].id;
            if (!own && !known)
                XL_PUSH(w->a, l->in, l->nin, *cap, op->in[k]);
        }
        for (uint32_t k = 0; k < op->nregion; k++)
            outside(w, top, op->region[k], l, cap);
    }
}

static leaf *leaf_of(xl_walk *w, const xl_op *op)
{
    xl_op *o = (xl_op *)op;
    if (!o->mark) {
        leaf l = { .op = op };
        size_t cap = op->nin;
        l.in = xl_new(w->a, xl_value, op->nin);
        for (uint32_t i = 0; i < op->nin; i++)
            l.in[l.nin++] = op->in[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            outside(w, op, op->region[k], &l, &cap);
        XL_PUSH(w->a, w->leaf, w->nleaf, w->capleaf, l);
        o->mark = w->nleaf;
    }
    return &w->leaf[o->mark - 1];
}

/* The op as a program of its own. */
static void print_leaf(xl_walk *w, const leaf *l, xl_buf *out)
{
    xl_module *m = w->m;
    xl_func **all = m->func, *one[1];
    uint32_t n = m->nfunc, cap = m->capfunc;
    xl_func *g = xl_func_new(m, XL_STR("main"));
    one[0] = g;
    all = m->func;                                         /* it may have grown */
    cap = m->capfunc;
    xl_value *map = xl_new(&m->arena, xl_value, w->f->nval);
    for (uint32_t i = 0; i < l->nin; i++)
        map[l->in[i].id] = xl_region_add_arg(g, g->body, xl_value_type(w->f, l->in[i]), (xl_loc){ 0 });
    xl_op *c = xl_op_clone(g, g->body, w->f, l->op, map);
    c->extra = xl_dict_with(m, xl_dict_with(m, c->extra, XL_STR("sdy.sharding"), NULL), XL_STR("mhlo.sharding"), NULL);
    xl_op_new(g, g->body, XL_OP_RETURN, c->out, c->nout, NULL, 0, 0, (xl_loc){ 0 });
    xl_func_set_type(g);
    m->func = one;
    m->nfunc = 1;
    xl_print_module(m, NULL, out);
    m->func = all;
    m->nfunc = n;
    m->capfunc = cap;
}

static xl_error *compile_leaf(xl_walk *w, const leaf *l, const xl_play *p, xl_played *out)
{
    xl_buf text = { 0 }, options = { 0 };
    print_leaf(w, l, &text);
    xl_options_build(&options, &(xl_options){ .replicas = (int)w->ndevice, .partitions = 1 });
    xl_error *err = text.failed || options.failed
                        ? XL_ERR(EXHAUSTED, "out of memory")
                        : xl_play_compile(p, w->a, xl_buf_view(&text), XL_FORMAT_MLIR, xl_buf_view(&options), out);
    xl_buf_fini(&text);
    xl_buf_fini(&options);
    return err;
}

static xl_error *here(const xl_walk *w, const leaf *l, xl_error *err)
{
    xl_str file;
    uint32_t line, col;
    if (!err)
        return NULL;
    if (xl_loc_line(w->m, l->op->loc, &file, &line, &col))
        return xl_error_wrap(err, "%s at %.*s:%u", xl_op_text(l->op), XL_FMT(file), line);
    return xl_error_wrap(err, "%s", xl_op_text(l->op));
}

/* in and out are [ndevice][n]. */
static xl_error *execute(xl_walk *w, leaf *l, const xl_cap_part *in, xl_cap_part *out)
{
    xl_error *err = NULL;
    if (!l->tried) {
        l->tried = true;
        err = compile_leaf(w, l, w->p, &l->played);
        if (err && w->other) {
            xl_error *there = compile_leaf(w, l, w->other, &l->played);
            if (!there) {
                xl_error_free(err);
                err = NULL;
                l->elsewhere = true;
                if (!w->elsewhere++)
                    w->first_elsewhere = l->op->code == XL_OP_CUSTOM_CALL
                                             ? xl_op_str(l->op, XL_SLOT(CUSTOM_CALL, call_target_name))
                                             : xl_str_of(xl_op_text(l->op));
            }
            xl_error_free(there);
        }
        if (err)
            return here(w, l, err);
    }
    if (!l->played.prog)
        return here(w, l, XL_ERR(UNIMPLEMENTED, "the device did not take it"));
    return here(w, l, xl_play_run(&l->played, in, l->nin, NULL, 0, out, NULL));
}

static xl_error *gather_in(xl_walk *w, const leaf *l, value *const *in, xl_cap_part **out)
{
    xl_cap_part *p = calloc((size_t)w->ndevice * l->nin + 1, sizeof *p);
    *out = p;
    if (!p)
        return XL_ERR(EXHAUSTED, "out of memory");
    for (uint32_t d = 0; d < w->ndevice; d++)
        for (uint32_t i = 0; i < l->nin; i++)
            p[d * l->nin + i] = in[i]->part[d];
    return NULL;
}

/* The same op with the same operands on the rival. */
static xl_error *contest(xl_walk *w, leaf *l, const xl_cap_part *in, const xl_cap_part *out, int64_t step)
{
    xl_error *err = NULL;
    uint32_t n = l->op->nout;
    xl_cap_part *theirs = NULL;
    if (!l->rival_tried) {
        l->rival_tried = true;
        xl_error *no = compile_leaf(w, l, w->rival->play, &l->rival);
        if (no)
            l->refused = xl_str_c(w->a, xl_str_of(xl_error_message(no)));
        xl_error_free(no);
    }
    if (l->refused) {
        *w->apart = (xl_walk_apart){ .found = true, .step = step, .refused = l->refused };
        return NULL;
    }
    theirs = calloc((size_t)w->ndevice * n + 1, sizeof *theirs);
    if (!theirs)
        return XL_ERR(EXHAUSTED, "out of memory");
    xl_error *no = xl_play_run(&l->rival, in, l->nin, NULL, 0, theirs, NULL);
    if (no) {
        *w->apart = (xl_walk_apart){ .found = true, .step = step };
        w->apart->refused = xl_str_c(w->a, xl_str_of(xl_error_message(no)));
        xl_error_free(no);
        goto out;
    }
    for (uint32_t i = 0; i < w->ndevice * n && !w->apart->found; i++) {
        if (out[i].size != theirs[i].size)
            continue;
        xl_difference d = xl_difference_of(out[i].elem, out[i].bytes, theirs[i].bytes, out[i].size);
        if (!d.differ || d.max_abs <= w->rival->tolerance * d.scale)
            continue;
        *w->apart = (xl_walk_apart){ .found = true, .step = step, .out = i % n, .device = i / n, .d = d };
        XL_DO(copy_part(&out[i], &w->apart->mine));
        XL_DO(copy_part(&theirs[i], &w->apart->theirs));
    }
out:
    xl_play_drop(theirs, (size_t)w->ndevice * n);
    free(theirs);
    return err;
}

static void set(xl_walk *w, xl_value id, value *v)
{
    value *old = w->val[id.id];
    w->val[id.id] = v;
    if (v)
        v->live++;
    if (old) {
        unneed(w, old);
        unref(w, old);
    }
}

static xl_error *constant(xl_walk *w, const xl_op *op)
{
    xl_error *err = NULL;
    const xl_attr *c = XL_ATTR(op, CONSTANT, value);
    const xl_type *t = xl_out_type(w->f, op, 0);
    xl_elem elem = xl_elem_parse(xl_str_of(xl_dtypes[t->dtype].text));
    size_t size, each = xl_dtype_bytes(t->dtype);
    value *v = NULL;
    if (c->kind != XL_AT_DENSE || elem == XL_ELEM_INVALID || !xl_elem_size(elem, xl_type_dims(t), &size))
        return XL_ERR(UNIMPLEMENTED, "a constant of type %s", xl_type_str(w->a, t));
    xl_cap_part *part = calloc(w->ndevice + 1, sizeof *part);
    char *bytes = malloc(size + 1);
    if (!part || !bytes) {
        err = XL_ERR(EXHAUSTED, "no memory for a constant");
        goto out;
    }
    if (c->data.n == size)
        memcpy(bytes, c->data.p, size);
    else
        for (size_t i = 0; each && c->data.n == each && i + each <= size; i += each)
            memcpy(bytes + i, c->data.p, each);
    xl_cap_part one = { .elem = elem, .dims = xl_type_dims(t), .size = size, .bytes = bytes };
    for (uint32_t d = 0; d < w->ndevice; d++)
        XL_DO(copy_part(&one, &part[d]));
    xl_walk_step s = { .op = op, .within = -1, .turn = -1, .nout = 1, .out = xl_new(w->a, value *, 1) };
    XL_DO(value_of(w, part, (int64_t)w->nstep, 0, &v));
    set(w, op->out[0], v);
    s.out[0] = hold(v);
    XL_PUSH(w->a, w->step, w->nstep, w->capstep, s);
out:
    free(bytes);
    free(part);
    return err;
}

static xl_error *region(xl_walk *w, const xl_region *r, int64_t within, int64_t turn);

static xl_error *truth(const value *v, int64_t *out)
{
    if (!v || !v->part[0].bytes || !v->part[0].size)
        return XL_ERR(INTERNAL, "a condition has no value");
    *out = v->part[0].elem == XL_ELEM_S32 ? (int64_t)*(const int32_t *)v->part[0].bytes : v->part[0].bytes[0] != 0;
    return NULL;
}

static xl_error *results(xl_walk *w, const xl_op *op, const xl_op *end)
{
    for (uint32_t i = 0; i < op->nout && i < end->nin; i++)
        set(w, op->out[i], hold(w->val[end->in[i].id]));
    return NULL;
}

/* Into a loop or a branch: what its ops give replaces what it gave as a whole. */
static xl_error *descend(xl_walk *w, const xl_op *op, int64_t step)
{
    xl_error *err = NULL;
    int64_t which = 0;
    if (op->code != XL_OP_WHILE) {
        XL_DO(truth(w->val[op->in[0].id], &which));
        if (op->code == XL_OP_IF)
            which = which ? 0 : 1;
        else if (which < 0 || which >= op->nregion)
            which = op->nregion - 1;
        XL_DO(region(w, op->region[which], step, -1));
        return results(w, op, xl_region_end(op->region[which]));
    }
    const xl_region *cond = op->region[0], *body = op->region[1];
    for (uint32_t i = 0; i < op->nin; i++) {
        set(w, cond->arg[i], hold(w->val[op->in[i].id]));
        set(w, body->arg[i], hold(w->val[op->in[i].id]));
    }
    for (int64_t turn = 0;; turn++) {
        int64_t go;
        if (turn == TURN_MAX || w->nstep > STEP_MAX)
            return XL_ERR(EXHAUSTED, "a loop of more than %d turns is not walked", TURN_MAX);
        XL_DO(region(w, cond, step, turn));
        XL_DO(truth(w->val[xl_region_end(cond)->in[0].id], &go));
        if (!go || (w->apart && w->apart->found))
            break;
        XL_DO(region(w, body, step, turn));
        const xl_op *end = xl_region_end(body);
        value **next = calloc(end->nin + 1, sizeof *next);
        if (!next)
            return XL_ERR(EXHAUSTED, "out of memory");
        for (uint32_t i = 0; i < end->nin; i++)
            next[i] = hold(w->val[end->in[i].id]);
        for (uint32_t i = 0; i < end->nin; i++) {
            set(w, cond->arg[i], hold(next[i]));
            set(w, body->arg[i], next[i]);
        }
        free(next);
    }
    for (uint32_t i = 0; i < op->nout; i++)
        set(w, op->out[i], hold(w->val[body->arg[i].id]));
out:
    return err;
}

static bool flows(const xl_op *op) { return op->code == XL_OP_WHILE || op->code == XL_OP_IF || op->code == XL_OP_CASE; }

static xl_error *one(xl_walk *w, const xl_op *op, int64_t within, int64_t turn)
{
    xl_error *err = NULL;
    leaf *l = leaf_of(w, op);
    uint32_t nin = l->nin, nout = op->nout;
    xl_cap_part *in = NULL, *out = calloc((size_t)w->ndevice * nout + 1, sizeof *out), *row = NULL;
    value **operand = xl_new(w->a, value *, nin + 1);
    if (!out) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    for (uint32_t i = 0; i < nin; i++) {
        operand[i] = w->val[l->in[i].id];
        if (!operand[i]) {
            err = here(w, l, XL_ERR(UNIMPLEMENTED, "an operand is no tensor"));
            goto out;
        }
    }
    XL_DO(gather_in(w, l, operand, &in));
    XL_DO(execute(w, l, in, out));
    int64_t at = (int64_t)w->nstep;
    xl_walk_step s = { .op = op, .within = within, .turn = turn, .nin = nin, .nout = nout };
    s.in = operand;
    s.out = xl_new(w->a, value *, nout + 1);
    row = calloc(w->ndevice + 1, sizeof *row);
    if (!row) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    if (w->rival && !flows(op))
        XL_DO(contest(w, l, in, out, at));
    bool any = false;
    for (uint32_t k = 0; k < nout; k++) {
        value *v;
        for (uint32_t d = 0; d < w->ndevice; d++) {
            row[d] = out[d * nout + k];
            out[d * nout + k] = (xl_cap_part){ 0 };
        }
        XL_DO(value_of(w, row, at, k, &v));
        any = any || value_bad(w, v, true);
        set(w, op->out[k], v);
        s.out[k] = hold(v);
    }
    for (uint32_t i = 0; i < nin; i++)
        hold(operand[i])->live += any;                     /* bytes only where a question may be about them */
    XL_PUSH(w->a, w->step, w->nstep, w->capstep, s);
    bool look = w->look == XL_WALK_ALL;
    for (uint32_t k = 0; k < nout; k++)
        look = look || value_bad(w, s.out[k], w->look == XL_WALK_NONFINITE);
    if (flows(op) && look)
        XL_DO(descend(w, op, at));
out:
    xl_play_drop(out, out ? (size_t)w->ndevice * nout : 0);
    free(out);
    free(row);
    free(in);
    return err;
}

static xl_error *region(xl_walk *w, const xl_region *r, int64_t within, int64_t turn)
{
    xl_error *err = NULL;
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        if (op->code == XL_OP_RETURN || (w->apart && w->apart->found))
            break;
        if (op->code == XL_OP_CONSTANT) {
            XL_DO(constant(w, op));
            continue;
        }
        bool tensors = op->nout > 0;
        for (uint32_t k = 0; k < op->nout; k++)
            tensors = tensors && xl_type_is_tensor(xl_out_type(w->f, op, k));
        if (!tensors)                                      /* tokens and effects: nothing to look at */
            continue;
        XL_DO(one(w, op, within, turn));
        const leaf *l = leaf_of(w, op);
        for (uint32_t k = 0; k < l->nin; k++)
            if (home(w->f, l->in[k]) == r && w->last[l->in[k].id] == i)
                set(w, l->in[k], NULL);
    }
out:
    return err;
}

/* The last op of its own region that uses a value, itself or in its regions. */
static void last_uses(xl_walk *w, const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        const xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nin; k++) {
            const xl_region *at = home(w->f, op->in[k]);
            const xl_op *top = op;
            while (top && top->parent != at)
                top = top->parent->owner;
            uint32_t *last = &w->last[op->in[k].id];
            if (top && (*last == UINT32_MAX || *last < top->mark))
                *last = top->mark;
        }
        for (uint32_t k = 0; k < op->nregion; k++)
            last_uses(w, op->region[k]);
    }
}

/* ---- open, run, close ------------------------------------------------------------------------------------------- */
static void rename_ranks(const xl_region *r)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        for (uint32_t k = 0; k < op->nregion; k++)
            rename_ranks(op->region[k]);
        if (op->code == XL_OP_PARTITION_ID)
            op->code = XL_OP_REPLICA_ID;
        int channel = xl_slot_find((xl_opcode)op->code, XL_STR("channel_id"));
        int global = xl_slot_find((xl_opcode)op->code, XL_STR("use_global_device_ids"));
        if (channel >= 0)
            op->attr[channel] = NULL;
        if (global >= 0)
            op->attr[global] = NULL;
    }
}

xl_error *xl_walk_ready(const xl_play *p, xl_arena *a, xl_str options, xl_module **m)
{
    xl_error *err = NULL;
    xl_buf text = { 0 };
    xl_played g = { 0 };
    xl_module *part = NULL;
    int64_t replicas, partitions;
    XL_DO(xl_play_devices(a, options, &replicas, &partitions));
    if (partitions > 1) {                                  /* as the embedded device splits it */
        xl_str code, format;
        xl_print_module(*m, &(xl_print_opts){ .locations = true }, &text);
        XL_TRY(xl_play_compile(p, a, xl_buf_view(&text), XL_FORMAT_MLIR, options, &g), "splitting the program");
        XL_DO(xl_executable_optimized(xl_program_executable(g.prog), a, &code, &format));
        XL_TRY(xl_read(code, NULL, &part), "reading the split program");
        xl_module_free(*m);
        *m = part;
    }
    XL_TRY(xl_pass_inline(*m, &(xl_pipeline_opts){ 0 }), "inlining calls");
    const xl_func *f = xl_module_entry(*m);
    if (!f || !f->body) {
        err = XL_ERR(INVALID, "the program has no entry function");
        goto out;
    }
    if (partitions > 1)
        rename_ranks(f->body);
out:
    xl_played_free(&g);
    xl_buf_fini(&text);
    return err;
}

static void set_marks(const xl_region *r, bool places)
{
    for (uint32_t i = 0; i < r->nop; i++) {
        r->op[i]->mark = places ? i : 0;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            set_marks(r->op[i]->region[k], places);
    }
}

xl_error *xl_walk_open(xl_arena *a, const xl_play *p, const xl_play *other, xl_module *m, uint32_t ndevice,
                       const xl_cap_part *in, xl_walk **out)
{
    xl_error *err = NULL;
    xl_walk *w = xl_new(a, xl_walk, 1);
    *out = w;
    *w = (xl_walk){ .a = a, .p = p, .other = other, .m = m, .f = xl_module_entry(m), .ndevice = ndevice };
    w->val = xl_new(a, value *, w->f->nval + 1);
    w->last = xl_new(a, uint32_t, w->f->nval + 1);
    memset(w->last, 0xff, (w->f->nval + 1) * sizeof *w->last);
    set_marks(w->f->body, true);
    last_uses(w, w->f->body);
    set_marks(w->f->body, false);                          /* from here on: the op's leaf */
    uint32_t narg = w->f->body->narg;
    xl_cap_part *row = xl_new(a, xl_cap_part, ndevice + 1);
    for (uint32_t i = 0; i < narg; i++) {
        value *v;
        for (uint32_t d = 0; d < ndevice; d++)
            XL_DO(copy_part(&in[d * narg + i], &row[d]));
        XL_DO(value_of(w, row, -1 - (int64_t)i, 0, &v));
        set(w, w->f->body->arg[i], v);
    }
out:
    return err;
}

xl_error *xl_walk_run(xl_walk *w, xl_walk_look look, const xl_walk_rival *rival, xl_walk_apart *apart)
{
    xl_error *err = NULL;
    w->look = look;
    w->rival = rival;
    w->apart = apart;
    if (apart)
        *apart = (xl_walk_apart){ 0 };
    XL_DO(region(w, w->f->body, -1, -1));
    const xl_op *end = xl_region_end(w->f->body);
    if (apart && apart->found)
        goto out;
    w->nresult = end->nin;
    w->result = xl_new(w->a, value *, end->nin + 1);
    for (uint32_t i = 0; i < end->nin; i++)
        if ((w->result[i] = w->val[end->in[i].id]))
            hold(w->result[i])->live++;
out:
    return err;
}

void xl_walk_close(xl_walk *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->nstep; i++) {
        for (uint32_t k = 0; k < w->step[i].nin; k++)
            unref(w, w->step[i].in[k]);
        for (uint32_t k = 0; k < w->step[i].nout; k++)
            unref(w, w->step[i].out[k]);
    }
    for (size_t i = 0; i < w->nresult; i++)
        unref(w, w->result[i]);
    for (uint32_t i = 0; i < w->f->nval; i++)
        unref(w, w->val[i]);
    for (uint32_t i = 0; i < w->nleaf; i++) {
        xl_played_free(&w->leaf[i].played);
        xl_played_free(&w->leaf[i].rival);
    }
}

const xl_func *xl_walk_func(const xl_walk *w) { return w->f; }
const xl_walk_step *xl_walk_steps(const xl_walk *w, size_t *n)
{
    *n = w->nstep;
    return w->step;
}
xl_walk_value *const *xl_walk_results(const xl_walk *w, size_t *n)
{
    *n = w->nresult;
    return w->result;
}
size_t xl_walk_elsewhere(const xl_walk *w, xl_str *first)
{
    *first = w->first_elsewhere;
    return w->elsewhere;
}
enum { FIXED_DEPTH = 8 };

static bool fixed(const xl_walk *w, const value *v, int depth)
{
    if (v->by < 0 || depth == FIXED_DEPTH)
        return false;
    const xl_walk_step *s = &w->step[v->by];
    for (uint32_t i = 0; i < s->nin; i++)
        if (!fixed(w, s->in[i], depth + 1))
            return false;
    return s->op->code != XL_OP_REPLICA_ID && s->op->code != XL_OP_PARTITION_ID;
}

bool xl_walk_fixed(const xl_walk *w, const xl_walk_value *v) { return fixed(w, v, 0); }

/* ---- where it came from ----------------------------------------------------------------------------------------- */
static bool is_bad(xl_dtype d, const char *p, bool nonfinite)
{
    double v = xl_scalar_get(d, p);
    return isnan(v) || (nonfinite && isinf(v));
}

static bool any_bad(const xl_walk *w, const value *v, bool nonfinite)
{
    for (uint32_t d = 0; d < w->ndevice; d++)
        if (bad(&v->stat[d], nonfinite))
            return true;
    return false;
}

/* Of each step, once for all: operands come before the steps that use them. */
int64_t xl_walk_earliest(xl_walk *w, const value *v, bool nonfinite)
{
    int64_t **at = &w->earliest[nonfinite];
    if (!*at) {
        *at = xl_new(w->a, int64_t, w->nstep + 1);
        for (size_t k = 0; k < w->nstep; k++) {
            const xl_walk_step *s = &w->step[k];
            int64_t first = (int64_t)k;
            for (uint32_t i = 0; i < s->nin; i++) {
                int64_t by = s->in[i]->by, from = by < 0 ? -1 : by < (int64_t)k ? (*at)[by] : by;
                if (any_bad(w, s->in[i], nonfinite) && from < first)
                    first = from;
            }
            (*at)[k] = first;
        }
    }
    return v->by < 0 ? -1 : (*at)[v->by];
}

/* A NaN of an operand, by its place. */
typedef struct { uint32_t operand, device; uint64_t elem; } spot;

static xl_dtype dtype_of(xl_elem e) { return xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(e)))); }

/* Executes the step with only the bad elements of spots [from, to) left as they are; is the result's element bad? */
static xl_error *with_only(xl_walk *w, const xl_walk_step *s, const spot *spots, size_t nspot, size_t from, size_t to,
                           uint32_t out, uint32_t device, uint64_t elem, bool nonfinite, bool *answer)
{
    xl_error *err = NULL;
    leaf *l = leaf_of(w, s->op);
    size_t n = (size_t)w->ndevice * l->nin, nout = (size_t)w->ndevice * s->op->nout;
    xl_cap_part *in = calloc(n + 1, sizeof *in), *res = calloc(nout + 1, sizeof *res);
    if (!in || !res) {
        err = XL_ERR(EXHAUSTED, "out of memory");
        goto out;
    }
    for (uint32_t d = 0; d < w->ndevice; d++)
        for (uint32_t i = 0; i < l->nin; i++)
            XL_DO(copy_part(&s->in[i]->part[d], &in[d * l->nin + i]));
    for (size_t k = 0; k < nspot; k++) {
        if (k >= from && k < to)
            continue;
        xl_cap_part *t = &in[spots[k].device * l->nin + spots[k].operand];
        xl_dtype d = dtype_of(t->elem);
        xl_scalar_put(d, 1, (char *)t->bytes + spots[k].elem * xl_dtype_bytes(d));
    }
    XL_DO(execute(w, l, in, res));
    const xl_cap_part *r = &res[device * s->op->nout + out];
    xl_dtype d = dtype_of(r->elem);
    *answer = is_bad(d, r->bytes + elem * xl_dtype_bytes(d), nonfinite);
out:
    xl_play_drop(in, in ? n : 0);
    xl_play_drop(res, res ? nout : 0);
    free(in);
    free(res);
    return err;
}

/* Which operand's element made the result's bad; *none: it was made here. */
static xl_error *cause(xl_walk *w, const xl_walk_step *s, uint32_t out, uint32_t device, uint64_t elem, bool nonfinite,
                       spot *from, bool *none)
{
    xl_error *err = NULL;
    spot *spots = NULL;
    size_t n = 0, cap = 0;
    bool yes = false;
    for (uint32_t i = 0; i < s->nin; i++)
        for (uint32_t d = 0; d < w->ndevice; d++) {
            const xl_cap_part *t = &s->in[i]->part[d];
            if (!bad(&s->in[i]->stat[d], nonfinite))
                continue;
            xl_dtype dt = dtype_of(t->elem);
            size_t each = xl_dtype_bytes(dt);
            for (uint64_t e = 0; e < t->size / each; e++)
                if (is_bad(dt, t->bytes + e * each, nonfinite)) {
                    if (n == cap) {
                        cap = cap ? 2 * cap : 64;
                        spot *more = realloc(spots, cap * sizeof *spots);
                        if (!more) {
                            err = XL_ERR(EXHAUSTED, "out of memory");
                            goto out;
                        }
                        spots = more;
                    }
                    spots[n++] = (spot){ i, d, e };
                }
        }
    *none = n == 0;
    if (!n)
        goto out;
    XL_DO(with_only(w, s, spots, n, 0, 0, out, device, elem, nonfinite, &yes));
    if (yes) {                                             /* without any NaN in the operands, too */
        *none = true;
        goto out;
    }
    /* Operands whose NaN is enough by itself; of those the one whose NaN goes back furthest. */
    size_t low = 0, high = n;
    int64_t earliest = INT64_MAX;
    bool single = false;
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && spots[end].operand == spots[i].operand)
            end++;
        XL_DO(with_only(w, s, spots, n, i, end, out, device, elem, nonfinite, &yes));
        int64_t since = xl_walk_earliest(w, s->in[spots[i].operand], nonfinite);
        if (yes && since < earliest) {
            earliest = since;
            low = i;
            high = end;
            single = true;
        }
        i = end;
    }
    if (!single) {                                         /* it takes two of them */
        for (size_t i = 0; i < n; i++) {
            int64_t since = xl_walk_earliest(w, s->in[spots[i].operand], nonfinite);
            if (since < earliest) {
                earliest = since;
                *from = spots[i];
            }
        }
        goto out;
    }
    while (high - low > 1) {
        size_t half = low + (high - low) / 2;
        XL_DO(with_only(w, s, spots, n, low, half, out, device, elem, nonfinite, &yes));
        if (yes) {
            high = half;
            continue;
        }
        XL_DO(with_only(w, s, spots, n, half, high, out, device, elem, nonfinite, &yes));
        if (!yes)                                          /* only together */
            break;
        low = half;
    }
    *from = spots[low];
out:
    free(spots);
    return err;
}

/* A constant is made nowhere: what is asked for is the op that lets it in, by a choice or together with what is none.
 * */
static bool lets_in(const xl_walk *w, const xl_walk_step *s)
{
    for (uint32_t i = 0; i < s->nin; i++)
        if (!xl_walk_fixed(w, s->in[i]))
            return true;
    return false;
}

xl_error *xl_walk_trace(xl_walk *w, const xl_walk_value *v, uint32_t device, uint64_t elem, bool nonfinite,
                        xl_walk_origin *o)
{
    typedef struct { uint32_t out, device; uint64_t elem; } place;
    xl_error *err = NULL;
    size_t cap = 0, nat = 0, capat = 0;
    place here = { v->out, device, elem }, *at = NULL;
    *o = (xl_walk_origin){ .step = -1, .constant = -1, .device = device, .elem = elem, .exact = true };
    for (int64_t by = v->by;;) {
        o->out = here.out;
        o->device = here.device;
        o->elem = here.elem;
        if (by < 0) {
            o->argument = (uint32_t)(-1 - by);
            break;
        }
        const xl_walk_step *s = &w->step[by];
        spot from = { 0 };
        bool none = s->nin == 0;
        if (!none)
            XL_DO(cause(w, s, here.out, here.device, here.elem, nonfinite, &from, &none));
        XL_PUSH(w->a, o->path, o->npath, cap, by);
        XL_PUSH(w->a, at, nat, capat, here);
        if (none) {
            o->step = by;
            break;
        }
        here = (place){ s->in[from.operand]->out, from.device, from.elem };
        by = s->in[from.operand]->by;
    }
    for (size_t k = o->npath; o->step >= 0 && w->step[o->step].nin == 0 && k-- > 0;)
        if (lets_in(w, &w->step[o->path[k]])) {
            o->constant = o->step;
            o->step = o->path[k];
            o->npath = k + 1;
            o->out = at[k].out;
            o->device = at[k].device;
            o->elem = at[k].elem;
        }
out:
    return err;
}
