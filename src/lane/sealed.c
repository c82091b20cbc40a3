/* JSON files with a checksum that reveals edits, and the differences between two of them. */
#include "base/file.h"
#include "base/hash.h"
#include "lane/receipt.h"

/* One form of a tree, whatever its spaces: the text that is hashed. */
static void canonical(const xl_node *root, xl_buf *out)
{
    xl_json j = { .out = out };
    xl_json_map(&j);
    for (size_t i = 0; i < root->n; i++) {
        if (xl_str_is(root->kid[i]->key, "checksum"))
            continue;
        xl_json_keyn(&j, root->kid[i]->key);
        xl_json_node(&j, root->kid[i]);
    }
    xl_json_end(&j);
}

static xl_str checksum(xl_arena *a, const xl_node *root)
{
    xl_buf b = { 0 };
    char hex[XL_DIGEST_HEX];
    canonical(root, &b);
    xl_digest d = xl_hash_of(xl_buf_view(&b));
    xl_buf_fini(&b);
    return xl_str_dup(a, xl_str_of(xl_digest_hex(&d, hex)));
}

bool xl_sealed_check(const xl_node *root)
{
    xl_arena tmp = { 0 };
    const xl_node *sum = xl_node_get(root, "checksum");
    bool ok = root->kind == XL_NODE_MAP && sum && sum->kind == XL_NODE_STR && xl_str_eq(sum->s, checksum(&tmp, root));
    xl_arena_fini(&tmp);
    return ok;
}

xl_error *xl_sealed_write(xl_arena *a, const char *path, xl_str body, bool fresh)
{
    xl_error *err = NULL;
    xl_node *root;
    xl_buf b = { 0 };
    xl_json j = { .out = &b, .pretty = true };
    XL_DO(xl_json_read(a, path, body, &root));
    xl_json_map(&j);
    for (size_t i = 0; i < root->n; i++) {
        xl_json_keyn(&j, root->kid[i]->key);
        xl_json_node(&j, root->kid[i]);
    }
    xl_json_put_str(&j, "checksum", checksum(a, root));
    xl_json_end(&j);
    xl_buf_putc(&b, '\n');
    if (b.failed)
        err = XL_ERR(EXHAUSTED, "out of memory");
    else
        err = fresh ? xl_file_write_new(path, xl_buf_view(&b), 0600) : xl_file_write_atomic(path, xl_buf_view(&b));
out:
    xl_buf_fini(&b);
    return err;
}

typedef struct { xl_arena *a; xl_node_change *p; size_t n, cap; } changes;

static xl_str leaf(xl_arena *a, const xl_node *n)
{
    if (!n)
        return (xl_str){ 0 };
    if (n->kind != XL_NODE_LIST && n->kind != XL_NODE_MAP)
        return n->s.n ? n->s : n->kind == XL_NODE_NULL ? XL_STR("null") : XL_STR("(empty)");
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    xl_json_node(&j, n);
    xl_str s = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return s;
}

static void add(changes *c, xl_str name, const xl_node *x, const xl_node *y)
{
    XL_PUSH(c->a, c->p, c->n, c->cap, ((xl_node_change){ name, leaf(c->a, x), leaf(c->a, y) }));
}

/* What a member of a list is called. */
static xl_str label(const xl_node *n)
{
    static const char *const keys[] = { "name", "fact", "rung" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const xl_node *k = xl_node_get(n, keys[i]);
        if (k)
            return k->s;
    }
    return (xl_str){ 0 };
}

static const xl_node *partner(const xl_node *list, const xl_node *n, size_t at)
{
    xl_str name = n->parent && n->parent->kind == XL_NODE_MAP ? n->key : label(n);
    bool map = list->kind == XL_NODE_MAP;
    if (!name.n)
        return at < list->n ? list->kid[at] : NULL;
    for (size_t i = 0; i < list->n; i++)
        if (xl_str_eq(map ? list->kid[i]->key : label(list->kid[i]), name))
            return list->kid[i];
    return NULL;
}

static void walk(changes *c, xl_str path, const xl_node *x, const xl_node *y)
{
    bool deep = x && y && x->kind == y->kind && (x->kind == XL_NODE_MAP || x->kind == XL_NODE_LIST);
    if (!deep) {
        if (!x || !y || !xl_str_eq(leaf(c->a, x), leaf(c->a, y)))
            add(c, path, x, y);
        return;
    }
    for (int side = 0; side < 2; side++) {
        const xl_node *from = side ? y : x, *to = side ? x : y;
        for (size_t i = 0; i < from->n; i++) {
            const xl_node *kid = from->kid[i], *other = partner(to, kid, i);
            if (side && other)
                continue; /* seen from the first side */
            xl_str name = from->kind == XL_NODE_MAP ? kid->key : label(kid).n ? label(kid) : xl_strf(c->a, "%zu", i);
            xl_str p = path.n ? xl_strf(c->a, "%.*s.%.*s", XL_FMT(path), XL_FMT(name)) : name;
            walk(c, p, side ? other : kid, side ? kid : other);
        }
    }
}

void xl_node_changes(xl_arena *a, const xl_node *x, const xl_node *y, xl_node_change **out, size_t *n)
{
    changes c = { .a = a };
    walk(&c, (xl_str){ 0 }, x, y);
    *out = c.p;
    *n = c.n;
}
