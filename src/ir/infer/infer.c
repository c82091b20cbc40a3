/* Shape and type inference: from what goes into an op, what comes out.
 *
 * Every row of ops.def names a rule in its `types` column; a rule is a function xl_infer_<name>, declared from the
 * table, so that a forgotten one fails to link. The rules follow the StableHLO specification, constraint by constraint,
 * and speak of what is wrong in numbers ("contracting sizes differ, 512 (lhs dim 1) and 511 (rhs dim 0)").
 *
 * A rule must respect three things. Dimensions may be unknown: compare with xl_dim_like, never with ==. Programs are
 * not trusted: sums and products of their numbers are made in xl_wide. And some results do not follow from the operands
 * (a constant, a convert): then c->out brings the type, and the rule checks and keeps it. Where quantised types meet,
 * only shapes are compared: their arithmetic is the device's affair.
 *
 * Here are the engine and the elementwise rules; infer_shape.c moves data, infer_math.c contracts and reduces it,
 * infer_flow.c has control flow, calls and collectives. */
#include "ir/infer/infer.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- messages --------------------------------------------------------------------------------------------------- */
xl_error *xl_infer_bad(const xl_infer_ctx *c, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    xl_str file;
    uint32_t line, col;
    if (xl_loc_line(c->m, c->op->loc, &file, &line, &col))
        return XL_ERR(INVALID, "%s: %s at %.*s:%u", xl_op_text(c->op), text, XL_FMT(file), line);
    return XL_ERR(INVALID, "%s: %s", xl_op_text(c->op), text);
}

const char *xl_infer_show(xl_infer_ctx *c, const xl_type *t)
{
    char *p = c->text[c->ntext++ % 4];
    size_t room = sizeof c->text[0], n = 0;
    static const char *const kind[] = { "tensor", "token", "tuple", "future", "function", "memref", "none", "opaque" };
    if (!t)
        return "nothing";
    if (t->kind != XL_TY_TENSOR)
        return kind[t->kind];
    if (t->unranked)
        n += (size_t)snprintf(p, room, "*x");
    for (uint32_t i = 0; i < t->rank && n + 24 < room; i++)
        n += t->dims[i] < 0 ? (size_t)snprintf(p + n, room - n, "?x")
                            : (size_t)snprintf(p + n, room - n, "%lldx", (long long)t->dims[i]);
    snprintf(p + n, room - n, "%s%s", t->quant ? "quantised " : "", xl_dtypes[t->dtype].text);
    return p;
}

/* ---- helpers of all rules --------------------------------------------------------------------------------------- */
bool xl_shape_like(const xl_type *a, const xl_type *b)
{
    if (a->kind != XL_TY_TENSOR || b->kind != XL_TY_TENSOR)
        return false;
    if (a->unranked || b->unranked)
        return true;
    if (a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++) {
        if (!xl_dim_like(a->dims[i], b->dims[i]))
            return false;
        if (a->dims[i] >= 0 && b->bounds && b->bounds[i] >= 0 && a->dims[i] > b->bounds[i])
            return false;
        if (b->dims[i] >= 0 && a->bounds && a->bounds[i] >= 0 && b->dims[i] > a->bounds[i])
            return false;
    }
    return true;
}

bool xl_type_like(const xl_type *a, const xl_type *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind)
        return false;
    if (a->kind == XL_TY_TENSOR)
        return xl_shape_like(a, b) && (a->dtype == b->dtype || a->quant || b->quant);
    if (a->kind != XL_TY_TUPLE && a->kind != XL_TY_FUTURE)
        return xl_type_eq(a, b);
    if (a->nelem != b->nelem)
        return false;
    for (uint32_t i = 0; i < a->nelem; i++)
        if (!xl_type_like(a->elem[i], b->elem[i]))
            return false;
    return true;
}

