/* Any bytes: xl_json_read gives an error or a tree that, written and read again, is the same. */
#include "base/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xl_arena a = { 0 };
    xl_buf once = { 0 }, twice = { 0 };
    xl_node *n;
    xl_error *e = xl_json_read(&a, "fuzz", (xl_str){ (const char *)data, size }, &n);
    if (!e) {
        xl_json j = { .out = &once };
        xl_json_node(&j, n);
        e = xl_json_read(&a, "again", xl_buf_view(&once), &n);
        if (e)
            abort();
        j = (xl_json){ .out = &twice };
        xl_json_node(&j, n);
        if (!xl_str_eq(xl_buf_view(&once), xl_buf_view(&twice)))
            abort();
    }
    xl_error_free(e);
    xl_buf_fini(&once);
    xl_buf_fini(&twice);
    xl_arena_fini(&a);
    return 0;
}
