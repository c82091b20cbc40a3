/* Types, attributes and constants as text. */
#include "ir/num.h"
#include "ir/text/print.h"
#include "ir/text/print_part.h"
#include "ir/text/text.h"

static bool bare(xl_str s)
{
    if (s.n == 0 || !xl_text_is(s.p[0], XL_CH_START))
        return false;
    for (size_t i = 1; i < s.n; i++)
        if (!xl_text_is(s.p[i], XL_CH_WORD))
            return false;
    return true;
}

void xl_print_string(xl_buf *b, xl_str s)
{
    xl_buf_putc(b, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c == '\\')
            xl_buf_puts(b, "\\\\");
        else if (c >= 0x20 && c < 0x7f && c != '"')
            xl_buf_putc(b, (char)c);
        else
            xl_buf_printf(b, "\\%02X", c);
    }
    xl_buf_putc(b, '"');
}

void xl_print_symbol(xl_buf *b, xl_str s)
{
    for (;;) {                                             /* nested references are kept as a::b */
        const char *at = memmem(s.p, s.n, "::", 2);
        xl_str part = { s.p, at ? (size_t)(at - s.p) : s.n };
        xl_buf_putc(b, '@');
        if (bare(part))
            xl_buf_str(b, part);
        else
            xl_print_string(b, part);
        if (!at)
            return;
        xl_buf_puts(b, "::");
        s = (xl_str){ at + 2, s.n - part.n - 2 };
    }
}

static void key(xl_buf *b, xl_str s)
{
    if (bare(s))
        xl_buf_str(b, s);
    else
        xl_print_string(b, s);
}

/* ---- types ------------------------------------------------------------------------------------------------------ */
static void quant(xl_buf *b, const xl_quant *q)
{
    unsigned bits = xl_dtypes[q->storage].bits;
    int64_t min = q->is_signed ? -((int64_t)1 << (bits - 1)) : 0,
            max = q->is_signed ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
    const char *storage = xl_dtypes[q->storage].text;      /* unsigned storage is said by its name: u8 */
    xl_buf_printf(b, "!quant.uniform<%s%s", q->is_signed ? "" : "u",
                  storage + (q->is_signed        ? 0
                             : storage[0] == 'u' ? 2
                                                 : 1));
    if (q->min != min || q->max != max)
        xl_buf_printf(b, "<%lld:%lld>", (long long)q->min, (long long)q->max);
    xl_buf_printf(b, ":%s", xl_dtypes[q->expressed].text);
    if (q->per_axis)
        xl_buf_printf(b, ":%lld", (long long)q->axis);
    xl_buf_puts(b, q->per_axis ? ", {" : ", ");
    for (uint32_t i = 0; i < q->n; i++) {
        uint64_t u;
        memcpy(&u, &q->scale[i], 8);
        xl_buf_puts(b, i ? "," : "");
        xl_num_print(XL_F64, u, b);
        if (q->zero[i])
            xl_buf_printf(b, ":%lld", (long long)q->zero[i]);
    }
    xl_buf_puts(b, q->per_axis ? "}>" : ">");
}

static void list(xl_buf *b, const xl_type *const *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        xl_buf_puts(b, i ? ", " : "");
        xl_print_type(t[i], b);
    }
}

void xl_print_types(xl_buf *b, const xl_type *const *out, uint32_t n)
{
    bool plain = n == 1 && out[0]->kind != XL_TY_FUNC;
    xl_buf_puts(b, plain ? "" : "(");
    list(b, out, n);
    xl_buf_puts(b, plain ? "" : ")");
}

