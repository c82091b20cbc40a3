/* Bytecode from anywhere: read within bounds, and what was read can be used. */
#include "ir/read_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xl_module *m;
    xl_error *err = xl_read_bytecode((xl_str){ (const char *)data, size }, &(xl_read_opts){ .memory = 64 << 20 }, &m);
    return xl_fuzz_module(m, err);
}
