#include "base/yaml.h"

#include <math.h>
#include <stdlib.h>
#include <yaml.h>

typedef struct { xl_str name; xl_node *node; size_t weight; } anchor;

/* All that must be let go lies here, because an arena without memory jumps past the readers' frames. */
typedef struct {
    xl_arena *a;
    const char *file;
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    size_t total; /* nodes so far, aliases counted with all that hangs on them */
    anchor *anchors;
    size_t nanchor, anchor_cap;
    xl_node *root;
} reader;

static xl_error *next(reader *r)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        const yaml_parser_t *p = &r->parser;
        /* What is open where it begins is what is to be closed: the problem shows only at what comes after. */
        bool open = p->context && p->context_mark.line < p->problem_mark.line;
        const yaml_mark_t *at = open ? &p->context_mark : &p->problem_mark;
        xl_error *err = XL_ERR(INVALID, "%s:%zu:%zu: %s%s%s", r->file, at->line + 1, at->column + 1,
                               p->context ? p->context : "", p->context ? ", " : "",
                               p->problem ? p->problem : "not YAML");
        return open ? xl_error_next(err, "it shows at line %zu", p->problem_mark.line + 1) : err;
    }
    r->has_event = true;
    return NULL;
}

static xl_error *bad(const reader *r, const char *what)
{
    return XL_ERR(INVALID, "%s:%zu:%zu: %s", r->file, r->event.start_mark.line + 1, r->event.start_mark.column + 1,
                  what);
}

static bool one_of(xl_str s, const char *const *words)
{
    for (; *words; words++)
        if (xl_str_is(s, *words))
            return true;
    return false;
}

/* [-+]? digits [. digits] [e [-+] digits], with at least one digit before or after the point. */
static bool looks_number(xl_str s)
{
    size_t i = 0, digits = 0;
    if (i < s.n && (s.p[i] == '-' || s.p[i] == '+'))
        i++;
    for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        digits++;
    if (i < s.n && s.p[i] == '.')
        for (i++; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
            digits++;
    if (!digits)
        return false;
    if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
        i++;
        if (i < s.n && (s.p[i] == '-' || s.p[i] == '+'))
            i++;
        if (i == s.n)
            return false;
        while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
            i++;
    }
    return i == s.n;
}

static void resolve(xl_node *n)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL", NULL };
    static const char *const yes[] = { "true", "True", "TRUE", NULL }, *const no[] = { "false", "False", "FALSE",
                                                                                       NULL };
    static const char *const infs[] = { ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", NULL };
    static const char *const minus[] = { "-.inf", "-.Inf", "-.INF", NULL }, *const nans[] = { ".nan", ".NaN", ".NAN",
                                                                                              NULL };
    xl_str s = n->s, unsigned_ = s;
    if (one_of(s, nulls)) {
        n->kind = XL_NODE_NULL;
    } else if (one_of(s, yes) || one_of(s, no)) {
        n->kind = XL_NODE_BOOL;
        n->b = one_of(s, yes);
    } else if (one_of(s, infs) || one_of(s, minus) || one_of(s, nans)) {
        n->kind = XL_NODE_FLOAT;
        n->f = one_of(s, nans) ? (double)NAN : one_of(s, infs) ? (double)INFINITY : -(double)INFINITY;
    } else if (xl_str_starts(s, XL_STR("0x")) && xl_str_i64(s, &n->i)) {
        n->kind = XL_NODE_INT;
        n->f = (double)n->i;
    } else if (looks_number(s) && xl_str_f64(s, &n->f)) {
        if (s.p[0] == '+')
            unsigned_ = (xl_str){ s.p + 1, s.n - 1 };
        n->kind = xl_str_i64(unsigned_, &n->i) ? XL_NODE_INT : XL_NODE_FLOAT;
        if (n->kind == XL_NODE_FLOAT && fabs(n->f) < 9.2e18 && floor(n->f) == n->f)
            n->i = (int64_t)n->f;
    } else {
        n->kind = XL_NODE_STR;
    }
}

static int by_key(const void *x, const void *y)
{
    const xl_node *a = *(xl_node *const *)x, *b = *(xl_node *const *)y;
    int c = xl_str_cmp(a->key, b->key);
    return c ? c : (a->line > b->line) - (a->line < b->line);
}

static xl_error *no_key_twice(reader *r, const xl_node *map)
{
    xl_node **sorted = xl_new(r->a, xl_node *, map->n);
    if (map->n)
        memcpy(sorted, map->kid, map->n * sizeof *sorted);
    qsort(sorted, map->n, sizeof *sorted, by_key);
    for (size_t i = 1; i < map->n; i++)
        if (xl_str_eq(sorted[i - 1]->key, sorted[i]->key))
            return xl_node_err(sorted[i], "the key is there twice, first on line %u", sorted[i - 1]->line);
    return NULL;
}

static xl_error *count(reader *r, size_t more)
{
    r->total += more;
    return r->total > XL_YAML_NODES ? bad(r, "too many values (aliases count with all they stand for)") : NULL;
}

