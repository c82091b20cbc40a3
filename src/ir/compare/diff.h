/* src/ir/compare/diff.h
 * The differences between two programs, in words, as `explain` and `xlane diff` print them. Programs with the same
 * canonical hash (see hash.h) do not differ: names, locations and the order of functions do not count. */
#ifndef XL_IR_DIFF_H
#define XL_IR_DIFF_H

#include "ir/ir.h"

typedef enum {
    XL_DIFF_SHAPE, XL_DIFF_DTYPE, XL_DIFF_SHARDING, XL_DIFF_CONSTANT, XL_DIFF_OP, XL_DIFF_LAYOUT, XL_DIFF_DONATION,
    XL_DIFF_ARGS,                                          /* arguments added or removed */
    XL_DIFF_ORDER,                                         /* the same arguments in another order */
    XL_DIFF_KEY,                                           /* a random key of another kind */
    XL_DIFF_INDEX,                                         /* where a slice begins, with nothing else */
    XL_DIFF_SETUP,                                         /* one program computes what is an argument of the other */
    XL_DIFF_WEAK,                                          /* for the caller: see lane/weak.h */
    XL_DIFF_IDENTICAL                                      /* nothing differs; never in xl_module_diff's list */
} xl_diff_kind;

typedef struct {
    xl_diff_kind kind;
    int32_t arg, dim; /* argument (of b, or of a where b has none) and dimension, or -1 */
    xl_str name;      /* the argument's name, where it has one ("batch['tokens']") */
    xl_str before, after;                                  /* "128", "160"; "0.1", "0.2"; "stablehlo.add" or empty */
    xl_str file;                                           /* of the op that uses the changed value; may be empty */
    uint32_t line, last;                                   /* last: of the ops that came or went here; 0: none did */
    uint32_t times;                                        /* how often this sentence was found */
    uint32_t ops;                                          /* number of ops added or removed here */
    bool follows;                                          /* a consequence of other sizes or arguments, not a cause */
    bool perhaps;                                          /* or a number that only happens to change as a size does */
    bool recast;                                           /* CONSTANT: of another dtype */
    bool again;   /* ARGS: the other program has some of the same call */
    bool listed;  /* ARGS: it is an element of a list whose length is told (its `part`) */
    bool makes;   /* OP: they make arrays from numbers alone, or are of lines that both programs have */
    bool forms;   /* OP: they only change a form or a dtype */
    bool trains;  /* and draws: the later one draws none, and computes gradients all the same */
    bool draws;   /* OP, for the caller: only one of the programs draws random numbers */
    bool at_call; /* OP: they came or went where the program is called, or their line is not known */
    bool optax;                                            /* of a constant: its reader is of Optax */
    bool own_line;                                         /* of a constant: only b has the line of its reader */
    bool state;                                            /* ARGS: it belongs to an optimizer of PyTorch's */
    bool read_back;                                        /* for the caller: the host read `size` from the device */
    bool grown, carried;                                   /* SHAPE, for the caller: see lane/contract.c */
    bool returned, resulting;                              /* DTYPE, the same */
    bool committed;                                        /* SHARDING: of a program for one device */
    int64_t size;                                          /* SHAPE: the new size; 0: none, or several */
    uint64_t reads; /* of an op: XL_DIFF_ARG of each argument that it depends on, or meets in the next op that computes
                       something */
    xl_str from;                                           /* an argument of PyTorch/XLA's: the line it is from */
    xl_str part; /* what of an op: "stablehlo.slice start_indices"; ARGS: "elements of argument `history`" */
    xl_str text;                                           /* the whole sentence */
} xl_diff;

/* Argument i of b as a bit of `reads`; the last bit is of all from the 64th on. */
#define XL_DIFF_ARG(i) (UINT64_C(1) << ((i) < 63 ? (i) : 63))

/* The differences from a to b, the arguments' first, then in program order, at most `most` of them, in the arena.
 * Consequences of differences already listed (types of later ops, sizes in their attributes) are left out. */
xl_diff *xl_module_diff(xl_arena *arena, const xl_module *a, const xl_module *b, uint32_t most, uint32_t *n);
/* Sets the line that first uses argument `arg` of the entry function. */
void xl_diff_used_at(const xl_module *m, uint32_t arg, xl_diff *x);
/* Of two programs that do not differ: the arguments that are named otherwise, in words; empty where all
 * names stayed. */
xl_str xl_module_renames(xl_arena *arena, const xl_module *a, const xl_module *b);
const char *xl_diff_word(xl_diff_kind kind);               /* "shape", "dtype", ... */
/* The source lines of a program's ops as numbers, sorted, each once; in the arena. The line that called the program is
 * none of them. */
uint64_t *xl_module_lines(xl_arena *arena, const xl_module *m, uint32_t *n);

/* ---- parts ------------------------------------------------------------------------------------------------------ */
/* Short words for a person: "[0, 1]", "LT", "2x3xf32", "0.1". NULL gives "none". */
xl_str xl_say_attr(xl_arena *arena, const xl_attr *a);
xl_str xl_say_type(xl_arena *arena, const xl_type *t);
/* "argument `x`"; of a name that says so itself ("argument 2 of step()") no more. */
xl_str xl_say_argument(xl_arena *arena, xl_str name);
/* Pairs up two sequences of keys: match[i] is the index in b of a's i-th, or -1; increasing. Good for thousands of
 * keys with local changes; where little is alike it gives up early and pairs less. */
void xl_align(xl_arena *tmp, const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb, int32_t *match);

#endif
