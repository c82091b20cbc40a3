/* Attributes into slots: whatever way a format writes them, one form. */
#include "ir/read.h"

/* A dense or plain list as INTS of d. */
static const xl_attr *as_ints(xl_module *m, const xl_attr *a, xl_dtype d)
{
    if (a->kind == XL_AT_INTS)
        return a->dtype == d ? a : xl_attr_ints(m, d, (xl_dims){ a->ints, a->n });
    if (a->kind == XL_AT_ARRAY) {
        int64_t *v = xl_new(&m->arena, int64_t, a->n);
        for (uint32_t i = 0; i < a->n; i++) {
            if (a->item[i]->kind != XL_AT_INT && a->item[i]->kind != XL_AT_BOOL)
                return NULL;
            v[i] = a->item[i]->i;
        }
        return xl_attr_ints(m, d, (xl_dims){ v, a->n });
    }
    int64_t n;
    xl_dclass cls = xl_dtype_class(a->dtype);
    if (a->kind != XL_AT_DENSE || (cls != XL_CLASS_INT && cls != XL_CLASS_UINT && cls != XL_CLASS_PRED) ||
        !xl_type_count(a->type, &n) || n > 1 << 20)        /* as many as no list of dimensions has */
        return NULL;
    int64_t *v = xl_new(&m->arena, int64_t, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        v[i] = xl_dense_int(a, i);
    return xl_attr_ints(m, d, (xl_dims){ v, (size_t)n });
}

static const xl_attr *pairs(xl_module *m, const xl_attr *a)
{
    int64_t n;
    if (a->kind == XL_AT_DENSE && !(a->type->rank == 2 && a->type->dims[1] == 2) && (!xl_type_count(a->type, &n) || n))
        return NULL;
    return as_ints(m, a, XL_I64);
}

static const xl_attr *as_bool(xl_module *m, const xl_attr *a)
{
    if (a->kind == XL_AT_UNIT)
        return xl_attr_bool(m, true);
    if (a->kind == XL_AT_INT)
        return xl_attr_bool(m, a->i != 0);
    return a->kind == XL_AT_BOOL ? a : NULL;
}

static const xl_attr *as_int(xl_module *m, const xl_attr *a, xl_dtype d)
{
    if (a->kind == XL_AT_DENSE) {                          /* old texts: dense<1> : tensor<i64> */
        int64_t n;
        xl_dclass cls = xl_dtype_class(a->dtype);
        if ((cls == XL_CLASS_INT || cls == XL_CLASS_UINT) && xl_type_count(a->type, &n) && n == 1)
            return xl_attr_int(m, d, xl_dense_int(a, 0));
        return NULL;
    }
    if (a->kind != XL_AT_INT && a->kind != XL_AT_ENUM)
        return NULL;
    return a->kind == XL_AT_INT && a->dtype == d ? a : xl_attr_int(m, d, a->i);
}

static const xl_attr *all_of(const xl_attr *a, xl_attr_kind kind)
{
    if (a->kind != XL_AT_ARRAY)
        return NULL;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->item[i]->kind != kind)
            return NULL;
    return a;
}

/* String arrays that stand for symbols or enumerators (VHLO, old texts). */
static const xl_attr *symbols(xl_module *m, const xl_attr *a)
{
    if (a->kind != XL_AT_ARRAY)
        return NULL;
    const xl_attr **v = xl_new(&m->arena, const xl_attr *, a->n);
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->item[i]->kind != XL_AT_SYM && a->item[i]->kind != XL_AT_STR)
            return NULL;
        v[i] = a->item[i]->kind == XL_AT_SYM ? a->item[i] : xl_attr_sym(m, a->item[i]->str);
    }
    return xl_attr_array(m, v, a->n);
}

static const xl_attr *as_enum(xl_module *m, const xl_attr *a, xl_enum e)
{
    int64_t v;
    if (a->kind == XL_AT_STR && xl_enum_find(e, a->str, &v))
        return xl_attr_enum(m, e, v);
    return a->kind == XL_AT_ENUM && a->which == e ? a : NULL;
}

static const xl_attr *precisions(xl_module *m, const xl_attr *a)
{
    if (a->kind != XL_AT_ARRAY)
        return NULL;
    const xl_attr **v = xl_new(&m->arena, const xl_attr *, a->n);
    for (uint32_t i = 0; i < a->n; i++)
        if (!(v[i] = as_enum(m, a->item[i], XL_ENUM_PRECISION)))
            return NULL;
    return xl_attr_array(m, v, a->n);
}

static const xl_attr *groups(xl_module *m, const xl_attr *a)
{
    int64_t n;
    if (a->kind == XL_AT_STRUCT || a->kind == XL_AT_OPAQUE)
        return a;
    if (a->kind != XL_AT_DENSE || a->dtype != XL_I64 || a->type->rank != 2 || !xl_type_count(a->type, &n) ||
        n > 1 << 24)
        return NULL;
    if (!a->splat)
        return a;
    xl_attr *all = xl_new(&m->arena, xl_attr, 1);          /* rows are read in place: written out */
    char *data = xl_arena_alloc(&m->arena, (size_t)n * 8);
    for (int64_t i = 0; i < n; i++)
        memcpy(data + 8 * i, a->data.p, 8);
    *all = *a;
    all->splat = false;
    all->data = (xl_str){ data, (size_t)n * 8 };
    return all;
}

