/* Attributes and types in short words, for sentences that a person reads. */
#include <math.h>
#include <stdio.h>

#include "ir/compare/diff.h"
#include "ir/scalar.h"

enum { MOST = 8 };                                         /* entries of a list before it is cut */

static void say_type(xl_buf *b, const xl_type *t)
{
    switch (t->kind) {
    case XL_TY_TENSOR: case XL_TY_BUFFER:
        if (t->unranked)
            xl_buf_puts(b, "*x");
        for (uint32_t i = 0; i < t->rank; i++) {
            if (t->dims[i] >= 0)
                xl_buf_printf(b, "%lldx", (long long)t->dims[i]);
            else if (t->bounds && t->bounds[i] >= 0)
                xl_buf_printf(b, "<=%lldx", (long long)t->bounds[i]);
            else
                xl_buf_puts(b, "?x");
        }
        xl_buf_printf(b, "%s%s", t->quant ? "quantised " : "", xl_dtypes[t->dtype].text);
        break;
    case XL_TY_TOKEN: xl_buf_puts(b, "token"); break;
    case XL_TY_NONE: xl_buf_puts(b, "none"); break;
    case XL_TY_OPAQUE: xl_buf_str(b, t->text); break;
    case XL_TY_TUPLE: case XL_TY_FUTURE: case XL_TY_FUNC:
        xl_buf_puts(b, t->kind == XL_TY_TUPLE ? "tuple(" : t->kind == XL_TY_FUTURE ? "future(" : "function(");
        for (uint32_t i = 0; i < t->nelem; i++) {
            xl_buf_puts(b, i ? ", " : "");
            say_type(b, t->elem[i]);
        }
        xl_buf_putc(b, ')');
        break;
    }
}

static void number(xl_buf *b, double v, int digits)
{
    char text[40];
    if (v == (double)(int64_t)(fabs(v) < 1e7 ? v : 0) && (v != 0 || !signbit(v))) {
        xl_buf_printf(b, "%.0f", v);                       /* 100, where %g would say 1e+02 */
        return;
    }
    for (int p = 1; p <= digits; p++) {                    /* the shortest that reads back */
        double back;
        snprintf(text, sizeof text, "%.*g", p, v);
        if (xl_str_f64(xl_str_of(text), &back) && (digits > 9 ? back == v : (float)back == (float)v))
            break;
    }
    xl_buf_puts(b, text);
}

static void element(xl_buf *b, const xl_attr *a, int64_t i)
{
    size_t size = xl_dtype_bytes(a->dtype), at = a->splat ? 0 : (size_t)i * size;
    xl_dclass k = xl_dtype_class(a->dtype);
    if (at + size > a->data.n)
        return;
    if (k == XL_CLASS_PRED)
        xl_buf_puts(b, a->data.p[at] ? "true" : "false");
    else if (k == XL_CLASS_UINT)
        xl_buf_printf(b, "%llu", (unsigned long long)xl_dense_int(a, i));
    else if (k == XL_CLASS_INT)
        xl_buf_printf(b, "%lld", (long long)xl_dense_int(a, i));
    else if (k == XL_CLASS_COMPLEX) {
        xl_dtype part = xl_dtype_part(a->dtype);
        xl_buf_putc(b, '(');
        number(b, xl_scalar_get(part, a->data.p + at), part == XL_F64 ? 17 : 9);
        xl_buf_puts(b, ", ");
        number(b, xl_scalar_get(part, a->data.p + at + size / 2), part == XL_F64 ? 17 : 9);
        xl_buf_putc(b, ')');
    } else
        number(b, xl_scalar_get(a->dtype, a->data.p + at), a->dtype == XL_F64 ? 17 : 9);
}

static void say_axes(xl_buf *b, const xl_axis_ref *a, uint32_t n)
{
    xl_buf_puts(b, n == 1 ? "mesh axis " : "mesh axes ");
    for (uint32_t i = 0; i < n; i++) {
        xl_buf_printf(b, "%s'%.*s'", i ? ", " : "", XL_FMT(a[i].name));
        if (a[i].size)
            xl_buf_printf(b, " (its part of %lld after %lld)", (long long)a[i].size, (long long)a[i].pre);
    }
}

/* "split over mesh axis 'data' in dimension 0", "replicated". */
static void say_sharding(xl_buf *b, const xl_sharding *s)
{
    const char *join = "";
    uint32_t open = 0;
    for (uint32_t i = 0; i < s->rank; i++) {
        open += s->dim[i].open;
        if (!s->dim[i].naxis)
            continue;
        xl_buf_printf(b, "%s", *join ? join : "split over ");
        say_axes(b, s->dim[i].axis, s->dim[i].naxis);
        xl_buf_printf(b, " in dimension %u", i);
        join = ", over ";
    }
    if (xl_str_starts(s->mesh, XL_STR("maximal_mesh")))
        xl_buf_puts(b, "on one device");
    else if (!*join)
        xl_buf_puts(b, open ? "split as the compiler chooses" : "replicated");
    else if (open)
        xl_buf_printf(b, ", and further as the compiler chooses");
    if (s->nreplicated && (*join || open)) {
        xl_buf_puts(b, ", replicated over ");
        say_axes(b, s->replicated, s->nreplicated);
    }
    if (s->nunreduced) {
        xl_buf_puts(b, ", not yet reduced over ");
        say_axes(b, s->unreduced, s->nunreduced);
    }
}

