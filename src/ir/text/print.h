/* src/ir/text/print.h
 * The canonical text, which MLIR's own parser accepts. Values are numbered, defaults omitted, dictionaries sorted. */
#ifndef XL_IR_PRINT_H
#define XL_IR_PRINT_H

#include "ir/ir.h"

typedef struct {
    bool locations;                                        /* print loc(...) on ops and arguments */
    bool no_callers;                                       /* each op's own place, not where that was called */
    bool shorten; /* elide constants of more than 16 elements: for people, not for parsers */
} xl_print_opts;

void xl_print_module(const xl_module *m, const xl_print_opts *opts, xl_buf *out);   /* opts may be NULL */
void xl_print_type(const xl_type *t, xl_buf *out);
void xl_print_attr(const xl_attr *a, xl_buf *out);
/* The same as a NUL-terminated string in an arena, for "%s". */
const char *xl_type_str(xl_arena *a, const xl_type *t);

#endif
