#include "cli/program.h"

#include <string.h>

#include "base/file.h"
#include "base/word.h"
#include "base/zip.h"
#include "cli/launch.h"
#include "ir/read.h"
#include "ir/verify.h"

/* How the files of other packers begin; zstd's are unpacked. */
static const struct { const char *begins, *packer, *unpack; } packed_by[] = {
    { "\x1f\x8b", "gzip", "gunzip -k" },
    { "\xfd" "7zXZ", "xz", "unxz -k" },
    { "BZh", "bzip2", "bunzip2 -k" },
    { "PK\x03\x04", "zip", "unzip" },
};

xl_error *xl_cli_bytes(const xl_cli *cli, const char *path, xl_str *out)
{
    xl_error *err = NULL;
    xl_buf raw = { 0 };
    static const char packed[] = "\x28\xb5\x2f\xfd";       /* how zstd begins */
    err = xl_file_read(cli->arena, strcmp(path, "-") == 0 ? "/dev/stdin" : path, out);
    if (err) {
        err = xl_error_code(err) == XL_CODE_NOT_FOUND ? xl_error_next(err, "check its path") : err;
        goto out;
    }
    if (xl_str_starts(*out, XL_STR(packed))) {
        XL_TRY(xl_unzip(*out, UINT64_C(1) << 30, &raw), "unpacking %s", path);
        *out = xl_str_dup(cli->arena, xl_buf_view(&raw));
    }
    for (size_t i = 0; i < sizeof packed_by / sizeof *packed_by; i++)
        if (xl_str_starts(*out, xl_str_of(packed_by[i].begins))) {
            err = XL_ERR(INVALID, "%s is packed with %s, which is not read here; unpack it first: %s %s", path,
                         packed_by[i].packer, packed_by[i].unpack, xl_word_of(cli->arena, path));
            goto out;
        }
out:
    xl_buf_fini(&raw);
    return err;
}

bool xl_cli_like_program(xl_str s)
{
    return xl_syntax_of(s) == XL_SYNTAX_BYTECODE || memmem(s.p, s.n, "func", 4) || memmem(s.p, s.n, "module", 6) ||
           memmem(s.p, s.n, "stablehlo", 9);
}

xl_error *xl_cli_parse(const char *name, xl_str bytes, xl_module **out)
{
    xl_error *err = xl_read(bytes, NULL, out);
    if (!err || (bytes.n && xl_cli_like_program(bytes) && !xl_str_starts(bytes, XL_STR("\177ELF"))))
        return xl_error_wrap(err, "%s", name);
    xl_error_free(err);
    return XL_ERR(INVALID,
                  "%s is %s; give StableHLO text, MLIR bytecode, an HLO proto, a file of a run's programs/, or a RUN",
                  name, bytes.n ? "not a program" : "empty");
}

xl_error *xl_cli_program(const xl_cli *cli, const char *what, const char *module, bool unchecked, xl_module **out)
{
    xl_error *err = NULL;
    xl_str bytes;
    xl_launch l = { 0 };
    xl_file_info info;
    *out = NULL;
    if (strcmp(what, "-") && (!xl_file_stat(what, &info) || info.dir)) {
        XL_DO(xl_launch_find(cli, what, 0, NULL, module, &l));
        bytes = l.code;
        what = l.about;
    } else if (module) {
        err = xl_cli_misuse(cli, "--module chooses a program of a recorded run; %s is one program", what);
        goto out;
    } else {
        XL_DO(xl_cli_bytes(cli, what, &bytes));
    }
    XL_DO(xl_cli_parse(what, bytes, out));
    if (!unchecked)
        XL_TRY(xl_verify(*out), "%s", what);
out:
    xl_launch_fini(&l);
    if (err) {
        xl_module_free(*out);
        *out = NULL;
    }
    return err;
}