const xl_type *xl_type_merge(xl_module *m, const xl_type *a, const xl_type *b)
{
    if (a == b || a->kind != XL_TY_TENSOR || b->unranked || (a->rank && !a->bounds && xl_type_static(a)) ||
        (!a->rank && !a->unranked))
        return a;
    if (a->unranked) {
        xl_type t = *b;
        t.dtype = a->dtype;
        t.quant = a->quant;
        return xl_type_intern(m, &t);
    }
    int64_t *dims = xl_new(&m->arena, int64_t, a->rank), *bounds = xl_new(&m->arena, int64_t, a->rank);
    bool bounded = false;
    for (uint32_t i = 0; i < a->rank; i++) {
        int64_t x = a->bounds ? a->bounds[i] : XL_DYN, y = b->bounds ? b->bounds[i] : XL_DYN;
        dims[i] = a->dims[i] >= 0 ? a->dims[i] : b->dims[i];
        bounds[i] = dims[i] >= 0 ? XL_DYN : x < 0 ? y : y < 0 ? x : x < y ? x : y;
        bounded = bounded || bounds[i] >= 0;
    }
    xl_type t = *a;
    t.dims = dims;
    t.bounds = bounded ? bounds : NULL;
    return xl_type_intern(m, &t);
}

bool xl_promotable(xl_dtype from, xl_dtype to)
{
    return xl_dtype_class(from) == xl_dtype_class(to) && xl_dtypes[from].bits <= xl_dtypes[to].bits;
}

xl_error *xl_need_tensors(xl_infer_ctx *c)
{
    for (uint32_t i = 0; i < c->op->nin; i++) {
        NEED(IN(i)->kind == XL_TY_TENSOR, "operand %u must be a tensor, not a %s", i, SHOW(IN(i)));
        NEED(!IN(i)->unranked, "operand %u must have a rank", i);
    }
    return NULL;
}

xl_error *xl_need_given(xl_infer_ctx *c)
{
    for (uint32_t i = 0; i < c->nout; i++)
        NEED(c->out[i], "result %u does not follow from the operands: its type must be given", i);
    return NULL;
}

xl_error *xl_need_dims(xl_infer_ctx *c, xl_dims d, int64_t rank, bool sorted, const char *what)
{
    for (size_t i = 0; i < d.n; i++) {
        NEED(d.p[i] >= 0 && d.p[i] < rank, "%s has %lld, which is not a dimension of rank %lld", what,
             (long long)d.p[i], (long long)rank);
        NEED(!sorted || i == 0 || d.p[i - 1] < d.p[i], "%s must be sorted and without repeats", what);
        for (size_t k = 0; k < i; k++)
            NEED(d.p[k] != d.p[i], "%s has %lld twice", what, (long long)d.p[i]);
    }
    return NULL;
}

xl_error *xl_need_region(xl_infer_ctx *c, uint32_t which, uint32_t nargs, const xl_op **end)
{
    NEED(which < c->op->nregion, "region %u is missing", which);
    const xl_region *r = c->op->region[which];
    *end = xl_region_end(r);
    NEED(*end && (*end)->code == XL_OP_RETURN, "region %u does not end in a return", which);
    NEED(r->narg == nargs, "region %u has %u arguments, expected %u", which, r->narg, nargs);
    return NULL;
}

int64_t xl_window_size(int64_t size, int64_t window, int64_t stride, int64_t lo, int64_t hi, int64_t base_dilation,
                       int64_t window_dilation)
{
    if (size == XL_DYN || window == XL_DYN)
        return XL_DYN;
    if (window < 0 || stride < 1 || base_dilation < 1 || window_dilation < 1 || size < 0)
        return -1;
    xl_wide padded = (size ? (xl_wide)(size - 1) * base_dilation + 1 : 0) + lo + hi;
    xl_wide w = window ? (xl_wide)(window - 1) * window_dilation + 1 : 0;
    if (padded <= 0 || w > padded)                         /* negative padding may leave less than nothing */
        return 0;
    xl_wide n = (padded - w) / stride + 1;
    return xl_fits(n) ? (int64_t)n : -1;
}

