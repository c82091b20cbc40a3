/* The devices of an HLO collective. XLA writes its groups as a list, as an array of 0, 1, ... reshaped and transposed,
 * or by axes of a mesh; the last two are one thing here: dimensions with a size and a stride, those of the group
 * innermost. */
#include "ir/hlo/hlo_groups.h"

#include "ir/hlo/hlo_fields.h"

enum { MOST = 1 << 20, DIMS = 64 };

typedef struct { int64_t size, stride; } dim;
typedef struct { dim d[DIMS]; size_t n; } dims;
typedef struct { int64_t *p; size_t n, cap; } ints;

static xl_error *find(xl_str m, uint32_t number, xl_proto_field *f, bool *have)
{
    xl_error *err = NULL;
    xl_proto r = xl_proto_of(m);
    bool more = true;
    *have = false;
    while (!*have && more) {
        XL_DO(xl_proto_next(&r, f, &more));
        *have = more && f->number == number;
    }
out:
    return err;
}

static xl_error *sub(xl_str m, uint32_t number, xl_str *out, bool *have)
{
    xl_proto_field f = { 0 };
    xl_error *err = find(m, number, &f, have);
    *have = !err && *have && f.wire == XL_WIRE_BYTES;
    *out = *have ? f.bytes : (xl_str){ 0 };
    return err;
}

static xl_error *num(xl_str m, uint32_t number, int64_t *out)
{
    xl_proto_field f = { 0 };
    bool have;
    xl_error *err = find(m, number, &f, &have);
    *out = !err && have && f.wire == XL_WIRE_VARINT ? (int64_t)f.value : 0;
    return err;
}

/* The next message of this number; *more = false at the end. */
static xl_error *each(xl_proto *r, uint32_t number, xl_str *m, bool *more)
{
    xl_proto_field f;
    xl_error *err = NULL;
    do
        XL_DO(xl_proto_next(r, &f, more));
    while (*more && (f.number != number || f.wire != XL_WIRE_BYTES));
    *m = *more ? f.bytes : (xl_str){ 0 };
out:
    return err;
}

/* A repeated number, packed or not. */
static xl_error *numbers(xl_arena *a, xl_str m, uint32_t number, ints *out)
{
    xl_error *err = NULL;
    xl_proto r = xl_proto_of(m);
    xl_proto_field f;
    for (bool more = true;;) {
        XL_DO(xl_proto_next(&r, &f, &more));
        if (!more)
            break;
        if (f.number != number)
            continue;
        if (f.wire == XL_WIRE_VARINT)
            XL_PUSH(a, out->p, out->n, out->cap, (int64_t)f.value);
        xl_proto list = xl_proto_of(f.wire == XL_WIRE_BYTES ? f.bytes : (xl_str){ 0 });
        for (bool in = f.wire == XL_WIRE_BYTES; in;) {
            uint64_t v;
            XL_DO(xl_proto_varint(&list, &v, &in));
            if (in)
                XL_PUSH(a, out->p, out->n, out->cap, (int64_t)v);
        }
    }
out:
    return err;
}

static bool put(dims *d, int64_t size, int64_t stride)
{
    if (size == 1)
        return true;
    if (d->n == DIMS)
        return false;
    d->d[d->n++] = (dim){ size, stride };
    return true;
}

/* Every position, the last dimension fastest; NULL where there are too many. */
static int64_t *positions(xl_arena *a, const dims *d, int64_t *n)
{
    int64_t at[DIMS] = { 0 }, pos = 0;
    *n = 1;
    for (size_t k = 0; k < d->n; k++)
        if (d->d[k].size < 1 || __builtin_mul_overflow(*n, d->d[k].size, n) || *n > MOST)
            return NULL;
    int64_t *out = xl_new(a, int64_t, (size_t)*n);
    for (int64_t i = 0; i < *n; i++) {
        out[i] = pos;
        for (size_t k = d->n; k-- > 0;) {
            pos += d->d[k].stride;
            if (++at[k] < d->d[k].size)
                break;
            pos -= d->d[k].stride * d->d[k].size;
            at[k] = 0;
        }
    }
    return out;
}

