/* Characters and words of the text. */
#include "ir/num.h"
#include "ir/text/text.h"

#include <stdio.h>

#define W XL_CH_WORD
#define D (XL_CH_WORD | XL_CH_DIGIT | XL_CH_HEX)
#define L (XL_CH_WORD | XL_CH_START)
#define H (XL_CH_WORD | XL_CH_START | XL_CH_HEX)
const unsigned char xl_text_class[256] = {
    [' '] = XL_CH_SPACE,
    ['\t'] = XL_CH_SPACE,
    ['\n'] = XL_CH_SPACE,
    ['\r'] = XL_CH_SPACE,
    ['0'] = D,
    ['1'] = D,
    ['2'] = D,
    ['3'] = D,
    ['4'] = D,
    ['5'] = D,
    ['6'] = D,
    ['7'] = D,
    ['8'] = D,
    ['9'] = D,
    ['a'] = H,
    ['b'] = H,
    ['c'] = H,
    ['d'] = H,
    ['e'] = H,
    ['f'] = H,
    ['g'] = L,
    ['h'] = L,
    ['i'] = L,
    ['j'] = L,
    ['k'] = L,
    ['l'] = L,
    ['m'] = L,
    ['n'] = L,
    ['o'] = L,
    ['p'] = L,
    ['q'] = L,
    ['r'] = L,
    ['s'] = L,
    ['t'] = L,
    ['u'] = L,
    ['v'] = L,
    ['w'] = L,
    ['x'] = L,
    ['y'] = L,
    ['z'] = L,
    ['A'] = H,
    ['B'] = H,
    ['C'] = H,
    ['D'] = H,
    ['E'] = H,
    ['F'] = H,
    ['G'] = L,
    ['H'] = L,
    ['I'] = L,
    ['J'] = L,
    ['K'] = L,
    ['L'] = L,
    ['M'] = L,
    ['N'] = L,
    ['O'] = L,
    ['P'] = L,
    ['Q'] = L,
    ['R'] = L,
    ['S'] = L,
    ['T'] = L,
    ['U'] = L,
    ['V'] = L,
    ['W'] = L,
    ['X'] = L,
    ['Y'] = L,
    ['Z'] = L,
    ['_'] = L,
    ['$'] = W,
    ['.'] = W,
};
#undef W
#undef D
#undef L
#undef H

void xl_text_fail(xl_text *p, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t line = 1, col = 1;
    for (const char *c = p->start; c < p->s && c < p->end; c++) {
        col = *c == '\n' ? 1 : col + 1;
        line += *c == '\n';
    }
    if (p->nop)
        p->err = XL_ERR(INVALID, "line %zu:%zu: %.*s: %s", line, col, (int)(p->nop < 80 ? p->nop : 80), p->op, text);
    else
        p->err = XL_ERR(INVALID, "line %zu:%zu: %s", line, col, text);
    longjmp(p->out, 2);
}

void xl_text_space(xl_text *p)
{
    for (;;) {
        while (xl_text_is(*p->s, XL_CH_SPACE))
            p->s++;
        if (p->s[0] != '/' || p->s[1] != '/')
            return;
        const char *nl = memchr(p->s, '\n', (size_t)(p->end - p->s));
        p->s = nl ? nl + 1 : p->end;
    }
}

static const char *seen(const xl_text *p, char room[16])
{
    if (p->s >= p->end)
        return "the end of the text";
    unsigned char c = (unsigned char)*p->s;
    if (c >= ' ' && c < 127)
        snprintf(room, 16, "'%c'", c);
    else
        snprintf(room, 16, "byte 0x%02X", c);
    return room;
}

void xl_text_want(xl_text *p, char c)
{
    char room[16];
    if (!text_take(p, c))
        xl_text_fail(p, "expected '%c', found %s", c, seen(p, room));
}

bool xl_text_word(xl_text *p, const char *word)
{
    text_skip(p);
    const char *s = p->s;
    for (; *word; word++, s++)
        if (*s != *word)
            return false;
    if (xl_text_is(*s, XL_CH_WORD))
        return false;
    p->s = s;
    return true;
}

void xl_text_want_word(xl_text *p, const char *word)
{
    char room[16];
    if (!xl_text_word(p, word))
        xl_text_fail(p, "expected '%s', found %s", word, seen(p, room));
}

