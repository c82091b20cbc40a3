/* Types: interned per module, so that equality is a pointer. */
#include "ir/ir.h"
#include "ir/intern.h"

bool xl_type_static(const xl_type *t)
{
    if (t->kind != XL_TY_TENSOR || t->unranked)
        return false;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dims[i] < 0)
            return false;
    return true;
}

bool xl_type_count(const xl_type *t, int64_t *out)
{
    if (!xl_type_static(t))
        return false;
    int64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dims[i] == 0) {
            *out = 0;
            return true;
        }
    for (uint32_t i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(n, t->dims[i], &n))
            return false;
    *out = n;
    return true;
}

bool xl_type_bytes(const xl_type *t, int64_t *out)
{
    int64_t n;
    return xl_type_count(t, &n) && !__builtin_mul_overflow(n, (int64_t)xl_dtype_bytes(t->dtype), out);
}

static bool quant_eq(const xl_quant *a, const xl_quant *b)
{
    if (!a || !b)
        return a == b;
    return a->storage == b->storage && a->expressed == b->expressed && a->is_signed == b->is_signed &&
           a->per_axis == b->per_axis && a->axis == b->axis && a->min == b->min && a->max == b->max && a->n == b->n &&
           !memcmp(a->scale, b->scale, a->n * sizeof *a->scale) && !memcmp(a->zero, b->zero, a->n * sizeof *a->zero);
}

bool xl_type_eq(const xl_type *a, const xl_type *b)
{
    if (a == b)
        return true;
    if (!a || !b || a->kind != b->kind || a->dtype != b->dtype || a->unranked != b->unranked || a->rank != b->rank ||
        a->nelem != b->nelem || a->nin != b->nin || !a->bounds != !b->bounds)
        return false;
    if (a->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims))
        return false;
    if (a->bounds && a->rank && memcmp(a->bounds, b->bounds, a->rank * sizeof *a->bounds))
        return false;
    for (uint32_t i = 0; i < a->nelem; i++)
        if (!xl_type_eq(a->elem[i], b->elem[i]))
            return false;
    return xl_str_eq(a->text, b->text) && quant_eq(a->quant, b->quant) && xl_attr_eq(a->encoding, b->encoding);
}

static uint32_t type_hash(const xl_type *t)
{
    uint32_t h = (uint32_t)t->kind * 31u + (uint32_t)t->dtype + t->unranked * 7u;
    for (uint32_t i = 0; i < t->rank; i++)
        h = (h ^ (uint32_t)t->dims[i] ^ (uint32_t)((uint64_t)t->dims[i] >> 32)) * 16777619u;
    for (uint32_t i = 0; i < t->nelem; i++)
        h = (h ^ type_hash(t->elem[i])) * 16777619u;
    for (size_t i = 0; i < t->text.n; i++)
        h = (h ^ (unsigned char)t->text.p[i]) * 16777619u;
    return h ^ (h >> 13);
}

static const int64_t *copy_ints(xl_module *m, const int64_t *p, size_t n)
{
    int64_t *q = xl_new(&m->arena, int64_t, n);
    if (n)
        memcpy(q, p, n * sizeof *q);
    return q;
}

const xl_type *xl_type_intern(xl_module *m, const xl_type *t)
{
    struct xl_intern *in = m->intern;
    uint32_t hash = type_hash(t);
    XL_TABLE_EACH(&in->index, hash, i)
        if (xl_type_eq(in->type[i], t))
            return in->type[i];
    xl_type *c = xl_new(&m->arena, xl_type, 1);
    *c = *t;
    c->dims = copy_ints(m, t->dims, t->rank);
    c->bounds = t->bounds ? copy_ints(m, t->bounds, t->rank) : NULL;
    if (t->nelem) {
        const xl_type **elem = xl_new(&m->arena, const xl_type *, t->nelem);
        for (uint32_t i = 0; i < t->nelem; i++)
            elem[i] = xl_type_intern(m, t->elem[i]);
        c->elem = elem;
    }
    if (t->quant) {
        xl_quant *q = xl_new(&m->arena, xl_quant, 1);
        *q = *t->quant;
        double *scale = xl_new(&m->arena, double, q->n);
        memcpy(scale, t->quant->scale, q->n * sizeof *scale);
        q->scale = scale;
        q->zero = copy_ints(m, t->quant->zero, q->n);
        c->quant = q;
    }
    c->encoding = t->encoding ? xl_attr_import(m, t->encoding) : NULL;
    c->text = t->text.n ? xl_str_dup(&m->arena, t->text) : (xl_str){ 0 };
    xl_table_add(&in->index, &m->arena, hash, in->ntype);
    XL_PUSH(&m->arena, in->type, in->ntype, in->captype, c);
    return c;
}

const xl_type *xl_type_tensor(xl_module *m, xl_dtype d, xl_dims dims)
{
    return xl_type_intern(m, &(xl_type){ .kind = XL_TY_TENSOR, .dtype = d, .rank = (uint32_t)dims.n, .dims = dims.p });
}

const xl_type *xl_type_bounded(xl_module *m, xl_dtype d, xl_dims dims, const int64_t *bounds)
{
    return xl_type_intern(m, &(xl_type){ .kind = XL_TY_TENSOR, .dtype = d, .rank = (uint32_t)dims.n, .dims = dims.p,
                                         .bounds = bounds });
}

const xl_type *xl_type_scalar(xl_module *m, xl_dtype d) { return xl_type_tensor(m, d, (xl_dims){ NULL, 0 }); }

const xl_type *xl_type_token(xl_module *m) { return xl_type_intern(m, &(xl_type){ .kind = XL_TY_TOKEN }); }

const xl_type *xl_type_tuple(xl_module *m, const xl_type *const *elem, uint32_t n)
{
    return xl_type_intern(m, &(xl_type){ .kind = XL_TY_TUPLE, .nelem = n, .elem = elem });
}

const xl_type *xl_type_func(xl_module *m, const xl_type *const *in, uint32_t nin, const xl_type *const *out,
                            uint32_t nout)
{
    const xl_type **all = xl_new(&m->arena, const xl_type *, (size_t)nin + nout);
    for (uint32_t i = 0; i < nin; i++)
        all[i] = in[i];
    for (uint32_t i = 0; i < nout; i++)
        all[nin + i] = out[i];
    return xl_type_intern(m, &(xl_type){ .kind = XL_TY_FUNC, .nelem = nin + nout, .nin = nin, .elem = all });
}

const xl_type *xl_type_with_dtype(xl_module *m, const xl_type *t, xl_dtype d)
{
    xl_type c = *t;
    c.dtype = d;
    c.quant = NULL;
    return xl_type_intern(m, &c);
}
