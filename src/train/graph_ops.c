/* The ops of the public header that compute: elementwise ones with broadcasting, products, and parts of networks. */
#include <math.h>

#include "pass/grad.h"
#include "train/graph.h"

static bool is_float(xl_dtype d) { return xl_dtype_class(d) == XL_CLASS_FLOAT; }

/* Brings both to one type: the shape that numpy would give, and of two float types the wider. */
static bool align(xl_graph *g, const char *what, xl_tensor *a, xl_tensor *b)
{
    if (!xl_graph_ok(g, what, (xl_tensor[]){ *a, *b }, 2))
        return false;
    const xl_type *ta = xl_graph_type(g, *a), *tb = xl_graph_type(g, *b);
    if (ta == tb)
        return true;
    if (ta->dtype != tb->dtype) {
        if (!is_float(ta->dtype) || !is_float(tb->dtype)) {
            xl_graph_fail(g, "%s: %s and %s; cast one with xl_cast", what, xl_shape(g, *a), xl_shape(g, *b));
            return false;
        }
        uint8_t x = xl_dtypes[ta->dtype].bits, y = xl_dtypes[tb->dtype].bits;
        xl_dtype wide = x > y ? ta->dtype : x < y ? tb->dtype : XL_F32;
        *a = xl_cast_to(g, *a, wide);
        *b = xl_cast_to(g, *b, wide);
    }
    int64_t d[XL_DIMS_MAX];
    uint32_t n = ta->rank > tb->rank ? ta->rank : tb->rank;
    for (uint32_t i = 0; i < n; i++) {
        int64_t x = i + ta->rank >= n ? ta->dims[i + ta->rank - n] : 1,
                y = i + tb->rank >= n ? tb->dims[i + tb->rank - n] : 1;
        if (x != y && x != 1 && y != 1) {
            xl_graph_fail(g, "%s: %s and %s do not match in dimension %d", what, xl_shape(g, *a), xl_shape(g, *b),
                          (int)i - (int)n);
            return false;
        }
        d[i] = x == 1 ? y : x;
    }
    *a = xl_broadcast_dims(g, *a, (xl_dims){ d, n });
    *b = xl_broadcast_dims(g, *b, (xl_dims){ d, n });
    return !g->err;
}

static xl_tensor binary(xl_graph *g, const char *what, xl_opcode code, xl_tensor a, xl_tensor b)
{
    return align(g, what, &a, &b) ? xl_tensor_of(xl_em_binary(&g->e, code, xl_val_of(a), xl_val_of(b))) : XL_NO_TENSOR;
}

xl_tensor xl_add(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "add", XL_OP_ADD, a, b); }
xl_tensor xl_sub(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "sub", XL_OP_SUBTRACT, a, b); }
xl_tensor xl_mul(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "mul", XL_OP_MULTIPLY, a, b); }
xl_tensor xl_div(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "div", XL_OP_DIVIDE, a, b); }
xl_tensor xl_pow(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "pow", XL_OP_POWER, a, b); }
xl_tensor xl_maximum(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "maximum", XL_OP_MAXIMUM, a, b); }
xl_tensor xl_minimum(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "minimum", XL_OP_MINIMUM, a, b); }
xl_tensor xl_and(xl_graph *g, xl_tensor a, xl_tensor b) { return binary(g, "and", XL_OP_AND, a, b); }

static xl_tensor with_number(xl_graph *g, const char *what, xl_opcode code, xl_tensor a, double by)
{
    if (!xl_graph_ok(g, what, &a, 1))
        return XL_NO_TENSOR;
    return xl_tensor_of(xl_em_binary(&g->e, code, xl_val_of(a), xl_em_like(&g->e, xl_val_of(a), by)));
}

xl_tensor xl_scale(xl_graph *g, xl_tensor a, double by) { return with_number(g, "scale", XL_OP_MULTIPLY, a, by); }
xl_tensor xl_offset(xl_graph *g, xl_tensor a, double by) { return with_number(g, "offset", XL_OP_ADD, a, by); }

static xl_tensor unary(xl_graph *g, const char *what, xl_opcode code, xl_tensor a, bool any_number)
{
    if (!xl_graph_ok(g, what, &a, 1))
        return XL_NO_TENSOR;
    if (!any_number && !is_float(xl_graph_type(g, a)->dtype))
        return xl_graph_fail(g, "%s: %s is not of a float type; cast it with xl_cast", what, xl_shape(g, a));
    return xl_tensor_of(xl_em_unary(&g->e, code, xl_val_of(a)));
}

