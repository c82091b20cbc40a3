/* Which of the three formats some bytes are in; begin and end of the binary ones. */
#include "ir/reading.h"

xl_syntax xl_syntax_of(xl_str bytes)
{
    if (xl_str_starts(bytes, XL_STR("ML\xefR")))
        return XL_SYNTAX_BYTECODE;
    /* A proto has small field numbers and lengths among its first bytes; text has no control characters. */
    for (size_t i = 0; i < bytes.n && i < 4096; i++) {
        unsigned char c = (unsigned char)bytes.p[i];
        if (c < ' ' && !(c >= '\t' && c <= '\r'))
            return XL_SYNTAX_HLO;
    }
    return XL_SYNTAX_TEXT;
}

xl_error *xl_read(xl_str bytes, const xl_read_opts *opts, xl_module **out)
{
    switch (xl_syntax_of(bytes)) {
    case XL_SYNTAX_BYTECODE: return xl_read_bytecode(bytes, opts, out);
    case XL_SYNTAX_HLO: return xl_read_hlo(bytes, opts, out);
    default: return xl_read_text(bytes, opts, out);
    }
}

size_t xl_reading_limit(xl_str bytes, const xl_read_opts *opts)
{
    return opts && opts->memory ? opts->memory : ((size_t)64 << 20) + 256 * bytes.n;
}

xl_module *xl_reading_begin(size_t limit, xl_arena *scratch, jmp_buf *fail)
{
    scratch->limit = limit;
    scratch->oom = fail;
    return xl_module_new_bounded(limit, fail);
}

xl_error *xl_reading_end(const char *format, xl_module *m, bool done, size_t limit, size_t bytes, xl_error *err,
                         xl_module **out)
{
    if (!done) {
        xl_module_free(m);
        return err ? err
                   : XL_ERR(EXHAUSTED, "%s: reading %zu bytes takes more than %zu bytes of memory", format, bytes,
                            limit);
    }
    m->arena.limit = 0;
    m->arena.oom = NULL;
    *out = m;
    return err;
}