/* ---- the engine ------------------------------------------------------------------------------------------------- */
static bool kind_is(const xl_attr *a, xl_attr_want want)
{
    switch (want) {
    case XL_AK_I64: case XL_AK_I32: return a->kind == XL_AT_INT || a->kind == XL_AT_ENUM;
    case XL_AK_F32: return a->kind == XL_AT_FLOAT;
    case XL_AK_BOOL: return a->kind == XL_AT_BOOL || a->kind == XL_AT_INT || a->kind == XL_AT_UNIT;
    case XL_AK_STR: return a->kind == XL_AT_STR;
    case XL_AK_SYM: return a->kind == XL_AT_SYM || a->kind == XL_AT_STR;
    case XL_AK_DIMS: case XL_AK_BOOLS: return a->kind == XL_AT_INTS;
    case XL_AK_PAIRS: return a->kind == XL_AT_INTS && a->n % 2 == 0;
    case XL_AK_DENSE: return a->kind == XL_AT_DENSE;
    case XL_AK_TYPE: return a->kind == XL_AT_TYPE;
    case XL_AK_STRUCT: return a->kind == XL_AT_STRUCT;
    case XL_AK_DICT: return a->kind == XL_AT_DICT;
    case XL_AK_STR_OR_DICT: return a->kind == XL_AT_STR || a->kind == XL_AT_DICT;
    case XL_AK_ARRAY: case XL_AK_PRECISIONS: case XL_AK_SYMS: case XL_AK_STRS: return a->kind == XL_AT_ARRAY;
    case XL_AK_SHARDING: return a->kind == XL_AT_SHARDING || a->kind == XL_AT_OPAQUE;
    case XL_AK_GROUPS: case XL_AK_SHARDINGS: case XL_AK_ATTR: return true;
    default: break;
    }
    return a->kind == XL_AT_ENUM && (int)a->which - XL_ENUM_NONE - 1 == (int)want - XL_AK_ENUM_COMPARISON_DIRECTION;
}

static xl_error *shape_of_op(xl_infer_ctx *c)
{
    const xl_op *op = c->op;
    const xl_op_info *info = &xl_ops[op->code];
    NEED(info->nin == XL_ANY || op->nin == (uint32_t)info->nin, "has %u operands, expected %d", op->nin, info->nin);
    NEED(info->nout == XL_ANY || c->nout == (uint32_t)info->nout, "has %u results, expected %d", c->nout, info->nout);
    NEED(info->nregion == XL_ANY || op->nregion == (uint32_t)info->nregion, "has %u regions, expected %d", op->nregion,
         info->nregion);
    const xl_attr_row *row = &xl_attr_rows[info->row0];
    for (uint32_t i = 0, n = xl_op_nattr((xl_opcode)op->code); i < n; i++) {
        NEED(op->attr[i] || row[i].def != XL_DEF_REQUIRED, "attribute %s is missing", row[i].name);
        NEED(!op->attr[i] || kind_is(op->attr[i], row[i].want), "attribute %s is of the wrong kind", row[i].name);
    }
    return NULL;
}

static xl_infer_fn *const rules[XL_OP_COUNT] = {
#define OP(name, text, nin, nout, nregion, types, ...) [XL_OP_##name] = xl_infer_##types,
#include "ir/ops.def"
};

xl_error *xl_infer(xl_func *f, const xl_op *op, const xl_type **out, uint32_t nout)
{
    xl_infer_ctx c = { .f = f, .m = f->m, .op = op, .out = out, .nout = nout };
    xl_error *err = shape_of_op(&c);
    return err ? err : rules[op->code](&c);
}

xl_error *xl_verify_op(xl_func *f, const xl_op *op)
{
    const xl_type *few[8], **out = few;
    xl_infer_ctx ctx = { .f = f, .m = f->m, .op = op, .nout = op->nout }, *c = &ctx;
    if (op->nout > 8)
        out = xl_new(&f->m->arena, const xl_type *, op->nout);
    c->out = out;
    for (uint32_t i = 0; i < op->nout; i++)
        out[i] = xl_out_type(f, op, i);
    xl_error *err = shape_of_op(c);
    if (!err)
        err = rules[op->code](c);
    if (err)
        return err;
    for (uint32_t i = 0; i < op->nout; i++)
        NEED(out[i] && xl_type_like(out[i], xl_out_type(f, op, i)), "result %u is %s, expected %s", i,
             SHOW(xl_out_type(f, op, i)), SHOW(out[i]));
    return NULL;
}

/* ---- results that the op brings, or that are its operands ------------------------------------------------------- */
RULE(given) { return xl_need_given(c); }
RULE(none) { (void)c; return NULL; }
RULE(terminator) { (void)c; return NULL; }

