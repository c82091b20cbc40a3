#include "train/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/word.h"
#include "lane/trained.h"
#include "train/safetensors.h"

xl_str xl_state_name(xl_arena *a, const xl_trainer *t, uint32_t i)
{
    uint32_t k = i / t->n;
    if (k == 3)
        return XL_STR("adamw.counters");
    return k ? xl_strf(a, "adamw.%c.%.*s", k == 1 ? 'm' : 'v', XL_FMT(t->name[i % t->n])) : t->name[i];
}

typedef struct {
    xl_arena arena;
    xl_saved *t;
    size_t n;
    xl_meta meta[4];
    void *bytes;
} snapshot;

static void drop(snapshot *s)
{
    free(s->bytes);
    xl_arena_fini(&s->arena);
    *s = (snapshot){ 0 };
}

static const int64_t two = 2;

/* State tensor i as it is in one piece. */
static xl_saved whole_of(xl_arena *a, const xl_trainer *t, uint32_t i)
{
    const xl_type *ty = i < 3 * t->n ? t->type[i % t->n] : NULL;
    int64_t bytes = 8;
    if (ty)
        xl_type_bytes(ty, &bytes);
    return (xl_saved){ .name = xl_str_dup(a, xl_state_name(a, t, i)),
                       .dtype = ty ? ty->dtype : XL_I32,
                       .dims = ty ? xl_type_dims(ty) : (xl_dims){ &two, 1 },
                       .bytes = (uint64_t)bytes };
}

/* Each slice of a tensor is written by one of the devices that hold it, tensors taking turns so that the ranks share
 * the writing. */
static bool writes(const xl_array *x, uint32_t i, size_t d)
{
    size_t holders = 0, mine = 0;
    for (size_t e = 0; e < x->place->n; e++)
        if (xl_array_same_part(x, d, e)) {
            mine = e < d ? mine + 1 : mine;
            holders++;
        }
    return x->place->dev[d]->local && mine == i % holders;
}

/* A slice is called NAME[0:4,8:16]. */
static xl_str slice_name(xl_arena *a, xl_str name, const int64_t *lo, const int64_t *shape, uint32_t rank)
{
    xl_buf b = { 0 };
    xl_buf_printf(&b, "%.*s[", XL_FMT(name));
    for (uint32_t d = 0; d < rank; d++)
        xl_buf_printf(&b, "%s%lld:%lld", d ? "," : "", (long long)lo[d], (long long)(lo[d] + shape[d]));
    xl_buf_putc(&b, ']');
    xl_str out = xl_str_dup(a, xl_buf_view(&b));
    xl_buf_fini(&b);
    return out;
}

/* What this rank writes of the state: (state tensor, device) pairs and their names. */
static void share(xl_trainer *t, snapshot *s, uint32_t **of, size_t **on)
{
    size_t capt = 0, capo = 0, capd = 0, n = 0, m = 0;
    for (uint32_t i = 0; i < 3 * t->n + 1; i++)
        for (size_t d = 0; d < t->buf[i]->place->n; d++) {
            const xl_array *x = t->buf[i];
            int64_t lo[XL_MESH_RANK], *shape = xl_new(&s->arena, int64_t, XL_MESH_RANK);
            if (!writes(x, i, d))
                continue;
            xl_saved p = whole_of(&s->arena, t, i);
            size_t bytes = xl_array_local(x) * xl_elem_bytes(x->elem);
            xl_array_part(x, d, lo, shape);
            if (bytes != p.bytes) {
                p.name = slice_name(&s->arena, p.name, lo, shape, x->rank);
                p.dims = (xl_dims){ shape, x->rank };
                p.bytes = bytes;
            }
            XL_PUSH(&s->arena, s->t, s->n, capt, p);
            XL_PUSH(&s->arena, *of, n, capo, i);
            XL_PUSH(&s->arena, *on, m, capd, d);
        }
}

static xl_error *take(xl_trainer *t, const xl_progress *where, snapshot *s)
{
    xl_error *err = xl_trainer_whole(t);
    if (err)
        return err;
    uint64_t total = 0, at = 0;
    uint32_t *of = NULL;
    size_t *on = NULL;
    *s = (snapshot){ 0 };
    if (t->lane->job) {
        share(t, s, &of, &on);
    } else {
        s->n = 3 * (size_t)t->n + 1;
        s->t = xl_new(&s->arena, xl_saved, s->n);
        for (uint32_t i = 0; i < s->n; i++)
            s->t[i] = whole_of(&s->arena, t, i);
    }
    for (size_t i = 0; i < s->n; i++)
        total += s->t[i].bytes;
    s->bytes = malloc(total ? total : 1);
    if (!s->bytes) {
        err = XL_ERR(EXHAUSTED, "no memory for a checkpoint of %llu bytes", (unsigned long long)total);
        goto out;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->t[i].data = (char *)s->bytes + at;
        if (of)
            XL_TRY(xl_buffer_to_host(t->buf[of[i]]->part[on[i]], (char *)s->bytes + at, (size_t)s->t[i].bytes, NULL),
                   "reading %.*s", XL_FMT(s->t[i].name));
        else
            XL_TRY(xl_array_get(t->buf[i], (char *)s->bytes + at, (size_t)s->t[i].bytes, NULL), "reading %.*s",
                   XL_FMT(s->t[i].name));
        at += s->t[i].bytes;
    }
    s->meta[0] = (xl_meta){ XL_STR("format"), XL_STR("pt") };
    s->meta[1] = (xl_meta){ XL_STR("xlane.batches"), xl_strf(&s->arena, "%lld", (long long)where->batches) };
    s->meta[2] = (xl_meta){ XL_STR("xlane.seed"), xl_strf(&s->arena, "%llu", (unsigned long long)where->seed) };
out:
    if (err)
        drop(s);
    return err;
}

