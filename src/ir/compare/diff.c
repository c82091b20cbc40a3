/* What differs between two programs.
 *
 * Arguments first: by name where both programs name them, else by position. Then the ops of the two entry functions, as
 * sequences: ops that are wholly alike pair up (by xl_op_hash), and what lies between two such pairs is paired by kind
 * of op alone. A pair that differs is described by its attributes, its types, its regions; what has no partner was
 * added, removed or replaced.
 * Called functions are compared where the calls that lead to them pair up. Constants are compared where ops that pair
 * up read them: their order says nothing, and one that only a new op reads belongs to that op.
 *
 * One change often alters hundreds of ops. So a type that follows from operands already different, or from an attribute
 * of its own op, is no difference of its own, and when argument types differ, sizes in attributes and in constants are
 * taken to follow.
 * What follows from sizes or arguments that differ and is yet worth naming is marked so: constants that are computed
 * from a size (the divisor of a mean), and ops of a line that both programs have. A branch that became active brings
 * lines of its own. */
#include "ir/compare/diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/table.h"
#include "ir/compare/hash.h"

typedef struct { const xl_func *a, *b; } func_pair;
typedef struct { const xl_op *a, *b; } op_pair;
typedef struct { xl_str file; uint32_t line; } site;
typedef struct { double before, after; } size_pair;
typedef struct { uint64_t *p; uint32_t n; } lines;
typedef struct { int32_t a, b; xl_value va, vb; const xl_op *use; } number_read; /* scalar arguments; -1: a constant */

typedef struct {
    xl_arena *arena;
    const xl_module *a, *b;
    xl_diff *list;
    uint32_t n, cap, most;
    uint32_t told;                                         /* notes so far, repeated ones too */
    bool shapes, dtypes;                                   /* of arguments differ: much else follows */
    bool arguments, numbers;                               /* came or went: */
    bool *went, *came;                                     /* of the two entry functions */
    bool *fixed, *freed;                                   /* of these: a constant stands in their place */
    size_pair *size;                                       /* sizes that differ: of arguments, then inside */
    uint32_t nsize, capsize, nouter;
    lines of_a, of_b;
    lines stack_a, stack_b;                                /* PyTorch/XLA: of all frames, the libraries' too */
    bool graph;                                            /* both are PyTorch/XLA's */
    bool own_stack;                                        /* an op came or went that has none of the other's */
    bool work;                                             /* an op came or went that does more than change a form */
    bool *made_a, *made_b;                                 /* PyTorch/XLA: values that need no array argument */
    number_read *read;                                     /* PyTorch/XLA: where ops that pair up read numbers */
    uint32_t nread, capread;
    func_pair *seen;
    uint32_t nseen, capseen;
    op_pair *constant;                                     /* pairs of constants that are in the list, or need not be */
    uint32_t nconstant, capconstant;
} diff;

/* The functions being compared, which value of a became which of b (UINT32_MAX: none), which of b came from one of a,
 * and the line of the call that led here, for ops that name none: a frontend's own functions (jax.nn) do not. */
typedef struct {
    diff *d;
    const xl_func *fa, *fb;
    uint32_t *to;
    bool *from;
    int depth;
    site from_line;
    const uint32_t *same_a, *same_b; /* of values that an earlier op computes too: that one's; NULL: none do */
} pair;

static void became(pair *p, xl_value a, xl_value b)
{
    p->to[a.id] = b.id;
    p->from[b.id] = true;
}

