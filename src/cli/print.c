#include <stdio.h>

#include "cli/program.h"
#include "ir/compare/hash.h"
#include "ir/text/print.h"
#include "pass/pass.h"

static struct { bool hash, locations, shorten, unchecked, optimise; const char *dump, *passes, *module; } opt;
static const xl_opt opts[] = {
    { "hash", XL_OPT_FLAG, &opt.hash, NULL, "only the canonical hash" },
    { "locations", XL_OPT_FLAG, &opt.locations, NULL, "with the source line of every op" },
    { "shorten", XL_OPT_FLAG, &opt.shorten, NULL,
      "leave out the middle of large constants: for reading, not for parsers" },
    { "module", XL_OPT_STR, &opt.module, "NAME", "which program of a RUN (that of the step)" },
    { "unchecked", XL_OPT_FLAG, &opt.unchecked, NULL, "print it even if it does not verify" },
    { "optimise", XL_OPT_FLAG, &opt.optimise, NULL, "run the passes first" },
    { "passes", XL_OPT_STR, &opt.passes, "LIST", "run only these passes, separated by commas" },
    { "dump-after", XL_OPT_STR, &opt.dump, "PASS",
      "the program as it is after this pass, on standard error; all: after each" },
    { 0 }
};

static uint64_t count(const xl_region *r)
{
    uint64_t n = r->nop;
    for (uint32_t k = 0; k < r->nop; k++)
        for (uint32_t i = 0; i < r->op[k]->nregion; i++)
            n += count(r->op[k]->region[i]);
    return n;
}

static void dump(void *ctx, const char *pass, const xl_module *m)
{
    xl_buf b = { 0 };
    (void)ctx;
    if (strcmp(opt.dump, "all") != 0 && strcmp(opt.dump, pass) != 0)
        return;
    xl_print_module(m, &(xl_print_opts){ .locations = opt.locations, .shorten = opt.shorten }, &b);
    fprintf(stderr, "// after %s\n%.*s\n", pass, XL_FMT(xl_buf_view(&b)));
    xl_buf_fini(&b);
}

static xl_error *known_passes(const xl_cli *cli, const char *option, const char *list)
{
    xl_str rest = xl_str_of(list);
    while (rest.n) {
        xl_str name = xl_str_trim(xl_str_cut(&rest, ',')), all = xl_str_of(xl_pipeline_names());
        bool known = false;
        while (all.n)
            known |= xl_str_eq(xl_str_cut(&all, ' '), name);
        if (!known)
            return xl_cli_misuse(cli, "%s: there is no pass '%.*s'; there are %s", option, XL_FMT(name),
                                 xl_pipeline_names());
    }
    return NULL;
}

static xl_error *print(const xl_cli *cli, int argc, char **argv)
{
    xl_error *err = NULL;
    xl_buf b = { 0 }, text = { 0 };
    xl_module *m = NULL;
    char hex[XL_DIGEST_HEX];
    (void)argc;
    XL_DO(known_passes(cli, "--passes", opt.passes));
    XL_DO(known_passes(cli, "--dump-after", opt.dump && strcmp(opt.dump, "all") ? opt.dump : NULL));
    XL_DO(xl_cli_program(cli, argv[0], opt.module, opt.unchecked, &m));
    if (opt.optimise || opt.passes || opt.dump)
        XL_TRY(xl_pipeline_run(
                   m, &(xl_pipeline_opts){ .only = opt.passes, .verify = true, .after = opt.dump ? dump : NULL }),
               "%s", argv[0]);
    xl_digest d = xl_module_hash(m);
    xl_digest_hex(&d, hex);
    if (!opt.hash)
        xl_print_module(m, &(xl_print_opts){ .locations = opt.locations, .shorten = opt.shorten }, &text);
    if (cli->json) {
        xl_json j = { .out = &b, .pretty = true };
        uint64_t nop = 0;
        for (uint32_t i = 0; i < m->nfunc; i++)
            nop += m->func[i]->body ? count(m->func[i]->body) : 0;
        xl_json_map(&j);
        xl_json_put_str(&j, "module", m->name);
        xl_json_put_text(&j, "hash", hex);
        xl_json_put_int(&j, "functions", m->nfunc);
        xl_json_put_int(&j, "ops", (int64_t)nop);
        if (!opt.hash)
            xl_json_put_str(&j, "text", xl_buf_view(&text));
        xl_json_end(&j);
    } else if (opt.hash)
        xl_buf_puts(&b, hex);
    else
        xl_buf_str(&b, xl_buf_view(&text));
    err = xl_cli_put(&b);
out:
    xl_buf_fini(&b);
    xl_buf_fini(&text);
    xl_module_free(m);
    return err;
}

XL_VERB(print) = {
    .name = "print",
    .args = "[--hash] [--locations] [--shorten] [--optimise] FILE | RUN",
    .help = "a StableHLO program as canonical text, or its hash",
    .more =
        "FILE is StableHLO text, MLIR bytecode or an HloModuleProto, detected by content (also compressed with "
        "zstd); - is\n"
        "standard input. For a RUN, the program of the step is printed, or the one named by --module. The "
        "program is\n"
        "verified first; an error names the op and its source line. The hash does not depend on names, locations, or "
        "the order\n"
        "of functions and attributes; everything that changes the code changes the hash.",
    .example = "xlane print step.mlir\nxlane print --hash step.bc\nxlane print --dump-after=inline --shorten step.mlir",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = print,
};
