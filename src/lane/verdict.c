#include "lane/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/proc.h"
#include "lane/call.h"
#include "lane/contract.h"
#include "lane/gaps.h"
#include "lane/run.h"
#include "lane/steps.h"

static const xl_cause causes[] = {
#define CAUSE(word, ask, remedy) { word, remedy, XL_ASK_##ask },
#include "lane/cause.def"
};

const xl_cause *xl_cause_of(xl_str word)
{
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (xl_str_is(word, causes[i].word))
            return &causes[i];
    return NULL;
}

static bool by_torch(xl_str module) { return xl_str_starts(module, XL_STR("SyncTensorsGraph")); }

const char *xl_cause_remedy(const xl_cause *c, xl_str module)
{
    static const struct { const char *word, *remedy; } torch[] = {
#define CAUSE(word, ask, remedy)
#define TORCH(word, remedy) { word, remedy },
#include "lane/cause.def"
    };
    for (size_t i = 0; i < sizeof torch / sizeof *torch && by_torch(module); i++)
        if (!strcmp(torch[i].word, c->word))
            return torch[i].remedy;
    return c->remedy;
}

/* ---- causes ------------------------------------------------------------------------------------------------------ */
/* A shape or type that is an argument's is the caller's; one that is none's was decided by a Python value. */
typedef struct { bool arg, dim, first, read_back, grown, carried, returned, resulting, committed; } sized;
static const xl_cause *finer(xl_str reason, xl_str what, sized s)
{
    if (xl_str_is(reason, "x64") || xl_str_is(reason, "transform") || xl_str_is(reason, "device"))
        return xl_cause_of(reason);
    if (xl_str_is(what, "shape"))
        return xl_cause_of(s.read_back ? XL_STR("read-back")
                           : !s.arg    ? XL_STR("size")
                           : !s.dim    ? XL_STR("axes")
                           : s.grown   ? XL_STR("grown")
                           : s.carried ? XL_STR("carried")
                           : s.first   ? what
                                       : XL_STR("length"));
    if (xl_str_is(what, "dtype") && (!s.arg || s.returned || s.resulting))
        return xl_cause_of(!s.arg ? XL_STR("op") : s.resulting ? XL_STR("resulting") : XL_STR("returned"));
    return xl_cause_of(s.committed ? XL_STR("committed") : what);
}
/* By what of the call or the program it is. */
static const xl_cause *part_cause(xl_str what, xl_str part)
{
    static const struct { const char *what, *head, *word; } row[] = {
        { "constant", "static argument `", "static" },
        { "constant", "static field `", "field" },
        { "constant", "argument `", "filtered" },
        { "constant", "the length of `", "collected" },
        { "constant", "the shape of `", "collected" },
        { "args", "elements of argument ", "lengthened" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (xl_str_is(what, row[i].what) && xl_str_starts(part, xl_str_of(row[i].head)))
            return xl_cause_of(xl_str_of(row[i].word));
    return NULL;
}

static const xl_cause *detail_cause(const xl_node *e, const xl_node *d)
{
    const xl_cause *known = part_cause(xl_node_text(d, "what"), xl_node_text(d, "part"));
    if ((xl_node_is(d, "what", "identical") || xl_node_is(d, "what", "order")) && xl_node_text(e, "way").n)
        return xl_cause_of(xl_node_text(e, "way"));
    if (known)
        return known;
    if (xl_node_is(d, "what", "op") && xl_node_flag(d, "draws"))
        return xl_cause_of(XL_STR("draws"));
    if (xl_node_is(d, "what", "identical") && xl_node_text(e, "config").n)
        return xl_cause_of(XL_STR("config"));
    if (xl_node_is(d, "what", "identical") && xl_node_is(e, "reason", "identical") &&
        (xl_node_text(e, "words").n || xl_node_flag(e, "mapped")))
        return xl_cause_of(xl_node_text(e, "words").n ? XL_STR("names") : XL_STR("mapped"));
    return finer(xl_node_text(e, "reason"), xl_node_text(d, "what"),
                 (sized){ xl_node_get(d, "arg") != NULL, xl_node_get(d, "dim") != NULL, xl_node_num(d, "dim", 0) == 0,
                          xl_node_flag(d, "read_back"), xl_node_flag(d, "grown"), xl_node_flag(d, "carried"),
                          xl_node_flag(d, "returned"), xl_node_flag(d, "resulting"),
                          xl_node_flag(d, "committed") });
}

const xl_cause *xl_verdict_cause(const xl_verdict *v)
{
    xl_str reason = xl_str_of(v->reason);
    for (uint32_t i = 0; i < v->ndiff; i++) {
        const xl_diff *d = &v->diff[i];
        if (d->follows || !xl_str_is(reason, xl_diff_word(d->kind)))
            continue;
        if (v->way && (d->kind == XL_DIFF_IDENTICAL || d->kind == XL_DIFF_ORDER))
            return xl_cause_of(xl_str_of(v->way));
        const xl_cause *known = part_cause(reason, d->part);
        if (known)
            return known;
        if (d->draws)
            return xl_cause_of(XL_STR("draws"));
        if (d->kind == XL_DIFF_IDENTICAL && !strcmp(v->reason, "identical") && (v->config.n || v->words.n || v->mapped))
            return xl_cause_of(v->config.n ? XL_STR("config") : v->words.n ? XL_STR("names") : XL_STR("mapped"));
        return finer(reason, reason,
                     (sized){ d->arg >= 0, d->dim >= 0, d->dim == 0, d->read_back, d->grown, d->carried, d->returned,
                              d->resulting, d->committed });
    }
    return xl_cause_of(reason);
}

const xl_cause *xl_event_cause(const xl_node *e)
{
    const xl_node *detail = xl_node_get(e, "detail");
    const xl_cause *c = xl_cause_of(xl_node_text(e, "reason"));
    for (size_t i = 0; detail && i < detail->n; i++)
        if (!xl_node_flag(detail->kid[i], "follows") &&
            xl_str_eq(xl_node_text(detail->kid[i], "what"), xl_node_text(e, "reason")))
            return detail_cause(e, detail->kid[i]);
    return c ? c : xl_cause_of(XL_STR("op"));
}

/* Not the first of its module in this run (and not one that the cache has lost); or the first, of a program that an
 * earlier run had and that something outside it sent to the compiler again. A program that is new since an earlier run
 * is no recompile. */
bool xl_event_again(const xl_node *e)
{
    const xl_cause *c = xl_cause_of(xl_node_text(e, "reason"));
    if (!xl_node_is(e, "event", "compile") || xl_node_is(e, "reason", "first") || (c && c->ask == XL_ASK_LOST))
        return false;
    return !xl_node_text(e, "against_run").n ||
           (c && c->ask == XL_ASK_POLICY && !xl_node_is(e, "reason", "sharding") && !xl_node_is(e, "reason", "x64"));
}

/* A constant on a line where ops came or went is part of that change. */
static bool among_ops(const xl_node *detail, const xl_node *d)
{
    for (size_t i = 0; i < detail->n && xl_node_is(d, "what", "constant"); i++)
        if (xl_node_is(detail->kid[i], "what", "op") && !xl_node_flag(detail->kid[i], "follows") &&
            xl_node_text(d, "where").n && xl_str_eq(xl_node_text(detail->kid[i], "where"), xl_node_text(d, "where")))
            return true;
    return false;
}

static void add_value(xl_arena *a, xl_cause_seen *c, xl_str v)
{
    for (size_t i = 0; i < c->nvalue; i++)
        if (xl_str_eq(c->value[i], v))
            return;
    XL_PUSH(a, c->value, c->nvalue, c->capvalue, v);
}

static xl_cause_seen *seen(xl_arena *a, xl_run_unit *u, const xl_cause *cause, xl_str what, xl_str where)
{
    for (size_t i = 0; i < u->ncause; i++) {
        xl_cause_seen *c = &u->cause[i];
        xl_str more = c->what.n > what.n ? c->what : what, less = c->what.n > what.n ? what : c->what;
        bool same = xl_str_starts(more, less);             /* a program without ops has no line of its function */
        if (same && more.n > less.n)
            same = cause->ask == XL_ASK_AGAIN && memmem(more.p + less.n, more.n - less.n, "; the function is at ", 21);
        if (c->cause == cause && same && xl_str_eq(c->where, where)) {
            c->what = more;
            return c;
        }
    }
    XL_PUSH(a, u->cause, u->ncause, u->capcause, ((xl_cause_seen){ .cause = cause, .what = what, .where = where }));
    return &u->cause[u->ncause - 1];
}

static xl_str without(xl_str text, xl_str where)           /* the sentence without its " at FILE:LINE" */
{
    const char *at = where.n ? memmem(text.p, text.n, where.p, where.n) : NULL;
    if (at && at - text.p > 4 && !memcmp(at - 4, " at ", 4) && at + where.n == text.p + text.n)
        return (xl_str){ text.p, (size_t)(at - text.p) - 4 };
    return text;
}

/* "constant 6xf32, used by OP: element 0" of a sentence about one element of a constant, or empty. */
static xl_str element_of(xl_str text)
{
    const char *element = memmem(text.p, text.n, ": element ", 10),
               *end = element ? memmem(element, (size_t)(text.p + text.n - element), " changed from ", 14) : NULL;
    return end ? (xl_str){ text.p, (size_t)(end - text.p) } : (xl_str){ "", 0 };
}

static void answer(xl_arena *a, xl_run_verdict *v, const xl_cause *c)
{
    xl_str word = xl_str_of(c->word);
    v->shape |= c->ask == XL_ASK_SHAPE;
    v->policy |= c->ask == XL_ASK_POLICY;
    v->branch |= c->ask == XL_ASK_BRANCH;
    v->value |= c->ask == XL_ASK_VALUE;
    v->again |= c->ask == XL_ASK_AGAIN;
    bool known = c->ask != XL_ASK_NONE;
    for (size_t i = 0; i < v->nother && !known; i++)
        known = xl_str_eq(v->other[i], word);
    if (!known)
        XL_PUSH(a, v->other, v->nother, v->capother, word);
}

/* An array that grows by as much in each execution, one after the other; and how many came between two changes. */
static void count_growth(xl_cause_seen *s, const xl_node *e, const xl_node *d)
{
    double by = xl_node_num(d, "after", 0) - xl_node_num(d, "before", 0), number = xl_node_num(e, "number", 0);
    bool on = by > 0 && number == s->number + 1 && (!s->growths || by == s->by);
    s->growths = on || s->growths >= 3 ? s->growths + on : 0;
    if (number > s->number && (s->gap == 0 || number - s->number < s->gap))
        s->gap = number - (s->number > 0 ? s->number : 1);
    s->by = by;
    s->number = number;
}

/* Adds what one compile says to its unit, and to the answers. Which of the unit's causes is the compile's own, or
 * SIZE_MAX. */
static size_t add_causes(xl_arena *a, xl_run_verdict *v, xl_run_unit *u, const xl_node *e)
{
    const xl_node *detail = xl_node_get(e, "detail");
    xl_str config = xl_node_text(e, "config");
    const xl_cause *own = xl_event_cause(e);
    size_t before = u->ncause, mine = SIZE_MAX;
    bool any = false;
    u->remade += xl_node_flag(e, "remade");
    if (config.n && !xl_node_is(e, "reason", "identical")) {
        any = true;
        answer(a, v, xl_cause_of(XL_STR("config")));
        seen(a, u, xl_cause_of(XL_STR("config")), config, (xl_str){ "", 0 })->times++;
    }
    for (size_t i = 0; detail && i < detail->n; i++) {
        const xl_node *d = detail->kid[i];
        const xl_cause *c = detail_cause(e, d);
        xl_str where = xl_node_text(d, "where"), what = xl_node_text(d, "what"), name = xl_node_text(d, "name");
        v->lines |= where.n > 0;
        v->perhaps |= xl_node_flag(d, "perhaps");
        v->again |= xl_str_is(what, "identical") && xl_node_is(e, "reason", "identical");
        v->widened |= xl_node_is(e, "reason", "x64") && xl_str_is(what, "dtype") && xl_node_get(d, "arg");
        if (!c || xl_node_flag(d, "follows") || among_ops(detail, d))
            continue;
        any = true;
        answer(a, v, c);
        bool sized = xl_node_get(d, "arg") &&
                     (xl_str_is(what, "shape") || xl_str_is(what, "dtype") || xl_str_is(what, "weak-type"));
        bool listed = xl_node_get(d, "arg") && xl_str_is(what, "args") && !xl_node_text(d, "part").n;
        bool number = xl_str_is(what, "constant") && xl_node_text(d, "before").n < 24 &&
                      xl_node_text(d, "after").n < 24 &&
                      !xl_str_starts(xl_node_text(d, "after"), XL_STR("argument ")) &&
                      !xl_str_starts(xl_node_text(d, "before"), XL_STR("argument "));
        xl_cause_seen *s;
        if (sized) {
            xl_str who = name.n ? xl_say_argument(a, name)
                                : xl_strf(a, "argument %.0f", xl_node_num(d, "arg", 0));
            if (xl_node_get(d, "dim"))
                who = xl_strf(a, "%.*s dimension %.0f", XL_FMT(who), xl_node_num(d, "dim", 0));
            s = seen(a, u, c, who, where);
        } else if (listed) {
            bool came = xl_node_text(d, "after").n > 0;
            s = seen(a, u, c,
                     xl_node_flag(d, "optimizer") && came
                         ? XL_STR("the optimizer made its state in the first step, and it became arguments")
                     : came ? XL_STR("arguments were added")
                            : XL_STR("arguments were removed"),
                     where);
            s->join = ": ";
        } else if (xl_node_text(d, "part").n && xl_node_text(d, "before").n < 40 && xl_node_text(d, "after").n < 40) {
            for (size_t k = 0; k < u->ncause && !strcmp(c->word, "collected"); k++) /* elements are used anywhere */
                if (u->cause[k].cause == c && xl_str_eq(u->cause[k].what, xl_node_text(d, "part")))
                    where = u->cause[k].where;
            s = seen(a, u, c, xl_node_text(d, "part"), where);
        } else if (number && element_of(xl_node_text(d, "text")).n) {
            s = seen(a, u, c, element_of(xl_node_text(d, "text")), where);
        } else if (number) {
            s = seen(a, u, c, XL_STR("a constant"), where);
        } else if (xl_str_is(what, "identical") && xl_node_is(e, "reason", "identical") &&
                   (config.n || xl_node_text(e, "words").n)) {
            xl_str known = config.n ? config : xl_node_text(e, "words");
            s = seen(a, u, c, xl_strf(a, "%.*s; %.*s", XL_FMT(known), XL_FMT(xl_node_text(d, "text"))), where);
        } else {
            s = seen(a, u, c, without(xl_node_text(d, "text"), where), where);
        }
        if (c == own && mine == SIZE_MAX)
            mine = (size_t)(s - u->cause);
        s->optax |= xl_node_is(d, "library", "optax");
        s->trains |= xl_node_flag(d, "trains");
        s->late |= xl_node_is(e, "phase", "steady");
        s->times++;
        s->ops += (uint32_t)xl_node_num(d, "ops", 0);
        count_growth(s, e, d);
        if (!s->nvalue && (c->ask == XL_ASK_BRANCH || c->ask == XL_ASK_VALUE) && !s->values.n)
            s->values = xl_node_text(e, "values");
        if (c->ask == XL_ASK_BRANCH || c->ask == XL_ASK_VALUE) {
            XL_PUSH(a, u->turned, u->nturned, u->capturned, xl_node_text(e, "values"));
            XL_PUSH(a, u->turned, u->nturned, u->capturned, xl_node_text(d, "part"));
        }
        if (listed) {
            xl_str text = xl_node_text(d, "text");
            const char *end = memmem(text.p, text.n, " was ", 5);
            size_t head = text.n > 9 && text.p[9] == '`' ? 9 : 0; /* "argument " */
            add_value(a, s, end ? (xl_str){ text.p + head, (size_t)(end - text.p) - head } : text);
        } else if (sized || number || xl_str_eq(s->what, xl_node_text(d, "part"))) {
            add_value(a, s, xl_node_text(d, "before"));
            add_value(a, s, xl_node_text(d, "after"));
        }
    }
    if (!any) {                                            /* flags, options, the frontend's own doing */
        answer(a, v, own);
        xl_str text = xl_node_text(e, "words");
        if (!text.n)
            text = detail && detail->n ? xl_node_text(detail->kid[0], "text") : xl_strf(a, "%s", own->word);
        seen(a, u, own, text, (xl_str){ "", 0 })->times++;
    } else if (before == u->ncause && !u->ncause) {
        seen(a, u, own, xl_node_text(e, "reason"), (xl_str){ "", 0 })->times++;
    }
    return mine;
}

/* What came after the warm-up window is told first; what has no line says less than the same with one, and a layout
 * or a donation less than all else. */
static int by_weight(const void *a, const void *b)
{
    const xl_cause_seen *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (x->late != y->late)
        return x->late ? -1 : 1;
    if (!x->where.n != !y->where.n)
        return x->where.n ? -1 : 1;
    if (x->ops != y->ops)
        return x->ops > y->ops ? -1 : 1;
    return x->nth < y->nth ? -1 : 1;
}

/* One argument that took the same values, first used on another line: told already. */
static bool again(const xl_run_unit *u, size_t kept, const xl_cause_seen *c)
{
    for (size_t k = 0; k < kept; k++) {
        const xl_cause_seen *x = &u->cause[k];
        bool same = c->nvalue && x->cause == c->cause && xl_str_eq(x->what, c->what) &&
                    xl_str_starts(c->what, XL_STR("argument ")) && x->nvalue == c->nvalue;
        for (size_t i = 0; i < c->nvalue && same; i++) {
            bool there = false;
            for (size_t j = 0; j < x->nvalue; j++)
                there |= xl_str_eq(c->value[i], x->value[j]);
            same = there;
        }
        if (same)
            return true;
    }
    return false;
}

/* Sizes that a program pads to, or that it was written for, are few, and each of them came in the first half of its
 * run, or ran many times before the next one came. */
static bool buckets(const xl_run_unit *u, const xl_cause_seen *c)
{
    enum { SIZES = 16, RUNS = 16, GAP = 10 };
    double runs = (double)u->runs, rest = runs - c->number + 1;
    bool early = 2 * c->number <= runs && runs >= RUNS * (double)c->nvalue, seldom = c->gap >= GAP && rest >= GAP;
    return c->nvalue >= 2 && c->nvalue <= SIZES && c->number > 0 && (early || seldom);
}

/* "argument `step`" of a sentence that has it, or empty. */
static xl_str argument_of(xl_str text)
{
    static const char head[] = "argument `";
    const char *at = memmem(text.p, text.n, head, sizeof head - 1), *end = text.p + text.n;
    const char *close = at ? memchr(at + sizeof head - 1, '`', (size_t)(end - at) - (sizeof head - 1)) : NULL;
    return close ? (xl_str){ at, (size_t)(close - at) + 1 } : (xl_str){ "", 0 };
}

/* Another value of that static argument came with another program. */
static bool turned(const xl_run_unit *u, xl_str argument)
{
    for (size_t i = 0; i < u->nturned && argument.n; i++)
        if (memmem(u->turned[i].p, u->turned[i].n, argument.p, argument.n))
            return true;
    return false;
}

/* A static argument took its second value early, and no third. */
static bool modes(const xl_run_unit *u, const xl_cause_seen *c)
{
    for (size_t i = 0; i < u->ncause; i++)
        if (u->cause[i].cause->ask == XL_ASK_AGAIN)
            return false;
    return c->times == 1 && u->compiles == 2 && argument_of(c->values).n &&
           c->number > 0 && 2 * c->number <= (double)u->runs && u->runs >= 8;
}

/* Its first size, and a smaller one. */
static bool last_batch(const xl_cause_seen *c)
{
    int64_t first, then;
    return c->nvalue == 2 && xl_str_i64(c->value[0], &first) && xl_str_i64(c->value[1], &then) && then < first;
}

/* What only the whole run tells of a cause. */
static void find_habits(xl_run_unit *u)
{
    enum { MANY = 6 };                                     /* sizes: more will come */
    for (size_t i = 0; i < u->ncause; i++) {
        xl_cause_seen *c = &u->cause[i];
        bool shape = !strcmp(c->cause->word, "shape") || !strcmp(c->cause->word, "length");
        if (shape && c->growths >= 3 && 2 * c->growths >= c->times)
            c->cause = xl_cause_of(XL_STR("grown"));
        else if (shape && buckets(u, c))
            c->cause = xl_cause_of(XL_STR("buckets"));
        else if (shape && c->nvalue >= MANY)
            c->cause = xl_cause_of(XL_STR("sizes"));
        else if (shape && !last_batch(c))
            c->cause = xl_cause_of(XL_STR("length"));
        else if (!strcmp(c->cause->word, "unused") && turned(u, argument_of(c->what)))
            c->cause = xl_cause_of(XL_STR("shared"));
        else if (!strcmp(c->cause->word, "op") && modes(u, c))
            c->cause = xl_cause_of(XL_STR("modes"));
    }
}

const xl_cause *xl_run_cause(const xl_run_verdict *v, size_t i)
{
    const xl_cause *c = xl_event_cause(v->event[i]);
    const xl_node *detail = xl_node_get(v->event[i], "detail");
    if (v->habit[i])
        return v->habit[i];
    bool again = !strcmp(c->word, "unused") && detail && detail->n && v->of[i] &&
                 turned(v->of[i], argument_of(xl_node_text(detail->kid[0], "text")));
    return again ? xl_cause_of(XL_STR("shared")) : c;
}

const char *xl_run_remedy(const xl_run_verdict *v, size_t i)
{
    const xl_cause *c = xl_run_cause(v, i), *sizes = NULL;
    for (size_t k = 0; v->of[i] && k < v->of[i]->ncause && !strcmp(c->word, "shape"); k++) {
        const xl_cause *seen = v->of[i]->cause[k].cause;
        if (!strcmp(seen->word, "length") || !strcmp(seen->word, "sizes"))
            sizes = seen;
        else if (seen == c)
            break;
    }
    return xl_cause_remedy(sizes ? sizes : c, xl_node_text(v->event[i], "module"));
}

/* Ops that came or went on one line are one cause. */
static void tidy(xl_run_unit *u)
{
    size_t kept = 0;
    for (size_t i = 0; i < u->ncause; i++) {
        xl_cause_seen *c = &u->cause[i];
        bool light = !strcmp(c->cause->word, "layout") || !strcmp(c->cause->word, "donation"), late = false;
        for (size_t k = 0; k < u->ncause; k++)
            late |= u->cause[k].cause == c->cause && u->cause[k].late;
        c->nth = (uint32_t)i;
        c->group = (uint32_t)(i + (light ? 2 : late ? 0 : 1) * u->ncause);
        for (size_t k = i; k-- > 0;)
            if (u->cause[k].cause == c->cause)
                c->group = u->cause[k].group;
    }
    if (u->ncause)
        qsort(u->cause, u->ncause, sizeof *u->cause, by_weight);
    for (size_t i = 0; i < u->ncause; i++) {
        xl_cause_seen *c = &u->cause[i], *same = NULL;
        for (size_t k = 0; k < kept && !same; k++)
            if (u->cause[k].cause == c->cause && c->cause == xl_cause_of(XL_STR("op")) &&
                (!c->where.n || xl_str_eq(u->cause[k].where, c->where)))
                same = &u->cause[k];
        if (same)
            same->more += c->where.n > 0;
        else if (!again(u, kept, c))
            u->cause[kept++] = *c;
    }
    u->ncause = kept;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */
typedef struct {
    xl_run_unit *unit;
    xl_str module, function;
    double pid;                                            /* of a process that replaced itself: each program its own */
    int n, cached, loaded, failed;
    bool counted;
} member;

xl_str xl_run_module_name(xl_str module)
{
    static const char *const prefix[] = { "jit_", "pmap_" };
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (xl_str_starts(module, xl_str_of(prefix[i])) && module.n > strlen(prefix[i])) {
            size_t k = strlen(prefix[i]);
            return (xl_str){ module.p + k, module.n - k };
        }
    return xl_contract_group(module);
}

bool xl_run_module_is(xl_str module, xl_str name)
{
    return xl_str_eq(name, module) || xl_str_eq(name, xl_contract_group(module)) ||
           xl_str_eq(name, xl_run_module_name(module));
}

/* Of two processes, modules of one name are one function's if JAX says the same place of both. Where it says none of
 * either, they are taken to be: ranks are. */
static bool one_function(const member *m, const xl_node *e, double pid)
{
    return m->pid == pid || xl_str_eq(m->function, xl_node_text(e, "function"));
}

/* By name; where names are only numbered, with the program that it was compared with. */
static xl_run_unit *unit_of(xl_arena *a, xl_run_verdict *v, const member *m, size_t nmember, const xl_node *e,
                            double pid, size_t *cap)
{
    xl_str module = xl_node_text(e, "module"), group = xl_contract_group(module),
           near = xl_node_text(e, "against_module");
    bool numbered = group.n < module.n;
    for (size_t i = 0; i < nmember; i++)
        if ((xl_str_eq(m[i].module, module) && one_function(&m[i], e, pid)) ||
            (numbered && near.n && xl_str_eq(m[i].module, near)))
            return m[i].unit;
    xl_run_unit *u = xl_new(a, xl_run_unit, 1);
    *u = (xl_run_unit){ .module = module,
                        .name = xl_node_text(e, "name"),
                        .helper = xl_node_flag(e, "helper"),
                        .first = xl_node_num(e, "t", 0),
                        .pid = xl_node_num(e, "pid", 0) };
    if (!u->name.n)
        u->name = xl_run_module_name(module);
    XL_PUSH(a, v->unit, v->nunit, *cap, u);
    return u;
}

/* Its place is said of a function without a name of its own, and where several have one name: the first goes by that
 * alone ("jit_step"), the next is "jit_step@eval.py:9". */
static void find_functions(xl_run_verdict *v)
{
    for (size_t i = 0; i < v->nunit; i++) {
        xl_run_unit *u = v->unit[i];
        bool several = xl_str_is(u->name, "_lambda") || xl_str_is(u->name, "_fun") || xl_str_is(u->name, "_");
        for (size_t k = 0; k < v->nunit && !several; k++) {
            xl_str other = v->unit[k]->module;
            several = (k != i && xl_str_eq(other, u->module)) ||
                      (other.n > u->module.n && other.p[u->module.n] == '@' && xl_str_starts(other, u->module));
        }
        for (size_t k = 0; k < v->nevent && several && !u->function.n; k++)
            if (v->of[k] == u)
                u->function = xl_path_base(xl_node_text(v->event[k], "function"));
        const char *at = memchr(u->module.p, '@', u->module.n), *in = memchr(u->name.p, '@', u->name.n);
        if (at)
            u->function = (xl_str){ at + 1, u->module.n - (size_t)(at + 1 - u->module.p) };
        if (in)
            u->name.n = (size_t)(in - u->name.p);
    }
}

/* A function that ran a few times, all before the one that ran most was first compiled, is an initialiser. One that
 * came out of the warm-up window is a step, however often another ran later. */
static void find_steps(xl_run_verdict *v, bool counted)
{
    enum { STEP_RUNS = 3, LOOP_RUNS = 10 };
    const xl_run_unit *most = NULL;
    for (size_t i = 0; i < v->nunit; i++)
        if (!v->unit[i]->helper && (!most || v->unit[i]->runs > most->runs))
            most = v->unit[i];
    for (size_t i = 0; i < v->nunit; i++) {
        xl_run_unit *u = v->unit[i];
        if (u->helper)
            continue;
        bool often = !counted || u->runs >= STEP_RUNS || u == most;
        bool initialises = counted && u != most && u->pid == most->pid && u->runs < LOOP_RUNS && u->last < most->first;
        u->step |= often && !initialises;
    }
}

/* Executions of that event's process in all. */
static double executed_by(const xl_run_verdict *v, const xl_node *e)
{
    double most = 0;
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *o = v->event[i];
        if (xl_node_num(o, "pid", 0) == xl_node_num(e, "pid", 0)) {
            double n = xl_node_num(o, xl_node_is(o, "event", "exit") ? "executes" : "executed", 0);
            most = n > most ? n : most;
        }
    }
    return most;
}

/* The first argument whose shape changed, in a compile of an op or a library's function; or NULL. */
static const xl_node *new_shape(const xl_node *e)
{
    const xl_node *detail = xl_event_again(e) ? xl_node_get(e, "detail") : NULL;
    for (size_t i = 0; detail && i < detail->n; i++) {
        const xl_node *d = detail->kid[i];
        const xl_cause *c = detail_cause(e, d);
        bool sliced = xl_str_ends(xl_node_text(d, "part"), XL_STR(" slice_sizes")) ||
                      xl_str_ends(xl_node_text(d, "part"), XL_STR(" limit_indices"));
        bool sized = c && c->ask == XL_ASK_SHAPE && xl_node_get(d, "arg") && !xl_node_flag(d, "follows");
        if ((sized || sliced) && xl_node_text(d, "where").n)
            return d;
    }
    return NULL;
}

/* Ops and library functions compile for each new shape. A program that begins with arrays of many shapes has compiled
 * them all by its second half; one whose arrays grow has not, and compiles in each of its steps. */
static void find_grown(xl_arena *a, xl_run_verdict *v)
{
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i], *d = v->of[i] && v->of[i]->helper ? new_shape(e) : NULL;
        if (!d)
            continue;
        xl_run_grown *g = NULL;
        xl_str who = xl_node_get(d, "dim")       ? xl_strf(a, "dimension %.0f", xl_node_num(d, "dim", 0))
                     : xl_node_text(d, "part").n ? XL_STR("the size of a slice")
                                                 : XL_STR("");
        for (size_t k = 0; k < v->ngrown && !g; k++)
            if (v->grown[k].unit == v->of[i] && xl_str_eq(v->grown[k].where, xl_node_text(d, "where")))
                g = &v->grown[k];
        if (!g) {
            XL_PUSH(a, v->grown, v->ngrown, v->capgrown,
                    ((xl_run_grown){ .unit = v->of[i], .where = xl_node_text(d, "where"), .who = who }));
            g = &v->grown[v->ngrown - 1];
        }
        bool late = 2 * xl_node_num(e, "executed", 0) > executed_by(v, e);
        g->times++;
        g->late += late;
        g->early += !late;
        if (who.n && xl_str_eq(g->who, who))
            XL_PUSH(a, g->value, g->nvalue, g->capvalue, xl_node_text(d, "after"));
    }
    size_t n = 0;
    for (size_t i = 0; i < v->ngrown; i++)
        if (v->grown[i].early && v->grown[i].late >= 3)
            v->grown[n++] = v->grown[i];
    v->ngrown = n;
}

