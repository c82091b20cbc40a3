#include "lane/trial.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/time.h"
#include "ir/scalar.h"

static uint64_t mix(uint64_t *s)
{
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

xl_error *xl_trial_type(const xl_type *t, uint32_t i, xl_elem *elem, size_t *bytes)
{
    if (!xl_type_static(t) || t->quant ||
        (*elem = xl_elem_parse(xl_str_of(xl_dtypes[t->dtype].text))) == XL_ELEM_INVALID ||
        !xl_elem_size(*elem, xl_type_dims(t), bytes))
        return XL_ERR(UNIMPLEMENTED, "argument %u is not a tensor of a fixed shape", i);
    return NULL;
}

void xl_trial_fill(const xl_type *t, const double *value, uint64_t *state, void *to, size_t bytes)
{
    char *p = to;
    xl_dtype part = xl_dtype_part(t->dtype);
    size_t each = xl_dtype_bytes(part);
    xl_dclass cls = xl_dtype_class(part);
    for (size_t i = 0; i + each <= bytes && each; i += each) {
        double v = value ? *value : 0;
        if (!value) {
            uint64_t r = mix(state);
            v = cls == XL_CLASS_FLOAT  ? (double)(r >> 11) * 0x1p-52 - 1
                : cls == XL_CLASS_PRED ? (double)(r & 1)
                                       : (double)(r & 7);
        }
        xl_scalar_put(part, v, p + i);
    }
}

/* ---- running -------------------------------------------------------------------------------------------------------
 * The file: for each output the number of its element type, its bytes, and they themselves. */
typedef struct {
    uint64_t elem, bytes;
} head;

static xl_error *argument(const xl_device *d, const xl_type *t, uint32_t i, uint64_t *state, xl_buffer **out)
{
    xl_error *err = NULL;
    xl_elem elem = XL_ELEM_INVALID;
    size_t bytes = 0;
    char *data = NULL;
    XL_DO(xl_trial_type(t, i, &elem, &bytes));
    data = malloc(bytes ? bytes : 1);
    if (!data) {
        err = XL_ERR(EXHAUSTED, "no memory for argument %u, %zu bytes", i, bytes);
        goto out;
    }
    xl_trial_fill(t, NULL, state, data, bytes);
    err = xl_buffer_from_host(d, elem, xl_type_dims(t), data, NULL, out);
out:
    free(data);
    return err;
}

static xl_error *write_outputs(const char *path, xl_buffer *const *out, size_t n)
{
    xl_error *err = NULL;
    char *data = NULL;
    xl_file_out f = { .fd = -1 };
    XL_DO(xl_file_out_open(&f, path, 0600));
    for (size_t i = 0; i < n; i++) {
        xl_elem elem = XL_ELEM_INVALID;
        xl_dims dims = { 0 };
        size_t bytes = 0;
        XL_DO(xl_buffer_elem(out[i], &elem));
        XL_DO(xl_buffer_dims(out[i], &dims));
        if (!xl_elem_size(elem, dims, &bytes))
            bytes = 0; /* a token */
        free(data);
        data = malloc(bytes ? bytes : 1);
        if (!data) {
            err = XL_ERR(EXHAUSTED, "no memory for output %zu, %zu bytes", i, bytes);
            goto out;
        }
        if (bytes)
            XL_DO(xl_buffer_to_host(out[i], data, bytes, NULL));
        head h = { (uint64_t)elem, bytes };
        XL_DO(xl_file_out_add(&f, &h, sizeof h));
        XL_DO(xl_file_out_add(&f, data, bytes));
    }
    err = xl_file_out_commit(&f);
out:
    xl_file_out_close(&f);
    free(data);
    return err;
}

xl_error *xl_trial_run(xl_client *c, const xl_program *prog, const xl_func *f, uint64_t seed, double budget_s,
                       const char *path, double *best)
{
    xl_error *err = NULL;
    const xl_device *d = xl_client_local(c, 0);
    uint32_t nin = f->body->narg;
    size_t nout = 0;
    xl_buffer **in = calloc(nin + 1, sizeof *in), **out = NULL;
    double begun = xl_now();
    *best = -1;
    XL_DO(xl_executable_noutputs(xl_program_executable(prog), &nout));
    out = calloc(nout + 1, sizeof *out);
    if (!in || !out || !d) {
        err = d ? XL_ERR(EXHAUSTED, "no memory for the arguments") : XL_ERR(UNAVAILABLE, "there is no device");
        goto out;
    }
    for (int turn = 0; turn < 2 || (turn < 50 && xl_now() - begun < budget_s); turn++) {
        uint64_t state = seed; /* donated arguments are gone: each turn has its own, all alike */
        for (uint32_t i = 0; i < nin; i++) {
            xl_buffer_free(in[i]);
            in[i] = NULL;
            XL_DO(argument(d, xl_value_type(f, f->body->arg[i]), i, &state, &in[i]));
        }
        for (size_t i = 0; i < nout; i++) {
            xl_buffer_free(out[i]);
            out[i] = NULL;
        }
        xl_fence *done = NULL;
        double start = xl_now();
        XL_DO(xl_program_execute(
            prog, &(xl_exec){
                      .ndevice = 1, .narg = nin, .arg = (xl_buffer *const *const *)&in, .out = &out, .done = &done }));
        err = done ? xl_fence_await(done) : NULL;
        xl_fence_free(done);
        XL_DO(err);
        double took = xl_now() - start;
        if (turn) /* the first one warms up */
            *best = *best < 0 || took < *best ? took : *best;
    }
    err = write_outputs(path, out, nout);
out:
    for (uint32_t i = 0; in && i < nin; i++)
        xl_buffer_free(in[i]);
    for (size_t i = 0; out && i < nout; i++)
        xl_buffer_free(out[i]);
    free(in);
    free(out);
    return err;
}

/* ---- comparing -----------------------------------------------------------------------------------------------------
 * */
/* How far two compilers may be apart, over the largest magnitude of an output: they order sums as they like. */
static double rounding(xl_dtype d)
{
    if (xl_dtype_class(d) != XL_CLASS_FLOAT)
        return 0;
    switch (xl_dtype_bytes(d)) {
    case 8: return 1e-9;
    case 4: return 1e-3; /* a matrix product of f32 may be done in bf16x3 or TF32 */
    case 2: return 5e-2;
    default: return 0.25;
    }
}

static void compare_one(xl_dtype d, const char *p, const char *q, size_t bytes, size_t index, xl_trial_difference *o)
{
    size_t each = xl_dtype_bytes(d), differ = 0;
    double most = 0, scale = 0;
    for (size_t i = 0; each && i + each <= bytes; i += each) {
        o->elements++;
        double a = xl_scalar_get(d, p + i), b = xl_scalar_get(d, q + i), m = fmax(fabs(a), fabs(b));
        if (isfinite(m) && m > scale)
            scale = m;
        if (!memcmp(p + i, q + i, each))
            continue;
        differ++;
        double gap = isnan(a) && isnan(b) ? 0 : fabs(a - b);
        most = isnan(gap) ? INFINITY : fmax(most, gap);
    }
    o->differ += differ;
    double relative = most == 0 ? 0 : scale > 0 ? most / scale : INFINITY, allowed = rounding(d);
    /* worst: the one furthest beyond what its type allows */
    double was = o->relative / (o->allowed + 1e-30), is = relative / (allowed + 1e-30);
    if (differ && (is > was || o->allowed < 0)) {
        o->relative = relative;
        o->allowed = allowed;
        o->at = index;
    }
}

xl_error *xl_trial_compare(const char *path, const char *other, xl_trial_difference *o)
{
    xl_error *err = NULL;
    xl_arena tmp = { 0 };
    xl_str a, b;
    *o = (xl_trial_difference){ .allowed = -1 };
    XL_DO(xl_file_read(&tmp, path, &a));
    XL_DO(xl_file_read(&tmp, other, &b));
    for (size_t i = 0; a.n || b.n; i++) {
        head h = { 0 }, g = { 0 };
        if (a.n >= sizeof h && b.n >= sizeof g) {
            memcpy(&h, a.p, sizeof h);
            memcpy(&g, b.p, sizeof g);
        }
        if (a.n < sizeof h || b.n < sizeof g || h.elem != g.elem || h.bytes != g.bytes || h.bytes > a.n - sizeof h ||
            g.bytes > b.n - sizeof g) { /* other types or another number of outputs */
            o->at = i;
            o->relative = INFINITY;
            o->allowed = 0;
            o->differ++;
            break;
        }
        xl_dtype d = xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text((xl_elem)h.elem))));
        compare_one(d, a.p + sizeof h, b.p + sizeof g, h.bytes, i, o);
        o->outputs++;
        a = (xl_str){ a.p + sizeof h + h.bytes, a.n - sizeof h - h.bytes };
        b = (xl_str){ b.p + sizeof g + g.bytes, b.n - sizeof g - g.bytes };
    }
    if (o->allowed < 0)
        o->allowed = 0;
out:
    xl_arena_fini(&tmp);
    return err;
}
