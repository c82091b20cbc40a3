/* src/pass/pass.h
 * Transformations of a program. The result of a pass verifies and computes the same numbers, bit for bit: no pass
 * reassociates or assumes the absence of NaN. Ops keep their locations. A pass is a file, a row in passes.def and a
 * place in the order of pipeline.c. Memory is the module's (arena.h says what happens when it runs out); one thread at
 * a time. */
#ifndef XL_PASS_PASS_H
#define XL_PASS_PASS_H

#include "ir/build.h"

typedef struct {
    /* Composites for which this returns true are kept, for a backend that has the op; NULL: none. */
    bool (*keep_composite)(const xl_op *op);
    bool (*keep_call)(const xl_op *op);                    /* calls that stay, likewise */
    bool device;                                           /* those that the embedded device runs on each program */
    const char *only;                                      /* comma-separated names of passes to run; NULL: all */
    bool verify;                                           /* after each pass: for tests */
    void (*after)(void *ctx, const char *pass, const xl_module *m); /* NULL: none; for --dump-after */
    void *ctx;
} xl_pipeline_opts;

/* All passes in order. opts may be NULL. */
xl_error *xl_pipeline_run(xl_module *m, const xl_pipeline_opts *opts) XL_MUST_USE;
const char *xl_pipeline_names(void);                       /* "inline canonical ...", for messages */

typedef xl_error *xl_pass_fn(xl_module *m, const xl_pipeline_opts *opts);
#define PASS(name, where) xl_pass_fn xl_pass_##name;
#include "pass/passes.def"

/* ---- shared by passes -------------------------------------------------------------------------------------------- */
/* Whether dropping the op changes anything but its results: effects, collectives, calls and regions that have such. */
bool xl_op_has_effect(const xl_module *m, const xl_op *op);
/* Values are renumbered in the order of definition, and what no op defines any more is forgotten. */
void xl_func_compact(xl_func *f);

/* Replacing values: note the replacements with xl_subst_set while walking in program order, and read operands through
 * it. */
typedef struct { xl_value *to; uint32_t n; } xl_subst;
xl_subst xl_subst_new(xl_func *f);                         /* for the values that f has now */
static inline xl_value xl_subst_get(const xl_subst *s, xl_value v)
{
    return v.id < s->n && s->to[v.id].id != UINT32_MAX ? s->to[v.id] : v;
}
static inline void xl_subst_set(xl_subst *s, xl_value from, xl_value to) { s->to[from.id] = to; }
static inline void xl_subst_op(const xl_subst *s, xl_op *op)
{
    for (uint32_t i = 0; i < op->nin; i++)
        op->in[i] = xl_subst_get(s, op->in[i]);
}

/* Rewriting op by op. `fn` sees each op in program order, after its operands were replaced and its regions
 * rewritten; it may append ops with b (positioned before the op) and either keeps the op (returns false), or sets a
 * value for each of its results with xl_subst_set and has it removed (returns true). An error of the builder ends
 * the traversal. */
typedef bool xl_rewrite_fn(xl_b *b, xl_subst *s, xl_op *op);
xl_error *xl_rewrite(xl_module *m, xl_rewrite_fn *fn) XL_MUST_USE;

/* The number of iterations of a while loop, if the program shows it: a counter with a constant limit. */
bool xl_while_turns(const xl_func *f, const xl_op *op, int64_t *turns);
/* The constant that v is, or NULL; and whether it is one number throughout. */
const xl_attr *xl_value_const(const xl_func *f, xl_value v);
static inline bool xl_attr_is_splat(const xl_attr *a)
{
    return a && a->data.n == xl_dtype_bytes(a->dtype) && a->data.n > 0;
}

#endif