void xl_print_type(const xl_type *t, xl_buf *b)
{
    switch (t->kind) {
    case XL_TY_TENSOR: case XL_TY_BUFFER:
        xl_buf_puts(b, t->kind == XL_TY_TENSOR ? "tensor<" : "memref<");
        if (t->unranked)
            xl_buf_puts(b, "*x");
        for (uint32_t i = 0; i < t->rank; i++) {
            if (t->dims[i] == XL_DYN)
                xl_buf_puts(b, "?x");
            else
                xl_buf_printf(b, "%lldx", (long long)t->dims[i]);
        }
        if (t->quant)
            quant(b, t->quant);
        else
            xl_buf_puts(b, xl_dtypes[t->dtype].text);
        if (t->bounds) {
            xl_buf_puts(b, ", #stablehlo.bounds<");
            for (uint32_t i = 0; i < t->rank; i++) {
                xl_buf_puts(b, i ? ", " : "");
                if (t->bounds[i] == XL_DYN)
                    xl_buf_putc(b, '?');
                else
                    xl_buf_printf(b, "%lld", (long long)t->bounds[i]);
            }
            xl_buf_putc(b, '>');
        } else if (t->encoding) {
            xl_buf_puts(b, ", ");
            xl_print_attr(t->encoding, b);
        }
        xl_buf_putc(b, '>');
        break;
    case XL_TY_TOKEN: xl_buf_puts(b, "!stablehlo.token"); break;
    case XL_TY_TUPLE:
        xl_buf_puts(b, "tuple<");
        list(b, t->elem, t->nelem);
        xl_buf_putc(b, '>');
        break;
    case XL_TY_FUTURE:
        xl_buf_puts(b, "!stablehlo.future<");
        list(b, t->elem, t->nelem);
        xl_buf_putc(b, '>');
        break;
    case XL_TY_FUNC:
        xl_buf_putc(b, '(');
        list(b, t->elem, t->nin);
        xl_buf_puts(b, ") -> ");
        xl_print_types(b, t->elem + t->nin, t->nelem - t->nin);
        break;
    case XL_TY_NONE: xl_buf_puts(b, "none"); break;
    case XL_TY_OPAQUE: xl_buf_str(b, t->text); break;
    }
}

const char *xl_type_str(xl_arena *a, const xl_type *t)
{
    xl_buf b = { 0 };
    xl_print_type(t, &b);
    const char *s = xl_str_c(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return s;
}

/* ---- constants -------------------------------------------------------------------------------------------------- */
static void one(xl_buf *b, xl_dtype d, const char *p)
{
    xl_dtype part = xl_dtype_part(d);
    if (part != d) {
        xl_buf_putc(b, '(');
        one(b, part, p);
        xl_buf_putc(b, ',');
        one(b, part, p + xl_dtype_bytes(part));
        xl_buf_putc(b, ')');
        return;
    }
    uint64_t u = xl_num_load(d, p);
    unsigned bits = xl_dtypes[d].bits;
    switch (xl_dtype_class(d)) {
    case XL_CLASS_PRED: xl_buf_puts(b, u ? "true" : "false"); break;
    case XL_CLASS_FLOAT: xl_num_print(d, u, b); break;
    case XL_CLASS_UINT: xl_buf_printf(b, "%llu", (unsigned long long)u); break;
    default:
        if (bits < 64 && u >> (bits - 1) & 1)
            u |= ~0ull << bits;
        xl_buf_printf(b, "%lld", (long long)u);
    }
}

static size_t nested(xl_buf *b, const xl_attr *a, uint32_t dim, size_t at)
{
    size_t size = xl_dtype_bytes(a->dtype);
    xl_buf_putc(b, '[');
    for (int64_t i = 0; i < a->type->dims[dim]; i++) {
        xl_buf_puts(b, i ? ", " : "");
        if (dim + 1 < a->type->rank) {
            at = nested(b, a, dim + 1, at);
        } else {
            one(b, a->dtype, a->data.p + at);
            at += size;
        }
    }
    xl_buf_putc(b, ']');
    return at;
}

void xl_print_dense(xl_buf *b, const xl_attr *a, bool shorten)
{
    static const char digit[] = "0123456789ABCDEF";
    size_t size = xl_dtype_bytes(a->dtype);
    bool single = a->data.n == size;
    if (!single && shorten && a->data.n > 16 * size) {
        xl_buf_puts(b, "dense_resource<__elided__> : ");
        xl_print_type(a->type, b);
        return;
    }
    xl_buf_puts(b, "dense<");
    if (single) {
        one(b, a->dtype, a->data.p);
    } else if (a->data.n > 100 * size) {
        char line[256];
        xl_buf_puts(b, "\"0x");
        for (size_t i = 0; i < a->data.n;) {
            size_t n = 0;
            for (; n + 2 <= sizeof line && i < a->data.n; i++) {
                line[n++] = digit[(unsigned char)a->data.p[i] >> 4];
                line[n++] = digit[a->data.p[i] & 15];
            }
            xl_buf_add(b, line, n);
        }
        xl_buf_putc(b, '"');
    } else if (a->data.n && a->type->rank) {
        nested(b, a, 0, 0);
    }
    xl_buf_puts(b, "> : ");
    xl_print_type(a->type, b);
}

/* ---- shardings -------------------------------------------------------------------------------------------------- */
static void axes(xl_buf *b, const xl_axis_ref *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        xl_buf_puts(b, i ? ", " : "");
        xl_print_string(b, a[i].name);
        if (a[i].size)
            xl_buf_printf(b, ":(%lld)%lld", (long long)a[i].pre, (long long)a[i].size);
    }
}

