#include "lane/call.h"

#include <math.h>

typedef struct { xl_str name, kind, value; } row;

static bool next(xl_str *rest, row *out)
{
    if (!rest->n)
        return false;
    xl_str line = xl_str_cut(rest, '\n');
    out->name = xl_str_cut(&line, '\t');
    out->kind = xl_str_cut(&line, '\t');
    out->value = line;
    return true;
}

static bool find(xl_str call, xl_str name, bool meta, row *out)
{
    while (next(&call, out)) {
        bool is_meta = xl_str_is(out->name, "form") || xl_str_is(out->name, "cleared") ||
                       xl_str_is(out->name, "made");
        if (xl_str_eq(out->name, name) && (meta || !is_meta) && !xl_str_is(out->kind, "weak"))
            return true;
    }
    return false;
}

static bool taken(const row *r) { return xl_str_is(r->kind, "taken"); }
static bool filtered(const row *r) { return xl_str_starts(r->kind, XL_STR("Python ")); } /* by equinox.filter_jit */
static bool field(const row *r) { return xl_str_is(r->kind, "field") || xl_str_is(r->kind, "field-object"); }
static bool fixed(const row *r) /* a static argument, or a static field of another one */
{
    return filtered(r) || field(r) || xl_str_is(r->kind, "value") || xl_str_is(r->kind, "object") ||
           xl_str_is(r->kind, "anew") || xl_str_is(r->kind, "parts");
}

/* "`x`", "static argument `x`", "static field `x.rate`", or "argument `x` (a Python float)". */
static xl_str called(xl_arena *a, const row *r)
{
    if (filtered(r))
        return xl_strf(a, "argument `%.*s` (a %.*s)", XL_FMT(r->name), XL_FMT(r->kind));
    const char *what = taken(r) ? "" : field(r) ? "static field " : "static argument ";
    return xl_strf(a, "%s`%.*s`", what, XL_FMT(r->name));
}

bool xl_call_form(xl_arena *a, xl_str before, xl_str after, xl_str *how)
{
    row x, y;
    if (!find(before, XL_STR("form"), true, &x) || !find(after, XL_STR("form"), true, &y) ||
        (xl_str_eq(x.kind, y.kind) && xl_str_eq(x.value, y.value)))
        return false;
    *how = xl_strf(a, "with %s%.*s%s, instead of %s%.*s%s", y.value.n ? "`" : "all arguments by position",
                   XL_FMT(y.value), y.value.n ? "` by keyword" : "", x.value.n ? "`" : "all by position",
                   XL_FMT(x.value), x.value.n ? "` by keyword" : "");
    return true;
}

/* A static argument whose value or object is another one. */
static const char *other_static(xl_arena *a, xl_str before, xl_str after, xl_str *how)
{
    const char *word = NULL;
    for (row y, x; next(&after, &y);) {
        bool same_kind = find(before, y.name, false, &x) && xl_str_eq(x.kind, y.kind) && !xl_str_eq(x.value, y.value);
        if (!same_kind || !fixed(&y))
            continue;
        xl_str type = y.value, rest = y.value;
        if (xl_str_is(y.kind, "field")) {
            *how = xl_strf(a, "for %.*s, which has another value", XL_FMT(called(a, &y)));
            return "names";
        }
        if (field(&y)) {
            type = xl_str_cut(&rest, ' ');
            *how = xl_strf(a, "for %.*s, which is another %.*s", XL_FMT(called(a, &y)), XL_FMT(type));
            word = "names";
            continue;
        }
        if (xl_str_is(y.kind, "value") || filtered(&y)) {  /* it says more than the object that it is a field of */
            *how = xl_strf(a, "for %.*s, which has another value", XL_FMT(called(a, &y)));
            return filtered(&y) ? "unread" : "unused";
        }
        type = xl_str_cut(&rest, ' ');
        bool anew = xl_str_is(y.kind, "anew"), parts = xl_str_is(y.kind, "parts"),
             code = xl_str_is(type, "function") || xl_str_is(type, "partial");
        *how = xl_strf(a, "for %.*s, which is another %.*s%s", XL_FMT(called(a, &y)), XL_FMT(type),
                       code    ? ""
                       : parts ? " with functions in it that are made anew"
                       : anew  ? " and has no __eq__ and __hash__"
                               : " by its __hash__");
        word = anew || parts ? "anew" : "unused";
    }
    return word;
}