xl_tensor xl_neg(xl_graph *g, xl_tensor a) { return unary(g, "neg", XL_OP_NEGATE, a, true); }
xl_tensor xl_abs(xl_graph *g, xl_tensor a) { return unary(g, "abs", XL_OP_ABS, a, true); }
xl_tensor xl_exp(xl_graph *g, xl_tensor a) { return unary(g, "exp", XL_OP_EXPONENTIAL, a, false); }
xl_tensor xl_ln(xl_graph *g, xl_tensor a) { return unary(g, "ln", XL_OP_LOG, a, false); }
xl_tensor xl_sin(xl_graph *g, xl_tensor a) { return unary(g, "sin", XL_OP_SINE, a, false); }
xl_tensor xl_cos(xl_graph *g, xl_tensor a) { return unary(g, "cos", XL_OP_COSINE, a, false); }
xl_tensor xl_tanh(xl_graph *g, xl_tensor a) { return unary(g, "tanh", XL_OP_TANH, a, false); }
xl_tensor xl_sqrt(xl_graph *g, xl_tensor a) { return unary(g, "sqrt", XL_OP_SQRT, a, false); }
xl_tensor xl_rsqrt(xl_graph *g, xl_tensor a) { return unary(g, "rsqrt", XL_OP_RSQRT, a, false); }
xl_tensor xl_sigmoid(xl_graph *g, xl_tensor a) { return unary(g, "sigmoid", XL_OP_LOGISTIC, a, false); }
xl_tensor xl_square(xl_graph *g, xl_tensor a) { return binary(g, "square", XL_OP_MULTIPLY, a, a); }
xl_tensor xl_relu(xl_graph *g, xl_tensor a) { return with_number(g, "relu", XL_OP_MAXIMUM, a, 0); }
xl_tensor xl_silu(xl_graph *g, xl_tensor a) { return xl_mul(g, a, xl_sigmoid(g, a)); }

xl_tensor xl_gelu(xl_graph *g, xl_tensor a)
{
    xl_tensor cube = xl_mul(g, a, xl_square(g, a)),
              in = xl_scale(g, xl_add(g, a, xl_scale(g, cube, 0.044715)), sqrt(2 / M_PI));
    return xl_mul(g, xl_scale(g, a, 0.5), xl_offset(g, xl_tanh(g, in), 1));
}

/* max(a, 0) + log(1 + exp(-|a|)): never overflows */
xl_tensor xl_softplus(xl_graph *g, xl_tensor a)
{
    xl_tensor e = xl_exp(g, xl_neg(g, xl_abs(g, a)));
    return xl_add(g, xl_relu(g, a), unary(g, "softplus", XL_OP_LOG_PLUS_ONE, e, false));
}

xl_tensor xl_compare(xl_graph *g, xl_tensor a, const char *op, xl_tensor b)
{
    static const struct { const char *text; int dir;
    } ops[] = { { "<", XL_COMPARISON_DIRECTION_LT },  { "<=", XL_COMPARISON_DIRECTION_LE },
                { ">", XL_COMPARISON_DIRECTION_GT },  { ">=", XL_COMPARISON_DIRECTION_GE },
                { "==", XL_COMPARISON_DIRECTION_EQ }, { "!=", XL_COMPARISON_DIRECTION_NE } };
    if (!align(g, "compare", &a, &b))
        return XL_NO_TENSOR;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (op && !strcmp(op, ops[i].text))
            return xl_tensor_of(xl_em_compare(&g->e, ops[i].dir, xl_val_of(a), xl_val_of(b)));
    return xl_graph_fail(g, "compare: \"%s\" is none of <, <=, >, >=, ==, !=", op ? op : "");
}

xl_tensor xl_where(xl_graph *g, xl_tensor cond, xl_tensor yes, xl_tensor no)
{
    if (!xl_graph_ok(g, "where", &cond, 1) || !align(g, "where", &yes, &no))
        return XL_NO_TENSOR;
    if (xl_graph_type(g, cond)->dtype != XL_I1)
        return xl_graph_fail(g, "where: the condition is %s; make one with xl_compare", xl_shape(g, cond));
    const xl_type *tc = xl_graph_type(g, cond), *ty = xl_graph_type(g, yes);
    int64_t d[XL_DIMS_MAX];
    uint32_t n = tc->rank > ty->rank ? tc->rank : ty->rank;
    for (uint32_t i = 0; i < n; i++) {
        int64_t c = i + tc->rank >= n ? tc->dims[i + tc->rank - n] : 1,
                y = i + ty->rank >= n ? ty->dims[i + ty->rank - n] : 1;
        d[i] = y == 1 ? c : y;
    }
    xl_dims dims = { d, n };
    yes = xl_broadcast_dims(g, yes, dims);
    no = xl_broadcast_dims(g, no, dims);
    cond = xl_broadcast_dims(g, cond, dims);
    return g->err ? XL_NO_TENSOR : xl_tensor_of(xl_em_select(&g->e, xl_val_of(cond), xl_val_of(yes), xl_val_of(no)));
}