xl_error *xl_ckpt_save(xl_trainer *t, const char *path, const xl_progress *where)
{
    snapshot s;
    xl_error *err = take(t, where, &s);
    if (err)
        return err;
    err = xl_safetensors_write(path, s.t, s.n, s.meta, 3);
    drop(&s);
    return err;
}

/* ---- loading --------------------------------------------------------------------------------------------------------
 * From one file, or from those of the ranks that wrote a checkpoint together: the same for any number of ranks then and
 * now. */
typedef struct {
    xl_str name;
    const xl_safetensors *in;
    const xl_saved *t;
    int64_t lo[XL_MESH_RANK];
} piece;
typedef struct {
    xl_safetensors *file;
    size_t nfile;
    piece *p;
    size_t n;
} source;

static int by_name(const void *x, const void *y)
{
    const piece *a = x, *b = y;
    size_t n = a->name.n < b->name.n ? a->name.n : b->name.n;
    int c = n ? memcmp(a->name.p, b->name.p, n) : 0;
    return c ? c : (a->name.n > b->name.n) - (a->name.n < b->name.n);
}

/* "NAME[0:4,8:16]" begins at 0, 8. False: it is no such name. */
static bool read_slice(piece *p)
{
    xl_str full = p->t->name;
    const char *open = full.n && full.p[full.n - 1] == ']' ? memrchr(full.p, '[', full.n) : NULL;
    p->name = full;
    if (!open)
        return true;
    p->name.n = (size_t)(open - full.p);
    xl_str rest = { open + 1, full.n - p->name.n - 2 };
    for (size_t d = 0; d < p->t->dims.n; d++) {
        xl_str one = xl_str_cut(&rest, ','), lo = xl_str_cut(&one, ':');
        int64_t hi;
        if (d >= XL_MESH_RANK || !xl_str_i64(lo, &p->lo[d]) || !xl_str_i64(one, &hi) || p->lo[d] < 0 ||
            hi - p->lo[d] != p->t->dims.p[d])
            return false;
    }
    return !rest.n;
}

static void source_close(source *s)
{
    for (size_t i = 0; i < s->nfile; i++)
        xl_safetensors_close(&s->file[i]);
    s->nfile = 0;
}

static xl_error *source_open(xl_arena *a, const char *path, source *s)
{
    xl_error *err = NULL;
    xl_file_info st;
    xl_str *names = NULL;
    size_t n = 1, cap = 0;
    bool folder = xl_file_stat(path, &st) && st.dir;
    if (folder)
        XL_DO(xl_dir_list(a, path, &names, &n));
    s->file = xl_new(a, xl_safetensors, n);
    for (size_t i = 0; i < n; i++) {
        if (folder && !xl_str_ends(names[i], XL_STR(".safetensors")))
            continue;
        s->file[s->nfile++].fd = -1;
        XL_DO(
            xl_safetensors_open(folder ? xl_path_join(a, path, xl_str_c(a, names[i])) : path, &s->file[s->nfile - 1]));
    }
    for (size_t i = 0; i < s->nfile; i++)
        for (size_t k = 0; k < s->file[i].n; k++) {
            piece p = { .in = &s->file[i], .t = &s->file[i].t[k] };
            if (folder && !read_slice(&p)) {
                err = XL_ERR(DATA_LOSS, "%s: \"%.*s\" is not the name of a slice", s->file[i].path, XL_FMT(p.t->name));
                goto out;
            }
            if (!folder)
                p.name = p.t->name;
            XL_PUSH(a, s->p, s->n, cap, p);
        }
    if (s->n)
        qsort(s->p, s->n, sizeof *s->p, by_name);
    if (!s->nfile)
        err = XL_ERR(DATA_LOSS, "%s has no tensors", path);
out:
    return err;
}

/* The pieces of a name, together. */
static piece *find_pieces(const source *s, xl_str name, size_t *n)
{
    size_t lo = 0, hi = s->n;
    piece want = { .name = name };
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (by_name(&s->p[mid], &want) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *n = 0;
    while (lo + *n < s->n && xl_str_eq(s->p[lo + *n].name, name))
        ++*n;
    return s->p + lo;
}

static bool overlap(const piece *a, const piece *b)
{
    for (size_t d = 0; d < a->t->dims.n; d++)
        if (a->lo[d] >= b->lo[d] + b->t->dims.p[d] || b->lo[d] >= a->lo[d] + a->t->dims.p[d])
            return false;
    return true;
}

/* Whether the pieces are the tensor: of its type, inside it, apart from each other, and all of it. */
static bool makes(const piece *p, size_t n, const xl_saved *want)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i].t->dtype != want->dtype || p[i].t->dims.n != want->dims.n)
            return false;
        for (size_t d = 0; d < want->dims.n; d++)
            if (p[i].lo[d] > want->dims.p[d] - p[i].t->dims.p[d])
                return false;
        for (size_t k = 0; k < i; k++)
            if (overlap(&p[i], &p[k]))
                return false;
        bytes += p[i].t->bytes;
    }
    return bytes == want->bytes;
}

