/* src/cli/program.h: programs from files, for the verbs that look at one. */
#ifndef XL_CLI_PROGRAM_H
#define XL_CLI_PROGRAM_H

#include "cli/cli.h"
#include "ir/ir.h"

/* Reads the program in `path` ("-": standard input), whichever format it has, and verifies it unless told not to. The
 * caller frees *out. */
xl_error *xl_cli_program(const xl_cli *cli, const char *path, bool unchecked, xl_module **out) XL_MUST_USE;

#endif
