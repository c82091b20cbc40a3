/* Compile options from arbitrary bytes: read, made canonical, read again (which must give the same bytes), compared
 * with themselves. */
#include <stdlib.h>

#include "pjrt/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xl_arena a = { 0 };
    xl_option *root, *again;
    xl_option_change *change;
    xl_buf first = { 0 }, second = { 0 };
    size_t n;
    xl_error *err = xl_options_parse(&a, (xl_str){ (const char *)data, size }, &root);
    if (!err) {
        xl_options_canonical(root, &first);
        err = xl_options_parse(&a, xl_buf_view(&first), &again);
        if (err)
            abort();
        xl_options_canonical(again, &second);
        if (!xl_str_eq(xl_buf_view(&first), xl_buf_view(&second)))
            abort();
        xl_options_diff(&a, again, again, &change, &n);
        if (n)
            abort();
        xl_options_diff(&a, root, again, &change, &n);
    }
    xl_error_free(err);
    xl_buf_fini(&first);
    xl_buf_fini(&second);
    xl_arena_fini(&a);
    return 0;
}
