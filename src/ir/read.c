/* Which of the three formats some bytes are in. */
#include "ir/read.h"

xl_error *xl_read(xl_str bytes, const xl_read_opts *opts, xl_module **out)
{
    static const char magic[4] = { 'M', 'L', (char)0xef, 'R' };
    if (bytes.n >= 4 && memcmp(bytes.p, magic, 4) == 0)
        return xl_read_bytecode(bytes, opts, out);
    /* A proto has small field numbers and lengths among its first bytes; text has no control characters. */
    for (size_t i = 0; i < bytes.n && i < 4096; i++) {
        unsigned char c = (unsigned char)bytes.p[i];
        if (c < ' ' && !(c >= '\t' && c <= '\r'))
            return xl_read_hlo(bytes, opts, out);
    }
    return xl_read_text(bytes, opts, out);
}