RULE(identity)
{
    NEED(c->op->nin == c->nout, "has %u operands and %u results", c->op->nin, c->nout);
    for (uint32_t i = 0; i < c->nout; i++)
        c->out[i] = IN(i);
    return NULL;
}

/* ---- elementwise ------------------------------------------------------------------------------------------------ */
enum {
    PRED = 1 << XL_CLASS_PRED,
    INT = 1 << XL_CLASS_INT,
    UINT = 1 << XL_CLASS_UINT,
    FLOAT = 1 << XL_CLASS_FLOAT,
    CPLX = 1 << XL_CLASS_COMPLEX
};

static xl_error *need_class(xl_infer_ctx *c, uint32_t i, unsigned classes)
{
    static const char *const names[] = { [PRED | INT | UINT] = "booleans or integers",
                                         [INT | UINT] = "integers",
                                         [FLOAT] = "floats",
                                         [FLOAT | CPLX] = "floats or complex numbers",
                                         [INT | UINT | FLOAT | CPLX] = "numbers",
                                         [PRED] = "booleans",
                                         [INT | FLOAT | CPLX] = "signed numbers",
                                         [INT | UINT | FLOAT] = "real numbers" };
    const xl_type *t = IN(i);
    NEED(t->kind == XL_TY_TENSOR, "operand %u must be a tensor, not a %s", i, SHOW(t));
    NEED(t->quant || (classes >> xl_dtype_class(t->dtype) & 1), "operand %u must hold %s, not %s", i,
         classes < sizeof names / sizeof *names && names[classes] ? names[classes] : "another type",
         xl_dtypes[t->dtype].text);
    return NULL;
}

/* result_accuracy: tolerances go with the mode TOLERANCE only. */
static xl_error *need_accuracy(xl_infer_ctx *c)
{
    const xl_attr_row *row = &xl_attr_rows[xl_ops[c->op->code].row0];
    if (!xl_op_nattr((xl_opcode)c->op->code) || strcmp(row->name, "result_accuracy") || !c->op->attr[0])
        return NULL;
    const xl_attr *mode = xl_dict_get(c->op->attr[0], XL_STR("mode"));
    if (!mode || mode->kind != XL_AT_ENUM || mode->i == XL_RESULT_ACCURACY_MODE_TOLERANCE)
        return NULL;
    for (uint32_t i = 0; i < c->op->attr[0]->n; i++) {
        const xl_attr *v = c->op->attr[0]->item[i];
        NEED(v == mode || (v->kind == XL_AT_FLOAT ? v->f == 0 : v->kind != XL_AT_INT || v->i == 0),
             "result_accuracy of mode %s has a tolerance, %.*s", xl_enum_text(XL_ENUM_RESULT_ACCURACY_MODE, mode->i),
             XL_FMT(c->op->attr[0]->key[i]));
    }
    return NULL;
}

static xl_error *same_as_operand(xl_infer_ctx *c, unsigned classes)
{
    xl_error *err = need_class(c, 0, classes);
    if (!err)
        err = need_accuracy(c);
    if (err)
        return err;
    if (IN(0)->quant && c->out[0])
        return NULL;
    c->out[0] = IN(0);
    return NULL;
}

RULE(unary_float)
{
    if (c->op->code == XL_OP_REDUCE_PRECISION) {
        int64_t e = xl_op_int(c->op, XL_SLOT(REDUCE_PRECISION, exponent_bits)),
                m = xl_op_int(c->op, XL_SLOT(REDUCE_PRECISION, mantissa_bits));
        NEED(e >= 1, "exponent_bits is %lld, expected at least 1", (long long)e);
        NEED(m >= 0, "mantissa_bits is %lld, expected at least 0", (long long)m);
    }
    return same_as_operand(c, FLOAT);
}
RULE(unary_floatc) { return same_as_operand(c, FLOAT | CPLX); }
RULE(conj) { return same_as_operand(c, INT | UINT | FLOAT | CPLX); }
RULE(unary_int) { return same_as_operand(c, INT | UINT); }
RULE(unary_bits) { return same_as_operand(c, PRED | INT | UINT); }
RULE(unary_number)
{
    return same_as_operand(c, c->op->code == XL_OP_SIGN ? INT | FLOAT | CPLX : INT | UINT | FLOAT | CPLX);
}

