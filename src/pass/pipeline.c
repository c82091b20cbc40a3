/* The passes, in order, and their driver. */
#include "pass/pass.h"

#include "ir/verify.h"

enum {
#define PASS(name, where) PASS_##name,
#include "pass/passes.def"
    NPASS
};
enum { ASKED, DEVICE };
static const struct { const char *name; xl_pass_fn *run; bool device; } passes[] = {
#define PASS(name, where) { #name, xl_pass_##name, where == DEVICE },
#include "pass/passes.def"
};
/* simplify twice: folding and sharing open new cases */
#define ORDER(X) X(inline) X(canonical) X(simplify) X(fold) X(cse) X(simplify) X(dce)
#define PLACE(name) PASS_##name,
#define BIT(name) | 1u << PASS_##name
static const uint8_t order[] = { ORDER(PLACE) };
_Static_assert((0 ORDER(BIT)) == (1u << NPASS) - 1, "a row of passes.def has no place in the order");

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
        if (opts->device && !passes[order[i]].device)
            continue;
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
#define PASS(name, where) " " #name
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
