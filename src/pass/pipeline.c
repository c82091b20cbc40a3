/* The passes, in order, and their driver. */
#include "pass/pass.h"

#include "ir/verify.h"

enum {
#define PASS(name) PASS_##name,
#include "pass/passes.def"
    NPASS
};
static const struct { const char *name; xl_pass_fn *run; } passes[] = {
#define PASS(name) { #name, xl_pass_##name },
#include "pass/passes.def"
};
static const uint8_t order[] = { PASS_inline, PASS_canonical, PASS_simplify, PASS_fold, PASS_cse,
                                 PASS_simplify /* folding and sharing open new cases */, PASS_dce };
/* Every pass has a place in the order: as many different ones as there are rows, one of them twice. */
_Static_assert(sizeof order == NPASS + 1, "a row of passes.def has no place in the order");

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
    for (size_t i = 0; i < sizeof order; i++) {
        const char *name = passes[order[i]].name;
        if (!wanted(opts->only, name))
            continue;
        XL_TRY(passes[order[i]].run(m, opts), "pass %s", name);
        if (opts->verify)
            XL_TRY(xl_verify(m), "after pass %s", name);
        if (opts->after)
            opts->after(opts->ctx, name, m);
    }
out:
    return err;
}

const char *xl_pipeline_names(void)
{
#define PASS(name) " " #name
    static const char names[] =
#include "pass/passes.def"
        ;
    return names + 1;
}

xl_subst xl_subst_new(xl_func *f)
{
    xl_subst s = { xl_new(&f->m->arena, xl_value, f->nval), f->nval };
    if (f->nval)
        memset(s.to, 0xff, f->nval * sizeof *s.to);
    return s;
}
