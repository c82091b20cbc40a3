/* Atoms, specs, and reading annotations: sdy shardings over named meshes, and the strings of the older partitioner. */
#include "pass/shard.h"

#include <stdlib.h>

#include "base/proto.h"
#include "ir/hlo/hlo_fields.h"

bool xl_spec_eq(const xl_axes *a, const xl_axes *b, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++)
        if (!xl_axes_eq(&a[d], &b[d]))
            return false;
    return true;
}

bool xl_spec_uses(const xl_axes *spec, uint32_t rank, uint8_t atom)
{
    for (uint32_t d = 0; d < rank; d++)
        for (uint32_t i = 0; i < spec[d].n; i++)
            if (spec[d].atom[i] == atom)
                return true;
    return false;
}

int64_t xl_axes_parts(const xl_shard_ctx *c, const xl_axes *a)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < a->n; i++)
        n *= c->size[a->atom[i]];
    return n;
}

xl_axes *xl_spec_copy(const xl_shard_ctx *c, const xl_axes *spec, uint32_t rank)
{
    xl_axes *s = xl_new(c->a, xl_axes, rank ? rank : 1);
    if (spec && rank)
        memcpy(s, spec, rank * sizeof *s);
    return s;
}

const xl_type *xl_shard_local(const xl_shard_ctx *c, const xl_type *t, const xl_axes *spec)
{
    uint32_t rank = xl_shard_rank(t);
    if (!rank || !spec)
        return t;
    int64_t dims[32];
    for (uint32_t d = 0; d < rank; d++)
        dims[d] = t->dims[d] / xl_axes_parts(c, &spec[d]);
    return xl_type_tensor(c->m, t->dtype, (xl_dims){ dims, rank });
}

/* ---- atoms ------------------------------------------------------------------------------------------------------- */
typedef struct { int64_t stride, size; } digit;

static void border(int64_t *list, uint32_t *n, int64_t v)
{
    for (uint32_t i = 0; i < *n; i++)
        if (list[i] == v)
            return;
    if (*n < 64)
        list[(*n)++] = v;
}

static bool in_digits(const xl_mesh *m, int64_t total, digit *out)
{
    if (m->ids[0] != 0)
        return false;
    for (uint32_t i = 0; i < m->naxis; i++)
        out[i].stride = out[i].size > 1 ? m->ids[out[i].stride] : 1;
    for (int64_t k = 0, sum; k < total; k++) {
        int64_t rest = k;
        sum = 0;
        for (uint32_t i = m->naxis; i-- > 0; rest /= m->axis[i].size)
            sum += rest % m->axis[i].size * out[i].stride;
        if (sum != m->ids[k])
            return false;
    }
    return true;
}

/* The digits of the axes of a mesh: how the device number grows along each. Where it does not grow evenly (*odd) those
 * of 0, 1, 2, ... False: its devices are none. */
static bool mesh_digits(const xl_mesh *m, digit *out, bool *odd)
{
    digit plain[32];
    int64_t total = 1;
    *odd = false;
    for (uint32_t i = m->naxis; i-- > 0; ) {
        out[i] = plain[i] = (digit){ total, m->axis[i].size };
        if (m->axis[i].size <= 0 || total > (1 << 20))
            return false;
        total *= m->axis[i].size;
    }
    if (!m->nids)
        return true;
    if (m->nids != total)
        return false;
    for (int64_t i = 0; i < total; i++) {
        bool seen = false;
        for (int64_t k = 0; k < i && total <= 4096; k++)
            seen = seen || m->ids[k] == m->ids[i];
        if (seen || m->ids[i] < 0 || m->ids[i] >= total)
            return false;
    }
    *odd = !in_digits(m, total, out);
    if (*odd)
        memcpy(out, plain, m->naxis * sizeof *out);
    return true;
}

const int64_t *xl_shard_order(const xl_shard_ctx *c, const xl_attr *a)
{
    digit d[32];
    bool odd = false;
    const xl_mesh *m = !a || a->kind != XL_AT_SHARDING ? NULL
                       : a->sharding->inlined          ? a->sharding->inlined
                                                       : xl_module_mesh(c->m, a->sharding->mesh);
    return m && m->naxis && m->naxis <= 32 && mesh_digits(m, d, &odd) && odd ? m->ids : NULL;
}