static xl_error *wrong_shape(const char *path, const piece *p, size_t n, const xl_saved *want)
{
    xl_buf x = { 0 };
    for (size_t k = 0; k < p->t->dims.n; k++)
        xl_buf_printf(&x, "%s%lld", k ? "," : "", (long long)p->t->dims.p[k]);
    xl_buf_puts(&x, "], this model has [");
    for (size_t k = 0; k < want->dims.n; k++)
        xl_buf_printf(&x, "%s%lld", k ? "," : "", (long long)want->dims.p[k]);
    xl_error *err = n > 1
                        ? XL_ERR(INVALID,
                                 "%s: the %zu slices of \"%.*s\" are not that tensor of this model; take the "
                                 "configuration it was trained with",
                                 path, n, XL_FMT(want->name))
                        : XL_ERR(INVALID, "%s: tensor \"%.*s\" is %s[%.*s]; take the configuration it was trained with",
                                 path, XL_FMT(want->name), xl_dtypes[p->t->dtype].text, XL_FMT(xl_buf_view(&x)));
    xl_buf_fini(&x);
    return err;
}

/* Rows of a slice into their place in the tensor. */
static void place_rows(char *to, const char *from, const piece *p, xl_dims dims, size_t elem)
{
    int64_t stride[XL_MESH_RANK] = { 0 }, at[XL_MESH_RANK] = { 0 }, s = (int64_t)elem;
    size_t rank = dims.n;
    for (size_t d = rank; d-- > 0; s *= dims.p[d])
        stride[d] = s;
    size_t row = rank ? (size_t)p->t->dims.p[rank - 1] * elem : elem;
    for (size_t left = row ? p->t->bytes / row : 0; left > 0; left--) {
        char *out = to;
        for (size_t d = 0; d < rank; d++)
            out += (p->lo[d] + at[d]) * stride[d];
        memcpy(out, from, row);
        from += row;
        for (size_t d = rank ? rank - 1 : 0; d-- > 0;) {
            if (++at[d] < p->t->dims.p[d])
                break;
            at[d] = 0;
        }
    }
}

static xl_error *read_tensor(const piece *p, size_t n, const xl_saved *want, char *host, char *part)
{
    xl_error *err = NULL;
    if (n == 1)
        return xl_safetensors_read(p->in, p->t, host);
    for (size_t i = 0; i < n; i++) {
        XL_DO(xl_safetensors_read(p[i].in, p[i].t, part));
        place_rows(host, part, &p[i], want->dims, xl_elem_bytes(xl_elem_of(want->dtype)));
    }
out:
    return err;
}

xl_error *xl_ckpt_load(xl_trainer *t, const char *path, xl_progress *where)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    source s = { 0 };
    uint32_t n = 3 * t->n + 1;
    char *host = NULL, *part = NULL;
    XL_DO(source_open(&a, path, &s));
    xl_saved *want = xl_new(&a, xl_saved, n);
    piece **src = xl_new(&a, piece *, n);
    size_t *nsrc = xl_new(&a, size_t, n), taken = 0;
    uint64_t most = 8;
    for (uint32_t i = 0; i < n; i++) {                   /* all are looked at before one is changed */
        want[i] = whole_of(&a, t, i);
        src[i] = find_pieces(&s, want[i].name, &nsrc[i]);
        if (!nsrc[i]) {
            err =
                XL_ERR(INVALID,
                       "%s has no tensor \"%.*s\": it is of another model; take the configuration it was trained with",
                       path, XL_FMT(want[i].name));
            goto out;
        }
        if (!makes(src[i], nsrc[i], &want[i])) {
            err = wrong_shape(path, src[i], nsrc[i], &want[i]);
            goto out;
        }
        taken += nsrc[i];
        most = want[i].bytes > most ? want[i].bytes : most;
    }
    for (size_t k = 0; taken != s.n && k < s.n; k++) { /* what nobody takes belongs to another model too */
        bool found = false;
        for (uint32_t i = 0; i < n && !found; i++)
            found = xl_str_eq(s.p[k].name, want[i].name);
        if (!found) {
            err = XL_ERR(INVALID,
                         "%s has a tensor \"%.*s\" that this model has not: it is of another model; take the "
                         "configuration it was trained with",
                         path, XL_FMT(s.p[k].name));
            goto out;
        }
    }
    host = malloc(most);
    part = malloc(most);
    if (!host || !part) {
        err = XL_ERR(EXHAUSTED, "no memory to load a tensor of %llu bytes", (unsigned long long)most);
        goto out;
    }
    for (uint32_t i = 0; i < n; i++) { /* one at a time: devices that hold the state once can be loaded into */
        xl_array *fresh;
        XL_DO(read_tensor(src[i], nsrc[i], &want[i], host, part));
        t->half = true;
        XL_TRY(xl_array_put(t->buf[i]->place, xl_elem_of(want[i].dtype), want[i].dims, &t->buf[i]->spec, host, &fresh),
               "placing %.*s", XL_FMT(want[i].name));
        xl_array_free(t->buf[i]);
        t->buf[i] = fresh;
    }
    t->half = false;
    if (where) {
        int64_t seed = 0;
        *where = (xl_progress){ 0 };
        if (!xl_str_i64(xl_safetensors_meta(&s.file[0], "xlane.batches"), &where->batches))
            where->batches = 0;
        if (xl_str_i64(xl_safetensors_meta(&s.file[0], "xlane.seed"), &seed))
            where->seed = (uint64_t)seed;
    }
