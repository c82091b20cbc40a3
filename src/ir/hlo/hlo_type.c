/* HLO's shapes, literals, layouts and shardings. */
#include <stdio.h>

#include "ir/hlo/hlo.h"

enum { TUPLE_DEPTH_MAX = 64 };

/* Element types: PrimitiveType, and the field of LiteralProto that has an array of them. */
static const struct { uint8_t dtype, primitive, literal; } elems[] = {
    { XL_I1, 1, 2 }, { XL_I8, 2, 15 }, { XL_I16, 3, 17 }, { XL_I32, 4, 4 }, { XL_I64, 5, 5 }, { XL_U8, 6, 3 },
    { XL_U16, 7, 16 }, { XL_U32, 8, 6 }, { XL_U64, 9, 7 }, { XL_F16, 10, 11 }, { XL_F32, 11, 8 }, { XL_F64, 12, 9 },
    { XL_C64, 15, 12 }, { XL_BF16, 16, 13 }, { XL_C128, 18, 18 }, { XL_F8E5M2, 19, 19 }, { XL_F8E4M3FN, 20, 20 },
    { XL_I4, 21, 21 }, { XL_U4, 22, 22 }, { XL_F8E4M3B11FNUZ, 23, 23 }, { XL_F8E5M2FNUZ, 24, 24 },
    { XL_F8E4M3FNUZ, 25, 25 }, { XL_I2, 26, 26 }, { XL_U2, 27, 27 }, { XL_F8E4M3, 28, 28 }, { XL_F8E3M4, 29, 29 },
    { XL_F4E2M1FN, 32, 32 }, { XL_F8E8M0FNU, 33, 33 }, { XL_F6E3M2FN, 35, 35 }, { XL_F6E2M3FN, 36, 36 }
};
enum { NELEM = sizeof elems / sizeof *elems };

static xl_dtype dtype_of(uint64_t primitive)
{
    for (size_t i = 0; i < NELEM; i++)
        if (elems[i].primitive == primitive)
            return (xl_dtype)elems[i].dtype;
    return XL_DT_NONE;
}

static uint32_t literal_field(xl_dtype d)
{
    for (size_t i = 0; i < NELEM; i++)
        if (elems[i].dtype == d)
            return elems[i].literal;
    return 0;
}

uint32_t xl_hlo_elem_bytes(uint64_t primitive)
{
    xl_dtype d = dtype_of(primitive);
    return d != XL_DT_NONE ? xl_dtype_bytes(d) : primitive != XL_HLO_TUPLE && primitive != XL_HLO_TOKEN;
}

const xl_type *xl_hlo_type(xl_hlo *h, xl_str shape)
{
    if (++h->depth > TUPLE_DEPTH_MAX)
        XL_HLO_FAIL(h, shape.p, "tuples nest deeper than %d", TUPLE_DEPTH_MAX);
    uint64_t kind = (uint64_t)xl_hlo_num(h, shape, XL_HLO_SHAPE_element_type);
    const xl_type *t;
    if (kind == XL_HLO_TUPLE) {
        xl_proto p = xl_proto_of(shape);
        xl_proto_field f;
        const xl_type **elem = NULL;
        uint32_t n = 0, cap = 0;
        while (xl_hlo_each(h, &p, XL_HLO_SHAPE_tuple_shapes, &f))
            XL_PUSH(&h->tmp, elem, n, cap, xl_hlo_type(h, f.bytes));
        t = xl_type_tuple(h->m, elem, n);
    } else if (kind == XL_HLO_TOKEN) {
        t = xl_type_token(h->m);
    } else {
        xl_dtype d = dtype_of(kind);
        if (d == XL_DT_NONE)
            xl_hlo_fail(h, shape.p, XL_CODE_UNIMPLEMENTED, "element type %llu of HLO has no counterpart in StableHLO",
                        (unsigned long long)kind);
        xl_dims dims = xl_hlo_ints(h, shape, XL_HLO_SHAPE_dimensions),
                dyn = xl_hlo_ints(h, shape, XL_HLO_SHAPE_is_dynamic_dimension);
        int64_t *dim = xl_new(&h->tmp, int64_t, dims.n), *bound = xl_new(&h->tmp, int64_t, dims.n);
        bool bounded = false;
        for (size_t i = 0; i < dims.n; i++) {
            dim[i] = dims.p[i];
            bound[i] = XL_DYN;
            if (i < dyn.n && dyn.p[i]) {
                bounded = bounded || dims.p[i] >= 0;
                bound[i] = dims.p[i] >= 0 ? dims.p[i] : XL_DYN;
                dim[i] = XL_DYN;
            } else if (dims.p[i] < 0) {
                XL_HLO_FAIL(h, shape.p, "a dimension of %lld", (long long)dims.p[i]);
            }
        }
        t = xl_type_bounded(h->m, d, (xl_dims){ dim, dims.n }, bounded ? bound : NULL);
    }
    h->depth--;
    return t;
}