void xl_print_mesh(xl_buf *b, const xl_mesh *m)
{
    xl_buf_puts(b, "<[");
    for (uint32_t i = 0; i < m->naxis; i++) {
        xl_buf_puts(b, i ? ", " : "");
        xl_print_string(b, m->axis[i].name);
        xl_buf_printf(b, "=%lld", (long long)m->axis[i].size);
    }
    xl_buf_putc(b, ']');
    if (m->nids) {
        xl_buf_puts(b, ", device_ids=");
        xl_print_ints(b, (xl_dims){ m->ids, m->nids });
    }
    xl_buf_putc(b, '>');
}

void xl_print_sharding(xl_buf *b, const xl_sharding *s)
{
    static const char *const how[] = { "", "max", "min" };
    xl_buf_putc(b, '<');
    if (s->inlined) {
        xl_buf_puts(b, "mesh");
        xl_print_mesh(b, s->inlined);
    } else {
        xl_print_symbol(b, s->mesh);
    }
    xl_buf_puts(b, ", [");
    for (uint32_t i = 0; i < s->rank; i++) {
        const xl_dim_sharding *d = &s->dim[i];
        xl_buf_puts(b, i ? ", {" : "{");
        axes(b, d->axis, d->naxis);
        if (d->open)
            xl_buf_puts(b, d->naxis ? ", ?" : "?");
        xl_buf_putc(b, '}');
        if (d->priority >= 0)
            xl_buf_printf(b, "p%d", d->priority);
    }
    xl_buf_putc(b, ']');
    if (s->nreplicated) {
        xl_buf_puts(b, ", replicated={");
        axes(b, s->replicated, s->nreplicated);
        xl_buf_putc(b, '}');
    }
    if (s->nunreduced) {
        xl_buf_printf(b, ", unreduced=%s{", how[s->reduction % 3]);
        axes(b, s->unreduced, s->nunreduced);
        xl_buf_putc(b, '}');
    }
    xl_buf_putc(b, '>');
}

void xl_print_shardings(xl_buf *b, const xl_attr *a)
{
    xl_buf_putc(b, '[');
    for (uint32_t i = 0; i < a->n; i++) {
        xl_buf_puts(b, i ? ", " : "");
        if (a->item[i]->kind == XL_AT_SHARDING)
            xl_print_sharding(b, a->item[i]->sharding);
    }
    xl_buf_putc(b, ']');
}

/* ---- attributes ------------------------------------------------------------------------------------------------- */
void xl_print_ints(xl_buf *b, xl_dims v)
{
    xl_buf_putc(b, '[');
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] == XL_DYN)
            xl_buf_puts(b, i ? ", ?" : "?");
        else
            xl_buf_printf(b, "%s%lld", i ? ", " : "", (long long)v.p[i]);
    }
    xl_buf_putc(b, ']');
}

static void array(xl_buf *b, const xl_attr *a)             /* array<i64: 1, 2> */
{
    xl_buf_printf(b, "array<%s", xl_dtypes[a->dtype].text);
    for (uint32_t i = 0; i < a->n; i++) {
        xl_buf_puts(b, i ? ", " : ": ");
        if (a->dtype == XL_I1)
            xl_buf_puts(b, a->ints[i] ? "true" : "false");
        else
            xl_buf_printf(b, "%lld", (long long)a->ints[i]);
    }
    xl_buf_putc(b, '>');
}

/* Inside a struct a number goes without its type. */
static void field(xl_buf *b, xl_str name, const xl_attr *a)
{
    if (a->kind == XL_AT_INTS && xl_str_is(name, "sub_axis_info") && a->n == 2)
        xl_buf_printf(b, "(%lld)%lld", (long long)a->ints[0], (long long)a->ints[1]);
    else if (a->kind == XL_AT_INTS)
        xl_print_ints(b, (xl_dims){ a->ints, a->n });
    else if (a->kind == XL_AT_INT)
        xl_buf_printf(b, "%lld", (long long)a->i);
    else if (a->kind == XL_AT_FLOAT)
        xl_num_print(a->dtype, a->u, b);
    else if (a->kind == XL_AT_TYPE && a->type->kind == XL_TY_TENSOR && a->type->rank == 0)
        xl_buf_puts(b, xl_dtypes[a->type->dtype].text);
    else
        xl_print_attr(a, b);
}

