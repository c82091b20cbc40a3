/* The JSON is XLA's GpuBackendConfig, in which 64-bit numbers are strings. We choose only the shapes, the scale and the
 * mask; XLA's autotuner fills in the algorithm. force_deterministic must agree with the compile options: XLA writes it
 * only into the first of several equal calls, and otherwise does not find the kernel of the others. */
#include "pass/cudnn.h"

#include <stdio.h>

#include "base/json.h"

static void texts(xl_json *j, const char *key, const int64_t *v, int n)
{
    xl_json_key(j, key);
    xl_json_list(j);
    for (int i = 0; i < n; i++) {
        char t[24];
        snprintf(t, sizeof t, "%lld", (long long)v[i]);
        xl_json_text(j, t);
    }
    xl_json_end(j);
}
static void empty(xl_json *j, const char *key) { texts(j, key, NULL, 0); }

/* One product of the kernel: which dimension it contracts on either side, and its batch dimensions. */
typedef struct { const char *name; int64_t lhs, rhs, lhs_batch[2], rhs_batch[2]; } product;
static const product there[] = {
    { "bmm1_dot_dimension_numbers", 3, 3, { 0, 2 }, { 0, 2 } },            /* scores = q k */
    { "bmm2_dot_dimension_numbers", 3, 1, { 0, 1 }, { 0, 2 } },            /* out = probabilities v */
};
static const product back[] = {
    { "bmm1_grad_gemm1_dot_dimension_numbers", 2, 1, { 0, 1 }, { 0, 2 } }, /* dk */
    { "bmm1_grad_gemm2_dot_dimension_numbers", 3, 1, { 0, 1 }, { 0, 2 } }, /* dq */
    { "bmm2_grad_gemm1_dot_dimension_numbers", 2, 1, { 0, 1 }, { 0, 2 } }, /* dv */
    { "bmm2_grad_gemm2_dot_dimension_numbers", 3, 3, { 0, 2 }, { 0, 2 } }, /* d probabilities */
};

static void config(xl_buf *out, const xl_type *q, const xl_type *k, xl_cudnn_how how, const product *p, int n)
{
    xl_json j = { .out = out };
    const int64_t scores[] = { q->dims[0], q->dims[2], q->dims[1], k->dims[1] }, major[] = { 3, 2, 1, 0 };
    xl_json_map(&j);
    xl_json_put_text(&j, "operation_queue_id", "0");
    xl_json_key(&j, "cudnn_fmha_backend_config");
    xl_json_map(&j);
    xl_json_key(&j, "algorithm");
    xl_json_map(&j);
    xl_json_put_text(&j, "algo_id", "0");
    xl_json_put_text(&j, "math_type", "TENSOR_OP_MATH");
    xl_json_key(&j, "tuning_knobs");
    xl_json_map(&j);
    xl_json_put_text(&j, "17", "1");
    xl_json_put_text(&j, "24", "0");
    xl_json_end(&j);
    xl_json_put_bool(&j, "is_cudnn_frontend", true);
    xl_json_put_text(&j, "workspace_size", "0");
    xl_json_end(&j);
    xl_json_put_num(&j, "fmha_scale", how.scale);
    xl_json_key(&j, "intermediate_tensor_shape");
    xl_json_map(&j);
    xl_json_put_text(&j, "element_type", q->dtype == XL_F16 ? "F16" : "BF16");
    texts(&j, "dimensions", scores, 4);
    empty(&j, "tuple_shapes");
    xl_json_key(&j, "layout");
    xl_json_map(&j);
    empty(&j, "dim_level_types");
    empty(&j, "dim_unique");
    empty(&j, "dim_ordered");
    texts(&j, "minor_to_major", major, 4);
    empty(&j, "tiles");
    xl_json_put_text(&j, "element_size_in_bits", "0");
    xl_json_put_text(&j, "memory_space", "0");
    xl_json_put_text(&j, "index_primitive_type", "PRIMITIVE_TYPE_INVALID");
    xl_json_put_text(&j, "pointer_primitive_type", "PRIMITIVE_TYPE_INVALID");
    xl_json_put_text(&j, "dynamic_shape_metadata_prefix_bytes", "0");
    xl_json_end(&j);
    xl_json_key(&j, "is_dynamic_dimension");
    xl_json_list(&j);
    for (int i = 0; i < 4; i++)
        xl_json_bool(&j, false);
    xl_json_end(&j);
    xl_json_end(&j);
    xl_json_put_bool(&j, "is_flash_attention", true);
    xl_json_put_text(&j, "mask_type", "CAUSAL");
    for (int i = 0; i < n; i++) {
        xl_json_key(&j, p[i].name);
        xl_json_map(&j);
        texts(&j, "lhs_contracting_dimensions", &p[i].lhs, 1);
        texts(&j, "rhs_contracting_dimensions", &p[i].rhs, 1);
        texts(&j, "lhs_batch_dimensions", p[i].lhs_batch, 2);
        texts(&j, "rhs_batch_dimensions", p[i].rhs_batch, 2);
        xl_json_end(&j);
    }
    xl_json_put_num(&j, "dropout_rate", 0);
    xl_json_put_int(&j, "seed", 0);
    xl_json_put_int(&j, "sliding_window_length", 0);
    xl_json_put_int(&j, "max_seg_per_batch", 1);
    xl_json_put_bool(&j, "is_paged_attention", false);
    xl_json_put_bool(&j, "force_deterministic", how.deterministic);
    xl_json_end(&j);
    xl_json_end(&j);
}