static bool add_digit(const xl_shard_ctx *c, digit d, xl_axes *out)
{
    int64_t left = d.size;
    for (uint32_t i = 0; i < c->natom && left > 1; i++)
        if (c->stride[i] >= d.stride && c->stride[i] < d.stride * d.size) {
            if (out->n >= XL_AXES_MAX || left % c->size[i])
                return false;
            out->atom[out->n++] = (uint8_t)i;
            left /= c->size[i];
        }
    return left == 1;
}

static void axis(xl_shard_ctx *c, const xl_axes *a)
{
    for (uint32_t i = 0; i < c->naxis; i++)
        if (xl_axes_eq(&c->axis[i], a))
            return;
    if (a->n)
        XL_PUSH(c->a, c->axis, c->naxis, c->capaxis, *a);
}

uint32_t xl_shard_whole_axes(const xl_shard_ctx *c, const xl_axes *a)
{
    uint32_t at = 0;
    for (uint32_t best = 1; best && at < a->n; at += best) {
        best = 0;
        for (uint32_t i = 0; i < c->naxis; i++)
            if (c->axis[i].n > best && c->axis[i].n <= a->n - at &&
                !memcmp(c->axis[i].atom, a->atom + at, c->axis[i].n))
                best = c->axis[i].n;
    }
    return at;
}

xl_error *xl_shard_atoms(xl_shard_ctx *c)
{
    int64_t at[64];
    uint32_t n = 0;
    border(at, &n, 1);
    border(at, &n, c->n);
    for (uint32_t k = 0; k < c->m->nmesh; k++) {
        const xl_mesh *m = c->m->mesh[k].mesh;
        digit d[32];
        bool odd;
        int64_t total = 1;
        if (!m->naxis)
            continue;
        if (m->naxis > 32)
            return XL_ERR(UNIMPLEMENTED, "mesh @%.*s has %u axes: 32 is the most", XL_FMT(c->m->mesh[k].name),
                          m->naxis);
        for (uint32_t i = 0; i < m->naxis; i++) {
            total *= m->axis[i].size;
            for (uint32_t j = 0; j < i; j++)
                if (xl_str_eq(m->axis[i].name, m->axis[j].name))
                    return XL_ERR(INVALID, "mesh @%.*s has axis \"%.*s\" twice", XL_FMT(c->m->mesh[k].name),
                                  XL_FMT(m->axis[i].name));
        }
        if (total != c->n && total != 1)                   /* over a mesh of one device everything is whole */
            return XL_ERR(INVALID,
                          "mesh @%.*s multiplies to %lld devices, the program is compiled for %lld partitions: make "
                          "the product of its axes the number of devices",
                          XL_FMT(c->m->mesh[k].name), (long long)total, (long long)c->n);
        if (!mesh_digits(m, d, &odd))
            return XL_ERR(INVALID, "mesh @%.*s does not number its devices 0 to %lld, each once",
                          XL_FMT(c->m->mesh[k].name), (long long)total - 1);
        for (uint32_t i = 0; i < m->naxis; i++) {
            border(at, &n, d[i].stride);
            border(at, &n, d[i].stride * d[i].size);
        }
    }
    for (uint32_t i = 0; i < n; i++)                       /* largest first */
        for (uint32_t j = i + 1; j < n; j++)
            if (at[j] > at[i]) {
                int64_t t = at[i];
                at[i] = at[j];
                at[j] = t;
            }
    c->size = xl_new(c->a, int64_t, 64);
    c->stride = xl_new(c->a, int64_t, 64);
    for (uint32_t i = 0; i + 1 < n; i++) {
        int64_t gap = at[i] / at[i + 1], stride = at[i];
        if (at[i] % at[i + 1])
            return XL_ERR(UNIMPLEMENTED,
                          "the meshes of this program split the %lld devices in ways that do not fit each other (%lld "
                          "and %lld): use one mesh",
                          (long long)c->n, (long long)at[i], (long long)at[i + 1]);
        for (int64_t p = 2; gap > 1; )
            if (gap % p == 0) {
                gap /= p;
                stride /= p;
                if (c->natom >= XL_AXES_MAX)
                    return XL_ERR(UNIMPLEMENTED, "%lld devices: more than this partitioner takes apart",
                                  (long long)c->n);
                c->size[c->natom] = p;
                c->stride[c->natom++] = stride;
            } else if (p * p > gap) {
                p = gap;
            } else {
                p++;
            }
    }
    for (uint32_t k = 0; k < c->m->nmesh; k++) {
        const xl_mesh *m = c->m->mesh[k].mesh;
        digit d[32];
        bool odd;
        for (uint32_t i = 0; m->naxis && mesh_digits(m, d, &odd) && i < m->naxis; i++) {
            xl_axes a = { 0 };
            if (add_digit(c, d[i], &a))
                axis(c, &a);
        }
    }
    return NULL;
}