RULE(abs)
{
    xl_error *err = same_as_operand(c, INT | FLOAT | CPLX);
    if (!err && xl_dtype_class(IN(0)->dtype) == XL_CLASS_COMPLEX)
        c->out[0] = xl_type_with_dtype(c->m, IN(0), xl_dtype_part(IN(0)->dtype));
    return err;
}

RULE(real_part)
{
    xl_error *err = need_class(c, 0, FLOAT | CPLX);
    if (!err)
        c->out[0] = xl_type_with_dtype(c->m, IN(0), xl_dtype_part(IN(0)->dtype));
    return err;
}

RULE(is_finite)
{
    xl_error *err = need_class(c, 0, FLOAT);
    if (!err)
        c->out[0] = xl_type_with_dtype(c->m, IN(0), XL_I1);
    return err;
}

RULE(convert)
{
    xl_error *err = xl_need_given(c);
    if (err)
        return err;
    NEED(IN(0)->kind == XL_TY_TENSOR && c->out[0]->kind == XL_TY_TENSOR, "operand and result must be tensors");
    NEED(xl_shape_like(IN(0), c->out[0]), "the operand is %s and the result %s: the shapes differ", SHOW(IN(0)),
         SHOW(c->out[0]));
    return NULL;
}

RULE(quantize)
{
    xl_error *err = xl_infer_convert(c);
    if (err)
        return err;
    if (c->op->code == XL_OP_UNIFORM_DEQUANTIZE) {
        NEED(IN(0)->quant, "the operand must be quantised");
        NEED(!c->out[0]->quant && c->out[0]->dtype == IN(0)->quant->expressed, "the result must hold %s",
             xl_dtypes[IN(0)->quant->expressed].text);
    } else
        NEED(c->out[0]->quant, "the result must be quantised");
    return NULL;
}

RULE(bitcast_convert)
{
    xl_error *err = xl_need_tensors(c);
    if (!err)
        err = xl_need_given(c);
    if (err)
        return err;
    const xl_type *a = IN(0), *b = c->out[0];
    unsigned from = xl_dtypes[a->dtype].bits, to = xl_dtypes[b->dtype].bits;
    NEED((xl_dtype_class(a->dtype) == XL_CLASS_COMPLEX) == (xl_dtype_class(b->dtype) == XL_CLASS_COMPLEX),
         "complex bits go only to complex, not %s to %s", SHOW(a), SHOW(b));
    if (from == to) {
        NEED(xl_shape_like(a, b), "the operand is %s and the result %s: the shapes differ", SHOW(a), SHOW(b));
        return NULL;
    }
    const xl_type *narrow = from < to ? a : b, *wide = from < to ? b : a;
    NEED(narrow->rank == wide->rank + 1, "%s to %s: the narrower one needs one more dimension", SHOW(a), SHOW(b));
    for (uint32_t i = 0; i < wide->rank; i++)
        NEED(xl_dim_like(narrow->dims[i], wide->dims[i]), "%s to %s: dimension %u differs", SHOW(a), SHOW(b), i);
    int64_t last = narrow->dims[narrow->rank - 1];
    unsigned n = xl_dtypes[narrow->dtype].bits, w = xl_dtypes[wide->dtype].bits;
    NEED(last == XL_DYN || (xl_wide)last * n == w, "%s to %s: the last dimension must make up the width, %u bits",
         SHOW(a), SHOW(b), w);
    return NULL;
}

static xl_error *alike(xl_infer_ctx *c, uint32_t i, uint32_t k)
{
    const xl_type *a = IN(i), *b = IN(k);
    NEED(a->dtype == b->dtype || a->quant || b->quant, "operand types differ, %s and %s", SHOW(a), SHOW(b));
    NEED(a->rank == b->rank || a->unranked || b->unranked, "operand ranks differ, %s and %s", SHOW(a), SHOW(b));
    NEED(xl_shape_like(a, b), "operand shapes differ, %s and %s", SHOW(a), SHOW(b));
    return NULL;
}

static xl_error *binary(xl_infer_ctx *c, unsigned classes)
{
    xl_error *err = need_class(c, 0, classes);
    if (!err)
        err = need_class(c, 1, classes);
    if (!err)
        err = alike(c, 0, 1);
    if (err)
        return err;
    if (IN(0)->quant && c->out[0])
        return NULL;
    c->out[0] = xl_type_merge(c->m, IN(0), IN(1));
    return NULL;
}

