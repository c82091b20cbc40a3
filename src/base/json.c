#include "base/json.h"

#include <math.h>
#include <stdio.h>

/* ---- writing ---- */

enum { IS_MAP = 1, HAS_MEMBER = 2 };

static void newline(xl_json *j)
{
    if (!j->pretty)
        return;
    xl_buf_putc(j->out, '\n');
    for (int i = 0; i < j->depth; i++)
        xl_buf_puts(j->out, "  ");
}

/* Before every key, and before every value that has none. */
static void begin(xl_json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (j->depth == 0)
        return;
    uint8_t *l = &j->level[j->depth - 1];
    if (*l & HAS_MEMBER)
        xl_buf_putc(j->out, ',');
    *l |= HAS_MEMBER;
    newline(j);
}

static void open_level(xl_json *j, char c, uint8_t flags)
{
    begin(j);
    if (j->depth == XL_NODE_DEPTH) {
        j->out->failed = true; /* the caller looks at that flag anyway, and nothing of ours is so deep */
        return;
    }
    xl_buf_putc(j->out, c);
    j->level[j->depth++] = flags;
}

void xl_json_map(xl_json *j) { open_level(j, '{', IS_MAP); }
void xl_json_list(xl_json *j) { open_level(j, '[', 0); }

void xl_json_end(xl_json *j)
{
    if (j->depth == 0)
        return;
    uint8_t l = j->level[--j->depth];
    if (l & HAS_MEMBER)
        newline(j);
    xl_buf_putc(j->out, l & IS_MAP ? '}' : ']');
}

/* The length of the UTF-8 sequence at p (1 to 4), or 0 where there is none: overlong forms and surrogates count as
 * none. */
static size_t utf8(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return len;
}

static void quoted(xl_buf *b, xl_str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    xl_buf_putc(b, '"');
    for (size_t i = 0; i < s.n; ) {
        size_t len = utf8(p + i, s.n - i);
        unsigned char c = p[i];
        if (len == 0) {
            xl_buf_puts(b, "\xef\xbf\xbd");
            i++;
            continue;
        }
        if (c == '"' || c == '\\') {
            xl_buf_putc(b, '\\');
            xl_buf_putc(b, (char)c);
        } else if (c == '\n') {
            xl_buf_puts(b, "\\n");
        } else if (c == '\t') {
            xl_buf_puts(b, "\\t");
        } else if (c == '\r') {
            xl_buf_puts(b, "\\r");
        } else if (c < 0x20 || c == 0x7f) {
            xl_buf_printf(b, "\\u%04x", c);
        } else {
            xl_buf_add(b, p + i, len);
        }
        i += len;
    }
    xl_buf_putc(b, '"');
}

void xl_json_keyn(xl_json *j, xl_str key)
{
    begin(j);
    quoted(j->out, key);
    xl_buf_puts(j->out, j->pretty ? ": " : ":");
    j->after_key = true;
}

void xl_json_key(xl_json *j, const char *key) { xl_json_keyn(j, xl_str_of(key)); }

void xl_json_str(xl_json *j, xl_str s)
{
    begin(j);
    quoted(j->out, s);
}

void xl_json_text(xl_json *j, const char *c)
{
    if (c)
        xl_json_str(j, xl_str_of(c));
    else
        xl_json_null(j);
}

void xl_json_int(xl_json *j, int64_t v)
{
    begin(j);
    xl_buf_printf(j->out, "%lld", (long long)v);
}

void xl_json_uint(xl_json *j, uint64_t v)
{
    begin(j);
    xl_buf_printf(j->out, "%llu", (unsigned long long)v);
}

void xl_json_num(xl_json *j, double v)
{
    char t[40];
    if (!isfinite(v)) {
        xl_json_null(j);
        return;
    }
    begin(j);
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(t, sizeof t, "%.*g", digits, v);
        bool whole = true;
        for (char *c = t; *c; c++) {
            if (!strchr("0123456789+-e", *c))
                *c = '.'; /* some locales write a comma */
            whole = whole && strchr("0123456789-", *c);
        }
        if (whole)
            strcat(t, ".0"); /* so that it reads back as the kind of number it was */
        double back;
        if (xl_str_f64(xl_str_of(t), &back) && back == v)
            break;
    }
    xl_buf_puts(j->out, t);
}

void xl_json_bool(xl_json *j, bool v) { xl_json_raw(j, v ? XL_STR("true") : XL_STR("false")); }
void xl_json_null(xl_json *j) { xl_json_raw(j, XL_STR("null")); }

void xl_json_raw(xl_json *j, xl_str json)
{
    begin(j);
    xl_buf_str(j->out, json);
}