static void say_attr(xl_buf *b, const xl_attr *a, int depth)
{
    if (!a || depth > 16) {
        xl_buf_puts(b, a ? "..." : "none");
        return;
    }
    const char *word;
    switch (a->kind) {
    case XL_AT_UNIT: xl_buf_puts(b, "set"); break;
    case XL_AT_BOOL: xl_buf_puts(b, a->i ? "true" : "false"); break;
    case XL_AT_INT: xl_buf_printf(b, "%lld", (long long)a->i); break;
    case XL_AT_FLOAT: number(b, a->f, a->dtype == XL_F64 ? 17 : 9); break;
    case XL_AT_STR: case XL_AT_OPAQUE:
        xl_buf_printf(b, "%.*s%s", (int)(a->str.n > 120 ? 120 : a->str.n), a->str.p, a->str.n > 120 ? "..." : "");
        break;
    case XL_AT_SYM: xl_buf_printf(b, "@%.*s", XL_FMT(a->str)); break;
    case XL_AT_TYPE: say_type(b, a->type); break;
    case XL_AT_ENUM:
        word = xl_enum_text(a->which, a->i);
        if (word)
            xl_buf_puts(b, word);
        else
            xl_buf_printf(b, "%lld", (long long)a->i);
        break;
    case XL_AT_INTS:
        xl_buf_putc(b, '[');
        for (uint32_t i = 0; i < a->n && i < 4 * MOST; i++)
            xl_buf_printf(b, "%s%lld", i ? ", " : "", (long long)a->ints[i]);
        xl_buf_puts(b, a->n > 4 * MOST ? ", ...]" : "]");
        break;
    case XL_AT_DENSE: {
        int64_t n = 0;
        if (!xl_type_count(a->type, &n))
            n = 0;
        if (a->type->rank == 0)
            element(b, a, 0);
        else if (a->splat) {
            xl_buf_puts(b, "all ");
            element(b, a, 0);
            xl_buf_puts(b, " in ");
            say_type(b, a->type);
        } else {
            xl_buf_putc(b, '[');
            for (int64_t i = 0; i < n && i < MOST; i++) {
                xl_buf_puts(b, i ? ", " : "");
                element(b, a, i);
            }
            xl_buf_puts(b, n > MOST ? ", ...]" : "]");
        }
        break;
    }
    case XL_AT_SHARDING: say_sharding(b, a->sharding); break;
    case XL_AT_MESH:
        for (uint32_t i = 0; i < a->mesh->naxis; i++)
            xl_buf_printf(b, "%s%.*s=%lld", i ? ", " : "", XL_FMT(a->mesh->axis[i].name),
                          (long long)a->mesh->axis[i].size);
        break;
    case XL_AT_LOC: xl_buf_puts(b, "a location"); break;
    case XL_AT_ARRAY:
        xl_buf_putc(b, '[');
        for (uint32_t i = 0; i < a->n && i < MOST; i++) {
            xl_buf_puts(b, i ? ", " : "");
            say_attr(b, a->item[i], depth + 1);
        }
        xl_buf_puts(b, a->n > MOST ? ", ...]" : "]");
        break;
    case XL_AT_DICT: case XL_AT_STRUCT:
        xl_buf_putc(b, '{');
        for (uint32_t i = 0; i < a->n && i < MOST; i++) {
            xl_buf_printf(b, "%s%.*s = ", i ? ", " : "", XL_FMT(a->key[i]));
            say_attr(b, a->item[i], depth + 1);
        }
        xl_buf_puts(b, a->n > MOST ? ", ...}" : "}");
        break;
    }
}

static xl_str keep(xl_arena *arena, xl_buf *b)
{
    xl_str s = xl_str_dup(arena, xl_buf_view(b));
    xl_buf_fini(b);
    return s;
}

xl_str xl_say_attr(xl_arena *arena, const xl_attr *a)
{
    xl_buf b = { 0 };
    say_attr(&b, a, 0);
    return keep(arena, &b);
}

xl_str xl_say_type(xl_arena *arena, const xl_type *t)
{
    xl_buf b = { 0 };
    say_type(&b, t);
    return keep(arena, &b);
}

xl_str xl_say_argument(xl_arena *arena, xl_str name)
{
    return xl_str_starts(name, XL_STR("argument ")) ? name : xl_strf(arena, "argument `%.*s`", XL_FMT(name));
}
