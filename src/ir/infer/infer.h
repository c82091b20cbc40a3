/* src/ir/infer/infer.h
 * The interface between the rules of the `types` column and their engine (explained in infer.c). A rule reads operand
 * types and attributes from its context and fills c->out; it returns an error made with BAD, which names the op and the
 * source line. */
#ifndef XL_IR_INFER_H
#define XL_IR_INFER_H

#include "ir/verify.h"

typedef struct {
    xl_func *f;
    xl_module *m;
    const xl_op *op;
    const xl_type **out;                                   /* in: the op's own types, or NULL; out: the inferred ones */
    uint32_t nout;
    char text[4][160];                                     /* of types in a message */
    unsigned ntext;
} xl_infer_ctx;

typedef xl_error *xl_infer_fn(xl_infer_ctx *c);
#define OP(name, text, nin, nout, nregion, types, ...) xl_infer_fn xl_infer_##types;
#include "ir/ops.def"

xl_error *xl_infer_bad(const xl_infer_ctx *c, const char *fmt, ...) XL_PRINTF(2, 3) XL_MUST_USE;
const char *xl_infer_show(xl_infer_ctx *c, const xl_type *t); /* "2x?xf32" */

#define BAD(...) return xl_infer_bad(c, __VA_ARGS__)
#define NEED(cond, ...) do { if (!(cond)) BAD(__VA_ARGS__); } while (0)
#define RULE(name) xl_error *xl_infer_##name(xl_infer_ctx *c)
#define IN(i) xl_in_type(c->f, c->op, (i))
#define SHOW(t) xl_infer_show(c, (t))

/* Sizes in a program are untrusted: sums and products of them are computed in this type. */
__extension__ typedef __int128 xl_wide;
static inline bool xl_fits(xl_wide v) { return v >= 0 && v <= INT64_MAX; }

static inline bool xl_dim_like(int64_t a, int64_t b) { return a == b || a == XL_DYN || b == XL_DYN; }
bool xl_shape_like(const xl_type *a, const xl_type *b);    /* same rank, dimensions equal or unknown */
bool xl_type_like(const xl_type *a, const xl_type *b);     /* and the same elements, and so within tuples */
/* What is known from either; both must be alike in shape. The element type is a's. */
const xl_type *xl_type_merge(xl_module *m, const xl_type *a, const xl_type *b);
bool xl_promotable(xl_dtype from, xl_dtype to);            /* the same class, no narrower */
xl_error *xl_need_tensors(xl_infer_ctx *c) XL_MUST_USE;    /* operands: tensors with a rank */
xl_error *xl_need_given(xl_infer_ctx *c) XL_MUST_USE;      /* results: types that the op must bring */
xl_error *xl_need_dims(xl_infer_ctx *c, xl_dims d, int64_t rank, bool sorted,
                       const char *what) XL_MUST_USE; /* each in 0..rank-1, once */
/* A region's RETURN; its arguments and results are n scalar tensors. */
xl_error *xl_need_region(xl_infer_ctx *c, uint32_t which, uint32_t nargs, const xl_op **end) XL_MUST_USE;
static inline bool xl_is_scalar(const xl_type *t) { return t->kind == XL_TY_TENSOR && !t->unranked && t->rank == 0; }
static inline bool xl_is_int(xl_dtype d)
{
    return xl_dtype_class(d) == XL_CLASS_INT || xl_dtype_class(d) == XL_CLASS_UINT;
}
/* The shape of a window moving over one dimension; -1 if the numbers make no sense. */
int64_t xl_window_size(int64_t size, int64_t window, int64_t stride, int64_t lo, int64_t hi, int64_t base_dilation,
                       int64_t window_dilation);

#endif