void xl_json_members(xl_json *j, xl_str map)
{
    if (map.n > 2)
        xl_json_raw(j, (xl_str){ map.p + 1, map.n - 2 });
}

void xl_json_node(xl_json *j, const xl_node *n)
{
    switch (n->kind) {
    case XL_NODE_NULL: xl_json_null(j); break;
    case XL_NODE_BOOL: xl_json_bool(j, n->b); break;
    case XL_NODE_INT: xl_json_int(j, n->i); break;
    case XL_NODE_FLOAT: xl_json_num(j, n->f); break;
    case XL_NODE_STR: xl_json_str(j, n->s); break;
    case XL_NODE_LIST:
    case XL_NODE_MAP:
        if (n->kind == XL_NODE_MAP)
            xl_json_map(j);
        else
            xl_json_list(j);
        for (size_t i = 0; i < n->n; i++) {
            if (n->kind == XL_NODE_MAP)
                xl_json_keyn(j, n->kid[i]->key);
            xl_json_node(j, n->kid[i]);
        }
        xl_json_end(j);
        break;
    }
}

void xl_json_put_str(xl_json *j, const char *key, xl_str s) { xl_json_key(j, key); xl_json_str(j, s); }
void xl_json_put_text(xl_json *j, const char *key, const char *c) { xl_json_key(j, key); xl_json_text(j, c); }
void xl_json_put_int(xl_json *j, const char *key, int64_t v) { xl_json_key(j, key); xl_json_int(j, v); }
void xl_json_put_num(xl_json *j, const char *key, double v) { xl_json_key(j, key); xl_json_num(j, v); }
void xl_json_put_bool(xl_json *j, const char *key, bool v) { xl_json_key(j, key); xl_json_bool(j, v); }

/* ---- reading ---- */

typedef struct { xl_arena *a; const char *file, *p, *end, *line_start; uint32_t line; } reader;

static xl_error *bad(const reader *r, const char *what)
{
    return XL_ERR(INVALID, "%s:%u:%zu: %s", r->file, r->line, (size_t)(r->p - r->line_start) + 1, what);
}

static void skip_space(reader *r)
{
    for (; r->p < r->end; r->p++) {
        if (*r->p == '\n') {
            r->line++;
            r->line_start = r->p + 1;
        } else if (*r->p != ' ' && *r->p != '\t' && *r->p != '\r') {
            break;
        }
    }
}

static int hex4(const reader *r, const char *p)
{
    int v = 0;
    if (r->end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

static char *put_utf8(char *o, uint32_t c)
{
    if (c < 0x80) {
        *o++ = (char)c;
    } else if (c < 0x800) {
        *o++ = (char)(0xc0 | c >> 6);
        *o++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *o++ = (char)(0xe0 | c >> 12);
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    } else {
        *o++ = (char)(0xf0 | c >> 18);
        *o++ = (char)(0x80 | (c >> 12 & 63));
        *o++ = (char)(0x80 | (c >> 6 & 63));
        *o++ = (char)(0x80 | (c & 63));
    }
    return o;
}

static xl_error *read_string(reader *r, xl_str *out)
{
    const char *p = r->p + 1;
    bool plain = true;
    while (p < r->end && *p != '"') {
        if ((unsigned char)*p < 0x20) {
            r->p = p;
            return bad(r, "a control character in a string");
        }
        if (*p == '\\') {
            plain = false;
            p++;
        }
        p++;
    }
    if (p >= r->end)
        return bad(r, "a string that does not end");
    const char *close = p;
    char *o = xl_arena_alloc(r->a, (size_t)(close - r->p)), *o0 = o; /* no escape grows */
    if (plain) {
        size_t n = (size_t)(close - r->p - 1);
        memcpy(o, r->p + 1, n);
        o += n;
    } else {
        for (p = r->p + 1; p < close; ) {
            if (*p != '\\') {
                *o++ = *p++;
                continue;
            }
            r->p = p;
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            const char *at = p[1] ? strchr(from, p[1]) : NULL;
            if (at) {
                *o++ = to[at - from];
                p += 2;
                continue;
            }
            int c = p[1] == 'u' ? hex4(r, p + 2) : -1;
            if (c < 0)
                return bad(r, "an escape that JSON does not have");
            p += 6;
            if (c >= 0xd800 && c < 0xdc00 && r->end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
                int low = hex4(r, p + 2);
                if (low >= 0xdc00 && low < 0xe000) {
                    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                    p += 6;
                }
            }
            o = put_utf8(o,
                         c >= 0xd800 && c < 0xe000 ? 0xfffd : (uint32_t)c); /* half a surrogate pair is no character */
        }
    }
    *out = (xl_str){ o0, (size_t)(o - o0) };
    for (size_t i = 0; i < out->n; ) {
        size_t len = utf8((const unsigned char *)out->p + i, out->n - i);
        if (!len)
            return bad(r, "a string that is not UTF-8");
        i += len;
    }
    r->p = close + 1;
    return NULL;
}

static bool digit(const reader *r, const char *p) { return p < r->end && *p >= '0' && *p <= '9'; }

static xl_error *read_number(reader *r, xl_node *n)
{
    const char *p = r->p;
    bool whole = true;
    if (*p == '-')
        p++;
    if (!digit(r, p))
        return bad(r, "a value was expected");
    if (*p == '0')
        p++;
    else
        while (digit(r, p))
            p++;
    if (p < r->end && *p == '.') {
        whole = false;
        p++;
        if (!digit(r, p))
            return bad(r, "a number that ends in a point");
        while (digit(r, p))
            p++;
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        whole = false;
        p++;
        if (p < r->end && (*p == '+' || *p == '-'))
            p++;
        if (!digit(r, p))
            return bad(r, "a number without its exponent");
        while (digit(r, p))
            p++;
    }
    xl_str s = { r->p, (size_t)(p - r->p) };
    if (!xl_str_f64(s, &n->f))
        return bad(r, "a number of more than 500 digits");
    n->s = xl_str_dup(r->a, s);
    if (whole && xl_str_i64(s, &n->i)) {
        n->kind = XL_NODE_INT;
    } else {
        n->kind = XL_NODE_FLOAT;
        if (fabs(n->f) < 9.2e18 && floor(n->f) == n->f)
            n->i = (int64_t)n->f;
    }
    r->p = p;
    return NULL;
}

static bool word(reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n) != 0)
        return false;
    r->p += n;
    return true;
}

