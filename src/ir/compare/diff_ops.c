/* What differs between the ops of two functions: see diff_modules.c for the order in which they pair up. */
#include "ir/compare/diff_state.h"

#include <math.h>
#include <stdio.h>

#include "base/table.h"
#include "ir/compare/hash.h"

/* The functions being compared, which value of a became which of b (UINT32_MAX: none), which of b came from one of a,
 * and the line of the call that led here, for ops that name none: a frontend's own functions (jax.nn) do not. */
typedef struct {
    xl_differ *d;
    const xl_func *fa, *fb;
    uint32_t *to;
    bool *from;
    int depth;
    xl_diff_site from_line;
    xl_diff_flow flow_a, flow_b;
    const uint32_t *same_a, *same_b; /* of values that an earlier op computes too: that one's; NULL: none do */
} pair;

/* "stablehlo.add"; "a call of _where", which the user may know. */
static const char *op_words(xl_arena *a, const xl_op *op)
{
    if (op->code != XL_OP_CALL)
        return xl_op_text(op);
    return xl_strf(a, "a call of %.*s", XL_FMT(xl_op_str(op, XL_SLOT(CALL, callee)))).p;
}

static void became(pair *p, xl_value a, xl_value b)
{
    p->to[a.id] = b.id;
    p->from[b.id] = true;
}

static void regions(pair *p, const xl_region *ra, const xl_region *rb);

static void place_op(const pair *p, const xl_module *m, const xl_op *op, xl_diff *x)
{
    xl_diff_place(m, op->loc, x);
    if (!x->file.n) {
        x->file = p->from_line.file;
        x->line = p->from_line.line;
    }
}

/* The arguments that an op's results depend on, or meet. */
static uint64_t reads_of(const uint64_t *flow, const xl_op *op)
{
    uint64_t reads = 0;
    for (uint32_t i = 0; i < op->nout; i++)
        reads |= flow[op->out[i].id];
    return reads;
}

typedef struct {
    const char *name;
    int64_t size;
    bool value, forms;
} part; /* value: before and after are short values of it; forms: no more than a form or a dtype changed */

static void changed(pair *p, const xl_op *a, const xl_op *b, xl_diff_kind kind, part what, xl_str before, xl_str after)
{
    xl_differ *d = p->d;
    xl_diff x = { .kind = kind, .arg = -1, .dim = -1, .before = before, .after = after, .follows = kind == XL_DIFF_OP };
    x.size = what.size;
    x.forms = what.forms;
    x.reads = reads_of(p->flow_a.met, a) | reads_of(p->flow_b.met, b);
    if (what.value)
        x.part = xl_strf(d->arena, "%s %s", xl_op_text(b), what.name);
    xl_diff_place(d->b, b->loc, &x);
    if (!x.file.n)
        place_op(p, d->a, a, &x);
    x.text = xl_strf(d->arena, "%s: %s %.*s -> %.*s%.*s", xl_op_text(b), what.name, XL_FMT(before), XL_FMT(after),
                     XL_FMT(xl_diff_at(d, &x)));
    xl_diff_note(d, x);
}

/* The constant that v is, also through what only changes its form; NULL: it is computed. */
static const xl_op *constant_of(const xl_func *f, xl_value v)
{
    const xl_op *op = f->val[v.id].def;
    while (op && (op->code == XL_OP_BROADCAST_IN_DIM || op->code == XL_OP_CONVERT || op->code == XL_OP_RESHAPE))
        op = f->val[op->in[0].id].def;
    return op && op->code == XL_OP_CONSTANT ? op : NULL;
}

static bool same_constant(const xl_attr *s, const xl_attr *t)
{
    bool one = (s->splat || !s->type->rank) && (t->splat || !t->type->rank);
    return xl_attr_eq(s, t) || (one && s->dtype == t->dtype && xl_str_eq(s->data, t->data));
}

static bool said(xl_differ *d, const xl_op *a, const xl_op *b)
{
    for (uint32_t i = 0; i < d->nconstant; i++)
        if (d->constant[i].a == a && d->constant[i].b == b)
            return true;
    XL_PUSH(d->arena, d->constant, d->nconstant, d->capconstant, ((xl_diff_op_pair){ a, b }));
    return false;
}

static bool same_shape(const xl_type *s, const xl_type *t)
{
    return s->kind == t->kind && s->rank == t->rank &&
           (!s->rank || !memcmp(s->dims, t->dims, s->rank * sizeof *s->dims));
}

/* The new size where one dimension alone differs, else 0. */
static int64_t new_size(const xl_type *s, const xl_type *t)
{
    int64_t size = 0;
    for (uint32_t q = 0; s->rank == t->rank && q < t->rank; q++)
        if (s->dims[q] != t->dims[q]) {
            if (size)
                return 0;
            size = t->dims[q];
        }
    return size;
}

/* "55" of a vector, "[3, 7]" of a matrix. */
static xl_str index_words(xl_differ *d, const xl_type *t, size_t flat)
{
    if (t->rank < 2)
        return xl_strf(d->arena, "%zu", flat);
    xl_str out = { "]", 1 };
    for (uint32_t q = t->rank; q-- > 0; flat /= (size_t)t->dims[q])
        out = xl_strf(d->arena, "%s%zu%.*s", q ? ", " : "[", flat % (size_t)t->dims[q], XL_FMT(out));
    return out;
}

/* The element at this byte of a constant. */
static xl_str element_words(xl_differ *d, const xl_attr *a, size_t byte)
{
    xl_type scalar = { .kind = XL_TY_TENSOR, .dtype = a->dtype };
    xl_attr one = *a;
    one.data = (xl_str){ a->data.p + byte, xl_dtype_bytes(a->dtype) };
    one.type = &scalar;
    return xl_say_attr(d->arena, &one);
}

/* Of two dtypes: whether the one number of each is another, beyond what the coarser of bf16 and up rounds away. */
static bool other_number(xl_differ *d, const xl_attr *s, const xl_attr *t)
{
    double x, y;
    return (s->splat || !s->type->rank) && (t->splat || !t->type->rank) && xl_str_f64(xl_say_attr(d->arena, s), &x) &&
           xl_str_f64(xl_say_attr(d->arena, t), &y) && fabs(x - y) > 0x1p-7 * fmax(fabs(x), fabs(y));
}