/* A process that replaced itself (exec) attached again: below 1, which of its programs the event is of. */
static double program_of(const xl_run_verdict *v, const size_t *attach, size_t nattach, size_t event)
{
    const xl_node *e = v->event[event], *first = NULL;
    int n = 0;
    for (size_t i = 0; i < nattach && attach[i] < event; i++) {
        const xl_node *o = v->event[attach[i]];
        if (xl_node_num(o, "pid", 0) != xl_node_num(e, "pid", 0))
            continue;
        n += first && xl_str_eq(xl_node_text(o, "plugin"), xl_node_text(first, "plugin"));
        first = first ? first : o;
    }
    return n / 1024.0;
}

/* Processes that attached and are gone without their last event. One that replaced itself (exec) attached again. */
static int count_cut(const xl_run_verdict *v)
{
    int cut = 0;
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i];
        int attached = 1, ended = 0;
        bool before = false, whole = false;                /* its last client ended, with its counters */
        if (!xl_node_is(e, "event", "attach"))
            continue;
        for (size_t k = 0; k < v->nevent; k++) {
            const xl_node *o = v->event[k];
            if (xl_node_num(o, "pid", 0) != xl_node_num(e, "pid", 0))
                continue;
            bool same = k != i && xl_node_is(o, "event", "attach") &&
                        xl_str_eq(xl_node_text(o, "plugin"), xl_node_text(e, "plugin"));
            attached += same;
            before |= (same || xl_node_is(o, "event", "attach")) && k < i;
            ended += xl_node_is(o, "event", "exit");
            if (xl_node_is(o, "event", "client_end"))
                whole = xl_node_flag(o, "counters");
            else if (xl_node_is(o, "event", "client") || xl_node_is(o, "event", "attach") ||
                     xl_node_is(o, "event", "compile") || xl_node_is(o, "event", "exit"))
                whole = false;
        }
        ended += whole;
        if (!before && attached > ended)
            cut += attached - ended - (ended < attached && xl_pid_alive((int64_t)xl_node_num(e, "pid", 0)));
    }
    return cut;
}

