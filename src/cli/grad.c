/* xlane grad: the gradient of a StableHLO program, as a StableHLO program. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/program.h"
#include "ir/text/print.h"
#include "ir/read.h"
#include "ir/verify.h"
#include "pass/grad.h"
#include "pass/pass.h"

static struct { const char *keep; bool gpu; } opt = { .keep = "carry" };
static const xl_opt opts[] = { { "keep", XL_OPT_STR, &opt.keep, "WHAT",
                                 "what loops keep for the backward pass: carry (least memory) or dots (carry)" },
                               { "gpu", XL_OPT_FLAG, &opt.gpu, NULL,
                                 "write the gradients of lookups as for a GPU, without a scatter that adds" },
                               { 0 } };

static xl_error *run(const xl_cli *cli, int argc, char **argv)
{
    (void)argc;
    xl_error *err = NULL;
    xl_module *m = NULL;
    xl_str text;
    xl_buf out = { 0 };
    xl_grad_opts how = { .gpu = opt.gpu };
    if (!strcmp(opt.keep, "dots"))
        how.keep = XL_KEEP_DOTS;
    else if (strcmp(opt.keep, "carry"))
        return xl_cli_misuse(cli, "--keep=%s: it is carry or dots", opt.keep);
    XL_DO(xl_cli_bytes(cli, argv[0], &text));
    XL_DO(xl_cli_parse(argv[0], text, &m));
    XL_TRY(xl_verify(m), "%s", argv[0]);
    XL_TRY(xl_pass_inline(m, NULL), "%s", argv[0]);
    xl_func *f = xl_module_entry(m);
    if (!f || !f->body) {
        err = XL_ERR(INVALID, "%s has no entry function", argv[0]);
        goto out;
    }
    xl_op *ret = xl_region_end(f->body);
    uint32_t n = 0;
    xl_value *wrt = xl_new(&m->arena, xl_value, f->body->narg), *all = xl_new(&m->arena, xl_value, f->body->narg + 1);
    for (uint32_t i = 0; i < f->body->narg; i++)
        if (xl_dtype_class(xl_value_type(f, f->body->arg[i])->dtype) == XL_CLASS_FLOAT)
            wrt[n++] = f->body->arg[i];
    if (!ret->nin) {
        err = XL_ERR(INVALID, "%s returns nothing to differentiate", argv[0]);
        goto out;
    }
    all[0] = ret->in[0];
    XL_TRY(xl_grad(f, ret->in[0], wrt, n, &how, all + 1), "%s", argv[0]);
    ret->in = all;
    ret->nin = n + 1;
    f->res_attr = NULL;
    xl_func_set_type(f);
    f->res_attr = xl_new(&m->arena, const xl_attr *, n + 1);
    xl_grad_strip(f);
    XL_DO(xl_pass_dce(m, NULL));
    XL_TRY(xl_verify(m), "the gradient of %s", argv[0]);
    xl_print_module(m, NULL, &out);
    err = xl_cli_put(&out);
out:
    xl_module_free(m);
    return err;
}

XL_VERB(grad) = {
    .name = "grad",
    .args = "[--keep=WHAT] [--gpu] FILE",
    .help = "print the gradient of a StableHLO program",
    .more =
        "The program's first result must be a float scalar. Calls are inlined first.\n"
        "The printed program returns that result, followed by its derivative with respect to every float argument.",
    .example = "xlane grad loss.mlir >loss_and_grad.mlir",
    .opts = opts,
    .min = 1,
    .max = 1,
    .run = run,
    .no_json = "what it prints is a program; `xlane print --json FILE` describes one",
};