xl_tensor xl_cast_to(xl_graph *g, xl_tensor a, xl_dtype d)
{
    return xl_graph_ok(g, "cast", &a, 1) ? xl_tensor_of(xl_em_convert(&g->e, xl_val_of(a), d)) : XL_NO_TENSOR;
}

xl_tensor xl_cast(xl_graph *g, xl_tensor a, const char *dtype)
{
    xl_dtype d = xl_dtype_find(xl_str_of(dtype));
    return d == XL_DT_NONE ? xl_graph_fail(g, "cast: \"%s\" is no element type", dtype ? dtype : "")
                           : xl_cast_to(g, a, d);
}

xl_tensor xl_stop_gradient(xl_graph *g, xl_tensor a)
{
    if (!xl_graph_ok(g, "stop_gradient", &a, 1))
        return XL_NO_TENSOR;
    xl_value v = xl_val_of(a);
    xl_op *op = xl_em_op(&g->e, XL_OP_OPTIMIZATION_BARRIER, &v, 1, xl_graph_type(g, a));
    op->extra = xl_dict_with(g->m, NULL, XL_STR(XL_GRAD_STOP), xl_attr_unit(g->m));
    return xl_tensor_of(op->out[0]);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */
xl_tensor xl_dot_dims(xl_graph *g, xl_tensor a, xl_tensor b, xl_dims abatch, xl_dims bbatch, xl_dims ac, xl_dims bc,
                      xl_dtype out)
{
    if (!xl_graph_ok(g, "dot", (xl_tensor[]){ a, b }, 2))
        return XL_NO_TENSOR;
    const xl_type *ta = xl_graph_type(g, a), *tb = xl_graph_type(g, b);
    for (size_t i = 0; i < abatch.n + ac.n; i++) {
        int64_t x = i < abatch.n ? ta->dims[abatch.p[i]] : ta->dims[ac.p[i - abatch.n]];
        int64_t y = i < abatch.n ? tb->dims[bbatch.p[i]] : tb->dims[bc.p[i - abatch.n]];
        if (x != y)
            return xl_graph_fail(g, "dot: %s and %s: %lld against %lld", xl_shape(g, a), xl_shape(g, b), (long long)x,
                                 (long long)y);
    }
    return xl_tensor_of(xl_em_dot(&g->e, xl_val_of(a), xl_val_of(b), abatch, bbatch, ac, bc, out));
}

xl_tensor xl_matmul(xl_graph *g, xl_tensor a, xl_tensor b)
{
    if (!xl_graph_ok(g, "matmul", (xl_tensor[]){ a, b }, 2))
        return XL_NO_TENSOR;
    const xl_type *ta = xl_graph_type(g, a), *tb = xl_graph_type(g, b);
    bool batched = tb->rank > 2;
    if (ta->rank < 2 || tb->rank < 2 || (batched && ta->rank != tb->rank))
        return xl_graph_fail(g, "matmul: %s and %s; it takes a[..., m, k] b[k, n], or equal leading dimensions",
                             xl_shape(g, a), xl_shape(g, b));
    if (ta->dtype != tb->dtype) {
        if (!is_float(ta->dtype) || !is_float(tb->dtype))
            return xl_graph_fail(g, "matmul: %s and %s; cast one with xl_cast", xl_shape(g, a), xl_shape(g, b));
        a = xl_cast_to(g, a, tb->dtype);                     /* the weight's type is the compute type */
        ta = xl_graph_type(g, a);
    }
    int64_t batch[XL_DIMS_MAX], ac = (int64_t)ta->rank - 1, bc = batched ? (int64_t)tb->rank - 2 : 0;
    uint32_t nb = batched ? tb->rank - 2 : 0;
    for (uint32_t i = 0; i < nb; i++)
        batch[i] = i;
    xl_dims bd = { batch, nb };
    bool fits = ta->dims[ac] == tb->dims[bc];
    for (uint32_t i = 0; i < nb; i++)
        fits &= ta->dims[i] == tb->dims[i];
    if (!fits)
        return xl_graph_fail(g,
                             "matmul: %s and %s do not fit: the last dimension of the first must be the last but one "
                             "of the second, and the leading "
                             "ones equal",
                             xl_shape(g, a), xl_shape(g, b));
    return xl_dot_dims(g, a, b, bd, bd, (xl_dims){ &ac, 1 }, (xl_dims){ &bc, 1 }, ta->dtype);
}

xl_tensor xl_gather_rows(xl_graph *g, xl_tensor table, xl_tensor ids)
{
    if (!xl_graph_ok(g, "lookup", (xl_tensor[]){ table, ids }, 2))
        return XL_NO_TENSOR;
    const xl_type *tt = xl_graph_type(g, table), *ti = xl_graph_type(g, ids);
    xl_dclass c = xl_dtype_class(ti->dtype);
    if (tt->rank < 1 || (c != XL_CLASS_INT && c != XL_CLASS_UINT) || ti->rank + tt->rank > XL_DIMS_MAX)
        return xl_graph_fail(g, "lookup: %s by %s; it takes a table and integers", xl_shape(g, table),
                             xl_shape(g, ids));
    int64_t out[XL_DIMS_MAX], off[XL_DIMS_MAX], sizes[XL_DIMS_MAX], one[XL_DIMS_MAX], zero = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ti->rank; i++)
        one[i] = out[n++] = ti->dims[i];
    one[ti->rank] = 1;
    for (uint32_t i = 1; i < tt->rank; i++) {
        off[i - 1] = n;
        out[n++] = sizes[i] = tt->dims[i];
    }
    sizes[0] = 1;
    xl_tensor idx = xl_reshape_dims(g, ids, (xl_dims){ one, ti->rank + 1 });
    xl_op *op = xl_em_op(&g->e, XL_OP_GATHER, (xl_value[]){ xl_val_of(table), xl_val_of(idx) }, 2,
                         xl_type_tensor(g->m, tt->dtype, (xl_dims){ out, n }));
    xl_op_set(op, XL_SLOT(GATHER, offset_dims), xl_attr_dims(g->m, (xl_dims){ off, tt->rank - 1 }));
    xl_op_set(op, XL_SLOT(GATHER, collapsed_slice_dims), xl_attr_dims(g->m, (xl_dims){ &zero, 1 }));
    xl_op_set(op, XL_SLOT(GATHER, start_index_map), xl_attr_dims(g->m, (xl_dims){ &zero, 1 }));
    xl_op_set(op, XL_SLOT(GATHER, index_vector_dim), xl_attr_i64(g->m, ti->rank));
    xl_op_set(op, XL_SLOT(GATHER, slice_sizes), xl_attr_dims(g->m, (xl_dims){ sizes, tt->rank }));
    xl_op_normalize(g->m, op);
    return xl_tensor_of(op->out[0]);
}

