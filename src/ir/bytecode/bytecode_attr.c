/* The attribute and type tables of MLIR bytecode: builtin, VHLO, StableHLO, CHLO, sdy and quant encodings, each entry
 * decoded when first used and remembered. Entries refer to each other by number, in any order: a cycle, a deep nest and
 * a small table that unfolds to a huge tree (its weight) are refused. */
#include <stdlib.h>

#include "ir/bytecode/bytecode.h"
#include "ir/num.h"

enum { DEPTH_MAX = 100, WEIGHT_MAX = 1 << 22 };

static xl_attr *make(xl_bc *r, xl_attr_kind kind)
{
    xl_attr *a = xl_new(&r->m->arena, xl_attr, 1);
    a->kind = kind;
    return a;
}

/* The string table lies in the module's arena already: no copy. */
static const xl_attr *make_str(xl_bc *r, xl_attr_kind kind, xl_str s)
{
    xl_attr *a = make(r, kind);
    a->str = s;
    return a;
}

static void newer(xl_bc *r, const xl_cur *c, const char *what, uint64_t code)
{
    xl_bc_fail(r, c->p, XL_CODE_UNIMPLEMENTED,
               "%s %llu is newer than this reader, which knows VHLO up to 1.20.0 (producer %.*s); serialise for an "
               "older version",
               what, (unsigned long long)code, XL_FMT(r->producer));
}

/* ---- pieces ----------------------------------------------------------------------------------------------------- */
static const xl_attr *sub(xl_bc *r, xl_cur *c, uint32_t *w)
{
    uint32_t i = xl_bc_attr_index(r, c);
    const xl_attr *a = xl_bc_attr(r, i);
    *w = *w + r->attr[i].weight < *w ? UINT32_MAX : *w + r->attr[i].weight;
    return a;
}

static const xl_type *subtype(xl_bc *r, xl_cur *c, uint32_t *w, bool *scalar)
{
    const uint8_t *at = c->p;
    uint64_t i = xl_bc_varint(r, c);
    if (i >= r->ntype)
        XL_BC_FAIL(r, at, "type %llu of %u", (unsigned long long)i, r->ntype);
    const xl_type *t = xl_bc_type(r, (uint32_t)i);
    if (w)
        *w = *w + r->type[i].weight < *w ? UINT32_MAX : *w + r->type[i].weight;
    if (scalar)
        *scalar = r->type[i].scalar;
    return t;
}

/* An element type: its dtype, and the quantisation if there is one. */
static const xl_type *element(xl_bc *r, xl_cur *c)
{
    bool scalar;
    const uint8_t *at = c->p;
    const xl_type *t = subtype(r, c, NULL, &scalar);
    if (!scalar)
        XL_BC_FAIL(r, at, "a tensor's element type must be a number, not a tensor or another container");
    return t;
}

static xl_dims dims(xl_bc *r, xl_cur *c)
{
    uint32_t n = xl_bc_count(r, c, 1);
    int64_t *p = xl_new(&r->tmp, int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        p[i] = xl_bc_svarint(r, c);
    return (xl_dims){ p, n };
}

static const xl_attr *int_list(xl_bc *r, xl_cur *c) { return xl_attr_dims(r->m, dims(r, c)); }
static const xl_attr *int_one(xl_bc *r, xl_cur *c) { return xl_attr_i64(r->m, xl_bc_svarint(r, c)); }

static uint64_t apint(xl_bc *r, xl_cur *c, unsigned bits)
{
    if (bits <= 8)
        return xl_bc_byte(r, c);
    return (uint64_t)xl_bc_svarint(r, c);
}

static int64_t sign_extend(uint64_t u, unsigned bits, bool is_signed)
{
    if (bits < 64) {
        u &= (1ull << bits) - 1;
        if (is_signed && (u >> (bits - 1)))
            u |= ~0ull << bits;
    }
    return (int64_t)u;
}

static const xl_attr *float_attr(xl_bc *r, xl_cur *c, xl_dtype d)
{
    if (xl_dtype_class(d) != XL_CLASS_FLOAT)
        XL_BC_FAIL(r, c->p, "a float attribute of type %s", xl_dtypes[d].text);
    unsigned bits = xl_dtypes[d].bits;
    uint64_t u = apint(r, c, bits);
    if (bits < 64)
        u &= (1ull << bits) - 1;
    return xl_attr_float(r->m, d, u, xl_num_value(d, u));
}

static const xl_attr *int_attr(xl_bc *r, xl_cur *c, xl_dtype d)
{
    xl_dclass k = xl_dtype_class(d);
    if (k != XL_CLASS_INT && k != XL_CLASS_UINT && k != XL_CLASS_PRED)
        XL_BC_FAIL(r, c->p, "an integer attribute of type %s", xl_dtypes[d].text);
    uint64_t u = apint(r, c, xl_dtypes[d].bits);
    if (d == XL_I1)
        return xl_attr_bool(r->m, u & 1);
    return xl_attr_int(r->m, d, sign_extend(u, xl_dtypes[d].bits, k == XL_CLASS_INT));
}

static const xl_attr *dense(xl_bc *r, const uint8_t *at, const xl_type *t, xl_str blob)
{
    int64_t n;
    if (t->kind != XL_TY_TENSOR || !xl_type_count(t, &n))
        XL_BC_FAIL(r, at, "a constant must have a tensor type with known dimensions");
    size_t elem = xl_dtype_bytes(t->dtype);
    if (n == 0 && blob.n <= elem)                          /* a splat over no elements still says which */
        return xl_attr_dense(r->m, t, (xl_str){ blob.p, 0 });
    if (t->dtype == XL_I1) { /* a bit each, a byte each, or one for all: told by the size */
        size_t packed = (size_t)((uint64_t)n + 7) / 8;
        uint8_t first = blob.n ? (uint8_t)blob.p[0] : 0, one;
        if (blob.n == 1 && (first == 0xff || ((uint64_t)n > 8 && n != 1))) {
            one = first != 0;
            return xl_attr_dense(r->m, t, (xl_str){ (char *)&one, 1 });
        }
        if (blob.n == packed && (int64_t)blob.n != n) {
            char *b = xl_arena_alloc(&r->tmp, packed * 8);
            for (size_t i = 0; i < packed; i++)
                for (int k = 0; k < 8; k++)
                    b[8 * i + (size_t)k] = (char)(((uint8_t)blob.p[i] >> k) & 1);
            return xl_attr_dense(r->m, t, (xl_str){ b, (size_t)n });
        }
        if ((int64_t)blob.n == n) {
            char *b = xl_arena_alloc(&r->tmp, (size_t)n);
            for (int64_t i = 0; i < n; i++)
                b[i] = blob.p[i] != 0;
            return xl_attr_dense(r->m, t, (xl_str){ b, (size_t)n });
        }
    } else if ((blob.n == elem && n > 0) || ((uint64_t)n <= SIZE_MAX / elem && blob.n == (uint64_t)n * elem)) {
        if (xl_dtypes[t->dtype].bits < 8) {                /* the bits above the value are zero in our form */
            uint8_t mask = (uint8_t)((1u << xl_dtypes[t->dtype].bits) - 1);
            char *b = xl_arena_alloc(&r->tmp, blob.n);
            for (size_t i = 0; i < blob.n; i++)
                b[i] = (char)((uint8_t)blob.p[i] & mask);
            blob.p = b;
        }
        return xl_attr_dense(r->m, t, blob);
    }
    XL_BC_FAIL(r, at, "a constant of %lld elements of %zu bytes cannot have %zu bytes of data", (long long)n, elem,
               blob.n);
}

static const xl_attr *enumeration(xl_bc *r, xl_cur *c, xl_enum e)
{
    const uint8_t *at = c->p;
    uint64_t v = xl_bc_varint(r, c);
    if (v > INT32_MAX || !xl_enum_text(e, (int64_t)v))
        XL_BC_FAIL(r, at, "%s has no value %llu", xl_enum_name(e), (unsigned long long)v);
    return xl_attr_enum(r->m, e, (int64_t)v);
}

static const xl_attr *array(xl_bc *r, xl_cur *c, uint32_t *w)
{
    uint32_t n = xl_bc_count(r, c, 1);
    const xl_attr **item = xl_new(&r->m->arena, const xl_attr *, n);
    for (uint32_t i = 0; i < n; i++)
        item[i] = sub(r, c, w);
    xl_attr *a = make(r, XL_AT_ARRAY);
    a->n = n;
    a->item = item;
    return a;
}

static int by_key(const void *a, const void *b)
{
    return xl_str_cmp(*(const xl_str *)a, *(const xl_str *)b);
}

static const xl_attr *dict(xl_bc *r, xl_cur *c, uint32_t *w)
{
    uint32_t n = xl_bc_count(r, c, 2);
    struct pair { xl_str key; const xl_attr *item; } *p = xl_new(&r->tmp, struct pair, n);
    bool sorted = true;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *at = c->p;
        const xl_attr *k = sub(r, c, w);
        if (k->kind != XL_AT_STR)
            XL_BC_FAIL(r, at, "a dictionary key must be a string");
        p[i].key = k->str;
        p[i].item = sub(r, c, w);
        sorted = sorted && (i == 0 || xl_str_cmp(p[i - 1].key, p[i].key) < 0);
    }
    if (!sorted)
        qsort(p, n, sizeof *p, by_key);
    xl_str *key = xl_new(&r->m->arena, xl_str, n);
    const xl_attr **item = xl_new(&r->m->arena, const xl_attr *, n);
    for (uint32_t i = 0; i < n; i++) {
        if (i && xl_str_eq(p[i - 1].key, p[i].key))
            XL_BC_FAIL(r, c->p, "a dictionary has the key '%.*s' twice", XL_FMT(p[i].key));
        key[i] = p[i].key;
        item[i] = p[i].item;
    }
    xl_attr *a = make(r, XL_AT_DICT);
    a->n = n;
    a->key = key;
    a->item = item;
    return a;
}

