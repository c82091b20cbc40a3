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

static const struct { xl_dtype d; const char *text;
} names[] = { { XL_F64, "F64" }, { XL_F32, "F32" }, { XL_F16, "F16" }, { XL_BF16, "BF16" }, { XL_I64, "I64" },
              { XL_I32, "I32" }, { XL_I16, "I16" }, { XL_I8, "I8" },   { XL_U64, "U64" },   { XL_U32, "U32" },
              { XL_U16, "U16" }, { XL_U8, "U8" },   { XL_I1, "BOOL" } };

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

/* ---- writing ----------------------------------------------------------------------------------------------------- */
static const char header_key[] = "\"xlane.header\":\"", tensor_key[] = "xlane.blake2b.",
                  zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
_Static_assert(sizeof zeros == XL_DIGEST_HEX, "as long as a digest");

/* The digest of length and header, with zeros where the header has it; *at: where that is in the text, NULL if it has
 * none. */
static xl_digest header_digest(const unsigned char len[8], xl_str text, const char **at)
{
    xl_hash h;
    const char *key = memmem(text.p, text.n, header_key, sizeof header_key - 1);
    *at = key ? key + sizeof header_key - 1 : NULL;
    if (*at && (size_t)(text.p + text.n - *at) < sizeof zeros)
        *at = NULL;
    xl_hash_init(&h);
    xl_hash_add(&h, len, 8);
    if (*at) {
        xl_hash_add(&h, text.p, (size_t)(*at - text.p));
        xl_hash_add(&h, zeros, sizeof zeros - 1);
        const char *rest = *at + sizeof zeros - 1;
        xl_hash_add(&h, rest, (size_t)(text.p + text.n - rest));
    }
    return xl_hash_final(&h);
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
    xl_buf head = { 0 }, key = { 0 };
    xl_file_out o = { .fd = -1 };
    char hex[XL_DIGEST_HEX];
    xl_json j = { .out = &head };
    uint64_t at = 0;
    xl_json_map(&j);
    xl_json_key(&j, "__metadata__");
    xl_json_map(&j);
    xl_json_put_text(&j, "xlane.header", zeros);
    for (size_t i = 0; i < nmeta; i++) {
        xl_json_keyn(&j, meta[i].key);
        xl_json_str(&j, meta[i].value);
    }
    for (size_t i = 0; i < n; i++) {
        xl_digest d = xl_hash_of((xl_str){ t[i].data, (size_t)bytes_of(t[i].dtype, t[i].dims) });
        key.n = 0;
        xl_buf_printf(&key, "%s%.*s", tensor_key, XL_FMT(t[i].name));
        xl_json_keyn(&j, xl_buf_view(&key));
        xl_json_text(&j, xl_digest_hex(&d, hex));
    }
    xl_json_end(&j);
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
    if (head.failed || key.failed) {
        err = XL_ERR(EXHAUSTED, "no memory for the header of %s", path);
        goto out;
    }
    unsigned char len[8];
    const char *place;
    for (int i = 0; i < 8; i++)
        len[i] = (unsigned char)((uint64_t)head.n >> (8 * i));
    xl_digest d = header_digest(len, xl_buf_view(&head), &place);
    memcpy(head.p + (place - head.p), xl_digest_hex(&d, hex), sizeof zeros - 1);
    XL_DO(xl_file_out_open(&o, path, 0600));
    XL_DO(xl_file_out_add(&o, len, 8));
    XL_DO(xl_file_out_add(&o, head.p, head.n));
    for (size_t i = 0; i < n; i++)
        XL_DO(xl_file_out_add(&o, t[i].data, (size_t)bytes_of(t[i].dtype, t[i].dims)));
    err = xl_file_out_commit(&o);
out:
    xl_file_out_close(&o);
    xl_buf_fini(&head);
    xl_buf_fini(&key);
    return err;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
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
        return XL_ERR(INVALID, "tensor \"%.*s\" is of type \"%.*s\", which is not known here", XL_FMT(n->key),
                      XL_FMT(dt));
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
    if (off->kid[0]->kind != XL_NODE_INT || off->kid[1]->kind != XL_NODE_INT || a < 0 || b < a || (uint64_t)b > size ||
        (uint64_t)(b - a) != count)
        return XL_ERR(INVALID, "tensor \"%.*s\" takes %llu bytes and is said to lie from %lld to %lld of %llu",
                      XL_FMT(n->key), (unsigned long long)count, (long long)a, (long long)b, (unsigned long long)size);
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
    *s = (xl_safetensors){ .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
    if (s->fd < 0 || fstat(s->fd, &st)) {
        err = xl_file_error(errno, "opening", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        err = XL_ERR(INVALID, "%s is not a plain file", path);
        goto out;
    }
    s->bytes = (uint64_t)st.st_size;
    s->path = xl_str_c(&s->arena, xl_str_of(path));
    XL_DO(read_at(s->fd, path, len, 8, 0));
    for (int i = 0; i < 8; i++)
        head |= (uint64_t)len[i] << (8 * i);
    if (head < 2 || head > HEADER_MOST || head > (uint64_t)st.st_size - 8) {
        err = XL_ERR(DATA_LOSS, "%s is no safetensors file: it says that its header has %llu bytes", path,
                     (unsigned long long)head);
        goto out;
    }
    char *text = xl_arena_try(&s->arena, (size_t)head + 1);
    if (!text) {
        err = XL_ERR(EXHAUSTED, "no memory for the header of %s", path);
        goto out;
    }
    XL_DO(read_at(s->fd, path, text, (size_t)head, 8));
    const char *stored;
    s->header = header_digest(len, (xl_str){ text, (size_t)head }, &stored);
    if (stored) {
        char hex[XL_DIGEST_HEX];
        s->digests = true;
        if (memcmp(stored, xl_digest_hex(&s->header, hex), sizeof zeros - 1)) {
            err =
                XL_ERR(DATA_LOSS, "%s is damaged: its header does not have the digest that it was written with", path);
            goto out;
        }
    }
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
    for (size_t i = 0; i < s->nmeta && !s->digests; i++)
        if (xl_str_starts(s->meta[i].key, xl_str_of(tensor_key))) {
            err = XL_ERR(DATA_LOSS, "%s is damaged: it has digests of its tensors and none of its header", path);
            goto out;
        }
    xl_saved *sorted = xl_new(&s->arena, xl_saved, s->n);
    memcpy(sorted, s->t, s->n * sizeof *sorted);
    qsort(sorted, s->n, sizeof *sorted, by_offset);
    for (size_t i = 1; i < s->n; i++)
        if (sorted[i].offset < sorted[i - 1].offset + sorted[i - 1].bytes) {
            err = XL_ERR(INVALID, "%s: tensors \"%.*s\" and \"%.*s\" overlap", path, XL_FMT(sorted[i - 1].name),
                         XL_FMT(sorted[i].name));
            goto out;
        }
    uint64_t end = 8 + head;                                 /* the format allows no bytes that belong to no tensor */
    for (size_t i = 0; i < s->n; i++) {
        if (sorted[i].bytes && sorted[i].offset != end) {
            err = XL_ERR(INVALID, "%s: %llu bytes before tensor \"%.*s\" belong to none", path,
                         (unsigned long long)(sorted[i].offset - end), XL_FMT(sorted[i].name));
            goto out;
        }
        end += sorted[i].bytes;
    }
    if (end != s->bytes) {
        err = XL_ERR(DATA_LOSS, "%s: something was appended after its last tensor (%llu byte%s)", path,
                     (unsigned long long)(s->bytes - end), s->bytes - end == 1 ? "" : "s");
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

static xl_error *check(const xl_safetensors *s, const xl_saved *t, const xl_digest *found)
{
    char hex[XL_DIGEST_HEX];
    xl_digest_hex(found, hex);
    for (size_t i = 0; i < s->nmeta; i++) {
        xl_str k = s->meta[i].key;
        if (xl_str_starts(k, xl_str_of(tensor_key)) &&
            xl_str_eq((xl_str){ k.p + sizeof tensor_key - 1, k.n - (sizeof tensor_key - 1) }, t->name)) {
            if (xl_str_is(s->meta[i].value, hex))
                return NULL;
            return XL_ERR(DATA_LOSS, "%s is damaged: tensor \"%.*s\" does not have the digest that it was written with",
                          s->path, XL_FMT(t->name));
        }
    }
    return XL_ERR(DATA_LOSS, "%s has no digest of tensor \"%.*s\"", s->path, XL_FMT(t->name));
}

xl_error *xl_safetensors_read(const xl_safetensors *s, const xl_saved *t, void *out)
{
    xl_error *err = read_at(s->fd, s->path, out, (size_t)t->bytes, t->offset);
    if (!err && s->digests) {
        xl_digest d = xl_hash_of((xl_str){ out, (size_t)t->bytes });
        err = check(s, t, &d);
    }
    return err;
}

xl_error *xl_safetensors_verify(const xl_safetensors *s)
{
    enum { PIECE = 1 << 20 };
    xl_error *err = NULL;
    char *piece = malloc(PIECE);
    if (!piece)
        return XL_ERR(EXHAUSTED, "no memory to read %s", s->path);
    if (!s->digests)
        err = XL_ERR(DATA_LOSS, "%s has no digests, so damage in it cannot be detected", s->path);
    for (size_t i = 0; i < s->n && !err; i++) {
        xl_hash h;
        xl_hash_init(&h);
        for (uint64_t at = 0; at < s->t[i].bytes && !err; at += PIECE) {
            size_t n = s->t[i].bytes - at < PIECE ? (size_t)(s->t[i].bytes - at) : PIECE;
            err = read_at(s->fd, s->path, piece, n, s->t[i].offset + at);
            xl_hash_add(&h, piece, n);
        }
        xl_digest d = xl_hash_final(&h);
        if (!err)
            err = check(s, &s->t[i], &d);
    }
    free(piece);
    return err;
}

void xl_safetensors_close(xl_safetensors *s)
{
    if (s->fd >= 0)
        close(s->fd);
    xl_arena_fini(&s->arena);
    *s = (xl_safetensors){ .fd = -1 };
}
