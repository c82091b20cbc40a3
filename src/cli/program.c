#include "cli/program.h"

#include <string.h>

#include "base/file.h"
#include "ir/read.h"
#include "ir/verify.h"

xl_error *xl_cli_program(const xl_cli *cli, const char *path, bool unchecked, xl_module **out)
{
    xl_error *err = NULL;
    xl_str bytes;
    *out = NULL;
    XL_DO(xl_file_read(cli->arena, strcmp(path, "-") == 0 ? "/dev/stdin" : path, &bytes));
    XL_TRY(xl_read(bytes, NULL, out), "%s", path);
    if (!unchecked)
        XL_TRY(xl_verify(*out), "%s", path);
out:
    if (err) {
        xl_module_free(*out);
        *out = NULL;
    }
    return err;
}
