/* src/cli/cli.h
 * A verb is a file: src/cli/<verb>.c with `XL_VERB(<verb>) = { ... };`, and one row in verbs.def.
 * The framework parses its options, adds --help and --json, prints the one error as "xlane: ...", and exits:
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
    int min, max;          /* number of arguments besides options; max < 0: no limit */
    const char *no_json;   /* why --json is refused, and what to use; NULL: the verb has a JSON result */
    bool stop_at_first;    /* options end at the first argument: for `run CMD ...` */
    xl_error *(*run)(const xl_cli *cli, int argc, char **argv); /* argv: the arguments that are not options */
} xl_verb;

/* Defines a verb. It refers to a symbol that main.c defines for each row of verbs.def, and does not link without. */
#define XL_VERB(word)                                                    \
    extern const char xl_verb_row_##word;                                \
    __attribute__((used)) static const char *const row_##word = &xl_verb_row_##word; \
    extern const xl_verb xl_verb_##word;                                 \
    const xl_verb xl_verb_##word

/* Sets an exit status other than 0, for a verb that has printed its result. */
void xl_cli_exit(const xl_cli *cli, int status);
/* An error with exit status 2: the command line is wrong. */
xl_error *xl_cli_misuse(const xl_cli *cli, const char *fmt, ...) XL_PRINTF(2, 3) XL_MUST_USE;
/* Writes the buffer to standard output, adding a final newline if it has none, and frees it. */
xl_error *xl_cli_put(xl_buf *b) XL_MUST_USE;
/* On a terminal: breaks lines that are wider than it at spaces, the rest indented by four more. */
void xl_cli_wrap(xl_buf *b);

/* What main() does; `verbs` ends with NULL. Returns the exit status. */
int xl_cli_main(const xl_verb *const *verbs, int argc, char **argv);

#endif
