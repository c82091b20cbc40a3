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
#include "ir/compare/diff_state.h"

#include <stdio.h>

#include "ir/compare/hash.h"

const char *xl_diff_word(xl_diff_kind kind)
{
    static const char *const word[] = { "shape", "dtype", "sharding", "constant", "op",    "layout",   "donation",
                                        "args",  "order", "key",      "index",    "setup", "weak-type", "identical" };
    return word[kind];
}

static void module_attr(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after)
{
    xl_differ *d = ctx;
    xl_diff x = { .kind = xl_diff_attr_kind(key),
                  .arg = -1,
                  .dim = -1,
                  .before = xl_say_attr(d->arena, before),
                  .after = xl_say_attr(d->arena, after) };
    x.text = xl_strf(d->arena, "the program's %.*s: %.*s -> %.*s", XL_FMT(key), XL_FMT(x.before), XL_FMT(x.after));
    xl_diff_note(d, x);
}

static void meshes(xl_differ *d)
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
        xl_diff_note(d, x);
    }
}

static void results(xl_differ *d, const xl_func *fa, const xl_func *fb)
{
    uint32_t na = fa->type ? fa->type->nelem - fa->type->nin : 0, nb = fb->type ? fb->type->nelem - fb->type->nin : 0;
    for (uint32_t i = 0; i < na && i < nb; i++) {
        char what[40];
        snprintf(what, sizeof what, "result %u", i);
        xl_diff_of_arg c = { d, fb, i, what, false };
        xl_diff_dicts(d, fa->res_attr ? fa->res_attr[i] : NULL, fb->res_attr ? fb->res_attr[i] : NULL, xl_diff_arg_attr,
                      &c);
    }
    if (na != nb) {
        xl_diff x = { .kind = XL_DIFF_OP,
                      .arg = -1,
                      .dim = -1,
                      .follows = true,
                      .at_call = true,
                      .before = xl_strf(d->arena, "%u", na),
                      .after = xl_strf(d->arena, "%u", nb) };
        x.text = xl_strf(d->arena, "the number of results changed from %u to %u", na, nb);
        xl_diff_note(d, x);
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
static bool same_ops(const xl_differ *d)
{
    uint32_t x[XL_OP_COUNT] = { 0 }, y[XL_OP_COUNT] = { 0 };
    for (uint32_t f = 0; f < d->a->nfunc; f++)
        count_ops(d->a->func[f]->body, x);
    for (uint32_t f = 0; f < d->b->nfunc; f++)
        count_ops(d->b->func[f]->body, y);
    return !memcmp(x, y, sizeof x);
}

/* A result of other sizes on a line that has new ops: two of its ops were paired wrongly. */
static bool beside_new_ops(const xl_differ *d, const xl_diff *x)
{
    for (uint32_t i = 0; i < d->n && x->kind == XL_DIFF_SHAPE && x->arg < 0; i++) {
        const xl_diff *y = &d->list[i];
        if (y->kind == XL_DIFF_OP && !y->follows && y->line && y->line == x->line && xl_str_eq(y->file, x->file))
            return true;
    }
    return false;
}

/* How often a constant of one number reads so, in a region and those inside it. */
static uint32_t count_constant(xl_arena *arena, const xl_region *r, xl_str words)
{
    uint32_t n = 0;
    for (uint32_t i = 0; r && i < r->nop; i++) {
        const xl_op *op = r->op[i];
        bool one = op->code == XL_OP_CONSTANT && (op->attr[0]->splat || !op->attr[0]->type->rank);
        n += one && xl_str_eq(xl_say_attr(arena, op->attr[0]), words);
        for (uint32_t k = 0; k < op->nregion; k++)
            n += count_constant(arena, op->region[k], words);
    }
    return n;
}

/* A number that both programs have as often, on a line where ops came or went with others: two readers were paired
 * wrongly. */
static bool still_there(const xl_differ *d, const xl_diff *x)
{
    bool beside = false;
    uint32_t was[2] = { 0 }, is[2] = { 0 };
    for (uint32_t i = 0; i < d->n && x->kind == XL_DIFF_CONSTANT && !x->part.n && x->line; i++) {
        const xl_diff *y = &d->list[i];
        beside |= y->kind == XL_DIFF_OP && y->ops && y->line <= x->line && x->line <= y->last &&
                  xl_str_eq(y->file, x->file);
    }
    for (uint32_t side = 0; side < 2 && beside; side++) {
        for (uint32_t f = 0; f < d->a->nfunc; f++)
            was[side] += count_constant(d->arena, d->a->func[f]->body, side ? x->after : x->before);
        for (uint32_t f = 0; f < d->b->nfunc; f++)
            is[side] += count_constant(d->arena, d->b->func[f]->body, side ? x->after : x->before);
    }
    return beside && was[0] && is[1] && (is[0] >= was[0] || was[1] >= is[1]);
}

/* An op was marked by its lines, a key as such; that counts only where something is there to follow from. */
static void consequences(xl_differ *d)
{
    bool fresh = false; /* ops of a line that the other program has not */
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n; i++)
        fresh |= d->list[i].kind == XL_DIFF_OP && !d->list[i].follows;
    fresh |= (d->own_stack || (d->numbers && d->work)) &&
             !xl_diff_moved(d); /* code of a library, with the numbers it reads */
    d->arguments |= d->numbers && !fresh;
    bool moves = xl_diff_moved(d), ops = false, same = moves && same_ops(d), other = moves, below = false,
         setup = false;
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
            x->follows = (x->follows && (ops || setup)) || (x->again && d->shapes) || x->listed ||
                         (!x->part.n && (x->after.n ? d->freed : d->fixed)[x->arg]);
        else if (x->kind == XL_DIFF_SETUP)
            x->follows = false;
        else if (x->kind == XL_DIFF_DONATION && d->graph)
            x->follows = other;                           /* PyTorch/XLA donates what its graph writes anew */
        else if (x->kind == XL_DIFF_LAYOUT && x->arg < 0) /* of a result */
            x->follows = other;
        else if (beside_new_ops(d, x))
            x->follows = true;
        else if (x->recast || (x->own_line && ops)) /* it comes with the ops that read it */
            x->follows = ops;
        else if (!moves)
            x->follows = x->at_call && below;
        else if (x->kind == XL_DIFF_CONSTANT && xl_str_f64(x->before, &before) && xl_str_f64(x->after, &after)) {
            xl_diff_origin from = xl_diff_from_size(d, before, after);
            x->follows = from != XL_DIFF_NUMBER;
            x->perhaps = from == XL_DIFF_AS_SIZE;
        }
        if (!(x->kind == XL_DIFF_OP && x->follows && same) && !still_there(d, x))
            d->list[kept++] = *x;
    }
    d->n = kept;
    for (uint32_t i = 0; i < d->n; i++)                    /* what a line does with an argument that came or went */
        for (uint32_t k = 0; k < d->n && d->list[i].kind == XL_DIFF_OP; k++) {
            const xl_diff *x = &d->list[k];
            d->list[i].follows |= x->kind == XL_DIFF_ARGS && !x->follows && x->file.n && x->line == d->list[i].line &&
                                  xl_str_eq(x->file, d->list[i].file);
        }
}

