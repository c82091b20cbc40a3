/* The lines of two programs that are compared, the sizes that differ, and the list of differences. */
#include "ir/compare/diff_state.h"

#include <math.h>
#include <stdlib.h>

#include "ir/compare/hash.h"

uint64_t xl_diff_line(const xl_module *m, xl_loc loc)
{
    xl_str file;
    uint32_t line, col;
    return xl_loc_line(m, loc, &file, &line, &col) ? xl_hash64(file.p, file.n, line) : 0;
}

/* Where the program was called from: JAX gives that place to the return. */
xl_loc xl_diff_caller(const xl_module *m)
{
    const xl_func *f = xl_module_entry(m);
    const xl_region *r = f ? f->body : NULL;
    return r && r->nop && r->op[r->nop - 1]->code == XL_OP_RETURN ? r->op[r->nop - 1]->loc : (xl_loc){ 0 };
}

static void lines_of(xl_arena *arena, const xl_module *m, xl_diff_line_fn *number, const xl_region *r, uint64_t caller,
                     xl_diff_lines *out, uint32_t *cap)
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

xl_diff_lines xl_diff_lines_of(xl_arena *arena, const xl_module *m, xl_diff_line_fn *number)
{
    xl_diff_lines all = { 0 };
    uint32_t cap = 0, kept = 0;
    for (uint32_t f = 0; f < m->nfunc; f++)
        lines_of(arena, m, number, m->func[f]->body, xl_loc_stack(m, xl_diff_caller(m)), &all, &cap);
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
    xl_diff_lines all = xl_diff_lines_of(arena, m, xl_diff_line);
    *n = all.n;
    return all.p;
}

bool xl_diff_on_line(const xl_diff_lines *l, uint64_t line)
{
    return l->n && bsearch(&line, l->p, l->n, sizeof *l->p, by_line);
}

/* ---- consequences ------------------------------------------------------------------------------------------------ */
/* Sizes or arguments differ: ops may come and go with them. */
bool xl_diff_moved(const xl_differ *d) { return d->shapes || d->dtypes || d->arguments || d->nsize; }

void xl_diff_size(xl_differ *d, int64_t before, int64_t after)
{
    if (before <= 0 || after <= 0 || before == after || d->nsize >= 64)
        return;
    for (uint32_t i = 0; i < d->nsize; i++)
        if (d->size[i].before == (double)before && d->size[i].after == (double)after)
            return;
    XL_PUSH(d->arena, d->size, d->nsize, d->capsize, ((xl_diff_resize){ (double)before, (double)after }));
}

/* Of two types: the dimensions that differ, and the number of elements. */
void xl_diff_sizes(xl_differ *d, const xl_type *s, const xl_type *t)
{
    int64_t before = 1, after = 1;
    if (s->kind != XL_TY_TENSOR || t->kind != XL_TY_TENSOR)
        return;
    for (uint32_t q = 0; q < s->rank || q < t->rank; q++) {
        int64_t x = q < s->rank ? s->dims[q] : 1, y = q < t->rank ? t->dims[q] : 1;
        if (x <= 0 || y <= 0 || before > INT64_MAX / x || after > INT64_MAX / y)
            return;
        xl_diff_size(d, x, y);
        before *= x;
        after *= y;
    }
    xl_diff_size(d, before, after);
}

static bool whole(double x) { return fabs(x) < 1e15 && fabs(x - round(x)) <= 1e-4 * fmax(1, fabs(x)); }
static bool near(double x, double y) { return fabs(x - y) <= 1e-4 * fmax(fabs(x), fabs(y)); }

/* A number that is computed from a size: the size itself, or its reciprocal, root or logarithm. One that changes by the
 * same factor or difference as a size is perhaps computed from it (one more, half of it), perhaps written by somebody.
 * */
xl_diff_origin xl_diff_from_size(const xl_differ *d, double before, double after)
{
    xl_diff_origin found = XL_DIFF_NUMBER;
    if (before == 0 || after == 0)
        return XL_DIFF_NUMBER;
    const double form[4][2] = { { before, after },
                                { 1 / before, 1 / after },
                                { before * before, after * after },
                                { 1 / (before * before), 1 / (after * after) } };
    for (uint32_t i = 0; i < d->nsize; i++)
        for (uint32_t k = 0; k <= i; k++) { /* a size, or the product of two arguments' */
            if (k < i && i >= d->nouter)
                continue;
            double was = d->size[i].before * (k < i ? d->size[k].before : 1),
                   is = d->size[i].after * (k < i ? d->size[k].after : 1);
            for (int q = 0; q < 4; q++) {
                double x = form[q][0], y = form[q][1];
                if (!whole(x) || !whole(y))
                    continue;
                if (near(x, was) && near(y, is))
                    return XL_DIFF_SIZE;
                if (near(x * is, y * was) || near(y - x, is - was) || near((x + 1) * is, (y + 1) * was) ||
                    near((x - 1) * is, (y - 1) * was))
                    found = XL_DIFF_AS_SIZE;
            }
            if (near(after - before, log(is / was)))
                return XL_DIFF_SIZE;
        }
    for (uint32_t i = 0; i < d->nsize; i++)                /* of two sizes, or of one by itself, as of an image */
        for (uint32_t k = 0; k <= i; k++)
            for (int q = 0; q < 2; q++)
                if (near(form[q][0], d->size[i].before * d->size[k].before) &&
                    near(form[q][1], d->size[i].after * d->size[k].after))
                    return XL_DIFF_SIZE;
    return found;
}

