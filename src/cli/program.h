/* src/cli/program.h: programs from files and recorded runs, shared by the verbs that read one. */
#ifndef XL_CLI_PROGRAM_H
#define XL_CLI_PROGRAM_H

#include "cli/cli.h"
#include "ir/ir.h"

/* The bytes of a file ("-": standard input), decompressed if it is a program of a run (.zst). */
xl_error *xl_cli_bytes(const xl_cli *cli, const char *path, xl_str *out) XL_MUST_USE;
/* Something that was meant to be a program, so that what is wrong with it is worth reading. */
bool xl_cli_like_program(xl_str s);
/* Reads `bytes` in any supported format; an error lists these. The caller frees *out. */
xl_error *xl_cli_parse(const char *name, xl_str bytes, xl_module **out) XL_MUST_USE;
/* Reads the program that `what` names, a file or a RUN (`module` then chooses one of its programs; NULL: the step's),
 * and verifies it unless told not to. The caller frees *out. */
xl_error *xl_cli_program(const xl_cli *cli, const char *what, const char *module, bool unchecked,
                         xl_module **out) XL_MUST_USE;

#endif