static void find_end(xl_arena *a, const char *dir, xl_run_verdict *v)
{
    v->end = xl_run_end_of(a, dir);
    v->going = xl_run_going(a, dir);
    v->unended = xl_run_unended(a, dir);
    v->cut = v->going || v->gaps ? 0 : count_cut(v);
}

/* A program that the policy had refused already, and that was asked for once more. */
static bool refused_before(const xl_run_verdict *v, size_t event)
{
    if (!xl_node_is(v->event[event], "result", "stopped") || xl_event_cause(v->event[event])->ask != XL_ASK_AGAIN)
        return false;
    for (size_t i = 0; i < event; i++)
        if (v->of[i] == v->of[event] && xl_node_is(v->event[i], "result", "stopped"))
            return true;
    return false;
}

/* Executions of each unit. Counts are kept by module: where several functions have one name, those of their processes
 * alone are theirs. */
static void count_runs(xl_arena *a, const char *dir, xl_metrics *all, member *mem, size_t nmem)
{
    for (size_t k = 0; k < nmem; k++) {
        bool first = true, mine = true;
        for (size_t q = 0; q < nmem; q++) {
            bool same = xl_str_eq(mem[q].module, mem[k].module);
            mem[k].unit->shares |= same && mem[q].unit != mem[k].unit;
            first &= !(same && q < k);
            mine &= !(same && q < k && (int64_t)mem[q].pid == (int64_t)mem[k].pid);
        }
        xl_metrics *one = NULL;
        if (mem[k].unit->shares && mine)
            xl_error_free(xl_metrics_read_process(a, dir, (int64_t)mem[k].pid, &one));
        xl_metrics *from = !mem[k].unit->shares ? (first ? all : NULL) : one;
        const xl_module_metrics *mm = from ? xl_metrics_module(from, mem[k].module) : NULL;
        mem[k].unit->runs += mm ? xl_module_metrics_count(mm, XL_M_ExecuteTime) : 0;
        mem[k].unit->waited += mm ? xl_module_metrics_count(mm, XL_M_HostSync) : 0;
        mem[k].unit->awaited += mm ? xl_module_metrics_count(mm, XL_M_HostWait) : 0;
        xl_metrics_free(one);
    }
}