out:
    free(host);
    free(part);
    source_close(&s);
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_trainer_save(xl_trainer *t, const char *path)
{
    return xl_ckpt_save(t, path, &(xl_progress){ t->lane->step, 0 });
}
xl_error *xl_trainer_load(xl_trainer *t, const char *path) { return xl_ckpt_load(t, path, NULL); }

/* ---- the folder -------------------------------------------------------------------------------------------------- */
static char *file_of(xl_arena *a, const char *dir, int64_t step)
{
    return xl_str_c(a, xl_strf(a, "%s/step-%08lld.safetensors", dir, (long long)step));
}
static char *marker_of(xl_arena *a, const char *dir, int64_t step)
{
    return xl_str_c(a, xl_strf(a, "%s/step-%08lld.ok", dir, (long long)step));
}

/* Of several ranks: a folder with a file of each and an index; *.tmp until it is whole. */
static char *folder_of(xl_arena *a, const char *dir, int64_t step)
{
    return xl_str_c(a, xl_strf(a, "%s/step-%08lld", dir, (long long)step));
}
static char *share_of(xl_arena *a, const char *folder, int64_t rank, int64_t ranks)
{
    return xl_str_c(a, xl_strf(a, "%s/%lld-of-%lld.safetensors", folder, (long long)rank, (long long)ranks));
}

static bool step_of(xl_str name, const char *ending, int64_t *step)
{
    size_t n = strlen(ending);
    if (!xl_str_starts(name, XL_STR("step-")) || !xl_str_ends(name, xl_str_of(ending)) || name.n < 5 + n)
        return false;
    xl_str digits = { name.p + 5, name.n - 5 - n };
    while (digits.n > 1 && digits.p[0] == '0')
        digits.p++, digits.n--;
    return xl_str_i64(digits, step);
}

static xl_error *commit(xl_arena *a, const char *dir, int64_t step)
{
    xl_error *err = NULL;
    xl_safetensors s = { .fd = -1 };
    xl_buf b = { 0 };
    xl_json j = { .out = &b };
    char hex[XL_DIGEST_HEX];
    XL_DO(xl_safetensors_open(file_of(a, dir, step), &s));
    xl_json_map(&j);
    xl_json_put_int(&j, "bytes", (int64_t)s.bytes);
    xl_json_put_text(&j, "header", xl_digest_hex(&s.header, hex));
    xl_json_end(&j);
    xl_buf_putc(&b, '\n');
    err =
        b.failed ? XL_ERR(EXHAUSTED, "out of memory") : xl_file_write_atomic(marker_of(a, dir, step), xl_buf_view(&b));
out:
    xl_buf_fini(&b);
    xl_safetensors_close(&s);
    return err;
}

/* A file against the size and the header that were noted when it was committed. */
static xl_error *same_file(const xl_safetensors *s, const xl_node *of, int64_t step)
{
    char hex[XL_DIGEST_HEX];
    const xl_node *bytes = xl_node_get(of, "bytes"), *header = xl_node_get(of, "header");
    if (bytes && header && header->kind == XL_NODE_STR && bytes->i == (int64_t)s->bytes &&
        xl_str_is(header->s, xl_digest_hex(&s->header, hex)))
        return NULL;
    return XL_ERR(DATA_LOSS, "%s is not the file that was committed as step %lld", s->path, (long long)step);
}

/* What several ranks wrote, against the index. */
static xl_error *verify_folder(xl_arena *a, const char *folder, int64_t step)
{
    xl_error *err = NULL;
    xl_node *index = NULL;
    xl_str text;
    char *path = xl_path_join(a, folder, "index.json");
    XL_DO(xl_file_read_plain(a, path, 16 << 20, &text));
    xl_error *torn = xl_json_read(a, path, text, &index);
    const xl_node *ranks = torn ? NULL : xl_node_get(index, "ranks"),
                  *files = torn ? NULL : xl_node_get(index, "files");
    xl_error_free(torn);
    if (!ranks || !files || files->kind != XL_NODE_LIST || (int64_t)files->n != ranks->i) {
        err = XL_ERR(DATA_LOSS, "%s is damaged", path);
        goto out;
    }
    for (size_t i = 0; i < files->n && !err; i++) {
        xl_safetensors s = { .fd = -1 };
        err = xl_safetensors_open(share_of(a, folder, (int64_t)i, ranks->i), &s);
        if (!err)
            err = same_file(&s, files->kid[i], step);
        if (!err)
            err = xl_safetensors_verify(&s);
        xl_safetensors_close(&s);
    }
out:
    return err;
}

