/* seal FILE: writes the JSON map on standard input as a lock or receipt would be written, with its checksum. */
#include <stdio.h>

#include "base/file.h"
#include "lane/receipt.h"

int main(int argc, char **argv)
{
    xl_arena a = { 0 };
    xl_str text;
    xl_error *err = argc == 2 ? xl_file_read(&a, "/dev/stdin", &text) : XL_ERR(INVALID, "usage: seal FILE <MAP");
    if (!err)
        err = xl_sealed_write(&a, argv[1], text, true);
    if (err)
        fprintf(stderr, "seal: %s\n", xl_error_message(err));
    int status = err != NULL;
    xl_error_free(err);
    xl_arena_fini(&a);
    return status;
}
