/* src/cpu/kernel/fold.h
 * Applies a region of scalars to many elements: acc[i] = region(acc[i], x[i]). A region of one op is that op's
 * elementwise function; any other is a vector block. */
#ifndef XL_CPU_KERNEL_FOLD_H
#define XL_CPU_KERNEL_FOLD_H

#include "cpu/kernel/ew.h"
#include "cpu/plan/planner.h"

/* *acc = *acc op (x[0] op ... x[n - 1]): blocks in pairs, sixteen partial results in each. NULL if there is no such
 * loop. */
typedef void xl_line_fn(void *acc, const void *x, size_t n);
xl_line_fn *xl_fold_line(xl_dtype d, xl_opcode code);
/* The same for rows of n elements one after another, n less than 32: acc[r] with those of row r. Several rows are
 * folded side by side, since each is a chain of ops that wait for each other. NULL: fold one after another. */
typedef void xl_rows_fn(void *acc, const void *x, size_t rows, size_t n);
xl_rows_fn *xl_fold_rows(xl_dtype d, xl_opcode code);
/* y[place[i]] = y[place[i]] op x[i * step], one after another; a negative place takes none. at32: places from 0 to most
 * count, and step is 1. rows: n elements each, from y + place[b] and x + b * step on. All NULL if there are no such
 * loops. */
typedef struct {
    void (*at)(void *y, const void *x, const int64_t *place, size_t n, int64_t step);
    void (*at32)(void *y, const void *x, const int32_t *place, size_t n, int64_t most);
    void (*rows)(void *y, const void *x, const int64_t *place, size_t rows, size_t step, size_t n);
} xl_put;
xl_put xl_fold_put(xl_dtype d, xl_opcode code);
/* The value that such an op leaves the other operand unchanged with; up to 8 bytes. */
void xl_fold_identity(xl_dtype d, xl_opcode code, void *out);

/* Folds arrays of n elements one after another, in levels: XL_CASCADE of them make one of the next level, so that
 * the rounding error of a sum grows with the logarithm of their number. Level l is at level + l * stride bytes; row
 * i (from 0) must follow row i - 1. xl_cascade_end returns the result of `rows` rows (at least one), which is in one
 * of the levels. */
enum { XL_FOLD_BLOCK = 512, XL_CASCADE = 16, XL_CASCADE_LEVELS = 4 };
void xl_cascade_row(const xl_ew *ew, size_t elem, char *level, size_t stride, size_t i, const void *x, size_t n);
char *xl_cascade_end(const xl_ew *ew, char *level, size_t stride, size_t rows, size_t n);
/* What each instruction set's file of such loops offers; all give the same bits. */
typedef struct {
    uint32_t needs;
    xl_line_fn *(*find)(xl_dtype d, xl_opcode code);
    xl_rows_fn *(*rows)(xl_dtype d, xl_opcode code);
    xl_put (*put)(xl_dtype d, xl_opcode code);
} xl_fold_set;

typedef struct {
    uint32_t n;                                            /* values per element: operands of a variadic reduction */
    xl_ew ew;                                              /* of the one op, when n is 1; else NULL */
    xl_opcode single;
    bool ordered;                                          /* the one op is not associative: fold one after another */
    xl_block *block;
    size_t elem[16];
} xl_fold;

/* For region r of op, which takes 2n values and gives n. */
xl_error *xl_fold_plan(xl_planner *p, const xl_op *op, uint32_t r, uint32_t n, xl_fold *out) XL_MUST_USE;
/* m elements (any number). acc is read and written; x is not changed. */
xl_error *xl_fold_run(const xl_fold *f, xl_frame *fr, void *const *acc, const void *const *x, size_t m) XL_MUST_USE;
/* Runs a block of narg values over m elements: in[] and out[] are arrays of m. */
xl_error *xl_block_apply(const xl_block *b, xl_frame *fr, const void *const *in, void *const *out,
                         size_t m) XL_MUST_USE;

#endif