/* The sizes as an array, outermost first: its dimensions with their strides. */
static bool strides(const ints *size, dims *out)
{
    int64_t step = 1;
    if (size->n > DIMS)
        return false;
    for (size_t k = size->n; k-- > 0; step *= size->p[k]) {
        out->d[k] = (dim){ size->p[k], step };
        if (size->p[k] < 1 || size->p[k] > MOST || step > MOST)
            return false;
    }
    out->n = size->n;
    return true;
}

static xl_error *by_iota(xl_arena *a, xl_str m, xl_hlo_groups *out)
{
    xl_error *err = NULL;
    ints size = { 0 }, perm = { 0 };
    dims plain = { 0 }, turned = { 0 };
    int64_t n = 0, total;
    uint64_t seen = 0;
    XL_DO(numbers(a, m, XL_HLO_IOTA_iota_reshape_dims, &size));
    XL_DO(numbers(a, m, XL_HLO_IOTA_iota_transpose_perm, &perm));
    XL_DO(num(m, XL_HLO_IOTA_num_replica_groups, &out->ngroup));
    XL_DO(num(m, XL_HLO_IOTA_num_devices_per_group, &out->size));
    if (!strides(&size, &plain))
        return XL_ERR(INVALID, "replica groups over an array of more than %d devices", MOST);
    for (size_t k = 0; k < plain.n; k++) {
        int64_t from = perm.n ? k < perm.n ? perm.p[k] : -1 : (int64_t)k;
        if (from < 0 || from >= (int64_t)plain.n || (seen >> from & 1) || perm.n > plain.n)
            return XL_ERR(INVALID, "replica groups with a transpose that is no permutation");
        seen |= 1ull << from;
        turned.d[turned.n++] = plain.d[from];
    }
    out->id = positions(a, &turned, &n);
    if (!out->id || out->ngroup < 0 || out->size < 0 || __builtin_mul_overflow(out->ngroup, out->size, &total) ||
        total != n)
        return XL_ERR(INVALID, "%lld replica groups of %lld over %lld devices", (long long)out->ngroup,
                      (long long)out->size, (long long)n);
out:
    return err;
}

/* An axis or a part of one: (before)size of an axis of before * size * after. */
typedef struct { int64_t axis, before, size; } ref;

static xl_error *read_ref(xl_str m, const dims *mesh, ref *out)
{
    xl_error *err = NULL;
    xl_str part;
    bool have;
    XL_DO(num(m, XL_HLO_AXIS_mesh_axis_index, &out->axis));
    XL_DO(sub(m, XL_HLO_AXIS_sub_axis_info, &part, &have));
    if (out->axis < 0 || out->axis >= (int64_t)mesh->n)
        return XL_ERR(INVALID, "replica groups over axis %lld of a mesh of %zu", (long long)out->axis, mesh->n);
    int64_t whole = mesh->d[out->axis].size;
    out->before = 1;
    out->size = whole;
    if (have) {
        XL_DO(num(part, XL_HLO_SUB_AXIS_pre_size, &out->before));
        XL_DO(num(part, XL_HLO_SUB_AXIS_size, &out->size));
        if (out->before < 1 || out->size < 1 || out->before > whole || out->size > whole ||
            whole % (out->before * out->size))
            return XL_ERR(INVALID, "replica groups over part (%lld)%lld of an axis of %lld", (long long)out->before,
                          (long long)out->size, (long long)whole);
    }
out:
    return err;
}

/* What of axis k no ref names, as dimensions outside of the groups. */
static bool outside(const ref *r, size_t nref, const dims *mesh, int64_t k, dims *out)
{
    int64_t whole = mesh->d[k].size, done = 1;
    while (done < whole) {
        const ref *next = NULL;
        for (size_t i = 0; i < nref; i++)
            if (r[i].axis == k && r[i].before >= done && r[i].size > 1 && (!next || r[i].before < next->before))
                next = &r[i];
        int64_t until = next ? next->before : whole;
        if (until % done || !put(out, until / done, mesh->d[k].stride * (whole / until)))
            return false;
        done = next ? until * next->size : whole;
    }
    return true;
}

