/* src/lane/cut.h
 * Extracts parts of a program as separate programs. The entry function's calls are inlined; the result is text that any
 * plugin accepts. The module does not change, except that its arena grows. One thread. */
#ifndef XL_LANE_CUT_H
#define XL_LANE_CUT_H

#include "ir/ir.h"

typedef enum { XL_CUT_VALUE, XL_CUT_HAS_NAN, XL_CUT_NOT_FINITE } xl_cut_kind;
/* The program that takes what f takes and gives the values v (of f's body), or for each float of them one i1: does it
 * have a NaN, is it not finite. With `results` what f gives comes first. */
xl_error *xl_cut(xl_func *f, const xl_value *v, size_t n, xl_cut_kind kind, bool results, xl_buf *text) XL_MUST_USE;

/* The program of the ops that `keep` has (one flag per op of region r, in order): what they use and no kept op makes is
 * an argument, what they make and no kept op uses is a result. in: the values that its arguments stand for, nin of
 * them, the arena's. */
xl_error *xl_pick(xl_arena *a, xl_func *f, const xl_region *r, const bool *keep, xl_value **in, uint32_t *nin,
                  uint32_t *nout, xl_buf *text) XL_MUST_USE;
uint32_t xl_cut_count(const xl_region *r);                 /* ops in it, regions included, without returns */

#endif
