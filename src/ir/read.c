/* Which of the three formats some bytes are in. */
#include "ir/read.h"

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