/* ---- sdy --------------------------------------------------------------------------------------------------------- */
static const xl_mesh *mesh_of(const xl_shard_ctx *c, const xl_sharding *s)
{
    return s->inlined ? s->inlined : xl_module_mesh(c->m, s->mesh);
}

xl_error *xl_shard_axis(xl_shard_ctx *c, const xl_sharding *s, xl_str name, int64_t pre, int64_t size, xl_axes *out)
{
    const xl_mesh *m = mesh_of(c, s);
    digit d[32];
    bool odd;
    if (!m || m->naxis > 32 || !mesh_digits(m, d, &odd))
        return XL_ERR(INVALID, "a sharding names mesh @%.*s, which the program does not have", XL_FMT(s->mesh));
    for (uint32_t i = 0; i < m->naxis; i++)
        if (xl_str_eq(m->axis[i].name, name)) {
            digit x = d[i];
            if (size) {
                if (pre < 1 || size < 1 || x.size % (pre * size))
                    return XL_ERR(INVALID, "sub-axis \"%.*s\":(%lld)%lld does not divide its axis of %lld",
                                  XL_FMT(name), (long long)pre, (long long)size, (long long)x.size);
                x.stride *= x.size / (pre * size);
                x.size = size;
            }
            if (!add_digit(c, x, out))
                return XL_ERR(UNIMPLEMENTED,
                              "axis \"%.*s\" is split in a way that the other axes of this program do not allow",
                              XL_FMT(name));
            return NULL;
        }
    return XL_ERR(INVALID, "mesh @%.*s has no axis \"%.*s\"", XL_FMT(s->mesh), XL_FMT(name));
}

static xl_error *read_sdy(xl_shard_ctx *c, const xl_sharding *s, const xl_type *t, xl_axes *out, uint32_t *closed)
{
    const xl_mesh *m = mesh_of(c, s);
    *closed = t->rank >= 32 ? UINT32_MAX : (1u << t->rank) - 1;
    if (!m)
        return XL_ERR(INVALID, "a sharding names mesh @%.*s, which the program does not have", XL_FMT(s->mesh));
    if (s->rank != t->rank)
        return XL_ERR(INVALID, "a sharding of %u dimensions on a tensor of %u", s->rank, t->rank);
    for (uint32_t d = 0; d < s->rank; d++) {
        if (s->dim[d].open && !s->nunreduced)              /* or it might be split over what it is unreduced over */
            *closed &= ~(1u << d);
        for (uint32_t i = 0; i < s->dim[d].naxis; i++) {
            xl_error *err =
                xl_shard_axis(c, s, s->dim[d].axis[i].name, s->dim[d].axis[i].pre, s->dim[d].axis[i].size, &out[d]);
            if (err)
                return err;
        }
    }
    return NULL;
}

xl_error *xl_shard_owed(xl_shard_ctx *c, const xl_attr *a, xl_owed *out)
{
    static const xl_opcode how[] = { XL_OP_ADD, XL_OP_MAXIMUM, XL_OP_MINIMUM };
    xl_error *err = NULL;
    *out = (xl_owed){ .combine = XL_OP_ADD };
    if (!a || a->kind != XL_AT_SHARDING)
        return NULL;
    const xl_sharding *s = a->sharding;
    if (s->reduction >= 0 && s->reduction < 3)
        out->combine = how[s->reduction];
    for (uint32_t i = 0; i < s->nunreduced && !err; i++)
        err = xl_shard_axis(c, s, s->unreduced[i].name, s->unreduced[i].pre, s->unreduced[i].size, &out->over);
    for (uint32_t i = 0; i < out->over.n && !err; i++)
        if (memchr(out->over.atom, out->over.atom[i], i))
            err = XL_ERR(INVALID, "a sharding is unreduced over one mesh axis twice: name each axis once");
    return err;
}

