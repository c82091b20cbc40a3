#include "train/ckpt.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
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

static xl_error *take(xl_trainer *t, const xl_progress *where, snapshot *s)
{
    xl_error *err = xl_trainer_whole(t);
    if (err)
        return err;
    static const int64_t two = 2;
    uint64_t total = 0, at = 0;
    *s = (snapshot){ .n = 3 * (size_t)t->n + 1 };
    s->t = xl_new(&s->arena, xl_saved, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        const xl_type *ty = i < 3 * t->n ? t->type[i % t->n] : NULL;
        int64_t bytes = 8;
        if (ty)
            xl_type_bytes(ty, &bytes);
        s->t[i] = (xl_saved){ .name = xl_str_dup(&s->arena, xl_state_name(&s->arena, t, i)),
                              .dtype = ty ? ty->dtype : XL_I32,
                              .dims = ty ? xl_type_dims(ty) : (xl_dims){ &two, 1 },
                              .bytes = (uint64_t)bytes };
        total += (uint64_t)bytes;
    }
    s->bytes = malloc(total);
    if (!s->bytes) {
        err = XL_ERR(EXHAUSTED, "no memory for a checkpoint of %llu bytes", (unsigned long long)total);
        goto out;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->t[i].data = (char *)s->bytes + at;
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

xl_error *xl_ckpt_load(xl_trainer *t, const char *path, xl_progress *where)
{
    xl_error *err = NULL;
    xl_arena a = { 0 };
    xl_safetensors s = { .fd = -1 };
    static const int64_t two = 2;
    uint32_t n = 3 * t->n + 1;
    void *host = NULL;
    XL_DO(xl_safetensors_open(path, &s));
    const xl_saved **src = xl_new(&a, const xl_saved *, n);
    uint64_t most = 8;
    for (uint32_t i = 0; i < n; i++) {                   /* all are looked at before one is changed */
        xl_str name = xl_state_name(&a, t, i);
        const xl_type *ty = i < 3 * t->n ? t->type[i % t->n] : NULL;
        xl_dims want = ty ? xl_type_dims(ty) : (xl_dims){ &two, 1 };
        src[i] = xl_safetensors_find(&s, name);
        if (!src[i]) {
            err =
                XL_ERR(INVALID,
                       "%s has no tensor \"%.*s\": it is of another model; take the configuration it was trained with",
                       path, XL_FMT(name));
            goto out;
        }
        bool same = src[i]->dtype == (ty ? ty->dtype : XL_I32) && src[i]->dims.n == want.n;
        for (size_t k = 0; same && k < want.n; k++)
            same = src[i]->dims.p[k] == want.p[k];
        if (!same) {
            xl_buf x = { 0 };
            for (size_t k = 0; k < src[i]->dims.n; k++)
                xl_buf_printf(&x, "%s%lld", k ? "," : "", (long long)src[i]->dims.p[k]);
            xl_buf_puts(&x, "], this model has [");
            for (size_t k = 0; k < want.n; k++)
                xl_buf_printf(&x, "%s%lld", k ? "," : "", (long long)want.p[k]);
            err = XL_ERR(INVALID, "%s: tensor \"%.*s\" is %s[%.*s]; take the configuration it was trained with", path,
                         XL_FMT(name), xl_dtypes[src[i]->dtype].text, XL_FMT(xl_buf_view(&x)));
            xl_buf_fini(&x);
            goto out;
        }
        most = src[i]->bytes > most ? src[i]->bytes : most;
    }
    for (size_t k = 0; k < s.n; k++) {                     /* what nobody takes belongs to another model too */
        bool taken = false;
        for (uint32_t i = 0; i < n && !taken; i++)
            taken = src[i] == &s.t[k];
        if (!taken) {
            err = XL_ERR(INVALID,
                         "%s has a tensor \"%.*s\" that this model has not: it is of another model; take the "
                         "configuration it was trained with",
                         path, XL_FMT(s.t[k].name));
            goto out;
        }
    }
    host = malloc(most);
    if (!host) {
        err = XL_ERR(EXHAUSTED, "no memory to load a tensor of %llu bytes", (unsigned long long)most);
        goto out;
    }
    for (uint32_t i = 0; i < n; i++) { /* one at a time: devices that hold the state once can be loaded into */
        xl_array *fresh;
        XL_DO(xl_safetensors_read(&s, src[i], host));
        t->half = true;
        XL_TRY(xl_array_put(t->buf[i]->place, xl_elem_of(src[i]->dtype), src[i]->dims, &t->buf[i]->spec, host, &fresh),
               "placing %.*s", XL_FMT(src[i]->name));
        xl_array_free(t->buf[i]);
        t->buf[i] = fresh;
    }
    t->half = false;
    if (where) {
        int64_t seed = 0;
        *where = (xl_progress){ 0 };
        if (!xl_str_i64(xl_safetensors_meta(&s, "xlane.batches"), &where->batches))
            where->batches = 0;
        if (xl_str_i64(xl_safetensors_meta(&s, "xlane.seed"), &seed))
            where->seed = (uint64_t)seed;
    }
out:
    free(host);
    xl_safetensors_close(&s);
    xl_arena_fini(&a);
    return err;
}

xl_error *xl_trainer_save(xl_trainer *t, const char *path)
{
    return xl_ckpt_save(t, path, &(xl_progress){ t->lane->step, 0 });
}
xl_error *xl_trainer_load(xl_trainer *t, const char *path) { return xl_ckpt_load(t, path, NULL); }

/* ---- the folder -----------------------------------------------------------------------------------------------------
 * */
static char *file_of(xl_arena *a, const char *dir, int64_t step)
{
    return xl_str_c(a, xl_strf(a, "%s/step-%08lld.safetensors", dir, (long long)step));
}
static char *marker_of(xl_arena *a, const char *dir, int64_t step)
{
    return xl_str_c(a, xl_strf(a, "%s/step-%08lld.ok", dir, (long long)step));
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

/* The file against its own digests, and against its marker where there is one. */
static xl_error *verify(xl_arena *a, const char *dir, int64_t step, bool *committed)
{
    xl_error *err = NULL;
    xl_safetensors s = { .fd = -1 };
    xl_node *m = NULL;
    xl_str text;
    char hex[XL_DIGEST_HEX], *marker = marker_of(a, dir, step);
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
        if (bytes->i != (int64_t)s.bytes || !xl_str_is(header->s, xl_digest_hex(&s.header, hex))) {
            err = XL_ERR(DATA_LOSS, "%s is not the file that was committed as step %lld", s.path, (long long)step);
            goto out;
        }
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
    xl_error *err = verify(a, dir, c->step, &c->committed);
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

xl_error *xl_ckpt_newest(xl_arena *a, const char *dir, char **path, int64_t *step, xl_buf *passed)
{
    xl_error *err = NULL;
    xl_ckpt_info *all;
    xl_buf why = { 0 };
    size_t n, i;
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
    else if (*path && why.n)
        XL_LOG(WARN, "passed over: %.*s", XL_FMT(xl_str_trim(xl_buf_view(&why))));
    if (n && !*path)
        err = XL_ERR(DATA_LOSS, "no checkpoint in %s can be read:\n%.*s", dir, XL_FMT(xl_str_trim(xl_buf_view(&why))));
out:
    xl_buf_fini(&why);
    return err;
}

/* ---- in the background ----------------------------------------------------------------------------------------------
 * */
typedef struct { int64_t step; struct timespec changed; uint64_t ino, bytes; } seen;
enum { SEEN = 32 };

struct xl_saver {
    xl_arena arena;
    const char *dir;
    int64_t keep, step;
    _Atomic int64_t last;
    snapshot s;
    xl_thread thread;
    bool running;
    xl_error *err;
    seen whole[SEEN]; /* verified by us, and not changed since: the system's change time cannot be set back */
    uint32_t nwhole;
};

static bool is_whole(xl_saver *s, xl_arena *a, xl_ckpt_info *c)
{
    struct stat st;
    if (c->bad || stat(c->path, &st))
        return false;
    seen now = { c->step, st.st_ctim, (uint64_t)st.st_ino, (uint64_t)st.st_size };
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
            err = xl_file_remove(all[i - 1].path);
            if (!err)
                err = xl_file_remove(marker_of(&a, s->dir, all[i - 1].step));
        }
    if (err)
        XL_LOG(WARN, "an old checkpoint stays: %s", xl_error_message(err));
    xl_error_free(err);
    xl_arena_fini(&a);
}

static void write_it(void *arg)
{
    xl_saver *s = arg;
    xl_arena a = { 0 };
    s->err = xl_safetensors_write(file_of(&a, s->dir, s->step), s->s.t, s->s.n, s->s.meta, 3);
    if (!s->err)
        s->err = commit(&a, s->dir, s->step);
    if (!s->err) {
        s->last = s->step;
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
    for (size_t i = 0; i < n; i++)
        if (xl_file_is_temporary(names[i]) ||
            (xl_str_starts(names[i], XL_STR("step-")) && xl_str_ends(names[i], XL_STR(".tmp"))))
            xl_error_free(xl_file_remove(xl_path_join(&a, dir, xl_str_c(&a, names[i]))));
    xl_arena_fini(&a);
}

xl_error *xl_saver_open(const char *dir, int64_t keep, int64_t last, xl_saver **out)
{
    xl_arena a = { 0 };
    xl_error *err = xl_dir_make_private(dir);
    if (err)
        return err;
    sweep(dir);
    xl_saver *s = xl_new(&a, xl_saver, 1);
    s->dir = xl_str_c(&a, xl_str_of(dir));
    s->keep = keep > 0 ? keep : 1;
    s->last = last;
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

xl_error *xl_saver_save(xl_saver *s, xl_trainer *t, int64_t step, const xl_progress *where)
{
    xl_error *before = xl_saver_wait(s), *err = take(t, where, &s->s);
    if (!err) {
        s->step = step;
        err = xl_thread_start(&s->thread, "xlane-save", write_it, s);
        s->running = !err;
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