/* Of a process that was killed, its steps may have been written later than its counts: the larger is nearer. */
static void count_steps(xl_arena *a, const char *dir, xl_run_verdict *v)
{
    xl_step_times *t = NULL;
    size_t n = 0;
    xl_error_free(xl_steps_read(a, dir, &t, &n));
    for (size_t i = 0; i < v->nunit && n == 1; i++)
        if (xl_str_eq(v->unit[i]->module, t->module) && v->unit[i]->runs < t->steps)
            v->unit[i]->runs = t->steps;
}

/* Compiles of each unit, per process: ranks compile the same. */
static void add_up(const member *mem, size_t nmem)
{
    for (size_t k = 0; k < nmem; k++) {
        member sum = mem[k];
        for (size_t q = 0; q < nmem; q++)
            if (q != k && mem[q].unit == mem[k].unit && mem[q].pid == mem[k].pid) {
                sum.n += mem[q].n;
                sum.cached += mem[q].cached;
                sum.loaded += mem[q].loaded;
                sum.failed += mem[q].failed;
            }
        xl_run_unit *u = sum.unit;
        bool counted = false;                              /* this process, as another member of the unit */
        for (size_t q = 0; q < k; q++)
            counted |= mem[q].unit == u && mem[q].pid == mem[k].pid;
        if (!counted) {
            u->alike = !u->processes++ || (u->alike && sum.n == u->compiles && sum.cached == u->cached &&
                                           sum.loaded == u->loaded && sum.failed == u->failed);
            u->all_compiles += sum.n;
            u->all_cached += sum.cached;
            u->all_loaded += sum.loaded;
        }
        if (sum.n + sum.failed > u->compiles + u->failed) {
            u->compiles = sum.n;
            u->cached = sum.cached;
            u->loaded = sum.loaded;
            u->failed = sum.failed;
        }
    }
}