static const xl_attr *structure(xl_bc *r, const char *name, uint32_t n, const char *const *key,
                                const xl_attr *const *item)
{
    xl_str k[9];
    for (uint32_t i = 0; i < n; i++)
        k[i] = xl_str_of(key[i]);
    return xl_attr_struct(r->m, xl_str_of(name), k, item, n);
}
/* Zeros are left out, as in text. */
static const xl_attr *result_accuracy(xl_bc *r, xl_cur *c, uint32_t *w)
{
    const xl_attr *atol = float_attr(r, c, XL_F64), *rtol = float_attr(r, c, XL_F64), *ulps = int_one(r, c);
    const char *key[4];
    const xl_attr *item[4];
    uint32_t n = 0;
    key[n] = "mode";
    item[n++] = sub(r, c, w);
    if (atol->u) {
        key[n] = "atol";
        item[n++] = atol;
    }
    if (rtol->u) {
        key[n] = "rtol";
        item[n++] = rtol;
    }
    if (ulps->i) {
        key[n] = "ulps";
        item[n++] = ulps;
    }
    return structure(r, "stablehlo.result_accuracy", n, key, item);
}

static const xl_attr *operand_alias(xl_bc *r, xl_cur *c)
{
    const xl_attr *out = int_list(r, c), *operand = int_one(r, c), *in = int_list(r, c);
    const char *const key[] = { "operand_index", "operand_tuple_indices", "output_tuple_indices" };
    const xl_attr *const item[] = { operand, in, out };
    return structure(r, "stablehlo.output_operand_alias", 3, key, item);
}

/* (pre)size, as two integers. */
static const xl_attr *sub_axis(xl_bc *r, xl_cur *c)
{
    int64_t v[2];
    v[0] = xl_bc_svarint(r, c);
    v[1] = xl_bc_svarint(r, c);
    return xl_attr_dims(r->m, (xl_dims){ v, 2 });
}

static const xl_attr *axis_ref(xl_bc *r, const xl_attr *name, const xl_attr *part)
{
    const char *const key[] = { "name", "sub_axis_info" };
    const xl_attr *const item[] = { name, part };
    return structure(r, "stablehlo.axis_ref", part ? 2 : 1, key, item);
}

static const xl_attr *mesh_axis(xl_bc *r, const xl_attr *name, const xl_attr *size)
{
    const char *const key[] = { "name", "size" };
    const xl_attr *const item[] = { name, size };
    return structure(r, "stablehlo.mesh_axis", 2, key, item);
}

static const xl_attr *stablehlo_mesh(xl_bc *r, const xl_attr *axes, const xl_attr *ids)
{
    const char *const key[] = { "axes", "device_ids" };
    const xl_attr *const item[] = { axes, ids };
    return structure(r, "stablehlo.mesh", ids ? 2 : 1, key, item);
}

static const xl_attr *mesh_axes(xl_bc *r, const xl_attr *mesh, const xl_attr *axes)
{
    const char *const key[] = { "axes", "mesh" };
    if (mesh->kind == XL_AT_STR)
        mesh = make_str(r, XL_AT_SYM, mesh->str);
    const xl_attr *const item[] = { axes, mesh };
    return structure(r, "stablehlo.replica_group_mesh_axes", 2, key, item);
}

/* ---- builtin ---------------------------------------------------------------------------------------------------- */
static const xl_attr *dense_array(xl_bc *r, xl_cur *c)
{
    const xl_type *t = element(r, c);
    const uint8_t *at = c->p;
    uint64_t n = xl_bc_varint(r, c);
    xl_str blob = xl_bc_blob(r, c);
    size_t size = xl_dtype_bytes(t->dtype);
    if (n > UINT32_MAX || blob.n / size != n || blob.n % size)
        XL_BC_FAIL(r, at, "an array of %llu %s with %zu bytes of data", (unsigned long long)n, xl_dtypes[t->dtype].text,
                   blob.n);
    xl_dclass k = xl_dtype_class(t->dtype);
    if (k == XL_CLASS_FLOAT && size <= 8) {
        const xl_attr **item = xl_new(&r->m->arena, const xl_attr *, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t u = 0;
            memcpy(&u, blob.p + i * size, size);
            item[i] = xl_attr_float(r->m, t->dtype, u, xl_num_value(t->dtype, u));
        }
        return xl_attr_array(r->m, item, (uint32_t)n);
    }
    int64_t *v = xl_new(&r->m->arena, int64_t, n);
    for (uint64_t i = 0; i < n && size <= 8; i++) {
        uint64_t u = 0;
        memcpy(&u, blob.p + i * size, size);
        v[i] = sign_extend(u, xl_dtypes[t->dtype].bits, k == XL_CLASS_INT);
    }
    xl_attr *a = make(r, XL_AT_INTS);
    a->dtype = t->dtype;
    a->n = (uint32_t)n;
    a->ints = v;
    return a;
}