/* Results come as [batch, heads, time, size] with the memory of [batch, time, heads, size]. */
static const xl_attr *layout(xl_module *m, const xl_type *t, bool swapped)
{
    int64_t order[4];
    for (uint32_t i = 0; i < t->rank; i++)
        order[i] = (int64_t)(t->rank - 1 - i);
    if (swapped)
        order[1] = 1, order[2] = 2;
    const int64_t rank = t->rank;
    return xl_attr_dense(m, xl_type_tensor(m, XL_INDEX, (xl_dims){ &rank, 1 }),
                         (xl_str){ (const char *)order, t->rank * sizeof *order });
}

static xl_op *call(xl_emit *e, const char *target, const xl_value *in, uint32_t nin, const xl_type *const *out,
                   uint32_t nout, xl_str json)
{
    xl_module *m = e->f->m;
    const xl_attr *ins[8], *outs[8];
    for (uint32_t i = 0; i < nin; i++)
        ins[i] = layout(m, xl_em_type(e, in[i]), false);
    for (uint32_t i = 0; i < nout; i++)
        outs[i] = layout(m, out[i], out[i]->rank == 4);
    xl_op *op = xl_op_new(e->f, e->r, XL_OP_CUSTOM_CALL, in, nin, (const xl_type **)out, nout, 0, e->loc);
    op->attr[XL_SLOT(CUSTOM_CALL, call_target_name)] = xl_attr_str(m, xl_str_of(target));
    op->attr[XL_SLOT(CUSTOM_CALL, api_version)] = xl_attr_int(m, XL_I32, 2);
    op->attr[XL_SLOT(CUSTOM_CALL, backend_config)] = xl_attr_str(m, json);
    op->attr[XL_SLOT(CUSTOM_CALL, operand_layouts)] = xl_attr_array(m, ins, nin);
    op->attr[XL_SLOT(CUSTOM_CALL, result_layouts)] = xl_attr_array(m, outs, nout);
    return op;
}

static const xl_type *swapped(xl_module *m, const xl_type *t)
{
    return xl_type_tensor(m, t->dtype, XL_DIMS(t->dims[0], t->dims[2], t->dims[1], t->dims[3]));
}
static const xl_type *workspace(xl_module *m) { return xl_type_tensor(m, XL_U8, XL_DIMS(0)); }
static xl_value straight(xl_emit *e, xl_value v) { return xl_em_transpose(e, v, XL_DIMS(0, 2, 1, 3)); }

xl_value xl_cudnn_attention(xl_emit *e, xl_value q, xl_value k, xl_value v, xl_cudnn_how how)
{
    xl_module *m = e->f->m;
    const xl_type *t = xl_em_type(e, q);
    xl_buf json = { 0 };
    config(&json, t, xl_em_type(e, k), how, there, 2);
    /* what comes with the result: the logarithm of each row's sum, which the backward pass starts from */
    const xl_type *out[] = { swapped(m, t), xl_type_tensor(m, XL_F32, XL_DIMS(t->dims[0], t->dims[2], t->dims[1])),
                             workspace(m) };
    xl_op *op = call(e, XL_CUDNN_ATTENTION, (xl_value[]){ q, k, v }, 3, out, 3, xl_buf_view(&json));
    xl_buf_fini(&json);
    return straight(e, op->out[0]);
}

const char *xl_cudnn_refuses(xl_dtype d, int64_t size)
{
    if (d != XL_F16 && d != XL_BF16)
        return "it computes in bf16 or f16";
    return size % 8 || size > 128 ? "a head must have a multiple of 8 channels, at most 128" : NULL;
}

/* What was asked of a call that is one of ours in every other respect. */
static bool ours(const xl_grad_ctx *g, const xl_op *op, xl_cudnn_how *how)
{
    xl_arena a = { 0 };
    xl_buf json = { 0 };
    xl_node *root = NULL;
    xl_str text = xl_op_str(op, XL_SLOT(CUSTOM_CALL, backend_config));
    bool same = false;
    if (xl_str_is(xl_op_str(op, XL_SLOT(CUSTOM_CALL, call_target_name)), XL_CUDNN_ATTENTION) && op->nin == 3) {
        xl_error *err = xl_json_read(&a, "backend_config", text, &root);
        if (!err)
            err = xl_node_get_float(xl_node_get(root, "cudnn_fmha_backend_config"), "fmha_scale", &how->scale);
        if (!err)
            err = xl_node_get_bool(xl_node_get(root, "cudnn_fmha_backend_config"), "force_deterministic",
                                   &how->deterministic);
        if (!err) {
            config(&json, xl_value_type(g->e.f, op->in[0]), xl_value_type(g->e.f, op->in[1]), *how, there, 2);
            same = xl_str_eq(text, xl_buf_view(&json));
        }
        xl_error_free(err);
    }
    xl_buf_fini(&json);
    xl_arena_fini(&a);
    return same;
}

xl_error *xl_cudnn_grad(xl_grad_ctx *g, xl_op *op, const xl_value *ct, bool *mine)
{
    xl_emit *e = &g->e;
    xl_module *m = e->f->m;
    xl_cudnn_how how = { 0 };
    *mine = ours(g, op, &how);
    if (!*mine || !xl_has(ct[0]))
        return NULL;
    xl_buf json = { 0 };
    const xl_type *q = xl_em_type(e, op->in[0]), *k = xl_em_type(e, op->in[1]);
    const xl_type *out[] = { swapped(m, q), swapped(m, k), swapped(m, k), workspace(m) };
    config(&json, q, k, how, back, 4);
    xl_value in[] = { op->in[0], op->in[1], op->in[2], op->out[1], straight(e, ct[0]), straight(e, op->out[0]) };
    xl_op *b = call(e, XL_CUDNN_ATTENTION_BACK, in, 6, out, 4, xl_buf_view(&json));
    xl_buf_fini(&json);
    for (int i = 0; i < 3; i++)
        xl_cot_add(g, op->in[i], straight(e, b->out[i]));
    return NULL;
}