uint32_t xl_hlo_nleaf(const xl_type *t)
{
    if (t->kind != XL_TY_TUPLE)
        return 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->nelem; i++)
        n += xl_hlo_nleaf(t->elem[i]);
    return n;
}

static const xl_type **fill_leaves(const xl_type *t, const xl_type **at)
{
    if (t->kind != XL_TY_TUPLE) {
        *at = t;
        return at + 1;
    }
    for (uint32_t i = 0; i < t->nelem; i++)
        at = fill_leaves(t->elem[i], at);
    return at;
}

xl_leaf_types xl_hlo_leaf_types(xl_hlo *h, const xl_type *t)
{
    uint32_t n = xl_hlo_nleaf(t);
    const xl_type **leaf = xl_new(&h->tmp, const xl_type *, n);
    fill_leaves(t, leaf);
    return (xl_leaf_types){ leaf, n };
}

/* ---- literals --------------------------------------------------------------------------------------------------- */
/* The field of LiteralProto that holds elements of this type. */
static bool is_varint(xl_dtype d) { return d == XL_I1 || d == XL_I32 || d == XL_I64 || d == XL_U32 || d == XL_U64; }

static void put_element(char *to, size_t size, uint64_t v)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (char)(v >> (8 * i));
}

/* The data lies in the order of the literal's layout; ours is row-major. */
static char *row_major(xl_hlo *h, const char *from, const xl_type *t, int64_t n, xl_dims minor)
{
    size_t size = xl_dtype_bytes(t->dtype);
    char *to = xl_arena_alloc(&h->tmp, (size_t)n * size);
    int64_t *stride = xl_new(&h->tmp, int64_t, t->rank), *at = xl_new(&h->tmp, int64_t, t->rank), s = 1, pos = 0;
    for (size_t k = 0; k < minor.n; k++) {
        stride[minor.p[k]] = s;
        s *= t->dims[minor.p[k]];
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + (size_t)i * size, from + (size_t)pos * size, size);
        for (uint32_t d = t->rank; d-- > 0; ) {
            pos += stride[d];
            if (++at[d] < t->dims[d])
                break;
            pos -= stride[d] * t->dims[d];
            at[d] = 0;
        }
    }
    return to;
}

static xl_dims minor_to_major(xl_hlo *h, xl_str shape, uint32_t rank, bool *plain)
{
    xl_dims m = xl_hlo_ints(h, xl_hlo_sub(h, shape, XL_HLO_SHAPE_layout, NULL), XL_HLO_LAYOUT_minor_to_major);
    *plain = true;
    if (m.n == 0)
        return m;
    uint64_t seen = 0;
    if (m.n != rank || rank > 64)
        XL_HLO_FAIL(h, shape.p, "a layout of %zu dimensions for a shape of %u", m.n, rank);
    for (size_t i = 0; i < m.n; i++) {
        if (m.p[i] < 0 || m.p[i] >= (int64_t)rank || (seen >> m.p[i] & 1))
            XL_HLO_FAIL(h, shape.p, "a layout that is no permutation of the dimensions");
        seen |= 1ull << m.p[i];
        *plain = *plain && m.p[i] == (int64_t)(m.n - 1 - i);
    }
    return m;
}

