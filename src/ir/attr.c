/* Attributes: immutable trees in the module's arena. */
#include "ir/ir.h"

static xl_attr *attr_new(xl_module *m, xl_attr_kind kind)
{
    xl_attr *a = xl_new(&m->arena, xl_attr, 1);
    a->kind = kind;
    return a;
}

const xl_attr *xl_attr_unit(xl_module *m) { return attr_new(m, XL_AT_UNIT); }

const xl_attr *xl_attr_bool(xl_module *m, bool b)
{
    xl_attr *a = attr_new(m, XL_AT_BOOL);
    a->dtype = XL_I1;
    a->i = b;
    return a;
}

const xl_attr *xl_attr_int(xl_module *m, xl_dtype d, int64_t v)
{
    xl_attr *a = attr_new(m, XL_AT_INT);
    a->dtype = d;
    a->i = v;
    return a;
}

const xl_attr *xl_attr_i64(xl_module *m, int64_t v) { return xl_attr_int(m, XL_I64, v); }

const xl_attr *xl_attr_float(xl_module *m, xl_dtype d, uint64_t bits, double value)
{
    xl_attr *a = attr_new(m, XL_AT_FLOAT);
    a->dtype = d;
    a->u = bits;
    a->f = value;
    return a;
}

static const xl_attr *with_str(xl_module *m, xl_attr_kind kind, xl_str s)
{
    xl_attr *a = attr_new(m, kind);
    a->str = xl_str_dup(&m->arena, s);
    return a;
}

const xl_attr *xl_attr_str(xl_module *m, xl_str s) { return with_str(m, XL_AT_STR, s); }
const xl_attr *xl_attr_sym(xl_module *m, xl_str s) { return with_str(m, XL_AT_SYM, s); }
const xl_attr *xl_attr_opaque(xl_module *m, xl_str s) { return with_str(m, XL_AT_OPAQUE, s); }

const xl_attr *xl_attr_type(xl_module *m, const xl_type *t)
{
    xl_attr *a = attr_new(m, XL_AT_TYPE);
    a->type = t;
    return a;
}

const xl_attr *xl_attr_enum(xl_module *m, xl_enum e, int64_t v)
{
    xl_attr *a = attr_new(m, XL_AT_ENUM);
    a->which = e;
    a->i = v;
    return a;
}

const xl_attr *xl_attr_ints(xl_module *m, xl_dtype d, xl_dims v)
{
    xl_attr *a = attr_new(m, XL_AT_INTS);
    int64_t *p = xl_new(&m->arena, int64_t, v.n);
    if (v.n)
        memcpy(p, v.p, v.n * sizeof *p);
    a->dtype = d;
    a->n = (uint32_t)v.n;
    a->ints = p;
    return a;
}

const xl_attr *xl_attr_dims(xl_module *m, xl_dims v) { return xl_attr_ints(m, XL_I64, v); }

const xl_attr *xl_attr_array(xl_module *m, const xl_attr *const *item, uint32_t n)
{
    xl_attr *a = attr_new(m, XL_AT_ARRAY);
    const xl_attr **p = xl_new(&m->arena, const xl_attr *, n);
    if (n)
        memcpy(p, item, n * sizeof *p);
    a->n = n;
    a->item = p;
    return a;
}

static const xl_attr *keyed(xl_module *m, xl_attr *a, const xl_str *key, const xl_attr *const *item, uint32_t n)
{
    xl_str *k = xl_new(&m->arena, xl_str, n);
    const xl_attr **v = xl_new(&m->arena, const xl_attr *, n);
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++) {                     /* insertion: dictionaries are short and mostly sorted */
        uint32_t at = have;
        while (at > 0 && xl_str_cmp(k[at - 1], key[i]) > 0)
            at--;
        if (at > 0 && xl_str_eq(k[at - 1], key[i])) {
            v[at - 1] = item[i];
            continue;
        }
        memmove(k + at + 1, k + at, (have - at) * sizeof *k);
        memmove(v + at + 1, v + at, (have - at) * sizeof *v);
        k[at] = xl_str_dup(&m->arena, key[i]);
        v[at] = item[i];
        have++;
    }
    a->n = have;
    a->key = k;
    a->item = v;
    return a;
}

const xl_attr *xl_attr_dict(xl_module *m, const xl_str *key, const xl_attr *const *item, uint32_t n)
{
    return keyed(m, attr_new(m, XL_AT_DICT), key, item, n);
}

const xl_attr *xl_attr_struct(xl_module *m, xl_str name, const xl_str *key, const xl_attr *const *item, uint32_t n)
{
    xl_attr *a = attr_new(m, XL_AT_STRUCT);
    a->str = xl_str_dup(&m->arena, name);
    return keyed(m, a, key, item, n);
}

