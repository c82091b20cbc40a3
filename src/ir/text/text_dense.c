/* Constants of the text: dense<...>, and dense_resource<...> with the trailer it refers to. */
#include "ir/num.h"
#include "ir/text/text.h"

typedef struct { const xl_type *t; xl_dtype d; char *data; size_t at, room; } dense;

uint64_t xl_text_scalar(xl_text *p, xl_dtype d)
{
    int64_t v;
    bool beyond;
    text_skip(p);
    xl_dclass cls = xl_dtype_class(d);
    if (*p->s == 't' || *p->s == 'f') {
        bool yes = xl_text_word(p, "true");
        if (!yes && !xl_text_word(p, "false"))
            xl_text_fail(p, "expected a number");
        if (cls == XL_CLASS_FLOAT)
            xl_text_fail(p, "a truth value in a tensor of %s", xl_dtypes[d].text);
        return yes;
    }
    if (cls == XL_CLASS_FLOAT) {
        bool is_hex = p->s[0] == '0' && p->s[1] == 'x';
        if (is_hex && xl_text_number(p, &v, &beyond)) {
            unsigned bits = xl_dtypes[d].bits;
            if (bits < 64 && (uint64_t)v >> bits)
                xl_text_fail(p, "a bit pattern is wider than %s", xl_dtypes[d].text);
            return (uint64_t)v;
        }
        return xl_num_round(d, xl_text_float(p));
    }
    if (!xl_text_number(p, &v, &beyond))
        xl_text_fail(p, "expected an integer for an element of %s", xl_dtypes[d].text);
    if (!xl_num_fits(d, v, beyond))
        xl_text_fail(p, "an element does not fit in %s", xl_dtypes[d].text);
    return (uint64_t)v;
}

static void one(xl_text *p, dense *b)
{
    xl_dtype part = xl_dtype_part(b->d);
    size_t size = xl_dtype_bytes(part);
    if (b->at + xl_dtype_bytes(b->d) > b->room)
        xl_text_fail(p, "a constant has more elements than its type");
    if (part != b->d) {
        xl_text_want(p, '(');
        xl_num_store(part, b->data + b->at, xl_text_scalar(p, part));
        xl_text_want(p, ',');
        xl_num_store(part, b->data + b->at + size, xl_text_scalar(p, part));
        xl_text_want(p, ')');
        b->at += 2 * size;
        return;
    }
    xl_num_store(part, b->data + b->at, xl_text_scalar(p, part));
    b->at += size;
}

static void level(xl_text *p, dense *b, uint32_t dim)
{
    int64_t n = 0;
    xl_text_enter(p);
    xl_text_want(p, '[');
    if (dim >= b->t->rank)
        xl_text_fail(p, "a constant is nested deeper than the rank of its type");
    if (!text_take(p, ']')) {
        do {
            if (dim + 1 < b->t->rank)
                level(p, b, dim + 1);
            else
                one(p, b);
            n++;
        } while (text_take(p, ','));
        xl_text_want(p, ']');
    }
    if (n != b->t->dims[dim])
        xl_text_fail(p, "a constant has %lld elements along dimension %u, its type %lld", (long long)n, dim,
                     (long long)b->t->dims[dim]);
    text_leave(p);
}