/* The constant a became b; use reads it. */
static void constant(pair *p, const xl_op *a, const xl_op *b, const xl_op *use, xl_value v)
{
    xl_differ *d = p->d;
    const xl_attr *s = a->attr[0], *t = b->attr[0];
    xl_diff x = { .kind = XL_DIFF_CONSTANT, .arg = -1, .dim = -1 };
    bool alike = xl_type_eq(s->type, t->type);
    if (said(d, a, b))
        return;
    if (!alike && (d->shapes || d->dtypes)) { /* its type follows from the arguments': the value is what counts */
        if (s->dtype != t->dtype ? !other_number(d, s, t)
                                 : s->splat || t->splat || s->type->rank || t->type->rank || d->dtypes)
            return;
    }
    if (d->stack_b.n) /* PyTorch/XLA: the line that made it (arange) */
        xl_diff_place(d->b, b->loc, &x);
    if (!x.file.n && use->code == XL_OP_CALL) /* a value may have other readers: this one's line is meant */
        xl_diff_place_reader(p->fb, use, v, &x);
    if (!x.file.n)
        place_op(p, d->b, use, &x);
    if (!x.file.n)
        xl_diff_place(d->b, b->loc, &x);
    uint64_t line = xl_diff_line(d->b, use->loc);
    x.own_line = line && line != xl_diff_line(d->b, xl_diff_caller(d->b)) && !xl_diff_on_line(&d->of_a, line);
    x.reads = reads_of(p->flow_b.on, use);
    x.optax = xl_loc_passes(d->b, use->loc, "/optax/");
    x.before = xl_say_attr(d->arena, s);
    x.after = xl_say_attr(d->arena, t);
    const char *by = op_words(d->arena, use);
    if (alike && !s->splat && !t->splat && s->type->rank && s->data.n == t->data.n) { /* which element */
        size_t size = xl_dtype_bytes(s->dtype), first = s->data.n, differ = 0;
        for (size_t i = 0; i < s->data.n; i += size)
            if (memcmp(s->data.p + i, t->data.p + i, size)) {
                first = first == s->data.n ? i : first;
                differ++;
            }
        x.before = element_words(d, s, first);
        x.after = element_words(d, t, first);
        x.text = xl_strf(d->arena,
                         "constant %.*s, used by %s: element %.*s changed from %.*s to %.*s (%zu of %zu differ)%.*s",
                         XL_FMT(xl_say_type(d->arena, t->type)), by, XL_FMT(index_words(d, t->type, first / size)),
                         XL_FMT(x.before), XL_FMT(x.after), differ, s->data.n / size, XL_FMT(xl_diff_at(d, &x)));
    } else if (s->dtype == t->dtype && s->type->rank && t->type->rank && !s->splat && !t->splat) { /* other lengths */
        size_t size = xl_dtype_bytes(s->dtype), most = s->data.n < t->data.n ? s->data.n : t->data.n, i = 0;
        while (i < most && !memcmp(s->data.p + i, t->data.p + i, size))
            i += size;
        xl_str from = i < most ? xl_strf(d->arena, "element %zu changed from %.*s to %.*s", i / size,
                                         XL_FMT(element_words(d, s, i)), XL_FMT(element_words(d, t, i)))
                               : xl_strf(d->arena, "the first %zu elements are the same", i / size);
        x.text =
            xl_strf(d->arena, "constant %.*s -> %.*s, used by %s: %.*s%.*s", XL_FMT(xl_say_type(d->arena, s->type)),
                    XL_FMT(xl_say_type(d->arena, t->type)), by, XL_FMT(from), XL_FMT(xl_diff_at(d, &x)));
        x.kind = XL_DIFF_SHAPE;
        x.size = new_size(s->type, t->type);
        xl_diff_sizes(d, s->type, t->type);
    } else if (s->dtype != t->dtype ||
               (s->type->rank && !same_shape(s->type, t->type))) { /* the values may read alike */
        x.recast = s->dtype != t->dtype && !other_number(d, s, t);
        if (s->dtype == t->dtype) { /* no number that somebody wrote changed */
            x.kind = XL_DIFF_SHAPE;
            x.size = new_size(s->type, t->type);
        }
        x.text = xl_strf(d->arena, "constant %.*s -> %.*s (%.*s -> %.*s), used by %s%.*s",
                         XL_FMT(xl_say_type(d->arena, s->type)), XL_FMT(xl_say_type(d->arena, t->type)),
                         XL_FMT(x.before), XL_FMT(x.after), by, XL_FMT(xl_diff_at(d, &x)));
    } else {
        bool minus = x.optax && x.before.n > 1 && x.after.n > 1 && *x.before.p == '-' && *x.after.p == '-';
        xl_str rate = { "", 0 };
        if (minus)
            rate = xl_strf(d->arena, " (as of a learning rate of %.*s -> %.*s, for Optax subtracts the update)",
                           (int)x.before.n - 1, x.before.p + 1, (int)x.after.n - 1, x.after.p + 1);
        x.text = xl_strf(d->arena, "constant %.*s -> %.*s%.*s, used by %s%.*s", XL_FMT(x.before), XL_FMT(x.after),
                         XL_FMT(rate), by, XL_FMT(xl_diff_at(d, &x)));
    }
    xl_diff_note(d, x);
}

typedef struct {
    pair *p;
    const xl_op *a, *b;
} op_ctx;

static void op_attr(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after)
{
    op_ctx *c = ctx;
    xl_arena *arena = c->p->d->arena;
    changed(c->p, c->a, c->b, xl_diff_attr_kind(key), (part){ xl_str_c(arena, key), 0, true },
            xl_say_attr(arena, before), xl_say_attr(arena, after));
}

/* Numbers in these attributes are sizes and places: they follow when shapes differ. */
static bool follows_shapes(xl_attr_want w) { return w == XL_AK_DIMS || w == XL_AK_PAIRS || w == XL_AK_I64; }

