#include "base/secret.h"

#include <ctype.h>

static bool same_word(xl_str s, const char *word)
{
    size_t n = strlen(word);
    if (s.n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)s.p[i]) != word[i])
            return false;
    return true;
}

/* The words of a name end where no letter or digit stands, and where a capital follows a small letter: apiKey, API_KEY,
 * db.password. */
bool xl_secret_name(xl_str name)
{
    static const char *const words[] = { "token",     "tokens",        "secret",     "secrets",     "password",
                                         "passwd",    "passphrase",    "pass",       "pwd",         "key",
                                         "keys",      "apikey",        "accesskey",  "secretkey",   "privatekey",
                                         "authtoken", "accesstoken",   "credential", "credentials", "creds",
                                         "auth",      "authorization", "bearer",     "cookie",      "pat" };
    static const char *const harmless[] = { "tokenizer", "keyboard" };
    for (size_t from = 0; from < name.n;) {
        size_t to = from;
        while (to < name.n && isalnum((unsigned char)name.p[to]) &&
               !(to > from && isupper((unsigned char)name.p[to]) && islower((unsigned char)name.p[to - 1])))
            to++;
        xl_str word = { name.p + from, to - from };
        bool fine = false;
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            fine = fine || same_word(word, harmless[i]);
        for (size_t i = 0; i < sizeof words / sizeof *words && !fine; i++)
            if (same_word(word, words[i]))
                return true;
        from = to;
        while (from < name.n && !isalnum((unsigned char)name.p[from]))
            from++;
    }
    return false;
}

static bool token_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.'; }

/* How many bytes from p on are a token in a well-known form; 0: none. */
static size_t token_at(xl_str s)
{
    static const struct { const char *prefix; size_t least;
    } forms[] = { { "hf_", 20 },    { "ghp_", 20 },  { "gho_", 20 },     { "ghs_", 20 },  { "github_pat_", 20 },
                  { "glpat-", 16 }, { "sk-", 20 },   { "sk_live_", 16 }, { "AKIA", 20 },  { "ASIA", 20 },
                  { "AIza", 30 },   { "xoxb-", 16 }, { "xoxp-", 16 },    { "xoxa-", 16 }, { "eyJ", 30 },
                  { "ya29.", 20 },  { "npm_", 20 },  { "pypi-", 20 } };
    size_t n = 0;
    while (n < s.n && token_char(s.p[n]))
        n++;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (n >= forms[i].least && !strncmp(s.p, forms[i].prefix, strlen(forms[i].prefix)))
            return n;
    return 0;
}

/* The value that begins at i: up to a space, or in a URL up to its next parameter. */
static size_t value_end(xl_str s, size_t i, bool url)
{
    while (i < s.n && s.p[i] != ' ' && s.p[i] != '\n' && s.p[i] != '"' && s.p[i] != '\'' &&
           !(url && (s.p[i] == '&' || s.p[i] == '#')))
        i++;
    return i;
}

xl_str xl_secret_hide(xl_arena *a, xl_str word)
{
    xl_buf b = { 0 };
    bool hid = false;
    size_t name = 0;                                       /* where the name of a value would begin */
    for (size_t i = 0; i < word.n;) {
        xl_str rest = { word.p + i, word.n - i };
        size_t n = i == 0 || !token_char(word.p[i - 1]) ? token_at(rest) : 0;
        if (n) {
            xl_buf_puts(&b, XL_REDACTED);
            i += n;
            hid = true;
            continue;
        }
        if (xl_str_starts(rest, XL_STR("://"))) {          /* user:password@ */
            size_t at = i + 3, end = at;
            while (end < word.n && word.p[end] != '/' && word.p[end] != ' ' && word.p[end] != '?' && word.p[end] != '#')
                end++;
            size_t sign = end;
            while (sign > at && word.p[sign - 1] != '@')
                sign--;
            xl_buf_puts(&b, "://");
            i = at;
            if (sign > at) {
                xl_buf_puts(&b, XL_REDACTED "@");
                i = sign;
                hid = true;
            }
            name = i;
            continue;
        }
        char c = word.p[i];
        bool colon = c == ':' && i + 1 < word.n && word.p[i + 1] == ' '; /* "Authorization: Bearer x" */
        if ((c == '=' || colon) && i > name && xl_secret_name((xl_str){ word.p + name, i - name }) && i + 1 < word.n) {
            bool url = memchr(word.p, '?', i) != NULL;
            xl_buf_putc(&b, c);
            i++;
            if (word.p[i] == '"' || word.p[i] == '\'')
                xl_buf_putc(&b, word.p[i++]);
            xl_buf_puts(&b, XL_REDACTED);
            i = colon ? word.n : value_end(word, i, url);
            hid = true;
            continue;
        }
        if (c == ' ' || c == '?' || c == '&' || c == ',' || c == '\n' || c == '"' || c == '\'')
            name = i + 1;
        xl_buf_putc(&b, c);
        i++;
    }
    xl_str out = hid && !b.failed ? xl_str_dup(a, xl_buf_view(&b)) : hid ? XL_STR(XL_REDACTED) : word;
    xl_buf_fini(&b);
    return out;
}

xl_str xl_secret_env(xl_arena *a, xl_str name, xl_str value)
{
    return value.n && xl_secret_name(name) ? XL_STR(XL_REDACTED) : xl_secret_hide(a, value);
}

xl_str xl_secret_arg(xl_arena *a, int argc, char *const *argv, int i)
{
    xl_str before = i > 0 && i < argc ? xl_str_of(argv[i - 1]) : (xl_str){ 0 };
    bool option = before.n > 1 && before.p[0] == '-' && !memchr(before.p, '=', before.n);
    if (option && argv[i][0] && argv[i][0] != '-' && xl_secret_name(before))
        return XL_STR(XL_REDACTED);
    return xl_secret_hide(a, xl_str_of(argv[i]));
}


xl_str xl_secret_command(xl_arena *a, int argc, char *const *argv)
{
    xl_buf b = { 0 };
    for (int i = 0; i < argc; i++)
        xl_buf_printf(&b, "%s%.*s", i ? " " : "", XL_FMT(xl_secret_arg(a, argc, argv, i)));
    xl_str out = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return out;
}