static xl_error *read_value(reader *r, const xl_node *parent, xl_str key, int depth, xl_node **out)
{
    xl_error *err = NULL;
    skip_space(r);
    if (r->p == r->end)
        return bad(r, "the text ends where a value was expected");
    if (depth > XL_NODE_DEPTH)
        return bad(r, "nested too deeply");
    xl_node *n = xl_new(r->a, xl_node, 1);
    *n = (xl_node){
        .line = r->line, .col = (uint32_t)(r->p - r->line_start) + 1, .file = r->file, .parent = parent, .key = key
    };
    *out = n;
    const char *from = r->p;
    if (*r->p == '"') {
        n->kind = XL_NODE_STR;
        return read_string(r, &n->s);
    }
    if (word(r, "true") || word(r, "false")) {
        n->kind = XL_NODE_BOOL;
        n->b = *from == 't';
        n->s = n->b ? XL_STR("true") : XL_STR("false");
        return NULL;
    }
    if (word(r, "null")) {
        n->s = XL_STR("null");
        return NULL;
    }
    if (*r->p != '{' && *r->p != '[')
        return read_number(r, n);

    char close = *r->p == '{' ? '}' : ']';
    size_t cap = 0;
    n->kind = *r->p++ == '{' ? XL_NODE_MAP : XL_NODE_LIST;
    skip_space(r);
    if (r->p < r->end && *r->p == close) {
        r->p++;
        return NULL;
    }
    for (;;) {
        xl_str name = { 0 };
        xl_node *kid;
        skip_space(r);
        if (n->kind == XL_NODE_MAP) {
            if (r->p == r->end || *r->p != '"')
                return bad(r, "a key in quotes was expected");
            XL_DO(read_string(r, &name));
            skip_space(r);
            if (r->p == r->end || *r->p != ':')
                return bad(r, "':' was expected after the key");
            r->p++;
        }
        XL_DO(read_value(r, n, name, depth + 1, &kid));
        XL_PUSH(r->a, n->kid, n->n, cap, kid);
        skip_space(r);
        if (r->p == r->end)
            return bad(r, n->kind == XL_NODE_MAP ? "a map that does not end" : "a list that does not end");
        if (*r->p == close) {
            r->p++;
            return NULL;
        }
        if (*r->p != ',')
            return bad(r, "',' was expected");
        r->p++;
    }
out:
    return err;
}

xl_error *xl_json_read(xl_arena *a, const char *file, xl_str text, xl_node **out)
{
    reader r = { .a = a, .file = file, .p = text.p, .end = text.p + text.n, .line_start = text.p, .line = 1 };
    *out = NULL;
    xl_node *root;
    xl_error *err = read_value(&r, NULL, (xl_str){ 0 }, 1, &root);
    if (err)
        return err;
    skip_space(&r);
    if (r.p != r.end)
        return bad(&r, "something follows the value");
    *out = root;
    return NULL;
}