/* Made of constants alone (a mask, zeros), looking back at most `depth` ops. */
static bool made_of_constants(const xl_func *f, xl_value v, int depth)
{
    const xl_op *op = f->val[v.id].def;
    if (!op || depth == 0)
        return false;
    for (uint32_t i = 0; i < op->nin; i++)
        if (!made_of_constants(f, op->in[i], depth - 1))
            return false;
    return true;
}

/* Such a value meets a computed one of its own shape: it was made in that shape because the other has it. */
static bool follows_another(const xl_func *f, xl_value v, int depth)
{
    const xl_op *op = xl_diff_reader(f->body, v, false);
    if (!op || depth == 0)
        return false;
    const xl_type *t = xl_value_type(f, v);
    for (uint32_t i = 0; i < op->nin; i++)
        if (op->in[i].id != v.id && same_shape(xl_in_type(f, op, i), t) && !made_of_constants(f, op->in[i], 8))
            return true;
    return op->nout == 1 && same_shape(xl_out_type(f, op, 0), t) && follows_another(f, op->out[0], depth - 1);
}

static void types(pair *p, const xl_op *a, const xl_op *b)
{
    xl_differ *d = p->d;
    if (d->shapes || d->dtypes || a->code == XL_OP_CONSTANT)
        return;
    for (uint32_t i = 0; i < a->nin && i < b->nin; i++)
        if (!xl_type_eq(xl_in_type(p->fa, a, i), xl_in_type(p->fb, b, i)))
            return; /* follows from an op above */
    if (b->nout == 1 && made_of_constants(p->fb, b->out[0], 8) && follows_another(p->fb, b->out[0], 8))
        return;
    for (uint32_t i = 0; i < a->nout && i < b->nout; i++) {
        const xl_type *s = xl_out_type(p->fa, a, i), *t = xl_out_type(p->fb, b, i);
        if (xl_type_eq(s, t))
            continue;
        changed(p, a, b, same_shape(s, t) ? XL_DIFF_DTYPE : XL_DIFF_SHAPE, (part){ "result", new_size(s, t), true },
                xl_say_type(d->arena, s), xl_say_type(d->arena, t));
        xl_diff_sizes(d, s, t);
        return;
    }
}

/* The value for a person: a constant, an argument or the op that makes it. */
static xl_str value_words(xl_differ *d, const xl_func *f, xl_value v)
{
    const xl_val *x = &f->val[v.id];
    const xl_op *c = constant_of(f, v);
    if (c)
        return xl_strf(d->arena, "constant %.*s", XL_FMT(xl_say_attr(d->arena, c->attr[0])));
    if (x->def && x->def->nout > 1)
        return xl_strf(d->arena, "result %u of %s", x->index, op_words(d->arena, x->def));
    if (x->def)
        return xl_str_of(op_words(d->arena, x->def));
    if (x->region == f->body) {
        xl_str name = xl_diff_arg_name(f, x->index);
        return name.n ? name : xl_strf(d->arena, "argument %u", x->index);
    }
    return xl_strf(d->arena, "argument %u of its region", x->index);
}

static xl_str maker_line(xl_differ *d, const xl_func *f, xl_value v, xl_str words)
{
    xl_diff x = { 0 };
    if (f->val[v.id].def)
        xl_diff_place(f->m, f->val[v.id].def->loc, &x);
    return x.file.n ? xl_strf(d->arena, "%.*s of line %u", XL_FMT(words), x.line) : words;
}

/* One of the entry function's arguments that only this program has. */
static bool own_value(const xl_func *f, const bool *own, xl_value v)
{
    const xl_val *x = &f->val[v.id];
    return f == xl_module_entry(f->m) && !x->def && x->region == f->body && own[x->index];
}

/* The index of the scalar argument that v is, also through what only changes its form; -2: it is none. */
static int32_t number_arg(const xl_func *f, xl_value v)
{
    const xl_val *x = &f->val[v.id];
    while (x->def && (x->def->code == XL_OP_BROADCAST_IN_DIM || x->def->code == XL_OP_RESHAPE))
        x = &f->val[x->def->in[0].id];
    bool arg = f == xl_module_entry(f->m) && !x->def && x->region == f->body && x->type->kind == XL_TY_TENSOR;
    return arg && !x->type->rank ? (int32_t)x->index : -2;
}

/* One of the scalar arguments of this type that only one program has, and that nothing explains yet; -1: none. */
static int32_t unexplained(const xl_func *f, const bool *own, const bool *told, const xl_type *t)
{
    for (uint32_t i = 0; i < xl_diff_nargs(f); i++)
        if (own[i] && !told[i] && xl_type_eq(xl_diff_arg_type(f, i), t) && !t->rank)
            return (int32_t)i;
    return -1;
}

/* A state that the program writes anew, where a Python number is only read. */
static bool donated(const xl_func *f, int32_t i)
{
    const xl_attr *a = f->arg_attr ? f->arg_attr[i] : NULL;
    for (uint32_t k = 0; a && k < a->n; k++)
        if (xl_diff_attr_kind(a->key[k]) == XL_DIFF_DONATION)
            return true;
    return false;
}

static void note_number(xl_differ *d, const xl_diff_read *r, bool state, xl_str before, xl_str after, xl_str words)
{
    xl_diff x = { .arg = -1, .dim = -1, .before = before, .after = after };
    x.kind = state ? XL_DIFF_SETUP : XL_DIFF_CONSTANT;
    xl_diff_place(d->b, r->use->loc, &x);
    x.text =
        xl_strf(d->arena, "%.*s, used by %s%.*s", XL_FMT(words), op_words(d->arena, r->use), XL_FMT(xl_diff_at(d, &x)));
    xl_diff_note(d, x);
}

/* PyTorch/XLA passes Python numbers as arguments, but 0 and 1 are constants, and equal ones are one argument. Which of
 * them came or went is known by what reads them: they have no names. */
