/* Any bytes into the text reader. What it takes must print, read back, and be the same program. */
#include <stdio.h>
#include <stdlib.h>

#include "ir/compare/hash.h"
#include "ir/text/print.h"
#include "ir/read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void die(const char *what, xl_str text)
{
    fprintf(stderr, "%s\n---\n%.*s\n", what, (int)(text.n < 100000 ? text.n : 100000), text.p);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xl_read_opts opts = { .memory = (size_t)32 << 20 };
    xl_module *m = NULL, *n = NULL;
    xl_error *err = xl_read_text((xl_str){ (const char *)data, size }, &opts, &m);
    if (err) {
        xl_error_free(err);
        return 0;
    }
    xl_buf a = { 0 }, b = { 0 };
    xl_print_opts with = { .locations = true };
    xl_print_module(m, &with, &a);
    opts.memory = (size_t)256 << 20;
    err = xl_read_text(xl_buf_view(&a), &opts, &n);
    if (err)
        die(xl_error_message(err), xl_buf_view(&a));
    xl_print_module(n, NULL, &b);
    a.n = 0;
    xl_print_module(m, NULL, &a);
    if (!xl_str_eq(xl_buf_view(&a), xl_buf_view(&b)))
        die("printed otherwise the second time", xl_buf_view(&a));
    xl_digest x = xl_module_hash(m), y = xl_module_hash(n);
    if (memcmp(&x, &y, sizeof x))
        die("another hash the second time", xl_buf_view(&a));
    xl_buf_fini(&a);
    xl_buf_fini(&b);
    xl_module_free(m);
    xl_module_free(n);
    return 0;
}
