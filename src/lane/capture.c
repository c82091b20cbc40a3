#include "lane/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/table.h"
#include "ir/scalar.h"

static const char magic[] = "XLCAP001";
enum { MAGIC = 8, HEAD = MAGIC + 8 + XL_DIGEST_SIZE, ALIGN = 64, COUNT_MAX = 1 << 20 };

/* ---- writing --------------------------------------------------------------------------------------------------- */
typedef struct { const char *p; uint64_t n, at; xl_digest digest; } blob;
typedef struct {
    xl_arena *a;
    blob *blob;
    size_t n, cap;
    xl_table index;                                        /* by address */
    uint64_t end;
} blobs;

/* The same memory is written once: a tensor that stays the same is in many steps. */
static const blob *put(blobs *b, const char *p, uint64_t n)
{
    uint32_t h = xl_table_hash((uintptr_t)p);
    XL_TABLE_EACH(&b->index, h, k)
        if (b->blob[k].p == p && b->blob[k].n == n)
            return &b->blob[k];
    blob x = { p, n, b->end, xl_hash_of((xl_str){ p, n }) };
    b->end += (n + ALIGN - 1) / ALIGN * ALIGN;
    xl_table_add(&b->index, b->a, h, (uint32_t)b->n);
    XL_PUSH(b->a, b->blob, b->n, b->cap, x);
    return &b->blob[b->n - 1];
}

static void put_blob(xl_json *j, blobs *b, const char *p, uint64_t n)
{
    char hex[XL_DIGEST_HEX];
    const blob *x = put(b, p, n);
    xl_json_put_int(j, "at", (int64_t)x->at);
    xl_json_put_int(j, "bytes", (int64_t)x->n);
    xl_json_put_text(j, "digest", xl_digest_hex(&x->digest, hex));
}

static void put_part(xl_json *j, blobs *b, const xl_cap_part *t)
{
    char hex[XL_DIGEST_HEX];
    if (t->elem == XL_ELEM_INVALID)
        return;
    xl_json_put_text(j, "type", xl_elem_text(t->elem));
    xl_json_key(j, "dims");
    xl_json_list(j);
    for (size_t i = 0; i < t->dims.n; i++)
        xl_json_int(j, t->dims.p[i]);
    xl_json_end(j);
    if (t->bytes)
        put_blob(j, b, t->bytes, t->size);
    else if (t->has_digest)
        xl_json_put_text(j, "digest", xl_digest_hex(&t->digest, hex));
}