xl_str xl_text_ident(xl_text *p)
{
    char room[16];
    text_skip(p);
    const char *s = p->s;
    if (!xl_text_is(*s, XL_CH_START))
        xl_text_fail(p, "expected a name, found %s", seen(p, room));
    while (xl_text_is(*p->s, XL_CH_WORD))
        p->s++;
    return (xl_str){ s, (size_t)(p->s - s) };
}

static int hex(char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

xl_str xl_text_string(xl_text *p)
{
    xl_text_want(p, '"');
    const char *s = p->s, *q = s;
    while (*q != '"' && *q != '\\' && *q != '\n' && q < p->end)
        q++;
    if (*q == '"') {                                       /* nothing to decode: a slice of the text */
        p->s = q + 1;
        return (xl_str){ s, (size_t)(q - s) };
    }
    for (; *q != '"'; q++) {
        if (q >= p->end || *q == '\n')
            xl_text_fail(p, "a string that begins here has no end");
        if (*q == '\\' && q + 1 < p->end)
            q++;
    }
    char *room = xl_arena_alloc(&p->m->arena, (size_t)(q - s) + 1), *w = room;
    for (const char *c = s; c < q; c++) {
        if (*c != '\\') {
            *w++ = *c;
            continue;
        }
        c++;
        if (*c == '"' || *c == '\\')
            *w++ = *c;
        else if (*c == 'n')
            *w++ = '\n';
        else if (*c == 't')
            *w++ = '\t';
        else if (xl_text_is(*c, XL_CH_HEX) && xl_text_is(c[1], XL_CH_HEX)) {
            *w++ = (char)(hex(*c) << 4 | hex(c[1]));
            c++;
        } else {
            p->s = c;
            xl_text_fail(p, "a string has an escape that is none of \\\\ \\\" \\n \\t \\HH");
        }
    }
    *w = 0;
    p->s = q + 1;
    return (xl_str){ room, (size_t)(w - room) };
}

xl_str xl_text_symbol(xl_text *p)
{
    char room[16];
    if (!text_take(p, '@'))
        xl_text_fail(p, "expected a symbol, found %s", seen(p, room));
    xl_str s;
    if (*p->s == '"') {
        s = xl_text_string(p);
    } else {
        s.p = p->s;
        while (xl_text_is(*p->s, XL_CH_WORD) || *p->s == '-')
            p->s++;
        s.n = (size_t)(p->s - s.p);
    }
    if (s.n == 0)
        xl_text_fail(p, "a symbol has no name");
    while (p->s[0] == ':' && p->s[1] == ':' && p->s[2] == '@') {
        p->s += 2;
        xl_text_enter(p);
        xl_str rest = xl_text_symbol(p);
        text_leave(p);
        s = xl_strf(&p->m->arena, "%.*s::%.*s", XL_FMT(s), XL_FMT(rest));
    }
    return s;
}

bool xl_text_number(xl_text *p, int64_t *out, bool *beyond)
{
    text_skip(p);
    const char *s = p->s;
    bool neg = *s == '-';
    s += neg;
    if (!xl_text_is(*s, XL_CH_DIGIT))
        return false;
    uint64_t u = 0;
    bool over = false;
    if (s[0] == '0' && s[1] == 'x' && xl_text_is(s[2], XL_CH_HEX)) {
        for (s += 2; xl_text_is(*s, XL_CH_HEX); s++) {
            over |= u >> 60 != 0;
            u = u << 4 | (uint64_t)hex(*s);
        }
    } else {
        for (; xl_text_is(*s, XL_CH_DIGIT); s++)
            over |= __builtin_mul_overflow(u, 10, &u) || __builtin_add_overflow(u, (uint64_t)(*s - '0'), &u);
        if (*s == '.')
            return false;
    }
    if (over || (neg && u > (uint64_t)INT64_MAX + 1))
        xl_text_fail(p, "an integer does not fit in 64 bits");
    *beyond = !neg && u > INT64_MAX;
    *out = (int64_t)(neg ? 0 - u : u);
    p->s = s;
    return true;
}

int64_t xl_text_int(xl_text *p)
{
    int64_t v;
    bool beyond;
    char room[16];
    if (!xl_text_number(p, &v, &beyond))
        xl_text_fail(p, "expected an integer, found %s", seen(p, room));
    if (beyond)
        xl_text_fail(p, "an integer does not fit in 64 bits");
    return v;
}

uint32_t xl_text_hash(xl_str s)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 16777619u;
    return h ^ (h >> 15);
}

void xl_text_enter(xl_text *p)
{
    if (++p->depth > XL_TEXT_DEPTH)
        xl_text_fail(p, "nested more than %d deep", XL_TEXT_DEPTH);
}