void xl_diff_numbers(xl_differ *d, const xl_func *fa, const xl_func *fb)
{
    static const char rule[] = "PyTorch/XLA passes numbers as arguments, but for 0 and 1";
    for (uint32_t i = 0; i < d->nread; i++) {
        const xl_diff_read *r = &d->read[i];
        int32_t own;
        if (r->b == -1 && (own = unexplained(fa, d->went, d->fixed, xl_diff_arg_type(fa, (uint32_t)r->a))) >= 0) {
            d->fixed[own] = true;
            xl_str now = value_words(d, fb, r->vb);
            note_number(d, r, false, xl_strf(d->arena, "argument %d", r->a), now,
                        xl_strf(d->arena, "a number: %.*s is now traced into the program, it was argument %d (%s)",
                                XL_FMT(now), r->a, rule));
        } else if (r->a == -1 && !(d->work && xl_diff_of_optimizer(fb, (uint32_t)r->b)) && /* it came with its ops */
                   (own = unexplained(fb, d->came, d->freed, xl_diff_arg_type(fb, (uint32_t)r->b))) >= 0) {
            d->freed[own] = true;
            xl_str was = value_words(d, fa, r->va);
            bool state = donated(fb, r->b);
            note_number(d, r, state, was, xl_strf(d->arena, "argument %d", r->b),
                        xl_strf(d->arena,
                                state ? "a scalar tensor: argument %d, began as %.*s, traced into the program (%s)"
                                      : "a number: it is now argument %d, %.*s was traced into the program (%s)",
                                r->b, XL_FMT(was), rule));
        }
    }
    for (uint32_t i = 0; i < d->nread && !d->work; i++) /* where ops came or went, readers may be paired wrongly */
        for (uint32_t k = 0; k < i; k++) {
            const xl_diff_read *r = &d->read[i], *q = &d->read[k];
            bool paired = r->a >= 0 && r->b >= 0 && q->a >= 0 && q->b >= 0;
            int32_t own;
            if (paired && r->b == q->b && r->a != q->a &&
                (own = unexplained(fa, d->went, d->fixed, xl_diff_arg_type(fa, (uint32_t)r->a))) >= 0) {
                d->fixed[own] = true;
                note_number(d, r, false, xl_strf(d->arena, "argument %d", r->a), xl_strf(d->arena, "argument %d", r->b),
                            xl_strf(d->arena,
                                    "two numbers are equal now, and PyTorch/XLA passes them as one argument "
                                    "(%d instead of %d and %d)",
                                    r->b, q->a, r->a));
            } else if (paired && r->a == q->a && r->b != q->b &&
                       (own = unexplained(fb, d->came, d->freed, xl_diff_arg_type(fb, (uint32_t)r->b))) >= 0) {
                d->freed[own] = true;
                note_number(d, r, false, xl_strf(d->arena, "argument %d", r->a), xl_strf(d->arena, "argument %d", r->b),
                            xl_strf(d->arena,
                                    "two numbers are no longer equal, and PyTorch/XLA passes them as two "
                                    "arguments (%d and %d instead of %d)",
                                    q->b, r->b, r->a));
            }
        }
}

/* An array that one program makes itself and the other has as an argument: what a loop's first graph initialises. */
static void set_up(pair *p, xl_value va, xl_value vb)
{
    xl_differ *d = p->d;
    bool given = own_value(p->fb, d->came, vb); /* an argument now, made before */
    const xl_func *f = given ? p->fb : p->fa, *maker = given ? p->fa : p->fb;
    uint32_t i = f->val[(given ? vb : va).id].index;
    const xl_op *op = maker->val[(given ? va : vb).id].def;
    while (op && op->nin && !xl_diff_line(maker->m, op->loc))
        op = maker->val[op->in[0].id].def;
    if (!op || xl_diff_of_optimizer(f, i)) /* told as such */
        return;
    for (uint32_t k = 0; k < d->n; k++) {
        xl_diff *x = &d->list[k];
        if (x->kind != XL_DIFF_ARGS || x->arg != (int32_t)i || !x->after.n == given)
            continue;
        x->kind = XL_DIFF_SETUP;
        xl_diff_place(maker->m, op->loc, x);
        xl_str who = xl_say_type(d->arena, xl_diff_arg_type(f, i));
        x->text = given ? xl_strf(d->arena, "argument %u (%.*s) was made inside the earlier program%.*s", i,
                                  XL_FMT(who), XL_FMT(xl_diff_at(d, x)))
                        : xl_strf(d->arena, "argument %u (%.*s) of the earlier program is made inside this one%.*s", i,
                                  XL_FMT(who), XL_FMT(xl_diff_at(d, x)));
    }
}

/* What v is made of by ops that only change its form or dtype. */
static xl_value source_of(const xl_func *f, xl_value v)
{
    const xl_op *op = f->val[v.id].def;
    for (; op && op->nin == 1 && xl_diff_changes_form(op); op = f->val[v.id].def)
        v = op->in[0];
    return v;
}

/* Where two ops read: another value, or another constant. A value made by an op that came or went has been named with
 * that op. */
