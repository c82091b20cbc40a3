/* src/ir/compare/diff_state.h
 * Shared by the files behind diff.h: the state of one comparison of two programs, and functions that record and place a
 * difference. One thread. Everything lives in the caller's arena. Calls between the files:
 *     diff_modules.c -> diff_args.c (the arguments), diff_ops.c (the ops) -> diff_note.c (lines, sizes, the list)
 *     diff_ops.c -> diff_flow.c (which arguments a value depends on) */
#ifndef XL_IR_DIFF_STATE_H
#define XL_IR_DIFF_STATE_H

#include "ir/compare/diff.h"

typedef struct { uint64_t *p; uint32_t n; } xl_diff_lines; /* source lines as numbers, sorted, each once */
typedef struct { double before, after; } xl_diff_resize;   /* a size that differs */
typedef enum { XL_DIFF_NUMBER, XL_DIFF_AS_SIZE, XL_DIFF_SIZE } xl_diff_origin; /* of two numbers: a size, or as one */
typedef struct { xl_str file; uint32_t line; } xl_diff_site;
typedef struct { const xl_func *a, *b; } xl_diff_func_pair;
/* How a pair of functions is reached: which argument became which (as xl_diff_args fills it; NULL: by position), the
 * line of the call, and which of the entry function's arguments each argument depends on. */
typedef struct {
    const int32_t *args_to;
    int depth;
    xl_diff_site from_line;
    const uint64_t *reads_a, *reads_b;
} xl_diff_way;
typedef struct { const xl_op *a, *b; } xl_diff_op_pair;
/* Two scalars that a pair of ops reads: indices of arguments, -1 for a constant. */
typedef struct { int32_t a, b; xl_value va, vb; const xl_op *use; } xl_diff_read;

typedef struct {
    xl_arena *arena;
    const xl_module *a, *b;
    xl_diff *list;
    uint32_t n, cap, most;
    uint32_t told;                                         /* differences recorded so far, repeated ones too */
    bool shapes, dtypes;                                   /* those of arguments differ: much else follows */
    bool keys;                                             /* a key is typed in one program, raw in the other */
    bool arguments, numbers;                               /* arrays, PyTorch/XLA's numbers: some came or went */
    bool *went, *came;                                     /* per argument of a's entry function, of b's */
    bool *fixed, *freed;                                   /* of these: it became a constant, it was one before */
    xl_diff_resize *size;                                  /* first those of arguments (nouter), then those inside */
    uint32_t nsize, capsize, nouter;
    xl_diff_lines of_a, of_b;
    xl_diff_read *read;                                    /* PyTorch/XLA's numbers, where ops that pair up read them */
    uint32_t nread, capread;
    xl_diff_func_pair *seen;                               /* functions compared so far */
    uint32_t nseen, capseen;
    xl_diff_op_pair *constant;                             /* constants compared so far */
    uint32_t nconstant, capconstant;
    /* Of two programs by PyTorch/XLA: */
    bool graph;                                            /* both are */
    xl_diff_lines stack_a, stack_b;                        /* lines of all frames, the libraries' too */
    bool *made_a, *made_b;                                 /* per value: it depends on no array argument */
    bool own_stack;                                        /* an op came or went whose stack only one program has */
    bool work;                                             /* an op came or went that does more than change a form */
} xl_differ;

/* ---- diff_note.c ------------------------------------------------------------------------------------------------- */
typedef uint64_t xl_diff_line_fn(const xl_module *m, xl_loc loc); /* xl_diff_line or xl_loc_stack */
uint64_t xl_diff_line(const xl_module *m, xl_loc loc);     /* the source line as a number; 0: not known */
xl_loc xl_diff_caller(const xl_module *m);                 /* where the program was called from */
xl_diff_lines xl_diff_lines_of(xl_arena *arena, const xl_module *m, xl_diff_line_fn *number);
bool xl_diff_on_line(const xl_diff_lines *l, uint64_t line);
bool xl_diff_moved(const xl_differ *d);                    /* sizes or arguments differ: ops may change with them */
void xl_diff_size(xl_differ *d, int64_t before, int64_t after);
void xl_diff_sizes(xl_differ *d, const xl_type *s, const xl_type *t);
xl_diff_origin xl_diff_from_size(const xl_differ *d, double before, double after);
void xl_diff_note(xl_differ *d, xl_diff x);                /* records x; a sentence that is there already is counted */
void xl_diff_place(const xl_module *m, xl_loc loc, xl_diff *x); /* sets x's file and line */
xl_str xl_diff_at(const xl_differ *d, const xl_diff *x);   /* " at FILE:LINE", or nothing */
const xl_op *xl_diff_reader(const xl_region *r, xl_value v, bool ends);
void xl_diff_place_reader(const xl_func *f, const xl_op *op, xl_value v, xl_diff *x);
void xl_diff_place_use(const xl_func *f, xl_value v, xl_diff *x);

/* ---- diff_args.c ------------------------------------------------------------------------------------------------- */
/* Calls fn for each key whose value differs between the dictionaries x and y. */
typedef void xl_diff_key_fn(void *ctx, xl_str key, const xl_attr *before, const xl_attr *after);
void xl_diff_dicts(const xl_differ *d, const xl_attr *x, const xl_attr *y, xl_diff_key_fn *fn, void *ctx);
/* xl_diff_arg_attr records an attribute of argument i of f, or of the result `what`. */
typedef struct { xl_differ *d; const xl_func *f; uint32_t i; const char *what; bool donated; } xl_diff_of_arg;
xl_diff_key_fn xl_diff_arg_attr;
xl_diff_kind xl_diff_attr_kind(xl_str key);
/* JAX marks each typed random key (jax.random.key, not PRNGKey) with a sharding of its own. */
bool xl_diff_key_mark(const xl_func *f, const xl_op *op);
uint32_t xl_diff_nargs(const xl_func *f);
const xl_type *xl_diff_arg_type(const xl_func *f, uint32_t i);
xl_str xl_diff_arg_name(const xl_func *f, uint32_t i);     /* empty: it has none */
bool xl_diff_by_graph(const xl_func *f);                   /* by PyTorch/XLA */
bool xl_diff_of_optimizer(const xl_func *f, uint32_t i);
/* Records what differs; fills to[]: per argument of fa its index in fb, or -1. */
void xl_diff_args(xl_differ *d, const xl_func *fa, const xl_func *fb, int32_t *to);

/* ---- diff_flow.c ------------------------------------------------------------------------------------------------- */
bool xl_diff_changes_form(const xl_op *op);                /* it computes nothing */
/* Per value of f the arguments that it depends on, as bits of xl_diff.reads; args: those of f's own. `met`: also those
 * that it meets in the next op which computes something. */
typedef struct { uint64_t *on, *met; } xl_diff_flow;
xl_diff_flow xl_diff_flow_of(xl_arena *arena, const xl_func *f, const uint64_t *args);

/* ---- diff_ops.c -------------------------------------------------------------------------------------------------- */
void xl_diff_funcs(xl_differ *d, const xl_func *fa, const xl_func *fb, const xl_diff_way *way);
void xl_diff_numbers(xl_differ *d, const xl_func *fa, const xl_func *fb);
bool *xl_diff_made_of_numbers(xl_differ *d, const xl_func *f);

#endif