static const xl_attr *dense_resource(xl_bc *r, xl_cur *c)
{
    const xl_type *t = subtype(r, c, NULL, NULL);
    const uint8_t *at = c->p;
    uint64_t i = xl_bc_varint(r, c);
    if (i >= r->nres || r->res[i].kind != 0 || r->res[i].at.p == r->res[i].at.end)
        XL_BC_FAIL(r, at, "the resource of a constant is not in this file");
    xl_cur b = r->res[i].at;
    uint64_t align = xl_bc_varint(r, &b), n = xl_bc_varint(r, &b);
    size_t off = (size_t)(b.p - r->base), pad = align ? (size_t)((align - off % align) % align) : 0;
    if (align > 4096 || pad > (size_t)(b.end - b.p) || n > (size_t)(b.end - b.p) - pad)
        XL_BC_FAIL(r, b.p, "a resource of %llu bytes does not fit in its section", (unsigned long long)n);
    return dense(r, at, t, (xl_str){ (const char *)b.p + pad, (size_t)n });
}

static const xl_attr *builtin_attr(xl_bc *r, uint32_t index, xl_cur *c, uint32_t *w)
{
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    const xl_attr *a;
    switch (code) {
    case 0: return array(r, c, w);
    case 1: return dict(r, c, w);
    case 2: return make_str(r, XL_AT_STR, xl_bc_str(r, c));
    case 3: {
        xl_str s = xl_bc_str(r, c);
        subtype(r, c, w, NULL);
        return make_str(r, XL_AT_STR, s);
    }
    case 4:
        a = sub(r, c, w);
        if (a->kind != XL_AT_STR)
            XL_BC_FAIL(r, at, "the name of a symbol must be a string");
        return make_str(r, XL_AT_SYM, a->str);
    case 5: {
        a = sub(r, c, w);
        if (a->kind != XL_AT_STR)
            XL_BC_FAIL(r, at, "the name of a symbol must be a string");
        uint32_t n = xl_bc_count(r, c, 1);
        xl_str s = a->str;
        for (uint32_t i = 0; i < n; i++) {
            a = sub(r, c, w);
            if (a->kind != XL_AT_SYM || s.n > 4096)
                XL_BC_FAIL(r, at, "a nested symbol that is not made of names");
            s = xl_strf(&r->m->arena, "%.*s::%.*s", XL_FMT(s), XL_FMT(a->str));
        }
        return make_str(r, XL_AT_SYM, s);
    }
    case 6: return xl_attr_type(r->m, subtype(r, c, w, NULL));
    case 7: return make(r, XL_AT_UNIT);
    case 8: return int_attr(r, c, element(r, c)->dtype);
    case 9: return float_attr(r, c, element(r, c)->dtype);
    case 10: case 11: case 12: case 13: case 14: case 15: case 22: {
        xl_attr *l = make(r, XL_AT_LOC);
        l->loc = xl_bc_loc(r, index);
        c->p = c->end;                                     /* decoded when somebody asks */
        return l;
    }
    case 16: return dense_resource(r, c);
    case 17: return dense_array(r, c);
    case 18: {
        const xl_type *t = subtype(r, c, NULL, NULL);
        return dense(r, at, t, xl_bc_blob(r, c));
    }
    case 21: return sub(r, c, w);
    case 19: case 20: case 23: case 24:
        xl_bc_fail(r, at, XL_CODE_UNIMPLEMENTED,
                   "builtin attribute %llu (strings, sparse or affine) has no place in StableHLO",
                   (unsigned long long)code);
    default: newer(r, &(xl_cur){ at, c->end }, "builtin attribute", code);
    }
    return NULL;
}

/* ---- VHLO ------------------------------------------------------------------------------------------------------- */
static const xl_attr *optional(xl_bc *r, xl_cur *c, uint32_t *w)
{
    const uint8_t *at = c->p;
    uint64_t v = xl_bc_varint(r, c);
    if (!(v & 1))
        return NULL;
    if (v >> 1 >= r->nattr)
        XL_BC_FAIL(r, at, "attribute %llu of %u", (unsigned long long)(v >> 1), r->nattr);
    const xl_attr *a = xl_bc_attr(r, (uint32_t)(v >> 1));
    *w += r->attr[v >> 1].weight;
    return a;
}

static const xl_attr *type_extensions(xl_bc *r, xl_cur *c)
{
    const char *const key[] = { "bounds" };
    const xl_attr *const item[] = { int_list(r, c) };
    return structure(r, "stablehlo.bounds", 1, key, item);
}

static const xl_attr *vhlo_attr(xl_bc *r, xl_cur *c, uint32_t *w)
{
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    const xl_attr *a, *b;
    switch (code) {
    case 1: return array(r, c, w);
    case 2: return xl_attr_bool(r->m, xl_bc_varint(r, c) != 0);
    case 3: return enumeration(r, c, XL_ENUM_COMPARISON_DIRECTION);
    case 4: return enumeration(r, c, XL_ENUM_COMPARISON_TYPE);
    case 5: return xl_attr_int(r->m, XL_I32, (int32_t)xl_bc_varint(r, c));
    case 6: return dict(r, c, w);
    case 7: return enumeration(r, c, XL_ENUM_FFT_TYPE);
    case 8: return float_attr(r, c, element(r, c)->dtype);
    case 9: return int_attr(r, c, element(r, c)->dtype);
    case 10: return operand_alias(r, c);
    case 11: return enumeration(r, c, XL_ENUM_PRECISION);
    case 12: return enumeration(r, c, XL_ENUM_RNG_ALGORITHM);
    case 13: return enumeration(r, c, XL_ENUM_RNG_DISTRIBUTION);
    case 14: return make_str(r, XL_AT_STR, xl_bc_str(r, c));
    case 15: {
        const xl_type *t = subtype(r, c, NULL, NULL);
        return dense(r, at, t, xl_bc_blob(r, c));
    }
    case 16: return enumeration(r, c, XL_ENUM_TRANSPOSE);
    case 17: return xl_attr_type(r->m, subtype(r, c, w, NULL));
    case 18: return type_extensions(r, c);
    case 19: return enumeration(r, c, XL_ENUM_RESULT_ACCURACY_MODE);
    case 20: return result_accuracy(r, c, w);
    case 21: return sub_axis(r, c);
    case 22:
        a = sub(r, c, w);
        return axis_ref(r, a, xl_bc_varint(r, c) ? sub(r, c, w) : NULL);
    case 23:
        a = sub(r, c, w);
        b = sub(r, c, w);
        return mesh_axes(r, a, b);
    case 24:
        a = sub(r, c, w);
        return mesh_axis(r, a, int_one(r, c));
    case 25:
        a = sub(r, c, w);
        return stablehlo_mesh(r, a, optional(r, c, w));
    default: newer(r, &(xl_cur){ at, c->end }, "vhlo attribute", code);
    }
    return NULL;
}