static xl_error *by_mesh(xl_arena *a, xl_str m, xl_hlo_groups *out)
{
    xl_error *err = NULL;
    xl_str mesh_bytes, part;
    ints size = { 0 }, ids = { 0 };
    dims mesh = { 0 }, all = { 0 };
    ref named[DIMS];
    size_t nref = 0;
    int64_t n = 0, v;
    bool have, more;
    XL_DO(sub(m, XL_HLO_BY_AXES_mesh, &mesh_bytes, &have));
    for (xl_proto r = xl_proto_of(mesh_bytes);;) {
        XL_DO(each(&r, XL_HLO_MESH_axes, &part, &more));
        if (!more)
            break;
        XL_DO(num(part, XL_HLO_MESH_AXIS_size, &v));
        XL_PUSH(a, size.p, size.n, size.cap, v);
    }
    XL_DO(numbers(a, mesh_bytes, XL_HLO_MESH_device_ids, &ids));
    if (!strides(&size, &mesh))
        return XL_ERR(INVALID, "replica groups over a mesh of more than %d devices", MOST);
    for (xl_proto r = xl_proto_of(m);;) {
        XL_DO(each(&r, XL_HLO_BY_AXES_axes, &part, &more));
        if (!more)
            break;
        if (nref == DIMS)
            return XL_ERR(INVALID, "replica groups over more than %d axes", DIMS);
        XL_DO(read_ref(part, &mesh, &named[nref]));
        nref++;
    }
    bool ok = true;
    for (size_t k = 0; k < mesh.n; k++)
        ok = ok && outside(named, nref, &mesh, (int64_t)k, &all);
    out->size = 1;
    for (size_t i = 0; i < nref && ok; i++) {
        const dim *d = &mesh.d[named[i].axis];
        ok = put(&all, named[i].size, d->stride * (d->size / (named[i].before * named[i].size)));
        out->size *= named[i].size;
        ok = ok && out->size <= MOST;
    }
    out->id = ok ? positions(a, &all, &n) : NULL;
    int64_t devices = 1;
    for (size_t k = 0; k < mesh.n; k++)
        devices *= devices <= MOST ? mesh.d[k].size : 1;
    if (!out->id || n != devices || (ids.n && (int64_t)ids.n != n))
        return XL_ERR(INVALID, "replica groups whose axes do not make up their mesh");
    out->ngroup = n / out->size;
    for (int64_t i = 0; i < n && ids.n; i++)
        out->id[i] = ids.p[out->id[i]];
out:
    return err;
}

static xl_error *by_list(xl_arena *a, xl_str m, uint32_t number, xl_hlo_groups *out)
{
    xl_error *err = NULL;
    ints *group = NULL;
    size_t n = 0, cap = 0;
    for (xl_proto r = xl_proto_of(m);;) {
        bool more;
        xl_str row;
        ints one = { 0 };
        XL_DO(each(&r, number, &row, &more));
        if (!more)
            break;
        XL_DO(numbers(a, row, XL_HLO_GROUP_replica_ids, &one));
        XL_PUSH(a, group, n, cap, one);
        out->size = (int64_t)one.n > out->size ? (int64_t)one.n : out->size;
    }
    out->ngroup = (int64_t)n;
    int64_t total;
    if (__builtin_mul_overflow(out->ngroup, out->size, &total) || total > 16 * MOST)
        return XL_ERR(INVALID, "%lld replica groups of up to %lld devices", (long long)out->ngroup,
                      (long long)out->size);
    out->id = xl_new(a, int64_t, (size_t)total);
    for (int64_t g = 0; g < out->ngroup; g++)
        for (int64_t k = 0; k < out->size; k++)
            out->id[g * out->size + k] = k < (int64_t)group[g].n ? group[g].p[k] : -1;
out:
    return err;
}

xl_error *xl_hlo_groups_read(xl_arena *a, xl_str instruction, xl_hlo_groups *out)
{
    xl_error *err = NULL;
    xl_str m, iota;
    bool have;
    *out = (xl_hlo_groups){ 0 };
    XL_DO(sub(instruction, XL_HLO_INST_mesh_axes_replica_group_list, &m, &have));
    if (have)
        return by_mesh(a, m, out);
    XL_DO(sub(instruction, XL_HLO_INST_iota_collective_device_list, &m, &have));
    if (have)
        return by_iota(a, m, out);
    XL_DO(sub(instruction, XL_HLO_INST_collective_device_list, &m, &have));
    if (!have)
        return by_list(a, instruction, XL_HLO_INST_replica_groups, out);
    XL_DO(sub(m, XL_HLO_DEVICES_iota_replica_group_list, &iota, &have));
    return have ? by_iota(a, iota, out) : by_list(a, m, XL_HLO_DEVICES_replica_groups, out);
out:
    return err;
}
