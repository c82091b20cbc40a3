#include "base/node.h"

#include <stdio.h>

const xl_node *xl_node_get(const xl_node *map, const char *key)
{
    if (!map || map->kind != XL_NODE_MAP)
        return NULL;
    for (size_t i = map->n; i-- > 0; ) /* of two with one name the last counts, as in every JSON reader */
        if (xl_str_is(map->kid[i]->key, key))
            return map->kid[i];
    return NULL;
}

const char *xl_node_word(xl_node_kind kind)
{
    static const char *const words[] = { "null",     "true or false", "a whole number", "a number",
                                         "a string", "a list",        "a map" };
    return words[kind];
}

/* Writes "a.b[3].c" for n, root first; what does not fit is left out at the end. */
static size_t where(const xl_node *n, char *out, size_t room)
{
    if (!n || !n->parent || room < 2)
        return 0;
    size_t at = where(n->parent, out, room);
    int w;
    if (n->parent->kind == XL_NODE_MAP) {
        int len = n->key.n < 60 ? (int)n->key.n : 60;
        w = snprintf(out + at, room - at, "%s%.*s", at ? "." : "", len, n->key.p);
    } else {
        size_t i = 0;
        while (i < n->parent->n && n->parent->kid[i] != n)
            i++;
        w = snprintf(out + at, room - at, "[%zu]", i);
    }
    return w < 0 || (size_t)w >= room - at ? room - 1 : at + (size_t)w;
}

xl_error *xl_node_err(const xl_node *n, const char *fmt, ...)
{
    char path[256] = "", text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!n)
        return XL_ERR(INVALID, "%s", text);
    size_t len = where(n, path, sizeof path);
    return XL_ERR(INVALID, "%s:%u: %s%s%s", n->file ? n->file : "-", n->line, path, len ? ": " : "", text);
}

/* The value under key, or NULL where there is none or where it is null. */
static const xl_node *value(const xl_node *map, const char *key)
{
    const xl_node *n = xl_node_get(map, key);
    return n && n->kind != XL_NODE_NULL ? n : NULL;
}

xl_str xl_node_text(const xl_node *map, const char *key)
{
    const xl_node *n = value(map, key);
    return n && n->kind != XL_NODE_LIST && n->kind != XL_NODE_MAP ? n->s : (xl_str){ "", 0 };
}

bool xl_node_is(const xl_node *map, const char *key, const char *word)
{
    return xl_str_is(xl_node_text(map, key), word);
}

bool xl_node_flag(const xl_node *map, const char *key)
{
    const xl_node *n = xl_node_get(map, key);
    return n && n->b;
}

static bool numeric(const xl_node *n) { return n && (n->kind == XL_NODE_INT || n->kind == XL_NODE_FLOAT); }

int64_t xl_node_int(const xl_node *map, const char *key, int64_t otherwise)
{
    const xl_node *n = xl_node_get(map, key);
    return numeric(n) ? n->i : otherwise;
}

double xl_node_num(const xl_node *map, const char *key, double otherwise)
{
    const xl_node *n = xl_node_get(map, key);
    return numeric(n) ? n->f : otherwise;
}

static xl_error *wrong(const xl_node *n, const char *want)
{
    return xl_node_err(n, "%s was expected, not %s", want, xl_node_word(n->kind));
}

xl_error *xl_node_get_bool(const xl_node *map, const char *key, bool *out)
{
    const xl_node *n = value(map, key);
    if (!n)
        return NULL;
    if (n->kind != XL_NODE_BOOL)
        return wrong(n, "true or false");
    *out = n->b;
    return NULL;
}

xl_error *xl_node_get_int(const xl_node *map, const char *key, int64_t low, int64_t high, int64_t *out)
{
    const xl_node *n = value(map, key);
    if (!n)
        return NULL;
    if (n->kind != XL_NODE_INT)
        return wrong(n, "a whole number");
    if (n->i < low || n->i > high)
        return xl_node_err(n, "%lld is not between %lld and %lld", (long long)n->i, (long long)low, (long long)high);
    *out = n->i;
    return NULL;
}

xl_error *xl_node_get_float(const xl_node *map, const char *key, double *out)
{
    const xl_node *n = value(map, key);
    if (!n)
        return NULL;
    if (n->kind != XL_NODE_INT && n->kind != XL_NODE_FLOAT)
        return wrong(n, "a number");
    *out = n->f;
    return NULL;
}

xl_error *xl_node_get_str(const xl_node *map, const char *key, xl_str *out)
{
    const xl_node *n = value(map, key);
    if (!n)
        return NULL;
    if (n->kind != XL_NODE_STR)
        return wrong(n, "a string");
    *out = n->s;
    return NULL;
}

xl_error *xl_node_get_size(const xl_node *map, const char *key, uint64_t *out)
{
    const xl_node *n = value(map, key);
    if (!n)
        return NULL;
    if ((n->kind != XL_NODE_INT && n->kind != XL_NODE_STR) || !xl_str_size(n->s, out))
        return xl_node_err(n, "a size was expected, such as 4096 or 16MiB");
    return NULL;
}

xl_error *xl_node_only(const xl_node *map, const char *const *keys)
{
    if (!map || map->kind != XL_NODE_MAP)
        return NULL;
    for (size_t i = 0; i < map->n; i++) {
        const char *near = NULL;
        size_t best = SIZE_MAX, k = 0;
        for (; keys[k]; k++) {
            size_t d = xl_str_distance(map->kid[i]->key, xl_str_of(keys[k]));
            if (d < best) {
                best = d;
                near = keys[k];
            }
            if (d == 0)
                break;
        }
        if (!keys[k])
            return xl_node_err(map->kid[i], "unknown key%s%s%s", near ? "; the nearest known one is '" : "",
                               near ? near : "", near ? "'" : "");
    }
    return NULL;
}