static void put_step(xl_json *j, blobs *b, const xl_cap_step *s)
{
    xl_json_map(j);
    xl_json_put_int(j, "program", s->program);
    xl_json_put_int(j, "number", (int64_t)s->number);
    xl_json_put_int(j, "devices", s->ndevice);
    xl_json_put_int(j, "arguments", s->narg);
    xl_json_put_int(j, "outputs", s->nout);
    xl_json_key(j, "keep");
    xl_json_list(j);
    for (size_t i = 0; i < s->nkeep; i++)
        xl_json_int(j, s->keep[i]);
    xl_json_end(j);
    xl_json_key(j, "in");
    xl_json_list(j);
    for (size_t i = 0; i < (size_t)s->ndevice * s->narg; i++) {
        xl_json_map(j);
        if (s->in[i].from >= 0) {
            xl_json_put_int(j, "from", s->in[i].from);
            xl_json_put_int(j, "out", s->in[i].out);
        }
        put_part(j, b, &s->in[i].part);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_key(j, "out");
    xl_json_list(j);
    for (size_t i = 0; i < (size_t)s->ndevice * s->nout; i++) {
        xl_json_map(j);
        put_part(j, b, &s->out[i]);
        xl_json_end(j);
    }
    xl_json_end(j);
    xl_json_end(j);
}

xl_error *xl_capture_write(xl_arena *a, const char *path, const xl_capture *c, uint64_t *size)
{
    xl_error *err = NULL;
    xl_buf text = { 0 };
    xl_json j = { .out = &text };
    blobs b = { .a = a };
    xl_file_out out = { .fd = -1 };
    static const char zeros[ALIGN];
    xl_json_map(&j);
    xl_json_put_str(&j, "trigger", c->trigger);
    xl_json_put_str(&j, "why", c->why);
    xl_json_put_str(&j, "plugin", c->plugin);
    xl_json_put_str(&j, "identity", c->identity);
    xl_json_put_str(&j, "flags", c->flags);
    xl_json_put_int(&j, "rank", c->rank);
    xl_json_put_int(&j, "ranks", c->ranks);
    xl_json_key(&j, "programs");
    xl_json_list(&j);
    for (uint32_t i = 0; i < c->nprogram; i++) {
        const xl_cap_program *p = &c->program[i];
        xl_json_map(&j);
        xl_json_put_str(&j, "module", p->module);
        xl_json_put_bool(&j, "hlo", p->hlo);
        xl_json_key(&j, "code");
        xl_json_map(&j);
        put_blob(&j, &b, p->code.p, p->code.n);
        xl_json_end(&j);
        xl_json_key(&j, "options");
        xl_json_map(&j);
        put_blob(&j, &b, p->options.p, p->options.n);
        xl_json_end(&j);
        xl_json_key(&j, "devices");
        xl_json_list(&j);
        for (uint32_t k = 0; k < p->ndevice; k++)
            xl_json_int(&j, p->device[k]);
        xl_json_end(&j);
        xl_json_end(&j);
    }
    xl_json_end(&j);
    xl_json_key(&j, "steps");
    xl_json_list(&j);
    for (uint32_t i = 0; i < c->nstep; i++)
        put_step(&j, &b, &c->step[i]);
    xl_json_end(&j);
    if (c->run) {
        xl_json_key(&j, "run");
        xl_json_node(&j, c->run);
    }
    xl_json_end(&j);
    if (text.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for the manifest of a capture");
        goto out;
    }
    uint64_t length = text.n, head = (HEAD + length + ALIGN - 1) / ALIGN * ALIGN;
    xl_digest d = xl_hash_of(xl_buf_view(&text));
    XL_DO(xl_file_out_open(&out, path, 0600));
    XL_DO(xl_file_out_add(&out, magic, MAGIC));
    XL_DO(xl_file_out_add(&out, &length, sizeof length)); /* both architectures are little-endian */
    XL_DO(xl_file_out_add(&out, d.b, sizeof d.b));
    XL_DO(xl_file_out_add(&out, text.p, text.n));
    XL_DO(xl_file_out_add(&out, zeros, head - HEAD - length));
    for (size_t i = 0; i < b.n; i++) {
        XL_DO(xl_file_out_add(&out, b.blob[i].p, b.blob[i].n));
        XL_DO(xl_file_out_add(&out, zeros, (ALIGN - b.blob[i].n % ALIGN) % ALIGN));
    }
    XL_DO(xl_file_out_commit(&out));
    *size = head + b.end;
out:
    xl_file_out_close(&out);
    xl_buf_fini(&text);
    return err;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */
typedef struct { xl_arena *a; xl_str data; } reader;

static xl_error *get_blob(reader *r, const xl_node *n, xl_str *out)
{
    xl_error *err = NULL;
    int64_t at = -1, bytes = -1;
    xl_str hex = { 0 };
    xl_digest want, have;
    if (!n || n->kind != XL_NODE_MAP)
        return XL_ERR(INVALID, "a blob is not described");
    XL_DO(xl_node_get_int(n, "at", 0, INT64_MAX, &at));
    XL_DO(xl_node_get_int(n, "bytes", 0, INT64_MAX, &bytes));
    XL_DO(xl_node_get_str(n, "digest", &hex));
    if (at < 0 || bytes < 0 || (uint64_t)at > r->data.n || (uint64_t)bytes > r->data.n - (uint64_t)at) {
        err = xl_node_err(n, "these bytes are not in the file, which was cut short");
        goto out;
    }
    *out = (xl_str){ r->data.p + at, (size_t)bytes };
    have = xl_hash_of(*out);
    if (!xl_digest_parse(hex, &want) || !xl_digest_eq(&want, &have))
        err = xl_node_err(n, "these bytes do not have the digest that was written with them");
out:
    return err;
}

static xl_error *get_part(reader *r, const xl_node *n, xl_cap_part *t)
{
    xl_error *err = NULL;
    xl_str type = { 0 }, hex = { 0 }, bytes = { 0 };
    *t = (xl_cap_part){ 0 };
    if (n->kind != XL_NODE_MAP)
        return xl_node_err(n, "not a map");
    XL_DO(xl_node_get_str(n, "type", &type));
    if (!type.n)
        goto out;
    t->elem = xl_elem_parse(type);
    const xl_node *dims = xl_node_get(n, "dims");
    if (t->elem == XL_ELEM_INVALID || !dims || dims->kind != XL_NODE_LIST || dims->n > XL_CAPTURE_RANK) {
        err = xl_node_err(n, "not a tensor");
        goto out;
    }
    int64_t *d = xl_new(r->a, int64_t, dims->n);
    for (size_t i = 0; i < dims->n; i++) {
        if (dims->kid[i]->kind != XL_NODE_INT || dims->kid[i]->i < 0) {
            err = xl_node_err(n, "not a shape");
            goto out;
        }
        d[i] = dims->kid[i]->i;
    }
    t->dims = (xl_dims){ d, dims->n };
    size_t size;
    if (!xl_elem_size(t->elem, t->dims, &size)) {
        err = xl_node_err(n, "a tensor of that shape has no size");
        goto out;
    }
    t->size = size;
    XL_DO(xl_node_get_str(n, "digest", &hex));
    if (hex.n && !(t->has_digest = xl_digest_parse(hex, &t->digest))) {
        err = xl_node_err(n, "not a digest");
        goto out;
    }
    if (xl_node_get(n, "at")) {
        XL_DO(get_blob(r, n, &bytes));
        if (bytes.n != size) {
            err = xl_node_err(n, "%zu bytes for a tensor of %zu", bytes.n, size);
            goto out;
        }
        t->bytes = bytes.p;
    }
out:
    return err;
}

static xl_error *list_of(const xl_node *map, const char *key, const xl_node **out)
{
    *out = xl_node_get(map, key);
    return *out && (*out)->kind == XL_NODE_LIST ? NULL : xl_node_err(map, "it has no list '%s'", key);
}

static xl_error *get_step(reader *r, const xl_node *n, const xl_capture *c, uint32_t i, xl_cap_step *s)
{
    xl_error *err = NULL;
    const xl_node *in, *out, *keep;
    int64_t program = -1, number = 0, ndevice = 0, narg = -1, nout = -1;
    XL_DO(xl_node_get_int(n, "program", 0, (int64_t)c->nprogram - 1, &program));
    XL_DO(xl_node_get_int(n, "number", 0, INT64_MAX, &number));
    XL_DO(xl_node_get_int(n, "devices", 1, COUNT_MAX, &ndevice));
    XL_DO(xl_node_get_int(n, "arguments", 0, COUNT_MAX, &narg));
    XL_DO(xl_node_get_int(n, "outputs", 0, COUNT_MAX, &nout));
    XL_DO(list_of(n, "in", &in));
    XL_DO(list_of(n, "out", &out));
    XL_DO(list_of(n, "keep", &keep));
    if (program < 0 || narg < 0 || nout < 0 || ndevice < 1 || in->n != (uint64_t)ndevice * (uint64_t)narg ||
        out->n != (uint64_t)ndevice * (uint64_t)nout) {
        err = xl_node_err(n, "not a step: its counts do not agree");
        goto out;
    }
    *s = (xl_cap_step){ .program = (uint32_t)program, .number = (uint64_t)number, .ndevice = (uint32_t)ndevice,
                        .narg = (uint32_t)narg, .nout = (uint32_t)nout, .nkeep = keep->n };
    s->in = xl_new(r->a, xl_cap_input, in->n);
    s->out = xl_new(r->a, xl_cap_part, out->n);
    int64_t *k = xl_new(r->a, int64_t, keep->n);
    for (size_t x = 0; x < keep->n; x++) {
        k[x] = keep->kid[x]->i;
        if (keep->kid[x]->kind != XL_NODE_INT || k[x] < 0 || k[x] >= narg) {
            err = xl_node_err(n, "not an argument: %lld", (long long)k[x]);
            goto out;
        }
    }
    s->keep = k;
    for (size_t x = 0; x < in->n; x++) {
        int64_t from = -1, at = 0;
        XL_DO(get_part(r, in->kid[x], &s->in[x].part));
        XL_DO(xl_node_get_int(in->kid[x], "from", 0, (int64_t)i - 1, &from));
        XL_DO(xl_node_get_int(in->kid[x], "out", 0, COUNT_MAX, &at));
        s->in[x].from = from;
        s->in[x].out = (uint32_t)at;
        if (from >= 0 && ((uint32_t)at >= c->step[from].nout || c->step[from].ndevice != s->ndevice)) {
            err = xl_node_err(in->kid[x], "step %lld has no output %lld", (long long)from, (long long)at);
            goto out;
        }
        if (from < 0 && !s->in[x].part.bytes) {
            err = xl_node_err(in->kid[x], "an input without bytes");
            goto out;
        }
    }
    for (size_t x = 0; x < out->n; x++)
        XL_DO(get_part(r, out->kid[x], &s->out[x]));
out:
    return err;
}

bool xl_capture_is(xl_str bytes) { return bytes.n >= HEAD && !memcmp(bytes.p, magic, MAGIC); }

xl_error *xl_capture_parse(xl_arena *a, const char *name, xl_str bytes, xl_capture *c)
{
    xl_error *err = NULL;
    xl_node *root;
    uint64_t length;
    xl_digest have, want;
    *c = (xl_capture){ 0 };
    if (!xl_capture_is(bytes))
        return XL_ERR(INVALID, "%s is no capture; `xlane run --capture=step:10 -- CMD` makes one", name);
    memcpy(&length, bytes.p + MAGIC, sizeof length);
    memcpy(want.b, bytes.p + MAGIC + 8, sizeof want.b);
    if (length > bytes.n - HEAD)
        return XL_ERR(INVALID, "%s was cut short: capture the step again", name);
    xl_str text = { bytes.p + HEAD, (size_t)length };
    have = xl_hash_of(text);
    if (!xl_digest_eq(&have, &want))
        return XL_ERR(INVALID, "%s is damaged: its manifest does not have its digest; capture the step again", name);
    XL_DO(xl_json_read(a, name, text, &root));
    uint64_t head = (HEAD + length + ALIGN - 1) / ALIGN * ALIGN;
    reader r = { a, head <= bytes.n ? (xl_str){ bytes.p + head, bytes.n - (size_t)head } : (xl_str){ bytes.p, 0 } };
    const xl_node *programs, *steps;
    int64_t rank = 0, ranks = 1;
    XL_DO(xl_node_get_str(root, "trigger", &c->trigger));
    XL_DO(xl_node_get_str(root, "why", &c->why));
    XL_DO(xl_node_get_str(root, "plugin", &c->plugin));
    XL_DO(xl_node_get_str(root, "identity", &c->identity));
    XL_DO(xl_node_get_str(root, "flags", &c->flags));
    XL_DO(xl_node_get_int(root, "rank", 0, COUNT_MAX, &rank));
    XL_DO(xl_node_get_int(root, "ranks", 1, COUNT_MAX, &ranks));
    c->rank = (int)rank;
    c->ranks = (int)ranks;
    c->run = xl_node_get(root, "run");
    XL_DO(list_of(root, "programs", &programs));
    XL_DO(list_of(root, "steps", &steps));
    if (!steps->n) {
        err = XL_ERR(INVALID, "%s has no step", name);
        goto out;
    }
    c->program = xl_new(a, xl_cap_program, programs->n);
    for (; c->nprogram < programs->n; c->nprogram++) {
        const xl_node *n = programs->kid[c->nprogram], *devices;
        xl_cap_program *p = &c->program[c->nprogram];
        XL_DO(xl_node_get_str(n, "module", &p->module));
        XL_DO(xl_node_get_bool(n, "hlo", &p->hlo));
        XL_DO(get_blob(&r, xl_node_get(n, "code"), &p->code));
        XL_DO(get_blob(&r, xl_node_get(n, "options"), &p->options));
        XL_DO(list_of(n, "devices", &devices));
        p->device = xl_new(a, int, devices->n);
        for (; p->ndevice < devices->n; p->ndevice++)
            p->device[p->ndevice] = (int)devices->kid[p->ndevice]->i;
    }
    c->step = xl_new(a, xl_cap_step, steps->n);
    for (; c->nstep < steps->n; c->nstep++)
        XL_DO(get_step(&r, steps->kid[c->nstep], c, c->nstep, &c->step[c->nstep]));
out:
    return xl_error_next(err, "capture the step again");
}

xl_error *xl_capture_read(xl_arena *a, const char *path, xl_capture *c)
{
    struct stat st;
    *c = (xl_capture){ 0 };
    int fd = xl_file_open(path, O_RDONLY, 0);
    if (fd < 0 || fstat(fd, &st) < 0) {
        xl_error *err = xl_file_error(errno, "reading", path);
        if (fd >= 0)
            close(fd);
        return err;
    }
    void *map = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED)
        return XL_ERR(INVALID, "%s is no capture; `xlane run --capture=step:10 -- CMD` makes one", path);
    xl_error *err = xl_capture_parse(a, path, (xl_str){ map, (size_t)st.st_size }, c);
    c->map = map;
    c->mapped = (size_t)st.st_size;
    if (err)
        xl_capture_close(c);
    return err;
}

void xl_capture_close(xl_capture *c)
{
    if (c->map)
        munmap(c->map, c->mapped);
    for (uint32_t i = 0; i < c->nother; i++)
        xl_capture_close(&c->other[i]);
    *c = (xl_capture){ 0 };
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */
static xl_dtype part_of(xl_elem elem) { return xl_dtype_part(xl_dtype_find(xl_str_of(xl_elem_text(elem)))); }

bool xl_elem_is_float(xl_elem elem) { return xl_dtype_class(part_of(elem)) == XL_CLASS_FLOAT; }

xl_finite xl_finite_of(xl_elem elem, const void *bytes, uint64_t n)
{
    xl_dtype d = part_of(elem);
    size_t each = xl_dtype_bytes(d);
    xl_finite f = { .min = INFINITY, .max = -INFINITY };
    if (!each)
        return f;
    bool is_float = xl_dtype_class(d) == XL_CLASS_FLOAT;
    f.count = n / each;
    const char *p = bytes;
    for (uint64_t i = 0; i < f.count; i++, p += each) {
        double v;
        if (d == XL_F32) {
            float x;
            memcpy(&x, p, 4);
            v = (double)x;
        } else {
            v = xl_scalar_get(d, p);
        }
        if (is_float && isnan(v)) {
            if (!f.nan++)
                f.first_nan = i;
        } else if (is_float && isinf(v)) {
            if (!f.inf++)
                f.first_inf = i;
        }
        if (v < f.min)
            f.min = v;
        if (v > f.max)
            f.max = v;
    }
    return f;
}

/* The number of representable values between zero and the bits of a float, with its sign: two floats that are
 * neighbours differ by one. */
static int64_t ordinal(uint64_t bits, size_t bytes)
{
    uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    return bits & sign ? -(int64_t)(bits & (sign - 1)) : (int64_t)bits;
}

xl_difference xl_difference_of(xl_elem elem, const void *a, const void *b, uint64_t n)
{
    xl_dtype d = part_of(elem);
    size_t each = xl_dtype_bytes(d);
    xl_difference out = { 0 };
    if (!each)
        return out;
    bool is_float = xl_dtype_class(d) == XL_CLASS_FLOAT;
    out.count = n / each;
    const char *p = a, *q = b;
    for (uint64_t i = 0; i < out.count; i++, p += each, q += each) {
        double x = xl_scalar_get(d, p), y = xl_scalar_get(d, q);
        if (isfinite(x) && fabs(x) > out.scale)
            out.scale = fabs(x);
        if (!memcmp(p, q, each))
            continue;
        uint64_t u = 0, v = 0;
        memcpy(&u, p, each);
        memcpy(&v, q, each);
        double apart = fabs(x - y), ulp = apart;
        if (is_float)
            ulp = isnan(x) && isnan(y)   ? 0
                  : isnan(x) || isnan(y) ? INFINITY
                                         : fabs((double)ordinal(u, each) - (double)ordinal(v, each));
        if (isnan(apart))
            apart = isnan(x) && isnan(y) ? 0 : INFINITY;
        if (!out.differ++)
            out.first = i;
        out.max_ulp = ulp > out.max_ulp ? ulp : out.max_ulp;
        out.max_abs = apart > out.max_abs ? apart : out.max_abs;
    }
    return out;
}