const xl_attr *xl_attr_dense(xl_module *m, const xl_type *t, xl_str data)
{
    xl_attr *a = attr_new(m, XL_AT_DENSE);
    size_t elem = xl_dtype_bytes(t->dtype);
    int64_t n;
    a->dtype = t->dtype;
    a->type = t;
    if (data.n > elem && elem && data.n % elem == 0) {     /* all elements alike: one form for one constant */
        bool same = memcmp(data.p, data.p + elem, data.n - elem) == 0;
        if (same)
            data.n = elem;
    }
    a->data = xl_str_dup(&m->arena, data);
    a->splat = data.n == elem && !(xl_type_count(t, &n) && n == 1);
    return a;
}

const xl_attr *xl_attr_sharding(xl_module *m, const xl_sharding *s)
{
    xl_attr *a = attr_new(m, XL_AT_SHARDING);
    a->sharding = s;
    return a;
}

const xl_attr *xl_attr_mesh(xl_module *m, const xl_mesh *s)
{
    xl_attr *a = attr_new(m, XL_AT_MESH);
    a->mesh = s;
    return a;
}

const xl_attr *xl_dict_get(const xl_attr *dict, xl_str key)
{
    if (!dict || (dict->kind != XL_AT_DICT && dict->kind != XL_AT_STRUCT))
        return NULL;
    for (uint32_t i = 0; i < dict->n; i++)
        if (xl_str_eq(dict->key[i], key))
            return dict->item[i];
    return NULL;
}

const xl_attr *xl_dict_with(xl_module *m, const xl_attr *dict, xl_str key, const xl_attr *v)
{
    uint32_t n = dict ? dict->n : 0, have = 0;
    xl_str *k = xl_new(&m->arena, xl_str, (size_t)n + 1);
    const xl_attr **it = xl_new(&m->arena, const xl_attr *, (size_t)n + 1);
    for (uint32_t i = 0; i < n; i++)
        if (!xl_str_eq(dict->key[i], key)) {
            k[have] = dict->key[i];
            it[have++] = dict->item[i];
        }
    if (v) {
        k[have] = key;
        it[have++] = v;
    }
    return have ? xl_attr_dict(m, k, it, have) : NULL;
}

/* ---- equality and copies ---------------------------------------------------------------------------------------- */
static bool axes_eq(const xl_axis_ref *a, const xl_axis_ref *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!xl_str_eq(a[i].name, b[i].name) || a[i].pre != b[i].pre || a[i].size != b[i].size)
            return false;
    return true;
}

static bool mesh_eq(const xl_mesh *a, const xl_mesh *b)
{
    if (!a || !b)
        return a == b;
    if (a->naxis != b->naxis || a->nids != b->nids)
        return false;
    for (uint32_t i = 0; i < a->naxis; i++)
        if (!xl_str_eq(a->axis[i].name, b->axis[i].name) || a->axis[i].size != b->axis[i].size)
            return false;
    return a->nids == 0 || memcmp(a->ids, b->ids, a->nids * sizeof *a->ids) == 0;
}

static bool sharding_eq(const xl_sharding *a, const xl_sharding *b)
{
    if (!xl_str_eq(a->mesh, b->mesh) || !mesh_eq(a->inlined, b->inlined) || a->rank != b->rank ||
        a->nreplicated != b->nreplicated || a->nunreduced != b->nunreduced || a->reduction != b->reduction)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dim[i].naxis != b->dim[i].naxis || a->dim[i].open != b->dim[i].open ||
            a->dim[i].priority != b->dim[i].priority || !axes_eq(a->dim[i].axis, b->dim[i].axis, a->dim[i].naxis))
            return false;
    return axes_eq(a->replicated, b->replicated, a->nreplicated) && axes_eq(a->unreduced, b->unreduced, a->nunreduced);
}

bool xl_attr_eq(const xl_attr *a, const xl_attr *b)
{
    if (a == b)
        return true;
    if (!a || !b || a->kind != b->kind || a->n != b->n)
        return false;
    switch (a->kind) {
    case XL_AT_UNIT: case XL_AT_LOC: return true;
    case XL_AT_BOOL: return a->i == b->i;
    case XL_AT_INT: return a->i == b->i && a->dtype == b->dtype;
    case XL_AT_FLOAT: return a->u == b->u && a->dtype == b->dtype;
    case XL_AT_STR: case XL_AT_SYM: case XL_AT_OPAQUE: return xl_str_eq(a->str, b->str);
    case XL_AT_TYPE: return xl_type_eq(a->type, b->type);
    case XL_AT_ENUM: return a->i == b->i && a->which == b->which;
    case XL_AT_INTS: return a->dtype == b->dtype && (a->n == 0 || !memcmp(a->ints, b->ints, a->n * sizeof *a->ints));
    case XL_AT_DENSE: return xl_type_eq(a->type, b->type) && xl_str_eq(a->data, b->data);
    case XL_AT_SHARDING: return sharding_eq(a->sharding, b->sharding);
    case XL_AT_MESH: return mesh_eq(a->mesh, b->mesh);
    case XL_AT_ARRAY: case XL_AT_DICT: case XL_AT_STRUCT: break;
    }
    if (a->kind == XL_AT_STRUCT && !xl_str_eq(a->str, b->str))
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if ((a->key && !xl_str_eq(a->key[i], b->key[i])) || !xl_attr_eq(a->item[i], b->item[i]))
            return false;
    return true;
}

