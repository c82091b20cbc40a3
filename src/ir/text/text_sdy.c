/* Shardy's attributes in the text: meshes and shardings natively, everything else as it stands. */
#include "ir/text/text.h"

static const xl_axis_ref *axes(xl_text *p, char close, uint32_t *n, bool *open)
{
    xl_axis_ref *axis = NULL;
    uint32_t cap = 0;
    *n = 0;
    if (text_take(p, close))
        return NULL;
    do {
        if (open && text_take(p, '?')) {
            *open = true;
            break;
        }
        xl_axis_ref a = { xl_text_string(p), 0, 0 };
        if (text_take(p, ':')) {
            xl_text_want(p, '(');
            a.pre = xl_text_int(p);
            xl_text_want(p, ')');
            a.size = xl_text_int(p);
            if (a.pre < 1 || a.size < 1)
                xl_text_fail(p, "a part of an axis has positive sizes");
        }
        XL_PUSH(&p->m->arena, axis, *n, cap, a);
    } while (text_take(p, ','));
    xl_text_want(p, close);
    return axis;
}

const xl_mesh *xl_text_mesh(xl_text *p)
{
    xl_mesh *m = xl_new(&p->m->arena, xl_mesh, 1);
    xl_mesh_axis *axis = NULL;
    uint32_t cap = 0;
    xl_text_want(p, '<');
    xl_text_want(p, '[');
    if (!text_take(p, ']')) {
        do {
            xl_mesh_axis a = { xl_text_string(p), 0 };
            xl_text_want(p, '=');
            a.size = xl_text_int(p);
            XL_PUSH(&p->m->arena, axis, m->naxis, cap, a);
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    if (text_take(p, ',')) {
        xl_text_want_word(p, "device_ids");
        xl_text_want(p, '=');
        const xl_attr *ids = xl_text_ints(p);
        m->ids = ids->ints;
        m->nids = ids->n;
    }
    xl_text_want(p, '>');
    m->axis = axis;
    return m;
}

const xl_attr *xl_text_sharding(xl_text *p)
{
    xl_sharding *s = xl_new(&p->m->arena, xl_sharding, 1);
    xl_dim_sharding *dim = NULL;
    uint32_t cap = 0;
    xl_text_want(p, '<');
    if (text_at(p, '@')) {
        s->mesh = xl_text_symbol(p);
    } else {
        xl_text_want_word(p, "mesh");
        s->inlined = xl_text_mesh(p);
    }
    xl_text_want(p, ',');
    xl_text_want(p, '[');
    if (!text_take(p, ']')) {
        do {
            xl_dim_sharding d = { .priority = -1 };
            xl_text_want(p, '{');
            d.axis = axes(p, '}', &d.naxis, &d.open);
            if (*p->s == 'p' && xl_text_is(p->s[1], XL_CH_DIGIT)) {
                p->s++;
                int64_t v = xl_text_int(p);
                if (v > INT32_MAX)
                    xl_text_fail(p, "a priority is too large");
                d.priority = (int32_t)v;
            }
            XL_PUSH(&p->m->arena, dim, s->rank, cap, d);
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    s->dim = dim;
    while (text_take(p, ',')) {
        xl_str w = xl_text_ident(p);
        bool unreduced = xl_str_is(w, "unreduced");
        if (!unreduced && !xl_str_is(w, "replicated"))
            xl_text_fail(p, "a sharding has no part '%.*s'", XL_FMT(w));
        xl_text_want(p, '=');
        if (unreduced)
            s->reduction = xl_text_word(p, "max") ? 1 : xl_text_word(p, "min") ? 2 : 0;
        xl_text_want(p, '{');
        if (unreduced)
            s->unreduced = axes(p, '}', &s->nunreduced, NULL);
        else
            s->replicated = axes(p, '}', &s->nreplicated, NULL);
    }
    if (!s->nunreduced)
        s->reduction = 0;
    xl_text_want(p, '>');
    return xl_attr_sharding(p->m, s);
}

const xl_attr *xl_text_shardings(xl_text *p)
{
    uint32_t mark = p->nitem;
    xl_text_want(p, '[');
    if (!text_take(p, ']')) {
        do {
            const xl_attr *a = xl_text_sharding(p);
            XL_PUSH(&p->tmp, p->item, p->nitem, p->capitem, a);
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    const xl_attr *a = xl_attr_array(p->m, p->item + mark, p->nitem - mark);
    p->nitem = mark;
    return a;
}

const xl_attr *xl_text_axis_names(xl_text *p)
{
    uint32_t mark = p->nitem;
    xl_text_want(p, '{');
    if (!text_take(p, '}')) {
        do {
            const xl_attr *a = xl_attr_str(p->m, xl_text_string(p));
            XL_PUSH(&p->tmp, p->item, p->nitem, p->capitem, a);
        } while (text_take(p, ','));
        xl_text_want(p, '}');
    }
    const xl_attr *a = xl_attr_array(p->m, p->item + mark, p->nitem - mark);
    p->nitem = mark;
    return a;
}

const xl_attr *xl_text_sdy_list(xl_text *p)
{
    const char *at = p->s;
    xl_text_want(p, '<');
    xl_str w = xl_text_ident(p);
    text_skip(p);
    const xl_attr *a = NULL;
    if (xl_str_is(w, "manual_axes"))
        a = xl_text_axis_names(p);
    else if (*p->s == '[' || *p->s == '{')                 /* the ops' own forms have the list alone */
        a = xl_text_raw(p, (xl_str){ 0 });
    if (a) {
        xl_text_want(p, '>');
        return a;
    }
    p->s = at;
    return xl_text_raw(p, XL_STR("#sdy"));
}

const xl_attr *xl_text_raw(xl_text *p, xl_str head)
{
    char open[XL_TEXT_DEPTH];
    int depth = 0;
    const char *from = p->s;
    do {
        if (p->s >= p->end)
            xl_text_fail(p, "a bracket has no partner");
        char c = *p->s;
        if (c == '"') {
            (void)xl_text_string(p);
            continue;
        }
        if (c == '-' && p->s[1] == '>') {
            p->s += 2;
            continue;
        }
        if (c == '<' || c == '[' || c == '(' || c == '{') {
            if (depth == XL_TEXT_DEPTH)
                xl_text_fail(p, "nested more than %d deep", XL_TEXT_DEPTH);
            open[depth++] = c == '<' ? '>' : c == '[' ? ']' : c == '(' ? ')' : '}';
        } else if (c == '>' || c == ']' || c == ')' || c == '}') {
            if (depth == 0 || open[--depth] != c)
                xl_text_fail(p, "a bracket has no partner");
        } else if (depth == 0) {
            xl_text_fail(p, "expected a bracket");
        }
        p->s++;
    } while (depth > 0);
    /* White space outside strings becomes one blank. */
    char *room = xl_arena_alloc(&p->tmp, head.n + (size_t)(p->s - from)), *w = room;
    if (head.n)
        memcpy(w, head.p, head.n);
    w += head.n;
    bool quoted = false;
    for (const char *c = from; c < p->s; c++) {
        if (!quoted && xl_text_is(*c, XL_CH_SPACE)) {
            if (w > room && w[-1] != ' ')
                *w++ = ' ';
            continue;
        }
        if (quoted && *c == '\\')
            *w++ = *c++;
        else if (*c == '"')
            quoted = !quoted;
        *w++ = *c;
    }
    return xl_attr_opaque(p->m, (xl_str){ room, (size_t)(w - room) });
}
