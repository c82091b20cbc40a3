#include "cpu/plan/view.h"

enum { DEPTH = 24, IOTA_MAX = 1 << 16 };

static bool plain_type(const xl_type *t)
{
    int64_t n;
    return t->kind == XL_TY_TENSOR && !t->unranked && !t->quant && t->rank <= XL_RANK_MAX && xl_type_count(t, &n);
}

void xl_view_plain(const xl_func *f, xl_value v, xl_view *out)
{
    const xl_type *t = f->val[v.id].type;
    int64_t s = 1;
    out->kind = XL_VIEW_VALUE;
    out->base = v;
    out->offset = 0;
    out->rank = 0;
    if (!plain_type(t))                                    /* its op will be refused; until then it is only a value */
        return;
    out->rank = t->rank;
    for (uint32_t i = t->rank; i-- > 0; ) {
        out->dim[i] = t->dims[i];
        out->stride[i] = s;
        s *= t->dims[i];
    }
}

bool xl_op_is_view(const xl_func *f, const xl_op *op)
{
    switch (op->code) {
    case XL_OP_RESHAPE: case XL_OP_BROADCAST_IN_DIM: case XL_OP_TRANSPOSE: case XL_OP_SLICE: break;
    default: return false;
    }
    const xl_type *in = xl_in_type(f, op, 0), *out = xl_out_type(f, op, 0);
    return plain_type(in) && plain_type(out) && in->dtype == out->dtype;
}

/* New dimensions over old strides; false where a new dimension would have to run over a gap. */
static bool reshape(xl_view *v, const xl_type *t)
{
    int64_t dim[XL_RANK_MAX], stride[XL_RANK_MAX];
    uint32_t n = 0, o = 0;
    xl_view_strip(v);
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dims[i] == 0)
            return false;
    while (n < t->rank) {
        if (t->dims[n] == 1) {
            dim[n] = 1, stride[n++] = 0;
            continue;
        }
        if (o >= v->rank)
            return false;
        uint32_t n1 = n + 1, o1 = o + 1;
        int64_t a = t->dims[n], b = v->dim[o];
        while (a != b) {
            if (a < b) {
                if (n1 >= t->rank)
                    return false;
                a *= t->dims[n1++];
            } else {
                if (o1 >= v->rank || v->stride[o1 - 1] != v->stride[o1] * v->dim[o1])
                    return false;
                b *= v->dim[o1++];
            }
        }
        int64_t s = v->stride[o1 - 1];
        for (uint32_t i = n1; i-- > n; ) {
            dim[i] = t->dims[i];
            stride[i] = t->dims[i] == 1 ? 0 : s;
            s *= t->dims[i];
        }
        n = n1, o = o1;
    }
    if (o != v->rank)
        return false;
    v->rank = t->rank;
    memcpy(v->dim, dim, t->rank * sizeof *dim);
    memcpy(v->stride, stride, t->rank * sizeof *stride);
    return true;
}

static bool apply(const xl_func *f, const xl_op *op, xl_view *v)
{
    const xl_type *t = xl_out_type(f, op, 0);
    int64_t s[XL_RANK_MAX] = { 0 };
    switch (op->code) {
    case XL_OP_RESHAPE: return reshape(v, t);
    case XL_OP_BROADCAST_IN_DIM: {
        xl_dims d = xl_op_dims(op, XL_SLOT(BROADCAST_IN_DIM, broadcast_dimensions));
        if (d.n != v->rank)
            return false;
        for (uint32_t i = 0; i < v->rank; i++) {
            if (d.p[i] < 0 || d.p[i] >= t->rank || (v->dim[i] != 1 && v->dim[i] != t->dims[d.p[i]]))
                return false;
            s[d.p[i]] = v->dim[i] == 1 ? 0 : v->stride[i];
        }
        break;
    }
    case XL_OP_TRANSPOSE: {
        xl_dims d = xl_op_dims(op, XL_SLOT(TRANSPOSE, permutation));
        if (d.n != v->rank || t->rank != v->rank)
            return false;
        for (uint32_t i = 0; i < t->rank; i++) {
            if (d.p[i] < 0 || d.p[i] >= v->rank)
                return false;
            s[i] = v->stride[d.p[i]];
        }
        break;
    }
    default: {
        xl_dims start = xl_op_dims(op, XL_SLOT(SLICE, start_indices)), step = xl_op_dims(op, XL_SLOT(SLICE, strides));
        if (t->rank != v->rank)
            return false;
        for (uint32_t i = 0; i < t->rank; i++) {
            v->offset += v->stride[i] * xl_dims_at(start, i, 0);
            s[i] = v->stride[i] * xl_dims_at(step, i, 1);
        }
        break;
    }
    }
    v->rank = t->rank;
    memcpy(v->dim, t->dims, t->rank * sizeof *v->dim);
    memcpy(v->stride, s, t->rank * sizeof *s);
    return true;
}

static void view_of(const xl_func *f, xl_value v, xl_view *out, uint32_t depth)
{
    const xl_op *op = f->val[v.id].def;
    const xl_type *t = f->val[v.id].type;
    xl_view_plain(f, v, out);
    if (!op || !plain_type(t))
        return;
    if (op->code == XL_OP_CONSTANT) {
        const xl_attr *a = XL_ATTR(op, CONSTANT, value);
        if (a && a->kind == XL_AT_DENSE && (a->splat || a->data.n == xl_dtype_bytes(t->dtype)) &&
            a->data.n >= xl_dtype_bytes(t->dtype)) {
            out->kind = XL_VIEW_SPLAT;
            memset(out->stride, 0, t->rank * sizeof *out->stride);
        }
    } else if (op->code == XL_OP_IOTA) {
        int64_t d = xl_op_int(op, XL_SLOT(IOTA, iota_dimension));
        if (d >= 0 && d < t->rank && t->dims[d] <= IOTA_MAX) {
            out->kind = XL_VIEW_IOTA;
            memset(out->stride, 0, t->rank * sizeof *out->stride);
            out->stride[d] = 1;
        }
    } else if (depth < DEPTH && xl_op_is_view(f, op)) {
        xl_view in;
        view_of(f, op->in[0], &in, depth + 1);
        if (apply(f, op, &in)) {
            *out = in;
            return;
        }
        xl_view_plain(f, op->in[0], &in);
        if (apply(f, op, &in))
            *out = in;
    }
}

void xl_view_of(const xl_func *f, xl_value v, xl_view *out) { view_of(f, v, out, 0); }

bool xl_view_dense(const xl_view *v)
{
    int64_t s = 1;
    for (uint32_t i = v->rank; i-- > 0; ) {
        if (v->dim[i] != 1 && v->stride[i] != s)
            return false;
        s *= v->dim[i];
    }
    return true;
}

void xl_view_strip(xl_view *v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->rank; i++)
        if (v->dim[i] != 1) {
            v->dim[n] = v->dim[i];
            v->stride[n++] = v->stride[i];
        }
    v->rank = n;
}