/* The file against its own digests, and against its marker where there is one. */
static xl_error *verify(xl_arena *a, const char *dir, int64_t step, bool *committed)
{
    xl_error *err = NULL;
    xl_safetensors s = { .fd = -1 };
    xl_node *m = NULL;
    xl_str text;
    char *marker = marker_of(a, dir, step);
    *committed = xl_file_stat(marker, NULL);
    XL_DO(xl_safetensors_open(file_of(a, dir, step), &s));
    if (*committed) {
        XL_DO(xl_file_read_plain(a, marker, 4096, &text));
        xl_error *torn = xl_json_read(a, marker, text, &m);
        const xl_node *bytes = torn ? NULL : xl_node_get(m, "bytes"), *header = torn ? NULL : xl_node_get(m, "header");
        xl_error_free(torn);
        if (!bytes || !header || header->kind != XL_NODE_STR) {
            err = XL_ERR(DATA_LOSS,
                         "%s is damaged; remove it if the checkpoint beside it is to be taken by its own digests",
                         marker);
            goto out;
        }
        XL_DO(same_file(&s, m, step));
    }
    err = xl_safetensors_verify(&s);
out:
    xl_safetensors_close(&s);
    return err;
}

static int by_step(const void *x, const void *y)
{
    const xl_ckpt_info *a = x, *b = y;
    return a->step < b->step ? -1 : a->step > b->step;
}

static uint64_t folder_bytes(xl_arena *a, const char *folder)
{
    xl_str *names = NULL;
    size_t n = 0;
    uint64_t bytes = 0;
    xl_error_free(xl_dir_list(a, folder, &names, &n));
    for (size_t i = 0; i < n; i++) {
        xl_file_info st;
        bytes += xl_file_stat(xl_path_join(a, folder, xl_str_c(a, names[i])), &st) ? st.size : 0;
    }
    return bytes;
}

/* What is there by name, unread. */
static xl_error *names_of(xl_arena *a, const char *dir, xl_ckpt_info **out, size_t *n)
{
    xl_error *err = NULL;
    xl_str *names = NULL;
    size_t have = 0;
    *n = 0;
    *out = NULL;
    if (!xl_file_stat(dir, NULL))
        return NULL;
    XL_DO(xl_dir_list(a, dir, &names, &have));
    *out = xl_new(a, xl_ckpt_info, have + 1);
    for (size_t i = 0; i < have; i++) {
        int64_t step;
        xl_file_info st;
        if (step_of(names[i], ".safetensors", &step)) {
            char *path = file_of(a, dir, step);
            if (!xl_str_is(names[i], xl_str_c(a, xl_path_base(xl_str_of(path)))))
                continue;                                  /* "step-7.safetensors": not a name of ours */
            (*out)[(*n)++] =
                (xl_ckpt_info){ .step = step, .path = path, .bytes = xl_file_stat(path, &st) ? st.size : 0 };
        } else if (step_of(names[i], "", &step) &&
                   xl_str_is(names[i], xl_str_c(a, xl_path_base(xl_str_of(folder_of(a, dir, step)))))) {
            (*out)[(*n)++] = (xl_ckpt_info){ .step = step,
                                             .path = folder_of(a, dir, step),
                                             .bytes = folder_bytes(a, folder_of(a, dir, step)),
                                             .committed = true,
                                             .folder = true };
        } else if (step_of(names[i], ".ok", &step) && !xl_file_stat(file_of(a, dir, step), NULL)) {
            (*out)[(*n)++] = (xl_ckpt_info){ .step = step,
                                             .path = file_of(a, dir, step),
                                             .committed = true,
                                             .bad = "it was committed, and its file is gone" };
        }
    }
    if (*n)
        qsort(*out, *n, sizeof **out, by_step);
out:
    return err;
}

static void look(xl_arena *a, const char *dir, xl_ckpt_info *c)
{
    if (c->bad)
        return;
    xl_error *err = c->folder ? verify_folder(a, c->path, c->step) : verify(a, dir, c->step, &c->committed);
    if (err)
        c->bad = xl_str_c(a, xl_str_of(xl_error_message(err)));
    xl_error_free(err);
}

xl_error *xl_ckpt_list(xl_arena *a, const char *dir, xl_ckpt_info **out, size_t *n)
{
    xl_error *err = names_of(a, dir, out, n);
    for (size_t i = 0; !err && i < *n; i++)
        look(a, dir, &(*out)[i]);
    return err;
}

const char *xl_ckpt_folder(xl_arena *a, const char *dir) { return xl_path_join(a, dir, "checkpoints"); }

const char *xl_ckpt_remedy(xl_arena *a, const char *dir, bool lost)
{
    const char *run = xl_word_of(a, dir);
    return lost ? xl_strf(a,
                          "put one of them back from a copy, or begin the run again at step 0 with: "
                          "xlane resume --from-scratch %s",
                          run)
                      .p
                : xl_strf(a, "`xlane resume %s` trains on and saves one at its end", run).p;
}

