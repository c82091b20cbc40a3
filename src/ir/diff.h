/* src/ir/diff.h
 * What differs between two programs, in words: the form of `explain` and of `xlane diff`. */
#ifndef XL_IR_DIFF_H
#define XL_IR_DIFF_H

#include "ir/ir.h"

typedef enum {
    XL_DIFF_SHAPE, XL_DIFF_DTYPE, XL_DIFF_SHARDING, XL_DIFF_CONSTANT, XL_DIFF_OP, XL_DIFF_LAYOUT, XL_DIFF_DONATION,
    XL_DIFF_ARGS                                           /* arguments added, removed or reordered */
} xl_diff_kind;

typedef struct {
    xl_diff_kind kind;
    int32_t arg, dim;                                      /* argument and dimension, or -1 */
    xl_str name;                                           /* the argument's name, where it has one ("batch['tokens']") */
    xl_str before, after;                                  /* "128", "160"; "dense<1.0>"; "stablehlo.add" */
    xl_str file;                                           /* of the op that uses the changed value; may be empty */
    uint32_t line;
    xl_str text;                                           /* the whole sentence */
} xl_diff;

/* The differences from a to b, the first in program order first, at most `most` of them, in the arena. */
xl_diff *xl_module_diff(xl_arena *arena, const xl_module *a, const xl_module *b, uint32_t most, uint32_t *n);
const char *xl_diff_word(xl_diff_kind kind);               /* "shape", "dtype", ... */

#endif