static const xl_str passed = { "passed ", 7 }, weak_head = { "weak ", 5 };

/* "a list", "an OrderedDict"; JAX takes whatever is no tree for an array. */
static xl_str a_kind(xl_arena *a, xl_str type)
{
    if (xl_str_is(type, "leaf"))
        return XL_STR("an array or number");
    if (xl_str_is(type, "None"))
        return type;
    return xl_strf(a, "%s %.*s", type.n && strchr("AEIOUaeiou", *type.p) ? "an" : "a", XL_FMT(type));
}

/* An argument that is a list now, and was a tuple, or a module with another static field. */
static const char *other_tree(xl_arena *a, xl_str before, xl_str after, xl_str *how)
{
    for (row y, x; next(&after, &y);) {
        if (!xl_str_is(y.kind, "tree") || !find(before, y.name, false, &x) || xl_str_eq(x.value, y.value))
            continue;
        xl_str name = { y.name.p + passed.n, y.name.n - passed.n }, now = xl_str_cut(&y.value, ' '),
               then = xl_str_cut(&x.value, ' ');
        xl_str who = name.n ? xl_strf(a, "`%.*s`, which", XL_FMT(name)) : XL_STR("an argument that");
        *how = xl_str_eq(now, then) ? xl_strf(a, "for %.*s has another structure or another static field", XL_FMT(who))
                                    : xl_strf(a, "for %.*s is %.*s and was %.*s", XL_FMT(who),
                                              XL_FMT(a_kind(a, now)), XL_FMT(a_kind(a, then)));
        return "names";
    }
    return NULL;
}

static bool weak_row(const row *r) { return xl_str_is(r->kind, "weak") && !xl_str_is(r->value, "known"); }

/* Whether a call has that row; *known: it says which types are weak at all. */
static bool has_weak(xl_str call, xl_str name, bool *known)
{
    bool has = false;
    for (row r; next(&call, &r);) {
        *known |= xl_str_is(r.kind, "weak");
        has |= weak_row(&r) && xl_str_eq(r.name, name);
    }
    return has;
}

/* An argument whose type is weak in one call alone. */
static const char *other_weak(xl_arena *a, xl_str before, xl_str after, xl_str *how)
{
    for (int now = 1; now >= 0; now--) {
        xl_str rest = now ? after : before, other = now ? before : after;
        for (row r; next(&rest, &r);) {
            bool known = false;
            if (!weak_row(&r) || has_weak(other, r.name, &known) || !known)
                continue;
            xl_str label = { r.name.p + weak_head.n, r.name.n - weak_head.n },
                   kind = r.value.n ? r.value : XL_STR("a weakly typed value"), array = XL_STR("an array");
            *how = xl_strf(a, "for `%.*s`, which is %.*s and was %.*s of the same type",
                           XL_FMT(xl_call_name(a, now ? after : before, label)), XL_FMT(now ? kind : array),
                           XL_FMT(now ? array : kind));
            return "weakly";
        }
    }
    return NULL;
}

bool xl_call_alike(xl_str before, xl_str after)
{
    uint32_t n[2] = { 0 };
    row x, y;
    for (xl_str rest = before; next(&rest, &x);)
        n[0] += xl_str_is(x.kind, "tree");
    for (xl_str rest = after; next(&rest, &y);) {
        if (!xl_str_is(y.kind, "tree"))
            continue;
        n[1]++;
        if (!find(before, y.name, false, &x) || !xl_str_eq(x.value, y.value))
            return false;
    }
    return n[0] && n[0] == n[1];
}

