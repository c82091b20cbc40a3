/* Aliases and locations of the text. */
#include "ir/text/text.h"

xl_text_alias *xl_text_find_alias(xl_text *p, xl_str name)
{
    uint32_t h = xl_text_hash(name);
    XL_TABLE_EACH(&p->alias_index, h, k)
        if (xl_str_eq(p->alias[k].name, name))
            return &p->alias[k];
    xl_text_alias a = { .name = name, .where = p->s };
    xl_table_add(&p->alias_index, &p->tmp, h, p->nalias);
    XL_PUSH(&p->tmp, p->alias, p->nalias, p->capalias, a);
    return &p->alias[p->nalias - 1];
}

static xl_loc location(xl_text *p);

static void location_into(xl_text *p, xl_loc_info *l)
{
    *l = (xl_loc_info){ .kind = XL_LOC_UNKNOWN };
    if (xl_text_word(p, "unknown"))
        return;
    if (xl_text_word(p, "callsite")) {
        l->kind = XL_LOC_CALL;
        xl_text_want(p, '(');
        l->a = location(p);
        xl_text_want_word(p, "at");
        l->b = location(p);
        xl_text_want(p, ')');
        return;
    }
    if (xl_text_word(p, "fused")) {
        xl_loc *sub = NULL;
        uint32_t cap = 0;
        l->kind = XL_LOC_FUSED;
        if (text_take(p, '<')) {
            l->meta = xl_text_attr(p);
            xl_text_want(p, '>');
        }
        xl_text_want(p, '[');
        if (!text_take(p, ']')) {
            do {
                xl_loc one_loc = location(p);
                XL_PUSH(&p->m->arena, sub, l->n, cap, one_loc);
            } while (text_take(p, ','));
            xl_text_want(p, ']');
        }
        l->list = sub;
        return;
    }
    if (!text_at(p, '"'))
        xl_text_fail(p, "expected a location");
    l->str = xl_text_string(p);
    if (text_take(p, ':')) {
        l->kind = XL_LOC_FILE;
        l->line = (uint32_t)xl_text_int(p);
        xl_text_want(p, ':');
        l->col = (uint32_t)xl_text_int(p);
        if (xl_text_word(p, "to")) {
            l->end_line = l->line;
            if (!text_at(p, ':'))
                l->end_line = (uint32_t)xl_text_int(p);
            xl_text_want(p, ':');
            l->end_col = (uint32_t)xl_text_int(p);
        }
        return;
    }
    l->kind = XL_LOC_NAME;
    if (text_take(p, '(')) {
        l->a = location(p);
        xl_text_want(p, ')');
    }
}

static xl_loc location(xl_text *p)
{
    xl_loc id = { 0 };
    xl_text_enter(p);
    if (text_at(p, '#')) {
        const char *from = p->s++;
        while (xl_text_is(*p->s, XL_CH_WORD))
            p->s++;
        xl_text_alias *a = xl_text_find_alias(p, (xl_str){ from, (size_t)(p->s - from) });
        if (a->what)
            xl_text_fail(p, "'%.*s' is not a location", XL_FMT(a->name));
        if (!a->loc.id)                                    /* its definition may follow */
            a->loc = xl_loc_add(p->m, &(xl_loc_info){ .kind = XL_LOC_UNKNOWN });
        id = a->loc;
    } else {
        xl_loc_info l;
        location_into(p, &l);
        if (l.kind != XL_LOC_UNKNOWN)
            id = xl_loc_add(p->m, &l);
    }
    text_leave(p);
    return id;
}

static void skip_parens(xl_text *p)
{
    int open = 0;
    do {
        if (p->s >= p->end)
            xl_text_fail(p, "a location has no end");
        if (*p->s == '"') {
            (void)xl_text_string(p);
            continue;
        }
        open += (*p->s == '(') - (*p->s == ')');
        p->s++;
    } while (open > 0);
}

bool xl_text_loc(xl_text *p, xl_loc *out)
{
    *out = (xl_loc){ 0 };
    text_skip(p);
    if (p->s[0] != 'l' || p->s[1] != 'o' || p->s[2] != 'c' || p->s[3] != '(')
        return false;
    p->s += 3;
    if (p->no_locations) {
        skip_parens(p);
        return true;
    }
    p->s++;
    *out = location(p);
    xl_text_want(p, ')');
    return true;
}

void xl_text_alias_def(xl_text *p)
{
    const char *from = p->s++;
    while (xl_text_is(*p->s, XL_CH_WORD))
        p->s++;
    xl_str name = { from, (size_t)(p->s - from) };
    xl_text_want(p, '=');
    if (*from == '#' && p->no_locations && (text_skip(p), !strncmp(p->s, "loc(", 4))) {
        p->s += 3;
        skip_parens(p);
        return;
    }
    xl_text_alias *a = xl_text_find_alias(p, name);
    if (a->defined)
        xl_text_fail(p, "'%.*s' is defined twice", XL_FMT(name));
    if (*from == '!') {
        const xl_type *t = xl_text_type_of(p);
        a = xl_text_find_alias(p, name);
        a->what = t;
    } else if (text_skip(p), !strncmp(p->s, "loc(", 4)) {
        xl_loc_info l;
        p->s += 4;
        if (text_at(p, '#')) {                             /* #a = loc(#b): a name with nothing of its own */
            l = (xl_loc_info){ .kind = XL_LOC_CALL };
            l.a = location(p);
        } else {
            location_into(p, &l);
        }
        xl_text_want(p, ')');
        a = xl_text_find_alias(p, name);
        if (a->loc.id)
            p->m->loc[a->loc.id] = l;
        else
            a->loc = xl_loc_add(p->m, &l);
    } else {
        const xl_attr *v = xl_text_attr(p);
        a = xl_text_find_alias(p, name);
        if (a->loc.id)
            xl_text_fail(p, "'%.*s' was used as a location", XL_FMT(name));
        a->what = v;
    }
    a->defined = true;
}

void xl_text_check_aliases(xl_text *p)
{
    if (!p->nalias)
        return;
    for (uint32_t i = 0; i < p->nalias; i++)
        if (!p->alias[i].defined) {
            p->s = p->alias[i].where;
            xl_text_fail(p, "there is no alias '%.*s'", XL_FMT(p->alias[i].name));
        }
    /* Only aliases can point forward; a location that reaches itself is a mistake. Colours: 0 new, 1 open, 2 done. */
    uint32_t n = p->m->nloc, top = 0;
    char *colour = xl_arena_alloc(&p->tmp, n);
    struct { uint32_t id, next; } *stack = xl_arena_array(&p->tmp, sizeof *stack, (size_t)n + 1);
    for (uint32_t root = 1; root < n; root++) {
        if (colour[root])
            continue;
        stack[top].id = root;
        stack[top++].next = 0;
        colour[root] = 1;
        while (top) {
            const xl_loc_info *l = &p->m->loc[stack[top - 1].id];
            uint32_t k = stack[top - 1].next++, child = 0;
            bool more = true;
            if (l->kind == XL_LOC_FUSED) {
                more = k < l->n;
                child = more ? l->list[k].id : 0;
            } else {
                more = k < 2;
                child = k == 0 ? l->a.id : l->b.id;
            }
            if (!more) {
                colour[stack[--top].id] = 2;
            } else if (child && colour[child] == 1) {
                xl_text_fail(p, "a location is part of itself");
            } else if (child && !colour[child]) {
                colour[child] = 1;
                stack[top].id = child;
                stack[top++].next = 0;
            }
        }
    }
}
