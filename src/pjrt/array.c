#include "pjrt/array.h"

#include <stdlib.h>

static xl_error *new_array(const xl_place *p, const xl_array_type *t, xl_array **out)
{
    *out = NULL;
    if (t->dims.n > XL_MESH_RANK)
        return XL_ERR(INVALID, "a tensor of %zu dimensions; at most %d can be spread", t->dims.n, XL_MESH_RANK);
    xl_array *x = calloc(1, sizeof *x + p->n * sizeof *x->part);
    if (!x)
        return XL_ERR(EXHAUSTED, "no memory for the handles of a tensor");
    x->place = p;
    x->elem = t->elem;
    x->rank = (uint32_t)t->dims.n;
    if (t->dims.n)
        memcpy(x->dims, t->dims.p, t->dims.n * sizeof *x->dims);
    if (t->spec)
        x->spec = *t->spec;
    x->spec.rank = x->rank;
    *out = x;
    return NULL;
}

void xl_array_free(xl_array *x)
{
    for (size_t i = 0; x && i < x->place->n; i++)
        xl_buffer_free(x->part[i]);
    free(x);
}

static xl_dims dims_of(const xl_array *x) { return (xl_dims){ x->dims, x->rank }; }

void xl_array_part(const xl_array *x, size_t d, int64_t *lo, int64_t *shape)
{
    if (x->place->mesh)
        xl_mesh_slice(x->place->mesh, &x->spec, dims_of(x), (int64_t)d, lo, shape);
    for (uint32_t i = 0; i < x->rank; i++) {
        lo[i] = x->place->mesh ? lo[i] : 0;
        shape[i] = x->place->mesh ? shape[i] - lo[i] : x->dims[i];
    }
}

bool xl_array_same_part(const xl_array *x, size_t d, size_t e)
{
    int64_t lo[XL_MESH_RANK], other[XL_MESH_RANK], shape[XL_MESH_RANK];
    xl_array_part(x, d, lo, shape);
    xl_array_part(x, e, other, shape);
    return !memcmp(lo, other, x->rank * sizeof *lo);
}

size_t xl_place_first(const xl_place *p)
{
    size_t d = 0;
    while (d < p->n && !p->dev[d]->local)
        d++;
    return d;
}

static void strides_of(const xl_array *x, int64_t *out)
{
    int64_t s = (int64_t)xl_elem_bytes(x->elem);
    for (uint32_t i = x->rank; i-- > 0; s *= x->dims[i])
        out[i] = s;
}

xl_error *xl_array_put(const xl_place *p, xl_elem elem, xl_dims dims, const xl_mesh_spec *spec, const void *data,
                       xl_array **out)
{
    xl_error *err = NULL;
    xl_array *x = NULL;
    int64_t lo[XL_MESH_RANK], shape[XL_MESH_RANK], stride[XL_MESH_RANK];
    *out = NULL;
    XL_DO(new_array(p, &(xl_array_type){ elem, dims, spec }, &x));
    strides_of(x, stride);
    for (size_t d = 0; d < p->n; d++) {
        const char *at = data;
        bool whole = true;
        if (!p->dev[d]->local)
            continue;
        xl_array_part(x, d, lo, shape);
        for (uint32_t i = 0; i < x->rank; i++) {
            at += lo[i] * stride[i];
            whole &= shape[i] == x->dims[i];
        }
        XL_TRY(xl_buffer_from_host(p->dev[d], elem, (xl_dims){ shape, x->rank }, at,
                                   &(xl_host_opts){ .strides = whole ? NULL : stride }, &x->part[d]),
               "device %d", p->dev[d]->id);
    }
    *out = x;
    x = NULL;
out:
    xl_array_free(x);
    return err;
}

/* Rows of a dense part into their place in the whole, which begins at `to`. */
static void scatter(char *to, const char *from, const int64_t *shape, const int64_t *stride, uint32_t rank, size_t elem)
{
    int64_t at[XL_MESH_RANK] = { 0 }, run = (int64_t)elem;
    uint32_t outer = rank;
    while (outer > 0 && stride[outer - 1] == run)          /* dimensions that are dense in both */
        run *= shape[--outer];
    if (!run)
        return;
    for (;;) {
        char *p = to;
        for (uint32_t i = 0; i < outer; i++)
            p += at[i] * stride[i];
        memcpy(p, from, (size_t)run);
        from += run;
        uint32_t i = outer;
        while (i > 0 && ++at[i - 1] == shape[i - 1])
            at[--i] = 0;
        if (!i)
            return;
    }
}

size_t xl_array_local(const xl_array *x)
{
    int64_t lo[XL_MESH_RANK], shape[XL_MESH_RANK];
    size_t n = 1;
    xl_array_part(x, 0, lo, shape);
    for (uint32_t i = 0; i < x->rank; i++)
        n *= (size_t)shape[i];
    return n;
}