static void wiring(pair *p, const xl_op *a, const xl_op *b)
{
    bool one = false;
    for (uint32_t i = 0; i < a->nin && i < b->nin; i++) {
        xl_value va = p->same_a ? (xl_value){ p->same_a[a->in[i].id] } : a->in[i],
                 vb = p->same_b ? (xl_value){ p->same_b[b->in[i].id] } : b->in[i];
        const xl_op *ca = constant_of(p->fa, va), *cb = constant_of(p->fb, vb);
        if (p->d->n >= p->d->most)
            return;
        if (ca && cb) {
            if (!same_constant(ca->attr[0], cb->attr[0]))
                constant(p, ca, cb, b, vb);
            continue;
        }
        int32_t na = ca ? -1 : number_arg(p->fa, va), nb = cb ? -1 : number_arg(p->fb, vb);
        if (p->d->graph && na >= -1 && nb >= -1) {
            XL_PUSH(p->d->arena, p->d->read, p->d->nread, p->d->capread, ((xl_diff_read){ na, nb, va, vb, b }));
            continue;
        }
        if (p->d->graph && p->depth == 0 && ((!ca && !cb) || p->d->stack_a.n) && /* an optimizer's zeros have lines */
            ((own_value(p->fb, p->d->came, vb) && p->d->made_a[va.id]) ||
             (own_value(p->fa, p->d->went, va) && p->d->made_b[vb.id]))) {
            set_up(p, va, vb);
            continue;
        }
        uint32_t want = p->to[va.id];
        if (one || (want != UINT32_MAX && want == vb.id) || (!ca && want == UINT32_MAX) || (!cb && !p->from[vb.id]))
            continue;
        char what[40];
        snprintf(what, sizeof what, "operand %u", i);
        xl_str was = value_words(p->d, p->fa, va), now = value_words(p->d, p->fb, vb);
        if (xl_str_eq(was, now)) { /* two of a kind: told apart by where they were made */
            was = maker_line(p->d, p->fa, va, was);
            now = maker_line(p->d, p->fb, vb, now);
        }
        bool forms = xl_diff_changes_form(b) || p->to[source_of(p->fa, va).id] == source_of(p->fb, vb).id;
        changed(p, a, b, XL_DIFF_OP, (part){ .name = what, .forms = forms }, was, now);
        one = true;
    }
}

static xl_str base_name(xl_str s) /* frontends number functions of one name: "_where_0" */
{
    while (s.n && ((s.p[s.n - 1] >= '0' && s.p[s.n - 1] <= '9') || s.p[s.n - 1] == '_'))
        s.n--;
    return s;
}

static uint32_t computing_ops(const xl_func *f, uint64_t *code)
{
    uint32_t n = 0;
    for (uint32_t i = 0; f->body && i < f->body->nop; i++) {
        uint16_t c = f->body->op[i]->code;
        if (c != XL_OP_CONSTANT && c != XL_OP_BROADCAST_IN_DIM && c != XL_OP_RETURN)
            code[n++] = c;
    }
    return n;
}

/* Of the ops that compute something in the longer function at least half are in the other. */
static bool much_alike(xl_differ *d, const xl_func *fa, const xl_func *fb)
{
    uint64_t *x = xl_new(d->arena, uint64_t, fa->body ? fa->body->nop : 0),
             *y = xl_new(d->arena, uint64_t, fb->body ? fb->body->nop : 0);
    uint32_t na = computing_ops(fa, x), nb = computing_ops(fb, y), same = 0;
    int32_t *to = xl_new(d->arena, int32_t, na);
    xl_align(d->arena, x, na, y, nb, to);
    for (uint32_t i = 0; i < na; i++)
        same += to[i] >= 0;
    return 2 * same >= (na > nb ? na : nb);
}

/* Of each argument of a function that is called. */
static const uint64_t *operands_read(xl_differ *d, const uint64_t *on, const xl_op *call, const xl_func *callee)
{
    uint64_t *reads = xl_new(d->arena, uint64_t, callee->body ? callee->body->narg : 0);
    for (uint32_t i = 0; callee->body && i < callee->body->narg && i < call->nin; i++)
        reads[i] = on[call->in[i].id];
    return reads;
}

/* Two calls that pair up: into the functions, unless these are another function altogether. */
static void callees(pair *p, const xl_op *a, const xl_op *b)
{
    xl_differ *d = p->d;
    uint32_t slot = a->code == XL_OP_CALL ? XL_SLOT(CALL, callee) : XL_SLOT(COMPOSITE, decomposition);
    xl_str na = xl_op_str(a, slot), nb = xl_op_str(b, slot);
    const xl_func *ga = xl_module_func(d->a, na), *gb = xl_module_func(d->b, nb);
    if (!ga || !gb || p->depth >= 64)
        return;
    if (!xl_str_eq(base_name(na), base_name(nb)) && !much_alike(d, ga, gb)) {
        changed(p, a, b, XL_DIFF_OP, (part){ .name = "function" }, na, nb);
        return;
    }
    xl_diff x = { 0 };
    place_op(p, d->b, b, &x);
    xl_diff_way way = { .depth = p->depth + 1,
                        .from_line = { x.file, x.line },
                        .reads_a = operands_read(d, p->flow_a.on, a, ga),
                        .reads_b = operands_read(d, p->flow_b.on, b, gb) };
    xl_diff_funcs(d, ga, gb, &way);
}

static void ops(pair *p, const xl_op *a, const xl_op *b, bool alike)
{
    xl_differ *d = p->d;
    for (uint32_t i = 0; i < a->nout && i < b->nout; i++) {
        became(p, a->out[i], b->out[i]);
        if (d->shapes || d->nouter)
            xl_diff_sizes(d, xl_out_type(p->fa, a, i), xl_out_type(p->fb, b, i));
    }
    if (d->n >= d->most)
        return;
    if (a->code == XL_OP_CALL || a->code == XL_OP_COMPOSITE)
        callees(p, a, b);
    uint32_t before = d->told;
    if (!alike) {
        if (a->code != XL_OP_CONSTANT) {
            const xl_attr_row *row = &xl_attr_rows[xl_ops[a->code].row0];
            for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)a->code); i < n; i++) {
                if (row[i].want == XL_AK_SYM || row[i].want == XL_AK_SYMS ||
                    (d->shapes && follows_shapes(row[i].want)) || xl_attr_eq(a->attr[i], b->attr[i]))
                    continue;
                xl_diff_kind kind = row[i].want == XL_AK_SHARDING || row[i].want == XL_AK_SHARDINGS
                                        ? XL_DIFF_SHARDING
                                        : xl_diff_attr_kind(xl_str_of(row[i].name));
                if (a->code == XL_OP_SLICE) { /* a piece of another size is told by its type, else where it begins */
                    if (i != XL_SLOT(SLICE, start_indices) ||
                        !xl_type_eq(xl_out_type(p->fa, a, 0), xl_out_type(p->fb, b, 0)))
                        continue;
                    kind = XL_DIFF_INDEX;
                }
                changed(p, a, b, kind, (part){ row[i].name, 0, true }, xl_say_attr(d->arena, a->attr[i]),
                        xl_say_attr(d->arena, b->attr[i]));
            }
        }
        op_ctx c = { p, a, b };
        xl_diff_dicts(d, a->extra, b->extra, op_attr, &c);
    }
    bool results = a->code == XL_OP_RETURN && p->depth == 0; /* told as such */
    if (a->nin != b->nin && !results) {                    /* a list of arrays: its length is a size */
        xl_diff_size(d, a->nin, b->nin);
        changed(p, a, b, XL_DIFF_OP, (part){ .name = "number of operands" }, xl_strf(d->arena, "%u", a->nin),
                xl_strf(d->arena, "%u", b->nin));
    }
    if (!alike && d->told == before) /* else its types follow from that */
        types(p, a, b);
    wiring(p, a, b);
    for (uint32_t i = 0; i < a->nregion && i < b->nregion; i++)
        regions(p, a->region[i], b->region[i]);
    if (a->nregion != b->nregion)
        changed(p, a, b, XL_DIFF_OP, (part){ .name = "number of regions" }, xl_strf(d->arena, "%u", a->nregion),
                xl_strf(d->arena, "%u", b->nregion));
}