xl_tensor xl_lookup(xl_graph *g, xl_tensor table, xl_tensor ids)
{
    if (xl_graph_ok(g, "lookup", &table, 1) && xl_graph_type(g, table)->rank != 2)
        return xl_graph_fail(g, "lookup: the table is %s; it takes one of two dimensions", xl_shape(g, table));
    return xl_gather_rows(g, table, ids);
}

/* ---- parts of networks ------------------------------------------------------------------------------------------- */
xl_tensor xl_softmax(xl_graph *g, xl_tensor a)
{
    xl_tensor x = xl_cast_to(g, a, XL_F32), top = xl_stop_gradient(g, xl_max(g, x, "[-1]"));
    xl_tensor e = xl_exp(g, xl_sub(g, x, xl_keep(g, top, x, "[-1]")));
    return xl_div(g, e, xl_keep(g, xl_sum(g, e, "[-1]"), e, "[-1]"));
}

xl_tensor xl_rmsnorm(xl_graph *g, xl_tensor x, xl_tensor gain)
{
    if (!xl_graph_ok(g, "rmsnorm", (xl_tensor[]){ x, gain }, 2))
        return XL_NO_TENSOR;
    xl_dtype d = xl_graph_type(g, x)->dtype;
    xl_tensor f = xl_cast_to(g, x, XL_F32), ms = xl_mean(g, xl_square(g, f), "[-1]");
    xl_tensor r = xl_rsqrt(g, xl_offset(g, ms, XL_RMSNORM_EPS));
    return xl_cast_to(g, xl_mul(g, xl_mul(g, f, xl_keep(g, r, f, "[-1]")), xl_cast_to(g, gain, XL_F32)), d);
}

