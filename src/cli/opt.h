/* src/cli/opt.h
 * The options of a verb, declared as a table whose rows point to the variables they set. One verb runs per process, so
 * these are static variables, initialised with the defaults:
 *     static struct { const char *plugin; int64_t limit; } opt = { .limit = 30 };
 *     static const xl_opt opts[] = {
 *         { "plugin", XL_OPT_STR, &opt.plugin, "PATH",    "the plugin to open" },
 *         { "limit",  XL_OPT_INT, &opt.limit,  "SECONDS", "give up after this long (30)" },
 *         { 0 } };
 * The user writes --limit=5 or --limit 5; `--` ends the options. */
#ifndef XL_CLI_OPT_H
#define XL_CLI_OPT_H

#include "base/str.h"

typedef struct { const char **p; size_t n; } xl_opt_list;

typedef enum {
    XL_OPT_FLAG,   /* bool: --name, or --name=false */
    XL_OPT_STR,    /* const char *, not empty */
    XL_OPT_TEXT,   /* const char *, also "" */
    XL_OPT_PLUGIN, /* const char *: cpu, cuda, ..., or a file */
    XL_OPT_PROFILE, /* const char *: a profile that there is, or a file */
    XL_OPT_INT,    /* int64_t */
    XL_OPT_COUNT,  /* int64_t, not negative */
    XL_OPT_SOME,   /* int64_t, at least 1 */
    XL_OPT_NUM,    /* double */
    XL_OPT_SECONDS, /* double, from 0 to 1e9 */
    XL_OPT_SIZE,   /* uint64_t, not 0: 4096, 16MiB */
    XL_OPT_REPEAT, /* xl_opt_list: each use adds one, not empty */
} xl_opt_kind;

typedef struct {
    const char *name;    /* without the dashes; NULL ends the table */
    xl_opt_kind kind;
    void *out;
    const char *value;   /* name of the value in the help, "PATH"; NULL for a flag */
    const char *help;
} xl_opt;

/* Parses the options in argv[0..argc) and moves the other arguments to its front; *nargs is their number. `table` and
 * `common` may be NULL. With `stop_at_first` options end at the first argument that is not an option, as for `run CMD
 * --its-flags`. */
xl_error *xl_opt_parse(xl_arena *a, const xl_opt *table, const xl_opt *common, bool stop_at_first, int argc,
                       char **argv, int *nargs) XL_MUST_USE;
void xl_opt_help(xl_buf *b, const xl_opt *table);

#endif
