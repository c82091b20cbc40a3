#include "lane/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/proc.h"
#include "lane/contract.h"
#include "lane/gaps.h"
#include "lane/run.h"

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

static xl_str str_of(const xl_node *map, const char *key)
{
    const xl_node *n = xl_node_get(map, key);
    return n && n->kind != XL_NODE_MAP && n->kind != XL_NODE_LIST && n->kind != XL_NODE_NULL ? n->s : (xl_str){ "", 0 };
}
static bool is(const xl_node *map, const char *key, const char *value) { return xl_str_is(str_of(map, key), value); }
static double num_of(const xl_node *map, const char *key)
{
    const xl_node *n = xl_node_get(map, key);
    return n ? n->f : 0;
}
static bool flag(const xl_node *map, const char *key)
{
    const xl_node *n = xl_node_get(map, key);
    return n && n->b;
}

/* ---- causes ------------------------------------------------------------------------------------------------------ */
/* A shape or type that is an argument's is the caller's; one that is none's was decided by a Python value. */
typedef struct { bool arg, dim, first, read_back, grown, carried; } sized;
static const xl_cause *finer(xl_str reason, xl_str what, sized s)
{
    if (xl_str_is(reason, "x64") || xl_str_is(reason, "weak-type") || xl_str_is(reason, "transform") ||
        xl_str_is(reason, "device"))
        return xl_cause_of(reason);
    if (xl_str_is(what, "shape"))
        return xl_cause_of(s.read_back ? XL_STR("read-back")
                           : !s.arg    ? XL_STR("size")
                           : !s.dim    ? XL_STR("axes")
                           : s.grown   ? XL_STR("grown")
                           : s.carried ? XL_STR("carried")
                           : s.first   ? what
                                       : XL_STR("length"));
    if (!s.arg && xl_str_is(what, "dtype"))
        return xl_cause_of(XL_STR("op"));
    return xl_cause_of(what);
}
static const xl_cause *detail_cause(const xl_node *e, const xl_node *d)
{
    if ((is(d, "what", "identical") || is(d, "what", "order")) && str_of(e, "way").n)
        return xl_cause_of(str_of(e, "way"));
    if (is(d, "what", "constant") && xl_str_starts(str_of(d, "part"), XL_STR("static argument ")))
        return xl_cause_of(XL_STR("static"));
    if (is(d, "what", "identical") && str_of(e, "config").n)
        return xl_cause_of(XL_STR("config"));
    if (is(d, "what", "identical") && is(e, "reason", "identical") && (str_of(e, "words").n || flag(e, "mapped")))
        return xl_cause_of(str_of(e, "words").n ? XL_STR("names") : XL_STR("mapped"));
    return finer(str_of(e, "reason"), str_of(d, "what"),
                 (sized){ xl_node_get(d, "arg") != NULL, xl_node_get(d, "dim") != NULL, num_of(d, "dim") == 0,
                          flag(d, "read_back"),
                          flag(d, "grown"), flag(d, "carried") });
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
        if (d->kind == XL_DIFF_CONSTANT && xl_str_starts(d->part, XL_STR("static argument ")))
            return xl_cause_of(XL_STR("static"));
        if (d->kind == XL_DIFF_IDENTICAL && !strcmp(v->reason, "identical") && (v->config.n || v->words.n || v->mapped))
            return xl_cause_of(v->config.n ? XL_STR("config") : v->words.n ? XL_STR("names") : XL_STR("mapped"));
        return finer(reason, reason,
                     (sized){ d->arg >= 0, d->dim >= 0, d->dim == 0, d->read_back, d->grown, d->carried });
    }
    return xl_cause_of(reason);
}

const xl_cause *xl_event_cause(const xl_node *e)
{
    const xl_node *detail = xl_node_get(e, "detail");
    const xl_cause *c = xl_cause_of(str_of(e, "reason"));
    for (size_t i = 0; detail && i < detail->n; i++)
        if (!flag(detail->kid[i], "follows") && xl_str_eq(str_of(detail->kid[i], "what"), str_of(e, "reason")))
            return detail_cause(e, detail->kid[i]);
    return c ? c : xl_cause_of(XL_STR("op"));
}

/* Not the first of its module in this run (and not one that the cache has lost); or the first, of a program that an
 * earlier run had and that something outside it sent to the compiler again. A program that is new since an earlier run
 * is no recompile. */
bool xl_event_again(const xl_node *e)
{
    const xl_cause *c = xl_cause_of(str_of(e, "reason"));
    if (!is(e, "event", "compile") || is(e, "reason", "first") || (c && c->ask == XL_ASK_LOST))
        return false;
    return !str_of(e, "against_run").n ||
           (c && c->ask == XL_ASK_POLICY && !is(e, "reason", "sharding") && !is(e, "reason", "x64"));
}