const char *xl_diff_word(xl_diff_kind kind)
{
    static const char *const word[] = { "shape",  "dtype",    "sharding", "constant", "op",
                                        "layout", "donation", "args",     "order",    "key",
                                        "index",  "setup",    "identical" };
    return word[kind];
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */
static uint64_t line_number(const xl_module *m, xl_loc loc)
{
    xl_str file;
    uint32_t line, col;
    return xl_loc_line(m, loc, &file, &line, &col) ? xl_hash64(file.p, file.n, line) : 0;
}

/* Where the program was called from: JAX gives that place to the return. */
static xl_loc called_from(const xl_module *m)
{
    const xl_func *f = xl_module_entry(m);
    const xl_region *r = f ? f->body : NULL;
    return r && r->nop && r->op[r->nop - 1]->code == XL_OP_RETURN ? r->op[r->nop - 1]->loc : (xl_loc){ 0 };
}

typedef uint64_t number_fn(const xl_module *m, xl_loc loc); /* line_number or xl_loc_stack */

static void lines_of(xl_arena *arena, const xl_module *m, number_fn *number, const xl_region *r, uint64_t caller,
                     lines *out, uint32_t *cap)
{
    for (uint32_t i = 0; r && i < r->nop; i++) {
        const xl_op *op = r->op[i];
        bool own = op->code != XL_OP_RETURN && op->code != XL_OP_CONSTANT && xl_loc_stack(m, op->loc) != caller;
        uint64_t line = own ? number(m, op->loc) : 0;
        if (line && !(out->n && out->p[out->n - 1] == line))
            XL_PUSH(arena, out->p, out->n, *cap, line);
        for (uint32_t k = 0; k < op->nregion; k++)
            lines_of(arena, m, number, op->region[k], caller, out, cap);
    }
}

static int by_line(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static lines numbers_of(xl_arena *arena, const xl_module *m, number_fn *number)
{
    lines all = { 0 };
    uint32_t cap = 0, kept = 0;
    for (uint32_t f = 0; f < m->nfunc; f++)
        lines_of(arena, m, number, m->func[f]->body, xl_loc_stack(m, called_from(m)), &all, &cap);
    if (all.n)
        qsort(all.p, all.n, sizeof *all.p, by_line);
    for (uint32_t i = 0; i < all.n; i++)
        if (!i || all.p[i] != all.p[i - 1])
            all.p[kept++] = all.p[i];
    all.n = kept;
    return all;
}

uint64_t *xl_module_lines(xl_arena *arena, const xl_module *m, uint32_t *n)
{
    lines all = numbers_of(arena, m, line_number);
    *n = all.n;
    return all.p;
}

static bool on_line(const lines *l, uint64_t line) { return l->n && bsearch(&line, l->p, l->n, sizeof *l->p, by_line); }

/* ---- consequences ------------------------------------------------------------------------------------------------ */
/* Sizes or arguments differ: ops may come and go with them. */
static bool moved(const diff *d) { return d->shapes || d->dtypes || d->arguments || d->nsize; }

static void size_differs(diff *d, int64_t before, int64_t after)
{
    if (before <= 0 || after <= 0 || before == after || d->nsize >= 64)
        return;
    for (uint32_t i = 0; i < d->nsize; i++)
        if (d->size[i].before == (double)before && d->size[i].after == (double)after)
            return;
    XL_PUSH(d->arena, d->size, d->nsize, d->capsize, ((size_pair){ (double)before, (double)after }));
}

/* Of two types: the dimensions that differ, and the number of elements. */
static void sizes_differ(diff *d, const xl_type *s, const xl_type *t)
{
    int64_t before = 1, after = 1;
    if (s->kind != XL_TY_TENSOR || t->kind != XL_TY_TENSOR)
        return;
    for (uint32_t q = 0; q < s->rank || q < t->rank; q++) {
        int64_t x = q < s->rank ? s->dims[q] : 1, y = q < t->rank ? t->dims[q] : 1;
        if (x <= 0 || y <= 0 || before > INT64_MAX / x || after > INT64_MAX / y)
            return;
        size_differs(d, x, y);
        before *= x;
        after *= y;
    }
    size_differs(d, before, after);
}

static bool whole(double x) { return fabs(x) < 1e15 && fabs(x - round(x)) <= 1e-4 * fmax(1, fabs(x)); }
static bool near(double x, double y) { return fabs(x - y) <= 1e-4 * fmax(fabs(x), fabs(y)); }

/* A number that is computed from a size: the size itself, one more or less, a multiple, or the reciprocal or root of
 * one of these. */
static bool from_size(const diff *d, double before, double after)
{
    if (before == 0 || after == 0)
        return false;
    const double form[4][2] = { { before, after }, { 1 / before, 1 / after }, { before * before, after * after },
                                { 1 / (before * before), 1 / (after * after) } };
    for (uint32_t i = 0; i < d->nsize; i++)
        for (uint32_t k = 0; k <= i; k++) {                /* a size, or the product of two arguments' */
            if (k < i && i >= d->nouter)
                continue;
            double was = d->size[i].before * (k < i ? d->size[k].before : 1),
                   is = d->size[i].after * (k < i ? d->size[k].after : 1);
            for (int q = 0; q < 4; q++) {
                double x = form[q][0], y = form[q][1];
                if (!whole(x) || !whole(y))
                    continue;
                if (near(x * is, y * was) || near(y - x, is - was) || near((x + 1) * is, (y + 1) * was) ||
                    near((x - 1) * is, (y - 1) * was))
                    return true;
            }
            if (near(after - before, log(is / was)))
                return true;
        }
    return false;
}

/* ---- notes ------------------------------------------------------------------------------------------------------ */
static void note(diff *d, xl_diff x)
{
    d->told++;
    for (uint32_t i = 0; i < d->n; i++)                    /* one change in a loop over layers is one sentence */
        if (x.arg < 0 && xl_str_eq(d->list[i].text, x.text)) {
            d->list[i].times++;
            return;
        }
    if (d->n >= d->most)
        return;
    x.times = 1;
    XL_PUSH(d->arena, d->list, d->n, d->cap, x);
}

static void place(const xl_module *m, xl_loc loc, xl_diff *x)
{
    uint32_t col;
    if (!xl_loc_line(m, loc, &x->file, &x->line, &col))
        x->file = (xl_str){ "", 0 };
}

static xl_str at(const diff *d, const xl_diff *x)
{
    return x->file.n ? xl_strf(d->arena, " at %.*s:%u", XL_FMT(x->file), x->line) : (xl_str){ "", 0 };
}

/* The first op in the program that reads v, looking into regions; RETURN only where there is no other. */
static const xl_op *user(const xl_region *r, xl_value v, bool ends)
{
    for (uint32_t k = 0; k < r->nop; k++) {
        const xl_op *op = r->op[k];
        if (op->code != XL_OP_RETURN || ends)
            for (uint32_t i = 0; i < op->nin; i++)
                if (op->in[i].id == v.id)
                    return op;
        for (uint32_t i = 0; i < op->nregion; i++) {
            const xl_op *in = user(op->region[i], v, ends);
            if (in)
                return in;
        }
    }
    return NULL;
}

/* The line of op as a reader of v: of a call, the line within the function that is called. */
static void place_reader(const xl_func *f, const xl_op *op, xl_value v, xl_diff *x)
{
    if (op->code == XL_OP_CALL && f->m) {
        const xl_func *g = xl_module_func(f->m, xl_op_str(op, XL_SLOT(CALL, callee)));
        for (uint32_t i = 0; g && g->body && i < op->nin && i < g->body->narg; i++)
            if (op->in[i].id == v.id) {
                const xl_op *in = user(g->body, g->body->arg[i], false);
                if (in)
                    place(f->m, in->loc, x);
            }
    }
    if (!x->file.n)
        place(f->m, op->loc, x);
}

/* The first op that reads v, or what is made of it, on a line below the one that called the program; looking at most
 * `depth` readers on. */
static bool place_below(const xl_func *f, xl_value v, uint64_t caller, int depth, xl_diff *x)
{
    const xl_op *op = user(f->body, v, false);
    if (!op || depth == 0)
        return false;
    xl_diff y = { 0 };
    place_reader(f, op, v, &y);
    if (y.file.n && xl_hash64(y.file.p, y.file.n, y.line) != caller) {
        x->file = y.file;
        x->line = y.line;
        return true;
    }
    return op->nout == 1 && place_below(f, op->out[0], caller, depth - 1, x);
}

static void place_use(const xl_func *f, xl_value v, xl_diff *x)
{
    const xl_op *op = f->body ? user(f->body, v, false) : NULL;
    if (op && !place_below(f, v, line_number(f->m, called_from(f->m)), 8, x))
        place_reader(f, op, v, x);
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */
static uint32_t nargs(const xl_func *f) { return f->body ? f->body->narg : f->type ? f->type->nin : 0; }
static const xl_type *arg_type(const xl_func *f, uint32_t i)
{
    return f->body ? xl_value_type(f, f->body->arg[i]) : f->type->elem[i];
}

static xl_str arg_name(const xl_func *f, uint32_t i)
{
    xl_str none = { "", 0 }, name = f->body ? xl_loc_label(f->m, f->val[f->body->arg[i].id].loc) : none;
    return xl_str_is(name, "xla__device_data") ? none : name; /* PyTorch/XLA calls all of them so */
}

/* PyTorch/XLA's: its arguments have one name for all, or under no debug profile none. */
static bool by_graph(const xl_func *f)
{
    return nargs(f) && f->body &&
           (xl_str_starts(f->m->name, XL_STR("SyncTensorsGraph")) ||
            xl_str_is(xl_loc_label(f->m, f->val[f->body->arg[0].id].loc), "xla__device_data"));
}

static bool of_optimizer(const xl_func *f, uint32_t i)
{
    return f->body && xl_loc_passes(f->m, f->val[f->body->arg[i].id].loc, "/torch/optim/");
}

static xl_diff about_arg(diff *d, const xl_func *f, uint32_t i, xl_diff_kind kind)
{
    xl_diff x = { .kind = kind, .arg = (int32_t)i, .dim = -1, .name = arg_name(f, i) }, from = { 0 };
    if (f->body && !x.name.n)
        place(f->m, f->val[f->body->arg[i].id].loc, &from);
    if (from.file.n)
        x.from = xl_strf(d->arena, "%.*s:%u", XL_FMT(from.file), from.line);
    if (f->body)
        place_use(f, f->body->arg[i], &x);
    return x;
}

/* PyTorch/XLA gives its arguments one name for all, and under XLA_HLO_DEBUG the lines that they were traced from: then
 * the type, whose it is and the line tell them apart. */
static xl_str traced_words(diff *d, const xl_func *f, uint32_t i, xl_str from)
{
    if (!by_graph(f))
        return (xl_str){ "", 0 };
    const char *whose = !of_optimizer(f, i) ? "" : arg_type(f, i)->rank ? ", optimizer state" : ", of the optimizer";
    xl_str words = xl_strf(d->arena, "%.*s%s", XL_FMT(xl_say_type(d->arena, arg_type(f, i))), whose);
    return from.n ? xl_strf(d->arena, "%.*s, from %.*s", XL_FMT(words), XL_FMT(from)) : words;
}

static xl_str arg_words(diff *d, const xl_func *f, const xl_diff *x)
{
    if (x->name.n)                                         /* as the user wrote it; JSON has the number too */
        return xl_strf(d->arena, "argument `%.*s`", XL_FMT(x->name));
    xl_str name = traced_words(d, f, (uint32_t)x->arg, x->from);
    return name.n ? xl_strf(d->arena, "argument %d (%.*s)", x->arg, XL_FMT(name))
                  : xl_strf(d->arena, "argument %d", x->arg);
}

static xl_diff_kind attr_kind(xl_str key)
{
    if (xl_str_is(key, "sdy.sharding") || xl_str_is(key, "mhlo.sharding") || xl_str_is(key, "sdy.sharding_rule") ||
        xl_str_is(key, "mhlo.num_partitions") || xl_str_is(key, "mhlo.num_replicas") ||
        xl_str_starts(key, XL_STR("mhlo.spmd_")) || xl_str_is(key, "mhlo.use_auto_spmd_partitioning"))
        return XL_DIFF_SHARDING;
    if (xl_str_is(key, "tf.aliasing_output") || xl_str_is(key, "jax.buffer_donor"))
        return XL_DIFF_DONATION;
    if (xl_str_is(key, "mhlo.layout_mode") || xl_str_is(key, "mhlo.memory_kind") ||
        xl_str_ends(key, XL_STR("layouts")) || xl_str_ends(key, XL_STR("layout")))
        return XL_DIFF_LAYOUT;
    return XL_DIFF_OP;
}

static bool no_matter(xl_str key)
{
    return xl_str_is(key, "jax.result_info") || xl_str_is(key, "jax.arg_info") ||
           xl_str_is(key, "jax.uses_shape_polymorphism");
}

/* Calls fn for each key whose value differs between the dictionaries x and y. */
typedef void differ_fn(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after);
static void dicts(const diff *d, const xl_attr *x, const xl_attr *y, differ_fn *fn, void *ctx)
{
    uint32_t i = 0, k = 0, nx = x ? x->n : 0, ny = y ? y->n : 0;
    while (i < nx || k < ny) {
        int c = i >= nx ? 1 : k >= ny ? -1 : xl_str_cmp(x->key[i], y->key[k]);
        const xl_attr *before = c <= 0 ? x->item[i] : NULL, *after = c >= 0 ? y->item[k] : NULL;
        xl_str key = c <= 0 ? x->key[i] : y->key[k];
        if (!no_matter(key) &&
            !(before && after &&
              (xl_attr_eq(before, after) || xl_attr_hash(d->a, before) == xl_attr_hash(d->b, after))))
            fn(ctx, key, before, after);
        i += c <= 0;
        k += c >= 0;
    }
}

typedef struct { diff *d; const xl_func *f; uint32_t i; const char *what; bool donated; } arg_ctx;

static void arg_attr(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after)
{
    arg_ctx *c = ctx;
    diff *d = c->d;
    bool arg = c->what == NULL;
    xl_diff x = { .kind = attr_kind(key), .arg = -1, .dim = -1 };
    if (arg)
        x = about_arg(d, c->f, c->i, x.kind);
    xl_str who = arg ? arg_words(d, c->f, &x) : xl_strf(d->arena, "%s", c->what);
    if (x.kind == XL_DIFF_DONATION) { /* which output it goes to follows; that it is given away is the point */
        if (c->donated)
            return;
        c->donated = true;
        x.before = before ? XL_STR("donated") : XL_STR("kept");
        x.after = after ? XL_STR("donated") : XL_STR("kept");
        if (before && after) {
            x.before = xl_say_attr(d->arena, before);
            x.after = xl_say_attr(d->arena, after);
            x.text = xl_strf(d->arena, "%.*s is donated to output %.*s, before to %.*s", XL_FMT(who), XL_FMT(x.after),
                             XL_FMT(x.before));
        } else
            x.text = after ? xl_strf(d->arena, "%.*s is now donated", XL_FMT(who))
                           : xl_strf(d->arena, "%.*s is no longer donated", XL_FMT(who));
    } else {
        x.before = xl_say_attr(d->arena, before);
        x.after = xl_say_attr(d->arena, after);
        if (x.kind == XL_DIFF_SHARDING)
            x.text = xl_strf(d->arena, "%.*s: sharding %.*s -> %.*s", XL_FMT(who), XL_FMT(x.before), XL_FMT(x.after));
        else
            x.text = xl_strf(d->arena, "%.*s: %.*s %.*s -> %.*s", XL_FMT(who), XL_FMT(key), XL_FMT(x.before),
                             XL_FMT(x.after));
    }
    note(d, x);
}

/* A key of random numbers. JAX leaves out arguments that nothing reads, so one comes and goes with the branch that
 * draws (dropout). */
static bool is_key(const xl_type *t)
{
    return t->kind == XL_TY_TENSOR && t->dtype == XL_U32 && t->rank >= 1 &&
           (t->dims[t->rank - 1] == 2 || t->dims[t->rank - 1] == 4);
}

/* The same sizes in another order: it was transposed. */
static bool transposed(const xl_type *s, const xl_type *t)
{
    uint64_t seen = 0;
    if (s->rank != t->rank || s->rank > 64 || s->dtype != t->dtype ||
        !memcmp(s->dims, t->dims, s->rank * sizeof *s->dims))
        return false;
    for (uint32_t i = 0; i < s->rank; i++) {
        uint32_t k = 0;
        while (k < t->rank && (seen >> k & 1 || t->dims[k] != s->dims[i]))
            k++;
        if (k == t->rank)
            return false;
        seen |= UINT64_C(1) << k;
    }
    return true;
}

static void one_arg(diff *d, const xl_func *fa, uint32_t i, const xl_func *fb, uint32_t k)
{
    const xl_type *s = arg_type(fa, i), *t = arg_type(fb, k);
    if (s->kind != XL_TY_TENSOR || t->kind != XL_TY_TENSOR || s->rank != t->rank || transposed(s, t)) {
        if (!xl_type_eq(s, t)) {
            xl_diff x = about_arg(d, fb, k, XL_DIFF_SHAPE);
            x.before = xl_say_type(d->arena, s);
            x.after = xl_say_type(d->arena, t);
            x.text = xl_strf(d->arena, "%.*s: %.*s -> %.*s%.*s", XL_FMT(arg_words(d, fb, &x)),
                             XL_FMT(x.before), XL_FMT(x.after), XL_FMT(at(d, &x)));
            d->shapes = true;
            sizes_differ(d, s, t);
            note(d, x);
        }
    } else {
        for (uint32_t q = 0; q < s->rank; q++) {
            int64_t bs = s->bounds ? s->bounds[q] : XL_DYN, bt = t->bounds ? t->bounds[q] : XL_DYN;
            if (s->dims[q] == t->dims[q] && bs == bt)
                continue;
            bool key = q + 1 == s->rank && is_key(s) && is_key(t);
            xl_diff x = about_arg(d, fb, k, key ? XL_DIFF_KEY : XL_DIFF_SHAPE);
            x.dim = (int32_t)q;
            x.size = t->dims[q];
            x.before = s->dims[q] >= 0 ? xl_strf(d->arena, "%lld", (long long)s->dims[q])
                       : bs >= 0       ? xl_strf(d->arena, "<=%lld", (long long)bs)
                                       : XL_STR("?");
            x.after = t->dims[q] >= 0 ? xl_strf(d->arena, "%lld", (long long)t->dims[q])
                      : bt >= 0       ? xl_strf(d->arena, "<=%lld", (long long)bt)
                                      : XL_STR("?");
            if (key)
                x.text = xl_strf(d->arena, "%.*s: a random key of %.*s words, before of %.*s%.*s",
                                 XL_FMT(arg_words(d, fb, &x)), XL_FMT(x.after), XL_FMT(x.before), XL_FMT(at(d, &x)));
            else
                x.text = xl_strf(d->arena, "%.*s: dimension %u is %.*s, before %.*s%.*s", XL_FMT(arg_words(d, fb, &x)),
                                 q, XL_FMT(x.after), XL_FMT(x.before), XL_FMT(at(d, &x)));
            d->shapes = true;
            size_differs(d, s->dims[q], t->dims[q]);
            note(d, x);
        }
        if (s->dtype != t->dtype) {
            xl_diff x = about_arg(d, fb, k, XL_DIFF_DTYPE);
            x.before = xl_str_of(xl_dtypes[s->dtype].text);
            x.after = xl_str_of(xl_dtypes[t->dtype].text);
            x.text = xl_strf(d->arena, "%.*s: %.*s, before %.*s%.*s", XL_FMT(arg_words(d, fb, &x)), XL_FMT(x.after),
                             XL_FMT(x.before), XL_FMT(at(d, &x)));
            d->dtypes = true;
            note(d, x);
        }
    }
    arg_ctx c = { d, fb, k, NULL, false };
    dicts(d, fa->arg_attr ? fa->arg_attr[i] : NULL, fb->arg_attr ? fb->arg_attr[k] : NULL, arg_attr, &c);
}

static bool all_named(const xl_func *f)
{
    uint32_t n = nargs(f);
    for (uint32_t i = 0; i < n; i++) {
        if (!arg_name(f, i).n)
            return false;
        for (uint32_t k = 0; k < i && n <= 4096; k++)
            if (n <= 512 && xl_str_eq(arg_name(f, i), arg_name(f, k)))
                return false;
    }
    return n > 0;
}

/* The other program has arguments of this very call: another size may bring more of them or fewer (an LSTM's steps). */
static bool of_same_call(const xl_func *f, uint32_t i, const xl_func *other)
{
    uint64_t stack = by_graph(f) && by_graph(other) ? xl_loc_stack(f->m, f->val[f->body->arg[i].id].loc) : 0;
    for (uint32_t k = 0; stack && k < nargs(other); k++)
        if (xl_loc_stack(other->m, other->val[other->body->arg[k].id].loc) == stack)
            return true;
    return false;
}

static void came_or_went(diff *d, const xl_func *f, uint32_t i, bool came)
{
    xl_diff x = about_arg(d, f, i, XL_DIFF_ARGS);
    x.again = of_same_call(f, i, xl_module_entry(came ? d->a : d->b));
    xl_str t = xl_say_type(d->arena, arg_type(f, i));
    x.state = of_optimizer(f, i);
    *(came ? &x.after : &x.before) = t;
    bool with_op = by_graph(f) && arg_type(f, i)->rank == 0; /* PyTorch/XLA: a Python number that an op reads */
    x.follows = is_key(arg_type(f, i)) || with_op;
    d->numbers |= with_op;
    d->arguments |= !x.follows;
    (came ? d->came : d->went)[i] = !x.follows || with_op;
    x.text = xl_strf(d->arena, "%.*s %s: %.*s%.*s", XL_FMT(arg_words(d, f, &x)), came ? "was added" : "was removed",
                     XL_FMT(t), XL_FMT(at(d, &x)));
    note(d, x);
}

/* Of the arguments that no name pairs up, those of one type were renamed: in order. */
static void renamed(diff *d, const xl_func *fa, const xl_func *fb, int32_t *to)
{
    uint32_t na = nargs(fa), nb = nargs(fb), k = 0;
    bool *taken = xl_new(d->arena, bool, nb);
    for (uint32_t i = 0; i < na; i++)
        if (to[i] >= 0)
            taken[to[i]] = true;
    for (uint32_t i = 0; i < na; i++) {
        while (to[i] < 0 && k < nb && taken[k])
            k++;
        if (to[i] < 0 && k < nb && xl_type_eq(arg_type(fa, i), arg_type(fb, k)))
            to[i] = (int32_t)k++;
    }
}

/* PyTorch/XLA numbers its arguments as it meets them in the graph, so another graph has them in another order: those of
 * one type and line pair up first, then those of one type, then those of one line, then those alike in rank and dtype.
 */
static bool pairs_at(const xl_func *fa, uint32_t i, const xl_func *fb, uint32_t k, int round)
{
    const xl_type *s = arg_type(fa, i), *t = arg_type(fb, k);
    uint64_t x = xl_loc_stack(fa->m, fa->val[fa->body->arg[i].id].loc),
             y = xl_loc_stack(fb->m, fb->val[fb->body->arg[k].id].loc);
    bool alike = s->rank == t->rank && s->dtype == t->dtype;
    uint32_t equal = 0;
    for (uint32_t q = 0; alike && q < s->rank; q++)
        equal += s->dims[q] == t->dims[q];
    switch (round) {
    case 0: return xl_type_eq(s, t) && x == y;
    case 1: return xl_type_eq(s, t);
    case 2: return alike && x == y && x;
    case 3: return x == y && x;
    case 4: return alike && equal;
    default: return nargs(fa) == nargs(fb) && !s->rank == !t->rank; /* a number is no array */
    }
}

static void pair_by_graph(diff *d, const xl_func *fa, const xl_func *fb, int32_t *to)
{
    uint32_t na = nargs(fa), nb = nargs(fb);
    bool *taken = xl_new(d->arena, bool, nb);
    for (uint32_t i = 0; i < na; i++)
        to[i] = -1;
    for (int round = 0; round < 6; round++)
        for (uint32_t i = 0; i < na; i++)
            for (uint32_t q = 0; to[i] < 0 && q < nb; q++) {
                uint32_t k = (i + q) % nb;                 /* mostly in place */
                if (!taken[k] && pairs_at(fa, i, fb, k, round)) {
                    to[i] = (int32_t)k;
                    taken[k] = true;
                }
            }
}

/* Fills to[] (per argument of a: index in b or -1) and notes what differs. */
static void args(diff *d, const xl_func *fa, const xl_func *fb, int32_t *to)
{
    uint32_t na = nargs(fa), nb = nargs(fb);
    int32_t *from = xl_new(d->arena, int32_t, nb);
    for (uint32_t k = 0; k < nb; k++)
        from[k] = -1;
    for (uint32_t i = 0; i < na; i++)
        to[i] = na == nb ? (int32_t)i : -1;
    if (all_named(fa) && all_named(fb) && na <= 4096 && nb <= 4096) {
        uint32_t same = 0, moved = 0;
        int32_t *by_name = xl_new(d->arena, int32_t, na);
        for (uint32_t i = 0; i < na; i++) {
            by_name[i] = -1;
            xl_str name = arg_name(fa, i);
            for (uint32_t q = 0; q < nb && by_name[i] < 0; q++) {
                uint32_t k = (i + q) % nb;                 /* mostly in place */
                if (xl_str_eq(name, arg_name(fb, k)))
                    by_name[i] = (int32_t)k;
            }
            same += by_name[i] >= 0;
            moved += by_name[i] >= 0 && by_name[i] != (int32_t)i;
        }
        /* Names that changed with nothing else are renames: then position counts. */
        if (na != nb || moved)
            memcpy(to, by_name, na * sizeof *to);
        if (na == nb && moved) {
            renamed(d, fa, fb, to);
            xl_diff x = { .kind = XL_DIFF_ORDER, .arg = -1, .dim = -1 };
            xl_buf before = { 0 }, after = { 0 };
            uint32_t shown = 0;
            for (uint32_t i = 0; i < na; i++) {
                if (xl_str_eq(arg_name(fa, i), arg_name(fb, i)))
                    continue;
                if (x.arg < 0)
                    x = about_arg(d, fb, i, XL_DIFF_ORDER);
                if (shown++ < 8) {
                    xl_buf_printf(&before, "%s%.*s", before.n ? ", " : "", XL_FMT(arg_name(fa, i)));
                    xl_buf_printf(&after, "%s%.*s", after.n ? ", " : "", XL_FMT(arg_name(fb, i)));
                }
            }
            x.before = xl_str_dup(d->arena, xl_buf_view(&before));
            x.after = xl_str_dup(d->arena, xl_buf_view(&after));
            x.text = xl_strf(d->arena, "arguments were %s: %.*s -> %.*s%s",
                             same == na ? "reordered" : "renamed and so reordered", XL_FMT(x.before), XL_FMT(x.after),
                             shown > 8 ? ", ..." : "");
            xl_buf_fini(&before);
            xl_buf_fini(&after);
            note(d, x);
        }
    } else if (by_graph(fa) && by_graph(fb) && na <= 1024 && nb <= 1024) {
        pair_by_graph(d, fa, fb, to);
    } else if (na != nb) {                                 /* no names: pair equal types in order */
        uint64_t *x = xl_new(d->arena, uint64_t, na), *y = xl_new(d->arena, uint64_t, nb);
        for (uint32_t i = 0; i < na; i++) {
            xl_str t = xl_say_type(d->arena, arg_type(fa, i));
            x[i] = xl_hash64(t.p, t.n, 1);
        }
        for (uint32_t k = 0; k < nb; k++) {
            xl_str t = xl_say_type(d->arena, arg_type(fb, k));
            y[k] = xl_hash64(t.p, t.n, 1);
        }
        xl_align(d->arena, x, na, y, nb, to);
    }
    for (uint32_t i = 0; i < na; i++)
        if (to[i] >= 0)
            from[to[i]] = (int32_t)i;
        else
            came_or_went(d, fa, i, false);
    for (uint32_t k = 0; k < nb; k++)
        if (from[k] >= 0)
            one_arg(d, fa, (uint32_t)from[k], fb, k);
        else
            came_or_went(d, fb, k, true);
}

/* ---- ops -------------------------------------------------------------------------------------------------------- */
static void regions(pair *p, const xl_region *ra, const xl_region *rb);
static void funcs(diff *d, const xl_func *fa, const xl_func *fb, const int32_t *args_to, int depth, site from_line);

static void place_op(const pair *p, const xl_module *m, const xl_op *op, xl_diff *x)
{
    place(m, op->loc, x);
    if (!x->file.n) {
        x->file = p->from_line.file;
        x->line = p->from_line.line;
    }
}

typedef struct {
    const char *name;
    int64_t size;
    bool value;
} part; /* value: before and after are short values of it */

static void changed(pair *p, const xl_op *a, const xl_op *b, xl_diff_kind kind, part what, xl_str before, xl_str after)
{
    diff *d = p->d;
    xl_diff x = { .kind = kind, .arg = -1, .dim = -1, .before = before, .after = after, .follows = kind == XL_DIFF_OP };
    x.size = what.size;
    if (what.value)
        x.part = xl_strf(d->arena, "%s %s", xl_op_text(b), what.name);
    place(d->b, b->loc, &x);
    if (!x.file.n)
        place_op(p, d->a, a, &x);
    x.text = xl_strf(d->arena, "%s: %s %.*s -> %.*s%.*s", xl_op_text(b), what.name, XL_FMT(before),
                     XL_FMT(after), XL_FMT(at(d, &x)));
    note(d, x);
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

static bool said(diff *d, const xl_op *a, const xl_op *b)
{
    for (uint32_t i = 0; i < d->nconstant; i++)
        if (d->constant[i].a == a && d->constant[i].b == b)
            return true;
    XL_PUSH(d->arena, d->constant, d->nconstant, d->capconstant, ((op_pair){ a, b }));
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
static xl_str index_words(diff *d, const xl_type *t, size_t flat)
{
    if (t->rank < 2)
        return xl_strf(d->arena, "%zu", flat);
    xl_str out = { "]", 1 };
    for (uint32_t q = t->rank; q-- > 0; flat /= (size_t)t->dims[q])
        out = xl_strf(d->arena, "%s%zu%.*s", q ? ", " : "[", flat % (size_t)t->dims[q], XL_FMT(out));
    return out;
}

/* The element at this byte of a constant. */
static xl_str element_words(diff *d, const xl_attr *a, size_t byte)
{
    xl_type scalar = { .kind = XL_TY_TENSOR, .dtype = a->dtype };
    xl_attr one = *a;
    one.data = (xl_str){ a->data.p + byte, xl_dtype_bytes(a->dtype) };
    one.type = &scalar;
    return xl_say_attr(d->arena, &one);
}

/* The constant a became b; use reads it. */
static void constant(pair *p, const xl_op *a, const xl_op *b, const xl_op *use, xl_value v)
{
    diff *d = p->d;
    const xl_attr *s = a->attr[0], *t = b->attr[0];
    xl_diff x = { .kind = XL_DIFF_CONSTANT, .arg = -1, .dim = -1 };
    bool alike = xl_type_eq(s->type, t->type);
    if (said(d, a, b))
        return;
    if (!alike && (d->shapes || d->dtypes)) { /* its type follows from the arguments': the value is what counts */
        if (s->splat || t->splat || s->type->rank || t->type->rank || d->dtypes || s->dtype != t->dtype)
            return;
    }
    if (d->stack_b.n)                                      /* PyTorch/XLA: the line that made it (arange) */
        place(d->b, b->loc, &x);
    if (!x.file.n && use->code == XL_OP_CALL) /* a value may have other readers: this one's line is meant */
        place_reader(p->fb, use, v, &x);
    if (!x.file.n)
        place_op(p, d->b, use, &x);
    if (!x.file.n)
        place(d->b, b->loc, &x);
    uint64_t line = line_number(d->b, use->loc);
    x.own_line = line && line != line_number(d->b, called_from(d->b)) && !on_line(&d->of_a, line);
    x.before = xl_say_attr(d->arena, s);
    x.after = xl_say_attr(d->arena, t);
    const char *by = xl_op_text(use);
    if (alike && !s->splat && !t->splat && s->type->rank && s->data.n == t->data.n) { /* which element */
        size_t size = xl_dtype_bytes(s->dtype), first = s->data.n, differ = 0;
        for (size_t i = 0; i < s->data.n; i += size)
            if (memcmp(s->data.p + i, t->data.p + i, size)) {
                first = first == s->data.n ? i : first;
                differ++;
            }
        x.before = element_words(d, s, first);
        x.after = element_words(d, t, first);
        x.text =
            xl_strf(d->arena, "constant %.*s, used by %s: element %.*s is %.*s, before %.*s (%zu of %zu differ)%.*s",
                    XL_FMT(xl_say_type(d->arena, t->type)), by, XL_FMT(index_words(d, t->type, first / size)),
                    XL_FMT(x.after), XL_FMT(x.before), differ, s->data.n / size, XL_FMT(at(d, &x)));
    } else if (s->dtype == t->dtype && s->type->rank && t->type->rank && !s->splat && !t->splat) { /* other lengths */
        size_t size = xl_dtype_bytes(s->dtype), most = s->data.n < t->data.n ? s->data.n : t->data.n, i = 0;
        while (i < most && !memcmp(s->data.p + i, t->data.p + i, size))
            i += size;
        xl_str from = i < most ? xl_strf(d->arena, "element %zu is %.*s, before %.*s", i / size,
                                         XL_FMT(element_words(d, t, i)), XL_FMT(element_words(d, s, i)))
                               : xl_strf(d->arena, "the first %zu elements are the same", i / size);
        x.text =
            xl_strf(d->arena, "constant %.*s -> %.*s, used by %s: %.*s%.*s", XL_FMT(xl_say_type(d->arena, s->type)),
                    XL_FMT(xl_say_type(d->arena, t->type)), by, XL_FMT(from), XL_FMT(at(d, &x)));
        x.kind = XL_DIFF_SHAPE;
        x.size = new_size(s->type, t->type);
        sizes_differ(d, s->type, t->type);
    } else if (s->dtype != t->dtype ||
               (s->type->rank && !same_shape(s->type, t->type))) { /* the values may read alike */
        x.recast = s->dtype != t->dtype;
        if (!x.recast) {                                   /* no number that somebody wrote changed */
            x.kind = XL_DIFF_SHAPE;
            x.size = new_size(s->type, t->type);
        }
        x.text = xl_strf(d->arena, "constant %.*s -> %.*s (%.*s -> %.*s), used by %s%.*s",
                         XL_FMT(xl_say_type(d->arena, s->type)), XL_FMT(xl_say_type(d->arena, t->type)),
                         XL_FMT(x.before), XL_FMT(x.after), by, XL_FMT(at(d, &x)));
    } else
        x.text = xl_strf(d->arena, "constant %.*s -> %.*s, used by %s%.*s", XL_FMT(x.before), XL_FMT(x.after), by,
                         XL_FMT(at(d, &x)));
    note(d, x);
}

typedef struct { pair *p; const xl_op *a, *b; } op_ctx;

static void op_attr(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after)
{
    op_ctx *c = ctx;
    xl_arena *arena = c->p->d->arena;
    changed(c->p, c->a, c->b, attr_kind(key), (part){ xl_str_c(arena, key), 0, true }, xl_say_attr(arena, before),
            xl_say_attr(arena, after));
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
    const xl_op *op = user(f->body, v, false);
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
    diff *d = p->d;
    if (d->shapes || d->dtypes || a->code == XL_OP_CONSTANT)
        return;
    for (uint32_t i = 0; i < a->nin && i < b->nin; i++)
        if (!xl_type_eq(xl_in_type(p->fa, a, i), xl_in_type(p->fb, b, i)))
            return;                                        /* follows from an op above */
    if (b->nout == 1 && made_of_constants(p->fb, b->out[0], 8) && follows_another(p->fb, b->out[0], 8))
        return;
    for (uint32_t i = 0; i < a->nout && i < b->nout; i++) {
        const xl_type *s = xl_out_type(p->fa, a, i), *t = xl_out_type(p->fb, b, i);
        if (xl_type_eq(s, t))
            continue;
        changed(p, a, b, same_shape(s, t) ? XL_DIFF_DTYPE : XL_DIFF_SHAPE, (part){ "result", new_size(s, t), true },
                xl_say_type(d->arena, s), xl_say_type(d->arena, t));
        sizes_differ(d, s, t);
        return;
    }
}

/* The value for a person: a constant, an argument or the op that makes it. */
static xl_str value_words(diff *d, const xl_func *f, xl_value v)
{
    const xl_val *x = &f->val[v.id];
    const xl_op *c = constant_of(f, v);
    if (c)
        return xl_strf(d->arena, "constant %.*s", XL_FMT(xl_say_attr(d->arena, c->attr[0])));
    if (x->def && x->def->nout > 1)
        return xl_strf(d->arena, "result %u of %s", x->index, xl_op_text(x->def));
    if (x->def)
        return xl_str_of(xl_op_text(x->def));
    if (x->region == f->body) {
        xl_str name = arg_name(f, x->index);
        return name.n ? name : xl_strf(d->arena, "argument %u", x->index);
    }
    return xl_strf(d->arena, "argument %u of its region", x->index);
}

static xl_str maker_line(diff *d, const xl_func *f, xl_value v, xl_str words)
{
    xl_diff x = { 0 };
    if (f->val[v.id].def)
        place(f->m, f->val[v.id].def->loc, &x);
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
    for (uint32_t i = 0; i < nargs(f); i++)
        if (own[i] && !told[i] && xl_type_eq(arg_type(f, i), t) && !t->rank)
            return (int32_t)i;
    return -1;
}

/* A state that the program writes anew, where a Python number is only read. */
static bool donated(const xl_func *f, int32_t i)
{
    const xl_attr *a = f->arg_attr ? f->arg_attr[i] : NULL;
    for (uint32_t k = 0; a && k < a->n; k++)
        if (attr_kind(a->key[k]) == XL_DIFF_DONATION)
            return true;
    return false;
}

static void note_number(diff *d, const number_read *r, bool state, xl_str before, xl_str after, xl_str words)
{
    xl_diff x = { .arg = -1, .dim = -1, .before = before, .after = after };
    x.kind = state ? XL_DIFF_SETUP : XL_DIFF_CONSTANT;
    place(d->b, r->use->loc, &x);
    x.text = xl_strf(d->arena, "%.*s, used by %s%.*s", XL_FMT(words), xl_op_text(r->use), XL_FMT(at(d, &x)));
    note(d, x);
}

/* PyTorch/XLA passes Python numbers as arguments, but 0 and 1 are constants, and equal ones are one argument. Which of
 * them came or went is known by what reads them: they have no names. */
static void numbers(diff *d, const xl_func *fa, const xl_func *fb)
{
    static const char rule[] = "PyTorch/XLA passes numbers as arguments, but for 0 and 1";
    for (uint32_t i = 0; i < d->nread; i++) {
        const number_read *r = &d->read[i];
        int32_t own;
        if (r->b == -1 && (own = unexplained(fa, d->went, d->fixed, arg_type(fa, (uint32_t)r->a))) >= 0) {
            d->fixed[own] = true;
            xl_str now = value_words(d, fb, r->vb);
            note_number(d, r, false, xl_strf(d->arena, "argument %d", r->a), now,
                        xl_strf(d->arena, "a number: %.*s is traced into the program, before argument %d (%s)",
                                XL_FMT(now), r->a, rule));
        } else if (r->a == -1 && (own = unexplained(fb, d->came, d->freed, arg_type(fb, (uint32_t)r->b))) >= 0) {
            d->freed[own] = true;
            xl_str was = value_words(d, fa, r->va);
            bool state = donated(fb, r->b);
            note_number(d, r, state, was, xl_strf(d->arena, "argument %d", r->b),
                        xl_strf(d->arena,
                                state ? "a scalar tensor: argument %d, began as %.*s, traced into the program (%s)"
                                      : "a number: argument %d, before %.*s was traced into the program (%s)",
                                r->b, XL_FMT(was), rule));
        }
    }
    for (uint32_t i = 0; i < d->nread && !d->work; i++)    /* where ops came or went, readers may be paired wrongly */
        for (uint32_t k = 0; k < i; k++) {
            const number_read *r = &d->read[i], *q = &d->read[k];
            bool paired = r->a >= 0 && r->b >= 0 && q->a >= 0 && q->b >= 0;
            int32_t own;
            if (paired && r->b == q->b && r->a != q->a &&
                (own = unexplained(fa, d->went, d->fixed, arg_type(fa, (uint32_t)r->a))) >= 0) {
                d->fixed[own] = true;
                note_number(d, r, false, xl_strf(d->arena, "argument %d", r->a), xl_strf(d->arena, "argument %d", r->b),
                            xl_strf(d->arena, "two numbers are equal now, and PyTorch/XLA passes them as one argument "
                                              "(%d, before %d and %d)", r->b, q->a, r->a));
            } else if (paired && r->a == q->a && r->b != q->b &&
                       (own = unexplained(fb, d->came, d->freed, arg_type(fb, (uint32_t)r->b))) >= 0) {
                d->freed[own] = true;
                note_number(d, r, false, xl_strf(d->arena, "argument %d", r->a), xl_strf(d->arena, "argument %d", r->b),
                            xl_strf(d->arena, "two numbers are no longer equal, and PyTorch/XLA passes them as two "
                                              "arguments (%d and %d, before %d)", q->b, r->b, r->a));
            }
        }
}

/* An array that one program makes itself and the other has as an argument: what a loop's first graph initialises. */
static void set_up(pair *p, xl_value va, xl_value vb)
{
    diff *d = p->d;
    bool given = own_value(p->fb, d->came, vb);            /* an argument now, made before */
    const xl_func *f = given ? p->fb : p->fa, *maker = given ? p->fa : p->fb;
    uint32_t i = f->val[(given ? vb : va).id].index;
    const xl_op *op = maker->val[(given ? va : vb).id].def;
    while (op && op->nin && !line_number(maker->m, op->loc))
        op = maker->val[op->in[0].id].def;
    if (!op || of_optimizer(f, i))                         /* told as such */
        return;
    for (uint32_t k = 0; k < d->n; k++) {
        xl_diff *x = &d->list[k];
        if (x->kind != XL_DIFF_ARGS || x->arg != (int32_t)i || !x->after.n == given)
            continue;
        x->kind = XL_DIFF_SETUP;
        place(maker->m, op->loc, x);
        xl_str who = xl_say_type(d->arena, arg_type(f, i));
        x->text = given ? xl_strf(d->arena, "argument %u (%.*s) was made inside the earlier program%.*s", i,
                                  XL_FMT(who), XL_FMT(at(d, x)))
                        : xl_strf(d->arena, "argument %u (%.*s) of the earlier program is made inside this one%.*s", i,
                                  XL_FMT(who), XL_FMT(at(d, x)));
    }
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
            XL_PUSH(p->d->arena, p->d->read, p->d->nread, p->d->capread, ((number_read){ na, nb, va, vb, b }));
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
        if (xl_str_eq(was, now)) {                         /* two of a kind: told apart by where they were made */
            was = maker_line(p->d, p->fa, va, was);
            now = maker_line(p->d, p->fb, vb, now);
        }
        changed(p, a, b, XL_DIFF_OP, (part){ .name = what }, was, now);
        one = true;
    }
}

static xl_str base_name(xl_str s)                          /* frontends number functions of one name: "_where_0" */
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
static bool much_alike(diff *d, const xl_func *fa, const xl_func *fb)
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

/* Two calls that pair up: into the functions, unless these are another function altogether. */
static void callees(pair *p, const xl_op *a, const xl_op *b)
{
    diff *d = p->d;
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
    funcs(d, ga, gb, NULL, p->depth + 1, (site){ x.file, x.line });
}

static void ops(pair *p, const xl_op *a, const xl_op *b, bool alike)
{
    diff *d = p->d;
    for (uint32_t i = 0; i < a->nout && i < b->nout; i++) {
        became(p, a->out[i], b->out[i]);
        if (d->shapes)
            sizes_differ(d, xl_out_type(p->fa, a, i), xl_out_type(p->fb, b, i));
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
                                        : attr_kind(xl_str_of(row[i].name));
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
        dicts(d, a->extra, b->extra, op_attr, &c);
    }
    if (a->nin != b->nin)
        changed(p, a, b, XL_DIFF_OP, (part){ .name = "number of operands" }, xl_strf(d->arena, "%u", a->nin),
                xl_strf(d->arena, "%u", b->nin));
    if (!alike && d->told == before)                       /* else its types follow from that */
        types(p, a, b);
    wiring(p, a, b);
    for (uint32_t i = 0; i < a->nregion && i < b->nregion; i++)
        regions(p, a->region[i], b->region[i]);
    if (a->nregion != b->nregion)
        changed(p, a, b, XL_DIFF_OP, (part){ .name = "number of regions" }, xl_strf(d->arena, "%u", a->nregion),
                xl_strf(d->arena, "%u", b->nregion));
}

/* The ops of one side only: their names, and the lines of the first and last. */
typedef struct { xl_buf names; uint32_t n; const xl_op *first, *last; bool own_line, own_work, below, work; } ops_run;

static bool own_arg(const xl_func *f, const bool *own, const xl_op *op)
{
    for (uint32_t i = 0; i < op->nin; i++)
        if (own_value(f, own, op->in[i]) && !(by_graph(f) && xl_in_type(f, op, i)->rank == 0))
            return true;
    return false;
}

static bool changes_form(const xl_op *op)
{
    static const uint16_t form[] = { XL_OP_CONVERT,  XL_OP_BROADCAST_IN_DIM, XL_OP_RESHAPE,
                                     XL_OP_CONSTANT, XL_OP_TRANSPOSE,        XL_OP_RETURN };
    for (size_t i = 0; i < sizeof form / sizeof *form; i++)
        if (op->code == form[i])
            return true;
    return false;
}

/* own_line: one of them is of a line that the other program has not, and none of them reads an argument that it has
 * not. */
static ops_run run_of(const xl_func *f, const bool *own, const bool *made, const lines *other, const xl_region *r,
                      const uint32_t *idx, uint32_t n)
{
    ops_run out = { .n = n };
    uint64_t caller = line_number(f->m, called_from(f->m));
    bool reads = false;
    for (uint32_t i = 0; i < n; i++) {
        const xl_op *op = r->op[idx[i]];
        uint64_t line = line_number(f->m, op->loc);
        bool below = line && line != caller;               /* not what JAX places where the program is called */
        out.first = !out.first || (below && !out.below) ? op : out.first;
        out.last = below || !out.below ? op : out.last;
        out.below |= below;
        bool only = line && line != caller && !on_line(other, line);
        out.own_line |= only;
        out.own_work |= only && !(made && op->nout && made[op->out[0].id]);
        out.work |= !changes_form(op);
        reads |= own_arg(f, own, op);
        if (i < 4)
            xl_buf_printf(&out.names, "%s%s", i ? ", " : "", xl_op_text(op));
    }
    out.own_line &= !reads;
    out.own_work &= !reads;
    return out;
}

static bool own_stack(const xl_module *m, const lines *other, const xl_region *r, const uint32_t *idx, uint32_t n)
{
    for (uint32_t i = 0; other->n && i < n; i++) {
        uint64_t stack = xl_loc_stack(m, r->op[idx[i]]->loc);
        if (stack && !on_line(other, stack))
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
static const xl_region *lean(diff *d, const xl_func *f, const uint32_t **equals)
{
    const xl_region *r = f->body;
    xl_region *out = xl_new(d->arena, xl_region, 1);
    uint32_t *same = xl_new(d->arena, uint32_t, f->nval);
    xl_table seen = { 0 };                                 /* of r->op, by op and operands */
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
static bool *made_of_numbers(diff *d, const xl_func *f)
{
    bool *made = xl_new(d->arena, bool, f->nval);
    for (uint32_t i = 0; i < f->body->narg; i++)
        made[f->body->arg[i].id] = arg_type(f, i)->rank == 0;
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
    diff *d = p->d;
    if ((!nwent && !ncame) || d->n >= d->most)
        return;
    const bool *made_a = p->depth == 0 ? d->made_a : NULL, *made_b = p->depth == 0 ? d->made_b : NULL;
    ops_run old = run_of(p->fa, d->went, made_a, &d->of_b, ra, went, nwent),
            new = run_of(p->fb, d->came, made_b, &d->of_a, rb, came, ncame), *shown = ncame ? &new : &old;
    d->work |= old.work || new.work;
    const xl_module *m = ncame ? d->b : d->a;
    d->own_stack |= own_stack(d->a, &d->stack_b, ra, went, nwent) || own_stack(d->b, &d->stack_a, rb, came, ncame);
    xl_diff x = { .kind = XL_DIFF_OP, .arg = -1, .dim = -1, .follows = !old.own_line && !new.own_line }, y = { 0 };
    x.at_call = !old.below && !new.below;
    x.makes = !old.own_work && !new.own_work;
    place_op(p, m, shown->first, &x);
    place(m, shown->last->loc, &y);
    xl_str until = { "", 0 };
    x.last = y.file.n && y.line > x.line ? y.line : x.line;
    if (x.last > x.line && xl_str_eq(x.file, y.file))
        until = xl_strf(d->arena, " to line %u", y.line);
    x.ops = nwent + ncame;
    x.before = xl_str_dup(d->arena, xl_buf_view(&old.names));
    x.after = xl_str_dup(d->arena, xl_buf_view(&new.names));
    const char *more = shown->n > 4 ? ", ..." : "";
    xl_str what = ncame ? x.after : x.before, where = xl_strf(d->arena, "%.*s%.*s", XL_FMT(at(d, &x)), XL_FMT(until));
    if (nwent && ncame)
        x.text = xl_strf(d->arena, "%.*s%s in place of %.*s%s%.*s", XL_FMT(what), more, XL_FMT(x.before),
                         nwent > 4 ? ", ..." : "", XL_FMT(where));
    else if (shown->n == 1)
        x.text = xl_strf(d->arena, "%.*s was %s%.*s", XL_FMT(what), ncame ? "added" : "removed", XL_FMT(where));
    else
        x.text = xl_strf(d->arena, "%u ops were %s: %.*s%s%.*s", shown->n, ncame ? "added" : "removed", XL_FMT(what),
                         more, XL_FMT(where));
    note(d, x);
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
        return xl_hash64(&own, sizeof own, 11);            /* no partner */
    return op->code == XL_OP_CUSTOM_CALL ? loose(op, false, m) : xl_hash64(&op->code, 2, 7);
}

/* Pairs the ops between two pairs by kind; what is left came or went. Constants are left to those that read them. */
static void gap(pair *p, const xl_region *ra, uint32_t a0, uint32_t a1, const xl_region *rb, uint32_t b0, uint32_t b1)
{
    diff *d = p->d;
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
    xl_align(d->arena, x, na, y, nb, to);
    for (uint32_t i = 0; i <= na; i++) {
        if (i < na && to[i] < 0) {
            if (ra->op[a0 + i]->code != XL_OP_CONSTANT)
                went[nwent++] = a0 + i;
            continue;
        }
        uint32_t stop = i < na ? (uint32_t)to[i] : nb;
        for (; k < stop; k++)
            if (rb->op[b0 + k]->code != XL_OP_CONSTANT)
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
    diff *d = p->d;
    uint32_t a0 = 0, b0 = 0;
    bool loosely = d->shapes || d->dtypes;
    for (uint32_t i = 0; i < ra->narg && i < rb->narg; i++)
        if (p->fa->body->arg != ra->arg)                   /* the function's own are set by its caller */
            became(p, ra->arg[i], rb->arg[i]);
    uint64_t *x = xl_new(d->arena, uint64_t, ra->nop), *y = xl_new(d->arena, uint64_t, rb->nop);
    int32_t *to = xl_new(d->arena, int32_t, ra->nop);
    for (uint32_t i = 0; i < ra->nop; i++)
        x[i] = loosely ? loose(ra->op[i], true, d->a) : xl_op_hash(p->fa, ra->op[i]);
    for (uint32_t i = 0; i < rb->nop; i++)
        y[i] = loosely ? loose(rb->op[i], true, d->b) : xl_op_hash(p->fb, rb->op[i]);
    xl_align(d->arena, x, ra->nop, y, rb->nop, to);
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

static void funcs(diff *d, const xl_func *fa, const xl_func *fb, const int32_t *args_to, int depth, site from_line)
{
    for (uint32_t i = 0; i < d->nseen; i++)
        if (d->seen[i].a == fa && d->seen[i].b == fb)
            return;
    XL_PUSH(d->arena, d->seen, d->nseen, d->capseen, ((func_pair){ fa, fb }));
    if (!fa->body || !fb->body)
        return;
    pair p = { .d = d, .fa = fa, .fb = fb, .depth = depth, .from_line = from_line };
    p.to = xl_new(d->arena, uint32_t, fa->nval);
    p.from = xl_new(d->arena, bool, fb->nval);
    memset(p.to, 0xff, fa->nval * sizeof *p.to);
    for (uint32_t i = 0; i < fa->body->narg; i++) {
        int32_t k = args_to ? args_to[i] : i < fb->body->narg ? (int32_t)i : -1;
        if (k >= 0)
            became(&p, fa->body->arg[i], fb->body->arg[k]);
    }
    bool graph = depth == 0 && d->graph;
    const xl_region *ra = graph ? lean(d, fa, &p.same_a) : fa->body, *rb = graph ? lean(d, fb, &p.same_b) : fb->body;
    regions(&p, ra, rb);
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */
static void module_attr(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after)
{
    diff *d = ctx;
    xl_diff x = { .kind = attr_kind(key),
                  .arg = -1,
                  .dim = -1,
                  .before = xl_say_attr(d->arena, before),
                  .after = xl_say_attr(d->arena, after) };
    x.text = xl_strf(d->arena, "the program's %.*s: %.*s -> %.*s", XL_FMT(key), XL_FMT(x.before), XL_FMT(x.after));
    note(d, x);
}

static void meshes(diff *d)
{
    for (uint32_t i = 0; i < d->a->nmesh && i < d->b->nmesh; i++) {
        xl_attr s = { .kind = XL_AT_MESH, .mesh = d->a->mesh[i].mesh },
                t = { .kind = XL_AT_MESH, .mesh = d->b->mesh[i].mesh };
        if (xl_attr_eq(&s, &t))
            continue;
        xl_diff x = { .kind = XL_DIFF_SHARDING,
                      .arg = -1,
                      .dim = -1,
                      .before = xl_say_attr(d->arena, &s),
                      .after = xl_say_attr(d->arena, &t) };
        x.text = xl_strf(d->arena, "the mesh: %.*s -> %.*s", XL_FMT(x.before), XL_FMT(x.after));
        note(d, x);
    }
}

static void results(diff *d, const xl_func *fa, const xl_func *fb)
{
    uint32_t na = fa->type ? fa->type->nelem - fa->type->nin : 0, nb = fb->type ? fb->type->nelem - fb->type->nin : 0;
    for (uint32_t i = 0; i < na && i < nb; i++) {
        char what[40];
        snprintf(what, sizeof what, "result %u", i);
        arg_ctx c = { d, fb, i, what, false };
        dicts(d, fa->res_attr ? fa->res_attr[i] : NULL, fb->res_attr ? fb->res_attr[i] : NULL, arg_attr, &c);
    }
    if (na != nb) {
        xl_diff x = { .kind = XL_DIFF_OP,
                      .arg = -1,
                      .dim = -1,
                      .follows = true,
                      .before = xl_strf(d->arena, "%u", na),
                      .after = xl_strf(d->arena, "%u", nb) };
        x.text = xl_strf(d->arena, "the program returns %u values, before %u", nb, na);
        note(d, x);
    }
}

static void count_ops(const xl_region *r, uint32_t *count)
{
    for (uint32_t i = 0; r && i < r->nop; i++) {
        count[r->op[i]->code]++;
        for (uint32_t k = 0; k < r->op[i]->nregion; k++)
            count_ops(r->op[i]->region[k], count);
    }
}

/* As many ops of each kind: then none came or went, whatever could not be paired. */
static bool same_ops(const diff *d)
{
    uint32_t x[XL_OP_COUNT] = { 0 }, y[XL_OP_COUNT] = { 0 };
    for (uint32_t f = 0; f < d->a->nfunc; f++)
        count_ops(d->a->func[f]->body, x);
    for (uint32_t f = 0; f < d->b->nfunc; f++)
        count_ops(d->b->func[f]->body, y);
    return !memcmp(x, y, sizeof x);
}

/* An op was marked by its lines, a key as such; that counts only where something is there to follow from. */
static void consequences(diff *d)
{
    bool fresh = false;                                    /* ops of a line that the other program has not */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n; i++)
        fresh |= d->list[i].kind == XL_DIFF_OP && !d->list[i].follows;
    fresh |= (d->own_stack || (d->numbers && d->work)) && !moved(d); /* code of a library, with the numbers it reads */
    d->arguments |= d->numbers && !fresh;
    bool moves = moved(d), ops = false, same = moves && same_ops(d), other = moves, below = false, setup = false;
    for (uint32_t i = 0; i < d->n; i++) {
        setup |= d->list[i].kind == XL_DIFF_SETUP;
        below |= d->list[i].kind == XL_DIFF_OP && !d->list[i].at_call;
        d->list[i].follows |= d->list[i].kind == XL_DIFF_OP && d->list[i].makes && setup;
        ops |= d->list[i].kind == XL_DIFF_OP && !(moves && d->list[i].follows);
        other |= d->list[i].kind != XL_DIFF_LAYOUT && d->list[i].kind != XL_DIFF_DONATION;
    }
    for (uint32_t i = 0; i < d->n; i++) {
        xl_diff *x = &d->list[i];
        double before, after;
        if (x->kind == XL_DIFF_ARGS)
            x->follows =
                (x->follows && (ops || setup)) || (x->again && d->shapes) || (x->after.n ? d->freed : d->fixed)[x->arg];
        else if (x->kind == XL_DIFF_SETUP)
            x->follows = false;
        else if (x->kind == XL_DIFF_DONATION && d->graph)
            x->follows = other;                            /* PyTorch/XLA donates what its graph writes anew */
        else if (x->kind == XL_DIFF_LAYOUT && x->arg < 0)  /* of a result */
            x->follows = other;
        else if (x->recast || (x->own_line && ops))        /* it comes with the ops that read it */
            x->follows = ops;
        else if (!moves)
            x->follows = x->at_call && below;
        else if (x->kind == XL_DIFF_CONSTANT)
            x->follows = xl_str_f64(x->before, &before) && xl_str_f64(x->after, &after) && from_size(d, before, after);
        if (!(x->kind == XL_DIFF_OP && x->follows && same))
            d->list[kept++] = *x;
    }
    d->n = kept;
}

xl_diff *xl_module_diff(xl_arena *arena, const xl_module *a, const xl_module *b, uint32_t most, uint32_t *n)
{
    diff d = { .arena = arena, .a = a, .b = b, .most = most };
    *n = 0;
    xl_digest x = xl_module_hash(a), y = xl_module_hash(b);
    if (xl_digest_eq(&x, &y))
        return NULL;
    const xl_func *fa = xl_module_entry(a), *fb = xl_module_entry(b);
    if (!fa || !fb) {
        note(&d, (xl_diff){ .kind = XL_DIFF_OP,
                            .arg = -1,
                            .dim = -1,
                            .text = XL_STR("the programs differ, and one of them has no entry function to compare") });
        *n = d.n;
        return d.list;
    }
    int32_t *to = xl_new(arena, int32_t, nargs(fa));
    d.went = xl_new(arena, bool, nargs(fa));
    d.came = xl_new(arena, bool, nargs(fb));
    d.fixed = xl_new(arena, bool, nargs(fa));
    d.freed = xl_new(arena, bool, nargs(fb));
    d.of_a.p = xl_module_lines(arena, a, &d.of_a.n);
    d.of_b.p = xl_module_lines(arena, b, &d.of_b.n);
    d.graph = by_graph(fa) && by_graph(fb);
    if (d.graph) {
        d.made_a = made_of_numbers(&d, fa);
        d.made_b = made_of_numbers(&d, fb);
        d.stack_a = numbers_of(arena, a, xl_loc_stack);
        d.stack_b = numbers_of(arena, b, xl_loc_stack);
    }
    args(&d, fa, fb, to);
    d.nouter = d.nsize;
    results(&d, fa, fb);
    meshes(&d);
    dicts(&d, a->extra, b->extra, module_attr, &d);
    funcs(&d, fa, fb, to, 0, (site){ { "", 0 }, 0 });
    numbers(&d, fa, fb);
    if (d.n == 0 && most)                                  /* the hashes differ, so something does */
        note(&d, (xl_diff){
                     .kind = XL_DIFF_OP,
                     .arg = -1,
                     .dim = -1,
                     .text = XL_STR(
                         "the programs differ in a detail that has no name here: compare the output of xlane print") });
    consequences(&d);
    *n = d.n;
    for (uint32_t i = 0; i < d.n; i++)
        if (d.list[i].times > 1)
            d.list[i].text = xl_strf(arena, "%.*s (%u times)", XL_FMT(d.list[i].text), d.list[i].times);
    return d.list;
}

xl_str xl_module_renames(xl_arena *arena, const xl_module *a, const xl_module *b)
{
    const xl_func *fa = xl_module_entry(a), *fb = xl_module_entry(b);
    xl_buf words = { 0 };
    uint32_t shown = 0;
    for (uint32_t i = 0; fa && fb && i < nargs(fa) && i < nargs(fb); i++) {
        xl_str x = arg_name(fa, i), y = arg_name(fb, i);
        if (!x.n || !y.n || xl_str_eq(x, y))
            continue;
        if (shown++ < 4)
            xl_buf_printf(&words, "%sargument %u is named %.*s, before %.*s", shown > 1 ? "; " : "", i, XL_FMT(y),
                          XL_FMT(x));
    }
    if (shown > 4)
        xl_buf_printf(&words, "; and %u more", shown - 4);
    xl_str out = xl_str_dup(arena, xl_buf_view(&words));
    xl_buf_fini(&words);
    return out;
}