/* #stablehlo.result_accuracy and #chlo.ragged_dot: a tolerance of zero is none, and so is an empty list. */
static const xl_attr *without_nothing(xl_module *m, const xl_attr *a)
{
    xl_str key[8];
    const xl_attr *item[8];
    uint32_t n = 0;
    if (!(xl_str_is(a->str, "stablehlo.result_accuracy") || xl_str_is(a->str, "chlo.ragged_dot")) || a->n > 8)
        return a;
    for (uint32_t i = 0; i < a->n; i++) {
        const xl_attr *v = a->item[i];
        if ((v->kind == XL_AT_INT && v->i == 0) || (v->kind == XL_AT_FLOAT && v->u == 0) ||
            (v->kind == XL_AT_INTS && v->n == 0))
            continue;
        key[n] = a->key[i];
        item[n++] = v;
    }
    return n == a->n ? a : xl_attr_struct(m, a->str, key, item, n);
}

static const xl_attr *coerce(xl_module *m, const xl_attr *a, const xl_attr_row *row)
{
    switch (row->want) {
    case XL_AK_I64: return as_int(m, a, XL_I64);
    case XL_AK_I32: return as_int(m, a, XL_I32);
    case XL_AK_F32: return a->kind == XL_AT_FLOAT ? a : NULL;
    case XL_AK_BOOL: return as_bool(m, a);
    case XL_AK_STR: return a->kind == XL_AT_STR ? a : a->kind == XL_AT_SYM ? xl_attr_str(m, a->str) : NULL;
    case XL_AK_SYM: return a->kind == XL_AT_SYM ? a : a->kind == XL_AT_STR ? xl_attr_sym(m, a->str) : NULL;
    case XL_AK_SYMS: return symbols(m, a);
    case XL_AK_DIMS: return as_ints(m, a, XL_I64);
    case XL_AK_PAIRS: return pairs(m, a);
    case XL_AK_BOOLS: return as_ints(m, a, XL_I1);
    case XL_AK_DENSE: return a->kind == XL_AT_DENSE ? a : NULL;
    case XL_AK_TYPE: return a->kind == XL_AT_TYPE ? a : NULL;
    case XL_AK_STRUCT: return a->kind == XL_AT_STRUCT ? without_nothing(m, a) : NULL;
    case XL_AK_DICT: return a->kind == XL_AT_DICT ? a : NULL;
    case XL_AK_ARRAY: return a->kind == XL_AT_ARRAY ? a : NULL;
    case XL_AK_STR_OR_DICT: return a->kind == XL_AT_STR || a->kind == XL_AT_DICT ? a : NULL;
    case XL_AK_PRECISIONS: return precisions(m, a);
    case XL_AK_GROUPS: return groups(m, a);
    case XL_AK_SHARDING: return a->kind == XL_AT_SHARDING ? a : NULL;
    case XL_AK_SHARDINGS: return all_of(a, XL_AT_SHARDING);
    case XL_AK_STRS: return all_of(a, XL_AT_STR);
    case XL_AK_ATTR: return a->kind == XL_AT_STRUCT ? without_nothing(m, a) : a;
    default: return as_enum(m, a, (xl_enum)(row->want - XL_AK_ATTR));
    }
}

static const char *take_apart(xl_module *m, xl_opcode code, const xl_attr **slot, const xl_attr *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const char *why = xl_slot_put(m, code, slot, a->key[i], a->item[i]);
        if (why)
            return *why ? why : "a struct attribute has a field the op does not know";
    }
    return NULL;
}

const char *xl_slot_put(xl_module *m, xl_opcode code, const xl_attr **slot, xl_str name, const xl_attr *a)
{
    int at = xl_slot_find(code, name);
    if (at >= 0) {
        const xl_attr *v = coerce(m, a, &xl_attr_rows[xl_ops[code].row0 + at]);
        if (!v && xl_attr_rows[xl_ops[code].row0 + at].def == XL_DEF_NONE && a->kind == XL_AT_TYPE &&
            a->type->kind == XL_TY_NONE)
            return NULL;                                   /* VHLO's way to say absent */
        if (!v)
            return "an attribute has a value of the wrong kind";
        slot[at] = v;
        return NULL;
    }
    if (a->kind == XL_AT_STRUCT) {
        static const char *const flat[] = { "dot", "gather", "scatter", "conv", "dot_algorithm" };
        static const char *const key[] = { "dot_dimension_numbers", "dimension_numbers", "scatter_dimension_numbers",
                                           "dimension_numbers", "algorithm" };
        for (size_t i = 0; i < sizeof flat / sizeof *flat; i++)
            if (xl_str_is(name, key[i]) && xl_str_starts(a->str, XL_STR("stablehlo.")) &&
                xl_str_is((xl_str){ a->str.p + 10, a->str.n - 10 }, flat[i]))
                return take_apart(m, code, slot, a);
        int id = xl_slot_find(code, XL_STR("channel_id")), type = xl_slot_find(code, XL_STR("channel_type"));
        if (xl_str_is(name, "channel_handle") && id >= 0) {
            const xl_attr *h = xl_dict_get(a, XL_STR("handle")), *t = xl_dict_get(a, XL_STR("type"));
            if (!h || h->kind != XL_AT_INT || !t || t->kind != XL_AT_INT)
                return "a channel handle needs handle and type";
            slot[id] = xl_attr_i64(m, h->i);
            if (type >= 0)                                 /* send and recv only: the portable form has no other */
                slot[type] = xl_attr_i64(m, t->i);
            return NULL;
        }
    }
    return "";
}