static const xl_axis_ref *copy_axes(xl_module *m, const xl_axis_ref *a, uint32_t n)
{
    xl_axis_ref *c = xl_new(&m->arena, xl_axis_ref, n);
    for (uint32_t i = 0; i < n; i++)
        c[i] = (xl_axis_ref){ xl_str_dup(&m->arena, a[i].name), a[i].pre, a[i].size };
    return c;
}

static const xl_mesh *copy_mesh(xl_module *m, const xl_mesh *a)
{
    if (!a)
        return NULL;
    xl_mesh *c = xl_new(&m->arena, xl_mesh, 1);
    xl_mesh_axis *axis = xl_new(&m->arena, xl_mesh_axis, a->naxis);
    int64_t *ids = xl_new(&m->arena, int64_t, a->nids);
    for (uint32_t i = 0; i < a->naxis; i++)
        axis[i] = (xl_mesh_axis){ xl_str_dup(&m->arena, a->axis[i].name), a->axis[i].size };
    if (a->nids)
        memcpy(ids, a->ids, a->nids * sizeof *ids);
    *c = (xl_mesh){ axis, a->naxis, ids, a->nids };
    return c;
}

static const xl_sharding *copy_sharding(xl_module *m, const xl_sharding *a)
{
    xl_sharding *c = xl_new(&m->arena, xl_sharding, 1);
    xl_dim_sharding *dim = xl_new(&m->arena, xl_dim_sharding, a->rank);
    *c = *a;
    c->mesh = xl_str_dup(&m->arena, a->mesh);
    c->inlined = copy_mesh(m, a->inlined);
    for (uint32_t i = 0; i < a->rank; i++) {
        dim[i] = a->dim[i];
        dim[i].axis = copy_axes(m, a->dim[i].axis, a->dim[i].naxis);
    }
    c->dim = dim;
    c->replicated = copy_axes(m, a->replicated, a->nreplicated);
    c->unreduced = copy_axes(m, a->unreduced, a->nunreduced);
    return c;
}

const xl_attr *xl_attr_import(xl_module *m, const xl_attr *a)
{
    if (!a)
        return NULL;
    xl_attr *c = attr_new(m, a->kind);
    *c = *a;
    switch (a->kind) {
    case XL_AT_STR: case XL_AT_SYM: case XL_AT_OPAQUE: case XL_AT_STRUCT: c->str = xl_str_dup(&m->arena, a->str); break;
    case XL_AT_TYPE: c->type = xl_type_intern(m, a->type); break;
    case XL_AT_DENSE: c->type = xl_type_intern(m, a->type); c->data = xl_str_dup(&m->arena, a->data); break;
    case XL_AT_INTS: return xl_attr_ints(m, a->dtype, (xl_dims){ a->ints, a->n });
    case XL_AT_SHARDING: c->sharding = copy_sharding(m, a->sharding); break;
    case XL_AT_MESH: c->mesh = copy_mesh(m, a->mesh); break;
    case XL_AT_LOC: c->loc = (xl_loc){ 0 }; break;
    default: break;
    }
    if (a->item) {
        const xl_attr **item = xl_new(&m->arena, const xl_attr *, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            item[i] = xl_attr_import(m, a->item[i]);
        c->item = item;
    }
    if (a->key) {
        xl_str *key = xl_new(&m->arena, xl_str, a->n);
        for (uint32_t i = 0; i < a->n; i++)
            key[i] = xl_str_dup(&m->arena, a->key[i]);
        c->key = key;
    }
    return c;
}

int64_t xl_dense_int(const xl_attr *a, int64_t i)
{
    size_t size = xl_dtype_bytes(a->dtype), at = a->data.n == size ? 0 : (size_t)i * size;
    if (at + size > a->data.n)
        return 0;
    const char *p = a->data.p + at;
    bool is_signed = xl_dtype_class(a->dtype) == XL_CLASS_INT;
    uint64_t u = 0;
    for (size_t b = 0; b < size && b < 8; b++)
        u |= (uint64_t)(unsigned char)p[b] << (8 * b);
    unsigned bits = xl_dtypes[a->dtype].bits;
    if (bits < 64) {
        u &= (1ull << bits) - 1;
        if (is_signed && (u >> (bits - 1)))
            u |= ~0ull << bits;
    }
    return (int64_t)u;
}
