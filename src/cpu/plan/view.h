/* src/cpu/plan/view.h
 * Views: a value that need not be materialised. A chain of reshapes, broadcasts, transposes and slices is a set of
 * strides over the memory of the value it starts from. A constant that is one number throughout is one element with
 * strides of 0; an iota is a row of numbers with a stride along its dimension alone. Pure; any thread. */
#ifndef XL_CPU_VIEW_H
#define XL_CPU_VIEW_H

#include "cpu/plan/plan.h"

typedef enum { XL_VIEW_VALUE, XL_VIEW_SPLAT, XL_VIEW_IOTA } xl_view_kind;

typedef struct xl_view {
    xl_view_kind kind;
    xl_value base; /* whose memory is read; the constant's or the iota's own value */
    int64_t offset;                                        /* in elements, like the strides */
    uint32_t rank;
    int64_t dim[XL_RANK_MAX], stride[XL_RANK_MAX];
} xl_view;

/* v as far back as strides can tell. Always succeeds: v itself, row-major, at the least. v is a static tensor of up to
 * XL_RANK_MAX dimensions. */
void xl_view_of(const xl_func *f, xl_value v, xl_view *out);
void xl_view_plain(const xl_func *f, xl_value v, xl_view *out); /* v itself */
/* Row-major without gaps; the offset does not matter. */
bool xl_view_dense(const xl_view *v);
/* Drops dimensions of one element. */
void xl_view_strip(xl_view *v);
/* Whether the op gives a view of its first operand: then it is made only when somebody needs it in memory. */
bool xl_op_is_view(const xl_func *f, const xl_op *op);

#endif
