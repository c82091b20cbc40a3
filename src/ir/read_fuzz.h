/* src/ir/read_fuzz.h: shared by the fuzzers of the binary readers: what they do with a module. */
#ifndef XL_IR_READ_FUZZ_H
#define XL_IR_READ_FUZZ_H

#include "ir/compare/hash.h"
#include "ir/read.h"
#include "ir/text/print.h"
#include "ir/verify.h"

/* Hashed, located, verified and printed. Frees both. */
static inline int xl_fuzz_module(xl_module *m, xl_error *err)
{
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

#endif