/* Reads the value that begins with the present event. */
static xl_error *value(reader *r, const xl_node *parent, xl_str key, int depth, xl_node **out)
{
    xl_error *err = NULL;
    if (depth > XL_NODE_DEPTH)
        return bad(r, "nested too deeply");
    XL_DO(count(r, 1));
    xl_node *n = xl_new(r->a, xl_node, 1);
    *out = n;
    yaml_event_t *e = &r->event;
    *n = (xl_node){ .line = (uint32_t)e->start_mark.line + 1,
                    .col = (uint32_t)e->start_mark.column + 1,
                    .file = r->file,
                    .parent = parent,
                    .key = key };
    if (e->type == YAML_ALIAS_EVENT) {
        xl_str name = xl_str_of((char *)e->data.alias.anchor);
        for (size_t i = r->nanchor; i-- > 0; ) {
            anchor *x = &r->anchors[i];
            if (!xl_str_eq(x->name, name))
                continue;
            if (!x->node)
                return bad(r, "an alias inside what it stands for");
            XL_DO(count(r, x->weight));
            xl_node here = *n;
            *n = *x->node; /* its members are shared: nobody changes a tree */
            n->line = here.line;
            n->col = here.col;
            n->parent = parent;
            n->key = key;
            return NULL;
        }
        return bad(r, "an alias to nothing");
    }
    size_t mark = SIZE_MAX, before = r->total, cap = 0;
    const yaml_char_t *name = e->type == YAML_SCALAR_EVENT           ? e->data.scalar.anchor
                              : e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.anchor
                              : e->type == YAML_MAPPING_START_EVENT  ? e->data.mapping_start.anchor
                                                                     : NULL;
    if (name) {
        mark = r->nanchor;
        anchor fresh = { .name = xl_str_dup(r->a, xl_str_of((const char *)name)) };
        XL_PUSH(r->a, r->anchors, r->nanchor, r->anchor_cap, fresh);
    }
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        n->s = xl_str_dup(r->a, (xl_str){ (char *)e->data.scalar.value, e->data.scalar.length });
        n->kind = XL_NODE_STR;
        if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && e->data.scalar.plain_implicit)
            resolve(n);
        break;
    case YAML_SEQUENCE_START_EVENT:
        n->kind = XL_NODE_LIST;
        for (;;) {
            xl_node *kid;
            XL_DO(next(r));
            if (r->event.type == YAML_SEQUENCE_END_EVENT)
                break;
            XL_DO(value(r, n, (xl_str){ 0 }, depth + 1, &kid));
            XL_PUSH(r->a, n->kid, n->n, cap, kid);
        }
        break;
    case YAML_MAPPING_START_EVENT:
        n->kind = XL_NODE_MAP;
        for (;;) {
            xl_node *kid;
            XL_DO(next(r));
            if (r->event.type == YAML_MAPPING_END_EVENT)
                break;
            if (r->event.type != YAML_SCALAR_EVENT)
                return bad(r, "a key must be a plain word");
            xl_str k = xl_str_dup(r->a, (xl_str){ (char *)r->event.data.scalar.value, r->event.data.scalar.length });
            yaml_mark_t at = r->event.start_mark;
            XL_DO(next(r));
            XL_DO(value(r, n, k, depth + 1, &kid));
            if (kid->kind == XL_NODE_MAP ||
                kid->kind == XL_NODE_LIST) { /* what is wrong with a block is looked for at its key, not a line below */
                kid->line = (uint32_t)at.line + 1;
                kid->col = (uint32_t)at.column + 1;
            }
            XL_PUSH(r->a, n->kid, n->n, cap, kid);
        }
        XL_DO(no_key_twice(r, n));
        break;
    default:
        return bad(r, "a value was expected");
    }
    if (mark != SIZE_MAX) {
        r->anchors[mark].node = n;
        r->anchors[mark].weight = r->total - before + 1;
    }
out:
    return err;
}

static xl_error *document(reader *r)
{
    xl_error *err = NULL;
    XL_DO(next(r)); /* the stream begins */
    XL_DO(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) {
        r->root = xl_new(r->a, xl_node, 1);
        *r->root = (xl_node){ .line = 1, .col = 1, .file = r->file };
        return NULL;
    }
    XL_DO(next(r)); /* the document began */
    XL_DO(value(r, NULL, (xl_str){ 0 }, 1, &r->root));
    XL_DO(next(r)); /* its end */
    XL_DO(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        err = bad(r, "a second document; one file holds one");
out:
    return err;
}

/* A frame of its own, with nothing in it that a jump could spoil. */
static xl_error *guarded(reader *r)
{
    jmp_buf oom;
    r->a->oom = &oom;
    if (setjmp(oom))
        return XL_ERR(EXHAUSTED, "no memory to read %s", r->file);
    return document(r);
}

xl_error *xl_yaml_read(xl_arena *a, const char *file, xl_str text, xl_node **out)
{
    *out = NULL;
    if (text.n > XL_YAML_BYTES)
        return XL_ERR(INVALID, "%s has %zu bytes; a YAML text has at most %d here", file, text.n, XL_YAML_BYTES);
    reader r = { .a = a, .file = file };
    if (!yaml_parser_initialize(&r.parser))
        return XL_ERR(EXHAUSTED, "no memory to read %s", file);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)(text.n ? text.p : ""), text.n);
    jmp_buf *outer = a->oom;
    xl_error *err = guarded(&r);
    a->oom = outer;
    if (r.has_event)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (!err)
        *out = r.root;
    return err;
}
