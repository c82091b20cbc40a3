#include "train/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

enum { HEADER_MOST = 100 << 20 };            /* as the format's own library has it */

static const struct { xl_dtype d; const char *text; } names[] = {
    { XL_F64, "F64" }, { XL_F32, "F32" }, { XL_F16, "F16" }, { XL_BF16, "BF16" }, { XL_I64, "I64" }, { XL_I32, "I32" }, { XL_I16, "I16" },
    { XL_I8, "I8" }, { XL_U64, "U64" }, { XL_U32, "U32" }, { XL_U16, "U16" }, { XL_U8, "U8" }, { XL_I1, "BOOL" } };

static const char *dtype_text(xl_dtype d)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].d == d)
            return names[i].text;
    return NULL;
}

static xl_dtype dtype_find(xl_str s)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (xl_str_is(s, names[i].text))
            return names[i].d;
    return XL_DT_NONE;
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */
static xl_error *write_all(int fd, const char *path, const void *p, size_t n)
{
    const char *s = p;
    while (n) {
        ssize_t w = write(fd, s, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return XL_ERR(UNAVAILABLE, "writing %s: %s", path, strerror(errno)); /* a full disk: nothing that a smaller batch would help */
        s += w;
        n -= (size_t)w;
    }
    return NULL;
}

static uint64_t bytes_of(xl_dtype d, xl_dims dims)
{
    uint64_t n = xl_dtype_bytes(d);
    for (size_t i = 0; i < dims.n; i++)
        n *= (uint64_t)dims.p[i];
    return n;
}

xl_error *xl_safetensors_write(const char *path, const xl_saved *t, size_t n, const xl_meta *meta, size_t nmeta)
{
    xl_error *err = NULL;
    xl_buf head = { 0 };
    xl_arena a = { 0 };
    int fd = -1;
    char *tmp = xl_str_c(&a, xl_strf(&a, "%s.%d.tmp", path, (int)getpid()));
    xl_json j = { .out = &head };
    uint64_t at = 0;
    xl_json_map(&j);
    if (nmeta) {
        xl_json_key(&j, "__metadata__");
        xl_json_map(&j);
        for (size_t i = 0; i < nmeta; i++) {
            xl_json_keyn(&j, meta[i].key);
            xl_json_str(&j, meta[i].value);
        }
        xl_json_end(&j);
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t size = bytes_of(t[i].dtype, t[i].dims);
        if (!dtype_text(t[i].dtype)) {
            err = XL_ERR(UNIMPLEMENTED, "safetensors has no name for the type of %.*s", XL_FMT(t[i].name));
            goto out;
        }
        xl_json_keyn(&j, t[i].name);
        xl_json_map(&j);
        xl_json_put_text(&j, "dtype", dtype_text(t[i].dtype));
        xl_json_key(&j, "shape");
        xl_json_list(&j);
        for (size_t k = 0; k < t[i].dims.n; k++)
            xl_json_int(&j, t[i].dims.p[k]);
        xl_json_end(&j);
        xl_json_key(&j, "data_offsets");
        xl_json_list(&j);
        xl_json_uint(&j, at);
        xl_json_uint(&j, at + size);
        xl_json_end(&j);
        xl_json_end(&j);
        at += size;
    }
    xl_json_end(&j);
    while (head.n % 8)
        xl_buf_putc(&head, ' ');
    if (head.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for the header of %s", path);
        goto out;
    }
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        err = XL_ERR(UNAVAILABLE, "making %s: %s", tmp, strerror(errno));
        goto out;
    }
    unsigned char len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (unsigned char)((uint64_t)head.n >> (8 * i));
    XL_DO(write_all(fd, path, len, 8));
    XL_DO(write_all(fd, path, head.p, head.n));
    for (size_t i = 0; i < n; i++)
        XL_DO(write_all(fd, path, t[i].data, (size_t)bytes_of(t[i].dtype, t[i].dims)));
    if (fsync(fd) || close(fd)) {
        fd = -1;
        err = XL_ERR(EXHAUSTED, "writing %s: %s", path, strerror(errno));
        goto out;
    }
    fd = -1;
    if (rename(tmp, path)) {
        err = XL_ERR(UNAVAILABLE, "renaming %s: %s", tmp, strerror(errno));
        goto out;
    }
    int dir = open(xl_str_c(&a, xl_path_dir(xl_str_of(path))), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        (void)fsync(dir);
        close(dir);
    }
out:
    if (fd >= 0)
        close(fd);
    if (err)
        unlink(tmp);
    xl_buf_fini(&head);
    xl_arena_fini(&a);
    return err;
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */
static xl_error *one_tensor(xl_safetensors *s, const xl_node *n, uint64_t base, uint64_t size, xl_saved *out)
{
    xl_str dt = { "", 0 };
    const xl_node *shape = xl_node_get(n, "shape"), *off = xl_node_get(n, "data_offsets");
    xl_error *err = xl_node_get_str(n, "dtype", &dt);
    if (err)
        return err;
    out->name = n->key;
    out->dtype = dtype_find(dt);
    if (out->dtype == XL_DT_NONE)
        return XL_ERR(INVALID, "tensor \"%.*s\" is of type \"%.*s\", which is not known here", XL_FMT(n->key), XL_FMT(dt));
    if (!shape || shape->kind != XL_NODE_LIST || shape->n > 64 || !off || off->kind != XL_NODE_LIST || off->n != 2)
        return XL_ERR(INVALID, "tensor \"%.*s\" lacks its shape or its place", XL_FMT(n->key));
    int64_t *dims = xl_new(&s->arena, int64_t, shape->n);
    uint64_t count = xl_dtype_bytes(out->dtype);
    for (size_t i = 0; i < shape->n; i++) {
        const xl_node *d = shape->kid[i];
        if (d->kind != XL_NODE_INT || d->i < 0 || (d->i && count > UINT64_MAX / (uint64_t)d->i))
            return XL_ERR(INVALID, "tensor \"%.*s\" has an impossible shape", XL_FMT(n->key));
        dims[i] = d->i;
        count *= (uint64_t)d->i;
    }
    int64_t a = off->kid[0]->i, b = off->kid[1]->i;
    if (off->kid[0]->kind != XL_NODE_INT || off->kid[1]->kind != XL_NODE_INT || a < 0 || b < a || (uint64_t)b > size || (uint64_t)(b - a) != count)
        return XL_ERR(INVALID, "tensor \"%.*s\" takes %llu bytes and is said to lie from %lld to %lld of %llu", XL_FMT(n->key),
                      (unsigned long long)count, (long long)a, (long long)b, (unsigned long long)size);
    out->dims = (xl_dims){ dims, shape->n };
    out->offset = base + (uint64_t)a;
    out->bytes = count;
    return NULL;
}

static xl_error *read_at(int fd, const char *path, void *p, size_t n, uint64_t at)
{
    char *s = p;
    while (n) {
        ssize_t r = pread(fd, s, n, (off_t)at);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return XL_ERR(UNAVAILABLE, "reading %s: %s", path, strerror(errno));
        if (r == 0)
            return XL_ERR(DATA_LOSS, "%s is cut short", path);
        s += r;
        at += (uint64_t)r;
        n -= (size_t)r;
    }
    return NULL;
}

static int by_offset(const void *x, const void *y)
{
    const xl_saved *a = x, *b = y;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

xl_error *xl_safetensors_open(const char *path, xl_safetensors *s)
{
    xl_error *err = NULL;
    struct stat st;
    unsigned char len[8];
    uint64_t head = 0;
    xl_node *root;
    *s = (xl_safetensors){ .fd = open(path, O_RDONLY | O_CLOEXEC) };
    if (s->fd < 0 || fstat(s->fd, &st)) {
        err = XL_ERR(NOT_FOUND, "%s: %s", path, strerror(errno));
        goto out;
    }
    s->path = xl_str_c(&s->arena, xl_str_of(path));
    XL_DO(read_at(s->fd, path, len, 8, 0));
    for (int i = 0; i < 8; i++)
        head |= (uint64_t)len[i] << (8 * i);
    if (head < 2 || head > HEADER_MOST || head > (uint64_t)st.st_size - 8) {
        err = XL_ERR(DATA_LOSS, "%s is no safetensors file: it says that its header has %llu bytes", path, (unsigned long long)head);
        goto out;
    }
    char *text = xl_arena_try(&s->arena, (size_t)head + 1);
    if (!text) {
        err = XL_ERR(EXHAUSTED, "no memory for the header of %s", path);
        goto out;
    }
    XL_DO(read_at(s->fd, path, text, (size_t)head, 8));
    XL_DO(xl_json_read(&s->arena, s->path, xl_str_trim((xl_str){ text, (size_t)head }), &root));
    if (root->kind != XL_NODE_MAP) {
        err = XL_ERR(INVALID, "%s: the header is %s, not a map", path, xl_node_word(root->kind));
        goto out;
    }
    s->t = xl_new(&s->arena, xl_saved, root->n);
    for (size_t i = 0; i < root->n; i++) {
        const xl_node *k = root->kid[i];
        if (!xl_str_is(k->key, "__metadata__")) {
            XL_TRY(one_tensor(s, k, 8 + head, (uint64_t)st.st_size - 8 - head, &s->t[s->n++]), "%s", path);
            continue;
        }
        s->meta = xl_new(&s->arena, xl_meta, k->n);
        for (size_t m = 0; m < k->n; m++)
            if (k->kid[m]->kind == XL_NODE_STR)
                s->meta[s->nmeta++] = (xl_meta){ k->kid[m]->key, k->kid[m]->s };
    }
    xl_saved *sorted = xl_new(&s->arena, xl_saved, s->n);
    memcpy(sorted, s->t, s->n * sizeof *sorted);
    qsort(sorted, s->n, sizeof *sorted, by_offset);
    for (size_t i = 1; i < s->n; i++)
        if (sorted[i].offset < sorted[i - 1].offset + sorted[i - 1].bytes) {
            err = XL_ERR(INVALID, "%s: tensors \"%.*s\" and \"%.*s\" overlap", path, XL_FMT(sorted[i - 1].name), XL_FMT(sorted[i].name));
            goto out;
        }
    return NULL;
out:
    xl_safetensors_close(s);
    return err;
}

const xl_saved *xl_safetensors_find(const xl_safetensors *s, xl_str name)
{
    for (size_t i = 0; i < s->n; i++)
        if (xl_str_eq(s->t[i].name, name))
            return &s->t[i];
    return NULL;
}

xl_str xl_safetensors_meta(const xl_safetensors *s, const char *key)
{
    for (size_t i = 0; i < s->nmeta; i++)
        if (xl_str_is(s->meta[i].key, key))
            return s->meta[i].value;
    return (xl_str){ "", 0 };
}

xl_error *xl_safetensors_read(const xl_safetensors *s, const xl_saved *t, void *out) { return read_at(s->fd, s->path, out, (size_t)t->bytes, t->offset); }

void xl_safetensors_close(xl_safetensors *s)
{
    if (s->fd >= 0)
        close(s->fd);
    xl_arena_fini(&s->arena);
    *s = (xl_safetensors){ .fd = -1 };
}
