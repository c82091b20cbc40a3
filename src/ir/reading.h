/* src/ir/reading.h
 * What the readers of binary formats share: the bound on the memory that they take, and the end. */
#ifndef XL_IR_READING_H
#define XL_IR_READING_H

#include <setjmp.h>

#include "ir/read.h"

size_t xl_reading_limit(xl_str bytes, const xl_read_opts *opts);
/* The module and scratch memory, which jump to *fail when they reach the limit. NULL: no memory. */
xl_module *xl_reading_begin(size_t limit, xl_arena *scratch, jmp_buf *fail);
/* *out is the module without its bound if it is `done`. Otherwise it is freed, and what is returned says why: `err`, or
 * without one that memory ran out. */
xl_error *xl_reading_end(const char *format, xl_module *m, bool done, size_t limit, size_t bytes, xl_error *err,
                         xl_module **out) XL_MUST_USE;

#endif