xl_error *xl_ckpt_newest(xl_arena *a, const char *run, char **path, int64_t *step, xl_buf *passed)
{
    xl_error *err = NULL;
    xl_ckpt_info *all;
    xl_buf why = { 0 };
    size_t n, i;
    const char *dir = xl_ckpt_folder(a, run);
    *path = NULL;
    *step = 0;
    XL_DO(names_of(a, dir, &all, &n));
    for (i = n; i-- > 0 && !*path;) {
        look(a, dir, &all[i]);
        if (all[i].bad) {                                /* not one to stop at: an older one may be whole */
            xl_buf_printf(&why, "step %lld: %s\n", (long long)all[i].step, all[i].bad);
            continue;
        }
        *path = all[i].path;
        *step = all[i].step;
    }
    if (passed)
        xl_buf_str(passed, xl_buf_view(&why));
    if (*path && why.n)
        XL_LOG(WARN, "passed over: %.*s", XL_FMT(xl_str_trim(xl_buf_view(&why))));
    if (n && !*path)
        err = XL_ERR(DATA_LOSS, "no checkpoint in %s can be read:\n%.*s", dir, XL_FMT(xl_str_trim(xl_buf_view(&why))));
    else if (!n && xl_trained_saved(a, run))
        err = XL_ERR(DATA_LOSS, "the checkpoints that %s had are gone", run);
out:
    xl_buf_fini(&why);
    return err;
}

xl_error *xl_ckpt_lost(xl_arena *a, const char *dir, xl_error *err)
{
    if (xl_error_code(err) != XL_CODE_DATA_LOSS)
        return err;
    xl_error *more = XL_ERR(DATA_LOSS, "%s\n%s", xl_error_message(err), xl_ckpt_remedy(a, dir, true));
    xl_error_free(err);
    return more;
}

xl_error *xl_ckpt_needed(xl_arena *a, const char *dir, char **path, int64_t *step)
{
    xl_error *err = xl_ckpt_newest(a, dir, path, step, NULL);
    if (!err && !*path)
        return XL_ERR(NOT_FOUND, "%s has no checkpoint yet; %s", dir, xl_ckpt_remedy(a, dir, false));
    return xl_ckpt_lost(a, dir, err);
}

/* ---- in the background ------------------------------------------------------------------------------------------- */
typedef struct { int64_t step; struct timespec changed; uint64_t ino, bytes; } seen;
enum { SEEN = 32 };

struct xl_saver {
    xl_arena arena;
    const char *dir;
    xl_job *job;              /* NULL: this process writes it all */
    int64_t keep, step, turn; /* turn: of saving; the ranks count alike */
    _Atomic int64_t last;
    snapshot s;
    xl_thread thread;
    bool running;
    xl_error *err;
    seen whole[SEEN]; /* verified by us, and not changed since: the system's change time cannot be set back */
    uint32_t nwhole;
};

static bool stat_of(xl_arena *a, const xl_ckpt_info *c, seen *out)
{
    struct stat st;
    xl_str *names = NULL;
    size_t n = 0;
    if (stat(c->path, &st))
        return false;
    *out = (seen){ c->step, st.st_ctim, (uint64_t)st.st_ino, (uint64_t)st.st_size };
    if (c->folder)
        xl_error_free(xl_dir_list(a, c->path, &names, &n));
    for (size_t i = 0; i < n; i++) {
        if (stat(xl_path_join(a, c->path, xl_str_c(a, names[i])), &st))
            return false;
        if (st.st_ctim.tv_sec > out->changed.tv_sec ||
            (st.st_ctim.tv_sec == out->changed.tv_sec && st.st_ctim.tv_nsec > out->changed.tv_nsec))
            out->changed = st.st_ctim;
        out->ino += (uint64_t)st.st_ino;
        out->bytes += (uint64_t)st.st_size;
    }
    return true;
}

static bool is_whole(xl_saver *s, xl_arena *a, xl_ckpt_info *c)
{
    seen now;
    if (c->bad || !stat_of(a, c, &now))
        return false;
    for (uint32_t i = 0; i < s->nwhole && i < SEEN; i++) {
        const seen *w = &s->whole[i];
        if (w->step == now.step && w->ino == now.ino && w->bytes == now.bytes &&
            w->changed.tv_sec == now.changed.tv_sec && w->changed.tv_nsec == now.changed.tv_nsec)
            return true;
    }
    look(a, s->dir, c);
    if (!c->bad && !c->committed) /* whole, and interrupted before its marker: it counts from now on */
        xl_error_free(commit(a, s->dir, c->step));
    if (!c->bad)
        s->whole[s->nwhole++ % SEEN] = now;
    else
        XL_LOG(WARN, "not counted as a checkpoint: %s", c->bad);
    return !c->bad;
}

static void remove_folder(xl_arena *a, const char *folder)
{
    xl_str *names = NULL;
    size_t n = 0;
    xl_error_free(xl_dir_list(a, folder, &names, &n));
    for (size_t i = 0; i < n; i++)
        xl_error_free(xl_file_remove(xl_path_join(a, folder, xl_str_c(a, names[i]))));
    rmdir(folder);
}

