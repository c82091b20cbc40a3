/* src/cli/cli.h
 * A verb is a file: src/cli/<verb>.c with `XL_VERB(<verb>) = { ... };`, and one row in verbs.def.
 * The frame parses its options, gives --help and --json to all, prints the one error as "xlane: ...", and exits:
 * 0 done, 1 failed, 2 misused, 3 the policy said stop, 4 stopped by a signal and saved, 5 done but not all was
 * recorded. Results go to standard output, everything else to standard error. */
#ifndef XL_CLI_CLI_H
#define XL_CLI_CLI_H

#include "base/json.h"
#include "cli/opt.h"

enum {
    XL_EXIT_DONE = 0,
    XL_EXIT_FAILED = 1,
    XL_EXIT_MISUSED = 2,
    XL_EXIT_STOPPED = 3,
    XL_EXIT_INTERRUPTED = 4,
    XL_EXIT_INCOMPLETE = 5
};

typedef struct {
    xl_arena *arena;   /* lives as long as the command */
    bool json;         /* --json was given: standard output gets one JSON value and nothing else */
    const char *dir;   /* the folder of the running program: the libraries built with it lie there; "" if unknown */
    int *status;       /* set with xl_cli_exit and xl_cli_misuse */
} xl_cli;

typedef struct {
    const char *name;
    const char *args;      /* "[--plugin=PATH] [FILE]", for the usage line */
    const char *help;      /* one line, without a capital or a point */
    const char *more;      /* paragraphs for --help; NULL: none */
    const char *example;   /* one or more command lines, each with its newline but the last */
    const xl_opt *opts;    /* NULL: only --help and --json */
    int min, max;          /* how many arguments besides options; max < 0: any number */
    const char *no_json;   /* why --json is refused, and what to use; NULL: the verb has a JSON result */
    bool stop_at_first;    /* options end at the first argument: for `run CMD ...` */
    xl_error *(*run)(const xl_cli *cli, int argc, char **argv); /* argv: the arguments that are no options */
} xl_verb;

/* Defines the verb. Without its row in verbs.def, which main.c makes a symbol of, it does not link. */
#define XL_VERB(word)                                                    \
    extern const char xl_verb_row_##word;                                \
    __attribute__((used)) static const char *const row_##word = &xl_verb_row_##word; \
    extern const xl_verb xl_verb_##word;                                 \
    const xl_verb xl_verb_##word

/* For a verb that has said its result on standard output and wants another exit status than 0. */
void xl_cli_exit(const xl_cli *cli, int status);
/* An error that makes the exit status 2: the user asked for something the verb cannot be asked. */
xl_error *xl_cli_misuse(const xl_cli *cli, const char *fmt, ...) XL_PRINTF(2, 3) XL_MUST_USE;
/* Writes the buffer to standard output (with a newline where it lacks one) and frees it. */
xl_error *xl_cli_put(xl_buf *b) XL_MUST_USE;

/* What main() does; `verbs` ends with NULL. Returns the exit status. */
int xl_cli_main(const xl_verb *const *verbs, int argc, char **argv);

#endif