/* ---- StableHLO and CHLO ----------------------------------------------------------------------------------------- */
/* Structures are flattened into the slots of the same names: see xl_slot_put. */
static const xl_attr *lists(xl_bc *r, xl_cur *c, const char *name, uint32_t n, const char *const *key, uint32_t ints)
{
    const xl_attr *item[9];
    for (uint32_t i = 0; i < n; i++)
        item[i] = ints >> i & 1 ? int_one(r, c) : int_list(r, c);
    return structure(r, name, n, key, item);
}

static const xl_attr *stablehlo_attr(xl_bc *r, xl_cur *c, uint32_t *w)
{
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    const xl_attr *a;
    switch (code) {
    case 1: {
        static const char *const key[] = { "handle", "type" };
        return lists(r, c, "stablehlo.channel_handle", 2, key, 3);
    }
    case 2: return enumeration(r, c, XL_ENUM_COMPARISON_DIRECTION);
    case 3: return enumeration(r, c, XL_ENUM_COMPARISON_TYPE);
    case 4: {
        static const char *const key[] = { "input_batch_dimension",           "input_feature_dimension",
                                           "input_spatial_dimensions",        "kernel_input_feature_dimension",
                                           "kernel_output_feature_dimension", "kernel_spatial_dimensions",
                                           "output_batch_dimension",          "output_feature_dimension",
                                           "output_spatial_dimensions" };
        return lists(r, c, "stablehlo.conv", 9, key, 0333);
    }
    case 5: {
        static const char *const key[] = { "lhs_batching_dimensions", "rhs_batching_dimensions",
                                           "lhs_contracting_dimensions", "rhs_contracting_dimensions" };
        return lists(r, c, "stablehlo.dot", 4, key, 0);
    }
    case 6: return enumeration(r, c, XL_ENUM_FFT_TYPE);
    case 7: {
        static const char *const key[] = { "offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                                           "start_indices_batching_dims", "start_index_map", "index_vector_dim" };
        return lists(r, c, "stablehlo.gather", 6, key, 1 << 5);
    }
    case 8: return enumeration(r, c, XL_ENUM_PRECISION);
    case 9: return enumeration(r, c, XL_ENUM_RNG_ALGORITHM);
    case 10: return enumeration(r, c, XL_ENUM_RNG_DISTRIBUTION);
    case 11: {
        static const char *const key[] = { "update_window_dims", "inserted_window_dims", "input_batching_dims",
            "scatter_indices_batching_dims", "scatter_dims_to_operand_dims", "index_vector_dim" };
        return lists(r, c, "stablehlo.scatter", 6, key, 1 << 5);
    }
    case 12: return enumeration(r, c, XL_ENUM_TRANSPOSE);
    case 13: return type_extensions(r, c);
    case 14: return operand_alias(r, c);
    case 15: {
        const xl_attr *item[7];
        static const char *const key[] = { "lhs_precision_type",          "rhs_precision_type",
                                           "accumulation_type",           "lhs_component_count",
                                           "rhs_component_count",         "num_primitive_operations",
                                           "allow_imprecise_accumulation" };
        for (int i = 0; i < 3; i++)
            item[i] = xl_attr_type(r->m, subtype(r, c, w, NULL));
        for (int i = 3; i < 6; i++)
            item[i] = int_one(r, c);
        item[6] = xl_attr_bool(r->m, xl_bc_byte(r, c) != 0);
        return structure(r, "stablehlo.dot_algorithm", 7, key, item);
    }
    case 16: return enumeration(r, c, XL_ENUM_RESULT_ACCURACY_MODE);
    case 17: return result_accuracy(r, c, w);
    case 18:
        a = sub(r, c, w);
        return mesh_axes(r, a, array(r, c, w));
    case 19: return sub_axis(r, c);
    case 20:
        a = make_str(r, XL_AT_STR, xl_bc_str(r, c));
        return axis_ref(r, a, xl_bc_byte(r, c) ? sub(r, c, w) : NULL);
    case 21:
        a = make_str(r, XL_AT_STR, xl_bc_str(r, c));
        return mesh_axis(r, a, int_one(r, c));
    case 22:
        a = sub(r, c, w);
        return stablehlo_mesh(r, a, xl_bc_byte(r, c) ? sub(r, c, w) : NULL);
    default: newer(r, &(xl_cur){ at, c->end }, "stablehlo attribute", code);
    }
    return NULL;
}

/* ---- sdy -------------------------------------------------------------------------------------------------------- */
enum { SDY_MANUAL_AXES, SDY_MESH_AXIS, SDY_MESH, SDY_SUB_AXIS, SDY_AXIS_REF, SDY_DIM, SDY_SHARDING, SDY_PER_VALUE,
       SDY_DIM_MAPPING, SDY_TENSOR_MAPPING, SDY_RULE, SDY_AXIS_LIST, SDY_AXIS_LISTS, SDY_A2A, SDY_A2AS, SDY_SHARDING2,
       SDY_PER_VALUE2, SDY_SHARDING3 };

/* The pieces of a sharding are read where they are used: they are small and have no life of their own. */
static xl_cur piece(xl_bc *r, xl_cur *c, uint64_t want, const char *what)
{
    const uint8_t *at = c->p;
    xl_bc_entry *e = &r->attr[xl_bc_attr_index(r, c)];
    xl_cur p = e->at;
    if (!e->custom || r->dialect[e->dialect].kind != XL_BC_SDY || xl_bc_varint(r, &p) != want)
        XL_BC_FAIL(r, at, "%s is expected here", what);
    return p;
}

static xl_axis_ref sdy_axis_ref(xl_bc *r, xl_cur *c)
{
    xl_cur p = piece(r, c, SDY_AXIS_REF, "a mesh axis reference");
    xl_axis_ref a = { xl_bc_str(r, &p), 0, 0 };
    uint64_t part = xl_bc_varint(r, &p);
    if (part & 1) {
        if (part >> 1 >= r->nattr)
            XL_BC_FAIL(r, p.p, "attribute %llu of %u", (unsigned long long)(part >> 1), r->nattr);
        xl_cur q = r->attr[part >> 1].at;
        if (xl_bc_varint(r, &q) != SDY_SUB_AXIS)
            XL_BC_FAIL(r, q.p, "a part of a mesh axis is expected here");
        a.pre = xl_bc_svarint(r, &q);
        a.size = xl_bc_svarint(r, &q);
    }
    return a;
}

static const xl_axis_ref *sdy_axes(xl_bc *r, xl_cur *c, uint32_t *n, uint32_t *w)
{
    *n = xl_bc_count(r, c, 1);
    *w += *n;
    xl_axis_ref *a = xl_new(&r->m->arena, xl_axis_ref, *n);
    for (uint32_t i = 0; i < *n; i++)
        a[i] = sdy_axis_ref(r, c);
    return a;
}

static const xl_mesh *sdy_mesh(xl_bc *r, xl_cur *c)
{
    xl_mesh *m = xl_new(&r->m->arena, xl_mesh, 1);
    m->naxis = xl_bc_count(r, c, 1);
    xl_mesh_axis *axis = xl_new(&r->m->arena, xl_mesh_axis, m->naxis);
    for (uint32_t i = 0; i < m->naxis; i++) {
        xl_cur p = piece(r, c, SDY_MESH_AXIS, "a mesh axis");
        axis[i].name = xl_bc_str(r, &p);
        axis[i].size = xl_bc_svarint(r, &p);
    }
    m->axis = axis;
    xl_dims ids = dims(r, c);
    int64_t *copy = xl_new(&r->m->arena, int64_t, ids.n);
    if (ids.n)
        memcpy(copy, ids.p, ids.n * sizeof *copy);
    m->ids = copy;
    m->nids = (uint32_t)ids.n;
    return m;
}

static const xl_attr *sdy_sharding(xl_bc *r, xl_cur *c, uint64_t code, uint32_t *w)
{
    xl_sharding *s = xl_new(&r->m->arena, xl_sharding, 1);
    const uint8_t *at = c->p;
    const xl_attr *mesh = sub(r, c, w);
    if (mesh->kind == XL_AT_MESH)
        s->inlined = mesh->mesh;
    else if (mesh->kind == XL_AT_SYM)
        s->mesh = mesh->str;
    else
        XL_BC_FAIL(r, at, "a sharding's mesh must be a name or a mesh");
    s->rank = xl_bc_count(r, c, 1);
    xl_dim_sharding *dim = xl_new(&r->m->arena, xl_dim_sharding, s->rank);
    for (uint32_t i = 0; i < s->rank; i++) {
        xl_cur p = piece(r, c, SDY_DIM, "the sharding of a dimension");
        dim[i].axis = sdy_axes(r, &p, &dim[i].naxis, w);
        dim[i].open = xl_bc_byte(r, &p) == 0;
        uint64_t prio = xl_bc_varint(r, &p);
        dim[i].priority = prio & 1 ? (int32_t)(prio >> 1 & INT32_MAX) : -1;
    }
    *w += s->rank;
    s->dim = dim;
    s->replicated = sdy_axes(r, c, &s->nreplicated, w);
    if (code != SDY_SHARDING)
        s->unreduced = sdy_axes(r, c, &s->nunreduced, w);
    if (code == SDY_SHARDING3)
        s->reduction = (int32_t)xl_bc_svarint(r, c);
    return xl_attr_sharding(r->m, s);
}

/* ---- sdy attributes that are kept as text, spelled as sdy prints them -------------------------------------------- */
static void put_axis(xl_buf *b, const xl_axis_ref *a)
{
    xl_buf_printf(b, "\"%.*s\"", XL_FMT(a->name));
    if (a->size)
        xl_buf_printf(b, ":(%lld)%lld", (long long)a->pre, (long long)a->size);
}

static void put_axis_list(xl_bc *r, xl_cur *c, xl_buf *b, uint32_t *w)
{
    uint32_t n;
    const xl_axis_ref *a = sdy_axes(r, c, &n, w);
    xl_buf_putc(b, '{');
    for (uint32_t i = 0; i < n; i++) {
        xl_buf_puts(b, i ? ", " : "");
        put_axis(b, &a[i]);
    }
    xl_buf_putc(b, '}');
}

/* i..z, then z_1, z_2, ...: sdy's names of factors. */
static void put_factor(xl_buf *b, int64_t i)
{
    if (i < 18)
        xl_buf_putc(b, (char)('i' + i));
    else
        xl_buf_printf(b, "z_%lld", (long long)(i - 17));
}

static void put_mappings(xl_bc *r, xl_cur *c, xl_buf *b, uint32_t *w)
{
    uint32_t n = xl_bc_count(r, c, 1);
    xl_buf_putc(b, '(');
    for (uint32_t i = 0; i < n; i++) {
        xl_cur t = piece(r, c, SDY_TENSOR_MAPPING, "a tensor mapping");
        uint32_t rank = xl_bc_count(r, &t, 1);
        *w += rank;
        xl_buf_puts(b, i ? ", [" : "[");
        for (uint32_t k = 0; k < rank; k++) {
            xl_cur d = piece(r, &t, SDY_DIM_MAPPING, "a dimension mapping");
            xl_dims f = dims(r, &d);
            xl_buf_puts(b, k ? ", " : "");
            for (size_t j = 0; j < f.n; j++)
                put_factor(b, f.p[j]);
        }
        xl_buf_putc(b, ']');
    }
    xl_buf_putc(b, ')');
}

static void put_rule(xl_bc *r, xl_cur *c, xl_buf *b, uint32_t *w)
{
    static const char *const set[] = { " reduction={", " need_replication={", " permutation={",
                                       " blocked_propagation={" };
    xl_dims size = dims(r, c);
    xl_buf_puts(b, "#sdy.op_sharding_rule<");
    put_mappings(r, c, b, w);
    xl_buf_puts(b, "->");
    put_mappings(r, c, b, w);
    xl_buf_puts(b, " {");
    for (size_t i = 0; i < size.n; i++) {
        xl_buf_puts(b, i ? ", " : "");
        put_factor(b, (int64_t)i);
        xl_buf_printf(b, "=%lld", (long long)size.p[i]);
    }
    xl_buf_putc(b, '}');
    for (int k = 0; k < 4; k++) {
        xl_dims f = dims(r, c);
        if (f.n == 0)
            continue;
        xl_buf_puts(b, set[k]);
        for (size_t i = 0; i < f.n; i++) {
            xl_buf_puts(b, i ? ", " : "");
            put_factor(b, f.p[i]);
        }
        xl_buf_putc(b, '}');
    }
    xl_buf_puts(b, xl_bc_byte(r, c) ? ", custom>" : ">");
}

static void put_sdy(xl_bc *r, xl_cur *c, uint64_t code, xl_buf *b, uint32_t *w)
{
    switch (code) {
    case SDY_AXIS_LIST:
        /* the ops' own forms have the list alone */
        put_axis_list(r, c, b, w);
        break;
    case SDY_AXIS_LISTS: {
        uint32_t n = xl_bc_count(r, c, 1);
        xl_buf_putc(b, '[');
        for (uint32_t i = 0; i < n; i++) {
            xl_cur p = piece(r, c, SDY_AXIS_LIST, "a list of mesh axes");
            xl_buf_puts(b, i ? ", " : "");
            put_axis_list(r, &p, b, w);
        }
        xl_buf_putc(b, ']');
        break;
    }
    case SDY_A2AS: {
        uint32_t n = xl_bc_count(r, c, 1);
        xl_buf_putc(b, '[');
        for (uint32_t i = 0; i < n; i++) {
            xl_cur p = piece(r, c, SDY_A2A, "an all-to-all parameter");
            xl_buf_puts(b, i ? ", " : "");
            put_axis_list(r, &p, b, w);
            int64_t from = xl_bc_svarint(r, &p), to = xl_bc_svarint(r, &p);
            xl_buf_printf(b, ": %lld->%lld", (long long)from, (long long)to);
        }
        xl_buf_putc(b, ']');
        break;
    }
    default:
        put_rule(r, c, b, w);
        break;
    }
}

static const xl_attr *sdy_attr(xl_bc *r, xl_cur *c, uint32_t *w)
{
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    switch (code) {
    case SDY_MANUAL_AXES: return array(r, c, w);
    case SDY_MESH: return xl_attr_mesh(r->m, sdy_mesh(r, c));
    case SDY_SHARDING: case SDY_SHARDING2: case SDY_SHARDING3: return sdy_sharding(r, c, code, w);
    case SDY_PER_VALUE: case SDY_PER_VALUE2: return array(r, c, w);
    case SDY_RULE: case SDY_AXIS_LIST: case SDY_AXIS_LISTS: case SDY_A2AS: {
        xl_buf *b = &r->text;                              /* the reader frees it, however it leaves */
        b->n = 0;
        put_sdy(r, c, code, b, w);
        return xl_attr_opaque(r->m, xl_buf_view(b));
    }
    case SDY_MESH_AXIS:
    case SDY_SUB_AXIS:
    case SDY_AXIS_REF:
    case SDY_DIM:
    case SDY_DIM_MAPPING:
    case SDY_TENSOR_MAPPING:
    case SDY_A2A:
        XL_BC_FAIL(r, at, "sdy attribute %llu is a part of others and cannot stand alone", (unsigned long long)code);
    default: newer(r, &(xl_cur){ at, c->end }, "sdy attribute", code);
    }
    return NULL;
}

/* ---- types ------------------------------------------------------------------------------------------------------ */
static const xl_type *scalar(xl_bc *r, xl_dtype d) { return xl_type_scalar(r->m, d); }

static const xl_type *container(xl_bc *r, xl_cur *c, xl_type_kind kind, uint32_t *w)
{
    uint32_t n = xl_bc_count(r, c, 1);
    const xl_type **elem = xl_new(&r->tmp, const xl_type *, n);
    for (uint32_t i = 0; i < n; i++)
        elem[i] = subtype(r, c, w, NULL);
    if (*w > WEIGHT_MAX)
        XL_BC_FAIL(r, c->p, "a type of more than %d parts", WEIGHT_MAX);
    return xl_type_intern(r->m, &(xl_type){ .kind = kind, .nelem = n, .elem = elem });
}

static const xl_type *function(xl_bc *r, xl_cur *c, uint32_t *w)
{
    uint32_t nin = xl_bc_count(r, c, 1);
    const xl_type **in = xl_new(&r->tmp, const xl_type *, nin);
    for (uint32_t i = 0; i < nin; i++)
        in[i] = subtype(r, c, w, NULL);
    uint32_t nout = xl_bc_count(r, c, 1);
    const xl_type **out = xl_new(&r->tmp, const xl_type *, nout);
    for (uint32_t i = 0; i < nout; i++)
        out[i] = subtype(r, c, w, NULL);
    if (*w > WEIGHT_MAX)
        XL_BC_FAIL(r, c->p, "a type of more than %d parts", WEIGHT_MAX);
    return xl_type_func(r->m, in, nin, out, nout);
}

static const xl_type *shaped(xl_bc *r, xl_cur *c, xl_type_kind kind, const xl_attr *encoding)
{
    const uint8_t *at = c->p;
    xl_dims d = dims(r, c);
    for (size_t i = 0; i < d.n; i++)
        if (d.p[i] < 0 && d.p[i] != XL_DYN)
            XL_BC_FAIL(r, at, "a dimension of %lld", (long long)d.p[i]);
    const xl_type *e = element(r, c);
    xl_type t = { .kind = kind, .dtype = e->dtype, .rank = (uint32_t)d.n, .dims = d.p, .quant = e->quant };
    if (encoding && encoding->kind == XL_AT_STRUCT && xl_str_is(encoding->str, "stablehlo.bounds")) {
        const xl_attr *b = encoding->item[0];
        if (b->n != t.rank)
            XL_BC_FAIL(r, at, "%u bounds for %u dimensions", b->n, t.rank);
        t.bounds = b->ints;
    } else {
        t.encoding = encoding;
    }
    return xl_type_intern(r->m, &t);
}

static const xl_type *quantised(xl_bc *r, xl_cur *c, bool per_axis)
{
    uint64_t flags = xl_bc_varint(r, c);
    xl_quant q = { .is_signed = flags & 1, .per_axis = per_axis };
    q.storage = element(r, c)->dtype;
    q.expressed = element(r, c)->dtype;
    const uint8_t *at = c->p;
    if (!per_axis) {
        double scale = float_attr(r, c, XL_F64)->f;
        int64_t zero = xl_bc_svarint(r, c);
        q.min = xl_bc_svarint(r, c);
        q.max = xl_bc_svarint(r, c);
        q.n = 1;
        q.scale = &scale;
        q.zero = &zero;
        return xl_type_intern(r->m, &(xl_type){ .kind = XL_TY_TENSOR, .dtype = q.storage, .quant = &q });
    }
    q.axis = (int64_t)xl_bc_varint(r, c);
    q.min = xl_bc_svarint(r, c);
    q.max = xl_bc_svarint(r, c);
    q.n = xl_bc_count(r, c, 1);
    double *scale = xl_new(&r->tmp, double, q.n);
    for (uint32_t i = 0; i < q.n; i++)
        scale[i] = float_attr(r, c, XL_F64)->f;
    xl_dims zero = dims(r, c);
    if (zero.n != q.n)
        XL_BC_FAIL(r, at, "%u scales and %zu zero points", q.n, zero.n);
    q.scale = scale;
    q.zero = zero.p;
    return xl_type_intern(r->m, &(xl_type){ .kind = XL_TY_TENSOR, .dtype = q.storage, .quant = &q });
}

static const xl_type *complex_of(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    xl_dtype d = element(r, c)->dtype;
    if (d != XL_F32 && d != XL_F64)
        XL_BC_FAIL(r, at, "complex numbers are of f32 or f64, not %s", xl_dtypes[d].text);
    return scalar(r, d == XL_F32 ? XL_C64 : XL_C128);
}

static const xl_type *integer(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    uint64_t v = xl_bc_varint(r, c), width = v >> 2;
    static const struct { uint8_t width; uint8_t s, u; } kinds[] = {
        { 1, XL_I1, XL_DT_NONE }, { 2, XL_I2, XL_U2 }, { 4, XL_I4, XL_U4 }, { 8, XL_I8, XL_U8 },
        { 16, XL_I16, XL_U16 }, { 32, XL_I32, XL_U32 }, { 64, XL_I64, XL_U64 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].width == width) {
            uint8_t d = (v & 3) == 2 ? kinds[i].u : kinds[i].s;
            if (d != XL_DT_NONE)
                return scalar(r, (xl_dtype)d);
        }
    XL_BC_FAIL(r, at, "StableHLO has no integers of %llu bits", (unsigned long long)width);
}

static const xl_type *unranked(xl_bc *r, xl_cur *c)
{
    const xl_type *e = element(r, c);
    return xl_type_intern(r->m,
                          &(xl_type){ .kind = XL_TY_TENSOR, .dtype = e->dtype, .quant = e->quant, .unranked = true });
}

static const xl_type *plain(xl_bc *r, xl_type_kind kind) { return xl_type_intern(r->m, &(xl_type){ .kind = kind }); }

static const xl_type *builtin_type(xl_bc *r, xl_cur *c, uint32_t *w, bool *is_scalar)
{
    static const uint8_t floats[] = {
        [3] = XL_BF16,           [4] = XL_F16,     [5] = XL_F32,       [6] = XL_F64,         [21] = XL_TF32,
        [22] = XL_F8E5M2,        [23] = XL_F8E4M3, [24] = XL_F8E4M3FN, [25] = XL_F8E5M2FNUZ, [26] = XL_F8E4M3FNUZ,
        [27] = XL_F8E4M3B11FNUZ, [28] = XL_F8E3M4, [29] = XL_F4E2M1FN, [30] = XL_F6E2M3FN,   [31] = XL_F6E3M2FN,
        [32] = XL_F8E8M0FNU
    };
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    const xl_attr *e;
    *is_scalar = true;
    if (code < sizeof floats && floats[code])
        return scalar(r, (xl_dtype)floats[code]);
    switch (code) {
    case 0: return integer(r, c);
    case 1: return scalar(r, XL_INDEX);
    case 9: return complex_of(r, c);
    }
    *is_scalar = false;
    switch (code) {
    case 2: return function(r, c, w);
    case 10: {
        const xl_type *t = shaped(r, c, XL_TY_BUFFER, NULL);
        sub(r, c, w);                                      /* the layout: row-major in all that StableHLO knows */
        return t;
    }
    case 12: return plain(r, XL_TY_NONE);
    case 13: return shaped(r, c, XL_TY_TENSOR, NULL);
    case 14:
        e = sub(r, c, w);
        return shaped(r, c, XL_TY_TENSOR, e);
    case 15: return container(r, c, XL_TY_TUPLE, w);
    case 18: return unranked(r, c);
    case 7: case 8: case 11: case 16: case 17: case 19: case 20:
        xl_bc_fail(r, at, XL_CODE_UNIMPLEMENTED,
                   "builtin type %llu (f80, f128, vectors, memory spaces) has no place in StableHLO",
                   (unsigned long long)code);
    default: newer(r, &(xl_cur){ at, c->end }, "builtin type", code);
    }
    return NULL;
}

static const xl_type *vhlo_type(xl_bc *r, xl_cur *c, uint32_t *w, bool *is_scalar)
{
    static const uint8_t numbers[] = { [0] = XL_I1,          [2] = XL_BF16,        [3] = XL_F16,
                                       [4] = XL_F32,         [5] = XL_F64,         [6] = XL_F8E4M3FN,
                                       [7] = XL_F8E5M2,      [9] = XL_INDEX,       [10] = XL_I4,
                                       [11] = XL_I8,         [12] = XL_I16,        [13] = XL_I32,
                                       [14] = XL_I64,        [15] = XL_U4,         [16] = XL_U8,
                                       [17] = XL_U16,        [18] = XL_U32,        [19] = XL_U64,
                                       [27] = XL_F8E4M3FNUZ, [28] = XL_F8E5M2FNUZ, [29] = XL_F8E4M3B11FNUZ,
                                       [31] = XL_I2,         [32] = XL_U2,         [34] = XL_TF32,
                                       [35] = XL_F8E4M3,     [36] = XL_F8E3M4,     [37] = XL_F4E2M1FN,
                                       [38] = XL_F6E2M3FN,   [39] = XL_F6E3M2FN,   [40] = XL_F8E8M0FNU };
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    const xl_attr *e;
    *is_scalar = true;
    if (code < sizeof numbers && numbers[code])
        return scalar(r, (xl_dtype)numbers[code]);
    switch (code) {
    case 1: return complex_of(r, c);
    case 24: return quantised(r, c, false);
    case 30: return quantised(r, c, true);
    }
    *is_scalar = false;
    switch (code) {
    case 8: return function(r, c, w);
    case 20: return shaped(r, c, XL_TY_TENSOR, NULL);
    case 21:
        e = sub(r, c, w);
        return shaped(r, c, XL_TY_TENSOR, e);
    case 22: return xl_type_token(r->m);
    case 23: return container(r, c, XL_TY_TUPLE, w);
    case 25: return unranked(r, c);
    case 26: return xl_type_intern(r->m, &(xl_type){ .kind = XL_TY_OPAQUE, .text = XL_STR("!shape.witness") });
    case 33: return plain(r, XL_TY_NONE);
    case 41: return shaped(r, c, XL_TY_BUFFER, NULL);
    case 42: return container(r, c, XL_TY_FUTURE, w);
    default: newer(r, &(xl_cur){ at, c->end }, "vhlo type", code);
    }
    return NULL;
}

static const xl_type *stablehlo_type(xl_bc *r, xl_cur *c, uint32_t *w)
{
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    if (code > 1)
        newer(r, &(xl_cur){ at, c->end }, "stablehlo type", code);
    return code == 0 ? xl_type_token(r->m) : container(r, c, XL_TY_FUTURE, w);
}

static const xl_type *quant_type(xl_bc *r, xl_cur *c)
{
    const uint8_t *at = c->p;
    uint64_t code = xl_bc_varint(r, c);
    if (code != 4 && code != 5)
        xl_bc_fail(r, at, XL_CODE_UNIMPLEMENTED, "quant type %llu is not a uniform one", (unsigned long long)code);
    return quantised(r, c, code == 5);
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */
static void enter(xl_bc *r, xl_bc_entry *e)
{
    if (e->busy)
        XL_BC_FAIL(r, e->at.p, "this attribute or type contains itself");
    if (++r->depth > DEPTH_MAX)
        XL_BC_FAIL(r, e->at.p, "attributes or types nest deeper than %d", DEPTH_MAX);
    e->busy = true;
}

static void leave(xl_bc *r, xl_bc_entry *e, const xl_cur *c)
{
    if (c->p != c->end)
        XL_BC_FAIL(r, c->p, "%zu bytes are left over in this attribute or type", (size_t)(c->end - c->p));
    if (e->weight > WEIGHT_MAX)
        XL_BC_FAIL(r, e->at.p, "this attribute or type unfolds to more than %d parts", WEIGHT_MAX);
    e->busy = false;
    r->depth--;
}

static xl_str entry_text(const xl_bc_entry *e)
{
    xl_str s = { (const char *)e->at.p, (size_t)(e->at.end - e->at.p) };
    if (s.n && s.p[s.n - 1] == 0)
        s.n--;
    return s;
}

const xl_type *xl_bc_type(xl_bc *r, uint32_t index)
{
    xl_bc_entry *e = &r->type[index];
    if (e->type)
        return e->type;
    enter(r, e);
    xl_cur c = e->at;
    uint32_t w = 1;
    bool is_scalar = false;
    const xl_type *t = NULL;
    if (!e->custom) {
        t = xl_bc_text_type(r, e, entry_text(e), &is_scalar);
        c.p = c.end;
    } else {
        switch (r->dialect[e->dialect].kind) {
        case XL_BC_BUILTIN: t = builtin_type(r, &c, &w, &is_scalar); break;
        case XL_BC_VHLO: t = vhlo_type(r, &c, &w, &is_scalar); break;
        case XL_BC_STABLEHLO: t = stablehlo_type(r, &c, &w); break;
        case XL_BC_QUANT:
            t = quant_type(r, &c);
            is_scalar = true;
            break;
        default:
            xl_bc_fail(r, c.p, XL_CODE_UNIMPLEMENTED, "types of dialect '%.*s' are not known here",
                       XL_FMT(r->dialect[e->dialect].name));
        }
    }
    e->weight = w;
    e->scalar = is_scalar;
    leave(r, e, &c);
    return e->type = t;
}

const xl_type *xl_bc_type_ref(xl_bc *r, xl_cur *c)
{
    uint32_t w = 0;
    const uint8_t *at = c->p;
    const xl_type *t = subtype(r, c, &w, NULL);
    xl_bc_charge(r, at, w);
    return t;
}

const xl_attr *xl_bc_attr(xl_bc *r, uint32_t index)
{
    xl_bc_entry *e = &r->attr[index];
    if (e->attr)
        return e->attr;
    enter(r, e);
    xl_cur c = e->at;
    uint32_t w = 1;
    const xl_attr *a = NULL;
    if (!e->custom) {
        a = xl_bc_text_attr(r, e, entry_text(e));
        c.p = c.end;
    } else {
        switch (r->dialect[e->dialect].kind) {
        case XL_BC_BUILTIN: a = builtin_attr(r, index, &c, &w); break;
        case XL_BC_VHLO: a = vhlo_attr(r, &c, &w); break;
        case XL_BC_STABLEHLO: a = stablehlo_attr(r, &c, &w); break;
        case XL_BC_CHLO: {
            uint64_t code = xl_bc_varint(r, &c);
            if (code > 1)
                newer(r, &e->at, "chlo attribute", code);
            a = enumeration(r, &c, code == 0 ? XL_ENUM_COMPARISON_DIRECTION : XL_ENUM_COMPARISON_TYPE);
            break;
        }
        case XL_BC_SDY: a = sdy_attr(r, &c, &w); break;
        default:
            xl_bc_fail(r, c.p, XL_CODE_UNIMPLEMENTED, "attributes of dialect '%.*s' are not known here",
                       XL_FMT(r->dialect[e->dialect].name));
        }
    }
    e->weight = w;
    leave(r, e, &c);
    return e->attr = a;
}

/* ---- locations -------------------------------------------------------------------------------------------------- */
enum { LOC_CALL = 10, LOC_FILE = 11, LOC_FUSED = 12, LOC_FUSED_META = 13, LOC_NAME = 14, LOC_RANGE = 22 };

static bool quiet_varint(xl_cur *c, uint64_t *out)
{
    if (c->p >= c->end)
        return false;
    if (*c->p & 1) {
        *out = *c->p++ >> 1;
        return true;
    }
    unsigned z = *c->p ? (unsigned)__builtin_ctz(*c->p) : 8;
    if ((size_t)(c->end - c->p) < z + 1)
        return false;
    uint64_t u = 0;
    if (z == 8)
        memcpy(&u, c->p + 1, 8);
    else {
        memcpy(&u, c->p, z + 1);
        u >>= z + 1;
    }
    c->p += z + 1;
    *out = u;
    return true;
}

static bool ref_loc(const xl_bc_locs *l, xl_cur *c, xl_loc *out)
{
    uint64_t i;
    if (!quiet_varint(c, &i) || i >= l->nattr)
        return false;
    out->id = l->loc_of[i];
    return true;
}

static bool ref_str(const xl_bc_locs *l, xl_cur *c, xl_str *out)
{
    uint64_t i;
    if (!quiet_varint(c, &i) || i >= l->nattr || l->str_of[i] == 0)
        return false;
    *out = l->str[l->str_of[i] - 1];
    return true;
}

/* What cannot be made sense of stays unknown: nobody should fail for a location. */
static void decode_loc(xl_module *m, xl_loc loc)
{
    const xl_bc_locs *l = m->loc_ctx;
    xl_loc_info *o = &m->loc[loc.id];
    if (o->kind != XL_LOC_UNKNOWN)
        return;
    xl_cur c = l->at[loc.id];
    xl_loc_info i = { 0 };
    uint64_t code, n, v[4] = { 0 };
    bool ok = quiet_varint(&c, &code);
    switch (ok ? code : 0) {
    case LOC_CALL:
        i.kind = XL_LOC_CALL;
        ok = ref_loc(l, &c, &i.a) && ref_loc(l, &c, &i.b);
        break;
    case LOC_NAME:
        i.kind = XL_LOC_NAME;
        ok = ref_str(l, &c, &i.str) && ref_loc(l, &c, &i.a);
        break;
    case LOC_FILE:
        i.kind = XL_LOC_FILE;
        ok = ref_str(l, &c, &i.str) && quiet_varint(&c, &v[0]) && quiet_varint(&c, &v[1]);
        i.line = (uint32_t)v[0];
        i.col = (uint32_t)v[1];
        break;
    case LOC_RANGE:
        i.kind = XL_LOC_FILE;
        ok = ref_str(l, &c, &i.str) && quiet_varint(&c, &n) && n <= 4;
        for (uint64_t k = 0; ok && k < n; k++)
            ok = quiet_varint(&c, &v[k]);
        i.line = (uint32_t)v[0];
        i.col = (uint32_t)v[1];
        if (ok && n >= 3) {
            i.end_line = (uint32_t)(n == 3 ? v[0] : v[2]);
            i.end_col = (uint32_t)v[n - 1];
        }
        break;
    case LOC_FUSED: case LOC_FUSED_META: {
        i.kind = XL_LOC_FUSED;
        ok = quiet_varint(&c, &n) && n <= (size_t)(c.end - c.p);
        xl_loc *list = ok ? xl_arena_try(&m->arena, n * sizeof *list) : NULL;
        ok = ok && list;
        for (uint64_t k = 0; ok && k < n; k++)
            ok = ref_loc(l, &c, &list[k]);
        i.list = list;
        i.n = (uint32_t)n;
        break;
    }
    default: ok = false;
    }
    if (ok)
        *o = i;
}

void xl_bc_locations(xl_bc *r)
{
    if (r->no_locations)
        return;
    xl_arena *a = &r->m->arena;
    uint32_t *loc_of = xl_new(a, uint32_t, r->nattr), *str_of = xl_new(a, uint32_t, r->nattr);
    uint32_t n = 1;
    size_t bytes = 0;
    for (uint32_t i = 0; i < r->nattr; i++) {
        const xl_bc_entry *e = &r->attr[i];
        if (!e->custom || r->dialect[e->dialect].kind != XL_BC_BUILTIN || e->at.p == e->at.end)
            continue;
        unsigned code = *e->at.p >> 1;
        if (code == 2) {
            xl_cur c = { e->at.p + 1, e->at.end };
            uint64_t s = xl_bc_varint(r, &c);
            str_of[i] = s < r->nstr ? (uint32_t)s + 1 : 0;
        } else if ((code >= LOC_CALL && code <= LOC_NAME) || code == LOC_RANGE) {
            loc_of[i] = n++;
            bytes += (size_t)(e->at.end - e->at.p);
        }
    }
    uint8_t *copy = xl_arena_alloc(a, bytes);
    xl_cur *at = xl_new(a, xl_cur, n);
    for (uint32_t i = 0; i < r->nattr; i++)
        if (loc_of[i]) {
            size_t size = (size_t)(r->attr[i].at.end - r->attr[i].at.p);
            memcpy(copy, r->attr[i].at.p, size);
            at[loc_of[i]] = (xl_cur){ copy, copy + size };
            copy += size;
        }
    xl_bc_locs *l = xl_new(a, xl_bc_locs, 1);
    *l =
        (xl_bc_locs){ .str = r->str, .nstr = r->nstr, .nattr = r->nattr, .loc_of = loc_of, .str_of = str_of, .at = at };
    r->loc_of = loc_of;
    r->m->loc = xl_new(a, xl_loc_info, n);
    r->m->nloc = r->m->caploc = n;
    r->m->loc_ctx = l;
    r->m->loc_decode = decode_loc;
}

xl_loc xl_bc_loc(xl_bc *r, uint32_t index) { return (xl_loc){ r->loc_of ? r->loc_of[index] : 0 }; }