/* First out of the way under a name that is swept, so that half a folder is never taken for a checkpoint. */
static xl_error *discard_folder(xl_arena *a, const char *folder)
{
    char *away = xl_str_c(a, xl_strf(a, "%s.old.tmp", folder));
    remove_folder(a, away);
    if (rename(folder, away))
        return errno == ENOENT ? NULL : xl_file_error(errno, "removing", folder);
    remove_folder(a, away);
    return NULL;
}

static void prune(xl_saver *s)
{
    xl_arena a = { 0 };
    xl_ckpt_info *all;
    size_t n = 0, i;
    int64_t have = 0;
    xl_error *err = names_of(&a, s->dir, &all, &n);
    for (i = n; !err && i > 0 && have < s->keep; i--)
        have += is_whole(s, &a, &all[i - 1]);
    if (have == s->keep)
        for (; !err && i > 0; i--) {
            const xl_ckpt_info *c = &all[i - 1];
            err = c->folder ? discard_folder(&a, c->path) : xl_file_remove(c->path);
            if (!err && !c->folder)
                err = xl_file_remove(marker_of(&a, s->dir, c->step));
        }
    if (err)
        XL_LOG(WARN, "an old checkpoint stays: %s", xl_error_message(err));
    xl_error_free(err);
    xl_arena_fini(&a);
}

/* ---- by several ranks -----------------------------------------------------------------------------------------------
 * First each writes its share into step-N.tmp, syncs it and says so; then rank 0, once all have, writes the index and
 * renames the folder: that is the commit. Whoever dies before leaves a folder that is none. All ranks learn what came
 * of it, and so go on alike. */
static const double save_s = 1800;

static void tell(xl_saver *s, const char *what, int64_t rank, const xl_error *err, xl_str ok)
{
    char key[80];
    xl_buf b = { 0 };
    if (rank >= 0)
        snprintf(key, sizeof key, "%s-%lld-%lld", what, (long long)s->turn, (long long)rank);
    else
        snprintf(key, sizeof key, "%s-%lld", what, (long long)s->turn);
    if (err)
        xl_buf_printf(&b, "%d %s", (int)xl_error_code(err), xl_error_message(err));
    else
        xl_buf_printf(&b, "0 %.*s", XL_FMT(ok));
    xl_error_free(xl_job_put(s->job, key, xl_buf_view(&b)));
    xl_buf_fini(&b);
}

/* What the other side told: its error as ours, or what it added. */
static xl_error *hear(xl_saver *s, const char *what, int64_t rank, xl_buf *ok)
{
    char key[80];
    int64_t code = 0;
    xl_buf b = { 0 };
    if (rank >= 0)
        snprintf(key, sizeof key, "%s-%lld-%lld", what, (long long)s->turn, (long long)rank);
    else
        snprintf(key, sizeof key, "%s-%lld", what, (long long)s->turn);
    xl_error *err = xl_job_get(s->job, key, save_s, &b);
    xl_str text = xl_buf_view(&b);
    if (!err && !xl_str_i64(xl_str_cut(&text, ' '), &code))
        err = XL_ERR(INTERNAL, "%s cannot be read", key);
    if (!err && code)
        err = xl_error_new((xl_code)code, "%.*s", XL_FMT(text));
    if (!err)
        xl_buf_str(ok, text);
    xl_buf_fini(&b);
    return err;
}

static void sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
}

static xl_error *write_share(xl_saver *s, xl_arena *a, const char *tmp, xl_buf *ok)
{
    xl_error *err = NULL;
    xl_safetensors f = { .fd = -1 };
    char hex[XL_DIGEST_HEX], *path = share_of(a, tmp, xl_job_me(s->job), xl_job_ranks(s->job));
    XL_DO(xl_dir_make_private(tmp));
    XL_DO(xl_safetensors_write(path, s->s.t, s->s.n, s->s.meta, 3));
    XL_DO(xl_safetensors_open(path, &f));
    xl_buf_printf(ok, "%llu %s", (unsigned long long)f.bytes, xl_digest_hex(&f.header, hex));
out:
    xl_safetensors_close(&f);
    return err;
}

static xl_error *commit_shares(xl_saver *s, xl_arena *a, const char *tmp, xl_str own)
{
    xl_error *err = NULL;
    xl_buf b = { 0 }, said = { 0 };
    xl_json j = { .out = &b };
    int64_t ranks = xl_job_ranks(s->job);
    char *to = folder_of(a, s->dir, s->step);
    xl_json_map(&j);
    xl_json_put_int(&j, "step", s->step);
    xl_json_put_int(&j, "ranks", ranks);
    xl_json_key(&j, "files");
    xl_json_list(&j);
    for (int64_t i = 0; i < ranks; i++) {
        int64_t bytes = 0;
        said.n = 0;
        if (i)
            XL_TRY(hear(s, "share", i, &said), "rank %lld", (long long)i);
        else
            xl_buf_str(&said, own);
        xl_str header = xl_buf_view(&said), size = xl_str_cut(&header, ' ');
        if (!xl_str_i64(size, &bytes)) {
            err = XL_ERR(INTERNAL, "rank %lld sent an unreadable description of its slices", (long long)i);
            goto out;
        }
        xl_json_map(&j);
        xl_json_put_int(&j, "bytes", bytes);
        xl_json_put_str(&j, "header", header);
        xl_json_end(&j);
    }
    xl_json_end(&j);
    xl_json_end(&j);
    xl_buf_putc(&b, '\n');
    XL_DO(xl_file_write_atomic(xl_path_join(a, tmp, "index.json"), xl_buf_view(&b)));
    XL_DO(discard_folder(a, to)); /* one of that step which was not whole */
    if (rename(tmp, to))
        err = xl_file_error(errno, "committing", to);
    else
        sync_folder(s->dir);
out:
    xl_buf_fini(&b);
    xl_buf_fini(&said);
    return err;
}