xl_tensor xl_layernorm(xl_graph *g, xl_tensor x, xl_tensor gain, xl_tensor bias)
{
    if (!xl_graph_ok(g, "layernorm", (xl_tensor[]){ x, gain, bias }, 3))
        return XL_NO_TENSOR;
    xl_dtype d = xl_graph_type(g, x)->dtype;
    xl_tensor f = xl_cast_to(g, x, XL_F32), c = xl_sub(g, f, xl_keep(g, xl_mean(g, f, "[-1]"), f, "[-1]"));
    xl_tensor r = xl_rsqrt(g, xl_offset(g, xl_mean(g, xl_square(g, c), "[-1]"), 1e-5));
    xl_tensor y = xl_mul(g, xl_mul(g, c, xl_keep(g, r, c, "[-1]")), xl_cast_to(g, gain, XL_F32));
    return xl_cast_to(g, xl_add(g, y, xl_cast_to(g, bias, XL_F32)), d);
}

/* The label's logit is picked by comparing positions, not by a gather: its gradient is then elementwise too. */
xl_tensor xl_cross_entropy(xl_graph *g, xl_tensor logits, xl_tensor labels)
{
    if (!xl_graph_ok(g, "cross_entropy", (xl_tensor[]){ logits, labels }, 2))
        return XL_NO_TENSOR;
    const xl_type *tl = xl_graph_type(g, logits), *ti = xl_graph_type(g, labels);
    bool fits = tl->rank == ti->rank + 1 && xl_dtype_class(ti->dtype) == XL_CLASS_INT;
    for (uint32_t i = 0; fits && i < ti->rank; i++)
        fits = tl->dims[i] == ti->dims[i];
    if (!fits)
        return xl_graph_fail(g, "cross_entropy: logits %s and labels %s; it takes logits[..., n] and integers[...]",
                             xl_shape(g, logits), xl_shape(g, labels));
    xl_tensor x = xl_cast_to(g, logits, XL_F32), top = xl_stop_gradient(g, xl_max(g, x, "[-1]"));
    xl_tensor c = xl_sub(g, x, xl_keep(g, top, x, "[-1]"));
    xl_tensor lse = xl_ln(g, xl_sum(g, xl_exp(g, c), "[-1]"));
    int64_t at[XL_DIMS_MAX], one[XL_DIMS_MAX], last = ti->rank;
    for (uint32_t i = 0; i < ti->rank; i++) {
        at[i] = i;
        one[i] = 1;
    }
    if (g->gpu) {                        /* a pass over the logits less */
        one[last] = 1;
        xl_dims lead = { at, ti->rank }, end = { &last, 1 };
        int64_t dims[XL_DIMS_MAX];
        memcpy(dims, ti->dims, ti->rank * sizeof *dims);
        dims[last] = 1;
        xl_value idx = xl_em_reshape(&g->e, xl_val_of(labels), (xl_dims){ dims, tl->rank });
        xl_b_gather_dims d = { .collapsed = end,
                               .operand_batch = lead,
                               .index_batch = lead,
                               .map = end,
                               .sizes = { one, tl->rank },
                               .vector_dim = last };
        return xl_sub(g, lse, xl_tensor_of(xl_b_gather(&g->e, xl_val_of(c), idx, &d)));
    }
    xl_value pos = xl_em_iota(&g->e, xl_type_with_dtype(g->m, tl, ti->dtype), (int64_t)tl->rank - 1);
    xl_value lab = xl_em_broadcast(&g->e, xl_val_of(labels), xl_type_dims(tl), (xl_dims){ at, ti->rank });
    xl_tensor hit = xl_tensor_of(xl_em_compare(&g->e, XL_COMPARISON_DIRECTION_EQ, pos, lab));
    xl_tensor picked = xl_sum(g, xl_where(g, hit, c, xl_const_of(g, XL_F32, XL_NO_DIMS, 0)), "[-1]");
    return xl_sub(g, lse, picked);
}

xl_tensor xl_masked_mean(xl_graph *g, xl_tensor a, xl_tensor mask)
{
    xl_tensor m = xl_cast_to(g, mask, XL_F32), n = xl_sum(g, m, NULL);
    return xl_div(g, xl_sum(g, xl_mul(g, xl_cast_to(g, a, XL_F32), m), NULL),
                  xl_maximum(g, n, xl_const_of(g, XL_F32, XL_NO_DIMS, 1)));
}