xl_error *xl_array_get(const xl_array *x, void *dst, size_t size, xl_fence **done)
{
    xl_error *err = NULL;
    int64_t lo[XL_MESH_RANK], shape[XL_MESH_RANK], stride[XL_MESH_RANK] = { 0 };
    size_t need, local = xl_array_local(x) * xl_elem_bytes(x->elem), have = 0, here = xl_place_first(x->place);
    char *part = NULL;
    if (!xl_elem_size(x->elem, dims_of(x), &need) || need != size)
        return XL_ERR(INVALID, "a tensor of %zu bytes is read into %zu", need, size);
    if (local == size)
        return xl_buffer_to_host(x->part[here], dst, size, done);
    if (done)
        return XL_ERR(UNIMPLEMENTED, "a tensor that is spread over devices is read at once, not later");
    part = malloc(local ? local : 1);
    if (!part)
        return XL_ERR(EXHAUSTED, "no memory for a part of %zu bytes", local);
    strides_of(x, stride);
    for (size_t d = 0; d < x->place->n; d++) {
        char *at = dst;
        bool known = !x->place->dev[d]->local;
        for (size_t e = here; e < d && !known; e++)
            known = x->place->dev[e]->local && xl_array_same_part(x, d, e);
        if (known)
            continue;
        xl_array_part(x, d, lo, shape);
        XL_TRY(xl_buffer_to_host(x->part[d], part, local, NULL), "device %d", x->place->dev[d]->id);
        for (uint32_t i = 0; i < x->rank; i++)
            at += lo[i] * stride[i];
        scatter(at, part, shape, stride, x->rank, xl_elem_bytes(x->elem));
        have += local;
    }
    if (have != need)
        err = XL_ERR(PRECONDITION, "%zu of the %zu bytes of a tensor lie on devices of other processes", need - have,
                     need);
out:
    free(part);
    return err;
}

xl_error *xl_array_check(const xl_array *x)
{
    xl_error *err = NULL;
    int64_t lo[XL_MESH_RANK], shape[XL_MESH_RANK];
    for (size_t d = 0; d < x->place->n; d++) {
        const xl_device *dev;
        xl_dims have;
        if (!x->place->dev[d]->local)
            continue;
        xl_array_part(x, d, lo, shape);
        XL_DO(xl_buffer_device(x->part[d], &dev));
        XL_DO(xl_buffer_dims(x->part[d], &have));
        bool same = have.n == x->rank;
        for (uint32_t i = 0; same && i < x->rank; i++)
            same = have.p[i] == shape[i];
        if (dev != x->place->dev[d] || !same) {
            xl_buf b = { 0 };
            for (uint32_t i = 0; i < have.n; i++)
                xl_buf_printf(&b, i ? ",%lld" : "%lld", (long long)have.p[i]);
            xl_buf_puts(&b, "], its sharding says [");
            for (uint32_t i = 0; i < x->rank; i++)
                xl_buf_printf(&b, i ? ",%lld" : "%lld", (long long)shape[i]);
            err = XL_ERR(INTERNAL,
                         "part %zu of a tensor lies on device %d with the shape [%.*s] on device %d: the plugin spread "
                         "it otherwise",
                         d, dev ? dev->id : -1, XL_FMT(xl_buf_view(&b)), x->place->dev[d]->id);
            xl_buf_fini(&b);
            goto out;
        }
    }
out:
    return err;
}

xl_error *xl_array_execute(const xl_place *p, const xl_program *prog, xl_array *const *in, size_t nin,
                           const xl_array_type *type, size_t nout, xl_array **out)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    xl_buffer ***arg = xl_new(&tmp, xl_buffer **, p->n), ***res = xl_new(&tmp, xl_buffer **, p->n);
    size_t n = 0; /* rows: the devices of this process */
    memset(out, 0, nout * sizeof *out);
    for (size_t d = 0; d < p->n; d++) {
        if (!p->dev[d]->local)
            continue;
        arg[n] = xl_new(&tmp, xl_buffer *, nin);
        res[n] = xl_new(&tmp, xl_buffer *, nout);
        for (size_t i = 0; i < nin; i++)
            arg[n][i] = in[i]->part[d];
        n++;
    }
    for (size_t i = 0; i < nout; i++)
        XL_DO(new_array(p, &type[i], &out[i]));
    xl_exec x = { .ndevice = n, .narg = nin, .arg = (xl_buffer *const *const *)arg, .out = res };
    XL_DO(xl_program_execute(prog, &x));
    for (size_t i = 0; i < nout; i++)
        for (size_t d = 0, row = 0; d < p->n; d++)
            if (p->dev[d]->local)
                out[i]->part[d] = res[row++][i];
out:
    for (size_t i = 0; err && i < nout; i++) {
        xl_array_free(out[i]);
        out[i] = NULL;
    }
    xl_arena_fini(&tmp);
    return err;
}