const xl_attr *xl_hlo_literal(xl_hlo *h, xl_str lit, const xl_type *t)
{
    int64_t n;
    uint32_t number = literal_field(t->dtype);
    size_t size = xl_dtype_bytes(t->dtype), have = 0, need;
    if (t->kind != XL_TY_TENSOR || !xl_type_count(t, &n) || number == 0)
        XL_HLO_FAIL(h, lit.p, "a constant must be an array with known dimensions");
    if ((uint64_t)n > lit.n || (!is_varint(t->dtype) && (uint64_t)n > lit.n / size))
        XL_HLO_FAIL(h, lit.p,
                    "a constant of %lld elements in %zu bytes: the data was left out, or the file is cut short",
                    (long long)n, lit.n);
    need = (size_t)n * size;
    char *data = xl_arena_alloc(&h->tmp, need);
    xl_proto p = xl_proto_of(lit);
    xl_proto_field f;
    while (xl_hlo_each(h, &p, number, &f)) {
        if (f.wire != XL_WIRE_BYTES) {
            size_t w = f.wire == XL_WIRE_I32 ? 4 : f.wire == XL_WIRE_I64 ? 8 : size;
            if (have + w > need)
                XL_HLO_FAIL(h, lit.p, "a constant has more data than its %lld elements", (long long)n);
            put_element(data + have, w, f.value);
            have += w;
        } else if (is_varint(t->dtype)) {
            xl_proto list = xl_proto_of(f.bytes);
            uint64_t v;
            bool more;
            for (;;) {
                xl_error *err = xl_proto_varint(&list, &v, &more);
                if (err) {
                    h->err = err;
                    longjmp(h->fail, 1);
                }
                if (!more)
                    break;
                if (have + size > need)
                    XL_HLO_FAIL(h, lit.p, "a constant has more data than its %lld elements", (long long)n);
                put_element(data + have, size, t->dtype == XL_I1 ? v != 0 : v);
                have += size;
            }
        } else {
            if (f.bytes.n > need - have)
                XL_HLO_FAIL(h, lit.p, "a constant has more data than its %lld elements", (long long)n);
            if (f.bytes.n)
                memcpy(data + have, f.bytes.p, f.bytes.n);
            have += f.bytes.n;
        }
    }
    if (have != need)
        XL_HLO_FAIL(h, lit.p, "a constant of %lld elements has %zu bytes of data, not %zu", (long long)n, have, need);
    if (xl_dtypes[t->dtype].bits < 8)
        for (size_t i = 0; i < need; i++)
            data[i] = (char)((uint8_t)data[i] & ((1u << xl_dtypes[t->dtype].bits) - 1));
    bool plain;
    xl_dims minor = minor_to_major(h, xl_hlo_sub(h, lit, XL_HLO_LITERAL_shape, NULL), t->rank, &plain);
    if (!plain && n > 0)
        data = row_major(h, data, t, n, minor);
    return xl_attr_dense(h->m, t, (xl_str){ data, need });
}

const xl_attr *xl_hlo_layout(xl_hlo *h, xl_str shape, const xl_type *t, bool *plain)
{
    uint32_t rank = t->kind == XL_TY_TENSOR ? t->rank : 0;
    xl_dims m = minor_to_major(h, shape, rank, plain);
    int64_t *v = xl_new(&h->tmp, int64_t, rank), n = rank;
    for (uint32_t i = 0; i < rank; i++)
        v[i] = m.n ? m.p[i] : (int64_t)(rank - 1 - i);
    return xl_attr_dense(h->m, xl_type_tensor(h->m, XL_INDEX, (xl_dims){ &n, 1 }),
                         (xl_str){ (char *)v, rank * sizeof *v });
}

/* ---- shardings -------------------------------------------------------------------------------------------------- */
static void put_list(xl_buf *b, xl_dims d)
{
    for (size_t i = 0; i < d.n; i++)
        xl_buf_printf(b, "%s%lld", i ? "," : "", (long long)d.p[i]);
}

