/* The passes, in order, and their driver. */
#include "pass/pass.h"

#include "ir/verify.h"

static const struct { const char *name; xl_pass_fn *run; } passes[] = {
    { "inline", xl_pass_inline },
    { "canonical", xl_pass_canonical },
    { "simplify", xl_pass_simplify },
    { "fold", xl_pass_fold },
    { "cse", xl_pass_cse },
    { "simplify", xl_pass_simplify },                      /* folding and sharing open new cases */
    { "dce", xl_pass_dce },
};
enum { NPASS = sizeof passes / sizeof *passes };

static bool wanted(const char *only, const char *name)
{
    xl_str rest = xl_str_of(only);
    while (rest.n)
        if (xl_str_is(xl_str_trim(xl_str_cut(&rest, ',')), name))
            return true;
    return only == NULL;
}

xl_error *xl_pipeline_run(xl_module *m, const xl_pipeline_opts *opts)
{
    static const xl_pipeline_opts plain;
    xl_error *err = NULL;
    opts = opts ? opts : &plain;
    for (size_t i = 0; i < NPASS; i++) {
        if (!wanted(opts->only, passes[i].name))
            continue;
        XL_TRY(passes[i].run(m, opts), "pass %s", passes[i].name);
        if (opts->verify)
            XL_TRY(xl_verify(m), "after pass %s", passes[i].name);
        if (opts->after)
            opts->after(opts->ctx, passes[i].name, m);
    }
out:
    return err;
}

const char *xl_pipeline_names(void) { return "inline canonical simplify fold cse dce"; }

xl_subst xl_subst_new(xl_func *f)
{
    xl_subst s = { xl_new(&f->m->arena, xl_value, f->nval), f->nval };
    if (f->nval)
        memset(s.to, 0xff, f->nval * sizeof *s.to);
    return s;
}