static int hex(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

/* Bytes from "0x...", which the caller has found to be well-formed up to the closing quote. */
static xl_str hex_bytes(xl_text *p, const char *s, size_t n)
{
    if (n & 1)
        xl_text_fail(p, "a hexadecimal blob has an odd number of digits");
    char *out = xl_arena_alloc(&p->m->arena, n / 2 + 1);
    for (size_t i = 0; i < n; i += 2) {
        if (!xl_text_is(s[i], XL_CH_HEX) || !xl_text_is(s[i + 1], XL_CH_HEX))
            xl_text_fail(p, "a hexadecimal blob has something else than digits in it");
        out[i / 2] = (char)(hex(s[i]) << 4 | hex(s[i + 1]));
    }
    return (xl_str){ out, n / 2 };
}

/* Raw bytes of a constant: one element (a splat) or all; i1 by the byte, or packed as older writers did. */
static const xl_attr *raw_dense(xl_text *p, const xl_type *t, xl_str bytes)
{
    size_t elem = xl_dtype_bytes(t->dtype);
    int64_t count, want;
    if (!xl_type_count(t, &count) || !xl_type_bytes(t, &want))
        xl_text_fail(p, "a constant needs a static type");
    char *data = (char *)(uintptr_t)bytes.p;               /* our own copy */
    if (t->dtype == XL_I1 && bytes.n != (size_t)count && bytes.n != 1 && bytes.n == ((size_t)count + 7) / 8) {
        char *wide = xl_arena_alloc(&p->m->arena, (size_t)count);
        for (int64_t i = 0; i < count; i++)
            wide[i] = bytes.p[i / 8] >> (i % 8) & 1;
        data = wide;
        bytes = (xl_str){ wide, (size_t)count };
    }
    if (bytes.n != elem && bytes.n != (size_t)want)
        xl_text_fail(p, "a constant has %zu bytes, its type %lld", bytes.n, (long long)want);
    unsigned bits = xl_dtypes[t->dtype].bits;
    if (t->dtype == XL_I1)
        for (size_t i = 0; i < bytes.n; i++)
            data[i] = data[i] != 0;
    else if (bits < 8)
        for (size_t i = 0; i < bytes.n; i++)
            data[i] = (char)(data[i] & ((1 << bits) - 1));
    return xl_attr_dense(p->m, t, bytes);
}

static const xl_type *shaped_type(xl_text *p)
{
    xl_text_want(p, ':');
    const xl_type *t = xl_text_type_of(p);
    if (t->kind != XL_TY_TENSOR || t->unranked)
        xl_text_fail(p, "a constant needs a ranked tensor type");
    return t;
}

const xl_attr *xl_text_dense(xl_text *p)                   /* after the word dense */
{
    xl_text_want(p, '<');
    text_skip(p);
    const char *body = p->s, *end;
    const xl_attr *a;
    if (*body == '"') {
        const char *close = memchr(body + 1, '"', (size_t)(p->end - body - 1));
        if (!close)
            xl_text_fail(p, "a string that begins here has no end");
        p->s = close + 1;
        xl_text_want(p, '>');
        const xl_type *t = shaped_type(p);
        end = p->s;
        p->s = body;
        if (body[1] != '0' || body[2] != 'x')
            xl_text_fail(p, "a constant of strings is not supported");
        a = raw_dense(p, t, hex_bytes(p, body + 3, (size_t)(close - body - 3)));
        p->s = end;
        return a;
    }
    const char *close = memchr(body, '>', (size_t)(p->end - body));
    if (!close)
        xl_text_fail(p, "a constant that begins here has no end");
    p->s = close + 1;
    const xl_type *t = shaped_type(p);
    end = p->s;
    p->s = body;
    dense b = { .t = t, .d = t->dtype };
    size_t size = xl_dtype_bytes(b.d);
    int64_t count, most = close - body;
    char small[16] = { 0 };
    if (p->s == close || text_at(p, '>')) {
        if (!xl_type_count(t, &count) || count != 0)
            xl_text_fail(p, "a constant has no elements, its type has");
        a = xl_attr_dense(p->m, t, (xl_str){ "", 0 });
    } else if (*p->s != '[') {
        b.data = small;
        b.room = size;
        one(p, &b);
        bool none = xl_type_count(t, &count) && count == 0; /* every element of none is this one: MLIR takes it */
        a = xl_attr_dense(p->m, t, (xl_str){ small, none ? 0 : size });
    } else {
        if (!xl_type_count(t, &count) || count > most)
            xl_text_fail(p, "a constant has fewer elements than its type, or its type is not static");
        b.room = size * (size_t)count;
        b.data = xl_arena_alloc(&p->tmp, b.room);
        level(p, &b, 0);
        if (b.at != b.room)
            xl_text_fail(p, "a constant has fewer elements than its type");
        a = xl_attr_dense(p->m, t, (xl_str){ b.data, b.room });
    }
    text_skip(p);
    if (p->s != close)
        xl_text_fail(p, "expected '>'");
    p->s = end;
    return a;
}

static xl_str resource_key(xl_text *p) { return text_at(p, '"') ? xl_text_string(p) : xl_text_ident(p); }

const xl_attr *xl_text_resource(xl_text *p)               /* after the word dense_resource */
{
    xl_text_want(p, '<');
    xl_str key = resource_key(p);
    xl_text_want(p, '>');
    const xl_type *t = shaped_type(p);
    for (uint32_t i = 0; i < p->nres; i++)
        if (xl_str_eq(p->res[i].key, key))
            return raw_dense(p, t, xl_str_dup(&p->m->arena, p->res[i].value->str));
    if (xl_str_is(key, "__elided__"))
        xl_text_fail(p, "this constant was elided when the text was printed; print it with its constants");
    xl_text_fail(p, "there is no resource '%.*s' at the end of the text", XL_FMT(key));
}

/* {-# dialect_resources: { builtin: { key: "0x...", ... }, ... }, external_resources: ... #-}. Blobs begin with their
 * alignment, four bytes. */
static void resource_group(xl_text *p, int depth, uint32_t *cap)
{
    xl_text_want(p, '{');
    while (!text_take(p, '}')) {
        xl_str key = resource_key(p);
        xl_text_want(p, ':');
        if (text_at(p, '{')) {
            if (depth > 4)
                xl_text_fail(p, "resources are nested too deep");
            resource_group(p, depth + 1, cap);
        } else if (text_at(p, '"')) {
            xl_str v = xl_text_string(p);
            if (v.n >= 10 && v.p[0] == '0' && v.p[1] == 'x') {
                xl_str bytes = hex_bytes(p, v.p + 10, v.n - 10);
                xl_text_pair entry = { key, xl_attr_str(p->m, bytes) };
                XL_PUSH(&p->tmp, p->res, p->nres, *cap, entry);
            }
        } else if (!xl_text_word(p, "true") && !xl_text_word(p, "false")) {
            xl_text_fail(p, "expected a resource");
        }
        if (!text_take(p, ',')) {
            xl_text_want(p, '}');
            break;
        }
    }
}

void xl_text_resources(xl_text *p)
{
    uint32_t cap = 0;
    p->s += 3;                                             /* {-# */
    for (;;) {
        text_skip(p);
        if (p->s[0] == '#' && p->s[1] == '-' && p->s[2] == '}')
            break;
        (void)resource_key(p);
        xl_text_want(p, ':');
        resource_group(p, 0, &cap);
        text_take(p, ',');
    }
    p->s += 3;
}