RULE(binary_any) { return binary(c, PRED | INT | UINT | FLOAT | CPLX); }
RULE(binary_number) { return binary(c, INT | UINT | FLOAT | CPLX); }
RULE(binary_int) { return binary(c, INT | UINT); }
RULE(binary_bits) { return binary(c, PRED | INT | UINT); }
RULE(binary_float) { return binary(c, FLOAT); }
RULE(product_sum)
{
    xl_error *err = binary(c, FLOAT);
    return err ? err : alike(c, 0, 2);
}
RULE(binary_floatc) { return binary(c, FLOAT | CPLX); }

RULE(complex)
{
    xl_error *err = binary(c, FLOAT);
    if (err)
        return err;
    xl_dtype d = IN(0)->dtype;
    NEED(d == XL_F32 || d == XL_F64, "parts must be f32 or f64, not %s", xl_dtypes[d].text);
    c->out[0] = xl_type_with_dtype(c->m, xl_type_merge(c->m, IN(0), IN(1)), d == XL_F32 ? XL_C64 : XL_C128);
    return NULL;
}

static xl_error *compare_type_fits(xl_infer_ctx *c, int64_t direction, int64_t type)
{
    xl_dclass k = xl_dtype_class(IN(0)->dtype);
    bool ok = true;
    switch (type) {
    case XL_COMPARISON_TYPE_FLOAT: ok = k == XL_CLASS_FLOAT || k == XL_CLASS_COMPLEX; break;
    case XL_COMPARISON_TYPE_TOTALORDER: ok = k == XL_CLASS_FLOAT; break;
    case XL_COMPARISON_TYPE_SIGNED: ok = k == XL_CLASS_INT; break;
    case XL_COMPARISON_TYPE_UNSIGNED: ok = k == XL_CLASS_UINT || k == XL_CLASS_PRED; break;
    default: break;
    }
    NEED(ok || IN(0)->quant, "compare_type %s does not go with %s", xl_enum_text(XL_ENUM_COMPARISON_TYPE, type),
         xl_dtypes[IN(0)->dtype].text);
    NEED(k != XL_CLASS_COMPLEX || direction <= XL_COMPARISON_DIRECTION_NE,
         "complex numbers have no order: only EQ and NE");
    return NULL;
}

RULE(compare)
{
    xl_error *err = binary(c, PRED | INT | UINT | FLOAT | CPLX);
    if (!err)
        err = compare_type_fits(c, xl_op_int(c->op, XL_SLOT(COMPARE, comparison_direction)),
                                xl_op_int(c->op, XL_SLOT(COMPARE, compare_type)));
    if (err)
        return err;
    c->out[0] = xl_type_with_dtype(c->m, xl_type_merge(c->m, IN(0), IN(1)), XL_I1);
    return NULL;
}

RULE(select)
{
    xl_error *err = need_class(c, 0, PRED);
    if (err)
        return err;
    const xl_type *p = IN(0), *a = IN(1), *b = IN(2);
    NEED(xl_type_like(a, b), "the two values differ, %s and %s", SHOW(a), SHOW(b));
    NEED(a->kind == XL_TY_TENSOR, "the values must be tensors, not a %s", SHOW(a));
    NEED(xl_is_scalar(p) || xl_shape_like(p, a), "the predicate is %s, expected a scalar or the shape of %s", SHOW(p),
         SHOW(a));
    if (!a->quant)
        c->out[0] = xl_type_merge(c->m, a, b);
    else if (!c->out[0])
        c->out[0] = a;
    return NULL;
}

RULE(clamp)
{
    xl_error *err = xl_need_tensors(c);
    if (err)
        return err;
    for (uint32_t i = 0; i < 3; i += 2) {
        const char *what = i ? "max" : "min";
        NEED(IN(i)->dtype == IN(1)->dtype || IN(1)->quant, "%s is %s and the operand %s: the types differ", what,
             SHOW(IN(i)), SHOW(IN(1)));
        NEED(xl_is_scalar(IN(i)) || xl_shape_like(IN(i), IN(1)), "%s is %s, expected a scalar or the shape of %s", what,
             SHOW(IN(i)), SHOW(IN(1)));
    }
    if (!IN(1)->quant || !c->out[0])
        c->out[0] = IN(1);
    return NULL;
}

