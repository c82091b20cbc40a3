/* src/cli/launch.h
 * Resolves an argument (RUN | conf.yaml | FILE) to a program to compile, with its signature in the catalog. */
#ifndef XL_CLI_LAUNCH_H
#define XL_CLI_LAUNCH_H

#include "cli/cli.h"
#include "ir/ir.h"
#include "lane/catalog.h"
#include "pjrt/program.h"
#include "train/config.h"

typedef struct {
    const char *name;               /* short: "step.mlir", "jit_step" */
    const char *about;              /* a line of description */
    xl_str code;
    xl_format format;
    int replicas, partitions;
    bool shardy;
    const xl_mesh *mesh;            /* its first mesh; NULL: none */
    xl_signature sig;               /* the caller fills in hardware and bundle */
    int64_t batch,
        batch_step; /* of a config, which must be a multiple of batch_step; 0 where the batch cannot be changed */
    xl_buf text;                    /* owns `code` where it was printed */
    const char *conf;
    char *const *words;
    int nword;
} xl_launch;

/* `words` are key=value settings of a config; `module` chooses a program of a run. */
xl_error *xl_launch_find(const xl_cli *cli, const char *what, int nword, char *const *words, const char *module,
                         xl_launch *out) XL_MUST_USE;
/* All programs that a run compiled, without repetition, the largest first; for anything else its one program. If
 * several have the same name, the first digits of their hashes are appended. */
xl_error *xl_launch_all(const xl_cli *cli, const char *what, int nword, char *const *words, const char *module,
                        xl_launch **out, size_t *n) XL_MUST_USE;
/* A configuration from the command line; a wrong key or value gives exit status 2. */
xl_error *xl_cli_config(const xl_cli *cli, const char *file, char *const *words, int nword, xl_config *out) XL_MUST_USE;
xl_error *xl_cli_run_config(const xl_cli *cli, const char *dir, char *const *words, int nword,
                            xl_config *out) XL_MUST_USE; /* of a run */
/* Changes the batch of the configuration; 0: back to its own. */
xl_error *xl_launch_batch(const xl_cli *cli, xl_launch *l, int64_t batch) XL_MUST_USE;
void xl_launch_fini(xl_launch *l);

#endif