/* The ops of one side only: the first names, each once, and the lines of the first and last. */
typedef struct {
    xl_buf names;
    uint32_t n;
    const char *name[4];
    uint32_t nname;
    const xl_op *first, *last;
    bool more;                                             /* than these names */
    bool own_line, own_work, below, work;
} ops_run;

static void add_name(ops_run *out, const char *name)
{
    for (uint32_t i = 0; i < out->nname; i++)
        if (!strcmp(out->name[i], name))
            return;
    out->more |= out->nname == 4;
    if (out->more)
        return;
    xl_buf_printf(&out->names, "%s%s", out->nname ? ", " : "", name);
    out->name[out->nname++] = name;
}

static bool own_arg(const xl_func *f, const bool *own, const xl_op *op)
{
    for (uint32_t i = 0; i < op->nin; i++)
        if (own_value(f, own, op->in[i]) && !(xl_diff_by_graph(f) && xl_in_type(f, op, i)->rank == 0))
            return true;
    return false;
}

/* own_line: one of them is of a line that the other program has not, and none of them reads an argument that it has
 * not. */
static ops_run run_of(xl_arena *arena, const xl_func *f, const bool *own, const bool *made, const xl_diff_lines *other,
                      const xl_region *r, const uint32_t *idx, uint32_t n)
{
    ops_run out = { .n = n };
    uint64_t caller = xl_diff_line(f->m, xl_diff_caller(f->m));
    bool reads = false;
    for (uint32_t i = 0; i < n; i++) {
        const xl_op *op = r->op[idx[i]];
        uint64_t line = xl_diff_line(f->m, op->loc);
        bool below = line && line != caller; /* not what JAX places where the program is called */
        out.first = !out.first || (below && !out.below) ? op : out.first;
        out.last = below || !out.below ? op : out.last;
        out.below |= below;
        bool only = line && line != caller && !xl_diff_on_line(other, line);
        out.own_line |= only;
        out.own_work |= only && !(made && op->nout && made[op->out[0].id]);
        out.work |= !xl_diff_changes_form(op);
        reads |= own_arg(f, own, op);
        add_name(&out, op_words(arena, op));
    }
    out.own_line &= !reads;
    out.own_work &= !reads;
    return out;
}

static bool own_stack(const xl_module *m, const xl_diff_lines *other, const xl_region *r, const uint32_t *idx,
                      uint32_t n)
{
    for (uint32_t i = 0; other->n && i < n; i++) {
        uint64_t stack = xl_loc_stack(m, r->op[idx[i]]->loc);
        if (stack && !xl_diff_on_line(other, stack))
            return true;
    }
    return false;
}

static bool same_op(const xl_op *x, const xl_op *y, const uint32_t *same)
{
    if (x->code != y->code || x->nin != y->nin || x->extra != y->extra)
        return false;
    for (uint32_t i = 0; i < x->nin; i++)
        if (same[x->in[i].id] != same[y->in[i].id])
            return false;
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)x->code); i < n; i++)
        if (x->attr[i] != y->attr[i] && !(x->attr[i] && y->attr[i] && xl_attr_eq(x->attr[i], y->attr[i])))
            return false;
    return true;
}

/* PyTorch/XLA shares an op in one trace and repeats it in the next: the body without what an earlier op computes
 * already, and for each value the one that it equals. */
static const xl_region *lean(xl_differ *d, const xl_func *f, const uint32_t **equals)
{
    const xl_region *r = f->body;
    xl_region *out = xl_new(d->arena, xl_region, 1);
    uint32_t *same = xl_new(d->arena, uint32_t, f->nval);
    xl_table seen = { 0 }; /* of r->op, by op and operands */
    xl_table_reserve(&seen, d->arena, r->nop);
    for (uint32_t i = 0; i < f->nval; i++)
        same[i] = i;
    *out = *r;
    out->op = xl_new(d->arena, xl_op *, r->nop);
    out->nop = 0;
    for (uint32_t i = 0; i < r->nop; i++) {
        xl_op *op = r->op[i];
        bool plain = op->nout == 1 && !op->nregion && op->nin && !(xl_ops[op->code].flags & XL_OP_EFFECT) &&
                     op->code != XL_OP_CUSTOM_CALL && op->code != XL_OP_CALL;
        uint64_t h = plain ? xl_op_hash(f, op) : 0;
        for (uint32_t k = 0; plain && k < op->nin; k++)
            h = xl_hash64(&same[op->in[k].id], sizeof *same, h);
        const xl_op *first = NULL;
        XL_TABLE_EACH(&seen, (uint32_t)h, k)
        if (plain && !first && same_op(r->op[k], op, same))
            first = r->op[k];
        if (first) {
            same[op->out[0].id] = first->out[0].id;
            continue;
        }
        if (plain)
            xl_table_add(&seen, d->arena, (uint32_t)h, i);
        out->op[out->nop++] = op;
    }
    *equals = same;
    return out;
}