static void put_sharding(xl_hlo *h, xl_str s, xl_buf *b, int depth)
{
    static const char *const word[] = { "replicated", "maximal", "tuple", "other", "manual", "unknown", "unreduced" };
    uint64_t type = (uint64_t)xl_hlo_num(h, s, XL_HLO_SHARDING_type);
    if (type > XL_HLO_SHARDED_UNREDUCED || depth > 8)
        XL_HLO_FAIL(h, s.p, "a sharding of type %llu", (unsigned long long)type);
    xl_buf_putc(b, '{');
    xl_dims dims = xl_hlo_ints(h, s, XL_HLO_SHARDING_tile_assignment_dimensions),
            devices = xl_hlo_ints(h, s, XL_HLO_SHARDING_tile_assignment_devices);
    if (type == XL_HLO_SHARDED_TUPLE) {
        xl_proto p = xl_proto_of(s);
        xl_proto_field f;
        for (int n = 0; xl_hlo_each(h, &p, XL_HLO_SHARDING_tuple_shardings, &f); n++) {
            xl_buf_puts(b, n ? ", " : "");
            put_sharding(h, f.bytes, b, depth + 1);
        }
    } else if (type == XL_HLO_SHARDED_MAXIMAL) {
        xl_buf_printf(b, "maximal device=%lld", devices.n ? (long long)devices.p[0] : 0LL);
    } else if (type == XL_HLO_SHARDED_OTHER) {
        xl_dims reshape = xl_hlo_ints(h, s, XL_HLO_SHARDING_iota_reshape_dims),
                perm = xl_hlo_ints(h, s, XL_HLO_SHARDING_iota_transpose_perm),
                last = xl_hlo_ints(h, s, XL_HLO_SHARDING_last_tile_dims);
        xl_buf_puts(b, "devices=[");
        put_list(b, dims);
        xl_buf_putc(b, ']');
        if (reshape.n) {
            xl_buf_puts(b, "<=[");
            put_list(b, reshape);
            xl_buf_putc(b, ']');
            if (perm.n > 1) {
                xl_buf_puts(b, "T(");
                put_list(b, perm);
                xl_buf_putc(b, ')');
            }
        } else {
            put_list(b, devices);
        }
        if (xl_hlo_num(h, s, XL_HLO_SHARDING_replicate_on_last_tile_dim))
            xl_buf_puts(b, " last_tile_dim_replicate");
        for (size_t i = 0; i < last.n; i++) {
            if (last.p[i] < 0 || last.p[i] > XL_HLO_SHARDED_UNREDUCED)
                XL_HLO_FAIL(h, s.p, "a sharding with a last dimension of type %lld", (long long)last.p[i]);
            xl_buf_printf(b, "%s%s", i ? ", " : " last_tile_dims={", word[last.p[i]]);
        }
        xl_buf_puts(b, last.n ? "}" : "");
    } else {
        xl_buf_puts(b, word[type]);
    }
    if (xl_hlo_num(h, s, XL_HLO_SHARDING_is_shard_group))
        xl_buf_printf(b, " shard_%s=%lld", xl_hlo_num(h, s, XL_HLO_SHARDING_shard_group_type) ? "like" : "as",
                      (long long)xl_hlo_num(h, s, XL_HLO_SHARDING_shard_group_id));
    xl_buf_putc(b, '}');
}

const xl_attr *xl_hlo_sharding(xl_hlo *h, xl_str sharding)
{
    h->text.n = 0;
    put_sharding(h, sharding, &h->text, 0);
    return xl_attr_str(h->m, xl_buf_view(&h->text));
}

const xl_attr *xl_hlo_frontend(xl_hlo *h, xl_str attributes)
{
    xl_proto p = xl_proto_of(attributes);
    xl_proto_field f;
    xl_str *key = NULL;
    const xl_attr **item = NULL;
    uint32_t n = 0, nitem = 0, cap = 0, capitem = 0;
    while (xl_hlo_each(h, &p, XL_HLO_ATTRIBUTES_map, &f)) {
        XL_PUSH(&h->tmp, key, n, cap, xl_hlo_sub(h, f.bytes, XL_HLO_ATTRIBUTES_ENTRY_key, NULL));
        xl_str value = xl_hlo_sub(h, f.bytes, XL_HLO_ATTRIBUTES_ENTRY_value, NULL);
        XL_PUSH(&h->tmp, item, nitem, capitem, xl_attr_str(h->m, value));
    }
    if (n > 4096)
        XL_HLO_FAIL(h, attributes.p, "%u frontend attributes on one instruction", n);
    return n ? xl_attr_dict(h->m, key, item, n) : NULL;
}
