/* Bytecode from anywhere: read within its bounds, and what was read can be hashed, located, verified and printed. */
#include "ir/compare/hash.h"
#include "ir/text/print.h"
#include "ir/read.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xl_module *m;
    xl_error *err = xl_read_bytecode((xl_str){ (const char *)data, size }, &(xl_read_opts){ .memory = 64 << 20 }, &m);
    if (!err) {
        xl_buf text = { 0 };
        xl_str file;
        uint32_t line, col;
        xl_module_hash(m);
        for (uint32_t i = 0; i < m->nloc; i++)
            xl_loc_line(m, (xl_loc){ i }, &file, &line, &col);
        xl_error_free(xl_verify(m));
        xl_print_module(m, &(xl_print_opts){ .shorten = true }, &text);
        xl_buf_fini(&text);
    }
    xl_module_free(m);
    xl_error_free(err);
    return 0;
}