xl_error *xl_run_judge(xl_arena *a, const char *dir, xl_run_verdict *v)
{
    xl_error *err = NULL;
    xl_metrics *m = NULL;
    member *mem = NULL;
    size_t nmem = 0, capmem = 0, capunit = 0, processes, *attach = NULL, nattach = 0, capattach = 0;
    *v = (xl_run_verdict){ 0 };
    XL_DO(xl_run_events(a, dir, &v->event, &v->nevent));
    v->of = xl_new(a, xl_run_unit *, v->nevent + 1);
    v->habit = xl_new(a, const xl_cause *, v->nevent + 1);
    size_t *mine = xl_new(a, size_t, v->nevent + 1);       /* causes of their units */
    v->gaps = xl_run_gaps_of(a, dir).compiles;
    xl_error_free(xl_metrics_read(a, dir, &m, &processes));
    if (m && xl_metrics_idle(m)) {                         /* not written since it began */
        xl_metrics_free(m);
        m = NULL;
    }
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i];
        v->recorded |= xl_node_is(e, "event", "attach") || xl_node_is(e, "event", "compile") ||
                       xl_node_is(e, "event", "step") || xl_node_is(e, "event", "eval");
        v->builtin |= xl_node_is(e, "event", "unguarded");
        v->keeps |= xl_node_text(e, "cache").n && !xl_node_is(e, "cache", "off");
        if (xl_node_is(e, "event", "attach"))
            XL_PUSH(a, attach, nattach, capattach, i);
        if (!xl_node_is(e, "event", "compile"))
            continue;
        double pid = xl_node_num(e, "pid", 0) + program_of(v, attach, nattach, i);
        xl_run_unit *u = v->of[i] = unit_of(a, v, mem, nmem, e, pid, &capunit);
        member *one = NULL;
        for (size_t k = 0; k < nmem && !one; k++)
            if (xl_str_eq(mem[k].module, xl_node_text(e, "module")) && mem[k].pid == pid)
                one = &mem[k];
        if (!one) {
            XL_PUSH(a, mem, nmem, capmem,
                    ((member){ .unit = u,
                               .module = xl_node_text(e, "module"),
                               .function = xl_node_text(e, "function"),
                               .pid = pid }));
            one = &mem[nmem - 1];
        }
        one->n += !xl_node_is(e, "result", "failed") && !xl_node_is(e, "result", "stopped");
        one->cached += xl_node_is(e, "result", "cached");
        one->loaded += xl_node_is(e, "result", "loaded");
        one->failed += xl_node_is(e, "result", "failed");
        v->compiled += xl_node_is(e, "result", "compiled");
        v->cached += xl_node_is(e, "result", "cached");
        v->loaded += xl_node_is(e, "result", "loaded");
        v->failed += xl_node_is(e, "result", "failed");
        v->dropped += xl_node_is(e, "cache_reason", "evicted");
        v->damaged += xl_node_is(e, "cache_reason", "unreadable");
        u->last = xl_node_num(e, "t", 0);
        u->helper &= xl_node_flag(e, "helper");
        if (!u->place.n) {
            u->place = xl_node_text(e, "place");
            u->reads_value = xl_node_flag(e, "reads_value");
            v->placed |= u->place.n > 0;
        }
        u->refused += xl_node_is(e, "result", "stopped");
        u->filtered |= xl_node_is(e, "jitted_by", "equinox");
        if (xl_node_text(e, "uncacheable").n)
            u->uncacheable = xl_node_text(e, "uncacheable");
        u->step |=
            xl_node_is(e, "phase", "steady") || xl_node_is(e, "result", "failed") || xl_node_is(e, "result", "stopped");
        v->torch |= by_torch(xl_node_text(e, "module"));
    }
    if (m)
        count_runs(a, dir, m, mem, nmem);
    add_up(mem, nmem);
    find_functions(v);
    find_end(a, dir, v);
    if (m && v->cut)
        count_steps(a, dir, v);
    uint64_t ran = 0;
    for (size_t i = 0; i < v->nunit; i++)
        ran += v->unit[i]->runs;
    v->counted = ran > 0;
    find_steps(v, m && (ran || !xl_verdict_open(v)));
    for (size_t i = 0; i < v->nunit; i++) {
        v->eager_runs += v->unit[i]->helper ? v->unit[i]->runs : 0;
        v->steps += v->unit[i]->step;
    }
    for (size_t i = 0; i < v->nevent; i++) {
        mine[i] = SIZE_MAX;
        if (!v->of[i] || !v->of[i]->step || !xl_event_again(v->event[i]) || refused_before(v, i))
            continue;
        bool same = xl_node_is(v->event[i], "reason", "identical"), late = xl_node_is(v->event[i], "phase", "steady");
        bool before = xl_node_text(v->event[i], "against_run").n > 0;
        v->since += before && xl_node_is(v->event[i], "result", "compiled");
        v->traced += !before && same;
        v->early += !before && !same && !late;
        v->late += !before && !same && late;
        mine[i] = add_causes(a, v, v->of[i], v->event[i]);
    }
    find_grown(a, v);
    v->shape |= !v->steps && v->ngrown;                    /* where nothing but single ops ran */
    for (size_t i = 0; i < v->nunit; i++)
        find_habits(v->unit[i]);
    for (size_t i = 0; i < v->nevent; i++)                 /* before causes that read alike are joined */
        v->habit[i] = mine[i] < SIZE_MAX ? v->of[i]->cause[mine[i]].cause : NULL;
    for (size_t i = 0; i < v->nunit; i++)
        tidy(v->unit[i]);