static xl_error *write_together(xl_saver *s, xl_arena *a)
{
    xl_buf ok = { 0 };
    char *tmp = xl_str_c(a, xl_strf(a, "%s.tmp", folder_of(a, s->dir, s->step)));
    xl_error *err = write_share(s, a, tmp, &ok);
    if (xl_job_me(s->job)) {
        tell(s, "share", xl_job_me(s->job), err, xl_buf_view(&ok));
        ok.n = 0;
        xl_error *all = hear(s, "saved", -1, &ok);
        if (err)
            xl_error_free(all);
        else
            err = all;
    } else {
        if (!err)
            err = commit_shares(s, a, tmp, xl_buf_view(&ok));
        tell(s, "saved", -1, err, XL_STR(""));
    }
    xl_buf_fini(&ok);
    return err;
}

static void write_it(void *arg)
{
    xl_saver *s = arg;
    xl_arena a = { 0 };
    if (s->job) {
        s->err = write_together(s, &a);
    } else {
        s->err = xl_safetensors_write(file_of(&a, s->dir, s->step), s->s.t, s->s.n, s->s.meta, 3);
        if (!s->err)
            s->err = commit(&a, s->dir, s->step);
    }
    if (!s->err) {
        s->last = s->step;
        if (!xl_job_me(s->job))
            prune(s);
    }
    xl_arena_fini(&a);
}

/* What a process left that was killed while it wrote. */
static void sweep(const char *dir)
{
    xl_arena a = { 0 };
    xl_str *names = NULL;
    size_t n = 0;
    xl_error_free(xl_dir_list(&a, dir, &names, &n));
    for (size_t i = 0; i < n; i++) {
        xl_file_info st;
        char *path = xl_path_join(&a, dir, xl_str_c(&a, names[i]));
        if (!xl_file_is_temporary(names[i]) &&
            !(xl_str_starts(names[i], XL_STR("step-")) && xl_str_ends(names[i], XL_STR(".tmp"))))
            continue;
        if (xl_file_stat(path, &st) && st.dir)
            remove_folder(&a, path);
        else
            xl_error_free(xl_file_remove(path));
    }
    xl_arena_fini(&a);
}

xl_error *xl_saver_open(const char *dir, int64_t keep, int64_t last, xl_job *job, xl_saver **out)
{
    xl_arena a = { 0 };
    xl_error *err = xl_dir_make_private(dir);
    if (err)
        return err;
    if (!xl_job_me(job))
        sweep(dir);
    xl_saver *s = xl_new(&a, xl_saver, 1);
    s->dir = xl_str_c(&a, xl_str_of(dir));
    s->keep = keep > 0 ? keep : 1;
    s->last = last;
    s->job = job;
    s->arena = a;
    *out = s;
    return NULL;
}

xl_error *xl_saver_wait(xl_saver *s)
{
    if (s->running) {
        xl_thread_join(&s->thread);
        s->running = false;
        drop(&s->s);
    }
    xl_error *err = s->err;
    s->err = NULL;
    return err;
}

static void refuse(xl_saver *s, const xl_error *why)
{
    if (s->job)
        tell(s, xl_job_me(s->job) ? "share" : "saved", xl_job_me(s->job) ? xl_job_me(s->job) : -1, why, XL_STR(""));
}

void xl_saver_refuse(xl_saver *s, const xl_error *why)
{
    s->turn++;
    refuse(s, why);
}

xl_error *xl_saver_save(xl_saver *s, xl_trainer *t, int64_t step, const xl_progress *where)
{
    xl_error *before = xl_saver_wait(s), *err = take(t, where, &s->s);
    if (err) {
        xl_saver_refuse(s, err);
    } else {
        s->step = step;
        s->turn++;
        err = xl_thread_start(&s->thread, "xlane-save", write_it, s);
        s->running = !err;
        if (err)
            refuse(s, err);
    }
    if (before && err) {
        xl_error_free(err);
        return before;
    }
    return before ? before : err;
}

xl_error *xl_saver_close(xl_saver *s)
{
    if (!s)
        return NULL;
    xl_error *err = xl_saver_wait(s);
    xl_arena a = s->arena;
    xl_arena_fini(&a);
    return err;
}

int64_t xl_saver_last(xl_saver *s) { return s->last; }