/* ---- {devices=[2,1,4]<=[8]T(0) last_tile_dim_replicate} ---- */
static bool numbers(xl_str *s, char open, char close, int64_t *out, uint32_t cap, uint32_t *n)
{
    *n = 0;
    if (!s->n || s->p[0] != open)
        return false;
    xl_str rest = { s->p + 1, s->n - 1 };
    size_t end = 0;
    while (end < rest.n && rest.p[end] != close)
        end++;
    if (end == rest.n)
        return false;
    xl_str in = { rest.p, end };
    *s = (xl_str){ rest.p + end + 1, rest.n - end - 1 };
    while (in.n) {
        xl_str one = xl_str_trim(xl_str_cut(&in, ','));
        if (*n == cap || !xl_str_i64(one, &out[*n]))
            return false;
        (*n)++;
    }
    return true;
}

static void primes(int64_t v, int64_t stride, digit *out, uint32_t *n)
{
    for (int64_t p = 2; v > 1; )
        if (v % p == 0) {
            v /= p;
            out[(*n)++] = (digit){ stride * v, p };
        } else {
            p = p * p > v ? v : p + 1;
        }
}

/* Reads "0,2,1,3" and finds the digits of its order. False: not the devices that there are. */
static bool device_list(const xl_shard_ctx *c, xl_str *s, const int64_t *tile, uint32_t ntile, digit *d, uint32_t *nd,
                        bool *regular)
{
    int64_t *ids = xl_new(c->a, int64_t, (size_t)c->n), n = 0, total = 1;
    xl_str list = *s;
    size_t end = 0;
    while (end < list.n && (list.p[end] == ',' || (list.p[end] >= '0' && list.p[end] <= '9')))
        end++;
    *s = (xl_str){ list.p + end, list.n - end };
    list.n = end;
    while (list.n && n < c->n)
        if (!xl_str_i64(xl_str_cut(&list, ','), &ids[n++]))
            return false;
    for (uint32_t i = 0; i < ntile; i++)
        total *= tile[i] > 0 && tile[i] <= c->n ? tile[i] : 0;
    if (n != c->n || total != c->n || ids[0] != 0)
        return false;
    digit place[64];
    uint32_t np = 0;
    primes(c->n, 1, place, &np);
    for (uint32_t i = 0; i < np; i++)
        d[i] = (digit){ ids[place[i].stride], place[i].size };
    *nd = np;
    *regular = true;
    for (int64_t k = 0; k < c->n && *regular; k++) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < np; i++)
            sum += k / place[i].stride % place[i].size * d[i].stride;
        *regular = sum == ids[k];
    }
    return true;
}