/* Per value: no array argument is needed for it. */
bool *xl_diff_made_of_numbers(xl_differ *d, const xl_func *f)
{
    bool *made = xl_new(d->arena, bool, f->nval);
    for (uint32_t i = 0; i < f->body->narg; i++)
        made[f->body->arg[i].id] = xl_diff_arg_type(f, i)->rank == 0;
    for (uint32_t i = 0; i < f->body->nop; i++) {
        const xl_op *op = f->body->op[i];
        bool all = true;
        for (uint32_t k = 0; k < op->nin; k++)
            all &= made[op->in[k].id];
        for (uint32_t k = 0; k < op->nout; k++)
            made[op->out[k].id] = all;
    }
    return made;
}

/* One note for the ops that went and came at one place. */
static void came_and_went(pair *p, const xl_region *ra, const uint32_t *went, uint32_t nwent, const xl_region *rb,
                          const uint32_t *came, uint32_t ncame)
{
    xl_differ *d = p->d;
    if ((!nwent && !ncame) || d->n >= d->most)
        return;
    const bool *made_a = p->depth == 0 ? d->made_a : NULL, *made_b = p->depth == 0 ? d->made_b : NULL;
    ops_run old = run_of(d->arena, p->fa, d->went, made_a, &d->of_b, ra, went, nwent),
            new = run_of(d->arena, p->fb, d->came, made_b, &d->of_a, rb, came, ncame), *shown = ncame ? &new : &old;
    d->work |= old.work || new.work;
    const xl_module *m = ncame ? d->b : d->a;
    d->own_stack |= own_stack(d->a, &d->stack_b, ra, went, nwent) || own_stack(d->b, &d->stack_a, rb, came, ncame);
    xl_diff x = { .kind = XL_DIFF_OP, .arg = -1, .dim = -1, .follows = !old.own_line && !new.own_line }, y = { 0 };
    x.at_call = !old.below && !new.below;
    x.makes = !old.own_work && !new.own_work;
    x.forms = !old.work && !new.work;
    for (uint32_t i = 0; i < nwent; i++)
        x.reads |= reads_of(p->flow_a.met, ra->op[went[i]]);
    for (uint32_t i = 0; i < ncame; i++)
        x.reads |= reads_of(p->flow_b.met, rb->op[came[i]]);
    place_op(p, m, shown->first, &x);
    xl_diff_place(m, shown->last->loc, &y);
    xl_str until = { "", 0 };
    x.last = y.file.n && y.line > x.line ? y.line : x.line;
    if (x.last > x.line && xl_str_eq(x.file, y.file))
        until = xl_strf(d->arena, "-%u", y.line);
    x.ops = nwent + ncame;
    x.before = xl_str_dup(d->arena, xl_buf_view(&old.names));
    x.after = xl_str_dup(d->arena, xl_buf_view(&new.names));
    const char *more = shown->more ? ", ..." : "";
    xl_str what = ncame ? x.after : x.before,
           where = xl_strf(d->arena, "%.*s%.*s", XL_FMT(xl_diff_at(d, &x)), XL_FMT(until));
    if (nwent && ncame)
        x.text = xl_strf(d->arena, "%.*s%s in place of %.*s%s%.*s", XL_FMT(what), more, XL_FMT(x.before),
                         old.more ? ", ..." : "", XL_FMT(where));
    else if (shown->n == 1)
        x.text = xl_strf(d->arena, "%.*s was %s%.*s", XL_FMT(what), ncame ? "added" : "removed", XL_FMT(where));
    else
        x.text = xl_strf(d->arena, "%u ops were %s: %.*s%s%.*s", shown->n, ncame ? "added" : "removed", XL_FMT(what),
                         more, XL_FMT(where));
    xl_diff_note(d, x);
    xl_buf_fini(&old.names);
    xl_buf_fini(&new.names);
}

/* What an op is when types and sizes are left out. */
static uint64_t loose(const xl_op *op, bool with_attrs, const xl_module *m)
{
    uint64_t h = xl_hash64(&op->code, sizeof op->code, op->nin * 31u + op->nout);
    if (op->code == XL_OP_UNKNOWN)
        h = xl_hash64(op->name.p, op->name.n, h);
    if (op->code == XL_OP_CUSTOM_CALL) {
        xl_str t = xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name));
        h = xl_hash64(t.p, t.n, h);
    }
    for (uint32_t i = 0; i < op->nregion; i++)
        for (uint32_t k = 0; k < op->region[i]->nop && k < 64; k++)
            h = xl_hash64(&op->region[i]->op[k]->code, sizeof(uint16_t), h);
    if (with_attrs) {
        const xl_attr_row *row = &xl_attr_rows[xl_ops[op->code].row0];
        for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++)
            if (op->attr[i] && op->attr[i]->kind != XL_AT_SYM && !follows_shapes(row[i].want)) {
                if (op->code == XL_OP_CONSTANT)
                    h = xl_hash64(op->attr[i]->data.p, op->attr[i]->data.n < 64 ? op->attr[i]->data.n : 64, h);
                else
                    h ^= xl_attr_hash(m, op->attr[i]) * (i + 1);
            }
    }
    return h;
}

static uint64_t kind_of(const xl_op *op, const xl_module *m, uint32_t own)
{
    if (op->code == XL_OP_CONSTANT)
        return xl_hash64(&own, sizeof own, 11); /* no partner */
    return op->code == XL_OP_CUSTOM_CALL ? loose(op, false, m) : xl_hash64(&op->code, 2, 7);
}

static uint64_t on_line(const xl_op *op, const xl_module *m, uint64_t key)
{
    xl_str file;
    uint32_t line, col;
    return xl_loc_line(m, op->loc, &file, &line, &col) ? xl_hash64(file.p, file.n, key + line) : key;
}

/* Pairs ops by their keys. Of several that are alike those of one line are partners, as long as that leaves none more
 * alone: lines move when a file is edited. */