xl_diff *xl_module_diff(xl_arena *arena, const xl_module *a, const xl_module *b, uint32_t most, uint32_t *n)
{
    xl_differ d = { .arena = arena, .a = a, .b = b, .most = most };
    *n = 0;
    xl_digest x = xl_module_hash(a), y = xl_module_hash(b);
    if (xl_digest_eq(&x, &y))
        return NULL;
    const xl_func *fa = xl_module_entry(a), *fb = xl_module_entry(b);
    if (!fa || !fb) {
        xl_diff_note(
            &d, (xl_diff){ .kind = XL_DIFF_OP,
                           .arg = -1,
                           .dim = -1,
                           .text = XL_STR("the programs differ, and one of them has no entry function to compare") });
        *n = d.n;
        return d.list;
    }
    int32_t *to = xl_new(arena, int32_t, xl_diff_nargs(fa));
    d.went = xl_new(arena, bool, xl_diff_nargs(fa));
    d.came = xl_new(arena, bool, xl_diff_nargs(fb));
    d.fixed = xl_new(arena, bool, xl_diff_nargs(fa));
    d.freed = xl_new(arena, bool, xl_diff_nargs(fb));
    d.of_a.p = xl_module_lines(arena, a, &d.of_a.n);
    d.of_b.p = xl_module_lines(arena, b, &d.of_b.n);
    d.graph = xl_diff_by_graph(fa) && xl_diff_by_graph(fb);
    if (d.graph) {
        d.made_a = xl_diff_made_of_numbers(&d, fa);
        d.made_b = xl_diff_made_of_numbers(&d, fb);
        d.stack_a = xl_diff_lines_of(arena, a, xl_loc_stack);
        d.stack_b = xl_diff_lines_of(arena, b, xl_loc_stack);
    }
    xl_diff_args(&d, fa, fb, to);
    d.nouter = d.nsize;
    results(&d, fa, fb);
    meshes(&d);
    xl_diff_dicts(&d, a->extra, b->extra, module_attr, &d);
    uint64_t *reads_a = xl_new(arena, uint64_t, xl_diff_nargs(fa)),
             *reads_b = xl_new(arena, uint64_t, xl_diff_nargs(fb));
    for (uint32_t i = 0; i < xl_diff_nargs(fa); i++)
        reads_a[i] = to[i] >= 0 ? XL_DIFF_ARG((uint32_t)to[i]) : 0;
    for (uint32_t i = 0; i < xl_diff_nargs(fb); i++)
        reads_b[i] = XL_DIFF_ARG(i);
    xl_diff_funcs(&d, fa, fb, &(xl_diff_way){ .args_to = to, .reads_a = reads_a, .reads_b = reads_b });
    xl_diff_numbers(&d, fa, fb);
    if (d.n == 0 && most) /* the hashes differ, so something does */
        xl_diff_note(
            &d, (xl_diff){
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
    for (uint32_t i = 0; fa && fb && i < xl_diff_nargs(fa) && i < xl_diff_nargs(fb); i++) {
        xl_str x = xl_diff_arg_name(fa, i), y = xl_diff_arg_name(fb, i);
        if (!x.n || !y.n || xl_str_eq(x, y))
            continue;
        if (shown++ < 4)
            xl_buf_printf(&words, "%sargument %u is named %.*s instead of %.*s", shown > 1 ? "; " : "", i,
                          XL_FMT(y), XL_FMT(x));
    }
    if (shown > 4)
        xl_buf_printf(&words, "; and %u more", shown - 4);
    xl_str out = xl_str_dup(arena, xl_buf_view(&words));
    xl_buf_fini(&words);
    return out;
}