/* ---- notes ------------------------------------------------------------------------------------------------------ */
void xl_diff_note(xl_differ *d, xl_diff x)
{
    d->told++;
    for (uint32_t i = 0; i < d->n; i++) /* one change in a loop over layers is one sentence */
        if (x.arg < 0 && xl_str_eq(d->list[i].text, x.text)) {
            d->list[i].times++;
            d->list[i].reads |= x.reads;
            return;
        }
    if (d->n >= d->most)
        return;
    x.times = 1;
    XL_PUSH(d->arena, d->list, d->n, d->cap, x);
}

void xl_diff_place(const xl_module *m, xl_loc loc, xl_diff *x)
{
    uint32_t col;
    if (!xl_loc_line(m, loc, &x->file, &x->line, &col))
        x->file = (xl_str){ "", 0 };
}

xl_str xl_diff_at(const xl_differ *d, const xl_diff *x)
{
    return x->file.n ? xl_strf(d->arena, " at %.*s:%u", XL_FMT(x->file), x->line) : (xl_str){ "", 0 };
}

/* The first op in the program that reads v, looking into regions; RETURN only where there is no other. */
const xl_op *xl_diff_reader(const xl_region *r, xl_value v, bool ends)
{
    for (uint32_t k = 0; k < r->nop; k++) {
        const xl_op *op = r->op[k];
        if (op->code != XL_OP_RETURN || ends)
            for (uint32_t i = 0; i < op->nin; i++)
                if (op->in[i].id == v.id)
                    return op;
        for (uint32_t i = 0; i < op->nregion; i++) {
            const xl_op *in = xl_diff_reader(op->region[i], v, ends);
            if (in)
                return in;
        }
    }
    return NULL;
}

/* The line of op as a reader of v: of a call, the line within the function that is called. */
void xl_diff_place_reader(const xl_func *f, const xl_op *op, xl_value v, xl_diff *x)
{
    if (op->code == XL_OP_CALL && f->m) {
        const xl_func *g = xl_module_func(f->m, xl_op_str(op, XL_SLOT(CALL, callee)));
        for (uint32_t i = 0; g && g->body && i < op->nin && i < g->body->narg; i++)
            if (op->in[i].id == v.id) {
                const xl_op *in = xl_diff_reader(g->body, g->body->arg[i], false);
                if (in)
                    xl_diff_place(f->m, in->loc, x);
            }
    }
    if (!x->file.n)
        xl_diff_place(f->m, op->loc, x);
}

/* The first op that reads v, or what is made of it, on a line below the one that called the program; looking at most
 * `depth` readers on. */
static bool place_below(const xl_func *f, xl_value v, uint64_t caller, int depth, xl_diff *x)
{
    const xl_op *op = xl_diff_reader(f->body, v, false);
    if (!op || depth == 0)
        return false;
    xl_diff y = { 0 };
    xl_diff_place_reader(f, op, v, &y);
    if (y.file.n && xl_hash64(y.file.p, y.file.n, y.line) != caller) {
        x->file = y.file;
        x->line = y.line;
        return true;
    }
    return op->nout == 1 && place_below(f, op->out[0], caller, depth - 1, x);
}

void xl_diff_place_use(const xl_func *f, xl_value v, xl_diff *x)
{
    const xl_op *op = f->body ? xl_diff_reader(f->body, v, false) : NULL;
    if (op && !place_below(f, v, xl_diff_line(f->m, xl_diff_caller(f->m)), 8, x))
        xl_diff_place_reader(f, op, v, x);
}

void xl_diff_used_at(const xl_module *m, uint32_t arg, xl_diff *x)
{
    const xl_func *f = xl_module_entry(m);
    if (f && f->body && arg < f->body->narg)
        xl_diff_place_use(f, f->body->arg[arg], x);
}