static void align_ops(xl_differ *d, xl_op *const *a, const uint64_t *x, uint32_t na, xl_op *const *b, const uint64_t *y,
                      uint32_t nb, int32_t *to)
{
    uint64_t *u = xl_new(d->arena, uint64_t, na), *v = xl_new(d->arena, uint64_t, nb);
    int32_t *lines = xl_new(d->arena, int32_t, na);
    uint32_t n = 0, n_lines = 0;
    for (uint32_t i = 0; i < na; i++)
        u[i] = on_line(a[i], d->a, x[i]);
    for (uint32_t i = 0; i < nb; i++)
        v[i] = on_line(b[i], d->b, y[i]);
    xl_align(d->arena, x, na, y, nb, to);
    xl_align(d->arena, u, na, v, nb, lines);
    for (uint32_t i = 0; i < na; i++) {
        n += to[i] >= 0;
        n_lines += lines[i] >= 0;
    }
    if (n_lines >= n && na)
        memcpy(to, lines, na * sizeof *to);
}

/* Told where it came or went: a constant is left to those that read it, a key's mark was told with the key. */
static bool apart(const xl_func *f, const xl_op *op, const xl_differ *d)
{
    return op->code != XL_OP_CONSTANT && !(d->keys && xl_diff_key_mark(f, op));
}

/* Pairs the ops between two pairs by kind; what is left came or went. */
static void gap(pair *p, const xl_region *ra, uint32_t a0, uint32_t a1, const xl_region *rb, uint32_t b0, uint32_t b1)
{
    xl_differ *d = p->d;
    uint32_t na = a1 - a0, nb = b1 - b0, nwent = 0, ncame = 0, k = 0;
    if (na == 0 && nb == 0)
        return;
    uint64_t *x = xl_new(d->arena, uint64_t, na), *y = xl_new(d->arena, uint64_t, nb);
    int32_t *to = xl_new(d->arena, int32_t, na);
    uint32_t *went = xl_new(d->arena, uint32_t, na), *came = xl_new(d->arena, uint32_t, nb);
    for (uint32_t i = 0; i < na; i++)
        x[i] = kind_of(ra->op[a0 + i], d->a, 2 * i);
    for (uint32_t i = 0; i < nb; i++)
        y[i] = kind_of(rb->op[b0 + i], d->b, 2 * i + 1);
    align_ops(d, ra->op + a0, x, na, rb->op + b0, y, nb, to);
    for (uint32_t i = 0; i <= na; i++) {
        if (i < na && to[i] < 0) {
            if (apart(p->fa, ra->op[a0 + i], d))
                went[nwent++] = a0 + i;
            continue;
        }
        uint32_t stop = i < na ? (uint32_t)to[i] : nb;
        for (; k < stop; k++)
            if (apart(p->fb, rb->op[b0 + k], d))
                came[ncame++] = b0 + k;
        came_and_went(p, ra, went, nwent, rb, came, ncame);
        nwent = ncame = 0;
        if (i < na) {
            ops(p, ra->op[a0 + i], rb->op[b0 + k], false);
            k++;
        }
    }
}

static void regions(pair *p, const xl_region *ra, const xl_region *rb)
{
    xl_differ *d = p->d;
    uint32_t a0 = 0, b0 = 0;
    bool loosely = d->shapes || d->dtypes;
    for (uint32_t i = 0; i < ra->narg && i < rb->narg; i++)
        if (p->fa->body->arg != ra->arg) /* the function's own are set by its caller */
            became(p, ra->arg[i], rb->arg[i]);
    uint64_t *x = xl_new(d->arena, uint64_t, ra->nop), *y = xl_new(d->arena, uint64_t, rb->nop);
    int32_t *to = xl_new(d->arena, int32_t, ra->nop);
    for (uint32_t i = 0; i < ra->nop; i++)
        x[i] = loosely ? loose(ra->op[i], true, d->a) : xl_op_hash(p->fa, ra->op[i]);
    for (uint32_t i = 0; i < rb->nop; i++)
        y[i] = loosely ? loose(rb->op[i], true, d->b) : xl_op_hash(p->fb, rb->op[i]);
    align_ops(d, ra->op, x, ra->nop, rb->op, y, rb->nop, to);
    for (uint32_t i = 0; i < ra->nop; i++) {
        if (to[i] < 0)
            continue;
        gap(p, ra, a0, i, rb, b0, (uint32_t)to[i]);
        ops(p, ra->op[i], rb->op[to[i]], !loosely);
        a0 = i + 1;
        b0 = (uint32_t)to[i] + 1;
    }
    gap(p, ra, a0, ra->nop, rb, b0, rb->nop);
}

void xl_diff_funcs(xl_differ *d, const xl_func *fa, const xl_func *fb, const xl_diff_way *way)
{
    for (uint32_t i = 0; i < d->nseen; i++)
        if (d->seen[i].a == fa && d->seen[i].b == fb)
            return;
    XL_PUSH(d->arena, d->seen, d->nseen, d->capseen, ((xl_diff_func_pair){ fa, fb }));
    if (!fa->body || !fb->body)
        return;
    pair p = { .d = d, .fa = fa, .fb = fb, .depth = way->depth, .from_line = way->from_line };
    p.flow_a = xl_diff_flow_of(d->arena, fa, way->reads_a);
    p.flow_b = xl_diff_flow_of(d->arena, fb, way->reads_b);
    p.to = xl_new(d->arena, uint32_t, fa->nval);
    p.from = xl_new(d->arena, bool, fb->nval);
    memset(p.to, 0xff, fa->nval * sizeof *p.to);
    for (uint32_t i = 0; i < fa->body->narg; i++) {
        int32_t k = way->args_to ? way->args_to[i] : i < fb->body->narg ? (int32_t)i : -1;
        if (k >= 0)
            became(&p, fa->body->arg[i], fb->body->arg[k]);
    }
    bool graph = way->depth == 0 && d->graph;
    const xl_region *ra = graph ? lean(d, fa, &p.same_a) : fa->body, *rb = graph ? lean(d, fb, &p.same_b) : fb->body;
    regions(&p, ra, rb);
}
