/* Begin and end of the binary readers. */
#include "ir/reading.h"

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