out:
    xl_metrics_free(m);
    return err;
}

const xl_node *xl_run_step_compile(const xl_run_verdict *v, size_t first_event)
{
    const xl_node *step = NULL;
    int64_t most = -2;
    int heaviest = 0;
    for (size_t i = first_event; i < v->nevent; i++) {
        const xl_node *bytes = xl_node_get(v->event[i], "compiled_bytes");
        xl_str result = xl_node_text(v->event[i], "result");
        if (!xl_node_is(v->event[i], "event", "compile") || !xl_node_text(v->event[i], "program").n ||
            xl_str_is(result, "stopped"))
            continue;
        int64_t size = bytes ? bytes->i : -1;
        int heavy = xl_str_is(result, "failed") ? 2 : v->of[i] && v->of[i]->step;
        if (heavy > heaviest || (heavy == heaviest && size > most)) {
            heaviest = heavy;
            most = size;
            step = v->event[i];
        }
    }
    return step;
}

bool xl_unit_waits(const xl_run_unit *u) { return u->step && u->awaited >= 5 && 2 * u->awaited >= u->runs; }

bool xl_verdict_sized(const xl_run_verdict *v)
{
    for (size_t i = 0; i < v->nunit; i++)
        for (size_t k = 0; v->unit[i]->step && k < v->unit[i]->ncause; k++)
            if (!strcmp(v->unit[i]->cause[k].cause->word, "read-back"))
                return true;
    return false;
}

const xl_run_unit *xl_run_unit_of(const xl_run_verdict *v, const xl_node *e)
{
    const xl_run_unit *u = NULL;
    bool mine = false;
    for (size_t i = 0; i < v->nevent && !mine; i++)
        if (v->of[i] && xl_str_eq(xl_node_text(v->event[i], "module"), xl_node_text(e, "module"))) {
            mine = xl_node_num(v->event[i], "pid", 0) == xl_node_num(e, "pid", 0);
            u = mine || !u ? v->of[i] : u;
        }
    return u;
}