const char *xl_call_way(xl_arena *a, xl_str before, xl_str after, xl_str *how)
{
    row x, y;
    if (find(before, XL_STR("cleared"), true, &x) && find(after, XL_STR("cleared"), true, &y) &&
        !xl_str_eq(x.value, y.value)) {
        *how = XL_STR("after jax.clear_caches()");
        return "cleared";
    }
    const char *value = other_static(a, before, after, how);   /* one that was left at its default comes by keyword */
    if (!value && xl_call_form(a, before, after, how))
        return "keywords";
    if (!value)
        value = other_tree(a, before, after, how);
    return value ? value : other_weak(a, before, after, how);
}

xl_str xl_call_values(xl_arena *a, xl_str before, xl_str after)
{
    enum { MOST = 3 };
    xl_buf b = { 0 };
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {                 /* static arguments first: those decide */
        xl_str rest = after;
        for (row y, x; next(&rest, &y);) {
            if (taken(&y) != (pass == 1) || !find(before, y.name, false, &x) || !xl_str_eq(x.kind, y.kind) ||
                xl_str_eq(x.value, y.value) ||
                !(taken(&y) || filtered(&y) || xl_str_is(y.kind, "value") || xl_str_is(y.kind, "field")) || n++ >= MOST)
                continue;
            xl_buf_printf(&b, "%s%.*s changed from %.*s to %.*s", b.n ? "; " : "", XL_FMT(called(a, &y)),
                          XL_FMT(x.value), XL_FMT(y.value));
        }
    }
    if (n > MOST)
        xl_buf_printf(&b, "; and %d more", n - MOST);
    xl_str out = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return out;
}

static bool number(xl_str text, xl_str of)
{
    double x, y;
    return xl_str_f64(text, &x) && xl_str_f64(of, &y) && fabs(x - y) <= 1e-5 * fabs(y);
}

xl_str xl_call_value(xl_arena *a, xl_str before, xl_str after, xl_str from, xl_str to)
{
    xl_str out = { "", 0 };
    for (row y, x; next(&after, &y);) {
        if (!find(before, y.name, false, &x) || xl_str_eq(x.value, y.value) || !number(x.value, from) ||
            !number(y.value, to))
            continue;
        if (out.n)
            return (xl_str){ "", 0 };                      /* either may be it */
        out = called(a, &y);
    }
    return out;
}

/* ---- what the function takes from its surroundings --------------------------------------------------------------- */
static const char length_of[] = "the length of `", shape_of[] = "the shape of `";

/* It is that length, or as much more or less each time. */
static bool follows(const row *x, const row *y, xl_str from, xl_str to)
{
    int64_t v[4];
    return xl_str_i64(x->value, &v[0]) && xl_str_i64(y->value, &v[1]) && xl_str_i64(from, &v[2]) &&
           xl_str_i64(to, &v[3]) && v[1] - v[0] == v[3] - v[2];
}

bool xl_call_held(xl_arena *a, xl_str before, xl_str after, xl_str *what, xl_str *from, xl_str *to)
{
    row x, y;
    bool found = false;
    for (xl_str rest = after; !found && next(&rest, &y);) {
        if (!xl_str_is(y.kind, "held") || !find(before, y.name, false, &x) || !xl_str_eq(x.kind, y.kind))
            continue;
        *from = xl_str_cut(&x.value, ' ');
        *to = xl_str_cut(&y.value, ' ');
        found = xl_str_eq(x.value, y.value) && !xl_str_eq(*from, *to);
        *what = xl_strf(a, "%s%.*s` (a %.*s)", xl_str_ends(y.value, XL_STR(" array")) ? shape_of : length_of,
                        XL_FMT(y.name), XL_FMT(y.value));
    }
    for (xl_str rest = after; found && next(&rest, &y);)
        if ((taken(&y) || fixed(&y)) && find(before, y.name, false, &x) && xl_str_eq(x.kind, y.kind) &&
            !xl_str_eq(x.value, y.value) && !follows(&x, &y, *from, *to))
            return false;
    return found;
}