static xl_error *read_string(xl_shard_ctx *c, xl_str text, const xl_type *t, xl_axes *out, uint32_t *closed, bool *says)
{
    xl_str s = xl_str_trim(text);
    int64_t tile[40], dims[40], perm[40];
    uint32_t ntile, ndims, nperm = 0, nd = 0, at = 0;
    digit d[64];
    *closed = t->rank >= 32 ? UINT32_MAX : (1u << t->rank) - 1;
    *says = true;
    if (s.n >= 2 && s.p[0] == '{')
        s = xl_str_trim((xl_str){ s.p + 1, s.n - 2 });
    if (xl_str_starts(s, XL_STR("replicated")) || xl_str_starts(s, XL_STR("maximal")))
        return NULL;
    if (xl_str_starts(s, XL_STR("manual")) || xl_str_starts(s, XL_STR("unknown")) || s.n == 0) {
        *says = false;
        return NULL;
    }
    if (!xl_str_starts(s, XL_STR("devices=")))
        return XL_ERR(UNIMPLEMENTED, "sharding \"%.*s\": not of a form this partitioner reads", XL_FMT(text));
    s = (xl_str){ s.p + 8, s.n - 8 };
    if (!numbers(&s, '[', ']', tile, 40, &ntile))
        goto bad;
    if (xl_str_starts(s, XL_STR("<="))) {
        s = (xl_str){ s.p + 2, s.n - 2 };
        if (!numbers(&s, '[', ']', dims, 40, &ndims))
            goto bad;
        if (xl_str_starts(s, XL_STR("T"))) {
            s = (xl_str){ s.p + 1, s.n - 1 };
            if (!numbers(&s, '(', ')', perm, 40, &nperm) || nperm != ndims)
                goto bad;
        }
        int64_t stride[40], total = 1;
        for (uint32_t i = ndims; i-- > 0; total *= dims[i]) {
            stride[i] = total;
            if (dims[i] < 1 || total > (1 << 20))
                goto bad;
        }
        if (total != c->n)
            goto bad;
        for (uint32_t i = 0; i < ndims; i++) {
            int64_t k = nperm ? perm[i] : (int64_t)i;
            if (k < 0 || k >= ndims)
                goto bad;
            primes(dims[k], stride[k], d, &nd);
        }
    } else {                                               /* a list of devices: find the digits of its order */
        bool regular;
        if (!device_list(c, &s, tile, ntile, d, &nd, &regular))
            goto bad;
        if (!regular)
            return XL_ERR(UNIMPLEMENTED, "sharding \"%.*s\" lists its devices in no regular order", XL_FMT(text));
    }
    s = xl_str_trim(s);
    uint32_t extra = 0;
    if (xl_str_starts(s, XL_STR("last_tile_dim_replicate")))
        extra = 1;
    else if (xl_str_starts(s, XL_STR("last_tile_dims={"))) {
        xl_str in = { s.p + 16, s.n - 16 };
        extra = 1;
        for (size_t i = 0; i < in.n && in.p[i] != '}'; i++)
            extra += in.p[i] == ',';
        if (memmem(in.p, in.n, "manual", 6))
            return XL_ERR(UNIMPLEMENTED,
                          "sharding \"%.*s\" is manual over some axes only: use the Shardy partitioner "
                          "(jax_use_shardy_partitioner)",
                          XL_FMT(text));
    }
    if (ntile != t->rank + extra)
        return XL_ERR(INVALID, "sharding \"%.*s\" has %u dimensions, its tensor %u", XL_FMT(text), ntile - extra,
                      t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        int64_t left = tile[i];
        while (left > 1) {
            if (at >= nd || left % d[at].size || !add_digit(c, d[at], &out[i]))
                return XL_ERR(UNIMPLEMENTED,
                              "sharding \"%.*s\" splits the devices in a way that does not fit the rest of the program",
                              XL_FMT(text));
            left /= d[at++].size;
        }
        axis(c, &out[i]);
    }
    return NULL;
bad:
    return XL_ERR(INVALID, "sharding \"%.*s\" does not make sense for %lld devices", XL_FMT(text), (long long)c->n);
}

const xl_attr *xl_shard_note(const xl_attr *dict)
{
    const xl_attr *a = xl_dict_get(dict, XL_STR("sdy.sharding"));
    return a ? a : xl_dict_get(dict, XL_STR("mhlo.sharding"));
}

xl_error *xl_shard_read(xl_shard_ctx *c, const xl_attr *a, const xl_type *t, bool strict, xl_axes **out,
                        uint32_t *closed)
{
    *out = NULL;
    *closed = 0;
    if (!a || t->kind != XL_TY_TENSOR || t->unranked || t->rank > 32)
        return NULL;
    xl_axes *s = xl_spec_copy(c, NULL, t->rank);
    bool says = true;
    xl_error *err = NULL;
    if (a->kind == XL_AT_SHARDING)
        err = read_sdy(c, a->sharding, t, s, closed);
    else if (a->kind == XL_AT_STR)
        err = read_string(c, a->str, t, s, closed, &says);
    else
        return NULL;
    xl_owed owed = { 0 };
    if (!err)
        err = xl_shard_owed(c, a, &owed);
    if (err)
        return err;
    for (uint32_t d = 0; d < t->rank; d++) {
        int64_t parts = c->asked[d] = xl_axes_parts(c, &s[d]);
        for (uint32_t i = 0; i < s[d].n; i++)
            if (memchr(owed.over.atom, s[d].atom[i], owed.over.n))
                return XL_ERR(
                    INVALID,
                    "one mesh axis splits dimension %u of a tensor that is unreduced over it: an axis can be used once",
                    d);
        for (uint32_t i = 0; i < s[d].n; i++)
            for (uint32_t e = 0; e < t->rank; e++)
                for (uint32_t j = 0; j < s[e].n; j++)
                    if ((e != d || j != i) && s[e].atom[j] == s[d].atom[i])
                        return XL_ERR(INVALID,
                                      "one mesh axis splits dimension %u and dimension %u of the same tensor: an axis "
                                      "can be used once",
                                      d, e);
        if (t->dims[d] % parts == 0)
            continue;
        if (strict)
            return XL_ERR(INVALID,
                          "dimension %u has size %lld, which %lld devices cannot share evenly: the next size that they "
                          "can is %lld",
                          d, (long long)t->dims[d], (long long)parts,
                          (long long)((t->dims[d] + parts - 1) / parts * parts));
        while (s[d].n && t->dims[d] % xl_axes_parts(c, &s[d]))  /* what divides stays */
            s[d].n--;
        c->uneven = true;
    }
    *out = says ? s : NULL;
    return NULL;
}