void xl_print_pairs(xl_buf *b, const xl_attr *d)
{
    for (uint32_t i = 0; d && i < d->n; i++) {
        const xl_attr *v = d->item[i];
        xl_buf_puts(b, i ? ", " : "");
        key(b, d->key[i]);
        if (v->kind == XL_AT_UNIT)
            continue;
        xl_buf_puts(b, " = ");
        if (v->kind == XL_AT_ARRAY && xl_str_is(d->key[i], "sdy.sharding")) {
            xl_buf_puts(b, "#sdy.sharding_per_value<");
            xl_print_shardings(b, v);
            xl_buf_putc(b, '>');
        } else {
            xl_print_attr(v, b);
        }
    }
}

/* MLIR reads some structs in one order only: these keys first, in this order; then the others. */
static int rank_of(xl_str k)
{
    static const char *const first[] = {
        "output_tuple_indices", "operand_index", "atol", "rtol", "ulps", "mode", "mesh", "axes", "name", "sub_axis_info"
    };
    int n = (int)(sizeof first / sizeof *first);
    for (int i = 0; i < n; i++)
        if (xl_str_is(k, first[i]))
            return i;
    return n;
}

static void structure(xl_buf *b, const xl_attr *a)
{
    bool some = false;
    xl_buf_putc(b, '#');
    xl_buf_str(b, a->str);
    xl_buf_putc(b, '<');
    for (int pass = 0; pass <= 10; pass++)
        for (uint32_t i = 0; i < a->n; i++)
            if (rank_of(a->key[i]) == pass) {
                xl_buf_puts(b, some ? ", " : "");
                some = true;
                xl_buf_str(b, a->key[i]);
                xl_buf_puts(b, " = ");
                field(b, a->key[i], a->item[i]);
            }
    xl_buf_putc(b, '>');
}

void xl_print_attr(const xl_attr *a, xl_buf *b)
{
    switch (a->kind) {
    case XL_AT_UNIT: xl_buf_puts(b, "unit"); break;
    case XL_AT_BOOL: xl_buf_puts(b, a->i ? "true" : "false"); break;
    case XL_AT_INT:
        if (xl_dtype_class(a->dtype) == XL_CLASS_UINT)
            xl_buf_printf(b, "%llu : %s", (unsigned long long)a->i, xl_dtypes[a->dtype].text);
        else
            xl_buf_printf(b, "%lld : %s", (long long)a->i, xl_dtypes[a->dtype].text);
        break;
    case XL_AT_FLOAT:
        xl_num_print(a->dtype, a->u, b);
        xl_buf_printf(b, " : %s", xl_dtypes[a->dtype].text);
        break;
    case XL_AT_STR: xl_print_string(b, a->str); break;
    case XL_AT_SYM: xl_print_symbol(b, a->str); break;
    case XL_AT_TYPE: xl_print_type(a->type, b); break;
    case XL_AT_ENUM: {
        const char *text = xl_enum_text(a->which, a->i);
        xl_buf_printf(b, a->which == XL_ENUM_RESULT_ACCURACY_MODE ? "#stablehlo.%s<%s>" : "#stablehlo<%s %s>",
                      xl_enum_name(a->which), text ? text : "?");
        break;
    }
    case XL_AT_INTS: array(b, a); break;
    case XL_AT_ARRAY:
        xl_buf_putc(b, '[');
        for (uint32_t i = 0; i < a->n; i++) {
            xl_buf_puts(b, i ? ", " : "");
            xl_print_attr(a->item[i], b);
        }
        xl_buf_putc(b, ']');
        break;
    case XL_AT_DICT:
        xl_buf_putc(b, '{');
        xl_print_pairs(b, a);
        xl_buf_putc(b, '}');
        break;
    case XL_AT_DENSE: xl_print_dense(b, a, false); break;
    case XL_AT_STRUCT: structure(b, a); break;
    case XL_AT_SHARDING:
        xl_buf_puts(b, "#sdy.sharding");
        xl_print_sharding(b, a->sharding);
        break;
    case XL_AT_MESH:
        xl_buf_puts(b, "#sdy.mesh");
        xl_print_mesh(b, a->mesh);
        break;
    case XL_AT_LOC:
        xl_buf_puts(b, "loc(unknown)");
        break; /* a location as an attribute says nothing about the program */
    case XL_AT_OPAQUE: xl_buf_str(b, a->str); break;
    }
}