RULE(map)
{
    const xl_op *end;
    xl_error *err = xl_need_tensors(c);
    NEED(c->op->nin > 0, "needs an operand");
    if (!err)
        err = xl_need_region(c, 0, c->op->nin, &end);
    if (err)
        return err;
    xl_dims d = xl_op_dims(c->op, XL_SLOT(MAP, dimensions));
    NEED(d.n == IN(0)->rank, "dimensions has %zu entries, expected the rank, %u", d.n, IN(0)->rank);
    for (size_t i = 0; i < d.n; i++)
        NEED(d.p[i] == (int64_t)i, "dimensions must be 0 .. rank - 1 in order");
    for (uint32_t i = 0; i < c->op->nin; i++) {
        const xl_type *arg = xl_value_type(c->f, c->op->region[0]->arg[i]);
        NEED(xl_shape_like(IN(0), IN(i)), "operand shapes differ, %s and %s", SHOW(IN(0)), SHOW(IN(i)));
        NEED(xl_is_scalar(arg) && arg->dtype == IN(i)->dtype,
             "argument %u of the computation is %s, expected a scalar %s", i, SHOW(arg), xl_dtypes[IN(i)->dtype].text);
    }
    NEED(end->nin == 1 && xl_is_scalar(xl_in_type(c->f, end, 0)), "the computation must return one scalar");
    c->out[0] = xl_type_with_dtype(c->m, IN(0), xl_in_type(c->f, end, 0)->dtype);
    return NULL;
}

/* CHLO's implicit broadcasting: shapes are aligned at their last dimension, or by broadcast_dimensions where that is
 * given; a size of 1 stretches. */
RULE(chlo_broadcast)
{
    const xl_op *op = c->op;
    xl_error *err = xl_need_tensors(c);
    if (err)
        return err;
    uint32_t first = op->code == XL_OP_CHLO_BROADCAST_SELECT ? 1 : 0;
    xl_dtype d = IN(first)->dtype;
    NEED(IN(first)->dtype == IN(first + 1)->dtype, "operand types differ, %s and %s", SHOW(IN(first)),
         SHOW(IN(first + 1)));
    NEED(!first || IN(0)->dtype == XL_I1, "the predicate must hold booleans, not %s", SHOW(IN(0)));
    uint32_t rank = 0;
    for (uint32_t i = 0; i < op->nin; i++)
        rank = IN(i)->rank > rank ? IN(i)->rank : rank;
    xl_dims map = first ? (xl_dims){ NULL, 0 }
                        : xl_op_dims(op, 0); /* broadcast_dimensions is the first of these ops' attributes */
    int64_t *dims = xl_new(&c->m->arena, int64_t, rank);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = 1;
    for (uint32_t i = 0; i < op->nin; i++) {
        const xl_type *t = IN(i);
        bool mapped = map.n && t->rank < rank;
        NEED(!mapped || map.n == t->rank, "broadcast_dimensions has %zu entries, expected %u", map.n, t->rank);
        for (uint32_t k = 0; k < t->rank; k++) {
            int64_t at = mapped ? map.p[k] : (int64_t)(rank - t->rank + k);
            NEED(at >= 0 && at < rank, "broadcast_dimensions has %lld, which is not a dimension of rank %u",
                 (long long)at, rank);
            if (dims[at] == 1)
                dims[at] = t->dims[k];
            else
                NEED(t->dims[k] == 1 || xl_dim_like(t->dims[k], dims[at]),
                     "sizes %lld and %lld of dimension %lld do not go together", (long long)dims[at],
                     (long long)t->dims[k], (long long)at);
        }
    }
    if (op->code == XL_OP_CHLO_BROADCAST_COMPARE)
        d = XL_I1;
    else if (op->code == XL_OP_CHLO_BROADCAST_COMPLEX)
        d = d == XL_F64 ? XL_C128 : XL_C64;
    c->out[0] = xl_type_tensor(c->m, d, (xl_dims){ dims, rank });
    return NULL;
}