/* ---- factors ----------------------------------------------------------------------------------------------------- */
void xl_shard_project(const xl_shard_ctx *c, const xl_rule *r, uint32_t tensor, const xl_axes *spec, uint32_t rank,
                      xl_axes *fs)
{
    for (uint32_t i = 0; i < r->nfactor; i++)
        fs[i].n = 0;
    for (uint32_t d = 0; d < rank; d++) {
        uint32_t at = 0;
        for (uint32_t k = 0; k < r->map[tensor][d].n; k++) {
            uint32_t f = r->map[tensor][d].f[k];
            int64_t prod = 1;
            while (at < spec[d].n && r->size[f] % (prod * c->size[spec[d].atom[at]]) == 0) {
                prod *= c->size[spec[d].atom[at]];
                fs[f].atom[fs[f].n++] = spec[d].atom[at++];
            }
            if (prod != r->size[f])
                break;
        }
    }
}

void xl_shard_unproject(const xl_shard_ctx *c, const xl_rule *r, uint32_t tensor, const xl_axes *fs, uint32_t rank,
                        xl_axes *spec)
{
    for (uint32_t d = 0; d < rank; d++) {
        spec[d].n = 0;
        for (uint32_t k = 0; k < r->map[tensor][d].n; k++) {
            uint32_t f = r->map[tensor][d].f[k];
            for (uint32_t i = 0; i < fs[f].n && spec[d].n < XL_AXES_MAX; i++)
                spec[d].atom[spec[d].n++] = fs[f].atom[i];
            if (xl_axes_parts(c, &fs[f]) != r->size[f])
                break;
        }
    }
}

/* ---- OpSharding -------------------------------------------------------------------------------------------------- */
static int64_t parts_of(const xl_shard_info *info, const xl_axes *a)
{
    int64_t k = 1;
    for (uint32_t i = 0; i < a->n; i++)
        k *= info->size[a->atom[i]];
    return k;
}

static int64_t tiles_of(const xl_shard_info *info, const xl_axes *spec, uint32_t rank)
{
    int64_t parts = 1;
    for (uint32_t d = 0; spec && d < rank; d++)
        parts *= parts_of(info, &spec[d]);
    return parts;
}

/* The devices in the order of the tiles; those that hold the same tile by their number, in groups over which it is not
 * unreduced. NULL: no memory. */
static int64_t *devices_of(const xl_shard_info *info, const xl_axes *spec, uint32_t rank, const xl_axes *owed,
                           const int64_t *order, int64_t parts)
{
    int64_t n = info->npartition, each = n / parts, sums = parts_of(info, owed),
            *ids = calloc((size_t)(n + parts * sums), sizeof *ids), *used = ids ? ids + n : NULL;
    for (int64_t p = 0; ids && p < n; p++) {
        int64_t at = 0, u = 0;
        for (uint32_t d = 0; spec && d < rank; d++)
            for (uint32_t i = 0; i < spec[d].n; i++) {
                uint8_t a = spec[d].atom[i];
                at = at * info->size[a] + p / info->stride[a] % info->size[a];
            }
        for (uint32_t a = 0; a < info->natom; a++)         /* in the order of the mesh */
            if (memchr(owed->atom, (int)a, owed->n))
                u = u * info->size[a] + p / info->stride[a] % info->size[a];
        ids[at * each + used[at * sums + u]++ * sums + u] = order ? order[p] : p;
    }
    return ids;
}