/* A constant on a line where ops came or went is part of that change. */
static bool among_ops(const xl_node *detail, const xl_node *d)
{
    for (size_t i = 0; i < detail->n && is(d, "what", "constant"); i++)
        if (is(detail->kid[i], "what", "op") && !flag(detail->kid[i], "follows") && str_of(d, "where").n &&
            xl_str_eq(str_of(detail->kid[i], "where"), str_of(d, "where")))
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
    double by = num_of(d, "after") - num_of(d, "before"), number = num_of(e, "number");
    bool on = by > 0 && number == s->number + 1 && (!s->growths || by == s->by);
    s->growths = on || s->growths >= 3 ? s->growths + on : 0;
    if (number > s->number && (s->gap == 0 || number - s->number < s->gap))
        s->gap = number - (s->number > 0 ? s->number : 1);
    s->by = by;
    s->number = number;
}

/* Adds what one compile says to its unit, and to the answers. */
static void add_causes(xl_arena *a, xl_run_verdict *v, xl_run_unit *u, const xl_node *e)
{
    const xl_node *detail = xl_node_get(e, "detail");
    xl_str config = str_of(e, "config");
    size_t before = u->ncause;
    bool any = false;
    if (config.n && !is(e, "reason", "identical")) {
        any = true;
        answer(a, v, xl_cause_of(XL_STR("config")));
        seen(a, u, xl_cause_of(XL_STR("config")), config, (xl_str){ "", 0 })->times++;
    }
    for (size_t i = 0; detail && i < detail->n; i++) {
        const xl_node *d = detail->kid[i];
        const xl_cause *c = detail_cause(e, d);
        xl_str where = str_of(d, "where"), what = str_of(d, "what"), name = str_of(d, "name");
        v->lines |= where.n > 0;
        v->perhaps |= flag(d, "perhaps");
        v->again |= xl_str_is(what, "identical") && is(e, "reason", "identical");
        v->widened |= is(e, "reason", "x64") && xl_str_is(what, "dtype") && xl_node_get(d, "arg");
        if (!c || flag(d, "follows") || among_ops(detail, d))
            continue;
        any = true;
        answer(a, v, c);
        bool sized = xl_node_get(d, "arg") && (xl_str_is(what, "shape") || xl_str_is(what, "dtype"));
        bool listed = xl_node_get(d, "arg") && xl_str_is(what, "args");
        bool number = xl_str_is(what, "constant") && str_of(d, "before").n < 24 && str_of(d, "after").n < 24 &&
                      !xl_str_starts(str_of(d, "after"), XL_STR("argument ")) &&
                      !xl_str_starts(str_of(d, "before"), XL_STR("argument "));
        xl_cause_seen *s;
        if (sized) {
            xl_str who =
                name.n ? xl_strf(a, "argument `%.*s`", XL_FMT(name)) : xl_strf(a, "argument %.0f", num_of(d, "arg"));
            if (xl_node_get(d, "dim"))
                who = xl_strf(a, "%.*s dimension %.0f", XL_FMT(who), num_of(d, "dim"));
            s = seen(a, u, c, who, where);
        } else if (listed) {
            bool came = str_of(d, "after").n > 0;
            s = seen(a, u, c,
                     flag(d, "optimizer") && came
                         ? XL_STR("the optimizer made its state in the first step, and it became arguments")
                     : came ? XL_STR("arguments were added")
                            : XL_STR("arguments were removed"),
                     where);
            s->join = ": ";
        } else if (str_of(d, "part").n && str_of(d, "before").n < 40 && str_of(d, "after").n < 40) {
            s = seen(a, u, c, str_of(d, "part"), where);
        } else if (number && element_of(str_of(d, "text")).n) {
            s = seen(a, u, c, element_of(str_of(d, "text")), where);
        } else if (number) {
            s = seen(a, u, c, XL_STR("a constant"), where);
        } else if (xl_str_is(what, "identical") && is(e, "reason", "identical") && (config.n || str_of(e, "words").n)) {
            xl_str known = config.n ? config : str_of(e, "words");
            s = seen(a, u, c, xl_strf(a, "%.*s; %.*s", XL_FMT(known), XL_FMT(str_of(d, "text"))), where);
        } else {
            s = seen(a, u, c, without(str_of(d, "text"), where), where);
        }
        s->times++;
        s->ops += (uint32_t)num_of(d, "ops");
        count_growth(s, e, d);
        if (!s->nvalue && (c->ask == XL_ASK_BRANCH || c->ask == XL_ASK_VALUE) && !s->values.n)
            s->values = str_of(e, "values");
        if (c->ask == XL_ASK_BRANCH || c->ask == XL_ASK_VALUE) {
            XL_PUSH(a, u->turned, u->nturned, u->capturned, str_of(e, "values"));
            XL_PUSH(a, u->turned, u->nturned, u->capturned, str_of(d, "part"));
        }
        if (listed) {
            xl_str text = str_of(d, "text");
            const char *end = memmem(text.p, text.n, " was ", 5);
            add_value(a, s, end ? (xl_str){ text.p + 9, (size_t)(end - text.p) - 9 } : text); /* after "argument " */
        } else if (sized || number || xl_str_eq(s->what, str_of(d, "part"))) {
            add_value(a, s, str_of(d, "before"));
            add_value(a, s, str_of(d, "after"));
        }
    }
    if (!any) {                                            /* flags, options, the frontend's own doing */
        const xl_cause *c = xl_event_cause(e);
        answer(a, v, c);
        xl_str text = str_of(e, "against_run").n ? xl_strf(a, "%.*s since run %.*s", XL_FMT(str_of(e, "words")),
                                                           XL_FMT(str_of(e, "against_run")))
                                                 : str_of(e, "words");
        if (!text.n)
            text = detail && detail->n ? str_of(detail->kid[0], "text") : xl_strf(a, "%s", c->word);
        seen(a, u, c, text, (xl_str){ "", 0 })->times++;
    } else if (before == u->ncause && !u->ncause) {
        seen(a, u, xl_event_cause(e), str_of(e, "reason"), (xl_str){ "", 0 })->times++;
    }
}