static xl_str only_array(xl_str call, xl_str shape)
{
    xl_str name = { "", 0 };
    for (row r; next(&call, &r);) {
        bool array = xl_str_is(r.kind, "held") && xl_str_ends(r.value, XL_STR(" array"));
        if (!array || !xl_str_eq(xl_str_cut(&r.value, ' '), shape))
            continue;
        if (name.n)
            return (xl_str){ "", 0 };                      /* either may be it */
        name = r.name;
    }
    return name;
}

xl_str xl_call_array(xl_str before, xl_str after, xl_str shape)
{
    xl_str then = only_array(before, shape), now = only_array(after, shape);
    return xl_str_eq(then, now) ? now : (xl_str){ "", 0 };
}

bool xl_call_remade(xl_str before, xl_str after)
{
    row x, y;
    return find(before, XL_STR("made"), true, &x) && find(after, XL_STR("made"), true, &y) &&
           !xl_str_eq(x.value, y.value);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */
/* The n-th word of a list, or the whole of it where it has fewer. */
static xl_str nth(xl_str list, int64_t n)
{
    xl_str word = xl_str_cut(&list, ' ');
    while (n-- > 0)
        word = xl_str_cut(&list, ' ');
    return word;
}

xl_str xl_call_name(xl_arena *a, xl_str call, xl_str label)
{
    for (row r; next(&call, &r);) {
        xl_str base = xl_str_is(r.kind, "leaves") ? xl_str_cut(&r.value, ' ') : (xl_str){ "", 0 }, rest = label;
        int64_t k, first, count;
        if (!base.n || !xl_str_starts(label, base) || label.n == base.n || label.p[base.n] != '[')
            continue;
        rest.p += base.n + 1;
        rest.n -= base.n + 1;
        if (!xl_str_i64(xl_str_cut(&rest, ']'), &k) || !xl_str_i64(xl_str_cut(&r.value, ' '), &first) ||
            !xl_str_i64(xl_str_cut(&r.value, ' '), &count) || k < first || k >= first + count)
            continue;
        xl_str path = nth(r.value, k - first);
        if (!r.value.n && count > 1)                       /* too many to have their paths told */
            return xl_strf(a, "%.*s: leaf %lld", XL_FMT(r.name), (long long)(k - first + 1));
        path.n = xl_str_is(path, ".") ? 0 : path.n;
        bool number = xl_str_starts(r.name, XL_STR("argument ")) && (path.n || rest.n);
        return xl_strf(a, "%.*s%s%.*s%.*s", XL_FMT(r.name), number ? " at " : "", XL_FMT(path), XL_FMT(rest));
    }
    return label;
}

xl_str xl_call_names(xl_arena *a, xl_str call)
{
    xl_buf b = { 0 };
    for (row r; next(&call, &r);)
        if (xl_str_is(r.kind, "leaves"))
            xl_buf_printf(&b, "%.*s\tleaves\t%.*s\n", XL_FMT(r.name), XL_FMT(r.value));
    xl_str out = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return out;
}

/* 1: the call has an argument of that name of a weak type, 0: it has not, -1: not known. */
static int is_weak(xl_arena *a, xl_str call, xl_str name, xl_str *kind)
{
    xl_str rest = call;
    int found = -1;
    for (row r; next(&rest, &r);) {
        if (!xl_str_is(r.kind, "weak") || !xl_str_starts(r.name, weak_head))
            continue;
        found = found < 0 ? 0 : found;                     /* the row `weak types` comes first */
        xl_str label = { r.name.p + weak_head.n, r.name.n - weak_head.n };
        if (!xl_str_is(r.value, "known") && xl_str_eq(xl_call_name(a, call, label), name)) {
            *kind = r.value;
            return 1;
        }
    }
    return found;
}

bool xl_call_weak(xl_arena *a, xl_str before, xl_str after, xl_str name, bool *was, bool *is, xl_str *kind)
{
    *kind = (xl_str){ "", 0 };
    int x = is_weak(a, before, name, kind), y = is_weak(a, after, name, kind);
    *was = x > 0;
    *is = y > 0;
    return x >= 0 && y >= 0 && name.n;
}