void xl_shard_proto(const xl_shard_info *info, const xl_axes *spec, uint32_t rank, const xl_owed *owed,
                    const int64_t *order, xl_buf *out)
{
    int64_t n = info->npartition, parts = tiles_of(info, spec, rank), sums = parts_of(info, &owed->over),
            copies = n / parts / sums;
    if (parts == 1 && sums == 1) {
        xl_proto_put_int(out, XL_HLO_SHARDING_type, XL_HLO_SHARDED_REPLICATED);
        return;
    }
    int64_t *devices = devices_of(info, spec, rank, &owed->over, order, parts);
    xl_buf dims = { 0 }, ids = { 0 }, last = { 0 }, how = { 0 };
    xl_proto_put_int(out, XL_HLO_SHARDING_type, XL_HLO_SHARDED_OTHER);
    for (uint32_t d = 0; d < rank; d++)
        xl_proto_put_raw(&dims, (uint64_t)(spec ? parts_of(info, &spec[d]) : 1));
    if (copies > 1)
        xl_proto_put_raw(&dims, (uint64_t)copies);
    if (copies > 1 && sums > 1)
        xl_proto_put_raw(&last, XL_HLO_SHARDED_REPLICATED);
    if (sums > 1) {
        xl_proto_put_raw(&dims, (uint64_t)sums);
        xl_proto_put_raw(&last, XL_HLO_SHARDED_UNREDUCED);
    }
    for (int64_t i = 0; devices && i < n; i++)
        xl_proto_put_raw(&ids, (uint64_t)devices[i]);
    xl_proto_put_bytes(out, XL_HLO_SHARDING_tile_assignment_dimensions, xl_buf_view(&dims));
    xl_proto_put_bytes(out, XL_HLO_SHARDING_tile_assignment_devices, xl_buf_view(&ids));
    if (copies > 1 && sums == 1)
        xl_proto_put_int(out, XL_HLO_SHARDING_replicate_on_last_tile_dim, 1);
    if (sums > 1)
        xl_proto_put_bytes(out, XL_HLO_SHARDING_last_tile_dims, xl_buf_view(&last));
    if (sums > 1 && owed->combine != XL_OP_ADD) {          /* how it is reduced stands where XLA puts it */
        xl_proto_put_bytes(&how, XL_HLO_METADATA_op_type, XL_STR("sdy::reduction_op"));
        xl_proto_put_bytes(&how, XL_HLO_METADATA_op_name, xl_str_of(owed->combine == XL_OP_MAXIMUM ? "MAX" : "MIN"));
        xl_proto_put_bytes(out, XL_HLO_SHARDING_metadata, xl_buf_view(&how));
    }
    out->failed = out->failed || how.failed || dims.failed || ids.failed || last.failed || !devices;
    free(devices);
    xl_buf_fini(&dims);
    xl_buf_fini(&ids);
    xl_buf_fini(&last);
    xl_buf_fini(&how);
}

void xl_shard_text(const xl_shard_info *info, const xl_axes *spec, uint32_t rank, const xl_owed *owed,
                   const int64_t *order, xl_buf *out)
{
    int64_t n = info->npartition, parts = tiles_of(info, spec, rank), sums = parts_of(info, &owed->over),
            copies = n / parts / sums;
    bool in_order = true;
    if (parts == 1 && sums == 1) {
        xl_buf_puts(out, "{replicated}");
        return;
    }
    int64_t *devices = devices_of(info, spec, rank, &owed->over, order, parts);
    out->failed = out->failed || !devices;
    xl_buf_puts(out, "{devices=[");
    for (uint32_t d = 0; d < rank; d++)
        xl_buf_printf(out, "%s%lld", d ? "," : "", (long long)(spec ? parts_of(info, &spec[d]) : 1));
    if (copies > 1)
        xl_buf_printf(out, rank ? ",%lld" : "%lld", (long long)copies);
    if (sums > 1)
        xl_buf_printf(out, rank || copies > 1 ? ",%lld" : "%lld", (long long)sums);
    xl_buf_putc(out, ']');
    for (int64_t i = 0; devices && i < n; i++)
        in_order = in_order && devices[i] == i;
    if (in_order)
        xl_buf_printf(out, "<=[%lld]", (long long)n);
    for (int64_t i = 0; devices && !in_order && i < n; i++)
        xl_buf_printf(out, "%s%lld", i ? "," : "", (long long)devices[i]);
    if (sums > 1)
        xl_buf_puts(out, copies > 1 ? " last_tile_dims={replicated, unreduced}}" : " last_tile_dims={unreduced}}");
    else
        xl_buf_puts(out, copies > 1 ? " last_tile_dim_replicate}" : "}");
    free(devices);
}