/* What has no line says less than the same with one, and a layout or a donation less than all else. */
static int by_weight(const void *a, const void *b)
{
    const xl_cause_seen *x = a, *y = b;
    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
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

/* "static argument `step`" of a sentence that has it, or empty. */
static xl_str argument_of(xl_str text)
{
    static const char head[] = "static argument `";
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
    return c->times == 1 && u->compiles == 2 && xl_str_starts(c->values, XL_STR("static argument ")) &&
           c->number > 0 && 2 * c->number <= (double)u->runs && u->runs >= 8;
}

/* What only the whole run tells of a cause. */
static void find_habits(xl_run_unit *u)
{
    for (size_t i = 0; i < u->ncause; i++) {
        xl_cause_seen *c = &u->cause[i];
        bool shape = !strcmp(c->cause->word, "shape") || !strcmp(c->cause->word, "length");
        if (shape && c->growths >= 3 && 2 * c->growths >= c->times)
            c->cause = xl_cause_of(XL_STR("grown"));
        else if (shape && buckets(u, c))
            c->cause = xl_cause_of(XL_STR("buckets"));
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
    bool again = !strcmp(c->word, "unused") && detail && detail->n && v->of[i] &&
                 turned(v->of[i], argument_of(str_of(detail->kid[0], "text")));
    return again ? xl_cause_of(XL_STR("shared")) : c;
}

/* Ops that came or went on one line are one cause. */
static void tidy(xl_run_unit *u)
{
    size_t kept = 0;
    find_habits(u);
    for (size_t i = 0; i < u->ncause; i++) {
        xl_cause_seen *c = &u->cause[i];
        bool light = !strcmp(c->cause->word, "layout") || !strcmp(c->cause->word, "donation");
        c->nth = c->group = (uint32_t)(light ? i + u->ncause : i);
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

static xl_str person_name(xl_str module)
{
    static const char *const prefix[] = { "jit_", "pmap_" };
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (xl_str_starts(module, xl_str_of(prefix[i])) && module.n > strlen(prefix[i])) {
            size_t k = strlen(prefix[i]);
            return (xl_str){ module.p + k, module.n - k };
        }
    return xl_contract_group(module);
}

/* Of two processes, modules of one name are one function's if JAX says the same place of both. Where it says none of
 * either, they are taken to be: ranks are. */
static bool one_function(const member *m, const xl_node *e, double pid)
{
    return m->pid == pid || xl_str_eq(m->function, str_of(e, "function"));
}

/* By name; where names are only numbered, with the program that it was compared with. */
static xl_run_unit *unit_of(xl_arena *a, xl_run_verdict *v, const member *m, size_t nmember, const xl_node *e,
                            double pid, size_t *cap)
{
    xl_str module = str_of(e, "module"), group = xl_contract_group(module), near = str_of(e, "against_module");
    bool numbered = group.n < module.n;
    for (size_t i = 0; i < nmember; i++)
        if ((xl_str_eq(m[i].module, module) && one_function(&m[i], e, pid)) ||
            (numbered && near.n && xl_str_eq(m[i].module, near)))
            return m[i].unit;
    xl_run_unit *u = xl_new(a, xl_run_unit, 1);
    *u = (xl_run_unit){
        .module = module, .name = str_of(e, "name"), .helper = flag(e, "helper"), .first = num_of(e, "t"),
        .pid = num_of(e, "pid")
    };
    if (!u->name.n)
        u->name = person_name(module);
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
                u->function = xl_path_base(str_of(v->event[k], "function"));
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
        if (num_of(o, "pid") == num_of(e, "pid")) {
            double n = num_of(o, is(o, "event", "exit") ? "executes" : "executed");
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
        bool sliced = xl_str_ends(str_of(d, "part"), XL_STR(" slice_sizes")) ||
                      xl_str_ends(str_of(d, "part"), XL_STR(" limit_indices"));
        bool sized = c && c->ask == XL_ASK_SHAPE && xl_node_get(d, "arg") && !flag(d, "follows");
        if ((sized || sliced) && str_of(d, "where").n)
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
        xl_str who = xl_node_get(d, "dim") ? xl_strf(a, "dimension %.0f", num_of(d, "dim"))
                     : str_of(d, "part").n    ? XL_STR("the size of a slice")
                                              : XL_STR("");
        for (size_t k = 0; k < v->ngrown && !g; k++)
            if (v->grown[k].unit == v->of[i] && xl_str_eq(v->grown[k].where, str_of(d, "where")))
                g = &v->grown[k];
        if (!g) {
            XL_PUSH(a, v->grown, v->ngrown, v->capgrown,
                    ((xl_run_grown){ .unit = v->of[i], .where = str_of(d, "where"), .who = who }));
            g = &v->grown[v->ngrown - 1];
        }
        bool late = 2 * num_of(e, "executed") > executed_by(v, e);
        g->times++;
        g->late += late;
        g->early += !late;
        if (who.n && xl_str_eq(g->who, who))
            XL_PUSH(a, g->value, g->nvalue, g->capvalue, str_of(d, "after"));
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
        if (num_of(o, "pid") != num_of(e, "pid"))
            continue;
        n += first && xl_str_eq(str_of(o, "plugin"), str_of(first, "plugin"));
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
        if (!is(e, "event", "attach"))
            continue;
        for (size_t k = 0; k < v->nevent; k++) {
            const xl_node *o = v->event[k];
            if (num_of(o, "pid") != num_of(e, "pid"))
                continue;
            bool same = k != i && is(o, "event", "attach") && xl_str_eq(str_of(o, "plugin"), str_of(e, "plugin"));
            attached += same;
            before |= (same || is(o, "event", "attach")) && k < i;
            ended += is(o, "event", "exit");
            if (is(o, "event", "client_end"))
                whole = flag(o, "counters");
            else if (is(o, "event", "client") || is(o, "event", "attach") || is(o, "event", "compile") ||
                     is(o, "event", "exit"))
                whole = false;
        }
        ended += whole;
        if (!before && attached > ended)
            cut += attached - ended - (ended < attached && xl_pid_alive((int64_t)num_of(e, "pid")));
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
    if (!is(v->event[event], "result", "stopped") || xl_event_cause(v->event[event])->ask != XL_ASK_AGAIN)
        return false;
    for (size_t i = 0; i < event; i++)
        if (v->of[i] == v->of[event] && is(v->event[i], "result", "stopped"))
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
    v->gaps = xl_run_gaps_of(a, dir).compiles;
    xl_error_free(xl_metrics_read(a, dir, &m, &processes));
    if (m && xl_metrics_idle(m)) {                         /* not written since it began */
        xl_metrics_free(m);
        m = NULL;
    }
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i];
        v->recorded |=
            is(e, "event", "attach") || is(e, "event", "compile") || is(e, "event", "step") || is(e, "event", "eval");
        v->builtin |= is(e, "event", "unguarded");
        if (is(e, "event", "attach"))
            XL_PUSH(a, attach, nattach, capattach, i);
        if (!is(e, "event", "compile"))
            continue;
        double pid = num_of(e, "pid") + program_of(v, attach, nattach, i);
        xl_run_unit *u = v->of[i] = unit_of(a, v, mem, nmem, e, pid, &capunit);
        member *one = NULL;
        for (size_t k = 0; k < nmem && !one; k++)
            if (xl_str_eq(mem[k].module, str_of(e, "module")) && mem[k].pid == pid)
                one = &mem[k];
        if (!one) {
            XL_PUSH(a, mem, nmem, capmem,
                    ((member){ .unit = u, .module = str_of(e, "module"), .function = str_of(e, "function"),
                               .pid = pid }));
            one = &mem[nmem - 1];
        }
        one->n += !is(e, "result", "failed") && !is(e, "result", "stopped");
        one->cached += is(e, "result", "cached");
        one->loaded += is(e, "result", "loaded");
        one->failed += is(e, "result", "failed");
        v->compiled += is(e, "result", "compiled");
        v->cached += is(e, "result", "cached");
        v->loaded += is(e, "result", "loaded");
        v->failed += is(e, "result", "failed");
        v->dropped += is(e, "cache_reason", "evicted");
        v->damaged += is(e, "cache_reason", "unreadable");
        u->last = num_of(e, "t");
        u->helper &= flag(e, "helper");
        if (!u->place.n) {
            u->place = str_of(e, "place");
            u->reads_value = flag(e, "reads_value");
            v->placed |= u->place.n > 0;
        }
        u->refused += is(e, "result", "stopped");
        u->step |= is(e, "phase", "steady") || is(e, "result", "failed") || is(e, "result", "stopped");
        v->torch |= xl_str_starts(str_of(e, "module"), XL_STR("SyncTensorsGraph"));
    }
    if (m)
        count_runs(a, dir, m, mem, nmem);
    add_up(mem, nmem);
    find_functions(v);
    find_end(a, dir, v);
    uint64_t ran = 0;
    for (size_t i = 0; i < v->nunit; i++)
        ran += v->unit[i]->runs;
    find_steps(v, m && (ran || !xl_verdict_open(v)));
    for (size_t i = 0; i < v->nunit; i++) {
        v->eager_runs += v->unit[i]->helper ? v->unit[i]->runs : 0;
        v->steps += v->unit[i]->step;
    }
    for (size_t i = 0; i < v->nevent; i++) {
        if (!v->of[i] || !v->of[i]->step || !xl_event_again(v->event[i]) || refused_before(v, i))
            continue;
        bool same = is(v->event[i], "reason", "identical"), late = is(v->event[i], "phase", "steady");
        bool before = str_of(v->event[i], "against_run").n > 0;
        v->since += before && is(v->event[i], "result", "compiled");
        v->traced += !before && same;
        v->early += !before && !same && !late;
        v->late += !before && !same && late;
        add_causes(a, v, v->of[i], v->event[i]);
    }
    find_grown(a, v);
    v->shape |= !v->steps && v->ngrown;                    /* where nothing but single ops ran */
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
        xl_str result = str_of(v->event[i], "result");
        if (!xl_str_is(str_of(v->event[i], "event"), "compile") || !str_of(v->event[i], "program").n ||
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

bool xl_verdict_sized(const xl_run_verdict *v)
{
    for (size_t i = 0; i < v->nunit; i++)
        for (size_t k = 0; v->unit[i]->step && k < v->unit[i]->ncause; k++)
            if (!strcmp(v->unit[i]->cause[k].cause->word, "read-back"))
                return true;
    return false;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */
/* counted: how often it was is said already */
static void say_cause(const xl_cause_seen *c, bool counted, xl_buf *b)
{
    enum { VALUES = 8 };
    xl_buf_printf(b, "%.*s", XL_FMT(c->what));
    if (c->nvalue)
        xl_buf_puts(b, c->join ? c->join : " took ");
    for (size_t i = 0; i < c->nvalue && i < VALUES; i++)
        xl_buf_printf(b, "%s%.*s", i ? ", " : "", XL_FMT(c->value[i]));
    if (c->nvalue > VALUES)
        xl_buf_printf(b, " and %zu more (--json lists all)", c->nvalue - VALUES);
    if (c->where.n && !memmem(c->what.p, c->what.n, c->where.p, c->where.n))
        xl_buf_printf(b, " at %.*s", XL_FMT(c->where));
    if (c->values.n)
        xl_buf_printf(b, " (%.*s)", XL_FMT(c->values));
    if (!c->nvalue && c->times > 1 && !counted)
        xl_buf_printf(b, " (%d times)", c->times);
    if (c->more)
        xl_buf_printf(b, " (with %u more change%s there)", c->more, c->more == 1 ? "" : "s");
}

static const char *times(int n, char out[32])
{
    snprintf(out, 32, n == 1 ? "once" : "%d times", n);
    return out;
}

static void say_name(xl_str name, xl_str function, xl_buf *b)
{
    xl_buf_printf(b, "`%.*s`", XL_FMT(name));
    if (function.n)
        xl_buf_printf(b, " (%.*s)", XL_FMT(function));
}

const xl_run_unit *xl_run_unit_of(const xl_run_verdict *v, const xl_node *e)
{
    const xl_run_unit *u = NULL;
    bool mine = false;
    for (size_t i = 0; i < v->nevent && !mine; i++)
        if (v->of[i] && xl_str_eq(str_of(v->event[i], "module"), str_of(e, "module"))) {
            mine = num_of(v->event[i], "pid") == num_of(e, "pid");
            u = mine || !u ? v->of[i] : u;
        }
    return u;
}

void xl_run_name_say(const xl_run_verdict *v, const xl_node *e, xl_buf *b)
{
    const xl_run_unit *u = xl_run_unit_of(v, e);
    xl_str module = str_of(e, "module");
    say_name(u ? u->name : person_name(module), u ? u->function : (xl_str){ 0 }, b);
}

void xl_verdict_end_say(const xl_run_verdict *v, xl_buf *b)
{
    int refused = 0;
    for (size_t i = 0; i < v->nunit; i++)
        refused += v->unit[i]->refused;                    /* which is said, and why it ended */
    if (v->going)
        xl_buf_printf(b, "this run goes on: %.*s. What is said of it is until now, its counts until two seconds ago\n",
                      XL_FMT(v->unended));
    else if (v->unended.n)
        xl_buf_printf(b, "%.*s\n", XL_FMT(v->unended));
    else if (v->end.signal)
        xl_buf_printf(b, "this run was ended by signal %d (%s)%s\n", (int)v->end.signal, strsignal((int)v->end.signal),
                      v->cut ? ": what ran is counted until two seconds before that" : "");
    else if (v->end.has_status && v->end.status && !refused)
        xl_buf_printf(b, "this run ended with exit status %lld%s\n", (long long)v->end.status,
                      v->cut ? ": what ran is counted until two seconds before that" : "");
    else if (v->cut)
        xl_buf_printf(b,
                      "%d process%s of this run ended without writing %s last counts (os._exit, exec, a signal or a "
                      "full disk does that)\n",
                      v->cut, v->cut == 1 ? "" : "es", v->cut == 1 ? "its" : "their");
}

void xl_run_unit_say(xl_arena *a, const xl_run_verdict *v, const xl_run_unit *u, xl_buf *b)
{
    bool sum = u->processes > 1 && !u->ncause;             /* then all of them count, else those of one process */
    int all = sum ? u->all_compiles : u->compiles, stored = sum ? u->all_cached + u->all_loaded : u->cached + u->loaded;
    int made = all - stored;
    char word[2][32];
    say_name(u->name, u->function, b);
    xl_buf_putc(b, ' ');
    if (u->place.n)
        xl_buf_printf(b, "%s at %.*s ", u->reads_value ? "for a value that is read" : "run", XL_FMT(u->place));
    if (u->failed)
        xl_buf_printf(b, "failed to compile%s", u->compiles ? ", and " : "\n");
    if (!u->compiles)
        return;
    if (!stored)
        xl_buf_printf(b, "compiled %s", all == 1 ? "once" : "");
    else if (!made)
        xl_buf_printf(b, "was loaded from the cache%s", all == 1 ? "" : " ");
    else
        xl_buf_printf(b, "compiled %s and was loaded from the cache %s", times(made, word[0]), times(stored, word[1]));
    if (all > 1 && (!stored || !made))
        xl_buf_printf(b, "%d times", all);
    if (u->refused)
        xl_buf_printf(b, ", and was refused by the policy %s", times(u->refused, word[0]));
    if (!u->ncause) {
        if (u->runs)
            xl_buf_printf(b, ", ran %s%llu time%s", xl_verdict_open(v) ? "at least " : "",
                          (unsigned long long)u->runs, u->runs == 1 ? "" : "s");
        if (sum)
            xl_buf_printf(b, " (sums over %d processes)", u->processes);
        xl_buf_puts(b, u->compiles != 1 ? "" : v->going ? ": no recompile so far" : ": no recompile");
        xl_buf_putc(b, '\n');
        return;
    }
    if (u->processes > 1)
        xl_buf_printf(b, " in %s of %d processes", u->alike ? "each" : "one", u->processes);
    xl_buf_puts(b, ": ");
    enum { SHOWN = 4, KINDS = 6 };
    bool *show = xl_new(a, bool, u->ncause), *told = xl_new(a, bool, u->ncause);
    size_t n = 0;
    for (size_t i = 0; i < u->ncause && n < KINDS; i++) {  /* one of each kind before a second of any */
        show[i] = true;
        for (size_t k = 0; k < i && show[i]; k++)
            show[i] = u->cause[k].cause != u->cause[i].cause;
        n += show[i];
    }
    for (size_t i = 0; i < u->ncause && n < SHOWN; i++) {
        n += !show[i];
        show[i] = true;
    }
    for (size_t i = 0, lines = 0; i < u->ncause; i++) {    /* causes of one remedy share a line */
        if (!show[i] || told[i])
            continue;
        for (size_t k = i; k < u->ncause; k++) {
            if (!show[k] || u->cause[k].cause != u->cause[i].cause)
                continue;
            xl_buf_puts(b, k > i ? ", and " : lines++ ? "    and: " : "");
            say_cause(&u->cause[k], u->ncause == 1 && u->cause[k].times + 1 >= all, b);
            told[k] = true;
        }
        xl_buf_printf(b, "; %s\n", u->cause[i].cause->remedy);
    }
    if (u->ncause > n)
        xl_buf_printf(b, "    and %zu more: the list of --all has them\n", u->ncause - n);
}

/* Each of the ranks says so, in the same `text` or `error`. */
static bool said_before(const xl_run_verdict *v, size_t event)
{
    const xl_node *e = v->event[event];
    for (size_t i = 0; i < event; i++)
        if (xl_str_eq(str_of(v->event[i], "event"), str_of(e, "event")) &&
            xl_str_eq(str_of(v->event[i], "text"), str_of(e, "text")) &&
            xl_str_eq(str_of(v->event[i], "error"), str_of(e, "error")))
            return true;
    return false;
}

static void say_grown(const xl_run_verdict *v, xl_buf *b)
{
    enum { LINES = 3, VALUES = 4 };
    const xl_cause *grows = xl_cause_of(XL_STR("growing"));
    XL_KNOWN(grows);                                       /* a row of cause.def */
    for (size_t i = 0; i < v->ngrown && i < LINES; i++) {
        const xl_run_grown *g = &v->grown[i];
        xl_buf_printf(b, "%s`%.*s` at %.*s %d times", i ? ", " : "single ops compiled again for new shapes all along: ",
                      XL_FMT(g->unit->name), XL_FMT(g->where), g->times);
        for (size_t k = 0; k < g->nvalue && k < VALUES; k++)
            xl_buf_printf(b, "%s%.*s%s%.*s", k ? ", " : " (", k ? 0 : (int)g->who.n, g->who.p, k ? "" : " took ",
                          XL_FMT(g->value[k]));
        if (g->nvalue)
            xl_buf_puts(b, g->nvalue > VALUES ? ", ...)" : ")");
    }
    if (v->ngrown > LINES)
        xl_buf_printf(b, ", and on %zu more line%s", v->ngrown - LINES, v->ngrown == LINES + 1 ? "" : "s");
    if (v->ngrown)
        xl_buf_printf(b, "; %s\n", grows->remedy);
}

void xl_verdict_say(xl_arena *a, const xl_run_verdict *v, bool listed, xl_buf *b)
{
    size_t steps = 0, other = 0;
    int made = 0, loads = 0;                               /* of the others, in all processes */
    bool op_by_op = false, broken = v->end.has_status && v->end.status;
    for (size_t i = 0; i < v->nunit; i++) {
        const xl_run_unit *u = v->unit[i];
        broken &= u->helper;
        steps += u->step;
        other += !u->step;
        made += u->step ? 0 : u->all_compiles - u->all_cached - u->all_loaded;
        loads += u->step ? 0 : u->all_cached + u->all_loaded;
        if (u->step)
            xl_run_unit_say(a, v, u, b);
    }
    for (size_t i = 0; i < v->nunit; i++) {
        const xl_run_unit *u = v->unit[i];
        if (u->reads_value && u->runs >= 3)
            xl_buf_printf(b,
                          "%.*s reads a tensor's value, which ran the graph so far and waited for it %llu times "
                          "(.item(), nonzero, print, "
                          "an if over a tensor); keep it on the device (torch.where), or read every N steps, after "
                          "torch_xla.sync()\n",
                          XL_FMT(u->place), (unsigned long long)u->runs);
    }
    for (size_t i = 0; i < v->nunit; i++) {
        const xl_run_unit *u = v->unit[i];
        if (!u->step || u->awaited < 5 || 2 * u->awaited < u->runs)
            continue;
        say_name(u->name, u->function, b);
        xl_buf_printf(
            b,
            ": the host waited for the end of %s%llu of %llu steps before it started the next one, and read "
            "none of their results (block_until_ready; some libraries call it, as equinox.filter_jit does), "
            "so the device had nothing queued meanwhile; wait once after the loop, or every N steps; filter_jit "
            "always waits: jax.jit does not, and takes the arrays of eqx.partition(model, eqx.is_array) and "
            "joins them to the rest inside (eqx.combine)\n",
            xl_verdict_open(v) ? "at least " : "", (unsigned long long)u->awaited, (unsigned long long)u->runs);
    }
    static const char *const apart[] = { "eager", "search" };  /* reasons of ops that are compiled one by one */
    for (size_t k = 0; k < sizeof apart / sizeof *apart; k++) {
        const xl_node *first = NULL;
        size_t n = 0;
        for (size_t i = 0; i < v->nevent; i++)
            if (v->of[i] && is(v->event[i], "reason", apart[k])) {
                first = first ? first : v->event[i];
                n++;
            }
        if (first)
            xl_buf_printf(b, "%.*s: %zu op%s compiled one by one; %s\n", XL_FMT(str_of(first, "words")), n,
                          n == 1 ? " was" : "s were", xl_event_cause(first)->remedy);
        op_by_op |= first != NULL;
    }
    if (!op_by_op && !steps && broken && !v->gaps) {
        xl_buf_printf(b, "no step: the run ended with exit status %lld before a function of yours was compiled; what "
                         "it printed says why\n", (long long)v->end.status);
    } else if (!op_by_op && !steps && v->eager_runs && !v->gaps) {
        const xl_cause *one_by_one = xl_cause_of(XL_STR("eager"));
        XL_KNOWN(one_by_one);                              /* a row of cause.def */
        xl_buf_printf(
            b, "no step: %zu modules of single ops or library functions ran %llu times, and nothing else did; %s\n",
            other, (unsigned long long)v->eager_runs, one_by_one->remedy);
    }
    say_grown(v, b);
    if (other) {
        xl_buf_puts(b, steps ? "in addition, " : "");
        if (made || !loads)
            xl_buf_printf(b, "%d compile%s", made, made == 1 ? "" : "s");
        if (loads)
            xl_buf_printf(b, "%s%d load%s from a cache", made ? " and " : "", loads, loads == 1 ? "" : "s");
        xl_buf_printf(b, " of %zu other module%s (initialisers, eager ops, library functions)%s\n", other,
                      other == 1 ? "" : "s", listed ? "" : ": --all lists them");
    }
    if (v->damaged)
        xl_buf_printf(
            b,
            "%d program%s compiled again, for the entr%s in the cache could not be used; `xlane cache verify` "
            "names those that are damaged still\n",
            v->damaged, v->damaged == 1 ? " was" : "s were", v->damaged == 1 ? "y" : "ies");
    if (v->dropped)
        xl_buf_printf(b, "%d program%s compiled again, for the cache had dropped %s to keep its size: --cache-max\n",
                      v->dropped, v->dropped == 1 ? " was" : "s were", v->dropped == 1 ? "it" : "them");
    if (v->nunit && !v->compiled && !v->failed && !v->gaps && !v->going)
        xl_buf_puts(b, "this run compiled nothing: each program that it ran was loaded from a cache\n");
    for (size_t i = 0; i < v->nevent; i++)
        if (is(v->event[i], "event", "divergence") && !said_before(v, i)) {
            xl_run_name_say(v, v->event[i], b);
            xl_buf_printf(b, " is not one program: %.*s; ranks that run different programs hang or sum what does not "
                             "belong together: make what differs the same on each\n",
                          XL_FMT(str_of(v->event[i], "text")));
        }
    for (size_t i = 0; i < v->nevent; i++) {
        const xl_node *e = v->event[i];
        xl_str error = str_of(e, "error");
        if (is(e, "event", "client") && !flag(e, "ok") && !said_before(v, i))
            xl_buf_printf(b, "the client did not start: %.*s\n", XL_FMT(error));
        else if (is(e, "event", "execute") && error.n) {
            xl_run_name_say(v, e, b);
            xl_buf_printf(b, " failed when it ran: %.*s; `xlane classify` says what that means for a retry\n",
                          XL_FMT(error));
        }
    }
    if (!v->nunit && !v->gaps)
        xl_buf_puts(b, v->builtin ? "JAX took its built-in cpu backend, which is no PJRT plugin: what it compiled and "
                                    "ran there is not recorded; `xlane run --profile=cpu` takes the embedded device, "
                                    "where the program itself sets no jax_platforms\n"
                                  : "nothing was compiled through a plugin\n");
}

void xl_triage_say(const xl_run_verdict *v, xl_buf *b)
{
    const char *no = v->gaps ? "not known: the record is incomplete" : "no";
    if (!v->nunit && !v->gaps) {
        xl_buf_puts(b, "shapes, policy, branches and values: not recorded, since no compile was\n");
        return;
    }
    xl_buf_printf(b, "did input shapes or dtypes change?           %s\n",
                  v->shape     ? "yes"
                  : v->widened ? "yes, as jax_enable_x64 was switched"
                  : v->ngrown  ? "no, of no step; of single ops, yes"
                               : no);
    xl_buf_printf(b, "did the profile or the SPMD policy change?   %s\n", v->policy ? "yes" : no);
    xl_buf_printf(b, "did a hidden graph branch become active?     %s\n", v->branch ? "yes" : no);
    xl_buf_printf(b, "did a Python value traced into it change?    %s\n",
                  v->value     ? "yes"
                  : v->perhaps ? "perhaps: a number changed as a size did; the list has it"
                               : no);
    xl_buf_printf(b, "was the same program traced again?           %s\n", v->again ? "yes" : no);
    for (size_t i = 0; i < v->nother; i++)
        xl_buf_printf(b, "%s%.*s",
                      i ? ", " : "did something else change?                   yes: ", XL_FMT(v->other[i]));
    if (v->nother)
        xl_buf_putc(b, '\n');
}
